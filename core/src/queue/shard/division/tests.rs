//! The division by hand, and its invariants on random fleets.

use proptest::prelude::*;

use super::*;

const NOW: EpochSeconds = EpochSeconds::new(1_000);
const UNTIL: EpochSeconds = EpochSeconds::new(1_060);

fn cpus(units: i64) -> Resources {
    [("cpu", Quantity::from_units(units))].into_iter().collect()
}

fn shard(name: &str, weight: u32, [guarantee, deserved, real, demand]: [i64; 4]) -> Shard {
    let [guarantee, deserved, real, demand] = [guarantee, deserved, real, demand].map(cpus);
    Shard { name: name.into(), weight, guarantee, deserved, real, demand }
}

fn node(number: usize, in_use: bool) -> SharedNode {
    SharedNode { name: format!("n{number}").into(), allocatable: cpus(10), in_use }
}

/// A cluster in which each of these nodes is held by that shard, or by nobody.
fn leases_of(holders: &[Option<&str>]) -> ClusterLeases {
    let mut leases = ClusterLeases::default();
    let grants: Vec<LeaseChange> = (holders.iter().enumerate())
        .filter_map(|(i, holder)| {
            let lease = NodeLease { shard: (*holder)?.into(), until: UNTIL };
            Some(LeaseChange::Grant(format!("n{i}").into(), lease))
        })
        .collect();
    leases.apply(0, NOW, &grants).unwrap();
    leases
}

fn divide(holders: &[Option<&str>], in_use: &[usize], shards: &[Shard]) -> Vec<LeaseChange> {
    let leases = leases_of(holders);
    let nodes = (0..holders.len()).map(|i| node(i, in_use.contains(&i))).collect();
    let clusters = [SharedCluster { name: "m1".into(), nodes, leases: &leases }];
    divide_nodes(&clusters, shards, NOW, UNTIL).remove(&ClusterName::from("m1")).unwrap_or_default()
}

fn cpus_of(parts: &[FleetPart]) -> Vec<String> {
    parts.iter().map(|part| part.whole.get("cpu").to_string()).collect()
}

#[test]
fn guarantees_come_first_then_what_is_deserved_and_asked_for_then_weights() {
    let shards = |c: [i64; 4]| [shard("a", 1, [20, 40, 100, 0]), shard("b", 1, [0, 30, 100, 100]), shard("c", 3, c)];
    // A keeps its guarantee though it asks for nothing; B has what it deserves, and both share the rest by weight.
    assert_eq!(cpus_of(&divide_fleet(&cpus(100), &shards([0, 30, 100, 100]))), ["20", "30", "50"]);
    // Who asks for less than it deserves leaves the rest.
    assert_eq!(cpus_of(&divide_fleet(&cpus(100), &shards([0, 30, 100, 10]))), ["20", "70", "10"]);
    // Nobody has more than it may.
    assert_eq!(cpus_of(&divide_fleet(&cpus(100), &shards([0, 30, 40, 100]))), ["20", "40", "40"]);
}

#[test]
fn free_nodes_go_to_whoever_has_the_least_part_of_its_own() {
    let shards = [shard("a", 1, [0, 20, 20, 20]), shard("b", 1, [0, 10, 10, 10])];
    let grant =
        |node: &str, shard: &str| LeaseChange::Grant(node.into(), NodeLease { shard: shard.into(), until: UNTIL });
    assert_eq!(divide(&[None; 4], &[], &shards), [grant("n0", "a"), grant("n1", "b"), grant("n2", "a")]);
}

#[test]
fn a_node_whose_lease_is_over_waits_until_nothing_runs_on_it() {
    let shards = [shard("a", 1, [0, 20, 20, 20])];
    let granted = divide(&[None, None], &[0], &shards);
    assert!(matches!(&granted[..], [LeaseChange::Grant(node, _)] if node.as_str() == "n1"), "{granted:?}");
}

#[test]
fn what_is_lent_is_asked_back_when_its_owner_wants_it_and_not_before() {
    let a = Some("a");
    let shards = |demand| [shard("a", 1, [0, 20, 40, 40]), shard("b", 1, [0, 20, 40, demand])];
    assert_eq!(divide(&[a; 4], &[0, 1], &shards(0)), []);
    assert_eq!(divide(&[a; 4], &[0, 1], &shards(15)), [LeaseChange::AskBack("a".into(), cpus(20))]);
    // Nobody is asked for what is its own.
    assert_eq!(divide(&[a, a], &[], &[shard("a", 1, [0, 20, 20, 20]), shard("b", 1, [0, 0, 20, 20])]), []);
}

