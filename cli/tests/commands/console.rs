//! `caldera console` over TLS, against a sandbox: who sees what, who is refused, and what comes without asking.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::Arc,
    time::Instant,
};

use caldera_cli::objects::{annotation_of, binding_resource, get_object};
use caldera_crds::names::caldera::GATE;
use caldera_runtime::tls::{Authority, install_provider, parse_roots};
use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::{Api, api::PostParams};
use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};

use crate::{
    browser::{Browser, THEMES, WIDTHS},
    killed::Killed,
    sandbox::{BINARY, PATIENCE, QUEUES, SPLIT, Sandbox, WAITING, until},
};

/// Accounts of two tenants; one may list the jobs of a namespace, one nothing at all.
const TENANTS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: tenant}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: tenant, namespace: tenant}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: nobody, namespace: tenant}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: jobs, namespace: tenant}
rules: [{apiGroups: [batch.volcano.sh], resources: [jobs], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: jobs, namespace: tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: jobs}
subjects: [{kind: ServiceAccount, name: tenant, namespace: tenant}]
";

/// One of them may list all that is in his namespace, as a viewer of it may.
const VIEWER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer, namespace: tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: caldera-reader}
subjects: [{kind: ServiceAccount, name: tenant, namespace: tenant}]
";

/// A declared kind, what its objects are, and one of them.
const TRAIN_RUN: &str = include_str!("../../../manifests/kinds/trainrun.yaml");
const TRAIN_RUN_DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trainruns.training.example.com}
spec:
  group: training.example.com
  scope: Namespaced
  names: {kind: TrainRun, listKind: TrainRunList, plural: trainruns, singular: trainrun}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
const RUN: &str = "
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: NAME, namespace: default}
spec:
  resourceSelectors: [{apiVersion: training.example.com/v1, kind: TrainRun, name: NAME}]
  placement:
    replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}
---
apiVersion: training.example.com/v1
kind: TrainRun
metadata: {name: NAME, namespace: default}
spec:
  queue: research
  workers:
    - name: worker
      replicas: 3
      template: {spec: {containers: [{name: main, image: 'busybox:1.36', resources: {requests: {cpu: '2'}}}]}}
";

struct Console {
    _process: Killed,
    address: SocketAddr,
    admin: SocketAddr,
    trust: Arc<ClientConfig>,
}

/// Status line and headers, and the body.
type Answer = (String, String);

impl Console {
    fn start(dir: &Path, kubeconfig: &str) -> Self {
        install_provider();
        let authority = Authority::new("test").unwrap();
        let identity =
            authority.issue_server_identity("console", &["localhost"], &[Ipv4Addr::LOCALHOST.into()]).unwrap();
        let [cert, key] = ["tls.crt", "tls.key"].map(|name| dir.join(name));
        fs::write(&cert, &identity.cert_pem).unwrap();
        fs::write(&key, &identity.key_pem).unwrap();
        fs::write(dir.join("ca.crt"), &authority.cert_pem).unwrap();
        let roots = parse_roots(&authority.cert_pem).unwrap();
        let mut trust = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        trust.alpn_protocols = vec![b"http/1.1".to_vec()];
        let [address, admin] =
            [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap());
        let process = Command::new(BINARY)
            .args(["console", "--kubeconfig", kubeconfig, "--listen", &address.to_string()])
            .args(["--measure-starts", "--admin", &admin.to_string()])
            .args([Path::new("--tls-cert"), &cert, Path::new("--tls-key"), &key])
            .spawn();
        let console = Self { _process: Killed(process.unwrap()), address, admin, trust: Arc::new(trust) };
        until("it does not listen", || TcpStream::connect(address).map(drop).map_err(|error| error.to_string()));
        console
    }

    /// Its histogram is there also before anything was measured.
    fn measures_starts(&self) {
        until("no error of expected starts is measured", || {
            let mut stream = TcpStream::connect(self.admin).map_err(|error| error.to_string())?;
            let mut text = String::new();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
            stream.read_to_string(&mut text).unwrap();
            let of_queue = |line: &str| {
                line.starts_with("caldera_expected_start_error_seconds_count{queue=\"")
                    && line.ends_with("\",basis=\"estimated\"} 0")
            };
            let is_there = text.lines().any(of_queue);
            if is_there { Ok(()) } else { Err(text) }
        });
    }

