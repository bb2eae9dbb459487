//! Caldera's own engine, driven as the controller drives it: released in order, each into the capacity that the ones
//! before it left, on the first of its card models that has quota and capacity, then placed as the scheduler places
//! what was granted. Jobs that wait long get a reservation, and jobs of queues that borrow are evicted for those of
//! queues that have less than they deserve.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher as _},
    sync::Arc,
};

use caldera_core::{
    admission::Admission,
    card_model::label_of_model,
    gang::{ClusterName, QueueName, Task, TaskName},
    queue::{
        self, Ask, CardChoice, ClusterCapacity, Counted, Engine, Fit, FitClass, JobId, OrderPolicy, QueueSpec,
        ReservedClusters, TenantOrder, preemption::RunningJob,
    },
    reason::Reason,
    resources::{ResourceName, Resources},
    tenant::Tenant,
};

use super::{Policy, preemption::Preemption};
use crate::{
    members::Part,
    site::{Growth, JobState, Site},
    time::Millis,
    world::{Hold, Shape, World},
};

/// What a job was granted: pods of each task, and the card model that it is held to, where it had a choice.
#[derive(Debug)]
struct Granted {
    tasks: BTreeMap<TaskName, u32>,
    card: Option<ResourceName>,
}

/// What jobs have in common that ask for the same.
type AskKey = (FitClass, u32, (Option<i64>, Option<i64>), Counted, (Option<QueueName>, u64));

/// See the module.
#[derive(Debug)]
pub struct Caldera {
    engine: Engine,
    asks: HashMap<AskKey, Arc<Ask>>,
    /// Some queue limits the running jobs of each namespace, or of each user, or they take turns.
    counts: [bool; 2],
    /// Admitted, but what was granted found no place: the scheduler tries again when there is more capacity.
    unplaced: Vec<(usize, Granted)>,
    /// Places are kept.
    keeps: bool,
    /// The engine knows the fleet, which never changes but for what jobs hold where nothing new starts.
    reported: bool,
    /// Who is evicted for whom; `None` if nobody is.
    preemption: Option<Preemption>,
}

impl Caldera {
    /// As the world's rules say: by default as the controller is.
    #[must_use]
    pub fn new(world: &World) -> Self {
        let rules = &world.rules;
        let mut own = Self::with(world.queues.iter().cloned(), rules.order, rules.reservation_after);
        own.engine.set_history_half_life(rules.history_half_life);
        own.engine.set_now(world.start.as_epoch());
        rules.histories.iter().for_each(|history| own.engine.add_fair_history(history));
        own.engine.set_capacity_reservations(rules.reservations.clone());
        if rules.ignores_tenant_history {
            own.engine.ignore_tenant_history();
        }
        own.with_preemption(world)
    }

    /// With another order, and patience with blocked jobs in seconds; `None`: no place is ever kept. Nobody is evicted.
    #[must_use]
    pub fn with(queues: impl Iterator<Item = QueueSpec>, order: OrderPolicy, patience: Option<i64>) -> Self {
        let mut engine = Engine::default();
        let mut counts = [false; 2];
        for queue in queues {
            let by_user = queue.tenant_order == Some(TenantOrder::Users);
            // A job of which no user is known is its namespace's where users take turns.
            counts[0] |= queue.running.of_namespace.is_some() || queue.tenant_order.is_some();
            counts[1] |= queue.running.of_user.is_some() || by_user;
            engine.set_queue(queue);
        }
        engine.set_order_policy(order);
        engine.set_reservation_after(patience);
        Self {
            engine,
            asks: HashMap::new(),
            counts,
            unplaced: Vec::new(),
            keeps: patience.is_some(),
            reported: false,
            preemption: None,
        }
    }

    /// With preemption.
    #[must_use]
    pub fn with_preemption(self, world: &World) -> Self {
        let last = world.jobs.last().map_or(world.start, |job| job.arrival);
        let span = last.since(world.start).as_epoch().as_seconds();
        Self { preemption: Some(Preemption::new(&world.rules.preemption, world.start.as_epoch(), span)), ..self }
    }

    /// Whether a job in line waits for more than there could ever be.
    pub(super) fn can_never_start(&self, job: usize) -> bool {
        let never =
            |reason| matches!(reason, Reason::ExceedsLimit { .. } | Reason::NeverFits { .. } | Reason::Queue { .. });
        self.engine.explain_pending(id(job).as_str()).is_some_and(never)
    }

