//! The edge: watches in, writes out. Decisions are made between the two, when no more events are waiting.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use caldera_core::place::{Decision, Target};
use caldera_crds::karmada::cluster::Cluster;
use caldera_estimator::desk::{Desk, Said, Settings};
use caldera_runtime::{
    client::WriteCounts,
    clock::SharedClock,
    members::{MemberEvent, Members},
    serve::{Ready, SharedRegistry},
    watch::Event,
    write::{Done, Failure, Writer, settled},
};
use kube::Client;
use serde_json::Value;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    effect, estimates,
    fence::{self, Fence},
    index::{Binding, Index, Key},
    links::Told,
    metrics::Metrics,
    plan::{self, QUOTA_EXCEEDED, SCHEDULER_ERROR, Step, Verdict},
    ranking::Stated,
    telling::Telling,
    watches::{Input, watch},
};

/// What the scheduler is started with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The time.
    pub clock: SharedClock,
    /// Set once the first view is complete.
    pub ready: Ready,
    /// Where metrics are registered.
    pub registry: SharedRegistry,
    /// Counts the writes of clients of members (there should be none).
    pub counts: WriteCounts,
    /// Where the estimators of members are whose nodes can not be read.
    pub estimators: Settings,
    /// Clusters that get nothing of a divided workload are listed too.
    pub empty_workloads: bool,
    /// Namespace and name of the lease under which the controller grants; `None`: grants are not held against it.
    pub grants: Option<(String, String)>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            clock: std::sync::Arc::new(caldera_runtime::clock::SystemClock),
            ready: Ready::default(),
            registry: SharedRegistry::default(),
            counts: WriteCounts::default(),
            estimators: Settings::default(),
            empty_workloads: false,
            grants: None,
        }
    }
}

/// Why the scheduler stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Every watch ended although nobody asked them to.
    #[error("the watches on the Karmada API ended")]
    WatchesEnded,
}

/// What a write was for.
#[derive(Debug, Clone)]
enum Tag {
    Place(Key, Decision),
    Clear(Key, &'static str, String),
    Status(Key),
    /// What is said on a FederationTopology.
    Links(String),
    Event,
}

/// A refusal whose text alone changed is written at most this often.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// First wait after a write that failed; doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// So long after the start decisions wait for members that were not heard of yet.
const GRACE: Duration = Duration::from_secs(2);
/// How often those that wait for room where only an estimator knows are looked at again; after what was not said, too.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Events taken in before the next decisions.
const MOST_EVENTS: usize = 4096;

/// Places released bindings until `shutdown`.
///
/// # Errors
/// If the watches end by themselves.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    let (inputs, mut incoming) = mpsc::channel(1024);
    let (member_events, mut from_members) = mpsc::channel(4096);
    let watches = shutdown.child_token();
    let _stop_watches = watches.clone().drop_guard();
    watch(&client, &inputs, &watches);
    drop(inputs);
    let members = Members::new(
        client.clone(),
        "scheduler",
        config.counts.clone(),
        config.clock.clone(),
        member_events,
        watches.clone(),
    );
    let (fence, mut read) = Fence::new(config.grants, client.clone());
    let (writer, mut outcomes) = Writer::start(client, watches.clone());
    let metrics = Metrics::register(&config.registry);
    let (desk, mut answers) = Desk::new(config.estimators);
    let mut index = Index::default();
    index.empty_workloads = config.empty_workloads;
    let mut scheduler = Scheduler {
        index,
        members,
        writer,
        clock: config.clock,
        metrics,
        flying: BTreeMap::new(),
        later: BTreeMap::new(),
        desk,
        fence,
        look_again: None,
        told: BTreeMap::new(),
        telling: Telling::new(Instant::now()),
        links: Told::default(),
        links_listed: false,
        faults: BTreeMap::new(),
        missing: ["bindings", "clusters"].into_iter().collect(),
        grace: Some(Instant::now() + GRACE),
        ready: config.ready,
    };
    loop {
        let wake = scheduler
            .later
            .values()
            .filter_map(|retry| retry.at)
            .chain(scheduler.grace)
            .chain(scheduler.look_again)
            .chain(scheduler.next_deadline())
            .min();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(done) = outcomes.recv() => scheduler.done(done),
            input = incoming.recv() => scheduler.take(input.ok_or(Error::WatchesEnded)?),
            Some(event) = from_members.recv() => scheduler.member(event),
            Some(said) = answers.recv() => scheduler.estimated(said),
            Some(lease) = read.recv() => scheduler.leased(&lease),
            () = sleep_until(wake) => scheduler.wake(),
        }
        // Everything that is there already counts before anything is decided.
        for _ in 0..MOST_EVENTS {
            if let Ok(done) = outcomes.try_recv() {
                scheduler.done(done);
            } else if let Ok(input) = incoming.try_recv() {
                scheduler.take(input);
            } else if let Ok(event) = from_members.try_recv() {
                scheduler.member(event);
            } else if let Ok(said) = answers.try_recv() {
                scheduler.estimated(said);
            } else if let Ok(lease) = read.try_recv() {
                scheduler.leased(&lease);
            } else {
                break;
            }
        }
        scheduler.decide();
    }
    settled(outcomes).await;
    Ok(())
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// When to try a write again.
struct Retry {
    /// `None` once it is being tried.
    at: Option<Instant>,
    failures: u32,
    /// Nothing else may try before that: the server said no, or was too busy.
    binding: bool,
}

