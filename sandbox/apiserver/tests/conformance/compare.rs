//! Walks a recorded answer and the actual one together. Every difference has a path and a grade:
//! A (must hold), B (message texts), C (optional: exact managedFields, content types of errors and so on).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::bind::Bindings;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Grade {
    C,
    B,
    A,
}

#[derive(Clone, Debug)]
pub struct Diff {
    pub grade: Grade,
    pub place: String,
    pub golden: String,
    pub actual: String,
}

/// Texts that the Go libraries produce: not held against another implementation.
const GO_TEXTS: [&str; 10] = [
    "json:",
    "Go struct field",
    "Go value",
    "looking for beginning of",
    "strconv.",
    "parsing time",
    "registered for",
    "StorageError",
    "dial tcp",
    "Syntax error",
];

pub struct Compare<'a> {
    pub bindings: &'a mut Bindings,
    pub diffs: Vec<Diff>,
}

/// Where the walk is: what encloses the value decides about grades and set semantics.
#[derive(Clone)]
struct At {
    path: String,
    /// The best grade a difference here can have.
    cap: Grade,
    inside_status: bool,
}

impl At {
    fn member(&self, key: &str) -> At {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        At { path, ..self.clone() }
    }
    fn element(&self, i: usize) -> At {
        At { path: format!("{}[{i}]", self.path), ..self.clone() }
    }
}

impl<'a> Compare<'a> {
    pub fn new(bindings: &'a mut Bindings) -> Self {
        Compare { bindings, diffs: Vec::new() }
    }

    pub fn body(&mut self, place: &str, cap: Grade, golden: &Value, actual: &Value) {
        let at = At { path: place.to_owned(), cap, inside_status: false };
        self.value(&at, golden, actual);
    }

    pub fn note(&mut self, grade: Grade, place: &str, golden: impl Into<String>, actual: impl Into<String>) {
        self.diffs.push(Diff { grade, place: place.to_owned(), golden: golden.into(), actual: actual.into() });
    }

    fn differ(&mut self, at: &At, golden: &Value, actual: &Value, why: &str) {
        let shown = if why == "differs" || why.is_empty() { show(actual) } else { format!("{} ({why})", show(actual)) };
        self.note(at.cap, &at.path, show(golden), shown);
    }

    fn value(&mut self, at: &At, golden: &Value, actual: &Value) {
        match (golden, actual) {
            (Value::Object(g), Value::Object(a)) => self.object(at, g, a),
            (Value::Array(g), Value::Array(a)) => self.list(at, g, a),
            (Value::String(g), Value::String(a)) => {
                if let Err(why) = self.bindings.matches(g, a) {
                    self.differ(at, golden, actual, &why);
                }
            }
            _ if golden == actual => {}
            _ => self.differ(at, golden, actual, ""),
        }
    }

    fn object(&mut self, at: &At, golden: &Map<String, Value>, actual: &Map<String, Value>) {
        let kind = golden.get("kind").and_then(Value::as_str).unwrap_or("");
        let is_status = kind == "Status" && golden.contains_key("status") && golden.contains_key("metadata");
        let at = &At { inside_status: at.inside_status || is_status, ..at.clone() };
        let mut taken = Vec::new();
        for (key, g) in golden {
            let found = actual.get_key_value(key).or_else(|| self.key_like(key, actual));
            let child = self.at_member(at, kind, key);
            match found {
                Some((k, a)) => {
                    taken.push(k.clone());
                    self.member(&child, kind, key, g, a, golden, actual);
                }
                None => self.note(child.cap, &child.path, show(g), "(absent)"),
            }
        }
        for (key, a) in actual {
            // Descriptions of columns are prose of the API's documentation: the recordings leave them out.
            let left_out = key == "description" && at.path.contains("columnDefinitions");
            if !taken.contains(key) && !left_out {
                let child = self.at_member(at, kind, key);
                self.note(child.cap, &child.path, "(absent)", show(a));
            }
        }
    }

