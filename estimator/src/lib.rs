//! The server of Karmada's accurate estimator (`pkg/estimator/server`), for one member.
//!
//! [`serve`] answers a stock karmada-scheduler from the member's own nodes, so that its numbers are true node by node.
//! The rest is pure: [`question`] reads a message, holds it against [`limits`] and answers it, and [`answer`] counts
//! how many fit and how many pods are unschedulable. Messages are in `caldera_crds::estimator`, gRPC is tonic's.
#![forbid(unsafe_code)]

pub mod answer;
pub mod limits;
pub mod metrics;
pub mod question;
pub mod serve;
