//! Where workloads would go that start together: each in what those before it leave.
//!
//! Rule: one after the other, in their order, as the scheduler places them once all are released: each is placed by
//! `caldera_core::place`, and what it was given counts as taken for the next, as assumed pods do. So a gang of jobs
//! fits where every job of it finds its place beside the others. Another order might find one where this does not: that
//! is not looked for.

use std::{
    borrow::{Borrow, Cow},
    collections::BTreeMap,
    fmt,
};

use caldera_core::{
    fleet::Fleet,
    gang::Gang,
    inventory::Capacity,
    maintenance::ExpectedRun,
    place::{self, Cluster, Decision},
    plan::PinnedDomains,
    split::subtract_assumed_pods,
};

use super::{Place, PlacementQuestion, build_placement_request};

/// Who is placed with another one.
#[derive(Debug, Clone)]
pub struct Companion<'a> {
    /// The binding.
    pub binding: Cow<'a, place::Binding>,
    /// Its gang.
    pub gang: Cow<'a, Gang>,
    /// All of the minimum or nothing.
    pub whole: bool,
    /// When it would run.
    pub run: ExpectedRun,
}

/// Why not all of them find a place: which does not, of how many, and why.
#[derive(Debug)]
pub(super) struct NotPlacedTogether {
    number: usize,
    of: usize,
    why: place::NotPlaced,
}

impl fmt::Display for NotPlacedTogether {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)?;
        match self.of {
            1 => Ok(()),
            of => write!(f, "; there is room for {} of {of} jobs that start together", self.number),
        }
    }
}

/// A place for the binding and for each of its companions.
pub(super) fn place_together<'a, C: Borrow<Capacity>>(
    question: PlacementQuestion<'a>,
    fleet: &'a Fleet,
    clusters: Vec<(&'a Cluster, C)>,
) -> Result<Vec<Decision>, NotPlacedTogether> {
    let of = question.with.len() + 1;
    let mut taken: BTreeMap<&str, Capacity> = BTreeMap::new();
    let mut decisions: Vec<Decision> = Vec::new();
    for number in 0..of {
        let one = match number.checked_sub(1).and_then(|at| question.with.get(at)) {
            None => question,
            Some(Companion { binding, gang, whole, run }) => PlacementQuestion {
                binding,
                gang,
                whole: *whole,
                run: question.run.map(|own| run.with_delay(own.delay)),
                previous: None,
                ..question
            },
        };
        let all = clusters.iter().map(|(cluster, capacity)| {
            let left = taken.get(cluster.name.as_str());
            (*cluster, left.unwrap_or_else(|| capacity.borrow()))
        });
        let decision = place::place_binding(&build_placement_request(one, fleet, all.collect()));
        let decision = decision.map_err(|why| NotPlacedTogether { number, of, why })?;
        if number + 1 < of {
            let place = Place::from_decision(&decision, one.gang);
            for (cluster, capacity) in &clusters {
                let Some(pods) = place.pods.get(&cluster.name) else { continue };
                let before = taken.remove(cluster.name.as_str()).unwrap_or_else(|| capacity.borrow().clone());
                let anywhere = PinnedDomains::default();
                let within = place.within.get(&cluster.name).unwrap_or(&anywhere);
                taken.insert(&cluster.name, subtract_assumed_pods(before, one.gang, pods, within));
            }
        }
        decisions.push(decision);
    }
    Ok(decisions)
}

/// All of it as one decision, for who asks in which clusters that is.
pub(super) fn merge_decisions(decisions: Vec<Decision>) -> Option<Decision> {
    decisions.into_iter().reduce(|mut all, one| {
        all.targets.extend(one.targets);
        all
    })
}
