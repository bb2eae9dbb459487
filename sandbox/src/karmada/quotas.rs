//! FederatedResourceQuota: its status.
//!
//! Rule: Karmada `pkg/controllers/federatedresourcequota/federated_resource_quota_enforcement_controller.go`: `overall`
//! is the spec's, `overallUsed` is counted again from all bindings when the quota changes and when a binding goes; in
//! between admission keeps it.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::{
    admission::quota,
    api::Change,
    control::{Control, Named, binding_kind},
    object::{Gvk, ObjectExt},
    queue::{Failure, Next, Queue},
};

fn quota_kind() -> Gvk {
    Gvk::new("policy.karmada.io/v1alpha1", "FederatedResourceQuota")
}

/// Starts to keep quotas' statuses.
pub fn run_controller(control: &Arc<Control>) {
    let queue: Arc<Queue<Named>> = Queue::new("quota", control.shutdown.clone());
    let quotas = queue.clone();
    control.host.add_handler(
        &quota_kind(),
        Arc::new(move |change: &Change| {
            let Some(new) = &change.new else { return };
            if change.old.as_ref().is_none_or(|old| old.generation() != new.generation()) {
                quotas.add((new.namespace().to_owned(), new.name().to_owned()));
            }
        }),
    );
    let (quotas, own) = (queue.clone(), control.clone());
    control.host.add_handler(
        &binding_kind(),
        Arc::new(move |change: &Change| {
            if let (Some(gone), None) = (&change.old, &change.new) {
                let all: BTreeSet<Named> = own
                    .host
                    .list_in(&quota_kind(), gone.namespace())
                    .iter()
                    .map(|one| (one.namespace().to_owned(), one.name().to_owned()))
                    .collect();
                for one in all {
                    quotas.add(one);
                }
            }
        }),
    );
    let own = control.clone();
    queue.run(1, move |(namespace, name)| {
        let own = own.clone();
        async move { sync_quota(&own, &namespace, &name).await }
    });
}

async fn sync_quota(control: &Control, namespace: &str, name: &str) -> Result<Next, Failure> {
    let Some(live) = control.host.get_live(&quota_kind(), namespace, name).await? else { return Ok(Next::Done) };
    if live.is_deleting() {
        return Ok(Next::Done);
    }
    let used = quota::usage_of_bindings(&live, &control.host.list_in(&binding_kind(), namespace));
    let write = |quota: &mut Value| {
        let overall = quota.present("/spec/overall").cloned();
        quota.put_or_remove(&["status", "overall"], overall);
        if quota.present("/status/overallUsed").is_some() || used.is_some() {
            quota.put_or_remove(&["status", "overallUsed"], used.clone());
        }
    };
    control.writer.modify(&live, "status", write).await?;
    Ok(Next::Done)
}
