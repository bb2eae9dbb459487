//! How a scenario waits: for conditions, generously, and through what a server that is late answers.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use kube::{
    Api,
    api::DynamicObject,
    runtime::{
        wait::{self, await_condition},
        watcher,
    },
};
use serde_json::Value;

use super::PATIENCE;

/// Sends a write again whose webhook did not answer in its few seconds, or whose kind was defined a moment ago, as a
/// user of a busy cluster does.
pub(super) async fn retry_late_server<T>(write: impl AsyncFn() -> kube::Result<T>) -> kube::Result<T> {
    let began = Instant::now();
    loop {
        match write().await {
            Err(kube::Error::Api(status)) if is_late(&status) && began.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            result => return result,
        }
    }
}

/// Whether the server was not ready to answer: a webhook's deadline, that of what our webhook asked it in turn, or the
/// store of a CRD that is being set up.
fn is_late(status: &kube::core::Status) -> bool {
    let late = ["context deadline exceeded", "no answer within"];
    let webhook =
        status.message.contains("failed calling webhook") && late.iter().any(|words| status.message.contains(words));
    (status.code == 500 && webhook) || (status.code == 429 && status.message.contains("storage is (re)initializing"))
}

/// [`await_condition`], begun again while the server is not ready to answer.
pub(super) async fn await_met(
    api: Api<DynamicObject>,
    name: &str,
    met: impl Fn(Option<&DynamicObject>) -> bool,
) -> Result<Option<DynamicObject>, wait::Error> {
    loop {
        match await_condition(api.clone(), name, &met).await {
            Err(wait::Error::ProbeFailed(watcher::Error::InitialListFailed(kube::Error::Api(status))))
                if is_late(&status) =>
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            result => return result,
        }
    }
}

pub(super) async fn until(
    api: Api<DynamicObject>,
    name: &str,
    what: &str,
    met: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    let matches = |object: Option<&DynamicObject>| {
        object.is_some_and(|object| serde_json::to_value(object).is_ok_and(|object| met(&object)))
    };
    match tokio::time::timeout(PATIENCE, await_met(api.clone(), name, matches)).await {
        Ok(Ok(Some(object))) => Ok(serde_json::to_value(object)?),
        Ok(Ok(None)) => anyhow::bail!("{name} vanished before it {what}"),
        Ok(Err(error)) => Err(error).with_context(|| format!("failed to watch {name} until it {what}")),
        Err(_) => {
            let last = api.get_opt(name).await.ok().flatten();
            let last = last.and_then(|object| serde_json::to_string(&object).ok()).unwrap_or_else(|| "absent".into());
            anyhow::bail!("waited {PATIENCE:?} in vain until {name} {what}; it is {last}")
        }
    }
}

pub(super) async fn gone(api: Api<DynamicObject>, name: &str) -> anyhow::Result<()> {
    let absent = |object: Option<&DynamicObject>| object.is_none();
    match tokio::time::timeout(PATIENCE, await_met(api, name, absent)).await {
        Ok(result) => result.map(drop).with_context(|| format!("failed to watch {name} until it is gone")),
        Err(_) => anyhow::bail!("waited {PATIENCE:?} in vain until {name} is gone"),
    }
}
