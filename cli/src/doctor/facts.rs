//! What the doctor knows when it judges: everything that was read, and what could not be.

use std::collections::{BTreeMap, BTreeSet};

use caldera_controller::settings::Settings;
use caldera_core::gang::WorkloadRef;
use caldera_runtime::client::credentials::Lifetime;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::objects::Visible;

/// All of it. [`super::check`] makes findings of it, and of nothing else.
#[derive(Debug, Clone)]
pub struct Facts {
    /// By the API server's clock.
    pub now: Timestamp,
    /// The file that the asker named for the host; `None` for kubectl's own.
    pub host_kubeconfig: Option<String>,
    /// Seconds that what is new may take to settle.
    pub grace: i64,
    /// Who runs what version.
    pub versions: Versions,
    /// Our clock less the API server's, in seconds; `None` if it told no time.
    pub our_clock: Option<i64>,
    /// CustomResourceDefinitions.
    pub definitions: Visible<Vec<Value>>,
    /// WorkloadKinds that do not count, and why.
    pub kind_faults: BTreeMap<String, String>,
    /// Kinds that WorkloadKinds tell and that count.
    pub declared_kinds: Vec<DeclaredKind>,
    /// What each component may do.
    pub rights: Visible<Vec<Right>>,
    /// MutatingWebhookConfigurations.
    pub mutating: Visible<Vec<Value>>,
    /// ValidatingWebhookConfigurations.
    pub validating: Visible<Vec<Value>>,
    /// ResourceInterpreterWebhookConfigurations.
    pub interpreters: Visible<Vec<Value>>,
    /// What Karmada said lately of calls to an interpreter that failed, the last first.
    pub interpreter_failures: Visible<Vec<InterpreterFailure>>,
    /// ResourceInterpreterCustomizations.
    pub customizations: Visible<Vec<Value>>,
    /// ValidatingAdmissionPolicies.
    pub policies: Visible<Vec<Value>>,
    /// ValidatingAdmissionPolicyBindings.
    pub policy_bindings: Visible<Vec<Value>>,
    /// ClusterPropagationPolicies.
    pub propagation_policies: Visible<Vec<Value>>,
    /// Whether the webhook registers itself, with an authority of its own.
    pub registers: bool,
    /// What karmada-controller-manager may write.
    pub karmada: Visible<KarmadaAccess>,
    /// What came back of a binding that was created without being stored.
    pub binding_probe: Probe,
    /// What came back of a Volcano Job that was created without being stored.
    pub job_probe: Probe,
    /// Kubeconfigs that were named, and from when to when what they hold serves, as far as it says so.
    pub kubeconfigs: Vec<KubeconfigFacts>,
    /// What is wrong with file `ca.pem` where the doctor runs, which commands take; none if nobody looked.
    pub ca_file_fault: Option<String>,
    /// Leases of components, wherever they are.
    pub leases: Visible<Vec<LeaseFacts>>,
    /// The members.
    pub members: Visible<Vec<MemberFacts>>,
    /// Queues of the host.
    pub queues: Visible<Vec<QueueFacts>>,
    /// Amounts that are kept for a time, but for those that are over.
    pub reservations: Visible<Vec<ReservationFacts>>,
    /// ResourceBindings.
    pub bindings: Visible<Vec<CheckedBinding>>,
    /// Workloads that there are.
    pub workloads: Visible<BTreeSet<WorkloadRef>>,
    /// PodGroups of ours.
    pub pod_groups: Visible<Vec<PodGroupFacts>>,
    /// Works of bindings.
    pub works: Visible<Vec<WorkFacts>>,
    /// Commands to queues.
    pub commands: Visible<Vec<CommandFacts>>,
    /// What collectors publish.
    pub inventories: Visible<Vec<InventoryFacts>>,
    /// The controller's settings, or why they can not be read.
    pub settings: Vec<Visible<Settings>>,
}

/// Who runs what version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Versions {
    /// This program's.
    pub caldera: String,
    /// The Karmada API server's, of Kubernetes.
    pub host: String,
    /// The members', of Kubernetes.
    pub members: Vec<(String, String)>,
}

/// A kind that a WorkloadKind tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredKind {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Plural, in small letters.
    pub plural: String,
}

/// One thing that a component does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// Whose.
    pub component: String,
    /// Verb.
    pub verb: String,
    /// API group; empty for core.
    pub group: String,
    /// Resource, or `resource/subresource`.
    pub resource: String,
    /// In which namespace alone.
    pub namespace: Option<String>,
    /// Of which object alone.
    pub name: Option<String>,
    /// Whether the account may do it.
    pub allowed: bool,
}

/// Who karmada-controller-manager is on the Karmada API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KarmadaAccount {
    /// User.
    pub user: String,
    /// Groups.
    pub groups: Vec<String>,
}

/// As `karmadactl init`, Karmada's charts and its operator have it.
impl Default for KarmadaAccount {
    fn default() -> Self {
        Self { user: "system:admin".to_owned(), groups: vec!["system:masters".to_owned()] }
    }
}

