//! Who gives way in a simulation: `caldera_core::queue::preemption`, asked when and as the controller asks it (its
//! `give_back.rs`), with its defaults. Only whole jobs are taken: what is left of a gang that shrinks runs on in ways that
//! a simulation knows nothing of.
//!
//! A job that gave way is out of line until the claim that it gave way for is over, then waits again with its age, and
//! begins anew: what it did is lost. Its pods are gone at once. Where arrivals go on for more than a day, claims are
//! looked at less often, in proportion: a look takes as long as ever, and there would be hundreds of thousands.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use caldera_core::{
    gang::QueueName,
    quantity::Quantity,
    queue::{
        Engine, JobId, QueueSpec,
        preemption::{
            self, AttemptRefusal, EvictionBudget, EvictionHistory, FailedAttempts, PreemptionInput, PreemptionPolicy,
            Preemptor, QueueAccount, RunningJob, Victim,
        },
    },
    reason::{Bound, Reason},
    resources::{ResourceName, Resources},
};

use crate::{
    site::{Site, Stand},
    time::Millis,
};

/// The controller's: seconds between two looks, jobs of one queue and of all that may claim in one, seconds until a
/// refused claim is made again.
const PAUSE: i64 = 1;
const HEADS: usize = 4;
const CLAIMS: usize = 8;
const AGAIN: i64 = 5;
/// A refused claim is made again no more often than the time of all arrivals has of these parts.
const PARTS: i64 = 20_000;
/// The queue above all queues.
const ROOT: &str = "root";

/// Claims, and what is known of them.
#[derive(Debug)]
pub(super) struct Claims {
    policy: PreemptionPolicy,
    bucket: EvictionBudget,
    /// Whose claim is open, and until when.
    open: Option<(usize, i64)>,
    /// Who gave way and is not in line yet.
    out: Vec<usize>,
    attempts: HashMap<usize, FailedAttempts>,
    evictions: HashMap<usize, EvictionHistory>,
    /// Jobs whose claims came to nothing: not before then, and not before something changed.
    refused: HashMap<usize, (i64, u64)>,
    changes: u64,
    stirred: bool,
    looked: Option<i64>,
    due: Option<i64>,
    pause: i64,
    again: i64,
}

/// A job that may claim.
struct Head {
    job: usize,
    /// Its queue and those above it, the root last.
    path: Vec<QueueName>,
}

impl Claims {
    /// With the controller's defaults, as after a start at `now`, for jobs that arrive over `span` seconds.
    pub(super) fn new(now: i64, span: i64) -> Self {
        let again = AGAIN.max(span / PARTS);
        Self {
            pause: PAUSE.max(again / AGAIN),
            again,
            policy: PreemptionPolicy::default(),
            bucket: EvictionBudget::empty(now),
            open: None,
            out: Vec::new(),
            attempts: HashMap::new(),
            evictions: HashMap::new(),
            refused: HashMap::new(),
            changes: 0,
            stirred: false,
            looked: None,
            due: None,
        }
    }

    /// Something happened.
    pub(super) const fn stir(&mut self) {
        self.changes += 1;
        self.stirred = true;
    }

    /// When to look again if nothing happens.
    pub(super) fn due(&self) -> Option<Millis> {
        self.due.and_then(|due| u64::try_from(due).ok()).map(Millis::from_secs)
    }

    /// Ends the open claim if its claimant no longer waits or its time is over; who gave way for it may wait again.
    pub(super) fn close(&mut self, engine: &Engine, now: i64) -> Vec<usize> {
        let Some((claimant, until)) = self.open else { return Vec::new() };
        if engine.is_pending(super::caldera::id(claimant).as_str()) {
            if until > now {
                return Vec::new();
            }
            let attempts = self.attempts.entry(claimant).or_default();
            *attempts = attempts.failed_at(now);
        } else {
            self.attempts.remove(&claimant);
        }
        self.open = None;
        self.stir();
        std::mem::take(&mut self.out)
    }

    /// The claimant of the open claim.
    pub(super) fn claimant(&self) -> Option<JobId> {
        self.open.map(|(claimant, _)| super::caldera::id(claimant))
    }

    /// Makes a claim if there is cause; who gives way for it.
    pub(super) fn look(&mut self, site: &mut Site<'_>, engine: &Engine, now: i64) -> Vec<usize> {
        if let Some((_, until)) = self.open {
            self.due = Some(until);
            return Vec::new();
        }
        if self.due.is_some_and(|due| due <= now) {
            (self.stirred, self.due) = (true, None);
        }
        if !self.stirred {
            return Vec::new();
        }
        if let Some(next) = self.looked.map(|looked| looked.saturating_add(self.pause)).filter(|next| *next > now) {
            self.look_at(next);
            return Vec::new();
        }
        (self.looked, self.stirred, self.due) = (Some(now), false, None);
        self.claim(site, engine, now)
    }

