//! Repeats a recording and lists what is different.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::webster::Tie;
use caldera_sandbox::karmada::{
    api::{APPLY, Delete, Writer},
    object::{ObjectExt, ObjectKey},
};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::{
    compare,
    interpreter::{ADDRESS, Interpreter},
    log::{kind_of, place_of},
    recording::{Action, Recording, Subject, Written},
    stage::{START, Stage, quiet},
};

/// The recorded system had settled when nothing had happened for so long.
const SETTLED: f64 = 0.25;
/// Who did nothing for so long waited for something, though not everything had settled.
const WAITED: f64 = 1.0;

/// How late a binding controller is that looks after the scheduler answered.
const LATE: Duration = Duration::from_millis(60);

/// Templates whose binding was divided otherwise than recorded.
pub fn divided_otherwise(recording: &Recording, differences: &[String]) -> BTreeSet<String> {
    let created = recording.actions().into_iter().filter(|action| action.verb == "create" && action.at == "host");
    let is_other = |template: &String| {
        let (kind, (namespace, name)) = (kind_of(template).kind, place_of(template));
        let binding = format!("ResourceBinding/{namespace}/{name}-{}/spec/clusters", kind.to_lowercase());
        differences.iter().any(|difference| difference.contains(&binding))
    };
    created.map(|action| action.object).filter(is_other).collect()
}

/// Replays a recording; `odd` are the templates that get a uid with an odd hash.
pub async fn replay(recording: &Recording, odd: &BTreeSet<String>) -> Vec<String> {
    let interpreter = Interpreter::of(recording);
    let mut stage = Stage::build(recording, &interpreter).await;
    let mut found = Vec::new();
    let text = recording.document.to_string();
    let mut done = 0.0;
    // Evictions come by the clock, and so does the word that a member is lost: who acts later must not find that they
    // have not come, nor the next ones.
    let timed = text.contains("gracefulEvictionTasks") || text.contains("\"API server of m");
    let start = Instant::now();
    let (clearing, mut begun) = (recording.clearing_begins(), None);
    for action in recording.seen_actions() {
        if timed {
            tokio::time::sleep_until(start + Duration::from_secs_f64(action.t)).await;
        }
        if action.hurried {
            tokio::time::sleep(Duration::from_secs_f64((action.t - done).clamp(0.0, WAITED))).await;
        } else if recording.quiet_before(action.t) < SETTLED && recording.idle_before(action.t) >= WAITED {
            quiet(&stage.log).await;
        } else if recording.quiet_before(action.t) >= SETTLED {
            let expected = recording.state_before(action.t);
            settle(&mut stage, &expected, patience(action.t - done)).await;
            for difference in check(&mut stage, &expected).await {
                found.push(format!("before t={} ({} {}): {difference}", action.t, action.verb, action.object));
            }
        }
        done = action.t;
        if action.t >= clearing && begun.is_none() {
            begun = Some(stage.log.lock().unwrap().written());
        }
        if action.verb == "recorder" {
            operate(&mut stage, &interpreter, &action.object).await;
            continue;
        }
        stage.binding_lag.set(LATE, recording.scheduler_was_first(action.t));
        stage.steer_ids(if odd.contains(&action.object) { Tie::Descending } else { Tie::Ascending });
        let outcome = act(&mut stage, &action).await;
        let accepted = action.code < 400;
        match outcome {
            Ok(()) if accepted => {}
            Err(_) if !accepted => {}
            Ok(()) => found.push(format!(
                "t={}: {} {} was refused with {}, here it was not",
                action.t, action.verb, action.object, action.code
            )),
            Err(error) => found.push(format!("t={}: {} {}: {error}", action.t, action.verb, action.object)),
        }
    }
    let mut last = recording.final_states();
    // What the recorder cleared away afterwards is not in the recording.
    let seen = recording.state_before(f64::INFINITY);
    // A recording that was closed in the middle of its own clearing away says nothing about what was still there.
    let clearing = recording.ends_in_clearing();
    last.retain(|_, state| state.is_none() || !clearing);
    if recording.cut().is_some() {
        last.clear();
    }
    let deleted: BTreeSet<Subject> = recording
        .actions()
        .into_iter()
        .filter(|action| action.verb == "delete")
        .map(|action| (action.at, action.object))
        .collect();
    last.retain(|subject, state| state.is_none() || !deleted.contains(subject));
    last.retain(|subject, state| seen.get(subject).is_none_or(|seen| seen.is_some() == state.is_some()));
    settle(&mut stage, &last, patience(recording.duration() - done)).await;
    for difference in check(&mut stage, &last).await {
        found.push(format!("at the end: {difference}"));
    }
    found.extend(writes(recording, &stage, begun));
    found.extend(order(recording, &stage));
    if recording.has_burst() {
        found.retain(|difference| !difference.contains("/metadata/generation"));
    }
    if recording.fault().is_none() {
        found.extend(calls(recording, &interpreter));
    }
    if std::env::var("CALDERA_TRANSCRIPT_LOG").is_ok() {
        for line in &stage.log.lock().unwrap().lines {
            println!("      {line}");
        }
    }
    stage.shutdown.cancel();
    found
}

