//! The cells of the built-in kinds, one function per kind (`print<Kind>` in
//! `pkg/printers/internalversion/printers.go`).

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

use super::age::{age_since, human_duration};

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

fn value_at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(object, |v, part| v.get(part)).filter(|v| !v.is_null())
}

fn text_at(object: &Value, path: &str) -> String {
    match value_at(object, path) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn text_or(object: &Value, path: &str, otherwise: &str) -> String {
    Some(text_at(object, path)).filter(|t| !t.is_empty()).unwrap_or_else(|| otherwise.to_owned())
}

fn number_at(object: &Value, path: &str) -> i64 {
    value_at(object, path).and_then(Value::as_i64).unwrap_or(0)
}

fn list_at<'v>(object: &'v Value, path: &str) -> &'v [Value] {
    value_at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn count_at(object: &Value, path: &str) -> usize {
    match value_at(object, path) {
        Some(Value::Array(list)) => list.len(),
        Some(Value::Object(members)) => members.len(),
        _ => 0,
    }
}

fn name_cell(object: &Value) -> String {
    text_at(object, "metadata.name")
}

fn age_cell(object: &Value, now: Timestamp) -> String {
    age_since(value_at(object, "metadata.creationTimestamp"), now)
}

fn join_or(parts: &[String], otherwise: &str) -> String {
    if parts.is_empty() { otherwise.to_owned() } else { parts.join(",") }
}

/// `a=1,b=2`; `<none>` when there are none.
fn label_cell(object: &Value, path: &str) -> String {
    let members = value_at(object, path).and_then(Value::as_object);
    let pairs = members.into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()));
    join_or(&pairs.collect::<Vec<_>>(), NONE)
}

/// A `metav1.LabelSelector` as `kubectl` writes it.
fn selector_cell(object: &Value, path: &str) -> String {
    let Some(value) = value_at(object, path) else { return NONE.into() };
    let members = value.get("matchLabels").and_then(Value::as_object);
    let mut parts: Vec<(String, String)> = members
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.clone(), format!("{k}={}", v.as_str().unwrap_or_default())))
        .collect();
    for requirement in list_at(value, "matchExpressions") {
        let key = text_at(requirement, "key");
        let values: Vec<String> =
            list_at(requirement, "values").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let shown = match text_at(requirement, "operator").as_str() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.clone(),
            _ => format!("!{key}"),
        };
        parts.push((key, shown));
    }
    parts.sort();
    join_or(&parts.into_iter().map(|(_, shown)| shown).collect::<Vec<_>>(), NONE)
}

/// Names and images of a template's containers.
fn container_cells(object: &Value, path: &str) -> (String, String) {
    let of =
        |key: &str| -> String { list_at(object, path).iter().map(|c| text_at(c, key)).collect::<Vec<_>>().join(",") };
    (of("name"), of("image"))
}

pub fn name_and_created(o: &Value, _now: Timestamp) -> Vec<Value> {
    cells![name_cell(o), text_at(o, "metadata.creationTimestamp")]
}

pub fn config_map(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name_cell(o), count_at(o, "data") + count_at(o, "binaryData"), age_cell(o, now)]
}

fn phase_cell(o: &Value) -> String {
    if value_at(o, "metadata.deletionTimestamp").is_some() { "Terminating".into() } else { text_at(o, "status.phase") }
}

pub fn print_secret(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name_cell(o), text_at(o, "type"), count_at(o, "data"), age_cell(o, now)]
}

pub fn resource_claim(o: &Value, now: Timestamp) -> Vec<Value> {
    let is_there =
        |pointer: &str| o.pointer(pointer).is_some_and(|value| value.as_array().is_none_or(|all| !all.is_empty()));
    let said = [
        ("/metadata/deletionTimestamp", "deleted"),
        ("/status/allocation", "allocated"),
        ("/status/reservedFor", "reserved"),
    ];
    let mut state: Vec<&str> =
        said.into_iter().filter(|(pointer, _)| is_there(pointer)).map(|(_, word)| word).collect();
    if !state.contains(&"allocated") {
        state.push("pending");
    }
    cells![name_cell(o), state.join(","), age_cell(o, now)]
}

pub fn resource_slice(o: &Value, now: Timestamp) -> Vec<Value> {
    let text = |pointer: &str| o.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let node = Some(text("/spec/nodeName")).filter(|node| !node.is_empty()).unwrap_or_else(|| "<unset>".to_owned());
    cells![name_cell(o), node, text("/spec/driver"), text("/spec/pool/name"), age_cell(o, now)]
}

pub fn service_account(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name_cell(o), age_cell(o, now)]
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
        assert_eq!(Value::from(row(print_pod, &running)), shown);
        let mut failing = running;
        failing["status"]["containerStatuses"][0] =
            json!({"name": "main", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 3}}});
        let cells = row(print_pod, &failing);
        assert_eq!((&cells[1], &cells[2]), (&json!("0/1"), &json!("ExitCode:3")));
    }

    #[test]
    fn an_init_container_holds_the_pod_up() {
        let starting = json!({
            "spec": {"containers": [{"name": "main"}], "initContainers": [{"name": "i"}, {"name": "j"}]},
            "status": {"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 0}}}, {"name": "j", "state": {"running": {}}}]},
        });
        assert_eq!(row(print_pod, &starting)[2], json!("Init:1/2"));
    }
}
