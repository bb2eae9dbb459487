//! A hostile tenant, and a queue admin who makes mistakes, beside honest users.
//!
//! The tenant has an editor's rights as stock Karmada gives them, in its namespace and in those of the members' Works.
//! It forges records, plans, gates, clusters and statuses of its own jobs, and deletes what is there for them. In
//! guarded worlds webhook and policies judge its writes, and none of them may change what is admitted or placed. In the
//! others both are away for it, so that what it wrote is there and must be worthless:
//!
//! - while things go wrong, what was forged harms no honest job ([`Invariants`]);
//! - afterwards the tenant goes on for a while ([`SIEGE`]), and what it forges is gone by the time that `docs/rules/
//!   protocol.md` says: at once, or after a minute where it names a later lease;
//! - honest queues are charged for honest jobs alone, and the tenant's queue stays within its limit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use caldera_crds::{
    names::caldera::{ADMISSION, EPOCH, EVICTION, GATE, PLAN, PRIORITY},
    trusted::{TrustedWriters, admission_policies},
};
use caldera_runtime::{
    watch::api_resource,
    write::{self, Body, Failure, Write},
};
use caldera_webhook as webhook;
use embedded_apiserver::{ApiServer, auth::User};
use kube::{Api, Client, api::DynamicObject};
use serde_json::{Value, json};
use tokio::time::Duration;

use crate::{
    history::Commit,
    invariants::{self, Invariants, has_ended},
    prng::Prng,
    setting::{WEBHOOK, create, queue, queues},
    stand_in::{self, NAMESPACE, write_to},
    story::job,
};

const TENANT: &str = "mallory";
const QUEUE_ADMIN: &str = "queue-admin";
/// The tenant's queue, and how its jobs are called.
const QUEUE: &str = "evil";
const PREFIX: &str = "evil-";
const LIMIT: u64 = 4;

/// The tenant goes on for so long once nothing fails any more, after controllers had time to take their leases.
pub const SIEGE: Duration = Duration::from_secs(80);
pub const BEFORE_SIEGE: Duration = Duration::from_secs(45);

/// In milliseconds: what is forged is taken away at once, give or take a write that met another one.
const AT_ONCE: u128 = 15_000;
/// A later lease is believed for a minute.
const OVERTAKEN: u128 = 60_000;

/// Whether there is a hostile tenant in the world of this seed.
pub fn is_in_world(seed: u64) -> bool {
    match std::env::var("CALDERA_SIMULATION_HOSTILE").as_deref() {
        Ok("0") => false,
        Ok(_) => true,
        Err(_) => seed % 12 == 2,
    }
}

/// Whether this is a job of the tenant's, or something of one.
pub fn is_hostile(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// What the tenant wrote on a binding and nobody took away yet.
#[derive(Debug)]
struct Forgery {
    /// Record and epoch.
    record: Option<(Value, Value)>,
    clusters: Option<Value>,
    at: u128,
    /// It must be gone by then; `None` where nothing says so.
    deadline: Option<u128>,
}

pub struct Hostile {
    tenant: Client,
    queue_admin: Client,
    guarded: bool,
    prng: Prng,
    /// Versions of bindings that the tenant wrote.
    by_tenant: BTreeSet<u64>,
    jobs: BTreeMap<String, Value>,
    bindings: BTreeMap<String, Value>,
    /// Namespaces and names.
    works: BTreeSet<(String, String)>,
    forgeries: BTreeMap<String, Forgery>,
    /// Names of jobs whose requests the tenant changed.
    edited: BTreeSet<String>,
    /// Nothing fails any more.
    besieges: bool,
    /// Since when controllers have settled.
    besieged: u128,
    /// Cores that its queue was seen to hold by honest means.
    held: u64,
    /// What the statuses of honest queues said that they are charged, and when.
    told: VecDeque<(u128, String, u64)>,
    /// As last seen, by queue.
    statuses: BTreeMap<String, Value>,
    /// What honest jobs held, by queue, and since when.
    honest: VecDeque<(u128, BTreeMap<String, u64>)>,
    /// Attacks by what came of them.
    pub attacks: BTreeMap<String, u64>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn annotation<'a>(binding: &'a Value, name: &str) -> &'a Value {
    &binding["metadata"]["annotations"][name]
}

