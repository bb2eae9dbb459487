//! Who may speak to a member through the host's proxy is known in the member.
//!
//! Rule: Karmada `pkg/controllers/unifiedauth`: for each cluster with an impersonator two Works, a ClusterRole that
//! lets Karmada's account impersonate all who may use `clusters/proxy` on the host, and its binding. When the cluster
//! comes, and when a role that names it, or a binding to such a role, comes, changes or goes.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};

use super::{
    api::Change,
    binding::plan::{merge_work, record_managed},
    control::{Control, cluster_kind, work_kind},
    events::About,
    interpreter::prune::prune_template,
    names,
    object::{Gvk, ObjectExt, Shared},
    queue::{Failure, Next, Queue},
};

const SOURCE: &str = "unified-auth-controller";
const NAME: &str = "karmada-impersonator";
const GROUP: &str = "rbac.authorization.k8s.io";

fn role_kind() -> Gvk {
    Gvk::new("rbac.authorization.k8s.io/v1", "ClusterRole")
}

fn role_binding_kind() -> Gvk {
    Gvk::new("rbac.authorization.k8s.io/v1", "ClusterRoleBinding")
}

/// Whether a role lets its subjects use the proxy of a cluster.
fn reaches_cluster(role: &Value, cluster: &str) -> bool {
    let names = |rule: &Value, list: &str, one: &str| rule.items(list).iter().any(|item| item == one || item == "*");
    role.items("/rules").iter().any(|rule| {
        let by_name = rule.items("/resourceNames").is_empty()
            || rule.items("/resourceNames").iter().any(|name| name.as_str() == Some(cluster));
        let proxy = names(rule, "/apiGroups", "cluster.karmada.io") && names(rule, "/resources", "clusters/proxy");
        let search = names(rule, "/apiGroups", "search.karmada.io") && names(rule, "/resources", "proxying/proxy");
        proxy && by_name || search
    })
}

/// What the ClusterRole allows: to impersonate every subject of a role that reaches the cluster.
fn list_rules(cluster: &str, roles: &[Shared], bindings: &[Shared]) -> Vec<Value> {
    let reaching: BTreeSet<&str> =
        roles.iter().filter(|role| reaches_cluster(role, cluster)).map(|role| role.name()).collect();
    let subjects: Vec<&Value> = bindings
        .iter()
        .filter(|one| one.text("/roleRef/kind") == "ClusterRole" && reaching.contains(one.text("/roleRef/name")))
        .flat_map(|one| one.items("/subjects"))
        .collect();
    [("User", "users"), ("ServiceAccount", "serviceaccounts"), ("Group", "groups")]
        .into_iter()
        .filter_map(|(kind, resource)| {
            let names: BTreeSet<&str> =
                subjects.iter().filter(|one| one.text("/kind") == kind).map(|one| one.text("/name")).collect();
            (!names.is_empty()).then(|| {
                json!({"verbs": ["impersonate"], "apiGroups": [""], "resources": [resource], "resourceNames": names})
            })
        })
        .collect()
}

