//! Admission of Volcano Jobs on the host: Volcano's defaults, and its refusals with field, value and limit.
//!
//! Rules (Volcano `pkg/webhooks/admission/jobs/{mutate,validate}`): Volcano sets defaults on creation only. A manifest
//! that is applied again takes them out of its tasks, because a list is replaced whole, and Volcano refuses that
//! change. So a job that has the defaults gets them back. A member would refuse the same job later, where nobody looks.
//! A queue that does not exist or is not open is only a warning here: queue and job may come in one `kubectl apply`, in
//! any order.

use std::fmt::Write;

use caldera_crds::{
    job_admission::{
        Defaults, Filled, QueueView, create_refusals, fill_defaults, fill_defaults_with, queue_refusals,
        update_refusals,
    },
    names::{caldera::DATA, volcano::DEFAULT_QUEUE},
    workload::{annotations::list_unread, data_of, priority_class_of, queue_of},
};
use json_patch::PatchOperation;
use serde_json::{Map, Value, json, value::RawValue};

pub use super::ssh_keys::Seed;
use super::{
    patch::{MOST_OPERATIONS, set_field},
    ssh_keys::{KeyPair, share_key_pair},
    verdict::Verdict,
};
use crate::observe::{cache::Cache, long_job::LongJob, request::ReviewRequest};

/// Fills in Volcano's defaults, and the keys that a split job's pods need for each other; those of a new pair are made
/// of `seed`. A new job that names no queue is in `queue`, its namespace's, or in Volcano's; one that is applied again
/// without stays in its own. The schema writes `default` where none is named, so where its namespace has a queue that
/// name is none. The job is changed in place: a copy of a large one would take as much memory again.
#[must_use]
pub fn default_job_review(request: ReviewRequest<'_, Value>, queue: Option<String>, seed: Option<Seed>) -> Verdict {
    let is_create = request.is_create();
    let (Some(mut job), mut old) = (request.object, request.old_object) else { return Verdict::UNCHANGED };
    // A job from before us that has none would be changed by what its user never wrote.
    let had_them = |old: &mut Value| old.get("spec") != job.get("spec") && fill_defaults(old).is_empty();
    if !is_create && !old.as_mut().is_some_and(had_them) {
        return Verdict::UNCHANGED;
    }
    let its_own = old.as_ref().and_then(|old| old.pointer("/spec/queue")?.as_str().map(str::to_owned));
    let stays = is_create || its_own == queue;
    if queue.is_some() && stays {
        unname_default_queue(&mut job);
    }
    let filled = fill_defaults_with(&mut job, if is_create { queue } else { its_own });
    let one_by_one = filled.len() <= MOST_OPERATIONS;
    let told = filled.into_iter().filter(|filled| one_by_one || !is_in_tasks(filled));
    let mut patch = tell_defaults(&mut job, old.as_ref(), told, seed);
    if let (false, Some(tasks)) = (one_by_one, job.pointer_mut("/spec/tasks")) {
        patch.push(set_field(&["spec", "tasks"], tasks.take()));
    }
    Verdict::allow_with(patch)
}

/// The same for a new job whose tasks are text: one after the other is read and forgotten, and those that replace them
/// are text again.
#[must_use]
pub fn default_long_job(job: LongJob<'_>, queue: Option<String>, seed: Option<Seed>) -> Verdict {
    let LongJob { rest: mut job, tasks } = job;
    if queue.is_some() {
        unname_default_queue(&mut job);
    }
    let mut defaults = Defaults::with_queue(queue);
    let mut texts = String::with_capacity(tasks.iter().map(|task| task.get().len() + DEFAULTS_OF_A_TASK).sum());
    for (index, text) in tasks.into_iter().map(RawValue::get).enumerate() {
        let Ok(mut task) = serde_json::from_str::<Value>(text) else { continue };
        let (fields, before) = (count_fields(&task), defaults.filled.len());
        defaults.fill_task(index, &mut task);
        if index > 0 {
            texts.push(',');
        }
        append_task(&mut texts, (text, fields), &task, &defaults.filled[before..]);
    }
    defaults.fill_job(&mut job);
    let one_by_one = defaults.filled.len() <= MOST_OPERATIONS;
    let told = defaults.filled.into_iter().filter(|filled| one_by_one || !is_in_tasks(filled));
    let patch = tell_defaults(&mut job, None, told, seed);
    if one_by_one {
        return Verdict::allow_with(patch);
    }
    let mut all: String = patch.iter().map(|operation| json!(operation).to_string() + ",").collect();
    all.insert(0, '[');
    // The list may be as long as the body: it is copied once.
    texts.insert_str(0, &(all + "{\"op\":\"add\",\"path\":\"/spec/tasks\",\"value\":["));
    texts.push_str("]}]");
    Verdict::AllowText { patch: texts }
}