    fn look_at(&mut self, at: i64) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn claim(&mut self, site: &mut Site<'_>, engine: &Engine, now: i64) -> Vec<usize> {
        let heads = self.heads(site, engine, now);
        if heads.is_empty() {
            return Vec::new();
        }
        let queues = accounts(engine);
        let running = self.holders(site, engine);
        let fleet = site.members().total().ready;
        let (policy, bucket) = (self.policy.clone(), self.bucket);
        let scene = PreemptionInput {
            queues: &queues,
            running: &running,
            fleet: &fleet,
            policy: &policy,
            bucket: &bucket,
            now,
        };
        for head in heads {
            let attempts = self.attempts.get(&head.job).copied().unwrap_or_default();
            let claim = claim(site, engine, &head, attempts);
            let decided =
                preemption::plan_evictions(&scene, &claim, |victims| fits(site, engine, &queues, &head, victims));
            match decided {
                Ok(plan) => {
                    self.bucket.take(policy.bounds.rate, plan.victims.len(), now);
                    self.open = Some((head.job, plan.hold.until));
                    self.due = Some(plan.hold.until);
                    for victim in &plan.victims {
                        let (job, holder) = (index(&victim.id), running.iter().find(|one| one.id == victim.id));
                        let next = holder.map(|holder| EvictionHistory::next(holder, &policy.bounds, now));
                        self.evictions.insert(job, next.unwrap_or_default());
                        self.out.push(job);
                    }
                    return plan.victims.iter().map(|victim| index(&victim.id)).collect();
                }
                Err(why) => self.note(head.job, &why, now),
            }
        }
        Vec::new()
    }

    /// When a refused claim is made again.
    fn note(&mut self, job: usize, why: &preemption::NoEvictions, now: i64) {
        if why.refused == AttemptRefusal::Unneeded {
            return;
        }
        let later = now.saturating_add(self.again);
        match why.again_at().filter(|again| *again > now) {
            Some(again) if matches!(why.refused, AttemptRefusal::Backoff { .. } | AttemptRefusal::Rate { .. }) => {
                self.refused.remove(&job);
                self.look_at(again);
            }
            Some(again) => {
                self.refused.insert(job, (later, self.changes.wrapping_sub(1)));
                self.look_at(again);
            }
            None => drop(self.refused.insert(job, (later, self.changes))),
        }
    }

    fn may_ask(&mut self, job: usize, now: i64) -> bool {
        match self.refused.get(&job).copied() {
            Some((_, changes)) if changes == self.changes => false,
            Some((until, _)) if until > now => {
                self.look_at(until);
                false
            }
            _ => true,
        }
    }

    /// The first jobs of each queue that wait for quota or room and whose queue deserves more than it has, the most
    /// important first.
    fn heads(&mut self, site: &Site<'_>, engine: &Engine, now: i64) -> Vec<Head> {
        let parents: BTreeMap<&QueueName, &QueueSpec> =
            engine.queue_specs().map(|queue| (&queue.name, queue)).collect();
        let mut heads = Vec::new();
        for (id, position) in engine.queue_heads(HEADS) {
            let Some(reason) = engine.explain_pending_at(id.as_str(), position) else { continue };
            let (Reason::Quota { queue, .. } | Reason::InsufficientCapacity { queue, .. }) = &reason else { continue };
            // What its own queue may have at most nobody else can give it.
            let own =
                matches!(&reason, Reason::Quota { bound: Bound::Queue(at) | Bound::Guaranteed(at), .. } if at == queue);
            let path = path(&parents, queue);
            if own
                || engine.is_blocked_by_reservation(id.as_str())
                || !path.iter().any(|name| deserves_more(engine, name))
            {
                continue;
            }
            let (job, of) = (index(id), site.job(index(id)));
            let since =
                i64::try_from(of.arrival.seconds()).unwrap_or(i64::MAX).saturating_add(self.policy.bounds.patience);
            if since > now {
                self.look_at(since);
                continue;
            }
            let priority = parents.get(queue).map_or(0, |queue| queue.priority);
            heads.push((std::cmp::Reverse((priority, of.priority)), job, path));
        }
        // Jobs are numbered by their age.
        heads.sort_by_key(|(rank, job, _)| (*rank, *job));
        heads.retain(|(_, job, _)| self.may_ask(*job, now));
        heads.truncate(CLAIMS);
        heads.into_iter().map(|(_, job, path)| Head { job, path }).collect()
    }