/// What it may do with what is admitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KarmadaAccess {
    /// Whose access.
    pub account: KarmadaAccount,
    /// Verb and resource that its roles do not grant.
    pub denied: Vec<String>,
    /// Resource, and how our policies or our webhook refused a write of it.
    pub refused: Vec<(String, String)>,
}

/// What the API server made of an object that it was asked to create without storing it.
pub type Probe = Result<Value, ProbeFailure>;

/// The refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeFailure {
    /// HTTP code.
    pub code: u16,
    /// The server's words.
    pub message: String,
}

/// An event of Karmada's that tells of a call to an interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterpreterFailure {
    /// Of which object, `kind namespace/name`.
    pub about: String,
    /// Karmada's words.
    pub message: String,
    /// When it was last said.
    pub last: Option<Timestamp>,
}

/// A component's Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseFacts {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Who holds it; empty if nobody does.
    pub holder: String,
    /// When it was last renewed, by the holder's clock.
    pub renewed: Option<Timestamp>,
    /// For how long it holds without.
    pub seconds: i64,
    /// What grants under it name.
    pub epoch: String,
    /// The version of who holds it, if it says one.
    pub version: Option<String>,
    /// From when to when the credentials serve of who held it last, if that says so.
    pub credentials: Option<Lifetime>,
}

/// A kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeconfigFacts {
    /// Its file, or none for the one that the doctor goes by.
    pub file: Option<String>,
    /// From when to when its credentials serve, if they say so, or why it can not be read.
    pub credentials: Visible<Option<Lifetime>>,
}

/// A member.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberFacts {
    /// Name.
    pub name: String,
    /// Whether an agent in it brings it its objects.
    pub is_pull: bool,
    /// Whether Karmada finds it ready, and its words if not.
    pub ready: Visible<()>,
    /// Why its maintenance windows can not be read, if so.
    pub unread_maintenance: Option<String>,
    /// Why its autoscaled node groups can not be read, if so.
    pub unread_groups: Option<String>,
    /// What was seen there, or why nothing was.
    pub inside: Visible<MemberInside>,
}

/// What a member has.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberInside {
    /// Its clock less the host's, in seconds.
    pub clock: Option<i64>,
    /// Kinds of Volcano that it serves, as `plural.group`.
    pub kinds: BTreeSet<String>,
    /// Its queues.
    pub queues: Visible<Vec<QueueFacts>>,
    /// Pods of namespace volcano-system: name, and whether it is ready.
    pub volcano: Visible<Vec<(String, bool)>>,
    /// The tag of their images, where they have one.
    pub volcano_version: Option<String>,
}

/// A queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueFacts {
    /// Name.
    pub name: String,
    /// `Open`, `Closed`, `Closing`, or what it says.
    pub state: String,
    /// PodGroups that wait in it.
    pub pending: i64,
    /// Why nothing is released in the whole fleet, if it says so.
    pub paused: Option<String>,
}

/// A CapacityReservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationFacts {
    /// Name.
    pub name: String,
    /// Whose jobs it is for, or why it keeps nothing.
    pub queues: Result<Vec<String>, String>,
}

/// A ResourceBinding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedBinding {
    /// `namespace/name`.
    pub key: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// What it propagates.
    pub workload: WorkloadRef,
    /// A Volcano Job, or one of another kind with a gate or a record.
    pub queued: bool,
    /// Being deleted.
    pub deleting: bool,
    /// A policy says where it may go: without one there is nothing to schedule.
    pub has_placement: bool,
    /// The gate's word.
    pub gate: Option<String>,
    /// `spec.suspension.scheduling`.
    pub suspended: bool,
    /// Clusters that it names.
    pub clusters: usize,
    /// Pods, as the interpreter counted them for Karmada.
    pub replicas: i64,
    /// Whether Karmada lists components in place of replicas.
    pub components: bool,
    /// Whether there is a record.
    pub admitted: bool,
    /// Under which lease it was granted.
    pub epoch: Option<String>,
    /// Annotations of ours that can not be read.
    pub unreadable: Vec<&'static str>,
}

/// A PodGroup of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodGroupFacts {
    /// `namespace/name`.
    pub key: String,
    /// Of which workload.
    pub workload: WorkloadRef,
    /// When it was made.
    pub created: Option<Timestamp>,
}

/// A Work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkFacts {
    /// `namespace/name`.
    pub key: String,
    /// Of which binding, `namespace/name`.
    pub binding: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Its member may have what it sends: it did not refuse it, or took it before.
    pub may_run: bool,
}

/// A Command to a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandFacts {
    /// `namespace/name`.
    pub key: String,
    /// To which.
    pub queue: String,
    /// When it was made.
    pub created: Option<Timestamp>,
}

/// A collector's heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InventoryFacts {
    /// Of which member.
    pub cluster: String,
    /// When the collector last saw it.
    pub seen: Option<Timestamp>,
    /// Seconds until the next heartbeat at the latest.
    pub interval: i64,
}
