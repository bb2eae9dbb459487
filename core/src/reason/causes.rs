//! Why a job that had its quota lost it, evicted for another one or requeued; and why it has none of a card model.
//!
//! Rule: an eviction is told by the right that it used, as Kueue's `EvictedByPreemption` reasons are; a requeue by what
//! the job did not find, or by whose word it was. The tokens of evictions are on bindings and in events.

use std::fmt;

use super::Reason;
use crate::{gang::TaskName, resources::ResourceName, text::name_some};

/// Why a queue with a quota by card model has none for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardRefusal {
    /// Its quota can not be read.
    Unreadable,
    /// The job asks for cards that may be of any model, or of one of several.
    Unnamed {
        /// Which of its tasks does.
        task: TaskName,
        /// For what.
        resource: ResourceName,
        /// The label of nodes that names the model.
        label: String,
        /// The models that the queue has a quota of.
        models: Vec<String>,
    },
    /// It names a model that the queue has no quota of.
    OtherModel {
        /// Which of its tasks does.
        task: TaskName,
        /// Of what.
        resource: ResourceName,
        /// The model.
        model: String,
        /// Those that the queue has a quota of.
        models: Vec<String>,
    },
}

impl Reason {
    /// Why a job waits that may use one of these card models, each with the reason there.
    #[must_use]
    pub fn of_each_card(mut each: Vec<(ResourceName, Self)>) -> Self {
        let reported = each.iter().position(|(_, why)| !why.is_unsatisfiable()).unwrap_or(0);
        if each.is_empty() {
            return Self::NoWorkload;
        }
        let (_, reason) = each.remove(reported);
        let lacks = |why: &Self| {
            let text = why.to_string();
            text.split_once(": ").map_or(text.clone(), |(_, lacks)| lacks.to_owned())
        };
        let others = each.iter().map(|(card, why)| (card.clone(), lacks(why))).collect();
        Self::NoCardModel(Box::new(reason), others)
    }
}

impl fmt::Display for CardRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("takes no job: its quota by card model can not be read"),
            Self::Unnamed { task, resource, label, models } => write!(
                f,
                "has its quota of {resource} by card model, {}: task {task} has to name one, by a nodeSelector or a \
                 required node affinity for {label} with one value, or several by annotation volcano.sh/card.name of its pods",
                name_some(models)
            ),
            Self::OtherModel { task, resource, model, models } => write!(
                f,
                "has no quota of the {model} that task {task} names: of {resource} it has {}",
                name_some(models)
            ),
        }
    }
}

/// By which right a job was evicted for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionCause {
    /// It ran and was evicted: a queue took back what it deserves.
    Reclaimed,
    /// It ran and was evicted for a job of higher priority.
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
    /// A job that starts together with it did not start in time.
    JobsMissing,
    /// No controller granted what its binding said.
    Forged,
    /// Its user moved it to another queue.
    Moved,
    /// Its user suspended it, and wants it to run again.
    Suspended,
    /// Its user restarted it.
    Restarted,
    /// Its own policies restarted it.
    RestartedByPolicy,
    /// A member refused its copy for good.
    CopyRefused,
    /// A cluster that it ran in is lost.
    MemberLost,
    /// The nodes of a cluster that it ran in are hot.
    Rescheduled,
    /// It was never admitted: an earlier job of its name was deleted, and members do not know that for good yet.
    MadeAnew,
}
