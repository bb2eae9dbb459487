//! Whether a job may start now: quota on its queue and on every queue above it, then how much of it.
//!
//! Rule: `Enqueueable` / `Allocatable` of Volcano's hierarchical capacity (`capacity.go:1679-1744`): what is used plus
//! what is asked stays within the ceiling, strictly and without epsilon, on the resources that are asked for
//! (`LessEqualWithDimensionAndResourcesName`); use beyond a ceiling elsewhere does not block. All of the gang's minimum
//! counts, never one task alone; what is beyond the minimum is granted as far as the same ceilings allow.

use std::sync::Arc;

use crate::{
    gang::TaskName,
    quantity::Quantity,
    queue::{
        quota::{
            amount::Amount,
            amounts::{Dim, DimAmounts, Dims, Sparse},
            running::Counted,
            slot::{QueueIndex, Slot},
        },
        spec::FleetResources,
    },
    reason::{Bound, Reason},
    resources::{ResourceName, Resources},
};

/// Jobs of one class get the same answer to "does it fit somewhere now": same pods, same placement rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FitClass(pub u64);

/// What a job asks for; jobs that ask for the same share one value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ask {
    /// By task, in the job's order.
    pub tasks: Vec<TaskAsk>,
    /// Clusters that each run all of it.
    pub copies: u32,
    /// For the question whether it fits.
    pub fit: FitClass,
    /// Seconds that it runs at most, if that is known.
    pub run_for: Option<i64>,
    /// Under limits of running jobs.
    pub counted: Counted,
    /// The card model that this is for, where the job has a choice.
    pub card: Option<CardChoice>,
}

/// One of the card models that a job may use.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CardChoice {
    /// It.
    pub card: ResourceName,
    /// What the job asks for on the next one, where there is one.
    pub otherwise: Option<Arc<Ask>>,
}

/// One task's part of an [`Ask`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TaskAsk {
    /// Task.
    pub name: TaskName,
    /// What one pod is charged: what it asks for, and the same of the card models that it names.
    pub request: Resources,
    /// Pods within the gang's minimum (see [`crate::pod_group::compute_pod_group_minimum`]).
    pub min: u32,
    /// Pods wanted.
    pub most: u32,
    /// Pods beyond the minimum are granted so many at a time: a partition's, else 1.
    pub step: u32,
}

impl Ask {
    /// What the job asks for on each other card model, in order.
    pub fn list_other_choices(&self) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::successors(self.next_choice(), |ask| ask.next_choice())
    }

    fn next_choice(&self) -> Option<&Arc<Self>> {
        self.card.as_ref()?.otherwise.as_ref()
    }

    /// The card model that it is for, where the job has a choice.
    #[must_use]
    pub fn card(&self) -> Option<&ResourceName> {
        self.card.as_ref().map(|choice| &choice.card)
    }

    /// What it takes at least: all copies of the minimum.
    #[must_use]
    pub fn minimum(&self) -> Resources {
        self.minimum_of_copy().times(u64::from(self.copies))
    }

    /// What one copy of the minimum takes.
    #[must_use]
    pub fn minimum_of_copy(&self) -> Resources {
        self.sum_demand_of_copy(|task| task.min)
    }

    /// What all pods of all copies ask for.
    #[must_use]
    pub fn demand_of_all_pods(&self) -> Resources {
        self.sum_demand_of_copy(|task| task.most).times(u64::from(self.copies))
    }

    fn sum_demand_of_copy(&self, pods: impl Fn(&TaskAsk) -> u32) -> Resources {
        let mut demand = Resources::new();
        for task in &self.tasks {
            demand.add(&task.request.times(u64::from(pods(task))));
        }
        demand
    }
}

/// An [`Ask`] as the inner loop wants it.
#[derive(Debug, Clone)]
pub(crate) struct JobShape {
    pub(crate) ask: Arc<Ask>,
    pub(crate) minimum: Resources,
    pub(crate) sparse: Sparse,
    /// What it counts as among the jobs that run.
    pub(crate) counts: Sparse,
    /// Whose it is.
    pub(crate) tenants: Box<[Dim]>,
    /// One step of each task in every copy, with how many beyond the minimum.
    elastic: Box<[(Sparse, u32)]>,
    pub(crate) users: usize,
}

