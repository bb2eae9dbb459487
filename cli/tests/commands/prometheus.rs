//! The alert rules with a real Prometheus: their own test passes, and one of them fires when the controller that it
//! scrapes is gone, and resolves when that is back. That controller leaves placement to karmada-scheduler: no scheduler
//! of ours is missed. Where Prometheus is not installed they are skipped, and that is said; where CI is set that fails,
//! unless `.ci/run` found that none can be had.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use caldera_runtime::tls::install_provider;
use caldera_sandbox::fleet::{Config, Fleet};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::killed::Killed;

/// A machine that is busy may take as long.
const AT_LAST: Duration = Duration::from_secs(120);
const ALERT: &str = "CalderaNoLeader";

fn monitoring() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/monitoring")
}

/// Whether a program of Prometheus is here.
fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        let must_be = std::env::var_os("CI").is_some() && std::env::var_os("CALDERA_NO_PROMETHEUS").is_none();
        assert!(!must_be, "{program} is not installed, and CI is set");
        eprintln!("SKIPPED: {program} is not installed, so the alert rules are not tried");
    }
    found
}

fn promtool(words: &[&str]) {
    let output = Command::new("promtool").args(words).current_dir(monitoring()).output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{words:?}: {said:?}");
}

#[test]
fn prometheus_takes_the_rules_and_they_fire_and_resolve_as_their_test_says() {
    if is_installed("promtool") {
        promtool(&["check", "rules", "alerts.yaml"]);
        promtool(&["test", "rules", "alerts.test.yaml"]);
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

fn start_controller(kubeconfig: &Path, admin: SocketAddr) -> Killed {
    let started = Command::new(env!("CARGO_BIN_EXE_caldera"))
        .args(["controller", "--stock-scheduler", "--lease-duration", "3"])
        .args(["--admin", &admin.to_string(), "--kubeconfig"])
        .arg(kubeconfig)
        .stderr(Stdio::null())
        .spawn();
    Killed(started.unwrap())
}

/// The rules as they are shipped, but for how long they wait.
fn hurry_rules() -> String {
    let mut rules: Value =
        serde_saphyr::from_str(&fs::read_to_string(monitoring().join("alerts.yaml")).unwrap()).unwrap();
    for rule in rules["groups"][0]["rules"].as_array_mut().unwrap() {
        rule["for"] = "1s".into();
    }
    rules.to_string()
}

fn start_prometheus(dir: &Path, address: SocketAddr, target: SocketAddr) -> Killed {
    fs::write(dir.join("rules.yaml"), hurry_rules()).unwrap();
    let config = json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "caldera", "static_configs": [{"targets": [target.to_string()]}]}],
    });
    fs::write(dir.join("prometheus.yaml"), config.to_string()).unwrap();
    let started = Command::new("prometheus")
        .args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--log.level=warn"])
        .arg(format!("--web.listen-address={address}"))
        .current_dir(dir)
        .spawn();
    Killed(started.unwrap())
}

/// What Prometheus answers; none while it does not.
fn ask(address: SocketAddr, path: &str) -> Option<Value> {
    let mut tcp = TcpStream::connect(address).ok()?;
    tcp.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    tcp.write_all(format!("GET {path} HTTP/1.0\r\nhost: h\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

fn until(what: &str, is_so: impl Fn() -> Result<bool, Value>) {
    let began = Instant::now();
    loop {
        let seen = is_so();
        if seen == Ok(true) {
            return;
        }
        assert!(began.elapsed() < AT_LAST, "{what}: {seen:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_fires_when_the_controller_is_gone_and_resolves_when_it_is_back() {
    if !is_installed("prometheus") {
        return;
    }
    install_provider();
    let stop = CancellationToken::new();
    let fleet = Fleet::start(Config::with_members(0), &stop).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    fleet.write_kubeconfigs(dir.path()).unwrap();
    let path = dir.path().to_owned();
    tokio::task::spawn_blocking(move || {
        let (kubeconfig, admin, address) = (path.join("host.kubeconfig"), free_address(), free_address());
        let controller = start_controller(&kubeconfig, admin);
        let _prometheus = start_prometheus(&path, address, admin);
        let query = "/api/v1/query?query=caldera_leader";
        until("it is scraped, and leads", || {
            let answer = ask(address, query).unwrap_or_default();
            if answer["data"]["result"][0]["value"][1] == "1" { Ok(true) } else { Err(answer) }
        });
        let is_firing = |wanted: bool| {
            let answer = ask(address, "/api/v1/alerts").unwrap_or_default();
            let Some(alerts) = answer["data"]["alerts"].as_array() else { return Err(answer) };
            let fires = |alert: &Value| alert["labels"]["alertname"] == ALERT && alert["state"] == "firing";
            if alerts.iter().any(fires) == wanted { Ok(true) } else { Err(answer) }
        };
        until("nothing fires while it leads", || is_firing(false));
        drop(controller);
        until("it fires", || is_firing(true));
        let _controller = start_controller(&kubeconfig, admin);
        until("it resolves", || is_firing(false));
    })
    .await
    .unwrap();
    stop.cancel();
}
