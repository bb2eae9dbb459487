//! Reads what the nodes of a member measure, where it serves that.
//!
//! Rule: `metrics.k8s.io` has no watch (metrics-server answers lists from memory), so NodeMetrics are listed at an
//! interval, in pages, with a deadline and a bound. A member without them, or one that does not let us read them, has
//! no load that anybody knows; it is asked again each ten minutes, and nothing else follows. What can not be read for a
//! while grows old, and whoever goes by it asks how old it is.

use std::time::Duration;

use caldera_core::{inventory::NodeUse, time::EpochSeconds};
use caldera_crds::inventory::read_node_use;
use kube::{Client, api::ApiResource};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{
    clock::SharedClock,
    watch::{api_resource, list_json},
};

pub(super) const NODE_METRICS: &str = "NodeMetrics";

/// Between two readings.
const READ_PERIOD: Duration = Duration::from_secs(30);
/// Between two looks at a member that does not serve them, or refuses.
const LOOK_PERIOD: Duration = Duration::from_secs(600);
/// How long a reading may take.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Nodes that one reading may tell of; more is no cluster of Kubernetes.
const MOST_NODES: usize = 50_000;

fn node_metrics_resource() -> ApiResource {
    api_resource("metrics.k8s.io", "v1beta1", NODE_METRICS, "nodes")
}

/// Reads until nobody receives the readings any more.
pub(super) async fn follow_node_use<M>(
    client: Client,
    clock: SharedClock,
    messages: mpsc::Sender<M>,
    to_message: fn(Vec<NodeUse>, EpochSeconds) -> M,
) {
    while !messages.is_closed() {
        let read_at = EpochSeconds::new(clock.now().as_second());
        let read = tokio::time::timeout(READ_TIMEOUT, read_all_node_use(&client, read_at)).await;
        let wait = match read {
            Ok(Ok(measured)) => {
                let _ = messages.send(to_message(measured, read_at)).await;
                READ_PERIOD
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "the member does not say what its nodes use");
                find_wait_after(&error)
            }
            Err(_) => READ_PERIOD,
        };
        tokio::time::sleep(wait).await;
    }
}

/// When to ask again: who is not allowed to, or asks for what is not served, will not be answered a moment later
/// either.
fn find_wait_after(error: &kube::Error) -> Duration {
    match error {
        kube::Error::Api(status) if matches!(status.code, 403 | 404) => LOOK_PERIOD,
        _ => READ_PERIOD,
    }
}

/// What each node measured.
async fn read_all_node_use(client: &Client, read_at: EpochSeconds) -> Result<Vec<NodeUse>, kube::Error> {
    let mut nodes = 0_usize;
    let read = |object: Value| {
        nodes += 1;
        read_node_use(&object, read_at).filter(|_| nodes <= MOST_NODES)
    };
    list_json(client.clone(), &node_metrics_resource(), None, None, read).await
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_member_that_refuses_or_serves_none_is_asked_again_after_ten_minutes_and_one_that_fails_soon() {
        let after = |code: u16| {
            let status = Status { code, ..Status::default() };
            find_wait_after(&kube::Error::Api(Box::new(status))).as_secs()
        };
        assert_eq!([403, 404, 500, 503].map(after), [600, 600, 30, 30]);
    }
}
