//! How many devices the nodes of a member have under each name, and what its pods have of them.
//!
//! Rule: a device counts under the names of each class that selects it ([`caldera_core::device`]). Of a pool the slices
//! of its newest generation count, and none while it lacks some, as for Kubernetes' allocator
//! (`staging/src/k8s.io/dynamic-resource-allocation/structured/internal`, `pools_*.go`). A device with a taint is not
//! counted, nor is one that pods of several nodes reach: nobody could say which node has it.
//!
//! A pod holds what its claims were given, under all names of that. What it asks for as an extended resource is in its
//! own request already, as its status says, which no tenant writes; the other names of such a device are taken off its
//! node.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{
    quantity::Quantity,
    resources::{ResourceName, Resources},
};

use super::{
    Device, DeviceClass, DeviceId, ExtendedClaim, ResourceClaim, ResourceSlice, objects::GivenDevice,
    partitions::Counters, selector::CelFunctions,
};

/// The devices of a member, kept up to date object by object.
#[derive(Debug, Default)]
pub struct MemberDevices {
    slices: BTreeMap<String, ListedSlice>,
    classes: BTreeMap<String, DeviceClass>,
    claims: BTreeMap<(String, String), ResourceClaim>,
    /// Claims by namespace and pod.
    by_pod: BTreeMap<(String, String), BTreeSet<String>>,
    /// Claims that stand for extended resources, and by which name each of their requests is in the pod's own.
    extended: BTreeMap<(String, String), BTreeMap<String, ResourceName>>,
    /// Whether there are devices that share counters.
    divides: bool,
    /// Under which names each device counts that may be given.
    names: BTreeMap<DeviceId, BTreeSet<ResourceName>>,
}

#[derive(Debug)]
struct ListedSlice {
    slice: ResourceSlice,
    /// Of each device.
    names: Vec<BTreeSet<ResourceName>>,
}

/// Slices and classes.
impl MemberDevices {
    /// These are all slices.
    pub fn set_all_slices(&mut self, slices: Vec<ResourceSlice>) {
        self.slices.clear();
        slices.into_iter().for_each(|slice| self.insert_slice(slice));
        self.name_devices();
    }

    /// A slice is new or changed.
    pub fn set_slice(&mut self, slice: ResourceSlice) {
        if self.slices.get(&slice.name).is_some_and(|known| known.slice == slice) {
            return;
        }
        self.insert_slice(slice);
        self.name_devices();
    }

    /// A slice is gone.
    pub fn remove_slice(&mut self, name: &str) {
        self.slices.remove(name);
        self.name_devices();
    }

    fn insert_slice(&mut self, slice: ResourceSlice) {
        let names = list_names_by(&self.classes, &CelFunctions::default(), &slice.devices);
        self.slices.insert(slice.name.clone(), ListedSlice { slice, names });
    }

    /// These are all classes.
    pub fn set_all_classes(&mut self, classes: Vec<DeviceClass>) {
        self.classes = classes.into_iter().map(|class| (class.name.clone(), class)).collect();
        self.select_again();
    }

    /// A class is new or changed.
    pub fn set_class(&mut self, class: DeviceClass) {
        if self.classes.get(&class.name) == Some(&class) {
            return;
        }
        self.classes.insert(class.name.clone(), class);
        self.select_again();
    }

    /// A class is gone.
    pub fn remove_class(&mut self, name: &str) {
        self.classes.remove(name);
        self.select_again();
    }

    fn select_again(&mut self) {
        let functions = CelFunctions::default();
        for listed in self.slices.values_mut() {
            listed.names = list_names_by(&self.classes, &functions, &listed.slice.devices);
        }
        self.name_devices();
    }

    /// The names under which a device counts.
    pub fn list_names(&self, device: &DeviceId) -> impl Iterator<Item = &ResourceName> {
        self.names.get(device).into_iter().flatten()
    }

    fn name_devices(&mut self) {
        let named = |listed: &ListedSlice| -> Vec<(DeviceId, BTreeSet<ResourceName>)> {
            let ids = listed.slice.devices.iter().map(|device| listed.slice.id_of(device));
            ids.zip(listed.names.iter().cloned()).collect()
        };
        self.names = self.slices.values().flat_map(named).collect();
        let divides = |listed: &ListedSlice| listed.slice.devices.iter().any(|device| !device.consumes.is_empty());
        self.divides = self.slices.values().any(divides);
    }
}

