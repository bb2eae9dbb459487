//! From a fleet as it is now to a world: who waits goes on waiting, who runs ends when it said it would.
//!
//! Pods of jobs that are told about hold their nodes until their job ends. All other pods hold theirs for ever: nobody
//! knows when they go, and to plan with their capacity would promise too much. In members that are not ready nothing is
//! seen, and jobs hold what they ask for (`lost_members`).

mod lost_members;
mod run_time;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use caldera_core::{
    capacity_reservation::CapacityReservation,
    gang::{Gang, QueueName, WorkloadRef},
    inventory::{HyperNode, Node, Pod, round_up_request},
    live_job::LiveJob,
    past_runs::PastRuns,
    place::{self, Queues},
    queue::QueueSpec,
    split::FederationTopology,
    text::count_noun,
    time::EpochSeconds,
};

pub(crate) use self::run_time::{RunSource, RunSources, RunTime, StatedRun, expect_run};
use self::{lost_members::hold_in_lost_members, run_time::list_run_notes};
use crate::{
    rules::Rules,
    time::Millis,
    world::{Hold, Job, JobTerms, MemberCluster, Shapes, World, WorldError},
};

/// A fleet at one moment.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// That moment.
    pub now: EpochSeconds,
    /// Members with their nodes and pods.
    pub members: Vec<Member>,
    /// Queues.
    pub queues: Vec<QueueSpec>,
    /// The links that are declared between members.
    pub links: FederationTopology,
    /// What the admin chose.
    pub rules: Rules,
    /// Jobs that wait or run.
    pub jobs: Vec<LiveJob>,
    /// How long the last jobs ran, by queue.
    pub past: PastRuns,
}

/// A member cluster.
#[derive(Debug, Clone, Default)]
pub struct Member {
    /// As placement sees it.
    pub cluster: place::Cluster,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// All pods.
    pub pods: Vec<Pod>,
    /// Its network domains.
    pub hyper_nodes: Vec<HyperNode>,
    /// The queues of its own Volcano.
    pub queues: Queues,
}

/// The world that goes on from there, and what was assumed. A job runs as long as it says, corrected by what the last
/// jobs of its queue did, and no longer than it may. One that does not say it, and of whose queue nothing is known,
/// runs for as long as it may, or for `assume` where it has no limit; one that should have ended by now for a minute
/// more.
///
/// # Errors
/// [`WorldError`], as for any world.
pub fn world(state: &State, assume: Millis) -> Result<(World, Vec<String>), WorldError> {
    build_world(state, assume).map(|(world, _, notes)| (world, notes))
}

