//! Which priority classes a job may name in its queue, when it is submitted and whenever it names another one.
//!
//! Rule: as [`caldera_crds::allowed_classes`] says of a queue and of those above it. A Volcano Job is refused a class
//! at submission, and at an update a class that it did not name in that place before. Other kinds are not asked about
//! when they change. So the copy that a Work sends is held against what the Work was: a class that the copy did not
//! have in that place goes out only if the queue of its record takes it. Where the Work is new, or the task is new in
//! it, there is nothing to compare with: there the class may not be above the priority that was admitted. What runs
//! runs on: a class that was there already is never refused, whatever the queue says since.
//!
//! Nor is a class taken that is longer than any name of Kubernetes.

use std::{collections::BTreeMap, iter};

use caldera_core::{admission::Admission, gang::QueueName, reason::Reason};
use caldera_crds::{
    allowed_classes::AllowedClasses,
    dns::LONGEST_SUBDOMAIN,
    workload::{priority_class_of, queue_of, read_gang_of_copy},
};
use serde_json::Value;

use super::{
    verdict::{Denial, Verdict},
    waiting_limits::list_queue_path,
};
use crate::observe::{
    cache::{Cache, Snapshot},
    request::ReviewRequest,
};

/// Where a job names a class: for itself, or for the pods of the task of this number.
type Place = Option<usize>;

/// Refuses a job that names a priority class which its queue does not take, for itself or for pods, and did not name it
/// there before; `None` where it does not.
#[must_use]
pub fn refuse_priority_class(request: &ReviewRequest<'_, Value>, cache: &Cache) -> Option<Verdict> {
    let job = request.object.as_ref().filter(|job| job.pointer("/metadata/deletionTimestamp").is_none())?;
    let old = request.before();
    let tasks = job.pointer("/spec/tasks").and_then(Value::as_array).map_or(0, Vec::len);
    let places = iter::once(None).chain((0..tasks).map(Some));
    let named = places.map(|place| (place, read_class(job, place)));
    let is_new =
        |(place, class): &(Place, &str)| !class.is_empty() && old.is_none_or(|old| read_class(old, *place) != *class);
    let named: Vec<(Place, &str)> = named.filter(is_new).collect();
    if let Some((place, class)) = named.iter().find(|(_, class)| class.len() > LONGEST_SUBDOMAIN) {
        let (field, characters) = (name_field(*place), class.len());
        let why = format!("a name of {characters} characters, and {LONGEST_SUBDOMAIN} are the most");
        return Some(Verdict::deny_invalid(format!("{field}: {why}")));
    }
    let queue: QueueName = queue_of(job);
    let refuse = |(by, allowed): (QueueName, AllowedClasses)| {
        named.iter().find_map(|(place, class)| Some((*place, allowed.refuse(&queue, &by, class)?)))
    };
    let (place, refusal) = list_limits(&queue, cache).find_map(refuse)?;
    let message = format!("{}: {refusal}", name_field(place));
    Some(Verdict::Deny(Denial { code: 403, reason: "Forbidden", message }))
}

fn read_class(job: &Value, place: Place) -> &str {
    let Some(task) = place else { return priority_class_of(job) };
    let task = job.pointer("/spec/tasks").and_then(|tasks| tasks.get(task));
    task.and_then(|task| task.pointer("/template/spec/priorityClassName")?.as_str()).unwrap_or_default()
}

fn name_field(place: Place) -> String {
    match place {
        None => "spec.priorityClassName".to_owned(),
        Some(task) => format!("spec.tasks[{task}].template.spec.priorityClassName"),
    }
}

/// What a queue and those above it say of classes, where they say something.
fn list_limits<'a>(queue: &'a QueueName, cache: &'a Cache) -> impl Iterator<Item = (QueueName, AllowedClasses)> {
    let path = list_queue_path(queue.as_str(), cache).into_iter();
    path.filter_map(|by| Some((by.into(), AllowedClasses::of_queue(cache.queues.get(by)?)?)))
}

/// Why a copy may not go out with the classes that it names; `old` is what the Work said of it before, if it did.
///
/// # Errors
/// The queue of its record, or one above it, does not take one that is new.
pub fn check_classes_of_copy(
    copy: &Value,
    old: Option<&Value>,
    record: &Admission,
    snapshot: Snapshot<'_>,
) -> Result<(), String> {
    let mut limits = list_limits(&record.queue, snapshot.cache).peekable();
    if limits.peek().is_none() {
        return Ok(());
    }
    let before = old.map(list_classes_of_copy).unwrap_or_default();
    let mut named = list_classes_of_copy(copy);
    named.retain(|task, class| match before.get(task) {
        Some(before) => before != class,
        None => snapshot.priority_of(Some(class)).is_none_or(|value| value > record.priority),
    });
    let refuse = |(by, allowed): (QueueName, AllowedClasses)| -> Option<Reason> {
        named.values().find_map(|class| allowed.refuse(&record.queue, &by, class))
    };
    match limits.find_map(refuse) {
        Some(refusal) => Err(format!("{refusal}, and it was not admitted with that class")),
        None => Ok(()),
    }
}

