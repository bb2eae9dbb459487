//! The value checks of OpenAPI v3 with the texts of the API server (kube-openapi `validation/validate`), and
//! ratcheting: an error in a part that an update leaves as it was does not count
//! (`apiserver/validation/ratcheting.go`).

use std::fmt::Write as _;

use serde_json::{Number, Value};

use super::error::{CauseReason, FieldError};
use super::formats::Format;
use super::gotext;
use super::node::{Additional, Checks, Kind, ListKind, Node};

/// What checking a value found: the errors, and how many checks it passed, which picks the alternative whose
/// errors are worth reporting.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    matches: usize,
}

impl Outcome {
    fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        for error in other.errors {
            self.add(error);
        }
    }

    fn add(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}

/// `field.TooLong` and its sisters say one byte, one item.
fn plural(limit: u64, unit: &str) -> String {
    if limit == 1 { unit.to_owned() } else { format!("{unit}s") }
}

/// Checks `value`, found at `prefix` (empty for a whole object), against `node`.
pub fn check_values(value: &Value, old: Option<&Value>, node: &Node, prefix: &str) -> Vec<FieldError> {
    let checker = Checker { prefix };
    checker.ratcheted(value, old, node, &mut String::new()).errors
}

struct Checker<'a> {
    prefix: &'a str,
}