/// How long something may take that took so many seconds: retries after a fault come with growing gaps.
fn patience(recorded: f64) -> Duration {
    Duration::from_secs_f64((recorded * 1.5).clamp(3.0, 60.0))
}

/// What the recorder did to a component.
async fn operate(stage: &mut Stage, interpreter: &Interpreter, what: &str) {
    let server = what.strip_prefix("API server of ").and_then(|what| what.split_once(' '));
    match (server, what) {
        (Some((member, state)), _) => stage.set_down(member, state == "stopped"),
        (_, "fault removed") => interpreter.remove_fault(),
        (_, "webhook configuration removed") => stop_webhooks(stage).await,
        (_, "karmada-controller-manager restarted" | "karmada-scheduler restarted") => stage.run().await,
        (_, "karmada-controller-manager stopped" | "karmada-controller-manager started") => {
            stage.control = what.ends_with("started");
            stage.run().await;
        }
        (_, "karmada-webhook stopped" | "karmada-webhook started") => stage.admit(what.ends_with("started")),
        (_, "karmada-scheduler stopped" | "karmada-scheduler started") => {
            stage.schedule = what.ends_with("started");
            stage.run().await;
            // It has to be there before something happens.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        (_, "kube-controller-manager stopped" | "kube-controller-manager started") => {
            stage.collect = what.ends_with("started");
            stage.run().await;
        }
        _ => {}
    }
}

async fn stop_webhooks(stage: &mut Stage) {
    let server = stage.server("host", "recorder");
    let kind = kind_of("MutatingWebhookConfiguration/x");
    server.watch_kind(&kind);
    server.until_synced(&kind).await;
    for one in server.list(&kind) {
        if one.name().starts_with("recorder-") {
            server.writer("recorder").delete(&ObjectKey::of(&one), &Delete::default()).await.unwrap();
        }
    }
}

