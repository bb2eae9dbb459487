//! Checks the Leases of controller and scheduler, waiting jobs without a PodGroup, old Commands, the controller's
//! settings, the heartbeats of collectors, and clocks.
//!
//! Rule: a Lease that was not renewed for its duration is nobody's. One controller is active in a fleet: live Leases of
//! controllers in two namespaces are two that admit. A controller without a Lease shows itself by PodGroups: each job
//! that waits gets one soon. A collector is late after three heartbeats.

use std::collections::BTreeSet;

use caldera_core::text::count_noun;
use jiff::Timestamp;

use super::take_visible;
use crate::{
    doctor::{
        facts::{CheckedBinding, Facts, LeaseFacts},
        finding::{Check, Finding, join_first_names},
    },
    output::format_duration,
};

const CHECK: Check = Check::Components;
/// A difference of clocks that an answer's way does not explain.
const SKEW: i64 = 10;

/// Seconds from `then` to now; none where nobody knows.
pub(super) fn age(now: Timestamp, then: Option<Timestamp>) -> i64 {
    then.map_or(0, |then| now.as_second() - then.as_second())
}

pub(super) fn is_alive(lease: &LeaseFacts, now: Timestamp) -> bool {
    !lease.holder.is_empty() && lease.renewed.is_some() && age(now, lease.renewed) <= lease.seconds
}

pub(super) fn check_components(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let leases = take_visible(&facts.leases, CHECK, "Leases", &mut findings);
    let is_stock = facts.settings.iter().flatten().any(|settings| settings.stock_scheduler);
    let wanted: &[&str] = if is_stock { &["controller"] } else { &["controller", "scheduler"] };
    for component in wanted {
        let of: Vec<&LeaseFacts> = leases.iter().filter(|lease| lease.name == format!("caldera-{component}")).collect();
        let alive: Vec<&&LeaseFacts> = of.iter().filter(|lease| is_alive(lease, facts.now)).collect();
        let start = format!("caldera {component} --kubeconfig karmada.kubeconfig");
        if of.is_empty() && facts.leases.is_ok() {
            let what =
                format!("there is no Lease caldera-{component}: the {component} runs without one, or not at all");
            findings.push(CHECK.note(what).fixed_by(start));
        } else if let (true, Some(last)) = (alive.is_empty(), of.iter().max_by_key(|lease| lease.renewed)) {
            let what = match last.holder.as_str() {
                "" => format!("nobody holds Lease {}/{}: no {component} runs", last.namespace, last.name),
                holder => format!(
                    "Lease {}/{} was not renewed for {}: its holder {holder} does not run, and no other {component} does",
                    last.namespace,
                    last.name,
                    format_duration(age(facts.now, last.renewed)),
                ),
            };
            findings.push(CHECK.error(what).fixed_by(start));
        } else if alive.len() > 1 {
            let places = join_first_names(alive.iter().map(|lease| lease.namespace.as_str()));
            let what = format!(
                "{} {component}s are active at once, each with a Lease caldera-{component} in a namespace of its own: {places}",
                alive.len()
            );
            let fix = format!("caldera {component} --lease-namespace caldera-system, the same for every replica");
            findings.push(CHECK.error(what).fixed_by(fix));
        }
    }
    findings.extend(check_forgotten_jobs(facts));
    let old: Vec<&str> = take_visible(&facts.commands, CHECK, "Commands", &mut findings)
        .iter()
        .filter(|command| age(facts.now, command.created) > facts.grace)
        .map(|command| command.queue.as_str())
        .collect();
    if !old.is_empty() {
        let what = format!("nobody carries out Commands to queues {}", join_first_names(old));
        findings.push(CHECK.warning(what).fixed_by("kubectl get commands.bus.volcano.sh -A"));
    }
    if let (false, true) = (facts.settings.is_empty(), facts.settings.iter().all(Result::is_err)) {
        let whys = facts.settings.iter().filter_map(|one| one.as_ref().err()).map(String::as_str);
        let what =
            format!("the controller's settings can not be read ({}): others are taken to be", join_first_names(whys));
        findings.push(CHECK.note(what));
    }
    for stale in take_visible(&facts.inventories, CHECK, "ClusterInventories", &mut findings) {
        let (late, cluster) = (age(facts.now, stale.seen), &stale.cluster);
        if stale.seen.is_some() && late > 3 * stale.interval {
            let what = format!("the collector of {cluster} has said nothing for {}", format_duration(late));
            findings.push(CHECK.warning(what).fixed_by(format!("caldera inventory --cluster {cluster}")));
        }
    }
    findings
}

/// Whether somebody looks after those that wait.
fn check_forgotten_jobs(facts: &Facts) -> Option<Finding> {
    let (Ok(bindings), Ok(groups)) = (&facts.bindings, &facts.pod_groups) else { return None };
    let reported: BTreeSet<_> = groups.iter().map(|group| &group.workload).collect();
    let is_forgotten = |binding: &&CheckedBinding| {
        binding.gate.as_deref() == Some("closed")
            && age(facts.now, binding.created) > facts.grace
            && !binding.deleting
            && !reported.contains(&binding.workload)
    };
    let forgotten: Vec<&str> = bindings.iter().filter(is_forgotten).map(|binding| binding.key.as_str()).collect();
    (!forgotten.is_empty()).then(|| {
        let waiting = count_noun(forgotten.len(), "waiting job");
        let what = format!("{waiting} without a PodGroup: no controller looks after {}", join_first_names(forgotten));
        CHECK.error(what).fixed_by("caldera controller --kubeconfig karmada.kubeconfig")
    })
}

pub(super) fn check_clocks(facts: &Facts) -> Vec<Finding> {
    const CHECK: Check = Check::Clocks;
    let mut findings = Vec::new();
    let ahead = |seconds: i64| {
        let word = if seconds > 0 { "ahead of" } else { "behind" };
        format!("{} {word}", format_duration(seconds.abs()))
    };
    let fix = "chronyc tracking";
    if let Some(seconds) = facts.our_clock.filter(|seconds| seconds.abs() > SKEW) {
        let what = format!("the clock of this machine is {} that of the Karmada API server", ahead(seconds));
        findings.push(CHECK.note(what).fixed_by(fix));
    }
    for lease in facts.leases.iter().flatten() {
        let seconds = -age(facts.now, lease.renewed);
        if lease.renewed.is_some() && seconds > SKEW {
            let what = format!(
                "{} of Lease {}/{} has a clock that is {} that of the Karmada API server",
                lease.holder,
                lease.namespace,
                lease.name,
                ahead(seconds)
            );
            findings.push(CHECK.warning(what).fixed_by(fix));
        }
    }
    for member in facts.members.iter().flatten() {
        let clock = member.inside.as_ref().ok().and_then(|inside| inside.clock);
        if let Some(seconds) = clock.filter(|seconds| seconds.abs() > SKEW) {
            let what = format!("the clock of {} is {} that of the Karmada API server", member.name, ahead(seconds));
            findings.push(CHECK.warning(what).fixed_by(fix));
        }
    }
    findings
}
