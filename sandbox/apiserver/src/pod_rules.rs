//! Mistakes inside pod specs and their containers that `podspec` leaves to be found here: names, sources, probes,
//! ranges (`ValidatePodSpec`, `validateContainerCommon` of `pkg/apis/core/validation`).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::container_rules::{self, Role};
use crate::limits::{self, Amount};
use crate::meta::{label_problems, qualified_name_problems, subdomain_problems};
use crate::schema::FieldError;

const ID_RANGE: &str = "must be between 0 and 2147483647, inclusive";
const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";
const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

fn text_of<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn items_of<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn member<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    value.get(key).filter(|v| v.is_object())
}

fn named_badly(spec: &Value, key: &str, at: &str, problems: fn(&str) -> Vec<String>) -> Vec<FieldError> {
    let name = text_of(spec, key);
    let found = if name.is_empty() { Vec::new() } else { problems(name) };
    found.iter().map(|why| FieldError::invalid_text(format!("{at}.{key}"), name, why)).collect()
}

fn user_errors(holder: &Value, at: &str) -> Vec<FieldError> {
    let context = holder.get("securityContext").unwrap_or(&Value::Null);
    let ids = ["runAsUser", "runAsGroup"].into_iter().filter_map(|key| Some((key, context.get(key)?.as_i64()?)));
    let odd = ids.filter(|(_, id)| !(0..=i64::from(i32::MAX)).contains(id));
    odd.map(|(key, id)| FieldError::invalid(format!("{at}.securityContext.{key}"), &id.into(), ID_RANGE)).collect()
}

/// The spec beside its containers.
pub fn spec_errors(spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = named_badly(spec, "nodeName", at, subdomain_problems);
    errors.extend(named_badly(spec, "serviceAccountName", at, subdomain_problems));
    errors.extend(named_badly(spec, "hostname", at, label_problems));
    errors.extend(named_badly(spec, "subdomain", at, label_problems));
    errors.extend(user_errors(spec, at));
    let mut gates = BTreeSet::new();
    for (index, gate) in items_of(spec, "schedulingGates").iter().enumerate() {
        let (field, name) = (format!("{at}.schedulingGates[{index}]"), text_of(gate, "name"));
        let problems = qualified_name_problems(name);
        errors.extend(problems.iter().map(|why| FieldError::invalid_text(field.as_str(), name, why)));
        if !gates.insert(name) {
            errors.push(FieldError::duplicate(field, &name.into()));
        }
    }
    for (index, gate) in items_of(spec, "readinessGates").iter().enumerate() {
        let (field, name) = (format!("{at}.readinessGates[{index}].conditionType"), text_of(gate, "conditionType"));
        let problems = qualified_name_problems(name);
        errors.extend(problems.iter().map(|why| FieldError::invalid_text(field.as_str(), name, why)));
    }
    let aliases = items_of(spec, "hostAliases").iter().map(|alias| text_of(alias, "ip"));
    let servers = spec.get("dnsConfig").map_or(&[][..], |config| items_of(config, "nameservers"));
    let servers = servers.iter().map(|server| server.as_str().unwrap_or_default());
    let addresses = aliases.enumerate().map(|(i, ip)| (format!("{at}.hostAliases[{i}].ip"), ip));
    let addresses =
        addresses.chain(servers.enumerate().map(|(i, ip)| (format!("{at}.dnsConfig.nameservers[{i}]"), ip)));
    for (field, ip) in addresses.filter(|(_, ip)| ip.parse::<std::net::IpAddr>().is_err()) {
        errors.push(FieldError::invalid_text(field, ip, ADDRESS));
    }
    let system = spec.pointer("/os/name").unwrap_or(&Value::Null);
    if member(spec, "os").is_some_and(|system| text_of(system, "name").is_empty()) {
        errors.push(FieldError::required(format!("{at}.os.name"), ""));
    } else if system.as_str().is_some_and(|name| !matches!(name, "linux" | "windows")) {
        errors.push(FieldError::not_supported(format!("{at}.os"), system, &["linux", "windows"]));
    }
    errors.extend(resolver_errors(spec.get("dnsConfig").unwrap_or(&Value::Null), &format!("{at}.dnsConfig")));
    errors.extend(host_errors(spec, at));
    errors
        .extend(context_errors(spec.get("securityContext").unwrap_or(&Value::Null), &format!("{at}.securityContext")));
    for (list, role) in [("containers", Role::Main), ("initContainers", Role::Init)] {
        for (index, container) in items_of(spec, list).iter().enumerate() {
            let at = format!("{at}.{list}[{index}]");
            errors.extend(container_errors(container, &at));
            errors.extend(container_rules::container_errors(container, role, spec, &at));
        }
    }
    errors.extend(container_rules::host_port_errors(spec, at));
    errors.extend(crate::pod_resources::claim_errors(spec, at));
    errors.extend(crate::pod_resources::pod_errors(spec, at));
    errors.extend(crate::pod_windows::windows_errors(spec, at));
    errors
}

