//! What the console saw of the fleet since it runs: samples of a day, and what became of queues and members in an hour.
//!
//! Rules:
//! - It is kept in memory and written nowhere: a console that starts again begins anew, and its pages say since when.
//! - A sample a minute, so many and no more; the newest changes, so many and no more.
//! - Fragmentation is the share of what is free that is not in the ready member with the most of it: a gang that must
//!   be whole in one cluster can not have it.

use std::collections::{BTreeMap, VecDeque};

use caldera_core::quantity::Quantity;
use jiff::Timestamp;

use crate::view::{Member, QueueLine, Seen, compute_fraction, sum_members};

/// A day of minutes.
const MOST_SAMPLES: usize = 1_440;
const SAMPLE_SECONDS: i64 = 60;
/// Changes that are kept.
const MOST_CHANGES: usize = 500;

/// A minute.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub at: Timestamp,
    /// By resource: the share that is used, and how fragmented the rest is.
    pub shares: BTreeMap<String, Shares>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Shares {
    pub used: f64,
    pub fragmented: f64,
}

/// Whose change it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Queue(String),
    Member(String),
}

/// What became of a queue or a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetChange {
    pub at: Timestamp,
    pub subject: Subject,
    /// In one word.
    pub what: &'static str,
    pub words: String,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Record {
    /// None before the first look.
    pub since: Option<Timestamp>,
    pub samples: VecDeque<Sample>,
    /// The oldest first.
    pub changes: VecDeque<FleetChange>,
    queues: BTreeMap<String, QueueMark>,
    members: BTreeMap<String, &'static str>,
}

/// What of a queue is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
struct QueueMark {
    state: String,
    quota: String,
}

impl Record {
    /// Looks at the fleet once all of it is seen. Linear in queues and members.
    pub fn observe(&mut self, seen: &Seen, now: Timestamp) {
        let is_first = self.since.is_none();
        self.since.get_or_insert(now);
        let is_due = |last: &Sample| now.as_second() - last.at.as_second() >= SAMPLE_SECONDS;
        if self.samples.back().is_none_or(is_due) {
            self.samples.push_back(Sample { at: now, shares: measure_shares(seen) });
            while self.samples.len() > MOST_SAMPLES {
                self.samples.pop_front();
            }
        }
        let queues: BTreeMap<String, QueueMark> = seen.queues().into_iter().map(mark_queue).collect();
        let members: BTreeMap<String, &'static str> =
            seen.members().map(|member| (member.name.clone(), member.state)).collect();
        if !is_first {
            let mut reported = Vec::new();
            report_queue_changes(&self.queues, &queues, |subject, what, words| reported.push((subject, what, words)));
            report_member_changes(&self.members, &members, |subject, what, words| {
                reported.push((subject, what, words));
            });
            let changes =
                reported.into_iter().map(|(subject, what, words)| FleetChange { at: now, subject, what, words });
            self.changes.extend(changes);
            while self.changes.len() > MOST_CHANGES {
                self.changes.pop_front();
            }
        }
        (self.queues, self.members) = (queues, members);
    }
}

fn measure_shares(seen: &Seen) -> BTreeMap<String, Shares> {
    let share = |resource: &str, used: Quantity, all: Quantity| {
        let ready = seen.members().filter(|member| member.state == "Ready");
        let free =
            |member: &Member| member.amount(resource).map(|(used, all)| all.saturating_sub(used)).unwrap_or_default();
        let (sum, most) = ready
            .map(free)
            .fold((Quantity::ZERO, Quantity::ZERO), |(sum, most), free| (sum.saturating_add(free), most.max(free)));
        let fragmented = if sum.is_zero() { 0.0 } else { 1.0 - compute_fraction(most, sum) };
        Shares { used: compute_fraction(used, all), fragmented }
    };
    let amounts = sum_members(seen.members());
    amounts.into_iter().map(|it| (it.resource.clone(), share(&it.resource, it.used, it.all))).collect()
}

fn mark_queue(line: QueueLine) -> (String, QueueMark) {
    let quota = line.amounts.iter().filter_map(|amount| {
        let limit = amount.capability.map(|limit| format!(" of at most {}", limit.plain()));
        let reported = !amount.deserved.is_zero() || limit.is_some();
        reported.then(|| format!("{} {}{}", amount.resource, amount.deserved.plain(), limit.unwrap_or_default()))
    });
    (line.name, QueueMark { quota: quota.collect::<Vec<_>>().join(", "), state: line.state })
}

