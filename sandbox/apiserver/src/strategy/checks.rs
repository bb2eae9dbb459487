//! Which checks a kind's objects have to pass, and what its writers are warned of (`Validate`, `WarningsOnCreate` of a
//! strategy).

use serde_json::Value;

use super::is_kind;
use crate::meta;
use crate::resource::Resource;
use crate::schema::FieldError;
use crate::write::Part;

/// What a client is warned of when an object is written (`WarningsOnCreate`, `WarningsOnUpdate`).
pub fn kind_warnings(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings: Vec<String> = name_warning(resource, object, old).into_iter().collect();
    warnings.extend(pod_warnings(resource, object, old));
    warnings.extend(own_warnings(resource, object, old));
    warnings
}

/// Of the name of a new object that becomes the name of a host, which should be a DNS label.
fn name_warning(resource: &Resource, object: &Value, old: Option<&Value>) -> Option<String> {
    let host = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => "the Pod's hostname",
        ("", "replicationcontrollers") | ("batch", "jobs" | "cronjobs") => "Pod names and hostnames",
        ("apps", "deployments" | "replicasets") => "Pod names and hostnames",
        _ => return None,
    };
    let problems = meta::label_problems(meta::object_name(object));
    let wrong = old.is_none() && !problems.is_empty();
    let why = "which can result in surprising behavior; a DNS label is recommended";
    wrong.then(|| format!("metadata.name: this is used in {host}, {why}: [{}]", problems.join(" ")))
}

/// Of a new pod, and of a template whenever what it belongs to changes.
fn pod_warnings(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<String> {
    let at = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => "spec",
        ("", "podtemplates") => "template.spec",
        ("batch", "cronjobs") => "spec.jobTemplate.spec.template.spec",
        ("", "replicationcontrollers") | ("batch", "jobs") => "spec.template.spec",
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") => "spec.template.spec",
        _ => return Vec::new(),
    };
    let of = |object: &Value| object.get("spec").or_else(|| object.get("template")).cloned();
    if old.is_some_and(|old| at == "spec" || of(old) == of(object)) {
        return Vec::new();
    }
    let spec = object.pointer(&format!("/{}", at.replace('.', "/"))).unwrap_or(&Value::Null);
    let mut warnings = crate::pod_warnings::spec_warnings(spec, at, at != "spec");
    let place = at.strip_suffix("spec").unwrap_or_default();
    let holder = object.pointer(&format!("/{}", place.trim_end_matches('.').replace('.', "/")));
    let holder = if place.is_empty() { object } else { holder.unwrap_or(&Value::Null) };
    warnings.extend(crate::pod_annotations::annotation_warnings(holder, place, at != "spec"));
    warnings
}

fn own_warnings(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<String> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "services") => crate::service::service_warnings(object),
        ("networking.k8s.io", "ingresses") if old.is_none() => {
            let key = crate::default_classes::OLD_INGRESS_CLASS;
            let given = object.get("metadata").and_then(|m| m.get("annotations")).and_then(|a| a.get(key));
            let text = format!("annotation \"{key}\" is deprecated, please use 'spec.ingressClassName' instead");
            given.map(|_| text).into_iter().collect()
        }
        ("apps", "statefulsets") => {
            let kept = object.pointer("/spec/revisionHistoryLimit").and_then(Value::as_i64);
            let text = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended";
            kept.filter(|n| *n < 0).map(|_| text.to_owned()).into_iter().collect()
        }
        ("discovery.k8s.io", "endpointslices") => crate::endpoint_rules::slice_warnings(object),
        ("storage.k8s.io", "csidrivers") => crate::driver_rules::driver_warning(object).into_iter().collect(),
        ("", "nodes") => {
            let text = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
            let given = object.pointer("/spec/externalID").and_then(Value::as_str).is_some_and(|id| !id.is_empty());
            given.then(|| text.to_owned()).into_iter().collect()
        }
        ("", "secrets") => crate::data::secret_warning(object).into_iter().collect(),
        ("apiextensions.k8s.io", _) => crate::schema::format_warnings(object, old),
        _ => Vec::new(),
    }
}

