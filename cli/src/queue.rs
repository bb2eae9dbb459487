//! `caldera queue`: lists the queues of the fleet, as a list or a tree, or one queue with its pending jobs; opens,
//! closes, drains and sets queues. Also `caldera pause` and `caldera unpause`, which stop and allow all releases.

mod change;
mod settings;
mod table;

use std::{collections::BTreeSet, fmt::Write as _, process::ExitCode};

use caldera_controller::explain::{InLine, QueueView, list_capacity_reservations, list_queues, list_waiting_jobs};
use caldera_core::{capacity_reservation::CapacityReservation, time::EpochSeconds};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use self::{
    settings::{QueueSetting, list_settings},
    table::{TableForm, format_legend, format_queues},
};
use crate::{
    args::{PauseArgs, QueueAction, QueueArgs, UnpauseArgs},
    components,
    json_path::{JsonPath, sort_rows},
    live::{self, Gap, Live},
    objects::{self, list_objects, name_of},
    output::{self, ListOutput, format_columns},
    repeat::{self, PrintedPage},
    style::Style,
    why,
};

/// The JSON and YAML form: all queues.
#[derive(Debug, Serialize)]
struct QueueList {
    queues: Vec<QueueView>,
    /// Why an admin has nothing released, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<String>,
    /// Amounts of the fleet that are kept, or will be: sentences of the tree.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reservations: Vec<String>,
    /// What could not be seen.
    missing: Vec<Gap>,
}

/// The JSON and YAML form: one queue.
#[derive(Debug, Serialize)]
struct QueueAnswer {
    queue: QueueView,
    /// The queues above it, from its parent to the root: their limits count for it too.
    above: Vec<QueueView>,
    /// Annotations that count for its jobs.
    settings: Vec<QueueSetting>,
    /// Pending jobs in order, then inadmissible ones.
    line: Vec<InLine>,
    missing: Vec<Gap>,
}

pub async fn run_queue(args: QueueArgs) -> anyhow::Result<ExitCode> {
    let client = components::connect_for_command(args.kubeconfig.as_deref(), "queue").await?;
    let lease_namespace = args.lease_namespace.clone();
    let first = usize::from(args.first);
    let (name, tree) = match args.action {
        Some(QueueAction::Open { names }) => return change::send_queue_commands(&client, &names, "OpenQueue").await,
        Some(QueueAction::Close { names }) => return change::send_queue_commands(&client, &names, "CloseQueue").await,
        Some(QueueAction::Drain { names }) => return change::drain_queues(&client, &names).await,
        Some(QueueAction::Set(set)) => return change::set_queue(&client, &set).await,
        Some(QueueAction::Describe { name }) => (Some(name), false),
        // Both `queue tree NAME` and `queue NAME tree`.
        Some(QueueAction::Tree { name }) => (name.or(args.name), true),
        Some(QueueAction::List) => (None, false),
        None => (args.name, false),
    };
    let is_list = name.is_none() && !tree;
    anyhow::ensure!(
        is_list || (args.selector.is_none() && args.sort_by.is_none()),
        "--selector and --sort-by are of the list of queues"
    );
    repeat::print_page(args.watch, async || {
        let live = live::read_live(&client, None, lease_namespace.as_deref()).await?;
        let labels = args.selector.as_deref();
        let objects = list_objects(&client, &objects::queue_resource(), None, labels).await?;
        if is_list {
            let selected = labels.map(|_| objects).transpose().map_err(anyhow::Error::msg)?;
            return make_list_page(live, selected.as_deref(), args.sort_by.as_ref(), &args.output);
        }
        // Who may not see queues is told so among the gaps.
        make_page(live, &objects.unwrap_or_default(), name.as_deref(), tree, &args.output, first)
    })
    .await
}

