//! Amounts as short vectors of integers by interned resource, for the inner loop of admission.
//!
//! Exact: billionths of a unit in 128 bits, as [`crate::quantity::Quantity`] holds them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    resources::{ResourceName, Resources},
    tenant::Tenant,
};

/// An interned resource name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dim(u32);

impl Dim {
    pub(crate) const FIRST: Self = Self(0);
    pub(crate) const LAST: Self = Self(u32::MAX);
    /// The first that is no resource: jobs that hold anything. After it the same of each tenant.
    pub(crate) const JOBS: Self = Self(1 << 30);
    /// With this bit it is of one card model.
    const CARD: u32 = 1 << 29;
    /// A number of jobs with this bit is of a user.
    const USER: u32 = 1 << 29;

    const fn of_resource(place: u32, is_card: bool) -> Self {
        Self(if is_card { place | Self::CARD } else { place })
    }

    fn of_tenant(place: u32, tenant: &Tenant) -> Self {
        let user = if tenant.user().is_some() { Self::USER } else { 0 };
        Self((Self::JOBS.0 | user).saturating_add(1).saturating_add(place))
    }

    /// Whether it is of one card model ([`crate::card_model`]).
    pub(crate) fn is_card(self) -> bool {
        !self.is_count() && self.0 & Self::CARD != 0
    }

    /// Whether it counts jobs, and is no resource: of those [`super::running::RunningJobs`] has the amounts.
    pub(crate) fn is_count(self) -> bool {
        self >= Self::JOBS
    }

    /// Whether it counts the jobs of a user.
    pub(crate) fn is_of_user(self) -> bool {
        self.is_count() && self.0 & Self::USER != 0
    }

    pub(crate) const fn index(self) -> usize {
        (self.0 & !Self::CARD) as usize
    }
}

/// Names by place and places by name. A place whose name nobody has any more is given to another one.
#[derive(Debug, Clone)]
struct Names<N> {
    by_place: Vec<N>,
    places: BTreeMap<N, u32>,
    free: BTreeSet<u32>,
    /// How many there were when unused ones were forgotten last.
    kept: usize,
}

impl<N> Default for Names<N> {
    fn default() -> Self {
        Self { by_place: Vec::new(), places: BTreeMap::new(), free: BTreeSet::new(), kept: 0 }
    }
}

impl<N: Clone + Ord> Names<N> {
    /// So many may come before unused ones are looked for, beside as many as there were.
    const MOST_NEW: usize = if cfg!(test) { 2 } else { 64 };

    /// The place of a new name.
    fn add(&mut self, name: &N) -> u32 {
        let place = self.free.pop_first().unwrap_or(u32::try_from(self.by_place.len()).unwrap_or(u32::MAX));
        match self.by_place.get_mut(place as usize) {
            Some(free) => *free = name.clone(),
            None => self.by_place.push(name.clone()),
        }
        self.places.insert(name.clone(), place);
        place
    }

    fn retain(&mut self, is_used: impl Fn(&N, u32) -> bool) {
        let free = &mut self.free;
        self.places.retain(|name, place| is_used(name, *place) || !free.insert(*place));
        self.kept = self.places.len();
        let end = self.places.values().max().map_or(0, |last| last + 1);
        self.by_place.truncate(end as usize);
        free.split_off(&end);
    }

    fn have_doubled(&self) -> bool {
        self.places.len() > self.kept * 2 + Self::MOST_NEW
    }
}

/// Names by number and numbers by name. Tenants write the names of resources: those that nobody has any more are
/// forgotten, and their numbers used again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dims {
    names: Names<ResourceName>,
    /// All of them, in the order of their places.
    resources: Arc<Vec<Dim>>,
    /// Those whose jobs are counted.
    tenants: Names<Tenant>,
}

impl Dims {
    pub(crate) fn intern_resource(&mut self, name: &ResourceName) -> Dim {
        if let Some(dim) = self.find_dim(name) {
            return dim;
        }
        let dim = Dim::of_resource(self.names.add(name), name.is_card());
        let resources = Arc::make_mut(&mut self.resources);
        resources.insert(resources.partition_point(|other| other.index() < dim.index()), dim);
        dim
    }

    /// The card models.
    pub(crate) fn list_cards(&self) -> impl Iterator<Item = Dim> + use<> {
        self.list_dims().filter(|dim| dim.is_card())
    }

    pub(crate) fn resource_of(&self, dim: Dim) -> &ResourceName {
        &self.names.by_place[dim.index()]
    }

