//! What is charged for each job, and for how long: the accounts that [`usage`](crate::usage) keeps.
//!
//! Rule: time is accounted when a charge changes and when the accounts are saved, to the month that it falls in, by
//! queue, namespace and user. An admission counts once its binding shows it: a release that is under way may be
//! refused. It counts once for as long as the binding shows it, whatever is charged: a status may say of a job that
//! ended that it runs. What was charged already when this controller began is accounted since the last save of the one
//! before, or since its binding was created if that is later. Nothing is written before what was kept has been read.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use caldera_core::{gang::QueueName, quantity::Quantity, resources::Resources, time::EpochSeconds};
use caldera_runtime::write::Write;
use jiff::{SignedDuration, Timestamp};

use crate::{
    observe::Key,
    usage::{Account, Month, Usage, UsageHistory},
};

/// What is charged for a job now.
#[derive(Debug, Clone)]
struct Charged {
    queue: QueueName,
    amount: Resources,
    /// Who submitted it, where that is known.
    user: Option<Arc<str>>,
    /// Up to when it is accounted.
    since: Timestamp,
    /// It may have been charged since then, before this controller began, and is not accounted for that time yet.
    inherited: Option<Timestamp>,
}

/// What is accounted, and what goes on.
#[derive(Debug, Default)]
pub(crate) struct UsageAccounts {
    history: UsageHistory,
    charged: BTreeMap<Key, Charged>,
    /// The admissions that these bindings show are accounted.
    counted: BTreeSet<Key>,
    /// What was written before this controller has been read: without that nothing is written.
    is_read: bool,
    /// It says more than what was written last.
    is_changed: bool,
}

impl UsageAccounts {
    /// Takes in what earlier controllers wrote.
    pub(crate) fn merge_history(&mut self, read: UsageHistory) {
        if mem::replace(&mut self.is_read, true) {
            return;
        }
        for (key, charged) in &mut self.charged {
            let (Some(created), Some(until)) = (charged.inherited.take(), read.until) else { continue };
            account_time(&mut self.history, key, charged, (created.max(until), charged.since));
        }
        self.history.until = read.until;
        for (month, rows) in read.months {
            rows.into_iter().for_each(|(account, usage)| self.history.add(month, account, &usage));
        }
    }

    /// Takes in what is charged for a job from now on, and for whom. `is_stored`: its binding says so; a release that
    /// is on its way may be refused and sent again. `is_old`: it may have been charged since it was created, before
    /// this controller began.
    pub(crate) fn account_charge(
        &mut self,
        key: &Key,
        charge: Option<(QueueName, Resources)>,
        user: Option<&Arc<str>>,
        created: EpochSeconds,
        (is_stored, is_old): (bool, bool),
        now: Timestamp,
    ) {
        let charge = charge.filter(|(_, amount)| !amount.is_empty());
        let known = self.charged.get(key).map(|known| (&known.queue, &known.amount));
        if known != charge.as_ref().map(|(queue, amount)| (queue, amount)) {
            self.change_charge(key, charge, user, created, is_old, now);
        }
        if !is_stored {
            self.counted.remove(key);
        } else if is_old {
            self.counted.insert(key.clone());
        }
        let admitted = self.charged.get(key).filter(|_| is_stored);
        if let Some(charged) = admitted.filter(|_| self.counted.insert(key.clone())) {
            let usage = Usage { admissions: 1, seconds: Resources::new() };
            self.history.add(Month::from_timestamp(now), find_account(key, charged), &usage);
            self.is_changed = true;
        }
    }

    fn change_charge(
        &mut self,
        key: &Key,
        charge: Option<(QueueName, Resources)>,
        user: Option<&Arc<str>>,
        created: EpochSeconds,
        is_old: bool,
        now: Timestamp,
    ) {
        self.is_changed = true;
        let before = self.charged.remove(key);
        if let Some(before) = &before {
            account_time(&mut self.history, key, before, (before.since, now));
        }
        let Some((queue, amount)) = charge else { return };
        let user = user.cloned().or_else(|| before.as_ref().and_then(|before| before.user.clone()));
        let created = created.to_timestamp().unwrap_or(now);
        let mut inherited = before.map_or_else(|| is_old.then_some(created), |before| before.inherited);
        let mut since = now;
        if self.is_read
            && let Some(created) = inherited.take()
        {
            since = self.history.until.map_or(now, |until| created.max(until).min(now));
        }
        self.charged.insert(key.clone(), Charged { queue, amount, user, since, inherited });
    }

    /// What is charged for a job.
    pub(crate) fn charge_of(&self, key: &Key) -> Option<(QueueName, Resources)> {
        self.charged.get(key).map(|charged| (charged.queue.clone(), charged.amount.clone()))
    }

    /// Accounts what is charged up to now, and writes it all; nothing as long as what was there is not read, or where
    /// nothing is new.
    pub(crate) fn write_history(&mut self, namespace: &str, now: Timestamp) -> Option<Write> {
        if !self.is_read || (self.charged.is_empty() && !self.is_changed) {
            return None;
        }
        self.is_changed = false;
        for (key, charged) in &mut self.charged {
            let since = mem::replace(&mut charged.since, now);
            account_time(&mut self.history, key, charged, (since, now));
        }
        (!self.history.months.is_empty()).then(|| self.history.to_write(namespace, now))
    }
}

