//! The whole fleet is full and places are kept in many queues: who is looked at, against looking at everybody.

use super::*;
use crate::queue::{Dequeue, QueueState};

#[derive(Debug, Clone)]
enum Event {
    Arrive { queue: usize, priority: i32, cpu: i64, gpu: i64, known: Option<i64> },
    End(usize),
    Leave(usize),
    Shrink(usize),
    Pass(i64),
    Fleet(i64),
    Queue { queue: usize, priority: i32, fifo: bool, cpu: Option<i64>, open: bool },
    Policy(OrderPolicy),
}

fn event() -> impl Strategy<Value = Event> {
    let known = || prop::option::weighted(0.2, 1..200i64);
    prop_oneof![
        12 => (0..LEAVES, 0..2i32, 0..6i64, 0..3i64, known())
            .prop_map(|(queue, priority, cpu, gpu, known)| Event::Arrive { queue, priority, cpu, gpu, known }),
        6 => (0..80usize).prop_map(Event::End),
        1 => (0..80usize).prop_map(Event::Leave),
        1 => (0..80usize).prop_map(Event::Shrink),
        3 => (1..90i64).prop_map(Event::Pass),
        1 => (16..40i64).prop_map(Event::Fleet),
        1 => (0..LEAVES, 0..2i32, any::<bool>(), prop::option::of(2..9i64), prop::bool::weighted(0.8))
            .prop_map(|(queue, priority, fifo, cpu, open)| Event::Queue { queue, priority, fifo, cpu, open }),
        1 => prop::sample::select(&[OrderPolicy::Share, OrderPolicy::Strict, OrderPolicy::Fifo][..])
            .prop_map(Event::Policy),
    ]
}

const LEAVES: usize = 8;

/// Four queues in each of two, which deserve what all are given together: nobody is short of anything but of the fleet.
fn full() -> Engine {
    let parents = (0..2).map(|i| deserving(&format!("p{i}"), None, 12));
    let leaves = (0..LEAVES).map(|i| deserving(&format!("q{i}"), Some(&format!("p{}", i % 2)), 3));
    engine(parents.chain(leaves), 24, 6)
}

/// One engine, and what it is told. The search for who has enough quota is held against a scan before each decision.
struct Reported {
    engine: Engine,
    /// Everybody who sleeps on a ceiling that has enough is woken before each decision.
    eager: bool,
    charges: BTreeMap<String, (String, i64, i64)>,
}

impl Reported {
    /// The fleet is full before the first event.
    fn new(reservation_after: Option<i64>, eager: bool) -> Self {
        let mut reported = Self { engine: full(), eager, charges: BTreeMap::new() };
        reported.engine.set_reservation_after(reservation_after);
        for i in 0..LEAVES {
            let (id, queue) = (format!("r{i}"), format!("q{i}"));
            reported.engine.charge_job(&id.as_str().into(), &queue.as_str().into(), &amounts(3, 0));
            reported.charges.insert(id, (queue, 3, 0));
        }
        reported
    }

    fn started(&mut self, now: i64) -> Vec<(JobId, Resources)> {
        self.engine.set_now(EpochSeconds::new(now));
        self.engine.audit_requeue();
        let mut started = Vec::new();
        loop {
            if self.eager {
                self.engine.resolve_quota();
                self.engine.wake_all_short();
            }
            let release = self.engine.release_next_by_fit(|_, _| Fit::Yes);
            self.engine.audit_requeue();
            let Some(release) = release else { break };
            started.push((release.id, release.admission.charged));
        }
        self.engine.audit();
        started
    }

    /// Who waits, and who holds something.
    fn jobs(&self) -> [Vec<String>; 2] {
        let ids: BTreeSet<&JobId> = self.engine.jobs.iter().map(|(id, _)| id).collect();
        let ids = ids.into_iter().map(ToString::to_string);
        let (waiting, running) = ids.partition(|id| self.engine.is_pending(id));
        [waiting, running]
    }

    fn report(&mut self, i: usize, now: i64, event: &Event) {
        let [waiting, running] = self.jobs();
        let nth = |of: &[String], n: usize| (!of.is_empty()).then(|| of[n % of.len()].clone());
        match event {
            Event::Arrive { queue, priority, cpu, gpu, known } => {
                let mut arrived = job(&format!("j{i:02}"), &format!("q{queue}"), now, amounts(*cpu, *gpu));
                let ask = Arc::make_mut(&mut arrived.ask);
                (arrived.priority, ask.run_for) = (*priority, *known);
                self.charges.insert(arrived.id.to_string(), (format!("q{queue}"), *cpu, *gpu));
                self.engine.enqueue_job(arrived);
            }
            Event::End(n) => nth(&running, *n).into_iter().for_each(|id| self.engine.remove_job(&id)),
            Event::Leave(n) => nth(&waiting, *n).into_iter().for_each(|id| self.engine.remove_job(&id)),
            Event::Shrink(n) => {
                if let Some(id) = nth(&running, *n) {
                    let (queue, cpu, gpu) = self.charges[&id].clone();
                    self.engine.charge_job(&id.into(), &queue.as_str().into(), &amounts(cpu / 2, gpu));
                }
            }
            Event::Pass(_) => {}
            Event::Fleet(cpu) => {
                let fleet = amounts(*cpu, 6);
                self.engine.set_fleet(FleetResources { ready: fleet.clone(), whole: Some(fleet), ready_clusters: 1 });
            }
            Event::Queue { queue, priority, fifo, cpu, open } => {
                let mut spec = deserving(&format!("q{queue}"), Some(&format!("p{}", queue % 2)), 3);
                cpu.iter().for_each(|cpu| spec.capability.set("cpu", Quantity::from_units(*cpu)));
                let dequeue = if *fifo { Dequeue::Fifo } else { Dequeue::Traverse };
                let state = if *open { QueueState::Open } else { QueueState::Closed };
                self.engine.set_queue(QueueSpec { priority: *priority, dequeue, state, ..spec });
            }
            Event::Policy(policy) => self.engine.set_order_policy(*policy),
        }
    }
}

fn pass(now: &mut i64, event: &Event) -> i64 {
    *now += if let Event::Pass(seconds) = event { *seconds } else { 0 };
    *now
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Who starts, in which order, is the same as if all that have enough where they sleep were looked at after each
    /// event and each start. Without reservations: those depend on who was looked at before.
    #[test]
    fn freed_room_starts_whom_looking_at_everybody_starts(events in prop::collection::vec(event(), 1..120)) {
        let mut both = [false, true].map(|eager| Reported::new(None, eager));
        let mut now = 0;
        for (i, event) in events.iter().enumerate() {
            let now = pass(&mut now, event);
            both.iter_mut().for_each(|reported| reported.report(i, now, event));
            let [lazy, eager] = both.each_mut().map(|reported| reported.started(now));
            prop_assert_eq!(lazy, eager, "after event {}: {:?}", i, event);
        }
    }

    /// With places kept in all queues nobody sleeps who could start, and every reservation is as it should be.
    #[test]
    fn with_reservations_in_a_full_fleet_nobody_is_inadmissible_who_could_start(
        events in prop::collection::vec(event(), 1..120)
    ) {
        let mut reported = Reported::new(Some(60), false);
        let mut now = 0;
        for (i, event) in events.iter().enumerate() {
            let now = pass(&mut now, event);
            reported.report(i, now, event);
            reported.started(now);
        }
    }
}
