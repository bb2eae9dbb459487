//! Holds, releases, suspends, resumes and deletes workloads.
//!
//! Rule: a batch Job has a field for suspension; others are suspended by annotation `caldera.dev/suspended`
//! (`caldera_controller::decide::withdrawal`). Either is what its user wrote, so resuming takes both away.

use std::process::ExitCode;

use caldera_crds::{
    names::caldera::{HOLD, SUSPENDED},
    workload::WorkloadKind,
};
use caldera_runtime::{
    client::WriteCounts,
    write::{Body, Failure, Write, execute_write},
};
use kube::Client;
use serde_json::{Value, json};

use crate::{
    args::{JobName, JobNamesArgs},
    components,
    objects::{self, annotation, annotation_path, get_object, text},
    output,
    view::find_state_of,
};

/// What is done to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobChange {
    Hold,
    Release,
    Suspend,
    Resume,
    Delete,
}

impl JobChange {
    const fn done(self) -> &'static str {
        match self {
            Self::Hold => "held",
            Self::Release => "released",
            Self::Suspend => "suspended",
            Self::Resume => "resumed",
            Self::Delete => "deleted",
        }
    }

    /// What there is to say where nothing is to be done.
    const fn is_so(self) -> &'static str {
        match self {
            Self::Hold => "is held already",
            Self::Release => "is not held",
            Self::Suspend => "is suspended already",
            Self::Resume => "is not suspended",
            Self::Delete => "is deleted already",
        }
    }
}

/// Times that an object may change while it is changed.
const TRIES: usize = 5;