/// How often the lease had changed hands.
fn term_of(epoch: &Value) -> Option<u64> {
    epoch.as_str()?.split_once('.')?.0.parse().ok()
}

impl Hostile {
    /// The accounts, their rights and the queue; and what judges their writes, if anything.
    pub async fn prepare(seed: u64, server: &ApiServer, admin: &Client) -> Self {
        let mut prng = Prng::new(seed ^ 0x6d61_6c6c_6f72_7900);
        let guarded = prng.below(3) == 0;
        let rules = json!([
            {"apiGroups": ["batch.volcano.sh"], "resources": ["jobs", "jobs/status"], "verbs": ["*"]},
            {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"], "verbs": ["*"]},
            {
                "apiGroups": ["work.karmada.io"], "verbs": ["*"],
                "resources": ["resourcebindings", "resourcebindings/status", "works", "works/status"],
            },
        ]);
        let rbac = |kind: &str, plural: &str| api_resource("rbac.authorization.k8s.io", "v1", kind, plural);
        let version = "rbac.authorization.k8s.io/v1";
        let granted = |kind: &str, role: &str, user: &str| {
            json!({
                "apiVersion": version, "kind": format!("{kind}Binding"), "metadata": {"name": user},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
            })
        };
        for namespace in [NAMESPACE, "karmada-es-m1", "karmada-es-m2"] {
            let role =
                json!({"apiVersion": version, "kind": "Role", "metadata": {"name": "edit"}, "rules": rules.clone()});
            create(admin, rbac("Role", "roles"), namespace, role).await;
            create(admin, rbac("RoleBinding", "rolebindings"), namespace, granted("Role", "edit", TENANT)).await;
        }
        let rules = json!([{"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "verbs": ["*"]}]);
        let role =
            json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "queues"}, "rules": rules});
        create(admin, rbac("ClusterRole", "clusterroles"), "", role).await;
        let bound = granted("ClusterRole", "queues", QUEUE_ADMIN);
        create(admin, rbac("ClusterRoleBinding", "clusterrolebindings"), "", bound).await;
        if guarded {
            for policy in admission_policies(&TrustedWriters::default()) {
                let kind = text(&policy["kind"]).to_owned();
                let is_policy = kind == "ValidatingAdmissionPolicy";
                let plural = if is_policy { "policies" } else { "policybindings" };
                let plural = format!("validatingadmission{plural}");
                create(admin, api_resource("admissionregistration.k8s.io", "v1", &kind, &plural), "", policy).await;
            }
        } else {
            lead_around_webhook(admin).await;
        }
        let client = |user: &str| Client::new(server.router_as(User::authenticated(user, &[])), "default");
        Self {
            tenant: client(TENANT),
            queue_admin: client(QUEUE_ADMIN),
            guarded,
            prng,
            by_tenant: BTreeSet::new(),
            jobs: BTreeMap::new(),
            bindings: BTreeMap::new(),
            works: BTreeSet::new(),
            forgeries: BTreeMap::new(),
            edited: BTreeSet::new(),
            besieges: false,
            besieged: 0,
            held: 0,
            told: VecDeque::new(),
            statuses: BTreeMap::new(),
            honest: VecDeque::new(),
            attacks: BTreeMap::new(),
        }
    }

    /// The queue of the tenant, once the webhook answers.
    pub async fn prepare_queue(&self, admin: &Client) {
        let queue = json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": QUEUE},
            "spec": {"weight": 1, "reclaimable": true, "capability": {"cpu": LIMIT.to_string()}},
        });
        create(admin, queues(), "", queue).await;
    }

    /// Everything is as it should be, but for the tenant.
    pub async fn besiege(&mut self, admin: &Client, now: u128) {
        let tune = async |name: &str, spec: Value| {
            let write = write_to(queues(), "", name, Body::MergePatch(json!({"spec": spec})));
            write::execute_write(admin, &write).await
        };
        // No child may have more than its parent.
        if let Err(Failure::Gone(_)) = tune("lab", json!({"capability": null})).await {
            let mut lab = queue("lab");
            lab["spec"].as_object_mut().unwrap().remove("capability");
            create(admin, queues(), "", lab).await;
        }
        for name in ["vision", "speech", "lab"] {
            tune(name, queue(name)["spec"].clone()).await.unwrap();
        }
        tune(QUEUE, json!({"capability": {"cpu": LIMIT.to_string()}})).await.unwrap();
        self.besieges = true;
        self.besieged = now + BEFORE_SIEGE.as_millis();
        for forgery in self.forgeries.values_mut() {
            forgery.deadline = forgery.deadline.map(|_| now + BEFORE_SIEGE.as_millis() + OVERTAKEN + AT_ONCE);
        }
    }

    /// It is over: all its jobs go.
    pub async fn give_up(&mut self, admin: &Client) {
        let kept: Vec<_> =
            self.forgeries.iter().filter(|(name, it)| it.deadline.is_some() && !self.has_ended(name)).collect();
        assert!(kept.is_empty(), "at rest these are forged: {kept:?}");
        for name in self.jobs.keys() {
            let write = write_to(stand_in::jobs(), NAMESPACE, name, Body::Delete { uid: None });
            write::execute_write(admin, &write).await.unwrap();
        }
    }
}

