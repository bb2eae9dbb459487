//! What pods prefer of nodes decides between clusters that are equal in all that comes before it, and nothing else.

use super::*;
use crate::{
    gang::{NodeTerm, Operator, PreferredTerm, Requirement, Taint, Toleration},
    split::packing::{GangRequests, UnmetPreferences},
};

/// Nodes of so many cores with one label, and whether they have a `PreferNoSchedule` taint.
type Nodes = (u32, i64, &'static str, bool);

fn capacity_of(cluster: usize, nodes: &[Nodes]) -> Capacity {
    let shape = |(at, (count, cpu, disk, avoided)): (usize, &Nodes)| {
        let amounts: Amounts =
            [("cpu", *cpu), ("pods", 10)].map(|(name, n)| (name.into(), Quantity::from_units(n))).into();
        let taint = Taint { key: "batch".into(), value: String::new(), effect: "PreferNoSchedule".into() };
        NodeShape {
            labels: Some(Arc::new([("disk".to_owned(), (*disk).to_owned())].into())),
            taints: avoided.then_some(taint).into_iter().collect(),
            allocatable: Arc::new(amounts.clone()),
            free: Arc::new(amounts),
            nodes: (0..*count).map(|node| NodeRef::from(format!("n{cluster}-{at}-{node}"))).collect(),
            ..NodeShape::default()
        }
    };
    Capacity::new(nodes.iter().enumerate().map(shape).collect(), Source::Nodes)
}

fn prefers(terms: &[(u32, &str)]) -> Vec<PreferredTerm> {
    let term = |(weight, disk): &(u32, &str)| PreferredTerm {
        weight: *weight,
        term: NodeTerm {
            labels: vec![Requirement { key: "disk".into(), operator: Operator::In, values: vec![(*disk).to_owned()] }],
            fields: vec![],
        },
    };
    terms.iter().map(term).collect()
}

fn four_pods(preferred: Vec<PreferredTerm>) -> Gang {
    let mut gang = gang(vec![task("w", 4, 4, 1, 0)], 4);
    gang.tasks[0].request = [("cpu", Quantity::from_units(1)), ("pods", Quantity::from_units(1))].into_iter().collect();
    gang.tasks[0].node.preferred = preferred;
    gang
}

fn choose(gang: &Gang, clusters: &[&[Nodes]], change: impl FnOnce(&mut SplitProblem<'_>)) -> String {
    let world = World {
        names: (0..clusters.len()).map(|at| ClusterName::from(format!("m{at}"))).collect(),
        capacities: clusters.iter().enumerate().map(|(at, nodes)| capacity_of(at, nodes)).collect(),
    };
    let mut problem = problem(gang, &world, Strategy::Aggregated);
    change(&mut problem);
    let plan = split_gang(&problem).unwrap();
    plan.clusters.keys().map(ClusterName::as_str).collect::<Vec<_>>().join(" ")
}

#[test]
fn of_clusters_that_are_equal_otherwise_the_one_wins_whose_nodes_more_pods_prefer() {
    const HDD: &[Nodes] = &[(4, 4, "hdd", false)];
    // Larger, so that the best fit alone would never take it.
    const SSD: &[Nodes] = &[(8, 4, "ssd", false)];
    const ONE_SSD: &[Nodes] = &[(1, 1, "ssd", false), (3, 4, "hdd", false)];
    const AVOIDED: &[Nodes] = &[(3, 4, "hdd", true)];
    const AVOIDED_SSD: &[Nodes] = &[(8, 4, "ssd", true)];
    type Row<'a> = (&'a str, &'a [(u32, &'a str)], &'a [&'a [Nodes]], &'a str);
    let rows: &[Row<'_>] = &[
        ("nothing is preferred: the best fit", &[], &[SSD, HDD], "m1"),
        ("all pods find what they prefer", &[(10, "ssd")], &[HDD, SSD], "m1"),
        ("one pod does, and four in another", &[(10, "ssd")], &[ONE_SSD, SSD], "m1"),
        ("one pod does, and none in another", &[(10, "ssd")], &[HDD, ONE_SSD], "m1"),
        ("the heavier term counts", &[(20, "ssd"), (10, "hdd")], &[HDD, SSD], "m1"),
        ("nobody has it: the best fit", &[(10, "nvme")], &[SSD, HDD], "m1"),
        ("nodes that pods should leave alone", &[], &[AVOIDED, HDD], "m1"),
        ("a term comes before any taint", &[(1, "ssd")], &[HDD, AVOIDED_SSD], "m1"),
    ];
    for (what, terms, clusters, want) in rows {
        assert_eq!(choose(&four_pods(prefers(terms)), clusters, |_| {}), *want, "{what}");
    }
    let mut tolerating = four_pods(vec![]);
    tolerating.tasks[0].node.tolerations = vec![Toleration { exists: true, ..Toleration::default() }];
    assert_eq!(choose(&tolerating, &[AVOIDED, HDD], |_| {}), "m0", "the best fit, for pods that stand the taint");
}

