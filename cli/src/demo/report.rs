//! The demo's report: what held of each act, the tables and the JSON document.
//!
//! Rule: keys of the document are part of the API: docs/cli.md has each, and they are only added to. What was not
//! played has no cross.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use caldera_runtime::client::WriteKey;
use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};
use serde::Serialize;

use super::{
    acts::DemoAct,
    expectations::{Expectation, check_expectations},
    observed::{DemoJob, ForecastOutcome, Observed, Queue, format_clusters},
};
use crate::{output::escape_controls, style::Style};

/// An act, and whether all that it must show was seen.
#[derive(Debug, Serialize)]
struct ActSummary {
    act: DemoAct,
    headline: &'static str,
    held: bool,
    played: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct JobSummary {
    name: String,
    kind: String,
    queue: String,
    priority: String,
    /// Seconds from submission to release.
    waited: Option<f64>,
    clusters: BTreeMap<String, BTreeMap<String, u32>>,
    phase: String,
    reason: String,
    /// Why it was taken off its clusters, each time.
    evictions: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueSummary {
    name: String,
    state: String,
    /// By resource.
    used: BTreeMap<String, String>,
    most_used: BTreeMap<String, String>,
    limit: BTreeMap<String, String>,
}

/// The report as a JSON document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    acts: Vec<ActSummary>,
    expectations: Vec<Expectation>,
    jobs: Vec<JobSummary>,
    queues: Vec<QueueSummary>,
    /// How the expected start of low-priority came true.
    forecast: Option<ForecastOutcome>,
    /// The member that was drained.
    drained_cluster: Option<String>,
    /// The member that was switched off.
    lost_cluster: Option<String>,
    /// Writes to the host's API by component, then by verb and resource.
    writes: BTreeMap<String, BTreeMap<String, u64>>,
    writes_in_all: u64,
    /// Of those, before the first job was submitted.
    setup_writes: u64,
    writes_per_job: f64,
    sandbox_ready_seconds: f64,
    total_seconds: f64,
    /// Seconds after which the time was over, if it was before the demo was.
    time_over_seconds: Option<f64>,
}

impl Summary {
    pub fn new(
        observed: &Observed,
        counts: BTreeMap<WriteKey, u64>,
        setup_writes: u64,
        sandbox_ready: Duration,
        total: Duration,
    ) -> Self {
        let waited = |job: &DemoJob| Some((job.released?.saturating_sub(job.seen?)).as_secs_f64());
        let jobs: Vec<JobSummary> = observed
            .jobs
            .iter()
            .map(|(name, job)| JobSummary {
                name: name.clone(),
                kind: job.kind.clone(),
                queue: job.queue.clone(),
                priority: job.priority.clone(),
                waited: waited(job),
                clusters: job.clusters.clone(),
                phase: job.phase.clone(),
                reason: if job.released.is_none() { job.message.clone() } else { String::new() },
                evictions: job.evictions.clone(),
            })
            .collect();
        let queue = |(name, queue): (&String, &Queue)| {
            let column = |f: fn(&(String, String, String)) -> &String| {
                queue.resources.iter().map(|(resource, row)| (resource.clone(), f(row).clone())).collect()
            };
            QueueSummary {
                name: name.clone(),
                state: queue.state.clone(),
                most_used: column(|row| &row.0),
                used: column(|row| &row.1),
                limit: column(|row| &row.2),
            }
        };
        let mut writes: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        let mut writes_in_all = 0;
        for (key, count) in counts {
            writes_in_all += count;
            *writes.entry(key.component).or_default().entry(format!("{} {}", key.verb, key.resource)).or_default() +=
                count;
        }
        #[allow(clippy::cast_precision_loss)]
        let writes_per_job = writes_in_all.saturating_sub(setup_writes) as f64 / jobs.len().max(1) as f64;
        let expectations = check_expectations(observed);
        let held = |act: DemoAct| expectations.iter().filter(|one| one.act == act).all(|one| one.held);
        let played = |act: DemoAct| observed.begun.contains(&act);
        let sum_up = |act: DemoAct| ActSummary { act, headline: act.headline(), held: held(act), played: played(act) };
        Self {
            acts: DemoAct::ALL.into_iter().map(sum_up).collect(),
            expectations,
            forecast: observed.compare_forecast("low-priority"),
            drained_cluster: observed.drained.clone(),
            lost_cluster: observed.lost.clone(),
            queues: observed.queues.iter().map(queue).collect(),
            jobs,
            writes,
            writes_in_all,
            setup_writes,
            writes_per_job: (writes_per_job * 100.0).round() / 100.0,
            sandbox_ready_seconds: sandbox_ready.as_secs_f64(),
            total_seconds: total.as_secs_f64(),
            time_over_seconds: observed.time_over.map(|after| after.as_secs_f64()),
        }
    }

