//! What each queue holds, what is promised in it, and what it may hold at most.
//!
//! Rule: `plugins/capacity/capacity.go` and `plugins/proportion` where they agree. A queue may hold what the nodes
//! offer less the guarantees of the others, and no more than its capability and that of its ancestors; of cpu and
//! memory a capability of zero or less is none; `pods` and attachable volumes are not compared. Everything counts for
//! all ancestors too.

use std::collections::BTreeMap;

use caldera_core::{
    quantity::Quantity,
    resources::{Limits, Resources},
};
use serde_json::Value;

use super::Group;
use crate::member::{
    facts::sum_requests,
    object::text,
    world::{Kind, World},
};

const ROOT: &str = "root";

#[derive(Debug, Default)]
struct Account<'a> {
    parent: &'a str,
    state: &'a str,
    capability: Limits,
    guarantee: Resources,
    allocated: Resources,
    inqueue: Resources,
    elastic: Resources,
}

pub(super) struct Ledger<'a> {
    accounts: BTreeMap<&'a str, Account<'a>>,
    /// What the nodes offer beyond all guarantees.
    unguaranteed: Resources,
    /// Promised to enqueued groups in all queues, beyond what their pods hold.
    pub(super) promised: Resources,
}

impl<'a> Ledger<'a> {
    pub(super) fn of(world: &'a World, total: &Resources, groups: &[Group<'a>]) -> Self {
        let mut accounts: BTreeMap<&str, Account<'_>> =
            world.of(Kind::Queue).map(|queue| (text(queue, "/metadata/name"), Account::read(queue))).collect();
        let mut guaranteed = Resources::new();
        for (_, account) in
            accounts.iter().filter(|(name, account)| **name != ROOT && matches!(account.parent, "" | ROOT))
        {
            guaranteed.add(&account.guarantee);
        }
        let mut unguaranteed = total.clone();
        unguaranteed.saturating_sub(&guaranteed);
        if let Some(root) = accounts.get_mut(ROOT) {
            root.guarantee = guaranteed;
        }
        let mut ledger = Self { accounts, unguaranteed, promised: Resources::new() };
        for group in groups {
            ledger.open(group);
        }
        ledger
    }

    fn open(&mut self, group: &Group<'a>) {
        let allocated = sum_requests(group.allocated());
        self.allocate(&group.facts.queue, &allocated);
        let Some(minimum) = &group.facts.minimum else { return };
        let count = i64::try_from(group.allocated().count()).unwrap_or(i64::MAX);
        let promised =
            group.facts.phase == "Inqueue" || (group.facts.phase == "Running" && count >= group.facts.min_member);
        let mut beyond = minimum.clone();
        beyond.saturating_sub(&allocated);
        if promised {
            self.promise(&group.facts.queue, &beyond);
        }
        let mut elastic = allocated;
        elastic.saturating_sub(minimum);
        self.each_above(&group.facts.queue, |account| account.elastic.add(&elastic));
    }

    /// What the queue itself says about itself: its state, `None` if there is no such queue.
    pub(super) fn state(&self, queue: &str) -> Option<&'a str> {
        self.accounts.get(queue).map(|account| account.state)
    }

    pub(super) fn is_open(&self, queue: &str) -> bool {
        self.state(queue) == Some("Open")
    }

    /// Counts pods that got a node.
    pub(super) fn allocate(&mut self, queue: &str, request: &Resources) {
        self.each_above(queue, |account| account.allocated.add(request));
    }

    /// Takes back what [`Self::allocate`] counted.
    pub(super) fn take_back(&mut self, queue: &str, request: &Resources) {
        self.each_above(queue, |account| account.allocated.saturating_sub(request));
    }

    /// Counts a group that is enqueued.
    pub(super) fn promise(&mut self, queue: &str, minimum: &Resources) {
        self.promised.add(minimum);
        self.each_above(queue, |account| account.inqueue.add(minimum));
    }

    /// The resources that keep a group out of its queue; none lets it in.
    pub(super) fn keeps_out(&self, queue: &str, minimum: &Resources) -> Vec<String> {
        self.chain(queue)
            .map(|(_, account)| {
                self.over(account, minimum, |name| {
                    let after = account.allocated.get(name).saturating_add(account.inqueue.get(name));
                    after.saturating_sub(account.elastic.get(name))
                })
            })
            .find(|names| !names.is_empty())
            .unwrap_or_default()
    }

    /// The resources of which the queue or an ancestor would hold too much with one more such pod.
    pub(super) fn refuses(&self, queue: &str, request: &Resources) -> Vec<String> {
        self.chain(queue)
            .map(|(_, account)| self.over(account, request, |name| account.allocated.get(name)))
            .find(|names| !names.is_empty())
            .unwrap_or_default()
    }

    fn over(&self, account: &Account<'_>, asked: &Resources, held: impl Fn(&str) -> Quantity) -> Vec<String> {
        let compared = |name: &str| name != "pods" && !name.starts_with("attachable-volumes-");
        asked
            .iter()
            .filter(|(name, amount)| compared(name.as_str()) && *amount > Quantity::ZERO)
            .filter(|(name, amount)| {
                let name = name.as_str();
                held(name).saturating_add(*amount) > self.most(account, name)
            })
            .map(|(name, _)| name.to_string())
            .collect()
    }

    fn most(&self, account: &Account<'_>, name: &str) -> Quantity {
        let room = self.unguaranteed.get(name).saturating_add(account.guarantee.get(name));
        match account.capability.get(name) {
            Some(limit) if limit > Quantity::ZERO || !matches!(name, "cpu" | "memory") => room.min(limit),
            _ => room,
        }
    }

    /// What each queue holds, itself and below.
    pub(super) fn allocated(&self) -> impl Iterator<Item = (&'a str, &Resources)> {
        self.accounts.iter().map(|(name, account)| (*name, &account.allocated))
    }

    /// The queue and its ancestors.
    fn chain<'b>(&'b self, queue: &'b str) -> impl Iterator<Item = (&'a str, &'b Account<'a>)> {
        let up = |(_, account): &(&'a str, &'b Account<'a>)| {
            let parent = if account.parent.is_empty() { ROOT } else { account.parent };
            self.accounts.get_key_value(parent).map(|(name, account)| (*name, account))
        };
        let first = self.accounts.get_key_value(queue).map(|(name, account)| (*name, account));
        // A root without a parent is its own; a cycle ends with the number of queues.
        std::iter::successors(first, move |at| up(at).filter(|(name, _)| *name != at.0)).take(self.accounts.len())
    }

    fn each_above(&mut self, queue: &str, mut change: impl FnMut(&mut Account<'a>)) {
        let names: Vec<&'a str> = self.chain(queue).map(|(name, _)| name).collect();
        for name in names {
            if let Some(account) = self.accounts.get_mut(name) {
                change(account);
            }
        }
    }
}

impl<'a> Account<'a> {
    fn read(queue: &'a Value) -> Self {
        let amounts = |pointer: &str| queue.pointer(pointer).cloned().unwrap_or_default();
        Self {
            parent: text(queue, "/spec/parent"),
            state: text(queue, "/status/state"),
            capability: serde_json::from_value(amounts("/spec/capability")).unwrap_or_default(),
            guarantee: serde_json::from_value(amounts("/spec/guarantee/resource")).unwrap_or_default(),
            ..Self::default()
        }
    }
}
