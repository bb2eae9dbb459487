//! The rules the slow way, by name and without any of the search's tables.

use super::*;
use crate::resources::ResourceName;

/// See the module.
pub(crate) struct Model<'a> {
    world: &'a World,
    preemptor: &'a Preemptor,
    /// Covered minimums, and pods of surplus that are covered, by queue and job.
    within_deserved: BTreeMap<(QueueName, JobId), (bool, u32)>,
    preemptor_within_deserved: BTreeSet<QueueName>,
}

impl<'a> Model<'a> {
    pub(crate) fn new(world: &'a World, preemptor: &'a Preemptor) -> Self {
        let mut model =
            Self { world, preemptor, within_deserved: BTreeMap::new(), preemptor_within_deserved: BTreeSet::new() };
        let mut names: Vec<&QueueName> = world.queues.keys().collect();
        names.sort_by_key(|name| std::cmp::Reverse(world.path(name).len()));
        names.into_iter().for_each(|name| model.count_queue(name));
        model
    }

    /// Covered minimums by depth (deepest first), then priority (highest first), then running jobs by priority.
    pub(crate) fn score(&self) -> Vec<usize> {
        let mut score = Vec::new();
        for depth in (1..6).rev() {
            for priority in (0..5).rev() {
                let here = |((queue, id), (minimum, _)): (&(QueueName, JobId), &(bool, u32))| {
                    let candidate = self.world.running.iter().find(|candidate| candidate.id == *id).unwrap();
                    *minimum && candidate.priority == priority && self.world.path(queue).len() == depth
                };
                score.push(self.within_deserved.iter().filter(|entry| here(*entry)).count());
            }
        }
        for priority in (0..5).rev() {
            score.push(self.world.running.iter().filter(|candidate| candidate.priority == priority).count());
        }
        score
    }

    fn children(&self, queue: &QueueName) -> Vec<&QueueName> {
        let child =
            |(name, account): (&'a QueueName, &QueueAccount)| (account.parent.as_ref() == Some(queue)).then_some(name);
        self.world.queues.iter().filter_map(child).collect()
    }

    fn guarantee(&self, queue: &QueueName, dim: &str) -> i128 {
        let below = self.children(queue).into_iter().map(|child| self.guarantee(child, dim)).sum::<i128>();
        self.world.queues[queue].guarantee.get(dim).as_nano().max(below)
    }

    fn deserved(&self, queue: &QueueName, dim: &str) -> Option<i128> {
        let own = self.world.queues[queue].deserved.get(dim).map(Quantity::as_nano);
        let below: i128 = self.children(queue).into_iter().filter_map(|child| self.deserved(child, dim)).sum();
        let guarantee = self.guarantee(queue, dim);
        let stated = own.or((below > 0).then_some(below));
        stated.map(|stated| stated.max(guarantee)).or((guarantee > 0).then_some(guarantee))
    }

    /// Covered, or else the resources that it is over on (none of them: nothing is stated).
    fn check_within_deserved(
        &self,
        queue: &QueueName,
        taken: &Resources,
        amount: &Resources,
    ) -> Result<(), Vec<ResourceName>> {
        let needed = |name: &ResourceName| taken.get(name.as_str()).as_nano() < self.guarantee(queue, name.as_str());
        if amount.iter().any(|(name, _)| needed(name)) {
            return Ok(());
        }
        let stated = |name: &ResourceName| self.deserved(queue, name.as_str());
        let over = |(name, amount): &(&ResourceName, Quantity)| {
            stated(name).is_some_and(|most| taken.get(name.as_str()).as_nano() + amount.as_nano() > most)
        };
        let over: Vec<ResourceName> = amount.iter().filter(over).map(|(name, _)| name.clone()).collect();
        let states = amount.is_empty() || amount.iter().any(|(name, _)| stated(name).is_some());
        if over.is_empty() && states { Ok(()) } else { Err(over) }
    }

    fn below(&self, queue: &QueueName) -> Vec<&'a RunningJob> {
        let mut jobs: Vec<&RunningJob> =
            self.world.running.iter().filter(|candidate| self.world.path(&candidate.queue).contains(queue)).collect();
        let is_within_deserved = |candidate: &RunningJob| {
            let mut children = self.children(queue).into_iter();
            children.any(|child| {
                self.within_deserved.get(&(child.clone(), candidate.id.clone())).is_some_and(|(minimum, _)| *minimum)
            })
        };
        jobs.sort_by_key(|candidate| {
            (
                !is_within_deserved(candidate),
                -candidate.priority,
                candidate.started.unwrap_or(EpochSeconds::MAX),
                candidate.id.clone(),
            )
        });
        jobs
    }

