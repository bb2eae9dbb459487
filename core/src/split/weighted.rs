//! Dividing by weight: each cluster's part of every task, and what does not fit going to the others by the same weights.
//!
//! Ties are broken by name, in the direction that the binding's UID gives.

use super::{
    Choice, Pods, Search, Spot, Strategy,
    pack::{ORDERS, Room},
    total,
};
use crate::{
    gang::ClusterName,
    webster::{divide, divide_capped},
};

impl Search<'_> {
    /// The whole gang by weight, else its minimum by weight and then as much more as fits.
    pub(super) fn by_weight(&self, want: &[u32], need: &[u32]) -> Option<Choice> {
        let rooms: Vec<Room> = (0..self.sites.len()).map(|site| self.room(site).clone()).collect();
        let pods = match self.all_by_weight(want, &mut rooms.clone()) {
            Some(pods) => pods,
            None if need == want => return None,
            None => ORDERS.iter().find_map(|order| {
                let order = self.kit.order(&rooms.iter().collect::<Vec<_>>(), *order);
                let mut rooms = rooms.clone();
                let mut pods = self.all_by_weight(need, &mut rooms)?;
                let mut left = missing(want, &pods);
                let sites = self.favoured(&left, &rooms, &order, &pods);
                let votes = self.votes(&left, &rooms, &sites, &order);
                let more = self.pour(&mut left, &mut rooms, &sites, &votes, &order);
                add(&mut pods, &more);
                let placed: u64 = pods.iter().map(|pods| total(pods)).sum();
                (placed >= self.at_least()).then_some(pods)
            })?,
        };
        let used = pods.into_iter().enumerate().filter(|(_, pods)| total(pods) > 0);
        let (spots, pods) = used.map(|(site, pods)| (Spot { site, domain: None }, pods)).unzip();
        Some(Choice { spots, pods })
    }

    fn none(&self) -> Pods {
        vec![vec![0; self.kit.tasks()]; self.sites.len()]
    }

    fn all_by_weight(&self, want: &[u32], rooms: &mut [Room]) -> Option<Pods> {
        if total(want) == 0 {
            return Some(self.none());
        }
        if !self.might_take(want, rooms) {
            return None;
        }
        for order in ORDERS {
            let order = self.kit.order(&rooms.iter().collect::<Vec<_>>(), order);
            let mut trial = rooms.to_vec();
            if let Some(pods) = self.divided(want, &mut trial, &order) {
                rooms.clone_from_slice(&trial);
                return Some(pods);
            }
            if self.kit.tasks() == 1 {
                break;
            }
        }
        None
    }

    /// Sites that may be used at all.
    pub(super) fn usable(&self) -> Vec<usize> {
        let open = self.held().len() < self.limit;
        (0..self.sites.len()).filter(|site| open || self.holds(*site)).collect()
    }

    /// Whether each task alone would fit: most refusals need no more than this one look at every node.
    fn might_take(&self, want: &[u32], rooms: &[Room]) -> bool {
        let sites = self.usable();
        let supply =
            |task: usize| sites.iter().map(|site| rooms[*site].most(&self.kit, task)).fold(0, u64::saturating_add);
        (0..want.len()).all(|task| want[task] == 0 || supply(task) >= u64::from(want[task]))
    }

    /// Sites in use, then others by how much of `want` they take, as many as may be used.
    fn favoured(&self, want: &[u32], rooms: &[Room], order: &[usize], placed: &Pods) -> Vec<usize> {
        let used = |site: usize| self.holds(site) || total(&placed[site]) > 0;
        let takes: Vec<u64> = rooms.iter().map(|room| total(&room.clone().fill(&self.kit, want, order))).collect();
        let mut sites = self.usable();
        sites.sort_by(|a, b| {
            (!used(*a), std::cmp::Reverse(takes[*a]))
                .cmp(&(!used(*b), std::cmp::Reverse(takes[*b])))
                .then_with(|| self.rank(*a, *b))
        });
        let mut open: Vec<usize> = (0..self.sites.len()).filter(|site| used(*site)).collect();
        sites.retain(|site| {
            used(*site) || {
                let opens = takes[*site] > 0 && self.may_open(&open, *site);
                open.extend(opens.then_some(*site));
                opens
            }
        });
        sites
    }

    /// What each site counts in the division: its static weight, or how many pods of the gang it takes.
    fn votes(&self, want: &[u32], rooms: &[Room], sites: &[usize], order: &[usize]) -> Vec<u64> {
        sites
            .iter()
            .map(|site| match self.strategy {
                Strategy::StaticWeight => self.sites[*site].weight,
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
    fn divided(&self, want: &[u32], rooms: &mut [Room], order: &[usize]) -> Option<Pods> {
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
                open.iter().zip(&sites).map(|(open, site)| (*open, self.sites[*site].name)).collect();
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
        let held = self.kept_pods();
        let claims: Vec<(u64, &ClusterName)> =
            votes.iter().zip(sites).map(|(votes, site)| (*votes, self.sites[*site].name)).collect();
        let parts = match self.strategy {
            Strategy::StaticWeight => divide(held + total(want), &claims, self.tie)
                .into_iter()
                .zip(sites)
                .map(|(part, site)| part.saturating_sub(self.kept_at(*site)))
                .collect(),
            // What is free already reflects what is held.
            _ => votes.to_vec(),
        };
        let claims: Vec<(u64, &ClusterName)> =
            parts.iter().zip(sites).map(|(part, site)| (*part, self.sites[*site].name)).collect();
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
                    (*votes, cap, self.sites[*site].name)
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

fn missing(wanted: &[u32], have: &Pods) -> Vec<u32> {
    let placed = |task: usize| have.iter().map(|site| site[task]).fold(0, u32::saturating_add);
    wanted.iter().enumerate().map(|(task, wanted)| wanted.saturating_sub(placed(task))).collect()
}

fn add(to: &mut Pods, more: &Pods) {
    for (to, more) in to.iter_mut().zip(more) {
        for (to, more) in to.iter_mut().zip(more) {
            *to += more;
        }
    }
}
