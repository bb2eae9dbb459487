//! What to do now about the authority that webhooks share, given what is kept and what time it is.
//!
//! Rule: callers trust a certificate before it is served, and as long as it may be. So an authority is replaced in
//! steps that are an overlap apart:
//! 1. The next one is made ahead of the end of the current one, or when an admin asks. The configurations name both.
//! 2. Once they did so for an overlap, the next one is the current one, and each replica serves with what it signed.
//! 3. An overlap later nobody serves with what the previous one signed, and the configurations name the new one alone.
//!
//! A replica that was slow may have written an older bundle meanwhile: all write theirs at each look while one is
//! replaced, and an overlap is many looks. Where the current authority has ended there is nothing to wait for: callers
//! refuse already.

use caldera_runtime::tls::Validity;
use jiff::{SignedDuration, Timestamp};

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotationTiming {
    /// For how long an authority is made.
    pub authority_lasts: SignedDuration,
    /// How long before its end the next one is made.
    pub ahead: SignedDuration,
    /// How long both are trusted before the next one signs, and again before the previous one is no longer trusted.
    pub overlap: SignedDuration,
    /// For how long a replica's certificate is made; a new one is made when a third of it is left.
    pub leaf_lasts: SignedDuration,
}

const DAY: i64 = 86_400;

/// A year, two months before its end, an hour, and three months.
impl Default for RotationTiming {
    fn default() -> Self {
        Self {
            authority_lasts: SignedDuration::from_secs(365 * DAY),
            ahead: SignedDuration::from_secs(60 * DAY),
            overlap: SignedDuration::from_hours(1),
            leaf_lasts: SignedDuration::from_secs(90 * DAY),
        }
    }
}

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotationState {
    /// When the authority that signs ends.
    pub ends: Timestamp,
    /// Whether the next one is there.
    pub has_next: bool,
    /// Whether the previous one is trusted yet.
    pub has_previous: bool,
    /// Since when the configurations name all of them.
    pub trusted_since: Option<Timestamp>,
    /// Whether an admin asked for another one.
    pub is_asked_for: bool,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotationStep {
    /// Nothing.
    Keep,
    /// Make the next authority.
    IssueNext,
    /// Note that the configurations name all that is kept, as of now.
    NoteTrusted,
    /// The next authority signs from now on.
    Promote,
    /// The previous authority is no longer trusted.
    RetirePrevious,
}

/// What to do now.
#[must_use]
pub fn decide_step(state: &RotationState, timing: &RotationTiming, now: Timestamp) -> RotationStep {
    let left = state.ends.duration_since(now);
    if !state.has_next && !state.has_previous {
        let is_due = state.is_asked_for || left <= timing.ahead;
        return if is_due { RotationStep::IssueNext } else { RotationStep::Keep };
    }
    let Some(since) = state.trusted_since else { return RotationStep::NoteTrusted };
    let has_ended = left <= SignedDuration::ZERO;
    match now.duration_since(since) < timing.overlap && !has_ended {
        true => RotationStep::Keep,
        false if state.has_next => RotationStep::Promote,
        false => RotationStep::RetirePrevious,
    }
}

/// Whether a replica wants a new certificate: a third of its time is left.
#[must_use]
pub fn is_leaf_due(leaf: Validity, now: Timestamp) -> bool {
    leaf.ends.duration_since(now) <= leaf.ends.duration_since(leaf.begins) / 3
}

/// From now, and a little before as clocks differ, for that long.
#[must_use]
pub fn begin_validity(now: Timestamp, lasts: SignedDuration) -> Validity {
    let add = |duration: SignedDuration| now.checked_add(duration).unwrap_or(now);
    Validity { begins: add(-SignedDuration::from_hours(1)), ends: add(lasts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    const TIMING: RotationTiming = RotationTiming {
        authority_lasts: SignedDuration::from_secs(1_000),
        ahead: SignedDuration::from_secs(300),
        overlap: SignedDuration::from_secs(10),
        leaf_lasts: SignedDuration::from_secs(90),
    };

    fn steady() -> RotationState {
        RotationState {
            ends: at(1_000),
            has_next: false,
            has_previous: false,
            trusted_since: None,
            is_asked_for: false,
        }
    }

    fn step(state: RotationState, now: i64) -> RotationStep {
        decide_step(&state, &TIMING, at(now))
    }

    #[test]
    fn the_next_authority_is_made_ahead_of_the_end_or_when_it_is_asked_for() {
        assert_eq!(step(steady(), 699), RotationStep::Keep);
        assert_eq!(step(steady(), 700), RotationStep::IssueNext);
        assert_eq!(step(steady(), 5_000), RotationStep::IssueNext);
        assert_eq!(step(RotationState { is_asked_for: true, ..steady() }, 0), RotationStep::IssueNext);
        // One that never ends, as older versions made it.
        assert_eq!(step(RotationState { ends: Timestamp::MAX, ..steady() }, 0), RotationStep::Keep);
    }

    #[test]
    fn it_signs_only_once_callers_trusted_it_for_an_overlap() {
        let made = RotationState { has_next: true, ..steady() };
        assert_eq!(step(made, 700), RotationStep::NoteTrusted);
        let trusted = RotationState { trusted_since: Some(at(700)), ..made };
        assert_eq!([709, 710].map(|now| step(trusted, now)), [RotationStep::Keep, RotationStep::Promote]);
        assert_eq!(step(RotationState { is_asked_for: true, ..trusted }, 705), RotationStep::Keep, "one at a time");
    }

    #[test]
    fn the_previous_one_is_trusted_for_an_overlap_more() {
        let promoted = RotationState { ends: at(2_000), has_previous: true, trusted_since: Some(at(710)), ..steady() };
        assert_eq!([719, 720].map(|now| step(promoted, now)), [RotationStep::Keep, RotationStep::RetirePrevious]);
    }

    #[test]
    fn where_the_current_one_has_ended_nobody_waits() {
        let trusted = RotationState { has_next: true, trusted_since: Some(at(999)), ..steady() };
        assert_eq!([999, 1_000].map(|now| step(trusted, now)), [RotationStep::Keep, RotationStep::Promote]);
    }

    /// Looks at any pace, also with pauses far longer than an overlap.
    #[test]
    fn over_years_what_is_served_is_trusted_at_each_look() {
        for pace in [1, 7, 60, 250] {
            let (mut state, mut replaced) = (steady(), 0);
            for now in (0..50_000).step_by(pace) {
                loop {
                    let step = decide_step(&state, &TIMING, at(now));
                    state = match step {
                        RotationStep::Keep => break,
                        RotationStep::IssueNext => RotationState { has_next: true, trusted_since: None, ..state },
                        RotationStep::NoteTrusted => RotationState { trusted_since: Some(at(now)), ..state },
                        RotationStep::Promote => {
                            replaced += 1;
                            let ends = at(now + 1_000);
                            RotationState {
                                ends,
                                has_next: false,
                                has_previous: true,
                                trusted_since: Some(at(now)),
                                ..state
                            }
                        }
                        RotationStep::RetirePrevious => {
                            RotationState { has_previous: false, trusted_since: None, ..state }
                        }
                    };
                }
                assert!(state.ends > at(now), "every {pace}: it has ended at {now}");
            }
            assert!(replaced > 40, "every {pace}: {replaced}");
        }
    }

    #[test]
    fn a_replicas_certificate_is_replaced_when_a_third_of_its_time_is_left() {
        let leaf = Validity { begins: at(0), ends: at(90) };
        assert_eq!([59, 60, 91].map(|now| is_leaf_due(leaf, at(now))), [false, true, true]);
    }
}
