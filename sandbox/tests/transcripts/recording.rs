//! A recording, and the states that it says objects were in.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use caldera_sandbox::karmada::eviction::Evictions;
use regex::Regex;
use serde_json::{Value, json};

use crate::{burst, log::subject_name};

/// What happened shows in the watch within so many seconds.
const CUT: f64 = 0.3;

/// Actions that follow each other so closely are one.
const BURST: f64 = 0.1;

/// What one can do to an object.
const VERBS: [&str; 8] =
    ["create", "delete", "update", "replace", "merge-patch", "json-patch", "strategic-merge-patch", "apply-patch"];

/// One object of one server: `host` and `Job.batch/default/x`.
pub type Subject = (String, String);

/// Fields that were written, by object and writer.
pub type Written = BTreeMap<(Subject, String), BTreeSet<String>>;

/// How often a webhook refused, and with what, by path, operation, and namespace and name.
pub type Denials = BTreeMap<(String, String, String), (usize, Value)>;

/// One scenario.
pub struct Recording {
    pub id: String,
    pub document: Value,
}

/// Something somebody did.
pub struct Action {
    pub t: f64,
    pub who: String,
    pub verb: String,
    pub at: String,
    pub object: String,
    pub subresource: String,
    pub body: Option<Value>,
    pub code: u64,
    /// Of a deletion.
    pub propagation: Option<&'static str>,
    /// Of a burst: nobody waited for anything.
    pub hurried: bool,
}

impl Recording {
    pub fn read(file: &Path) -> Self {
        let text = caldera_fixtures::read_text(file);
        let document: Value = serde_json::from_str(&text).unwrap();
        Self { id: document["id"].as_str().unwrap().to_owned(), document }
    }

    fn list(&self, name: &str) -> &[Value] {
        self.document[name].as_array().map_or(&[], Vec::as_slice)
    }

    /// Whether the recording tells of a burst of actions in numbers, rather than to spell them out.
    pub fn has_burst(&self) -> bool {
        let burst = Regex::new(r"\d (bindings|jobs|flips)\b").unwrap();
        let told = |action: &Value| action["who"] == "recorder" && burst.is_match(action["what"].as_str().unwrap());
        self.list("actions").iter().any(told)
    }

