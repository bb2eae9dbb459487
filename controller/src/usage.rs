//! What was used: by month, queue, namespace and user, long after the jobs are gone.
//!
//! Rule: a job is accounted what its queue is charged for it, for as long as it is charged, as Slurm's `sacct` and
//! `sreport` account what is allocated, not what is busy. Amounts are unit-seconds: 4 cores for a minute are 240 of
//! `cpu`. They are kept in a ConfigMap that is written every five minutes by default. The next controller goes on where
//! it was written last: what is charged then was charged since; what ended in between is short of that time.
//!
//! What is kept is bounded. Who edits a namespace can submit as many users, so beyond [`MOST_USERS`] of a namespace in
//! a queue, or [`MOST_USER_ROWS_OF_NAMESPACE`] in all queues, its users are added up, and beyond [`MOST_USER_ROWS`] of
//! a month all users. Beyond [`MOST_ROWS`] of a month
//! namespaces are added up by queue, then all in one row. A month is written without its users before it takes more
//! than half of what is left. Beyond [`MOST_BYTES`] the oldest months are forgotten first.

use std::{cmp::Reverse, collections::BTreeMap, fmt, str::FromStr};

use caldera_core::{gang::QueueName, resources::Resources};
use caldera_runtime::write::Write;
use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::config_map::build_config_map_write;

/// The ConfigMap's name.
pub const NAME: &str = "caldera-usage";
/// Stands for all users, namespaces or queues beyond [`MOST_ROWS`].
pub const OTHERS: &str = "*";
/// Rows of a month at most; what comes later is added up by namespace, by queue, and then in one row.
const MOST_ROWS: usize = 2000;
/// Users get no rows beyond so many of a month: the others are for namespaces.
const MOST_USER_ROWS: usize = MOST_ROWS / 2;
/// Users of one namespace in one queue that have rows of their own in a month, at most.
const MOST_USERS: usize = 20;
/// Rows of users that one namespace has in a month, in all its queues.
const MOST_USER_ROWS_OF_NAMESPACE: usize = 3 * MOST_USERS;
/// Bytes of all months at most: an object may have 1 MiB. The oldest are forgotten first.
const MOST_BYTES: usize = 900_000;
const SUFFIX: &str = ".json";

/// A month of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month(Date);

impl Month {
    /// The one that a time is in.
    #[must_use]
    pub fn from_timestamp(time: Timestamp) -> Self {
        Self(time.to_zoned(TimeZone::UTC).date().first_of_month())
    }

    /// When the next one begins.
    pub(crate) fn compute_end(self) -> Timestamp {
        let next = self.0.checked_add(1.month()).and_then(|next| next.to_zoned(TimeZone::UTC));
        next.map_or(Timestamp::MAX, |next| next.timestamp())
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.0.year(), self.0.month())
    }
}

impl FromStr for Month {
    type Err = String;

    /// As `2026-11`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is no month such as 2026-11");
        let (year, month) = text.split_once('-').ok_or_else(wrong)?;
        let (year, month) = (year.parse().map_err(|_| wrong())?, month.parse().map_err(|_| wrong())?);
        Date::new(year, month, 1).map(Self).map_err(|_| wrong())
    }
}

/// Who used it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// The queue that was charged.
    pub queue: QueueName,
    /// The jobs' namespace, or [`OTHERS`].
    pub namespace: String,
    /// Who submitted the jobs, or [`OTHERS`]; empty where that is not known.
    pub user: String,
}

impl Account {
    fn is_of_user(&self) -> bool {
        !self.user.is_empty() && self.user != OTHERS
    }

    /// The one that has what all users used in a namespace beyond the bound.
    fn of_namespace(self) -> Self {
        Self { user: OTHERS.to_owned(), ..self }
    }

    /// The one that has what all namespaces used in a queue beyond the bound.
    fn of_queue(self) -> Self {
        Self { namespace: OTHERS.to_owned(), ..self.of_namespace() }
    }

