//! Mistakes of one container beside its names: what its variables, ports, amounts, probes, hooks and rights refer to
//! (`validateContainerCommon`, `validateProbe`, `ValidateSecurityContext` of `pkg/apis/core/validation`).
//!
//! The server runs without `--allow-privileged`, as it does by default.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::internal_form::internal_text;
use crate::limits::{Amount, is_counted};
use crate::podspec::{NULL, items_of, text_of};
use crate::schema::FieldError;

const POLICY: &str = "disallowed by cluster policy";

/// What a container is among those of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Main,
    /// Runs before the main ones; one that restarts always runs beside them.
    Init,
}

/// `spec` is that of the pod.
pub fn container_errors(container: &Value, role: Role, spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, variable) in items_of(container, "env").iter().enumerate() {
        errors.extend(source_errors(variable, &format!("{at}.env[{index}].valueFrom")));
    }
    errors.extend(amount_errors(container.get("resources").unwrap_or(&NULL), &format!("{at}.resources")));
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.get(kind).filter(|p| p.is_object());
        errors.extend(probe.into_iter().flat_map(|probe| probe_errors(probe, kind, &format!("{at}.{kind}"))));
    }
    if role == Role::Init && text_of(container, "restartPolicy") != "Always" {
        let given = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"].into_iter();
        let given = given.filter(|key| container.get(key).is_some_and(Value::is_object));
        let why = "may not be set for init containers without restartPolicy=Always";
        errors.extend(given.map(|key| FieldError::forbidden(format!("{at}.{key}"), why)));
    }
    for hook in ["postStart", "preStop"] {
        let handler = container.get("lifecycle").and_then(|l| l.get(hook)).unwrap_or(&NULL);
        errors.extend(hook_errors(handler, spec, &format!("{at}.lifecycle.{hook}")));
    }
    errors.extend(crate::pod_references::reference_errors(container, spec, at));
    errors.extend(restart_errors(container, at));
    let mut paths = BTreeSet::new();
    for (index, mount) in items_of(container, "volumeMounts").iter().enumerate() {
        let path = text_of(mount, "mountPath");
        if !path.is_empty() && !paths.insert(path) {
            let field = format!("{at}.volumeMounts[{index}].mountPath");
            errors.push(FieldError::invalid_text(field, path, "must be unique"));
        }
    }
    errors.extend(crate::mount_rules::mount_errors(container, spec, at));
    errors.extend(right_errors(container, spec, &format!("{at}.securityContext")));
    errors
}

/// When it is begun anew (`validateContainerRestartPolicy`).
fn restart_errors(container: &Value, at: &str) -> Vec<FieldError> {
    let (policy, known) = (container.get("restartPolicy"), ["Always", "Never", "OnFailure"]);
    let odd = policy.filter(|given| given.as_str().is_some_and(|given| !known.contains(&given)));
    let mut errors: Vec<FieldError> =
        odd.map(|given| FieldError::not_supported(format!("{at}.restartPolicy"), given, &known)).into_iter().collect();
    let rules = items_of(container, "restartPolicyRules");
    if policy.is_none_or(Value::is_null) && !rules.is_empty() {
        let why = "must specify restartPolicy when restart rules are used";
        errors.push(FieldError::required(format!("{at}.restartPolicy"), why));
    }
    for (index, rule) in rules.iter().enumerate() {
        let at = format!("{at}.restartPolicyRules[{index}]");
        let supported = |holder: &Value, field: &str, key: &str, known: &[&str]| {
            let given = text_of(holder, key);
            (!known.contains(&given)).then(|| FieldError::not_supported(field, &given.into(), known))
        };
        errors.extend(supported(rule, &format!("{at}.action"), "action", &["Restart", "RestartAllContainers"]));
        match rule.get("exitCodes").filter(|codes| codes.is_object()) {
            Some(codes) => {
                errors.extend(supported(codes, &format!("{at}.exitCodes.operator"), "operator", &["In", "NotIn"]));
            }
            None => errors.push(FieldError::required(format!("{at}.exitCodes"), "must be specified")),
        }
    }
    errors
}

