//! Which running job may be evicted for which pending one.
//!
//! *Reclaim.* Look at the queues below the nearest common queue of both jobs. The preemptor's queues there stay within
//! what they deserve with all of it started, on every resource that they state and it asks for, and state one that it
//! lacks. The victim's queues there are all reclaimable, none of them has the victim within what it deserves, and each
//! is over by it on one of those resources, or states nothing of what the victim asks for.
//!
//! *Preempt.* A rule of the policy allows it and the victim's priority is lower. Of a best-effort preemptor the victim
//! is best effort too: what gave way first would else take another's place by its priority. No queue of the victim
//! below the nearest common one covers the victim by its deserved amount. The common queue, or one above it, covers the
//! victim only if a queue nearer to the preemptor covers the preemptor.
//!
//! Neither takes a job that says no, is in a protected namespace, or was evicted too often or just now. What a queue
//! is guaranteed counts as deserved.
//!
//! *The turn of a large job.* A job that by itself is more than its queue deserves starts when its queue has nothing
//! else. Reclaimed at once it would only start again, and again. So it is not reclaimed whole until it has had, beyond
//! what its queue deserves, as much as its queue did without while the job waited. One that found idle what it took,
//! and did not wait, has no such turn. This rule only takes attempts away.
//!
//! *Why this ends.* Count the minimums that are within what a queue deserves, by depth of the queue (deepest first),
//! then by priority (highest first); after these, the running jobs by priority (highest first). Compare two such lists
//! as words in a dictionary. Each attempt makes the list greater. By reclaim, the preemptor is within at a queue below
//! the nearest common one, whose whole use is within, so it pushes nobody out, and its victims were within nothing
//! down there. By preempting, the preemptor is within deeper, or at a higher priority, than all its victims were, or
//! no victim was within anything and a job of higher priority runs instead. A job that starts without an attempt makes
//! the list greater too. Surplus does not count. Nothing else happens between two changes from outside, and there are
//! only so many lists. This rests on two facts: a preemptor whose attempt succeeds starts (else
//! [`super::FailedAttempts`] bounds it), and a later start is a later time.

use crate::{
    gang::QueueName,
    queue::{
        preemption::{
            EvictionReason, Exemption, NotEntitled, PreemptionInput, Preemptor, RuleScope, RunningJob,
            within_deserved::{
                AccountIndex, ChargeParts, DeservedStatus, DeservedStatuses, QueueAccounts, QueueAttributes,
            },
        },
        quota::{
            amount::Amount,
            amounts::{Dim, DimAmounts, Sparse},
        },
    },
    time::EpochSeconds,
};

/// Which part of a job is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JobPart {
    /// Pods beyond the minimum.
    Surplus,
    /// All.
    Whole,
}

/// By which right a job may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EvictionRight {
    Reclaim,
    Preempt,
}

/// The input, worked out for one preemptor.
pub(crate) struct Eligibility<'a> {
    pub(crate) input: &'a PreemptionInput<'a>,
    pub(crate) preemptor: &'a Preemptor,
    pub(crate) accounts: QueueAccounts,
    pub(crate) parts: Vec<ChargeParts>,
    pub(crate) statuses: DeservedStatuses,
    asks: Sparse,
    lacks: Vec<Dim>,
    /// By how many of its queues are not the victim's, what the preemptor may take back.
    entitled: Vec<Result<Vec<Dim>, NotEntitled>>,
}

/// How far two paths go until they meet; their lengths if they never do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommonQueue {
    pub(crate) preemptor: usize,
    pub(crate) candidate: usize,
}

impl<'a> Eligibility<'a> {
    pub(crate) fn new(
        input: &'a PreemptionInput<'a>,
        preemptor: &'a Preemptor,
        mut accounts: QueueAccounts,
        parts: Vec<ChargeParts>,
    ) -> Self {
        let asks = accounts.dims.intern_amounts(&preemptor.asks);
        let lacked =
            |dim: &Dim| preemptor.lacks.is_empty() || preemptor.lacks.contains(accounts.dims.resource_of(*dim));
        let lacks =
            asks.iter().filter(|(_, amount)| amount.is_positive()).map(|(dim, _)| *dim).filter(lacked).collect();
        let statuses = DeservedStatuses::new(&accounts, input.running, &parts, (preemptor, &asks));
        let levels = accounts.path_of(&preemptor.queue).len();
        let mut eligibility = Self { input, preemptor, accounts, parts, statuses, asks, lacks, entitled: Vec::new() };
        eligibility.entitled = (0..=levels).map(|levels| eligibility.find_entitled_resources(levels)).collect();
        eligibility
    }

