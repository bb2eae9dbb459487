//! Writes on their way: what they will change counts from when they are sent, and what became of them from the answer.

use caldera_runtime::write::Body;
use serde_json::Value;

use super::{Kind, Landing, ObjectKey, Want, World};
use crate::member::object::text;

impl World {
    /// Whether a write to this object is on its way.
    #[must_use]
    pub fn is_in_flight(&self, at: &ObjectKey) -> bool {
        self.in_flight.contains_key(at)
    }

    /// Of a kind that is not watched: whether the object is there, where a write told.
    #[must_use]
    pub fn is_there(&self, at: &ObjectKey) -> Option<bool> {
        self.there.get(at).copied()
    }

    /// Whether the data of `object` is what was written last.
    #[must_use]
    pub fn has_written(&self, at: &ObjectKey, object: &Value) -> bool {
        self.written.get(at) == object.get("data")
    }

    /// Marks a write as on its way; false if one already is.
    pub fn take_off(&mut self, want: &Want) -> bool {
        if self.in_flight.contains_key(&want.about) {
            return false;
        }
        let data = match &want.write.body {
            Body::Create(object) | Body::MergePatch(object) if want.about.0 == Kind::ConfigMap => object.get("data"),
            _ => None,
        };
        self.in_flight.insert(want.about.clone(), data.cloned());
        if want.about.0 == Kind::Pod
            && let Body::Delete { uid: Some(uid) } = &want.write.body
        {
            self.killed.insert(uid.clone());
        }
        if let Some(pod) = self.pods.get_mut(&want.about.1) {
            self.assumed.assume(want, pod);
        }
        true
    }

    /// Takes in what became of a write.
    pub fn land(&mut self, at: &ObjectKey, landing: Landing) {
        let data = self.in_flight.remove(at).flatten();
        let (kind, key) = at;
        let watched = Kind::WATCHED.contains(kind);
        if let (Some(data), Landing::Written(_)) = (data, &landing) {
            self.written.insert(at.clone(), data);
        }
        if *kind == Kind::Pod
            && self.assumed.land(key, &landing)
            && let Some(pod) = self.get(*kind, key).cloned()
        {
            self.remember_pod(key, &pod);
        }
        match landing {
            Landing::Written(_) | Landing::Exists if !watched => drop(self.there.insert(at.clone(), true)),
            Landing::Deleted | Landing::Gone if !watched => drop(self.there.insert(at.clone(), false)),
            // Answers of subresources such as `binding` are a Status, not the object.
            Landing::Written(object) if text(&object, "/kind") == kind.resource().kind => self.remember(*kind, object),
            Landing::Deleted if *kind == Kind::Command => {
                if let Some(command) = self.get(*kind, key).cloned() {
                    self.accept(&command);
                    self.forget(*kind, key);
                }
            }
            Landing::Gone => self.forget(*kind, key),
            // What was left out because its write was on its way is to be looked at again.
            Landing::Failed => {
                if let Some(object) = self.get(*kind, key).cloned() {
                    self.touch(*kind, &object);
                }
            }
            Landing::Written(_) | Landing::Deleted | Landing::Exists => {}
        }
    }
}