/// The same, with what the run of each job was taken from, by its name.
pub(crate) fn build_world(state: &State, assume: Millis) -> Result<(World, RunSources, Vec<String>), WorldError> {
    let origin = state.jobs.iter().map(|job| job.created.as_time()).min().unwrap_or(state.now).min(state.now);
    let since = |time: EpochSeconds| Millis::from_secs(u64::try_from(time.seconds_since(origin)).unwrap_or(0));
    let mut members: Vec<Member> = state.members.clone();
    members.sort_by(|a, b| a.cluster.name.cmp(&b.cluster.name));
    let (mut holds, foreign) = held(&mut members, &state.jobs);
    holds.iter().for_each(|(job, held)| take_from_queues(&mut members, &state.jobs[*job], held));
    let queues: BTreeSet<&QueueName> = state.queues.iter().map(|queue| &queue.name).collect();
    let (in_queue, lost): (Vec<_>, Vec<_>) =
        state.jobs.iter().enumerate().partition(|(_, job)| queues.contains(&job.queue));
    let mut shapes = Shapes::default();
    let mut sources = HashMap::with_capacity(in_queue.len());
    let arrivals = list_arrivals(in_queue.iter().map(|(_, job)| *job), &since);
    let jobs = in_queue.into_iter().map(|(i, job)| {
        let span = |seconds: i64| Millis::from_secs(u64::try_from(seconds).unwrap_or(0));
        let running = holds.remove(&i);
        let ran = |began: EpochSeconds| since(state.now).since(since(began));
        let ran = running.as_ref().map(|_| job.began.map_or(Millis::ZERO, ran));
        let reported = StatedRun { said: job.run_for.map(span), limit: job.limit.map(span), ran };
        let RunTime { run, estimate, source } = expect_run(&state.past, &job.queue, reported, assume);
        sources.insert(Arc::clone(&job.name), source);
        // Where it is now is no matter of placement any more.
        let binding = place::Binding { previous: Vec::new(), fresh: false, ..place::Binding::clone(&job.binding) };
        Job {
            name: Arc::clone(&job.name),
            queue: job.queue.clone(),
            priority: job.priority,
            arrival: arrivals[&job.name].min(since(state.now)),
            run,
            estimate,
            shape: shapes.shape(Gang::clone(&job.gang), binding, job.whole),
            running,
        }
    });
    let jobs: Vec<Job> = jobs.collect();
    let mut notes = list_run_notes(&sources, assume);
    if foreign > 0 {
        notes.push(format!("holding their nodes to the end: {} of nobody in a queue", count_noun(foreign, "pod")));
    }
    if !lost.is_empty() {
        notes.push(format!("left out: {} of queues that are not there", count_noun(lost.len(), "job")));
    }
    let clusters = members.into_iter().map(|member| {
        let Member { cluster, nodes, pods: _, hyper_nodes, queues } = member;
        MemberCluster { cluster, nodes, hyper_nodes, queues }
    });
    let world = World::new(clusters.collect(), state.queues.clone(), jobs, since(state.now))?;
    let terms = state.jobs.iter().map(|job| (Arc::clone(&job.name), read_terms(job))).collect();
    let (links, mut rules) = (state.links.clone(), state.rules.clone());
    for CapacityReservation { window, .. } in &mut rules.reservations {
        let since = |time: EpochSeconds| EpochSeconds::new(time.seconds_since(origin));
        (window.start, window.end) = (since(window.start), since(window.end));
    }
    for history in &mut rules.histories {
        history.at = EpochSeconds::new(history.at.seconds_since(origin));
    }
    Ok((World { origin, links, rules, terms, ..world }, sources, notes))
}

/// When each arrived. Those of one second go in their order: a millisecond each, as far as there are some.
fn list_arrivals<'a>(
    jobs: impl Iterator<Item = &'a LiveJob>,
    since: &impl Fn(EpochSeconds) -> Millis,
) -> HashMap<&'a Arc<str>, Millis> {
    let mut in_order: Vec<&LiveJob> = jobs.collect();
    in_order.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let of_second = in_order.chunk_by(|a, b| a.created.as_time() == b.created.as_time());
    let arrive = |(job, at): (&&'a LiveJob, u64)| (&job.name, Millis(since(job.created.as_time()).0 + at));
    of_second.flat_map(|jobs| jobs.iter().zip((0..=999).chain(std::iter::repeat(999))).map(arrive)).collect()
}

fn read_terms(job: &LiveJob) -> JobTerms {
    JobTerms {
        namespace: job.workload.namespace.as_str().into(),
        submitter: job.submitter.clone(),
        checkpoint_interval: job.checkpoint_interval,
        preemptable: job.preemptable,
        best_effort: job.best_effort,
        never_preempts: job.never_preempts,
        limit: job.limit,
    }
}

/// What a job holds counts again in its members' queues once it is told to the world.
fn take_from_queues(members: &mut [Member], job: &LiveJob, holds: &[Hold]) {
    for hold in holds {
        if let Some(queue) = members[hold.cluster].queues.get_mut(job.queue.as_str()) {
            queue.allocated.saturating_sub(&hold.amount);
        }
    }
}

