//! The part of JSONPath that printer columns use: members, indexes, `[*]`, unions of members and filters
//! (`client-go/util/jsonpath`).

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Member(String),
    Index(i64),
    Each,
    /// Those of these members that there are, in this order.
    Union(Vec<String>),
    /// The value and all below it.
    Deep,
    Filter {
        path: Vec<Step>,
        test: Option<(Operator, Value)>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath(Vec<Step>);

impl JsonPath {
    /// `None` when the path is not in the supported part.
    pub fn parse(text: &str) -> Option<JsonPath> {
        let text = text.trim();
        let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        parse_steps(inner.strip_prefix('$').unwrap_or(inner)).map(JsonPath)
    }

    /// All values at the path, in document order; missing members give nothing.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        walk_path(&self.0, value)
    }
}

fn walk_path<'v>(path: &[Step], value: &'v Value) -> Vec<&'v Value> {
    let mut found = vec![value];
    for step in path {
        found = found.into_iter().flat_map(|v| apply_step(step, v)).collect();
    }
    found
}

fn apply_step<'v>(step: &Step, value: &'v Value) -> Vec<&'v Value> {
    match step {
        Step::Member(name) => value.get(name).into_iter().collect(),
        Step::Union(names) => names.iter().filter_map(|name| value.get(name)).collect(),
        Step::Index(i) => {
            let list = value.as_array().map_or(&[][..], Vec::as_slice);
            let length = i64::try_from(list.len()).unwrap_or(0);
            let at = if *i < 0 { length + i } else { *i };
            usize::try_from(at).ok().and_then(|at| list.get(at)).into_iter().collect()
        }
        Step::Each => match value {
            Value::Array(list) => list.iter().collect(),
            Value::Object(members) => members.values().collect(),
            _ => Vec::new(),
        },
        Step::Deep => {
            let mut all = vec![value];
            let below: Vec<&Value> = match value {
                Value::Array(list) => list.iter().collect(),
                Value::Object(members) => members.values().collect(),
                _ => Vec::new(),
            };
            all.extend(below.into_iter().flat_map(|v| apply_step(step, v)));
            all
        }
        Step::Filter { path, test } => {
            let list = value.as_array().map_or(&[][..], Vec::as_slice);
            list.iter().filter(|v| filter_holds(path, test.as_ref(), v)).collect()
        }
    }
}

fn filter_holds(path: &[Step], test: Option<&(Operator, Value)>, value: &Value) -> bool {
    let found = walk_path(path, value);
    let Some((operator, wanted)) = test else { return !found.is_empty() };
    let Some(actual) = found.first() else { return false };
    let order = match (actual, wanted) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    };
    match (operator, order) {
        (Operator::Equal, order) => order.is_some_and(std::cmp::Ordering::is_eq),
        (Operator::NotEqual, order) => order.is_none_or(std::cmp::Ordering::is_ne),
        (Operator::Less, Some(order)) => order.is_lt(),
        (Operator::LessOrEqual, Some(order)) => order.is_le(),
        (Operator::Greater, Some(order)) => order.is_gt(),
        (Operator::GreaterOrEqual, Some(order)) => order.is_ge(),
        (_, None) => false,
    }
}

fn parse_steps(text: &str) -> Option<Vec<Step>> {
    let mut path = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let end = find_closing(after)?;
            path.push(parse_bracket(after.get(..end)?.trim())?);
            rest = after.get(end + 1..)?;
        } else {
            let deep = rest.strip_prefix("..").filter(|after| !after.is_empty());
            if deep.is_some() {
                path.push(Step::Deep);
            }
            let after = deep.or_else(|| rest.strip_prefix('.')).unwrap_or(rest);
            let (name, tail) = parse_member(after);
            match name.as_str() {
                "" if tail.starts_with('[') || tail.is_empty() => {}
                "" => return None,
                "*" => path.push(Step::Each),
                _ => path.push(Step::Member(name)),
            }
            rest = tail;
        }
    }
    Some(path)
}

/// A member name up to the next `.` or `[`; a backslash takes the next character as it is.
fn parse_member(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return (name, text.get(at..).unwrap_or_default()),
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            c => name.push(c),
        }
    }
    (name, "")
}

/// Where the bracket closes, past quotes and nested brackets.
fn find_closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

fn parse_bracket(inner: &str) -> Option<Step> {
    if inner == "*" {
        return Some(Step::Each);
    }
    if inner.starts_with('\'') && inner.contains(',') {
        let names: Option<Vec<String>> = inner.split(',').map(|name| unquote_text(name.trim())).collect();
        return names.map(Step::Union);
    }
    if let Some(name) = unquote_text(inner) {
        return Some(Step::Member(name));
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
        return filter_step(filter.trim());
    }
    inner.parse().ok().map(Step::Index)
}

fn filter_step(text: &str) -> Option<Step> {
    let found = OPERATORS.iter().filter_map(|(sign, op)| text.find(sign).map(|at| (at, sign, op))).min_by_key(|f| f.0);
    let path_of = |text: &str| parse_steps(text.trim().strip_prefix('@')?);
    let Some((at, sign, operator)) = found else {
        return Some(Step::Filter { path: path_of(text)?, test: None });
    };
    let wanted = text.get(at + sign.len()..)?.trim();
    let value = match unquote_text(wanted) {
        Some(text) => Value::String(text),
        None => serde_json::from_str(wanted).ok()?,
    };
    Some(Step::Filter { path: path_of(text.get(..at)?)?, test: Some((*operator, value)) })
}

fn unquote_text(text: &str) -> Option<String> {
    let inner = ['"', '\''].iter().find_map(|q| text.strip_prefix(*q)?.strip_suffix(*q))?;
    Some(inner.replace("\\\"", "\"").replace("\\'", "'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(path: &str) -> Vec<Value> {
        let object = json!({
            "spec": {"ports": [{"port": 80, "name": "a"}, {"port": 443, "name": "b"}], "a.b": 1},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Done", "status": "False"}]},
        });
        JsonPath::parse(path).unwrap().find(&object).into_iter().cloned().collect()
    }

    #[test]
    fn two_dots_look_everywhere_below() {
        let value = serde_json::json!({"a": {"v": 1}, "b": [{"v": 2}, {"c": {"v": 3}}]});
        let found = JsonPath::parse("..v").unwrap();
        assert_eq!(found.find(&value), [&serde_json::json!(1), &serde_json::json!(2), &serde_json::json!(3)]);
    }

    #[test]
    fn members_indexes_and_all_elements() {
        assert_eq!(found(".spec.ports[0].port"), [json!(80)]);
        assert_eq!(found(".spec.ports[-1].name"), [json!("b")]);
        assert_eq!(found(".spec.ports[*].port"), [json!(80), json!(443)]);
        assert_eq!(found(".spec['a.b']"), [json!(1)]);
        assert_eq!(found(".spec.a\\.b"), [json!(1)]);
        assert_eq!(found(".spec.missing.more"), Vec::<Value>::new());
    }

    #[test]
    fn a_filter_picks_elements_by_a_member() {
        assert_eq!(found(".status.conditions[?(@.type==\"Ready\")].status"), [json!("True")]);
        assert_eq!(found(".status.conditions[?(@.type == 'Done')].status"), [json!("False")]);
        assert_eq!(found(".spec.ports[?(@.port>100)].name"), [json!("b")]);
        assert_eq!(found(".spec.ports[?(@.nope)].name"), Vec::<Value>::new());
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        assert_eq!(JsonPath::parse(".a...b"), None);
        assert_eq!(JsonPath::parse(".a[?("), None);
    }
}
