//! Where a text stops being JSON, in the words of Go's scanner (`encoding/json`, `scanner.go`), and what its decoder
//! makes of text that is no Unicode.

use std::borrow::Cow;

/// Deeper values are refused.
const MAX_DEPTH: usize = 10_000;

/// What may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Value,
    /// A value or the end of an empty array.
    FirstValue,
    /// A key or the end of an empty object.
    FirstKey,
    Key,
    Colon,
    /// What follows a value: a comma, or the end of what holds it.
    AfterValue,
}

/// What is wrong with the text, if it is not exactly one JSON value.
pub fn find_syntax_error(text: &[u8]) -> Option<String> {
    Scanner { text, at: 0, open: Vec::new() }.scan().err()
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// The brackets that are not closed yet.
    open: Vec<u8>,
}

impl Scanner<'_> {
    fn scan(&mut self) -> Result<(), String> {
        let mut next = Next::Value;
        loop {
            while self.peek().is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
                self.at += 1;
            }
            let Some(byte) = self.peek() else {
                let whole = next == Next::AfterValue && self.open.is_empty();
                return if whole { Ok(()) } else { Err(end_of_input()) };
            };
            next = match (next, byte) {
                (Next::FirstValue, b']') | (Next::FirstKey, b'}') => self.close_bracket(),
                (Next::Value | Next::FirstValue, _) => self.scan_value(byte)?,
                (Next::FirstKey | Next::Key, b'"') => {
                    self.skip_string()?;
                    Next::Colon
                }
                (Next::FirstKey | Next::Key, _) => {
                    return self.refuse_byte("looking for beginning of object key string");
                }
                (Next::Colon, b':') => self.step_to(Next::Value),
                (Next::Colon, _) => return self.refuse_byte("after object key"),
                (Next::AfterValue, _) => self.scan_after_value(byte)?,
            };
        }
    }

    fn scan_value(&mut self, byte: u8) -> Result<Next, String> {
        match byte {
            b'{' | b'[' => {
                if self.open.len() >= MAX_DEPTH {
                    return self.refuse_byte("exceeded max depth");
                }
                self.open.push(byte);
                return Ok(self.step_to(if byte == b'{' { Next::FirstKey } else { Next::FirstValue }));
            }
            b'"' => self.skip_string()?,
            b'-' | b'0'..=b'9' => self.skip_number()?,
            b't' => self.skip_literal("true")?,
            b'f' => self.skip_literal("false")?,
            b'n' => self.skip_literal("null")?,
            _ => return self.refuse_byte("looking for beginning of value"),
        }
        Ok(Next::AfterValue)
    }

    fn scan_after_value(&mut self, byte: u8) -> Result<Next, String> {
        match (self.open.last(), byte) {
            (Some(b'{'), b',') => Ok(self.step_to(Next::Key)),
            (Some(b'['), b',') => Ok(self.step_to(Next::Value)),
            (Some(b'{'), b'}') | (Some(b'['), b']') => Ok(self.close_bracket()),
            (Some(b'{'), _) => self.refuse_byte("after object key:value pair"),
            (Some(_), _) => self.refuse_byte("after array element"),
            (None, _) => self.refuse_byte("after top-level value"),
        }
    }

    fn skip_string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.require_byte()? {
                b'"' => break,
                b'\\' => {
                    self.at += 1;
                    self.skip_escape()?;
                }
                0..=0x1f => return self.refuse_byte("in string literal"),
                _ => {}
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(())
    }

    /// Ends at the last byte of the escape.
    fn skip_escape(&mut self) -> Result<(), String> {
        match self.require_byte()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => Ok(()),
            b'u' => {
                for _ in 0..4 {
                    self.at += 1;
                    if !self.require_byte()?.is_ascii_hexdigit() {
                        return self.refuse_byte("in \\u hexadecimal character escape");
                    }
                }
                Ok(())
            }
            _ => self.refuse_byte("in string escape code"),
        }
    }

    fn skip_number(&mut self) -> Result<(), String> {
        if self.peek() == Some(b'-') {
            self.at += 1;
            if !self.require_byte()?.is_ascii_digit() {
                return self.refuse_byte("in numeric literal");
            }
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.skip_digits();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !self.require_byte()?.is_ascii_digit() {
                return self.refuse_byte("after decimal point in numeric literal");
            }
            self.skip_digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.require_byte()?, b'+' | b'-') {
                self.at += 1;
            }
            if !self.require_byte()?.is_ascii_digit() {
                return self.refuse_byte("in exponent of numeric literal");
            }
            self.skip_digits();
        }
        Ok(())
    }

    fn skip_digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn skip_literal(&mut self, word: &str) -> Result<(), String> {
        for expected in word.chars() {
            if char::from(self.require_byte()?) != expected {
                return self.refuse_byte(&format!("in literal {word} (expecting '{expected}')"));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn require_byte(&self) -> Result<u8, String> {
        self.peek().ok_or_else(end_of_input)
    }

    fn step_to(&mut self, next: Next) -> Next {
        self.at += 1;
        next
    }

    fn close_bracket(&mut self) -> Next {
        self.open.pop();
        self.step_to(Next::AfterValue)
    }

    fn refuse_byte<T>(&self, place: &str) -> Result<T, String> {
        Err(format!("invalid character {} {place}", quote_byte(self.require_byte()?)))
    }
}

fn end_of_input() -> String {
    "unexpected end of JSON input".to_owned()
}

/// The byte as a character between quotes, as `quoteChar` writes it.
fn quote_byte(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        _ => {
            let quoted = crate::error::go_quote(&char::from(byte).to_string());
            format!("'{}'", quoted.trim_matches('"'))
        }
    }
}

/// The text as Go's decoder reads it: what is no Unicode, in bytes or in escapes, becomes U+FFFD.
pub fn repair_unicode(text: &[u8]) -> Cow<'_, [u8]> {
    let lossy = String::from_utf8_lossy(text);
    let escaped = repair_surrogates(&lossy);
    match (lossy, escaped) {
        (_, Some(escaped)) => Cow::Owned(escaped.into_bytes()),
        (Cow::Owned(lossy), None) => Cow::Owned(lossy.into_bytes()),
        (Cow::Borrowed(_), None) => Cow::Borrowed(text),
    }
}

