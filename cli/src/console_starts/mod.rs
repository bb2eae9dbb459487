//! Expected starts as the console tells them: where the caller's own credentials do not show everything that decides,
//! `caldera why` and `caldera job list --start` take them from there.
//!
//! Rules:
//! - Only where the caller's own view lacks something is the console asked, and only an instant that is not known is
//!   replaced. What is taken says where it comes from.
//! - The console is asked with the caller's own token, over TLS or on this machine ([`client`]).
//! - Whatever goes wrong is a gap in words, with what is known without it. What the console says is text of somebody
//!   else: it is cut, and has no line breaks and no controls.
//! - Without a console the words say how to come by one.

mod client;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{gang::WorkloadRef, text::count_noun};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::client::ConsoleSource;
use crate::{
    expected_start::ExpectedStart,
    live::{Gap, Live},
    output::escape_controls,
};

/// Namespaces that a console is asked about for one list.
const MOST_NAMESPACES: usize = 16;
/// Characters of what the console says in words.
const MOST_WORDS: usize = 300;
const HINT: &str = "ask your admin for the console's URL and pass --console URL";

/// What the console answers of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartsAnswer {
    /// Which.
    pub namespace: String,
    /// When they were worked out.
    pub worked_out_at: String,
    /// Of jobs that wait and can start.
    pub starts: Vec<PublishedStart>,
    /// How many more there are.
    #[serde(default)]
    pub more: usize,
}

/// The expected start of a job that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublishedStart {
    /// Its API group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// When, to the minute; none if it is not known.
    pub at: Option<String>,
    /// Seconds from when it was worked out.
    pub in_seconds: Option<i64>,
    /// Whether all jobs that it depends on said how long they run.
    pub sure: bool,
    /// What it rests on, or why it is not known.
    pub basis: String,
}

/// What the caller's own view lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewGap {
    /// He may not list everything that decides.
    Rights,
    /// A member can not be read by him.
    Member,
}

/// Starts that were taken from a console, and why others were not.
#[derive(Debug, Clone, Default)]
pub struct TakenStarts {
    starts: BTreeMap<WorkloadRef, ExpectedStart>,
    /// By namespace, what to say of a job that has none.
    lacks: BTreeMap<String, String>,
    /// What went wrong.
    pub gaps: Vec<Gap>,
    /// Which console told them.
    pub reported_by: Option<String>,
}

/// What hides expected starts from the caller that a console may know. Once it was decided.
#[must_use]
pub fn find_view_gap(live: &Live) -> Option<ViewGap> {
    if live.controller.pause_reason().is_some() {
        return None;
    }
    if !live.controller.is_complete() {
        return Some(ViewGap::Rights);
    }
    // Of one that is not ready nobody knows more.
    live.find_unread_member().map(|_| ViewGap::Member)
}

/// Asks a console about the jobs of these namespaces; where there is none, says how to come by one.
pub async fn take_starts(
    source: Option<&ConsoleSource>,
    gap: ViewGap,
    namespaces: BTreeSet<String>,
    now: Timestamp,
) -> TakenStarts {
    let mut taken = TakenStarts::default();
    let Some(source) = source else {
        if gap == ViewGap::Rights {
            taken.lacks.extend(namespaces.into_iter().map(|namespace| (namespace, HINT.to_owned())));
        }
        return taken;
    };
    let (asked, left): (Vec<_>, Vec<_>) = namespaces.into_iter().enumerate().partition(|(at, _)| *at < MOST_NAMESPACES);
    let asked: Vec<String> = asked.into_iter().map(|(_, namespace)| namespace).collect();
    for (namespace, answer) in asked.iter().zip(source.ask(&asked).await) {
        let answer = answer.and_then(|(status, body)| read_answer(status, &body, namespace));
        taken.add_answer(source.url(), namespace, answer, now);
    }
    if !left.is_empty() {
        let why = format!("it was asked about {MOST_NAMESPACES} namespaces, and not about {} more", left.len());
        taken.gaps.push(Gap { what: format!("console {}", source.url()), why });
        let lack = "the console was not asked about this namespace: name it";
        taken.lacks.extend(left.into_iter().map(|(_, namespace)| (namespace, lack.to_owned())));
    }
    taken
}

