use serde_json::{Value, json};

use super::{
    MOST_CHILDREN, build_placement, list_creation_refusals, list_ignored_fields, list_replicated_jobs,
    list_update_refusals,
};

fn template(queue: &str, pods: i64) -> Value {
    json!({
        "queue": queue, "minAvailable": pods,
        "tasks": [{
            "name": "t", "replicas": pods,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        }],
    })
}

fn hyper_job(replicated: Value) -> Value {
    json!({"metadata": {"name": "h"}, "spec": {"replicatedJobs": replicated}})
}

fn two() -> Value {
    hyper_job(json!([
        {"name": "a", "replicas": 2, "templateSpec": template("q", 1)},
        {"name": "b", "templateSpec": template("q", 1)},
    ]))
}

#[track_caller]
fn is_refused(hyper_job: &Value, with: &str) {
    let refusals = list_creation_refusals(hyper_job);
    assert!(refusals.iter().any(|refusal| refusal.contains(with)), "{refusals:?}");
}

#[test]
fn one_that_volcano_would_run_is_taken() {
    assert_eq!(list_creation_refusals(&two()), Vec::<String>::new());
    let all = two();
    let names: Vec<(&str, i64)> = list_replicated_jobs(&all).map(|one| (one.name, one.replicas)).collect();
    assert_eq!(names, [("a", 2), ("b", 1)]);
}

#[test]
fn nobody_makes_millions_of_jobs_with_one_object() {
    let mut many = two();
    many["spec"]["replicatedJobs"][0]["replicas"] = MOST_CHILDREN.into();
    is_refused(&many, "501 jobs in all are more than 500");
    many["spec"]["replicatedJobs"][0]["replicas"] = i64::MAX.into();
    is_refused(&many, "are more than 500");
    let templates: Vec<Value> = (0..65).map(|at| json!({"name": format!("r{at}"), "templateSpec": {}})).collect();
    is_refused(&hyper_job(json!(templates)), "65 are more than 64");
}

#[test]
fn every_refusal_names_field_value_and_limit() {
    is_refused(&hyper_job(json!([])), "needs at least one");
    let with = |change: fn(&mut Value)| {
        let mut changed = two();
        change(&mut changed);
        changed
    };
    is_refused(&with(|it| it["metadata"]["name"] = "a.b".into()), "metadata.name: \"a.b\" is no DNS label");
    is_refused(
        &with(|it| it["spec"]["replicatedJobs"][1]["name"] = "a".into()),
        "[1].name: \"a\" is the name of an earlier",
    );
    is_refused(&with(|it| it["spec"]["replicatedJobs"][1]["name"] = "A/".into()), "[1].name: \"A/\" is no DNS label");
    is_refused(&with(|it| it["spec"]["replicatedJobs"][0]["replicas"] = (-1).into()), "[0].replicas: -1 is below 0");
    is_refused(&with(|it| it["spec"]["minAvailable"] = 4.into()), "minAvailable: 4 is more than the 3 jobs");
    is_refused(&with(|it| it["spec"]["minAvailable"] = (-1).into()), "minAvailable: -1 is below 0");
    is_refused(&with(|it| it["spec"]["maxDomains"] = 0.into()), "maxDomains: 0 is below 1");
    is_refused(
        &with(|it| it["spec"]["replicatedJobs"][0]["clusterNames"] = json!(["m/1"])),
        "\"m/1\" is no name of a cluster",
    );
    is_refused(
        &with(|it| {
            for at in [0, 1] {
                it["spec"]["replicatedJobs"][at]["replicas"] = 0.into();
            }
        }),
        "needs at least one job",
    );
}

#[test]
fn a_template_is_checked_as_volcano_checks_the_job() {
    let mut wrong = two();
    wrong["spec"]["replicatedJobs"][1]["templateSpec"]["minAvailable"] = 9.into();
    is_refused(&wrong, "spec.replicatedJobs[1].templateSpec.minAvailable: 9 is more than the 1 replica of all tasks");
    // Names of pods and jobs are labels: 63 characters.
    let mut long = two();
    long["metadata"]["name"] = "h".repeat(60).into();
    is_refused(&long, "at most 63 are allowed");
}

#[test]
fn a42_a_name_that_is_too_long_after_scaling_up_is_refused_then() {
    let mut old = two();
    old["metadata"]["name"] = "h".repeat(55).into();
    assert_eq!(list_creation_refusals(&old), Vec::<String>::new());
    let mut new = old.clone();
    new["spec"]["replicatedJobs"][0]["replicas"] = 300.into();
    assert!(!list_update_refusals(&old, &new).is_empty(), "h...-a-299-t-0 has more than 63 characters");
}

#[test]
fn a40_what_volcano_would_not_let_change_in_a_job_does_not_change_in_its_template() {
    let old = two();
    let mut scaled = old.clone();
    scaled["spec"]["replicatedJobs"][0]["replicas"] = 5.into();
    scaled["spec"]["replicatedJobs"][1]["templateSpec"]["tasks"][0]["replicas"] = 3.into();
    assert_eq!(list_update_refusals(&old, &scaled), Vec::<String>::new());
    let mut image = old.clone();
    image["spec"]["replicatedJobs"][0]["templateSpec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"] =
        "j".into();
    let refusals = list_update_refusals(&old, &image);
    assert!(refusals[0].starts_with("spec.replicatedJobs[0].templateSpec.tasks[0].template"), "{refusals:?}");
    // Another one of that template is a new job.
    image["spec"]["replicatedJobs"][0]["name"] = "c".into();
    assert_eq!(list_update_refusals(&old, &image), Vec::<String>::new());
}