    /// A key with a placeholder in it, such as `k:{"uid":"<uid:1>"}`.
    fn key_like<'m>(&mut self, key: &str, actual: &'m Map<String, Value>) -> Option<(&'m String, &'m Value)> {
        if !key.contains('<') {
            return None;
        }
        actual.iter().find(|(k, _)| {
            let mut trial = self.bindings.clone();
            let matched = trial.matches(key, k).is_ok();
            if matched {
                *self.bindings = trial;
            }
            matched
        })
    }

    fn at_member(&self, at: &At, kind: &str, key: &str) -> At {
        let mut child = at.member(key);
        let optional = key == "managedFields"
            || key.starts_with("metadata/managedFields")
            || key == "storageVersionHash"
            || (key == "description" && at.path.contains("columnDefinitions"));
        if optional {
            child.cap = child.cap.min(Grade::C);
        } else if key == "message" && (at.inside_status || at.path.contains("conditions[") || kind == "Status") {
            child.cap = child.cap.min(Grade::B);
        }
        child
    }

    #[expect(clippy::too_many_arguments, reason = "the parents decide how the member is compared")]
    fn member(
        &mut self,
        at: &At,
        kind: &str,
        key: &str,
        golden: &Value,
        actual: &Value,
        golden_parent: &Map<String, Value>,
        actual_parent: &Map<String, Value>,
    ) {
        if key == "managedFields"
            && let (Value::Array(g), Value::Array(a)) = (golden, actual)
        {
            return self.keyed_set(at, g, a, &["operation", "manager", "apiVersion", "subresource"]);
        }
        if key == "conditions"
            && at.path.contains("status")
            && is_crd_condition_list(golden)
            && let (Value::Array(g), Value::Array(a)) = (golden, actual)
        {
            return self.keyed_set(at, g, a, &["type"]);
        }
        if key == "resources"
            && kind == "APIResourceList"
            && let (Value::Array(g), Value::Array(a)) = (golden, actual)
        {
            return self.keyed_set(at, g, a, &["name"]);
        }
        if key == "causes"
            && at.inside_status
            && let (Value::Array(g), Value::Array(a)) = (golden, actual)
        {
            return self.multiset(at, g, a);
        }
        if key == "message" && at.inside_status {
            return self.message(at, golden, actual, golden_parent, actual_parent);
        }
        self.value(at, golden, actual);
    }

    fn message(
        &mut self,
        at: &At,
        golden: &Value,
        actual: &Value,
        golden_parent: &Map<String, Value>,
        actual_parent: &Map<String, Value>,
    ) {
        let (Value::String(g), Value::String(a)) = (golden, actual) else {
            return self.value(at, golden, actual);
        };
        if GO_TEXTS.iter().any(|t| g.contains(t)) {
            return;
        }
        if self.bindings.matches(g, a).is_ok() {
            return;
        }
        if same_entries(g, a, golden_parent, actual_parent) {
            return;
        }
        self.differ(at, golden, actual, "");
    }

    fn list(&mut self, at: &At, golden: &[Value], actual: &[Value]) {
        if golden.len() != actual.len() {
            self.note(
                at.cap,
                &at.path,
                format!("{} elements {}", golden.len(), names(golden)),
                format!("{} elements {}", actual.len(), names(actual)),
            );
        }
        for (i, (g, a)) in golden.iter().zip(actual).enumerate() {
            self.value(&at.element(i), g, a);
        }
    }

    fn keyed_set(&mut self, at: &At, golden: &[Value], actual: &[Value], keys: &[&str]) {
        let key_of = |v: &Value| -> String {
            keys.iter().map(|k| v.get(*k).and_then(Value::as_str).unwrap_or("-")).collect::<Vec<_>>().join("/")
        };
        let mut left: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        for a in actual {
            left.entry(key_of(a)).or_default().push(a);
        }
        for g in golden {
            let key = key_of(g);
            let child = At { path: format!("{}[{key}]", at.path), ..at.clone() };
            match left.get_mut(&key).and_then(|list| if list.is_empty() { None } else { Some(list.remove(0)) }) {
                Some(a) => self.value(&child, g, a),
                None => self.note(child.cap, &child.path, show(g), "(absent)"),
            }
        }
        for (key, rest) in left {
            for a in rest {
                self.note(at.cap, &format!("{}[{key}]", at.path), "(absent)", show(a));
            }
        }
    }

    fn multiset(&mut self, at: &At, golden: &[Value], actual: &[Value]) {
        let mut left: Vec<&Value> = actual.iter().collect();
        let mut unmatched = Vec::new();
        for g in golden {
            let found = left.iter().position(|a| self.equal(at, g, a));
            match found {
                Some(i) => drop(left.remove(i)),
                None => unmatched.push(g),
            }
        }
        for (i, g) in unmatched.into_iter().enumerate() {
            let child = at.element(i);
            // Pair by field, so that a difference in the text alone counts as such.
            let same_field =
                left.iter().position(|a| a.get("field") == g.get("field") && a.get("reason") == g.get("reason"));
            match same_field {
                Some(i) => {
                    let a = left.remove(i);
                    self.value(&child, g, a);
                    self.regrade_cause(&child);
                }
                None => self.note(child.cap, &child.path, show(g), "(absent)"),
            }
        }
        for a in left {
            self.note(at.cap, &at.path, "(absent)", show(a));
        }
    }

    fn regrade_cause(&mut self, at: &At) {
        let prefix = format!("{}.message", at.path);
        self.diffs.retain(|d| d.place != prefix || !GO_TEXTS.iter().any(|t| d.golden.contains(t)));
    }

    fn equal(&mut self, at: &At, golden: &Value, actual: &Value) -> bool {
        let mut trial = self.bindings.clone();
        let mut compare = Compare::new(&mut trial);
        compare.value(at, golden, actual);
        let same = compare.diffs.is_empty();
        if same {
            *self.bindings = trial;
        }
        same
    }
}

