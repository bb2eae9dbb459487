//! A gang in one spot, which is one cluster or one network domain of it: the candidate with the best key that holds the
//! gang is taken; for a gang that may have less, the one that takes most.
//!
//! Here is also how pods are packed into several spots together, for `cluster_sets`: by orders of the tasks, then by
//! `exact_packing` and `priced_packing`.

use std::cmp::Ordering;

use super::{
    Assignment, Distance, ObjectiveKey, Pods, SplitSearch, Spot, assumed, exact_packing,
    node_scope::NodeScope,
    packing::{FreeNodes, GangRequests, ORDERS},
    priced_packing, sum_pods,
    upper_bounds::TotalDemand,
};

/// Combinations of sizes that are tried for the largest that fits.
const MOST_SIZES: u64 = 512;

impl SplitSearch<'_> {
    /// Every place where the gang may be as a whole, with how far apart it is there: domains and whole clusters that
    /// are close enough.
    pub(super) fn list_candidate_spots(&self) -> impl Iterator<Item = (Distance, Spot)> + '_ {
        let sites = match self.kept.as_slice() {
            [] => 0..self.sites.len(),
            [(one, _)] => *one..*one + 1,
            _ => 0..0,
        };
        sites.flat_map(move |site| {
            let known = &self.sites[site];
            let highest = known.reach.tier.filter(|_| !known.copied);
            let domains = highest.into_iter().flat_map(move |highest| self.bounds.domains_up_to(site, highest));
            let within = domains.map(move |(id, tier)| (Distance::Domain(tier), Spot { site, domain: Some(id) }));
            // A copy that is there is pinned already, or is not.
            let whole = Spot { site, domain: None };
            within.chain((known.reach.cluster || known.copied).then(|| (self.distance_between(&[whole]), whole)))
        })
    }

    /// All of `want` in one spot.
    pub(super) fn place_in_one_spot(&self, want: &[u32]) -> Option<Assignment> {
        let ask = TotalDemand::of_pods(&self.requests, want);
        let mut best: Option<(ObjectiveKey, Spot)> = None;
        for (distance, spot) in self.list_candidate_spots() {
            if best.is_some_and(|(key, _)| key.distance < distance) || !self.bounds.might_take(spot, &ask) {
                continue;
            }
            let keyed = (self.key_at(distance, spot, 0), spot);
            if best.as_ref().is_none_or(|best| self.compare_spots(&keyed, best).is_lt()) {
                best = Some(keyed);
            }
        }
        let (_, first) = best?;
        let choice = |spot| Some(Assignment { spots: vec![spot], pods: self.pack_into(&[spot], want)? });
        choice(first).or_else(|| {
            let promising =
                self.list_candidate_spots().filter(|(_, spot)| *spot != first && self.bounds.might_take(*spot, &ask));
            let mut keyed: Vec<(ObjectiveKey, Spot)> =
                promising.map(|(far, spot)| (self.key_at(far, spot, 0), spot)).collect();
            keyed.sort_unstable_by(|a, b| self.compare_spots(a, b));
            keyed.into_iter().find_map(|(_, spot)| choice(spot))
        })
    }

    fn compare_spots(&self, a: &(ObjectiveKey, Spot), b: &(ObjectiveKey, Spot)) -> Ordering {
        a.0.cmp(&b.0).then_with(|| self.compare_names(a.1.site, b.1.site)).then_with(|| a.1.domain.cmp(&b.1.domain))
    }

    /// The most that one spot takes of `want`, with all of `need`; the best of those that take as many.
    pub(super) fn place_elastic_in_one_spot(&self, want: &[u32], need: &[u32]) -> Option<Assignment> {
        let least = self.least_pods_to_add().max(1);
        let all = sum_pods(want);
        if least > all || need == want {
            return None;
        }
        let bounded =
            self.list_candidate_spots().map(|(_, spot)| (self.bounds.max_pods(&self.requests, spot, want), spot));
        let mut bounded: Vec<(u64, Spot)> = bounded.filter(|(most, _)| *most >= least).collect();
        bounded.sort_by_key(|(most, _)| std::cmp::Reverse(*most));
        let mut best: Option<((ObjectiveKey, Spot), Pods)> = None;
        for (most, spot) in bounded {
            if best.as_ref().is_some_and(|((key, _), _)| most < all - key.missing) {
                break;
            }
            let Some(pods) = self.pack_most_into(&[spot], want, need) else { continue };
            let placed: u64 = pods.iter().map(|pods| sum_pods(pods)).sum();
            let found = (self.objective_key(&[spot], all - placed), spot);
            if placed >= least && best.as_ref().is_none_or(|(known, _)| self.compare_spots(&found, known).is_lt()) {
                best = Some((found, pods));
            }
        }
        best.map(|((_, spot), pods)| Assignment { spots: vec![spot], pods })
    }

    /// The nodes of these spots together.
    fn nodes_of_spots(&self, spots: &[Spot]) -> FreeNodes {
        let own: Vec<Option<FreeNodes>> = spots.iter().map(|spot| self.nodes_of_domain(*spot)).collect();
        let free_nodes =
            |(spot, own): (&Spot, &Option<FreeNodes>)| own.is_none().then(|| self.free_nodes_of_site(spot.site));
        match (spots, own.as_slice()) {
            ([_], [Some(free_nodes)]) => free_nodes.clone(),
            ([spot], _) => self.free_nodes_of_site(spot.site).clone(),
            _ => FreeNodes::join_clusters(
                spots.iter().zip(&own).filter_map(|pair| pair.1.as_ref().or_else(|| free_nodes(pair))),
            ),
        }
    }

    fn nodes_of_domain(&self, spot: Spot) -> Option<FreeNodes> {
        Some(self.requests.free_nodes(self.sites[spot.site].capacity, NodeScope::Domain(spot.domain?)))
    }

    /// All of `want` into these spots together: by spot, then task.
    pub(super) fn pack_into(&self, spots: &[Spot], want: &[u32]) -> Option<Pods> {
        self.pack_all(&self.nodes_of_spots(spots), want, spots.len())
    }

    /// The same pods with as many of them together as can be: the site that takes most gets them first. As they were
    /// where that does not hold them all.
    pub(super) fn gather_pods(&self, spots: &[Spot], pods: Pods) -> Pods {
        let mut left: Vec<u32> =
            (0..self.requests.count_tasks()).map(|task| pods.iter().map(|site| site[task]).sum()).collect();
        let free_by_cluster: Vec<&FreeNodes> = spots.iter().map(|spot| self.free_nodes_of_site(spot.site)).collect();
        let order = self.requests.order_tasks(&free_by_cluster, ORDERS[0]);
        let mut open: Vec<usize> = (0..spots.len()).collect();
        let mut gathered = vec![vec![0; left.len()]; spots.len()];
        while sum_pods(&left) > 0 {
            let fills = |at: usize| free_by_cluster[at].clone().fill_in_order(&self.requests, &left, &order);
            let most = open.iter().map(|at| (fills(*at), *at)).max_by(|a, b| {
                let by_name = self.compare_names(spots[b.1].site, spots[a.1].site);
                sum_pods(&a.0).cmp(&sum_pods(&b.0)).then(by_name)
            });
            let Some((fill, at)) = most.filter(|(fill, _)| sum_pods(fill) > 0) else { return pods };
            left.iter_mut().zip(&fill).for_each(|(left, fill)| *left -= fill);
            gathered[at] = fill;
            open.retain(|other| *other != at);
        }
        gathered
    }

    fn pack_all(&self, free_nodes: &FreeNodes, want: &[u32], sites: usize) -> Option<Pods> {
        let requests = &self.requests;
        if (0..requests.count_tasks()).any(|task| free_nodes.max_pods(requests, task) < u64::from(want[task])) {
            return None;
        }
        for order in requests.list_task_orders(&[free_nodes]) {
            let found = free_nodes.clone().fill_joined(requests, want, &order, sites);
            if found.is_some() || requests.count_tasks() == 1 {
                return found;
            }
        }
        exact_packing::pack_clusters(requests, free_nodes, want, sites, &self.steps)
            .or_else(|| self.pack_by_price(free_nodes, want, sites))
    }

    fn pack_by_price(&self, free_nodes: &FreeNodes, want: &[u32], sites: usize) -> Option<Pods> {
        if (0..want.len()).any(|task| self.requests.partition_size_of(task) > 1) {
            return None;
        }
        let mut pods = vec![vec![0; want.len()]; sites];
        let packing = priced_packing::pack_by_price(&self.requests, free_nodes, want, &self.steps)
            .filter(priced_packing::Packing::places_all_pods)?;
        for pick in packing.picks {
            let site = &mut pods[free_nodes.site_of(pick.group)];
            site.iter_mut().zip(&pick.mix).for_each(|(pods, mix)| *pods += mix * pick.nodes);
        }
        // What is placed must be held in each cluster until it is seen there, which packs each part anew.
        let is_held = |(site, pods): (usize, &Vec<u32>)| {
            sum_pods(pods) == 0 || assumed::node_classes(&self.requests, &free_nodes.only_site(site), pods).is_some()
        };
        pods.iter().enumerate().all(is_held).then_some(pods)
    }

    /// As much of `want` as these spots take together, with all of `need`. For one task, and for few pods, that is the
    /// most.
    pub(super) fn pack_most_into(&self, spots: &[Spot], want: &[u32], need: &[u32]) -> Option<Pods> {
        let (requests, free_nodes) = (&self.requests, self.nodes_of_spots(spots));
        if requests.count_tasks() == 1 {
            let most = free_nodes
                .most_by_site(requests, 0, spots.len())
                .into_iter()
                .map(|most| most / u64::from(requests.partition_size_of(0)));
            let pods =
                most.sum::<u64>().saturating_mul(u64::from(requests.partition_size_of(0))).min(u64::from(want[0]));
            let pods = u32::try_from(pods).unwrap_or(u32::MAX);
            return if pods < need[0] { None } else { self.pack_all(&free_nodes, &[pods], spots.len()) };
        }
        if let Some(sizes) = list_gang_sizes(requests, want, need) {
            return sizes.iter().find_map(|size| self.pack_all(&free_nodes, size, spots.len()));
        }
        let mut best: Option<(u64, Pods)> = None;
        for order in requests.list_task_orders(&[&free_nodes]) {
            let mut trial = free_nodes.clone();
            let Some(mut pods) = trial.fill_joined(requests, need, &order, spots.len()) else { continue };
            let rest: Vec<u32> = want.iter().zip(need).map(|(want, need)| want - need).collect();
            trial.fill_joined_with_more(requests, &rest, &order, &mut pods);
            let placed = pods.iter().map(|pods| sum_pods(pods)).sum();
            if best.as_ref().is_none_or(|(most, _)| placed > *most) {
                best = Some((placed, pods));
            }
        }
        let least = || self.pack_all(&free_nodes, need, spots.len());
        best.map(|(_, pods)| pods).or_else(least)
    }
}

/// Every number of pods by task between `need` and `want`, the largest first; `None` if there are too many.
fn list_gang_sizes(requests: &GangRequests<'_>, want: &[u32], need: &[u32]) -> Option<Vec<Vec<u32>>> {
    let steps = |task: usize| u64::from((want[task] - need[task]) / requests.partition_size_of(task)) + 1;
    let count = (0..want.len()).map(steps).try_fold(1_u64, |all, one| all.checked_mul(one))?;
    if count > MOST_SIZES {
        return None;
    }
    let mut all = vec![Vec::new()];
    for (task, most) in want.iter().enumerate() {
        let options =
            (0..steps(task)).map(|step| most - u32::try_from(step).unwrap_or(0) * requests.partition_size_of(task));
        let options: Vec<u32> = options.collect();
        let longer = |size: &Vec<u32>| {
            let size = size.clone();
            options.iter().map(move |pods| [size.as_slice(), &[*pods]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all.sort_by_key(|size| std::cmp::Reverse(sum_pods(size)));
    Some(all)
}
