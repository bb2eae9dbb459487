//! `matchConditions` of webhooks and policies (`apiserver/pkg/admission/plugin/webhook/matchconditions`).

use kube_cel::cel::Value as CelValue;
use serde_json::Value;

use super::expression::{Expression, Names, OUT_OF_BUDGET, Run, Trouble, Wanted};

#[derive(Debug)]
pub struct Condition {
    expression: Expression,
}

/// What the conditions say about a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Call,
    Skip,
    /// No condition is false, and at least one cannot be evaluated.
    Error(String),
}

impl Condition {
    pub fn read(value: &Value, params: bool) -> Condition {
        let source = value.get("expression").and_then(Value::as_str).unwrap_or_default();
        Condition { expression: compile_condition(source, params) }
    }
}

pub fn compile_condition(source: &str, params: bool) -> Expression {
    let names = Names { params, authorizer: true, ..Names::default() };
    Expression::compile(source, &names, Wanted::Bool)
}

/// A false condition wins over one that cannot be evaluated.
pub fn decide_conditions(conditions: &[Condition], run: &mut Run<'_>) -> Verdict {
    let mut errors = Vec::new();
    for condition in conditions {
        match condition.expression.evaluate(run) {
            Ok(CelValue::Bool(false)) => return Verdict::Skip,
            Ok(_) => {}
            Err(Trouble::OutOfBudget) => return Verdict::Error(OUT_OF_BUDGET.into()),
            Err(Trouble::Failed(error)) => errors.push(error),
        }
    }
    // An aggregate says each thing once.
    let mut seen = std::collections::BTreeSet::new();
    errors.retain(|error| seen.insert(error.clone()));
    match errors.as_slice() {
        [] => Verdict::Call,
        [one] => Verdict::Error(one.clone()),
        many => Verdict::Error(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::expression::{CONDITIONS_BUDGET, Values};
    use super::*;
    use serde_json::json;

    fn verdict(expressions: &[&str], object: &Value) -> Verdict {
        let conditions: Vec<Condition> =
            expressions.iter().map(|e| Condition { expression: compile_condition(e, false) }).collect();
        let request = json!({"operation": "CREATE", "userInfo": {"username": "admin"}});
        let object = Some(object).filter(|o| !o.is_null());
        let values = Values { object, old_object: None, request: &request, namespace: None, params: None, asker: None };
        decide_conditions(&conditions, &mut Run::new(values, CONDITIONS_BUDGET))
    }

    #[test]
    fn every_condition_must_hold() {
        let object = json!({"spec": {"size": 3}});
        assert_eq!(verdict(&["object.spec.size == 3", "request.operation == 'CREATE'"], &object), Verdict::Call);
        assert_eq!(verdict(&["object.spec.size == 3", "oldObject != null"], &object), Verdict::Skip);
    }

    #[test]
    fn a_false_condition_wins_over_an_error() {
        let object = json!({"spec": {}});
        assert!(matches!(verdict(&["object.spec.size == 3"], &object), Verdict::Error(e) if
            e == "expression 'object.spec.size == 3' resulted in error: no such key: size"));
        assert_eq!(verdict(&["object.spec.size == 3", "false"], &object), Verdict::Skip);
    }

    /// On a delete there is no object: a field of it is an error, not false.
    #[test]
    fn a_field_of_nothing_is_an_error() {
        assert!(matches!(verdict(&["object.metadata.name == 'a'"], &Value::Null), Verdict::Error(e) if
            e.ends_with("resulted in error: no such key: metadata")));
        assert_eq!(verdict(&["object == null || object.metadata.name == 'a'"], &Value::Null), Verdict::Call);
        assert_eq!(verdict(&["!has(object.metadata)"], &Value::Null), Verdict::Call);
        assert_eq!(verdict(&["object.?metadata.?name.orValue('a') == 'a'"], &json!({"x": 1})), Verdict::Call);
    }
}
