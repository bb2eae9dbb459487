//! Works: the copy of each cluster gets the numbers of its share.
//!
//! Rule: the cluster is the Work's namespace, and the plan is on its ResourceBinding. The cache may be behind the
//! binding; the replicas that ReviseReplica stamped on the manifest tell. A copy that does not match its plan is
//! refused for now instead of being let through: Karmada's binding controller tries again. So is a copy that asks for
//! more than was charged ([`charged_copy`](super::charged_copy)), of any kind that can be queued, and one that an
//! override made another object than the workload that was charged: of another kind, name or namespace, or that names
//! a priority class which its queue does not take ([`priority_classes`](super::priority_classes)). A copy made anew has
//! what its job's restarts as a whole left of `maxRetry`. A Work whose manifests do not change is not refused.
//!
//! What is charged must end with its charge: a copy that was charged is deleted with its Work, whatever
//! `preserveResourcesOnDeletion` of its policy says, and has the replicas that were charged, whatever its label
//! `retain-replicas` says (Karmada `pkg/controllers/execution/execution_controller.go`, `pkg/util/constants.go`). Its
//! pods end soon after ([`grace_period`](super::grace_period)).
//!
//! What would make queued jobs there goes to no member ([`member_job_maker`](super::member_job_maker)), nor does
//! anything else under a name of ours that has no record ([`unadmitted_copy`](super::unadmitted_copy)).
//!
//! Its pods use the nodes that its job was admitted to: those of the groups that its queue admits
//! ([`caldera_core::node_groups`]), and where it had a choice of card models those of the one that it is charged for
//! ([`caldera_core::card_choice`]). What was charged is compared with the copy as it goes out.
//!
//! Of Pods that are one gang on the host a copy names no group ([`remove_host_group`]). What its pods claim of devices
//! goes with it, as it was written down and charged ([`send_claims`]).
//!
//! The pods of some kinds say of which workload they are only if the copy has them do so: it is marked.

use std::{borrow::Cow, collections::BTreeMap};

use caldera_core::gang::ClusterName;
use caldera_crds::{
    job_admission::DEFAULT_MAX_RETRY,
    names::karmada,
    object::{name_of, read_text_at},
    workload::{
        WorkloadKind,
        device_claims::{has_name_of_sent, is_claim_template, send_claims},
        find_sent_queue, mark_pods, remove_host_group,
    },
};
use json_patch::PatchOperation;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use super::{
    charged_copy::check_copy_against_record,
    grace_period::limit_grace_periods,
    job_copy::{is_volcano_job, make_copy},
    member_job_maker::find_refused_job_maker,
    node_affinity::{keep_copy_to_card, restrict_copy},
    patch::{patch_between, set_field},
    priority_classes::check_classes_of_copy,
    unadmitted_copy::{find_unadmitted_copy, find_unbound_copy},
    verdict::Verdict,
};
use crate::observe::{
    cache::{CachedBinding, Known, Lookup, Snapshot, WorkloadKey},
    request::ReviewRequest,
};

/// As much of a Work as is read.
#[derive(Debug, Deserialize)]
pub struct ReviewedWork<'a> {
    #[serde(borrow, default)]
    metadata: WorkMetadata<'a>,
    #[serde(default)]
    spec: WorkSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkMetadata<'a> {
    #[serde(borrow, default)]
    annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkSpec {
    #[serde(default)]
    workload: WorkManifests,
    #[serde(default)]
    preserve_resources_on_deletion: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct WorkManifests {
    #[serde(default)]
    manifests: Option<Vec<Value>>,
}

impl ReviewedWork<'_> {
    fn manifests(&self) -> &[Value] {
        self.spec.workload.manifests.as_deref().unwrap_or_default()
    }
}