/// The classes of a copy: by task, and its own by no name.
fn list_classes_of_copy(copy: &Value) -> BTreeMap<String, String> {
    let own = (String::new(), priority_class_of(copy).to_owned());
    // What can not be read is refused before, as it goes out.
    let tasks = read_gang_of_copy(copy).map(|gang| gang.tasks).unwrap_or_default();
    tasks.into_iter().map(|task| (task.name.to_string(), task.priority_class)).chain([own]).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        decide::job::tests::{create, job, update},
        observe::cache::PriorityClass,
    };

    fn cache() -> Cache {
        let mut cache = Cache::default();
        let annotations = json!({"caldera.dev/priority-classes": "batch,urgent"});
        cache.queues.insert("top".into(), json!({"metadata": {"name": "top", "annotations": annotations}}));
        cache.queues.insert("q".into(), json!({"metadata": {"name": "q"}, "spec": {"parent": "top"}}));
        cache.listed.insert("PriorityClass");
        for (name, value) in [("batch", 1), ("urgent", 10), ("critical", 100)] {
            cache.priority_classes.insert(name.to_owned(), PriorityClass { value, is_default: false });
        }
        cache
    }

    fn with_classes(own: &str, of_pods: &str) -> Value {
        let mut job = job();
        job["spec"]["priorityClassName"] = own.into();
        job["spec"]["tasks"][0]["template"]["spec"]["priorityClassName"] = of_pods.into();
        job
    }

    fn say(request: &ReviewRequest<'_, Value>) -> Option<String> {
        refuse_priority_class(request, &cache()).map(|verdict| match verdict {
            Verdict::Deny(denial) => denial.message,
            other => panic!("{other:?}"),
        })
    }

    const REFUSED: &str = "queue top, above queue q, takes no jobs of priority class critical: of batch, urgent alone";

    #[test]
    fn a_job_of_a_priority_class_that_a_queue_above_does_not_take_is_refused_with_those_that_it_takes() {
        assert_eq!(say(&create(job())), None);
        assert_eq!(say(&create(with_classes("urgent", "batch"))), None);
        let reported = format!("spec.priorityClassName: {REFUSED}");
        assert_eq!(say(&create(with_classes("critical", ""))), Some(reported));
        let reported = format!("spec.tasks[0].template.spec.priorityClassName: {REFUSED}");
        assert_eq!(say(&create(with_classes("", "critical"))), Some(reported));
    }

    #[test]
    fn a_job_that_changes_to_a_class_that_its_queue_does_not_take_is_refused_and_one_that_has_it_is_not() {
        for old in [job(), with_classes("batch", "batch")] {
            for new in [with_classes("critical", "batch"), with_classes("batch", "critical")] {
                assert!(say(&update(&old, &new)).is_some_and(|reported| reported.ends_with(REFUSED)));
            }
        }
        // It was there before the queue said so.
        let mut old = with_classes("critical", "critical");
        assert_eq!(say(&update(&old, &old)), None);
        let mut more = old.clone();
        more["spec"]["tasks"][0]["replicas"] = 3.into();
        assert_eq!(say(&update(&old, &more)), None);
        assert_eq!(say(&update(&old, &with_classes("urgent", "critical"))), None);
        assert_eq!(say(&update(&old, &job())), None);
        // It goes away.
        old = job();
        let mut gone = with_classes("critical", "");
        gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(say(&update(&old, &gone)), None);
    }

    #[test]
    fn a_class_longer_than_any_name_is_refused_and_not_said_again() {
        let long = "c".repeat(500_000);
        let refuse = |request: &ReviewRequest<'_, Value>| match refuse_priority_class(request, &Cache::default()) {
            Some(Verdict::Deny(denial)) => Some((denial.code, denial.message)),
            _ => None,
        };
        let reported = "spec.priorityClassName: a name of 500000 characters, and 253 are the most".to_owned();
        assert_eq!(refuse(&create(with_classes(&long, ""))), Some((422, reported.clone())));
        assert_eq!(refuse(&update(&job(), &with_classes(&long, ""))), Some((422, reported)));
        assert!(refuse(&create(with_classes("", &long))).is_some_and(|(_, reported)| reported.len() < 200));
        assert_eq!(refuse(&create(with_classes(&"c".repeat(253), ""))), None);
        let old = with_classes(&long, "");
        assert_eq!(refuse(&update(&old, &old)), None);
    }

    fn check(copy: &Value, old: Option<&Value>, priority: i32) -> Result<(), String> {
        let record = json!({"queue": "q", "priority": priority, "copies": 1, "tasks": {"t": 2}, "charged": {}});
        let record = Admission::parse(&record.to_string()).unwrap();
        check_classes_of_copy(copy, old, &record, Snapshot::of_cache(&cache()))
    }

    #[test]
    fn a_copy_that_changes_to_a_class_that_its_queue_does_not_take_is_refused_and_one_that_has_it_is_not() {
        let (batch, critical) = (with_classes("batch", ""), with_classes("critical", ""));
        assert_eq!(check(&with_classes("urgent", "urgent"), Some(&batch), 1), Ok(()));
        for new in [&critical, &with_classes("batch", "critical")] {
            let reported = check(new, Some(&batch), 1).unwrap_err();
            assert_eq!(reported, format!("{REFUSED}, and it was not admitted with that class"));
            assert_eq!(check(new, Some(new), 1), Ok(()), "the queue said so since");
        }
        assert_eq!(check(&batch, Some(&critical), 100), Ok(()));
    }

    #[test]
    fn a_new_copy_has_no_class_above_what_was_admitted_that_its_queue_does_not_take() {
        let critical = with_classes("critical", "");
        assert!(check(&critical, None, 1).is_err(), "it was edited since");
        assert_eq!(check(&critical, None, 100), Ok(()), "it was admitted with it");
        let mut another = with_classes("critical", "critical");
        another["spec"]["tasks"][0]["name"] = "u".into();
        assert_eq!(check(&another, Some(&critical), 100), Ok(()), "the first pods of a task here");
        assert!(check(&another, Some(&critical), 1).is_err());
        assert_eq!(check(&with_classes("urgent", "batch"), None, 1), Ok(()));
    }
}
