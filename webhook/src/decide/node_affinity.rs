//! The node affinity that keeps a pod template in a domain, or makes it prefer one, and that which keeps all pods of a
//! copy on the nodes, and on the card model, that its job was admitted to.
//!
//! Rule (Kubernetes `nodeaffinity.GetRequiredNodeAffinity`): the terms of a required node affinity are alternatives,
//! the expressions of a term must all match, and an empty term matches nothing. So the expressions of the domain are
//! added to each term that the user wrote, once for each alternative of the domain; no term of the user is taken away.
//! Volcano's predicates honour the same affinity whatever HyperNode its topology plugin tries. A term that already has
//! the expressions of a domain stays as it is, so doing this twice changes nothing. A preferred domain becomes
//! preferred terms of the greatest weight, one for each alternative, beside those of the user.

use caldera_core::{
    card_choice::require_card, gang::Requirement, node_groups::NodeRestriction, plan::PlannedDomain,
    resources::ResourceName,
};
use caldera_crds::workload::{edit_pod_specs, leaves_model_open};
use serde_json::{Map, Value, json};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
/// Of a preferred term: 1 to 100.
const WEIGHT: u32 = 100;
const TERMS: &str = "nodeSelectorTerms";
const EXPRESSIONS: &str = "matchExpressions";

/// Keeps a pod's spec in a domain, or makes it prefer one. `None` if the spec is not shaped like one.
pub(super) fn add_domain_affinity(pod: &mut Value, domain: &PlannedDomain) -> Option<()> {
    if !domain.nodes.is_empty() {
        require_nodes(pod, &domain.nodes)?;
    }
    domain.preferred.iter().try_for_each(|nodes| prefer_nodes(pod, WEIGHT, nodes))
}

/// Keeps all pods of a copy on the nodes of a restriction, and makes them prefer those that are better. `None` if the
/// copy is not shaped like its kind.
pub(super) fn restrict_copy(copy: &mut Value, nodes: &NodeRestriction) -> Option<()> {
    if nodes.is_empty() {
        return Some(());
    }
    let required = nodes.alternatives();
    edit_pod_specs(copy, &mut |pod| {
        if !required.is_empty() {
            require_nodes(pod, &required)?;
        }
        nodes.preferred.iter().try_for_each(|better| prefer_nodes(pod, better.weight, &better.labels))
    })
}

/// Keeps those pods of a copy to a card model that ask for its resource and may use several. `None` if the copy is not
/// shaped like its kind.
pub(super) fn keep_copy_to_card(copy: &mut Value, card: &ResourceName) -> Option<()> {
    let required = [vec![require_card(card)?]];
    edit_pod_specs(copy, &mut |pod| match leaves_model_open(pod, card) {
        true => require_nodes(pod, &required),
        false => Some(()),
    })
}

/// The entry of a pod's node affinity, made where it is missing.
fn affinity_entry<'a>(pod: &'a mut Value, entry: &str) -> Option<&'a mut Value> {
    let mut at = pod;
    for key in ["affinity", "nodeAffinity"] {
        at = at.as_object_mut()?.entry(key).or_insert(Value::Null);
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
    }
    Some(at.as_object_mut()?.entry(entry).or_insert(Value::Null))
}

/// As an API server gives them back: without an empty list of values.
fn expressions_of(term: &[Requirement]) -> Option<Vec<Value>> {
    let expression = |one: &Requirement| {
        let mut expression = serde_json::to_value(one).ok()?;
        if one.values.is_empty() {
            expression.as_object_mut()?.remove("values");
        }
        Some(expression)
    };
    term.iter().map(expression).collect()
}

/// Adds that a node which satisfies this is better.
fn prefer_nodes(pod: &mut Value, weight: u32, nodes: &[Requirement]) -> Option<()> {
    let wanted = expressions_of(nodes)?;
    let terms = affinity_entry(pod, PREFERRED)?;
    if terms.is_null() {
        *terms = json!([]);
    }
    let terms = terms.as_array_mut()?;
    let term = json!({"weight": weight, "preference": {EXPRESSIONS: wanted}});
    if !terms.contains(&term) {
        terms.push(term);
    }
    Some(())
}

/// Adds that it must be on a node that satisfies one of these alternatives.
fn require_nodes(pod: &mut Value, nodes: &[Vec<Requirement>]) -> Option<()> {
    let alternatives: Vec<Vec<Value>> = nodes.iter().map(|term| expressions_of(term)).collect::<Option<_>>()?;
    let at = affinity_entry(pod, REQUIRED)?;
    if at.is_null() {
        *at = Value::Object(Map::new());
    }
    let terms = at.as_object_mut()?.entry(TERMS).or_insert(Value::Null);
    let known = match terms {
        Value::Null => vec![Value::Null],
        Value::Array(known) => std::mem::take(known),
        _ => return None,
    };
    let mut pinned = Vec::with_capacity(known.len());
    for term in known {
        pinned.extend(combine_terms(term, &alternatives)?);
    }
    *terms = pinned.into();
    Some(())
}

