//! The parsed tree of a CEL expression: its parts, and the macros with two variables (`cel-go/ext/comprehensions.go`),
//! which the parser leaves as calls. Each becomes a loop over pairs: `@entries` makes them of a list or a map, and the
//! two variables read them. `@merge` adds the entries of one map to another. `optMap` and `optFlatMap`
//! (`cel-go/cel/library.go`) become a loop over what is there, which `@present` lists: one value or none. `@optional`
//! makes of such a list what it was.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue, MapEntryExpr,
    MapExpr, StructExpr, operators,
};
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, Value as CelValue};

const RESULT: &str = "@result";

/// The key under which a value that is made as one of a named type holds the name.
pub const TYPE_NAME: &str = "@type";

/// The types that an expression can name.
const TYPES: [&str; 9] = ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"];

/// Whether a text stands for a type.
pub fn names_type(text: &str) -> bool {
    text.starts_with("@type ")
}

/// A type as a value: a text that no object holds by chance.
fn type_text(name: &str) -> String {
    format!("@type {name}")
}

/// The parts of an expression.
pub fn parts_of(tree: &IdedExpr) -> Vec<&IdedExpr> {
    match &tree.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(MapExpr { entries }) | Expr::Struct(StructExpr { entries, .. }) => entries
            .iter()
            .flat_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
                EntryExpr::StructField(field) => vec![&field.value],
            })
            .collect(),
        Expr::Comprehension(loop_) => {
            vec![&loop_.iter_range, &loop_.accu_init, &loop_.loop_cond, &loop_.loop_step, &loop_.result]
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
    }
}

fn parts_of_mut(tree: &mut IdedExpr) -> Vec<&mut IdedExpr> {
    match &mut tree.expr {
        Expr::Call(call) => call.target.as_deref_mut().into_iter().chain(&mut call.args).collect(),
        Expr::Select(select) => vec![&mut select.operand],
        Expr::List(list) => list.elements.iter_mut().collect(),
        Expr::Map(MapExpr { entries }) | Expr::Struct(StructExpr { entries, .. }) => entries
            .iter_mut()
            .flat_map(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => vec![&mut entry.key, &mut entry.value],
                EntryExpr::StructField(field) => vec![&mut field.value],
            })
            .collect(),
        Expr::Comprehension(loop_) => {
            let ComprehensionExpr { iter_range, accu_init, loop_cond, loop_step, result, .. } = &mut **loop_;
            vec![iter_range, accu_init, loop_cond, loop_step, result]
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
    }
}

/// The variables of a macro with two of them, and the parts that see them.
pub fn two_variables(call: &CallExpr) -> Option<(&str, &str, &[IdedExpr])> {
    call.target.as_ref()?;
    let fits = match call.func_name.as_str() {
        "all" | "exists" | "existsOne" | "exists_one" => call.args.len() == 3,
        "transformList" | "transformMap" | "transformMapEntry" => matches!(call.args.len(), 3 | 4),
        _ => false,
    };
    match call.args.as_slice() {
        [IdedExpr { expr: Expr::Ident(key), .. }, IdedExpr { expr: Expr::Ident(value), .. }, parts @ ..] if fits => {
            Some((key, value, parts))
        }
        _ => None,
    }
}

/// The variable of `optMap` or `optFlatMap`, and the part that sees it (`cel-go/cel/library.go`).
pub fn optional_variable(call: &CallExpr) -> Option<(&str, &IdedExpr)> {
    call.target.as_ref()?;
    match call.args.as_slice() {
        [IdedExpr { expr: Expr::Ident(name), .. }, body]
            if ["optMap", "optFlatMap"].contains(&call.func_name.as_str()) =>
        {
            Some((name, body))
        }
        _ => None,
    }
}

