//! Dividing by weight: each cluster's part of every task, and what does not fit going to the others by the same
//! weights.
//!
//! A static weight is the policy's. A dynamic one is how many pods of such gangs a cluster takes: of one task exactly,
//! of several by its profile, so that only clusters that get something are packed. Ties are broken by name, in the
//! direction that the binding's UID gives.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{
    Assignment, SplitSearch, Spot, Strategy,
    packing::{FreeNodes, ORDERS, TaskOrder},
    sum_pods,
};
use crate::{
    gang::ClusterName,
    webster::{divide_seats, divide_seats_capped},
};

/// Sites that say which task is the scarcest: those that count most.
const MOST_COUNTED_SITES: usize = 8;

/// Sites that get a part, with their votes.
type Votes = Vec<(usize, u64)>;

/// What was given out so far.
#[derive(Clone)]
struct WeightedFill<'s, 'a> {
    search: &'s SplitSearch<'a>,
    /// Of sites that were given something: what is left there.
    free_by_cluster: BTreeMap<usize, FreeNodes>,
    pods: BTreeMap<usize, Vec<u32>>,
    left: Vec<u32>,
}

impl SplitSearch<'_> {
    /// The whole gang by weight.
    pub(super) fn place_by_weight(&self, want: &[u32]) -> Option<Assignment> {
        self.place_all_by_weight(want).map(WeightedFill::into_assignment)
    }

    /// The gang's minimum by weight, and then as much more as fits.
    pub(super) fn place_elastic_by_weight(&self, want: &[u32], need: &[u32]) -> Option<Assignment> {
        if need == want {
            return None;
        }
        let mut filling = self.place_all_by_weight(need)?;
        filling.left = want.iter().zip(need).map(|(want, need)| want - need).collect();
        let votes = self.weigh_sites(want, &filling);
        let order = self.task_order(&votes, ORDERS[0]);
        filling.divide_rest(&votes, &order);
        Some(filling.into_assignment()).filter(|choice| choice.placed_pods() >= self.least_pods_to_add())
    }

    fn place_all_by_weight(&self, want: &[u32]) -> Option<WeightedFill<'_, '_>> {
        let (free_by_cluster, pods) = (BTreeMap::new(), BTreeMap::new());
        let none = WeightedFill { search: self, free_by_cluster, pods, left: want.to_vec() };
        if sum_pods(want) == 0 {
            return Some(none);
        }
        let votes = self.weigh_sites(want, &none);
        let sites: Vec<usize> = votes.iter().map(|(site, _)| *site).collect();
        if !self.bounds.might_take_together(&sites, &super::upper_bounds::TotalDemand::of_pods(&self.requests, want)) {
            return None;
        }
        let orders = if self.requests.count_tasks() == 1 { &ORDERS[..1] } else { &ORDERS };
        let whole = |order: &TaskOrder| {
            let mut filling = none.clone();
            filling.divide_by_weight(&votes, &self.task_order(&votes, *order));
            (sum_pods(&filling.left) == 0).then_some(filling)
        };
        orders.iter().find_map(whole)
    }

    fn task_order(&self, votes: &Votes, order: TaskOrder) -> Vec<usize> {
        let mut most: Vec<(Reverse<u64>, usize)> = votes.iter().map(|(site, votes)| (Reverse(*votes), *site)).collect();
        if most.len() > MOST_COUNTED_SITES {
            most.select_nth_unstable(MOST_COUNTED_SITES);
            most.truncate(MOST_COUNTED_SITES);
        }
        most.sort_unstable();
        let free_by_cluster: Vec<&FreeNodes> =
            most.into_iter().map(|(_, site)| self.free_nodes_of_site(site)).collect();
        self.requests.order_tasks(&free_by_cluster, order)
    }

    /// Sites that may be used at all.
    pub(super) fn usable_sites(&self) -> Vec<usize> {
        let open = self.sites_in_use().len() < self.limit;
        (0..self.sites.len()).filter(|site| open || self.holds_pods(*site)).collect()
    }

    /// Sites in use, then others by how much of `want` they take, as many as may be used.
    fn weigh_sites(&self, want: &[u32], filling: &WeightedFill<'_, '_>) -> Votes {
        let votes = |site: usize| match self.strategy {
            Strategy::StaticWeight => self.sites[site].weight,
            _ => self.pods_taken_by(want, site),
        };
        let mut sites = self.usable_sites();
        if self.limit < self.sites.len() || self.regions.is_some() {
            let used = |site: usize| self.holds_pods(site) || filling.pods.contains_key(&site);
            let takes: Vec<u64> =
                (0..self.sites.len()).map(|site| self.pods_taken_by(want, site).min(sum_pods(want))).collect();
            sites.sort_by(|a, b| {
                (!used(*a), Reverse(takes[*a]))
                    .cmp(&(!used(*b), Reverse(takes[*b])))
                    .then_with(|| self.compare_names(*a, *b))
            });
            let mut open: Vec<usize> = (0..self.sites.len()).filter(|site| used(*site)).collect();
            sites.retain(|site| {
                used(*site) || {
                    let opens = takes[*site] > 0 && self.may_add_site(&open, *site);
                    open.extend(opens.then_some(*site));
                    opens
                }
            });
        }
        sites.into_iter().map(|site| (site, votes(site))).collect()
    }

    /// How many pods of gangs like `want` a site takes.
    fn pods_taken_by(&self, want: &[u32], site: usize) -> u64 {
        let mut wanted = (0..want.len()).filter(|task| want[*task] > 0);
        match (wanted.next(), wanted.next()) {
            (Some(task), None) => self.free_nodes_of_site(site).max_pods(&self.requests, task),
            _ if self.runs_on_every_node(site) => {
                self.bounds.max_pods_of_gangs(&self.requests, site, want, |_| u64::MAX)
            }
            _ => self.bounds.max_pods_of_gangs(&self.requests, site, want, |task| {
                self.free_nodes_of_site(site).max_pods(&self.requests, task)
            }),
        }
    }

    /// Whether the gang's pods may run on every node there, as far as anybody knows.
    fn runs_on_every_node(&self, site: usize) -> bool {
        let site = &self.sites[site];
        let shapes = &site.capacity.shapes;
        !self.requests.selects_nodes() && !site.copied && shapes.iter().all(|shape| shape.taints.is_empty())
    }
}

