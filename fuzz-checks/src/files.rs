//! What is given to the command line: files of `simulate` and of `topology discover`, and arguments that have a form of
//! their own. The first byte says which.

use std::collections::{BTreeMap, BTreeSet};

use crate::cost::{Bound, within};
use caldera_core::{
    inventory::HyperNodeMember,
    place::score::ScoreWeights,
    queue::{QueueSpec, preemption::PreemptionRule},
    topology_discovery::{
        Fabric, LldpScope, TopologyLabels, join_neighbors, list_fabric_domains, read_ibnetdiscover, read_neighbors,
    },
};
use caldera_crds::trusted::Writer;
use caldera_simulate::{
    policy::PolicyName,
    read::{self, Estimates, TraceFormat, TraceOptions},
    scenario::Scenario,
    time::Millis,
    world::{Shapes, World},
};

const BOUND: Bound = Bound { ms: 500, ns_per_byte: 20_000, kib: 4 << 10, bytes_per_byte: 2_000 };

const FLEET: &str = "cluster,count,cpu,memory,nvidia.com/gpu\na,2,8,32Gi,\nb,1,4,64Gi,8\n";

/// Panics where an input does what must not be.
pub fn check_input(bytes: &[u8]) {
    let [which, text @ ..] = bytes else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    within("a file", BOUND, text.len(), || match which % 8 {
        // A file may ask for a million nodes; here for some thousands.
        0 if longest_number(text) < 4 => drop(read::read_fleet(text, 3, 2)),
        1 => drop(read::read_queues(text)),
        2 => read_trace(text, TraceFormat::Caldera),
        3 => read_trace(text, TraceFormat::Openb),
        4 => read_trace(text, TraceFormat::Dlrm),
        5 => read_both(text),
        7 => read_network(text),
        _ => read_argument(text),
    });
}

fn longest_number(text: &str) -> usize {
    text.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0)
}

fn read_trace(text: &str, format: TraceFormat) {
    let fleet = read::read_fleet(FLEET, 1, 1).expect("it is right");
    let options = TraceOptions { format, estimates: Estimates::Rough, ..TraceOptions::default() };
    let Ok(trace) = read::read_trace(text, &options, &read::list_offered_resources(&fleet), &mut Shapes::default())
    else {
        return;
    };
    let names: BTreeSet<_> = trace.jobs.iter().map(|job| job.queue.clone()).collect();
    let queues = names.into_iter().map(QueueSpec::unlimited).collect();
    let _ = World::new(fleet, queues, trace.jobs, Millis::ZERO);
}

/// Queues, and the jobs in them.
fn read_both(text: &str) {
    let Some((queues, jobs)) = text.split_once("\n===\n") else { return };
    let fleet = read::read_fleet(FLEET, 1, 1).expect("it is right");
    let (Ok(queues), offered) = (read::read_queues(queues), read::list_offered_resources(&fleet)) else { return };
    let Ok(trace) = read::read_trace(jobs, &TraceOptions::default(), &offered, &mut Shapes::default()) else { return };
    if let Ok(world) = World::new(fleet, queues, trace.jobs, Millis::ZERO) {
        let _ = (world.total(), world.main_resource());
    }
}

/// What `ibnetdiscover` or `lldpcli` may have printed.
fn read_network(text: &str) {
    if let Ok(fabric) = read_ibnetdiscover(text.as_bytes()) {
        check_fabric(&fabric);
    }
    if let Ok(neighbors) = read_neighbors(text.as_bytes())
        && let Ok((fabric, _)) = join_neighbors(&BTreeMap::from([("n1".to_owned(), neighbors)]), LldpScope::default())
    {
        check_fabric(&fabric);
    }
}

/// Each host and each domain is in one domain at most, and names are those of one.
fn check_fabric(fabric: &Fabric) {
    let domains = list_fabric_domains(fabric);
    let names: BTreeSet<&str> = domains.iter().map(|domain| domain.name.as_str()).collect();
    assert!(names.len() == domains.len() && names.iter().all(|name| caldera_crds::dns::is_dns_subdomain(name)));
    let (mut hosts, mut inner) = (BTreeSet::new(), BTreeSet::new());
    for member in domains.iter().flat_map(|domain| &domain.members) {
        match member {
            HyperNodeMember::Node(host) => assert!(hosts.insert(host.as_str()), "{host} is in two domains"),
            HyperNodeMember::HyperNode(name) => {
                assert!(names.contains(name.as_str()) && inner.insert(name.as_str()), "{name} has two parents");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(hosts.into_iter().eq(fabric.hosts()));
}

fn read_argument(text: &str) {
    if let Ok(labels) = text.parse::<TopologyLabels>() {
        assert!(labels.keys().count() > 0, "{text:?}");
    }
    if let Ok(time) = text.parse::<Millis>() {
        assert!(time.plus(Millis(1)) >= time && !time.to_string().is_empty());
        let _ = time.up_to(Millis(1_000));
    }
    if let Ok(rule) = text.parse::<PreemptionRule>() {
        assert_eq!(rule.to_string().parse(), Ok(rule), "{text:?}");
    }
    if let Ok(writer) = text.parse::<Writer>() {
        assert_eq!(writer.to_string().parse(), Ok(writer), "{text:?}");
    }
    if let Ok(weights) = text.parse::<ScoreWeights>() {
        assert!(weights.names().count() < 1_000);
    }
    let _ = (text.parse::<PolicyName>(), text.parse::<Scenario>(), text.parse::<Estimates>());
}
