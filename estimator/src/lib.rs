//! The server of Karmada's accurate estimator (`pkg/estimator/server`), for one member.
//!
//! [`serve`] answers a stock karmada-scheduler from the member's own nodes, so that its numbers are true node by node.
//! [`answer`] is the pure part: how many fit. [`limits`] says what may be asked, and [`question`] holds a message
//! against them. Messages are in `caldera_crds::estimator`, gRPC is tonic's.
#![forbid(unsafe_code)]

pub mod answer;
pub mod limits;
pub mod question;
pub mod serve;
