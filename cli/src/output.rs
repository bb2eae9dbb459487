//! Prints answers as tables for people, or as JSON or YAML for programs.
//!
//! Rule: what comes from the API is text that anybody wrote. Characters that a terminal obeys, or that turn the
//! direction of what follows, are shown and not sent; in a cell of a table that holds for line breaks, too.

use std::{
    ffi::OsStr,
    io::{ErrorKind, Write as _},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::Context;
use caldera_core::quantity::Quantity;
use caldera_runtime::client::describe_error;
use clap::{
    Arg, Command, ValueEnum,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};
use comfy_table::{Table, presets::NOTHING};
use serde::Serialize;

use crate::{json_path::JsonTemplate, live::Gap, style::Style};

/// How an answer looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For people who want everything.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// How a list looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListOutput {
    /// For people; no wider than the terminal.
    Table,
    /// For people who want everything.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// Names alone, one a line, as commands take them.
    Name,
    /// A template of kubectl's kind, filled from the JSON document.
    JsonPath(JsonTemplate),
}

impl ListOutput {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "table" => Ok(Self::Table),
            "wide" => Ok(Self::Wide),
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            "name" => Ok(Self::Name),
            _ => match text.strip_prefix("jsonpath=") {
                Some(template) => JsonTemplate::parse(template).map(Self::JsonPath),
                None => Err("there are table, wide, json, yaml, name and jsonpath=TEMPLATE".to_owned()),
            },
        }
    }

    fn list_forms() -> [PossibleValue; 6] {
        let value = |name: &'static str, help: &'static str| PossibleValue::new(name).help(help);
        [
            value("table", "For people; no wider than the terminal"),
            value("wide", "For people who want everything"),
            value("json", "One JSON document"),
            value("yaml", "One YAML document"),
            value("name", "Names alone, one a line, as commands take them"),
            value("jsonpath=TEMPLATE", "A template such as '{.jobs[*].job}', filled from the JSON document"),
        ]
    }
}

/// Reads a [`ListOutput`], and says which there are.
#[derive(Debug, Clone, Copy)]
pub struct ListOutputParser;

impl TypedValueParser for ListOutputParser {
    type Value = ListOutput;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<ListOutput, clap::Error> {
        StringValueParser::new().try_map(|text| ListOutput::parse(&text)).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue>>> {
        Some(Box::new(ListOutput::list_forms().into_iter()))
    }
}

/// How what was recorded looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordsOutput {
    /// As lists look.
    List(ListOutput),
    /// For a spreadsheet.
    Csv,
}

/// Reads a [`RecordsOutput`], and says which there are.
#[derive(Debug, Clone, Copy)]
pub struct RecordsOutputParser;

impl TypedValueParser for RecordsOutputParser {
    type Value = RecordsOutput;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<RecordsOutput, clap::Error> {
        if value == "csv" {
            return Ok(RecordsOutput::Csv);
        }
        ListOutputParser.parse_ref(command, arg, value).map(RecordsOutput::List)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue>>> {
        let csv = PossibleValue::new("csv").help("A header, and a line for each row");
        Some(Box::new(ListOutput::list_forms().into_iter().chain([csv])))
    }
}

/// Prints what was recorded: names are one a line.
///
/// # Errors
/// As [`print_answer`].
pub fn print_records<T: Serialize>(
    output: &RecordsOutput,
    answer: &T,
    names: &str,
    csv: impl FnOnce() -> String,
    text: impl FnOnce(bool) -> String,
) -> anyhow::Result<()> {
    match output {
        RecordsOutput::Csv => write_stdout(&csv()),
        RecordsOutput::List(output) => {
            try_write(&format_list(output, answer, "RESULT", names, text)?);
        }
    }
    Ok(())
}

/// Prints `answer` as JSON or YAML, or as the table that `text` makes; its argument is whether the table is wide.
///
/// # Errors
/// If the answer can not be serialized.
pub fn print_answer<T: Serialize>(output: Output, answer: &T, text: impl FnOnce(bool) -> String) -> anyhow::Result<()> {
    write_stdout(&format_answer(output, answer, text)?);
    Ok(())
}

/// The same with colours on a terminal, in this column of a table.
///
/// # Errors
/// As [`print_answer`].
pub fn print_painted<T: Serialize>(
    output: Output,
    answer: &T,
    column: &str,
    text: impl FnOnce(bool) -> String,
) -> anyhow::Result<()> {
    let text = escape_controls(&format_answer(output, answer, text)?);
    let style = if matches!(output, Output::Table | Output::Wide) { Style::of_stdout() } else { Style::PLAIN };
    write_bytes(style.paint_words(&text, column).as_bytes());
    Ok(())
}

/// An error with its causes in one sentence, without what a cause's own text says again.
#[must_use]
pub fn describe_failure(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let of_api = cause.downcast_ref::<kube::Error>();
        let said = of_api.map_or_else(|| cause.to_string(), describe_error);
        if text.is_empty() {
            text = said;
        } else if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        // Its cause is the same refusal again.
        if matches!(of_api, Some(kube::Error::Api(_))) {
            break;
        }
    }
    text
}