/// The body in the place of the value that is there. The loop has the macro's own variable: so each part is there once,
/// and an inner variable of the same name hides it. It gathers a list: of an optional value that is a loop's variable
/// the interpreter keeps what is in it alone.
fn loop_over_present(call: &CallExpr, name: &str, body: &IdedExpr) -> Expr {
    let loop_step = match call.func_name.as_str() {
        "optMap" => made_of(Expr::List(ListExpr::new(vec![body.clone()]))),
        _ => call_of("@present", vec![body.clone()]),
    };
    let gathered = Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: call_of("@present", call.target.as_deref().cloned().into_iter().collect()),
        iter_var: name.to_owned(),
        iter_var2: None,
        accu_var: RESULT.to_owned(),
        accu_init: made_of(Expr::List(ListExpr::new(Vec::new()))),
        loop_cond: boolean_of(true),
        loop_step,
        result: ident_of(RESULT),
    }));
    call_of("@optional", vec![made_of(gathered)]).expr
}

/// A map in the place of a value of a named type, which the interpreter cannot make.
fn make_map(made: &mut StructExpr) -> Expr {
    let entry = |key: &str, value: IdedExpr, optional: bool| IdedEntryExpr {
        id: 0,
        expr: EntryExpr::MapEntry(MapEntryExpr { key: text_of(key), value, optional }),
    };
    let mut entries = vec![entry(TYPE_NAME, text_of(&made.type_name), false)];
    entries.extend(std::mem::take(&mut made.entries).into_iter().filter_map(|given| match given.expr {
        EntryExpr::StructField(field) => Some(entry(&field.field, field.value, field.optional)),
        EntryExpr::MapEntry(_) => None,
    }));
    Expr::Map(MapExpr { entries })
}

/// Makes loops of the macros that the parser leaves, maps of values of named types, and values of the names of types.
pub fn expand_loops(tree: &mut IdedExpr) {
    parts_of_mut(tree).into_iter().for_each(expand_loops);
    if let Expr::Ident(name) = &tree.expr
        && TYPES.contains(&name.as_str())
    {
        tree.expr = Expr::Literal(LiteralValue::String(type_text(name).into()));
    }
    if let Expr::Struct(made) = &mut tree.expr {
        tree.expr = make_map(made);
    }
    let Expr::Call(call) = &tree.expr else { return };
    if let Some((name, body)) = optional_variable(call) {
        tree.expr = loop_over_present(call, name, body);
        return;
    }
    let Some((key, value, parts)) = two_variables(call) else { return };
    // A loop within a loop has pairs of its own.
    let entry = format!("@entry{}", tree.id);
    let mut parts = parts.to_vec();
    for part in &mut parts {
        replace_variable(part, value, &entry, 1);
        replace_variable(part, key, &entry, 0);
    }
    let range = call.target.as_deref().cloned().unwrap_or_default();
    if let Some(made) = make_loop(&call.func_name, range, entry, parts) {
        tree.expr = Expr::Comprehension(Box::new(made));
    }
}

/// Puts one of a pair in the place of a variable.
fn replace_variable(tree: &mut IdedExpr, name: &str, entry: &str, position: i64) {
    match &mut tree.expr {
        Expr::Ident(found) if found == name => {
            *tree = call_of(operators::INDEX, vec![ident_of(entry), integer_of(position)]);
        }
        // An inner loop hides the name.
        Expr::Comprehension(inner) if inner.iter_var == name => {
            replace_variable(&mut inner.iter_range, name, entry, position);
        }
        _ => parts_of_mut(tree).into_iter().for_each(|part| replace_variable(part, name, entry, position)),
    }
}