/// One term and each of the alternatives; a missing one (null) asks for nothing yet.
fn combine_terms(term: Value, alternatives: &[Vec<Value>]) -> Option<Vec<Value>> {
    if term.is_null() {
        return Some(alternatives.iter().map(|wanted| json!({EXPRESSIONS: wanted})).collect());
    }
    let object = term.as_object()?;
    let list = |key: &str| match object.get(key) {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(list)) => Some(list.clone()),
        Some(_) => None,
    };
    let (expressions, fields) = (list(EXPRESSIONS)?, list("matchFields")?);
    // An empty term matches nothing; with expressions it would.
    let is_empty = expressions.is_empty() && fields.is_empty();
    let has = |wanted: &Vec<Value>| wanted.iter().all(|one| expressions.contains(one));
    if is_empty || alternatives.iter().any(has) {
        return Some(vec![term]);
    }
    let with = |wanted: &Vec<Value>| {
        let mut object = object.clone();
        object.insert(EXPRESSIONS.to_owned(), expressions.iter().chain(wanted).cloned().collect());
        Value::Object(object)
    };
    Some(alternatives.iter().map(with).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use caldera_core::{
        gang::{NodeClaim, Operator},
        node_groups::PreferredNodes,
    };
    use caldera_crds::workload;
    use proptest::prelude::*;

    use super::*;

    fn requirement(key: &str, values: &[&str]) -> Requirement {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Requirement { key: key.into(), operator: Operator::In, values }
    }

    fn pinned(mut pod: Value, nodes: &[Vec<Requirement>]) -> Value {
        require_nodes(&mut pod, nodes).unwrap();
        pod
    }

    #[test]
    fn a_template_without_affinity_gets_the_domains_alternatives() {
        let nodes = [vec![requirement("rack", &["1"])], vec![requirement("kubernetes.io/hostname", &["a", "b"])]];
        let expression =
            |key: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": "In", "values": values}]});
        let want = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            expression("rack", json!(["1"])), expression("kubernetes.io/hostname", json!(["a", "b"])),
        ]}}}});
        assert_eq!(pinned(json!({}), &nodes), want);
        assert_eq!(pinned(json!({"affinity": null}), &nodes), want);
    }

    #[test]
    fn what_the_user_wrote_stays_and_an_empty_term_still_matches_nothing() {
        let field = json!([{"key": "metadata.name", "operator": "In", "values": ["n"]}]);
        let user = json!({"affinity": {"podAffinity": {"x": 1}, "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, {"matchFields": field}, {},
            ]},
        }}});
        let rack = json!({"key": "rack", "operator": "In", "values": ["1"]});
        let mut want = user.clone();
        want["affinity"]["nodeAffinity"][REQUIRED][TERMS] = json!([
            {"matchExpressions": [{"key": "gpu", "operator": "Exists"}, rack]},
            {"matchFields": field, "matchExpressions": [rack]},
            {},
        ]);
        let nodes = [vec![requirement("rack", &["1"])]];
        assert_eq!(pinned(user, &nodes), want);
        assert_eq!(pinned(want.clone(), &nodes), want);
    }

    #[test]
    fn a_preferred_domain_is_preferred_beside_what_the_user_prefers() {
        let rack = |value: &str| vec![requirement("rack", &[value])];
        let domain = PlannedDomain { preferred: vec![rack("1"), rack("2")], ..PlannedDomain::default() };
        let user = json!({"weight": 7, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}});
        let term = |value: &str| json!({"weight": 100, "preference": {"matchExpressions": [{"key": "rack", "operator": "In", "values": [value]}]}});
        for (before, after) in [
            (json!({}), json!([term("1"), term("2")])),
            (json!({"affinity": {"nodeAffinity": {PREFERRED: null}}}), json!([term("1"), term("2")])),
            (json!({"affinity": {"nodeAffinity": {PREFERRED: [user]}}}), json!([user, term("1"), term("2")])),
        ] {
            let mut pod = before;
            for _twice in 0..2 {
                add_domain_affinity(&mut pod, &domain).unwrap();
                assert_eq!(pod, json!({"affinity": {"nodeAffinity": {PREFERRED: after}}}));
            }
        }
        assert_eq!(add_domain_affinity(&mut json!({"affinity": {"nodeAffinity": {PREFERRED: 5}}}), &domain), None);
    }

    #[test]
    fn a_template_of_another_shape_is_told_not_panicked_about() {
        for pod in [json!(5), json!({"affinity": []}), json!({"affinity": {"nodeAffinity": {REQUIRED: {TERMS: 5}}}})] {
            assert_eq!(require_nodes(&mut pod.clone(), &[vec![requirement("rack", &["1"])]]), None, "{pod}");
        }
    }

    #[test]
    fn all_pods_of_a_copy_are_kept_on_the_nodes_of_its_admission_once() {
        let nodes = NodeRestriction {
            required: vec![requirement("group", &["a", "b"])],
            preferred: vec![PreferredNodes { weight: 50, labels: vec![requirement("group", &["b"])] }],
        };
        let template = json!({"spec": {"containers": []}});
        let mut copy = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"template": template}});
        for _twice in 0..2 {
            restrict_copy(&mut copy, &nodes).unwrap();
            let label = |values: Value| json!({"key": "group", "operator": "In", "values": values});
            let want = json!({
                REQUIRED: {TERMS: [{"matchExpressions": [label(json!(["a", "b"]))]}]},
                PREFERRED: [{"weight": 50, "preference": {"matchExpressions": [label(json!(["b"]))]}}],
            });
            assert_eq!(copy["spec"]["template"]["spec"]["affinity"]["nodeAffinity"], want);
        }
        let before = copy.clone();
        assert_eq!((restrict_copy(&mut copy, &NodeRestriction::default()), &copy), (Some(()), &before));
        assert_eq!(restrict_copy(&mut json!({"apiVersion": "apps/v1", "kind": "Deployment"}), &nodes), None);
    }

    #[test]
    fn pods_that_may_use_several_card_models_are_kept_to_the_charged_one_and_others_are_left_alone() {
        let product = |models: &[&str]| json!({"key": "x.io/gpu.product", "operator": "In", "values": models});
        let task = |name: &str, resource: &str, models: &[&str]| {
            let mut spec = json!({"containers": [{"name": "c", "resources": {"limits": {resource: "1"}}}]});
            if !models.is_empty() {
                spec["affinity"]["nodeAffinity"][REQUIRED][TERMS] = json!([{"matchExpressions": [product(models)]}]);
            }
            json!({"name": name, "replicas": 1, "template": {"spec": spec}})
        };
        let tasks = [
            ("cpu", "cpu", &[][..]),
            ("any", "x.io/gpu", &[]),
            ("ab", "x.io/gpu", &["a", "b"]),
            ("one", "x.io/gpu", &["c"]),
        ];
        let mut copy = json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"tasks": tasks.map(|(name, resource, models)| task(name, resource, models))},
        });
        let before = copy.clone();
        for _twice in 0..2 {
            keep_copy_to_card(&mut copy, &"x.io/gpu:b".into()).unwrap();
            let models: Vec<Option<String>> = workload::read_gang(&copy)
                .unwrap()
                .tasks
                .iter()
                .map(|task| task.model_of(&"x.io/gpu".into()).map(ToOwned::to_owned))
                .collect();
            assert_eq!(models, [None, Some("b".into()), Some("b".into()), Some("c".into())]);
        }
        for unchanged in [0, 3] {
            assert_eq!(copy["spec"]["tasks"][unchanged], before["spec"]["tasks"][unchanged]);
        }
    }

    #[test]
    fn a_label_that_must_not_be_there_has_no_values() {
        let absent = Requirement { key: "group".into(), operator: Operator::DoesNotExist, values: vec![] };
        let pod = pinned(json!({}), &[vec![absent]]);
        let terms = &pod["affinity"]["nodeAffinity"][REQUIRED][TERMS];
        assert_eq!(*terms, json!([{"matchExpressions": [{"key": "group", "operator": "DoesNotExist"}]}]));
    }

    fn any_term() -> impl Strategy<Value = Vec<Requirement>> {
        let one = (
            prop::sample::select(vec!["a", "b"]),
            prop::collection::vec(prop::sample::select(vec!["0", "1", "2"]), 1..3),
        );
        prop::collection::vec(one.prop_map(|(key, values)| requirement(key, &values)), 1..3)
    }

    proptest! {
        /// Who is admitted afterwards is who was admitted before and is in the domain; to pin again changes nothing.
        #[test]
        fn a_pinned_pod_runs_where_it_could_run_and_the_domain_is(
            user in prop::collection::vec(any_term(), 0..3), nodes in prop::collection::vec(any_term(), 1..3),
        ) {
            let terms: Vec<Value> = user.iter().map(|term| json!({"matchExpressions": term})).collect();
            let mut pod = json!({"containers": []});
            if !terms.is_empty() {
                pod["affinity"]["nodeAffinity"][REQUIRED][TERMS] = terms.into();
            }
            let claim = |spec: &Value| -> NodeClaim {
                let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
                workload::read_gang(&object).unwrap().tasks.remove(0).node
            };
            let after = pinned(pod.clone(), &nodes);
            prop_assert_eq!(&pinned(after.clone(), &nodes), &after);
            let (before, after) = (claim(&pod), claim(&after));
            for (a, b) in (0..3).flat_map(|a| (0..3).map(move |b| (a.to_string(), b.to_string()))) {
                let labels: BTreeMap<String, String> = [("a".to_owned(), a), ("b".to_owned(), b)].into();
                let inside = nodes.iter().any(|term| term.iter().all(|one| one.matches(labels.get(&one.key).map(String::as_str))));
                prop_assert_eq!(after.admits("n", &labels, &[]), before.admits("n", &labels, &[]) && inside);
            }
        }
    }
}
