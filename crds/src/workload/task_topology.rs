//! Which tasks of a Volcano Job want to be together and which apart, by its annotations.
//!
//! Rule: Volcano's `pkg/scheduler/plugins/task-topology/topology.go`. Groups are separated by semicolons, tasks of a
//! group by commas; a group of one task is about its own pods. A task that the job has not, or that a group names
//! twice, is a fault, and with a fault none of the annotations counts. The order of tasks is checked with the others
//! and read by the members alone: it says whose pods find a node first. Here every pod has its cluster at once.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::task_topology::TaskTopology;
use serde_json::Value;

use crate::{
    job_admission::default_task_name,
    names::volcano::{TASK_AFFINITY, TASK_ANTI_AFFINITY, TASK_ORDER},
};

/// The most tasks that one annotation names, so that what is asked of a division is soon told.
const MOST_NAMES: usize = 64;

/// What the job's annotations say, or which of them is wrong.
pub(super) fn read_task_topology(job: &Value) -> Result<TaskTopology, String> {
    let annotation = |name: &str| job["metadata"]["annotations"][name].as_str();
    let said = [TASK_AFFINITY, TASK_ANTI_AFFINITY, TASK_ORDER].map(annotation);
    if said == [None; 3] {
        return Ok(TaskTopology::none());
    }
    let tasks = index_tasks_by_name(job);
    let explain = |name: &'static str| {
        move |fault| format!("annotation {name}: {fault}; no wish of task-topology counts with a fault in one of them")
    };
    let [affine, anti_affine, order] = said;
    let groups = |said: Option<&str>| read_groups(&tasks, said.into_iter().flat_map(|said| said.split(';')));
    read_groups(&tasks, order.into_iter()).map_err(explain(TASK_ORDER))?;
    Ok(TaskTopology {
        affine: groups(affine).map_err(explain(TASK_AFFINITY))?,
        anti_affine: groups(anti_affine).map_err(explain(TASK_ANTI_AFFINITY))?,
    })
}

/// The job's tasks by name, with their places.
fn index_tasks_by_name(job: &Value) -> BTreeMap<String, usize> {
    let tasks = job["spec"]["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |(at, task): (usize, &Value)| match task["name"].as_str() {
        None | Some("") => (default_task_name(at), at),
        Some(name) => (name.to_owned(), at),
    };
    tasks.iter().enumerate().map(name).collect()
}

/// What each group of an annotation names; one without a task is none.
fn read_groups<'g>(
    tasks: &BTreeMap<String, usize>,
    said: impl Iterator<Item = &'g str>,
) -> Result<Vec<Vec<usize>>, String> {
    let mut left = MOST_NAMES;
    let mut groups = Vec::new();
    for group in said {
        let mut named = BTreeSet::new();
        for name in group.split(',').filter(|name| !name.is_empty()) {
            left = left.checked_sub(1).ok_or_else(|| format!("it names more than {MOST_NAMES} tasks"))?;
            let Some(task) = tasks.get(name) else {
                return Err(format!("{:?} is no task of the job", name.chars().take(63).collect::<String>()));
            };
            if !named.insert(*task) {
                return Err(format!("task {name:?} is in one group twice"));
            }
        }
        // What stands alone is about its own pods; what others were left out beside is about nothing.
        if !named.is_empty() && (named.len() > 1 || !group.contains(',')) {
            groups.push(named.into_iter().collect());
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workload::annotations::list_ignored_annotations;

    fn job(annotations: &Value) -> Value {
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"annotations": annotations},
            "spec": {"tasks": [{"name": "ps"}, {"name": "worker"}, {}]},
        })
    }

    #[test]
    fn groups_are_read_as_volcano_reads_them() {
        let read = read_task_topology(&job(&json!({
            TASK_AFFINITY: "ps,worker;worker", TASK_ANTI_AFFINITY: "ps;", TASK_ORDER: "worker,ps",
        })));
        assert_eq!(read, Ok(TaskTopology { affine: vec![vec![0, 1], vec![1]], anti_affine: vec![vec![0]] }));
        let read = read_task_topology(&job(&json!({TASK_AFFINITY: "ps,;,;default2,ps"})));
        assert_eq!(read, Ok(TaskTopology { affine: vec![vec![0, 2]], anti_affine: vec![] }));
        assert_eq!(read_task_topology(&job(&json!({}))), Ok(TaskTopology::none()));
    }

    #[test]
    fn with_a_fault_in_one_annotation_none_counts_and_the_writer_is_reported() {
        let many = vec!["ps"; MOST_NAMES + 1].join(";");
        for (name, wrong, reported) in [
            (TASK_AFFINITY, "ps,worker,chief", "\"chief\" is no task of the job"),
            (TASK_ANTI_AFFINITY, "worker,worker", "task \"worker\" is in one group twice"),
            (TASK_ORDER, "ps;worker", "is no task of the job"),
            (TASK_AFFINITY, &many, "it names more than 64 tasks"),
        ] {
            let mut job = job(&json!({TASK_AFFINITY: "ps,worker"}));
            job["metadata"]["annotations"][name] = wrong.into();
            let texts = list_ignored_annotations(&job);
            assert!(texts.len() == 1 && texts[0].contains(name) && texts[0].contains(reported), "{texts:?}");
            assert!(read_task_topology(&job).is_err());
        }
        assert!(list_ignored_annotations(&job(&json!({TASK_AFFINITY: "ps,worker", TASK_ORDER: "worker"}))).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_said_names_tasks_of_the_job_and_each_once_in_a_group(
            said in proptest::collection::vec("(ps|worker|default2|x|,|;){0,9}", 3),
        ) {
            let job = job(&json!({TASK_AFFINITY: said[0], TASK_ANTI_AFFINITY: said[1], TASK_ORDER: said[2]}));
            let read = read_task_topology(&job);
            proptest::prop_assert_eq!(read.is_err(), !list_ignored_annotations(&job).is_empty());
            let read = read.unwrap_or_default();
            for group in read.affine.iter().chain(&read.anti_affine) {
                proptest::prop_assert!(!group.is_empty() && group.is_sorted_by(|a, b| a < b) && group.iter().all(|task| *task < 3));
            }
        }
    }

    #[test]
    fn a_wish_of_tasks_means_nothing_on_other_kinds() {
        let mut object = job(&json!({TASK_AFFINITY: "ps,worker"}));
        (object["apiVersion"], object["kind"]) = ("apps/v1".into(), "Deployment".into());
        assert_eq!(list_ignored_annotations(&object).len(), 1);
    }
}
