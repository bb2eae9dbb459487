//! Roles on the Karmada API: what each component may do, and what readers may.
//!
//! Rules: exactly the verbs that are used, one rule for each API group; `.ci/run` compares them with what tests used
//! (`cli/tests/used_verbs.rs`). Leases, ConfigMaps and Secrets are granted in one namespace and by name; a name can not
//! bound `create`, so that is a rule of its own. Webhook configurations may be changed only where registration is asked
//! for, and only ours.

use caldera_controller::{fair_history, history, published_runs, settings, shadow, usage};
use caldera_crds::{names::karmada::CLUSTER_NAMESPACE, workload::WorkloadKind};
use caldera_runtime::debug_state::DEBUG_STATE_PATH;
use serde_json::{Value, json};

/// Namespace of the service accounts and leases.
pub const NAMESPACE: &str = "caldera-system";
/// The lease whose holder admits workloads.
pub(crate) const CONTROLLER_LEASE: &str = "caldera-controller";
/// Secret with the authority of webhooks that register themselves.
pub const AUTHORITY_SECRET: &str = "caldera-webhook-authority";

/// What is granted beside what every installation needs.
#[derive(Debug, Clone, Default)]
pub struct Granted {
    /// `caldera webhook --register-url` is used.
    pub registers: bool,
    /// Names of the Secrets by which members are reached, in Karmada's namespace for them; without any, all there.
    pub member_secrets: Vec<String>,
}

