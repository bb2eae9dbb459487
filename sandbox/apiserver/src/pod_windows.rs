//! What a pod that runs on Windows cannot be given (`pkg/apis/core/validation`, `validateWindows`).

use serde_json::Value;

use crate::podspec::items_of;
use crate::schema::FieldError;

/// Members of the security context of a pod.
const OF_POD: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
/// Members of a pod that Kubernetes holds in its security context.
const OF_HOST: [&str; 4] = ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"];
/// Members of the security context of a container.
const OF_CONTAINER: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

pub fn windows_errors(spec: &Value, at: &str) -> Vec<FieldError> {
    if spec.pointer("/os/name").is_none_or(|name| name != "windows") {
        return Vec::new();
    }
    let refused = |holder: &Value, at: &str, members: &[&str]| -> Vec<FieldError> {
        let given = |member: &&&str| match holder.get(**member) {
            None | Some(Value::Null) => false,
            // These two are not there when they are not so.
            Some(value) => !(matches!(**member, "hostPID" | "hostIPC") && value == &Value::Bool(false)),
        };
        let field = |member: &&str| FieldError::forbidden(format!("{at}.{member}"), "cannot be set for a windows pod");
        members.iter().filter(given).map(field).collect()
    };
    let context = |holder: &Value| holder.get("securityContext").cloned().unwrap_or_default();
    let pod = context(spec);
    let mut errors = refused(&pod, &format!("{at}.securityContext"), &OF_POD);
    if !items_of(&pod, "sysctls").is_empty() {
        errors.extend(refused(&pod, &format!("{at}.securityContext"), &["sysctls"]));
    }
    errors.extend(refused(spec, at, &OF_HOST));
    for list in ["containers", "initContainers"] {
        for (index, container) in items_of(spec, list).iter().enumerate() {
            let at = format!("{at}.{list}[{index}].securityContext");
            errors.extend(refused(&context(container), &at, &OF_CONTAINER));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// As a kube-apiserver 1.36.1 told it.
    #[test]
    fn a_pod_on_windows_has_no_user_number() {
        let mut spec = json!({"os": {"name": "windows"}, "securityContext": {"runAsUser": 1}});
        let errors = windows_errors(&spec, "spec");
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].field, "spec.securityContext.runAsUser");
        assert_eq!(errors[0].message, "Forbidden: cannot be set for a windows pod");
        spec["os"]["name"] = "linux".into();
        assert!(windows_errors(&spec, "spec").is_empty());
    }
}