impl WeightedFill<'_, '_> {
    fn nodes_left(&self, site: usize) -> &FreeNodes {
        self.free_by_cluster.get(&site).unwrap_or_else(|| self.search.free_nodes_of_site(site))
    }

    fn place_pods(&mut self, site: usize, task: usize, pods: u32) {
        if pods == 0 {
            return;
        }
        let requests = &self.search.requests;
        let free_nodes =
            self.free_by_cluster.entry(site).or_insert_with(|| self.search.free_nodes_of_site(site).clone());
        let got = free_nodes.place_pods(requests, task, pods, requests.partition_size_of(task));
        self.left[task] -= got;
        self.pods.entry(site).or_insert_with(|| vec![0; requests.count_tasks()])[task] += got;
    }

    /// By weights, what does not fit going to the others by the same weights.
    fn divide_by_weight(&mut self, votes: &Votes, order: &[usize]) {
        let search = self.search;
        let mut open = search.compute_target_pods(&self.left, votes);
        open.retain(|(_, open)| *open > 0);
        // Partitions are rigid: they go first.
        let mut tasks = order.to_vec();
        tasks.sort_by_key(|task| search.requests.gang.tasks[*task].partition.is_none());
        for task in &tasks {
            let unit = search.requests.partition_size_of(*task);
            let claims: Vec<(u64, &ClusterName)> =
                open.iter().map(|(site, open)| (*open, search.sites[*site].name)).collect();
            let seats = divide_seats(u64::from(self.left[*task] / unit), &claims, search.tie);
            for (seats, (site, open)) in seats.into_iter().zip(&mut open) {
                let pods = u32::try_from(seats).unwrap_or(u32::MAX).saturating_mul(unit);
                self.place_pods(*site, *task, pods);
                *open = open.saturating_sub(u64::from(pods));
            }
        }
        self.divide_rest(votes, order);
    }

    /// Gives out what is left, task by task, by weight, as far as there is capacity.
    fn divide_rest(&mut self, votes: &Votes, order: &[usize]) {
        let search = self.search;
        for task in order {
            if self.left[*task] == 0 {
                continue;
            }
            let unit = search.requests.partition_size_of(*task);
            let claim = |(site, votes): &(usize, u64)| {
                let cap = self.nodes_left(*site).max_pods(&search.requests, *task) / u64::from(unit);
                (*votes, cap, search.sites[*site].name)
            };
            let claims: Vec<(u64, u64, &ClusterName)> = votes.iter().map(claim).collect();
            let seats = divide_seats_capped(u64::from(self.left[*task] / unit), &claims, search.tie);
            for (seats, (site, _)) in seats.into_iter().zip(votes) {
                let pods = u32::try_from(seats).unwrap_or(u32::MAX).saturating_mul(unit);
                self.place_pods(*site, *task, pods);
            }
        }
    }

    fn into_assignment(self) -> Assignment {
        let used = self.pods.into_iter().filter(|(_, pods)| sum_pods(pods) > 0);
        let (spots, pods) = used.map(|(site, pods)| (Spot { site, domain: None }, pods)).unzip();
        Assignment { spots, pods }
    }
}

impl SplitSearch<'_> {
    /// New pods that each site should get: its part of all pods, less what it holds.
    fn compute_target_pods(&self, want: &[u32], votes: &Votes) -> Votes {
        let claims = |votes: &Votes| -> Vec<(u64, &ClusterName)> {
            votes.iter().map(|(site, votes)| (*votes, self.sites[*site].name)).collect()
        };
        let seats = |house: u64, of: &Votes| -> Votes {
            of.iter().map(|(site, _)| *site).zip(divide_seats(house, &claims(of), self.tie)).collect()
        };
        if self.strategy != Strategy::StaticWeight || self.kept.is_empty() {
            // What is free already reflects what is held.
            return seats(sum_pods(want), votes);
        }
        let mut parts = seats(self.kept_pods() + sum_pods(want), votes);
        parts.iter_mut().for_each(|(site, part)| *part = part.saturating_sub(self.count_kept_pods_at(*site)));
        seats(sum_pods(want), &parts)
    }
}
