//! Whether a DeviceClass selects a device.
//!
//! Rule: Kubernetes `staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go`. An expression sees
//! `device.driver`, `device.attributes` and `device.capacity`, both by domain and then by name; a name without a domain
//! is of the driver's. A domain that the device says nothing of is empty. What can not be evaluated selects nothing.
//!
//! Whoever writes classes in a member is not trusted with our time: an expression is as long as Kubernetes lets it be,
//! has no more operators than a person writes, no loops, and only functions that cost what their texts are long. Others
//! count as one that can not be read.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use kube_cel::{
    KubeCelExt as _,
    cel::{
        Context, Value as CelValue,
        common::ast::{Expr, LiteralValue, operators},
        objects::{Key, Map},
        parser::{Expression, Parser},
    },
};
use serde_json::Value;

/// Kubernetes' own limit.
const MOST_BYTES: usize = 10 * 1024;
/// Letters that operators are made of, and so how deep an expression is nested at most.
const MOST_OPERATORS: usize = 400;
const OPERATORS: &[char] = &['(', '[', '{', '?', ':', '!', '-', '+', '*', '/', '%', '<', '>', '=', '&', '|', '.', ','];
/// The longest pattern of `matches`, which may say nothing of how often.
const MOST_PATTERN_BYTES: usize = 128;

/// Functions that an expression may call.
const FUNCTIONS: [&str; 45] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::SUBSTRACT,
    operators::ADD,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
    operators::NEGATE,
    operators::INDEX,
    operators::OPT_INDEX,
    operators::OPT_SELECT,
    operators::IN,
    "has",
    "orValue",
    "hasValue",
    "value",
    "size",
    "startsWith",
    "endsWith",
    "contains",
    "matches",
    "lowerAscii",
    "upperAscii",
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "quantity",
    "semver",
    "compareTo",
    "isGreaterThan",
    "isLessThan",
    "major",
    "minor",
    "patch",
    "asInteger",
];

