//! What a controller in shadow mode reports: what it would have done beside another scheduler, and where that differs
//! from what the other one did.
//!
//! Rule: one line for each job that came to be placed, or waits, since the shadow began, and totals. Lines are bounded:
//! the newest [`MOST_JOBS`]; totals go on, also over restarts. All of it is one ConfigMap.

use std::collections::BTreeSet;

use caldera_core::gang::{QueueName, WorkloadRef};
use caldera_runtime::write::Write;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config_map::build_config_map_write;

/// The ConfigMap's name.
pub const NAME: &str = "caldera-shadow";
/// Its key.
const KEY: &str = "report.json";
/// Lines at most.
pub const MOST_JOBS: usize = 1000;
/// Bytes of the report at most: an object may have 1 MiB.
const MOST_BYTES: usize = 700_000;
/// Between two reports at least, and where the second one says the same.
const CHANGED_EVERY: SignedDuration = SignedDuration::from_secs(30);
const SAME_EVERY: SignedDuration = SignedDuration::from_secs(60);
/// Characters of a sentence at most.
const MOST_OF_A_MESSAGE: usize = 400;
/// Jobs that are named as evicted for one, at most.
pub(crate) const MOST_EVICTED: usize = 32;

/// Names as a person reads them.
#[must_use]
pub fn join_names(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

/// How the two schedulers compare on one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShadowVerdict {
    /// Both start it, in the same clusters.
    Same,
    /// Both start it, in other clusters.
    Elsewhere,
    /// The other scheduler started it; Caldera would have had it wait.
    WouldWait,
    /// Caldera would have started it; the other scheduler has not yet.
    Sooner,
    /// It waits with both.
    Waits,
}

impl ShadowVerdict {
    /// The token.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Elsewhere => "elsewhere",
            Self::WouldWait => "would-wait",
            Self::Sooner => "sooner",
            Self::Waits => "waits",
        }
    }
}

/// One job, with both schedulers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowJob {
    /// The workload's namespace.
    pub namespace: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its binding's UID.
    pub uid: String,
    /// The queue that it would be charged to.
    pub queue: QueueName,
    /// When its binding was made.
    pub submitted: Timestamp,
    /// When Caldera would have admitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted: Option<Timestamp>,
    /// Where Caldera would have placed it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub clusters: BTreeSet<String>,
    /// When the other scheduler placed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed: Option<Timestamp>,
    /// Where the other scheduler placed it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub placed_in: BTreeSet<String>,
    /// Why Caldera would have had it wait, when it was last looked at: a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Jobs that Caldera would have evicted for it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub evicts: BTreeSet<String>,
    /// When Caldera would first have done that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicts_at: Option<Timestamp>,
}

impl ShadowJob {
    /// A job that neither has started.
    pub(crate) fn new(workload: &WorkloadRef, uid: String, queue: QueueName, submitted: Timestamp) -> Self {
        Self {
            namespace: workload.namespace.clone(),
            kind: workload.kind.clone(),
            name: workload.name.clone(),
            uid,
            queue,
            submitted,
            admitted: None,
            clusters: BTreeSet::new(),
            placed: None,
            placed_in: BTreeSet::new(),
            reason: None,
            message: None,
            evicts: BTreeSet::new(),
            evicts_at: None,
        }
    }

    /// How the two compare on it.
    #[must_use]
    pub fn verdict(&self) -> ShadowVerdict {
        match (self.admitted, self.placed) {
            (None, None) => ShadowVerdict::Waits,
            (Some(_), None) => ShadowVerdict::Sooner,
            (None, Some(_)) => ShadowVerdict::WouldWait,
            (Some(_), Some(_)) if self.clusters == self.placed_in => ShadowVerdict::Same,
            (Some(_), Some(_)) => ShadowVerdict::Elsewhere,
        }
    }

    /// Says why it would wait.
    pub(crate) fn set_reason(&mut self, token: &str, message: &str) {
        self.reason = Some(token.to_owned());
        self.message = Some(message.chars().take(MOST_OF_A_MESSAGE).collect());
    }
}

/// What is counted of all jobs since the shadow began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    /// Jobs that both placed in the same clusters.
    pub same: u64,
    /// Jobs that both placed, in other clusters.
    pub elsewhere: u64,
    /// Jobs that the other scheduler placed, and Caldera would have had wait.
    pub would_wait: u64,
    /// Jobs that Caldera would have evicted for others.
    pub evictions: u64,
    /// Seconds that the jobs which both placed waited for the other scheduler.
    pub waited: u64,
    /// Seconds that they would have waited for Caldera.
    pub would_have_waited: u64,
}

