//! A light type check of CEL rules against the schema they stand in: names that do not exist, operators over values
//! that have none, results that are no booleans, and quantifiers nested without bounds. What it cannot know it lets
//! pass; the real compiler (cel-go `checker`, apiserver `cel/compilation.go`) knows more.

use std::collections::BTreeMap;

use kube_cel::cel::common::ast::{CallExpr, Expr, LiteralValue, SelectExpr};
use kube_cel::cel::parser::Expression;

use super::cel_tree::parts_of;
use super::cel_type::{
    AUTHORIZER, DOTTED, EITHER, GLOBAL, MEMBERS, RESOURCE_CHECK, Type, are_sets, authorizer_result, has_member,
    is_listed, result_of, takes_arguments,
};
use super::formats::{is_go_duration, is_go_timestamp};
use super::go_pattern::pattern_error;
use super::node::Node;

mod made;
mod operator;
mod ranges;

/// One complaint: where it stands in the source, what was looked for there, and its text.
struct Complaint {
    at: usize,
    needle: String,
    text: String,
}

struct Checker<'s, 'a> {
    source: &'s str,
    scopes: Vec<(String, Type<'a>)>,
    complaints: Vec<Complaint>,
    /// Within the arguments of `format`, which may be of several types.
    formatting: bool,
    /// How many operators of each sign stand before the one that is looked at.
    signs: BTreeMap<String, usize>,
}

/// What an expression must result in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Rule,
    Message,
}

/// What the compiler would say about a rule on a value of this schema (`compileRule`, `prepareEnvSet`).
pub fn check_expression(
    expression: &Expression,
    source: &str,
    (node, resource): (&Node, bool),
    optional_old: bool,
    role: Role,
) -> Result<(), String> {
    let self_type = Type::of(node, resource);
    let old = if optional_old { Type::Optional(node, resource) } else { self_type };
    let scopes = vec![("self".to_owned(), self_type), ("oldSelf".to_owned(), old)];
    let prefix = if role == Role::Message { "messageExpression " } else { "" };
    let result = infer_type(expression, source, scopes).map_err(|error| format!("{prefix}{error}"))?;
    let made_dynamic = matches!(&expression.expr, Expr::Call(call) if call.func_name == "dyn");
    match (role, result) {
        (Role::Rule, Type::Dyn) if made_dynamic => Err("cel expression must evaluate to a bool".to_owned()),
        (_, Type::Dyn) | (Role::Rule, Type::Bool) | (Role::Message, Type::Text) => Ok(()),
        (Role::Message, _) => Err("messageExpression must evaluate to a string".to_owned()),
        (Role::Rule, _) => Err("cel expression must evaluate to a bool".to_owned()),
    }
}

/// The type of an expression over these names, or the compiler's complaints. A name `variables.x` is the field of a
/// composed variable.
pub fn infer_type<'a>(
    expression: &Expression,
    source: &str,
    scopes: Vec<(String, Type<'a>)>,
) -> Result<Type<'a>, String> {
    let mut checker = Checker { source, scopes, complaints: Vec::new(), formatting: false, signs: BTreeMap::new() };
    let found = checker.infer(expression);
    if checker.complaints.is_empty() {
        checker.check_patterns(expression);
    }
    if checker.complaints.is_empty() { Ok(found) } else { Err(checker.show_complaints()) }
}