/// The functions of Kubernetes, made once for many devices.
pub(super) struct CelFunctions(Context<'static>);

impl Default for CelFunctions {
    fn default() -> Self {
        Self(Context::default().with_all())
    }
}

impl CelFunctions {
    /// What a function makes of a text; null where it takes none like it.
    fn call(&self, function: &str, text: &str) -> CelValue {
        let mut scope = self.0.new_inner_scope();
        scope.add_variable_from_value("text", text_to_cel(text));
        let expression = Parser::default().parse(function);
        expression.ok().and_then(|expression| CelValue::resolve(&expression, &scope).ok()).unwrap_or(CelValue::Null)
    }
}

/// A compiled expression.
#[derive(Clone)]
pub(super) struct DeviceSelector {
    text: String,
    expression: Arc<Expression>,
    /// Domains that it may name.
    domains: Vec<String>,
}

/// Of one text it is one expression.
impl PartialEq for DeviceSelector {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl DeviceSelector {
    /// `None` where nobody should run it, or nobody can read it.
    pub(super) fn compile(text: &str) -> Option<Self> {
        if text.len() > MOST_BYTES || text.matches(OPERATORS).count() > MOST_OPERATORS {
            return None;
        }
        let expression = Parser::default().enable_optional_syntax(true).parse(text).ok()?;
        if !is_bounded(&expression.expr) {
            return None;
        }
        let words = text.split(['"', '\'']).filter(|word| word.contains('.') && !word.contains(' '));
        let domains = words.map(ToOwned::to_owned).collect();
        Some(Self { text: text.to_owned(), expression: Arc::new(expression), domains })
    }

    /// Domains that it may name, which a device has although it says nothing of them.
    pub(super) fn list_domains(&self) -> impl Iterator<Item = &str> {
        self.domains.iter().map(String::as_str)
    }

    pub(super) fn selects(&self, functions: &CelFunctions, device: &CelValue) -> bool {
        let mut scope = functions.0.new_inner_scope();
        scope.add_variable_from_value("device", device.clone());
        matches!(CelValue::resolve(&self.expression, &scope), Ok(CelValue::Bool(true)))
    }
}

/// Whether an expression has no loops, and calls nothing that makes much of little.
fn is_bounded(expression: &Expr) -> bool {
    match expression {
        Expr::Literal(_) | Expr::Ident(_) => true,
        Expr::Select(select) => is_bounded(&select.operand.expr),
        Expr::List(list) => list.elements.iter().all(|element| is_bounded(&element.expr)),
        Expr::Call(call) => {
            let parts = call.target.iter().map(|target| &target.expr).chain(call.args.iter().map(|one| &one.expr));
            let name = call.func_name.as_str();
            let is_known = FUNCTIONS.contains(&name) && (name != "matches" || has_short_pattern(&call.args));
            is_known && { parts }.all(is_bounded)
        }
        Expr::Unspecified | Expr::Comprehension(_) | Expr::Map(_) | Expr::Struct(_) => false,
    }
}

fn has_short_pattern(arguments: &[kube_cel::cel::common::ast::IdedExpr]) -> bool {
    match arguments.last().map(|argument| &argument.expr) {
        Some(Expr::Literal(LiteralValue::String(pattern))) => {
            let pattern: &str = pattern.inner();
            pattern.len() <= MOST_PATTERN_BYTES && !pattern.contains('{')
        }
        _ => false,
    }
}

/// What an expression sees of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeviceView {
    driver: String,
    attributes: Named<Attribute>,
    capacity: Named<String>,
}

/// By domain and name.
type Named<T> = BTreeMap<String, BTreeMap<String, T>>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Attribute {
    Bool(bool),
    Int(i64),
    Text(String),
    Version(String),
}

impl Attribute {
    fn read(value: &Value) -> Option<Self> {
        let text = |field: &str| value[field].as_str().map(ToOwned::to_owned);
        let flag = value["bool"].as_bool().map(Self::Bool);
        let number = || value["int"].as_i64().map(Self::Int);
        flag.or_else(number).or_else(|| text("string").map(Self::Text)).or_else(|| text("version").map(Self::Version))
    }

    fn to_cel(&self, functions: &CelFunctions) -> CelValue {
        match self {
            Self::Bool(flag) => CelValue::Bool(*flag),
            Self::Int(number) => CelValue::Int(*number),
            Self::Text(text) => text_to_cel(text),
            Self::Version(text) => functions.call("semver(text)", text),
        }
    }
}

impl DeviceView {
    pub(super) fn read(device: &Value, driver: &str) -> Self {
        let amount = |value: &Value| value["value"].as_str().map(ToOwned::to_owned);
        Self {
            driver: driver.to_owned(),
            attributes: read_named(&device["attributes"], driver, Attribute::read),
            capacity: read_named(&device["capacity"], driver, amount),
        }
    }

    /// As expressions see it that may name these domains.
    pub(super) fn to_cel(&self, functions: &CelFunctions, domains: &[&str]) -> CelValue {
        let quantity = |text: &String| functions.call("quantity(text)", text);
        make_map([
            ("driver", text_to_cel(&self.driver)),
            ("attributes", name_to_cel(&self.attributes, domains, |attribute| attribute.to_cel(functions))),
            ("capacity", name_to_cel(&self.capacity, domains, quantity)),
        ])
    }
}

fn read_named<T>(all: &Value, driver: &str, read: impl Fn(&Value) -> Option<T>) -> Named<T> {
    let mut named = Named::from([(driver.to_owned(), BTreeMap::new())]);
    for (key, value) in all.as_object().into_iter().flatten() {
        let (domain, name) = key.split_once('/').unwrap_or((driver, key));
        if let Some(value) = read(value) {
            named.entry(domain.to_owned()).or_default().insert(name.to_owned(), value);
        }
    }
    named
}

fn name_to_cel<T>(named: &Named<T>, domains: &[&str], to_cel: impl Fn(&T) -> CelValue) -> CelValue {
    let nothing = domains.iter().map(|domain| (*domain, make_map([])));
    let known = named.iter().map(|(domain, all)| {
        (domain.as_str(), make_map(all.iter().map(|(name, value)| (name.as_str(), to_cel(value)))))
    });
    make_map(nothing.chain(known))
}

fn make_map<'a>(entries: impl IntoIterator<Item = (&'a str, CelValue)>) -> CelValue {
    let map: HashMap<Key, CelValue> =
        entries.into_iter().map(|(key, value)| (Key::String(Arc::new(key.to_owned())), value)).collect();
    CelValue::Map(Map { map: Arc::new(map) })
}

