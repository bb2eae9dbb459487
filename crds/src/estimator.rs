//! Karmada's accurate estimator: the gRPC service `github.com.karmada_io.karmada.pkg.estimator.service.Estimator`.
//!
//! [`messages`] are what travels, [`convert`] turns them into core's values and back. The server is a component of its
//! own, the client is part of the scheduler.
//!
//! A server that does not know answers [`UNKNOWN`] instead of an error. karmada-scheduler leaves the number of such a
//! cluster out, but drops the numbers of all clusters when one call fails (`pkg/estimator/client/accurate.go`).

pub mod convert;
#[allow(missing_docs, reason = "fields are named and described by Karmada and Kubernetes")]
pub mod messages;

/// The service's full name, which is also the first part of each method's path.
pub const SERVICE: &str = "github.com.karmada_io.karmada.pkg.estimator.service.Estimator";
/// Where Karmada expects an estimator (`cmd/scheduler/app/options/options.go`).
pub const PORT: u16 = 10352;
/// The Service of a member's estimator has this name, a dash and the member (`--scheduler-estimator-service-prefix`).
pub const SERVICE_PREFIX: &str = "karmada-scheduler-estimator";
/// The answer of a server that does not know.
pub const UNKNOWN: i32 = -1;
