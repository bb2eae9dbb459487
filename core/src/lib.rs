//! Caldera's decisions, as plain functions of values.
//!
//! No I/O, no clock, no randomness, no log, no floats in accounting: the same values give the same decision.
//! Start with [`gang`] (what a workload asks for), [`resources`] (how much), and [`plan`] (where it goes).
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod admission;
pub mod autoscaling;
pub mod capacity_reservation;
pub mod card_choice;
pub mod card_model;
pub mod card_quota;
pub mod cluster_choice;
pub mod cron_schedule;
pub mod data_source;
pub mod declared_data;
pub mod device;
pub mod fleet;
pub mod gang;
pub mod image_locality;
pub mod interning;
pub mod inventory;
pub mod link_aware;
pub mod live_job;
pub mod load_aware;
pub mod maintenance;
mod name;
pub mod node_affinity;
pub mod node_groups;
pub mod numa;
pub mod past_runs;
pub mod place;
pub mod plan;
pub mod pod_group;
pub mod quantity;
pub mod queue;
pub mod reason;
pub mod resources;
pub mod run_limit;
pub mod split;
pub mod status;
pub mod task_topology;
pub mod tenant;
pub mod text;
pub mod time;
pub mod token_bucket;
pub mod topology_discovery;
pub mod webster;
