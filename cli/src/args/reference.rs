//! The part of `docs/cli.md` that is made of the command line itself.

use std::{fmt::Write as _, fs, path::Path};

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
