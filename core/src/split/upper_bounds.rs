//! What a cluster or a domain can take at most, from its profile alone: a few numbers tell which of them need not be
//! packed. They also tell how much is free there, weighted by what the gang asks for, so that the best fit wins.

use super::{Spot, packing::GangRequests};
use crate::{
    inventory::{CLUSTER_ROW, Capacity, DomainId, Profile, Source},
    resources::ResourceName,
};

/// The gang's columns in every site's profile.
pub(super) struct UpperBounds<'a> {
    profiles: Vec<&'a Profile>,
    /// Row-major: site, resource of the gang. [`ABSENT`] where the site has none of it.
    columns: Vec<u16>,
    width: usize,
    /// By how much to shift what is free of a resource, so that the gang's demand of each counts about the same; `None`
    /// for what does not count.
    shifts: Vec<Option<i32>>,
    /// By site: whether its nodes are known, and not only their sum.
    by_node: Vec<bool>,
}

const ABSENT: u16 = u16::MAX;
/// The gang's demand of each resource is shifted to about two to this.
const WEIGHT: i32 = 10;

impl<'a> UpperBounds<'a> {
    pub(super) fn new(requests: &GangRequests<'_>, capacities: impl Iterator<Item = &'a Capacity>) -> Self {
        let resources = requests.resources();
        let known = |capacity: &'a Capacity| (capacity.profile(), capacity.source == Source::Nodes);
        let (profiles, by_node): (Vec<&Profile>, Vec<bool>) = capacities.map(known).unzip();
        let mut columns = Vec::with_capacity(profiles.len() * resources.len());
        for profile in &profiles {
            let column = |name| profile.column(name).and_then(|at| u16::try_from(at).ok()).unwrap_or(ABSENT);
            columns.extend(resources.iter().map(column));
        }
        let whole: Vec<u32> = requests.gang.tasks.iter().map(|task| task.replicas).collect();
        let shifts = resources
            .iter()
            .zip(requests.total_demand(&whole))
            .map(|(name, demand)| weight_shift(name, demand, resources.len()));
        Self { profiles, columns, width: resources.len(), shifts: shifts.collect(), by_node }
    }

