//! Admission: which jobs get quota and are released, and which grants count.
//!
//! A job that is in line is checked, and released once its queue path has quota for it and the clusters have capacity:
//! one patch charges it and opens its gate. A grant that no controller made, that an earlier lease holder made, or that
//! is for pods without a place, is taken away, made again or cut.
//!
//! | module | decides |
//! |---|---|
//! | [`assess`] | what a binding waits for or holds, by all that is known; the admission checks; how long its job runs |
//! | [`release`] | which jobs are released |
//! | [`assumed_place`] | where a job counts as placed until its pods are seen |
//! | [`forged_record`] | which admissions and placements are taken away since no controller made them |
//! | [`stale_grant`] | what becomes of admissions that an earlier lease holder wrote |
//! | [`unused_quota`] | which quota of pods that found no place is taken back |

pub(crate) mod assess;
pub(super) mod assumed_place;
pub(super) mod forged_record;
pub(crate) mod release;
pub(super) mod stale_grant;
pub(super) mod unused_quota;
