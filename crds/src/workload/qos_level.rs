//! The QoS level of a workload's pods, where batch jobs run beside services on one node (colocation).
//!
//! Rule: `pkg/agent/apis/extension/qos.go` of Volcano. Annotation `volcano.sh/qos-level` of pods says `LC` or `HLS`
//! (latency critical), `LS` (latency sensitive) or `BE` (best effort); anything else is no level. When the services of
//! a node need it, its agent evicts pods of level `BE` alone. It lets `LS`, `BE` and pods without a level use oversold
//! resources, but not `LC` and `HLS`.
//!
//! A workload is best effort where all of its pods are. What other projects' controllers make of their jobs nobody
//! knows here, and of a group of Pods no one speaks for the others: these are never best effort. One that is may be
//! evicted for others unless it says no, and gives way first. That it is latency critical gains it nothing: whoever
//! submits a job may say so.

use caldera_core::{resources::ResourceName, text::shorten_text};
use serde_json::Value;

use super::{WorkloadKind, field::Field, list_pod_templates, member_queue::POD_GROUPS, says_preemptable};
use crate::{
    names::volcano::{PREEMPTABLE, QOS_LEVEL},
    object::annotation_of,
};

const BEST_EFFORT: &str = "BE";
const LATENCY_CRITICAL: [&str; 2] = ["LC", "HLS"];
const LATENCY_SENSITIVE: &str = "LS";

/// Whether all pods of a workload are best effort.
#[must_use]
pub fn is_best_effort(object: &Value) -> bool {
    let is_whole = match WorkloadKind::of_object(object) {
        Some(WorkloadKind::Pod) => POD_GROUPS.iter().all(|group| annotation_of(object, group).is_none()),
        Some(kind) => kind.layout().is_none(),
        None => false,
    };
    let templates = list_pod_templates(&Field::unnamed(object));
    is_whole && !templates.is_empty() && templates.iter().all(|template| level_of(template.value) == Some(BEST_EFFORT))
}

/// A sentence for each QoS level of a workload that does not do what it seems to.
#[must_use]
pub fn list_void_qos_levels(object: &Value) -> Vec<String> {
    let root = Field::unnamed(object);
    let templates = list_pod_templates(&root);
    let levels: Vec<&str> = templates.iter().filter_map(|template| level_of(template.value)).collect();
    let is_known =
        |level: &&&str| **level == LATENCY_SENSITIVE || **level == BEST_EFFORT || LATENCY_CRITICAL.contains(*level);
    let unknown = levels.iter().find(|level| !is_known(level)).map(|level| {
        let level = shorten_text(level);
        format!("annotation {QOS_LEVEL}: {level:?} counts as absent; it takes \"LC\", \"HLS\", \"LS\" or \"BE\"")
    });
    let misplaced = (levels.is_empty() && annotation_of(object, QOS_LEVEL).is_some() && !templates.is_empty())
        .then(|| format!("annotation {QOS_LEVEL} is looked at on pod templates only: it is not looked at here"));
    let greedy = templates.iter().find_map(|template| {
        let level = level_of(template.value).filter(|level| LATENCY_CRITICAL.contains(level))?;
        let resource = ResourceName::OVERSOLD.into_iter().find(|name| requests(template.value, name))?;
        Some(format!("pods of QoS level {level} may not use {resource}: the agent of their node gives them none of it"))
    });
    let stays = (is_best_effort(object) && says_no(&root)).then(|| {
        format!(
            "its pods are best effort, and {PREEMPTABLE} says no: it is not evicted for other jobs, but the agent of a \
             node evicts its pods when services there need the node"
        )
    });
    [unknown, misplaced, greedy, stays].into_iter().flatten().collect()
}

/// The same of what makes jobs: its own annotations, and those of the jobs that it makes, each with where its template
/// is.
#[must_use]
pub fn list_void_qos_levels_of_jobs(maker: &Value, jobs: impl IntoIterator<Item = (String, Value)>) -> Vec<String> {
    let misplaced = annotation_of(maker, QOS_LEVEL)
        .map(|_| format!("annotation {QOS_LEVEL} is looked at on pod templates only: it is not looked at here"));
    let of_jobs = jobs.into_iter().flat_map(|(place, job)| {
        list_void_qos_levels(&job).into_iter().map(move |sentence| format!("{place}: {sentence}"))
    });
    misplaced.into_iter().chain(of_jobs).collect()
}

/// Of a Pod, which is its own template, it is said where a workload's own annotations are.
fn level_of(template: &Value) -> Option<&str> {
    annotation_of(template, QOS_LEVEL)
}