impl<'s, 'a> Checker<'s, 'a> {
    /// Complains at the place where `needle` stands, the next one for each complaint about the same.
    fn complain(&mut self, needle: &str, text: &str) -> Type<'a> {
        self.complain_after(needle, 0, text)
    }

    /// Calls, and the macro `has`, are complained about at their parenthesis.
    fn complain_at_call(&mut self, name: &str, text: &str) -> Type<'a> {
        self.complain_after(&format!("{name}("), name.len(), text)
    }

    fn complain_after(&mut self, needle: &str, length: usize, text: &str) -> Type<'a> {
        let earlier = self.complaints.iter().filter(|complaint| complaint.needle == needle).count();
        let found = find_words(self.source, needle).nth(earlier).or_else(|| self.source.find(needle));
        let at = found.map_or(0, |at| at + length);
        self.complaints.push(Complaint { at, needle: needle.to_owned(), text: text.to_owned() });
        Type::Error
    }

    fn show_complaints(mut self) -> String {
        self.complaints.sort_by_key(|complaint| complaint.at);
        let shown: Vec<String> = self.complaints.iter().map(|complaint| self.show_complaint(complaint)).collect();
        format!("compilation failed: {}", shown.join("\n"))
    }

    fn show_complaint(&self, complaint: &Complaint) -> String {
        let before = self.source.get(..complaint.at).unwrap_or_default();
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        let shown = self.source.lines().nth(line).unwrap_or_default();
        let dots = ".".repeat(column);
        format!("ERROR: <input>:{}:{}: {}\n | {shown}\n | {dots}^", line + 1, column + 1, complaint.text)
    }

    /// A pattern, a time or a span that is written out must be one (`cel.ValidateRegexLiterals`,
    /// `ValidateTimestampLiterals`, `ValidateDurationLiterals`). Only sound expressions are looked at.
    fn check_patterns(&mut self, expression: &Expression) {
        if let Expr::Call(call) = &expression.expr
            && let Some(Expr::Literal(LiteralValue::String(text))) = call.args.last().map(|last| &last.expr)
        {
            let text = text.inner();
            let sound = match call.func_name.as_str() {
                "matches" => pattern_error(text).is_none(),
                "duration" => is_go_duration(text),
                "timestamp" => is_go_timestamp(text),
                _ => true,
            };
            if !sound {
                let quoted = ["\"", "'"].map(|quote| format!("{quote}{text}{quote}"));
                let needle = quoted.iter().find(|quoted| self.source.contains(*quoted)).unwrap_or(&quoted[0]).clone();
                self.complain(&needle, &format!("invalid {} argument", call.func_name));
            }
        }
        for part in parts_of(expression) {
            self.check_patterns(part);
        }
    }

    fn infer(&mut self, expression: &Expression) -> Type<'a> {
        match &expression.expr {
            Expr::Unspecified => Type::Dyn,
            Expr::Struct(made) => self.made_value(made),
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Int(_) => Type::Int,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::String(_) => Type::Text,
                LiteralValue::Null => Type::Null,
                LiteralValue::UInt(_) => Type::Named("uint"),
                LiteralValue::Bytes(_) => Type::Named("bytes"),
            },
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.list_value(&list.elements),
            Expr::Map(map) => self.map_value(&map.entries),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn variable(&mut self, name: &str) -> Type<'a> {
        const TYPES: &str = "bool bytes double duration dyn int list map null_type string timestamp uint";
        match self.scopes.iter().rev().find(|(known, _)| known == name) {
            Some((_, found)) => *found,
            // Names of types are no variables.
            None if is_listed(TYPES, name) => Type::Dyn,
            None => self.complain(name, &format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    /// The type of a member, or why there is none.
    fn field(&self, operand: Type<'a>, field: &str) -> Result<Type<'a>, String> {
        let undefined = || Err(format!("undefined field '{field}'"));
        match operand {
            Type::Object(_, true) if matches!(field, "apiVersion" | "kind") => Ok(Type::Text),
            Type::Object(_, true) if field == "metadata" => Ok(Type::Metadata),
            Type::Object(node, _) => match node.properties.iter().find(|(name, _)| node.names_field(name, field)) {
                Some((_, link)) => Ok(Type::of(link.node(), link.node().embedded)),
                None => undefined(),
            },
            Type::Metadata if matches!(field, "name" | "generateName") => Ok(Type::Text),
            Type::Metadata => undefined(),
            Type::Map(inner) => Ok(inner.map_or(Type::Dyn, |node| Type::of(node, node.embedded))),
            // What is selected from a value that may be missing may be missing, too.
            Type::Optional(node, resource) => {
                let known = node.properties.iter().find(|(name, _)| node.names_field(name, field));
                let found = self.field(Type::of(node, resource), field)?;
                Ok(known.map_or(Type::Dyn, |(_, link)| match found {
                    Type::Dyn => Type::Dyn,
                    _ => Type::Optional(link.node(), link.node().embedded),
                }))
            }
            Type::Bool | Type::Int | Type::Double | Type::Text | Type::List(_) | Type::Scalars(_) => {
                Err(format!("type '{}' does not support field selection", operand.shown()))
            }
            Type::Named(of) if of == AUTHORIZER.name() && field == "requestResource" => Ok(Type::Named(RESOURCE_CHECK)),
            Type::Named(of) if of.starts_with("kubernetes.") => Err(format!("unexpected failed resolution of '{of}'")),
            Type::Dyn | Type::Named(_) | Type::Null | Type::Error => Ok(Type::Dyn),
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Type<'a> {
        let name = &select.field;
        let operand = if matches!(&select.operand.expr, Expr::Ident(of) if of == "variables")
            && self.scopes.iter().any(|(of, _)| of == "variables")
        {
            let full = format!("variables.{name}");
            let found = self.scopes.iter().rev().find(|(known, _)| *known == full).map(|(_, found)| *found);
            found.ok_or_else(|| format!("undefined field '{name}'"))
        } else {
            let operand = self.infer(&select.operand);
            self.field(operand, name)
        };
        match operand {
            Ok(_) if select.test => Type::Bool,
            Ok(found) => found,
            Err(text) if select.test => self.complain_at_call("has", &text),
            Err(text) => self.complain(&format!(".{name}"), &text),
        }
    }

    fn call(&mut self, call: &CallExpr) -> Type<'a> {
        let name = call.func_name.as_str();
        if let Some(found) = self.two_variables(call).or_else(|| self.optional_variable(call)) {
            return found;
        }
        let formatting = self.formatting;
        self.formatting |= name == "format";
        let mut arguments = Vec::with_capacity(call.args.len());
        let mut nth = 0;
        for (index, argument) in call.args.iter().enumerate() {
            if index == 1 {
                nth = self.count_sign(name);
            }
            arguments.push(self.infer(argument));
        }
        self.formatting = formatting;
        if let Some(Expr::Ident(of)) = call.target.as_deref().map(|target| &target.expr)
            && is_listed(DOTTED, &format!("{of}.{name}"))
        {
            if of == "sets" && !are_sets(&arguments) {
                let shown: Vec<String> = arguments.iter().map(|ty| ty.shown()).collect();
                let text = format!("found no matching overload for 'sets.{name}' applied to '({})'", shown.join(", "));
                return self.complain_at_call(name, &text);
            }
            return result_of(name);
        }
        let target = call.target.as_ref().map(|target| self.infer(target));
        let operator = !name.starts_with(char::is_alphabetic);
        if operator {
            return self.operator(call, &arguments, nth);
        }
        if ![GLOBAL, EITHER, MEMBERS].iter().any(|list| is_listed(list, name)) {
            return self.complain_at_call(name, &format!("undeclared reference to '{name}' (in container '')"));
        }
        let checked = target.and_then(|target| authorizer_result(target, name, &arguments));
        if let Some(Ok(found)) = checked {
            return found;
        }
        let refused = match target {
            _ if checked.is_some() => true,
            None => is_listed(MEMBERS, name),
            Some(target) => is_listed(GLOBAL, name) || !has_member(target, name),
        };
        if refused || !takes_arguments(target, name, &arguments) {
            let shown: Vec<String> = arguments.iter().map(|ty| ty.shown()).collect();
            let target = target.map_or(String::new(), |target| format!("{}.", target.shown()));
            let applied = format!("'{target}({})'", shown.join(", "));
            return self
                .complain_at_call(name, &format!("found no matching overload for '{name}' applied to {applied}"));
        }
        match (target, name) {
            (Some(Type::Optional(node, resource)), "value" | "orValue") => Type::of(node, resource),
            _ => result_of(name),
        }
    }
}

/// Where a needle stands in a text, as a word of its own.
fn find_words<'t>(text: &'t str, needle: &'t str) -> impl Iterator<Item = usize> + 't {
    let wordy = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(needle).map(|(at, _)| at).filter(move |at| {
        let before = text.get(..*at).and_then(|before| before.chars().next_back());
        let after = text.get(at + needle.len()..).and_then(|after| after.chars().next());
        let goes_back = wordy(needle.chars().next()) && wordy(before);
        let goes_on = wordy(needle.chars().next_back()) && wordy(after);
        !goes_back && !goes_on
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_cel::cel::parser::Parser;
    use serde_json::json;

    fn complaint(schema: serde_json::Value, optional_old: bool, source: &str) -> Option<String> {
        let node = Node::parse(&schema);
        let tree = Parser::default().enable_optional_syntax(true).parse(source).unwrap();
        check_expression(&tree, source, (&node, false), optional_old, Role::Rule).err()
    }

    fn of_text(source: &str) -> Option<String> {
        complaint(json!({"type": "string"}), false, source)
    }

    #[test]
    fn an_optional_value_is_compared_with_optional_values_only() {
        let found = complaint(json!({"type": "string"}), true, "oldSelf == self").unwrap();
        let wanted = "compilation failed: ERROR: <input>:1:9: found no matching overload for '_==_' applied to \
                      '(optional_type(string), string)'\n | oldSelf == self\n | ........^";
        assert_eq!(found, wanted);
        assert_eq!(complaint(json!({"type": "string"}), true, "oldSelf.hasValue()"), None);
        assert_eq!(complaint(json!({"type": "string"}), true, "oldSelf.orValue('') == self"), None);
        let schema = json!({"type": "object", "properties": {"s": {"type": "string"}}});
        let found = complaint(schema.clone(), true, "oldSelf.s == self.s").unwrap();
        assert!(found.contains("applied to '(optional_type(string), string)'"), "{found}");
        assert!(complaint(schema.clone(), true, "oldSelf.value().n == 1").unwrap().contains("undefined field 'n'"));
        assert!(complaint(schema.clone(), true, "oldSelf[?'s'].hasValue()").unwrap().contains("overload for '_[?_]'"));
        let sound = "oldSelf.s.orValue('') == self.s && oldSelf.?s.orValue('a') != '' && oldSelf.value().s == self.s";
        assert_eq!(complaint(schema, true, sound), None);
        let found = of_text("oldSelf.hasValue()").unwrap();
        assert!(found.contains("1:17: found no matching overload for 'hasValue' applied to 'string.()'"), "{found}");
    }

    #[test]
    fn a_function_without_a_value_before_it_has_none() {
        let found = of_text("self.isIP()").unwrap();
        assert!(found.contains("1:10: found no matching overload for 'isIP' applied to 'string.()'"), "{found}");
        assert_eq!(of_text("isIP(self) && ip(self).family() == 4 && cidr(self).ip().isLoopback()"), None);
    }

    #[test]
    fn the_branches_of_a_condition_have_one_type() {
        let found = of_text("self == '' ? 'a' : false").unwrap();
        assert!(found.contains("1:12: found no matching overload for '_?_:_' applied to '(bool, string, bool)'"));
        assert_eq!(of_text("self == '' ? true : self == 'b'"), None);
    }

    #[test]
    fn a_written_pattern_is_a_pattern() {
        let found = of_text("self.matches(\"[\")").unwrap();
        assert!(found.contains("1:14: invalid matches argument\n | self.matches(\"[\")\n | .............^"));
        assert_eq!(of_text("self.matches('[a]')"), None);
        let found = of_text("duration(\"x\") == duration('1h')").unwrap();
        assert!(found.contains("1:10: invalid duration argument"), "{found}");
        assert!(of_text("duration('1d') > duration('1h')").unwrap().contains("1:10: invalid duration argument"));
        assert!(of_text("timestamp(self) < timestamp('y')").unwrap().contains("1:29: invalid timestamp argument"));
    }

    #[test]
    fn all_complaints_are_told_in_the_order_of_their_places() {
        let found = of_text("base64.encode(b'a') == self").unwrap();
        assert!(found.contains("1:1: undeclared reference to 'base64' (in container '')"), "{found}");
        assert!(
            found.contains("^\nERROR: <input>:1:14: undeclared reference to 'encode' (in container '')"),
            "{found}"
        );
        let found = of_text("two_var([1], i, v, v > 0)").unwrap();
        let places: Vec<&str> = found.split("<input>:1:").skip(1).filter_map(|part| part.split(':').next()).collect();
        assert_eq!(places, ["8", "14", "17", "20"]);
    }

    #[test]
    fn a_test_for_a_field_is_complained_about_at_its_parenthesis() {
        let found = complaint(json!({"type": "object", "properties": {"a": {}}}), false, "has(self.b)").unwrap();
        assert!(found.contains("1:4: undefined field 'b'"), "{found}");
    }

    #[test]
    fn a_reserved_word_names_its_field() {
        let schema = json!({"type": "object", "properties": {"namespace": {"type": "string"}}});
        assert_eq!(complaint(schema.clone(), false, "self.namespace == 'x'"), None);
        assert_eq!(complaint(schema, false, "self.__namespace__ == 'x'"), None);
    }

    #[test]
    fn a_loop_may_have_two_variables() {
        assert_eq!(of_text("[1, 2].all(i, v, v > i)"), None);
        assert!(of_text("[1, 2].all(i, v, w > i)").unwrap().contains("undeclared reference to 'w'"));
    }

    #[test]
    fn what_is_formatted_may_have_several_types() {
        assert_eq!(of_text("'%s-%d'.format([self, 3]) == 'a-3'"), None);
        assert!(of_text("[1,'a'].size() > 0").unwrap().contains("<input>:1:4: expected type 'int' but found 'string'"));
    }

    #[test]
    fn a_complaint_about_an_operator_stands_at_the_one_that_does_not_fit() {
        let found = of_text("self == 'a' || self == 1").unwrap();
        assert!(found.contains("<input>:1:21: found no matching overload for '_==_' applied to '(string, int)'"));
    }

    #[test]
    fn a_condition_is_complained_about_where_it_is_none() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let found = complaint(schema, false, "self.n > 1 && self.n").unwrap();
        assert!(found.contains("1:19: expected type 'bool' but found 'int'"), "{found}");
    }

    #[test]
    fn operands_of_known_types_must_fit() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}, "t": {"type": "string"},
            "l": {"type": "array", "items": {"type": "string"}}, "d": {"type": "string", "format": "date-time"}}});
        let refused = |source: &str| complaint(schema.clone(), false, source);
        for source in [
            "!self.n",
            "self.n ? true : false",
            "self.n in self.l",
            "self.d == 'x'",
            "self['n'] == 1",
            "[1, 'a'].size() > 0",
            "size(self.t, 1) > 0",
            "self.t.size(1) > 0",
            "self.l.sum() > 0",
            "self.t.startsWith(1)",
            "self.n && true",
            "-self.t == 'a'",
            "self.l['a'] == 'a'",
            "size(self.n) == 1",
            "1.5 % 2.0 == 0.0",
        ] {
            assert!(refused(source).is_some_and(|text| text.starts_with("compilation failed")), "{source}");
        }
        for source in [
            "self.t in self.l",
            "self.d < timestamp('2024-01-01T00:00:00Z')",
            "self.l.isSorted()",
            "self.l[0] == 'a' || self.n == 1",
            "[1, 2].sum() > self.n",
            "self.d == null",
        ] {
            assert_eq!(refused(source), None, "{source}");
        }
    }
}
