//! How many accelerators the jobs of a template have together, where its `splitPolicy` says so.
//!
//! Rule (Volcano's design of HyperJobs, where its controller reads neither field yet): `accelerators` is the total over
//! all jobs of a template, and `acceleratorType` a resource that its pods request. In mode `static` each job has an
//! equal share; in mode `auto` the total is spread over clusters as they have room. Pods are what is charged and
//! placed, so the fields are a check of what the template says: what its pods request in all must be the total. Then
//! each job has its share, for all are alike, and no job is placed below its minimum wherever it is split to.

use caldera_core::{gang::Gang, quantity::Quantity};

use super::ReplicatedJobView;

impl ReplicatedJobView<'_> {
    /// The resource that its accelerators are.
    fn accelerator_type(&self) -> Option<&str> {
        self.object["splitPolicy"]["acceleratorType"].as_str().filter(|name| !name.is_empty())
    }

    /// Whether it says a number of nobody knows what.
    pub(super) fn counts_unknown_accelerators(&self) -> bool {
        !self.object["splitPolicy"]["accelerators"].is_null() && self.accelerator_type().is_none()
    }

    /// What is wrong with what it says of accelerators, where its jobs are such gangs.
    pub(super) fn check_accelerators(&self, gang: &Gang) -> Option<String> {
        let name = self.accelerator_type()?;
        let each = gang.sum_full_demand().get(name);
        if each.is_zero() {
            return Some(format!("acceleratorType: no pod of templateSpec requests {name}"));
        }
        let total = self.object["splitPolicy"]["accelerators"].as_i64()?;
        let all = each.times(self.replicas.max(0).unsigned_abs());
        (all != Quantity::from_units(total)).then(|| {
            let jobs = self.replicas;
            format!("accelerators: {total} is not the {all} {name} of its jobs: {jobs} of them, with {each} each")
        })
    }
}