/// Where a variable comes from.
fn source_errors(variable: &Value, at: &str) -> Vec<FieldError> {
    const RESOURCES: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let mut errors = Vec::new();
    let source = |key: &str| variable.get("valueFrom").and_then(|from| from.get(key)).filter(|s| s.is_object());
    let known = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    if known.into_iter().filter(|key| source(key).is_some()).count() > 1 {
        errors.push(FieldError::invalid_text(at, "", "may not have more than one field specified at a time"));
    }
    if let Some(reference) = source("fieldRef") {
        let (version, path) = (text_of(reference, "apiVersion"), text_of(reference, "fieldPath"));
        if !matches!(version, "" | "v1") && !path.is_empty() {
            let why = format!("error converting fieldPath: unsupported pod version: {version}");
            errors.push(FieldError::invalid_text(format!("{at}.fieldRef.fieldPath"), path, &why));
        }
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        let Some(reference) = source(key) else { continue };
        errors.extend(crate::pod_volumes::reference_errors(text_of(reference, "name"), &format!("{at}.{key}.name")));
        if text_of(reference, "key").is_empty() {
            errors.push(FieldError::required(format!("{at}.{key}.key"), ""));
        }
    }
    if let Some(reference) = source("resourceFieldRef") {
        let (resource, field) = (text_of(reference, "resource"), format!("{at}.resourceFieldRef.resource"));
        let huge = resource.contains(".hugepages-");
        if resource.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if !huge && !RESOURCES.contains(&resource) {
            errors.push(FieldError::not_supported(field, &resource.into(), &RESOURCES));
        }
    }
    errors
}

fn amount_errors(resources: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let of = |list: &str| resources.get(list).and_then(Value::as_object).into_iter().flatten();
    for list in ["limits", "requests"] {
        for (name, amount) in of(list).filter(|(name, _)| is_counted(name)) {
            if Amount::parse(amount).is_some_and(|amount| !amount.is_whole()) {
                let shown = amount.as_str().and_then(crate::schema::canonical_quantity);
                let shown = shown.map_or_else(|| amount.clone(), Into::into);
                errors.push(FieldError::invalid(format!("{at}.{list}[{name}]"), &shown, "must be an integer"));
            }
        }
    }
    let names: Vec<&String> = of("limits").chain(of("requests")).map(|(name, _)| name).collect();
    let huge = names.iter().any(|name| name.starts_with("hugepages-"));
    if huge && !names.iter().any(|name| matches!(name.as_str(), "cpu" | "memory")) {
        errors.push(FieldError::forbidden(at, "HugePages require cpu or memory"));
    }
    errors
}

/// What a probe or a hook does.
fn handler_errors(handler: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if handler.get("exec").is_some_and(|exec| exec.is_object() && items_of(exec, "command").is_empty()) {
        errors.push(FieldError::required(format!("{at}.exec.command"), ""));
    }
    if let Some(get) = handler.get("httpGet").filter(|get| get.is_object()) {
        let (scheme, known) = (text_of(get, "scheme"), ["HTTP", "HTTPS"]);
        if !scheme.is_empty() && !known.contains(&scheme) {
            errors.push(FieldError::not_supported(format!("{at}.httpGet.scheme"), &scheme.into(), &known));
        }
    }
    errors
}

fn probe_errors(probe: &Value, kind: &str, at: &str) -> Vec<FieldError> {
    let mut errors = handler_errors(probe, at);
    let successes = probe.get("successThreshold").and_then(Value::as_i64);
    if let Some(successes) = successes.filter(|n| kind != "readinessProbe" && *n != 1) {
        errors.push(FieldError::invalid(format!("{at}.successThreshold"), &successes.into(), "must be 1"));
    }
    if let Some(grace) = probe.get("terminationGracePeriodSeconds").and_then(Value::as_i64) {
        let field = format!("{at}.terminationGracePeriodSeconds");
        if kind == "readinessProbe" {
            let why = "must not be set for readinessProbes";
            errors.push(FieldError::invalid(field.as_str(), &grace.into(), why));
        }
        if grace <= 0 {
            errors.push(FieldError::invalid(field, &grace.into(), "must be greater than 0"));
        }
    }
    errors
}

