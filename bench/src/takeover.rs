//! From the loss of the controller that holds the Lease to the next release by the other one: killed, stopped, or cut
//! off. With `--namespaces` each controller is on a machine of its own, as far as a network namespace is one: the API
//! server is reached over a link of 10 Mbit/s that goes down. That takes root and `ip`. With `--delay` and `--loss`
//! each controller reaches the API server through a relay that is as slow and as lossy (`relay.rs`).

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use caldera_crds::names::caldera;
use caldera_runtime::tls::{Authority, server_config};
use caldera_sandbox::fleet::Endpoint;
use embedded_apiserver::ApiServer;
use kube::Client;
use serde_json::json;

use crate::{
    figures::Runs,
    host,
    relay::{LinkQuality, serve_relay},
    world::{self, BINDINGS, CLUSTERS, JOBS, QUEUES},
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds, as the controllers are told.
    #[arg(long, default_value_t = 15)]
    lease_duration: u64,
    /// Losses of each kind.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Each controller in a network namespace, and links that go down.
    #[arg(long)]
    namespaces: bool,
    #[command(flatten)]
    quality: LinkQuality,
}

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/caldera-controller";
const PATIENCE: Duration = Duration::from_secs(120);

/// How the holder is lost.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Killed,
    Stopped,
    CutOff,
}

pub async fn run_benchmark(args: Args) -> anyhow::Result<()> {
    let mut losses = vec![Loss::Killed, Loss::Stopped];
    losses.extend(args.namespaces.then_some(Loss::CutOff));
    let mut bench = Bench::start(&args).await?;
    for loss in losses {
        let mut took = Runs::default();
        for _ in 0..args.rounds {
            took.push(bench.lose_holder(loss).await?.as_secs_f64());
        }
        println!("{loss:?}: from the loss to the next release, s: {took}");
    }
    Ok(())
}

struct Bench {
    client: Client,
    controllers: Vec<Controller>,
    jobs: usize,
    _dir: tempfile::TempDir,
}

