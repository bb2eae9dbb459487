//! What `caldera uninstall` finds on a Karmada API, kind by kind.
//!
//! Rule: what is installed by name is asked by the names that `caldera manifests` prints. Bindings count if they name
//! our scheduler or have an annotation of ours, queues by our annotations, PodGroups by our label, definitions
//! by group `federation.caldera.dev`: HyperJob is Volcano's. What the caller may not see is an error, never absent.

use std::collections::BTreeSet;

use anyhow::Context;
use caldera_controller::shadow;
use caldera_core::reason::Reason;
use caldera_crds::{
    action::ACTION_STAMPS,
    manifests::build_federation_crds,
    names::{
        caldera::{QUEUE_STATUS, SCHEDULER_NAME, WORKLOAD_NAME},
        karmada::CLUSTER_NAMESPACE,
    },
    trusted::{BINDING_ANNOTATIONS, TrustedWriters},
    workload::WorkloadKind,
};
use caldera_runtime::{members::collector::inventory_resource, watch::api_resource};
use caldera_webhook::{Endpoint, build_configurations, build_member_customization};
use kube::{Client, core::ApiResource};
use serde_json::{Value, json};

use crate::{
    install::webhook_probe::{PROBE, probe_resource},
    manifests::{build_apply_write, build_propagation_policies, list_admission_policies},
    objects::{self, annotation_of, get_object, key_of, list_objects, name_of, read_text_at},
    roles::{self, AUTHORITY_SECRET, Granted},
};

/// An object, and where it is.
#[derive(Debug, Clone)]
pub struct InstalledObject {
    /// Its resource.
    pub resource: ApiResource,
    /// As it is.
    pub object: Value,
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub struct Installed {
    /// Bindings that name our scheduler or have annotations of ours.
    pub bindings: Vec<Value>,
    /// Volcano Jobs that have ended, `namespace/name`.
    pub ended: BTreeSet<String>,
    /// PodGroups of ours.
    pub pod_groups: Vec<Value>,
    /// Queues with an annotation of ours.
    pub queues: Vec<Value>,
    /// MutatingWebhookConfigurations of ours.
    pub mutating: Vec<InstalledObject>,
    /// ValidatingWebhookConfigurations of ours.
    pub validating: Vec<InstalledObject>,
    /// Our ResourceInterpreterWebhookConfiguration and ResourceInterpreterCustomization.
    pub interpreters: Vec<InstalledObject>,
    /// Admission policies, their bindings, and propagation policies.
    pub policies: Vec<InstalledObject>,
    /// Roles and their bindings, and service accounts.
    pub roles: Vec<InstalledObject>,
    /// Leases, settings and the webhook's authority.
    pub state: Vec<InstalledObject>,
    /// Published inventories.
    pub inventories: Vec<InstalledObject>,
    /// Our CustomResourceDefinitions.
    pub definitions: Vec<InstalledObject>,
    /// Our namespace.
    pub namespaces: Vec<InstalledObject>,
    /// Users' policies that name our scheduler.
    pub naming_us: Vec<String>,
}

/// Reads it.
///
/// # Errors
/// If the API server does not answer, or the caller may not see what is to be removed.
pub async fn read_installed(client: &Client, lease_namespaces: &[String]) -> anyhow::Result<Installed> {
    let list = |resource: ApiResource, labels: Option<&'static str>| async move {
        list_objects(client, &resource, None, labels).await?.map_err(anyhow::Error::msg)
    };
    let (bindings, pod_groups, queues, inventories, jobs) = futures::try_join!(
        list(objects::binding_resource(), None),
        list(objects::pod_group_resource(), Some(WORKLOAD_NAME)),
        list(objects::queue_resource(), None),
        list(inventory_resource(), None),
        list(WorkloadKind::VolcanoJob.api_resource(), None),
    )?;
    let mut installed = Installed {
        bindings: bindings.into_iter().filter(is_binding_of_caldera).collect(),
        ended: jobs.iter().filter(|job| has_ended(job)).map(key_of).collect(),
        pod_groups,
        queues: queues.into_iter().filter(has_annotation_of_ours).collect(),
        inventories: inventories
            .into_iter()
            .map(|object| InstalledObject { resource: inventory_resource(), object })
            .collect(),
        ..Installed::default()
    };
    let [mutating, validating, interpreter] =
        <[Value; 3]>::try_from(build_configurations(&Endpoint::Url("https://host".to_owned()), "")).unwrap_or_default();
    installed.mutating = find_existing_objects(client, [mutating]).await?;
    let probe = probe_resource();
    let left = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": probe.kind, "metadata": {"name": PROBE},
    });
    installed.validating = find_existing_objects(client, [validating, left]).await?;
    installed.interpreters = find_existing_objects(client, [interpreter, build_member_customization()]).await?;
    let mut policies = list_admission_policies(&TrustedWriters::default(), true);
    policies.extend(build_propagation_policies());
    installed.policies = find_existing_objects(client, policies).await?;
    // HyperJobs are Volcano's API: their jobs would go with them.
    let is_definition_of_caldera = |crd: &Value| crd["spec"]["group"] == "federation.caldera.dev";
    installed.definitions = find_existing_objects(
        client,
        build_federation_crds().into_iter().filter(is_definition_of_caldera).collect::<Vec<_>>(),
    )
    .await?;
    let mut roles = roles::build_component_roles(&Granted { registers: true, member_secrets: Vec::new() });
    let of_shadow = roles::build_shadow_roles(&[]);
    roles.extend(of_shadow.into_iter().filter(|object| read_text_at(object, "/kind") != "Namespace"));
    let (namespaces, roles): (Vec<Value>, Vec<Value>) =
        roles.into_iter().partition(|object| read_text_at(object, "/kind") == "Namespace");
    // Karmada keeps its own Secrets in the other one.
    installed.namespaces =
        find_existing_objects(client, namespaces.into_iter().filter(|one| name_of(one) != CLUSTER_NAMESPACE)).await?;
    installed.roles = find_existing_objects(client, roles).await?;
    installed.state = read_component_state(client, lease_namespaces).await?;
    for (kind, plural) in
        [("PropagationPolicy", "propagationpolicies"), ("ClusterPropagationPolicy", "clusterpropagationpolicies")]
    {
        let all = list(api_resource("policy.karmada.io", "v1alpha1", kind, plural), None).await?;
        let ours = all.iter().filter(|policy| read_text_at(policy, "/spec/schedulerName") == SCHEDULER_NAME);
        installed.naming_us.extend(ours.map(|policy| format!("{kind} {}", key_of(policy))));
    }
    Ok(installed)
}

