//! What an answer to a write of ours means.
//!
//! A release that may have been stored keeps its charge until the watch shows what became of it, however late: a conflict
//! says that the binding has changed, maybe by this very release sent before. Until then the same patch is sent again, now
//! and then, which its precondition lets succeed once only, and which does succeed where the conflict was about nothing.

use std::sync::Arc;

use caldera_core::gang::QueueName;
use caldera_crds::{
    karmada::work::ResourceBinding,
    volcano::scheduling::{PodGroup, Queue},
};
use caldera_runtime::write::{Done, Failure};
use jiff::SignedDuration;
use serde_json::Value;

use super::{Index, Tag};
use crate::{
    facts::{Binding, GroupFacts, Key, QueueFacts},
    podgroup,
};

impl Index {
    pub(super) fn written(&mut self, done: Done<Tag>) {
        match done.tag {
            Tag::Release(key, version) => self.released(&key, &version, done.result),
            Tag::Evict(key) => self.evicted(&key, done.result),
            Tag::Group(key) => self.group_written(&key, done.result),
            Tag::Queue(name) => self.queue_written(&name, done.result),
            Tag::QueueState(name, version) => self.queue_state_written(&name, &version, done.result),
            Tag::QueueNote(name) => self.queue_note_written(&name, done.result),
            Tag::Command(queue, uid) => self.command_deleted(&queue, &uid, done.result),
            Tag::DefaultQueue => match done.result {
                Ok(_) | Err(Failure::Exists(_)) => {}
                Err(error) => {
                    tracing::warn!(%error, "failed to create the default queue");
                    self.default_queue_asked = !matches!(error, Failure::Transient(_));
                }
            },
            Tag::OldGroup | Tag::Tell => {
                if let Err(error) = done.result {
                    tracing::debug!(%error, "a write that is not repeated failed");
                }
            }
        }
    }

    fn released(&mut self, key: &Key, version: &Arc<str>, result: Result<Value, Failure>) {
        let now = self.now;
        let Some(entry) = self.entries.get_mut(key) else { return };
        // An answer to a release that was overtaken says nothing about the one under way.
        let current = entry.assumed.as_mut().filter(|assumed| assumed.resource_version == *version);
        let Some(assumed) = current else { return };
        match result {
            Ok(object) => match serde_json::from_value::<ResourceBinding>(object) {
                Ok(object) => self.binding(Binding::read(&object)),
                Err(error) => tracing::warn!(binding = %key, %error, "a released binding does not parse"),
            },
            Err(Failure::Gone(_)) => self.binding_gone(key),
            Err(error @ Failure::Transient(_)) => {
                assumed.attempts += 1;
                let wait = SignedDuration::from_millis(100 << assumed.attempts.min(7));
                let at = now.saturating_add(wait).unwrap_or(now);
                tracing::debug!(binding = %key, %error, "whether the release was stored is not known; sending it again");
                assumed.retry = Some(at);
                self.timers.insert((at, key.clone()));
            }
            Err(Failure::Conflict(_)) if assumed.resource_version == entry.binding.resource_version => {
                assumed.attempts += 1;
                let wait = SignedDuration::from_secs(5 << (assumed.attempts - 1).min(4));
                let at = now.saturating_add(wait).unwrap_or(now);
                assumed.retry = Some(at);
                self.timers.insert((at, key.clone()));
            }
            Err(Failure::Conflict(_)) => {
                entry.assumed = None;
                self.restand(key);
            }
            Err(error) => {
                tracing::warn!(binding = %key, %error, "the release was refused");
                let at = now.saturating_add(SignedDuration::from_secs(10)).unwrap_or(now);
                entry.assumed = None;
                entry.refused = Some((error.to_string().into(), at));
                self.timers.insert((at, key.clone()));
                self.restand(key);
            }
        }
    }

    /// One that was refused, or of which nothing is known, is decided on anew: its precondition lets no old one through.
    fn evicted(&mut self, key: &Key, result: Result<Value, Failure>) {
        if let Err(error) = &result {
            tracing::info!(binding = %key, %error, "a job was not made to give way; deciding anew");
        }
        let made = result.is_ok();
        match result.map(serde_json::from_value::<ResourceBinding>) {
            Ok(Ok(object)) => self.binding(Binding::read(&object)),
            Ok(Err(error)) => tracing::warn!(binding = %key, %error, "a binding that gave way does not parse"),
            Err(Failure::Gone(_)) => self.binding_gone(key),
            Err(_) => {}
        }
        self.eviction_answered(key, made);
    }

    fn group_written(&mut self, key: &Key, result: Result<Value, Failure>) {
        let now = self.now;
        self.writing = self.writing.saturating_sub(1);
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.group.in_flight = false;
        self.dirty.insert(key.clone());
        let wait = match result {
            Ok(object) => {
                match serde_json::from_value::<PodGroup>(object) {
                    Ok(object) => self.group(GroupFacts::read(&object)),
                    Err(error) => tracing::warn!(binding = %key, %error, "a PodGroup that we wrote does not parse"),
                }
                return;
            }
            Err(Failure::Gone(_)) => {
                if let Some(workload) = self.workloads.get(&entry.binding.workload) {
                    self.groups.remove(&podgroup::key(workload));
                }
                1
            }
            // It will be seen.
            Err(Failure::Exists(_)) => 5,
            Err(Failure::Transient(_) | Failure::Conflict(_)) => 1,
            Err(error) => {
                tracing::warn!(binding = %key, %error, "failed to write a PodGroup");
                60
            }
        };
        entry.group.not_before = now.saturating_add(SignedDuration::from_secs(wait)).ok();
    }

    fn queue_written(&mut self, name: &QueueName, result: Result<Value, Failure>) {
        let writing = self.queue_writes.entry(name.clone()).or_default();
        writing.in_flight = false;
        self.lifecycle.queue_seen(name, true);
        match result {
            Ok(object) => {
                writing.refused = None;
                if let Ok(object) = serde_json::from_value::<Queue>(object) {
                    self.queue(QueueFacts::read(&object));
                }
            }
            Err(Failure::Refused { message, .. }) => {
                tracing::warn!(queue = %name, error = message, "failed to write the status of a queue");
            }
            // Gone queues are forgotten by their event; all else is tried again with the next sweep.
            Err(_) => {
                writing.refused = None;
                self.moved = true;
            }
        }
    }
}
