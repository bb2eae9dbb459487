//! Objects that an older Caldera wrote (`fixtures/upgrade`) under this one: what ran runs on, what waited is admitted
//! once and in its turn, and `caldera upgrade` leaves what this version prints.
#![cfg(unix)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

use caldera_fixtures::{find_folder, read_text};
use caldera_runtime::{client::WriteCounts, tls::install_provider, watch::api_resource};
use caldera_sandbox::fleet::{Config, Endpoint, Fleet};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    supervised::Supervised,
    turns::{Turn, take_turn},
};

/// A machine that is busy may take as long.
const AT_LAST: Duration = Duration::from_secs(120);
const RUNNING: [&str; 4] = ["elastic-job", "single-job", "split-job", "web-deployment"];
const WAITING: [&str; 4] = ["behind-job", "held-job", "next-job", "stopped-job"];

struct Upgraded {
    dir: tempfile::TempDir,
    fleet: Fleet,
    host: Client,
    _stop: tokio_util::sync::DropGuard,
    _turn: Turn,
}

fn bindings() -> ApiResource {
    api_resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings")
}

fn jobs() -> ApiResource {
    api_resource("batch.volcano.sh", "v1alpha1", "Job", "jobs")
}

fn read_fixture(server: &str) -> Vec<Value> {
    let file = find_folder("CALDERA_UPGRADE_DIR", "upgrade").join(format!("{server}.json"));
    serde_json::from_str(&read_text(&file)).unwrap()
}

fn is_default(object: &&Value) -> bool {
    object["metadata"]["namespace"] == "default"
}

