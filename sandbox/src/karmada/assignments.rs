//! FederatedResourceQuota: what its static assignments put into members.
//!
//! Rule: Karmada `pkg/controllers/federatedresourcequota/federated_resource_quota_{sync,status}_controller.go`: a Work
//! with a ResourceQuota in every cluster that an assignment names, and none elsewhere; what members say of them is the
//! quota's `aggregatedStatus`, and without the gate `FederatedQuotaEnforcement` its `overallUsed` their sum.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    admission::quota,
    api::{Change, Delete},
    binding::plan::{merge_work, record_managed},
    control::{Control, Named, cluster_kind, work_kind},
    names,
    object::{Gvk, ObjectExt, ObjectKey, Shared, condition_status},
    queue::{Failure, Next, Queue},
};

const NAMESPACE: &str = "federatedresourcequota.karmada.io/namespace";
const NAME: &str = "federatedresourcequota.karmada.io/name";

fn quota_kind() -> Gvk {
    Gvk::new("policy.karmada.io/v1alpha1", "FederatedResourceQuota")
}

/// Starts to bring assignments to members, and to report what became of them.
pub fn run_controllers(control: &Arc<Control>) {
    let (works, statuses): (Arc<Queue<Named>>, Arc<Queue<Named>>) =
        (Queue::new("quota-works", control.shutdown.clone()), Queue::new("quota-status", control.shutdown.clone()));
    let (sync, collect) = (works.clone(), statuses.clone());
    control.host.add_handler(
        &quota_kind(),
        Arc::new(move |change: &Change| {
            let Some(quota) = change.latest() else { return };
            let key = (quota.namespace().to_owned(), quota.name().to_owned());
            let assigned = |quota: &Shared| quota.pointer("/spec/staticAssignments").cloned();
            if change.old.as_ref().map(assigned) != change.new.as_ref().map(assigned) {
                sync.add(key.clone());
            }
            collect.add(key);
        }),
    );
    let collect = statuses.clone();
    control.host.add_handler(
        &work_kind(),
        Arc::new(move |change: &Change| {
            let Some(work) = change.latest() else { return };
            let told = match (&change.old, &change.new) {
                (Some(old), Some(new)) => old.get("status") != new.get("status"),
                (old, _) => old.is_some(),
            };
            if told && !work.label(NAME).is_empty() {
                collect.add((work.label(NAMESPACE).to_owned(), work.label(NAME).to_owned()));
            }
        }),
    );
    let own = control.clone();
    works.run(1, move |(namespace, name)| {
        let own = own.clone();
        async move { sync_works(&own, &namespace, &name).await }
    });
    let own = control.clone();
    statuses.run(1, move |(namespace, name)| {
        let own = own.clone();
        async move { collect_status(&own, &namespace, &name).await }
    });
}

async fn sync_works(control: &Control, namespace: &str, name: &str) -> Result<Next, Failure> {
    let quota = control.host.get_live(&quota_kind(), namespace, name).await?;
    let wanted: Vec<Value> = quota
        .iter()
        .flat_map(|quota| quota.items("/spec/staticAssignments"))
        .filter(|one| control.host.cached(&cluster_kind(), "", one.text("/clusterName")).is_some())
        .map(|one| build_work(namespace, name, one))
        .collect();
    for work in works_of(control, namespace, name) {
        if wanted.iter().all(|wanted| wanted.namespace() != work.namespace()) {
            control.writer.delete(&ObjectKey::of(&work), &Delete::default()).await?;
        }
    }
    for mut desired in wanted {
        match control.host.get_cached_or_live(&work_kind(), desired.namespace(), desired.name()).await? {
            Some(existing) => {
                control.writer.modify(&existing, "", |one| *one = merge_work(one, &desired)).await?;
            }
            None => {
                record_managed(&mut desired);
                control.writer.create(&desired).await?;
            }
        }
    }
    Ok(Next::Done)
}

fn works_of(control: &Control, namespace: &str, name: &str) -> Vec<Shared> {
    let mine = |work: &Shared| work.label(NAMESPACE) == namespace && work.label(NAME) == name;
    control.host.list(&work_kind()).into_iter().filter(mine).collect()
}

fn build_work(namespace: &str, name: &str, assignment: &Value) -> Value {
    let execution = names::execution_namespace(assignment.text("/clusterName"));
    let work = names::work_name("ResourceQuota", name, namespace);
    // The quota of the host is no template: there is no uid.
    let manifest = json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {names::MANAGED: "true"},
            "annotations": {names::TEMPLATE_UID: "", names::WORK_NAME: work, names::WORK_NAMESPACE: execution},
        },
        "spec": {"hard": assignment["hard"]},
    });
    json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {
            "name": work,
            "namespace": execution,
            "finalizers": [names::EXECUTION_FINALIZER],
            "labels": {NAMESPACE: namespace, NAME: name},
        },
        "spec": {"workload": {"manifests": [manifest]}},
    })
}

async fn collect_status(control: &Control, namespace: &str, name: &str) -> Result<Next, Failure> {
    let Some(live) = control.host.get_live(&quota_kind(), namespace, name).await? else { return Ok(Next::Done) };
    if live.is_deleting() {
        return Ok(Next::Done);
    }
    let items = aggregate_works(&works_of(control, namespace, name));
    let enforced = control.gates.federated_quota;
    let write = |quota: &mut Value| {
        quota.put_or_remove(&["status", "aggregatedStatus"], (!items.is_empty()).then(|| json!(items)));
        if !enforced {
            let overall = quota.present("/spec/overall").cloned();
            quota.put_or_remove(&["status", "overall"], overall);
            quota.put_or_remove(&["status", "overallUsed"], quota::sum_of_lists(items.iter().map(|one| &one["used"])));
        }
    };
    control.writer.modify(&live, "status", write).await?;
    Ok(Next::Done)
}

/// What members say, of those whose quota is there and has been looked at.
fn aggregate_works(works: &[Shared]) -> Vec<Value> {
    let told = |work: &Shared| {
        let first = work.items("/status/manifestStatuses").first()?;
        let mut item = json!({"clusterName": names::cluster_of(work.namespace())?});
        for field in ["hard", "used"] {
            item.put_or_remove(&[field], first.present(&format!("/status/{field}")).cloned());
        }
        (condition_status(work, "Applied") == "True").then_some(item)
    };
    let mut items: Vec<Value> = works.iter().filter_map(told).collect();
    items.sort_by(|a, b| a.text("/clusterName").cmp(b.text("/clusterName")));
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_members_that_have_their_part_are_told_of() {
        let work = |cluster: &str, applied: &str, statuses: Value| -> Shared {
            Arc::new(json!({"metadata": {"namespace": format!("karmada-es-{cluster}")}, "status": {
                "conditions": [{"type": "Applied", "status": applied}], "manifestStatuses": statuses}}))
        };
        let used = json!([{"status": {"hard": {"cpu": "3"}, "used": {"cpu": "1"}}}]);
        let works = [work("m3", "True", json!([])), work("m2", "True", used.clone()), work("m1", "False", used)];
        let told = json!({"clusterName": "m2", "hard": {"cpu": "3"}, "used": {"cpu": "1"}});
        assert_eq!(aggregate_works(&works), [told]);
    }
}