/// API group, its resources, and what may be done with them.
type Rule = (&'static str, &'static [&'static str], &'static [&'static str]);

const VOLCANO: &str = "batch.volcano.sh";
const FOLLOW: &[&str] = &["list", "watch"];
const READ: &[&str] = &["get", "list", "watch"];
const WORKLOADS: [Rule; 10] = [
    (VOLCANO, &["jobs"], FOLLOW),
    ("apps", &["deployments", "statefulsets"], FOLLOW),
    ("batch", &["jobs"], FOLLOW),
    ("", &["pods", "namespaces"], FOLLOW),
    ("kubeflow.org", &["mpijobs", "pytorchjobs", "tfjobs"], FOLLOW),
    ("ray.io", &["rayclusters", "rayjobs"], FOLLOW),
    ("jobset.x-k8s.io", &["jobsets"], FOLLOW),
    ("leaderworkerset.x-k8s.io", &["leaderworkersets"], FOLLOW),
    ("trainer.kubeflow.org", &["trainjobs"], FOLLOW),
    ("sparkoperator.k8s.io", &["sparkapplications"], FOLLOW),
];
/// Proxied requests are `get` whatever they are; what they may do in the member is the member's to say.
const MEMBERS: [Rule; 2] =
    [("cluster.karmada.io", &["clusters"], FOLLOW), ("cluster.karmada.io", &["clusters/proxy"], &["get"])];
const BINDINGS: &str = "work.karmada.io";
const QUEUES: &str = "scheduling.volcano.sh";
const OURS: &str = "federation.caldera.dev";
const DATA: Rule = ("datadependency.volcano.sh", &["datasources", "datasourceclaims"], FOLLOW);
const HYPER_JOBS: Rule = ("training.volcano.sh", &["hyperjobs"], FOLLOW);
const POLICIES: Rule = ("policy.karmada.io", &["propagationpolicies", "clusterpropagationpolicies"], FOLLOW);
/// Declared kinds. Who tells one grants its objects to the components, or has `caldera upgrade` do it.
const KINDS: Rule = (OURS, &["workloadkinds"], FOLLOW);
const EVENTS: Rule = ("", &["events"], &["create"]);
const CLASSES: Rule = ("scheduling.k8s.io", &["priorityclasses"], FOLLOW);
/// To ask who somebody is, and what he may do.
const REVIEWS: [Rule; 2] = [
    ("authentication.k8s.io", &["tokenreviews"], &["create"]),
    ("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
];
const CONFIGURATIONS: [Rule; 2] = [
    ("admissionregistration.k8s.io", &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"], &[]),
    ("config.karmada.io", &["resourceinterpreterwebhookconfigurations"], &[]),
];

fn build_policy_rule((group, resources, verbs): Rule) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn build_named_rule(group: &str, resource: &str, names: &[impl AsRef<str>], verbs: &[&str]) -> Value {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    json!({"apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": verbs})
}

fn build_common_labels() -> Value {
    json!({"app.kubernetes.io/part-of": "caldera"})
}

/// A role, and its binding to the component's account; of one namespace where one is given.
fn bound_role(component: &str, namespace: Option<&str>, rules: Vec<Value>) -> [Value; 2] {
    let (group, name) = ("rbac.authorization.k8s.io", format!("caldera-{component}"));
    let (role, binding) =
        if namespace.is_some() { ("Role", "RoleBinding") } else { ("ClusterRole", "ClusterRoleBinding") };
    let mut metadata = json!({"name": name, "labels": build_common_labels()});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    [
        json!({"apiVersion": format!("{group}/v1"), "kind": role, "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": binding, "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": role, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        }),
    ]
}

/// Who a component is to the API server.
#[must_use]
pub fn name_account(component: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:caldera-{component}")
}

/// Who may ask `caldera why`, `caldera queue` and `caldera simulate` about everything: whoever may view the host's
/// objects. To ask the members themselves is a role of its own, and nobody has it by default: Karmada's proxy leads to
/// all of a member's API, as far as the member lets its user. Without it the inventories or Karmada's summaries serve.
/// Nor has anybody by default the role to see what state a component is in.
fn build_reader_roles() -> [Value; 3] {
    let rules: [Rule; 9] = [
        (QUEUES, &["queues", "podgroups"], READ),
        (VOLCANO, &["cronjobs"], READ),
        ("batch", &["cronjobs"], READ),
        (HYPER_JOBS.0, HYPER_JOBS.1, READ),
        ("scheduling.k8s.io", &["priorityclasses"], READ),
        (BINDINGS, &["resourcebindings"], READ),
        ("cluster.karmada.io", &["clusters"], READ),
        (OURS, &["clusterinventories", "capacityreservations", "federationtopologies", "workloadkinds"], READ),
        (DATA.0, DATA.1, READ),
    ];
    let role = |name: &str, rules: Vec<Value>| {
        let metadata = json!({"name": name, "labels": build_common_labels()});
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules,
        })
    };
    let workloads = WORKLOADS.map(|(group, resources, _)| (group, resources, READ));
    let mut all: Vec<Value> = workloads.into_iter().chain(rules).map(build_policy_rule).collect();
    // In whatever namespace the controller's lease is.
    let published = [settings::NAME, fair_history::QUEUES, published_runs::NAME];
    all.push(build_named_rule("", "configmaps", &published, &["get"]));
    let mut reader = role("caldera-reader", all);
    reader["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] = "true".into();
    let state = json!({"nonResourceURLs": [DEBUG_STATE_PATH], "verbs": ["get"]});
    let of_members = build_policy_rule(MEMBERS[1]);
    [reader, role("caldera-member-reader", vec![of_members]), role("caldera-state-reader", vec![state])]
}

/// Those of declared kinds, as far as this process knows them. Components alone: whoever tells a kind
/// shows its objects to no viewer.
fn list_declared_workloads(verbs: &'static [&'static str]) -> impl Iterator<Item = Rule> {
    let declared = WorkloadKind::list_all().filter(|kind| matches!(kind, WorkloadKind::Declared(_)));
    declared.map(move |kind| (kind.group(), kind.plurals(), verbs))
}

/// The workloads alone, without their namespaces.
fn follow_workloads() -> impl Iterator<Item = Rule> {
    WORKLOADS.into_iter().map(|(group, resources, verbs)| match group {
        "" => (group, &["pods"][..], verbs),
        _ => (group, resources, verbs),
    })
}

/// The rules of each component for all namespaces.
fn list_cluster_rules(component: &str) -> Vec<Rule> {
    let mut rules = Vec::new();
    match component {
        "webhook" => {
            // What the cache lacks is read.
            rules.extend(WORKLOADS.map(|(group, resources, _)| (group, resources, READ)));
            rules.extend(list_declared_workloads(READ));
            rules.extend([
                (BINDINGS, &["resourcebindings"][..], READ),
                (QUEUES, &["queues"], FOLLOW),
                CLASSES,
                // Whether one selects a new job.
                POLICIES,
                // What its claims ask for.
                ("resource.k8s.io", &["resourceclaimtemplates"], &["get"]),
                KINDS,
            ]);
        }
        "controller" => {
            rules.extend(WORKLOADS.into_iter().chain(list_declared_workloads(FOLLOW)).chain(MEMBERS));
            rules.extend([
                (BINDINGS, &["resourcebindings"][..], &["list", "watch", "patch"][..]),
                // What runs in members that are lost; and a copy that Karmada believes is there is sent again.
                (BINDINGS, &["works"], &["list", "watch", "patch"]),
                // Who writes a HyperJob or a CronJob was asked whether he may use its queues.
                (QUEUES, &["queues"], &["list", "watch", "create", "patch", "use"]),
                (QUEUES, &["queues/status"], &["patch"]),
                (QUEUES, &["podgroups"], &["list", "watch", "create", "patch", "delete"]),
                // Jobs of HyperJobs and CronJobs, Commands and TTL.
                (VOLCANO, &["jobs"], &["create", "patch", "delete"]),
                (VOLCANO, &["jobs/status"], &["patch"]),
                (VOLCANO, &["cronjobs"], FOLLOW),
                (VOLCANO, &["cronjobs/status"], &["patch"]),
                ("batch", &["jobs"], &["create", "delete"]),
                // Of Jobs that failed, which Karmada can not say.
                ("batch", &["jobs/status"], &["patch"]),
                ("batch", &["cronjobs"], FOLLOW),
                ("batch", &["cronjobs/status"], &["patch"]),
                ("bus.volcano.sh", &["commands"], &["list", "watch", "delete"]),
                HYPER_JOBS,
                ("training.volcano.sh", &["hyperjobs/status"], &["patch"]),
                DATA,
                (DATA.0, &["datasources/status", "datasourceclaims/status"], &["patch"]),
                // What a catalogue says, and what goes with its last claim.
                (DATA.0, &["datasources"], &["create", "delete"]),
                // Of the jobs of HyperJobs.
                ("policy.karmada.io", &["propagationpolicies"], &["list", "watch", "create", "patch", "delete"]),
                (
                    OURS,
                    &["clusterinventories", "capacityreservations", "federationtopologies", "workloadkinds"],
                    FOLLOW,
                ),
                EVENTS,
                CLASSES,
            ]);
        }
        "scheduler" => {
            rules.extend(follow_workloads().chain(list_declared_workloads(FOLLOW)).chain(MEMBERS));
            rules.extend([
                (BINDINGS, &["resourcebindings", "clusterresourcebindings"][..], &["list", "watch", "patch"][..]),
                (BINDINGS, &["resourcebindings/status", "clusterresourcebindings/status"], &["patch"]),
                POLICIES,
                DATA,
                (OURS, &["clusterinventories", "federationtopologies", "clusterscores", "workloadkinds"], FOLLOW),
                (OURS, &["federationtopologies/status"], &["patch"]),
                EVENTS,
            ]);
        }
        // A collector that runs inside its member could do without proxy and secrets.
        "inventory" => {
            rules.extend(MEMBERS);
            rules.push((OURS, &["clusterinventories"], &["get", "list", "watch", "create", "patch", "delete"]));
            rules.push(KINDS);
        }
        "estimator" => {
            rules.extend(MEMBERS);
            rules.push((OURS, &["clusterinventories"], FOLLOW));
        }
        // It shows what it follows to whoever may list it himself, and asks who that is.
        "console" => {
            rules.extend(follow_workloads().chain(list_declared_workloads(FOLLOW)));
            rules.extend([
                ("", &["events"][..], &["list"][..]),
                (QUEUES, &["queues", "podgroups"], FOLLOW),
                (BINDINGS, &["resourcebindings"], FOLLOW),
                ("cluster.karmada.io", &["clusters"], FOLLOW),
                // Expected starts, and where pods are.
                ("", &["namespaces"], &["list"]),
                ("scheduling.k8s.io", &["priorityclasses"], READ),
                (OURS, &["clusterinventories", "capacityreservations", "federationtopologies", "workloadkinds"], READ),
                (DATA.0, DATA.1, READ),
                (HYPER_JOBS.0, HYPER_JOBS.1, READ),
            ]);
        }
        _ => {}
    }
    // Who wants to see its state, or a page.
    if ["webhook", "controller", "scheduler", "console"].contains(&component) {
        rules.extend(REVIEWS);
    }
    rules
}

/// The ConfigMaps that the controller keeps beside its Lease.
pub fn list_controller_config_maps() -> Vec<String> {
    let pages = history::ALL_PAGES.into_iter().flat_map(history::Pages::list_names);
    [settings::NAME, fair_history::QUEUES, fair_history::TENANTS, usage::NAME, published_runs::NAME]
        .map(ToOwned::to_owned)
        .into_iter()
        .chain(pages)
        .collect()
}

/// The rules of each component in its own namespace.
fn build_namespaced_rules(component: &str, granted: &Granted) -> Vec<Value> {
    let lease = |names: &[&str], verbs: &[&str]| build_named_rule("coordination.k8s.io", "leases", names, verbs);
    let create_lease = || build_policy_rule(("coordination.k8s.io", &["leases"], &["create"]));
    let held = &["get", "patch"];
    match component {
        "controller" => vec![
            create_lease(),
            lease(&["caldera-controller"], held),
            build_named_rule("", "configmaps", &list_controller_config_maps(), &["get", "create", "patch"]),
            // An admin's alone to write.
            build_named_rule("", "configmaps", &[settings::CHOSEN], &["get"]),
        ],
        // It reads the controller's lease, too.
        "scheduler" => {
            vec![create_lease(), lease(&["caldera-scheduler"], held), lease(&["caldera-controller"], &["get"])]
        }
        // Each member's has a name of its own.
        "inventory" => vec![build_policy_rule(("coordination.k8s.io", &["leases"], &["get", "create", "patch"]))],
        // Where karmada-scheduler places, it reads the controller's lease.
        "webhook" => {
            let authority = [
                build_policy_rule(("", &["secrets"], &["create"])),
                build_named_rule("", "secrets", &[AUTHORITY_SECRET], &["get", "patch"]),
            ];
            let own = authority.into_iter().filter(|_| granted.registers);
            own.chain([lease(&["caldera-controller"], &["get"])]).collect()
        }
        // By what the admin chose, and by how long the last jobs ran, it expects starts.
        "console" => {
            let names = [settings::NAME, fair_history::QUEUES, fair_history::TENANTS, published_runs::NAME];
            vec![build_named_rule("", "configmaps", &names, &["get"])]
        }
        _ => Vec::new(),
    }
}

/// Namespaces that are there for components.
fn build_namespaces() -> Vec<Value> {
    let namespace = |metadata: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    // Else Karmada makes it in every member.
    let ours = json!({"name": NAMESPACE, "labels": {"namespace.karmada.io/skip-auto-propagation": "true"}});
    // Karmada makes its own when the first member joins.
    vec![namespace(ours), namespace(json!({"name": CLUSTER_NAMESPACE}))]
}

fn build_account(component: &str) -> Value {
    let name = format!("caldera-{component}");
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}})
}