fn find_account(key: &Key, charged: &Charged) -> Account {
    let user = charged.user.as_deref().unwrap_or_default().to_owned();
    Account { queue: charged.queue.clone(), namespace: key.namespace.to_string(), user }
}

/// Adds what was charged in this time, to each month its own part.
fn account_time(history: &mut UsageHistory, key: &Key, charged: &Charged, (mut since, until): (Timestamp, Timestamp)) {
    while since < until {
        let month = Month::from_timestamp(since);
        let end = month.compute_end().min(until);
        let seconds = compute_unit_seconds(&charged.amount, end.duration_since(since));
        history.add(month, find_account(key, charged), &Usage { admissions: 0, seconds });
        since = end;
    }
}

/// Unit-seconds, to the millisecond.
fn compute_unit_seconds(amount: &Resources, time: SignedDuration) -> Resources {
    let of = |amount: Quantity| Quantity::from_nano(amount.as_nano().saturating_mul(time.as_millis()) / 1000);
    amount.iter().map(|(name, amount)| (name.clone(), of(amount))).collect()
}

#[cfg(test)]
mod tests {
    use caldera_runtime::write::Body;
    use serde_json::Value;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn cpu(cores: i64) -> Option<(QueueName, Resources)> {
        Some(("q".into(), [("cpu", Quantity::from_units(cores))].into_iter().collect()))
    }

    fn begin(read: UsageHistory) -> UsageAccounts {
        let mut accounts = UsageAccounts::default();
        accounts.merge_history(read);
        accounts
    }

    fn written(accounts: &mut UsageAccounts, now: Timestamp) -> UsageHistory {
        let Some(Write { body: Body::Apply { object, .. }, .. }) = accounts.write_history("ns", now) else {
            return UsageHistory::default();
        };
        UsageHistory::read_config_map(&object).unwrap()
    }

    /// Admissions and core-seconds of a month, all accounts together.
    fn sum(history: &UsageHistory, month: &str) -> (u64, i128) {
        let mut sum = Usage::default();
        let rows = history.months.get(&month.parse().unwrap());
        rows.into_iter().flatten().for_each(|(_, usage)| sum.add(usage));
        (sum.admissions, sum.seconds.get("cpu").as_nano() / 1_000_000_000)
    }

    fn key() -> Key {
        Key::new("ns", "a")
    }

    #[test]
    fn a_job_is_accounted_what_it_is_charged_for_as_long_as_it_is() {
        let mut accounts = begin(UsageHistory::default());
        let began = at("2026-11-23T10:00:00Z");
        accounts.account_charge(&key(), cpu(4), None, EpochSeconds::new(0), (true, false), began);
        accounts.account_charge(&key(), cpu(4), None, EpochSeconds::new(0), (true, false), at("2026-11-23T10:00:30Z"));
        accounts.account_charge(&key(), cpu(2), None, EpochSeconds::new(0), (true, false), at("2026-11-23T10:01:00Z"));
        assert_eq!(sum(&written(&mut accounts, at("2026-11-23T10:02:00Z")), "2026-11"), (1, 240 + 120));
        accounts.account_charge(&key(), None, None, EpochSeconds::new(0), (false, false), at("2026-11-23T10:03:00Z"));
        let end = written(&mut accounts, at("2026-11-23T12:00:00Z"));
        assert_eq!(sum(&end, "2026-11"), (1, 240 + 240));
        assert!(accounts.write_history("ns", at("2026-11-23T12:05:00Z")).is_none(), "nothing is new");
        accounts.account_charge(&key(), cpu(1), None, EpochSeconds::new(0), (true, false), at("2026-11-23T12:00:00Z"));
        let again = written(&mut accounts, at("2026-11-23T12:00:01Z"));
        assert_eq!(sum(&again, "2026-11"), (2, 481), "quota was given to it twice");
    }

    /// Seen on a busy Karmada: three admissions of two jobs.
    #[test]
    fn an_admission_counts_once_though_a_status_says_that_the_job_ended_and_runs_again() {
        for is_old in [false, true] {
            let mut accounts = begin(UsageHistory::default());
            let began = at("2026-11-23T10:00:00Z");
            for (seconds, charge) in [(0, cpu(4)), (10, None), (20, cpu(4)), (30, None)] {
                let now = began + SignedDuration::from_secs(seconds);
                accounts.account_charge(
                    &key(),
                    charge,
                    None,
                    EpochSeconds::new(0),
                    (true, is_old && seconds == 0),
                    now,
                );
            }
            let written = written(&mut accounts, at("2026-11-23T10:01:00Z"));
            assert_eq!(sum(&written, "2026-11").0, u64::from(!is_old));
        }
    }