/// The webhook is not asked about what these two write, but for the defaults of jobs.
async fn lead_around_webhook(admin: &Client) {
    let condition = json!({
        "name": "around", "expression": format!("!(request.userInfo.username in ['{TENANT}', '{QUEUE_ADMIN}'])"),
    });
    for mut configuration in webhook::configurations(&webhook::Endpoint::Url(format!("https://{WEBHOOK}")), "") {
        let kind = text(&configuration["kind"]).to_owned();
        if kind == "ResourceInterpreterWebhookConfiguration" {
            continue;
        }
        for hook in configuration["webhooks"].as_array_mut().unwrap() {
            if hook["name"] != "jobs.defaults.caldera.dev" {
                let mut conditions = hook["matchConditions"].as_array().cloned().unwrap_or_default();
                conditions.push(condition.clone());
                hook["matchConditions"] = conditions.into();
            }
        }
        let of = api_resource("admissionregistration.k8s.io", "v1", &kind, &format!("{}s", kind.to_lowercase()));
        let body = Body::MergePatch(json!({"webhooks": configuration["webhooks"]}));
        let name = text(&configuration["metadata"]["name"]).to_owned();
        write::execute_write(admin, &write_to(of, "", &name, body)).await.unwrap();
    }
}

/// What it does.
impl Hostile {
    /// Now and then something at random.
    pub async fn step(&mut self, invariants: &Invariants) {
        if self.prng.below(14) != 0 {
            return;
        }
        let names: Vec<String> = self.bindings.keys().cloned().collect();
        if names.is_empty() || self.prng.below(10) == 0 {
            return self.submit().await;
        }
        let name = names[usize::try_from(self.prng.below(names.len() as u64)).unwrap()].clone();
        let (what, write) = self.choose_attack(&name, invariants);
        let Some(write) = write else { return };
        let by = if what.starts_with("queue") { &self.queue_admin } else { &self.tenant };
        // A write that changes nothing answers with the version of whoever wrote last.
        let known = Api::<DynamicObject>::namespaced_with(by.clone(), &write.namespace, &write.resource);
        let known = known.get_opt(&write.name).await.ok().flatten().and_then(|object| object.metadata.resource_version);
        let came = match write::execute_write(by, &write).await {
            Ok(object) => {
                let version = text(&object["metadata"]["resourceVersion"]);
                let is_new = !version.is_empty() && known.as_deref() != Some(version);
                if write.resource.kind == "ResourceBinding" && is_new {
                    self.by_tenant.insert(version.parse().unwrap());
                }
                "done"
            }
            Err(Failure::Refused { .. }) => "refused",
            Err(_) => "failed",
        };
        self.count(what, came);
    }

