//! What a queue, or one above it, says about each job: the largest that it takes, how long one may run, which card
//! models it may ask for, and that all of them are preemptable. Which priority classes it may name:
//! [`priority_classes`](super::priority_classes).
//!
//! Rule: as [`caldera_crds::largest_job`], [`caldera_crds::longest_run`] and [`caldera_core::card_quota`] say, at
//! submission of a Volcano Job. The controller asks again before it releases, for all kinds and after an edit. Queues
//! are read from the watch: one that is behind refuses what its admin allowed a moment ago, or passes what the
//! controller then refuses. A tenant's `volcano.sh/preemptable: "false"` where it counts for nothing is told, and not
//! refused: the same manifest may be submitted to several queues.

use caldera_core::{
    card_choice::choose_cards,
    card_quota::CardQuota,
    gang::{Gang, QueueName},
    reason::Reason,
    resources::Resources,
};
use caldera_crds::{
    largest_job::LargestJob,
    longest_run::LongestRun,
    names::{caldera::MAX_RUN_TIME, volcano::PREEMPTABLE},
    tenancy::{marks_all_jobs_preemptable, read_card_quota},
    workload::{annotations::max_run_time, queue_of, read_gang, read_preemptable},
};
use serde_json::Value;

use super::{
    verdict::{Denial, Verdict},
    waiting_limits::list_queue_path,
};
use crate::observe::{cache::Cache, request::ReviewRequest};

/// Refuses a new job that is larger than its queue takes; `None` where it is not.
#[must_use]
pub fn refuse_too_large(request: &ReviewRequest<'_, Value>, cache: &Cache) -> Option<Verdict> {
    let job = request.object.as_ref().filter(|_| request.is_create())?;
    let refusal = find_size_refusal(&queue_of(job), cache, || Some(read_gang(job).ok()?.sum_full_demand()))?;
    Some(deny(&format!("spec.queue: it {refusal}")))
}

/// Why what is `asked` is more than a queue, or one above it, takes of one job. Where none says how much, nobody asks.
pub(super) fn find_size_refusal(
    queue: &QueueName,
    cache: &Cache,
    asked: impl FnOnce() -> Option<Resources>,
) -> Option<Reason> {
    let limits = list_queue_path(queue.as_str(), cache).into_iter();
    let mut limits = limits.filter_map(|by| Some((by, LargestJob::of_queue(cache.queues.get(by)?)?))).peekable();
    limits.peek()?;
    let asked = asked()?;
    limits.find_map(|(by, largest)| largest.refuse(queue, &by.into(), &asked))
}

/// Refuses a new job that asks for cards of no model, or of one of which its queue has no quota; `None` otherwise.
#[must_use]
pub fn refuse_card_model(request: &ReviewRequest<'_, Value>, cache: &Cache) -> Option<Verdict> {
    let job = request.object.as_ref().filter(|_| request.is_create())?;
    let queue: QueueName = queue_of(job);
    let quotas = list_queue_path(queue.as_str(), cache).into_iter();
    let mut quotas = quotas.filter_map(|by| Some((by, read_card_quota(cache.queues.get(by)?)?))).peekable();
    quotas.peek()?;
    let gang = read_gang(job).ok()?;
    let quotas: Vec<(QueueName, CardQuota)> = quotas.map(|(by, quota)| (by.into(), quota)).collect();
    let refuse = |gang: &Gang| quotas.iter().find_map(|(by, quota)| quota.refuse(&queue, by, gang));
    let refusal = *choose_cards(&gang, refuse).err()?;
    Some(deny(&format!("spec.tasks: {refusal}")))
}

/// Refuses a new job that asks to run for longer than its queue allows; `None` where it does not.
#[must_use]
pub fn refuse_too_long(request: &ReviewRequest<'_, Value>, cache: &Cache) -> Option<Verdict> {
    let job = request.object.as_ref().filter(|_| request.is_create())?;
    let queue: QueueName = queue_of(job);
    let refuse = |by: &str| LongestRun::of_queue(cache.queues.get(by)?)?.refuse(&queue, &by.into(), max_run_time(job));
    let refusal = list_queue_path(queue.as_str(), cache).into_iter().find_map(refuse)?;
    Some(deny(&match refusal {
        Reason::ExceedsMaxRunTime { asked: Some(_), .. } => {
            format!("metadata.annotations[{MAX_RUN_TIME}]: it {refusal}")
        }
        refusal => format!("spec.queue: {refusal}"),
    }))
}

fn deny(message: &str) -> Verdict {
    Verdict::Deny(Denial { code: 403, reason: "Forbidden", message: message.to_owned() })
}