    fn holders(&self, site: &Site<'_>, engine: &Engine) -> Vec<RunningJob> {
        let running = |(job, stand): (usize, &Stand)| {
            let Stand::Running { since, .. } = stand else { return None };
            let (id, of) = (super::caldera::id(job), site.job(job));
            Some(RunningJob {
                charge: engine.charge_of(id.as_str())?,
                id,
                queue: of.queue.clone(),
                namespace: "simulated".into(),
                priority: of.priority,
                preemptable: None,
                ours: true,
                created: i64::try_from(of.arrival.seconds()).unwrap_or(i64::MAX),
                started: i64::try_from(since.seconds()).ok(),
                elastic: None,
                evictions: self.evictions.get(&job).copied().unwrap_or_default(),
                progressed: false,
            })
        };
        site.holders().filter_map(running).collect()
    }
}

fn accounts(engine: &Engine) -> BTreeMap<QueueName, QueueAccount> {
    let account = |queue: &QueueSpec| {
        let is = engine.entitlement_of(&queue.name);
        let account = QueueAccount {
            parent: queue.parent.clone().filter(|parent| parent.as_str() != ROOT),
            guarantee: is.guarantee,
            deserved: is.deserved.iter().map(|(name, amount)| (name.clone(), amount)).collect(),
            used: is.used,
            reclaimable: queue.reclaimable,
            priority: queue.priority,
        };
        (queue.name.clone(), account)
    };
    engine.queue_specs().filter(|queue| queue.name.as_str() != ROOT).map(account).collect()
}

fn path(parents: &BTreeMap<&QueueName, &QueueSpec>, queue: &QueueName) -> Vec<QueueName> {
    let mut path = vec![queue.clone()];
    while let Some(parent) = path.last().and_then(|at| parents.get(at)?.parent.clone()) {
        if path.contains(&parent) || parent.as_str() == ROOT {
            break;
        }
        path.push(parent);
    }
    path.push(ROOT.into());
    path
}

fn deserves_more(engine: &Engine, queue: &QueueName) -> bool {
    let is = engine.entitlement_of(queue);
    queue.as_str() != ROOT && is.deserved.iter().any(|(name, deserved)| is.used.get(name.as_str()) < deserved)
}

fn claim(site: &Site<'_>, engine: &Engine, head: &Head, attempts: FailedAttempts) -> Preemptor {
    let of = site.job(head.job);
    let asks = of.shape.least.clone();
    let mut lacks: BTreeSet<ResourceName> = BTreeSet::new();
    for name in &head.path {
        let is = engine.entitlement_of(name);
        let short = |(name, asked): &(&ResourceName, Quantity)| {
            is.used.get(name.as_str()).saturating_add(*asked) > is.real.get(name.as_str())
        };
        lacks.extend(asks.iter().filter(short).map(|(name, _)| name.clone()));
    }
    let free = site.members().free();
    lacks.extend(asks.iter().filter(|(name, asked)| *asked > free.get(name.as_str())).map(|(name, _)| name.clone()));
    let (id, queue, priority) = (super::caldera::id(head.job), of.queue.clone(), of.priority);
    Preemptor { id, queue, priority, never_preempts: false, asks, lacks, attempts }
}

/// Whether the claimant would fit with the victims gone: quota on its way up, then the place that it would be given.
fn fits(
    site: &mut Site<'_>,
    engine: &Engine,
    queues: &BTreeMap<QueueName, QueueAccount>,
    head: &Head,
    victims: &[&Victim],
) -> bool {
    let below = |queue: &QueueName, at: &QueueName| {
        let mut up = Some(queue);
        // A circle of queues starts no jobs.
        for _ in 0..=queues.len() {
            match up {
                Some(name) if name == at => return true,
                Some(name) => up = queues.get(name).and_then(|account| account.parent.as_ref()),
                None => break,
            }
        }
        at.as_str() == ROOT
    };
    let asks: &Resources = &site.job(head.job).shape.least;
    let quota = head.path.iter().all(|at| {
        let is = engine.entitlement_of(at);
        asks.iter().all(|(name, asked)| {
            let name = name.as_str();
            let of_queue = victims.iter().filter(|victim| below(&victim.queue, at));
            let freed = of_queue.fold(Quantity::ZERO, |sum, victim| sum.saturating_add(victim.frees.get(name)));
            is.used.get(name).minus(freed).saturating_add(asked) <= is.real.get(name)
        })
    });
    let gone: Vec<usize> = victims.iter().map(|victim| index(&victim.id)).collect();
    quota && site.fits_after(head.job, &gone)
}

fn index(id: &JobId) -> usize {
    super::caldera::index(id)
}