    fn count(&mut self, what: &str, came: &str) {
        *self.attacks.entry(format!("{what}: {came}")).or_default() += 1;
    }

    /// A job: some fit the queue, some never do, and one asks for the world.
    async fn submit(&mut self) {
        let name = format!("{PREFIX}{}", self.prng.below(6));
        let (replicas, cores) = match self.prng.below(8) {
            0 => (1_000, 1),
            1 | 2 => (self.prng.between(3, 6), 2),
            _ => (self.prng.between(1, 5), 1),
        };
        let minimum = if self.prng.below(3) == 0 { 1 } else { replicas };
        let seconds = if self.prng.below(4) == 0 { 100 } else { self.prng.between(3, 25) };
        let object = job(&name, QUEUE, &[("t0".into(), replicas, minimum, cores)], seconds, false);
        let write = write_to(stand_in::jobs(), NAMESPACE, &name, Body::Create(object));
        let came = if write::execute_write(&self.tenant, &write).await.is_ok() { "done" } else { "failed" };
        self.count("submit", came);
    }

    fn choose_attack(&mut self, binding: &str, invariants: &Invariants) -> (&'static str, Option<Write>) {
        let name = binding.trim_end_matches("-job").to_owned();
        let to = |body: Value| write_to(stand_in::bindings(), NAMESPACE, binding, Body::MergePatch(body));
        let status = |write: Write| Write { subresource: Some("status"), ..write };
        // What promises nothing without policies is left out of the siege: statuses, Works, requests.
        match self.prng.below(if self.besieges { 17 } else { 27 }) {
            0..=6 => ("record", Some(to(self.forge_record(binding, invariants)))),
            7 => {
                let open =
                    json!({"metadata": {"annotations": {GATE: "open"}}, "spec": {"suspension": {"scheduling": false}}});
                ("gate", Some(to(open)))
            }
            8 => ("suspension", Some(to(json!({"spec": {"suspension": {"scheduling": self.prng.below(2) == 0}}})))),
            9 | 10 => {
                let (clusters, plan) = self.forge_clusters(binding);
                let annotations = if self.prng.below(2) == 0 { json!({PLAN: plan}) } else { json!({}) };
                let patch = json!({"metadata": {"annotations": annotations}, "spec": {"clusters": clusters}});
                ("clusters", Some(to(patch)))
            }
            11 => {
                let (clusters, plan) = self.forge_clusters(binding);
                let annotations = json!({GATE: null, ADMISSION: null, EPOCH: null, PLAN: plan});
                let spec = json!({"clusters": clusters, "suspension": {"scheduling": false}});
                ("no gate", Some(to(json!({"metadata": {"annotations": annotations}, "spec": spec}))))
            }
            12 => {
                let (_, plan) = self.forge_clusters(binding);
                let plan = if self.prng.below(2) == 0 { plan } else { "{\"clusters\": 7}".into() };
                ("plan", Some(to(json!({"metadata": {"annotations": {PLAN: plan}}}))))
            }
            13 => {
                let now = i64::MAX - i64::try_from(self.prng.below(3)).unwrap();
                let eviction = json!({
                    "count": u32::MAX, "requeues": u32::MAX, "at": -now, "until": now, "last": -now,
                    "preemptor": "evil", "reason": "Forged", "message": "", "avoid": ["m1", "m2"],
                });
                let eviction = if self.prng.below(2) == 0 { Value::Null } else { eviction.to_string().into() };
                (
                    "eviction",
                    Some(to(json!({"metadata": {"annotations": {EVICTION: eviction, PRIORITY: "2147483647"}}}))),
                )
            }
            14 => ("PodGroup", self.find_group(&name)),
            15 => ("binding", Some(write_to(stand_in::bindings(), NAMESPACE, binding, Body::Delete { uid: None }))),
            16 => ("job", Some(write_to(stand_in::jobs(), NAMESPACE, &name, Body::Delete { uid: None }))),
            17 | 18 => {
                let phase = ["Completed", "Failed", "Running"][usize::try_from(self.prng.below(3)).unwrap()];
                let ended = json!({
                    "state": {"phase": phase}, "succeeded": 9, "taskStatusCount": {"t0": {"phase": {"Succeeded": 9}}},
                });
                if self.prng.below(2) == 0 {
                    let write =
                        write_to(stand_in::jobs(), NAMESPACE, &name, Body::MergePatch(json!({"status": ended})));
                    return ("job's status", Some(status(write)));
                }
                let items = ["m1", "m2"].map(|it| json!({"clusterName": it, "applied": true, "status": ended}));
                ("binding's status", Some(status(to(json!({"status": {"aggregatedStatus": items}})))))
            }
            19 | 20 => {
                let Some((namespace, work)) = self.works.iter().find(|(_, work)| work == binding).cloned() else {
                    return ("Work", None);
                };
                let body = if self.prng.below(2) == 0 {
                    Body::Delete { uid: None }
                } else {
                    let replicas = self.prng.between(1, 50);
                    Body::JsonPatch(json!([{
                        "op": "replace", "path": "/spec/workload/manifests/0/spec/tasks/0/replicas", "value": replicas,
                    }]))
                };
                ("Work", Some(write_to(stand_in::works(), &namespace, &work, body)))
            }
            21 | 22 => {
                self.edited.insert(name.clone());
                let cpu = "/spec/tasks/0/template/spec/containers/0/resources/requests/cpu";
                let patch = json!([
                    {"op": "replace", "path": cpu, "value": self.prng.between(1, 4).to_string()},
                    {"op": "replace", "path": "/spec/tasks/0/replicas", "value": self.prng.between(1, 9)},
                    {"op": "replace", "path": "/spec/tasks/0/minAvailable", "value": 1},
                    {"op": "replace", "path": "/spec/minAvailable", "value": 1},
                ]);
                ("template", Some(write_to(stand_in::jobs(), NAMESPACE, &name, Body::JsonPatch(patch))))
            }
            23..=25 => {
                let cores = [json!("2"), json!("7"), json!("100"), Value::Null]
                    [usize::try_from(self.prng.below(4)).unwrap()]
                .clone();
                let of = ["lab", "vision", "speech", QUEUE][usize::try_from(self.prng.below(4)).unwrap()];
                let patch = json!({"spec": {"capability": {"cpu": cores}}});
                ("queue's capability", Some(write_to(queues(), "", of, Body::MergePatch(patch))))
            }
            _ => ("queue with children", Some(write_to(queues(), "", "lab", Body::Delete { uid: None }))),
        }
    }