/// It was asked for all that it is not entitled to, and lacked its own then, for which another one was asked.
#[test]
fn what_is_beyond_a_shards_own_is_asked_back_before_what_it_is_not_entitled_to() {
    let holders = [Some("a"), Some("a"), Some("a"), Some("c"), Some("a"), Some("c")];
    let shards = [shard("a", 1, [0, 0, 10, 1]), shard("b", 1, [0, 40, 0, 40]), shard("c", 1, [0, 0, 10, 2])];
    let asked = |shard: &str, cpu| LeaseChange::AskBack(shard.into(), cpus(cpu));
    assert_eq!(divide(&holders, &[], &shards), [asked("a", 30), asked("c", 10)]);
}

#[test]
fn who_wants_it_no_longer_asks_for_nothing() {
    let a = Some("a");
    let mut leases = leases_of(&[a, a]);
    leases.apply(1, NOW, &[LeaseChange::AskBack("a".into(), cpus(10))]).unwrap();
    let nodes = vec![node(0, false), node(1, false)];
    let clusters = [SharedCluster { name: "m1".into(), nodes, leases: &leases }];
    let shards = [shard("a", 1, [0, 10, 20, 20]), shard("b", 1, [0, 10, 20, 0])];
    let changes = divide_nodes(&clusters, &shards, NOW, UNTIL);
    assert_eq!(changes[&ClusterName::from("m1")], [LeaseChange::AskBack("a".into(), Resources::new())]);
}

#[test]
fn a_shard_gets_nodes_where_it_has_some() {
    let (m1, m2) = (leases_of(&[None; 3]), leases_of(&[Some("a"), None, None]));
    let nodes = || (0..3).map(|i| node(i, false)).collect();
    let clusters = [
        SharedCluster { name: "m1".into(), nodes: nodes(), leases: &m1 },
        SharedCluster { name: "m2".into(), nodes: nodes(), leases: &m2 },
    ];
    let changes = divide_nodes(&clusters, &[shard("a", 1, [0, 30, 30, 30])], NOW, UNTIL);
    assert_eq!(changes.keys().map(ClusterName::as_str).collect::<Vec<_>>(), ["m2"]);
}

fn any_shards() -> impl Strategy<Value = Vec<Shard>> {
    let amounts = (0..3_i64, 0..6_i64, 0..12_i64, 0..150_i64, 1..4_u32);
    proptest::collection::vec(amounts, 1..4).prop_map(|all| {
        let shard_of = |(i, (guarantee, deserved, real, demand, weight)): (usize, (i64, i64, i64, i64, u32))| {
            let name = ["a", "b", "c"][i];
            shard(name, weight, [guarantee * 10, deserved.max(guarantee) * 10, real.max(guarantee) * 10, demand])
        };
        all.into_iter().enumerate().map(shard_of).collect()
    })
}

proptest! {
    /// What is granted may be granted, nobody is asked for what is its own, no free node that helps is left, and a
    /// second look changes nothing.
    #[test]
    fn a_division_is_legal_and_complete(
        shards in any_shards(),
        nodes in proptest::collection::vec((0..5_usize, any::<bool>()), 1..16),
    ) {
        let holders: Vec<Option<&str>> = nodes.iter().map(|(holder, _)| ["a", "b", "c"].get(*holder).copied()).collect();
        let mut leases = leases_of(&holders);
        let all = || nodes.iter().enumerate().map(|(i, (_, in_use))| node(i, *in_use)).collect::<Vec<_>>();
        let look = |leases: &ClusterLeases| {
            let clusters = [SharedCluster { name: "m1".into(), nodes: all(), leases }];
            divide_nodes(&clusters, &shards, NOW, UNTIL).remove(&ClusterName::from("m1")).unwrap_or_default()
        };
        let changes = look(&leases);
        prop_assert!(leases.apply(1, NOW, &changes).is_ok(), "{changes:?}");
        prop_assert_eq!(look(&leases), []);

        let parts = divide_fleet(&cpus(10 * nodes.len() as i64), &shards);
        let units = |amounts: &Resources| amounts.get("cpu").units_ceil();
        let mut lacks = false;
        let (mut lacking, mut asked_back) = (0, 0);
        for (shard, part) in shards.iter().zip(&parts) {
            let held = 10 * leases.list_held(&shard.name, NOW).count() as i128;
            let asked = leases.asked_back(&shard.name).map_or(0, units);
            prop_assert!(asked == 0 || held - asked >= units(&part.entitled), "{shard:?} {held} {asked}");
            lacks |= held < units(&part.whole);
            lacking += (units(&part.whole) - held).max(0);
            asked_back += asked;
        }
        prop_assert!(asked_back < lacking + 10, "{asked_back} are asked for, and {lacking} are lacking");
        for (i, (_, in_use)) in nodes.iter().enumerate() {
            let holder = leases.find_holder(&format!("n{i}").into(), NOW);
            prop_assert!(!lacks || *in_use || holder.is_some(), "n{i} is free, and somebody lacks it");
        }
    }
}
