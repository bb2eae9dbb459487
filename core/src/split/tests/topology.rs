//! Domains: which one is chosen, how it is pinned and held, and what a refusal says.

use super::*;
use crate::{
    gang::{Operator, Requirement},
    inventory::{Change, HyperNode, HyperNodeMember, Inventory, Node},
    node_affinity::HOSTNAME,
};

/// Racks of nodes with so many cores each; two racks make a spine. Rack `r` of cluster `c` is `r<c>-<r>`, its nodes are
/// `r<c>-<r>-<n>` and have label `rack`.
pub(super) fn member(cluster: usize, racks: &[&[i64]]) -> Inventory {
    let mut inventory = Inventory::default();
    let rack = |r: usize| format!("r{cluster}-{r}");
    let node = |r: usize, n: usize, cpu: i64| Node {
        name: format!("{}-{n}", rack(r)),
        labels: [("rack".to_owned(), rack(r))].into(),
        allocatable: [("cpu", cpu), ("pods", 10)]
            .map(|(name, n)| (name, Quantity::from_units(n)))
            .into_iter()
            .collect(),
        ready: true,
        ..Node::default()
    };
    let nodes = racks
        .iter()
        .enumerate()
        .flat_map(|(r, cpus)| cpus.iter().enumerate().map(move |(n, cpu)| node(r, n, *cpu)).collect::<Vec<_>>());
    let label = |value: String| Requirement { key: "rack".into(), operator: Operator::In, values: vec![value] };
    let leaf = |r: usize| HyperNode {
        name: rack(r),
        tier: 1,
        tier_name: "rack".into(),
        members: vec![HyperNodeMember::Labels(vec![label(rack(r))])],
    };
    let spine = |s: usize| HyperNode {
        name: format!("s{cluster}-{s}"),
        tier: 2,
        tier_name: "spine".into(),
        members: [2 * s, 2 * s + 1].map(|r| HyperNodeMember::HyperNode(rack(r))).into(),
    };
    let spines = (0..racks.len().div_ceil(2)).map(spine);
    inventory.apply_change(Change::HyperNodes((0..racks.len()).map(leaf).chain(spines).collect()));
    inventory.apply_change(Change::Nodes(nodes.collect()));
    inventory.apply_change(Change::Pods(Vec::new()));
    inventory
}

pub(super) fn racked(clusters: &[&[&[i64]]]) -> World {
    World {
        names: (0..clusters.len()).map(|i| ClusterName::from(format!("m{i}"))).collect(),
        capacities: clusters.iter().enumerate().map(|(i, racks)| member(i, racks).capacity()).collect(),
    }
}

fn hard(tier: u32) -> Option<Topology> {
    Some(Topology { hard: true, highest_tier: Some(tier), highest_tier_name: None })
}

fn named(name: &str) -> Option<Topology> {
    Some(Topology { hard: true, highest_tier: None, highest_tier_name: Some(name.into()) })
}

fn workers(replicas: u32, min: u32, topology: Option<Topology>) -> Gang {
    Gang { topology, ..gang(vec![task("w", replicas, min, 2, 0)], min) }
}

/// `m0 r0-1@1: 4` by cluster.
fn placed(plan: &Plan) -> Vec<String> {
    let one = |(cluster, share): (&ClusterName, &ClusterShare)| {
        let domain = share.domain.as_ref().map_or("-".to_owned(), |domain| format!("{}@{}", domain.name, domain.tier));
        format!("{cluster} {domain}: {}", share.replicas())
    };
    plan.clusters.iter().map(one).collect()
}

fn solved(gang: &Gang, world: &World) -> Result<Vec<String>, String> {
    split_gang(&problem(gang, world, Strategy::Aggregated))
        .map(|plan| placed(&plan))
        .map_err(|refusal| refusal.to_string())
}

