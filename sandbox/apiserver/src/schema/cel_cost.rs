//! What a CEL expression costs at most over the values that its schema allows (`cel-go/checker/cost.go`,
//! `apiserver/pkg/cel/library/cost.go`, `apiserver/pkg/cel/common/schemas.go`). What is not known here costs one step,
//! so that no rule is refused which an API server takes.

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, operators};
use kube_cel::cel::parser::Expression;

use super::cel_tree;
use super::formats::Format;
use super::node::{Additional, Kind, Node};

/// What a request may hold at most.
const LARGEST: u64 = 3 * 1024 * 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Text,
    List,
    Map,
    Other,
}

/// What is known of a value: its shape, its size at most, and where it comes from.
#[derive(Clone, Copy)]
struct Known<'a> {
    shape: Shape,
    size: u64,
    node: Option<&'a Node>,
    /// Whether the elements of a list are texts, and how long.
    element: Option<(Shape, u64)>,
}

impl<'a> Known<'a> {
    const OTHER: Self = Self { shape: Shape::Other, size: 1, node: None, element: None };

    fn of(shape: Shape, size: u64) -> Self {
        Self { shape, size, node: None, element: None }
    }

    fn of_node(node: &'a Node) -> Self {
        let shape = match node.types.as_slice() {
            _ if node.int_or_string => Shape::Other,
            [Kind::String] if !matches!(node.format, Some(Format::Text("date" | "date-time" | "duration"))) => {
                Shape::Text
            }
            [Kind::Array] => Shape::List,
            [Kind::Object] if matches!(node.additional, Additional::Schema(_)) => Shape::Map,
            _ => Shape::Other,
        };
        Self { shape, size: most_elements(node), node: Some(node), element: None }
    }

    /// What a loop over the value, or an index, finds.
    fn element(self) -> Self {
        match (self.shape, self.node) {
            (Shape::List, Some(node)) => node.items.as_ref().map_or(Self::OTHER, |link| Self::of_node(link.node())),
            (Shape::Map, Some(node)) => match &node.additional {
                Additional::Schema(link) => Self::of_node(link.node()),
                _ => Self::OTHER,
            },
            _ => self.element.map_or(Self::OTHER, |(shape, size)| Self::of(shape, size)),
        }
    }
}

/// How many elements or bytes a value of this schema has at most (`MaxElements`).
fn most_elements(node: &Node) -> u64 {
    let checks = node.checks.as_deref();
    let longest = |checks: &super::node::Checks| {
        checks.enumeration.iter().filter_map(|value| value.as_str()).map(|text| text.len() as u64).max()
    };
    match node.types.as_slice() {
        [Kind::String] => match (checks.and_then(|checks| checks.max_length), node.format) {
            // A character is up to four bytes.
            (Some(most), _) => most.saturating_mul(4),
            (_, Some(Format::Text("duration" | "date-time"))) => 32,
            (_, Some(Format::Text("date"))) => 12,
            _ => checks.and_then(longest).unwrap_or(LARGEST - 2),
        },
        [Kind::Array] => {
            let least = node.items.as_ref().map_or(1, |link| least_size(link.node()));
            checks.and_then(|checks| checks.max_items).unwrap_or((LARGEST - 2) / (least + 1))
        }
        [Kind::Object] => match &node.additional {
            Additional::Schema(link) => {
                let most = checks.and_then(|checks| checks.max_properties);
                most.unwrap_or((LARGEST - 2) / (least_size(link.node()) + 6))
            }
            _ => 0,
        },
        _ => 0,
    }
}

/// How short a value of this schema is written at least (`MinSerializedSize`).
fn least_size(node: &Node) -> u64 {
    match node.types.as_slice() {
        _ if node.int_or_string => 1,
        [Kind::String] => match node.format {
            Some(Format::Text("duration")) => 3,
            Some(Format::Text("date")) => 12,
            Some(Format::Text("date-time")) => 21,
            _ => 2,
        },
        [Kind::Integer | Kind::Number] => 1,
        [Kind::Boolean] => 4,
        [Kind::Object] if !matches!(node.additional, Additional::Schema(_)) => {
            let required = node.checks.as_deref().map_or(&[][..], |checks| &checks.required);
            let members = required.iter().filter_map(|name| Some((name, node.properties.get(name)?.node())));
            let sizes = members.filter(|(_, member)| member.default.is_none());
            sizes.fold(2, |sum, (name, member)| sum + name.len() as u64 + least_size(member) + 4)
        }
        _ => 2,
    }
}

/// How often a value of this schema can occur in a request at most (`maxCardinality`).
pub fn most_in_request(node: &Node) -> u64 {
    LARGEST / (least_size(node) + 1)
}

fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}