    /// What a part of a job holds: of surplus, the first `steps` steps.
    pub(crate) fn amount_of(&self, job: usize, part: JobPart, steps: u32) -> DimAmounts {
        let parts = &self.parts[job];
        match part {
            JobPart::Surplus => parts.sum_first_surplus_steps(steps),
            JobPart::Whole => {
                let mut whole = parts.sum_first_surplus_steps(parts.surplus_steps());
                whole.add(&parts.minimum);
                whole
            }
        }
    }

    /// True if there is something of these resources in it.
    fn holds_any(&self, job: usize, part: JobPart, steps: u32, of: &[Dim]) -> bool {
        let parts = &self.parts[job];
        let any = |amount: &Sparse| amount.iter().any(|(dim, amount)| amount.is_positive() && of.contains(dim));
        let steps = if part == JobPart::Whole { u32::MAX } else { steps };
        let before = |i: usize| parts.surplus[..i].iter().fold(0_u32, |sum, (_, there)| sum.saturating_add(*there));
        (part == JobPart::Whole && any(&parts.minimum))
            || parts.surplus.iter().enumerate().any(|(i, (step, _))| before(i) < steps && any(step))
    }

    pub(crate) fn find_common_queue(&self, candidate: &RunningJob) -> CommonQueue {
        let (mine, theirs) = (self.accounts.path_of(&self.preemptor.queue), self.accounts.path_of(&candidate.queue));
        let met = mine.iter().enumerate().find_map(|(i, spot)| Some((i, theirs.iter().position(|at| at == spot)?)));
        let (preemptor, candidate) = met.unwrap_or((mine.len(), theirs.len()));
        CommonQueue { preemptor, candidate }
    }

    /// The right by which this part of a job may be taken; of surplus, how many steps.
    pub(crate) fn find_eviction_right(&self, job: usize, part: JobPart) -> Result<(EvictionRight, u32), Exemption> {
        self.check_protected(&self.input.running[job])?;
        let helps = |steps| self.holds_any(job, part, steps, &self.lacks);
        if !helps(u32::MAX) {
            return Err(Exemption::NoHelp);
        }
        let (reclaim, preempt) = (self.check_reclaim(job, part), self.check_preempt(job, part));
        let (right, steps) = match (reclaim, preempt) {
            (Ok(steps), _) => (EvictionRight::Reclaim, steps),
            (Err(_), Ok(steps)) => (EvictionRight::Preempt, steps),
            // Of the two refusals the one that is about this job, not about the pair.
            (Err(Exemption::NotNearer), Err(why)) | (Err(why), Err(_)) => return Err(why),
        };
        if helps(steps) { Ok((right, steps)) } else { Err(Exemption::NoHelp) }
    }

    /// Whom nobody takes, whatever the right.
    fn check_protected(&self, candidate: &RunningJob) -> Result<(), Exemption> {
        let (policy, now) = (self.input.policy, self.input.now);
        if candidate.id == self.preemptor.id || !candidate.ours {
            Err(Exemption::NotOurs)
        } else if candidate.preemptable == Some(false) {
            Err(Exemption::SaysNo)
        } else if policy.protected.contains(&candidate.namespace) {
            Err(Exemption::Protected)
        } else if policy.bounds.is_evicted_too_often(candidate, now) {
            Err(Exemption::TooOften)
        } else if policy.bounds.cools_until(candidate).is_some_and(|until| until > now) {
            Err(Exemption::CoolsDown)
        } else {
            Ok(())
        }
    }

    fn check_reclaim(&self, job: usize, part: JobPart) -> Result<u32, Exemption> {
        let candidate = &self.input.running[job];
        let meeting = self.find_common_queue(candidate);
        if !self.input.policy.reclaim || meeting.preemptor == 0 || meeting.candidate == 0 {
            return Err(Exemption::NotNearer);
        }
        let Ok(matters) = &self.entitled[meeting.preemptor] else { return Err(Exemption::NotNearer) };
        let steps = self.count_steps_above_deserved(job, part, meeting.candidate)?;
        let counts = |level| match self.deserved_status_of(job, part, level) {
            DeservedStatus::Over(dims) => dims.iter().any(|dim| matters.contains(dim)),
            DeservedStatus::Unstated | DeservedStatus::WithinDeserved => true,
        };
        if !(0..meeting.candidate).all(counts) || !self.holds_any(job, part, steps, matters) {
            return Err(Exemption::OverElsewhere);
        }
        self.check_reclaimable(candidate, meeting)?;
        if part == JobPart::Whole && self.turn_ends_at(job).is_some_and(|until| until > self.input.now) {
            return Err(Exemption::Turn);
        }
        if candidate.preemptable.is_none() && !self.input.policy.unset.reclaim {
            return Err(Exemption::SaysNothing);
        }
        Ok(steps)
    }

