//! CEL rules (`x-kubernetes-validations`): evaluated over the object from the outside to the inside, transition rules
//! only where old and new values correspond, unchanged parts ratcheted (`apiserver/schema/cel/validation.go`).

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::parser::{Expression, Parser};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};
use serde_json::Value;

use super::cel_check::{Role, check_expression};
use super::cel_tree::{expand_loops, register_loops};
use super::checks::find_counterpart;
use super::error::{CauseReason, FieldError};
use super::formats::Format;
use super::gotext;
use super::node::{Additional, Kind, Node};
use super::path::FieldPath;

/// A parsed expression, in the dialect of the API server: with optional values.
#[derive(Debug)]
struct Program {
    parsed: Expression,
    /// What runs: loops of two variables are expanded.
    expression: Expression,
}

impl Program {
    fn compile(source: &str) -> Result<Self, String> {
        let parsed = parse_expression(source)?;
        let mut expression = parsed.clone();
        expand_loops(&mut expression);
        Ok(Self { parsed, expression })
    }

    fn execute(&self, scope: &Context<'_>) -> Result<CelValue, ExecutionError> {
        CelValue::resolve(&self.expression, scope)
    }

    fn mentions(&self, variable: &str) -> bool {
        self.expression.references().has_variable(variable)
    }
}

/// Parses an expression; where it cannot, the compiler's words for it.
pub(crate) fn parse_expression(source: &str) -> Result<Expression, String> {
    let parser = Parser::default().enable_optional_syntax(true);
    // cel-go indents the lines that show the place.
    parser.parse(source).map_err(|error| format!("compilation failed: {error}").replace("\n| ", "\n | "))
}

/// One rule, compiled once with its schema.
#[derive(Debug)]
pub struct Rule {
    source: String,
    message: Option<String>,
    reason: Option<CauseReason>,
    /// Normalised: without the leading dot.
    field_path: Option<String>,
    optional_old: bool,
    uses_old: bool,
    program: Result<Program, String>,
    message_program: Option<Result<Program, String>>,
}

impl Rule {
    pub fn parse(rule: &Value) -> Self {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
        let source = text("rule").unwrap_or_default().to_owned();
        let program = Program::compile(&source);
        Self {
            uses_old: program.as_ref().is_ok_and(|program| program.mentions("oldSelf")),
            message: text("message").map(str::to_owned),
            reason: text("reason").map(|reason| match reason {
                "FieldValueForbidden" => CauseReason::Forbidden,
                "FieldValueRequired" => CauseReason::Required,
                "FieldValueDuplicate" => CauseReason::Duplicate,
                _ => CauseReason::Invalid,
            }),
            field_path: text("fieldPath").map(normal_path),
            optional_old: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
            message_program: text("messageExpression").map(Program::compile),
            source,
            program,
        }
    }

    pub fn uses_old(&self) -> bool {
        self.uses_old
    }

    /// The compiler's complaint about the rule on a value of this schema.
    pub fn compile_error(&self, node: &Node, resource: bool) -> Option<String> {
        match &self.program {
            _ if self.source.is_empty() => None,
            Err(error) => Some(error.clone()),
            Ok(program) => {
                check_expression(&program.parsed, &self.source, (node, resource), self.optional_old, Role::Rule).err()
            }
        }
    }

    /// The compiler's complaint about the message expression.
    pub fn message_error(&self, source: &str, node: &Node, resource: bool) -> Option<String> {
        match self.message_program.as_ref()? {
            Err(error) => Some(format!("messageExpression {error}")),
            Ok(program) => {
                check_expression(&program.parsed, source, (node, resource), self.optional_old, Role::Message).err()
            }
        }
    }

    /// The steps the rule takes at most.
    pub fn steps(&self, node: &Node) -> u64 {
        self.program.as_ref().map_or(0, |program| super::cel_cost::estimate_steps(&program.expression, node))
    }

    /// The steps the message expression takes at most.
    pub fn message_steps(&self, node: &Node) -> u64 {
        let program = self.message_program.as_ref().and_then(|program| program.as_ref().ok());
        program.map_or(0, |program| super::cel_cost::estimate_steps(&program.expression, node))
    }

