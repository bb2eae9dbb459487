//! The queue and the group that a member would put a workload's pods in, held against the queue that is charged.
//!
//! Rule: Volcano takes a pod's group from annotation `scheduling.k8s.io/group-name`, and makes no PodGroup where it is
//! there (`pkg/scheduler/api/job_info.go`, `getJobID`; `pkg/controllers/podgroup/pg_controller.go`); cards that are
//! shared take it from `scheduling.volcano.sh/group-name` too (`pkg/scheduler/api/devices/nvidia/vgpu/utils.go`). A
//! PodGroup says queue and priority class, and may be anybody's who can send one there. So pods name none, but for Pods
//! that say how many they are, whose copies name none ([`group_pods`](super::group_pods)). Of a Volcano
//! Job its own controller says it, whatever the template does (`pkg/controllers/job/job_controller_util.go`).
//!
//! Of other projects' kinds each operator takes the queue from a place of its own: KubeRay from a label
//! (`ray-operator/controllers/ray/batchscheduler/volcano/volcano_scheduler.go`), mpi-operator and LeaderWorkerSet from
//! an annotation (`pkg/controller/podgroup.go`; `pkg/schedulerprovider/volcano_provider.go`), Kubeflow's and Spark's
//! from a field (`pkg/controller.v1/common/job.go`; `internal/scheduler/volcano/scheduler.go`), a Trainer from what
//! patches its runtime (`pkg/runtime/framework/plugins/volcano`). Where there is no operator's PodGroup, Volcano takes
//! it from the pod's annotation. Who names a queue in several places names the same one.

use caldera_core::{gang::QueueName, text::shorten_text};

use super::{GangError, WorkloadKind, field::Field, layout::Layout, layout_reader, queue_of, train_job};
use crate::names::volcano::{GROUP_NAME, GROUP_NAME_OF_CARDS, QUEUE, QUEUE_OLD};

/// Annotations of a pod that name its group.
pub const POD_GROUPS: [&str; 2] = [GROUP_NAME, GROUP_NAME_OF_CARDS];
const FOREIGN_GROUP: &str =
    "its pods would have queue and priority class of that PodGroup, which nobody charged: leave it out";

/// Refuses a workload of one of Kubernetes' kinds whose pods name a group. Their queue is the charged one.
pub(super) fn check_group(pod: &Field<'_>) -> Result<(), GangError> {
    pod.at(&["metadata", "annotations"]).map_or(Ok(()), |annotations| check_annotations(&annotations))
}

fn check_annotations(annotations: &Field<'_>) -> Result<(), GangError> {
    let named = POD_GROUPS.iter().find_map(|name| annotations.at(&[*name]).filter(|place| place.value != ""));
    named.map_or(Ok(()), |place| Err(place.wrong(FOREIGN_GROUP)))
}

/// Refuses a job of another project that names a second queue, or whose pods name a group.
pub(super) fn check_job(root: &Field<'_>, kind: WorkloadKind, layout: &'static Layout) -> Result<(), GangError> {
    let queue = queue_of(root.value);
    for (at, key) in [("labels", QUEUE), ("annotations", QUEUE), ("annotations", QUEUE_OLD)] {
        check_name(root.at(&["metadata", at, key]), &queue)?;
    }
    let templates = layout_reader::list_templates(layout, root);
    let of_pods = templates.iter().filter_map(|pod| pod.at(&["metadata", "annotations"]));
    for annotations in of_pods.chain(list_other_annotations(root, kind)?) {
        check_annotations(&annotations)?;
        check_name(annotations.at(&[QUEUE_OLD]), &queue)?;
    }
    Ok(())
}

fn check_name(place: Option<Field<'_>>, queue: &QueueName) -> Result<(), GangError> {
    match place {
        Some(place) if place.value != "" && place.value != queue.as_str() => Err(place.wrong(format!(
            "it is {}, and the job is charged in queue {}: name the same queue, or leave it out",
            shorten_text(&place.value.to_string()),
            shorten_text(queue.as_str()),
        ))),
        _ => Ok(()),
    }
}

/// Annotations that pods get beside those of their templates.
fn list_other_annotations<'a>(root: &Field<'a>, kind: WorkloadKind) -> Result<Vec<Field<'a>>, GangError> {
    match kind {
        WorkloadKind::SparkApplication => {
            let parts = ["driver", "executor"].into_iter();
            Ok(parts.filter_map(|part| root.at(&["spec", part, "annotations"])).collect())
        }
        WorkloadKind::TrainJob => train_job::list_patched_annotations(root),
        _ => Ok(Vec::new()),
    }
}
