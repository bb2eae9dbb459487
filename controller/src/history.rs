//! How jobs ended: one line for each, long after the jobs are gone.
//!
//! Rule: as Slurm's `sacct`, of all that was ever given quota. The lines are kept in [`PAGES`] ConfigMaps. One of them
//! is written, every five minutes at most, until it is full; then the next, whose lines are forgotten first. So a write
//! is small however much is kept, and what is kept is bounded: some ten thousand jobs, the newest.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{gang::QueueName, resources::Resources};
use caldera_runtime::write::Write;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config_map::build_config_map_write;

/// How many ConfigMaps there are.
pub const PAGES: usize = 16;
/// Bytes of one of them at most.
const MOST_BYTES: usize = 200_000;
/// The key of a ConfigMap that has the lines.
const LINES: &str = "jobs.jsonl";
/// The key that says which of the pages was begun later.
const TURN: &str = "turn";
const MANAGER: &str = "caldera-history";

/// The ConfigMap of a page.
#[must_use]
pub fn name_page(page: usize) -> String {
    format!("caldera-history-{page}")
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
    /// When its binding was made.
    pub submitted: Timestamp,
    /// When it began to run, if it did and said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Timestamp,
}

/// The result of a job that was deleted before it ended.
pub const DELETED: &str = "Deleted";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct HistoryPage {
    lines: String,
    /// UID and result of each of its lines.
    ends: BTreeSet<(String, String)>,
    /// The last end in it.
    until: Option<Timestamp>,
    /// Pages that were begun later have a greater one.
    turn: u64,
    is_changed: bool,
}

/// All that is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobHistory {
    pages: BTreeMap<usize, HistoryPage>,
}

impl JobHistory {
    /// Adds the lines of a page's ConfigMap.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_page(&mut self, page: usize, object: &Value) -> Result<(), String> {
        let text = |key: &str| object["data"][key].as_str().unwrap_or_default();
        let turn = text(TURN).parse().map_err(|_| format!("its {TURN} is no number: {:?}", text(TURN)))?;
        let lines = text(LINES).to_owned();
        let jobs = parse_lines(&lines)?;
        let until = jobs.iter().map(|job| job.ended).max();
        let ends = jobs.into_iter().map(|job| (job.uid, job.result)).collect();
        self.pages.insert(page, HistoryPage { lines, ends, until, turn, is_changed: false });
        Ok(())
    }

    /// All jobs, in the order of their ends as far as they were recorded in it.
    #[must_use]
    pub fn list_jobs(&self) -> Vec<EndedJob> {
        let mut pages: Vec<&HistoryPage> = self.pages.values().collect();
        pages.sort_by_key(|page| page.turn);
        pages.iter().flat_map(|page| parse_lines(&page.lines).unwrap_or_default()).collect()
    }

    /// An end up to here may have been recorded and forgotten.
    pub(crate) fn find_newest_forgotten_end(&self) -> Option<Timestamp> {
        let oldest = self.pages.values().filter(|_| self.pages.len() == PAGES).min_by_key(|page| page.turn);
        oldest.and_then(|page| page.until)
    }

    /// Adds a job, unless it is recorded already that it ended so; where all pages are full, the oldest is forgotten.
    pub(crate) fn add(&mut self, job: &EndedJob) {
        let end = (job.uid.clone(), job.result.clone());
        if self.pages.values().any(|page| page.ends.contains(&end)) {
            return;
        }
        let line = json!(job).to_string() + "\n";
        let last = self.pages.iter().max_by_key(|(_, page)| page.turn).map(|(at, page)| (*at, page.turn));
        let (mut at, mut turn) = last.unwrap_or((0, 1));
        if self.pages.get(&at).is_some_and(|page| page.lines.len() + line.len() > MOST_BYTES) {
            (at, turn) = ((at + 1) % PAGES, turn + 1);
            self.pages.insert(at, HistoryPage { turn, ..HistoryPage::default() });
        }
        let page = self.pages.entry(at).or_insert_with(|| HistoryPage { turn, ..HistoryPage::default() });
        page.lines += &line;
        page.ends.insert(end);
        page.until = page.until.max(Some(job.ended));
        page.is_changed = true;
    }

    /// The pages that say more than what was written last.
    pub(crate) fn take_writes(&mut self, namespace: &str) -> Vec<Write> {
        let changed = |(at, page): (&usize, &mut HistoryPage)| {
            std::mem::take(&mut page.is_changed).then(|| page.to_write(namespace, &name_page(*at)))
        };
        self.pages.iter_mut().filter_map(changed).collect()
    }
}

impl HistoryPage {
    fn to_write(&self, namespace: &str, name: &str) -> Write {
        let data = json!({(LINES): self.lines, (TURN): self.turn.to_string()});
        build_config_map_write(namespace, name, data, MANAGER)
    }
}

fn parse_lines(lines: &str) -> Result<Vec<EndedJob>, String> {
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
            submitted: Timestamp::UNIX_EPOCH,
            started: None,
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
        assert_eq!(read.list_jobs(), [ended("a"), ended("b")]);
        assert_eq!(read.find_newest_forgotten_end(), None);
        assert!(history.take_writes("ns").is_empty());
        read.add(&ended("c"));
        assert_eq!(read.take_writes("ns").len(), 1);
        assert_eq!(read.list_jobs().len(), 3);
    }

    /// A tenant may write a status, and write it to and fro.
    #[test]
    fn a_job_that_ends_so_twice_is_recorded_once() {
        let failed = EndedJob { result: "Failed".into(), ..ended("a") };
        let mut history = JobHistory::default();
        [ended("a"), failed.clone(), ended("a")].iter().for_each(|job| history.add(job));
        let mut read = JobHistory::default();
        read_back(&history.take_writes("ns"), &mut read);
        [ended("a"), failed.clone()].iter().for_each(|job| read.add(job));
        assert_eq!(read.list_jobs(), [ended("a"), failed]);
        assert!(read.take_writes("ns").is_empty());
    }

    #[test]
    fn a_full_page_is_left_for_the_next_and_the_oldest_is_forgotten() {
        let (mut history, mut read) = (JobHistory::default(), JobHistory::default());
        let long = "n".repeat(200);
        let in_a_page = MOST_BYTES / json!(ended(&format!("{long}-00000"))).to_string().len();
        let total = in_a_page * (PAGES + 2);
        for at in 0..total {
            history.add(&ended(&format!("{long}-{at:05}")));
            if at % 100 == 0 {
                read_back(&history.take_writes("ns"), &mut read);
            }
        }
        read_back(&history.take_writes("ns"), &mut read);
        assert_eq!(read.pages.len(), PAGES);
        assert!(read.pages.values().all(|page| page.lines.len() <= MOST_BYTES));
        let names: Vec<String> = read.list_jobs().into_iter().map(|job| job.name).collect();
        assert!(names.is_sorted(), "the pages are in the order of their turns");
        assert_eq!(names.last().unwrap(), &format!("{long}-{:05}", total - 1));
        assert!(names.len() > in_a_page * (PAGES - 1), "{} of {total}", names.len());
        assert_eq!(read.find_newest_forgotten_end(), Some(Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn a_page_that_somebody_wrote_on_is_an_error_and_says_where() {
        let page = json!({"data": {(TURN): "1", (LINES): "{}\n"}});
        assert!(JobHistory::default().read_page(0, &page).unwrap_err().starts_with("its line 1: "));
        let page = json!({"data": {(LINES): ""}});
        assert!(JobHistory::default().read_page(0, &page).unwrap_err().contains("turn is no number"));
    }
}
