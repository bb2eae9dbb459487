//! `caldera server` as a process against a sandbox: a job through to its end with the rights of three accounts and its
//! spans at a collector of traces, an end on SIGTERM, and an end in words. Beside it a collector of the member's
//! inventory and its estimator, each with its metrics.
#![cfg(unix)]

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use caldera_cli::{manifests, roles, stack};
use caldera_crds::trusted::TrustedWriters;
use caldera_runtime::{
    client::{WriteCounts, from_config},
    tls::{Authority, install_provider},
    watch::api_resource,
};
use caldera_sandbox::fleet::{Config, Fleet};
use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    config::Kubeconfig,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    killed::Killed,
    turns::{Turn, take_turn},
};

/// A machine that is busy may take as long.
const AT_LAST: Duration = Duration::from_secs(120);

struct Server {
    process: Killed,
    admin: SocketAddr,
    spans: Spans,
    host: Client,
    dir: tempfile::TempDir,
    fleet: Fleet,
    _stop: tokio_util::sync::DropGuard,
    _turn: Turn,
}

impl Server {
    async fn start() -> Self {
        let turn = take_turn();
        install_provider();
        let (dir, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
        let fleet = Fleet::start(Config::with_members(1), &stop).await.unwrap();
        let host = from_config(fleet.host.config().unwrap(), "test", &WriteCounts::default()).unwrap();
        let authority = Authority::new("test").unwrap();
        let identity =
            authority.issue_server_identity("webhook", &["localhost"], &[Ipv4Addr::LOCALHOST.into()]).unwrap();
        fs::write(dir.path().join("tls.crt"), &identity.cert_pem).unwrap();
        fs::write(dir.path().join("tls.key"), &identity.key_pem).unwrap();
        let [webhook, admin] = [(); 2].map(|()| free_address());
        let (collector, spans) = serve_span_collector();
        let mut all = roles::build_component_roles(&roles::Granted::default());
        all.extend(caldera_crds::manifests::build_federation_crds());
        let endpoint = caldera_webhook::Endpoint::Url(format!("https://{webhook}"));
        all.extend(caldera_webhook::build_configurations(&endpoint, &authority.cert_pem));
        all.extend(manifests::list_admission_policies(&TrustedWriters::default(), false));
        all.extend(manifests::build_propagation_policies());
        for object in all {
            stack::apply_object(&host, object).await.unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_caldera"));
        command.args(["server", "--lease-namespace", roles::NAMESPACE]);
        command.args(["--listen", &webhook.to_string(), "--admin", &admin.to_string()]);
        command.args(["--otlp-endpoint", &format!("http://{collector}")]);
        for file in ["tls.crt", "tls.key"] {
            command.arg(format!("--{}", file.replace('.', "-").replace("crt", "cert"))).arg(dir.path().join(file));
        }
        for part in ["webhook", "controller", "scheduler"] {
            let file = dir.path().join(part);
            write_account(&fleet.host.kubeconfig(), &roles::name_account(part), &file);
            command.arg(format!("--{part}-kubeconfig")).arg(file);
        }
        let log = File::create(dir.path().join("log")).unwrap();
        let process = Killed(command.stdin(Stdio::null()).stderr(log).spawn().unwrap());
        let server = Self { process, admin, spans, host, dir, fleet, _stop: stop.drop_guard(), _turn: turn };
        server.until("it is ready", async || server.ask("/readyz").is_some_and(|text| text.contains(" 200 "))).await;
        server
    }

    async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let waited = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let came = tokio::time::timeout(AT_LAST, waited).await;
        assert!(came.is_ok(), "never: {what}; {}", self.read_log());
    }

    fn read_log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    fn ask(&self, path: &str) -> Option<String> {
        self.ask_with(path, "")
    }

    fn ask_with(&self, path: &str, headers: &str) -> Option<String> {
        ask_at(self.admin, path, headers)
    }

    /// Starts another component beside it, as an administrator; it is at the admin port that comes back.
    fn start_beside(&self, words: &[&str]) -> (Killed, SocketAddr) {
        let (kubeconfig, admin) = (self.dir.path().join("host"), free_address());
        fs::write(&kubeconfig, self.fleet.host.kubeconfig()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_caldera"));
        command.args(words).args(["--cluster", "member1", "--admin", &admin.to_string(), "--kubeconfig"]);
        (Killed(command.arg(kubeconfig).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()), admin)
    }

    async fn wait_for_end(&mut self) -> ExitStatus {
        let began = std::time::Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < AT_LAST, "it never ends: {}", self.read_log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn leases(&self) -> Api<DynamicObject> {
        let resource = api_resource("coordination.k8s.io", "v1", "Lease", "leases");
        Api::namespaced_with(self.host.clone(), roles::NAMESPACE, &resource)
    }

    async fn holder_of(&self, lease: &str) -> String {
        let lease = self.leases().get(lease).await.unwrap();
        lease.data["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }
}

/// What is answered at a component's admin port.
fn ask_at(admin: SocketAddr, path: &str, headers: &str) -> Option<String> {
    let mut stream = TcpStream::connect(admin).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n{headers}\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Spans that a collector of traces was sent: the trace, the name, and the attributes as one text.
type Spans = Arc<Mutex<Vec<(String, String, String)>>>;

/// A collector of traces (OTLP over HTTP with JSON): where it is, and what it takes.
fn serve_span_collector() -> (SocketAddr, Spans) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (address, spans) = (listener.local_addr().unwrap(), Spans::default());
    let taken = Arc::clone(&spans);
    // It ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let taken = Arc::clone(&taken);
            std::thread::spawn(move || take_spans(&stream, &taken));
        }
    });
    (address, spans)
}

/// Reads the requests of one connection until it ends.
fn take_spans(stream: &TcpStream, spans: &Spans) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).ok().filter(|read| *read > 0)?;
            if line.trim().is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        lines.read_exact(&mut body).ok()?;
        let reported: Value = serde_json::from_slice(&body).ok()?;
        for scope in reported["resourceSpans"][0]["scopeSpans"].as_array()? {
            let read = |span: &Value| {
                let text = |field: &str| span[field].as_str().unwrap_or_default().to_owned();
                (text("traceId"), text("name"), span["attributes"].to_string())
            };
            spans.lock().unwrap().extend(scope["spans"].as_array()?.iter().map(read));
        }
        let mut answer = stream;
        answer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").ok()?;
    }
}

