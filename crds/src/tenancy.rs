//! Reads what admins say on Queues and Namespaces about tenants: which namespaces may use a queue, a namespace's
//! default queue, how many jobs may wait or run in a queue, and whether all jobs of a queue are preemptable.
//!
//! Rules, after Kueue's `ClusterQueue.spec.namespaceSelector`:
//! - A Queue's annotation [`NAMESPACE_SELECTOR`] selects the namespaces whose jobs may wait and start in it. An empty
//!   one selects all, and so does a queue without one. Kueue's queues select none then; Volcano's queues must go on.
//! - It holds for the queues below, as every limit and a closed queue do: a job needs the permission of each queue on
//!   its way to the root. Whoever may only make queues below another can narrow its selection, and never widen it.
//! - A selector that can not be read selects nobody, and a running limit that can not be read is zero: when in doubt
//!   nothing starts. A waiting limit that can not be read counts as absent.
//! - A Namespace's annotation [`NAMESPACE_DEFAULT_QUEUE`] names the queue of its Volcano Jobs that name none; the rules
//!   above hold for it as for one that a job names. In the roles that Kubernetes comes with, who may edit what is in a
//!   namespace may not edit the Namespace itself.
//! - What was admitted runs on when labels or selectors change, as with Kueue.
//!
//! All annotations of a Queue that can not be read are listed here too, for the webhook.

use std::collections::BTreeMap;

use caldera_core::{
    card_quota::CardQuota,
    gang::{Operator, Requirement},
    queue::{PriorityAging, ReservationWait, RunningLimits, TenantOrder},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    allowed_classes::AllowedClasses,
    largest_job::LargestJob,
    longest_run::LongestRun,
    names::{
        caldera::{
            ALL_JOBS_PREEMPTABLE, CLUSTER_SELECTOR, MAX_JOB, MAX_RUN_TIME, MAX_RUNNING_JOBS,
            MAX_RUNNING_JOBS_PER_NAMESPACE, MAX_RUNNING_JOBS_PER_USER, MAX_WAITING_JOBS,
            MAX_WAITING_JOBS_PER_NAMESPACE, MAX_WAITING_JOBS_PER_USER, NAMESPACE_DEFAULT_QUEUE, NAMESPACE_OPT_IN,
            NAMESPACE_OPT_IN_VALUE, NAMESPACE_SELECTOR, PRIORITY_AGING, PRIORITY_CLASSES, RESERVATION_AFTER,
            TENANT_ORDER,
        },
        volcano::CARD_QUOTA,
    },
    object::annotation_of,
    selector::parse_selector,
};

/// Bytes of a selector at most.
pub const LONGEST_SELECTOR: usize = 2_048;

/// A queue's word on namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceSelector {
    text: String,
    requirements: Result<Vec<Requirement>, String>,
}

impl NamespaceSelector {
    /// Of the annotation's text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text.len() > LONGEST_SELECTOR {
            let problem = format!("is {} bytes long, and {LONGEST_SELECTOR} are the most", text.len());
            return Self { text: "(too long)".to_owned(), requirements: Err(problem) };
        }
        Self { text: text.to_owned(), requirements: parse_selector(text).map_err(|error| error.to_string()) }
    }

    /// Of a Queue; `None` where it has none.
    #[must_use]
    pub fn of_queue(queue: &Value) -> Option<Self> {
        annotation_of(queue, NAMESPACE_SELECTOR).map(Self::parse)
    }

    /// What must hold of labels; nothing that any could match, where it can not be read.
    #[must_use]
    pub fn into_requirements(self) -> Vec<Requirement> {
        let nothing = || Requirement { key: String::new(), operator: Operator::In, values: Vec::new() };
        self.requirements.unwrap_or_else(|_| vec![nothing()])
    }

    /// As written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Why it can not be read, if so.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.requirements.as_ref().err().map(String::as_str)
    }

    /// Whether it selects a namespace of these labels.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let holds = |requirement: &Requirement| requirement.matches(labels.get(&requirement.key).map(String::as_str));
        self.requirements.as_ref().is_ok_and(|all| all.iter().all(holds))
    }
}