struct Scheduler {
    index: Index,
    members: Members,
    writer: Writer<Tag>,
    clock: SharedClock,
    metrics: Metrics,
    /// Bindings with a write under way, and the version it was decided on. Its outcome makes them due again.
    flying: BTreeMap<Key, String>,
    /// Bindings whose writes failed.
    later: BTreeMap<Key, Retry>,
    /// Members whose nodes can not be read may have estimators.
    fence: Fence,
    desk: Desk,
    /// When those that wait for room are looked at again although nobody said that there is more: an estimator tells
    /// nothing by itself.
    look_again: Option<Instant>,
    /// What was said about declared links.
    links: Told,
    /// They arrived. Not every host has them, so that they are waited for only as long as members are.
    links_listed: bool,
    /// When a refusal was last written.
    told: BTreeMap<Key, Instant>,
    /// Which successes become events.
    telling: Telling,
    /// What was told of weights that can not be read, by the UID of who states them.
    faults: BTreeMap<String, String>,
    /// Lists that did not arrive yet: nothing is decided before they do.
    missing: BTreeSet<&'static str>,
    /// Until then members that were not heard of yet are waited for; `None` once that is over.
    grace: Option<Instant>,
    ready: Ready,
}

impl Scheduler {
    fn take(&mut self, input: Input) {
        match input {
            Input::Bindings(global, event) => {
                let event = *event;
                if matches!(event, Event::Reset(_)) && !global {
                    self.arrived("bindings");
                }
                if let Event::Deleted(binding) = &event {
                    self.forget(&binding.key);
                }
                self.tell_faults(&event, |binding| binding.weights.as_ref());
                self.index.bindings(global, event);
            }
            Input::Workloads(kind, event) => self.index.workloads((kind.group(), kind.kind()), event),
            Input::Policies(global, event) => {
                self.tell_faults(&event, |(_, stated)| stated.as_ref());
                self.index.rankings.policies(global, event);
            }
            Input::Scores(event) => self.index.rankings.scores(event),
            Input::Links(event) => {
                self.links_listed |= matches!(*event, Event::Reset(_));
                self.index.links(*event);
            }
            Input::Clusters(event) => {
                self.watch_members(&event);
                self.index.clusters(&event);
                if matches!(*event, Event::Reset(_)) {
                    self.arrived("clusters");
                }
            }
        }
    }