    pub fn all_held(&self) -> bool {
        self.expectations.iter().all(|expectation| expectation.held)
    }
}

impl Summary {
    /// What held, act by act, and the tables.
    pub fn format_report(&self, style: Style) -> String {
        let mut shown = format!("{}\n", self.format_jobs());
        for job in self.jobs.iter().filter(|job| !job.reason.is_empty()) {
            let _ = writeln!(shown, "{}: {}", job.name, job.reason);
        }
        let _ = writeln!(shown, "\n{}", self.format_queues());
        let title = style.paint(1, "What the API showed in the end");
        let mut text = format!("\n{title}\n\n{}", escape_controls(&shown));
        for act in &self.acts {
            let note = if act.played { "" } else { "  (not played)" };
            let _ = writeln!(text, "\n{}{note}", style.paint(1, &format!("{}  {}", act.act.number(), act.headline)));
            for expectation in self.expectations.iter().filter(|one| one.act == act.act) {
                let (mark, colour) = match (expectation.held, expectation.played) {
                    (true, _) => ("✓", 32),
                    (false, true) => ("✗", 31),
                    (false, false) => ("-", 2),
                };
                let late = if mark == "✗" && self.time_over_seconds.is_some() { ": not seen in time" } else { "" };
                let _ = writeln!(text, "   {} {}{late}", style.paint(colour, mark), expectation.what);
            }
        }
        if let Some(seconds) = self.time_over_seconds {
            let missed = self.acts.iter().filter(|act| !act.played).map(|act| act.act.number().to_string());
            let missed = match missed.collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => String::new(),
                acts => format!(", and these acts were not played: {acts}"),
            };
            let _ = writeln!(
                text,
                "\nThe time was over after {seconds:.0} s{missed}. A busy machine wants more: --deadline."
            );
        }
        let held = self.expectations.iter().filter(|expectation| expectation.held).count();
        let _ = writeln!(
            text,
            "\n{held} of {} held, in {:.1} s. Caldera wrote {} times to the host's API for queues and {} times for {} \
             jobs ({} a job).",
            self.expectations.len(),
            self.total_seconds,
            self.setup_writes,
            self.writes_in_all - self.setup_writes,
            self.jobs.len(),
            self.writes_per_job,
        );
        text
    }

