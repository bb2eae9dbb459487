//! Admission of Volcano Queues on the host: Volcano's defaults and rules, with the parent always spelled out.
//!
//! Rules (Volcano `pkg/webhooks/admission/queues/{mutate,validate}`): a change is refused only for what it makes worse.
//! A member's queue controller writes `parent: root` into a queue without a parent and Karmada takes it out again, for
//! ever; so the parent is set before the queue leaves the host. The watch of queues may be behind, or not there yet: a
//! refusal is decided once more from a list that the API server gives.
//!
//! Beyond Volcano's rules, a queue in which a workload waits or runs is not deleted, unless an annotation forces it: in
//! the members its pods would be killed. A service of 0 replicas does neither, unless its binding still has pods: who
//! scales it up later is told that there is no such queue. Until workloads of every kind were listed, nobody knows that
//! a queue is empty, and it stays. Our annotations that nobody knows are warned of.

use caldera_core::text::{count_noun, name_some};
use caldera_crds::{
    karmada::work::binding_name,
    names::{caldera::FORCE_DELETE, volcano::ROOT_QUEUE},
    queue_admission::{
        fill_queue_defaults, list_deletion_refusals, list_host_creation_problems, list_host_update_problems,
        list_unknown_annotations,
    },
    workload::WorkloadKind,
};
use serde_json::Value;

use super::{patch::patch_between, verdict::Verdict};
use crate::observe::{
    cache::{Cache, LiveRead, Lookup, Snapshot, WorkloadKey},
    request::ReviewRequest,
};

/// Fills in defaults.
#[must_use]
pub fn fill_defaults_of_queue(request: &ReviewRequest<'_, Value>) -> Verdict {
    let Some(queue) = request.object.as_ref().filter(|queue| queue.is_object()) else { return Verdict::UNCHANGED };
    let mut defaulted = queue.clone();
    if request.is_create() {
        fill_queue_defaults(&mut defaulted);
    }
    let text = |pointer: &str| queue.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if text("/spec/parent").is_empty()
        && text("/metadata/name") != ROOT_QUEUE
        && defaulted.get("spec").is_some_and(Value::is_object)
    {
        defaulted["spec"]["parent"] = ROOT_QUEUE.into();
    }
    Verdict::allow_with(patch_between(queue, &defaulted))
}

/// Refuses what can not be a queue.
#[must_use]
pub fn validate_queue(request: &ReviewRequest<'_, Value>, snapshot: Snapshot<'_>) -> Verdict {
    let mut there: Vec<&Value> = match snapshot.live {
        Some(LiveRead::Queues(listed)) => listed.iter().collect(),
        Some(LiveRead::Failed(error)) => return Verdict::Undecided(format!("failed to list the queues: {error}")),
        _ if !snapshot.cache.listed.contains("Queue") => return Verdict::Read(Lookup::Queues),
        _ => snapshot.cache.queues.values().collect(),
    };
    there.sort_unstable_by_key(|queue| queue.pointer("/metadata/name").and_then(Value::as_str));
    let problems: Vec<String> = match (request.operation.as_ref(), &request.object, &request.old_object) {
        ("DELETE", ..) => {
            let name = find_deleted_name(request);
            let refusals = name.map(|name| list_deletion_refusals(name, &there)).unwrap_or_default();
            let refused = refusals.iter().map(caldera_crds::job_admission::Refusal::sentence);
            let used = name.filter(|_| !is_forced(request));
            let used = used.and_then(|name| Some(refuse_deletion(name, &describe_use(name, snapshot.cache)?)));
            refused.chain(used).collect()
        }
        (_, Some(queue), _) if queue.pointer("/metadata/deletionTimestamp").is_some() => Vec::new(),
        ("CREATE", Some(queue), _) => list_host_creation_problems(queue, &there),
        (_, Some(queue), Some(old)) => list_host_update_problems(old, queue, &there),
        _ => Vec::new(),
    };
    let must_be_empty = request.operation == "DELETE" && find_deleted_name(request).is_some() && !is_forced(request);
    if must_be_empty
        && problems.is_empty()
        && let Some(title) = find_unlisted(snapshot.cache)
    {
        return Verdict::Undecided(describe_unlisted(title));
    }
    match (problems.is_empty(), snapshot.live) {
        (true, _) => {
            let warnings = if request.operation == "DELETE" {
                let used = find_deleted_name(request).and_then(|name| describe_use(name, snapshot.cache));
                used.map(|used| warn_of_kill(&used)).into_iter().collect()
            } else {
                request.object.as_ref().map(list_unknown_annotations).unwrap_or_default()
            };
            Verdict::Allow { patch: Vec::new(), warnings }
        }
        (false, None) => Verdict::Read(Lookup::Queues),
        (false, Some(_)) => Verdict::deny_invalid(problems.join("; ")),
    }
}

