//! When jobs that wait are expected to start, as `caldera job list --start` and `caldera why` tell it.
//!
//! Rule: an instant never stands alone. It is `about` where every job that it depends on said how long it runs, and
//! `perhaps` where some did not, or have outrun what they said, or where nodes have to come first, or a member is not
//! ready; then it says how many, and what was assumed. What can never start, or waits for somebody to change something,
//! has none, as `caldera why` has it. Nor has anything where something that decides can not be seen. Nothing starts in
//! a member that is not ready: that is told with each instant.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use caldera_controller::explain::{Verdict, list_verdicts};
use caldera_core::gang::WorkloadRef;
use caldera_simulate::{
    expected_start::{self, StartTime, expect_starts},
    time::Millis,
};
use jiff::Timestamp;
use serde::Serialize;

use crate::{live::Live, output::format_duration};

/// How long the fleet is played forward at most for a list of jobs.
pub const FOR_A_LIST: Duration = Duration::from_secs(10);
/// And for one job, beside all else that is told of it.
pub const FOR_ONE: Duration = Duration::from_secs(2);

/// When a job is expected to start, and how sure that is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedStart {
    /// To the minute; `None` if it is not known.
    pub at: Option<String>,
    /// Seconds until then.
    #[serde(skip)]
    pub ahead: Option<i64>,
    /// Every job that it depends on said how long it runs, and keeps to it so far; no node has to come first, and every
    /// member is ready.
    pub sure: bool,
    /// What it rests on, or why it is not known.
    pub basis: String,
}

/// The expected starts of all jobs that wait.
#[derive(Debug)]
pub struct Forecast {
    starts: BTreeMap<WorkloadRef, ExpectedStart>,
    assume: Millis,
}

impl Forecast {
    /// Works them out, and has `live` decide: it must not have decided before.
    ///
    /// # Errors
    /// If it is stopped meanwhile.
    pub async fn of_live(live: &mut Live, assume: Millis, most: Duration) -> anyhow::Result<Self> {
        let state = live.take_state();
        live.decide();
        let refusal = find_forecast_obstacle(live);
        let lost = live.list_lost_members().join(", ");
        let (now, names) = (live.now, state.jobs.iter().map(|job| (job.workload.clone(), job.name.clone())));
        let names: HashMap<_, _> = names.collect();
        let expected = match refusal {
            Some(why) => Err(why),
            None => {
                let began = Instant::now();
                let look_on = move || began.elapsed() < most;
                let expected = tokio::task::spawn_blocking(move || expect_starts(&state, assume, look_on)).await?;
                expected.map_err(|error| error.to_string())
            }
        };
        let mut starts = BTreeMap::new();
        for (workload, verdict) in list_verdicts(&live.controller) {
            let played = expected.as_ref().map(|all| names.get(&workload).and_then(|name| all.get(name)).copied());
            if let Some(start) = choose_start(verdict, played, (now, assume), &lost) {
                starts.insert(workload, start);
            }
        }
        Ok(Self { starts, assume })
    }

    #[cfg(test)]
    pub(crate) fn of_starts(starts: BTreeMap<WorkloadRef, ExpectedStart>) -> Self {
        Self { starts, assume: Millis(0) }
    }

    /// When a job is expected to start; `None` for one that does not wait, or never starts.
    #[must_use]
    pub fn find_start(&self, workload: &WorkloadRef) -> Option<&ExpectedStart> {
        self.starts.get(workload)
    }

    /// All of them.
    pub fn list_starts(&self) -> impl Iterator<Item = (&WorkloadRef, &ExpectedStart)> {
        self.starts.iter()
    }

    /// What `perhaps` means, where it is said.
    #[must_use]
    pub fn describe_uncertainty(&self) -> String {
        let assume = self.assume;
        format!(
            "perhaps: some job before it gives no estimate (assumed {assume}), or is taken to run as the last of its \
             queue or to its limit, or should have ended by now; or nodes have to come first, or a member is not \
             ready; -o wide says which, and how many"
        )
    }
}

