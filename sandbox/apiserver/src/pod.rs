//! What the server adds to a Pod: its status and quality class, the tolerations and the priority that default admission
//! gives (plugins DefaultTolerationSeconds, Priority, LimitRanger).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::container_rules::Role;
use crate::error::Status;
use crate::podspec::{self, items_of, text_of};
use crate::schema::{CauseReason, FieldError};
use crate::server::ApiServer;

/// What default admission puts in, before the webhooks and after them (plugins LimitRanger, RuntimeClass,
/// DefaultTolerationSeconds, Priority).
pub fn admit_create(server: &ApiServer, pod: &mut Value) -> Result<(), Status> {
    crate::limits::default_limits(server, pod);
    crate::runtime_class::complete_pod(server, pod)?;
    tolerate_node_problems(pod);
    crate::priority::resolve_priority(server, pod)
}

pub fn prepare_create(server: &ApiServer, pod: &mut Value) -> Result<(), Status> {
    admit_create(server, pod)?;
    // A grace below nothing is one second.
    if pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        pod["spec"]["terminationGracePeriodSeconds"] = 1.into();
    }
    let class = quality_class(pod);
    let mut status = json!({"phase": "Pending", "qosClass": class});
    if pod.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|g| !g.is_empty()) {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": crate::clock::write_seconds(server.now()),
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    pod["status"] = status;
    Ok(())
}

/// A PUT that leaves out what admission added keeps it.
pub fn prepare_update(pod: &mut Value, old: &Value) {
    for member in ["priority", "preemptionPolicy", "nodeName"] {
        if pod.pointer(&format!("/spec/{member}")).is_none()
            && let Some(value) = old.pointer(&format!("/spec/{member}"))
            && let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut)
        {
            spec.insert(member.into(), value.clone());
        }
    }
    tolerate_node_problems(pod);
}