/// Of each device the names of all classes that select it.
fn list_names_by(
    classes: &BTreeMap<String, DeviceClass>,
    functions: &CelFunctions,
    devices: &[Device],
) -> Vec<BTreeSet<ResourceName>> {
    let domains: BTreeSet<&str> = classes.values().flat_map(DeviceClass::list_domains).collect();
    let domains: Vec<&str> = domains.into_iter().collect();
    let names = |device: &Device| {
        let seen = device.view.to_cel(functions, &domains);
        let selecting = classes.values().filter(|class| class.selects(functions, &seen));
        selecting.flat_map(DeviceClass::list_names).cloned().collect()
    };
    devices.iter().map(names).collect()
}

/// Claims.
impl MemberDevices {
    /// These are all claims; which pods may hold something else now, by namespace and name.
    pub fn set_all_claims(&mut self, claims: Vec<ResourceClaim>) -> BTreeSet<(String, String)> {
        let mut pods: BTreeSet<_> = std::mem::take(&mut self.by_pod).into_keys().collect();
        self.claims.clear();
        claims.into_iter().for_each(|claim| pods.extend(self.set_claim(claim)));
        pods
    }

    /// A claim is new or changed; whose it is, and was.
    pub fn set_claim(&mut self, claim: ResourceClaim) -> BTreeSet<(String, String)> {
        let mut pods = BTreeSet::new();
        let key = (claim.namespace.clone(), claim.name.clone());
        if self.claims.get(&key).is_some_and(|known| known.pod != claim.pod) {
            pods.extend(self.remove_claim(&claim.namespace, &claim.name));
        }
        let pod = claim.pod.as_ref().map(|pod| (claim.namespace.clone(), pod.clone()));
        if let Some(pod) = pod {
            self.by_pod.entry(pod.clone()).or_default().insert(claim.name.clone());
            pods.insert(pod);
        }
        self.claims.insert(key, claim);
        pods
    }

    /// A claim is gone; whose it was.
    pub fn remove_claim(&mut self, namespace: &str, name: &str) -> Option<(String, String)> {
        let claim = self.claims.remove(&(namespace.to_owned(), name.to_owned()))?;
        let pod = (claim.namespace, claim.pod?);
        if let Some(claims) = self.by_pod.get_mut(&pod) {
            claims.remove(name);
            if claims.is_empty() {
                self.by_pod.remove(&pod);
            }
        }
        Some(pod)
    }

    /// What a pod's status says of its extended resources; true if that is something else than before.
    pub fn set_extended(&mut self, namespace: &str, claim: ExtendedClaim) -> bool {
        let ExtendedClaim { claim, requests } = claim;
        let before = self.extended.insert((namespace.to_owned(), claim), requests.clone());
        before != Some(requests)
    }

    /// The pod of such a claim is gone.
    pub fn remove_extended(&mut self, namespace: &str, claim: &str) -> bool {
        self.extended.remove(&(namespace.to_owned(), claim.to_owned())).is_some()
    }

    /// What a pod has claimed, beside what it asks for itself.
    #[must_use]
    pub fn sum_claimed(&self, namespace: &str, pod: &str) -> Resources {
        let names = self.by_pod.get(&(namespace.to_owned(), pod.to_owned())).into_iter().flatten();
        let keys = names.map(|name| (namespace.to_owned(), name.clone()));
        let claims = keys.filter(|key| !self.extended.contains_key(key)).filter_map(|key| self.claims.get(&key));
        let mut sum = Resources::new();
        for GivenDevice { id, class, .. } in claims.flat_map(|claim| &claim.devices) {
            match self.names.get(id).filter(|names| !names.is_empty()) {
                Some(names) => names.iter().for_each(|name| add_one(&mut sum, name)),
                // Its driver says nothing of it any more.
                None => self.classes.get(class).into_iter().flat_map(DeviceClass::list_names).for_each(|name| {
                    add_one(&mut sum, name);
                }),
            }
        }
        sum
    }
}

fn add_one(sum: &mut Resources, name: &ResourceName) {
    sum.set(name.clone(), sum.get(name.as_str()).saturating_add(Quantity::from_units(1)));
}