impl Checker<'_> {
    fn error(&self, reason: CauseReason, path: &str, message: String) -> FieldError {
        let path = path.strip_prefix('.').unwrap_or(path);
        let field = match (self.prefix, path) {
            ("", "") => "<nil>".to_owned(),
            ("", path) => path.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, path) => format!("{prefix}.{path}"),
        };
        FieldError { reason, field, message }
    }

    fn invalid(&self, path: &str, value: &Value, text: &str) -> FieldError {
        let message = format!("Invalid value: {}: {path} in body {text}", gotext::write_value(value));
        self.error(CauseReason::Invalid, path, message)
    }

    /// Errors about junctors carry no path of their own, only in the text.
    fn composite(&self, text: &str) -> FieldError {
        self.error(CauseReason::Invalid, "", format!("Invalid value: \"\": {text}"))
    }

    fn wrong_type(&self, path: &str, wanted: &str, got: &str) -> FieldError {
        let got = gotext::quote_string(got);
        self.error(
            CauseReason::TypeInvalid,
            path,
            format!("Invalid value: {got}: {path} in body must be of type {wanted}: {got}"),
        )
    }

    fn ratcheted(&self, value: &Value, old: Option<&Value>, node: &Node, path: &mut String) -> Outcome {
        let mut outcome = self.value(value, old, node, path);
        if !outcome.errors.is_empty() && old == Some(value) {
            outcome.errors.clear();
        }
        outcome
    }

    fn value(&self, value: &Value, old: Option<&Value>, node: &Node, path: &mut String) -> Outcome {
        let mut outcome = Outcome::default();
        if value.is_null() {
            outcome.merge(self.types(value, node, path));
            self.enumeration(value, node, path, &mut outcome);
            return outcome;
        }
        if !node.types.is_empty() || node.format.is_some() {
            outcome.merge(self.types(value, node, path));
            outcome.matches += 1;
        }
        outcome.merge(self.junctors(value, old, node, path));
        outcome.matches += 1;
        match value {
            Value::String(text) => {
                self.string(text, node, path, &mut outcome);
                if let Some(format @ Format::Text(name)) = node.format {
                    outcome.matches += 1;
                    if !format.accepts(text) {
                        outcome.add(self.wrong_type(path, name, text));
                    }
                }
                outcome.matches += 1;
            }
            Value::Number(number) => {
                self.number(number, node, path, &mut outcome);
                outcome.matches += 2;
            }
            Value::Array(items) => {
                self.array(items, old, node, path, &mut outcome);
                outcome.matches += 2;
            }
            _ => {}
        }
        self.enumeration(value, node, path, &mut outcome);
        outcome.matches += 1;
        if let Value::Object(map) = value {
            self.object(map, old, node, path, &mut outcome);
            outcome.matches += 1;
        }
        outcome.matches += 1;
        outcome
    }

    fn types(&self, value: &Value, node: &Node, path: &str) -> Outcome {
        let passed = Outcome { errors: Vec::new(), matches: 1 };
        let failed = |error| Outcome { errors: vec![error], matches: 0 };
        let wanted = || node.types.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(",");
        let actual = match value {
            Value::Null => {
                let fails = !node.types.is_empty() && !node.nullable;
                return if fails { failed(self.wrong_type(path, &wanted(), "null")) } else { passed };
            }
            Value::Bool(_) => Kind::Boolean,
            Value::String(_) => Kind::String,
            Value::Array(_) => Kind::Array,
            Value::Object(_) => Kind::Object,
            Value::Number(number) if number.is_f64() => Kind::Number,
            Value::Number(_) => Kind::Integer,
        };
        let has = |kind| node.types.contains(&kind);
        let exact = |number: f64| is_whole(number) && number.abs() <= MAX_SAFE_INTEGER;
        let whole = has(Kind::Integer) && value.as_f64().is_some_and(exact);
        let matching = has(actual) || whole || (actual == Kind::Integer && has(Kind::Number));
        let textual = matches!(actual, Kind::String | Kind::Array);
        match node.format {
            Some(format) if !textual && !matching => {
                let native = match actual {
                    Kind::Integer => "int64",
                    Kind::Number => "float64",
                    _ => "",
                };
                if native == format.as_str() { passed } else { failed(self.wrong_type(path, format.as_str(), native)) }
            }
            // A string format stands for its type: the format check reports the error.
            Some(_) if textual && !has(Kind::Number) && !has(Kind::Integer) => passed,
            _ if matching => passed,
            _ => failed(self.wrong_type(path, &wanted(), actual.as_str())),
        }
    }

    fn enumeration(&self, value: &Value, node: &Node, path: &str, outcome: &mut Outcome) {
        let Some(checks) = &node.checks else { return };
        if checks.enumeration.is_empty() || checks.enumeration.iter().any(|allowed| same_value(allowed, value)) {
            return;
        }
        let message = format!("Unsupported value: {}: supported values: {}", gotext::write_value(value), {
            let texts: Vec<String> = checks
                .enumeration
                .iter()
                .map(|allowed| match allowed {
                    Value::String(text) => gotext::quote_string(text),
                    other => gotext::quote_string(&other.to_string()),
                })
                .collect();
            texts.join(", ")
        });
        outcome.add(self.error(CauseReason::NotSupported, path, message));
    }

    fn string(&self, text: &str, node: &Node, path: &str, outcome: &mut Outcome) {
        let Some(checks) = &node.checks else { return };
        let shown = || Value::String(text.to_owned());
        // The first failing check ends the string's checks.
        if let Some(limit) = checks.max_length
            && text.chars().count() as u64 > limit
        {
            let message = format!("Too long: may not be more than {limit} {}", plural(limit, "byte"));
            outcome.add(self.error(CauseReason::TooLong, path, message));
        } else if let Some(limit) = checks.min_length
            && (text.chars().count() as u64) < limit
        {
            outcome.add(self.invalid(path, &shown(), &format!("should be at least {limit} chars long")));
        } else if let Some((source, regex)) = &checks.pattern
            && !regex.as_ref().is_some_and(|regex| regex.is_match(text))
        {
            outcome.add(self.invalid(path, &shown(), &format!("should match '{source}'")));
        }
    }

    fn number(&self, number: &Number, node: &Node, path: &str, outcome: &mut Outcome) {
        let value = Value::Number(number.clone());
        self.range(number, node, path, outcome);
        let Some(checks) = &node.checks else { return };
        let integer = number.as_i64();
        let float = number.as_f64().unwrap_or(0.0);
        let shown = |limit: f64| integer.map_or_else(|| gotext::write_float(limit), |_| format!("{}", limit as i64));
        if let Some(factor) = checks.multiple_of {
            let fits = match integer {
                Some(integer) if factor as i64 > 0 => integer % (factor as i64) == 0,
                // The factor is cut to an integer first (`MultipleOfInt` of go-openapi).
                Some(_) => {
                    let cut = factor as i64;
                    let why =
                        format!("Invalid value: {cut}: factor MultipleOf declared for {path} must be positive: {cut}");
                    outcome.add(self.error(CauseReason::Invalid, path, why));
                    true
                }
                _ if factor <= 0.0 => false,
                _ if factor < 1.0 => is_whole(float * (1.0 / factor)),
                _ => is_whole(float / factor),
            };
            if !fits {
                outcome.add(self.invalid(path, &value, &format!("should be a multiple of {}", shown(factor))));
            }
        }
        let beyond = |limit: f64| integer.map_or(float > limit, |integer| integer > limit as i64);
        let below = |limit: f64| integer.map_or(float < limit, |integer| integer < limit as i64);
        let at = |limit: f64| !beyond(limit) && !below(limit);
        if let Some(limit) = checks.maximum
            && (beyond(limit) || (checks.exclusive_maximum && at(limit)))
        {
            let word = if checks.exclusive_maximum { "less than" } else { "less than or equal to" };
            outcome.add(self.invalid(path, &value, &format!("should be {word} {}", shown(limit))));
        }
        if let Some(limit) = checks.minimum
            && (below(limit) || (checks.exclusive_minimum && at(limit)))
        {
            let word = if checks.exclusive_minimum { "greater than" } else { "greater than or equal to" };
            outcome.add(self.invalid(path, &value, &format!("should be {word} {}", shown(limit))));
        }
    }

    /// Whether the number fits the format, which is only known when the type is unambiguous.
    fn range(&self, number: &Number, node: &Node, path: &str, outcome: &mut Outcome) {
        let float = number.as_f64().unwrap_or(0.0);
        let (kind, fits) = match node.types.as_slice() {
            [Kind::Integer] => {
                let small = is_whole(float) && float.abs() < 9.2e18;
                let whole = number.as_i64().or_else(|| small.then_some(float as i64));
                let fits = match node.format {
                    Some(Format::Int32) => whole.is_some_and(|whole| i32::try_from(whole).is_ok()),
                    _ => whole.is_some(),
                };
                ("integer", fits)
            }
            [Kind::Number] => ("number", node.format != Some(Format::Float) || (float as f32).is_finite()),
            _ => return,
        };
        if !fits {
            let format =
                node.format.map_or("(default format)".to_owned(), |format| format!("with format {}", format.as_str()));
            outcome.add(self.composite(&format!("Checked value must be of type {kind} {format} in {path}")));
        }
    }

    fn array(&self, items: &[Value], old: Option<&Value>, node: &Node, path: &mut String, outcome: &mut Outcome) {
        if let Some(inner) = &node.items {
            let inner = inner.node();
            let before = old.and_then(Value::as_array);
            for (index, item) in items.iter().enumerate() {
                let length = path.len();
                let _ = write!(path, "[{index}]");
                let counterpart = before.and_then(|before| find_counterpart(before, item, node));
                outcome.merge(self.ratcheted(item, counterpart, inner, path));
                path.truncate(length);
            }
        }
        let Some(checks) = &node.checks else { return };
        let size = items.len() as u64;
        if let Some(limit) = checks.min_items
            && size < limit
        {
            outcome.add(self.invalid(path, &Value::from(size), &format!("should have at least {limit} items")));
        }
        if let Some(limit) = checks.max_items
            && size > limit
        {
            let message = format!("Too many: {size}: must have at most {limit} {}", plural(limit, "item"));
            outcome.add(self.error(CauseReason::TooMany, path, message));
        }
    }

    fn object(
        &self,
        map: &serde_json::Map<String, Value>,
        old: Option<&Value>,
        node: &Node,
        path: &mut String,
        outcome: &mut Outcome,
    ) {
        let checks = node.checks.as_deref();
        let size = map.len() as u64;
        if let Some(limit) = checks.and_then(|c| c.min_properties)
            && size < limit
        {
            outcome.add(self.invalid(path, &Value::from(size), &format!("should have at least {limit} properties")));
        }
        if let Some(limit) = checks.and_then(|c| c.max_properties)
            && size > limit
        {
            let message = format!("Too many: {size}: must have at most {limit} {}", plural(limit, "item"));
            outcome.add(self.error(CauseReason::TooMany, path, message));
        }
        let root = path.is_empty();
        for (key, value) in map {
            let length = path.len();
            let inner = if let Some(property) = node.properties.get(key) {
                if length > 0 {
                    path.push('.');
                }
                property.node()
            } else {
                match &node.additional {
                    Additional::Schema(link) => {
                        path.push('.');
                        link.node()
                    }
                    Additional::Allowed(false) => {
                        let shown = gotext::quote_string(key);
                        let message = format!("Invalid value: {shown}: {path}.{key} in body is a forbidden property");
                        outcome.add(self.error(CauseReason::Invalid, path, message));
                        continue;
                    }
                    _ => continue,
                }
            };
            path.push_str(key);
            let typed = root && matches!(key.as_str(), "kind" | "apiVersion");
            let before = old.filter(|_| !typed).and_then(|old| old.get(key));
            outcome.merge(self.ratcheted(value, before, inner, path));
            path.truncate(length);
        }
        for name in checks.map(|c| c.required.as_slice()).unwrap_or_default() {
            if !map.contains_key(name) {
                outcome.add(self.error(CauseReason::Required, &format!("{path}.{name}"), "Required value".to_owned()));
            }
        }
    }

    fn junctors(&self, value: &Value, old: Option<&Value>, node: &Node, path: &mut String) -> Outcome {
        let mut outcome = Outcome { errors: Vec::new(), matches: 1 };
        let Some(checks) = &node.checks else { return outcome };
        self.any_of(value, old, checks, path, &mut outcome);
        self.one_of(value, old, checks, path, &mut outcome);
        self.all_of(value, old, checks, path, &mut outcome);
        if let Some(not) = &checks.not
            && self.value(value, old, not, path).errors.is_empty()
        {
            outcome.add(self.composite(&format!("{} must not validate the schema (not)", gotext::quote_string(path))));
        }
        outcome
    }

    fn any_of(&self, value: &Value, old: Option<&Value>, checks: &Checks, path: &mut String, outcome: &mut Outcome) {
        if checks.any_of.is_empty() {
            return;
        }
        let mut best: Option<Outcome> = None;
        for alternative in &checks.any_of {
            let result = self.value(value, old, alternative, path);
            if result.errors.is_empty() {
                outcome.merge(result);
                return;
            }
            if best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        outcome
            .add(self.composite(&format!("{} must validate at least one schema (anyOf)", gotext::quote_string(path))));
        outcome.merge(best.unwrap_or_default());
    }

    fn one_of(&self, value: &Value, old: Option<&Value>, checks: &Checks, path: &mut String, outcome: &mut Outcome) {
        if checks.one_of.is_empty() {
            return;
        }
        let (mut valid, mut first, mut best) = (0, None, None::<Outcome>);
        for alternative in &checks.one_of {
            let result = self.value(value, old, alternative, path);
            if result.errors.is_empty() {
                valid += 1;
                best = None;
                first.get_or_insert(result);
            } else if valid == 0 && best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        if valid == 1 {
            outcome.merge(first.unwrap_or_default());
            return;
        }
        let found =
            if valid == 0 { "Found none valid".to_owned() } else { format!("Found {valid} valid alternatives") };
        let path = gotext::quote_string(path);
        outcome.add(self.composite(&format!("{path} must validate one and only one schema (oneOf). {found}")));
        outcome.merge(best.unwrap_or_default());
    }

    fn all_of(&self, value: &Value, old: Option<&Value>, checks: &Checks, path: &mut String, outcome: &mut Outcome) {
        if checks.all_of.is_empty() {
            return;
        }
        let mut valid = 0;
        for part in &checks.all_of {
            let result = self.value(value, old, part, path);
            valid += usize::from(result.errors.is_empty());
            outcome.merge(result);
        }
        if valid != checks.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            let path = gotext::quote_string(path);
            outcome.add(self.composite(&format!("{path} must validate all the schemas (allOf){none}")));
        }
    }
}

/// The element of the old list that is the same element; only map lists have one.
pub fn find_counterpart<'a>(before: &'a [Value], item: &Value, node: &Node) -> Option<&'a Value> {
    let ListKind::Map(keys) = &node.list else { return None };
    let same = |other: &&Value| other.is_object() && keys.iter().all(|key| other.get(key) == item.get(key));
    if item.is_object() { before.iter().find(same) } else { None }
}

/// The largest integer below which a float knows them all (`swag.IsFloat64AJSONInteger`).
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

fn is_whole(number: f64) -> bool {
    number.is_finite() && number.fract() == 0.0
}

/// Numbers compare by value: an enum of 1 accepts 1.0.
fn same_value(allowed: &Value, value: &Value) -> bool {
    match (allowed, value) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => allowed == value,
    }
}
