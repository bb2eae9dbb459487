//! `caldera install` against a sandbox: from an empty host to one where the doctor finds nothing, again without a
//! change, and again after it was killed.
#![cfg(unix)]

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use caldera_cli::{
    install::{
        plan::MANAGER,
        webhook_probe::{PROBE, probe_resource},
    },
    manifests, stack,
};
use caldera_crds::names::caldera::VERSION;
use caldera_runtime::{client::WriteCounts, tls::install_provider, watch::api_resource};
use caldera_sandbox::fleet::{Config, Fleet};
use caldera_webhook::MEMBER_CUSTOMIZATION;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    killed::Killed,
    supervised::Supervised,
    turns::{Turn, take_turn},
};

/// A machine that is busy may take as long.
const AT_LAST: Duration = Duration::from_secs(120);

struct Host {
    dir: tempfile::TempDir,
    client: Client,
    webhook: SocketAddr,
    _fleet: Fleet,
    _stop: tokio_util::sync::DropGuard,
    _turn: Turn,
}

impl Host {
    async fn start() -> Self {
        let turn = take_turn();
        install_provider();
        let (dir, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
        let fleet = Fleet::start(Config::with_members(1), &stop).await.unwrap();
        fs::write(dir.path().join("admin"), fleet.host.kubeconfig()).unwrap();
        let client = fleet.host.client("test", &WriteCounts::default()).unwrap();
        let webhook = free_address();
        Self { dir, client, webhook, _fleet: fleet, _stop: stop.drop_guard(), _turn: turn }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn install(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_caldera"));
        command.arg("install").arg("--host-kubeconfig").arg(self.path("admin"));
        command.arg("--dir").arg(self.path("made")).args(["--components-at", &format!("https://{}", self.webhook)]);
        command.args(more);
        command
    }

    /// The process that the command tells to run, once there is what it reads.
    fn serve(&self) -> Supervised {
        let began = Instant::now();
        while !self.path("made/caldera-scheduler.kubeconfig").exists() {
            assert!(began.elapsed() < AT_LAST, "no kubeconfig is written");
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_caldera"));
        command.args(["server", "--lease-namespace", "caldera-system", "--listen", &self.webhook.to_string()]);
        command.arg("--tls-cert").arg(self.path("made/tls.crt")).arg("--tls-key").arg(self.path("made/tls.key"));
        for part in ["webhook", "controller", "scheduler"] {
            command
                .arg(format!("--{part}-kubeconfig"))
                .arg(self.path("made").join(format!("caldera-{part}.kubeconfig")));
        }
        let log = File::create(self.path("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Supervised::start(command)
    }

    /// The validating configurations that are Caldera's; Karmada has its own.
    async fn webhooks(&self) -> Vec<String> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &probe_resource());
        let all = api.list(&ListParams::default()).await.unwrap().items.into_iter();
        all.filter_map(|object| object.metadata.name).filter(|name| name.ends_with(".caldera.dev")).collect()
    }

    async fn has_member_customization(&self) -> bool {
        let resource = api_resource(
            "config.karmada.io",
            "v1alpha1",
            "ResourceInterpreterCustomization",
            "resourceinterpretercustomizations",
        );
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        api.get_opt(MEMBER_CUSTOMIZATION).await.unwrap().is_some()
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

fn describe_output(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_host_becomes_healthy_and_a_second_run_changes_nothing() {
    let host = Host::start().await;
    let first =
        host.install(&["--yes", "--pull-members"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _server = host.serve();
    let first = first.wait_with_output().unwrap();
    let log = || fs::read_to_string(host.path("log")).unwrap();
    let text = describe_output(&first);
    assert!(first.status.success(), "{text}\n{}", log());
    assert!(text.contains("\n0 errors"), "{text}");
    assert!(host.has_member_customization().await, "{text}");
    assert!(!host.webhooks().await.is_empty());
    assert!(!host.webhooks().await.contains(&PROBE.to_owned()), "the question is taken back");

    let second = host.install(&["--yes", "--pull-members"]).output().unwrap();
    let text = describe_output(&second);
    assert!(second.status.success(), "{text}\n{}", log());
    let steps: Vec<&str> = text.lines().filter(|line| line.contains("/6 ")).collect();
    assert_eq!(steps.len(), 6, "{text}");
    let is_quiet = |line: &&str| {
        line.contains(": 0 created, 0 changed") || line.ends_with(": as they were") || line.ends_with(": it answers")
    };
    assert!(steps.iter().all(is_quiet), "{text}");
    an_upgrade_waits_for_a_component_of_an_older_version(&host).await;
}

/// Its Leases are where no component of this test's is, so that nobody writes them anew.
async fn an_upgrade_waits_for_a_component_of_an_older_version(host: &Host) {
    let (place, ours) = ("elsewhere", env!("CARGO_PKG_VERSION"));
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}});
    stack::apply_object(&host.client, namespace).await.unwrap();
    let write_lease = async |component: &str, version: &str| {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": format!("caldera-{component}"), "namespace": place, "annotations": {VERSION: version}},
            "spec": {
                "holderIdentity": "older", "leaseDurationSeconds": 3600,
                "renewTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string(),
            },
        });
        stack::apply_object(&host.client, lease).await.unwrap();
    };
    write_lease("controller", "0.0.1").await;
    write_lease("scheduler", ours).await;
    let upgrade = |wait: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_caldera"));
        command.args(["upgrade", "--yes", "--lease-namespace", place, "--wait", wait, "--kubeconfig"]);
        command.arg(host.path("admin"));
        command
    };

    let late = upgrade("1").output().unwrap();
    let text = describe_output(&late);
    assert!(!late.status.success(), "{text}");
    let older = format!("the controller is Caldera 0.0.1, this command {ours}");
    for words in [
        "replace the components now, one after the other",
        &format!("not all components are {ours} within 1 s; nothing that fails closed was changed"),
        &format!("left:\n  {older}"),
    ] {
        assert!(text.contains(words), "{words:?}: {text}");
    }
    assert!(!text.contains("4/6") && !text.contains("5/6"), "it went on: {text}");

    let mut waiting = Killed(upgrade("120").stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap());
    let mut lines = BufReader::new(waiting.stdout.take().unwrap()).lines().map(Result::unwrap);
    let asked = lines.by_ref().take_while(|line| !line.contains("replace the components now")).collect::<Vec<_>>();
    assert!(asked.iter().any(|line| line.starts_with("3/6")), "{asked:#?}");
    write_lease("controller", ours).await;
    let rest = lines.collect::<Vec<_>>();
    assert!(rest.contains(&format!("4/6 wait until all components are of this version: they are {ours}")), "{rest:#?}");
    assert!(rest.iter().any(|line| line.starts_with("6/6")), "{rest:#?}");
    assert!(waiting.wait().unwrap().success(), "{rest:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_answer_nothing_fails_closed_and_it_can_be_killed_and_run_again() {
    let host = Host::start().await;
    let plan = host.install(&["--dry-run"]).output().unwrap();
    assert!(plan.status.success(), "{}", describe_output(&plan));
    assert!(describe_output(&plan).contains("create ValidatingWebhookConfiguration"), "{}", describe_output(&plan));
    assert!(!host.path("made").exists() && host.webhooks().await.is_empty(), "a dry run does nothing");

    let prepared = host.install(&["--yes", "--prepare"]).output().unwrap();
    let text = describe_output(&prepared);
    assert!(prepared.status.success() && text.contains("caldera server --lease-namespace"), "{text}");
    assert!(host.webhooks().await.is_empty() && host.path("made/caldera-scheduler.kubeconfig").exists(), "{text}");

    let alone = host.install(&["--yes", "--wait", "1"]).output().unwrap();
    let text = describe_output(&alone);
    assert!(!alone.status.success() && text.contains("nothing depends on it yet"), "{text}");
    assert!(host.webhooks().await.is_empty(), "{text}");

    // Killed while it asks, it leaves the question behind.
    let asks = host.install(&["--yes"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let asks = Killed(asks);
    let began = Instant::now();
    while !host.webhooks().await.contains(&PROBE.to_owned()) {
        assert!(began.elapsed() < AT_LAST, "it never asks");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(asks);
    assert_eq!(host.webhooks().await, [PROBE]);
    let kubeconfig = fs::read(host.path("made/caldera-webhook.kubeconfig")).unwrap();

    let _server = host.serve();
    let again = host.install(&["--yes"]).output().unwrap();
    let text = describe_output(&again);
    assert!(again.status.success(), "{text}\n{}", fs::read_to_string(host.path("log")).unwrap());
    assert!(!host.webhooks().await.contains(&PROBE.to_owned()), "{text}");
    assert_eq!(
        fs::read(host.path("made/caldera-webhook.kubeconfig")).unwrap(),
        kubeconfig,
        "a token that serves is kept"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_removes_a_question_that_was_left_and_it_can_be_installed_again_at_once() {
    let host = Host::start().await;
    let prepare = || {
        let prepared = host.install(&["--prepare", "--yes"]).output().unwrap();
        assert!(prepared.status.success(), "{}", describe_output(&prepared));
        fs::read_to_string(host.path("made/tls.crt")).unwrap()
    };
    let certificate = prepare();
    let left = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": probe_resource().kind, "metadata": {"name": PROBE},
    });
    assert_eq!(manifests::build_apply_write(left.clone(), MANAGER).unwrap().resource.plural, probe_resource().plural);
    stack::apply_object(&host.client, left).await.unwrap();
    let removed = Command::new(env!("CARGO_BIN_EXE_caldera"))
        .args(["uninstall", "--yes", "--kubeconfig"])
        .arg(host.path("admin"))
        .output()
        .unwrap();
    assert!(removed.status.success(), "{}", describe_output(&removed));
    assert!(host.webhooks().await.is_empty());

    // Its namespace may be going yet, and the authority that signed the certificate is gone.
    let again = prepare();
    assert_ne!(again, certificate);
    assert_eq!(fs::read_to_string(host.path("made/tls.crt.of-an-earlier-install")).unwrap(), certificate);
    assert_eq!(prepare(), again);
}
