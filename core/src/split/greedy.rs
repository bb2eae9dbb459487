//! A gang in many clusters, where trying every set would take too long: the emptiest cluster first, until one holds the
//! rest; the last one is the tightest of those that do.
//!
//! Clusters that hold pods of the gang come before all others, and nearer groups of clusters before farther ones. Every
//! set of a short list of clusters is tried beside it, and the better of both is taken. For one task this uses the
//! fewest clusters there can be as long as their number is bounded (`limit`). Else a bounded number of clusters is
//! looked at closely at each step; what that costs is measured (`tests/objective.rs`).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use super::{
    Assignment, ObjectiveKey, SplitSearch, Spot,
    cluster_sets::{MOST_EXHAUSTED_CLUSTERS, PromisingCluster, sites_of},
    packing::{FreeNodes, ORDERS, TaskOrder},
    sum_pods,
    upper_bounds::TotalDemand,
};

/// Clusters that are looked at closely for the next one, where their number is not bounded.
const CANDIDATES_PER_STEP: usize = 8;
/// Clusters of which every set is tried.
const SHORT_LIST_LENGTH: usize = 8;

/// A greedy run: what is still wanted, and what each site was given.
struct GreedyRun<'s, 'a> {
    search: &'s SplitSearch<'a>,
    order: Vec<usize>,
    left: Vec<u32>,
    pods: BTreeMap<usize, Vec<u32>>,
    used: Vec<usize>,
    open: UnusedClusters,
}

/// Sites that were not used, by an upper bound of what they take, then data and cost; whoever wins among equals first.
type UnusedClusters = BinaryHeap<(u64, Reverse<Price>, usize)>;

/// What of the data is missing there, and what it costs.
type Price = (i64, i64);

impl<'a> SplitSearch<'a> {
    /// All of `want`, as close as it can be.
    pub(super) fn place_greedily(&self, sites: &[PromisingCluster], want: &[u32]) -> Option<Assignment> {
        for groups in &self.levels {
            let within = groups.iter().filter_map(|group| self.place_in_group(sites, group, want));
            let best = within
                .min_by(|a, b| a.0.cmp(&b.0).then_with(|| self.best_tie_rank(&a.1).cmp(&self.best_tie_rank(&b.1))));
            if let Some((_, choice)) = best {
                return Some(choice);
            }
        }
        if self.far { self.place_anywhere(sites, want).map(|(_, choice)| choice) } else { None }
    }

    /// All of `want` in one group, which has all that hold pods.
    fn place_in_group(
        &self,
        sites: &[PromisingCluster],
        group: &[usize],
        want: &[u32],
    ) -> Option<(ObjectiveKey, Assignment)> {
        if self.sites_in_use().iter().any(|site| group.binary_search(site).is_err()) {
            return None;
        }
        let group = clusters_of_group(sites, group);
        if group.len() > MOST_EXHAUSTED_CLUSTERS {
            return self.place_anywhere(&group, want);
        }
        let choice = self.try_every_set(&sites_of(&group), want)?;
        Some((self.key_of_choice(&choice, 0), choice))
    }

    /// All of `want` somewhere in these sites: the better of what greed finds and the best of a short list.
    fn place_anywhere(&self, sites: &[PromisingCluster], want: &[u32]) -> Option<(ObjectiveKey, Assignment)> {
        if !self.bounds.might_take_together(&sites_of(sites), &TotalDemand::of_pods(&self.requests, want)) {
            return None;
        }
        let open = self.unused_clusters(sites);
        let whole = |order: &TaskOrder| {
            let run = self.run_greedily(&open, want, *order);
            (sum_pods(&run.left) == 0).then(|| run.into_assignment())
        };
        let greedy = self.task_orders().iter().find_map(whole);
        let listed = self.try_every_set(&self.choose_sites_to_search(sites, greedy.as_ref()), want);
        let keyed = |choice: Assignment| (self.key_of_choice(&choice, 0), choice);
        [greedy, listed].into_iter().flatten().map(keyed).min_by_key(|(key, _)| *key)
    }

