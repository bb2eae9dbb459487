//! Reading and shaping Kubernetes objects as JSON values.
//!
//! Karmada handles templates of kinds it does not know; so do we, without types that would drop fields.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde_json::{Map, Value, json};

/// A group, version and kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gvk {
    /// `""` for the core group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

impl Gvk {
    /// From an `apiVersion` and a kind.
    #[must_use]
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    /// `group/version`, or `version` alone for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether this is the kind of the group, in any version.
    #[must_use]
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, Kind={}", self.api_version(), self.kind)
    }
}

/// One object of a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its kind.
    pub gvk: Gvk,
    /// `""` when cluster-scoped.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// Of an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self { gvk: object.gvk(), namespace: object.namespace().to_owned(), name: object.name().to_owned() }
    }
}

/// An object as it was seen, shared by everybody who looks at it.
pub type Shared = Arc<Value>;

/// What controllers read from an object, and set on one of their own.
pub trait ObjectExt {
    /// A string inside, `""` if absent.
    fn text(&self, pointer: &str) -> &str;
    /// An integer inside, 0 if absent.
    fn number(&self, pointer: &str) -> i64;
    /// A flag inside, false if absent.
    fn flag(&self, pointer: &str) -> bool;
    /// A list inside, empty if absent.
    fn items(&self, pointer: &str) -> &[Value];
    /// A non-null value inside.
    fn present(&self, pointer: &str) -> Option<&Value>;
    /// Kind and so on.
    fn gvk(&self) -> Gvk;
    /// `metadata.name`.
    fn name(&self) -> &str {
        self.text("/metadata/name")
    }
    /// `metadata.namespace`.
    fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }
    /// `metadata.uid`.
    fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }
    /// `metadata.resourceVersion`.
    fn resource_version(&self) -> &str {
        self.text("/metadata/resourceVersion")
    }
    /// `metadata.generation`.
    fn generation(&self) -> i64 {
        self.number("/metadata/generation")
    }
    /// Whether its deletion has begun.
    fn is_deleting(&self) -> bool {
        self.present("/metadata/deletionTimestamp").is_some()
    }
    /// A label, `""` if absent.
    fn label(&self, key: &str) -> &str;
    /// An annotation, `""` if absent.
    fn annotation(&self, key: &str) -> &str;
    /// All labels.
    fn labels(&self) -> BTreeMap<String, String>;
    /// All annotations.
    fn annotations(&self) -> BTreeMap<String, String>;
    /// Sets a label.
    fn set_label(&mut self, key: &str, value: &str);
    /// Sets an annotation.
    fn set_annotation(&mut self, key: &str, value: &str);
    /// Removes labels; an empty map goes too.
    fn remove_labels(&mut self, keys: &[&str]);
    /// Removes annotations; an empty map goes too.
    fn remove_annotations(&mut self, keys: &[&str]);
    /// Sets a value at a path of object fields, making the objects on the way.
    fn put(&mut self, path: &[&str], value: Value);
    /// Sets a value, or removes the field when there is none.
    fn put_or_remove(&mut self, path: &[&str], value: Option<Value>) {
        match value {
            Some(value) => self.put(path, value),
            None => self.remove_at(path),
        }
    }
    /// Removes a field.
    fn remove_at(&mut self, path: &[&str]);
    /// Whether it carries the finalizer.
    fn has_finalizer(&self, finalizer: &str) -> bool;
    /// Adds a finalizer, once.
    fn add_finalizer(&mut self, finalizer: &str);
    /// Removes a finalizer; an empty list goes too.
    fn remove_finalizer(&mut self, finalizer: &str);
}

