//! Why a job is evicted, why it is spared, and why an attempt fails: a token for machines and a sentence with numbers
//! for people.

use std::{collections::BTreeMap, fmt};

use crate::{
    gang::QueueName,
    quantity::Quantity,
    resources::{ResourceName, Resources},
    text::count_noun,
    time::EpochSeconds,
};

/// By which right a job is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionReason {
    /// Its queue borrowed.
    Reclaimed {
        /// The queue that takes back.
        preemptor: QueueName,
        /// The queue that borrowed: the job's, or one above it.
        queue: QueueName,
        /// Resource; empty if none can be named.
        resource: ResourceName,
        /// Used before.
        used: Quantity,
        /// What that queue deserves; `None` where it states nothing.
        deserved: Option<Quantity>,
    },
    /// A job of higher priority needs the capacity.
    Preempted {
        /// The queue of who takes.
        preemptor: QueueName,
        /// Its own priority.
        priority: i32,
        /// The preemptor's.
        by: i32,
    },
}

impl EvictionReason {
    /// One CamelCase word.
    #[must_use]
    pub const fn token(&self) -> &'static str {
        match self {
            Self::Reclaimed { .. } => "Reclaimed",
            Self::Preempted { .. } => "Preempted",
        }
    }
}

impl fmt::Display for EvictionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reclaimed { preemptor, queue, resource, used, deserved: Some(deserved) } => write!(
                f,
                "queue {preemptor} reclaims what it deserves: queue {queue} used {resource} {used} and deserves {}",
                deserved.in_few_digits()
            ),
            Self::Reclaimed { preemptor, queue, resource, used, deserved: None } => write!(
                f,
                "queue {preemptor} reclaims what it deserves: queue {queue} used {resource} {used} and deserves none"
            ),
            Self::Preempted { preemptor, priority, by } => {
                write!(
                    f,
                    "a job of priority {by} in queue {preemptor} needs its capacity, and its own priority is {priority}"
                )
            }
        }
    }
}

/// Why a job that holds something is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exemption {
    /// What its queue deserves, or is guaranteed, covers it.
    WithinDeserved,
    /// Its queue, or one above it, is not reclaimable.
    NotReclaimable,
    /// It says that it is not preemptable.
    SaysNo,
    /// It does not say that it is preemptable.
    SaysNothing,
    /// Its namespace is protected.
    Protected,
    /// It waited while its queue had nothing, and has not yet had what its queue did without.
    Turn,
    /// It was evicted a short time ago.
    CoolsDown,
    /// It was evicted too often without progress.
    TooOften,
    /// Its queue borrows, but nothing of what the preemptor may take back.
    OverElsewhere,
    /// The preemptor's priority does not reach it.
    NotLower,
    /// It is not best effort, and the preemptor is.
    NotBestEffort,
    /// Neither right goes between the two queues.
    NotNearer,
    /// It holds nothing of what the preemptor lacks.
    NoHelp,
    /// We did not admit it.
    NotOurs,
}

impl fmt::Display for Exemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WithinDeserved => "within what its queue deserves",
            Self::NotReclaimable => "in a queue that is not reclaimable",
            Self::SaysNo => "with volcano.sh/preemptable: false",
            Self::SaysNothing => "without volcano.sh/preemptable: true",
            Self::Protected => "in a protected namespace",
            Self::Turn => "having the turn that it waited for",
            Self::CoolsDown => "evicted a short time ago",
            Self::TooOften => "evicted too often without progress",
            Self::OverElsewhere => "in a queue that borrows other resources",
            Self::NotLower | Self::NotNearer => "out of reach of the job's priority",
            Self::NotBestEffort => "not best effort, as the job is",
            Self::NoHelp => "holding nothing of what is lacking",
            Self::NotOurs => "not admitted by Caldera",
        })
    }
}

/// Why a queue takes nothing back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotEntitled {
    /// The preemptor's queue, or one above it.
    pub queue: QueueName,
    /// Resource.
    pub resource: ResourceName,
    /// What it would use with the preemptor.
    pub would: Quantity,
    /// What it deserves; `None` where it states nothing.
    pub deserved: Option<Quantity>,
}

impl fmt::Display for NotEntitled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, resource, would, deserved } = self;
        match deserved {
            Some(deserved) => write!(f, "queue {queue} would use {resource} {would} and deserves {deserved}"),
            None => write!(f, "queue {queue} deserves no {resource}"),
        }
    }
}

