//! Sentences as users read them.

use super::*;

#[test]
fn a_sentence_has_the_numbers_and_never_is_told_apart_from_waiting() {
    let gpu = || ResourceName::from("nvidia.com/gpu");
    let quota = Reason::Quota {
        queue: "ml".into(),
        bound: Bound::Queue("research".into()),
        resource: gpu(),
        asked: Quantity::from_units(64),
        used: Quantity::from_units(40),
        limit: Quantity::from_units(96),
        position: Position { place: 3, of: 12 },
    };
    assert_eq!(
        quota.to_string(),
        "waits in queue ml, position 3 of 12: needs nvidia.com/gpu 64, used 40 of 96 (the capability of queue research)"
    );
    let never = Reason::ExceedsLimit {
        queue: "ml".into(),
        bound: Bound::Fleet,
        resource: gpu(),
        asked: Quantity::from_units(64),
        holds: Quantity::ZERO,
        limit: Quantity::from_units(8),
    };
    assert_eq!(
        never.to_string(),
        "can never start in queue ml: needs nvidia.com/gpu 64, more than 8, which is all that the clusters have together"
    );
    assert_ne!(quota.token(), never.token());
    assert!(never.needs_a_change() && !quota.needs_a_change());
}
