//! Short inputs that stand for large objects.
//!
//! `{"$repeat": 3, "$item": X}` in a list is three times `X`; elsewhere it is an object of three members `X`, or a text
//! three times as long. In the texts of `X`, `#` is the number of the copy and `#<` the number before it, nothing for
//! the first: tasks that follow task `t` one after the other are `{"name": "t#", "dependsOn": {"name": ["t#<"]}}`.

use serde_json::{Map, Value};

/// Values that an input may stand for at most, about; texts count by their length.
const MOST: usize = 3 << 20;

/// The object that an input stands for.
#[must_use]
pub fn expand(value: &Value) -> Value {
    let mut room = MOST;
    expand_value(value, None, &mut room)
}

/// Whether an input stands for something larger.
#[must_use]
pub fn is_short_form(text: &[u8]) -> bool {
    text.windows(9).any(|part| part == b"\"$repeat\"")
}

fn repetition(value: &Value) -> Option<(u64, &Value)> {
    Some((value.get("$repeat")?.as_u64()?, value.get("$item")?))
}

fn expand_value(value: &Value, copy: Option<u64>, room: &mut usize) -> Value {
    *room = room.saturating_sub(8);
    if let Some((times, item)) = repetition(value) {
        let copies = copies(times, item, room);
        return match item {
            Value::String(_) => copies.iter().filter_map(Value::as_str).collect::<String>().into(),
            _ => (0..).map(|at| format!("k{at}")).zip(copies).collect::<Map<_, _>>().into(),
        };
    }
    match value {
        Value::String(text) => {
            let text = number_text(text, copy);
            *room = room.saturating_sub(text.len());
            text.into()
        }
        Value::Array(items) => {
            let mut all = Vec::new();
            for item in items {
                match repetition(item) {
                    Some((times, item)) => all.extend(copies(times, item, room)),
                    None => all.push(expand_value(item, copy, room)),
                }
            }
            all.into()
        }
        Value::Object(fields) => {
            let one = |(key, field): (&String, &Value)| (number_text(key, copy), expand_value(field, copy, room));
            fields.iter().map(one).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

fn copies(times: u64, item: &Value, room: &mut usize) -> Vec<Value> {
    let mut all = Vec::new();
    for at in 0..times {
        if *room == 0 {
            break;
        }
        all.push(expand_value(item, Some(at), room));
    }
    all
}

fn number_text(text: &str, copy: Option<u64>) -> String {
    match copy {
        Some(at) if text.contains('#') => {
            let before = at.checked_sub(1).map(|before| before.to_string()).unwrap_or_default();
            text.replace("#<", &before).replace('#', &at.to_string())
        }
        _ => text.to_owned(),
    }
}
