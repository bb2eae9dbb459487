//! Maintenance windows: times for which a cluster, or some of its nodes, are kept for nobody, or for some queues.
//!
//! Rule: Slurm's reservations with flag `MAINT` (`scontrol create reservation flags=maint`; `job_test_resv` of
//! `src/slurmctld/reservation.c`). Nothing starts in a cluster during its window, nor anything before it that would not
//! have ended when it begins. What runs there runs on. Slurm takes a job without a time limit for endless; so is it
//! here, but only from the window's notice on: few jobs on Kubernetes say how long they run, and an endless one may use
//! the cluster until then. A window may name node groups ([`crate::node_groups`]), as a reservation names nodes: then
//! it is about these nodes alone. And it may name queues, as a reservation with `accounts=` does: jobs of these and of
//! queues below them start in it.
//!
//! Annotation `caldera.dev/maintenance` of a Cluster: a JSON list of windows, each `{"start": "2026-11-26T08:00:00Z",
//! "end": "2026-11-26T12:00:00Z", "reason": "new kernels", "notice": "24h", "nodeGroups": ["a100"], "queues":
//! ["ops"]}`. Times are RFC 3339; all but start and end may be left out. One fault and none of the windows counts.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    gang::{Operator, QueueName, Requirement},
    node_groups::NODE_GROUP,
    run_limit::RunTime,
    status::duration::parse_whole_seconds,
    text::name_some,
    time::EpochSeconds,
};

/// So many windows may a cluster have.
pub const MOST_WINDOWS: usize = 16;
/// Bytes of the annotation.
const MOST_ANNOTATION_BYTES: usize = 8192;
/// Characters of a reason.
const LONGEST_REASON: usize = 200;
/// Node groups, and queues, that a window names.
const MOST_NAMES: usize = 64;
/// Characters of such a name.
const LONGEST_NAME: usize = 253;
/// The notice of a window that does not say it, in seconds.
pub const DEFAULT_NOTICE: i64 = 24 * 3600;

/// The windows of a cluster, the first to begin first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maintenance(Vec<MaintenanceWindow>);

/// A time for which a cluster is kept for nobody.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaintenanceWindow {
    /// From then on.
    pub start: EpochSeconds,
    /// Until then: later than the start.
    pub end: EpochSeconds,
    /// So many seconds before the start begins the time in which no job starts that does not say how long it runs.
    pub notice: i64,
    /// For people.
    pub reason: String,
    /// The groups of the nodes that it is about; all nodes where it names none.
    pub node_groups: Vec<String>,
    /// Whose jobs start in it, and those of the queues below; nobody's where it names none.
    pub queues: Vec<QueueName>,
}

/// When a job would run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedRun {
    /// It starts then.
    pub from: EpochSeconds,
    /// It has ended by then, as its workload says; `None` where that says nothing.
    pub ends: Option<EpochSeconds>,
    /// It is ended then, however late it began; `None` where it may run for ever.
    pub limit: Option<EpochSeconds>,
    /// It begins and ends so many seconds later, where nodes must come first.
    pub delay: i64,
}

/// Why a text does not say when a cluster is under maintenance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseMaintenanceError {
    /// Not such a list.
    #[error(
        "it is no JSON list of windows with start and end, and with reason, notice, nodeGroups and queues at most: {0}"
    )]
    Malformed(String),
    /// Not a time.
    #[error("{0:?} is no time as 2026-11-26T08:00:00Z")]
    Time(String),
    /// Nothing in between.
    #[error("a window from {0} to {1} does not end after it starts")]
    Empty(String, String),
    /// Not a duration.
    #[error("{0:?} is no notice: it is a second at least, as 90s, 45m or 24h")]
    Notice(String),
    /// Not a name.
    #[error("{0:?} is no name of a node group or a queue, or there are more than {MOST_NAMES} of them")]
    Name(String),
    /// Too much.
    #[error(
        "more than {MOST_WINDOWS} windows, {MOST_ANNOTATION_BYTES} bytes, or {LONGEST_REASON} characters of a reason"
    )]
    TooLong,
}

/// As it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowText {
    start: String,
    end: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    notice: Option<String>,
    #[serde(default, rename = "nodeGroups", skip_serializing_if = "Vec::is_empty")]
    node_groups: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    queues: Vec<QueueName>,
}

