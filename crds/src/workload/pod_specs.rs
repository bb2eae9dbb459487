//! The places in a workload's object that say where its pods run, to be changed in a copy.
//!
//! Rule: each template of its pods, as [`layouts`](super::layouts) and the readers of Kubernetes' own kinds find them.
//! Two kinds say it elsewhere. The affinity of a SparkApplication's driver and executors is a field of these, and
//! replaces that of their template (spark-operator `internal/webhook/sparkpod_defaulter.go`, `addAffinity`). A
//! TrainJob patches its runtime ([`train_job`](super::train_job)).

use serde_json::{Map, Value};

use super::{
    WorkloadKind,
    layout::{Layout, Names, Path},
    train_job,
};

/// Changes something with the fields of a pod's spec; `None` where it is not shaped like one.
pub(super) type Edit<'a> = &'a mut dyn FnMut(&mut Value) -> Option<()>;

/// Changes where the pods of a workload's copy run: `edit` is given each object with a field `affinity`, as a pod's
/// spec has it. `None` where the copy is not shaped like its kind.
pub fn edit_pod_specs(copy: &mut Value, edit: Edit<'_>) -> Option<()> {
    match WorkloadKind::of_object(copy)? {
        WorkloadKind::TrainJob => train_job::edit_node_patch(copy, edit),
        WorkloadKind::SparkApplication => {
            ["driver", "executor"].into_iter().try_for_each(|part| edit_spark_part(copy, part, edit))
        }
        _ => edit_pod_templates(copy, &mut |template| edit(template.get_mut("spec")?)),
    }
}

/// Changes the templates of a workload's pods; a Pod is its own. `None` where the object is not shaped like its kind,
/// or its kind's pods are not made of templates alone.
pub(super) fn edit_pod_templates(object: &mut Value, edit: Edit<'_>) -> Option<()> {
    match WorkloadKind::of_object(object)? {
        WorkloadKind::VolcanoJob => {
            let tasks = object.get_mut("spec")?.get_mut("tasks")?.as_array_mut()?;
            tasks.iter_mut().try_for_each(|task| edit(task.get_mut("template")?))
        }
        WorkloadKind::Pod => edit(object),
        WorkloadKind::TrainJob | WorkloadKind::SparkApplication => None,
        kind => match kind.layout() {
            Some(layout) => edit_templates(object, layout, edit),
            None => edit(object.get_mut("spec")?.get_mut("template")?),
        },
    }
}

fn edit_spark_part(copy: &mut Value, part: &str, edit: Edit<'_>) -> Option<()> {
    let Some(part) = copy.get_mut("spec")?.get_mut(part) else { return Some(()) };
    let of_template = part.pointer("/template/spec/affinity").cloned();
    let own = part.as_object_mut()?.entry("affinity").or_insert(Value::Null);
    if own.is_null() {
        *own = of_template.unwrap_or_else(|| Value::Object(Map::new()));
    }
    edit(part)
}

fn edit_templates(copy: &mut Value, layout: &'static Layout, edit: Edit<'_>) -> Option<()> {
    let (mut any, mut edited) = (false, Vec::<(Path, Path)>::new());
    for sets in layout.pod_sets {
        let Some(place) = copy.pointer_mut(&pointer(sets.at)) else { continue };
        let mut places: Vec<&mut Value> = match sets.names {
            Names::Only(_) => vec![place],
            Names::Keys => place.as_object_mut()?.values_mut().collect(),
            Names::Field(_) => place.as_array_mut()?.iter_mut().collect(),
        };
        for template in sets.templates.iter().filter(|template| !edited.contains(&(sets.at, **template))) {
            for place in &mut places {
                if let Some(template) = place.pointer_mut(&pointer(template)) {
                    edit(template)?;
                    any = true;
                }
            }
        }
        edited.extend(sets.templates.iter().map(|template| (sets.at, *template)));
    }
    any.then_some(())
}