    fn shown(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.source)
    }
}

/// `.a['b.c'].d` as an error names it: `a.b.c.d`; map keys keep their brackets only in maps, which rules rarely name.
fn normal_path(path: &str) -> String {
    path.trim_start_matches('.').replace("['", ".").replace("']", "").trim_start_matches('.').to_owned()
}

/// Runs all rules below `node`. `old` is the stored object on an update.
pub fn check_rules(object: &Value, old: Option<&Value>, node: &Node) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if node.has_rules {
        let correlation = Correlation { current: old.map(|old| (object, old)), parent: None };
        walk_value(object, old, node, correlation, &mut FieldPath::default(), &mut errors);
    }
    errors
}

/// As `check`, for a value at `path` without a ratchet: the validation of a default.
pub fn check_at(value: &Value, old: Option<&Value>, node: &Node, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let correlation = Correlation { current: None, parent: None };
    walk_value(value, old, node, correlation, &mut FieldPath::at(path), &mut errors);
    errors
}

/// The pair of new and old value whose equality excuses an error here.
#[derive(Clone, Copy)]
struct Correlation<'a> {
    current: Option<(&'a Value, &'a Value)>,
    parent: Option<(&'a Value, &'a Value)>,
}

impl<'a> Correlation<'a> {
    fn unchanged(&self) -> bool {
        self.current.or(self.parent).is_some_and(|(new, old)| new == old)
    }

    fn member(self, key: &str, root: bool) -> Self {
        let Some((new, old)) = self.current else { return self };
        if root && matches!(key, "apiVersion" | "kind") {
            return Self { current: None, parent: None };
        }
        let pair = new.get(key).and_then(|new| Some((new, old.get(key)?)));
        // A field that is new has no equal counterpart, and its parent differs too.
        Self { current: pair, parent: self.current }
    }

    fn element(self, item: &'a Value, node: &Node) -> Self {
        let Some((_, old)) = self.current else { return self };
        let before = old.as_array().and_then(|before| find_counterpart(before, item, node));
        Self { current: before.map(|before| (item, before)), parent: self.current }
    }
}

fn walk_value<'a>(
    value: &'a Value,
    old: Option<&'a Value>,
    node: &Node,
    correlation: Correlation<'a>,
    path: &mut FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if value.is_null() {
        return;
    }
    let old = old.filter(|old| !old.is_null());
    run_rules(value, old, node, &node.rules, correlation, path, errors);
    if let Some(checks) = &node.checks {
        for part in &checks.all_of {
            let correlation = Correlation { current: None, parent: correlation.parent };
            run_rules(value, old, node, &part.rules, correlation, path, errors);
        }
    }
    match value {
        Value::Object(map) => {
            let root = path.as_str().is_empty();
            for (key, value) in map {
                let before = old.and_then(|old| old.get(key));
                let next = correlation.member(key, root);
                if let Some(property) = node.properties.get(key) {
                    if property.node().has_rules {
                        path.in_member(key, |path| walk_value(value, before, property.node(), next, path, errors));
                    }
                } else if let Additional::Schema(inner) = &node.additional
                    && inner.node().has_rules
                {
                    path.in_key(key, |path| walk_value(value, before, inner.node(), next, path, errors));
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = node.items.as_ref().map(|link| link.node()).filter(|inner| inner.has_rules) else {
                return;
            };
            let before = old.and_then(Value::as_array);
            for (index, item) in items.iter().enumerate() {
                let matching = before.and_then(|before| find_counterpart(before, item, node));
                let next = correlation.element(item, node);
                path.in_index(index, |path| walk_value(item, matching, inner, next, path, errors));
            }
        }
        _ => {}
    }
}

fn run_rules(
    value: &Value,
    old: Option<&Value>,
    node: &Node,
    rules: &[Arc<Rule>],
    correlation: Correlation<'_>,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if rules.is_empty() {
        return;
    }
    with_context(|context| {
        let scope_self = to_cel(value, node);
        let scope_old = old.map(|old| to_cel(old, node));
        for rule in rules {
            let transition = rule.uses_old && scope_old.is_none();
            if rule.source.is_empty() || (transition && !rule.optional_old) {
                continue;
            }
            let mut scope = context.new_inner_scope();
            scope.add_variable_from_value("self", scope_self.clone());
            if rule.optional_old {
                let optional = scope_old.clone().map_or_else(OptionalValue::none, OptionalValue::of);
                scope.add_variable_from_value("oldSelf", CelValue::Opaque(Arc::new(optional)));
            } else if let Some(old) = &scope_old {
                scope.add_variable_from_value("oldSelf", old.clone());
            }
            if let Some((error, ratchets)) = evaluate_rule(rule, &scope, value, node, path)
                && !(ratchets && !rule.uses_old && correlation.unchanged())
            {
                errors.push(error);
            }
        }
    });
}

