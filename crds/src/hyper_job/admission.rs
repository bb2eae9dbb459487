//! Checks HyperJobs at submission: what is wrong with a new one or with a change, and which fields nobody acts on.
//!
//! volcano-global has no webhook for HyperJobs, so its controller finds such a fault only when it tries, again and
//! again.
//!
//! Rules: every job that is made of a HyperJob must be one that Volcano accepts. Numbers of templates, jobs and
//! clusters are bounded. Fields that Volcano keeps fixed in a job stay fixed in its template. The spec of a HyperJob
//! that has ended does not change.

use std::collections::BTreeSet;

use caldera_core::{gang::Gang, text::count_noun};
use serde_json::Value;

use super::{ReplicatedJobView, build_job, list_replicated_jobs, name_child};
use crate::{
    dns::{LONGEST_LABEL, is_dns_label, is_dns_subdomain},
    job_admission::{self, fill_defaults},
    object::name_of,
    workload::{device_claims::remove_claims, read_gang},
};

/// Jobs of a HyperJob at most.
pub const MOST_CHILDREN: i64 = 500;
/// Templates of a HyperJob at most: the job of each is checked as a whole.
pub const MOST_REPLICATED_JOBS: usize = 64;
/// Clusters that may be preferred.
const MOST_CLUSTERS: usize = 1000;
/// Queues that are named in a refusal.
const MOST_QUEUES_REPORTED: usize = 4;
/// After so many refusals the rest is not looked at.
const MOST_REFUSALS: usize = 20;

/// What is wrong with a new HyperJob, each as a sentence; empty if it may be created.
#[must_use]
pub fn list_creation_refusals(hyper_job: &Value) -> Vec<String> {
    let mut refusals = list_refusals_outside_templates(hyper_job);
    if refusals.is_empty() {
        for (at, replicated) in list_replicated_jobs(hyper_job).enumerate() {
            refusals.extend(check_job_template(hyper_job, at, &replicated));
            if refusals.len() >= MOST_REFUSALS {
                refusals.truncate(MOST_REFUSALS);
                break;
            }
        }
    }
    refusals
}

/// What is wrong with a change, each as a sentence; empty if it may be made.
#[must_use]
pub fn list_update_refusals(old: &Value, new: &Value) -> Vec<String> {
    if old["spec"] == new["spec"] {
        return Vec::new();
    }
    if let Some(end) = find_end_condition(old) {
        return vec![format!("spec: it is {end}: nothing of it starts again; create another one")];
    }
    let mut refusals = list_refusals_outside_templates(new);
    if !refusals.is_empty() {
        return refusals;
    }
    for (at, replicated) in list_replicated_jobs(new).enumerate() {
        let Some(before) = list_replicated_jobs(old).find(|old| old.name == replicated.name) else {
            refusals.extend(check_job_template(new, at, &replicated));
            continue;
        };
        let name = name_of(new);
        let child = name_child(name, replicated.name, (replicated.replicas - 1).max(0));
        // Names of its pods are longer yet.
        let is_longer = child.len() > name_child(name, before.name, (before.replicas - 1).max(0)).len();
        if is_longer {
            refusals.extend(check_job_template(new, at, &replicated));
        }
        // One that was there before these fields were read stays as it is.
        let checks_policy = !is_longer && replicated.object != before.object;
        let [before, after] = [before.template(), replicated.template()].map(|template| {
            let mut job = build_job(&child, template);
            drop(fill_defaults(&mut job));
            job
        });
        let found = job_admission::list_update_refusals(&before, &after);
        refusals.extend(found.iter().map(|refusal| format_template_refusal(at, &refusal.field, &refusal.why)));
        if checks_policy {
            refusals.extend(read_gang(&after).ok().and_then(|gang| check_split_policy(at, &replicated, &gang)));
        }
    }
    refusals.truncate(MOST_REFUSALS);
    refusals
}

/// As what it has ended.
fn find_end_condition(hyper_job: &Value) -> Option<&str> {
    let conditions = hyper_job["status"]["conditions"].as_array()?;
    let ended = conditions.iter().filter(|condition| condition["status"] == "True");
    ended.filter_map(|condition| condition["type"].as_str()).find(|kind| ["Completed", "Failed"].contains(kind))
}

