//! Draws `caldera top` into a buffer of any size.
//!
//! Rule: a low terminal shows the pane in focus alone; else queues, members and jobs share the height, and the pane in
//! focus gets more. Columns appear as the width allows. Every text of the API has its control characters escaped.

use std::sync::Arc;

use caldera_core::quantity::Quantity;
use jiff::Timestamp;
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Cell, Clear, Paragraph, Row, Table, Widget, Wrap},
};

use super::state::{Pane, Popup, Shown, TopState};
use crate::{
    latest_forecast::{StartNote, TimedForecast},
    output::{escape_controls, format_duration},
    style::colour_of,
    view::{Amount, JobView, Member, QueueLine, compute_fraction, format_amount},
};

/// Below this only one part has room.
const ROWS_FOR_ALL: u16 = 20;

/// What is drawn beside the objects.
#[derive(Debug, Clone, Default)]
pub struct Notes {
    pub now: Timestamp,
    pub is_coloured: bool,
    /// Whether somebody may press keys.
    pub has_keys: bool,
    /// Lists that are still to come.
    pub lists_to_come: usize,
    /// What can not be seen, or is not up to date.
    pub lacks: Vec<String>,
    /// When jobs that wait are expected to start, once that is worked out.
    pub starts: Option<Arc<TimedForecast>>,
}

fn escape_cell(text: &str) -> String {
    escape_controls(text).replace('\n', "\\n")
}

/// Rows that a page needs on which all is shown.
pub fn count_rows(shown: &Shown<'_>) -> u16 {
    let rows = 2 + shown.queues.len() + shown.members.len() + shown.jobs.len() + 9;
    u16::try_from(rows).unwrap_or(u16::MAX).max(ROWS_FOR_ALL + 3)
}

pub fn draw_screen(area: Rect, buffer: &mut Buffer, state: &TopState, shown: &Shown<'_>, notes: &Notes) {
    let [title, fleet, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(area);
    let pen = Pen { is_coloured: notes.is_coloured };
    draw_title(title, buffer, state, shown, notes);
    draw_fleet(fleet, buffer, shown, pen);
    let lengths = [shown.queues.len(), shown.members.len()];
    for (pane, area) in divide_rows(body, state.pane, lengths, !notes.has_keys) {
        match pane {
            Pane::Queues => draw_queues(area, buffer, state, shown, pen),
            Pane::Clusters => draw_clusters(area, buffer, state, shown, pen),
            Pane::Jobs => draw_jobs(area, buffer, state, shown, notes, pen),
        }
    }
    draw_foot(foot, buffer, state, notes, pen);
    if let Some(popup) = &state.popup {
        draw_popup(body, buffer, popup);
    }
}

/// Rows of each part: a third for queues, a quarter for members, the rest for jobs; one alone where there is no room.
/// Where nobody can scroll, each has all its rows.
fn divide_rows(body: Rect, focus: Pane, lengths: [usize; 2], shows_all: bool) -> Vec<(Pane, Rect)> {
    if body.height < ROWS_FOR_ALL {
        return vec![(focus, body)];
    }
    // Title, header, rows, and an empty line.
    let wants = lengths.map(|length| u16::try_from(length).unwrap_or(u16::MAX).saturating_add(3));
    let share = |pane: Pane, part: u16| match pane {
        _ if shows_all => body.height,
        pane if pane == focus => body.height / 2,
        _ => body.height / part,
    };
    let rows = [
        Constraint::Length(wants[0].min(share(Pane::Queues, 3))),
        Constraint::Length(wants[1].min(share(Pane::Clusters, 4))),
        Constraint::Min(0),
    ];
    let areas: [Rect; 3] = Layout::vertical(rows).areas(body);
    Pane::ALL.into_iter().zip(areas).collect()
}

#[derive(Debug, Clone, Copy)]
struct Pen {
    is_coloured: bool,
}

impl Pen {
    fn colour(self, colour: Color) -> Style {
        if self.is_coloured { Style::new().fg(colour) } else { Style::new() }
    }

    /// A word that says how something is.
    fn draw_word(self, word: &str) -> Cell<'static> {
        let colour = colour_of(word).map(|number| match number {
            31 => Color::Red,
            33 => Color::Yellow,
            _ => Color::Green,
        });
        Cell::new(escape_cell(word)).style(colour.map(|colour| self.colour(colour)).unwrap_or_default())
    }

    /// `███▓▓░░░ 12/20`: what is used, from `mark` on what is used beyond it, and what is left.
    fn draw_bar(self, width: usize, used: f64, mark: Option<f64>, text: String) -> Line<'static> {
        let count = |part: f64| (part * width as f64).round() as usize;
        let (full, mark) = (count(used), mark.map_or(width, count));
        let (within, beyond) = (full.min(mark), full.saturating_sub(mark));
        let colour = match used {
            used if used >= 0.95 => Color::Red,
            used if used >= 0.8 => Color::Yellow,
            _ => Color::Green,
        };
        Line::from(vec![
            Span::styled("█".repeat(within), self.colour(colour)),
            Span::styled("▓".repeat(beyond), self.colour(Color::Magenta)),
            Span::styled("░".repeat(width - full.min(width)), self.colour(Color::DarkGray)),
            Span::raw(format!(" {text}")),
        ])
    }
}

