//! A new job whose review is 64 KiB or longer (`LONG_JOB` in `crate::rules`): its tasks stay text until each is looked
//! at. As values all at once they take many times the memory, and as long to make as all the rest of a review.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

/// A job without its tasks, and the text of each.
#[derive(Debug)]
pub struct LongJob<'a> {
    /// The job, where `spec.tasks` is an empty list.
    pub rest: Value,
    /// The tasks.
    pub tasks: Vec<&'a RawValue>,
}

impl<'de> Deserialize<'de> for LongJob<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(JobVisitor)
    }
}

struct JobVisitor;

impl<'de> Visitor<'de> for JobVisitor {
    type Value = LongJob<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a job with a list of tasks")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<LongJob<'de>, A::Error> {
        let (mut rest, mut tasks) = (Map::new(), Vec::new());
        while let Some(key) = fields.next_key::<Cow<'de, str>>()? {
            if key == "spec" {
                let spec = fields.next_value::<Spec<'de>>()?;
                tasks = spec.tasks;
                rest.insert(key.into_owned(), spec.rest.into());
            } else {
                rest.insert(key.into_owned(), fields.next_value()?);
            }
        }
        Ok(LongJob { rest: rest.into(), tasks })
    }
}

struct Spec<'a> {
    rest: Map<String, Value>,
    tasks: Vec<&'a RawValue>,
}

impl<'de> Deserialize<'de> for Spec<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SpecVisitor)
    }
}

struct SpecVisitor;

impl<'de> Visitor<'de> for SpecVisitor {
    type Value = Spec<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the spec of a job with a list of tasks")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Spec<'de>, A::Error> {
        let mut spec = Spec { rest: Map::new(), tasks: Vec::new() };
        while let Some(key) = fields.next_key::<Cow<'de, str>>()? {
            if key == "tasks" {
                spec.tasks = fields.next_value()?;
                spec.rest.insert(key.into_owned(), Value::Array(Vec::new()));
            } else {
                spec.rest.insert(key.into_owned(), fields.next_value()?);
            }
        }
        Ok(spec)
    }
}