impl Bench {
    async fn start(args: &Args) -> anyhow::Result<Self> {
        let (server, client) = world::start_host().await?;
        host::add_members(&client, 100).await?;
        // From a namespace the members' own servers are out of reach.
        for name in ["m1", "m2", "m3"] {
            let allocatable = json!({"cpu": "1000", "memory": "8Ti", "pods": "10000"});
            let status = json!({"status": {"resourceSummary": {"allocatable": allocatable}}});
            world::patch_object(&client, &format!("{CLUSTERS}/{name}/status"), "merge", &status).await?;
        }
        let dir = tempfile::tempdir()?;
        let mut controllers = Vec::new();
        let links: Vec<Option<Link>> =
            (0..2).map(|at| args.namespaces.then(|| Link::lay(at)).transpose()).collect::<Result<_, _>>()?;
        let addresses = links.iter().map(|link| link.as_ref().map_or(Ipv4Addr::LOCALHOST, |link| link.host));
        let endpoints = serve_at(&server, &addresses.collect::<Vec<_>>(), args.quality)?;
        for (at, (link, endpoint)) in links.into_iter().zip(endpoints).enumerate() {
            let kubeconfig = dir.path().join(format!("{at}.kubeconfig"));
            fs::write(&kubeconfig, endpoint.kubeconfig())?;
            let mut controller = Controller { kubeconfig, lasts: args.lease_duration, link, child: None };
            controller.start()?;
            controllers.push(controller);
        }
        let queue = json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q0"}, "spec": {"weight": 1},
        });
        world::create_object(&client, QUEUES, &queue).await?;
        Ok(Self { client, controllers, jobs: 0, _dir: dir })
    }

    /// The controller that holds the Lease: its identity has the number of its process.
    async fn find_holder(&self) -> anyhow::Result<usize> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Ok(lease) = world::get_object(&self.client, LEASE).await {
                let holder = world::read_text(&lease, "/spec/holderIdentity").to_owned();
                let holds = |one: &Controller| {
                    one.child.as_ref().is_some_and(|child| holder.contains(&format!("-{}-", child.id())))
                };
                if let Some(at) = self.controllers.iter().position(holds) {
                    return Ok(at);
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("nobody holds the Lease")
    }

    /// A job, and when its gate was opened.
    async fn release_job(&mut self) -> anyhow::Result<Instant> {
        let index = self.jobs;
        self.jobs += 1;
        let job = world::create_object(&self.client, JOBS, &world::make_job(index, "q0")).await?;
        let binding = world::make_binding(index, world::read_text(&job, "/metadata/uid"));
        world::create_object(&self.client, BINDINGS, &binding).await?;
        let (path, until) = (format!("{BINDINGS}/job-{index}-job"), Instant::now() + PATIENCE);
        while Instant::now() < until {
            let binding = world::get_object(&self.client, &path).await?;
            if binding["metadata"]["annotations"][caldera::GATE] == caldera::GATE_OPEN {
                return Ok(Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::bail!("job {index} was not released")
    }

    async fn lose_holder(&mut self, loss: Loss) -> anyhow::Result<Duration> {
        let holder = self.find_holder().await?;
        self.release_job().await?;
        // The other one has seen the Lease as it is.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let lost = Instant::now();
        self.controllers[holder].suffer(loss)?;
        let released = self.release_job().await?;
        self.controllers[holder].recover(loss)?;
        anyhow::ensure!(self.find_holder().await? != holder, "the same one holds it again");
        tokio::time::sleep(Duration::from_secs(5)).await;
        // Who finds the Lease lost ends, and is started anew.
        self.controllers[holder].start()?;
        Ok(released.duration_since(lost))
    }
}

struct Controller {
    kubeconfig: PathBuf,
    lasts: u64,
    link: Option<Link>,
    child: Option<Child>,
}

impl Controller {
    fn start(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        let program = std::env::current_exe()?;
        let mut command = match &self.link {
            Some(link) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &link.namespace]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(["caldera", "controller", "--kubeconfig"]).arg(&self.kubeconfig);
        command.args(["--lease-duration", &self.lasts.to_string()]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().context("failed to start a controller")?);
        Ok(())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            child.wait()?;
        }
        Ok(())
    }

    fn suffer(&mut self, loss: Loss) -> anyhow::Result<()> {
        match loss {
            Loss::Killed => self.kill(),
            Loss::Stopped => self.send_signal("-STOP"),
            Loss::CutOff => self.link.as_ref().map_or(Ok(()), |link| link.switch("down")),
        }
    }

    fn recover(&mut self, loss: Loss) -> anyhow::Result<()> {
        match loss {
            Loss::Killed => self.start(),
            Loss::Stopped => self.send_signal("-CONT"),
            Loss::CutOff => self.link.as_ref().map_or(Ok(()), |link| link.switch("up")),
        }
    }

    fn send_signal(&self, signal: &str) -> anyhow::Result<()> {
        let Some(child) = &self.child else { return Ok(()) };
        run("kill", &[signal, &child.id().to_string()])
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// A network namespace, and the link to it.
struct Link {
    namespace: String,
    device: String,
    host: Ipv4Addr,
}

impl Link {
    fn lay(at: u8) -> anyhow::Result<Self> {
        let (namespace, device, peer) =
            (format!("caldera-bench-{at}"), format!("calderab{at}"), format!("calderap{at}"));
        let (host, other) = (Ipv4Addr::new(10, 91, at, 1), Ipv4Addr::new(10, 91, at, 2));
        let _ = run("ip", &["netns", "del", &namespace]);
        run("ip", &["netns", "add", &namespace])?;
        let link = Self { namespace, device, host };
        let Self { namespace, device, .. } = &link;
        run("ip", &["link", "add", device, "type", "veth", "peer", "name", &peer, "netns", namespace])?;
        run("ip", &["addr", "add", &format!("{host}/30"), "dev", device])?;
        run("ip", &["link", "set", device, "up"])?;
        let inside = |args: &[&str]| run("ip", &[&["-n", namespace.as_str()], args].concat());
        inside(&["addr", "add", &format!("{other}/30"), "dev", &peer])?;
        inside(&["link", "set", &peer, "up"])?;
        inside(&["link", "set", "lo", "up"])?;
        run(
            "tc",
            &["qdisc", "add", "dev", device, "root", "tbf", "rate", "10mbit", "burst", "64kb", "latency", "400ms"],
        )?;
        Ok(link)
    }

    fn switch(&self, state: &str) -> anyhow::Result<()> {
        run("ip", &["link", "set", &self.device, state])
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = run("ip", &["netns", "del", &self.namespace]);
    }
}

fn run(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program).args(args).output().with_context(|| format!("failed to run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{program} {}: {}", args.join(" "), said.trim());
    Ok(())
}

/// Serves HTTPS on each address until the process ends.
fn serve_at(server: &ApiServer, addresses: &[Ipv4Addr], quality: LinkQuality) -> anyhow::Result<Vec<Endpoint>> {
    let authority = Authority::new("caldera-bench")?;
    let all: Vec<IpAddr> = addresses.iter().map(|address| (*address).into()).collect();
    let identity = authority.issue_server_identity("host", &["localhost"], &all)?;
    let tls = axum_server::tls_rustls::RustlsConfig::from_config(server_config(&identity)?);
    let serve = |address: &Ipv4Addr| {
        let listener = TcpListener::bind(SocketAddr::from((*address, 0)))?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        tokio::spawn(axum_server::from_tcp_rustls(listener, tls.clone())?.serve(server.router().into_make_service()));
        let reached = if quality.is_perfect() { bound } else { serve_relay(*address, bound, quality)? };
        Ok(Endpoint {
            name: "host".to_owned(),
            server: format!("https://{reached}"),
            token: server.admin_token().to_owned(),
            ca_pem: authority.cert_pem.clone(),
        })
    };
    addresses.iter().map(serve).collect()
}
