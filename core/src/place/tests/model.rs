//! The same rules written down without regard for time: each cluster and rule looked at anew, names compared one by
//! one. What [`super::divide`] and [`super::filter`] decide is held against this.

use std::collections::BTreeMap;

use proptest::{prelude::*, sample::subsequence};

use super::{
    Affinity, AffinityTerm, Binding, Cluster, Division, Placement, Request, Spread, SpreadBy, Target, WeightRule,
    filter::Filter, replica_division, replica_division::DivideError, spread_constraints::ScoredCluster,
};
use crate::{
    gang::{Gang, NodeClaim, Operator, Requirement, Taint, Task, Toleration},
    inventory::Capacity,
    quantity::Quantity,
    resources::Resources,
    webster::{Tie, divide_seats},
};

/// What [`super::replica_division::assign`] must give.
pub(super) fn assign(
    binding: &Binding,
    candidates: &[ScoredCluster<'_>],
    empty_workloads: bool,
) -> Result<Vec<Target>, DivideError> {
    let mut targets = assign_present(binding, candidates)?;
    if empty_workloads {
        for candidate in candidates {
            if !targets.iter().any(|target| target.cluster == candidate.cluster.name) {
                targets.push(Target { cluster: candidate.cluster.name.clone(), replicas: 0 });
            }
        }
    }
    targets.sort();
    Ok(targets)
}

fn assign_present(binding: &Binding, candidates: &[ScoredCluster<'_>]) -> Result<Vec<Target>, DivideError> {
    if candidates.is_empty() {
        return Err(DivideError::Other("no clusters available to schedule".to_owned()));
    }
    if !(binding.divisible && binding.components <= 1) {
        return Ok(candidates.iter().map(|candidate| target(candidate, 0)).collect());
    }
    let tiered = binding.placement.affinity.is_none()
        && binding.current_affinity_term().is_some_and(|term| !term.overflow.is_empty());
    let mut targets = if tiered { by_tier(binding, candidates)? } else { by_strategy(binding, candidates)? };
    targets.retain(|target| target.replicas > 0);
    Ok(targets)
}

fn target(candidate: &ScoredCluster<'_>, replicas: i64) -> Target {
    Target { cluster: candidate.cluster.name.clone(), replicas }
}

fn by_strategy(binding: &Binding, candidates: &[ScoredCluster<'_>]) -> Result<Vec<Target>, DivideError> {
    match &binding.placement.division {
        None | Some(Division::Duplicated) => Ok(candidates.iter().map(|one| target(one, binding.replicas)).collect()),
        Some(Division::StaticWeight { rules, .. }) => Ok(static_weight(binding, candidates, rules)),
        Some(Division::Aggregated) => dynamic(binding, candidates, true),
        Some(Division::DynamicWeight) => dynamic(binding, candidates, false),
        Some(Division::Unsupported) => Err(DivideError::Other(
            "unsupported replica scheduling strategy, replicaSchedulingType: Divided, replicaDivisionPreference: , \
             please try another scheduling strategy"
                .to_owned(),
        )),
    }
}

/// Fills the tiers of an affinity term in order, each up to what it has.
fn by_tier(binding: &Binding, candidates: &[ScoredCluster<'_>]) -> Result<Vec<Target>, DivideError> {
    let mut tiers: Vec<u32> = candidates.iter().map(|candidate| candidate.tier).collect();
    tiers.sort_unstable();
    tiers.dedup();
    let mut left = binding.replicas;
    let mut targets = Vec::new();
    for tier in tiers {
        if left <= 0 {
            break;
        }
        let members: Vec<ScoredCluster<'_>> = candidates.iter().filter(|one| one.tier == tier).cloned().collect();
        let available: i64 = members.iter().map(|one| one.available).fold(0, i64::saturating_add);
        if available <= 0 {
            continue;
        }
        let part = Binding { replicas: left.min(available), ..binding.clone() };
        targets.extend(by_strategy(&part, &members)?);
        left -= part.replicas;
    }
    if left > 0 {
        let message = "Clusters available replicas are not enough to schedule.";
        return Err(DivideError::Unschedulable(message.to_owned()));
    }
    Ok(targets)
}

fn static_weight_of(rules: &[WeightRule], cluster: &super::Cluster) -> u64 {
    let matching = rules.iter().filter(|rule| selects(&rule.clusters, cluster));
    matching.map(|rule| u64::try_from(rule.weight).unwrap_or(0)).max().unwrap_or(0)
}

fn compute_static_weights<'a>(rules: &[WeightRule], clusters: impl Iterator<Item = &'a super::Cluster>) -> Vec<u64> {
    let weights: Vec<u64> = clusters.map(|cluster| static_weight_of(rules, cluster)).collect();
    if weights.iter().all(|weight| *weight == 0) { vec![1; weights.len()] } else { weights }
}

fn static_weight(binding: &Binding, candidates: &[ScoredCluster<'_>], rules: &[WeightRule]) -> Vec<Target> {
    let weights = compute_static_weights(rules, candidates.iter().map(|candidate| candidate.cluster));
    let claims: Vec<(u64, &str)> =
        weights.into_iter().zip(candidates).map(|(weight, one)| (weight, one.cluster.name.as_str())).collect();
    webster(binding, binding.replicas, &claims)
}

fn webster(binding: &Binding, house: i64, claims: &[(u64, &str)]) -> Vec<Target> {
    let seats = divide_seats(u64::try_from(house).unwrap_or(0), claims, Tie::of_uid(&binding.uid));
    let named = claims.iter().zip(seats);
    named
        .map(|((_, name), seats)| Target {
            cluster: (*name).to_owned(),
            replicas: i64::try_from(seats).unwrap_or(i64::MAX),
        })
        .collect()
}

fn dynamic(binding: &Binding, candidates: &[ScoredCluster<'_>], aggregated: bool) -> Result<Vec<Target>, DivideError> {
    let scheduled: Vec<&Target> = binding
        .previous
        .iter()
        .filter(|target| candidates.iter().any(|candidate| candidate.cluster.name == target.cluster))
        .collect();
    let assigned: i64 = scheduled.iter().map(|target| target.replicas).sum();
    let free = |candidate: &ScoredCluster<'_>| (candidate.allocatable, candidate.cluster.name.clone());
    if binding.fresh {
        let own = |candidate: &ScoredCluster<'_>| {
            (candidate.allocatable + replicas_in(binding, &candidate.cluster.name), candidate.cluster.name.clone())
        };
        return share(binding, candidates.iter().map(own).collect(), binding.replicas, &[], aggregated)
            .map_err(|error| within("failed to do fresh scale", error));
    }
    if assigned > binding.replicas {
        let held = scheduled.iter().map(|target| (target.replicas, target.cluster.clone())).collect();
        return share(binding, held, binding.replicas, &[], aggregated)
            .map_err(|error| within("failed to scale down", error));
    }
    if assigned == binding.replicas {
        return Ok(scheduled.into_iter().cloned().collect());
    }
    let more =
        share(binding, candidates.iter().map(free).collect(), binding.replicas - assigned, &scheduled, aggregated)
            .map_err(|error| within("failed to scale up", error))?;
    if scheduled.is_empty() {
        return Ok(more);
    }
    let mut targets: BTreeMap<String, i64> =
        scheduled.into_iter().map(|target| (target.cluster.clone(), target.replicas)).collect();
    for new in more {
        *targets.entry(new.cluster).or_default() += new.replicas;
    }
    Ok(targets.into_iter().map(|(cluster, replicas)| Target { cluster, replicas }).collect())
}

fn within(what: &str, error: DivideError) -> DivideError {
    match error {
        DivideError::Unschedulable(why) => DivideError::Unschedulable(format!("{what}: {why}")),
        DivideError::Other(why) => DivideError::Other(format!("{what}: {why}")),
    }
}

/// `house` replicas over what is available: over everybody, or over the fewest (those who have some already first).
fn share(
    binding: &Binding,
    mut available: Vec<(i64, String)>,
    house: i64,
    scheduled: &[&Target],
    aggregated: bool,
) -> Result<Vec<Target>, DivideError> {
    // Karmada sorts by capacity alone and keeps the candidates' order among equals.
    available.sort_by_key(|(free, _)| std::cmp::Reverse(*free));
    let total = available.iter().map(|(free, _)| *free).fold(0, i64::saturating_add);
    if total < house {
        let message = format!("Clusters available replicas {total} are not enough to schedule.");
        return Err(DivideError::Unschedulable(message));
    }
    if aggregated {
        let prior = |name: &str| scheduled.iter().any(|target| target.replicas > 0 && target.cluster == name);
        available.sort_by_key(|(_, name)| !prior(name));
        let mut sum = 0_i64;
        let enough = available.iter().position(|(free, _)| {
            sum = sum.saturating_add(*free);
            sum >= house
        });
        available.truncate(enough.map_or(available.len(), |last| last + 1));
    }
    let claims: Vec<(u64, &str)> =
        available.iter().map(|(free, name)| (u64::try_from(*free).unwrap_or(0), name.as_str())).collect();
    Ok(webster(binding, house, &claims))
}

/// Replicas that a binding has in a cluster.
pub(super) fn replicas_in(binding: &Binding, cluster: &str) -> i64 {
    binding.previous.iter().find(|target| target.cluster == cluster).map_or(0, |target| target.replicas)
}

/// What [`super::filter::Filter::reasons`] must give.
pub(super) fn refusals(binding: &Binding, cluster: &Cluster) -> Vec<String> {
    let mut reasons = Vec::new();
    if tier(binding, cluster).is_none() {
        let message = "cluster(s) did not match the placement cluster affinity constraint";
        reasons.push(message.to_owned());
    }
    if binding.evicting.contains(&cluster.name) {
        reasons.push("cluster(s) is in the process of eviction".to_owned());
    }
    if !binding.is_target(&cluster.name) {
        let tolerations = &binding.placement.tolerations;
        if let Some(taint) = cluster.taints.iter().find(|taint| taint.forbids() && !taint.tolerated_by(tolerations)) {
            let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
            let message = format!("cluster(s) had untolerated taint {{{}{value}:{}}}", taint.key, taint.effect);
            reasons.push(message);
        }
        if !cluster.serves.contains(&(binding.api_version.clone(), binding.kind.clone())) {
            reasons.push("cluster(s) did not have the API resource".to_owned());
        }
    }
    let lacks = |by: SpreadBy| match by {
        SpreadBy::Provider => cluster.provider.is_empty().then_some("provider"),
        SpreadBy::Region => cluster.region.is_empty().then_some("region"),
        SpreadBy::Zone => cluster.zones.is_empty().then_some("zones"),
        SpreadBy::Cluster | SpreadBy::Label => None,
    };
    if let Some(property) = binding.placement.spread.iter().find_map(|spread| lacks(spread.by)) {
        reasons.push(format!("cluster(s) did not have {property} property"));
    }
    reasons
}

pub(super) fn tier(binding: &Binding, cluster: &Cluster) -> Option<u32> {
    if let Some(affinity) = &binding.placement.affinity {
        return selects(affinity, cluster).then_some(0);
    }
    let Some(term) = binding.current_affinity_term() else { return Some(0) };
    if selects(&term.affinity, cluster) {
        return Some(0);
    }
    let overflow = if binding.is_workload { term.overflow.as_slice() } else { &[] };
    let index = overflow.iter().position(|affinity| selects(affinity, cluster))?;
    u32::try_from(index + 1).ok()
}

fn selects(affinity: &Affinity, cluster: &Cluster) -> bool {
    if affinity.invalid || affinity.exclude.contains(&cluster.name) {
        return false;
    }
    affinity.labels.iter().all(|label| label.matches(cluster.labels.get(&label.key).map(String::as_str)))
        && affinity.fields.iter().all(|field| field_matches(field, cluster))
        && (affinity.names.is_empty() || affinity.names.contains(&cluster.name))
}

fn field_matches(field: &Requirement, cluster: &Cluster) -> bool {
    let text = |text: &str| if text.is_empty() { None } else { Some(text.to_owned()) };
    match field.key.as_str() {
        "provider" => field.matches(text(&cluster.provider).as_deref()),
        "region" => field.matches(text(&cluster.region).as_deref()),
        "zone" => match field.operator {
            Operator::In => cluster.zones.iter().any(|zone| field.values.contains(zone)),
            Operator::NotIn => !cluster.zones.iter().any(|zone| field.values.contains(zone)),
            Operator::Exists => !cluster.zones.is_empty(),
            Operator::DoesNotExist => cluster.zones.is_empty(),
            Operator::Gt | Operator::Lt => false,
        },
        _ => field.matches(None),
    }
}

const CLUSTERS: usize = 24;

fn name(i: usize) -> String {
    format!("m{i:02}")
}

fn names() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![
        3 => Just(Vec::new()),
        2 => subsequence((0..CLUSTERS).map(name).collect::<Vec<_>>(), 0..4),
        1 => subsequence((0..CLUSTERS).map(name).collect::<Vec<_>>(), 9..CLUSTERS),
    ]
}

fn requirement(key: &'static [&'static str]) -> impl Strategy<Value = Requirement> {
    let operator = prop::sample::select(vec![Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist]);
    (prop::sample::select(key), operator, subsequence(vec!["a".to_owned(), "b".into()], 0..=2))
        .prop_map(|(key, operator, values)| Requirement { key: key.into(), operator, values })
}

fn affinity() -> impl Strategy<Value = Affinity> {
    let labels = prop::collection::vec(requirement(&["tier", "env"]), 0..2);
    let fields = prop::collection::vec(requirement(&["provider", "region", "zone"]), 0..2);
    (prop::bool::weighted(0.05), labels, fields, names(), names())
        .prop_map(|(invalid, labels, fields, names, exclude)| Affinity { invalid, labels, fields, names, exclude })
}

fn cluster(i: usize) -> impl Strategy<Value = Cluster> {
    let letter = || prop::sample::select(vec!["", "a", "b"]);
    let taint = prop::sample::select(vec!["", "NoSchedule", "NoExecute", "PreferNoSchedule"]);
    (letter(), letter(), letter(), letter(), taint, prop::bool::weighted(0.8)).prop_map(
        move |(label, provider, region, zone, taint, served)| Cluster {
            name: name(i),
            labels: if label.is_empty() { BTreeMap::new() } else { [("tier".to_owned(), label.to_owned())].into() },
            provider: provider.into(),
            region: region.into(),
            zones: if zone.is_empty() { Vec::new() } else { vec![zone.to_owned(), "c".into()] },
            taints: if taint.is_empty() {
                Vec::new()
            } else {
                vec![Taint { key: "k".into(), value: provider.into(), effect: taint.into() }]
            },
            ready: true,
            serves: if served { [("apps/v1".to_owned(), "Deployment".to_owned())].into() } else { [].into() },
            ..Cluster::default()
        },
    )
}

fn targets() -> impl Strategy<Value = Vec<Target>> {
    let target = |(name, replicas)| Target { cluster: name, replicas };
    names().prop_flat_map(move |names| {
        let count = names.len();
        (Just(names), prop::collection::vec(0..6i64, count))
            .prop_map(move |(names, replicas)| names.into_iter().zip(replicas).map(target).collect())
            .prop_shuffle()
    })
}

fn division() -> impl Strategy<Value = Option<Division>> {
    let rule = (affinity(), 0..4i64).prop_map(|(clusters, weight)| WeightRule { clusters, weight });
    let named = (0..CLUSTERS, 1..5i64).prop_map(|(i, weight)| WeightRule {
        clusters: Affinity { names: vec![name(i)], ..Affinity::default() },
        weight,
    });
    let rules = prop_oneof![prop::collection::vec(rule, 0..4), prop::collection::vec(named, 0..20)];
    prop_oneof![
        Just(None),
        Just(Some(Division::Aggregated)),
        Just(Some(Division::DynamicWeight)),
        (rules, any::<bool>()).prop_map(|(rules, preference)| Some(Division::StaticWeight { rules, preference })),
    ]
}

fn binding() -> impl Strategy<Value = Binding> {
    let term = (affinity(), prop::collection::vec(affinity(), 0..3)).prop_map(|(affinity, overflow)| AffinityTerm {
        name: "term".into(),
        affinity,
        overflow,
    });
    let affinities = (prop::option::of(affinity()), prop::collection::vec(term, 0..2));
    let spread = prop::sample::select(vec![SpreadBy::Provider, SpreadBy::Region, SpreadBy::Zone, SpreadBy::Cluster]);
    let toleration = Toleration { key: "k".into(), value: "a".into(), ..Toleration::default() };
    let placement = (affinities, prop::option::weighted(0.3, spread), division(), any::<bool>()).prop_map(
        move |((affinity, affinities), spread, division, tolerates)| Placement {
            affinity,
            affinities,
            tolerations: if tolerates { vec![toleration.clone()] } else { Vec::new() },
            spread: spread.into_iter().map(|by| Spread { by, min: 1, max: 3 }).collect(),
            division,
        },
    );
    let rest = (0..60i64, targets(), names(), any::<bool>(), prop::bool::weighted(0.9), "[ab]?");
    (placement, rest).prop_map(|(placement, (replicas, previous, evicting, fresh, divisible, uid))| Binding {
        uid,
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        replicas,
        is_workload: divisible,
        divisible,
        previous,
        evicting,
        placement,
        observed_affinity: "term".into(),
        fresh,
        ..Binding::default()
    })
}

fn world() -> impl Strategy<Value = (Binding, Vec<Cluster>, Vec<(i64, u32)>)> {
    let clusters: Vec<_> = (0..CLUSTERS).map(cluster).collect();
    let clusters = (clusters, 1..=CLUSTERS).prop_map(|(mut clusters, count)| {
        clusters.truncate(count);
        clusters
    });
    (binding(), clusters.prop_shuffle(), prop::collection::vec((0..9i64, 0..3u32), CLUSTERS))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn replicas_are_divided_as_the_plain_rules_say((binding, clusters, free) in world(), empty: bool) {
        let candidates: Vec<ScoredCluster<'_>> = clusters
            .iter()
            .zip(free)
            .map(|(cluster, (free, tier))| ScoredCluster {
                cluster,
                score: 0,
                tier,
                allocatable: free,
                available: free + replicas_in(&binding, &cluster.name),
            })
            .collect();
        prop_assert_eq!(replica_division::assign_replicas(&binding, &candidates, empty), assign(&binding, &candidates, empty));
    }

    #[test]
    fn clusters_are_refused_as_the_plain_rules_say((binding, clusters, _) in world()) {
        let filter = Filter::new(&binding);
        for cluster in &clusters {
            let ours: Vec<String> =
                filter.reasons(cluster).map(|reason| reason.to_string()).collect();
            let plain = refusals(&binding, cluster);
            prop_assert_eq!(filter.check(cluster).err().map(|reason| reason.to_string()), plain.first().cloned());
            prop_assert_eq!(filter.check(cluster).ok().map(|passed| passed.tier), tier(&binding, cluster).filter(|_| plain.is_empty()));
            prop_assert_eq!(ours, plain);
            prop_assert_eq!(filter.affinity_tier_of(cluster), tier(&binding, cluster));
        }
    }

    #[test]
    fn the_order_in_which_clusters_are_listed_does_not_matter((binding, clusters, free) in world()) {
        let gang = sole_task(binding.replicas);
        let capacities: Vec<Capacity> = free.iter().map(|(free, _)| room(*free)).collect();
        let ask = |mut clusters: Vec<(&Cluster, &Capacity)>, sorted: bool| {
            if sorted {
                clusters.sort_by(|a, b| a.0.name.cmp(&b.0.name));
            }
            super::place_binding(&Request { binding: &binding, gang: &gang, whole: false, previous: None, clusters, linked: &[], run: None })
        };
        let listed: Vec<_> = clusters.iter().zip(&capacities).collect();
        prop_assert_eq!(ask(listed.clone(), false), ask(listed, true));
    }
}

fn sole_task(replicas: i64) -> Gang {
    let task = Task {
        name: "pods".into(),
        replicas: u32::try_from(replicas).unwrap(),
        min_available: 0,
        request: [("pods", Quantity::from_units(1))].into_iter().collect(),
        node: NodeClaim::default(),
        priority_class: String::new(),
        partition: None,
    };
    Gang::new(vec![task], 0)
}

fn room(pods: i64) -> Capacity {
    let allocatable = [("pods", Quantity::from_units(pods))].into_iter().collect();
    Capacity::from_summary(&allocatable, &Resources::new(), &Resources::new())
}
