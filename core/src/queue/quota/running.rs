//! How many jobs run in a queue and those below it: in all, of each namespace and of each user.
//!
//! Rule: Slurm's `GrpJobs` and `MaxJobsPerUser` of a QOS (`src/slurmctld/acct_policy.c`).
//! A job counts once from its admission until nothing of it is charged, in its queue and in all above. It is a ceiling
//! like any other, of a number that is no resource ([`Dim::JOBS`] and after it): requeue, expected ends and what a
//! reservation takes know it as they know resources, while shares, entitlements and evictions know resources alone.

use crate::{
    queue::{
        quota::{
            amount::Amount,
            amounts::{Dim, Dims, Sparse},
        },
        spec::RunningLimits,
    },
    tenant::Tenant,
};

impl RunningLimits {
    pub(crate) fn get(self, dim: Dim) -> Option<Amount> {
        let limit = match dim {
            Dim::JOBS => self.all,
            dim if dim.is_of_user() => self.of_user,
            _ => self.of_namespace,
        };
        limit.map(Amount::of_jobs)
    }
}

/// As what a job counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counted {
    /// One job.
    #[default]
    Job,
    /// One job of each of these: to be said where a queue on its way to the root limits their jobs.
    JobOf(Box<[Tenant]>),
    /// So many jobs that start together, each of these in the same way.
    Jobs(u32, Box<[Tenant]>),
    /// Nothing: it asks for more of what a job of these has that is counted already.
    More(Box<[Tenant]>),
}

impl Counted {
    /// Whose job it is counted as.
    #[must_use]
    pub fn tenants(&self) -> &[Tenant] {
        match self {
            Self::JobOf(tenants) | Self::Jobs(_, tenants) | Self::More(tenants) => tenants,
            Self::Job => &[],
        }
    }

    /// The numbers that it adds to.
    pub(crate) fn list_counts(&self, dims: &mut Dims) -> Sparse {
        let jobs = match self {
            Self::Job | Self::JobOf(_) => 1,
            Self::Jobs(jobs, _) => *jobs,
            Self::More(_) => return Sparse::default(),
        };
        let jobs = Amount::of_jobs(jobs);
        let of = self.tenants().iter().map(|tenant| (dims.intern_tenant(tenant), jobs));
        [(Dim::JOBS, jobs)].into_iter().chain(of).collect()
    }
}
