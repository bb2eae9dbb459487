//! The cells of the built-in kinds, one function per kind (`print<Kind>` in `pkg/printers/internalversion/printers.go`).

macro_rules! cells {
    ($($cell:expr),+ $(,)?) => { vec![$(Value::from($cell)),+] };
}

mod cluster;
mod network;
mod pod;
mod storage;
mod workloads;

use jiff::Timestamp;
use serde_json::Value;

use super::age::{human, since};

pub use cluster::*;
pub use network::*;
pub use pod::*;
pub use storage::*;
pub use workloads::*;

/// From an object and the present time to its cells, in the order of the kind's columns.
pub type Cells = fn(&Value, Timestamp) -> Vec<Value>;

const NONE: &str = "<none>";
const UNSET: &str = "<unset>";
const UNKNOWN: &str = "<unknown>";

fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(object, |v, part| v.get(part)).filter(|v| !v.is_null())
}

fn text(object: &Value, path: &str) -> String {
    match at(object, path) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn text_or(object: &Value, path: &str, otherwise: &str) -> String {
    Some(text(object, path)).filter(|t| !t.is_empty()).unwrap_or_else(|| otherwise.to_owned())
}

fn number(object: &Value, path: &str) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or(0)
}

fn list<'v>(object: &'v Value, path: &str) -> &'v [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn count(object: &Value, path: &str) -> usize {
    match at(object, path) {
        Some(Value::Array(list)) => list.len(),
        Some(Value::Object(members)) => members.len(),
        _ => 0,
    }
}

fn name(object: &Value) -> String {
    text(object, "metadata.name")
}

fn age(object: &Value, now: Timestamp) -> String {
    since(at(object, "metadata.creationTimestamp"), now)
}

fn joined(parts: &[String], otherwise: &str) -> String {
    if parts.is_empty() { otherwise.to_owned() } else { parts.join(",") }
}

/// `a=1,b=2`; `<none>` when there are none.
fn labels(object: &Value, path: &str) -> String {
    let members = at(object, path).and_then(Value::as_object);
    let pairs = members.into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()));
    joined(&pairs.collect::<Vec<_>>(), NONE)
}

/// A `metav1.LabelSelector` as `kubectl` writes it.
fn selector(object: &Value, path: &str) -> String {
    let Some(value) = at(object, path) else { return NONE.into() };
    let members = value.get("matchLabels").and_then(Value::as_object);
    let mut parts: Vec<(String, String)> = members
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.clone(), format!("{k}={}", v.as_str().unwrap_or_default())))
        .collect();
    for requirement in list(value, "matchExpressions") {
        let key = text(requirement, "key");
        let values: Vec<String> =
            list(requirement, "values").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let shown = match text(requirement, "operator").as_str() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.clone(),
            _ => format!("!{key}"),
        };
        parts.push((key, shown));
    }
    parts.sort();
    joined(&parts.into_iter().map(|(_, shown)| shown).collect::<Vec<_>>(), NONE)
}

/// Names and images of a template's containers.
fn containers(object: &Value, path: &str) -> (String, String) {
    let of = |key: &str| -> String { list(object, path).iter().map(|c| text(c, key)).collect::<Vec<_>>().join(",") };
    (of("name"), of("image"))
}

pub fn name_and_created(o: &Value, _now: Timestamp) -> Vec<Value> {
    cells![name(o), text(o, "metadata.creationTimestamp")]
}

pub fn config_map(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), count(o, "data") + count(o, "binaryData"), age(o, now)]
}

fn phase(o: &Value) -> String {
    if at(o, "metadata.deletionTimestamp").is_some() { "Terminating".into() } else { text(o, "status.phase") }
}

pub fn secret(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), text(o, "type"), count(o, "data"), age(o, now)]
}

pub fn service_account(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), count(o, "secrets"), age(o, now)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(cells: Cells, object: &Value) -> Vec<Value> {
        cells(object, "2024-01-01T00:01:00Z".parse().unwrap())
    }

    #[test]
    fn a_pod_shows_the_state_of_its_containers() {
        let running = json!({
            "metadata": {"name": "b", "creationTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "main"}], "nodeName": "n1"},
            "status": {"phase": "Running", "podIP": "10.1.1.1", "containerStatuses": [
                {"name": "main", "ready": true, "restartCount": 2, "state": {"running": {}}}]},
        });
        let shown = json!(["b", "1/1", "Running", "2", "60s", "10.1.1.1", "n1", "<none>", "<none>"]);
        assert_eq!(Value::from(row(pod, &running)), shown);
        let mut failing = running;
        failing["status"]["containerStatuses"][0] =
            json!({"name": "main", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 3}}});
        let cells = row(pod, &failing);
        assert_eq!((&cells[1], &cells[2]), (&json!("0/1"), &json!("ExitCode:3")));
    }

    #[test]
    fn an_init_container_holds_the_pod_up() {
        let starting = json!({
            "spec": {"containers": [{"name": "main"}], "initContainers": [{"name": "i"}, {"name": "j"}]},
            "status": {"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 0}}}, {"name": "j", "state": {"running": {}}}]},
        });
        assert_eq!(row(pod, &starting)[2], json!("Init:1/2"));
    }
}
