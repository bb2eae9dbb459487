//! The built-in kinds, one row each, and the strategies in which their registries differ
//! (`pkg/registry/*/strategy.go`).

use std::sync::Arc;

use crate::resource::{Generation, NameRule, Registry, Resource, Rules, Subresource};
use crate::schema::TypeSchema;
use crate::subresource::CONNECTIONS;

struct Row {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    short: &'static [&'static str],
    traits: &'static [Trait],
}

/// What sets a kind apart from an ordinary one: named, validated as a subdomain, no status, no generation, conditional
/// on nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trait {
    /// `/status` exists and owns `status`.
    Status,
    /// `/scale` exists.
    Scale,
    /// In the category `all`.
    All,
    Name(NameRule),
    Generation(Generation),
    CreateOnUpdate,
    NeedsVersion,
    OrphanByDefault,
    /// Only `create`: the answer is computed, nothing is stored.
    Review,
    /// No deletecollection.
    NoDeleteCollection,
    /// Stored with another group's objects.
    StoredAs(&'static str),
}

use Generation::{Constant, NotMetadata, Spec, SpecOrAnnotations};
use NameRule::{Free, Label, PathSegment};
use Trait::{
    All, CreateOnUpdate, Generation as G, Name, NeedsVersion, NoDeleteCollection, OrphanByDefault, Review, Scale,
    Status, StoredAs,
};

const fn row(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    short: &'static [&'static str],
    traits: &'static [Trait],
) -> Row {
    Row { group, version, plural, kind, namespaced, short, traits }
}

