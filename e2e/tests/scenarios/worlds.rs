//! Split jobs whose pods must find each other, with programs that do: a training step by PyTorch, and one by MPI.
//!
//! What members' Volcano and Caldera wrote into the pods is run as processes: each has a network namespace, a host name
//! and a root of its own, and reaches the pods of the other cluster over one link. The names of the clusterset are in
//! `/etc/hosts`, in place of the DNS of multi-cluster services. As a process ends, so does its pod.
//!
//! They need root, `python3-torch`, `python3-mpi4py` with Open MPI, and an SSH server, so they run where somebody asks:
//! `cargo test -p caldera-e2e --test scenarios -- --ignored worlds`.

mod network;
mod pod_process;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use caldera_e2e::{
    PATIENCE, Scenario,
    kinds::Kind,
    manifest::{job, task},
    run_alone,
};
use serde_json::{Value, json};

use self::{
    network::Network,
    pod_process::{Files, PodProcess},
};
use super::splitting::halves;

/// What plays a kubelet takes the time from here; the scenario ends the pods before.
const RUNS_LONG: &str = "# sleep 3600\n";

/// One step of SGD, each rank with data of its own: all have the same weights before it and after it.
const TORCH_STEP: &str = r#"
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
before = model.module.weight.detach().clone()
loss = (model(torch.full((8, 4), float(rank + 1))) - 1).square().mean()
loss.backward()
optimizer.step()
weights = [torch.zeros_like(before) for _ in range(world)]
dist.all_gather(weights, model.module.weight.detach())
assert all(torch.equal(weights[0], other) for other in weights) and not torch.equal(weights[0], before)
print(f"rank {rank} of {world} made a step", flush=True)
"#;

/// The same by hand: gradients of a line's slope, averaged by `allreduce`.
const MPI_STEP: &str = r#"
import socket
from mpi4py import MPI
world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
slope, x, y = 0.5, float(rank + 1), 3.0 * (rank + 1)
gradient = world.allreduce(2 * (slope * x - y) * x) / size
slope -= 0.01 * gradient
assert len(set(world.allgather(slope))) == 1 and slope > 0.5
print(f"rank {rank} of {size} made a step on {socket.gethostbyname(socket.gethostname())}", flush=True)
"#;

fn write_step(step: &str) -> String {
    format!("{RUNS_LONG}cat > /step.py <<'STEP'{step}STEP\n")
}

fn gang(name: &str, queue: &str, tasks: &[Value]) -> Value {
    let mut gang = job(name, queue, tasks);
    gang["metadata"]["annotations"] = json!({"caldera.dev/rendezvous": "clusterset"});
    gang["spec"]["minAvailable"] = tasks.iter().filter_map(|task| task["replicas"].as_u64()).sum::<u64>().into();
    gang
}

/// A pod that runs in a member.
struct RunningPod {
    member: String,
    pod: Value,
}

