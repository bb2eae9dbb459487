//! Tables of queues.
//!
//! Rule: a row for each queue, with lists of amounts. Where a terminal is too narrow for these, a row for each resource
//! of a queue, the amounts first: what is cut then are counts of jobs. A count that is 0 in every row has no column,
//! but for those of jobs that wait and run. In the wide table there are all columns, and a row for each resource. What
//! the asker does not see is a question mark, never 0.

use std::fmt::Write as _;

use caldera_controller::explain::{Amounts, QueueView, RunningLimit, TenantTurn};
use caldera_core::{
    quantity::Quantity,
    text::{count_noun, name_some},
};

use crate::output::{
    CAPABILITY_LEGEND, REAL_CAPABILITY, REAL_CAPABILITY_LEGEND, USED_LATELY, format_seen, format_table,
    format_with_history,
};

/// Columns without which a table is as clear, where all their cells say nothing.
const LEFT_OUT_IF_EMPTY: [&str; 5] = [BLOCKED, "STARTING", "FAULTS", "STATE", "BORROWED"];
/// Column of jobs that wait for more than their turn.
const BLOCKED: &str = "BLOCKED";
const BLOCKED_LEGEND: &str = "BLOCKED: jobs that can not start before somebody changes something\n";
/// What every node has and hardly anybody asks for: shown where it is limited or used.
const SELDOM_ASKED_FOR: &str = "ephemeral-storage";

/// Which columns a table of queues has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TableForm {
    /// All.
    Wide,
    /// The most important, in so many columns of a terminal; none where lines may be of any length.
    Within(Option<usize>),
    /// All if they fit in so many, else the most important.
    WideWithin(Option<usize>),
}

/// See the module; with the names indented by their place in the tree, if it is one.
pub(super) fn format_queues(queues: &[QueueView], tree: bool, form: TableForm) -> String {
    let top = queues.first().map_or(0, |queue| queue.depth);
    let name = |queue: &QueueView| {
        let indent = if tree { queue.depth.saturating_sub(top) } else { 0 };
        format!("{}{}", "  ".repeat(indent), queue.name)
    };
    let fits = |text: &str, width: Option<usize>| {
        width.is_none_or(|width| text.lines().all(|line| line.chars().count() <= width))
    };
    let within = |width| {
        let text = format_by_queue(queues, name);
        if fits(&text, width) { text } else { format_narrow(queues, name) }
    };
    let mut text = match form {
        TableForm::Wide => format_by_resource(queues, name),
        TableForm::WideWithin(width) => {
            let text = format_by_resource(queues, name);
            if fits(&text, width) { text } else { within(width) }
        }
        TableForm::Within(width) => within(width),
    };
    for queue in queues {
        for RunningLimit { namespace, user, running, limit } in &queue.running_limits {
            let of = match (namespace, user) {
                (Some(namespace), _) => format!(" of namespace {namespace}"),
                (None, Some(user)) => format!(" of user {user}"),
                (None, None) => String::new(),
            };
            let running = count_noun(*running, "job");
            let _ = writeln!(text, "\n{}: {running}{of} running, {limit} at most", queue.name);
        }
        if let Some(order) = queue.tenant_order {
            let _ = writeln!(text, "\n{}: jobs go in order {order}", queue.name);
        }
        if let Some(first) = queue.tenant_shares.first() {
            let shares = name_some(&queue.tenant_shares);
            let lately = match first {
                TenantTurn { with_history: true, .. } => ", with what they used lately",
                TenantTurn { lacks_history: true, .. } => "; what they used lately is not known: turns may be others",
                _ => "",
            };
            let _ = writeln!(text, "\n{}: of it {shares}{lately}", queue.name);
        }
        if let Some(aging) = &queue.priority_aging {
            let _ = writeln!(text, "\n{}: priorities of jobs that wait rise by {aging}", queue.name);
        }
        for wrong in queue.problem.iter().chain(&queue.faults) {
            let _ = writeln!(text, "\n{}: {wrong}", queue.name);
        }
    }
    text
}

/// The lines below such tables that say what their columns are.
pub(super) fn format_legend(tables: &str) -> String {
    let capability = if tables.contains(REAL_CAPABILITY) { REAL_CAPABILITY_LEGEND } else { CAPABILITY_LEGEND };
    let blocked = if tables.contains(BLOCKED) { BLOCKED_LEGEND } else { "" };
    format!("{capability}{blocked}")
}

