//! Templates of Helm: two texts as one with a condition, and what Helm makes of the few forms that our templates have,
//! for machines without Helm.
//!
//! Forms: `{{- if E }}`, `{{- with E }}`, `{{- range E }}`, `{{- else }}` and `{{- end }}` on lines of their own, one
//! within another, `{{- fail E }}` on one, and `{{ E }}` inside a line. E is `.`, a path such as `$.Values.image`, a
//! text in double quotes, an E in parentheses, or a function of them, piped or not. An unknown one fails the test that
//! renders it.

use base64::Engine as _;
use serde_json::Value;

/// One text of two: what only one of them has is under the condition.
pub(crate) fn merge_variants(condition: &str, with: &str, without: &str) -> String {
    let (with, without): (Vec<&str>, Vec<&str>) = (with.lines().collect(), without.lines().collect());
    // How many lines both have in common from a line of each on.
    let mut common = vec![vec![0; without.len() + 1]; with.len() + 1];
    for at in (0..with.len()).rev() {
        for of in (0..without.len()).rev() {
            let is_same = with[at] == without[of];
            common[at][of] =
                if is_same { common[at + 1][of + 1] + 1 } else { common[at + 1][of].max(common[at][of + 1]) };
        }
    }
    let (mut text, mut only, mut other) = (String::new(), String::new(), String::new());
    let (mut at, mut of) = (0, 0);
    while at < with.len() || of < without.len() {
        if at < with.len() && of < without.len() && with[at] == without[of] {
            write_variants(condition, &mut only, &mut other, &mut text);
            text += &format!("{}\n", with[at]);
            (at, of) = (at + 1, of + 1);
        } else if of == without.len() || at < with.len() && common[at + 1][of] >= common[at][of + 1] {
            only += &format!("{}\n", with[at]);
            at += 1;
        } else {
            other += &format!("{}\n", without[of]);
            of += 1;
        }
    }
    write_variants(condition, &mut only, &mut other, &mut text);
    text
}

fn write_variants(condition: &str, only: &mut String, other: &mut String, text: &mut String) {
    *text += &match (only.as_str(), other.as_str()) {
        ("", "") => return,
        (only, "") => format!("{{{{- if {condition} }}}}\n{only}{{{{- end }}}}\n"),
        ("", other) => format!("{{{{- if not ({condition}) }}}}\n{other}{{{{- end }}}}\n"),
        (only, other) => {
            format!("{{{{- if {condition} }}}}\n{only}{{{{- else }}}}\n{other}{{{{- end }}}}\n")
        }
    };
    (*only, *other) = (String::new(), String::new());
}

/// What Helm makes of a template that refuses nothing.
pub(crate) fn render_template(template: &str, root: &Value) -> String {
    try_render_template(template, root).unwrap_or_else(|refused| panic!("it is refused: {refused}"))
}

/// What Helm makes of a template, or the sentence with which that refuses.
pub(crate) fn try_render_template(template: &str, root: &Value) -> Result<String, String> {
    let lines: Vec<&str> = template.lines().collect();
    let mut text = String::new();
    render_lines(&lines, root, root, &mut text)?;
    Ok(text)
}

fn render_lines(lines: &[&str], root: &Value, dot: &Value, text: &mut String) -> Result<(), String> {
    let mut at = 0;
    while at < lines.len() {
        let Some(action) = find_action(lines[at]) else {
            *text += &format!("{}\n", render_line(lines[at], root, dot));
            at += 1;
            continue;
        };
        let (word, expression) = action.split_once(' ').unwrap_or_else(|| panic!("{action:?} begins nothing"));
        if word == "fail" {
            return Err(evaluate(expression, root, dot).as_str().unwrap_or_default().to_owned());
        }
        let (otherwise, end) = find_end(lines, at);
        let body = &lines[at + 1..otherwise.unwrap_or(end)];
        let other = otherwise.map_or(&[][..], |otherwise| &lines[otherwise + 1..end]);
        let value = evaluate(expression, root, dot);
        match (word, is_true(&value)) {
            ("if", true) => render_lines(body, root, dot, text)?,
            ("with", true) => render_lines(body, root, &value, text)?,
            ("if" | "with", false) => render_lines(other, root, dot, text)?,
            ("range", _) => {
                value.as_array().unwrap().iter().try_for_each(|one| render_lines(body, root, one, text))?;
            }
            _ => panic!("{word:?} is not known"),
        }
        at = end + 1;
    }
    Ok(())
}

fn find_action(line: &str) -> Option<&str> {
    line.strip_prefix("{{- ")?.strip_suffix(" }}")
}

/// Where what begins on this line ends, and where its other part begins.
fn find_end(lines: &[&str], from: usize) -> (Option<usize>, usize) {
    let (mut depth, mut otherwise) = (0, None);
    for (at, line) in lines.iter().enumerate().skip(from + 1) {
        match find_action(line) {
            Some("end") if depth == 0 => return (otherwise, at),
            Some("end") => depth -= 1,
            Some("else") if depth == 0 => otherwise = Some(at),
            Some("else") | None => {}
            Some(action) if action.starts_with("fail ") => {}
            Some(_) => depth += 1,
        }
    }
    panic!("{:?} has no end", lines[from]);
}

