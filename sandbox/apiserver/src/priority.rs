//! Priority classes: the two of the system, what others may be, and what pods get from them.
//!
//! Rule: kubernetes `pkg/apis/scheduling/validation`, the admission plugin Priority, and the registry's post-start
//! hook.

use serde_json::{Value, json};

use crate::clock::write_seconds;
use crate::error::Status;
use crate::meta;
use crate::schema::FieldError;
use crate::server::ApiServer;
use crate::store::{Change, Expect, Key};

const STORAGE: &str = "priorityclasses.scheduling.k8s.io";
/// `HighestUserDefinablePriority`.
const HIGHEST: i64 = 1_000_000_000;
/// Name, value, what it is for.
const SYSTEM: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

/// The classes that every server makes for itself.
pub fn create_initial(server: &ApiServer) {
    let registry = server.registry();
    let Some(resource) = registry.get("scheduling.k8s.io", "v1", "priorityclasses") else { return };
    for (name, value, description) in SYSTEM {
        let object = json!({
            "kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1",
            "metadata": {
                "name": name, "uid": server.new_id().to_string(), "generation": 1,
                "creationTimestamp": write_seconds(server.now()),
            },
            "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority",
        });
        // The store is new: nobody can have raced us.
        let key = Key::new("", name);
        let _ = server.store().commit(&resource.storage, &key, Expect::Absent, Change::Put(object, resource.form));
    }
}

/// Only one class is everybody's default.
pub fn admit_class(server: &ApiServer, class: &Value) -> Result<(), Status> {
    let is_default = |class: &Value| class.get("globalDefault") == Some(&Value::Bool(true));
    if !is_default(class) {
        return Ok(());
    }
    let name = meta::object_name(class);
    let classes = server.store().list(STORAGE, None);
    let other =
        classes.iter().map(|other| &other.value).find(|other| is_default(other) && meta::object_name(other) != name);
    let Some(other) = other.map(meta::object_name) else { return Ok(()) };
    let why = format!("PriorityClass {other} is already marked as default. Only one default can exist");
    Err(Status::forbidden("scheduling.k8s.io", "priorityclasses", name, &why))
}

/// The classes of the system stay.
pub fn refuse_deletion(name: &str) -> Result<(), Status> {
    if SYSTEM.iter().all(|(known, ..)| *known != name) {
        return Ok(());
    }
    let why = "this is a system priority class and cannot be deleted";
    Err(Status::forbidden("scheduling.k8s.io", "priorityclasses", name, why))
}

/// What a class may be called and be worth, and that it stays so.
pub fn validate_class(class: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (name, value) = (meta::object_name(class), class.get("value").and_then(Value::as_i64).unwrap_or(0));
    if name.starts_with("system-") {
        let wrong = match SYSTEM.iter().find(|(known, ..)| *known == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, right, _)) if *right != value => Some(format!("value of {name} PriorityClass must be {right}")),
            Some(_) if class.get("globalDefault") == Some(&Value::Bool(true)) => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(wrong) = wrong {
            let why = "priority class names with 'system-' prefix are reserved for system use only. error: ";
            errors.push(FieldError::forbidden("metadata.name", &format!("{why}{wrong}")));
        }
    } else if value > HIGHEST {
        errors.push(FieldError::forbidden(
            "value",
            &format!("maximum allowed value of a user defined priority is {HIGHEST}"),
        ));
    }
    let policies = ["PreemptLowerPriority", "Never"];
    let policy = class.get("preemptionPolicy").filter(|p| !p.is_null());
    if let Some(policy) = policy.filter(|p| !p.as_str().is_some_and(|p| policies.contains(&p))) {
        errors.push(FieldError::not_supported("preemptionPolicy", policy, &policies));
    }
    let Some(old) = old else { return errors };
    if old.get("value") != class.get("value") {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    if old.get("preemptionPolicy") != class.get("preemptionPolicy") {
        let now = class.get("preemptionPolicy").cloned().unwrap_or(Value::Null);
        errors.push(FieldError::invalid("preemptionPolicy", &now, "field is immutable"));
    }
    errors
}

/// A new pod gets the number of its class, or of the default one (admission plugin Priority).
pub fn resolve_priority(server: &ApiServer, pod: &mut Value) -> Result<(), Status> {
    let class_name = pod.pointer("/spec/priorityClassName").and_then(Value::as_str).unwrap_or_default().to_owned();
    let (value, policy, default_class) = match class_name.as_str() {
        "" => {
            let classes = server.store().list("priorityclasses.scheduling.k8s.io", None);
            let default = classes
                .iter()
                .filter(|c| c.value.get("globalDefault") == Some(&Value::Bool(true)))
                .min_by_key(|c| c.value.get("value").and_then(Value::as_i64));
            match default {
                Some(class) => {
                    let (value, policy) = priority_of(&class.value);
                    (value, policy, Some(meta::object_name(&class.value).to_owned()))
                }
                None => (0, Some("PreemptLowerPriority".to_owned()), None),
            }
        }
        name => {
            let found = server.store().get("priorityclasses.scheduling.k8s.io", &Key::new("", name));
            let Some(class) = found else {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(Status::forbidden("", "pods", meta::object_name(pod), &why));
            };
            let (value, policy) = priority_of(&class.value);
            (value, policy, None)
        }
    };
    let given = pod.pointer("/spec/priority").and_then(Value::as_i64);
    if let Some(given) = given.filter(|given| *given != value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        );
        return Err(Status::forbidden("", "pods", meta::object_name(pod), &why));
    }
    let sent = pod.pointer("/spec/preemptionPolicy").and_then(Value::as_str);
    if let (Some(sent), Some(policy)) = (sent, policy.as_deref())
        && sent != policy
    {
        let why = format!(
            "the string value of PreemptionPolicy ({sent}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        );
        return Err(Status::forbidden("", "pods", meta::object_name(pod), &why));
    }
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    if let Some(name) = default_class {
        spec.insert("priorityClassName".into(), name.into());
    }
    spec.insert("priority".into(), value.into());
    if let Some(policy) = policy {
        spec.insert("preemptionPolicy".into(), policy.into());
    }
    Ok(())
}

fn priority_of(class: &Value) -> (i64, Option<String>) {
    let value = class.get("value").and_then(Value::as_i64).unwrap_or(0);
    (value, class.get("preemptionPolicy").and_then(Value::as_str).map(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(class: &Value, old: Option<&Value>) -> Vec<String> {
        validate_class(class, old).into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn users_classes_stay_below_the_systems_and_as_they_are() {
        let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value});
        assert!(texts(&class("a", HIGHEST), None).is_empty());
        assert_eq!(
            texts(&class("a", HIGHEST + 1), None),
            ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"]
        );
        assert!(texts(&class("system-x", 1), None)[0].ends_with("system-x is not a known system priority class"));
        assert!(texts(&class("system-node-critical", 2_000_001_000), None).is_empty());
        assert_eq!(texts(&class("a", 2), Some(&class("a", 1))), ["value: Forbidden: may not be changed in an update."]);
    }

    #[test]
    fn the_systems_classes_are_there_and_a_pod_does_not_choose_its_number() {
        let server = ApiServer::new(crate::Options::default());
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"priorityClassName": "system-node-critical"}});
        resolve_priority(&server, &mut pod).unwrap();
        assert_eq!(pod["spec"]["priority"], 2_000_001_000);
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"priority": 5}});
        assert!(resolve_priority(&server, &mut pod).is_err());
    }
}