/// How many jobs may wait in a queue and those below it; the fields are the annotations [`MAX_WAITING_JOBS`],
/// [`MAX_WAITING_JOBS_PER_NAMESPACE`] and [`MAX_WAITING_JOBS_PER_USER`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingLimits {
    /// In all.
    pub all: Option<usize>,
    /// Of one namespace.
    pub of_namespace: Option<usize>,
    /// Of one user.
    pub of_user: Option<usize>,
}

impl WaitingLimits {
    /// Of a Queue. What is no number counts as absent: it is a bound on lines, and keeps no other limit.
    #[must_use]
    pub fn of_queue(queue: &Value) -> Self {
        let read = |name| Some(read_count(annotation_of(queue, name)?).ok()? as usize);
        Self {
            all: read(MAX_WAITING_JOBS),
            of_namespace: read(MAX_WAITING_JOBS_PER_NAMESPACE),
            of_user: read(MAX_WAITING_JOBS_PER_USER),
        }
    }
}

/// How many jobs may run in a queue and those below it, by its annotations [`MAX_RUNNING_JOBS`],
/// [`MAX_RUNNING_JOBS_PER_NAMESPACE`] and [`MAX_RUNNING_JOBS_PER_USER`]. One that is no number counts as zero: not
/// knowing is no leave to start.
pub fn running_limits<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> RunningLimits {
    let read = |name| annotation(name).map(|text| read_count(text).unwrap_or(0));
    RunningLimits {
        all: read(MAX_RUNNING_JOBS),
        of_namespace: read(MAX_RUNNING_JOBS_PER_NAMESPACE),
        of_user: read(MAX_RUNNING_JOBS_PER_USER),
    }
}

/// What is wrong with a queue's running limits, each with its annotation.
pub fn unreadable_running_limits<'a>(
    annotation: impl Fn(&str) -> Option<&'a str>,
) -> impl Iterator<Item = (&'static str, String)> {
    let names = [MAX_RUNNING_JOBS, MAX_RUNNING_JOBS_PER_NAMESPACE, MAX_RUNNING_JOBS_PER_USER].into_iter();
    names.filter_map(move |name| Some((name, read_count(annotation(name)?).err()?)))
}

/// The annotations of a Queue that can not be read, each with why.
pub(crate) fn list_unreadable_annotations(queue: &Value) -> Vec<(&'static str, String)> {
    let selector = NamespaceSelector::of_queue(queue);
    let selector = selector.and_then(|selector| Some((NAMESPACE_SELECTOR, selector.problem()?.to_owned())));
    let clusters = annotation_of(queue, CLUSTER_SELECTOR).map(NamespaceSelector::parse);
    let clusters = clusters.and_then(|selector| Some((CLUSTER_SELECTOR, selector.problem()?.to_owned())));
    let selector = selector.into_iter().chain(clusters);
    let count = |name| Some((name, read_count(annotation_of(queue, name)?).err()?));
    let counts = [MAX_WAITING_JOBS, MAX_WAITING_JOBS_PER_NAMESPACE, MAX_WAITING_JOBS_PER_USER];
    let counts = counts.into_iter().filter_map(count);
    let running = unreadable_running_limits(|name| annotation_of(queue, name));
    let largest = LargestJob::of_queue(queue);
    let largest = largest.and_then(|largest| Some((MAX_JOB, largest.problem()?.to_owned())));
    let longest = LongestRun::of_queue(queue);
    let longest = longest.and_then(|longest| Some((MAX_RUN_TIME, longest.problem()?.to_owned())));
    let classes = AllowedClasses::of_queue(queue);
    let classes = classes.and_then(|classes| Some((PRIORITY_CLASSES, classes.problem()?.to_owned())));
    let cards = read_card_quota(queue);
    let cards = cards.and_then(|cards| Some((CARD_QUOTA, cards.problem()?.to_owned())));
    let (_, of_waiting) = read_waiting_rules(|name| annotation_of(queue, name));
    let preemptable = annotation_of(queue, ALL_JOBS_PREEMPTABLE).filter(|text| !matches!(*text, "true" | "false"));
    let preemptable = preemptable.map(|text| (ALL_JOBS_PREEMPTABLE, format!("{text:?} is neither true nor false")));
    selector
        .chain(counts)
        .chain(running)
        .chain(largest)
        .chain(longest)
        .chain(classes)
        .chain(cards)
        .chain(of_waiting)
        .chain(preemptable)
        .collect()
}

