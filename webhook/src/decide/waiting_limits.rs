//! How many jobs may wait in a queue.
//!
//! Rule: a Volcano Job is refused at submission where the queue that it names, or one above it, has as many that wait
//! as its annotations `caldera.dev/max-waiting-jobs`, `caldera.dev/max-waiting-jobs-per-namespace` and
//! `caldera.dev/max-waiting-jobs-per-user` allow: those of the queue and of the queues below it, of every kind that
//! names one, without an admission and not ended. Slurm's `MaxSubmitJobs` is the model, which counts those that run
//! too. It is a bound on lines and objects, and no quota: what arrives within the moment that the watches are behind
//! passes, and nobody who waits is put out of line.
//!
//! Nobody fills a line for others with what it would not take: workloads of namespaces that may not use the queue do
//! not count, and of each namespace no more than its own limit.
//!
//! A job of a HyperJob or CronJob is of the user who made that, as its stamp is ([`find_submitter`]).

use std::collections::BTreeMap;

use caldera_core::text::count_noun;
use caldera_crds::{
    names::volcano::ROOT_QUEUE,
    tenancy::WaitingLimits,
    workload::{queue_of, submission::cut_submitter},
};
use serde_json::Value;

use super::{
    namespace_access::find_refusing_queue,
    submission::find_submitter,
    verdict::{Denial, Verdict},
};
use crate::observe::{
    cache::{Cache, WorkloadKey},
    request::ReviewRequest,
};

/// Refuses a new job where its line is full; `None` where there is capacity.
#[must_use]
pub fn refuse_full_line(request: &ReviewRequest<'_, Value>, cache: &Cache) -> Option<Verdict> {
    let job = request.object.as_ref().filter(|_| request.is_create())?;
    let (namespace, named) = (request.namespace.as_deref()?, queue_of(job));
    let user =
        find_submitter(job, request.user_info.as_ref(), cache).map(|name| cut_submitter(&name)).unwrap_or_default();
    list_queue_path(named.as_str(), cache).into_iter().find_map(|queue| {
        let limits = WaitingLimits::of_queue(cache.queues.get(queue)?);
        if limits == WaitingLimits::default() {
            return None;
        }
        let Waiting { all, of_namespace, of_user } = count_waiting(queue, &limits, (namespace, &user), cache);
        let full = |limit: Option<usize>, count: usize| limit.filter(|limit| count >= *limit);
        let full_of = |limit, count, whose: String| Some((count, full(limit, count)?, whose));
        let (count, most, whose) = full_of(limits.all, all, String::new())
            .or_else(|| full_of(limits.of_namespace, of_namespace, format!(" of namespace {namespace}")))
            .or_else(|| full_of(limits.of_user, of_user, format!(" of user {user}")))?;
        let message = format!(
            "spec.queue: {}{whose} waiting in queue {queue} and those below it, {most} at most: submit it again when some \
             have started",
            count_noun(count, "job")
        );
        Some(Verdict::Deny(Denial { code: 403, reason: "Forbidden", message }))
    })
}

/// A queue and those above it, the root left out.
pub(crate) fn list_queue_path<'a>(queue: &'a str, cache: &'a Cache) -> Vec<&'a str> {
    let mut path: Vec<&str> = Vec::new();
    let mut at = queue;
    while !matches!(at, "" | ROOT_QUEUE) && !path.contains(&at) {
        path.push(at);
        let parent = cache.queues.get(at).and_then(|queue| queue.pointer("/spec/parent")?.as_str());
        at = parent.unwrap_or_default();
    }
    path
}

/// Jobs that wait in a queue or below it.
struct Waiting {
    /// Of each namespace as many as it may have at most.
    all: usize,
    /// Of the one that asks.
    of_namespace: usize,
    /// Of the user who asks.
    of_user: usize,
}

