//! The loop: events and answers in, decisions, writes out. The only asynchronous part.
//!
//! One task owns all state. What waits in the channels is taken in before each decision, up to [`EVENTS_PER_PASS`]
//! events, so that a burst costs one decision. Objects are watched, not polled; Works only of the clusters where it
//! matters what Works there are. A timer wakes the loop for what was put off on purpose, for metrics, and to save the
//! accounts ([`save`]).
//!
//! Beside the loop, small tasks publish the settings, follow what an admin chooses of them, and read what earlier
//! controllers accounted. Each tries again until the API server answers. What an admin chose before, and what was used
//! lately where that counts, are read before the loop, each for ten seconds at most: nobody is preempted by flags that
//! do not count, or released in an order that does not.

mod catalogue;
mod chosen;
pub(crate) mod decision_log;
mod save;
mod shadow;

use std::{collections::BTreeMap, time::Instant};

use caldera_core::{
    gang::ClusterName,
    queue::{FairHistory, OrderPolicy},
};
use caldera_runtime::{
    client::ClientError,
    members::Members,
    watch::{Event, Follower, WatchOptions, declare_kinds},
    write::{self, Failure, WriteOutcome, Writer, wait_for_outcomes},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace},
    scheduling::v1::PriorityClass,
};
use kube::{Api, Client, runtime::watcher};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use caldera_crds::{
    capacity_reservation::CapacityReservation,
    karmada::{
        cluster::Cluster,
        work::{ResourceBinding, Work},
    },
    links::FederationTopology,
    names::{caldera::WORKLOAD_KIND, karmada::EXECUTION_NAMESPACE_PREFIX, volcano::HYPER_JOB_NAME},
    volcano::{
        bus::Command,
        datadependency::{DataSource, DataSourceClaim},
        scheduling::{PodGroup, Queue},
    },
    workload::WorkloadKind,
};

pub use self::shadow::run_in_shadow;
use self::{
    catalogue::CatalogueClient,
    chosen::{begin_with_settings, change_settings, follow_chosen_settings},
    decision_log::{log_decision, open_decision_span},
    save::{Save, SaveTimes, save_last, take_saves},
};
use crate::{
    config::Config,
    decide::{Controller, MemberLoss, decide},
    fair_history,
    history::{self, History, HistoryLine, Pages},
    measure::Measures,
    metrics::{MOST_WRITES_IN_FLIGHT, Metrics, PENDING_WRITES, WRITES_IN_FLIGHT},
    observe::{
        Binding, ClassFacts, ClusterFacts, CommandFacts, CronJobFacts, DataClaimFacts, DataSourceFacts, HyperJobFacts,
        Input, PodGroupFacts, PolicyFacts, QueueFacts, WorkFacts, Workload, read_namespace,
    },
    settings::Settings,
    state::describe_state,
    usage::{self, UsageHistory},
    write::{
        Tag,
        cron_job::cron_job_resource,
        hyper_job::{hyper_job_resource, policy_resource},
    },
};

/// Why the controller stopped other than by being asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no client of the catalogue.
    #[error("the data catalogue can not be asked")]
    Catalogue(#[from] ClientError),
    /// The task that writes ended.
    #[error("the controller's writer ended while it was needed")]
    WriterEnded,
}

/// Events that wait for the next decision at most; beyond that the watches wait.
const BACKLOG: usize = 4096;
/// Between two tries to publish the settings.
const PUBLISH_AGAIN: std::time::Duration = std::time::Duration::from_secs(10);
/// How long the start waits for what was used lately.
const READ_AT_START: std::time::Duration = std::time::Duration::from_secs(10);
/// Between the first two tries to read what was kept. Each time it is twice as long, up to the other.
const READ_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);
const READ_AGAIN_AT_MOST: std::time::Duration = std::time::Duration::from_secs(60);
/// Events taken in before a decision at most.
const EVENTS_PER_PASS: usize = 2048;