#[test]
fn a_hard_gang_goes_into_one_domain_that_holds_it_the_tightest() {
    let world = racked(&[&[&[8, 8], &[4, 4]], &[&[6, 6], &[2, 2]]]);
    assert_eq!(solved(&workers(4, 4, hard(1)), &world).unwrap(), ["m0 r0-1@1: 4"]);
    assert_eq!(solved(&workers(6, 6, hard(1)), &world).unwrap(), ["m1 r1-0@1: 6"]);
}

/// A domain's nodes in sum are not enough: 3 + 3 cores hold two pods of 2, not three.
#[test]
fn a_domain_holds_a_gang_node_by_node() {
    let world = racked(&[&[&[3, 3], &[9, 1]]]);
    assert_eq!(solved(&workers(3, 3, hard(1)), &world).unwrap(), ["m0 r0-1@1: 3"]);
}

#[test]
fn the_lowest_tier_wins_and_a_higher_one_is_taken_only_where_it_is_allowed() {
    let world = racked(&[&[&[4], &[4], &[2], &[2]], &[&[6, 6], &[2]]]);
    assert_eq!(solved(&workers(4, 4, hard(2)), &world).unwrap(), ["m1 r1-0@1: 4"]);
    let world = racked(&[&[&[4], &[4], &[2], &[2]], &[&[6], &[2]]]);
    assert_eq!(solved(&workers(4, 4, hard(2)), &world).unwrap(), ["m0 s0-0@2: 4"]);
    let refusal = solved(&workers(4, 4, hard(1)), &world).unwrap_err();
    assert_eq!(
        refusal,
        "needs 4 pods at once; 3 fit now in 2 clusters (at most 1 together); of 6 domains of tier 1 or lower none holds it; \
         best domain r1-0 of m1 takes 3; task w: 3 of 4 fit, each pod asks for cpu 2 and 6 is free"
    );
}

#[test]
fn a_cluster_is_one_tier_above_its_highest_hyper_node() {
    let world = racked(&[&[&[4], &[2], &[4]], &[&[2], &[2], &[2]]]);
    assert!(solved(&workers(5, 5, hard(2)), &world).is_err());
    assert_eq!(solved(&workers(5, 5, hard(3)), &world).unwrap(), ["m0 -: 5"]);
    let bare = World { names: vec!["m0".into()], capacities: vec![capacity(0, &[(4, 0), (4, 0)])] };
    assert_eq!(solved(&workers(4, 4, hard(1)), &bare).unwrap(), ["m0 -: 4"]);
    assert!(solved(&workers(4, 4, hard(0)), &bare).is_err());
}

#[test]
fn a_tier_may_be_given_by_name_where_a_cluster_has_it() {
    let world = racked(&[&[&[4], &[4]], &[&[4, 4], &[2]]]);
    assert_eq!(solved(&workers(4, 4, named("rack")), &world).unwrap(), ["m1 r1-0@1: 4"]);
    let bare = World { names: vec!["m0".into()], capacities: vec![capacity(0, &[(40, 0)])] };
    let refusal = solved(&workers(4, 4, named("rack")), &bare).unwrap_err();
    assert!(refusal.contains("no cluster has tier rack or lower: the tiers are cluster"), "{refusal}");
    assert_eq!(solved(&workers(4, 4, named("cluster")), &bare).unwrap(), ["m0 -: 4"]);
}

/// It read like a lack of capacity, and somebody would have waited for it.
#[test]
fn a_tier_that_no_cluster_has_is_said_with_those_that_there_are() {
    let world = racked(&[&[&[4], &[4]], &[&[4, 4], &[2]]]);
    let of_name = solved(&workers(4, 4, named("row")), &world).unwrap_err();
    assert!(of_name.contains("; no cluster has tier row or lower: the tiers are rack (1)"), "{of_name}");
    assert!(of_name.contains("cluster") && !of_name.contains("none holds it"), "{of_name}");
    let of_number = solved(&workers(4, 4, hard(0)), &world).unwrap_err();
    assert!(of_number.contains("; no cluster has tier 0 or lower: the tiers are rack (1)"), "{of_number}");
    let full = solved(&workers(40, 40, named("rack")), &world).unwrap_err();
    assert!(full.contains("none holds it") && !full.contains("no cluster has"), "{full}");
}

