//! Devices that pods claim: the claims of pods, and which devices they are given.
//!
//! Rule: Kubernetes' resourceclaim controller makes a claim of each template that a pod names
//! (`pkg/controller/resourceclaim/controller.go`), and the scheduler gives it devices of the pod's node. Here a pod
//! gets its node by amounts, as for any resource, and its claims are given the first devices there that are free; its
//! containers start once all have been. Selectors and constraints of a claim, beyond its class, are not looked at.

use std::collections::BTreeSet;

use caldera_core::device::name_class_resource;
use caldera_crds::device::{DeviceId, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

use super::{
    object::{Key, deleting, list, name, namespace, number, owned_by, text, uid},
    world::{Kind, Want, World, want_create, want_merge},
};

/// Makes missing claims, and gives those devices whose pods have a node.
#[must_use]
pub fn sync_claims(world: &World) -> Vec<Want> {
    let mut wants = Vec::new();
    let mut taken: Option<BTreeSet<DeviceId>> = None;
    for pod in world.of(Kind::Pod).filter(|pod| !deleting(pod)) {
        for (wanted, key) in list_claims(pod) {
            let Some(claim) = world.get(Kind::ResourceClaim, &key) else {
                wants.extend(make_claim(world, pod, wanted, &key));
                continue;
            };
            let node = text(pod, "/spec/nodeName");
            if !node.is_empty() && !is_allocated(claim) {
                let taken = taken.get_or_insert_with(|| list_taken(world));
                wants.extend(give_devices(world, pod, claim, taken));
            }
        }
    }
    wants
}

/// Whether all that a pod claims was given.
#[must_use]
pub fn has_its_devices(world: &World, pod: &Value) -> bool {
    list_claims(pod).iter().all(|(_, key)| world.get(Kind::ResourceClaim, key).is_some_and(is_allocated))
}

/// What a pod claims by a template, with the claim's name.
fn list_claims(pod: &Value) -> Vec<(&Value, Key)> {
    let by_template = |claim: &&Value| !text(claim, "/resourceClaimTemplateName").is_empty();
    let claims = list(pod, "/spec/resourceClaims").iter().filter(by_template);
    let key = |claim: &Value| (namespace(pod).to_owned(), format!("{}-{}", name(pod), text(claim, "/name")));
    claims.map(|claim| (claim, key(claim))).collect()
}

fn is_allocated(claim: &Value) -> bool {
    claim.pointer("/status/allocation").is_some()
}

fn make_claim(world: &World, pod: &Value, wanted: &Value, (namespace, name): &Key) -> Option<Want> {
    let template = (namespace.clone(), text(wanted, "/resourceClaimTemplateName").to_owned());
    let spec = world.get(Kind::ResourceClaimTemplate, &template)?.pointer("/spec/spec")?;
    let metadata = json!({"namespace": namespace, "name": name, "ownerReferences": owned_by(pod)});
    let kind = "ResourceClaim";
    Some(want_create(
        Kind::ResourceClaim,
        json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}),
    ))
}

/// What claims have whose pods have not ended.
fn list_taken(world: &World) -> BTreeSet<DeviceId> {
    let has_ended = |claim: &ResourceClaim| {
        let pod = claim.pod.as_ref().and_then(|pod| world.pod(&(claim.namespace.clone(), pod.clone())));
        pod.is_some_and(|pod| pod.phase.is_finished())
    };
    let claims = world.of(Kind::ResourceClaim).filter_map(ResourceClaim::read).filter(|claim| !has_ended(claim));
    claims.flat_map(|claim| claim.list_devices().cloned().collect::<Vec<_>>()).collect()
}

