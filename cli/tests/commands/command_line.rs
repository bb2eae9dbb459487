//! What the binary says and how it ends: wrong input, taken ports, help, signals.

#![allow(clippy::zombie_processes, reason = "a failing test leaves its child to the system")]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use caldera_crds::published::ClusterInventory;
use caldera_runtime::client::{self, WriteCounts};

use crate::{
    killed::Killed,
    turns::{Turn, take_turn},
};

/// How long a process may take for what it does at once, on a machine that is busy with much else. Only failures last
/// as long.
const PATIENCE: Duration = Duration::from_secs(120);

fn caldera(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_caldera"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("KUBECONFIG").env("HOME", "/nonexistent").env_remove("KUBERNETES_SERVICE_HOST");
    command
}

/// Runs to the end; killed, and the test failed, if that takes longer than any refusal may.
fn ends(args: &[&str]) -> Output {
    let child = caldera(args).spawn().unwrap();
    let id = child.id().to_string();
    let (done, output) = mpsc::channel();
    thread::spawn(move || done.send(child.wait_with_output()));
    output
        .recv_timeout(PATIENCE)
        .unwrap_or_else(|_| {
            let _ = Command::new("kill").args(["-KILL", &id]).status();
            panic!("{args:?} did not end within {PATIENCE:?}");
        })
        .unwrap()
}

fn wait(child: &mut Child, what: &[&str]) {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("{what:?} did not end within {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Ends with exit code 1 and one sentence that has these words.
fn fails(args: &[&str], words: &[&str]) {
    let output = ends(args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {text}");
    let said = text.find("caldera: ").map(|start| &text[start..]);
    let said = said.unwrap_or_else(|| panic!("{args:?}: {text}"));
    for word in words {
        assert!(said.contains(word), "{args:?}: {word:?} is not in {said:?}");
    }
    assert!(!text.contains("panicked"), "{text}");
}

/// A kubeconfig of a server that nobody runs at `address`.
fn kubeconfig(dir: &Path, address: &str) -> String {
    let path = dir.join("dead.kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster:\n    server: \
         https://{address}\nusers:\n- name: u\n  user:\n    token: t\ncontexts:\n- name: c\n  context:\n    cluster: \
         c\n    user: u\n"
    );
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A `caldera sandbox` that serves.
struct Sandbox {
    child: Killed,
    /// URLs of its servers.
    servers: Vec<String>,
    _turn: Turn,
}

impl Sandbox {
    fn start(dir: &Path, members: &str) -> Self {
        Self::start_with(dir, &["--bare", "--members", members])
    }

    fn start_with(dir: &Path, args: &[&str]) -> Self {
        let turn = take_turn();
        let mut child = Killed(caldera(&["sandbox", "--dir", dir.to_str().unwrap()]).args(args).spawn().unwrap());
        let mut servers = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if line == "ready" {
                return Self { child, servers, _turn: turn };
            }
            servers.extend(line.split_whitespace().find(|word| word.starts_with("https://")).map(str::to_owned));
        }
        let mut text = String::new();
        let _ = child.stderr.take().unwrap().read_to_string(&mut text);
        panic!("the sandbox ended before it was ready: {text}");
    }
}

#[test]
fn a_kubeconfig_that_is_not_there_is_reported() {
    for component in ["webhook", "controller", "scheduler", "member-sim", "karmada-sim"] {
        fails(&[component, "--kubeconfig", "/no/such/file"], &["/no/such/file"]);
    }
    fails(&["why", "job", "--kubeconfig", "/no/such/file"], &["/no/such/file"]);
    fails(&["queue", "--kubeconfig", "/no/such/file"], &["/no/such/file"]);
    for asks in [&["doctor"][..], &["uninstall"], &["job", "list"], &["job", "hold", "x"], &["cluster", "list"]] {
        fails(&[asks, &["--kubeconfig", "/no/such/file"]].concat(), &["/no/such/file"]);
    }
}

#[test]
fn a_kubeconfig_that_is_none_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("garbage");
    fs::write(&path, "neither: [this\n").unwrap();
    fails(&["controller", "--kubeconfig", path.to_str().unwrap()], &["garbage"]);
    // What is in it may be a secret.
    fs::write(&path, "users: [{name: u, user: {token: [hunter2]}}]\n").unwrap();
    let output = ends(&["job", "list", "--kubeconfig", path.to_str().unwrap()]);
    let reported = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(1) && reported.contains("garbage") && !reported.contains("hunter2"),
        "{reported}"
    );
}

#[test]
fn wrong_usage_is_exit_code_2_and_a_failure_is_1() {
    for wrong in [
        &["job", "list", "--state", "Sleeping"][..],
        &["job", "list", "--no-such-flag"],
        &["job", "hold"],
        &["queue", "set", "q"],
        &["queue", "set", "q", "--capability", "cpu=lots"],
        &["no-such-command"],
    ] {
        let output = ends(wrong);
        let reported = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {reported}");
    }
    let reported = String::from_utf8(ends(&["job", "list", "--state", "Sleeping"]).stderr).unwrap();
    assert!(reported.contains("Waiting") && reported.contains("Inadmissible"), "{reported}");
    fails(&["job", "list", "--state", "waiting", "--kubeconfig", "/no/such/file"], &["/no/such/file"]);
}

#[test]
fn no_kubeconfig_at_all_is_reported() {
    fails(&["controller"], &["kubeconfig"]);
}

#[test]
fn a_collector_that_is_none_ends_a_component_that_names_it_and_no_command_where_a_variable_does() {
    fails(&["controller", "--otlp-endpoint", "localhost:4317"], &["localhost:4317", "http://HOST:PORT"]);
    for variable in ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] {
        for address in ["localhost:4317", ""] {
            let run = |args: &[&str]| {
                let output = caldera(args).env(variable, address).output().unwrap();
                (output.status.code(), String::from_utf8(output.stderr).unwrap())
            };
            assert_eq!(run(&["completions", "bash"]), (Some(0), String::new()), "{variable}={address}");
            let (code, reported) = run(&["controller"]);
            assert!(code == Some(1) && reported.contains("kubeconfig"), "{variable}={address}: {reported}");
            assert_eq!(reported.contains("no spans are sent"), !address.is_empty(), "{variable}={address}: {reported}");
        }
    }
}

