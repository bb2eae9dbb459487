//! `caldera manifests`: prints CRDs, roles, policies and webhook configurations that a Karmada host needs, or the
//! Deployments of the components, which [`crate::deploy`] builds.
//!
//! Also here, for other commands: parsing YAML documents, and building the server-side apply of an object.

use std::{fs, process::ExitCode};

use anyhow::Context;
use caldera_crds::{dns::is_dns_label, trusted::TrustedWriters};
use caldera_runtime::{
    probe::Peer,
    watch::api_resource,
    write::{Body, Write},
};
use caldera_webhook::Endpoint;
use serde_json::{Value, json};

use crate::{
    args::{ManifestGroup, ManifestsArgs, check_peers},
    deploy::{self, Deploy, MOST_COLLECTOR_NAME, ProbeSettings},
    output,
    roles::{Granted, build_component_roles, build_shadow_roles},
};

/// Prints what was asked for as YAML documents.
pub fn print_manifests(args: &ManifestsArgs) -> anyhow::Result<ExitCode> {
    let objects = match build_deployment_objects(args)? {
        Some(objects) => objects,
        None => build_group_objects(args)?,
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
fn build_deployment_objects(args: &ManifestsArgs) -> anyhow::Result<Option<Vec<Value>>> {
    let trusted_writers = args.trusted.writers.clone();
    let args = &args.deploy;
    let (image, namespace) = (args.image.as_deref(), args.namespace.clone());
    anyhow::ensure!(args.probe_secret.is_none() || !args.collectors.is_empty(), "--probe-secret is for a --collector");
    check_peers(&args.probe_peers).map_err(anyhow::Error::msg)?;
    let peers = args.probe_peers.iter().map(|Peer { cluster, address }| format!("{cluster}={address}")).collect();
    let probe = args.probe_secret.clone().map(|secret| ProbeSettings { secret, peers });
    if args.deployments {
        let image = image.context("--deployments wants --image")?.to_owned();
        args.collectors.iter().try_for_each(|name| check_collector_name(name, probe.is_some()))?;
        let (callers, caller_addresses) = (args.callers.clone(), args.caller_addresses.clone());
        let (collectors, console) = (args.collectors.clone(), args.console);
        let (stock_scheduler, register_url) = (args.stock_scheduler, args.register_url.clone());
        if let Some(url) = &register_url {
            anyhow::ensure!(is_webhook_url(url), "--register-url must be https://HOST[:PORT][/PATH], not {url:?}");
        }
        let deploy = Deploy {
            image,
            namespace,
            collectors,
            callers,
            caller_addresses,
            console,
            stock_scheduler,
            trusted_writers,
            register_url,
            probe,
        };
        return Ok(Some(deploy::build_component_objects(&deploy)));
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
    Ok(Some(deploy::build_member_objects(&namespace, collector, probe.as_ref())))
}

/// The chosen groups of objects for the Karmada API.
fn build_group_objects(args: &ManifestsArgs) -> anyhow::Result<Vec<Value>> {
    let wanted = |group| args.only.is_empty() || args.only.contains(&group);
    let mut objects = Vec::new();
    if wanted(ManifestGroup::Crds) {
        objects.extend(caldera_crds::manifests::build_host_volcano_crds());
        objects.extend(caldera_crds::manifests::build_federation_crds());
    }
    if wanted(ManifestGroup::Rbac) {
        objects.extend(build_component_roles(&Granted {
            registers: args.registers_webhooks,
            member_secrets: args.member_secrets.clone(),
        }));
    }
    if args.only.contains(&ManifestGroup::Shadow) {
        objects.extend(build_shadow_roles(&args.member_secrets));
    }
    if args.only.contains(&ManifestGroup::PullMembers) {
        objects.push(caldera_webhook::build_member_customization());
    }
    if wanted(ManifestGroup::Policies) {
        objects.extend(build_propagation_policies());
    }
    if wanted(ManifestGroup::Webhooks) {
        objects.extend(build_webhook_configurations(args)?);
        objects.extend(list_admission_policies(&args.trusted.to_writers(), args.require_queue_access));
    }
    Ok(objects)
}

/// Names of objects and labels beside the control plane are made of that of a member.
fn check_collector_name(name: &str, is_measuring: bool) -> anyhow::Result<()> {
    anyhow::ensure!(
        name.len() <= MOST_COLLECTOR_NAME,
        "--collector {name}: it has more than {MOST_COLLECTOR_NAME} characters, too many for the labels of its collector"
    );
    anyhow::ensure!(
        !is_measuring || is_dns_label(name),
        "--collector {name} is no DNS label, and its Service caldera-probe-{name} would be none: run its collector inside \
         the member, by --member, or leave out --probe-secret"
    );
    Ok(())
}

/// The admission policies; those on queues only where naming one wants a right.
#[must_use]
pub fn list_admission_policies(trusted: &TrustedWriters, require_queue_access: bool) -> Vec<Value> {
    let mut all = caldera_crds::trusted::build_admission_policies(trusted);
    all.extend(caldera_crds::action::build_action_policy());
    all.extend(caldera_crds::trusted::build_submission_policy(trusted));
    all.extend(caldera_crds::queue_access::build_command_policy());
    all.extend(caldera_crds::queue_access::build_hyper_job_policy());
    if require_queue_access {
        all.extend(caldera_crds::queue_access::build_queue_access_policies());
    }
    all
}

/// Webhooks fail closed: without trust in the webhook's certificate nothing of our kinds would be accepted any more.
fn build_webhook_configurations(args: &ManifestsArgs) -> anyhow::Result<Vec<Value>> {
    let endpoint = read_webhook_endpoint(args)?;
    let ca_bundle = match &args.ca_bundle {
        Some(path) => {
            let pem = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
            anyhow::ensure!(pem.contains("-----BEGIN CERTIFICATE-----"), "{} has no certificate", path.display());
            pem
        }
        None if args.system_trust => String::new(),
        None if args.registers_webhooks => return Ok(Vec::new()),
        None => anyhow::bail!(
            "no API server would trust the webhook, and nothing of its kinds would be accepted: give --ca-bundle FILE, or \
             --registers-webhooks for a webhook that registers itself, or --system-trust for a certificate of a known \
             authority; --only crds, policies or rbac prints what needs none"
        ),
    };
    Ok(caldera_webhook::build_configurations_for(&endpoint, &ca_bundle, &args.trusted.to_writers()))
}

/// Reads the objects of a YAML file.
///
/// # Errors
/// If it is not YAML.
pub fn parse_documents(yaml: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).context("failed to read YAML")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn read_webhook_endpoint(args: &ManifestsArgs) -> anyhow::Result<Endpoint> {
    if let Some(url) = &args.webhook_url {
        anyhow::ensure!(is_webhook_url(url), "--webhook-url must be https://HOST[:PORT][/PATH], not {url:?}");
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
pub fn is_webhook_url(url: &str) -> bool {
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
pub fn build_propagation_policies() -> Vec<Value> {
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

/// A server-side apply of `object`, whose plural follows from its kind as for every kind used here.
pub fn build_apply_write(object: Value, manager: &'static str) -> anyhow::Result<Write> {
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
    fn a_collector_of_which_no_object_can_be_named_is_refused() {
        let refuse = |name: &str, is_measuring| check_collector_name(name, is_measuring).err().map(|it| it.to_string());
        assert_eq!((refuse("eu.m2", false), refuse("eu-m2", true)), (None, None));
        let why = "--collector eu.m2 is no DNS label, and its Service caldera-probe-eu.m2 would be none: run its collector \
                   inside the member, by --member, or leave out --probe-secret";
        assert_eq!(refuse("eu.m2", true).as_deref(), Some(why));
        let long = "m".repeat(MOST_COLLECTOR_NAME);
        assert_eq!(refuse(&long, true), None);
        assert!(refuse(&(long + "m"), false).unwrap().contains("more than 45 characters"));
    }

    #[test]
    fn a_webhooks_url_has_a_host_and_no_more_than_a_path() {
        for good in ["https://a", "https://a.b:8443", "https://10.0.0.1:1/x/", "https://[::1]:8443", "https://[::1]"] {
            assert!(is_webhook_url(good), "{good}");
        }
        for bad in
            ["", "a", "http://a", "https://", "https:///x", "https://:1", "https://a:b", "https://a b", "https://a?x=1"]
        {
            assert!(!is_webhook_url(bad), "{bad}");
        }
    }

    #[test]
    fn plurals_follow_from_kinds() {
        for (kind, plural) in
            [("Queue", "queues"), ("PropagationPolicy", "propagationpolicies"), ("PriorityClass", "priorityclasses")]
        {
            let write =
                build_apply_write(json!({"apiVersion": "g/v1", "kind": kind, "metadata": {"name": "x"}}), "m").unwrap();
            assert_eq!(write.resource.plural, plural);
        }
    }
}