/// A list: as a table that is no wider than the terminal, with everything, as a document, or as names alone.
///
/// # Errors
/// As [`print_answer`].
pub fn format_list<T: Serialize>(
    output: &ListOutput,
    answer: &T,
    column: &str,
    names: &str,
    text: impl FnOnce(bool) -> String,
) -> anyhow::Result<String> {
    let of = match output {
        ListOutput::Name => return Ok(escape_controls(names)),
        ListOutput::JsonPath(template) => {
            let answer = serde_json::to_value(answer).context("failed to write JSON")?;
            return Ok(escape_controls(&template.fill(&answer)));
        }
        ListOutput::Json => Output::Json,
        ListOutput::Yaml => Output::Yaml,
        ListOutput::Wide => Output::Wide,
        ListOutput::Table => {
            let style = Style::of_stdout();
            let text = style.cut_lines(&escape_controls(&text(false)));
            return Ok(style.paint_words(&text, column));
        }
    };
    let text = escape_controls(&format_answer(of, answer, text)?);
    Ok(if of == Output::Wide { Style::of_stdout().paint_words(&text, column) } else { text })
}

fn format_answer<T: Serialize>(
    output: Output,
    answer: &T,
    text: impl FnOnce(bool) -> String,
) -> anyhow::Result<String> {
    let text = match output {
        Output::Table => text(false),
        Output::Wide => text(true),
        Output::Json => serde_json::to_string_pretty(answer).context("failed to write JSON")?,
        // Through JSON, so that YAML has the same fields in the same form.
        Output::Yaml => {
            let value = serde_json::to_value(answer).context("failed to write JSON")?;
            serde_saphyr::to_string(&value).context("failed to write YAML")?
        }
    };
    Ok(format!("{}\n", text.trim_end()))
}

/// The text with what a terminal would obey made visible. Lines stay lines.
pub fn escape_controls(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let turns =
            matches!(c, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c == '\n' || !(c.is_control() || turns) {
            shown.push(c);
        } else {
            shown.extend(c.escape_unicode());
        }
    }
    shown
}

/// Writes to standard output, what a terminal would obey made visible. A closed pipe, as of `| head`, is no error: the
/// reader has seen enough.
pub fn write_stdout(text: &str) {
    write_bytes(escape_controls(text).as_bytes());
}

/// Writes a complaint to standard error, what a terminal would obey made visible.
pub fn write_warning(text: &str) {
    eprintln!("caldera: {}", escape_controls(text));
}

/// Writes a program of our own as it is.
pub fn write_script(script: &[u8]) {
    write_bytes(script);
}

/// Writes what [`format_list`] made, or lines whose controls are escaped; false if nobody reads any more.
pub fn try_write(text: &str) -> bool {
    write_bytes(text.as_bytes())
}

/// Whether standard output could not be written, as on a full disk: what was asked for is not there.
static OUTPUT_LOST: AtomicBool = AtomicBool::new(false);

/// Whether something that was printed was lost. A closed pipe loses nothing that anybody wanted.
pub fn is_output_lost() -> bool {
    OUTPUT_LOST.load(Ordering::Relaxed)
}

fn write_bytes(bytes: &[u8]) -> bool {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    if let Err(error) = &written
        && error.kind() != ErrorKind::BrokenPipe
        && !OUTPUT_LOST.swap(true, Ordering::Relaxed)
    {
        write_warning(&format!("failed to write to standard output: {error}"));
    }
    written.is_ok()
}

