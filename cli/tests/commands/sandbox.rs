//! A sandbox that ends with its test, and what is asked of it.

use std::{
    future::Future,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use caldera_cli::{manifests::parse_documents, stack};
use caldera_runtime::client::{WriteCounts, from_config, load_config};
use kube::Client;

use crate::{
    killed::Killed,
    outcome::read_outcome,
    turns::{Turn, take_turn},
};

pub const BINARY: &str = env!("CARGO_BIN_EXE_caldera");
pub const QUEUES: &str = include_str!("../../../manifests/examples/00-queues.yaml");
pub const SPLIT: &str = include_str!("../../../manifests/examples/10-mindspore-cpu.yaml");
pub const WAITING: &str = include_str!("../../../manifests/examples/40-low-priority.yaml");
/// On a busy machine; only failures last as long.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub struct Sandbox {
    _process: Killed,
    runtime: tokio::runtime::Runtime,
    pub host: Client,
    pub kubeconfig: String,
    _turn: Turn,
}

impl Sandbox {
    pub fn start(dir: &Path, members: u16) -> Self {
        Self::start_with(dir, &["--members", &members.to_string()])
    }

    pub fn start_with(dir: &Path, args: &[&str]) -> Self {
        let turn = take_turn();
        let started = Command::new(BINARY)
            .args(["sandbox", "--dir", dir.to_str().unwrap()])
            .args(args)
            .stdout(Stdio::piped())
            .spawn();
        let mut process = Killed(started.unwrap());
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"), "the sandbox ended before it was ready");
        let (runtime, path) = (tokio::runtime::Runtime::new().unwrap(), dir.join("host.kubeconfig"));
        let host = runtime.block_on(connect(&path));
        Self { _process: process, runtime, host, kubeconfig: path.to_str().unwrap().to_owned(), _turn: turn }
    }

    /// Exit code, standard output, standard error.
    pub fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        read_outcome(caldera(args).args(["--kubeconfig", &self.kubeconfig]).output().unwrap())
    }

    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub fn apply(&self, yaml: &str) {
        for object in parse_documents(yaml).unwrap() {
            self.wait(stack::apply_object(&self.host, object)).unwrap();
        }
    }
}

/// The program with these arguments, and nothing of its environment that says where a cluster is.
pub fn caldera(args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(args).stdin(Stdio::null());
    command.env_remove("KUBECONFIG").env("HOME", "/nonexistent").env_remove("KUBERNETES_SERVICE_HOST");
    command
}

pub async fn connect(kubeconfig: &Path) -> Client {
    from_config(load_config(Some(kubeconfig)).await.unwrap(), "test", &WriteCounts::default()).unwrap()
}

#[track_caller]
pub fn until<T>(what: &str, mut seen: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match seen() {
            Ok(found) => return found,
            Err(is) => assert!(Instant::now() < deadline, "{what}:\n{is}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}
