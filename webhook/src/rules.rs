//! What each route answers to a review: a function of the body and of what is known, but for the key of a new job's SSH
//! pair, which is random. The server is around it (`run`), and fuzzing calls it as it is.

use caldera_crds::{names::caldera::WEBHOOK_VERSION, workload::WorkloadKind};
use json_patch::PatchOperation;
use serde_json::Value;
use ssh_key::rand_core::{OsRng, RngCore};

use crate::{
    decide::{
        action::choose_action_stamps,
        binding_gate::{GatedBinding, gate_binding},
        cluster_annotations::refuse_cluster_annotations,
        cron_job::{validate_cron_job, warn_of_batch_cron_job},
        device_claims::write_device_claims,
        hyper_job::validate_hyper_job,
        job::validate_job,
        job_defaults::{Seed, fill_defaults_of_job, fill_defaults_of_long_job},
        namespace_access::{find_namespace_queue, refuse_namespace},
        patch::set_field,
        policy_coverage::warn_of_no_policy,
        priority_classes::refuse_priority_class,
        protected_fields::{refuse_forged_binding, refuse_forged_work},
        queue::{fill_defaults_of_queue, validate_queue},
        queue_limits::{refuse_card_model, refuse_too_large, refuse_too_long, warn_of_eviction},
        settings::refuse_settings,
        stamps::{Stamp, set_stamps},
        stock_placement::{StockPlan, review_stock_placement},
        submission::choose_submission_stamps,
        verdict::Verdict,
        waiting_limits::refuse_full_line,
        work_copy::{ReviewedWork, rewrite_work},
        workload_warnings::warn_of_workload,
    },
    observe::{
        cache::Snapshot,
        long_job::LongJob,
        request::{ReviewRequest, parse_review},
    },
    write::review::{Outcome, answer_review, answer_review_by_value, encode_verdict},
};

/// Decides a review from its body and what is known.
pub type Rule = fn(&[u8], Snapshot<'_>) -> Outcome;

pub(crate) const BINDINGS: &str = "mutate-resourcebinding";
pub(crate) const MUTATE_JOB: &str = "mutate-job";
pub(crate) const VALIDATE_JOB: &str = "validate-job";
pub(crate) const DEVICE_CLAIMS: &str = "write-device-claims";

/// The routes of admission, and how each is decided. Karmada's interpreter has a form of its own
/// ([`interpret_request`](crate::decide::interpreter::interpret_request)).
pub const RULES: [(&str, Rule); 11] = [
    (BINDINGS, answer_binding),
    // What no Work looks like is refused before its values are read to tell a forged one.
    ("mutate-work", |body, snapshot| {
        answer_review::<ReviewedWork<'_>>(body, |request| {
            refuse_forged_work(body, request.user_info.as_ref(), &snapshot.cache.trusted)
                .unwrap_or_else(|| rewrite_work(request, snapshot))
        })
    }),
    (MUTATE_JOB, answer_job_defaults),
    (VALIDATE_JOB, |body, snapshot| answer_review(body, |request| review_job(request, snapshot))),
    ("mutate-queue", |body, snapshot| {
        answer_review(body, |request| {
            let stamps = request.object.as_ref().map(|queue| stamp_object(queue, request, Vec::new(), snapshot));
            fill_defaults_of_queue(request).with_operations(stamps.unwrap_or_default())
        })
    }),
    ("stamp-action", answer_action),
    ("validate-cronjob", |body, _| answer_review(body, validate_cron_job)),
    ("validate-hyperjob", |body, snapshot| answer_review(body, |request| validate_hyper_job(request, snapshot.cache))),
    ("validate-queue", |body, snapshot| answer_review(body, |request| validate_queue(request, snapshot))),
    ("stamp-submission", answer_submission),
    (DEVICE_CLAIMS, |body, snapshot| answer_review(body, |request| write_device_claims(request, snapshot))),
];

fn answer_binding(body: &[u8], snapshot: Snapshot<'_>) -> Outcome {
    let mut made = None;
    let outcome = answer_review::<GatedBinding<'_>>(body, |request| {
        let refused = refuse_forged_binding(body, request.user_info.as_ref(), &snapshot.cache.trusted);
        refused.unwrap_or_else(|| match review_stock_placement(body, snapshot) {
            Ok(plan) => {
                let verdict = gate_binding(request, snapshot);
                let is_stored = request.dry_run != Some(true) && matches!(verdict, Verdict::Allow { .. });
                made = plan.as_ref().filter(|_| is_stored).map(StockPlan::fingerprint);
                let version = print_version(request, &verdict);
                verdict.with_operations(plan.map(StockPlan::into_operation).into_iter().chain(version))
            }
            Err(verdict) => verdict,
        })
    });
    outcome.with_plan(made)
}

/// Who asks what a new binding would become is told the version of who made it so. Nothing stored has it.
fn print_version(request: &ReviewRequest<'_, GatedBinding<'_>>, verdict: &Verdict) -> Option<PatchOperation> {
    let Verdict::Allow { patch, .. } = verdict else { return None };
    let is_asked = request.dry_run == Some(true) && request.is_create();
    let has_annotations = patch.iter().any(|operation| operation.path().as_str().starts_with("/metadata/annotations"));
    (is_asked && has_annotations)
        .then(|| set_field(&["metadata", "annotations", WEBHOOK_VERSION], env!("CARGO_PKG_VERSION")))
}

