//! What admission refuses of policies.
//!
//! Rule: Karmada `pkg/util/validation/validation.go`,
//! `pkg/webhook/{clusterpropagationpolicy,propagationpolicy}/validating.go`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::karmada::{detector::plan::Scope, object::ObjectExt};

/// Fields that are wrong, and why.
#[derive(Default)]
struct Refusals(Vec<String>);

impl Refusals {
    fn add(&mut self, at: &str, value: &Value, why: &str) {
        self.0.push(format!("{at}: Invalid value: {value}: {why}"));
    }

    /// As Go's `ToAggregate` writes them.
    fn verdict(self) -> Result<(), String> {
        match self.0.as_slice() {
            [] => Ok(()),
            [only] => Err(only.clone()),
            all => Err(format!("[{}]", all.join(", "))),
        }
    }
}

/// Whether a PropagationPolicy or ClusterPropagationPolicy is refused.
///
/// # Errors
/// With Karmada's words.
pub fn validate_propagation(policy: &Value, old: Option<&Value>, scope: Scope) -> Result<(), String> {
    let label = scope.id_label();
    if let Some(old) = old {
        let scheduler = |policy: &Value| match policy.text("/spec/schedulerName") {
            "" => "default-scheduler".to_owned(),
            name => name.to_owned(),
        };
        if scheduler(old) != scheduler(policy) {
            return Err("the schedulerName should not be updated".to_owned());
        }
        if old.label(label) != policy.label(label) {
            return Err(format!("label {label} is immutable, it can only be set by the system during creation"));
        }
    }
    let spec = &policy["spec"];
    let mut refusals = Refusals::default();
    validate_placement(spec, &mut refusals);
    validate_failover(spec, &mut refusals);
    validate_selectors(policy, &mut refusals);
    if spec.text("/preemption") == "Always" {
        for (index, selector) in spec.items("/resourceSelectors").iter().enumerate() {
            if selector.text("/name").is_empty() {
                let why = "name cannot be empty if preemption is Always, the empty name may cause unexpected resources preemption";
                refusals.add(&format!("spec.resourceSelectors[{index}].name"), &"".into(), why);
            }
        }
    }
    let suspension = &spec["suspension"];
    if suspension.flag("/dispatching") && !suspension.items("/dispatchingOnClusters/clusterNames").is_empty() {
        let why = "suspension dispatching cannot co-exist with dispatchingOnClusters.clusterNames";
        refusals.add("spec.suspension.suspension", suspension, why);
    }
    refusals.verdict()
}

/// Whether an OverridePolicy or ClusterOverridePolicy is refused.
///
/// # Errors
/// With Karmada's words.
pub fn validate_override(policy: &Value) -> Result<(), String> {
    let spec = &policy["spec"];
    let mut refusals = Refusals::default();
    let ruled = spec.present("/overrideRules").is_some();
    if let Some(target) = spec.present("/targetCluster") {
        validate_fields("spec.targetCluster", target, &mut refusals);
        if ruled {
            refusals.add("spec.targetCluster", target, "overrideRules and targetCluster can't co-exist");
        }
    }
    let overriders = &spec["overriders"];
    let any = overriders.as_object().is_some_and(|all| all.values().any(|one| one.as_array() != Some(&Vec::new())));
    if ruled && any {
        refusals.add("spec.overriders", overriders, "overrideRules and overriders can't co-exist");
    }
    for (index, rule) in spec.items("/overrideRules").iter().enumerate() {
        let at = format!("spec.overrideRules[{index}]");
        for (index, image) in rule.items("/overriders/imageOverrider").iter().enumerate() {
            let path = image.text("/predicate/path");
            if !path.is_empty() && !path.starts_with('/') {
                let at = format!("{at}.overriders.imageOverrider[{index}].predicate.path");
                refusals.add(&at, &path.into(), "JSON pointer must be empty or start with a \"/\"\nJSON pointer error");
            }
        }
        validate_fields(&format!("{at}.targetCluster"), &rule["targetCluster"], &mut refusals);
    }
    validate_selectors(policy, &mut refusals);
    refusals.verdict()
}

