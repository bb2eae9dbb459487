//! What the user of `caldera top` chose, and what is shown by that: a function of keys, objects and time. What changes
//! something is proposed first, with the job's name, and done by key y alone.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use caldera_core::device::DEVICE_CLASS_PREFIX;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::{
    job::change::JobChange,
    view::{FleetAmount, JobCounts, JobKey, JobView, Member, QueueLine, Seen, count_jobs, sum_members},
};

/// A part of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pane {
    Queues,
    Clusters,
    #[default]
    Jobs,
}

impl Pane {
    pub const ALL: [Self; 3] = [Self::Queues, Self::Clusters, Self::Jobs];

    const fn index(self) -> usize {
        self as usize
    }

    const fn next(self) -> Self {
        Self::ALL[(self.index() + 1) % 3]
    }

    const fn previous(self) -> Self {
        Self::ALL[(self.index() + 2) % 3]
    }
}

/// By what jobs are in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// Those that wait first, by queue and position.
    #[default]
    Line,
    /// The oldest first.
    Age,
    /// The most urgent first.
    Priority,
    /// By queue.
    Queue,
    /// By namespace and name.
    Name,
}

impl Sort {
    const ALL: [Self; 5] = [Self::Line, Self::Age, Self::Priority, Self::Queue, Self::Name];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Age => "age",
            Self::Priority => "priority",
            Self::Queue => "queue",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or_default();
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    fn compare(self, a: &JobView<'_>, b: &JobView<'_>) -> Ordering {
        let line = |a: &JobView<'_>, b: &JobView<'_>| {
            let place = |job: &JobView<'_>| job.position().map_or(usize::MAX, |position| position.place);
            a.state.cmp(&b.state).then_with(|| a.queue().cmp(b.queue())).then_with(|| place(a).cmp(&place(b)))
        };
        let first = match self {
            Self::Line => line(a, b),
            Self::Age => a.created().cmp(&b.created()),
            Self::Priority => b.priority().cmp(&a.priority()).then_with(|| line(a, b)),
            Self::Queue => a.queue().cmp(b.queue()).then_with(|| line(a, b)),
            Self::Name => Ordering::Equal,
        };
        first.then_with(|| a.key.cmp(b.key))
    }
}

/// A text over all else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Popup {
    pub title: String,
    pub lines: Vec<String>,
    pub first: usize,
    /// Whose answer is awaited.
    pub of: Option<JobKey>,
    /// What key y does to it.
    pub proposal: Option<JobChange>,
}

/// What a key leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Nothing outside.
    Stay,
    /// Ends it.
    Quit,
    /// Asks why a job stands where it stands.
    Ask(JobKey),
    /// Holds or releases a job.
    Change(JobKey, JobChange),
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct TopState {
    pub pane: Pane,
    pub sort: Sort,
    pub is_reversed: bool,
    pub filter: String,
    pub is_typing: bool,
    /// Jobs of this queue alone.
    pub queue: Option<String>,
    /// Jobs in this member alone.
    pub cluster: Option<String>,
    /// Jobs that ended, too.
    pub shows_over: bool,
    /// Which resource of those that queues can be told by.
    pub resource: usize,
    pub popup: Option<Popup>,
    selected: [usize; 3],
    /// The selected job: it stays selected where others come and go.
    job: Option<JobKey>,
}

/// What is on the screen.
#[derive(Debug)]
pub struct Shown<'a> {
    pub fleet: Vec<FleetAmount>,
    /// The resource that queues are told by.
    pub resource: String,
    pub counts: JobCounts,
    /// Why an admin has nothing released, if so.
    pub paused: Option<&'a str>,
    pub queues: Vec<QueueLine>,
    pub members: Vec<&'a Member>,
    /// By member: gangs there, and their pods.
    pub gangs: BTreeMap<&'a str, (usize, u64)>,
    pub jobs: Vec<JobView<'a>>,
    /// By pane.
    pub selected: [usize; 3],
}

/// What queues are told by: resources of the fleet, then devices that queues have or are limited by, of which Karmada's
/// summaries of members tell nothing.
fn list_resources<'a>(fleet: &'a [FleetAmount], queues: &'a [QueueLine]) -> Vec<&'a str> {
    let mut names: Vec<&str> = fleet.iter().map(|amount| amount.resource.as_str()).collect();
    let all = queues.iter().flat_map(|queue| &queue.amounts).map(|amount| amount.resource.as_str());
    let devices: BTreeSet<&str> =
        all.filter(|name| name.starts_with(DEVICE_CLASS_PREFIX) && !names.contains(name)).collect();
    names.extend(devices);
    names
}

