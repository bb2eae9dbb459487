//! Pods whose binding was sent and is not seen yet. They count as on their node, as a pod that the scheduler's cache
//! assumes (`AddBindTask` in Volcano's `pkg/scheduler/cache/cache.go`), so that no other pod gets their room.
//!
//! An assumption ends when the watch shows the pod with a node, or gone, or when the binding failed. What a watch says
//! of the pod before that is older than the binding.

use std::collections::BTreeMap;

use caldera_runtime::write::Body;

use super::{
    facts::PodFacts,
    object::{Key, text},
    want::{Landing, Want},
};

/// By pod.
#[derive(Debug, Default)]
pub(super) struct AssumedBindings(BTreeMap<Key, Assumption>);

#[derive(Debug)]
struct Assumption {
    node: String,
    /// The server has it: only the watch ends it.
    is_stored: bool,
}

impl AssumedBindings {
    /// A write is sent; if it binds this pod, that is on its node from now on.
    pub(super) fn assume(&mut self, want: &Want, pod: &mut PodFacts) {
        if let Body::Create(binding) = &want.write.body
            && want.write.subresource == Some("binding")
        {
            let node = text(binding, "/target/name").to_owned();
            pod.node.clone_from(&node);
            self.0.insert(want.about.1.clone(), Assumption { node, is_stored: false });
        }
    }

    /// A pod is seen: on its node, or where it is assumed.
    pub(super) fn fill_node(&mut self, pod: &Key, facts: &mut PodFacts) {
        if !facts.node.is_empty() {
            self.0.remove(pod);
        } else if let Some(assumption) = self.0.get(pod) {
            facts.node.clone_from(&assumption.node);
        }
    }

    /// A write about a pod was answered; true if its binding failed.
    pub(super) fn land(&mut self, pod: &Key, landing: &Landing) -> bool {
        let Some(assumption) = self.0.get_mut(pod).filter(|assumption| !assumption.is_stored) else { return false };
        if matches!(landing, Landing::Written(_)) {
            assumption.is_stored = true;
            return false;
        }
        self.0.remove(pod);
        true
    }

    /// A pod is gone.
    pub(super) fn forget(&mut self, pod: &Key) {
        self.0.remove(pod);
    }
}
