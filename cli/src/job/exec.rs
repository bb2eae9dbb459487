//! `caldera job exec`: runs a command in pods of a job, whichever clusters they are in ([`pods`](crate::pods)).
//!
//! Rule: as `kubectl exec`, over a WebSocket (`v5.channel.k8s.io`): in one pod what it prints is passed on as it is,
//! and its exit code is ours. In several, which `--all` asks for, each line says where it is from. Who may run commands
//! in a pod says the member. The sandbox runs no containers, and says so.

use std::{collections::BTreeMap, io::IsTerminal as _, process::ExitCode};

use anyhow::Context;
use caldera_runtime::client::describe_error;
use futures::{SinkExt as _, StreamExt as _, stream};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Status};
use kube::{
    Api, Client,
    api::{AttachParams, AttachedProcess, TerminalSize},
};
use ratatui::crossterm::terminal;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use crate::{
    args::JobExecArgs,
    components, output,
    pods::{JobPod, find_job_pods},
};

/// Pods in which it runs at once.
const AT_ONCE: usize = 16;
/// Pods that a refusal names.
const MOST_NAMED_PODS: usize = 4;

pub(super) async fn run_in_pods(args: JobExecArgs) -> anyhow::Result<ExitCode> {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    anyhow::ensure!(!args.tty || is_terminal, "there is no terminal to give to the command: leave out --tty");
    let (client, namespace) = components::connect_scope(&args.scope, "exec").await?;
    let found = find_job_pods(&client, &namespace, &args.pods, "exec").await?;
    // Whether it is the only one can not be told.
    let is_clear = args.all || !found.has_gaps;
    anyhow::ensure!(is_clear, "a cluster does not answer: name one that does by --cluster, or say --all");
    let pods = choose_running_pods(&found.pods, args.all).map_err(anyhow::Error::msg)?;
    match *pods.as_slice() {
        [pod] if !args.all => run_in_one(&found.members, &namespace, pod, &args).await,
        _ => Ok(run_in_each(&found.members, &namespace, &pods, &args, found.has_gaps).await),
    }
}

/// The one that runs, or all that do; or why there is none to run it in.
fn choose_running_pods(pods: &[JobPod], all: bool) -> Result<Vec<&JobPod>, String> {
    let running: Vec<&JobPod> = pods.iter().filter(|pod| pod.phase == "Running").collect();
    let list = |pods: &[&JobPod]| {
        let mut names: Vec<String> =
            pods.iter().take(MOST_NAMED_PODS).map(|pod| format!("{}/{}", pod.cluster, pod.pod)).collect();
        names.extend((pods.len() > MOST_NAMED_PODS).then(|| format!("and {} more", pods.len() - MOST_NAMED_PODS)));
        names.join(", ")
    };
    match running.len() {
        0 => Err(format!("none of its pods runs: {}", list(&pods.iter().collect::<Vec<_>>()))),
        1 => Ok(running),
        _ if all => Ok(running),
        many => Err(format!(
            "{many} such pods run: {}; name one by --task, --rank and --cluster, or say --all",
            list(&running)
        )),
    }
}

async fn start_command(
    members: &BTreeMap<String, Client>,
    namespace: &str,
    pod: &JobPod,
    args: &JobExecArgs,
) -> anyhow::Result<AttachedProcess> {
    let member = members.get(&pod.cluster).context("its cluster does not answer")?;
    let pods: Api<Pod> = Api::namespaced(member.clone(), namespace);
    let params = AttachParams {
        container: (!pod.container.is_empty()).then(|| pod.container.clone()),
        stdin: args.stdin,
        stdout: true,
        stderr: !args.tty,
        tty: args.tty,
        ..AttachParams::default()
    };
    let started = pods.exec(&pod.pod, args.command.clone(), &params).await;
    started.map_err(|error| anyhow::anyhow!("{}/{}: {}", pod.cluster, pod.pod, describe_error(&error)))
}