/// What each job holds, by its place in the list, and how many pods are nobody's; their capacity is taken off their
/// nodes.
fn held(members: &mut [Member], jobs: &[LiveJob]) -> (HashMap<usize, Vec<Hold>>, usize) {
    let owners: BTreeMap<&WorkloadRef, usize> =
        jobs.iter().enumerate().filter(|(_, job)| job.placed).map(|(i, job)| (&job.workload, i)).collect();
    let mut holds: HashMap<usize, BTreeMap<(usize, Arc<str>), Hold>> = HashMap::new();
    let mut foreign = 0;
    for (cluster, member) in members.iter_mut().enumerate() {
        let nodes: HashMap<String, usize> =
            member.nodes.iter().enumerate().map(|(i, node)| (node.name.clone(), i)).collect();
        for pod in member.pods.iter().filter(|pod| !pod.finished) {
            let Some(node) = pod.node.as_ref().and_then(|name| nodes.get(name)) else { continue };
            let (node, request) = (&mut member.nodes[*node], round_up_request(&pod.request));
            let owner = pod.owner.as_ref().map(|owner| owner.workload(&pod.namespace));
            match owner.and_then(|workload| owners.get(&workload)) {
                Some(job) => {
                    let name: Arc<str> = node.name.as_str().into();
                    let new = || Hold { cluster, node: Arc::clone(&name), amount: Default::default() };
                    let of_job = holds.entry(*job).or_default();
                    of_job.entry((cluster, Arc::clone(&name))).or_insert_with(new).amount.add(&request);
                }
                None => {
                    foreign += 1;
                    node.allocatable.saturating_sub(&request);
                }
            }
        }
    }
    hold_in_lost_members(members, jobs, &mut holds);
    (holds.into_iter().map(|(job, by_node)| (job, by_node.into_values().collect())).collect(), foreign)
}

#[cfg(test)]
mod tests {
    use caldera_core::{
        inventory::Owner,
        quantity::Quantity,
        queue::{FairHistory, OrderPolicy, TenantOrder},
        resources::Resources,
        tenant::Tenant,
        time::SubmitTime,
    };

    use super::*;
    use crate::{
        policy::PolicyName,
        run::{Options, simulate},
        world::{gang, node, ready_cluster, task},
    };

    pub(super) fn cpu(units: i64) -> Resources {
        [("cpu", Quantity::from_units(units))].into_iter().collect()
    }

    pub(super) fn job(name: &str, created: i64, pods: u32, placed: bool, run_for: Option<i64>) -> LiveJob {
        let gang = gang(vec![task("t", pods, pods, cpu(2))]);
        let shape = Shapes::default().gang(gang.clone());
        LiveJob {
            name: name.into(),
            workload: workload(name),
            queue: "q".into(),
            priority: 0,
            created: created.into(),
            began: placed.then_some(EpochSeconds::new(created + 10)),
            placed,
            run_for,
            limit: None,
            gang: Arc::new(gang),
            binding: Arc::new(shape.binding.clone()),
            whole: true,
            submitter: None,
            checkpoint_interval: None,
            preemptable: None,
            best_effort: false,
            never_preempts: false,
            starts_with: None,
        }
    }

    fn state(now: i64, member: Member, jobs: Vec<LiveJob>) -> State {
        let now = EpochSeconds::new(now);
        State { now, members: vec![member], queues: vec![QueueSpec::unlimited("q")], jobs, ..State::default() }
    }

    fn workload(name: &str) -> WorkloadRef {
        WorkloadRef { group: "g".into(), kind: "Job".into(), namespace: "ns".into(), name: name.into() }
    }

    fn pod(name: &str, owner: Option<&str>) -> Pod {
        let owner = owner.map(|name| Owner { group: "g".into(), kind: "Job".into(), name: name.into(), task: None });
        let request = cpu(2);
        Pod { namespace: "ns".into(), name: name.into(), node: Some("n".into()), request, finished: false, owner }
    }

    #[test]
    fn jobs_of_one_second_arrive_in_the_order_of_submission() {
        let jobs = [("a", 3), ("b", 1), ("c", 2)].map(|(name, stamp)| LiveJob {
            created: SubmitTime::new(EpochSeconds::new(900), stamp),
            ..job(name, 900, 1, false, None)
        });
        let member =
            Member { cluster: ready_cluster("m"), nodes: vec![node("n".to_owned(), cpu(8))], ..Member::default() };
        let (world, _) = world(&state(1_000, member, jobs.into()), Millis::ZERO).unwrap();
        let names: Vec<&str> = world.jobs.iter().map(|job| &*job.name).collect();
        assert_eq!(names, ["b", "c", "a"]);
    }

