//! Tasks of which a node takes only so many pods.

use super::*;

/// Pods of tasks one by one on each node in turn.
fn brute(gang: &Gang, nodes: &[(i64, i64)]) -> bool {
    fn place(pods: &[(usize, &Task)], nodes: &mut [(i64, i64, Vec<u32>)]) -> bool {
        let Some(((at, task), rest)) = pods.split_first() else { return true };
        let asked = |name| i64::try_from(task.request.get(name).units_ceil()).unwrap();
        let (cpu, gpu) = (asked("cpu"), asked("gpu"));
        (0..nodes.len()).any(|node| {
            let (free_cpu, free_gpu, held) = &nodes[node];
            if *free_cpu < cpu || *free_gpu < gpu || task.node.most_per_node.is_some_and(|most| held[*at] >= most) {
                return false;
            }
            nodes[node].0 -= cpu;
            nodes[node].1 -= gpu;
            nodes[node].2[*at] += 1;
            let fits = place(rest, nodes);
            nodes[node].0 += cpu;
            nodes[node].1 += gpu;
            nodes[node].2[*at] -= 1;
            fits
        })
    }
    let pods = gang.tasks.iter().enumerate().flat_map(|one| std::iter::repeat_n(one, one.1.replicas as usize));
    let mut nodes: Vec<_> = nodes.iter().map(|(cpu, gpu)| (*cpu, *gpu, vec![0; gang.tasks.len()])).collect();
    place(&pods.collect::<Vec<_>>(), &mut nodes)
}

proptest::proptest! {
    /// Host ports, and pods that keep off each other.
    #[test]
    fn no_node_takes_more_of_a_task_than_it_may_and_what_fits_is_found(
        nodes in proptest::collection::vec((0i64..5, 0i64..3), 1..4),
        tasks in proptest::collection::vec((1u32..4, 0i64..3, 0i64..2, proptest::option::of(1u32..3)), 1..4),
    ) {
        let task = |(at, (replicas, cpu, gpu, most)): (usize, &(u32, i64, i64, Option<u32>))| {
            let mut task = task(&format!("t{at}"), *replicas, *replicas, *cpu, *gpu);
            task.node.most_per_node = *most;
            task
        };
        let tasks: Vec<Task> = tasks.iter().enumerate().map(task).collect();
        let whole: Vec<u32> = tasks.iter().map(|task| task.replicas).collect();
        let all = whole.iter().sum();
        let gang = gang(tasks, all);
        let capacity = capacity(0, &nodes);
        let fits = brute(&gang, &nodes);
        proptest::prop_assert_eq!(super::gang_fits(&gang, &capacity), fits);
        let world = World { names: vec!["m0".into()], capacities: vec![capacity] };
        proptest::prop_assert_eq!(split_gang(&problem(&gang, &world, Strategy::Aggregated)).is_ok(), fits);
        let left = without(&world.capacities[0], &gang, &whole);
        let cpu = |capacity: &Capacity| capacity.sum_free().get("cpu").units_ceil();
        let asked = gang.sum_full_demand().get("cpu").units_ceil();
        proptest::prop_assert_eq!(!fits || cpu(&world.capacities[0]) - cpu(&left) == asked, true);
    }
}

#[test]
fn one_to_a_node_is_said_where_nodes_run_out() {
    let mut worker = task("w", 3, 3, 1, 0);
    worker.node.most_per_node = Some(1);
    let refusal = split(&gang(vec![worker.clone()], 3), &[vec![(9, 0), (9, 0)]], Strategy::Aggregated).unwrap_err();
    assert!(refusal.to_string().ends_with("task w: 2 of 3 fit, a node takes 1 at most and 2 match"), "{refusal}");
    let plan = split(&gang(vec![worker], 3), &[vec![(9, 0), (9, 0)], vec![(9, 0)]], Strategy::Aggregated).unwrap();
    assert_eq!(shown(&plan), ["m0: w 2/2 (min 2)", "m1: w 1/1 (min 1)"]);
    // Of a cluster of which only the sum is known nobody knows the nodes.
    let amounts = [("cpu", 9), ("pods", 9)].map(|(name, n)| (name, Quantity::from_units(n))).into_iter().collect();
    let sum = Capacity::from_summary(&amounts, &Resources::new(), &Resources::new());
    let mut alone = task("w", 3, 3, 1, 0);
    alone.node.most_per_node = Some(1);
    alone.request = [("cpu", Quantity::from_units(1))].into_iter().collect();
    let world = World { names: vec!["m0".into()], capacities: vec![sum] };
    assert!(split_gang(&problem(&gang(vec![alone], 3), &world, Strategy::Aggregated)).is_ok());
}
