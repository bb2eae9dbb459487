//! Gangs under spread constraints by region, against every choice that these permit.

use std::{collections::BTreeSet, sync::Arc};

use proptest::{prelude::*, strategy::Strategy as Generate};

use super::{super::Spread, *};
use crate::{
    cluster_choice::ClusterChoice,
    data_source::{ClaimKey, DataClaim, DataIndex, DataLocality, DataSource},
    gang::{NodeClaim, Operator, Requirement, Task, WorkloadRef},
    inventory::{Amounts, NodeShape, Source},
    place::QueueClusters,
    quantity::Quantity,
};

/// Tasks of (pods, cores each), all needed.
fn gang_of(tasks: &[(u32, i64)]) -> Gang {
    let task = |(at, (replicas, cores)): (usize, &(u32, i64))| Task {
        name: format!("t{at}").into(),
        replicas: *replicas,
        min_available: *replicas,
        request: [("cpu", Quantity::from_units(*cores))].into_iter().collect(),
        node: NodeClaim::default(),
        priority_class: String::new(),
        partition: None,
    };
    let min_available = tasks.iter().map(|task| task.0).sum();
    let tasks = tasks.iter().enumerate().map(task).collect();
    Gang::new(tasks, min_available)
}

/// Nodes of so many cores.
fn capacity(nodes: &[i64]) -> Capacity {
    let shape = |(at, cores): (usize, &i64)| {
        let free: Amounts = [("cpu".into(), Quantity::from_units(*cores))].into();
        let (allocatable, free) = (Arc::new(free.clone()), Arc::new(free));
        NodeShape {
            labels: Some(Arc::default()),
            allocatable,
            free,
            nodes: vec![format!("n{at}").into()],
            ..NodeShape::default()
        }
    };
    Capacity::new(nodes.iter().enumerate().map(shape).collect(), Source::Nodes)
}

/// A gang and clusters of (region, cores of the nodes), under constraints by region and by cluster.
#[derive(Debug, Clone)]
struct Case {
    tasks: Vec<(u32, i64)>,
    clusters: Vec<(u8, Vec<i64>)>,
    by_region: (i64, i64),
    by_cluster: (i64, i64),
}

impl Case {
    fn binding(&self) -> Binding {
        let spread = |by, (min, max)| Spread { by, min, max };
        let placement = super::super::Placement {
            division: Some(Division::Aggregated),
            spread: vec![spread(SpreadBy::Region, self.by_region), spread(SpreadBy::Cluster, self.by_cluster)],
            ..Default::default()
        };
        let replicas = self.tasks.iter().map(|task| i64::from(task.0)).sum();
        Binding {
            uid: "u".into(),
            api_version: "v1".into(),
            kind: "Job".into(),
            replicas,
            divisible: true,
            is_workload: true,
            placement,
            ..Binding::default()
        }
    }

    fn place(&self, previous: Option<&Plan>) -> Result<Decision, NotPlaced> {
        let gang = gang_of(&self.tasks);
        let serves: super::super::Apis = [("v1".to_owned(), "Job".to_owned())].into();
        let cluster = |(at, (region, _)): (usize, &(u8, Vec<i64>))| Cluster {
            name: format!("m{at}"),
            region: format!("r{region}"),
            ready: true,
            serves: serves.clone(),
            ..Cluster::default()
        };
        let clusters: Vec<Cluster> = self.clusters.iter().enumerate().map(cluster).collect();
        let capacities: Vec<Capacity> = self.clusters.iter().map(|(_, nodes)| capacity(nodes)).collect();
        let held = previous.into_iter().flat_map(|plan| plan.by_cluster());
        let held = held.map(|(name, pods)| Target { cluster: name.as_str().to_owned(), replicas: i64::from(pods) });
        let binding = Binding { previous: held.collect(), ..self.binding() };
        let clusters = clusters.iter().zip(&capacities).collect();
        place_binding(&Request {
            binding: &binding,
            gang: &gang,
            whole: true,
            previous,
            clusters,
            linked: &[],
            run: None,
        })
    }