/// Runs until `shutdown`.
///
/// # Errors
/// If it can not go on.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    let metrics = Metrics::register_in(&config.registry);
    let stop = shutdown.child_token();
    let _stop_watches = stop.clone().drop_guard();
    let (inputs, mut events) = mpsc::channel(BACKLOG);
    let (clusters, mut seen_clusters) = mpsc::channel(64);
    let (member_events, mut member_inputs) = mpsc::channel(BACKLOG);
    let mut members = Members::new(
        client.clone(),
        "controller",
        config.counts.clone(),
        config.clock.clone(),
        member_events,
        stop.clone(),
    )
    .with_load();
    declare_kinds(&client, &shutdown).await;
    let declared_kinds = watch_host(&client, &inputs, clusters, &stop);
    let flags = Settings::from_config(&config);
    let mut controller = Controller::default();
    controller.require_declared_kinds(declared_kinds);
    let begun = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        begun = begin_with_settings(&client, &config.namespace, &flags, &mut controller) => begun,
    };
    let mut settings = begun.settings;
    let (published, to_publish) = watch::channel(settings.clone());
    tokio::spawn(publish_settings(client.clone(), to_publish, config.namespace.clone(), stop.clone()));
    let (choices, mut chosen) = mpsc::channel(1);
    let follow = follow_chosen_settings(client.clone(), config.namespace.clone(), begun.seen, choices, stop.clone());
    tokio::spawn(follow);
    let read = |client: Client| (client, config.namespace.clone(), inputs.clone(), stop.clone());
    tokio::spawn(read_until_answered(read(client.clone()), read_usage));
    tokio::spawn(read_until_answered(read(client.clone()), read_job_history));
    tokio::spawn(read_until_answered(read(client.clone()), read_actions));
    if settings.order == OrderPolicy::FairHistory {
        let maps = Api::namespaced(client.clone(), &config.namespace);
        let history = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            history = tokio::time::timeout(READ_AT_START, read_again(&maps, read_fair_history)) => history,
        };
        history.into_iter().for_each(|history| controller.observe(history, config.clock.now()));
    }
    tokio::spawn(read_fair_history_once_it_counts(published.subscribe(), read(client.clone())));
    let catalogue = config.catalogue.clone().map(|it| CatalogueClient::new(it, inputs.clone())).transpose()?;
    let mut works =
        WorkWatches { client: client.clone(), inputs: inputs.clone(), stop: stop.clone(), watched: BTreeMap::new() };
    let (writer, mut outcomes) = Writer::start_writer(client.clone(), stop.clone());
    writer.register_gauges(&config.registry, [&PENDING_WRITES, &WRITES_IN_FLIGHT, &MOST_WRITES_IN_FLIGHT]);
    if let Some(event) = begun.event {
        writer.queue_write(event.tag(), event.to_write(config.clock.now()));
    }
    controller.data_catalogue.is_there = catalogue.is_some();
    controller.jobs.epoch = config.epoch.as_deref().map(Into::into);
    controller.member_loss = MemberLoss::new(config.member_lost_after);
    let mut saves = SaveTimes::new(config.save_usage_every, config.clock.now());
    let mut measures = Measures::default();
    let mut questions = config.states.register("controller");
    let mut next: Option<Timestamp> = None;
    let mut reported_missing = false;
    loop {
        let pause = next.map(|at| compute_pause(at, config.clock.now()));
        let first = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(question) = questions.recv() => {
                question.answer(describe_state(&controller, writer.describe_queue(), next));
                continue;
            }
            done = outcomes.recv() => match done {
                Some(done) => Some(LoopEvent::Written(done)),
                None => return Err(Error::WriterEnded),
            },
            Some(input) = events.recv() => Some(LoopEvent::Observed(input)),
            Some(event) = seen_clusters.recv() => Some(LoopEvent::Observed(update_member_watches(event, &mut members))),
            Some(event) = member_inputs.recv() => Some(LoopEvent::Observed(Input::Member(event.cluster, event.update))),
            Some(map) = chosen.recv() => {
                let before = settings.clone();
                controller.actions.observe_settings(&map, &config.namespace, config.clock.now());
                if let Some(event) = change_settings(&mut controller, &flags, &mut settings, &map) {
                    writer.queue_write(event.tag(), event.to_write(config.clock.now()));
                }
                if settings != before {
                    published.send_replace(settings.clone());
                    saves.hasten(config.clock.now());
                }
                None
            }
            () = sleep_for(pause) => None,
        };
        let began = Instant::now();
        let now = config.clock.now();
        let _pass = tracing::debug_span!("pass").entered();
        let mut happened = first;
        for taken in 0.. {
            match happened {
                Some(LoopEvent::Written(done)) => controller.apply_write_answer(done, now),
                Some(LoopEvent::Observed(input)) => {
                    measures.observe_input(&input, now);
                    controller.observe(input, now);
                }
                None => {}
            }
            if taken == EVENTS_PER_PASS {
                break;
            }
            happened = if let Ok(done) = outcomes.try_recv() {
                Some(LoopEvent::Written(done))
            } else if let Ok(input) = events.try_recv() {
                Some(LoopEvent::Observed(input))
            } else if let Ok(event) = seen_clusters.try_recv() {
                Some(LoopEvent::Observed(update_member_watches(event, &mut members)))
            } else if let Ok(event) = member_inputs.try_recv() {
                Some(LoopEvent::Observed(Input::Member(event.cluster, event.update)))
            } else {
                break;
            };
        }
        let overdue = controller.give_up_overdue_lists(now);
        if controller.is_complete() && !config.ready.is_ready() {
            tracing::info!("all kinds are listed; deciding from now on");
            config.ready.set_ready(true);
        } else if !controller.is_complete() && !reported_missing {
            reported_missing = true;
            tracing::info!(kinds = ?controller.list_unlisted_kinds(), "waiting for the first lists");
        }
        works.update_watches(&mut controller, now);
        let decisions = decide(&mut controller, now);
        let freed = controller.take_quota_freed();
        if let Some(catalogue) = &catalogue
            && let Some(data) = controller.take_question(now)
        {
            catalogue.ask(data);
        }
        measures.observe_decisions(&controller, &decisions.writes, &metrics, now);
        for decision in decisions.writes {
            open_decision_span(&controller, &decision).in_scope(|| {
                log_decision(&controller, &decision);
                writer.queue_write(decision.tag(), decision.to_write(now));
            });
        }
        metrics.forged.inc_by(decisions.forged as u64);
        let took = began.elapsed().as_secs_f64();
        metrics.decision.observe(took);
        if decisions.releases > 0 {
            metrics.released.inc_by(decisions.releases as u64);
            if freed {
                metrics.freed_to_release.observe(took);
            }
        }
        if controller.is_complete()
            && let Some(save) = saves.take_due(controller.actions.has_unsaved(), now)
        {
            for write in take_saves(&mut controller, (save, &config.namespace, now)) {
                writer.queue_write(Tag::Unrepeated, write);
            }
        }
        // Before all is listed nothing is saved, and nothing waits for that.
        next =
            decisions.next.into_iter().chain(overdue).chain(controller.is_complete().then(|| saves.find_next())).min();
        let look = if controller.is_complete() {
            measures.update_metrics_if_due(&mut controller, &metrics, now)
        } else {
            None
        };
        next = next.into_iter().chain(look).min();
    }
    if controller.is_complete() {
        let last = (Save::All, &*config.namespace, config.clock.now());
        save_last(&client, take_saves(&mut controller, last)).await;
    }
    wait_for_outcomes(outcomes).await;
    Ok(())
}

