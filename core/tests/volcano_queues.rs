//! Volcano's own tables of its capacity and proportion plugins
//! (`pkg/scheduler/plugins/{capacity,proportion}/*_test.go`), as far as they are about which jobs may start: nodes are
//! one fleet here, a running pod is a charge, a pending group a job in line. Where we differ on purpose the row says
//! why. The table of shares is in `order.rs`; those about taking back are with that.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, sync::Arc};

use caldera_core::{
    quantity::Quantity,
    queue::{Ask, Counted, Engine, Fit, FitClass, FleetResources, Job, QueueSpec, QueueState, TaskAsk},
    resources::{Limits, ResourceName, Resources},
    time::EpochSeconds,
};

struct Row {
    /// Table and case.
    case: &'static str,
    /// What is different here, and why.
    differs: &'static str,
    /// All nodes together.
    fleet: &'static str,
    /// Name, parent, and `field amounts; ...`.
    queues: &'static [(&'static str, &'static str, &'static str)],
    /// Queue and charge.
    runs: &'static [(&'static str, &'static str)],
    /// Name, queue, minimum; in order of age.
    waits: &'static [(&'static str, &'static str, &'static str)],
    /// Jobs for which there is no room, whatever the quota says.
    nowhere: &'static [&'static str],
    /// Who starts, in order.
    starts: &'static [&'static str],
}

const ROW: Row =
    Row { case: "", differs: "", fleet: "", queues: &[], runs: &[], waits: &[], nowhere: &[], starts: &[] };

const FLAT: &[Row] = &[
    Row {
        case: "capacity without hierarchy 0: within its capability",
        fleet: "cpu=4 memory=8Gi pods=20",
        queues: &[("q1", "", "capability cpu=2 memory=2Gi")],
        runs: &[("q1", "cpu=1 memory=1Gi")],
        waits: &[("pg2", "q1", "cpu=1 memory=1Gi")],
        starts: &["pg2"],
        ..ROW
    },
    Row {
        case: "capacity without hierarchy 1: beyond its capability",
        fleet: "cpu=4 memory=8Gi pods=20",
        queues: &[("q2", "", "capability cpu=1500m memory=1.5Gi")],
        runs: &[("q2", "cpu=1 memory=1Gi")],
        waits: &[("pg4", "q2", "cpu=1 memory=1Gi")],
        starts: &[],
        ..ROW
    },
    Row {
        case: "capacity without hierarchy 4, proportion allocate 0: the queue of the highest priority first",
        fleet: "cpu=4 memory=8Gi pods=20",
        queues: &[
            ("q7", "", "capability cpu=2 memory=4Gi; priority 5"),
            ("q8", "", "capability cpu=2 memory=4Gi; priority 1"),
            ("q9", "", "capability cpu=2 memory=4Gi; priority 10"),
        ],
        runs: &[("q7", "cpu=2 memory=4Gi")],
        waits: &[("pg11", "q8", "cpu=2 memory=4Gi"), ("pg12", "q9", "cpu=2 memory=4Gi")],
        starts: &["pg12"],
        ..ROW
    },
];

