//! What would make jobs in members by itself, and a policy sends there: refused where its jobs are queued.
//!
//! Rule: a member makes the jobs of a CronJob that it has, and those of a JobFlow of Volcano, and no queue of the fleet
//! is charged for them. So no Work carries a JobFlow, nor a CronJob whose jobs would wait in line on the host: one of
//! Volcano always, one of Kubernetes if its jobs name a queue or its namespace opted in. The namespaces of its binding
//! and of the copy both count, since an override may change the second. What a member has already it keeps until its
//! copy changes. A JobTemplate makes nothing without a JobFlow (`pkg/controllers/jobtemplate`), and goes.
//!
//! Nor does a Work carry a PodGroup of Volcano. Operators make one by a name that can be guessed, Kubeflow's that of
//! the job, KubeRay and Spark one that it is part of (see `caldera_crds::workload::member_queue`), and take the one
//! that is there: a tenant's, with a queue and a priority that nobody charged. Only Volcano's own have a UID in their
//! names.

use caldera_crds::{
    cron_job::{find_kind, names_queue},
    object::{name_of, read_text_at},
    workload::WorkloadKind,
};
use serde_json::Value;

use crate::observe::cache::Snapshot;

/// API group of JobFlows.
const FLOW_GROUP: &str = "flow.volcano.sh";
/// API group of PodGroups.
const SCHEDULING_GROUP: &str = "scheduling.volcano.sh";

/// Why these manifests may not go to a member, if it is for what would make jobs there, or stand in for their groups.
/// `binding` is the namespace of what they were made from.
pub(super) fn find_refused_job_maker(manifests: &[Value], binding: &str, snapshot: Snapshot<'_>) -> Option<String> {
    manifests.iter().find_map(|manifest| {
        explain_queued_flow(manifest)
            .or_else(|| explain_foreign_group(manifest))
            .or_else(|| explain_queued_cron_job(manifest, binding, snapshot))
    })
}

fn explain_queued_flow(manifest: &Value) -> Option<String> {
    let is_flow = is_of_kind(manifest, FLOW_GROUP, "JobFlow");
    let instead = "select no JobFlow; Volcano Jobs that are made on the host wait in line, whoever makes them";
    is_flow.then(|| describe_refusal(manifest, "jobs of Volcano are queued", instead))
}

fn explain_foreign_group(manifest: &Value) -> Option<String> {
    is_of_kind(manifest, SCHEDULING_GROUP, "PodGroup").then(|| {
        format!(
            "PodGroup {}/{} does not go to members, where an operator would give its queue and priority to pods of a job \
             that is charged in another: let the policy select no PodGroup; each member makes its own",
            read_text_at(manifest, "/metadata/namespace"),
            name_of(manifest)
        )
    })
}

fn is_of_kind(manifest: &Value, group: &str, kind: &str) -> bool {
    let of = read_text_at(manifest, "/apiVersion").split_once('/').map(|(group, _)| group);
    manifest["kind"] == kind && of == Some(group)
}

fn explain_queued_cron_job(manifest: &Value, binding: &str, snapshot: Snapshot<'_>) -> Option<String> {
    let kind = find_kind(manifest)?;
    let opted_in = snapshot.find_opted_in([binding, read_text_at(manifest, "/metadata/namespace")]);
    let why = match opted_in {
        _ if kind == WorkloadKind::VolcanoJob => "jobs of Volcano are queued".to_owned(),
        _ if names_queue(manifest) => "its jobs name a queue".to_owned(),
        Some(namespace) => format!("namespace {namespace} opted in to queueing"),
        None => return None,
    };
    let instead = "select its jobs, which are made on the host, and not the CronJob";
    Some(describe_refusal(manifest, &why, instead))
}

fn describe_refusal(manifest: &Value, why: &str, instead: &str) -> String {
    let (kind, namespace) = (read_text_at(manifest, "/kind"), read_text_at(manifest, "/metadata/namespace"));
    let name = name_of(manifest);
    format!(
        "{kind} {namespace}/{name} does not go to members, where no queue would be charged for its jobs, and {why}: let \
         the policy {instead}"
    )
}
