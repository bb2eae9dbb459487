//! One shard: Caldera's engine over the nodes that it holds.

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{
    gang::QueueName,
    queue::{
        Ask, Counted, Engine, Fit, FitClass, FleetResources, Job, JobId, TaskAsk,
        shard::{
            give_back::{HeldNode, choose_nodes_to_give_back},
            lease::LeaseChange,
        },
    },
    resources::Resources,
    time::EpochSeconds,
};

use super::{
    LEASE, RENEWAL, ShardedWorld,
    fleet::{NodePlace, ShardedState, SharedFleet, cpus},
};

/// What a shard did in a second.
#[derive(Debug, Default)]
pub(super) struct ShardActs {
    pub(super) started: Vec<usize>,
    pub(super) evicted: usize,
    /// Cpus times seconds.
    pub(super) lost: u64,
}

/// See the module.
pub(super) struct ShardEngine<'w> {
    world: &'w ShardedWorld,
    shard: usize,
    name: QueueName,
    /// The jobs of its queues.
    jobs: Vec<usize>,
    /// `None` while it is lost.
    engine: Option<Engine>,
    /// Cpus of the nodes that it holds, as the engine knows them.
    slice: u64,
    renews_at: i64,
}

impl<'w> ShardEngine<'w> {
    pub(super) fn new(world: &'w ShardedWorld, shard: usize) -> Self {
        let is_own = |job: &usize| world.find_shard(&world.jobs[*job].queue) == Some(shard);
        let jobs = (0..world.jobs.len()).filter(is_own).collect();
        let name = world.shards[shard][0].name.clone();
        Self { world, shard, name, jobs, engine: None, slice: 0, renews_at: 0 }
    }

    /// It knows nothing when it comes back.
    pub(super) fn lose_state(&mut self) {
        self.engine = None;
    }

    /// Follows what happened, renews what it holds, gives back what it is asked for, and starts what it can.
    pub(super) fn act(&mut self, fleet: &mut SharedFleet<'_>, now: i64, ended: &[usize]) -> ShardActs {
        let mut acts = ShardActs::default();
        let mut engine = self.engine.take().unwrap_or_else(|| self.rebuild(fleet, now));
        engine.set_now(EpochSeconds::new(now));
        ended.iter().for_each(|job| engine.remove_job(name_job(*job).as_str()));
        for job in self.jobs.iter().filter(|job| self.world.jobs[**job].arrival == now) {
            engine.enqueue_job(self.describe_job(*job));
        }
        if now >= self.renews_at {
            self.renew(fleet, now);
        }
        let leaving = self.give_back(fleet, &mut engine, now, &mut acts);
        let usable = self.list_usable(fleet, now, &leaving);
        let slice = usable.len() as u64 * u64::from(self.world.node_cpus);
        if slice != std::mem::replace(&mut self.slice, slice) || !ended.is_empty() {
            self.set_fleet(&mut engine, fleet, slice);
        }
        self.start_jobs(fleet, &mut engine, now, &usable, &mut acts);
        self.engine = Some(engine);
        acts
    }

    /// From what there is, as after a restart.
    fn rebuild(&mut self, fleet: &SharedFleet<'_>, now: i64) -> Engine {
        let mut engine = Engine::default();
        self.world.shards[self.shard].iter().for_each(|queue| engine.set_queue(queue.clone()));
        engine.set_now(EpochSeconds::new(now));
        for job in self.jobs.iter().copied() {
            let of = &self.world.jobs[job];
            match &fleet.jobs[job] {
                ShardedState::Waiting if of.arrival < now => drop(engine.enqueue_job(self.describe_job(job))),
                ShardedState::Running { until, .. } => {
                    engine.charge_job(&name_job(job), &of.queue, &cpus(u64::from(of.pods * of.cpus)));
                    engine.set_expected_end(name_job(job).as_str(), Some(EpochSeconds::new(*until)));
                }
                ShardedState::Waiting | ShardedState::Ended => {}
            }
        }
        (self.slice, self.renews_at) = (u64::MAX, now);
        engine
    }

