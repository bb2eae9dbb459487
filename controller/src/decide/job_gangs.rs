//! Jobs that start together: those of a HyperJob are one gang, with one place in line and one reservation.
//!
//! Rules (a gang as Volcano's, of jobs instead of pods; Slurm's heterogeneous jobs start so too):
//! - `minAvailable` jobs of a HyperJob are needed, all where it is absent. As long as fewer of them hold quota or have
//!   ended, as many as are missing are asked for together, the first in the order of its templates. The rest waits for
//!   these. Once enough hold or ended, each job that is left waits for itself.
//! - They are asked for under the name of the first: with the sum of what they ask for, the lowest of their priorities,
//!   the age of the oldest and the earliest deadline. They wait in one queue.
//! - One decision releases them all, each with a record and a charge of its own. Each release is a patch of its own: of
//!   those that were not stored, because a process ended or the server refused one, the missing are asked for together
//!   again, beside those that hold.
//! - A gang that stays so for as long as a part of a job may take to start is given up: those that hold are taken off
//!   their clusters, and all of it is in line. Only one that was in line when they were placed is a reason for that: a
//!   job that is made anew or added later takes nothing from those that run. Nor does one that its user holds back.
//! - Plain Pods of one group are a gang, too ([`read_group_of_pod`]): as many are needed as one of them says, at most.
//! - Of several card models that a job may use the first is asked for. A duplicated job, which HyperJobs do not make,
//!   waits for itself.
//!
//! Since when a gang is not whole is kept in memory alone: a restart gives it as much time again.
//!
//! [`read_group_of_pod`]: caldera_crds::workload::read_group_of_pod

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use caldera_core::{
    admission::Admission,
    queue::{Ask, Counted, FitClass, Job, JobId, TaskAsk},
    reason::Reason,
    resources::{ResourceName, Resources},
};
use jiff::{SignedDuration, Timestamp};

use super::deadlines::add_wait;
use crate::observe::{Key, Workload, fingerprint};

/// Jobs that are named in a sentence.
const MOST_NAMED: usize = 3;

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
pub(crate) struct Roster {
    /// In the order of the templates.
    pub(crate) names: Vec<String>,
    /// How many of them must hold or have ended.
    pub(crate) needed: usize,
    /// Those that ended.
    pub(crate) ended: BTreeSet<String>,
}

/// How a job of a gang stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Standing {
    /// It would wait in its queue.
    InLine(Job),
    /// It is to be in line again by itself.
    Returning,
    /// It holds quota, or did until it ended.
    Holds,
    /// Somebody has to do something first.
    Away,
}

/// A job of a gang, by its binding.
#[derive(Debug)]
struct Member {
    name: Arc<str>,
    /// How many there should be, where it says so itself.
    needed: u32,
    standing: Standing,
}

/// What becomes of those that are in line, by their bindings.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Turns {
    /// They are asked for together.
    together: Vec<Key>,
    /// Each is asked for by itself.
    alone: Vec<Key>,
    /// They are not asked for yet.
    held_back: Vec<(Key, Reason)>,
}

/// One of those that are released together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    /// Its binding.
    pub(crate) key: Key,
    /// As it would wait alone.
    pub(crate) job: Job,
}

impl Part {
    /// The card model that is asked for.
    pub(crate) fn card(&self) -> Option<&ResourceName> {
        self.job.ask.card()
    }
}

#[derive(Debug, Default)]
struct Gang {
    members: BTreeMap<Key, Member>,
    /// Under whose name it is in line, if it is.
    lead: Option<JobId>,
    /// Some hold while others are missing, since then.
    half_since: Option<Timestamp>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct JobGangs {
    gangs: BTreeMap<GangKey, Gang>,
    of: BTreeMap<Key, GangKey>,
    /// By the name that they are in line under.
    units: BTreeMap<JobId, Vec<Part>>,
    changed: BTreeSet<GangKey>,
}

/// What is to be told to the engine.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Arrangement {
    /// These wait.
    pub(crate) enqueued: Vec<Job>,
    /// These names do not, or not by themselves.
    pub(crate) removed: Vec<JobId>,
    /// Bindings that wait, with why they are not in line if they are not.
    pub(crate) phases: Vec<(Key, Option<Reason>)>,
}