/// An account, bound to this role if one is given, and its token.
async fn make_account(host: &Client, name: &str, role: Option<&str>) -> String {
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": "default"});
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}});
    let bound = role.map(|role| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        })
    });
    for object in [account].into_iter().chain(bound) {
        stack::apply_object(host, object).await.unwrap();
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(host.clone(), "default");
    let made = accounts.create_token_request(name, &PostParams::default(), &TokenRequest::default()).await.unwrap();
    made.status.unwrap().token
}

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// The same kubeconfig for an administrator who acts as the account, and so has its rights alone.
fn write_account(kubeconfig: &str, account: &str, to: &Path) {
    let mut config = Kubeconfig::from_yaml(kubeconfig).unwrap();
    for user in config.auth_infos.iter_mut().filter_map(|user| user.auth_info.as_mut()) {
        user.impersonate = Some(account.to_owned());
    }
    fs::write(to, serde_json::to_vec(&config).unwrap()).unwrap();
}

fn make_job() -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "train", "namespace": "default"},
        "spec": {
            "queue": "default", "minAvailable": 2, "schedulerName": "volcano",
            "tasks": [{"name": "w", "replicas": 2, "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
            }}}],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_takes_a_job_through_its_life_with_three_accounts_and_gives_up_its_leases() {
    let mut server = Server::start().await;
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "jobs", "namespace": "default"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}],
            "schedulerName": "caldera",
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
            }},
        },
    });
    for object in [policy, make_job()] {
        stack::apply_object(&server.host, object).await.unwrap();
    }
    let volcano_job = api_resource("batch.volcano.sh", "v1alpha1", "Job", "jobs");
    let jobs: Api<DynamicObject> = Api::namespaced_with(server.host.clone(), "default", &volcano_job);
    let is_completed = async || jobs.get("train").await.unwrap().data["status"]["state"]["phase"] == "Completed";
    server.until("the job is completed", is_completed).await;
    let metrics = server.ask("/metrics").unwrap();
    for part in ["webhook", "controller", "scheduler"] {
        assert!(metrics.contains(&format!("caldera_build_info{{component=\"{part}\"")), "{metrics}");
    }
    for part in ["controller", "scheduler"] {
        assert!(metrics.contains(&format!("caldera_leader{{lease=\"caldera-{part}\"}} 1")), "{metrics}");
        let write =
            format!("caldera_api_writes_total{{component=\"{part}\",verb=\"patch\",resource=\"resourcebindings\"");
        assert!(metrics.contains(&write), "{metrics}");
        assert_ne!(server.holder_of(&format!("caldera-{part}")).await, "");
    }
    assert!(metrics.contains("caldera_stock_scheduler{} 0.0"), "its own scheduler has to be there: {metrics}");
    for part in ["caldera", "caldera_scheduler", "caldera_webhook"] {
        let reported = format!("{part}_watch_last_event_timestamp_seconds{{kind=\"ResourceBinding\"}}");
        assert!(metrics.contains(&reported), "{metrics}");
    }
    let trace = jobs.get("train").await.unwrap().metadata.uid.unwrap().replace('-', "");
    // What its binding was for each part, and what controller and scheduler wrote of it, in the job's trace.
    for (span, attribute) in
        [("review", "train-job"), ("decision", "release"), ("decide", "train-job"), ("write", "ResourceBinding")]
    {
        let is_it = |(of, name, attributes): &(String, String, String)| {
            *of == trace && name == span && attributes.contains(attribute)
        };
        let is_reported = async || server.spans.lock().unwrap().iter().any(is_it);
        server.until(&format!("span {span} of {attribute} is told"), is_reported).await;
    }
    let families: Vec<&str> = metrics.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let once: std::collections::BTreeSet<&&str> = families.iter().collect();
    assert_eq!(once.len(), families.len(), "each family once: {families:?}");
    let listen = free_address().to_string();
    for (words, series) in [
        (&["inventory", "--no-lease"][..], "caldera_inventory_seen_timestamp_seconds{cluster=\"member1\"} "),
        (&["estimator", "--insecure", "--listen", &listen], "caldera_build_info{component=\"estimator\""),
    ] {
        let (_process, admin) = server.start_beside(words);
        let is_ready = async || ask_at(admin, "/readyz", "").is_some_and(|text| text.contains(" 200 "));
        server.until(&format!("{words:?} is ready"), is_ready).await;
        let metrics = ask_at(admin, "/metrics", "").unwrap();
        assert!(metrics.contains("application/openmetrics-text") && metrics.contains(series), "{words:?}: {metrics}");
        assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    }
    let pid = server.process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(server.wait_for_end().await.success(), "{}", server.read_log());
    for part in ["controller", "scheduler"] {
        assert_eq!(server.holder_of(&format!("caldera-{part}")).await, "", "given up");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_the_role_and_nobody_else_sees_what_state_each_part_is_in() {
    let server = Server::start().await;
    let sre = make_account(&server.host, "sre", Some("caldera-state-reader")).await;
    let tenant = make_account(&server.host, "tenant", None).await;
    let ask = |token: &str| {
        let answer = server.ask_with("/debug/state", &format!("authorization: Bearer {token}\r\n")).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    };
    for (token, status) in [(tenant.as_str(), " 403 "), ("wrong", " 401 "), ("", " 401 ")] {
        let (head, body) = ask(token);
        assert!(head.contains(status) && !body.contains("components"), "{head} {body}");
    }
    let (head, body) = ask(&sre);
    assert!(head.contains(" 200 "), "{head} {body}");
    let state: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(state["unready"], Value::Null, "{state}");
    assert_eq!(state["leases"][0], json!({"name": "caldera-controller", "held": true}), "{state}");
    let [controller, scheduler] = [0, 1].map(|at| &state["components"][at]);
    assert_eq!((&controller["name"], &scheduler["name"]), (&json!("controller"), &json!("scheduler")));
    assert_eq!(controller["state"]["unlistedKinds"], json!([]), "{state}");
    assert!(controller["state"]["epoch"].is_string(), "{state}");
    assert_eq!(controller["state"]["queues"]["first"][0]["name"], "default", "{state}");
    assert_eq!(scheduler["state"]["unlisted"], json!([]), "{state}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_ends_ends_the_process_and_says_why() {
    let mut server = Server::start().await;
    let lease = "caldera-scheduler";
    server.until("it leads", async || !server.holder_of(lease).await.is_empty()).await;
    let taken = json!({"spec": {"holderIdentity": "somebody-else", "leaseTransitions": 7}});
    server.leases().patch(lease, &PatchParams::default(), &Patch::Merge(&taken)).await.unwrap();
    assert!(!server.wait_for_end().await.success());
    let log = server.read_log();
    assert!(log.contains("caldera: the scheduler ended: the lease caldera-scheduler was lost"), "{log}");
    assert_eq!(server.holder_of("caldera-controller").await, "", "the controller gave up its own");
}
