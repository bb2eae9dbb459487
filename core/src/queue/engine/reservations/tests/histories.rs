//! That nothing is lost, exceeded or starved whatever happens.

use std::cmp::Reverse;

use super::*;

#[derive(Debug, Clone)]
enum Event {
    Arrive {
        queue: usize,
        priority: i32,
        cpu: i64,
        gpu: i64,
        known: Option<i64>,
        /// So much cpu on another card model.
        other: Option<i64>,
    },
    End(usize),
    Leave(usize),
    /// One that runs says in how long it ends.
    Says(usize, Option<i64>),
    Pass(i64),
    Capacity,
    Fleet(i64),
    Priority(usize, i32),
    /// A queue says how priorities rise: by so much within so many seconds.
    Aging(&'static str, Option<(u32, i64)>),
    /// Tenants of a queue take turns, or do not.
    Turns(&'static str, Option<TenantOrder>),
    /// What was used lately counts, or does not.
    Order(OrderPolicy),
    /// A queue says when its jobs get reservations.
    Wait(&'static str, Option<ReservationWait>),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => (0..3usize, 0..2i32, 0..9i64, 0..3i64, prop::option::of(1..200i64), prop::option::weighted(0.3, 0..9i64))
            .prop_map(|(queue, priority, cpu, gpu, known, other)| {
                Event::Arrive { queue, priority, cpu, gpu, known, other }
            }),
        3 => (0..40usize).prop_map(Event::End),
        1 => (0..40usize).prop_map(Event::Leave),
        2 => (0..40usize, prop::option::of(0..200i64)).prop_map(|(n, after)| Event::Says(n, after)),
        2 => (1..90i64).prop_map(Event::Pass),
        1 => Just(Event::Capacity),
        1 => (8..20i64).prop_map(Event::Fleet),
        1 => (0..3usize, 0..2i32).prop_map(|(queue, priority)| Event::Priority(queue, priority)),
        1 => (prop::sample::select(vec!["top", "q0", "q2"]), prop::option::of(wait())).prop_map(|(q, wait)| Event::Wait(q, wait)),
        1 => (prop::sample::select(vec!["top", "q0", "q2"]), prop::option::of((0..3u32, 1..200i64)))
            .prop_map(|(queue, aging)| Event::Aging(queue, aging)),
        1 => (prop::sample::select(vec!["top", "q0", "q2"]), prop::sample::select(vec![
            None, Some(TenantOrder::None), Some(TenantOrder::Namespaces), Some(TenantOrder::Users),
        ]))
            .prop_map(|(queue, turns)| Event::Turns(queue, turns)),
        1 => prop::sample::select(vec![OrderPolicy::Share, OrderPolicy::FairHistory]).prop_map(Event::Order),
    ]
}

fn wait() -> impl Strategy<Value = ReservationWait> {
    prop_oneof![
        1 => Just(ReservationWait::Never),
        4 => (prop::option::of(1..200i64), 0..150u32)
            .prop_map(|(seconds, percent)| ReservationWait::After { seconds, percent }),
    ]
}

pub(crate) fn tree() -> Engine {
    let queues = [queue("top", None, Some(12)), queue("q0", Some("top"), Some(8)), queue("q1", Some("top"), None)];
    engine(queues.into_iter().chain([queue("q2", None, Some(9))]), 16, 4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_inadmissible_job_is_forgotten_and_no_ceiling_broken(events in prop::collection::vec(event(), 1..80)) {
        let mut engine = tree();
        let (mut now, mut waiting, mut running) = (0, Vec::new(), Vec::<String>::new());
        for (i, event) in events.into_iter().enumerate() {
            match event {
                Event::Arrive { queue, priority, cpu, gpu, known, other } => {
                    let mut arrived = job(&format!("j{i:02}"), &format!("q{queue}"), now, amounts(cpu, gpu));
                    let ask = Arc::make_mut(&mut arrived.ask);
                    (arrived.priority, ask.run_for) = (priority, known);
                    let user = Tenant::User((i % 3).to_string().into());
                    ask.counted = Counted::JobOf([Tenant::Namespace((i % 2).to_string().into()), user].into());
                    let mut second = ask.clone();
                    second.tasks[0].request = amounts(other.unwrap_or(0), 0);
                    let otherwise = other.map(|_| Arc::new(second));
                    ask.card = Some(CardChoice { card: "x.io/gpu:a".into(), otherwise });
                    waiting.push(arrived.id.to_string());
                    engine.enqueue_job(arrived);
                }
                Event::End(n) if !running.is_empty() => engine.remove_job(&running.remove(n % running.len())),
                Event::Leave(n) if !waiting.is_empty() => engine.remove_job(&waiting.remove(n % waiting.len())),
                Event::Says(n, after) if !running.is_empty() => {
                    engine.set_expected_end(&running[n % running.len()], after.map(|after| EpochSeconds::new(now + after)));
                }
                Event::Pass(seconds) => now += seconds,
                Event::Capacity => engine.requeue_after_capacity_change(),
                Event::Fleet(cpu) => {
                    let fleet = amounts(cpu, 4);
                    engine.set_fleet(FleetResources { ready: fleet.clone(), whole: Some(fleet), ready_clusters: 1 });
                }
                Event::Priority(n, priority) => {
                    let spec = engine.queue_specs().find(|spec| spec.name == format!("q{n}").into()).unwrap().clone();
                    engine.set_queue(QueueSpec { priority, ..spec });
                }
                Event::Aging(queue, aging) => {
                    let spec = engine.queue_specs().find(|spec| spec.name == queue.into()).unwrap().clone();
                    let text = aging.map(|(points, within)| format!("{points}/{within}s"));
                    let aging = text.map(|text| PriorityAging::parse(&text).unwrap_or_default());
                    engine.set_queue(QueueSpec { aging, ..spec });
                }
                Event::Turns(queue, tenant_order) => {
                    let spec = engine.queue_specs().find(|spec| spec.name == queue.into()).unwrap().clone();
                    engine.set_queue(QueueSpec { tenant_order, ..spec });
                }
                Event::Order(policy) => {
                    engine.set_history_half_life(60);
                    engine.set_order_policy(policy);
                }
                Event::Wait(queue, reservation_wait) => {
                    let spec = engine.queue_specs().find(|spec| spec.name == queue.into()).unwrap().clone();
                    engine.set_queue(QueueSpec { reservation_wait, ..spec });
                }
                Event::End(_) | Event::Leave(_) | Event::Says(..) => {}
            }
            for id in at(&mut engine, now) {
                waiting.retain(|other| *other != id);
                running.push(id);
            }
            prop_assert!(engine.within_ceilings());
            let holding = engine.jobs.list_charges().count();
            prop_assert_eq!(holding, running.len());
            let in_line: BTreeSet<String> = engine.list_pending_positions().map(|(id, _)| id.to_string()).collect();
            prop_assert_eq!(in_line, waiting.iter().cloned().collect::<BTreeSet<_>>());
        }
    }

    /// Small jobs never stop coming, in every queue, and each runs for at most 50 seconds. A big one that came first
    /// starts within its wait for a reservation and 50 seconds for each ceiling on its way up: a ceiling that is not
    /// short when it gets its reservation may become so until the one below is free.
    #[test]
    fn a_big_job_starts_within_the_stated_bound_among_endless_small_ones(
        sizes in prop::collection::vec((0..3usize, 1..4i64, 1..50i64), 200),
        big in 5..9i64,
    ) {
        let mut engine = tree();
        let mut ends: BTreeMap<String, i64> = BTreeMap::new();
        engine.enqueue_job(job("big", "q0", -1, amounts(big, 0)));
        let mut started = None;
        for (i, (queue, cpu, run)) in sizes.into_iter().cycle().take(400).enumerate() {
            let now = i as i64;
            let over: Vec<String> = ends.iter().filter(|(_, end)| **end <= now).map(|(id, _)| id.clone()).collect();
            for id in over {
                ends.remove(&id);
                engine.remove_job(&id);
            }
            // As many as would fill everything again at once.
            for copy in 0..6 {
                engine.enqueue_job(job(&format!("s{i:03}-{copy}"), &format!("q{queue}"), now, amounts(cpu, 0)));
            }
            for id in at(&mut engine, now) {
                if id == "big" {
                    started = started.or(Some(now));
                }
                ends.insert(id, now + run);
            }
            if started.is_some() {
                break;
            }
        }
        let started = started.expect("it starts");
        prop_assert!(started <= RESERVATION_AFTER + 3 * 50, "{started}");
    }
}

/// What arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) queue: usize,
    pub(super) pods: u32,
    /// Of each pod.
    pub(super) cpu: i64,
    /// The clusters that it may be in, by bit.
    pub(super) affinity: u8,
    pub(super) priority: i32,
    /// Seconds within which it should start.
    pub(super) sla: Option<i64>,
    pub(super) run: i64,
    /// Seconds since the one before.
    pub(super) pause: i64,
}

pub(super) const ANYWHERE: u8 = 0b1111;

/// Of few kinds, so that many ask for the same.
fn arrival() -> impl Strategy<Value = Arrival> {
    let asks = (1..4u32, prop::sample::select(&[2i64, 5, 6, 10][..]));
    let affinity = prop::sample::select(&[ANYWHERE, ANYWHERE, 0b0011, 0b0110, 0b0001][..]);
    let place = (prop::sample::select(&[0i32, 0, 0, 1][..]), prop::option::weighted(0.3, 0..200i64));
    (0..3usize, asks, affinity, place, 1..60i64, 0..12i64).prop_map(
        |(queue, (pods, cpu), affinity, (priority, sla), run, pause)| Arrival {
            queue,
            pods,
            cpu,
            affinity,
            priority,
            sla,
            run,
            pause,
        },
    )
}

/// Clusters of one node of ten cpus; the pods of a job may be in several.
pub(super) struct Clusters {
    free: Vec<i64>,
    found: Vec<usize>,
    asked: usize,
}

impl Clusters {
    /// Pods, cpus of each, and the clusters they may be in.
    fn pods(ask: &Ask) -> (u32, i64, u8) {
        let task = &ask.tasks[0];
        (task.min, i64::try_from(task.request.get("cpu").units_ceil()).unwrap(), (ask.fit.0 / 10_000) as u8)
    }

    fn place(
        mut free: Vec<i64>,
        (pods, cpu, affinity): (u32, i64, u8),
        open: impl Fn(usize) -> bool,
    ) -> Option<Vec<usize>> {
        let place = |_| {
            let found = (0..free.len()).find(|i| free[*i] >= cpu && affinity & (1 << i) != 0 && open(*i))?;
            free[found] -= cpu;
            Some(found)
        };
        (0..pods).map(place).collect()
    }

    fn is_open(i: usize, kept: &[&ReservedClusters]) -> bool {
        !kept.iter().any(|kept| kept.clusters.contains(&format!("m{i}").as_str().into()))
    }

    fn emptied(&self) -> Vec<i64> {
        vec![10; self.free.len()]
    }
}

impl ClusterCapacity for Clusters {
    fn fits(&mut self, id: &JobId, ask: &Ask, kept: &[&ReservedClusters]) -> Fit {
        self.asked += 1;
        match Self::place(self.free.clone(), Self::pods(ask), |i| Self::is_open(i, kept)) {
            Some(found) => {
                self.found = found;
                Fit::Yes
            }
            None => Fit::No { never: self.explain_never_fits(id, ask).is_some(), detail: "full".to_owned() },
        }
    }

    fn explain_never_fits(&mut self, _: &JobId, ask: &Ask) -> Option<String> {
        let never = Self::place(self.emptied(), Self::pods(ask), |_| true).is_none();
        never.then(|| "full".to_owned())
    }

    fn reserve_clusters(&mut self, _: &JobId, ask: &Ask, vain: &[ClusterName]) -> Option<ReservedClusters> {
        let mut order: Vec<usize> = (0..self.free.len()).collect();
        order.retain(|i| !vain.contains(&format!("m{i}").as_str().into()));
        order.sort_by_key(|i| Reverse(self.free[*i]));
        let found = (1..=order.len())
            .find_map(|n| Self::place(self.emptied(), Self::pods(ask), |i| order[..n].contains(&i)))?;
        let found: BTreeSet<usize> = found.into_iter().collect();
        let clusters = found.into_iter().map(|i| format!("m{i}").as_str().into()).collect();
        Some(ReservedClusters { clusters, resources: vec!["cpu".into()], groups: None })
    }
}

/// Arrivals in queues that deserve what they are given, in some clusters.
pub(super) struct Play {
    pub(super) engine: Engine,
    pub(super) capacity: Clusters,
    /// When, where, and cpus of each pod.
    ends: BTreeMap<String, (i64, Vec<usize>, i64)>,
    /// The engine is told how much more room there is.
    reports: bool,
}

impl Play {
    pub(super) fn new(clusters: usize, deserved: [Option<i64>; 3], reports: bool) -> Self {
        let deserve = |name: &str, parent, deserved: Option<i64>| match deserved {
            Some(cpu) => deserving(name, parent, cpu),
            None => queue(name, parent, None),
        };
        let queues = [
            queue("top", None, None),
            deserve("q0", Some("top"), deserved[0]),
            deserve("q1", Some("top"), deserved[1]),
            deserve("q2", None, deserved[2]),
        ];
        let capacity = Clusters { free: vec![10; clusters], found: Vec::new(), asked: 0 };
        Self { engine: engine(queues, 10 * clusters as i64, 0), capacity, ends: BTreeMap::new(), reports }
    }

    pub(super) fn wait(&mut self, id: &str, now: i64, arrival: Arrival) {
        let Arrival { queue, pods, cpu, affinity, priority, sla, .. } = arrival;
        let mut job = job(id, &format!("q{queue}"), now, amounts(cpu, 0));
        (job.priority, job.deadline) = (priority, sla.map(|sla| EpochSeconds::new(now + sla)));
        let ask = Arc::make_mut(&mut job.ask);
        ask.fit = FitClass(u64::from(affinity) * 10_000 + u64::from(pods) * 100 + cpu as u64);
        (ask.tasks[0].min, ask.tasks[0].most) = (pods, pods);
        self.engine.enqueue_job(job);
    }

    fn end(&mut self, now: i64) {
        let over: Vec<String> =
            self.ends.iter().filter(|(_, (end, ..))| *end <= now).map(|(id, _)| id.clone()).collect();
        for id in over {
            let (_, clusters, cpu) = self.ends.remove(&id).unwrap();
            self.engine.remove_job(&id);
            clusters.iter().for_each(|i| self.capacity.free[*i] += cpu);
            let largest = clusters.iter().map(|i| self.capacity.free[*i]).max().unwrap_or(0);
            let free = self.capacity.free.iter().sum();
            if self.reports {
                self.engine
                    .requeue_after_growth(&CapacityGrowth { free: amounts(free, 0), largest: amounts(largest, 0) });
            } else {
                self.engine.requeue_after_capacity_change();
            }
        }
    }

    /// Ends what is over, starts what may; who started.
    pub(super) fn pass(&mut self, now: i64, run: impl Fn(&str) -> i64) -> Vec<String> {
        self.end(now);
        self.engine.set_now(EpochSeconds::new(now));
        let mut started = Vec::new();
        while let Some(release) = self.engine.release_next_in_clusters(&mut self.capacity) {
            let found = std::mem::take(&mut self.capacity.found);
            let all = i64::try_from(release.admission.charged.get("cpu").units_ceil()).unwrap();
            let cpu = all / i64::try_from(found.len().max(1)).unwrap();
            found.iter().for_each(|i| self.capacity.free[*i] -= cpu);
            assert!(self.capacity.free.iter().all(|free| *free >= 0));
            self.ends.insert(release.id.to_string(), (now + run(release.id.as_str()), found, cpu));
            started.push(release.id.to_string());
        }
        self.engine.audit();
        self.audit();
        started
    }

    /// Who sleeps for want of room has none: the first of each kind, and whoever a place is kept for.
    fn audit(&self) {
        for node in self.engine.queues.nodes() {
            let line = &self.engine.pending[node];
            for key in line.keys() {
                let shape = line.shape_of(key).unwrap();
                let counts = line.first_of(shape) == Some(key) || self.engine.reservation_of(key.id.as_str()).is_some();
                if !counts || line.inadmissible_cause(shape) != Some(Inadmissible::Capacity) {
                    continue;
                }
                let blocking = self.engine.list_blocking_reservations(node, key, shape);
                let kept = self.engine.list_clusters_reserved_for_others(&blocking);
                let pods = Clusters::pods(&self.engine.shapes[shape].ask);
                let found = Clusters::place(self.capacity.free.clone(), pods, |i| Clusters::is_open(i, &kept));
                assert!(found.is_none(), "{} of {pods:?} in {:?}", key.id, self.capacity.free);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Whatever queues deserve: a job that fits in one cluster alone starts within its wait for a reservation and, for
    /// each of its three queues and for what it lacks there (quota, then room), the longest run.
    #[test]
    fn a_big_job_starts_among_small_ones_whatever_its_queue_deserves(
        sizes in prop::collection::vec((0..3usize, 1..4i64, 1..50i64), 200),
        deserved in [prop::option::of(0..20i64), prop::option::of(0..20i64), prop::option::of(0..20i64)],
        big in 5..11i64,
    ) {
        let mut play = Play::new(2, deserved, true);
        let of = |queue, cpu, run| {
            Arrival { queue, pods: 1, cpu, affinity: ANYWHERE, priority: 0, sla: None, run, pause: 0 }
        };
        play.wait("big", -1, of(0, big, 0));
        let mut started = None;
        for (i, (queue, cpu, run)) in sizes.iter().cycle().take(600).enumerate() {
            let now = i as i64;
            for copy in 0..6 {
                play.wait(&format!("s{i:03}-{copy}"), now, of(*queue, *cpu, *run));
            }
            if now == 0 {
                // All is full before the big one is looked at.
                play.engine.charge_job(&"first".into(), &"q1".into(), &amounts(20, 0));
                play.ends.insert("first".to_owned(), (1, Vec::new(), 0));
            }
            if play.pass(now, |_| *run).iter().any(|id| id == "big") {
                started = Some(now);
                break;
            }
        }
        let started = started.expect("it starts");
        prop_assert!(started <= RESERVATION_AFTER + 5 * 50, "{started}");
    }

    /// Who starts, and when, is the same as if everybody were asked again, and nobody is asked more often. Without
    /// reservations: who lacks both room and quota holds one about what it was found to lack last.
    #[test]
    fn growth_wakes_all_that_it_could_help(
        arrivals in prop::collection::vec(arrival(), 1..40),
        deserved in [prop::option::of(0..40i64), prop::option::of(0..40i64), prop::option::of(0..40i64)],
    ) {
        let mut plays = [Play::new(4, deserved, false), Play::new(4, deserved, true)];
        plays.iter_mut().for_each(|play| play.engine.set_reservation_after(None));
        let mut now = 0;
        for step in 0..arrivals.len() + 40 {
            if let Some(arrival) = arrivals.get(step) {
                now += arrival.pause;
                plays.iter_mut().for_each(|play| play.wait(&format!("j{step:02}"), now, *arrival));
            } else {
                now += 13;
            }
            let run = |id: &str| arrivals[id[1..].parse::<usize>().unwrap()].run;
            let [all, some] = plays.each_mut().map(|play| play.pass(now, run));
            prop_assert_eq!(all, some, "at {}", now);
        }
        prop_assert!(plays[1].capacity.asked <= plays[0].capacity.asked);
    }

    /// The same histories with reservations: nobody sleeps who could start, every reservation is as it should be, and
    /// in the end nobody waits.
    #[test]
    fn with_fences_nobody_sleeps_who_could_start(
        arrivals in prop::collection::vec(arrival(), 1..40),
        deserved in [prop::option::of(0..40i64), prop::option::of(0..40i64), prop::option::of(0..40i64)],
        preempts in prop::collection::vec(prop::option::weighted(0.1, 0..40usize), 80),
    ) {
        let mut play = Play::new(4, deserved, true);
        let mut now = 0;
        let run = |id: &str| arrivals[id[1..].parse::<usize>().unwrap()].run;
        for (step, preemptor) in preempts.iter().take(arrivals.len() + 40).enumerate() {
            if let Some(arrival) = arrivals.get(step) {
                now += arrival.pause;
                play.wait(&format!("j{step:02}"), now, *arrival);
            } else {
                now += 13;
            }
            if let Some(preemptor) = preemptor {
                let id = format!("j{preemptor:02}");
                let preemptor = Some(id).filter(|id| play.engine.is_pending(id) && !play.engine.contends_with_reservation(id));
                play.engine.set_preemptor(preemptor.map(Into::into));
            }
            play.pass(now, run);
        }
        play.engine.set_preemptor(None);
        for _ in 0..2 * arrivals.len() {
            now += 60;
            play.pass(now, run);
        }
        for (i, arrival) in arrivals.iter().enumerate() {
            let never = Clusters::place(play.capacity.emptied(), (arrival.pods, arrival.cpu, arrival.affinity), |_| true);
            let waits = play.engine.is_pending(&format!("j{i:02}"));
            prop_assert_eq!(waits, never.is_none(), "j{:02}: {:?}", i, play.engine.explain_pending(&format!("j{i:02}")));
        }
    }
}
