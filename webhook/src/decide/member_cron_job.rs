//! CronJobs that a policy sends to members: refused where their jobs are queued.
//!
//! Rule: a member makes the jobs of a CronJob that it has by itself, and no queue of the fleet is charged for them. So
//! no Work carries a CronJob whose jobs would wait in line on the host: one of Volcano always, one of Kubernetes if its
//! jobs name a queue or its namespace opted in. The namespaces of its binding and of the copy both count, since an
//! override may change the second. What a member has already it keeps until its copy changes.

use caldera_crds::{
    cron_job::{find_kind, names_queue},
    object::{name_of, read_text_at},
    workload::WorkloadKind,
};
use serde_json::Value;

use crate::observe::cache::Snapshot;

/// Why these manifests may not go to a member, if it is for a CronJob among them. `binding` is the namespace of what
/// they were made from.
pub(super) fn find_refused_cron_job(manifests: &[Value], binding: &str, snapshot: Snapshot<'_>) -> Option<String> {
    let (cron_job, why) = manifests.iter().find_map(|manifest| {
        let kind = find_kind(manifest)?;
        let opted_in = snapshot.find_opted_in([binding, read_text_at(manifest, "/metadata/namespace")]);
        let why = match opted_in {
            _ if kind == WorkloadKind::VolcanoJob => "jobs of Volcano are queued".to_owned(),
            _ if names_queue(manifest) => "its jobs name a queue".to_owned(),
            Some(namespace) => format!("namespace {namespace} opted in to queueing"),
            None => return None,
        };
        Some((manifest, why))
    })?;
    let (namespace, name) = (read_text_at(cron_job, "/metadata/namespace"), name_of(cron_job));
    Some(format!(
        "CronJob {namespace}/{name} does not go to members, where no queue would be charged for its jobs, and {why}: \
         let the policy select its jobs, which are made on the host, and not the CronJob"
    ))
}
