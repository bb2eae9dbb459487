//! Whatever jobs come: nothing panics, no gang starts below its minimum, and everything settles.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
struct Spec {
    tasks: Vec<(u32, u32, u32, u8)>,
    min_available: u32,
    policy: u8,
    plugin: u8,
    depends: bool,
}

fn spec() -> impl Strategy<Value = Spec> {
    let task = (0_u32..5, 0_u32..5, 1_u32..4, any::<u8>());
    (prop::collection::vec(task, 1..4), 0_u32..12, any::<u8>(), any::<u8>(), any::<bool>()).prop_map(
        |(tasks, min_available, policy, plugin, depends)| Spec { tasks, min_available, policy, plugin, depends },
    )
}

fn job(index: usize, spec: &Spec) -> Value {
    let tasks = spec.tasks.iter().enumerate().map(|(i, (replicas, minimum, cpu, behaviour))| {
        let command = ["sleep 1", "sleep 7", "exit 1", "sleep 2; exit 3"][usize::from(behaviour % 4)];
        let mut task = task(&format!("t{i}"), *replicas, &cpu.to_string(), command);
        task["minAvailable"] = (*minimum).min(*replicas).into();
        if spec.depends && i > 0 {
            task["dependsOn"] = json!({"name": ["t0"]});
        }
        task
    });
    let mut job = job_of(&format!("j{index}"), tasks.collect());
    job["spec"]["minAvailable"] = spec.min_available.into();
    let actions = ["RestartJob", "RestartTask", "RestartPod", "AbortJob", "TerminateJob", "CompleteJob"];
    let events = ["PodFailed", "PodEvicted", "TaskCompleted", "*"];
    if spec.policy.is_multiple_of(2) {
        let (event, action) = (events[usize::from(spec.policy / 2 % 4)], actions[usize::from(spec.policy / 8 % 6)]);
        job["spec"]["policies"] = json!([{"event": event, "action": action}]);
    }
    let plugins = ["svc", "env", "pytorch", "ray", "tensorflow", "ssh"];
    if spec.plugin.is_multiple_of(3) {
        job["spec"]["plugins"] = json!({plugins[usize::from(spec.plugin / 3 % 6)]: []});
    }
    job
}

/// A gang that has bound pods had its minimum of them once; as pods only end or are taken away whole after that, what
/// is bound in one round must be the minimum at least.
fn gangs_are_whole(cluster: &Cluster, before: &BTreeMap<String, usize>) -> Result<(), TestCaseError> {
    for group in cluster.world.of(Kind::PodGroup) {
        let name = text(group, "/metadata/name");
        let counted =
            |pod: &&super::super::facts::PodFacts| pod.group == name && (pod.holds() || pod.phase.is_finished());
        let bound = cluster.world.pods().map(|(_, pod)| pod).filter(counted).count();
        let minimum = usize::try_from(number(group, "/spec/minMember")).unwrap();
        if before.get(name).copied().unwrap_or_default() == 0 && bound > 0 {
            prop_assert!(bound >= minimum, "{name} started with {bound} of {minimum}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_jobs_settle_and_no_gang_starts_below_its_minimum(
        specs in prop::collection::vec(spec(), 1..5), evict in any::<u8>(),
    ) {
        let mut cluster = Cluster::new(2, "5");
        for (index, spec) in specs.iter().enumerate() {
            // What admission refuses is no job.
            let _ = cluster.submit(job(index, spec));
        }
        for round in 0..400 {
            let before: BTreeMap<String, usize> = cluster.world.of(Kind::PodGroup).map(|group| {
                let name = text(group, "/metadata/name").to_owned();
                let bound = cluster.world.pods().filter(|(_, pod)| pod.group == name && !pod.node.is_empty()).count();
                (name, bound)
            }).collect();
            cluster.world.set_time(cluster.now);
            let Plan { wants, at, .. } = plan(&cluster.world, &cluster.config, &mut cluster.memory, cluster.now);
            let idle = wants.is_empty();
            for want in wants {
                if !cluster.is_outdated(&want) {
                    cluster.carry_out(want);
                }
            }
            cluster.check();
            gangs_are_whole(&cluster, &before)?;
            if round == usize::from(evict) {
                if let Some(pod) = cluster.pods().first().map(|pod| (*pod).to_owned()) {
                    cluster.evict(&pod);
                }
                continue;
            }
            match at {
                Some(at) if idle => cluster.now = at.max(cluster.now),
                None if idle => return Ok(()),
                _ => {}
            }
        }
        prop_assert!(false, "never settles");
    }
}