    /// Until when a job has its turn; `None` if it has none.
    pub(crate) fn turn_ends_at(&self, job: usize) -> Option<EpochSeconds> {
        let candidate = &self.input.running[job];
        let (whole, meeting) = (self.amount_of(job, JobPart::Whole, 0), self.find_common_queue(candidate));
        let started = candidate.started?;
        let created = candidate.created.as_time();
        let waited = started.seconds_since(candidate.evictions.last.map_or(created, |last| last.max(created)));
        // Where a queue is over: what it did without in that time, over what the job has beyond; nothing if others are
        // there.
        let turn = |node: &QueueAttributes, dim: &Dim| {
            let (has, deserved) = (whole.get(*dim), node.deserved.get(*dim).unwrap_or_default());
            match node.used.get(*dim) {
                used if used <= deserved => None,
                used if used > has => Some(0),
                _ => Some(deserved.saturating_mul(waited.max(0)) / (has - deserved)),
            }
        };
        let below = &self.accounts.path_of(&candidate.queue)[..meeting.candidate];
        let matters = self.reclaimable_resources(meeting.preemptor);
        let turns =
            below.iter().flat_map(|spot| matters.iter().filter_map(|dim| turn(&self.accounts.nodes[*spot], dim)));
        let longest = turns.min().map(|turn| i64::try_from(turn).unwrap_or(i64::MAX))?;
        Some(started.saturating_add(longest.min(self.input.policy.bounds.longest)))
    }

    fn check_preempt(&self, job: usize, part: JobPart) -> Result<u32, Exemption> {
        let (candidate, policy) = (&self.input.running[job], self.input.policy);
        let meeting = self.find_common_queue(candidate);
        if self.preemptor.best_effort && !candidate.best_effort {
            return Err(Exemption::NotBestEffort);
        }
        if candidate.priority >= self.preemptor.priority || !self.is_allowed_by_rule(candidate, meeting) {
            return Err(Exemption::NotLower);
        }
        let steps = self.count_steps_above_deserved(job, part, meeting.candidate)?;
        if part == JobPart::Whole && !self.preemptor_is_within_deserved_first(job, meeting) {
            return Err(Exemption::WithinDeserved);
        }
        self.check_reclaimable(candidate, meeting)?;
        if candidate.preemptable.is_none() && !policy.unset.preempt {
            return Err(Exemption::SaysNothing);
        }
        Ok(steps)
    }

    /// Steps that none of the first `levels` queues of a job covers: for all of it none, if its minimum is not covered.
    fn count_steps_above_deserved(&self, job: usize, part: JobPart, levels: usize) -> Result<u32, Exemption> {
        match part {
            JobPart::Whole if self.statuses.minimum[job][..levels].contains(&DeservedStatus::WithinDeserved) => {
                Err(Exemption::WithinDeserved)
            }
            JobPart::Whole => Ok(0),
            JobPart::Surplus => {
                let within_deserved =
                    self.statuses.surplus[job][..levels].iter().map(|spare| spare.within_deserved).max();
                match self.parts[job].surplus_steps().saturating_sub(within_deserved.unwrap_or(0)) {
                    0 => Err(Exemption::WithinDeserved),
                    steps => Ok(steps),
                }
            }
        }
    }

    /// True if, from the preemptor's queue up, a queue covers the preemptor before one covers the job.
    fn preemptor_is_within_deserved_first(&self, job: usize, meeting: CommonQueue) -> bool {
        let preemptor = &self.statuses.preemptor;
        if preemptor[..meeting.preemptor].contains(&true) {
            return true;
        }
        let above = preemptor[meeting.preemptor..].iter().zip(&self.statuses.minimum[job][meeting.candidate..]);
        for (preemptor, job) in above {
            match (preemptor, job) {
                (true, _) => return true,
                (false, DeservedStatus::WithinDeserved) => return false,
                (false, _) => {}
            }
        }
        true
    }

    /// True if the policy lets the preemptor preempt the job where they are.
    fn is_allowed_by_rule(&self, candidate: &RunningJob, meeting: CommonQueue) -> bool {
        let (mine, theirs) = (self.accounts.path_of(&self.preemptor.queue), self.accounts.path_of(&candidate.queue));
        let near = match (meeting.preemptor, meeting.candidate) {
            (0, 0) => RuleScope::SameQueue,
            (1, 1) => RuleScope::SameParent,
            _ => RuleScope::AnyQueue,
        };
        self.input.policy.preempt.iter().any(|rule| {
            near <= rule.scope
                && rule.by.matches_job(self.queue_names(mine), self.preemptor.priority)
                && rule.of.matches_job(self.queue_names(theirs), candidate.priority)
        })
    }

