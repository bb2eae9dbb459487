//! What of a workload's pods is left to the scheduler of the member that a copy goes to, to be told at submission.
//!
//! Rule: clusters and nodes are chosen by requests, node selectors, node affinity, taints, host ports, and by pods of
//! one template that keep off each other ([`anti_affinity`]), and by NUMA policies where nodes report their NUMA nodes.
//! Of all else that is required of a node nothing is asked: what is only preferred keeps no pod from starting, and is
//! not told.

use std::collections::BTreeSet;

use caldera_core::{
    numa::{MOST_CONTAINERS, NumaPolicy},
    text::name_some,
    text::shorten_text,
};
use serde_json::Value;

use super::{
    WorkloadKind,
    anti_affinity::{REQUIRED, keeps_off_others, list_items},
    field::Field,
    list_pod_templates,
    numa_claim::read_numa_claim,
};

/// A sentence for each kind of wish that nobody looks at before a copy is in its member.
#[must_use]
pub fn list_wishes_left_to_member(object: &Value) -> Vec<String> {
    let Some(kind) = WorkloadKind::of_object(object) else { return Vec::new() };
    let is_job = kind == WorkloadKind::VolcanoJob;
    let (mut spread, mut claims, mut wants_others) = (Texts::new(), Texts::new(), false);
    let (mut policies, mut void_policies) = (Texts::new(), Texts::new());
    for (at, template) in list_pod_templates(&Field::unnamed(object)).iter().enumerate() {
        let task = if is_job { object["spec"]["tasks"][at]["name"].as_str() } else { None };
        let (template, spec) = (template.value, &template.value["spec"]);
        let constraints = list_items(&spec["topologySpreadConstraints"]);
        let strict = constraints.filter(|constraint| constraint["whenUnsatisfiable"] != "ScheduleAnyway");
        add_texts(&mut spread, strict.map(|constraint| &constraint["topologyKey"]));
        wants_others |= list_items(&spec["affinity"]["podAffinity"][REQUIRED]).next().is_some();
        wants_others |= keeps_off_others(object, kind, template, task.unwrap_or_default());
        let volumes = list_items(&spec["volumes"]);
        add_texts(&mut claims, volumes.map(|volume| &volume["persistentVolumeClaim"]["claimName"]));
    }
    if is_job {
        add_texts(&mut claims, list_items(&object["spec"]["volumes"]).map(|volume| &volume["volumeClaimName"]));
        for task in list_items(&object["spec"]["tasks"]) {
            let Some(policy) = task["topologyPolicy"].as_str().and_then(NumaPolicy::parse) else { continue };
            if read_numa_claim(task).is_none() {
                void_policies.insert(policy.as_str().to_owned());
            } else if policy != NumaPolicy::BestEffort {
                policies.insert(policy.as_str().to_owned());
            }
        }
    }
    let say = |what: &str, texts: Texts| {
        let texts = Vec::from_iter(texts);
        (!texts.is_empty()).then(|| report(&format!("{what} {}", name_some(&texts))))
    };
    [
        say("topology spread over", spread),
        wants_others.then(|| report("affinity or anti-affinity to other pods")),
        say("the zone of volume claim", claims),
        (!policies.is_empty()).then(|| report_policies(policies)),
        (!void_policies.is_empty()).then(|| report_void_policies(void_policies)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

type Texts = BTreeSet<String>;

fn report(what: &str) -> String {
    format!("{what} is left to the member's scheduler; a copy may stay Pending there")
}

fn report_policies(policies: Texts) -> String {
    let policies = name_some(Vec::from_iter(policies));
    let elsewhere = report("elsewhere it");
    format!("topologyPolicy {policies} is looked at where nodes report their NUMA nodes; {elsewhere}")
}

fn report_void_policies(policies: Texts) -> String {
    format!(
        "topologyPolicy {} counts for nothing: it is asked of Guaranteed pods, where each container has limits of cpu \
         and memory and requests as much, with at most {MOST_CONTAINERS} containers of whole cpus",
        name_some(Vec::from_iter(policies))
    )
}

fn add_texts<'a>(texts: &mut Texts, values: impl Iterator<Item = &'a Value>) {
    texts.extend(values.filter_map(Value::as_str).map(shorten_text));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LEFT: &str = " is left to the member's scheduler; a copy may stay Pending there";

    fn job(task: Value) -> Value {
        let mut whole = json!({"name": "w", "replicas": 2});
        whole.as_object_mut().unwrap().extend(task.as_object().unwrap().clone());
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns"},
            "spec": {"tasks": [{"name": "plain", "template": {"spec": {}}}, whole]},
        })
    }

    fn guaranteed_task(policy: &str) -> Value {
        let container = json!({"resources": {"limits": {"cpu": "4", "memory": "1Gi"}}});
        json!({"topologyPolicy": policy, "template": {"spec": {"containers": [container]}}})
    }

    fn reported(spec: Value) -> Vec<String> {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "ns"},
            "spec": {"template": {"metadata": {"labels": {"app": "x"}}, "spec": spec}},
        });
        let reported = list_wishes_left_to_member(&deployment);
        assert_eq!(list_wishes_left_to_member(&job(json!({"template": deployment["spec"]["template"]}))), reported);
        reported
    }

    fn apart(key: &str, app: &str) -> Value {
        let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
        json!({"affinity": {"podAntiAffinity": {REQUIRED: [term]}}})
    }

    #[test]
    fn what_the_members_scheduler_alone_looks_at_is_told_in_one_sentence_each() {
        let spread =
            |when: &str| json!({"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": when}]});
        assert_eq!(reported(spread("DoNotSchedule")), [format!("topology spread over zone{LEFT}")]);
        let others = [format!("affinity or anti-affinity to other pods{LEFT}")];
        assert_eq!(reported(json!({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}})), others);
        assert_eq!(reported(apart("zone", "x")), others);
        assert_eq!(reported(apart("kubernetes.io/hostname", "y")), others);
        let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
        let volumes = json!({"volumes": [claim("b"), claim("a"), claim("b"), {"emptyDir": {}}]});
        assert_eq!(reported(volumes), [format!("the zone of volume claim a, b{LEFT}")]);
    }

    #[test]
    fn a_volcano_jobs_claims_and_numa_policies_are_told_too() {
        let mut object = job(guaranteed_task("single-numa-node"));
        object["spec"]["volumes"] = json!([{"mountPath": "/a", "volumeClaimName": "data"}, {"mountPath": "/b"}]);
        let numa = "topologyPolicy single-numa-node is looked at where nodes report their NUMA nodes; elsewhere it";
        let want = ["the zone of volume claim data", numa].map(|what| format!("{what}{LEFT}"));
        assert_eq!(list_wishes_left_to_member(&object), want);
        object["spec"]["tasks"][1]["template"] = json!({"spec": {"containers": [{}]}});
        let void = "topologyPolicy single-numa-node counts for nothing: it is asked of Guaranteed pods, where each \
                    container has limits of cpu and memory and requests as much, with at most 8 containers of whole cpus";
        assert_eq!(list_wishes_left_to_member(&object), [want[0].as_str(), void]);
    }

    #[test]
    fn what_is_looked_at_or_only_preferred_is_not_told() {
        let none = Vec::<String>::new();
        let preferred =
            json!({"topologySpreadConstraints": [{"topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}]});
        assert_eq!(reported(preferred), none);
        assert_eq!(reported(apart("kubernetes.io/hostname", "x")), none);
        let liked = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]});
        assert_eq!(reported(json!({"affinity": {"podAffinity": liked, "podAntiAffinity": liked}})), none);
        for policy in ["", "none", "best-effort"] {
            assert_eq!(list_wishes_left_to_member(&job(guaranteed_task(policy))), none, "{policy}");
        }
        assert_eq!(list_wishes_left_to_member(&json!({"kind": "Secret"})), none);
    }
}
