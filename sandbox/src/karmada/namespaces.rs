//! Namespaces of the host exist in every member.
//!
//! Rule: Karmada `pkg/controllers/namespace/namespace_sync_controller.go`: all but the reserved, `default` and `kube-*`
//! ones, and those labelled to be skipped, become a Work in every execution namespace, owned by the namespace.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    api::Change,
    binding::plan::{merge_work, record_managed},
    control::{Control, cluster_kind, work_kind},
    interpreter::prune::prune_template,
    names,
    object::{Gvk, ObjectExt},
    queue::{Failure, Next, Queue},
};

const SKIP: &str = "namespace.karmada.io/skip-auto-propagation";

fn namespace_kind() -> Gvk {
    Gvk::new("v1", "Namespace")
}

fn is_propagated(namespace: &Value) -> bool {
    let name = namespace.name();
    !names::reserved_namespace(name) && name != "default" && !namespace.label(SKIP).eq_ignore_ascii_case("true")
}

/// Starts to propagate namespaces.
pub fn run_controller(control: &Arc<Control>) {
    let queue: Arc<Queue<String>> = Queue::new("namespace", control.shutdown.clone());
    let namespaces = queue.clone();
    control.host.add_handler(
        &namespace_kind(),
        Arc::new(move |change: &Change| {
            if let Some(namespace) = change.new.as_ref().filter(|one| is_propagated(one)) {
                namespaces.add(namespace.name().to_owned());
            }
        }),
    );
    let (namespaces, own) = (queue.clone(), control.clone());
    control.host.add_handler(
        &cluster_kind(),
        Arc::new(move |change: &Change| {
            if change.old.is_none() {
                for namespace in own.host.list(&namespace_kind()).iter().filter(|one| is_propagated(one)) {
                    namespaces.add(namespace.name().to_owned());
                }
            }
        }),
    );
    let own = control.clone();
    queue.run(2, move |name| {
        let own = own.clone();
        async move { sync_namespace(&own, &name).await }
    });
}

async fn sync_namespace(control: &Control, name: &str) -> Result<Next, Failure> {
    let Some(namespace) = control.host.cached(&namespace_kind(), "", name) else { return Ok(Next::Done) };
    if namespace.is_deleting() {
        return Ok(Next::Done);
    }
    for cluster in control.host.list(&cluster_kind()) {
        if cluster.is_deleting() {
            continue;
        }
        let desired = build_work(&namespace, cluster.name());
        let outcome = match control.host.get_cached_or_live(&work_kind(), desired.namespace(), desired.name()).await? {
            Some(existing) if existing.is_deleting() => return Err(Failure("its Work is being deleted".to_owned())),
            Some(existing) => {
                control.writer.modify(&existing, "", |one| *one = merge_work(one, &desired)).await.map(drop)
            }
            None => {
                let mut new = desired.clone();
                record_managed(&mut new);
                control.writer.create(&new).await.map(drop)
            }
        };
        outcome?;
    }
    Ok(Next::Done)
}

fn build_work(namespace: &Value, cluster: &str) -> Value {
    let name = names::work_name("Namespace", namespace.name(), "");
    let execution = names::execution_namespace(cluster);
    let mut manifest = namespace.clone();
    manifest.set_label(names::MANAGED, "true");
    manifest.set_annotation(names::TEMPLATE_UID, namespace.uid());
    manifest.set_annotation(names::WORK_NAME, &name);
    manifest.set_annotation(names::WORK_NAMESPACE, &execution);
    prune_template(&mut manifest);
    json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {
            "name": name,
            "namespace": execution,
            "finalizers": [names::EXECUTION_FINALIZER],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": namespace.name(), "uid": namespace.uid(),
                "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {"workload": {"manifests": [manifest]}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_and_reserved_namespaces_stay_home() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        assert!(is_propagated(&named("team-a")));
        assert!(
            !is_propagated(&named("default"))
                && !is_propagated(&named("karmada-es-m1"))
                && !is_propagated(&named("kube-system"))
        );
    }
}