fn is_crd_condition_list(golden: &Value) -> bool {
    golden.as_array().is_some_and(|list| {
        list.iter().any(|c| {
            matches!(
                c.get("type").and_then(Value::as_str),
                Some("NamesAccepted" | "Established" | "NonStructuralSchema" | "KubernetesAPIApprovalPolicyConformant")
            )
        })
    })
}

/// Entries of an `is invalid: [a, b]` text may come in any order.
fn same_entries(golden: &str, actual: &str, parent: &Map<String, Value>, actual_parent: &Map<String, Value>) -> bool {
    let causes = |p: &Map<String, Value>| -> Vec<Value> {
        p.get("details").and_then(|d| d.get("causes")).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let listed = causes(parent);
    if listed.len() < 2 || causes(actual_parent).len() != listed.len() {
        return false;
    }
    let (Some((before, inner)), Some((before_actual, inner_actual))) = (golden.split_once('['), actual.split_once('['))
    else {
        return false;
    };
    let sorted = |s: &str| {
        let mut parts: Vec<String> = s.trim_end_matches(']').split(", ").map(str::to_owned).collect();
        parts.sort();
        parts
    };
    before == before_actual && inner.len() == inner_actual.len() && sorted(inner) == sorted(inner_actual)
}

fn names(list: &[Value]) -> String {
    let name = |v: &Value| -> String {
        let object = v.get("object").unwrap_or(v);
        let found =
            object.get("metadata").and_then(|m| m.get("name")).or_else(|| v.get("name")).and_then(Value::as_str);
        let kind = v.get("type").and_then(Value::as_str).unwrap_or("");
        match found {
            Some(n) => format!("{kind} {n}").trim().to_owned(),
            None if v.is_object() && !kind.is_empty() => kind.to_owned(),
            None => show(v),
        }
    };
    let text = list.iter().map(name).collect::<Vec<_>>().join(", ");
    format!("[{}]", clip(&text, 400))
}

pub fn show(v: &Value) -> String {
    clip(&v.to_string(), 700)
}

pub fn clip(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}... ({} bytes)", &text[..end], text.len())
}

