//! Tests, and the generator behind them: render the reference in `docs/cli.md` and the index of flags in
//! `docs/reference/flags.md` from the command line itself, and check that both files are current. With
//! `CALDERA_WRITE_DOCS=1` they are written instead. Every `caldera` command in a code block of the docs must parse.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use clap::{Arg, Command, CommandFactory as _};

use super::Args;

const BEGIN: &str =
    "<!-- made of the command line: `CALDERA_WRITE_DOCS=1 cargo test -p caldera-cli --lib reference` -->\n";
const WIDTH: usize = 120;

/// Every command, with what it says of itself and of its arguments.
fn render_reference() -> String {
    let mut command = Args::command();
    command.build();
    let mut text = String::new();
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        render_command(inner, "caldera", 2, &mut text);
    }
    text
}

fn render_command(command: &Command, above: &str, level: usize, text: &mut String) {
    let path = format!("{above} {}", command.get_name());
    let _ = writeln!(text, "\n{} {path}\n", "#".repeat(level));
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    for paragraph in about.split("\n\n") {
        // Examples stay as they are.
        if paragraph.lines().any(|line| line.starts_with("  ")) {
            let _ = writeln!(text, "```text\n{}\n```\n", paragraph.trim_end());
        } else {
            wrap(&format!("{}.", paragraph.trim_end_matches('.')), "", text);
            text.push('\n');
        }
    }
    let shown = |arg: &&Arg| !arg.is_hide_set() && !["help", "version", "log_format"].contains(&arg.get_id().as_str());
    // What belongs to the command above is told there.
    let is_own = |arg: &&Arg| !arg.is_global_set() || command.has_subcommands();
    let args: Vec<&Arg> = command.get_arguments().filter(shown).filter(is_own).collect();
    for arg in &args {
        wrap(&format!("- `{}`: {}", name_argument(arg), describe_argument(arg)), "  ", text);
    }
    if let Some(end) = command.get_after_help() {
        if !args.is_empty() {
            text.push('\n');
        }
        wrap(&end.to_string(), "", text);
    }
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        render_command(inner, &path, level + 1, text);
    }
}

fn name_argument(arg: &Arg) -> String {
    let value = arg.get_value_names().and_then(<[_]>::first).map(ToString::to_string).unwrap_or_default();
    let Some(long) = arg.get_long() else { return value };
    let short = arg.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    let takes = arg.get_action().takes_values() && !value.is_empty();
    format!("{short}--{long}{}", if takes { format!(" {value}") } else { String::new() })
}

fn describe_argument(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = format!("{}.", help.replace('\n', " ").trim_end_matches('.'));
    let values: Vec<String> = arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if arg.get_action().takes_values() && !values.is_empty() && values != ["`true`", "`false`"] {
        let _ = write!(text, " One of {}.", values.join(", "));
    }
    let default: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if arg.get_action().takes_values() && !default.is_empty() {
        let _ = write!(text, " Without it `{}`.", default.join(","));
    }
    text
}

const FLAGS: &str = "# Flags

Every flag, what it means, and the commands that take it. By command they are in [cli.md](../cli.md), and in `caldera
COMMAND --help`.

<!-- made of the command line: `CALDERA_WRITE_DOCS=1 cargo test -p caldera-cli --lib reference` -->

| flag | means | commands |
|---|---|---|
";

/// Every flag with the commands that take it; a flag that means different things has a row for each.
fn render_flags() -> String {
    let mut command = Args::command();
    command.build();
    let mut flags = BTreeMap::new();
    collect_flags(&command, "", &mut flags);
    let mut text = FLAGS.to_owned();
    for ((flag, means), commands) in flags {
        let commands: Vec<String> = commands.iter().map(|command| format!("`{command}`")).collect();
        let commands = if commands.is_empty() { "all".to_owned() } else { commands.join(", ") };
        let _ = writeln!(text, "| `{flag}` | {} | {commands} |", means.replace('|', "\\|"));
    }
    text
}

fn collect_flags(command: &Command, path: &str, into: &mut BTreeMap<(String, String), BTreeSet<String>>) {
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_long().is_some()) {
        let commands = into.entry((name_flag(arg), describe_argument(arg))).or_default();
        // What all commands take is told of none.
        if !arg.is_global_set() && !["help", "version"].contains(&arg.get_id().as_str()) {
            commands.insert(path.to_owned());
        }
    }
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        let path = if path.is_empty() { inner.get_name().to_owned() } else { format!("{path} {}", inner.get_name()) };
        collect_flags(inner, &path, into);
    }
}

/// A flag as it is looked up: by its long name.
fn name_flag(arg: &Arg) -> String {
    let named = name_argument(arg);
    named.split_once(", ").map_or(named.clone(), |(_, long)| long.to_owned())
}

/// Lines that are no longer than pages may be.
fn wrap(paragraph: &str, indent: &str, text: &mut String) {
    let mut line = String::new();
    for word in paragraph.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = format!("{indent}{word}");
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
    }
    text.push_str(&line);
    text.push('\n');
}

#[test]
fn the_reference_in_the_docs_is_that_of_the_command_line() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    let text = fs::read_to_string(&page).unwrap();
    let (head, _) = text.split_once(BEGIN).expect("docs/cli.md has no mark where the reference begins");
    let wanted = format!("{head}{BEGIN}{}", render_reference());
    if std::env::var_os("CALDERA_WRITE_DOCS").is_some() {
        fs::write(&page, &wanted).unwrap();
        return;
    }
    assert!(text == wanted, "docs/cli.md is not current: CALDERA_WRITE_DOCS=1 writes it");
}

#[test]
fn the_index_of_flags_is_that_of_the_command_line() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/flags.md");
    let wanted = render_flags();
    if std::env::var_os("CALDERA_WRITE_DOCS").is_some() {
        fs::write(&page, &wanted).unwrap();
        return;
    }
    let there = fs::read_to_string(&page).unwrap_or_default();
    assert!(there == wanted, "docs/reference/flags.md is not current: CALDERA_WRITE_DOCS=1 writes it");
}

/// The commands of `caldera` in the code blocks of a page, each as words: as much of them as a shell gives to it.
fn list_commands_on_page(page: &str) -> Vec<Vec<String>> {
    let joined = page.replace("\\\n", " ");
    let mut inside = false;
    let mut commands = Vec::new();
    for line in joined.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if inside {
            let command = line.trim_start().trim_start_matches("$ ");
            let words = command.strip_prefix("caldera ").or_else(|| command.strip_prefix("cargo run --release -- "));
            // What the shell puts in is not known here.
            if let Some(words) = words.filter(|words| !words.contains(" ...") && !words.contains('$')) {
                commands.push(split_words(&format!("caldera {words}")));
            }
        }
    }
    commands
}

/// Words as a shell splits them, up to a comment, a pipe or a redirection.
fn split_words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match (c, quote) {
            ('\'' | '"', None) => (quote, word) = (Some(c), Some(word.unwrap_or_default())),
            (c, Some(open)) if c == open => quote = None,
            ('#' | '|' | '>' | '<' | '&' | ';', None) if word.is_none() => break,
            (' ', None) => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn every_command_on_a_page_is_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut folders, mut pages) = (vec![root.join("docs")], vec![root.join("README.md")]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    let mut wrong = Vec::new();
    for page in pages {
        for words in list_commands_on_page(&fs::read_to_string(&page).unwrap()) {
            if let Err(error) = Args::command().try_get_matches_from(&words) {
                let said = error.to_string();
                let help = said.lines().next().unwrap_or_default().to_owned();
                wrong.push(format!("{}: {}: {help}", page.display(), words.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