/// The queue that is deleted; none for the root, since on the host an object of that name counts for nothing.
fn find_deleted_name<'a>(request: &'a ReviewRequest<'_, Value>) -> Option<&'a str> {
    let of_object = || request.old_object.as_ref()?.pointer("/metadata/name")?.as_str();
    request.name.as_deref().or_else(of_object).filter(|name| *name != ROOT_QUEUE)
}

fn is_forced(request: &ReviewRequest<'_, Value>) -> bool {
    let annotations = request.old_object.as_ref().and_then(|queue| queue.pointer("/metadata/annotations"));
    annotations.is_some_and(|annotations| annotations[FORCE_DELETE] == "true")
}

/// A kind that was not listed yet: of workloads, or the bindings that say what of them has pods. Of those that the host
/// lacks there are none, and that is known.
fn find_unlisted(cache: &Cache) -> Option<&'static str> {
    let kinds = WorkloadKind::ALL.into_iter().map(WorkloadKind::title).chain(["ResourceBinding"]);
    kinds.into_iter().find(|title| !cache.listed.contains(title))
}

fn describe_unlisted(title: &str) -> String {
    format!(
        "whether the queue is in use is not known yet: since this webhook started, {title}s were not listed; try again \
         in a moment, or delete it whatever is in it, with annotation {FORCE_DELETE}: \"true\""
    )
}

/// What waits and runs in a queue; `None` if nothing does.
fn describe_use(queue: &str, cache: &Cache) -> Option<String> {
    let uses = cache.workloads.iter().filter(|(key, workload)| {
        workload.queue.as_deref() == Some(queue) && !workload.ended && (!workload.empty || holds_pods(key, cache))
    });
    let mut names: Vec<String> = uses.map(|(key, _)| format!("{}/{}", key.namespace, key.name)).collect();
    names.sort_unstable();
    let (all, named) = (names.len(), name_some(&names));
    let workloads = count_noun(all, "workload");
    (all > 0).then(|| format!("queue {queue:?} is in use: {workloads} waiting or running in it ({named})"))
}

/// Whether a workload was admitted or placed with pods, whatever it asks for now.
fn holds_pods(workload: &WorkloadKey, cache: &Cache) -> bool {
    let name = binding_name(workload.kind.kind(), &workload.name);
    let binding = cache.bindings.get(&(workload.namespace.to_string(), name));
    binding.is_some_and(|binding| {
        binding.clusters.values().any(|replicas| *replicas > 0)
            || binding.admission.as_ref().is_some_and(|admission| admission.tasks.values().any(|pods| *pods > 0))
    })
}

/// Karmada deletes a queue's copies with it, and members' Volcano kills what runs in a queue that is gone: not while
/// anything waits or runs there.
fn refuse_deletion(queue: &str, used: &str) -> String {
    format!(
        "{used}; close it (`caldera queue close {queue}`), let them end or delete them, and delete it then; with \
         annotation {FORCE_DELETE}: \"true\" it is deleted all the same, and what runs in it is killed in all members"
    )
}