fn report_queue_changes(
    before: &BTreeMap<String, QueueMark>,
    now: &BTreeMap<String, QueueMark>,
    mut report: impl FnMut(Subject, &'static str, String),
) {
    let subject = |name: &String| Subject::Queue(name.clone());
    for (name, mark) in now {
        match before.get(name) {
            None => report(subject(name), "Made", format!("{}; deserves {}", mark.state, mark.quota)),
            Some(old) => {
                if old.state != mark.state {
                    report(subject(name), "State", format!("{}, was {}", mark.state, old.state));
                }
                if old.quota != mark.quota {
                    report(subject(name), "Quota", format!("deserves {}, was {}", mark.quota, old.quota));
                }
            }
        }
    }
    for (name, _) in before.iter().filter(|(name, _)| !now.contains_key(*name)) {
        report(subject(name), "Deleted", String::new());
    }
}

fn report_member_changes(
    before: &BTreeMap<String, &'static str>,
    now: &BTreeMap<String, &'static str>,
    mut report: impl FnMut(Subject, &'static str, String),
) {
    let subject = |name: &String| Subject::Member(name.clone());
    for (name, state) in now {
        match before.get(name) {
            None => report(subject(name), "Joined", (*state).to_owned()),
            Some(old) if old != state => report(subject(name), "State", format!("{state}, was {old}")),
            Some(_) => {}
        }
    }
    for (name, _) in before.iter().filter(|(name, _)| !now.contains_key(*name)) {
        report(subject(name), "Left", String::new());
    }
}

#[cfg(test)]
mod tests {
    use caldera_crds::volcano::scheduling::Queue;
    use caldera_runtime::watch::Event;
    use serde_json::json;

    use super::*;
    use crate::view::{Change, QueueObject, read_member};

    fn member(name: &str, ready: &str, used: &str) -> Change {
        let cluster = json!({"metadata": {"name": name}, "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "resourceSummary": {"allocatable": {"cpu": "32"}, "allocated": {"cpu": used}}}});
        Change::Clusters(Event::Applied((name.to_owned(), read_member(&cluster))))
    }

    fn queue(name: &str, state: &str, deserved: &str, used: &str) -> Change {
        let queue: Queue = serde_json::from_value(json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name},
            "spec": {"deserved": {"cpu": deserved}}, "status": {"state": state, "allocated": {"cpu": used}},
        }))
        .unwrap();
        Change::Queues(Event::Applied(QueueObject::read(&queue)))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_sample_a_minute_has_what_is_used_and_how_fragmented_the_rest_is() {
        let (mut record, mut seen) = (Record::default(), Seen::default());
        seen.observe(member("a", "True", "8"));
        seen.observe(member("b", "True", "24"));
        for second in [0, 30, 60, 119] {
            record.observe(&seen, at(second));
        }
        assert_eq!(record.samples.len(), 2);
        // Free are 24 and 8.
        assert_eq!(record.samples[1].shares["cpu"], Shares { used: 0.5, fragmented: 0.25 });
        for minute in 0..i64::try_from(MOST_SAMPLES).unwrap() * 2 {
            record.observe(&seen, at(minute * 60));
        }
        assert_eq!(record.samples.len(), MOST_SAMPLES);
        assert_eq!(record.since, Some(at(0)));
    }

    #[test]
    fn changes_of_queues_and_members_are_kept_and_what_is_used_is_no_change() {
        let (mut record, mut seen) = (Record::default(), Seen::default());
        seen.observe(member("a", "True", "8"));
        seen.observe(queue("q", "Open", "4", "1"));
        record.observe(&seen, at(1));
        assert!(record.changes.is_empty(), "what was there at the start is no change");
        seen.observe(queue("q", "Open", "4", "3"));
        record.observe(&seen, at(2));
        assert!(record.changes.is_empty());
        seen.observe(queue("q", "Closed", "6", "3"));
        seen.observe(member("a", "False", "8"));
        seen.observe(member("b", "True", "8"));
        record.observe(&seen, at(3));
        let reported: Vec<String> = record.changes.iter().map(|one| format!("{} {}", one.what, one.words)).collect();
        let expected =
            ["State Closed, was Open", "Quota deserves cpu 6, was cpu 4", "State NotReady, was Ready", "Joined Ready"];
        assert_eq!(reported, expected);
    }

    #[test]
    fn so_many_changes_are_kept_and_no_more() {
        let (mut record, mut seen) = (Record::default(), Seen::default());
        for second in 0..1_200 {
            seen.observe(queue("q", if second % 2 == 0 { "Open" } else { "Closed" }, "4", "1"));
            record.observe(&seen, at(second));
        }
        assert_eq!(record.changes.len(), MOST_CHANGES);
        assert_eq!(record.changes.back().map(|last| last.at), Some(at(1_199)));
    }
}
