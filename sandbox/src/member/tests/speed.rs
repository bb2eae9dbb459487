//! How long one decision takes with many pods; printed, and bounded so loosely that only a wrong order of growth fails.

use std::time::{Duration, Instant};

use super::*;

#[test]
fn a_decision_stays_cheap_with_two_thousand_pods_and_five_hundred_jobs() {
    let mut cluster = Cluster::new(200, "10");
    for index in 0..500 {
        cluster.submit(volcano_job(&format!("j{index:03}"), 4, 4, "1", "sleep 100000")).unwrap();
    }
    let fill = Instant::now();
    cluster.settle();
    let fill = fill.elapsed();
    let running = cluster.bound();
    let decide = || {
        let start = Instant::now();
        let wants = plan(&cluster.world, &cluster.config, &mut cluster.memory, cluster.now).wants;
        assert!(wants.is_empty());
        start.elapsed()
    };
    // The shortest of ten: a busy machine makes any single one long.
    let one = std::iter::repeat_with(decide).take(10).min().unwrap();
    println!(
        "member: 500 jobs, {} pods, {running} of them run: filled in {fill:?}, then {one:?} a decision",
        cluster.pods().len()
    );
    assert!(one < Duration::from_secs(1), "{one:?}");
}
