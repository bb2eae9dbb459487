//! Kubernetes' namespace controller: a namespace that is being deleted loses its content, then goes.
//!
//! Rule: kubernetes `pkg/controller/namespace/deletion`: five seconds after it was last changed everything deletable in
//! it is deleted, kind by kind; while something is left (finalizers) the namespace says what, and is looked at again.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use caldera_runtime::clock::{SharedClock, format_time};
use serde_json::{Value, json};

use super::{
    api::{ApiError, Change, Resource, Server},
    object::{Gvk, ObjectExt, set_condition},
    queue::{Failure, Next, Queue},
};

/// The writer's name.
pub const EMPTIER: &str = "kube-controller-manager(namespace)";
/// So that every API server knows that nothing more may be created there.
const GRACE: Duration = Duration::from_secs(5);
/// The namespace's own finalizer, in its spec.
const FINALIZER: &str = "kubernetes";

fn namespace_kind() -> Gvk {
    Gvk::new("v1", "Namespace")
}

fn is_terminating(namespace: &Value) -> bool {
    namespace.is_deleting() && namespace.items("/spec/finalizers").iter().any(|one| one == FINALIZER)
}

/// Starts to look after a server's namespaces.
pub fn run_controller(server: &Arc<Server>, clock: SharedClock) {
    let queue: Arc<Queue<String>> = Queue::new("namespace-deletion", server.shutdown().clone());
    let namespaces = queue.clone();
    server.add_handler(
        &namespace_kind(),
        Arc::new(move |change: &Change| {
            let began = |change: &Change| change.old.as_ref().is_none_or(|old| !is_terminating(old));
            if let Some(namespace) = change.new.as_ref().filter(|new| is_terminating(new) && began(change)) {
                namespaces.add_after(namespace.name().to_owned(), GRACE);
            }
        }),
    );
    let own = server.clone();
    queue.run(2, move |name| {
        let (own, clock) = (own.clone(), clock.clone());
        async move { empty_namespace(&own, &clock, &name).await }
    });
}

async fn empty_namespace(server: &Arc<Server>, clock: &SharedClock, name: &str) -> Result<Next, Failure> {
    let Some(namespace) = server.get_live(&namespace_kind(), "", name).await?.filter(is_terminating) else {
        return Ok(Next::Done);
    };
    let mut left = Left::default();
    for resource in server.discover_all().await? {
        if resource.namespaced && ["delete", "list"].iter().all(|verb| resource.verbs.iter().any(|one| one == verb)) {
            delete_contents(server, &resource, name, &mut left).await?;
        }
    }
    let writer = server.writer(EMPTIER);
    let now = format_time(clock.now());
    let told = writer.modify(&namespace, "status", |namespace| {
        let mut conditions = namespace.items("/status/conditions").to_vec();
        for condition in left.conditions() {
            set_condition(&mut conditions, condition, &now);
        }
        namespace.put(&["status", "conditions"], json!(conditions));
    });
    let Some(told) = told.await? else { return Ok(Next::Done) };
    if !left.kinds.is_empty() {
        return Ok(Next::After(GRACE));
    }
    let finalized = writer.modify(&told, "finalize", |namespace| {
        let mut finalizers = namespace.items("/spec/finalizers").to_vec();
        finalizers.retain(|one| one != FINALIZER);
        namespace.put(&["spec", "finalizers"], json!(finalizers));
    });
    finalized.await?;
    Ok(Next::Done)
}

/// Deletes what there is of a kind, and counts what stays.
async fn delete_contents(
    server: &Arc<Server>,
    resource: &Resource,
    namespace: &str,
    left: &mut Left,
) -> Result<(), ApiError> {
    let list = server.live_in(resource, namespace).await?;
    if list.is_empty() {
        return Ok(());
    }
    server.writer(EMPTIER).delete_all(resource, namespace).await?;
    for object in server.live_in(resource, namespace).await? {
        *left.kinds.entry(resource.group_resource()).or_default() += 1;
        for finalizer in object.items("/metadata/finalizers").iter().filter_map(Value::as_str) {
            *left.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }
    Ok(())
}

/// What is still there after everything was deleted.
#[derive(Debug, Default)]
struct Left {
    /// Objects by `resource.group`.
    kinds: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

impl Left {
    /// The namespace's conditions, in Kubernetes' words.
    fn conditions(&self) -> [Value; 5] {
        let condition = |kind: &str, status: bool, reason: &str, message: String| json!({"type": kind, "status": if status { "True" } else { "False" }, "reason": reason, "message": message});
        let listed = |all: &BTreeMap<String, usize>, verb: &str| {
            let all: Vec<String> =
                all.iter().map(|(name, count)| format!("{name} {verb} {count} resource instances")).collect();
            all.join(", ")
        };
        let content = match self.kinds.is_empty() {
            true => ("ContentRemoved", "All content successfully removed".to_owned()),
            false => ("SomeResourcesRemain", format!("Some resources are remaining: {}", listed(&self.kinds, "has"))),
        };
        let finalizers = match self.finalizers.is_empty() {
            true => ("ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned()),
            false => (
                "SomeFinalizersRemain",
                format!("Some content in the namespace has finalizers remaining: {}", listed(&self.finalizers, "in")),
            ),
        };
        let fine = |kind: &str, reason: &str, message: &str| condition(kind, false, reason, message.to_owned());
        [
            fine("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
            fine(
                "NamespaceDeletionGroupVersionParsingFailure",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            fine(
                "NamespaceDeletionContentFailure",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            condition("NamespaceContentRemaining", !self.kinds.is_empty(), content.0, content.1),
            condition("NamespaceFinalizersRemaining", !self.finalizers.is_empty(), finalizers.0, finalizers.1),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_says_what_keeps_it() {
        let left = Left {
            kinds: BTreeMap::from([("works.work.karmada.io".to_owned(), 2)]),
            finalizers: BTreeMap::from([("karmada.io/execution-controller".to_owned(), 2)]),
        };
        let conditions = left.conditions();
        assert_eq!(
            conditions[3]["message"],
            "Some resources are remaining: works.work.karmada.io has 2 resource instances"
        );
        assert_eq!(
            conditions[4]["message"],
            "Some content in the namespace has finalizers remaining: karmada.io/execution-controller in 2 resource instances"
        );
        assert!(Left::default().conditions().iter().all(|condition| condition["status"] == "False"));
    }

    #[test]
    fn only_a_namespace_that_goes_is_emptied() {
        let mut namespace = json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}});
        assert!(!is_terminating(&namespace));
        namespace.put(&["metadata", "deletionTimestamp"], json!("2026-01-01T00:00:00Z"));
        assert!(is_terminating(&namespace));
        namespace.put(&["spec", "finalizers"], json!([]));
        assert!(!is_terminating(&namespace));
    }
}
