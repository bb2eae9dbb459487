//! The reasons that users read: why a job waits, why it can never start, or where it runs.
//!
//! A [`Reason`] is a token for machines and a sentence with numbers for people. It becomes the `reason` and the
//! `message` of a PodGroup's condition, and of events. The queue engine computes it from live state whenever somebody
//! asks. A job that only has to wait never shares a token with a job that somebody has to change: see
//! [`Reason::needs_user_action`].

mod causes;
mod texts;
mod tokens;

pub use causes::{CardRefusal, EvictionCause, RequeueCause};

use crate::{
    gang::QueueName,
    quantity::Quantity,
    resources::{ResourceName, Resources},
    tenant::Tenant,
};

/// What a limit belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// The `capability` of a queue: the job's own, or one above it.
    Queue(QueueName),
    /// What is left for a queue after the `guarantee` of its siblings.
    Guaranteed(QueueName),
    /// The limit is what all ready clusters have together.
    Fleet,
}

/// A place in line: `place` of `of`, from 1, within the job's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// From 1.
    pub place: usize,
    /// Jobs in line.
    pub of: usize,
}

impl Position {
    /// The place that a sentence of ours names.
    #[must_use]
    pub fn parse_position(sentence: &str) -> Option<Self> {
        let (place, rest) = sentence.split_once("position ")?.1.split_once(" of ")?;
        let of = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(Self { place: place.parse().ok()?, of: of.parse().ok()? })
    }
}

/// What is wrong with a queue, so that none of its jobs may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueProblem {
    /// There is no such queue.
    Missing,
    /// The queue, or one above it, is not open.
    NotOpen {
        /// Which one.
        queue: QueueName,
        /// `Closed`, `Closing` or `Unknown`.
        state: &'static str,
    },
    /// The queue's parent, or a queue further up, does not exist.
    ParentMissing(QueueName),
    /// The queue's parents lead back to itself.
    Cycle,
    /// The queue has children: only leaves run jobs.
    NotLeaf(QueueName),
    /// The queue is the root.
    Root,
}