impl Maintenance {
    /// Of these windows.
    #[must_use]
    pub fn new(mut windows: Vec<MaintenanceWindow>) -> Self {
        windows.sort();
        Self(windows)
    }

    /// The windows in which or before which such a run of a job of these queues can not start.
    pub fn list_conflicts(&self, run: ExpectedRun, path: &[QueueName]) -> impl Iterator<Item = &MaintenanceWindow> {
        self.0.iter().filter(move |window| window.keeps_out(run) && !window.is_kept_for(path))
    }

    /// Whether some window is kept for jobs of some queues.
    #[must_use]
    pub fn names_queues(&self) -> bool {
        self.0.iter().any(|window| !window.queues.is_empty())
    }

    /// The windows that are not over then.
    pub fn list_windows_ending_after(&self, now: EpochSeconds) -> impl Iterator<Item = &MaintenanceWindow> {
        self.0.iter().filter(move |window| window.end > now)
    }

    /// When the next window ends, after that time.
    #[must_use]
    pub fn next_end(&self, after: EpochSeconds) -> Option<EpochSeconds> {
        self.list_windows_ending_after(after).map(|window| window.end).min()
    }
}

impl ExpectedRun {
    /// The same where nodes that take so many seconds must come first. Its pods start sooner where others' capacity
    /// does.
    #[must_use]
    pub const fn with_delay(self, delay: i64) -> Self {
        Self { delay, ..self }
    }

    /// Who should have ended by now and has not may run for ever.
    pub(crate) fn known_end(self) -> Option<EpochSeconds> {
        let is_to_come = |end: &EpochSeconds| *end > self.from;
        let said = self.ends.filter(is_to_come).map(|ends| ends.saturating_add(self.delay));
        said.into_iter().chain(self.limit.filter(is_to_come)).min()
    }

    /// Whether it is ended before its nodes have come.
    #[must_use]
    pub fn ends_before_nodes_come(self) -> bool {
        self.delay > 0 && self.limit.is_some_and(|limit| limit <= self.from.saturating_add(self.delay))
    }
}

impl MaintenanceWindow {
    /// Whether such a run can not start for it.
    pub(crate) fn keeps_out(&self, run: ExpectedRun) -> bool {
        let reaches_into = match run.known_end() {
            Some(ends) => ends > self.start,
            None => run.from.saturating_add(run.delay) >= self.start.saturating_sub(self.notice),
        };
        run.from < self.end && (run.from >= self.start || reaches_into)
    }

    /// Whether jobs with this path of queues, the nearest first, start in it.
    fn is_kept_for(&self, path: &[QueueName]) -> bool {
        path.iter().any(|queue| self.queues.contains(queue))
    }

    /// Which nodes are in its groups; `None` where it is about all nodes.
    #[must_use]
    pub fn nodes(&self) -> Option<Requirement> {
        let of = |values| Requirement { key: NODE_GROUP.to_owned(), operator: Operator::In, values };
        (!self.node_groups.is_empty()).then(|| of(self.node_groups.clone()))
    }

    /// Why such a run does not start in the cluster, or on the nodes of its groups there.
    #[must_use]
    pub fn describe_conflict(&self, cluster: &str, run: ExpectedRun) -> String {
        let would = match run.known_end() {
            _ if run.from >= self.start && self.queues.is_empty() => "nothing starts there until then".to_owned(),
            _ if run.from >= self.start => "nothing else starts there until then".to_owned(),
            Some(ends) => format!("it would run until {}", format_time(ends)),
            None => "it does not say for how long it runs".to_owned(),
        };
        let would = match run.delay {
            0 => would,
            delay => format!("{would}, since its nodes take {} to come", RunTime(delay)),
        };
        match self.node_groups.as_slice() {
            [] => format!("cluster {cluster} is under maintenance {self}: {would}"),
            _ => format!("in cluster {cluster} maintenance is {self}: {would}"),
        }
    }
}

impl fmt::Display for MaintenanceWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {} to {}", format_time(self.start), format_time(self.end))?;
        if !self.reason.is_empty() {
            write!(f, " ({})", self.reason)?;
        }
        if !self.node_groups.is_empty() {
            write!(f, " of the node groups {}", name_some(&self.node_groups))?;
        }
        if self.queues.is_empty() {
            Ok(())
        } else {
            write!(f, " for all but jobs of queue {}", name_some(&self.queues))
        }
    }
}