impl TopState {
    /// What is shown of all that is seen.
    #[must_use]
    pub fn build_shown<'a>(&self, seen: &'a Seen) -> Shown<'a> {
        let fleet = sum_members(seen.members());
        let (counts, gangs) = count_jobs(seen.jobs());
        let filter = self.filter.to_lowercase();
        let mut jobs: Vec<JobView<'a>> = seen.jobs().filter(|job| self.is_wanted(job, &filter)).collect();
        jobs.sort_unstable_by(|a, b| self.sort.compare(a, b));
        if self.is_reversed {
            jobs.reverse();
        }
        let (queues, members): (_, Vec<&Member>) = (seen.queues(), seen.members().collect());
        let at = self.job.as_ref().and_then(|key| jobs.iter().position(|job| job.key == key));
        let wanted = [self.selected[0], self.selected[1], at.unwrap_or(self.selected[2])];
        let lengths = [queues.len(), members.len(), jobs.len()];
        let selected = std::array::from_fn(|pane| wanted[pane].min(lengths[pane].saturating_sub(1)));
        let resources = list_resources(&fleet, &queues);
        let resource = resources.get(self.resource % resources.len().max(1)).map_or("cpu", |name| *name).to_owned();
        Shown { fleet, resource, counts, paused: seen.pause_reason(), queues, members, gangs, jobs, selected }
    }

    fn is_wanted(&self, job: &JobView<'_>, filter: &str) -> bool {
        let has = |text: &str| text.to_lowercase().contains(filter);
        (self.shows_over || !job.state.is_over())
            && self.queue.as_ref().is_none_or(|queue| queue == job.queue())
            && self.cluster.as_ref().is_none_or(|cluster| job.clusters().iter().any(|(name, _)| name == cluster))
            && (filter.is_empty()
                || has(&job.key.name)
                || has(&job.key.namespace)
                || has(job.queue())
                || has(job.state.word())
                || has(job.reason())
                || job.clusters().iter().any(|(name, _)| has(name)))
    }

    /// Takes in a key.
    pub fn handle_key(&mut self, key: KeyEvent, shown: &Shown<'_>) -> Act {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Act::Quit;
        }
        if self.is_typing {
            self.type_filter(key.code);
            return Act::Stay;
        }
        if self.popup.is_some() {
            return self.handle_popup_key(key.code);
        }
        let page = 10;
        match key.code {
            KeyCode::Char('q') => return Act::Quit,
            KeyCode::Tab | KeyCode::Right => self.pane = self.pane.next(),
            KeyCode::BackTab | KeyCode::Left => self.pane = self.pane.previous(),
            KeyCode::Char('1') => self.pane = Pane::Queues,
            KeyCode::Char('2') => self.pane = Pane::Clusters,
            KeyCode::Char('3') => self.pane = Pane::Jobs,
            KeyCode::Down | KeyCode::Char('j') => self.move_selection(shown, |at| at.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.move_selection(shown, |at| at.saturating_sub(1)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.move_selection(shown, |at| at.saturating_add(page)),
            KeyCode::PageUp => self.move_selection(shown, |at| at.saturating_sub(page)),
            KeyCode::Home | KeyCode::Char('g') => self.move_selection(shown, |_| 0),
            KeyCode::End | KeyCode::Char('G') => self.move_selection(shown, |_| usize::MAX),
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('e') => self.shows_over = !self.shows_over,
            KeyCode::Char('m') => self.resource = self.resource.wrapping_add(1),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('?' | 'h') => self.popup = Some(build_keys_popup()),
            KeyCode::Esc => self.clear_filters(),
            KeyCode::Enter | KeyCode::Char('w') => return self.open_selected(shown),
            KeyCode::Char('H') => self.propose_change(shown, JobChange::Hold),
            KeyCode::Char('R') => self.propose_change(shown, JobChange::Release),
            _ => {}
        }
        Act::Stay
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => (self.is_typing, self.filter) = (false, String::new()),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
    }

    fn handle_popup_key(&mut self, code: KeyCode) -> Act {
        let Some(popup) = &mut self.popup else { return Act::Stay };
        if let Some(change) = popup.proposal.take() {
            return match (code, popup.of.clone()) {
                (KeyCode::Char('y'), Some(job)) => {
                    popup.lines = vec!["asking the API server...".to_owned()];
                    Act::Change(job, change)
                }
                _ => {
                    self.popup = None;
                    Act::Stay
                }
            };
        }
        let last = popup.lines.len().saturating_sub(1);
        match code {
            KeyCode::Down | KeyCode::Char('j') => popup.first = (popup.first + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => popup.first = popup.first.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => popup.first = (popup.first + 10).min(last),
            KeyCode::PageUp => popup.first = popup.first.saturating_sub(10),
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => self.popup = None,
            _ => {}
        }
        Act::Stay
    }

    fn move_selection(&mut self, shown: &Shown<'_>, step: impl Fn(usize) -> usize) {
        let pane = self.pane.index();
        let length = [shown.queues.len(), shown.members.len(), shown.jobs.len()][pane];
        let at = step(shown.selected[pane]).min(length.saturating_sub(1));
        self.selected[pane] = at;
        if self.pane == Pane::Jobs {
            self.job = shown.jobs.get(at).map(|job| job.key.clone());
        }
    }

    fn clear_filters(&mut self) {
        (self.queue, self.cluster) = (None, None);
        self.filter.clear();
    }

    /// A queue or a member leads to its jobs, a job to its reasons.
    fn open_selected(&mut self, shown: &Shown<'_>) -> Act {
        let at = shown.selected[self.pane.index()];
        match self.pane {
            Pane::Queues => self.queue = shown.queues.get(at).map(|queue| queue.name.clone()),
            Pane::Clusters => self.cluster = shown.members.get(at).map(|member| member.name.clone()),
            Pane::Jobs => {
                let Some(job) = shown.jobs.get(at) else { return Act::Stay };
                self.job = Some(job.key.clone());
                let mut lines = vec![format!("{}  [{}]", job.state.word(), job.reason())];
                lines.extend([job.message().to_owned(), String::new(), "asking what decides...".to_owned()]);
                let title = format!("why {}/{}", job.key.namespace, job.key.command_name());
                self.popup = Some(Popup { title, lines, first: 0, of: Some(job.key.clone()), proposal: None });
                return Act::Ask(job.key.clone());
            }
        }
        self.pane = Pane::Jobs;
        Act::Stay
    }

    /// Asks whether the selected job is to be held or released. Nothing is done before key y.
    fn propose_change(&mut self, shown: &Shown<'_>, change: JobChange) {
        let at = shown.selected[Pane::Jobs.index()];
        let Some(job) = shown.jobs.get(at).filter(|_| self.pane == Pane::Jobs) else { return };
        self.job = Some(job.key.clone());
        let (word, means) = match change {
            JobChange::Release => ("release", "Its hold is taken away, and it may start when its turn comes."),
            _ => ("hold", "It stays in its queue until it is released. What runs runs on."),
        };
        let name = format!("{}/{}", job.key.namespace, job.key.command_name());
        let question = format!("{word} {name} ({})?", job.state.word());
        let lines = [question, means.to_owned(), String::new(), "y does it; any other key does not.".to_owned()];
        let (title, of) = (format!("{word} {name}"), Some(job.key.clone()));
        self.popup = Some(Popup { title, lines: lines.into(), first: 0, of, proposal: Some(change) });
    }

    /// Takes in the answer to [`Act::Ask`] or [`Act::Change`], unless the user looks at something else by now, or is
    /// asked something that key y would still do.
    pub fn show_answer(&mut self, key: &JobKey, text: &str) {
        let awaits = |popup: &&mut Popup| popup.of.as_ref() == Some(key) && popup.proposal.is_none();
        if let Some(popup) = self.popup.as_mut().filter(awaits) {
            popup.lines = text.lines().map(str::to_owned).collect();
        }
    }
}

fn build_keys_popup() -> Popup {
    let lines = [
        "tab, left, right, 1 2 3   queues, clusters, jobs",
        "up, down, page up, page down, home, end   selects",
        "enter   on a queue or a cluster: its jobs; on a job: why it stands where it stands",
        "/   filters by name, namespace, queue, state, reason or cluster; enter keeps it, esc clears all filters",
        "s   orders jobs by line, age, priority, queue or name; r turns that round",
        "e   shows jobs that ended, or hides them",
        "H, R   holds the selected job that waits, or releases it; y confirms",
        "m   tells queues by the next resource or DeviceClass",
        "q, ctrl-c   ends it",
    ];
    let lines = lines.map(str::to_owned).into();
    Popup { title: "keys".to_owned(), lines, first: 0, of: None, proposal: None }
}
