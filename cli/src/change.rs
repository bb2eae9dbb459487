//! Writes what people ask for, one object after the other, and says what became of each.
//!
//! Rule: what is written is made of the object as it is now, and fails where that has changed meanwhile; then it is
//! made anew. What only a controller may change is asked for by a Command, as Volcano's own command line does
//! (`pkg/cli/util/util.go`, `pkg/cli/queue/operate.go`). One that fails stops none of the others.

use std::{fmt::Display, process::ExitCode};

use anyhow::Context;
use caldera_runtime::write::{Body, Failure, Write, execute_write};
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    core::ApiResource,
};
use serde_json::{Value, json};

use crate::{
    objects::{self, annotation_path, name_of, read_text_at},
    output,
};

/// Times that an object may change while it is changed.
const MOST_CONFLICTS: usize = 5;

/// Writes what `build` makes of an object as it is now, until nobody else changed it meanwhile; false if there was
/// nothing to write.
pub async fn write_retrying_conflicts(
    client: &Client,
    build: impl AsyncFn() -> anyhow::Result<Option<Write>>,
) -> anyhow::Result<bool> {
    for _ in 0..MOST_CONFLICTS {
        let Some(write) = build().await? else { return Ok(false) };
        match execute_write(client, &write).await {
            Ok(_) => return Ok(true),
            Err(Failure::Conflict(_)) => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    anyhow::bail!("it changes all the time; try again")
}

/// A write to an object that was read.
pub fn build_write(resource: &ApiResource, object: &Value, body: Body) -> Write {
    Write {
        resource: resource.clone(),
        namespace: read_text_at(object, "/metadata/namespace").to_owned(),
        name: name_of(object).to_owned(),
        subresource: None,
        body,
    }
}

/// Deletes the very object that was read.
pub fn build_delete(resource: &ApiResource, object: &Value) -> Write {
    build_write(resource, object, build_delete_body(object))
}

/// Of the object that was read, and of no other of its name.
pub fn build_delete_body(object: &Value) -> Body {
    Body::Delete { uid: Some(read_text_at(object, "/metadata/uid").to_owned()) }
}

/// The step of a JSON patch that fails where the object has changed since it was read.
pub fn build_version_test(object: &Value) -> Value {
    json!({"op": "test", "path": "/metadata/resourceVersion", "value": object["metadata"]["resourceVersion"]})
}

/// A JSON patch that begins with that.
pub fn build_tested_patch(object: &Value, steps: impl IntoIterator<Item = Value>) -> Body {
    Body::JsonPatch([build_version_test(object)].into_iter().chain(steps).collect())
}

/// The step that sets an annotation.
pub fn build_annotation_step(object: &Value, name: &str, value: &str) -> Value {
    if object["metadata"]["annotations"].is_object() {
        json!({"op": "add", "path": annotation_path(name), "value": value})
    } else {
        json!({"op": "add", "path": "/metadata/annotations", "value": {name: value}})
    }
}

/// Asks the controller to do something with an object, and says the Command's name.
///
/// # Errors
/// If the server does not take it.
pub async fn create_command(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
    target: &Value,
    action: &str,
) -> anyhow::Result<String> {
    let commands: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &objects::command_resource());
    let command = build_command(namespace, resource, target, action);
    let command = serde_json::from_value(command).context("failed to build a Command")?;
    let made = commands.create(&PostParams::default(), &command).await.context("failed to create a Command")?;
    Ok(made.metadata.name.unwrap_or_default())
}

fn build_command(namespace: &str, resource: &ApiResource, target: &Value, action: &str) -> Value {
    let name = name_of(target);
    json!({
        "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command",
        "metadata": {"generateName": format!("{name}-{}-", action.to_lowercase()), "namespace": namespace},
        "action": action,
        "target": {
            "apiVersion": resource.api_version, "kind": resource.kind, "name": name,
            "uid": read_text_at(target, "/metadata/uid"), "controller": true,
        },
    })
}

/// Says what was done to an object, or why not; whether it was.
pub fn print_outcome(named: &str, outcome: anyhow::Result<impl Display>) -> bool {
    match &outcome {
        Ok(done) => output::write_stdout(&format!("{named} {done}\n")),
        Err(error) => output::write_warning(&format!("{named}: {error:#}")),
    }
    outcome.is_ok()
}

/// Whether all was done.
pub fn to_exit_code(all_done: bool) -> ExitCode {
    if all_done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_the_very_object_that_was_seen() {
        let queue = json!({"metadata": {"name": "q", "uid": "u"}});
        let command = build_command("ns", &objects::queue_resource(), &queue, "CloseQueue");
        let target = json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": "q", "uid": "u", "controller": true,
        });
        assert_eq!((&command["action"], &command["target"]), (&json!("CloseQueue"), &target));
        assert_eq!(command["metadata"], json!({"generateName": "q-closequeue-", "namespace": "ns"}));
    }
}
