//! Jobs that start together: those of a HyperJob are one gang, with one place in line and one reservation.
//!
//! Rules (a gang as Volcano's, of jobs instead of pods; Slurm's heterogeneous jobs start so too):
//! - `minAvailable` jobs of a HyperJob are needed, all where it is absent. As long as fewer of them hold quota or have
//!   ended, as many as are missing are asked for together, the first in the order of its templates. The rest waits for
//!   these. Once one is missing, or none, each job that is left waits for itself: each makes it whole.
//! - They are asked for under the name of the first: with the sum of what they ask for, the lowest of their priorities,
//!   the age of the youngest, so that none lends its own to new ones, and the earliest deadline. They wait in one queue
//!   and count for the same tenants.
//! - One decision releases them all, each with a record and a charge of its own. Each release is a patch of its own: of
//!   those that were not stored, because a process ended or the server refused one, the missing are asked for together
//!   again, beside those that hold.
//! - A gang that stays so for as long as a part of a job may take to start is given up: those that hold are taken off
//!   their clusters, and all of it is in line. One of which a job was evicted for another is given up at once: that job
//!   does not come back before its preemptor has started, and a gang is evicted as a whole. A job that lost its quota
//!   for any other reason may be back in a moment, and nothing of the others is lost meanwhile.
//! - Given up is only what one decision released with others, and only for a job that was there then: what was admitted
//!   by itself runs on, and a job that is made anew or added later takes nothing from those that run. Nor does one that
//!   its user holds back, or that may not start together with others.
//! - Plain Pods of one group are a gang, too ([`read_group_of_pod`]): as many are needed as one of them says, at most.
//! - A queue takes no more of them together than of one job ([`caldera_crds::largest_job`]).
//! - No more jobs of a gang are looked at than a HyperJob may have; the rest waits until one of these is gone.
//! - Of several card models that a job may use the first is asked for. A duplicated job, which HyperJobs do not make,
//!   waits for itself.
//!
//! Since when a gang is not whole is kept in memory alone: a restart gives it as much time again.
//!
//! [`read_group_of_pod`]: caldera_crds::workload::read_group_of_pod

mod placement_budget;
mod queueing;
mod unit;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use caldera_core::{
    gang::QueueName,
    queue::{Job, JobId},
    reason::Reason,
    resources::Resources,
};
use jiff::{SignedDuration, Timestamp};

pub(crate) use self::{
    placement_budget::PlacementBudget,
    unit::{Part, split_admission},
};
use self::{
    queueing::{GangQueueing, decide_queueing, describe_beyond, hold_back, is_incomplete, is_missing},
    unit::combine_jobs,
};
use crate::{
    decide::deadlines::add_wait,
    observe::{Key, Workload},
};

/// Jobs of a gang that are looked at: as many as a HyperJob has at most.
const MOST_JOBS: usize = 500;
/// Whose jobs they are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GangKey {
    /// A HyperJob's, with its UID: another one of its name has other jobs.
    HyperJob(Key, Arc<str>),
    /// Pods of one group.
    Pods(Key),
}

impl GangKey {
    /// Whose a workload is, if it starts together with others.
    pub(crate) fn of_workload(workload: &Workload) -> Option<Self> {
        let key = |name: &str| Key::new(&workload.reference.namespace, name);
        if let Some(group) = &workload.group {
            return Some(Self::Pods(key(&group.name)));
        }
        let child = workload.child.as_ref()?;
        Some(Self::HyperJob(key(&child.hyper_job), Arc::clone(&child.owner)))
    }
}

impl fmt::Display for GangKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HyperJob(key, _) => write!(f, "jobs of HyperJob {}", key.name),
            Self::Pods(key) => write!(f, "Pods of group {}", key.name),
        }
    }
}

/// Which jobs there should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobGangSpec {
    /// In the order of the templates.
    pub(crate) names: Vec<String>,
    /// How many of them must hold or have ended.
    pub(crate) needed: usize,
    /// Those that ended.
    pub(crate) ended: BTreeSet<String>,
}

/// In which state a job of a gang is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum GangJobState {
    /// It would wait in its queue.
    Pending(Job),
    /// It is to be in line again by itself.
    Requeued,
    /// The same, after it was evicted for another job.
    Evicted,
    /// It holds quota, or did until it ended.
    Admitted,
    /// Somebody has to do something first.
    Gated,
}

