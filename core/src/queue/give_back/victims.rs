//! In which order jobs give way, and how few.
//!
//! Surplus before whole gangs; of these those who borrow before those of lower priority. Among queues that borrow: near
//! ones first (`VictimQueueOrder`), then those of low priority, then the one that is most over what it deserves at that
//! point; in a queue, and among those that are preempted: low priority, least lost work, newest. Then Kueue's way:
//! take one after the other until the claimant fits, and put back, from the last on, all who are not needed. The rest
//! are still taken by right, which Kueue cannot say: here no right depends on who else is taken.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

use super::{
    Claim, Exempt, Holder, NoPlan, Refused, Scene, Taken, Victim,
    rules::{Law, Part, Right},
    seats::{Ground, Parts, Spot},
    surplus::Surplus,
};
use crate::{
    queue::dense::{Dense, Dim},
    resources::{ResourceName, Resources},
};

/// Billionths, for shares.
const WHOLE: i128 = 1_000_000_000;

/// The victims for a claim, or why there are none. `fits` as in [`super::plan`].
pub(super) fn choose(
    scene: &Scene<'_>,
    claim: &Claim,
    fits: impl FnMut(&[Victim]) -> bool,
) -> Result<Vec<Victim>, Box<NoPlan>> {
    let mut ground = Ground::new(scene, claim);
    let surplus: Vec<Surplus> =
        scene.running.iter().map(|holder| holder.elastic.as_ref().map(Surplus::of).unwrap_or_default()).collect();
    let runs = |holder: &Holder, surplus: &Surplus| holder.elastic.as_ref().map(|gang| surplus.runs(gang));
    let parts = scene
        .running
        .iter()
        .zip(&surplus)
        .map(|(holder, surplus)| {
            Parts::of(&mut ground.dims, &holder.charge, &runs(holder, surplus).unwrap_or_default())
        })
        .collect();
    let law = Law::new(scene, claim, ground, parts);
    let line = Line::new(&law);
    let mut search = Search { law: &law, surplus: &surplus, line, steps: Vec::new(), fits };
    if search.grow() {
        search.put_back();
        let mut victims = search.victims(|_| true);
        search.trim(&mut victims);
        return Ok(victims.into_iter().map(|(_, victim)| victim).collect());
    }
    let taken = search.victims(|_| true);
    let mut frees = Resources::new();
    taken.iter().for_each(|(_, victim)| frees.add(&victim.frees));
    let refused = if taken.is_empty() { Refused::Nobody } else { Refused::TooLittle { jobs: taken.len(), frees } };
    let exempt = std::mem::take(&mut search.line.exempt);
    Err(Box::new(NoPlan { refused, asks: claim.asks.clone(), entitled: law.entitled_at_all(), exempt }))
}

/// A part of a job that may be taken; of surplus, at most so many steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    job: usize,
    part: Part,
    right: Right,
    steps: u32,
}

/// Who is next, one after the other; what is taken counts for who comes after.
struct Line<'a> {
    law: &'a Law<'a>,
    /// Reclaimed and preempted surplus, then the same of whole jobs.
    stages: VecDeque<Stage>,
    /// By queue, what was taken so far.
    taken: Vec<Dense>,
    /// By job, steps of surplus that were taken.
    shrunk: Vec<u32>,
    exempt: BTreeMap<Exempt, usize>,
}

enum Stage {
    /// By queue, each in its own order.
    Reclaim(BTreeMap<Spot, VecDeque<Step>>),
    Preempt(VecDeque<Step>),
}

