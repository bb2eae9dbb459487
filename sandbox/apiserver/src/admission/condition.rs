//! `matchConditions`: CEL expressions over `object`, `oldObject` and `request`, compiled once
//! (`apiserver/pkg/admission/plugin/webhook/matchconditions`).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as CelValue};
use regex::Regex;
use serde_json::Value;

/// The functions are registered once; each evaluation adds its variables in a scope of its own.
static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

/// Names that macros bind: `list.all(x, ...)`, also with two names, and `cel.bind(x, ...)`.
static BINDERS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let macros = "all|exists|exists_one|existsOne|map|filter|transformList|transformMap|bind";
    [format!(r"\.(?:{macros})\(\s*(\w+)\s*,"), format!(r"\.(?:{macros})\(\s*\w+\s*,\s*(\w+)\s*,")]
        .iter()
        .filter_map(|pattern| Regex::new(pattern).ok())
        .collect()
});

const VARIABLES: [&str; 4] = ["object", "oldObject", "request", "authorizer"];

#[derive(Debug)]
pub struct Condition {
    pub name: String,
    pub expression: String,
    program: Result<Program, String>,
    uses: [bool; 3],
}

/// What the conditions of a webhook say about a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Call,
    Skip,
    /// No condition is false, and at least one cannot be evaluated.
    Error(String),
}

/// The values that conditions see. Converted when first needed.
pub struct Variables<'a> {
    pub object: Option<&'a Value>,
    pub old_object: Option<&'a Value>,
    pub request: &'a Value,
}

impl Condition {
    pub fn read(value: &Value) -> Condition {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Condition::new(text("name"), text("expression"))
    }

    pub fn new(name: String, expression: String) -> Condition {
        let program = compile_expression(&expression);
        let uses = match &program {
            Ok(program) => {
                let references = program.references();
                ["object", "oldObject", "request"].map(|v| references.has_variable(v))
            }
            Err(_) => [false; 3],
        };
        Condition { name, expression, program, uses }
    }

    fn evaluate(&self, cache: &mut Cache<'_>) -> Result<bool, String> {
        let failed = |why: String| format!("expression '{}' resulted in error: {why}", self.expression);
        let program = self.program.as_ref().map_err(|why| failed(why.clone()))?;
        let mut scope = FUNCTIONS.new_inner_scope();
        for (i, name) in ["object", "oldObject", "request"].into_iter().enumerate() {
            if self.uses[i] {
                scope.add_variable_from_value(name, cache.value(i));
            }
        }
        match program.execute(&scope) {
            Ok(CelValue::Bool(result)) => Ok(result),
            Ok(_) => Err(failed("no such overload".into())),
            Err(error) => Err(failed(error_text(&error))),
        }
    }
}

/// cel-go's words for the errors that happen in practice.
fn error_text(error: &kube_cel::cel::ExecutionError) -> String {
    use kube_cel::cel::ExecutionError as E;
    match error {
        E::NoSuchKey(key) => format!("no such key: {key}"),
        E::NoSuchOverload | E::UnsupportedBinaryOperator(..) | E::ValuesNotComparable(..) => "no such overload".into(),
        E::DivisionByZero(_) => "division by zero".into(),
        other => other.to_string(),
    }
}

/// Compiles an expression; the error is cel-go's text as far as it can be known.
pub fn compile_expression(expression: &str) -> Result<Program, String> {
    let program = Program::compile(expression)
        .map_err(|errors| format!("compilation failed: ERROR: <input>:1:1: Syntax error: {errors}"))?;
    let references = program.references();
    let bound: Vec<&str> =
        BINDERS.iter().flat_map(|b| b.captures_iter(expression)).filter_map(|c| c.get(1)).map(|m| m.as_str()).collect();
    let known = |v: &&str| VARIABLES.contains(v) || is_type(v) || bound.contains(v) || v.starts_with('@');
    let mut unknown: Vec<&str> = references.variables().into_iter().filter(|v| !known(v)).collect();
    unknown.sort_unstable();
    match unknown.first() {
        Some(name) => Err(format!(
            "compilation failed: ERROR: <input>:1:1: undeclared reference to '{name}' (in container '')\n | {expression}\n | ^"
        )),
        None => Ok(program),
    }
}

