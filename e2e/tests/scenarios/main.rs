//! End-to-end scenarios: what users, admins and operators do, over nothing but the Kubernetes API.
//!
//! They run on the embedded sandbox, or unchanged on a real Karmada (see `caldera_e2e`). Scenarios named `a2_<n>` show
//! that a known defect of the peer is not ours.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod autoscaling;
mod bad_input;
mod bad_luck;
mod capacity_reservations;
mod card_quota;
mod colocation;
mod cron_job;
mod data;
mod declared_kinds;
mod devices;
mod examples;
mod forged;
mod give_back;
mod group_pods;
mod hyperjob;
mod image_locality;
mod kinds;
mod lifecycle;
mod links;
mod load;
mod lost;
mod lying;
mod maintenance;
mod member_scripts;
mod namespaces;
mod node_groups;
mod numa;
mod outage;
mod policies;
mod queue_clusters;
mod queueing;
mod refused;
mod restarts;
mod run_time;
mod services;
mod splitting;
mod starting;
mod stock_scheduler;
mod suspension;
mod tenancy;
mod together;
mod topology;
mod usage;
mod withdrawal;
mod worlds;