/// Facts in.
impl JobGangs {
    /// Takes in how the job of a binding stands.
    pub(crate) fn set_standing(&mut self, key: &Key, gang: GangKey, workload: &Workload, standing: Standing) {
        let needed = workload.group.as_ref().map_or(0, |group| group.needed);
        if self.of.get(key).is_some_and(|known| *known != gang) {
            self.forget(key);
        }
        let members = &mut self.gangs.entry(gang.clone()).or_default().members;
        let member = members.entry(key.clone()).or_insert_with(|| Member {
            name: workload.reference.name.as_str().into(),
            needed,
            standing: Standing::Away,
        });
        let is_new = self.of.insert(key.clone(), gang.clone()).is_none();
        if is_new || member.standing != standing || member.needed != needed {
            (member.standing, member.needed) = (standing, needed);
            self.changed.insert(gang);
        }
    }

    /// A binding is gone, or its job is no gang's.
    pub(crate) fn forget(&mut self, key: &Key) {
        let Some(of) = self.of.remove(key) else { return };
        if let Some(gang) = self.gangs.get_mut(&of) {
            gang.members.remove(key);
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
    pub(crate) fn take_unit(&mut self, lead: &JobId) -> Vec<Part> {
        let parts = self.units.remove(lead).unwrap_or_default();
        for part in &parts {
            let Some(gang) = self.of.get(&part.key) else { continue };
            self.changed.insert(gang.clone());
            let Some(gang) = self.gangs.get_mut(gang) else { continue };
            gang.lead = None;
            if let Some(member) = gang.members.get_mut(&part.key) {
                member.standing = Standing::Holds;
            }
        }
        parts
    }

    /// One was released by itself.
    pub(crate) fn mark_released(&mut self, key: &Key) {
        let Some(of) = self.of.get(key) else { return };
        if let Some(member) = self.gangs.get_mut(of).and_then(|gang| gang.members.get_mut(key)) {
            member.standing = Standing::Holds;
            self.changed.insert(of.clone());
        }
    }
}

/// Answers.
impl JobGangs {
    /// Those that are in line under this name.
    pub(crate) fn unit(&self, lead: &JobId) -> &[Part] {
        self.units.get(lead).map_or(&[], Vec::as_slice)
    }

    /// Under which name the job of a binding is in line with others, if it is.
    pub(crate) fn find_lead(&self, key: &Key) -> Option<&JobId> {
        let gang = self.gangs.get(self.of.get(key)?)?;
        let lead = gang.lead.as_ref()?;
        self.unit(lead).iter().any(|part| part.key == *key).then_some(lead)
    }

    /// What to say of one that is in line with others.
    pub(crate) fn describe_unit(&self, key: &Key) -> Option<String> {
        let (lead, of) = (self.find_lead(key)?, self.of.get(key)?);
        let jobs = self.unit(lead).len();
        Some(format!("it is one of {jobs} {of} that start together or not at all"))
    }

    /// When the first of the gangs that are not whole is given up, where each has so long.
    pub(crate) fn next_due(&self, timeout: SignedDuration) -> Option<Timestamp> {
        let since = self.gangs.values().filter_map(|gang| gang.half_since).min()?;
        Some(add_wait(since, timeout))
    }

    /// Of each gang that is not whole since then: the bindings that hold, and those that are missing with their jobs'
    /// names. It has as long again.
    pub(crate) fn take_half_gangs(&mut self, since: Timestamp, now: Timestamp) -> Vec<HalfGang> {
        let due = self.gangs.values_mut().filter(|gang| gang.half_since.is_some_and(|at| at <= since));
        due.map(|gang| {
            gang.half_since = Some(now);
            let stands =
                |wanted: fn(&Standing) -> bool| gang.members.iter().filter(move |(_, member)| wanted(&member.standing));
            HalfGang {
                holding: stands(|it| *it == Standing::Holds).map(|(key, _)| key.clone()).collect(),
                missing: stands(is_missing).map(|(key, member)| (key.clone(), Arc::clone(&member.name))).collect(),
            }
        })
        .collect()
    }
}

/// See [`JobGangs::take_half_gangs`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HalfGang {
    pub(crate) holding: Vec<Key>,
    pub(crate) missing: Vec<(Key, Arc<str>)>,
}

fn is_missing(standing: &Standing) -> bool {
    matches!(standing, Standing::InLine(_) | Standing::Returning)
}

/// Decisions.
impl JobGangs {
    /// Who of a gang is in line now, by what jobs there should be; `None` while its HyperJob is not seen.
    pub(crate) fn arrange(&mut self, key: &GangKey, roster: Option<&Roster>, now: Timestamp) -> Arrangement {
        let Some(gang) = self.gangs.get_mut(key) else { return Arrangement::default() };
        let own = matches!(key, GangKey::Pods(_)).then(|| gang.list_own_roster());
        let roster = own.as_ref().or(roster);
        let turns = decide_turns(roster, &gang.members);
        let mut arrangement = Arrangement::default();
        let parts: Vec<Part> = turns.together.iter().filter_map(|key| gang.part(key)).collect();
        let unit = combine_jobs(&parts);
        let lead = unit.as_ref().map(|job| job.id.clone());
        if let Some(old) = gang.lead.take().filter(|old| Some(old) != lead.as_ref()) {
            self.units.remove(&old);
            // One that holds or left is told by its own state.
            let waits = |member: &Member| matches!(&member.standing, Standing::InLine(job) if job.id == old);
            arrangement.removed.extend(gang.members.values().any(waits).then_some(old));
        }
        let others = parts.iter().skip(1).map(|part| part.job.id.clone());
        arrangement.removed.extend(others);
        let held_back = turns.held_back.iter().filter_map(|(key, _)| Some(gang.part(key)?.job.id));
        arrangement.removed.extend(held_back);
        arrangement.enqueued.extend(unit);
        arrangement.enqueued.extend(turns.alone.iter().filter_map(|key| Some(gang.part(key)?.job)));
        arrangement.phases.extend(turns.together.iter().chain(&turns.alone).map(|key| (key.clone(), None)));
        arrangement.phases.extend(turns.held_back.iter().map(|(key, why)| (key.clone(), Some(why.clone()))));
        gang.lead.clone_from(&lead);
        let is_half = is_half(roster, &gang.members);
        gang.half_since = gang.half_since.filter(|_| is_half).or(is_half.then_some(now));
        if gang.members.is_empty() {
            self.gangs.remove(key);
        }
        if let Some(lead) = lead {
            self.units.insert(lead, parts);
        }
        arrangement
    }
}

impl Gang {
    /// Of Pods, which say themselves how many they are: the most that one of them says.
    fn list_own_roster(&self) -> Roster {
        let needed = self.members.values().map(|member| member.needed).max().unwrap_or(0);
        let names = self.members.values().map(|member| member.name.to_string()).collect();
        Roster { names, needed: usize::try_from(needed).unwrap_or(usize::MAX), ended: BTreeSet::new() }
    }