fn give_devices(world: &World, pod: &Value, claim: &Value, taken: &mut BTreeSet<DeviceId>) -> Option<Want> {
    let mut results = Vec::new();
    for request in list(claim, "/spec/devices/requests") {
        let class = name_class_resource(text(request, "/exactly/deviceClassName"))?;
        let count = usize::try_from(number(request, "/exactly/count").max(1)).ok()?;
        let free: Vec<DeviceId> = list_devices_of_node(world, text(pod, "/spec/nodeName"))
            .into_iter()
            .filter(|id| !taken.contains(id) && world.devices().list_names(id).any(|name| *name == class))
            .take(count)
            .collect();
        if free.len() < count {
            return None;
        }
        for id in free {
            results.push(json!({
                "request": text(request, "/name"), "driver": id.driver, "pool": id.pool, "device": id.name,
            }));
            taken.insert(id);
        }
    }
    let user = json!({"resource": "pods", "name": name(pod), "uid": uid(pod)});
    let status = json!({"allocation": {"devices": {"results": results}}, "reservedFor": [user]});
    Some(want_merge(Kind::ResourceClaim, claim, Some("status"), json!({"status": status})))
}

fn list_devices_of_node(world: &World, node: &str) -> Vec<DeviceId> {
    let slices = world.of(Kind::ResourceSlice).filter_map(ResourceSlice::read);
    slices.flat_map(|slice| slice.list_devices_of(node)).collect()
}

#[cfg(test)]
mod tests {
    use caldera_runtime::{watch::Event, write::Body};

    use super::*;

    fn world() -> World {
        let mut world = World::default();
        let pool = json!({"name": "n", "generation": 1, "resourceSliceCount": 1});
        let slice = json!({"metadata": {"name": "s"}, "spec": {
            "driver": "gpu.io", "nodeName": "n", "pool": pool, "devices": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
        }});
        let class = json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "true"}}]}});
        let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}});
        let template = json!({
            "metadata": {"namespace": "ns", "name": "two"}, "spec": {"spec": {"devices": {"requests": [request]}}},
        });
        let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1"}}});
        for (kind, object) in [
            (Kind::Node, node),
            (Kind::ResourceSlice, slice),
            (Kind::DeviceClass, class),
            (Kind::ResourceClaimTemplate, template),
        ] {
            world.observe(kind, Event::Applied(object));
        }
        world
    }

    fn pod(name: &str, node: &str) -> Value {
        let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "two"}]);
        let spec = json!({"nodeName": node, "resourceClaims": claims, "containers": [{"name": "c"}]});
        json!({"kind": "Pod", "metadata": {"namespace": "ns", "name": name, "uid": name}, "spec": spec})
    }

    /// Carries out what is wanted; how many writes that were.
    fn settle(world: &mut World) -> usize {
        let wants = sync_claims(world);
        for want in &wants {
            let object = match &want.write.body {
                Body::Create(claim) => claim.clone(),
                Body::MergePatch(patch) => {
                    let mut claim = world.get(Kind::ResourceClaim, &want.about.1).unwrap().clone();
                    claim["status"] = patch["status"].clone();
                    claim
                }
                other => panic!("{other:?}"),
            };
            world.observe(Kind::ResourceClaim, Event::Applied(object));
        }
        wants.len()
    }

    #[test]
    fn a_pod_has_its_claim_at_once_and_its_devices_once_it_has_a_node() {
        let mut world = world();
        world.observe(Kind::Pod, Event::Applied(pod("p", "")));
        assert_eq!((settle(&mut world), settle(&mut world)), (1, 0));
        assert!(!has_its_devices(&world, &pod("p", "")));
        world.observe(Kind::Pod, Event::Applied(pod("p", "n")));
        assert_eq!((settle(&mut world), settle(&mut world)), (1, 0));
        assert!(has_its_devices(&world, &pod("p", "n")));
        // One is left, and the next one needs two.
        world.observe(Kind::Pod, Event::Applied(pod("q", "n")));
        assert_eq!((settle(&mut world), settle(&mut world)), (1, 0));
        assert!(!has_its_devices(&world, &pod("q", "n")));
        let mut ended = pod("p", "n");
        ended["status"] = json!({"phase": "Succeeded"});
        world.observe(Kind::Pod, Event::Applied(ended));
        assert_eq!((settle(&mut world), settle(&mut world)), (1, 0));
        assert!(has_its_devices(&world, &pod("q", "n")), "who has ended holds nothing");
    }

    #[test]
    fn a_node_has_the_devices_of_its_slices() {
        let world = world();
        let allocatable = &world.nodes().next().unwrap().1.allocatable;
        assert_eq!(allocatable.to_string(), "cpu 1, deviceclass/gpu 3");
    }
}
