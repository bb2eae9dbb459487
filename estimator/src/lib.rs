//! Karmada's accurate estimator, both ends: `github.com.karmada_io.karmada.pkg.estimator.service.Estimator`.
//!
//! [`serve`] answers for one member from its nodes, so that a stock karmada-scheduler can use numbers that are true node by
//! node; [`ask`] asks anybody's server about a member that we can not read, [`desk`] for
//! many at once. [`proto`] is the wire, [`read`] turns it into
//! core's values and back, [`answer`] is the pure part: how many fit. Calls are unary, so that HTTP/2 as axum and hyper
//! speak it is all that is needed of gRPC ([`grpc`]): that is a hundred lines instead of ten seconds of every cold build.
//!
//! Who does not know answers -1, not an error: karmada-scheduler leaves such a cluster's number out, but drops the
//! numbers of *all* clusters when one of them fails (`pkg/estimator/client/accurate.go`).
#![forbid(unsafe_code)]

pub mod answer;
pub mod ask;
pub mod desk;
pub mod grpc;
pub mod proto;
pub mod read;
pub mod serve;
pub mod tls;

/// The service's full name, which is also the first part of each method's path.
pub const SERVICE: &str = "github.com.karmada_io.karmada.pkg.estimator.service.Estimator";
/// Where Karmada expects an estimator (`cmd/scheduler/app/options/options.go`).
pub const PORT: u16 = 10352;
/// The Service of a member's estimator is named so, and then the member (`--scheduler-estimator-service-prefix`).
pub const SERVICE_PREFIX: &str = "karmada-scheduler-estimator";
/// What is answered by who does not know.
pub const UNKNOWN: i32 = -1;
