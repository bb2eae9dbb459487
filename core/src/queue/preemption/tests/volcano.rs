//! Volcano's own cases of reclaim and preemption, as they read for gangs (volcano-sh/volcano at ed72c7c:
//! `pkg/scheduler/plugins/capacity/capacity_test.go`, `actions/{reclaim,preempt,gangreclaim,gangpreempt}/*_test.go`,
//! `actions/utils/bundle_test.go`). Where we differ on purpose, the row says what Volcano does and why we do not.

use super::*;

/// `name parent priority deserved`, one a line; amounts as `cpu:2,mem:4`, `-` for none.
struct Row {
    name: &'static str,
    fleet: &'static str,
    queues: &'static [&'static str],
    /// `id queue priority pods*amounts min preemptable`, in the order of their start.
    running: &'static [&'static str],
    /// `queue priority amounts lacks`.
    preemptor: &'static str,
    /// As [`names`] gives them.
    want: &'static [&'static str],
    /// What Volcano does instead, and why we do not.
    differs: &'static str,
}

const SAME: &str = "";

const ROWS: &[Row] = &[
    Row {
        name: "capacity flat 2: can reclaim from other queues when allocated < deserved",
        fleet: "cpu:4,mem:8",
        queues: &["q3 - 0 cpu:2,mem:4", "q4 - 0 cpu:2,mem:4"],
        running: &["pg5 q3 0 2*cpu:2,mem:4 1 -"],
        preemptor: "q4 0 cpu:2,mem:4 -",
        want: &["pg5-1"],
        differs: SAME,
    },
    Row {
        name: "capacity flat 3: cpu and memory are overused, the scalar is not, and only that is asked for",
        fleet: "cpu:4,mem:8,gpu:20",
        queues: &["q5 - 0 cpu:2,mem:4,gpu:10", "q6 - 0 cpu:2,mem:4,gpu:10"],
        running: &["pg7 q5 0 2*gpu:10 1 -", "pg8 q6 0 2*cpu:2,mem:4 1 -"],
        preemptor: "q6 0 gpu:10 -",
        want: &["pg7-1"],
        differs: SAME,
    },
    Row {
        name: "capacity flat 5: can reclaim when allocated + req <= deserved on one dimension",
        fleet: "cpu:2,mem:4",
        queues: &["q10 - 0 cpu:2,mem:2", "q11 - 0 cpu:0,mem:0"],
        running: &["pg16 q10 0 1*cpu:1,mem:3 1 -", "pg18 q11 0 1*cpu:1,mem:1 1 -"],
        preemptor: "q10 0 cpu:1,mem:1 -",
        want: &[],
        differs: "evicts pg18: one dimension is enough there. A preemptor that borrows on another is itself taken from by \
                  whoever lacks that, and the two take turns",
    },
    Row {
        name: "capacity flat 6: can not reclaim when allocated + req > deserved",
        fleet: "cpu:2,mem:4",
        queues: &["q12 - 0 cpu:1,mem:2", "q13 - 0 cpu:0,mem:0"],
        running: &["pg19 q12 0 1*cpu:1,mem:1 1 -", "pg21 q13 0 1*cpu:1,mem:1 1 -"],
        preemptor: "q12 0 cpu:1,mem:2 -",
        want: &[],
        differs: SAME,
    },
    Row {
        name: "capacity flat 7: allocated without the scalar that deserved has is not reclaimed",
        fleet: "cpu:4,mem:8,gpu:4",
        queues: &["q14 - 0 cpu:2,mem:4,gpu:2", "q15 - 0 -", "q16 - 0 cpu:2,mem:4,gpu:2"],
        running: &["pg22 q14 0 1*cpu:2,mem:4 1 -", "pg23 q15 0 1*gpu:1 1 -", "pg24 q16 0 1*cpu:2,mem:1,gpu:1 1 -"],
        preemptor: "q16 0 cpu:2,mem:3,gpu:1 -",
        want: &[],
        differs: SAME,
    },
    Row {
        name: "capacity flat 8: only the preemptor's dimensions count",
        fleet: "cpu:4,mem:8,gpu:1",
        queues: &["q17 - 0 cpu:2,mem:2", "q18 - 0 cpu:2,mem:4,gpu:1"],
        running: &[
            "pg26 q17 0 1*mem:4 1 -",
            "pg27 q17 0 1*cpu:1 1 -",
            "pg28 q17 0 1*gpu:1 1 -",
            "pg29 q18 0 1*cpu:2,mem:4 1 -",
        ],
        preemptor: "q18 0 cpu:1,gpu:1 gpu",
        want: &[],
        differs: "evicts pg28: as in flat 5, the preemptor would use cpu 3 of the 2 that it deserves",
    },
    Row {
        name: "capacity flat 8, with a preemptor that borrows no cpu: only the preemptor's dimensions count",
        fleet: "cpu:4,mem:8,gpu:1",
        queues: &["q17 - 0 cpu:2,mem:2", "q18 - 0 cpu:4,mem:4,gpu:1"],
        running: &[
            "pg26 q17 0 1*mem:4 1 -",
            "pg27 q17 0 1*cpu:1 1 -",
            "pg28 q17 0 1*gpu:1 1 -",
            "pg29 q18 0 1*cpu:2,mem:4 1 -",
        ],
        preemptor: "q18 0 cpu:1,gpu:1 gpu",
        want: &["pg28"],
        differs: SAME,
    },
    Row {
        name: "capacity flat 9: a queue that states only gpus is not reclaimed on cpu",
        fleet: "cpu:4,mem:8,gpu:1",
        queues: &["q19 - 0 gpu:1", "q20 - 0 cpu:2,mem:2"],
        running: &["pg31 q19 0 1*cpu:4,mem:4,gpu:1 1 -"],
        preemptor: "q20 0 cpu:1,mem:1 -",
        want: &[],
        differs: SAME,
    },
    Row {
        name: "capacity tree 3: can reclaim from a sibling when allocated < deserved",
        fleet: "cpu:8,mem:8",
        queues: &["q3 - 0 cpu:4,mem:4", "q31 q3 0 cpu:2,mem:2", "q32 q3 0 cpu:2,mem:2", "q4 - 0 cpu:2,mem:2"],
        running: &["pg4 q4 0 1*cpu:4,mem:4 1 -", "pg5 q31 0 2*cpu:2,mem:2 1 -"],
        preemptor: "q32 0 cpu:2,mem:2 -",
        want: &["pg5-1"],
        differs: SAME,
    },
    Row {
        name: "capacity tree 12: can reclaim when allocated <= deserved on a single scalar dimension",
        fleet: "cpu:16,mem:16,gpu:5",
        queues: &["q1 - 0 gpu:2", "q11 q1 0 gpu:2", "q12 q1 0 -"],
        running: &["pg17 q12 0 1*cpu:1,mem:1,gpu:2 1 -", "pg18 q12 0 1*cpu:1,mem:1,gpu:2 1 no"],
        preemptor: "q11 0 cpu:1,mem:1,gpu:2 gpu",
        want: &["pg17"],
        differs: SAME,
    },
    Row {
        name: "capacity ancestors 1: can reclaim by the parent's deserved",
        fleet: "cpu:16,gpu:4",
        queues: &["q1 - 0 gpu:1", "q11 q1 0 -", "q2 - 0 -"],
        running: &["pg1 q2 0 1*cpu:1,gpu:4 1 -"],
        preemptor: "q11 0 cpu:1,gpu:1 gpu",
        want: &["pg1"],
        differs: SAME,
    },
    Row {
        name: "capacity ancestors 2: across parents, when the victim's leaf and parent are both over",
        fleet: "cpu:16,gpu:4",
        queues: &["p1 - 0 gpu:1", "p1-spot p1 0 -", "p2 - 0 gpu:3", "p2-spot p2 0 -"],
        running: &[
            "pg1 p2-spot 2 1*gpu:1 1 -",
            "pg2 p2-spot 2 1*gpu:1 1 -",
            "pg3 p2-spot 2 1*gpu:1 1 -",
            "pg4 p2-spot 1 1*gpu:1 1 -",
        ],
        preemptor: "p1-spot 0 gpu:1 -",
        want: &["pg4"],
        differs: SAME,
    },
    Row {
        name: "capacity ancestors 3: the sibling's job goes, not the other parent's",
        fleet: "cpu:16,gpu:4",
        queues: &["p1 - 0 gpu:1", "p1-spot p1 0 -", "p2 - 0 gpu:3", "p2-firm p2 0 gpu:3", "p2-spot p2 0 -"],
        running: &[
            "pg1 p2-spot 2 1*gpu:1 1 -",
            "pg2 p2-spot 2 1*gpu:1 1 -",
            "pg3 p2-spot 2 1*gpu:1 1 -",
            "pg5 p1-spot 0 1*gpu:1 1 -",
        ],
        preemptor: "p2-firm 0 gpu:1 -",
        want: &["pg3"],
        differs: SAME,
    },
    Row {
        name: "capacity ancestors 4: not when the victim's leaf is not over",
        fleet: "cpu:8,gpu:2",
        queues: &["p1 - 0 gpu:1", "c1 p1 0 gpu:1", "s1 p1 0 -", "p2 - 0 gpu:1", "c2 p2 0 gpu:1"],
        running: &["pg1 c1 0 1*gpu:1 1 -", "pg3 s1 0 1*gpu:1 1 no"],
        preemptor: "c2 0 gpu:1 -",
        want: &[],
        differs: SAME,
    },
    Row {
        name: "capacity ancestors 5 to 7: leaf and parent are over, the grandparent is not",
        fleet: "cpu:2,mem:2",
        queues: &[
            "ga - 0 cpu:2,mem:2",
            "pa ga 0 cpu:2,mem:2",
            "qa pa 0 cpu:2,mem:2",
            "gb - 0 cpu:3,mem:3",
            "pb gb 0 cpu:1,mem:1",
            "qb pb 0 cpu:1,mem:1",
        ],
        running: &["victim qb 0 1*cpu:2,mem:2 1 -"],
        preemptor: "qa 0 cpu:2,mem:2 -",
        want: &[],
        differs: "evicts with ancestorReclaimLevel 0 and 1, not with 2: here every level counts, always",
    },
    Row {
        name: "capacity ancestors 8: siblings that deserve nothing do not reclaim",
        fleet: "cpu:2,mem:2",
        queues: &["p - 0 cpu:4,mem:4", "qa p 0 -", "qb p 0 -"],
        running: &["victim qb 0 1*cpu:2,mem:2 1 -"],
        preemptor: "qa 0 cpu:2,mem:2 -",
        want: &[],
        differs: SAME,
    },
    Row {
        name: "capacity ancestors 9: nor below one grandparent",
        fleet: "cpu:2,mem:2",
        queues: &["g - 0 cpu:2,mem:2", "pa g 0 -", "qa pa 0 -", "pb g 0 -", "qb pb 0 -"],
        running: &["victim qb 0 1*cpu:2,mem:2 1 -"],
        preemptor: "qa 0 cpu:2,mem:2 -",
        want: &[],
        differs: SAME,
    },
    Row {
        name: "capacity ancestors 10: nor in an unbalanced tree",
        fleet: "cpu:2,mem:2",
        queues: &["g - 0 cpu:1,mem:1", "deep-p g 0 cpu:1,mem:1", "deep deep-p 0 -", "shallow g 0 -"],
        running: &["victim deep 0 1*cpu:2,mem:2 1 -"],
        preemptor: "shallow 0 cpu:2,mem:2 -",
        want: &[],
        differs: SAME,
    },
    Row {
        name: "capacity ancestors 11: the ancestor two levels up is not over",
        fleet: "cpu:4,mem:4,gpu:2",
        queues: &["sp - 0 gpu:1", "shallow sp 0 gpu:1", "dg - 0 gpu:2", "dp dg 0 gpu:1", "deep dp 0 gpu:1"],
        running: &["victim deep 0 1*cpu:1,mem:1,gpu:2 1 -"],
        preemptor: "shallow 0 cpu:1,mem:1,gpu:1 gpu",
        want: &[],
        differs: SAME,
    },
    Row {
        name: "reclaim: reclaimees of overusing queues by job priority",
        fleet: "cpu:4",
        queues: &["q1 - 0 cpu:1", "q2 - 0 cpu:1", "q3 - 0 cpu:1"],
        running: &["pg1 q1 500 2*cpu:1 1 yes", "pg2 q2 100 2*cpu:1 1 yes"],
        preemptor: "q3 1000 cpu:1 -",
        want: &["pg2-1"],
        differs: SAME,
    },
    Row {
        name: "reclaim: reclaimees of overusing queues by queue priority",
        fleet: "cpu:4",
        queues: &["q1 - 10 cpu:1", "q2 - 5 cpu:1", "q3 - 1 cpu:1"],
        running: &["pg1 q1 500 2*cpu:1 1 yes", "pg2 q2 500 2*cpu:1 1 yes"],
        preemptor: "q3 500 cpu:1 -",
        want: &["pg2-1"],
        differs: SAME,
    },
    Row {
        name: "reclaim: what is idle counts",
        fleet: "cpu:10,mem:2",
        queues: &["q1 - 1 -", "q2 - 2 -", "q3 - 3 cpu:4,mem:1"],
        running: &["pg1 q1 500 1*cpu:1,mem:1 1 yes", "pg2 q2 500 1*cpu:1,mem:1 1 yes"],
        preemptor: "q3 500 cpu:2,mem:1 mem",
        want: &["pg1"],
        differs: SAME,
    },
    Row {
        name: "preempt: low priority job in the same queue",
        fleet: "cpu:2",
        queues: &["q1 - 0 -"],
        running: &["low q1 100 1*cpu:2 1 yes"],
        preemptor: "q1 1000 cpu:2 -",
        want: &["low"],
        differs: SAME,
    },
    Row {
        name: "preempt: not with preemptable=false, nor of higher priority",
        fleet: "cpu:12",
        queues: &["q1 - 0 -"],
        running: &["a q1 100 1*cpu:3 1 no", "b q1 100 1*cpu:3 1 yes", "c q1 1500 1*cpu:6 1 yes"],
        preemptor: "q1 1000 cpu:3 -",
        want: &["b"],
        differs: SAME,
    },
    Row {
        name: "preempt: enough tasks to fit a large one",
        fleet: "cpu:6",
        queues: &["q1 - 0 -"],
        running: &["a q1 100 1*cpu:2 1 yes", "b q1 100 1*cpu:2 1 yes", "c q1 100 1*cpu:2 1 yes"],
        preemptor: "q1 1000 cpu:5 -",
        want: &["c", "b", "a"],
        differs: SAME,
    },
    Row {
        name: "gangpreempt: unset preemptability defaults to allowed",
        fleet: "cpu:1",
        queues: &["q1 - 0 -"],
        running: &["victim q1 10 1*cpu:1 1 -"],
        preemptor: "q1 100 cpu:1 -",
        want: &[],
        differs: "evicts: there the pods said preemptable=true, which is what counts. Here the job is asked, and within a \
                  queue it must have said yes (policy.unset)",
    },
    Row {
        name: "gangreclaim: unset preemptability defaults to allowed",
        fleet: "cpu:1",
        queues: &["q1 - 0 cpu:1", "q2 - 0 -"],
        running: &["victim q2 10 1*cpu:1 1 -"],
        preemptor: "q1 100 cpu:1 -",
        want: &["victim"],
        differs: SAME,
    },
    Row {
        name: "gangreclaim: the job's own preemptable=false is respected",
        fleet: "cpu:1",
        queues: &["q1 - 0 cpu:1", "q2 - 0 -"],
        running: &["victim q2 10 1*cpu:1 1 no"],
        preemptor: "q1 100 cpu:1 -",
        want: &[],
        differs: SAME,
    },
    Row {
        name: "bundle: five of which three are needed spare two",
        fleet: "cpu:5",
        queues: &["q1 - 0 cpu:5", "q2 - 0 -"],
        running: &["victim q2 0 5*cpu:1 3 -"],
        preemptor: "q1 0 cpu:2 -",
        want: &["victim-2"],
        differs: SAME,
    },
    Row {
        name: "bundle: where surplus is not enough the whole gang goes",
        fleet: "cpu:5",
        queues: &["q1 - 0 cpu:5", "q2 - 0 -"],
        running: &["victim q2 0 5*cpu:1 3 -"],
        preemptor: "q1 0 cpu:3 -",
        want: &["victim"],
        differs: SAME,
    },
];

