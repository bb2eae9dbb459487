//! CEL expressions of admission: match conditions, variables, validations, messages
//! (`apiserver/pkg/admission/plugin/cel`). Compiled once, run under a budget.
//!
//! The parsed tree is changed before it runs. A selection becomes an index, because the interpreter makes `false` of a
//! field of what is no map. A variable becomes a name of its own. Each step of a loop pays from the budget.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators};
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, Value as CelValue};
use serde_json::{Value, json};

use super::authorizer::{self, Asker};
use crate::schema::{
    AUTHORIZER, Node, OBJECT, PATCH, Type, expand_loops, go_error, infer_type, parse_expression, parts_of,
    register_loops,
};

/// What all expressions of one object may cost, and one of them (`apis/cel/config.go`).
pub const BUDGET: u64 = 10_000_000;
pub const CONDITIONS_BUDGET: u64 = 2_500_000;
const CALL_LIMIT: u64 = 1_000_000;

pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The name under which `authorizer.requestResource` is bound.
const REQUEST_RESOURCE: &str = "authorizer.requestResource";

thread_local! {
    /// What the running expression may still cost.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// The functions are registered once; each run adds its variables in a scope of its own.
static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    context.add_function("@step", pay_step);
    register_loops(&mut context);
    authorizer::register_functions(&mut context);
    context
});

/// The parts of `request` and of a Namespace that expressions may name (`BuildRequestType`, `BuildNamespaceType`).
static REQUEST: LazyLock<Node> = LazyLock::new(|| {
    let texts = |names: &[&str]| -> Value {
        let properties: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        json!({"type": "object", "properties": properties})
    };
    let list = json!({"type": "array", "items": {"type": "string"}});
    let mut schema = texts(&["subResource", "requestSubResource", "name", "namespace", "operation"]);
    for kind in ["kind", "requestKind"] {
        schema["properties"][kind] = texts(&["group", "version", "kind"]);
    }
    for resource in ["resource", "requestResource"] {
        schema["properties"][resource] = texts(&["group", "version", "resource"]);
    }
    let mut user = texts(&["username", "uid"]);
    user["properties"]["groups"] = list.clone();
    user["properties"]["extra"] = json!({"type": "object", "additionalProperties": list});
    schema["properties"]["userInfo"] = user;
    schema["properties"]["dryRun"] = json!({"type": "boolean"});
    schema["properties"]["options"] = json!({"x-kubernetes-preserve-unknown-fields": true});
    declare(&schema)
});

/// `namespace` is a reserved word that a schema's fields must escape, and these types' fields need not.
fn declare(schema: &Value) -> Node {
    let mut node = Node::parse(schema);
    node.declare();
    node
}

static NAMESPACE: LazyLock<Node> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    let time = json!({"type": "string", "format": "date-time"});
    let texts = json!({"type": "object", "additionalProperties": text});
    let list = json!({"type": "array", "items": text});
    let condition = json!({"type": "object", "properties": {"status": text, "type": text, "message": text,
        "reason": text, "lastTransitionTime": time}});
    let number = json!({"type": "integer"});
    declare(&json!({"type": "object", "properties": {
        "metadata": {"type": "object", "properties": {"name": text, "generateName": text, "namespace": text,
            "labels": texts, "annotations": texts, "UID": text, "creationTimestamp": time, "deletionTimestamp": time,
            "deletionGracePeriodSeconds": number, "generation": number, "resourceVersion": text, "finalizers": list}},
        "spec": {"type": "object", "properties": {"finalizers": list}},
        "status": {"type": "object", "properties": {"phase": text,
            "conditions": {"type": "array", "items": condition}}},
    }}))
});

/// The names an expression may use besides `object`, `oldObject`, `request` and `namespaceObject`.
#[derive(Debug, Clone, Default)]
pub struct Names {
    pub params: bool,
    pub authorizer: bool,
    /// Whether it may make what a mutating policy patches with.
    pub patches: bool,
    /// The composed variables so far; `None` where there are none to be composed.
    pub variables: Option<Vec<(String, Type<'static>)>>,
}

/// What an expression must result in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Bool,
    Text,
    TextOrNull,
    Object,
    Patches,
    Anything,
}

/// A compiled expression, or why it does not compile.
#[derive(Debug)]
pub struct Expression {
    pub source: String,
    tree: Result<IdedExpr, String>,
    /// The names of the values it reads.
    uses: BTreeSet<String>,
    /// What it costs without its loops.
    nodes: u64,
    pub output: Type<'static>,
}

/// What became of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing further is to be evaluated.
    OutOfBudget,
    /// The whole text.
    Failed(String),
}