const NS: bool = true;
const CLUSTER: bool = false;

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("", "v1", "bindings", "Binding", NS, &[], &[Review]),
    row("", "v1", "componentstatuses", "ComponentStatus", CLUSTER, &["cs"], &[NoDeleteCollection]),
    row("", "v1", "configmaps", "ConfigMap", NS, &["cm"], &[]),
    row("", "v1", "endpoints", "Endpoints", NS, &["ep"], &[CreateOnUpdate]),
    row("", "v1", "events", "Event", NS, &["ev"], &[Name(PathSegment), CreateOnUpdate, StoredAs("events")]),
    row("", "v1", "limitranges", "LimitRange", NS, &["limits"], &[CreateOnUpdate]),
    row("", "v1", "namespaces", "Namespace", CLUSTER, &["ns"], &[Name(Label), Status, NoDeleteCollection]),
    row("", "v1", "nodes", "Node", CLUSTER, &["no"], &[Status]),
    row("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", NS, &["pvc"], &[Status]),
    row("", "v1", "persistentvolumes", "PersistentVolume", CLUSTER, &["pv"], &[Status]),
    row("", "v1", "pods", "Pod", NS, &["po"], &[Status, All, G(Spec)]),
    row("", "v1", "podtemplates", "PodTemplate", NS, &[], &[G(NotMetadata)]),
    row("", "v1", "replicationcontrollers", "ReplicationController", NS, &["rc"], &[Status, Scale, All, G(Spec), OrphanByDefault]),
    row("", "v1", "resourcequotas", "ResourceQuota", NS, &["quota"], &[Status]),
    row("", "v1", "secrets", "Secret", NS, &[], &[]),
    row("", "v1", "serviceaccounts", "ServiceAccount", NS, &["sa"], &[]),
    row("", "v1", "services", "Service", NS, &["svc"], &[Status, All, Name(Label), CreateOnUpdate]),
    row("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", CLUSTER, &[], &[G(Spec), NeedsVersion]),
    row("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", CLUSTER, &[], &[G(Spec), NeedsVersion]),
    row("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", CLUSTER, &[], &[G(NotMetadata), NeedsVersion]),
    row("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", CLUSTER, &[], &[G(NotMetadata), NeedsVersion]),
    row("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", CLUSTER, &[], &[Status, G(Spec), NeedsVersion]),
    row("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", CLUSTER, &[], &[G(Spec), NeedsVersion]),
    row("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", CLUSTER, &["crd", "crds"], &[Status, G(Spec), NeedsVersion]),
    row("apiregistration.k8s.io", "v1", "apiservices", "APIService", CLUSTER, &[], &[Status, NeedsVersion]),
    row("apps", "v1", "controllerrevisions", "ControllerRevision", NS, &[], &[]),
    row("apps", "v1", "daemonsets", "DaemonSet", NS, &["ds"], &[Status, All, G(Spec)]),
    row("apps", "v1", "deployments", "Deployment", NS, &["deploy"], &[Status, Scale, All, G(SpecOrAnnotations)]),
    row("apps", "v1", "replicasets", "ReplicaSet", NS, &["rs"], &[Status, Scale, All, G(Spec)]),
    row("apps", "v1", "statefulsets", "StatefulSet", NS, &["sts"], &[Status, Scale, All, G(Spec), Name(Label)]),
    row("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", CLUSTER, &[], &[Review]),
    row("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", CLUSTER, &[], &[Review]),
    row("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", NS, &[], &[Review]),
    row("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", CLUSTER, &[], &[Review]),
    row("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", CLUSTER, &[], &[Review]),
    row("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", CLUSTER, &[], &[Review]),
    row("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", NS, &["hpa"], &[Status, All]),
    row("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", NS, &["hpa"], &[Status, All]),
    row("batch", "v1", "cronjobs", "CronJob", NS, &["cj"], &[Status, All, G(Spec)]),
    row("batch", "v1", "jobs", "Job", NS, &[], &[Status, All, G(Spec), OrphanByDefault]),
    row("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", CLUSTER, &["csr"], &[Status]),
    row("coordination.k8s.io", "v1", "leases", "Lease", NS, &[], &[CreateOnUpdate, NeedsVersion]),
    row("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", NS, &[], &[G(NotMetadata)]),
    row("events.k8s.io", "v1", "events", "Event", NS, &["ev"], &[CreateOnUpdate, StoredAs("events")]),
    row("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", CLUSTER, &[], &[Status, G(Spec), NeedsVersion]),
    row("flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", CLUSTER, &[], &[Status, G(Spec), NeedsVersion]),
    row("networking.k8s.io", "v1", "ingressclasses", "IngressClass", CLUSTER, &[], &[G(Spec)]),
    row("networking.k8s.io", "v1", "ingresses", "Ingress", NS, &["ing"], &[Status, G(Spec)]),
    row("networking.k8s.io", "v1", "ipaddresses", "IPAddress", CLUSTER, &["ip"], &[Name(Free)]),
    row("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", NS, &["netpol"], &[G(Spec)]),
    row("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", CLUSTER, &[], &[Status]),
    row("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", CLUSTER, &[], &[NeedsVersion, CreateOnUpdate]),
    row("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", NS, &["pdb"], &[Status, G(Spec), NeedsVersion, Name(PathSegment)]),
    row("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", CLUSTER, &[], &[Name(PathSegment), CreateOnUpdate]),
    row("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", CLUSTER, &[], &[Name(PathSegment), CreateOnUpdate]),
    row("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", NS, &[], &[Name(PathSegment), CreateOnUpdate]),
    row("rbac.authorization.k8s.io", "v1", "roles", "Role", NS, &[], &[Name(PathSegment), CreateOnUpdate]),
    row("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", CLUSTER, &[], &[G(Spec)]),
    row("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", NS, &[], &[Status]),
    row("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", NS, &[], &[]),
    row("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", CLUSTER, &[], &[G(Spec)]),
    row("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", CLUSTER, &["pc"], &[G(Constant)]),
    row("storage.k8s.io", "v1", "csidrivers", "CSIDriver", CLUSTER, &[], &[NeedsVersion]),
    row("storage.k8s.io", "v1", "csinodes", "CSINode", CLUSTER, &[], &[NeedsVersion]),
    row("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", NS, &[], &[]),
    row("storage.k8s.io", "v1", "storageclasses", "StorageClass", CLUSTER, &["sc"], &[]),
    row("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", CLUSTER, &[], &[Status]),
    row("storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", CLUSTER, &["vac"], &[]),
];

const ALL_VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The registry of a server without CRDs.
pub fn builtin_registry() -> Registry {
    let mut registry = Registry::default();
    for (index, row) in ROWS.iter().enumerate() {
        registry.insert(Arc::new(build_resource(row, index as u64)));
    }
    registry
}

