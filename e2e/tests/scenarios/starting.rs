//! Parts of a gang start together or are all withdrawn, whatever keeps one of them.

use std::time::Duration;

use anyhow::{Context, ensure};
use caldera_cli::stack::ControllerConfig;
use caldera_e2e::{
    PATIENCE, Scenario,
    kinds::Kind,
    manifest::{aggregated, job, policy, task},
    run_configured,
};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::outage::{run_with_outage, until_works};

/// How long a part has to start here: long enough for those that can, on a busy machine too.
const WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// Half of the replicas in each of two clusters.
pub(crate) fn halves(clusters: [&str; 2]) -> Value {
    let half = |cluster: &str| json!({"targetCluster": {"clusterNames": [cluster]}, "weight": 1});
    json!({
        "clusterAffinity": {"clusterNames": clusters},
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": clusters.map(half)},
        },
    })
}

/// Four pods that need each other.
pub(crate) fn gang(name: &str, queue: &str) -> Value {
    let mut gang = job(name, queue, &[task("a", 4, "250m", "sleep 600")]);
    gang["spec"]["minAvailable"] = 4.into();
    gang
}

/// Pods of the scenario in a member.
pub(crate) async fn pods(s: &Scenario, member: &str) -> usize {
    s.list_in_member(member, Kind::Pod, Some(&s.namespace)).await.len()
}

/// Its pods take a moment to go after their job.
pub(crate) async fn until_no_pods(s: &Scenario, member: &str) -> anyhow::Result<()> {
    let gone = async {
        while pods(s, member).await > 0 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.with_context(|| format!("pods stay in {member}"))
}

pub(crate) fn eviction(binding: &Value) -> Value {
    let record = binding["metadata"]["annotations"]["caldera.dev/eviction"].as_str().unwrap_or_default();
    serde_json::from_str(record).unwrap_or_default()
}

fn is_withdrawn(binding: &Value) -> bool {
    let nowhere = binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty);
    nowhere && binding["spec"]["suspension"]["scheduling"] == true && eviction(binding)["reason"] == "PodsReadyTimeout"
}

pub(crate) fn charged(queue: &Value, cpu: &str) -> bool {
    let charged = &queue["status"]["allocated"]["cpu"];
    charged == cpu || cpu == "0" && charged.is_null()
}

/// A gang over two clusters, to one of which Karmada's policy sends nothing for now: its part there can not start, and
/// nobody who places it knows.
async fn submit_held_from(s: &Scenario, gang: Value, placement: &Value, held: &str) -> anyhow::Result<Value> {
    let mut policy = policy(&gang, placement);
    policy["spec"]["suspension"] = json!({"dispatchingOnClusters": {"clusterNames": [held]}});
    s.create(Kind::Policy, policy).await?;
    s.create(Kind::Job, gang).await
}

