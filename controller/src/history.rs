//! Lines that are kept long after what they are about is gone: how jobs ended, and what people did.
//!
//! Rule: as Slurm's `sacct`, of all jobs that were ever given quota. The lines are kept in some ConfigMaps, the pages.
//! One of them is written, every five minutes at most, until it is full; then the next, whose lines are forgotten
//! first. So a write is small however much is kept, and what is kept is bounded: of jobs some ten thousand, the newest.
//! What admins did has pages of its own, so that no tenant's deeds push it out.

mod recorded_action;

use std::{
    collections::{BTreeMap, BTreeSet},
    marker::PhantomData,
};

use caldera_core::{gang::QueueName, resources::Resources};
use caldera_runtime::write::Write;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

pub use self::recorded_action::RecordedAction;
use crate::config_map::build_config_map_write;

/// Bytes of one page at most.
const MOST_BYTES: usize = 200_000;
/// The key that says which of the pages was begun later.
const TURN: &str = "turn";

/// Which ConfigMaps have lines of one sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// Their names begin so; a dash and a number follow.
    pub prefix: &'static str,
    /// How many there are.
    pub count: usize,
    /// The key that has the lines.
    key: &'static str,
}

/// How jobs ended.
pub const ENDED_JOBS: Pages = Pages { prefix: "caldera-history", count: 16, key: "jobs.jsonl" };
/// What admins did: to queues, members and settings.
pub const ADMIN_ACTIONS: Pages = Pages { prefix: "caldera-actions", count: 4, key: "actions.jsonl" };
/// What was done to jobs, by their users and by the controller.
pub const JOB_ACTIONS: Pages = Pages { prefix: "caldera-job-actions", count: 8, key: "actions.jsonl" };
/// All pages.
pub const ALL_PAGES: [Pages; 3] = [ENDED_JOBS, ADMIN_ACTIONS, JOB_ACTIONS];

impl Pages {
    /// The ConfigMap of one page.
    #[must_use]
    pub fn name_page(&self, page: usize) -> String {
        format!("{}-{page}", self.prefix)
    }

    /// The ConfigMaps of all.
    pub fn list_names(self) -> impl Iterator<Item = String> {
        (0..self.count).map(move |page| self.name_page(page))
    }
}

/// One line of a history.
pub trait HistoryLine: Serialize + DeserializeOwned {
    /// What it is known by: what has been recorded is not recorded again.
    fn key(&self) -> (String, String);
    /// When it happened.
    fn at(&self) -> Timestamp;
}

/// How one job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndedJob {
    /// The workload's namespace.
    pub namespace: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Who submitted it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The queue that was charged.
    pub queue: QueueName,
    /// The phase or condition it ended as, or [`DELETED`].
    pub result: String,
    /// Where it was last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// What its queue was charged for it.
    pub charged: Resources,
    /// How many seconds it had said that it would run, whatever its limit was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_estimate: Option<u64>,
    /// When its binding was made.
    pub submitted: Timestamp,
    /// When it began to run, if it did and said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When it was taken off its clusters, if that was before it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Timestamp>,
    /// When it ended.
    pub ended: Timestamp,
}

impl EndedJob {
    /// How many seconds it ran last; `None` for one that was deleted before it ended, or did not say when it began. It
    /// may have been ended by its limit or by its user.
    pub(crate) fn count_run_seconds(&self) -> Option<u64> {
        // A status may say any time; its binding was made by Karmada.
        let started = self.started.filter(|_| self.result != DELETED)?.max(self.submitted);
        let ended = self.stopped.map_or(self.ended, |stopped| stopped.min(self.ended));
        u64::try_from(ended.as_second().saturating_sub(started.as_second())).ok()
    }
}

/// The result of a job that was deleted before it ended.
pub const DELETED: &str = "Deleted";

impl HistoryLine for EndedJob {
    fn key(&self) -> (String, String) {
        (self.uid.clone(), self.result.clone())
    }