    fn find_group(&self, name: &str) -> Option<Write> {
        let uid = text(&self.jobs.get(name)?["metadata"]["uid"]);
        let group = format!("{name}-{uid}");
        Some(write_to(stand_in::pod_groups(), NAMESPACE, &group, Body::Delete { uid: None }))
    }

    /// A record, its lease, the open gate, and perhaps clusters.
    fn forge_record(&mut self, binding: &str, invariants: &Invariants) -> Value {
        let all = invariants.bindings().values().chain(self.bindings.values());
        let epochs =
            all.map(|binding| annotation(binding, EPOCH)).filter(|epoch| term_of(epoch).is_some_and(|it| it < 90));
        let newest = epochs.max_by_key(|epoch| term_of(epoch)).cloned().unwrap_or_default();
        let term = term_of(&newest).unwrap_or(0);
        let epoch = match self.prng.below(8) {
            0..=2 => newest,
            3 => format!("{}.controller-1", term.saturating_sub(1)).into(),
            4 => Value::Null,
            5 | 6 => format!("{}.me", 90 + self.prng.below(9)).into(),
            _ => "99999999999999999999.?".into(),
        };
        let job = self.jobs.get(binding.trim_end_matches("-job")).cloned().unwrap_or_default();
        let own = job["spec"]["tasks"][0]["replicas"].as_u64().unwrap_or(1);
        let queue = [QUEUE, QUEUE, QUEUE, "vision", "lab", "nobody's"][usize::try_from(self.prng.below(6)).unwrap()];
        let (pods, cpu) = match self.prng.below(4) {
            0 => (u64::from(u32::MAX), "1000000000".to_owned()),
            1 => (1, "0".to_owned()),
            2 => (1, "-1".to_owned()),
            _ => (own, (own * cores_of(&job)).to_string()),
        };
        let copies = if self.prng.below(8) == 0 { u32::MAX } else { 1 };
        let record = match self.prng.below(12) {
            0 => "{\"queue\": 7}".to_owned(),
            _ => json!({
                "queue": queue, "priority": i32::MAX, "copies": copies, "tasks": {"t0": pods},
                "charged": {"cpu": cpu, "pods": pods.to_string()},
            })
            .to_string(),
        };
        let mut annotations = json!({GATE: "open", ADMISSION: record, EPOCH: epoch});
        let mut spec = json!({"suspension": {"scheduling": false}});
        if self.prng.below(2) == 0 {
            let (clusters, plan) = self.forge_clusters(binding);
            spec["clusters"] = clusters;
            annotations[PLAN] = plan;
        }
        json!({"metadata": {"annotations": annotations}, "spec": spec})
    }