fn format_job_counts(queue: &QueueView) -> [String; 4] {
    match queue.jobs {
        Some(jobs) => [jobs.waiting, jobs.blocked, jobs.starting, jobs.running].map(|count| count.to_string()),
        None => Default::default(),
    }
}

/// What is limited or used here; of the root, all that there is. Every pod is one pod: only where that is limited.
fn list_shown_amounts(queue: &QueueView) -> impl Iterator<Item = &Amounts> {
    let root = queue.parent.is_none();
    queue.amounts.iter().filter(move |of| {
        let counts = !of.used.is_zero() || (root && of.resource.as_str() != SELDOM_ASKED_FOR);
        of.capability.is_some() || (counts && of.resource.as_str() != "pods")
    })
}

/// `3/8`: used, of the capability; of the root, which has none, of what the clusters have. Nothing where nothing is
/// used or limited.
fn format_used(queue: &QueueView, of: &Amounts) -> Option<String> {
    let used = format_seen(of.used, of.is_use_seen);
    match of.capability.or(of.real_capability.filter(|_| queue.parent.is_none())) {
        Some(capability) => Some(format!("{used}/{}", capability.plain())),
        None => (!of.used.is_zero() || !of.is_use_seen).then_some(used),
    }
}

fn format_not_zero(amount: Quantity, is_seen: bool) -> Option<String> {
    (!amount.is_zero() || !is_seen).then(|| format_seen(amount, is_seen))
}

fn format_deserved(_: &QueueView, of: &Amounts) -> Option<String> {
    format_not_zero(of.deserved, of.is_share_seen)
}

fn format_borrowed(_: &QueueView, of: &Amounts) -> Option<String> {
    format_not_zero(of.borrowed, of.is_use_seen && of.is_share_seen)
}

fn count_faults(queue: &QueueView) -> String {
    (queue.faults.len() + usize::from(queue.problem.is_some())).to_string()
}

fn format_by_queue(queues: &[QueueView], name: impl Fn(&QueueView) -> String) -> String {
    let row = |queue: &QueueView| {
        let list = |amount: fn(&QueueView, &Amounts) -> Option<String>| {
            let of_resource = |of: &Amounts| Some(format!("{} {}", of.resource, amount(queue, of)?));
            list_shown_amounts(queue).filter_map(of_resource).collect::<Vec<_>>().join(", ")
        };
        let [waiting, blocked, starting, running] = format_job_counts(queue);
        // A terminal that is too narrow cuts the end: short numbers are before long lists.
        vec![
            name(queue),
            queue.state.to_owned(),
            queue.priority.to_string(),
            waiting,
            blocked,
            starting,
            running,
            count_faults(queue),
            list(format_used),
            list(format_borrowed),
            list(format_deserved),
        ]
    };
    let header = [
        "QUEUE",
        "STATE",
        "PRIORITY",
        "WAITING",
        BLOCKED,
        "STARTING",
        "RUNNING",
        "FAULTS",
        "USED/CAPABILITY",
        "BORROWED",
        "DESERVED",
    ];
    format_without_empty(&header, queues.iter().map(row).collect())
}

fn format_narrow(queues: &[QueueView], name: impl Fn(&QueueView) -> String) -> String {
    let mut rows = Vec::new();
    let are_all_open = queues.iter().all(|queue| queue.state == "Open");
    for queue in queues {
        let [waiting, blocked, starting, running] = format_job_counts(queue);
        let state = if are_all_open { "" } else { queue.state };
        let mut counts = Some([waiting, running, blocked, starting, count_faults(queue), state.to_owned()]);
        let mut shown: Vec<[String; 4]> = list_shown_amounts(queue)
            .map(|of| {
                let [used, deserved, borrowed] =
                    [format_used, format_deserved, format_borrowed].map(|amount| amount(queue, of).unwrap_or_default());
                [of.resource.to_string(), used, deserved, borrowed]
            })
            .collect();
        if shown.is_empty() {
            shown.push(Default::default());
        }
        for amounts in shown {
            let is_first = counts.is_some();
            let first = if is_first { name(queue) } else { " ".to_owned() };
            let counts = counts.take().unwrap_or_else(|| std::array::from_fn(|_| " ".to_owned()));
            rows.push([first].into_iter().chain(amounts).chain(counts).collect());
        }
    }
    let header = [
        "QUEUE",
        "RESOURCE",
        "USED/CAPABILITY",
        "DESERVED",
        "BORROWED",
        "WAITING",
        "RUNNING",
        BLOCKED,
        "STARTING",
        "FAULTS",
        "STATE",
    ];
    format_without_empty(&header, rows)
}

