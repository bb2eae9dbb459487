//! The place that is found for a job at its release is where the scheduler puts it, images counted.

use caldera_core::{
    fleet::{Origin, Update},
    image_locality::ClusterImages,
};

use super::world::World;
use crate::observe::Input;

#[test]
fn a_job_is_assumed_where_its_image_is() {
    let mut world = World::new(1000);
    world.cluster("m2", "100");
    world.settle();
    let found = |world: &World, job: &str| {
        let uid = world.get("ResourceBinding", &format!("{job}-job"))["metadata"]["uid"].as_str().unwrap();
        world.controller.capacity.list_assumed_clusters(uid)
    };
    world.job("first", "q", 10);
    assert_eq!(world.settle(), ["first-job"]);
    let first = found(&world, "first");
    world.job("second", "q", 10);
    assert_eq!(world.settle(), ["second-job"]);
    assert_eq!(found(&world, "second"), first, "the best fit");
    let other = if first == ["m1"] { "m2" } else { "m1" };
    let images = ClusterImages::from_means([("i:latest", 4 << 30)].into_iter());
    let origin = Origin::Published { seen_at: String::new(), late: None };
    for update in [Update::From(origin), Update::Images(images)] {
        world.controller.observe(Input::Member(other.into(), update), world.now);
    }
    world.job("third", "q", 10);
    assert_eq!(world.settle(), ["third-job"]);
    assert_eq!(found(&world, "third"), [other]);
}