/// What nodes have.
impl MemberDevices {
    /// Whether what nodes have may change with a claim, and not only what pods hold.
    #[must_use]
    pub fn depend_on_claims(&self) -> bool {
        self.divides || !self.extended.is_empty()
    }

    /// How many devices each node has under each name, those included that pods have.
    #[must_use]
    pub fn count_by_node(&self) -> BTreeMap<String, Resources> {
        let given = self.list_given();
        let mut by_node = BTreeMap::<String, Resources>::new();
        for pool in self.list_complete_pools() {
            let mut counters = Counters::default();
            pool.iter().for_each(|listed| counters.add_sets(&listed.slice.counters));
            let mut partitions = BTreeMap::<(&str, &ResourceName), Vec<&Device>>::new();
            for (id, device, names) in pool.iter().flat_map(|listed| list_devices(listed)) {
                let asked = given.get(&id);
                if asked.is_some() {
                    counters.take(device);
                }
                let Some(node) = device.node.as_deref().filter(|_| !device.tainted || asked.is_some()) else {
                    continue;
                };
                for name in names {
                    // Who has it asked for it by another name, which its own request says.
                    if asked.is_some_and(|asked| asked.is_some_and(|asked| asked != name)) {
                        continue;
                    }
                    if asked.is_none() && !device.consumes.is_empty() {
                        partitions.entry((node, name)).or_default().push(device);
                    } else {
                        add_one(by_node.entry(node.to_owned()).or_default(), name);
                    }
                }
            }
            for ((node, name), devices) in partitions {
                let of_node = by_node.entry(node.to_owned()).or_default();
                let count = Quantity::from_units(counters.count_fitting(devices.into_iter()).into());
                of_node.set(name.clone(), of_node.get(name.as_str()).saturating_add(count));
            }
        }
        by_node.retain(|_, devices| !devices.is_empty());
        by_node
    }

    /// Devices that are given, and by which name alone where that is in the pod's own request.
    fn list_given(&self) -> BTreeMap<&DeviceId, Option<&ResourceName>> {
        let mut given = BTreeMap::new();
        for (key, claim) in &self.claims {
            let requests = self.extended.get(key);
            let asked = |device: &GivenDevice| requests?.get(&device.request);
            given.extend(claim.devices.iter().map(|device| (&device.id, asked(device))));
        }
        given
    }

    /// The slices of each pool that lacks none.
    fn list_complete_pools(&self) -> Vec<Vec<&ListedSlice>> {
        let mut pools = BTreeMap::<(&str, &str), Vec<&ListedSlice>>::new();
        for listed in self.slices.values() {
            pools.entry((&listed.slice.driver, &listed.slice.pool)).or_default().push(listed);
        }
        for pool in pools.values_mut() {
            let newest = pool.iter().map(|listed| listed.slice.generation).max();
            pool.retain(|listed| Some(listed.slice.generation) == newest);
        }
        let is_complete = |pool: &Vec<&ListedSlice>| pool.iter().all(|one| one.slice.slices <= pool.len() as u64);
        pools.into_values().filter(is_complete).collect()
    }
}