fn compute_pause(at: Timestamp, now: Timestamp) -> std::time::Duration {
    let left: SignedDuration = at.duration_since(now);
    std::time::Duration::try_from(left).unwrap_or_default()
}

async fn sleep_for(pause: Option<std::time::Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// What the loop waits for.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum LoopEvent {
    Written(WriteOutcome<Tag>),
    Observed(Input),
}

/// Watches of Works, each of one cluster where it matters what Works there are.
struct WorkWatches {
    client: Client,
    inputs: mpsc::Sender<Input>,
    stop: CancellationToken,
    watched: BTreeMap<ClusterName, DropGuard>,
}

impl WorkWatches {
    /// Begins and ends them.
    fn update_watches(&mut self, controller: &mut Controller, now: Timestamp) {
        let wanted = controller.list_clusters_to_watch_works();
        let ended: Vec<ClusterName> = self.watched.keys().filter(|name| !wanted.contains(*name)).cloned().collect();
        for cluster in ended {
            self.watched.remove(&cluster);
            controller.observe(Input::WorksUnwatched(cluster), now);
        }
        for cluster in wanted {
            if self.watched.contains_key(&cluster) {
                continue;
            }
            let (stop, named) = (self.stop.child_token(), cluster.clone());
            let follower = Follower::new(self.client.clone(), self.inputs.clone(), stop.clone());
            let namespace = format!("{EXECUTION_NAMESPACE_PREFIX}{cluster}");
            follower.follow_namespace(
                &namespace,
                |work: Work| WorkFacts::read(&work),
                move |event| Input::Works(named.clone(), event),
            );
            self.watched.insert(cluster, stop.drop_guard());
        }
    }
}

