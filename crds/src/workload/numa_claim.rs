//! Reads what a task's pods want of NUMA nodes: its `topologyPolicy`, if its pods are Guaranteed.
//!
//! Rule: Volcano asks the policy of a Guaranteed pod alone (`plugins/numaaware/numaaware.go`), and counts containers
//! that ask for whole CPUs, in thousandths rounded up (`provider/cpumanager/cpu_mng.go`). A pod is Guaranteed if each
//! of its containers, init containers among them, has a limit of CPU and of memory and asks for as much (Kubernetes
//! `ComputePodQOS`); where it asks for nothing the limit is asked for. One whose amounts are the pod's
//! (`spec.resources`), or that has more than [`MOST_CONTAINERS`] with whole CPUs, is not looked at.

use caldera_core::{
    numa::{MOST_CONTAINERS, NumaClaim, NumaPolicy},
    quantity::Quantity,
    resources::ResourceName,
};
use serde::Deserialize;
use serde_json::Value;

use super::anti_affinity::list_items;

/// What pods of a Volcano Job's task want; `None` without a policy, or where they are not Guaranteed.
pub(super) fn read_numa_claim(task: &Value) -> Option<NumaClaim> {
    let policy = NumaPolicy::parse(task["topologyPolicy"].as_str()?)?;
    let spec = &task["template"]["spec"];
    let mut all = list_items(&spec["containers"]).chain(list_items(&spec["initContainers"]));
    if spec.get("resources").is_some_and(|own| !own.is_null()) || !all.all(is_guaranteed) {
        return None;
    }
    let cpus =
        list_items(&spec["containers"]).filter_map(|container| read_amount(container, "limits", ResourceName::CPU));
    let whole = |cpu: Quantity| {
        let milli = cpu.milli_ceil();
        (milli % 1000 == 0).then(|| u32::try_from(milli / 1000).unwrap_or(u32::MAX))
    };
    let cpus: Vec<u32> = cpus.filter_map(whole).take(MOST_CONTAINERS + 1).collect();
    (cpus.len() <= MOST_CONTAINERS).then_some(NumaClaim { policy, cpus })
}

fn is_guaranteed(container: &Value) -> bool {
    [ResourceName::CPU, ResourceName::MEMORY].iter().all(|name| {
        let limit = read_amount(container, "limits", name).filter(|limit| limit.as_nano() > 0);
        limit.is_some() && read_amount(container, "requests", name).or(limit) == limit
    })
}

fn read_amount(container: &Value, of: &str, name: &str) -> Option<Quantity> {
    Quantity::deserialize(container["resources"][of].get(name)?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(policy: &str, spec: Value) -> Option<NumaClaim> {
        read_numa_claim(&json!({"topologyPolicy": policy, "template": {"spec": spec}}))
    }

    fn container(requests: Value, limits: Value) -> Value {
        json!({"resources": {"requests": requests, "limits": limits}})
    }

    #[test]
    fn a_claim_has_the_whole_cpus_of_each_container_that_has_some() {
        let whole = |cpu: &str| container(json!({}), json!({"cpu": cpu, "memory": "1Gi"}));
        let spec = json!({"containers": [whole("4"), whole("500m"), whole("2000m"), whole("999999u")], "initContainers": [whole("9")]});
        let found = claim("restricted", spec).unwrap();
        assert_eq!((found.policy, found.cpus), (NumaPolicy::Restricted, vec![4, 2, 1]));
    }

    #[test]
    fn only_guaranteed_pods_with_a_policy_claim_anything() {
        let with = |requests: Value, limits: Value| {
            claim("single-numa-node", json!({"containers": [container(requests, limits)]}))
        };
        let full = json!({"cpu": "4", "memory": "1Gi"});
        assert!(with(full.clone(), full.clone()).is_some());
        assert!(with(json!({"memory": "1024Mi"}), full.clone()).is_some(), "the limit is what it asks for");
        for (requests, limits) in [
            (full.clone(), json!({})),
            (full.clone(), json!({"cpu": "4"})),
            (json!({"cpu": "3"}), full.clone()),
            (json!({"cpu": "0", "memory": "0"}), json!({"cpu": "0", "memory": "0"})),
            (json!({"cpu": "lots"}), json!({"cpu": "lots", "memory": "1Gi"})),
        ] {
            assert_eq!(with(requests.clone(), limits), None, "{requests}");
        }
        let one = container(json!({}), full.clone());
        assert_eq!(claim("best-effort", json!({"containers": [one], "initContainers": [{}]})), None);
        assert_eq!(claim("best-effort", json!({"containers": [one], "resources": {"limits": full}})), None);
        let many = |count: usize| claim("best-effort", json!({"containers": vec![one.clone(); count]}));
        assert_eq!(many(MOST_CONTAINERS).unwrap().cpus.len(), MOST_CONTAINERS);
        assert_eq!(many(MOST_CONTAINERS + 1), None);
        for policy in ["", "none", "other"] {
            assert_eq!(claim(policy, json!({"containers": [one]})), None, "{policy}");
        }
    }
}
