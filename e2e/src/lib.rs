//! What scenarios are written with: a world (a Karmada host and its members) and a scenario's own corner of it.
//!
//! A scenario speaks only the Kubernetes API and waits for conditions. It does not know whether the world is the
//! embedded sandbox or a real Karmada (`CALDERA_E2E_HOST_KUBECONFIG`, `CALDERA_E2E_MEMBERS=m1=FILE,m2=FILE`). What it
//! needs of capacity it asks of the members' nodes.
#![forbid(unsafe_code)]

pub mod capacity;
pub mod kinds;
pub mod line;
pub mod manifest;
pub mod scenario;
pub mod world;

pub use caldera_cli::stack::Component;
pub use scenario::{
    PATIENCE, Scenario, Skipped, is_skipped_on_given, run, run_alone, run_configured, run_in, run_with_components,
    run_with_stock_scheduler, skip,
};
