//! The reasons that users read: why a job waits, why it can never start, or where it runs.
//!
//! A [`Reason`] is a token for machines and a sentence with numbers for people. It becomes the `reason` and the
//! `message` of a PodGroup's condition, and of events. The queue engine computes it from live state whenever somebody
//! asks. A job that only has to wait never shares a token with a job that somebody has to change: see
//! [`Reason::needs_a_change`].

use std::fmt;

use crate::{
    gang::QueueName,
    quantity::Quantity,
    resources::{ResourceName, Resources},
};

/// What a limit belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// The `capability` of a queue: the job's own, or one above it.
    Queue(QueueName),
    /// What is left for a queue after the `guarantee` of its siblings.
    Guaranteed(QueueName),
    /// All ready clusters together.
    Fleet,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(queue) => write!(f, "the capability of queue {queue}"),
            Self::Guaranteed(queue) => write!(f, "what other queues' guarantees leave to queue {queue}"),
            Self::Fleet => f.write_str("all ready clusters together"),
        }
    }
}

/// A place in line: `place` of `of`, from 1, within the job's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// From 1.
    pub place: usize,
    /// Jobs in line.
    pub of: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "position {} of {}", self.place, self.of)
    }
}

/// What is wrong with a queue, so that none of its jobs may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueProblem {
    /// No such queue.
    Missing,
    /// It, or a queue above it, is not open.
    NotOpen {
        /// Which one.
        queue: QueueName,
        /// `Closed`, `Closing` or `Unknown`.
        state: &'static str,
    },
    /// Its parent, or a queue further up, does not exist.
    ParentMissing(QueueName),
    /// Its parents lead back to itself.
    Cycle,
    /// It has children: only leaves run jobs.
    NotLeaf(QueueName),
    /// It is the root.
    Root,
}

/// By which right a job was evicted for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionCause {
    /// A queue took back what it deserves.
    Reclaimed,
    /// A job of higher priority took it.
    Preempted,
}

impl EvictionCause {
    /// The token of the PodGroup, of the event and of the eviction record.
    #[must_use]
    pub const fn token(self) -> &'static str {
        match self {
            Self::Reclaimed => "Reclaimed",
            Self::Preempted => "Preempted",
        }
    }

    /// Reads the token of an eviction record; `None` for a job that was requeued.
    #[must_use]
    pub fn parse_token(token: &str) -> Option<Self> {
        [Self::Reclaimed, Self::Preempted].into_iter().find(|cause| cause.token() == token)
    }
}

/// Why an admitted job was requeued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueCause {
    /// It found no place.
    NotPlaced,
    /// It was placed and its pods were not ready in time.
    NotReady,
    /// No controller granted what its binding said.
    Forged,
    /// Its user moved it to another queue.
    Moved,
    /// Its user suspended it, and wants it to run again.
    Suspended,
    /// Its user restarted it.
    Restarted,
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
    /// The user holds it (annotation).
    OnHold {
        /// The annotation.
        annotation: &'static str,
    },
    /// Somebody else suspended its scheduling: not ours to lift.
    Suspended,
    /// Its user suspended it (annotation or field).
    SuspendedByUser {
        /// By which.
        field: &'static str,
    },
    /// Its user ends it: its copies go.
    Ending {
        /// As what.
        phase: &'static str,
    },
    /// What it asks for is not an amount, or not a gang.
    Invalid {
        /// What is wrong, with the field.
        problem: String,
    },
    /// The workload of the binding was not found (yet).
    NoWorkload,
    /// It, or its binding, is being deleted.
    Deleting,
    /// Nobody holds its binding back, so nobody asked us: it goes wherever its scheduler puts it.
    NotGated,
    /// The API server refused the release.
    NotReleased {
        /// What it said.
        detail: String,
    },
    /// More than a limit: never.
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
    /// A limit allows it, but is used up.
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
    /// It was admitted, was not placed or did not start in time, or should not have been, and was requeued.
    Requeued {
        /// How often that happened.
        times: u32,
        /// Why.
        cause: RequeueCause,
        /// What the scheduler said last, or what was missing.
        detail: String,
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
    /// Would not fit even if all clusters were empty.
    NeverFits {
        /// What is short, where (from placement).
        detail: String,
    },
    /// Would fit, but its queue admits strictly in order, and its head can not start yet.
    BehindQueueHead {
        /// The job's queue.
        queue: QueueName,
        /// In line.
        position: Position,
    },
    /// Nothing speaks against it: its turn comes with the next decision.
    Next {
        /// The job's queue.
        queue: QueueName,
        /// In line.
        position: Position,
    },
    /// Released; to be placed.
    Admitted {
        /// The queue that is charged.
        queue: QueueName,
        /// How much.
        charged: Resources,
    },
    /// Released, but the scheduler found no place.
    NotPlaced {
        /// What it said.
        detail: String,
    },
    /// In clusters.
    Placed {
        /// `member1:3, member2:5`.
        clusters: String,
        /// The queue that is charged.
        queue: QueueName,
        /// How much.
        charged: Resources,
    },
    /// In clusters, and holding more than was admitted.
    OverRecord {
        /// The queue that is charged.
        queue: QueueName,
        /// What it holds.
        held: Resources,
        /// What was admitted.
        admitted: Resources,
    },
    /// Needs more than was admitted, and has what was admitted until the rest is.
    ScaledUp {
        /// What it asks for now.
        asked: Resources,
        /// What was admitted.
        admitted: Resources,
    },
    /// In clusters without an admission: it was placed before, or past, the queue.
    Foreign {
        /// `member1:3, member2:5`.
        clusters: String,
        /// The queue that is charged.
        queue: QueueName,
        /// How much.
        charged: Resources,
    },
    /// Ended.
    Finished {
        /// `Completed`, `Failed`, ...
        phase: String,
        /// The queue that was charged.
        queue: QueueName,
    },
}

