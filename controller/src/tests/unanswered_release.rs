//! What becomes of a release that is refused, overtaken or not answered.

use caldera_runtime::write::Failure;

use super::world::World;

#[test]
fn a_conflict_is_decided_again_from_fresh_state() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    world.refuse = vec![Failure::Conflict("changed".into())];
    assert_eq!(world.settle(), ["a-job"]);
    assert_eq!(world.used("q"), "4", "it may have been stored: the quota is not given away");
    let binding = world.get("ResourceBinding", "a-job").clone();
    world.put(binding);
    assert_eq!(world.settle(), ["a-job"]);
    assert_eq!(world.used("q"), "4");
}

#[test]
fn a_conflict_that_nothing_explains_is_looked_at_again() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.refuse = vec![Failure::Conflict("for no reason".into())];
    world.settle();
    assert_eq!(world.pass(6), ["a-job"]);
}

#[test]
fn a_release_without_an_answer_is_sent_again_and_can_only_succeed_once() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    world.refuse = vec![Failure::Transient("no answer".into())];
    assert_eq!(world.settle(), ["a-job"]);
    assert_eq!(world.used("q"), "4");
    assert_eq!(world.pass(2), ["a-job"]);
    assert_eq!(world.get("ResourceBinding", "a-job")["spec"]["suspension"]["scheduling"], false);
    assert_eq!(world.used("q"), "4");
}

#[test]
fn a_release_that_was_stored_stays_charged_however_late_the_watch_is() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    (world.lost, world.echo) = (1, false);
    world.settle();
    for _ in 0..120 {
        assert!(!world.pass(1).contains(&"b-job".to_owned()));
        assert_eq!(world.used("q"), "4");
    }
    let tries = world.writes.iter().filter(|write| write.resource.plural == "resourcebindings").count();
    assert!(tries < 8, "{tries} tries");
    world.echo = true;
    let stored = world.get("ResourceBinding", "a-job").clone();
    world.report(&stored, false);
    assert!(world.pass(3).is_empty());
    assert_eq!((world.used("q").as_str(), world.says("a").0.as_str()), ("4", "Admitted"));
}

#[test]
fn a_release_that_is_refused_says_so_and_lets_others_pass() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    let refusal = Failure::Refused { code: 403, reason: "Forbidden".into(), message: "no".into() };
    world.refuse = vec![refusal];
    assert_eq!(world.settle(), ["a-job", "b-job"]);
    world.pass(3);
    assert_eq!(world.says("a").0, "NotReleased");
}
