//! An embedded Kubernetes API server: one process, in memory, faithful in what clients see.
//!
//! `store` is pure and synchronous; every write passes through its one `commit`. `write` and `delete` turn a request
//! into a commit (admission, defaults, validation, field ownership), `read` and `watch` answer from the store, `http`
//! routes.
//!
//! Start with [`ApiServer`]: it is made of [`Options`] and answers through a `tower` service or over HTTPS.
//! [`auth::User`] is who asks.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod accept;
mod admission;
pub mod auth;
mod autoscaler_rules;
mod autoscaling;
mod body;
mod builtin;
mod call;
mod clock;
mod cluster_rules;
mod container_rules;
mod crd;
mod crd_names;
mod csr_rules;
mod data;
mod deadline;
mod default_classes;
mod delete;
mod discovery;
mod driver_rules;
mod endpoint_rules;
mod error;
mod event;
mod fields;
mod http;
mod ids;
mod internal_form;
mod job_policies;
mod job_status;
mod kind_rules;
mod limits;
mod meta;
mod mount_rules;
mod namespace;
mod node_rules;
mod options;
mod patch;
mod pod;
mod pod_affinity;
mod pod_annotations;
mod pod_references;
mod pod_resources;
mod pod_rules;
mod pod_security;
mod pod_status;
mod pod_update;
mod pod_volumes;
mod pod_warnings;
mod pod_windows;
mod podspec;
mod priority;
mod protobuf;
mod quota;
mod range_rules;
mod read;
mod registry_form;
mod request;
mod resource;
mod restore;
mod rollout;
mod runtime_class;
mod schema;
mod scope_rules;
mod selector;
mod server;
mod service;
mod small_kinds;
mod status_rules;
mod storage_rules;
mod store;
mod strategy;
mod subresource;
mod syntax;
mod table;
mod text_diff;
mod warning;
mod watch;
mod workload_rules;
mod workload_spec;
mod write;
mod yaml;

pub use clock::{Clock, SystemClock, TokioClock};
pub use ids::{Ids, RandomIds, SeededIds};
pub use restore::Backup;
pub use server::{ApiServer, GrantObserver, GrantedRequest, Options};
