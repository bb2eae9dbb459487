//! Reads the annotations that a user sets on a workload, and warns of each one that is ignored.
//!
//! Rule: a value that is not understood counts as absent. There are two exceptions, which take the safe value: a wrong
//! `volcano.sh/preemptable` counts as `false`, and a wrong `caldera.dev/rendezvous` that is not empty counts as `none`.
//! A warning also names each unknown `caldera.dev/` annotation, and each one that only Volcano Jobs may have. The
//! webhook warns at submission, by the same functions that the controller reads with. `caldera.dev/data` is not
//! ignored but refused where it is wrong: see [`read_data_location`](super::read_data_location).

use caldera_core::{
    cluster_choice::{ClusterChoice, parse_names},
    status::duration::parse_whole_seconds,
};
use serde_json::Value;

use super::{WorkloadKind, task_topology};
use crate::{
    dns::is_dns_subdomain,
    names::{
        caldera::{
            ACTED_BY, ACTION, CHECKPOINT_INTERVAL, CLUSTERS, DATA, DEVICE_CLAIMS, END_AS, EXCLUDE_CLUSTERS, HOLD,
            MAX_RUN_TIME, PREFIX, RENDEZVOUS, RENDEZVOUS_CLUSTERSET, RENDEZVOUS_NONE, RUNNING_ESTIMATE, SSH_SECRET,
            SUBMITTED, SUBMITTER, SUSPENDED,
        },
        volcano::{PREEMPTABLE, SLA_WAITING_TIME, TASK_AFFINITY, TASK_ANTI_AFFINITY, TASK_ORDER},
    },
    object::annotation_of,
};

/// The phases as which a Volcano Job is ended, by its user or by the controller for its policies.
const ENDS: [&str; 3] = ["Terminated", "Completed", "Failed"];
/// As Go's `strconv.ParseBool` has it.
const TRUE: [&str; 6] = ["1", "t", "T", "TRUE", "true", "True"];
const FALSE: [&str; 6] = ["0", "f", "F", "FALSE", "false", "False"];

/// Whether the user holds it.
#[must_use]
pub fn is_held(object: &Value) -> bool {
    annotation_of(object, HOLD) == Some("true")
}

/// Whether the user suspended it by annotation.
#[must_use]
pub fn is_suspended(object: &Value) -> bool {
    annotation_of(object, SUSPENDED) == Some("true")
}

/// Which clusters its user lets it go to; `None` for any.
#[must_use]
pub fn read_cluster_choice(object: &Value) -> Option<ClusterChoice> {
    let names = |annotation| annotation_of(object, annotation).and_then(parse_names).unwrap_or_default();
    let choice = ClusterChoice { only: names(CLUSTERS), exclude: names(EXCLUDE_CLUSTERS) };
    (!choice.is_empty()).then_some(choice)
}

/// The phase as which a Volcano Job is to end now.
#[must_use]
pub fn read_end_phase(object: &Value) -> Option<&'static str> {
    let said = annotation_of(object, END_AS)?;
    ENDS.into_iter().find(|end| *end == said)
}

/// Seconds that it runs at most.
pub(super) fn running_estimate(object: &Value) -> Option<i64> {
    annotation_of(object, RUNNING_ESTIMATE).and_then(parse_whole_seconds)
}

/// Seconds after which a run of it is to be ended, as it says itself.
#[must_use]
pub fn max_run_time(object: &Value) -> Option<i64> {
    annotation_of(object, MAX_RUN_TIME).and_then(parse_whole_seconds)
}

/// Seconds after which it has saved its work, as it says itself.
#[must_use]
pub fn checkpoint_interval(object: &Value) -> Option<i64> {
    annotation_of(object, CHECKPOINT_INTERVAL).and_then(parse_whole_seconds)
}

pub(super) fn is_true(value: &str) -> bool {
    TRUE.contains(&value)
}

/// A sentence for each annotation of a workload that counts as absent, as its value or its name is not understood.
#[must_use]
pub fn list_ignored_annotations(object: &Value) -> Vec<String> {
    let is_job = WorkloadKind::of_object(object) == Some(WorkloadKind::VolcanoJob);
    let all = object["metadata"]["annotations"].as_object();
    let unread = all
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| describe_ignored_annotation(name, value.as_str()?, is_job));
    let wishes = if is_job { task_topology::read_task_topology(object).err() } else { None };
    unread.chain(wishes).collect()
}

