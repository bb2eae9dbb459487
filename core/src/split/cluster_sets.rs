//! A few clusters: every set of them is looked at, best key first.

use super::{Choice, Key, Pods, Search, Spot, total, upper_bounds::Ask};

/// Up to so many clusters that could take a pod every set of them is tried.
pub(super) const FEW: usize = 6;

/// A site, and the most pods that it could take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hopeful {
    pub most: u64,
    pub site: usize,
}

impl Search<'_> {
    /// All of `want` in several clusters.
    pub(super) fn several(&self, want: &[u32]) -> Option<Choice> {
        let sites = self.promising(want)?;
        if sites.len() > FEW { self.many(&sites, want) } else { self.few(&places(&sites), want) }
    }

    /// The best set of these sites that takes all of `want`.
    pub(super) fn few(&self, sites: &[usize], want: &[u32]) -> Option<Choice> {
        let ask = Ask::of(&self.kit, want);
        self.sets(sites).into_iter().find_map(|(_, spots)| {
            let sites: Vec<usize> = spots.iter().map(|spot| spot.site).collect();
            let pods = self.bounds.might_take_together(&sites, &ask).then(|| self.pack_into(&spots, want))??;
            let pods = self.gathered(&spots, pods);
            Some(Choice { spots, pods })
        })
    }

    /// Sites that could take something, those that hold pods among them; `None` if there may be only one.
    fn promising(&self, want: &[u32]) -> Option<Vec<Hopeful>> {
        let held = self.kept.len();
        if self.limit <= 1 && held <= 1 {
            return None;
        }
        let open = held < self.limit;
        let hopeful = |site: usize| {
            if !(self.holds(site) || open && self.sites[site].reach.cluster) {
                return None;
            }
            let most = self.bounds.most(&self.kit, Spot { site, domain: None }, want);
            (most > 0 || self.holds(site)).then_some(Hopeful { most, site })
        };
        Some((0..self.sites.len()).filter_map(hopeful).collect())
    }

    /// The minimum, and as much more of `want` as fits.
    pub(super) fn elastic(&self, want: &[u32], need: &[u32]) -> Option<Choice> {
        let one = self.one_elastic(want, need);
        let several = self.promising(want).and_then(|sites| {
            if sites.len() > FEW {
                self.many_elastic(&sites, want, need)
            } else {
                self.few_elastic(&places(&sites), want, need)
            }
        });
        match (one, several) {
            // At the same size one cluster is closer than several.
            (Some(one), Some(several)) if several.placed() > one.placed() => Some(several),
            (Some(one), _) => Some(one),
            (None, several) => several,
        }
    }

    /// The best set of these sites of those that take most of `want`, with all of `need`.
    pub(super) fn few_elastic(&self, sites: &[usize], want: &[u32], need: &[u32]) -> Option<Choice> {
        let least = self.at_least();
        let mut best: Option<(Key, Vec<Spot>, Pods)> = None;
        for (key, spots) in self.sets(sites) {
            let Some(pods) = self.most_into(&spots, want, need) else { continue };
            let placed: u64 = pods.iter().map(|pods| total(pods)).sum();
            let key = Key { missing: total(want) - placed, ..key };
            // Sets come in the order of their keys: the first of those with one key stays.
            if placed >= least && best.as_ref().is_none_or(|(known, ..)| key < *known) {
                best = Some((key, spots, pods));
            }
        }
        best.map(|(_, spots, pods)| {
            let pods = self.gathered(&spots, pods);
            Choice { spots, pods }
        })
    }

    /// Sets of two sites and more with all that hold pods, as far as they are close enough and not too many; best first.
    fn sets(&self, sites: &[usize]) -> Vec<(Key, Vec<Spot>)> {
        let (held, others): (Vec<usize>, Vec<usize>) = sites.iter().partition(|site| self.holds(**site));
        let mut sets = Vec::new();
        for chosen in 0..1_u32 << others.len() {
            let more = (0..others.len()).filter(|at| chosen >> at & 1 == 1).map(|at| others[at]);
            let mut set: Vec<usize> = held.iter().copied().chain(more).collect();
            set.sort_unstable();
            if set.len() < 2 || (chosen > 0 && !self.may_use(&set)) {
                continue;
            }
            let spots: Vec<Spot> = set.into_iter().map(|site| Spot { site, domain: None }).collect();
            let key = self.key(&spots, 0);
            if self.far || key.distance != super::Distance::Far {
                sets.push((key, spots));
            }
        }
        let sites = |spots: &[Spot]| spots.iter().map(|spot| spot.site).collect::<Vec<_>>();
        sets.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| self.tie.order(&sites(&a.1), &sites(&b.1))));
        sets
    }
}

pub(super) fn places(sites: &[Hopeful]) -> Vec<usize> {
    sites.iter().map(|one| one.site).collect()
}