    fn ask(&mut self, site: &mut Site<'_>, job: usize) -> Arc<Ask> {
        let (copies, of) = (site.copies(job), site.job(job));
        let counted = self.count_as(site, job);
        // Its queues say which of its card models it may use.
        let queue = (!of.shape.on_cards.is_empty()).then(|| of.queue.clone());
        // Where nodes may come, one whose run is ended before that is not like one that waits for them.
        let limit = site.run_limit(job).filter(|_| site.has_windows() || site.may_grow());
        let avoided = site.avoided_by(job).map_or(0, hash);
        let key = (of.shape.class, copies, (of.run_for(), limit), counted.clone(), (queue, avoided));
        if let Some(known) = self.asks.get(&key) {
            return Arc::clone(known);
        }
        let has_windows = site.has_windows();
        let ask_on = |shape: &Shape| {
            let ask = Ask { counted: counted.clone(), ..of.ask_on(shape, copies) };
            // Who avoids clusters is not like one that does not.
            let ask = if avoided == 0 { ask } else { Ask { fit: FitClass(hash(&(ask.fit, avoided))), ..ask } };
            // Before a maintenance window how long it runs decides too.
            let fit = match (has_windows, limit) {
                (true, _) => FitClass(hash(&(ask.fit, ask.run_for, limit))),
                (false, Some(_)) => FitClass(hash(&(ask.fit, limit))),
                (false, None) => ask.fit,
            };
            Ask { fit, ..ask }
        };
        let mut ask = None;
        for (card, shape) in of.shape.on_cards.iter().filter(|(card, _)| self.takes_card(&of.queue, card)).rev() {
            let card = Some(CardChoice { card: card.clone(), otherwise: ask });
            ask = Some(Arc::new(Ask { card, ..ask_on(shape) }));
        }
        let ask = ask.unwrap_or_else(|| Arc::new(ask_on(&of.shape)));
        self.asks.insert(key, Arc::clone(&ask));
        ask
    }

    /// Whether no queue on the path has a quota of other card models of its resource alone
    /// (`caldera_core::card_choice`, rule 4).
    fn takes_card(&self, queue: &QueueName, card: &ResourceName) -> bool {
        let of = card.as_card().map(|(resource, _)| resource);
        let (mut next, mut seen) = (self.engine.queue_spec(queue), BTreeSet::new());
        while let Some(spec) = next.filter(|spec| seen.insert(&spec.name)) {
            let has_quota =
                spec.capability.iter().any(|(name, _)| name.as_card().is_some_and(|(it, _)| Some(it) == of));
            if has_quota && spec.capability.get(card.as_str()).is_none() {
                return false;
            }
            next = spec.parent.as_ref().and_then(|parent| self.engine.queue_spec(parent));
        }
        true
    }

    /// As what a job counts under the limits of running jobs. Jobs of a trace that says neither have no namespaces and
    /// no users.
    fn count_as(&self, site: &Site<'_>, job: usize) -> Counted {
        let [of_namespace, of_user] = self.counts;
        let terms = site.world().terms.get(&site.job(job).name);
        let namespace = terms.filter(|_| of_namespace).map(|terms| Tenant::Namespace(Arc::clone(&terms.namespace)));
        let user = terms.filter(|_| of_user).and_then(|terms| terms.submitter.clone());
        let tenants: Box<[Tenant]> = namespace.into_iter().chain(user.map(Tenant::User)).collect();
        if tenants.is_empty() { Counted::Job } else { Counted::JobOf(tenants) }
    }

    fn charge_job(&mut self, site: &Site<'_>, job: usize, charge: &Resources) {
        let counted = self.count_as(site, job);
        self.engine.charge_job_with_ancestors(&id(job), &site.job(job).queue, &[], charge, &counted);
    }

    /// What is charged from now on is what is placed.
    fn place_job(&mut self, site: &mut Site<'_>, job: usize, parts: Vec<Part>) {
        let mut charge = Resources::new();
        parts.iter().for_each(|part| charge.add(&part.charge()));
        self.charge_job(site, job, &charge);
        let end = site.job(job).run_for().map(|run_for| site.now().as_epoch().saturating_add(run_for));
        self.engine.set_expected_end(id(job).as_str(), end);
        site.send_job(job, parts);
    }

