//! One history: a host, two members, our three components, users who submit, suspend and delete, and faults from a
//! seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use axum::Router;
use caldera_runtime::clock::Clock;
use embedded_apiserver::{ApiServer, Options, SeededIds, TokioClock as ServerClock};
use kube::Client;
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use crate::{
    actors::{Actor, Actors},
    counted_clock::CountedClock,
    faults::{Faults, Life, Way},
    history::{History, Trace},
    hostile::{self, Hostile},
    invariants::{Invariants, Stage, has_ended},
    ledger,
    prng::Prng,
    processes::{Process, World, switched},
    restore::Restores,
    setting::{
        MEMBERS, WEBHOOK, classes, clusters, fleet, limits, nodes, prepare_host, prepare_member, prepare_queues, queues,
    },
    sieve::PlannedFault,
    stand_in::{self, Links, StandIn},
    story::{Action, Story, job, story},
    workloads::{RESOURCES, deployments, name_binding},
};

/// What a history came to.
#[derive(Debug)]
pub struct Outcome {
    pub history: Trace,
    pub virtual_seconds: u64,
    jobs: usize,
    commits: u64,
    pub writes: u64,
    kills: u64,
    pub faults: BTreeMap<&'static str, u64>,
    /// The write that a fault was planned for has come.
    pub has_struck: bool,
    /// Commits at which more was granted, by two replicas, than a limit.
    pub over_granted: u64,
    /// What a hostile tenant did.
    pub attacks: BTreeMap<String, u64>,
    /// Those that not every world has.
    pub actors: Vec<&'static str>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            history, jobs, commits, writes, kills, faults, virtual_seconds, over_granted, attacks, actors, ..
        } = self;
        let (faults, attacks): (u64, u64) = (faults.values().sum(), attacks.values().sum());
        write!(
            f,
            "history {:016x}: {jobs} jobs, {commits} commits checked, {writes} writes tried by us, {faults} faults, \
             {kills} kills, {virtual_seconds} s virtual, {over_granted} commits with more granted than a limit, \
             {attacks} attacks, actors {actors:?}",
            history.number()
        )
    }
}

pub const STEP: Duration = Duration::from_millis(100);

/// While things go wrong.
const STORM: Duration = Duration::from_secs(120);

/// Until everything must be done after that.
const CALM: Duration = Duration::from_secs(20 * 60);

/// Longer where a tenant forged: each forgery doubles its job's backoff, up to this.
const LONGEST_BACKOFF: Duration = Duration::from_secs(15 * 60);

/// Milliseconds between two things that users do again.
const AGAIN: u64 = 300;

/// Without a write for so long somebody holds the lease, and has written what it had to: who was killed may have held
/// it for 15 s more.
const SETTLED: Duration = Duration::from_secs(30);

/// Nothing is written for so long, and it is over: the controller puts a queue's note off for up to five minutes.
const QUIET: Duration = Duration::from_secs(330);

/// The same while something runs: what that uses is written down every five minutes.
const QUIET_AT_WORK: Duration = Duration::from_secs(120);

