//! Which requests the webhook is asked about: expressions of CEL over the object, the old one and who asks.
//!
//! Rule: only what a rule of ours would change or refuse. A condition that does not hold keeps the request from us, in
//! an outage too, so each is held in a test against objects as the API server has them.

use std::collections::BTreeSet;

use caldera_crds::{
    action::{ACTION_STAMPS, WORKLOAD_ACTIONS},
    cel::list_in_cel,
    workload::{
        OTHER_POD_MAKERS, WorkloadKind,
        kind_names::{RESERVED_GROUPS, match_kinds_in_cel},
        submission::STAMPS,
    },
};

/// In whichever version, as all kinds here.
pub(super) const VOLCANO_KIND: &str =
    "object.spec.resource.apiVersion.startsWith('batch.volcano.sh/') && object.spec.resource.kind == 'Job'";
pub(super) const HAS_PLACEMENT: &str = "has(object.spec.placement)";

/// The kinds that can be queued, as CEL tells them from others.
pub(super) struct KindsInCel {
    /// Those that are queued only where they ask for it.
    others: Vec<WorkloadKind>,
}

impl KindsInCel {
    pub(super) fn new() -> Self {
        Self { others: WorkloadKind::list_all().filter(|kind| *kind != WorkloadKind::VolcanoJob).collect() }
    }

    fn match_other(&self, of: &str) -> String {
        match_kinds_in_cel(self.others.iter().copied(), of)
    }

    pub(super) fn match_other_kind(&self) -> String {
        self.match_other("object.spec.resource")
    }

    /// Whether a Work carries a Volcano Job, or something else that names a queue: a workload or what makes pods of a
    /// template as one does, on itself or its pods, or an object of somebody's own group, on itself.
    pub(super) fn match_queued_work(&self) -> String {
        let (other, own, makers) = (self.match_other("m"), match_own_group("m"), list_in_cel(OTHER_POD_MAKERS));
        match_any_manifest(&format!(
            "m.apiVersion.startsWith('batch.volcano.sh/') && m.kind == 'Job' || \
             ({other} || m.kind in {makers} && !m.apiVersion.contains('.')) && \
             [m.metadata, has(m.spec) && has(m.spec.template) && has(m.spec.template.metadata) ? \
             m.spec.template.metadata : m.metadata].exists(p, {NAMES_QUEUE}) || \
             {own} && [m.metadata].exists(p, {NAMES_QUEUE})"
        ))
    }

    /// The others of those kinds. Those of namespaces that opted in are queued, which a Work does not tell.
    pub(super) fn match_other_work(&self) -> String {
        match_any_manifest(&self.match_other("m"))
    }

    /// The Work of a workload's binding, by the name that Karmada gives bindings, which carries none: an override
    /// changed its kind.
    pub(super) fn match_workload_binding(&self) -> String {
        let endings: BTreeSet<String> =
            WorkloadKind::list_all().map(|kind| format!("-{}", kind.kind().to_lowercase())).collect();
        format!(
            "has(object.metadata.annotations) && 'resourcebinding.karmada.io/name' in object.metadata.annotations && \
             {}.exists(k, object.metadata.annotations['resourcebinding.karmada.io/name'].endsWith(k))",
            list_in_cel(endings.iter().map(String::as_str))
        )
    }

    /// Whether a binding is of a kind that may be declared, and was not when the webhook was registered.
    pub(super) fn match_undeclared_kind(&self) -> String {
        let of = "object.spec.resource";
        format!("{} && !({}) && !({VOLCANO_KIND})", match_own_group(of), self.match_other_kind())
    }

    /// The same of a Work that carries one.
    pub(super) fn match_undeclared_work(&self) -> String {
        let (own, other) = (match_own_group("m"), self.match_other("m"));
        match_any_manifest(&format!("({own} || {SCHEDULED_SPARK}) && !{other}"))
    }

    pub(super) fn match_work_without_workload(&self) -> String {
        format!("!({})", match_any_manifest(&match_kinds_in_cel(WorkloadKind::list_all(), "m")))
    }
}

/// Whether a Work carries a manifest `m` of which this holds.
fn match_any_manifest(test: &str) -> String {
    format!(
        "has(object.spec.workload) && has(object.spec.workload.manifests) && \
         object.spec.workload.manifests.exists(m, {test})"
    )
}