fn review_job(request: &ReviewRequest<'_, Value>, snapshot: Snapshot<'_>) -> Verdict {
    match validate_job(request, snapshot.cache) {
        Verdict::Allow { patch, mut warnings } => refuse_namespace(request, snapshot)
            .or_else(|| refuse_too_large(request, snapshot.cache))
            .or_else(|| refuse_too_long(request, snapshot.cache))
            .or_else(|| refuse_priority_class(request, snapshot.cache))
            .or_else(|| refuse_card_model(request, snapshot.cache))
            .or_else(|| refuse_full_line(request, snapshot.cache))
            .unwrap_or_else(|| {
                let job = request.object.as_ref().filter(|_| request.is_create());
                warnings.extend(job.and_then(|job| warn_of_eviction(job, snapshot.cache)));
                let namespace = request.namespace.as_deref().unwrap_or_default();
                warnings.extend(job.and_then(|job| warn_of_no_policy(job, namespace, snapshot.cache)));
                Verdict::Allow { patch, warnings }
            }),
        verdict => verdict,
    }
}

/// From here on a new job's tasks stay text.
const LONG_JOB: usize = 64 << 10;

fn answer_job_defaults(body: &[u8], snapshot: Snapshot<'_>) -> Outcome {
    let find = |job: &Value, namespace: Option<&str>| {
        namespace.map_or(Ok(None), |namespace| find_namespace_queue(job, namespace, snapshot))
    };
    if body.len() >= LONG_JOB
        && let Ok(request) = parse_review::<LongJob<'_>>(body)
        && request.is_create()
        && let Some(job) = request.object
    {
        let user = request.user_info.as_ref();
        let mut stamps = choose_submission_stamps(&job.rest, None, user, snapshot);
        stamps.extend(choose_action_stamps(&job.rest, None, user, snapshot));
        let stamps = set_stamps(&job.rest, stamps);
        let verdict = match find(&job.rest, request.namespace.as_deref()) {
            Ok(queue) => fill_defaults_of_long_job(job, queue, draw_seed(), stamps),
            Err(verdict) => verdict,
        };
        return encode_verdict(&request.uid, verdict);
    }
    answer_review_by_value(body, |request| {
        let old = request.before();
        let stamp = |job: &Value| {
            let submission = choose_submission_stamps(job, old, request.user_info.as_ref(), snapshot);
            stamp_object(job, &request, submission, snapshot)
        };
        let stamps = request.object.as_ref().map(stamp).unwrap_or_default();
        match request.object.as_ref().map_or(Ok(None), |job| find(job, request.namespace.as_deref())) {
            Ok(queue) => fill_defaults_of_job(request, queue, draw_seed()).with_operations(stamps),
            Err(verdict) => verdict,
        }
    })
}

/// What gives an object these stamps, and those of who acts on it.
fn stamp_object(
    object: &Value,
    request: &ReviewRequest<'_, Value>,
    mut stamps: Vec<Stamp>,
    snapshot: Snapshot<'_>,
) -> Vec<PatchOperation> {
    let old = request.before();
    stamps.extend(choose_action_stamps(object, old, request.user_info.as_ref(), snapshot));
    set_stamps(object, stamps)
}

/// Of members, settings and Commands, and of workloads that are no Volcano Jobs.
fn answer_action(body: &[u8], snapshot: Snapshot<'_>) -> Outcome {
    answer_review(body, |request: &ReviewRequest<'_, Value>| {
        if let Some(refused) = refuse_cluster_annotations(request).or_else(|| refuse_settings(request)) {
            return refused;
        }
        let old = request.before();
        let stamp = |object: &Value| {
            let submission = WorkloadKind::of_object(object)
                .map(|_| choose_submission_stamps(object, old, request.user_info.as_ref(), snapshot));
            stamp_object(object, request, submission.unwrap_or_default(), snapshot)
        };
        let patch = request.object.as_ref().map(stamp).unwrap_or_default();
        Verdict::Allow { patch, warnings: warn_of_workload(request, snapshot.cache) }
    })
}

/// Of what makes jobs.
fn answer_submission(body: &[u8], snapshot: Snapshot<'_>) -> Outcome {
    answer_review(body, |request: &ReviewRequest<'_, Value>| {
        let old = request.before();
        let stamp = |maker: &Value| {
            set_stamps(maker, choose_submission_stamps(maker, old, request.user_info.as_ref(), snapshot))
        };
        let patch = request.object.as_ref().map(stamp).unwrap_or_default();
        Verdict::Allow { patch, warnings: warn_of_batch_cron_job(request) }
    })
}

/// Randomness for a key; nothing where the system gives none.
fn draw_seed() -> Option<Seed> {
    let mut seed = Seed::default();
    OsRng.try_fill_bytes(&mut seed).ok()?;
    Some(seed)
}