    /// Clusters and a plan of them.
    fn forge_clusters(&mut self, binding: &str) -> (Value, Value) {
        let job = self.jobs.get(binding.trim_end_matches("-job")).cloned().unwrap_or_default();
        let own = job["spec"]["tasks"][0]["replicas"].as_u64().unwrap_or(1);
        let targets: &[(&str, u64)] = match self.prng.below(7) {
            0 => &[],
            1 => &[("nowhere", 2_147_483_647)],
            2 => &[("m1", 2_147_483_647), ("nowhere", 0)],
            3 => &[("m1", own), ("m2", own)],
            4 => &[("m2", own)],
            _ => &[("m1", own)],
        };
        let share = |pods: u64| {
            let minimum = pods.clamp(1, u64::from(u32::MAX));
            json!({"tasks": {"t0": {"replicas": pods, "minAvailable": pods}}, "minAvailable": minimum})
        };
        let shares: BTreeMap<&str, Value> = targets.iter().map(|(name, pods)| (*name, share(*pods))).collect();
        let clusters = targets.iter().map(|(name, pods)| json!({"name": name, "replicas": pods}));
        (clusters.collect(), json!({"clusters": shares}).to_string().into())
    }
}

/// A record and its lease.
fn grant_of(binding: &Value) -> Option<(Value, Value)> {
    let record = annotation(binding, ADMISSION);
    record.is_string().then(|| (record.clone(), annotation(binding, EPOCH).clone()))
}

fn clusters_of(binding: &Value) -> Option<Value> {
    let clusters = &binding["spec"]["clusters"];
    clusters.as_array().is_some_and(|clusters| !clusters.is_empty()).then(|| clusters.clone())
}

/// Pods by its clusters.
fn count_placed(binding: &Value) -> u64 {
    let targets = binding["spec"]["clusters"].as_array().into_iter().flatten();
    targets.filter_map(|target| target["replicas"].as_u64()).sum()
}