/// What to do with a Work that is created or updated.
#[must_use]
pub fn rewrite_work(request: &ReviewRequest<'_, ReviewedWork<'_>>, snapshot: Snapshot<'_>) -> Verdict {
    let Some(work) = &request.object else { return Verdict::UNCHANGED };
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let Some(cluster) = namespace.strip_prefix(karmada::EXECUTION_NAMESPACE_PREFIX) else {
        return Verdict::UNCHANGED;
    };
    if work.metadata.deletion_timestamp.is_some() || work.manifests().is_empty() {
        return Verdict::UNCHANGED;
    }
    let annotation = |name: &str| work.metadata.annotations.as_ref()?.get(name).map(|value| value.as_ref().to_owned());
    let namespace = annotation(karmada::BINDING_NAMESPACE);
    let is_new = || request.old_object.as_ref().is_none_or(|old| old.manifests() != work.manifests());
    let of = namespace.as_deref().unwrap_or_default();
    if let Some(problem) = find_refused_job_maker(work.manifests(), of, snapshot).filter(|_| is_new()) {
        return Verdict::deny_invalid(problem);
    }
    let sent_by_others = || find_template_of_ours(work.manifests()).filter(|_| is_new());
    let (Some(namespace), Some(name)) = (namespace, annotation(karmada::BINDING_NAME)) else {
        let problem = find_unbound_copy(work.manifests()).filter(|_| is_new()).or_else(sent_by_others);
        return problem.map_or(Verdict::UNCHANGED, Verdict::deny_invalid);
    };
    let key = (namespace, name);
    let concerns = |manifest| WorkloadKind::of_object(manifest).is_some() || find_sent_queue(manifest).is_some();
    let lookup = || Verdict::Read(Lookup::Binding(key.clone()));
    let is_live = snapshot.live.is_some();
    let problem = match snapshot.find_binding(&key) {
        Known::Unread => return lookup(),
        Known::Failed(error) => format!("failed to read ResourceBinding {}/{}: {error}", key.0, key.1),
        // What is no workload concerns us only as what an override made of one.
        Known::No if !work.manifests().iter().any(concerns) => {
            return sent_by_others().map_or(Verdict::UNCHANGED, Verdict::deny_invalid);
        }
        Known::No => format!("ResourceBinding {}/{} of this Work does not exist", key.0, key.1),
        Known::Yes(binding) if !binding.gated => {
            match find_unadmitted_copy(work.manifests(), binding, &key, snapshot) {
                Some(problem) => problem,
                None => return sent_by_others().map_or(Verdict::UNCHANGED, Verdict::deny_invalid),
            }
        }
        Known::Yes(binding) => {
            match build_copies_patch(work, request.old_object.as_ref(), binding, cluster, snapshot) {
                Ok(patch) => return Verdict::allow_with(patch),
                Err(problem) => problem,
            }
        }
    };
    if !is_live {
        return lookup();
    }
    // Who only labels a Work, or takes a finalizer, sends no new numbers: nothing to hold up.
    if !is_new() {
        return Verdict::UNCHANGED;
    }
    Verdict::deny_for_now(problem)
}

/// The patch that makes the copies of what has a gate or a record, if what they ask for was charged.
fn build_copies_patch(
    work: &ReviewedWork<'_>,
    old: Option<&ReviewedWork<'_>>,
    binding: &CachedBinding,
    cluster: &str,
    snapshot: Snapshot<'_>,
) -> Result<Vec<PatchOperation>, String> {
    // Those that went with a copy before are made again of what it says.
    let mut manifests = Cow::Borrowed(work.manifests());
    if manifests.iter().any(is_claim_template) {
        manifests.to_mut().retain(|one| !is_claim_template(one));
    }
    if manifests.is_empty() {
        return Err("it carries no copy of its workload".to_owned());
    }
    if let Some(key) = &binding.workload {
        manifests.iter().try_for_each(|manifest| check_copy_against_workload(manifest, key))?;
    }
    let mut copies = if manifests.iter().any(is_volcano_job) {
        rewrite_copies(&manifests, old.map(ReviewedWork::manifests).unwrap_or_default(), binding, cluster)?
    } else {
        manifests.into_owned()
    };
    let record = binding.admission.as_deref().ok_or("its job is not admitted")?;
    let replicas = binding.clusters.get(cluster).ok_or("its job is not placed in this cluster")?;
    let host = binding.workload.as_ref().and_then(|key| snapshot.cache.workloads.get(key));
    let class = host.map(|host| host.priority_class.as_deref().unwrap_or_default());
    let mut templates = Vec::new();
    for copy in &mut copies {
        remove_retained_replicas(copy);
        remove_host_group(copy);
        if WorkloadKind::of_object(copy).is_none() {
            continue;
        }
        if let Some(card) = &record.card {
            keep_copy_to_card(copy, card)
                .ok_or_else(|| format!("its pods can not be kept on the {card} that it was admitted to"))?;
        }
        check_copy_against_record(copy, record, *replicas, class)?;
        let before = find_copy(copy, old);
        check_classes_of_copy(copy, before, record, snapshot)?;
        if let Some(most) = snapshot.cache.longest_grace_period {
            limit_grace_periods(copy, before, most);
        }
        mark_pods(copy);
        restrict_copy(copy, &record.nodes).ok_or("its pods can not be kept on the nodes that it was admitted to")?;
        templates.extend(send_claims(copy)?);
    }
    copies.extend(templates);
    let whole = |manifests: &[Value]| json!({"spec": {"workload": {"manifests": manifests}}});
    let mut patch = patch_between(&whole(work.manifests()), &whole(&copies));
    if work.spec.preserve_resources_on_deletion == Some(true) {
        patch.push(set_field(&["spec", "preserveResourcesOnDeletion"], false));
    }
    Ok(patch)
}

