//! Label and field selectors: their grammar, their errors, what they match (`apimachinery/pkg/labels`, `pkg/fields`).

use serde_json::Value;

use crate::resource::Resource;

/// A conjunction of requirements; empty matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    pub fn parse(text: &str) -> Result<Self, String> {
        Parser { tokens: lex_selector(text), at: 0 }.selector().map(Self)
    }

    /// A `metav1.LabelSelector` (matchLabels and matchExpressions); `None` when it is not one.
    pub fn from_value(value: &Value) -> Option<Self> {
        let mut requirements = Vec::new();
        for (key, wanted) in value.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            requirements.push(Requirement { key: key.clone(), test: Test::In(vec![wanted.as_str()?.to_owned()]) });
        }
        for expression in value.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let key = expression.get("key")?.as_str()?.to_owned();
            let values = || -> Vec<String> {
                let values = expression.get("values").and_then(Value::as_array);
                values.into_iter().flatten().filter_map(|v| v.as_str().map(Into::into)).collect()
            };
            let test = match expression.get("operator")?.as_str()? {
                "In" => Test::In(values()),
                "NotIn" => Test::NotIn(values()),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::Absent,
                _ => return None,
            };
            requirements.push(Requirement { key, test });
        }
        Some(Self(requirements))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object's labels satisfy every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.is_empty() || {
            let labels = object.get("metadata").and_then(|m| m.get("labels"));
            self.matches_labels(labels)
        }
    }

    pub fn matches_labels(&self, labels: Option<&Value>) -> bool {
        self.0.iter().all(|r| r.holds(labels.and_then(|l| l.get(&r.key)).and_then(Value::as_str)))
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
            Test::NotIn(values) => value.is_none_or(|v| !values.iter().any(|w| w == v)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Greater(bound) => number().is_some_and(|n| n > *bound),
            Test::Less(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    End,
}

impl Token {
    fn literal(&self) -> &str {
        match self {
            Token::Word(word) => word,
            Token::Symbol(symbol) => symbol,
            Token::End => "",
        }
    }
}

fn lex_selector(text: &str) -> Vec<Token> {
    const SYMBOLS: [&str; 10] = ["==", "!=", "=", "!", "(", ")", ",", "<", ">", "!"];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.iter().find(|s| rest.starts_with(**s)) {
            tokens.push(Token::Symbol(symbol));
            rest = rest.get(symbol.len()..).unwrap_or_default();
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "=!(),<>".contains(c)).unwrap_or(rest.len());
            let (word, tail) = rest.split_at(end);
            tokens.push(Token::Word(word.to_owned()));
            rest = tail;
        }
        rest = rest.trim_start();
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.at).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {
                    let requirement = self.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
                    requirements.push(requirement);
                    match self.next() {
                        Token::End => return Ok(requirements),
                        Token::Symbol(",") => {
                            let after = self.peek();
                            if !matches!(after, Token::Word(_) | Token::Symbol("!")) {
                                return Err(format!("found '{}', expected: identifier after ','", after.literal()));
                            }
                        }
                        other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.literal())),
                    }
                }
                Token::End => return Ok(requirements),
                other @ Token::Symbol(_) => {
                    return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.literal()));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == Token::Symbol("!");
        if negated {
            self.at += 1;
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => return Err(format!("found '{}', expected: identifier", other.literal())),
        };
        let problems = crate::meta::qualified_name_problems(&key);
        if !problems.is_empty() {
            let why = problems.join("; ");
            return Err(format!("<nil>: Invalid value: {}: {why}", crate::error::go_quote(&key)));
        }
        if negated {
            return Ok(Requirement { key, test: Test::Absent });
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(Requirement { key, test: Test::Exists });
        }
        let operator = self.next();
        let test = match (&operator, operator.literal()) {
            (Token::Symbol(_), "=" | "==") => Test::In(vec![self.value()?]),
            (Token::Symbol(_), "!=") => Test::NotIn(vec![self.value()?]),
            (Token::Word(_), "in") => Test::In(self.values()?),
            (Token::Word(_), "notin") => Test::NotIn(self.values()?),
            (Token::Symbol(_), ">") => Test::Greater(self.number()?),
            (Token::Symbol(_), "<") => Test::Less(self.number()?),
            (_, found) => return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        let number = match &test {
            Test::Greater(bound) | Test::Less(bound) => Some(bound.to_string()),
            _ => None,
        };
        let values: &[String] = match &test {
            Test::In(values) | Test::NotIn(values) => values,
            _ => number.as_slice(),
        };
        for value in values {
            if let Some(problem) = crate::meta::label_value_problems(value).first() {
                let shown = crate::error::go_quote(value);
                return Err(format!("values[0][{key}]: Invalid value: {shown}: {problem}"));
            }
        }
        Ok(Requirement { key, test })
    }

    /// The value after `=`, which may be empty.
    fn value(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::Word(word) => {
                self.at += 1;
                Ok(word)
            }
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Symbol(other) => Err(format!("found '{other}', expected: identifier")),
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        let text = self.value()?;
        text.parse().map_err(|_| {
            format!(
                "values[0]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                crate::error::go_quote(&text)
            )
        })
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.literal())),
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value_in_list()?);
            match self.next() {
                Token::Symbol(",") => {}
                Token::Symbol(")") => return Ok(values),
                other => return Err(format!("found '{}', expected: ',' or ')'", other.literal())),
            }
        }
    }

    fn value_in_list(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::Word(word) => {
                self.at += 1;
                Ok(word)
            }
            Token::Symbol("," | ")") => Ok(String::new()),
            other => Err(format!("found '{}', expected: ',', ')' or identifier", other.literal())),
        }
    }
}