    /// What the recorder's webhooks refused, or were not there to allow.
    pub fn denials(&self) -> Denials {
        let named = Regex::new(r#"webhook "recorder-([^."]+)\.[^"]*"(?: denied the request)?: (.*)"#).unwrap();
        let mut denials = Denials::new();
        for write in self.list("writes") {
            let Some(told) = write["response"]["message"].as_str().and_then(|told| named.captures(told)) else {
                continue;
            };
            let Some((_, object)) = write["object"].as_str().and_then(|object| object.split_once('/')) else {
                continue;
            };
            let operation = if write["verb"] == "create" { "CREATE" } else { "UPDATE" };
            let key = (format!("/{}", &told[1]), operation.to_owned(), object.to_owned());
            let code = write["code"].as_u64().unwrap_or(403);
            denials.entry(key).or_insert_with(|| (0, json!({"code": code, "message": told[2]}))).0 += 1;
        }
        denials
    }

    /// Where the watch ended, if it ended before the actions did: nothing later can be compared.
    pub fn cut(&self) -> Option<f64> {
        let last = self.events().last()?["t"].as_f64()?;
        let unseen = self.actions().iter().any(|action| action.verb != "recorder" && action.t > last + CUT);
        unseen.then_some(last)
    }

    pub fn gate(&self, name: &str) -> bool {
        self.document["gates"][name] == true
    }

    /// What karmada-controller-manager was told about evictions.
    pub fn evictions(&self) -> Evictions {
        let default = Evictions::default();
        let flags = &self.document["flags"]["karmada-controller-manager"];
        let flag = |name: &str| {
            let all = flags.as_array().into_iter().flatten().filter_map(Value::as_str);
            all.filter_map(|flag| flag.strip_prefix(name)?.strip_prefix('=')).next_back()
        };
        let seconds = flag("--graceful-eviction-timeout").and_then(|text| {
            let (minutes, seconds) = text.split_once('m').unwrap_or(("0", text));
            let seconds = seconds.trim_end_matches('s');
            Some(minutes.parse::<u64>().ok()? * 60 + if seconds.is_empty() { 0 } else { seconds.parse().ok()? })
        });
        Evictions {
            by_taints: self.gate("Failover") && flag("--enable-no-execute-taint-eviction") == Some("true"),
            directly: flag("--no-execute-taint-eviction-purge-mode") == Some("Directly"),
            timeout: seconds.map_or(default.timeout, Duration::from_secs),
        }
    }

    /// What was done, as far as one can see what came of it.
    pub fn seen_actions(&self) -> Vec<Action> {
        let end = self.cut().unwrap_or(f64::INFINITY);
        self.actions().into_iter().filter(|action| action.t <= end).collect()
    }

    /// What was done, those of a burst as far as their objects were kept.
    pub fn actions(&self) -> Vec<Action> {
        let mut actions = self.told_actions();
        if self.has_burst() {
            let implied = burst::implied_actions(&actions, &self.events());
            actions.extend(implied);
            actions.sort_by(|a, b| a.t.total_cmp(&b.t));
        }
        actions
    }

    fn told_actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for one in self.list("actions") {
            let what = one["what"].as_str().unwrap();
            let mut parts = what.split_whitespace();
            let verb = parts.next().unwrap_or_default();
            let target = parts.next().unwrap_or_default();
            let recorder = one["who"] == "recorder";
            let (at, object) = target.split_once(':').unwrap_or(("", what));
            let known = VERBS.contains(&verb) && matches!(at, "host" | "m1" | "m2");
            let created = what.strip_suffix(" created").filter(|_| recorder);
            let created = created.and_then(|kind| self.list("inputs").iter().find(|input| input["kind"] == kind));
            let created_by_recorder = created.is_some();
            let event = what.ends_with("ed")
                && ["fault ", "webhook configuration ", "karmada-", "kube-controller-manager ", "API server of m"]
                    .iter()
                    .any(|subject| what.starts_with(subject));
            if recorder && !known && !created_by_recorder && !event {
                continue;
            }
            let subresource = parts.next().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let body = match one.get("input").and_then(Value::as_u64) {
                Some(index) => Some(self.list("inputs")[usize::try_from(index).unwrap()].clone()),
                None if verb == "create" && one.get("body").is_none() => {
                    created.or_else(|| self.list("inputs").iter().find(|input| subject_name(input) == object)).cloned()
                }
                None => created.or(one.get("body")).cloned(),
            };
            let (verb, at) = if created_by_recorder {
                ("create", "host")
            } else if known {
                (verb, at)
            } else {
                ("recorder", "")
            };
            let t = one["t"].as_f64().unwrap();
            // How an object was deleted is in the log of writes, a moment later.
            let write = self.list("writes").iter().find(|write| {
                verb == "delete"
                    && write["verb"] == "delete"
                    && write["at"] == at
                    && write["object"] == object
                    && write["t"].as_f64().unwrap() >= t
            });
            let propagation = write.and_then(|write| write["options"]["propagationPolicy"].as_str());
            let propagation = ["Background", "Foreground", "Orphan"].into_iter().find(|one| propagation == Some(one));
            actions.push(Action {
                propagation,
                hurried: false,
                t,
                who: one["who"].as_str().unwrap().to_owned(),
                verb: verb.to_owned(),
                at: at.to_owned(),
                object: if verb == "recorder" { what.to_owned() } else { object.to_owned() },
                subresource: if known { subresource } else { String::new() },
                body,
                code: one["code"].as_u64().unwrap_or(200),
            });
        }
        actions
    }