fn is_type(name: &str) -> bool {
    matches!(
        name,
        "int"
            | "uint"
            | "double"
            | "bool"
            | "string"
            | "bytes"
            | "list"
            | "map"
            | "null_type"
            | "type"
            | "dyn"
            | "optional"
    )
}

/// The type of an expression that is a plain literal; `None` when it is not known to be something other than a boolean.
pub fn literal_type(expression: &str) -> Option<&'static str> {
    let text = expression.trim();
    if text.parse::<i64>().is_ok() {
        return Some("int");
    }
    if text.strip_suffix('u').is_some_and(|t| t.parse::<u64>().is_ok()) {
        return Some("uint");
    }
    if text.parse::<f64>().is_ok() && text.contains('.') {
        return Some("double");
    }
    let quoted = |q: char| text.len() > 1 && text.starts_with(q) && text.ends_with(q) && text.matches(q).count() == 2;
    if quoted('"') || quoted('\'') {
        return Some("string");
    }
    if text == "null" {
        return Some("null_type");
    }
    None
}

struct Cache<'a> {
    variables: &'a Variables<'a>,
    values: [Option<CelValue>; 3],
}

impl Cache<'_> {
    fn value(&mut self, i: usize) -> CelValue {
        let source = [self.variables.object, self.variables.old_object, Some(self.variables.request)];
        self.values[i].get_or_insert_with(|| source[i].map_or(CelValue::Null, to_cel)).clone()
    }
}

/// A false condition wins over one that cannot be evaluated.
pub fn decide_conditions(conditions: &[Condition], variables: &Variables<'_>) -> Verdict {
    let mut cache = Cache { variables, values: [None, None, None] };
    let mut errors = Vec::new();
    for condition in conditions {
        match condition.evaluate(&mut cache) {
            Ok(true) => {}
            Ok(false) => return Verdict::Skip,
            Err(error) => errors.push(error),
        }
    }
    match errors.as_slice() {
        [] => Verdict::Call,
        [one] => Verdict::Error(one.clone()),
        many => Verdict::Error(format!("[{}]", many.join(", "))),
    }
}

fn to_cel(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(b) => CelValue::Bool(*b),
        Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => CelValue::Int(i),
            (None, Some(u)) => CelValue::UInt(u),
            (None, None) => CelValue::Float(n.as_f64().unwrap_or_default()),
        },
        Value::String(s) => CelValue::String(Arc::new(s.clone())),
        Value::Array(list) => CelValue::List(Arc::new(list.iter().map(to_cel).collect())),
        Value::Object(members) => {
            let map: HashMap<Key, CelValue> =
                members.iter().map(|(k, v)| (Key::String(Arc::new(k.clone())), to_cel(v))).collect();
            CelValue::Map(Map { map: Arc::new(map) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn verdict(expressions: &[&str], object: &Value) -> Verdict {
        let conditions: Vec<Condition> =
            expressions.iter().map(|e| Condition::new("c".into(), (*e).to_owned())).collect();
        let request = json!({"operation": "CREATE", "userInfo": {"username": "admin"}});
        decide_conditions(&conditions, &Variables { object: Some(object), old_object: None, request: &request })
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

    #[test]
    fn an_unknown_name_does_not_compile() {
        assert!(compile_expression("foo == 1").unwrap_err().contains("undeclared reference to 'foo'"));
        assert!(compile_expression("1 +").unwrap_err().starts_with("compilation failed: "));
        assert!(compile_expression("object.spec.manifests.exists(m, m.kind == 'Job')").is_ok());
    }
}