    fn task_orders(&self) -> &'static [TaskOrder] {
        if self.requests.count_tasks() == 1 { &ORDERS[..1] } else { &ORDERS }
    }

    /// Sites of which every set is looked at: those that hold pods, those that greed took, then the emptiest.
    fn choose_sites_to_search(&self, sites: &[PromisingCluster], greedy: Option<&Assignment>) -> Vec<usize> {
        let taken = greedy.map(|choice| choice.spots.as_slice()).unwrap_or_default();
        let mut list = self.sites_in_use();
        list.extend(taken.iter().map(|spot| spot.site).filter(|site| !self.holds_pods(*site)).take(SHORT_LIST_LENGTH));
        let others = sites.iter().filter(|one| !list.contains(&one.site));
        let mut others: Vec<(Reverse<u64>, usize)> =
            others.map(|one| (Reverse(one.most), self.winning_rank(one.site))).collect();
        let more = SHORT_LIST_LENGTH.saturating_sub(list.len());
        if more < others.len() {
            others.select_nth_unstable(more);
            others.truncate(more);
        }
        list.extend(others.into_iter().map(|(_, winner)| self.winning_rank(winner)));
        list
    }

    /// All of `need`, and as much more of `want` as fits.
    pub(super) fn place_elastic_greedily(
        &self,
        sites: &[PromisingCluster],
        want: &[u32],
        need: &[u32],
    ) -> Option<Assignment> {
        let held = self.sites_in_use();
        let around = |group: &&Vec<usize>| held.iter().all(|site| group.binary_search(site).is_ok());
        let groups: Vec<Vec<PromisingCluster>> = match self.far {
            true => vec![sites.to_vec()],
            false => self.levels.iter().flatten().filter(around).map(|group| clusters_of_group(sites, group)).collect(),
        };
        let found = groups.iter().flat_map(|group| {
            let listed = self.try_every_set_elastic(&self.choose_sites_to_search(group, None), want, need);
            let open = self.unused_clusters(group);
            let grown = self
                .task_orders()
                .iter()
                .filter_map(move |order| self.place_minimum_then_more(&open, want, need, *order));
            grown.chain(listed)
        });
        let keyed = found.map(|choice| (self.key_of_choice(&choice, sum_pods(want) - choice.placed_pods()), choice));
        keyed.min_by_key(|(key, _)| *key).map(|(_, choice)| choice)
    }

    fn place_minimum_then_more(
        &self,
        open: &UnusedClusters,
        want: &[u32],
        need: &[u32],
        order: TaskOrder,
    ) -> Option<Assignment> {
        let mut run = Some(self.run_greedily(open, need, order)).filter(|run| sum_pods(&run.left) == 0)?;
        run.left = want.iter().zip(need).map(|(want, need)| want - need).collect();
        run.fill_emptiest_sites();
        Some(run.into_assignment()).filter(|choice| choice.placed_pods() >= self.least_pods_to_add())
    }

    /// How many pods of `want` find a place in these clusters together.
    pub(super) fn count_pods_that_fit_together(&self, sites: &[usize], want: &[u32]) -> u64 {
        let most = |site: usize| self.bounds.max_pods(&self.requests, Spot { site, domain: None }, want);
        let sites: Vec<PromisingCluster> =
            sites.iter().map(|site| PromisingCluster { most: most(*site), site: *site }).collect();
        sum_pods(want) - sum_pods(&self.run_greedily(&self.unused_clusters(&sites), want, ORDERS[0]).left)
    }

    /// The site of a choice that wins among equals.
    fn best_tie_rank(&self, choice: &Assignment) -> usize {
        choice.spots.iter().map(|spot| self.winning_rank(spot.site)).min().unwrap_or(usize::MAX)
    }

    /// A site's place in the order in which equals win; of that place, the site.
    fn winning_rank(&self, site: usize) -> usize {
        if self.compare_names(0, 1).is_lt() { site } else { self.sites.len() - 1 - site }
    }

    fn unused_clusters(&self, sites: &[PromisingCluster]) -> UnusedClusters {
        let unheld = sites.iter().filter(|one| !self.holds_pods(one.site));
        let entry = |one: &PromisingCluster| {
            (one.most, Reverse(self.sites[one.site].data_and_cost()), usize::MAX - self.winning_rank(one.site))
        };
        unheld.map(entry).collect()
    }

    fn run_greedily<'s>(&'s self, open: &UnusedClusters, want: &[u32], order: TaskOrder) -> GreedyRun<'s, 'a> {
        let (used, pods, open) = (self.sites_in_use(), BTreeMap::new(), open.clone());
        let mut run = GreedyRun { search: self, order: Vec::new(), left: want.to_vec(), pods, used, open };
        run.order = run.task_order(order);
        run.fill_tightest();
        run
    }
}

/// Of `sites` those of a group.
fn clusters_of_group(sites: &[PromisingCluster], group: &[usize]) -> Vec<PromisingCluster> {
    sites.iter().copied().filter(|one| group.binary_search(&one.site).is_ok()).collect()
}

impl GreedyRun<'_, '_> {
    /// The order of tasks by what the emptiest sites have.
    fn task_order(&self, order: TaskOrder) -> Vec<usize> {
        let roomy = self.open.iter().take(CANDIDATES_PER_STEP).map(|one| self.site_of_entry(one));
        let few: Vec<&FreeNodes> =
            self.used.iter().copied().chain(roomy).map(|site| self.search.free_nodes_of_site(site)).collect();
        self.search.requests.order_tasks(&few, order)
    }

    fn site_of_entry(&self, open: &(u64, Reverse<Price>, usize)) -> usize {
        self.search.winning_rank(usize::MAX - open.2)
    }

    /// Sites that hold pods first; then, until nothing is left, the tightest that takes all of it or else the emptiest.
    fn fill_tightest(&mut self) {
        for site in self.used.clone() {
            self.fill_site(site);
        }
        while sum_pods(&self.left) > 0 && self.used.len() < self.search.limit {
            let Some(site) = self.take_tightest_site().or_else(|| self.take_emptiest_site()) else { return };
            self.open_site(site);
        }
    }