    /// The one that has all beyond the bound.
    fn of_all() -> Self {
        Self { queue: OTHERS.into(), namespace: OTHERS.to_owned(), user: OTHERS.to_owned() }
    }
}

/// What an account used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// How often quota was given to a job: one that was requeued counts again.
    pub admissions: u64,
    /// Unit-seconds.
    pub seconds: Resources,
}

impl Usage {
    /// Adds another one's.
    pub fn add(&mut self, other: &Self) {
        self.admissions = self.admissions.saturating_add(other.admissions);
        self.seconds.add(&other.seconds);
    }
}

/// One line of a month, as it is written.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    queue: QueueName,
    namespace: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    user: String,
    admissions: u64,
    seconds: Resources,
}

/// A month, as it is written.
#[derive(Debug, Serialize, Deserialize)]
struct UsageMonth {
    /// Up to when.
    until: Timestamp,
    rows: Vec<Row>,
}

/// All that is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageHistory {
    /// By month.
    pub months: BTreeMap<Month, BTreeMap<Account, Usage>>,
    /// Up to when.
    pub until: Option<Timestamp>,
}

impl UsageHistory {
    pub(crate) fn add(&mut self, month: Month, account: Account, usage: &Usage) {
        let rows = self.months.entry(month).or_default();
        rows.entry(choose_row(rows, account)).or_default().add(usage);
    }

    /// Reads the ConfigMap.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_config_map(object: &Value) -> Result<Self, String> {
        let mut read = Self::default();
        for (name, text) in object["data"].as_object().into_iter().flatten() {
            let Some(month) = name.strip_suffix(SUFFIX) else { continue };
            let month: Month = month.parse()?;
            let page: UsageMonth = serde_json::from_str(text.as_str().unwrap_or_default())
                .map_err(|error| format!("its {name} does not parse: {error}"))?;
            read.until = read.until.max(Some(page.until));
            for Row { queue, namespace, user, admissions, seconds } in page.rows {
                read.add(month, Account { queue, namespace, user }, &Usage { admissions, seconds });
            }
        }
        Ok(read)
    }

    pub(crate) fn to_write(&self, namespace: &str, until: Timestamp) -> Write {
        let mut data = Map::new();
        let mut left = MOST_BYTES;
        for (month, rows) in self.months.iter().rev() {
            let mut text = format_month(rows, rows.len(), until);
            let summed = (text.len() > left / 2).then(|| sum_users(rows));
            let rows = summed.as_ref().unwrap_or(rows);
            if summed.is_some() {
                text = format_month(rows, rows.len(), until);
            }
            // Without the newest month, a write would take away all that was kept.
            let mut kept = rows.len();
            while text.len() > left && data.is_empty() && kept > 0 {
                kept /= 2;
                text = format_month(rows, kept, until);
            }
            let Some(rest) = left.checked_sub(text.len()) else { break };
            left = rest;
            data.insert(format!("{month}{SUFFIX}"), text.into());
        }
        build_config_map_write(namespace, NAME, data.into(), NAME)
    }
}

/// A month without its users.
fn sum_users(rows: &BTreeMap<Account, Usage>) -> BTreeMap<Account, Usage> {
    let mut summed: BTreeMap<Account, Usage> = BTreeMap::new();
    for (account, usage) in rows {
        summed.entry(account.clone().of_namespace()).or_default().add(usage);
    }
    summed
}

/// A month as it is written: so many of its rows, those with most admissions, and what the others used in one row.
fn format_month(rows: &BTreeMap<Account, Usage>, most: usize, until: Timestamp) -> String {
    let mut kept: Vec<(&Account, &Usage)> = rows.iter().collect();
    kept.sort_by_key(|(_, usage)| Reverse(usage.admissions));
    let others = kept.split_off(most.min(kept.len()));
    let row = |(Account { queue, namespace, user }, Usage { admissions, seconds }): (&Account, &Usage)| Row {
        queue: queue.clone(),
        namespace: namespace.clone(),
        user: user.clone(),
        admissions: *admissions,
        seconds: seconds.clone(),
    };
    let mut rows: Vec<Row> = kept.into_iter().map(row).collect();
    if !others.is_empty() {
        let mut sum = Usage::default();
        others.into_iter().for_each(|(_, usage)| sum.add(usage));
        rows.push(row((&Account::of_all(), &sum)));
    }
    json!(UsageMonth { until, rows }).to_string()
}

