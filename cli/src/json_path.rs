//! Paths into JSON as kubectl's `-o jsonpath=` and `--sort-by` write them: the part of the language that names fields.
//!
//! Rules (`k8s.io/client-go/util/jsonpath`, `kubectl/pkg/cmd/get`):
//! 1. Outside of braces a template is text. `{.a.b}`, `{.a[0]}`, `{.a[-1]}`, `{.a[*].b}` and `{['a.b']}` print what is
//!    there, values of one path with a space between: strings as they are, others as JSON. `{"\n"}` is text, and
//!    `{range .a[*]}` to `{end}` is done for each value. What is not there prints nothing.
//! 2. Filters, slices, unions and `..` are not understood, and are refused.
//! 3. Rows are sorted by the first value of a path: amounts and numbers by size, others as texts, those without one
//!    last. Rows that are equal stay in their order.

use std::{cmp::Ordering, fmt::Write as _, iter::Peekable, str::Chars};

use anyhow::Context;
use caldera_core::quantity::Quantity;
use serde::Serialize;
use serde_json::Value;

/// Where values are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath {
    text: String,
    steps: Vec<PathStep>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PathStep {
    Field(String),
    /// From the end if below 0.
    Index(i64),
    All,
}

impl JsonPath {
    /// Reads `.a.b[0]`, with or without braces, `$` or the first dot.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bare = text.trim();
        let bare = bare.strip_prefix('{').and_then(|bare| bare.strip_suffix('}')).unwrap_or(bare).trim();
        let bare = bare.strip_prefix(['$', '@']).unwrap_or(bare);
        let dot = if bare.is_empty() || bare.starts_with(['.', '[']) { "" } else { "." };
        let dotted = format!("{dot}{bare}");
        let (mut chars, mut steps) = (dotted.chars().peekable(), Vec::new());
        while let Some(c) = chars.next() {
            let step = match c {
                '.' if chars.peek() == Some(&'[') => continue,
                '.' => read_field(&mut chars),
                '[' => read_subscript(&mut chars),
                _ => None,
            };
            steps.push(step.ok_or_else(|| format!("{text:?} is no path like .a.b[0] or .a[*].b"))?);
        }
        Ok(Self { text: text.to_owned(), steps })
    }

    /// All values there.
    #[must_use]
    pub fn list_values<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![value];
        for step in &self.steps {
            let next: Vec<&Value> = match step {
                PathStep::Field(name) => found.into_iter().filter_map(|one| one.get(name)).collect(),
                PathStep::All => found.into_iter().flat_map(list_children).collect(),
                PathStep::Index(at) => found.into_iter().filter_map(|one| find_element(one.as_array()?, *at)).collect(),
            };
            found = next;
        }
        found
    }
}

fn read_field(chars: &mut Peekable<Chars<'_>>) -> Option<PathStep> {
    let mut name = String::new();
    while let Some(c) = chars.next_if(|c| !['.', '['].contains(c)) {
        name.push(if c == '\\' { chars.next()? } else { c });
    }
    match name.as_str() {
        "" => None,
        "*" => Some(PathStep::All),
        _ => Some(PathStep::Field(name)),
    }
}

fn read_subscript(chars: &mut Peekable<Chars<'_>>) -> Option<PathStep> {
    let mut inside = String::new();
    loop {
        match chars.next()? {
            ']' => break,
            c => inside.push(c),
        }
    }
    let quoted = ['\'', '"'].into_iter().find_map(|quote| inside.strip_prefix(quote)?.strip_suffix(quote));
    match (inside.as_str(), quoted) {
        ("*", _) => Some(PathStep::All),
        (_, Some(name)) => Some(PathStep::Field(name.to_owned())),
        (number, None) => number.parse().ok().map(PathStep::Index),
    }
}

fn list_children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(all) => all.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

fn find_element(all: &[Value], at: i64) -> Option<&Value> {
    let from_start = if at < 0 { i64::try_from(all.len()).ok()?.checked_add(at)? } else { at };
    all.get(usize::try_from(from_start).ok()?)
}

