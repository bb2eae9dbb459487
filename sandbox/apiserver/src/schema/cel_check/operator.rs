//! The operators of CEL over operands of known types: what they result in, and where a complaint about one stands
//! (`cel-go/common/stdlib`, `checker`).

use kube_cel::cel::common::ast::{CallExpr, Expr, LiteralValue, operators};

use kube_cel::cel::parser::Expression;

use super::super::cel_type::{Type, is_comparable, is_condition, may_calculate, may_contain};
use super::{Checker, Complaint, find_words};

/// An index that may be missing.
const OPT_INDEX: &str = "_[?_]";

impl<'a> Checker<'_, 'a> {
    pub(super) fn operator(&mut self, call: &CallExpr, arguments: &[Type<'a>], nth: usize) -> Type<'a> {
        let name = call.func_name.as_str();
        let at = |index: usize| arguments.get(index).copied().unwrap_or(Type::Dyn);
        let (first, second) = (at(0), at(1));
        match name {
            operators::LOGICAL_AND | operators::LOGICAL_OR
                if let Some(bad) = arguments.iter().position(|ty| !is_condition(*ty))
                    && let Some(needle) = call.args.get(bad).and_then(place_of) =>
            {
                self.complain_operand((name, nth), bad, &needle, at(bad))
            }
            operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT
                if !arguments.iter().all(|ty| is_condition(*ty)) =>
            {
                self.complain_overload(name, arguments, nth)
            }
            operators::IN if !may_contain(second, first) => self.complain_overload(name, arguments, nth),
            operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT | operators::IN => Type::Bool,
            operators::EQUALS
            | operators::NOT_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS => {
                if is_comparable(name, first, second) {
                    Type::Bool
                } else {
                    self.complain_overload(name, arguments, nth)
                }
            }
            operators::ADD | operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO => {
                if !may_calculate(name, first, second) {
                    return self.complain_overload(name, arguments, nth);
                }
                match (first.known_scalar(), second.known_scalar()) {
                    (true, _) => first,
                    (_, true) => second,
                    _ if [first, second].iter().any(|ty| matches!(ty, Type::List(_) | Type::Scalars(_))) => {
                        Type::List(None)
                    }
                    _ => Type::Dyn,
                }
            }
            operators::NEGATE if first.known_scalar() && !matches!(first, Type::Int | Type::Double) => {
                self.complain_overload(name, arguments, nth)
            }
            operators::NEGATE => first,
            operators::CONDITIONAL if !is_condition(first) => self.complain_overload(name, arguments, nth),
            operators::CONDITIONAL => match (second, at(2)) {
                (then, other) if then.known_scalar() && other.known_scalar() => {
                    if then.name() == other.name() {
                        then
                    } else {
                        self.complain_overload(name, arguments, nth)
                    }
                }
                _ => Type::Dyn,
            },
            operators::INDEX => match first {
                Type::List(_) | Type::Scalars(_) if matches!(second, Type::Text | Type::Bool) => {
                    self.complain_overload(name, arguments, nth)
                }
                Type::Map(_) if matches!(second, Type::Int | Type::Double | Type::Bool) => {
                    self.complain_overload(name, arguments, nth)
                }
                Type::List(Some(node)) | Type::Map(Some(node)) => Type::of(node, node.embedded),
                Type::Object(..) | Type::Metadata | Type::Text | Type::Int | Type::Double | Type::Bool => {
                    self.complain_overload(name, arguments, nth)
                }
                _ => Type::Dyn,
            },
            OPT_INDEX => match first {
                Type::Optional(node, resource) if matches!(Type::of(node, resource), Type::Object(..)) => {
                    self.complain_overload(name, arguments, nth)
                }
                Type::Object(..) | Type::Metadata => self.complain_overload(name, arguments, nth),
                _ => Type::Dyn,
            },
            operators::OPT_SELECT => {
                if let Some(Expr::Literal(LiteralValue::String(field))) = call.args.get(1).map(|key| &key.expr)
                    && let Err(text) = self.field(first, field.inner())
                {
                    return self.complain(&format!(".?{}", field.inner()), &text);
                }
                Type::Dyn
            }
            _ => Type::Dyn,
        }
    }

    /// Complains at an operand that is no condition, before or behind the `nth` operator of its sign.
    fn complain_operand(
        &mut self,
        (name, nth): (&str, usize),
        operand: usize,
        needle: &str,
        found: Type<'a>,
    ) -> Type<'a> {
        let sign = find_words(self.source, sign_of(name)).nth(nth).unwrap_or_default();
        let mut places = find_words(self.source, needle);
        let at = if operand == 0 { places.take_while(|at| *at < sign).last() } else { places.find(|at| *at > sign) };
        let text = format!("expected type 'bool' but found '{}'", found.shown());
        self.complaints.push(Complaint { at: at.unwrap_or_default(), needle: needle.to_owned(), text });
        Type::Error
    }

    /// Complains at the operator, the `nth` of its sign.
    fn complain_overload(&mut self, operator: &str, arguments: &[Type<'a>], nth: usize) -> Type<'a> {
        let shown: Vec<String> = arguments.iter().map(|ty| ty.shown()).collect();
        let text = format!("found no matching overload for '{operator}' applied to '({})'", shown.join(", "));
        let sign = sign_of(operator);
        let at = find_words(self.source, sign).nth(nth).or_else(|| self.source.find(sign)).unwrap_or_default();
        self.complaints.push(Complaint { at, needle: sign.to_owned(), text });
        Type::Error
    }

    /// How many operators of this sign came before this one, which is counted.
    pub(super) fn count_sign(&mut self, operator: &str) -> usize {
        let seen = self.signs.entry(sign_of(operator).to_owned()).or_default();
        *seen += 1;
        *seen - 1
    }
}

/// What stands where an operand is complained about: a field at its dot, a variable at its name.
fn place_of(operand: &Expression) -> Option<String> {
    match &operand.expr {
        Expr::Select(select) if !select.test => Some(format!(".{}", select.field)),
        Expr::Ident(name) => Some(name.clone()),
        _ => None,
    }
}

/// How an operator is written.
fn sign_of(operator: &str) -> &str {
    match operator {
        operators::CONDITIONAL => "?",
        operators::INDEX | OPT_INDEX => "[",
        _ => operator.trim_matches('_').trim_start_matches('@'),
    }
}

#[cfg(test)]
mod tests {
    use kube_cel::cel::parser::Parser;

    use super::super::infer_type;
    use super::*;

    fn complaint(source: &str) -> Option<String> {
        let tree = Parser::default().enable_optional_syntax(true).parse(source).unwrap();
        let scopes = vec![("i".to_owned(), Type::Int), ("s".to_owned(), Type::Text), ("d".to_owned(), Type::Dyn)];
        infer_type(&tree, source, scopes).err()
    }

    #[test]
    fn a_list_that_is_written_out_holds_values_of_its_type() {
        let found = complaint("i in [\"a\"]").unwrap();
        let wanted = "1:3: found no matching overload for '@in' applied to '(int, list(string))'";
        assert!(found.contains(wanted), "{found}");
        assert_eq!(complaint("s in ['a', 'b'] && i in [1] && d in ['a'] && s in [d, 1]"), None);
        assert!(complaint("[1]['a'] == 1").unwrap().contains("'_[_]' applied to '(list(int), string)'"));
    }

    /// As a kube-apiserver 1.36.1 told it.
    #[test]
    fn a_function_takes_values_of_its_types() {
        for (source, text) in [
            (
                "sets.contains([1], ['a'])",
                "1:14: found no matching overload for 'sets.contains' applied to '(list(int), ",
            ),
            ("sets.intersects(s, [])", "for 'sets.intersects' applied to '(string, list(dyn))'"),
            ("format.uuid().validate(i) == d", "'validate' applied to"),
            ("['a'].sum() == 'a'", "1:10: found no matching overload for 'sum' applied to 'list(string).()'"),
            ("[1].join(',') == 'a'", "1:9: found no matching overload for 'join' applied to 'list(int).(string)'"),
            ("s.substring('a') == ''", "1:12: found no matching overload for 'substring' applied to 'string.(string)'"),
            ("quantity(s).add('1') == d", "'add' applied to 'kubernetes.Quantity.(string)'"),
            ("string(['a']) == ''", "1:7: found no matching overload for 'string' applied to '(list(string))'"),
            ("s.value() == 'a'", "1:8: found no matching overload for 'value' applied to 'string.()'"),
            (
                "s.optMap(x, x).orValue('') == s",
                "1:9: found no matching overload for 'hasValue' applied to 'string.()'",
            ),
            ("[null, 1].size() > 0", "expected type 'null' but found 'int'"),
            ("{'a': 1, 2: 1}.size() > 0", "expected type 'string' but found 'int'"),
            ("s.matches('a{2000}')", "1:11: invalid matches argument"),
            ("{'a': 1}.transformMapEntry(k, v, {k: v}) == 1", "found no matching overload for '_==_'"),
            ("s - s == s", "1:3: found no matching overload for '_-_' applied to '(string, string)'"),
            ("s + timestamp(s) == d", "1:3: found no matching overload for '_+_' applied to '(string, timestamp)'"),
            ("[1] + ['a'] == d", "1:5: found no matching overload for '_+_' applied to '(list(int), list(string))'"),
        ] {
            let found = complaint(source).unwrap_or_default();
            assert!(found.contains(text), "{source}: {found}");
        }
        for source in [
            "sets.contains([], [1]) && sets.equivalent(d, ['a']) && type(s) == string && size(d) > size(b'a')",
            "timestamp(s) + duration('1h') > timestamp(s) && d + 1 > i && ['a'] + [s] == d && [].join(',') == s",
            "s.substring(1, 2) == s && quantity(s).add(1).sub(quantity('1')).asInteger() > i && string(i) == s",
        ] {
            assert_eq!(complaint(source), None, "{source}");
        }
    }

    #[test]
    fn an_unsigned_number_equals_no_signed_one() {
        let found = complaint("i == 1u").unwrap();
        assert!(found.contains("1:3: found no matching overload for '_==_' applied to '(int, uint)'"), "{found}");
        assert_eq!(complaint("i < 1u && d == 1u && 1u == 2u"), None);
    }

    #[test]
    fn the_variable_of_an_optional_value_is_known_below_it() {
        assert_eq!(complaint("d.?x.optMap(v, v.size()).orValue(0) == 0"), None);
        assert!(complaint("d.?x.optMap(v, w).orValue(0) == 0").unwrap().contains("undeclared reference to 'w'"));
    }

    /// As a kube-apiserver 1.36.1 told it.
    #[test]
    fn a_function_takes_so_many_arguments_and_results_in_its_type() {
        for (source, text) in [
            ("s.replace('a') == s", "1:10: found no matching overload for 'replace' applied to 'string.(string)'"),
            ("isIP(s, 4)", "1:5: found no matching overload for 'isIP' applied to '(string, int)'"),
            ("s.split(',').flatten() == []", "found no matching overload for 'flatten' applied to 'list(string).()'"),
            ("quantity(s).sign() > 0", "found no matching overload for 'sign' applied to 'kubernetes.Quantity.()'"),
            ("s.find('a') == 1", "found no matching overload for '_==_' applied to '(string, int)'"),
            ("[s] == ['a'] && ['a'] == [1]", "applied to '(list(string), list(int))'"),
            ("[] == {}", "1:4: found no matching overload for '_==_' applied to"),
            ("{'a': 1, 'b': 'c'}.size() > 0", "expected type 'int' but found 'string'"),
            ("['a'] > ['b']", "1:7: found no matching overload for '_>_' applied to '(list(string), list(string))'"),
            ("1u + i == d", "1:4: found no matching overload for '_+_' applied to '(uint, int)'"),
        ] {
            let found = complaint(source).unwrap_or_default();
            assert!(found.contains(text), "{source}: {found}");
        }
        assert_eq!(complaint("{1: 'a'}[1] == s && [[s]] == [['a']] && {'a': s} == {'a': 'b'}"), None);
    }
}