/// Why a job waits, or what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The queue can not start jobs.
    Queue {
        /// The job's queue.
        queue: QueueName,
        /// Why not.
        problem: QueueProblem,
    },
    /// The queue, or one above it, takes no jobs of the namespace.
    NamespaceNotSelected {
        /// The job's queue.
        queue: QueueName,
        /// The queue with the selector: this one, or one above it.
        by: QueueName,
        /// As written.
        selector: String,
        /// The job's namespace.
        namespace: String,
    },
    /// It is larger than the queue, or one above it, takes.
    ExceedsLargestJob {
        /// The job's queue.
        queue: QueueName,
        /// The queue that says so: this one, or one above it.
        by: QueueName,
        /// Resource.
        resource: ResourceName,
        /// What all its pods and copies ask for.
        asked: Quantity,
        /// The most.
        limit: Quantity,
    },
    /// It asks to run for longer than the queue, or one above it, allows.
    ExceedsMaxRunTime {
        /// The job's queue.
        queue: QueueName,
        /// The queue that says so: this one, or one above it.
        by: QueueName,
        /// Seconds that it asks for, and the most; `None` where what the queue says can not be read.
        asked: Option<(i64, i64)>,
    },
    /// It names a priority class that the queue, or one above it, does not take.
    PriorityClassNotAllowed {
        /// The job's queue.
        queue: QueueName,
        /// The queue that says so: this one, or one above it.
        by: QueueName,
        /// The class.
        class: String,
        /// Those that it takes, separated by commas; `None` where what it says can not be read.
        allowed: Option<String>,
    },
    /// The queue, or one above it, has a quota by card model, and none for it.
    NoCardQuota {
        /// The job's queue.
        queue: QueueName,
        /// The queue with the quota: this one, or one above it.
        by: QueueName,
        /// Why it has none.
        cause: CardRefusal,
    },
    /// A DataSourceClaim that it requires has no DataSource.
    WaitingForData {
        /// Which, and what there is no source of.
        detail: String,
    },
    /// It is one of several jobs that start together, and waits for the others.
    JobsMissing {
        /// How many are in line, and what of the others.
        detail: String,
    },
    /// The jobs that start together with it are in several queues.
    JobsInSeveralQueues {
        /// Which.
        queues: String,
    },
    /// The user holds it (annotation).
    OnHold {
        /// The annotation.
        annotation: &'static str,
    },
    /// Somebody else suspended the scheduling of its ResourceBinding. Caldera never lifts that.
    Suspended,
    /// Its user suspended it (annotation or field).
    SuspendedByUser {
        /// By which.
        field: &'static str,
    },
    /// Its user ended it, and its copies are being deleted.
    Ending {
        /// As what.
        phase: &'static str,
    },
    /// It ran for as long as it may, and was ended: it does not start again.
    RunTimeExceeded {
        /// For how long it ran.
        detail: String,
    },
    /// A quantity or a minimum that it asks for is not valid.
    Invalid {
        /// What is wrong, with the field.
        problem: String,
    },
    /// The workload of the binding was not found (yet).
    NoWorkload,
    /// It, or its binding, is being deleted.
    Deleting,
    /// Its binding has no gate, as one that was made while the webhook was away: it is not in a queue.
    NotGated,
    /// The API server refused the release.
    NotReleased {
        /// What it said.
        detail: String,
    },
    /// It asks for more than a limit, so that it never starts.
    ExceedsLimit {
        /// The job's queue.
        queue: QueueName,
        /// Whose limit.
        bound: Bound,
        /// Resource.
        resource: ResourceName,
        /// What the job needs at least.
        asked: Quantity,
        /// On top of what it holds already: nothing for a job that has not started.
        holds: Quantity,
        /// The limit.
        limit: Quantity,
    },
    /// A limit on the way from its queue to the root is used up at present.
    Quota {
        /// The job's queue.
        queue: QueueName,
        /// Whose limit.
        bound: Bound,
        /// Resource.
        resource: ResourceName,
        /// What the job needs at least.
        asked: Quantity,
        /// Used now.
        used: Quantity,
        /// The limit.
        limit: Quantity,
        /// In line.
        position: Position,
    },
    /// It may use several card models and starts on none now: why not on the first that is not hopeless, and what it
    /// lacks on each other.
    NoCardModel(Box<Reason>, Vec<(ResourceName, String)>),
    /// As many jobs run as may.
    RunningLimit {
        /// The job's queue.
        queue: QueueName,
        /// The queue with the limit: this one, or one above it.
        by: QueueName,
        /// Whose jobs it counts; `None` for those of all.
        tenant: Option<Tenant>,
        /// Jobs that run.
        running: u64,
        /// Places that are reserved for jobs that rank before this one.
        kept: u64,
        /// The limit.
        limit: u64,
        /// In line.
        position: Position,
    },
    /// There would be enough, but a part of it is reserved for a job that ranks before this one and waited long.
    BlockedByReservation {
        /// The job's queue.
        queue: QueueName,
        /// Under whose limit it is reserved.
        bound: Bound,
        /// Resource.
        resource: ResourceName,
        /// What the job needs at least.
        asked: Quantity,
        /// What is free, with what is reserved.
        free: Quantity,
        /// What is reserved.
        reserved: Quantity,
        /// In line.
        position: Position,
    },
    /// It was running and was evicted for another job. That job has not started yet, or pods of this one still run.
    Evicted {
        /// The job's queue.
        queue: QueueName,
        /// By which right.
        cause: EvictionCause,
        /// The queues and numbers behind it.
        detail: String,
    },
    /// It was admitted and is back in line: it was not placed or did not start in time, or was taken off its clusters.
    /// Or it was made anew under the name of a job that members have not forgotten yet.
    Requeued {
        /// How often that happened.
        times: u32,
        /// Why.
        cause: RequeueCause,
        /// What the scheduler said last, or what was missing.
        detail: String,
    },
    /// An admin paused all releases.
    Paused {
        /// The job's queue.
        queue: QueueName,
        /// The admin's words.
        why: String,
        /// In line.
        position: Position,
    },
    /// No cluster is ready, so there is nothing to fit in.
    NoReadyCluster {
        /// In line.
        position: Position,
    },
    /// There is quota, but the clusters have too little free capacity for the gang.
    InsufficientCapacity {
        /// The job's queue.
        queue: QueueName,
        /// What is short, where (from placement).
        detail: String,
        /// In line.
        position: Position,
    },
    /// There is quota, but it fits in none of the clusters that are not reserved for a job that ranks before it.
    ClustersReserved {
        /// The job's queue.
        queue: QueueName,
        /// What is short, where (from placement).
        detail: String,
        /// In line.
        position: Position,
    },
    /// There is quota, but it would take an amount that is kept for others, or for nobody, for a time.
    CapacityReserved {
        /// The job's queue.
        queue: QueueName,
        /// Which reservation, and how much is left.
        detail: String,
        /// In line.
        position: Position,
    },
    /// It would not fit even if all clusters were empty.
    NeverFits {
        /// What is short, where (from placement).
        detail: String,
    },
    /// It would fit, but its queue admits strictly in order, and the head of the queue can not start yet.
    BehindQueueHead {
        /// The job's queue.
        queue: QueueName,
        /// In line.
        position: Position,
    },
    /// Nothing keeps it back: its turn comes with the next decision.
    Next {
        /// The job's queue.
        queue: QueueName,
        /// In line.
        position: Position,
    },
    /// It is released, and the scheduler is placing it.
    Admitted {
        /// The queue that is charged.
        queue: QueueName,
        /// How much.
        charged: Resources,
    },
    /// It is released, but the scheduler found no place.
    NotPlaced {
        /// What it said.
        detail: String,
    },
    /// It is placed in clusters.
    Placed {
        /// `member1:3, member2:5`.
        clusters: String,
        /// The queue that is charged.
        queue: QueueName,
        /// How much.
        charged: Resources,
    },
    /// It is placed in clusters, of which some refuse their copies.
    CopyRefused {
        /// Which, each with its own words.
        detail: String,
        /// The queue that is charged.
        queue: QueueName,
        /// How much.
        charged: Resources,
    },
    /// It is placed in clusters, and holds more than was admitted.
    OverRecord {
        /// The queue that is charged.
        queue: QueueName,
        /// What it holds.
        held: Resources,
        /// What was admitted.
        admitted: Resources,
    },
    /// It needs more than was admitted, and runs on with that until the rest is admitted.
    ScaledUp {
        /// What it asks for now.
        asked: Resources,
        /// What was admitted.
        admitted: Resources,
    },
    /// It is in clusters without an admission: something placed it past the queue.
    Foreign {
        /// `member1:3, member2:5`.
        clusters: String,
        /// The queue that is charged.
        queue: QueueName,
        /// How much.
        charged: Resources,
    },
    /// It ended.
    Finished {
        /// `Completed`, `Failed`, ...
        phase: String,
        /// The queue that was charged.
        queue: QueueName,
    },
}

#[cfg(test)]
mod tests;