/// Why an attempt finds no victims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptRefusal {
    /// The preemptor's PriorityClass says that it never preempts.
    Never,
    /// The preemptor fits already.
    Unneeded,
    /// Its last attempt failed a short time ago.
    Backoff {
        /// How many did.
        failed: u32,
        /// Until when.
        until: EpochSeconds,
    },
    /// Nobody may be taken.
    Nobody,
    /// All who may be taken are not enough.
    TooLittle {
        /// How many they are.
        jobs: usize,
        /// What they would free.
        frees: Resources,
    },
    /// It takes more victims than one attempt may have.
    TooMany {
        /// Victims needed.
        needs: u32,
        /// Victims allowed.
        most: u32,
    },
    /// The fleet's bucket of evictions does not hold so many.
    Rate {
        /// Evictions needed.
        needs: u32,
        /// Evictions left.
        has: u32,
        /// Evictions that it ever holds; who needs more waits until it is full.
        most: u32,
        /// When there are enough; `None` if never.
        enough_at: Option<EpochSeconds>,
    },
}

/// An attempt without victims, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoEvictions {
    /// Why not.
    pub refused: AttemptRefusal,
    /// What the preemptor asks for.
    pub asks: Resources,
    /// Whether its queue may take anything back.
    pub entitled: Result<(), NotEntitled>,
    /// Jobs that are left alone, by why.
    pub exempt: BTreeMap<Exemption, usize>,
    /// When the first of those is not left alone any more that only was taken from before.
    pub free_at: Option<EpochSeconds>,
}

impl NoEvictions {
    /// One CamelCase word.
    #[must_use]
    pub const fn token(&self) -> &'static str {
        match self.refused {
            AttemptRefusal::Never => "NeverPreempts",
            AttemptRefusal::Unneeded => "PreemptionNotNeeded",
            AttemptRefusal::Backoff { .. } => "PreemptionBackoff",
            AttemptRefusal::Nobody => "NoVictims",
            AttemptRefusal::TooLittle { .. } => "TooFewVictims",
            AttemptRefusal::TooMany { .. } => "TooManyVictims",
            AttemptRefusal::Rate { .. } => "EvictionBudgetUsedUp",
        }
    }

    /// When to ask again though nothing else happened.
    #[must_use]
    pub const fn again_at(&self) -> Option<EpochSeconds> {
        match self.refused {
            AttemptRefusal::Backoff { until, .. } => Some(until),
            AttemptRefusal::Rate { enough_at, .. } => enough_at,
            AttemptRefusal::Nobody | AttemptRefusal::TooLittle { .. } => self.free_at,
            _ => None,
        }
    }
}

impl fmt::Display for NoEvictions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "preemption for {}: ", self.asks)?;
        match &self.refused {
            AttemptRefusal::Never => {
                f.write_str("its PriorityClass says preemptionPolicy: Never, so nobody is evicted")
            }
            AttemptRefusal::Unneeded => f.write_str("fits without any eviction"),
            AttemptRefusal::Backoff { failed, .. } => {
                write!(f, "{} failed; waits before the next", count_noun(*failed, "earlier attempt"))
            }
            AttemptRefusal::TooMany { needs, most } => {
                write!(f, "{} would have to be evicted, and one attempt may evict {most}", count_noun(*needs, "job"))
            }
            AttemptRefusal::Rate { needs, has, most, .. } => {
                let needed = count_noun(*needs, "eviction");
                write!(f, "it takes {needed}, and the fleet's budget has {has} left for now")?;
                if needs > most {
                    write!(
                        f,
                        "; it holds {most} at most: they are made once it is full, and paid back before any other"
                    )?;
                }
                Ok(())
            }
            AttemptRefusal::Nobody => {
                f.write_str("no job may be evicted for it")?;
                if let Err(why) = &self.entitled {
                    write!(f, ": {why}")?;
                }
                write_exemptions(f, &self.exempt)
            }
            AttemptRefusal::TooLittle { jobs, frees } => {
                let jobs = count_noun(*jobs, "job");
                write!(f, "not even without the {jobs} that may be evicted ({frees}) would it fit")?;
                write_exemptions(f, &self.exempt)
            }
        }
    }
}

fn write_exemptions(f: &mut fmt::Formatter<'_>, exempt: &BTreeMap<Exemption, usize>) -> fmt::Result {
    for (i, (why, jobs)) in exempt.iter().enumerate() {
        write!(f, "{}{jobs} {why}", if i == 0 { "; left alone: " } else { ", " })?;
    }
    Ok(())
}