fn make_loop(macro_name: &str, range: IdedExpr, entry: String, mut parts: Vec<IdedExpr>) -> Option<ComprehensionExpr> {
    let body = parts.pop()?;
    let filter = parts.pop();
    let so_far = || ident_of(RESULT);
    let made = |init: IdedExpr, cond: IdedExpr, step: IdedExpr, result: IdedExpr| ComprehensionExpr {
        iter_range: call_of("@entries", vec![range.clone()]),
        iter_var: entry.clone(),
        iter_var2: None,
        accu_var: RESULT.to_owned(),
        accu_init: init,
        loop_cond: cond,
        loop_step: step,
        result,
    };
    let gathered = |init: Expr, step: IdedExpr| {
        let step = match filter.clone() {
            Some(filter) => call_of(operators::CONDITIONAL, vec![filter, step, so_far()]),
            None => step,
        };
        made(made_of(init), boolean_of(true), step, so_far())
    };
    Some(match macro_name {
        "all" => {
            let goes_on = call_of(operators::NOT_STRICTLY_FALSE, vec![so_far()]);
            let step = call_of(operators::LOGICAL_AND, vec![so_far(), body]);
            made(boolean_of(true), goes_on, step, so_far())
        }
        "exists" => {
            let not = call_of(operators::LOGICAL_NOT, vec![so_far()]);
            let goes_on = call_of(operators::NOT_STRICTLY_FALSE, vec![not]);
            made(boolean_of(false), goes_on, call_of(operators::LOGICAL_OR, vec![so_far(), body]), so_far())
        }
        "existsOne" | "exists_one" => {
            let more = call_of(operators::ADD, vec![so_far(), integer_of(1)]);
            let step = call_of(operators::CONDITIONAL, vec![body, more, so_far()]);
            let result = call_of(operators::EQUALS, vec![so_far(), integer_of(1)]);
            made(integer_of(0), boolean_of(true), step, result)
        }
        "transformList" => {
            let step = call_of(operators::ADD, vec![so_far(), made_of(Expr::List(ListExpr::new(vec![body])))]);
            gathered(Expr::List(ListExpr::new(Vec::new())), step)
        }
        "transformMap" => {
            let key = call_of(operators::INDEX, vec![ident_of(&entry), integer_of(0)]);
            let added = EntryExpr::MapEntry(MapEntryExpr { key, value: body, optional: false });
            let added = Expr::Map(MapExpr { entries: vec![IdedEntryExpr { id: 0, expr: added }] });
            gathered(Expr::Map(MapExpr::default()), call_of("@merge", vec![so_far(), made_of(added)]))
        }
        _ => gathered(Expr::Map(MapExpr::default()), call_of("@merge", vec![so_far(), body])),
    })
}