fn draw_title(area: Rect, buffer: &mut Buffer, state: &TopState, shown: &Shown<'_>, notes: &Notes) {
    let ready = shown.members.iter().filter(|member| member.state == "Ready").count();
    let counts = shown.counts;
    let reading = match notes.lists_to_come {
        0 => String::new(),
        lists => format!("  reading ({lists} lists to come)"),
    };
    let mut text = format!(
        "caldera top{reading}  clusters {ready}/{} ready  jobs {} waiting, {} starting, {} running",
        shown.members.len(),
        counts.waiting,
        counts.starting,
        counts.running,
    );
    if state.shows_over {
        text += &format!(", {} ended", counts.over);
    }
    if let Some(why) = shown.paused {
        text.insert_str("caldera top".len(), &format!("  RELEASES ARE PAUSED ({})", escape_cell(why)));
    }
    Paragraph::new(text).style(Style::new().add_modifier(Modifier::BOLD)).render(area, buffer);
}

fn draw_fleet(area: Rect, buffer: &mut Buffer, shown: &Shown<'_>, pen: Pen) {
    let shown_amounts = usize::from(area.width) / 34;
    let mut spans = Vec::new();
    for amount in shown.fleet.iter().take(shown_amounts.max(1)) {
        let of = |quantity: Quantity| format_amount(&amount.resource, quantity);
        let part = compute_fraction(amount.used, amount.all);
        spans.push(Span::raw(format!("{} ", escape_cell(&amount.resource))));
        spans.extend(pen.draw_bar(10, part, None, format!("{}/{}   ", of(amount.used), of(amount.all))).spans);
    }
    Paragraph::new(Line::from(spans)).render(area, buffer);
}

/// The rows of a list that fit below its title and header, with the selected one among them.
fn compute_window(area: Rect, length: usize, selected: usize) -> (usize, usize) {
    let shown_rows = usize::from(area.height.saturating_sub(2)).max(1);
    let first = selected.saturating_sub(shown_rows.saturating_sub(1)).min(length.saturating_sub(shown_rows));
    (first, shown_rows)
}

/// A part of the screen: its title, and a table of the rows that fit.
struct PaneTable<'a> {
    title: String,
    is_focus: bool,
    columns: Vec<(&'a str, Constraint)>,
    /// Of the rows that are given.
    selected: usize,
}