    fn open(&self, request: &str) -> StreamOwned<ClientConnection, TcpStream> {
        let tcp = TcpStream::connect(self.address).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = StreamOwned::new(ClientConnection::new(Arc::clone(&self.trust), name).unwrap(), tcp);
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        let mut answer = Vec::new();
        // A server that closes without a farewell has said all.
        let _ = self.open(&request).read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        (head.to_owned(), body.to_owned())
    }

    /// The cookie of who logs in.
    fn log_in(&self, token: &str) -> String {
        let (head, body) = self.ask("POST", "/login", "", &format!("token={token}"));
        assert!(head.starts_with("HTTP/1.1 303"), "{head}{body}");
        let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        for word in ["; HttpOnly", "; SameSite=Strict", "; Secure", "; Path=/"] {
            assert!(cookie.contains(word), "{cookie}");
        }
        format!("cookie: {}\r\n", cookie.split(';').next().unwrap())
    }

    fn page(&self, path: &str, cookie: &str) -> Answer {
        self.ask("GET", path, cookie, "")
    }
}

impl Sandbox {
    fn token(&self, namespace: &str, account: &str) -> String {
        let api: Api<ServiceAccount> = Api::namespaced(self.host.clone(), namespace);
        let asked = TokenRequest::default();
        let made = self.wait(api.create_token_request(account, &PostParams::default(), &asked)).unwrap();
        made.status.unwrap().token
    }

    /// A kubeconfig of an account.
    fn kubeconfig_of(&self, dir: &Path, namespace: &str, account: &str) -> String {
        let admin = fs::read_to_string(&self.kubeconfig).unwrap();
        let is_token = |line: &&str| line.trim_start().starts_with("token: ");
        let old = admin.lines().find(is_token).unwrap().trim().to_owned();
        let path = dir.join(format!("{account}.kubeconfig"));
        fs::write(&path, admin.replace(&old, &format!("token: {}", self.token(namespace, account)))).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn admin_token(&self) -> String {
        let admin = fs::read_to_string(&self.kubeconfig).unwrap();
        admin.lines().find_map(|line| line.trim_start().strip_prefix("token: ")).unwrap().to_owned()
    }
}

#[test]
fn each_sees_in_the_console_what_his_token_may_list() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(dir.path(), 3);
    sandbox.apply(TENANTS);
    sandbox.apply(QUEUES);
    sandbox.apply(&SPLIT.replace("sleep 4", "sleep 600"));
    // It runs with the rights of its own account, and no more.
    let kubeconfig = sandbox.kubeconfig_of(dir.path(), "caldera-system", "caldera-console");
    let console = Console::start(dir.path(), &kubeconfig);
    console.measures_starts();

    // Who is nobody is refused, everywhere.
    let (head, _) = console.page("/", "");
    assert!(head.starts_with("HTTP/1.1 303") && head.contains("location: /login"), "{head}");
    for path in ["/", "/jobs", "/live?page=/"] {
        let (head, body) = console.page(path, "authorization: Bearer wrong\r\n");
        assert!(head.starts_with("HTTP/1.1 401") && !body.contains("mindspore"), "{head}{body}");
    }
    let (head, _) = console.page("/live?page=/", "");
    assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    let (head, _) = console.ask("POST", "/login", "", "token=wrong");
    assert!(head.starts_with("HTTP/1.1 401") && !head.contains("set-cookie"), "{head}");
    let (head, _) = console.ask("POST", "/login", "sec-fetch-site: cross-site\r\n", "token=wrong");
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    let (head, _) = console.ask("POST", "/login", "", &format!("token={}", "a".repeat(20_000)));
    assert!(head.starts_with("HTTP/1.1 413"), "{head}");

    // The administrator sees all.
    let admin = console.log_in(&sandbox.admin_token());
    let head = until("the administrator sees no job that runs", || {
        let (head, body) = console.page("/jobs/default/vcjob/mindspore-cpu", &admin);
        let words = ["<td>Submitted</td>", "<td>Gated</td>", "<td>Placed</td>", "<td>Runs</td>", "member"];
        if words.iter().all(|word| body.contains(word)) { Ok(head) } else { Err(head + &body) }
    });
    for header in ["content-security-policy: default-src 'none'", "cache-control: no-store", "x-frame-options: DENY"] {
        assert!(head.contains(header), "{head}");
    }

