//! Two questions and their answers, how many pods and how many whole sets fit: pure.
//!
//! Rule: what is asked is held against [`limits`](crate::limits) before anything is worked out, and what was given to
//! the cluster already is held against the same ones. Where nothing is known of the cluster the answer is `UNKNOWN`.
//! The third question, about unschedulable pods, needs a list from the member: [`serve`](crate::serve) answers it.

use caldera_core::{gang::Gang, inventory::Capacity};
use caldera_crds::estimator::{
    UNKNOWN,
    convert::{self, ReadError},
    messages::{AssumedWorkload, ComponentMessage, MaxAvailableComponentSetsRequest, MaxAvailableReplicasRequest},
};

use crate::{
    answer,
    limits::{LimitError, MOST_COMPONENTS, MOST_KINDS, MOST_WORDS, check_count, count_words, merge_tasks},
};

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// It can not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It asks for too much.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

/// How many pods fit; [`UNKNOWN`] where nothing is known of the cluster.
///
/// # Errors
/// [`QuestionError`].
pub fn answer_max_replicas(
    request: &MaxAvailableReplicasRequest,
    capacity: Option<&Capacity>,
) -> Result<i32, QuestionError> {
    let task = match &request.replica_requirements {
        Some(requirements) => convert::read_task(requirements)?,
        None => convert::read_task(&Default::default())?,
    };
    check_count("words about a pod", count_words(&task), MOST_WORDS)?;
    let Some(capacity) = capacity else { return Ok(UNKNOWN) };
    Ok(answer::count_replicas(&compute_free_capacity(capacity, &request.assumed_workloads)?, task))
}

/// How many whole sets fit; [`UNKNOWN`] where nothing is known of the cluster.
///
/// # Errors
/// [`QuestionError`].
pub fn answer_max_sets(
    request: &MaxAvailableComponentSetsRequest,
    capacity: Option<&Capacity>,
) -> Result<i32, QuestionError> {
    let set = read_merged(&request.components)?;
    let Some(capacity) = capacity else { return Ok(UNKNOWN) };
    Ok(answer::count_sets(&compute_free_capacity(capacity, &request.assumed_workloads)?, &set))
}

/// What is free beside what was given to the cluster already.
fn compute_free_capacity(capacity: &Capacity, assumed: &[AssumedWorkload]) -> Result<Capacity, QuestionError> {
    let components = assumed.iter().map(|workload| workload.components.len()).sum();
    check_count("components that are placed already", components, MOST_COMPONENTS)?;
    let gangs = assumed.iter().map(|workload| read_merged(&workload.components));
    let gangs: Vec<Gang> = gangs.collect::<Result<_, _>>()?;
    let kinds = gangs.iter().map(|gang| gang.tasks.len()).sum();
    check_count("different components that are placed already", kinds, MOST_KINDS)?;
    Ok(answer::subtract_assumed(capacity, &gangs))
}

/// The gang of a set, with one task for all that are alike.
fn read_merged(components: &[ComponentMessage]) -> Result<Gang, QuestionError> {
    check_count("components", components.len(), MOST_COMPONENTS)?;
    Ok(merge_tasks(convert::read_gang(components)?)?)
}
