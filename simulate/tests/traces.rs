//! The public traces are read whole. They are no part of this repository: `CALDERA_TRACES` names their directory, else
//! `shared/traces` beside the repository is looked at; without either the tests say so and pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{fs, path::PathBuf};

use caldera_simulate::{
    read::{self, Trace, TraceFormat, TraceOptions},
    world::{MemberCluster, Shapes},
};

fn file(name: &str) -> Option<String> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let dir = std::env::var_os("CALDERA_TRACES").map_or(beside, PathBuf::from);
    let text = fs::read_to_string(dir.join(name));
    if text.is_err() {
        eprintln!("skipped: there is no {name}; set CALDERA_TRACES to the directory of the public traces");
    }
    text.ok()
}

fn units(clusters: &[MemberCluster], resource: &str) -> i128 {
    let nodes = clusters.iter().flat_map(|cluster| &cluster.nodes);
    nodes.map(|node| node.allocatable.get(resource).units_ceil()).sum()
}

fn jobs(text: &str, format: TraceFormat, clusters: &[MemberCluster]) -> Trace {
    let options = TraceOptions { format, ..TraceOptions::default() };
    read::jobs(text, &options, &read::offered(clusters), &mut Shapes::default()).unwrap()
}

#[test]
fn the_public_fleets_are_read_whole_and_dealt_out_evenly() {
    let (Some(spot), Some(openb)) = (file("spot_nodes.csv"), file("openb_nodes.csv")) else { return };
    let spot = read::fleet(&spot, 8, 1).unwrap();
    assert_eq!((spot.len(), units(&spot, "nvidia.com/gpu"), units(&spot, "cpu")), (8, 10_412, 632_636));
    let nodes: Vec<usize> = spot.iter().map(|cluster| cluster.nodes.len()).collect();
    assert_eq!((nodes.iter().sum::<usize>(), nodes.iter().max().unwrap() - nodes.iter().min().unwrap()), (4_278, 1));
    let openb = read::fleet(&openb, 1, 1).unwrap();
    assert_eq!((openb[0].nodes.len(), units(&openb, "nvidia.com/gpu")), (1_523, 6_212));
}

#[test]
fn the_public_traces_are_read_whole() {
    let (Some(nodes), Some(pods), Some(instances)) =
        (file("openb_nodes.csv"), file("openb_pods.csv"), file("dlrm_instances.csv"))
    else {
        return;
    };
    let fleet = read::fleet(&nodes, 8, 1).unwrap();
    let openb = jobs(&pods, TraceFormat::Openb, &fleet);
    // Of 8,152 pods 897 never ran. This fleet tells of memory, so that nothing is dropped.
    assert_eq!((openb.jobs.len(), openb.notes.len()), (7_255, 2), "{:?}", openb.notes);
    let dlrm = jobs(&instances, TraceFormat::Dlrm, &fleet);
    let pods: u64 = dlrm.jobs.iter().map(|job| u64::from(job.shape.gang.replicas())).sum();
    assert_eq!((dlrm.jobs.len(), pods), (7_181, 23_871));
    let gangs = dlrm.jobs.iter().filter(|job| job.shape.gang.tasks.len() > 1).count();
    assert!(gangs > 600, "{gangs}");
}
