//! Amounts by interned resource, for the inner loop of admission.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    quantity::Quantity,
    queue::quota::amount::Amount,
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
        !self.counts_jobs() && self.0 & Self::CARD != 0
    }

    /// Whether it counts jobs, and is no resource: those are not summed up with resources.
    pub(crate) fn counts_jobs(self) -> bool {
        self >= Self::JOBS
    }

    /// Whether it counts the jobs of a user.
    pub(crate) fn is_of_user(self) -> bool {
        self.counts_jobs() && self.0 & Self::USER != 0
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

    fn needs_cleanup(&self) -> bool {
        self.places.len() > self.kept * 2 + Self::MOST_NEW
    }
}

/// Names by number and numbers by name. Tenants write the names of resources: those that nobody has any more are
/// forgotten, and their numbers used again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dims {
    names: Names<ResourceName>,
    /// Those whose jobs are counted.
    tenants: Names<Tenant>,
}

impl Dims {
    pub(crate) fn intern_resource(&mut self, name: &ResourceName) -> Dim {
        self.find_dim(name).unwrap_or_else(|| Dim::of_resource(self.names.add(name), name.is_card()))
    }

    pub(crate) fn resource_of(&self, dim: Dim) -> &ResourceName {
        &self.names.by_place[dim.index()]
    }

    /// The number of a name that is known.
    pub(crate) fn find_dim(&self, name: &ResourceName) -> Option<Dim> {
        self.names.places.get(name).map(|place| Dim::of_resource(*place, name.is_card()))
    }

    /// An amount as people read it.
    pub(crate) fn name_amount(&self, dim: Dim, amount: Amount) -> (ResourceName, Quantity) {
        let name = self.resource_of(dim);
        (name.clone(), amount.to_quantity_of(name))
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
            .map(|(n, a)| (self.intern_resource(n), a.into()))
            .collect()
    }

    /// Whether so many names came that it is time to look for those that nobody has any more.
    pub(crate) fn needs_cleanup(&self) -> bool {
        self.names.needs_cleanup() || self.tenants.needs_cleanup()
    }

    /// Forgets all others: from now on what comes is new.
    pub(crate) fn retain(&mut self, used: &BTreeSet<Dim>) {
        self.names.retain(|name, place| used.contains(&Dim::of_resource(place, name.is_card())));
        self.tenants.retain(|tenant, place| used.contains(&Dim::of_tenant(place, tenant)));
    }

    /// How many places there are.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.names.by_place.len() + self.tenants.by_place.len()
    }
}

/// Amounts other than zero, in the order of their names (so that the first one short is always the same one).
pub(crate) type Sparse = Box<[(Dim, Amount)]>;

/// What there is of a dimension among these.
pub(crate) fn find_amount(amounts: &[(Dim, Amount)], dim: Dim) -> Amount {
    amounts.iter().find(|(known, _)| *known == dim).map_or(Amount::ZERO, |(_, amount)| *amount)
}

/// So many are searched through faster than a tree.
const FEW: usize = 16;

/// Values by dimension, in the order of dimensions: a short list, and a tree once there are many. Tenants write the
/// names of resources, and all tenants together many.
#[derive(Debug, Clone)]
struct ByDim<V> {
    few: Vec<(Dim, V)>,
    /// All of them, once they are more than a few.
    many: BTreeMap<Dim, V>,
}

impl<V> Default for ByDim<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: Copy + PartialEq> PartialEq for ByDim<V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<V: Copy + Eq> Eq for ByDim<V> {}

impl<V> ByDim<V> {
    const fn new() -> Self {
        Self { few: Vec::new(), many: BTreeMap::new() }
    }

    fn insert(&mut self, dim: Dim, value: V) {
        match self.few.binary_search_by_key(&dim, |(dim, _)| *dim) {
            Ok(at) => self.few[at].1 = value,
            Err(at) if self.many.is_empty() && self.few.len() < FEW => self.few.insert(at, (dim, value)),
            Err(_) => {
                self.many.extend(self.few.drain(..));
                self.many.insert(dim, value);
            }
        }
    }

    fn remove(&mut self, dim: Dim) {
        match self.few.binary_search_by_key(&dim, |(dim, _)| *dim) {
            Ok(at) => drop(self.few.remove(at)),
            Err(_) => drop(self.many.remove(&dim)),
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }
}

impl<V: Copy> ByDim<V> {
    fn get(&self, dim: Dim) -> Option<V> {
        let few = self.few.iter().find(|(known, _)| *known == dim).map(|(_, value)| *value);
        few.or_else(|| self.many.get(&dim).copied())
    }

    fn iter(&self) -> impl Iterator<Item = (Dim, V)> + Clone {
        self.few.iter().copied().chain(self.many.iter().map(|(dim, value)| (*dim, *value)))
    }
}

/// Amounts by dimension, without those that are zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DimAmounts(ByDim<Amount>);

impl DimAmounts {
    pub(crate) fn get(&self, dim: Dim) -> Amount {
        self.0.get(dim).unwrap_or_default()
    }

    pub(crate) fn set(&mut self, dim: Dim, amount: Amount) {
        if amount.is_zero() {
            self.0.remove(dim);
        } else {
            self.0.insert(dim, amount);
        }
    }

    pub(crate) fn add(&mut self, amounts: &[(Dim, Amount)]) {
        self.add_times(amounts, 1);
    }