/// What is wrong but for the templates.
fn list_refusals_outside_templates(hyper_job: &Value) -> Vec<String> {
    let (spec, name) = (&hyper_job["spec"], name_of(hyper_job));
    let mut refusals = Vec::new();
    // The server names one by `generateName` later, and such a name is a label.
    if !name.is_empty() && !is_dns_label(name) {
        refusals.push(format!(
            "metadata.name: {name:?} is no DNS label of at most {LONGEST_LABEL} characters; its jobs are named after it"
        ));
    }
    let templates = spec["replicatedJobs"].as_array().map_or(0, Vec::len);
    if templates == 0 {
        refusals.push("spec.replicatedJobs: a HyperJob needs at least one".to_owned());
    }
    if templates > MOST_REPLICATED_JOBS {
        refusals.push(format!(
            "spec.replicatedJobs: {templates} are more than {MOST_REPLICATED_JOBS}, the most it may have"
        ));
        return refusals;
    }
    let mut names = BTreeSet::new();
    let mut children = 0i64;
    for (at, replicated) in list_replicated_jobs(hyper_job).enumerate() {
        let field = format!("spec.replicatedJobs[{at}]");
        if !is_dns_label(replicated.name) {
            refusals.push(format!("{field}.name: {:?} is no DNS label", replicated.name));
        }
        if !names.insert(replicated.name) {
            refusals.push(format!("{field}.name: {:?} is the name of an earlier one", replicated.name));
        }
        if replicated.replicas < 0 {
            refusals.push(format!("{field}.replicas: {} is below 0", replicated.replicas));
        }
        children = children.saturating_add(replicated.replicas.max(0));
        let clusters = replicated.list_preferred_clusters();
        if clusters.len() > MOST_CLUSTERS {
            refusals.push(format!("{field}.clusterNames: {} are more than {MOST_CLUSTERS}", clusters.len()));
        }
        let odd = clusters.iter().take(MOST_CLUSTERS).find(|cluster| !is_dns_subdomain(cluster));
        refusals.extend(odd.map(|cluster| format!("{field}.clusterNames: {cluster:?} is no name of a cluster")));
    }
    let queues: BTreeSet<&str> = list_replicated_jobs(hyper_job).map(|it| it.queue()).collect();
    if queues.len() > 1 {
        let queues =
            queues.iter().take(MOST_QUEUES_REPORTED).map(|it| format!("{it:?}")).collect::<Vec<_>>().join(", ");
        refusals.push(format!(
            "spec.replicatedJobs: the queues of its templates are {queues}; its jobs start together, in one queue"
        ));
    }
    if children > MOST_CHILDREN {
        refusals.push(format!(
            "spec.replicatedJobs: {children} jobs in all are more than {MOST_CHILDREN}, the most it may have"
        ));
    }
    if children == 0 && templates > 0 {
        refusals.push("spec.replicatedJobs: the replicas of all are 0; a HyperJob needs at least one job".to_owned());
    }
    match spec["minAvailable"].as_i64() {
        Some(least) if least < 0 => refusals.push(format!("spec.minAvailable: {least} is below 0")),
        Some(least) if least > children => {
            let children = count_noun(children, "job");
            refusals.push(format!("spec.minAvailable: {least} is more than the {children} of all replicated jobs"));
        }
        _ => {}
    }
    if let Some(most) = spec["maxDomains"].as_i64().filter(|most| *most < 1) {
        refusals.push(format!("spec.maxDomains: {most} is below 1"));
    }
    refusals
}

/// What Volcano would say to the jobs of a template, told of the one with the longest name.
fn check_job_template(hyper_job: &Value, at: usize, replicated: &ReplicatedJobView<'_>) -> Vec<String> {
    let child = name_child(name_of(hyper_job), replicated.name, (replicated.replicas - 1).max(0));
    let mut job = build_job(&child, replicated.template());
    drop(fill_defaults(&mut job));
    let refusals = job_admission::list_creation_refusals(&job);
    if refusals.is_empty() {
        // What its claims ask for is written down in the jobs that it makes.
        let refusal = match read_gang(&remove_claims(job)) {
            Ok(gang) => check_split_policy(at, replicated, &gang),
            Err(error) => Some(format!("spec.replicatedJobs[{at}].templateSpec: {error}")),
        };
        return refusal.into_iter().collect();
    }
    let report = |refusal: &job_admission::Refusal| match &*refusal.field {
        "metadata.name" => format!("spec.replicatedJobs[{at}]: of job {child:?}: {}", refusal.why),
        field => format_template_refusal(at, field, &refusal.why),
    };
    refusals.iter().take(MOST_REFUSALS).map(report).collect()
}

/// What is wrong with what a template's `splitPolicy` says of its jobs, which are such gangs.
fn check_split_policy(at: usize, replicated: &ReplicatedJobView<'_>, gang: &Gang) -> Option<String> {
    Some(format!("spec.replicatedJobs[{at}].splitPolicy.{}", replicated.check_accelerators(gang)?))
}

fn format_template_refusal(at: usize, field: &str, why: &str) -> String {
    let field = field.strip_prefix("spec").unwrap_or(field);
    format!("spec.replicatedJobs[{at}].templateSpec{field}: {why}")
}

/// What it says and nobody acts on.
#[must_use]
pub fn list_ignored_fields(hyper_job: &Value) -> Vec<String> {
    let spec = &hyper_job["spec"];
    let mut unread = Vec::new();
    if spec["plugins"].as_object().is_some_and(|plugins| !plugins.is_empty()) {
        unread.push(
            "spec.plugins: there are no plugins of a HyperJob; the plugins of its jobs are in templateSpec".to_owned(),
        );
    }
    let unknown = list_replicated_jobs(hyper_job).enumerate().filter(|(_, one)| one.counts_unknown_accelerators());
    unread.extend(unknown.take(1).map(|(at, _)| {
        format!(
            "spec.replicatedJobs[{at}].splitPolicy.accelerators: not read without acceleratorType, which says what of \
             the requests of templateSpec it counts"
        )
    }));
    unread
}