    fn at(&self) -> Timestamp {
        self.ended
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct HistoryPage {
    lines: String,
    /// What each of its lines is known by.
    keys: BTreeSet<(String, String)>,
    /// The last time in it.
    until: Option<Timestamp>,
    /// Pages that were begun later have a greater one.
    turn: u64,
    is_changed: bool,
}

/// All lines of one sort that are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History<L> {
    names: Pages,
    pages: BTreeMap<usize, HistoryPage>,
    lines: PhantomData<L>,
}

/// How jobs ended.
pub type JobHistory = History<EndedJob>;

impl Default for JobHistory {
    fn default() -> Self {
        Self::new(ENDED_JOBS)
    }
}

impl<L: HistoryLine> History<L> {
    /// Without any.
    #[must_use]
    pub const fn new(names: Pages) -> Self {
        Self { names, pages: BTreeMap::new(), lines: PhantomData }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Adds the lines of a page's ConfigMap.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_page(&mut self, page: usize, object: &Value) -> Result<(), String> {
        let text = |key: &str| object["data"][key].as_str().unwrap_or_default();
        let turn = text(TURN).parse().map_err(|_| format!("its {TURN} is no number: {:?}", text(TURN)))?;
        let lines = text(self.names.key).to_owned();
        let parsed = parse_lines::<L>(&lines)?;
        let until = parsed.iter().map(L::at).max();
        let keys = parsed.iter().map(L::key).collect();
        self.pages.insert(page, HistoryPage { lines, keys, until, turn, is_changed: false });
        Ok(())
    }

    /// All of them, in the order in which they were recorded.
    #[must_use]
    pub fn list_lines(&self) -> Vec<L> {
        let mut pages: Vec<&HistoryPage> = self.pages.values().collect();
        pages.sort_by_key(|page| page.turn);
        pages.iter().flat_map(|page| parse_lines(&page.lines).unwrap_or_default()).collect()
    }

    /// What happened up to here may have been recorded and forgotten.
    pub(crate) fn find_newest_forgotten(&self) -> Option<Timestamp> {
        let is_full = self.pages.len() == self.names.count;
        let oldest = self.pages.values().filter(|_| is_full).min_by_key(|page| page.turn);
        oldest.and_then(|page| page.until)
    }

    /// Adds a line, unless it is recorded already: then it says so. Where all pages are full, the oldest is forgotten.
    pub(crate) fn add(&mut self, line: &L) -> bool {
        let (key, at) = (line.key(), line.at());
        if self.pages.values().any(|page| page.keys.contains(&key)) {
            return false;
        }
        let line = json!(line).to_string() + "\n";
        let last = self.pages.iter().max_by_key(|(_, page)| page.turn).map(|(at, page)| (*at, page.turn));
        let (mut number, mut turn) = last.unwrap_or((0, 1));
        if self.pages.get(&number).is_some_and(|page| page.lines.len() + line.len() > MOST_BYTES) {
            (number, turn) = ((number + 1) % self.names.count, turn + 1);
            self.pages.insert(number, HistoryPage { turn, ..HistoryPage::default() });
        }
        let page = self.pages.entry(number).or_insert_with(|| HistoryPage { turn, ..HistoryPage::default() });
        page.lines += &line;
        page.keys.insert(key);
        page.until = page.until.max(Some(at));
        page.is_changed = true;
        true
    }

    /// Whether there is a line of what a key begins with, such as the UID of a job.
    pub(crate) fn has_line_of(&self, first: &str) -> bool {
        let from = (first.to_owned(), String::new());
        let is_of = |page: &HistoryPage| page.keys.range(&from..).next().is_some_and(|(key, _)| key == first);
        self.pages.values().any(is_of)
    }

    /// Whether a page says more than what was written last.
    pub(crate) fn has_unsaved(&self) -> bool {
        self.pages.values().any(|page| page.is_changed)
    }