impl JobShape {
    pub(crate) fn new(ask: Arc<Ask>, dims: &mut Dims) -> Self {
        let minimum = ask.minimum();
        let sparse = dims.intern_amounts(&minimum);
        let elastic = ask
            .tasks
            .iter()
            .map(|task| {
                let step = task.step.max(1);
                let request = task.request.times(u64::from(ask.copies).saturating_mul(u64::from(step)));
                (dims.intern_amounts(&request), task.most.saturating_sub(task.min) / step)
            })
            .collect();
        let counts = ask.counted.list_counts(dims);
        let tenants = ask.counted.tenants().iter().map(|tenant| dims.intern_tenant(tenant)).collect();
        Self { ask, minimum, sparse, counts, tenants, elastic, users: 0 }
    }

    /// All that it names.
    pub(crate) fn list_dims(&self) -> impl Iterator<Item = Dim> {
        let amounts = self.demand().chain(self.elastic.iter().flat_map(|(step, _)| step)).map(|(dim, _)| *dim);
        amounts.chain(self.tenants.iter().copied())
    }

    /// What the minimum asks for, and what it counts as.
    pub(crate) fn demand(&self) -> impl Iterator<Item = &(Dim, Amount)> {
        self.sparse.iter().chain(&self.counts)
    }

    /// What the minimum asks for.
    pub(crate) fn asked_amount(&self, dim: Dim) -> Amount {
        self.demand().find(|(asked, _)| *asked == dim).map_or(Amount::ZERO, |(_, amount)| *amount)
    }

    /// Whether it is granted as a whole or not at all.
    pub(crate) fn is_all_or_nothing(&self) -> bool {
        self.elastic.iter().all(|(_, more)| *more == 0)
    }

    /// How many pods of each task, and what they are charged, where the minimum is known to fit.
    pub(crate) fn grant_pods(
        &self,
        path: &[QueueIndex],
        free: impl Fn(QueueIndex, Dim) -> Option<Amount>,
    ) -> (Vec<u32>, Resources) {
        let mut pods: Vec<u32> = self.ask.tasks.iter().map(|task| task.min).collect();
        let mut charged = self.minimum.clone();
        if self.is_all_or_nothing() {
            return (pods, charged);
        }
        // What this grant itself took, by dimension.
        let mut taken = DimAmounts::default();
        taken.add(&self.sparse);
        for (i, (step, most)) in self.elastic.iter().enumerate() {
            let fits = step.iter().filter(|(_, asked)| asked.is_positive()).map(|(dim, asked)| {
                let least = path.iter().filter_map(|node| free(*node, *dim)).min();
                least.map_or(u32::MAX, |least| {
                    u32::try_from((least - taken.get(*dim)).max(Amount::ZERO) / *asked).unwrap_or(u32::MAX)
                })
            });
            let more = fits.min().unwrap_or(u32::MAX).min(*most);
            if more == 0 {
                continue;
            }
            let all: Vec<(Dim, Amount)> =
                step.iter().map(|(dim, asked)| (*dim, asked.saturating_mul(i64::from(more)))).collect();
            taken.add(&all);
            let task = &self.ask.tasks[i];
            let more = more * task.step.max(1);
            pods[i] += more;
            charged.add(&task.request.times(u64::from(more).saturating_mul(u64::from(self.ask.copies))));
        }
        (pods, charged)
    }
}

/// What is free of `dim` at this queue alone; `None` without a ceiling.
pub(crate) fn free_quota(slot: &Slot, dim: Dim) -> Option<Amount> {
    let used = if dim.counts_jobs() { &slot.running } else { &slot.used };
    Some(find_ceiling(slot, dim)? - used.get(dim))
}

/// The most of `dim` that this queue alone may have.
pub(crate) fn find_ceiling(slot: &Slot, dim: Dim) -> Option<Amount> {
    if dim.counts_jobs() {
        return slot.spec.as_ref()?.running.get(dim);
    }
    [slot.capability.get(dim), slot.left.get(dim)].into_iter().flatten().min()
}

/// The first ceiling on the way up that `asked` would break.
pub(crate) fn find_first_short_quota(
    slots: &[Slot],
    path: &[QueueIndex],
    asked: &[(Dim, Amount)],
) -> Option<(QueueIndex, Dim, Amount)> {
    path.iter().find_map(|node| {
        let slot = &slots[node.index()];
        asked.iter().find_map(|(dim, asked)| {
            let free = free_quota(slot, *dim)?;
            (asked.is_positive() && *asked > free).then_some((*node, *dim, *asked))
        })
    })
}