    fn count_queue(&mut self, queue: &QueueName) {
        let jobs = self.below(queue);
        let children = self.children(queue);
        let mut taken = Resources::new();
        let mine = self.world.path(&self.preemptor.queue).contains(queue);
        let late = !children.iter().any(|child| self.preemptor_within_deserved.contains(*child));
        let late_of = |candidate: &RunningJob| {
            !children.iter().any(|child| {
                self.within_deserved.get(&((*child).clone(), candidate.id.clone())).is_some_and(|(minimum, _)| *minimum)
            })
        };
        // What the preemptor sees: all who come before it.
        let before: Vec<bool> = jobs
            .iter()
            .map(|candidate| (late_of(candidate), -candidate.priority) <= (late, -self.preemptor.priority))
            .collect();
        let mut seen = None;
        let mut minimums = Vec::new();
        for (candidate, before) in jobs.iter().zip(before) {
            if !before {
                seen.get_or_insert_with(|| taken.clone());
            }
            let within_deserved = self.check_within_deserved(queue, &taken, &minimum(candidate)).is_ok();
            if within_deserved {
                taken.add(&minimum(candidate));
            }
            minimums.push(within_deserved);
        }
        if mine
            && self.check_within_deserved(queue, &seen.unwrap_or_else(|| taken.clone()), &self.preemptor.asks).is_ok()
        {
            self.preemptor_within_deserved.insert(queue.clone());
        }
        for (candidate, minimum_within_deserved) in jobs.iter().zip(minimums) {
            let mut pods = 0;
            let pod = pod(candidate);
            while minimum_within_deserved
                && pods < spare(candidate)
                && self.check_within_deserved(queue, &taken, &pod).is_ok()
            {
                taken.add(&pod);
                pods += 1;
            }
            self.within_deserved.insert((queue.clone(), candidate.id.clone()), (minimum_within_deserved, pods));
        }
    }

    /// The queues of a job below the nearest one above the preemptor too, and those from there on.
    pub(crate) fn split(&self, of: &QueueName, other: &QueueName) -> (Vec<QueueName>, Vec<QueueName>) {
        let other = self.world.path(other);
        self.world.path(of).into_iter().partition(|name| !other.contains(name))
    }

    fn lacks(&self, name: &ResourceName) -> bool {
        self.preemptor.lacks.is_empty() || self.preemptor.lacks.contains(name)
    }

    /// Whether so much of a job may be taken: so many pods of surplus, or all.
    pub(crate) fn allows(&self, candidate: &RunningJob, pods: Option<u32>) -> bool {
        let amount = pods.map_or_else(|| candidate.charge.clone(), |pods| pod(candidate).times(u64::from(pods)));
        let helps =
            amount.iter().any(|(name, _)| self.lacks(name) && !self.preemptor.asks.get(name.as_str()).is_zero());
        let (below, from) = self.split(&candidate.queue, &self.preemptor.queue);
        let reclaimable = below.iter().all(|name| self.world.queues[name].reclaimable);
        let is_borrowed = |name: &QueueName| {
            let (minimum, surplus) = self.within_deserved[&(name.clone(), candidate.id.clone())];
            pods.map_or(!minimum, |pods| pods <= spare(candidate) - surplus)
        };
        helps
            && reclaimable
            && candidate.preemptable != Some(false)
            && below.iter().all(is_borrowed)
            && (self.reclaims(candidate, &amount, &below) || self.preempts(candidate, pods.is_none(), &below, &from))
    }

