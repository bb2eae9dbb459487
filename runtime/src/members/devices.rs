//! What a member's drivers publish and its pods have claimed, joined with its nodes and pods.
//!
//! Rule: whoever is told of the member knows nothing of claims: a node has its devices ([`Change::Devices`]), and a pod
//! asks for what it was given beside its own request ([`MemberDevices`]). A claim may be told before or after its pod,
//! so pods that claim devices are kept as they asked, and told again when that changes. Most members have no devices:
//! then nothing is kept.

use std::collections::BTreeMap;

use caldera_core::{
    inventory::{Change, Pod},
    resources::Resources,
};
use caldera_crds::{
    device::{DeviceClass, ExtendedClaim, MemberDevices, ResourceClaim, ResourceSlice},
    inventory::read_pod,
    object::read_list_at,
};
use serde_json::Value;

use crate::watch::Event;

/// Something happened to an object that tells of devices.
#[derive(Debug)]
pub(super) enum DeviceEvent {
    Slices(Event<ResourceSlice>),
    Classes(Event<DeviceClass>),
    Claims(Event<ResourceClaim>),
}

/// A pod as it asks itself.
#[derive(Debug)]
pub(super) struct ReadPod {
    pod: Pod,
    claims_devices: bool,
    extended: Option<ExtendedClaim>,
}

impl ReadPod {
    pub(super) fn read(object: &Value) -> Option<Self> {
        let claims_devices = !read_list_at(object, "/spec/resourceClaims").is_empty();
        Some(Self { pod: read_pod(object)?, claims_devices, extended: ExtendedClaim::read(object) })
    }
}

/// Namespace and name.
type PodName = (String, String);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct DeviceJoin {
    devices: MemberDevices,
    /// What was told of each node.
    by_node: BTreeMap<String, Resources>,
    /// Pods that claim devices, as they ask themselves, and what they were told to have claimed.
    claimants: BTreeMap<PodName, (Pod, Resources)>,
    /// Pods that ask for extended resources that are devices, and the claim that stands for them.
    extended: BTreeMap<PodName, String>,
}

impl DeviceJoin {
    /// All nodes with devices.
    pub(super) fn list_devices(&self) -> Change {
        Change::AllDevices(self.by_node.clone().into_iter().collect())
    }

    /// What changes of nodes, and of pods that were told.
    pub(super) fn apply_devices(&mut self, event: DeviceEvent) -> Vec<Change> {
        let devices = &mut self.devices;
        let pods = match event {
            DeviceEvent::Slices(event) => {
                match event {
                    Event::Reset(all) => devices.set_all_slices(all),
                    Event::Applied(slice) => devices.set_slice(slice),
                    Event::Deleted(slice) => devices.remove_slice(&slice.name),
                }
                None
            }
            DeviceEvent::Classes(event) => {
                match event {
                    Event::Reset(all) => devices.set_all_classes(all),
                    Event::Applied(class) => devices.set_class(class),
                    Event::Deleted(class) => devices.remove_class(&class.name),
                }
                None
            }
            DeviceEvent::Claims(event) => Some(match event {
                Event::Reset(all) => devices.set_all_claims(all),
                Event::Applied(claim) => devices.set_claim(claim),
                Event::Deleted(claim) => devices.remove_claim(&claim.namespace, &claim.name).into_iter().collect(),
            }),
        };
        let counts_nodes = pods.is_none() || devices.depend_on_claims();
        let mut changes = if counts_nodes { self.count_by_node() } else { Vec::new() };
        let pods = pods.unwrap_or_else(|| self.claimants.keys().cloned().collect());
        changes.extend(pods.iter().filter_map(|pod| self.claim_again(pod)));
        changes
    }

    fn count_by_node(&mut self) -> Vec<Change> {
        let now = self.devices.count_by_node();
        let before = std::mem::replace(&mut self.by_node, now);
        let gone = before.keys().filter(|node| !self.by_node.contains_key(*node));
        let gone = gone.map(|node| Change::Devices(node.clone(), Resources::new()));
        let new = self.by_node.iter().filter(|(node, devices)| before.get(*node) != Some(devices));
        gone.chain(new.map(|(node, devices)| Change::Devices(node.clone(), devices.clone()))).collect()
    }

    /// The pod as it is now, if it was told and has claimed something else since.
    fn claim_again(&mut self, (namespace, name): &PodName) -> Option<Change> {
        let (pod, known) = self.claimants.get_mut(&(namespace.clone(), name.clone()))?;
        let claimed = self.devices.sum_claimed(namespace, name);
        if claimed == *known {
            return None;
        }
        *known = claimed;
        Some(Change::Pod(add_claimed(pod.clone(), known)))
    }