/// The error of one rule, and whether an unchanged value excuses it.
fn evaluate_rule(
    rule: &Rule,
    scope: &Context<'_>,
    value: &Value,
    node: &Node,
    path: &FieldPath,
) -> Option<(FieldError, bool)> {
    // Trouble with the rule itself shows the type instead of the value.
    let type_name = node.types.first().filter(|_| !node.int_or_string).map_or("", |kind| kind.as_str());
    let trouble = |detail: String| {
        let message = format!("Invalid value: {}: {detail}", gotext::quote_string(type_name));
        Some((FieldError::new(CauseReason::Invalid, path.name(), message), false))
    };
    let program = match &rule.program {
        Ok(program) => program,
        Err(error) => return trouble(format!("rule compile error: {error}")),
    };
    match program.execute(scope) {
        Ok(CelValue::Bool(true)) => None,
        Ok(_) => Some((rule_failure(rule, scope, value, node, path), true)),
        Err(ExecutionError::NoSuchOverload) => trouble(format!(
            "'no such overload': call arguments did not match a supported operator, function or macro signature for \
             rule: {}",
            rule.shown()
        )),
        Err(error) => trouble(format!("{} evaluating rule: {}", go_error(&error), rule.shown())),
    }
}

fn rule_failure(rule: &Rule, scope: &Context<'_>, value: &Value, node: &Node, path: &FieldPath) -> FieldError {
    let field = match &rule.field_path {
        Some(inner) => path.member(inner),
        None => path.name(),
    };
    let computed = rule.message_program.as_ref().and_then(|program| match program.as_ref().ok()?.execute(scope) {
        Ok(CelValue::String(text)) => {
            let text = text.trim().to_owned();
            (!text.is_empty() && text.len() <= 5 * 1024 && !text.contains('\n')).then_some(text)
        }
        _ => None,
    });
    let detail = computed.or_else(|| rule.message.clone()).unwrap_or_else(|| format!("failed rule: {}", rule.source));
    let compound = matches!(node.types.as_slice(), [Kind::Object | Kind::Array]);
    let shown = if compound { String::new() } else { format!(": {}", gotext::write_value(value)) };
    match rule.reason {
        Some(reason @ CauseReason::Forbidden) => FieldError::new(reason, field, format!("Forbidden: {detail}")),
        Some(reason @ CauseReason::Required) => FieldError::new(reason, field, format!("Required value: {detail}")),
        Some(reason @ CauseReason::Duplicate) => FieldError::new(reason, field, format!("Duplicate value{shown}")),
        _ => FieldError::new(CauseReason::Invalid, field, format!("Invalid value{shown}: {detail}")),
    }
}

