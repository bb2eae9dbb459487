//! Reviews: each route answers any body within bounds, with a patch that fits the object and that leaves nothing to do
//! where it was applied. The first byte says which route: `0` is the first.

use std::sync::LazyLock;

use crate::{
    cost::{Bound, within},
    expand::{expand, is_short_form},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_crds::{job_admission::MOST_TASKS, tenancy::NamespaceFacts};
use caldera_webhook::{
    decide::interpreter::{Interpretation, interpret_request},
    observe::{
        cache::{
            Cache, CachedBinding, CachedWorkload, GrantFacts, LiveRead, Lookup, PriorityClass, Snapshot, WorkloadKey,
        },
        cost::{ReviewHead, estimate_memory},
    },
    rules::{RULES, Rule},
    write::review::Outcome,
};
use serde_json::{Value, json};

/// Memory is held against what the webhook says that a body will take, beside it.
const BOUND: Bound = Bound { ms: 150, ns_per_byte: 500, kib: 256, bytes_per_byte: 4 };
/// What the webhook takes of all bodies at once.
const MOST_MEMORY: usize = 81 << 20;

static CACHE: LazyLock<Cache> = LazyLock::new(|| {
    let mut cache = Cache::default();
    let queue = |name: &str, parent: &str, state: &str| {
        json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name},
            "spec": {"parent": parent, "weight": 1, "capability": {"cpu": "8"}, "deserved": {"cpu": "4"}},
            "status": {"state": state},
        })
    };
    for (name, parent, state) in [
        ("root", "", "Open"),
        ("default", "root", "Open"),
        ("q", "root", "Open"),
        ("child", "q", "Open"),
        ("shut", "root", "Closed"),
    ] {
        cache.queues.insert(name.to_owned(), queue(name, parent, state));
    }
    cache.queues.insert("closed-to-ns".to_owned(), {
        let mut queue = queue("closed-to-ns", "root", "Open");
        queue["metadata"]["annotations"] = json!({"caldera.dev/namespace-selector": "team=ml"});
        queue
    });
    cache.priority_classes.insert("high".to_owned(), PriorityClass { value: 1_000, is_default: false });
    cache.namespaces.insert("ns".to_owned(), NamespaceFacts { opted_in: true, ..NamespaceFacts::default() });
    for (kind, api_version, object) in [
        ("Job", "batch.volcano.sh/v1alpha1", include_str!("known/job.json")),
        ("Deployment", "apps/v1", include_str!("known/deployment.json")),
    ] {
        let object: Value = serde_json::from_str(object).expect("a workload");
        let kind = caldera_crds::workload::WorkloadKind::parse(api_version, kind).expect("a kind");
        let key = WorkloadKey { kind, namespace: "ns".to_owned(), name: "train".to_owned() };
        cache.workloads.insert(key, CachedWorkload::from_object(kind, &object));
    }
    for binding in [include_str!("known/binding-job.json"), include_str!("known/binding-deployment.json")] {
        let binding: Value = serde_json::from_str(binding).expect("a binding");
        let name = binding["metadata"]["name"].as_str().expect("its name").to_owned();
        cache.put_binding(("ns".to_owned(), name), CachedBinding::from_object(&binding));
    }
    cache.listed = ["ResourceBinding", "PriorityClass", "Namespace", "Queue"].into();
    cache.listed.extend(caldera_crds::workload::WorkloadKind::ALL.into_iter().map(|kind| kind.title()));
    cache
});