fn count_waiting(queue: &str, limits: &WaitingLimits, (namespace, user): (&str, &str), cache: &Cache) -> Waiting {
    let mut of_user = 0;
    let mut by_namespace: BTreeMap<&str, usize> = BTreeMap::new();
    let mut takes: BTreeMap<(&str, &str), bool> = BTreeMap::new();
    for (key, workload) in cache.workloads.iter() {
        let Some(named) = workload.queue.as_deref().filter(|_| !workload.ended) else { continue };
        let is_taken = takes.entry((named, &key.namespace)).or_insert_with(|| {
            let facts = cache.namespaces.get(&*key.namespace);
            list_queue_path(named, cache).contains(&queue)
                && find_refusing_queue(named, &key.namespace, facts, |name| cache.queues.get(name)).is_none()
        });
        if *is_taken && !is_admitted(key, cache) {
            *by_namespace.entry(&key.namespace).or_default() += 1;
            of_user += usize::from(workload.submitter.as_deref() == Some(user));
        }
    }
    let of_namespace = by_namespace.get(namespace).copied().unwrap_or(0);
    let most = limits.of_namespace.unwrap_or(usize::MAX);
    Waiting { all: by_namespace.values().map(|count| *count.min(&most)).sum(), of_namespace, of_user }
}

