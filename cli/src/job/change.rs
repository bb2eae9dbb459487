//! Holds, releases and deletes workloads.

use std::process::ExitCode;

use caldera_crds::{names::caldera::HOLD, workload::WorkloadKind};
use caldera_runtime::{
    client::WriteCounts,
    write::{Body, Failure, Write, execute_write},
};
use kube::Client;
use serde_json::{Value, json};

use crate::{
    args::{JobName, JobNamesArgs},
    components,
    objects::{annotation, annotation_path, get_object, text},
    output,
};

/// What is done to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Hold,
    Release,
    Delete,
}

impl Change {
    const fn done(self) -> &'static str {
        match self {
            Self::Hold => "held",
            Self::Release => "released",
            Self::Delete => "deleted",
        }
    }
}

/// Times that an object may change while it is changed.
const TRIES: usize = 5;

pub(super) async fn change_jobs(args: JobNamesArgs, change: Change) -> anyhow::Result<ExitCode> {
    let client = components::connect_client(args.scope.kubeconfig.as_deref(), "job", &WriteCounts::default()).await?;
    let namespace = args.scope.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let mut failed = false;
    for job in &args.jobs {
        let named = format!("{}/{}", job.kind.aliases()[0], job.name);
        match change_job(&client, &namespace, job, change).await {
            Ok(done) => output::write_stdout(&format!("{named} {done}\n")),
            Err(error) => {
                failed = true;
                eprintln!("{}", output::escape_controls(&format!("caldera: {named}: {error:#}")));
            }
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn change_job(client: &Client, namespace: &str, job: &JobName, change: Change) -> anyhow::Result<&'static str> {
    for _ in 0..TRIES {
        let found = get_object(client, &job.kind.api_resource(), Some(namespace), &job.name).await?;
        let Some(object) = found.map_err(anyhow::Error::msg)? else {
            anyhow::bail!("there is no {} {} in namespace {namespace}", job.kind.title(), job.name);
        };
        let Some(body) = build_change(&object, change) else {
            return Ok(if change == Change::Hold { "is held already" } else { "is not held" });
        };
        match execute_write(client, &write_workload(job.kind, &object, body)).await {
            Ok(_) => return Ok(change.done()),
            Err(Failure::Conflict(_)) => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    anyhow::bail!("it changes all the time; try again")
}

fn write_workload(kind: WorkloadKind, object: &Value, body: Body) -> Write {
    Write {
        resource: kind.api_resource(),
        namespace: text(object, "/metadata/namespace").to_owned(),
        name: text(object, "/metadata/name").to_owned(),
        subresource: None,
        body,
    }
}

/// Nothing where it is so already.
fn build_change(object: &Value, change: Change) -> Option<Body> {
    let held = annotation(object, HOLD);
    let path = annotation_path(HOLD);
    let test = |path: &str, value: &Value| json!({"op": "test", "path": path, "value": value});
    let version = test("/metadata/resourceVersion", &object["metadata"]["resourceVersion"]);
    match change {
        Change::Hold if held == Some("true") => None,
        Change::Hold if object["metadata"]["annotations"].is_object() => {
            Some(Body::JsonPatch(json!([version, {"op": "add", "path": path, "value": "true"}])))
        }
        Change::Hold => {
            let add = json!({"op": "add", "path": "/metadata/annotations", "value": {HOLD: "true"}});
            Some(Body::JsonPatch(json!([version, add])))
        }
        Change::Release => {
            let held = held?;
            Some(Body::JsonPatch(json!([test(&path, &json!(held)), {"op": "remove", "path": path}])))
        }
        Change::Delete => Some(Body::Delete { uid: Some(text(object, "/metadata/uid").to_owned()) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(annotations: Value, change: Change) -> Option<Value> {
        let object = json!({"metadata": {"resourceVersion": "7", "uid": "u", "annotations": annotations}});
        build_change(&object, change).map(|body| match body {
            Body::JsonPatch(patch) => patch,
            Body::Delete { uid } => json!(uid),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_hold_adds_one_annotation_if_the_object_is_as_it_was_seen() {
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        let add = json!({"op": "add", "path": "/metadata/annotations/caldera.dev~1hold", "value": "true"});
        assert_eq!(patch(json!({"a": "b"}), Change::Hold), Some(json!([test, add])));
        let first = json!({"op": "add", "path": "/metadata/annotations", "value": {"caldera.dev/hold": "true"}});
        assert_eq!(patch(Value::Null, Change::Hold), Some(json!([test, first])));
        assert_eq!(patch(json!({"caldera.dev/hold": "true"}), Change::Hold), None);
    }

    #[test]
    fn a_release_removes_that_annotation_and_a_deletion_names_the_uid() {
        let path = "/metadata/annotations/caldera.dev~1hold";
        let wanted = json!([{"op": "test", "path": path, "value": "true"}, {"op": "remove", "path": path}]);
        assert_eq!(patch(json!({"caldera.dev/hold": "true"}), Change::Release), Some(wanted));
        assert_eq!(patch(Value::Null, Change::Release), None);
        assert_eq!(patch(Value::Null, Change::Delete), Some(json!("u")));
    }
}
