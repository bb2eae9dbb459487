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

mod attacks;
mod past;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use caldera_crds::{
    names::caldera::{ADMISSION, EPOCH, EVICTION, GATE, PLAN},
    trusted::{TrustedWriters, build_admission_policies},
};
use caldera_runtime::{
    watch::api_resource,
    write::{self, Body, Failure},
};
use caldera_webhook as webhook;
use embedded_apiserver::{ApiServer, auth::User};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::{
    actors::{Actor, Actors},
    history::Commit,
    invariants::{self, Invariants, has_ended},
    prng::Prng,
    setting::{GUEST, WEBHOOK, create, queue, queues},
    stand_in::{self, NAMESPACE, write_to},
};

pub use past::Past;

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
#[derive(Debug, Clone)]
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
    /// Cores that its bindings had clusters for when that began, by uid: they may keep them.
    ran_before: BTreeMap<String, u64>,
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
            for policy in build_admission_policies(&TrustedWriters::default()) {
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
            ran_before: BTreeMap::new(),
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
    pub async fn besiege(&mut self, admin: &Client, actors: &Actors, now: u128) {
        let tune = async |name: &str, spec: Value| {
            let write = write_to(queues(), "", name, Body::MergePatch(json!({"spec": spec})));
            write::execute_write(admin, &write).await
        };
        // No child may have more than its parent.
        if let Err(Failure::Gone(_)) = tune("lab", json!({"capability": null})).await {
            let mut lab = queue("lab", actors);
            lab["spec"].as_object_mut().unwrap().remove("capability");
            create(admin, queues(), "", lab).await;
        }
        // It could not be made anew while its parent was away.
        if actors.has(Actor::Limits) && matches!(tune(GUEST, json!({"weight": 1})).await, Err(Failure::Gone(_))) {
            create(admin, queues(), "", queue(GUEST, actors)).await;
        }
        for name in ["vision", "speech", "lab"] {
            // The webhook may not have seen yet what was written before.
            let mut answer = tune(name, queue(name, actors)["spec"].clone()).await;
            for _ in 0..60 {
                if !matches!(answer, Err(Failure::Refused { code: 422, .. })) {
                    break;
                }
                sleep(Duration::from_secs(1)).await;
                answer = tune(name, queue(name, actors)["spec"].clone()).await;
            }
            answer.unwrap();
        }
        tune(QUEUE, json!({"capability": {"cpu": LIMIT.to_string()}})).await.unwrap();
        self.besieges = true;
        self.ran_before = self
            .bindings
            .values()
            .filter_map(|binding| Some((uid_of(binding), cores_of(self.job_of(binding)?) * count_placed(binding))))
            .collect();
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
    for mut configuration in webhook::build_configurations(&webhook::Endpoint::Url(format!("https://{WEBHOOK}")), "") {
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

fn uid_of(object: &Value) -> String {
    text(&object["metadata"]["uid"]).to_owned()
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
        // What a forged record was given, and the scheduler cut, is no better without it.
        let bares = known_record.is_some() && grant_of(new).is_none();
        let record = if recorded { grant_of(new) } else { known_record };
        let clusters = if placed || bares { clusters_of(new) } else { known_clusters };
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

    /// Somebody else wrote this. Who writes another record takes what is placed within it for granted, and has it count
    /// ([`Self::stays_within_its_limit`]).
    fn follow_withdrawal(&mut self, name: &str, binding: &Value) {
        let Some(forgery) = self.forgeries.get_mut(name) else { return };
        let was_recorded = forgery.record.is_some();
        forgery.record = forgery.record.take().filter(|record| Some(record) == grant_of(binding).as_ref());
        forgery.clusters = forgery.clusters.take().filter(|clusters| Some(clusters) == clusters_of(binding).as_ref());
        let pods = |record: &Value| record["tasks"]["t0"].as_u64().unwrap_or(0);
        let is_within = |record: &Value| record["queue"] == QUEUE && count_placed(binding) <= pods(record);
        let is_adopted =
            was_recorded && forgery.record.is_none() && invariants::record(binding).is_some_and(|it| is_within(&it));
        if is_adopted || (forgery.record.is_none() && forgery.clusters.is_none()) {
            self.forgeries.remove(name);
        }
    }

    /// What it runs by honest means.
    fn stays_within_its_limit(&mut self, changed: &Value) {
        if !self.besieges {
            return;
        }
        let (mut held, mut kept) = (0, 0);
        for (name, binding) in &self.bindings {
            let Some(job) = self.job_of(binding) else { continue };
            let job_name = text(&job["metadata"]["name"]);
            if self.forgeries.contains_key(name) || self.edited.contains(job_name) || has_ended(job) {
                continue;
            }
            let ended = job["status"]["taskStatusCount"]["t0"]["phase"]["Succeeded"].as_u64().unwrap_or(0);
            let cores = cores_of(job) * count_placed(binding).saturating_sub(ended);
            held += cores;
            kept += self.ran_before.get(&uid_of(binding)).map_or(0, |before| cores.min(*before));
        }
        assert!(held <= LIMIT.max(kept), "queue {QUEUE} holds {held} of {LIMIT} cores, {kept} from before: {changed}");
    }

    /// The job that a binding is of.
    fn job_of(&self, binding: &Value) -> Option<&Value> {
        let resource = &binding["spec"]["resource"];
        self.jobs.get(text(&resource["name"])).filter(|job| job["metadata"]["uid"] == resource["uid"])
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
