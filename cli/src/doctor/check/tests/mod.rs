//! Each finding by a fault planted in facts of a healthy installation.

mod ca_file;
mod credentials;
mod host;
mod registrations;
mod work;

use std::collections::BTreeMap;

use caldera_controller::settings::Settings;
use caldera_core::gang::WorkloadRef;
use caldera_crds::{
    job_admission::fill_defaults,
    manifests::{build_federation_crds, build_karmada_crds, build_volcano_crds},
    trusted::TrustedWriters,
};
use caldera_webhook::{Endpoint, build_configurations};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::find_faults;
use crate::{
    doctor::{
        facts::{
            CheckedBinding, Facts, KarmadaAccess, LeaseFacts, MemberFacts, MemberInside, PodGroupFacts, QueueFacts,
            Versions,
        },
        finding::{Check, Severity},
    },
    manifests::{build_propagation_policies, list_admission_policies},
};

const NOW: i64 = 1_800_000_000;

fn second(seconds: i64) -> Option<Timestamp> {
    Timestamp::from_second(NOW + seconds).ok()
}

/// Policies, and their bindings.
fn split_policies(all: Vec<Value>) -> (Vec<Value>, Vec<Value>) {
    all.into_iter().partition(|object| object["kind"] == "ValidatingAdmissionPolicy")
}

/// Nothing is wrong with these.
fn healthy() -> Facts {
    let authority = caldera_runtime::tls::Authority::new("test").unwrap();
    let [mutating, validating, interpreter] =
        <[Value; 3]>::try_from(build_configurations(&Endpoint::Url("https://h:1".into()), &authority.cert_pem))
            .unwrap();
    let mut definitions = build_karmada_crds();
    definitions.extend(build_volcano_crds());
    definitions.extend(build_federation_crds());
    for definition in &mut definitions {
        definition["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
    }
    let (policies, policy_bindings) = split_policies(list_admission_policies(&TrustedWriters::default(), false));
    let mut job = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"tasks": [{"name": "t", "replicas": 1}]}});
    fill_defaults(&mut job);
    let lease = |name: &str| LeaseFacts {
        namespace: "caldera-system".into(),
        name: name.into(),
        holder: "h".into(),
        renewed: second(-2),
        seconds: 15,
        epoch: "1.h".into(),
        version: Some("2.0.0".into()),
        credentials: None,
    };
    Facts {
        now: second(0).unwrap(),
        host_kubeconfig: None,
        grace: 60,
        versions: Versions { caldera: "2.0.0".into(), host: "v1.36.1".into(), members: Vec::new() },
        our_clock: Some(0),
        definitions: Ok(definitions),
        kind_faults: BTreeMap::new(),
        declared_kinds: Vec::new(),
        rights: Ok(Vec::new()),
        mutating: Ok(vec![mutating]),
        validating: Ok(vec![validating]),
        interpreters: Ok(vec![interpreter]),
        interpreter_failures: Ok(Vec::new()),
        customizations: Ok(Vec::new()),
        policies: Ok(policies),
        policy_bindings: Ok(policy_bindings),
        propagation_policies: Ok(build_propagation_policies()),
        registers: false,
        karmada: Ok(KarmadaAccess::default()),
        binding_probe: Ok(json!({
            "metadata": {"annotations": {"caldera.dev/gate": "closed", "caldera.dev/webhook-version": "2.0.0"}},
            "spec": {"suspension": {"scheduling": true}},
        })),
        job_probe: Ok(job),
        kubeconfigs: Vec::new(),
        ca_file_fault: None,
        leases: Ok(vec![lease("caldera-controller"), lease("caldera-scheduler")]),
        members: Ok(vec![member()]),
        queues: Ok(vec![queue("default", "Open")]),
        reservations: Ok(Vec::new()),
        bindings: Ok(vec![binding()]),
        workloads: Ok([workload()].into()),
        pod_groups: Ok(vec![PodGroupFacts { key: "ns/j-1".into(), workload: workload(), created: second(-99) }]),
        works: Ok(Vec::new()),
        commands: Ok(Vec::new()),
        inventories: Ok(Vec::new()),
        settings: vec![Ok(Settings::default())],
    }
}