fn key(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// The webhook configurations of a fleet whose webhook has just ended: they fail closed, and Karmada places nothing.
fn list_closed_configurations() -> Vec<Value> {
    let nobody = caldera_webhook::Endpoint::Url("https://127.0.0.1:1".to_owned());
    let mut all = caldera_webhook::build_configurations(&nobody, "");
    all.retain(|configuration| configuration["kind"] != "ResourceInterpreterWebhookConfiguration");
    for configuration in &mut all {
        configuration["metadata"]["uid"] = configuration["kind"].clone();
        configuration["metadata"]["creationTimestamp"] = "2026-11-23T00:00:00Z".into();
    }
    all
}

/// What must stay of a binding that runs: who it is, where it is, and what is charged for it.
fn what_stays(binding: &Value) -> Value {
    let of = |name: &str| binding["metadata"]["annotations"][name].clone();
    json!([
        binding["metadata"]["uid"],
        binding["spec"]["clusters"],
        of("caldera.dev/admission"),
        of("caldera.dev/plan"),
        of("caldera.dev/eviction")
    ])
}

/// By name, the UIDs of pods that were running.
fn list_running_pods(objects: &[Value]) -> BTreeSet<String> {
    let runs = |object: &&Value| object["kind"] == "Pod" && object["status"]["phase"] == "Running";
    let uid = |pod: &Value| format!("{} {}", key(pod), pod["metadata"]["uid"]);
    objects.iter().filter(is_default).filter(runs).map(uid).collect()
}

impl Upgraded {
    async fn start() -> Self {
        let turn = take_turn();
        install_provider();
        let (dir, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
        let restored = ["host", "member1", "member2"].map(|name| (name.to_owned(), read_fixture(name)));
        let mut restored = BTreeMap::from(restored);
        restored.entry("host".to_owned()).or_default().extend(list_closed_configurations());
        let config = Config { restored, ..Config::with_members(2) };
        let fleet = Fleet::start(config, &stop).await.unwrap();
        fs::write(dir.path().join("admin"), fleet.host.kubeconfig()).unwrap();
        let host = fleet.host.client("test", &WriteCounts::default()).unwrap();
        Self { dir, fleet, host, _stop: stop.drop_guard(), _turn: turn }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn caldera(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_caldera"));
        command.args(words);
        command
    }

    fn succeeds(&self, command: &mut Command) -> String {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{text}\n{}", fs::read_to_string(self.path("log")).unwrap_or_default());
        text
    }

    /// Installs this version over what is there, and runs it.
    fn install(&self) -> Supervised {
        let at = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let (admin, made, url) = (self.path("admin"), self.path("made"), format!("https://{at}"));
        let install = |more: &[&str]| {
            let mut command = self.caldera(&["install", "--yes", "--components-at", &url]);
            command.arg("--host-kubeconfig").arg(&admin).arg("--dir").arg(&made).args(more);
            self.succeeds(&mut command)
        };
        install(&["--prepare"]);
        let mut server = self.caldera(&["server", "--lease-namespace", "caldera-system", "--listen", &at.to_string()]);
        server.arg("--tls-cert").arg(made.join("tls.crt")).arg("--tls-key").arg(made.join("tls.key"));
        for part in ["webhook", "controller", "scheduler"] {
            server.arg(format!("--{part}-kubeconfig")).arg(made.join(format!("caldera-{part}.kubeconfig")));
        }
        let log = File::create(self.path("log")).unwrap();
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let server = Supervised::start(server);
        let text = install(&[]);
        assert!(text.contains("\n0 errors"), "{text}");
        server
    }

    async fn list(&self, of: &Client, resource: &ApiResource) -> Vec<Value> {
        let api: Api<DynamicObject> = Api::namespaced_with(of.clone(), "default", resource);
        let all = api.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().map(|object| serde_json::to_value(object).unwrap()).collect()
    }

    async fn find(&self, resource: &ApiResource, name: &str) -> Value {
        self.list(&self.host, resource).await.into_iter().find(|object| key(object) == name).unwrap_or_default()
    }

    async fn until(&self, resource: &ApiResource, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let waited = async {
            loop {
                let object = self.find(resource, name).await;
                if holds(&object) {
                    return object;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        match tokio::time::timeout(AT_LAST, waited).await {
            Ok(object) => object,
            Err(_) => panic!("{name} never {what}: {:#}", self.find(resource, name).await),
        }
    }

    async fn until_phase(&self, job: &str, phase: &str) {
        self.until(&jobs(), job, &format!("is {phase}"), |job| job["status"]["state"]["phase"] == phase).await;
    }

    async fn delete_job(&self, name: &str) {
        let api: Api<DynamicObject> = Api::namespaced_with(self.host.clone(), "default", &jobs());
        api.delete(name, &DeleteParams::background()).await.unwrap();
        self.until(&bindings(), &format!("{name}-job"), "goes", Value::is_null).await;
    }

    async fn annotate_job(&self, name: &str, annotation: &str, value: Value) {
        let api: Api<DynamicObject> = Api::namespaced_with(self.host.clone(), "default", &jobs());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn running_pods(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for member in &self.fleet.members {
            let client = Endpoint::client(member, "test", &WriteCounts::default()).unwrap();
            let pods = self.list(&client, &api_resource("", "v1", "Pod", "pods")).await;
            let pods: Vec<Value> = pods
                .into_iter()
                .map(|mut pod| {
                    pod["kind"] = "Pod".into();
                    pod
                })
                .collect();
            all.extend(list_running_pods(&pods));
        }
        all
    }

    /// PodGroups of ours, by the workload that they are of.
    async fn groups_of_workloads(&self) -> BTreeMap<String, usize> {
        let groups =
            self.list(&self.host, &api_resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")).await;
        let mut all = BTreeMap::new();
        for group in groups {
            let name = group["metadata"]["labels"]["caldera.dev/workload-name"].as_str().unwrap_or_default().to_owned();
            *all.entry(name).or_default() += 1;
        }
        all
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_older_version_wrote_is_adopted_nothing_is_evicted_and_nothing_admitted_twice() {
    let fleet = Upgraded::start().await;
    let recorded = read_fixture("host");
    let find = |name: &str| {
        recorded.iter().filter(is_default).find(|one| one["kind"] == "ResourceBinding" && key(one) == name)
    };
    let ran: BTreeMap<&str, Value> = RUNNING.map(|name| (name, what_stays(find(name).unwrap()))).into();
    let pods: BTreeSet<String> =
        ["member1", "member2"].into_iter().flat_map(|name| list_running_pods(&read_fixture(name))).collect();
    assert_eq!(pods.len(), 16, "{pods:?}");

    let _server = fleet.install();
    // The one that waits for quota is next once some is free: so all of it was read, and in its order.
    for name in WAITING {
        let binding = fleet.find(&bindings(), name).await;
        assert_eq!(binding["spec"]["suspension"]["scheduling"], true, "{binding:#}");
    }
    let now = fleet.running_pods().await;
    assert!(pods.is_subset(&now), "{:?}", pods.difference(&now));
    fleet.delete_job("single").await;
    fleet.until_phase("next", "Completed").await;
    for name in RUNNING.into_iter().filter(|name| *name != "single-job") {
        let binding = fleet.find(&bindings(), name).await;
        assert_eq!(what_stays(&binding), ran[name], "{name}: {binding:#}");
    }
    let held = fleet.find(&bindings(), "held-job").await;
    assert_eq!(held["spec"]["suspension"]["scheduling"], true, "a hold of the older version holds: {held:#}");
    let groups = fleet.groups_of_workloads().await;
    assert!(groups.values().all(|count| *count == 1), "one PodGroup for each: {groups:?}");

    // What it suspended and held goes on when its user says so.
    fleet.annotate_job("stopped", "caldera.dev/suspended", Value::Null).await;
    fleet.until_phase("stopped", "Running").await;
    fleet.delete_job("stopped").await;
    fleet.annotate_job("held", "caldera.dev/hold", Value::Null).await;
    fleet.until_phase("held", "Completed").await;
    let behind = fleet.find(&bindings(), "behind-job").await;
    assert_eq!(behind["spec"]["suspension"]["scheduling"], true, "20 of 20 cores are charged: {behind:#}");
    let now = fleet.running_pods().await;
    let left = pods.iter().filter(|pod| !pod.starts_with("single-"));
    assert_eq!(left.filter(|pod| !now.contains(*pod)).count(), 0, "{now:?}");
    fleet.delete_job("split").await;
    fleet.until_phase("behind", "Completed").await;

    upgrade_cuts_roles_to_this_version(&fleet).await;
}

async fn upgrade_cuts_roles_to_this_version(fleet: &Upgraded) {
    let roles = api_resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
    let roles: Api<DynamicObject> = Api::all_with(fleet.host.clone(), &roles);
    let before = roles.get("caldera-controller").await.unwrap().data["rules"].clone();
    let older = json!({"apiGroups": ["gone.example.com"], "resources": ["things"], "verbs": ["get"]});
    let add = serde_json::from_value(json!([{"op": "add", "path": "/rules/-", "value": older}])).unwrap();
    roles.patch("caldera-controller", &PatchParams::default(), &Patch::<()>::Json(add)).await.unwrap();
    let mut upgrade = fleet.caldera(&["upgrade", "--yes", "--wait", "120"]);
    let text = fleet.succeeds(upgrade.arg("--kubeconfig").arg(fleet.path("admin")));
    assert_eq!(text.lines().filter(|line| line.contains("/6 ")).count(), 6, "{text}");
    assert!(text.contains("2/6 accounts, and roles that serve both versions: 0 created, 0 changed"), "{text}");
    assert!(text.contains("6/6 roles of this version alone: 0 created, 1 changed"), "{text}");
    assert_eq!(roles.get("caldera-controller").await.unwrap().data["rules"], before);
}
