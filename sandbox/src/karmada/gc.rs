//! Kubernetes' garbage collector: what outlives all its owners goes.
//!
//! Rule: kubernetes `pkg/controller/garbagecollector`: background (owners gone, dependents deleted), foreground
//! (blocking dependents first, then the finalizer), orphan (references removed, then the finalizer). A reference to a
//! uid that does not exist counts as gone. Real members have kube-controller-manager for this; so may the host.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tracing::debug;

use super::{
    api::{Change, Delete, Server, lock_state},
    object::{Gvk, ObjectExt, ObjectKey},
    queue::{Failure, Next, Queue},
};

/// The writer's name.
pub const COLLECTOR: &str = "kube-controller-manager(garbage-collector)";
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
/// After what it saw: in recordings an object goes 15 to 30 ms after its owner, and controllers that watch the same
/// come first.
const LAG: Duration = Duration::from_millis(15);

/// Who depends on whom, of what was seen.
#[derive(Debug, Default)]
struct Graph {
    objects: BTreeMap<String, ObjectKey>,
    dependents: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    fn add(&mut self, object: &Value) {
        let uid = object.uid().to_owned();
        self.objects.insert(uid.clone(), ObjectKey::of(object));
        for owner in object.items("/metadata/ownerReferences") {
            self.dependents.entry(owner.text("/uid").to_owned()).or_default().insert(uid.clone());
        }
    }

    /// Forgets an object; its dependents are the answer.
    fn remove(&mut self, object: &Value) -> Vec<ObjectKey> {
        self.objects.remove(object.uid());
        for owner in object.items("/metadata/ownerReferences") {
            if let Some(dependents) = self.dependents.get_mut(owner.text("/uid")) {
                dependents.remove(object.uid());
            }
        }
        self.dependents_of(object.uid())
    }

    fn dependents_of(&self, uid: &str) -> Vec<ObjectKey> {
        let all = self.dependents.get(uid).into_iter().flatten();
        all.filter_map(|uid| self.objects.get(uid).cloned()).collect()
    }

    fn owners_missing(&self, object: &Value) -> bool {
        object.items("/metadata/ownerReferences").iter().any(|owner| !self.objects.contains_key(owner.text("/uid")))
    }
}

/// What to do about an object, by the state of its owners.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// It has an owner that lives.
    Keep,
    /// It has one that lives and others that do not: only the first stay.
    Forget(Vec<Value>),
    /// All are gone, or wait for it.
    Delete(&'static str),
}

/// How an owner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Solid,
    Gone,
    WaitsForDependents,
}

fn judge_object(object: &Value, owners: &[Owner], has_dependents: bool) -> Verdict {
    let references = object.items("/metadata/ownerReferences");
    if owners.contains(&Owner::Solid) {
        if owners.iter().all(|owner| *owner == Owner::Solid) {
            return Verdict::Keep;
        }
        let solid = references.iter().zip(owners).filter(|(_, owner)| **owner == Owner::Solid);
        return Verdict::Forget(solid.map(|(reference, _)| reference.clone()).collect());
    }
    Verdict::Delete(if owners.contains(&Owner::WaitsForDependents) && has_dependents {
        "Foreground"
    } else if object.has_finalizer(ORPHAN) {
        "Orphan"
    } else if object.has_finalizer(FOREGROUND) {
        "Foreground"
    } else {
        "Background"
    })
}

/// The collector of one server.
pub struct Collector {
    server: Arc<Server>,
    graph: Mutex<Graph>,
    queue: Arc<Queue<ObjectKey>>,
    kinds: Mutex<BTreeSet<Gvk>>,
}

impl Collector {
    /// Starts to collect. Kinds are added with `follow` as they are discovered.
    #[must_use]
    pub fn start(server: &Arc<Server>) -> Arc<Self> {
        let collector = Arc::new(Self {
            server: server.clone(),
            graph: Mutex::default(),
            queue: Queue::new("garbage-collector", server.shutdown().clone()),
            kinds: Mutex::default(),
        });
        let own = collector.clone();
        collector.queue.run(8, move |key| {
            let own = own.clone();
            async move { own.collect_object(&key).await }
        });
        collector
    }

    /// Looks after a kind, from now on.
    pub fn follow_kind(self: &Arc<Self>, gvk: &Gvk) {
        if gvk.kind == "Event" || !lock_state(&self.kinds).insert(gvk.clone()) {
            return;
        }
        let own = self.clone();
        self.server.add_handler(gvk, Arc::new(move |change: &Change| own.observe_change(change)));
    }

    fn observe_change(&self, change: &Change) {
        let mut wanted = Vec::new();
        match (&change.old, &change.new) {
            (_, Some(new)) => {
                let mut graph = lock_state(&self.graph);
                graph.add(new);
                let ends = new.is_deleting() && (new.has_finalizer(FOREGROUND) || new.has_finalizer(ORPHAN));
                if ends || (!new.is_deleting() && graph.owners_missing(new)) {
                    wanted.push(ObjectKey::of(new));
                }
            }
            (Some(old), None) => {
                let mut graph = lock_state(&self.graph);
                wanted = graph.remove(old);
                // An owner in foreground deletion may wait for this one.
                for owner in old.items("/metadata/ownerReferences") {
                    wanted.extend(graph.objects.get(owner.text("/uid")).cloned());
                }
            }
            (None, None) => {}
        }
        for key in wanted {
            self.queue.add_after(key, LAG);
        }
    }

