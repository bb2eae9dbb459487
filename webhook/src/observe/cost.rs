//! What a body costs before anything is built of it: the memory that its values will take, whose it is, and how many
//! tasks a job in it has. All of it in one pass each, and without keeping anything.
//!
//! Rule: a tree of JSON values takes many times its text, and by its shape, not by its length: `{"a":1}` is eight bytes
//! of text and about 700 of memory. So memory is counted by objects, entries and strings, each as the allocator rounds
//! it up.

use std::{
    borrow::Cow,
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    sync::LazyLock,
};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
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
    let (mut total, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text {
        if in_string {
            total += 1;
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        total += match byte {
            b'"' => {
                in_string = true;
                STRING
            }
            b'{' => OBJECT,
            b'[' | b',' => ENTRY,
            _ => 0,
        };
    }
    total
}

/// What is read of a review before its object is.
#[derive(Debug, Default, Deserialize)]
pub struct Glance<'a> {
    #[serde(borrow, default)]
    request: GlancedRequest<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct GlancedRequest<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
}

#[derive(Debug, Default, Deserialize)]
struct SpecsEnvelope<'a> {
    #[serde(borrow, default)]
    request: SpecsRequest<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecsRequest<'a> {
    #[serde(borrow, default)]
    operation: Cow<'a, str>,
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

impl<'a> Glance<'a> {
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
}

/// What is read of the specs in a review before they are built.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct GlancedSpecs {
    /// Whether something changes that is not the spec.
    pub are_equal: bool,
    /// Tasks of a job that is created.
    pub created_tasks: usize,
}

impl GlancedSpecs {
    /// Reads a review so far; of what is no review, nothing.
    #[must_use]
    pub fn of_body(body: &[u8]) -> Self {
        let SpecsEnvelope { request } = serde_json::from_slice(body).unwrap_or_default();
        let created = request.object.as_ref().filter(|_| request.operation == "CREATE");
        let are_equal = match (&request.object, &request.old_object) {
            (Some(new), Some(old)) => new.spec.hash == old.spec.hash,
            _ => false,
        };
        Self { are_equal, created_tasks: created.map_or(0, |object| object.spec.tasks) }
    }
}

/// A number that is equal for equal values, and the length of the list `tasks`.
#[derive(Debug, Default, Clone, Copy)]
struct Digest {
    hash: u64,
    tasks: usize,
    length: usize,
}

/// Nobody outside can find two values of one hash.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Digest {
    fn of(kind: u8, value: impl Hash) -> Self {
        Self { hash: KEYS.hash_one((kind, value)), ..Self::default() }
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
        Ok(Digest::of(1, value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Digest, E> {
        Ok(Digest::of(2, value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Digest, E> {
        Ok(Digest::of(3, value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Digest, E> {
        Ok(Digest::of(4, value.to_bits()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Digest, E> {
        Ok(Digest::of(5, value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Digest, A::Error> {
        let (mut hash, mut length) = (0, 0);
        while let Some(item) = items.next_element::<Digest>()? {
            hash = Digest::of(6, (hash, item.hash)).hash;
            length += 1;
        }
        Ok(Digest { hash: Digest::of(7, (hash, length)).hash, length, tasks: 0 })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Digest, A::Error> {
        let mut all = Digest::default();
        while let Some(key) = entries.next_key::<Cow<'de, str>>()? {
            let value = entries.next_value::<Digest>()?;
            if key == "tasks" {
                all.tasks = value.length;
            }
            // In any order.
            all.hash = all.hash.wrapping_add(Digest::of(8, (key.as_ref(), value.hash)).hash);
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
        let (glance, specs) = (Glance::of_body(body.as_bytes()), GlancedSpecs::of_body(body.as_bytes()));
        (format!("{}/{}", glance.namespace(), glance.uid()), specs.are_equal, specs.created_tasks)
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
        assert_eq!(glance(&json!({"uid": 5})), ("/".to_owned(), false, 0));
        assert_eq!(Glance::of_body(b"{").uid(), "");
    }

    #[test]
    fn memory_is_counted_by_shape_and_not_by_length() {
        let text = format!("[\"{}\"]", "{[,".repeat(1_000));
        assert!(estimate_memory(text.as_bytes()) < 4_000);
        let objects = format!("[{}0]", "{\"a\":1},".repeat(1_000));
        assert!(estimate_memory(objects.as_bytes()) > 700_000);
        assert_eq!(estimate_memory(br#""a\"{""#), STRING + 5);
    }
}
