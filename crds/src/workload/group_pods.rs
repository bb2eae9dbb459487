//! Pods that are one gang: plain Pods that name one group and say how many it has.
//!
//! Rule: Volcano's group of a pod is annotation `scheduling.k8s.io/group-name`, and its PodGroup says how many pods it
//! needs (`minMember`). On the host the pods say it themselves, each the same, by annotation
//! `scheduling.volcano.sh/group-min-member`: nothing is charged by what somebody else's PodGroup says. Kueue's
//! `kueue.x-k8s.io/pod-group-total-count` is the model. What goes to a member names no group: there Volcano makes a
//! PodGroup for each pod, in the queue that is charged.

use serde_json::Value;

use super::{POD_GROUPS, WorkloadKind};
use crate::{dns::is_dns_subdomain, names::volcano::GROUP_MIN_MEMBER};

/// Pods that may start together, as jobs of a HyperJob.
const MOST_PODS: u32 = 500;

/// The group of a Pod, and how many pods start together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOfPod {
    /// Its name, in the Pod's namespace.
    pub name: String,
    /// Pods that are needed.
    pub needed: u32,
}

/// Reads it; `None` of what is no Pod, names no group, or none that could be, or does not say how many there are.
#[must_use]
pub fn read_group_of_pod(object: &Value) -> Option<GroupOfPod> {
    if WorkloadKind::of_object(object) != Some(WorkloadKind::Pod) {
        return None;
    }
    let annotations = object.get("metadata")?.get("annotations")?;
    let name = POD_GROUPS.iter().find_map(|key| annotations.get(key)?.as_str().filter(|name| !name.is_empty()))?;
    if !is_dns_subdomain(name) {
        return None;
    }
    let needed: u32 = annotations.get(GROUP_MIN_MEMBER)?.as_str()?.parse().ok()?;
    (1..=MOST_PODS).contains(&needed).then(|| GroupOfPod { name: name.to_owned(), needed })
}

/// The annotations of its template that Karmada keeps on a copy as they are there (`RetainAnnotations`,
/// `pkg/util/annotation.go`).
const MANAGED_ANNOTATIONS: &str = "resourcetemplate.karmada.io/managed-annotations";

/// Takes a group that is one of the host off a member's copy. It is no annotation of the template for Karmada any more
/// either: else Karmada would take away, at each sync, the group that the member's Volcano gives the copy.
pub fn remove_host_group(copy: &mut Value) {
    if read_group_of_pod(copy).is_none() {
        return;
    }
    if let Some(annotations) = copy.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        let is_of_group = |key: &str| POD_GROUPS.contains(&key) || key == GROUP_MIN_MEMBER;
        annotations.retain(|key, _| !is_of_group(key));
        if let Some(Value::String(managed)) = annotations.get_mut(MANAGED_ANNOTATIONS) {
            *managed = managed.split(',').filter(|key| !is_of_group(key)).collect::<Vec<_>>().join(",");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workload::read_gang;

    fn pod(annotations: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": annotations},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        })
    }

    #[test]
    fn pods_of_one_group_that_say_how_many_they_are_are_a_gang() {
        let one = pod(json!({POD_GROUPS[0]: "g", GROUP_MIN_MEMBER: "3"}));
        assert_eq!(read_group_of_pod(&one), Some(GroupOfPod { name: "g".to_owned(), needed: 3 }));
        let gang = read_gang(&one).unwrap();
        assert_eq!((gang.min_available, gang.one_cluster), (1, None), "each is charged for itself");
    }

    #[test]
    fn a_group_without_a_number_or_with_a_wild_one_is_refused_as_before() {
        for needed in [json!(null), json!("0"), json!("many"), json!("501")] {
            let one = pod(json!({POD_GROUPS[1]: "g", GROUP_MIN_MEMBER: needed}));
            assert_eq!(read_group_of_pod(&one), None);
            assert!(read_gang(&one).is_err(), "{needed}");
        }
        for name in ["G", "a/b", &"g".repeat(254)] {
            let one = pod(json!({POD_GROUPS[0]: name, GROUP_MIN_MEMBER: "1"}));
            assert_eq!(read_group_of_pod(&one), None, "{name} is no PodGroup's name");
            assert!(read_gang(&one).is_err(), "{name}");
        }
        let mut job = pod(json!({POD_GROUPS[0]: "g", GROUP_MIN_MEMBER: "1"}));
        job["kind"] = "Job".into();
        assert_eq!(read_group_of_pod(&job), None);
    }

    #[test]
    fn a_copy_is_in_no_group() {
        let mut copy = pod(json!({POD_GROUPS[0]: "g", POD_GROUPS[1]: "g", GROUP_MIN_MEMBER: "3", "mine": "kept"}));
        remove_host_group(&mut copy);
        assert_eq!(copy["metadata"]["annotations"], json!({"mine": "kept"}));
        let managed = format!("mine,{},{GROUP_MIN_MEMBER},other", POD_GROUPS[0]);
        let mut synced = pod(json!({POD_GROUPS[0]: "g", GROUP_MIN_MEMBER: "3", MANAGED_ANNOTATIONS: managed}));
        remove_host_group(&mut synced);
        assert_eq!(synced["metadata"]["annotations"], json!({MANAGED_ANNOTATIONS: "mine,other"}));
        let mut foreign = pod(json!({POD_GROUPS[0]: "evil"}));
        let before = foreign.clone();
        remove_host_group(&mut foreign);
        assert_eq!(foreign, before, "it is refused");
    }
}
