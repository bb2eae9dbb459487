//! What keeps a binding out of clusters that it might go to otherwise, in sentences for people: maintenance windows,
//! its queue, data that is elsewhere, and what its user chose.
//!
//! Rule: only clusters that some affinity of its placement may ever select are told of ([`may_select`]).

use std::collections::BTreeSet;

use super::{MOST_NAMED_CLUSTERS, Request, may_select};
use crate::{
    cluster_choice::ClusterChoice,
    inventory::Capacity,
    place::{
        Cluster,
        filter::{Filter, FilterReason},
    },
    run_limit::RunTime,
    text::{count_noun, inflect_noun, name_some},
};

/// A refusal, and after it what keeps the binding out of clusters: one sentence, whatever the refusal ends with. Nodes
/// may come in these clusters, after so many seconds.
#[must_use]
pub fn append_reasons<'a>(
    refusal: String,
    request: &Request<'_>,
    upcoming: impl Iterator<Item = (&'a Cluster, i64)>,
) -> String {
    let now = describe_lasting_reasons(request).into_iter().chain(describe_maintenance(request));
    let reasons = now.chain(describe_late_nodes(request, upcoming));
    reasons.fold(refusal, |reported, reason| format!("{}; {reason}", reported.trim_end_matches('.')))
}

/// Which maintenance windows are in the way, of the clusters that it might go to; `None` if there are none.
#[must_use]
pub fn describe_maintenance(request: &Request<'_>) -> Option<String> {
    let filter = request.build_filter(request.binding);
    let selected = request.clusters.iter().filter(|(cluster, _)| may_select(request.binding, cluster));
    let reported = |(cluster, _): &(&Cluster, &Capacity)| filter.describe_window(cluster);
    let mut all: Vec<String> = selected.filter_map(reported).collect();
    let more = all.len().saturating_sub(MOST_NAMED_CLUSTERS);
    all.truncate(MOST_NAMED_CLUSTERS);
    let others =
        |more: usize| format!("so {} {}", if more == 1 { "is" } else { "are" }, count_noun(more, "other cluster"));
    all.extend((more > 0).then(|| others(more)));
    (!all.is_empty()).then(|| all.join("; "))
}

/// What keeps it from waiting for nodes that may come in some clusters: that its run would be over first, or a window
/// that it would run into. Whether it would fit on them is not asked.
fn describe_late_nodes<'a>(
    request: &Request<'_>,
    upcoming: impl Iterator<Item = (&'a Cluster, i64)>,
) -> Option<String> {
    let run = request.run_of_pods()?;
    let now = request.build_filter(request.binding);
    let selected = upcoming.filter(|(cluster, _)| may_select(request.binding, cluster));
    let of = |(cluster, delay): (&Cluster, i64)| {
        let run = run.with_delay(delay);
        if let Some(limit) = run.limit.filter(|_| run.ends_before_nodes_come()) {
            let (name, delay) = (&cluster.name, RunTime(delay));
            let after = RunTime(limit.as_seconds().saturating_sub(run.from.as_seconds()));
            let why = format!("they take {delay}, and its run is ended after {after}");
            return Some(format!("it waits for no more nodes in {name}: {why}"));
        }
        let filter = Filter::new(request.binding).with_run(Some(run), request.gang, request.whole);
        filter.describe_window(cluster).filter(|_| now.describe_window(cluster).is_none())
    };
    let all: Vec<String> = selected.filter_map(of).take(MOST_NAMED_CLUSTERS).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Which clusters its queue may not use, of those that it might go to; each reason once.
fn describe_queue(request: &Request<'_>) -> Option<String> {
    let binding = request.binding;
    let selected = request.clusters.iter().filter(|(cluster, _)| may_select(binding, cluster));
    let mut all: Vec<String> = Vec::new();
    for reported in selected.filter_map(|(cluster, _)| binding.describe_queue_refusal(cluster)) {
        if !all.contains(&reported) && all.len() < MOST_NAMED_CLUSTERS {
            all.push(reported);
        }
    }
    (!all.is_empty()).then(|| all.join("; "))
}

/// What no time ends of itself: where the data of its claims is, which clusters its queue may not use, and which its
/// user chose. Each only if that keeps it out of a cluster that it might go to, or might have more in.
#[must_use]
pub fn describe_lasting_reasons(request: &Request<'_>) -> Vec<String> {
    let binding = request.binding;
    let keeps_out = |reason: FilterReason<'_>| {
        let is_refused = |cluster: &Cluster| binding.lasting_reasons(cluster).any(|one| one == reason);
        request.clusters.iter().any(|(cluster, _)| may_select(binding, cluster) && is_refused(cluster))
    };
    let data = binding.data.as_ref().filter(|_| keeps_out(FilterReason::NoData));
    let choice = binding.choice.as_ref().filter(|_| keeps_out(FilterReason::NotChosen));
    let data = data.map(ToString::to_string).into_iter();
    let choice = choice.map(|choice| [Some(choice.to_string()), describe_unknown_clusters(choice, request)]);
    data.chain(describe_queue(request)).chain(choice.into_iter().flatten().flatten()).collect()
}

/// Which of the clusters that its user lets it go to are none: a name is soon mistyped.
fn describe_unknown_clusters(choice: &ClusterChoice, request: &Request<'_>) -> Option<String> {
    let known: BTreeSet<&str> = request.clusters.iter().map(|(cluster, _)| cluster.name.as_str()).collect();
    let unknown: Vec<&str> = choice.only.iter().map(String::as_str).filter(|name| !known.contains(name)).collect();
    let (are, clusters) = (if unknown.len() == 1 { "is" } else { "are" }, inflect_noun(unknown.len(), "cluster"));
    (!unknown.is_empty()).then(|| format!("there {are} no {clusters} {}", name_some(&unknown)))
}
