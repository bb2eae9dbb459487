//! Volcano's queue controller: its own queues, and the states of all (`pkg/controllers/queue`).
//!
//! No state becomes Open; a closed queue with PodGroups is Closing until they are gone; what a parent's closing closed
//! opens with it again; a queue without a parent gets `root`.

use serde_json::{Value, json};

use super::{
    object::{annotation, name, text},
    world::{Kind, Want, World, want_create, want_merge},
};

const CLOSED_BY_PARENT: &str = "volcano.sh/closed-by-parent";

/// What the queue controller writes now.
#[must_use]
pub fn sync_queues(world: &World) -> Vec<Want> {
    let mut wants = Vec::new();
    for (queue, spec) in [
        ("root", json!({"weight": 1, "reclaimable": false})),
        ("default", json!({"weight": 1, "reclaimable": true, "parent": "root"})),
    ] {
        if world.named(Kind::Queue, queue).is_none() {
            let object = json!({
                "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": queue}, "spec": spec,
            });
            wants.push(want_create(Kind::Queue, object));
        }
    }
    wants.extend(world.of(Kind::Queue).filter_map(|queue| change_queue(world, queue)));
    wants
}

fn change_queue(world: &World, queue: &Value) -> Option<Want> {
    let is_root = name(queue) == "root";
    if !is_root && text(queue, "/spec/parent").is_empty() {
        return Some(want_merge(Kind::Queue, queue, None, json!({"spec": {"parent": "root"}})));
    }
    let state = text(queue, "/status/state");
    let parent = world.named(Kind::Queue, text(queue, "/spec/parent")).filter(|_| !is_root);
    let parent_closed = parent.is_some_and(|parent| is_closed(text(parent, "/status/state")));
    let parent_open = parent.is_some_and(|parent| text(parent, "/status/state") == "Open");
    let by_parent = annotation(queue, CLOSED_BY_PARENT);
    let closes = || if is_used(world, queue) { "Closing" } else { "Closed" };
    let asked = world.action(Kind::Queue, queue).map_or("", |action| action.name.as_str());
    let next = match state {
        "" => "Open",
        "Closed" | "Closing" if asked == "OpenQueue" && !parent_closed => "Open",
        "Closed" | "Closing" if parent_open && by_parent == "true" => "Open",
        "Closing" => closes(),
        "Open" | "Unknown" if asked == "CloseQueue" => closes(),
        "Open" | "Unknown" if parent_closed && by_parent == "true" => closes(),
        "Open" | "Unknown" if parent_closed => {
            return Some(mark_closed(queue, "true"));
        }
        "Open" | "Closed" => state,
        _ => "Unknown",
    };
    if next != state {
        return Some(want_merge(Kind::Queue, queue, Some("status"), json!({"status": {"state": next}})));
    }
    // Opened: whoever closed it, it is no longer closed by its parent.
    (state == "Open" && by_parent == "true" && !parent_closed && !is_from_host(queue))
        .then(|| mark_closed(queue, "false"))
}

/// The mark came with the queue from the host, where its parent is closed. Volcano takes marks away only in the moment
/// that it opens a queue; to take away this one would be undone by Karmada, for ever.
fn is_from_host(queue: &Value) -> bool {
    annotation(queue, "resourcetemplate.karmada.io/managed-annotations").split(',').any(|key| key == CLOSED_BY_PARENT)
}

fn mark_closed(queue: &Value, closed_by_parent: &str) -> Want {
    let annotations = json!({"metadata": {"annotations": {CLOSED_BY_PARENT: closed_by_parent}}});
    want_merge(Kind::Queue, queue, None, annotations)
}

fn is_closed(state: &str) -> bool {
    matches!(state, "Closed" | "Closing")
}

fn is_used(world: &World, queue: &Value) -> bool {
    world.of(Kind::PodGroup).any(|group| match text(group, "/spec/queue") {
        "" => name(queue) == "default",
        of => of == name(queue),
    })
}

/// Deletes the Commands: one that is deleted is carried out, so that it is carried out once.
#[must_use]
pub fn run_commands(world: &World) -> Vec<Want> {
    world.of(Kind::Command).map(|command| super::world::want_delete(Kind::Command, command)).collect()
}
