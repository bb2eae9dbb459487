//! Images that nodes have decide between clusters that are equal otherwise, wherever it is told of them.

use caldera_core::{
    fleet::Origin,
    image_locality::{ClusterImages, NodeImage},
};

use super::*;

const MANY_BYTES: u64 = 4 << 30;

fn world(image: &str) -> Cache {
    let mut object = job(4, 4);
    object["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"] = image.into();
    index(&[4, 6], &[object, binding(4)])
}

fn goes(world: &mut Cache) -> String {
    targets(&verdict(world).step).remove(0).0
}

#[test]
fn a_gang_goes_where_its_image_is_as_the_nodes_tell() {
    let mut world = world("train");
    assert_eq!(goes(&mut world), "m0", "the best fit");
    let amounts = [("cpu", Quantity::from_units(6)), ("pods", Quantity::from_units(100))];
    let node = |name: &str| Node {
        name: "n".into(),
        allocatable: amounts.into_iter().collect(),
        ready: true,
        images: vec![NodeImage { name: name.into(), bytes: MANY_BYTES }],
        ..Node::default()
    };
    world.apply_member("m1", Update::Change(Change::Node(node("train:1"))));
    assert_eq!(goes(&mut world), "m0", "another tag is another image");
    world.apply_member("m1", Update::Change(Change::Node(node("train:latest"))));
    assert_eq!(goes(&mut world), "m1");
}

#[test]
fn a_gang_goes_where_its_image_is_as_the_collector_publishes() {
    let mut world = world("train:1");
    let images = |name: &str| ClusterImages::from_means([(name, MANY_BYTES)].into_iter());
    world.apply_member("m1", Update::From(Origin::Published { seen_at: String::new(), late: None }));
    assert_eq!(goes(&mut world), "m0", "a collector from before does not tell of images");
    world.apply_member("m1", Update::Images(images("train:1")));
    assert_eq!(goes(&mut world), "m1");
}
