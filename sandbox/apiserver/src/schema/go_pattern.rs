//! Why Go refuses a regular expression, in its words (`regexp/syntax`, `parse`). What Go takes and this cannot tell
//! from an error is not refused here.

use std::collections::BTreeSet;

/// The repetitions that Go takes.
const MOST_REPEATS: u32 = 1000;

/// What stands before the place of the parser.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Nothing that could be repeated.
    Nothing,
    Atom,
    /// A repetition operator that begins there.
    Repeat(usize),
}

struct Parser<'a> {
    pattern: &'a str,
    at: usize,
    /// Open groups.
    groups: usize,
    before: Before,
    /// Named classes that there are.
    classes: BTreeSet<&'a str>,
}

/// `error parsing regexp: why`, if Go refuses the pattern.
pub fn pattern_error(pattern: &str) -> Option<String> {
    let mut parser = Parser { pattern, at: 0, groups: 0, before: Before::Nothing, classes: BTreeSet::new() };
    while let Some(next) = parser.rest().chars().next() {
        if let Err(why) = parser.step(next) {
            return Some(format!("error parsing regexp: {why}"));
        }
    }
    (parser.groups > 0).then(|| format!("error parsing regexp: missing closing ): `{pattern}`"))
}

fn told(what: &str, text: &str) -> String {
    format!("{what}: `{text}`")
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.pattern.get(self.at..).unwrap_or_default()
    }

    fn step(&mut self, next: char) -> Result<(), String> {
        match next {
            '(' => return self.open_group(),
            ')' if self.groups == 0 => return Err(told("unexpected )", self.pattern)),
            ')' => self.groups -= 1,
            '|' => {
                self.at += 1;
                self.before = Before::Nothing;
                return Ok(());
            }
            '[' => return self.read_class(),
            '\\' => return self.read_escape(),
            '*' | '+' | '?' => return self.repeat(1),
            '{' => {
                if let Some((length, fits)) = counted(self.rest()) {
                    if !fits {
                        let shown = self.rest().get(..length).unwrap_or_default();
                        return Err(told("invalid repeat count", shown));
                    }
                    return self.repeat(length);
                }
            }
            _ => {}
        }
        self.at += next.len_utf8();
        self.before = Before::Atom;
        Ok(())
    }

    fn repeat(&mut self, length: usize) -> Result<(), String> {
        let start = self.at;
        self.at += length;
        self.at += usize::from(self.rest().starts_with('?'));
        let shown = |from: usize, to: usize| self.pattern.get(from..to).unwrap_or_default();
        match self.before {
            Before::Repeat(first) => Err(told("invalid nested repetition operator", shown(first, self.at))),
            Before::Nothing => Err(told("missing argument to repetition operator", shown(start, self.at))),
            Before::Atom => {
                self.before = Before::Repeat(start);
                Ok(())
            }
        }
    }

    fn open_group(&mut self) -> Result<(), String> {
        let rest = self.rest();
        self.before = Before::Nothing;
        let Some(flags) = rest.strip_prefix("(?") else {
            self.at += 1;
            self.groups += 1;
            return Ok(());
        };
        if flags.starts_with("P<") || flags.starts_with('<') {
            let Some(end) = rest.find('>') else { return Err(told("invalid named capture", rest)) };
            let (capture, _) = rest.split_at(end + 1);
            let name = capture.trim_start_matches("(?").trim_start_matches('P').trim_matches(['<', '>']);
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(told("invalid named capture", capture));
            }
            self.at += end + 1;
            self.groups += 1;
            return Ok(());
        }
        for (index, flag) in flags.char_indices() {
            match flag {
                'i' | 'm' | 's' | 'U' | '-' => {}
                ':' | ')' => {
                    self.at += 3 + index;
                    self.groups += usize::from(flag == ':');
                    return Ok(());
                }
                bad => {
                    let shown = rest.get(..2 + index + bad.len_utf8()).unwrap_or(rest);
                    return Err(told("invalid or unsupported Perl syntax", shown));
                }
            }
        }
        Err(told("missing closing )", self.pattern))
    }

    /// A class: only its end, and the escapes in it.
    fn read_class(&mut self) -> Result<(), String> {
        let start = self.at;
        self.at += 1;
        self.at += usize::from(self.rest().starts_with('^'));
        let first = self.at;
        loop {
            match self.rest().chars().next() {
                None => return Err(told("missing closing ]", self.pattern.get(start..).unwrap_or_default())),
                Some(']') if self.at > first => break,
                Some('\\') => self.read_escape()?,
                Some('[') if self.rest().starts_with("[:") => {
                    let name =
                        length_of(self.rest().get(2..).unwrap_or_default(), |c| c.is_ascii_alphabetic() || c == '^');
                    let ends = self.rest().get(2 + name..).is_some_and(|rest| rest.starts_with(":]"));
                    self.at += if ends { name + 4 } else { 1 };
                }
                Some(other) => self.at += other.len_utf8(),
            }
        }
        self.at += 1;
        self.before = Before::Atom;
        Ok(())
    }

    fn read_escape(&mut self) -> Result<(), String> {
        let rest = self.rest();
        self.before = Before::Atom;
        let Some(letter) = rest.chars().nth(1) else {
            return Err(told("trailing backslash at end of expression", ""));
        };
        let mut length = 1 + letter.len_utf8();
        match letter {
            'Q' => length = rest.find("\\E").map_or(rest.len(), |end| end + 2),
            'p' | 'P' => {
                let named = rest.get(2..).is_some_and(|rest| rest.starts_with('{'));
                length = match named {
                    true => rest.len().min(4 + length_of(rest.get(3..).unwrap_or_default(), |c| c != '}')),
                    false => length + rest.chars().nth(2).map_or(0, char::len_utf8),
                };
                let class = rest.get(..length).unwrap_or(rest);
                if self.classes.insert(class) && regex::Regex::new(class).is_err() {
                    return Err(told("invalid character class range", class));
                }
            }
            'A' | 'b' | 'B' | 'z' | 'd' | 'D' | 's' | 'S' | 'w' | 'W' | 'x' | '0' => {}
            'a' | 'f' | 'n' | 'r' | 't' | 'v' => {}
            '1'..='7' if rest.chars().nth(2).is_some_and(|c| ('0'..='7').contains(&c)) => {}
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => {}
            _ => return Err(told("invalid escape sequence", rest.get(..length).unwrap_or(rest))),
        }
        self.at += length;
        Ok(())
    }
}