    /// Weights that can not be read are told once on the object that states them, and again if they change.
    fn tell_faults<T>(&mut self, event: &Event<T>, stated: impl Fn(&T) -> Option<&Stated>) {
        let (objects, gone) = match event {
            Event::Reset(all) => (all.as_slice(), false),
            Event::Applied(one) => (std::slice::from_ref(one), false),
            Event::Deleted(one) => (std::slice::from_ref(one), true),
        };
        for fault in objects.iter().filter_map(stated).filter_map(|stated| stated.as_ref().err()) {
            if gone {
                self.faults.remove(&fault.on.uid);
            } else if self.faults.insert(fault.on.uid.clone(), fault.why.clone()).as_ref() != Some(&fault.why) {
                let (kind, name) = (&fault.on.kind, &fault.on.name);
                tracing::warn!(kind, namespace = fault.on.namespace, name, why = fault.why, "weights are ignored");
                self.writer.send(Tag::Event, effect::ignored_weights(fault, self.clock.now()));
            }
        }
    }

    fn arrived(&mut self, list: &'static str) {
        if self.missing.remove(list) && self.missing.is_empty() {
            self.ready.set(true);
            tracing::info!(bindings = self.index.bindings.len(), "the first view is complete");
        }
    }

    fn watch_members(&mut self, event: &Event<Cluster>) {
        let name = |cluster: &Cluster| cluster.metadata.name.clone().unwrap_or_default();
        match event {
            Event::Reset(all) => {
                let names: Vec<String> = all.iter().map(name).collect();
                self.members.keep_only(&names.iter().map(String::as_str).collect::<Vec<_>>());
                for cluster in all {
                    self.members.observe(cluster);
                    self.desk.observe(cluster);
                }
            }
            Event::Applied(cluster) => {
                self.members.observe(cluster);
                self.desk.observe(cluster);
            }
            Event::Deleted(cluster) => {
                self.members.forget(&name(cluster));
                self.desk.forget_cluster(&name(cluster));
            }
        }
    }

    fn estimated(&mut self, said: Said) {
        let key = self.desk.take(said);
        if let Some((namespace, name)) = key.split_once('/') {
            self.index.mark(&Key { namespace: namespace.to_owned(), name: name.to_owned() });
        }
    }

    fn member(&mut self, event: MemberEvent) {
        self.index.member(&event.cluster, event.update);
    }

    fn leased(&mut self, read: &fence::Read) {
        for key in self.fence.read_is(read) {
            self.index.mark(&key);
        }
    }

    fn forget(&mut self, key: &Key) {
        self.fence.forget(key);
        self.later.remove(key);
        self.told.remove(key);
        self.desk.forget(&key.to_string());
        self.metrics.waiting.set(i64::try_from(self.index.waiting()).unwrap_or(i64::MAX));
    }

    fn wake(&mut self) {
        let now = Instant::now();
        for (key, retry) in &mut self.later {
            if retry.at.is_some_and(|at| at <= now) {
                retry.at = None;
                self.index.mark(key);
            }
        }
        if self.look_again.is_some_and(|at| at <= now) {
            self.look_again = None;
            self.index.more_room();
            self.index.doubt_links();
        }
    }

    fn again_later(&mut self, key: &Key, binding: bool) {
        let failures = self.later.get(key).map_or(0, |retry| retry.failures);
        let wait = FIRST_WAIT.saturating_mul(1 << failures.min(10)).min(LONGEST_WAIT);
        let retry = Retry { at: Some(Instant::now() + wait), failures: failures + 1, binding };
        self.later.insert(key.clone(), retry);
    }

    /// When a promise ends because of the time.
    fn next_deadline(&self) -> Option<Instant> {
        let left = self.index.next_deadline()?.duration_since(self.clock.now());
        Some(Instant::now() + Duration::try_from(left).unwrap_or_default())
    }