impl TakenStarts {
    /// Takes in what the console said of a namespace, or why it said nothing.
    fn add_answer(&mut self, url: &str, namespace: &str, answer: Result<StartsAnswer, String>, now: Timestamp) {
        let answer = answer.and_then(|answer| {
            let made = answer.worked_out_at.parse::<Timestamp>();
            Ok((answer, made.map_err(|_| "does not say when it worked them out".to_owned())?))
        });
        match answer {
            Err(why) => {
                let gap = Gap { what: format!("console {url}"), why: why.clone() };
                if !self.gaps.contains(&gap) {
                    self.gaps.push(gap);
                }
                self.lacks.insert(namespace.to_owned(), format!("the console {why}"));
            }
            Ok((answer, made)) => {
                self.reported_by = Some(url.to_owned());
                let lack = if answer.more > 0 {
                    format!(
                        "the console tells the first {} of this namespace",
                        count_noun(answer.starts.len(), "start")
                    )
                } else {
                    "the console tells no start of it: it was just submitted, or can not start as it is".to_owned()
                };
                self.lacks.insert(namespace.to_owned(), lack);
                for reported in answer.starts {
                    let (group, kind, name) = (reported.group.clone(), reported.kind.clone(), reported.name.clone());
                    let workload = WorkloadRef { group, kind, namespace: namespace.to_owned(), name };
                    self.starts.insert(workload, convert_start(&reported, made, now));
                }
            }
        }
    }

    /// What is told of a job that waits, where this is what the caller's own view tells.
    #[must_use]
    pub fn complete_start(&self, workload: &WorkloadRef, own: Option<ExpectedStart>) -> Option<ExpectedStart> {
        if own.as_ref().is_some_and(|own| own.at.is_some()) {
            return own;
        }
        let reported = self.starts.get(workload).cloned();
        reported.or_else(|| {
            let mut own = own?;
            if let Some(lack) = self.lacks.get(&workload.namespace) {
                own.basis = format!("{}; {lack}", own.basis);
            }
            Some(own)
        })
    }

    /// What is said below a table of starts: who told them, what went wrong, and what to do.
    #[must_use]
    pub fn describe(&self, gap: ViewGap) -> String {
        let mut text = String::new();
        if let Some(url) = &self.reported_by {
            text += &format!("Starts that your credentials do not show are told by the console {url}\n");
        } else if gap == ViewGap::Rights && self.gaps.is_empty() {
            text += &format!("not known: your credentials do not show everything that decides; {HINT}\n");
        }
        text + &crate::output::format_gaps(&self.gaps, true)
    }
}

/// The start that was told, some time after it was worked out.
fn convert_start(reported: &PublishedStart, made: Timestamp, now: Timestamp) -> ExpectedStart {
    // No age, which would make a list that is watched another one each second.
    let basis = format!("{}; the console worked it out at {}", clean_words(&reported.basis), format_minute(made));
    let at = reported.at.as_deref().and_then(read_minute);
    let ahead = reported.in_seconds.filter(|_| at.is_some()).map(|seconds| match seconds {
        ..=0 => 0,
        // What was not to start at once is not said to start now, however late it is.
        seconds => made.as_second().saturating_add(seconds).saturating_sub(now.as_second()).max(1),
    });
    ExpectedStart { sure: reported.sure && at.is_some(), at, ahead, basis }
}

/// Reads `2026-01-02T14:05Z`, and writes the same.
fn read_minute(text: &str) -> Option<String> {
    let at: Timestamp = format!("{}:00Z", text.strip_suffix('Z')?).parse().ok()?;
    Some(format_minute(at))
}

fn format_minute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%MZ").to_string()
}

/// What a console said of a namespace, or why that is no answer.
fn read_answer(status: StatusCode, body: &[u8], namespace: &str) -> Result<StartsAnswer, String> {
    #[derive(Deserialize)]
    struct Denied {
        error: String,
    }
    if status != StatusCode::OK {
        let said = serde_json::from_slice::<Denied>(body).map(|denied| clean_words(&denied.error));
        let said = said.map(|said| format!(": {said}")).unwrap_or_default();
        return Err(match status {
            StatusCode::UNAUTHORIZED => format!("refused your token{said}"),
            StatusCode::FORBIDDEN => format!("refuses{said}"),
            _ => format!("answered with status {}{said}", status.as_u16()),
        });
    }
    let answer: StartsAnswer = serde_json::from_slice(body).map_err(|_| "answered something else than starts")?;
    if answer.namespace != namespace {
        return Err("answered about another namespace".to_owned());
    }
    Ok(answer)
}

/// Words of somebody else, in one line of bounded length, without what a terminal would obey.
fn clean_words(text: &str) -> String {
    let cut: String = text.chars().take(MOST_WORDS).collect();
    escape_controls(&cut.replace('\n', " "))
}

/// Whether a text can be the name of a namespace (RFC 1123).
#[must_use]
pub fn is_namespace_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.len() <= 63 && text.chars().all(is_plain) && !text.starts_with('-') && !text.ends_with('-')
}
