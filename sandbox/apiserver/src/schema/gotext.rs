//! How Go prints a value inside an error: `%q` for strings, `%v` for numbers and booleans, JSON for the rest
//! (`field.Error.ErrorBody`).

use std::fmt::Write as _;

use serde_json::Value;

/// `%q`: double quotes with Go's escapes.
pub fn quote_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{b}' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `%v` of a float64: the shortest digits, with an exponent below 1e-4 and from 1e21 on.
pub fn write_float(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(rest) => ('-', rest),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{value}")
}

/// A value after `Invalid value: `.
pub fn write_value(value: &Value) -> String {
    match value {
        Value::String(text) => quote_string(text),
        Value::Number(number) if !number.is_i64() && !number.is_u64() => write_float(number.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_printed_as_go_prints_them() {
        for (number, text) in
            [(10.0, "10"), (0.5, "0.5"), (1e21, "1e+21"), (2.5e-7, "2.5e-07"), (123456.75, "123456.75")]
        {
            assert_eq!(write_float(number), text);
        }
    }
}