    /// The API server refused the first one: somebody had changed the binding.
    #[test]
    fn a_release_that_is_sent_twice_is_one_admission() {
        let mut accounts = begin(UsageHistory::default());
        let began = at("2026-11-23T10:00:00Z");
        accounts.account_charge(&key(), cpu(4), None, EpochSeconds::new(0), (false, false), began);
        accounts.account_charge(&key(), None, None, EpochSeconds::new(0), (false, false), began);
        accounts.account_charge(&key(), cpu(4), None, EpochSeconds::new(0), (false, false), began);
        accounts.account_charge(&key(), cpu(4), None, EpochSeconds::new(0), (true, false), began);
        accounts.account_charge(&key(), cpu(4), None, EpochSeconds::new(0), (true, false), began);
        assert_eq!(sum(&written(&mut accounts, at("2026-11-23T10:00:10Z")), "2026-11"), (1, 40));
    }

    /// Its job is deleted first: then nobody says whose it was.
    #[test]
    fn a_charge_is_accounted_to_the_user_that_submitted_the_job_to_its_end() {
        let mut accounts = begin(UsageHistory::default());
        let began = at("2026-11-23T10:00:00Z");
        accounts.account_charge(&key(), cpu(4), Some(&Arc::from("ada")), EpochSeconds::new(0), (true, false), began);
        accounts.account_charge(&key(), cpu(2), None, EpochSeconds::new(0), (true, false), at("2026-11-23T10:01:00Z"));
        accounts.account_charge(&key(), None, None, EpochSeconds::new(0), (false, false), at("2026-11-23T10:02:00Z"));
        let history = written(&mut accounts, at("2026-11-23T10:03:00Z"));
        let users: Vec<&str> = history.months.values().flat_map(|rows| rows.keys()).map(|row| &*row.user).collect();
        assert_eq!((users, sum(&history, "2026-11")), (vec!["ada"], (1, 240 + 120)));
    }

    #[test]
    fn each_month_has_its_own_part() {
        let mut accounts = begin(UsageHistory::default());
        accounts.account_charge(&key(), cpu(1), None, EpochSeconds::new(0), (true, false), at("2026-11-30T23:59:00Z"));
        let history = written(&mut accounts, at("2027-01-01T00:00:10Z"));
        assert_eq!(sum(&history, "2026-11"), (1, 60));
        assert_eq!(sum(&history, "2026-12"), (0, 31 * 24 * 3600));
        assert_eq!(sum(&history, "2027-01"), (0, 10));
    }

    #[test]
    fn the_next_controller_goes_on_where_it_was_written_last() {
        let mut first = begin(UsageHistory::default());
        first.account_charge(&key(), cpu(1), None, EpochSeconds::new(0), (true, false), at("2026-11-23T10:00:00Z"));
        let saved = written(&mut first, at("2026-11-23T10:05:00Z"));
        let created = at("2026-11-23T09:00:00Z").as_second();
        for reads_first in [true, false] {
            let mut second = UsageAccounts::default();
            if reads_first {
                second.merge_history(saved.clone());
            }
            second.account_charge(
                &key(),
                cpu(1),
                None,
                EpochSeconds::new(created),
                (true, true),
                at("2026-11-23T10:07:00Z"),
            );
            if !reads_first {
                assert!(second.write_history("ns", at("2026-11-23T10:07:00Z")).is_none(), "it would write over it");
                second.merge_history(saved.clone());
            }
            let history = written(&mut second, at("2026-11-23T10:08:00Z"));
            assert_eq!(sum(&history, "2026-11"), (1, 480), "{reads_first}");
        }
    }

    #[test]
    fn a_job_that_came_after_the_last_write_is_accounted_from_its_creation_at_most() {
        let saved = UsageHistory { until: Some(at("2026-11-23T10:00:00Z")), ..UsageHistory::default() };
        let mut accounts = begin(saved);
        let created = at("2026-11-23T10:09:00Z").as_second();
        accounts.account_charge(
            &key(),
            cpu(1),
            None,
            EpochSeconds::new(created),
            (true, true),
            at("2026-11-23T10:10:00Z"),
        );
        assert_eq!(sum(&written(&mut accounts, at("2026-11-23T10:10:00Z")), "2026-11"), (0, 60));
    }

    #[test]
    fn accounts_beyond_the_bound_are_added_up_and_nothing_is_lost() {
        let mut accounts = begin(UsageHistory::default());
        let (began, end) = (at("2026-11-23T10:00:00Z"), at("2026-11-23T10:00:01Z"));
        let jobs = 5000;
        for n in 0..jobs {
            let key = Key::new(&format!("namespace-with-a-long-name-{n}"), "a");
            accounts.account_charge(&key, cpu(1), None, EpochSeconds::new(0), (true, false), began);
        }
        let write = accounts.write_history("ns", end).unwrap();
        let Body::Apply { object, .. } = &write.body else { panic!("it is applied") };
        let bytes: usize = object["data"].as_object().unwrap().values().map(|text| text.to_string().len()).sum();
        assert!(bytes < 1 << 20, "{bytes}");
        assert_eq!(object["metadata"]["name"], Value::from(crate::usage::NAME));
        let read = UsageHistory::read_config_map(object).unwrap();
        assert_eq!(sum(&read, "2026-11"), (jobs, i128::from(jobs)));
        assert!(read.months.values().all(|rows| rows.len() <= 2002));
    }
}