/// Rows of users in the namespace and queue of an account.
fn count_users(rows: &BTreeMap<Account, Usage>, account: &Account) -> usize {
    let first = Account { user: String::new(), ..account.clone() };
    let is_beside = |other: &&Account| (&other.queue, &other.namespace) == (&account.queue, &account.namespace);
    rows.range(first..).map(|(other, _)| other).take_while(is_beside).take(MOST_USERS + 2).count()
}

/// Rows of users in a namespace, whatever the queue.
fn count_rows_of_users(rows: &BTreeMap<Account, Usage>, namespace: &str) -> usize {
    rows.keys().filter(|other| other.namespace == namespace && other.is_of_user()).count()
}

/// The row that an account has, or gets.
fn choose_row(rows: &BTreeMap<Account, Usage>, account: Account) -> Account {
    if rows.contains_key(&account) {
        return account;
    }
    let has_place = match account.is_of_user() {
        true => {
            rows.len() < MOST_USER_ROWS
                && count_users(rows, &account) < MOST_USERS
                && count_rows_of_users(rows, &account.namespace) < MOST_USER_ROWS_OF_NAMESPACE
        }
        false => rows.len() < MOST_ROWS,
    };
    if has_place {
        return account;
    }
    let of_namespace = account.of_namespace();
    if rows.contains_key(&of_namespace) || rows.len() < MOST_ROWS {
        return of_namespace;
    }
    let of_queue = of_namespace.of_queue();
    match rows.contains_key(&of_queue) || rows.len() < 2 * MOST_ROWS {
        true => of_queue,
        false => Account::of_all(),
    }
}

#[cfg(test)]
mod tests {
    use caldera_core::quantity::Quantity;
    use caldera_runtime::write::Body;

    use super::*;

    #[test]
    fn a_namespace_takes_no_rows_of_users_from_others_by_using_many_queues() {
        let mut history = UsageHistory::default();
        let month: Month = "2026-11".parse().unwrap();
        let mut add = |queue: usize, namespace: &str, user: usize| {
            let (queue, user) = (format!("q-{queue}").as_str().into(), format!("user-{user}"));
            let account = Account { queue, namespace: namespace.to_owned(), user };
            history.add(month, account, &Usage { admissions: 1, seconds: Resources::new() });
        };
        (0..50).for_each(|queue| (0..MOST_USERS).for_each(|user| add(queue, "greedy", user)));
        add(0, "honest", 0);
        let rows = &history.months[&month];
        let count = |namespace: &str| rows.keys().filter(|it| it.namespace == namespace && it.is_of_user()).count();
        assert_eq!((count("greedy"), count("honest")), (MOST_USER_ROWS_OF_NAMESPACE, 1));
        assert_eq!(rows.values().map(|usage| usage.admissions).sum::<u64>(), 50 * MOST_USERS as u64 + 1);
    }

