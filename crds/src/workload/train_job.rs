//! TrainJobs: what patches the runtime of one, and how its pods are told from those of a JobSet.
//!
//! Its pods have the labels of any JobSet's. So the copy that goes out patches its runtime with a label that names it.

use serde_json::{Map, Value, json};

use super::{
    GangError, WorkloadKind,
    field::Field,
    train_node::{NODE, build_pod},
};
use crate::{names::caldera::TRAIN_JOB, object::name_of};

/// Who patches the runtime with the label.
const MANAGER: &str = "caldera-webhook";

/// The annotations of the JobSet, from which a Trainer takes its queue, and of the pods, as patches say them.
pub(super) fn list_patched_annotations<'a>(root: &Field<'a>) -> Result<Vec<Field<'a>>, GangError> {
    let mut all = Vec::new();
    let Some(spec) = root.at(&["spec"]) else { return Ok(all) };
    for patch in spec.list("runtimePatches")? {
        let Some(set) = patch.at(&["trainingRuntimeSpec", "template"]) else { continue };
        all.extend(set.at(&["metadata", "annotations"]));
        for job in set.at(&["spec"]).map_or(Ok(Vec::new()), |spec| spec.list("replicatedJobs"))? {
            all.extend(job.at(&["template", "spec", "template", "metadata", "annotations"]));
        }
    }
    Ok(all)
}

/// Has a copy's pods say of which TrainJob they are; other kinds stay as they are.
pub fn mark_pods(copy: &mut Value) {
    if WorkloadKind::of_object(copy) != Some(WorkloadKind::TrainJob) {
        return;
    }
    let name = name_of(copy).to_owned();
    let Some(spec) = copy.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let labels = json!({"metadata": {"labels": {TRAIN_JOB: name}}});
    let job = json!({"name": NODE, "template": {"spec": {"template": labels}}});
    let patch = json!({
        "manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
    });
    let patches = spec.entry("runtimePatches").or_insert_with(|| json!([]));
    if let Some(patches) = patches.as_array_mut() {
        patches.retain(|one| one["manager"] != MANAGER);
        // The last one wins.
        patches.push(patch);
    }
}

/// Changes where a copy's nodes run. The last patch that has an affinity replaces the one that their user patched, so
/// it is said again there.
pub(super) fn edit_node_patch(copy: &mut Value, edit: &mut dyn FnMut(&mut Value) -> Option<()>) -> Option<()> {
    let spec = Field::unnamed(copy).at(&["spec"])?;
    let mut pod = build_pod(&spec, &spec).ok()?;
    let mut patched = Map::new();
    patched.extend(pod["spec"].get_mut("affinity").map(|affinity| ("affinity".to_owned(), affinity.take())));
    let mut patched = Value::Object(patched);
    edit(&mut patched)?;
    mark_pods(copy);
    let patches = copy.get_mut("spec")?.get_mut("runtimePatches")?.as_array_mut()?;
    let ours = patches
        .last_mut()?
        .pointer_mut("/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template")?;
    ours.as_object_mut()?.insert("spec".to_owned(), patched);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copys_pods_are_marked_once_and_last_whatever_its_user_wrote() {
        let foreign = json!({"manager": "me", "trainingRuntimeSpec": {}});
        let mut copy = json!({
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "t"},
            "spec": {"runtimePatches": [{"manager": MANAGER, "trainingRuntimeSpec": {"template": {}}}, foreign]},
        });
        mark_pods(&mut copy);
        let patches = copy["spec"]["runtimePatches"].as_array().unwrap();
        assert_eq!((patches.len(), &patches[0]), (2, &foreign));
        let job = &patches[1]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0];
        assert_eq!(job["template"]["spec"]["template"]["metadata"]["labels"], json!({TRAIN_JOB: "t"}));
        let again = copy.clone();
        mark_pods(&mut copy);
        assert_eq!(copy, again);
    }

    #[test]
    fn where_nodes_run_is_said_last_with_what_their_user_said() {
        let theirs =
            json!({"template": {"spec": {"template": {"spec": {"affinity": {"podAffinity": 1}}}}}, "name": NODE});
        let theirs =
            json!({"manager": "me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [theirs]}}}});
        let mut copy = json!({
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "t"},
            "spec": {"runtimePatches": [theirs]},
        });
        let mut edit = |pod: &mut Value| {
            pod["affinity"]["nodeAffinity"] = 2.into();
            Some(())
        };
        edit_node_patch(&mut copy, &mut edit).unwrap();
        let ours = &copy["spec"]["runtimePatches"][1]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0];
        let template = &ours["template"]["spec"]["template"];
        assert_eq!(template["spec"], json!({"affinity": {"podAffinity": 1, "nodeAffinity": 2}}));
        assert_eq!(template["metadata"]["labels"], json!({TRAIN_JOB: "t"}));
        let once = copy.clone();
        edit_node_patch(&mut copy, &mut edit).unwrap();
        assert_eq!(copy, once);
    }

    #[test]
    fn what_is_no_train_job_or_none_that_can_be_read_stays_as_it_is() {
        for spec in [json!(null), json!(1), json!({"runtimePatches": 1})] {
            for kind in ["TrainJob", "JobSet"] {
                let object = json!({
                    "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": {"name": "t"},
                    "spec": spec,
                });
                let mut copy = object.clone();
                mark_pods(&mut copy);
                assert_eq!(copy, object);
            }
        }
    }
}