/// Replaces escapes of half a character, if there are any.
fn repair_surrogates(text: &str) -> Option<String> {
    let mut pieces: Vec<&str> = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        let first = escaped_unit(text, at);
        let second = escaped_unit(text, at + 6);
        match (first, second) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at += 12,
            (Some(0xd800..=0xdfff), _) => {
                pieces.extend([text.get(from..at).unwrap_or_default(), r"\ufffd"]);
                at += 6;
                from = at;
            }
            _ => at += 2,
        }
    }
    (!pieces.is_empty()).then(|| pieces.concat() + text.get(from..).unwrap_or_default())
}

fn escaped_unit(text: &str, at: usize) -> Option<u16> {
    u16::from_str_radix(text.get(at..at + 6)?.strip_prefix("\\u")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_character_and_what_was_read() {
        for (text, wanted) in [
            (r#"{"a":1} x"#, "invalid character 'x' after top-level value"),
            (r#"{"a":1}{"b":2}"#, "invalid character '{' after top-level value"),
            (r#"{"a":00}"#, "invalid character '0' after object key:value pair"),
            (r#"{"a":"b",}"#, "invalid character '}' looking for beginning of object key string"),
            ("{'a':1}", r"invalid character '\'' looking for beginning of object key string"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("[tru]", "invalid character ']' in literal true (expecting 'e')"),
            ("[-x]", "invalid character 'x' in numeric literal"),
            ("[1.x]", "invalid character 'x' after decimal point in numeric literal"),
            ("[1ex]", "invalid character 'x' in exponent of numeric literal"),
            ("[\"a\nb\"]", r"invalid character '\n' in string literal"),
            (r#"["\x"]"#, "invalid character 'x' in string escape code"),
            (r#"["\u00zz"]"#, r"invalid character 'z' in \u hexadecimal character escape"),
            ("{\"a\":", "unexpected end of JSON input"),
            ("", "unexpected end of JSON input"),
        ] {
            assert_eq!(find_syntax_error(text.as_bytes()).as_deref(), Some(wanted), "{text}");
        }
        let deep = "[".repeat(MAX_DEPTH + 1);
        assert_eq!(find_syntax_error(deep.as_bytes()).as_deref(), Some("invalid character '[' exceeded max depth"));
    }

    #[test]
    fn what_is_json_has_no_error() {
        for text in [r#" {"a":[1,-2.5e+3,true,null,"\u00e9\\"],"b":{}} "#, "0", "[]", "\"\\ud800\""] {
            assert_eq!(find_syntax_error(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn half_characters_are_replaced() {
        let read = |text: &[u8]| serde_json::from_slice::<String>(&repair_unicode(text)).unwrap();
        assert_eq!(read(br#""a\ud800b""#), "a\u{fffd}b");
        assert_eq!(read(br#""\ud83d\ude00""#), "\u{1f600}");
        assert_eq!(read(br#""\\ud800""#), r"\ud800");
        assert_eq!(read(b"\"\xff\""), "\u{fffd}");
    }
}
