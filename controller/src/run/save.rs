//! When the loop saves what it keeps account of, and what that is.
//!
//! Rule: all of it every `save_usage_every`; what somebody did within [`ACTIONS_WITHIN`] after it was recorded; and all
//! of it when the controller ends.

use std::time::Duration;

use caldera_runtime::write::{Write, execute_write};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tokio::task::JoinSet;

use crate::{
    decide::{Controller, add_wait},
    fair_history::keep_fair_history,
};

/// An action that is recorded is saved after this time.
const ACTIONS_WITHIN: SignedDuration = SignedDuration::from_secs(10);
/// How long a controller that ends saves. One that lost its lease stops a second at least before another takes over.
const LAST_SAVE_WITHIN: Duration = Duration::from_secs(1);

/// What is to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Save {
    All,
    Actions,
}

/// When that is.
#[derive(Debug)]
pub(super) struct SaveTimes {
    every: SignedDuration,
    all: Timestamp,
    actions: Option<Timestamp>,
}

impl SaveTimes {
    pub(super) fn new(every: SignedDuration, now: Timestamp) -> Self {
        Self { every, all: add_wait(now, every), actions: None }
    }

    /// What is to be saved now, once.
    pub(super) fn take_due(&mut self, has_new_actions: bool, now: Timestamp) -> Option<Save> {
        if self.all <= now {
            *self = Self::new(self.every, now);
            return Some(Save::All);
        }
        if has_new_actions {
            self.actions.get_or_insert(add_wait(now, ACTIONS_WITHIN));
        }
        self.actions.take_if(|at| *at <= now).map(|_| Save::Actions)
    }

    /// Something else counts from now on: all of it is saved soon.
    pub(super) fn hasten(&mut self, now: Timestamp) {
        self.all = self.all.min(add_wait(now, ACTIONS_WITHIN));
    }

    /// When to ask again.
    pub(super) fn find_next(&self) -> Timestamp {
        self.actions.map_or(self.all, |at| at.min(self.all))
    }
}

/// The writes that save it.
pub(super) fn take_saves(controller: &mut Controller, (save, namespace, now): (Save, &str, Timestamp)) -> Vec<Write> {
    let mut writes = controller.actions.take_writes(namespace);
    if save == Save::All {
        let engine = &controller.jobs.engine;
        if engine.history_half_life().is_some() && controller.earlier_history.is_counted() {
            writes.extend(keep_fair_history(engine, namespace));
        }
        writes.extend(controller.usage.write_history(namespace, now));
        writes.extend(controller.ended_jobs.take_writes(namespace));
    }
    writes
}

/// Carries them out when the controller ends: its writer takes none any more.
pub(super) async fn save_last(client: &Client, writes: Vec<Write>) {
    let mut saving = JoinSet::new();
    for write in writes {
        let client = client.clone();
        saving.spawn(async move { execute_write(&client, &write).await });
    }
    let all = async {
        while let Some(done) = saving.join_next().await {
            if let Ok(Err(failure)) = done {
                tracing::warn!(%failure, "what was accounted last is not saved");
            }
        }
    };
    if tokio::time::timeout(LAST_SAVE_WITHIN, all).await.is_err() {
        tracing::warn!("what was accounted last is not saved in time");
    }
}

#[cfg(test)]
mod tests {
    use caldera_core::queue::OrderPolicy;

    use super::*;
    use crate::{
        fair_history::{QUEUES, TENANTS},
        observe::Input,
        settings::Settings,
    };

    #[test]
    fn what_was_used_lately_is_saved_where_it_counts_and_once_it_was_read() {
        let now = Timestamp::UNIX_EPOCH;
        let mut controller = Controller::default();
        let mut saved = |order, reads: bool| {
            Settings { order, ..Settings::default() }.apply_to(&mut controller);
            if reads {
                controller.observe(Input::FairHistory(Vec::new()), now);
            }
            let writes = take_saves(&mut controller, (Save::All, "ns", now));
            let names: Vec<_> = writes.into_iter().map(|write| write.name).collect();
            names.iter().filter(|name| [QUEUES, TENANTS].contains(&name.as_str())).count()
        };
        assert_eq!(saved(OrderPolicy::FairHistory, false), 0);
        assert_eq!(saved(OrderPolicy::Share, true), 0);
        assert_eq!(saved(OrderPolicy::FairHistory, false), 2);
        assert_eq!(saved(OrderPolicy::Fifo, false), 0);
    }

    #[test]
    fn what_somebody_did_is_saved_within_fifteen_seconds_and_all_of_it_now_and_then() {
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        let mut times = SaveTimes::new(SignedDuration::from_secs(300), at(0));
        assert_eq!((times.take_due(false, at(100)), times.find_next()), (None, at(300)));
        assert_eq!((times.take_due(true, at(100)), times.find_next()), (None, at(110)));
        // More is done meanwhile.
        assert_eq!((times.take_due(true, at(109)), times.find_next()), (None, at(110)));
        assert_eq!((times.take_due(true, at(110)), times.find_next()), (Some(Save::Actions), at(300)));
        assert_eq!((times.take_due(false, at(111)), times.find_next()), (None, at(300)));
        times.hasten(at(200));
        assert_eq!((times.find_next(), times.take_due(false, at(210))), (at(210), Some(Save::All)));
        let mut times = SaveTimes { all: at(300), ..times };
        assert_eq!(times.take_due(true, at(295)), None);
        assert_eq!((times.take_due(true, at(300)), times.find_next()), (Some(Save::All), at(600)));
    }
}