impl Totals {
    /// Counts a job that the other scheduler has placed.
    pub(crate) fn count_placed(&mut self, job: &ShadowJob) {
        let seconds_until = |at: Option<Timestamp>| {
            let waited = at.map_or(0, |at| at.as_second() - job.submitted.as_second());
            u64::try_from(waited).unwrap_or(0)
        };
        match job.verdict() {
            ShadowVerdict::WouldWait => self.would_wait += 1,
            ShadowVerdict::Sooner | ShadowVerdict::Waits => {}
            verdict @ (ShadowVerdict::Same | ShadowVerdict::Elsewhere) => {
                *if verdict == ShadowVerdict::Same { &mut self.same } else { &mut self.elsewhere } += 1;
                self.waited += seconds_until(job.placed);
                self.would_have_waited += seconds_until(job.admitted);
            }
        }
    }
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowReport {
    /// When the shadow began to look.
    pub since: Timestamp,
    /// When this was written.
    pub written: Timestamp,
    /// Of all jobs.
    pub totals: Totals,
    /// The newest, the last submitted first.
    pub jobs: Vec<ShadowJob>,
}

impl ShadowReport {
    /// Reads the ConfigMap.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_config_map(object: &Value) -> Result<Self, String> {
        let text = object["data"][KEY].as_str().ok_or_else(|| format!("it has no {KEY}"))?;
        serde_json::from_str(text).map_err(|error| format!("its {KEY}: {error}"))
    }

    /// Whether it is to be written after this one: thirty seconds later if it says something else, and a minute later
    /// in any case, so that its time shows that somebody looks.
    #[must_use]
    pub(crate) fn is_due_after(&self, last: &Self) -> bool {
        let is_other = (&self.totals, &self.jobs) != (&last.totals, &last.jobs);
        self.written.duration_since(last.written) >= if is_other { CHANGED_EVERY } else { SAME_EVERY }
    }

    /// How it is written: as many lines as there is room for.
    pub(crate) fn to_write(&self, namespace: &str) -> Write {
        let mut text = json!(self).to_string();
        let mut kept = self.jobs.len();
        while text.len() > MOST_BYTES && kept > 0 {
            kept /= 2;
            text = json!(Self { jobs: self.jobs[..kept].to_vec(), ..self.clone() }).to_string();
        }
        build_config_map_write(namespace, NAME, json!({(KEY): text}), NAME)
    }
}

#[cfg(test)]
mod tests {
    use caldera_runtime::write::Body;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn job(name: &str) -> ShadowJob {
        let (group, kind) = ("batch.volcano.sh".into(), "Job".into());
        let workload = WorkloadRef { group, kind, namespace: "ns".into(), name: name.into() };
        ShadowJob::new(&workload, format!("uid-{name}"), "q".into(), at(100))
    }

    fn clusters(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_verdict_says_who_starts_a_job_and_whether_in_the_same_clusters() {
        let mut job = job("a");
        assert_eq!(job.verdict(), ShadowVerdict::Waits);
        (job.admitted, job.clusters) = (Some(at(101)), clusters(&["m1", "m2"]));
        assert_eq!(job.verdict(), ShadowVerdict::Sooner);
        (job.placed, job.placed_in) = (Some(at(130)), clusters(&["m2", "m1"]));
        assert_eq!(job.verdict(), ShadowVerdict::Same);
        job.placed_in = clusters(&["m3"]);
        assert_eq!(job.verdict(), ShadowVerdict::Elsewhere);
        job.admitted = None;
        assert_eq!(job.verdict(), ShadowVerdict::WouldWait);
    }

    #[test]
    fn waits_are_summed_of_jobs_that_both_placed() {
        let mut totals = Totals::default();
        let both = ShadowJob { admitted: Some(at(101)), placed: Some(at(130)), ..job("both") };
        totals.count_placed(&both);
        totals.count_placed(&ShadowJob { placed: Some(at(110)), ..job("held") });
        let reported = Totals { same: 1, would_wait: 1, waited: 30, would_have_waited: 1, ..Totals::default() };
        assert_eq!(totals, reported);
    }

    #[test]
    fn a_report_is_read_as_it_was_written_and_has_room_in_one_object() {
        let report = |jobs| ShadowReport { since: at(1), written: at(2), totals: Totals::default(), jobs };
        let read = |report: &ShadowReport| {
            let Body::Apply { object, .. } = report.to_write("ns").body else { panic!("it is applied") };
            assert!(object.to_string().len() < 1_000_000);
            ShadowReport::read_config_map(&object).unwrap()
        };
        let small = report(vec![job("a")]);
        assert_eq!(read(&small), small);
        let mut long = job(&"n".repeat(250));
        long.set_reason("NoQuota", &"m".repeat(5000));
        long.evicts = (0..MOST_EVICTED).map(|at| format!("{at}-{}", "e".repeat(200))).collect();
        let large = read(&report(vec![long; MOST_JOBS]));
        assert!(!large.jobs.is_empty() && large.jobs.len() < MOST_JOBS);
    }
}
