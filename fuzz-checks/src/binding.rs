//! Bindings as a tenant could write them: read, held against the workload, and decided about. Whatever they say, the
//! queue of others is charged nothing, and every write can be made.

use std::collections::BTreeMap;

use crate::{
    cost::{Bound, within},
    expand::expand,
};
use caldera_controller::{
    decide::{Controller, decide},
    explain::{explain_job, find_binding, list_queues},
    observe::{Input, ObjectKind, read_object},
};
use caldera_core::{fleet::Update, gang::WorkloadRef};
use caldera_crds::{binding::parse_binding, workload::WorkloadKind};
use caldera_runtime::{watch::Event, write::Body};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const BOUND: Bound = Bound { ms: 250, ns_per_byte: 2_000, kib: 2 << 10, bytes_per_byte: 200 };

/// Panics where an input does what must not be.
pub fn check_input(bytes: &[u8]) {
    let Ok(short) = serde_json::from_slice::<Value>(bytes) else { return };
    let input = expand(&short);
    within("bindings", BOUND, input.to_string().len(), || follow(&input));
}

/// `{"bindings": [...], "workload": ...}`: the workload and its bindings, one after the other.
fn follow(input: &Value) {
    let start = Timestamp::from_second(1_770_000_000).expect("a time");
    let later = |seconds| start.saturating_add(SignedDuration::from_secs(seconds)).expect("a time");
    let mut controller = start_world(start);
    tell(&mut controller, ObjectKind::Workloads(WorkloadKind::VolcanoJob), &input["workload"], start);
    let mut stored = BTreeMap::new();
    let bindings = input["bindings"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (at, binding) in (0..).zip(bindings.iter().take(4)) {
        let _ = parse_binding(binding);
        store(&mut stored, &mut controller, binding.clone(), later(at));
        decide_all(&mut controller, &mut stored, later(at));
    }
    // A record whose workload was never seen is charged for a minute, and taken away.
    for seconds in [20, 100, 100_000] {
        decide_all(&mut controller, &mut stored, later(seconds));
    }
    let honest = list_queues(&controller).into_iter().find(|queue| queue.name.as_str() == "other");
    let honest = honest.expect("nobody deleted it");
    assert!(honest.amounts.iter().all(|one| one.used.is_zero()), "{:?}", honest.amounts);
    let workload = WorkloadRef {
        group: "batch.volcano.sh".to_owned(),
        kind: "Job".to_owned(),
        namespace: "ns".to_owned(),
        name: "train".to_owned(),
    };
    if let Some(key) = find_binding(&controller, &workload) {
        let told = explain_job(&mut controller, &key, later(100_000));
        assert!(serde_json::to_string(&told).is_ok());
    }
}

/// Namespace and name, and the binding as the API server holds it.
type StoredBindings = BTreeMap<(String, String), Value>;

/// Decides until nothing is left to do now, and does what was decided about bindings.
fn decide_all(controller: &mut Controller, stored: &mut StoredBindings, now: Timestamp) {
    for _ in 0..8 {
        let decisions = decide(controller, now);
        for decision in &decisions.writes {
            let write = decision.to_write(now);
            let Body::JsonPatch(patch) = &write.body else { continue };
            let Some(binding) = stored.get(&(write.namespace, write.name)) else { continue };
            if write.resource.plural != "resourcebindings" || write.subresource.is_some() {
                continue;
            }
            let patch: json_patch::Patch = serde_json::from_value(patch.clone()).expect("a patch");
            let mut binding = binding.clone();
            if json_patch::patch(&mut binding, &patch).is_ok() {
                store(stored, controller, binding, now);
            }
        }
        if decisions.writes.is_empty() && decisions.next.is_none_or(|next| next > now) {
            return;
        }
    }
}

/// As the API server does: a new version, which the controller sees.
fn store(stored: &mut StoredBindings, controller: &mut Controller, mut binding: Value, now: Timestamp) {
    let text = |pointer: &str| binding.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let key = (text("/metadata/namespace"), text("/metadata/name"));
    let version: u64 = text("/metadata/resourceVersion").parse().unwrap_or(0);
    if let Some(metadata) = binding.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), version.wrapping_add(1).to_string().into());
    }
    tell(controller, ObjectKind::Bindings, &binding, now);
    stored.insert(key, binding);
}

fn tell(controller: &mut Controller, kind: ObjectKind, object: &Value, now: Timestamp) {
    if let Ok(Some(input)) = read_object(kind, object.clone()) {
        controller.observe(input, now);
    }
}

fn start_world(now: Timestamp) -> Controller {
    let mut controller = Controller::default();
    for input in [
        Input::Queues(Event::Reset(vec![])),
        Input::Bindings(Event::Reset(vec![])),
        Input::PodGroups(Event::Reset(vec![])),
        Input::Classes(Event::Reset(vec![])),
        Input::Clusters(Event::Reset(vec![])),
        Input::Namespaces(Event::Reset(vec![])),
        Input::DataSources(Event::Reset(vec![])),
        Input::DataClaims(Event::Reset(vec![])),
        Input::HyperJobs(Event::Reset(vec![])),
        Input::CapacityReservations(Event::Reset(vec![])),
    ] {
        controller.observe(input, now);
    }
    for kind in WorkloadKind::ALL {
        controller.observe(Input::Workloads(kind, Event::Reset(vec![])), now);
    }
    for (name, cpu) in [("q", "4"), ("other", "8"), ("default", "8")] {
        let queue = json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
            "metadata": {"name": name, "resourceVersion": "1", "uid": name},
            "spec": {"capability": {"cpu": cpu}}, "status": {"state": "Open"},
        });
        tell(&mut controller, ObjectKind::Queues, &queue, now);
    }
    for name in ["m1", "m2"] {
        let cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"syncMode": "Push"},
            "status": {
                "apiEnablements": [
                    {"groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"name": "jobs", "kind": "Job"}]},
                ],
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "r", "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "resourceSummary": {"allocatable": {"cpu": "16", "memory": "1Ti", "pods": "100"}},
            },
        });
        tell(&mut controller, ObjectKind::Clusters, &cluster, now);
        controller.observe(Input::Member(name.to_owned(), Update::Down("it is not asked".to_owned())), now);
    }
    controller
}