/// The annotation's text.
impl fmt::Display for Maintenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = |window: &MaintenanceWindow| WindowText {
            start: format_time(window.start),
            end: format_time(window.end),
            reason: window.reason.clone(),
            notice: (window.notice != DEFAULT_NOTICE).then(|| RunTime(window.notice).to_string()),
            node_groups: window.node_groups.clone(),
            queues: window.queues.clone(),
        };
        let all: Vec<WindowText> = self.0.iter().map(written).collect();
        f.write_str(&serde_json::to_string(&all).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Maintenance {
    type Err = ParseMaintenanceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MOST_ANNOTATION_BYTES {
            return Err(ParseMaintenanceError::TooLong);
        }
        let windows: Vec<WindowText> =
            serde_json::from_str(text).map_err(|error| ParseMaintenanceError::Malformed(error.to_string()))?;
        if windows.len() > MOST_WINDOWS {
            return Err(ParseMaintenanceError::TooLong);
        }
        Ok(Self::new(windows.into_iter().map(MaintenanceWindow::try_from).collect::<Result<_, _>>()?))
    }
}

impl TryFrom<WindowText> for MaintenanceWindow {
    type Error = ParseMaintenanceError;

    fn try_from(written: WindowText) -> Result<Self, Self::Error> {
        let WindowText { start: from, end: to, reason, notice, node_groups, queues } = written;
        let (start, end) = (parse_time(&from)?, parse_time(&to)?);
        if end <= start {
            return Err(ParseMaintenanceError::Empty(from, to));
        }
        if reason.chars().count() > LONGEST_REASON {
            return Err(ParseMaintenanceError::TooLong);
        }
        let notice = match notice {
            None => DEFAULT_NOTICE,
            Some(notice) => parse_whole_seconds(&notice).ok_or(ParseMaintenanceError::Notice(notice))?,
        };
        check_names(node_groups.iter().map(String::as_str))?;
        check_names(queues.iter().map(QueueName::as_str))?;
        Ok(Self { start, end, notice, reason, node_groups, queues })
    }
}

fn check_names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Result<(), ParseMaintenanceError> {
    let is_long = names.len() > MOST_NAMES;
    let is_name = |name: &str| !name.is_empty() && name.len() <= LONGEST_NAME && !name.contains(char::is_whitespace);
    for name in names {
        if is_long || !is_name(name) {
            return Err(ParseMaintenanceError::Name(name.to_owned()));
        }
    }
    Ok(())
}

fn parse_time(text: &str) -> Result<EpochSeconds, ParseMaintenanceError> {
    let time: Timestamp = text.parse().map_err(|_| ParseMaintenanceError::Time(text.to_owned()))?;
    Ok(EpochSeconds::new(time.as_second()))
}

