//! How many pods of one template a node can hold when the pods exclude each other.
//!
//! Rule (kube-scheduler's plugins NodePorts and InterPodAffinity): two pods with the same host port are never on one
//! node. Neither are two pods if one has a required anti-affinity term over `kubernetes.io/hostname` that selects the
//! other. Only terms that the template itself matches count.

use std::collections::BTreeMap;

use caldera_core::{gang::Task, node_affinity::HOSTNAME};
use serde_json::Value;

use super::WorkloadKind;
use crate::{
    names::volcano::{DEFAULT_QUEUE, JOB_NAME, JOB_NAMESPACE, QUEUE, TASK_SPEC},
    selector::label_selector,
};

/// Where terms are that must hold.
pub(super) const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// The most pods of a task with this template that one node can hold; `None` if only its capacity limits them.
pub(super) fn most_per_node(workload: &Value, kind: WorkloadKind, template: &Value, task: &Task) -> Option<u32> {
    let mut own = read_terms(workload, kind, template, task.name.as_str());
    (needs_host_port(&template["spec"]) || own.any(|excludes_own| excludes_own)).then_some(1)
}

/// Whether pods of this template have to keep off others than of their own template, or off more than one node.
pub(super) fn keeps_off_others(workload: &Value, kind: WorkloadKind, template: &Value, task: &str) -> bool {
    read_terms(workload, kind, template, task).any(|excludes_own| !excludes_own)
}

/// Of each required anti-affinity term, whether it only keeps pods of the template off each other's nodes.
fn read_terms<'a>(
    workload: &'a Value,
    kind: WorkloadKind,
    template: &'a Value,
    task: &'a str,
) -> impl Iterator<Item = bool> + use<'a> {
    let terms = &template["spec"]["affinity"]["podAntiAffinity"][REQUIRED];
    let namespace = workload["metadata"]["namespace"].as_str().unwrap_or_default();
    let mut labels = BTreeMap::new();
    if list_items(terms).next().is_some() {
        let own = template["metadata"]["labels"].as_object().into_iter().flatten();
        labels.extend(own.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))));
        if kind == WorkloadKind::VolcanoJob {
            // `pkg/controllers/job/job_controller_util.go`, `createJobPod`.
            let queue = workload["spec"]["queue"].as_str().filter(|queue| !queue.is_empty()).unwrap_or(DEFAULT_QUEUE);
            let job = workload["metadata"]["name"].as_str().unwrap_or_default();
            labels.extend([(JOB_NAME, job), (JOB_NAMESPACE, namespace), (TASK_SPEC, task), (QUEUE, queue)]);
        }
    }
    list_items(terms).map(move |term| excludes_own_pods(term, &labels, namespace))
}

pub(super) fn list_items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Whether a container that keeps running needs a host port. On the host network every container port is one.
fn needs_host_port(spec: &Value) -> bool {
    let shares = spec["hostNetwork"] == true;
    let sidecars = list_items(&spec["initContainers"]).filter(|container| container["restartPolicy"] == "Always");
    let ports = list_items(&spec["containers"]).chain(sidecars).flat_map(|container| list_items(&container["ports"]));
    let wanted = |port: &Value, key: &str| port[key].as_u64().is_some_and(|number| number > 0);
    ports.into_iter().any(|port| wanted(port, "hostPort") || (shares && wanted(port, "containerPort")))
}