fn unname_default_queue(job: &mut Value) {
    if let Some(spec) = job.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("queue").is_some_and(|queue| queue == DEFAULT_QUEUE)
    {
        spec.remove("queue");
    }
}

/// About how many bytes a task's defaults are.
const DEFAULTS_OF_A_TASK: usize = 40;

fn count_fields(value: &Value) -> usize {
    value.as_object().map_or(0, Map::len)
}

/// Appends a task with what was filled in: at the end of its text where all of that is new in it, which had so many
/// fields.
fn append_task(to: &mut String, (text, fields): (&str, usize), task: &Value, filled: &[Filled]) {
    if filled.is_empty() {
        return to.push_str(text);
    }
    match text.strip_suffix('}') {
        Some(open) if count_fields(task) == fields + filled.len() => {
            to.push_str(open);
            for (at, Filled { path, value }) in filled.iter().enumerate() {
                let comma = if at > 0 || fields > 0 { "," } else { "" };
                let name = path.last().map_or("", |name| &**name);
                // Volcano's names of fields need no escaping.
                let _ = write!(to, "{comma}\"{name}\":{value}");
            }
            to.push('}');
        }
        _ => to.push_str(&task.to_string()),
    }
}

fn is_in_tasks(filled: &Filled) -> bool {
    filled.path.get(1).is_some_and(|token| token == "tasks")
}

/// What was filled in, one by one, and the keys that the job gets.
fn tell_defaults(
    job: &mut Value,
    old: Option<&Value>,
    filled: impl Iterator<Item = Filled>,
    seed: Option<Seed>,
) -> Vec<PatchOperation> {
    let mut patch: Vec<PatchOperation> = filled.map(|Filled { path, value }| set_field(&path, value)).collect();
    let flags = job.pointer(SSH_FLAGS).cloned();
    share_key_pair(job, old, || KeyPair::from_seed(&seed?));
    if let Some(now) = job.pointer_mut(SSH_FLAGS).filter(|now| Some(&**now) != flags.as_ref()) {
        patch.push(set_field(&["spec", "plugins", "ssh"], now.take()));
    }
    patch
}

/// Refusals that are told.
const MOST_SENTENCES: usize = 20;
const SSH_FLAGS: &str = "/spec/plugins/ssh";

