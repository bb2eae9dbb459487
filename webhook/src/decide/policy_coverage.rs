//! A warning for a new workload that no policy selects: it would wait on the host for ever, and nobody says why.
//!
//! Rules: it is only a warning, since a policy may come later, also in the same `kubectl apply`. Nothing is said while
//! policies were not listed, of what a controller made, where policies are not all kept
//! ([`kept_policies`](crate::observe::kept_policies)), and where more would have to be looked at than [`MOST_PARTS`].

use caldera_crds::object::read_list_at;
use serde_json::Value;

use crate::observe::{cache::Cache, kept_policies::KeptPolicies};

/// Selectors, labels and values that are looked at for a job: of its namespace, and of the whole host.
const MOST_PARTS: usize = 10_000;

/// The warning.
#[must_use]
pub fn warn_of_no_policy(job: &Value, namespace: &str, cache: &Cache) -> Option<String> {
    let is_listed = ["PropagationPolicy", "ClusterPropagationPolicy"].iter().all(|kind| cache.listed.contains(kind));
    let is_made = read_list_at(job, "/metadata/ownerReferences").iter().any(|owner| owner["controller"] == true);
    if !is_listed || is_made {
        return None;
    }
    let kept = || cache.policies.get(namespace).into_iter().chain([&*cache.cluster_policies]);
    if kept().any(KeptPolicies::has_left_out) {
        return None;
    }
    let mut parts = 0;
    let may_be_selected = kept().flat_map(KeptPolicies::selections).any(|selection| {
        parts += selection.count_parts();
        parts > MOST_PARTS || selection.selects(job)
    });
    (!may_be_selected).then(|| {
        "no PropagationPolicy or ClusterPropagationPolicy selects it yet: it stays here, in no queue and on no \
         cluster, until one does"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use caldera_crds::policy_selection::PolicySelection;
    use caldera_runtime::watch::Event;
    use serde_json::json;

    use super::{super::job::tests::job, *};
    use crate::observe::host_watch::HostEvent;

    fn policy(selector: Value) -> PolicySelection {
        let mut whole = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"});
        whole.as_object_mut().unwrap().extend(selector.as_object().unwrap().clone());
        PolicySelection::of_policy(&json!({"spec": {"resourceSelectors": [whole]}}))
    }

    fn put(cache: &mut Cache, namespace: &str, name: &str, selection: &PolicySelection) {
        cache.put_policy((namespace.to_owned(), name.to_owned()), selection);
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
        put(&mut cache, "other", "p", &policy(json!({})));
        put(&mut cache, "ns", "p", &policy(json!({"name": "k"})));
        assert!(warned(&cache), "another namespace's, and one of another job");
        Arc::make_mut(&mut cache.cluster_policies).put_policy("all", &policy(json!({"namespace": "ns"})));
        assert!(!warned(&cache));
        cache.cluster_policies = Arc::default();
        put(&mut cache, "ns", "p", &policy(json!({"name": "j"})));
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
        cache.apply_event(HostEvent::ClusterPolicies(Event::Deleted(("all".to_owned(), PolicySelection::default()))));
        cache.apply_event(HostEvent::Policies(Event::Applied((key(), policy(json!({}))))));
        assert!(!warned(&cache));
        cache.apply_event(HostEvent::Policies(Event::Deleted((key(), PolicySelection::default()))));
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
    fn more_values_than_are_looked_at_say_nothing() {
        let among = json!({"matchExpressions": [{"key": "team", "operator": "In", "values": vec!["a"; 200]}]});
        let (mut cache, of_others) = (listed(), policy(json!({"labelSelector": among})));
        (0..20).for_each(|at| put(&mut cache, "ns", &at.to_string(), &of_others));
        assert!(warn_of_no_policy(&job(), "ns", &cache).is_some());
        let host = Arc::make_mut(&mut cache.cluster_policies);
        (0..30).for_each(|at| host.put_policy(&at.to_string(), &of_others));
        assert_eq!(warn_of_no_policy(&job(), "ns", &cache), None);
    }

    #[test]
    fn where_policies_are_left_out_nothing_is_said() {
        let mut cache = listed();
        (0..2_000).for_each(|at| put(&mut cache, "ns", &at.to_string(), &policy(json!({"name": "k"}))));
        assert_eq!(warn_of_no_policy(&job(), "ns", &cache), None);
        assert!(warn_of_no_policy(&job(), "other", &cache).is_some());
    }

    /// Each event copied all policies of its namespace.
    #[test]
    fn an_event_that_says_what_is_known_of_a_policy_copies_nothing() {
        let mut cache = listed();
        put(&mut cache, "ns", "p", &policy(json!({"name": "k"})));
        let before = cache.clone();
        let event = |selection| HostEvent::Policies(Event::Applied((("ns".to_owned(), "p".to_owned()), selection)));
        let is_shared = |cache: &Cache| match (before.policies.get("ns"), cache.policies.get("ns")) {
            (Some(before), Some(now)) => std::ptr::eq(before, now),
            _ => false,
        };
        cache.apply_event(event(policy(json!({"name": "k"}))));
        assert!(is_shared(&cache));
        cache.apply_event(event(policy(json!({"name": "l"}))));
        assert!(!is_shared(&cache));
    }
}
