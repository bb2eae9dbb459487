//! Members' objects report to their Works.
//!
//! Rule: Karmada `pkg/controllers/status/work_status_controller.go`: every change of a managed object asks for its
//! status and its health; a failing status is retried, a failing health is `Unknown` until the next change.

use std::sync::Arc;

use serde_json::{Value, json};

use super::plan;
use crate::karmada::{
    api::{Change, Handler},
    control::{Control, work_kind},
    events::About,
    interpreter::Operation,
    names,
    object::{ObjectExt, ObjectKey},
    queue::{Failure, Next, Queue},
};

const SOURCE: &str = "work-status-controller";

type Key = (String, ObjectKey);

/// Starts to report.
pub fn run_controller(control: &Arc<Control>) {
    let queue: Arc<Queue<Key>> = Queue::new("work-status", control.shutdown.clone());
    let objects = queue.clone();
    control.on_propagated(move |cluster| requeue_reported(objects.clone(), cluster));
    let (own, objects) = (control.clone(), queue.clone());
    // A Work that was just applied may have missed the report of an object that was there before.
    control.host.add_handler(
        &work_kind(),
        Arc::new(move |change: &Change| {
            let Some(work) = &change.new else { return };
            let Some(member) = names::cluster_of(work.namespace()).and_then(|cluster| own.member(cluster)) else {
                return;
            };
            let was = |one: &Value| crate::karmada::object::condition_status(one, "Applied") == "True";
            if was(work)
                && !change.old.as_ref().is_some_and(|old| was(old))
                && work.items("/status/manifestStatuses").is_empty()
            {
                for manifest in work.items("/spec/workload/manifests") {
                    objects.add((member.name.clone(), ObjectKey::of(manifest)));
                }
            }
        }),
    );
    let own = control.clone();
    queue.run(8, move |(cluster, key)| {
        let own = own.clone();
        async move { report_work(&own, &cluster, &key).await }
    });
}

fn requeue_reported(objects: Arc<Queue<Key>>, cluster: &str) -> Handler {
    let cluster = cluster.to_owned();
    Arc::new(move |change: &Change| {
        let Some(object) = change.latest() else { return };
        if names::cluster_of(object.annotation(names::WORK_NAMESPACE)) == Some(cluster.as_str()) {
            objects.add((cluster.clone(), ObjectKey::of(object)));
        }
    })
}

async fn report_work(control: &Control, cluster: &str, key: &ObjectKey) -> Result<Next, Failure> {
    let Some(member) = control.member(cluster) else { return Ok(Next::Done) };
    let Some(observed) = member.cached(&key.gvk, &key.namespace, &key.name) else { return Ok(Next::Done) };
    let (namespace, name) = (observed.annotation(names::WORK_NAMESPACE), observed.annotation(names::WORK_NAME));
    let Some(work) = control.host.get_cached_or_live(&work_kind(), namespace, name).await? else {
        return Ok(Next::Done);
    };
    if work.is_deleting() {
        return Ok(Next::Done);
    }
    let (events, about) = (&control.events, About::object(&work));
    let what = format!("object({}/{}/{})", key.gvk.kind, key.namespace, key.name);
    let status = match control.interpreter.interpret_status(&observed).await {
        Ok(status) => status,
        Err(error) => {
            let message = format!("Reflect status for {what} failed, err: {error}.");
            events.warning(SOURCE, about, "ReflectStatusFailed", message);
            return Err(Failure(error));
        }
    };
    events.normal(SOURCE, about.clone(), "ReflectStatusSucceed", format!("Reflect status for {what} succeed."));
    let health = interpret_health(control, &observed, &what, about).await;
    let Some(item) = plan::manifest_status(&work, &observed, status, health) else {
        return Err(Failure("no such manifest exist".to_owned()));
    };
    control.writer.modify(&work, "status", |work| work.put(&["status", "manifestStatuses"], json!([item]))).await?;
    Ok(Next::Done)
}

async fn interpret_health(control: &Control, observed: &Value, what: &str, about: About) -> &'static str {
    if !control.interpreter.is_enabled(&observed.gvk(), Operation::InterpretHealth) {
        return "Healthy";
    }
    let (events, reason) = (&control.events, "InterpretHealthSucceed");
    match control.interpreter.interpret_health(observed).await {
        Ok(true) => {
            events.normal(SOURCE, about, reason, format!("Interpret health of {what} as healthy."));
            "Healthy"
        }
        Ok(false) => {
            events.normal(SOURCE, about, reason, format!("Interpret health of {what} as unhealthy."));
            "Unhealthy"
        }
        Err(error) => {
            let message = format!("Interpret health of {what} failed, err: {error}.");
            events.warning(SOURCE, about, "InterpretHealthFailed", message);
            "Unknown"
        }
    }
}
