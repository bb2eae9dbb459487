use proptest::prelude::*;
use serde_json::json;

use super::*;

#[allow(clippy::needless_pass_by_value)]
fn queue(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

fn below(name: &str, parent: &str) -> Value {
    queue(name, json!({"parent": parent}))
}

fn created(queue: &Value, there: &[Value]) -> Vec<String> {
    list_host_creation_problems(queue, &there.iter().collect::<Vec<_>>())
}

/// `old` is among those that are there.
fn updated(old: &Value, new: &Value, there: &[Value]) -> Vec<String> {
    list_host_update_problems(old, new, &there.iter().chain([old]).collect::<Vec<_>>())
}

#[test]
fn guarantee_at_most_deserved_at_most_capability() {
    let spec = json!({
        "guarantee": {"resource": {"cpu": "3", "memory": "1Gi"}}, "deserved": {"cpu": "2"}, "capability": {"cpu": "1"},
    });
    assert_eq!(
        created(&queue("q", spec), &[]),
        [
            "spec.guarantee.resource.cpu: 3 is more than spec.deserved.cpu, which is 2",
            "spec.guarantee.resource.memory: 1Gi is more than spec.deserved.memory, which is 0 (not set)",
            "spec.guarantee.resource.cpu: 3 is more than spec.capability.cpu, which is 1",
            "spec.deserved.cpu: 2 is more than spec.capability.cpu, which is 1",
        ]
    );
    let good = json!({"guarantee": {"resource": {"cpu": "1000m"}}, "deserved": {"cpu": 1}, "capability": {"cpu": "1"}});
    assert!(created(&queue("q", good), &[]).is_empty());
}

#[test]
fn negative_fractional_and_broken_amounts_are_refused() {
    let spec = json!({
        "capability": {"cpu": "-1", "nvidia.com/gpu": "500m"}, "deserved": {"cpu": "much"},
        "guarantee": {"resource": {"pods": "-2"}},
    });
    let reported = created(&queue("q", spec), &[]);
    assert_eq!(
        reported[..2],
        ["spec.capability.cpu: -1 is below 0", "spec.capability.nvidia.com/gpu: 500m is not a whole number"]
    );
    assert!(reported[2].starts_with("spec.deserved.cpu: \"much\" is not a quantity"), "{reported:?}");
    assert_eq!(reported[3..], ["spec.guarantee.resource.pods: -2 is below 0"]);
}

#[test]
fn names_that_nothing_asks_for_are_refused_and_old_objects_stay_editable() {
    for (kind, field) in [("capability", "spec.capability"), ("deserved", "spec.deserved")] {
        let of = |weight: u32| queue("q", json!({"weight": weight, kind: {"requests.cpu": "3"}}));
        let refused = created(&of(1), &[]);
        assert_eq!(refused.len(), 1);
        assert!(refused[0].starts_with(&format!("{field}.requests.cpu: counts for nothing")), "{refused:?}");
        assert!(updated(&of(1), &of(2), &[of(1)]).is_empty());
    }
    for spec in [json!({"capability": {"x.io/gpu:a": "3"}}), json!({"deserved": {"x.io/gpu:a": "3"}})] {
        let refused = created(&queue("q", spec), &[]);
        assert!(refused.iter().any(|why| why.contains(".x.io/gpu:a: counts for nothing")), "{refused:?}");
    }
    let guarantee = json!({"guarantee": {"resource": {"count/pods": "3"}}, "deserved": {"cpu": "3"}});
    assert!(
        created(&queue("q", guarantee), &[]).iter().any(|why| why.contains("resource.count/pods: counts for nothing"))
    );
}

#[test]
fn a_submitted_state_is_open_or_closed_unless_it_was_so_already() {
    let with = |state: &str| json!({"metadata": {"name": "q"}, "spec": {}, "status": {"state": state}});
    assert_eq!(created(&with("Closing"), &[]), ["status.state: \"Closing\" is neither Open nor Closed"]);
    assert!(created(&with("Closed"), &[]).is_empty());
    let mut changed = with("Closing");
    changed["spec"] = json!({"weight": 3});
    assert!(updated(&with("Closing"), &changed, &[]).is_empty(), "a queue that is closing can be edited");
    assert_eq!(updated(&with("Open"), &with("Unknown"), &[]).len(), 1);
}

#[test]
fn the_paths_of_hdrf_fit_their_weights() {
    let with = |path: &str, weights: &str| {
        json!({"metadata": {"name": "q", "annotations": {
            "volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights,
        }}})
    };
    let reported = created(&with("root/a", "1/0"), &[]);
    assert_eq!(reported, ["metadata.annotations: weight 0 of volcano.sh/hierarchy-weights is not above 0"]);
    assert!(updated(&with("root/a", "1/0"), &with("root/a", "1/0"), &[]).is_empty());
    assert_eq!(updated(&with("root/a", "1/0"), &with("root/a", "1/-1"), &[]).len(), 1);
}

#[test]
fn a_parent_is_there_not_too_deep_not_below_and_without_pods() {
    let mut there = vec![below("l1", "root")];
    for level in 2..=5 {
        there.push(below(&format!("l{level}"), &format!("l{}", level - 1)));
    }
    assert_eq!(created(&below("q", "nowhere"), &there), ["spec.parent: queue \"nowhere\" does not exist"]);
    assert_eq!(created(&below("q", "q"), &there), ["spec.parent: a queue can not be its own parent"]);
    assert!(created(&below("q", "l4"), &there).is_empty());
    assert_eq!(
        created(&below("l6", "l5"), &there),
        ["spec.parent: below \"l5\" there would be 6 queues on one way to the root, more than 5"]
    );
    assert_eq!(
        updated(&below("l1", "root"), &below("l1", "l3"), &there[1..]),
        ["spec.parent: queue \"l3\" is below \"l1\": a queue can not be below itself"],
    );
    // What is below a queue moves along.
    let pair = [there.clone(), vec![below("child", "q")]].concat();
    assert!(updated(&below("q", "root"), &below("q", "l3"), &pair).is_empty());
    assert_eq!(
        updated(&below("q", "root"), &below("q", "l4"), &pair),
        ["spec.parent: below \"l4\" there would be 6 queues on one way to the root, more than 5"]
    );
    let mut busy = below("p", "root");
    busy["status"] = json!({"allocated": {"pods": "3"}});
    assert_eq!(
        created(&below("q", "p"), &[busy.clone()]),
        ["spec.parent: queue \"p\" has 3 running pods, more than the 0 of a queue that is to be a parent"]
    );
    assert!(created(&below("q", "p"), &[busy, below("other", "p")]).is_empty(), "it is a parent already");
}

#[test]
fn a_capability_is_between_those_above_and_those_below() {
    let with = |name: &str, parent: &str, gpus: u32| {
        queue(name, json!({"parent": parent, "capability": {"nvidia.com/gpu": gpus.to_string()}}))
    };
    let there = [with("top", "root", 4), below("mid", "top"), below("q", "mid"), with("leaf", "q", 3)];
    assert_eq!(
        created(&with("new", "mid", 5), &there),
        ["spec.capability.nvidia.com/gpu: 5 is more than that of queue \"top\" above it, which is 4"]
    );
    assert_eq!(
        updated(&below("q", "mid"), &with("q", "mid", 2), &[there[0].clone(), there[1].clone(), there[3].clone()]),
        ["spec.capability.nvidia.com/gpu: 2 is less than that of queue \"leaf\" below it, which is 3"]
    );
    assert_eq!(created(&with("new", "none", 1), &[with("none", "root", 0)]).len(), 1, "zero cards are a limit");
    let zero = queue("zero", json!({"capability": {"cpu": "0"}}));
    let child = queue("q", json!({"parent": "zero", "capability": {"cpu": "9"}}));
    assert!(created(&child, &[zero]).is_empty(), "zero cpus are none");
}

#[test]
fn siblings_stay_together_within_the_parent_and_children_within_their_own() {
    let spec = |parent: &str, cpu: &str| json!({"parent": parent, "deserved": {"cpu": cpu}, "guarantee": {"resource": {"cpu": cpu}}});
    let there = [
        queue("p", json!({"deserved": {"cpu": "5"}, "guarantee": {"resource": {"cpu": "4"}}})),
        queue("a", spec("p", "3")),
    ];
    assert!(created(&queue("b", spec("p", "1")), &there).is_empty());
    assert_eq!(
        created(&queue("b", spec("p", "2")), &there),
        [
            "spec.guarantee.resource.cpu: 2 and the 3 of its siblings are 5 together, more than spec.guarantee.resource.cpu of \
          queue \"p\", which is 4"
        ]
    );
    // What the parent does not name is nothing; the root is exempt.
    assert_eq!(created(&queue("b", spec("bare", "1")), &[below("bare", "root")]).len(), 2);
    assert!(created(&queue("b", spec("root", "1")), &[queue("root", json!({}))]).is_empty());
    let smaller = queue("p", json!({"deserved": {"cpu": "5"}, "guarantee": {"resource": {"cpu": "2"}}}));
    assert_eq!(
        updated(&there[0], &smaller, &there[1..]),
        ["spec.guarantee.resource.cpu: 2 is less than that of the queues below it together, which is 3"]
    );
}

#[test]
fn a_change_that_makes_nothing_worse_passes() {
    let with = |deserved: &str, weight: u32| {
        queue("q", json!({"parent": "p", "weight": weight, "deserved": {"cpu": deserved}, "capability": {"cpu": "4"}}))
    };
    let there =
        [queue("p", json!({"deserved": {"cpu": "2"}})), queue("s", json!({"parent": "p", "deserved": {"cpu": "1"}}))];
    let old = with("6", 1);
    assert_eq!(created(&old, &there).len(), 2);
    for (new, problems) in
        [(with("6", 9), 0), (with("6000m", 1), 0), (with("5", 1), 0), (with("7", 1), 2), (with("1", 1), 0)]
    {
        assert_eq!(updated(&old, &new, &there).len(), problems, "{new}");
    }
    // One fault better and another one new.
    let mut new = with("5", 1);
    new["spec"]["guarantee"] = json!({"resource": {"cpu": "-1"}});
    assert_eq!(updated(&old, &new, &there), ["spec.guarantee.resource.cpu: -1 is below 0"]);
    new["spec"]["guarantee"]["resource"]["cpu"] = "-2".into();
    let mut worse = new.clone();
    worse["spec"]["guarantee"]["resource"]["cpu"] = "-3".into();
    assert!(updated(&worse, &new, &there).is_empty() && updated(&new, &worse, &there).len() == 1);
}

#[test]
fn the_same_fault_with_another_parent_is_a_new_one() {
    let with = |parent: &str| queue("q", json!({"parent": parent, "deserved": {"cpu": "3"}}));
    let there = [queue("p", json!({"deserved": {"cpu": "2"}})), queue("r", json!({"deserved": {"cpu": "2"}}))];
    assert_eq!(
        updated(&with("p"), &with("r"), &there),
        [
            "spec.deserved.cpu: 3 and the 0 of its siblings are 3 together, more than spec.deserved.cpu of queue \"r\", which is 2"
        ]
    );
    // A parent that is gone keeps nobody from being edited, or from going elsewhere.
    let mut edited = with("gone");
    edited["spec"]["weight"] = 2.into();
    assert!(updated(&with("gone"), &edited, &there).is_empty());
    assert!(updated(&with("gone"), &with("root"), &there).is_empty());
}

#[test]
fn a_queue_named_root_is_refused_with_words() {
    let root = |cpu: &str| queue("root", json!({"capability": {"cpu": cpu}}));
    for spec in [json!({}), json!({"capability": {"cpu": "1"}}), json!({"parent": "q"})] {
        let reported = created(&queue("root", spec), &[]);
        assert!(reported[0].starts_with("metadata.name: queue \"root\" is the whole fleet"), "{reported:?}");
    }
    let reported = updated(&root("1"), &root("2"), &[]);
    assert!(reported[0].starts_with("spec: queue \"root\" is the whole fleet"), "{reported:?}");
    let child = queue("q", json!({"parent": "root", "deserved": {"cpu": "9"}}));
    let mut labelled = root("1");
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert!(updated(&root("1"), &labelled, &[child]).is_empty(), "whose object it is, is nobody's limit");
}

#[test]
fn circles_among_those_that_are_there_end() {
    let there = [below("a", "b"), below("b", "a"), queue("c", json!({"parent": "a", "capability": {"cpu": "1"}}))];
    let reported =
        created(&queue("q", json!({"parent": "c", "capability": {"cpu": "1"}, "deserved": {"cpu": "1"}})), &there);
    assert_eq!(reported[0], "spec.parent: the parents of queue \"c\" lead in a circle");
    assert!(updated(&below("a", "b"), &below("a", "root"), &there[1..]).is_empty(), "the way out of a circle");
    let capped = queue("a", json!({"parent": "b", "capability": {"cpu": "5"}}));
    assert!(updated(&below("a", "b"), &capped, &there[1..]).is_empty());
}

fn any_queue() -> impl Strategy<Value = Value> {
    let amount =
        || prop_oneof![2 => Just(json!({})), 3 => (-1i64..4).prop_map(|units| json!({"cpu": units.to_string()}))];
    (0usize..5, 0usize..6, amount(), amount(), amount(), prop::sample::select(vec!["", "Open", "Closing"])).prop_map(
        |(own, above, capability, deserved, guarantee, state)| {
            json!({
                "metadata": {"name": format!("q{own}")},
                "spec": {
                    "parent": format!("q{above}"), "capability": capability, "deserved": deserved,
                    "guarantee": {"resource": guarantee},
                },
                "status": {"state": state, "allocated": {"pods": "1"}},
            })
        },
    )
}

proptest! {
    #[test]
    fn what_stays_as_it_is_is_never_refused_and_nothing_is_refused_that_could_not_be_created_so(
        there in prop::collection::vec(any_queue(), 0..6), old in any_queue(), mut new in any_queue(),
    ) {
        new["metadata"] = old["metadata"].clone();
        prop_assert_eq!(updated(&old, &old, &there), Vec::<String>::new());
        let all = created(&new, &there);
        for problem in updated(&old, &new, &there) {
            prop_assert!(all.contains(&problem), "{}", problem);
        }
    }
}

#[test]
fn an_affinity_that_admits_no_group_is_refused_and_an_old_one_stays_editable() {
    let avoiding = |capability: i64| {
        let groups = json!({"nodeGroupAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["a"]}});
        queue("q", json!({"capability": {"cpu": capability}, "affinity": groups}))
    };
    let reported = created(&avoiding(1), &[]);
    assert!(
        reported.len() == 1 && reported[0].starts_with("spec.affinity: it names groups to avoid and none to use"),
        "{reported:?}"
    );
    assert_eq!(updated(&avoiding(1), &avoiding(2), &[]), Vec::<String>::new());
}
