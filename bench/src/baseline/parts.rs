//! Webhook, controller and scheduler as processes: what they wrote, and what they used.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use caldera_cli::roles;
use caldera_runtime::tls::Authority;
use kube::config::Kubeconfig;

use crate::machine;

/// Writes by component, verb and resource.
pub type Writes = BTreeMap<(String, String, String), u64>;

/// What a process used since the measurement began, and the memory that it has and had at most.
pub struct Used {
    pub name: String,
    pub cpu: Duration,
    pub memory: u64,
    /// Without the pages of files: those of the binary are shared.
    pub own: u64,
    pub most: u64,
}

struct Part {
    name: String,
    pid: u32,
    /// `None` for a process that somebody else started.
    child: Option<(Child, SocketAddr)>,
    cpu_before: Duration,
}

pub struct Parts {
    parts: Vec<Part>,
    webhook: SocketAddr,
    authority: Authority,
}

/// Until all components are ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is started.
#[derive(Debug, clap::Args)]
pub struct Choice {
    /// All of Caldera in one process, `caldera server`.
    #[arg(long)]
    one_process: bool,
    /// A `caldera` whose components are measured, for instance an earlier one; without it those of this build.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// A flag for the controller, beside those that are shipped. May be repeated.
    #[arg(long = "controller-flag", value_name = "FLAG", allow_hyphen_values = true)]
    controller_flags: Vec<String>,
}

impl Choice {
    /// `caldera <part>`.
    fn build_command(&self, part: &str) -> anyhow::Result<Command> {
        let mut command = match &self.program {
            Some(program) => Command::new(program),
            None => {
                let mut own = Command::new(std::env::current_exe()?);
                own.arg("caldera");
                own
            }
        };
        command.arg(part);
        if ["controller", "server"].contains(&part) {
            command.args(&self.controller_flags);
        }
        Ok(command)
    }
}

impl Parts {
    /// Starts them; `others` are processes that run already.
    pub fn start(dir: &Path, kubeconfig: &Path, others: &[(String, u32)], choice: &Choice) -> anyhow::Result<Self> {
        let one_process = choice.one_process;
        let webhook = free_address()?;
        let authority = Authority::new("caldera-bench")?;
        let identity = authority.issue_server_identity("webhook", &["localhost"], &[Ipv4Addr::LOCALHOST.into()])?;
        let (cert, key) = (dir.join("tls.crt"), dir.join("tls.key"));
        fs::write(&cert, &identity.cert_pem)?;
        fs::write(&key, &identity.key_pem)?;
        let own = |name: &str, pid| Part { name: name.to_owned(), pid, child: None, cpu_before: Duration::ZERO };
        let mut parts = vec![own("this process", std::process::id())];
        parts.extend(others.iter().map(|(name, pid)| own(name, *pid)));
        let accounts = ["webhook", "controller", "scheduler"];
        let file_of = |account: &str| dir.join(format!("{account}.kubeconfig"));
        for account in accounts {
            write_account(kubeconfig, &roles::name_account(account), &file_of(account))?;
        }
        for name in if one_process { &["server"][..] } else { &accounts } {
            let admin = free_address()?;
            let log = File::create(dir.join(format!("{name}.log")))?;
            let mut command = choice.build_command(name)?;
            command.args(["--admin", &admin.to_string(), "--lease-namespace", roles::NAMESPACE]);
            if one_process {
                for account in accounts {
                    command.arg(format!("--{account}-kubeconfig")).arg(file_of(account));
                }
            } else {
                command.arg("--kubeconfig").arg(file_of(name));
            }
            if ["webhook", "server"].contains(name) {
                command.args(["--listen", &webhook.to_string(), "--tls-cert"]).arg(&cert).arg("--tls-key").arg(&key);
            }
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            let child = command.spawn().with_context(|| format!("failed to start the {name}"))?;
            parts.push(Part { child: Some((child, admin)), ..own(name, 0) });
            if let Some(Part { pid, child: Some((child, _)), .. }) = parts.last_mut() {
                *pid = child.id();
            }
        }
        Ok(Self { parts, webhook, authority })
    }

    pub fn webhook_url(&self) -> String {
        format!("https://{}", self.webhook)
    }

    pub fn authority_pem(&self) -> &str {
        &self.authority.cert_pem
    }

    pub async fn wait_until_ready(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for (name, admin) in self.addresses() {
            while !ask(admin, "/readyz").await.is_ok_and(|answer| answer.starts_with("HTTP/1.0 200")) {
                anyhow::ensure!(Instant::now() < deadline, "the {name} is not ready");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    fn addresses(&self) -> impl Iterator<Item = (&str, SocketAddr)> {
        self.parts.iter().filter_map(|part| Some((part.name.as_str(), part.child.as_ref()?.1)))
    }

    /// What they wrote so far, as they say.
    pub async fn read_writes(&self) -> anyhow::Result<Writes> {
        let mut writes = Writes::new();
        for (name, admin) in self.addresses() {
            let text = ask(admin, "/metrics").await.with_context(|| format!("the {name} shows no metrics"))?;
            writes.extend(text.lines().filter_map(parse_count));
        }
        Ok(writes)
    }

    pub fn begin_measure(&mut self) {
        self.parts.iter_mut().for_each(|part| part.cpu_before = machine::read_cpu(part.pid).unwrap_or_default());
    }

    pub fn measure(&self) -> Vec<Used> {
        let memory = |part: &Part, field| machine::read_memory(part.pid, field).unwrap_or_default();
        let used = |part: &Part| Used {
            name: part.name.clone(),
            cpu: machine::read_cpu(part.pid).unwrap_or_default().saturating_sub(part.cpu_before),
            memory: memory(part, "VmRSS"),
            own: memory(part, "RssAnon"),
            most: memory(part, "VmHWM"),
        };
        self.parts.iter().map(used).collect()
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for (child, _) in self.parts.iter_mut().filter_map(|part| part.child.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// The same kubeconfig for an administrator who acts as the account, and so has its rights alone.
fn write_account(kubeconfig: &Path, account: &str, to: &Path) -> anyhow::Result<()> {
    let mut config = Kubeconfig::read_from(kubeconfig)?;
    for user in config.auth_infos.iter_mut().filter_map(|user| user.auth_info.as_mut()) {
        user.impersonate = Some(account.to_owned());
    }
    fs::write(to, serde_json::to_vec(&config)?)?;
    Ok(())
}

async fn ask(address: SocketAddr, path: &'static str) -> anyhow::Result<String> {
    let asking = move || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    tokio::task::spawn_blocking(asking).await?
}

/// `caldera_api_writes_total{component="c",verb="v",resource="r"} 3`.
fn parse_count(line: &str) -> Option<((String, String, String), u64)> {
    let (labels, count) = line.strip_prefix("caldera_api_writes_total{")?.rsplit_once("} ")?;
    let mut values = labels.split('"').skip(1).step_by(2).map(ToOwned::to_owned);
    Some(((values.next()?, values.next()?, values.next()?), count.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_as_it_is_shown() {
        let line = r#"caldera_api_writes_total{component="controller",verb="patch",resource="queues/status"} 17"#;
        let key = ["controller", "patch", "queues/status"].map(ToOwned::to_owned).into();
        assert_eq!(parse_count(line), Some((key, 17)));
        assert_eq!(parse_count("caldera_controller_pending_writes 0"), None);
    }
}