    /// The number of a name that is known.
    pub(crate) fn find_dim(&self, name: &ResourceName) -> Option<Dim> {
        self.names.places.get(name).map(|place| Dim::of_resource(*place, name.is_card()))
    }

    pub(crate) fn list_dims(&self) -> impl Iterator<Item = Dim> + use<> {
        let all = Arc::clone(&self.resources);
        (0..all.len()).map(move |place| all[place])
    }

    /// The number of a tenant's jobs.
    pub(crate) fn intern_tenant(&mut self, tenant: &Tenant) -> Dim {
        let known = self.tenants.places.get(tenant).copied();
        Dim::of_tenant(known.unwrap_or_else(|| self.tenants.add(tenant)), tenant)
    }

    /// Whose jobs it counts; `None` for those of all.
    pub(crate) fn tenant(&self, dim: Dim) -> Option<&Tenant> {
        self.tenants.by_place.get(usize::try_from((dim.0 & !Dim::USER).checked_sub(Dim::JOBS.0 + 1)?).ok()?)
    }

    pub(crate) fn intern_amounts(&mut self, amounts: &Resources) -> Sparse {
        amounts
            .iter()
            .filter(|(_, amount)| !amount.is_zero())
            .map(|(n, a)| (self.intern_resource(n), a.as_nano()))
            .collect()
    }

    /// Whether so many names came that it is time to look for those that nobody has any more.
    pub(crate) fn have_doubled(&self) -> bool {
        self.names.have_doubled() || self.tenants.have_doubled()
    }

    /// Forgets all others, and says which those are; from now on what comes is new.
    pub(crate) fn retain(&mut self, used: &BTreeSet<Dim>) -> Vec<Dim> {
        self.names.retain(|name, place| used.contains(&Dim::of_resource(place, name.is_card())));
        self.tenants.retain(|tenant, place| used.contains(&Dim::of_tenant(place, tenant)));
        let (kept, forgotten) = self.resources.iter().partition(|dim| used.contains(dim));
        self.resources = Arc::new(kept);
        forgotten
    }

    /// How many places there are.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.names.by_place.len() + self.tenants.by_place.len()
    }
}

/// Amounts other than zero, in the order of their names (so that the first one short is always the same one).
pub(crate) type Sparse = Box<[(Dim, i128)]>;

/// Amounts by dimension; what is beyond the end is zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Dense(Vec<i128>);

impl Dense {
    pub(crate) fn get(&self, dim: Dim) -> i128 {
        self.0.get(dim.index()).copied().unwrap_or(0)
    }

    pub(crate) fn set(&mut self, dim: Dim, amount: i128) {
        if self.0.len() <= dim.index() {
            self.0.resize(dim.index() + 1, 0);
        }
        self.0[dim.index()] = amount;
    }

    pub(crate) fn add(&mut self, amounts: &[(Dim, i128)]) {
        self.add_times(amounts, 1);
    }

    /// Adds amounts so many times; -1 takes them away.
    pub(crate) fn add_times(&mut self, amounts: &[(Dim, i128)], times: i128) {
        for (dim, amount) in amounts {
            self.set(*dim, self.get(*dim) + times * amount);
        }
    }

    pub(crate) fn add_dense(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// Each amount together with the other's of the same dimension.
    pub(crate) fn zip(&self, other: &Self, both: impl Fn(i128, i128) -> i128) -> Self {
        let of = |amounts: &Self, i: usize| amounts.0.get(i).copied().unwrap_or(0);
        Self((0..self.0.len().max(other.0.len())).map(|i| both(of(self, i), of(other, i))).collect())
    }

    /// Those that it has an amount of.
    pub(crate) fn list_dims(&self, dims: &Dims) -> impl Iterator<Item = Dim> {
        dims.list_dims().filter(|dim| self.get(*dim) != 0)
    }

    /// Gives back the room of numbers at the end that it has nothing of.
    pub(crate) fn trim(&mut self) {
        self.0.truncate(self.0.iter().rposition(|amount| *amount != 0).map_or(0, |last| last + 1));
        self.0.shrink_to_fit();
    }

    pub(crate) fn resources(&self, dims: &Dims) -> Resources {
        dims.list_dims()
            .map(|dim| (dims.resource_of(dim).clone(), dims.resource_of(dim).quantity_from_nano(self.get(dim))))
            .collect()
    }
}

/// A number's entry among ceilings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Unlisted,
    Listed(Option<i128>),
}

