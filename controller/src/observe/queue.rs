//! What the controller keeps of a Volcano Queue.
//!
//! A field that is no quantity counts as zero and is said on the queue ([`QueueFacts::wrong`]).

use std::sync::Arc;

use caldera_core::{
    card_quota::CardQuota,
    device::unify_resource_name,
    gang::{QueueName, Requirement},
    node_groups::NodeGroupAffinity,
    quantity::Quantity,
    queue::{Dequeue, QueueSpec, TenantOrder, state::ReportedState},
    resources::{Limits, ResourceName, Resources},
};
use caldera_crds::{
    action::Action,
    allowed_classes::AllowedClasses,
    largest_job::LargestJob,
    longest_run::LongestRun,
    names::{
        caldera::{
            ALL_JOBS_PREEMPTABLE, CLUSTER_SELECTOR, MAX_JOB, MAX_RUN_TIME, NAMESPACE_SELECTOR, PAUSED,
            PRIORITY_CLASSES, QUEUE_STATUS,
        },
        volcano::{CARD_QUOTA, CLOSED_BY_PARENT, DEFAULT_QUEUE, ROOT_QUEUE},
    },
    node_groups::{list_affinity_problems, read_affinity},
    placement,
    tenancy::{NamespaceSelector, read_waiting_rules, running_limits, unreadable_running_limits},
    volcano::scheduling::{self, Queue},
    wire::ResourceList,
};

use super::cluster::read_action;

/// A queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueFacts {
    /// For the engine.
    pub spec: QueueSpec,
    /// UID.
    pub uid: Arc<str>,
    /// As last seen.
    pub resource_version: Arc<str>,
    /// `status.state` as written.
    pub state: Option<String>,
    /// Closed because its parent was.
    pub closed_by_parent: bool,
    /// Our annotation on it, as written.
    pub annotation: Option<Arc<str>>,
    /// What of its status we write.
    pub status: QueueNumbers,
    /// Fields that are no quantities; they count as zero.
    pub wrong: Vec<String>,
    /// What is wrong with its words on nodes, clusters, card models and waiting: each time the field, and why.
    pub wrong_places: Vec<(String, String)>,
    /// Whose jobs it takes; all where it says nothing.
    pub namespaces: Option<NamespaceSelector>,
    /// The largest job that it takes; any where it says nothing.
    pub largest_job: Option<LargestJob>,
    /// How long its jobs run at most; any time where it says nothing.
    pub longest_run: Option<LongestRun>,
    /// Which priority classes jobs may name, if it says so.
    pub allowed_classes: Option<AllowedClasses>,
    /// What it may have of each card model; any amount where it says nothing.
    pub card_quota: Option<CardQuota>,
    /// Its jobs are preemptable whatever they say.
    pub evicts_all_jobs: bool,
    /// Of the default queue: why nothing is released in the whole fleet, if so.
    pub paused: Option<Arc<str>>,
    /// What an admin last did to it, and who.
    pub acted: Option<Box<Action>>,
}

/// The numbers of a queue's status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueNumbers {
    /// Charged.
    pub allocated: Resources,
    /// PodGroups that wait.
    pub pending: i32,
    /// Released ones that do not run yet.
    pub inqueue: i32,
    /// Running ones.
    pub running: i32,
    /// Ended ones.
    pub completed: i32,
}