/// Why a Work that is not of a workload we charge may not go out: it would take the place of what goes with one.
fn find_template_of_ours(manifests: &[Value]) -> Option<String> {
    let found = manifests.iter().find(|one| is_claim_template(one) && has_name_of_sent(one))?;
    Some(format!(
        "ResourceClaimTemplate {} has a name as those have that go with jobs, and does not go with one",
        name_of(found)
    ))
}

/// The same object in what the Work was before.
fn find_copy<'a>(copy: &Value, old: Option<&'a ReviewedWork<'_>>) -> Option<&'a Value> {
    let key_of = |copy: &Value| {
        let namespace = read_text_at(copy, "/metadata/namespace");
        (WorkloadKind::of_object(copy), namespace.to_owned(), name_of(copy).to_owned())
    };
    old?.manifests().iter().find(|before| key_of(before) == key_of(copy))
}

/// With this label Karmada keeps the replicas that the member's own copy has.
fn remove_retained_replicas(copy: &mut Value) {
    if let Some(labels) = copy.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(karmada::RETAIN_REPLICAS);
    }
}

/// A copy is of the workload that was charged: an override may change neither its kind nor its name or namespace.
fn check_copy_against_workload(copy: &Value, key: &WorkloadKey) -> Result<(), String> {
    if key.is_of(copy) {
        return Ok(());
    }
    let (version, kind) = (read_text_at(copy, "/apiVersion"), read_text_at(copy, "/kind"));
    let (namespace, name) = (read_text_at(copy, "/metadata/namespace"), name_of(copy));
    Err(format!(
        "it carries {version} {kind} {namespace}/{name}, and what was admitted is {} {} {}/{}: no override may change \
         that",
        key.kind.api_version(),
        key.kind.kind(),
        key.namespace,
        key.name
    ))
}

fn rewrite_copies(
    manifests: &[Value],
    old: &[Value],
    binding: &CachedBinding,
    cluster: &str,
) -> Result<Vec<Value>, String> {
    let plan = match &binding.plan {
        Some(Ok(plan)) => plan,
        Some(Err(error)) => return Err(format!("the binding's plan is not readable: {error}")),
        None => return Err("the binding has no plan yet".to_owned()),
    };
    // A cached binding from before the placement lacks the cluster. The whole job must not pass.
    if !binding.clusters.contains_key(cluster) {
        return Err(format!("the binding does not place the job in cluster {cluster}"));
    }
    let cluster = ClusterName::from(cluster);
    let mut plan = Cow::Borrowed(&**plan);
    if binding.admission.as_deref().is_some_and(|record| record.copies > 1) {
        // Each copy of a duplicated job is a job of its own.
        plan.to_mut().clusters.retain(|name, _| *name == cluster);
    }
    let mut copies = manifests.to_vec();
    for (number, copy) in copies.iter_mut().enumerate().filter(|(_, manifest)| is_volcano_job(manifest)) {
        *copy = make_copy(copy, &plan, &cluster).map_err(|mismatch| mismatch.to_string())?;
        let most = |copy: &Value| copy.pointer("/spec/maxRetry").and_then(Value::as_i64).filter(|most| *most > 0);
        // What the Work said before was lowered then: who writes it again, and not from the template, lowers nothing.
        let is_lowered = most(copy).is_some() && old.get(number).and_then(most) == most(copy);
        if binding.restarts > 0 && !is_lowered {
            let left = most(copy).unwrap_or(DEFAULT_MAX_RETRY).saturating_sub(binding.restarts.into()).max(1);
            copy["spec"]["maxRetry"] = left.into();
        }
    }
    Ok(copies)
}

#[cfg(test)]
mod tests;