fn hook_errors(handler: &Value, spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = handler_errors(handler, at);
    let grace = spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    let seconds = handler.pointer("/sleep/seconds").and_then(Value::as_i64);
    if let Some(seconds) = seconds.filter(|seconds| *seconds < 0 || *seconds > grace) {
        let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.push(FieldError::invalid(format!("{at}.sleep"), &seconds.into(), &why));
    }
    errors
}

/// What escalates by itself cannot be kept from it.
fn escalation_errors(context: &Value, at: &str) -> Vec<FieldError> {
    if context["allowPrivilegeEscalation"] != false {
        return Vec::new();
    }
    let shown = || internal_text("SecurityContext", context);
    let refuse = |what: &str| {
        let why = format!("cannot set `allowPrivilegeEscalation` to false and {what}");
        FieldError::invalid_shown(at, &shown(), &why)
    };
    let privileged = (context["privileged"] == true).then(|| refuse("`privileged` to true"));
    let added = context.pointer("/capabilities/add").and_then(Value::as_array).into_iter().flatten();
    let admin = added.filter(|capability| *capability == "CAP_SYS_ADMIN");
    privileged.into_iter().chain(admin.map(|_| refuse("`capabilities.Add` CAP_SYS_ADMIN"))).collect()
}

fn right_errors(container: &Value, spec: &Value, at: &str) -> Vec<FieldError> {
    let Some(context) = container.get("securityContext").filter(|c| c.is_object()) else { return Vec::new() };
    let mut errors = Vec::new();
    if context["privileged"] == true {
        errors.push(FieldError::forbidden(format!("{at}.privileged"), POLICY));
    }
    errors.extend(escalation_errors(context, at));
    let mount = text_of(context, "procMount");
    let field = format!("{at}.procMount");
    if context.get("procMount").is_some_and(Value::is_string) && !matches!(mount, "Default" | "Unmasked") {
        errors.push(FieldError::not_supported(field, &mount.into(), &["Default", "Unmasked"]));
    } else if mount == "Unmasked" && spec["hostUsers"] != false {
        errors.push(FieldError::invalid_text(field, mount, "`hostUsers` must be false to use `Unmasked`"));
    }
    errors.extend(seccomp_errors(context, at));
    errors.extend(crate::mount_rules::armor_errors(context, at));
    errors
}

/// `at` is the security context, of a pod or a container.
pub fn seccomp_errors(context: &Value, at: &str) -> Vec<FieldError> {
    let Some(profile) = context.get("seccompProfile").filter(|p| p.is_object()) else { return Vec::new() };
    let (kind, file) = (text_of(profile, "type"), text_of(profile, "localhostProfile"));
    let at = format!("{at}.seccompProfile");
    match kind {
        "Localhost" if file.is_empty() => {
            let why = "must be set when seccomp type is Localhost";
            vec![FieldError::required(format!("{at}.localhostProfile"), why)]
        }
        "Localhost" => crate::mount_rules::descending_errors(file, &format!("{at}.localhostProfile")),
        "RuntimeDefault" | "Unconfined" if file.is_empty() => Vec::new(),
        "RuntimeDefault" | "Unconfined" => {
            let why = "can only be set when seccomp type is Localhost";
            let shown = internal_text("SeccompProfile", profile);
            vec![FieldError::invalid_shown(format!("{at}.localhostProfile"), &shown, why)]
        }
        "" => vec![FieldError::required(format!("{at}.type"), "type is required when seccompProfile is set")],
        other => {
            let known = ["Localhost", "RuntimeDefault", "Unconfined"];
            vec![FieldError::not_supported(format!("{at}.type"), &other.into(), &known)]
        }
    }
}

/// A port's name: what it may hold, each mistake told (`IsValidPortName`).
pub fn port_name_problems(name: &str) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if name.len() > 15 {
        problems.push("must be no more than 15 characters");
    }
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        problems.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push("must not begin or end with a hyphen");
    }
    problems
}