fn tolerate_node_problems(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for problem in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|t| {
            let text = |member: &str| t.get(member).and_then(Value::as_str).unwrap_or_default();
            let key = text("key");
            (key == problem || key.is_empty()) && matches!(text("effect"), "" | "NoExecute")
        });
        if !tolerated {
            tolerations
                .push(json!({"key": problem, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
}

/// The quality class of a pod stays what it is (`ValidatePodStatusUpdate`).
pub fn class_error(pod: &Value, old: &Value) -> Option<FieldError> {
    let class = |pod: &Value| pod.pointer("/status/qosClass").and_then(Value::as_str).unwrap_or_default().to_owned();
    let (before, now) = (class(old), class(pod));
    (before != now).then(|| FieldError::invalid_text("status.qosClass", &now, "field is immutable"))
}

/// A resize leaves the quality class as it is (`ValidatePodResize`).
pub fn resize_errors(pod: &Value, old: &Value) -> Vec<FieldError> {
    let class = |pod: &Value| pod.pointer("/status/qosClass").and_then(Value::as_str).unwrap_or_default().to_owned();
    let before = Some(class(old)).filter(|class| !class.is_empty()).unwrap_or_else(|| quality_class(old).to_owned());
    if before == quality_class(pod) {
        return Vec::new();
    }
    let why = "Pod QOS Class may not change as a result of resizing";
    vec![FieldError::invalid_text("spec", &class(pod), why)]
}

/// `qos.GetPodQOS`, by the written quantities: equal limits and requests of cpu and memory everywhere are Guaranteed.
fn quality_class(pod: &Value) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    // What the pod is given as a whole goes before what its containers are.
    let whole = ["requests", "limits"].iter().any(|kind| spec.pointer(&format!("/resources/{kind}")).is_some());
    let containers = ["containers", "initContainers"].into_iter().flat_map(|list| items_of(spec, list));
    let holders: Vec<&Value> = if whole { vec![spec] } else { containers.collect() };
    for holder in holders {
        let amount = |kind: &str, resource: &str| {
            holder.pointer(&format!("/resources/{kind}/{resource}")).filter(|v| !is_zero(v))
        };
        for resource in ["cpu", "memory"] {
            let (request, limit) = (amount("requests", resource), amount("limits", resource));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn is_zero(quantity: &Value) -> bool {
    quantity.as_str().is_some_and(|t| t.trim_matches(|c: char| !c.is_ascii_digit()).trim_matches('0').is_empty())
        || quantity.as_f64() == Some(0.0)
}

/// Ephemeral containers share the names of the others, and stay (`ValidatePodEphemeralContainersUpdate`).
pub fn ephemeral_errors(pod: &Value, old: &Value) -> Vec<FieldError> {
    const ODD: [&str; 9] = [
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let others = ["containers", "initContainers"].into_iter().flat_map(|list| items_of(spec, list));
    let others: BTreeSet<String> = others.map(|container| text_of(container, "name").to_owned()).collect();
    let (mut names, mut errors) = (others.clone(), Vec::new());
    // What is wrong with the volumes has been told.
    let volumes = podspec::validate_volumes(spec, "spec", &mut Vec::new());
    let why = "cannot be set for an Ephemeral Container";
    let list = items_of(spec, "ephemeralContainers");
    for (index, container) in list.iter().enumerate() {
        let at = format!("spec.ephemeralContainers[{index}]");
        let mut plain = container.clone();
        plain
            .as_object_mut()
            .into_iter()
            .for_each(|members| members.retain(|key, _| !ODD[5..].contains(&key.as_str())));
        podspec::validate_container(&plain, &at, (&volumes, false), &mut names, &mut errors);
        errors.extend(crate::pod_rules::container_errors(&plain, &at));
        errors.extend(crate::container_rules::container_errors(&plain, Role::Main, spec, &at));
        let target = text_of(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            let field = format!("{at}.targetContainerName");
            errors.push(FieldError::value(CauseReason::NotFound, field, &target.into(), ""));
        }
        let nothing = |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        let given = ODD.into_iter().filter(|key| container.get(*key).is_some_and(|value| !nothing(value)));
        errors.extend(given.map(|key| FieldError::forbidden(format!("{at}.{key}"), why)));
        for (index, mount) in items_of(container, "volumeMounts").iter().enumerate() {
            let given = ["subPath", "subPathExpr"].into_iter().filter(|key| !text_of(mount, key).is_empty());
            errors.extend(given.map(|key| FieldError::forbidden(format!("{at}.volumeMounts[{index}].{key}"), why)));
        }
    }
    let now: BTreeMap<&str, &Value> = list.iter().map(|container| (text_of(container, "name"), container)).collect();
    for old in old.get("spec").map_or(&[][..], |spec| items_of(spec, "ephemeralContainers")) {
        let name = text_of(old, "name");
        let quoted = crate::error::go_quote(name);
        let why = match now.get(name) {
            Some(new) if *new == old => continue,
            Some(new) => {
                let diff = crate::internal_form::internal_diff("EphemeralContainer", old, new);
                format!("existing ephemeral containers {quoted} may not be changed\n{diff}")
            }
            None => format!("existing ephemeral containers {quoted} may not be removed\n"),
        };
        errors.push(FieldError::forbidden("spec.ephemeralContainers", &why));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ephemeral_container_stays_and_says_what_it_is() {
        let pod = |image: &str| json!({"spec": {"containers": [{"name": "c"}], "ephemeralContainers": [{"name": "e", "image": image}]}});
        assert!(ephemeral_errors(&pod("i"), &pod("i")).is_empty());
        let changed = ephemeral_errors(&pod("z"), &pod("i"));
        assert!(changed[0].message.contains("existing ephemeral containers \"e\" may not be changed"));
        let mut odd = pod("");
        odd["spec"]["ephemeralContainers"][0]["targetContainerName"] = "zz".into();
        odd["spec"]["ephemeralContainers"][0]["resources"] = json!({"limits": {"cpu": "1"}});
        odd["spec"]["ephemeralContainers"][0]["volumeMounts"] =
            json!([{"name": "v", "mountPath": "/v", "subPath": "s"}]);
        odd["spec"]["ephemeralContainers"][0]["env"] = json!([{"name": ""}]);
        let found: Vec<_> = ephemeral_errors(&odd, &pod("i")).into_iter().map(|e| e.field).collect();
        let at = "spec.ephemeralContainers";
        let wanted = [
            "[0].image",
            "[0].env[0].name",
            "[0].volumeMounts[0].name",
            "[0].targetContainerName",
            "[0].resources",
            "[0].volumeMounts[0].subPath",
            "",
        ];
        assert_eq!(found, wanted.map(|part| format!("{at}{part}")));
        let mut twice = pod("i");
        twice["spec"]["ephemeralContainers"][0]["name"] = "c".into();
        let found: Vec<_> = ephemeral_errors(&twice, &json!({})).into_iter().map(|e| e.reason).collect();
        assert_eq!(found, [CauseReason::Duplicate]);
    }
}
