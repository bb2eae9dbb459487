//! `caldera queue`: lists the queues of the fleet, as a list or a tree, or one queue with its pending jobs; opens,
//! closes, drains and sets queues. Also `caldera pause` and `caldera unpause`, which stop and allow all releases.

mod change;
mod settings;
mod table;

use std::{collections::BTreeSet, fmt::Write as _, process::ExitCode};

use caldera_controller::explain::{InLine, QueueView, list_queues, list_waiting_jobs};
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
    build_queue_list_page(output, QueueList { queues, paused, missing: live.gaps }, false)
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
    let Some(name) = name else {
        return build_queue_list_page(output, QueueList { queues: all, paused, missing: live.gaps }, true);
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
            QueueList { queues: all[at..=at + below].to_vec(), paused, missing: live.gaps },
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
        paused.collect::<String>() + &table + "\n" + &legend + &output::format_gaps(&answer.missing, wide)
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