/// What of it no ceiling on the way up could ever leave while queues are as they are, whatever ends or comes back.
pub(crate) fn list_beyond_reach<'a>(slot: &'a Slot, shape: &'a JobShape) -> impl Iterator<Item = &'a (Dim, Amount)> {
    let asked = shape.sparse.iter().filter(|_| slot.problem.is_none());
    asked.filter(|(dim, asked)| slot.reach.get(*dim).is_some_and(|most| *asked > most))
}

/// The reason why a ceiling can never be met, if it can not: more than the whole limit, with what the job `holds` there
/// already.
pub(crate) fn explain_unsatisfiable(
    slots: &[Slot],
    dims: &Dims,
    fleet: &FleetResources,
    node: QueueIndex,
    shape: &JobShape,
    holds: impl Fn(QueueIndex, Dim) -> Amount,
) -> Option<Reason> {
    let queue = &slots[node.index()];
    let exceeds = |bound: Bound, at: QueueIndex, dim: Dim, limit: Quantity| {
        let asked = shape.minimum.get(dims.resource_of(dim).as_str());
        Reason::ExceedsLimit {
            queue: queue.name.clone(),
            bound,
            resource: dims.resource_of(dim).clone(),
            asked,
            holds: holds(at, dim).to_quantity_like(asked),
            limit,
        }
    };
    let asked = || shape.sparse.iter().filter(|(_, asked)| asked.is_positive());
    for at in &queue.path {
        let slot = &slots[at.index()];
        for (dim, asked) in asked() {
            if slot.capability.get(*dim).is_some_and(|limit| *asked + holds(*at, *dim) > limit) {
                let limit = shown_limit(slot, dims, *dim);
                return Some(exceeds(Bound::Queue(slot.name.clone()), *at, *dim, limit));
            }
        }
    }
    if let Some(whole) = fleet.whole.as_ref() {
        let of = |dim: &Dim| whole.get(dims.resource_of(*dim).as_str());
        let beyond = |(dim, asked): &&(Dim, Amount)| {
            !dims.resource_of(*dim).is_card() && *asked + holds(QueueIndex::ROOT, *dim) > of(dim).into()
        };
        if let Some((dim, _)) = asked().find(beyond) {
            return Some(exceeds(Bound::Fleet, QueueIndex::ROOT, *dim, of(dim)));
        }
    }
    // Others' guarantees, from the top, where they leave too little first.
    queue.path.iter().rev().filter(|at| **at != QueueIndex::ROOT).find_map(|at| {
        let slot = &slots[at.index()];
        let short =
            |(dim, asked): &&(Dim, Amount)| slot.reach.get(*dim).is_some_and(|most| *asked + holds(*at, *dim) > most);
        let (dim, _) = asked().find(short)?;
        let most = slot.reach.get(*dim)?.to_quantity_like(fleet.ready.get(dims.resource_of(*dim).as_str()));
        Some(exceeds(Bound::Guaranteed(slot.name.clone()), *at, *dim, most))
    })
}

/// Whose ceiling `headroom` was, and how high it is.
pub(crate) fn find_limiting_bound(
    slots: &[Slot],
    dims: &Dims,
    fleet: &FleetResources,
    at: QueueIndex,
    dim: Dim,
) -> (Bound, Quantity) {
    let slot = &slots[at.index()];
    let own = slot.capability.get(dim);
    match slot.left.get(dim) {
        Some(left) if own.is_none_or(|own| left < own) => {
            if at == QueueIndex::ROOT {
                (Bound::Fleet, fleet.ready.get(dims.resource_of(dim).as_str()))
            } else {
                let like = fleet.ready.get(dims.resource_of(dim).as_str());
                (Bound::Guaranteed(slot.name.clone()), left.to_quantity_like(like))
            }
        }
        _ => (Bound::Queue(slot.name.clone()), shown_limit(slot, dims, dim)),
    }
}

fn shown_limit(slot: &Slot, dims: &Dims, dim: Dim) -> Quantity {
    let written = slot.spec.as_ref().and_then(|spec| spec.capability.get(dims.resource_of(dim).as_str()));
    slot.capability.get(dim).unwrap_or_default().to_quantity_like(written.unwrap_or_default())
}