fn list_devices(listed: &ListedSlice) -> impl Iterator<Item = (DeviceId, &Device, &BTreeSet<ResourceName>)> {
    let devices = listed.slice.devices.iter().zip(&listed.names);
    devices.map(|(device, names)| (listed.slice.id_of(device), device, names))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const GPU: &str = "deviceclass/gpu";
    const LARGE: &str = "deviceclass/large";

    fn class(name: &str, expression: &str, extended: Option<&str>) -> DeviceClass {
        let selectors = json!([{"cel": {"expression": expression}}]);
        let spec = json!({"selectors": selectors, "extendedResourceName": extended});
        DeviceClass::read(&json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    fn slice(name: &str, node: &str, change: impl Fn(&mut Value), devices: Value) -> ResourceSlice {
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
        let mut spec = json!({"driver": "gpu.io", "pool": pool, "nodeName": node, "devices": devices});
        change(&mut spec);
        ResourceSlice::read(&json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    fn claim(name: &str, pod: Option<&str>, devices: &[(&str, &str)], change: impl Fn(&mut Value)) -> ResourceClaim {
        let owners = pod.map(|pod| json!([{"kind": "Pod", "name": pod, "controller": true}]));
        let result =
            |(node, device): &(&str, &str)| json!({"request": "r", "driver": "gpu.io", "pool": node, "device": device});
        let results: Vec<Value> = devices.iter().map(result).collect();
        let mut claim = json!({
            "metadata": {"namespace": "ns", "name": name, "ownerReferences": owners},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
            "status": {"allocation": {"devices": {"results": results}}},
        });
        change(&mut claim);
        ResourceClaim::read(&claim).unwrap()
    }

    /// Two nodes with two cards each, of which each first one is large.
    fn member() -> MemberDevices {
        let cards =
            json!([{"name": "a", "attributes": {"gb": {"int": 80}}}, {"name": "b", "attributes": {"gb": {"int": 40}}}]);
        let mut member = MemberDevices::default();
        member.set_all_classes(vec![
            class("gpu", "device.driver == 'gpu.io'", None),
            class("large", "device.attributes['gpu.io'].gb >= 80", None),
        ]);
        member.set_all_slices(vec![slice("s1", "n1", |_| {}, cards.clone()), slice("s2", "n2", |_| {}, cards)]);
        member
    }

    fn count(member: &MemberDevices, node: &str, name: &str) -> i64 {
        let count = member.count_by_node().get(node).map_or(Quantity::ZERO, |devices| devices.get(name)).units_ceil();
        i64::try_from(count).unwrap()
    }

    fn claimed(member: &MemberDevices, pod: &str) -> String {
        member.sum_claimed("ns", pod).to_string().replace("deviceclass/", "")
    }

    #[test]
    fn a_device_counts_under_each_class_that_selects_it() {
        let mut member = member();
        assert_eq!((count(&member, "n1", GPU), count(&member, "n1", LARGE), count(&member, "n2", GPU)), (2, 1, 2));
        member.set_class(class("large", "device.attributes['gpu.io'].gb >= 40", None));
        assert_eq!(count(&member, "n1", LARGE), 2);
        member.remove_class("large");
        member.remove_slice("s2");
        assert_eq!((count(&member, "n1", LARGE), count(&member, "n2", GPU)), (0, 0));
        // Of a name that is none nothing is counted.
        member.set_class(class(&"l".repeat(70), "true", Some("no-slash")));
        assert_eq!(member.count_by_node()["n1"].iter().count(), 1);
    }

    #[test]
    fn a_pod_holds_what_it_was_given_under_all_its_names_and_nothing_before_or_after() {
        let mut member = member();
        let pods = |pods: &[&str]| pods.iter().map(|pod| ("ns".to_owned(), (*pod).to_owned())).collect::<BTreeSet<_>>();
        assert_eq!(member.set_claim(claim("c", Some("p"), &[], |_| {})), pods(&["p"]));
        assert_eq!(claimed(&member, "p"), "nothing");
        member.set_claim(claim("c", Some("p"), &[("n1", "a")], |_| {}));
        member.set_claim(claim("d", Some("p"), &[("n1", "b")], |_| {}));
        assert_eq!(claimed(&member, "p"), "gpu 2, large 1");
        assert_eq!(count(&member, "n1", GPU), 2, "they are the node's as before");
        // A claim that several share is the first one's.
        let reserved = json!([{"resource": "pods", "name": "q"}, {"resource": "pods", "name": "p"}]);
        let shared = claim("d", None, &[("n1", "b")], |claim| claim["status"]["reservedFor"] = reserved.clone());
        assert_eq!(member.set_claim(shared), pods(&["p", "q"]));
        assert_eq!((claimed(&member, "p"), claimed(&member, "q")), ("gpu 1, large 1".into(), "gpu 1".into()));
        // Its driver is gone: it is what it was asked for as.
        member.set_all_slices(vec![]);
        assert_eq!(claimed(&member, "p"), "gpu 1");
        assert_eq!(member.set_all_claims(vec![]), pods(&["p", "q"]));
        assert_eq!(claimed(&member, "p"), "nothing");
        // Who only looks takes nothing.
        let looks = |claim: &mut Value| {
            claim["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = true.into();
        };
        member.set_claim(claim("e", Some("p"), &[("n1", "a")], looks));
        assert_eq!(claimed(&member, "p"), "nothing");
    }

    #[test]
    fn a_pool_counts_once_it_is_whole_and_in_its_newest_generation() {
        let mut member = member();
        let card = || json!([{"name": "c"}]);
        let second = |spec: &mut Value| {
            spec["pool"] = json!({"name": "n1", "generation": 2, "resourceSliceCount": 2});
        };
        member.set_slice(slice("s3", "n1", second, card()));
        assert_eq!(count(&member, "n1", GPU), 0, "a slice of it is to come");
        member.set_slice(slice("s4", "n1", second, json!([{"name": "d"}, {"name": "e"}])));
        assert_eq!(count(&member, "n1", GPU), 3);
    }

    #[test]
    fn devices_with_a_taint_and_those_of_no_node_are_not_counted() {
        let mut member = member();
        let tainted =
            json!([{"name": "a", "taints": [{"effect": "NoSchedule"}]}, {"name": "b", "taints": [{"effect": "None"}]}]);
        member.set_slice(slice("s1", "n1", |_| {}, tainted));
        assert_eq!(count(&member, "n1", GPU), 1);
        member.set_claim(claim("c", Some("p"), &[("n1", "a")], |_| {}));
        assert_eq!(count(&member, "n1", GPU), 2, "who has it holds it still");
        let shared = |spec: &mut Value| {
            spec["nodeName"] = Value::Null;
            spec["allNodes"] = true.into();
        };
        member.set_slice(slice("s2", "n2", shared, json!([{"name": "a"}, {"name": "b", "nodeName": "n2"}])));
        assert_eq!((count(&member, "n2", GPU), member.count_by_node().len()), (1, 2));
    }

    #[test]
    fn partitions_count_as_far_as_what_they_share_goes() {
        let mut member = member();
        let gb = |gb: u32| json!([{"counterSet": "card", "counters": {"memory": {"value": format!("{gb}Gi")}}}]);
        let part = |name: &str, size: u32| json!({"name": name, "attributes": {"gb": {"int": size}}, "consumesCounters": gb(size)});
        let mut parts = vec![part("whole", 80), part("half-0", 40), part("half-1", 40)];
        parts.extend((0..8).map(|at| part(&format!("small-{at}"), 10)));
        let of_card = |spec: &mut Value| {
            spec["sharedCounters"] = json!([{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]);
        };
        member.set_slice(slice("s1", "n1", of_card, parts.into()));
        member.set_class(class("small", "device.attributes['gpu.io'].gb == 10", None));
        member.set_class(class("half", "device.attributes['gpu.io'].gb == 40", None));
        let all = |member: &MemberDevices| {
            ["small", "half", "large", "gpu"].map(|name| count(member, "n1", &format!("deviceclass/{name}")))
        };
        assert!(member.depend_on_claims());
        assert_eq!(all(&member), [8, 2, 1, 8]);
        member.set_claim(claim("c", Some("p"), &[("n1", "half-0")], |_| {}));
        assert_eq!(all(&member), [4, 2, 0, 5], "one half is given, and half of the card is left");
    }

    #[test]
    fn what_a_pod_asks_for_by_an_extended_resource_is_in_its_own_request() {
        let mut member = member();
        member.set_class(class("gpu", "device.driver == 'gpu.io'", Some("x.io/gpu")));
        assert_eq!((count(&member, "n1", GPU), count(&member, "n1", "x.io/gpu")), (2, 2));
        // An annotation that any user writes on his own claim says nothing.
        let annotated = |claim: &mut Value| {
            claim["metadata"]["annotations"] = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
        };
        member.set_claim(claim("c", Some("p"), &[("n1", "a")], annotated));
        assert_eq!(claimed(&member, "p"), "gpu 1, large 1, x.io/gpu 1");
        for (resource, counts) in [("x.io/gpu", [1, 2, 0]), ("deviceclass.resource.kubernetes.io/gpu", [2, 1, 0])] {
            let mapping = json!([{"containerName": "c", "requestName": "r", "resourceName": resource}]);
            let status = json!({"resourceClaimName": "c", "requestMappings": mapping});
            let pod = json!({"status": {"extendedResourceClaimStatus": status}});
            assert!(member.set_extended("ns", ExtendedClaim::read(&pod).unwrap()));
            assert!(member.depend_on_claims());
            assert_eq!(claimed(&member, "p"), "nothing");
            assert_eq!([GPU, "x.io/gpu", LARGE].map(|name| count(&member, "n1", name)), counts, "{resource}");
        }
        assert!(member.remove_extended("ns", "c") && !member.depend_on_claims());
        assert_eq!(ExtendedClaim::read(&json!({"status": {}})), None);
    }
}
