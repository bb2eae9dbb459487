//! What of a Volcano Job is refused on the host, with field, value and limit, and what it is warned of.
//!
//! Rules (Volcano `pkg/webhooks/admission/jobs/validate`): a member would refuse the same job later, where nobody
//! looks. A queue that does not exist or is not open is only a warning here: queue and job may come in one `kubectl
//! apply`, in any order. So is a PriorityClass that does not exist, what a job says that nobody reads, and what a job
//! that meets over a clusterset needs beside it. The annotation `caldera.dev/data` is checked whenever it changes; else
//! an update with the same spec is refused nothing.

use caldera_core::text::shorten_text;
use caldera_crds::{
    job_admission::{QueueView, list_creation_refusals, list_update_refusals, queue_refusals},
    names::caldera::{DATA, RENDEZVOUS, RENDEZVOUS_CLUSTERSET},
    object::annotation_of,
    workload::{priority_class_of, queue_of, read_data_location},
};
use serde_json::Value;

use super::{verdict::Verdict, workload_warnings::list_unread_wishes};
use crate::observe::{cache::Cache, request::ReviewRequest};

/// Refusals that are told.
const MOST_SENTENCES: usize = 20;

/// Refuses what can not be a job.
#[must_use]
pub fn validate_job(request: &ReviewRequest<'_, Value>, cache: &Cache) -> Verdict {
    let Some(job) = &request.object else { return Verdict::UNCHANGED };
    // The last update of a job that goes away only takes its finalizers.
    if job.pointer("/metadata/deletionTimestamp").is_some() {
        return Verdict::UNCHANGED;
    }
    // It changes where nothing else of the job may.
    let says = |job: &Value| job.pointer("/metadata/annotations").and_then(|all| all.get(DATA)).cloned();
    let is_said_now = request.is_create() || request.old_object.as_ref().is_some_and(|old| says(old) != says(job));
    if let (true, Some(Err(error))) = (is_said_now, read_data_location(job)) {
        return Verdict::deny_invalid(format!("metadata.annotations[{DATA}]: {error}"));
    }
    // What was said before is not told again.
    let known = request.old_object.as_ref().map(list_unread_wishes).unwrap_or_default();
    let unread: Vec<String> = list_unread_wishes(job).into_iter().filter(|text| !known.contains(text)).collect();
    // What a newer rule would refuse stays updatable where its spec does not change.
    if request.old_object.as_ref().is_some_and(|old| old.get("spec") == job.get("spec")) {
        return Verdict::Allow { patch: Vec::new(), warnings: unread };
    }
    let refusals = match (request.is_create(), &request.old_object) {
        (true, _) | (false, None) => list_creation_refusals(job),
        (false, Some(old)) => list_update_refusals(old, job),
    };
    let mut sentences: Vec<String> = refusals.iter().map(caldera_crds::job_admission::Refusal::sentence).collect();
    if sentences.is_empty()
        && let Err(error) = caldera_crds::workload::read_gang(job)
    {
        sentences.push(error.to_string());
    }
    if !sentences.is_empty() {
        let more = sentences.len().saturating_sub(MOST_SENTENCES);
        sentences.truncate(MOST_SENTENCES);
        sentences.extend((more > 0).then(|| "and more".to_owned()));
        return Verdict::deny_invalid(sentences.join("; "));
    }
    let mut warnings = if request.is_create() { collect_warnings(job, cache) } else { Vec::new() };
    warnings.extend(unread);
    Verdict::Allow { patch: Vec::new(), warnings }
}

