//! Sentences as users read them.

use super::*;

#[test]
fn amounts_are_decimals_and_gi() {
    let quota = |resource: &str, amounts: [&str; 3]| {
        let [asked, used, limit] = amounts.map(|amount| amount.parse().unwrap());
        let position = Position { place: 1, of: 2 };
        let bound = Bound::Queue("q".into());
        Reason::Quota { queue: "q".into(), bound, resource: resource.into(), asked, used, limit, position }.to_string()
    };
    let cpu = quota("cpu", ["12500m", "2571428571n", "20"]);
    assert!(cpu.contains("needs cpu 12.5, used 2.571 of 20 ("), "{cpu}");
    let memory = quota("memory", ["1536Mi", "512Mi", "1Gi"]);
    assert!(memory.contains("needs memory 1.5Gi, used 512Mi of 1Gi ("), "{memory}");
}

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
    assert_eq!(Position::parse_position(&quota.to_string()), Some(Position { place: 3, of: 12 }));
    assert_eq!(Position::parse_position("placed on position 3"), None);
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
    assert!(never.needs_user_action() && !quota.needs_user_action());
}

/// Whoever reads "never" looks for a fault of the job's, and not for the cluster that lacks it.
#[test]
fn what_no_member_has_is_said_so_and_what_is_oversold_is_about_now() {
    let exceeds = |resource: &str, asked: i64, limit: i64| {
        let (asked, limit) = (Quantity::from_units(asked), Quantity::from_units(limit));
        let (queue, bound, resource, holds) = ("ml".into(), Bound::Fleet, resource.into(), Quantity::ZERO);
        Reason::ExceedsLimit { queue, bound, resource, asked, holds, limit }.to_string()
    };
    assert_eq!(
        exceeds("kubernetes.io/batch-cpu", 2_000, 0),
        "can not start in queue ml now: needs kubernetes.io/batch-cpu 2000, and members sell 0 of it at present"
    );
    assert!(exceeds("kubernetes.io/batch-cpu", 2_000, 500).contains("members sell 500 of it at present"));
    assert_eq!(
        exceeds("deviceclass/gpu.io", 1, 0),
        "can not start in queue ml: needs 1 of DeviceClass gpu.io, and no member has such devices"
    );
    assert_eq!(
        exceeds("example.com/fpga", 1, 0),
        "can not start in queue ml: needs example.com/fpga 1, and no member has any"
    );
    assert!(exceeds("deviceclass/gpu.io", 9, 8).starts_with("can never start in queue ml: needs deviceclass/gpu.io 9"));
}
