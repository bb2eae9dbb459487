//! What a decision touches of an object.

use super::*;

#[test]
fn a_release_touches_only_the_one_field_and_our_annotations_defect_16() {
    let admission = Admission {
        queue: "q".into(),
        above: Vec::new(),
        priority: 7,
        copies: 1,
        tasks: [("t".into(), 2)].into(),
        charged: caldera_core::resources::Resources::new(),
        run: None,
        data: None,
        nodes: caldera_core::node_groups::NodeRestriction::default(),
        clusters: Vec::new(),
        card: None,
        together: None,
    };
    let mut binding = json!({
        "metadata": {"resourceVersion": "5", "annotations": {"caldera.dev/gate": "closed", "user": "own"}},
        "spec": {"suspension": {"scheduling": true, "dispatching": true, "dispatchingOnClusters": {"clusterNames": ["a"]}}},
    });
    let Body::JsonPatch(patch) =
        (Decision::Release { key: Key::new("ns", "b"), resource_version: "5".into(), admission, epoch: None })
            .to_write(Timestamp::UNIX_EPOCH)
            .body
    else {
        panic!()
    };
    let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
    json_patch::patch(&mut binding, &patch).unwrap();
    assert_eq!(
        binding,
        json!({
            "metadata": {"resourceVersion": "5", "annotations": {
                "caldera.dev/gate": "open", "user": "own", "caldera.dev/priority": "7",
                "caldera.dev/admission": r#"{"queue":"q","priority":7,"copies":1,"tasks":{"t":2},"charged":{}}"#,
            }},
            "spec": {"suspension": {"scheduling": false, "dispatching": true, "dispatchingOnClusters": {"clusterNames": ["a"]}}},
        })
    );
    binding["metadata"]["resourceVersion"] = "6".into();
    assert!(json_patch::patch(&mut binding, &patch).is_err(), "a decision on an old state must be refused");
}
