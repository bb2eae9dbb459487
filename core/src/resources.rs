//! Amounts of several resources, by name.
//!
//! Rule: Volcano's resource arithmetic (`pkg/scheduler/api/resource_info.go`) without its floats and epsilons: a name
//! that is absent from a demand asks for nothing; a name that is absent from an offer offers nothing. Where "absent
//! means unlimited" (a queue's capability) the type is [`Limits`], so that the two can not be confused.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{name::define_name, quantity::Quantity};

define_name! {
    /// A resource's name as Kubernetes writes it: `cpu`, `memory`, `pods`, `nvidia.com/gpu`, `nvidia.com/a100`.
    ResourceName
}

impl ResourceName {
    /// Cores.
    pub const CPU: &'static str = "cpu";
    /// Bytes.
    pub const MEMORY: &'static str = "memory";
    /// A number of pods.
    pub const PODS: &'static str = "pods";
    /// What the agent of a node sells again of what its services do not use: thousandths of cores, and bytes
    /// (`pkg/agent/apis/types.go` of Volcano).
    pub const OVERSOLD: [&'static str; 2] = ["kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"];

    /// Whether nodes sell it of what their services do not use, so that there may be more of it in a minute.
    #[must_use]
    pub fn is_oversold(&self) -> bool {
        Self::OVERSOLD.contains(&self.as_str())
    }

    /// Whether queues are charged by this name: resources, and those of one card model, which no pod asks for by that
    /// name. `requests.*`, `limits.*` and `count/*` are what a ResourceQuota calls things: Volcano's scheduler drops
    /// them (`resource_info.go:87-123`).
    #[must_use]
    pub fn is_counted(&self) -> bool {
        !["requests.", "limits.", "count/"].iter().any(|start| self.as_str().starts_with(start))
    }

    /// Whether a pod can ask for it as far as Volcano's scheduler knows, which drops other names
    /// (`pkg/scheduler/api/resource_info.go`, `NewResource`).
    #[must_use]
    pub fn is_requestable(&self) -> bool {
        let name = self.as_str();
        matches!(name, "cpu" | "memory" | "pods" | "ephemeral-storage")
            || ["hugepages-", "attachable-volumes-"].iter().any(|start| name.starts_with(start))
            || (name.contains('/') && self.is_counted() && !self.is_card())
    }

    /// Whether its amounts are bytes.
    #[must_use]
    pub fn counts_bytes(&self) -> bool {
        let name = self.as_str();
        matches!(name, "memory" | "storage" | "ephemeral-storage" | "kubernetes.io/batch-memory")
            || name.starts_with("hugepages-")
    }

    /// `nano` billionths of this resource, shown as people write it: bytes in `Ki`, `Mi`, `Gi`.
    #[must_use]
    pub fn quantity_from_nano(&self, nano: i128) -> Quantity {
        let amount = Quantity::from_nano(nano);
        if self.counts_bytes() { amount.in_binary() } else { amount }
    }
}

/// Amounts by resource name; an absent name is zero. Zero amounts are kept out, so that equality is by value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Resources(BTreeMap<ResourceName, Quantity>);

impl Resources {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The amount of `name`, zero where absent.
    #[must_use]
    pub fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or(Quantity::ZERO)
    }

    /// Sets the amount of `name`.
    pub fn set(&mut self, name: impl Into<ResourceName>, amount: Quantity) {
        let name = name.into();
        if amount.is_zero() {
            self.0.remove(name.as_str());
        } else {
            self.0.insert(name, amount);
        }
    }

    /// The names with an amount other than zero, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// True if every amount is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds `other` to this.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            self.set(name.clone(), self.get(name.as_str()).saturating_add(amount));
        }
    }

    /// Takes `other` away; amounts never go below zero.
    pub fn saturating_sub(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            if self.0.contains_key(name.as_str()) {
                self.set(name.clone(), self.get(name.as_str()).saturating_sub(amount));
            }
        }
    }

    /// Every amount `times` times.
    #[must_use]
    pub fn times(&self, times: u64) -> Self {
        self.iter().map(|(name, amount)| (name.clone(), amount.times(times))).collect()
    }

    /// Per name the larger of both.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        let mut result = self.clone();
        for (name, amount) in other.iter() {
            result.set(name.clone(), result.get(name.as_str()).max(amount));
        }
        result
    }

    /// Per name the smaller of both.
    #[must_use]
    pub fn min(&self, other: &Self) -> Self {
        self.iter().map(|(name, amount)| (name.clone(), amount.min(other.get(name.as_str())))).collect()
    }

    /// True if `offer` holds at least this much of every name asked for here.
    #[must_use]
    pub fn fits_in(&self, offer: &Self) -> bool {
        self.iter().all(|(name, asked)| asked <= offer.get(name.as_str()))
    }

    /// How many times this fits in `offer`; `None` if this asks for nothing.
    #[must_use]
    pub fn count_fits_in(&self, offer: &Self) -> Option<u64> {
        self.iter()
            .filter(|(_, asked)| *asked > Quantity::ZERO)
            .map(|(name, asked)| {
                let free = offer.get(name.as_str()).as_nano().max(0);
                u64::try_from(free / asked.as_nano()).unwrap_or(u64::MAX)
            })
            .min()
    }
}

impl FromIterator<(ResourceName, Quantity)> for Resources {
    fn from_iter<I: IntoIterator<Item = (ResourceName, Quantity)>>(entries: I) -> Self {
        let mut resources = Self::new();
        for (name, amount) in entries {
            resources.set(name, amount);
        }
        resources
    }
}

impl<'a> FromIterator<(&'a str, Quantity)> for Resources {
    fn from_iter<I: IntoIterator<Item = (&'a str, Quantity)>>(entries: I) -> Self {
        entries.into_iter().map(|(name, amount)| (ResourceName::from(name), amount)).collect()
    }
}

impl<'de> Deserialize<'de> for Resources {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::<ResourceName, Quantity>::deserialize(deserializer).map(|entries| entries.into_iter().collect())
    }
}

/// For people: `cpu 4.5, memory 8Gi`, or `nothing`.
impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        for (i, (name, amount)) in self.iter().enumerate() {
            write!(f, "{}{name} {}", if i == 0 { "" } else { ", " }, amount.plain())?;
        }
        Ok(())
    }
}

/// Upper bounds by resource name; an absent name is unlimited, a zero is a real limit of nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Limits(BTreeMap<ResourceName, Quantity>);

impl Limits {
    /// No limit at all.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self(BTreeMap::new())
    }

    /// The limit of `name`, `None` where unlimited.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(name).copied()
    }

    /// Limits `name` to `amount`.
    pub fn set(&mut self, name: impl Into<ResourceName>, amount: Quantity) {
        self.0.insert(name.into(), amount);
    }

    /// The limited names, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// True if nothing is limited.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(ResourceName, Quantity)> for Limits {
    fn from_iter<I: IntoIterator<Item = (ResourceName, Quantity)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}
