//! Reads everything that the doctor judges, once. It writes nothing: what it creates is created with `dryRun=All`.

pub mod ca_file;
mod inside;
mod karmada;
pub mod kubeconfigs;
mod rights;

use std::collections::BTreeSet;

use anyhow::Context;
use caldera_controller::settings::{self, Settings};
use caldera_core::gang::WorkloadRef;
use caldera_crds::{
    binding::{BindingView, parse_binding},
    capacity_reservation::CapacityReservation,
    karmada::cluster::Cluster,
    names::{
        caldera::{
            ADMISSION, CREDENTIALS_LIFETIME, EVICTION, GATE, PAUSED, PLAN, VERSION, WORKLOAD_KIND, WORKLOAD_NAME,
        },
        karmada::{BINDING_NAME, BINDING_NAMESPACE},
    },
    workload::WorkloadKind,
};
use caldera_runtime::{
    lease::parse_record,
    members::collector::inventory_resource,
    watch::{api_resource, list_kind_faults},
};
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, PostParams},
    core::ApiResource,
};
use serde_json::{Value, json};

use super::facts::{
    CheckedBinding, CommandFacts, DeclaredKind, Facts, InterpreterFailure, InventoryFacts, KarmadaAccount, LeaseFacts,
    PodGroupFacts, Probe, ProbeFailure, QueueFacts, ReservationFacts, Versions, WorkFacts,
};
use crate::{
    objects::{self, Visible, annotation_of, get_object, key_of, list_objects, name_of, read_list_at, read_text_at},
    roles::Granted,
};

/// Warnings that are looked through.
const MOST_EVENTS: u32 = 500;
/// Characters of an event that are told.
const MESSAGE_LENGTH: usize = 300;

/// Where to look.
#[derive(Debug, Clone)]
pub struct GatherOptions {
    /// Namespaces that may hold Leases and settings.
    pub lease_namespaces: Vec<String>,
    /// A namespace to create probes in, without storing them.
    pub probe_namespace: String,
    /// Seconds that what is new may take to settle.
    pub grace: u32,
    /// What the manifests were printed with.
    pub granted: Granted,
    /// Who karmada-controller-manager is.
    pub karmada: KarmadaAccount,
}

/// Everything.
///
/// # Errors
/// If the API server does not answer.
pub async fn gather_facts(client: &Client, places: &GatherOptions) -> anyhow::Result<Facts> {
    let server = client.apiserver_version().await.context("failed to ask for the API server's version")?;
    let reported = read_server_clock(client).await;
    let ours = Timestamp::now();
    let now = reported.unwrap_or(ours);
    let list = |resource: ApiResource| async move { list_objects(client, &resource, None, None).await };
    let definitions =
        api_resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
    let interpreter = |kind: &str, plural: &str| list(api_resource("config.karmada.io", "v1alpha1", kind, plural));
    let (definitions, mutating, validating, policies, policy_bindings, interpreters, customizations) = futures::try_join!(
        list(definitions),
        list(objects::admission_resource("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")),
        list(objects::admission_resource("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")),
        list(objects::admission_resource("ValidatingAdmissionPolicy", "validatingadmissionpolicies")),
        list(objects::admission_resource("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")),
        interpreter("ResourceInterpreterWebhookConfiguration", "resourceinterpreterwebhookconfigurations"),
        interpreter("ResourceInterpreterCustomization", "resourceinterpretercustomizations"),
    )?;
    let groups = objects::pod_group_resource();
    let (clusters, queues, bindings, works, commands, inventories, pod_groups, workloads) = futures::try_join!(
        list(objects::cluster_resource()),
        list(objects::queue_resource()),
        list(objects::binding_resource()),
        list(objects::work_resource()),
        list(objects::command_resource()),
        list(inventory_resource()),
        list_objects(client, &groups, None, Some(WORKLOAD_NAME)),
        list_workloads(client),
    )?;
    let of_propagation =
        api_resource("policy.karmada.io", "v1alpha1", "ClusterPropagationPolicy", "clusterpropagationpolicies");
    let (propagation_policies, reservations, leases, settings) = futures::try_join!(
        list(of_propagation),
        list(ApiResource::erase::<CapacityReservation>(&())),
        read_leases(client, &places.lease_namespaces),
        read_settings_of_namespaces(client, &places.lease_namespaces)
    )?;
    let interpreter_failures = read_interpreter_failures(client).await?;
    let ahead = reported.map(|reported| ours.as_second() - reported.as_second());
    let clusters: Visible<Vec<Cluster>> =
        clusters.map(|all| all.into_iter().filter_map(|one| serde_json::from_value(one).ok()).collect());
    let versions = Versions {
        caldera: env!("CARGO_PKG_VERSION").to_owned(),
        host: server.git_version,
        members: clusters.iter().flatten().map(inside::read_version).collect(),
    };
    let members = match &clusters {
        Ok(all) => Ok(inside::inspect_members(client, all, ahead.unwrap_or(0)).await),
        Err(why) => Err(why.clone()),
    };
    let namespace = places.probe_namespace.as_str();
    let member = clusters.iter().flatten().find_map(|cluster| cluster.metadata.name.as_deref());
    let karmada = karmada::review_karmada(client, &places.karmada, namespace, member).await;
    Ok(Facts {
        now,
        host_kubeconfig: None,
        grace: places.grace.into(),
        versions,
        our_clock: ahead,
        definitions,
        kind_faults: list_kind_faults(),
        declared_kinds: list_declared_kinds(),
        rights: rights::review_rights(client, &places.granted).await,
        mutating,
        validating,
        interpreters,
        interpreter_failures,
        customizations,
        policies,
        policy_bindings,
        propagation_policies,
        registers: places.granted.registers,
        karmada,
        binding_probe: probe_creation(client, &objects::binding_resource(), namespace, &build_probe_binding(namespace))
            .await,
        job_probe: probe_creation(client, &WorkloadKind::VolcanoJob.api_resource(), namespace, &build_probe_job())
            .await,
        kubeconfigs: Vec::new(),
        ca_file_fault: None,
        leases,
        members,
        queues: queues.map(|all| all.iter().map(read_queue).collect()),
        reservations: reservations.map(|all| all.iter().filter_map(|one| read_reservation(one, now)).collect()),
        bindings: bindings.map(|all| all.iter().filter_map(read_binding).collect()),
        workloads,
        pod_groups: pod_groups.map(|all| all.iter().filter_map(read_pod_group).collect()),
        works: works.map(|all| all.iter().filter_map(read_work).collect()),
        commands: commands.map(|all| all.iter().map(read_command).collect()),
        inventories: inventories.map(|all| all.iter().filter_map(read_inventory).collect()),
        settings,
    })
}