/// The steps an expression takes at most.
pub fn estimate_steps(expression: &Expression, node: &Node) -> u64 {
    let root = Known::of_node(node);
    let mut scopes = vec![("self".to_owned(), root), ("oldSelf".to_owned(), root)];
    count_steps(expression, &mut scopes).0
}

type Scopes<'a> = Vec<(String, Known<'a>)>;

/// The steps of an expression, and what is known of its value.
fn count_steps<'a>(expression: &Expression, scopes: &mut Scopes<'a>) -> (u64, Known<'a>) {
    match &expression.expr {
        // The name of a type is taken for the value that the rule stands at.
        Expr::Literal(LiteralValue::String(text)) if cel_tree::names_type(text.inner()) => {
            (1, scopes.first().map_or(Known::OTHER, |(_, root)| Known { node: None, ..*root }))
        }
        Expr::Literal(LiteralValue::String(text)) => (0, Known::of(Shape::Text, text.inner().chars().count() as u64)),
        Expr::Ident(name) => {
            let found = scopes.iter().rev().find(|(known, _)| known == name);
            (1, found.map_or(Known::OTHER, |(_, known)| *known))
        }
        Expr::Select(select) => {
            let (steps, operand) = count_steps(&select.operand, scopes);
            let member = operand.node.and_then(|node| {
                let found = node.properties.iter().find(|(name, _)| node.names_field(name, &select.field));
                found.map(|(_, link)| Known::of_node(link.node()))
            });
            let member = member.unwrap_or(if operand.shape == Shape::Map { operand.element() } else { Known::OTHER });
            // A test for a field is free.
            (steps.saturating_add(u64::from(!select.test && operand.node.is_some())), member)
        }
        Expr::Call(call) => count_call(call, scopes),
        Expr::List(list) => {
            let mut element = None;
            let mut steps = 10u64;
            for part in &list.elements {
                let (taken, known) = count_steps(part, scopes);
                steps = steps.saturating_add(taken);
                let most = element.map_or(known.size, |(_, size): (Shape, u64)| size.max(known.size));
                element = Some((known.shape, most));
            }
            (steps, Known { element, ..Known::of(Shape::List, list.elements.len() as u64) })
        }
        Expr::Map(map) => {
            let parts = cel_tree::parts_of(expression);
            let steps = parts.into_iter().map(|part| count_steps(part, scopes).0).fold(30, u64::saturating_add);
            (steps, Known::of(Shape::Map, map.entries.len() as u64))
        }
        Expr::Comprehension(comprehension) => count_loop(comprehension, scopes),
        _ => (0, Known::OTHER),
    }
}

fn count_loop<'a>(comprehension: &ComprehensionExpr, scopes: &mut Scopes<'a>) -> (u64, Known<'a>) {
    let (range_steps, range) = count_steps(&comprehension.iter_range, scopes);
    let (init_steps, init) = count_steps(&comprehension.accu_init, scopes);
    let element = match range.shape {
        // A loop over a map sees its keys.
        Shape::Map => Known::of(Shape::Text, 0),
        _ => range.element(),
    };
    let depth = scopes.len();
    scopes.push((comprehension.accu_var.clone(), init));
    scopes.push((comprehension.iter_var.clone(), element));
    let condition = count_steps(&comprehension.loop_cond, scopes).0;
    let (step, stepped) = count_steps(&comprehension.loop_step, scopes);
    let result = count_steps(&comprehension.result, scopes).0;
    scopes.truncate(depth);
    let rounds = range.size.saturating_mul(condition.saturating_add(step));
    let steps = range_steps.saturating_add(init_steps).saturating_add(result).saturating_add(rounds);
    let gathered = matches!(init.shape, Shape::List | Shape::Map);
    let size = if gathered { range.size } else { init.size };
    (steps, Known { element: stepped.element, ..Known::of(init.shape, size) })
}

