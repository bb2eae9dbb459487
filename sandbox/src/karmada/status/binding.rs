//! Works report to their binding, and the binding to the template.
//!
//! Rule: Karmada `pkg/controllers/status/{rb,crb}_status_controller.go`, `common.go`: on every change of a Work's
//! status, on a Work's deletion, and, once the binding was scheduled, when its template's version moves.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::plan;
use crate::karmada::{
    api::Change,
    binding::plan::works_of,
    control::{Control, binding_kind, cluster_binding_kind, work_kind},
    events::About,
    interpreter::Operation,
    names,
    object::{Gvk, ObjectExt},
    queue::{Failure, Next, Queue},
};

type Key = (Gvk, String, String);

const AFTER_DELETION: Duration = Duration::from_millis(50);

fn event_source(gvk: &Gvk) -> &'static str {
    if gvk.kind == "ResourceBinding" {
        "resource-binding-status-controller"
    } else {
        "cluster-resource-binding-status-controller"
    }
}

/// Starts to report.
pub fn run_controller(control: &Arc<Control>) {
    let queue: Arc<Queue<Key>> = Queue::new("binding-status", control.shutdown.clone());
    let bindings = queue.clone();
    control.host.add_handler(
        &work_kind(),
        Arc::new(move |change: &Change| {
            let work = match (&change.old, &change.new) {
                (Some(old), Some(new)) if old.get("status") != new.get("status") => new,
                (Some(old), None) => old,
                _ => return,
            };
            // A Work that goes is often followed by one that comes: not to tell of nothing in between.
            let gap = if change.new.is_none() { AFTER_DELETION } else { Duration::ZERO };
            let cluster_wide = work.annotation(names::CLUSTER_BINDING_NAME);
            if cluster_wide.is_empty() {
                let (namespace, name) =
                    (work.annotation(names::BINDING_NAMESPACE), work.annotation(names::BINDING_NAME));
                bindings.add_after((binding_kind(), namespace.to_owned(), name.to_owned()), gap);
            } else {
                bindings.add_after((cluster_binding_kind(), String::new(), cluster_wide.to_owned()), gap);
            }
        }),
    );
    for gvk in [binding_kind(), cluster_binding_kind()] {
        let (bindings, kind) = (queue.clone(), gvk.clone());
        control.host.add_handler(
            &gvk,
            Arc::new(move |change: &Change| {
                let Some(new) = &change.new else { return };
                let version = |one: &Value| one.text("/spec/resource/resourceVersion").to_owned();
                let moved = change.old.as_ref().is_none_or(|old| version(old) != version(new));
                if moved && new.present("/status/lastScheduledTime").is_some() {
                    bindings.add((kind.clone(), new.namespace().to_owned(), new.name().to_owned()));
                }
            }),
        );
    }
    let own = control.clone();
    queue.run(8, move |(gvk, namespace, name)| {
        let own = own.clone();
        async move { report_binding(&own, &gvk, &namespace, &name).await }
    });
}

async fn report_binding(control: &Control, gvk: &Gvk, namespace: &str, name: &str) -> Result<Next, Failure> {
    let Some(binding) = control.host.cached(gvk, namespace, name) else { return Ok(Next::Done) };
    if binding.is_deleting() {
        return Ok(Next::Done);
    }
    let items = plan::aggregate_works(&works_of(&binding, &control.host.list(&work_kind())));
    let now = control.now();
    let written =
        control.writer.modify(&binding, "status", |binding| plan::set_aggregated(binding, &items, &now)).await?;
    let Some(written) = written else { return Ok(Next::Done) };
    if written.resource_version() != binding.resource_version() {
        let what = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        let message = format!("Update {}({what}) with AggregatedStatus successfully.", gvk.kind);
        control.events.normal(event_source(gvk), About::object(&binding), "AggregateStatusSucceed", message);
    }
    report_template(control, gvk, &written, &items).await
}

/// The template's status is written only when it changes, onto the template as it is now.
async fn report_template(control: &Control, gvk: &Gvk, binding: &Value, items: &[Value]) -> Result<Next, Failure> {
    let reference = &binding["spec"]["resource"];
    let kind = reference.gvk();
    if !control.interpreter.is_enabled(&kind, Operation::AggregateStatus) {
        return Ok(Next::Done);
    }
    for _ in 0..5 {
        let live = control.host.get_live(&kind, reference.text("/namespace"), reference.text("/name")).await?;
        let Some(template) = live else { return Ok(Next::Done) };
        let about = About::object(&template);
        let aggregated = match control.interpreter.aggregate_status(&template, items, &control.now()).await {
            Ok(aggregated) => aggregated,
            Err(error) => {
                control.events.warning(event_source(gvk), about, "AggregateStatusFailed", &error);
                return Err(Failure(error));
            }
        };
        if aggregated.get("status") == template.get("status") {
            return Ok(Next::Done);
        }
        match control.writer.update_status(&aggregated).await {
            Ok(_) => {
                let message = "Update Resource with AggregatedStatus successfully.";
                control.events.normal(event_source(gvk), about, "AggregateStatusSucceed", message);
                return Ok(Next::Done);
            }
            Err(error) if error.is_conflict() => {}
            Err(error) => {
                control.events.warning(event_source(gvk), about, "AggregateStatusFailed", error.message());
                return Err(Failure(error.message()));
            }
        }
    }
    Err(Failure("the template changes faster than its status can be written".to_owned()))
}