fn is_admitted(key: &WorkloadKey, cache: &Cache) -> bool {
    // As Karmada names bindings.
    let name = format!("{}-{}", key.name.replace(':', "."), key.kind.kind().to_lowercase());
    let binding = cache.bindings.get(&(key.namespace.clone(), name));
    binding.is_some_and(|binding| binding.workload.as_ref() == Some(key) && binding.admission.is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use caldera_core::admission::Admission;
    use caldera_crds::{
        names::caldera::SUBMITTER, tenancy::NamespaceFacts, trusted::CONTROLLER_ACCOUNT, workload::WorkloadKind,
    };
    use serde_json::json;

    use super::*;
    use crate::observe::{
        cache::{CachedBinding, CachedWorkload},
        request::UserInfo,
    };

    fn cache(limits: &Value) -> Cache {
        let mut cache = Cache::default();
        let queue = |name: &str, parent: &str, annotations: &Value| {
            let metadata = json!({"name": name, "annotations": annotations});
            json!({"metadata": metadata, "spec": {"parent": parent}})
        };
        cache.queues.insert("top".into(), queue("top", "root", limits));
        cache.queues.insert("leaf".into(), queue("leaf", "top", &json!({})));
        cache.queues.insert("beside".into(), queue("beside", "root", &json!({})));
        cache
    }

    fn add(cache: &mut Cache, namespace: &str, name: &str, queue: &str, state: &str) {
        let key = WorkloadKey { kind: WorkloadKind::VolcanoJob, namespace: namespace.into(), name: name.into() };
        let ended = state == "ended";
        let submitter = Some("ada".into());
        let workload = CachedWorkload { queue: Some(queue.into()), submitter, ended, ..CachedWorkload::default() };
        cache.workloads.insert(key.clone(), workload);
        let record = r#"{"queue":"leaf","priority":0,"copies":1,"tasks":{"t":1},"charged":{"cpu":"1","pods":"1"}}"#;
        let admission = (state == "runs").then(|| Arc::new(Admission::parse(record).unwrap()));
        let binding = CachedBinding { workload: Some(key), admission, ..CachedBinding::default() };
        cache.put_binding((namespace.into(), format!("{name}-job")), binding);
    }

    fn submit(cache: &Cache, queue: &str) -> Option<String> {
        submit_as("eve", cache, queue)
    }

    fn submit_as(user: &str, cache: &Cache, queue: &str) -> Option<String> {
        let job = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"queue": queue}});
        submit_job_as(user, cache, job)
    }

    fn submit_job_as(user: &str, cache: &Cache, job: Value) -> Option<String> {
        let request = ReviewRequest {
            uid: "u".into(),
            operation: "CREATE".into(),
            namespace: Some("ns".into()),
            name: None,
            dry_run: None,
            user_info: Some(UserInfo { username: user.into(), groups: Vec::new() }),
            object: Some(job),
            old_object: None,
        };
        refuse_full_line(&request, cache).map(|verdict| match verdict {
            Verdict::Deny(denial) => denial.message,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_line_that_is_full_takes_no_more_and_says_how_many_wait() {
        let mut cache = cache(&json!({"caldera.dev/max-waiting-jobs": "2"}));
        add(&mut cache, "a", "one", "leaf", "waits");
        add(&mut cache, "ns", "runs", "leaf", "runs");
        add(&mut cache, "ns", "ended", "leaf", "ended");
        add(&mut cache, "ns", "elsewhere", "beside", "waits");
        assert_eq!(submit(&cache, "leaf"), None);
        add(&mut cache, "b", "two", "top", "waits");
        assert_eq!(
            submit(&cache, "leaf").as_deref(),
            Some(
                "spec.queue: 2 jobs waiting in queue top and those below it, 2 at most: submit it again when some have \
                 started"
            )
        );
        assert_eq!(submit(&cache, "beside"), None);
        // One starts.
        add(&mut cache, "a", "one", "leaf", "runs");
        assert_eq!(submit(&cache, "leaf"), None);
    }

    #[test]
    fn a_namespace_that_fills_its_part_of_a_line_leaves_that_of_others() {
        let mut cache = cache(&json!({"caldera.dev/max-waiting-jobs-per-namespace": "1"}));
        add(&mut cache, "other", "one", "leaf", "waits");
        add(&mut cache, "other", "two", "leaf", "waits");
        assert_eq!(submit(&cache, "leaf"), None);
        add(&mut cache, "ns", "mine", "leaf", "waits");
        assert!(submit(&cache, "leaf").unwrap().contains("1 job of namespace ns waiting in queue top"));
    }

    #[test]
    fn a_user_who_fills_their_part_of_a_line_in_whatever_namespace_leaves_that_of_others() {
        let mut cache = cache(&json!({"caldera.dev/max-waiting-jobs-per-user": "2"}));
        add(&mut cache, "a", "one", "leaf", "waits");
        add(&mut cache, "b", "runs", "leaf", "runs");
        assert_eq!(submit_as("ada", &cache, "leaf"), None);
        add(&mut cache, "b", "two", "top", "waits");
        assert!(submit_as("ada", &cache, "leaf").unwrap().contains("2 jobs of user ada waiting in queue top"));
        assert_eq!([submit_as("bob", &cache, "leaf"), submit_as("", &cache, "leaf")], [None, None]);
    }

    #[test]
    fn a_job_of_a_hyper_job_or_cron_job_counts_for_the_user_who_made_that() {
        let mut cache = cache(&json!({"caldera.dev/max-waiting-jobs-per-user": "1"}));
        add(&mut cache, "a", "one", "leaf", "waits");
        for (api_version, kind) in
            [("training.volcano.sh/v1alpha1", "HyperJob"), ("batch.volcano.sh/v1alpha1", "CronJob")]
        {
            let child = |submitter: &str| {
                json!({
                    "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"queue": "leaf"},
                    "metadata": {"annotations": {SUBMITTER: submitter}, "ownerReferences": [
                        {"apiVersion": api_version, "kind": kind, "name": "h", "controller": true},
                    ]},
                })
            };
            assert!(submit_job_as(CONTROLLER_ACCOUNT, &cache, child("ada")).unwrap().contains("of user ada"), "{kind}");
            assert_eq!(submit_job_as(CONTROLLER_ACCOUNT, &cache, child("bob")), None, "{kind}");
            // Nobody else is believed.
            assert!(submit_job_as("ada", &cache, child("bob")).is_some(), "{kind}");
        }
    }

    #[test]
    fn nobody_fills_a_line_from_a_namespace_that_its_queue_does_not_take_or_beyond_its_part() {
        let selects = "caldera.dev/namespace-selector";
        let mut cache = cache(&json!({"caldera.dev/max-waiting-jobs": "2", selects: "team=ml"}));
        let labels = [("team".to_owned(), "ml".to_owned())].into();
        let facts = NamespaceFacts { labels, ..NamespaceFacts::default() };
        cache.namespaces.insert("ns".into(), facts);
        for name in ["one", "two", "three"] {
            add(&mut cache, "evil", name, "leaf", "waits");
        }
        assert_eq!(submit(&cache, "leaf"), None);
        for name in ["one", "two"] {
            add(&mut cache, "ns", name, "leaf", "waits");
        }
        assert!(submit(&cache, "leaf").is_some());
        let limits = json!({"caldera.dev/max-waiting-jobs": "2", "caldera.dev/max-waiting-jobs-per-namespace": "1"});
        cache.queues.insert("top".into(), json!({"metadata": {"name": "top", "annotations": limits}}));
        cache.workloads = Default::default();
        for name in ["one", "two", "three"] {
            add(&mut cache, "other", name, "leaf", "waits");
        }
        assert_eq!(submit(&cache, "leaf"), None, "one of them counts");
    }
}
