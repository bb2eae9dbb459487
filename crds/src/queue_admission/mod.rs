//! The admission rules of Volcano's own webhooks for `scheduling.volcano.sh/v1beta1` Queue: defaults on CREATE, checks
//! on CREATE, UPDATE and DELETE, as plain functions of JSON and of the existing queues; and the stricter checks of our
//! webhook on the host ([`list_host_creation_problems`], [`list_host_update_problems`]).
//!
//! Rule: Volcano `pkg/webhooks/admission/queues/{mutate/mutate_queue,validate/validate_queue}.go` with its default
//! flags (depth at most 5, the root's resources protected, pods not looked at on DELETE). Amounts are compared exactly
//! where Volcano compares floats. Beyond the queue's own fields Volcano stops at the first refusal, and so does this.

mod amounts;
mod host;
mod tree;

use serde_json::{Value, json};

use crate::{
    job_admission::Refusal,
    names::volcano::{DEFAULT_QUEUE, ROOT_QUEUE},
    object::{annotation_of, name_of, read_text_at},
};
use amounts::{Amounts, check_amount, read_amounts};
pub use host::{list_host_creation_problems, list_host_update_problems, list_unknown_annotations};

/// Annotation: the queue's path for hdrf, `root/a/b`.
pub const HIERARCHY: &str = "volcano.sh/hierarchy";
/// Annotation: the weights along that path, `1/2/8`.
pub const HIERARCHY_WEIGHTS: &str = "volcano.sh/hierarchy-weights";
/// Queues above a queue, itself included, at most.
pub const MOST_LEVELS: usize = 5;

/// Fills in what Volcano fills in when a queue is created; changes nothing when done twice.
pub fn fill_queue_defaults(queue: &mut Value) {
    let (path, weights) =
        (hierarchy_of(queue, HIERARCHY).to_owned(), hierarchy_of(queue, HIERARCHY_WEIGHTS).to_owned());
    if !path.is_empty() && !weights.is_empty() && !path.starts_with(ROOT_QUEUE) {
        queue["metadata"]["annotations"][HIERARCHY] = format!("root/{path}").into();
        queue["metadata"]["annotations"][HIERARCHY_WEIGHTS] = format!("1/{weights}").into();
    }
    if !queue.get("spec").is_some_and(Value::is_object) {
        queue["spec"] = json!({});
    }
    if queue["spec"].get("reclaimable").is_none_or(Value::is_null) {
        queue["spec"]["reclaimable"] = true.into();
    }
    if queue["spec"].get("weight").is_none_or(|weight| weight.is_null() || *weight == 0) {
        queue["spec"]["weight"] = 1.into();
    }
}

/// What is wrong with a new queue beside those `there` are; empty if it may be created.
#[must_use]
pub fn list_volcano_creation_refusals(queue: &Value, there: &[&Value]) -> Vec<Refusal> {
    let mut refusals = own_refusals(queue, there);
    if refusals.is_empty() {
        refusals.extend(tree::check_parent(queue, there));
    }
    if refusals.is_empty() && name_of(queue) != ROOT_QUEUE {
        refusals.extend(tree::check_resources_in_tree(queue, there));
    }
    refusals
}

/// What is wrong with changing `old` into `new`; empty if it may be done.
#[must_use]
pub fn list_volcano_update_refusals(old: &Value, new: &Value, there: &[&Value]) -> Vec<Refusal> {
    let mut refusals = own_refusals(new, there);
    let moved = parent_of(old) != parent_of(new);
    if refusals.is_empty() && moved {
        refusals.extend(tree::check_parent(new, there));
    }
    let resized = ["capability", "deserved", "guarantee/resource"]
        .iter()
        .any(|kind| read_amounts(old, kind).ok() != read_amounts(new, kind).ok());
    if refusals.is_empty() && resized && name_of(new) == ROOT_QUEUE {
        refusals.push(Refusal::new(
            "spec",
            "root queue's resource attributes (capability, deserved, guarantee) cannot be modified",
            "capability, deserved and guarantee of queue \"root\" may not change",
        ));
    }
    if refusals.is_empty() && name_of(new) != ROOT_QUEUE && (moved || resized) {
        refusals.extend(tree::check_resources_in_tree(new, there));
    }
    refusals
}

/// Why the queue of this name may not be deleted; empty if it may.
#[must_use]
pub fn list_deletion_refusals(name: &str, there: &[&Value]) -> Vec<Refusal> {
    if matches!(name, DEFAULT_QUEUE | ROOT_QUEUE) {
        return vec![Refusal::new(
            "metadata.name",
            format!("`{name}` queue can not be deleted"),
            format!("queue {name:?} is Volcano's own and may not be deleted"),
        )];
    }
    let children: Vec<&str> =
        there.iter().filter(|queue| parent_of(queue) == name).map(|queue| self::name_of(queue)).collect();
    if children.is_empty() {
        return Vec::new();
    }
    let (count, list) = (children.len(), children.join(", "));
    vec![Refusal::new(
        "metadata.name",
        format!("queue {name} can not be deleted because it has {count} child queues: {list}"),
        format!("queue {name:?} is the parent of {list}; delete those first"),
    )]
}