/// How many forms the built-in kinds take; custom ones are numbered from here.
pub const FORMS: u64 = ROWS.len() as u64;

fn build_resource(row: &Row, form: u64) -> Resource {
    let has = |wanted: Trait| row.traits.contains(&wanted);
    let name = row.traits.iter().find_map(|t| if let Name(rule) = t { Some(*rule) } else { None });
    let generation = row.traits.iter().find_map(|t| if let G(rule) = t { Some(*rule) } else { None });
    let stored_as = row.traits.iter().find_map(|t| if let StoredAs(s) = t { Some(*s) } else { None });
    let verbs = if has(Review) {
        vec!["create"]
    } else if row.kind == "ComponentStatus" {
        vec!["get", "list"]
    } else {
        ALL_VERBS.into_iter().filter(|v| !(has(NoDeleteCollection) && *v == "deletecollection")).collect()
    };
    Resource {
        group: row.group.into(),
        version: row.version.into(),
        plural: row.plural.into(),
        singular: row.kind.to_lowercase(),
        kind: row.kind.into(),
        list_kind: format!("{}List", row.kind),
        namespaced: row.namespaced,
        short_names: row.short.iter().map(|s| (*s).to_owned()).collect(),
        categories: categories_of(row),
        verbs,
        subresources: subresources_of(row),
        storage: stored_as.map_or_else(|| crate::error::qualified_resource(row.plural, row.group), Into::into),
        form,
        rules: Rules {
            name: name.unwrap_or(if has(Review) { Free } else { NameRule::Subdomain }),
            generation: generation.unwrap_or(Generation::Never),
            create_on_update: has(CreateOnUpdate),
            unconditional_update: !has(NeedsVersion),
            orphan_by_default: has(OrphanByDefault),
            separate_status: has(Status),
        },
        schema: TypeSchema::builtin(row.group, row.version, row.kind),
        custom: None,
    }
}

fn categories_of(row: &Row) -> Vec<String> {
    let mut categories = Vec::new();
    if row.traits.contains(&All) {
        categories.push("all".to_owned());
    }
    if matches!(row.group, "apiextensions.k8s.io" | "admissionregistration.k8s.io" | "apiregistration.k8s.io") {
        categories.push("api-extensions".to_owned());
    }
    categories
}

fn subresources_of(row: &Row) -> Vec<Subresource> {
    let own = |name: &str, verbs: &[&'static str]| Subresource { name: name.into(), kind: None, verbs: verbs.to_vec() };
    let other = |name: &str, group: &str, version: &str, kind: &str, verbs: &[&'static str]| Subresource {
        name: name.into(),
        kind: Some((group.into(), version.into(), kind.into())),
        verbs: verbs.to_vec(),
    };
    let mut subresources = Vec::new();
    match row.plural {
        "pods" => {
            subresources.push(other("binding", "", "v1", "Binding", &["create"]));
            subresources.push(own("ephemeralcontainers", &STATUS_VERBS));
            subresources.push(other("eviction", "policy", "v1", "Eviction", &["create"]));
            subresources.push(own("log", &["get"]));
            subresources.push(own("resize", &STATUS_VERBS));
        }
        "namespaces" => subresources.push(own("finalize", &["update"])),
        "serviceaccounts" => {
            subresources.push(other("token", "authentication.k8s.io", "v1", "TokenRequest", &["create"]));
        }
        "certificatesigningrequests" => subresources.push(own("approval", &STATUS_VERBS)),
        _ => {}
    }
    for (_, name, kind) in CONNECTIONS.iter().filter(|(of, _, _)| row.group.is_empty() && *of == row.plural) {
        let verbs: &[&'static str] =
            if *name == "proxy" { &["create", "delete", "get", "patch", "update"] } else { &["create", "get"] };
        let mut connection = own(name, verbs);
        connection.kind = Some((String::new(), "v1".into(), (*kind).into()));
        subresources.push(connection);
    }
    subresources.sort_by(|a, b| a.name.cmp(&b.name));
    if row.traits.contains(&Scale) {
        subresources.push(other("scale", "autoscaling", "v1", "Scale", &STATUS_VERBS));
    }
    if row.traits.contains(&Status) {
        subresources.push(own("status", &STATUS_VERBS));
    }
    subresources
}