/// Whether an anti-affinity term of pods with these labels selects such pods themselves.
fn excludes_own_pods(term: &Value, labels: &BTreeMap<&str, &str>, namespace: &str) -> bool {
    let is_named = |list: &Value| list_items(list).any(|name| name == namespace);
    let everywhere = term["namespaceSelector"].as_object().is_some_and(|selector| {
        selector.values().all(|part| part.as_object().is_none_or(serde_json::Map::is_empty) && !part.is_array())
    });
    let no_names = list_items(&term["namespaces"]).next().is_none();
    let is_here = everywhere || is_named(&term["namespaces"]) || (no_names && term["namespaceSelector"].is_null());
    // A label of the template has the same value on all its pods.
    let is_common = |key: &Value| key.as_str().is_some_and(|key| labels.contains_key(key));
    let selects = || {
        let requirements =
            Some(&term["labelSelector"]).filter(|selector| selector.is_object()).and_then(label_selector);
        requirements.is_some_and(|all| all.iter().all(|one| one.matches(labels.get(one.key.as_str()).copied())))
    };
    term["topologyKey"] == HOSTNAME
        && is_here
        && list_items(&term["matchLabelKeys"]).all(is_common)
        && list_items(&term["mismatchLabelKeys"]).next().is_none()
        && selects()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::workload::read_gang;

    use super::*;

    fn most(spec: Value) -> Option<u32> {
        let mut spec = spec;
        if spec["containers"].is_null() {
            spec["containers"] = json!([{"name": "c"}]);
        }
        let object = json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns"},
            "spec": {"tasks": [
                {"name": "other", "replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}},
                {"name": "w", "replicas": 2, "template": {"metadata": {"labels": {"app": "x"}}, "spec": spec}},
            ]},
        });
        let gang = read_gang(&object).unwrap();
        assert_eq!(gang.tasks[0].node.most_per_node, None);
        gang.tasks[1].node.most_per_node
    }

    fn set(object: &mut Value, fields: &Value) {
        for (key, value) in fields.as_object().unwrap() {
            object[key] = value.clone();
        }
    }

    fn apart(term: &Value) -> Option<u32> {
        let mut whole = json!({"topologyKey": "kubernetes.io/hostname"});
        set(&mut whole, term);
        most(json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [whole]}}}))
    }

    #[test]
    fn pods_with_a_port_of_the_node_are_one_to_a_node() {
        let ports = |ports: Value| json!({"containers": [{"name": "c", "ports": ports}]});
        assert_eq!(most(ports(json!([{"containerPort": 80, "hostPort": 80}]))), Some(1));
        assert_eq!(most(ports(json!([{"containerPort": 80, "hostPort": 0}]))), None);
        let mut network = ports(json!([{"containerPort": 80}]));
        network["hostNetwork"] = true.into();
        assert_eq!(most(network), Some(1));
        assert_eq!(most(json!({"hostNetwork": true})), None);
        let init = |policy: &str| json!({"initContainers": [{"restartPolicy": policy, "ports": [{"hostPort": 80}]}]});
        assert_eq!([most(init("Always")), most(init(""))], [Some(1), None]);
    }

    #[test]
    fn pods_that_keep_off_each_other_by_the_node_s_name_are_one_to_a_node() {
        let own = json!({"labelSelector": {"matchLabels": {"app": "x"}}});
        assert_eq!(apart(&own), Some(1));
        for (what, more, want) in [
            ("by zone", json!({"topologyKey": "zone"}), None),
            ("others", json!({"labelSelector": {"matchLabels": {"app": "y"}}}), None),
            ("nothing", json!({"labelSelector": null}), None),
            ("everything", json!({"labelSelector": {"matchLabels": null}}), Some(1)),
            ("elsewhere", json!({"namespaces": ["other"]}), None),
            ("here too", json!({"namespaces": ["other", "ns"]}), Some(1)),
            ("some namespaces", json!({"namespaceSelector": {"matchLabels": {"a": "b"}}}), None),
            ("all namespaces", json!({"namespaceSelector": {}}), Some(1)),
            ("those of a hash", json!({"matchLabelKeys": ["pod-template-hash"]}), None),
            ("those of the app", json!({"matchLabelKeys": ["app"]}), Some(1)),
            ("all but its own", json!({"mismatchLabelKeys": ["app"]}), None),
        ] {
            let mut term = own.clone();
            set(&mut term, &more);
            assert_eq!(apart(&term), want, "{what}");
        }
        for (key, value) in [("job-name", "j"), ("task-spec", "w"), ("queue-name", "default"), ("job-namespace", "ns")]
        {
            let key = format!("volcano.sh/{key}");
            assert_eq!(apart(&json!({"labelSelector": {"matchLabels": {key.clone(): value}}})), Some(1));
            let expression = json!({"key": key, "operator": "NotIn", "values": [value]});
            assert_eq!(apart(&json!({"labelSelector": {"matchExpressions": [expression]}})), None);
        }
    }
}