fn collect_warnings(job: &Value, cache: &Cache) -> Vec<String> {
    let name = queue_of(job);
    let name = name.as_str();
    let queue = cache.queues.get(name);
    // The controller opens what has no state yet.
    let state = queue.map(|queue| match queue.pointer("/status/state").and_then(Value::as_str) {
        None | Some("") => "Open",
        Some(state) => state,
    });
    let view = state.map(|state| QueueView { state, children: cache.count_children(name) });
    let refusals = queue_refusals(name, view.as_ref());
    let mut warnings: Vec<String> =
        refusals.iter().map(|refusal| format!("{}; the job will wait", refusal.why)).collect();
    let class = priority_class_of(job);
    if !class.is_empty() && cache.listed.contains("PriorityClass") && !cache.priority_classes.contains_key(class) {
        let said = shorten_text(class);
        warnings.push(format!(
            "PriorityClass {said:?} does not exist; the job's priority counts as 0, and members without the class \
             refuse its pods"
        ));
    }
    if annotation_of(job, RENDEZVOUS) == Some(RENDEZVOUS_CLUSTERSET) {
        warnings.push(
            "where it is split its pods meet by its Service: that needs a ServiceExport of the job's name beside it, and \
             propagateDeps: true in its policy"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::observe::cache::PriorityClass;

    pub(in crate::decide) fn job() -> Value {
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns"},
            "spec": {"queue": "q", "minAvailable": 1, "tasks": [{
                "name": "t", "replicas": 2,
                "template": {"spec": {"restartPolicy": "Never", "containers": [{
                    "name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}},
                }]}},
            }]},
        })
    }

    pub(in crate::decide) fn create(object: Value) -> ReviewRequest<'static, Value> {
        ReviewRequest {
            uid: "u".into(),
            operation: "CREATE".into(),
            namespace: Some("ns".into()),
            name: None,
            dry_run: None,
            user_info: None,
            object: Some(object),
            old_object: None,
        }
    }

    pub(in crate::decide) fn update(old: &Value, new: &Value) -> ReviewRequest<'static, Value> {
        ReviewRequest { operation: "UPDATE".into(), old_object: Some(old.clone()), ..create(new.clone()) }
    }

    #[test]
    fn a2_24_a_job_may_come_before_its_queue_with_a_warning() {
        let mut cache = Cache::default();
        let Verdict::Allow { warnings, .. } = validate_job(&create(job()), &cache) else { panic!() };
        assert!(warnings[0].contains("\"q\" does not exist"), "{warnings:?}");
        cache.queues.insert("q".into(), json!({}));
        assert_eq!(validate_job(&create(job()), &cache), Verdict::UNCHANGED);
        cache.queues.insert("q".into(), json!({"status": {"state": "Closed"}}));
        let Verdict::Allow { warnings, .. } = validate_job(&create(job()), &cache) else { panic!() };
        assert!(warnings[0].contains("Closed"), "{warnings:?}");
    }

    #[test]
    fn who_submits_a_job_over_a_clusterset_is_told_of_the_service_export() {
        let mut cache = Cache::default();
        cache.queues.insert("q".into(), json!({}));
        let mut object = job();
        object["metadata"]["annotations"] = json!({"caldera.dev/rendezvous": "clusterset"});
        let Verdict::Allow { warnings, .. } = validate_job(&create(object.clone()), &cache) else { panic!() };
        assert!(warnings.len() == 1 && warnings[0].contains("ServiceExport"), "{warnings:?}");
        let Verdict::Allow { warnings, .. } = validate_job(&update(&object, &object), &cache) else { panic!() };
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn an_unknown_priority_class_is_a_warning() {
        let mut cache = Cache::default();
        cache.queues.insert("q".into(), json!({}));
        cache.listed.insert("PriorityClass");
        let mut object = job();
        object["spec"]["priorityClassName"] = "nobody".into();
        let Verdict::Allow { warnings, .. } = validate_job(&create(object.clone()), &cache) else { panic!() };
        let reported = "PriorityClass \"nobody\" does not exist; the job's priority counts as 0, and members without \
                        the class refuse its pods";
        assert_eq!(warnings, [reported]);
        cache.priority_classes.insert("nobody".into(), PriorityClass { value: 5, is_default: false });
        assert_eq!(validate_job(&create(object), &cache), Verdict::UNCHANGED);
    }

    #[test]
    fn a_job_that_says_where_its_data_is_says_it_so_that_it_can_be_read() {
        let with = |text: &str| {
            let mut object = job();
            object["metadata"]["annotations"] = json!({"caldera.dev/data": text});
            object
        };
        let mut cache = Cache::default();
        cache.queues.insert("q".into(), json!({}));
        assert_eq!(validate_job(&create(with("cluster=member1:500,region=eu|region=us")), &cache), Verdict::UNCHANGED);
        let refused = |request: &ReviewRequest<'_, Value>| {
            let Verdict::Deny(denial) = validate_job(request, &cache) else { panic!("it is taken") };
            denial.message
        };
        let message = refused(&create(with("node=n1")));
        let words = "metadata.annotations[caldera.dev/data]: \"node=n1\" is not KEY=VALUE with cluster, region, zone or provider";
        assert!(message.contains(words), "{message}");
        assert!(refused(&update(&job(), &with("cluster=a:0"))).contains("\"0\" is no size: a whole number from 1 to"));
        // What is there already stays, also when something else changes.
        let mut labelled = with("node=n1");
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(validate_job(&update(&with("node=n1"), &labelled), &cache), Verdict::UNCHANGED);
    }

    #[test]
    fn a_change_of_labels_is_never_refused() {
        let mut bad = job();
        bad["spec"]["minAvailable"] = 99.into();
        let mut labelled = bad.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        let update = |old: &Value, new: &Value| {
            let mut request = create(new.clone());
            request.operation = "UPDATE".into();
            request.old_object = Some(old.clone());
            validate_job(&request, &Cache::default())
        };
        assert_eq!(update(&bad, &labelled), Verdict::UNCHANGED);
        let Verdict::Deny(denial) = update(&job(), &bad) else { panic!() };
        assert!(denial.message.contains("99"), "{}", denial.message);
    }

    /// A typing error in an annotation was silence.
    #[test]
    fn an_annotation_that_is_not_understood_is_a_warning_when_it_is_written() {
        let estimated = |value: &str| {
            let mut object = job();
            object["spec"].as_object_mut().unwrap().remove("queue");
            object["metadata"]["annotations"] = json!({"caldera.dev/running-estimate": value});
            object
        };
        let warnings = |request: ReviewRequest<'_, Value>| {
            let Verdict::Allow { warnings, .. } = validate_job(&request, &Cache::default()) else { panic!() };
            let of_annotations = warnings.into_iter().filter(|text| text.contains("annotation"));
            of_annotations.collect::<Vec<_>>()
        };
        let reported = warnings(create(estimated("90")));
        assert!(reported.len() == 1 && reported[0].contains("\"90\"") && reported[0].contains("45m"), "{reported:?}");
        assert!(warnings(create(estimated("90m"))).is_empty());
        let update = |old: &str, new: &str| ReviewRequest {
            operation: "UPDATE".into(),
            old_object: Some(estimated(old)),
            ..create(estimated(new))
        };
        assert_eq!(warnings(update("90m", "1d")).len(), 1);
        assert!(warnings(update("1d", "1d")).is_empty(), "it was told before");
    }

    #[test]
    fn what_can_not_be_a_job_is_refused_with_field_value_and_limit() {
        let refused = |change: &dyn Fn(&mut Value), words: &[&str]| {
            let mut object = job();
            change(&mut object);
            let Verdict::Deny(denial) = validate_job(&create(object), &Cache::default()) else { panic!("{words:?}") };
            assert_eq!(denial.code, 422);
            for word in words {
                assert!(denial.message.contains(word), "{word} not in {}", denial.message);
            }
        };
        refused(&|job| job["spec"]["tasks"] = json!([]), &["spec.tasks"]);
        refused(&|job| job["spec"]["minAvailable"] = 3.into(), &["minAvailable", "3", "2"]);
        refused(&|job| job["spec"]["tasks"][0]["minAvailable"] = 3.into(), &["spec.tasks[0].minAvailable", "3", "2"]);
        let request = "/spec/tasks/0/template/spec/containers/0/resources/requests/cpu";
        refused(&|job| *job.pointer_mut(request).unwrap() = "-1".into(), &["cpu", "-1"]);
        refused(&|job| *job.pointer_mut(request).unwrap() = "lots".into(), &["cpu", "lots"]);
        let claims = json!([{"name": "gpu", "resourceClaimName": "mine"}]);
        refused(
            &|job| job["spec"]["tasks"][0]["template"]["spec"]["resourceClaims"] = claims.clone(),
            &[
                "spec.tasks[0].template.spec.resourceClaims[0]",
                "one object in one cluster",
                "resourceClaimTemplateName",
            ],
        );
    }
}