/// Columns without lines, as kubectl prints them.
pub fn format_columns<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    format_table(&header, rows.into_iter().map(Vec::from))
}

/// The same where the number of columns is known later.
pub fn format_table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    for row in rows {
        let shown = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell.replace('\n', "\\n") };
        table.add_row(row.into_iter().map(shown));
    }
    let mut text = String::new();
    for line in table.lines() {
        text += line.strip_prefix(' ').unwrap_or(&line).trim_end();
        text.push('\n');
    }
    text
}

/// An amount in a table; one that the asker does not see is a question mark.
pub fn format_seen(amount: Quantity, is_seen: bool) -> String {
    if is_seen { amount.plain().to_string() } else { "?".to_owned() }
}

/// The line below a table of queues that has column `CAPABILITY` alone.
pub const CAPABILITY_LEGEND: &str = "CAPABILITY: as the queue says; of root, what the clusters have\n";

/// Column of what is left of a capability.
pub const REAL_CAPABILITY: &str = "REAL CAPABILITY";

/// The same below one that has that column too.
pub const REAL_CAPABILITY_LEGEND: &str = "CAPABILITY: as the queue says. REAL CAPABILITY: what of it the clusters, the \
                                          queues above and others' guarantees leave\n";

/// Column of what queues used lately.
pub const USED_LATELY: &str = "USED LATELY";

/// A table with column [`USED_LATELY`] and what that is where what queues used lately counts, half of it after so many
/// seconds; else without the column. Without those, too, of `if_usual` that have nothing unusual: a queue that is open,
/// an amount that is 0.
pub fn format_with_history<const N: usize>(
    header: &[&str; N],
    rows: Vec<[String; N]>,
    half_life: Option<i64>,
    if_usual: &[&str],
) -> String {
    let is_usual = |at: usize| rows.iter().all(|row| ["", " ", "0", "Open"].contains(&row[at].as_str()));
    let shown: [bool; N] = std::array::from_fn(|at| {
        (half_life.is_some() || header[at] != USED_LATELY) && !(if_usual.contains(&header[at]) && is_usual(at))
    });
    let names: Vec<&str> = header.iter().copied().zip(shown).filter_map(|(name, is)| is.then_some(name)).collect();
    let cells = |row: [String; N]| row.into_iter().zip(shown).filter_map(|(cell, is)| is.then_some(cell)).collect();
    let mut text = format_table(&names, rows.into_iter().map(cells));
    if let Some(seconds) = half_life {
        let after = format_duration(seconds);
        text +=
            &format!("Order fair-history: what was used lately counts as much as what is, half of it after {after}\n");
    }
    text
}

/// Kinds that the short form of [`format_gaps`] names.
const MOST_NAMED_GAPS: usize = 4;