/// A template of `-o jsonpath=`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonTemplate(Vec<TemplatePart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Values(JsonPath),
    Range(JsonPath, Vec<Self>),
}

impl JsonTemplate {
    /// Reads one.
    ///
    /// # Errors
    /// With the part that is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The template, and each range that is open in it.
        let mut open: Vec<(Option<JsonPath>, Vec<TemplatePart>)> = vec![(None, Vec::new())];
        let mut rest = text;
        while !rest.is_empty() {
            let (plain, after) = rest.split_once('{').unwrap_or((rest, ""));
            let has_expression = plain.len() < rest.len();
            let mut parts = vec![TemplatePart::Text(plain.to_owned())];
            rest = after;
            if has_expression {
                let (inside, after) = split_expression(after).ok_or("a { has no }")?;
                rest = after;
                match inside.split_once(' ').unwrap_or((inside, "")) {
                    ("range", path) => {
                        append_parts(&mut open, parts);
                        open.push((Some(JsonPath::parse(path)?), Vec::new()));
                        continue;
                    }
                    ("end", "") => {
                        append_parts(&mut open, std::mem::take(&mut parts));
                        let Some((Some(path), body)) = open.pop() else { return Err("{end} ends no {range}".into()) };
                        parts.push(TemplatePart::Range(path, body));
                    }
                    _ if inside.starts_with(['"', '\'']) => parts.push(TemplatePart::Text(read_quoted(inside)?)),
                    _ => parts.push(TemplatePart::Values(JsonPath::parse(inside)?)),
                }
            }
            append_parts(&mut open, parts);
        }
        match (open.pop(), open.is_empty()) {
            (Some((None, parts)), true) => Ok(Self(parts)),
            _ => Err("a {range} has no {end}".to_owned()),
        }
    }

    /// What it prints of a value.
    #[must_use]
    pub fn fill(&self, value: &Value) -> String {
        let mut out = String::new();
        write_parts(&self.0, value, &mut out);
        out
    }
}

fn append_parts(open: &mut [(Option<JsonPath>, Vec<TemplatePart>)], parts: Vec<TemplatePart>) {
    if let Some((_, inner)) = open.last_mut() {
        inner.extend(parts.into_iter().filter(|part| *part != TemplatePart::Text(String::new())));
    }
}

/// What is inside of the brace that was opened, trimmed, and what follows it. Quotes may hold braces.
fn split_expression(text: &str) -> Option<(&str, &str)> {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.char_indices() {
        match quote {
            _ if std::mem::take(&mut escaped) => {}
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == '}' => return Some((text[..at].trim(), &text[at + 1..])),
            _ => {}
        }
    }
    None
}

fn read_quoted(text: &str) -> Result<String, String> {
    let quote = text.chars().next().unwrap_or('"');
    let inner = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    let mut chars = inner.ok_or_else(|| format!("{text} has no second quote"))?.chars();
    let mut said = String::new();
    while let Some(c) = chars.next() {
        said.push(match (c, if c == '\\' { chars.next() } else { None }) {
            (_, Some('n')) => '\n',
            (_, Some('t')) => '\t',
            (_, Some(other)) => other,
            (c, None) => c,
        });
    }
    Ok(said)
}

fn write_parts(parts: &[TemplatePart], value: &Value, out: &mut String) {
    for part in parts {
        match part {
            TemplatePart::Text(text) => out.push_str(text),
            TemplatePart::Range(path, body) => {
                path.list_values(value).iter().for_each(|one| write_parts(body, one, out));
            }
            TemplatePart::Values(path) => {
                for (at, one) in path.list_values(value).into_iter().enumerate() {
                    let gap = if at == 0 { "" } else { " " };
                    let _ = match one {
                        Value::String(text) => write!(out, "{gap}{text}"),
                        Value::Null => write!(out, "{gap}"),
                        other => write!(out, "{gap}{other}"),
                    };
                }
            }
        }
    }
}