/// Checks of built-in kinds that their schema cannot say.
pub fn validate_strategy(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("coordination.k8s.io", "leases") => lease_errors(object),
        ("", "events") => crate::event::core_errors(object, old),
        ("events.k8s.io", "events") => crate::event::validate_event(object, old),
        ("", "services") => crate::service::validate_service(object, old),
        ("apps", "controllerrevisions") => revision_errors(object, old),
        ("", "endpoints") => crate::endpoint_rules::subset_errors(object),
        ("discovery.k8s.io", "endpointslices") => crate::endpoint_rules::slice_errors(object, old),
        ("", "limitranges") => crate::range_rules::range_errors(object),
        ("", "persistentvolumes") => {
            let mut errors = crate::range_rules::volume_errors(object);
            errors.extend(old.into_iter().flat_map(|old| crate::range_rules::volume_changes(object, old)));
            errors
        }
        ("node.k8s.io", "runtimeclasses") => {
            let mut errors = handler_errors(object, old);
            errors.extend(crate::runtime_class::class_errors(object));
            errors
        }
        ("networking.k8s.io", "ingressclasses") => {
            let mut errors = controller_errors(object, old);
            errors.extend(crate::kind_rules::parameter_errors(object));
            errors
        }
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => {
            crate::auth::role_errors(object, resource.namespaced)
        }
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            crate::auth::binding_errors(object, old, resource.namespaced)
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") => crate::schema::validate_crd(object, old),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations") => {
            crate::admission::validate_configuration(object, true)
        }
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations") => {
            crate::admission::validate_configuration(object, false)
        }
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => {
            crate::admission::validate_mutating_policy(object, old)
        }
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings") => {
            crate::admission::validate_mutating_binding(object)
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
            crate::admission::validate_policy(object, old)
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => {
            crate::admission::validate_binding(object)
        }
        ("", "configmaps" | "secrets") => crate::data::data_errors(resource, object, old),
        ("", "pods") => crate::podspec::validate_pod(object, old),
        ("scheduling.k8s.io", "priorityclasses") => crate::priority::validate_class(object, old),
        ("batch", "jobs") => {
            let mut errors = crate::workload_spec::validate_workload(resource, object, old);
            errors.extend(completions_error(object, old));
            errors.extend(crate::workload_spec::job_selector_errors(object));
            errors
        }
        ("batch", "cronjobs") => crate::small_kinds::schedule_errors(object, old),
        ("policy", "poddisruptionbudgets") => {
            let mut errors = crate::small_kinds::budget_errors(object);
            errors.extend(crate::kind_rules::budget_details(object));
            errors
        }
        ("", "resourcequotas") => {
            let mut errors = crate::small_kinds::quota_errors(object);
            errors.extend(crate::scope_rules::scope_errors(object, old));
            errors
        }
        ("", "persistentvolumeclaims") if old.is_some() => {
            old.into_iter().flat_map(|old| crate::storage_rules::claim_changes(object, old)).collect()
        }
        ("", "persistentvolumeclaims") => {
            let mut errors = crate::small_kinds::claim_errors(object);
            errors.extend(crate::storage_rules::claim_details(object));
            errors
        }
        ("", "nodes") => crate::node_rules::node_errors(object, old),
        ("", "podtemplates") => {
            let template = object.get("template").unwrap_or(&Value::Null);
            let mut errors = crate::workload_rules::template_errors(template, "template");
            let pod = template.get("spec").unwrap_or(&Value::Null);
            errors.extend(crate::podspec::validate_spec(pod, "template.spec"));
            errors
        }
        ("certificates.k8s.io", _) => crate::csr_rules::request_errors(object, old),
        ("storage.k8s.io", "csidrivers") => crate::driver_rules::driver_errors(object),
        ("networking.k8s.io", "ipaddresses" | "servicecidrs")
        | ("storage.k8s.io", "csinodes" | "csistoragecapacities" | "volumeattachments" | "volumeattributesclasses")
        | ("apiregistration.k8s.io" | "flowcontrol.apiserver.k8s.io", _) => {
            crate::cluster_rules::cluster_errors(resource, object, old)
        }
        ("storage.k8s.io", "storageclasses") => crate::storage_rules::storage_class_errors(object, old),
        ("networking.k8s.io", "networkpolicies") => crate::kind_rules::network_policy_errors(object),
        ("autoscaling", "horizontalpodautoscalers") => crate::small_kinds::autoscaler_errors(object),
        ("networking.k8s.io", "ingresses") => {
            let mut errors = crate::small_kinds::ingress_errors(object);
            errors.extend(crate::kind_rules::ingress_details(object, old.is_none()));
            errors
        }
        ("apps" | "batch", _) | ("", "replicationcontrollers") => {
            crate::workload_spec::validate_workload(resource, object, old)
        }
        _ => Vec::new(),
    }
}

/// `validateCompletions`: a Job's completions stay, unless it is indexed and they change with its parallelism.
fn completions_error(job: &Value, old: Option<&Value>) -> Option<FieldError> {
    let completions = |job: &Value| job.pointer("/spec/completions").cloned();
    let old = old?;
    if completions(job) == completions(old) {
        return None;
    }
    let elastic = job.pointer("/spec/completionMode").and_then(Value::as_str) == Some("Indexed")
        && completions(job).is_some()
        && completions(job) == job.pointer("/spec/parallelism").cloned();
    let value = completions(job).unwrap_or(Value::Null);
    (!elastic).then(|| FieldError::invalid("spec.completions", &value, "field is immutable"))
}

