//! Which part of each queue's use is within what the queue deserves.
//!
//! Rule: the queue's jobs are counted one by one: first those that a queue below has within, then by priority, then by
//! start. A job that still fits into `deserved`, on every resource that the queue states and the job asks for, is
//! *within*, and so is one that is needed to fill the `guarantee`. A job that is not borrows, and takes nothing from
//! those after it. All minimums are counted before any surplus, of which as many pods are within as fit.
//!
//! So a queue that borrows still has jobs by right, which nobody outside takes ([`super::eligibility`]), and all
//! others may go at once without breaking a guarantee. Volcano's `preemptiveFn` of `plugins/capacity` decides for the
//! queue as a whole.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    gang::QueueName,
    queue::{
        preemption::{PreemptionInput, Preemptor, QueueAccount, RunningJob},
        quota::{
            amount::Amount,
            amounts::{Ceilings, Dim, DimAmounts, Dims, Sparse},
        },
    },
    resources::Resources,
};

/// A place in [`QueueAccounts::nodes`].
pub(crate) type AccountIndex = usize;

/// A queue, ready for sums.
#[derive(Debug)]
pub(crate) struct QueueAttributes {
    pub(crate) name: QueueName,
    /// Itself first, the root not in it.
    pub(crate) path: Box<[AccountIndex]>,
    /// What it deserves; `None` is not stated.
    pub(crate) deserved: Ceilings,
    /// Volcano: what is guaranteed is deserved (`capacity.go:1150-1155`), and a parent has at least its children's sum.
    guarantee: Ceilings,
    pub(crate) used: DimAmounts,
    pub(crate) reclaimable: bool,
    pub(crate) priority: i32,
}

/// The queues, with those that only jobs know.
#[derive(Debug)]
pub(crate) struct QueueAccounts {
    pub(crate) dims: Dims,
    pub(crate) nodes: Vec<QueueAttributes>,
    index: BTreeMap<QueueName, AccountIndex>,
}

impl QueueAccounts {
    pub(crate) fn new(input: &PreemptionInput<'_>, preemptor: &Preemptor) -> Self {
        let named = input.running.iter().map(|candidate| &candidate.queue).chain([&preemptor.queue]);
        // A queue that is gone deserves nothing, and what it holds may be taken back.
        let gone = QueueAccount { reclaimable: true, ..QueueAccount::default() };
        let mut stated: BTreeMap<&QueueName, &QueueAccount> = named.map(|name| (name, &gone)).collect();
        stated.extend(input.queues);
        let index: BTreeMap<QueueName, AccountIndex> =
            stated.keys().enumerate().map(|(spot, name)| ((*name).clone(), spot)).collect();
        let mut dims = Dims::default();
        let nodes = stated
            .iter()
            .map(|(name, account)| QueueAttributes {
                name: (*name).clone(),
                path: find_path(&stated, &index, name),
                deserved: stated_deserved(account, &mut dims),
                guarantee: stated_guarantee(account, &mut dims),
                used: stated_usage(account, &mut dims),
                reclaimable: account.reclaimable,
                priority: account.priority,
            })
            .collect();
        let mut accounts = Self { dims, nodes, index };
        for candidate in input.running.iter().filter(|candidate| !input.queues.contains_key(&candidate.queue)) {
            let charge = accounts.dims.intern_amounts(&candidate.charge);
            let spot = accounts.index[&candidate.queue];
            accounts.nodes[spot].used.add(&charge);
        }
        accounts.sum_upwards();
        accounts
    }

    pub(crate) fn index_of(&self, queue: &QueueName) -> Option<AccountIndex> {
        self.index.get(queue).copied()
    }

    pub(crate) fn path_of(&self, queue: &QueueName) -> &[AccountIndex] {
        self.index_of(queue).map_or(&[], |spot| &self.nodes[spot].path)
    }