/// The time in the `Date` header of an answer.
pub async fn read_server_clock(client: &Client) -> Option<Timestamp> {
    let request = http::Request::get("/version").body(kube::client::Body::empty()).ok()?;
    let answer = client.send(request).await.ok()?;
    let date = answer.headers().get(http::header::DATE)?.to_str().ok()?;
    jiff::fmt::rfc2822::parse(date).ok().map(|zoned| zoned.timestamp())
}

/// One that is not over.
fn read_reservation(object: &Value, now: Timestamp) -> Option<ReservationFacts> {
    let name = name_of(object).to_owned();
    let read = serde_json::from_value::<CapacityReservation>(object.clone()).map_err(|error| error.to_string());
    let queues = match read.and_then(|object| object.read()) {
        Ok(kept) if kept.window.end <= now.into() => return None,
        Ok(kept) => Ok(kept.window.queues.iter().map(ToString::to_string).collect()),
        Err(why) => Err(why),
    };
    Some(ReservationFacts { name, queues })
}

fn read_time(object: &Value, pointer: &str) -> Option<Timestamp> {
    read_text_at(object, pointer).parse().ok()
}

fn creation_time(object: &Value) -> Option<Timestamp> {
    read_time(object, "/metadata/creationTimestamp")
}

/// Those that this process was told when it connected.
fn list_declared_kinds() -> Vec<DeclaredKind> {
    let reported = WorkloadKind::list_all().filter(|kind| matches!(kind, WorkloadKind::Declared(_)));
    reported
        .map(|kind| {
            let ApiResource { group, kind, plural, .. } = kind.api_resource();
            DeclaredKind { group, kind, plural }
        })
        .collect()
}

async fn list_workloads(client: &Client) -> anyhow::Result<Visible<BTreeSet<WorkloadRef>>> {
    let mut all = BTreeSet::new();
    for kind in WorkloadKind::list_all() {
        let listed = match list_objects(client, &kind.api_resource(), None, None).await? {
            Ok(listed) => listed,
            Err(why) => return Ok(Err(why)),
        };
        all.extend(listed.iter().map(|object| WorkloadRef {
            group: kind.group().to_owned(),
            kind: kind.kind().to_owned(),
            namespace: read_text_at(object, "/metadata/namespace").to_owned(),
            name: objects::name_of(object).to_owned(),
        }));
    }
    Ok(Ok(all))
}