fn count_call<'a>(call: &CallExpr, scopes: &mut Scopes<'a>) -> (u64, Known<'a>) {
    let arguments: Vec<(u64, Known<'a>)> = call.args.iter().map(|part| count_steps(part, scopes)).collect();
    let target = call.target.as_deref().map(|part| count_steps(part, scopes));
    let taken = |parts: &[(u64, Known<'a>)]| parts.iter().map(|(steps, _)| *steps).fold(0, u64::saturating_add);
    let before = target.map_or(0, |(steps, _)| steps).saturating_add(taken(&arguments));
    let name = call.func_name.as_str();
    if name == operators::CONDITIONAL {
        let at = |index: usize| arguments.get(index).copied().unwrap_or((0, Known::OTHER));
        let (condition, then, other) = (at(0).0, at(1), at(2));
        let size = then.1.size.max(other.1.size);
        let element = then.1.element.or(other.1.element);
        return (condition.saturating_add(then.0.max(other.0)), Known { size, element, ..then.1 });
    }
    let known: Vec<Known<'a>> = arguments.iter().map(|(_, known)| *known).collect();
    let of_sets = matches!(call.target.as_deref().map(|part| &part.expr), Some(Expr::Ident(name)) if name == "sets");
    let (own, result) = match target {
        Some(_) if of_sets => (cost_of_sets(name, &known), Known::OTHER),
        Some((_, target)) if name == "slice" && target.shape == Shape::List => {
            let end = call.args.get(1).and_then(integer_of).unwrap_or(target.size);
            let size = end.saturating_sub(call.args.first().and_then(integer_of).unwrap_or(0));
            (size.saturating_add(MADE_LIST), Known { element: element_of(target), ..Known::of(Shape::List, size) })
        }
        Some((_, target)) => cost_of_member(name, target, &known).unwrap_or_else(|| cost_of_function(name, &known)),
        None => cost_of_function(name, &known),
    };
    (before.saturating_add(own), result)
}

/// What a call that makes a list costs beside what its elements do.
const MADE_LIST: u64 = 11;

fn integer_of(expression: &Expression) -> Option<u64> {
    match &expression.expr {
        Expr::Literal(LiteralValue::Int(number)) => u64::try_from(*number.inner()).ok(),
        _ => None,
    }
}

fn element_of(list: Known<'_>) -> Option<(Shape, u64)> {
    list.element.or_else(|| list.node.map(|_| (list.element().shape, list.element().size)))
}

/// Each element of a set is held against each of the other (`cel-go/ext/sets.go`).
fn cost_of_sets(name: &str, known: &[Known<'_>]) -> u64 {
    let pairs = known.iter().map(|set| set.size).fold(1, u64::saturating_mul);
    let times = if name == "equivalent" { 2 } else { 1 };
    pairs.saturating_mul(times).saturating_add(1)
}

/// What an operator or a function without a value before it costs, and what it results in.
fn cost_of_function<'a>(name: &str, known: &[Known<'a>]) -> (u64, Known<'a>) {
    let at = |index: usize| known.get(index).copied().unwrap_or(Known::OTHER);
    let (a, b) = (at(0), at(1));
    let text = a.shape == Shape::Text || b.shape == Shape::Text;
    let sum = a.size.saturating_add(b.size);
    match name {
        operators::LOGICAL_AND | operators::LOGICAL_OR => (0, Known::OTHER),
        operators::EQUALS | operators::NOT_EQUALS => (tenth(a.size.min(b.size)), Known::OTHER),
        operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS if text => {
            (tenth(a.size.min(b.size)), Known::OTHER)
        }
        operators::ADD if text => (tenth(sum), Known::of(Shape::Text, sum)),
        operators::ADD if a.shape == Shape::List || b.shape == Shape::List => {
            // A list that is gathered in a loop has the elements of what is added.
            let element = [b, a].into_iter().find_map(element_of);
            (1, Known { element, ..Known::of(Shape::List, sum) })
        }
        operators::IN if b.shape == Shape::List => (b.size, Known::OTHER),
        operators::INDEX => (1, a.element()),
        "@entries" => (0, Known::of(Shape::List, a.size)),
        "string" => (1, Known::of(Shape::Text, u64::MAX)),
        "url" | "isURL" | "jsonpatch.escapeKey" => (tenth(a.size), Known::OTHER),
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" if text => {
            (tenth(a.size), Known::OTHER)
        }
        _ => (1, Known::OTHER),
    }
}

/// What a function of the value before it costs, and what it results in.
fn cost_of_member<'a>(name: &str, target: Known<'a>, known: &[Known<'a>]) -> Option<(u64, Known<'a>)> {
    let a = known.first().copied().unwrap_or(Known::OTHER);
    let b = known.get(1).copied().unwrap_or(Known::OTHER);
    let text = |size: u64| Known::of(Shape::Text, size);
    Some(match (name, target.shape) {
        ("contains", Shape::Text) => (tenth(target.size).saturating_mul(tenth(a.size)), Known::OTHER),
        ("matches" | "find" | "findAll", Shape::Text) => {
            let steps = tenth(target.size.saturating_add(1)).saturating_mul(a.size.div_ceil(4));
            (steps, if name == "find" { text(target.size) } else { Known::OTHER })
        }
        ("startsWith" | "endsWith", _) => (tenth(a.size), Known::OTHER),
        ("lowerAscii" | "upperAscii" | "substring" | "trim", Shape::Text) => (tenth(target.size), text(target.size)),
        ("replace", Shape::Text) => (target.size.div_ceil(5), text(size_of_replaced(target.size, a, b))),
        ("split", Shape::Text) => {
            let list = Known::of(Shape::List, target.size);
            (target.size.div_ceil(5), Known { element: Some((Shape::Text, u64::MAX)), ..list })
        }
        ("join", Shape::List) => {
            let texts = target.size.saturating_mul(length_of_texts(target));
            let size = texts.saturating_add(target.size.saturating_sub(1).saturating_mul(a.size));
            (tenth(size), text(size))
        }
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Shape::List) => {
            let element = target.element();
            let text = element.shape == Shape::Text;
            let each = if text { tenth(length_of_texts(target)).saturating_add(1) } else { 1 };
            (target.size.saturating_mul(each), Known::OTHER)
        }
        // Lists that are made of others (`cel-go/ext/lists.go`): what compares elements compares each with each.
        ("reverse" | "flatten", Shape::List) => {
            let made = Known { element: element_of(target), ..Known::of(Shape::List, target.size) };
            (target.size.saturating_add(MADE_LIST), made)
        }
        ("distinct" | "sort", Shape::List) => {
            let pairs = target.size.saturating_mul(target.size);
            let texts = name == "sort" && target.element().shape == Shape::Text;
            let steps = pairs.saturating_mul(2).saturating_add(if texts { tenth(pairs) } else { 0 });
            let made = Known { element: element_of(target), ..Known::of(Shape::List, pairs) };
            (steps.saturating_add(MADE_LIST), made)
        }
        // Nothing is known of how long a character is.
        ("charAt", Shape::Text) => (1, text(u64::MAX)),
        ("indexOf" | "lastIndexOf", Shape::Text) => (tenth(target.size), Known::OTHER),
        ("format", Shape::Text) => (tenth(target.size), text(u64::MAX)),
        ("validate", _) => (tenth(a.size).saturating_mul(32), Known::OTHER),
        ("check", _) => (350_000, Known::OTHER),
        _ => return None,
    })
}