    // A tenant sees his own names, and others' numbers.
    let waiting = WAITING.replace("namespace: default", "namespace: tenant");
    assert!(waiting.contains("namespace: tenant"), "{waiting}");
    sandbox.apply(&waiting);
    let tenant = console.log_in(&sandbox.token("tenant", "tenant"));
    until("the tenant sees no job", || {
        let (head, body) = console.page("/queues/research", &tenant);
        let is_there = body.contains("tenant/low-priority") && body.contains("used 20 of 20");
        if is_there { Ok(()) } else { Err(head + &body) }
    });
    for path in ["/", "/queues/research", "/jobs", "/changes"] {
        let (_, body) = console.page(path, &tenant);
        assert!(!body.contains("mindspore") && !body.contains("member1"), "{path}: {body}");
    }
    let (_, body) = console.page("/queues/research", &tenant);
    assert!(body.contains("another job") && body.contains("another member"), "{body}");
    let (head, _) = console.page("/jobs/default/vcjob/mindspore-cpu", &tenant);
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    let (head, body) = console.page("/jobs/tenant/vcjob/low-priority", &tenant);
    assert!(head.starts_with("HTTP/1.1 200") && body.contains("you may not list events"), "{body}");

    // Who may list nothing sees numbers alone.
    let nobody = console.log_in(&sandbox.token("tenant", "nobody"));
    for path in ["/", "/jobs", "/changes"] {
        let (head, body) = console.page(path, &nobody);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(!body.contains("mindspore") && !body.contains("low-priority") && !body.contains("research"), "{body}");
    }

    // What the console's own account may not read is said to who may list members, and to nobody else.
    until("no reason is told", || {
        let (_, body) = console.page("/queues/research", &admin);
        let is_reported = body.contains("it is not known: member member1 can not be read");
        if is_reported { Ok(()) } else { Err(body) }
    });
    let (_, body) = console.page("/queues/research", &tenant);
    assert!(body.contains("<td>not known</td>") && !body.contains("can not be read"), "{body}");
    until("gangs are on the map", || {
        let (_, body) = console.page("/map", &admin);
        if body.contains("default/mindspore-cpu</a> <strong>") { Ok(()) } else { Err(body) }
    });
    for reader in [&tenant, &nobody] {
        let (_, body) = console.page("/map", reader);
        assert!(body.contains("another member") && !body.contains("mindspore") && !body.contains("member1"), "{body}");
    }

    an_update_comes_without_asking(&sandbox, &console, &admin);
    a_pause_is_said_and_a_closed_queue_is_a_change(&sandbox, &console, &admin);
    if let Some(mut browser) = Browser::start(dir.path()) {
        let began = Instant::now();
        pages_fit_any_window_and_cause_no_error_in_a_browser(&sandbox, &console, &mut browser);
        println!("the console was looked at in a browser in {:.1?}", began.elapsed());
    }
}

