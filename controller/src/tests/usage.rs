//! What is accounted of jobs' lives.

use caldera_runtime::write::Body;

use super::world::World;
use crate::usage::{Usage, UsageHistory};

/// All that is accounted up to now.
fn account(world: &mut World) -> Usage {
    world.controller.usage.merge_history(UsageHistory::default());
    let now = world.now;
    let Some(write) = world.controller.usage.write_history("ns", now) else { return Usage::default() };
    let Body::Apply { object, .. } = write.body else { panic!("it is applied") };
    let mut sum = Usage::default();
    let history = UsageHistory::read_config_map(&object).unwrap();
    history.months.values().flatten().for_each(|(_, usage)| sum.add(usage));
    sum
}

fn core_seconds(usage: &Usage) -> i128 {
    usage.seconds.get("cpu").as_nano() / 1_000_000_000
}

#[test]
fn a_job_that_waits_is_accounted_nothing_one_that_runs_what_it_holds_and_one_that_ended_no_more() {
    let mut world = World::new(2);
    world.job("a", "q", 2);
    world.job("b", "q", 2);
    world.settle();
    world.place("a-job", 2);
    world.phase("a", "Running");
    world.pass(100);
    let running = account(&mut world);
    assert_eq!(running.admissions, 1, "b waits");
    assert!((200..=202).contains(&core_seconds(&running)), "{running:?}");
    world.phase("a", "Completed");
    world.settle();
    world.place("b-job", 2);
    world.phase("b", "Running");
    let ended = account(&mut world);
    assert_eq!(ended.admissions, 2, "b has what a had");
    world.pass(1000);
    let passed = core_seconds(&account(&mut world)) - core_seconds(&ended);
    assert_eq!(passed, 2 * 1000, "of b alone");
}
