//! Choosing clusters and filling them, by strategy.
//!
//! [`Search`] holds the free rooms; each method answers with pods by site and task, or `None` where not all of what was
//! wanted fits. Ties are broken by name, in the direction that the binding's UID gives.

use std::cmp::Reverse;

use super::{
    Strategy,
    pack::{Kit, ORDERS, Order, Room},
};
use crate::{
    gang::ClusterName,
    webster::{Tie, divide, divide_capped},
};

/// Pods by site, then task.
pub(super) type Pods = Vec<Vec<u32>>;

/// The clusters, and what the gang holds there already.
pub(super) struct Search<'a> {
    pub kit: Kit<'a>,
    pub names: Vec<&'a ClusterName>,
    pub weights: Vec<u64>,
    pub rooms: Vec<Room>,
    pub kept: Pods,
    pub strategy: Strategy,
    /// Clusters that may be used in all.
    pub limit: usize,
    pub tie: Tie,
}

pub(super) fn total(pods: &[u32]) -> u64 {
    pods.iter().copied().map(u64::from).sum()
}

/// Up to this many clusters the best next one is searched anew at each step; beyond, once at the start.
const FEW: usize = 32;

impl Search<'_> {
    fn none(&self) -> Pods {
        vec![vec![0; self.kit.tasks()]; self.names.len()]
    }

    pub(super) fn holds(&self, site: usize) -> bool {
        total(&self.kept[site]) > 0
    }

    /// New clusters that may be opened.
    fn openings(&self) -> usize {
        self.limit.saturating_sub((0..self.names.len()).filter(|site| self.holds(*site)).count())
    }

    /// Sites that may be used at all.
    pub(super) fn usable(&self) -> Vec<usize> {
        let open = self.openings() > 0;
        let weighted = self.strategy == Strategy::StaticWeight;
        (0..self.names.len())
            .filter(|site| self.holds(*site) || (open && !(weighted && self.weights[*site] == 0)))
            .collect()
    }

    /// All of `want`, by the strategy.
    pub(super) fn all(&self, want: &[u32], rooms: &mut [Room]) -> Option<Pods> {
        if total(want) == 0 {
            return Some(self.none());
        }
        if !self.might_take(want, rooms) {
            return None;
        }
        for order in ORDERS {
            let order = self.kit.order(rooms, order);
            let mut trial = rooms.to_vec();
            let found = match self.strategy {
                Strategy::StaticWeight | Strategy::DynamicWeight if self.limit > 1 => {
                    self.weighted(want, &mut trial, &order)
                }
                _ => self.aggregated(want, &mut trial, &order),
            };
            if let Some(pods) = found {
                rooms.clone_from_slice(&trial);
                return Some(pods);
            }
            if self.kit.tasks() == 1 {
                break;
            }
        }
        None
    }

    /// Whether each task alone would fit: most refusals need no more than this one look at every node.
    fn might_take(&self, want: &[u32], rooms: &[Room]) -> bool {
        let sites = self.usable();
        let supply =
            |task: usize| sites.iter().map(|site| rooms[*site].most(&self.kit, task)).fold(0, u64::saturating_add);
        (0..want.len()).all(|task| want[task] == 0 || supply(task) >= u64::from(want[task]))
    }

    /// As much of `want` as fits beyond `placed`: used clusters first, then the roomiest.
    pub(super) fn grow(&self, want: &[u32], placed: &mut Pods, rooms: &mut [Room], order: Order) {
        let order = self.kit.order(rooms, order);
        let mut left = want.to_vec();
        if self.strategy != Strategy::Aggregated && self.limit > 1 {
            let sites = self.favoured(&left, rooms, &order, placed);
            let weights = self.votes(&left, rooms, &sites, &order);
            let more = self.pour(&mut left, rooms, &sites, &weights, &order);
            add(placed, &more);
            return;
        }
        for site in self.favoured(&left, rooms, &order, placed) {
            let got = rooms[site].fill(&self.kit, &left, &order);
            for (task, got) in got.into_iter().enumerate() {
                placed[site][task] += got;
                left[task] -= got;
            }
        }
    }

    /// Sites in use, then others by how much of `want` they take, as many as may be used.
    fn favoured(&self, want: &[u32], rooms: &[Room], order: &[usize], placed: &Pods) -> Vec<usize> {
        let used = |site: usize| self.holds(site) || total(&placed[site]) > 0;
        let takes: Vec<u64> = rooms.iter().map(|room| total(&room.clone().fill(&self.kit, want, order))).collect();
        let mut sites = self.usable();
        sites.sort_by(|a, b| {
            (Reverse(used(*a)), Reverse(takes[*a]))
                .cmp(&(Reverse(used(*b)), Reverse(takes[*b])))
                .then_with(|| self.tie.order(self.names[*a], self.names[*b]))
        });
        let mut openings = self.limit.saturating_sub((0..self.names.len()).filter(|site| used(*site)).count());
        sites.retain(|site| {
            used(*site) || {
                let opens = openings > 0 && takes[*site] > 0;
                openings -= usize::from(opens);
                opens
            }
        });
        sites
    }

    /// One cluster if one is enough, else the roomiest first and the tightest that holds the rest last.
    fn aggregated(&self, want: &[u32], rooms: &mut [Room], order: &[usize]) -> Option<Pods> {
        let mut placed = self.none();
        let mut left = want.to_vec();
        let mut openings = self.openings();
        let mut sites: Vec<usize> = self.usable();
        let mut ranked = false;
        while total(&left) > 0 {
            if openings == 0 {
                sites.retain(|site| self.holds(*site));
            }
            let site = match self.holder_of(&left, &sites, ranked, rooms, order) {
                Some(site) => site,
                None => {
                    if !ranked || sites.len() <= FEW {
                        sites = self.ranked(&sites, &left, rooms, order);
                        ranked = true;
                    }
                    *sites.first()?
                }
            };
            let got = rooms[site].fill(&self.kit, &left, order);
            for (task, got) in got.iter().enumerate() {
                left[task] -= got;
                placed[site][task] += got;
            }
            if total(&got) > 0 && !self.holds(site) {
                openings -= 1;
            }
            sites.retain(|other| *other != site);
        }
        Some(placed)
    }

    /// Held sites first, then by how much of `left` they take.
    fn ranked(&self, sites: &[usize], left: &[u32], rooms: &[Room], order: &[usize]) -> Vec<usize> {
        let mut keyed: Vec<(bool, u64, usize)> = sites
            .iter()
            .map(|site| (self.holds(*site), total(&rooms[*site].clone().fill(&self.kit, left, order)), *site))
            .collect();
        keyed
            .sort_by(|a, b| (b.0, b.1).cmp(&(a.0, a.1)).then_with(|| self.tie.order(self.names[a.2], self.names[b.2])));
        keyed.into_iter().map(|(_, _, site)| site).collect()
    }

    /// The tightest site that takes all that is left; held ones first.
    fn holder_of(&self, left: &[u32], sites: &[usize], ranked: bool, rooms: &[Room], order: &[usize]) -> Option<usize> {
        let takes_all = |site: usize| {
            let enough = |task: &usize| rooms[site].most(&self.kit, *task) >= u64::from(left[*task]);
            order.iter().all(enough) && rooms[site].clone().fill(&self.kit, left, order) == left
        };
        // Of many ranked sites nobody takes it if neither a held one nor the roomiest of the others does.
        let first_open = sites.iter().position(|site| !self.holds(*site)).map_or(sites.len(), |first| first + 1);
        if ranked && sites.len() > FEW && !sites[..first_open].iter().any(|site| takes_all(*site)) {
            return None;
        }
        let scarcest = *order.iter().find(|task| left[**task] > 0)?;
        sites.iter().copied().filter(|site| takes_all(*site)).min_by(|a, b| {
            let key = |site: usize| (!self.holds(site), rooms[site].most(&self.kit, scarcest));
            key(*a).cmp(&key(*b)).then_with(|| self.tie.order(self.names[*a], self.names[*b]))
        })
    }

    /// What each site counts in the division: its static weight, or how many pods of the gang it takes.
    fn votes(&self, want: &[u32], rooms: &[Room], sites: &[usize], order: &[usize]) -> Vec<u64> {
        sites
            .iter()
            .map(|site| match self.strategy {
                Strategy::StaticWeight => self.weights[*site],
                _ => self.takes(want, &rooms[*site], order),
            })
            .collect()
    }

    /// How many pods of gangs like `want` the room takes: whole multiples by doubling and halving, then the rest.
    fn takes(&self, want: &[u32], room: &Room, order: &[usize]) -> u64 {
        let wanted: Vec<usize> = (0..want.len()).filter(|task| want[*task] > 0).collect();
        if let [task] = wanted.as_slice() {
            return room.most(&self.kit, *task);
        }
        let times = |n: u32| want.iter().map(|pods| pods.saturating_mul(n)).collect::<Vec<u32>>();
        let fits = |n: u32| room.clone().fill(&self.kit, &times(n), order) == times(n);
        let mut low = 0_u32;
        let mut high = 1_u32;
        while high < 1 << 20 && fits(high) {
            (low, high) = (high, high * 2);
        }
        while low + 1 < high {
            let middle = low.midpoint(high);
            if fits(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        total(&room.clone().fill(&self.kit, &times(low + 1), order))
    }

    /// By weights, what does not fit going to the others by the same weights.
    fn weighted(&self, want: &[u32], rooms: &mut [Room], order: &[usize]) -> Option<Pods> {
        let sites = self.favoured(want, rooms, order, &self.none());
        let votes = self.votes(want, rooms, &sites, order);
        let mut placed = self.none();
        let mut left = want.to_vec();
        let columns = self.columns(want, &sites, &votes);
        // Partitions are rigid: they go first.
        let mut tasks = order.to_vec();
        tasks.sort_by_key(|task| self.kit.gang.tasks[*task].partition.is_none());
        let mut open = columns;
        for task in &tasks {
            let unit = self.kit.unit(*task);
            let claims: Vec<(u64, &ClusterName)> =
                open.iter().zip(&sites).map(|(open, site)| (*open, self.names[*site])).collect();
            let seats = divide(u64::from(left[*task] / unit), &claims, self.tie);
            for ((seats, site), open) in seats.into_iter().zip(&sites).zip(&mut open) {
                let pods = u32::try_from(seats).unwrap_or(u32::MAX).saturating_mul(unit);
                let got = rooms[*site].put(&self.kit, *task, pods, unit);
                placed[*site][*task] += got;
                left[*task] -= got;
                *open = open.saturating_sub(u64::from(pods));
            }
        }
        let more = self.pour(&mut left, rooms, &sites, &votes, order);
        add(&mut placed, &more);
        (total(&left) == 0).then_some(placed)
    }

    /// New pods that each site should get: its part of all pods, less what it holds.
    fn columns(&self, want: &[u32], sites: &[usize], votes: &[u64]) -> Vec<u64> {
        let held: u64 = self.kept.iter().map(|pods| total(pods)).sum();
        let claims: Vec<(u64, &ClusterName)> =
            votes.iter().zip(sites).map(|(votes, site)| (*votes, self.names[*site])).collect();
        let parts = match self.strategy {
            Strategy::StaticWeight => divide(held + total(want), &claims, self.tie)
                .into_iter()
                .zip(sites)
                .map(|(part, site)| part.saturating_sub(total(&self.kept[*site])))
                .collect(),
            // What is free already reflects what is held.
            _ => votes.to_vec(),
        };
        let claims: Vec<(u64, &ClusterName)> =
            parts.iter().zip(sites).map(|(part, site)| (*part, self.names[*site])).collect();
        divide(total(want), &claims, self.tie)
    }

    /// Gives out what is left, task by task, by weight, as far as there is room.
    fn pour(&self, left: &mut [u32], rooms: &mut [Room], sites: &[usize], votes: &[u64], order: &[usize]) -> Pods {
        let mut placed = self.none();
        for task in order {
            if left[*task] == 0 {
                continue;
            }
            let unit = self.kit.unit(*task);
            let claims: Vec<(u64, u64, &ClusterName)> = votes
                .iter()
                .zip(sites)
                .map(|(votes, site)| {
                    let cap = rooms[*site].most(&self.kit, *task) / u64::from(unit);
                    (*votes, cap, self.names[*site])
                })
                .collect();
            let seats = divide_capped(u64::from(left[*task] / unit), &claims, self.tie);
            for (seats, site) in seats.into_iter().zip(sites) {
                let pods = u32::try_from(seats).unwrap_or(u32::MAX).saturating_mul(unit);
                let got = rooms[*site].put(&self.kit, *task, pods, unit);
                placed[*site][*task] += got;
                left[*task] -= got;
            }
        }
        placed
    }
}

pub(super) fn add(to: &mut Pods, more: &Pods) {
    for (to, more) in to.iter_mut().zip(more) {
        for (to, more) in to.iter_mut().zip(more) {
            *to += more;
        }
    }
}