/// Panics where an input does what must not be.
pub fn check_input(bytes: &[u8]) {
    let [which, text @ ..] = bytes else { return };
    let body = match serde_json::from_slice::<Value>(text) {
        Ok(short) if is_short_form(text) => expand(&short).to_string().into_bytes(),
        _ => text.to_vec(),
    };
    let route = usize::from(which.wrapping_sub(b'0')) % (RULES.len() + 1);
    // As the server does before anything is built of it. An error quotes a text that stands where an object should.
    let cost = within("the first look", Bound { bytes_per_byte: 1, ..BOUND }, body.len(), || estimate_memory(&body));
    let tasks = within("a glance", BOUND, body.len(), || ReviewHead::of_body(&body).created_tasks());
    if cost > MOST_MEMORY || tasks > MOST_TASKS {
        return;
    }
    let bound = Bound { kib: BOUND.kib + 3 * cost / 1024, ..BOUND };
    match RULES.get(route) {
        Some((route, rule)) => answer(route, *rule, &body, bound),
        None => {
            let interpret = |live| within("interpreter", bound, body.len(), || interpret_request(&body, &CACHE, live));
            let answer = match interpret(None) {
                Interpretation::Read(_) => interpret(Some(&LiveRead::Binding(None))),
                answer => answer,
            };
            let Interpretation::Reply(reply) = answer else { panic!("what was read is asked for again") };
            if reply.status == 200 {
                let reply: Value = serde_json::from_slice(&reply.body).expect("an answer is JSON");
                let asked: Value = serde_json::from_slice(&body).expect("it was read");
                assert_eq!(reply["response"]["uid"], asked["request"]["uid"]);
                patched(&reply["response"], &asked["request"]["object"]);
            }
        }
    }
}

fn answer(route: &str, rule: Rule, body: &[u8], bound: Bound) {
    let Some(response) = decide(route, rule, body, bound) else { return };
    if response["allowed"] != true || body.len() > 16 << 10 {
        return;
    }
    let Ok(mut review) = serde_json::from_slice::<Value>(body) else { return };
    let object = review["request"]["object"].take();
    let Some(once) = patched(&response, &object) else { return };
    if route.ends_with("work") {
        return;
    }
    review["request"]["object"] = once;
    let again = decide(route, rule, review.to_string().as_bytes(), Bound { kib: 64 << 10, ..bound });
    if let Some(again) = again.filter(|again| again["allowed"] == true) {
        let left = again["patch"].as_str().map(|patch| STANDARD.decode(patch).unwrap_or_default());
        assert!(left.is_none(), "{route} is not done: {}", String::from_utf8_lossy(&left.unwrap_or_default()));
    }
}

fn decide(route: &str, rule: Rule, body: &[u8], bound: Bound) -> Option<Value> {
    let ask = |live: Option<&LiveRead>| {
        within(route, bound, body.len(), || {
            rule(body, Snapshot { cache: &CACHE, live, now: jiff::Timestamp::UNIX_EPOCH })
        })
    };
    let outcome = match ask(None) {
        Outcome::Read(lookup) => {
            let found = match lookup {
                Lookup::Workload(_) => LiveRead::Workload(None, body.len().is_multiple_of(2)),
                Lookup::Binding(_) => LiveRead::Binding(None),
                Lookup::Queues => LiveRead::Queues(CACHE.queues.values().cloned().collect()),
                Lookup::Access(namespace) => LiveRead::Access(
                    CACHE.namespaces.get(&namespace).cloned(),
                    CACHE.queues.values().cloned().collect(),
                ),
                Lookup::Grant(..) => LiveRead::Grant(Box::new(GrantFacts { gang: None, epoch: None })),
                Lookup::ClaimTemplates(_, names) => {
                    let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu.io"}});
                    let asked = json!({"devices": {"requests": [request]}});
                    LiveRead::ClaimTemplates(names.into_iter().map(|name| (name, asked.clone())).collect())
                }
            };
            ask(Some(&LiveRead::Failed("it failed".to_owned())));
            ask(Some(&found))
        }
        outcome => outcome,
    };
    let Outcome::Reply { status, body: reply, .. } = outcome else { panic!("{route} asks again") };
    if status != 200 {
        assert!([400, 500].contains(&status) && std::str::from_utf8(&reply).is_ok());
        return None;
    }
    let mut reply: Value = serde_json::from_slice(&reply).expect("an answer is JSON");
    Some(reply["response"].take())
}

/// The object with the answer's patch; `None` without one.
fn patched(response: &Value, object: &Value) -> Option<Value> {
    let patch = STANDARD.decode(response["patch"].as_str()?).expect("base64");
    let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a patch");
    let mut object = object.clone();
    json_patch::patch(&mut object, &patch).unwrap_or_else(|error| panic!("{error}: {patch:?} of {object}"));
    Some(object)
}