impl Expression {
    pub fn compile(source: &str, names: &Names, wanted: Wanted) -> Self {
        let checked = parse_expression(source).and_then(|mut tree| {
            let output = check_tree(&tree, source, names, wanted)?;
            expand_loops(&mut tree);
            harden_tree(&mut tree);
            Ok((tree, output))
        });
        let (tree, output) = match checked {
            Ok((tree, output)) => (Ok(tree), output),
            Err(error) => (Err(error), Type::Dyn),
        };
        let uses = tree.as_ref().map(|t| t.references().variables().iter().map(|v| (*v).to_owned()).collect());
        let nodes = tree.as_ref().map_or(0, count_nodes);
        Self { source: source.to_owned(), uses: uses.unwrap_or_default(), nodes, tree, output }
    }

    /// Why it does not compile.
    pub fn error(&self) -> Option<&str> {
        self.tree.as_ref().err().map(String::as_str)
    }

    pub fn uses(&self, name: &str) -> bool {
        self.uses.contains(name)
    }

    /// The result under what is left of the run's budget.
    pub fn evaluate(&self, run: &mut Run<'_>) -> Result<CelValue, Trouble> {
        let tree = match &self.tree {
            Ok(tree) => tree,
            Err(why) => return Err(Trouble::Failed(format!("compilation error: {why}"))),
        };
        self.resolve(tree, run).map_err(|trouble| match trouble {
            Trouble::Failed(why) => Trouble::Failed(format!("expression '{}' resulted in error: {why}", self.source)),
            Trouble::OutOfBudget => Trouble::OutOfBudget,
        })
    }

    fn resolve(&self, tree: &IdedExpr, run: &mut Run<'_>) -> Result<CelValue, Trouble> {
        run.bind_values(&self.uses);
        let limit = CALL_LIMIT.min(run.left);
        LEFT.set(limit.saturating_sub(self.nodes));
        let scope = &run.scope;
        let evaluated = || CelValue::resolve(tree, scope);
        // The interpreter has panics of its own for what it cannot do.
        let asks = self.uses("authorizer") || self.uses(REQUEST_RESOURCE);
        let asker = run.values.asker.filter(|_| asks);
        let result = authorizer::with_asker(asker, || catch_unwind(AssertUnwindSafe(evaluated)));
        let left = LEFT.get();
        let exhausted = left == 0;
        if exhausted && run.left <= CALL_LIMIT {
            run.left = 0;
            return Err(Trouble::OutOfBudget);
        }
        run.left = run.left.saturating_sub(limit - left);
        if exhausted {
            return Err(Trouble::Failed("operation cancelled: actual cost limit exceeded".into()));
        }
        let Ok(result) = result else { return Err(Trouble::Failed("internal error".into())) };
        result.map_err(|error| {
            Trouble::Failed(match &error {
                ExecutionError::NoSuchOverload => missing_field(tree, &run.scope)
                    .map_or_else(|| error_text(&error), |field| format!("no such key: {field}")),
                ExecutionError::UndeclaredReference(name) => {
                    run.broken.get(name.as_str()).cloned().unwrap_or_else(|| error_text(&error))
                }
                _ => error_text(&error),
            })
        })
    }
}

/// The values that expressions see.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    pub object: Option<&'a Value>,
    pub old_object: Option<&'a Value>,
    pub request: &'a Value,
    pub namespace: Option<&'a Value>,
    pub params: Option<&'a Value>,
    pub asker: Option<&'a Asker>,
}

/// The evaluation of the expressions of one policy or webhook over one write.
pub struct Run<'a> {
    values: Values<'a>,
    /// Values are converted when first needed.
    scope: Context<'static>,
    bound: BTreeSet<String>,
    /// Variables that failed, and why.
    broken: HashMap<String, String>,
    left: u64,
}

impl<'a> Run<'a> {
    pub fn new(values: Values<'a>, budget: u64) -> Self {
        let scope = FUNCTIONS.new_inner_scope();
        Self { values, scope, bound: BTreeSet::new(), broken: HashMap::new(), left: budget }
    }

    fn bind_values(&mut self, names: &BTreeSet<String>) {
        for name in names {
            if self.bound.contains(name) {
                continue;
            }
            let of = |value: Option<&Value>| value.map_or(CelValue::Null, to_cel);
            let value = match name.as_str() {
                "object" => of(self.values.object),
                "oldObject" => of(self.values.old_object),
                "request" => to_cel(self.values.request),
                "namespaceObject" => of(self.values.namespace),
                "params" => of(self.values.params),
                "authorizer" => authorizer::authorizer_value(),
                REQUEST_RESOURCE => authorizer::request_value(self.values.request),
                _ => continue,
            };
            self.bound.insert(name.clone());
            self.scope.add_variable_from_value(name.as_str(), value);
        }
    }