/// Waits for the objects that a recording has to be there, and then for quiet.
async fn settle(stage: &mut Stage, expected: &BTreeMap<Subject, Option<Value>>, patience: Duration) {
    let start = Instant::now();
    loop {
        quiet(&stage.log).await;
        let open = check(stage, expected).await;
        if open.is_empty() || start.elapsed() > patience {
            return;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

async fn check(stage: &mut Stage, expected: &BTreeMap<Subject, Option<Value>>) -> Vec<String> {
    let mut found = Vec::new();
    for ((at, name), recorded) in expected {
        let (namespace, object) = place_of(name);
        let real = stage.server(at, "setup").get_live(&kind_of(name), &namespace, &object).await.ok().flatten();
        let subject = format!("{at} {name}");
        match (recorded, real) {
            (Some(recorded), Some(real)) => {
                compare::differences(&subject, &compare::comparable(recorded), &compare::comparable(&real), &mut found);
            }
            (Some(_), None) => found.push(format!("{subject}: it is not there")),
            (None, Some(_)) => found.push(format!("{subject}: it is still there")),
            (None, None) => {}
        }
    }
    found
}

/// Placeholders of times, uids and of the interpreter become real.
fn real(value: &Value, uids: &BTreeMap<String, String>) -> Value {
    match value {
        // Nobody looks at the certificate of a webhook that is called in the same process.
        Value::String(text) if text == "<ca>" => json!("LQ=="),
        Value::String(text) if uids.contains_key(text) => json!(uids[text]),
        Value::String(text) if text == "<t-old>" => json!("2020-01-01T00:00:00Z"),
        Value::String(text) if text.starts_with("<t+") => {
            let seconds: i64 = text.trim_start_matches("<t+").trim_end_matches('>').parse().unwrap_or(0);
            let start: jiff::Timestamp = START.parse().unwrap();
            json!(
                start
                    .checked_add(jiff::SignedDuration::from_secs(seconds))
                    .unwrap()
                    .strftime("%Y-%m-%dT%H:%M:%SZ")
                    .to_string()
            )
        }
        Value::String(text) => json!(text.replace("<addr>", ADDRESS)),
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.clone(), real(value, uids))).collect::<serde_json::Map<_, _>>().into()
        }
        Value::Array(list) => list.iter().map(|value| real(value, uids)).collect::<Vec<_>>().into(),
        other => other.clone(),
    }
}

