//! Mutates JSON as JSON: values, fields, items and repetitions; also inside of texts that are JSON themselves, as
//! annotations are. One in four goes to libFuzzer's own mutator, which knows nothing of JSON.

use libfuzzer_sys::fuzzer_mutate;
use serde_json::{Value, json};

/// Mutates what follows the first `head` bytes of an input.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32, head: usize) -> usize {
    let mut dice = Dice(u64::from(seed) << 1 | 1);
    if size <= head || dice.below(4) == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let Ok(mut root) = serde_json::from_slice::<Value>(&data[head..size]) else {
        return fuzzer_mutate(data, size, max_size);
    };
    if head > 0 && dice.below(8) == 0 {
        data[0] = b'0' + u8::try_from(dice.below(10)).unwrap_or(0);
    }
    for _ in 0..=dice.below(3) {
        mutate_value(&mut root, &mut dice, 0);
    }
    let text = root.to_string();
    if head + text.len() > max_size {
        return fuzzer_mutate(data, size, max_size);
    }
    data[head..head + text.len()].copy_from_slice(text.as_bytes());
    head + text.len()
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % most.max(1)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// The value of this number, in depth-first order.
fn find(value: &mut Value, mut at: usize) -> Option<&mut Value> {
    if at == 0 {
        return Some(value);
    }
    at -= 1;
    let children: Box<dyn Iterator<Item = &mut Value>> = match value {
        Value::Array(items) => Box::new(items.iter_mut()),
        Value::Object(fields) => Box::new(fields.values_mut()),
        _ => return None,
    };
    for child in children {
        let inside = count(child);
        if at < inside {
            return find(child, at);
        }
        at -= inside;
    }
    None
}

fn mutate_value(root: &mut Value, dice: &mut Dice, depth: usize) {
    let all = count(root);
    let donor = find(root, dice.below(all)).map_or(Value::Null, |value| value.clone());
    let Some(value) = find(root, dice.below(all)) else { return };
    if let Value::String(text) = value
        && depth < 2
        && text.starts_with(['{', '['])
        && let Ok(mut inner) = serde_json::from_str::<Value>(text)
    {
        for _ in 0..=dice.below(2) {
            mutate_value(&mut inner, dice, depth + 1);
        }
        *text = inner.to_string();
        return;
    }
    match dice.below(8) {
        0 => *value = odd_value(dice),
        1 => *value = donor,
        _ => match value {
            Value::Array(items) => mutate_items(items, donor, dice),
            Value::Object(fields) => {
                let key = dice.below(fields.len());
                let key = fields.keys().nth(key).cloned().unwrap_or_default();
                match dice.below(4) {
                    0 => drop(fields.remove(&key)),
                    1 => drop(fields.insert(format!("{key}x"), donor)),
                    2 => {
                        let moved = fields.remove(&key).unwrap_or_default();
                        *value = json!({"$repeat": times(dice), "$item": moved});
                    }
                    _ => drop(fields.insert(key, donor)),
                }
            }
            Value::String(text) => mutate_text(text, dice),
            Value::Number(_) => {
                *value = match dice.below(3) {
                    0 => json!(dice.below(12)),
                    1 => json!(1_u64 << dice.below(64)),
                    _ => odd_value(dice),
                }
            }
            Value::Bool(is) => *is = !*is,
            Value::Null => *value = donor,
        },
    }
}

fn mutate_items(items: &mut Vec<Value>, donor: Value, dice: &mut Dice) {
    if items.is_empty() {
        return items.push(donor);
    }
    let at = dice.below(items.len());
    match dice.below(5) {
        0 => drop(items.remove(at)),
        1 => items.insert(at, items[at].clone()),
        2 => items.push(donor),
        3 => {
            let other = dice.below(items.len());
            items.swap(at, other);
        }
        _ => {
            let mut item = items[at].clone();
            if let Some(times) = item.get_mut("$repeat") {
                *times = self::times(dice).into();
                items[at] = item;
                return;
            }
            let name = item.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            number_texts(&mut item, &name, dice, 0);
            items[at] = json!({"$repeat": times(dice), "$item": item});
        }
    }
}

/// Makes copies differ: by name, and by what they name.
fn number_texts(value: &mut Value, name: &str, dice: &mut Dice, depth: usize) {
    match value {
        Value::String(text) => match dice.below(3) {
            _ if text == name && depth == 1 => text.push('#'),
            0 if depth == 0 => text.push('#'),
            0 => *text = format!("{name}#<"),
            _ => {}
        },
        Value::Array(items) => items.iter_mut().for_each(|item| number_texts(item, name, dice, depth + 1)),
        Value::Object(fields) => fields.values_mut().for_each(|field| number_texts(field, name, dice, depth + 1)),
        _ => {}
    }
}

/// Mostly a few: a large object takes long whatever is done with it.
fn times(dice: &mut Dice) -> u64 {
    match dice.below(16) {
        0 => dice.one_of(&[1_000, 5_000, 20_000, 100_000]),
        1..4 => dice.one_of(&[40, 200]),
        _ => dice.one_of(&[0, 2, 3, 9]),
    }
}

fn odd_value(dice: &mut Dice) -> Value {
    match dice.below(22) {
        0 => Value::Null,
        1 => true.into(),
        2 => false.into(),
        3 => 0.into(),
        4 => (-1).into(),
        5 => 1.into(),
        6 => i64::MAX.into(),
        7 => u64::MAX.into(),
        8 => i64::MIN.into(),
        9 => 2_147_483_647.into(),
        10 => 2_147_483_648_u32.into(),
        11 => u32::MAX.into(),
        12 => 1e308.into(),
        13 => 0.5.into(),
        14 => "".into(),
        15 => "-1".into(),
        16 => "9223372036854775807".into(),
        17 => "9E".into(),
        18 => "\u{0}\u{1b}[2J\u{ffff}".into(),
        19 => json!([]),
        20 => json!({}),
        _ => json!({"$repeat": times(dice), "$item": "long-"}),
    }
}

fn mutate_text(text: &mut String, dice: &mut Dice) {
    let mut bytes = text.as_bytes().to_vec();
    let size = bytes.len();
    bytes.resize(size + 16, 0);
    let most = bytes.len();
    let size = match dice.below(4) {
        0 => size / 2,
        _ => fuzzer_mutate(&mut bytes, size, most),
    };
    *text = String::from_utf8_lossy(&bytes[..size]).into_owned();
}
