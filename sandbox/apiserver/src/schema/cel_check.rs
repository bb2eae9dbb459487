//! A light type check of CEL rules against the schema they stand in: names that do not exist, operators over values
//! that have none, results that are no booleans, and quantifiers nested without bounds. What it cannot know it lets
//! pass; the real compiler (cel-go `checker`, apiserver `cel/compilation.go`) knows more.

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, SelectExpr, operators};
use kube_cel::cel::parser::Expression;

use super::formats::Format;
use super::node::{Additional, Kind, Node};

/// The static type of an expression, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub enum Type<'a> {
    Dyn,
    Bool,
    Int,
    Double,
    Text,
    Null,
    Other,
    List(Option<&'a Node>),
    Map(Option<&'a Node>),
    /// An object with declared fields; whether it is a resource, whose metadata has only names.
    Object(&'a Node, bool),
    /// The metadata of a resource.
    Metadata,
}

impl<'a> Type<'a> {
    pub fn of(node: &'a Node, resource: bool) -> Self {
        if node.int_or_string {
            return Self::Dyn;
        }
        match node.types.as_slice() {
            [Kind::Boolean] => Self::Bool,
            [Kind::Integer] => Self::Int,
            [Kind::Number] => Self::Double,
            [Kind::String] => match node.format {
                Some(Format::Text("date" | "date-time" | "datetime" | "duration" | "byte")) => Self::Other,
                _ => Self::Text,
            },
            [Kind::Array] => Self::List(node.items.as_ref().map(|link| link.node())),
            [Kind::Object] => match &node.additional {
                Additional::Schema(link) => Self::Map(Some(link.node())),
                _ => Self::Object(node, resource || node.embedded),
            },
            _ => Self::Dyn,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Dyn | Self::Other => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Double => "double",
            Self::Text => "string",
            Self::List(_) => "list(dyn)",
            Self::Map(_) => "map(string, dyn)",
            Self::Object(..) | Self::Metadata => "object",
        }
    }

    fn known_scalar(self) -> bool {
        matches!(self, Self::Bool | Self::Int | Self::Double | Self::Text)
    }
}

struct Checker<'s, 'a> {
    source: &'s str,
    scopes: Vec<(String, Type<'a>)>,
}

/// What the compiler would say about a rule on a value of this schema.
pub fn check_expression(
    expression: &Expression,
    source: &str,
    node: &Node,
    resource: bool,
    message: bool,
) -> Result<(), String> {
    let self_type = Type::of(node, resource);
    let scopes = vec![("self".to_owned(), self_type), ("oldSelf".to_owned(), Type::Dyn)];
    let mut checker = Checker { source, scopes };
    let result = checker.infer(expression)?;
    let fits = match result {
        Type::Dyn => true,
        Type::Text => message,
        Type::Bool => !message,
        _ => false,
    };
    match (fits, message) {
        (true, _) => Ok(()),
        (false, true) => Err("messageExpression must evaluate to a string".to_owned()),
        (false, false) => Err("cel expression must evaluate to a bool".to_owned()),
    }
}

/// The type of an expression over these names, or the compiler's complaint. A name `variables.x` is the field of a
/// composed variable.
pub fn infer_type<'a>(
    expression: &Expression,
    source: &str,
    scopes: Vec<(String, Type<'a>)>,
) -> Result<Type<'a>, String> {
    Checker { source, scopes }.infer(expression)
}

/// Functions that take no dot before them or a value there.
const KNOWN: &str = "abs add allowed asApproximateFloat asInteger bool bytes charAt check cidr compareTo contains \
    containsCIDR containsIP distinct double duration dyn endsWith error errored exists_one existsOne family filter find \
    findAll first flatten format getDate getDayOfMonth getDayOfWeek getDayOfYear getEscapedPath getFullYear getHost \
    getHostname getHours getMilliseconds getMinutes getMonth getPort getQuery getScheme getSeconds group hasValue indexOf \
    int ip isCIDR isGlobalUnicast isGreaterThan isIP isInteger isLessThan isLinkLocalMulticast isLinkLocalUnicast \
    isLoopback isQuantity isSemver isSorted isURL isUnspecified join last lastIndexOf lowerAscii major map masked matches \
    max min minor name namespace optFlatMap optMap or orValue patch path prefixLength quantity reason replace resource \
    reverse semver serviceAccount sign size slice sort sortBy split startsWith string sub subresource substring sum \
    timestamp trim type uint unwrapOpt upperAscii url validate value";

/// The dotted functions of the libraries: the names before their dots are no variables.
const LIBRARIES: [&str; 10] =
    ["base64", "cel", "format", "ip", "jsonpatch", "lists", "math", "optional", "sets", "strings"];

impl<'s, 'a> Checker<'s, 'a> {
    fn error(&self, needle: &str, text: &str) -> String {
        self.error_at(self.source.find(needle).unwrap_or(0), text)
    }

    /// Calls, and the macro `has`, are complained about at their parenthesis.
    fn call_error(&self, name: &str, text: &str) -> String {
        let needle = format!("{name}(");
        self.error_at(self.source.find(&needle).map_or(0, |at| at + name.len()), text)
    }

    fn error_at(&self, at: usize, text: &str) -> String {
        let before = self.source.get(..at).unwrap_or_default();
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        let shown = self.source.lines().nth(line).unwrap_or_default();
        format!(
            "compilation failed: ERROR: <input>:{}:{}: {text}\n | {shown}\n | {}^",
            line + 1,
            column + 1,
            ".".repeat(column)
        )
    }

    fn infer(&mut self, expression: &Expression) -> Result<Type<'a>, String> {
        match &expression.expr {
            Expr::Unspecified => Ok(Type::Dyn),
            Expr::Struct(made) => {
                let name = &made.type_name;
                Err(self.error(name, &format!("undeclared reference to '{name}' (in container '')")))
            }
            Expr::Literal(literal) => Ok(match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Int(_) => Type::Int,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::String(_) => Type::Text,
                LiteralValue::Null => Type::Null,
                LiteralValue::Bytes(_) | LiteralValue::UInt(_) => Type::Other,
            }),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                for element in &list.elements {
                    self.infer(element)?;
                }
                Ok(Type::List(None))
            }
            Expr::Map(_) => Ok(Type::Map(None)),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn variable(&self, name: &str) -> Result<Type<'a>, String> {
        const TYPES: [&str; 12] = [
            "bool",
            "bytes",
            "double",
            "duration",
            "dyn",
            "int",
            "list",
            "map",
            "null_type",
            "string",
            "timestamp",
            "uint",
        ];
        match self.scopes.iter().rev().find(|(known, _)| known == name) {
            Some((_, found)) => Ok(*found),
            // Names of types and of namespaced functions (`math.greatest`) are no variables.
            None if TYPES.contains(&name) || LIBRARIES.contains(&name) => Ok(Type::Dyn),
            None => Err(self.error(name, &format!("undeclared reference to '{name}' (in container '')"))),
        }
    }

    fn field(&self, operand: Type<'a>, field: &str) -> Result<Type<'a>, String> {
        let undefined = || Err(self.error(&format!(".{field}"), &format!("undefined field '{field}'")));
        match operand {
            Type::Object(node, resource) => {
                match (resource, field) {
                    (true, "apiVersion" | "kind") => return Ok(Type::Text),
                    (true, "metadata") => return Ok(Type::Metadata),
                    _ => {}
                }
                match node.properties.iter().find(|(name, _)| node.names_field(name, field)) {
                    Some((_, link)) => Ok(Type::of(link.node(), link.node().embedded)),
                    None => undefined(),
                }
            }
            Type::Metadata if matches!(field, "name" | "generateName") => Ok(Type::Text),
            Type::Metadata => undefined(),
            Type::Map(inner) => Ok(inner.map_or(Type::Dyn, |node| Type::of(node, node.embedded))),
            Type::Bool | Type::Int | Type::Double | Type::Text | Type::List(_) => {
                let text = format!("type '{}' does not support field selection", operand.name());
                Err(self.error(&format!(".{field}"), &text))
            }
            Type::Dyn | Type::Other | Type::Null => Ok(Type::Dyn),
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Result<Type<'a>, String> {
        if matches!(&select.operand.expr, Expr::Ident(name) if name == "variables")
            && self.scopes.iter().any(|(name, _)| name == "variables")
        {
            let full = format!("variables.{}", select.field);
            let found = self.scopes.iter().rev().find(|(name, _)| *name == full).map(|(_, found)| *found);
            let undefined =
                || self.error(&format!(".{}", select.field), &format!("undefined field '{}'", select.field));
            return found.map(|found| if select.test { Type::Bool } else { found }).ok_or_else(undefined);
        }
        let operand = self.infer(&select.operand)?;
        if select.test && (operand.known_scalar() || matches!(operand, Type::List(_))) {
            let text = format!("type '{}' does not support field selection", operand.name());
            return Err(self.call_error("has", &text));
        }
        let found = self.field(operand, &select.field)?;
        Ok(if select.test { Type::Bool } else { found })
    }

    fn call(&mut self, call: &CallExpr) -> Result<Type<'a>, String> {
        let name = &call.func_name;
        let library = matches!(call.target.as_deref().map(|target| &target.expr),
            Some(Expr::Ident(of)) if LIBRARIES.contains(&of.as_str()));
        let operator = !name.starts_with(char::is_alphabetic);
        if !operator && !library && !KNOWN.split_whitespace().any(|known| known == name) {
            return Err(self.call_error(name, &format!("undeclared reference to '{name}' (in container '')")));
        }
        let target = call.target.as_ref().map(|target| self.infer(target)).transpose()?;
        let arguments = call.args.iter().map(|argument| self.infer(argument)).collect::<Result<Vec<_>, _>>()?;
        let first = arguments.first().copied().unwrap_or(Type::Dyn);
        let second = arguments.get(1).copied().unwrap_or(Type::Dyn);
        Ok(match call.func_name.as_str() {
            operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT | operators::IN => Type::Bool,
            operators::EQUALS
            | operators::NOT_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS => {
                self.comparable(&call.func_name, first, second)?;
                Type::Bool
            }
            operators::ADD | operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO => {
                let (a, b) = (first.known_scalar(), second.known_scalar());
                if a && b && first.name() != second.name() {
                    return Err(self.overload(&call.func_name, first, second));
                }
                match (a, b) {
                    (true, _) => first,
                    (_, true) => second,
                    _ if matches!(first, Type::List(_)) || matches!(second, Type::List(_)) => Type::List(None),
                    _ => Type::Dyn,
                }
            }
            operators::NEGATE => first,
            operators::CONDITIONAL => {
                let third = arguments.get(2).copied().unwrap_or(Type::Dyn);
                if second.known_scalar() && second.name() == third.name() { second } else { Type::Dyn }
            }
            operators::INDEX => match first {
                Type::List(Some(node)) | Type::Map(Some(node)) => Type::of(node, node.embedded),
                _ => Type::Dyn,
            },
            operators::OPT_SELECT => {
                if let Some(Expr::Literal(LiteralValue::String(field))) =
                    call.args.get(1).map(|argument| &argument.expr)
                {
                    self.field(first, field.inner())?;
                }
                Type::Dyn
            }
            "size" | "int" | "indexOf" | "lastIndexOf" => Type::Int,
            "string" | "lowerAscii" | "upperAscii" | "trim" | "join" | "charAt" | "replace" | "substring"
            | "format" => Type::Text,
            "double" => Type::Double,
            "allowed" | "errored" | "hasValue" | "isIP" | "isCIDR" | "isURL" | "isQuantity" => Type::Bool,
            "split" | "findAll" => Type::List(None),
            "startsWith" | "endsWith" | "contains" | "matches" => {
                if let Some(target) = target.filter(|target| matches!(target, Type::Int | Type::Double | Type::Bool)) {
                    let name = &call.func_name;
                    let text =
                        format!("found no matching overload for '{name}' applied to '{}.(string)'", target.name());
                    return Err(self.error(&format!(".{name}"), &text));
                }
                Type::Bool
            }
            _ => Type::Dyn,
        })
    }

    fn comparable(&self, operator: &str, a: Type<'a>, b: Type<'a>) -> Result<(), String> {
        let number = |ty: Type<'_>| matches!(ty, Type::Int | Type::Double);
        let equality = matches!(operator, operators::EQUALS | operators::NOT_EQUALS);
        let fits = a.name() == b.name() || (number(a) && number(b) && !equality);
        let compared = |ty: Type<'_>| ty.known_scalar() || matches!(ty, Type::Null);
        if compared(a) && compared(b) && !fits {
            return Err(self.overload(operator, a, b));
        }
        Ok(())
    }

    fn overload(&self, operator: &str, a: Type<'_>, b: Type<'_>) -> String {
        let sign = operator.trim_matches('_');
        let text = format!("found no matching overload for '{operator}' applied to '({}, {})'", a.name(), b.name());
        self.error(sign, &text)
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Result<Type<'a>, String> {
        let range = self.infer(&comprehension.iter_range)?;
        let element = match range {
            Type::List(Some(node)) => Type::of(node, node.embedded),
            Type::Map(_) => Type::Text,
            Type::Bool | Type::Int | Type::Double | Type::Text | Type::Object(..) | Type::Metadata => {
                let text = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    range.name()
                );
                return Err(self.error("", &text));
            }
            _ => Type::Dyn,
        };
        let accumulator = self.infer(&comprehension.accu_init)?;
        let depth = self.scopes.len();
        self.scopes.push((comprehension.iter_var.clone(), element));
        self.scopes.extend(comprehension.iter_var2.clone().map(|name| (name, Type::Dyn)));
        self.scopes.push((comprehension.accu_var.clone(), accumulator));
        self.infer(&comprehension.loop_cond)?;
        self.infer(&comprehension.loop_step)?;
        let result = self.infer(&comprehension.result);
        self.scopes.truncate(depth);
        result
    }
}

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
