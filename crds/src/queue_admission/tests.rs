use serde_json::{Value, json};

use super::*;

#[allow(clippy::needless_pass_by_value)]
fn queue(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

fn texts(refusals: &[Refusal]) -> Vec<&str> {
    refusals.iter().map(|refusal| refusal.volcano.as_str()).collect()
}

fn created(queue: &Value, there: &[Value]) -> String {
    join_messages(&list_volcano_creation_refusals(queue, &there.iter().collect::<Vec<_>>()))
        .trim_matches(['[', ']'])
        .to_owned()
}

#[test]
fn defaults_weight_reclaimable_and_the_root_of_the_path() {
    let mut new = json!({"metadata": {"name": "q", "annotations": {HIERARCHY: "a/b", HIERARCHY_WEIGHTS: "2/8"}}});
    fill_queue_defaults(&mut new);
    assert_eq!(new["spec"], json!({"reclaimable": true, "weight": 1}));
    assert_eq!(new["metadata"]["annotations"], json!({HIERARCHY: "root/a/b", HIERARCHY_WEIGHTS: "1/2/8"}));
    let once = new.clone();
    fill_queue_defaults(&mut new);
    assert_eq!(new, once);
    let mut given = queue("q", json!({"reclaimable": false, "weight": 7}));
    fill_queue_defaults(&mut given);
    assert_eq!(given["spec"], json!({"reclaimable": false, "weight": 7}));
}

#[test]
fn guarantee_at_most_deserved_at_most_capability() {
    let bad = queue(
        "q",
        json!({"guarantee": {"resource": {"cpu": "3", "memory": "1Gi"}}, "deserved": {"cpu": "2"}, "capability": {"cpu": "1"}}),
    );
    assert_eq!(
        texts(&list_volcano_creation_refusals(&bad, &[])),
        [
            "requestBody.spec.deserved.cpu: Invalid value: \"2\": deserved[cpu]=2 must be >= guarantee[cpu]=3",
            "requestBody.spec.deserved.memory: Invalid value: \"<nil>\": deserved[memory] must be >= guarantee[memory]=1Gi",
            "requestBody.spec.deserved.cpu: Invalid value: \"2\": deserved[cpu]=2 must be <= capability[cpu]=1",
        ]
    );
    let good = json!({"guarantee": {"resource": {"cpu": "1000m"}}, "deserved": {"cpu": 1}, "capability": {"cpu": "1"}});
    assert!(list_volcano_creation_refusals(&queue("q", good), &[]).is_empty());
}

#[test]
fn negative_fractional_and_broken_amounts_are_refused() {
    let refused = |spec: Value| created(&queue("q", spec), &[]);
    assert!(refused(json!({"capability": {"cpu": "-1"}})).contains("must be greater than or equal to 0"));
    assert!(refused(json!({"capability": {"nvidia.com/gpu": "0.5"}})).contains("must be an integer"));
    assert!(refused(json!({"capability": {"pods": "500m"}})).contains("must be an integer"));
    assert!(refused(json!({"deserved": {"cpu": "much"}})).contains("quantities must match"));
    assert_eq!(refused(json!({"capability": {"cpu": "500m"}})), "");
}

#[test]
fn a_submitted_state_is_open_or_closed() {
    let mut closing = queue("q", json!({}));
    closing["status"] = json!({"state": "Closing"});
    assert_eq!(
        texts(&list_volcano_creation_refusals(&closing, &[])),
        ["requestBody.spec.state: Invalid value: \"Closing\": queue state must be in [Open Closed]"]
    );
    closing["status"]["state"] = "Closed".into();
    assert!(list_volcano_creation_refusals(&closing, &[]).is_empty());
}

#[test]
fn the_paths_of_hdrf_fit_their_weights_and_each_other() {
    let with = |name: &str, path: &str, weights: &str| json!({"metadata": {"name": name, "annotations": {HIERARCHY: path, HIERARCHY_WEIGHTS: weights}}});
    assert!(created(&with("q", "root/a", "1"), &[]).contains("must have the same length with"));
    assert!(created(&with("q", "root/a", "1/x"), &[]).contains("x in the 1/x is invalid number"));
    assert!(created(&with("q", "root/a", "1/0"), &[]).contains("must be larger than 0"));
    let there = [with("dev", "root/sci/dev", "1/2/3")];
    assert!(
        created(&with("q", "root/sci", "1/2"), &there).contains("not allowed to be in the sub path of root/sci/dev")
    );
    assert_eq!(created(&with("q", "root/sc", "1/2"), &there), "");
    assert_eq!(created(&with("dev", "root/sci", "1/2"), &there), "", "itself is no obstacle");
}

#[test]
fn the_parent_is_there_without_pods_and_not_too_far_down() {
    let below = |name: &str, parent: &str| queue(name, json!({"parent": parent}));
    assert_eq!(created(&below("q", "q"), &[]), "queue q cannot use itself as parent");
    assert!(created(&below("q", "p"), &[]).contains("failed to get parent queue p of queue q"));
    let mut chain: Vec<Value> = vec![below("l1", "root")];
    for level in 2..=4 {
        chain.push(below(&format!("l{level}"), &format!("l{}", level - 1)));
    }
    assert_eq!(created(&below("l5", "l4"), &chain), "");
    chain.push(below("l5", "l4"));
    assert_eq!(created(&below("l6", "l5"), &chain), "queue l6 exceeds the maximum allowed depth of 5");
    let mut busy = below("p", "root");
    busy["status"] = json!({"allocated": {"pods": "3"}});
    assert_eq!(
        created(&below("q", "p"), &[busy.clone()]),
        "queue p cannot be the parent queue of queue q because it has allocated Pods: 3"
    );
    assert_eq!(created(&below("q", "p"), &[busy, below("other", "p")]), "", "it is a parent already");
    // A cycle by a change of parent is a depth without end.
    let (a, b) = (below("a", "root"), below("b", "a"));
    let moved = below("a", "b");
    assert_eq!(
        texts(&list_volcano_update_refusals(&a, &moved, &[&a, &b])),
        Vec::<&str>::new(),
        "Volcano looks at the stored parents: b is below a, which is still below root"
    );
}

#[test]
fn a_child_stays_within_the_nearest_ancestor_that_limits() {
    let there = [
        queue("top", json!({"parent": "root", "capability": {"cpu": "4"}})),
        queue("mid", json!({"parent": "top", "capability": {"memory": "1Gi"}})),
    ];
    let child = |cpu: &str| queue("q", json!({"parent": "mid", "capability": {"cpu": cpu}}));
    assert_eq!(created(&child("4"), &there), "");
    assert_eq!(created(&child("5"), &there), "queue q capability[cpu]=5 exceeds its ancestor's capability=4");
}

#[test]
fn siblings_share_what_the_parent_has() {
    let spec = |cpu: &str| json!({"parent": "p", "deserved": {"cpu": cpu}});
    let there = [queue("p", json!({"deserved": {"cpu": "4"}})), queue("a", spec("3"))];
    assert_eq!(created(&queue("b", spec("1")), &there), "");
    assert_eq!(
        created(&queue("b", spec("2")), &there),
        "parent queue p validation failed: sum of children's deserved (cpu 5000.00, memory 0.00) exceeds parent's deserved \
         limit (cpu 4000.00, memory 0.00)"
    );
    // What the parent does not name is nothing.
    let there = [queue("p", json!({}))];
    assert!(created(&queue("b", spec("1")), &there).contains("sum of children's deserved"));
    assert_eq!(
        created(&queue("b", json!({"deserved": {"cpu": "1"}})), &[queue("root", json!({}))]),
        "",
        "root is exempt"
    );
}

#[test]
fn a_parent_holds_its_descendants() {
    let old = queue("p", json!({"capability": {"cpu": "8"}}));
    let there = [
        old.clone(),
        queue("a", json!({"parent": "p"})),
        queue("b", json!({"parent": "a", "capability": {"cpu": "6"}})),
    ];
    let there: Vec<&Value> = there.iter().collect();
    let shrunk = queue("p", json!({"capability": {"cpu": "5"}}));
    assert_eq!(
        texts(&list_volcano_update_refusals(&old, &shrunk, &there)),
        ["queue p capability[cpu]=5 is smaller than its descendants' max capability=6"]
    );
    let same = queue("p", json!({"capability": {"cpu": "8000m"}, "weight": 9}));
    assert!(list_volcano_update_refusals(&old, &same, &there).is_empty(), "nothing about resources changed");
}

#[test]
fn the_root_s_resources_are_protected() {
    let (old, new) = (queue("root", json!({})), queue("root", json!({"capability": {"cpu": "1"}})));
    assert_eq!(
        texts(&list_volcano_update_refusals(&old, &new, &[&old])),
        ["root queue's resource attributes (capability, deserved, guarantee) cannot be modified"]
    );
}

#[test]
fn default_root_and_parents_can_not_be_deleted() {
    let there = [queue("p", json!({})), queue("a", json!({"parent": "p"})), queue("b", json!({"parent": "p"}))];
    let there: Vec<&Value> = there.iter().collect();
    assert_eq!(texts(&list_deletion_refusals("default", &there)), ["`default` queue can not be deleted"]);
    assert_eq!(texts(&list_deletion_refusals("root", &there)), ["`root` queue can not be deleted"]);
    assert_eq!(
        texts(&list_deletion_refusals("p", &there)),
        ["queue p can not be deleted because it has 2 child queues: a, b"]
    );
    assert!(list_deletion_refusals("a", &there).is_empty());
}
