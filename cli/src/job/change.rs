//! Holds, releases, suspends, resumes and deletes workloads.
//!
//! Rule: a batch Job has a field for suspension; others are suspended by annotation `caldera.dev/suspended`
//! (`caldera_controller::decide::withdrawal`). Either is what its user wrote, so resuming takes both away.

use std::process::ExitCode;

use caldera_crds::{
    names::caldera::{HOLD, SUSPENDED},
    workload::WorkloadKind,
};
use caldera_runtime::write::Body;
use kube::Client;
use serde_json::{Value, json};

use crate::{
    args::{JobName, JobNamesArgs},
    change::{
        build_annotation_step, build_delete_body, build_tested_patch, build_version_test, build_write, print_outcome,
        to_exit_code, write_retrying_conflicts,
    },
    components,
    objects::{self, annotation_of, annotation_path, get_job, get_object, read_text_at},
    view::compute_state_from_objects,
};

/// What is done to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobChange {
    Hold,
    Release,
    Suspend,
    Resume,
    Delete,
}

impl JobChange {
    const fn done_word(self) -> &'static str {
        match self {
            Self::Hold => "held",
            Self::Release => "released",
            Self::Suspend => "suspended",
            Self::Resume => "resumed",
            Self::Delete => "deleted",
        }
    }

    /// What there is to say where nothing is to be done.
    const fn unchanged_phrase(self) -> &'static str {
        match self {
            Self::Hold => "is held already",
            Self::Release => "is not held",
            Self::Suspend => "is suspended already",
            Self::Resume => "is not suspended",
            Self::Delete => "is deleted already",
        }
    }
}

pub(super) async fn change_jobs(args: JobNamesArgs, change: JobChange) -> anyhow::Result<ExitCode> {
    let (client, namespace) = components::connect_scope(&args.scope, "job").await?;
    let mut all_done = true;
    for job in &args.jobs {
        all_done &= print_outcome(&job.to_string(), change_job(&client, &namespace, job, change).await);
    }
    Ok(to_exit_code(all_done))
}

/// Says in a few words what was done.
///
/// # Errors
/// If there is no such job, a hold would be for nothing, or the server refuses.
pub(crate) async fn change_job(
    client: &Client,
    namespace: &str,
    job: &JobName,
    change: JobChange,
) -> anyhow::Result<&'static str> {
    let is_changed = write_retrying_conflicts(client, async || {
        let object = get_job(client, namespace, job.kind, &job.name).await?;
        if change == JobChange::Hold
            && let Some(why) = refuse_hold(read_state(client, namespace, &object).await?)
        {
            anyhow::bail!(why);
        }
        Ok(build_change(job.kind, &object, change).map(|body| build_write(&job.kind.api_resource(), &object, body)))
    });
    Ok(if is_changed.await? { change.done_word() } else { change.unchanged_phrase() })
}

/// Where a job stands by its binding, as `job list` says it.
async fn read_state(client: &Client, namespace: &str, object: &Value) -> anyhow::Result<&'static str> {
    let binding = read_binding(client, namespace, object).await?;
    Ok(compute_state_from_objects(object, binding.as_ref()).word())
}

/// The binding of a job.
pub(crate) async fn read_binding(client: &Client, namespace: &str, object: &Value) -> anyhow::Result<Option<Value>> {
    let name =
        format!("{}-{}", objects::name_of(object), read_text_at(object, "/kind")).to_lowercase().replace(':', ".");
    let binding =
        get_object(client, &objects::binding_resource(), Some(namespace), &name).await?.map_err(anyhow::Error::msg)?;
    // A batch Job of the same name has a binding of the same name.
    let uid = read_text_at(object, "/metadata/uid");
    Ok(binding.filter(|binding| [uid, ""].contains(&read_text_at(binding, "/spec/resource/uid"))))
}

/// A hold is looked at while a job waits, and at no other time.
fn refuse_hold(state: &str) -> Option<String> {
    match state {
        "Completed" | "Failed" | "Terminated" | "Aborted" => {
            Some(format!("not held: it has ended ({state}), and a hold concerns only what waits"))
        }
        "Admitted" | "Starting" | "Running" => Some(format!(
            "not held: it is {}, and a hold concerns only what waits; `caldera job suspend` takes it off its clusters",
            if state == "Admitted" { "admitted" } else { "placed" }
        )),
        "NotGated" => Some("not held: it is in no queue, so that nothing would hold it".to_owned()),
        _ => None,
    }
}

/// Nothing where it is so already.
fn build_change(kind: WorkloadKind, object: &Value, change: JobChange) -> Option<Body> {
    let has_field = kind == WorkloadKind::BatchJob;
    match change {
        JobChange::Hold => build_annotation_patch(object, HOLD),
        JobChange::Release => Some(Body::JsonPatch(Value::Array(build_annotation_removal(object, HOLD)?))),
        JobChange::Suspend if has_field => (object["spec"]["suspend"] != true)
            .then(|| Body::JsonPatch(build_suspend_steps(object, &["spec", "suspend"], true).into())),
        JobChange::Suspend => build_annotation_patch(object, SUSPENDED),
        JobChange::Resume => {
            let mut patch = build_annotation_removal(object, SUSPENDED).unwrap_or_default();
            if let Some((path, _)) = kind.suspend_field()
                && kind.find_suspending_field(object).is_some()
            {
                patch.extend(build_suspend_steps(object, path, false));
            }
            (!patch.is_empty()).then_some(Body::JsonPatch(Value::Array(patch)))
        }
        JobChange::Delete => Some(build_delete_body(object)),
    }
}

/// Sets an annotation to `true`.
fn build_annotation_patch(object: &Value, name: &str) -> Option<Body> {
    (annotation_of(object, name) != Some("true"))
        .then(|| build_tested_patch(object, [build_annotation_step(object, name, "true")]))
}

fn build_annotation_removal(object: &Value, name: &str) -> Option<Vec<Value>> {
    let path = annotation_path(name);
    let mark = annotation_of(object, name)?;
    Some(vec![json!({"op": "test", "path": path, "value": mark}), json!({"op": "remove", "path": path})])
}

fn build_suspend_steps(object: &Value, path: &[&str], suspend: bool) -> [Value; 2] {
    [build_version_test(object), json!({"op": "add", "path": format!("/{}", path.join("/")), "value": suspend})]
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