/// Sorts rows by the value of a path in each: rule 3.
///
/// # Errors
/// If there are rows, and none has such a value.
pub fn sort_rows<T: Serialize>(rows: &mut Vec<T>, by: &JsonPath) -> anyhow::Result<()> {
    let mut keyed = Vec::new();
    let mut fields = String::new();
    for row in std::mem::take(rows) {
        let value = serde_json::to_value(&row).context("failed to write JSON")?;
        if let (true, Some(all)) = (fields.is_empty(), value.as_object()) {
            fields = all.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        }
        let key = by.list_values(&value).into_iter().find(|value| !value.is_null()).cloned();
        keyed.push((key, row));
    }
    let is_known = keyed.is_empty() || keyed.iter().any(|(key, _)| key.is_some());
    anyhow::ensure!(is_known, "no row has a field {:?} to sort by; there are {fields}", by.text);
    keyed.sort_by(|(a, _), (b, _)| match (a, b) {
        (Some(a), Some(b)) => compare_values(a, b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
    rows.extend(keyed.into_iter().map(|(_, row)| row));
    Ok(())
}

fn compare_values(a: &Value, b: &Value) -> Ordering {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (a, b) = (text(a), text(b));
    match (a.parse::<Quantity>(), b.parse::<Quantity>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        // Amounts before words, so that the order is one whatever is compared first.
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(&b),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn queues() -> Value {
        json!({"queues": [
            {"name": "a", "jobs": {"waiting": 10}, "used": {"nvidia.com/gpu": "4"}},
            {"name": "b", "jobs": {"waiting": 9}, "tags": ["x", "y"]},
        ]})
    }

    #[test]
    fn a_template_prints_what_kubectl_would_print_of_it() {
        for (template, printed) in [
            ("{.queues[*].name}", "a b"),
            ("{$.queues[0].jobs.waiting}", "10"),
            ("{.queues[-1].tags}", "[\"x\",\"y\"]"),
            ("{.queues[0].used.nvidia\\.com/gpu}", "4"),
            ("{.queues[0].used['nvidia.com/gpu']}", "4"),
            ("{range .queues[*]}{.name}{\"\\t\"}{.jobs.waiting}{'\\n'}{end}", "a\t10\nb\t9\n"),
            ("{range .queues[*]}{range .tags[*]}<{@}>{end}{end}", "<x><y>"),
            ("all: {.queues[*].jobs.*} {\"}\"}", "all: 10 9 }"),
            ("{.nothing}{.queues[7].name}", ""),
            ("plain", "plain"),
        ] {
            assert_eq!(JsonTemplate::parse(template).unwrap().fill(&queues()), printed, "{template}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for template in
            ["{.a", "{.a..b}", "{.a[?(@.b==1)]}", "{.a[1:2]}", "{range .a[*]}", "{end}", "{\"a}", "{.a[}", "{.a[0,1]}"]
        {
            assert!(JsonTemplate::parse(template).is_err(), "{template}");
        }
    }

    #[test]
    fn rows_are_sorted_by_size_or_text_and_those_without_a_value_come_last() {
        let sorted = |path: &str, rows: Value| {
            let mut rows: Vec<Value> = rows.as_array().unwrap().clone();
            sort_rows(&mut rows, &JsonPath::parse(path).unwrap()).map(|()| rows).map_err(|error| error.to_string())
        };
        let by = |path: &str, rows: Value| -> Vec<String> {
            sorted(path, rows).unwrap().iter().map(|row| row["n"].as_str().unwrap().to_owned()).collect()
        };
        let rows = json!([{"n": "a", "w": 10}, {"n": "b"}, {"n": "c", "w": 9}, {"n": "d", "w": null}]);
        for path in ["w", ".w", "{.w}"] {
            assert_eq!(by(path, rows.clone()), ["c", "a", "b", "d"], "{path}");
        }
        let amounts = json!([{"n": "a", "cpu": "2"}, {"n": "b", "cpu": "500m"}, {"n": "c", "cpu": "1k"}]);
        assert_eq!(by("cpu", amounts), ["b", "a", "c"]);
        assert_eq!(by("n", json!([{"n": "b"}, {"n": "a"}])), ["a", "b"]);
        assert!(sorted("x", json!([{"n": "b"}])).unwrap_err().contains("there are n"));
        assert_eq!(sorted("x", json!([])), Ok(vec![]));
    }
}