/// The Secrets by which members are reached.
fn build_member_secrets_role(component: &str, names: &[String]) -> [Value; 2] {
    let mut secrets = build_policy_rule(("", &["secrets"], &["get"]));
    if !names.is_empty() {
        secrets["resourceNames"] = json!(names);
    }
    bound_role(component, Some(CLUSTER_NAMESPACE), vec![secrets])
}

/// What a controller in shadow mode may do: it reads what a controller reads, and writes its report.
#[must_use]
pub fn build_shadow_roles(member_secrets: &[String]) -> Vec<Value> {
    let mut objects = build_namespaces();
    objects.push(build_account("shadow"));
    let reads = |(group, resources, verbs): Rule| {
        let verbs: Vec<&str> = verbs.iter().copied().filter(|verb| READ.contains(verb)).collect();
        (!verbs.is_empty()).then(|| json!({"apiGroups": [group], "resources": resources, "verbs": verbs}))
    };
    let rules = list_cluster_rules("controller").into_iter().filter_map(reads).collect();
    objects.extend(bound_role("shadow", None, rules));
    let read = [settings::CHOSEN, settings::NAME, fair_history::QUEUES, fair_history::TENANTS];
    let own = vec![
        build_named_rule("", "configmaps", &[shadow::NAME], &["get", "create", "patch"]),
        build_named_rule("", "configmaps", &read, &["get"]),
    ];
    objects.extend(bound_role("shadow", Some(NAMESPACE), own));
    objects.extend(build_member_secrets_role("shadow", member_secrets));
    objects
}

