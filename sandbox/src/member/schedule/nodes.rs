//! The nodes' free room during one cycle: first fit by name, with a trial that can be taken back.
//!
//! Room only shrinks during a cycle. So for each claim it is enough to remember the first node that may still suit it:
//! a thousand equal pods cost one walk over the nodes, and a claim that fits nowhere is refused at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::resources::Resources;

use crate::member::{
    facts::{Claim, NodeFacts, PodFacts, sum_requests},
    world::World,
};

pub(super) struct Nodes<'a> {
    nodes: Vec<(&'a str, &'a NodeFacts, Resources)>,
    total: Resources,
    used: Resources,
    /// By claim: no node before this index suits it.
    from: BTreeMap<usize, usize>,
    trial: Option<Trial>,
    /// Only these nodes are looked at.
    only: Option<BTreeSet<String>>,
}

#[derive(Default)]
struct Trial {
    placed: Vec<(usize, Arc<Claim>)>,
    from: BTreeMap<usize, usize>,
}

impl<'a> Nodes<'a> {
    pub(super) fn of(world: &'a World) -> Self {
        let mut total = Resources::new();
        let mut used = Resources::new();
        let mut free: BTreeMap<&str, (&NodeFacts, Resources)> = BTreeMap::new();
        for (name, node) in world.nodes().filter(|(_, node)| node.usable) {
            total.add(&node.allocatable);
            free.insert(name, (node, node.allocatable.clone()));
        }
        let mut pods: BTreeMap<&str, Vec<&PodFacts>> = BTreeMap::new();
        for (_, pod) in world.pods().filter(|(_, pod)| pod.holds()) {
            pods.entry(&pod.node).or_default().push(pod);
        }
        for (node, pods) in pods {
            if let Some((_, free)) = free.get_mut(node) {
                let taken = sum_requests(pods.into_iter());
                free.saturating_sub(&taken);
                used.add(&taken);
            }
        }
        let nodes = free.into_iter().map(|(name, (node, free))| (name, node, free)).collect();
        Self { nodes, total, used, from: BTreeMap::new(), trial: None, only: None }
    }

    /// What the usable nodes offer in all.
    pub(super) const fn total(&self) -> &Resources {
        &self.total
    }

    /// What the pods on them take.
    pub(super) const fn used(&self) -> &Resources {
        &self.used
    }

    /// Takes room for a claim on the first node that suits it.
    pub(super) fn place(&mut self, claim: &Arc<Claim>) -> Option<&'a str> {
        let id = Arc::as_ptr(claim).addr();
        let tried = self.trial.as_ref().and_then(|trial| trial.from.get(&id)).or_else(|| self.from.get(&id));
        let start = tried.copied().unwrap_or_default();
        let found = (start..self.nodes.len()).find(|index| self.suits(*index, claim));
        let at = found.unwrap_or(self.nodes.len());
        match &mut self.trial {
            // What is found among some nodes says nothing of the others.
            None if self.only.is_some() => None,
            Some(trial) => trial.from.insert(id, at),
            None => self.from.insert(id, at),
        };
        let index = found?;
        let (name, _, free) = self.nodes.get_mut(index)?;
        free.saturating_sub(&claim.request);
        if let Some(trial) = &mut self.trial {
            trial.placed.push((index, claim.clone()));
        }
        Some(name)
    }

    fn suits(&self, index: usize, claim: &Claim) -> bool {
        let Some((name, node, free)) = self.nodes.get(index) else { return false };
        if self.only.as_ref().is_some_and(|only| !only.contains(*name)) {
            return false;
        }
        claim.broken.is_none() && claim.request.fits_in(free) && claim.node.admits(name, &node.labels, &node.taints)
    }

    /// From here on only these nodes are looked at, or all.
    pub(super) fn look_at(&mut self, only: Option<BTreeSet<String>>) {
        self.only = only;
    }

    /// From here on, what is placed can be taken back.
    pub(super) fn begin(&mut self) {
        self.trial = Some(Trial::default());
    }

    /// Keeps what was placed since [`Self::begin`].
    pub(super) fn keep(&mut self) {
        let trial = self.trial.take().unwrap_or_default();
        if self.only.is_none() {
            self.from.extend(trial.from);
        }
    }

    /// Takes back what was placed since [`Self::begin`].
    pub(super) fn take_back(&mut self) {
        for (index, claim) in self.trial.take().unwrap_or_default().placed {
            if let Some((_, _, free)) = self.nodes.get_mut(index) {
                free.add(&claim.request);
            }
        }
    }

    /// Why no node suits the claim: `0/3 nodes are unavailable: 1 node(s) had untolerated taint, 2 Insufficient cpu.`
    pub(super) fn refusal(&self, claim: &Claim, what: &str) -> String {
        if let Some(broken) = &claim.broken {
            return broken.clone();
        }
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for (name, node, free) in &self.nodes {
            let reason = if self.only.as_ref().is_some_and(|only| !only.contains(*name)) {
                "node(s) not in the hyperNode".to_owned()
            } else if !claim.node.admits(name, &node.labels, &[]) {
                "node(s) didn't match Pod's node affinity/selector".to_owned()
            } else if !claim.node.admits(name, &node.labels, &node.taints) {
                "node(s) had untolerated taint(s)".to_owned()
            } else {
                let lacking = claim.request.iter().find(|(name, asked)| *asked > free.get(name.as_str()));
                lacking.map_or_else(
                    || "node(s) resource fit failed".to_owned(),
                    |(name, _)| format!("Insufficient {name}"),
                )
            };
            *reasons.entry(reason).or_default() += 1;
        }
        let mut reasons: Vec<String> = reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        reasons.sort();
        let count = self.nodes.len();
        if reasons.is_empty() {
            return format!("0/{count} nodes are {what}.");
        }
        format!("0/{count} nodes are {what}: {}.", reasons.join(", "))
    }
}
