//! What is told of a body before anything is built of it: the memory that its values will take, whose it is, how many
//! tasks a job in it has, and whether an update leaves the spec as it is. Each in one pass, and without keeping values.
//!
//! Rule: a tree of JSON values takes many times its text, and by its shape, not by its length: `{"a":1}` is eight bytes
//! of text and about 700 of memory. So memory is counted by objects, entries and strings, each as the allocator rounds
//! it up. Two specs are compared by a digest of their values that does not depend on the order of fields; its keys are
//! random for each process, so that nobody can make two specs of one digest.

use std::{
    borrow::Cow,
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    sync::LazyLock,
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// A map's first node: eleven entries of key and value.
const OBJECT: usize = 640;
/// One more entry of a map or a list, where a node or a list may be half empty.
const ENTRY: usize = 112;
/// An allocation for a string beside its bytes.
const STRING: usize = 24;

/// About how many bytes the values of a JSON text take.
#[must_use]
pub fn estimate_memory(text: &[u8]) -> usize {
    let (mut total, mut at) = (0, 0);
    while let Some(byte) = text.get(at) {
        at += 1;
        total += match byte {
            b'"' => {
                let length = string_length(&text[at..]);
                at += length;
                STRING + length
            }
            b'{' => OBJECT,
            b'[' | b',' => ENTRY,
            _ => 0,
        };
    }
    total
}

/// Bytes until a string's end, its closing quote included.
fn string_length(text: &[u8]) -> usize {
    let mut length = 0;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &text[length..]) {
        length += found + 1;
        if text[length - 1] == b'"' {
            return length;
        }
        // What is escaped ends nothing.
        length = (length + 1).min(text.len());
    }
    text.len()
}

/// What is read of a review before its object is.
#[derive(Debug, Default, Deserialize)]
pub struct ReviewHead<'a> {
    #[serde(borrow, default)]
    request: GlancedRequest<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct GlancedRequest<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    operation: Cow<'a, str>,
    #[serde(default)]
    object: TaskCount,
}

impl<'a> ReviewHead<'a> {
    /// Reads a review so far; of what is no review, nothing.
    #[must_use]
    pub fn of_body(body: &'a [u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// The question's uid.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.request.uid
    }

    /// Whose object it is; empty for what is in no namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.request.namespace.as_deref().unwrap_or_default()
    }

    /// Tasks of a job that is created.
    #[must_use]
    pub fn created_tasks(&self) -> usize {
        if self.request.operation == "CREATE" { self.request.object.0 } else { 0 }
    }
}

/// The length of the list `spec.tasks` of an object of any shape; nothing is kept of it.
#[derive(Debug, Default)]
struct TaskCount(usize);

impl<'de> Deserialize<'de> for TaskCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        CountAt(&["spec", "tasks"]).deserialize(deserializer).map(Self)
    }
}

