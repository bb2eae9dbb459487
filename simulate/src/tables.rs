//! Reports as tables for people: policies side by side.

use std::collections::BTreeSet;

use caldera_core::gang::QueueName;
use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};

use crate::{
    report::{Class, Report, Waits},
    time::Millis,
};

type Row = (&'static str, fn(&Report) -> String);

const NUMBERS: [Row; 20] = [
    ("jobs", |r| r.jobs.to_string()),
    ("finished", |r| r.finished.to_string()),
    ("never started", |r| r.unstarted.to_string()),
    ("can never start", |r| r.never_fit.to_string()),
    ("starved", |r| r.starved.to_string()),
    ("waited in a member", |r| r.waited_in_members.to_string()),
    ("preemptions / work lost", |r| format!("{} / {}", r.preemptions, r.lost.percent())),
    ("wait p50 / p90 / p99 / max", |r| waits(Some(&r.wait_seconds))),
    ("makespan", |r| r.makespan_seconds.to_string()),
    ("SOR", |r| r.sor.percent()),
    ("SOR while jobs arrive", |r| r.sor_while_arriving.percent()),
    ("SOR while jobs wait", |r| r.sor_while_waiting.percent()),
    ("GAR median / most", |r| format!("{} / {}", r.gar_median.percent(), r.gar_most.percent())),
    ("held idle", |r| r.held_idle.percent()),
    ("GFR / of open nodes", |r| format!("{} / {}", r.gfr.percent(), r.gfr_of_open.percent())),
    ("contended", |r| r.shares.contended_seconds.to_string()),
    ("deviation mean / most", |r| {
        format!("{} / {}", r.shares.mean_deviation.percent(), r.shares.max_deviation.percent())
    }),
    ("Jain", |r| r.shares.jain.percent()),
    ("short by a job, in all / longest", |r| {
        format!("{} / {}", r.shares.short_by_a_job_seconds, r.shares.longest_short_seconds)
    }),
    ("queues over their limit", |r| r.over_limit_seconds.to_string()),
];

/// Three tables: all numbers, waits by size class, waits by queue.
#[must_use]
pub fn tables(reports: &[Report]) -> String {
    let mut all = table("", reports);
    for (name, number) in NUMBERS {
        all.add_row([name.to_owned()].into_iter().chain(reports.iter().map(number)));
    }
    let classes: BTreeSet<Class> =
        reports.iter().flat_map(|report| report.wait_seconds_by_class.keys().copied()).collect();
    let resource = reports.first().map_or("", |report| report.resource.as_str());
    let mut by_class = table(&format!("wait by {resource} of the gang: p50 / p90 / p99 / max"), reports);
    for class in classes {
        let cells = reports.iter().map(|report| waits(report.wait_seconds_by_class.get(&class)));
        let jobs =
            reports.first().and_then(|report| report.wait_seconds_by_class.get(&class)).map_or(0, |waits| waits.jobs);
        by_class.add_row([format!("{} ({jobs} jobs)", class.as_str())].into_iter().chain(cells));
    }
    let queues: BTreeSet<&QueueName> = reports.iter().flat_map(|report| report.wait_seconds_by_queue.keys()).collect();
    let mut by_queue = table("wait by queue: p50 / p90 / p99 / max", reports);
    for queue in queues {
        let cells = reports.iter().map(|report| waits(report.wait_seconds_by_queue.get(queue)));
        by_queue.add_row([queue.to_string()].into_iter().chain(cells));
    }
    format!("{all}\n{by_class}\n{by_queue}\n")
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