/// Ceilings by dimension; `None` is unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ceilings {
    by_dim: Vec<Entry>,
    /// The ceiling of every resource that is not listed: the fleet has nothing of what no cluster names. Of a card
    /// model that is not listed there is any amount, for what clusters have is not summed up by model.
    rest: Option<i128>,
}

impl Ceilings {
    /// Everything not set is nothing.
    pub(crate) const fn nothing() -> Self {
        Self { by_dim: Vec::new(), rest: Some(0) }
    }

    pub(crate) fn get(&self, dim: Dim) -> Option<i128> {
        match self.by_dim.get(dim.index()) {
            Some(Entry::Listed(ceiling)) => *ceiling,
            Some(Entry::Unlisted) | None => self.rest.filter(|_| !dim.is_card()),
        }
    }

    pub(crate) fn set(&mut self, dim: Dim, ceiling: Option<i128>) {
        if self.by_dim.len() <= dim.index() {
            self.by_dim.resize(dim.index() + 1, Entry::Unlisted);
        }
        self.by_dim[dim.index()] = Entry::Listed(ceiling);
    }

    /// Others may have these numbers from now on.
    pub(crate) fn unlist(&mut self, forgotten: &[Dim]) {
        for dim in forgotten {
            if let Some(entry) = self.by_dim.get_mut(dim.index()) {
                *entry = Entry::Unlisted;
            }
        }
        self.by_dim.truncate(self.by_dim.iter().rposition(|at| *at != Entry::Unlisted).map_or(0, |last| last + 1));
        self.by_dim.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_any_amount_of_a_card_model_that_no_ceiling_lists_and_nothing_of_a_resource() {
        let mut dims = Dims::default();
        let [gpu, model] = ["x.io/gpu", "x.io/gpu:a"].map(|name| dims.intern_resource(&name.into()));
        let mut ceilings = Ceilings::nothing();
        assert_eq!([gpu, model].map(|dim| ceilings.get(dim)), [Some(0), None]);
        ceilings.set(model, Some(0));
        let [later, other] = ["y.io/gpu", "y.io/gpu:a"].map(|name| dims.intern_resource(&name.into()));
        assert_eq!([gpu, model, later, other].map(|dim| ceilings.get(dim)), [Some(0), Some(0), Some(0), None]);
        assert_eq!(dims.list_dims().collect::<Vec<_>>(), [gpu, model, later, other]);
        assert_eq!(dims.list_cards().collect::<Vec<_>>(), [model, other]);
        assert_eq!(dims.resource_of(other).as_str(), "y.io/gpu:a");
        assert!(!Dim::JOBS.is_card() && !dims.intern_tenant(&Tenant::Namespace("ns".into())).is_card());
    }

    #[test]
    fn a_user_and_a_namespace_of_one_name_are_counted_apart() {
        let mut dims = Dims::default();
        let all = [Tenant::Namespace("a".into()), Tenant::User("a".into()), Tenant::User("b".into())];
        let numbers = all.each_ref().map(|tenant| dims.intern_tenant(tenant));
        assert_eq!(numbers.map(|dim| dims.tenant(dim).cloned()), all.map(Some));
        assert_eq!(numbers.map(Dim::is_of_user), [false, true, true]);
        assert!(numbers.into_iter().all(|dim| dim.is_count() && !dim.is_card() && dim != Dim::JOBS));
        assert!(dims.tenant(Dim::JOBS).is_none() && !Dim::JOBS.is_of_user());
    }

    #[test]
    fn a_name_in_the_place_of_a_forgotten_one_has_the_ceilings_of_a_new_one() {
        let mut dims = Dims::default();
        let [gpu, model, last] = ["x.io/gpu", "x.io/gpu:a", "z.io/gpu"].map(|name| dims.intern_resource(&name.into()));
        let mut ceilings = Ceilings::nothing();
        [gpu, model, last].into_iter().for_each(|dim| ceilings.set(dim, Some(7)));
        let forgotten = dims.retain(&[last].into());
        assert_eq!(forgotten, [gpu, model]);
        ceilings.unlist(&forgotten);
        let [card, plain] = ["y.io/gpu:a", "y.io/gpu"].map(|name| dims.intern_resource(&name.into()));
        assert_eq!(dims.list_dims().collect::<Vec<_>>(), [card, plain, last]);
        assert_eq!([card, plain, last].map(|dim| ceilings.get(dim)), [None, Some(0), Some(7)]);
        assert_eq!(dims.retain(&BTreeSet::new()), [card, plain, last]);
        assert_eq!(dims.size(), 0);
    }
}
