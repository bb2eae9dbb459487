//! Rows of a CSV file by the names of their columns.

use std::{collections::BTreeMap, fmt, str::FromStr};

use super::ReadError;

/// A CSV file with a header.
pub(super) struct Table {
    pub(super) header: Vec<String>,
    rows: Vec<(u64, csv::StringRecord)>,
    columns: BTreeMap<String, usize>,
}

/// One of its rows.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    table: &'a Table,
    record: &'a csv::StringRecord,
    pub(super) line: u64,
}

impl Table {
    /// Reads a file that must have these columns.
    pub(super) fn read(text: &str, needed: &[&str]) -> Result<Self, ReadError> {
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
        let wrong = |error: csv::Error| match error.position() {
            Some(position) => ReadError::Line { line: position.line(), what: not_csv(&error) },
            None => ReadError::File(not_csv(&error)),
        };
        let header: Vec<String> = reader.headers().map_err(wrong)?.iter().map(str::to_owned).collect();
        let mut columns = BTreeMap::new();
        for (i, name) in header.iter().enumerate() {
            if columns.insert(name.clone(), i).is_some() {
                return Err(ReadError::Line { line: 1, what: format!("there are two columns named {name:?}") });
            }
        }
        if let Some(missing) = needed.iter().find(|name| !columns.contains_key(**name)) {
            let what = format!("there is no column {missing:?}; the columns are {}", header.join(", "));
            return Err(ReadError::Line { line: 1, what });
        }
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(wrong)?;
            rows.push((record.position().map_or(0, csv::Position::line), record));
        }
        Ok(Self { header, rows, columns })
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(move |(line, record)| Row { table: self, record, line: *line })
    }
}

fn not_csv(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("it has {len} fields, and the header has {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "it is not UTF-8".to_owned(),
        _ => format!("it is not CSV: {error}"),
    }
}

impl<'a> Row<'a> {
    /// What stands in a column; empty if there is no such column.
    pub(super) fn text(&self, column: &str) -> &'a str {
        self.table.columns.get(column).and_then(|i| self.record.get(*i)).unwrap_or("")
    }

    /// The same, read; `None` where it is empty.
    pub(super) fn maybe<T: FromStr<Err: fmt::Display>>(&self, column: &str) -> Result<Option<T>, ReadError> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|error| self.wrong(format!("{column} {text:?}: {error}")))
    }

    /// The same, where it must not be empty.
    pub(super) fn read<T: FromStr<Err: fmt::Display>>(&self, column: &str) -> Result<T, ReadError> {
        self.maybe(column)?.ok_or_else(|| self.wrong(format!("{column} is empty")))
    }

    pub(super) fn wrong(&self, what: String) -> ReadError {
        ReadError::Line { line: self.line, what }
    }
}
