//! Whether a DeviceClass selects a device.
//!
//! Rule: Kubernetes `staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go`. An expression sees
//! `device.driver`, `device.attributes` and `device.capacity`, both by domain and then by name; a name without a domain
//! is of the driver's. A domain that the device says nothing of is empty. What can not be evaluated selects nothing.
//!
//! Whoever writes classes in a member is not trusted with our time: an expression is as long as Kubernetes lets it be,
//! nested as deep as a person writes, and has no loops. Others count as one that can not be read.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use kube_cel::{
    KubeCelExt as _,
    cel::{
        Context, Value as CelValue,
        objects::{Key, Map},
        parser::{Expression, Parser},
    },
};
use serde_json::Value;

/// Kubernetes' own limit.
const MOST_BYTES: usize = 10 * 1024;
/// Brackets that are open at once, and conditions in all.
const MOST_NESTED: usize = 32;
/// Macros that loop.
const LOOPS: [&str; 6] = [".all(", ".exists(", ".exists_one(", ".existsOne(", ".map(", ".filter("];

/// A compiled expression.
#[derive(Debug, Clone)]
pub(super) struct DeviceSelector {
    expression: Arc<Expression>,
    /// Domains that it may name.
    domains: Vec<String>,
}

impl DeviceSelector {
    /// `None` where nobody should run it, or nobody can read it.
    pub(super) fn compile(text: &str) -> Option<Self> {
        let plain: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        if text.len() > MOST_BYTES || is_too_deep(&plain) || LOOPS.iter().any(|name| plain.contains(name)) {
            return None;
        }
        let expression = Parser::default().enable_optional_syntax(true).parse(text).ok()?;
        let words = text.split(['"', '\'']).filter(|word| word.contains('.') && !word.contains(' '));
        Some(Self { expression: Arc::new(expression), domains: words.map(ToOwned::to_owned).collect() })
    }

    pub(super) fn selects(&self, device: &DeviceView) -> bool {
        let mut context = Context::default().with_all();
        context.add_variable_from_value("device", device.to_cel(&self.domains));
        matches!(CelValue::resolve(&self.expression, &context), Ok(CelValue::Bool(true)))
    }
}

fn is_too_deep(text: &str) -> bool {
    let (mut open, mut most) = (0_usize, 0);
    for letter in text.chars() {
        match letter {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most > MOST_NESTED || text.matches(['?', '!', '-']).count() > 8 * MOST_NESTED
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

    fn to_cel(&self) -> CelValue {
        match self {
            Self::Bool(flag) => CelValue::Bool(*flag),
            Self::Int(number) => CelValue::Int(*number),
            Self::Text(text) => text_to_cel(text),
            Self::Version(text) => make_by("semver(text)", text),
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

    fn to_cel(&self, domains: &[String]) -> CelValue {
        make_map([
            ("driver", text_to_cel(&self.driver)),
            ("attributes", name_to_cel(&self.attributes, domains, Attribute::to_cel)),
            ("capacity", name_to_cel(&self.capacity, domains, |text| make_by("quantity(text)", text))),
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

fn name_to_cel<T>(named: &Named<T>, domains: &[String], to_cel: impl Fn(&T) -> CelValue) -> CelValue {
    let nothing = domains.iter().map(|domain| (domain.as_str(), make_map([])));
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

/// What a function of Kubernetes makes of a text; null where it takes none like it.
fn make_by(function: &str, text: &str) -> CelValue {
    let mut context = Context::default().with_all();
    context.add_variable_from_value("text", text_to_cel(text));
    let expression = Parser::default().parse(function);
    expression.ok().and_then(|expression| CelValue::resolve(&expression, &context).ok()).unwrap_or(CelValue::Null)
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
        DeviceSelector::compile(text).is_some_and(|selector| selector.selects(&gpu()))
    }

    #[test]
    fn expressions_see_what_kubernetes_shows_them() {
        for text in [
            "device.driver == 'gpu.example.com'",
            r#"device.attributes["gpu.example.com"].model == "A100""#,
            "device.attributes['gpu.example.com'].index > 2 && device.attributes['other.io'].nvlink",
            "device.attributes['gpu.example.com'].model.startsWith('A')",
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
        let deep = format!("{}true{}", "(".repeat(40), ")".repeat(40));
        let negated = format!("{}true", "!".repeat(4_000));
        let long = format!("{} == ''", "device.driver + ".repeat(1_000));
        for text in [
            "[1, 2].map(x, [1, 2].map(y, x)).size() > 0",
            "[1]. all (x, true)",
            "[true].exists(x, x)",
            &deep,
            &negated,
            &long,
        ] {
            assert!(DeviceSelector::compile(text).is_none(), "{text}");
        }
    }
}