/// Stops all releases.
///
/// # Errors
/// If the server does not answer, or refuses.
pub async fn pause_releases(args: PauseArgs) -> anyhow::Result<ExitCode> {
    let client = components::connect_for_command(args.kubeconfig.as_deref(), "queue").await?;
    change::pause_or_unpause(&client, Some(&args.reason)).await
}

/// Has jobs released again.
///
/// # Errors
/// If the server does not answer, or refuses.
pub async fn unpause_releases(args: UnpauseArgs) -> anyhow::Result<ExitCode> {
    let client = components::connect_for_command(args.kubeconfig.as_deref(), "queue").await?;
    change::pause_or_unpause(&client, None).await
}

/// All queues, or those that are selected, in the order that is asked for.
fn make_list_page(
    live: Live,
    selected: Option<&[Value]>,
    sort_by: Option<&JsonPath>,
    output: &ListOutput,
) -> anyhow::Result<PrintedPage> {
    let mut queues = list_queues(&live.controller);
    if let Some(objects) = selected {
        let selected: BTreeSet<&str> = objects.iter().map(name_of).collect();
        queues.retain(|queue| selected.contains(queue.name.as_str()));
    }
    sort_by.iter().try_for_each(|by| sort_rows(&mut queues, by))?;
    let paused = live.controller.pause_reason().map(str::to_owned);
    build_queue_list_page(output, QueueList { queues, paused, reservations: Vec::new(), missing: live.gaps }, false)
}

fn make_page(
    live: Live,
    objects: &[Value],
    name: Option<&str>,
    tree: bool,
    output: &ListOutput,
    first: usize,
) -> anyhow::Result<PrintedPage> {
    let all = list_queues(&live.controller);
    let paused = live.controller.pause_reason().map(str::to_owned);
    let reservations = describe_reservations(&list_capacity_reservations(&live.controller), live.now);
    let Some(name) = name else {
        let answer = QueueList { queues: all, paused, reservations, missing: live.gaps };
        return build_queue_list_page(output, answer, true);
    };
    let Some(at) = all.iter().position(|queue| queue.name.as_str() == name) else {
        let names: Vec<String> = all.iter().map(|queue| queue.name.to_string()).collect();
        if let Some(gap) = live.gaps.iter().find(|gap| gap.what.starts_with("queues")) {
            anyhow::bail!("whether there is a queue {name} is not known: {}", gap.why);
        }
        anyhow::bail!("there is no queue {name}{}", objects::name_others(name, names));
    };
    if tree {
        let depth = all[at].depth;
        let below = all[at + 1..].iter().take_while(|queue| queue.depth > depth).count();
        return build_queue_list_page(
            output,
            QueueList { queues: all[at..=at + below].to_vec(), paused, reservations, missing: live.gaps },
            true,
        );
    }
    let answer = QueueAnswer {
        queue: all[at].clone(),
        above: list_above(&all, at),
        settings: list_settings(objects, name),
        line: list_waiting_jobs(&live.controller, &all[at].name, first),
        missing: live.gaps,
    };
    let now = live.now.as_second();
    let text = output::format_list(output, &answer, "STATE", &format!("{name}\n"), |wide| {
        format_queue(&answer, now, wide) + &output::format_gaps(&answer.missing, wide)
    })?;
    PrintedPage::new(text, &answer)
}

/// What is kept of the fleet, or will be: what a queue deserves of it can not be used by others then.
fn describe_reservations(all: &[CapacityReservation], now: Timestamp) -> Vec<String> {
    let now = EpochSeconds::from(now);
    let mut lasting: Vec<&CapacityReservation> = all.iter().filter(|one| one.window.end > now).collect();
    lasting.sort_by_key(|one| (one.window.start, &one.name));
    lasting.iter().map(|one| format!("reservation {} keeps {} {}", one.name, one.amounts, one.window)).collect()
}