    /// Watch events of everything but Events, in the order of their times.
    fn events(&self) -> Vec<&Value> {
        let mut events: Vec<&Value> = self
            .list("timeline")
            .iter()
            .filter(|event| !event["object"].as_str().unwrap().starts_with("Event/"))
            .collect();
        events.sort_by(|a, b| a["t"].as_f64().partial_cmp(&b["t"].as_f64()).unwrap());
        events
    }

    /// All objects as they were at a time; those that had gone are `None`.
    pub fn state_before(&self, t: f64) -> BTreeMap<Subject, Option<Value>> {
        let mut states: BTreeMap<Subject, Option<Value>> = BTreeMap::new();
        for event in self.events().into_iter().filter(|event| event["t"].as_f64().unwrap() < t) {
            let subject = (event["at"].as_str().unwrap().to_owned(), event["object"].as_str().unwrap().to_owned());
            match event["event"].as_str().unwrap() {
                "DELETED" => drop(states.insert(subject, None)),
                _ if event.get("value").is_some() => drop(states.insert(subject, Some(event["value"].clone()))),
                _ => {
                    if let Some(Some(state)) = states.get_mut(&subject) {
                        for step in event["diff"].as_array().into_iter().flatten() {
                            apply(state, step);
                        }
                    }
                }
            }
        }
        states
    }

    /// Seconds until the recorder had seen enough.
    pub fn duration(&self) -> f64 {
        self.document["duration_s"].as_f64().unwrap_or_default()
    }

    /// Bindings, by namespace and name, of which the scheduler, from a time until the next action, answered before the
    /// binding controller looked: a change of a template and what it led to came in one write of a Work then. In
    /// Karmada either may be first.
    pub fn scheduler_was_first(&self, t: f64) -> BTreeSet<(String, String)> {
        let next = self.list("actions").iter().filter_map(|action| action["t"].as_f64()).find(|at| *at > t + BURST);
        let until = next.unwrap_or(f64::INFINITY);
        let states = self.state_before(until);
        let mut late = BTreeSet::new();
        for event in self.events().into_iter().filter(|event| (t..until).contains(&event["t"].as_f64().unwrap())) {
            let object = event["object"].as_str().unwrap();
            let steps = event["diff"].as_array().into_iter().flatten();
            let paths: BTreeSet<&str> = steps.filter_map(|step| step["path"].as_str()).collect();
            let together = paths.contains("/spec/workload/manifests/0/spec/replicas")
                && paths.iter().any(|path| path.ends_with("resourcetemplate.karmada.io~1generation"));
            let subject = (event["at"].as_str().unwrap().to_owned(), object.to_owned());
            if let (true, Some(Some(work))) = (together && object.starts_with("Work/"), states.get(&subject)) {
                let marked = |name: &str| {
                    let mark = &work["metadata"]["annotations"][format!("resourcebinding.karmada.io/{name}")];
                    mark.as_str().unwrap_or_default().to_owned()
                };
                late.insert((marked("namespace"), marked("name")));
            }
        }
        late
    }