/// Then nothing is written for so long.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// Runs a history to its end, with the faults that its seed says or with one alone.
pub async fn run(seed: u64, planned: Option<PlannedFault>, keep: bool) -> Outcome {
    let began = Instant::now();
    let mut prng = Prng::new(seed);
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let webhook = Arc::default();
    let hook = switched(Arc::clone(&webhook));
    let mut ids = prng.fork();
    let mut server = |name: &str, webhooks| {
        let ids = Arc::new(SeededIds::new(ids.next()));
        let clock = Arc::new(ServerClock::starting_at(start));
        ApiServer::new(Options { name: name.into(), clock, ids, webhooks, ..Options::default() })
    };
    let server_of_host = server("host", BTreeMap::from([(WEBHOOK.to_owned(), hook.clone())]));
    let host = server_of_host.router();
    let members: BTreeMap<String, Router> =
        MEMBERS.into_iter().map(|name| (name.to_owned(), server(name, BTreeMap::new()).router())).collect();
    let user = Client::new(host.clone(), "default");
    let member_clients: BTreeMap<String, Client> =
        members.iter().map(|(name, router)| (name.clone(), Client::new(router.clone(), "default"))).collect();
    // A planned fault is alone.
    let actors = if planned.is_some() { Actors::default() } else { Actors::of_seed(seed) };
    prepare_host(&user, &actors).await;
    let hostile = match hostile::is_in_world(seed) {
        true => Some(Hostile::prepare(seed, &server_of_host, &user).await),
        false => None,
    };
    let mut stand_in = {
        let history = History::new();
        for of in [
            stand_in::jobs(),
            stand_in::bindings(),
            stand_in::works(),
            stand_in::pod_groups(),
            queues(),
            classes(),
            clusters(),
        ] {
            history.follow("host", user.clone(), of);
        }
        if actors.has(Actor::Services) {
            history.follow("host", user.clone(), deployments());
        }
        let stand_in = StandIn::new(user.clone(), member_clients.clone(), hook, history.clone());
        (stand_in, history)
    };
    for (name, client) in &member_clients {
        prepare_member(client, &actors).await;
        stand_in.0.nodes.insert(name.clone(), nodes(&actors));
    }
    let (mut stand_in, history) = (stand_in.0, stand_in.1);
    let is_traced = std::env::var_os("CALDERA_SIMULATION_TRACE").is_some();
    let faults = Faults::new(prng.fork(), planned, is_traced);
    let clock = Arc::new(CountedClock::starting_at(start));
    if actors.has(Actor::Members) {
        stand_in.links = Some(Links::new(Prng::new(seed ^ 0x006c_696e_6b73), faults.clone(), &MEMBERS));
    }
    let mut world = World {
        actors,
        way: Way { host, members, faults: faults.clone(), who: "", life: Life::default(), fenced: true },
        faults,
        user,
        clock: clock.clone(),
        skews: BTreeMap::new(),
        webhook,
        replicated: true,
        unfenced: false,
        overlapping_schedulers: false,
        running: BTreeMap::new(),
        conditions: BTreeMap::new(),
        lives: 0,
        kills: 0,
    };
    // Each second world has one replica; of the others each second has no lease that works.
    let replicas = prng.below(4);
    (world.replicated, world.unfenced) = (replicas >= 2, replicas == 3);
    world.way.fenced = world.replicated;
    let mut draws = Prng::new(seed ^ 0x636c_6f63_6b73);
    world.overlapping_schedulers = draws.below(2) == 0;
    if world.actors.has(Actor::Clocks) {
        // Two of them differ by a minute at most, by which a clock may be wrong (docs/rules/protocol.md).
        let mut draw_skew = || i64::try_from(draws.below(60_001)).unwrap() - 30_000;
        world.skews = Process::ALL.into_iter().map(|process| (process, draw_skew())).collect();
    }
    for process in Process::ALL.into_iter().rev() {
        world.start(process);
    }
    prepare_queues(&world.user, &world.actors).await;
    if let Some(hostile) = &hostile {
        hostile.prepare_queue(&world.user).await;
    }
    sleep(Duration::from_secs(5)).await;
    let mut invariants = Invariants::new(limits(&world.actors), fleet(&world.actors), world.unfenced);
    invariants.says_applied = world.actors.has(Actor::Members);
    let mut run = HistoryRun {
        invariants,
        trace: Trace::new(keep),
        is_traced,
        clock,
        history,
        hostile,
        last_writes: 0,
        quiet_since: Instant::now(),
    };
    let mut story = story(&mut prng);
    story.add_actors(seed, &world.actors);
    let restores = Restores::new(seed, server_of_host);
    storm(&mut world, &mut stand_in, &mut run, &mut prng, &mut story, restores).await;
    if run.hostile.is_some() {
        siege(&mut world, &mut stand_in, &mut run).await;
    }
    calm(&mut world, &mut stand_in, &mut run, story).await;
    Outcome {
        history: run.trace,
        actors: world.actors.names(),
        attacks: run.hostile.map(|hostile| hostile.attacks).unwrap_or_default(),
        over_granted: run.invariants.over_granted,
        jobs: run.invariants.jobs().len(),
        commits: run.invariants.checked,
        writes: world.faults.writes(),
        kills: world.kills,
        faults: world.faults.injected(),
        has_struck: world.faults.has_struck(),
        virtual_seconds: began.elapsed().as_secs(),
    }
}

pub struct HistoryRun {
    pub invariants: Invariants,
    trace: Trace,
    /// Each commit is printed.
    is_traced: bool,
    clock: Arc<CountedClock>,
    pub history: History,
    pub hostile: Option<Hostile>,
    last_writes: u64,
    quiet_since: Instant,
}

impl HistoryRun {
    /// Checks every commit since the last time, one after the other.
    pub async fn check(&mut self) {
        // On virtual time this ends when nobody has anything to do: all watches have delivered.
        sleep(Duration::from_millis(1)).await;
        self.clock.must_have_gone_on();
        self.history.must_be_complete();
        for commit in self.history.take() {
            self.trace.add(&commit);
            if self.is_traced {
                let object = commit.object.as_ref();
                let parts =
                    ["/metadata/annotations", "/spec/suspension", "/spec/clusters", "/status/state", "/status/phase"];
                let parts: Vec<_> =
                    parts.into_iter().filter_map(|part| object?.pointer(part)).map(ToString::to_string).collect();
                println!("{} ms: {} {:?} {}", commit.millis, commit.version, commit.name, parts.join(" "));
            }
            self.invariants.observe(&commit);
            if let Some(hostile) = &mut self.hostile {
                hostile.observe(&commit);
            }
        }
        if let Some(hostile) = &mut self.hostile {
            hostile.check(self.history.millis(), &self.invariants);
        }
    }
}

