//! The CEL rules of a schema as parts of a definition: how they are written, and whether they can be compiled and may
//! look back (`validation.go`, cel_validation.go).

use serde_json::Value;

use super::cel::Rule;
use super::cel_cost;
use super::crd::Errors;
use super::crd_schema::each_of;
use super::error::FieldError;
use super::node::Node;
use crate::error::go_struct;

/// What one expression may cost, and all of a definition together (`StaticEstimatedCostLimit`,
/// `StaticEstimatedCRDCostLimit`).
const COSTLIEST_RULE: u64 = 10_000_000;
const COSTLIEST_SCHEMA: u64 = 100_000_000;

/// What is found in the rules of a schema: errors, what they cost together, and which cost most (`TotalCost`).
#[derive(Default)]
pub struct Findings {
    list: Vec<FieldError>,
    total: u64,
    dearest: Vec<(u64, String)>,
}

impl Findings {
    /// Counts what an expression costs, and refuses one that costs too much alone.
    fn charge(&mut self, field: String, what: &str, steps: u64) {
        if steps > COSTLIEST_RULE {
            self.list.push(FieldError::forbidden(&field, &too_costly(what, steps, COSTLIEST_RULE)));
        }
        self.total = self.total.saturating_add(steps);
        if steps >= COSTLIEST_SCHEMA / 100 {
            self.dearest.push((steps, field));
            self.dearest.sort_by_key(|(steps, _)| std::cmp::Reverse(*steps));
            self.dearest.truncate(4);
        }
    }

    /// All errors; where the rules cost too much together, the schema as a whole is reported too.
    pub fn conclude(mut self, field: &str) -> Vec<FieldError> {
        if self.total > COSTLIEST_SCHEMA {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            self.list.extend(self.dearest.iter().map(|(_, field)| FieldError::forbidden(field, detail)));
            let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
            self.list.push(FieldError::forbidden(field, &too_costly(what, self.total, COSTLIEST_SCHEMA)));
        }
        self.list
    }
}

