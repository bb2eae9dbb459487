//! Which admissions are told to their users.

use std::collections::BTreeSet;

use super::world::World;

/// The jobs that were told that they were admitted.
fn reported(world: &World) -> Vec<String> {
    let of_admission = world.objects.values().filter(|it| it["kind"] == "Event" && it["reason"] == "Admitted");
    of_admission.map(|event| event["involvedObject"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn that_a_long_wait_is_over_is_told_on_the_users_own_object() {
    let mut world = World::new(2);
    world.job("first", "q", 2);
    world.job("a", "q", 2);
    world.pass(60);
    world.delete("ResourceBinding", "first-job");
    world.pass(1);
    // By name.
    assert_eq!(world.events(), ["Admitted", "WaitingForQuota"].map(|reason| ("Normal".into(), reason.into())));
}

#[test]
fn of_many_that_were_admitted_after_a_wait_a_few_are_told_at_once_and_the_others_that_hold_quota_in_turn() {
    let mut world = World::new(60);
    world.job("first", "q", 60);
    world.settle();
    (0..30).for_each(|at| world.job(&format!("w{at}"), "q", 2));
    // The budget of texts is full again.
    world.pass(60);
    world.delete("ResourceBinding", "first-job");
    world.settle();
    let at_once = reported(&world).len();
    assert!((1..=10).contains(&at_once), "{at_once} at once");
    let untold = (0..30).rev().map(|at| format!("w{at}")).find(|job| !reported(&world).contains(job)).unwrap();
    world.delete("ResourceBinding", &format!("{untold}-job"));
    world.pass(40);
    let all = reported(&world);
    assert_eq!(all.len(), 29, "each once");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 29);
    assert!(!all.contains(&untold), "it holds nothing any more");
}