impl QueueFacts {
    /// Reads one.
    #[must_use]
    pub fn read(object: &Queue) -> Self {
        let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
        let annotations = object.metadata.annotations.as_ref();
        let annotation = |name: &str| annotations.and_then(|all| all.get(name)).map(String::as_str);
        let (mut wrong, mut unreadable) = (Vec::new(), Vec::new());
        let mut amounts = |field: &str, list: &ResourceList| -> Vec<(String, Quantity)> {
            list.iter()
                .map(|(name, text)| {
                    let counted = unify_resource_name(name).into_owned();
                    match text.0.parse() {
                        Ok(amount) => (counted, amount),
                        Err(error) => {
                            wrong.push(format!("spec.{field}.{name}: {error}"));
                            if field == "capability" {
                                unreadable.push(ResourceName::from(counted.as_str()));
                            }
                            (counted, Quantity::ZERO)
                        }
                    }
                })
                .collect()
        };
        let unread = unreadable_running_limits(annotation);
        let unread: Vec<String> = unread.map(|(name, why)| format!("metadata.annotations[{name}]: {why}")).collect();
        let clusters = annotation(CLUSTER_SELECTOR).map(NamespaceSelector::parse);
        let wrong_clusters = clusters.as_ref().and_then(|selector| {
            let why = format!("{}: it uses no cluster", selector.problem()?);
            Some((format!("metadata.annotations[{CLUSTER_SELECTOR}]"), why))
        });
        let (waiting, wrong_waiting) = read_waiting_rules(annotation);
        let wrong_waiting = wrong_waiting.into_iter();
        let wrong_waiting = wrong_waiting
            .map(|(name, why)| (format!("metadata.annotations[{name}]"), format!("{why}: it says nothing")));
        let limits = |amounts: Vec<(String, Quantity)>| -> Limits {
            amounts.into_iter().map(|(name, amount)| (name.into(), amount)).collect()
        };
        let guarantee = spec.guarantee.clone().unwrap_or_default().resource;
        // Of a card model the annotation alone counts.
        let is_card = |name: &str| ResourceName::from(name).is_card();
        let (of_cards, of_resources): (ResourceList, ResourceList) =
            spec.capability.clone().into_iter().partition(|(name, _)| is_card(name));
        let wrong_cards = of_cards.into_keys().map(|name| {
            let why = format!("counts for nothing: the quota of a card model is annotation {CARD_QUOTA}");
            (format!("spec.capability.{name}"), why)
        });
        let mut capability = limits(amounts("capability", &of_resources));
        let card_quota = annotation(CARD_QUOTA).map(CardQuota::parse);
        let models = card_quota.iter().flat_map(CardQuota::limits);
        models.for_each(|(name, most)| capability.set(name.clone(), most));
        let guarantee = amounts("guarantee.resource", &guarantee);
        let deserved = limits(amounts("deserved", &spec.deserved));
        let queue = QueueSpec {
            name: object.metadata.name.as_deref().unwrap_or("").into(),
            parent: spec.parent.as_deref().filter(|parent| !parent.is_empty()).map(QueueName::from),
            priority: spec.priority.unwrap_or(0),
            weight: u32::try_from(spec.weight.unwrap_or(1)).unwrap_or(1),
            capability,
            unreadable,
            guarantee: guarantee.into_iter().map(|(name, amount)| (ResourceName::from(name), amount)).collect(),
            deserved,
            running: running_limits(annotation),
            reservation_wait: waiting.reservation_wait,
            aging: waiting.aging,
            tenant_order: waiting.tenant_order,
            reclaimable: spec.reclaimable.unwrap_or(true),
            dequeue: match spec.dequeue_strategy {
                Some(scheduling::DequeueStrategy::Fifo) => Dequeue::Fifo,
                _ => Dequeue::Traverse,
            },
            affinity: spec.affinity.as_ref().map(read_affinity),
            clusters: clusters.map(NamespaceSelector::into_requirements).unwrap_or_default(),
            state: ReportedState::read(status.state.as_ref().map_or("", |state| state.as_str())).effective_state(),
        };
        let wrong_groups = spec.affinity.as_ref().map(list_affinity_problems);
        // It is the fleet, whatever an object of that name says.
        let queue = if queue.name.as_str() == ROOT_QUEUE { QueueSpec::unlimited(ROOT_QUEUE) } else { queue };
        Self {
            spec: queue,
            uid: object.metadata.uid.as_deref().unwrap_or("").into(),
            closed_by_parent: annotation(CLOSED_BY_PARENT) == Some("true"),
            annotation: annotation(QUEUE_STATUS).map(Arc::from),
            resource_version: object.metadata.resource_version.as_deref().unwrap_or("").into(),
            state: status.state.as_ref().map(|state| state.as_str().to_owned()).filter(|state| !state.is_empty()),
            status: QueueNumbers {
                allocated: placement::read_resource_list(&status.allocated),
                pending: status.pending.unwrap_or(0),
                inqueue: status.inqueue.unwrap_or(0),
                running: status.running.unwrap_or(0),
                completed: status.completed.unwrap_or(0),
            },
            wrong: [wrong, unread].concat(),
            wrong_places: wrong_groups
                .into_iter()
                .flatten()
                .chain(wrong_clusters)
                .chain(wrong_cards)
                .chain(wrong_waiting)
                .collect(),
            namespaces: annotation(NAMESPACE_SELECTOR).map(NamespaceSelector::parse),
            largest_job: annotation(MAX_JOB).map(LargestJob::parse),
            longest_run: annotation(MAX_RUN_TIME).map(LongestRun::parse),
            allowed_classes: annotation(PRIORITY_CLASSES).map(AllowedClasses::parse),
            card_quota,
            evicts_all_jobs: annotation(ALL_JOBS_PREEMPTABLE) == Some("true"),
            paused: annotation(PAUSED)
                .filter(|_| object.metadata.name.as_deref() == Some(DEFAULT_QUEUE))
                .map(|why| if why.trim().is_empty() { "no reason given" } else { why }.into()),
            acted: read_action(&object.metadata),
        }
    }
}

/// What a queue says about the jobs in it and below it: when that changes these are looked at again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tenancy<'a> {
    namespaces: Option<&'a NamespaceSelector>,
    /// Whether jobs of each namespace, and of each user, are counted.
    counts: [bool; 2],
    tenant_order: Option<TenantOrder>,
    largest_job: Option<&'a LargestJob>,
    longest_run: Option<&'a LongestRun>,
    allowed_classes: Option<&'a AllowedClasses>,
    card_quota: Option<&'a CardQuota>,
    node_groups: Option<&'a NodeGroupAffinity>,
    clusters: &'a [Requirement],
}

impl<'a> Tenancy<'a> {
    pub(super) fn from_queue(queue: &'a QueueFacts) -> Self {
        Self {
            namespaces: queue.namespaces.as_ref(),
            largest_job: queue.largest_job.as_ref(),
            longest_run: queue.longest_run.as_ref(),
            allowed_classes: queue.allowed_classes.as_ref(),
            card_quota: queue.card_quota.as_ref(),
            node_groups: queue.spec.affinity.as_ref(),
            clusters: queue.spec.clusters.as_slice(),
            tenant_order: queue.spec.tenant_order,
            counts: [queue.spec.running.of_namespace.is_some(), queue.spec.running.of_user.is_some()],
        }
    }
}