fn workload() -> WorkloadRef {
    let text = str::to_owned;
    WorkloadRef { group: text("batch.volcano.sh"), kind: text("Job"), namespace: text("ns"), name: text("j") }
}

/// One that waits.
fn binding() -> CheckedBinding {
    CheckedBinding {
        key: "ns/j-job".into(),
        created: second(-100),
        workload: workload(),
        queued: true,
        deleting: false,
        has_placement: true,
        gate: Some("closed".into()),
        suspended: true,
        clusters: 0,
        replicas: 1,
        components: false,
        admitted: false,
        epoch: None,
        unreadable: Vec::new(),
    }
}

fn queue(name: &str, state: &str) -> QueueFacts {
    QueueFacts { name: name.into(), state: state.into(), pending: 0, paused: None }
}

fn member() -> MemberFacts {
    let kinds = [
        "jobs.batch.volcano.sh",
        "podgroups.scheduling.volcano.sh",
        "queues.scheduling.volcano.sh",
        "commands.bus.volcano.sh",
    ];
    let pods = ["volcano-scheduler-1", "volcano-controllers-1"].map(|name| (name.to_owned(), true));
    let inside = MemberInside {
        clock: Some(1),
        kinds: kinds.map(str::to_owned).into(),
        queues: Ok(vec![queue("default", "Open")]),
        volcano: Ok(pods.into()),
        volcano_version: None,
    };
    MemberFacts {
        name: "m1".into(),
        is_pull: false,
        ready: Ok(()),
        unread_maintenance: None,
        unread_groups: None,
        inside: Ok(inside),
    }
}

fn inside(facts: &mut Facts) -> &mut MemberInside {
    facts.members.as_mut().unwrap()[0].inside.as_mut().unwrap()
}

/// What a fault makes the doctor say: exactly one finding, of this check and severity, with these words; a fix, too,
/// unless it is a note.
#[track_caller]
fn finds(plant: impl FnOnce(&mut Facts), check: Check, severity: Severity, words: &[&str]) {
    let mut facts = healthy();
    plant(&mut facts);
    let found = find_faults(&facts);
    let [one] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((one.check, one.severity), (check, severity), "{one:?}");
    for word in words {
        assert!(one.what.contains(word), "{word:?} is not in {one:?}");
    }
    assert!(one.fix.as_ref().is_some_and(|fix| !fix.is_empty()) || severity == Severity::Note, "{one:?}");
}

#[test]
fn nothing_is_found_in_a_healthy_installation() {
    assert_eq!(find_faults(&healthy()), []);
}

#[test]
fn what_can_not_be_seen_is_a_note_and_no_fault() {
    let mut facts = healthy();
    let hidden = || "forbidden".to_owned();
    facts.definitions = Err(hidden());
    facts.rights = Err(hidden());
    (facts.mutating, facts.validating) = (Err(hidden()), Err(hidden()));
    (facts.policies, facts.policy_bindings) = (Err(hidden()), Err(hidden()));
    facts.propagation_policies = Err(hidden());
    (facts.interpreters, facts.customizations) = (Err(hidden()), Err(hidden()));
    facts.karmada = Err(hidden());
    (facts.leases, facts.members, facts.queues) = (Err(hidden()), Err(hidden()), Err(hidden()));
    (facts.bindings, facts.workloads, facts.pod_groups) = (Err(hidden()), Err(hidden()), Err(hidden()));
    (facts.works, facts.commands, facts.inventories) = (Err(hidden()), Err(hidden()), Err(hidden()));
    let found = find_faults(&facts);
    assert!(found.iter().all(|one| one.severity == Severity::Note && one.what.contains("forbidden")), "{found:#?}");
    assert_eq!(found.len(), 19, "{found:#?}");
}
