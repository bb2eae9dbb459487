//! Admission of HyperJobs on the host: what is wrong with one is said when it is written, by field, value and limit.
//!
//! Rules: `caldera_crds::hyper_job`. volcano-global has no webhook for them: a job that Volcano refuses fails there
//! with every try, and nothing says so. Defaults need no review: the schema has that of `replicas`, and each job gets
//! Volcano's own when it is made.
//!
//! Its jobs are one gang: what its queue, or one above it, allows for one job is the most that all of them may ask for
//! together, and as many of them as start together must be allowed to wait. Else it would never start, with no word but
//! on its jobs. Each job is asked about again when it is made, and the controller asks before it releases.

use caldera_core::{resources::Resources, text::shorten_text};
use caldera_crds::{
    hyper_job::{
        build_job, count_needed, list_creation_refusals, list_ignored_fields, list_replicated_jobs,
        list_update_refusals,
    },
    names::volcano::DEFAULT_QUEUE,
    tenancy::WaitingLimits,
    workload::{qos_level::list_void_qos_levels_of_jobs, read_gang},
};
use serde_json::Value;

use super::{
    queue_limits::find_size_refusal,
    verdict::{Denial, Verdict},
    waiting_limits::list_queue_path,
};
use crate::observe::{cache::Cache, request::ReviewRequest};

/// Refuses what can not be a HyperJob, is no change of one, or could never start; warns of what it says and nobody acts
/// on.
#[must_use]
pub fn validate_hyper_job(request: &ReviewRequest<'_, Value>, cache: &Cache) -> Verdict {
    let Some(hyper_job) = &request.object else { return Verdict::UNCHANGED };
    let before = request.before();
    let refusals = match before {
        _ if hyper_job["metadata"]["deletionTimestamp"].is_string() => Vec::new(),
        Some(old) => list_update_refusals(old, hyper_job),
        None => list_creation_refusals(hyper_job),
    };
    if !refusals.is_empty() {
        return Verdict::deny_invalid(refusals.join("; "));
    }
    let is_news = before.is_none_or(|old| old["spec"] != hyper_job["spec"]);
    let namespace = request.namespace.as_deref().unwrap_or_default();
    match is_news.then(|| find_limit_of_gang(hyper_job, before, namespace, cache)).flatten() {
        Some(message) => Verdict::Deny(Denial { code: 403, reason: "Forbidden", message }),
        None => {
            let mut warnings = list_ignored_fields(hyper_job);
            warnings.extend(is_news.then(|| list_void_levels(hyper_job)).into_iter().flatten());
            Verdict::Allow { patch: Vec::new(), warnings }
        }
    }
}

/// QoS levels that do not do what they seem to: who made it is warned, and not the controller that makes its jobs.
fn list_void_levels(hyper_job: &Value) -> Vec<String> {
    let jobs = list_replicated_jobs(hyper_job)
        .map(|it| (format!("spec.replicatedJobs {}", shorten_text(it.name)), build_job(it.name, it.template())));
    list_void_qos_levels_of_jobs(hyper_job, jobs)
}

/// Why its jobs are more than its queue takes of them together; a change is refused only for what it makes more.
fn find_limit_of_gang(hyper_job: &Value, before: Option<&Value>, namespace: &str, cache: &Cache) -> Option<String> {
    let named = list_replicated_jobs(hyper_job).next()?.queue();
    let own = cache.namespaces.get(namespace).and_then(|facts| facts.default_queue.as_deref());
    let queue = if named.is_empty() { own.unwrap_or(DEFAULT_QUEUE) } else { named };
    let needed = count_jobs_that_start_together(hyper_job);
    if before.is_none_or(|old| count_jobs_that_start_together(old) < needed) {
        let mut limits = list_queue_path(queue, cache).into_iter().filter_map(|by| {
            let WaitingLimits { all, of_namespace, of_user } = WaitingLimits::of_queue(cache.queues.get(by)?);
            Some((by, [all, of_namespace, of_user].into_iter().flatten().min()?))
        });
        if let Some((by, most)) = limits.find(|(_, most)| *most < needed) {
            return Some(format!(
                "spec.minAvailable: {needed} of its jobs start together, and at most {most} may wait in queue {by} and those \
                 below it: it would never start"
            ));
        }
    }
    let asked = || {
        let asked = sum_demand(hyper_job);
        let is_no_more = before.is_some_and(|old| asked.fits_in(&sum_demand(old)));
        (!is_no_more).then_some(asked)
    };
    let refusal = find_size_refusal(&queue.into(), cache, asked)?;
    Some(format!("spec.replicatedJobs: with all its jobs it {refusal}"))
}

fn count_jobs_that_start_together(hyper_job: &Value) -> usize {
    let jobs = list_replicated_jobs(hyper_job).map(|it| it.replicas.max(0)).fold(0, i64::saturating_add);
    usize::try_from(count_needed(hyper_job, jobs)).unwrap_or(0)
}

/// What all pods of all its jobs ask for. What can not be read is refused elsewhere.
fn sum_demand(hyper_job: &Value) -> Resources {
    let mut demand = Resources::new();
    for replicated in list_replicated_jobs(hyper_job) {
        let jobs = u64::try_from(replicated.replicas).unwrap_or(0);
        if let Ok(gang) = read_gang(&build_job(replicated.name, replicated.template())) {
            demand.add(&gang.sum_full_demand().times(jobs));
        }
    }
    demand
}

#[cfg(test)]
mod tests {
    use caldera_crds::tenancy::NamespaceFacts;
    use serde_json::json;

