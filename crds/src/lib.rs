//! Typed API objects: Caldera's own CRDs, and the parts of Karmada's and Volcano's APIs that Caldera reads or writes.
//!
//! Start at [`binding`] for ResourceBindings, [`workload`] for the workloads that can be queued, [`placement`] for the
//! conversion into `caldera_core`, [`manifests`] for the CRDs, and [`names`] for labels and annotations.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod action;
pub mod allowed_classes;
pub mod binding;
pub mod capacity_reservation;
pub mod cel;
pub mod chosen_settings;
pub mod cluster_annotations;
pub mod cron_job;
pub mod data_source;
pub mod device;
pub mod discovered_domains;
pub mod dns;
pub mod estimator;
pub mod hyper_job;
pub mod inventory;
pub mod job_admission;
#[allow(missing_docs, reason = "fields are named and described by Karmada")]
pub mod karmada;
pub mod largest_job;
pub mod links;
pub mod longest_run;
pub mod manifests;
pub mod names;
pub mod node_groups;
pub mod numa_topology;
pub mod object;
pub mod placement;
pub mod policy_selection;
pub mod published;
pub mod queue_access;
pub mod queue_admission;
mod schema;
pub mod score;
pub mod selector;
pub mod tenancy;
pub mod trusted;
#[allow(missing_docs, reason = "fields are named and described by Volcano")]
pub mod volcano;
pub mod wire;
pub mod workload;

pub use schema::{DNS_LABEL, DNS_SUBDOMAIN};