fn format_without_empty(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let says_nothing = |at: usize| rows.iter().all(|row| ["", " ", "0"].contains(&row[at].as_str()));
    let is_kept = |at: usize| !(LEFT_OUT_IF_EMPTY.contains(&header[at]) && says_nothing(at));
    let kept: Vec<usize> = (0..header.len()).filter(|at| is_kept(*at)).collect();
    let names: Vec<&str> = kept.iter().map(|at| header[*at]).collect();
    format_table(&names, rows.iter().map(|row| kept.iter().map(|at| row[*at].clone()).collect()))
}

fn format_by_resource(queues: &[QueueView], name: impl Fn(&QueueView) -> String) -> String {
    let mut rows = Vec::new();
    for queue in queues {
        let [waiting, blocked, starting, running] = format_job_counts(queue);
        let parent = queue.parent.as_ref().map(ToString::to_string).unwrap_or_default();
        let mut head = Some([
            name(queue),
            parent,
            queue.state.to_owned(),
            queue.priority.to_string(),
            queue.weight.to_string(),
            waiting,
            blocked,
            starting,
            running,
        ]);
        let nothing = [const { String::new() }; 8];
        let amounts = queue.amounts.iter().map(|of| {
            let some = |amount: Option<Quantity>| amount.map(|amount| amount.plain().to_string()).unwrap_or_default();
            [
                of.resource.to_string(),
                format_seen(of.used, of.is_use_seen),
                some(of.used_lately.map(|lately| lately.amount)),
                format_seen(of.deserved, of.is_share_seen),
                format_seen(of.guarantee, of.is_share_seen),
                some(of.capability),
                some(of.real_capability),
                format_seen(of.borrowed, of.is_use_seen && of.is_share_seen),
            ]
        });
        for amounts in amounts.chain(queue.amounts.is_empty().then_some(nothing)) {
            let [name, parent, state, priority, weight, waiting, blocked, starting, running] =
                head.take().unwrap_or_else(|| std::array::from_fn(|_| " ".to_owned()));
            let [resource, used, lately, deserved, guarantee, capability, limit, borrowed] = amounts;
            rows.push([
                name, parent, state, priority, weight, resource, used, lately, deserved, guarantee, capability, limit,
                borrowed, waiting, blocked, starting, running,
            ]);
        }
    }
    let header = [
        "QUEUE",
        "PARENT",
        "STATE",
        "PRIORITY",
        "WEIGHT",
        "RESOURCE",
        "USED",
        USED_LATELY,
        "DESERVED",
        "GUARANTEE",
        "CAPABILITY",
        REAL_CAPABILITY,
        "BORROWED",
        "WAITING",
        BLOCKED,
        "STARTING",
        "RUNNING",
    ];
    let half_life = queues.iter().flat_map(|queue| &queue.amounts).find_map(|of| Some(of.used_lately?.half_life));
    format_with_history(&header, rows, half_life, &[])
}

#[cfg(test)]
mod tests {
    use caldera_controller::explain::Counts;

    use super::*;

    fn amounts(resource: &str, used: &str, deserved: &str, most: &str) -> Amounts {
        let [used, deserved, most] = [used, deserved, most].map(|amount| amount.parse::<Quantity>().unwrap());
        Amounts {
            resource: resource.into(),
            used,
            deserved,
            guarantee: Quantity::ZERO,
            capability: None,
            real_capability: Some(most),
            borrowed: used.saturating_sub(deserved).max(Quantity::ZERO),
            used_lately: None,
            is_use_seen: true,
            is_share_seen: true,
        }
    }

    fn queue(name: &str, parent: Option<&str>, amounts: Vec<Amounts>) -> QueueView {
        QueueView {
            name: name.into(),
            parent: parent.map(Into::into),
            depth: usize::from(parent.is_some()),
            state: "Open",
            problem: None,
            faults: Vec::new(),
            priority: 0,
            weight: 1,
            reclaimable: true,
            dequeue: "traverse",
            priority_aging: None,
            tenant_order: None,
            tenant_shares: Vec::new(),
            amounts,
            running_limits: Vec::new(),
            jobs: Some(Counts { waiting: 2, running: 3, ..Counts::default() }),
        }
    }

