//! A document as YAML, letter for letter as a kube-apiserver writes it.
//!
//! Rule: `sigs.k8s.io/yaml` over `go.yaml.in/yaml/v2`: keys in natural order, lists not indented below their key, lines
//! folded at 80 columns, a text quoted only where it would not be read back as the same text.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

const INDENT: usize = 2;
/// Behind this column a space becomes a line break.
const WIDTH: usize = 80;
/// A longer key stands on a line of its own, behind a question mark.
const LONGEST_KEY: usize = 128;

static NUMBER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let float = r"[-+]?(\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?";
    let whole = r"[-+]?(0[xX][0-9a-fA-F_]+|0[oO]?[0-7_]+|0[bB][01_]+)";
    let sixty = r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?";
    let time =
        r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(\.[0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2})?)?";
    Regex::new(&format!("^({float}|{whole}|{sixty}|{time})$")).ok()
});

/// Texts that YAML 1.1 reads as something else.
const WORDS: [&str; 37] = [
    "", "~", "null", "Null", "NULL", "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON", "n", "N",
    "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF", ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF",
    "+.inf", "-.inf", "+.Inf", "-.Inf",
];

/// A document as YAML.
pub fn write_yaml(value: &Value) -> String {
    let mut writer = Writer::default();
    match value {
        Value::Object(map) if !map.is_empty() => writer.mapping(map, 0, true),
        Value::Array(list) if !list.is_empty() => writer.sequence(list, 0, true),
        scalar => writer.scalar(scalar, 0, false),
    }
    if !writer.text.ends_with('\n') {
        writer.text.push('\n');
    }
    writer.text
}

#[derive(Default)]
struct Writer {
    text: String,
    column: usize,
}

impl Writer {
    fn put(&mut self, text: &str) {
        self.text.push_str(text);
        self.column += text.chars().count();
    }

    fn break_line(&mut self, indent: usize) {
        self.text.push('\n');
        self.text.extend(std::iter::repeat_n(' ', indent));
        self.column = indent;
    }

    /// Begins an entry at `indent`; the first one may stand behind what is there.
    fn begin(&mut self, indent: usize, here: bool) {
        if here {
            return;
        }
        if self.column == 0 && self.text.ends_with('\n') {
            self.text.extend(std::iter::repeat_n(' ', indent));
            self.column = indent;
        } else {
            self.break_line(indent);
        }
    }

    fn mapping(&mut self, map: &Map<String, Value>, indent: usize, mut here: bool) {
        let mut keys: Vec<&String> = map.keys().collect();
        keys.sort_by(|one, other| compare_keys(one, other));
        for key in keys {
            self.begin(indent, here);
            here = false;
            if key.chars().count() > LONGEST_KEY || key.contains('\n') {
                self.put("? ");
                self.text(key, indent + INDENT, false);
                self.begin(indent, false);
                self.put(":");
            } else {
                self.text(key, indent, true);
                self.put(":");
            }
            match &map[key] {
                Value::Object(child) if !child.is_empty() => self.mapping(child, indent + INDENT, false),
                Value::Array(list) if !list.is_empty() => self.sequence(list, indent, false),
                scalar => {
                    self.put(" ");
                    self.scalar(scalar, indent + INDENT, false);
                }
            }
        }
    }

    fn sequence(&mut self, list: &[Value], indent: usize, mut here: bool) {
        for item in list {
            self.begin(indent, here);
            here = false;
            self.put("- ");
            match item {
                Value::Object(child) if !child.is_empty() => self.mapping(child, indent + INDENT, true),
                Value::Array(list) if !list.is_empty() => self.sequence(list, indent + INDENT, true),
                scalar => self.scalar(scalar, indent + INDENT, false),
            }
        }
    }

    fn scalar(&mut self, value: &Value, indent: usize, key: bool) {
        match value {
            Value::String(text) => self.text(text, indent, key),
            Value::Object(_) => self.put("{}"),
            Value::Array(_) => self.put("[]"),
            Value::Number(number) if number.is_f64() => {
                let number = go_float(number.as_f64().unwrap_or_default());
                self.put(&number);
            }
            other => self.put(&other.to_string()),
        }
    }

    fn text(&mut self, text: &str, indent: usize, key: bool) {
        match choose_style(text, key) {
            Style::Plain => self.folded(text, indent, key, ""),
            Style::Single => self.folded(text, indent, key, "'"),
            Style::Double => self.double_quoted(text, indent, key),
            Style::Literal => self.literal(text, indent),
        }
    }