fn cores_of(job: &Value) -> u64 {
    let requests = &job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["requests"];
    text(&requests["cpu"]).parse().unwrap_or(0)
}

/// What must hold all the same.
impl Hostile {
    /// Takes in a commit.
    pub fn observe(&mut self, commit: &Commit) {
        let (server, kind, namespace, name) = &commit.name;
        if server != "host" {
            return;
        }
        if let ("Queue", Some(queue)) = (kind.as_str(), &commit.object) {
            if self.besieges
                && name != QUEUE
                && queue["status"] != self.statuses.insert(name.clone(), queue["status"].clone()).unwrap_or_default()
            {
                let cores = text(&queue["status"]["allocated"]["cpu"]).parse().unwrap_or(0);
                self.told.push_back((commit.millis, name.clone(), cores));
            }
            return;
        }
        if !is_hostile(name) {
            return;
        }
        match (kind.as_str(), &commit.object) {
            ("Job", Some(job)) => drop(self.jobs.insert(name.clone(), job.clone())),
            ("Job", None) => {
                self.jobs.remove(name);
                self.edited.remove(name);
            }
            ("ResourceBinding", Some(binding)) => {
                let old = self.bindings.insert(name.clone(), binding.clone()).unwrap_or_default();
                if self.by_tenant.contains(&commit.version) {
                    self.follow_forgery(commit.millis, name, &old, binding);
                } else {
                    self.follow_withdrawal(name, binding);
                }
                self.stays_within_its_limit(binding);
            }
            ("ResourceBinding", None) => {
                self.bindings.remove(name);
                self.forgeries.remove(name);
            }
            ("Work", Some(_)) => drop(self.works.insert((namespace.clone(), name.clone()))),
            ("Work", None) => drop(self.works.remove(&(namespace.clone(), name.clone()))),
            _ => {}
        }
    }

    /// The tenant wrote this.
    fn follow_forgery(&mut self, now: u128, name: &str, old: &Value, new: &Value) {
        if self.guarded {
            let kept = |binding: &Value| {
                let annotations = [ADMISSION, EPOCH, PLAN, EVICTION].map(|name| annotation(binding, name).clone());
                (annotations, clusters_of(binding), binding["status"].clone())
            };
            assert_eq!(kept(old), kept(new), "{name}: the tenant changed what is not its own");
            return;
        }
        let before = self.forgeries.remove(name);
        let (recorded, placed) = (grant_of(old) != grant_of(new), clusters_of(old) != clusters_of(new));
        let due_before = before.as_ref().and_then(|before| before.deadline);
        let was_due = due_before.is_some();
        let (known_record, known_clusters) = before.map_or((None, None), |before| (before.record, before.clusters));
        let record = if recorded { grant_of(new) } else { known_record };
        let clusters = if placed { clusters_of(new) } else { known_clusters };
        if record.is_some() || clusters.is_some() {
            // What passes for granted stays so while nothing new is forged.
            let deadline = self.find_deadline(now, old, new, was_due).filter(|_| recorded || placed || was_due);
            // One that named a later lease before is not decided about sooner.
            let deadline = deadline.max(due_before.filter(|_| deadline.is_some()));
            self.forgeries.insert(name.to_owned(), Forgery { record, clusters, at: now, deadline });
        }
    }