impl RunningPod {
    fn name(&self) -> &str {
        self.pod["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Each cluster has a pod of the same name.
    fn key(&self) -> PodKey {
        (self.member.clone(), self.name().to_owned())
    }
}

/// Member and name.
type PodKey = (String, String);

/// All pods of the job, once so many run.
async fn await_pods(s: &Scenario, members: &[String], count: usize) -> anyhow::Result<Vec<RunningPod>> {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut pods = Vec::new();
        for member in members {
            let all = s.list_in_member(member, Kind::Pod, Some(&s.namespace)).await;
            let runs = all.into_iter().filter(|pod| pod["status"]["phase"] == "Running");
            pods.extend(runs.map(|pod| RunningPod { member: member.clone(), pod }));
        }
        if pods.len() == count {
            return Ok(pods);
        }
        ensure!(Instant::now() < until, "{} of {count} pods run", pods.len());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The files that a pod's Secrets and ConfigMaps mount.
async fn read_files(s: &Scenario, one: &RunningPod) -> anyhow::Result<Files> {
    let mut files = Files::default();
    for volume in one.pod["spec"]["volumes"].as_array().into_iter().flatten() {
        let source = [(Kind::Secret, "/secret/secretName"), (Kind::ConfigMap, "/configMap/name")];
        let named = source.iter().find_map(|(kind, name)| Some((*kind, volume.pointer(name)?.as_str()?)));
        let Some((kind, name)) = named else { continue };
        let object = s.get_in_member(&one.member, kind, name).await?.with_context(|| format!("no {kind:?} {name}"))?;
        files.mount_volume(&one.pod, volume, &object)?;
    }
    Ok(files)
}

/// Runs the job's pods until the host says that it is Completed, and gives what each wrote.
async fn play_world(s: &Scenario, workload: Value) -> anyhow::Result<BTreeMap<PodKey, String>> {
    let members: Vec<String> = s.members().take(2).map(str::to_owned).collect();
    ensure!(members.len() == 2, "a world needs two members");
    let name = workload["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let count = usize::try_from(workload["spec"]["minAvailable"].as_u64().unwrap_or_default())?;
    s.submit(Kind::Job, workload, &halves(&members)).await?;
    let clusters = s.until_placed(&format!("{name}-job")).await?;
    ensure!(clusters.len() == 2, "it is not split: {clusters:?}");
    let pods = await_pods(s, &members, count).await?;

    let mut network = Network::lay(&members)?;
    let mut places = Vec::new();
    for one in &pods {
        places.push(network.add_pod(&one.member)?);
    }
    let hosts = pod_process::write_hosts(pods.iter().map(|one| (one.member.as_str(), &one.pod)).zip(&places));
    let mut processes = BTreeMap::new();
    for (one, place) in pods.iter().zip(&places) {
        let mut files = read_files(s, one).await?;
        files.add_hosts(&hosts[&one.member]);
        processes.insert(one.key(), PodProcess::start(&one.pod, place, &files)?);
    }
    let wrote = await_completion(s, &name, &mut processes).await;
    if let Err(error) = wrote {
        let logs = processes.iter().map(|(pod, process)| format!("--- {pod:?}\n{}", process.read_log()));
        bail!("{error:#}\n{}", logs.collect::<Vec<_>>().join("\n"));
    }
    Ok(processes.iter().map(|(pod, process)| (pod.clone(), process.read_log())).collect())
}

type Processes = BTreeMap<PodKey, PodProcess>;

async fn await_completion(s: &Scenario, job: &str, processes: &mut Processes) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        for ((member, pod), process) in &mut *processes {
            if let Some(code) = process.take_exit_code()? {
                s.end_pod_in_member(member, pod, code).await?;
                ensure!(code == 0, "{pod} of {member} ended with {code}");
            }
        }
        let now = s.get(Kind::Job, job).await?.context("the job is gone")?;
        if now["status"]["state"]["phase"] == "Completed" {
            return Ok(());
        }
        ensure!(Instant::now() < until, "{job} is not Completed: {}", now["status"]);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The ranks that the lines `rank R of N made a step` tell, with who wrote each line and its end.
fn read_ranks(wrote: &BTreeMap<PodKey, String>, size: u32) -> anyhow::Result<BTreeMap<u32, String>> {
    let mut ranks = BTreeMap::new();
    for (pod, log) in wrote {
        for line in log.lines().filter_map(|line| line.split_once("rank ").map(|(_, rest)| rest)) {
            let Some((rank, rest)) = line.split_once(&format!(" of {size} made a step")) else { continue };
            let twice = ranks.insert(rank.parse()?, format!("{}/{}{rest}", pod.0, pod.1));
            ensure!(twice.is_none(), "rank {rank} is there twice: {wrote:?}");
        }
    }
    ensure!(ranks.keys().copied().eq(0..size), "{ranks:?} of {wrote:?}");
    Ok(ranks)
}

#[test]
#[ignore = "needs root and python3-torch"]
fn pytorch_makes_a_training_step_over_two_clusters() {
    run_alone("torch", async |s: Arc<Scenario>| {
        let queue = s.queue("q", json!({})).await?;
        // Debian's PyTorch on Python 3.11 takes no 0 for what it redirects.
        let command = write_step(TORCH_STEP)
            + "export GLOO_SOCKET_IFNAME=eth0 TP_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1\n\
               exec /usr/bin/python3 -m torch.distributed.run --nnodes $WORLD_SIZE --node_rank $RANK \
               --redirects 1 --tee 1 --nproc_per_node 1 --master_addr $MASTER_ADDR --master_port $MASTER_PORT /step.py";
        let tasks = [task("master", 1, "100m", &command), task("worker", 3, "100m", &command)];
        let mut workload = gang("train", &queue, &tasks);
        workload["spec"]["plugins"] = json!({"pytorch": ["--master=master", "--worker=worker"], "svc": []});
        let wrote = play_world(&s, workload).await?;
        let ranks = read_ranks(&wrote, 4)?;
        ensure!(ranks.values().collect::<BTreeSet<_>>().len() == 4, "{ranks:?}");
        Ok(())
    });
}

#[test]
#[ignore = "needs root, python3-mpi4py, Open MPI and an SSH server"]
fn mpirun_makes_a_training_step_over_two_clusters() {
    run_alone("mpi", async |s: Arc<Scenario>| {
        let queue = s.queue("q", json!({})).await?;
        let worker = write_step(MPI_STEP) + "mkdir -p /run/sshd; exec /usr/sbin/sshd -D -e";
        let master = format!(
            "{RUNS_LONG}for host in $(echo $MPI_HOST | tr , ' '); do until ssh $host true; do sleep 0.2; done; done\n\
             exec mpirun --allow-run-as-root --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 \
             -np 4 --host $MPI_HOST /usr/bin/python3 /step.py"
        );
        let mut master = task("master", 1, "100m", &master);
        master["policies"] = json!([{"event": "TaskCompleted", "action": "CompleteJob"}]);
        let mut workload = gang("ring", &queue, &[master, task("worker", 4, "100m", &worker)]);
        workload["spec"]["plugins"] = json!({"mpi": ["--master=master", "--worker=worker"], "ssh": [], "svc": []});
        let wrote = play_world(&s, workload).await?;
        let ranks = read_ranks(&wrote, 4)?;
        // All wrote through mpirun, each from an address of its own, in both clusters.
        let addresses: BTreeSet<&str> =
            ranks.values().filter_map(|line| Some(line.split_once("ring-master-0 on ")?.1)).collect();
        let clusters: BTreeSet<&str> =
            addresses.iter().filter_map(|address| Some(address.rsplit_once('.')?.0)).collect();
        ensure!((addresses.len(), clusters.len()) == (4, 2), "{ranks:?}");
        Ok(())
    });
}
