//! Faults of members, queues, records, and what is left over.

use super::*;
use crate::doctor::facts::{ReservationFacts, WorkFacts};

#[test]
fn maintenance_windows_that_can_not_be_read_are_reported() {
    let plant = |facts: &mut Facts| {
        facts.members.as_mut().unwrap()[0].unread_maintenance = Some("\"soon\" is no time".into());
    };
    finds(plant, Check::Members, Severity::Error, &["windows of m1 do not count", "caldera.dev/maintenance", "soon"]);
}

#[test]
fn autoscaled_groups_that_can_not_be_read_are_reported() {
    let plant = |facts: &mut Facts| {
        facts.members.as_mut().unwrap()[0].unread_groups = Some("group gpu has a max of 0".into());
    };
    let said = ["groups of m1 do not count", "caldera.dev/autoscaled-groups", "max of 0"];
    finds(plant, Check::Members, Severity::Error, &said);
}

#[test]
fn an_amount_that_is_kept_for_no_queue_or_can_not_be_read_is_reported() {
    let keep = |facts: &mut Facts, queues| {
        facts.reservations = Ok(vec![ReservationFacts { name: "launch".into(), queues }]);
    };
    let plant = |facts: &mut Facts| keep(facts, Err("it has no end".into()));
    finds(plant, Check::Queues, Severity::Error, &["CapacityReservation launch keeps nothing: it has no end"]);
    let plant = |facts: &mut Facts| keep(facts, Ok(vec!["default".into(), "gone".into()]));
    finds(plant, Check::Queues, Severity::Warning, &["launch keeps an amount for queues that there are not: gone"]);
}

#[test]
fn a_fleet_without_members_and_a_member_that_is_not_ready_are_reported() {
    let plant = |facts: &mut Facts| facts.members = Ok(Vec::new());
    finds(plant, Check::Members, Severity::Error, &["no member has joined"]);
    let plant = |facts: &mut Facts| {
        let member = &mut facts.members.as_mut().unwrap()[0];
        (member.ready, member.inside) = (Err("ClusterNotReachable: refused".into()), Err("down".into()));
    };
    finds(plant, Check::Members, Severity::Warning, &["m1 is not ready: ClusterNotReachable"]);
    let plant = |facts: &mut Facts| facts.members.as_mut().unwrap()[0].inside = Err("forbidden".into());
    finds(plant, Check::Members, Severity::Note, &["inside m1", "forbidden"]);
}

#[test]
fn a_member_without_volcano_is_reported() {
    let plant = |facts: &mut Facts| {
        inside(facts).kinds.remove("jobs.batch.volcano.sh");
    };
    finds(plant, Check::Members, Severity::Error, &["m1 has no Volcano", "jobs.batch.volcano.sh"]);
}

#[test]
fn a_volcano_scheduler_that_does_not_run_is_reported_and_one_that_can_not_be_seen_is_a_note() {
    let plant = |facts: &mut Facts| inside(facts).volcano.as_mut().unwrap()[0].1 = false;
    finds(plant, Check::Members, Severity::Error, &["Volcano's scheduler does not run in m1"]);
    let plant = |facts: &mut Facts| inside(facts).volcano = Ok(Vec::new());
    finds(plant, Check::Members, Severity::Note, &["no pod in namespace volcano-system of m1"]);
    let plant = |facts: &mut Facts| inside(facts).volcano = Err("forbidden".into());
    finds(plant, Check::Members, Severity::Note, &["Volcano's pods in m1", "forbidden"]);
}

#[test]
fn a_queue_that_a_member_lacks_or_has_closed_is_reported() {
    let plant = |facts: &mut Facts| facts.queues.as_mut().unwrap().push(queue("q", "Open"));
    finds(plant, Check::Members, Severity::Warning, &["m1 does not have queues q"]);
    let plant = |facts: &mut Facts| inside(facts).queues = Ok(vec![queue("default", "Closed")]);
    finds(plant, Check::Members, Severity::Error, &["queue default is Closed in m1 and open on the host"]);
    // Who calls the fleet itself a queue, and what only the member has.
    let mut facts = healthy();
    facts.queues.as_mut().unwrap().push(queue("root", ""));
    inside(&mut facts).queues.as_mut().unwrap().push(queue("own", "Closed"));
    assert_eq!(find_faults(&facts), []);
}

#[test]
fn a_closed_queue_is_told_the_louder_where_jobs_wait() {
    let closed = |pending| {
        move |facts: &mut Facts| {
            facts.queues =
                Ok(vec![QueueFacts { name: "default".into(), state: "Closed".into(), pending, paused: None }]);
        }
    };
    finds(closed(0), Check::Queues, Severity::Note, &["queue default is Closed"]);
    finds(closed(3), Check::Queues, Severity::Warning, &["3 of its jobs wait"]);
}

