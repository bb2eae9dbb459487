//! A task's NUMA policy decides where its gang goes, as its workload says it and as nodes report it.

use caldera_core::numa::{NumaNode, NumaPolicy, NumaTopology};

use super::*;

/// A node of each cluster holds four pods of one CPU.
fn world() -> Cache {
    let mut object = job(4, 4);
    let task = &mut object["spec"]["tasks"][0];
    task["topologyPolicy"] = "single-numa-node".into();
    task["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1", "memory": "1Mi"}});
    let mut world = index(&[4, 6], &[object, binding(4)]);
    for (member, cores) in [("m0", 4), ("m1", 6)] {
        let amounts = [("cpu", cores), ("memory", 1 << 30), ("pods", 100)];
        let allocatable = amounts.map(|(name, amount)| (name, Quantity::from_units(amount))).into_iter().collect();
        let node = Node { name: "n".into(), allocatable, ready: true, ..Node::default() };
        world.apply_member(member, Update::Change(Change::Node(node)));
    }
    world
}

/// A node reports two NUMA nodes of three CPUs, so many of each free.
fn report(world: &mut Cache, member: &str, policy: NumaPolicy, free: u16) {
    let nodes = vec![NumaNode { cpus: 3, allocatable: 3, free }; 2];
    let topology = NumaTopology::new(Some(policy), nodes).unwrap();
    world.apply_member(member, Update::Change(Change::NumaTopology("n".into(), topology)));
}

fn goes(world: &mut Cache) -> Option<String> {
    match verdict(world).step {
        Step::Place(decision) => Some(decision.targets[0].cluster.clone()),
        _ => None,
    }
}

#[test]
fn a_gang_with_a_numa_policy_goes_where_nodes_align_it_or_report_nothing() {
    let mut world = world();
    assert_eq!(goes(&mut world).as_deref(), Some("m0"), "the best fit, where no node reports anything");
    report(&mut world, "m0", NumaPolicy::Restricted, 3);
    assert_eq!(goes(&mut world).as_deref(), Some("m1"), "which is left to its own scheduler");
    report(&mut world, "m1", NumaPolicy::SingleNumaNode, 1);
    assert_eq!(goes(&mut world), None, "two CPUs are free");
    report(&mut world, "m0", NumaPolicy::SingleNumaNode, 2);
    assert_eq!(goes(&mut world).as_deref(), Some("m0"));
}