/// The list of gaps at the end of an answer. Unless it is wide, what the caller's rights do not show is one line.
pub fn format_gaps(gaps: &[Gap], wide: bool) -> String {
    let (refused, other): (Vec<&Gap>, Vec<&Gap>) =
        gaps.iter().partition(|gap| !wide && gap.why.contains("is forbidden"));
    let mut text = String::new();
    if !other.is_empty() {
        text += "\nNot seen:\n";
    }
    for gap in other {
        text += &format!("  {}: {}\n", gap.what, gap.why);
    }
    if !refused.is_empty() {
        let name = |gap: &&Gap| gap.what.split('.').next().unwrap_or_default().to_owned();
        let names: Vec<String> = refused.iter().take(MOST_NAMED_GAPS).map(name).collect();
        let more = match refused.len().saturating_sub(MOST_NAMED_GAPS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        text += &format!("\nNot seen in full with your rights: {}{more} (-o wide says why)\n", names.join(", "));
    }
    text
}

/// A cell of CSV that anybody could have named.
pub fn quote_csv(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// `3d4h`, `5m10s`: the two largest units.
pub fn format_duration(seconds: i64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let first = units.iter().position(|(size, _)| seconds >= *size).unwrap_or(units.len() - 1);
    let mut left = seconds.max(0);
    let mut text = String::new();
    for (size, unit) in &units[first..units.len().min(first + 2)] {
        if left >= *size || text.is_empty() {
            text += &format!("{}{unit}", left / size);
        }
        left %= size;
    }
    text
}

/// Asks on the terminal whether what was listed is to be done.
///
/// # Errors
/// If the answer is another than `yes`, or there is nobody to ask.
pub fn confirm_all() -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    anyhow::ensure!(std::io::IsTerminal::is_terminal(&stdin), "there is nobody to ask: say --yes, or --dry-run");
    eprint!("\nDo all of this? Only `yes` does: ");
    std::io::Write::flush(&mut std::io::stderr()).context("failed to ask")?;
    let mut answer = String::new();
    stdin.read_line(&mut answer).context("failed to read the answer")?;
    anyhow::ensure!(answer.trim() == "yes", "nothing was done");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_sentence_of_the_server() {
        let message = "configmaps \"caldera-usage\" is forbidden: User \"u\" cannot get resource";
        let status = kube::core::Status::failure(message, "Forbidden").with_code(403);
        let refused = kube::Error::Api(Box::new(status));
        let error = anyhow::Error::from(refused).context("failed to read ConfigMap n/caldera-usage");
        assert_eq!(describe_failure(&error), format!("failed to read ConfigMap n/caldera-usage: {message}"));
        let error = anyhow::anyhow!("the last").context("between: the last").context("first");
        assert_eq!(describe_failure(&error), "first: between: the last");
    }

    /// Found by a reader: a tenant's answers ended in 16 lines of 200 characters.
    #[test]
    fn what_ones_rights_do_not_show_is_one_line_unless_everything_is_asked_for() {
        let gap = |what: &str, why: &str| Gap { what: what.to_owned(), why: why.to_owned() };
        let refused = |what: &str| gap(what, &format!("{what} is forbidden: User \"u\" cannot list resource"));
        let mut gaps: Vec<Gap> = ["jobs.batch", "queues.scheduling.volcano.sh", "pods"].map(refused).into();
        let short = "\nNot seen in full with your rights: jobs, queues, pods (-o wide says why)\n";
        assert_eq!(format_gaps(&gaps, false), short);
        gaps.extend(["namespaces", "clusters.cluster.karmada.io"].map(refused));
        gaps.push(gap("member m1", "it is not ready"));
        let short = "\nNot seen:\n  member m1: it is not ready\n\nNot seen in full with your rights: jobs, queues, pods, \
                     namespaces and 1 more (-o wide says why)\n";
        assert_eq!(format_gaps(&gaps, false), short);
        assert_eq!(format_gaps(&gaps, true).lines().count(), 2 + gaps.len());
        assert_eq!(format_gaps(&[], false), "");
    }

    #[test]
    fn what_was_used_lately_is_a_column_where_it_counts() {
        let table = |half_life| {
            let row = ["ml", "8", "3"].map(str::to_owned);
            format_with_history(&["QUEUE", "USED", USED_LATELY], vec![row], half_life, &[])
        };
        assert_eq!(table(None), "QUEUE  USED\nml     8\n");
        let text = table(Some(604_800));
        assert!(text.starts_with("QUEUE  USED  USED LATELY\nml     8     3\n"), "{text}");
        assert!(text.ends_with(", half of it after 7d\n"), "{text}");
    }

    #[test]
    fn durations_have_two_units_at_most() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (61, "1m1s"),
            (3_600, "1h"),
            (90_061, "1d1h"),
            (86_401, "1d"),
            (-5, "0s"),
        ] {
            assert_eq!(format_duration(seconds), text);
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        let attack = "\u{1b}]0;owned\u{7}\u{1b}[2Jq\r\u{9b}31m\u{8}\u{202e}x\u{7f}\nnext \u{e4} \u{2713}";
        let shown = escape_controls(attack);
        assert!(!shown.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')), "{shown:?}");
        assert!(shown.starts_with("\\u{1b}]0;owned\\u{7}") && shown.ends_with("\nnext \u{e4} \u{2713}"), "{shown}");
        assert_eq!(format_columns(["A"], [["x\nFORGED".to_owned()]]), "A\nx\\nFORGED\n");
    }

    #[test]
    fn columns_have_no_lines_and_no_empty_cells() {
        assert_eq!(format_columns(["A", "B"], [["x".to_owned(), String::new()]]), "A  B\nx  -\n");
    }
}
