//! What queues say about the jobs of tenants: whose they take, how large one may be and how long one may run, of which
//! card models, how many run, which may be evicted, and
//! which priority classes they may name.
//!
//! Rule: a job needs that its queue and each queue above it allow it ([`caldera_crds::tenancy`]); a queue that is not
//! there says nothing, and neither does an object named as the root.

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{
    gang::{Gang, QueueName},
    queue::{Counted, RunningLimits, TenantOrder},
    reason::Reason,
    resources::Resources,
    run_limit::RunLimit,
    tenant::Tenant,
    text::shorten_text,
    time::EpochSeconds,
};
use caldera_crds::{longest_run::LongestRun, names::volcano::ROOT_QUEUE};

use jiff::Timestamp;

use super::{Binding, QueueFacts, Workload, objects::Objects};

impl Objects {
    /// A queue and those above it, as far as they are there, but for the root.
    fn list_queue_and_parents(&self, queue: &QueueName) -> Vec<(&QueueName, &QueueFacts)> {
        let mut path: Vec<(&QueueName, &QueueFacts)> = Vec::new();
        let mut next = self.queues.get_key_value(queue);
        while let Some((name, facts)) = next.filter(|(name, _)| {
            // Parents may lead in a circle.
            name.as_str() != ROOT_QUEUE && path.iter().all(|(known, _)| known != name)
        }) {
            path.push((name, facts));
            next = facts.spec.parent.as_ref().and_then(|parent| self.queues.get_key_value(parent));
        }
        path
    }

    /// Why a queue takes no jobs of a namespace: it, or one above it, does not select that.
    pub(crate) fn check_namespace(&self, queue: &QueueName, namespace: &str) -> Option<Reason> {
        let no_labels = BTreeMap::new();
        let labels = self.known_namespaces.get(namespace).map_or(&no_labels, |facts| &facts.labels);
        self.list_queue_and_parents(queue).into_iter().find_map(|(by, facts)| {
            let selector = facts.namespaces.as_ref().filter(|selector| !selector.selects(labels))?;
            Some(Reason::NamespaceNotSelected {
                queue: queue.clone(),
                by: by.clone(),
                selector: selector.text().to_owned(),
                namespace: namespace.to_owned(),
            })
        })
    }

    /// Why a queue takes no job that asks for so much: it, or one above it, says so. Else `asked` is not worked out.
    pub(crate) fn check_job_size(&self, queue: &QueueName, asked: impl FnOnce() -> Resources) -> Option<Reason> {
        let limits = self
            .list_queue_and_parents(queue)
            .into_iter()
            .filter_map(|(by, facts)| Some((by, facts.largest_job.as_ref()?)));
        let mut limits = limits.peekable();
        limits.peek()?;
        let asked = asked();
        limits.find_map(|(by, largest)| largest.refuse(queue, by, &asked))
    }

    /// Why a queue does not take a job that asks for cards of no model, or of one of which it, or one above it, has no
    /// quota.
    pub(crate) fn check_card_models(&self, queue: &QueueName, gang: &Gang) -> Option<Reason> {
        let path = self.list_queue_and_parents(queue).into_iter();
        path.filter_map(|(by, facts)| Some((by, facts.card_quota.as_ref()?)))
            .find_map(|(by, quota)| quota.refuse(queue, by, gang))
    }

    /// Why a queue does not take a job that is to run for as long as this one: it, or one above it, says so.
    pub(crate) fn check_run_time(&self, queue: &QueueName, workload: &Workload) -> Option<Reason> {
        self.list_queue_and_parents(queue)
            .into_iter()
            .find_map(|(by, facts)| facts.longest_run.as_ref()?.refuse(queue, by, workload.max_run_time))
    }

    /// Why a queue does not take a job of this one's priority class: it, or one above it, says so.
    pub(crate) fn check_priority_class(&self, queue: &QueueName, workload: &Workload) -> Option<Reason> {
        self.list_queue_and_parents(queue)
            .into_iter()
            .find_map(|(by, facts)| facts.allowed_classes.as_ref()?.refuse(queue, by, &workload.class))
    }

    /// What is said where a workload names a PriorityClass that does not exist here. Members have the host's, and may
    /// have others: it is theirs to refuse its pods, as Kubernetes does until there is such a class.
    pub(crate) fn describe_unknown_class(&self, workload: &Workload) -> Option<String> {
        let priority = self.priority_of_class(&workload.class);
        let (name, is_unknown) = (&workload.class, self.find_priority_class_value(&workload.class).is_none());
        is_unknown.then(|| {
            format!(
                "PriorityClass {} does not exist: priority {priority} is assumed, and members without it refuse its \
                 pods",
                shorten_text(name)
            )
        })
    }

    /// Seconds that a run of a workload may take if it begins now: the least of what it says, and of what its queue and
    /// those above it say.
    pub(crate) fn find_max_run_time(&self, workload: &Workload) -> Option<i64> {
        let of_queues = self.list_queue_and_parents(&workload.queue).into_iter();
        let of_queues = of_queues.filter_map(|(_, facts)| facts.longest_run.as_ref().and_then(LongestRun::seconds));
        of_queues.chain(workload.max_run_time).min()
    }

    /// The limit of a run of a workload that begins now.
    pub(crate) fn build_run_limit(&self, workload: &Workload, now: Timestamp) -> Option<RunLimit> {
        let seconds = self.find_max_run_time(workload)?;
        Some(RunLimit { from: EpochSeconds::from(now), seconds })
    }

    /// Whether a workload may be evicted, as it says, or as its queue or one above it says of all.
    pub(crate) fn is_preemptable(&self, queue: &QueueName, workload: &Workload) -> Option<bool> {
        let evicts_all = || self.list_queue_and_parents(queue).iter().any(|(_, facts)| facts.evicts_all_jobs);
        // What a job says itself counts where nobody above it says more.
        if workload.preemptable != Some(true) && evicts_all() { Some(true) } else { workload.preemptable }
    }

    /// Whose job it is counted as: its namespace's, and that of who submitted it, only where a queue limits those or
    /// they take turns.
    pub(crate) fn classify_for_running_limits(&self, queue: &QueueName, binding: &Binding) -> Counted {
        let path = self.list_queue_and_parents(queue);
        let limits = |of: fn(RunningLimits) -> Option<u32>| path.iter().any(|(_, q)| of(q.spec.running).is_some());
        let order = path.iter().find_map(|(_, queue)| queue.spec.tenant_order);
        let of_user = order == Some(TenantOrder::Users) || limits(|limits| limits.of_user);
        let user = self.workload_of(binding).filter(|_| of_user).and_then(|workload| workload.submitter.clone());
        let of_namespace = match order {
            // A job of which no user is known has the turn of all of its namespace.
            Some(TenantOrder::Namespaces | TenantOrder::Users) => true,
            _ => limits(|limits| limits.of_namespace),
        };
        let namespace = of_namespace.then(|| Tenant::Namespace(Arc::clone(&binding.key.namespace)));
        let tenants: Box<[Tenant]> = namespace.into_iter().chain(user.map(Tenant::User)).collect();
        if tenants.is_empty() { Counted::Job } else { Counted::JobOf(tenants) }
    }
}