    async fn collect_object(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(object) = self.server.get_live(&key.gvk, &key.namespace, &key.name).await? else {
            return Ok(Next::Done);
        };
        if object.is_deleting() {
            if object.has_finalizer(ORPHAN) {
                return self.orphan_dependents(&object).await;
            }
            if object.has_finalizer(FOREGROUND) {
                return self.delete_dependents_first(&object).await;
            }
            return Ok(Next::Done);
        }
        let references = object.items("/metadata/ownerReferences");
        if references.is_empty() {
            return Ok(Next::Done);
        }
        let mut owners = Vec::new();
        for reference in references {
            owners.push(self.find_owner(&object, reference).await?);
        }
        let writer = self.server.writer(COLLECTOR);
        let has_dependents = !lock_state(&self.graph).dependents_of(object.uid()).is_empty();
        match judge_object(&object, &owners, has_dependents) {
            Verdict::Keep => {}
            Verdict::Forget(solid) => {
                let patch = json!({"metadata": {"uid": object.uid(), "resourceVersion": object.resource_version(), "ownerReferences": solid}});
                writer.merge(key, "", &patch).await?;
            }
            Verdict::Delete(propagation) => {
                debug!(server = self.server.name, kind = %key.gvk, name = key.name, "collecting");
                let how = Delete {
                    propagation: Some(propagation),
                    uid: Some(object.uid().to_owned()),
                    resource_version: Some(object.resource_version().to_owned()),
                };
                writer.delete(key, &how).await?;
            }
        }
        Ok(Next::Done)
    }

    async fn find_owner(&self, object: &Value, reference: &Value) -> Result<Owner, Failure> {
        let gvk = Gvk::new(reference.text("/apiVersion"), reference.text("/kind"));
        let namespace = match self.server.resource(&gvk).await {
            Ok(resource) if resource.namespaced => object.namespace(),
            Ok(_) => "",
            // A kind that is not served has no objects.
            Err(error) if error.is_not_found() => return Ok(Owner::Gone),
            Err(error) => return Err(error.into()),
        };
        let owner = self.server.get_live(&gvk, namespace, reference.text("/name")).await?;
        Ok(match owner.filter(|owner| owner.uid() == reference.text("/uid")) {
            None => Owner::Gone,
            Some(owner) if owner.is_deleting() && owner.has_finalizer(FOREGROUND) => Owner::WaitsForDependents,
            Some(_) => Owner::Solid,
        })
    }

    async fn orphan_dependents(&self, owner: &Value) -> Result<Next, Failure> {
        let writer = self.server.writer(COLLECTOR);
        let dependents = lock_state(&self.graph).dependents_of(owner.uid());
        for key in dependents {
            let Some(dependent) = self.server.get_live(&key.gvk, &key.namespace, &key.name).await? else { continue };
            let references = dependent.items("/metadata/ownerReferences");
            let rest: Vec<&Value> = references.iter().filter(|one| one.text("/uid") != owner.uid()).collect();
            let patch = json!({"metadata": {"uid": dependent.uid(), "ownerReferences": rest}});
            writer.merge(&key, "", &patch).await?;
        }
        writer.modify(owner, "", |owner| owner.remove_finalizer(ORPHAN)).await?;
        Ok(Next::Done)
    }

    async fn delete_dependents_first(&self, owner: &Value) -> Result<Next, Failure> {
        let writer = self.server.writer(COLLECTOR);
        let mut blocked = false;
        let dependents = lock_state(&self.graph).dependents_of(owner.uid());
        for key in dependents {
            let Some(dependent) = self.server.get_live(&key.gvk, &key.namespace, &key.name).await? else { continue };
            let references = dependent.items("/metadata/ownerReferences");
            blocked |= references.iter().any(|one| one.text("/uid") == owner.uid() && one.flag("/blockOwnerDeletion"));
            if !dependent.is_deleting() {
                self.queue.add(key);
            }
        }
        if !blocked {
            writer.modify(owner, "", |owner| owner.remove_finalizer(FOREGROUND)).await?;
        }
        Ok(Next::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_lives_as_long_as_one_owner_does() {
        let object = json!({"metadata": {"ownerReferences": [{"uid": "a"}, {"uid": "b"}]}});
        assert_eq!(judge_object(&object, &[Owner::Solid, Owner::Solid], false), Verdict::Keep);
        assert_eq!(
            judge_object(&object, &[Owner::Gone, Owner::Solid], false),
            Verdict::Forget(vec![json!({"uid": "b"})])
        );
        assert_eq!(judge_object(&object, &[Owner::Gone, Owner::Gone], false), Verdict::Delete("Background"));
        assert_eq!(
            judge_object(&object, &[Owner::Gone, Owner::WaitsForDependents], true),
            Verdict::Delete("Foreground")
        );
        assert_eq!(
            judge_object(&object, &[Owner::Gone, Owner::WaitsForDependents], false),
            Verdict::Delete("Background")
        );
    }

    #[test]
    fn the_graph_knows_dependents_by_uid() {
        let mut graph = Graph::default();
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "o", "uid": "1"}});
        let dependent = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "d", "uid": "2", "ownerReferences": [{"uid": "1"}]}});
        graph.add(&dependent);
        assert!(graph.owners_missing(&dependent));
        graph.add(&owner);
        assert!(!graph.owners_missing(&dependent));
        assert_eq!(graph.remove(&owner), [ObjectKey::of(&dependent)]);
    }
}
