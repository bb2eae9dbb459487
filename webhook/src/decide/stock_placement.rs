//! Placements by karmada-scheduler, held against what was admitted.
//!
//! Rule: where karmada-scheduler chooses the clusters, all that our scheduler promises of a placement is held where it
//! is stored. An update that gives a gated binding more pods or clusters than it has is refused for now unless it has a
//! record, stays within it, and was granted under the Lease that is held: that is read after the review with the grant
//! has come ([`Lookup::Grant`]), so after the grant was stored (ADR 4). karmada-scheduler tries again.
//!
//! It counts replicas and knows no tasks. So the same write gets the plan by which each cluster's copy of a Volcano Job
//! is made: as many pods in each cluster as it was given ([`plan_given_counts`]). What may not be split and was is
//! refused, and so is a cluster that the job's user does not let it go to.
//!
//! Who takes a cluster away from a job, as Karmada's taint manager and descheduler do, may: what is left keeps its
//! plan, until the rest is placed anew or the controller withdraws the gang.

use std::collections::BTreeMap;

use caldera_core::{
    admission::Admission,
    gang::{ClusterName, Gang},
    plan::Plan,
    split::plan_given_counts,
    text::count_noun,
};
use caldera_crds::{
    names::caldera,
    object::{annotation_of, name_of, read_text_at},
    workload::WorkloadKind,
};
use json_patch::PatchOperation;
use serde_json::Value;

use super::{patch::set_field, verdict::Verdict};
use crate::observe::{
    cache::{BindingKey, CachedBinding, GrantFacts, LiveRead, Lookup, Placer, Snapshot, fingerprint_plan},
    request::parse_review,
};

/// What a binding's update gets, so that copies are made for where it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockPlan {
    /// The binding.
    pub binding: BindingKey,
    /// The plan's text.
    pub text: String,
}

impl StockPlan {
    /// Whose plan it is, and a number for it.
    #[must_use]
    pub fn fingerprint(&self) -> (BindingKey, u64) {
        (self.binding.clone(), fingerprint_plan(Some(&self.text)))
    }

    /// As part of the answer.
    #[must_use]
    pub fn into_operation(self) -> PatchOperation {
        set_field(&["metadata", "annotations", caldera::PLAN], self.text)
    }
}

/// The plan that a binding's update gets, if it needs one.
///
/// # Errors
/// The verdict on an update that may not be stored, or not yet.
pub fn review_stock_placement(body: &[u8], snapshot: Snapshot<'_>) -> Result<Option<StockPlan>, Verdict> {
    let Placer::Stock { lease } = &snapshot.cache.placer else { return Ok(None) };
    // What does not parse is answered by the rule that reads it.
    let Ok(request) = parse_review::<Value>(body) else { return Ok(None) };
    let (Some(old), Some(new)) = (&request.old_object, &request.object) else { return Ok(None) };
    // Most updates place nothing.
    if old["spec"]["clusters"] == new["spec"]["clusters"] || annotation_of(new, caldera::GATE).is_none() {
        return Ok(None);
    }
    let (before, now) = (CachedBinding::from_object(old), CachedBinding::from_object(new));
    let Some(key) = now.workload.as_ref().filter(|_| new["metadata"]["deletionTimestamp"].is_null()) else {
        return Ok(None);
    };
    if now.clusters.is_empty() || now.clusters == before.clusters {
        return Ok(None);
    }
    let grown = list_grown_clusters(&before, &now);
    let grows = !grown.is_empty();
    if grows {
        check_clusters_against_record(&now).map_err(Verdict::deny_for_now)?;
    }
    let is_job = key.kind == WorkloadKind::VolcanoJob;
    if !grows && !is_job {
        return Ok(None);
    }
    let facts = match snapshot.live {
        Some(LiveRead::Grant(facts)) => facts,
        Some(LiveRead::Failed(error)) => return Err(Verdict::deny_for_now(error.clone())),
        _ => return Err(Verdict::Read(Lookup::Grant(key.clone(), lease.clone()))),
    };
    let epoch = annotation_of(new, caldera::EPOCH);
    if grows && facts.epoch.as_deref() != epoch {
        return Err(Verdict::deny_for_now(format!(
            "it was admitted under Lease {:?}, and {:?} is held: whoever holds it decides first",
            epoch.unwrap_or_default(),
            facts.epoch.as_deref().unwrap_or_default()
        )));
    }
    let gang = read_gang_of(facts).map_err(Verdict::deny_for_now)?;
    let placed: u64 = now.clusters.values().copied().map(u64::from).sum();
    if !grows && placed < u64::from(gang.replicas()) {
        return Ok(None);
    }
    check_choice_of_user(gang, &grown).map_err(Verdict::deny_for_now)?;
    let plan = make_plan(gang, &before, &now, is_job).map_err(Verdict::deny_for_now)?;
    let Some(plan) = plan else { return Ok(None) };
    let text = serde_json::to_string(&plan).map_err(|error| Verdict::Undecided(error.to_string()))?;
    let (namespace, name) = (read_text_at(new, "/metadata/namespace"), name_of(new));
    Ok(Some(StockPlan { binding: (namespace.to_owned(), name.to_owned()), text }))
}