    /// The pages that say more than what was written last.
    pub(crate) fn take_writes(&mut self, namespace: &str) -> Vec<Write> {
        let names = self.names;
        let changed = |(at, page): (&usize, &mut HistoryPage)| {
            std::mem::take(&mut page.is_changed).then(|| page.to_write(namespace, names, *at))
        };
        self.pages.iter_mut().filter_map(changed).collect()
    }
}

impl HistoryPage {
    fn to_write(&self, namespace: &str, names: Pages, page: usize) -> Write {
        let data = json!({(names.key): self.lines, (TURN): self.turn.to_string()});
        build_config_map_write(namespace, &names.name_page(page), data, names.prefix)
    }
}

fn parse_lines<L: HistoryLine>(lines: &str) -> Result<Vec<L>, String> {
    let parse = |(at, line)| serde_json::from_str(line).map_err(|error| format!("its line {}: {error}", at + 1));
    lines.lines().enumerate().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use caldera_runtime::write::Body;

    use super::*;

    fn ended(name: &str) -> EndedJob {
        EndedJob {
            namespace: "ns".into(),
            kind: "Job".into(),
            name: name.into(),
            uid: format!("uid-{name}"),
            user: None,
            queue: "q".into(),
            result: "Completed".into(),
            clusters: vec!["m1".into()],
            charged: Resources::new(),
            running_estimate: None,
            submitted: Timestamp::UNIX_EPOCH,
            started: None,
            stopped: None,
            ended: Timestamp::UNIX_EPOCH,
        }
    }

    fn read_back(writes: &[Write], into: &mut JobHistory) {
        for write in writes {
            let Body::Apply { object, .. } = &write.body else { panic!("{write:?}") };
            let page = write.name.strip_prefix("caldera-history-").unwrap().parse().unwrap();
            into.read_page(page, object).unwrap();
        }
    }

    #[test]
    fn what_is_written_is_read_and_only_what_changed_is_written() {
        let mut history = JobHistory::default();
        history.add(&ended("a"));
        history.add(&ended("b"));
        let mut read = JobHistory::default();
        read_back(&history.take_writes("ns"), &mut read);
        assert_eq!(read.list_lines(), [ended("a"), ended("b")]);
        assert_eq!(read.find_newest_forgotten(), None);
        assert!(history.take_writes("ns").is_empty());
        read.add(&ended("c"));
        assert_eq!(read.take_writes("ns").len(), 1);
        assert_eq!(read.list_lines().len(), 3);
    }

    /// A tenant may write a status, and write it to and fro.
    #[test]
    fn a_job_that_ends_so_twice_is_recorded_once() {
        let failed = EndedJob { result: "Failed".into(), ..ended("a") };
        let mut history = JobHistory::default();
        assert_eq!([ended("a"), failed.clone(), ended("a")].map(|job| history.add(&job)), [true, true, false]);
        assert!(history.has_line_of("uid-a") && !history.has_line_of("uid-") && !history.has_line_of("uid-b"));
        let mut read = JobHistory::default();
        read_back(&history.take_writes("ns"), &mut read);
        assert_eq!([ended("a"), failed.clone()].map(|job| read.add(&job)), [false, false]);
        assert_eq!(read.list_lines(), [ended("a"), failed]);
        assert!(read.take_writes("ns").is_empty());
    }

    #[test]
    fn a_full_page_is_left_for_the_next_and_the_oldest_is_forgotten() {
        let (mut history, mut read) = (JobHistory::default(), JobHistory::default());
        let long = "n".repeat(200);
        let in_a_page = MOST_BYTES / json!(ended(&format!("{long}-00000"))).to_string().len();
        let total = in_a_page * (ENDED_JOBS.count + 2);
        for at in 0..total {
            history.add(&ended(&format!("{long}-{at:05}")));
            if at % 100 == 0 {
                read_back(&history.take_writes("ns"), &mut read);
            }
        }
        read_back(&history.take_writes("ns"), &mut read);
        assert_eq!(read.pages.len(), ENDED_JOBS.count);
        assert!(read.pages.values().all(|page| page.lines.len() <= MOST_BYTES));
        let names: Vec<String> = read.list_lines().into_iter().map(|job| job.name).collect();
        assert!(names.is_sorted(), "the pages are in the order of their turns");
        assert_eq!(names.last().unwrap(), &format!("{long}-{:05}", total - 1));
        assert!(names.len() > in_a_page * (ENDED_JOBS.count - 1), "{} of {total}", names.len());
        assert_eq!(read.find_newest_forgotten(), Some(Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn a_page_that_somebody_wrote_on_is_an_error_and_says_where() {
        let page = json!({"data": {(TURN): "1", (ENDED_JOBS.key): "{}\n"}});
        assert!(JobHistory::default().read_page(0, &page).unwrap_err().starts_with("its line 1: "));
        let page = json!({"data": {(ENDED_JOBS.key): ""}});
        assert!(JobHistory::default().read_page(0, &page).unwrap_err().contains("turn is no number"));
    }
}