fn draw_part(area: Rect, buffer: &mut Buffer, part: PaneTable<'_>, rows: impl Iterator<Item = Vec<Cell<'static>>>) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let mark = if part.is_focus { "> " } else { "  " };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let style = if part.is_focus { bold.add_modifier(Modifier::REVERSED) } else { bold };
    Paragraph::new(format!("{mark}{}", part.title)).style(style).render(head, buffer);
    let rows = rows.enumerate().map(|(at, cells)| {
        let is_selected = part.is_focus && at == part.selected;
        Row::new(cells).style(if is_selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() })
    });
    let header = Row::new(part.columns.iter().map(|(name, _)| Cell::new((*name).to_owned())));
    let header = header.style(Style::new().add_modifier(Modifier::DIM));
    let widths = part.columns.iter().map(|(_, width)| *width);
    Widget::render(Table::new(rows, widths).header(header).column_spacing(1), body, buffer);
}

fn draw_queues(area: Rect, buffer: &mut Buffer, state: &TopState, shown: &Shown<'_>, pen: Pen) {
    let (first, shown_rows) = compute_window(area, shown.queues.len(), shown.selected[0]);
    let bar = area.width.saturating_sub(72).clamp(6, 24);
    let (is_wide, is_full) = (area.width >= 80, area.width >= 100);
    let resource = shown.resource.as_str();
    let visible = || shown.queues.iter().skip(first).take(shown_rows);
    let name = |queue: &QueueLine| format!("{}{}", "  ".repeat(queue.depth), escape_cell(&queue.name));
    let mut columns = vec![
        ("QUEUE", fit_column(area.width * 4 / 10, visible().map(name))),
        ("STATE", Constraint::Length(7)),
        ("USED/CAPABILITY", Constraint::Length(bar + 14)),
    ];
    if is_wide {
        columns.extend([("DESERVED", Constraint::Length(8)), ("BORROWED", Constraint::Length(8))]);
    }
    columns.extend([("WAIT", Constraint::Length(6)), ("RUN", Constraint::Length(6))]);
    if is_full {
        columns.push(("FAULTS", Constraint::Length(6)));
    }
    let row = |queue: &QueueLine| {
        let root = (queue.depth == 0).then(|| shown.fleet.iter().find(|amount| amount.resource == resource)).flatten();
        let amount = queue.amounts.iter().find(|amount| amount.resource == resource);
        let reported = |of: fn(&Amount) -> Quantity| {
            let amount = amount.map(of).filter(|amount| !amount.is_zero());
            Cell::new(amount.map(|it| format_amount(resource, it)).unwrap_or_default())
        };
        let used = draw_used(pen, bar.into(), resource, amount, root.map(|fleet| fleet.all));
        let mut cells = vec![Cell::new(name(queue)), pen.draw_word(&queue.state), Cell::new(used)];
        if is_wide {
            cells.extend([reported(|amount| amount.deserved), reported(|amount| amount.borrowed)]);
        }
        cells.extend([queue.waiting, queue.starting + queue.running].map(|count| Cell::new(count.to_string())));
        if is_full {
            let style = if queue.faults.is_empty() { Style::new() } else { pen.colour(Color::Red) };
            cells.push(Cell::new(queue.faults.len().to_string()).style(style));
        }
        cells
    };
    let title = format!("QUEUES {}  by {}", shown.queues.len(), escape_cell(resource));
    let part = PaneTable { title, is_focus: state.pane == Pane::Queues, columns, selected: shown.selected[0] - first };
    draw_part(area, buffer, part, visible().map(row));
}

/// Used of the capability, of the root of what the clusters have; a bar of what it deserves where it has none.
fn draw_used(pen: Pen, bar: usize, resource: &str, amount: Option<&Amount>, fleet: Option<Quantity>) -> Line<'static> {
    let Some(amount) = amount else { return Line::default() };
    let deserved = Some(amount.deserved).filter(|deserved| !deserved.is_zero());
    let (used, capability) = (format_amount(resource, amount.used), amount.capability.or(fleet));
    let text = capability.map_or_else(|| used.clone(), |most| format!("{used}/{}", format_amount(resource, most)));
    let Some(full) = capability.or(deserved) else { return Line::from(text) };
    let mark = deserved.filter(|deserved| *deserved < full).map(|deserved| compute_fraction(deserved, full));
    pen.draw_bar(bar, compute_fraction(amount.used, full), mark, text)
}

