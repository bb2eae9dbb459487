//! What a queue may have, what is kept free for it, and what it deserves: worked out from the root down.
//!
//! Rule: Volcano's capacity plugin (`capacity.go:1095-1155`, `1481-1545`), for every resource by itself: `real =
//! min(parent's real - all siblings' guarantees + own guarantee, capability)` and `deserved = max(min(deserved, real),
//! guarantee)`. Where a queue sets no `deserved` at all, its `weight` gives it a part of what its siblings' leave of
//! the parent's (proportion plugin, `proportion.go:199-266`).
//!
//! Differences on purpose. A guarantee holds against uncles too: what is kept free for a queue is at least what is kept
//! free for all below it (Volcano adds up at the root only, so that a nested guarantee protects from siblings alone).
//! `deserved` stays within `real` in a tree as it does without one (Volcano does not look in a tree: a queue could take
//! back what it can never use). Parts by weight do not follow the jobs of the moment: what a queue leaves idle others
//! borrow anyway, and what is deserved must not change because somebody submits. And nobody is stopped by another's
//! mistake: a guarantee of more than there can ever be keeps nothing free; guarantees, and below the root what is
//! deserved, that are more than the parent has together are cut from the largest down. A resource of one card model
//! ([`crate::card_model`]) has the ceilings of queues alone: the root has any amount, and nobody deserves a part of it.
//!
//! Only the names of queues and clusters take part, whatever jobs ask for: of a resource that neither knows every queue
//! has what the root has.

use std::collections::BTreeSet;

use crate::{
    queue::{
        quota::{
            amount::Amount,
            amounts::{Ceilings, Dim, DimAmounts, Dims},
            slot::{QueueIndex, QuotaRequest, Slot},
            water_fill::{Portion, fill_by_weight},
        },
        spec::{FleetResources, QueueSpec},
    },
    resources::Resources,
};

/// Sets `capability`, `left`, `real`, `reach`, `guarantee` and `deserved` of every queue.
pub(crate) fn resolve_entitlements(slots: &mut [Slot], dims: &mut Dims, fleet: &FleetResources) {
    for slot in slots.iter_mut() {
        reset_from_spec(slot, dims);
    }
    let ready = make_fleet_ceilings(&fleet.ready, dims);
    let whole = fleet.whole.as_ref().map_or_else(Ceilings::default, |whole| make_fleet_ceilings(whole, dims));
    let named = list_named_resources(slots, dims, [&ready, &whole]);
    let root = &mut slots[QueueIndex::ROOT.index()];
    root.real = Ceilings::with_rest_of(&ready);
    for dim in &named {
        root.real.set(*dim, [root.capability.get(*dim), ready.get(*dim)].into_iter().flatten().min());
    }
    root.left = ready;
    let order = list_queues_top_down(slots);
    set_max_possible(slots, &order, &named, &whole);
    set_guarantees(slots, &order, &named);
    set_reachable_quota(slots, &order, &named);
    for parent in order {
        let children = std::mem::take(&mut slots[parent.index()].children);
        for child in &children {
            slots[child.index()].real = Ceilings::with_rest_of(&slots[parent.index()].real);
        }
        for dim in &named {
            divide_among_children(slots, parent, &children, *dim);
            if !dim.is_card() {
                divide_deserved(slots, parent, &children, *dim);
            }
        }
        if parent == QueueIndex::ROOT {
            sum_root_amounts(slots, &children, &named);
        }
        let slot = &mut slots[parent.index()];
        slot.children = children;
        slot.deserved = slot.asked.granted.iter().collect();
    }
}

/// What clusters have is not summed up by card model.
fn make_fleet_ceilings(amounts: &Resources, dims: &mut Dims) -> Ceilings {
    let mut ceilings = Ceilings::nothing();
    for (dim, amount) in dims.intern_amounts(amounts).into_iter().filter(|(dim, _)| !dim.is_card()) {
        ceilings.set(dim, Some(amount));
    }
    ceilings
}

/// Of all others each queue has what its parent has.
fn list_named_resources(slots: &[Slot], dims: &mut Dims, fleet: [&Ceilings; 2]) -> BTreeSet<Dim> {
    let of_queues = slots.iter().filter_map(|slot| slot.spec.as_ref()).flat_map(QueueSpec::list_resources);
    let of_clusters = fleet.into_iter().flat_map(Ceilings::iter).map(|(dim, _)| dim);
    of_queues.map(|name| dims.intern_resource(name)).chain(of_clusters).collect()
}

