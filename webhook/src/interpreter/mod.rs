//! Karmada's resource interpreter for Volcano Jobs: what a job needs, how a cluster's copy is made, what it says.
//!
//! Rule: Karmada `pkg/resourceinterpreter/customized/webhook` (the `ResourceInterpreterContext` of
//! config.karmada.io/v1alpha1). Without InterpretReplica and ReviseReplica every target cluster would get a full copy;
//! without Retain a re-sync would be refused by the member's Volcano; without AggregateStatus the last cluster would win.

mod copies;
mod dependencies;
mod replicas;
mod statuses;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    index::Index,
    patch::{Op, between},
    review::base64_json,
};

#[derive(Deserialize)]
struct Context<'a> {
    #[serde(borrow)]
    request: Request<'a>,
}

/// What Karmada asks.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    kind: KindOf,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    object: Value,
    #[serde(default)]
    observed_object: Option<Value>,
    #[serde(default)]
    replicas: Option<i64>,
    #[serde(default)]
    aggregated_status: Option<Vec<statuses::Item>>,
}

#[derive(Deserialize)]
struct KindOf {
    #[serde(default)]
    group: String,
    #[serde(default)]
    kind: String,
}

/// An HTTP answer.
#[derive(Debug, PartialEq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// JSON, or a sentence where the status is not 200.
    pub body: Vec<u8>,
}

/// Answers one request.
#[must_use]
pub fn interpret(body: &[u8], index: &Index) -> Reply {
    let context: Context<'_> = match serde_json::from_slice(body) {
        Ok(context) => context,
        Err(error) => {
            let text = format!("failed to read the body as a ResourceInterpreterContext: {error}");
            return Reply { status: 400, body: text.into_bytes() };
        }
    };
    let request = context.request;
    let mut response = match answer(&request, index) {
        Ok(fields) => {
            let mut fields = fields;
            fields.insert("successful".into(), true.into());
            fields
        }
        Err(message) => Map::from_iter([
            ("successful".to_owned(), Value::Bool(false)),
            ("status".to_owned(), json!({"code": 400, "message": message})),
        ]),
    };
    response.insert("uid".into(), request.uid.as_ref().into());
    let context =
        json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterContext", "response": response});
    Reply { status: 200, body: context.to_string().into_bytes() }
}

fn answer(request: &Request<'_>, index: &Index) -> Result<Map<String, Value>, String> {
    let KindOf { group, kind } = &request.kind;
    if (group.as_str(), kind.as_str()) != ("batch.volcano.sh", "Job") {
        return Err(format!("{kind} of group {group:?} is not interpreted here, only Job of batch.volcano.sh"));
    }
    let job = &request.object;
    shaped(job, "object")?;
    if let Some(observed) = &request.observed_object {
        shaped(observed, "observedObject")?;
    }
    match request.operation.as_ref() {
        "InterpretReplica" => replicas::needed(job, &request.namespace),
        "InterpretComponent" => replicas::components(job),
        "ReviseReplica" => {
            let replicas = request.replicas.and_then(|replicas| u32::try_from(replicas).ok());
            let replicas = replicas.ok_or("ReviseReplica without a number of replicas")?;
            Ok(patched(job, &copies::revise(job, replicas)))
        }
        "Retain" => {
            let observed = request.observed_object.as_ref().ok_or("Retain without an observed object")?;
            Ok(patched(job, &copies::retain(job, observed)))
        }
        "AggregateStatus" => {
            let items = request.aggregated_status.as_deref().unwrap_or_default();
            let key = (request.namespace.as_ref().to_owned(), crate::index::binding_name(&request.name, kind));
            Ok(patched(job, &statuses::aggregate(job, items, index.bindings.get(&key))))
        }
        "InterpretStatus" => {
            Ok(fields([("rawStatus", job.get("status").cloned().unwrap_or_else(|| Value::Object(Map::new())))]))
        }
        "InterpretHealth" => Ok(fields([("healthy", statuses::is_healthy(job).into())])),
        "InterpretDependency" => Ok(fields([("dependencies", dependencies::of(job, &request.namespace))])),
        other => Err(format!("operation {other:?} is not known")),
    }
}

/// Whether an object has the shape that the operations write into.
fn shaped(job: &Value, what: &str) -> Result<(), String> {
    let absent_or = |pointer: &str, is: fn(&Value) -> bool| job.pointer(pointer).is_none_or(is);
    let tasks_are_objects = |tasks: &Value| tasks.as_array().is_some_and(|tasks| tasks.iter().all(Value::is_object));
    let right = job.is_object()
        && absent_or("/metadata", Value::is_object)
        && absent_or("/spec", Value::is_object)
        && absent_or("/spec/tasks", tasks_are_objects);
    if right {
        Ok(())
    } else {
        Err(format!("{what} is not shaped like a Job: metadata, spec and spec.tasks[*] are objects"))
    }
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A patch from `old` to `new`; nothing where they are equal.
fn patched(old: &Value, new: &Value) -> Map<String, Value> {
    let ops: Vec<Op> = between(old, new);
    if ops.is_empty() {
        return Map::new();
    }
    fields([("patchType", "JSONPatch".into()), ("patch", base64_json(&ops).into())])
}

#[cfg(test)]
mod tests;