fn render_line(line: &str, root: &Value, dot: &Value) -> String {
    let (mut text, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once("{{ ") {
        let (expression, after) = after.split_once(" }}").unwrap_or_else(|| panic!("{line:?} has no end"));
        text += before;
        text += &match evaluate(expression, root, dot) {
            Value::String(word) => word,
            other => other.to_string(),
        };
        rest = after;
    }
    text + rest
}

/// As Go's templates take it.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is) => *is,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

fn evaluate(expression: &str, root: &Value, dot: &Value) -> Value {
    let piped = split_outside(expression, '|').into_iter();
    piped.fold(None, |before, stage| Some(apply(stage, before, root, dot))).unwrap()
}

/// The parts of a text between separators that are in no quotes and no parentheses.
fn split_outside(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut from, mut depth, mut is_quoted) = (Vec::new(), 0, 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '(' if !is_quoted => depth += 1,
            ')' if !is_quoted => depth -= 1,
            _ if letter == separator && !is_quoted && depth == 0 => {
                parts.push(&text[from..at]);
                from = at + separator.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn apply(stage: &str, piped: Option<Value>, root: &Value, dot: &Value) -> Value {
    let words = split_outside(stage, ' ');
    let mut given: Vec<Value> = words[1..].iter().map(|word| read_word(word, root, dot)).collect();
    given.extend(piped);
    let text = |at: usize| given[at].as_str().unwrap_or_else(|| panic!("{stage:?}: {} is no text", given[at]));
    let list = |at: usize| given[at].as_array().unwrap_or_else(|| panic!("{stage:?}: {} is no list", given[at]));
    match (words[0], given.len()) {
        (word, 0) => read_word(word, root, dot),
        ("not", 1) => (!is_true(&given[0])).into(),
        ("toJson", 1) => given[0].to_string().into(),
        ("b64enc", 1) => base64::engine::general_purpose::STANDARD.encode(text(0)).into(),
        ("trimSuffix", 2) => text(1).strip_suffix(text(0)).unwrap_or(text(1)).into(),
        ("or", 2) => given.iter().find(|one| is_true(one)).unwrap_or(&given[1]).clone(),
        ("gt", 2) => (given[0].as_u64() > given[1].as_u64()).into(),
        ("len", 1) => text(0).len().into(),
        ("hasPrefix", 2) => text(1).starts_with(text(0)).into(),
        ("contains", 2) => text(1).contains(text(0)).into(),
        ("has", 2) => list(1).contains(&given[0]).into(),
        ("sortAlpha", 1) => {
            let mut all = list(0).clone();
            all.sort_by_key(|one| one.as_str().unwrap_or_default().to_owned());
            all.into()
        }
        ("$.Files.Get", 1) => root["Files"][text(0)].clone(),
        ("replace", 3) => text(2).replace(text(0), text(1)).into(),
        ("printf", 2) => text(0).replace("%s", text(1)).into(),
        ("indent", 2) => {
            let pad = " ".repeat(usize::try_from(given[0].as_u64().unwrap()).unwrap());
            let lines: Vec<String> = text(1).split('\n').map(|line| format!("{pad}{line}")).collect();
            lines.join("\n").into()
        }
        ("join", 2) => list(1).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(text(0)).into(),
        (word, _) => panic!("function {word:?} is not known"),
    }
}

fn read_word(word: &str, root: &Value, dot: &Value) -> Value {
    if let Some(inner) = word.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        return evaluate(inner, root, dot);
    }
    if word.starts_with('"') {
        return serde_json::from_str(word).unwrap();
    }
    if word == "." {
        return dot.clone();
    }
    if let Ok(number) = word.parse::<u64>() {
        return number.into();
    }
    let path = word.strip_prefix("$.").unwrap_or_else(|| panic!("{word:?} is not known"));
    path.split('.').fold(root, |value, name| &value[name]).clone()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn two_texts_become_one_that_renders_to_each() {
        let (with, without) = ("a\nb\nc\nd\n", "a\nx\nd\ny\n");
        let merged = merge_variants("$.Values.is", with, without);
        let render = |is: bool| render_template(&merged, &json!({"Values": {"is": is}}));
        assert_eq!((render(true).as_str(), render(false).as_str()), (with, without), "{merged}");
        assert_eq!(merge_variants("$.Values.is", with, with), with);
    }

    #[test]
    fn blocks_stand_in_one_another_and_functions_are_piped() {
        let template = "{{- range $.Values.all }}\n{{- with $.Values.some }}\n{{- if not (has \"a\" $.Values.all) }}\nno\n\
                        {{- else }}\n{{ toJson . }}\n{{- end }}\n{{- end }}\n- {{ . }}\n{{- end }}\n\
                        ['{{ join \"', '\" (sortAlpha $.Values.all) }}'] {{ $.Values.url | trimSuffix \"/\" }}\n";
        let values = json!({"all": ["b", "a"], "some": {"k": 1}, "url": "https://h/"});
        let wanted = "{\"k\":1}\n- b\n{\"k\":1}\n- a\n['a', 'b'] https://h\n";
        assert_eq!(render_template(template, &json!({"Values": values})), wanted);
    }
}