    fn describe_job(&self, job: usize) -> Job {
        let of = &self.world.jobs[job];
        let request = cpus(u64::from(of.cpus));
        let task = TaskAsk { name: "worker".into(), request, min: of.pods, most: of.pods, step: 1 };
        Job {
            id: name_job(job),
            queue: of.queue.clone(),
            priority: 0,
            created: of.arrival.into(),
            deadline: None,
            ask: Arc::new(Ask {
                tasks: vec![task],
                copies: 1,
                fit: FitClass(u64::from(of.pods) << 32 | u64::from(of.cpus)),
                run_for: Some(of.run),
                counted: Counted::Job,
                card: None,
            }),
        }
    }

    /// Renews its leases, and says what its jobs ask for.
    fn renew(&mut self, fleet: &mut SharedFleet<'_>, now: i64) {
        let until = EpochSeconds::new(now + LEASE);
        for leases in &mut fleet.leases {
            let renewal = [LeaseChange::Renew(self.name.clone(), until)];
            // It reads and writes at once: nobody is in between.
            let renewed = leases.apply(leases.version(), EpochSeconds::new(now), &renewal);
            debug_assert!(renewed.is_ok(), "{renewed:?}");
        }
        let is_there = |job: &&usize| fleet.jobs[**job] != ShardedState::Ended && self.world.jobs[**job].arrival <= now;
        let asked = self.jobs.iter().filter(is_there).map(|job| &self.world.jobs[*job]);
        let demand = cpus(asked.map(|job| u64::from(job.pods * job.cpus)).sum());
        fleet.demands[self.shard] = (demand, now);
        self.renews_at = now + RENEWAL;
    }

    /// Gives back what it is asked for, and evicts whom it may there; the nodes on which others are to end first.
    fn give_back(
        &self,
        fleet: &mut SharedFleet<'_>,
        engine: &mut Engine,
        now: i64,
        acts: &mut ShardActs,
    ) -> Vec<NodePlace> {
        let mut leaving = Vec::new();
        for cluster in 0..fleet.leases.len() {
            let Some(asked) = fleet.leases[cluster].asked_back(&self.name).cloned() else { continue };
            let held: Vec<NodePlace> = self.list_held(fleet, now).filter(|place| place.0 == cluster).collect();
            let weighed: Vec<HeldNode> = held.iter().map(|place| self.weigh_node(fleet, *place, now)).collect();
            let chosen = choose_nodes_to_give_back(&asked, &weighed);
            for place in held {
                let Some(node) = chosen.iter().find(|node| node.name == *fleet.name_of(place)) else { continue };
                if node.loss.is_none() {
                    leaving.push(place);
                    continue;
                }
                let victims: Vec<usize> = fleet.list_jobs_on(place).collect();
                for job in victims {
                    acts.lost += self.work_done(fleet, job, now);
                    fleet.stop_job(job, ShardedState::Waiting);
                    engine.remove_job(name_job(job).as_str());
                    engine.enqueue_job(self.describe_job(job));
                    acts.evicted += 1;
                }
                let amount = cpus(u64::from(self.world.node_cpus));
                let given = [LeaseChange::GiveBack(self.name.clone(), fleet.name_of(place).clone(), amount)];
                let leases = &mut fleet.leases[cluster];
                let done = leases.apply(leases.version(), EpochSeconds::new(now), &given);
                debug_assert!(done.is_ok(), "{done:?}");
            }
        }
        leaving
    }

    fn weigh_node(&self, fleet: &SharedFleet<'_>, place: NodePlace, now: i64) -> HeldNode {
        let loss_of = |job: usize| self.world.jobs[job].preemptable.then(|| self.work_done(fleet, job, now) + 1);
        let loss = fleet.list_jobs_on(place).map(loss_of).sum();
        HeldNode { name: fleet.name_of(place).clone(), allocatable: cpus(u64::from(self.world.node_cpus)), loss }
    }