#[test]
fn one_that_ended_is_not_changed_any_more() {
    let mut old = two();
    old["status"] = json!({"conditions": [{"type": "Completed", "status": "True"}]});
    let mut new = old.clone();
    new["spec"]["replicatedJobs"][0]["replicas"] = 5.into();
    assert!(list_update_refusals(&old, &new)[0].contains("it is Completed"));
}

#[test]
fn a39_named_clusters_are_preferred_and_others_may_be_taken() {
    let mut all = two();
    all["spec"]["replicatedJobs"][0]["clusterNames"] = json!(["m1"]);
    let placement = build_placement(&all, &list_replicated_jobs(&all).next().unwrap());
    let terms = &placement["clusterAffinities"];
    assert_eq!((&terms[0]["clusterNames"], &terms[1]["clusterNames"]), (&json!(["m1"]), &Value::Null));
    assert_eq!(placement["spreadConstraints"][0]["maxGroups"], 1, "each job is one cluster's");
}

#[test]
fn a_job_is_one_clusters_unless_it_is_split_by_mode_auto_over_max_domains() {
    let mut all = two();
    all["spec"]["maxDomains"] = 3.into();
    all["spec"]["replicatedJobs"][0]["splitPolicy"] = json!({"mode": "static"});
    all["spec"]["replicatedJobs"][1]["splitPolicy"] = json!({"mode": "auto"});
    let most: Vec<i64> = list_replicated_jobs(&all)
        .map(|one| build_placement(&all, &one)["spreadConstraints"][0]["maxGroups"].as_i64().unwrap())
        .collect();
    assert_eq!(most, [1, 3]);
}

#[test]
fn what_nobody_acts_on_is_said() {
    let mut all = two();
    assert_eq!(list_ignored_fields(&all), Vec::<String>::new());
    all["spec"]["plugins"] = json!({"svc": []});
    all["spec"]["replicatedJobs"][1]["splitPolicy"] = json!({"mode": "auto", "accelerators": 8});
    let unread = list_ignored_fields(&all);
    assert!(unread[0].contains("spec.plugins") && unread[1].contains("replicatedJobs[1].splitPolicy"), "{unread:?}");
    all["spec"]["replicatedJobs"][1]["splitPolicy"]["acceleratorType"] = "nvidia.com/gpu".into();
    assert_eq!(list_ignored_fields(&all).len(), 1);
}

/// Two jobs of four pods with two cards each, and what their split policy says.
fn with_cards(policy: &Value) -> Value {
    let mut template = template("q", 4);
    template["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 2}});
    hyper_job(json!([{"name": "a", "replicas": 2, "templateSpec": template, "splitPolicy": policy}]))
}

#[test]
fn accelerators_are_what_the_pods_of_all_jobs_request_together() {
    let of = |policy: Value| list_creation_refusals(&with_cards(&policy)).join("; ");
    for mode in ["static", "auto"] {
        assert_eq!(of(json!({"mode": mode, "acceleratorType": "nvidia.com/gpu", "accelerators": 16})), "");
    }
    assert_eq!(of(json!({"acceleratorType": "nvidia.com/gpu"})), "");
    assert_eq!(of(json!({"accelerators": 3})), "", "of nobody knows what");
    assert_eq!(
        of(json!({"acceleratorType": "nvidia.com/gpu", "accelerators": 8})),
        "spec.replicatedJobs[0].splitPolicy.accelerators: 8 is not the 16 nvidia.com/gpu of its jobs: 2 of them, with \
         8 each"
    );
    assert_eq!(
        of(json!({"acceleratorType": "amd.com/gpu", "accelerators": 16})),
        "spec.replicatedJobs[0].splitPolicy.acceleratorType: no pod of templateSpec requests amd.com/gpu"
    );
}

#[test]
fn a_change_keeps_accelerators_and_jobs_in_step_and_one_from_before_stays() {
    let right = with_cards(&json!({"acceleratorType": "nvidia.com/gpu", "accelerators": 16}));
    let mut more = right.clone();
    more["spec"]["replicatedJobs"][0]["replicas"] = 3.into();
    let refused = list_update_refusals(&right, &more);
    assert!(refused.len() == 1 && refused[0].contains("16 is not the 24 nvidia.com/gpu"), "{refused:?}");
    more["spec"]["replicatedJobs"][0]["splitPolicy"]["accelerators"] = 24.into();
    assert_eq!(list_update_refusals(&right, &more), Vec::<String>::new());
    let old = with_cards(&json!({"acceleratorType": "nvidia.com/gpu", "accelerators": 5}));
    let mut other = old.clone();
    other["spec"]["maxDomains"] = 2.into();
    assert_eq!(list_update_refusals(&old, &other), Vec::<String>::new());
}

#[test]
fn the_jobs_of_a_hyper_job_start_together_in_one_queue() {
    let of = |a: &str, b: Value| {
        let mut second = template("q", 1);
        second["queue"] = b;
        list_creation_refusals(&hyper_job(json!([
            {"name": "a", "templateSpec": template(a, 1)}, {"name": "b", "templateSpec": second},
        ])))
    };
    assert_eq!(of("q", json!("q")), Vec::<String>::new());
    assert_eq!(of("default", Value::Null), Vec::<String>::new());
    let refused = of("q", json!("r"));
    assert!(refused.len() == 1 && refused[0].contains("\"q\", \"r\""), "{refused:?}");
}
