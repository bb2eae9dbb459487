//! Lists in sentences: so many names, and how many there are beside them.

use std::fmt::{Display, Write as _};

/// Names that one sentence has.
pub const MOST_NAMED: usize = 4;

/// `a, b, c, d and 3 more`; nothing for no names.
#[must_use]
pub fn name_some(names: impl IntoIterator<Item = impl Display>) -> String {
    let mut names = names.into_iter();
    let mut text = String::new();
    for (at, name) in names.by_ref().take(MOST_NAMED).enumerate() {
        // Writing to a text never fails.
        let _ = write!(text, "{}{name}", if at == 0 { "" } else { ", " });
    }
    match names.count() {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_four_names_and_the_number_of_the_others() {
        assert_eq!(name_some([""; 0]), "");
        assert_eq!(name_some(["a", "b", "c", "d"]), "a, b, c, d");
        assert_eq!(name_some(1..=6), "1, 2, 3, 4 and 2 more");
    }
}
