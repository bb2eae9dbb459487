//! The types that a crate declares, and the names that several of them share.

use std::collections::BTreeMap;

use crate::source::{Source, split_tokens};

/// Names that more than one type of a crate has, each with the files that declare one.
#[must_use]
pub fn list_shared_names(sources: &[Source]) -> BTreeMap<&str, Vec<&str>> {
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for source in sources {
        for name in list_types(&source.code) {
            files.entry(name).or_default().push(&source.file);
        }
    }
    files.retain(|_, files| files.len() > 1);
    files
}

/// What is declared as a struct, enum, union, trait or alias, wherever it stands, and by a macro that is called with
/// braces and begins with the type's name. The associated types of an `impl` have the names of their trait and are
/// none of the crate's.
fn list_types(code: &str) -> Vec<&str> {
    let tokens = split_tokens(code);
    let mut names = Vec::new();
    let mut is_impl = false;
    let mut impls: Vec<bool> = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let before = i.checked_sub(1).map_or(";", |before| tokens[before]);
        let after = tokens.get(i + 1).copied().unwrap_or_default();
        match *token {
            "impl" => is_impl |= matches!(before, ";" | "{" | "}" | "]" | "unsafe"),
            ";" => is_impl = false,
            "{" => {
                impls.push(is_impl);
                is_impl = false;
                if before == "!" && is_type_name(after) {
                    names.push(after);
                }
            }
            "}" => drop(impls.pop()),
            "type" if impls.last() == Some(&true) => {}
            "struct" | "enum" | "union" | "trait" | "type" if is_type_name(after) => names.push(after),
            _ => {}
        }
    }
    names
}

/// Begins with a capital and is no constant.
fn is_type_name(word: &str) -> bool {
    word.starts_with(char::is_uppercase) && (word.len() == 1 || word.contains(char::is_lowercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_declaration_of_a_type_is_found() {
        let text = "pub(crate) struct A<T>(T); enum B { C } trait D { type E; } type F<'a> = &'a str;
            mod inner { fn f() { struct G; } } words! { H { I = 1 } } const J: u8 = 1; metrics! { ALL: K }
            union L { m: u8 }";
        assert_eq!(list_types(text), ["A", "B", "D", "E", "F", "G", "H", "L"]);
    }

    #[test]
    fn associated_types_of_an_impl_are_their_traits() {
        let text = "#[x] impl<T> Deref for A<T> { type Target = T; fn f() -> impl Iterator { type B = u8; } }
            unsafe impl C for D { type E = u8; } struct F;";
        assert_eq!(list_types(text), ["B", "F"]);
    }

    #[test]
    fn a_name_of_two_types_is_found_across_files() {
        let source = |file: &str, code: &str| Source {
            file: file.to_owned(),
            module: Vec::new(),
            code: code.to_owned(),
            paths: Vec::new(),
        };
        let sources = [source("a.rs", "struct A; struct B;"), source("b.rs", "enum A {} struct C;")];
        assert_eq!(list_shared_names(&sources), BTreeMap::from([("A", vec!["a.rs", "b.rs"])]));
    }
}