fn build_manifests(cluster: &Value, rules: Vec<Value>) -> [Value; 2] {
    let metadata = json!({"name": NAME, "labels": {"karmada.io/system": "true"}});
    let rules = if rules.is_empty() { Value::Null } else { Value::Array(rules) };
    let role = json!({"apiVersion": role_kind().api_version(), "kind": "ClusterRole", "metadata": metadata,
        "rules": rules});
    let account = json!({"kind": "ServiceAccount", "name": NAME,
        "namespace": cluster.text("/spec/impersonatorSecretRef/namespace")});
    let binding = json!({"apiVersion": role_binding_kind().api_version(), "kind": "ClusterRoleBinding",
        "metadata": metadata, "subjects": [account],
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": NAME}});
    [role, binding]
}

fn build_work(cluster: &Value, mut manifest: Value) -> Value {
    let name = names::work_name(manifest.text("/kind"), manifest.name(), "");
    let execution = names::execution_namespace(cluster.name());
    manifest.set_label(names::MANAGED, "true");
    manifest.set_annotation(names::TEMPLATE_UID, "");
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
            "ownerReferences": [{"apiVersion": cluster.text("/apiVersion"), "kind": "Cluster", "name": cluster.name(),
                "uid": cluster.uid(), "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {"workload": {"manifests": [manifest]}},
    })
}

/// Starts to tell members who may impersonate whom.
pub fn run_controller(control: &Arc<Control>) {
    let queue: Arc<Queue<String>> = Queue::new("impersonation", control.shutdown.clone());
    let clusters = queue.clone();
    control.host.add_handler(
        &cluster_kind(),
        Arc::new(move |change: &Change| {
            if let (None, Some(cluster)) = (&change.old, &change.new) {
                clusters.add(cluster.name().to_owned());
            }
        }),
    );
    let (clusters, own) = (queue.clone(), control.clone());
    control.host.add_handler(
        &role_kind(),
        Arc::new(move |change: &Change| {
            requeue_reached(&own, &clusters, change.old.iter().chain(&change.new));
        }),
    );
    let (clusters, own) = (queue.clone(), control.clone());
    control.host.add_handler(
        &role_binding_kind(),
        Arc::new(move |change: &Change| {
            let bindings = change.old.iter().chain(&change.new);
            let role = |one: &Shared| own.host.cached(&role_kind(), "", one.text("/roleRef/name"));
            let roles: Vec<Shared> = bindings.filter_map(role).collect();
            requeue_reached(&own, &clusters, roles.iter());
        }),
    );
    let own = control.clone();
    queue.run(2, move |name| {
        let own = own.clone();
        async move { sync_cluster(&own, &name).await }
    });
}

fn requeue_reached<'a>(control: &Control, clusters: &Queue<String>, roles: impl Iterator<Item = &'a Shared>) {
    for role in roles {
        for cluster in control.host.list(&cluster_kind()) {
            if reaches_cluster(role, cluster.name()) {
                clusters.add(cluster.name().to_owned());
            }
        }
    }
}

async fn sync_cluster(control: &Control, name: &str) -> Result<Next, Failure> {
    let Some(cluster) = control.host.cached(&cluster_kind(), "", name) else { return Ok(Next::Done) };
    if cluster.is_deleting() || cluster.present("/spec/impersonatorSecretRef").is_none() {
        return Ok(Next::Done);
    }
    for kind in [role_kind(), role_binding_kind()] {
        control.host.until_synced(&kind).await;
    }
    let rules = list_rules(name, &control.host.list(&role_kind()), &control.host.list(&role_binding_kind()));
    for manifest in build_manifests(&cluster, rules) {
        let desired = build_work(&cluster, manifest);
        if let Err(error) = write_work(control, &desired).await {
            control.events.warning(SOURCE, About::object(&cluster), "SyncImpersonationConfigFailed", &error.0);
            return Err(error);
        }
    }
    let message = "Sync impersonation config succeed.";
    control.events.normal(SOURCE, About::object(&cluster), "SyncImpersonationConfigSucceed", message);
    Ok(Next::Done)
}

async fn write_work(control: &Control, desired: &Value) -> Result<(), Failure> {
    match control.host.get_cached_or_live(&work_kind(), desired.namespace(), desired.name()).await? {
        Some(existing) if existing.is_deleting() => return Err(Failure("its Work is being deleted".to_owned())),
        Some(existing) => drop(control.writer.modify(&existing, "", |one| *one = merge_work(one, desired)).await?),
        None => {
            let mut new = desired.clone();
            record_managed(&mut new);
            drop(control.writer.create(&new).await?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, groups: &[&str], resources: &[&str], names: &[&str]) -> Shared {
        Arc::new(json!({"metadata": {"name": name},
            "rules": [{"apiGroups": groups, "resources": resources, "resourceNames": names, "verbs": ["*"]}]}))
    }

    fn binding(role: &str, subjects: &Value) -> Shared {
        Arc::new(json!({"roleRef": {"kind": "ClusterRole", "name": role}, "subjects": subjects}))
    }

    #[test]
    fn whoever_may_use_the_proxy_of_a_cluster_may_be_impersonated_there() {
        let roles = [
            role("all", &["*"], &["*"], &[]),
            role("one", &["cluster.karmada.io"], &["clusters/proxy"], &["m1"]),
            role("search", &["search.karmada.io"], &["proxying/proxy"], &["x"]),
            role("other", &["cluster.karmada.io"], &["clusters"], &[]),
        ];
        let bindings = [
            binding("all", &json!([{"kind": "Group", "name": "system:masters"}, {"kind": "User", "name": "b"}])),
            binding("one", &json!([{"kind": "User", "name": "a"}])),
            binding("search", &json!([{"kind": "ServiceAccount", "name": "s", "namespace": "n"}])),
            binding("other", &json!([{"kind": "User", "name": "nobody"}])),
        ];
        let names = |cluster: &str| -> Vec<(Value, Value)> {
            let rules = list_rules(cluster, &roles, &bindings);
            rules.into_iter().map(|rule| (rule["resources"][0].clone(), rule["resourceNames"].clone())).collect()
        };
        assert_eq!(
            names("m1"),
            [
                (json!("users"), json!(["a", "b"])),
                (json!("serviceaccounts"), json!(["s"])),
                (json!("groups"), json!(["system:masters"]))
            ]
        );
        assert_eq!(names("m2")[0], (json!("users"), json!(["b"])));
        assert!(list_rules("m1", &[], &bindings).is_empty());
    }
}
