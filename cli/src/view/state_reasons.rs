//! Which reasons can be those of a job in a state.
//!
//! Rule: a job's gate and clusters change in one write, the reason on its PodGroup in another. Until that comes, the
//! one that is there is of the state that the job has left: it says nothing of the new one. A token that is said of
//! both counts for both.

use caldera_core::reason::Reason;

use super::state::State;

const ON_HOLD: &str = "OnHold";

/// Tokens that are said of nothing but what is released.
const RELEASED: [&str; 8] = [
    "Admitted",
    "NotPlaced",
    "Placed",
    "CopyRefused",
    "HoldsMoreThanAdmitted",
    Reason::SCALED_UP,
    "PlacedWithoutAdmission",
    "Finished",
];

/// Tokens that are said of nothing but what waits for its release.
const WAITING: [&str; 17] = [
    "WaitingForQuota",
    "WaitingForRunningJobs",
    Reason::BLOCKED_BY_RESERVATION,
    Reason::CLUSTERS_RESERVED,
    Reason::CAPACITY_RESERVED,
    "Reclaimed",
    "Preempted",
    "Requeued",
    "Paused",
    "NoReadyCluster",
    "InsufficientCapacity",
    "BehindQueueHead",
    "Waiting",
    "WaitingForData",
    "WaitingForJobs",
    ON_HOLD,
    Reason::SUSPENDED_BY_USER,
];

/// Whether a reason can be that of a job in this state.
pub(super) fn is_said_of(reason: &str, state: State) -> bool {
    let (is_released, waits) = (RELEASED.contains(&reason), WAITING.contains(&reason));
    match state {
        State::Waiting => !is_released && ![ON_HOLD, Reason::SUSPENDED_BY_USER].contains(&reason),
        State::Held => !is_released && reason != Reason::SUSPENDED_BY_USER,
        State::Inadmissible | State::Suspended => !is_released,
        State::Admitted | State::Starting | State::Running => !waits,
        state if state.is_over() => reason == "Finished" || !(is_released || waits),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that was renamed would silently count for every state.
    #[test]
    fn each_token_is_one_of_the_reference() {
        let reference = include_str!("../../../docs/reference/reasons.md");
        for token in RELEASED.iter().chain(&WAITING) {
            assert!(reference.contains(&format!("\n| `{token}` | ")), "{token}");
        }
    }
}