/// The queues above the one at a place of a tree in order, from its parent to the root.
fn list_above(all: &[QueueView], at: usize) -> Vec<QueueView> {
    let parent = |queue: &&QueueView| all.iter().find(|other| Some(&other.name) == queue.parent.as_ref());
    std::iter::successors(parent(&&all[at]), parent).take(all.len()).cloned().collect()
}

fn build_queue_list_page(output: &ListOutput, answer: QueueList, tree: bool) -> anyhow::Result<PrintedPage> {
    let names: String = answer.queues.iter().map(|queue| format!("{}\n", queue.name)).collect();
    let text = output::format_list(output, &answer, "STATE", &names, |wide| {
        let paused = answer.paused.iter().map(|why| format!("All releases are paused: {why}\n\n"));
        let form = if wide { TableForm::Wide } else { TableForm::Within(Style::of_stdout().width()) };
        let table = format_queues(&answer.queues, tree, form);
        let legend = format_legend(&table);
        let kept: String = answer.reservations.iter().map(|sentence| format!("\n{sentence}\n")).collect();
        paused.collect::<String>() + &table + &kept + "\n" + &legend + &output::format_gaps(&answer.missing, wide)
    })?;
    PrintedPage::new(text, &answer)
}

fn format_queue(answer: &QueueAnswer, now: i64, wide: bool) -> String {
    let queue = &answer.queue;
    let form = if wide { TableForm::Wide } else { TableForm::WideWithin(Style::of_stdout().width()) };
    let mut text = format_queues(std::slice::from_ref(queue), false, form);
    if !answer.above.is_empty() {
        let _ = write!(text, "\nAbove it:\n{}", format_queues(&answer.above, false, form));
    }
    let legend = format_legend(&text);
    let _ = write!(text, "\n{legend}");
    if !answer.settings.is_empty() {
        let rows = answer.settings.iter().map(QueueSetting::cells);
        let _ = write!(text, "\n{}", format_columns(["SETTING", "VALUE", "OF"], rows));
    }
    if !answer.line.is_empty() {
        text += "\nWaiting:\n";
        text += &why::format_pending_jobs(&answer.line, now);
        let waiting = queue.jobs.map_or(0, |jobs| jobs.waiting + jobs.blocked);
        if waiting > answer.line.len() {
            let _ = writeln!(text, "... and {} more (--first {waiting})", waiting - answer.line.len());
        }
    } else if queue.jobs.is_none() {
        text += "\nYour credentials do not show the jobs of all namespaces: who waits can not be said.\n";
    }
    for job in answer.line.iter().filter(|_| wide) {
        let _ = writeln!(text, "{}: {}", job.workload, job.sentence);
    }
    text
}

#[cfg(test)]
mod tests {
    use caldera_core::{maintenance::MaintenanceWindow, resources::Resources};

    use super::*;

    #[test]
    fn a_tree_tells_what_is_kept_and_will_be_and_not_what_is_over() {
        let kept = |name: &str, start: i64, end: i64| {
            let (start, end) = (EpochSeconds::new(start), EpochSeconds::new(end));
            let (notice, reason, queues) = (60, String::new(), vec!["ops".into()]);
            let amounts: Resources = [("cpu", "60".parse().unwrap())].into_iter().collect();
            let window = MaintenanceWindow { start, end, notice, reason, node_groups: Vec::new(), queues };
            CapacityReservation { name: name.to_owned(), amounts, window }
        };
        let now = Timestamp::from_second(1_000).unwrap();
        let sentences =
            describe_reservations(&[kept("later", 2_000, 3_000), kept("open", 500, 1_500), kept("over", 1, 2)], now);
        assert_eq!(sentences.len(), 2);
        assert_eq!(
            sentences[0],
            "reservation open keeps cpu 60 from 1970-01-01T00:08:20Z to 1970-01-01T00:25:00Z for all but jobs of queue ops"
        );
        assert!(sentences[1].starts_with("reservation later keeps cpu 60"), "{sentences:?}");
    }
}