/// Events that say that an interpreter could not be called (`pkg/resourceinterpreter/customized/webhook`, the words of
/// `k8s.io/apiserver`'s ErrCallingWebhook), of what the API server keeps: an hour.
async fn read_interpreter_failures(client: &Client) -> anyhow::Result<Visible<Vec<InterpreterFailure>>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &objects::event_resource());
    let asked = ListParams::default().fields("type=Warning").limit(MOST_EVENTS);
    let listed = api.list(&asked).await.map(|all| all.items);
    let events = match objects::take_answer(listed, || "events".to_owned())? {
        Ok(events) => events,
        Err(why) => return Ok(Err(why)),
    };
    let events = events.into_iter().filter_map(|event| serde_json::to_value(event).ok());
    let mut failures: Vec<InterpreterFailure> = events.filter_map(|event| read_interpreter_failure(&event)).collect();
    failures.sort_by_key(|failure| std::cmp::Reverse(failure.last));
    Ok(Ok(failures))
}

fn read_interpreter_failure(event: &Value) -> Option<InterpreterFailure> {
    let message = read_text_at(event, "/message");
    // The name that Karmada gives a hook begins with its configuration's.
    let is_ours = message.contains("failed calling webhook \"caldera/");
    let of = |field: &str| read_text_at(event, &format!("/involvedObject/{field}"));
    is_ours.then(|| InterpreterFailure {
        about: format!("{} {}/{}", of("kind"), of("namespace"), of("name")),
        message: message.chars().take(MESSAGE_LENGTH).collect(),
        last: read_time(event, "/lastTimestamp")
            .or_else(|| read_time(event, "/eventTime"))
            .or_else(|| creation_time(event)),
    })
}

async fn read_leases(client: &Client, namespaces: &[String]) -> anyhow::Result<Visible<Vec<LeaseFacts>>> {
    let resource = api_resource("coordination.k8s.io", "v1", "Lease", "leases");
    let mut leases = Vec::new();
    for namespace in namespaces {
        for name in ["caldera-controller", "caldera-scheduler"] {
            match get_object(client, &resource, Some(namespace), name).await? {
                Err(why) => return Ok(Err(why)),
                Ok(None) => {}
                Ok(Some(lease)) => leases.push(read_lease(&lease)),
            }
        }
    }
    Ok(Ok(leases))
}

fn read_lease(lease: &Value) -> LeaseFacts {
    let number = |name: &str| lease["spec"][name].as_i64().unwrap_or_default();
    let holder = read_text_at(lease, "/spec/holderIdentity").to_owned();
    let record = parse_record(None, lease);
    LeaseFacts {
        namespace: read_text_at(lease, "/metadata/namespace").to_owned(),
        name: objects::name_of(lease).to_owned(),
        holder,
        renewed: read_time(lease, "/spec/renewTime"),
        seconds: number("leaseDurationSeconds"),
        epoch: record.epoch(),
        version: annotation_of(lease, VERSION).map(str::to_owned),
        credentials: annotation_of(lease, CREDENTIALS_LIFETIME).and_then(|text| text.parse().ok()),
    }
}

async fn read_settings_of_namespaces(client: &Client, namespaces: &[String]) -> anyhow::Result<Vec<Visible<Settings>>> {
    let resource = api_resource("", "v1", "ConfigMap", "configmaps");
    let mut found = Vec::new();
    for namespace in namespaces {
        found.push(match get_object(client, &resource, Some(namespace), settings::NAME).await? {
            Err(why) => Err(why),
            Ok(None) => Err(format!("there is no ConfigMap {namespace}/{}", settings::NAME)),
            Ok(Some(map)) => Settings::read_config_map(&map),
        });
    }
    Ok(found)
}

pub(super) fn read_queue(object: &Value) -> QueueFacts {
    QueueFacts {
        name: objects::name_of(object).to_owned(),
        state: read_text_at(object, "/status/state").to_owned(),
        pending: object["status"]["pending"].as_i64().unwrap_or_default(),
        paused: objects::annotation_of(object, PAUSED).map(str::to_owned),
    }
}

/// `None` for what is no binding.
pub(super) fn read_binding(object: &Value) -> Option<CheckedBinding> {
    let parsed = parse_binding(object)?;
    let view = BindingView::from(&parsed);
    let is_there = |name: &str| view.annotation(name).is_some_and(|text| !text.is_empty());
    let unreadable =
        [(ADMISSION, view.admission().is_none()), (PLAN, view.plan().is_none()), (EVICTION, view.eviction().is_none())];
    Some(CheckedBinding {
        key: key_of(object),
        created: creation_time(object),
        workload: view.workload(),
        queued: objects::is_managed_by_caldera(object),
        deleting: view.is_deleting(),
        has_placement: object["spec"]["placement"].is_object(),
        gate: annotation_of(object, GATE).map(str::to_owned),
        suspended: view.is_scheduling_suspended(),
        clusters: parsed.spec.clusters.len(),
        replicas: object["spec"]["replicas"].as_i64().unwrap_or_default(),
        components: !read_list_at(object, "/spec/components").is_empty(),
        admitted: view.admission().is_some(),
        epoch: view.epoch().map(str::to_owned),
        unreadable: unreadable
            .into_iter()
            .filter(|(name, none)| *none && is_there(name))
            .map(|(name, _)| name)
            .collect(),
    })
}