/// `TestEnqueueAndAllocatable` of both plugins, with capacity's numbers.
const ENQUEUE: &[Row] = &[
    Row {
        case: "enqueue and allocatable 0: memory is used up, a job that asks for cpu alone starts",
        fleet: "cpu=6 memory=6G pods=20",
        queues: &[
            ("q1", "", "deserved cpu=2 memory=2G; capability cpu=2 memory=2G"),
            ("q2", "", "deserved cpu=2 memory=2G; capability cpu=3 memory=3G"),
        ],
        runs: &[("q1", "cpu=1 memory=3G"), ("q2", "cpu=3 memory=1G")],
        waits: &[("pg3", "q1", "cpu=1 memory=0")],
        starts: &["pg3"],
        ..ROW
    },
    Row {
        case: "enqueue and allocatable 1: cpu is used up, a job that asks for memory alone starts",
        fleet: "cpu=6 memory=6G pods=20",
        queues: &[
            ("q1", "", "deserved cpu=2 memory=2G; capability cpu=2 memory=2G"),
            ("q2", "", "deserved cpu=2 memory=2G; capability cpu=3 memory=3G"),
        ],
        runs: &[("q1", "cpu=1 memory=3G"), ("q2", "cpu=3 memory=1G")],
        waits: &[("pg4", "q2", "cpu=0 memory=1G")],
        starts: &["pg4"],
        ..ROW
    },
    Row {
        case: "enqueue and allocatable 2 and 3: memory is used up, a job that asks for both waits",
        fleet: "cpu=6 memory=6G pods=20",
        queues: &[
            ("q1", "", "deserved cpu=2 memory=2G; capability cpu=2 memory=2G"),
            ("q2", "", "deserved cpu=2 memory=2G; capability cpu=3 memory=3G"),
        ],
        runs: &[("q1", "cpu=1 memory=3G"), ("q2", "cpu=3 memory=1G")],
        waits: &[("pg5", "q1", "cpu=1 memory=1G")],
        starts: &[],
        ..ROW
    },
    Row {
        case: "enqueue and allocatable 4: a closed queue starts nothing",
        fleet: "cpu=6 memory=6G pods=20",
        queues: &[("q3", "", "capability cpu=3 memory=3G; closed")],
        waits: &[("pg6", "q3", "cpu=1 memory=1G")],
        starts: &[],
        ..ROW
    },
    Row {
        case: "no double counting: what a job was promised and what it uses are one charge",
        fleet: "cpu=4 memory=8Gi pods=10",
        queues: &[("q1", "", "capability cpu=4 memory=8Gi")],
        runs: &[("q1", "cpu=3 memory=3Gi")],
        waits: &[("pgB", "q1", "cpu=1 memory=1Gi")],
        starts: &["pgB"],
        ..ROW
    },
    Row {
        case: "enqueued on other plugins' reject: who was refused for another reason takes no quota",
        fleet: "cpu=4 memory=4G pods=10",
        queues: &[("q1", "", "capability cpu=1 memory=4G")],
        waits: &[("pgA", "q1", "cpu=1 memory=1G"), ("pgB", "q1", "cpu=1 memory=1G")],
        nowhere: &["pgA"],
        starts: &["pgB"],
        ..ROW
    },
    Row {
        case: "proportion, pod-deallocate: a gang that does not fit as a whole does not start in part, the next one may",
        fleet: "cpu=7 memory=7k pods=30",
        queues: &[("q1", "", "")],
        waits: &[("pg1", "q1", "cpu=8 memory=8k"), ("pg2", "q1", "cpu=4 memory=4k")],
        starts: &["pg2"],
        ..ROW
    },
    Row {
        case: "proportion, realcapability-test: a resource that a capability does not name is not limited by it",
        fleet: "cpu=4 memory=4k pods=15 nvidia.com/gpu=8 rdma/hca=1k",
        queues: &[("q2", "", "capability cpu=2 memory=2k pods=10 nvidia.com/gpu=4")],
        waits: &[("pg3", "q2", "cpu=1 memory=1k nvidia.com/gpu=1 rdma/hca=1")],
        starts: &["pg3"],
        ..ROW
    },
];

