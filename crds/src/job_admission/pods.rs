//! Checks names of jobs, tasks and pods, and pod templates.
//!
//! Rule: the part of Kubernetes' pod validation that batch jobs violate in practice, with Kubernetes' texts:
//! containers, images, quantities, requests above limits, and the restart policy. A task with a `topologyPolicy` must
//! also request whole cores in every container, as Volcano's `validateTaskTopoPolicy` demands.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use caldera_core::quantity::Quantity;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{MOST_REFUSALS, Refusal, read_text};
use crate::dns::is_dns_label;

const QUANTITY_RULE: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                          must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex \
                          used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
/// Kubernetes' rule for the names of most objects.
pub(super) const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
     and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const MAX_NAME: usize = crate::dns::LONGEST_LABEL;

/// A task's name is a DNS label.
pub(super) fn check_task_name(name: &str, field: impl FnOnce() -> String) -> Option<Refusal> {
    let rule = if name.len() > MAX_NAME { "must be no more than 63 characters" } else { LABEL_RULE };
    (!is_dns_label(name)).then(|| Refusal::new(field(), format!("[{rule}]"), format!("{name:?} is not a name: {rule}")))
}

/// The name of a task's pod must be a label's value, too. Volcano tries the task's index as the pod's index.
pub(super) fn check_pod_name(job: &str, task: &str, index: usize) -> Option<Refusal> {
    let length = job.len() + task.len() + 2 + index.checked_ilog10().map_or(1, |tens| tens as usize + 1);
    (length > MAX_NAME).then(|| {
        let pod = format!("{job}-{task}-{index}");
        Refusal::new(
            "metadata.name",
            format!("create pod with name {pod} validate failed [name part must be no more than 63 characters]"),
            format!("pods would be named like {pod:?}: {} characters, at most {MAX_NAME} are allowed", pod.len()),
        )
    })
}

/// A job's name is a label's value, too.
pub(super) fn check_job_name(job: &str) -> Option<Refusal> {
    (job.len() > MAX_NAME).then(|| {
        Refusal::new(
            "metadata.name",
            format!("create job with name {job} validate failed [name part must be no more than 63 characters]"),
            format!("{} characters, at most {MAX_NAME} are allowed", job.len()),
        )
    })
}

/// What is wrong with a task's pod template.
pub(super) fn check_pod_template(task: &Map<String, Value>, index: usize) -> Vec<Refusal> {
    let empty = Map::new();
    let pod = task.get("template").and_then(|t| t.get("spec")).and_then(Value::as_object).unwrap_or(&empty);
    let mut errors = Errors { index, refusals: Vec::new() };
    if list_objects(pod, "containers").next().is_none() {
        errors.add_error("template.spec.containers", "Required value".into());
    }
    let mut names = BTreeSet::new();
    for kind in ["containers", "initContainers"] {
        for (i, container) in list_objects(pod, kind).enumerate() {
            validate_container(container, Place { kind, at: i }, &mut names, &mut errors);
        }
    }
    let restart = read_text(pod, "restartPolicy");
    if !["", "Always", "OnFailure", "Never"].contains(&restart) {
        let supported = "supported values: \"Always\", \"Never\", \"OnFailure\"";
        errors.add_error("template.spec.restartPolicy", format!("Unsupported value: \"{restart}\": {supported}"));
    }
    if errors.refusals.is_empty() {
        errors.refusals.extend(check_whole_cpus(task, pod, index));
    }
    errors.refusals
}

/// A container of a pod: a path that is put together where there is an error.
#[derive(Clone, Copy)]
struct Place<'a> {
    kind: &'a str,
    at: usize,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "template.spec.{}[{}]", self.kind, self.at)
    }
}

struct Errors {
    index: usize,
    refusals: Vec<Refusal>,
}

impl Errors {
    fn add_error(&mut self, path: &str, error: String) {
        if self.refusals.len() >= MOST_REFUSALS {
            return;
        }
        let index = self.index;
        let volcano = format!("spec.task[{index}].{path}: {error}. ");
        self.refusals.push(Refusal::new(format!("spec.tasks[{index}].{path}"), volcano, error));
    }
}

