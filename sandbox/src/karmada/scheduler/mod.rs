//! karmada-scheduler, as Karmada ships it: bindings that name `default-scheduler` get clusters.

pub mod estimate;
pub mod plan;
pub mod run;