/// The one binding, changed.
fn change(change: impl FnOnce(&mut CheckedBinding)) -> impl FnOnce(&mut Facts) {
    |facts| change(&mut facts.bindings.as_mut().unwrap()[0])
}

#[test]
fn a_binding_without_a_gate_is_reported_unless_somebody_suspended_it() {
    let ungated = |binding: &mut CheckedBinding| (binding.gate, binding.suspended) = (None, false);
    let waits = |binding: &mut CheckedBinding| {
        ungated(binding);
        binding.clusters = 0;
    };
    finds(change(waits), Check::Records, Severity::Error, &["1 binding without a gate, as if", "ns/j-job"]);
    let runs = |binding: &mut CheckedBinding| {
        ungated(binding);
        (binding.clusters, binding.admitted) = (2, false);
    };
    finds(change(runs), Check::Records, Severity::Warning, &["1 binding placed without a gate, and running on"]);
    let mut facts = healthy();
    change(runs)(&mut facts);
    let fixes: Vec<String> = find_faults(&facts).into_iter().filter_map(|finding| finding.fix).collect();
    assert!(!fixes.is_empty() && fixes.iter().all(|fix| !fix.contains("kubectl delete")), "{fixes:?}");
    for harmless in [
        (|binding| binding.suspended = true) as fn(&mut CheckedBinding),
        |binding| binding.has_placement = false,
        |binding| binding.queued = false,
        |binding| binding.deleting = true,
    ] {
        let mut facts = healthy();
        change(|binding| {
            ungated(binding);
            harmless(binding);
        })(&mut facts);
        assert_eq!(find_faults(&facts), []);
    }
}

#[test]
fn gates_that_contradict_the_rest_of_the_binding_are_reported() {
    let plant = change(|binding| binding.suspended = false);
    finds(plant, Check::Records, Severity::Warning, &["closed gate and not suspended"]);
    let plant = change(|binding| binding.clusters = 1);
    finds(plant, Check::Records, Severity::Warning, &["placed behind a closed gate"]);
    let plant = change(|binding| (binding.gate, binding.suspended) = (Some("open".into()), false));
    finds(plant, Check::Records, Severity::Warning, &["open gate and no record"]);
}

#[test]
fn a_record_that_can_not_be_read_is_reported_by_its_annotation() {
    let plant = change(|binding| binding.unreadable = vec!["caldera.dev/plan"]);
    finds(plant, Check::Records, Severity::Error, &["caldera.dev/plan of 1 binding can not be read"]);
}

#[test]
fn a_stale_grant_is_reported_and_one_under_a_lease_that_holds_is_not() {
    let grant = |epoch: &str| {
        let epoch = epoch.to_owned();
        change(move |binding| {
            (binding.gate, binding.suspended, binding.admitted) = (Some("open".into()), false, true);
            binding.epoch = Some(epoch);
        })
    };
    finds(grant("0.gone"), Check::Records, Severity::Warning, &["under a Lease that is over"]);
    let mut facts = healthy();
    grant("1.h")(&mut facts);
    assert_eq!(find_faults(&facts), []);
}

#[test]
fn an_orphaned_binding_is_reported() {
    let plant = |facts: &mut Facts| {
        facts.workloads = Ok(Default::default());
        facts.pod_groups = Ok(Vec::new());
        change(|binding| binding.suspended = true)(facts);
        // Else it also waits without a PodGroup.
        change(|binding| (binding.gate, binding.queued) = (None, false))(facts);
    };
    finds(plant, Check::Records, Severity::Error, &["1 binding without a workload"]);
}

#[test]
fn what_outlives_its_owner_is_reported() {
    let plant = |facts: &mut Facts| {
        let mut gone = workload();
        gone.name = "gone".into();
        facts.pod_groups.as_mut().unwrap().push(PodGroupFacts {
            key: "ns/g".into(),
            workload: gone,
            created: second(-99),
        });
    };
    finds(plant, Check::Garbage, Severity::Warning, &["PodGroup of ours without a workload", "ns/g"]);
    let work =
        |age: i64, may_run| WorkFacts { key: "es/w".into(), binding: "ns/gone".into(), created: second(-age), may_run };
    let plant = |facts: &mut Facts| facts.works = Ok(vec![work(61, true), work(5, true)]);
    finds(plant, Check::Garbage, Severity::Error, &["of bindings that are not there (1): what they sent"]);
    let plant = |facts: &mut Facts| facts.works = Ok(vec![work(61, false), work(5, false)]);
    finds(plant, Check::Garbage, Severity::Warning, &["of bindings that are not there (1), and no member"]);
}
