//! A warning for a new Volcano Job that no policy selects: it would wait on the host for ever, and nobody says why.
//!
//! Rules: it is only a warning, since a policy may come later, also in the same `kubectl apply`. Nothing is said while
//! policies were not listed, of a job that a controller made, and where more selectors would have to be looked at than
//! [`MOST_SELECTORS`].

use caldera_crds::{object::read_list_at, policy_selection::WorkloadSelector};
use serde_json::Value;

use crate::observe::cache::Cache;

/// Looked at for a job: of its namespace, and of the whole host.
const MOST_SELECTORS: usize = 10_000;

/// The warning.
#[must_use]
pub fn warn_of_no_policy(job: &Value, namespace: &str, cache: &Cache) -> Option<String> {
    let is_listed = ["PropagationPolicy", "ClusterPropagationPolicy"].iter().all(|kind| cache.listed.contains(kind));
    let is_made = read_list_at(job, "/metadata/ownerReferences").iter().any(|owner| owner["controller"] == true);
    if !is_listed || is_made {
        return None;
    }
    let own = cache.policies.get(namespace).into_iter().flat_map(|all| all.values()).flatten();
    let mut selectors = own.chain(cache.cluster_policies.values().flatten());
    let is_selected = selectors.by_ref().take(MOST_SELECTORS).any(|selector: &WorkloadSelector| selector.selects(job));
    (!is_selected && selectors.next().is_none()).then(|| {
        "no PropagationPolicy or ClusterPropagationPolicy selects this job yet: it stays here, in no queue and on no \
         cluster, until one does"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use caldera_crds::policy_selection::read_workload_selectors;
    use caldera_runtime::watch::Event;
    use serde_json::json;

    use super::{super::job::tests::job, *};
    use crate::observe::host_watch::HostEvent;

    fn policy(selector: Value) -> Vec<WorkloadSelector> {
        let mut whole = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"});
        whole.as_object_mut().unwrap().extend(selector.as_object().unwrap().clone());
        read_workload_selectors(&json!({"spec": {"resourceSelectors": [whole]}}))
    }

    fn listed() -> Cache {
        let mut cache = Cache::default();
        cache.listed = ["PropagationPolicy", "ClusterPropagationPolicy"].into();
        cache
    }

    #[test]
    fn a_job_that_no_policy_selects_is_warned_of_until_one_does() {
        let warned = |cache: &Cache| warn_of_no_policy(&job(), "ns", cache).is_some();
        let mut cache = listed();
        assert!(warned(&cache));
        cache.policies.insert("other".to_owned(), [("p".to_owned(), policy(json!({})))].into());
        cache.policies.insert("ns".to_owned(), [("p".to_owned(), policy(json!({"name": "k"})))].into());
        assert!(warned(&cache), "another namespace's, and one of another job");
        cache.cluster_policies.insert("all".to_owned(), policy(json!({"namespace": "ns"})));
        assert!(!warned(&cache));
        cache.cluster_policies.remove("all");
        cache.policies.insert("ns".to_owned(), [("p".to_owned(), policy(json!({"name": "j"})))].into());
        assert!(!warned(&cache));
    }

    #[test]
    fn what_watches_say_of_policies_counts_at_once() {
        let mut cache = Cache::default();
        let key = || ("ns".to_owned(), "p".to_owned());
        let warned = |cache: &Cache| warn_of_no_policy(&job(), "ns", cache).is_some();
        cache.apply_event(HostEvent::ClusterPolicies(Event::Reset(Vec::new())));
        cache.apply_event(HostEvent::Policies(Event::Reset(vec![(key(), policy(json!({})))])));
        assert!(!warned(&cache));
        cache.apply_event(HostEvent::Policies(Event::Applied((key(), policy(json!({"name": "k"}))))));
        assert!(warned(&cache));
        cache.apply_event(HostEvent::ClusterPolicies(Event::Applied(("all".to_owned(), policy(json!({}))))));
        assert!(!warned(&cache));
        cache.apply_event(HostEvent::ClusterPolicies(Event::Deleted(("all".to_owned(), Vec::new()))));
        cache.apply_event(HostEvent::Policies(Event::Applied((key(), policy(json!({}))))));
        assert!(!warned(&cache));
        cache.apply_event(HostEvent::Policies(Event::Deleted((key(), Vec::new()))));
        assert!(warned(&cache) && cache.policies.keys().next().is_none());
        cache.apply_event(HostEvent::Policies(Event::Applied((key(), policy(json!({}))))));
        cache.apply_event(HostEvent::Policies(Event::Reset(Vec::new())));
        assert!(warned(&cache), "what a new list does not have is gone");
    }

    #[test]
    fn where_policies_are_not_listed_or_a_controller_made_the_job_nothing_is_said() {
        assert_eq!(warn_of_no_policy(&job(), "ns", &Cache::default()), None);
        let mut half = listed();
        half.listed.remove("ClusterPropagationPolicy");
        assert_eq!(warn_of_no_policy(&job(), "ns", &half), None);
        let mut made = job();
        made["metadata"]["ownerReferences"] = json!([{"kind": "HyperJob", "name": "h", "controller": true}]);
        assert_eq!(warn_of_no_policy(&made, "ns", &listed()), None);
    }

    #[test]
    fn more_selectors_than_are_looked_at_say_nothing() {
        let mut cache = listed();
        let many = vec![policy(json!({"name": "k"})).remove(0); MOST_SELECTORS];
        cache.cluster_policies.insert("many".to_owned(), many.clone());
        assert!(warn_of_no_policy(&job(), "ns", &cache).is_some());
        cache.cluster_policies.insert("more".to_owned(), many);
        assert_eq!(warn_of_no_policy(&job(), "ns", &cache), None);
    }
}