    fn part(&self, key: &Key) -> Option<Part> {
        match &self.members.get(key)?.standing {
            Standing::InLine(job) => Some(Part { key: key.clone(), job: job.clone() }),
            _ => None,
        }
    }
}

/// Jobs that are still to be admitted before enough hold or have ended.
fn count_missing(roster: &Roster, members: &BTreeMap<Key, Member>) -> usize {
    let holding = members.values().filter(|member| member.standing == Standing::Holds);
    let holding: BTreeSet<&str> = holding.map(|member| &*member.name).collect();
    let is_done = |name: &&String| roster.ended.contains(*name) || holding.contains(name.as_str());
    roster.needed.saturating_sub(roster.names.iter().filter(is_done).count())
}

/// Some of it hold, and of the rest something waits that is needed.
fn is_half(roster: Option<&Roster>, members: &BTreeMap<Key, Member>) -> bool {
    let Some(roster) = roster.filter(|roster| count_missing(roster, members) > 0) else { return false };
    let names: BTreeSet<&str> = roster.names.iter().map(String::as_str).collect();
    let some = |wanted: fn(&Standing) -> bool| {
        let mut all = members.values().filter(|member| names.contains(&*member.name));
        all.any(|member| wanted(&member.standing))
    };
    some(|it| *it == Standing::Holds) && some(is_missing)
}

fn decide_turns(roster: Option<&Roster>, members: &BTreeMap<Key, Member>) -> Turns {
    let in_line = members.iter().filter(|(_, member)| matches!(member.standing, Standing::InLine(_)));
    let Some(roster) = roster else {
        let why = Reason::JobsMissing { detail: "its HyperJob is not seen".to_owned() };
        return Turns { held_back: in_line.map(|(key, _)| (key.clone(), why.clone())).collect(), ..Turns::default() };
    };
    let order: BTreeMap<&str, usize> = roster.names.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
    let place = |member: &Member| match &member.standing {
        Standing::InLine(job) if job.ask.copies == 1 => order.get(&*member.name).copied(),
        _ => None,
    };
    let (mut waiting, mut alone) = (Vec::new(), Vec::new());
    for (key, member) in in_line {
        match place(member) {
            Some(at) => waiting.push((at, key)),
            None => alone.push(key.clone()),
        }
    }
    waiting.sort_unstable();
    let mut waiting: Vec<Key> = waiting.into_iter().map(|(_, key)| key.clone()).collect();
    let missing = count_missing(roster, members);
    if missing == 0 || (missing == 1 && !waiting.is_empty()) {
        let rest = waiting.split_off(missing.min(waiting.len()));
        alone.extend(waiting);
        if missing == 0 {
            alone.extend(rest);
            return Turns { alone, ..Turns::default() };
        }
        return Turns { alone, held_back: hold_back(rest, describe_rest(roster)), together: Vec::new() };
    }
    if waiting.len() < missing {
        let why = describe_missing(roster, members, waiting.len(), missing);
        return Turns { alone, held_back: hold_back(waiting, why), together: Vec::new() };
    }
    let queue = |key: &Key| match members.get(key).map(|member| &member.standing) {
        Some(Standing::InLine(job)) => Some(job.queue.clone()),
        _ => None,
    };
    let queues: BTreeSet<_> = waiting.iter().take(missing).filter_map(queue).collect();
    if queues.len() > 1 {
        let queues = queues.iter().map(|queue| queue.as_str()).collect::<Vec<_>>().join(", ");
        return Turns {
            alone,
            held_back: hold_back(waiting, Reason::JobsInSeveralQueues { queues }),
            ..Turns::default()
        };
    }
    let rest = waiting.split_off(missing);
    Turns { together: waiting, alone, held_back: hold_back(rest, describe_rest(roster)) }
}

fn hold_back(keys: Vec<Key>, why: Reason) -> Vec<(Key, Reason)> {
    keys.into_iter().map(|key| (key, why.clone())).collect()
}

fn describe_rest(roster: &Roster) -> Reason {
    let detail = format!("{} are needed, and those that rank before it start first", roster.needed);
    Reason::JobsMissing { detail }
}

fn describe_missing(roster: &Roster, members: &BTreeMap<Key, Member>, waiting: usize, missing: usize) -> Reason {
    let counts = |member: &&Member| matches!(member.standing, Standing::InLine(_) | Standing::Holds);
    let there: BTreeSet<&str> = members.values().filter(counts).map(|member| &*member.name).collect();
    let is_there = |name: &&String| there.contains(name.as_str()) || roster.ended.contains(*name);
    let absent: Vec<&str> = roster.names.iter().filter(|name| !is_there(name)).map(String::as_str).collect();
    let of = format!("of {missing} that are still needed {waiting} are in line");
    if absent.is_empty() {
        return Reason::JobsMissing { detail: of };
    }
    let more = if absent.len() > MOST_NAMED { " and others" } else { "" };
    let named = absent.into_iter().take(MOST_NAMED).collect::<Vec<_>>().join(", ");
    Reason::JobsMissing { detail: format!("{of}; not in line: {named}{more}") }
}

/// What those that start together ask for as one job; `None` for fewer than two.
fn combine_jobs(parts: &[Part]) -> Option<Job> {
    let first = &parts.first().filter(|_| parts.len() > 1)?.job;
    let jobs = || parts.iter().map(|part| &part.job);
    let tasks = jobs().enumerate().flat_map(|(at, job)| {
        let of_part = move |task: &TaskAsk| TaskAsk { name: name_task(at, task), ..task.clone() };
        job.ask.tasks.iter().map(of_part)
    });
    let classes: Vec<(u64, Option<&ResourceName>)> = jobs().map(|job| (job.ask.fit.0, job.ask.card())).collect();
    let ask = Ask {
        tasks: tasks.collect(),
        copies: 1,
        fit: FitClass(fingerprint(&("together", classes))),
        run_for: jobs().map(|job| job.ask.run_for).collect::<Option<Vec<i64>>>().and_then(|all| all.into_iter().max()),
        counted: Counted::Jobs(u32::try_from(parts.len()).unwrap_or(u32::MAX), first.ask.counted.tenants().into()),
        card: None,
    };
    Some(Job {
        id: first.id.clone(),
        queue: first.queue.clone(),
        priority: jobs().map(|job| job.priority).min()?,
        created: jobs().map(|job| job.created).min()?,
        deadline: jobs().filter_map(|job| job.deadline).min(),
        ask: Arc::new(ask),
    })
}

/// Tasks of several jobs have one name.
fn name_task(at: usize, task: &TaskAsk) -> caldera_core::gang::TaskName {
    format!("{at}/{}", task.name.as_str()).as_str().into()
}

/// What of a grant to all of them is each one's.
pub(crate) fn split_admission(parts: &[Part], all: &Admission) -> Vec<Admission> {
    let one = |(at, part): (usize, &Part)| {
        let mut charged = Resources::new();
        let mut tasks = BTreeMap::new();
        for task in &part.job.ask.tasks {
            let pods = all.tasks.get(&name_task(at, task)).copied().unwrap_or(0);
            charged.add(&task.request.times(u64::from(pods)));
            tasks.insert(task.name.clone(), pods);
        }
        Admission { priority: part.job.priority, tasks, charged, card: part.card().cloned(), ..all.clone() }
    };
    parts.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests;