#[test]
fn preferences_move_nothing_into_more_clusters_away_from_its_data_or_to_a_dearer_cluster() {
    const SMALL: &[Nodes] = &[(1, 2, "ssd", false)];
    const HDD: &[Nodes] = &[(4, 4, "hdd", false)];
    const SSD: &[Nodes] = &[(4, 4, "ssd", false)];
    let gang = four_pods(prefers(&[(100, "ssd")]));
    assert_eq!(choose(&gang, &[SMALL, SMALL, HDD], |_| {}), "m2");
    assert_eq!(choose(&gang, &[HDD, SSD], |problem| problem.candidates[1].data = 1), "m0");
    assert_eq!(choose(&gang, &[HDD, SSD], |problem| problem.candidates[1].cost = 1), "m0");
    assert_eq!(choose(&gang, &[&[(1, 2, "hdd", false)], SMALL, SMALL], |_| {}), "m1 m2");
}

#[test]
fn the_mean_of_all_pods_counts_whose_best_nodes_are_taken_first() {
    let gang = four_pods(prefers(&[(10, "ssd"), (3, "new")]));
    let mean = |nodes: &[Nodes]| GangRequests::new(&gang).mean_unmet_preferences(&capacity_of(0, nodes));
    let of = |unmet, tainted| UnmetPreferences { unmet, tainted };
    assert_eq!(mean(&[(9, 1, "ssd", false), (9, 1, "hdd", false)]), of(3000, 0));
    assert_eq!(mean(&[(1, 1, "ssd", false), (9, 1, "hdd", true)]), of((3 + 3 * 13) * 1000 / 4, 750));
    assert_eq!(mean(&[(1, 1, "new", false)]), of(10_000, 0), "of the one pod that fits");
    assert_eq!(mean(&[]), of(0, 0));
    // A label that shapes do not carry is asked of each node.
    let mut capacity = capacity_of(0, &[(2, 2, "ssd", false)]);
    capacity.shown = Some(Arc::default());
    assert_eq!(GangRequests::new(&gang).mean_unmet_preferences(&capacity), of(3000, 0));
}

#[test]
fn images_decide_after_what_pods_prefer_and_before_the_best_fit() {
    const TIGHT: &[Nodes] = &[(4, 4, "hdd", false)];
    const ROOMY: &[Nodes] = &[(8, 4, "hdd", false)];
    const SSD: &[Nodes] = &[(4, 4, "ssd", false)];
    const HALF: &[Nodes] = &[(1, 2, "hdd", false)];
    type Row<'a> = (&'a str, &'a [&'a [Nodes]], &'a [u64], &'a str);
    let rows: &[Row<'_>] = &[
        ("nothing is anywhere: the best fit", &[ROOMY, TIGHT], &[10, 10], "m1"),
        ("a roomier cluster has more of them", &[ROOMY, TIGHT], &[9, 10], "m0"),
        ("what pods prefer comes first", &[SSD, ROOMY], &[10, 0], "m0"),
        ("so does one cluster instead of two", &[HALF, HALF, ROOMY], &[0, 0, 10], "m2"),
        ("over all clusters in use", &[HALF, HALF, HALF], &[9, 5, 2], "m1 m2"),
    ];
    for (what, clusters, missing, want) in rows {
        let say = |problem: &mut SplitProblem<'_>| {
            problem.candidates.iter_mut().zip(*missing).for_each(|(one, missing)| one.missing_images = *missing);
        };
        assert_eq!(choose(&four_pods(prefers(&[(10, "ssd")])), clusters, say), *want, "{what}");
    }
    let dearer = |problem: &mut SplitProblem<'_>| {
        (problem.candidates[0].missing_images, problem.candidates[0].cost) = (0, 1);
        problem.candidates[1].missing_images = 10;
    };
    assert_eq!(choose(&four_pods(vec![]), &[TIGHT, TIGHT], dearer), "m1");
}
