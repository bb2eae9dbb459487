//! The CustomResourceDefinitions that go with our types, for a host or a member that does not have them.
//!
//! Rule: Karmada 1.19 and Volcano 1.16 as they ship them; `tests/manifests.rs` compares field by field.

mod host_columns;

pub use host_columns::build_host_volcano_crds;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::{
    capacity_reservation,
    karmada::{apps, cluster, config, policy, work},
    links, published,
    schema::{mark_pod_template, mark_volume_claim, object_schema},
    score,
    volcano::{batch, bus, cron, datadependency, nodeinfo, scheduling, topology, training},
    workload::{declared, kind_declaration},
};

/// Whether a kind's objects live in namespaces.
trait ScopeName {
    const NAME: &'static str;
}
impl ScopeName for NamespaceResourceScope {
    const NAME: &'static str = "Namespaced";
}
impl ScopeName for ClusterResourceScope {
    const NAME: &'static str = "Cluster";
}

/// A printer column: name, type, JSON path, priority (above 0 is for `-o wide` only).
type Column = (&'static str, &'static str, &'static str, u8);

const AGE: Column = ("AGE", "date", ".metadata.creationTimestamp", 0);

/// A definition in the making.
struct Definition(Value);

impl Definition {
    /// The definition of `K`, with one version.
    fn for_kind<K>(required: &[&str]) -> Self
    where
        K: Resource<DynamicType = ()> + JsonSchema,
        K::Scope: ScopeName,
    {
        let (kind, plural) = (K::kind(&()), K::plural(&()));
        Self(json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{}", K::group(&())) },
            "spec": {
                "group": K::group(&()),
                "names": {
                    "kind": kind,
                    "listKind": format!("{kind}List"),
                    "plural": plural,
                    "singular": kind.to_lowercase(),
                },
                "scope": K::Scope::NAME,
                "versions": [{
                    "name": K::version(&()),
                    "served": true,
                    "storage": true,
                    "schema": { "openAPIV3Schema": object_schema::<K>(required) },
                }],
            },
        }))
    }

    fn with_names(mut self, key: &str, names: &[&str]) -> Self {
        self.0["spec"]["names"][key] = json!(names);
        self
    }

    fn with_short_names(self, names: &[&str]) -> Self {
        self.with_names("shortNames", names)
    }

    fn in_karmada_category(self) -> Self {
        self.with_names("categories", &["karmada-io"])
    }

    fn with_columns(mut self, columns: &[Column]) -> Self {
        let columns: Vec<Value> = columns
            .iter()
            .map(|(name, kind, path, priority)| {
                let mut column = json!({ "name": name, "type": kind, "jsonPath": path });
                if *priority > 0 {
                    column["priority"] = json!(priority);
                }
                column
            })
            .collect();
        self.0["spec"]["versions"][0]["additionalPrinterColumns"] = json!(columns);
        self
    }

    fn with_subresources(mut self, subresources: Value) -> Self {
        self.0["spec"]["versions"][0]["subresources"] = subresources;
        self
    }

    fn with_status(self) -> Self {
        self.with_subresources(json!({ "status": {} }))
    }

    /// Puts v1alpha1 of a binding, served but not stored, before the version that is there. It has fewer fields, and
    /// its replicas are with the resource.
    fn with_v1alpha1(mut self) -> Self {
        let mut version = self.0["spec"]["versions"][0].clone();
        version["name"] = json!("v1alpha1");
        version["storage"] = json!(false);
        let older = &mut version["schema"]["openAPIV3Schema"]["properties"];
        let spec = &mut older["spec"]["properties"];
        let amounts = spec["replicaRequirements"]["properties"]["resourceRequest"].clone();
        retain_keys(spec, &["clusters", "resource"]);
        retain_keys(&mut spec["clusters"]["items"]["properties"], &["name", "replicas"]);
        let resource = &mut spec["resource"]["properties"];
        retain_keys(resource, &["apiVersion", "kind", "name", "namespace", "resourceVersion"]);
        resource["replicas"] = json!({ "type": "integer", "format": "int32" });
        resource["resourcePerReplicas"] = amounts;
        let status = &mut older["status"]["properties"];
        retain_keys(status, &["aggregatedStatus", "conditions"]);
        let item = &mut status["aggregatedStatus"]["items"]["properties"];
        retain_keys(item, &["applied", "appliedMessage", "clusterName", "status"]);
        if let Some(version) = version.as_object_mut() {
            version.remove("additionalPrinterColumns");
        }
        if let Some(versions) = self.0["spec"]["versions"].as_array_mut() {
            versions.insert(0, version);
        }
        self
    }

    /// Changes the schema at a JSON pointer.
    fn edit_schema(mut self, path: &str, edit: impl FnOnce(&mut Value)) -> Self {
        let schema = &mut self.0["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        if let Some(place) = schema.pointer_mut(path) {
            edit(place);
        }
        self
    }
}