/// Its user lets it go to all clusters where it gets more. What is elsewhere stays.
fn check_choice_of_user(gang: &Gang, grown: &[&str]) -> Result<(), String> {
    let Some(choice) = &gang.clusters else { return Ok(()) };
    match grown.iter().find(|name| !choice.allows(name)) {
        Some(name) => Err(format!("it was given pods in {name}, and {choice}: its policy has to say so too")),
        None => Ok(()),
    }
}

/// Where it gets more than it has. Zero pods are a whole copy.
fn list_grown_clusters<'a>(before: &CachedBinding, now: &'a CachedBinding) -> Vec<&'a str> {
    let is_more = |pods: u32, had: u32| had < pods || pods == 0 && had > 0;
    let grown =
        now.clusters.iter().filter(|(name, pods)| before.clusters.get(*name).is_none_or(|had| is_more(**pods, *had)));
    grown.map(|(name, _)| name.as_str()).collect()
}

/// Its clusters take no more than it was granted.
fn check_clusters_against_record(binding: &CachedBinding) -> Result<(), String> {
    let record = binding.admission.as_deref().ok_or("it is not admitted: nothing of it is placed")?;
    let granted = record.tasks.values().fold(0_u64, |sum, pods| sum.saturating_add(u64::from(*pods)));
    let of_clusters = binding.clusters.values().copied().map(u64::from);
    if is_copied(record, binding) {
        let (clusters, copies) = (binding.clusters.len(), record.copies.max(1));
        if clusters > copies as usize {
            let (clusters, copies) = (count_noun(clusters, "cluster"), count_noun(copies, "copy"));
            return Err(format!("it was given {clusters}, and has quota for {copies}"));
        }
        let most = of_clusters.max().unwrap_or_default();
        return if most > granted { Err(describe_excess(most, granted)) } else { Ok(()) };
    }
    let placed = of_clusters.fold(0_u64, u64::saturating_add);
    if placed > granted { Err(describe_excess(placed, granted)) } else { Ok(()) }
}

/// Whether each of its clusters gets all of it. A cluster without a number gets a whole copy.
fn is_copied(record: &Admission, binding: &CachedBinding) -> bool {
    record.copies > 1 || binding.clusters.values().any(|pods| *pods == 0)
}

fn describe_excess(placed: u64, granted: u64) -> String {
    let placed = count_noun(placed, "pod");
    format!("it was given clusters for {placed}, and has quota for {granted}: the rest waits for quota")
}

fn read_gang_of(facts: &GrantFacts) -> Result<&Gang, String> {
    match &facts.gang {
        Some(Ok(gang)) => Ok(gang),
        Some(Err(error)) => Err(format!("what it asks for can not be read: {error}")),
        None => Err("its workload is not there".to_owned()),
    }
}

