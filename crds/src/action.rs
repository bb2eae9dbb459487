//! What somebody last did to a workload, a queue, a member, a reservation of an amount, or by a Command or the
//! settings, and who that was: two annotations that the webhook writes when somebody acts, and that the controller
//! keeps a record of.
//!
//! Rule: who acts is whom the API server knows (`userInfo`). Only he can write his name there, with or without the
//! webhook: [`build_action_policy`]. What the webhook is asked about may do without it, so a job whose stamps are the
//! same as before had nothing done to it that is known.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    names::{
        caldera::{
            ACTED_BY, ACTION, CLUSTERS, END_AS, EXCLUDE_CLUSTERS, FORCE_DELETE, HOLD, PAUSED, PREFIX, QUEUE_STATUS,
            SUSPENDED,
        },
        volcano::{CARD_QUOTA, DEFAULT_QUEUE, QUEUE, QUEUE_OLD},
    },
    object::{annotation_of, name_of, read_list_at, read_text_at},
    workload::{
        self, WorkloadKind, annotations,
        submission::{cut_submitter, format_submit_time},
    },
};

/// The annotations that the webhook writes.
pub const ACTION_STAMPS: [&str; 2] = [ACTED_BY, ACTION];
/// Annotations by which users act on workloads.
pub const WORKLOAD_ACTIONS: [&str; 7] = [HOLD, SUSPENDED, END_AS, CLUSTERS, EXCLUDE_CLUSTERS, QUEUE, QUEUE_OLD];
/// The ConfigMap by which an admin changes the controller's settings.
pub const SETTINGS: &str = "caldera-settings";
/// The taint of a cordon.
const CORDON: &str = "cluster.karmada.io/unschedulable";
/// Taints that Karmada itself puts on members.
const KARMADA_TAINTS: [&str; 3] =
    ["cluster.karmada.io/not-ready", "cluster.karmada.io/unreachable", "cluster.karmada.io/terminating"];
/// Characters of what was done, and of a value in it, at most.
const MOST_SAID: usize = 400;
const MOST_OF_VALUE: usize = 120;

/// What somebody did last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// When.
    pub at: Timestamp,
    /// Who, as the API server knows them.
    pub by: String,
    /// What.
    pub did: String,
}

impl Action {
    /// Reads the stamps of an object, by its annotations.
    #[must_use]
    pub fn read<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let said: Value = serde_json::from_str(annotation(ACTION)?).ok()?;
        let by = cut_submitter(annotation(ACTED_BY)?);
        let (at, did) = (said["at"].as_str()?.parse().ok()?, shorten(said["did"].as_str()?, MOST_SAID));
        (!by.is_empty() && !did.is_empty()).then_some(Self { at, by, did })
    }

    /// The stamps of an object.
    #[must_use]
    pub fn of_object(object: &Value) -> Option<Self> {
        Self::read(|name| annotation_of(object, name))
    }

    /// The value of each stamp.
    #[must_use]
    pub fn to_stamps(&self) -> [(&'static str, Value); 2] {
        let said = json!({"at": format_submit_time(self.at), "did": self.did});
        [(ACTED_BY, self.by.as_str().into()), (ACTION, said.to_string().into())]
    }
}