    /// Spots from the deepest to the top.
    fn deepest_first(&self) -> Vec<AccountIndex> {
        let mut spots: Vec<AccountIndex> = (0..self.nodes.len()).collect();
        spots.sort_by_key(|spot| std::cmp::Reverse(self.nodes[*spot].path.len()));
        spots
    }

    /// A queue guarantees at least what its children do together, deserves at least what it guarantees, and where it
    /// states nothing of a resource, what its children deserve together.
    fn sum_upwards(&mut self) {
        let nothing = || vec![DimAmounts::default(); self.nodes.len()];
        let (mut guarantees, mut deserts) = (nothing(), nothing());
        let stated = self.nodes.iter().flat_map(|node| node.deserved.iter().chain(node.guarantee.iter()));
        let stated: BTreeSet<Dim> = stated.map(|(dim, _)| dim).collect();
        for spot in self.deepest_first() {
            let parent = self.nodes[spot].path.get(1).copied();
            for dim in stated.iter().copied() {
                let node = &mut self.nodes[spot];
                let below = guarantees[spot].get(dim);
                let guarantee = node.guarantee.get(dim).unwrap_or_default().max(below);
                let stated =
                    node.deserved.get(dim).or_else(|| Some(deserts[spot].get(dim)).filter(|sum| sum.is_positive()));
                let deserved =
                    stated.map(|deserved| deserved.max(guarantee)).or(guarantee.is_positive().then_some(guarantee));
                node.guarantee.set(dim, guarantee.is_positive().then_some(guarantee));
                node.deserved.set(dim, deserved);
                if let Some(parent) = parent {
                    guarantees[parent].add(&[(dim, guarantee)]);
                    deserts[parent].add(&[(dim, deserved.unwrap_or_default())]);
                }
            }
        }
    }
}

/// A queue with a missing parent, or in a circle, stands alone, as in the engine's tree.
fn find_path(
    accounts: &BTreeMap<&QueueName, &QueueAccount>,
    index: &BTreeMap<QueueName, AccountIndex>,
    queue: &QueueName,
) -> Box<[AccountIndex]> {
    let own = index[queue];
    let mut path = vec![own];
    let mut at = queue;
    while let Some(parent) = accounts.get(at).and_then(|account| account.parent.as_ref()) {
        match index.get(parent) {
            Some(spot) if !path.contains(spot) => path.push(*spot),
            Some(_) => return [own].into(),
            None => break,
        }
        at = parent;
    }
    path.into()
}

fn stated_deserved(account: &QueueAccount, dims: &mut Dims) -> Ceilings {
    let mut stated = Ceilings::default();
    for (name, deserved) in account.deserved.iter() {
        stated.set(dims.intern_resource(name), Some(Amount::from(deserved).max(Amount::ZERO)));
    }
    stated
}

fn stated_guarantee(account: &QueueAccount, dims: &mut Dims) -> Ceilings {
    let mut guaranteed = Ceilings::default();
    for (dim, amount) in dims.intern_amounts(&account.guarantee) {
        guaranteed.set(dim, Some(amount));
    }
    guaranteed
}

fn stated_usage(account: &QueueAccount, dims: &mut Dims) -> DimAmounts {
    let mut used = DimAmounts::default();
    used.add(&dims.intern_amounts(&account.used));
    used
}

/// Where something stands with one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeservedStatus {
    /// Within what the queue deserves, or needed for its guarantee.
    WithinDeserved,
    /// Borrowed: beyond what the queue deserves of these.
    Over(Box<[Dim]>),
    /// Borrowed: the queue states nothing of what it asks for.
    Unstated,
}

