//! An embedded Kubernetes API server: one process, in memory, faithful in what clients see.
//!
//! `store` is pure and synchronous; every write passes through its one `commit`. `write` and `delete` turn a request
//! into a commit (admission, defaults, validation, field ownership), `read` and `watch` answer from the store, `http`
//! routes.
#![forbid(unsafe_code)]

mod accept;
pub mod admission;
pub mod auth;
mod autoscaling;
mod body;
mod builtin;
mod call;
pub mod clock;
mod container_rules;
mod crd;
mod crd_names;
mod data;
mod deadline;
mod delete;
mod discovery;
mod endpoint_rules;
pub mod error;
mod event;
pub mod fields;
mod http;
pub mod ids;
mod internal_form;
mod job_policies;
mod job_status;
mod kind_rules;
mod limits;
mod meta;
mod namespace;
mod node_rules;
mod options;
pub mod patch;
mod pod;
mod pod_affinity;
mod pod_references;
mod pod_rules;
mod pod_security;
mod pod_update;
mod pod_volumes;
mod pod_warnings;
mod podspec;
mod priority;
mod protobuf;
mod quota;
mod range_rules;
mod read;
mod registry_form;
mod request;
pub mod resource;
mod restore;
mod rollout;
mod runtime_class;
pub mod schema;
mod selector;
mod server;
mod service;
mod small_kinds;
pub mod store;
mod strategy;
mod subresource;
mod syntax;
mod table;
mod text_diff;
mod warning;
mod watch;
mod workload_rules;
mod write;
mod yaml;

pub use clock::{Clock, SystemClock, TokioClock};
pub use ids::{Ids, RandomIds, SeededIds};
pub use server::{ApiServer, Options};