/// What a Queue may have of each card model; `None` where it says nothing.
#[must_use]
pub fn read_card_quota(queue: &Value) -> Option<CardQuota> {
    annotation_of(queue, CARD_QUOTA).map(CardQuota::parse)
}

/// What a queue says of the jobs that wait in it and in those below it; `None` where it says nothing, or nothing that
/// can be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingRules {
    /// When blocked ones get a reservation: annotation [`RESERVATION_AFTER`].
    pub reservation_wait: Option<ReservationWait>,
    /// How their priorities rise: annotation [`PRIORITY_AGING`].
    pub aging: Option<PriorityAging>,
    /// Whose turn it is: annotation [`TENANT_ORDER`].
    pub tenant_order: Option<TenantOrder>,
}

/// Reads them; with each annotation that can not be read, and why.
pub fn read_waiting_rules<'a>(
    annotation: impl Fn(&str) -> Option<&'a str>,
) -> (WaitingRules, Vec<(&'static str, String)>) {
    let wait = annotation(RESERVATION_AFTER).map(ReservationWait::parse).transpose();
    let aging = annotation(PRIORITY_AGING).map(PriorityAging::parse).transpose();
    let order = annotation(TENANT_ORDER).map(TenantOrder::parse).transpose();
    let wrong = [
        (RESERVATION_AFTER, wait.clone().err()),
        (PRIORITY_AGING, aging.clone().err()),
        (TENANT_ORDER, order.clone().err()),
    ];
    let wrong = wrong.into_iter().filter_map(|(name, why)| Some((name, why?))).collect();
    let (reservation_wait, aging) = (wait.unwrap_or_default(), aging.unwrap_or_default());
    (WaitingRules { reservation_wait, aging, tenant_order: order.unwrap_or_default() }, wrong)
}

/// Whether a Queue says that its jobs are preemptable whatever they say themselves ([`ALL_JOBS_PREEMPTABLE`]). It holds
/// for the queues below, as all of an admin's words do.
#[must_use]
pub fn marks_all_jobs_preemptable(queue: &Value) -> bool {
    annotation_of(queue, ALL_JOBS_PREEMPTABLE) == Some("true")
}

fn read_count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text:?} is no whole number of jobs"))
}

/// What matters of a Namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Its Deployments, StatefulSets, Jobs and Pods are in scope.
    pub opted_in: bool,
    /// What selectors look at.
    pub labels: BTreeMap<String, String>,
    /// The queue of its jobs that name none.
    pub default_queue: Option<String>,
}

impl NamespaceFacts {
    /// Out of its JSON; one of another shape has no labels.
    #[must_use]
    pub fn from_object(namespace: &Value) -> Self {
        Self::read(&ObjectMeta::deserialize(&namespace["metadata"]).unwrap_or_default())
    }

