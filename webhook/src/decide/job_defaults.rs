//! Volcano's defaults for Jobs on the host, the queue of a job that names none, and keys for the pods of a split job.
//!
//! Rule (Volcano `pkg/webhooks/admission/jobs/mutate`): Volcano sets defaults on creation only. A manifest that is
//! applied again takes them out of its tasks, because a list is replaced whole, and Volcano refuses that change. So a
//! job that has the defaults gets them back. The queue is the one of the namespace, if it has one, else Volcano's.
//!
//! Memory is bounded: a job is changed in place, the tasks of a long one are read one after the other and stay text,
//! and where there would be more than [`MOST_OPERATIONS`] changes one operation replaces the list of tasks.

use std::fmt::Write;

use caldera_crds::{
    job_admission::{Defaults, Filled, fill_defaults, fill_defaults_with_queue},
    names::volcano::DEFAULT_QUEUE,
};
use json_patch::PatchOperation;
use serde_json::{Map, Value, json, value::RawValue};

pub use super::ssh_keys::Seed;
use super::{
    patch::{MOST_OPERATIONS, set_field},
    ssh_keys::{KeyPair, add_missing_key_pair},
    verdict::Verdict,
};
use crate::observe::{long_job::LongJob, request::ReviewRequest};

/// Fills in Volcano's defaults, and the keys that a split job's pods need for each other; those of a new pair are made
/// of `seed`. A new job that names no queue is in `queue`, its namespace's, or in Volcano's; one that is applied again
/// without stays in its own. The schema writes `default` where none is named, so where its namespace has a queue that
/// name is none. The job is changed in place: a copy of a large one would take as much memory again.
#[must_use]
pub fn fill_defaults_of_job(request: ReviewRequest<'_, Value>, queue: Option<String>, seed: Option<Seed>) -> Verdict {
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
        remove_default_queue_name(&mut job);
    }
    let filled = fill_defaults_with_queue(&mut job, if is_create { queue } else { its_own });
    let one_by_one = filled.len() <= MOST_OPERATIONS;
    let reported = filled.into_iter().filter(|filled| one_by_one || !is_in_tasks(filled));
    let mut patch = build_defaults_patch(&mut job, old.as_ref(), reported, seed);
    if let (false, Some(tasks)) = (one_by_one, job.pointer_mut("/spec/tasks")) {
        patch.push(set_field(&["spec", "tasks"], tasks.take()));
    }
    Verdict::allow_with(patch)
}

/// The same for a new job whose tasks are text: one after the other is read and forgotten, and those that replace them
/// are text again. `more` is done to it too.
#[must_use]
pub fn fill_defaults_of_long_job(
    job: LongJob<'_>,
    queue: Option<String>,
    seed: Option<Seed>,
    more: Vec<PatchOperation>,
) -> Verdict {
    let LongJob { rest: mut job, tasks } = job;
    if queue.is_some() {
        remove_default_queue_name(&mut job);
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
    let reported = defaults.filled.into_iter().filter(|filled| one_by_one || !is_in_tasks(filled));
    let mut patch = build_defaults_patch(&mut job, None, reported, seed);
    patch.extend(more);
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

fn remove_default_queue_name(job: &mut Value) {
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
fn build_defaults_patch(
    job: &mut Value,
    old: Option<&Value>,
    filled: impl Iterator<Item = Filled>,
    seed: Option<Seed>,
) -> Vec<PatchOperation> {
    let mut patch: Vec<PatchOperation> = filled.map(|Filled { path, value }| set_field(&path, value)).collect();
    let flags = job.pointer(SSH_FLAGS).cloned();
    add_missing_key_pair(job, old, || KeyPair::from_seed(&seed?));
    if let Some(now) = job.pointer_mut(SSH_FLAGS).filter(|now| Some(&**now) != flags.as_ref()) {
        patch.push(set_field(&["spec", "plugins", "ssh"], now.take()));
    }
    patch
}

const SSH_FLAGS: &str = "/spec/plugins/ssh";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decide::{
            job::{
                tests::{create, job, update},
                validate_job,
            },
            patch::tests::applied,
        },
        observe::cache::Cache,
    };

    fn default(request: ReviewRequest<'_, Value>) -> Verdict {
        fill_defaults_of_job(request, None, Some([7; 32]))
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
        match fill_defaults_of_long_job(serde_json::from_str(&text).unwrap(), None, Some([7; 32]), Vec::new()) {
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
        let Verdict::Allow { patch, .. } = fill_defaults_of_job(create(bare.clone()), own(), None) else { panic!() };
        let stored = applied(&bare, &patch);
        assert_eq!(stored["spec"]["queue"], "team");
        let long = serde_json::to_string(&bare).unwrap();
        let long = fill_defaults_of_long_job(serde_json::from_str(&long).unwrap(), own(), None, Vec::new());
        let Verdict::Allow { patch, .. } = long else { panic!() };
        assert_eq!(applied(&bare, &patch), stored);
        let Verdict::Allow { patch, .. } = fill_defaults_of_job(create(job()), own(), None) else { panic!() };
        assert_eq!(applied(&job(), &patch)["spec"]["queue"], "q", "it names one");
        // Applied again as its user wrote it, when the namespace has another queue.
        let Verdict::Allow { patch, .. } = fill_defaults_of_job(update(&stored, &bare), None, None) else { panic!() };
        assert_eq!(applied(&bare, &patch), stored);
        // The schema wrote what nobody names, upon both.
        let mut filled = bare.clone();
        filled["spec"]["queue"] = "default".into();
        let long =
            fill_defaults_of_long_job(serde_json::from_str(&filled.to_string()).unwrap(), own(), None, Vec::new());
        for verdict in [
            fill_defaults_of_job(create(filled.clone()), own(), None),
            long,
            fill_defaults_of_job(update(&stored, &filled), own(), None),
        ] {
            let Verdict::Allow { patch, .. } = verdict else { panic!() };
            assert_eq!(applied(&filled, &patch)["spec"]["queue"], "team");
        }
        // Who was there before the namespace had a queue is not moved.
        let mut old = filled.clone();
        old["spec"]["tasks"][0]["minAvailable"] = 2.into();
        let moved = match fill_defaults_of_job(update(&old, &filled), own(), None) {
            Verdict::Allow { patch, .. } => applied(&filled, &patch)["spec"]["queue"].clone(),
            _ => filled["spec"]["queue"].clone(),
        };
        assert_eq!(moved, "default");
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
}