    /// By when what was forged is gone; `None` where it may stay.
    fn find_deadline(&self, now: u128, old: &Value, new: &Value, was_due: bool) -> Option<u128> {
        let pods = |record: &Value| record["tasks"]["t0"].as_u64().unwrap_or(0);
        let copies = |record: &Value| record["copies"].as_u64().unwrap_or(1);
        let deadline = |more: u128| Some(now + AT_ONCE + more);
        let Some(record) = invariants::record(new) else {
            // What can not be read grants nothing; it is to go, and clusters with it.
            let is_gated = annotation(new, GATE).is_string();
            let is_told = annotation(new, ADMISSION).is_string() || clusters_of(new).is_some();
            return deadline(0).filter(|_| is_told && (self.besieges || (is_gated && clusters_of(new).is_some())));
        };
        let names_other = record["queue"] != QUEUE;
        // While controllers die: what was forged when none ran passes for granted where it is within its template.
        if !self.besieges && !names_other {
            return None;
        }
        let placed = count_placed(new);
        let is_within = |before: &Value| {
            let grows = pods(&record) > pods(before) || copies(&record) > copies(before);
            !grows && before["queue"] == QUEUE && (placed <= pods(&record) || placed <= count_placed(old))
        };
        // What is smaller than before harms nobody.
        if !names_other && !was_due && invariants::record(old).is_some_and(|before| is_within(&before)) {
            return None;
        }
        deadline(if term_of(annotation(new, EPOCH)).is_some_and(|term| term >= 90) { OVERTAKEN } else { 0 })
    }

    /// Somebody else wrote this.
    fn follow_withdrawal(&mut self, name: &str, binding: &Value) {
        let Some(forgery) = self.forgeries.get_mut(name) else { return };
        forgery.record = forgery.record.take().filter(|record| Some(record) == grant_of(binding).as_ref());
        forgery.clusters = forgery.clusters.take().filter(|clusters| Some(clusters) == clusters_of(binding).as_ref());
        if forgery.record.is_none() && forgery.clusters.is_none() {
            self.forgeries.remove(name);
        }
    }

    /// What it runs by honest means.
    fn stays_within_its_limit(&mut self, changed: &Value) {
        let mut held = 0;
        for (name, binding) in &self.bindings {
            let job = self.jobs.get(text(&binding["spec"]["resource"]["name"]));
            let Some(job) = job.filter(|job| job["metadata"]["uid"] == binding["spec"]["resource"]["uid"]) else {
                continue;
            };
            let job_name = text(&job["metadata"]["name"]);
            if self.forgeries.contains_key(name) || self.edited.contains(job_name) || has_ended(job) {
                continue;
            }
            let ended = job["status"]["taskStatusCount"]["t0"]["phase"]["Succeeded"].as_u64().unwrap_or(0);
            held += cores_of(job) * count_placed(binding).saturating_sub(ended);
        }
        let before = std::mem::replace(&mut self.held, held);
        if self.besieges {
            assert!(held <= LIMIT.max(before), "queue {QUEUE} holds {held} of {LIMIT} cores: {changed}");
        }
    }

    /// The record of a job that has ended, or is gone, grants nothing.
    fn has_ended(&self, binding: &str) -> bool {
        self.jobs.get(binding.trim_end_matches("-job")).is_none_or(has_ended)
    }

    /// What is forged is gone in time, and honest queues are charged for honest jobs alone.
    pub fn check(&mut self, now: u128, invariants: &Invariants) {
        if !self.besieges {
            return;
        }
        for (name, forgery) in &self.forgeries {
            let is_late = forgery.deadline.is_some_and(|deadline| now > deadline) && !self.has_ended(name);
            assert!(!is_late, "{name} is forged since {} s: {}", (now - forgery.at) / 1000, self.bindings[name]);
        }
        let held = invariants.granted_by_queue();
        if self.honest.back().is_none_or(|(_, last)| *last != held) {
            self.honest.push_back((now, held));
        }
        while let Some((at, queue, cores)) = self.told.front().filter(|(at, ..)| now > at + AT_ONCE).cloned() {
            self.told.pop_front();
            // What was there a while before counts until then.
            while self.honest.get(1).is_some_and(|(next, _)| next + OVERTAKEN < at) {
                self.honest.pop_front();
            }
            let most = self.honest.iter().map(|(_, held)| held.get(&queue).copied().unwrap_or(0)).max().unwrap_or(0);
            let is_settled = at > self.besieged;
            assert!(
                !is_settled || cores <= most,
                "queue {queue} was charged {cores} cores, and honest jobs held {most}"
            );
        }
    }
}