/// What a new pod may not say yet.
pub fn creation_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !items_of(spec, "ephemeralContainers").is_empty() {
        errors.push(FieldError::forbidden("spec.ephemeralContainers", "cannot be set on create"));
    }
    if !items_of(spec, "schedulingGates").is_empty() && !text_of(spec, "nodeName").is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", why));
    }
    errors
}

/// Servers of names that a resolver asks.
const MOST_SERVERS: usize = 3;

/// Where names are looked for; a search may have underscores.
fn resolver_errors(config: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let servers = items_of(config, "nameservers");
    if servers.len() > MOST_SERVERS {
        let why = format!("must not have more than {MOST_SERVERS} nameservers");
        errors.push(FieldError::invalid(format!("{at}.nameservers"), &Value::from(servers.to_vec()), &why));
    }
    for (index, search) in items_of(config, "searches").iter().enumerate() {
        let (field, given) = (format!("{at}.searches[{index}]"), search.as_str().unwrap_or_default());
        if given.len() > 253 {
            errors.push(FieldError::invalid_text(field.as_str(), given, "must be no more than 253 characters"));
        }
        let name = given.strip_suffix('.').unwrap_or(given);
        if given != "." && !name.split('.').all(is_search_part) {
            let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or \
                       '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
                       validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
            errors.push(FieldError::invalid_text(field, given, why));
        }
    }
    for (index, option) in items_of(config, "options").iter().enumerate() {
        if text_of(option, "name").is_empty() {
            errors.push(FieldError::required(format!("{at}.options[{index}]"), "must not be empty"));
        }
    }
    errors
}

fn is_search_part(part: &str) -> bool {
    let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = part.strip_prefix('_').unwrap_or(part).as_bytes();
    bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|b| plain(b) || matches!(b, b'-' | b'_'))
}

/// How a pod shares its host, and what it overrides there.
fn host_errors(spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text_of(spec, "dnsPolicy") == "None" && member(spec, "dnsConfig").is_none() {
        let why = "must provide `dnsConfig` when `dnsPolicy` is None";
        errors.push(FieldError::required(format!("{at}.dnsConfig"), why));
    }
    let known = ["PreemptLowerPriority", "Never"];
    if let Some(policy) = Some(text_of(spec, "preemptionPolicy")).filter(|p| !p.is_empty() && !known.contains(p)) {
        errors.push(FieldError::not_supported(format!("{at}.preemptionPolicy"), &policy.into(), &known));
    }
    for (index, alias) in items_of(spec, "hostAliases").iter().enumerate() {
        for (place, name) in items_of(alias, "hostnames").iter().enumerate() {
            let (field, name) =
                (format!("{at}.hostAliases[{index}].hostnames[{place}]"), name.as_str().unwrap_or_default());
            let problems = subdomain_problems(name);
            errors.extend(problems.iter().map(|why| FieldError::invalid_text(field.as_str(), name, why)));
        }
    }
    if spec["shareProcessNamespace"] == true && spec["hostPID"] == true {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        let field = format!("{at}.securityContext.shareProcessNamespace");
        errors.push(FieldError::invalid(field, &true.into(), why));
    }
    if spec["hostUsers"] == false {
        let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|key| spec[*key] == true);
        errors.extend(shared.map(|key| FieldError::forbidden(format!("{at}.{key}"), "when `hostUsers` is false")));
    }
    errors.extend(overhead_errors(spec.get("overhead"), &format!("{at}.overhead")));
    errors
}