/// A change of the clusters starts and stops the watching of members.
fn update_member_watches(event: Event<Cluster>, members: &mut Members) -> Input {
    members.apply_cluster_event(&event);
    let read = event.filter_map(|cluster| Some(ClusterFacts::read(&cluster)));
    Input::Clusters(read.unwrap_or(Event::Reset(Vec::new())))
}

/// Follows every kind on the host that the index needs, reading each object into what is kept of it. Returns which of
/// those that are declared are followed from the beginning.
fn watch_host(
    client: &Client,
    inputs: &mpsc::Sender<Input>,
    clusters: mpsc::Sender<Event<Cluster>>,
    stop: &CancellationToken,
) -> Vec<WorkloadKind> {
    let all = watcher::Config::default;
    let ours = watcher::Config::default().labels(WORKLOAD_KIND);
    let follower = Follower::new(client.clone(), inputs.clone(), stop.clone());
    follower.follow_typed(all(), |queue: Queue| Some(QueueFacts::read(&queue)), Input::Queues);
    follower.follow_typed(all(), |binding: ResourceBinding| Some(Binding::read(&binding)), Input::Bindings);
    follower.follow_typed(ours, |group: PodGroup| Some(PodGroupFacts::read(&group)), Input::PodGroups);
    follower.follow_typed(all(), |class: PriorityClass| Some(ClassFacts::read(&class)), Input::Classes);
    follower.follow_typed(all(), |namespace: Namespace| Some(read_namespace(&namespace)), Input::Namespaces);
    // Not every host has these kinds; where it has, a job's claim is known before the job is released.
    let optional = || WatchOptions::from(all()).allow_absent_kind(true);
    follower.follow_typed(optional(), |it: DataSource| Some(DataSourceFacts::read(&it)), Input::DataSources);
    follower.follow_typed(optional(), |it: DataSourceClaim| Some(DataClaimFacts::read(&it)), Input::DataClaims);
    follower.follow_json(hyper_job_resource(), optional(), HyperJobFacts::read, Input::HyperJobs);
    follower.follow_typed::<CapacityReservation, _, _>(optional(), Some, Input::CapacityReservations);
    // Not every host has these kinds: nothing waits for them.
    follower.follow_typed::<FederationTopology, _, _>(all(), Some, Input::Links);
    follower.follow_typed(all(), |command: Command| CommandFacts::read(&command), Input::Commands);
    for kind in [WorkloadKind::VolcanoJob, WorkloadKind::BatchJob] {
        let options = WatchOptions::from(all()).allow_absent_kind(true);
        let input = move |event| Input::CronJobs(kind, event);
        follower.follow_json(cron_job_resource(kind), options, CronJobFacts::read, input);
    }
    let of_hyper_jobs = watcher::Config::default().labels(HYPER_JOB_NAME);
    follower.follow_json(policy_resource(), of_hyper_jobs, |policy| PolicyFacts::read(&policy), Input::Policies);
    let follow = |follower: &Follower<Input>, kind: WorkloadKind, options: WatchOptions| {
        let read = |object: serde_json::Value| Workload::read(&object);
        follower.follow_json(kind.api_resource(), options, read, move |event| Input::Workloads(kind, event));
    };
    for kind in WorkloadKind::ALL {
        follow(&follower, kind, WatchOptions::from(all()).allow_absent_kind(kind.is_optional()));
    }
    Follower::new(client.clone(), clusters, stop.clone()).follow_typed::<Cluster, _, _>(all(), Some, Some);
    follower.follow_declared_kinds(follow)
}