const TREE: &[Row] = &[
    Row {
        case: "capacity with hierarchy 0: a leaf starts jobs",
        fleet: "cpu=8 memory=8Gi pods=11",
        queues: &[
            ("q1", "", "capability cpu=4 memory=4Gi"),
            ("q2", "", "capability cpu=4 memory=4Gi"),
            ("q11", "q1", "capability cpu=1 memory=1Gi"),
            ("q12", "q1", "capability cpu=3 memory=3Gi"),
        ],
        waits: &[("pg1", "q11", "cpu=1 memory=1Gi")],
        starts: &["pg1"],
        ..ROW
    },
    Row {
        case: "capacity with hierarchy 1: an inner queue starts none",
        differs: "with one such job Volcano starts no job of any queue; here others go on",
        fleet: "cpu=8 memory=8Gi pods=11",
        queues: &[
            ("q1", "", "capability cpu=4 memory=4Gi"),
            ("q2", "", "capability cpu=4 memory=4Gi"),
            ("q11", "q1", "capability cpu=1 memory=1Gi"),
            ("q12", "q1", "capability cpu=3 memory=3Gi"),
        ],
        waits: &[("pg2", "q1", "cpu=1 memory=1Gi"), ("other", "q2", "cpu=1 memory=1Gi")],
        starts: &["other"],
        ..ROW
    },
    Row {
        case: "capacity with hierarchy 2: a gang within its queue's capability, beyond what the queue deserves",
        fleet: "cpu=8 memory=8Gi pods=11",
        queues: &[
            ("q3", "", "deserved cpu=4 memory=4Gi pods=10; capability cpu=4 memory=4Gi pods=10"),
            ("q4", "", "deserved cpu=2 memory=2Gi pods=1; capability cpu=4 memory=4Gi pods=4"),
            ("q31", "q3", "deserved cpu=2 memory=2Gi pods=2; capability cpu=4 memory=4Gi pods=4"),
            ("q32", "q3", "deserved cpu=2 memory=2Gi pods=2; capability cpu=4 memory=4Gi pods=4"),
        ],
        waits: &[("pg3", "q31", "cpu=4 memory=4Gi pods=2")],
        starts: &["pg3"],
        ..ROW
    },
    Row {
        case: "capacity with hierarchy 4: the queue has room, the one above has not",
        fleet: "cpu=8 memory=8Gi pods=11",
        queues: &[
            ("q3", "", "deserved cpu=4 memory=4Gi pods=10; capability cpu=4 memory=4Gi pods=10"),
            ("q31", "q3", "deserved cpu=2 memory=2Gi pods=2; capability cpu=4 memory=4Gi pods=4"),
            ("q32", "q3", "deserved cpu=2 memory=2Gi pods=2; capability cpu=4 memory=4Gi pods=4"),
            ("q33", "q3", "deserved cpu=0 memory=0 pods=2; capability cpu=4 memory=4Gi pods=4"),
        ],
        runs: &[("q31", "cpu=2 memory=2Gi pods=1"), ("q32", "cpu=2 memory=2Gi pods=1")],
        waits: &[("pg8", "q33", "cpu=3 memory=3Gi pods=1")],
        starts: &[],
        ..ROW
    },
    Row {
        case: "capacity with hierarchy 5: a capability without cpu has the parent's, which has the root's",
        fleet: "cpu=8 memory=8Gi pods=11",
        queues: &[("q5", "", "capability memory=4Gi"), ("q51", "q5", "capability memory=2Gi")],
        waits: &[("pg9", "q51", "cpu=1")],
        starts: &["pg9"],
        ..ROW
    },
    Row {
        case: "capacity with hierarchy 6: two children without a capability share the parent's",
        fleet: "cpu=8 memory=8Gi pods=11",
        queues: &[("q6", "", "capability cpu=2 memory=4Gi"), ("q61", "q6", ""), ("q62", "q6", "")],
        waits: &[("pg10", "q61", "cpu=2 memory=4Gi"), ("pg11", "q62", "cpu=2 memory=4Gi")],
        starts: &["pg10"],
        ..ROW
    },
    Row {
        case: "capacity with hierarchy 7: guarantees that are more than the parent has do not stop anything",
        differs: "Volcano only says that it does not panic, and lets the first take 4 of 6, which breaks the other's \
                  promise; here both promises are cut to 3",
        fleet: "cpu=8 memory=8Gi pods=11",
        queues: &[
            ("q7", "", "capability cpu=6 memory=4Gi"),
            ("q71", "q7", "capability cpu=6 memory=4Gi; guarantee cpu=4 memory=3Gi"),
            ("q72", "q7", "capability cpu=6 memory=4Gi; guarantee cpu=4 memory=3Gi"),
        ],
        waits: &[("four", "q71", "cpu=4"), ("three", "q71", "cpu=3"), ("also three", "q72", "cpu=3")],
        starts: &["three", "also three"],
        ..ROW
    },
    Row {
        case: "capacity with hierarchy 8: an extended resource is deserved on both levels",
        fleet: "cpu=8 memory=8Gi pods=10 nvidia.com/gpu=8",
        queues: &[
            ("q8", "", "deserved cpu=4 memory=4Gi nvidia.com/gpu=8"),
            ("q81", "q8", "deserved cpu=2 memory=2Gi nvidia.com/gpu=4"),
            ("q82", "q8", "deserved cpu=2 memory=2Gi nvidia.com/gpu=4"),
        ],
        waits: &[("pg12", "q81", "cpu=2 memory=2Gi nvidia.com/gpu=1")],
        starts: &["pg12"],
        ..ROW
    },
    Row {
        case: "capacity with hierarchy 9: zero of a resource that nobody has is deserved",
        fleet: "cpu=8 memory=8Gi pods=10 nvidia.com/gpu=8 hugepages-1Gi=0",
        queues: &[
            ("q9", "", "deserved cpu=2 memory=2Gi nvidia.com/gpu=8 hugepages-1Gi=0"),
            ("q91", "q9", "deserved cpu=2 memory=2Gi nvidia.com/gpu=4 hugepages-1Gi=0"),
        ],
        waits: &[("pg13", "q91", "cpu=2 memory=2Gi nvidia.com/gpu=1")],
        starts: &["pg13"],
        ..ROW
    },
    Row {
        case: "capacity with hierarchy 10: the root's capability is more than there is",
        differs: "Volcano counts with the capability and leaves the rest to the nodes; here the fleet is a limit too",
        fleet: "cpu=8 memory=8Gi pods=11",
        queues: &[("root", "", "capability cpu=16 memory=16Gi"), ("q10", "", "capability cpu=10 memory=4Gi")],
        waits: &[("nine", "q10", "cpu=9"), ("eight", "q10", "cpu=8")],
        starts: &["eight"],
        ..ROW
    },
    Row {
        case: "capacity with hierarchy 11: children name an extended resource, their parent does not",
        fleet: "cpu=8 memory=8Gi pods=10 nvidia.com/gpu=8 hugepages-1Gi=0",
        queues: &[
            ("q1", "", ""),
            ("q11", "q1", "capability cpu=4 memory=4Gi nvidia.com/gpu=4"),
            ("q12", "q1", "capability cpu=4 memory=4Gi nvidia.com/gpu=4"),
        ],
        waits: &[
            ("pg14", "q11", "cpu=1 memory=1Gi nvidia.com/gpu=4"),
            ("pg15", "q12", "cpu=1 memory=1Gi nvidia.com/gpu=4"),
        ],
        starts: &["pg14", "pg15"],
        ..ROW
    },
    Row {
        case: "nil safety: a job of a queue that is gone",
        fleet: "cpu=4 memory=4Gi pods=10",
        queues: &[("root", "", ""), ("there", "", "")],
        waits: &[("orphan", "deleted-queue", "cpu=1 memory=1Gi"), ("other", "there", "cpu=1 memory=1Gi")],
        starts: &["other"],
        ..ROW
    },
    Row {
        case: "nil safety: no root",
        differs: "Volcano starts nothing without a root object; here the root is there even when its object is not",
        fleet: "cpu=4 memory=4Gi pods=10",
        queues: &[("q", "", "")],
        waits: &[("job", "q", "cpu=1 memory=1Gi")],
        starts: &["job"],
        ..ROW
    },
];