/// Checks that belong to a part.
pub fn validate_part(resource: &Resource, part: Part, object: &Value, old: &Value) -> Vec<FieldError> {
    if is_kind(resource, "certificates.k8s.io", "certificatesigningrequests") {
        return crate::csr_rules::update_errors(object, old, part);
    }
    if part == Part::Status && !resource.is_custom() {
        if is_kind(resource, "", "namespaces") {
            return phase_error(object).into_iter().collect();
        }
        if is_kind(resource, "", "pods") {
            return crate::pod_status::status_errors(object, old);
        }
        if is_kind(resource, "", "nodes") {
            return crate::node_rules::node_update_errors(object, old);
        }
        if is_kind(resource, "", "services") {
            return crate::service::balancer_errors(object);
        }
        let mut errors = crate::rollout::status_errors(&resource.plural, object);
        errors.extend(crate::status_rules::status_errors(resource, object));
        if is_kind(resource, "batch", "jobs") {
            errors.extend(crate::job_status::status_errors(object, old));
        }
        return errors;
    }
    if part == Part::Named("resize") && is_kind(resource, "", "pods") {
        return crate::pod::resize_errors(object, old);
    }
    if part == Part::Named("ephemeralcontainers") {
        return crate::pod::ephemeral_errors(object, old);
    }
    if part != Part::Named("finalize") || !is_kind(resource, "", "namespaces") {
        return Vec::new();
    }
    finalizer_errors(object, true)
}

/// What a new namespace waits for.
pub fn namespace_errors(object: &Value) -> Vec<FieldError> {
    finalizer_errors(object, false)
}

/// What a namespace waits for when it goes.
fn finalizer_errors(object: &Value, numbered: bool) -> Vec<FieldError> {
    let list = object.pointer("/spec/finalizers").and_then(Value::as_array);
    let mut errors = Vec::new();
    for (index, finalizer) in list.into_iter().flatten().enumerate() {
        let text = finalizer.as_str().unwrap_or_default();
        let field = if numbered { format!("spec.finalizers[{index}]") } else { "spec.finalizers".to_owned() };
        for problem in meta::qualified_name_problems(text) {
            errors.push(FieldError::invalid_text(field.as_str(), text, &problem));
        }
        if !meta::is_known_finalizer(text) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid_text(field, text, why));
        }
    }
    errors
}

/// `ValidateNamespaceStatusUpdate`: the phase follows the deletion.
fn phase_error(namespace: &Value) -> Option<FieldError> {
    let phase = namespace.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    let (wanted, why) = if meta::is_deleting(namespace) {
        ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
    } else {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    };
    (phase != wanted).then(|| FieldError::invalid_text("status.Phase", phase, why))
}

fn lease_errors(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let number = |member: &str| object.pointer(&format!("/spec/{member}")).and_then(Value::as_i64);
    if let Some(seconds) = number("leaseDurationSeconds").filter(|n| *n <= 0) {
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", &seconds.into(), "must be greater than 0"));
    }
    if let Some(transitions) = number("leaseTransitions").filter(|n| *n < 0) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.leaseTransitions", &transitions.into(), why));
    }
    errors
}

/// `ValidateRuntimeClass`: the handler is a label and stays.
fn handler_errors(class: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let handler = |class: &Value| class.get("handler").and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = handler(class);
    if name.is_empty() {
        return vec![FieldError::required("handler", "")];
    }
    let problems = meta::label_problems(&name);
    let mut errors: Vec<FieldError> =
        problems.iter().map(|why| FieldError::invalid_text("handler", &name, why)).collect();
    if old.is_some_and(|old| handler(old) != name) {
        errors.push(FieldError::invalid_text("handler", &name, "field is immutable"));
    }
    errors
}

const LONGEST_CONTROLLER: usize = 250;

/// `ValidateIngressClass`: the controller has a domain and stays.
fn controller_errors(class: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let controller =
        |class: &Value| class.pointer("/spec/controller").and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = controller(class);
    let field = "spec.controller";
    let mut errors = Vec::new();
    if name.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if name.len() > LONGEST_CONTROLLER {
        errors.push(FieldError::too_long(field, LONGEST_CONTROLLER));
    } else if name.split_once('/').is_none_or(|(domain, path)| domain.is_empty() || path.is_empty()) {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.push(FieldError::invalid_text(field, &name, why));
    }
    if old.is_some_and(|old| controller(old) != name) {
        errors.push(FieldError::invalid_text(field, &name, "field is immutable"));
    }
    errors
}

fn revision_errors(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(data) = object.get("data").filter(|data| old.is_some_and(|old| old.get("data") != Some(*data))) {
        errors.push(FieldError::invalid("data", data, "field is immutable"));
    }
    if object.get("data").is_none_or(Value::is_null) {
        errors.push(FieldError::required("data", "data is mandatory"));
    }
    if let Some(revision) = object.get("revision").and_then(Value::as_i64).filter(|r| *r < 0) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("revision", &revision.into(), why));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_namespace_waits_for_standard_finalizers_and_those_with_a_domain() {
        let told = |name: &str, numbered: bool| {
            let errors = finalizer_errors(&json!({"spec": {"finalizers": [name]}}), numbered);
            errors.into_iter().map(|e| e.field).collect::<Vec<_>>()
        };
        for known in ["kubernetes", "orphan", "foregroundDeletion", "a.io/b"] {
            assert!(told(known, false).is_empty(), "{known}");
        }
        assert_eq!(told("other", true), ["spec.finalizers[0]"]);
        assert_eq!(told("o ther", false), ["spec.finalizers"; 2]);
        assert_eq!(told("o ther", true), ["spec.finalizers[0]"; 2]);
    }
}