#[test]
fn an_elastic_hard_gang_goes_where_most_of_it_fits() {
    let world = racked(&[&[&[6], &[4]], &[&[8], &[2]]]);
    assert_eq!(solved(&workers(9, 2, hard(1)), &world).unwrap(), ["m1 r1-0@1: 4"]);
    assert_eq!(solved(&workers(9, 4, hard(2)), &world).unwrap(), ["m0 s0-0@2: 5"]);
}

#[test]
fn a_soft_gang_prefers_the_lowest_common_tier_and_full_size_before_it() {
    let soft = Some(Topology { hard: false, highest_tier: None, highest_tier_name: None });
    let world = racked(&[&[&[4], &[4], &[4]], &[&[6], &[2]]]);
    assert_eq!(solved(&workers(3, 1, soft.clone()), &world).unwrap(), ["m1 r1-0@1: 3"]);
    assert_eq!(solved(&workers(4, 1, soft.clone()), &world).unwrap(), ["m0 s0-0@2: 4"]);
    assert_eq!(solved(&workers(6, 1, soft.clone()), &world).unwrap(), ["m0 -: 6"]);
    assert_eq!(solved(&workers(10, 1, soft.clone()), &world).unwrap(), ["m0 -: 6", "m1 -: 4"]);
    let plan = split_gang(&problem(&workers(3, 1, soft), &world, Strategy::Aggregated)).unwrap();
    assert!(plan.clusters["m1"].domain.as_ref().unwrap().nodes.is_empty(), "a preference pins nobody");
}

#[test]
fn a_gang_that_says_nothing_of_topology_is_given_no_domain() {
    let world = racked(&[&[&[4], &[4]]]);
    assert_eq!(solved(&workers(2, 2, None), &world).unwrap(), ["m0 -: 2"]);
}

#[test]
fn a_hard_domain_is_pinned_and_what_is_assumed_is_held_in_it() {
    let world = racked(&[&[&[8], &[4]]]);
    let gang = workers(2, 2, hard(1));
    let plan = split_gang(&problem(&gang, &world, Strategy::Aggregated)).unwrap();
    let domain = plan.clusters["m0"].domain.as_ref().unwrap();
    assert_eq!((domain.nodes[0][0].key.as_str(), &domain.nodes[0][0].values), ("rack", &vec!["r0-1".to_owned()]));
    let left = subtract_assumed_pods(world.capacities[0].clone(), &gang, &[2], &Some(domain).into());
    let free = |rack: &str| {
        let is_its = |shape: &&NodeShape| shape.nodes[0].label("rack") == Some(rack);
        left.shapes.iter().filter(is_its).map(|shape| shape.free.get("cpu").unwrap().units_ceil()).sum::<i128>()
    };
    assert_eq!((free("r0-0"), free("r0-1")), (8, 0));
    // A gang without topology finds the room that is left, a hard one does not find it in the same rack.
    let world = World { names: world.names, capacities: vec![left] };
    assert_eq!(solved(&workers(2, 2, hard(1)), &world).unwrap(), ["m0 r0-0@1: 2"]);
}

/// The member's scheduler knows nothing of the room that was found in the domain unless the copy says it.
#[test]
fn a_soft_gang_is_led_to_its_domain_and_not_pinned() {
    let soft = Some(Topology { hard: false, highest_tier: None, highest_tier_name: None });
    let plan = split_gang(&problem(&workers(2, 2, soft), &racked(&[&[&[8], &[4]]]), Strategy::Aggregated)).unwrap();
    let domain = plan.clusters["m0"].domain.clone().unwrap();
    assert_eq!((domain.name.as_str(), domain.nodes.len()), ("r0-1", 0));
    assert_eq!(
        (domain.preferred[0][0].key.as_str(), &domain.preferred[0][0].values),
        ("rack", &vec!["r0-1".to_owned()])
    );
}

