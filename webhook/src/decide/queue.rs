//! Admission of Volcano Queues on the host: Volcano's defaults and rules, with the parent always spelled out.
//!
//! Rules (Volcano `pkg/webhooks/admission/queues/{mutate,validate}`): a change is refused only for what it makes worse.
//! A member's queue controller writes `parent: root` into a queue without a parent and Karmada takes it out again, for
//! ever; so the parent is set before the queue leaves the host.

use caldera_crds::{
    names::volcano::ROOT_QUEUE,
    queue_admission::{create_problems, default_queue, delete_refusals, update_problems},
};
use serde_json::Value;

use super::{patch::patch_between, verdict::Verdict};
use crate::observe::{cache::Cache, request::ReviewRequest};

/// Fills in defaults.
#[must_use]
pub fn default_queue_review(request: &ReviewRequest<'_, Value>) -> Verdict {
    let Some(queue) = request.object.as_ref().filter(|queue| queue.is_object()) else { return Verdict::UNCHANGED };
    let mut defaulted = queue.clone();
    if request.is_create() {
        default_queue(&mut defaulted);
    }
    let text = |pointer: &str| queue.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if text("/spec/parent").is_empty()
        && text("/metadata/name") != ROOT_QUEUE
        && queue.get("spec").is_some_and(Value::is_object)
    {
        defaulted["spec"]["parent"] = ROOT_QUEUE.into();
    }
    Verdict::allow_with(patch_between(queue, &defaulted))
}

/// Refuses what can not be a queue.
#[must_use]
pub fn validate_queue(request: &ReviewRequest<'_, Value>, cache: &Cache) -> Verdict {
    let mut there: Vec<&Value> = cache.queues.values().collect();
    there.sort_unstable_by_key(|queue| queue.pointer("/metadata/name").and_then(Value::as_str));
    let problems: Vec<String> = match (request.operation.as_ref(), &request.object, &request.old_object) {
        ("DELETE", _, old) => {
            let name = request.name.as_deref().or_else(|| old.as_ref()?.pointer("/metadata/name")?.as_str());
            // On the host an object of that name counts for nothing.
            let name = name.filter(|name| *name != ROOT_QUEUE);
            let refusals = name.map(|name| delete_refusals(name, &there)).unwrap_or_default();
            refusals.iter().map(caldera_crds::job_admission::Refusal::sentence).collect()
        }
        (_, Some(queue), _) if queue.pointer("/metadata/deletionTimestamp").is_some() => Vec::new(),
        ("CREATE", Some(queue), _) => create_problems(queue, &there),
        (_, Some(queue), Some(old)) => update_problems(old, queue, &there),
        _ => Vec::new(),
    };
    if problems.is_empty() { Verdict::UNCHANGED } else { Verdict::deny_invalid(problems.join("; ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::patch::tests::applied;

    fn request(operation: &'static str, object: Value) -> ReviewRequest<'static, Value> {
        ReviewRequest {
            uid: "u".into(),
            operation: operation.into(),
            namespace: None,
            name: None,
            dry_run: None,
            user_info: None,
            object: Some(object),
            old_object: None,
        }
    }

    #[test]
    fn a2_35_a_queues_parent_is_spelled_out_before_it_leaves_the_host() {
        let queue = json!({"metadata": {"name": "q"}, "spec": {}});
        let Verdict::Allow { patch, .. } = default_queue_review(&request("CREATE", queue.clone())) else { panic!() };
        let defaulted = applied(&queue, &patch);
        assert_eq!(defaulted["spec"]["parent"], "root");
        assert_eq!(defaulted["spec"]["weight"], 1);
        assert_eq!(default_queue_review(&request("UPDATE", defaulted)), Verdict::UNCHANGED);
        let root = json!({"metadata": {"name": "root"}, "spec": {"weight": 1, "reclaimable": false}});
        assert_eq!(default_queue_review(&request("UPDATE", root)), Verdict::UNCHANGED);
    }

    #[test]
    fn a_queue_that_contradicts_itself_is_refused_with_the_resource() {
        let queue = json!({
            "metadata": {"name": "q"},
            "spec": {"capability": {"cpu": "1"}, "deserved": {"cpu": "2"}, "parent": "root", "weight": 1},
        });
        let Verdict::Deny(denial) = validate_queue(&request("CREATE", queue), &Cache::default()) else { panic!() };
        assert_eq!(denial.message, "spec.deserved.cpu: 2 is more than spec.capability.cpu, which is 1");
    }

    #[test]
    fn a_queue_named_root_is_not_created_and_can_be_deleted() {
        let root = json!({"metadata": {"name": "root"}, "spec": {"capability": {"cpu": "1"}}});
        let Verdict::Deny(denial) = validate_queue(&request("CREATE", root.clone()), &Cache::default()) else {
            panic!()
        };
        assert!(denial.message.contains("is the whole fleet"), "{}", denial.message);
        let mut cache = Cache::default();
        let child = json!({"metadata": {"name": "q"}, "spec": {"parent": "root"}});
        cache.queues.insert("q".to_owned(), child);
        cache.queues.insert("root".to_owned(), root.clone());
        let delete = |name: &str| ReviewRequest {
            name: Some(name.to_owned().into()),
            object: None,
            old_object: Some(root.clone()),
            ..request("DELETE", root.clone())
        };
        assert_eq!(validate_queue(&delete("root"), &cache), Verdict::UNCHANGED);
        assert!(matches!(validate_queue(&delete("default"), &cache), Verdict::Deny(_)));
    }

    #[test]
    fn an_old_queue_that_breaks_a_rule_stays_editable() {
        let old = json!({
            "metadata": {"name": "q"},
            "spec": {"capability": {"cpu": "1"}, "deserved": {"cpu": "2"}, "parent": "gone", "weight": 1},
        });
        let change = |pointer: &str, value: Value| {
            let mut new = old.clone();
            *new.pointer_mut(pointer).unwrap() = value;
            validate_queue(
                &ReviewRequest { old_object: Some(old.clone()), ..request("UPDATE", new) },
                &Cache::default(),
            )
        };
        assert_eq!(change("/spec/weight", json!(7)), Verdict::UNCHANGED);
        let Verdict::Deny(denial) = change("/spec/deserved/cpu", json!("3")) else { panic!() };
        assert_eq!(denial.message, "spec.deserved.cpu: 3 is more than spec.capability.cpu, which is 1");
    }
}