fn validate_selectors(policy: &Value, refusals: &mut Refusals) {
    for (index, selector) in policy.items("/spec/resourceSelectors").iter().enumerate() {
        if !policy.namespace().is_empty() && selector.text("/namespace") != policy.namespace() {
            let why = "namespace of resource selector must be the same as the namespace of the policy";
            refusals.add(&format!("spec.resourceSelectors[{index}].namespace"), &selector["namespace"], why);
        }
    }
}

fn validate_fields(at: &str, affinity: &Value, refusals: &mut Refusals) {
    for term in affinity.items("/fieldSelector/matchExpressions") {
        let (key, operator) = (term.text("/key"), term.text("/operator"));
        let why = if !matches!(key, "provider" | "region" | "zone") {
            format!("unsupported key {key:?}, must be provider, region, or zone")
        } else if !matches!(operator, "In" | "NotIn") {
            format!("unsupported operator {operator:?}, must be In or NotIn")
        } else {
            continue;
        };
        return refusals.add(&format!("{at}.fieldSelector"), &affinity["fieldSelector"], &why);
    }
}

fn validate_placement(spec: &Value, refusals: &mut Refusals) {
    let placement = &spec["placement"];
    let terms = placement.items("/clusterAffinities");
    if placement.present("/clusterAffinity").is_some() && !terms.is_empty() {
        refusals.add("spec.placement", placement, "clusterAffinities cannot co-exist with clusterAffinity");
    }
    validate_fields("spec.placement.clusterAffinity", &placement["clusterAffinity"], refusals);
    let mut names = BTreeSet::new();
    for (index, term) in terms.iter().enumerate() {
        if !names.insert(term.text("/affinityName")) {
            let why = "each affinity term in a policy must have a unique name";
            refusals.add("spec.placement.clusterAffinities", &placement["clusterAffinities"], why);
        }
        validate_fields(&format!("spec.placement.clusterAffinities[{index}]"), term, refusals);
    }
    validate_spread(placement, refusals);
    for (index, toleration) in placement.items("/clusterTolerations").iter().enumerate() {
        let operator = toleration.text("/operator");
        if matches!(operator, "Lt" | "Gt") {
            refusals.0.push(format!(
                "spec.placement.clusterTolerations[{index}].operator: Unsupported value: {operator:?}: supported values: \"\", \"Equal\", \
                 \"Exists\""
            ));
        }
    }
}

fn validate_spread(placement: &Value, refusals: &mut Refusals) {
    let at = "spec.placement.spreadConstraints";
    let mut fields = BTreeSet::new();
    for (index, constraint) in placement.items("/spreadConstraints").iter().enumerate() {
        let here = format!("{at}[{index}]");
        let field = constraint.text("/spreadByField");
        if !field.is_empty() && !constraint.text("/spreadByLabel").is_empty() {
            refusals.add(&here, constraint, "spreadByLabel should not co-exist with spreadByField");
        }
        let (min, max) = (constraint.number("/minGroups"), constraint.number("/maxGroups"));
        let wrong = [
            (min < 0, "minGroups lower than 0 is not allowed"),
            (max < 0, "maxGroups lower than 0 is not allowed"),
            (max > 0 && max < min, "maxGroups lower than minGroups is not allowed"),
        ];
        for (_, why) in wrong.iter().filter(|(wrong, _)| *wrong) {
            refusals.add(&here, constraint, why);
        }
        if !field.is_empty() && !fields.insert(field) {
            let why = format!("multiple {field} spread constraints are not allowed");
            refusals.add(at, &placement["spreadConstraints"], &why);
        }
    }
    if !fields.is_empty() && !fields.contains("cluster") {
        let why = "the cluster spread constraint must be enabled in one of the constraints in case of SpreadByField is enabled";
        refusals.add(at, &placement["spreadConstraints"], why);
    }
}