    /// Cpus times seconds that a job has run.
    fn work_done(&self, fleet: &SharedFleet<'_>, job: usize, now: i64) -> u64 {
        let ShardedState::Running { since, .. } = fleet.jobs[job] else { return 0 };
        u64::try_from(now - since).unwrap_or(0) * u64::from(self.world.jobs[job].pods * self.world.jobs[job].cpus)
    }

    fn list_held(&self, fleet: &SharedFleet<'_>, now: i64) -> impl Iterator<Item = NodePlace> {
        let now = EpochSeconds::new(now);
        let holds =
            |place: &NodePlace| fleet.leases[place.0].find_holder(fleet.name_of(*place), now) == Some(&self.name);
        fleet.list_nodes().filter(holds).collect::<Vec<_>>().into_iter()
    }

    /// The nodes on which it may start pods now.
    fn list_usable(&self, fleet: &SharedFleet<'_>, now: i64, leaving: &[NodePlace]) -> Vec<NodePlace> {
        let may_start = |place: &NodePlace| {
            fleet.leases[place.0].may_start(&self.name, fleet.name_of(*place), EpochSeconds::new(now))
        };
        fleet.list_nodes().filter(|place| !leaving.contains(place)).filter(may_start).collect()
    }

    /// Its slice is all that is ready for it; what it could have is the fleet.
    fn set_fleet(&self, engine: &mut Engine, fleet: &SharedFleet<'_>, slice: u64) {
        let nodes: usize = self.world.clusters.iter().sum();
        let whole = cpus(nodes as u64 * u64::from(self.world.node_cpus));
        // What runs on nodes that it holds no more is its own all the same.
        let used: u64 = fleet.sum_used(&self.jobs);
        let ready: Resources = cpus(slice.max(used));
        engine.set_fleet(FleetResources { ready, whole: Some(whole), ready_clusters: fleet.leases.len() });
        engine.requeue_after_capacity_change();
    }

    fn start_jobs(
        &self,
        fleet: &mut SharedFleet<'_>,
        engine: &mut Engine,
        now: i64,
        usable: &[NodePlace],
        acts: &mut ShardActs,
    ) {
        loop {
            let mut found = BTreeMap::new();
            let release = engine.release_next_by_fit(|id, _| match self.find_place(fleet, index_job(id), usable) {
                Some(pods) => {
                    found = pods;
                    Fit::Yes
                }
                None => Fit::No { never: false, detail: "the slice has too little free".to_owned() },
            });
            let Some(release) = release else { return };
            let job = index_job(&release.id);
            fleet.start_job(job, now, found);
            let end = now + self.world.jobs[job].run;
            engine.set_expected_end(release.id.as_str(), Some(EpochSeconds::new(end)));
            acts.started.push(job);
        }
    }

    /// Nodes with enough free for all pods: first those that are in use, so that others stay whole.
    fn find_place(
        &self,
        fleet: &SharedFleet<'_>,
        job: usize,
        usable: &[NodePlace],
    ) -> Option<BTreeMap<NodePlace, u32>> {
        let of = &self.world.jobs[job];
        let (mut left, mut pods) = (of.pods, BTreeMap::new());
        let (in_use, empty): (Vec<NodePlace>, Vec<NodePlace>) =
            usable.iter().partition(|place| fleet.is_in_use(**place));
        for place in in_use.into_iter().chain(empty) {
            let fits = (fleet.free[place.0][place.1] / of.cpus).min(left);
            if fits > 0 {
                pods.insert(place, fits);
                left -= fits;
            }
        }
        (left == 0).then_some(pods)
    }
}

fn name_job(job: usize) -> JobId {
    format!("{job:08}").into()
}

fn index_job(id: &JobId) -> usize {
    id.as_str().parse().unwrap_or(usize::MAX)
}