/// Users act, requests fail, processes die, and the host comes back from a backup.
async fn storm(
    world: &mut World,
    stand_in: &mut StandIn,
    run: &mut HistoryRun,
    prng: &mut Prng,
    story: &mut Story,
    mut restores: Restores,
) {
    world.faults.switch(true);
    let began = Instant::now();
    // What can not be done by then is not done.
    let mut given_up = STORM * 2;
    let mut down: Vec<(Instant, Process)> = Vec::new();
    while began.elapsed() < STORM || !story.actions.is_empty() {
        sleep(STEP).await;
        run.check().await;
        world.must_live();
        let mut left = Vec::new();
        let mut actions = std::mem::take(&mut story.actions).into_iter();
        while let Some((at, action)) = actions.next() {
            if at > millis(began.elapsed()) {
                left.push((at, action));
                continue;
            }
            if world.act(&action, &mut run.invariants).await.is_err() {
                // What is not there yet is done later; a job that is deleted needs no more.
                if began.elapsed() < given_up || matches!(action, Action::Restore) {
                    left.push((at, action));
                }
                continue;
            }
            restores.note(&action);
            match action {
                Action::BackUp => restores.back_up(run).await,
                Action::Restore => {
                    story.actions = left.drain(..).chain(actions.by_ref()).collect();
                    let again = restores.restore(world, stand_in, run, story).await;
                    given_up = given_up.max(began.elapsed() + STORM);
                    down.clear();
                    left = put_first(again, std::mem::take(&mut story.actions), millis(began.elapsed()));
                }
                _ => {}
            }
        }
        story.actions = left;
        run.check().await;
        // Somebody thinks better of what was just admitted.
        for name in run.invariants.admitted() {
            let is_over = began.elapsed() > STORM * 2;
            let suspend = Action::Suspend(name.clone());
            if !is_over && prng.below(8) == 0 && world.act(&suspend, &mut run.invariants).await.is_ok() {
                restores.note(&suspend);
                let back = millis(began.elapsed()) + prng.between(1_000, 30_000);
                story.actions.push((back, Action::Resume(name)));
            }
        }
        let mut dead = world.faults.take_crashed();
        if began.elapsed() < STORM && !world.faults.is_planned() && prng.below(150) == 0 {
            let all = Process::list(&world.actors);
            dead.insert(all[usize::try_from(prng.below(all.len() as u64)).unwrap()].name());
        }
        for process in Process::ALL.into_iter().filter(|process| dead.contains(process.name())) {
            if world.running.contains_key(&process) {
                world.kill(process);
                let until = Instant::now() + Duration::from_millis(prng.below(5_000));
                if run.is_traced {
                    println!("the {} is dead for {:?}", process.name(), until - Instant::now());
                }
                down.push((until, process));
            }
        }
        down.retain(|(at, process)| {
            let back = *at <= Instant::now();
            if back {
                world.start(*process);
            }
            !back
        });
        stand_in.step(prng.below(200) == 0).await;
        if let Some(hostile) = &mut run.hostile {
            hostile.step(&run.invariants).await;
        }
        if began.elapsed() >= STORM {
            world.faults.switch(false);
        }
    }
    world.faults.switch(false);
    restart_dead(world);
}

fn millis(since: Duration) -> u64 {
    u64::try_from(since.as_millis()).unwrap()
}

/// What users do again, one after the other, and then what they had not done yet.
fn put_first(again: Vec<Action>, later: Vec<(u64, Action)>, now: u64) -> Vec<(u64, Action)> {
    let mut at = now;
    let mut all = Vec::new();
    for action in again {
        at += AGAIN;
        all.push((at, action));
    }
    all.extend(later.into_iter().map(|(due, action)| (due.max(at), action)));
    all
}

/// Everybody who is not there begins another life.
fn restart_dead(world: &mut World) {
    let crashed = world.faults.take_crashed();
    for process in Process::ALL {
        if crashed.contains(process.name()) {
            world.kill(process);
        }
        if !world.running.contains_key(&process) {
            world.start(process);
        }
    }
}