#[test]
fn a_gang_of_which_a_part_can_not_start_is_withdrawn_from_all_clusters_and_goes_elsewhere() {
    run_configured("together", set_ready_within, async |s| {
        let members: Vec<String> = s.members().map(str::to_owned).collect();
        let [open, held] = [members[0].as_str(), members[1].as_str()];
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let gang = submit_held_from(&s, gang("gang", &queue), &halves([open, held]), held).await?;
        let clusters = s.until_placed("gang-job").await?;
        ensure!(clusters == [(open.to_owned(), 2), (held.to_owned(), 2)], "{clusters:?}");

        let binding = s.until(Kind::Binding, "gang-job", "is withdrawn", is_withdrawn).await?;
        let record = eviction(&binding);
        ensure!(record["avoid"] == json!([held]), "{record}");
        s.until_told("gang", "PodsReadyTimeout").await?;
        let says =
            s.until_podgroup(&gang, "says why", |group| group["status"]["conditions"][0]["reason"] == "Requeued");
        let why = says.await?["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned();
        ensure!(why.contains(&format!("0 of the 2 pods needed in {held} are on nodes")), "{why:?}");
        s.until_gone_in_member(open, Kind::Job, "gang").await?;

        // Meanwhile its quota is free for others, and charged for nobody else.
        let other = job("other", &queue, &[task("a", 1, "1", "sleep 1")]);
        s.submit(Kind::Job, other, &json!({"clusterAffinity": {"clusterNames": [open]}, "replicaScheduling": aggregated()["replicaScheduling"]})).await?;
        s.until_phase("other", "Completed").await?;
        s.until(Kind::Queue, &queue, "is empty", |queue| charged(queue, "0")).await?;

        // After its wait, with its age: all of it where it can start.
        let clusters = s.until_placed("gang-job").await?;
        ensure!(clusters == [(open.to_owned(), 4)], "{clusters:?}");
        let running = s.until_phase("gang", "Running").await?;
        ensure!(running["status"]["running"] == 4, "{}", running["status"]);
        let gang_pods = s.list_in_member(open, Kind::Pod, Some(&s.namespace)).await;
        let live = gang_pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        ensure!((live, pods(&s, held).await) == (4, 0), "it runs twice");
        s.until(Kind::Queue, &queue, "is charged once", |queue| charged(queue, "1")).await?;
        Ok(())
    });
}

/// All of the gang runs in one member, and is charged once.
pub(crate) async fn runs_once(s: &Scenario, queue: &str, here: &str) -> anyhow::Result<()> {
    let clusters = s.until_placed("gang-job").await?;
    ensure!(clusters == [(here.to_owned(), 4)], "{clusters:?}");
    let all = |job: &Value| job["status"]["state"]["phase"] == "Running" && job["status"]["running"] == 4;
    s.until(Kind::Job, "gang", "runs as a whole", all).await?;
    let here = pods(s, here).await;
    ensure!(here == 4, "{here} pods here");
    s.until(Kind::Queue, queue, "is charged once", |queue| charged(queue, "1")).await.map(drop)
}

/// What is to start has to be on nodes by then, however busy the machine is. A given Karmada takes longer.
fn set_ready_within(controller: &mut ControllerConfig) {
    let given = std::env::var_os("CALDERA_E2E_HOST_KUBECONFIG").is_some();
    controller.pods_ready_timeout = if given { WITHIN * 2 } else { WITHIN };
}

#[test]
fn a_member_that_dies_before_its_part_is_applied_holds_up_no_gang_and_gets_no_orphan() {
    run_with_outage("between-works", set_ready_within, async |s, queue, [near, far], mut outage| {
        // Its Work is there and waits, as if Karmada was about to apply it.
        submit_held_from(&s, gang("gang", &queue), &halves([&far, &near]), &far).await?;
        s.until_in_member(&near, Kind::Job, "gang", "is applied", |_| true).await?;
        until_works(&s, &far, 1).await?;
        outage.begin()?;
        s.patch(Kind::Policy, "gang", &json!({"spec": {"suspension": null}})).await?;

        let binding = s.until(Kind::Binding, "gang-job", "is withdrawn", is_withdrawn).await?;
        ensure!(eviction(&binding)["avoid"] == json!([far]), "{}", eviction(&binding));
        s.until_gone_in_member(&near, Kind::Job, "gang").await?;
        s.until(Kind::Queue, &queue, "is empty", |queue| charged(queue, "0")).await?;
        runs_once(&s, &queue, &near).await?;

        outage.end()?;
        until_works(&s, &far, 0).await?;
        s.until_gone_in_member(&far, Kind::Job, "gang").await?;
        until_no_pods(&s, &far).await?;
        runs_once(&s, &queue, &near).await
    });
}

#[test]
fn what_runs_in_a_member_that_is_out_of_reach_when_its_gang_is_withdrawn_goes_when_it_is_back() {
    run_with_outage("orphans", set_ready_within, async |s, queue, [near, far], mut outage| {
        submit_held_from(&s, gang("gang", &queue), &halves([&far, &near]), &near).await?;
        let runs = |job: &Value| job["status"]["running"] == 2;
        s.until_in_member(&far, Kind::Job, "gang", "runs its part", runs).await?;
        outage.begin()?;
        let binding = s.until(Kind::Binding, "gang-job", "is withdrawn", is_withdrawn).await?;
        ensure!(eviction(&binding)["avoid"] == json!([near]), "{}", eviction(&binding));
        ensure!(!outage.lets_look() || pods(&s, &far).await == 2, "out of reach, and yet its pods went");
        outage.end()?;
        until_works(&s, &far, 0).await?;
        s.until_gone_in_member(&far, Kind::Job, "gang").await?;
        runs_once(&s, &queue, &far).await?;
        until_no_pods(&s, &near).await
    });
}
