//! A source file as far as imports go: its module, its code without comments and strings, and the paths it names.

use std::path::Path;

/// One file that is no test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file below `src`.
    pub file: String,
    /// The module's path from the crate's root; empty for `lib.rs` and `main.rs`.
    pub module: Vec<String>,
    /// The code without comments, strings, and what `#[cfg(test)]` stands before.
    pub code: String,
    /// Paths into the same crate, each from its root.
    pub paths: Vec<Vec<String>>,
}

/// Every file below a folder that is no test, by name.
#[must_use]
pub fn read_sources(folder: &Path) -> Vec<Source> {
    let mut sources = Vec::new();
    collect(folder, folder, &mut sources);
    sources.sort_by(|a, b| a.file.cmp(&b.file));
    sources
}

fn collect(root: &Path, folder: &Path, into: &mut Vec<Source>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.map_while(Result::ok).map(|entry| entry.path()) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name == "tests" || name.ends_with("_tests") {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            into.push(parse_source(file, &crate::read(&path)));
        }
    }
}

fn parse_source(file: String, text: &str) -> Source {
    let mut module: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod" || module.len() == 1 && (last == "lib" || last == "main")) {
        module.pop();
    }
    let code = drop_tests(&drop_comments_and_strings(text));
    let paths = list_paths(&code, &module);
    Source { file, module, code, paths }
}

fn drop_comments_and_strings(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut code = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        match (at(i), at(i + 1)) {
            ('/', '/') => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            ('/', '*') => {
                while i < chars.len() && !(at(i) == '*' && at(i + 1) == '/') {
                    i += 1;
                }
                i += 2;
            }
            ('r', '"' | '#') if !is_word(at(i.wrapping_sub(1))) && raw_fence(&chars, i).is_some() => {
                let fence = raw_fence(&chars, i).unwrap_or_default();
                i += 2 + fence;
                while i < chars.len() && !(at(i) == '"' && (1..=fence).all(|n| at(i + n) == '#')) {
                    i += 1;
                }
                i += 1 + fence;
            }
            ('"', _) => {
                i += 1;
                while i < chars.len() && at(i) != '"' {
                    i += if at(i) == '\\' { 2 } else { 1 };
                }
                i += 1;
            }
            ('\'', '\\') => i += if at(i + 2) == 'u' { 3 } else { 4 },
            ('\'', _) if at(i + 2) == '\'' => i += 3,
            (one, _) => {
                code.push(one);
                i += 1;
            }
        }
    }
    code
}

/// The number of `#` of a raw string that begins here.
fn raw_fence(chars: &[char], start: usize) -> Option<usize> {
    let fence = chars[start + 1..].iter().take_while(|one| **one == '#').count();
    (chars.get(start + 1 + fence) == Some(&'"')).then_some(fence)
}

fn is_word(one: char) -> bool {
    one.is_alphanumeric() || one == '_'
}

/// Without the items that `#[cfg(test)]` stands before: up to the first `;` outside of braces, or the closing brace.
fn drop_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some((before, after)) = rest.split_once("#[cfg(test)]") {
        kept.push_str(before);
        let mut depth = 0;
        let end = after.char_indices().find(|(_, one)| {
            match one {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth == 0 && matches!(one, ';' | '}')
        });
        rest = end.map_or("", |(at, _)| &after[at + 1..]);
    }
    kept.push_str(rest);
    kept
}

/// The paths of this crate that the code names, each from the crate's root. A `use` may begin with a module of its own
/// file; one that begins with another crate is read as such a path too, and leads to no module.
fn list_paths(code: &str, module: &[String]) -> Vec<Vec<String>> {
    let tokens = split_tokens(code);
    let mut paths = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let before = i.checked_sub(1).map(|before| tokens[before]);
        let follows = tokens.get(i + 1) == Some(&"::");
        let base = match *token {
            "crate" if follows => Vec::new(),
            "super" if follows && before != Some("::") => module[..module.len().saturating_sub(1)].to_vec(),
            "self" if follows => module.to_vec(),
            _ if follows && before == Some("use") => {
                expand_path(&tokens[i..], module, &mut paths);
                continue;
            }
            _ => continue,
        };
        expand_path(&tokens[i + 2..], &base, &mut paths);
    }
    paths
}

/// Reads one path, `{...}` groups included; answers how many tokens it took.
fn expand_path(tokens: &[&str], base: &[String], into: &mut Vec<Vec<String>>) -> usize {
    let mut path = base.to_vec();
    let mut i = 0;
    loop {
        match tokens.get(i) {
            Some(&"super") => drop(path.pop()),
            Some(&"self") => {}
            Some(&"{") => {
                i += 1;
                while let Some(token) = tokens.get(i).filter(|token| **token != "}") {
                    i += match *token {
                        "," => 1,
                        "as" => 2,
                        _ => expand_path(&tokens[i..], &path, into).max(1),
                    };
                }
                return i + 1;
            }
            Some(word) if word.starts_with(is_word) || *word == "*" => path.push((*word).to_owned()),
            _ => return i,
        }
        if tokens.get(i + 1) != Some(&"::") {
            into.push(path);
            return i + 1;
        }
        i += 2;
    }
}

/// Words, `::`, and single signs.
pub fn split_tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_word(first) {
            rest.find(|one| !is_word(one)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(file: &str, text: &str) -> Vec<String> {
        parse_source(file.to_owned(), text).paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn imports_are_read_from_the_crates_root() {
        let text = "use crate::{a::{B, c}, d as e}; fn f() { super::g::h(); super::super::i() } use std::fmt;";
        assert_eq!(paths("x/y.rs", text), ["a::B", "a::c", "d", "x::g::h", "i", "x::y::std::fmt"]);
        assert_eq!(paths("lib.rs", "mod a; pub use a::B; use b::{C, D};"), ["a::B", "b::C", "b::D"]);
        assert_eq!(paths("x/mod.rs", "use super::y; use self::z; pub use a::B;"), ["y", "x::z", "x::a::B"]);
    }

    #[test]
    fn comments_strings_and_tests_name_nothing() {
        let text = "// crate::a\n/* crate::b */ const C: &str = \"crate::c\\\"\"; const D: &str = r#\"crate::\"d\"#;
            const Q: char = '\"'; #[cfg(test)] mod tests { use crate::e; } use crate::f;";
        assert_eq!(paths("x.rs", text), ["f"]);
    }
}