fn describe_ignored_annotation(name: &str, value: &str, is_job: bool) -> Option<String> {
    let no_duration = parse_whole_seconds(value).is_none();
    let (is_read, form) = match name {
        HOLD | SUSPENDED => (["true", "false"].contains(&value), "\"true\" or \"false\""),
        RUNNING_ESTIMATE | MAX_RUN_TIME | CHECKPOINT_INTERVAL | SLA_WAITING_TIME => {
            (!no_duration, "a duration of a second at least, such as 90s, 45m or 1h30m")
        }
        CLUSTERS | EXCLUDE_CLUSTERS => (parse_names(value).is_some(), "names of clusters, such as member1,member2"),
        PREEMPTABLE if TRUE.contains(&value) || FALSE.contains(&value) => return None,
        // It is understood all the same: as the safe answer.
        PREEMPTABLE => {
            return Some(format!("annotation {name}: {value:?} counts as \"false\"; it takes \"true\" or \"false\""));
        }
        END_AS if is_job => (ENDS.contains(&value), "\"Terminated\", \"Completed\" or \"Failed\""),
        RENDEZVOUS if is_job && [RENDEZVOUS_CLUSTERSET, RENDEZVOUS_NONE].contains(&value) => return None,
        RENDEZVOUS if is_job && !value.is_empty() => {
            let takes = format!("{RENDEZVOUS_CLUSTERSET:?} or {RENDEZVOUS_NONE:?}");
            return Some(format!("annotation {name}: {value:?} counts as {RENDEZVOUS_NONE:?}; it takes {takes}"));
        }
        RENDEZVOUS if is_job => (false, "\"clusterset\" or \"none\""),
        SSH_SECRET if is_job => (is_dns_subdomain(value), "the name of a Secret"),
        // Whatever was written there, the webhook writes over it.
        SUBMITTED | SUBMITTER | ACTED_BY | ACTION | DEVICE_CLAIMS => return None,
        DATA if is_job => return None,
        // Told together: one fault and none counts.
        TASK_AFFINITY | TASK_ANTI_AFFINITY | TASK_ORDER if is_job => return None,
        END_AS | RENDEZVOUS | SSH_SECRET | DATA | TASK_AFFINITY | TASK_ANTI_AFFINITY | TASK_ORDER => {
            return Some(format!("annotation {name} means something on Volcano Jobs only: it is not looked at"));
        }
        _ if name.starts_with(PREFIX) => {
            return Some(format!("annotation {name} is not known on workloads: it is not looked at"));
        }
        _ => return None,
    };
    (!is_read).then(|| format!("annotation {name}: {value:?} is not understood and counts as absent; it takes {form}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workload;

    fn job(name: &str, value: &str) -> Value {
        json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"annotations": {name: value}}})
    }

    #[test]
    fn an_annotation_that_counts_as_absent_is_reported_and_one_that_is_read_is_not() {
        for (name, read, unread) in [
            (HOLD, vec!["true", "false"], vec!["yes", "True", "", "1"]),
            (DEVICE_CLAIMS, vec!["{}"], vec![]),
            (CLUSTERS, vec!["m1", "m1, m2"], vec!["", "m1,,m2", "M1"]),
            (EXCLUDE_CLUSTERS, vec!["m1"], vec!["m1;m2"]),
            (SUSPENDED, vec!["true", "false"], vec!["TRUE", "on"]),
            (END_AS, vec!["Terminated", "Completed", "Failed"], vec!["Aborted", "completed"]),
            (RUNNING_ESTIMATE, vec!["90s", "1h30m"], vec!["90", "1 hour", "-5m", "0s", "1d"]),
            (CHECKPOINT_INTERVAL, vec!["30m"], vec!["30", "0s", "often"]),
            (MAX_RUN_TIME, vec!["5s", "4h"], vec!["0", "0s", "500ms", "-2h", "two hours"]),
            (SLA_WAITING_TIME, vec!["10m"], vec!["10"]),
            (PREEMPTABLE, vec!["true", "0"], vec!["yes"]),
            (RENDEZVOUS, vec!["clusterset", "none"], vec!["mesh", ""]),
            (SSH_SECRET, vec!["keys"], vec!["My Keys"]),
        ] {
            for value in read {
                assert_eq!(list_ignored_annotations(&job(name, value)), Vec::<String>::new(), "{name}={value}");
            }
            for value in unread {
                let reported = list_ignored_annotations(&job(name, value));
                assert!(
                    reported.len() == 1 && reported[0].contains(name) && reported[0].contains(value),
                    "{name}={value}: {reported:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_told_to_count_as_absent_is_read_as_absent() {
        for value in ["yes", "90", "1d", "", "Aborted", "on", "mesh"] {
            let said = |name: &str| !list_ignored_annotations(&job(name, value)).is_empty();
            assert!(said(HOLD) && !is_held(&job(HOLD, value)));
            assert!(said(SUSPENDED) && !is_suspended(&job(SUSPENDED, value)));
            assert!(said(END_AS) && read_end_phase(&job(END_AS, value)).is_none());
            assert!(said(RUNNING_ESTIMATE) && workload::running_estimate(&job(RUNNING_ESTIMATE, value)).is_none());
            assert!(said(CHECKPOINT_INTERVAL) && checkpoint_interval(&job(CHECKPOINT_INTERVAL, value)).is_none());
            assert!(said(MAX_RUN_TIME) && max_run_time(&job(MAX_RUN_TIME, value)).is_none());
            assert!(said(SLA_WAITING_TIME) && workload::sla_waiting_time(&job(SLA_WAITING_TIME, value)).is_none());
            assert!(said(PREEMPTABLE) && workload::read_preemptable(&job(PREEMPTABLE, value)) == Some(false));
        }
    }

    #[test]
    fn a_name_of_ours_that_does_not_exist_is_reported_and_others_are_not_looked_at() {
        let reported = list_ignored_annotations(&job("caldera.dev/holds", "true"));
        assert_eq!(reported, ["annotation caldera.dev/holds is not known on workloads: it is not looked at"]);
        assert!(list_ignored_annotations(&job("example.org/hold", "what")).is_empty());
        let mut pod = job(END_AS, "Completed");
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        assert_eq!(list_ignored_annotations(&pod).len(), 1);
    }
}