#[test]
fn a_server_that_does_not_answer_is_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    // Nobody listens at a port that was just given back.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let file = kubeconfig(dir.path(), &address);
    for component in ["webhook", "controller", "scheduler", "member-sim", "karmada-sim"] {
        // Who tries again and again does not end at all.
        fails(&[component, "--kubeconfig", &file], &[&address]);
    }
}

#[test]
fn a_taken_port_is_reported_with_its_address() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(dir.path(), "0");
    let file = dir.path().join("host.kubeconfig");
    let file = file.to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for component in ["webhook", "controller", "scheduler"] {
        fails(&[component, "--kubeconfig", file, "--admin", &address], &[&address, "in use"]);
    }
    fails(&["webhook", "--kubeconfig", file, "--listen", &address], &[&address, "in use"]);
    fails(&["member-sim", "--kubeconfig", file, "--admission", &address], &[&address, "in use"]);
    let other = dir.path().join("other");
    fails(&["sandbox", "--dir", other.to_str().unwrap(), "--listen", &address], &[&address, "in use"]);
    drop(sandbox);
}

#[test]
fn a_folder_that_can_not_be_written_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("below");
    fails(&["sandbox", "--members", "0", "--dir", below.to_str().unwrap()], &["below"]);
}

#[test]
fn a_wrong_certificate_is_reported_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(dir.path(), "0");
    let file = dir.path().join("host.kubeconfig");
    let file = file.to_str().unwrap();
    let (cert, key) = ("/no/such/cert.pem", "/no/such/key.pem");
    fails(&["webhook", "--kubeconfig", file, "--tls-cert", cert, "--tls-key", key], &[cert]);
    drop(sandbox);
}

#[test]
fn a_bad_webhook_address_is_reported() {
    fails(&["manifests", "--webhook-url", "http://plain"], &["--webhook-url", "https://", "http://plain"]);
    fails(&["manifests", "--webhook-url", "https://"], &["--webhook-url"]);
    fails(&["manifests", "--webhook-url", "https://a b"], &["--webhook-url"]);
    fails(&["manifests", "--webhook-service", "nameonly"], &["--webhook-service"]);
    fails(&["manifests", "--webhook-service", "ns/name:port"], &["port"]);
    fails(&["manifests", "--webhook-service", "/name"], &["--webhook-service"]);
    fails(&["manifests", "--ca-bundle", "/no/such/bundle"], &["/no/such/bundle"]);
}

