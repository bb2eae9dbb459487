//! The components as processes: killed, stopped, started again, and measured.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use caldera_cli::roles;
use caldera_runtime::tls::Authority;
use caldera_sandbox::fleet::Endpoint;

use super::load::Dice;
use crate::machine;

/// A process of a component.
struct Replica {
    name: String,
    args: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
    born: Instant,
    /// It is to be started, or to go on, then.
    again: Option<Instant>,
    /// Seconds of this life, KiB, and open files.
    samples: Vec<(f64, u64, usize)>,
    kills: u32,
    pauses: u32,
    most: u64,
}

impl Replica {
    fn start(&mut self) -> anyhow::Result<()> {
        let log = fs::OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("caldera").args(&self.args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().with_context(|| format!("failed to start {}", self.name))?);
        (self.born, self.again, self.samples) = (Instant::now(), None, Vec::new());
        Ok(())
    }

    fn send_signal(&self, signal: &str) -> anyhow::Result<()> {
        let Some(child) = &self.child else { return Ok(()) };
        Command::new("kill").args([signal, &child.id().to_string()]).status()?;
        Ok(())
    }

    fn sample(&mut self) {
        let Some(pid) = self.child.as_ref().map(Child::id) else { return };
        let files = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        if let Some(memory) = machine::read_memory(pid, "VmRSS") {
            self.most = self.most.max(memory);
            self.samples.push((self.born.elapsed().as_secs_f64(), memory, files));
        }
    }

    /// KiB a minute by least squares, without the first five minutes of its life; `None` of a short life.
    fn slope(&self) -> Option<f64> {
        let points: Vec<(f64, f64)> = self
            .samples
            .iter()
            .filter(|(at, ..)| *at > 300.0)
            .map(|(at, memory, _)| (at / 60.0, *memory as f64))
            .collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        (points.len() >= 20).then(|| points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread)
    }
}

pub struct Processes {
    replicas: Vec<Replica>,
    dice: Dice,
    webhook: SocketAddr,
    authority: Authority,
    certificate: (PathBuf, PathBuf),
    rotations: u32,
}

impl Processes {
    pub fn start(dir: &Path, host: &Endpoint, seed: u64) -> anyhow::Result<Self> {
        let webhook = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let certificate = (dir.join("tls.crt"), dir.join("tls.key"));
        let authority = Authority::new("soak")?;
        let mut all =
            Self { replicas: Vec::new(), dice: Dice::new(seed ^ 7), webhook, authority, certificate, rotations: 0 };
        all.rotate_certificate()?;
        let (cert, key) = (all.certificate.0.display().to_string(), all.certificate.1.display().to_string());
        let listen = webhook.to_string();
        let serve = ["--listen", &listen, "--tls-cert", &cert, "--tls-key", &key];
        let parts: [(&str, &str, &[&str]); 5] = [
            ("webhook", "webhook", &serve),
            ("controller", "controller-1", &["--no-reclaim", "--no-preemption"]),
            ("controller", "controller-2", &["--no-reclaim", "--no-preemption"]),
            ("scheduler", "scheduler-1", &[]),
            ("scheduler", "scheduler-2", &[]),
        ];
        for (component, name, extra) in parts {
            let kubeconfig = dir.join(format!("{name}.kubeconfig"));
            // An administrator who acts as the component's own account, and so has its rights alone.
            let account = format!("    as: {}\ncontexts:", roles::name_account(component));
            fs::write(&kubeconfig, host.kubeconfig().replace("contexts:", &account))?;
            let base = [component, "--kubeconfig", &kubeconfig.display().to_string()].map(ToOwned::to_owned);
            let lease = ["--lease-namespace", roles::NAMESPACE].map(ToOwned::to_owned);
            let extra = extra.iter().map(|arg| (*arg).to_owned());
            let mut replica = Replica {
                name: name.to_owned(),
                args: base.into_iter().chain(lease).chain(extra).collect(),
                log: dir.join(format!("{name}.log")),
                child: None,
                born: Instant::now(),
                again: None,
                samples: Vec::new(),
                kills: 0,
                pauses: 0,
                most: 0,
            };
            replica.start()?;
            all.replicas.push(replica);
        }
        Ok(all)
    }

    pub fn webhook_url(&self) -> String {
        format!("https://{}", self.webhook)
    }

    pub fn authority_pem(&self) -> &str {
        &self.authority.cert_pem
    }

    /// A new certificate of the same authority, for who reads the files next.
    pub fn rotate_certificate(&mut self) -> anyhow::Result<()> {
        let identity = self.authority.issue_server_identity("soak", &["localhost"], &[Ipv4Addr::LOCALHOST.into()])?;
        for (path, text) in [(&self.certificate.0, &identity.cert_pem), (&self.certificate.1, &identity.key_pem)] {
            let next = path.with_extension("next");
            fs::write(&next, text)?;
            fs::rename(&next, path)?;
        }
        self.rotations += 1;
        Ok(())
    }

    pub fn sample(&mut self) {
        self.replicas.iter_mut().for_each(Replica::sample);
    }

    /// Kills one, or stops it for up to twenty seconds: longer than a lease lasts.
    pub fn harm_one(&mut self, may_kill: bool) -> anyhow::Result<()> {
        let at = self.dice.below(self.replicas.len() as u64) as usize;
        let (kills, seconds) = (may_kill && self.dice.below(2) == 0, 1 + self.dice.below(20));
        let replica = &mut self.replicas[at];
        if replica.again.is_some() {
            return Ok(());
        }
        if kills {
            if let Some(mut child) = replica.child.take() {
                child.kill()?;
                child.wait()?;
            }
            replica.kills += 1;
        } else {
            replica.send_signal("-STOP")?;
            replica.pauses += 1;
        }
        replica.again = Some(Instant::now() + Duration::from_secs(if kills { seconds / 4 } else { seconds }));
        Ok(())
    }

    /// Starts who is down, or goes on who is stopped, once it is time; one that ended by itself at once.
    pub fn revive(&mut self) -> anyhow::Result<()> {
        for replica in &mut self.replicas {
            let has_ended = match &mut replica.child {
                Some(child) => child.try_wait()?.is_some(),
                None => true,
            };
            if has_ended && replica.again.is_none_or(|again| again <= Instant::now()) {
                replica.start()?;
            } else if replica.again.is_some_and(|again| again <= Instant::now()) {
                replica.send_signal("-CONT")?;
                replica.again = None;
            }
        }
        Ok(())
    }

    pub fn summarize(&self) -> String {
        let one = |replica: &Replica| {
            let (_, memory, files) = replica.samples.last().copied().unwrap_or_default();
            format!("{} {} MiB {files} files", replica.name, memory / 1024)
        };
        self.replicas.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    pub fn print_table(&self) {
        println!(
            "process        kills  pauses  most MiB  last MiB  KiB a minute  files  minutes of the last life  log KiB"
        );
        for replica in &self.replicas {
            let (at, memory, files) = replica.samples.last().copied().unwrap_or_default();
            let slope = replica.slope().map_or_else(|| "-".to_owned(), |slope| format!("{slope:.1}"));
            let log = fs::metadata(&replica.log).map_or(0, |log| log.len() / 1024);
            println!(
                "{:<14} {:>5} {:>7} {:>9} {:>9} {slope:>13} {files:>6} {:>25.0} {log:>8}",
                replica.name,
                replica.kills,
                replica.pauses,
                replica.most / 1024,
                memory / 1024,
                at / 60.0,
            );
        }
        println!("certificates of the webhook: {}", self.rotations);
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for replica in &mut self.replicas {
            if let Some(child) = &mut replica.child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}