fn amounts(text: &str) -> impl Iterator<Item = (ResourceName, Quantity)> + '_ {
    text.split_whitespace().map(|amount| {
        let (name, amount) = amount.split_once('=').unwrap();
        (name.into(), amount.parse().unwrap())
    })
}

fn queue((name, parent, text): &(&str, &str, &str)) -> QueueSpec {
    let mut spec = QueueSpec::unlimited(*name);
    spec.parent = (!parent.is_empty()).then(|| (*parent).into());
    for field in text.split(';').map(str::trim).filter(|field| !field.is_empty()) {
        let (field, value) = field.split_once(' ').unwrap_or((field, ""));
        match field {
            "capability" => spec.capability = amounts(value).collect::<Limits>(),
            "deserved" => spec.deserved = amounts(value).collect::<Limits>(),
            "guarantee" => spec.guarantee = amounts(value).collect(),
            "priority" => spec.priority = value.parse().unwrap(),
            "weight" => spec.weight = value.parse().unwrap(),
            "closed" => spec.state = QueueState::Closed,
            _ => panic!("{field}"),
        }
    }
    spec
}

fn engine(fleet: &str, queues: &[(&str, &str, &str)]) -> Engine {
    let ready: Resources = amounts(fleet).collect();
    let mut engine = Engine::default();
    engine.set_fleet(FleetResources { whole: Some(ready.clone()), ready, ready_clusters: 1 });
    queues.iter().for_each(|text| engine.set_queue(queue(text)));
    engine
}

#[test]
fn those_start_that_volcano_starts() {
    for row in FLAT.iter().chain(ENQUEUE).chain(TREE) {
        let mut engine = engine(row.fleet, row.queues);
        for (i, (queue, charge)) in row.runs.iter().enumerate() {
            engine.charge_job(&format!("runs{i}").into(), &(*queue).into(), &amounts(charge).collect());
        }
        for (i, (name, queue, request)) in row.waits.iter().enumerate() {
            let task = TaskAsk { name: "t".into(), request: amounts(request).collect(), min: 1, most: 1, step: 1 };
            let ask = Arc::new(Ask {
                tasks: vec![task],
                copies: 1,
                fit: FitClass(i as u64),
                run_for: None,
                counted: Counted::Job,
                card: None,
            });
            let (id, queue) = ((*name).into(), (*queue).into());
            engine.enqueue_job(Job { id, queue, priority: 0, created: (i as i64).into(), deadline: None, ask });
        }
        let fit = |id: &str| match row.nowhere.contains(&id) {
            true => Fit::No { never: false, detail: String::new() },
            false => Fit::Yes,
        };
        let starts = std::iter::from_fn(|| engine.release_next_by_fit(|id, _| fit(id.as_str())));
        let starts: Vec<String> = starts.map(|release| release.id.to_string()).collect();
        assert_eq!(starts, row.starts, "{} ({})", row.case, row.differs);
        let waits: BTreeSet<&str> = row.waits.iter().map(|(name, ..)| *name).collect();
        for name in waits.into_iter().filter(|name| !row.starts.contains(name)) {
            assert!(engine.explain_pending(name).is_some(), "{}: {name} has no reason", row.case);
        }
    }
}