    /// A site's domains that are not above a tier, lower ones first, with their tiers.
    pub(super) fn domains_up_to(&self, site: usize, highest: u32) -> impl Iterator<Item = (DomainId, u32)> + '_ {
        let tiers = self.profiles[site].tiers().iter().copied();
        (0..).map(DomainId::at).zip(tiers).take_while(move |(_, tier)| *tier <= highest)
    }

    pub(super) fn tier_of(&self, site: usize, domain: DomainId) -> u32 {
        self.profiles[site].tiers().get(domain.index()).copied().unwrap_or(u32::MAX)
    }

    fn profile_row(spot: Spot) -> usize {
        spot.domain.map_or(CLUSTER_ROW, |domain| domain.index() + 1)
    }

    fn site_columns(&self, site: usize) -> &[u16] {
        &self.columns[site * self.width..(site + 1) * self.width]
    }

    /// False only if what is asked for can not be there: in all, or for the largest pod by each resource.
    pub(super) fn might_take(&self, spot: Spot, ask: &TotalDemand) -> bool {
        let (profile, row) = (self.profiles[spot.site], Self::profile_row(spot));
        let (free, largest) = (profile.row_free(row), profile.largest(row));
        self.site_columns(spot.site).iter().zip(ask.demand.iter().zip(&ask.largest)).all(|(column, (demand, each))| {
            let at = usize::from(*column);
            *demand == 0 || (*column != ABSENT && free[at] >= *demand && largest[at] >= *each)
        })
    }

    /// Whether so much may be free in these together.
    pub(super) fn might_take_together(&self, sites: &[usize], ask: &TotalDemand) -> bool {
        (0..self.width).all(|resource| {
            let free = |site: &usize| match self.site_columns(*site)[resource] {
                ABSENT => 0,
                column => self.profiles[*site].row_free(CLUSTER_ROW)[usize::from(column)],
            };
            ask.demand[resource] == 0 || sites.iter().map(free).fold(0, i64::saturating_add) >= ask.demand[resource]
        })
    }

    /// The most pods of these that may be put there.
    pub(super) fn max_pods(&self, requests: &GangRequests<'_>, spot: Spot, pods: &[u32]) -> u64 {
        self.max_pods_at_least(requests, spot, pods, 0..pods.len(), 0).unwrap_or(0)
    }

    /// [`Self::max_pods`], looking at the tasks in some order; `None` as soon as it is known to be less than `least`.
    pub(super) fn max_pods_at_least(
        &self,
        requests: &GangRequests<'_>,
        spot: Spot,
        pods: &[u32],
        tasks: impl Iterator<Item = usize>,
        least: u64,
    ) -> Option<u64> {
        let (profile, row) = (self.profiles[spot.site], Self::profile_row(spot));
        let (free, largest) = (profile.row_free(row), profile.largest(row));
        let columns = self.site_columns(spot.site);
        let of = |task: usize| {
            let on_nodes = |each| u64::from(profile.nodes(row)).saturating_mul(each);
            let apart = requests.most_per_node(task).filter(|_| self.by_node[spot.site]);
            let mut most = u64::from(pods[task]).min(apart.map_or(u64::MAX, on_nodes));
            for (column, asked) in columns.iter().zip(requests.request_row(task)) {
                let at = usize::from(*column);
                if *asked <= 0 || most == 0 {
                    continue;
                }
                if *column == ABSENT || largest[at] < *asked {
                    return 0;
                }
                let all = asked.saturating_mul(i64::try_from(most).unwrap_or(i64::MAX));
                if free[at] < all {
                    most = most.min((free[at] / asked).unsigned_abs());
                }
            }
            most
        };
        let mut most = super::sum_pods(pods);
        for task in tasks {
            most = most - u64::from(pods[task]) + of(task);
            if most < least {
                return None;
            }
        }
        Some(most)
    }

    /// How many pods of gangs like `pods` there may be at a site, by sums: of those tasks that find a node large enough
    /// and that it takes any pod of (`takes`). Where these are not all tasks, no more than one gang's.
    pub(super) fn max_pods_of_gangs(
        &self,
        requests: &GangRequests<'_>,
        site: usize,
        pods: &[u32],
        takes: impl Fn(usize) -> u64,
    ) -> u64 {
        let (profile, columns) = (self.profiles[site], self.site_columns(site));
        let (free, largest) = (profile.row_free(CLUSTER_ROW), profile.largest(CLUSTER_ROW));
        let holds = |task: usize| {
            columns.iter().zip(requests.request_row(task)).all(|(column, asked)| {
                let at = usize::from(*column);
                *asked <= 0 || (*column != ABSENT && largest[at] >= *asked)
            })
        };
        let wanted = (0..pods.len()).filter(|task| pods[*task] > 0);
        let taken: Vec<(usize, u64)> = wanted
            .clone()
            .filter(|task| holds(*task))
            .map(|task| (task, takes(task)))
            .filter(|(_, most)| *most > 0)
            .collect();
        let all: u64 = taken.iter().map(|(task, _)| u64::from(pods[*task])).sum();
        // So many gangs' pods, of which each takes `part` of `whole`.
        let of = |whole: u64, part: u64| {
            u64::try_from(u128::from(whole) * u128::from(all) / u128::from(part.max(1))).unwrap_or(u64::MAX)
        };
        let mut most = if taken.len() < wanted.count() { all } else { u64::MAX };
        for (task, fits) in &taken {
            most = most.min(of(*fits, u64::from(pods[*task])));
        }
        for (at, column) in columns.iter().enumerate().filter(|(_, column)| **column != ABSENT) {
            let each =
                taken.iter().map(|(task, _)| requests.request_row(*task)[at].saturating_mul(i64::from(pods[*task])));
            let demand = each.fold(0, i64::saturating_add);
            if demand > 0 {
                most = most.min(of(free[usize::from(*column)].unsigned_abs(), demand.unsigned_abs()));
            }
        }
        if all == 0 { 0 } else { most }
    }

    /// What is free there of what the gang asks for, each resource counted about by the gang's demand. What is left
    /// after the gang is in differs from this by the same number everywhere, so that the least is the best fit.
    pub(super) fn weighted_free_amount(&self, spot: Spot) -> u64 {
        let free = self.profiles[spot.site].row_free(Self::profile_row(spot));
        self.site_columns(spot.site).iter().zip(&self.shifts).fold(0, |sum: u64, (column, by)| match (*column, by) {
            (ABSENT, _) | (_, None) => sum,
            (column, Some(by)) => sum.saturating_add(shift_amount(free[usize::from(column)].unsigned_abs(), *by)),
        })
    }
}

/// What pods ask for in all, and the largest of them by each resource.
pub(super) struct TotalDemand {
    demand: Vec<i64>,
    largest: Vec<i64>,
}

impl TotalDemand {
    pub(super) fn of_pods(requests: &GangRequests<'_>, pods: &[u32]) -> Self {
        let wanted = || (0..pods.len()).filter(|task| pods[*task] > 0);
        let largest = |column| wanted().map(|task| requests.request_row(task)[column]).max().unwrap_or(0);
        Self { demand: requests.total_demand(pods), largest: (0..requests.resources().len()).map(largest).collect() }
    }
}

/// Numbers of pods count only for a gang that asks for nothing else.
fn weight_shift(name: &ResourceName, demand: i64, resources: usize) -> Option<i32> {
    if demand <= 0 || (resources > 1 && name.as_str() == ResourceName::PODS) {
        return None;
    }
    Some(WEIGHT - i32::try_from(demand.ilog2()).unwrap_or(0))
}

fn shift_amount(amount: u64, by: i32) -> u64 {
    if by <= 0 {
        amount >> by.unsigned_abs().min(63)
    } else {
        amount.saturating_mul(1_u64 << by.unsigned_abs().min(63))
    }
}