/// His own rights show no start, and he is told it all the same.
#[test]
fn a_tenant_is_told_the_starts_of_his_own_jobs_by_the_console() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(dir.path(), 3);
    sandbox.apply(&[TENANTS, VIEWER, QUEUES, &SPLIT.replace("sleep 4", "sleep 600")].join("\n---\n"));
    let console = Console::start(dir.path(), &sandbox.kubeconfig);
    until("the queue is not full", || {
        let (_, body) = console.page("/queues/research", &console.log_in(&sandbox.admin_token()));
        if body.contains("cpu 20 of 20") { Ok(()) } else { Err(body) }
    });
    sandbox.apply(&WAITING.replace("namespace: default", "namespace: tenant"));
    let kubeconfig = sandbox.kubeconfig_of(dir.path(), "tenant", "tenant");
    let ask = |command: &[&str], more: &[&str]| {
        let args = [command, &["-n", "tenant", "--kubeconfig", &kubeconfig], more].concat();
        let output = Command::new(BINARY).args(args).env_remove("CALDERA_CONSOLE").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && !text.contains("mindspore"), "{text}");
        text
    };
    let (list, why) = (["job", "list", "--start"], ["why", "low-priority"]);
    let (url, ca) = (format!("https://{}", console.address), dir.path().join("ca.crt"));
    let from_console = ["--console", &url, "--console-ca", ca.to_str().unwrap()];
    until("the console tells no start", || {
        let text = ask(&list, &from_console);
        let is_reported = text.contains("perhaps 2") && text.contains(&format!("are told by the console {url}\n"));
        if is_reported { Ok(()) } else { Err(text) }
    });
    let said = ask(&why, &from_console);
    assert!(said.contains("to start perhaps 2") && said.contains("; the console worked it out "), "{said}");
    for command in [&list[..], &why] {
        let said = ask(command, &[]);
        assert!(said.contains("not known") && said.contains("pass --console URL"), "{said}");
    }
    // One that never answers, and one whose certificate nobody vouches for.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    for (url, why) in [(&silent_url, "did not answer within 8 seconds"), (&url, "can not be asked: ")] {
        let said = ask(&list, &["--console", url]);
        assert!(said.contains("not known") && said.contains(why), "{said}");
    }
    let [own, other] = ["tenant", "nobody"].map(|account| sandbox.token("tenant", account));
    let cases = [("tenant", &*own, 200), ("default", &own, 403), ("tenant", &other, 403), ("tenant", "wrong", 401)];
    for (namespace, token, status) in cases {
        let header = format!("authorization: Bearer {token}\r\n");
        let (head, body) = console.page(&format!("/api/v1/namespaces/{namespace}/starts"), &header);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")) && !body.contains("mindspore"), "{head}{body}");
        assert_eq!(body.contains("low-priority"), status == 200, "{body}");
    }
}

/// The name of a run that is in line. Those that come before the webhook knows their kind are nobody's: one after the
/// other is tried.
fn submit_run(sandbox: &Sandbox) -> String {
    let mut number = 0;
    until("no run has a gate", || {
        number += 1;
        let name = format!("run-{number}");
        sandbox.apply(&RUN.replace("NAME", &name));
        let binding = until("a run has no binding", || {
            let (resource, named) = (binding_resource(), format!("{name}-trainrun"));
            let found = get_object(&sandbox.host, &resource, Some("default"), &named);
            sandbox.wait(found).unwrap().unwrap().ok_or_else(|| named.clone())
        });
        if annotation_of(&binding, GATE).is_some() { Ok(name) } else { Err(binding.to_string()) }
    })
}

/// The console knew the kinds that are told in code alone, and so did the completion of names.
#[test]
fn a_job_of_a_kind_that_is_told_by_data_is_shown_and_its_name_is_completed() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(dir.path(), 1);
    for yaml in [TRAIN_RUN_DEFINITION, TRAIN_RUN, QUEUES] {
        sandbox.apply(yaml);
    }
    let run = submit_run(&sandbox);
    let kubeconfig = sandbox.kubeconfig_of(dir.path(), "caldera-system", "caldera-console");
    let console = Console::start(dir.path(), &kubeconfig);
    let admin = console.log_in(&sandbox.admin_token());
    until("the console shows no run", || {
        let (head, body) = console.page(&format!("/jobs/default/trainrun/{run}"), &admin);
        let is_there = head.starts_with("HTTP/1.1 200") && body.contains("research");
        if is_there { Ok(()) } else { Err(head + &body) }
    });
    let complete = |typed: &str| {
        let words = ["--", "caldera", "why", "-n", "default", "--kubeconfig", &sandbox.kubeconfig, typed];
        let output = Command::new(BINARY).args(words).env("COMPLETE", "fish").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete("trainr"), "trainrun/\n");
    let named = complete("trainrun/run");
    assert!(named.lines().any(|line| line == format!("trainrun/{run}")), "{named}");
}