fn read_pod_group(object: &Value) -> Option<PodGroupFacts> {
    let label = |name: &str| object["metadata"]["labels"][name].as_str();
    let kind = label(WORKLOAD_KIND)?;
    let owner = read_list_at(object, "/metadata/ownerReferences").first();
    let group =
        owner.map_or("", |owner| read_text_at(owner, "/apiVersion")).split_once('/').map_or("", |(group, _)| group);
    Some(PodGroupFacts {
        key: key_of(object),
        workload: WorkloadRef {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: read_text_at(object, "/metadata/namespace").to_owned(),
            name: label(WORKLOAD_NAME)?.to_owned(),
        },
        created: creation_time(object),
    })
}

fn read_work(object: &Value) -> Option<WorkFacts> {
    let binding = format!("{}/{}", annotation_of(object, BINDING_NAMESPACE)?, annotation_of(object, BINDING_NAME)?);
    let mut conditions = read_list_at(object, "/status/conditions").iter();
    let is_refused = conditions.any(|it| (&it["type"], &it["status"]) == (&json!("Applied"), &json!("False")));
    // A member that refused a later write has told a status of the copy that it took before.
    let may_run = !is_refused || !read_list_at(object, "/status/manifestStatuses").is_empty();
    Some(WorkFacts { key: key_of(object), binding, created: creation_time(object), may_run })
}

fn read_command(object: &Value) -> CommandFacts {
    CommandFacts {
        key: key_of(object),
        queue: read_text_at(object, "/target/name").to_owned(),
        created: creation_time(object),
    }
}

fn read_inventory(object: &Value) -> Option<InventoryFacts> {
    let heartbeat = object.pointer("/spec/heartbeat").filter(|heartbeat| heartbeat.is_object())?;
    Some(InventoryFacts {
        cluster: read_text_at(object, "/spec/cluster").to_owned(),
        seen: read_time(heartbeat, "/seenAt"),
        interval: heartbeat["everySeconds"].as_i64().unwrap_or_default(),
    })
}

/// What the API server makes of an object, without storing it.
async fn probe_creation(client: &Client, resource: &ApiResource, namespace: &str, object: &Value) -> Probe {
    let failed = |code, message: String| ProbeFailure { code, message };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let object = serde_json::from_value(object.clone()).map_err(|error| failed(0, error.to_string()))?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&params, &object).await {
        Ok(made) => serde_json::to_value(made).map_err(|error| failed(0, error.to_string())),
        Err(kube::Error::Api(status)) => Err(failed(status.code, status.message.clone())),
        Err(error) => Err(failed(0, error.to_string())),
    }
}

/// Nothing has this name.
const PROBE: &str = "caldera-doctor-probe";

/// A binding as Karmada makes it of a Volcano Job.
fn build_probe_binding(namespace: &str) -> Value {
    let kind = WorkloadKind::VolcanoJob;
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": PROBE},
        "spec": {
            "resource": {
                "apiVersion": kind.api_version(), "kind": kind.kind(), "namespace": namespace, "name": PROBE,
            },
            "placement": {"clusterAffinity": {}},
        },
    })
}

/// A job without any of Volcano's defaults.
fn build_probe_job() -> Value {
    let kind = WorkloadKind::VolcanoJob;
    json!({
        "apiVersion": kind.api_version(), "kind": kind.kind(), "metadata": {"name": PROBE},
        "spec": {"tasks": [{
            "name": "probe", "replicas": 1,
            "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "probe", "image": "none", "resources": {"requests": {"cpu": "1m"}}}],
            }},
        }]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_that_was_refused_may_still_run_if_its_member_took_it_before() {
        let work = |status: Value| {
            let annotations = json!({BINDING_NAMESPACE: "ns", BINDING_NAME: "b"});
            read_work(&json!({"metadata": {"annotations": annotations}, "status": status})).map(|work| work.may_run)
        };
        let refused = json!([{"type": "Applied", "status": "False"}]);
        assert_eq!(work(json!({})), Some(true));
        assert_eq!(work(json!({"conditions": refused})), Some(false));
        assert_eq!(work(json!({"conditions": refused, "manifestStatuses": [{"status": {}}]})), Some(true));
    }
}