    /// Lets the victims of an attempt that is over be pending again.
    fn close_attempt(&mut self, site: &mut Site<'_>) {
        let Some(preemption) = &mut self.preemption else { return };
        let back = preemption.close_attempt(&self.engine, site.now().as_epoch());
        self.engine.set_preemptor(preemption.preemptor().filter(|_| self.keeps));
        for job in back {
            self.enqueue_job(site, job);
        }
    }

    /// Evicts running jobs for a pending one; true if any were.
    fn preempt_running(&mut self, site: &mut Site<'_>) -> bool {
        let Some(preemption) = &mut self.preemption else { return false };
        let victims = preemption.attempt(site, &self.engine, site.now().as_epoch());
        self.engine.set_preemptor(preemption.preemptor().filter(|_| self.keeps));
        if victims.is_empty() {
            return false;
        }
        // The preemptor gets its reservation before anything comes free.
        self.release_all(site);
        for job in victims {
            site.evict(job);
            self.engine.remove_job(id(job).as_str());
        }
        true
    }

    /// Jobs that run, as whoever moves them looks at them; none where nobody is ever evicted.
    pub(crate) fn list_running_jobs(&self, site: &Site<'_>) -> Vec<RunningJob> {
        self.preemption.as_ref().map(|preemption| preemption.list_running_jobs(site, &self.engine)).unwrap_or_default()
    }

    /// Clusters that are reserved for jobs that wait.
    pub(crate) fn list_reserved_clusters(&self, site: &Site<'_>) -> BTreeSet<String> {
        let waits = |job: &usize| *site.state(*job) == JobState::Waiting;
        let waiting = (0..site.world().jobs.len()).filter(waits);
        let reserved = waiting.filter_map(|job| self.engine.reservation_of(id(job).as_str()));
        reserved.flat_map(|reservation| reservation.clusters).map(|cluster| cluster.to_string()).collect()
    }

    /// Takes a running job off its clusters and lets it wait again, with its age, for others than these.
    pub(crate) fn move_job(&mut self, site: &mut Site<'_>, running: &RunningJob, avoid: BTreeSet<ClusterName>) {
        let job = index(&running.id);
        site.evict(job);
        site.avoid_clusters(job, avoid);
        self.engine.remove_job(running.id.as_str());
        if let Some(preemption) = &mut self.preemption {
            preemption.record_eviction(running, site.now().as_epoch());
        }
        self.enqueue_job(site, job);
        self.record_change();
    }

    fn enqueue_job(&mut self, site: &mut Site<'_>, job: usize) {
        let (ask, of) = (self.ask(site, job), site.job(job));
        self.engine.enqueue_job(queue::Job {
            id: id(job),
            queue: of.queue.clone(),
            priority: of.priority,
            created: of.arrival.as_epoch().into(),
            deadline: None,
            ask,
        });
    }

    /// Releases all that may start; how many.
    fn release_all(&mut self, site: &mut Site<'_>) -> usize {
        if let Some(growth) = site.take_growth() {
            match growth {
                Growth::By(growth) => self.engine.requeue_after_growth(&growth),
                Growth::Somewhere => self.engine.requeue_after_capacity_change(),
            }
            self.place_unplaced(site);
        }
        let mut released = 0;
        loop {
            if !site.may_continue() {
                return released;
            }
            let mut clusters = Clusters { site, found: Vec::new() };
            let release = self.engine.release_next_in_clusters(&mut clusters);
            let found = clusters.found;
            let Some(release) = release else { return released };
            released += 1;
            let Admission { tasks, card, .. } = release.admission;
            let (job, granted) = (index(&release.id), Granted { tasks, card });
            let is_whole = |task: &Task| granted.tasks.get(&task.name).is_some_and(|pods| *pods >= task.replicas);
            let whole = site.job(job).shape.gang.tasks.iter().all(is_whole);
            match if whole { Ok(found) } else { site.find_granted(job, granted.card.as_ref(), &granted.tasks) } {
                Ok(parts) => self.place_job(site, job, parts),
                Err(_) => self.unplaced.push((job, granted)),
            }
        }
    }

    fn record_change(&mut self) {
        if let Some(preemption) = &mut self.preemption {
            preemption.record_change();
        }
    }