/// A job of a gang, by its binding.
#[derive(Debug)]
struct GangJob {
    name: Arc<str>,
    /// How many there should be, where it says so itself.
    needed: u32,
    state: GangJobState,
}

#[derive(Debug, Default)]
struct Gang {
    members: BTreeMap<Key, GangJob>,
    /// More than are looked at.
    beyond: BTreeMap<Key, GangJob>,
    /// Those of them that are not told yet that they wait.
    untold: BTreeSet<Key>,
    /// Under whose name it is in line, if it is.
    leader: Option<JobId>,
    /// Some hold while others are missing, since then.
    incomplete_since: Option<Timestamp>,
    /// One was evicted for another job since that was last decided.
    was_evicted: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct JobGangs {
    gangs: BTreeMap<GangKey, Gang>,
    of: BTreeMap<Key, GangKey>,
    /// By the name that they are in line under.
    units: BTreeMap<JobId, Vec<Part>>,
    changed: BTreeSet<GangKey>,
    /// What a pass may ask about them.
    pub(crate) budget: PlacementBudget,
}

/// What is to be told to the engine.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct LineUpdate {
    /// These wait.
    pub(crate) enqueued: Vec<Job>,
    /// These names do not, or not by themselves.
    pub(crate) removed: Vec<JobId>,
    /// Bindings that wait, with why they are not in line if they are not.
    pub(crate) phases: Vec<(Key, Option<Reason>)>,
}

/// Facts in.
impl JobGangs {
    /// Takes in the state of the job of a binding.
    pub(crate) fn set_state(&mut self, key: &Key, gang: GangKey, workload: &Workload, state: GangJobState) {
        let needed = workload.group.as_ref().map_or(0, |group| group.needed);
        if self.of.get(key).is_some_and(|known| *known != gang) {
            self.forget(key);
        }
        let all = self.gangs.entry(gang.clone()).or_default();
        let is_beyond = !all.members.contains_key(key) && all.members.len() >= MOST_JOBS;
        let jobs = if is_beyond { &mut all.beyond } else { &mut all.members };
        let job = jobs.entry(key.clone()).or_insert_with(|| GangJob {
            name: workload.reference.name.as_str().into(),
            needed,
            state: GangJobState::Gated,
        });
        let is_new = self.of.insert(key.clone(), gang.clone()).is_none();
        if is_new || job.state != state || job.needed != needed {
            let is_evicted = state == GangJobState::Evicted && job.state != state;
            (job.state, job.needed) = (state, needed);
            all.was_evicted |= is_evicted;
            if is_beyond {
                all.untold.insert(key.clone());
            }
            self.changed.insert(gang);
        }
    }

    /// A binding is gone, or its job is no gang's. Another one takes its place.
    pub(crate) fn forget(&mut self, key: &Key) {
        let Some(of) = self.of.remove(key) else { return };
        if let Some(gang) = self.gangs.get_mut(&of) {
            gang.beyond.remove(key);
            if gang.members.remove(key).is_some() {
                gang.members.extend(gang.beyond.pop_first());
            }
        }
        self.changed.insert(of);
    }

    /// A HyperJob is new, changed or gone.
    pub(crate) fn observe_hyper_job(&mut self, hyper_job: &Key) {
        let all = self.gangs.keys().filter(|gang| matches!(gang, GangKey::HyperJob(key, _) if key == hyper_job));
        self.changed.extend(all.cloned().collect::<Vec<_>>());
    }

    /// All HyperJobs may be others.
    pub(crate) fn observe_all(&mut self) {
        self.changed.extend(self.gangs.keys().cloned());
    }

    pub(crate) fn take_changed(&mut self) -> BTreeSet<GangKey> {
        std::mem::take(&mut self.changed)
    }

    /// They were released, and hold from now on.
    pub(crate) fn take_parts_of_leader(&mut self, leader: &JobId) -> Vec<Part> {
        let parts = self.units.remove(leader).unwrap_or_default();
        for part in &parts {
            let Some(gang) = self.of.get(&part.key) else { continue };
            self.changed.insert(gang.clone());
            let Some(gang) = self.gangs.get_mut(gang) else { continue };
            gang.leader = None;
            if let Some(member) = gang.members.get_mut(&part.key) {
                member.state = GangJobState::Admitted;
            }
        }
        parts
    }