    /// Adds amounts so many times; -1 takes them away.
    pub(crate) fn add_times(&mut self, amounts: &[(Dim, Amount)], times: i64) {
        for (dim, amount) in amounts {
            self.set(*dim, self.get(*dim) + *amount * times);
        }
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        for (dim, amount) in other.iter() {
            self.set(dim, self.get(dim) + amount);
        }
    }

    /// Each amount together with the other's of the same dimension.
    pub(crate) fn zip(&self, other: &Self, both: impl Fn(Amount, Amount) -> Amount) -> Self {
        let mut all = Self::default();
        for (dim, _) in self.iter().chain(other.iter()) {
            all.set(dim, both(self.get(dim), other.get(dim)));
        }
        all
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Dim, Amount)> + Clone {
        self.0.iter()
    }

    /// Whether all are zero.
    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn resources(&self, dims: &Dims) -> Resources {
        self.iter().map(|(dim, amount)| dims.name_amount(dim, amount)).collect()
    }
}

/// Ceilings by dimension; `None` is unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ceilings {
    /// Those that are others than the rest.
    listed: ByDim<Option<Amount>>,
    /// The ceiling of every resource that is not listed: the fleet has nothing of what no cluster names. Of a card
    /// model that is not listed there is any amount, for what clusters have is not summed up by model.
    rest: Option<Amount>,
}

impl Ceilings {
    /// Everything not set is nothing.
    pub(crate) const fn nothing() -> Self {
        Self { listed: ByDim::new(), rest: Some(Amount::ZERO) }
    }

    /// What is listed nowhere is as it is in these.
    pub(crate) const fn with_rest_of(other: &Self) -> Self {
        Self { listed: ByDim::new(), rest: other.rest }
    }

    pub(crate) fn get(&self, dim: Dim) -> Option<Amount> {
        self.listed.get(dim).unwrap_or_else(|| self.unlisted(dim))
    }

    pub(crate) fn set(&mut self, dim: Dim, ceiling: Option<Amount>) {
        if ceiling == self.unlisted(dim) {
            self.listed.remove(dim);
        } else {
            self.listed.insert(dim, ceiling);
        }
    }

    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.listed.len()
    }

    fn unlisted(&self, dim: Dim) -> Option<Amount> {
        self.rest.filter(|_| !dim.is_card())
    }

    /// Those that are listed, and not unlimited.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Dim, Amount)> {
        self.listed.iter().filter_map(|(dim, ceiling)| Some((dim, ceiling?)))
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
        let nothing = Some(Amount::ZERO);
        assert_eq!([gpu, model].map(|dim| ceilings.get(dim)), [nothing, None]);
        ceilings.set(model, nothing);
        let [later, other] = ["y.io/gpu", "y.io/gpu:a"].map(|name| dims.intern_resource(&name.into()));
        assert_eq!([gpu, model, later, other].map(|dim| ceilings.get(dim)), [nothing, nothing, nothing, None]);
        assert_eq!([gpu, model, later, other].map(Dim::is_card), [false, true, false, true]);
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
        assert!(numbers.into_iter().all(|dim| dim.counts_jobs() && !dim.is_card() && dim != Dim::JOBS));
        assert!(dims.tenant(Dim::JOBS).is_none() && !Dim::JOBS.is_of_user());
    }

    #[test]
    fn values_are_found_in_the_order_of_their_dimensions_however_many_there_are() {
        let mut all = ByDim::new();
        let mut model = BTreeMap::new();
        for step in 0..400_u32 {
            let dim = Dim(step * 7 % 40);
            if step % 200 < 60 {
                all.insert(dim, step);
                model.insert(dim, step);
            } else {
                all.remove(dim);
                model.remove(&dim);
            }
            assert_eq!(all.iter().collect::<Vec<_>>(), model.clone().into_iter().collect::<Vec<_>>());
            assert_eq!((all.get(dim), all.len()), (model.get(&dim).copied(), model.len()));
        }
    }

    #[test]
    fn a_name_takes_the_place_of_a_forgotten_one() {
        let mut dims = Dims::default();
        let [gpu, model, last] = ["x.io/gpu", "x.io/gpu:a", "z.io/gpu"].map(|name| dims.intern_resource(&name.into()));
        dims.retain(&[last].into());
        assert_eq!([gpu, model].map(Dim::index), [0, 1]);
        let [card, plain] = ["y.io/gpu:a", "y.io/gpu"].map(|name| dims.intern_resource(&name.into()));
        assert_eq!([card, plain, last].map(Dim::index), [0, 1, 2]);
        dims.retain(&BTreeSet::new());
        assert_eq!(dims.size(), 0);
    }

    #[test]
    fn amounts_and_ceilings_have_room_for_what_differs_from_all_others_alone() {
        let mut dims = Dims::default();
        let [gpu, model] = ["x.io/gpu", "x.io/gpu:a"].map(|name| dims.intern_resource(&name.into()));
        let mut amounts = DimAmounts::default();
        amounts.add(&[(gpu, Amount(2)), (model, Amount(1))]);
        amounts.add_times(&[(gpu, Amount(1)), (model, Amount(1))], -2);
        assert_eq!(amounts.iter().collect::<Vec<_>>(), [(model, Amount(-1))]);
        let mut ceilings = Ceilings::nothing();
        ceilings.set(gpu, Some(Amount(7)));
        ceilings.set(model, Some(Amount::ZERO));
        assert_eq!(ceilings.iter().collect::<Vec<_>>(), [(gpu, Amount(7)), (model, Amount::ZERO)]);
        ceilings.set(gpu, Some(Amount::ZERO));
        ceilings.set(model, None);
        assert_eq!(ceilings, Ceilings::nothing());
    }
}