impl DeservedStatus {
    fn of_amount(node: &QueueAttributes, taken: &DimAmounts, amount: &[(Dim, Amount)]) -> Self {
        let asked = || amount.iter().filter(|(_, amount)| amount.is_positive());
        if asked().any(|(dim, _)| node.guarantee.get(*dim).is_some_and(|least| taken.get(*dim) < least)) {
            return Self::WithinDeserved;
        }
        if !amount.is_empty() && asked().all(|(dim, _)| node.deserved.get(*dim).is_none()) {
            return Self::Unstated;
        }
        let over = |(dim, amount): &&(Dim, Amount)| {
            node.deserved.get(*dim).is_some_and(|deserved| taken.get(*dim).saturating_add(*amount) > deserved)
        };
        let over: Box<[Dim]> = asked().filter(over).map(|(dim, _)| *dim).collect();
        if over.is_empty() { Self::WithinDeserved } else { Self::Over(over) }
    }
}

/// Where a job's surplus stands with one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SurplusStatus {
    /// Steps that are covered: those that would go last.
    pub(crate) within_deserved: u32,
    /// How the step stands that would go next after all that are not covered have gone; covered if there are none.
    pub(crate) next: DeservedStatus,
}

/// A job's charge in parts.
#[derive(Debug)]
pub(crate) struct ChargeParts {
    pub(crate) minimum: Sparse,
    /// What one step of surplus is, and how many such steps there are, in the order in which they go.
    pub(crate) surplus: Vec<(Sparse, u32)>,
}

impl ChargeParts {
    pub(crate) fn split_charge(dims: &mut Dims, charge: &Resources, surplus: &[(Resources, u32)]) -> Self {
        let mut minimum = charge.clone();
        surplus.iter().for_each(|(step, steps)| minimum.saturating_sub(&step.times(u64::from(*steps))));
        let surplus = surplus.iter().map(|(step, steps)| (dims.intern_amounts(step), *steps)).collect();
        Self { minimum: dims.intern_amounts(&minimum), surplus }
    }

    /// Steps of surplus.
    pub(crate) fn surplus_steps(&self) -> u32 {
        self.surplus.iter().fold(0, |sum, (_, steps)| sum.saturating_add(*steps))
    }

    /// What the first `steps` steps of surplus are.
    pub(crate) fn sum_first_surplus_steps(&self, mut steps: u32) -> DimAmounts {
        let mut first = DimAmounts::default();
        for (step, there) in &self.surplus {
            let here = steps.min(*there);
            first.add(&multiply_amount(step, here));
            steps -= here;
        }
        first
    }
}

fn multiply_amount(amount: &[(Dim, Amount)], times: u32) -> Vec<(Dim, Amount)> {
    amount.iter().map(|(dim, amount)| (*dim, amount.saturating_mul(i64::from(times)))).collect()
}

/// Counts the surplus of a covered job, from the step that would go last.
fn compute_surplus_status(node: &QueueAttributes, taken: &mut DimAmounts, parts: &ChargeParts) -> SurplusStatus {
    let mut within_deserved = 0_u32;
    for (step, steps) in parts.surplus.iter().rev() {
        let sits = count_steps_within_deserved(node, taken, step).min(*steps);
        taken.add(&multiply_amount(step, sits));
        within_deserved = within_deserved.saturating_add(sits);
        if sits < *steps {
            return SurplusStatus { within_deserved, next: DeservedStatus::of_amount(node, taken, step) };
        }
    }
    SurplusStatus { within_deserved, next: DeservedStatus::WithinDeserved }
}

/// How many equal steps in a row are covered: as many as fit, and at least as many as the guarantee needs.
fn count_steps_within_deserved(node: &QueueAttributes, taken: &DimAmounts, step: &[(Dim, Amount)]) -> u32 {
    let asked = || step.iter().filter(|(_, amount)| amount.is_positive());
    let fit = asked()
        .filter_map(|(dim, amount)| Some((node.deserved.get(*dim)? - taken.get(*dim)).max(Amount::ZERO) / *amount))
        .min()
        .unwrap_or(0);
    let needed = asked()
        .filter_map(|(dim, amount)| {
            let lacks = (node.guarantee.get(*dim)? - taken.get(*dim)).max(Amount::ZERO);
            Some((lacks + *amount - Amount::SMALLEST) / *amount)
        })
        .max()
        .unwrap_or(0);
    u32::try_from(fit.max(needed)).unwrap_or(u32::MAX)
}