pub(super) async fn change_jobs(args: JobNamesArgs, change: JobChange) -> anyhow::Result<ExitCode> {
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

async fn change_job(
    client: &Client,
    namespace: &str,
    job: &JobName,
    change: JobChange,
) -> anyhow::Result<&'static str> {
    for _ in 0..TRIES {
        let found = get_object(client, &job.kind.api_resource(), Some(namespace), &job.name).await?;
        let Some(object) = found.map_err(anyhow::Error::msg)? else {
            anyhow::bail!("there is no {} {} in namespace {namespace}", job.kind.title(), job.name);
        };
        if change == JobChange::Hold {
            let state = read_state(client, namespace, &object).await?;
            if let Some(why) = refuse_hold(state) {
                anyhow::bail!(why);
            }
        }
        let Some(body) = build_change(job.kind, &object, change) else {
            return Ok(change.is_so());
        };
        match execute_write(client, &write_workload(job.kind, &object, body)).await {
            Ok(_) => return Ok(change.done()),
            Err(Failure::Conflict(_)) => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    anyhow::bail!("it changes all the time; try again")
}

/// Where a job stands by its binding, as `job list` says it.
async fn read_state(client: &Client, namespace: &str, object: &Value) -> anyhow::Result<&'static str> {
    let name = format!("{}-{}", objects::name_of(object), text(object, "/kind")).to_lowercase().replace(':', ".");
    let binding =
        get_object(client, &objects::bindings(), Some(namespace), &name).await?.map_err(anyhow::Error::msg)?;
    // A batch Job of the same name has a binding of the same name.
    let uid = text(object, "/metadata/uid");
    let binding = binding.filter(|binding| [uid, ""].contains(&text(binding, "/spec/resource/uid")));
    Ok(find_state_of(object, binding.as_ref()).word())
}

/// A hold is looked at while a job waits, and at no other time.
fn refuse_hold(state: &str) -> Option<String> {
    match state {
        "Completed" | "Failed" | "Terminated" | "Aborted" => {
            Some(format!("not held: it has ended ({state}), and a hold concerns only what waits"))
        }
        "Admitted" | "Starting" | "Running" => Some(format!(
            "not held: it is {state}, and a hold concerns only what waits; `caldera job suspend` takes it off its clusters"
        )),
        "NotGated" => Some("not held: it is in no queue, so that nothing would hold it".to_owned()),
        _ => None,
    }
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
fn build_change(kind: WorkloadKind, object: &Value, change: JobChange) -> Option<Body> {
    let has_field = kind == WorkloadKind::BatchJob;
    match change {
        JobChange::Hold => add_mark(object, HOLD),
        JobChange::Release => Some(Body::JsonPatch(Value::Array(remove_mark(object, HOLD)?))),
        JobChange::Suspend if has_field => (object["spec"]["suspend"] != true)
            .then(|| set_suspend(object, &["spec", "suspend"], true))
            .map(Body::JsonPatch),
        JobChange::Suspend => add_mark(object, SUSPENDED),
        JobChange::Resume => {
            let mut patch = remove_mark(object, SUSPENDED).unwrap_or_default();
            if let Some((path, _)) = kind.suspend_field()
                && kind.suspended_by(object).is_some()
            {
                patch.extend(set_suspend(object, path, false).as_array().into_iter().flatten().cloned());
            }
            (!patch.is_empty()).then_some(Body::JsonPatch(Value::Array(patch)))
        }
        JobChange::Delete => Some(Body::Delete { uid: Some(text(object, "/metadata/uid").to_owned()) }),
    }
}

fn test(path: &str, value: &Value) -> Value {
    json!({"op": "test", "path": path, "value": value})
}

fn test_version(object: &Value) -> Value {
    test("/metadata/resourceVersion", &object["metadata"]["resourceVersion"])
}

/// Sets an annotation to `true`.
fn add_mark(object: &Value, name: &str) -> Option<Body> {
    if annotation(object, name) == Some("true") {
        return None;
    }
    let add = if object["metadata"]["annotations"].is_object() {
        json!({"op": "add", "path": annotation_path(name), "value": "true"})
    } else {
        json!({"op": "add", "path": "/metadata/annotations", "value": {name: "true"}})
    };
    Some(Body::JsonPatch(json!([test_version(object), add])))
}

fn remove_mark(object: &Value, name: &str) -> Option<Vec<Value>> {
    let path = annotation_path(name);
    let mark = annotation(object, name)?;
    Some(vec![test(&path, &json!(mark)), json!({"op": "remove", "path": path})])
}

fn set_suspend(object: &Value, path: &[&str], suspend: bool) -> Value {
    json!([test_version(object), {"op": "add", "path": format!("/{}", path.join("/")), "value": suspend}])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(annotations: Value, change: JobChange) -> Option<Value> {
        let object = json!({"metadata": {"resourceVersion": "7", "uid": "u", "annotations": annotations}});
        build_change(WorkloadKind::VolcanoJob, &object, change).map(|body| match body {
            Body::JsonPatch(patch) => patch,
            Body::Delete { uid } => json!(uid),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_hold_adds_one_annotation_if_the_object_is_as_it_was_seen() {
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        let add = json!({"op": "add", "path": "/metadata/annotations/caldera.dev~1hold", "value": "true"});
        assert_eq!(patch(json!({"a": "b"}), JobChange::Hold), Some(json!([test, add])));
        let first = json!({"op": "add", "path": "/metadata/annotations", "value": {"caldera.dev/hold": "true"}});
        assert_eq!(patch(Value::Null, JobChange::Hold), Some(json!([test, first])));
        assert_eq!(patch(json!({"caldera.dev/hold": "true"}), JobChange::Hold), None);
    }

    #[test]
    fn only_what_waits_is_held() {
        for state in ["Waiting", "Inadmissible", "Held", "Suspended", "NotPropagated"] {
            assert_eq!(refuse_hold(state), None, "{state}");
        }
        for state in ["Running", "Starting", "Admitted"] {
            assert!(refuse_hold(state).is_some_and(|why| why.contains("job suspend")), "{state}");
        }
        for state in ["Completed", "Failed", "Terminated", "Aborted", "NotGated"] {
            assert!(refuse_hold(state).is_some_and(|why| why.starts_with("not held")), "{state}");
        }
    }

    #[test]
    fn a_release_removes_that_annotation_and_a_deletion_names_the_uid() {
        let path = "/metadata/annotations/caldera.dev~1hold";
        let wanted = json!([{"op": "test", "path": path, "value": "true"}, {"op": "remove", "path": path}]);
        assert_eq!(patch(json!({"caldera.dev/hold": "true"}), JobChange::Release), Some(wanted));
        assert_eq!(patch(Value::Null, JobChange::Release), None);
        assert_eq!(patch(Value::Null, JobChange::Delete), Some(json!("u")));
    }

    #[test]
    fn a_suspension_is_the_field_that_a_batch_job_has_and_an_annotation_elsewhere() {
        let path = "/metadata/annotations/caldera.dev~1suspended";
        let version = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        let add = json!({"op": "add", "path": path, "value": "true"});
        assert_eq!(patch(json!({}), JobChange::Suspend), Some(json!([version, add])));
        let marked = json!({"caldera.dev/suspended": "true"});
        assert_eq!(patch(marked.clone(), JobChange::Suspend), None);
        let remove = json!([{"op": "test", "path": path, "value": "true"}, {"op": "remove", "path": path}]);
        assert_eq!(patch(marked.clone(), JobChange::Resume), Some(remove.clone()));
        assert_eq!(patch(json!({}), JobChange::Resume), None);

        let batch = |annotations: &Value, suspend: bool, change: JobChange| {
            let metadata = json!({"resourceVersion": "7", "annotations": annotations});
            let object = json!({"metadata": metadata, "spec": {"suspend": suspend}});
            build_change(WorkloadKind::BatchJob, &object, change)
        };
        let set = |value: bool| json!([version, {"op": "add", "path": "/spec/suspend", "value": value}]);
        assert_eq!(batch(&Value::Null, false, JobChange::Suspend), Some(Body::JsonPatch(set(true))));
        assert_eq!(batch(&Value::Null, true, JobChange::Suspend), None);
        assert_eq!(batch(&Value::Null, true, JobChange::Resume), Some(Body::JsonPatch(set(false))));
        let steps = |value: &Value| value.as_array().unwrap().clone();
        let both = [steps(&remove), steps(&set(false))].concat();
        assert_eq!(batch(&marked, true, JobChange::Resume), Some(Body::JsonPatch(json!(both))));
        let metadata = json!({"resourceVersion": "7"});
        let object = json!({"metadata": metadata, "spec": {"runPolicy": {"suspend": true}}});
        let resume = json!([version, {"op": "add", "path": "/spec/runPolicy/suspend", "value": false}]);
        assert_eq!(build_change(WorkloadKind::PyTorchJob, &object, JobChange::Resume), Some(Body::JsonPatch(resume)));
    }
}