    /// Eight cores: two held by a stranger for ever, four by `runs` for 40 s more; `waits` needs six, and has waited
    /// for 50 s. It can start when `runs` has ended, and not before.
    #[test]
    fn who_runs_ends_when_it_said_and_who_waits_has_waited() {
        let member = Member {
            cluster: ready_cluster("m"),
            nodes: vec![node("n".to_owned(), cpu(8))],
            pods: vec![pod("a", Some("runs")), pod("b", Some("runs")), pod("c", None)],
            ..Member::default()
        };
        let jobs = vec![job("runs", 1_000, 2, true, Some(150)), job("waits", 1_070, 3, false, None)];
        let state = state(1_120, member, jobs);
        let (world, notes) = world(&state, Millis::from_secs(600)).unwrap();
        assert_eq!(world.start, Millis::from_secs(120));
        assert_eq!(notes.len(), 2, "{notes:?}");
        for policy in PolicyName::ALL {
            let outcome = simulate(&world, policy.start(&world).as_mut(), &Options::default());
            let [runs, waits] = outcome.jobs.as_slice() else { panic!("{outcome:?}") };
            assert_eq!((runs.resumed, runs.ended), (true, Some(Millis::from_secs(160))), "{policy}");
            assert_eq!(waits.arrival, Millis::from_secs(70), "{policy}");
            assert_eq!(waits.started, Some(Millis::from_secs(160)), "{policy}");
            assert_eq!(waits.ended, Some(Millis::from_secs(760)), "{policy}");
        }
    }

    #[test]
    fn what_was_used_lately_decides_whose_turn_it_is_less_what_passed_since() {
        let started = |histories: Vec<FairHistory>| {
            let member =
                Member { cluster: ready_cluster("m"), nodes: vec![node("n".to_owned(), cpu(8))], ..Member::default() };
            let of = |name: &str, created: i64| LiveJob {
                submitter: Some(name.into()),
                ..job(name, created, 4, false, Some(100))
            };
            let mut state = state(2_000, member, vec![of("ada", 1_000), of("bob", 1_010)]);
            state.queues[0].tenant_order = Some(TenantOrder::Users);
            (state.rules.order, state.rules.history_half_life) = (OrderPolicy::FairHistory, 50);
            state.rules.histories = histories;
            let (world, _) = world(&state, Millis::ZERO).unwrap();
            let outcome = simulate(&world, PolicyName::Caldera.start(&world).as_mut(), &Options::default());
            let names = world.jobs.iter().map(|job| job.name.to_string());
            let mut jobs: Vec<_> = outcome.jobs.iter().map(|job| job.started).zip(names).collect();
            jobs.sort();
            jobs.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        let history = |at: i64, user: &str, cores: i64| FairHistory {
            at: at.into(),
            tenants: [("q".into(), [(Tenant::User(user.into()), cpu(cores))].into())].into(),
            ..FairHistory::default()
        };
        assert_eq!(started(Vec::new()), ["ada", "bob"]);
        assert_eq!(started(vec![history(2_000, "ada", 1)]), ["bob", "ada"]);
        let old = history(1_800, "ada", 8);
        assert_eq!(started(vec![old, history(2_000, "bob", 1)]), ["ada", "bob"], "a sixteenth of eight");
    }

    #[test]
    fn what_is_placed_and_has_no_pods_waits_again() {
        let member =
            Member { cluster: ready_cluster("m"), nodes: vec![node("n".to_owned(), cpu(8))], ..Member::default() };
        let jobs = vec![job("placed", 1_000, 2, true, Some(100))];
        let state = state(1_050, member, jobs);
        let (world, _) = world(&state, Millis::ZERO).unwrap();
        assert_eq!((world.jobs[0].running.clone(), world.jobs[0].run), (None, Millis::from_secs(100)));
    }
}