fn validate_failover(spec: &Value, refusals: &mut Refusals) {
    let Some(behavior) = spec.present("/failover/application") else { return };
    if !spec.flag("/propagateDeps") {
        let why = "application failover is set, propagateDeps must be true";
        refusals.add("spec.propagateDeps", &false.into(), why);
    }
    let at = "spec.failover.application";
    let tolerated = behavior.number("/decisionConditions/tolerationSeconds");
    if tolerated < 0 {
        let at = format!("{at}.decisionConditions.tolerationSeconds");
        refusals.add(&at, &tolerated.into(), "must be greater than or equal to 0");
    }
    let at = format!("{at}.gracePeriodSeconds");
    let grace = behavior.present("/gracePeriodSeconds");
    match (grace, behavior.text("/purgeMode") == "Gracefully") {
        (Some(grace), false) => refusals.add(&at, grace, "only takes effect when purgeMode is gracefully"),
        (None, true) => refusals.add(&at, &Value::Null, "should not be empty when purgeMode is gracefully"),
        _ => {}
    }
    if let Some(grace) = grace.filter(|grace| grace.as_i64().is_some_and(|seconds| seconds <= 0)) {
        refusals.add(&at, grace, "must be greater than 0");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(spec: &Value) -> String {
        let policy = json!({"metadata": {"namespace": "n"}, "spec": spec});
        validate_propagation(&policy, None, Scope::Namespace).err().unwrap_or_default()
    }

    #[test]
    fn placements_that_contradict_themselves_are_refused() {
        let placement = |placement: Value| refusal(&json!({"placement": placement}));
        assert_eq!(placement(json!({"clusterAffinity": {"clusterNames": ["m1"]}})), "");
        let affinities = json!([{"affinityName": "a"}, {"affinityName": "a"}]);
        assert!(placement(json!({"clusterAffinities": affinities})).contains("must have a unique name"));
        assert!(placement(json!({"clusterAffinity": {}, "clusterAffinities": affinities})).contains("cannot co-exist"));
        let spread = |spread: Value| placement(json!({"spreadConstraints": spread}));
        assert!(
            spread(json!([{"spreadByField": "region", "minGroups": 1}]))
                .contains("cluster spread constraint must be enabled")
        );
        assert!(
            spread(json!([{"spreadByField": "cluster", "spreadByLabel": "x"}]))
                .contains("should not co-exist with spreadByField")
        );
        let twice = json!([{"spreadByField": "cluster"}, {"spreadByField": "cluster"}]);
        assert!(spread(twice).contains("multiple cluster spread constraints"));
        assert!(
            spread(json!([{"spreadByField": "cluster", "minGroups": 3, "maxGroups": 2}]))
                .contains("lower than minGroups")
        );
        let fields = json!({"fieldSelector": {"matchExpressions": [{"key": "name", "operator": "In"}]}});
        assert!(placement(json!({"clusterAffinity": fields})).contains("unsupported key \"name\""));
        let beyond = json!([{"key": "a", "operator": "Gt", "value": "1"}]);
        assert!(placement(json!({"clusterTolerations": beyond})).contains("Unsupported value: \"Gt\""));
    }

    #[test]
    fn other_parts_of_a_policy_are_refused_where_they_contradict() {
        let failover = json!({"application": {"decisionConditions": {"tolerationSeconds": 1}, "purgeMode": "Directly", "gracePeriodSeconds": 3}});
        assert_eq!(
            refusal(&json!({"failover": failover})),
            "[spec.propagateDeps: Invalid value: false: application failover is set, propagateDeps must be true, \
             spec.failover.application.gracePeriodSeconds: Invalid value: 3: only takes effect when purgeMode is gracefully]"
        );
        let suspension = json!({"dispatching": true, "dispatchingOnClusters": {"clusterNames": ["m1"]}});
        assert!(refusal(&json!({"suspension": suspension})).starts_with("spec.suspension.suspension"));
        let elsewhere = json!({"resourceSelectors": [{"kind": "Job", "namespace": "other", "name": "x"}]});
        assert!(refusal(&elsewhere).contains("must be the same as the namespace"));
        let all = json!({"preemption": "Always", "resourceSelectors": [{"kind": "Job", "namespace": "n"}]});
        assert!(refusal(&all).contains("name cannot be empty if preemption is Always"));
    }

    #[test]
    fn an_override_says_rules_or_the_old_fields() {
        let policy = |spec: Value| validate_override(&json!({"metadata": {"namespace": "n"}, "spec": spec}));
        assert!(policy(json!({"overrideRules": [{"overriders": {}}], "overriders": {}})).is_ok());
        let images = json!([{"component": "Tag", "predicate": {"path": "x"}}]);
        assert!(policy(json!({"overrideRules": [], "overriders": {"imageOverrider": images}})).is_err());
        assert!(policy(json!({"overrideRules": [{"overriders": {"imageOverrider": images}}]})).is_err());
    }
}