/// cel-go's words for the errors that happen in practice.
pub(crate) fn go_error(error: &ExecutionError) -> String {
    match error {
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(CelValue::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::FunctionError { function, message } => function_error(function, message),
        other => other.to_string(),
    }
}

/// What cel-go and the libraries of the API server say where their counterparts here fail.
fn function_error(function: &str, message: &str) -> String {
    let converted = match function {
        "int" | "uint" | "double" => function,
        "duration" => "google.protobuf.Duration",
        "timestamp" => "google.protobuf.Timestamp",
        _ => "",
    };
    let number = || message.split(|c: char| !c.is_ascii_digit() && c != '-').find(|part| !part.is_empty());
    match function {
        _ if !converted.is_empty() => format!("type conversion error from 'string' to '{converted}'"),
        "quantity" => "quantities must match the regular expression \
                       '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            .to_owned(),
        "semver" => "No Major.Minor.Patch elements found".to_owned(),
        "substring" | "charAt" if message.contains("out of range") => {
            format!("index out of range: {}", number().unwrap_or_default())
        }
        _ => message.to_owned(),
    }
}

thread_local! {
    static CONTEXT: OnceCell<Context<'static>> = const { OnceCell::new() };
    /// The only ways to CEL's own time values without naming its clock library.
    static TIMESTAMP: OnceCell<Option<Program>> = const { OnceCell::new() };
    static DURATION: OnceCell<Option<Program>> = const { OnceCell::new() };
}

fn make_context() -> Context<'static> {
    let mut context = Context::default().with_all();
    register_loops(&mut context);
    context
}

fn with_context<T>(then: impl FnOnce(&Context<'static>) -> T) -> T {
    CONTEXT.with(|cell| then(cell.get_or_init(make_context)))
}

fn convert_literal(text: &str, function: &str, program: &OnceCell<Option<Program>>) -> Option<CelValue> {
    let program = program.get_or_init(|| Program::compile(&format!("{function}(self)")).ok()).as_ref()?;
    with_context(|context| {
        let mut scope = context.new_inner_scope();
        scope.add_variable_from_value("self", CelValue::String(Arc::new(text.to_owned())));
        program.execute(&scope).ok()
    })
}

fn to_cel(value: &Value, node: &Node) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(integer) if node.types != [Kind::Number] => CelValue::Int(integer),
            _ => CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => string_to_cel(text, node),
        Value::Array(items) => {
            let inner = node.items.as_ref().map(|link| link.node());
            CelValue::List(Arc::new(items.iter().map(|item| member_to_cel(item, inner)).collect()))
        }
        Value::Object(map) => {
            let is_map = matches!(node.additional, Additional::Schema(_) | Additional::Allowed(true));
            let mut entries = HashMap::with_capacity(map.len());
            for (key, value) in map {
                let value = member_to_cel(value, node.member(key));
                // A reserved word names its field in both forms.
                if !is_map && RESERVED_WORDS.contains(&key.as_str()) {
                    entries.insert(Key::String(Arc::new(key.clone())), value.clone());
                }
                let name = if is_map { key.clone() } else { escape_name(key) };
                entries.insert(Key::String(Arc::new(name)), value);
            }
            CelValue::Map(Map { map: Arc::new(entries) })
        }
    }
}

fn member_to_cel(value: &Value, node: Option<&Node>) -> CelValue {
    thread_local! {
        static ANYTHING: Node = Node::default();
    }
    match node {
        Some(node) => to_cel(value, node),
        None => ANYTHING.with(|node| to_cel(value, node)),
    }
}

fn string_to_cel(text: &str, node: &Node) -> CelValue {
    let special = match node.format {
        Some(Format::Text("date-time" | "datetime")) => TIMESTAMP.with(|cell| convert_literal(text, "timestamp", cell)),
        Some(Format::Text("date")) => {
            TIMESTAMP.with(|cell| convert_literal(&format!("{text}T00:00:00Z"), "timestamp", cell))
        }
        Some(Format::Text("duration")) => DURATION.with(|cell| convert_literal(text, "duration", cell)),
        Some(Format::Text("byte")) => {
            use base64::Engine as _;
            let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok();
            bytes.map(|bytes| CelValue::Bytes(Arc::new(bytes)))
        }
        _ => None,
    };
    special.unwrap_or_else(|| CelValue::String(Arc::new(text.to_owned())))
}

/// Words that no CEL identifier is (`cel-go/parser`).
pub(crate) const RESERVED_WORDS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// How a rule names a field that is no CEL identifier (`apiserver/pkg/cel/escaping.go`).
pub(super) fn escape_name(name: &str) -> String {
    if RESERVED_WORDS.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return name.to_owned();
    }
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}
