//! Checks the members, and the queues of the host.
//!
//! Rule: no member at all, a member without Volcano's kinds or ready pods, a queue that is closed in a member alone,
//! and maintenance windows or autoscaled groups that can not be read are errors. A member that is not ready or lacks a
//! queue of the host is a warning, as are a pause, a closed queue with jobs, and an amount that is kept for a queue
//! that there is not.

use caldera_crds::names::{
    caldera::{AUTOSCALED_GROUPS, MAINTENANCE},
    volcano::DEFAULT_QUEUE,
};

use super::{fix_commands::APPLY_PROPAGATION, take_visible};
use crate::doctor::{
    facts::{Facts, MemberFacts, MemberInside, QueueFacts, ReservationFacts},
    finding::{Check, Finding, join_first_names},
};

const CHECK: Check = Check::Members;
/// What a job needs in a member.
const KINDS: [&str; 4] = [
    "jobs.batch.volcano.sh",
    "podgroups.scheduling.volcano.sh",
    "queues.scheduling.volcano.sh",
    "commands.bus.volcano.sh",
];
/// What Volcano runs.
const PARTS: [&str; 2] = ["scheduler", "controller"];

fn is_open(queue: &QueueFacts) -> bool {
    queue.state.is_empty() || queue.state == "Open"
}

pub(super) fn check_members(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let members = take_visible(&facts.members, CHECK, "Clusters", &mut findings);
    if facts.members.as_ref().is_ok_and(Vec::is_empty) {
        let what = "no member has joined: nothing can run";
        findings.push(CHECK.error(what).fixed_by("karmadactl join NAME --cluster-kubeconfig member.kubeconfig"));
    }
    let mut silent = Vec::new();
    for member in members {
        let unread = [
            ("maintenance windows", MAINTENANCE, &member.unread_maintenance),
            ("autoscaled groups", AUTOSCALED_GROUPS, &member.unread_groups),
        ];
        findings.extend(unread.into_iter().filter_map(|(what, annotation, why)| {
            let what = format!("{what} of {} do not count, by annotation {annotation}: {}", member.name, why.as_ref()?);
            Some(CHECK.error(what).fixed_by(format!("kubectl annotate cluster {} {annotation}-", member.name)))
        }));
        if let Err(why) = &member.ready {
            let what = format!("{} is not ready: {why}", member.name);
            findings.push(CHECK.warning(what).fixed_by(format!("kubectl describe cluster {}", member.name)));
            continue;
        }
        match &member.inside {
            Err(why) => findings.push(CHECK.hidden(&format!("what is inside {}", member.name), why)),
            Ok(inside) => {
                findings.extend(check_volcano(member, inside));
                findings.extend(check_member_queues(member, inside, facts.queues.as_deref().unwrap_or_default()));
                if inside.volcano.as_ref().is_ok_and(Vec::is_empty) {
                    silent.push(member.name.as_str());
                }
            }
        }
    }
    if !silent.is_empty() {
        let what = format!(
            "there is no pod in namespace volcano-system of {}: whether Volcano's scheduler runs there can not be told",
            join_first_names(silent)
        );
        findings.push(CHECK.note(what));
    }
    findings
}

fn check_volcano(member: &MemberFacts, inside: &MemberInside) -> Vec<Finding> {
    let name = &member.name;
    let missing: Vec<&str> = KINDS.into_iter().filter(|kind| !inside.kinds.contains(*kind)).collect();
    if !missing.is_empty() {
        let what = format!("{name} has no Volcano: it does not serve {}", join_first_names(missing));
        let fix = format!(
            "helm --kube-context {name} install volcano volcano-sh/volcano -n volcano-system --create-namespace"
        );
        return vec![CHECK.error(what).fixed_by(fix)];
    }
    match &inside.volcano {
        Err(why) => vec![CHECK.hidden(&format!("Volcano's pods in {name}"), why)],
        Ok(pods) if pods.is_empty() => Vec::new(),
        Ok(pods) => {
            let runs = |part: &str| pods.iter().any(|(pod, ready)| *ready && pod.contains(part));
            let dead = PARTS.into_iter().filter(|part| !runs(part));
            let find = |part: &str| {
                let what = format!("Volcano's {part} does not run in {name}: no pod of it in volcano-system is ready");
                CHECK.error(what).fixed_by(format!("kubectl --context {name} get pods -n volcano-system"))
            };
            dead.map(find).collect()
        }
    }
}