/// Its output is ours, and so are its exit code and, if that is asked for, the terminal.
async fn run_in_one(
    members: &BTreeMap<String, Client>,
    namespace: &str,
    pod: &JobPod,
    args: &JobExecArgs,
) -> anyhow::Result<ExitCode> {
    let mut process = start_command(members, namespace, pod, args).await?;
    let status = process.take_status();
    let (stdin, resize) = (process.stdin(), process.terminal_size());
    let (stdout, stderr) = (process.stdout(), process.stderr());
    let raw = if args.tty { Some(RawTerminal::take()?) } else { None };
    let input = async {
        let (Some(mut stdin), true) = (stdin, args.stdin) else { return };
        let mut bytes = read_standard_input();
        while let Some(bytes) = bytes.recv().await {
            if stdin.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = stdin.shutdown().await;
    };
    let sizes = async {
        let (Some(mut resize), Ok(mut changes)) = (resize, signal(SignalKind::window_change())) else { return };
        loop {
            let Ok((width, height)) = terminal::size() else { return };
            if resize.send(TerminalSize { width, height }).await.is_err() || changes.recv().await.is_none() {
                return;
            }
        }
    };
    let outputs = async {
        let (is_read, _) = tokio::join!(copy_to(stdout, std::io::stdout()), copy_to(stderr, std::io::stderr()));
        match status {
            Some(status) if is_read => read_exit_code(status.await),
            // Who closes the pipe wants no more, and no exit code either.
            _ => Ok(0),
        }
    };
    let forever = async {
        tokio::join!(input, sizes);
        std::future::pending().await
    };
    let code = tokio::select! {
        biased;
        code = outputs => code,
        code = forever => code,
    };
    drop(raw);
    code.map(ExitCode::from).map_err(anyhow::Error::msg)
}

/// Whether all of it was read.
async fn copy_to(from: Option<impl AsyncRead + Unpin>, mut to: impl std::io::Write) -> bool {
    let Some(mut from) = from else { return true };
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..count]).and_then(|()| to.flush()).is_err() {
            return false;
        }
    }
    true
}

/// Each line with where it is from; fails if one does.
async fn run_in_each(
    members: &BTreeMap<String, Client>,
    namespace: &str,
    pods: &[&JobPod],
    args: &JobExecArgs,
    has_gaps: bool,
) -> ExitCode {
    let run = |pod| async move {
        let ended = async {
            let mut process = start_command(members, namespace, pod, args).await?;
            let (status, stdout, stderr) = (process.take_status(), process.stdout(), process.stderr());
            tokio::join!(print_lines(pod, stdout, false), print_lines(pod, stderr, true));
            let status = match status {
                Some(status) => status.await,
                None => None,
            };
            match read_exit_code(status) {
                Ok(0) => Ok(()),
                Ok(code) => Err(anyhow::anyhow!("{}/{}: it ended with {code}", pod.cluster, pod.pod)),
                Err(why) => Err(anyhow::anyhow!("{}/{}: {why}", pod.cluster, pod.pod)),
            }
        };
        ended.await.inspect_err(|why| output::write_warning(&format!("{why:#}"))).is_ok()
    };
    let ended: Vec<bool> = stream::iter(pods.iter().copied()).map(run).buffer_unordered(AT_ONCE).collect().await;
    if has_gaps || ended.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

async fn print_lines(pod: &JobPod, from: Option<impl AsyncRead + Unpin>, is_error: bool) {
    let Some(from) = from else { return };
    let mut lines = BufReader::new(from).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        let line = String::from_utf8_lossy(&line);
        let line = output::escape_controls(&format!("[{}/{}] {}", pod.cluster, pod.pod, line.trim_end_matches('\r')));
        if is_error {
            eprintln!("{line}");
        } else if !output::try_write(&format!("{line}\n")) {
            return;
        }
    }
}

/// The exit code by the last word of the kubelet (`k8s.io/client-go/tools/remotecommand`, `v4.go`).
fn read_exit_code(status: Option<Status>) -> Result<u8, String> {
    let Some(status) = status else { return Err("the connection broke off before the command ended".to_owned()) };
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
    let code = causes.iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = code.and_then(|cause| cause.message.as_deref()?.parse::<i64>().ok());
    match code {
        Some(code) => Ok(u8::try_from(code).unwrap_or(u8::MAX)),
        None => Err(status.message.unwrap_or_else(|| "the command could not be run".to_owned())),
    }
}

