//! Pages say what is there: each link leads to a file, each path of a source file exists, and lines can be read.

use std::{
    fs,
    path::{Path, PathBuf},
};

use caldera_architecture::find_root;

/// All files of the repository that end so.
fn list_files(extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![find_root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().map_while(Result::ok) {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == extension) {
                files.push(path);
            }
        }
    }
    files
}

/// The lines of a page that are prose, with their numbers: no code blocks.
fn list_prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().map(|(at, line)| (at + 1, line)).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn check_pages(check: impl Fn(&Path, &str) -> Vec<String>) {
    let mut wrong = Vec::new();
    for page in list_files("md") {
        let Ok(text) = fs::read_to_string(&page) else { continue };
        for (number, line) in list_prose(&text) {
            wrong.extend(check(&page, line).into_iter().map(|what| format!("{}:{number}: {what}", page.display())));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn links_lead_to_files() {
    check_pages(|page, line| {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let relative = targets.filter(|target| !target.is_empty() && !target.contains("://"));
        let lost = relative.filter(|target| !page.with_file_name("").join(target).exists());
        lost.map(|target| format!("no file {target}")).collect()
    });
}

#[test]
fn source_files_that_are_named_exist() {
    let sources = list_files("rs");
    check_pages(|_, line| {
        let quoted = line.split('`').skip(1).step_by(2);
        let names = quoted.filter(|text| text.ends_with(".rs") && !text.contains([' ', '*', '<', '{']));
        let lost = names.filter(|name| !sources.iter().any(|source| source.ends_with(name)));
        lost.map(|name| format!("no file {name}")).collect()
    });
}

#[test]
fn lines_have_at_most_120_characters() {
    check_pages(|_, line| {
        let length = line.chars().count();
        let whole = line.starts_with('|') || line.contains("](http") || !line.trim().contains(' ');
        if length > 120 && !whole { vec![format!("{length} characters")] } else { Vec::new() }
    });
}