fn made_of(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn ident_of(name: &str) -> IdedExpr {
    made_of(Expr::Ident(name.to_owned()))
}

fn text_of(text: &str) -> IdedExpr {
    made_of(Expr::Literal(LiteralValue::String(text.into())))
}

fn boolean_of(value: bool) -> IdedExpr {
    made_of(Expr::Literal(LiteralValue::Boolean(value.into())))
}

fn integer_of(value: i64) -> IdedExpr {
    made_of(Expr::Literal(LiteralValue::Int(value.into())))
}

fn call_of(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    made_of(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
}

/// The functions that the loops call, and what CEL counts otherwise than the library: a text has as many elements as
/// characters.
pub fn register_loops(context: &mut Context<'_>) {
    context.add_function("@entries", list_entries);
    context.add_function("@merge", merge_maps);
    context.add_function("@optional", find_first);
    context.add_function("@present", list_present);
    context.add_function("type", |value: CelValue| type_text(type_name(&value)));
    context.add_function("string", |value: CelValue| text_of_value(&value));
    context.add_function("dyn", |value: CelValue| Ok::<CelValue, ExecutionError>(value));
    context.add_function("size", |This(this): This<CelValue>| count_elements(&this));
}

fn type_name(value: &CelValue) -> &'static str {
    match value {
        CelValue::Bool(_) => "bool",
        CelValue::Bytes(_) => "bytes",
        CelValue::Float(_) => "double",
        CelValue::Int(_) => "int",
        CelValue::List(_) => "list",
        CelValue::Map(_) => "map",
        CelValue::Null => "null_type",
        CelValue::String(_) => "string",
        CelValue::UInt(_) => "uint",
        _ => "dyn",
    }
}

/// `string` of a value, as cel-go writes it.
fn text_of_value(value: &CelValue) -> Result<CelValue, ExecutionError> {
    let text = match value {
        CelValue::String(text) => text.to_string(),
        CelValue::Bool(flag) => flag.to_string(),
        CelValue::Int(number) => number.to_string(),
        CelValue::UInt(number) => number.to_string(),
        CelValue::Float(number) => crate::yaml::go_float(*number),
        CelValue::Bytes(bytes) => String::from_utf8(bytes.to_vec()).map_err(|_| {
            ExecutionError::function_error("string", "invalid UTF-8 in bytes, cannot convert to string")
        })?,
        CelValue::Timestamp(time) => {
            let nanos = i32::try_from(time.timestamp_subsec_nanos()).unwrap_or_default();
            jiff::Timestamp::new(time.timestamp(), nanos).map(|time| time.to_string()).unwrap_or_default()
        }
        CelValue::Duration(length) => {
            let (seconds, nanos) = (length.num_seconds(), length.subsec_nanos());
            let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
            let fraction = format!(".{:09}", nanos.unsigned_abs());
            format!("{sign}{}{}s", seconds.unsigned_abs(), fraction.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(CelValue::String(Arc::new(text)))
}

fn count_elements(value: &CelValue) -> Result<i64, ExecutionError> {
    let count = match value {
        CelValue::String(text) => text.chars().count(),
        CelValue::List(items) => items.len(),
        CelValue::Map(map) => map.map.len(),
        CelValue::Bytes(bytes) => bytes.len(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(i64::try_from(count).unwrap_or(i64::MAX))
}

fn list_entries(context: &FunctionContext<'_, '_>) -> Result<CelValue, ExecutionError> {
    let [range] = context.args else { return Err(ExecutionError::NoSuchOverload) };
    let pair = |key: CelValue, value: &CelValue| CelValue::List(Arc::new(vec![key, value.clone()]));
    let entries = match CelValue::resolve(range, context.ptx)? {
        CelValue::List(items) => (0i64..).zip(items.iter()).map(|(i, item)| pair(CelValue::Int(i), item)).collect(),
        CelValue::Map(map) => map.map.iter().map(|(key, value)| pair(CelValue::from(key), value)).collect(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(CelValue::List(Arc::new(entries)))
}

fn list_present(context: &FunctionContext<'_, '_>) -> Result<CelValue, ExecutionError> {
    let [target] = context.args else { return Err(ExecutionError::NoSuchOverload) };
    let target = CelValue::resolve(target, context.ptx)?;
    let present = <&OptionalValue>::try_from(&target)?.value().cloned();
    Ok(CelValue::List(Arc::new(present.into_iter().collect())))
}

fn find_first(context: &FunctionContext<'_, '_>) -> Result<CelValue, ExecutionError> {
    let [list] = context.args else { return Err(ExecutionError::NoSuchOverload) };
    let CelValue::List(list) = CelValue::resolve(list, context.ptx)? else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let found = list.first().cloned().map_or_else(OptionalValue::none, OptionalValue::of);
    Ok(CelValue::Opaque(Arc::new(found)))
}

fn merge_maps(context: &FunctionContext<'_, '_>) -> Result<CelValue, ExecutionError> {
    let [gathered, added] = context.args else { return Err(ExecutionError::NoSuchOverload) };
    let values = (CelValue::resolve(gathered, context.ptx)?, CelValue::resolve(added, context.ptx)?);
    let (CelValue::Map(gathered), CelValue::Map(added)) = values else { return Err(ExecutionError::NoSuchOverload) };
    let mut map: HashMap<Key, CelValue> = (*gathered.map).clone();
    for (key, value) in added.map.iter() {
        if map.insert(key.clone(), value.clone()).is_some() {
            let why = format!("insert failed: key {key} already exists");
            return Err(ExecutionError::function_error("@merge", why));
        }
    }
    Ok(CelValue::Map(Map { map: Arc::new(map) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_cel::cel::parser::Parser;

    fn value_of(source: &str) -> CelValue {
        let mut tree = Parser::default().parse(source).unwrap();
        expand_loops(&mut tree);
        let mut context = Context::default();
        register_loops(&mut context);
        CelValue::resolve(&tree, &context).unwrap()
    }

    #[test]
    fn a_loop_sees_keys_and_values() {
        assert_eq!(value_of("[1, 2].all(i, v, v > i)"), CelValue::Bool(true));
        assert_eq!(value_of("{'a': 1}.exists(k, v, k == 'a' && v == 2)"), CelValue::Bool(false));
        assert_eq!(value_of("[1, 1].existsOne(i, v, i == v)"), CelValue::Bool(true));
        assert_eq!(value_of("[5, 7].transformList(i, v, i + v) == [5, 8]"), CelValue::Bool(true));
        assert_eq!(value_of("[5, 7].transformList(i, v, i > 0, v) == [7]"), CelValue::Bool(true));
        assert_eq!(value_of("{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}"), CelValue::Bool(true));
        assert_eq!(value_of("['x'].transformMapEntry(i, v, {v: i}) == {'x': 0}"), CelValue::Bool(true));
    }

    #[test]
    fn a_value_is_a_text_as_go_writes_it() {
        for (source, told) in [
            ("true", "true"),
            ("1.0e20", "1e+20"),
            ("0.5", "0.5"),
            ("timestamp('2024-05-06T07:08:09.5Z')", "2024-05-06T07:08:09.5Z"),
            ("duration('1h30m')", "5400s"),
            ("duration('-1500ms')", "-1.5s"),
            ("b'abc'", "abc"),
        ] {
            assert_eq!(value_of(&format!("string({source})")), CelValue::String(Arc::new(told.to_owned())), "{source}");
        }
    }

    #[test]
    fn a_value_has_a_type_that_can_be_named() {
        assert_eq!(value_of("type(1) == int && type('a') != int && type({}) == map"), CelValue::Bool(true));
        assert_eq!(value_of("type('5%') == string ? '5%'.startsWith('5') : false"), CelValue::Bool(true));
        assert_eq!(value_of("type([1]) == type([2]) && type(null) == null_type"), CelValue::Bool(true));
    }

    fn optional_tree(source: &str) -> IdedExpr {
        let mut tree = Parser::default().enable_optional_syntax(true).parse(source).unwrap();
        expand_loops(&mut tree);
        tree
    }

    #[test]
    fn a_value_that_may_be_missing_is_mapped_where_it_is_there() {
        let mut context = Context::default();
        register_loops(&mut context);
        for (source, wanted) in [
            ("optional.of(2).optMap(x, x + 1).value()", 3),
            ("optional.none().optMap(x, x + 1).orValue(7)", 7),
            ("optional.of(2).optFlatMap(x, optional.of(x * 2)).value()", 4),
            ("optional.of(2).optFlatMap(x, optional.none()).orValue(7)", 7),
            ("optional.of(2).optMap(x, optional.of(x + 1).optMap(x, x * 5).value() + x).value()", 17),
        ] {
            assert_eq!(CelValue::resolve(&optional_tree(source), &context).unwrap(), CelValue::Int(wanted), "{source}");
        }
    }

    #[test]
    fn an_inner_variable_of_a_name_is_not_taken_for_the_outer_one() {
        let mut context = Context::default();
        register_loops(&mut context);
        for (source, wanted) in [
            ("[5].all(v, optional.of(v).optMap(n, [1, 2].exists(v, v == n)).value())", false),
            ("[5].all(v, optional.of(v).optMap(n, [1, 5].exists(v, v == n)).value())", true),
            ("[5].all(i, v, optional.of(v).optMap(i, i == 5 && v == 5).value())", true),
        ] {
            assert_eq!(
                CelValue::resolve(&optional_tree(source), &context).unwrap(),
                CelValue::Bool(wanted),
                "{source}"
            );
        }
    }

    /// Each step had the one before it three times within.
    #[test]
    fn a_chain_of_mapped_values_grows_by_its_length() {
        fn count_nodes(tree: &IdedExpr) -> usize {
            1 + parts_of(tree).into_iter().map(count_nodes).sum::<usize>()
        }
        let nodes = |links: usize| {
            let chain = ".optMap(a, a + a)".repeat(links);
            count_nodes(&optional_tree(&format!("optional.of(1){chain}.hasValue()")))
        };
        assert!(nodes(8) <= 2 * nodes(4), "{} {}", nodes(4), nodes(8));
    }

    #[test]
    fn loops_within_loops_have_their_own_variables() {
        assert_eq!(value_of("[[1], [2]].all(i, v, v.all(j, w, w == i + 1 && j == 0))"), CelValue::Bool(true));
        assert_eq!(value_of("[3].all(i, v, [9].all(v, v == 9) && v == 3)"), CelValue::Bool(true));
    }
}