fn has_annotation_of_ours(queue: &Value) -> bool {
    ACTION_STAMPS.iter().chain([&QUEUE_STATUS]).any(|name| annotation_of(queue, name).is_some())
}

fn is_binding_of_caldera(binding: &Value) -> bool {
    read_text_at(binding, "/spec/schedulerName") == SCHEDULER_NAME
        || BINDING_ANNOTATIONS.iter().any(|name| annotation_of(binding, name).is_some())
}

fn has_ended(job: &Value) -> bool {
    // One that its user suspended would go on.
    ["Completed", "Failed", "Terminated", "Aborted"].contains(&read_text_at(job, "/status/state/phase"))
        && read_text_at(job, "/status/state/reason") != Reason::SUSPENDED_BY_USER
}

/// Those of the objects that are there.
async fn find_existing_objects(
    client: &Client,
    wanted: impl IntoIterator<Item = Value>,
) -> anyhow::Result<Vec<InstalledObject>> {
    let mut all = Vec::new();
    for object in wanted {
        let write = build_apply_write(object, "caldera-uninstall")?;
        let namespace = Some(write.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let found = get_object(client, &write.resource, namespace, &write.name).await?;
        let found = found.map_err(anyhow::Error::msg).context("what is to be removed must be seen")?;
        all.extend(found.map(|object| InstalledObject { resource: write.resource, object }));
    }
    Ok(all)
}

async fn read_component_state(client: &Client, namespaces: &[String]) -> anyhow::Result<Vec<InstalledObject>> {
    let mut all = Vec::new();
    let of = |group: &str, kind: &str, plural: &str| api_resource(group, "v1", kind, plural);
    let leases = of("coordination.k8s.io", "Lease", "leases");
    for namespace in namespaces {
        for lease in list_objects(client, &leases, Some(namespace), None).await?.map_err(anyhow::Error::msg)? {
            let name = name_of(&lease);
            let is_ours =
                ["caldera-controller", "caldera-scheduler"].contains(&name) || name.starts_with("caldera-inventory-");
            if is_ours {
                all.push(InstalledObject { resource: leases.clone(), object: lease });
            }
        }
        let maps = || of("", "ConfigMap", "configmaps");
        let secret = (of("", "Secret", "secrets"), AUTHORITY_SECRET.to_owned());
        let kept = roles::list_controller_config_maps()
            .into_iter()
            .chain([shadow::NAME.to_owned()])
            .map(|name| (maps(), name));
        for (resource, name) in kept.chain([secret]) {
            let found = get_object(client, &resource, Some(namespace), &name).await?.map_err(anyhow::Error::msg)?;
            all.extend(found.map(|object| InstalledObject { resource, object }));
        }
    }
    Ok(all)
}