    /// Out of the object's metadata.
    #[must_use]
    pub fn read(metadata: &ObjectMeta) -> Self {
        let labels = metadata.labels.clone().unwrap_or_default();
        let opted_in = labels.get(NAMESPACE_OPT_IN).is_some_and(|value| value == NAMESPACE_OPT_IN_VALUE);
        let default_queue = metadata.annotations.as_ref().and_then(|all| all.get(NAMESPACE_DEFAULT_QUEUE)).cloned();
        Self { opted_in, labels, default_queue: default_queue.filter(|queue| !queue.is_empty()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labels(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_queue_without_a_selector_and_one_with_an_empty_one_take_all() {
        assert_eq!(NamespaceSelector::of_queue(&json!({"metadata": {"name": "q"}})), None);
        assert!(NamespaceSelector::parse("").selects(&labels(&[])));
    }

    #[test]
    fn a_selector_that_can_not_be_read_or_is_too_long_selects_nobody_and_says_why() {
        let broken = NamespaceSelector::parse("team in ml");
        assert!(!broken.selects(&labels(&[("team", "ml")])));
        assert!(broken.problem().unwrap().starts_with("\"team in ml\" is no requirement of labels"), "{broken:?}");
        let long = NamespaceSelector::parse(&format!("a in ({})", "b,".repeat(LONGEST_SELECTOR)));
        assert!(!long.selects(&labels(&[("a", "b")])));
        assert_eq!(long.problem(), Some("is 4103 bytes long, and 2048 are the most"));
    }

    #[test]
    fn a_limit_of_waiting_jobs_is_a_whole_number_and_anything_else_is_reported() {
        let queue = |all: &str| json!({"metadata": {"annotations": {MAX_WAITING_JOBS: all}}});
        assert_eq!(WaitingLimits::of_queue(&queue("3")), WaitingLimits { all: Some(3), ..WaitingLimits::default() });
        for wrong in ["-1", "many", "1.5", "", "99999999999"] {
            assert_eq!(WaitingLimits::of_queue(&queue(wrong)), WaitingLimits::default());
            let reported = list_unreadable_annotations(&queue(wrong));
            assert_eq!(reported, [(MAX_WAITING_JOBS, format!("{wrong:?} is no whole number of jobs"))]);
        }
    }

    #[test]
    fn a_limit_of_running_jobs_that_is_no_number_lets_none_run_and_is_reported() {
        let limits = |text: &'static str| running_limits(move |name| (name == MAX_RUNNING_JOBS).then_some(text));
        assert_eq!(limits("3"), RunningLimits { all: Some(3), ..RunningLimits::default() });
        assert_eq!(limits("-1"), RunningLimits { all: Some(0), ..RunningLimits::default() });
        let queue = json!({"metadata": {"annotations": {MAX_RUNNING_JOBS_PER_NAMESPACE: "few"}}});
        let reported = (MAX_RUNNING_JOBS_PER_NAMESPACE, "\"few\" is no whole number of jobs".to_owned());
        assert_eq!(list_unreadable_annotations(&queue), [reported]);
    }

    #[test]
    fn a_wait_for_a_reservation_or_an_aging_that_can_not_be_read_is_reported() {
        let queue = json!({"metadata": {"annotations": {RESERVATION_AFTER: "soon"}}});
        let [(name, why)] = list_unreadable_annotations(&queue).try_into().unwrap();
        assert!(name == RESERVATION_AFTER && why.starts_with("\"soon\" is no wait: "), "{why}");
        let queue = json!({"metadata": {"annotations": {TENANT_ORDER: "drf"}}});
        let [(name, why)] = list_unreadable_annotations(&queue).try_into().unwrap();
        assert!(name == TENANT_ORDER && why.starts_with("\"drf\" is no order: "), "{why}");
        let queue = json!({"metadata": {"annotations": {PRIORITY_AGING: "fast", RESERVATION_AFTER: "1h"}}});
        let [(name, why)] = list_unreadable_annotations(&queue).try_into().unwrap();
        assert!(name == PRIORITY_AGING && why.starts_with("\"fast\" is no aging: "), "{why}");
    }

    #[test]
    fn a_quota_by_card_model_that_can_not_be_read_is_reported() {
        assert_eq!(CARD_QUOTA, caldera_core::card_quota::CARD_QUOTA);
        assert_eq!(crate::names::volcano::CARD_NAME, caldera_core::card_choice::CARD_NAME);
        let reported =
            |quota: &str| list_unreadable_annotations(&json!({"metadata": {"annotations": {CARD_QUOTA: quota}}}));
        assert_eq!(reported(r#"{"NVIDIA-A100": 8}"#), []);
        let text = reported(r#"{"NVIDIA-A100": "8"}"#);
        assert_eq!(text, [(CARD_QUOTA, r#""8" of "NVIDIA-A100" is no whole number of cards"#.to_owned())]);
    }

    #[test]
    fn a_namespace_is_read_as_far_as_queues_ask() {
        let facts = NamespaceFacts::from_object(&json!({
            "metadata": {
                "name": "ns", "labels": {"caldera.dev/queueing": "enabled", "team": "ml"},
                "annotations": {"caldera.dev/default-queue": "ml-batch"},
            },
        }));
        assert_eq!(facts.default_queue.as_deref(), Some("ml-batch"));
        assert!(facts.opted_in && NamespaceSelector::parse("team=ml").selects(&facts.labels));
        assert_eq!(NamespaceFacts::from_object(&json!({"metadata": {"labels": 5}})), NamespaceFacts::default());
    }
}