fn warn_of_kill(used: &str) -> String {
    format!(
        "{used}; its annotation {FORCE_DELETE} has it deleted all the same: what runs in it is killed in all members"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use caldera_crds::workload::WorkloadKind;

    use super::*;
    use crate::{
        decide::patch::tests::applied,
        observe::cache::{Cache, CachedBinding, CachedWorkload},
    };

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

    /// The verdict where the API server lists what the cache has.
    fn judge_queue(request: &ReviewRequest<'_, Value>, cache: &Cache) -> Verdict {
        let live = LiveRead::Queues(cache.queues.values().cloned().collect());
        validate_queue(request, Snapshot::of_read(cache, Some(&live)))
    }

    #[test]
    fn what_the_watch_has_not_told_yet_is_asked_of_the_api_server_before_it_is_refused() {
        let child = json!({"metadata": {"name": "c"}, "spec": {"parent": "p", "weight": 1}});
        let create = request("CREATE", child);
        let mut cache = Cache::default();
        let of_cache = |cache: &Cache| validate_queue(&create, Snapshot::of_cache(cache));
        assert_eq!(of_cache(&cache), Verdict::Read(Lookup::Queues), "nothing is listed yet");
        cache.listed.insert("Queue");
        assert_eq!(of_cache(&cache), Verdict::Read(Lookup::Queues), "its parent may just have been made");
        let reported = |live: LiveRead| validate_queue(&create, Snapshot::of_read(&cache, Some(&live)));
        let parent = json!({"metadata": {"name": "p"}, "spec": {"parent": "root", "weight": 1}});
        assert_eq!(reported(LiveRead::Queues(vec![parent.clone()])), Verdict::UNCHANGED);
        assert!(matches!(reported(LiveRead::Queues(Vec::new())), Verdict::Deny(_)));
        assert!(matches!(reported(LiveRead::Failed("timeout".into())), Verdict::Undecided(_)));
        cache.queues.insert("p".to_owned(), parent);
        assert_eq!(of_cache(&cache), Verdict::UNCHANGED, "what is known is asked of nobody");
    }

    #[test]
    fn an_annotation_of_ours_that_means_nothing_on_a_queue_is_reported_and_one_that_bounds_nothing_is_refused() {
        let reported = |name: &str, value: &str| {
            let annotations = json!({name: value, "example.org/x": "y"});
            let queue = json!({"metadata": {"name": "q", "annotations": annotations}, "spec": {"weight": 1}});
            judge_queue(&request("CREATE", queue), &Cache::default())
        };
        let warned = |warnings: Vec<String>| Verdict::Allow { patch: Vec::new(), warnings };
        let misspelt = "annotation caldera.dev/max-running-job is not known on queues: it is not looked at";
        assert_eq!(reported("caldera.dev/max-running-job", "1"), warned(vec![misspelt.to_owned()]));
        assert_eq!(reported("caldera.dev/max-running-jobs", "1"), Verdict::UNCHANGED);
        for stamp in caldera_crds::action::ACTION_STAMPS {
            assert_eq!(reported(stamp, "ada"), Verdict::UNCHANGED, "the webhook itself wrote {stamp}");
        }
        let Verdict::Deny(denial) = reported("caldera.dev/max-job", "cpus=4") else { panic!() };
        assert!(denial.message.contains("\"cpus\" is no resource that a pod can ask for"), "{}", denial.message);
    }

    #[test]
    fn a2_35_a_queues_parent_is_spelled_out_before_it_leaves_the_host() {
        let queue = json!({"metadata": {"name": "q"}, "spec": {}});
        let Verdict::Allow { patch, .. } = fill_defaults_of_queue(&request("CREATE", queue.clone())) else { panic!() };
        let defaulted = applied(&queue, &patch);
        assert_eq!(defaulted["spec"]["parent"], "root");
        assert_eq!(defaulted["spec"]["weight"], 1);
        assert_eq!(fill_defaults_of_queue(&request("UPDATE", defaulted)), Verdict::UNCHANGED);
        // Without a spec it is given one, and its parent in the same answer.
        let bare = json!({"metadata": {"name": "q"}});
        let Verdict::Allow { patch, .. } = fill_defaults_of_queue(&request("CREATE", bare.clone())) else { panic!() };
        assert_eq!(applied(&bare, &patch)["spec"]["parent"], "root");
        let root = json!({"metadata": {"name": "root"}, "spec": {"weight": 1, "reclaimable": false}});
        assert_eq!(fill_defaults_of_queue(&request("UPDATE", root)), Verdict::UNCHANGED);
    }

    #[test]
    fn a_queue_that_contradicts_itself_is_refused_with_the_resource() {
        let queue = json!({
            "metadata": {"name": "q"},
            "spec": {"capability": {"cpu": "1"}, "deserved": {"cpu": "2"}, "parent": "root", "weight": 1},
        });
        let Verdict::Deny(denial) = judge_queue(&request("CREATE", queue), &Cache::default()) else { panic!() };
        assert_eq!(denial.message, "spec.deserved.cpu: 2 is more than spec.capability.cpu, which is 1");
    }

    #[test]
    fn a_queue_named_root_is_not_created_and_can_be_deleted() {
        let root = json!({"metadata": {"name": "root"}, "spec": {"capability": {"cpu": "1"}}});
        let Verdict::Deny(denial) = judge_queue(&request("CREATE", root.clone()), &Cache::default()) else { panic!() };
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
        assert_eq!(judge_queue(&delete("root"), &cache), Verdict::UNCHANGED);
        assert!(matches!(judge_queue(&delete("default"), &cache), Verdict::Deny(_)));
    }

    /// A cache of a host that has no workloads.
    fn list_nothing() -> Cache {
        let mut cache = Cache::default();
        cache.listed = WorkloadKind::ALL.map(WorkloadKind::title).into();
        cache.listed.insert("ResourceBinding");
        cache
    }

    #[test]
    fn a_queue_is_not_deleted_before_workloads_of_every_kind_were_listed() {
        let mut cache = list_nothing();
        let queue = json!({"metadata": {"name": "q"}, "spec": {"parent": "root"}});
        let delete = |queue: &Value| ReviewRequest {
            name: Some("q".into()),
            object: None,
            old_object: Some(queue.clone()),
            ..request("DELETE", queue.clone())
        };
        assert_eq!(judge_queue(&delete(&queue), &cache), Verdict::UNCHANGED);
        cache.listed.remove("ResourceBinding");
        assert!(
            matches!(judge_queue(&delete(&queue), &cache), Verdict::Undecided(_)),
            "a service of no replicas may have pods"
        );
        cache.listed.insert("ResourceBinding");
        cache.listed.remove(WorkloadKind::TfJob.title());
        let Verdict::Undecided(why) = judge_queue(&delete(&queue), &cache) else { panic!() };
        assert!(why.contains("since this webhook started, TFJobs were not listed"), "{why}");
        let mut forced = queue.clone();
        forced["metadata"]["annotations"] = json!({FORCE_DELETE: "true"});
        assert_eq!(judge_queue(&delete(&forced), &cache), Verdict::UNCHANGED);
        let parent = json!({"metadata": {"name": "child"}, "spec": {"parent": "q"}});
        cache.queues.insert("child".to_owned(), parent);
        assert!(matches!(judge_queue(&delete(&queue), &cache), Verdict::Deny(_)), "what is known is said");
    }

    #[test]
    fn a_queue_in_use_is_not_deleted_unless_that_is_forced() {
        let mut cache = list_nothing();
        let mut put = |name: &str, phase: &str| {
            let job = json!({
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"namespace": "ns", "name": name},
                "spec": {"queue": "q"}, "status": {"state": {"phase": phase}},
            });
            let key = WorkloadKey { kind: WorkloadKind::VolcanoJob, namespace: "ns".into(), name: name.into() };
            cache.workloads.insert(key, CachedWorkload::from_object(WorkloadKind::VolcanoJob, &job));
            cache.clone()
        };
        let delete = |queue: &Value| ReviewRequest {
            name: Some("q".into()),
            object: None,
            old_object: Some(queue.clone()),
            ..request("DELETE", queue.clone())
        };
        let queue = json!({"metadata": {"name": "q"}, "spec": {"parent": "root"}});
        let ended = put("ended", "Completed");
        assert_eq!(judge_queue(&delete(&queue), &ended), Verdict::UNCHANGED);
        put("waits", "");
        let used = put("runs", "Running");
        let Verdict::Deny(denial) = judge_queue(&delete(&queue), &used) else { panic!() };
        let says = &denial.message;
        assert!(says.contains("2 workloads waiting or running in it (ns/runs, ns/waits)"), "{says}");
        assert!(says.contains("caldera queue close q"), "{says}");
        let mut forced = queue;
        forced["metadata"]["annotations"] = json!({FORCE_DELETE: "true"});
        let Verdict::Allow { warnings, .. } = judge_queue(&delete(&forced), &used) else { panic!() };
        assert!(
            warnings[0].contains("2 workloads waiting or running in it (ns/runs, ns/waits); its annotation"),
            "{warnings:?}"
        );
        assert!(warnings[0].ends_with("what runs in it is killed in all members"), "{warnings:?}");
        assert_eq!(judge_queue(&delete(&forced), &Cache::default()), Verdict::UNCHANGED);
    }

    #[test]
    fn a_service_of_no_replicas_keeps_no_queue_unless_pods_of_it_are_there() {
        let mut cache = list_nothing();
        let put = |cache: &mut Cache, kind: WorkloadKind, replicas: Option<u32>| {
            let service = json!({
                "apiVersion": "apps/v1", "kind": kind.kind(), "spec": {"replicas": replicas},
                "metadata": {"namespace": "ns", "name": "web", "annotations": {"volcano.sh/queue-name": "q"}},
            });
            let key = WorkloadKey { kind, namespace: "ns".into(), name: "web".into() };
            cache.workloads.insert(key, CachedWorkload::from_object(kind, &service));
        };
        let queue = json!({"metadata": {"name": "q"}, "spec": {"parent": "root"}});
        let delete = |cache: &Cache| {
            let deleted = ReviewRequest {
                name: Some("q".into()),
                object: None,
                old_object: Some(queue.clone()),
                ..request("DELETE", queue.clone())
            };
            judge_queue(&deleted, cache)
        };
        for kind in [WorkloadKind::Deployment, WorkloadKind::StatefulSet] {
            put(&mut cache, kind, Some(0));
            assert_eq!(delete(&cache), Verdict::UNCHANGED, "{kind:?}");
            for replicas in [Some(1), None] {
                put(&mut cache, kind, replicas);
                assert!(matches!(delete(&cache), Verdict::Deny(_)), "{kind:?} of {replicas:?}");
            }
            put(&mut cache, kind, Some(0));
        }
        let place = |cache: &mut Cache, replicas: u32, admission: &str| {
            let binding = json!({
                "metadata": {"namespace": "ns", "name": "web-deployment", "annotations": {
                    "caldera.dev/gate": "open", "caldera.dev/admission": admission,
                }},
                "spec": {
                    "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "ns", "name": "web"},
                    "clusters": [{"name": "m1", "replicas": replicas}],
                },
            });
            cache.bindings.insert(("ns".to_owned(), "web-deployment".to_owned()), CachedBinding::from_object(&binding));
        };
        let record = |pods: u32| {
            json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"web": pods}, "charged": {}}).to_string()
        };
        place(&mut cache, 3, &record(0));
        assert!(matches!(delete(&cache), Verdict::Deny(_)), "its pods still run");
        place(&mut cache, 0, &record(3));
        assert!(matches!(delete(&cache), Verdict::Deny(_)), "they are still charged");
        place(&mut cache, 0, &record(0));
        assert_eq!(delete(&cache), Verdict::UNCHANGED);
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
            judge_queue(&ReviewRequest { old_object: Some(old.clone()), ..request("UPDATE", new) }, &Cache::default())
        };
        assert_eq!(change("/spec/weight", json!(7)), Verdict::UNCHANGED);
        let Verdict::Deny(denial) = change("/spec/deserved/cpu", json!("3")) else { panic!() };
        assert_eq!(denial.message, "spec.deserved.cpu: 3 is more than spec.capability.cpu, which is 1");
    }
}