    /// One was released by itself.
    pub(crate) fn mark_released(&mut self, key: &Key) {
        let Some(of) = self.of.get(key) else { return };
        if let Some(member) = self.gangs.get_mut(of).and_then(|gang| gang.members.get_mut(key)) {
            member.state = GangJobState::Admitted;
            self.changed.insert(of.clone());
        }
    }
}

/// Answers.
impl JobGangs {
    /// Those that are in line under this name.
    pub(crate) fn parts_of_leader(&self, leader: &JobId) -> &[Part] {
        self.units.get(leader).map_or(&[], Vec::as_slice)
    }

    /// Under which name the job of a binding is in line with others, if it is.
    pub(crate) fn find_leader(&self, key: &Key) -> Option<&JobId> {
        let gang = self.gangs.get(self.of.get(key)?)?;
        let leader = gang.leader.as_ref()?;
        self.parts_of_leader(leader).iter().any(|part| part.key == *key).then_some(leader)
    }

    /// What to say of one that is in line with others.
    pub(crate) fn describe_gang_of_job(&self, key: &Key) -> Option<String> {
        let (leader, of) = (self.find_leader(key)?, self.of.get(key)?);
        let jobs = self.parts_of_leader(leader).len();
        Some(format!("it is one of {jobs} {of} that start together or not at all"))
    }

    /// The bindings that are in line, or are once their gangs are arranged, each with the first of those that it starts
    /// together with, if there are others.
    pub(crate) fn list_in_line(
        &self,
        spec_of: impl Fn(&GangKey) -> Option<JobGangSpec>,
        check_size: impl Fn(&QueueName, &Resources) -> Option<Reason>,
    ) -> BTreeMap<Key, Option<Key>> {
        let in_line = |(key, gang): (&GangKey, &Gang)| {
            let spec = gang.read_own_spec(key).or_else(|| spec_of(key));
            let GangQueueing { together, alone, .. } = decide_queueing(spec.as_ref(), &gang.members, &check_size);
            let first = together.first().cloned();
            let together = together.into_iter().map(move |key| (key, first.clone()));
            together.chain(alone.into_iter().map(|key| (key, None)))
        };
        self.gangs.iter().flat_map(in_line).collect()
    }

    /// When the first of the gangs that are not whole is given up, where each has so long.
    pub(crate) fn next_due(&self, timeout: SignedDuration) -> Option<Timestamp> {
        let since = self.gangs.values().filter_map(|gang| gang.incomplete_since).min()?;
        Some(add_wait(since, timeout))
    }

    /// Of each gang that is not whole since then: the bindings that hold, and those that are missing with their jobs'
    /// names and whether they were evicted. It has as long again.
    pub(crate) fn take_incomplete_gangs(&mut self, since: Timestamp, now: Timestamp) -> Vec<IncompleteGang> {
        let due = self.gangs.iter_mut().filter(|(_, gang)| gang.incomplete_since.is_some_and(|at| at <= since));
        due.map(|(key, gang)| {
            gang.incomplete_since = Some(now);
            let of_state = |wanted: fn(&GangJobState) -> bool| {
                gang.members.iter().filter(move |(_, member)| wanted(&member.state))
            };
            IncompleteGang {
                gang: key.clone(),
                holding: of_state(|it| *it == GangJobState::Admitted).map(|(key, _)| key.clone()).collect(),
                missing: of_state(is_missing)
                    .map(|(key, member)| MissingJob {
                        binding: key.clone(),
                        name: Arc::clone(&member.name),
                        is_evicted: member.state == GangJobState::Evicted,
                    })
                    .collect(),
            }
        })
        .collect()
    }

    /// Not all of a gang could be given up yet: it counts as not whole since then.
    pub(crate) fn set_incomplete_since(&mut self, key: &GangKey, since: Timestamp) {
        let since_then = self.gangs.get_mut(key).and_then(|gang| gang.incomplete_since.as_mut());
        since_then.into_iter().for_each(|at| *at = since);
    }
}

/// See [`JobGangs::take_incomplete_gangs`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IncompleteGang {
    pub(crate) gang: GangKey,
    pub(crate) holding: Vec<Key>,
    pub(crate) missing: Vec<MissingJob>,
}

