//! How few victims suffice.
//!
//! Rule: as Kueue does (`pkg/scheduler/preemption`): take one victim after the other, in order, until the preemptor
//! fits; then, from the last on, keep every victim running that is not needed. The rest are still taken by right,
//! which Kueue can not say: here no right depends on who else is taken.

use std::collections::BTreeMap;

use crate::{
    queue::preemption::{
        AttemptRefusal, EvictedPart, NoEvictions, PreemptionInput, Preemptor, RunningJob, Victim,
        eligibility::{Eligibility, JobPart},
        surplus::Surplus,
        victim_order::{EvictionCandidate, VictimOrder, VictimRank, compute_lost_work},
        within_deserved::{ChargeParts, QueueAccounts},
    },
    resources::Resources,
};

/// The victims for a preemptor, or why there are none. `fits` as in [`super::plan_evictions`].
pub(crate) fn choose_victims(
    input: &PreemptionInput<'_>,
    preemptor: &Preemptor,
    rank: VictimRank,
    fits: impl FnMut(&[&Victim]) -> bool,
) -> Result<Vec<Victim>, Box<NoEvictions>> {
    let mut accounts = QueueAccounts::new(input, preemptor);
    let surplus: Vec<Surplus> = input
        .running
        .iter()
        .map(|candidate| candidate.elastic.as_ref().map(Surplus::from_gang).unwrap_or_default())
        .collect();
    let runs = |candidate: &RunningJob, surplus: &Surplus| {
        candidate.elastic.as_ref().map(|gang| surplus.list_removal_steps(gang))
    };
    let parts = input
        .running
        .iter()
        .zip(&surplus)
        .map(|(candidate, surplus)| {
            ChargeParts::split_charge(
                &mut accounts.dims,
                &candidate.charge,
                &runs(candidate, surplus).unwrap_or_default(),
            )
        })
        .collect();
    let eligibility = Eligibility::new(input, preemptor, accounts, parts);
    let line = VictimOrder::new(&eligibility, rank);
    let mut search = VictimSearch {
        eligibility: &eligibility,
        surplus: &surplus,
        line,
        steps: Vec::new(),
        victims: Vec::new(),
        fits,
    };
    if search.add_until_enough() {
        search.drop_unneeded_victims();
        search.trim_surplus();
        return Ok(search.victims);
    }
    let all = last_steps(&search.steps, |_| true);
    let mut frees = Resources::new();
    all.iter().for_each(|i| frees.add(&search.victims[*i].frees));
    let refused =
        if all.is_empty() { AttemptRefusal::Nobody } else { AttemptRefusal::TooLittle { jobs: all.len(), frees } };
    let exempt = std::mem::take(&mut search.line.exempt);
    let (bounds, now) = (&input.policy.bounds, input.now);
    let turns = (0..input.running.len()).filter_map(|job| eligibility.turn_ends_at(job)).filter(|until| *until > now);
    let free_at =
        input.running.iter().filter_map(|candidate| bounds.protection_ends_at(candidate, now)).chain(turns).min();
    Err(Box::new(NoEvictions {
        refused,
        asks: preemptor.asks.clone(),
        entitled: eligibility.check_any_entitlement(),
        exempt,
        free_at,
    }))
}

/// Candidates in order, and how many of them are needed.
struct VictimSearch<'a, F> {
    eligibility: &'a Eligibility<'a>,
    surplus: &'a [Surplus],
    line: VictimOrder<'a>,
    /// Those that are taken, in order, and what each makes of its job.
    steps: Vec<EvictionCandidate>,
    victims: Vec<Victim>,
    fits: F,
}

impl<F: FnMut(&[&Victim]) -> bool> VictimSearch<'_, F> {
    /// Takes one, two, four, ... until it fits; then no more than are needed in this order.
    fn add_until_enough(&mut self) -> bool {
        let mut enough_not = 0;
        loop {
            let wanted = (enough_not * 2).max(1);
            while self.steps.len() < wanted
                && let Some(step) = self.line.take_next()
            {
                self.steps.push(step);
                self.victims.push(self.build_victim(step));
            }
            let all = self.steps.len();
            if all == enough_not {
                return false;
            }
            if self.is_enough(|i| i < all) {
                break;
            }
            enough_not = all;
        }
        let mut enough = self.steps.len();
        while enough_not + 1 < enough {
            let middle = enough_not.midpoint(enough);
            if self.is_enough(|i| i < middle) {
                enough = middle;
            } else {
                enough_not = middle;
            }
        }
        self.steps.truncate(enough);
        self.victims.truncate(enough);
        true
    }

    /// Puts back all who are not needed, the last ones first, as many at once as can be.
    fn drop_unneeded_victims(&mut self) {
        let mut kept = vec![true; self.steps.len()];
        let mut open = vec![(0, kept.len())];
        while let Some((from, to)) = open.pop() {
            if from == to {
                continue;
            }
            if self.is_enough(|i| kept[i] && !(from..to).contains(&i)) {
                kept[from..to].fill(false);
            } else if to - from > 1 {
                let middle = from.midpoint(to);
                open.extend([(from, middle), (middle, to)]);
            }
        }
        let last = last_steps(&self.steps, |i| kept[i]);
        self.steps = last.iter().map(|i| self.steps[*i]).collect();
        self.victims = last.into_iter().map(|i| self.victims[i].clone()).collect();
    }

    /// Takes no more surplus of each than is needed. To be called when each job is there once.
    fn trim_surplus(&mut self) {
        for i in (0..self.steps.len()).rev().filter(|i| self.steps[*i].part == JobPart::Surplus).collect::<Vec<_>>() {
            let step = self.steps[i];
            let (mut enough_not, mut enough) = (0, step.steps);
            while enough_not + 1 < enough {
                let middle = enough_not.midpoint(enough);
                self.victims[i] = self.build_victim(EvictionCandidate { steps: middle, ..step });
                if self.is_enough(|_| true) {
                    enough = middle;
                } else {
                    enough_not = middle;
                }
            }
            self.victims[i] = self.build_victim(EvictionCandidate { steps: enough, ..step });
        }
    }

    fn is_enough(&mut self, kept: impl Fn(usize) -> bool) -> bool {
        let victims: Vec<&Victim> = last_steps(&self.steps, kept).into_iter().map(|i| &self.victims[i]).collect();
        (self.fits)(&victims)
    }

    fn build_victim(&self, EvictionCandidate { job, part, right, steps }: EvictionCandidate) -> Victim {
        let candidate = &self.eligibility.input.running[job];
        let (taken, frees) = match (&candidate.elastic, part) {
            (Some(gang), JobPart::Surplus) => {
                let surplus = &self.surplus[job];
                (EvictedPart::Surplus(surplus.removed_pods(gang, steps)), surplus.freed_resources(gang, steps))
            }
            (None, _) | (_, JobPart::Whole) => (EvictedPart::Whole, candidate.charge.clone()),
        };
        Victim {
            id: candidate.id.clone(),
            queue: candidate.queue.clone(),
            lost_work: compute_lost_work(
                (self.eligibility.input.fleet, self.eligibility.input.now),
                candidate,
                frees.iter(),
            ),
            taken,
            why: self.eligibility.explain_eviction(job, part, right),
            frees,
        }
    }
}

/// Of the steps that are kept, each job's last one: it holds those before it. In order.
fn last_steps(steps: &[EvictionCandidate], kept: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for (i, step) in steps.iter().enumerate().filter(|(i, _)| kept(*i)) {
        last.insert(step.job, i);
    }
    let mut last: Vec<usize> = last.into_values().collect();
    last.sort_unstable();
    last
}
