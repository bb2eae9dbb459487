//! `caldera manifests`: the CRDs, roles, policies and webhook configurations that a Karmada host needs. The Deployments
//! that run the components are in [`crate::deploy`].

use std::{fs, process::ExitCode};

use anyhow::Context;
use caldera_controller::settings;
use caldera_runtime::{
    watch::api_resource,
    write::{Body, Write},
};
use caldera_webhook::Endpoint;
use serde_json::{Value, json};

use crate::{
    args::{DeployArgs, ManifestGroup, ManifestsArgs},
    deploy::{self, Deploy},
    output,
};

/// Prints what was asked for as YAML documents.
pub fn print_manifests(args: &ManifestsArgs) -> anyhow::Result<ExitCode> {
    let objects = match deployment_objects(&args.deploy)? {
        Some(objects) => objects,
        None => of_groups(args)?,
    };
    let mut text = String::new();
    for object in objects {
        let yaml = serde_saphyr::to_string(&object).context("failed to write YAML")?;
        text += &format!("---\n{}\n", yaml.trim_end());
    }
    output::write_stdout(&text);
    Ok(ExitCode::SUCCESS)
}

/// The Deployments of the components, if `--deployments` or `--member` asks for them.
fn deployment_objects(args: &DeployArgs) -> anyhow::Result<Option<Vec<Value>>> {
    let (image, namespace) = (args.image.as_deref(), args.namespace.clone());
    if args.deployments {
        let image = image.context("--deployments wants --image")?.to_owned();
        let deploy = Deploy { image, namespace, collectors: args.collectors.clone() };
        return Ok(Some(deploy::beside_karmada(&deploy)));
    }
    if !args.member {
        anyhow::ensure!(
            image.is_none() && args.collectors.is_empty(),
            "--image and --collector are for --deployments or --member"
        );
        return Ok(None);
    }
    let collector = match (image, args.collectors.as_slice()) {
        (None, []) => None,
        (Some(image), [cluster]) => Some((image, cluster.as_str())),
        _ => anyhow::bail!("a collector inside a member wants --image and one --collector CLUSTER"),
    };
    Ok(Some(deploy::inside_member(&namespace, collector)))
}

/// The chosen groups of objects for the Karmada API.
fn of_groups(args: &ManifestsArgs) -> anyhow::Result<Vec<Value>> {
    let wanted = |group| args.only.is_empty() || args.only.contains(&group);
    let mut objects = Vec::new();
    if wanted(ManifestGroup::Crds) {
        objects.extend(caldera_crds::manifests::volcano_crds());
        objects.extend(caldera_crds::manifests::federation_crds());
    }
    if wanted(ManifestGroup::Rbac) {
        objects.extend(component_roles());
    }
    if wanted(ManifestGroup::Policies) {
        objects.extend(propagation_policies());
    }
    if wanted(ManifestGroup::Webhooks) {
        let ca_bundle = match &args.ca_bundle {
            Some(path) => fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?,
            None => String::new(),
        };
        objects.extend(caldera_webhook::configurations(&webhook_endpoint(args)?, &ca_bundle));
        objects.extend(caldera_crds::trusted::admission_policies(&args.trusted.to_writers()));
    }
    Ok(objects)
}

/// Reads the objects of a YAML file.
///
/// # Errors
/// If it is not YAML.
pub fn parse_documents(yaml: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).context("failed to read YAML")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn webhook_endpoint(args: &ManifestsArgs) -> anyhow::Result<Endpoint> {
    if let Some(url) = &args.webhook_url {
        anyhow::ensure!(is_url(url), "--webhook-url must be https://HOST[:PORT][/PATH], not {url:?}");
        return Ok(Endpoint::Url(url.trim_end_matches('/').to_owned()));
    }
    let service = args.webhook_service.as_deref().unwrap_or("caldera-system/caldera-webhook:443");
    let parts = service.split_once('/').filter(|(namespace, rest)| !namespace.is_empty() && !rest.is_empty());
    let (namespace, rest) =
        parts.with_context(|| format!("--webhook-service wants NAMESPACE/NAME[:PORT], not {service:?}"))?;
    let (name, port) = match rest.split_once(':') {
        Some((name, port)) => (name, port.parse().with_context(|| format!("{port:?} is not a port"))?),
        None => (rest, 443),
    };
    Ok(Endpoint::Service { namespace: namespace.to_owned(), name: name.to_owned(), port })
}

