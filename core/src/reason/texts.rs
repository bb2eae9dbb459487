//! The sentences: reasons as people read them, amounts as people write them.

use std::fmt;

use super::{Bound, Position, QueueProblem, Reason, RequeueCause};
use crate::{device::DEVICE_CLASS_PREFIX, resources::ResourceName, run_limit::RunTime, text::count_noun};

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(queue) => write!(f, "the capability of queue {queue}"),
            Self::Guaranteed(queue) => write!(f, "what other queues' guarantees leave to queue {queue}"),
            Self::Fleet => f.write_str("all ready clusters together"),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "position {} of {}", self.place, self.of)
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
            Self::NamespaceNotSelected { queue, by, selector, namespace } => {
                let above = if by == queue { String::new() } else { format!(", above queue {queue},") };
                write!(
                    f,
                    "queue {by}{above} takes no jobs of namespace {namespace}: its labels do not match the queue's \
                     namespace selector {selector:?}"
                )
            }
            Self::ExceedsLargestJob { queue, by, resource, asked, limit } => {
                let above = if by == queue { String::new() } else { format!(", above queue {queue},") };
                let (asked, limit) = (asked.plain(), limit.plain());
                write!(
                    f,
                    "asks for {resource} {asked}, more than {limit}, which is the largest job that queue {by}{above} takes"
                )
            }
            Self::ExceedsMaxRunTime { queue, by, asked } => {
                let above = if by == queue { String::new() } else { format!(", above queue {queue},") };
                match asked.map(|(asked, limit)| (RunTime(asked), RunTime(limit))) {
                    Some((asked, limit)) => {
                        write!(f, "asks to run for {asked}, longer than the {limit} that queue {by}{above} allows")
                    }
                    None => write!(f, "queue {by}{above} takes no job: how long one may run can not be read"),
                }
            }
            Self::PriorityClassNotAllowed { queue, by, class, allowed } => {
                let above = if by == queue { String::new() } else { format!(", above queue {queue},") };
                write!(f, "queue {by}{above} takes no jobs of priority class {class}: ")?;
                match allowed.as_deref() {
                    None => f.write_str("which it takes can not be read"),
                    Some("") => f.write_str("of none but the default"),
                    Some(allowed) => write!(f, "of {allowed} alone"),
                }
            }
            Self::NoCardQuota { queue, by, cause } => {
                let above = if by == queue { String::new() } else { format!(", above queue {queue},") };
                write!(f, "queue {by}{above} {cause}")
            }
            Self::WaitingForData { detail } => f.write_str(detail),
            Self::JobsMissing { detail } => write!(f, "starts together with other jobs: {detail}"),
            Self::JobsInSeveralQueues { queues } => {
                write!(f, "starts together with other jobs, which have to be in one queue and are in {queues}")
            }
            Self::OnHold { annotation } => {
                write!(f, "on hold: take the annotation {annotation} away to let it wait in line")
            }
            Self::Suspended => f.write_str(
                "somebody else suspended its scheduling (spec.suspension.scheduling of its ResourceBinding): it starts when \
                 that is taken away",
            ),
            Self::SuspendedByUser { field } if field.starts_with("spec.") => {
                write!(f, "suspended by its user: it is in line again, with its age, when {field} is false")
            }
            Self::SuspendedByUser { field } => write!(
                f,
                "suspended by its user: take the annotation {field} away, or send it a Command ResumeJob, to have it in line \
                 again with its age"
            ),
            Self::Ending { phase: "Failed" } => f.write_str("has failed: it says so once its copies are gone"),
            Self::Ending { phase } => write!(f, "ended by its user: it is {phase} once its copies are gone"),
            Self::RunTimeExceeded { detail } => {
                write!(f, "{detail}: it was ended, and starts again only if it is deleted and submitted anew")
            }
            Self::Invalid { problem } => f.write_str(problem),
            Self::NoWorkload => f.write_str("its workload was not found"),
            Self::Deleting => f.write_str("is being deleted"),
            Self::NotGated => f.write_str(
                "it is in no queue (was the webhook away when it was made?): its scheduler places it without asking one",
            ),
            Self::NotReleased { detail } => write!(f, "may start, but could not be released: {detail}"),
            Self::ExceedsLimit { queue, bound: Bound::Fleet, resource, asked, holds, limit }
                if holds.is_zero() && resource.is_oversold() =>
            {
                // What is sold follows what services use: it is no word for ever.
                write!(
                    f,
                    "can not start in queue {queue} now: needs {resource} {}, and members sell {} of it at present",
                    asked.plain(),
                    limit.plain()
                )
            }
            Self::ExceedsLimit { queue, bound: Bound::Fleet, resource, asked, holds, limit }
                if holds.is_zero() && limit.is_zero() =>
            {
                let asked = asked.plain();
                match resource.as_str().strip_prefix(DEVICE_CLASS_PREFIX) {
                    Some(class) => write!(
                        f,
                        "can not start in queue {queue}: needs {asked} of DeviceClass {class}, and no member has such \
                         devices"
                    ),
                    None => write!(f, "can not start in queue {queue}: needs {resource} {asked}, and no member has any"),
                }
            }
            Self::ExceedsLimit { queue, bound, resource, asked, holds, limit } if holds.is_zero() => write!(
                f,
                "can never start in queue {queue}: needs {resource} {}, more than {}, {}",
                asked.plain(),
                limit.plain(),
                WhichIs(bound)
            ),
            Self::ExceedsLimit { queue, bound, resource, asked, holds, limit } => write!(
                f,
                "can never be more in queue {queue}: needs {resource} {} on top of {} that it holds, more than \
                 {}, {}",
                asked.plain(),
                holds.plain(),
                limit.plain(),
                WhichIs(bound)
            ),
            Self::NoCardModel(reason, others) => {
                reason.fmt(f)?;
                let model =
                    |card: &ResourceName| card.as_card().map_or(card.to_string(), |(_, model)| model.to_owned());
                others.iter().try_for_each(|(card, lacks)| write!(f, "; nor on {}: {lacks}", model(card)))
            }
            Self::Quota { queue, bound, resource, asked, used, limit, position } => write!(
                f,
                "waits in queue {queue}, {position}: needs {resource} {}, used {} of {} ({bound})",
                asked.plain(),
                used.plain(),
                limit.plain()
            ),
            Self::RunningLimit { queue, by, tenant, running, kept, limit, position } => {
                let of = tenant.as_ref().map_or(String::new(), |tenant| format!(" of {tenant}"));
                let kept = match kept {
                    0 => String::new(),
                    kept => format!(", {kept} more reserved for those that rank before it and have waited long"),
                };
                let running = count_noun(*running, "job");
                write!(
                    f,
                    "waits in queue {queue}, {position}: {running}{of} running in queue {by} and those below it{kept}, \
                     {limit} at most"
                )
            }
            Self::Evicted { queue, cause: _, detail } => write!(
                f,
                "evicted: {detail}; waits in queue {queue} with its age, and is considered again once the job that it was \
                 evicted for has started and its own pods are gone"
            ),
            Self::Requeued { times, cause, detail } => {
                let times = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
                match cause {
                    RequeueCause::NotPlaced => write!(f, "was admitted {times} and not placed in time ({detail})")?,
                    RequeueCause::NotReady => write!(f, "was admitted {times} and did not start in time ({detail})")?,
                    RequeueCause::JobsMissing => {
                        write!(f, "was admitted {times} without all that start together with it ({detail})")?;
                    }
                    RequeueCause::Forged => write!(f, "lost what no controller had granted, {times} ({detail})")?,
                    RequeueCause::Moved => write!(f, "was moved to another queue ({detail})")?,
                    RequeueCause::CopyRefused => {
                        return write!(
                            f,
                            "withdrawn from all clusters: {detail}; its quota is free for others, it keeps its age and goes \
                             elsewhere once its other copies are gone"
                        );
                    }
                    RequeueCause::MemberLost => {
                        return write!(
                            f,
                            "withdrawn from all clusters: {detail}; its quota is free for others, it keeps its age and runs \
                             again once its old copies are known to be gone"
                        );
                    }
                    RequeueCause::Rescheduled => {
                        return write!(
                            f,
                            "moved off its clusters: {detail}; its quota is free for others, it keeps its age and starts \
                             elsewhere once its old copies are gone"
                        );
                    }
                    RequeueCause::MadeAnew => return f.write_str(detail),
                    RequeueCause::RestartedByPolicy => {
                        return write!(f, "{detail}; it keeps its age and starts again once its old copies are gone");
                    }
                    RequeueCause::Suspended | RequeueCause::Restarted => {
                        let was = if *cause == RequeueCause::Restarted { "restarted" } else { "suspended and resumed" };
                        return write!(
                            f,
                            "was {was} by its user; it keeps its age and is considered again once its old copies are gone, \
                             and their members have forgotten them"
                        );
                    }
                }
                f.write_str(
                    "; requeued: its quota is free for others, it keeps its age and is considered again after a wait that \
                     grows each time",
                )
            }
            Self::Paused { queue, why, position } => {
                write!(f, "waits in queue {queue}, {position}: an admin paused all releases ({why})")
            }
            Self::NoReadyCluster { position } => write!(f, "no member cluster is ready; {position}"),
            Self::BlockedByReservation { queue, bound, resource, asked, free, reserved, position } => write!(
                f,
                "waits in queue {queue}, {position}: needs {resource} {}, free {} ({bound}), of which {} is reserved for a \
                 job that ranks before it and has waited long",
                asked.plain(),
                free.plain(),
                reserved.plain()
            ),
            Self::InsufficientCapacity { queue, detail, position }
            | Self::ClustersReserved { queue, detail, position } => {
                write!(f, "waits in queue {queue}, {position}: there is quota, but insufficient capacity: {detail}")
            }
            Self::CapacityReserved { queue, detail, position } => {
                write!(f, "waits in queue {queue}, {position}: there is quota, but {detail}")
            }
            Self::NeverFits { detail } => {
                write!(f, "can never start: would not fit even if all ready clusters were empty: {detail}")
            }
            Self::BehindQueueHead { queue, position } => {
                write!(f, "waits in queue {queue}, {position}: the queue is fifo and its head can not start yet")
            }
            Self::Next { queue, position } => write!(f, "waits in queue {queue}, {position}: is considered next"),
            Self::Admitted { queue, charged } if charged.is_empty() => {
                write!(f, "admitted: it asks for no pods now, so that queue {queue} is charged nothing")
            }
            Self::Admitted { queue, charged } => {
                write!(f, "admitted: queue {queue} is charged {charged}; waits for a place")
            }
            Self::NotPlaced { detail } => write!(f, "admitted, but not placed: {detail}"),
            Self::CopyRefused { detail, queue, charged } => {
                write!(f, "placed, but {detail}; queue {queue} is charged {charged}")
            }
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
