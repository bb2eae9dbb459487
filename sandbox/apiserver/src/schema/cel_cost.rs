//! What a CEL rule costs at most: a rough estimate over its schema, of which only orders of magnitude count
//! (`cel-go/checker/cost.go`, `apiserver/pkg/cel/library/cost.go`).

use kube_cel::cel::common::ast::{Expr, LiteralValue, operators};
use kube_cel::cel::parser::Expression;

use super::node::{Kind, Node};

/// What a request may hold at most.
const LARGEST: u64 = 3 * 1024 * 1024;

/// How many elements the lists and maps of this schema may have.
fn most_elements(node: Option<&Node>) -> u64 {
    let Some(node) = node else { return LARGEST / 2 };
    let checks = node.checks.as_deref();
    checks.and_then(|checks| checks.max_items.or(checks.max_properties)).unwrap_or(LARGEST / 3)
}

/// How long the text of an expression can be, where that is known.
fn text_length(expression: &Expression, node: Option<&Node>) -> Option<u64> {
    if let Expr::Literal(LiteralValue::String(text)) = &expression.expr {
        return Some(text.inner().len() as u64);
    }
    let node = node.filter(|node| node.types == [Kind::String] && node.format.is_none())?;
    let checks = node.checks.as_deref();
    if checks.is_some_and(|checks| !checks.enumeration.is_empty()) {
        return None;
    }
    // A character is up to four bytes.
    Some(checks.and_then(|checks| checks.max_length).map_or(LARGEST, |most| most.saturating_mul(4)))
}

/// What functions of texts cost besides (`cel-go/checker/cost.go`): a tenth of a step for each byte they look at.
fn text_steps(function: &str, lengths: &[Option<u64>]) -> u64 {
    let tenth = |length: u64| length / 10 + 1;
    match (function, lengths) {
        (operators::EQUALS | operators::NOT_EQUALS, [Some(a), Some(b)]) => tenth(*a.min(b)),
        ("contains", [Some(text), Some(part)]) => tenth(*text).saturating_mul(tenth(*part)),
        ("matches", [Some(text), Some(pattern)]) => tenth(*text).saturating_mul(pattern / 4 + 1),
        _ => 0,
    }
}

/// How often what stands in the items or the values of this schema occurs at most (`estimateMaxElementsPerRequest`).
pub fn most_occurrences(node: &Node, inner: &Node) -> u64 {
    let least = match inner.types.as_slice() {
        [Kind::Integer | Kind::Number] => 2,
        [Kind::Boolean] => 5,
        _ => 3,
    };
    let checks = node.checks.as_deref();
    checks.and_then(|checks| checks.max_items.or(checks.max_properties)).unwrap_or(LARGEST / least)
}

/// A rough number of steps a rule takes at most. Only orders of magnitude count.
pub fn estimate_steps(expression: &Expression, node: &Node) -> u64 {
    let mut scopes = vec![("self".to_owned(), Some(node)), ("oldSelf".to_owned(), Some(node))];
    count_steps(expression, &mut scopes).0
}

/// The steps of an expression and the schema of its value, where it is a path into the object.
fn count_steps<'a>(expression: &Expression, scopes: &mut Vec<(String, Option<&'a Node>)>) -> (u64, Option<&'a Node>) {
    match &expression.expr {
        Expr::Ident(name) => (1, scopes.iter().rev().find(|(known, _)| known == name).and_then(|(_, node)| *node)),
        Expr::Select(select) => {
            let (steps, operand) = count_steps(&select.operand, scopes);
            let found =
                operand.and_then(|node| node.properties.iter().find(|(name, _)| node.names_field(name, &select.field)));
            (steps.saturating_add(1), found.map(|(_, link)| link.node()))
        }
        Expr::Call(call) => {
            let mut steps = 1u64;
            let mut lengths = Vec::new();
            for part in call.target.as_deref().into_iter().chain(&call.args) {
                let (taken, node) = count_steps(part, scopes);
                steps = steps.saturating_add(taken);
                lengths.push(text_length(part, node));
            }
            (steps.saturating_add(text_steps(&call.func_name, &lengths)), None)
        }
        Expr::List(list) => {
            (list.elements.iter().map(|part| count_steps(part, scopes).0).fold(1, u64::saturating_add), None)
        }
        Expr::Comprehension(comprehension) => {
            let (range_steps, range) = count_steps(&comprehension.iter_range, scopes);
            let literal = match &comprehension.iter_range.expr {
                Expr::List(list) => Some(list.elements.len() as u64),
                _ => None,
            };
            let times = literal.unwrap_or_else(|| most_elements(range));
            let element = range.and_then(|node| node.items.as_ref()).map(|link| link.node());
            let depth = scopes.len();
            scopes.push((comprehension.iter_var.clone(), element));
            let body = count_steps(&comprehension.loop_cond, scopes)
                .0
                .saturating_add(count_steps(&comprehension.loop_step, scopes).0);
            scopes.truncate(depth);
            (range_steps.saturating_add(times.saturating_mul(body)), None)
        }
        _ => (0, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cost_by_their_length() {
        assert_eq!(text_steps(operators::EQUALS, &[Some(1000), Some(20)]), 3);
        assert_eq!(text_steps("contains", &[Some(1000), Some(5)]), 101);
        assert_eq!(text_steps("matches", &[Some(1000), Some(40)]), 1111);
        assert_eq!(text_steps("size", &[Some(1000)]), 0);
    }

    #[test]
    fn items_occur_as_often_as_their_list_may_hold() {
        let list = |most: Option<u64>| Node::parse(&serde_json::json!({"type": "array", "maxItems": most}));
        let text = Node::parse(&serde_json::json!({"type": "string"}));
        assert_eq!(most_occurrences(&list(Some(7)), &text), 7);
        assert_eq!(most_occurrences(&list(None), &text), LARGEST / 3);
    }
}