    fn fleet() -> Vec<QueueView> {
        let root = vec![
            amounts("cpu", "72", "80", "80"),
            amounts("ephemeral-storage", "0", "9", "9"),
            amounts("memory", "32Gi", "320Gi", "320Gi"),
            amounts("nvidia.com/gpu", "14", "16", "16"),
        ];
        let night = vec![amounts("cpu", "60", "28", "80"), amounts("memory", "30Gi", "0", "320Gi")];
        vec![queue("root", None, root), queue("night", Some("root"), night), queue("idle", Some("root"), Vec::new())]
    }

    /// Found by a reader: at 80 columns the tree showed no amount at all.
    #[test]
    fn a_narrow_terminal_sees_the_amounts() {
        let text = format_queues(&fleet(), true, TableForm::Within(Some(80)));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            words[0][..7],
            ["QUEUE", "RESOURCE", "USED/CAPABILITY", "DESERVED", "BORROWED", "WAITING", "RUNNING"]
        );
        assert_eq!(words[1], ["root", "cpu", "72/80", "80", "-", "2", "3"]);
        assert_eq!(words[2], ["memory", "32Gi/320Gi", "320Gi", "-"]);
        assert_eq!(words[4], ["night", "cpu", "60", "28", "32", "2", "3"]);
        assert_eq!(words[6], ["idle", "-", "-", "-", "-", "2", "3"]);
        assert!(!text.contains("ephemeral-storage"), "{text}");
        let wide = format_queues(&fleet(), true, TableForm::Within(Some(200)));
        assert!(wide.contains("cpu 72/80, memory 32Gi/320Gi, nvidia.com/gpu 14/16"), "{wide}");
    }

    /// Found by a user: at 80 columns `queue describe` was cut before the capability.
    #[test]
    fn one_queue_is_shown_with_all_columns_only_where_these_fit() {
        let of = |width: usize| format_queues(&fleet(), false, TableForm::WideWithin(Some(width)));
        assert!(of(300).contains(REAL_CAPABILITY) && !of(80).contains(REAL_CAPABILITY));
        assert!(
            of(80).contains("USED/CAPABILITY") && of(80).lines().all(|line| line.chars().count() <= 80),
            "{}",
            of(80)
        );
    }

    #[test]
    fn a_count_that_is_0_everywhere_has_no_column() {
        let mut queues = fleet();
        let header = |queues: &[QueueView]| {
            let text = format_queues(queues, true, TableForm::Within(None));
            text.lines().next().unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let short = ["QUEUE", "STATE", "PRIORITY", "WAITING", "RUNNING", "USED/CAPABILITY", "BORROWED", "DESERVED"];
        assert_eq!(header(&queues), short);
        assert!(!format_legend(&header(&queues).join(" ")).contains("BLOCKED"));
        queues[1].faults.push("deserves more than its parent".to_owned());
        queues[2].jobs.as_mut().unwrap().blocked = 1;
        assert!(["BLOCKED", "FAULTS"].iter().all(|name| header(&queues).iter().any(|column| column == name)));
        assert!(!header(&queues).contains(&"STARTING".to_owned()));
        assert!(format_legend(&header(&queues).join(" ")).ends_with(BLOCKED_LEGEND));
        queues.remove(1);
        assert!(!header(&queues).contains(&"BORROWED".to_owned()));
    }

    /// Found by a reader: a tenant who may not see the root's use read that it is 0.
    #[test]
    fn what_is_not_seen_is_a_question_mark() {
        let mut queues = fleet();
        for of in queues.iter_mut().flat_map(|queue| &mut queue.amounts) {
            (of.used, of.deserved, of.borrowed) = (Quantity::ZERO, Quantity::ZERO, Quantity::ZERO);
            (of.is_use_seen, of.is_share_seen) = (false, false);
        }
        let text = format_queues(&queues, true, TableForm::Within(None));
        assert!(text.contains("cpu ?/80") && !text.contains("cpu 0"), "{text}");
        let wide = format_queues(&queues, true, TableForm::Wide);
        assert!(!wide.contains("LIMIT") && wide.contains("CAPABILITY  REAL CAPABILITY"), "{wide}");
        let cpu: Vec<&str> = wide.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(cpu[5..8], ["cpu", "?", "?"], "{wide}");
    }
}