#[test]
fn what_is_assumed_of_a_soft_gang_is_held_in_its_domain_first() {
    let soft = Some(Topology { hard: false, highest_tier: None, highest_tier_name: None });
    let world = racked(&[&[&[2, 2], &[8]]]);
    let gang = workers(3, 3, soft);
    let domain = crate::plan::PlannedDomain { name: "r0-0".into(), tier: 1, ..Default::default() };
    let left = subtract_assumed_pods(world.capacities[0].clone(), &gang, &[3], &Some(&domain).into());
    let free: Vec<i128> = left.shapes.iter().map(|shape| shape.free.get("cpu").unwrap().units_ceil()).collect();
    assert_eq!(free, [0, 6]);
}

#[test]
fn a_domain_of_names_is_pinned_by_hostname_and_grows_only_there() {
    let mut inventory = member(0, &[&[4, 4], &[9]]);
    let names = ["r0-0-0", "r0-0-1"].map(|name| HyperNodeMember::Node(name.into())).into();
    inventory.apply_change(Change::HyperNodes(vec![HyperNode {
        name: "ib".into(),
        tier: 1,
        members: names,
        ..Default::default()
    }]));
    let world = World { names: vec!["m0".into()], capacities: vec![inventory.capacity()] };
    let gang = workers(2, 2, hard(1));
    let before = split_gang(&problem(&gang, &world, Strategy::Aggregated)).unwrap();
    let domain = before.clusters["m0"].domain.clone().unwrap();
    assert_eq!((domain.nodes[0][0].key.as_str(), domain.nodes[0][0].values.len()), (HOSTNAME, 2));
    let world = World {
        capacities: vec![subtract_assumed_pods(world.capacities[0].clone(), &gang, &[2], &Some(&domain).into())],
        ..world
    };
    let more = workers(9, 2, hard(1));
    let mut again = problem(&more, &world, Strategy::Aggregated);
    again.previous = Some(&before);
    let grown = split_gang(&again).unwrap();
    // Two more fit the domain; the other rack has room, but not for this gang. The pin stays word for word.
    assert_eq!(placed(&grown), ["m0 ib@1: 4"]);
    assert_eq!(grown.clusters["m0"].domain, Some(domain));
}

/// The domain of a job that runs is what its copy says, even where the HyperNode says something else now.
#[test]
fn a_gang_stays_in_its_domain_when_hyper_nodes_are_changed() {
    let world = racked(&[&[&[8], &[9, 9]]]);
    let gang = workers(2, 2, hard(1));
    let before = split_gang(&problem(&gang, &world, Strategy::Aggregated)).unwrap();
    assert_eq!(placed(&before), ["m0 r0-0@1: 2"]);
    let mut inventory = member(0, &[&[8], &[9, 9]]);
    inventory.apply_change(Change::HyperNodes(vec![]));
    let capacity = subtract_assumed_pods(inventory.capacity(), &gang, &[2], &before.clusters["m0"].pinned_domains());
    let world = World { capacities: vec![capacity], ..world };
    let more = workers(9, 2, hard(1));
    let mut again = problem(&more, &world, Strategy::Aggregated);
    again.previous = Some(&before);
    assert_eq!(placed(&split_gang(&again).unwrap()), ["m0 r0-0@1: 4"]);
}

/// Volcano's admission lets nobody change the template of a job that is there, and the pin is in the template.
#[test]
fn starting_afresh_does_not_change_the_domain_of_a_copy_that_is_there() {
    let world = racked(&[&[&[8], &[4]]]);
    let gang = workers(2, 2, hard(1));
    let before = split_gang(&problem(&gang, &racked(&[&[&[8], &[2]]]), Strategy::Aggregated)).unwrap();
    assert_eq!(placed(&before), ["m0 r0-0@1: 2"]);
    let mut afresh = problem(&gang, &world, Strategy::Aggregated);
    assert_eq!(placed(&split_gang(&afresh).unwrap()), ["m0 r0-1@1: 2"]);
    afresh.copies = Some(&before);
    assert_eq!(split_gang(&afresh).unwrap(), before);
}