#[test]
fn contradicting_arguments_are_a_usage_error() {
    for args in [
        &["manifests", "--webhook-url", "https://a", "--webhook-service", "a/b"][..],
        &["sandbox"],
        &["sandbox", "--dir", "d", "--members", "65"],
        &["sandbox", "--dir", "d", "--listen", "nowhere"],
        &["webhook", "--tls-cert", "c"],
        &["controller", "--shadow", "--data-catalogue", "https://c/{name}"],
        &["queue", "list", "--otlp-endpoint", "http://collector:4318"],
        &["member-sim", "--nodes", "x"],
        &["nonsense"],
        &["why"],
        &["why", "service/x"],
        &["why", "x", "-o", "xml"],
        &["queue", "x", "y"],
        &["queue", "set", "x"],
        &["queue", "set", "x", "--capability", "cpu"],
        &["job", "list", "-A", "-n", "x"],
        &["cluster", "cordon"],
        &["doctor", "--fail-on", "note"],
        &["completions", "cmd"],
    ] {
        let output = ends(args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.starts_with("error: "), "{args:?}: {text}");
    }
}

#[test]
fn every_subcommand_has_help() {
    for (subcommand, words) in [
        ("demo", &["--json", "--keep", "--deadline"][..]),
        ("sandbox", &["--dir", "--members", "--listen", "--bare", "--collectors"]),
        ("member-sim", &["--kubeconfig", "--nodes", "--default-run", "--no-workloads", "--admission"]),
        ("karmada-sim", &["--kubeconfig"]),
        ("webhook", &["--kubeconfig", "--listen", "--tls-cert", "--tls-key", "--register-url", "--admin"]),
        (
            "controller",
            &["--kubeconfig", "--admin", "--lease-namespace", "--no-lease", "--order", "--reservation-after"],
        ),
        (
            "scheduler",
            &[
                "--kubeconfig",
                "--admin",
                "--no-lease",
                "--scheduler-estimator-ca-file",
                "10352",
                "--enable-empty-workload",
            ],
        ),
        (
            "inventory",
            &["--cluster", "--kubeconfig", "--member-kubeconfig", "--in-member", "--heartbeat", "--no-lease"],
        ),
        (
            "estimator",
            &["--cluster", "--kubeconfig", "--listen", "10352", "--grpc-auth-cert-file", "--grpc-client-ca-file"],
        ),
        ("manifests", &["--webhook-url", "--webhook-service", "--ca-bundle", "--only", "--deployments", "--member"]),
        ("why", &["--namespace", "--kubeconfig", "--output", "wide", "yaml"]),
        ("doctor", &["--grace", "--fail-on", "--lease-namespace", "--output", "Exit codes"]),
        ("uninstall", &["--open-gates", "--crds", "--dry-run", "--yes", "Exit codes"]),
        ("queue", &["--first", "--kubeconfig", "--output", "tree"]),
    ] {
        let output = ends(&[subcommand, "--help"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{subcommand}");
        for word in words {
            assert!(text.contains(word), "{word} is not in the help of {subcommand}: {text}");
        }
        // Every option says what it is for: a line of flags is followed by text, which is indented further.
        let mut lines = text.lines().skip_while(|line| !line.starts_with("Options")).skip(1).peekable();
        while let Some(line) = lines.next() {
            let flag = ["  -", "      --"].iter().any(|start| line.starts_with(start));
            let described =
                line.trim().split_once("  ").is_some() || lines.peek().is_some_and(|next| !next.trim().is_empty());
            assert!(!flag || described, "{subcommand}: nothing is said of {line:?}");
        }
    }
    let text = String::from_utf8(ends(&["--help"]).stdout).unwrap();
    assert!(text.contains("sandbox") && text.contains("member-sim") && text.contains("manifests"), "{text}");
    assert_eq!(ends(&["--version"]).status.code(), Some(0));
}

#[cfg(unix)]
#[test]
fn a_signal_ends_the_sandbox_at_once_and_frees_its_ports() {
    for signal in ["-INT", "-TERM"] {
        let dir = tempfile::tempdir().unwrap();
        let mut sandbox = Sandbox::start_with(dir.path(), &["--members", "2"]);
        assert_eq!(sandbox.servers.len(), 3);
        for server in ["host", "members/member1", "members/member2"] {
            assert!(dir.path().join(format!("{server}.kubeconfig")).is_file(), "{server}");
        }
        // Who did it is saved as the controller ends.
        let host = dir.path().join("host.kubeconfig");
        until("the controller has made the default queue", || {
            ends(&["pause", "--kubeconfig", host.to_str().unwrap()]).status.success()
        });
        let sent = Command::new("kill").args([signal, &sandbox.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        wait(&mut sandbox.child, &["kill", signal]);
        assert_eq!(sandbox.child.wait().unwrap().code(), Some(0), "{signal}");
        let mut said = String::new();
        sandbox.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(!said.contains("not saved"), "the host ended before what writes to it: {said}");
        for server in &sandbox.servers {
            let address = server.strip_prefix("https://").unwrap();
            TcpListener::bind(address).unwrap_or_else(|error| panic!("{address} is not free: {error}"));
        }
    }
}

/// Whether the admin port says that the component is ready.
fn is_ready(admin: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(admin) else { return false };
    let mut answer = String::new();
    let asked = write!(stream, "GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A Deployment rolls out pod by pod: the next one must get ready while the one before still has the lease.
#[test]
fn a_replica_that_stands_by_is_ready_as_the_active_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let _sandbox = Sandbox::start(dir.path(), "0");
    let kubeconfig = dir.path().join("host.kubeconfig");
    let start = || {
        let admin = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let args = ["controller", "--kubeconfig", kubeconfig.to_str().unwrap(), "--admin", &admin];
        let child = caldera(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        (Killed(child), admin)
    };
    let (_active, first) = start();
    until("the active one is ready", || is_ready(&first));
    let (_standby, second) = start();
    // Whoever waits for the lease is ready, and is not for a moment when it has got it: until everything is listed.
    until("both are ready at once", || is_ready(&first) && is_ready(&second));
}

#[test]
fn a_sandbox_with_collectors_shows_what_each_member_can_take() {
    let dir = tempfile::tempdir().unwrap();
    let _sandbox = Sandbox::start_with(dir.path(), &["--members", "2", "--collectors"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = runtime.block_on(client::load_config(Some(&dir.path().join("host.kubeconfig")))).unwrap();
    let client = runtime.block_on(async { client::from_config(config, "test", &WriteCounts::default()) }).unwrap();
    let all: kube::Api<ClusterInventory> = kube::Api::all(client);
    until("each member has a heartbeat and a part", || {
        let found = runtime.block_on(all.list(&kube::api::ListParams::default())).unwrap();
        let names = |of: fn(&ClusterInventory) -> bool| -> Vec<String> {
            found.iter().filter(|object| of(object)).map(|object| object.spec.cluster.clone()).collect()
        };
        let both = ["member1", "member2"];
        names(|object| object.spec.heartbeat.as_ref().is_some_and(|heartbeat| heartbeat.nodes > 0)) == both
            && names(|object| object.spec.part.is_some()) == both
    });
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child = caldera(&["manifests", "--only", "crds"]).spawn().unwrap();
    let mut first = [0; 3];
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut first).unwrap();
    drop(out);
    wait(&mut child, &["manifests", "--only", "crds"]);
    assert_eq!((child.wait().unwrap().code(), &first), (Some(0), b"---"));
}

#[test]
fn an_answer_that_is_lost_on_a_full_disk_is_no_success() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = caldera(&["manifests", "--only", "crds"]).stdout(full).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("failed to write to standard output"), "{said}");
}

#[test]
fn the_demo_prints_one_json_document_also_where_it_has_no_time_to_hold_what_it_promises() {
    // A busy machine takes minutes to start it and to end it.
    let output = caldera(&["demo", "--json", "--deadline", "1"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["acts"].as_array().map(Vec::len), Some(5), "{document}");
    assert!(output.status.code() == Some(1) && said.contains("caldera: waited in vain for "), "{said}");
}

#[test]
fn a_variable_that_names_no_shell_asks_for_no_completion() {
    let output = caldera(&["completions", "bash"]).env("COMPLETE", "1").output().unwrap();
    assert!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
}

#[test]
fn as_a_plugin_of_kubectl_it_is_called_so_and_completes_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, args: &[&str]| {
        let link = dir.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_caldera"), &link).unwrap();
        let output =
            Command::new(link).args(args).env("HOME", "/nonexistent").env_remove("KUBECONFIG").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let help = run("kubectl-caldera", &["queue", "--help"]);
    assert!(help.contains("Usage: kubectl caldera queue "), "{help}");
    assert!(run("kubectl_complete-caldera", &["job", "susp"]).starts_with("suspend\t"));
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = ends(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("COMPLETE"), "{shell}: {script}");
    }
}