/// Counts the items of the list at a path; what has another shape has none.
struct CountAt(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for CountAt {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CountAt {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_bool<E>(self, _: bool) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_i64<E>(self, _: i64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_u64<E>(self, _: u64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_f64<E>(self, _: f64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_str<E>(self, _: &str) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
        let mut length = 0;
        while items.next_element::<IgnoredAny>()?.is_some() {
            length += 1;
        }
        Ok(if self.0.is_empty() { length } else { 0 })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<usize, A::Error> {
        let mut length = 0;
        while let Some(key) = entries.next_key::<Cow<'de, str>>()? {
            match self.0.split_first() {
                Some((first, rest)) if key == *first => length = entries.next_value_seed(CountAt(rest))?,
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(length)
    }
}

#[derive(Debug, Default, Deserialize)]
struct SpecsEnvelope {
    #[serde(default)]
    request: SpecsRequest,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecsRequest {
    #[serde(default)]
    object: Option<GlancedObject>,
    #[serde(default)]
    old_object: Option<GlancedObject>,
}

#[derive(Debug, Default, Deserialize)]
struct GlancedObject {
    #[serde(default)]
    spec: Digest,
}

/// Whether a review's object has the spec of the old one. Of what is no review it is not known: false.
#[must_use]
pub fn are_specs_equal(body: &[u8]) -> bool {
    let SpecsEnvelope { request } = serde_json::from_slice(body).unwrap_or_default();
    match (&request.object, &request.old_object) {
        (Some(new), Some(old)) => new.spec.0 == old.spec.0,
        _ => false,
    }
}

/// A number that is equal for equal values.
#[derive(Debug, Default, Clone, Copy)]
struct Digest(u64);

/// Nobody outside can find two values of one hash.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Digest {
    fn hash_tagged(kind: u8, value: impl Hash) -> Self {
        Self(KEYS.hash_one((kind, value)))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DigestVisitor)
    }
}

struct DigestVisitor;

impl<'de> Visitor<'de> for DigestVisitor {
    type Value = Digest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Digest, E> {
        Ok(Digest::default())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Digest, E> {
        Ok(Digest::hash_tagged(1, value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Digest, E> {
        Ok(Digest::hash_tagged(2, value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Digest, E> {
        Ok(Digest::hash_tagged(3, value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Digest, E> {
        Ok(Digest::hash_tagged(4, value.to_bits()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Digest, E> {
        Ok(Digest::hash_tagged(5, value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Digest, A::Error> {
        let (mut hash, mut length) = (0, 0_usize);
        while let Some(item) = items.next_element::<Digest>()? {
            hash = Digest::hash_tagged(6, (hash, item.0)).0;
            length += 1;
        }
        Ok(Digest::hash_tagged(7, (hash, length)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Digest, A::Error> {
        let mut all = Digest::default();
        while let Some(key) = entries.next_key::<Cow<'de, str>>()? {
            let value = entries.next_value::<Digest>()?;
            // In any order.
            all.0 = all.0.wrapping_add(Digest::hash_tagged(8, (key.as_ref(), value.0)).0);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn glance(request: &Value) -> (String, bool, usize) {
        let body = json!({"request": request}).to_string();
        let glance = ReviewHead::of_body(body.as_bytes());
        let whose = format!("{}/{}", glance.namespace(), glance.uid());
        (whose, are_specs_equal(body.as_bytes()), glance.created_tasks())
    }

    #[test]
    fn a_glance_tells_whose_it_is_whether_the_spec_stays_and_how_many_tasks_there_are() {
        let job =
            |tasks: Value, label: &str| json!({"metadata": {"labels": {"a": label}}, "spec": {"tasks": tasks, "n": 1}});
        let tasks = json!([{"name": "tasks", "replicas": 1.5}, {"tasks": [null, true, -1]}]);
        let review = |operation: &str, new: &Value, old: Value| {
            glance(&json!({"uid": "u", "namespace": "ns", "operation": operation, "object": new, "oldObject": old}))
        };
        let new = job(tasks.clone(), "x");
        assert_eq!(review("CREATE", &new, Value::Null), ("ns/u".to_owned(), false, 2));
        assert_eq!(review("UPDATE", &new, job(tasks, "y")), ("ns/u".to_owned(), true, 0));
        for other in [json!([]), json!([{"name": "tasks"}]), json!({"tasks": 1})] {
            assert!(!review("UPDATE", &new, job(other, "x")).1);
        }
        for odd in [json!(5), json!([1]), json!({"spec": [1, 2]}), json!({"spec": {"tasks": {"spec": {"tasks": [1]}}}})]
        {
            assert_eq!(review("CREATE", &odd, Value::Null), ("ns/u".to_owned(), false, 0), "{odd}");
        }
        assert_eq!(glance(&json!({"uid": 5})), ("/".to_owned(), false, 0));
        assert_eq!(ReviewHead::of_body(b"{").uid(), "");
    }

    #[test]
    fn memory_is_counted_by_shape_and_not_by_length() {
        let text = format!("[\"{}\"]", "{[,".repeat(1_000));
        assert!(estimate_memory(text.as_bytes()) < 4_000);
        let objects = format!("[{}0]", "{\"a\":1},".repeat(1_000));
        assert!(estimate_memory(objects.as_bytes()) > 700_000);
        assert_eq!(estimate_memory(br#""a\"{""#), STRING + 5);
        assert_eq!(estimate_memory(br#""a\\"{"#), STRING + 4 + OBJECT);
        // What ends in the middle.
        assert_eq!((estimate_memory(b"\"ab"), estimate_memory(b"\"a\\")), (STRING + 2, STRING + 2));
    }
}