/// What of a job is where; nothing for other kinds, whose copies need no more than a number.
fn make_plan(gang: &Gang, before: &CachedBinding, now: &CachedBinding, is_job: bool) -> Result<Option<Plan>, String> {
    let counts: BTreeMap<ClusterName, u32> =
        now.clusters.iter().map(|(name, pods)| (name.as_str().into(), *pods)).collect();
    let copied = now.admission.as_deref().is_some_and(|record| is_copied(record, now));
    if !is_job {
        let reason = gang.one_cluster.as_ref().filter(|_| counts.len() > 1 && !copied);
        return reason.map_or(Ok(None), |reason| Err(format!("it must be in one cluster: {reason}")));
    }
    if copied {
        let mut plan = Plan::default();
        for name in counts.into_keys() {
            let whole = BTreeMap::from([(name, gang.replicas())]);
            plan.clusters.extend(plan_given_counts(gang, &whole, None).map_err(|why| why.to_string())?.clusters);
        }
        return Ok(Some(plan));
    }
    let previous = before.plan.as_ref().and_then(|plan| plan.as_ref().ok()).map(|plan| {
        let mut plan = (**plan).clone();
        plan.clusters.retain(|name, _| before.clusters.contains_key(name.as_str()));
        plan
    });
    plan_given_counts(gang, &counts, previous.as_ref()).map(Some).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::observe::cache::Cache;

    const RECORD: &str = r#"{"queue":"q","priority":0,"copies":1,"tasks":{"ps":1,"worker":4},"charged":{"cpu":"5"}}"#;
    const EPOCH: &str = "3.me";

    fn job() -> Value {
        let task = |name: &str, replicas: u32| {
            json!({"name": name, "replicas": replicas, "template": {"spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
            ]}}})
        };
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns"},
            "spec": {"queue": "q", "minAvailable": 5, "tasks": [task("ps", 1), task("worker", 4)]},
        })
    }

    fn binding(clusters: &Value, record: Option<&str>) -> Value {
        let resource =
            json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": "j"});
        let mut annotations = json!({caldera::GATE: "open", caldera::EPOCH: EPOCH});
        if let Some(record) = record {
            annotations[caldera::ADMISSION] = record.into();
        }
        json!({
            "metadata": {"name": "j-job", "namespace": "ns", "annotations": annotations},
            "spec": {"resource": resource, "placement": {}, "replicas": 5, "clusters": clusters},
        })
    }

    fn stock() -> Cache {
        let lease = ("caldera-system".to_owned(), "caldera-controller".to_owned());
        let mut cache = Cache::default();
        cache.placer = Placer::Stock { lease };
        cache
    }

    fn facts(job: &Value, epoch: Option<&str>) -> LiveRead {
        let gang = caldera_crds::workload::read_gang(job).map_err(|error| error.to_string());
        LiveRead::Grant(Box::new(GrantFacts { gang: Some(gang), epoch: epoch.map(ToOwned::to_owned) }))
    }

    fn review(old: &Value, new: &Value, live: Option<&LiveRead>) -> Result<Option<Plan>, String> {
        let body =
            json!({"request": {"uid": "u", "operation": "UPDATE", "namespace": "ns", "object": new, "oldObject": old}});
        let cache = stock();
        let decided = review_stock_placement(body.to_string().as_bytes(), Snapshot::of_read(&cache, live));
        match decided {
            Ok(None) => Ok(None),
            Ok(Some(plan)) => {
                assert_eq!(plan.binding, ("ns".to_owned(), "j-job".to_owned()));
                Ok(Some(serde_json::from_str(&plan.text).unwrap()))
            }
            Err(Verdict::Deny(denial)) => Err(denial.message),
            Err(Verdict::Read(_)) => Err("asks".to_owned()),
            other => panic!("{other:?}"),
        }
    }

    fn place(clusters: &Value, record: Option<&str>, epoch: Option<&str>) -> Result<Option<Plan>, String> {
        review(&binding(&json!([]), record), &binding(clusters, record), Some(&facts(&job(), epoch)))
    }

    #[test]
    fn a_placement_within_the_record_gets_the_plan_that_its_copies_are_made_by() {
        let clusters = json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 3}]);
        let plan = place(&clusters, Some(RECORD), Some(EPOCH)).unwrap().unwrap();
        let pods = |cluster: &str, task: &str| plan.clusters[cluster].tasks[task].replicas;
        assert_eq!([pods("m1", "ps"), pods("m1", "worker"), pods("m2", "ps"), pods("m2", "worker")], [1, 1, 0, 3]);
        let old = binding(&json!([]), Some(RECORD));
        assert_eq!(review(&old, &binding(&clusters, Some(RECORD)), None), Err("asks".to_owned()), "the Lease is read");
    }

    #[test]
    fn nothing_is_placed_without_a_record_beyond_it_or_under_a_lease_that_is_over() {
        let all = json!([{"name": "m1", "replicas": 5}]);
        let more = json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 2}]);
        let refuse = |clusters: &Value, record: Option<&str>, epoch| place(clusters, record, epoch).unwrap_err();
        assert!(refuse(&all, None, Some(EPOCH)).contains("not admitted"));
        assert!(refuse(&all, Some("{}"), Some(EPOCH)).contains("not admitted"), "nobody can read it");
        assert!(refuse(&more, Some(RECORD), Some(EPOCH)).contains("for 6 pods, and has quota for 5"));
        assert!(refuse(&all, Some(RECORD), Some("4.other")).contains("decides first"));
        assert!(refuse(&all, Some(RECORD), None).contains("decides first"), "there is no such Lease");
    }

    #[test]
    fn each_copy_of_a_duplicated_job_is_whole_and_there_are_no_more_than_were_admitted() {
        let record = RECORD.replace(r#""copies":1"#, r#""copies":2"#);
        let targets =
            |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name, "replicas": 5})).collect() };
        let plan = place(&targets(&["m1", "m2"]), Some(&record), Some(EPOCH)).unwrap().unwrap();
        assert!(plan.clusters.values().all(|share| share.replicas() == 5 && share.min_available == 5));
        let reported = place(&targets(&["m1", "m2", "m3"]), Some(&record), Some(EPOCH)).unwrap_err();
        assert!(reported.contains("3 clusters, and has quota for 2 copies"), "{reported}");
    }

    #[test]
    fn what_must_be_in_one_cluster_and_was_divided_is_refused_in_words() {
        let mut ranks = job();
        ranks["spec"]["plugins"] = json!({"pytorch": ["--master=ps", "--worker=worker"]});
        let clusters = json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 3}]);
        let old = binding(&json!([]), Some(RECORD));
        let reported = review(&old, &binding(&clusters, Some(RECORD)), Some(&facts(&ranks, Some(EPOCH)))).unwrap_err();
        assert!(reported.contains("must be in one"), "{reported}");
    }

    #[test]
    fn what_gives_pods_back_needs_no_lease_and_its_plan_follows() {
        let mut old = binding(&json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 3}]), Some(RECORD));
        let plan = place(&old["spec"]["clusters"], Some(RECORD), Some(EPOCH)).unwrap().unwrap();
        old["metadata"]["annotations"][caldera::PLAN] = serde_json::to_string(&plan).unwrap().into();
        let mut fewer = job();
        fewer["spec"]["tasks"][1]["replicas"] = 2.into();
        fewer["spec"]["minAvailable"] = 3.into();
        let mut new = old.clone();
        new["spec"]["clusters"] = json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 1}]);
        let plan = review(&old, &new, Some(&facts(&fewer, None))).unwrap().unwrap();
        assert_eq!(plan.clusters["m2"].tasks["worker"].replicas, 1);
        new["spec"]["clusters"] = json!([]);
        assert_eq!(review(&old, &new, None), Ok(None), "an eviction");
    }

    #[test]
    fn a_cluster_may_be_taken_away_from_a_job_and_what_is_left_keeps_its_plan() {
        let old = binding(&json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 3}]), Some(RECORD));
        for left in [json!([{"name": "m1", "replicas": 2}]), json!([{"name": "m1", "replicas": 1}])] {
            let new = binding(&left, Some(RECORD));
            assert_eq!(review(&old, &new, Some(&facts(&job(), None))), Ok(None), "{left}");
        }
        let more = binding(&json!([{"name": "m1", "replicas": 3}]), Some(RECORD));
        let reported = review(&old, &more, Some(&facts(&job(), Some(EPOCH)))).unwrap_err();
        assert!(reported.contains("given 3 pods, and the job has 5"), "no part of a gang is placed: {reported}");
    }

    #[test]
    fn zero_pods_are_a_whole_copy_and_more_than_there_was() {
        let old = binding(&json!([{"name": "m1", "replicas": 2}]), Some(RECORD));
        let new = binding(&json!([{"name": "m1", "replicas": 0}]), Some(RECORD));
        let reported = review(&old, &new, Some(&facts(&job(), Some("4.other")))).unwrap_err();
        assert!(reported.contains("decides first"), "{reported}");
    }

    #[test]
    fn nothing_goes_where_its_user_does_not_let_it_go() {
        let mut chosen = job();
        chosen["metadata"]["annotations"] = json!({caldera::CLUSTERS: "m1,m2", caldera::EXCLUDE_CLUSTERS: "m2"});
        let old = binding(&json!([]), Some(RECORD));
        let place = |old: &Value, cluster: &str| {
            let new = binding(&json!([{"name": cluster, "replicas": 5}]), Some(RECORD));
            review(old, &new, Some(&facts(&chosen, Some(EPOCH))))
        };
        assert!(place(&old, "m1").unwrap().is_some());
        for cluster in ["m2", "m3"] {
            let reported = place(&old, cluster).unwrap_err();
            let words = "its user lets it go only to m1, m2; its user keeps it out of m2";
            assert!(reported.contains(&format!("given pods in {cluster}, and {words}")), "{reported}");
        }
        let there = |pods: u32| json!({"name": "m3", "replicas": pods});
        let old = binding(&json!([there(3)]), Some(RECORD));
        let place =
            |clusters: &Value| review(&old, &binding(clusters, Some(RECORD)), Some(&facts(&chosen, Some(EPOCH))));
        assert!(place(&json!([there(3), {"name": "m1", "replicas": 2}])).unwrap().is_some(), "what is there stays");
        assert!(place(&json!([there(4), {"name": "m1", "replicas": 1}])).unwrap_err().contains("given pods in m3"));
    }

    #[test]
    fn other_kinds_get_no_plan_and_what_is_not_gated_is_left_alone() {
        let mut old = binding(&json!([]), Some(RECORD));
        old["spec"]["resource"] =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "ns", "name": "j"});
        let mut new = old.clone();
        new["spec"]["clusters"] = json!([{"name": "m1", "replicas": 5}]);
        let web =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "j"}, "spec": {"replicas": 5}});
        assert_eq!(review(&old, &new, Some(&facts(&web, Some(EPOCH)))), Ok(None));
        new["spec"]["clusters"] = json!([{"name": "m1", "replicas": 6}]);
        assert!(review(&old, &new, Some(&facts(&web, Some(EPOCH)))).is_err());
        new["metadata"]["annotations"] = json!({});
        assert_eq!(review(&old, &new, None), Ok(None));
    }

    #[test]
    fn our_own_schedulers_placements_are_not_looked_at() {
        let clusters = json!([{"name": "m1", "replicas": 9}]);
        let (old, new) = (binding(&json!([]), None), binding(&clusters, None));
        let body = json!({"request": {"uid": "u", "operation": "UPDATE", "object": new, "oldObject": old}}).to_string();
        let cache = Cache::default();
        assert_eq!(review_stock_placement(body.as_bytes(), Snapshot::of_cache(&cache)), Ok(None));
    }
}