/// The recorded part of a large body.
pub fn view(view: &Value, body: &Value) -> Value {
    if let Some(paths) = view.get("pick").and_then(Value::as_array) {
        let picked: Map<String, Value> = paths
            .iter()
            .filter_map(Value::as_str)
            .map(|path| (path.to_owned(), pick(body, path).cloned().unwrap_or(Value::Null)))
            .collect();
        return serde_json::json!({ "$pick": picked });
    }
    if view.get("names").is_some() {
        let items = body.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        let names: Vec<Value> =
            items.iter().map(|i| i.pointer("/metadata/name").cloned().unwrap_or(Value::Null)).collect();
        return serde_json::json!({ "$names": names });
    }
    if let Some(path) = view.get("keys_of").and_then(Value::as_array) {
        let path: Vec<&str> = path.iter().filter_map(Value::as_str).collect();
        let found = pick(body, &path.join("/"));
        let mut keys: Vec<String> =
            found.and_then(Value::as_object).map(|o| o.keys().cloned().collect()).unwrap_or_default();
        keys.sort();
        return serde_json::json!({ "$keys": keys });
    }
    if let Some(selects) = view.get("select").and_then(Value::as_array) {
        let mut out = body.clone();
        selects.iter().for_each(|s| select(s, &mut out));
        return out;
    }
    body.clone()
}

fn pick<'v>(body: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('/').filter(|p| !p.is_empty()).try_fold(body, |v, part| match v {
        Value::Array(list) => part.parse::<usize>().ok().and_then(|i| list.get(i)),
        _ => v.get(part),
    })
}

fn select(rule: &Value, body: &mut Value) {
    let path: Vec<String> = rule["path"].as_array().unwrap().iter().map(|p| p.as_str().unwrap().to_owned()).collect();
    let mut target = body;
    for part in &path {
        match target.get_mut(part) {
            Some(next) => target = next,
            None => return,
        }
    }
    let Some(list) = target.as_array_mut() else { return };
    let dotted = |v: &Value, path: &str| path.split('.').try_fold(v, |v, p| v.get(p)).cloned();
    if let Some(rules) = rule.get("where").and_then(Value::as_object) {
        list.retain(|v| {
            rules.iter().all(|(field, allowed)| {
                let found = dotted(v, field).unwrap_or(Value::Null);
                allowed.as_array().is_some_and(|list| list.contains(&found))
            })
        });
    }
    if let Some(field) = rule.get("sort").and_then(Value::as_str) {
        list.sort_by_key(|v| dotted(v, field).map(|v| v.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn grades(golden: Value, actual: Value) -> Vec<Grade> {
        let mut bindings = Bindings::default();
        let mut compare = Compare::new(&mut bindings);
        compare.body("body", Grade::A, &golden, &actual);
        compare.diffs.iter().map(|d| d.grade).collect()
    }

    fn object(version: &str, extra: Value) -> Value {
        json!({"metadata": {"resourceVersion": version, "managedFields": extra}})
    }

    #[test]
    fn versions_keep_their_order() {
        let golden = json!([object("<rv:1>", json!([])), object("<rv:2>", json!([]))]);
        assert_eq!(grades(golden.clone(), json!([object("7", json!([])), object("9", json!([]))])), []);
        assert_eq!(grades(golden, json!([object("9", json!([])), object("7", json!([]))])), [Grade::A]);
    }

    #[test]
    fn message_texts_and_ownership_weigh_less() {
        let status = |m: &str| json!({"kind": "Status", "metadata": {}, "status": "Failure", "message": m});
        assert_eq!(grades(status("a"), status("b")), [Grade::B]);
        assert_eq!(grades(status("json: cannot"), status("b")), []);
        assert_eq!(grades(object("1", json!([{"manager": "a"}])), object("1", json!([]))), [Grade::C]);
    }

    #[test]
    fn missing_and_further_members_count() {
        assert_eq!(grades(json!({"a": 1}), json!({"b": 1})), [Grade::A, Grade::A]);
        assert_eq!(grades(json!([1, 2]), json!([1])), [Grade::A]);
        assert_eq!(grades(json!(1), json!(1.0)), [Grade::A]);
    }
}