/// What a pod needs beside its containers; the message speaks of limits.
pub fn overhead_errors(overhead: Option<&Value>, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (resource, amount) in overhead.and_then(Value::as_object).into_iter().flatten() {
        let field = format!("{at}.limits[{resource}]");
        errors.extend(resource_name_errors(resource, &field));
        if Amount::parse(amount).is_some_and(Amount::is_negative) {
            errors.push(FieldError::invalid(field, amount, "must be greater than or equal to 0"));
        }
    }
    errors
}

/// The name of something that containers use (`validateContainerResourceName`).
pub fn resource_name_errors(name: &str, field: &str) -> Vec<FieldError> {
    let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    let mut errors = limits::name_errors(name, field);
    if !name.contains('/') {
        let why = "must be a standard resource for containers";
        errors.extend((!standard).then(|| FieldError::invalid_text(field, name, why)));
    } else if !limits::is_native(name) && !limits::is_extended(name) {
        errors.push(FieldError::invalid_text(field, name, "doesn't follow extended resource name standard"));
    }
    errors
}

/// The security context of the pod; `at` is the context.
fn context_errors(context: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = container_rules::seccomp_errors(context, at);
    let in_range = |id: i64| (0..=i64::from(i32::MAX)).contains(&id);
    if let Some(group) = context.get("fsGroup").and_then(Value::as_i64).filter(|id| !in_range(*id)) {
        errors.push(FieldError::invalid(format!("{at}.fsGroup"), &group.into(), ID_RANGE));
    }
    for (index, group) in items_of(context, "supplementalGroups").iter().enumerate() {
        if group.as_i64().is_some_and(|id| !in_range(id)) {
            errors.push(FieldError::invalid(format!("{at}.supplementalGroups[{index}]"), group, ID_RANGE));
        }
    }
    let mut named = BTreeSet::new();
    for (index, sysctl) in items_of(context, "sysctls").iter().enumerate() {
        let (field, name) = (format!("{at}.sysctls[{index}].name"), text_of(sysctl, "name"));
        let odd = |part: &str| {
            let edges = [part.chars().next(), part.chars().last()];
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            edges.iter().any(|c| c.is_none_or(|c| !fits(c))) || !part.chars().all(|c| fits(c) || matches!(c, '-' | '_'))
        };
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if name.len() > 253 || name.split(['.', '/']).any(odd) {
            let why = "must have at most 253 characters and match regex \
                       ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.push(FieldError::invalid_text(field, name, why));
        } else if !named.insert(name.replace('/', ".")) {
            errors.push(FieldError::duplicate(field, &name.into()));
        }
    }
    let (policy, known) = (text_of(context, "fsGroupChangePolicy"), ["Always", "OnRootMismatch"]);
    if context.get("fsGroupChangePolicy").is_some_and(Value::is_string) && !known.contains(&policy) {
        errors.push(FieldError::not_supported(format!("{at}.fsGroupChangePolicy"), &policy.into(), &known));
    }
    errors.extend(crate::mount_rules::armor_errors(context, at));
    for (key, known) in
        [("supplementalGroupsPolicy", &["Merge", "Strict"][..]), ("seLinuxChangePolicy", &["Recursive"])]
    {
        let policy = text_of(context, key);
        if !policy.is_empty() && !known.contains(&policy) {
            errors.push(FieldError::not_supported(format!("{at}.{key}"), &policy.into(), known));
        }
    }
    errors
}