async fn act(stage: &mut Stage, action: &Action) -> Result<(), String> {
    let server = stage.server(&action.at, &action.who);
    let writer: Writer = server.writer("recorded");
    let (namespace, name) = place_of(&action.object);
    let key = ObjectKey { gvk: kind_of(&action.object), namespace, name };
    let uids: BTreeMap<String, String> = stage
        .log
        .lock()
        .unwrap()
        .states
        .iter()
        .map(|((at, object), state)| {
            let member = if at == "host" { String::new() } else { format!("@{at}") };
            (format!("<uid:{object}{member}>"), state.uid().to_owned())
        })
        .collect();
    let body = action.body.as_ref().map(|body| real(body, &uids));
    if let ("create", "Cluster", None) = (action.verb.as_str(), key.gvk.kind.as_str(), &body) {
        return stage.join(&key.name).await;
    }
    // What was refused because it is there already is not in the recording.
    let named =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": key.name, "namespace": "karmada-cluster"}});
    let there = action.verb == "create" && action.code == 409 && key.gvk.kind == "Secret";
    let body = body.or_else(|| there.then_some(named));
    if key.gvk.kind == "WorkloadRebalancer" {
        // It counts only when a later second than that of the last scheduling shows on the clock.
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    let outcome = match (action.verb.as_str(), body) {
        ("create", Some(body)) => writer.create(&body).await.map(drop),
        ("delete", _) => match server.get_live(&key.gvk, &key.namespace, &key.name).await {
            Ok(None) => return Err("not found".to_owned()),
            Ok(Some(_)) => writer.delete(&key, &Delete { propagation: action.propagation, ..Delete::default() }).await,
            Err(error) => Err(error),
        },
        ("merge-patch", Some(body)) => writer.merge(&key, &action.subresource, &body).await.map(drop),
        ("json-patch", Some(body)) => writer.json_patch(&key, &action.subresource, &body).await.map(drop),
        ("update" | "replace", Some(body)) => writer.put(&body, &action.subresource).await.map(drop),
        ("apply-patch", Some(body)) => writer.patch(&key, &action.subresource, APPLY, &body).await.map(drop),
        ("strategic-merge-patch", Some(body)) => {
            writer.patch(&key, &action.subresource, "application/strategic-merge-patch+json", &body).await.map(drop)
        }
        (verb, _) => return Err(format!("cannot {verb}")),
    };
    outcome.map_err(|error| error.to_string())
}

/// Writers whose fields are compared.
fn compared(writer: &str) -> bool {
    writer.starts_with("karmada-") || writer.contains("garbage-collector")
}

/// How far the recorded writes are the ones of the stage; `begun` is what was written when the clearing away began.
/// From then on template, policy and binding go at once, and who is first decides what is still written of each.
fn writes(recording: &Recording, stage: &Stage, begun: Option<Written>) -> Vec<String> {
    let keep = |written: Written| -> Written { written.into_iter().filter(|((_, by), _)| compared(by)).collect() };
    let ends = |field: &String| field == "(gone)" || field == "/metadata/deletionTimestamp";
    let recorded = keep(recording.written_before(f64::INFINITY));
    let ours = keep(stage.log.lock().unwrap().written());
    let begun = begun.map_or_else(|| ours.clone(), keep);
    let settled = keep(recording.written_before(recording.clearing_begins()));
    let subjects: BTreeSet<&Subject> = recorded.keys().map(|(subject, _)| subject).collect();
    // One that cleared away before anything had settled has only a part of what would have been written.
    let unsettled = recording.clears_unsettled();
    // Whether a binding loses its marks before it goes with its template depends on who is first.
    // In a burst two changes are seen at once or one after the other, as it happens.
    let unsettled = unsettled || recording.has_burst();
    let race =
        |object: &str, field: &String| object.contains("Binding/") && field.contains("propagationpolicy.karmada.io~1");
    let fields = |early: &Written, all: &Written, key: &(Subject, String)| -> BTreeSet<String> {
        let late = all.get(key).into_iter().flatten().filter(|field| ends(field));
        early.get(key).into_iter().flatten().chain(late).filter(|field| !race(&key.0.1, field)).cloned().collect()
    };
    let mut found = Vec::new();
    for key in recorded.keys().chain(ours.keys().filter(|key| subjects.contains(&key.0))).collect::<BTreeSet<_>>() {
        let ((at, object), writer) = key;
        for field in fields(&settled, &recorded, key).difference(&fields(&ours, &ours, key)) {
            found.push(format!("{writer} wrote {field} of {at} {object}, here it did not"));
        }
        for field in fields(&begun, &ours, key).difference(&fields(&recorded, &recorded, key)) {
            if !unsettled {
                found.push(format!("{writer} did not write {field} of {at} {object}, here it did"));
            }
        }
    }
    found
}

/// Deployments in the order in which they were scheduled first, where the recording measured it.
fn order(recording: &Recording, stage: &Stage) -> Vec<String> {
    let recorded: Vec<&str> =
        recording.document["facts"]["order"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if recorded.is_empty() {
        return Vec::new();
    }
    let mut real: Vec<String> = Vec::new();
    for line in &stage.log.lock().unwrap().lines {
        let written = line.strip_prefix("host karmada-scheduler PATCH ").and_then(|line| line.split(' ').next());
        let name = written.and_then(|path| path.split("/resourcebindings/").nth(1));
        if let Some(name) = name.and_then(|name| name.strip_suffix("-deployment"))
            && !real.iter().any(|known| known == name)
        {
            real.push(name.to_owned());
        }
    }
    if real == recorded { Vec::new() } else { vec![format!("scheduled in the order {recorded:?}, here {real:?}")] }
}

/// The number of calls of each operation, within a factor of three.
fn calls(recording: &Recording, interpreter: &Interpreter) -> Vec<String> {
    let mut recorded: BTreeMap<String, usize> = BTreeMap::new();
    for call in recording.seen_interpreter_calls() {
        *recorded.entry(call["operation"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    let counts = interpreter.counts();
    let mut found = Vec::new();
    for (operation, number) in &recorded {
        let ours = counts.get(operation).copied().unwrap_or(0);
        if ours * 3 < *number || ours > number * 3 {
            found.push(format!("interpreter: {operation} was asked {number} times, here {ours}"));
        }
    }
    for (operation, ours) in counts {
        if !recorded.contains_key(&operation) {
            found.push(format!("interpreter: {operation} was never asked, here {ours} times"));
        }
    }
    found
}
