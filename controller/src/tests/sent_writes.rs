//! What is sent and not seen is not sent again for ever.

use caldera_runtime::write::{Failure, WriteOutcome};
use jiff::SignedDuration;
use serde_json::json;

use super::{job_commands::send, world::World};
use crate::{
    decide::decide,
    write::{Decision, Tag},
};

/// How many of these writes are sent in so many seconds, while the watch shows nothing and no answer comes.
pub fn count_unseen(world: &mut World, seconds: i64, counts: impl Fn(&Decision) -> bool) -> usize {
    let mut sent = 0;
    for _ in 0..seconds {
        world.now = world.now.saturating_add(SignedDuration::from_secs(1)).unwrap();
        sent += decide(&mut world.controller, world.now).writes.iter().filter(|write| counts(write)).count();
    }
    sent
}

/// A job that waits, and is ended before it ever ran.
fn ended(ttl: u32) -> World {
    let mut world = World::new(4);
    world.job("a", "q", 9);
    world.patch("Job", "a", &json!({"spec": {"ttlSecondsAfterFinished": ttl}}));
    world.pass(2);
    world
}

fn end(world: &mut World) {
    world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/end-as": "Terminated"}}}));
}

/// So many in an hour: after 5 s, then twice as long each time, up to five minutes and a half.
pub const IN_AN_HOUR: std::ops::RangeInclusive<usize> = 12..=17;

#[test]
fn the_end_of_a_job_is_sent_less_often_while_it_is_not_seen_and_at_once_for_what_is() {
    let ends = |write: &Decision| matches!(write, Decision::EndJob { .. });
    let mut world = ended(10);
    end(&mut world);
    let sent = count_unseen(&mut world, 3600, ends);
    assert!(IN_AN_HOUR.contains(&sent), "{sent}");
    world.patch("Job", "a", &json!({"metadata": {"labels": {"any": "change"}}}));
    assert_eq!(count_unseen(&mut world, 5, ends), 1, "another version was seen");
    assert!((3..=4).contains(&count_unseen(&mut world, 60, ends)));
    // Its own module says when to try again what did not arrive.
    let tag = Tag::EndJob(crate::observe::Key::new("ns", "a"));
    let answer = WriteOutcome { tag, result: Err(Failure::Transient("there is no answer".into())) };
    world.controller.apply_write_answer(answer, world.now);
    assert_eq!(count_unseen(&mut world, 5, ends), 1);
    world.list_bindings();
    assert_eq!(count_unseen(&mut world, 5, ends), 1, "all is listed anew");
    world.pass(400);
    assert_eq!(world.get("Job", "a"), &json!(null), "it ended, and its TTL is over");
    world.pass(2000);
    assert_eq!(world.controller.sent_writes.len(), 0, "nothing is kept of what is over");
}

#[test]
fn a_deletion_for_a_ttl_is_sent_less_often_while_it_is_not_seen() {
    let mut world = ended(10);
    end(&mut world);
    world.pass(5);
    let sent = count_unseen(&mut world, 3600, |write| matches!(write, Decision::DeleteJob { .. }));
    assert!(IN_AN_HOUR.contains(&sent), "{sent}");
}

#[test]
fn a_command_is_carried_out_and_deleted_less_often_while_nothing_is_seen_of_it() {
    let mut world = ended(10);
    send(&mut world, "stop", "AbortJob", "a");
    let sent = count_unseen(&mut world, 3600, |write| matches!(write, Decision::AnnotateJob { .. }));
    assert!(IN_AN_HOUR.contains(&sent), "{sent}");
    send(&mut world, "other", "AbortJob", "b");
    let sent = count_unseen(&mut world, 3600, |write| matches!(write, Decision::DeleteJobCommand { .. }));
    assert!(IN_AN_HOUR.contains(&sent), "{sent}");
}