    /// Whether some choice of clusters that Karmada could make has these.
    fn permits(&self, used: &[usize]) -> bool {
        let of = |clusters: &[usize]| clusters.iter().map(|at| self.clusters[*at].0).collect::<BTreeSet<u8>>();
        let all: Vec<usize> = (0..self.clusters.len()).collect();
        let within = |(min, max): (i64, i64), count: usize| (min..=max).contains(&(count as i64));
        subsets(&all).any(|chosen| {
            let regions = of(&chosen);
            let full = all.iter().filter(|at| regions.contains(&self.clusters[**at].0)).count();
            used.iter().all(|one| chosen.contains(one))
                && within(self.by_region, regions.len())
                && full as i64 >= self.by_cluster.0
                && chosen.len() as i64 <= self.by_cluster.1.max(regions.len() as i64)
        })
    }

    fn fits(&self) -> bool {
        let mut pods: Vec<i64> = self.tasks.iter().flat_map(|(pods, cores)| vec![*cores; *pods as usize]).collect();
        pods.sort_unstable_by_key(|cores| std::cmp::Reverse(*cores));
        let all: Vec<usize> = (0..self.clusters.len()).collect();
        subsets(&all).any(|used| {
            let mut nodes: Vec<i64> = used.iter().flat_map(|at| self.clusters[*at].1.clone()).collect();
            self.permits(&used) && packs(&mut nodes, &pods)
        })
    }
}

fn subsets(of: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    (1..1_u32 << of.len()).map(|set| of.iter().copied().filter(|at| set >> at & 1 == 1).collect())
}

fn packs(nodes: &mut Vec<i64>, pods: &[i64]) -> bool {
    let Some((pod, rest)) = pods.split_first() else { return true };
    (0..nodes.len()).any(|at| {
        if nodes[at] < *pod {
            return false;
        }
        nodes[at] -= pod;
        let fits = packs(nodes, rest);
        nodes[at] += pod;
        fits
    })
}

fn shown(decision: &Decision) -> Vec<(&str, i64)> {
    decision.targets.iter().map(|target| (target.cluster.as_str(), target.replicas)).collect()
}

/// Each cluster of the first region takes two pods, which is four by the sum; but none takes a large one.
#[test]
fn a_gang_goes_into_a_region_that_holds_it_where_karmadas_choice_does_not() {
    let case = Case {
        tasks: vec![(2, 3), (2, 2)],
        clusters: vec![(0, vec![2, 2]), (0, vec![2, 2]), (1, vec![5, 5])],
        by_region: (1, 1),
        by_cluster: (1, 2),
    };
    assert_eq!(shown(&case.place(None).unwrap()), [("m2", 4)]);
}

/// Karmada takes no second region where one has the clusters that are needed.
#[test]
fn two_regions_are_used_where_they_may_be_and_one_is_not_enough() {
    let case = Case {
        tasks: vec![(6, 1)],
        clusters: vec![(0, vec![4]), (1, vec![2]), (2, vec![1])],
        by_region: (1, 2),
        by_cluster: (1, 2),
    };
    assert_eq!(shown(&case.place(None).unwrap()), [("m0", 4), ("m1", 2)]);
    let least = Case { by_region: (2, 3), by_cluster: (1, 3), ..case };
    assert_eq!(shown(&least.place(None).unwrap()), [("m0", 4), ("m1", 2)]);
}

#[test]
fn a_gang_that_is_placed_does_not_move_to_a_better_region() {
    let case = Case {
        tasks: vec![(4, 1)],
        clusters: vec![(0, vec![2, 2]), (1, vec![9])],
        by_region: (1, 1),
        by_cluster: (1, 1),
    };
    let before = Case { clusters: vec![(0, vec![2, 2]), (1, vec![])], ..case.clone() }.place(None).unwrap();
    assert_eq!(shown(&before), [("m0", 4)]);
    let after = Case { clusters: vec![(0, vec![]), (1, vec![90])], ..case };
    assert_eq!(shown(&after.place(before.plan.as_ref()).unwrap()), [("m0", 4)]);
}

