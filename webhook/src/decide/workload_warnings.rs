//! What users are told of a new workload that is taken as it is.
//!
//! Rule: what its annotations say that nobody reads, what only its member's scheduler looks at, and that no policy
//! selects it. Of a workload that is no Volcano Job that is told only where it names a queue, and not where a
//! controller made it: nobody reads the answer.

use caldera_crds::{
    object::read_list_at,
    workload::{
        WorkloadKind, annotations::list_ignored_annotations, list_wishes_left_to_member, names_queue,
        qos_level::list_void_qos_levels,
    },
};
use serde_json::Value;

use super::policy_coverage::warn_of_no_policy;
use crate::observe::{cache::Cache, request::ReviewRequest};

/// A sentence for each thing that a workload says and nobody reads before it is in its member.
pub(super) fn list_unread_wishes(workload: &Value) -> Vec<String> {
    let mut sentences = list_ignored_annotations(workload);
    sentences.extend(list_void_qos_levels(workload));
    sentences.extend(list_wishes_left_to_member(workload));
    sentences
}

/// The warnings of a workload that is no Volcano Job; none of anything else.
#[must_use]
pub fn warn_of_workload(request: &ReviewRequest<'_, Value>, cache: &Cache) -> Vec<String> {
    let is_reported = |object: &&Value| {
        let is_made = read_list_at(object, "/metadata/ownerReferences").iter().any(|owner| owner["controller"] == true);
        request.is_create() && !is_made && WorkloadKind::of_object(object).is_some() && names_queue(object)
    };
    let Some(workload) = request.object.as_ref().filter(is_reported) else { return Vec::new() };
    let mut warnings = list_unread_wishes(workload);
    warnings.extend(warn_of_no_policy(workload, request.namespace.as_deref().unwrap_or_default(), cache));
    warnings
}

#[cfg(test)]
mod tests {
    use caldera_crds::policy_selection::PolicySelection;
    use serde_json::json;

    use super::*;
    use crate::decide::job::tests::{create, update};

    fn deployment(queue: Option<&str>) -> Value {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "ns"},
            "spec": {"template": {"spec": {"topologySpreadConstraints": [{"topologyKey": "zone"}]}}},
        });
        if let Some(queue) = queue {
            object["metadata"]["labels"] = json!({"volcano.sh/queue-name": queue});
        }
        object
    }

    #[test]
    fn a_new_workload_that_names_a_queue_is_warned_of_as_a_volcano_job_is() {
        let mut cache = Cache::default();
        cache.listed = ["PropagationPolicy", "ClusterPropagationPolicy"].into();
        let mut object = deployment(Some("q"));
        object["metadata"]["annotations"] = json!({"caldera.dev/hold": "yes"});
        let reported = warn_of_workload(&create(object.clone()), &cache);
        let words = ["annotation caldera.dev/hold: \"yes\"", "topology spread over zone", "selects it yet"];
        assert!(
            reported.len() == 3 && words.iter().zip(&reported).all(|(word, text)| text.contains(word)),
            "{reported:?}"
        );
        let selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        let policy = PolicySelection::of_policy(&json!({"spec": {"resourceSelectors": [selector]}}));
        cache.put_policy(("ns".to_owned(), "p".to_owned()), &policy);
        assert_eq!(warn_of_workload(&create(object), &cache).len(), 2, "a policy selects it");
    }

    #[test]
    fn qos_levels_of_batch_jobs_are_warned_of() {
        let template = json!({"metadata": {"annotations": {"volcano.sh/qos-level": "best"}}, "spec": {}});
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "b", "namespace": "ns", "labels": {"volcano.sh/queue-name": "q"}},
            "spec": {"template": template},
        });
        let warnings = warn_of_workload(&create(job), &Cache::default());
        assert!(warnings.iter().any(|text| text.contains("\"best\" counts as absent")), "{warnings:?}");
    }

    #[test]
    fn what_is_not_queued_not_new_or_made_by_a_controller_is_not_told_of() {
        let cache = Cache::default();
        let none = Vec::<String>::new();
        let object = deployment(Some("q"));
        assert_eq!(warn_of_workload(&create(object.clone()), &cache).len(), 1);
        assert_eq!(warn_of_workload(&create(deployment(None)), &cache), none);
        assert_eq!(warn_of_workload(&update(&object, &object), &cache), none);
        let mut made = object.clone();
        made["metadata"]["ownerReferences"] = json!([{"kind": "CronJob", "name": "c", "controller": true}]);
        assert_eq!(warn_of_workload(&create(made), &cache), none);
        let mut other = object;
        other["kind"] = "DaemonSet".into();
        assert_eq!(warn_of_workload(&create(other), &cache), none);
    }
}