fn level(name: &str, tier: Option<u32>, groups: &[&[u32]]) -> Level {
    Level { name: name.into(), tier, groups: groups.iter().map(|group| group.to_vec()).collect() }
}

#[test]
fn close_clusters_are_preferred_to_far_ones_and_required_by_name() {
    let world = racked(&[&[&[8]], &[&[4]], &[&[6]], &[&[2]]]);
    let levels = [level("region", None, &[&[0, 1], &[2, 3]]), level("provider", None, &[&[0, 1, 2, 3]])];
    let solved = |gang: &Gang| {
        let mut problem = problem(gang, &world, Strategy::Aggregated);
        problem.levels = &levels;
        split_gang(&problem).map(|plan| placed(&plan)).map_err(|refusal| refusal.to_string())
    };
    // 8 + 2 and 6 + 4 would fit better, and are farther apart.
    assert_eq!(solved(&workers(5, 5, None)).unwrap(), ["m0 -: 4", "m1 -: 1"]);
    assert_eq!(solved(&workers(4, 4, named("region"))).unwrap(), ["m0 r0-0@1: 4"]);
    assert_eq!(solved(&workers(6, 6, named("region"))).unwrap(), ["m0 -: 4", "m1 -: 2"]);
    assert!(solved(&workers(7, 7, named("region"))).unwrap_err().contains("tier region or lower"));
    assert_eq!(solved(&workers(7, 7, named("provider"))).unwrap(), ["m0 -: 4", "m2 -: 3"]);
    assert_eq!(solved(&workers(7, 7, None)).unwrap().len(), 2);
}

#[test]
fn a_cluster_whose_nodes_can_not_be_read_takes_no_gang_that_must_be_closer_than_it() {
    let much = [("cpu", 90), ("pods", 90)].map(|(name, n)| (name, Quantity::from_units(n))).into_iter().collect();
    let summary = Capacity::from_summary(&much, &Resources::new(), &Resources::new());
    let world = World { names: vec!["m0".into()], capacities: vec![summary] };
    assert!(solved(&workers(4, 4, hard(1)), &world).is_err());
    assert_eq!(solved(&workers(4, 4, named("cluster")), &world).unwrap(), ["m0 -: 4"]);
    assert_eq!(solved(&workers(4, 4, None), &world).unwrap(), ["m0 -: 4"]);
}

#[test]
fn every_copy_of_a_duplicated_gang_is_close() {
    let world = racked(&[&[&[8], &[4]], &[&[2], &[6]]]);
    let plan = |topology| {
        split_gang(&problem(&workers(2, 2, topology), &world, Strategy::Duplicated)).map(|plan| placed(&plan))
    };
    assert_eq!(plan(hard(1)).unwrap(), ["m0 r0-1@1: 2", "m1 r1-1@1: 2"]);
    let levels = [level("region", None, &[&[0, 1]])];
    let gang = workers(5, 5, named("region"));
    let mut problem = problem(&gang, &world, Strategy::Duplicated);
    problem.levels = &levels;
    assert!(split_gang(&problem).unwrap_err().to_string().contains("in every selected cluster"));
}

/// Tier numbers are each member's own: a number that reaches beyond the cluster is one that an admin declared.
#[test]
fn a_number_reaches_beyond_a_cluster_only_where_it_was_declared() {
    let world = racked(&[&[&[4]], &[&[4]]]);
    for (tier, fits) in [(None, false), (Some(9), true), (Some(11), false)] {
        let levels = [level("metro", tier, &[&[0, 1]])];
        let gang = workers(4, 4, hard(10));
        let mut problem = problem(&gang, &world, Strategy::Aggregated);
        problem.levels = &levels;
        assert_eq!(split_gang(&problem).is_ok(), fits, "{tier:?}");
    }
}