    use super::*;

    fn hyper_job() -> Value {
        let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let template = json!({"minAvailable": 1, "tasks": [{"name": "t", "replicas": 1, "template": pod}]});
        json!({"metadata": {"name": "h"}, "spec": {"replicatedJobs": [{"name": "a", "templateSpec": template}]}})
    }

    fn review(operation: &'static str, old: Option<&Value>, new: Value) -> Verdict {
        review_in(&Cache::default(), operation, old, new)
    }

    fn review_in(cache: &Cache, operation: &'static str, old: Option<&Value>, new: Value) -> Verdict {
        let request = ReviewRequest {
            uid: "u".into(),
            operation: operation.into(),
            namespace: Some("ns".into()),
            name: None,
            dry_run: None,
            user_info: None,
            object: Some(new),
            old_object: old.cloned(),
        };
        validate_hyper_job(&request, cache)
    }

    /// Of three jobs of two cpus each in queue `leaf` below `top`, which says this.
    fn gang_in(annotations: &Value) -> (Cache, Value) {
        let mut cache = Cache::default();
        let top = json!({"metadata": {"name": "top", "annotations": annotations}, "spec": {}});
        cache.queues.insert("top".into(), top);
        cache.queues.insert("leaf".into(), json!({"metadata": {"name": "leaf"}, "spec": {"parent": "top"}}));
        let mut gang = hyper_job();
        gang["spec"]["replicatedJobs"][0]["replicas"] = 3.into();
        let template = &mut gang["spec"]["replicatedJobs"][0]["templateSpec"];
        template["queue"] = "leaf".into();
        let requests = json!({"requests": {"cpu": "2"}});
        template["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = requests;
        (cache, gang)
    }

    fn says(verdict: Verdict) -> Option<String> {
        match verdict {
            Verdict::Deny(denial) => Some(denial.message),
            Verdict::Allow { .. } => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_hyper_job_is_one_job_for_the_largest_that_its_queue_takes() {
        let (cache, gang) = gang_in(&json!({"caldera.dev/max-job": "cpu=5"}));
        let why = "spec.replicatedJobs: with all its jobs it asks for cpu 6, more than 5, which is the largest job that \
                   queue top, above queue leaf, takes";
        assert_eq!(says(review_in(&cache, "CREATE", None, gang.clone())).as_deref(), Some(why));
        let mut two = gang.clone();
        two["spec"]["replicatedJobs"][0]["replicas"] = 2.into();
        assert_eq!(says(review_in(&cache, "CREATE", None, two.clone())), None);
        assert!(says(review_in(&cache, "UPDATE", Some(&two), gang.clone())).is_some(), "scaled up");
        assert_eq!(says(review_in(&cache, "UPDATE", Some(&gang), two)), None, "what is too large may become smaller");
    }

    #[test]
    fn a_hyper_job_of_which_fewer_may_wait_than_start_together_is_refused() {
        for limit in ["max-waiting-jobs", "max-waiting-jobs-per-namespace", "max-waiting-jobs-per-user"] {
            let (cache, mut gang) = gang_in(&json!({format!("caldera.dev/{limit}"): "2"}));
            let why = "spec.minAvailable: 3 of its jobs start together, and at most 2 may wait in queue top and those below \
                       it: it would never start";
            assert_eq!(says(review_in(&cache, "CREATE", None, gang.clone())).as_deref(), Some(why));
            gang["spec"]["minAvailable"] = 2.into();
            assert_eq!(says(review_in(&cache, "CREATE", None, gang)), None);
        }
    }

    #[test]
    fn a_hyper_job_that_names_no_queue_is_bound_by_that_of_its_namespace() {
        let (mut cache, mut gang) = gang_in(&json!({"caldera.dev/max-waiting-jobs": "2"}));
        gang["spec"]["replicatedJobs"][0]["templateSpec"]["queue"] = "default".into();
        assert_eq!(says(review_in(&cache, "CREATE", None, gang.clone())), None);
        let facts = NamespaceFacts { default_queue: Some("leaf".into()), ..NamespaceFacts::default() };
        cache.namespaces.insert("ns".into(), facts);
        assert!(says(review_in(&cache, "CREATE", None, gang)).is_some());
    }

    #[test]
    fn a42_a_name_of_which_no_job_can_be_named_is_refused_when_it_is_written() {
        assert_eq!(review("CREATE", None, hyper_job()), Verdict::UNCHANGED);
        let mut dotted = hyper_job();
        dotted["metadata"]["name"] = "a.b".into();
        let Verdict::Deny(denial) = review("CREATE", None, dotted) else { panic!("it is taken") };
        assert_eq!(denial.code, 422);
        assert!(denial.message.starts_with("metadata.name: \"a.b\""), "{}", denial.message);
    }

    #[test]
    fn one_that_is_being_deleted_lets_go_of_its_finalizers_whatever_it_says() {
        let mut old = hyper_job();
        old["spec"]["replicatedJobs"][0]["replicas"] = (-1).into();
        let mut new = old.clone();
        new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(review("UPDATE", Some(&old), new), Verdict::UNCHANGED);
    }

    #[test]
    fn what_nobody_acts_on_is_a_warning() {
        let mut plugged = hyper_job();
        plugged["spec"]["plugins"] = json!({"svc": []});
        let Verdict::Allow { warnings, .. } = review("CREATE", None, plugged) else { panic!("it is refused") };
        assert!(warnings[0].starts_with("spec.plugins"), "{warnings:?}");
    }
}