pub(crate) fn container_errors(container: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = user_errors(container, at);
    let image = text_of(container, "image");
    // A template may still be mended by who makes pods of it.
    if image.trim() != image && ["spec.containers", "spec.ephemeralContainers"].iter().any(|list| at.starts_with(list))
    {
        let why = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid_text(format!("{at}.image"), image, why));
    }
    let mut names = BTreeSet::new();
    for (index, port) in items_of(container, "ports").iter().enumerate() {
        let (field, name) = (format!("{at}.ports[{index}].name"), text_of(port, "name"));
        if name.is_empty() {
            continue;
        }
        let problems = container_rules::port_name_problems(name);
        errors.extend(problems.iter().map(|why| FieldError::invalid_text(field.as_str(), name, why)));
        if problems.is_empty() && !names.insert(name) {
            errors.push(FieldError::duplicate(field, &name.into()));
        }
    }
    for (index, variable) in items_of(container, "env").iter().enumerate() {
        errors.extend(variable_errors(variable, &format!("{at}.env[{index}]")));
    }
    for (index, source) in items_of(container, "envFrom").iter().enumerate() {
        let prefix = text_of(source, "prefix");
        if prefix.chars().any(|c| c == '=' || !(' '..='~').contains(&c)) {
            let why =
                "a valid environment variable name must consist only of printable ASCII characters other than '='";
            errors.push(FieldError::invalid_text(format!("{at}.envFrom[{index}].prefix"), prefix, why));
        }
        if member(source, "configMapRef").is_none() && member(source, "secretRef").is_none() {
            let why = "must specify one of: `configMapRef` or `secretRef`";
            errors.push(FieldError::invalid_text(format!("{at}.envFrom"), "", why));
        }
        if member(source, "configMapRef").is_some() && member(source, "secretRef").is_some() {
            let why = "may not have more than one field specified at a time";
            errors.push(FieldError::invalid_text(format!("{at}.envFrom"), "", why));
        }
    }
    errors.extend(resource_errors(container.get("resources").unwrap_or(&Value::Null), &format!("{at}.resources")));
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        errors.extend(member(container, probe).into_iter().flat_map(|p| probe_errors(p, &format!("{at}.{probe}"))));
    }
    for hook in ["postStart", "preStop"] {
        let handler = container.get("lifecycle").and_then(|lifecycle| member(lifecycle, hook));
        let handlers = ["exec", "httpGet", "tcpSocket", "sleep"];
        let given: Vec<_> = handlers.iter().filter(|kind| handler.is_some_and(|h| member(h, kind).is_some())).collect();
        let why = "may not specify more than 1 handler type";
        let second =
            given.iter().skip(1).map(|kind| FieldError::forbidden(format!("{at}.lifecycle.{hook}.{kind}"), why));
        errors.extend(second);
        if handler.is_some_and(|handler| handlers.iter().all(|kind| member(handler, kind).is_none())) {
            errors.push(FieldError::required(format!("{at}.lifecycle.{hook}"), "must specify a handler type"));
        }
    }
    let policy = text_of(container, "terminationMessagePolicy");
    let known = ["File", "FallbackToLogsOnError"];
    if !policy.is_empty() && !known.contains(&policy) {
        errors.push(FieldError::not_supported(format!("{at}.terminationMessagePolicy"), &policy.into(), &known));
    }
    errors
}

fn variable_errors(variable: &Value, at: &str) -> Vec<FieldError> {
    const LABELS: [&str; 9] = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    let mut errors = Vec::new();
    let name = text_of(variable, "name");
    if name.chars().any(|c| c == '=' || !(' '..='~').contains(&c)) {
        let why = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        errors.push(FieldError::invalid_text(format!("{at}.name"), name, why));
    }
    let Some(from) = member(variable, "valueFrom") else { return errors };
    if from.as_object().is_some_and(serde_json::Map::is_empty) {
        let why =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.push(FieldError::invalid_text(format!("{at}.valueFrom"), "", why));
    }
    if let Some(path) = member(from, "fieldRef").map(|field| text_of(field, "fieldPath")) {
        let mapped = ["metadata.labels", "metadata.annotations"].iter().any(|map| path.starts_with(map));
        if !path.is_empty() && !mapped && !LABELS.contains(&path) {
            let why = format!("error converting fieldPath: field label not supported: {path}");
            errors.push(FieldError::invalid_text(format!("{at}.valueFrom.fieldRef.fieldPath"), path, &why));
        }
    }
    errors
}