    /// A plain text or one in single quotes.
    fn folded(&mut self, text: &str, indent: usize, key: bool, quote: &str) {
        self.put(quote);
        let letters: Vec<char> = text.chars().collect();
        let mut after_space = false;
        for (index, letter) in letters.iter().enumerate() {
            let inside = quote.is_empty() || index > 0 && index + 1 < letters.len();
            let fold = !key && !after_space && self.column > WIDTH && inside && letters.get(index + 1) != Some(&' ');
            match letter {
                ' ' if fold => self.break_line(indent),
                '\'' if !quote.is_empty() => self.put("''"),
                other => self.put(other.encode_utf8(&mut [0; 4])),
            }
            after_space = *letter == ' ';
        }
        self.put(quote);
    }

    fn double_quoted(&mut self, text: &str, indent: usize, key: bool) {
        self.put("\"");
        let letters: Vec<char> = text.chars().collect();
        let mut after_space = false;
        for (index, letter) in letters.iter().enumerate() {
            let inside = index > 0 && index + 1 < letters.len();
            if *letter == ' ' && !key && !after_space && self.column > WIDTH && inside {
                self.break_line(indent);
                if letters[index + 1] == ' ' {
                    self.put("\\");
                }
            } else if !is_printable(*letter) || is_break(*letter) || matches!(letter, '"' | '\\') {
                let escaped = escape(*letter);
                self.put(&escaped);
            } else {
                self.put(letter.encode_utf8(&mut [0; 4]));
            }
            after_space = *letter == ' ';
        }
        self.put("\"");
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.put("|");
        if text.starts_with([' ', '\n']) {
            self.put("2");
        }
        match text.strip_suffix('\n') {
            None => self.put("-"),
            Some(rest) if rest.is_empty() || rest.ends_with('\n') => self.put("+"),
            Some(_) => {}
        }
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            self.break_line(0);
            if !line.is_empty() {
                self.text.extend(std::iter::repeat_n(' ', indent));
                self.put(line);
            }
        }
        if text.ends_with('\n') {
            self.break_line(0);
        }
    }
}

enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// `encode.go` asks for a style, `emitterc.go` grants it or takes the next stricter one.
fn choose_style(text: &str, key: bool) -> Style {
    let special = text.chars().any(|letter| !is_printable(letter));
    let broken = text.contains(is_break);
    let space_break = text.contains(" \n");
    let break_space = text.contains("\n ");
    if text.contains('\n') {
        let block = !key && !text.ends_with(' ') && !space_break && !special;
        return if block { Style::Literal } else { Style::Double };
    }
    if reads_as_other(text) {
        return Style::Double;
    }
    if special || space_break || break_space {
        return Style::Double;
    }
    let edges = text.starts_with(' ') || text.ends_with(' ');
    if broken || edges || has_indicator(text) { Style::Single } else { Style::Plain }
}

/// Whether a text without quotes would be read as a number, a time, a truth value or nothing.
fn reads_as_other(text: &str) -> bool {
    if WORDS.contains(&text) || matches!(text, "+.INF" | "-.INF") {
        return true;
    }
    let numeric = text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '.'));
    numeric && NUMBER.as_ref().is_some_and(|number| number.is_match(text)) && !text.starts_with("._")
}

fn has_indicator(text: &str) -> bool {
    if text.starts_with("---") || text.starts_with("...") {
        return true;
    }
    let mut before_is_blank = true;
    let mut letters = text.chars().enumerate().peekable();
    while let Some((index, letter)) = letters.next() {
        let blank_follows = letters.peek().is_none_or(|(_, next)| matches!(next, ' ' | '\t' | '\n' | '\r'));
        let found = match letter {
            '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`'
                if index == 0 =>
            {
                true
            }
            '?' | '-' if index == 0 => blank_follows,
            ':' => blank_follows,
            '#' => before_is_blank,
            _ => false,
        };
        if found {
            return true;
        }
        before_is_blank = matches!(letter, ' ' | '\t' | '\n' | '\r');
    }
    false
}