    /// Computes a composed variable. One that fails, fails where it is used.
    pub fn define(&mut self, name: &str, expression: &Expression) -> Result<(), Trouble> {
        let full = format!("variables.{name}");
        let result = match &expression.tree {
            Ok(tree) => expression.resolve(tree, self).map_err(|trouble| match trouble {
                Trouble::Failed(why) => {
                    Trouble::Failed(format!("composited variable \"{name}\" fails to evaluate: {why}"))
                }
                Trouble::OutOfBudget => trouble,
            }),
            Err(why) => Err(Trouble::Failed(format!("composited variable \"{name}\" fails to compile: {why}"))),
        };
        match result {
            Ok(value) => {
                self.left = self.left.saturating_sub(size_of_value(&value));
                self.scope.add_variable_from_value(full, value);
            }
            Err(Trouble::Failed(why)) => {
                self.broken.insert(full, why);
            }
            Err(Trouble::OutOfBudget) => return Err(Trouble::OutOfBudget),
        }
        Ok(())
    }
}

/// What an expression may name, then whether its result is of the wanted type.
fn check_tree(tree: &IdedExpr, source: &str, names: &Names, wanted: Wanted) -> Result<Type<'static>, String> {
    let mut scopes: Vec<(String, Type<'static>)> = vec![
        ("object".into(), Type::Dyn),
        ("oldObject".into(), Type::Dyn),
        ("request".into(), Type::of(&REQUEST, false)),
        ("namespaceObject".into(), Type::of(&NAMESPACE, false)),
    ];
    if names.params {
        scopes.push(("params".into(), Type::Dyn));
    }
    if names.authorizer {
        scopes.push(("authorizer".into(), AUTHORIZER));
    }
    if names.patches {
        scopes.extend([OBJECT, PATCH].map(|name| (name.into(), Type::Named(name))));
    }
    if let Some(variables) = &names.variables {
        scopes.push(("variables".into(), Type::Dyn));
        scopes.extend(variables.iter().map(|(name, found)| (format!("variables.{name}"), *found)));
    }
    let output = infer_type(tree, source, scopes)?;
    let found = match (&tree.expr, output) {
        _ if is_dynamic(tree) => "dyn".to_owned(),
        (Expr::Ident(name), _) if name == "request" => "kubernetes.AdmissionRequest".to_owned(),
        (Expr::Struct(made), _) => made.type_name.clone(),
        (_, known) => known.shown(),
    };
    let unknown = matches!(output, Type::Dyn) && !is_dynamic(tree);
    let fits = |name: &str| unknown || found == name;
    match wanted {
        Wanted::Bool if !fits("bool") => Err(format!("must evaluate to bool but got {found}")),
        Wanted::Text if !fits("string") => Err(format!("must evaluate to string but got {found}")),
        Wanted::TextOrNull if !fits("string") && !matches!(tree.expr, Expr::Literal(LiteralValue::Null)) => {
            Err(format!("must evaluate to one of [string null_type] but got {found}"))
        }
        Wanted::Object if !fits("Object") => Err(format!("must evaluate to Object but got {found}")),
        Wanted::Patches if !fits("list(JSONPatch)") => Err(format!("must evaluate to list(JSONPatch) but got {found}")),
        _ => Ok(output),
    }
}

/// Whether it reads from an object whose type nobody knows: `dyn` to the compiler.
fn is_dynamic(tree: &IdedExpr) -> bool {
    match &tree.expr {
        Expr::Ident(name) => matches!(name.as_str(), "object" | "oldObject" | "params"),
        Expr::Select(select) => !select.test && is_dynamic(&select.operand),
        Expr::Call(call) if call.func_name == "dyn" => true,
        Expr::Call(call) if call.func_name == operators::INDEX => call.args.first().is_some_and(is_dynamic),
        _ => false,
    }
}

fn visit_tree(tree: &IdedExpr, see: &mut dyn FnMut(&IdedExpr)) {
    for part in parts_of(tree) {
        visit_tree(part, see);
    }
    see(tree);
}

fn count_nodes(tree: &IdedExpr) -> u64 {
    let mut nodes = 0;
    visit_tree(tree, &mut |_| nodes += 1);
    nodes
}

fn call_of(id: u64, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: name.into(), target: None, args }) }
}

