//! Whether a job's namespace may use the queue that the job names, and which queue is a namespace's own.
//!
//! Rule: as [`caldera_crds::tenancy`] says, at submission; the controller asks again before it releases. Labels and
//! queues may have been made a moment ago, and the watches be behind: a refusal is decided once more from what the API
//! server gives. Only Volcano Jobs are refused here. Other kinds do not come by this webhook, so that its outage stops
//! none of them; they wait, and their PodGroup says the same sentence.

use std::collections::BTreeMap;

use caldera_core::reason::Reason;
use caldera_crds::{
    names::volcano::{DEFAULT_QUEUE, ROOT_QUEUE},
    tenancy::{NamespaceFacts, NamespaceSelector},
    workload::queue_of,
};
use serde_json::Value;

use super::verdict::{Denial, Verdict};
use crate::observe::{
    cache::{LiveRead, Lookup, Snapshot},
    request::ReviewRequest,
};

/// Refuses a job whose namespace may not use its queue; `None` where nothing speaks against it.
#[must_use]
pub fn refuse_namespace(request: &ReviewRequest<'_, Value>, snapshot: Snapshot<'_>) -> Option<Verdict> {
    let (job, namespace) = (request.object.as_ref()?, request.namespace.as_deref()?);
    let queue = queue_of(job);
    let had = request.old_object.as_ref().map(queue_of);
    if job.pointer("/metadata/deletionTimestamp").is_some() || had.is_some_and(|had| had == queue) {
        return None;
    }
    let live = match snapshot.live {
        Some(LiveRead::Access(facts, queues)) => Some((facts.as_ref(), queues)),
        _ => None,
    };
    let facts = live.map_or_else(|| snapshot.cache.namespaces.get(namespace), |(facts, _)| facts);
    let find = |name: &str| match live {
        Some((_, queues)) => queues.iter().find(|queue| queue["metadata"]["name"] == name),
        None => snapshot.cache.queues.get(name),
    };
    let refusal = find_refusing_queue(queue.as_str(), namespace, facts, find)?;
    Some(match snapshot.live {
        None => Verdict::Read(Lookup::Access(namespace.to_owned())),
        Some(LiveRead::Failed(error)) => {
            Verdict::Undecided(format!("failed to tell whether namespace {namespace} may use queue {queue}: {error}"))
        }
        Some(_) => Verdict::Deny(Denial { code: 403, reason: "Forbidden", message: format!("spec.queue: {refusal}") }),
    })
}

/// The queue of a job that names none, where its namespace has one of its own. `default` is what the schema of jobs
/// writes where none is named.
///
/// # Errors
/// What is to be read first.
pub fn find_namespace_queue(job: &Value, namespace: &str, snapshot: Snapshot<'_>) -> Result<Option<String>, Verdict> {
    if job.pointer("/spec/queue").and_then(Value::as_str).is_some_and(|queue| !matches!(queue, "" | DEFAULT_QUEUE)) {
        return Ok(None);
    }
    match (snapshot.live, snapshot.cache.namespaces.get(namespace)) {
        (Some(LiveRead::Access(facts, _)), _) => Ok(facts.as_ref().and_then(|facts| facts.default_queue.clone())),
        (_, Some(facts)) => Ok(facts.default_queue.clone()),
        (None, None) => Err(Verdict::Read(Lookup::Access(namespace.to_owned()))),
        (Some(LiveRead::Failed(error)), None) => {
            Err(Verdict::Undecided(format!("failed to tell the default queue of namespace {namespace}: {error}")))
        }
        (Some(_), None) => Ok(None),
    }
}

/// The first queue on the way to the root that does not select the namespace. Where a parent is not there, or parents
/// lead in a circle, nothing is known of those above: the controller starts nothing in such a queue.
pub(super) fn find_refusing_queue<'a>(
    queue: &str,
    namespace: &str,
    facts: Option<&NamespaceFacts>,
    find: impl Fn(&str) -> Option<&'a Value>,
) -> Option<Reason> {
    let no_labels = BTreeMap::new();
    let labels = facts.map_or(&no_labels, |facts| &facts.labels);
    let mut path: Vec<&str> = Vec::new();
    let mut at = queue;
    while !matches!(at, "" | ROOT_QUEUE) && !path.contains(&at) {
        let found = find(at)?;
        if let Some(selector) = NamespaceSelector::of_queue(found).filter(|selector| !selector.selects(labels)) {
            return Some(Reason::NamespaceNotSelected {
                queue: queue.into(),
                by: at.into(),
                selector: selector.text().to_owned(),
                namespace: namespace.to_owned(),
            });
        }
        path.push(at);
        at = found.pointer("/spec/parent").and_then(Value::as_str).unwrap_or_default();
    }
    None
}

#[cfg(test)]
mod tests {
    use caldera_crds::names::caldera::NAMESPACE_SELECTOR;
    use serde_json::json;

    use super::*;
    use crate::observe::cache::Cache;