/// What each component may do on the Karmada API, and no more; and what readers may.
#[must_use]
pub fn build_component_roles(granted: &Granted) -> Vec<Value> {
    let mut objects = build_namespaces();
    let components = ["webhook", "controller", "scheduler", "inventory", "estimator", "console"];
    objects.extend(components.map(build_account));
    for component in components {
        let mut rules: Vec<Value> = list_cluster_rules(component).into_iter().map(build_policy_rule).collect();
        if component == "webhook" && granted.registers {
            rules.extend(list_registration_rules());
        }
        objects.extend(bound_role(component, None, rules));
        let own = build_namespaced_rules(component, granted);
        if !own.is_empty() {
            objects.extend(bound_role(component, Some(NAMESPACE), own));
        }
        if list_cluster_rules(component).contains(&MEMBERS[1]) {
            objects.extend(build_member_secrets_role(component, &granted.member_secrets));
        }
    }
    objects.extend(build_reader_roles());
    objects
}

/// For `--register-url`: our configurations are applied, by their names.
fn list_registration_rules() -> Vec<Value> {
    let name = |group: &str| if group == "config.karmada.io" { "caldera" } else { "queue.caldera.dev" };
    let rule = |(group, resources, _): Rule| {
        json!({
            "apiGroups": [group], "resources": resources, "resourceNames": [name(group)],
            "verbs": ["create", "get", "patch"],
        })
    };
    CONFIGURATIONS.map(rule).into()
}

#[cfg(test)]
mod tests;