fn reset_from_spec(slot: &mut Slot, dims: &mut Dims) {
    slot.capability = Ceilings::default();
    slot.left = Ceilings::default();
    slot.real = Ceilings::default();
    slot.reach = Ceilings::default();
    slot.guarantee = DimAmounts::default();
    slot.deserved = Box::default();
    slot.asked = QuotaRequest::default();
    let Some(spec) = &slot.spec else { return };
    for (name, ceiling) in spec.ceilings() {
        slot.capability.set(dims.intern_resource(name), Some(ceiling.into()));
    }
    for (name, amount) in spec.guarantee.iter().filter(|(name, _)| name.counts_in_queues()) {
        slot.asked.guarantee.set(dims.intern_resource(name), Amount::from(amount).max(Amount::ZERO));
    }
    for (name, amount) in spec.deserved.iter().filter(|(name, _)| name.counts_in_queues()) {
        slot.asked.deserved.set(dims.intern_resource(name), Some(Amount::from(amount).max(Amount::ZERO)));
    }
}

/// Every queue of the tree, parents before their children.
fn list_queues_top_down(slots: &[Slot]) -> Vec<QueueIndex> {
    let mut order = vec![QueueIndex::ROOT];
    for i in 0.. {
        let Some(node) = order.get(i) else { break };
        order.extend(&slots[node.index()].children);
    }
    order
}

fn set_max_possible(slots: &mut [Slot], order: &[QueueIndex], named: &BTreeSet<Dim>, whole: &Ceilings) {
    for node in order {
        let above = slots[node.index()].parent.map(|parent| &slots[parent.index()].asked.most);
        let mut most = above.unwrap_or(whole).clone();
        for dim in named {
            let own = slots[node.index()].capability.get(*dim);
            most.set(*dim, [own, most.get(*dim)].into_iter().flatten().min());
        }
        slots[node.index()].asked.most = most;
    }
}

/// From the leaves up: what is kept free for a queue, and what is deserved below it where it says nothing itself.
fn set_guarantees(slots: &mut [Slot], order: &[QueueIndex], named: &BTreeSet<Dim>) {
    for node in order.iter().rev() {
        let children = std::mem::take(&mut slots[node.index()].children);
        let explicit = slots[node.index()].sets_deserved();
        for dim in named.iter().copied() {
            let below = children.iter().map(|child| &slots[child.index()].asked);
            let sum: Amount = below.clone().map(|asked| asked.guarantee.get(dim)).sum();
            let deserved = below.filter_map(|asked| asked.deserved.get(dim)).reduce(|a, b| a + b);
            let above = slots[node.index()].parent.map(|parent| &slots[parent.index()].asked.most);
            let above = above.and_then(|most| most.get(dim));
            let slot = &mut slots[node.index()];
            if slot.asked.most.get(dim).is_some_and(|most| sum > most) {
                slot.asked.too_much.push((dim, sum));
            }
            // More than its own ceiling would take from its siblings what it can never use.
            let ceiling = slot.capability.get(dim).unwrap_or(Amount::MAX);
            let mut guarantee = slot.asked.guarantee.get(dim).max(sum).min(ceiling);
            if above.is_some_and(|most| guarantee > most) {
                slot.asked.never.push((dim, guarantee));
                guarantee = Amount::ZERO;
            }
            slot.asked.guarantee.set(dim, guarantee);
            if !explicit && deserved.is_some() {
                slot.asked.deserved.set(dim, deserved);
            }
        }
        slots[node.index()].children = children;
    }
}

/// From the root down: what siblings' guarantees leave at most.
fn set_reachable_quota(slots: &mut [Slot], order: &[QueueIndex], named: &BTreeSet<Dim>) {
    slots[QueueIndex::ROOT.index()].reach = slots[QueueIndex::ROOT.index()].asked.most.clone();
    for parent in order {
        let children = std::mem::take(&mut slots[parent.index()].children);
        let above = slots[parent.index()].reach.clone();
        for child in &children {
            slots[child.index()].reach = above.clone();
        }
        for dim in named.iter().copied() {
            let kept = above.get(dim).map(|most| compute_kept_guarantees(slots, &children, dim, most));
            let sum: Amount = kept.iter().flatten().copied().sum();
            for (i, child) in children.iter().enumerate() {
                let slot = &mut slots[child.index()];
                let left = above.get(dim).zip(kept.as_ref()).map(|(most, kept)| most - sum + kept[i]);
                slot.reach.set(dim, [slot.capability.get(dim), left].into_iter().flatten().min());
            }
        }
        slots[parent.index()].children = children;
    }
}