/// Ports of the host that two of a pod's ports want.
pub fn host_port_errors(spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut taken = BTreeSet::new();
    for (container, holder) in items_of(spec, "containers").iter().enumerate() {
        for (index, port) in items_of(holder, "ports").iter().enumerate() {
            let Some(number) = port.get("hostPort").and_then(Value::as_i64).filter(|n| *n != 0) else { continue };
            let wanted = format!("{}/{}/{number}", text_of(port, "protocol"), text_of(port, "hostIP"));
            if taken.contains(&wanted) {
                let field = format!("{at}.containers[{container}].ports[{index}].hostPort");
                errors.push(FieldError::duplicate(field, &wanted.as_str().into()));
            }
            taken.insert(wanted);
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(container: Value) -> Vec<String> {
        let errors = container_errors(&container, Role::Main, &NULL, "c");
        errors.into_iter().map(|e| e.field).collect()
    }

    #[test]
    fn what_escalates_by_itself_is_not_kept_from_it() {
        let context = |more: Value| {
            let mut context = json!({"allowPrivilegeEscalation": false});
            context.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            fields(json!({"name": "c", "image": "i", "securityContext": context}))
        };
        assert_eq!(context(json!({"privileged": true})), ["c.securityContext.privileged", "c.securityContext"]);
        assert_eq!(context(json!({"capabilities": {"add": ["CAP_SYS_ADMIN"]}})), ["c.securityContext"]);
        assert!(context(json!({"capabilities": {"add": ["NET_ADMIN"]}})).is_empty());
    }

    #[test]
    fn a_variable_names_a_key() {
        let env = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}},
            {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.foo"}}}]);
        assert_eq!(
            fields(json!({"env": env})),
            ["c.env[0].valueFrom.secretKeyRef.key", "c.env[1].valueFrom.resourceFieldRef.resource"]
        );
    }

    #[test]
    fn only_readiness_counts_successes() {
        let probe = json!({"httpGet": {"port": 80}, "successThreshold": 2});
        assert_eq!(fields(json!({"livenessProbe": probe})), ["c.livenessProbe.successThreshold"]);
        assert!(fields(json!({"readinessProbe": probe})).is_empty());
    }

    #[test]
    fn what_runs_before_is_not_probed() {
        let container = json!({"readinessProbe": {"exec": {"command": ["a"]}}});
        assert_eq!(container_errors(&container, Role::Init, &NULL, "i").len(), 1);
        let beside = json!({"restartPolicy": "Always", "readinessProbe": {"exec": {"command": ["a"]}}});
        assert!(container_errors(&beside, Role::Init, &NULL, "i").is_empty());
    }

    #[test]
    fn devices_are_whole() {
        let limits = |amount: &str| fields(json!({"resources": {"limits": {"a.b/gpu": amount}}})).len();
        assert_eq!((limits("1"), limits("1500m"), limits("2k")), (0, 1, 0));
    }

    #[test]
    fn a_port_of_the_host_is_taken_once() {
        let port = |number: u16| json!({"containerPort": number, "hostPort": 80, "protocol": "TCP"});
        let spec = json!({"containers": [{"ports": [port(1)]}, {"ports": [port(2)]}]});
        assert_eq!(host_port_errors(&spec, "s")[0].field, "s.containers[1].ports[0].hostPort");
        assert_eq!(port_name_problems("Bad_Name_that_is_long").len(), 2);
    }

    /// As a kube-apiserver 1.36.1 told it.
    #[test]
    fn a_rule_about_restarts_says_what_and_when() {
        let container = json!({"name": "c", "image": "i", "restartPolicyRules": [{"action": "x"}]});
        let found: Vec<(String, String)> =
            restart_errors(&container, "c").into_iter().map(|error| (error.field, error.message)).collect();
        let wanted = [
            ("c.restartPolicy", "Required value: must specify restartPolicy when restart rules are used"),
            (
                "c.restartPolicyRules[0].action",
                "Unsupported value: \"x\": supported values: \"Restart\", \"RestartAllContainers\"",
            ),
            ("c.restartPolicyRules[0].exitCodes", "Required value: must be specified"),
        ];
        assert_eq!(found, wanted.map(|(field, message)| (field.to_owned(), message.to_owned())));
    }
}
