//! Statuses: from the copies to the binding, and through our interpreter to the job.

use std::collections::BTreeMap;

use caldera_runtime::write::{self, Write};
use serde_json::{Value, json};

use super::{Copy, NAMESPACE, StandIn, interpreter::patched, services, text, write_to};
use crate::{hostile::is_hostile, workloads::is_service};

impl StandIn {
    /// Statuses: from the copies to the binding, and through the interpreter to the job.
    pub(super) async fn report(&mut self, jobs: &[Value], bindings: &[Value]) -> Result<(), String> {
        let mut failed = Ok(());
        for binding in bindings {
            let uid = text(&binding["spec"]["resource"]["uid"]);
            let Some(job) = jobs.iter().find(|job| job["metadata"]["uid"] == uid.as_str()) else { continue };
            let items = self.list_items(binding);
            // Of what has no copy any more Karmada says that once.
            if items.is_empty() && binding["status"]["aggregatedStatus"].as_array().is_none_or(Vec::is_empty) {
                continue;
            }
            if binding["status"]["aggregatedStatus"] != json!(items) {
                let name = text(&binding["metadata"]["name"]);
                let body = write::Body::MergePatch(json!({"status": {"aggregatedStatus": items}}));
                let write =
                    Write { subresource: Some("status"), ..write_to(super::bindings(), NAMESPACE, &name, body) };
                if let Err(failure) = write::execute_write(&self.host, &write).await {
                    failed = Err(failure.to_string());
                }
            }
            let known = (items.clone(), job["status"].clone());
            if self.aggregated.get(&uid) == Some(&known) {
                continue;
            }
            if is_service(job) {
                if self.report_service(job, &items).await.is_err() {
                    failed = Err("a Deployment's status was not written".into());
                }
                continue;
            }
            let answer = match self.interpret("AggregateStatus", job, json!({"aggregatedStatus": items})).await {
                Ok(answer) => answer,
                Err(error) => {
                    failed = Err(error);
                    continue;
                }
            };
            let new = patched(job, &answer)["status"].clone();
            if new == job["status"] {
                self.aggregated.insert(uid, known);
                continue;
            }
            // What the hostile say of their own clusters is not so.
            if new["state"]["phase"] == "Completed" && !is_hostile(text(&job["metadata"]["name"]).as_str()) {
                self.must_be_complete(binding);
            }
            let name = text(&job["metadata"]["name"]);
            let version = &job["metadata"]["resourceVersion"];
            let patch = json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                {"op": "add", "path": "/status", "value": new},
            ]);
            let write = Write {
                subresource: Some("status"),
                ..write_to(super::jobs(), NAMESPACE, &name, write::Body::JsonPatch(patch))
            };
            if let Err(failure) = write::execute_write(&self.host, &write).await {
                failed = Err(failure.to_string());
            }
        }
        failed
    }

    /// Never Completed while a member runs.
    fn must_be_complete(&self, binding: &Value) {
        for target in binding["spec"]["clusters"].as_array().into_iter().flatten() {
            let key = (
                text(&target["name"]),
                text(&binding["spec"]["resource"]["uid"]),
                text(&binding["spec"]["resource"]["name"]),
            );
            let finished = self.copies.get(&key).is_some_and(|copy| copy.finished);
            assert!(finished, "{} is called Completed while {} is not done: {binding}", key.2, key.0);
        }
    }
}

pub(super) fn status(copy: &Copy) -> Value {
    if is_service(&copy.manifest) {
        return services::status(copy);
    }
    let pods = copy.pods.len();
    let phase = match (copy.started, copy.finished) {
        (_, true) => "Completed",
        (Some(_), false) => "Running",
        (None, false) => "Pending",
    };
    let count = |is: bool| if is { pods } else { 0 };
    let mut tasks: BTreeMap<String, Value> = BTreeMap::new();
    for task in copy.manifest["spec"]["tasks"].as_array().unwrap() {
        let phase = if copy.finished { "Succeeded" } else { "Running" };
        let prefix = format!("{}-{}-", text(&copy.manifest["metadata"]["name"]), text(&task["name"]));
        let pods = copy.pods.keys().filter(|pod| pod.starts_with(&prefix)).count();
        if pods > 0 {
            tasks.insert(text(&task["name"]), json!({"phase": {phase: pods}}));
        }
    }
    json!({
        "state": {"phase": phase, "lastTransitionTime": "2026-01-01T00:00:00Z"},
        "minAvailable": copy.manifest["spec"]["minAvailable"],
        "running": count(!copy.finished), "succeeded": count(copy.finished), "taskStatusCount": tasks,
    })
}
