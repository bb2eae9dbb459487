//! Every row of a trace and of a fleet is read. The files are in `fixtures/traces`; `CALDERA_TRACES` names a folder
//! with the public ones, for which other numbers are expected.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use caldera_simulate::{
    read::{self, Trace, TraceFormat, TraceOptions},
    world::{MemberCluster, Shapes},
};

fn read_file(name: &str) -> String {
    caldera_fixtures::read_text(&caldera_fixtures::find_folder("CALDERA_TRACES", "traces").join(name))
}

/// What the files hold: the public ones, or those of this project.
fn expect<T>(public: T, ours: T) -> T {
    if std::env::var_os("CALDERA_TRACES").is_some() { public } else { ours }
}

fn units(clusters: &[MemberCluster], resource: &str) -> i128 {
    let nodes = clusters.iter().flat_map(|cluster| &cluster.nodes);
    nodes.map(|node| node.allocatable.get(resource).units_ceil()).sum()
}

fn jobs(text: &str, format: TraceFormat, clusters: &[MemberCluster]) -> Trace {
    let options = TraceOptions { format, ..TraceOptions::default() };
    read::read_trace(text, &options, &read::list_offered_resources(clusters), &mut Shapes::default()).unwrap()
}

#[test]
fn the_public_fleets_are_read_whole_and_dealt_out_evenly() {
    let spot = read::read_fleet(&read_file("spot_nodes.csv"), 8, 1).unwrap();
    let sums = (spot.len(), units(&spot, "nvidia.com/gpu"), units(&spot, "cpu"));
    assert_eq!(sums, expect((8, 10_412, 632_636), (8, 513, 14_528)));
    let nodes: Vec<usize> = spot.iter().map(|cluster| cluster.nodes.len()).collect();
    assert_eq!(nodes.iter().sum::<usize>(), expect(4_278, 90));
    assert_eq!(nodes.iter().max().unwrap() - nodes.iter().min().unwrap(), 1);
    let openb = read::read_fleet(&read_file("openb_nodes.csv"), 1, 1).unwrap();
    assert_eq!((openb[0].nodes.len(), units(&openb, "nvidia.com/gpu")), expect((1_523, 6_212), (60, 202)));
}

#[test]
fn the_public_traces_are_read_whole() {
    let fleet = read::read_fleet(&read_file("openb_nodes.csv"), 8, 1).unwrap();
    let openb = jobs(&read_file("openb_pods.csv"), TraceFormat::Openb, &fleet);
    // Of the 8,152 public pods 897 never ran. This fleet tells of memory, so that nothing is dropped.
    assert_eq!((openb.jobs.len(), openb.notes.len()), expect((7_255, 2), (269, 2)), "{:?}", openb.notes);
    let dlrm = jobs(&read_file("dlrm_instances.csv"), TraceFormat::Dlrm, &fleet);
    let pods: u64 = dlrm.jobs.iter().map(|job| u64::from(job.shape.gang.replicas())).sum();
    assert_eq!((dlrm.jobs.len(), pods), expect((7_181, 23_871), (65, 343)));
    let gangs = dlrm.jobs.iter().filter(|job| job.shape.gang.tasks.len() > 1).count();
    assert!(gangs > expect(600, 50), "{gangs}");
}