fn check_member_queues(member: &MemberFacts, inside: &MemberInside, host: &[QueueFacts]) -> Vec<Finding> {
    let name = &member.name;
    let Ok(there) = &inside.queues else {
        let mut findings = Vec::new();
        take_visible(&inside.queues, CHECK, &format!("queues in {name}"), &mut findings);
        return findings;
    };
    let mut findings = Vec::new();
    let missing: Vec<&str> = host
        .iter()
        .map(|queue| queue.name.as_str())
        .filter(|queue| *queue != "root" && !there.iter().any(|one| one.name == *queue))
        .collect();
    if !missing.is_empty() {
        let what = format!("{name} does not have queues {}: their jobs can not run there", join_first_names(missing));
        findings.push(CHECK.warning(what).fixed_by(APPLY_PROPAGATION));
    }
    let closed = there.iter().filter(|queue| !is_open(queue));
    for queue in closed.filter(|queue| host.iter().any(|one| one.name == queue.name && is_open(one))) {
        let what = format!(
            "queue {} is {} in {name} and open on the host: what is placed there does not start",
            queue.name, queue.state
        );
        findings.push(
            CHECK.error(what).fixed_by(format!("vcctl --context {name} queue operate -n {} -a open", queue.name)),
        );
    }
    findings
}

/// Of what nobody can use nobody is told: those that it is kept from are.
fn check_reservations(facts: &Facts, queues: &[QueueFacts]) -> Vec<Finding> {
    const CHECK: Check = Check::Queues;
    let mut findings = Vec::new();
    let reservations = take_visible(&facts.reservations, CHECK, "CapacityReservations", &mut findings);
    for ReservationFacts { name, queues: owners } in reservations {
        let owners = match owners {
            Ok(owners) => owners,
            Err(why) => {
                let what = format!("CapacityReservation {name} keeps nothing: {why}");
                findings.push(CHECK.error(what).fixed_by(format!("caldera reservation delete {name}")));
                continue;
            }
        };
        let is_absent = |owner: &&String| !queues.iter().any(|queue| queue.name == **owner);
        let absent: Vec<&str> = owners.iter().filter(is_absent).map(String::as_str).collect();
        if facts.queues.is_ok() && !absent.is_empty() {
            let what = format!(
                "CapacityReservation {name} keeps an amount for queues that there are not: {}",
                join_first_names(absent)
            );
            findings.push(CHECK.warning(what).fixed_by(format!("kubectl edit capacityreservation {name}")));
        }
    }
    findings
}

pub(super) fn check_queues(facts: &Facts) -> Vec<Finding> {
    const CHECK: Check = Check::Queues;
    let mut findings = Vec::new();
    let queues = take_visible(&facts.queues, CHECK, "Queues", &mut findings);
    let paused = queues.iter().find(|queue| queue.name == DEFAULT_QUEUE).and_then(|queue| queue.paused.as_ref());
    findings
        .extend(paused.map(|why| {
            CHECK.warning(format!("all releases are paused: {why}")).fixed_by("caldera unpause".to_owned())
        }));
    for queue in queues.iter().filter(|queue| !is_open(queue)) {
        let (name, state) = (&queue.name, &queue.state);
        findings.push(
            match queue.pending {
                0 => CHECK.note(format!("queue {name} is {state}")),
                waiting => CHECK.warning(format!("queue {name} is {state}, and {waiting} of its jobs wait")),
            }
            .fixed_by(format!("caldera queue open {name}")),
        );
    }
    findings.extend(check_reservations(facts, queues));
    findings
}