/// Resources of nobody's name, and wanted ones that can not be shared out twice.
fn resource_errors(resources: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let amounts = |list: &str| resources.get(list).and_then(Value::as_object).into_iter().flatten();
    for list in ["limits", "requests"] {
        for (name, _) in amounts(list) {
            errors.extend(resource_name_errors(name, &format!("{at}.{list}[{name}]")));
        }
    }
    let unlimited = |name: &&String| resources.pointer("/limits").is_none_or(|limits| limits.get(*name).is_none());
    let names = amounts("requests").map(|(name, _)| name);
    for _ in names.filter(|name| !limits::may_overcommit(name)).filter(unlimited) {
        let why = "Limit must be set for non overcommitable resources";
        errors.push(FieldError::required(format!("{at}.limits"), why));
    }
    errors
}

fn probe_errors(probe: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let handlers: Vec<&str> =
        ["exec", "httpGet", "tcpSocket", "grpc"].into_iter().filter(|kind| member(probe, kind).is_some()).collect();
    for second in handlers.iter().skip(1) {
        errors.push(FieldError::forbidden(format!("{at}.{second}"), "may not specify more than 1 handler type"));
    }
    if let Some(first) = handlers.first()
        && let Some(port) = probe.get(first).and_then(|handler| handler.get("port")).and_then(Value::as_i64)
        && !(1..=65535).contains(&port)
    {
        errors.push(FieldError::invalid(format!("{at}.{first}.port"), &port.into(), PORT_RANGE));
    }
    let numbers = ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];
    for key in numbers {
        if let Some(number) = probe.get(key).and_then(Value::as_i64).filter(|n| *n < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("{at}.{key}"), &number.into(), why));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|e| e.field.as_str()).collect()
    }

    #[test]
    fn names_in_a_spec_are_names() {
        let spec = json!({"nodeName": "Bad_", "hostname": "a.b", "subdomain": "ok"});
        assert_eq!(fields(&spec_errors(&spec, "spec")), ["spec.nodeName", "spec.hostname"]);
    }

    #[test]
    fn a_gate_is_named_once() {
        let spec = json!({"schedulingGates": [{"name": "g"}, {"name": "g"}]});
        assert_eq!(fields(&spec_errors(&spec, "s")), ["s.schedulingGates[1]"]);
    }

    #[test]
    fn what_can_not_be_shared_has_a_limit() {
        let wanted = |resources: Value| resource_errors(&resources, "r").len();
        assert_eq!(wanted(json!({"requests": {"a.b/gpu": "1"}, "limits": {"a.b/gpu": "1"}})), 0);
        assert_eq!(wanted(json!({"requests": {"a.b/gpu": "1"}})), 1);
        assert_eq!(wanted(json!({"requests": {"foo": "1"}})), 2);
        assert_eq!(wanted(json!({"requests": {"x.kubernetes.io/a": "1"}})), 0);
        assert_eq!(wanted(json!({"requests": {"hugepages-2Mi": "2Mi"}})), 1);
        assert_eq!(wanted(json!({"limits": {"requests.a.b/gpu": "1"}})), 1);
    }

    #[test]
    fn a_variable_comes_from_a_field_that_pods_have() {
        let path = |path: &str| {
            let variable = json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}});
            variable_errors(&variable, "e").len()
        };
        assert_eq!((path("metadata.name"), path("metadata.labels['a']"), path("spec.foo")), (0, 0, 1));
        assert_eq!(variable_errors(&json!({"name": "a=b"}), "e").len(), 1);
    }

    #[test]
    fn a_probe_asks_in_one_way() {
        let probe = json!({"httpGet": {"port": 80}, "tcpSocket": {"port": 80}, "periodSeconds": -1});
        assert_eq!(fields(&probe_errors(&probe, "p")), ["p.tcpSocket", "p.periodSeconds"]);
    }
}
