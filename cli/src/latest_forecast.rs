//! The last expected starts, for a screen that stays open: worked out beside its drawing.
//!
//! Rule: nothing is asked of the API while nobody reads them. After an answer it rests for ten seconds, or for twenty
//! times as long as the answer took, so that a large fleet is not listed all the time. What an answer says of a job
//! that has gone on since is not shown: only what waits has an expected start.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use caldera_simulate::time::Millis;
use jiff::Timestamp;
use kube::Client;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    expected_start::{self, ExpectedStart, Forecast},
    live::{self, MemberPlaces},
    output::{describe_failure, format_duration},
    view::JobView,
};

/// Between two answers at least.
const REST: Duration = Duration::from_secs(10);
/// And as many times as long as an answer took.
const REST_FACTOR: u32 = 20;
/// How long jobs are taken to run that do not say so, as in `caldera why`.
const ASSUMED: Millis = Millis(3_600_000);

/// Expected starts, and when they were worked out.
#[derive(Debug)]
pub struct TimedForecast {
    pub at: Timestamp,
    /// Or why there are none.
    pub answer: Result<Forecast, String>,
    /// Where the pods of each member were then.
    pub places: BTreeMap<String, MemberPlaces>,
}

/// What is shown of an expected start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartNote {
    /// `about 5m`; empty if it is not known.
    pub brief: String,
    /// What it rests on, or why it is not known.
    pub basis: String,
}

impl TimedForecast {
    /// Works them out once. Without a namespace the caller must see all of them.
    pub async fn of_host(client: &Client, namespace: Option<&str>, controllers: Option<&str>) -> Self {
        let mut places = BTreeMap::new();
        let work_out = async {
            let mut live = live::read_undecided(client, namespace, controllers).await?;
            places = live.list_places();
            Forecast::of_live(&mut live, ASSUMED, expected_start::FOR_ONE).await
        };
        let answer = work_out.await.map_err(|error| describe_failure(&error));
        Self { at: Timestamp::now(), answer, places }
    }

    /// Of a job that waits; nothing of others.
    #[must_use]
    pub fn describe_start(&self, job: &JobView<'_>, now: Timestamp) -> StartNote {
        if !job.state.is_gate_closed() {
            return StartNote::default();
        }
        match &self.answer {
            Err(why) => StartNote { basis: format!("it could not be worked out: {why}"), ..StartNote::default() },
            Ok(forecast) => match forecast.find_start(&job.key.workload()) {
                Some(start) => describe_in(start, now.as_second().saturating_sub(self.at.as_second())),
                None => StartNote::default(),
            },
        }
    }
}

/// A start that was expected some seconds ago.
fn describe_in(start: &ExpectedStart, seconds_ago: i64) -> StartNote {
    let brief = match (start.ahead, start.sure) {
        (None, _) => String::new(),
        (Some(0), true) => "now".to_owned(),
        (Some(ahead), sure) => {
            let word = if sure { "about" } else { "perhaps" };
            let left = ahead.saturating_sub(seconds_ago);
            if left > 0 { format!("{word} {}", format_duration(left)) } else { format!("{word} now") }
        }
    };
    StartNote { brief, basis: start.basis.clone() }
}

/// Follows expected starts; who reads them has them worked out anew.
#[derive(Debug, Clone)]
pub struct ForecastFollower {
    latest: watch::Receiver<Option<Arc<TimedForecast>>>,
    wanted: Arc<Notify>,
}

impl ForecastFollower {
    /// Asks nothing before somebody reads.
    #[must_use]
    pub fn start(
        client: Client,
        namespace: Option<String>,
        controllers: Option<String>,
        stop: CancellationToken,
    ) -> Self {
        let (sender, latest) = watch::channel(None);
        let wanted = Arc::new(Notify::new());
        let asked = Arc::clone(&wanted);
        let follow = async move {
            loop {
                asked.notified().await;
                let began = Instant::now();
                let forecast = TimedForecast::of_host(&client, namespace.as_deref(), controllers.as_deref()).await;
                sender.send_replace(Some(Arc::new(forecast)));
                tokio::time::sleep(REST.max(began.elapsed() * REST_FACTOR)).await;
            }
        };
        tokio::spawn(async move { stop.run_until_cancelled(follow).await });
        Self { latest, wanted }
    }

    /// The last ones as they are: none are worked out for that.
    #[must_use]
    pub fn peek_latest(&self) -> Option<Arc<TimedForecast>> {
        self.latest.borrow().clone()
    }

    /// The last ones; none before the first answer.
    #[must_use]
    pub fn read_latest(&self) -> Option<Arc<TimedForecast>> {
        self.wanted.notify_one();
        self.latest.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_comes_nearer_and_one_that_is_not_known_says_why() {
        let start = |ahead, sure| ExpectedStart { at: None, ahead, sure, basis: "because".to_owned() };
        let brief = |ahead, sure, ago| describe_in(&start(ahead, sure), ago).brief;
        assert_eq!(brief(Some(300), true, 0), "about 5m");
        assert_eq!(brief(Some(300), true, 60), "about 4m");
        assert_eq!(brief(Some(7_200), false, 0), "perhaps 2h");
        assert_eq!(brief(Some(10), true, 60), "about now");
        assert_eq!(brief(Some(0), true, 5), "now");
        assert_eq!(
            describe_in(&start(None, false), 5),
            StartNote { brief: String::new(), basis: "because".to_owned() }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_asked_before_somebody_reads_and_then_not_at_once_again() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, tower::BoxError>(http::Response::builder().status(500).body(kube::client::Body::empty())?) }
        });
        let stop = CancellationToken::new();
        let starts = ForecastFollower::start(Client::new(service, "ns"), None, None, stop.clone());
        tokio::time::sleep(REST * 10).await;
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        assert!(starts.read_latest().is_none());
        tokio::time::sleep(REST / 2).await;
        let first = asked.load(Ordering::Relaxed);
        assert!(first > 0 && starts.read_latest().is_some_and(|latest| latest.answer.is_err()));
        tokio::time::sleep(REST / 4).await;
        assert_eq!(asked.load(Ordering::Relaxed), first, "it rests");
        tokio::time::sleep(REST).await;
        assert!(asked.load(Ordering::Relaxed) > first);
        stop.cancel();
    }
}