/// What is to be told about a new job that says it is not preemptable, where its queue says that all are.
#[must_use]
pub fn warn_of_eviction(job: &Value, cache: &Cache) -> Option<String> {
    let queue = queue_of(job);
    let is_said = |by: &&str| cache.queues.get(*by).is_some_and(marks_all_jobs_preemptable);
    let by = list_queue_path(queue.as_str(), cache).into_iter().find(is_said)?;
    (read_preemptable(job) == Some(false)).then(|| {
        format!("{PREEMPTABLE} false counts for nothing in queue {queue}: by queue {by} all of its jobs may be evicted")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cache(annotations: &Value) -> Cache {
        let mut cache = Cache::default();
        let queue = |name: &str, parent: &str, annotations: &Value| {
            let metadata = json!({"name": name, "annotations": annotations});
            json!({"metadata": metadata, "spec": {"parent": parent}})
        };
        cache.queues.insert("top".into(), queue("top", "root", annotations));
        cache.queues.insert("leaf".into(), queue("leaf", "top", &json!({})));
        cache
    }

    fn job(cpu: &str) -> Value {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
        let task = json!({"name": "t", "replicas": 2, "template": {"spec": {"containers": [container]}}});
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"name": "a", "namespace": "ns", "annotations": {"volcano.sh/preemptable": "false"}},
            "spec": {"queue": "leaf", "tasks": [task]},
        })
    }

    fn request(job: Value, operation: &str) -> ReviewRequest<'static, Value> {
        ReviewRequest {
            uid: "u".into(),
            operation: operation.to_owned().into(),
            namespace: Some("ns".into()),
            name: None,
            dry_run: None,
            user_info: None,
            object: Some(job),
            old_object: None,
        }
    }

    #[test]
    fn a_job_larger_than_a_queue_above_takes_is_refused_with_both_numbers() {
        let cache = cache(&json!({"caldera.dev/max-job": "cpu=8"}));
        let submit = |cpu: &str, operation: &str| refuse_too_large(&request(job(cpu), operation), &cache);
        assert_eq!(submit("4", "CREATE"), None);
        let Some(Verdict::Deny(denial)) = submit("5", "CREATE") else { panic!("it is taken") };
        assert_eq!(
            denial.message,
            "spec.queue: it asks for cpu 10, more than 8, which is the largest job that queue top, above queue leaf, takes"
        );
        assert_eq!(submit("5", "UPDATE"), None, "it waits and says why");
    }

    #[test]
    fn a_job_that_asks_to_run_for_longer_than_a_queue_above_allows_is_refused_with_both_times() {
        let submit = |limit: Value, asked: Value, operation: &str| {
            let mut job = job("1");
            job["metadata"]["annotations"][MAX_RUN_TIME] = asked;
            match refuse_too_long(&request(job, operation), &cache(&json!({MAX_RUN_TIME: limit}))) {
                Some(Verdict::Deny(denial)) => Some(denial.message),
                Some(other) => panic!("{other:?}"),
                None => None,
            }
        };
        let create = |limit: &str, asked: Value| submit(json!(limit), asked, "CREATE");
        assert_eq!(create("4h", json!(null)), None);
        assert_eq!(create("4h", json!("240m")), None);
        assert_eq!(create("4h", json!("soon")), None, "what can not be read counts as absent");
        assert_eq!(
            create("4h", json!("4h1s")).as_deref(),
            Some(
                "metadata.annotations[caldera.dev/max-run-time]: it asks to run for 4h1s, longer than the 4h that queue \
                 top, above queue leaf, allows"
            )
        );
        assert_eq!(submit(json!("4h"), json!("5h"), "UPDATE"), None, "it waits and says why");
        assert_eq!(submit(json!(null), json!("9000h"), "CREATE"), None);
        assert_eq!(
            create("four", json!("1s")).as_deref(),
            Some("spec.queue: queue top, above queue leaf, takes no job: how long one may run can not be read")
        );
    }

    #[test]
    fn a_job_that_names_no_card_model_is_refused_where_a_queue_above_has_its_quota_by_model() {
        let cache = cache(&json!({"volcano.sh/card.quota": r#"{"A100": 8}"#}));
        let submit = |asks: Value, selector: Value| {
            let mut job = job("1");
            let pod = &mut job["spec"]["tasks"][0]["template"]["spec"];
            pod["containers"][0]["resources"]["limits"] = asks;
            pod["nodeSelector"] = selector;
            match refuse_card_model(&request(job, "CREATE"), &cache) {
                Some(Verdict::Deny(denial)) => Some(denial.message),
                Some(other) => panic!("{other:?}"),
                None => None,
            }
        };
        let gpu = || json!({"nvidia.com/gpu": "1"});
        assert_eq!(submit(json!(null), json!(null)), None);
        assert_eq!(submit(gpu(), json!({"nvidia.com/gpu.product": "A100"})), None);
        let reported = submit(gpu(), json!({"zone": "a"})).unwrap();
        assert!(
            reported.starts_with("spec.tasks: queue top, above queue leaf, has its quota of nvidia.com/gpu"),
            "{reported}"
        );
        let reported = submit(gpu(), json!({"nvidia.com/gpu.product": "V100"})).unwrap();
        assert!(reported.contains("has no quota of the V100 that task t names"), "{reported}");
    }

    #[test]
    fn a_job_that_says_it_is_not_preemptable_is_reported_where_that_counts_for_nothing() {
        let said =
            |value: &str| warn_of_eviction(&job("1"), &cache(&json!({"caldera.dev/all-jobs-preemptable": value})));
        assert_eq!(said("false"), None);
        assert_eq!(
            said("true").as_deref(),
            Some(
                "volcano.sh/preemptable false counts for nothing in queue leaf: by queue top all of its jobs may be evicted"
            )
        );
    }
}