/// Of a group that looks like one of Kubernetes: it makes SparkApplications, each with the queue of its template.
const SCHEDULED_SPARK: &str =
    "m.kind == 'ScheduledSparkApplication' && m.apiVersion.startsWith('sparkoperator.k8s.io/')";

/// Whether an object's group may be that of a declared kind: neither a reserved one nor below one.
fn match_own_group(of: &str) -> String {
    let reserved = RESERVED_GROUPS.map(|group| format!("{group}/"));
    let reserved = list_in_cel(reserved.iter().map(String::as_str));
    let is_below = format!("{of}.apiVersion.startsWith(g) || {of}.apiVersion.contains('.' + g)");
    format!("{of}.apiVersion.contains('.') && !{reserved}.exists(g, {is_below})")
}

/// Whether metadata `p` names a queue.
pub(super) const NAMES_QUEUE: &str = "['volcano.sh/queue-name', 'scheduling.volcano.sh/queue-name'].exists(q, \
                           has(p.annotations) && q in p.annotations || has(p.labels) && q in p.labels)";

/// Whether a Work carries a CronJob of Volcano, or one whose jobs name a queue, on themselves or their pods.
pub(super) fn match_queued_cron_job() -> String {
    let template = "m.spec.jobTemplate";
    match_any_manifest(&format!(
        "m.kind == 'CronJob' && \
         (m.apiVersion.startsWith('batch.volcano.sh/') || m.apiVersion.startsWith('batch/') && has(m.spec) && \
         has({template}) && ((has({template}.metadata) ? [{template}.metadata] : []) + (has({template}.spec) && \
         has({template}.spec.template) && has({template}.spec.template.metadata) ? [{template}.spec.template.metadata] \
         : [])).exists(p, {NAMES_QUEUE}))"
    ))
}

/// Whether it carries any of Kubernetes. Those of namespaces that opted in are queued, which a Work does not tell.
pub(super) fn match_cron_job() -> String {
    match_any_manifest("m.kind == 'CronJob' && m.apiVersion.startsWith('batch/')")
}

/// Whether a Work carries a JobFlow of Volcano.
pub(super) fn match_job_flow() -> String {
    match_any_manifest("m.kind == 'JobFlow' && m.apiVersion.startsWith('flow.volcano.sh/')")
}

/// Whether it carries a PodGroup of Volcano.
pub(super) fn match_pod_group() -> String {
    match_any_manifest("m.kind == 'PodGroup' && m.apiVersion.startsWith('scheduling.volcano.sh/')")
}

/// Whether it carries a ResourceClaimTemplate, under whose name a job's may be meant to go.
pub(super) fn match_claim_template() -> String {
    match_any_manifest("m.kind == 'ResourceClaimTemplate' && m.apiVersion.startsWith('resource.k8s.io/')")
}

/// Only what its pods claim is written down.
pub(super) const JOB_CLAIMS_DEVICES: &str = "has(object.spec) && has(object.spec.tasks) && \
     object.spec.tasks.exists(t, has(t.template) && has(t.template.spec) && has(t.template.spec.resourceClaims))";
/// The same of a Pod, or of what has a template of pods.
pub(super) const CLAIMS_DEVICES: &str = "has(object.spec.resourceClaims) || has(object.spec.template) && \
     has(object.spec.template.spec) && has(object.spec.template.spec.resourceClaims)";
/// Of an update with the same spec nothing is filled in, and none is refused.
pub(super) const NEW_SPEC: &str = "request.operation == 'CREATE' || has(object.spec) != has(oldObject.spec) || \
                        has(object.spec) && object.spec != oldObject.spec";
/// Whether one of these annotations is another one than before.
pub(super) fn match_changed_annotations<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let value = |of: &str| {
        format!(
            "({of} != null && has({of}.metadata.annotations) && s in {of}.metadata.annotations ? \
                            {of}.metadata.annotations[s] : '')"
        )
    };
    format!("{}.exists(s, {} != {})", list_in_cel(names), value("object"), value("oldObject"))
}

/// Nor is a job changed where its stamps are the same too, and what users act on jobs by.
pub(super) fn match_new_spec_or_stamps() -> String {
    let stamps = STAMPS.into_iter().chain(ACTION_STAMPS).chain(WORKLOAD_ACTIONS);
    format!("{NEW_SPEC} || {}", match_changed_annotations(stamps))
}

/// What makes jobs is changed only where its stamps are.
pub(super) fn match_new_stamps() -> String {
    format!("request.operation == 'CREATE' || {}", match_changed_annotations(STAMPS))
}