    /// The change that pods make, with what they have claimed, and those of nodes that follow.
    pub(super) fn complete_pods(&mut self, event: Event<ReadPod>) -> Vec<Change> {
        let mut counts_nodes = false;
        let change = match event {
            Event::Reset(all) => {
                self.claimants.clear();
                let known: Vec<PodName> = self.extended.keys().cloned().collect();
                for pod in known {
                    counts_nodes |= self.follow_extended(&pod, None);
                }
                let complete = |pod: ReadPod| {
                    let (pod, changed) = self.complete_pod(pod);
                    counts_nodes |= changed;
                    pod
                };
                Change::Pods(all.into_iter().map(complete).collect())
            }
            Event::Applied(pod) => {
                let (pod, changed) = self.complete_pod(pod);
                counts_nodes |= changed;
                Change::Pod(pod)
            }
            Event::Deleted(ReadPod { pod, .. }) => {
                let key = (pod.namespace, pod.name);
                self.claimants.remove(&key);
                counts_nodes |= self.follow_extended(&key, None);
                Change::PodGone(key.0, key.1)
            }
        };
        let nodes = if counts_nodes { self.count_by_node() } else { Vec::new() };
        [change].into_iter().chain(nodes).collect()
    }

    /// Follows what a pod says of its extended resources; true if nodes may have something else now.
    fn follow_extended(&mut self, pod: &PodName, now: Option<ExtendedClaim>) -> bool {
        let claim = now.as_ref().map(|now| now.claim.clone());
        let before = match &claim {
            Some(claim) => self.extended.insert(pod.clone(), claim.clone()),
            None => self.extended.remove(pod),
        };
        let old = before.filter(|before| Some(before) != claim.as_ref());
        let removed = old.is_some_and(|old| self.devices.remove_extended(&pod.0, &old));
        now.is_some_and(|now| self.devices.set_extended(&pod.0, now)) | removed
    }

    /// A pod with what it claims, and whether nodes may have something else now.
    fn complete_pod(&mut self, ReadPod { pod, claims_devices, extended }: ReadPod) -> (Pod, bool) {
        let key = (pod.namespace.clone(), pod.name.clone());
        let changed = self.follow_extended(&key, extended);
        if !claims_devices {
            self.claimants.remove(&key);
            return (pod, changed);
        }
        let claimed = self.devices.sum_claimed(&key.0, &key.1);
        let whole = add_claimed(pod.clone(), &claimed);
        self.claimants.insert(key, (pod, claimed));
        (whole, changed)
    }
}

