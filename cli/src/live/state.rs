//! From what was read of a host to the state that a simulation begins with: nothing that decides may be lost on the
//! way.

use std::collections::BTreeMap;

use caldera_controller::{decide::Controller, settings::Settings, snapshot::take_snapshot};
use caldera_core::{
    device::add_devices,
    fleet::Update,
    inventory::{Change, HyperNode, Node, Pod},
    place::{Cluster, Queues},
    queue::FairHistory,
    resources::Resources,
    split::add_measured_links,
};
use caldera_simulate::{
    live::{Member, State},
    rules::Rules,
};
use jiff::Timestamp;

/// What queues and their tenants used lately.
#[derive(Debug, Default)]
pub(super) struct KnownHistory {
    pub(super) kept: Vec<FairHistory>,
    /// What tenants used can not be read.
    pub(super) lacks_tenants: bool,
}

/// See the module.
pub(super) fn build_state(
    controller: &Controller,
    (settings, history): (&Settings, &KnownHistory),
    now: Timestamp,
    reported: Vec<(String, Update)>,
) -> State {
    let seen = take_snapshot(controller);
    let measured = reported.iter().filter_map(|(name, update)| match update {
        Update::Links(links) if !links.is_empty() => Some((name.as_str().into(), links.clone())),
        _ => None,
    });
    let links = add_measured_links(&seen.links, &measured.collect());
    State {
        now: now.into(),
        members: read_members(seen.clusters, reported),
        queues: seen.queues,
        links,
        rules: Rules { reservations: seen.reservations, ..read_rules(settings, history) },
        jobs: seen.jobs,
        ..State::default()
    }
}

fn read_rules(settings: &Settings, history: &KnownHistory) -> Rules {
    Rules {
        order: settings.order,
        history_half_life: settings.history_half_life,
        histories: history.kept.clone(),
        ignores_tenant_history: history.lacks_tenants,
        reservation_after: Some(settings.reservation_after).filter(|seconds| *seconds > 0),
        preemption: settings.build_preemption_policy(),
        reservations: Vec::new(),
    }
}

/// What was told of a member.
#[derive(Default)]
struct MemberContents {
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    hyper_nodes: Vec<HyperNode>,
    devices: BTreeMap<String, Resources>,
    queues: Queues,
}

fn read_members(clusters: Vec<Cluster>, reported: Vec<(String, Update)>) -> Vec<Member> {
    let mut seen: BTreeMap<String, MemberContents> = BTreeMap::new();
    for (name, update) in reported {
        let of = seen.entry(name).or_default();
        match update {
            Update::Change(Change::Nodes(all)) => of.nodes = all,
            Update::Change(Change::Pods(all)) => of.pods = all,
            Update::Change(Change::HyperNodes(all)) => of.hyper_nodes = all,
            Update::Change(Change::AllDevices(all)) => of.devices = all.into_iter().collect(),
            Update::Change(Change::Node(node)) => of.nodes.push(node),
            Update::Change(Change::Pod(pod)) => of.pods.push(pod),
            Update::Change(Change::HyperNode(one)) => of.hyper_nodes.push(one),
            Update::Queues(all) => of.queues = all,
            // A member is read once, so that nothing goes away. Which CPUs a pod that ends gives back nobody knows, so
            // that a simulation knows nothing of NUMA nodes and judges by amounts.
            Update::Change(
                Change::NodeGone(_)
                | Change::PodGone(..)
                | Change::HyperNodeGone(_)
                | Change::NumaTopologies(_)
                | Change::NumaTopology(..)
                | Change::NumaTopologyGone(_)
                | Change::Devices(..),
            )
            | Update::Up
            | Update::Down(_)
            | Update::From(_)
            | Update::NodeUse(..)
            | Update::Load(_)
            | Update::Images(_)
            | Update::Links(_) => {}
        }
    }
    let member = |cluster: Cluster| {
        let MemberContents { mut nodes, pods, hyper_nodes, queues, devices } =
            seen.remove(&cluster.name).unwrap_or_default();
        for node in &mut nodes {
            if let Some(devices) = devices.get(&node.name) {
                node.allocatable = add_devices(&node.allocatable, devices);
            }
        }
        Member { cluster, nodes, pods, hyper_nodes, queues }
    };
    clusters.into_iter().map(member).collect()
}

#[cfg(test)]
mod tests {
    use caldera_core::{
        inventory,
        queue::{OrderPolicy, preemption::PreemptionPolicy},
    };

    use super::*;

    #[test]
    fn what_a_member_has_of_domains_and_queues_reaches_a_simulation() {
        let rack = HyperNode {
            name: "r0".to_owned(),
            tier: 1,
            tier_name: String::new(),
            members: vec![inventory::HyperNodeMember::Node("n0".to_owned())],
        };
        let queues: Queues = [("q".to_owned(), Default::default())].into();
        let reported = [
            Update::Change(Change::Nodes(vec![Node { name: "n0".to_owned(), ..Node::default() }])),
            Update::Change(Change::HyperNodes(vec![rack.clone()])),
            Update::Queues(queues.clone()),
            Update::Up,
        ];
        let reported = reported.into_iter().map(|update| ("m".to_owned(), update)).collect();
        let members = read_members(vec![Cluster { name: "m".to_owned(), ..Cluster::default() }], reported);
        assert_eq!((members[0].nodes.len(), &members[0].hyper_nodes, &members[0].queues), (1, &vec![rack], &queues));
    }

    #[test]
    fn what_the_admin_chose_reaches_a_simulation() {
        assert_eq!(read_rules(&Settings::default(), &KnownHistory::default()), Rules::default());
        let chosen = Settings {
            order: OrderPolicy::Fifo,
            reservation_after: 0,
            reclaim: false,
            preempt_after: 7,
            ..Settings::default()
        };
        let histories = vec![FairHistory { at: 7.into(), ..FairHistory::default() }];
        let rules = read_rules(&chosen, &KnownHistory { kept: histories.clone(), lacks_tenants: true });
        assert_eq!((rules.order, rules.reservation_after), (OrderPolicy::Fifo, None));
        assert_eq!((rules.histories, rules.ignores_tenant_history), (histories, true));
        let PreemptionPolicy { reclaim, bounds, .. } = rules.preemption;
        assert_eq!((reclaim, bounds.patience), (false, 7));
    }
}