    fn decide(&mut self) {
        self.index.set_now(self.clock.now());
        if self.grace.is_some_and(|end| end <= Instant::now() || self.is_answered()) {
            self.grace = None;
        }
        if !self.missing.is_empty() || self.grace.is_some() {
            return;
        }
        if self.index.take_relinked() {
            self.tell_links();
        }
        if self.index.is_idle() {
            return;
        }
        for key in self.index.take_due() {
            let must_wait = self.later.get(&key).is_some_and(|retry| retry.binding && retry.at.is_some());
            if must_wait || self.flying.contains_key(&key) {
                continue;
            }
            self.index.fleet.refresh();
            let Some(binding) = self.index.bindings.get(&key) else { continue };
            let started = std::time::Instant::now();
            let (asked, fleet) = (self.index.asked(binding), &self.index.fleet);
            // While it waits for estimators others go on; an answer makes it due again.
            let Some(estimated) = estimates::gather(&mut self.desk, binding, asked, fleet) else { continue };
            let around = self.index.around(binding, self.clock.now());
            let Verdict { step, wants_room } = plan::decide_by(binding, asked, around, fleet, &estimated);
            if wants_room && !estimated.is_empty() {
                self.look_again.get_or_insert_with(|| Instant::now() + LOOK_AGAIN);
            }
            self.metrics.decided(&step, started.elapsed());
            let may = match &step {
                Step::Place(decision) => {
                    self.fence.may_place(binding, decision.targets.iter().map(|target| target.replicas).sum())
                }
                _ => true,
            };
            if wants_room {
                self.index.wait_for_room(&key);
            }
            if may {
                self.carry_out(&key, step);
            }
        }
        self.metrics.waiting.set(i64::try_from(self.index.waiting()).unwrap_or(i64::MAX));
    }

    fn tell_links(&mut self) {
        self.index.fleet.refresh();
        for (name, write) in self.links.writes(&self.index.links, &self.index.fleet, self.clock.now()) {
            self.writer.send(Tag::Links(name), write);
        }
    }

    /// Whether the first view is complete, members included.
    fn is_answered(&self) -> bool {
        self.missing.is_empty() && self.links_listed && self.index.fleet.unanswered().next().is_none()
    }

    fn carry_out(&mut self, key: &Key, step: Step) {
        let Some(binding) = self.index.bindings.get(key) else { return };
        match step {
            Step::Rest => {}
            Step::Place(decision) => {
                let write = effect::place(binding, &decision);
                self.index.assume(key, &decision.targets, decision.plan.as_ref());
                self.send(key, Tag::Place(key.clone(), decision), write);
            }
            Step::Confirm { anew } => {
                let write = effect::scheduled(binding, None, anew, self.clock.now());
                self.send(key, Tag::Status(key.clone()), write);
            }
            Step::Refuse { reason, message, clear: true } => {
                let write = effect::clear(binding);
                self.send(key, Tag::Clear(key.clone(), reason, message), write);
            }
            Step::Refuse { reason, message, clear: false } => self.refuse(key, reason, &message),
        }
    }

    fn send(&mut self, key: &Key, tag: Tag, write: caldera_runtime::write::Write) {
        let version = self.index.bindings.get(key).map(|binding| binding.resource_version.clone()).unwrap_or_default();
        self.flying.insert(key.clone(), version);
        self.writer.send(tag, write);
    }

    /// Writes the condition, if it says something new, and events if the reason is new.
    fn refuse(&mut self, key: &Key, reason: &'static str, message: &str) {
        let Some(binding) = self.index.bindings.get(key) else { return };
        let now = self.clock.now();
        let same_reason = match binding.status.scheduled() {
            Some(("False", old, text)) if old == reason && text == message => return,
            Some(("False", old, _)) => old == reason,
            _ => false,
        };
        if same_reason && self.told.get(key).is_some_and(|at| at.elapsed() < SAY_AGAIN) {
            return;
        }
        self.told.insert(key.clone(), Instant::now());
        let write = effect::refused(binding, reason, message, now);
        let events = (!same_reason).then(|| effect::events(binding, false, message, now));
        self.send(key, Tag::Status(key.clone()), write);
        for event in events.into_iter().flatten() {
            self.writer.send(Tag::Event, event);
        }
    }