fn text_to_cel(text: &str) -> CelValue {
    CelValue::String(Arc::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gpu() -> DeviceView {
        let device = json!({
            "attributes": {
                "model": {"string": "A100"}, "gpu.example.com/index": {"int": 3}, "other.io/nvlink": {"bool": true},
                "driverVersion": {"version": "1.12.0"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        });
        DeviceView::read(&device, "gpu.example.com")
    }

    fn selects(text: &str) -> bool {
        let functions = CelFunctions::default();
        DeviceSelector::compile(text).is_some_and(|selector| {
            let domains: Vec<&str> = selector.list_domains().collect();
            selector.selects(&functions, &gpu().to_cel(&functions, &domains))
        })
    }

    #[test]
    fn expressions_see_what_kubernetes_shows_them() {
        for text in [
            "device.driver == 'gpu.example.com'",
            r#"device.attributes["gpu.example.com"].model == "A100""#,
            "device.attributes['gpu.example.com'].index > 2 && device.attributes['other.io'].nvlink",
            "device.attributes['gpu.example.com'].model.startsWith('A')",
            "device.attributes['gpu.example.com'].model.lowerAscii().matches('^.*a100.*$')",
            "device.attributes['gpu.example.com'].model in ['H100', 'A100']",
            "device.attributes['gpu.example.com'].driverVersion.isGreaterThan(semver('1.9.0'))",
            "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0",
            "'model' in device.attributes['gpu.example.com']",
            "!('model' in device.attributes['unheard.of'])",
            "has(device.attributes['gpu.example.com'].model)",
        ] {
            assert!(selects(text), "{text}");
        }
    }

    #[test]
    fn what_is_false_or_fails_or_is_no_expression_selects_nothing() {
        for text in [
            "device.driver == 'other.example.com'",
            "device.attributes['gpu.example.com'].unheard == 1",
            "device.attributes['unheard.of'].model == 'A100'",
            "device.capacity['gpu.example.com'].memory.compareTo(quantity('81Gi')) >= 0",
            "device.driver",
            "nobody.knows",
            "device.driver ==",
            "",
        ] {
            assert!(!selects(text), "{text}");
        }
    }

    #[test]
    fn loops_and_what_is_nested_too_deep_or_too_long_are_not_run() {
        let deep = format!("{}true{}", "(".repeat(500), ")".repeat(500));
        let negated = format!("{}true", "!".repeat(4_000));
        let sum = format!("{}1 == 5000", "1+".repeat(4_999));
        let long = format!("'{}' == ''", "a".repeat(11_000));
        let huge = format!("'aaaaaaaaaa'{}.size() > 0", ".replace('a', 'aaaaaaaaaa')".repeat(9));
        for text in [
            "[1, 2].map(x, [1, 2].map(y, x)).size() > 0",
            "[1]. all (x, true)",
            "[1].//x\nmap(x, x).size() == 1",
            "[true].exists(x, x)",
            "lists.range(1000000000).size() > 0",
            "'a'.matches('(a{1000}){1000}')",
            "'a'.matches(device.driver)",
            &huge,
            &deep,
            &negated,
            &sum,
            &long,
        ] {
            assert!(DeviceSelector::compile(text).is_none(), "{text}");
        }
    }
}
