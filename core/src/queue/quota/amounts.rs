//! Amounts as short vectors of integers by interned resource, for the inner loop of admission.
//!
//! Exact: billionths of a unit in 128 bits, as [`crate::quantity::Quantity`] holds them.

use std::{collections::BTreeMap, sync::Arc};

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

/// Names by number and numbers by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dims {
    names: Vec<ResourceName>,
    numbers: BTreeMap<ResourceName, Dim>,
    /// All of them, in the order of their places.
    resources: Arc<Vec<Dim>>,
    /// Those whose jobs are counted.
    tenants: Vec<Tenant>,
    tenant_numbers: BTreeMap<Tenant, Dim>,
}

impl Dims {
    pub(crate) fn intern_resource(&mut self, name: &ResourceName) -> Dim {
        if let Some(dim) = self.numbers.get(name) {
            return *dim;
        }
        let dim = Dim::of_resource(u32::try_from(self.names.len()).unwrap_or(u32::MAX), name.is_card());
        Arc::make_mut(&mut self.resources).push(dim);
        self.names.push(name.clone());
        self.numbers.insert(name.clone(), dim);
        dim
    }

    /// The card models.
    pub(crate) fn list_cards(&self) -> impl Iterator<Item = Dim> + use<> {
        self.list_dims().filter(|dim| dim.is_card())
    }

    pub(crate) fn resource_of(&self, dim: Dim) -> &ResourceName {
        &self.names[dim.index()]
    }

    /// The number of a name that is known.
    pub(crate) fn find_dim(&self, name: &ResourceName) -> Option<Dim> {
        self.numbers.get(name).copied()
    }

    pub(crate) fn list_dims(&self) -> impl Iterator<Item = Dim> + use<> {
        let all = Arc::clone(&self.resources);
        (0..all.len()).map(move |place| all[place])
    }

    /// The number of a tenant's jobs.
    pub(crate) fn intern_tenant(&mut self, tenant: &Tenant) -> Dim {
        if let Some(dim) = self.tenant_numbers.get(tenant) {
            return *dim;
        }
        let place = u32::try_from(self.tenants.len()).unwrap_or(u32::MAX);
        let user = if tenant.user().is_some() { Dim::USER } else { 0 };
        let dim = Dim((Dim::JOBS.0 | user).saturating_add(1).saturating_add(place));
        self.tenants.push(tenant.clone());
        self.tenant_numbers.insert(tenant.clone(), dim);
        dim
    }

    /// Whose jobs it counts; `None` for those of all.
    pub(crate) fn tenant(&self, dim: Dim) -> Option<&Tenant> {
        self.tenants.get(usize::try_from((dim.0 & !Dim::USER).checked_sub(Dim::JOBS.0 + 1)?).ok()?)
    }

    pub(crate) fn intern_amounts(&mut self, amounts: &Resources) -> Sparse {
        amounts
            .iter()
            .filter(|(_, amount)| !amount.is_zero())
            .map(|(n, a)| (self.intern_resource(n), a.as_nano()))
            .collect()
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

    pub(crate) fn resources(&self, dims: &Dims) -> Resources {
        dims.list_dims()
            .map(|dim| (dims.resource_of(dim).clone(), dims.resource_of(dim).quantity_from_nano(self.get(dim))))
            .collect()
    }
}

/// Ceilings by dimension; `None`, and what is beyond the end, is unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ceilings {
    by_dim: Vec<Option<i128>>,
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
        self.by_dim.get(dim.index()).copied().unwrap_or_else(|| self.rest_of(dim))
    }

    fn rest_of(&self, dim: Dim) -> Option<i128> {
        self.rest.filter(|_| !dim.is_card())
    }

    pub(crate) fn set(&mut self, dim: Dim, ceiling: Option<i128>) {
        if self.by_dim.len() <= dim.index() {
            self.by_dim.resize(dim.index() + 1, self.rest);
        }
        self.by_dim[dim.index()] = ceiling;
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
}