/// What covers each job, in the order of the input, then along its queue's path.
#[derive(Debug)]
pub(crate) struct DeservedStatuses {
    pub(crate) minimum: Vec<Vec<DeservedStatus>>,
    pub(crate) surplus: Vec<Vec<SurplusStatus>>,
    /// Whether the preemptor would be covered, had it started now, along its own path.
    pub(crate) preemptor: Vec<bool>,
}

impl DeservedStatuses {
    pub(crate) fn new(
        accounts: &QueueAccounts,
        running: &[RunningJob],
        parts: &[ChargeParts],
        preemptor: (&Preemptor, &Sparse),
    ) -> Self {
        let paths: Vec<&[AccountIndex]> = running.iter().map(|candidate| accounts.path_of(&candidate.queue)).collect();
        let mut ranked: Vec<usize> = (0..running.len()).collect();
        ranked.sort_by_key(|job| deserved_order(&running[*job]));
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); accounts.nodes.len()];
        for job in ranked {
            paths[job].iter().for_each(|spot| below[*spot].push(job));
        }
        let mut statuses = Self {
            minimum: vec![Vec::new(); running.len()],
            surplus: vec![Vec::new(); running.len()],
            preemptor: Vec::new(),
        };
        for spot in accounts.deepest_first() {
            let asker = accounts.path_of(&preemptor.0.queue).contains(&spot).then_some(preemptor);
            statuses.compute_queue_statuses(&accounts.nodes[spot], &below[spot], running, parts, asker);
        }
        statuses
    }

    /// Counts all jobs below one queue; the queues below it were counted before.
    fn compute_queue_statuses(
        &mut self,
        node: &QueueAttributes,
        jobs: &[usize],
        running: &[RunningJob],
        parts: &[ChargeParts],
        preemptor: Option<(&Preemptor, &Sparse)>,
    ) {
        let is_first = |job: &usize| matches!(self.minimum[*job].last(), Some(DeservedStatus::WithinDeserved));
        let (first, then): (Vec<usize>, Vec<usize>) = jobs.iter().copied().partition(is_first);
        let asker_first = matches!(self.preemptor.last(), Some(true));
        let mut asker = preemptor;
        let mut taken = DimAmounts::default();
        for (late, job) in first.iter().map(|job| (false, *job)).chain(then.iter().map(|job| (true, *job))) {
            if let Some((preemptor, asks)) = asker {
                // It would start now: behind all that are as important.
                let comes_before =
                    (late, -i64::from(running[job].priority)) > (!asker_first, -i64::from(preemptor.priority));
                if comes_before {
                    self.preemptor
                        .push(DeservedStatus::of_amount(node, &taken, asks) == DeservedStatus::WithinDeserved);
                    asker = None;
                }
            }
            let status = DeservedStatus::of_amount(node, &taken, &parts[job].minimum);
            if status == DeservedStatus::WithinDeserved {
                taken.add(&parts[job].minimum);
            }
            self.minimum[job].push(status);
        }
        if let Some((_, asks)) = asker {
            self.preemptor.push(DeservedStatus::of_amount(node, &taken, asks) == DeservedStatus::WithinDeserved);
        }
        for job in first.into_iter().chain(then) {
            let spare = match self.minimum[job].last() {
                Some(borrowed @ (DeservedStatus::Over(_) | DeservedStatus::Unstated)) => {
                    SurplusStatus { within_deserved: 0, next: borrowed.clone() }
                }
                Some(DeservedStatus::WithinDeserved) | None => compute_surplus_status(node, &mut taken, &parts[job]),
            };
            self.surplus[job].push(spare);
        }
    }
}

/// By priority, then by start.
fn deserved_order(candidate: &RunningJob) -> impl Ord {
    (std::cmp::Reverse(candidate.priority), candidate.start_order())
}