fn retain_keys(object: &mut Value, keys: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        object.retain(|key, _| keys.contains(&key.as_str()));
    }
}

/// What a Karmada host has.
#[must_use]
pub fn build_karmada_crds() -> Vec<Value> {
    let propagation = [
        ("CONFLICT-RESOLUTION", "string", ".spec.conflictResolution", 0),
        ("PRIORITY", "string", ".spec.priority", 0),
        AGE,
    ];
    let binding = [
        ("SCHEDULED", "string", r#".status.conditions[?(@.type=="Scheduled")].status"#, 0),
        ("FULLYAPPLIED", "string", r#".status.conditions[?(@.type=="FullyApplied")].status"#, 0),
        AGE,
    ];
    let spec = &["spec"];
    [
        Definition::for_kind::<policy::PropagationPolicy>(spec)
            .with_short_names(&["pp"])
            .in_karmada_category()
            .with_columns(&propagation)
            .with_subresources(json!({})),
        Definition::for_kind::<policy::ClusterPropagationPolicy>(spec)
            .with_short_names(&["cpp"])
            .in_karmada_category()
            .with_columns(&propagation)
            .with_subresources(json!({})),
        Definition::for_kind::<policy::OverridePolicy>(spec).with_short_names(&["op"]).in_karmada_category(),
        Definition::for_kind::<policy::ClusterOverridePolicy>(spec).with_short_names(&["cop"]).in_karmada_category(),
        Definition::for_kind::<policy::ClusterTaintPolicy>(spec),
        Definition::for_kind::<policy::FederatedResourceQuota>(spec).in_karmada_category().with_status().with_columns(
            &[("OVERALL", "string", ".status.overall", 0), ("OVERALL_USED", "string", ".status.overallUsed", 0)],
        ),
        Definition::for_kind::<work::ResourceBinding>(spec)
            .with_short_names(&["rb"])
            .in_karmada_category()
            .with_status()
            .with_columns(&binding)
            .with_v1alpha1(),
        Definition::for_kind::<work::ClusterResourceBinding>(spec)
            .with_short_names(&["crb"])
            .in_karmada_category()
            .with_status()
            .with_columns(&binding)
            .with_v1alpha1(),
        Definition::for_kind::<work::Work>(spec)
            .with_short_names(&["wk"])
            .in_karmada_category()
            .with_status()
            .with_columns(&[
                ("WORKLOAD-KIND", "string", ".spec.workload.manifests[*].kind", 0),
                ("APPLIED", "string", r#".status.conditions[?(@.type=="Applied")].status"#, 0),
                AGE,
            ]),
        Definition::for_kind::<config::ResourceInterpreterWebhookConfiguration>(&["webhooks"]).in_karmada_category(),
        Definition::for_kind::<config::ResourceInterpreterCustomization>(spec)
            .with_short_names(&["ric"])
            .in_karmada_category()
            .with_subresources(json!({}))
            .with_columns(&[
                ("TARGET-API-VERSION", "string", ".spec.target.apiVersion", 0),
                ("TARGET-KIND", "string", ".spec.target.kind", 0),
                AGE,
            ]),
        Definition::for_kind::<apps::WorkloadRebalancer>(spec).with_status(),
    ]
    .map(|definition| definition.0)
    .into()
}

/// What a member with Volcano has, and a host too.
#[must_use]
pub fn build_volcano_crds() -> Vec<Value> {
    volcano_definitions().map(|definition| definition.0).into()
}

/// What a member with Volcano has.
#[must_use]
pub fn build_member_volcano_crds() -> Vec<Value> {
    let numa = Definition::for_kind::<nodeinfo::Numatopology>(&[]).with_short_names(&["numatopo"]);
    build_volcano_crds().into_iter().chain([numa.0]).collect()
}

fn volcano_definitions() -> [Definition; 5] {
    let queue: Column = ("QUEUE", "string", ".spec.queue", 1);
    [
        Definition::for_kind::<batch::Job>(&[])
            .with_short_names(&["vcjob", "vj"])
            .with_status()
            .with_columns(&[
                ("STATUS", "string", ".status.state.phase", 0),
                ("minAvailable", "integer", ".status.minAvailable", 0),
                ("RUNNINGS", "integer", ".status.running", 0),
                AGE,
                queue,
            ])
            .edit_schema("/properties/spec/properties/tasks/items/properties/template", mark_pod_template)
            .edit_schema("/properties/spec/properties/volumes/items/properties/volumeClaim", mark_volume_claim),
        Definition::for_kind::<scheduling::PodGroup>(&[])
            .with_short_names(&["pg", "podgroup-v1beta1"])
            .with_subresources(json!({}))
            .with_columns(&[
                ("STATUS", "string", ".status.phase", 0),
                ("minMember", "integer", ".spec.minMember", 0),
                ("RUNNINGS", "integer", ".status.running", 0),
                AGE,
                queue,
            ]),
        Definition::for_kind::<scheduling::Queue>(&[])
            .with_short_names(&["q", "queue-v1beta1"])
            .with_status()
            .with_columns(&[("PARENT", "string", ".spec.parent", 0)]),
        Definition::for_kind::<bus::Command>(&[]),
        Definition::for_kind::<topology::HyperNode>(&[]).with_short_names(&["hn"]).with_status().with_columns(&[
            ("Tier", "string", ".spec.tier", 0),
            ("TierName", "string", ".spec.tierName", 0),
            ("NodeCount", "integer", ".status.nodeCount", 0),
            ("Age", "date", ".metadata.creationTimestamp", 0),
        ]),
    ]
}

/// HyperJob, for a Karmada host: Volcano's API, which volcano-global ships and a member does not have. Its
/// `templateSpec` is the spec of the Volcano Job that goes with it, partitions and tiers included.
fn hyper_job_crd() -> Value {
    let template = "/properties/spec/properties/replicatedJobs/items/properties/templateSpec/properties";
    let condition = |name, kind, priority| (name, "string", kind, priority);
    Definition::for_kind::<training::HyperJob>(&[])
        .with_short_names(&["hyperjob", "hj"])
        .with_status()
        .with_columns(&[
            condition("RUNNING", r#".status.conditions[?(@.type=="Running")].status"#, 0),
            condition("COMPLETED", r#".status.conditions[?(@.type=="Completed")].status"#, 0),
            condition("FAILED", r#".status.conditions[?(@.type=="Failed")].status"#, 0),
            ("JOBS", "integer", ".status.splitCount", 0),
            condition("MESSAGE", r#".status.conditions[?(@.type=="Running")].message"#, 1),
            AGE,
        ])
        .edit_schema(&format!("{template}/tasks/items/properties/template"), mark_pod_template)
        .edit_schema(&format!("{template}/volumes/items/properties/volumeClaim"), mark_volume_claim)
        .0
}

/// DataSource and DataSourceClaim, for a Karmada host: Volcano's API, which volcano-global ships.
fn data_crds() -> [Value; 2] {
    let of = |name, kind, field| (name, kind, field, 0);
    [
        Definition::for_kind::<datadependency::DataSource>(&[]).with_status().with_columns(&[
            of("SYSTEM", "string", ".spec.system"),
            of("TYPE", "string", ".spec.type"),
            of("DATA", "string", ".spec.name"),
            of("CLUSTERS", "string", ".spec.locality.clusterNames"),
            of("CLAIMS", "integer", ".status.boundClaims"),
            AGE,
        ]),
        Definition::for_kind::<datadependency::DataSourceClaim>(&[]).with_status().with_columns(&[
            of("PHASE", "string", ".status.phase"),
            of("SOURCE", "string", ".status.boundDataSource"),
            of("WORKLOAD", "string", ".spec.workload.name"),
            ("MESSAGE", "string", r#".status.conditions[?(@.type=="Bound")].message"#, 1),
            AGE,
        ]),
    ]
    .map(|definition| definition.0)
}

/// CronJob, for a Karmada host: Volcano's API, as far as the controller acts on it.
fn cron_job_crd() -> Value {
    let template = "/properties/spec/properties/jobTemplate/properties/spec/properties";
    let of = |name, kind, field| (name, kind, field, 0);
    Definition::for_kind::<cron::CronJob>(&["spec"])
        .with_short_names(&["cronvcjob", "cronvj"])
        .with_status()
        .with_columns(&[
            of("SCHEDULE", "string", ".spec.schedule"),
            of("SUSPEND", "boolean", ".spec.suspend"),
            of("LAST", "date", ".status.lastScheduleTime"),
            AGE,
        ])
        .edit_schema(&format!("{template}/tasks/items/properties/template"), mark_pod_template)
        .edit_schema(&format!("{template}/volumes/items/properties/volumeClaim"), mark_volume_claim)
        .0
}

/// What a Karmada host has beside these: our own kinds, CronJob, and those of Volcano's that
/// volcano-global ships.
#[must_use]
pub fn build_federation_crds() -> Vec<Value> {
    let of = |name, kind, field| (name, kind, field, 0);
    let ours = [
        Definition::for_kind::<published::ClusterInventory>(&["spec"]).with_short_names(&["cinv"]).with_columns(&[
            of("CLUSTER", "string", ".spec.cluster"),
            of("SEEN", "date", ".spec.heartbeat.seenAt"),
            of("NODES", "integer", ".spec.heartbeat.nodes"),
            of("PARTS", "integer", ".spec.heartbeat.parts"),
            of("REACHED", "string", ".spec.heartbeat.reached"),
            of("FAULT", "string", ".spec.heartbeat.fault"),
        ]),
        Definition::for_kind::<score::ClusterScore>(&["spec"]).with_short_names(&["cscore"]).with_columns(&[
            of("MEASURED", "date", ".spec.measuredAt"),
            of("VALID", "integer", ".spec.validForSeconds"),
        ]),
        Definition::for_kind::<capacity_reservation::CapacityReservation>(&["spec"])
            .with_short_names(&["capres"])
            .with_columns(&[
                of("AMOUNTS", "string", ".spec.amounts"),
                of("START", "string", ".spec.start"),
                of("END", "string", ".spec.end"),
                of("QUEUES", "string", ".spec.queues"),
                of("REASON", "string", ".spec.reason"),
            ])
            .edit_schema("/properties/spec", |spec| {
                spec["required"] = json!(["amounts", "start", "end"]);
                let amount = &mut spec["properties"]["amounts"]["additionalProperties"];
                amount["minimum"] = json!(0);
                amount["pattern"] =
                    json!(amount["pattern"].as_str().unwrap_or_default().replacen("^(\\+|-)?", "^\\+?", 1));
                spec["x-kubernetes-validations"] = capacity_reservation::build_reservation_rules();
            }),
        Definition::for_kind::<links::FederationTopology>(&["spec"])
            .with_short_names(&["ftopo"])
            .with_status()
            .with_columns(&[
                of("ACCEPTED", "string", r#".status.conditions[?(@.type=="Accepted")].status"#),
                of("MESSAGE", "string", r#".status.conditions[?(@.type=="Accepted")].message"#),
                AGE,
            ]),
        Definition::for_kind::<kind_declaration::KindDeclaration>(&["spec"])
            .with_short_names(&["wlkind"])
            .with_columns(&[of("GROUP", "string", ".spec.group"), of("KIND", "string", ".spec.kind"), AGE])
            .edit_schema("/properties/spec", |spec| {
                spec["x-kubernetes-validations"] = declared::build_declaration_rules();
            }),
    ]
    .map(|definition| definition.0);
    ours.into_iter().chain([hyper_job_crd(), cron_job_crd()]).chain(data_crds()).collect()
}

/// A stand-in for the Cluster API that a real Karmada serves from its aggregated API server: the same fields and
/// columns; fields that we do not know are kept.
#[must_use]
pub fn build_cluster_crd() -> Value {
    let keep = |place: &mut Value| {
        if let Some(place) = place.as_object_mut() {
            place.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
        }
    };
    let wide = |name, path| (name, "string", path, 1);
    Definition::for_kind::<cluster::Cluster>(&[])
        .in_karmada_category()
        .with_status()
        .with_columns(&[
            ("Version", "string", ".status.kubernetesVersion", 0),
            ("Mode", "string", ".spec.syncMode", 0),
            ("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#, 0),
            ("Age", "date", ".metadata.creationTimestamp", 0),
            wide("Zones", ".spec.zones"),
            wide("Region", ".spec.region"),
            wide("Provider", ".spec.provider"),
            wide("APIEndpoint", ".spec.apiEndpoint"),
            wide("ProxyURL", ".spec.proxyURL"),
        ])
        .edit_schema("/properties/spec", keep)
        .edit_schema("/properties/status", keep)
        .0
}