    fn place_unplaced(&mut self, site: &mut Site<'_>) {
        for (job, granted) in std::mem::take(&mut self.unplaced) {
            match site.find_granted(job, granted.card.as_ref(), &granted.tasks) {
                Ok(parts) => self.place_job(site, job, parts),
                Err(_) => self.unplaced.push((job, granted)),
            }
        }
    }
}

/// What a job that runs is charged for what it holds on a node: that, and of the card models that it names the node's.
fn charge_of_hold(site: &Site<'_>, job: usize, hold: &Hold) -> Resources {
    let named = site.job(job).shape.gang.sum_full_charge();
    let chosen = site.job(job).shape.on_cards.iter().map(|(card, _)| card);
    let cards = named.iter().map(|(name, _)| name).chain(chosen);
    let mut cards = cards.filter_map(|name| Some((name, name.as_card()?))).peekable();
    let mut charge = hold.amount.clone();
    if cards.peek().is_none() {
        return charge;
    }
    let node = site.world().clusters[hold.cluster].nodes.iter().find(|node| node.name.as_str() == &*hold.node);
    for (name, (resource, model)) in cards {
        let is_there = node.and_then(|node| node.labels.get(&label_of_model(resource))).is_some_and(|is| is == model);
        if is_there {
            charge.set(name.clone(), hold.amount.get(resource));
        }
    }
    charge
}

impl Policy for Caldera {
    fn arrived(&mut self, site: &mut Site<'_>, job: usize) {
        self.enqueue_job(site, job);
        self.record_change();
    }

    fn resumed(&mut self, site: &mut Site<'_>, job: usize) {
        let mut charge = Resources::new();
        site.job(job).running.iter().flatten().for_each(|hold| charge.add(&charge_of_hold(site, job, hold)));
        self.charge_job(site, job, &charge);
        // Of a job that runs the estimate is what is left.
        let end = site.job(job).run_for().map(|left| site.now().as_epoch().saturating_add(left));
        self.engine.set_expected_end(id(job).as_str(), end);
    }

    fn ended(&mut self, _: &mut Site<'_>, job: usize) {
        self.engine.remove_job(id(job).as_str());
        self.record_change();
    }

    fn decide(&mut self, site: &mut Site<'_>) {
        if !std::mem::replace(&mut self.reported, true) || site.members().has_changing_total() {
            self.engine.set_fleet(site.members().total());
        }
        self.engine.set_now(site.now().as_epoch());
        loop {
            self.close_attempt(site);
            if self.release_all(site) > 0 {
                self.record_change();
                continue;
            }
            if !site.may_continue() {
                return;
            }
            if !self.preempt_running(site) {
                return;
            }
        }
    }

    fn due(&self, _: Millis) -> Option<Millis> {
        let reservation = self.engine.next_due().and_then(Millis::of_epoch);
        let attempt = self.preemption.as_ref().and_then(Preemption::due);
        [reservation, attempt].into_iter().flatten().min()
    }
}

/// The clusters, as the engine asks about them.
struct Clusters<'a, 'w> {
    site: &'a mut Site<'w>,
    /// The place of the job that was last found to fit.
    found: Vec<Part>,
}

impl ClusterCapacity for Clusters<'_, '_> {
    fn fits(&mut self, id: &JobId, ask: &Ask, kept: &[&ReservedClusters]) -> Fit {
        match self.site.find(index(id), card_of(ask), kept) {
            Ok(parts) => {
                self.found = parts;
                Fit::Yes
            }
            Err(no) => no,
        }
    }

    fn explain_never_fits(&mut self, id: &JobId, ask: &Ask) -> Option<String> {
        self.site.can_never_fit(index(id), card_of(ask)).then(|| "it fits in no empty fleet".to_owned())
    }

    fn reserve_clusters(&mut self, id: &JobId, ask: &Ask, vain: &[ClusterName]) -> Option<ReservedClusters> {
        self.site.reserve_clusters(index(id), card_of(ask), vain)
    }
}

fn card_of(ask: &Ask) -> Option<&ResourceName> {
    ask.card.as_ref().map(|choice| &choice.card)
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// In the order of arrivals, so that jobs of one second keep it.
pub(crate) fn id(job: usize) -> JobId {
    format!("{job:08}").into()
}

pub(crate) fn index(id: &JobId) -> usize {
    id.as_str().parse().unwrap_or(usize::MAX)
}
