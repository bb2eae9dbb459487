//! What users read of their jobs: the phase, the reason and the position on PodGroups, the state of a Volcano Job that
//! waits, and events.
//!
//! It decides nothing about any job. Texts are written within a budget, those at the front of the line first, so that a
//! long line does not take the host's writes from releases.
//!
//! | module | decides |
//! |---|---|
//! | [`pod_groups`] | which PodGroups are written, and when |
//! | [`pod_group_status`] | what a PodGroup says |
//! | [`first_pod_groups`] | whose PodGroup is made next where writes are slow |
//! | [`outdated_texts`] | which texts are written anew, those at the front of the line first |
//! | [`status_difference`] | how much a text differs from the written one: in what it says, or in numbers alone |
//! | [`refresh_budget`] | how many texts are written now |
//! | [`waiting_state`] | what a Volcano Job says of itself while it waits |
//! | [`admission_events`] | which events say that a job was admitted after a wait |

pub(super) mod admission_events;
mod first_pod_groups;
mod outdated_texts;
pub(crate) mod pod_group_status;
pub(super) mod pod_groups;
mod refresh_budget;
mod status_difference;
pub(super) mod waiting_state;
