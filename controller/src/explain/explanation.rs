//! The explanation of one job as data: its verdict, the reason, its place in line, its clusters, its grant, its pods.
//!
//! Nothing is decided here. The same values are printed and are serialised as JSON.

use std::collections::BTreeMap;

use caldera_core::{
    admission::Admission,
    gang::{ClusterName, QueueName, TaskName, WorkloadRef},
    queue::Ask,
    resources::{ResourceName, Resources},
};
use serde::Serialize;

use super::{
    ClusterView, InLine, PathQueue,
    amount_form::{write_admission, write_amounts},
    tenant_turn::TenantTurn,
};

/// In one word, what a reader wants to know first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// In line; waiting helps.
    Waiting,
    /// Nothing speaks against it: its gate opens with the controller's next decision.
    MayStart,
    /// It asks for more than there can ever be.
    CanNeverStart,
    /// It starts when somebody changes what the sentence says.
    Blocked,
    /// Released, not placed yet.
    Admitted,
    /// In clusters, its minimum does not run yet.
    Placed,
    /// Its minimum runs.
    Running,
    /// It ended.
    Finished,
    /// Not in scope of any queue.
    NotQueued,
    /// No binding was made from it.
    NoBinding,
}

/// What an answer rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// Everything that decides, as it is now.
    Live,
    /// What the controller last wrote, because not everything can be seen.
    PodGroup,
}

/// See the module. Amounts are for all copies together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Whose.
    pub workload: WorkloadRef,
    /// In one word.
    pub verdict: Verdict,
    /// For machines.
    pub token: String,
    /// For people, with numbers.
    pub sentence: String,
    /// What that rests on.
    pub basis: Basis,
    /// When the binding was made.
    pub created: Option<String>,
    /// Since then, in seconds.
    pub age_seconds: i64,
    /// Its ResourceBinding: namespace/name.
    pub binding: Option<String>,
    /// The queue that is, or would be, charged.
    pub queue: Option<QueueName>,
    /// Its value.
    pub priority: i32,
    /// By how much it has risen while it waits.
    pub priority_gained: i32,
    /// Whose turn it waits for, and how many percent of the queue that tenant has, where tenants take turns.
    pub turn: Option<TenantTurn>,
    /// By when it should have started, where it says so.
    pub deadline: Option<String>,
    /// From the root down to its queue: the resources that it asks for.
    pub path: Vec<PathQueue>,
    /// What it asks for; `None` where that can not be read.
    pub asks: Option<Asks>,
    /// In line, from 1, within its queue.
    pub position: Option<usize>,
    /// Jobs in that line.
    pub of: Option<usize>,
    /// The first of those ahead.
    pub ahead: Vec<InLine>,
    /// The place that is kept for it.
    pub reservation: Option<Reserved>,
    /// When it starts, for one that waits.
    pub eta: Option<Eta>,
    /// What each member has for it, the best first; only for one that is not placed.
    pub clusters: Vec<ClusterView>,
    /// What was granted.
    #[serde(serialize_with = "write_admission")]
    pub admission: Option<Admission>,
    /// Where it is.
    pub placed: Vec<Placed>,
    /// When the scheduler last placed it, where the asker knows.
    pub placed_at: Option<String>,
    /// When it is taken off its clusters and put in line again, unless the pods that it needs are on nodes by then: by
    /// the controller's usual patience.
    pub ready_by: Option<String>,
    /// How long its run may take, or its next one if it waits; `None` where nothing limits it, or nobody sees that.
    pub run_limit: Option<RunLimitView>,
    /// How its pods are.
    pub pods: Pods,
    /// What its PodGroup says.
    pub pod_group: Option<PodGroupReason>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

/// What a job asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Asks {
    /// At least.
    #[serde(serialize_with = "write_amounts")]
    pub minimum: Resources,
    /// With all its pods.
    #[serde(serialize_with = "write_amounts")]
    pub full: Resources,
    /// Pods, at least.
    pub min_pods: u64,
    /// All pods.
    pub pods: u64,
    /// Clusters that each run all of it.
    pub copies: u32,
}

impl From<&Ask> for Asks {
    fn from(ask: &Ask) -> Self {
        let pods = |of: fn(&caldera_core::queue::TaskAsk) -> u32| {
            ask.tasks.iter().map(|task| u64::from(of(task))).sum::<u64>() * u64::from(ask.copies)
        };
        Self {
            minimum: ask.minimum(),
            full: ask.demand_of_all_pods(),
            min_pods: pods(|task| task.min),
            pods: pods(|task| task.most),
            copies: ask.copies,
        }
    }
}

/// A place that is kept for a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reserved {
    /// Since when.
    pub since: Option<String>,
    /// The resource that it lacks; `None` if it lacks capacity.
    pub resource: Option<ResourceName>,
    /// Under whose ceiling.
    pub bound: Option<String>,
    /// The clusters that are kept for it.
    pub clusters: Vec<ClusterName>,
}

/// When a job starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Eta {
    /// At the latest; `None` where nobody can say.
    pub at: Option<String>,
    /// Why then, or why nobody can say.
    pub basis: String,
}

/// A job's part in one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Placed {
    /// Which.
    pub cluster: ClusterName,
    /// Pods; 0 where the kind has no replicas.
    pub replicas: u32,
    /// Pods of each task, where there is a plan.
    pub tasks: BTreeMap<TaskName, u32>,
    /// Of these, pods that reached a node; `None` where the asker does not see them.
    pub on_nodes: Option<u32>,
}

/// How long a run of a job may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunLimitView {
    /// From its release on.
    pub seconds: i64,
    /// When it is ended, if it runs.
    pub ends: Option<String>,
    /// Until then; nothing is left of one that is being ended.
    pub left_seconds: Option<i64>,
}

/// How a job's pods are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pods {
    /// They run.
    pub running: u32,
    /// They succeeded.
    pub succeeded: u32,
    /// They failed.
    pub failed: u32,
}

/// What the controller last wrote on a PodGroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupReason {
    /// Volcano's phase.
    pub phase: String,
    /// For machines.
    pub token: String,
    /// For people.
    pub sentence: String,
    /// Since when that is the reason.
    pub since: String,
}