fn draw_clusters(area: Rect, buffer: &mut Buffer, state: &TopState, shown: &Shown<'_>, pen: Pen) {
    let (first, shown_rows) = compute_window(area, shown.members.len(), shown.selected[1]);
    let is_wide = area.width >= 80;
    // The other columns take 50; each resource 30 with its bar.
    let count = usize::from(area.width.saturating_sub(50) / 30).clamp(1, shown.fleet.len().max(1));
    let resources: Vec<&str> = shown.fleet.iter().take(count).map(|amount| amount.resource.as_str()).collect();
    let titles: Vec<String> = resources.iter().map(|name| escape_cell(name).to_uppercase()).collect();
    let visible = || shown.members.iter().skip(first).take(shown_rows);
    let name = |member: &&Member| escape_cell(&member.name);
    let mut columns = vec![
        ("CLUSTER", fit_column(area.width * 3 / 10, visible().map(name))),
        ("STATE", Constraint::Length(8)),
        ("GANGS", Constraint::Length(6)),
    ];
    if is_wide {
        columns.extend([("NODES", Constraint::Length(9)), ("PODS", Constraint::Length(7))]);
    }
    columns.extend(titles.iter().map(|title| (title.as_str(), Constraint::Length(28))));
    let row = |member: &&Member| {
        let (gangs, pods) = shown.gangs.get(member.name.as_str()).copied().unwrap_or_default();
        let mut cells = vec![Cell::new(name(member)), pen.draw_word(member.state), Cell::new(gangs.to_string())];
        if is_wide {
            cells.extend([Cell::new(member.nodes.clone()), Cell::new(pods.to_string())]);
        }
        cells.extend(resources.iter().map(|resource| {
            let Some((used, all)) = member.amount(resource) else { return Cell::default() };
            let text = format!("{}/{}", format_amount(resource, used), format_amount(resource, all));
            Cell::new(pen.draw_bar(12, compute_fraction(used, all), None, text))
        }));
        cells
    };
    let title = format!("CLUSTERS {}", shown.members.len());
    let part =
        PaneTable { title, is_focus: state.pane == Pane::Clusters, columns, selected: shown.selected[1] - first };
    draw_part(area, buffer, part, visible().map(row));
}

