//! Reports as tables for people: policies side by side, and what each number is.

use std::{collections::BTreeSet, fmt::Write as _};

use caldera_core::{gang::QueueName, resources::ResourceName, text::count_noun};
use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};

use crate::{
    report::{Class, Report, Waits},
    time::Millis,
};

/// A number of the first table: its name, the number, and what it is.
type Row = (&'static str, fn(&Report) -> String, &'static str);

const NUMBERS: [Row; 20] = [
    ("jobs", |r| r.jobs.to_string(), "all that there are"),
    ("finished", |r| r.finished.to_string(), "ended before the simulation did"),
    ("never started", |r| r.unstarted.to_string(), "could have started, and had not when it ended"),
    ("can never start", |r| r.never_fit.to_string(), "ask for more than an empty fleet, or their queues, would give"),
    (
        "starved",
        |r| r.starved.to_string(),
        "waited more than --starved-after times their bound: the work before them at full capacity",
    ),
    ("waited in a member", |r| r.waited_in_members.to_string(), "were sent where a part of them had to wait"),
    (
        "preemptions / work lost",
        |r| format!("{} / {}", r.preemptions, r.lost.percent()),
        "evicted jobs; of allocated x time the part of runs that were cut short",
    ),
    (
        "wait p50 / p90 / p99 / max",
        |r| waits(Some(&r.wait_seconds)),
        "from arrival to the last pod bound, of 50, 90, 99 and 100 % of jobs; > if one of them still waits",
    ),
    ("makespan", |r| r.makespan_seconds.to_string(), "from the first arrival to the last end"),
    ("SOR", |r| r.sor.percent(), "allocated x time, of capacity x time of the main resource"),
    ("SOR while jobs arrive", |r| r.sor_while_arriving.percent(), "the same until the last arrival"),
    ("SOR while jobs wait", |r| r.sor_while_waiting.percent(), "the same only while some job waits"),
    (
        "GAR median / most",
        |r| format!("{} / {}", r.gar_median.percent(), r.gar_most.percent()),
        "allocated, of the capacity at an instant",
    ),
    (
        "held idle",
        |r| r.held_idle.percent(),
        "of capacity x time the part that is bound to gangs which wait for their other parts",
    ),
    (
        "GFR / of open nodes",
        |r| format!("{} / {}", r.gfr.percent(), r.gfr_of_open.percent()),
        "nodes of which some but not all is free, of all nodes; of those with some free",
    ),
    (
        "contended",
        |r| r.shares.contended_seconds.to_string(),
        "time in which some queue wants more than it has; the next two are of that time",
    ),
    (
        "deviation mean / most",
        |r| format!("{} / {}", r.shares.mean_deviation.percent(), r.shares.max_deviation.percent()),
        "the largest distance of a queue from its fair share, of the capacity",
    ),
    ("Jain", |r| r.shares.jain.percent(), "Jain's index of used by fair share: 100 % if all queues have their shares"),
    (
        "short by a job, in all / longest",
        |r| format!("{} / {}", r.shares.short_by_a_job_seconds, r.shares.longest_short_seconds),
        "time in which some queue is short of its share by more than the largest job",
    ),
    (
        "queues over their capability",
        |r| r.over_limit_seconds.to_string(),
        "time in which some queue holds more in clusters than its capability, or one above",
    ),
];

/// The same, where some job says where its data is.
const FETCHED: Row = (
    "data fetched",
    |r| r.fetched_bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{} Gi", bytes.div_ceil(1 << 30))),
    "data that is not where jobs are sent, each time; sizes that are not in bytes do not count",
);

/// Three tables: all numbers, waits by size class, waits by queue; then what each number is, one a line.
#[must_use]
pub fn tables(reports: &[Report]) -> String {
    let has_data = reports.iter().any(|report| report.fetched_bytes.is_some());
    let numbers: Vec<Row> = NUMBERS.into_iter().chain(has_data.then_some(FETCHED)).collect();
    let mut all = table("", reports);
    for (name, number, _) in &numbers {
        all.add_row([(*name).to_owned()].into_iter().chain(reports.iter().map(number)));
    }
    let classes: BTreeSet<Class> =
        reports.iter().flat_map(|report| report.wait_seconds_by_class.keys().copied()).collect();
    let resource = ResourceName::from(reports.first().map_or("", |report| report.resource.as_str()));
    let unit = if resource.counts_bytes() { format!("Gi of {resource}") } else { resource.to_string() };
    let mut by_class = table(&format!("wait by {unit} of the gang: p50 / p90 / p99 / max"), reports);
    for class in classes {
        let cells = reports.iter().map(|report| waits(report.wait_seconds_by_class.get(&class)));
        let jobs =
            reports.first().and_then(|report| report.wait_seconds_by_class.get(&class)).map_or(0, |waits| waits.jobs);
        by_class.add_row([format!("{} ({})", class.as_str(), count_noun(jobs, "job"))].into_iter().chain(cells));
    }
    let queues: BTreeSet<&QueueName> = reports.iter().flat_map(|report| report.wait_seconds_by_queue.keys()).collect();
    let mut by_queue = table("wait by queue: p50 / p90 / p99 / max", reports);
    for queue in queues {
        let cells = reports.iter().map(|report| waits(report.wait_seconds_by_queue.get(queue)));
        by_queue.add_row([queue.to_string()].into_iter().chain(cells));
    }
    format!("{all}\n{by_class}\n{by_queue}\n\n{}", format_legend(&numbers))
}

fn format_legend(numbers: &[Row]) -> String {
    let width = numbers.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    numbers.iter().fold(String::new(), |mut text, (name, _, meaning)| {
        // Writing to a text never fails.
        let _ = writeln!(text, "{name:width$}  {meaning}");
        text
    })
}

fn table(corner: &str, reports: &[Report]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header([corner.to_owned()].into_iter().chain(reports.iter().map(|report| report.policy.clone())));
    table
}

fn waits(waits: Option<&Waits>) -> String {
    let Some(waits) = waits else { return "-".to_owned() };
    // Where a job that never started might come in, the true number is at least this.
    let shown = |time: Millis| match waits.exact_below {
        Some(below) if time >= below => format!(">{time}"),
        _ => time.to_string(),
    };
    let cells = [waits.p50, waits.p90, waits.p99, waits.max].map(shown);
    cells.join(" / ")
}