/// Whether an API server takes it as a webhook's address: HTTPS, a host, no user, query or fragment.
fn is_url(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("https://") else { return false };
    let host = rest.split('/').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#' | '@' | '"' | '<' | '>' | '\\');
    let port_is_number = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => !name.is_empty() && port.parse::<u16>().is_ok(),
        _ => true,
    };
    !host.is_empty() && rest.chars().all(plain) && port_is_number
}

/// Queues and priority classes go to every member: jobs refer to them by name. Queues that a member already has (every
/// Volcano brings `default`) are taken over; `default` and `root` stay the members' own.
pub fn propagation_policies() -> Vec<Value> {
    let policy = |name: &str, selectors: Value| {
        json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
            "metadata": {"name": name},
            "spec": {
                "conflictResolution": "Overwrite",
                "resourceSelectors": selectors,
                "placement": {"clusterAffinity": {}},
            },
        })
    };
    vec![
        policy("caldera-queues", json!([{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}])),
        policy("caldera-priority-classes", json!([{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}])),
    ]
}

/// API groups, their resources, and what may be done with them.
type Rule = (&'static [&'static str], &'static [&'static str], &'static [&'static str]);

const READ: &[&str] = &["get", "list", "watch"];
const WORKLOADS: Rule =
    (&["batch.volcano.sh", "apps", "batch", ""], &["jobs", "deployments", "statefulsets", "pods", "namespaces"], READ);
const BINDINGS: Rule = (&["work.karmada.io"], &["resourcebindings"], &["get", "list", "watch", "patch"]);
const CLUSTERS: Rule = (&["cluster.karmada.io"], &["clusters"], READ);
const PROXY: Rule = (&["cluster.karmada.io"], &["clusters/proxy"], &["get"]);
const SECRETS: Rule = (&[""], &["secrets"], &["get"]);
const EVENTS: Rule = (&[""], &["events"], &["create", "patch"]);
const CLASSES: Rule = (&["scheduling.k8s.io"], &["priorityclasses"], READ);
const QUEUES: Rule = (&["scheduling.volcano.sh"], &["queues"], READ);
const LEASES: Rule = (&["coordination.k8s.io"], &["leases"], &["get", "create", "update", "patch"]);
const INVENTORIES: Rule = (&["federation.caldera.dev"], &["clusterinventories"], READ);
const LINKS: Rule = (&["federation.caldera.dev"], &["federationtopologies"], READ);

fn policy_rule((groups, resources, verbs): Rule) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

/// The settings that the controller publishes, and nothing else of its namespace.
fn settings_rule(verbs: &[&str]) -> Value {
    json!({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [settings::NAME], "verbs": verbs})
}

fn cluster_role(name: &str, rules: Vec<Value>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "caldera"}}, "rules": rules,
    })
}