impl<'a> Line<'a> {
    fn new(law: &'a Law<'a>) -> Self {
        let jobs = law.scene.running.len();
        let mut line = Self {
            law,
            stages: VecDeque::new(),
            taken: vec![Dense::default(); law.ground.nodes.len()],
            shrunk: vec![0; jobs],
            exempt: BTreeMap::new(),
        };
        let mut found: BTreeMap<(Part, Right), Vec<Step>> = BTreeMap::new();
        for job in 0..jobs {
            let whole = law.right(job, Part::Whole);
            let surplus =
                if law.parts[job].surplus.is_empty() { Err(Exempt::NoHelp) } else { law.right(job, Part::Surplus) };
            for (part, right) in [(Part::Surplus, surplus), (Part::Whole, whole)] {
                if let Ok((right, steps)) = right {
                    found.entry((part, right)).or_default().push(Step { job, part, right, steps });
                }
            }
            if let (Err(_), Err(why)) = (surplus, whole) {
                *line.exempt.entry(why).or_default() += 1;
            }
        }
        for ((_, right), mut steps) in found {
            steps.sort_by_cached_key(|step| line.rank(*step));
            line.stages.push_back(match right {
                Right::Preempt => Stage::Preempt(steps.into()),
                Right::Reclaim => {
                    let mut queues: BTreeMap<Spot, VecDeque<Step>> = BTreeMap::new();
                    for step in steps {
                        let spot = law.ground.spot(&law.scene.running[step.job].queue).unwrap_or(0);
                        queues.entry(spot).or_default().push_back(step);
                    }
                    Stage::Reclaim(queues)
                }
            });
        }
        line
    }

    /// Among the jobs of one queue, or of lower priority.
    fn rank(&self, step: Step) -> impl Ord + use<> {
        let holder = &self.law.scene.running[step.job];
        let (amount, dims) = (self.law.amount(step.job, step.part, step.steps), &self.law.ground.dims);
        let lost = lost_work(self.law.scene, holder, dims.all().map(|dim| (dims.name(dim), amount.get(dim))));
        (holder.priority, lost, Reverse(holder.started.unwrap_or(i64::MAX)), Reverse(holder.id.clone()))
    }

    /// The next one; it counts as taken for those after it.
    fn next(&mut self) -> Option<Step> {
        loop {
            let step = match self.stages.front_mut()? {
                Stage::Preempt(steps) => steps.pop_front(),
                Stage::Reclaim(_) => self.next_reclaimed(),
            };
            if let Some(step) = step {
                self.take(step);
                return Some(step);
            }
            self.stages.pop_front();
        }
    }

    /// The first job of the queue that is to give first.
    fn next_reclaimed(&mut self) -> Option<Step> {
        let Some(Stage::Reclaim(queues)) = self.stages.front() else { return None };
        let first = queues.iter().filter_map(|(spot, steps)| Some((*spot, steps.front()?.job)));
        let (spot, _) = first.min_by_key(|(spot, job)| self.urgency(*spot, *job))?;
        let Some(Stage::Reclaim(queues)) = self.stages.front_mut() else { return None };
        let steps = queues.get_mut(&spot)?;
        let step = steps.pop_front();
        if steps.is_empty() {
            queues.remove(&spot);
        }
        step
    }

    /// Which queue gives first: the least.
    fn urgency(&self, spot: Spot, job: usize) -> impl Ord + use<> {
        let ground = &self.law.ground;
        let meeting = self.law.meeting(&self.law.scene.running[job]);
        let below = &ground.nodes[spot].path[..meeting.holder];
        let matters = self.law.entitled(meeting.claimant).unwrap_or_default();
        let share = |spot: Option<&Spot>| spot.map_or(i128::MAX, |spot| self.share(*spot, &matters));
        let (farthest, own) = (share(below.last()), share(below.first()));
        let (queue, priority) = (&ground.nodes[spot], self.law.scene.running[job].priority);
        (meeting.claimant, queue.priority, Reverse(farthest), Reverse(own), priority, queue.name.clone())
    }

    /// What the queue has of what it deserves, in billionths, on the resource of which it has most.
    fn share(&self, spot: Spot, matters: &[Dim]) -> i128 {
        let node = &self.law.ground.nodes[spot];
        let share = |dim: &Dim| {
            let used = node.used.get(*dim) - self.taken[spot].get(*dim);
            match node.deserved.get(*dim) {
                _ if used <= 0 => 0,
                None | Some(..=0) => i128::MAX,
                Some(deserved) => used.saturating_mul(WHOLE) / deserved,
            }
        };
        matters.iter().map(share).max().unwrap_or(0)
    }

    fn take(&mut self, Step { job, part, steps, .. }: Step) {
        let mut amount = self.law.amount(job, part, steps);
        let before = self.law.parts[job].first(self.shrunk[job]);
        let path = self.law.ground.path(&self.law.scene.running[job].queue);
        for dim in self.law.ground.dims.all() {
            amount.sub(&[(dim, before.get(dim))]);
        }
        path.iter().for_each(|spot| self.taken[*spot].add_dense(&amount));
        self.shrunk[job] = steps;
    }
}