/// How long the texts of a list are: nothing is known of those that an expression made.
fn length_of_texts(list: Known<'_>) -> u64 {
    if list.node.is_some() { list.element().size } else { u64::MAX }
}

/// How long a text becomes at most of which parts are replaced.
fn size_of_replaced(size: u64, old: Known<'_>, new: Known<'_>) -> u64 {
    match old.size {
        // A text from the object may be empty: then the new one stands around each character.
        least if least == 0 || old.node.is_some() => {
            size.saturating_add(1).saturating_mul(new.size).saturating_add(size)
        }
        least if new.size <= least => size,
        least => size.div_ceil(least).saturating_mul(new.size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_cel::cel::parser::Parser;
    use serde_json::json;

    fn steps(source: &str) -> u64 {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "integer"}, "s": {"type": "string"}, "m": {"type": "string", "maxLength": 10},
            "l": {"type": "array", "items": {"type": "string"}},
            "lm": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5}}}});
        let tree = Parser::default().enable_optional_syntax(true).parse(source).unwrap();
        estimate_steps(&tree, &Node::parse(&schema))
    }

    #[test]
    fn a_text_without_a_bound_costs_more_than_any_budget() {
        assert!(steps("'a' + string(self.a)") > 1_000_000_000);
        assert!(steps("self.l.map(x, x + 'a').join(',')") > 1_000_000_000);
        assert!(steps("self.l.isSorted()") > 1_000_000_000);
        assert!(steps("self.l.indexOf('a') > 1") > 1_000_000_000);
        assert!(steps("self.lm.filter(x, x != 'a').join(',')") > 1_000_000_000);
        assert!(steps("'%s'.format([self.a])") < 100);
        assert!(steps("'a' + self.m") < 100);
        assert!(steps("self.lm.join(',')") < 100);
    }

    #[test]
    fn gathering_a_list_costs_a_list_for_each_element() {
        assert_eq!(steps("self.l.map(x, size(x)).sum() > 5"), 15_728_639);
        assert!((15_500_000..16_500_000).contains(&steps("self.l.filter(x, x == 'a').size() == 1")));
        assert!(steps("self.lm.all(x, self.lm.all(y, x == y))") < 1000);
    }

    #[test]
    fn what_compares_elements_costs_their_number_twice_over() {
        assert!(steps("self.l.distinct().size() == self.l.size()") > 1_000_000_000);
        assert!(steps("self.l.sort().size() > 0") > 1_000_000_000);
        assert!(steps("sets.contains(self.l, self.l)") > 1_000_000_000);
        assert!(steps("self.lm.distinct().size() == self.lm.size()") < 1000);
        assert!(steps("self.l.slice(0, 2).all(x, x == 'a')") < 1000);
    }

    #[test]
    fn a_list_holds_as_many_items_as_fit_into_a_request() {
        let list = |items: serde_json::Value| most_elements(&Node::parse(&json!({"type": "array", "items": items})));
        assert_eq!(list(json!({"type": "string"})), (LARGEST - 2) / 3);
        let object = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
        assert_eq!(list(object), (LARGEST - 2) / 9);
    }
}
