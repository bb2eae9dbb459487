//! Lists and counts in sentences: so many names, and how many there are beside them; a number with its noun.

use std::fmt::{Display, Write as _};

/// Names that one sentence has.
pub const MOST_NAMED: usize = 4;

/// Characters of a text of a user's that a sentence repeats.
const MOST_REPEATED_CHARACTERS: usize = 128;

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

/// A text of a user's, cut to what a sentence repeats.
#[must_use]
pub fn shorten_text(text: &str) -> String {
    if text.chars().count() <= MOST_REPEATED_CHARACTERS {
        return text.to_owned();
    }
    text.chars().take(MOST_REPEATED_CHARACTERS).chain(['…']).collect()
}

/// `1 job`, `2 jobs`: a number with a noun, which is given as it is of one. What ends like `copy` or `batch` has their
/// plural.
#[must_use]
pub fn count_noun(number: impl TryInto<u64> + Display + Copy, noun: &str) -> String {
    format!("{number} {}", inflect_noun(number, noun))
}

/// The noun alone, as it is of so many.
#[must_use]
pub fn inflect_noun(number: impl TryInto<u64>, noun: &str) -> String {
    if number.try_into().is_ok_and(|number| number == 1) {
        return noun.to_owned();
    }
    match noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u'])) {
        Some(stem) => format!("{stem}ies"),
        None if ["ch", "sh", "s", "x"].iter().any(|end| noun.ends_with(end)) => format!("{noun}es"),
        None => format!("{noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noun_is_in_the_number_of_what_is_counted() {
        let of = |noun: &str| [0_usize, 1, 2].map(|number| count_noun(number, noun));
        assert_eq!(of("job"), ["0 jobs", "1 job", "2 jobs"]);
        assert_eq!(of("more node"), ["0 more nodes", "1 more node", "2 more nodes"]);
        assert_eq!(of("copy"), ["0 copies", "1 copy", "2 copies"]);
        assert_eq!([inflect_noun(2_i64, "switch"), inflect_noun(2_i64, "day")], ["switches", "days"]);
        assert_eq!(inflect_noun(1_u32, "cluster"), "cluster");
    }

    #[test]
    fn a_sentence_has_four_names_and_the_number_of_the_others() {
        assert_eq!(name_some([""; 0]), "");
        assert_eq!(name_some(["a", "b", "c", "d"]), "a, b, c, d");
        assert_eq!(name_some(1..=6), "1, 2, 3, 4 and 2 more");
    }
}