    fn queue_names(&self, path: &[AccountIndex]) -> impl Iterator<Item = &QueueName> {
        path.iter().map(|spot| &self.accounts.nodes[*spot].name)
    }

    /// Every queue of the job below the nearest common one must be.
    fn check_reclaimable(&self, candidate: &RunningJob, meeting: CommonQueue) -> Result<(), Exemption> {
        let below = &self.accounts.path_of(&candidate.queue)[..meeting.candidate];
        let all = below.iter().all(|spot| self.accounts.nodes[*spot].reclaimable);
        if all { Ok(()) } else { Err(Exemption::NotReclaimable) }
    }

    fn deserved_status_of(&self, job: usize, part: JobPart, level: usize) -> &DeservedStatus {
        match part {
            JobPart::Surplus => &self.statuses.surplus[job][level].next,
            JobPart::Whole => &self.statuses.minimum[job][level],
        }
    }

    /// The resources on which the preemptor may take back, where its first `levels` queues are not the victim's.
    fn find_entitled_resources(&self, levels: usize) -> Result<Vec<Dim>, NotEntitled> {
        let path = &self.accounts.path_of(&self.preemptor.queue)[..levels];
        for spot in path {
            let node = &self.accounts.nodes[*spot];
            for (dim, asked) in &self.asks {
                let would = node.used.get(*dim).saturating_add(*asked);
                if let Some(deserved) = node.deserved.get(*dim).filter(|deserved| would > *deserved) {
                    return Err(self.not_entitled(*spot, *dim, Some(deserved)));
                }
            }
        }
        let stated = |dim: &&Dim| path.iter().any(|spot| self.accounts.nodes[*spot].deserved.get(**dim).is_some());
        let matters: Vec<Dim> = self.lacks.iter().filter(stated).copied().collect();
        match (matters.is_empty(), path.first(), self.lacks.first()) {
            (true, Some(spot), Some(dim)) => Err(self.not_entitled(*spot, *dim, None)),
            _ => Ok(matters),
        }
    }

    /// The same, worked out; nothing where it may take nothing back.
    pub(crate) fn reclaimable_resources(&self, levels: usize) -> &[Dim] {
        self.entitled[levels].as_deref().unwrap_or_default()
    }

    /// Why it is entitled to nothing of anybody, if so.
    pub(crate) fn check_any_entitlement(&self) -> Result<(), NotEntitled> {
        let refused = self.entitled.last().and_then(|farthest| farthest.as_ref().err());
        let some = self.entitled.iter().skip(1).any(Result::is_ok);
        refused.filter(|_| !some).map_or(Ok(()), |why| Err(why.clone()))
    }

    fn not_entitled(&self, spot: AccountIndex, dim: Dim, deserved: Option<Amount>) -> NotEntitled {
        let (node, name) = (&self.accounts.nodes[spot], self.accounts.dims.resource_of(dim));
        let asked = self.preemptor.asks.get(name.as_str());
        let would = node.used.get(dim).saturating_add(asked.into()).to_quantity_like(asked);
        let deserved = deserved.map(|deserved| deserved.to_quantity_like(asked));
        NotEntitled { queue: node.name.clone(), resource: name.clone(), would, deserved }
    }

    /// The right in words.
    pub(crate) fn explain_eviction(&self, job: usize, part: JobPart, right: EvictionRight) -> EvictionReason {
        let candidate = &self.input.running[job];
        let preemptor = self.preemptor.queue.clone();
        if right == EvictionRight::Preempt {
            return EvictionReason::Preempted { preemptor, priority: candidate.priority, by: self.preemptor.priority };
        }
        let meeting = self.find_common_queue(candidate);
        let path = self.accounts.path_of(&candidate.queue);
        // The queue farthest up is the one that owes.
        let at = meeting.candidate.saturating_sub(1);
        let node = &self.accounts.nodes[path[at]];
        let matters = self.reclaimable_resources(meeting.preemptor);
        let whole = self.amount_of(job, JobPart::Whole, 0);
        let over = match self.deserved_status_of(job, part, at) {
            DeservedStatus::Over(dims) => dims.iter().find(|dim| matters.contains(dim)),
            _ => matters.iter().find(|dim| whole.get(**dim).is_positive()),
        };
        let over = over.copied();
        let name = over.map(|dim| self.accounts.dims.resource_of(dim).clone());
        let used = over.map_or(Amount::ZERO, |dim| node.used.get(dim));
        let shown = |amount: Amount| name.as_ref().map_or_else(Default::default, |name| amount.to_quantity_of(name));
        EvictionReason::Reclaimed {
            preemptor,
            queue: node.name.clone(),
            used: shown(used),
            deserved: over.and_then(|dim| node.deserved.get(dim)).map(shown),
            resource: name.unwrap_or_else(|| "".into()),
        }
    }
}