fn pointer(path: Path) -> String {
    path.iter().map(|field| format!("/{field}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kind: WorkloadKind, spec: Value) -> Value {
        json!({"apiVersion": kind.api_version(), "kind": kind.kind(), "metadata": {"name": "x"}, "spec": spec})
    }

    /// How many places are changed, of which each is marked once.
    fn count_edits(copy: &mut Value) -> Option<usize> {
        let mut count = 0;
        let mut edit = |spec: &mut Value| {
            let times = spec["affinity"]["times"].as_u64().unwrap_or(0);
            spec.as_object_mut()?.insert("affinity".to_owned(), json!({"times": times + 1}));
            count += 1;
            Some(())
        };
        edit_pod_specs(copy, &mut edit)?;
        assert!(!copy.to_string().contains("\"times\":2"), "{copy}");
        Some(count)
    }

    #[test]
    fn each_template_of_each_kind_is_changed_once() {
        let pod = || json!({"spec": {"containers": []}});
        let cases = [
            (WorkloadKind::VolcanoJob, json!({"tasks": [{"template": pod()}, {"template": pod()}]}), 2),
            (WorkloadKind::Deployment, json!({"template": pod()}), 1),
            (WorkloadKind::StatefulSet, json!({"template": pod()}), 1),
            (WorkloadKind::BatchJob, json!({"template": pod()}), 1),
            (WorkloadKind::Pod, json!({"containers": []}), 1),
            (
                WorkloadKind::PyTorchJob,
                json!({"pytorchReplicaSpecs": {"Master": {"template": pod()}, "Worker": {"template": pod()}}}),
                2,
            ),
            (WorkloadKind::MpiJob, json!({"mpiReplicaSpecs": {"Launcher": {"template": pod()}}}), 1),
            (
                WorkloadKind::RayCluster,
                json!({"headGroupSpec": {"template": pod()}, "workerGroupSpecs": [{"template": pod()}]}),
                2,
            ),
            (WorkloadKind::JobSet, json!({"replicatedJobs": [{"template": {"spec": {"template": pod()}}}]}), 1),
            (
                WorkloadKind::LeaderWorkerSet,
                json!({"leaderWorkerTemplate": {"leaderTemplate": pod(), "workerTemplate": pod()}}),
                2,
            ),
            (WorkloadKind::LeaderWorkerSet, json!({"leaderWorkerTemplate": {"workerTemplate": pod()}}), 1),
            (WorkloadKind::SparkApplication, json!({"driver": {}, "executor": {}}), 2),
            (WorkloadKind::TrainJob, json!({"trainer": {"numNodes": 2}}), 1),
        ];
        for (kind, spec, places) in cases {
            let mut copy = of(kind, spec);
            assert_eq!(count_edits(&mut copy), Some(places), "{copy}");
        }
    }

    #[test]
    fn a_spark_part_keeps_the_affinity_of_its_template() {
        let mut copy = of(
            WorkloadKind::SparkApplication,
            json!({"driver": {"template": {"spec": {"affinity": {"a": 1}}}}, "executor": {"affinity": {"b": 2}}}),
        );
        edit_pod_specs(&mut copy, &mut |_| Some(())).unwrap();
        assert_eq!(
            (&copy["spec"]["driver"]["affinity"], &copy["spec"]["executor"]["affinity"]),
            (&json!({"a": 1}), &json!({"b": 2}))
        );
    }

    #[test]
    fn a_copy_of_another_shape_is_reported_and_not_panicked_about() {
        for kind in [WorkloadKind::VolcanoJob, WorkloadKind::Deployment, WorkloadKind::JobSet, WorkloadKind::TrainJob] {
            for spec in
                [json!(null), json!(5), json!({"tasks": 5, "template": 5, "replicatedJobs": 5, "runtimePatches": 5})]
            {
                assert_eq!(edit_pod_specs(&mut of(kind, spec), &mut |_| None), None, "{kind:?}");
            }
        }
        assert_eq!(edit_pod_specs(&mut json!({"kind": "ConfigMap"}), &mut |_| Some(())), None);
    }
}