/// Makes the tree safe to run, see the head of this file.
fn harden_tree(tree: &mut IdedExpr) {
    let id = tree.id;
    match &mut tree.expr {
        Expr::Call(call) => {
            call.target.as_deref_mut().into_iter().chain(&mut call.args).for_each(harden_tree);
            match (call.func_name.as_str(), call.args.len()) {
                (operators::OPT_SELECT, 2) => call.func_name = operators::OPT_INDEX.into(),
                ("dyn", 1) => {
                    if let Some(inner) = call.args.pop() {
                        *tree = inner;
                    }
                }
                _ => {}
            }
        }
        Expr::Select(select) => {
            harden_tree(&mut select.operand);
            let of = match &select.operand.expr {
                Expr::Ident(name) => name.as_str(),
                _ => "",
            };
            let full = format!("{of}.{}", select.field);
            if of == "variables" {
                let declared = Expr::Literal(LiteralValue::Boolean(true.into()));
                tree.expr = if select.test { declared } else { Expr::Ident(full) };
            } else if full == REQUEST_RESOURCE {
                tree.expr = Expr::Ident(full);
            } else if !select.test {
                let SelectExpr { operand, field, .. } = std::mem::take(select);
                let key = IdedExpr { id, expr: Expr::Literal(LiteralValue::String(field.as_str().into())) };
                *tree = call_of(id, operators::INDEX, vec![*operand, key]);
            }
        }
        Expr::List(list) => list.elements.iter_mut().for_each(harden_tree),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    harden_tree(&mut entry.key);
                    harden_tree(&mut entry.value);
                }
            }
        }
        Expr::Comprehension(loop_) => {
            for part in [
                &mut loop_.iter_range,
                &mut loop_.accu_init,
                &mut loop_.loop_cond,
                &mut loop_.loop_step,
                &mut loop_.result,
            ] {
                harden_tree(part);
            }
            let nodes = count_nodes(&loop_.loop_step);
            let cost = IdedExpr { id, expr: Expr::Literal(LiteralValue::UInt(nodes.into())) };
            let step = std::mem::take(&mut loop_.loop_step);
            loop_.loop_step = call_of(id, "@step", vec![step, cost]);
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => {}
    }
}

/// One step of a loop: its own cost, and the size of what it has gathered, which the next step copies.
fn pay_step(context: &FunctionContext<'_, '_>) -> Result<CelValue, ExecutionError> {
    let refused = || ExecutionError::function_error("@step", "actual cost limit exceeded");
    if LEFT.get() == 0 {
        return Err(refused());
    }
    let [step, cost] = context.args else { return Err(refused()) };
    let value = CelValue::resolve(step, context.ptx)?;
    let nodes = match CelValue::resolve(cost, context.ptx)? {
        CelValue::UInt(nodes) => nodes,
        _ => 1,
    };
    LEFT.set(LEFT.get().saturating_sub(nodes + size_of_value(&value) / 16));
    if LEFT.get() == 0 { Err(refused()) } else { Ok(value) }
}

fn size_of_value(value: &CelValue) -> u64 {
    match value {
        CelValue::String(text) => text.len() as u64,
        CelValue::Bytes(bytes) => bytes.len() as u64,
        CelValue::List(list) => list.iter().map(size_of_value).fold(1, u64::saturating_add),
        CelValue::Map(map) => map.map.values().map(size_of_value).fold(1, u64::saturating_add),
        _ => 1,
    }
}

/// The field that was read from what has no fields: cel-go says that there is no such key.
fn missing_field(tree: &IdedExpr, scope: &Context<'_>) -> Option<String> {
    let mut found = None;
    visit_tree(tree, &mut |part| {
        let Expr::Call(call) = &part.expr else { return };
        let [operand, IdedExpr { expr: Expr::Literal(LiteralValue::String(field)), .. }] = call.args.as_slice() else {
            return;
        };
        if found.is_some() || call.func_name != operators::INDEX {
            return;
        }
        let read = catch_unwind(AssertUnwindSafe(|| CelValue::resolve(operand, scope)));
        if let Ok(Ok(value)) = read
            && !matches!(value, CelValue::Map(_) | CelValue::List(_) | CelValue::Opaque(_))
        {
            found = Some(field.inner().to_owned());
        }
    });
    found
}

/// cel-go's words for the errors that happen in practice.
fn error_text(error: &ExecutionError) -> String {
    use ExecutionError as E;
    match error {
        E::NoSuchOverload | E::UnsupportedBinaryOperator(..) | E::ValuesNotComparable(..) => "no such overload".into(),
        other => go_error(other),
    }
}

pub fn to_cel(value: &Value) -> CelValue {
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