/// A job without which others of its gang are not to run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MissingJob {
    pub(crate) binding: Key,
    pub(crate) name: Arc<str>,
    /// For another job.
    pub(crate) is_evicted: bool,
}

/// Decisions.
impl JobGangs {
    /// Who of a gang is in line now, by what jobs there should be; `None` while its HyperJob is not seen. `check_size`
    /// says why a queue takes no job that asks for so much.
    pub(crate) fn update_gang_queueing(
        &mut self,
        key: &GangKey,
        spec: Option<&JobGangSpec>,
        check_size: impl Fn(&QueueName, &Resources) -> Option<Reason>,
        now: Timestamp,
    ) -> LineUpdate {
        let Some(gang) = self.gangs.get_mut(key) else { return LineUpdate::default() };
        let own = gang.read_own_spec(key);
        let spec = own.as_ref().or(spec);
        let mut queueing = decide_queueing(spec, &gang.members, check_size);
        let untold = std::mem::take(&mut gang.untold).into_iter();
        let untold = untold.filter(|key| gang.beyond.get(key).is_some_and(GangJob::is_pending)).collect();
        queueing.held_back.extend(hold_back(untold, describe_beyond()));
        let mut update = LineUpdate::default();
        let parts: Vec<Part> = queueing.together.iter().filter_map(|key| gang.part(key)).collect();
        let unit = combine_jobs(&parts);
        let leader = unit.as_ref().map(|job| job.id.clone());
        if let Some(old) = gang.leader.take().filter(|old| Some(old) != leader.as_ref()) {
            self.units.remove(&old);
            // One that holds or left is told by its own state.
            let waits = |member: &GangJob| matches!(&member.state, GangJobState::Pending(job) if job.id == old);
            update.removed.extend(gang.members.values().any(waits).then_some(old));
        }
        let others = parts.iter().skip(1).map(|part| part.job.id.clone());
        update.removed.extend(others);
        let held_back = queueing.held_back.iter().filter_map(|(key, _)| Some(gang.part(key)?.job.id));
        update.removed.extend(held_back);
        update.enqueued.extend(unit);
        update.enqueued.extend(queueing.alone.iter().filter_map(|key| Some(gang.part(key)?.job)));
        update.phases.extend(queueing.together.iter().chain(&queueing.alone).map(|key| (key.clone(), None)));
        update.phases.extend(queueing.held_back.iter().map(|(key, why)| (key.clone(), Some(why.clone()))));
        gang.leader.clone_from(&leader);
        let is_incomplete = !queueing.is_refused && is_incomplete(spec, &gang.members);
        gang.incomplete_since = gang.incomplete_since.filter(|_| is_incomplete).or(is_incomplete.then_some(now));
        // One may be evicted before its HyperJob is seen, or that another holds: it counts once that is.
        if is_incomplete && std::mem::take(&mut gang.was_evicted) {
            gang.incomplete_since = Some(Timestamp::MIN);
        } else if spec.is_some() && !queueing.is_refused {
            gang.was_evicted &= gang.members.values().any(|member| member.state == GangJobState::Evicted);
        }
        if gang.members.is_empty() {
            self.gangs.remove(key);
        }
        if let Some(leader) = leader {
            self.units.insert(leader, parts);
        }
        update
    }
}

impl GangJob {
    fn is_pending(&self) -> bool {
        matches!(self.state, GangJobState::Pending(_))
    }
}

impl Gang {
    /// Of Pods, which say themselves how many they are: the most that one of them says.
    fn read_own_spec(&self, key: &GangKey) -> Option<JobGangSpec> {
        if !matches!(key, GangKey::Pods(_)) {
            return None;
        }
        let needed = self.members.values().map(|member| member.needed).max().unwrap_or(0);
        let names = self.members.values().map(|member| member.name.to_string()).collect();
        Some(JobGangSpec { names, needed: usize::try_from(needed).unwrap_or(usize::MAX), ended: BTreeSet::new() })
    }

    fn part(&self, key: &Key) -> Option<Part> {
        match &self.members.get(key)?.state {
            GangJobState::Pending(job) => Some(Part { key: key.clone(), job: job.clone() }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
