//! What the scheduler says of its state at `/debug/state`.

use caldera_runtime::{clock::format_time, debug_state::list_first};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Scheduler;

impl Scheduler {
    /// Names are of bindings and clusters alone. The lists hold their first entries only.
    pub(crate) fn describe_state(&self) -> Value {
        let (cache, now) = (&self.cache, Instant::now());
        let (clock, next) = (self.clock.now(), self.next_wake());
        json!({
            "time": format_time(clock),
            "unlisted": self.unlisted,
            "topologiesListed": self.topologies_listed,
            "waitsForMembers": self.grace_end.is_some(),
            "silentMembers": list_first(cache.fleet.list_clusters_not_reported_yet(), |name| name.to_string().into()),
            "secondsToNextDecision": next.map(|at| at.saturating_duration_since(now).as_secs_f64()),
            "bindings": cache.bindings.len(),
            "due": cache.count_due(),
            "unschedulable": cache.count_unschedulable(),
            "waitingForLeaseRead": self.fence.count_waiting(),
            "inFlight": list_first(self.in_flight.iter(), |(key, (version, since))| {
                let seconds = now.saturating_duration_since(*since).as_secs();
                json!({"binding": key.to_string(), "resourceVersion": version, "seconds": seconds})
            }),
            "assumed": list_first(cache.assumed.iter(), |(key, targets)| {
                let clusters: Vec<_> =
                    targets.iter().map(|it| json!({"name": it.cluster.to_string(), "replicas": it.replicas})).collect();
                json!({"binding": key.to_string(), "clusters": clusters})
            }),
            "retries": list_first(self.retries.list_failures(), |(key, failures, until)| {
                let seconds = until.map(|at| at.saturating_duration_since(now).as_secs());
                json!({"binding": key.to_string(), "failures": failures, "againInSeconds": seconds})
            }),
            "writes": self.writer.describe_queue(),
        })
    }
}