    fn reclaims(&self, candidate: &RunningJob, amount: &Resources, below: &[QueueName]) -> bool {
        let (mine, _) = self.split(&self.preemptor.queue, &candidate.queue);
        let asks = &self.preemptor.asks;
        let within = mine.iter().all(|queue| {
            asks.iter().all(|(name, asked)| {
                let would = self.world.queues[queue].used.get(name.as_str()).as_nano() + asked.as_nano();
                self.deserved(queue, name.as_str()).is_none_or(|deserved| would <= deserved)
            })
        });
        let stated = |name: &ResourceName| mine.iter().any(|queue| self.deserved(queue, name.as_str()).is_some());
        let matters: Vec<&ResourceName> =
            asks.iter().map(|(name, _)| name).filter(|name| self.lacks(name) && stated(name)).collect();
        let over = |queue: &QueueName| match self.over(queue, candidate) {
            over if over.is_empty() => true,
            over => over.iter().any(|name| matters.contains(&name)),
        };
        within && !below.is_empty() && amount.iter().any(|(name, _)| matters.contains(&name)) && below.iter().all(over)
    }

    /// What a borrowed part of a job is over on, from the job's own minimum_covered.
    fn over(&self, queue: &QueueName, candidate: &RunningJob) -> Vec<ResourceName> {
        let mut taken = Resources::new();
        let jobs = self.below(queue);
        for job in &jobs {
            let (within_deserved, _) = self.within_deserved[&(queue.clone(), job.id.clone())];
            if job.id == candidate.id && !within_deserved {
                return self.check_within_deserved(queue, &taken, &minimum(job)).unwrap_err();
            }
            if within_deserved {
                taken.add(&minimum(job));
            }
        }
        for job in &jobs {
            let (_, pods) = self.within_deserved[&(queue.clone(), job.id.clone())];
            taken.add(&pod(job).times(u64::from(pods)));
            if job.id == candidate.id {
                return self.check_within_deserved(queue, &taken, &pod(job)).err().unwrap_or_default();
            }
        }
        Vec::new()
    }

    fn preempts(&self, candidate: &RunningJob, whole: bool, below: &[QueueName], from: &[QueueName]) -> bool {
        let (mine, _) = self.split(&self.preemptor.queue, &candidate.queue);
        let near = match (mine.len(), below.len()) {
            (0, 0) => RuleScope::SameQueue,
            (1, 1) => RuleScope::SameParent,
            _ => RuleScope::AnyQueue,
        };
        let ruled = self.world.policy.preempt.iter().any(|rule| near <= rule.scope);
        let is_within_deserved = |queue: &QueueName| self.within_deserved[&(queue.clone(), candidate.id.clone())].0;
        let first_of_mine =
            from.iter().position(|queue| self.preemptor_within_deserved.contains(queue)).unwrap_or(usize::MAX);
        let first_of_its = from.iter().position(is_within_deserved).unwrap_or(usize::MAX);
        let outranks = mine.iter().any(|queue| self.preemptor_within_deserved.contains(queue))
            || first_of_its == usize::MAX
            || first_of_mine <= first_of_its;
        ruled
            && candidate.priority < self.preemptor.priority
            && candidate.preemptable == Some(true)
            && (!whole || outranks)
    }

    /// Everything that may be taken.
    pub(crate) fn all(&self) -> Vec<(JobId, Option<u32>)> {
        let most = |candidate: &RunningJob| {
            if self.allows(candidate, None) {
                return Some((candidate.id.clone(), None));
            }
            let pods = (1..=spare(candidate)).rev().find(|pods| self.allows(candidate, Some(*pods)))?;
            Some((candidate.id.clone(), Some(pods)))
        };
        self.world.running.iter().filter_map(most).collect()
    }
}

pub(crate) fn spare(candidate: &RunningJob) -> u32 {
    candidate
        .elastic
        .as_ref()
        .map_or(0, |gang| gang.tasks[0].placed.values().sum::<u32>().saturating_sub(gang.min_available))
}

fn pod(candidate: &RunningJob) -> Resources {
    candidate.elastic.as_ref().map(|gang| gang.tasks[0].request.clone()).unwrap_or_default()
}

fn minimum(candidate: &RunningJob) -> Resources {
    let mut minimum = candidate.charge.clone();
    minimum.saturating_sub(&pod(candidate).times(u64::from(spare(candidate))));
    minimum
}