/// By how much a cost is over its limit (`getCostErrorMessage`).
fn too_costly(what: &str, steps: u64, limit: u64) -> String {
    let factor = steps as f64 / limit as f64;
    let factor = match factor {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// Where a rule stands.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub root: bool,
    /// The schema above whose parts have no counterparts in an older revision.
    pub uncorrelated: Option<&'a str>,
    /// Rules below a junctor are not compiled.
    pub junctor: bool,
    /// How often the schema occurs in an object at most, where that is bounded.
    pub most: Option<u64>,
    /// How many errors were known before this schema was looked at: with one more, here or below, no rule here is
    /// compiled (`ValidateCustomResourceDefinitionOpenAPISchema`).
    pub before: usize,
}

/// Errors in how a rule is written go to `errors`, those of its expression to `rules`.
pub fn rules_of(schema: &Value, field: &str, place: Place<'_>, errors: &mut Errors, rules: &mut Findings) {
    let at_rule = |index: usize| format!("{field}.x-kubernetes-validations[{index}]");
    for (index, rule) in each_of(schema, "x-kubernetes-validations") {
        rule_shape(rule, &at_rule(index), schema, errors);
    }
    if place.junctor || errors.list.len() > place.before {
        return;
    }
    let mut node = None;
    for (index, rule) in each_of(schema, "x-kubernetes-validations") {
        let at = at_rule(index);
        let node = node.get_or_insert_with(|| Node::parse(schema));
        let compiled = Rule::parse(rule);
        let mut found = Errors::new();
        let resource = place.root || node.embedded;
        let complaint = compiled.compile_error(node, resource);
        // What is not compiled is no transition rule, and its message is not looked at.
        let uses_old = complaint.is_none() && compiled.uses_old();
        let occurs = place.most.unwrap_or_else(|| cel_cost::most_in_request(node));
        let steps = if complaint.is_some() { 0 } else { compiled.steps(node) };
        rules.charge(format!("{at}.rule"), "estimated rule cost", steps.saturating_mul(occurs));
        if let Some(error) = &complaint {
            found.list.push(FieldError::invalid_shown(format!("{at}.rule"), &rule_shown(rule), error));
        } else if let Some(source) = rule.get("messageExpression").and_then(Value::as_str) {
            let at = format!("{at}.messageExpression");
            if let Some(error) = compiled.message_error(source.trim(), node, resource) {
                found.list.push(FieldError::invalid_shown(at, &rule_shown(rule), &error));
            } else {
                rules.charge(at, "estimated messageExpression cost", compiled.message_steps(node));
            }
        }
        if let Some(path) = place.uncorrelated.filter(|_| uses_old) {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {path}");
            found.invalid(format!("{at}.rule"), &rule.get("rule").cloned().unwrap_or_default(), &detail);
        }
        if let Some(optional) = rule.get("optionalOldSelf").filter(|optional| !optional.is_null() && !uses_old) {
            found.invalid(format!("{at}.optionalOldSelf"), optional, "may not be set if oldSelf is not used in rule");
        }
        rules.list.append(&mut found.list);
    }
}

/// A rule as the internal type prints it.
fn rule_shown(rule: &Value) -> String {
    const MEMBERS: [(&str, &str, &str); 6] = [
        ("Rule", "rule", "\"\""),
        ("Message", "message", "\"\""),
        ("MessageExpression", "messageExpression", "\"\""),
        ("Reason", "reason", "null"),
        ("FieldPath", "fieldPath", "\"\""),
        ("OptionalOldSelf", "optionalOldSelf", "null"),
    ];
    go_struct(rule, &MEMBERS).replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Whether a path is one of members and map keys that the schema has (`ValidFieldPath`): `.a.b`, `['a'].b`.
fn leads_somewhere(schema: &Value, path: &str) -> bool {
    let mut schema = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let (name, after) = match next_step(rest) {
            Some(step) => step,
            None => return false,
        };
        let next = match (schema.get("properties"), schema.get("additionalProperties")) {
            (Some(properties), _) => properties.get(name),
            (None, additional) => additional,
        };
        match next {
            Some(next) => schema = next,
            None => return false,
        }
        rest = after;
    }
    true
}

/// The first name of a path, and what comes after it.
fn next_step(path: &str) -> Option<(&str, &str)> {
    if let Some(name) = path.strip_prefix('.') {
        let end = name.find(['.', '[', ']']).unwrap_or(name.len());
        return (end > 0).then(|| name.split_at(end));
    }
    path.strip_prefix("['")?.split_once("']")
}

fn rule_shape(rule: &Value, at: &str, schema: &Value, errors: &mut Errors) {
    let sent = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
    let (source, message) = (sent("rule").trim(), sent("message").trim());
    let broken = |text: &str| text.contains(['\n', '\r']);
    if source.is_empty() {
        errors.required(format!("{at}.rule"), "rule is not specified");
    } else if !sent("message").is_empty() && message.is_empty() {
        errors.invalid(format!("{at}.message"), &sent("message").into(), "must be non-empty if specified");
    } else if broken(message) {
        errors.invalid(format!("{at}.message"), &sent("message").into(), "must not contain line breaks");
    } else if broken(source) && message.is_empty() {
        errors.required(format!("{at}.message"), "message must be specified if rule contains line breaks");
    }
    if !sent("messageExpression").is_empty() && sent("messageExpression").trim().is_empty() {
        errors.required(format!("{at}.messageExpression"), "messageExpression must be non-empty if specified");
    }
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    if let Some(reason) = rule.get("reason").and_then(Value::as_str).filter(|reason| !REASONS.contains(reason)) {
        errors.unsupported(format!("{at}.reason"), &reason.into(), &REASONS);
    }
    let path = sent("fieldPath");
    if !path.is_empty() && path.trim().is_empty() {
        errors.invalid(format!("{at}.fieldPath"), &path.into(), "must be non-empty if specified");
    }
    if broken(path) {
        errors.invalid(format!("{at}.fieldPath"), &path.into(), "must not contain line breaks");
    }
    if !path.is_empty() && !leads_somewhere(schema, path) {
        errors.invalid(format!("{at}.fieldPath"), &path.into(), "must be a valid path");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_path_leads_to_a_member() {
        let schema = json!({"properties": {"a": {"properties": {"b": {}}}}});
        assert!(leads_somewhere(&schema, ".a.b") && leads_somewhere(&schema, "['a'].b"));
        assert!(!leads_somewhere(&schema, ".b") && !leads_somewhere(&schema, ".a.c"));
        let list = json!({"properties": {"a": {"type": "array", "items": {"type": "string"}}}});
        assert!(!leads_somewhere(&list, ".a[0]") && !leads_somewhere(&list, "a") && !leads_somewhere(&list, "."));
        let map = json!({"properties": {"a": {"additionalProperties": {"properties": {"b": {}}}}}});
        assert!(leads_somewhere(&map, ".a['x.y'].b") && !leads_somewhere(&map, ".a['x.y'].c"));
    }

    #[test]
    fn a_rule_is_shown_as_its_struct() {
        let shown = "{\"Rule\":\"true\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\
                     \"OptionalOldSelf\":null}";
        assert_eq!(rule_shown(&json!({"rule": "true"})), shown);
    }
}
