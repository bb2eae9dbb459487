//! The CustomResourceDefinitions that go with our types, for a host or a member that does not have them.
//!
//! Rule: Karmada 1.19 and Volcano 1.16 as they ship them; `tests/manifests.rs` compares field by field.

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::{
    karmada::{apps, cluster, config, policy, work, work_v1alpha1},
    links, published,
    schema::{claim_marks, object_schema, pod_template_marks},
    score,
    volcano::{batch, bus, scheduling, topology},
};

/// Whether a kind's objects live in namespaces.
trait Scope {
    const NAME: &'static str;
}
impl Scope for NamespaceResourceScope {
    const NAME: &'static str = "Namespaced";
}
impl Scope for ClusterResourceScope {
    const NAME: &'static str = "Cluster";
}

/// A printer column: name, type, JSON path, priority (above 0 is for `-o wide` only).
type Column = (&'static str, &'static str, &'static str, u8);

const AGE: Column = ("AGE", "date", ".metadata.creationTimestamp", 0);

/// A definition in the making.
struct Definition(Value);

impl Definition {
    /// The definition of `K`, with one version.
    fn of<K>(required: &[&str]) -> Self
    where
        K: Resource<DynamicType = ()> + JsonSchema,
        K::Scope: Scope,
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

    fn names(mut self, key: &str, names: &[&str]) -> Self {
        self.0["spec"]["names"][key] = json!(names);
        self
    }

    fn short(self, names: &[&str]) -> Self {
        self.names("shortNames", names)
    }

    fn karmada(self) -> Self {
        self.names("categories", &["karmada-io"])
    }

    fn columns(mut self, columns: &[Column]) -> Self {
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

    fn subresources(mut self, subresources: Value) -> Self {
        self.0["spec"]["versions"][0]["subresources"] = subresources;
        self
    }

    fn status(self) -> Self {
        self.subresources(json!({ "status": {} }))
    }

    /// Puts an older version, served but not stored, before the one that is there.
    fn older(mut self, older: &Self) -> Self {
        let mut version = older.0["spec"]["versions"][0].clone();
        version["storage"] = json!(false);
        if let Some(versions) = self.0["spec"]["versions"].as_array_mut() {
            versions.insert(0, version);
        }
        self
    }

    /// Changes the schema at a JSON pointer.
    fn edit(mut self, path: &str, edit: impl FnOnce(&mut Value)) -> Self {
        let schema = &mut self.0["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        if let Some(place) = schema.pointer_mut(path) {
            edit(place);
        }
        self
    }
}

/// Every definition of others: Karmada's and Volcano's. [`cluster_crd`] is not among them.
#[must_use]
pub fn manifests() -> Vec<Value> {
    let mut all = karmada_crds();
    all.extend(volcano_crds());
    all
}

/// What a Karmada host has.
#[must_use]
pub fn karmada_crds() -> Vec<Value> {
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
        Definition::of::<policy::PropagationPolicy>(spec)
            .short(&["pp"])
            .karmada()
            .columns(&propagation)
            .subresources(json!({})),
        Definition::of::<policy::ClusterPropagationPolicy>(spec)
            .short(&["cpp"])
            .karmada()
            .columns(&propagation)
            .subresources(json!({})),
        Definition::of::<policy::OverridePolicy>(spec).short(&["op"]).karmada(),
        Definition::of::<policy::ClusterOverridePolicy>(spec).short(&["cop"]).karmada(),
        Definition::of::<policy::FederatedResourceQuota>(spec).karmada().status().columns(&[
            ("OVERALL", "string", ".status.overall", 0),
            ("OVERALL_USED", "string", ".status.overallUsed", 0),
        ]),
        Definition::of::<work::ResourceBinding>(spec)
            .short(&["rb"])
            .karmada()
            .status()
            .columns(&binding)
            .older(&Definition::of::<work_v1alpha1::ResourceBinding>(spec).status()),
        Definition::of::<work::ClusterResourceBinding>(spec)
            .short(&["crb"])
            .karmada()
            .status()
            .columns(&binding)
            .older(&Definition::of::<work_v1alpha1::ClusterResourceBinding>(spec).status()),
        Definition::of::<work::Work>(spec).short(&["wk"]).karmada().status().columns(&[
            ("WORKLOAD-KIND", "string", ".spec.workload.manifests[*].kind", 0),
            ("APPLIED", "string", r#".status.conditions[?(@.type=="Applied")].status"#, 0),
            AGE,
        ]),
        Definition::of::<config::ResourceInterpreterWebhookConfiguration>(&["webhooks"]).karmada(),
        Definition::of::<config::ResourceInterpreterCustomization>(spec)
            .short(&["ric"])
            .karmada()
            .subresources(json!({}))
            .columns(&[
                ("TARGET-API-VERSION", "string", ".spec.target.apiVersion", 0),
                ("TARGET-KIND", "string", ".spec.target.kind", 0),
                AGE,
            ]),
        Definition::of::<apps::WorkloadRebalancer>(spec).status(),
    ]
    .map(|definition| definition.0)
    .into()
}

/// What a member with Volcano has, and a host that takes Volcano's objects.
#[must_use]
pub fn volcano_crds() -> Vec<Value> {
    let queue: Column = ("QUEUE", "string", ".spec.queue", 1);
    [
        Definition::of::<batch::Job>(&[])
            .short(&["vcjob", "vj"])
            .status()
            .columns(&[
                ("STATUS", "string", ".status.state.phase", 0),
                ("minAvailable", "integer", ".status.minAvailable", 0),
                ("RUNNINGS", "integer", ".status.running", 0),
                AGE,
                queue,
            ])
            .edit("/properties/spec/properties/tasks/items/properties/template", pod_template_marks)
            .edit("/properties/spec/properties/volumes/items/properties/volumeClaim", claim_marks),
        Definition::of::<scheduling::PodGroup>(&[]).short(&["pg", "podgroup-v1beta1"]).subresources(json!({})).columns(
            &[
                ("STATUS", "string", ".status.phase", 0),
                ("minMember", "integer", ".spec.minMember", 0),
                ("RUNNINGS", "integer", ".status.running", 0),
                AGE,
                queue,
            ],
        ),
        Definition::of::<scheduling::Queue>(&[]).short(&["q", "queue-v1beta1"]).status().columns(&[(
            "PARENT",
            "string",
            ".spec.parent",
            0,
        )]),
        Definition::of::<bus::Command>(&[]),
        Definition::of::<topology::HyperNode>(&[]).short(&["hn"]).status().columns(&[
            ("Tier", "string", ".spec.tier", 0),
            ("TierName", "string", ".spec.tierName", 0),
            ("NodeCount", "integer", ".status.nodeCount", 0),
            ("Age", "date", ".metadata.creationTimestamp", 0),
        ]),
    ]
    .map(|definition| definition.0)
    .into()
}

/// Our own, for a Karmada host.
#[must_use]
pub fn federation_crds() -> Vec<Value> {
    let of = |name, kind, field| (name, kind, field, 0);
    [
        Definition::of::<published::ClusterInventory>(&["spec"]).short(&["cinv"]).columns(&[
            of("CLUSTER", "string", ".spec.cluster"),
            of("SEEN", "date", ".spec.heartbeat.seenAt"),
            of("NODES", "integer", ".spec.heartbeat.nodes"),
            of("PARTS", "integer", ".spec.heartbeat.parts"),
            of("REACHED", "string", ".spec.heartbeat.reached"),
            of("FAULT", "string", ".spec.heartbeat.fault"),
        ]),
        Definition::of::<score::ClusterScore>(&["spec"])
            .short(&["cscore"])
            .columns(&[of("MEASURED", "date", ".spec.measuredAt"), of("VALID", "integer", ".spec.validForSeconds")]),
        Definition::of::<links::FederationTopology>(&["spec"]).short(&["ftopo"]).status().columns(&[
            of("ACCEPTED", "string", r#".status.conditions[?(@.type=="Accepted")].status"#),
            of("MESSAGE", "string", r#".status.conditions[?(@.type=="Accepted")].message"#),
            AGE,
        ]),
    ]
    .map(|definition| definition.0)
    .into()
}

/// A stand-in for the Cluster API that a real Karmada serves from its aggregated API server: the same fields and
/// columns; fields that we do not know are kept.
#[must_use]
pub fn cluster_crd() -> Value {
    let keep = |place: &mut Value| {
        if let Some(place) = place.as_object_mut() {
            place.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
        }
    };
    let wide = |name, path| (name, "string", path, 1);
    Definition::of::<cluster::Cluster>(&[])
        .karmada()
        .status()
        .columns(&[
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
        .edit("/properties/spec", keep)
        .edit("/properties/status", keep)
        .0
}