    fn queue(name: &str, parent: &str, selector: Option<&str>) -> Value {
        let annotations = selector.map(|selector| json!({NAMESPACE_SELECTOR: selector}));
        json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"parent": parent}})
    }

    fn namespace(labels: &Value) -> NamespaceFacts {
        NamespaceFacts::from_object(&json!({"metadata": {"labels": labels}}))
    }

    fn cache(queues: &[Value], labels: &Value) -> Cache {
        let mut cache = Cache::default();
        for queue in queues {
            cache.queues.insert(queue["metadata"]["name"].as_str().unwrap().to_owned(), queue.clone());
        }
        cache.namespaces.insert("ns".into(), namespace(labels));
        cache
    }

    fn job(queue: &str) -> Value {
        json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"queue": queue}})
    }

    fn request(new: &Value, old: Option<&Value>) -> ReviewRequest<'static, Value> {
        ReviewRequest {
            uid: "u".into(),
            operation: if old.is_some() { "UPDATE" } else { "CREATE" }.into(),
            namespace: Some("ns".into()),
            name: None,
            dry_run: None,
            user_info: None,
            object: Some(new.clone()),
            old_object: old.cloned(),
        }
    }

    fn refuse(queue: &str, cache: &Cache, live: Option<&LiveRead>) -> Option<Verdict> {
        refuse_namespace(&request(&job(queue), None), Snapshot::of_read(cache, live))
    }

    fn tree() -> [Value; 3] {
        [
            queue("research", "root", Some("team in (ml,bio)")),
            queue("ml", "research", None),
            queue("open", "root", None),
        ]
    }

    #[test]
    fn a_queue_takes_jobs_of_the_namespaces_that_it_and_those_above_it_select() {
        let mine = cache(&tree(), &json!({"team": "ml"}));
        for name in ["research", "ml", "open", "gone"] {
            assert_eq!(refuse(name, &mine, None), None, "{name}");
        }
        let others = cache(&tree(), &json!({"team": "web"}));
        assert_eq!(refuse("open", &others, None), None);
        assert_eq!(refuse("ml", &others, None), Some(Verdict::Read(Lookup::Access("ns".into()))));
    }

    #[test]
    fn a_refusal_is_told_from_what_the_api_server_has_now_with_queue_selector_and_namespace() {
        let stale = cache(&tree(), &json!({}));
        let live = |labels: Value| LiveRead::Access(Some(namespace(&labels)), tree().into());
        assert_eq!(refuse("ml", &stale, Some(&live(json!({"team": "ml"})))), None, "it was labelled a moment ago");
        let Some(Verdict::Deny(denial)) = refuse("ml", &stale, Some(&live(json!({"team": "web"})))) else { panic!() };
        assert_eq!(denial.code, 403);
        assert_eq!(
            denial.message,
            "spec.queue: queue research, above queue ml, takes no jobs of namespace ns: its labels do not match the \
             queue's namespace selector \"team in (ml,bio)\""
        );
        let failed = LiveRead::Failed("timeout".into());
        assert!(matches!(refuse("ml", &stale, Some(&failed)), Some(Verdict::Undecided(_))));
    }

    #[test]
    fn a_job_that_is_there_is_refused_only_where_it_moves() {
        let others = cache(&tree(), &json!({"team": "web"}));
        let asked = |new: &Value, old: &Value| refuse_namespace(&request(new, Some(old)), Snapshot::of_cache(&others));
        assert_eq!(asked(&job("ml"), &job("ml")), None);
        assert!(matches!(asked(&job("ml"), &job("open")), Some(Verdict::Read(_))));
        let mut going = job("ml");
        going["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(asked(&going, &job("open")), None);
    }

    #[test]
    fn the_default_queue_of_a_namespace_that_is_new_is_read_and_never_guessed() {
        let annotated = json!({"metadata": {"annotations": {"caldera.dev/default-queue": "team"}}});
        let facts = NamespaceFacts::from_object(&annotated);
        let (empty, mut known) = (Cache::default(), Cache::default());
        known.namespaces.insert("ns".into(), facts.clone());
        let find = |job: &Value, cache: &Cache, live: Option<LiveRead>| {
            find_namespace_queue(job, "ns", Snapshot::of_read(cache, live.as_ref()))
        };
        assert_eq!(find(&job(""), &known, None), Ok(Some("team".to_owned())));
        assert_eq!(find(&job("default"), &known, None), Ok(Some("team".to_owned())), "the schema wrote it");
        assert_eq!(find(&job("q"), &known, None), Ok(None), "it names one");
        assert_eq!(find(&job(""), &empty, None), Err(Verdict::Read(Lookup::Access("ns".into()))));
        let live = LiveRead::Access(Some(facts), Vec::new());
        assert_eq!(find(&job(""), &empty, Some(live)), Ok(Some("team".to_owned())));
        assert_eq!(find(&job(""), &empty, Some(LiveRead::Access(None, Vec::new()))), Ok(None));
        let failed = find(&job(""), &empty, Some(LiveRead::Failed("timeout".into())));
        assert!(matches!(failed, Err(Verdict::Undecided(_))));
    }

    #[test]
    fn parents_in_a_circle_are_walked_once() {
        let circle = [queue("a", "b", None), queue("b", "a", Some("team=ml"))];
        assert!(matches!(refuse("a", &cache(&circle, &json!({})), None), Some(Verdict::Read(_))));
        assert_eq!(refuse("a", &cache(&circle, &json!({"team": "ml"})), None), None);
    }
}