/// A conjunction of `path = value` and `path != value`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    path: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Parses and checks that the kind has the fields.
    pub fn parse(text: &str, resource: &Resource) -> Result<Self, String> {
        let mut terms = Vec::new();
        let mut parts = split_unescaped(text, ',');
        // In order: the first that is wrong is told.
        parts.sort_unstable();
        for part in parts {
            if part.is_empty() {
                continue;
            }
            let (path, value, equal) = split_operator(&part)
                .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{part}'"))?;
            let value = unescape_value(&value)?;
            // A term without anything asks for nothing.
            if path.is_empty() && value.is_empty() {
                continue;
            }
            check_supported(resource, &path)?;
            terms.push(Term { path, value, equal });
        }
        Ok(Self(terms))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one name it asks for, if any.
    pub fn name(&self) -> Option<&str> {
        self.0.iter().find(|t| t.equal && t.path == "metadata.name").map(|t| t.value.as_str())
    }

    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|t| (field_text(object, &t.path) == t.value) == t.equal)
    }
}

/// The text of a field; absent is empty.
fn field_text(object: &Value, path: &str) -> String {
    let path = match path {
        "involvedObject.name" | "regarding.name" => path,
        // `source` of an Event is its component, wherever it is written.
        "source" => "source.component",
        other => other,
    };
    let found = path.trim_start_matches('.').split('.').try_fold(object, |value, part| value.get(part));
    match found {
        None | Some(Value::Null) => default_text(path),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Booleans that are absent read as false.
fn default_text(path: &str) -> String {
    if matches!(path, "spec.unschedulable" | "spec.hostNetwork") { "false".into() } else { String::new() }
}

fn split_unescaped(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == separator && !escaped {
            parts.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts
}

fn split_operator(part: &str) -> Option<(String, String, bool)> {
    let at = part.find(['=', '!'])?;
    let (path, rest) = part.split_at(at);
    for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some(value) = rest.strip_prefix(operator) {
            return Some((path.to_owned(), value.to_owned(), equal));
        }
    }
    None
}

fn unescape_value(value: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(format!("invalid field selector: invalid escape sequence: \\{c}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".into()),
            },
            // Go prints the number of the character here.
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Which fields a kind can be selected by, and the error for the others.
fn check_supported(resource: &Resource, path: &str) -> Result<(), String> {
    if let Some(custom) = &resource.custom {
        let ok = path == "metadata.name"
            || (path == "metadata.namespace" && resource.namespaced)
            || custom.selectable_fields.iter().any(|f| f.trim_start_matches('.') == path);
        return if ok { Ok(()) } else { Err(format!("field label not supported: {path}")) };
    }
    if path == "metadata.name" || (path == "metadata.namespace" && (resource.namespaced || resource.plural != "nodes"))
    {
        return Ok(());
    }
    let known: &[&str] = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") => &["status.replicas"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("batch", "jobs") => &["status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        _ => {
            return Err(format!(
                "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                crate::error::go_quote(path)
            ));
        }
    };
    if known.contains(&path) {
        return Ok(());
    }
    Err(match resource.plural.as_str() {
        "jobs" => format!("field label {} not supported for Job", crate::error::go_quote(path)),
        _ => format!("field label not supported: {path}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn matches(selector: &str, labels: &Value) -> bool {
        LabelSelector::parse(selector).unwrap().matches(&json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn every_operator_matches_as_documented() {
        assert!(matches("a=1,b!=2", &json!({"a": "1"})));
        assert!(!matches("a=1,b!=2", &json!({"a": "1", "b": "2"})));
        assert!(matches("x in (1,3)", &json!({"x": "3"})));
        assert!(matches("x notin (1,3)", &json!({})));
        assert!(matches("a,!b", &json!({"a": ""})));
        assert!(matches("n>3,n<5", &json!({"n": "4"})));
        assert!(matches("a=", &json!({"a": ""})));
        assert!(matches("", &json!({})));
    }

    #[test]
    fn a_bound_is_a_label_value_too() {
        let why = LabelSelector::parse("x<-1").unwrap_err();
        assert!(why.starts_with("unable to parse requirement: values[0][x]: Invalid value: \"-1\""), "{why}");
        assert!(LabelSelector::parse("a/b/c").unwrap_err().contains("<nil>: Invalid value"));
    }

    #[test]
    fn a_field_selector_escapes_what_separates() {
        let configmaps = crate::builtin::builtin_registry().get("", "v1", "configmaps").unwrap().clone();
        let parse = |text: &str| FieldSelector::parse(text, &configmaps).map(|s| s.is_empty());
        assert_eq!(parse("="), Ok(true));
        assert_eq!(parse(r"metadata.name=a\,b"), Ok(false));
        assert_eq!(parse("metadata.name=a=b"), Err("invalid field selector: unescaped character in value: 61".into()));
    }

    #[test]
    fn a_bad_selector_says_what_was_found() {
        assert_eq!(
            LabelSelector::parse("a b").unwrap_err(),
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
        );
        assert!(LabelSelector::parse("a in 1").is_err());
        assert!(LabelSelector::parse("a,").is_err());
    }
}