    /// Seconds since anybody did anything before a time.
    pub fn idle_before(&self, t: f64) -> f64 {
        let actions = self.list("actions").iter().map(|action| action["t"].as_f64().unwrap());
        t - actions.filter(|at| *at < t).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Seconds since anything happened before a time, Events apart.
    pub fn quiet_before(&self, t: f64) -> f64 {
        let events = self.events().into_iter().map(|event| event["t"].as_f64().unwrap());
        let actions = self
            .list("actions")
            .iter()
            .filter(|action| action["who"] != "recorder")
            .map(|action| action["t"].as_f64().unwrap());
        t - events.chain(actions).filter(|at| *at < t).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Whether the recording ends while a deletion is still at work: something that was deleted is there in the end.
    pub fn ends_in_clearing(&self) -> bool {
        let last = self.final_states();
        let deleted = self.actions().into_iter().filter(|action| action.verb == "delete");
        deleted.into_iter().any(|action| last.get(&(action.at, action.object)).is_some_and(Option::is_some))
    }

    /// Whether the clearing away at the end began while things were still being written.
    pub fn clears_unsettled(&self) -> bool {
        let begun = self.clearing_begins();
        self.ends_in_clearing() && begun.is_finite() && self.quiet_before(begun) < CUT
    }

    /// When the clearing away at the end began: what is left to do are deletions.
    pub fn clearing_begins(&self) -> f64 {
        let actions = self.actions();
        let kept = actions.iter().rposition(|action| action.verb != "delete");
        actions.get(kept.map_or(0, |last| last + 1)).map_or(f64::INFINITY, |first| first.t)
    }

    /// What was written before a time, by object and writer: the fields of every change.
    pub fn written_before(&self, until: f64) -> Written {
        let mut written = Written::new();
        for event in self.events().into_iter().filter(|event| event["t"].as_f64().unwrap() < until) {
            let Some(writer) = event["writer"].as_str() else { continue };
            let subject = (event["at"].as_str().unwrap().to_owned(), event["object"].as_str().unwrap().to_owned());
            let fields = written.entry((subject, writer.to_owned())).or_default();
            match event["event"].as_str().unwrap() {
                "ADDED" => drop(fields.insert("(created)".to_owned())),
                "DELETED" => drop(fields.insert("(gone)".to_owned())),
                _ => {
                    for step in event["diff"].as_array().into_iter().flatten() {
                        fields.extend(super::compare::fields(
                            step["path"].as_str().unwrap(),
                            step.get("value").or(step.get("old")),
                        ));
                    }
                }
            }
        }
        written.retain(|_, fields| !fields.is_empty());
        written
    }

    pub fn final_states(&self) -> BTreeMap<Subject, Option<Value>> {
        let state = |one: &Value| one.get("value").cloned();
        self.list("final")
            .iter()
            .map(|one| {
                let subject = (one["at"].as_str().unwrap().to_owned(), one["object"].as_str().unwrap().to_owned());
                (subject, if one["exists"] == false { None } else { state(one) })
            })
            .collect()
    }

    pub fn admission_calls(&self) -> &[Value] {
        self.list("admission_calls")
    }

    pub fn interpreter_calls(&self) -> &[Value] {
        self.list("interpreter_calls")
    }

    /// Those that were made before the watch ended.
    pub fn seen_interpreter_calls(&self) -> impl Iterator<Item = &Value> {
        let end = self.cut().unwrap_or(f64::INFINITY);
        self.interpreter_calls().iter().filter(move |call| call["t"].as_f64().is_none_or(|t| t <= end))
    }

    /// The operation that fails until the fault is removed.
    pub fn fault(&self) -> Option<&str> {
        self.document["facts"]["failing_operation"].as_str()
    }

    /// Whether a call of the interpreter is one that failed.
    pub fn has_failed(&self, call: &Value) -> bool {
        let removed = self.list("actions").iter().find(|action| action["what"] == "fault removed");
        let until = removed.and_then(|action| action["t"].as_f64()).unwrap_or(f64::INFINITY);
        self.fault().is_some_and(|failing| call["operation"] == failing)
            && call["t"].as_f64().is_some_and(|t| t < until)
    }
}

fn apply(state: &mut Value, step: &Value) {
    let path = step["path"].as_str().unwrap();
    let (parent, last) = path.rsplit_once('/').unwrap();
    let key = last.replace("~1", "/").replace("~0", "~");
    if state.pointer(parent).is_none_or(Value::is_null) {
        // A path through something that was not recorded.
        return;
    }
    let parent = state.pointer_mut(parent).unwrap();
    match (parent, step["op"].as_str().unwrap()) {
        (Value::Object(map), "remove") => drop(map.remove(&key)),
        (Value::Object(map), _) => drop(map.insert(key, step["value"].clone())),
        (Value::Array(list), op) => {
            let index: usize = key.parse().unwrap_or(list.len());
            match op {
                "remove" if index < list.len() => drop(list.remove(index)),
                "replace" if index < list.len() => list[index] = step["value"].clone(),
                _ => list.insert(index.min(list.len()), step.get("value").cloned().unwrap_or(json!(null))),
            }
        }
        _ => {}
    }
}