fn requests(template: &Value, resource: &str) -> bool {
    let containers = ["initContainers", "containers"].into_iter();
    let mut containers = containers.filter_map(|list| template["spec"][list].as_array()).flatten();
    containers.any(|container| {
        ["requests", "limits"].into_iter().any(|of| container["resources"][of].get(resource).is_some())
    })
}

fn says_no(root: &Field<'_>) -> bool {
    let own = says_preemptable(root);
    let pods = || list_pod_templates(root).iter().filter_map(says_preemptable).any(|says| !says);
    own.map_or_else(pods, |says| !says)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workload::read_preemptable;

    fn template(level: Option<&str>) -> Value {
        let mut template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        if let Some(level) = level {
            template["metadata"]["annotations"] = json!({QOS_LEVEL: level});
        }
        template
    }

    fn job(levels: &[Option<&str>]) -> Value {
        let task = |(at, level): (usize, &Option<&str>)| json!({"name": format!("t{at}"), "replicas": 1, "template": template(*level)});
        let tasks: Vec<Value> = levels.iter().enumerate().map(task).collect();
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns"},
            "spec": {"tasks": tasks},
        })
    }

    #[test]
    fn a_workload_is_best_effort_where_all_of_its_pods_are() {
        assert!(is_best_effort(&job(&[Some("BE"), Some("BE")])));
        for levels in [vec![], vec![None], vec![Some("BE"), None], vec![Some("BE"), Some("LS")], vec![Some("be")]] {
            assert!(!is_best_effort(&job(&levels)), "{levels:?}");
        }
        let batch = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template(Some("BE"))}});
        assert!(is_best_effort(&batch));
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": {QOS_LEVEL: "BE"}}, "spec": {},
        });
        assert!(is_best_effort(&pod));
        let mut grouped = pod;
        grouped["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "g".into();
        assert!(!is_best_effort(&grouped), "it does not speak for the others of its group");
        let spark = json!({
            "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication",
            "spec": {"driver": {"template": template(Some("BE"))}, "executor": {"instances": 9}},
        });
        assert!(!is_best_effort(&spark), "its executors have no template");
    }

    #[test]
    fn a_best_effort_workload_may_be_evicted_unless_it_says_no() {
        let mut job = job(&[Some("BE")]);
        assert_eq!(read_preemptable(&job), Some(true));
        job["metadata"]["annotations"] = json!({PREEMPTABLE: "false"});
        assert_eq!(read_preemptable(&job), Some(false));
        assert_eq!(read_preemptable(&self::job(&[Some("LS")])), None);
    }

    #[test]
    fn a_level_that_does_not_do_what_it_seems_to_is_told() {
        let told = |object: &Value, word: &str| {
            let sentences = list_void_qos_levels(object);
            assert!(sentences.len() == 1 && sentences[0].contains(word), "{word}: {sentences:?}");
        };
        for levels in [[Some("BE")], [Some("LS")], [Some("LC")], [Some("HLS")], [None]] {
            assert_eq!(list_void_qos_levels(&job(&levels)), [""; 0], "{levels:?}");
        }
        told(&job(&[Some("best-effort")]), "\"best-effort\" counts as absent");
        let long = list_void_qos_levels(&job(&[Some(&"x".repeat(100_000))]));
        assert!(long[0].len() < 400 && long[0].contains("x…\" counts as absent"), "{}", long[0].len());
        let mut misplaced = job(&[None]);
        misplaced["metadata"]["annotations"] = json!({QOS_LEVEL: "BE"});
        told(&misplaced, "on pod templates only");
        let mut critical = job(&[Some("BE"), Some("LC")]);
        critical["spec"]["tasks"][1]["template"]["spec"]["containers"][0]["resources"] =
            json!({"requests": {"kubernetes.io/batch-cpu": "1000"}});
        told(&critical, "level LC may not use kubernetes.io/batch-cpu");
        let mut stubborn = job(&[Some("BE")]);
        stubborn["spec"]["tasks"][0]["template"]["metadata"]["annotations"][PREEMPTABLE] = "false".into();
        told(&stubborn, "says no");
    }
    #[test]
    fn what_makes_jobs_is_warned_of_itself_and_of_each_job() {
        let maker = json!({"kind": "HyperJob", "metadata": {"annotations": {QOS_LEVEL: "BE"}}});
        let jobs = [("a", job(&[Some("BE")])), ("b", job(&[Some("best")]))].map(|(name, job)| (name.to_owned(), job));
        let sentences = list_void_qos_levels_of_jobs(&maker, jobs);
        assert!(sentences.len() == 2 && sentences[0].contains("pod templates only"), "{sentences:?}");
        assert!(sentences[1].starts_with("b: ") && sentences[1].contains("counts as absent"), "{sentences:?}");
    }
}
