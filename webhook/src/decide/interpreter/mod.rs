//! Karmada's resource interpreter for Volcano Jobs: what a job needs, how the copy of a cluster is made, how statuses
//! merge.
//!
//! Rule (Karmada `pkg/resourceinterpreter/customized/webhook`, the `ResourceInterpreterContext` of
//! config.karmada.io/v1alpha1): without InterpretReplica and ReviseReplica every target cluster would get a full copy;
//! without Retain the member's Volcano would refuse a re-sync; without AggregateStatus the status of the last cluster
//! would win.
//!
//! A copy that has ended may be the last one, or the first of which the cache has not seen the next: where the cache is
//! behind, the binding is read before a job is called ended.

mod dependencies;
mod job_copies;
mod replicas;
mod statuses;

use std::borrow::Cow;

use caldera_crds::karmada::work::binding_name;
use jiff::Timestamp;
use json_patch::PatchOperation;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::patch::{encode_patch, patch_between};
use crate::observe::cache::{BindingKey, Cache, CachedBinding, Known, LiveRead, Lookup, Snapshot};

#[derive(Deserialize)]
struct InterpreterContext<'a> {
    #[serde(borrow)]
    request: InterpreterRequest<'a>,
}

/// What Karmada asks.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InterpreterRequest<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    kind: WorkloadGroupKind,
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
    aggregated_status: Option<Vec<statuses::ClusterStatus>>,
}

#[derive(Deserialize)]
struct WorkloadGroupKind {
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

/// What becomes of a request.
#[derive(Debug, PartialEq)]
pub enum Interpretation {
    /// This.
    Reply(Reply),
    /// The cache does not tell: read this from the API and ask again.
    Read(Lookup),
}

/// Answers one request, by what was read for it where that was asked for.
#[must_use]
pub fn interpret_request(body: &[u8], cache: &Cache, live: Option<&LiveRead>) -> Interpretation {
    let context: InterpreterContext<'_> = match serde_json::from_slice(body) {
        Ok(context) => context,
        Err(error) => {
            let text = format!("failed to read the body as a ResourceInterpreterContext: {error}");
            return Interpretation::Reply(Reply { status: 400, body: text.into_bytes() });
        }
    };
    let mut request = context.request;
    // Nothing else is decided by more than the request.
    let known = match request.operation.as_ref() {
        "AggregateStatus" => find_binding(&request, cache, live),
        _ => Known::No,
    };
    if matches!(known, Known::Unread) && live.is_none() && request.says_that_a_copy_ended() {
        return Interpretation::Read(Lookup::Binding(request.binding_key()));
    }
    let answer = answer_operation(&mut request, known, cache);
    let uid = request.uid;
    // The answer may be as long as the job is large.
    drop((request.object, request.observed_object));
    let successful = answer.is_ok();
    let mut response =
        answer.unwrap_or_else(|message| to_fields([("status", json!({"code": 400, "message": message}))]));
    response.extend(to_fields([("successful", successful.into()), ("uid", uid.as_ref().into())]));
    let mut context = json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterContext"});
    context["response"] = response.into();
    Interpretation::Reply(Reply { status: 200, body: context.to_string().into_bytes() })
}

fn find_binding<'a>(
    request: &InterpreterRequest<'_>,
    cache: &'a Cache,
    live: Option<&'a LiveRead>,
) -> Known<&'a CachedBinding> {
    Snapshot { cache, live, now: Timestamp::UNIX_EPOCH }.find_binding(&request.binding_key())
}

impl InterpreterRequest<'_> {
    fn binding_key(&self) -> BindingKey {
        (self.namespace.as_ref().to_owned(), binding_name(&self.kind.kind, &self.name))
    }

    fn says_that_a_copy_ended(&self) -> bool {
        self.aggregated_status.iter().flatten().any(statuses::ClusterStatus::has_ended)
    }
}

/// Answers a request that is not looked at.
#[must_use]
pub fn answer_too_large(uid: &str, message: &str) -> Reply {
    let response = json!({"uid": uid, "successful": false, "status": {"code": 413, "message": message}});
    let context =
        json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterContext", "response": response});
    Reply { status: 200, body: context.to_string().into_bytes() }
}

fn answer_operation(
    request: &mut InterpreterRequest<'_>,
    known: Known<&CachedBinding>,
    cache: &Cache,
) -> Result<Map<String, Value>, String> {
    let WorkloadGroupKind { group, kind } = &request.kind;
    if (group.as_str(), kind.as_str()) != ("batch.volcano.sh", "Job") {
        return Err(format!("{kind} of group {group:?} is not interpreted here, only Job of batch.volcano.sh"));
    }
    let job = &request.object;
    check_shape(job, "object")?;
    if let Some(observed) = &request.observed_object {
        check_shape(observed, "observedObject")?;
    }
    match request.operation.as_ref() {
        "InterpretReplica" => replicas::interpret_replicas(job, &request.namespace),
        "InterpretComponent" => replicas::interpret_components(job),
        "ReviseReplica" => {
            let replicas = request.replicas.and_then(|replicas| u32::try_from(replicas).ok());
            let replicas = replicas.ok_or("ReviseReplica without a number of replicas")?;
            Ok(encode_fields(&job_copies::revise_replicas(&mut request.object, replicas)))
        }
        "Retain" => {
            let observed = request.observed_object.as_ref().ok_or("Retain without an observed object")?;
            Ok(patch_fields(job, &job_copies::retain_fields(job, observed)))
        }
        "AggregateStatus" => {
            let items = request.aggregated_status.as_deref().unwrap_or_default();
            let binding = match known {
                Known::Yes(binding) => Some(binding),
                Known::No => None,
                // No copy has ended: a plan that was not seen yet changes nothing of what is said.
                Known::Unread => cache.bindings.get(&request.binding_key()),
                Known::Failed(error) => return Err(format!("failed to read its binding: {error}")),
            };
            Ok(patch_fields(job, &statuses::aggregate_status(job, items, binding)))
        }
        "InterpretStatus" => Ok(to_fields([("rawStatus", statuses::restore_forgotten_counts(job))])),
        "InterpretHealth" => Ok(to_fields([("healthy", statuses::is_healthy(job).into())])),
        "InterpretDependency" => {
            Ok(to_fields([("dependencies", dependencies::list_dependencies(job, &request.namespace))]))
        }
        other => Err(format!("operation {other:?} is not known")),
    }
}

/// Whether an object has the shape that the operations write into.
fn check_shape(job: &Value, what: &str) -> Result<(), String> {
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

fn to_fields<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A patch from `old` to `new`; nothing where they are equal.
fn patch_fields(old: &Value, new: &Value) -> Map<String, Value> {
    encode_fields(&patch_between(old, new))
}

fn encode_fields(patch: &[PatchOperation]) -> Map<String, Value> {
    if patch.is_empty() {
        return Map::new();
    }
    to_fields([("patchType", "JSONPatch".into()), ("patch", encode_patch(patch).into())])
}

#[cfg(test)]
mod tests;
