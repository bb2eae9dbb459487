//! Names of domains. Rule: the words of a domain, joined by dashes, with what a name of the API may not have as a dash
//! (RFC 1123). Where that is the name of another domain already, a number follows; so names depend on the order in
//! which they are asked for, and every caller has an order.

use std::collections::{BTreeMap, BTreeSet};

/// Characters of a name, so that a number still fits into the 253 of the API.
const LONGEST: usize = 230;

/// Names that are given away.
#[derive(Debug, Default)]
pub(super) struct DomainNames {
    taken: BTreeSet<String>,
    /// The last number behind a name that was wanted more than once.
    numbers: BTreeMap<String, u32>,
}

impl DomainNames {
    /// A name made of these words that nobody has.
    pub fn choose_name(&mut self, words: &[&str]) -> String {
        let wanted = join_words(words);
        let mut name = wanted.clone();
        while !self.taken.insert(name.clone()) {
            let number = self.numbers.entry(wanted.clone()).or_insert(1);
            *number += 1;
            name = format!("{wanted}-{number}");
        }
        name
    }
}

fn join_words(words: &[&str]) -> String {
    let mut name = String::new();
    for c in words.join("-").chars().take(LONGEST) {
        let c = c.to_ascii_lowercase();
        name.push(if c.is_ascii_alphanumeric() { c } else { '-' });
    }
    let name = name.trim_matches('-');
    if name.is_empty() { "domain".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_of_the_api_and_is_given_once() {
        let mut names = DomainNames::default();
        let mut choose = |words: &[&str]| names.choose_name(words);
        assert_eq!(choose(&["rack", "A.1_b"]), "rack-a-1-b");
        assert_eq!(choose(&["rack", "a-1", "b"]), "rack-a-1-b-2");
        assert_eq!(choose(&["rack", "a-1-b-2"]), "rack-a-1-b-2-2");
        assert_eq!(choose(&["rack", "a-1-b"]), "rack-a-1-b-3");
        assert_eq!((choose(&[""]), choose(&["\u{e4}", "-"])), ("domain".to_owned(), "domain-2".to_owned()));
        let long = "x".repeat(63);
        let long = choose(&[&long, &long, &long, &long, &long]);
        assert_eq!(long.len(), LONGEST);
    }

    #[test]
    fn equal_names_are_numbered_in_time_that_is_linear() {
        let mut names = DomainNames::default();
        let last = (0..20_000).map(|_| names.choose_name(&["a"])).last();
        assert_eq!(last.as_deref(), Some("a-20000"));
    }
}