/// Reads what earlier controllers kept, again and again until the server answers: none is written over it before.
async fn read_until_answered<F: Future<Output = Result<Input, String>>>(
    (client, namespace, inputs, stop): (Client, String, mpsc::Sender<Input>, CancellationToken),
    read: impl Fn(Api<ConfigMap>) -> F,
) {
    let maps = Api::namespaced(client, &namespace);
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        input = read_again(&maps, read) => inputs.send(input).await.unwrap_or_default(),
    }
}

async fn read_again<F: Future<Output = Result<Input, String>>>(
    maps: &Api<ConfigMap>,
    read: impl Fn(Api<ConfigMap>) -> F,
) -> Input {
    let mut pause = READ_AGAIN;
    loop {
        match read(maps.clone()).await {
            Ok(input) => return input,
            Err(why) => tracing::warn!(why, "what was kept before is not read: nothing is written over it"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(READ_AGAIN_AT_MOST);
    }
}

/// Where it did not count at the start it may be that an admin chooses so later.
async fn read_fair_history_once_it_counts(
    mut settings: watch::Receiver<Settings>,
    read: (Client, String, mpsc::Sender<Input>, CancellationToken),
) {
    if settings.wait_for(|settings| settings.order == OrderPolicy::FairHistory).await.is_ok() {
        read_until_answered(read, read_fair_history).await;
    }
}

async fn read_usage(maps: Api<ConfigMap>) -> Result<Input, String> {
    let map = maps.get_opt(usage::NAME).await.map_err(|error| error.to_string())?;
    let read = map.map_or(Ok(UsageHistory::default()), |map| UsageHistory::read_config_map(&json!(map)));
    read.map(Input::UsageHistory)
}

async fn read_job_history(maps: Api<ConfigMap>) -> Result<Input, String> {
    read_pages(&maps, history::ENDED_JOBS).await.map(Input::JobHistory)
}

async fn read_actions(maps: Api<ConfigMap>) -> Result<Input, String> {
    let [admins, jobs] = [history::ADMIN_ACTIONS, history::JOB_ACTIONS];
    Ok(Input::Actions([read_pages(&maps, admins).await?, read_pages(&maps, jobs).await?]))
}

async fn read_fair_history(maps: Api<ConfigMap>) -> Result<Input, String> {
    let get = async |name: &str| maps.get_opt(name).await.map(|map| json!(map)).map_err(|error| error.to_string());
    let (queues, tenants) = (get(fair_history::QUEUES).await?, get(fair_history::TENANTS).await?);
    // What does not parse now will not later.
    let of = |name: &str, read: Result<FairHistory, String>| {
        read.unwrap_or_else(|wrong| {
            tracing::warn!(name, wrong, "what was used before is not known: all begin with nothing");
            FairHistory::default()
        })
    };
    let queues = of(fair_history::QUEUES, fair_history::read_queue_history(&queues));
    let tenants = of(fair_history::TENANTS, fair_history::read_tenant_history(&tenants));
    Ok(Input::FairHistory(vec![queues, tenants]))
}

async fn read_pages<L: HistoryLine>(maps: &Api<ConfigMap>, pages: Pages) -> Result<History<L>, String> {
    let mut read = History::new(pages);
    for (page, name) in pages.list_names().enumerate() {
        if let Some(map) = maps.get_opt(&name).await.map_err(|error| error.to_string())? {
            read.read_page(page, &json!(map)).map_err(|wrong| format!("ConfigMap {name}: {wrong}"))?;
        }
    }
    Ok(read)
}

/// Writes them, again and again until the server takes them, or refuses them; and each time they change.
async fn publish_settings(
    client: Client,
    mut settings: watch::Receiver<Settings>,
    namespace: String,
    stop: CancellationToken,
) {
    loop {
        let write = settings.borrow_and_update().to_write(&namespace);
        let pause = match write::execute_write(&client, &write).await {
            Ok(_) => None,
            Err(failure @ Failure::Refused { .. } | failure @ Failure::Gone(_)) => {
                tracing::warn!(namespace, %failure, "settings not published: `caldera why` takes the defaults");
                None
            }
            Err(failure) => {
                tracing::debug!(namespace, %failure, "settings not published yet");
                Some(PUBLISH_AGAIN)
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            changed = settings.changed() => if changed.is_err() { return },
            () = sleep_for(pause) => {}
        }
    }
}