/// What it costs: the part of the fleet it held, resource by resource, times how long it ran.
fn lost_work<'a>(scene: &Scene<'_>, holder: &Holder, amount: impl Iterator<Item = (&'a ResourceName, i128)>) -> i128 {
    let ran = i128::from(holder.started.map_or(0, |started| scene.now.saturating_sub(started).max(0)));
    let share = |(name, amount): (&ResourceName, i128)| match scene.fleet.get(name.as_str()).as_nano() {
        ..=0 => WHOLE,
        fleet => amount.max(0).saturating_mul(WHOLE) / fleet,
    };
    amount.map(share).fold(0_i128, i128::saturating_add).saturating_mul(ran)
}

/// Candidates in order, and how many of them are needed.
struct Search<'a, F> {
    law: &'a Law<'a>,
    surplus: &'a [Surplus],
    line: Line<'a>,
    /// Those that are taken, in order.
    steps: Vec<Step>,
    fits: F,
}

impl<F: FnMut(&[Victim]) -> bool> Search<'_, F> {
    /// Takes one, two, four, ... until it fits; then no more than are needed in this order.
    fn grow(&mut self) -> bool {
        let mut enough_not = 0;
        loop {
            let wanted = (enough_not * 2).max(1);
            while self.steps.len() < wanted
                && let Some(step) = self.line.next()
            {
                self.steps.push(step);
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
        true
    }

    /// Puts back all who are not needed, the last ones first, as many at once as can be.
    fn put_back(&mut self) {
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
        let mut kept = kept.into_iter();
        self.steps.retain(|_| kept.next().unwrap_or(true));
    }

    /// Takes no more surplus of each than is needed.
    fn trim(&mut self, victims: &mut [(Step, Victim)]) {
        for i in (0..victims.len()).rev() {
            let step = victims[i].0;
            if step.part != Part::Surplus {
                continue;
            }
            let (mut enough_not, mut enough) = (0, step.steps);
            while enough_not + 1 < enough {
                let middle = enough_not.midpoint(enough);
                let mut trial: Vec<Victim> = victims.iter().map(|(_, victim)| victim.clone()).collect();
                trial[i] = self.victim(Step { steps: middle, ..step });
                if (self.fits)(&trial) {
                    enough = middle;
                } else {
                    enough_not = middle;
                }
            }
            victims[i].1 = self.victim(Step { steps: enough, ..step });
        }
    }

    fn is_enough(&mut self, kept: impl Fn(usize) -> bool) -> bool {
        let victims: Vec<Victim> = self.victims(kept).into_iter().map(|(_, victim)| victim).collect();
        (self.fits)(&victims)
    }

    /// The victims if these steps are taken: a job once, as far as it goes.
    fn victims(&self, kept: impl Fn(usize) -> bool) -> Vec<(Step, Victim)> {
        let mut last: BTreeMap<usize, usize> = BTreeMap::new();
        for (i, step) in self.steps.iter().enumerate().filter(|(i, _)| kept(*i)) {
            last.insert(step.job, i);
        }
        let mut taken: Vec<usize> = last.into_values().collect();
        taken.sort_unstable();
        let steps = taken.into_iter().map(|i| self.steps[i]);
        steps.map(|step| (step, self.victim(step))).collect()
    }

    fn victim(&self, Step { job, part, right, steps }: Step) -> Victim {
        let holder = &self.law.scene.running[job];
        let (taken, frees) = match (&holder.elastic, part) {
            (Some(gang), Part::Surplus) => {
                let surplus = &self.surplus[job];
                (Taken::Surplus(surplus.less(gang, steps)), surplus.frees(gang, steps))
            }
            (None, _) | (_, Part::Whole) => (Taken::Whole, holder.charge.clone()),
        };
        Victim {
            id: holder.id.clone(),
            queue: holder.queue.clone(),
            lost_work: lost_work(self.law.scene, holder, frees.iter().map(|(name, amount)| (name, amount.as_nano()))),
            taken,
            why: self.law.why(job, part, right),
            frees,
        }
    }
}
