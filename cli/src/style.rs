//! Colour on a terminal, and its width.
//!
//! Rule: no colour elsewhere, nor where `NO_COLOR` is set to something (<https://no-color.org>) or the terminal is
//! `dumb`. What comes from the API is made visible first ([`crate::output`]) and coloured then, so that nobody's text
//! is a part of an escape sequence.

use std::io::IsTerminal as _;

/// How standard output is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    is_coloured: bool,
    /// Columns; none where lines may be of any length.
    width: Option<usize>,
}

impl Style {
    /// Plain text of any width.
    pub const PLAIN: Self = Self { is_coloured: false, width: None };

    /// As standard output wants it.
    pub fn of_stdout() -> Self {
        let out = std::io::stdout();
        if !out.is_terminal() {
            return Self::PLAIN;
        }
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let width = terminal_size::terminal_size_of(out).map(|(width, _)| usize::from(width.0));
        Self { is_coloured: !is_set("NO_COLOR") && !is_dumb, width: width.filter(|width| *width > 0) }
    }

    /// Whether there is colour.
    #[must_use]
    pub const fn is_coloured(self) -> bool {
        self.is_coloured
    }

    /// Columns of the terminal; none where lines may be of any length.
    #[must_use]
    pub const fn width(self) -> Option<usize> {
        self.width
    }

    /// Text in a colour, or bold or dim, as a terminal numbers it.
    #[must_use]
    pub fn paint(self, colour: u8, text: &str) -> String {
        if self.is_coloured { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Colours the word that begins each line, and the words of a column, where they say how something is.
    pub fn paint_words(self, text: &str, column: &str) -> String {
        if !self.is_coloured {
            return text.to_owned();
        }
        let (mut painted, mut at) = (String::with_capacity(text.len()), None);
        for line in text.lines() {
            match line.find(column).filter(|_| at.is_none() && is_header(line)) {
                Some(found) => {
                    at = Some(found);
                    painted += line;
                }
                None => painted += &paint_line(line, at),
            }
            painted.push('\n');
        }
        painted
    }

    /// Lines no longer than the terminal is wide: what is cut ends in an ellipsis.
    pub fn cut_lines(self, text: &str) -> String {
        let Some(width) = self.width else { return text.to_owned() };
        let mut cut = String::with_capacity(text.len());
        for line in text.lines() {
            if line.chars().count() > width {
                cut.extend(line.chars().take(width - 1));
                cut.push('\u{2026}');
            } else {
                cut += line;
            }
            cut.push('\n');
        }
        cut
    }
}

fn is_header(line: &str) -> bool {
    !line.is_empty() && line.chars().all(|c| !c.is_lowercase())
}

/// Colours the first word, or the one at `at`.
fn paint_line(line: &str, at: Option<usize>) -> String {
    for start in [Some(0), at].into_iter().flatten() {
        let Some(rest) = line.get(start..) else { continue };
        let word = rest.split([' ', ':']).next().unwrap_or_default();
        if let Some(colour) = colour_of(word) {
            let (before, after) = (&line[..start], &rest[word.len()..]);
            return format!("{before}\u{1b}[{colour}m{word}\u{1b}[0m{after}");
        }
    }
    line.to_owned()
}

/// The colour of a word that says how something is, as a terminal numbers it.
#[must_use]
pub fn colour_of(word: &str) -> Option<u8> {
    match word {
        "error" | "Failed" | "Blocked" | "NotReady" | "Closed" => Some(31),
        "warning" | "Waiting" | "Held" | "Cordoned" | "Closing" => Some(33),
        "ok" | "Running" | "Completed" | "Ready" | "Open" => Some(32),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLOURED: Style = Style { is_coloured: true, width: Some(10) };

    #[test]
    fn a_word_that_says_how_something_is_has_a_colour_on_a_terminal_alone() {
        let text = "NAME  STATE\nerror  Running\nx     Running  Failed\n";
        assert_eq!(Style::PLAIN.paint_words(text, "STATE"), text);
        let painted = "NAME  STATE\n\u{1b}[31merror\u{1b}[0m  Running\nx     \u{1b}[32mRunning\u{1b}[0m  Failed\n";
        assert_eq!(COLOURED.paint_words(text, "STATE"), painted);
    }

    #[test]
    fn a_line_is_no_longer_than_the_terminal_is_wide() {
        assert_eq!(COLOURED.cut_lines("0123456789\n0123456789a\n"), "0123456789\n012345678\u{2026}\n");
        assert_eq!(Style::PLAIN.cut_lines("0123456789a"), "0123456789a");
    }
}
