//! Parts of a gang start together or are all withdrawn, whatever keeps one of them.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, ensure};
use caldera_e2e::{
    PATIENCE, Scenario, is_skipped_on_given,
    kinds::Kind,
    line::Line,
    manifest::{aggregated, job, policy, task},
    run_configured, run_in,
    world::{self, World, fleet, join},
};
use caldera_runtime::client::WriteCounts;
use caldera_sandbox::fleet::Endpoint;
use jiff::SignedDuration;
use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// How long a part has to start here: long enough for those that can, on a busy machine too.
const WITHIN: SignedDuration = SignedDuration::from_secs(15);

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
    run_configured(
        "together",
        |controller| controller.pods_ready_timeout = WITHIN,
        async |s| {
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
        },
    );
}

/// The cluster behind the line.
pub(crate) const FAR: &str = "far";
/// The one beside the host.
pub(crate) const NEAR: &str = "member1";

/// A world of two members, one of them behind a line that can be cut.
async fn far_world(line: Arc<OnceLock<Line>>, lost_after: Option<SignedDuration>) -> anyhow::Result<World> {
    let stop = CancellationToken::new();
    let (host, other) = (fleet(1, &stop).await?, fleet(1, &stop).await?);
    let far = other.members[0].clone();
    let own = Line::to(&far.server).await?;
    join(&host, FAR, &Endpoint { server: own.address.clone(), ..far.clone() }).await?;
    let mut world = world::of_fleet(&host, stop).await?;
    world
        .reconfigure(|controller| {
            (controller.pods_ready_timeout, controller.member_lost_after) = (WITHIN, lost_after);
        })
        .await?;
    world.members.insert(FAR.to_owned(), far.client("e2e", &WriteCounts::default())?);
    assert!(line.set(own).is_ok());
    Ok(world)
}

/// Runs in such a world, with a queue that both members have.
pub(crate) fn run_far<F>(
    name: &str,
    lost_after: Option<SignedDuration>,
    play: impl FnOnce(Arc<Scenario>, String, Arc<OnceLock<Line>>) -> F,
) where
    F: Future<Output = anyhow::Result<()>>,
{
    if is_skipped_on_given(name, "the line to a member of a given Karmada can not be cut") {
        return;
    }
    let line = Arc::<OnceLock<Line>>::default();
    run_in(name, far_world(line.clone(), lost_after), async |s| {
        s.until(Kind::Cluster, FAR, "is ready", |cluster| {
            let conditions = cluster["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
        })
        .await?;
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        for member in [NEAR, FAR] {
            let open = |queue: &Value| queue["status"]["state"] == "Open";
            s.until_in_member(member, Kind::Queue, &queue, "is open", open).await?;
        }
        play(s, queue, line).await
    });
}

pub(crate) fn set(line: &OnceLock<Line>, up: bool) -> anyhow::Result<()> {
    line.get().context("no line")?.up.send_replace(up);
    Ok(())
}

/// Works of the gang for [`FAR`].
async fn far_works(s: &Scenario) -> anyhow::Result<usize> {
    let works =
        world::api(&s.host(), &Kind::Work.resource(), Some("karmada-es-far")).list(&ListParams::default()).await?;
    let of_gang = |work: &&DynamicObject| {
        work.metadata
            .annotations
            .as_ref()
            .is_some_and(|all| all.get("resourcebinding.karmada.io/name").is_some_and(|name| name == "gang-job"))
    };
    Ok(works.items.iter().filter(of_gang).count())
}

pub(crate) async fn until_far_works(s: &Scenario, count: usize) -> anyhow::Result<()> {
    let there = async {
        while far_works(s).await? != count {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, there).await.context("the Works of far are others")?
}

/// All of the gang runs in one member, and nothing of it in the other.
pub(crate) async fn runs_once(s: &Scenario, queue: &str, here: &str, not_there: &str) -> anyhow::Result<()> {
    let clusters = s.until_placed("gang-job").await?;
    ensure!(clusters == [(here.to_owned(), 4)], "{clusters:?}");
    let all = |job: &Value| job["status"]["state"]["phase"] == "Running" && job["status"]["running"] == 4;
    s.until(Kind::Job, "gang", "runs as a whole", all).await?;
    let (here, there) = (pods(s, here).await, pods(s, not_there).await);
    ensure!((here, there) == (4, 0), "{here} pods here, {there} there");
    s.until(Kind::Queue, queue, "is charged once", |queue| charged(queue, "1")).await.map(drop)
}

#[test]
fn a_member_that_dies_before_its_part_is_applied_holds_up_no_gang_and_gets_no_orphan() {
    run_far("between-works", None, async |s, queue, line| {
        // Its Work is there and waits, as if Karmada was about to apply it.
        submit_held_from(&s, gang("gang", &queue), &halves([FAR, NEAR]), FAR).await?;
        s.until_in_member(NEAR, Kind::Job, "gang", "is applied", |_| true).await?;
        until_far_works(&s, 1).await?;
        set(&line, false)?;
        s.patch(Kind::Policy, "gang", &json!({"spec": {"suspension": null}})).await?;

        let binding = s.until(Kind::Binding, "gang-job", "is withdrawn", is_withdrawn).await?;
        ensure!(eviction(&binding)["avoid"] == json!([FAR]), "{}", eviction(&binding));
        s.until_gone_in_member(NEAR, Kind::Job, "gang").await?;
        s.until(Kind::Queue, &queue, "is empty", |queue| charged(queue, "0")).await?;
        runs_once(&s, &queue, NEAR, FAR).await?;

        set(&line, true)?;
        until_far_works(&s, 0).await?;
        ensure!(s.get_in_member(FAR, Kind::Job, "gang").await?.is_none(), "an orphan");
        runs_once(&s, &queue, NEAR, FAR).await
    });
}

#[test]
fn what_runs_in_a_member_that_is_out_of_reach_when_its_gang_is_withdrawn_goes_when_it_is_back() {
    run_far("orphans", None, async |s, queue, line| {
        submit_held_from(&s, gang("gang", &queue), &halves([FAR, NEAR]), NEAR).await?;
        let runs = |job: &Value| job["status"]["running"] == 2;
        s.until_in_member(FAR, Kind::Job, "gang", "runs its part", runs).await?;
        set(&line, false)?;
        let binding = s.until(Kind::Binding, "gang-job", "is withdrawn", is_withdrawn).await?;
        ensure!(eviction(&binding)["avoid"] == json!([NEAR]), "{}", eviction(&binding));
        ensure!(pods(&s, FAR).await == 2, "out of reach, and yet its pods went");
        set(&line, true)?;
        until_far_works(&s, 0).await?;
        s.until_gone_in_member(FAR, Kind::Job, "gang").await?;
        runs_once(&s, &queue, FAR, NEAR).await
    });
}
