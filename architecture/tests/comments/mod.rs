//! Reads doc comments: of constants with a text, and of variants.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A constant with a text.
#[derive(Debug, Clone)]
pub struct Constant {
    /// The module inside of the file; empty at its top.
    pub module: String,
    pub name: String,
    pub value: String,
    /// Its doc comment.
    pub means: String,
}

/// A variant of an enum.
#[derive(Debug, Clone)]
pub struct Variant {
    pub owner: String,
    pub name: String,
    /// Its doc comment.
    pub means: String,
}

/// All files below a folder that end so and are no tests, by name.
pub fn list_files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in fs::read_dir(folder).into_iter().flatten().map_while(Result::ok).map(|entry| entry.path()) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name == "tests" || name.ends_with("_tests") {
            continue;
        }
        if path.is_dir() {
            files.extend(list_files(&path, extension));
        } else if path.extension().is_some_and(|it| it == extension) {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The text of a source up to its tests.
pub fn read_product(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned()
}

/// The constants of a source that are a text, with their comments.
pub fn list_constants(source: &str) -> Vec<Constant> {
    let mut constants: Vec<Constant> = Vec::new();
    let (mut module, mut comment) = (String::new(), Vec::new());
    for line in source.lines() {
        let code = line.trim();
        if let Some(said) = code.strip_prefix("///") {
            comment.push(said.trim());
            continue;
        }
        if let Some(name) = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(" {")) {
            name.clone_into(&mut module);
        }
        if let Some((name, value)) = code.split_once("const ").and_then(|(_, it)| read_constant(it)) {
            constants.push(Constant { module: module.clone(), name, value, means: comment.join(" ") });
        }
        comment.clear();
    }
    let values: Vec<(String, String)> =
        constants.iter().map(|it| (format!("[`{}`]", it.name), format!("`{}`", it.value))).collect();
    for constant in &mut constants {
        for (link, value) in &values {
            constant.means = constant.means.replace(link, value);
        }
        constant.means = drop_links(&constant.means);
    }
    constants
}

fn read_constant(code: &str) -> Option<(String, String)> {
    let (name, rest) = code.split_once(": &str = \"")?;
    Some((name.to_owned(), rest.split_once("\";")?.0.to_owned()))
}

/// Without the brackets around what a comment links to.
fn drop_links(said: &str) -> String {
    said.replace("[`", "`").replace("`]", "`")
}

/// The variants of a source's enums, with the first sentences of their comments.
pub fn list_variants(source: &str) -> Vec<Variant> {
    let mut variants = Vec::new();
    let (mut owner, mut comment) = (None, Vec::new());
    for line in source.lines() {
        if let Some(name) = line.strip_prefix("pub enum ") {
            owner = Some(name.trim_end_matches(" {").to_owned());
        } else if line == "}" {
            owner = None;
        }
        let Some(code) = line.strip_prefix("    ").filter(|code| !code.starts_with(' ')) else { continue };
        if let Some(said) = code.strip_prefix("///") {
            comment.push(said.trim());
            continue;
        }
        let name = code.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        if let Some(owner) = owner.as_ref().filter(|_| name.starts_with(char::is_uppercase)) {
            variants.push(Variant {
                owner: owner.clone(),
                name: name.to_owned(),
                means: drop_links(&comment.join(" ")),
            });
        }
        comment.clear();
    }
    variants
}

/// What follows the first place that begins so, up to the end of that item.
pub fn read_body(source: &str, begin: &str) -> String {
    let Some((_, rest)) = source.split_once(begin) else { panic!("no `{begin}` in the source") };
    rest.lines().skip(1).take_while(|line| *line != "    }" && *line != "    ];").collect::<Vec<_>>().join("\n")
}