impl ObjectExt for Value {
    fn text(&self, pointer: &str) -> &str {
        self.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn number(&self, pointer: &str) -> i64 {
        self.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
    }

    fn flag(&self, pointer: &str) -> bool {
        self.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
    }

    fn items(&self, pointer: &str) -> &[Value] {
        self.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn present(&self, pointer: &str) -> Option<&Value> {
        self.pointer(pointer).filter(|value| !value.is_null())
    }

    fn gvk(&self) -> Gvk {
        Gvk::new(self.text("/apiVersion"), self.text("/kind"))
    }

    fn label(&self, key: &str) -> &str {
        map_entry(self, "labels", key)
    }

    fn annotation(&self, key: &str) -> &str {
        map_entry(self, "annotations", key)
    }

    fn labels(&self) -> BTreeMap<String, String> {
        string_map(self.pointer("/metadata/labels"))
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        string_map(self.pointer("/metadata/annotations"))
    }

    fn set_label(&mut self, key: &str, value: &str) {
        self.put(&["metadata", "labels", key], json!(value));
    }

    fn set_annotation(&mut self, key: &str, value: &str) {
        self.put(&["metadata", "annotations", key], json!(value));
    }

    fn remove_labels(&mut self, keys: &[&str]) {
        remove_entries(self, "labels", keys);
    }

    fn remove_annotations(&mut self, keys: &[&str]) {
        remove_entries(self, "annotations", keys);
    }

    fn put(&mut self, path: &[&str], value: Value) {
        put_at(self, path, value);
    }

    fn remove_at(&mut self, path: &[&str]) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut at = self;
        for parent in parents {
            match at.get_mut(*parent) {
                Some(next) => at = next,
                None => return,
            }
        }
        if let Some(object) = at.as_object_mut() {
            object.remove(*last);
        }
    }

    fn has_finalizer(&self, finalizer: &str) -> bool {
        self.items("/metadata/finalizers").iter().any(|item| item == finalizer)
    }

    fn add_finalizer(&mut self, finalizer: &str) {
        if self.has_finalizer(finalizer) {
            return;
        }
        let mut all = self.items("/metadata/finalizers").to_vec();
        all.push(json!(finalizer));
        self.put(&["metadata", "finalizers"], Value::Array(all));
    }

    fn remove_finalizer(&mut self, finalizer: &str) {
        if !self.has_finalizer(finalizer) {
            return;
        }
        let rest: Vec<Value> =
            self.items("/metadata/finalizers").iter().filter(|item| *item != finalizer).cloned().collect();
        if rest.is_empty() {
            self.remove_at(&["metadata", "finalizers"]);
        } else {
            self.put(&["metadata", "finalizers"], Value::Array(rest));
        }
    }
}

/// What is in the way and no object gives way to one.
fn put_at(at: &mut Value, path: &[&str], new: Value) {
    let Some((first, rest)) = path.split_first() else {
        *at = new;
        return;
    };
    let mut fields = match at.take() {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    put_at(fields.entry(*first).or_insert(Value::Null), rest, new);
    *at = Value::Object(fields);
}

fn map_entry<'a>(object: &'a Value, map: &str, key: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|meta| meta.get(map))
        .and_then(|map| map.get(key))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A map of strings.
#[must_use]
pub fn string_map(map: Option<&Value>) -> BTreeMap<String, String> {
    map.and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn remove_entries(object: &mut Value, map: &str, keys: &[&str]) {
    let Some(entries) = object.pointer_mut(&format!("/metadata/{map}")).and_then(Value::as_object_mut) else { return };
    for key in keys {
        entries.remove(*key);
    }
    if entries.is_empty() {
        object.remove_at(&["metadata", map]);
    }
}

/// Whether labels satisfy a Kubernetes label selector (`matchLabels`, `matchExpressions`); no selector selects all.
#[must_use]
pub fn selector_matches(selector: Option<&Value>, labels: &BTreeMap<String, String>) -> bool {
    let Some(selector) = selector else { return true };
    let equal = string_map(selector.get("matchLabels")).iter().all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector.items("/matchExpressions").iter().all(|term| {
            let value = labels.get(term.text("/key"));
            let listed = || term.items("/values").iter().any(|one| one.as_str() == value.map(String::as_str));
            match term.text("/operator") {
                "In" => value.is_some() && listed(),
                "NotIn" => value.is_none() || !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// Sets a condition in place: the transition time moves only with the status (apimachinery's `SetStatusCondition`).
/// Returns whether anything changed.
pub fn set_condition(conditions: &mut Vec<Value>, mut new: Value, now: &str) -> bool {
    let Some(old) = conditions.iter_mut().find(|old| old["type"] == new["type"]) else {
        new.put(&["lastTransitionTime"], json!(now));
        conditions.push(new);
        return true;
    };
    let time = if old["status"] == new["status"] { old["lastTransitionTime"].clone() } else { json!(now) };
    new.put(&["lastTransitionTime"], time);
    if let Some(generation) = old.get("observedGeneration").filter(|_| new.get("observedGeneration").is_none()) {
        new.put(&["observedGeneration"], generation.clone());
    }
    if *old == new {
        return false;
    }
    *old = new;
    true
}

/// The status of a condition, `""` if absent.
#[must_use]
pub fn condition_status<'a>(object: &'a Value, kind: &str) -> &'a str {
    object.items("/status/conditions").iter().find(|one| one["type"] == kind).map_or("", |one| one.text("/status"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_transition_time_while_its_status_stays() {
        let mut conditions = vec![json!({"type": "A", "status": "True", "lastTransitionTime": "t0", "reason": "x"})];
        assert!(set_condition(&mut conditions, json!({"type": "A", "status": "True", "reason": "y"}), "t1"));
        assert_eq!(conditions[0]["lastTransitionTime"], "t0");
        assert!(!set_condition(&mut conditions, json!({"type": "A", "status": "True", "reason": "y"}), "t2"));
        assert!(set_condition(&mut conditions, json!({"type": "A", "status": "False", "reason": "y"}), "t3"));
        assert_eq!(conditions[0]["lastTransitionTime"], "t3");
    }

    #[test]
    fn an_emptied_label_map_goes_away() {
        let mut object = json!({"metadata": {"labels": {"a": "b"}}});
        object.remove_labels(&["a"]);
        assert_eq!(object, json!({"metadata": {}}));
    }

    #[test]
    fn a_selector_term_that_names_no_known_operator_selects_nothing() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        assert!(selector_matches(
            Some(&json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]})),
            &labels
        ));
        assert!(!selector_matches(Some(&json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})), &labels));
        assert!(selector_matches(None, &labels));
    }
}