    /// As much of what is left as fits: in the sites in use, then in others from the emptiest on.
    fn fill_emptiest_sites(&mut self) {
        for site in self.used.clone() {
            let mut free_nodes = self.search.free_nodes_of_site(site).clone();
            // What is there already is packed again with the rest.
            let before = self.pods.get(&site).cloned().unwrap_or_else(|| vec![0; self.left.len()]);
            if free_nodes.fill_in_order(&self.search.requests, &before, &self.order) == before {
                self.fill_nodes(site, free_nodes);
            }
        }
        while sum_pods(&self.left) > 0 && self.used.len() < self.search.limit {
            let Some(site) = self.take_emptiest_site() else { return };
            self.open_site(site);
        }
    }

    fn open_site(&mut self, site: usize) {
        self.used.push(site);
        self.fill_site(site);
    }

    fn fill_site(&mut self, site: usize) {
        self.fill_nodes(site, self.search.free_nodes_of_site(site).clone());
    }

    fn fill_nodes(&mut self, site: usize, mut free_nodes: FreeNodes) {
        let got = free_nodes.fill_in_order(&self.search.requests, &self.left, &self.order);
        let here = self.pods.entry(site).or_insert_with(|| vec![0; got.len()]);
        for (task, got) in got.into_iter().enumerate() {
            self.left[task] -= got;
            here[task] += got;
        }
    }

    fn pods_taken_by(&self, site: usize) -> u64 {
        sum_pods(&self.search.free_nodes_of_site(site).clone().fill_in_order(
            &self.search.requests,
            &self.left,
            &self.order,
        ))
    }

    /// How many sites are looked at closely: all where their number is bounded and one task can be told exactly.
    fn sites_to_pack(&self) -> usize {
        if self.search.limit < usize::MAX && self.search.requests.count_tasks() == 1 {
            usize::MAX
        } else {
            CANDIDATES_PER_STEP
        }
    }

    /// The tightest open site that takes all that is left.
    fn take_tightest_site(&mut self) -> Option<usize> {
        let ask = TotalDemand::of_pods(&self.search.requests, &self.left);
        let all = sum_pods(&self.left);
        let whole = |site: usize| Spot { site, domain: None };
        let sites = self.open.iter().filter(|open| open.0 >= all).map(|open| self.site_of_entry(open));
        let sites = sites.filter(|site| self.search.may_add_site(&self.used, *site));
        let mut sites: Vec<usize> = sites.filter(|site| self.search.bounds.might_take(whole(*site), &ask)).collect();
        let key = |site: usize| {
            (
                self.search.sites[site].data_and_cost(),
                self.search.unmet_preferences_of(site),
                self.search.sites[site].missing_images,
                self.search.bounds.weighted_free_amount(whole(site)),
                self.search.winning_rank(site),
            )
        };
        let looks = self.sites_to_pack().min(sites.len());
        if looks < sites.len() {
            sites.select_nth_unstable_by_key(looks, |site| key(*site));
            sites.truncate(looks);
        }
        sites.sort_unstable_by_key(|site| key(*site));
        let tightest = sites.into_iter().find(|site| self.pods_taken_by(*site) == all)?;
        self.open.retain(|open| usize::MAX - open.2 != self.search.winning_rank(tightest));
        Some(tightest)
    }

    /// The open site that takes most of what is left; `None` if none takes anything.
    fn take_emptiest_site(&mut self) -> Option<usize> {
        let mut best: Option<(u64, Reverse<Price>, usize)> = None;
        let mut looked = Vec::new();
        while let Some(next) = self.open.pop() {
            if best.is_some_and(|best| best.0 >= next.0)
                || looked.len() >= self.sites_to_pack() && best.is_some_and(|one| one.0 > 0)
            {
                self.open.push(next);
                break;
            }
            // Who may not be used now may not later.
            if !self.search.may_add_site(&self.used, self.site_of_entry(&next)) {
                continue;
            }
            // What it takes now bounds what it will take of less.
            let next = (self.pods_taken_by(self.site_of_entry(&next)), next.1, next.2);
            if next.0 > 0 {
                best = best.max(Some(next));
                looked.push(next);
            }
        }
        let best = best?;
        self.open.extend(looked.into_iter().filter(|one| *one != best));
        Some(self.site_of_entry(&best))
    }

    fn into_assignment(self) -> Assignment {
        let used = |(site, pods): &(usize, Vec<u32>)| self.search.holds_pods(*site) || sum_pods(pods) > 0;
        let spot = |(site, pods)| (Spot { site, domain: None }, pods);
        let (spots, pods): (Vec<Spot>, _) = self.pods.into_iter().filter(used).map(spot).unzip();
        let pods = self.search.reduce_unmet_pairs(&spots, pods);
        Assignment { spots, pods }
    }
}
