//! Objects of the API as JSON, read in one pass.
//!
//! Rule: an object is read once, whatever is made of it then, and without `metadata.managedFields`: nothing here looks
//! at them, and they are as long as the rest. `kube::core::DynamicObject` and `DeserializeGuard` read each object three
//! and four times, and every watch event goes through that.

use std::{borrow::Cow, fmt, marker::PhantomData};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// A JSON object without `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonObject(pub Value);

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ValueReader { part: Part::Object, level: 0 }.deserialize(deserializer).map(Self)
    }
}

/// Levels of an object that are read, and what is nested deeper is null. serde_json gives up at 128, the page or the
/// event around it included; what one user nests deeper must not stop the list or the watch of all others.
const MOST_LEVELS: usize = 100;

/// Which part of an object is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Object,
    Metadata,
    Other,
}

/// Reads a value, and what is below by another rule.
#[derive(Clone, Copy)]
struct ValueReader {
    part: Part,
    level: usize,
}

impl<'de> DeserializeSeed<'de> for ValueReader {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.part {
            _ if self.level > MOST_LEVELS => IgnoredAny::deserialize(deserializer).map(|_| Value::Null),
            Part::Object | Part::Metadata => deserializer.deserialize_map(self),
            Part::Other => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for ValueReader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.part == Part::Other { "a JSON value" } else { "an object" })
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Self { part: Part::Other, level: self.level + 1 })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let part = match (self.part, key.as_str()) {
                (Part::Object, "metadata") => Part::Metadata,
                (Part::Metadata, "managedFields") => {
                    entries.next_value::<IgnoredAny>()?;
                    continue;
                }
                _ => Part::Other,
            };
            let value = entries.next_value_seed(Self { part, level: self.level + 1 })?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// An object of kind `K` as it came: what `K` would refuse is here too.
pub struct Unread<K> {
    /// Namespace, name, UID and version.
    metadata: ObjectMeta,
    object: Value,
    kind: PhantomData<fn() -> K>,
}

impl<K> Unread<K> {
    /// All of it.
    #[must_use]
    pub fn into_value(self) -> Value {
        self.object
    }
}

impl<K> Clone for Unread<K> {
    fn clone(&self) -> Self {
        Self { metadata: self.metadata.clone(), object: self.object.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Unread<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}

impl<'de, K> Deserialize<'de> for Unread<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let JsonObject(object) = JsonObject::deserialize(deserializer)?;
        let text = |field: &str| object.get("metadata")?.get(field)?.as_str().map(ToOwned::to_owned);
        let metadata = ObjectMeta {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, object, kind: PhantomData })
    }
}

impl<K: Resource> Resource for Unread<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_read_whole_but_for_who_wrote_which_field() {
        let text = json!({
            "apiVersion": "v1", "kind": "Thing",
            "metadata": {
                "name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7",
                "labels": {"managedFields": "a label"},
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
            },
            "spec": {"managedFields": 1, "metadata": {"managedFields": [2]}, "list": [null, true, -1, 1.5, "x"]},
        });
        let read: Unread<DynamicObject> = serde_json::from_str(&text.to_string()).unwrap();
        let meta = read.meta();
        let known = [&meta.namespace, &meta.name, &meta.uid, &meta.resource_version].map(Option::as_deref);
        assert_eq!(known, [Some("ns"), Some("a"), Some("u"), Some("7")]);
        let mut wanted = text;
        wanted["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(read.into_value(), wanted);
    }

    /// One patch of a status that its kind leaves open would else end every list that it is in.
    #[test]
    fn what_is_nested_too_deep_stops_no_list_and_no_watch() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(500), "}".repeat(500));
        let object = format!(r#"{{"metadata":{{"name":"deep","resourceVersion":"7"}},"status":{deep}}}"#);
        let page = format!(r#"{{"metadata":{{}},"items":[{object},{{"metadata":{{"name":"b"}}}}]}}"#);
        let list: kube::core::ObjectList<Unread<DynamicObject>> = serde_json::from_str(&page).unwrap();
        let names: Vec<_> = list.items.iter().filter_map(|item| item.meta().name.as_deref()).collect();
        assert_eq!(names, ["deep", "b"]);
        let event = format!(r#"{{"type":"MODIFIED","object":{object}}}"#);
        let event = serde_json::from_str::<kube::core::WatchEvent<Unread<DynamicObject>>>(&event).unwrap();
        let kube::core::WatchEvent::Modified(read) = event else { panic!("{event:?}") };
        assert_eq!(read.meta().resource_version.as_deref(), Some("7"));
        let read = read.into_value();
        assert_eq!(read["status"]["a"]["a"].as_object().map(Map::len), Some(1), "as deep as is read");
    }

    #[test]
    fn what_has_no_metadata_is_read_too_and_what_is_no_object_is_not() {
        let read = |text: &str| serde_json::from_str::<JsonObject>(text).ok();
        assert_eq!(read(r#"{"status": "Success"}"#), Some(JsonObject(json!({"status": "Success"}))));
        for text in ["[]", "1", r#"{"metadata": 3}"#] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