/// Why nothing can be said of any start: it is paused, or something that decides can not be seen.
fn find_forecast_obstacle(live: &Live) -> Option<String> {
    if live.controller.pause_reason().is_some() {
        return Some("an admin paused all releases: not before `caldera unpause`".to_owned());
    }
    if !live.controller.is_complete() {
        return Some("your credentials do not show everything that decides".to_owned());
    }
    let member = live.find_unread_member()?;
    Some(format!("{} can not be read: {}", member.what, member.why))
}

/// In members that are not ready nothing is taken to start: they may come back before, or be given up.
fn qualify_start(start: ExpectedStart, lost: &str) -> ExpectedStart {
    if lost.is_empty() {
        return start;
    }
    let basis = format!("{}; nothing is taken to start in {lost}, not ready", start.basis);
    ExpectedStart { sure: false, basis, ..start }
}

/// What is told of a job: its start as the fleet was played forward, or why it was not. One that the controller
/// releases next starts now, but where nodes have to come for it.
fn choose_start(
    verdict: Verdict,
    played: Result<Option<expected_start::ExpectedStart>, &String>,
    (now, assume): (Timestamp, Millis),
    lost: &str,
) -> Option<ExpectedStart> {
    let qualify = |start| qualify_start(convert_start(start, now, assume), lost);
    match (verdict, played) {
        (Verdict::MayStart | Verdict::Waiting, Err(why)) => Some(build_unknown_start(why)),
        (Verdict::MayStart, Ok(Some(start))) if start.basis.for_nodes.is_some() => Some(qualify(start)),
        (Verdict::MayStart, _) => Some(build_known_start(now.as_second(), now, true, "nothing speaks against it")),
        (Verdict::Waiting, Ok(Some(start))) => Some(qualify(start)),
        (Verdict::Waiting, Ok(None)) => Some(build_unknown_start("it is not in its queue yet")),
        _ => None,
    }
}

fn convert_start(start: expected_start::ExpectedStart, now: Timestamp, assume: Millis) -> ExpectedStart {
    match start.at {
        StartTime::At(at) => build_known_start(at, now, start.basis.is_sure(), &start.basis.describe(assume)),
        StartTime::NotBefore(at) => {
            let not_before = format_minute(at).unwrap_or_default();
            build_unknown_start(&format!("not before {not_before}: farther ahead than is looked"))
        }
        StartTime::Unknown => build_unknown_start("not within 90 days, as far as is known of what runs"),
    }
}

fn build_known_start(at: i64, now: Timestamp, sure: bool, basis: &str) -> ExpectedStart {
    let ahead = Some(at.saturating_sub(now.as_second()).max(0));
    ExpectedStart { at: format_minute(at), ahead, sure, basis: basis.to_owned() }
}

fn format_minute(second: i64) -> Option<String> {
    Timestamp::from_second(second).map(|at| at.strftime("%Y-%m-%dT%H:%MZ").to_string()).ok()
}

fn build_unknown_start(why: &str) -> ExpectedStart {
    ExpectedStart { at: None, ahead: None, sure: false, basis: why.to_owned() }
}

impl ExpectedStart {
    /// In a cell of a table.
    #[must_use]
    pub fn describe_briefly(&self) -> String {
        match (&self.at, self.ahead, self.sure) {
            (Some(_), Some(0), true) => "now".to_owned(),
            (Some(at), _, true) => format!("about {at}"),
            (Some(at), _, false) => format!("perhaps {at}"),
            (None, ..) => "not known".to_owned(),
        }
    }

    /// In a sentence.
    #[must_use]
    pub fn describe(&self) -> String {
        let ahead = self.ahead.filter(|ahead| *ahead > 0).map(|ahead| format!(", in {}", format_duration(ahead)));
        format!("{}{} ({})", self.describe_briefly(), ahead.unwrap_or_default(), self.basis)
    }
}