    #[test]
    fn beyond_the_bound_users_are_added_up_by_namespace_then_namespaces_by_queue() {
        let mut history = UsageHistory::default();
        let month: Month = "2026-11".parse().unwrap();
        let mut add = |namespace: &str, user: &str| {
            let account = Account { queue: "q".into(), namespace: namespace.to_owned(), user: user.to_owned() };
            history.add(month, account, &Usage { admissions: 1, seconds: Resources::new() });
        };
        (0..MOST_USERS).for_each(|number| add("a", &format!("user-{number}")));
        add("a", "user-0");
        (0..5).for_each(|number| add("a", &format!("late-{number}")));
        (0..MOST_USER_ROWS).for_each(|number| add(&format!("early-{number}"), "ada"));
        (0..10).for_each(|number| add(&format!("deployments-{number}"), ""));
        (0..2 * MOST_ROWS).for_each(|number| add(&format!("late-{number}"), "ada"));
        let rows = &history.months[&month];
        let admissions = |namespace: &str, user: &str| {
            rows[&Account { queue: "q".into(), namespace: namespace.to_owned(), user: user.to_owned() }].admissions
        };
        assert_eq!((admissions("a", "user-0"), admissions("a", OTHERS)), (2, 5));
        assert_eq!(
            (admissions("early-0", "ada"), admissions("deployments-0", ""), admissions("late-0", OTHERS)),
            (1, 1, 1)
        );
        assert!(admissions(OTHERS, OTHERS) > 0);
        assert!(rows.len() <= MOST_ROWS + 2);
        let all = u64::try_from(MOST_USERS + 1 + 5 + MOST_USER_ROWS + 10 + 2 * MOST_ROWS).unwrap();
        assert_eq!(rows.values().map(|usage| usage.admissions).sum::<u64>(), all);
    }

    /// A namespace of a hundred thousand users takes no other's months away.
    #[test]
    fn users_are_added_up_before_an_older_month_is_forgotten() {
        let mut history = UsageHistory::default();
        let months: Vec<Month> = (1..=11).map(|number| format!("2026-{number:02}").parse().unwrap()).collect();
        for month in &months {
            for number in 0..800 {
                let account = Account { queue: "q".into(), namespace: format!("ns-{number}"), user: "u".repeat(250) };
                history.add(*month, account, &Usage { admissions: 1, seconds: Resources::new() });
            }
        }
        let write = history.to_write("ns", Timestamp::UNIX_EPOCH);
        let Body::Apply { object, .. } = &write.body else { panic!("it is applied") };
        assert!(object.to_string().len() < 1_000_000);
        let read = UsageHistory::read_config_map(object).unwrap();
        assert!(read.months.len() > 7, "{:?}", read.months.keys().collect::<Vec<_>>());
        let mut one = UsageHistory::default();
        for number in 0..100_000 {
            let account = Account { queue: "q".into(), namespace: "a".to_owned(), user: format!("user-{number}") };
            one.add(months[0], account, &Usage { admissions: 1, seconds: Resources::new() });
        }
        assert_eq!(one.months[&months[0]].len(), MOST_USERS + 1);
    }

    #[test]
    fn what_was_written_before_users_were_told_is_read() {
        let row = json!({"queue": "q", "namespace": "a", "admissions": 1, "seconds": {"cpu": "60"}});
        let page = json!({"until": "2026-11-23T20:00:00Z", "rows": [row]}).to_string();
        let read = UsageHistory::read_config_map(&json!({"data": {"2026-11.json": page}})).unwrap();
        let account = Account { queue: "q".into(), namespace: "a".to_owned(), user: String::new() };
        assert!(read.months.values().all(|rows| rows.contains_key(&account)));
    }

    #[test]
    fn a_month_that_is_too_long_is_written_in_fewer_rows_and_nothing_is_lost_of_the_sum() {
        let cpu = |seconds: i64| [("cpu", Quantity::from_units(seconds))].into_iter().collect::<Resources>();
        let mut history = UsageHistory::default();
        let month: Month = "2026-11".parse().unwrap();
        for number in 0..1900_u64 {
            let queue = format!("{number:0>250}");
            let account = Account { queue: queue.as_str().into(), namespace: "n".repeat(250), user: String::new() };
            history.add(month, account, &Usage { admissions: 1 + number % 7, seconds: cpu(10) });
        }
        let write = history.to_write("ns", Timestamp::UNIX_EPOCH);
        let Body::Apply { object, .. } = &write.body else { panic!("it is applied") };
        assert!(object.to_string().len() < 1_000_000);
        let read = UsageHistory::read_config_map(object).unwrap();
        let mut sum = Usage::default();
        read.months[&month].values().for_each(|usage| sum.add(usage));
        assert_eq!(sum.seconds, cpu(19_000));
        assert!(read.months[&month].len() > 400);
    }
}