impl Reason {
    /// The token of [`Reason::ScaledUp`].
    pub const SCALED_UP: &str = "ScaledBeyondAdmission";

    /// One CamelCase word.
    #[must_use]
    pub const fn token(&self) -> &'static str {
        match self {
            Self::Queue { problem, .. } => match problem {
                QueueProblem::Missing => "QueueNotFound",
                QueueProblem::NotOpen { .. } => "QueueNotOpen",
                QueueProblem::ParentMissing(_) | QueueProblem::Cycle => "QueueMisconfigured",
                QueueProblem::NotLeaf(_) | QueueProblem::Root => "QueueNotLeaf",
            },
            Self::OnHold { .. } => "OnHold",
            Self::Suspended => "Suspended",
            Self::SuspendedByUser { .. } => "SuspendedByUser",
            Self::Ending { .. } => "Ending",
            Self::Invalid { .. } => "InvalidDemand",
            Self::NoWorkload => "WorkloadNotFound",
            Self::Deleting => "Deleting",
            Self::NotGated => "NotGated",
            Self::NotReleased { .. } => "NotReleased",
            Self::ExceedsLimit { bound: Bound::Fleet, .. } => "ExceedsFleet",
            Self::ExceedsLimit { .. } => "ExceedsCapability",
            Self::Quota { .. } => "WaitingForQuota",
            Self::BlockedByReservation { .. } => "BlockedByReservation",
            Self::Evicted { cause, .. } => cause.token(),
            Self::Requeued { .. } => "Requeued",
            Self::NoReadyCluster { .. } => "NoReadyCluster",
            Self::InsufficientCapacity { .. } => "InsufficientCapacity",
            Self::NeverFits { .. } => "NeverFits",
            Self::BehindQueueHead { .. } => "BehindQueueHead",
            Self::Next { .. } => "Waiting",
            Self::Admitted { .. } => "Admitted",
            Self::NotPlaced { .. } => "NotPlaced",
            Self::Placed { .. } => "Placed",
            Self::OverRecord { .. } => "HoldsMoreThanAdmitted",
            Self::ScaledUp { .. } => Self::SCALED_UP,
            Self::Foreign { .. } => "PlacedWithoutAdmission",
            Self::Finished { .. } => "Finished",
        }
    }

    /// True if waiting alone will not help: somebody has to change something.
    #[must_use]
    pub const fn needs_a_change(&self) -> bool {
        matches!(
            self,
            Self::Queue { .. }
                | Self::OnHold { .. }
                | Self::Suspended
                | Self::SuspendedByUser { .. }
                | Self::Invalid { .. }
                | Self::NotGated
                | Self::NotReleased { .. }
                | Self::ExceedsLimit { .. }
                | Self::NeverFits { .. }
                | Self::OverRecord { .. }
        )
    }

    /// True once the gate was opened.
    #[must_use]
    pub fn is_released(&self) -> bool {
        matches!(self, Self::ExceedsLimit { holds, .. } if !holds.is_zero())
            || matches!(
                self,
                Self::Admitted { .. }
                    | Self::NotPlaced { .. }
                    | Self::Placed { .. }
                    | Self::OverRecord { .. }
                    | Self::ScaledUp { .. }
                    | Self::Foreign { .. }
                    | Self::Finished { .. }
            )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue { queue, problem } => match problem {
                QueueProblem::Missing => write!(f, "queue {queue} does not exist"),
                QueueProblem::NotOpen { queue: closed, state } if closed == queue => {
                    write!(f, "queue {queue} is {state}: it starts no jobs")
                }
                QueueProblem::NotOpen { queue: closed, state } => {
                    write!(f, "queue {closed}, above queue {queue}, is {state}: it starts no jobs")
                }
                QueueProblem::ParentMissing(parent) => {
                    write!(f, "queue {queue} has the parent {parent}, which does not exist")
                }
                QueueProblem::Cycle => write!(f, "the parents of queue {queue} lead in a circle"),
                QueueProblem::NotLeaf(child) => {
                    write!(f, "queue {queue} has children ({child}): jobs belong in queues without children")
                }
                QueueProblem::Root => write!(f, "queue {queue} is the root: jobs belong in a queue below it"),
            },
            Self::OnHold { annotation } => {
                write!(f, "on hold: take the annotation {annotation} away to let it wait in line")
            }
            Self::Suspended => f.write_str(
                "its binding's spec.suspension.scheduling was set by somebody else: it starts when that is taken away",
            ),
            Self::SuspendedByUser { field: "spec.suspend" } => {
                f.write_str("suspended by its user: it is in line again, with its age, when spec.suspend is false")
            }
            Self::SuspendedByUser { field } => write!(
                f,
                "suspended by its user: take the annotation {field} away, or send it a Command ResumeJob, to have it in line \
                 again with its age"
            ),
            Self::Ending { phase } => write!(f, "ended by its user: it is {phase} once its copies are gone"),
            Self::Invalid { problem } => f.write_str(problem),
            Self::NoWorkload => f.write_str("the binding's workload was not found"),
            Self::Deleting => f.write_str("is being deleted"),
            Self::NotGated => f.write_str(
                "its binding has no gate (was the webhook away when it was made?): its scheduler places it without \
                 asking the queue",
            ),
            Self::NotReleased { detail } => write!(f, "may start, but its binding could not be released: {detail}"),
            Self::ExceedsLimit { queue, bound, resource, asked, holds, limit } if holds.is_zero() => write!(
                f,
                "can never start in queue {queue}: needs {resource} {asked}, more than {limit}, {}",
                WhichIs(bound)
            ),
            Self::ExceedsLimit { queue, bound, resource, asked, holds, limit } => write!(
                f,
                "can never be more in queue {queue}: needs {resource} {asked} on top of {holds} that it holds, more than \
                 {limit}, {}",
                WhichIs(bound)
            ),
            Self::Quota { queue, bound, resource, asked, used, limit, position } => write!(
                f,
                "waits in queue {queue}, {position}: needs {resource} {asked}, used {used} of {limit} ({bound})"
            ),
            Self::Evicted { queue, cause: _, detail } => write!(
                f,
                "evicted: {detail}; waits in queue {queue} with its age, and is considered again once the preemptor has \
                 started and its own pods are gone"
            ),
            Self::Requeued { times, cause, detail } => {
                let times = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
                match cause {
                    RequeueCause::NotPlaced => write!(f, "was admitted {times} and not placed in time ({detail})")?,
                    RequeueCause::NotReady => write!(f, "was admitted {times} and did not start in time ({detail})")?,
                    RequeueCause::Forged => write!(f, "lost what no controller had granted, {times} ({detail})")?,
                    RequeueCause::Moved => write!(f, "was moved to another queue ({detail})")?,
                    RequeueCause::Suspended | RequeueCause::Restarted => {
                        let was = if *cause == RequeueCause::Restarted { "restarted" } else { "suspended and resumed" };
                        return write!(
                            f,
                            "was {was} by its user; it keeps its age and is considered again once its old copies are gone"
                        );
                    }
                }
                f.write_str(
                    "; requeued: its quota is free for others, it keeps its age and is considered again after a backoff",
                )
            }
            Self::NoReadyCluster { position } => write!(f, "no member cluster is ready; {position}"),
            Self::BlockedByReservation { queue, bound, resource, asked, free, reserved, position } => write!(
                f,
                "waits in queue {queue}, {position}: needs {resource} {asked}, free {free} ({bound}), of which {reserved} is \
                 reserved for a job that ranks before it and has waited long"
            ),
            Self::InsufficientCapacity { queue, detail, position } => {
                write!(f, "waits in queue {queue}, {position}: there is quota, but insufficient capacity: {detail}")
            }
            Self::NeverFits { detail } => {
                write!(f, "can never start: would not fit even if all ready clusters were empty: {detail}")
            }
            Self::BehindQueueHead { queue, position } => {
                write!(f, "waits in queue {queue}, {position}: the queue is fifo and its head can not start yet")
            }
            Self::Next { queue, position } => write!(f, "waits in queue {queue}, {position}: is considered next"),
            Self::Admitted { queue, charged } => {
                write!(f, "admitted: queue {queue} is charged {charged}; waits for a place")
            }
            Self::NotPlaced { detail } => write!(f, "admitted, but not placed: {detail}"),
            Self::Placed { clusters, queue, charged } => {
                write!(f, "placed on {clusters}; queue {queue} is charged {charged}")
            }
            Self::OverRecord { queue, held, admitted } => {
                write!(f, "holds {held} but was admitted for {admitted}; queue {queue} is charged what it holds")
            }
            Self::ScaledUp { asked, admitted } => {
                write!(
                    f,
                    "asks for {asked} now and was admitted for {admitted}: runs as before until the rest is admitted"
                )
            }
            Self::Foreign { clusters, queue, charged } => {
                write!(f, "placed on {clusters} without an admission; queue {queue} is charged {charged}")
            }
            Self::Finished { phase, queue } => write!(f, "ended as {phase}; queue {queue} is charged nothing"),
        }
    }
}

struct WhichIs<'a>(&'a Bound);

impl fmt::Display for WhichIs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Bound::Fleet => f.write_str("which is all that the clusters have together"),
            bound => write!(f, "which is {bound}"),
        }
    }
}

#[cfg(test)]
mod tests;
