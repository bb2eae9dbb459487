//! Builds HTML of which no part comes from the cluster unescaped, and decodes paths, queries and forms.
//!
//! Rule: markup is a literal of this program, anything else goes through [`Html::text`]. Characters that a terminal
//! obeys, or that turn the direction of a line, are made visible, as on the command line.

use std::fmt::Display;

use crate::output::escape_controls;

/// A piece of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Html(String);

impl Html {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A text alone.
    #[must_use]
    pub fn of(text: impl Display) -> Self {
        let mut html = Self::new();
        html.text(text);
        html
    }

    /// Markup of this program.
    pub fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Text, or a value within quotes, from anywhere.
    pub fn text(&mut self, text: impl Display) -> &mut Self {
        for c in escape_controls(&text.to_string()).chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c => self.0.push(c),
            }
        }
        self
    }

    /// What was made before.
    pub fn add(&mut self, other: &Self) -> &mut Self {
        self.0.push_str(&other.0);
        self
    }

    /// A link to a page of the console, by the segments of its path.
    pub fn link(&mut self, path: &[&str], label: impl Display) -> &mut Self {
        self.raw("<a href=\"");
        for segment in path {
            self.0.push('/');
            self.0.push_str(&encode_segment(segment));
        }
        self.raw("\">").text(label).raw("</a>")
    }

    /// `<h2>`.
    pub fn heading(&mut self, text: impl Display) -> &mut Self {
        self.raw("<h2>").text(text).raw("</h2>\n")
    }

    /// `<p>`.
    pub fn paragraph(&mut self, text: impl Display) -> &mut Self {
        self.raw("<p>").text(text).raw("</p>\n")
    }

    /// A table whose first column names its rows; a sentence where there are none.
    pub fn table(
        &mut self,
        caption: impl Display,
        header: &[&'static str],
        rows: impl IntoIterator<Item = Vec<Self>>,
    ) -> &mut Self {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return self.raw("<p class=\"none\">").text(caption).raw(": none.</p>\n");
        }
        // Who uses a keyboard can scroll what has focus.
        self.raw("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"").text(&caption).raw("\">");
        self.raw("<table><caption>").text(&caption).raw("</caption><thead><tr>");
        for name in header {
            self.raw("<th scope=\"col\">").text(name).raw("</th>");
        }
        self.raw("</tr></thead><tbody>\n");
        for row in rows {
            self.raw("<tr>");
            for (at, cell) in row.iter().enumerate() {
                match at {
                    0 => self.raw("<th scope=\"row\">").add(cell).raw("</th>"),
                    _ => self.raw("<td>").add(cell).raw("</td>"),
                };
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody></table></div>\n")
    }

    /// A bar beside numbers that say the same: what is used up to a mark, and beyond it.
    pub fn bar(&mut self, used: f64, mark: Option<f64>) -> &mut Self {
        let (used, mark) = (used * 100.0, mark.unwrap_or(1.0) * 100.0);
        let (within, beyond) = (used.min(mark), (used - mark).max(0.0));
        self.raw("<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\">");
        self.raw("<rect class=\"all\" width=\"100\" height=\"8\"/><rect class=\"used\" height=\"8\" width=\"");
        self.text(format!("{within:.1}")).raw("\"/><rect class=\"borrowed\" height=\"8\" x=\"");
        self.text(format!("{within:.1}")).raw("\" width=\"").text(format!("{beyond:.1}")).raw("\"/></svg> ")
    }

    /// A word with a mark of how that is.
    pub fn state(&mut self, word: &str) -> &mut Self {
        let class = match crate::style::colour_of(word) {
            Some(31) => "state bad",
            Some(33) => "state waits",
            Some(_) => "state good",
            None => "state",
        };
        self.raw("<span class=\"").raw(class).raw("\">").text(word).raw("</span>")
    }

    /// The whole.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

/// A segment of a path: all but letters, digits, `-`, `.` and `_` is encoded.
fn encode_segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The bytes behind `%XX`; `+` is a space, as in forms.
#[must_use]
pub fn decode_percent(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex = || u8::from_str_radix(text.get(at + 1..at + 3)?, 16).ok();
        match bytes[at] {
            b'%' => match hex() {
                Some(byte) => {
                    decoded.push(byte);
                    at += 2;
                }
                None => decoded.push(b'%'),
            },
            b'+' => decoded.push(b' '),
            byte => decoded.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// A value of a form or a query.
#[must_use]
pub fn find_value(form: &str, name: &str) -> Option<String> {
    form.split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| decode_percent(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_markup_of_ours_is_escaped() {
        let evil = "\"><script>alert('x')</script>&\u{202e}\u{1b}";
        let mut html = Html::of(evil);
        html.link(&["jobs", evil], evil).table(evil, &["A"], [vec![Html::of(evil)]]);
        let text = html.into_string();
        assert!(!text.contains("<script") && !text.contains("'x'") && !text.contains(['\u{202e}', '\u{1b}']), "{text}");
        assert!(text.contains("&quot;&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;"), "{text}");
        assert!(text.contains("<a href=\"/jobs/%22%3E%3Cscript%3E"), "{text}");
    }

    #[test]
    fn a_segment_is_read_as_it_was_written() {
        for text in ["a/b", "ä%41+ ", "..", "x y"] {
            assert_eq!(decode_percent(&encode_segment(text)), text);
        }
        assert_eq!(decode_percent("%zz%4"), "%zz%4");
        assert_eq!(find_value("a=1&token=x%20y+z&b", "token").as_deref(), Some("x y z"));
        assert_eq!(find_value("a=1", "token"), None);
    }
}