fn add_claimed(mut pod: Pod, claimed: &Resources) -> Pod {
    pod.request.add(claimed);
    pod
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(devices: &[&str]) -> ResourceSlice {
        let devices: Vec<Value> = devices.iter().map(|name| json!({"name": name})).collect();
        let pool = json!({"name": "n1", "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": "gpu.io", "nodeName": "n1", "pool": pool, "devices": devices});
        ResourceSlice::read(&json!({"metadata": {"name": "s"}, "spec": spec})).unwrap()
    }

    fn claim(device: Option<&str>) -> ResourceClaim {
        let result = device.map(|name| json!([{"request": "r", "driver": "gpu.io", "pool": "n1", "device": name}]));
        ResourceClaim::read(&json!({
            "metadata": {"namespace": "ns", "name": "c", "ownerReferences": [{"kind": "Pod", "name": "p"}]},
            "status": {"allocation": {"devices": {"results": result}}},
        }))
        .unwrap()
    }

    fn pod(claims: bool) -> ReadPod {
        let claims = if claims { json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]) } else { json!([]) };
        let spec = json!({"nodeName": "n1", "resourceClaims": claims});
        ReadPod::read(&json!({"metadata": {"namespace": "ns", "name": "p"}, "spec": spec})).unwrap()
    }

    fn join() -> DeviceJoin {
        let mut join = DeviceJoin::default();
        let class = json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "true"}}]}});
        join.apply_devices(DeviceEvent::Classes(Event::Reset(vec![DeviceClass::read(&class).unwrap()])));
        join.apply_devices(DeviceEvent::Slices(Event::Reset(vec![slice(&["a", "b"])])));
        join
    }

    fn say(change: &Change) -> String {
        let of = |amounts: &Resources| amounts.to_string().replace("deviceclass/", "");
        match change {
            Change::Devices(node, devices) => format!("{node}: {}", of(devices)),
            Change::AllDevices(all) => all.iter().map(|(node, devices)| format!("{node}: {}", of(devices))).collect(),
            Change::Pod(pod) => format!("{}: {}", pod.name, of(&pod.request)),
            Change::Pods(pods) => pods.iter().map(|pod| format!("{}: {}", pod.name, of(&pod.request))).collect(),
            other => format!("{other:?}"),
        }
    }

    fn complete(join: &mut DeviceJoin, event: Event<ReadPod>) -> Vec<String> {
        join.complete_pods(event).iter().map(say).collect()
    }

    fn apply(join: &mut DeviceJoin, event: DeviceEvent) -> Vec<String> {
        join.apply_devices(event).iter().map(say).collect()
    }

    #[test]
    fn a_node_is_told_when_its_devices_change_and_not_otherwise() {
        let mut join = join();
        assert_eq!(say(&join.list_devices()), "n1: gpu 2");
        assert_eq!(apply(&mut join, DeviceEvent::Slices(Event::Applied(slice(&["a", "c"])))), [""; 0]);
        assert_eq!(apply(&mut join, DeviceEvent::Slices(Event::Applied(slice(&["a"])))), ["n1: gpu 1"]);
        assert_eq!(apply(&mut join, DeviceEvent::Slices(Event::Deleted(slice(&["a"])))), ["n1: nothing"]);
        assert_eq!(say(&join.list_devices()), "");
    }

    #[test]
    fn a_pod_has_what_it_claimed_whether_its_claim_is_told_before_or_after_it() {
        let mut join = join();
        assert_eq!(apply(&mut join, DeviceEvent::Claims(Event::Applied(claim(Some("a"))))), [""; 0]);
        assert_eq!(complete(&mut join, Event::Reset(vec![pod(true)])), ["p: gpu 1, pods 1"]);
        assert_eq!(apply(&mut join, DeviceEvent::Claims(Event::Applied(claim(Some("a"))))), [""; 0]);
        assert_eq!(apply(&mut join, DeviceEvent::Claims(Event::Deleted(claim(Some("a"))))), ["p: pods 1"]);
        assert_eq!(apply(&mut join, DeviceEvent::Claims(Event::Applied(claim(None)))), [""; 0]);
        assert_eq!(apply(&mut join, DeviceEvent::Claims(Event::Applied(claim(Some("b"))))), ["p: gpu 1, pods 1"]);
        assert_eq!(apply(&mut join, DeviceEvent::Slices(Event::Applied(slice(&[])))), ["n1: nothing", "p: pods 1"]);
        // Who is gone, and who claims nothing, is not told again.
        assert_eq!(join.complete_pods(Event::Deleted(pod(true))), [Change::PodGone("ns".into(), "p".into())]);
        assert_eq!(apply(&mut join, DeviceEvent::Slices(Event::Applied(slice(&["b"])))), ["n1: gpu 1"]);
        assert_eq!(complete(&mut join, Event::Applied(pod(false))), ["p: pods 1"]);
    }

    #[test]
    fn what_a_pod_has_as_an_extended_resource_is_off_its_node_under_other_names() {
        let mut join = join();
        let class = json!({"metadata": {"name": "other"}, "spec": {"selectors": [{"cel": {"expression": "true"}}]}});
        join.apply_devices(DeviceEvent::Classes(Event::Applied(DeviceClass::read(&class).unwrap())));
        apply(&mut join, DeviceEvent::Claims(Event::Applied(claim(Some("a")))));
        let by_class = || {
            let mapping = json!([{"requestName": "r", "resourceName": "deviceclass.resource.kubernetes.io/gpu"}]);
            let status = json!({"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": mapping}});
            let pod =
                json!({"metadata": {"namespace": "ns", "name": "p"}, "spec": {"nodeName": "n1"}, "status": status});
            ReadPod::read(&pod).unwrap()
        };
        assert_eq!(complete(&mut join, Event::Applied(by_class())), ["p: pods 1", "n1: gpu 2, other 1"]);
        assert_eq!(complete(&mut join, Event::Applied(by_class())), ["p: pods 1"]);
        assert_eq!(complete(&mut join, Event::Reset(vec![]))[1], "n1: gpu 2, other 2");
        complete(&mut join, Event::Applied(by_class()));
        assert_eq!(complete(&mut join, Event::Deleted(by_class()))[1], "n1: gpu 2, other 2");
    }
}
