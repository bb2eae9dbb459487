//! What an update may change in a pod's spec (`ValidatePodUpdate` of `pkg/apis/core/validation`).

use serde_json::Value;

use crate::internal_form::internal_diff;
use crate::podspec::{NULL, items_of, keep_members, text_of};
use crate::schema::FieldError;

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
    `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` \
    (allow it to be set to 1 if it was previously negative)";

/// A pod's spec is fixed but for images, deadlines and more tolerations; where it may go also while it is gated. The
/// message shows what differs.
pub fn immutable_spec(new: &Value, old: &Value) -> Vec<FieldError> {
    let gates = |spec: &Value| spec.get("schedulingGates").and_then(Value::as_array).cloned().unwrap_or_default();
    let (before, now) = (gates(old), gates(new));
    if let Some((index, gate)) = now.iter().enumerate().find(|(_, gate)| !before.contains(gate)) {
        let why = format!("only deletion is allowed, but found new scheduling gate '{}'", text_of(gate, "name"));
        return vec![FieldError::forbidden(format!("spec.schedulingGates[{index}].name"), &why)];
    }
    let containers = |spec: &Value| (items_of(spec, "containers").len(), items_of(spec, "initContainers").len());
    if containers(new) != containers(old) {
        let member = if containers(new).0 == containers(old).0 { "initContainers" } else { "containers" };
        let why = "pod updates may not add or remove containers";
        return vec![FieldError::forbidden(format!("spec.{member}"), why)];
    }
    let seconds = |spec: &Value, member: &str| spec.get(member).and_then(Value::as_i64);
    let deadline = "activeDeadlineSeconds";
    match (seconds(new, deadline), seconds(old, deadline)) {
        (Some(now), _) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            let why = "must be between 0 and 2147483647, inclusive";
            return vec![FieldError::invalid(format!("spec.{deadline}"), &now.into(), why)];
        }
        (Some(now), Some(before)) if now > before => {
            let why = "must be less than or equal to previous value";
            return vec![FieldError::invalid(format!("spec.{deadline}"), &now.into(), why)];
        }
        (None, Some(_)) => {
            let why = "must not update from a positive integer to nil value";
            return vec![FieldError::invalid(format!("spec.{deadline}"), &NULL, why)];
        }
        _ => {}
    }
    let grace = "terminationGracePeriodSeconds";
    let shortened = seconds(new, grace) == Some(1) && seconds(old, grace).is_some_and(|s| s < 0);
    let free = ["activeDeadlineSeconds", "tolerations", "schedulingGates"].into_iter();
    let free = free.chain(shortened.then_some(grace));
    let free = free.chain(["nodeSelector", "affinity"].into_iter().filter(|_| !before.is_empty()));
    let mut kept = new.clone();
    keep_members(&mut kept, old, free);
    keep_images(&mut kept, old);
    if kept == *old {
        return Vec::new();
    }
    let diff = internal_diff("PodSpec", old, &kept);
    vec![FieldError::forbidden("spec", &format!("{UPDATABLE}\n{diff}"))]
}

/// Containers keep their images, and an empty list of ephemeral containers is none.
fn keep_images(new: &mut Value, old: &Value) {
    for list in ["containers", "initContainers"] {
        let containers = new.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, old) in containers.zip(items_of(old, list)) {
            keep_members(container, old, ["image"]);
        }
    }
    if new.get("ephemeralContainers") != old.get("ephemeralContainers")
        && items_of(new, "ephemeralContainers").is_empty()
    {
        keep_members(new, old, ["ephemeralContainers"].into_iter().filter(|list| items_of(old, list).is_empty()));
    }
}

/// A resize changes what containers of a pod ask for, and nothing else (`dropNonResizeUpdates`).
pub fn keep_for_resize(pod: &mut Value, old: &Value) {
    let mut kept = old.clone();
    for list in ["containers", "initContainers"] {
        let at = format!("/spec/{list}");
        let sent = pod.pointer(&at).and_then(Value::as_array).cloned().unwrap_or_default();
        let containers = kept.pointer_mut(&at).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let Some(new) = sent.iter().find(|new| new.get("name") == container.get("name")) else { continue };
            for member in ["resources", "resizePolicy"] {
                match new.get(member) {
                    Some(value) => container.insert(member.to_owned(), value.clone()),
                    None => container.remove(member),
                };
            }
        }
    }
    for member in ["resourceVersion", "managedFields"] {
        if let (Some(value), Some(metadata)) =
            (pod.pointer(&format!("/metadata/{member}")), kept.get_mut("metadata").and_then(Value::as_object_mut))
        {
            metadata.insert(member.to_owned(), value.clone());
        }
    }
    *pod = kept;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_keeps_its_containers_its_deadline_and_its_grace() {
        let pod = |containers: usize, deadline: i64, grace: i64| {
            let list: Vec<Value> = (0..containers).map(|n| json!({"name": format!("c{n}"), "image": "i"})).collect();
            json!({"containers": list, "activeDeadlineSeconds": deadline, "terminationGracePeriodSeconds": grace})
        };
        let field = |new: Value| immutable_spec(&new, &pod(1, 5, 30)).into_iter().map(|e| e.field).collect::<Vec<_>>();
        assert_eq!(field(pod(2, 5, 30)), ["spec.containers"]);
        assert_eq!(field(pod(1, 10, 30)), ["spec.activeDeadlineSeconds"]);
        assert_eq!(field(pod(1, 5, 1)), ["spec"]);
        let negative = &immutable_spec(&pod(1, -1, 30), &pod(1, 5, 30))[0].message;
        assert_eq!(negative, "Invalid value: -1: must be between 0 and 2147483647, inclusive");
        let shown = &immutable_spec(&pod(1, 5, 31), &pod(1, 5, 30))[0].message;
        let diff = "- \"TerminationGracePeriodSeconds\": 30,\n+ \"TerminationGracePeriodSeconds\": 31,\n";
        assert!(shown.contains(diff), "{shown}");
        assert!(field(pod(1, 3, 30)).is_empty());
    }
}