fn is_printable(letter: char) -> bool {
    matches!(letter, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && letter != '\u{feff}'
}

fn is_break(letter: char) -> bool {
    matches!(letter, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn escape(letter: char) -> String {
    let short = match letter {
        '\0' => "0",
        '\u{7}' => "a",
        '\u{8}' => "b",
        '\t' => "t",
        '\n' => "n",
        '\u{b}' => "v",
        '\u{c}' => "f",
        '\r' => "r",
        '\u{1b}' => "e",
        '"' => "\"",
        '\\' => "\\",
        '\u{85}' => "N",
        '\u{a0}' => "_",
        '\u{2028}' => "L",
        '\u{2029}' => "P",
        _ => "",
    };
    if !short.is_empty() {
        return format!("\\{short}");
    }
    let mut escaped = String::new();
    let _ = match u32::from(letter) {
        code @ 0..=0xff => write!(escaped, "\\x{code:02X}"),
        code @ 0x100..=0xffff => write!(escaped, "\\u{code:04X}"),
        code => write!(escaped, "\\U{code:08X}"),
    };
    escaped
}

/// Go's shortest form of a float: with an exponent below 1e-4 and from 1e6 on.
pub fn go_float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// `sorter.go`: letters by code, numbers by value, other signs before letters.
fn compare_keys(one: &str, other: &str) -> Ordering {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    for index in 0..one.len().min(other.len()) {
        let (a, b) = (one[index], other[index]);
        if a == b {
            continue;
        }
        match (a.is_alphabetic(), b.is_alphabetic()) {
            (true, true) => return a.cmp(&b),
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) => {}
        }
        let zeros = a == '0' || b == '0';
        let mut before = one[..index].iter().rev().take_while(|digit| digit.is_numeric());
        let start = i64::from(zeros && before.any(|digit| *digit != '0'));
        let number = |letters: &[char]| {
            let digits = letters[index..].iter().take_while(|digit| digit.is_ascii_digit());
            digits.fold((start, 0), |(value, length), digit| {
                (value.wrapping_mul(10).wrapping_add(i64::from(u32::from(*digit) - 48)), length + 1)
            })
        };
        return number(&one).cmp(&number(&other)).then(a.cmp(&b));
    }
    one.len().cmp(&other.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_stand_below_their_key_and_maps_are_indented() {
        let value = json!({"b": {"c": 1, "d": {}, "e": []}, "a": [{"y": "x", "z": null}, [1, 2], "s"]});
        let told = "a:\n- \"y\": x\n  z: null\n- - 1\n  - 2\n- s\nb:\n  c: 1\n  d: {}\n  e: []\n";
        assert_eq!(write_yaml(&value), told);
    }

    #[test]
    fn a_text_is_quoted_only_where_it_would_be_read_otherwise() {
        let cases = [
            ("a", "a"),
            ("", "\"\""),
            ("1", "\"1\""),
            ("no", "\"no\""),
            ("2001-01-01", "\"2001-01-01\""),
            ("12:30:45", "\"12:30:45\""),
            (" lead", "' lead'"),
            ("a: b", "'a: b'"),
            ("a #b", "'a #b'"),
            ("- a", "'- a'"),
            ("'a'", "'''a'''"),
            ("\"a\"", "'\"a\"'"),
            ("a:b", "a:b"),
            ("f:metadata", "f:metadata"),
            (".", "."),
            ("k:{\"a\":1}", "k:{\"a\":1}"),
            ("...", "'...'"),
            ("=", "="),
            ("<<", "<<"),
            ("NaN", "NaN"),
            ("TrUe", "TrUe"),
            ("\u{1f600}", "\"\\U0001F600\""),
            ("\u{7}", "\"\\a\""),
            ("a\rb", "\"a\\rb\""),
            ("tab\there", "\"tab\\there\""),
            ("1,000", "1,000"),
            ("-", "'-'"),
            ("-a", "-a"),
            ("?", "'?'"),
            ("1.", "\"1.\""),
            ("a:", "'a:'"),
        ];
        for (text, told) in cases {
            assert_eq!(write_yaml(&json!({"k": text})), format!("k: {told}\n"), "{text:?}");
        }
    }

    #[test]
    fn lines_are_a_block_and_long_ones_are_folded() {
        assert_eq!(write_yaml(&json!({"a": "x\ny\n", "b": "x\n\ny"})), "a: |\n  x\n  y\nb: |-\n  x\n\n  y\n");
        assert_eq!(write_yaml(&json!({"a": "\nx\n\n", "b": 1})), "a: |2+\n\n  x\n\nb: 1\n");
        assert_eq!(write_yaml(&json!({"a": "\n"})), "a: |2+\n\n");
        assert_eq!(write_yaml(&json!({"a": "x\ny "})), "a: \"x\\ny \"\n");
        let long = "word ".repeat(20) + "end";
        let folded = format!("a: {}\n  {}end\n", "word ".repeat(16).trim_end(), "word ".repeat(4));
        assert_eq!(write_yaml(&json!({"a": long})), folded);
    }

    #[test]
    fn keys_are_sorted_as_people_count() {
        let value = json!({"a10": 1, "a9": 1, "A": 1, "_c": 1, "k1": 1, ".b": 1});
        assert_eq!(write_yaml(&value), ".b: 1\n_c: 1\nA: 1\na9: 1\na10: 1\nk1: 1\n");
    }
}