    fn format_jobs(&self) -> Table {
        let mut jobs = Table::new();
        jobs.load_style(UTF8_BORDERS_ONLY).set_header(["JOB", "QUEUE", "PRIORITY", "WAITED", "CLUSTERS", "PHASE"]);
        for job in &self.jobs {
            let waited = job.waited.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}s"));
            let phase = if job.phase.is_empty() { "Pending" } else { &job.phase };
            let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
            jobs.add_row([
                job.name.clone(),
                or_dash(&job.queue),
                or_dash(&job.priority),
                waited,
                or_dash(&format_clusters(&job.clusters)),
                phase.to_owned(),
            ]);
        }
        jobs
    }

    fn format_queues(&self) -> Table {
        let mut queues = Table::new();
        queues.load_style(UTF8_BORDERS_ONLY).set_header([
            "QUEUE",
            "STATE",
            "RESOURCE",
            "USED",
            "MOST USED",
            "CAPABILITY",
        ]);
        for queue in &self.queues {
            for (resource, limit) in &queue.limit {
                let of = |column: &BTreeMap<String, String>| column.get(resource).cloned().unwrap_or_default();
                queues.add_row([
                    queue.name.clone(),
                    queue.state.clone(),
                    resource.clone(),
                    of(&queue.used),
                    of(&queue.most_used),
                    limit.clone(),
                ]);
            }
        }
        queues
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::expected_start::ExpectedStart;

    /// Every key of the document, with `*` for names that are data.
    const KEYS: &[&str] = &[
        "acts",
        "acts[].act",
        "acts[].headline",
        "acts[].held",
        "acts[].played",
        "drainedCluster",
        "expectations",
        "expectations[].act",
        "expectations[].held",
        "expectations[].played",
        "expectations[].what",
        "forecast",
        "forecast.expectedIn",
        "forecast.startedIn",
        "jobs",
        "jobs[].clusters",
        "jobs[].clusters.*",
        "jobs[].clusters.*.*",
        "jobs[].evictions",
        "jobs[].kind",
        "jobs[].name",
        "jobs[].phase",
        "jobs[].priority",
        "jobs[].queue",
        "jobs[].reason",
        "jobs[].waited",
        "lostCluster",
        "queues",
        "queues[].limit",
        "queues[].limit.*",
        "queues[].mostUsed",
        "queues[].mostUsed.*",
        "queues[].name",
        "queues[].state",
        "queues[].used",
        "queues[].used.*",
        "sandboxReadySeconds",
        "setupWrites",
        "timeOverSeconds",
        "totalSeconds",
        "writes",
        "writes.*",
        "writes.*.*",
        "writesInAll",
        "writesPerJob",
    ];

    /// Objects whose keys are names.
    const NAMED: [&str; 7] = [
        "jobs[].clusters",
        "jobs[].clusters.*",
        "queues[].limit",
        "queues[].mostUsed",
        "queues[].used",
        "writes",
        "writes.*",
    ];

    fn list_keys(value: &Value, path: &str, keys: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let key = if NAMED.contains(&path) { "*" } else { key };
                    let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
                    keys.insert(path.clone());
                    list_keys(value, &path, keys);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| list_keys(item, &format!("{path}[]"), keys)),
            _ => {}
        }
    }

    fn observe_something() -> Observed {
        let mut seen = Observed::default();
        let job = DemoJob {
            seen: Some(Duration::from_secs(1)),
            released: Some(Duration::from_secs(9)),
            clusters: [("member1".to_owned(), [("pod".to_owned(), 4)].into())].into(),
            ..DemoJob::default()
        };
        seen.jobs.insert("low-priority".to_owned(), job);
        let row = ("2".to_owned(), "1".to_owned(), "4".to_owned());
        seen.queues.insert(
            "research".to_owned(),
            Queue { state: "Open".to_owned(), resources: [("cpu".to_owned(), row)].into() },
        );
        let expected = ExpectedStart { at: None, ahead: Some(7), sure: true, basis: String::new() };
        seen.forecast = Some((Duration::from_secs(3), expected));
        seen
    }

    fn sum_up(seen: &Observed) -> Summary {
        let key = WriteKey { component: "controller".to_owned(), verb: "patch", resource: "queues".to_owned() };
        Summary::new(seen, [(key, 3)].into(), 0, Duration::from_secs(1), Duration::from_secs(2))
    }

    #[test]
    fn the_keys_of_the_json_document_are_kept_and_are_all_in_the_docs() {
        let mut keys = BTreeSet::new();
        list_keys(&serde_json::to_value(sum_up(&observe_something())).unwrap(), "", &mut keys);
        assert_eq!(keys.iter().map(String::as_str).collect::<Vec<_>>(), {
            let mut all = KEYS.to_vec();
            all.sort_unstable();
            all
        });
        let docs = include_str!("../../../docs/cli.md");
        let docs = &docs[docs.find("## What the demo prints as JSON").unwrap()..];
        for key in keys {
            let last = key.trim_end_matches(".*").rsplit('.').next().unwrap();
            assert!(docs.contains(&format!("`{last}`")), "docs/cli.md does not tell {key}");
        }
    }

    #[test]
    fn an_act_held_only_if_all_that_it_must_show_was_seen() {
        let nothing = sum_up(&Observed::default());
        assert!(nothing.acts.iter().all(|act| !act.held) && !nothing.all_held());
        let some = sum_up(&observe_something());
        let held: Vec<DemoAct> = some.acts.iter().filter(|act| act.held).map(|act| act.act).collect();
        assert_eq!(held, [DemoAct::Start]);
        let report = some.format_report(Style::PLAIN);
        assert!(report.contains("✓ low-priority started when it was expected to"), "{report}");
        assert!(!report.contains('\u{1b}'));
    }

    /// Found by a reader: acts that were never played had a cross, and nothing said that the time was over.
    #[test]
    fn what_was_not_played_is_not_called_broken_and_the_time_is_told() {
        let mut seen = observe_something();
        seen.begun.extend([DemoAct::Gangs, DemoAct::Line, DemoAct::Start]);
        seen.time_over = Some(Duration::from_secs(55));
        let report = sum_up(&seen).format_report(Style::PLAIN);
        assert!(report.contains("✗ pytorch-gpu ran whole in one cluster: not seen in time\n"), "{report}");
        assert!(
            report.contains("Lent quota comes back to its owner  (not played)\n   - one of the speech"),
            "{report}"
        );
        assert!(report.contains("over after 55 s, and these acts were not played: 4, 5. "), "{report}");
        assert!(!report.split_once("(not played)").unwrap().1.contains('✗'), "{report}");
    }

    #[test]
    fn a_start_that_came_much_later_than_expected_did_not_come_true() {
        let outcome = |started_in| ForecastOutcome { expected_in: 8.0, started_in };
        assert!(outcome(7.0).came_true() && outcome(20.0).came_true() && !outcome(40.0).came_true());
        assert_eq!(outcome(7.25).describe(), "expected to start in 8 s, and started in 7.2 s: that came true");
    }
}