/// Nothing fails any more, and the hostile tenant goes on.
async fn siege(world: &mut World, stand_in: &mut StandIn, run: &mut HistoryRun) {
    let began = Instant::now();
    if let Some(hostile) = &mut run.hostile {
        hostile.besiege(&world.user, &world.actors, run.history.millis()).await;
    }
    while began.elapsed() < hostile::BEFORE_SIEGE + hostile::SIEGE {
        sleep(STEP).await;
        run.check().await;
        world.must_live();
        stand_in.step(false).await;
        if let Some(hostile) = run.hostile.as_mut().filter(|_| began.elapsed() > hostile::BEFORE_SIEGE) {
            hostile.step(&run.invariants).await;
        }
    }
    // From now on.
    run.invariants.peaks.clear();
}

/// Nothing fails any more: everything comes to its end; then all quota is there for others, and then nothing is
/// written.
async fn calm(world: &mut World, stand_in: &mut StandIn, run: &mut HistoryRun, mut story: Story) {
    at_rest(world, stand_in, run, &story.finish).await;
    for service in run.invariants.services() {
        world.act(&Action::Delete(service), &mut run.invariants).await.unwrap();
    }
    if let Some(hostile) = &mut run.hostile {
        hostile.give_up(&world.user).await;
    }
    // Whoever kept quota of a job that is gone has none for these: together they need every core of `lab`. It may have
    // been more for a while.
    run.invariants.peaks.clear();
    for (name, queue, cores) in [("last-vision", "vision", 5), ("last-speech", "speech", 5)] {
        let action = Action::Submit(job(name, queue, &[("t0".into(), cores, cores, 1)], 30, false));
        world.act(&action, &mut run.invariants).await.unwrap();
        story.finish.insert(name.into());
    }
    at_rest(world, stand_in, run, &story.finish).await;
    assert_eq!(run.invariants.peaks.get("lab"), Some(&10), "all of lab was held at once: its quota came back");
    for name in &story.wait {
        assert_eq!(run.invariants.stage(&format!("{name}-job")), Stage::Waiting, "{name} can not fit anywhere");
    }
    assert_eq!(run.invariants.bindings().len(), run.invariants.jobs().len(), "each job has its binding");
    for queue in run.history.all("host", "Queue") {
        for resource in RESOURCES {
            let allocated = queue["status"]["allocated"][resource].as_str().unwrap_or("0");
            assert_eq!(allocated, "0", "nothing runs, and {} says: {}", queue["metadata"]["name"], queue["status"]);
        }
    }
    let (writes, began) = (world.faults.writes(), Instant::now());
    while began.elapsed() < IDLE {
        sleep(Duration::from_secs(5)).await;
        run.check().await;
        world.must_live();
        stand_in.step(false).await;
    }
    assert_eq!(world.faults.writes(), writes, "an idle system writes nothing");
}

/// Waits until these have ended and nothing was written for a while.
async fn at_rest(world: &mut World, stand_in: &mut StandIn, run: &mut HistoryRun, finish: &BTreeSet<String>) {
    let began = Instant::now();
    (run.last_writes, run.quiet_since) = (world.faults.writes(), began);
    let mut step = STEP;
    loop {
        sleep(step).await;
        run.check().await;
        restart_dead(world);
        world.must_live();
        stand_in.step(false).await;
        let writes = world.faults.writes();
        if writes != run.last_writes {
            (run.last_writes, run.quiet_since) = (writes, Instant::now());
        }
        let jobs = run.invariants.jobs();
        let services = run.invariants.services();
        let unserved = services.iter().filter(|name| !run.invariants.is_served(name));
        let unfinished = finish.iter().filter(|name| !jobs.get(*name).is_some_and(has_ended));
        let left: Vec<&String> = unfinished.chain(unserved).collect();
        step = if left.is_empty() { STEP * 10 } else { STEP };
        let quiet = run.quiet_since.elapsed();
        if quiet > SETTLED && quiet <= SETTLED + step {
            ledger::must_be_what_the_objects_say(&run.history, world.clock.now());
        }
        let long_enough = if services.is_empty() { QUIET } else { QUIET_AT_WORK };
        if left.is_empty() && run.quiet_since.elapsed() > long_enough {
            return;
        }
        let is_left = |group: &&Value| {
            left.iter().any(|name| group["metadata"]["labels"]["caldera.dev/workload-name"] == name.as_str())
        };
        let calm = if run.hostile.is_some() { CALM + LONGEST_BACKOFF } else { CALM };
        assert!(
            began.elapsed() < calm,
            "not at rest after {} s: {left:#?} are not done, the last write was {} s ago; bindings {:#?}, groups {:#?}",
            calm.as_secs(),
            run.quiet_since.elapsed().as_secs(),
            left.iter()
                .filter_map(|name| run.invariants.bindings().get(&name_binding(jobs.get(*name)?)))
                .collect::<Vec<_>>(),
            run.history
                .all("host", "PodGroup")
                .iter()
                .filter(is_left)
                .map(|group| &group["status"])
                .collect::<Vec<_>>(),
        );
    }
}