fn parse(text: &str) -> Resources {
    let one = |part: &str| {
        let (name, units) = part.split_once(':').unwrap();
        (crate::resources::ResourceName::from(name), Quantity::from_units(units.parse().unwrap()))
    };
    text.split(',').filter(|part| *part != "-").map(one).collect()
}

fn queue(world: &mut World, text: &str) {
    let [name, parent, priority, deserved] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    // Zero is a statement too.
    let stated = deserved.split(',').filter_map(|part| part.split_once(':'));
    let account = QueueAccount {
        parent: (parent != "-").then(|| parent.into()),
        priority: priority.parse().unwrap(),
        deserved: stated.map(|(name, units)| (name.into(), Quantity::from_units(units.parse().unwrap()))).collect(),
        reclaimable: true,
        ..QueueAccount::default()
    };
    world.queues.insert(name.into(), account);
}

fn job(started: i64, text: &str) -> RunningJob {
    let [id, queue, priority, size, min, says] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    let (pods, request) = size.split_once('*').unwrap();
    let pods = pods.parse().unwrap();
    let mut job = elastic(id, queue, started, &[pods], min.parse().unwrap());
    job.elastic.as_mut().unwrap().tasks[0].request = parse(request);
    RunningJob {
        priority: priority.parse().unwrap(),
        charge: parse(request).times(u64::from(pods)),
        preemptable: match says {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        },
        ..job
    }
}

#[test]
fn volcano_s_cases() {
    for row in ROWS {
        let mut world = World::new(parse(row.fleet));
        row.queues.iter().for_each(|text| queue(&mut world, text));
        for (started, text) in (0_i64..).zip(row.running) {
            world.running.push(job(started, text));
        }
        world.settle();
        let [name, priority, asks, lacks] = row.preemptor.split(' ').collect::<Vec<_>>()[..] else { panic!() };
        let mut asks = preemptor(name, priority.parse().unwrap(), parse(asks));
        asks.lacks = lacks.split(',').filter(|name| *name != "-").map(Into::into).collect();
        let got = world.plan_evictions(&asks).map(|plan| names(&plan)).unwrap_or_default();
        assert_eq!(got, row.want, "{} {}", row.name, row.differs);
    }
}