fn validate_container<'a>(
    container: &'a Map<String, Value>,
    path: Place<'_>,
    names: &mut BTreeSet<&'a str>,
    errors: &mut Errors,
) {
    let name = read_text(container, "name");
    if name.is_empty() {
        errors.add_error(&format!("{path}.name"), "Required value".into());
    } else if !is_dns_label(name) {
        errors.add_error(&format!("{path}.name"), format!("Invalid value: \"{name}\": {LABEL_RULE}"));
    } else if !names.insert(name) {
        errors.add_error(&format!("{path}.name"), format!("Duplicate value: \"{name}\""));
    }
    if read_text(container, "image").is_empty() {
        errors.add_error(&format!("{path}.image"), "Required value".into());
    }
    let empty = Map::new();
    let resources = container.get("resources").and_then(Value::as_object).unwrap_or(&empty);
    let limits = read_amounts(resources, "limits", path, errors);
    let requests = read_amounts(resources, "requests", path, errors);
    for (name, request) in &requests {
        match limits.get(name) {
            Some(limit) if !may_overcommit(name) && request != limit => errors.add_error(
                &format!("{path}.resources.requests"),
                format!("Invalid value: \"{request}\": must be equal to {name} limit of {limit}"),
            ),
            Some(limit) if request > limit => errors.add_error(
                &format!("{path}.resources.requests"),
                format!("Invalid value: \"{request}\": must be less than or equal to {name} limit of {limit}"),
            ),
            None if !may_overcommit(name) => errors.add_error(
                &format!("{path}.resources.limits"),
                "Required value: Limit must be set for non overcommitable resources".into(),
            ),
            _ => {}
        }
    }
}

/// The readable amounts of `requests` or `limits`; the others become errors.
fn read_amounts<'a>(
    resources: &'a Map<String, Value>,
    which: &str,
    path: Place<'_>,
    errors: &mut Errors,
) -> BTreeMap<&'a str, Quantity> {
    let mut amounts = BTreeMap::new();
    for (name, value) in resources.get(which).and_then(Value::as_object).into_iter().flatten() {
        let field = || format!("{path}.resources.{which}[{name}]");
        let shown = || value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match Quantity::deserialize(value) {
            Err(_) => errors.add_error(&field(), format!("Invalid value: \"{}\": {QUANTITY_RULE}", shown())),
            Ok(amount) if amount.is_negative() => {
                let error = format!("Invalid value: \"{}\": must be greater than or equal to 0", shown());
                errors.add_error(&field(), error);
            }
            Ok(amount) if is_extended(name) && amount != Quantity::from_nano(amount.units_ceil() * 1_000_000_000) => {
                errors.add_error(&field(), format!("Invalid value: \"{}\": must be an integer", shown()));
            }
            Ok(amount) => {
                amounts.insert(name.as_str(), amount);
            }
        }
    }
    amounts
}

/// With a `topologyPolicy`, every container asks for a whole number of cores, at least one (`validateTaskTopoPolicy`).
fn check_whole_cpus(task: &Map<String, Value>, pod: &Map<String, Value>, index: usize) -> Option<Refusal> {
    if ["", "none"].contains(&read_text(task, "topologyPolicy")) {
        return None;
    }
    let containers = list_objects(pod, "containers").chain(list_objects(pod, "initContainers"));
    containers.enumerate().find_map(|(i, container)| {
        let resources = container.get("resources");
        let requests = resources.and_then(|r| r.get("requests")).and_then(Value::as_object).filter(|r| !r.is_empty());
        let from = requests.or_else(|| resources.and_then(|r| r.get("limits")).and_then(Value::as_object));
        let cpu = from.and_then(|from| from.get("cpu")).and_then(|v| Quantity::deserialize(v).ok());
        let milli = cpu.unwrap_or(Quantity::ZERO).milli_ceil();
        (milli == 0 || milli % 1000 != 0).then(|| {
            Refusal::new(
                format!("spec.tasks[{index}].topologyPolicy"),
                format!("the cpu request isn't an integer in spec.task[{index}] container[{i}]."),
                format!("needs whole cores in every container; container {i} asks for {milli}m"),
            )
        })
    })
}

fn list_objects<'a>(pod: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = &'a Map<String, Value>> {
    pod.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

/// Kubernetes overcommits its own resources except huge pages.
fn may_overcommit(name: &str) -> bool {
    !is_extended(name) && !name.starts_with("hugepages-")
}

fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| !domain.ends_with("kubernetes.io"))
}