fn shorten(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// What a request does, if it is something to record; `old` is what there was before.
#[must_use]
pub fn describe_action(old: Option<&Value>, new: &Value) -> Option<String> {
    let done = match (read_text_at(new, "/kind"), old) {
        ("Command", None) => vec![describe_command(new)],
        ("Command", Some(_)) => Vec::new(),
        ("ConfigMap", _) => list_changed_members("settings", old.map(|old| &old["data"]), &new["data"]),
        ("Cluster", Some(old)) => describe_cluster_change(old, new),
        ("Queue", None) => vec!["created".to_owned()],
        ("Queue", Some(old)) => describe_queue_change(old, new),
        ("CapacityReservation", _) => {
            let created = old.is_none().then(|| "created".to_owned());
            created.into_iter().chain(list_changed_members("", old.map(|old| &old["spec"]), &new["spec"])).collect()
        }
        (_, Some(old)) => match WorkloadKind::of_object(new) {
            Some(kind) => describe_workload_change(kind, old, new),
            None => Vec::new(),
        },
        (_, None) => Vec::new(),
    };
    (!done.is_empty()).then(|| shorten(&done.join("; "), MOST_SAID))
}

fn describe_command(command: &Value) -> String {
    let text = |pointer: &str| shorten(read_text_at(command, pointer), MOST_OF_VALUE);
    format!("{} of {} {}", text("/action"), text("/target/kind"), text("/target/name"))
}

fn describe_workload_change(kind: WorkloadKind, old: &Value, new: &Value) -> Vec<String> {
    let mut done = Vec::new();
    let mut note = |before: bool, now: bool, begins: &str, ends: &str| {
        done.extend((before != now).then(|| if now { begins } else { ends }.to_owned()));
    };
    let is_suspended =
        |object: &Value| annotations::is_suspended(object) || kind.find_suspending_field(object).is_some();
    note(annotations::is_held(old), annotations::is_held(new), "held", "released");
    note(is_suspended(old), is_suspended(new), "suspended", "resumed");
    for (name, verb) in [(END_AS, "ended as"), (CLUSTERS, "moved to"), (EXCLUDE_CLUSTERS, "moved away from")] {
        let (before, now) = (annotation_of(old, name), annotation_of(new, name));
        done.extend((before != now).then(|| format!("{verb} {}", shorten(now.unwrap_or("nothing"), MOST_OF_VALUE))));
    }
    let (before, now) = (workload::queue_of(old), workload::queue_of(new));
    done.extend((before != now).then(|| format!("moved to queue {}", shorten(now.as_str(), MOST_OF_VALUE))));
    let (before, now) = (workload::priority_class_of(old), workload::priority_class_of(new));
    done.extend((before != now).then(|| format!("gave priority class {}", shorten(now, MOST_OF_VALUE))));
    if kind == WorkloadKind::VolcanoJob {
        done.extend(list_resizes(old, new));
    }
    done
}

/// Tasks that have other replicas than before, and another minimum of the whole.
fn list_resizes(old: &Value, new: &Value) -> Vec<String> {
    let tasks = read_list_at(new, "/spec/tasks").iter().zip(read_list_at(old, "/spec/tasks"));
    let resized = tasks.filter(|(now, before)| now["replicas"] != before["replicas"]).map(|(now, before)| {
        let name = shorten(now["name"].as_str().unwrap_or_default(), MOST_OF_VALUE);
        format!("resized {name} from {} to {}", before["replicas"], now["replicas"])
    });
    let minimum = |object: &Value| object["spec"]["minAvailable"].clone();
    let least = (minimum(old) != minimum(new)).then(|| format!("set minAvailable to {}", minimum(new)));
    resized.chain(least).collect()
}

fn describe_queue_change(old: &Value, new: &Value) -> Vec<String> {
    let mut done = list_changed_members("", Some(&old["spec"]), &new["spec"]);
    let is_reported = |name: &str| {
        (name.starts_with(PREFIX) || name == CARD_QUOTA)
            && ![QUEUE_STATUS, ACTED_BY, ACTION, PAUSED, FORCE_DELETE].contains(&name)
    };
    done.extend(list_changed_annotations(old, new, is_reported));
    let paused = |queue: &Value| annotation_of(queue, PAUSED).map(|why| shorten(why, MOST_OF_VALUE));
    if name_of(new) == DEFAULT_QUEUE && paused(old) != paused(new) {
        done.push(
            paused(new).map_or_else(|| "unpaused the fleet".to_owned(), |why| format!("paused the fleet: {why}")),
        );
    }
    let is_forced = |queue: &Value| annotation_of(queue, FORCE_DELETE) == Some("true");
    done.extend((is_forced(new) && !is_forced(old)).then(|| "allowed the deletion while it is used".to_owned()));
    done
}

fn describe_cluster_change(old: &Value, new: &Value) -> Vec<String> {
    let list_taints = |cluster: &Value| -> BTreeSet<String> {
        let taints = read_list_at(cluster, "/spec/taints").iter();
        let of_admins = taints.filter(|taint| !KARMADA_TAINTS.contains(&read_text_at(taint, "/key")));
        let word = |taint: &Value| match (read_text_at(taint, "/key"), read_text_at(taint, "/effect")) {
            (CORDON, "NoSchedule") => String::new(),
            (key, effect) => format!("taint {key}:{effect}"),
        };
        of_admins.map(word).collect()
    };
    let (before, now) = (list_taints(old), list_taints(new));
    let others = |taints: &BTreeSet<String>, than: &BTreeSet<String>, verb: &str| -> Vec<String> {
        let changed = taints.difference(than).filter(|taint| !taint.is_empty());
        changed.map(|taint| format!("{verb} {taint}")).collect()
    };
    let mut done = others(&now, &before, "set");
    done.extend(others(&before, &now, "took off"));
    match (before.contains(""), now.contains("")) {
        (false, true) => done.push("cordoned".to_owned()),
        (true, false) => done.push("uncordoned".to_owned()),
        _ => {}
    }
    done.extend(list_changed_annotations(old, new, |name| name.starts_with(PREFIX) && !ACTION_STAMPS.contains(&name)));
    done
}

/// Which annotations of these are other ones.
fn list_changed_annotations(old: &Value, new: &Value, is_reported: impl Fn(&str) -> bool) -> Vec<String> {
    let reported = |object: &Value| -> Value {
        let all = object["metadata"]["annotations"].as_object();
        let all = all.into_iter().flatten().filter(|(name, _)| is_reported(name));
        all.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>().into()
    };
    list_changed_members("", Some(&reported(old)), &reported(new))
}

/// Which members of an object are other ones, each with what it is now.
fn list_changed_members(what: &str, old: Option<&Value>, new: &Value) -> Vec<String> {
    let members = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
    let (before, now) = (members(old), members(Some(new)));
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let changed = names.into_iter().filter(|name| before.get(*name) != now.get(*name));
    let space = if what.is_empty() { "" } else { " " };
    let say = |name: &String| match now.get(name) {
        Some(Value::String(text)) => format!("set {what}{space}{name} to {}", shorten(text, MOST_OF_VALUE)),
        Some(value) => format!("set {what}{space}{name} to {}", shorten(&value.to_string(), MOST_OF_VALUE)),
        None => format!("took {what}{space}{name} away"),
    };
    changed.map(say).collect()
}

/// The policy that nobody writes another one's name into the stamps, with its binding.
#[must_use]
pub fn build_action_policy() -> [Value; 2] {
    let name = "actions.caldera.dev";
    let rule = |group: &str, version: &str, plural: &str| {
        json!({
            "apiGroups": [group], "apiVersions": [version], "operations": ["CREATE", "UPDATE"], "resources": [plural],
        })
    };
    let workloads = WorkloadKind::list_all().map(|kind| {
        let resource = kind.api_resource();
        rule(&resource.group, &resource.version, &resource.plural)
    });
    let rules = workloads.chain([
        rule("scheduling.volcano.sh", "v1beta1", "queues"),
        rule("bus.volcano.sh", "v1alpha1", "commands"),
        rule("cluster.karmada.io", "v1alpha1", "clusters"),
        rule("federation.caldera.dev", "v1alpha1", "capacityreservations"),
        rule("", "v1", "configmaps"),
    ]);
    let annotations =
        |of: &str| format!("{of} != null && has({of}.metadata.annotations) ? {of}.metadata.annotations : {{}}");
    let variable = |name: &str, expression: String| json!({"name": name, "expression": expression});
    let is_stamped = format!(
        "has(object.metadata.annotations) && ['{ACTED_BY}', '{ACTION}'].exists(a, a in object.metadata.annotations)"
    );
    let same = format!(
        "['{ACTED_BY}', '{ACTION}'].all(a, !(a in variables.now) || a in variables.before && variables.now[a] == \
         variables.before[a])"
    );
    let own = format!("'{ACTED_BY}' in variables.now && variables.now['{ACTED_BY}'] == request.userInfo.username");
    let metadata = json!({"name": name, "labels": {"app.kubernetes.io/part-of": "caldera"}});
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": rules.collect::<Vec<_>>()},
                "matchConditions": [{"name": "stamped", "expression": is_stamped}],
                "variables": [variable("now", annotations("object")), variable("before", annotations("oldObject"))],
                "validations": [{
                    "expression": format!("{same} || {own}"),
                    "message": format!("annotations {ACTED_BY} and {ACTION} say who did what: nobody writes another's name"),
                    "reason": "Forbidden",
                }],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata, "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(annotations: Value, spec: Value) -> Value {
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"namespace": "ns", "name": "j", "annotations": annotations}, "spec": spec,
        })
    }

    fn done(old: &Value, new: &Value) -> String {
        describe_action(Some(old), new).unwrap_or_default()
    }

    #[test]
    fn what_a_user_does_to_a_job_is_told_in_words() {
        let tasks = |worker: u32| json!({"queue": "q", "tasks": [{"name": "worker", "replicas": worker}]});
        let plain = job(json!({}), tasks(4));
        assert_eq!(done(&plain, &job(json!({HOLD: "true"}), tasks(4))), "held");
        assert_eq!(done(&job(json!({HOLD: "true"}), tasks(4)), &plain), "released");
        assert_eq!(done(&plain, &job(json!({SUSPENDED: "true"}), tasks(4))), "suspended");
        assert_eq!(done(&plain, &job(json!({CLUSTERS: "m1"}), tasks(6))), "moved to m1; resized worker from 4 to 6");
        assert_eq!(done(&job(json!({EXCLUDE_CLUSTERS: "m1"}), tasks(4)), &plain), "moved away from nothing");
        let mut moved = plain.clone();
        moved["spec"]["queue"] = "other".into();
        assert_eq!(done(&plain, &moved), "moved to queue other");
        let mut labelled = plain.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(describe_action(Some(&plain), &labelled), None);
        assert_eq!(describe_action(None, &plain), None, "who submitted it is told elsewhere");
    }

    #[test]
    fn what_is_kept_and_how_that_is_changed_is_told_in_words() {
        let kept =
            |cpu: &str| json!({"kind": "CapacityReservation", "spec": {"amounts": {"cpu": cpu}, "queues": ["ops"]}});
        let created = describe_action(None, &kept("60")).unwrap();
        assert_eq!(created, r#"created; set amounts to {"cpu":"60"}; set queues to ["ops"]"#);
        assert_eq!(done(&kept("60"), &kept("20")), r#"set amounts to {"cpu":"20"}"#);
        assert_eq!(describe_action(Some(&kept("60")), &kept("60")), None);
    }

    #[test]
    fn what_an_admin_does_to_queues_members_and_settings_is_told_in_words() {
        let queue = |name: &str, annotations: Value, spec: Value| json!({"kind": "Queue", "metadata": {"name": name, "annotations": annotations}, "spec": spec});
        let old = queue("default", json!({QUEUE_STATUS: "x"}), json!({"weight": 1}));
        assert_eq!(
            done(&old, &queue("default", json!({PAUSED: "fire"}), json!({"weight": 1}))),
            "paused the fleet: fire"
        );
        let wide = queue("q", json!({}), json!({"weight": 1, "capability": {"cpu": "8"}}));
        assert_eq!(
            done(&queue("q", json!({}), json!({"weight": 2})), &wide),
            "set capability to {\"cpu\":\"8\"}; set weight to 1"
        );
        assert_eq!(describe_action(Some(&old), &queue("default", json!({}), json!({"weight": 1}))), None);

        let cluster = |taints: Value, annotations: Value| json!({"kind": "Cluster", "metadata": {"name": "m1", "annotations": annotations}, "spec": {"taints": taints}});
        let plain = cluster(json!([]), json!({}));
        let cordon = json!({"key": CORDON, "effect": "NoSchedule"});
        let lost = json!({"key": "cluster.karmada.io/not-ready", "effect": "NoExecute"});
        assert_eq!(done(&plain, &cluster(json!([cordon]), json!({}))), "cordoned");
        assert_eq!(done(&cluster(json!([cordon]), json!({})), &plain), "uncordoned");
        assert_eq!(describe_action(Some(&plain), &cluster(json!([lost]), json!({}))), None, "Karmada's own");
        let fenced = cluster(json!([]), json!({"caldera.dev/fenced-at": "2026-11-27T08:00:00Z"}));
        assert_eq!(done(&plain, &fenced), "set caldera.dev/fenced-at to 2026-11-27T08:00:00Z");

        let settings = |data: Value| json!({"kind": "ConfigMap", "metadata": {"name": SETTINGS}, "data": data});
        assert_eq!(
            describe_action(None, &settings(json!({"order": "fifo"}))).as_deref(),
            Some("set settings order to fifo")
        );
        assert_eq!(done(&settings(json!({"order": "fifo"})), &settings(json!({}))), "took settings order away");
        let command = json!({"kind": "Command", "action": "CloseQueue", "target": {"kind": "Queue", "name": "q"}});
        assert_eq!(describe_action(None, &command).as_deref(), Some("CloseQueue of Queue q"));
    }

    #[test]
    fn stamps_are_read_as_they_were_written_and_bounded() {
        let action =
            Action { at: "2026-11-27T08:00:00.000123Z".parse().unwrap(), by: "ada".into(), did: "held".into() };
        let stamped = |action: &Action| {
            json!({"metadata": {"annotations": Map::from_iter(
            action.to_stamps().map(|(name, value)| (name.to_owned(), value)))}})
        };
        assert_eq!(Action::of_object(&stamped(&action)), Some(action.clone()));
        let long = Action { by: "é".repeat(100_000), did: "x".repeat(100_000), ..action };
        let read = Action::of_object(&stamped(&long)).unwrap();
        assert_eq!((read.by.chars().count(), read.did.len()), (128, MOST_SAID));
        for wrong in [json!({}), json!({ACTED_BY: "ada", ACTION: "held"}), json!({ACTED_BY: "", ACTION: "{}"})] {
            assert_eq!(Action::of_object(&json!({"metadata": {"annotations": wrong}})), None);
        }
        let value = "v".repeat(10_000);
        let data = Map::from_iter((0..100).map(|at| (format!("key{at}"), Value::from(value.as_str()))));
        let said = describe_action(None, &json!({"kind": "ConfigMap", "data": data})).unwrap();
        assert_eq!(said.len(), MOST_SAID);
    }
}
