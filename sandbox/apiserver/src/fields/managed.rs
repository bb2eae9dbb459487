//! `metadata.managedFields`: who owns which fields, as a map and as JSON (apimachinery `managedfields/internal`).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::set::Set;

/// Who wrote, and how. Appliers are the same whatever version they apply in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    pub name: String,
    pub applies: bool,
    /// Empty for an applier.
    pub version: String,
    pub subresource: String,
}

impl Manager {
    /// What conflicts are sorted by (`BuildManagerIdentifier`).
    pub fn identifier(&self) -> String {
        let operation = if self.applies { "Apply" } else { "Update" };
        let mut text = format!("{{\"manager\":{:?},\"operation\":{operation:?}", self.name);
        for (key, value) in [("apiVersion", &self.version), ("subresource", &self.subresource)] {
            if !value.is_empty() {
                text = format!("{text},\"{key}\":{value:?}");
            }
        }
        text + "}"
    }

    /// As a conflict names it.
    pub fn text(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            text = format!("{text} with subresource {:?}", self.subresource);
        }
        if self.applies { text } else { format!("{text} using {}", self.version) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub set: Set,
    /// The version the set was written in.
    pub version: String,
    pub time: Option<String>,
}

pub type Managed = BTreeMap<Manager, Owned>;

/// Reads the entries; `None` if one of them makes no sense.
pub fn decode_managed(list: Option<&Value>) -> Option<Managed> {
    let mut managed = Managed::new();
    for entry in list.and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let applies = match text("operation").as_str() {
            "Apply" => true,
            "Update" => false,
            _ => return None,
        };
        if !matches!(text("fieldsType").as_str(), "FieldsV1" | "") {
            return None;
        }
        let version = text("apiVersion");
        let name = Some(text("manager")).filter(|name| !name.is_empty()).unwrap_or_else(|| "unknown".to_owned());
        let manager = Manager {
            name,
            applies,
            version: if applies { String::new() } else { version.clone() },
            subresource: text("subresource"),
        };
        let set = match entry.get("fieldsV1") {
            None | Some(Value::Null) => Set::default(),
            Some(fields) => Set::decode(fields)?,
        };
        let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
        managed.insert(manager, Owned { set, version, time });
    }
    Some(managed)
}

/// Writes the entries into the object, or removes the member when nobody owns anything.
pub fn write_managed(object: &mut Value, managed: &Managed) {
    let Some(metadata) = object.as_object_mut().map(|map| map.entry("metadata").or_insert_with(|| json!({}))) else {
        return;
    };
    let Some(metadata) = metadata.as_object_mut() else { return };
    let mut entries: Vec<(&Manager, &Owned)> = managed.iter().filter(|(_, owned)| !owned.set.is_empty()).collect();
    if entries.is_empty() {
        metadata.remove("managedFields");
        return;
    }
    entries.sort_by_key(|(manager, owned)| {
        (!manager.applies, owned.time.clone(), manager.name.clone(), owned.version.clone(), manager.subresource.clone())
    });
    let list: Vec<Value> = entries.into_iter().map(|(manager, owned)| encode_entry(manager, owned)).collect();
    metadata.insert("managedFields".to_owned(), Value::Array(list));
}

/// Takes the field at a dotted path from the manager, or from everybody.
pub fn disown(object: &mut Value, path: &str, manager: Option<&str>) {
    fn remove(set: &mut Value, path: &[&str]) {
        let (Some(map), Some((first, rest))) = (set.as_object_mut(), path.split_first()) else { return };
        let key = format!("f:{first}");
        let Some(inner) = map.get_mut(&key) else { return };
        let leaf = inner.as_object().is_some_and(Map::is_empty);
        remove(inner, rest);
        if rest.is_empty() || (!leaf && inner.as_object().is_some_and(Map::is_empty)) {
            map.remove(&key);
        }
    }
    let path: Vec<&str> = path.trim_start_matches('.').split('.').collect();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) else { return };
    let concerned = entries.iter_mut().filter(|entry| manager.is_none_or(|manager| entry["manager"] == manager));
    concerned.for_each(|entry| remove(&mut entry["fieldsV1"], &path));
    entries.retain(|entry| entry["fieldsV1"].as_object().is_none_or(|set| !set.is_empty()));
    if entries.is_empty() {
        metadata.remove("managedFields");
    }
}

fn encode_entry(manager: &Manager, owned: &Owned) -> Value {
    let mut entry = Map::new();
    let mut put = |key: &str, value: Value| entry.insert(key.to_owned(), value);
    put("manager", manager.name.clone().into());
    put("operation", if manager.applies { "Apply" } else { "Update" }.into());
    put("apiVersion", owned.version.clone().into());
    if let Some(time) = &owned.time {
        put("time", time.clone().into());
    }
    put("fieldsType", "FieldsV1".into());
    put("fieldsV1", owned.set.encode());
    if !manager.subresource.is_empty() {
        put("subresource", manager.subresource.clone().into());
    }
    Value::Object(entry)
}

/// The members of an object nobody owns, because the server or the address decides them.
pub fn strip_set() -> Set {
    use super::set::Element::Field;
    let mut set = Set::default();
    for name in ["apiVersion", "kind", "metadata"] {
        set.insert(&[Field(name.to_owned())]);
    }
    for name in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        set.insert(&[Field("metadata".to_owned()), Field(name.to_owned())]);
    }
    set
}