#[cfg(test)]
mod tests {
    use caldera_simulate::expected_start::StartBasis;

    use super::*;

    #[test]
    fn an_instant_says_how_sure_it_is() {
        let now = Timestamp::from_second(1_000_020).unwrap();
        let of = |at, basis| convert_start(expected_start::ExpectedStart { at, basis }, now, Millis::from_secs(3600));
        let sure = StartBasis { before: 30, ..StartBasis::default() };
        let doubtful = StartBasis { unestimated: 12, ..sure };
        let at = StartTime::At(1_000_020 + 300);
        assert_eq!(
            of(at, sure).describe(),
            "about 1970-01-12T13:52Z, in 5m (if the 30 jobs before it end as they say)"
        );
        assert_eq!(
            of(at, doubtful).describe(),
            "perhaps 1970-01-12T13:52Z, in 5m (12 of the 30 jobs before it give no estimate; assumed 1 h)"
        );
        assert_eq!(
            qualify_start(of(at, sure), "m1, m2").describe(),
            "perhaps 1970-01-12T13:52Z, in 5m (if the 30 jobs before it end as they say; nothing is taken to start in \
             m1, m2, not ready)"
        );
        assert_eq!(qualify_start(of(at, sure), ""), of(at, sure));
        let grows = StartBasis { for_nodes: Some(Millis::from_secs(300)), ..StartBasis::default() };
        assert_eq!(of(at, grows).describe(), "perhaps 1970-01-12T13:52Z, in 5m (if new nodes come within 5 min)");
        let far = of(StartTime::NotBefore(1_000_020), doubtful);
        assert_eq!(far.describe(), "not known (not before 1970-01-12T13:47Z: farther ahead than is looked)");
        assert_eq!((of(StartTime::Unknown, doubtful).describe_briefly().as_str(), far.at), ("not known", None));
    }

    #[test]
    fn who_may_start_now_onto_nodes_that_have_to_come_is_told_when_they_do() {
        let now = Timestamp::from_second(1_000_020).unwrap();
        let chosen = |ahead: i64, for_nodes| {
            let basis = StartBasis { for_nodes, before: 1, unestimated: 1, ..StartBasis::default() };
            let played = expected_start::ExpectedStart { at: StartTime::At(1_000_020 + ahead), basis };
            let start = choose_start(Verdict::MayStart, Ok(Some(played)), (now, Millis::from_secs(3600)), "");
            start.unwrap().describe_briefly()
        };
        assert_eq!(chosen(300, Some(Millis::from_secs(300))), "perhaps 1970-01-12T13:52Z");
        assert_eq!((chosen(300, None), chosen(0, None)), ("now".to_owned(), "now".to_owned()));
    }

    #[test]
    fn what_perhaps_means_names_each_cause() {
        let doubts = [
            (StartBasis { unestimated: 1, ..StartBasis::default() }, "gives no estimate (assumed 1 h)"),
            (StartBasis { as_queue: 1, ..StartBasis::default() }, "run as the last of its queue"),
            (StartBasis { to_limit: 1, ..StartBasis::default() }, "to its limit"),
            (StartBasis { overdue: 1, ..StartBasis::default() }, "should have ended by now"),
            (StartBasis { for_nodes_before: 1, ..StartBasis::default() }, "nodes have to come first"),
            (StartBasis { for_nodes: Some(Millis(1)), ..StartBasis::default() }, "nodes have to come first"),
        ];
        let forecast = Forecast { starts: BTreeMap::new(), assume: Millis::from_secs(3600) };
        let text = forecast.describe_uncertainty();
        for (basis, cause) in doubts {
            assert!(!basis.is_sure() && text.contains(cause), "{basis:?}: {text}");
        }
        assert!(text.contains("a member is not ready"), "{text}");
    }
}