/// In each width and theme, and by keyboard.
fn pages_fit_any_window_and_cause_no_error_in_a_browser(sandbox: &Sandbox, console: &Console, browser: &mut Browser) {
    let address = format!("https://{}", console.address);
    browser.log_in(&address, &sandbox.admin_token());
    let focused: Vec<String> = browser.press_tabs(7);
    let wanted = ["To the content", "Fleet", "Map", "Jobs", "Changes", "Log out"];
    assert!(focused.starts_with(&wanted.map(str::to_owned)), "{focused:?}");
    let mut wrong = Vec::new();
    let pages = ["/", "/queues/research", "/jobs", "/jobs/tenant/vcjob/low-priority", "/map", "/changes", "/login"];
    for path in pages {
        browser.open(&address, path);
        for (width, theme) in WIDTHS.iter().flat_map(|width| THEMES.map(|theme| (*width, theme))) {
            browser.look(width, theme);
            let over = browser.measure_overflow();
            if over > 0 {
                wrong.push(format!("{path} is {over} wider than a window of {width}, {theme}"));
            }
        }
        wrong.extend(browser.take_errors().into_iter().map(|error| format!("{path}: {error}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Without the day's charts, which a console that has just begun has nothing for.
#[test]
#[ignore = "writes docs/images: .ci/screens"]
fn the_console_in_the_docs() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(dir.path()) else { return };
    let sandbox = Sandbox::start(dir.path(), 3);
    sandbox.apply(TENANTS);
    let console = Console::start(dir.path(), &sandbox.kubeconfig);
    let address = format!("https://{}", console.address);
    let evicted = sandbox.fill_fleet();
    sandbox.apply(&WAITING.replace("namespace: default", "namespace: tenant"));
    let draw = |browser: &mut Browser, name: &str, (path, words): (&str, &[&str]), look: Look<'_>| {
        let (width, theme, most) = look;
        browser.open(&address, path);
        browser.look(width, theme);
        browser.until_shown(words);
        let png = browser.draw(width, most);
        fs::write(Path::new(IMAGES).join(format!("console-{name}.png")), png).unwrap();
    };
    browser.log_in(&address, &sandbox.admin_token());
    let fleet: (&str, &[&str]) = ("/", &["waiting", "member3", "lab-vision"]);
    draw(&mut browser, "fleet", fleet, (1440, "light", 1000));
    draw(&mut browser, "fleet-900", fleet, (900, "dark", 1000));
    draw(&mut browser, "fleet-390", fleet, (390, "light", 1000));
    draw(&mut browser, "queue", ("/queues/research", &["perhaps ", "urgent-report"]), (1000, "light", 800));
    let timeline = format!("/jobs/default/vcjob/{evicted}");
    draw(&mut browser, "job", (&timeline, &["Timeline", "Evicted"]), (1000, "light", 800));
    draw(&mut browser, "map", ("/map", &["member1", "mindspore-cpu"]), (1000, "light", 700));
    browser.log_in(&address, &sandbox.token("tenant", "tenant"));
    draw(&mut browser, "tenant", ("/queues/research", &["another job", "tenant/low-priority"]), (1000, "light", 800));
}

/// Width, theme, and the most height of a picture.
type Look<'a> = (u32, &'a str, u32);

const IMAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/images");

fn a_pause_is_said_and_a_closed_queue_is_a_change(sandbox: &Sandbox, console: &Console, cookie: &str) {
    let change = |args: &[&str]| {
        let done = Command::new(BINARY).args(args).args(["--kubeconfig", &sandbox.kubeconfig]).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    let shows = |path: &str, word: &str, shown: bool| {
        until(&format!("{path}: {word} {shown}"), || {
            let (_, body) = console.page(path, cookie);
            if body.contains(word) == shown { Ok(()) } else { Err(body) }
        });
    };
    change(&["pause", "--reason", "upgrade at noon"]);
    shows("/", "All releases are paused: upgrade at noon", true);
    change(&["unpause"]);
    shows("/", "All releases are paused", false);
    change(&["queue", "close", "services"]);
    shows("/changes", "was Open", true);
}

fn an_update_comes_without_asking(sandbox: &Sandbox, console: &Console, cookie: &str) {
    let request = format!("GET /live?page=%2Fqueues%2Fresearch HTTP/1.1\r\nhost: localhost\r\n{cookie}\r\n");
    let mut lines = BufReader::new(console.open(&request)).lines().map_while(Result::ok);
    let mut next = |word: &str| {
        let found = lines.by_ref().find(|line| line.starts_with("data: ") && line.contains(word));
        assert!(found.is_some(), "the stream ended without {word}");
    };
    next("tenant/low-priority");
    let more =
        WAITING.replace("namespace: default", "namespace: tenant").replace("name: low-priority", "name: came-later");
    sandbox.apply(&more);
    next("tenant/came-later");
}
