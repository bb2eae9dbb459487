//! Capacity reservations: amounts of the fleet that are kept for nobody, or for some queues, for a time.
//!
//! Rule: Slurm's reservations of trackable resources (`scontrol create reservation TRES=cpu=100 accounts=ops`;
//! `job_test_resv` of `src/slurmctld/reservation.c`). A job that would still run when one begins starts only if, beside
//! all that is held then, the rest of the amount stays free. What the queues that it is for hold counts as a part of
//! the amount. What runs runs on. It is about amounts of the whole fleet: which nodes are free then is not kept, and a
//! cluster or its nodes are kept by a [maintenance window](crate::maintenance), whose words on times these share.

use crate::{
    maintenance::{ExpectedRun, MaintenanceWindow},
    quantity::Quantity,
    resources::{ResourceName, Resources},
    run_limit::RunTime,
    text::count_noun,
    time::EpochSeconds,
};

/// So many count at most of those that are not over: the first to begin.
pub const MOST_RESERVATIONS: usize = 64;

/// An amount that is kept for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapacityReservation {
    /// Of its object.
    pub name: String,
    /// How much is kept of the whole fleet.
    pub amounts: Resources,
    /// From when to when, and for whom. It names no groups of nodes.
    pub window: MaintenanceWindow,
}

/// What a job lacks beside an amount that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptShortage<'a> {
    pub(crate) resource: &'a ResourceName,
    /// What the job needs at least.
    pub(crate) asked: Quantity,
    /// What the fleet may be charged.
    pub(crate) limit: Quantity,
    /// Of that, what will be held when the reservation begins, as far as is known; or is held now.
    pub(crate) held: Quantity,
    /// What is kept of it beside that, by all reservations of that time.
    pub(crate) kept: Quantity,
    /// What is reserved of it for jobs that rank before this one and have waited long.
    pub(crate) reserved: Quantity,
}

impl CapacityReservation {
    /// Whether such a run of a job of these queues has to leave the amount free.
    pub(crate) fn binds_run(&self, run: ExpectedRun, path: &[&str]) -> bool {
        let is_its = |name: &&str| self.window.queues.iter().any(|queue| queue.as_str() == *name);
        self.window.keeps_out(run) && !path.iter().any(is_its)
    }

    /// Whether it is kept at that time.
    pub(crate) fn is_kept_at(&self, at: EpochSeconds) -> bool {
        self.window.start <= at && at < self.window.end
    }

    /// Why such a run does not start now; so many others of that time keep a part of it.
    pub(crate) fn describe_shortage(&self, short: &KeptShortage<'_>, others: usize, run: ExpectedRun) -> String {
        let KeptShortage { resource, asked, limit, held, kept, reserved } = *short;
        let [asked, limit, held, kept] = [asked, limit, held, kept].map(Quantity::plain);
        let has_begun = self.window.start <= run.from;
        // For how long, and not until when: that would be another sentence each second.
        let would = match (has_begun, run.known_end()) {
            (true, _) => String::new(),
            (false, Some(ends)) => format!(", and it runs for {}", RunTime(ends.seconds_since(run.from))),
            (false, None) => ", and it does not say for how long it runs".to_owned(),
        };
        let then = if has_begun { "are held" } else { "will still be held then" };
        let reserved = if reserved.is_zero() {
            String::new()
        } else {
            format!(", {} are reserved for jobs that rank before it", reserved.plain())
        };
        let others = match others {
            0 => String::new(),
            others => format!(", with {} of that time,", count_noun(others, "other")),
        };
        let nobody = if self.window.queues.is_empty() { " for nobody" } else { "" };
        format!(
            "reservation {}{others} is {}{nobody}{would}: of {resource} {limit} in the fleet {held} {then}, {kept} are \
             kept{reserved}, and it needs {asked}",
            self.name, self.window
        )
    }
}
