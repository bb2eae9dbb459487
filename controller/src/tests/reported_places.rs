//! How soon a job that waits says at which place it is, and which jobs say so first.

use jiff::SignedDuration;
use serde_json::json;

use super::world::World;

/// Jobs that wait behind one that runs, each as large as the queue.
fn wait_in_line(jobs: usize) -> World {
    let mut world = World::new(2);
    (0..=jobs).for_each(|at| world.job(&format!("j{at:03}"), "q", 2));
    world.pass(40);
    world
}

#[test]
fn the_place_of_a_job_that_waits_is_reported_within_five_seconds() {
    let mut world = wait_in_line(3);
    let place = |world: &World, place: &str| world.says("j003").1.contains(place);
    assert!(place(&world, "position 3 of 3"), "{:?}", world.says("j003"));
    for left in ["position 2 of 2", "position 1 of 1"] {
        let gone = if left.ends_with('2') { "j001-job" } else { "j002-job" };
        world.delete("ResourceBinding", gone);
        world.pass(5);
        assert!(place(&world, left), "{:?}", world.says("j003"));
    }
    // It needs 2, and a limit of 3 is another number of its text.
    world.queue("q", &json!({"capability": {"cpu": "3"}}));
    world.pass(5);
    assert!(world.says("j003").1.contains("of 3"), "{:?}", world.says("j003"));
}

#[test]
fn that_others_wait_behind_a_job_is_reported_seldom() {
    let mut world = wait_in_line(2);
    world.job("last", "q", 2);
    world.pass(5);
    assert!(world.says("j001").1.contains("position 1 of 3"), "{:?}", world.says("j001"));
    world.job("later", "q", 2);
    world.pass(5);
    assert!(world.says("j001").1.contains("position 1 of 3"), "too early: {:?}", world.says("j001"));
    world.pass(30);
    assert!(world.says("j001").1.contains("position 1 of 4"), "{:?}", world.says("j001"));
}

/// Jobs whose text names another place than the one that they have, by their own place.
fn list_stale_places(world: &World, jobs: usize, gone: usize) -> Vec<usize> {
    let stale = |at: &usize| {
        let place = format!("position {} of ", at - gone);
        !world.says(&format!("j{at:03}")).1.contains(&place)
    };
    (gone + 1..=jobs).filter(stale).map(|at| at - gone).collect()
}

/// The line moves on every five seconds.
#[test]
fn of_a_long_line_that_moves_the_front_is_reported_within_five_seconds_and_the_rest_in_turn() {
    let mut world = wait_in_line(80);
    assert_eq!(list_stale_places(&world, 80, 0), [0; 0]);
    let groups = |world: &World| world.writes.iter().filter(|write| write.resource.plural == "podgroups").count();
    let before = groups(&world);
    for gone in 1..=4 {
        world.delete("ResourceBinding", &format!("j{gone:03}-job"));
        world.pass(5);
        let stale = list_stale_places(&world, 80, gone);
        assert!(stale.iter().all(|place| *place > 20), "{stale:?} after {gone}");
    }
    assert!(groups(&world) - before <= 250, "{} writes", groups(&world) - before);
    world.pass(40);
    assert_eq!(list_stale_places(&world, 80, 4), [0; 0], "each is right some time");
    let settled = world.writes.len();
    world.pass(20);
    assert_eq!(world.writes.len(), settled, "and then nothing is written");
}

/// One text in a second: those who are next have most of them.
#[test]
fn on_a_slow_server_the_front_of_each_line_is_reported_first() {
    let mut world = World::new(2);
    world.queue("r", &json!({"capability": {"cpu": "2"}}));
    for at in 0..=40 {
        ["q", "r"].iter().for_each(|queue| world.job(&format!("{queue}{at:03}"), queue, 2));
    }
    world.pass(60);
    ["q001-job", "r001-job"].iter().for_each(|gone| world.delete("ResourceBinding", gone));
    let slow = SignedDuration::from_secs(60);
    for _ in 0..15 {
        (0..100).for_each(|_| world.controller.pod_groups.budget.observe_write(slow));
        world.pass(1);
    }
    for job in ["q002", "r002", "q003", "r003"] {
        let place = format!("position {} of ", job[1..].parse::<usize>().unwrap() - 1);
        assert!(world.says(job).1.contains(&place), "{:?}", world.says(job));
    }
}
