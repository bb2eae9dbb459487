//! An engine that was told all anew considers who waited long before all others: after a restart, and for who only asks
//! why.

use super::{
    histories::{ANYWHERE, Arrival, Play},
    *,
};

/// A second engine that is told what the first one knows, and nothing of how it came about.
fn begin_anew(engine: &Engine) -> Engine {
    let mut anew = Engine::default();
    anew.set_fleet(engine.queues.fleet().clone());
    engine.queue_specs().cloned().for_each(|spec| anew.set_queue(spec));
    anew.set_order_policy(engine.order_policy());
    anew.set_reservation_after(engine.reservations.after);
    for (id, state) in engine.jobs.iter() {
        match state {
            QueueingState::Pending { node, key, shape, rank } => {
                anew.enqueue_job(Job {
                    id: id.clone(),
                    queue: engine.queues[*node].name.clone(),
                    priority: rank.priority,
                    created: key.created,
                    deadline: rank.deadline,
                    ask: Arc::clone(&engine.shapes[*shape].ask),
                });
            }
            QueueingState::Charged { node, end, .. } => {
                let queue = engine.queues[*node].name.clone();
                anew.charge_job(id, &queue, &engine.charge_of(id.as_str()).unwrap());
                anew.set_expected_end(id.as_str(), *end);
            }
            QueueingState::BackingOff { .. } => panic!("not in these histories"),
        }
    }
    anew.set_now(engine.now);
    anew
}

/// In two queues beside each other: one lacks capacity and has its clusters kept, and one that came later would fit.
#[test]
fn who_is_held_back_by_what_is_kept_for_another_does_not_pass_after_a_restart() {
    let mut play = Play::new(1, [None, None, None], true);
    let of =
        |queue, cpu| Arrival { queue, pods: 1, cpu, affinity: ANYWHERE, priority: 0, sla: None, run: 1000, pause: 0 };
    play.wait("runs", 0, of(2, 5));
    assert_eq!(play.pass(0, |_| 1000), ["runs"]);
    play.wait("big", 1, of(0, 10));
    play.pass(70, |_| 1000);
    play.wait("small", 71, of(2, 2));
    assert!(play.pass(71, |_| 1000).is_empty());
    let mut anew = begin_anew(&play.engine);
    assert_eq!(anew.release_next_in_clusters(&mut play.capacity), None);
    let why = |engine: &Engine| engine.explain_pending("small").unwrap().to_string();
    assert_eq!((why(&anew), anew.has_reservation("big")), (why(&play.engine), true));
}