/// The bytes that a text begins with and that are such characters.
fn length_of(text: &str, is_one: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_one(c)).unwrap_or(text.len())
}

/// The length of `{n}`, `{n,}` or `{n,m}` and whether Go takes the numbers; other braces are text.
fn counted(rest: &str) -> Option<(usize, bool)> {
    let end = 1 + length_of(rest.get(1..)?, |c| c.is_ascii_digit() || c == ',');
    let inner = rest.get(1..end).filter(|_| rest[end..].starts_with('}'))?;
    let (low, high) = inner.split_once(',').map_or((inner, None), |(low, high)| (low, Some(high)));
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u32>().unwrap_or(u32::MAX))
    };
    let low = number(low)?;
    let high = match high {
        None => low,
        Some("") => return Some((end + 1, low <= MOST_REPEATS)),
        Some(high) => number(high)?,
    };
    Some((end + 1, low <= high && high <= MOST_REPEATS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers of kube-apiserver 1.36 to definitions with these patterns.
    #[test]
    fn a_pattern_is_refused_in_the_words_of_go() {
        for (pattern, why) in [
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
            ("(?<=a)", "invalid named capture: `(?<=a)`"),
            ("(?P=n)", "invalid or unsupported Perl syntax: `(?P`"),
            ("(?z)", "invalid or unsupported Perl syntax: `(?z`"),
            ("\\1", "invalid escape sequence: `\\1`"),
            ("\\q", "invalid escape sequence: `\\q`"),
            ("\\Z", "invalid escape sequence: `\\Z`"),
            ("\\u1234", "invalid escape sequence: `\\u`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a+*", "invalid nested repetition operator: `+*`"),
            ("a++", "invalid nested repetition operator: `++`"),
            ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{5,2}", "invalid repeat count: `{5,2}`"),
            ("\\p{Foo}", "invalid character class range: `\\p{Foo}`"),
            ("a\\", "trailing backslash at end of expression: ``"),
            ("(", "missing closing ): `(`"),
            ("(?:a", "missing closing ): `(?:a`"),
            ("a)", "unexpected ): `a)`"),
            ("*", "missing argument to repetition operator: `*`"),
            ("[a", "missing closing ]: `[a`"),
            ("[]", "missing closing ]: `[]`"),
        ] {
            assert_eq!(pattern_error(pattern), Some(format!("error parsing regexp: {why}")), "{pattern}");
        }
    }

    /// Found by an attacker: each `[:` was searched to the end of the pattern.
    #[test]
    fn a_long_pattern_is_read_once() {
        for part in ["[:", "x{", "\\p{L}", "x{1,"] {
            let (long, began) = (format!("[{}", part.repeat(100_000)), std::time::Instant::now());
            pattern_error(&long);
            pattern_error(long.trim_start_matches('['));
            // Read again from each of its parts it takes many minutes, and once a second on a busy machine.
            assert!(began.elapsed().as_secs() < 60, "{part}");
        }
    }

    #[test]
    fn what_go_takes_is_not_refused() {
        let taken = ["(?<n>a)", "(?P<n>a)", "a??", "a*?", "\\pZ", "a{1000}", "x{,5}", "(?i)a", "\\d\\z", "\\<", "[]a]"];
        let more = ["\\Q*a\\E", "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "[[:alpha:]\\]]+", "a|b*", "", "{", "(?s:.)*"];
        for pattern in taken.into_iter().chain(more) {
            assert_eq!(pattern_error(pattern), None, "{pattern}");
        }
    }
}
