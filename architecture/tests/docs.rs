//! Pages say what is there: each link leads to a file and a heading, each path of a source file exists, the summary has
//! every page, and lines can be read.

use std::{
    collections::BTreeSet,
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

/// What a line links to, but for other sites: the path, and the heading after `#`.
fn list_links(line: &str) -> Vec<(&str, &str)> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|it| !it.contains("://")).map(|it| it.split_once('#').unwrap_or((it, ""))).collect()
}

/// The names by which a page's headings are linked to, as GitHub and mdBook make them: lower case, no signs, a number
/// after a name that was there before.
fn list_anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in list_prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().to_lowercase().replace(' ', "-");
        let name: String = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect();
        let free = (1..).map(|n| format!("{name}-{n}")).find(|it| !anchors.contains(it)).unwrap_or_default();
        anchors.insert(if anchors.contains(&name) { free } else { name });
    }
    anchors
}

#[test]
fn links_lead_to_files_and_to_headings() {
    check_pages(|page, line| {
        let mut wrong = Vec::new();
        for (path, heading) in list_links(line) {
            let target = if path.is_empty() { page.to_owned() } else { page.with_file_name("").join(path) };
            if !target.exists() {
                wrong.push(format!("no file {path}"));
            } else if !heading.is_empty() {
                let text = fs::read_to_string(&target).unwrap_or_default();
                if !list_anchors(&text).contains(heading) {
                    wrong.push(format!("no heading {path}#{heading}"));
                }
            }
        }
        wrong
    });
}

/// Pictures that a line shows: what is said of each to who does not see it, and its path.
fn list_pictures(line: &str) -> Vec<(&str, &str)> {
    let shown = line.split("![").skip(1).filter_map(|rest| rest.split_once("]("));
    shown.map(|(said, rest)| (said, rest.split(')').next().unwrap_or_default())).collect()
}

#[test]
fn each_picture_is_small_and_shown_by_a_page_that_says_what_is_on_it() {
    check_pages(|_, line| {
        let pictures = list_pictures(line).into_iter().filter(|(_, path)| path.contains("images/"));
        let wordless = pictures.filter(|(said, _)| said.split(' ').count() < 2);
        wordless.map(|(_, path)| format!("nothing is said of {path}")).collect()
    });
    let mut shown = BTreeSet::new();
    for page in list_files("md") {
        let text = fs::read_to_string(&page).unwrap_or_default();
        let paths = list_prose(&text).flat_map(|(_, line)| list_pictures(line));
        shown.extend(paths.filter_map(|(_, path)| page.with_file_name("").join(path).canonicalize().ok()));
    }
    let mut wrong = Vec::new();
    for (extension, most) in [("svg", 60_000), ("png", 150_000)] {
        let pictures =
            list_files(extension).into_iter().filter(|path| path.parent().is_some_and(|it| it.ends_with("images")));
        for picture in pictures {
            let length = fs::metadata(&picture).map_or(u64::MAX, |of| of.len());
            let is_shown = picture.canonicalize().is_ok_and(|path| shown.contains(&path));
            if length >= most || !is_shown {
                wrong.push(format!("{}: {length} bytes, shown {is_shown}", picture.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_summary_has_each_page_of_the_docs_once() {
    let docs = find_root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap_or_default();
    let mut listed: Vec<&str> = summary.lines().flat_map(list_links).map(|(path, _)| path).collect();
    listed.sort_unstable();
    let pages = list_files("md").into_iter().filter_map(|page| Some(page.strip_prefix(&docs).ok()?.to_owned()));
    let mut pages: Vec<String> = pages.map(|page| page.to_string_lossy().into_owned()).collect();
    pages.retain(|page| page != "SUMMARY.md");
    pages.sort_unstable();
    assert_eq!(listed, pages, "left: docs/SUMMARY.md; right: the pages below docs");
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

/// Names of tests are sentences, which nothing else on the page is.
#[test]
fn each_test_that_the_page_on_security_names_is_there() {
    let page = fs::read_to_string(find_root().join("docs/security.md")).unwrap();
    let functions: BTreeSet<String> = list_files("rs")
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|text| list_functions(&text).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let is_sentence = |span: &&str| {
        let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        span.chars().all(is_letter) && span.matches('_').count() >= 3
    };
    let named: Vec<&str> = page.split('`').skip(1).step_by(2).filter(is_sentence).collect();
    assert!(named.len() > 100, "{}", named.len());
    let missing: Vec<&&str> = named.iter().filter(|name| !functions.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

fn list_functions(text: &str) -> impl Iterator<Item = &str> {
    let name = |line: &'_ str| -> Option<usize> { line.find("fn ").map(|at| at + 3) };
    text.lines().filter_map(move |line| line[name(line)?..].split(['(', '<']).next())
}

#[test]
fn lines_have_at_most_120_characters() {
    check_pages(|_, line| {
        let length = line.chars().count();
        let whole = line.starts_with('|') || line.contains("](http") || !line.trim().contains(' ');
        if length > 120 && !whole { vec![format!("{length} characters")] } else { Vec::new() }
    });
}

#[test]
fn comments_have_at_most_120_characters_a_line() {
    let mut long = Vec::new();
    for source in list_files("rs") {
        let text = fs::read_to_string(&source).unwrap_or_default();
        let mut fenced = false;
        for (at, line) in text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//").map(|it| it.trim_start_matches(['/', '!', ' ']))
            else {
                fenced = false;
                continue;
            };
            fenced ^= comment.starts_with("```");
            // Neither a table nor a word can be broken.
            let whole = fenced || comment.starts_with('|') || !comment.contains(' ');
            long.extend((line.chars().count() > 120 && !whole).then(|| format!("{}:{}", source.display(), at + 1)));
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// A difference that a page shows is of the files as they are: each line that it adds is in the file that it names.
#[test]
fn differences_on_pages_are_of_the_files_as_they_are() {
    let (mut shown, mut missing) = (0, Vec::new());
    for page in list_files("md") {
        let text = fs::read_to_string(&page).unwrap_or_default();
        for difference in text.split("```diff\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let mut file = String::new();
            for line in difference.lines() {
                if let Some(path) = line.strip_prefix(" // ") {
                    file = fs::read_to_string(find_root().join(path)).unwrap_or_default();
                } else if let Some(added) = line.strip_prefix('+') {
                    shown += 1;
                    let is_there = file.lines().any(|line| line.trim() == added.trim());
                    missing.extend((!is_there).then(|| format!("{}: {added}", page.display())));
                }
            }
        }
    }
    assert!(shown > 0 && missing.is_empty(), "{shown} lines shown, {missing:#?}");
}