/// Standard input, read on a thread of its own: it ends with the process.
fn read_standard_input() -> mpsc::Receiver<Vec<u8>> {
    let (sender, bytes) = mpsc::channel(16);
    std::thread::spawn(move || {
        use std::io::Read as _;
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = std::io::stdin().read(&mut buffer) {
            if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    bytes
}

/// Gives the terminal back when it is dropped.
struct RawTerminal;

impl RawTerminal {
    fn take() -> anyhow::Result<Self> {
        terminal::enable_raw_mode().context("failed to take the terminal")?;
        Ok(Self)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = terminal::disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use caldera_crds::workload::WorkloadKind;
    use caldera_runtime::{
        client::{WriteCounts, build_token_config, from_config},
        members::proxy_client,
    };
    use serde_json::json;
    use tokio::net::TcpListener;
    use tokio_tungstenite::{
        accept_hdr_async,
        tungstenite::{
            Message,
            handshake::server::{Request, Response},
        },
    };

    use super::*;
    use crate::args::{JobName, PodsArgs, ScopeArgs};

    fn pod(name: &str, phase: &str) -> JobPod {
        JobPod {
            task: "w".to_owned(),
            rank: None,
            cluster: "m1".to_owned(),
            pod: name.to_owned(),
            container: "main".to_owned(),
            phase: phase.to_owned(),
        }
    }

    #[test]
    fn a_command_runs_in_one_pod_unless_all_are_asked_for() {
        let pods = [pod("a", "Running"), pod("b", "Pending"), pod("c", "Running")];
        let names = |pods: Vec<&JobPod>| pods.iter().map(|pod| pod.pod.clone()).collect::<Vec<_>>();
        let refused = choose_running_pods(&pods, false).unwrap_err();
        assert!(refused.starts_with("2 such pods run: m1/a, m1/c; name one by --task"), "{refused}");
        assert_eq!(choose_running_pods(&pods, true).map(names), Ok(vec!["a".to_owned(), "c".to_owned()]));
        assert_eq!(choose_running_pods(&pods[..2], false).map(names), Ok(vec!["a".to_owned()]));
        assert_eq!(choose_running_pods(&pods[1..2], true).unwrap_err(), "none of its pods runs: m1/b");
    }

    #[test]
    fn the_exit_code_of_the_command_is_ours() {
        let read = |status: serde_json::Value| read_exit_code(Some(serde_json::from_value(status).unwrap()));
        assert_eq!(read(json!({"status": "Success"})), Ok(0));
        let failed = json!({
            "status": "Failure", "reason": "NonZeroExitCode", "message": "command terminated with exit code 3",
            "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
        });
        assert_eq!(read(failed), Ok(3));
        let refused = read(json!({"status": "Failure", "message": "no such container"}));
        assert_eq!(refused, Err("no such container".to_owned()));
        assert!(read_exit_code(None).unwrap_err().contains("broke off"));
    }

    /// A member behind Karmada's proxy that says what it was asked for, and on which input, and ends with 3.
    #[allow(clippy::result_large_err, reason = "the callback's error is the handshake's answer")]
    async fn serve_command(listener: TcpListener) -> String {
        let (stream, _) = listener.accept().await.unwrap();
        let mut path = String::new();
        let callback = |request: &Request, mut answer: Response| {
            path = request.uri().to_string();
            answer.headers_mut().insert("sec-websocket-protocol", "v5.channel.k8s.io".parse().unwrap());
            Ok(answer)
        };
        let mut socket = accept_hdr_async(stream, callback).await.unwrap();
        let said = loop {
            let message = socket.next().await.unwrap().unwrap().into_data();
            if message.first() == Some(&0) {
                break message[1..].to_vec();
            }
        };
        let status = json!({
            "status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
        });
        for (channel, bytes) in [(1, said), (2, b"no".to_vec()), (3, status.to_string().into_bytes())] {
            socket.send(Message::binary([vec![channel], bytes].concat())).await.unwrap();
        }
        path
    }

    #[tokio::test]
    async fn a_command_goes_through_karmadas_proxy_and_its_words_and_exit_code_come_back() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(serve_command(listener));
        let config = build_token_config(&url, "t", None, false).unwrap();
        let host = from_config(config, "test", &WriteCounts::default()).unwrap();
        let members = [("m1".to_owned(), proxy_client(&host, "m1"))].into();
        let job = JobName { kind: WorkloadKind::VolcanoJob, name: "train".to_owned() };
        let args = JobExecArgs {
            pods: PodsArgs { job, task: None, rank: None, cluster: None, container: None },
            all: false,
            stdin: true,
            tty: false,
            scope: ScopeArgs { namespace: None, kubeconfig: None },
            command: ["cat", "a b"].map(str::to_owned).into(),
        };
        let mut process = start_command(&members, "ns", &pod("p", "Running"), &args).await.unwrap();
        process.stdin().unwrap().write_all(b"hello").await.unwrap();
        let (status, mut stdout, mut stderr) =
            (process.take_status().unwrap(), process.stdout().unwrap(), process.stderr().unwrap());
        let (mut out, mut err) = (String::new(), String::new());
        stdout.read_to_string(&mut out).await.unwrap();
        stderr.read_to_string(&mut err).await.unwrap();
        assert_eq!((out.as_str(), err.as_str(), read_exit_code(status.await)), ("hello", "no", Ok(3)));
        let path = server.await.unwrap();
        let pod = "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy/api/v1/namespaces/ns/pods/p/exec?";
        assert!(path.starts_with(pod) && path.contains("command=cat&command=a+b"), "{path}");
        assert!(path.contains("stdin=true") && path.contains("container=main"), "{path}");
    }
}