/// Refuses what can not be a job.
#[must_use]
pub fn validate_job(request: &ReviewRequest<'_, Value>, cache: &Cache) -> Verdict {
    let Some(job) = &request.object else { return Verdict::UNCHANGED };
    // The last update of a job that goes away only takes its finalizers.
    if job.pointer("/metadata/deletionTimestamp").is_some() {
        return Verdict::UNCHANGED;
    }
    // It changes where nothing else of the job may.
    let says = |job: &Value| job.pointer("/metadata/annotations").and_then(|all| all.get(DATA)).cloned();
    let is_said_now = request.is_create() || request.old_object.as_ref().is_some_and(|old| says(old) != says(job));
    if let (true, Some(Err(error))) = (is_said_now, data_of(job)) {
        return Verdict::deny_invalid(format!("metadata.annotations[{DATA}]: {error}"));
    }
    // What was said before is not told again.
    let known = request.old_object.as_ref().map(list_unread).unwrap_or_default();
    let unread: Vec<String> = list_unread(job).into_iter().filter(|text| !known.contains(text)).collect();
    // What a newer rule would refuse stays updatable where its spec does not change.
    if request.old_object.as_ref().is_some_and(|old| old.get("spec") == job.get("spec")) {
        return Verdict::Allow { patch: Vec::new(), warnings: unread };
    }
    let refusals = match (request.is_create(), &request.old_object) {
        (true, _) | (false, None) => create_refusals(job),
        (false, Some(old)) => update_refusals(old, job),
    };
    let mut sentences: Vec<String> = refusals.iter().map(caldera_crds::job_admission::Refusal::sentence).collect();
    if sentences.is_empty()
        && let Err(error) = caldera_crds::workload::read_gang(job)
    {
        sentences.push(error.to_string());
    }
    if !sentences.is_empty() {
        let more = sentences.len().saturating_sub(MOST_SENTENCES);
        sentences.truncate(MOST_SENTENCES);
        sentences.extend((more > 0).then(|| "and more".to_owned()));
        return Verdict::deny_invalid(sentences.join("; "));
    }
    let mut warnings = if request.is_create() { collect_warnings(job, cache) } else { Vec::new() };
    warnings.extend(unread);
    Verdict::Allow { patch: Vec::new(), warnings }
}

