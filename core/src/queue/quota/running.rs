//! How many jobs run in a queue and those below it: in all, and of each namespace.
//!
//! Rule: Slurm's `GrpJobs` and `MaxJobsPerUser` of a QOS (`src/slurmctld/acct_policy.c`), where a user is a namespace.
//! A job counts once from its admission until nothing of it is charged, in its queue and in all above. It is a ceiling
//! like any other, of a number that is no resource ([`Dim::JOBS`] and after it): requeue, expected ends and what a
//! reservation takes know it as they know resources, while shares, entitlements and evictions know resources alone.

use std::{collections::BTreeMap, sync::Arc};

use crate::queue::{
    quota::amounts::{Dim, Dims, Sparse},
    spec::RunningLimits,
};

impl RunningLimits {
    pub(crate) fn get(self, dim: Dim) -> Option<i128> {
        if dim == Dim::JOBS { self.all } else { self.of_namespace }.map(i128::from)
    }
}

/// As what a job counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counted {
    /// One job.
    #[default]
    Job,
    /// One job of this namespace: to be said where a queue on its way to the root limits those.
    JobOf(Arc<str>),
    /// So many jobs that start together, of this namespace where that is to be said.
    Jobs(u32, Option<Arc<str>>),
    /// Nothing: it asks for more of what a job has that is counted already.
    Nothing,
}

impl Counted {
    /// The numbers that it adds one to.
    pub(crate) fn list_counts(&self, dims: &mut Dims) -> Sparse {
        match self {
            Self::Job => [(Dim::JOBS, 1)].into(),
            Self::JobOf(namespace) => [(Dim::JOBS, 1), (dims.intern_namespace(namespace), 1)].into(),
            Self::Jobs(jobs, None) => [(Dim::JOBS, i128::from(*jobs))].into(),
            Self::Jobs(jobs, Some(namespace)) => {
                [(Dim::JOBS, i128::from(*jobs)), (dims.intern_namespace(namespace), i128::from(*jobs))].into()
            }
            Self::Nothing => Sparse::default(),
        }
    }
}

/// Jobs that hold something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RunningJobs(BTreeMap<Dim, i128>);

impl RunningJobs {
    pub(crate) fn get(&self, dim: Dim) -> i128 {
        self.0.get(&dim).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, counts: impl IntoIterator<Item = (Dim, i128)>) {
        for (dim, count) in counts {
            let sum = self.0.entry(dim).or_default();
            *sum += count;
            if *sum == 0 {
                self.0.remove(&dim);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Dim, &i128)> {
        self.0.iter()
    }
}