/// Who may ask `caldera why`, `caldera queue` and `caldera simulate` about everything: whoever may view the host's
/// objects. To ask the members themselves is a role of its own, and nobody has it by default: Karmada's proxy leads to
/// all of a member's API, as far as the member lets its user. Without it the inventories or Karmada's summaries serve.
fn reader_roles() -> [Value; 2] {
    let rules: [Rule; 9] = [
        (&["scheduling.volcano.sh"], &["queues", "podgroups"], READ),
        (&["batch.volcano.sh"], &["jobs"], READ),
        (&["apps"], &["deployments", "statefulsets"], READ),
        (&["batch"], &["jobs"], READ),
        (&[""], &["pods", "namespaces"], READ),
        CLASSES,
        (&["work.karmada.io"], &["resourcebindings"], READ),
        CLUSTERS,
        (&["federation.caldera.dev"], &["clusterinventories", "federationtopologies"], READ),
    ];
    let mut all: Vec<Value> = rules.map(policy_rule).into();
    all.push(settings_rule(&["get"]));
    let mut reader = cluster_role("caldera-reader", all);
    reader["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] = "true".into();
    [reader, cluster_role("caldera-member-reader", vec![policy_rule(PROXY)])]
}

/// What each component may do on the Karmada API, and no more; and what readers may.
pub fn component_roles() -> Vec<Value> {
    let configurations: Rule = (
        &["admissionregistration.k8s.io", "config.karmada.io"],
        &[
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
            "resourceinterpreterwebhookconfigurations",
        ],
        &["get", "list", "watch", "create", "patch"],
    );
    let webhook = [WORKLOADS, BINDINGS, QUEUES, CLASSES, (&["work.karmada.io"], &["works"], READ), configurations];
    let controller: [Rule; 14] = [
        WORKLOADS,
        BINDINGS,
        CLUSTERS,
        PROXY,
        SECRETS,
        EVENTS,
        CLASSES,
        (QUEUES.0, QUEUES.1, &["get", "list", "watch", "create", "patch"]),
        (QUEUES.0, &["queues/status"], &["patch"]),
        (&["bus.volcano.sh"], &["commands"], &["get", "list", "watch", "delete"]),
        (QUEUES.0, &["podgroups"], &["get", "list", "watch", "create", "patch", "delete"]),
        LEASES,
        INVENTORIES,
        LINKS,
    ];
    // A collector that runs inside its member could do without proxy and secrets.
    let collect: Rule = (INVENTORIES.0, INVENTORIES.1, &["get", "list", "watch", "create", "patch", "delete"]);
    let inventory = [CLUSTERS, PROXY, SECRETS, LEASES, collect];
    let estimator = [CLUSTERS, PROXY, SECRETS, INVENTORIES];
    let scheduler: [Rule; 16] = [
        WORKLOADS,
        BINDINGS,
        (BINDINGS.0, &["clusterresourcebindings"], BINDINGS.2),
        (&["policy.karmada.io"], &["propagationpolicies", "clusterpropagationpolicies"], READ),
        (&["federation.caldera.dev"], &["clusterscores"], READ),
        LINKS,
        (LINKS.0, &["federationtopologies/status"], &["patch"]),
        (BINDINGS.0, &["resourcebindings/status", "clusterresourcebindings/status"], &["patch"]),
        CLUSTERS,
        PROXY,
        SECRETS,
        EVENTS,
        CLASSES,
        QUEUES,
        LEASES,
        INVENTORIES,
    ];
    let mut objects = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "caldera-system"}})];
    for component in ["webhook", "controller", "scheduler", "inventory", "estimator"] {
        objects.push(json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": format!("caldera-{component}"), "namespace": "caldera-system"},
        }));
    }
    let mut bind = |component: &str, rules: &[Rule], more: Option<Value>| {
        let name = format!("caldera-{component}");
        objects.push(cluster_role(&name, rules.iter().copied().map(policy_rule).chain(more).collect()));
        objects.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "caldera"}},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "caldera-system"}],
        }));
    };
    bind("webhook", &webhook, None);
    bind("controller", &controller, Some(settings_rule(&["get", "create", "patch"])));
    bind("inventory", &inventory, None);
    bind("estimator", &estimator, None);
    bind("scheduler", &scheduler, None);
    objects.extend(reader_roles());
    objects
}

/// A server-side apply of `object`, whose plural follows from its kind as for every kind used here.
pub fn apply_write(object: Value, manager: &'static str) -> anyhow::Result<Write> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    anyhow::ensure!(!kind.is_empty() && !name.is_empty(), "a manifest has no kind or no name");
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let lower = kind.to_lowercase();
    let plural = match lower.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if lower.ends_with('s') => format!("{lower}es"),
        None => format!("{lower}s"),
    };
    let namespace = text("/metadata/namespace");
    Ok(Write {
        resource: api_resource(group, version, &kind, &plural),
        namespace,
        name,
        subresource: None,
        body: Body::Apply { object, manager },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhooks_url_has_a_host_and_no_more_than_a_path() {
        for good in ["https://a", "https://a.b:8443", "https://10.0.0.1:1/x/", "https://[::1]:8443", "https://[::1]"] {
            assert!(is_url(good), "{good}");
        }
        for bad in
            ["", "a", "http://a", "https://", "https:///x", "https://:1", "https://a:b", "https://a b", "https://a?x=1"]
        {
            assert!(!is_url(bad), "{bad}");
        }
    }

    #[test]
    fn plurals_follow_from_kinds() {
        for (kind, plural) in
            [("Queue", "queues"), ("PropagationPolicy", "propagationpolicies"), ("PriorityClass", "priorityclasses")]
        {
            let write =
                apply_write(json!({"apiVersion": "g/v1", "kind": kind, "metadata": {"name": "x"}}), "m").unwrap();
            assert_eq!(write.resource.plural, plural);
        }
    }
}