    fn done(&mut self, Done { tag, result }: Done<Tag>) {
        match (tag, result) {
            (Tag::Event, result) => {
                if let Err(error) = result {
                    tracing::debug!(%error, "an event was not recorded");
                }
            }
            (Tag::Links(_), Ok(_)) => {}
            (Tag::Links(name), Err(failure)) => {
                tracing::warn!(name, %failure, "what is to be said about declared links was not written");
                self.links.failed(&name);
                self.look_again.get_or_insert_with(|| Instant::now() + LOOK_AGAIN);
            }
            (Tag::Place(key, decision), Ok(object)) => self.placed(&key, &decision, &object),
            (Tag::Clear(key, reason, message), Ok(object)) => {
                self.flying.remove(&key);
                self.stored(&object);
                self.refuse(&key, reason, &message);
            }
            (Tag::Status(key), Ok(object)) => {
                self.flying.remove(&key);
                self.stored(&object);
                let scheduled =
                    |binding: &Binding| binding.status.scheduled().is_some_and(|(status, ..)| status == "True");
                if self.index.bindings.get(&key).is_some_and(scheduled) {
                    self.later.remove(&key);
                }
                self.index.mark(&key);
            }
            (Tag::Place(key, _) | Tag::Clear(key, ..) | Tag::Status(key), Err(failure)) => self.failed(&key, failure),
        }
    }

    fn stored(&mut self, object: &Value) {
        if let Some(binding) = Binding::read(object) {
            self.index.bind(binding);
        }
    }

    /// The clusters are written: now the status, with the generation that the write returned, and the events.
    fn placed(&mut self, key: &Key, decision: &Decision, object: &Value) {
        self.flying.remove(key);
        self.told.remove(key);
        self.stored(object);
        let Some(binding) = self.index.bindings.get(key) else { return };
        let now = self.clock.now();
        let targets: &[Target] = &decision.targets;
        tracing::info!(binding = %key, result = effect::success_message(targets), "placed");
        let status = effect::scheduled(binding, decision.affinity.as_deref(), true, now);
        let events = self.telling.may(Instant::now());
        let events = events.then(|| effect::events(binding, true, &effect::success_message(targets), now));
        self.send(key, Tag::Status(key.clone()), status);
        for event in events.into_iter().flatten() {
            self.writer.send(Tag::Event, event);
        }
    }

    /// Whatever was assumed is not so: back to what the binding itself says, and decide again when that makes sense.
    fn failed(&mut self, key: &Key, failure: Failure) {
        let decided_on = self.flying.remove(key).unwrap_or_default();
        self.index.promise(key);
        match failure {
            Failure::Conflict(_) | Failure::Exists(_) => {
                self.metrics.conflicts.inc();
                let newer = self.index.bindings.get(key).is_some_and(|now| now.resource_version != decided_on);
                if newer {
                    self.index.mark(key);
                } else {
                    // Its event is on the way and will make it due; the timer is for the case that it is lost.
                    self.again_later(key, false);
                }
            }
            Failure::Gone(_) => {}
            Failure::Transient(why) => {
                tracing::warn!(binding = %key, why, "a write did not get through; trying again");
                self.again_later(key, true);
            }
            Failure::Refused { reason, message, .. } => {
                let reason = if reason == QUOTA_EXCEEDED { QUOTA_EXCEEDED } else { SCHEDULER_ERROR };
                self.again_later(key, true);
                self.refuse(key, reason, &message);
            }
        }
    }
}