/// What each queue deserves, can have, and is promised, by capacity's formulas (`capacity.go:1095-1155`, `1481-1545`)
/// and proportion's (`proportion.go:199-266`).
#[test]
fn queues_deserve_what_volcano_s_formulas_say() {
    type Rows =
        [(&'static str, &'static [(&'static str, &'static str, &'static str)], &'static [(&'static str, [i64; 3])])];
    // Queue: deserved, real capability, guarantee; of 10 cpus.
    let rows: &Rows = &[
        (
            "flat: real = min(total - all guarantees + own, capability), deserved = max(min(deserved, real), guarantee)",
            &[
                ("a", "", "deserved cpu=9; guarantee cpu=2"),
                ("b", "", "deserved cpu=1; guarantee cpu=3"),
                ("c", "", "deserved cpu=4; capability cpu=3"),
            ],
            &[("a", [7, 7, 2]), ("b", [3, 8, 3]), ("c", [3, 3, 0]), ("root", [13, 10, 5])],
        ),
        (
            "hierarchy: the same from what the parent really has; we clamp deserved to that here too, so that nobody takes \
             back what it can never use",
            &[
                ("p", "", "deserved cpu=6; capability cpu=6"),
                ("p1", "p", "deserved cpu=9; guarantee cpu=1"),
                ("p2", "p", "deserved cpu=2; guarantee cpu=2"),
            ],
            &[("p", [6, 6, 3]), ("p1", [4, 4, 1]), ("p2", [2, 5, 2])],
        ),
        (
            "proportion: by weight; not bounded by what is asked for at the moment, for what is idle is borrowed anyway",
            &[("a", "", "weight 1"), ("b", "", "weight 4")],
            &[("a", [2, 10, 0]), ("b", [8, 10, 0])],
        ),
        (
            "proportion: at most the real capability, at least the guarantee, and what that leaves goes on by weight",
            &[("a", "", "weight 8; capability cpu=4"), ("b", "", "weight 1; guarantee cpu=4"), ("c", "", "weight 1")],
            &[("a", [4, 4, 0]), ("b", [4, 10, 4]), ("c", [2, 6, 0])],
        ),
        (
            "both at once, which Volcano has not: who says nothing shares what the others leave",
            &[("a", "", "deserved cpu=4"), ("b", "", "weight 1"), ("c", "", "weight 2")],
            &[("a", [4, 10, 0]), ("b", [2, 10, 0]), ("c", [4, 10, 0])],
        ),
    ];
    for (case, queues, want) in rows {
        let mut engine = engine("cpu=10", queues);
        engine.resolve_quota();
        for (queue, want) in *want {
            let entitled = engine.entitlement_of(&(*queue).into());
            let got = [entitled.deserved, entitled.real, entitled.guarantee].map(|amounts| amounts.get("cpu"));
            assert_eq!(got, want.map(Quantity::from_units), "{case}: {queue}");
        }
    }
}

/// `sla_test.go`: a job with a waiting time goes before one without, whoever is older.
#[test]
fn a_deadline_orders_as_in_volcano_s_table() {
    for (deadlines, first) in [([None, Some(3600)], "job2"), ([Some(180), Some(3600)], "job1"), ([None, None], "job1")]
    {
        let mut engine = engine("cpu=1", &[("q", "", "")]);
        for (i, deadline) in deadlines.into_iter().enumerate() {
            let task = TaskAsk { name: "t".into(), request: amounts("cpu=1").collect(), min: 1, most: 1, step: 1 };
            let ask = Arc::new(Ask {
                tasks: vec![task],
                copies: 1,
                fit: FitClass(0),
                run_for: None,
                counted: Counted::Job,
                card: None,
            });
            let id = format!("job{}", i + 1).into();
            engine.enqueue_job(Job {
                id,
                queue: "q".into(),
                priority: 0,
                created: (i as i64).into(),
                deadline: deadline.map(EpochSeconds::new),
                ask,
            });
        }
        assert_eq!(engine.release_next_by_fit(|_, _| Fit::Yes).unwrap().id.as_str(), first, "{deadlines:?}");
    }
}