/// Volcano's one text for several refusals, as Kubernetes puts errors together.
#[must_use]
pub fn join_messages(refusals: &[Refusal]) -> String {
    match refusals {
        [one] => one.volcano.clone(),
        all => format!("[{}]", all.iter().map(|one| one.volcano.as_str()).collect::<Vec<_>>().join(", ")),
    }
}

fn own_refusals(queue: &Value, there: &[&Value]) -> Vec<Refusal> {
    let mut refusals = check_amounts(queue);
    refusals.extend(state_refusal(queue));
    refusals.extend(check_hierarchy(queue, there));
    refusals
}

/// guarantee <= deserved <= capability, and nothing negative or broken.
fn check_amounts(queue: &Value) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut read = |kind: &str| {
        let found = read_amounts(queue, kind).unwrap_or_else(|refusal| {
            refusals.push(*refusal);
            Amounts::new()
        });
        let path = kind.replace('/', ".");
        refusals.extend(found.iter().filter_map(|(resource, amount)| check_amount(&path, resource, *amount)));
        found
    };
    let (capability, deserved, guarantee) = (read("capability"), read("deserved"), read("guarantee/resource"));
    for (resource, least) in &guarantee {
        let field = format!("spec.deserved.{resource}");
        match deserved.get(resource) {
            None => refusals.push(Refusal::new(
                &field,
                format!(
                    "requestBody.{field}: Invalid value: \"<nil>\": deserved[{resource}] must be >= \
                     guarantee[{resource}]={least}"
                ),
                format!("a guarantee of {least} {resource} needs a deserved of at least that"),
            )),
            Some(most) if most < least => refusals.push(Refusal::new(
                &field,
                format!(
                    "requestBody.{field}: Invalid value: \"{most}\": deserved[{resource}]={most} must be >= \
                     guarantee[{resource}]={least}"
                ),
                format!("{most} {resource} is less than the guarantee of {least}"),
            )),
            Some(_) => {}
        }
    }
    for (resource, amount) in &deserved {
        let Some(limit) = capability.get(resource).filter(|limit| amount > *limit) else { continue };
        let field = format!("spec.deserved.{resource}");
        refusals.push(Refusal::new(
            &field,
            format!(
                "requestBody.{field}: Invalid value: \"{amount}\": deserved[{resource}]={amount} must be <= \
                 capability[{resource}]={limit}"
            ),
            format!("{amount} {resource} is more than the capability of {limit}"),
        ));
    }
    refusals
}

/// Only the queue controller closes gradually: nobody submits `Closing` or `Unknown`.
fn state_refusal(queue: &Value) -> Option<Refusal> {
    let state = queue.pointer("/status/state").and_then(Value::as_str).unwrap_or("");
    (!["", "Open", "Closed"].contains(&state)).then(|| {
        Refusal::new(
            "status.state",
            format!("requestBody.spec.state: Invalid value: {state:?}: queue state must be in [Open Closed]"),
            format!("{state:?} is neither Open nor Closed"),
        )
    })
}

/// The annotations of hdrf: as many weights as levels, positive, and no queue's path may lead through another queue.
fn check_hierarchy(queue: &Value, there: &[&Value]) -> Option<Refusal> {
    let (path, weights) = (hierarchy_of(queue, HIERARCHY), hierarchy_of(queue, HIERARCHY_WEIGHTS));
    if path.is_empty() && weights.is_empty() {
        return None;
    }
    let refusal = |value: &str, volcano: String, why: String| {
        let field = "metadata.annotations";
        Some(Refusal::new(field, format!("requestBody.{field}: Invalid value: {value:?}: {volcano}"), why))
    };
    if path.split('/').count() != weights.split('/').count() {
        return refusal(
            path,
            format!("{HIERARCHY} must have the same length with {HIERARCHY_WEIGHTS}"),
            format!("{HIERARCHY} {path:?} and {HIERARCHY_WEIGHTS} {weights:?} have different numbers of levels"),
        );
    }
    for weight in weights.split('/') {
        let Ok(number) = weight.parse::<f64>() else {
            let cause = format!("strconv.ParseFloat: parsing {weight:?}: invalid syntax");
            return refusal(
                weights,
                format!("{weight} in the {weights} is invalid number: {cause}"),
                format!("weight {weight:?} of {HIERARCHY_WEIGHTS} is not a number"),
            );
        };
        if number <= 0.0 {
            return refusal(
                weights,
                format!("{weight} in the {weights} must be larger than 0"),
                format!("weight {weight} of {HIERARCHY_WEIGHTS} is not above 0"),
            );
        }
    }
    let inside = format!("{path}/");
    let below = there
        .iter()
        .find(|other| name_of(other) != name_of(queue) && hierarchy_of(other, HIERARCHY).starts_with(&inside))?;
    let (below_path, below_name) = (hierarchy_of(below, HIERARCHY), name_of(below));
    refusal(
        path,
        format!("{path} is not allowed to be in the sub path of {below_path} of queue {below_name}"),
        format!("{HIERARCHY} {path:?} is on the way to {below_path:?} of queue {below_name}"),
    )
}

fn parent_of(queue: &Value) -> &str {
    read_text_at(queue, "/spec/parent")
}

fn hierarchy_of<'a>(queue: &'a Value, annotation: &str) -> &'a str {
    annotation_of(queue, annotation).unwrap_or_default()
}

#[cfg(test)]
mod tests;
