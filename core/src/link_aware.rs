//! Link-aware rescheduling: which gangs leave clusters that have become too far apart for them.
//!
//! Rule: ours, at the pace of [`crate::load_aware`]. Volcano looks at `networkTopology` when pods are bound and never
//! again. A gang that names a `hard` tier is placed in clusters that are close enough; where a link between them is
//! known to be worse than that ([`BrokenLink`]) in `samples` rounds in a row, what it does until its end goes at the
//! speed of that link. So it leaves if what is left of its run is longer than what it loses, which is all that it has
//! run, or what it has not saved yet by its own word, and if all of it fits now where its tier is kept. Who does not
//! say how long it runs stays. Who gains most goes first, `moves` at most in a round.
//!
//! Why this does not swing: whoever was moved once, for whatever reason, is never moved for a link. What a gang itself
//! sends may make a link worse, and members say of their links what they like: that costs one run at most. Who found no
//! place must be too far apart for as long again before it is asked about, so that those who fit nowhere keep nobody
//! from being asked about.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    load_aware::{JobMove, LoadPolicy, PlacedJob},
    queue::{JobId, preemption::PreemptionPolicy},
    split::BrokenLink,
    time::EpochSeconds,
};

/// Gangs that are looked at in a round. Each costs a question about a place.
const MOST_CANDIDATES: usize = 16;

/// A gang that runs in clusters that are too far apart.
#[derive(Debug, Clone)]
pub struct DistantGang {
    /// It.
    pub placed: PlacedJob,
    /// Which, and how.
    pub broken: BrokenLink,
    /// When it ends, as it says.
    pub ends: Option<EpochSeconds>,
}

impl DistantGang {
    /// Seconds that it has yet to run, beyond those that it would lose; `None` if there are none.
    fn compute_gain(&self, now: EpochSeconds) -> Option<i64> {
        self.placed.job.started?;
        let gain = self.ends?.seconds_since(now).saturating_sub(self.placed.job.count_lost_seconds(now));
        (gain > 0).then_some(gain)
    }
}

/// In how many rounds in a row each gang was too far apart.
#[derive(Debug, Clone, Default)]
pub struct LinkHistory(BTreeMap<JobId, u32>);

impl LinkHistory {
    /// Takes in a round: all that are too far apart now.
    pub fn observe_round(&mut self, distant: &[DistantGang]) {
        let count = |gang: &DistantGang| {
            let id = gang.placed.job.id.clone();
            let rounds = self.0.get(&id).copied().unwrap_or(0).saturating_add(1);
            (id, rounds)
        };
        self.0 = distant.iter().map(count).collect();
    }

    /// It found no place.
    fn begin_anew(&mut self, id: &JobId) {
        self.0.insert(id.clone(), 0);
    }

    /// Every gang must be too far apart as often again.
    pub fn forget_all(&mut self) {
        self.0.clear();
    }
}

/// Plans a round. `find_place` says where a gang would go beside those that leave before it, if it may go to these
/// clusters alone: pods by cluster. Clusters that are hot, or reserved for others, are not among `open`.
pub fn plan_link_moves(
    (policy, preemption): (&LoadPolicy, &PreemptionPolicy),
    history: &mut LinkHistory,
    distant: &[DistantGang],
    open: &BTreeSet<String>,
    now: EpochSeconds,
    mut find_place: impl FnMut(&[&JobId], &JobId, &BTreeSet<String>) -> Option<BTreeMap<String, u64>>,
) -> Vec<JobMove> {
    let is_lasting = |gang: &&DistantGang| history.0.get(&gang.placed.job.id).is_some_and(|n| *n >= policy.samples);
    let may_leave =
        |gang: &&DistantGang| gang.placed.moved_at.is_none() && gang.placed.may_leave(policy, preemption, now);
    let lasting = distant.iter().filter(is_lasting).filter(may_leave);
    let mut by_gain: Vec<(i64, &DistantGang)> =
        lasting.filter_map(|gang| Some((gang.compute_gain(now)?, gang))).collect();
    by_gain.sort_by_key(|(gain, gang)| (std::cmp::Reverse(*gain), &gang.placed.job.id));
    let mut moves: Vec<JobMove> = Vec::new();
    for (_, gang) in by_gain.into_iter().take(MOST_CANDIDATES) {
        if moves.len() >= policy.moves as usize {
            break;
        }
        let before: Vec<&JobId> = moves.iter().map(|one| &one.id).collect();
        let Some(pods) = find_place(&before, &gang.placed.job.id, open) else {
            history.begin_anew(&gang.placed.job.id);
            continue;
        };
        let to: BTreeSet<String> = pods.into_iter().filter(|(_, pods)| *pods > 0).map(|(name, _)| name).collect();
        moves.push(describe_move(gang, to, open.clone()));
    }
    moves
}

fn describe_move(gang: &DistantGang, to: BTreeSet<String>, receivers: BTreeSet<String>) -> JobMove {
    let BrokenLink { from, to: other, why } = &gang.broken;
    let places = to.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let why = format!("the link of clusters {from} and {other} {why}; there is room in {places}");
    let from = gang.placed.asks.keys().cloned().collect();
    JobMove { id: gang.placed.job.id.clone(), from, to, receivers, why }
}

#[cfg(test)]
mod tests;