fn draw_jobs(area: Rect, buffer: &mut Buffer, state: &TopState, shown: &Shown<'_>, notes: &Notes, pen: Pen) {
    let (first, shown_rows) = compute_window(area, shown.jobs.len(), shown.selected[2]);
    let (is_wide, is_full) = (area.width >= 80, area.width >= 140);
    let visible = || shown.jobs.iter().skip(first).take(shown_rows);
    let name = |job: &JobView<'_>| escape_cell(&format!("{}/{}", job.key.namespace, job.key.command_name()));
    let mut columns = vec![("JOB", fit_column(area.width * 4 / 10, visible().map(name)))];
    if is_wide {
        columns.push(("QUEUE", fit_column(area.width / 6, visible().map(|job| escape_cell(job.queue())))));
    }
    let state_width = fit_column(12, visible().map(|job| job.state.word().to_owned()));
    columns.extend([("STATE", state_width), ("POS", Constraint::Length(9)), ("AGE", Constraint::Length(7))]);
    if is_wide {
        columns.push(("PODS", Constraint::Length(9)));
    }
    if is_full {
        columns.push(("PRIO", Constraint::Length(6)));
    }
    if area.width >= 100 {
        columns.push(("START", fit_column(area.width / 8, visible().map(|job| note_start(job, notes).brief))));
        columns.push(("CLUSTERS", fit_column(area.width / 5, visible().map(format_job_clusters))));
    }
    columns.push(("REASON", Constraint::Fill(1)));
    let row = |job: &JobView<'_>| {
        let position = job.position().map(|position| format!("{}/{}", position.place, position.of));
        let mut cells = vec![Cell::new(name(job))];
        cells.extend(is_wide.then(|| Cell::new(escape_cell(job.queue()))));
        cells.extend([
            pen.draw_word(job.state.word()),
            Cell::new(position.unwrap_or_default()),
            Cell::new(format_duration(job.age_seconds(notes.now))),
        ]);
        cells.extend(is_wide.then(|| Cell::new(job.describe_pods())));
        cells.extend(is_full.then(|| Cell::new(job.priority().to_string())));
        if area.width >= 100 {
            cells.extend([Cell::new(note_start(job, notes).brief), Cell::new(format_job_clusters(job))]);
        }
        let has_words = is_full && !job.message().is_empty();
        cells.push(Cell::new(escape_cell(if has_words { job.message() } else { job.reason() })));
        cells
    };
    let mut title = format!("JOBS {}  by {}", shown.jobs.len(), state.sort.word());
    for (name, value) in [("queue", &state.queue), ("cluster", &state.cluster)] {
        value.iter().for_each(|value| title += &format!("  {name} {}", escape_cell(value)));
    }
    if !state.filter.is_empty() {
        title += &format!("  filter {}", escape_cell(&state.filter));
    }
    if state.is_reversed {
        title += "  reversed";
    }
    let note = shown.jobs.get(shown.selected[2]).map(|job| note_start(job, notes)).unwrap_or_default();
    if !note.basis.is_empty() {
        let brief = if note.brief.is_empty() { "not known" } else { &note.brief };
        title += &escape_cell(&format!("  start of the selected: {brief} ({})", note.basis));
    }
    let part = PaneTable { title, is_focus: state.pane == Pane::Jobs, columns, selected: shown.selected[2] - first };
    draw_part(area, buffer, part, visible().map(row));
}

fn note_start(job: &JobView<'_>, notes: &Notes) -> StartNote {
    notes.starts.as_ref().map(|starts| starts.describe_start(job, notes.now)).unwrap_or_default()
}

/// As wide as what is in a column, within a part of the terminal.
fn fit_column(most: u16, texts: impl Iterator<Item = String>) -> Constraint {
    let wanted = texts.map(|text| text.chars().count()).max().unwrap_or_default();
    Constraint::Length(u16::try_from(wanted).unwrap_or(u16::MAX).clamp(8, most.max(8)))
}

fn format_job_clusters(job: &JobView<'_>) -> String {
    let clusters: Vec<String> = job.clusters().iter().map(|(name, pods)| format!("{name}:{pods}")).collect();
    escape_cell(&clusters.join(" "))
}

fn draw_foot(area: Rect, buffer: &mut Buffer, state: &TopState, notes: &Notes, pen: Pen) {
    let line = if state.is_typing {
        Line::from(format!("/{}_", escape_cell(&state.filter)))
    } else if notes.lacks.is_empty() && !notes.has_keys {
        return;
    } else if notes.lacks.is_empty() {
        Line::from("q quit  tab part  enter why or jobs  / filter  s sort  r reverse  e ended  m resource  ? keys")
    } else {
        Line::styled(escape_cell(&format!("not seen: {}", notes.lacks.join("; "))), pen.colour(Color::Yellow))
    };
    Paragraph::new(line).render(area, buffer);
}

fn draw_popup(area: Rect, buffer: &mut Buffer, popup: &Popup) {
    Clear.render(area, buffer);
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let style = Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED);
    Paragraph::new(format!("  {}  (esc closes)", escape_cell(&popup.title))).style(style).render(head, buffer);
    let lines: Vec<Line<'_>> = popup.lines.iter().skip(popup.first).map(|line| Line::from(escape_cell(line))).collect();
    Paragraph::new(lines).wrap(Wrap { trim: false }).render(body, buffer);
}
