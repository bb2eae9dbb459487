//! Lists of words in expressions of CEL, as webhooks, admission policies and schemas have them.

/// A list of these words; a quote in one ends none.
#[must_use]
pub fn list_in_cel<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted = |word: &str| format!("'{}'", word.replace('\\', "\\\\").replace('\'', "\\'"));
    format!("[{}]", words.into_iter().map(quoted).collect::<Vec<_>>().join(", "))
}

/// The words of a list that [`list_in_cel`] made, and what follows it.
pub(crate) fn parse_cel_list(text: &str) -> Option<(Vec<String>, &str)> {
    let mut rest = text.strip_prefix('[')?;
    let mut words = Vec::new();
    loop {
        if let Some(end) = rest.strip_prefix(']') {
            return Some((words, end));
        }
        let mut letters = rest.strip_prefix(", ").unwrap_or(rest).strip_prefix('\'')?.chars();
        let mut word = String::new();
        loop {
            match letters.next()? {
                '\'' => break,
                '\\' => word.push(letters.next()?),
                letter => word.push(letter),
            }
        }
        rest = letters.as_str();
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_back_with_what_follows_it() {
        assert_eq!(list_in_cel([]), "[]");
        let words = ["a", "b's", r"c\", "d, e]"];
        let list = list_in_cel(words);
        assert_eq!(list, r"['a', 'b\'s', 'c\\', 'd, e]']");
        let (read, rest) = parse_cel_list(&list).unwrap();
        assert_eq!((read, rest), (words.map(str::to_owned).to_vec(), ""));
        assert_eq!(parse_cel_list("['a'].exists(g, true)").unwrap().1, ".exists(g, true)");
        assert_eq!(parse_cel_list("['a"), None);
    }
}