/// The same where who changes its jobs is warned, too.
pub(super) fn match_new_spec_or_submission() -> String {
    format!("{NEW_SPEC} || {}", match_changed_annotations(STAMPS))
}

/// Whether a user acts on a workload, has other stamps there, or makes one that is queued whatever its namespace says,
/// or that has stamps already.
pub(super) fn match_new_actions() -> String {
    let names = list_in_cel(STAMPS.into_iter().chain(ACTION_STAMPS));
    let is_stamped = format!("has(object.metadata.annotations) && {names}.exists(s, s in object.metadata.annotations)");
    format!("request.operation == 'CREATE' ? {is_stamped} || {} : {}", match_named_queue(), match_changed_stamps())
}

/// The same in a namespace that opted in: each that is made is queued.
pub(super) fn match_new_actions_in_namespace() -> String {
    format!("request.operation == 'CREATE' || {}", match_changed_stamps())
}

fn match_changed_stamps() -> String {
    match_changed_annotations(STAMPS.into_iter().chain(ACTION_STAMPS).chain(WORKLOAD_ACTIONS))
}

/// Whether a workload names a queue: itself, on its pods, or in the field of its own kind for that.
fn match_named_queue() -> String {
    let fields: BTreeSet<&[&str]> = WorkloadKind::list_all().flat_map(WorkloadKind::list_queue_fields).collect();
    // Names of fields, declared ones too, that are no words of CEL.
    let is_plain = |field: &str| field.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    let fields = fields.into_iter().filter(|path| path.iter().all(|field| is_plain(field)));
    let is_set = |path: &[&str]| {
        let (mut at, mut is_there) = ("object".to_owned(), String::new());
        for field in path {
            is_there.push_str(&format!("'{field}' in {at} && "));
            at.push_str(&format!("['{field}']"));
        }
        format!("{is_there}{at} != ''")
    };
    let own: String = fields.map(|path| format!(" || {}", is_set(path))).collect();
    format!(
        "[object.metadata, has(object.spec) && has(object.spec.template) && has(object.spec.template.metadata) ? \
         object.spec.template.metadata : object.metadata].exists(p, {NAMES_QUEUE}){own}"
    )
}

/// Whether an admin acts on a member: by its taints, or by an annotation. A new one may have stamps already.
pub(super) const NEW_CLUSTER: &str = "request.operation == 'CREATE' || \
     has(object.spec.taints) != has(oldObject.spec.taints) || \
     has(object.spec.taints) && object.spec.taints != oldObject.spec.taints || \
     has(object.metadata.annotations) != has(oldObject.metadata.annotations) || \
     has(object.metadata.annotations) && object.metadata.annotations != oldObject.metadata.annotations";
/// Nor is one refused, where its annotations are the same too.
pub(super) const NEW_SPEC_OR_ANNOTATIONS: &str = "request.operation == 'CREATE' || \
     has(object.spec) != has(oldObject.spec) || has(object.spec) && object.spec != oldObject.spec || \
     has(object.metadata.annotations) != has(oldObject.metadata.annotations) || \
     has(object.metadata.annotations) && object.metadata.annotations != oldObject.metadata.annotations";
/// What is protected of a binding, and what its gate depends on, is in its spec and its annotations. One that has no
/// gate yet gets it at any update.
pub(super) const NEW_BINDING: &str = "request.operation == 'CREATE' || object.spec != oldObject.spec || \
     !has(object.metadata.annotations) || !('caldera.dev/gate' in object.metadata.annotations) || \
     !has(oldObject.metadata.annotations) || object.metadata.annotations != oldObject.metadata.annotations";

/// Not an update of a gated binding by our controller that has a record or is suspended. Nobody else has the account's
/// name: the API server says it. Without a record its gate would be closed again, whoever opened it.
pub(super) const BY_OTHERS: &str = "request.operation == 'CREATE' || \
     request.userInfo.username != 'system:serviceaccount:caldera-system:caldera-controller' || \
     ![object, oldObject].all(b, has(b.metadata.annotations) && 'caldera.dev/gate' in b.metadata.annotations) || \
     !('caldera.dev/admission' in object.metadata.annotations || has(object.spec.suspension) && \
     has(object.spec.suspension.scheduling) && object.spec.suspension.scheduling)";

#[cfg(test)]
mod tests;