/// What each of these is guaranteed of as much as there is.
fn compute_kept_guarantees(slots: &[Slot], children: &[QueueIndex], dim: Dim, most: Amount) -> Vec<Amount> {
    let asked: Vec<Amount> = children.iter().map(|child| slots[child.index()].asked.guarantee.get(dim)).collect();
    let sum: Amount = asked.iter().copied().sum();
    if sum.is_zero() || sum <= most {
        return asked;
    }
    let portion = |most: &Amount| Portion { weight: 1, least: Amount::ZERO, most: *most };
    fill_by_weight(most, &asked.iter().map(portion).collect::<Vec<_>>())
}

/// Divides what `parent` has of one resource among its children.
fn divide_among_children(slots: &mut [Slot], parent: QueueIndex, children: &[QueueIndex], dim: Dim) {
    let above = slots[parent.index()].real.get(dim);
    let real = above.unwrap_or(Amount::MAX);
    let kept = compute_kept_guarantees(slots, children, dim, real);
    let sum: Amount = kept.iter().copied().sum();
    for (child, kept) in children.iter().zip(kept) {
        let slot = &mut slots[child.index()];
        let left = (sum > kept).then_some(real - sum + kept);
        slot.left.set(dim, left);
        let all = [slot.capability.get(dim), left, above];
        slot.real.set(dim, all.into_iter().flatten().min());
        slot.guarantee.set(dim, kept);
    }
}

/// Divides what `parent` deserves of one resource among its children; the root deserves all there is.
fn divide_deserved(slots: &mut [Slot], parent: QueueIndex, children: &[QueueIndex], dim: Dim) {
    let root = parent == QueueIndex::ROOT;
    let above = &slots[parent.index()];
    let have = if root {
        above.real.get(dim).unwrap_or(Amount::MAX)
    } else {
        above.asked.granted.get(dim).unwrap_or_default()
    };
    let portions = children.iter().map(|child| {
        let slot = &slots[child.index()];
        let least = slot.guarantee.get(dim);
        let most = slot.asked.deserved.get(dim).unwrap_or_default().min(slot.real_capability(dim)).max(least);
        Portion { weight: 1, least, most }
    });
    let mut parts: Vec<Amount> = portions.clone().map(|portion| portion.most).collect();
    if !root && parts.iter().copied().sum::<Amount>() > have {
        parts = fill_by_weight(have, &portions.collect::<Vec<_>>());
    }
    let by_weight: Vec<usize> = (0..children.len()).filter(|i| !slots[children[*i].index()].sets_deserved()).collect();
    if !by_weight.is_empty() {
        let said = parts.iter().copied().sum::<Amount>() - by_weight.iter().map(|i| parts[*i]).sum();
        let portions: Vec<Portion> = by_weight
            .iter()
            .map(|i| {
                let slot = &slots[children[*i].index()];
                let weight = slot.spec.as_ref().map_or(1, QueueSpec::effective_weight);
                Portion { weight, least: parts[*i], most: slot.real_capability(dim) }
            })
            .collect();
        for (i, part) in by_weight.iter().zip(fill_by_weight((have - said).max(Amount::ZERO), &portions)) {
            parts[*i] = part;
        }
    }
    for (child, part) in children.iter().zip(parts) {
        let slot = &mut slots[child.index()];
        if part.is_positive() || slot.asked.deserved.get(dim).is_some() {
            slot.asked.granted.set(dim, Some(part));
        }
    }
}

/// The root is promised, and deserves, what its children do.
fn sum_root_amounts(slots: &mut [Slot], children: &[QueueIndex], named: &BTreeSet<Dim>) {
    for dim in named.iter().copied() {
        let of = |slots: &[Slot], amount: fn(&Slot, Dim) -> Option<Amount>| {
            children.iter().filter_map(|child| amount(&slots[child.index()], dim)).reduce(|a, b| a + b)
        };
        let guarantee = of(slots, |slot, dim| Some(slot.guarantee.get(dim)));
        let deserved = of(slots, |slot, dim| slot.asked.granted.get(dim));
        let root = &mut slots[QueueIndex::ROOT.index()];
        root.guarantee.set(dim, guarantee.unwrap_or_default());
        root.asked.granted.set(dim, deserved);
    }
}