/// As Kubernetes writes it; the number where no calendar has it.
fn format_time(time: EpochSeconds) -> String {
    Timestamp::from_second(time.as_seconds()).map_or_else(|_| time.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(start: i64, end: i64, notice: i64) -> MaintenanceWindow {
        let (start, end) = (EpochSeconds::new(start), EpochSeconds::new(end));
        MaintenanceWindow { start, end, notice, reason: String::new(), node_groups: vec![], queues: vec![] }
    }

    fn run(from: i64, seconds: Option<i64>) -> ExpectedRun {
        let from = EpochSeconds::new(from);
        ExpectedRun { from, ends: seconds.map(|seconds| from.saturating_add(seconds)), limit: None, delay: 0 }
    }

    #[test]
    fn nothing_starts_during_a_window() {
        let window = window(1_000, 2_000, 100);
        for ends in [None, Some(1), Some(5_000)] {
            assert!(window.keeps_out(run(1_000, ends)) && window.keeps_out(run(1_999, ends)), "{ends:?}");
            assert!(!window.keeps_out(run(2_000, ends)), "{ends:?}");
        }
    }

    #[test]
    fn nothing_starts_that_would_not_have_ended_when_the_window_begins() {
        let window = window(1_000, 2_000, 100);
        assert!(!window.keeps_out(run(400, Some(600))));
        assert!(window.keeps_out(run(400, Some(601))));
        assert!(window.keeps_out(run(0, Some(i64::MAX))));
    }

    #[test]
    fn who_does_not_say_how_long_it_runs_starts_until_the_notice() {
        let window = window(1_000, 2_000, 100);
        assert!(!window.keeps_out(run(899, None)));
        assert!(window.keeps_out(run(900, None)));
        // So it is with who should have ended by now.
        assert!(!window.keeps_out(run(899, Some(-5))) && window.keeps_out(run(900, Some(-5))));
    }

    #[test]
    fn what_may_start_later_for_want_of_nodes_is_out_of_the_way_now_and_then() {
        let window = window(1_000, 2_000, 100);
        assert!(!window.keeps_out(run(400, Some(300)).with_delay(300)));
        assert!(window.keeps_out(run(400, Some(300)).with_delay(301)));
        assert!(!window.keeps_out(run(400, None).with_delay(499)) && window.keeps_out(run(400, None).with_delay(500)));
        // It may find room before the nodes come.
        assert!(window.keeps_out(run(1_900, Some(10)).with_delay(300)));
        // A limit counts from the release, however late its pods begin.
        let limited =
            |seconds: i64| ExpectedRun { limit: Some(EpochSeconds::new(400 + seconds)), ..run(400, Some(700)) };
        assert!(!window.keeps_out(limited(600).with_delay(300)) && window.keeps_out(limited(601).with_delay(300)));
        assert!(limited(300).with_delay(300).ends_before_nodes_come());
        assert!(!limited(301).with_delay(300).ends_before_nodes_come() && !limited(0).ends_before_nodes_come());
        assert!(
            !window.keeps_out(run(899, Some(-5)).with_delay(0)) && window.keeps_out(run(899, Some(-5)).with_delay(1))
        );
    }

    #[test]
    fn the_first_window_in_the_way_is_reported_with_its_times_and_the_runs() {
        let text = r#"[{"start":"2026-11-27T00:00:00Z","end":"2026-11-27T01:00:00Z"},
            {"start":"2026-11-26T09:00:00+01:00","end":"2026-11-26T12:00:00Z","reason":"new kernels","notice":"2h"}]"#;
        let all: Maintenance = text.parse().unwrap();
        let at = |text: &str, seconds| run(parse_time(text).unwrap().as_seconds(), seconds);
        let reported =
            |run: ExpectedRun| all.list_conflicts(run, &[]).next().map(|window| window.describe_conflict("m1", run));
        let first = "cluster m1 is under maintenance from 2026-11-26T08:00:00Z to 2026-11-26T12:00:00Z (new kernels): ";
        let before = at("2026-11-26T07:00:00Z", Some(7_200));
        assert_eq!(reported(before), Some(format!("{first}it would run until 2026-11-26T09:00:00Z")));
        let endless = at("2026-11-26T06:00:00Z", None);
        assert_eq!(reported(endless), Some(format!("{first}it does not say for how long it runs")));
        let during = at("2026-11-26T10:00:00Z", Some(60));
        assert_eq!(reported(during), Some(format!("{first}nothing starts there until then")));
        let second = "cluster m1 is under maintenance from 2026-11-27T00:00:00Z to 2026-11-27T01:00:00Z: ";
        let between = at("2026-11-26T12:00:00Z", None);
        assert_eq!(reported(between), Some(format!("{second}it does not say for how long it runs")));
        assert_eq!(reported(at("2026-11-27T01:00:00Z", None)), None);
        let end = |text: &str| all.next_end(parse_time(text).unwrap()).map(format_time);
        assert_eq!(end("2026-11-26T00:00:00Z").as_deref(), Some("2026-11-26T12:00:00Z"));
        assert_eq!(end("2026-11-26T12:00:00Z").as_deref(), Some("2026-11-27T01:00:00Z"));
        assert_eq!(end("2026-11-27T01:00:00Z"), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        let of = |start: &str, end: &str, more: &str| format!(r#"[{{"start":"{start}","end":"{end}"{more}}}]"#);
        let (start, end) = ("2026-11-26T08:00:00Z", "2026-11-26T12:00:00Z");
        let long = format!(r#","reason":"{}""#, "x".repeat(LONGEST_REASON + 1));
        let many = format!("[{}]", vec![format!(r#"{{"start":"{start}","end":"{end}"}}"#); MOST_WINDOWS + 1].join(","));
        for (text, said) in [
            (String::new(), "no JSON list"),
            ("{}".to_owned(), "no JSON list"),
            (r#"[{"start":"2026-11-26T08:00:00Z"}]"#.to_owned(), "missing field `end`"),
            (of(start, end, r#","until":"x""#), "unknown field `until`"),
            (of("tomorrow", end, ""), "\"tomorrow\" is no time"),
            (of("2026-11-26", end, ""), "\"2026-11-26\" is no time"),
            (of(end, start, ""), "does not end after it starts"),
            (of(start, start, ""), "does not end after it starts"),
            (of(start, end, r#","notice":"1d""#), "\"1d\" is no notice"),
            (of(start, end, &long), "more than"),
            (of(start, end, r#","nodeGroups":[""]"#), "\"\" is no name of a node group or a queue"),
            (of(start, end, r#","queues":["a b"]"#), "\"a b\" is no name"),
            (of(start, end, &format!(r#","queues":[{}]"#, vec!["\"q\""; MOST_NAMES + 1].join(","))), "more than 64"),
            (of(start, end, r#","queues":"ops""#), "no JSON list"),
            (many, "more than 16 windows"),
            (" ".repeat(MOST_ANNOTATION_BYTES + 1), "more than"),
        ] {
            let error = text.parse::<Maintenance>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert_eq!("[]".parse(), Ok(Maintenance::default()));
    }

    #[test]
    fn a_window_that_is_kept_for_queues_is_in_the_way_of_nobody_of_theirs() {
        let text = r#"[{"start":"2026-11-26T08:00:00Z","end":"2026-11-26T12:00:00Z","queues":["ops","all"]}]"#;
        let all: Maintenance = text.parse().unwrap();
        assert!(all.names_queues() && !Maintenance::default().names_queues());
        let during = run(parse_time("2026-11-26T09:00:00Z").unwrap().as_seconds(), None);
        let path = |queues: &[&str]| queues.iter().map(|queue| QueueName::from(*queue)).collect::<Vec<_>>();
        let meets = |queues: &[&str]| all.list_conflicts(during, &path(queues)).next().is_some();
        assert!(!meets(&["ops"]) && !meets(&["kernels", "ops"]), "theirs, and those below");
        assert!(meets(&["ml"]) && meets(&[]));
        let reported = "cluster m1 is under maintenance from 2026-11-26T08:00:00Z to 2026-11-26T12:00:00Z for all but jobs \
                    of queue ops, all: nothing else starts there until then";
        let window = all.list_conflicts(during, &[]).next().unwrap();
        assert_eq!(window.describe_conflict("m1", during), reported);
        assert_eq!(window.nodes(), None);
    }

    #[test]
    fn a_window_of_node_groups_is_reported_with_them() {
        let text = r#"[{"start":"2026-11-26T08:00:00Z","end":"2026-11-26T12:00:00Z","reason":"fans",
            "nodeGroups":["a100","h100"]}]"#;
        let all: Maintenance = text.parse().unwrap();
        let during = run(parse_time("2026-11-26T09:00:00Z").unwrap().as_seconds(), None);
        let window = all.list_conflicts(during, &[]).next().unwrap();
        let reported = "in cluster m1 maintenance is from 2026-11-26T08:00:00Z to 2026-11-26T12:00:00Z (fans) of the node \
                    groups a100, h100: nothing starts there until then";
        assert_eq!(window.describe_conflict("m1", during), reported);
        let nodes = window.nodes().unwrap();
        assert!(nodes.matches(Some("a100")) && !nodes.matches(Some("t4")) && !nodes.matches(None));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same(
            windows in prop::collection::vec((0..4_000_000_000_i64, 1..1_000_000_i64, 1..1_000_000_i64, "[a-z \"é]{0,9}"), 0..9),
            names in prop::collection::vec("[a-z]{1,5}", 0..3)
        ) {
            let of = |(start, length, notice, reason): (i64, i64, i64, String)| {
                let queues = names.iter().map(|name| QueueName::from(name.as_str())).collect();
                let node_groups = names.clone();
                MaintenanceWindow { reason, queues, node_groups, ..window(start, start + length, notice) }
            };
            let all = Maintenance::new(windows.into_iter().map(of).collect());
            prop_assert_eq!(all.to_string().parse(), Ok(all));
        }

        /// Whoever starts is, by its own word, in the cluster at no time of the window.
        #[test]
        fn a_run_that_says_how_long_it_takes_never_meets_a_window(
            start in -50..50_i64, length in 1..50_i64, notice in 1..99_i64, from in -99..99_i64, takes in 1..99_i64
        ) {
            let window = window(start, start + length, notice);
            let meets = from < start + length && from + takes > start;
            prop_assert_eq!(window.keeps_out(run(from, Some(takes))), meets);
        }
    }
}
