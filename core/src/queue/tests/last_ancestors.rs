//! Queues that lose their place in the tree while jobs run: what those hold stays charged to every queue above.

use super::*;

/// Queue `top` may have 100, of which 80 are held in `a1`, below `a`.
fn held() -> Engine {
    let mut engine =
        engine([queue("top", 100), child("a", "top", 200), child("a1", "a", 200), child("b", "top", 200)], 500);
    engine.enqueue_job(job("runs", "a1", 0, cpu(80)));
    assert_eq!(released(&mut engine), ["runs"]);
    engine.enqueue_job(job("more", "b", 1, cpu(80)));
    engine
}

fn used(engine: &mut Engine, queues: &[&str]) -> Vec<Resources> {
    engine.resolve_quota();
    queues.iter().map(|queue| engine.usage_of(&QueueName::from(*queue)).used).collect()
}

#[test]
fn a_queue_that_is_deleted_under_running_jobs_stays_charged_above() {
    let mut engine = held();
    engine.remove_queue(&"a1".into());
    assert!(released(&mut engine).is_empty());
    assert_eq!(used(&mut engine, &["a1", "a", "top", "root"]), [80, 80, 80, 80].map(cpu));
    engine.remove_queue(&"a".into());
    assert!(released(&mut engine).is_empty());
    assert_eq!(used(&mut engine, &["top", "root"]), [80, 80].map(cpu));
    assert_eq!(token(&engine, "more"), "WaitingForQuota");
    engine.remove_job("runs");
    assert_eq!(released(&mut engine), ["more"]);
    assert_eq!(used(&mut engine, &["top", "root"]), [80, 80].map(cpu));
}

#[test]
fn a_queue_whose_parent_is_deleted_stays_charged_above_that() {
    let mut engine = held();
    engine.remove_queue(&"a".into());
    assert!(released(&mut engine).is_empty());
    assert_eq!(used(&mut engine, &["a1", "top"]), [80, 80].map(cpu));
}

#[test]
fn a_queue_that_is_edited_into_a_circle_stays_charged_where_it_was() {
    let mut engine = held();
    engine.set_queue(child("a", "a1", 200));
    assert!(released(&mut engine).is_empty());
    assert_eq!(used(&mut engine, &["a1", "a", "top"]), [80, 80, 80].map(cpu));
}

#[test]
fn what_is_above_a_lost_queue_counts_where_it_is_now() {
    let mut engine = held();
    engine.remove_queue(&"a1".into());
    engine.set_queue(queue("a", 200));
    assert_eq!(released(&mut engine), ["more"]);
    assert_eq!(used(&mut engine, &["a1", "a", "top", "root"]), [80, 80, 80, 160].map(cpu));
}

#[test]
fn after_a_restart_the_record_says_where_a_lost_queue_was() {
    let mut before = engine([queue("top", 100), child("a", "top", 200), child("a1", "a", 200)], 500);
    before.enqueue_job(job("runs", "a1", 0, cpu(80)));
    let record = before.release_next_by_fit(|_, _| Fit::Yes).unwrap().admission;
    assert_eq!(record.above, ["a".into(), "top".into()]);
    let mut engine = engine([queue("top", 100), child("b", "top", 200)], 500);
    engine.enqueue_job(job("more", "b", 1, cpu(80)));
    engine.charge_job_with_ancestors(&"runs".into(), &"a1".into(), &record.above, &record.charged, &Counted::Job);
    assert!(released(&mut engine).is_empty());
    assert_eq!(used(&mut engine, &["a1", "top", "root"]), [80, 80, 80].map(cpu));
    // Its own object, once it is there, says more than any record.
    engine.set_queue(queue("a1", 200));
    assert_eq!(released(&mut engine), ["more"]);
    assert_eq!(used(&mut engine, &["a1", "top"]), [80, 80].map(cpu));
}

#[test]
fn records_that_differ_are_read_alike_in_whatever_order() {
    let play = |order: [usize; 2]| {
        let mut engine = engine([queue("top", 100), queue("other", 100)], 500);
        let above: [&[QueueName]; 2] = [&["top".into()], &["other".into()]];
        for i in order {
            engine.charge_job_with_ancestors(
                &format!("runs{i}").into(),
                &"gone".into(),
                above[i],
                &cpu(10),
                &Counted::Job,
            );
        }
        used(&mut engine, &["top", "other"])
    };
    assert_eq!(play([0, 1]), play([1, 0]));
}