fn any_case() -> impl Generate<Value = Case> {
    let tasks = prop::collection::vec((1..4u32, 1..4i64), 1..3);
    let clusters = prop::collection::vec((0..3u8, prop::collection::vec(0..6i64, 0..3)), 1..6);
    let range = || (1..4i64, 0..3i64).prop_map(|(min, more)| (min, min + more));
    (tasks, clusters, range(), range()).prop_map(|(tasks, clusters, by_region, by_cluster)| Case {
        tasks,
        clusters,
        by_region,
        by_cluster,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn a_gang_that_fits_a_choice_that_is_permitted_is_not_refused(case in any_case()) {
        match case.place(None) {
            Ok(decision) => {
                let used: Vec<usize> = shown(&decision).iter().map(|(name, _)| name[1..].parse().unwrap()).collect();
                prop_assert!(case.permits(&used), "{:?}", decision);
            }
            Err(_) => prop_assert!(!case.fits()),
        }
    }
}

/// Two clusters of four cores with these windows, and a gang of four.
fn place_beside_windows(windows: [&str; 2], run: Option<ExpectedRun>, held: Option<&Plan>) -> Result<Decision, String> {
    let case = Case { tasks: vec![(4, 1)], clusters: vec![], by_region: (1, 1), by_cluster: (1, 2) };
    let cluster = |(at, text): (usize, &str)| Cluster {
        name: format!("m{at}"),
        ready: true,
        serves: [("v1".to_owned(), "Job".to_owned())].into(),
        maintenance: text.parse().unwrap(),
        ..Cluster::default()
    };
    let clusters: Vec<Cluster> = windows.into_iter().enumerate().map(cluster).collect();
    let previous = held.into_iter().flat_map(|plan| plan.by_cluster());
    let target = |(name, pods): (&ClusterName, u32)| Target { cluster: name.to_string(), replicas: pods.into() };
    let mut binding = Binding { previous: previous.map(target).collect(), ..case.binding() };
    binding.placement.spread.clear();
    let (gang, free) = (gang_of(&case.tasks), capacity(&[4]));
    let clusters = clusters.iter().map(|cluster| (cluster, &free)).collect();
    let request = Request { binding: &binding, gang: &gang, whole: true, previous: held, clusters, linked: &[], run };
    place_binding(&request).map_err(|error| match describe_maintenance(&request) {
        Some(windows) => format!("{error}; {windows}"),
        None => error.to_string(),
    })
}

const AT_EIGHT: &str = r#"[{"start":"1970-01-01T08:00:00Z","end":"1970-01-01T09:00:00Z","notice":"2h"}]"#;

fn run_from(hour: i64, hours: Option<i64>) -> Option<ExpectedRun> {
    let from = crate::time::EpochSeconds::new(hour * 3600);
    Some(ExpectedRun { from, ends: hours.map(|hours| from.saturating_add(hours * 3600)), limit: None, delay: 0 })
}

#[test]
fn a_gang_goes_where_no_maintenance_window_is_in_its_way() {
    let beside =
        |run| place_beside_windows([AT_EIGHT, "[]"], run, None).map(|decision| shown(&decision)[0].0.to_owned());
    for (run, cluster) in [
        (run_from(6, Some(2)), "m0"),
        (run_from(6, Some(3)), "m1"),
        (run_from(5, None), "m0"),
        (run_from(6, None), "m1"),
        (run_from(8, Some(1)), "m1"),
        (run_from(9, None), "m0"),
        (None, "m0"),
    ] {
        assert_eq!(beside(run).as_deref(), Ok(cluster), "{run:?}");
    }
}

#[test]
fn a_gang_that_finds_no_place_beside_windows_is_told_of_each() {
    let reported = place_beside_windows([AT_EIGHT, AT_EIGHT], run_from(7, Some(2)), None).unwrap_err();
    assert_eq!(
        reported,
        "0/2 clusters are available: 2 cluster(s) is kept for maintenance.; cluster m0 is under maintenance from \
         1970-01-01T08:00:00Z to 1970-01-01T09:00:00Z: it would run until 1970-01-01T09:00:00Z; cluster m1 is under \
         maintenance from 1970-01-01T08:00:00Z to 1970-01-01T09:00:00Z: it would run until 1970-01-01T09:00:00Z"
    );
}

#[test]
fn what_is_in_a_cluster_stays_through_its_window_and_gets_no_more_there() {
    let small = Case { tasks: vec![(2, 1)], clusters: vec![(0, vec![4])], by_region: (1, 1), by_cluster: (1, 1) };
    let before = small.place(None).unwrap().plan.unwrap();
    let during = place_beside_windows([AT_EIGHT, "[]"], run_from(8, None), Some(&before)).unwrap();
    assert_eq!(shown(&during), [("m0", 2), ("m1", 2)]);
    let after = place_beside_windows([AT_EIGHT, "[]"], run_from(9, None), Some(&before)).unwrap();
    assert_eq!(shown(&after), [("m0", 4)]);
}

/// A gang of four pods beside clusters of four cores, whose data is in these.
fn place_by_data(has: &[&str], held: Option<&Plan>) -> Result<Decision, String> {
    place_beside_two(Binding { data: Some(claimed_in(has)), ..Binding::default() }, held)
}

/// The same, whose user lets it go to these and keeps it out of those.
fn place_by_choice(only: &[&str], exclude: &[&str], held: Option<&Plan>) -> Result<Decision, String> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let choice = ClusterChoice { only: names(only), exclude: names(exclude) };
    place_beside_two(Binding { choice: Some(choice.into()), ..Binding::default() }, held)
}

fn place_beside_two(says: Binding, held: Option<&Plan>) -> Result<Decision, String> {
    place_beside_cores([4, 4], says, held)
}

/// Beside clusters of so many cores.
fn place_beside_cores(cores: [i64; 2], says: Binding, held: Option<&Plan>) -> Result<Decision, String> {
    let case = Case { tasks: vec![(4, 1)], clusters: vec![], by_region: (1, 1), by_cluster: (1, 2) };
    let cluster = |at: usize| Cluster {
        name: format!("m{at}"),
        ready: true,
        serves: [("v1".to_owned(), "Job".to_owned())].into(),
        ..Cluster::default()
    };
    let clusters: Vec<Cluster> = (0..2).map(cluster).collect();
    let previous = held.into_iter().flat_map(|plan| plan.by_cluster());
    let target = |(name, pods): (&ClusterName, u32)| Target { cluster: name.to_string(), replicas: pods.into() };
    let Binding { data, choice, queue, .. } = says;
    let mut binding = Binding { previous: previous.map(target).collect(), data, choice, queue, ..case.binding() };
    binding.placement.spread.clear();
    let (gang, free) = (gang_of(&case.tasks), cores.map(|cores| capacity(&[cores])));
    let clusters = clusters.iter().zip(&free).collect();
    let request =
        Request { binding: &binding, gang: &gang, whole: true, previous: held, clusters, linked: &[], run: None };
    place_binding(&request).map_err(|error| append_reasons(error.to_string(), &request, std::iter::empty()))
}

/// One required claim of what is in these clusters.
fn claimed_in(clusters: &[&str]) -> Arc<DataLocality> {
    let workload = WorkloadRef { group: "g".into(), kind: "Job".into(), namespace: "ns".into(), name: "j".into() };
    let key = ClaimKey { namespace: "ns".into(), name: "c".into() };
    let (data, mut index) = (Arc::default(), DataIndex::default());
    let workload_ref = workload.clone().into();
    index.set_claim(DataClaim {
        key,
        data,
        workload: workload_ref,
        preferred: false,
        deleting: false,
        faults: Vec::new(),
    });
    let clusters: BTreeSet<String> = clusters.iter().map(|cluster| (*cluster).to_owned()).collect();
    index.set_source(DataSource { name: "s".into(), clusters: clusters.into(), ..DataSource::default() });
    index.find_locality(&workload).unwrap()
}

#[test]
fn a_gang_goes_where_its_claims_are_satisfied_and_nowhere_else() {
    assert_eq!(shown(&place_by_data(&["m0"], None).unwrap()), [("m0", 4)]);
    assert_eq!(shown(&place_by_data(&["m1", "m2"], None).unwrap()), [("m1", 4)]);
    assert_eq!(
        place_by_data(&["m2"], None).unwrap_err(),
        "0/2 clusters are available: 2 cluster(s) did not have the data of its DataSourceClaims; its data is in m2"
    );
}

#[test]
fn what_is_in_a_cluster_stays_without_its_data_and_gets_no_more_there() {
    let small = Case { tasks: vec![(2, 1)], clusters: vec![(0, vec![4])], by_region: (1, 1), by_cluster: (1, 1) };
    let before = small.place(None).unwrap().plan.unwrap();
    assert_eq!(shown(&place_by_data(&["m1"], Some(&before)).unwrap()), [("m0", 2), ("m1", 2)]);
    assert_eq!(shown(&place_by_data(&["m0"], Some(&before)).unwrap()), [("m0", 4)]);
}

#[test]
fn a_gang_goes_where_its_user_lets_it_go_and_nowhere_else() {
    assert_eq!(shown(&place_by_choice(&["m1"], &[], None).unwrap()), [("m1", 4)]);
    assert_eq!(shown(&place_by_choice(&[], &["m0"], None).unwrap()), [("m1", 4)]);
    assert_eq!(
        place_by_choice(&["m0"], &["m0"], None).unwrap_err(),
        "0/2 clusters are available: 2 cluster(s) were not chosen by its user; its user lets it go only to m0; its user \
         keeps it out of m0"
    );
    let mistyped = place_by_choice(&["m7", "m8"], &[], None).unwrap_err();
    assert!(mistyped.ends_with("its user lets it go only to m7, m8; there are no clusters m7, m8"), "{mistyped}");
}

#[test]
fn what_is_in_a_cluster_stays_where_its_user_chose_others_and_gets_no_more_there() {
    let small = Case { tasks: vec![(2, 1)], clusters: vec![(0, vec![4])], by_region: (1, 1), by_cluster: (1, 1) };
    let before = small.place(None).unwrap().plan.unwrap();
    assert_eq!(shown(&place_by_choice(&["m1"], &[], Some(&before)).unwrap()), [("m0", 2), ("m1", 2)]);
    assert_eq!(shown(&place_by_choice(&[], &["m1"], Some(&before)).unwrap()), [("m0", 4)]);
}

#[test]
fn a_gang_that_gets_no_more_where_it_is_is_told_of_all_that_keeps_it_from_growing_there() {
    let small = Case { tasks: vec![(2, 1)], clusters: vec![(0, vec![4])], by_region: (1, 1), by_cluster: (1, 1) };
    let before = small.place(None).unwrap().plan.unwrap();
    let refuse = |says: Binding| place_beside_cores([4, 1], says, Some(&before)).unwrap_err();
    let gold = Requirement { key: "tier".into(), operator: Operator::In, values: vec!["gold".into()] };
    let exclude = ["m0".to_owned()].into();
    let choice = ClusterChoice { exclude, ..ClusterChoice::default() };
    for (says, reported) in [
        (Binding { data: Some(claimed_in(&["m1"])), ..Binding::default() }, "; its data is in m1"),
        (
            Binding {
                queue: Some(QueueClusters { path: vec!["q".into()], selector: vec![gold] }.into()),
                ..Binding::default()
            },
            "; queue q uses only clusters whose labels match \"tier in (gold)\"",
        ),
        (Binding { choice: Some(choice.into()), ..Binding::default() }, "; its user keeps it out of m0"),
    ] {
        let refusal = refuse(says);
        assert!(refusal.ends_with(reported), "{refusal}");
    }
}