fn collect_warnings(job: &Value, cache: &Cache) -> Vec<String> {
    let name = queue_of(job);
    let name = name.as_str();
    let queue = cache.queues.get(name);
    // The controller opens what has no state yet.
    let state = queue.map(|queue| match queue.pointer("/status/state").and_then(Value::as_str) {
        None | Some("") => "Open",
        Some(state) => state,
    });
    let view = state.map(|state| QueueView { state, children: cache.count_children(name) });
    let refusals = queue_refusals(name, view.as_ref());
    let mut warnings: Vec<String> =
        refusals.iter().map(|refusal| format!("{}; the job will wait", refusal.why)).collect();
    let class = priority_class_of(job);
    if !class.is_empty() && cache.listed.contains("PriorityClass") && !cache.priority_classes.contains_key(class) {
        warnings.push(format!("PriorityClass {class:?} does not exist; the job's priority counts as 0"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decide::patch::tests::applied, observe::cache::PriorityClass};

    fn job() -> Value {
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns"},
            "spec": {"queue": "q", "minAvailable": 1, "tasks": [{
                "name": "t", "replicas": 2,
                "template": {"spec": {"restartPolicy": "Never", "containers": [{
                    "name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}},
                }]}},
            }]},
        })
    }

    fn create(object: Value) -> ReviewRequest<'static, Value> {
        ReviewRequest {
            uid: "u".into(),
            operation: "CREATE".into(),
            namespace: Some("ns".into()),
            name: None,
            dry_run: None,
            user_info: None,
            object: Some(object),
            old_object: None,
        }
    }

    fn default(request: ReviewRequest<'_, Value>) -> Verdict {
        default_job_review(request, None, Some([7; 32]))
    }

    /// An API server takes no JSON patch of more than 10,000 operations.
    #[test]
    fn a_job_of_five_thousand_tasks_gets_its_defaults_in_few_operations() {
        let mut large = job();
        large["spec"]["tasks"] = vec![job()["spec"]["tasks"][0].clone(); 5_000].into();
        large["spec"].as_object_mut().unwrap().remove("queue");
        let Verdict::Allow { patch, .. } = default(create(large.clone())) else { panic!() };
        assert!(patch.len() < 10, "{}", patch.len());
        let stored = applied(&large, &patch);
        let mut defaulted = large;
        fill_defaults(&mut defaulted);
        assert_eq!(stored, defaulted);
        assert_eq!(default(create(stored)), Verdict::UNCHANGED);
    }

    /// The patch is applied as the API server would.
    fn of_text(job: &Value) -> Value {
        let text = job.to_string();
        match default_long_job(serde_json::from_str(&text).unwrap(), None, Some([7; 32])) {
            Verdict::Allow { patch, .. } => applied(job, &patch),
            Verdict::AllowText { patch } => {
                let patch: json_patch::Patch = serde_json::from_str(&patch).unwrap();
                assert!(patch.0.len() < 10, "{}", patch.0.len());
                applied(job, &patch.0)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_job_whose_tasks_stay_text_gets_what_it_gets_otherwise() {
        let tasks = [
            job()["spec"]["tasks"][0].clone(),
            json!({}),
            json!(5),
            json!({"name": "", "minAvailable": null, "maxRetry": 0, "replicas": 3}),
            json!({"name": "a\"}{", "maxRetry": 2, "template": {"spec": {"hostNetwork": true}}}),
            json!({"replicas": 6, "partitionPolicy": {"totalPartitions": 3, "partitionSize": 2, "minPartitions": 2}}),
            json!({"name": "t", "minAvailable": 1, "maxRetry": 3}),
        ];
        for times in [0, 1, 1_000] {
            for plugins in [Value::Null, json!({"mpi": ["--master=t"]})] {
                let mut long = job();
                long["metadata"]["annotations"] = json!({"caldera.dev/rendezvous": "clusterset"});
                long["spec"]["tasks"] = tasks.iter().cycle().take(tasks.len() * times).cloned().collect();
                long["spec"]["plugins"] = plugins;
                long["spec"]["minAvailable"] = 0.into();
                let Verdict::Allow { patch, .. } = default(create(long.clone())) else { panic!() };
                assert_eq!(of_text(&long), applied(&long, &patch), "{times}");
            }
        }
    }

    #[test]
    fn defaults_are_volcanos() {
        let mut bare = job();
        bare["spec"].as_object_mut().unwrap().remove("queue");
        let Verdict::Allow { patch, .. } = default(create(bare.clone())) else { panic!() };
        let defaulted = applied(&bare, &patch);
        assert_eq!(defaulted["spec"]["queue"], "default");
        assert_eq!(defaulted["spec"]["tasks"][0]["minAvailable"], 2);
        assert_eq!(default(create(defaulted)), Verdict::UNCHANGED);
    }

    #[test]
    fn a_job_that_names_no_queue_is_in_that_of_its_namespace_and_stays_there() {
        let mut bare = job();
        bare["spec"].as_object_mut().unwrap().remove("queue");
        let own = || Some("team".to_owned());
        let Verdict::Allow { patch, .. } = default_job_review(create(bare.clone()), own(), None) else { panic!() };
        let stored = applied(&bare, &patch);
        assert_eq!(stored["spec"]["queue"], "team");
        let long = serde_json::to_string(&bare).unwrap();
        let long = default_long_job(serde_json::from_str(&long).unwrap(), own(), None);
        let Verdict::Allow { patch, .. } = long else { panic!() };
        assert_eq!(applied(&bare, &patch), stored);
        let Verdict::Allow { patch, .. } = default_job_review(create(job()), own(), None) else { panic!() };
        assert_eq!(applied(&job(), &patch)["spec"]["queue"], "q", "it names one");
        // Applied again as its user wrote it, when the namespace has another queue.
        let Verdict::Allow { patch, .. } = default_job_review(update(&stored, &bare), None, None) else { panic!() };
        assert_eq!(applied(&bare, &patch), stored);
        // The schema wrote what nobody names, upon both.
        let mut filled = bare.clone();
        filled["spec"]["queue"] = "default".into();
        let long = default_long_job(serde_json::from_str(&filled.to_string()).unwrap(), own(), None);
        for verdict in [
            default_job_review(create(filled.clone()), own(), None),
            long,
            default_job_review(update(&stored, &filled), own(), None),
        ] {
            let Verdict::Allow { patch, .. } = verdict else { panic!() };
            assert_eq!(applied(&filled, &patch)["spec"]["queue"], "team");
        }
        // Who was there before the namespace had a queue is not moved.
        let mut old = filled.clone();
        old["spec"]["tasks"][0]["minAvailable"] = 2.into();
        let moved = match default_job_review(update(&old, &filled), own(), None) {
            Verdict::Allow { patch, .. } => applied(&filled, &patch)["spec"]["queue"].clone(),
            _ => filled["spec"]["queue"].clone(),
        };
        assert_eq!(moved, "default");
    }

    fn update(old: &Value, new: &Value) -> ReviewRequest<'static, Value> {
        ReviewRequest { operation: "UPDATE".into(), old_object: Some(old.clone()), ..create(new.clone()) }
    }

    #[test]
    fn a_manifest_may_be_applied_again() {
        let Verdict::Allow { patch, .. } = default(create(job())) else { panic!() };
        let stored = applied(&job(), &patch);
        // What kubectl makes of it: the tasks as the user wrote them.
        let mut again = stored.clone();
        again["spec"]["tasks"] = job()["spec"]["tasks"].clone();
        let Verdict::Deny(_) = validate_job(&update(&stored, &again), &Cache::default()) else { panic!() };
        let Verdict::Allow { patch, .. } = default(update(&stored, &again)) else { panic!() };
        assert_eq!(applied(&again, &patch), stored);
        assert_eq!(validate_job(&update(&stored, &stored), &Cache::default()), Verdict::UNCHANGED);
    }

    #[test]
    fn an_mpi_job_of_a_clusterset_may_be_split_from_its_creation_on() {
        let mut mpi = job();
        mpi["metadata"]["annotations"] = json!({"caldera.dev/rendezvous": "clusterset"});
        mpi["spec"]["plugins"] = json!({"mpi": ["--master=t"]});
        mpi["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["command"] = json!(["mpirun"]);
        let Verdict::Allow { patch, .. } = default(create(mpi.clone())) else { panic!() };
        let stored = applied(&mpi, &patch);
        assert_eq!(caldera_crds::workload::read_gang(&stored).unwrap().one_cluster, None);
        let mut again = stored.clone();
        again["spec"]["plugins"] = mpi["spec"]["plugins"].clone();
        again["spec"]["tasks"] = mpi["spec"]["tasks"].clone();
        let Verdict::Allow { patch, .. } = default(update(&stored, &again)) else { panic!() };
        assert_eq!(applied(&again, &patch), stored);
    }

    #[test]
    fn a_job_that_never_had_defaults_is_given_none() {
        let mut scaled = job();
        scaled["spec"]["tasks"][0]["replicas"] = 3.into();
        assert_eq!(default(update(&job(), &scaled)), Verdict::UNCHANGED);
        let mut labelled = job();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(default(update(&job(), &labelled)), Verdict::UNCHANGED);
    }

    #[test]
    fn a2_24_a_job_may_come_before_its_queue_with_a_warning() {
        let mut cache = Cache::default();
        let Verdict::Allow { warnings, .. } = validate_job(&create(job()), &cache) else { panic!() };
        assert!(warnings[0].contains("\"q\" does not exist"), "{warnings:?}");
        cache.queues.insert("q".into(), json!({}));
        assert_eq!(validate_job(&create(job()), &cache), Verdict::UNCHANGED);
        cache.queues.insert("q".into(), json!({"status": {"state": "Closed"}}));
        let Verdict::Allow { warnings, .. } = validate_job(&create(job()), &cache) else { panic!() };
        assert!(warnings[0].contains("Closed"), "{warnings:?}");
    }

    #[test]
    fn an_unknown_priority_class_is_a_warning() {
        let mut cache = Cache::default();
        cache.queues.insert("q".into(), json!({}));
        cache.listed.insert("PriorityClass");
        let mut object = job();
        object["spec"]["priorityClassName"] = "nobody".into();
        let Verdict::Allow { warnings, .. } = validate_job(&create(object.clone()), &cache) else { panic!() };
        assert_eq!(warnings, ["PriorityClass \"nobody\" does not exist; the job's priority counts as 0"]);
        cache.priority_classes.insert("nobody".into(), PriorityClass { value: 5, is_default: false });
        assert_eq!(validate_job(&create(object), &cache), Verdict::UNCHANGED);
    }

    #[test]
    fn a_job_that_says_where_its_data_is_says_it_so_that_it_can_be_read() {
        let with = |text: &str| {
            let mut object = job();
            object["metadata"]["annotations"] = json!({"caldera.dev/data": text});
            object
        };
        let mut cache = Cache::default();
        cache.queues.insert("q".into(), json!({}));
        assert_eq!(validate_job(&create(with("cluster=member1:500,region=eu|region=us")), &cache), Verdict::UNCHANGED);
        let refused = |request: &ReviewRequest<'_, Value>| {
            let Verdict::Deny(denial) = validate_job(request, &cache) else { panic!("it is taken") };
            denial.message
        };
        let message = refused(&create(with("node=n1")));
        let words = "metadata.annotations[caldera.dev/data]: \"node=n1\" is not KEY=VALUE with cluster, region, zone or provider";
        assert!(message.contains(words), "{message}");
        assert!(refused(&update(&job(), &with("cluster=a:0"))).contains("\"0\" is no size: a whole number from 1 to"));
        // What is there already stays, also when something else changes.
        let mut labelled = with("node=n1");
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(validate_job(&update(&with("node=n1"), &labelled), &cache), Verdict::UNCHANGED);
    }

    #[test]
    fn a_change_of_labels_is_never_refused() {
        let mut bad = job();
        bad["spec"]["minAvailable"] = 99.into();
        let mut labelled = bad.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        let update = |old: &Value, new: &Value| {
            let mut request = create(new.clone());
            request.operation = "UPDATE".into();
            request.old_object = Some(old.clone());
            validate_job(&request, &Cache::default())
        };
        assert_eq!(update(&bad, &labelled), Verdict::UNCHANGED);
        let Verdict::Deny(denial) = update(&job(), &bad) else { panic!() };
        assert!(denial.message.contains("99"), "{}", denial.message);
    }

    /// A typing error in an annotation was silence.
    #[test]
    fn an_annotation_that_is_not_understood_is_a_warning_when_it_is_written() {
        let estimated = |value: &str| {
            let mut object = job();
            object["spec"].as_object_mut().unwrap().remove("queue");
            object["metadata"]["annotations"] = json!({"caldera.dev/running-estimate": value});
            object
        };
        let warnings = |request: ReviewRequest<'_, Value>| {
            let Verdict::Allow { warnings, .. } = validate_job(&request, &Cache::default()) else { panic!() };
            let of_annotations = warnings.into_iter().filter(|text| text.contains("annotation"));
            of_annotations.collect::<Vec<_>>()
        };
        let told = warnings(create(estimated("90")));
        assert!(told.len() == 1 && told[0].contains("\"90\"") && told[0].contains("45m"), "{told:?}");
        assert!(warnings(create(estimated("90m"))).is_empty());
        let update = |old: &str, new: &str| ReviewRequest {
            operation: "UPDATE".into(),
            old_object: Some(estimated(old)),
            ..create(estimated(new))
        };
        assert_eq!(warnings(update("90m", "1d")).len(), 1);
        assert!(warnings(update("1d", "1d")).is_empty(), "it was told before");
    }

    #[test]
    fn what_can_not_be_a_job_is_refused_with_field_value_and_limit() {
        let refused = |change: &dyn Fn(&mut Value), words: &[&str]| {
            let mut object = job();
            change(&mut object);
            let Verdict::Deny(denial) = validate_job(&create(object), &Cache::default()) else { panic!("{words:?}") };
            assert_eq!(denial.code, 422);
            for word in words {
                assert!(denial.message.contains(word), "{word} not in {}", denial.message);
            }
        };
        refused(&|job| job["spec"]["tasks"] = json!([]), &["spec.tasks"]);
        refused(&|job| job["spec"]["minAvailable"] = 3.into(), &["minAvailable", "3", "2"]);
        refused(&|job| job["spec"]["tasks"][0]["minAvailable"] = 3.into(), &["spec.tasks[0].minAvailable", "3", "2"]);
        let request = "/spec/tasks/0/template/spec/containers/0/resources/requests/cpu";
        refused(&|job| *job.pointer_mut(request).unwrap() = "-1".into(), &["cpu", "-1"]);
        refused(&|job| *job.pointer_mut(request).unwrap() = "lots".into(), &["cpu", "lots"]);
    }
}
