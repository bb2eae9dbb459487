//! The first job of each of a line's shapes, in order: of all, and of those of each tenant.

use std::collections::{BTreeMap, BTreeSet};

use crate::queue::{
    pending::{job_order::JobKey, shape_table::ShapeId},
    quota::amounts::Dim,
};

/// First jobs in order.
pub(crate) type FirstJobs = BTreeSet<(JobKey, ShapeId)>;

/// See the module. Where tenants count for nothing, which is nearly everywhere, each job is in one set alone.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstsByTenants {
    /// Of shapes that are counted as nobody's.
    of_nobody: FirstJobs,
    /// Of the others, by whose they are.
    of_tenants: BTreeMap<Box<[Dim]>, FirstJobs>,
    /// All of these.
    of_anybody: FirstJobs,
}

impl FirstsByTenants {
    pub(super) fn insert(&mut self, first: (JobKey, ShapeId), tenants: &[Dim]) {
        if tenants.is_empty() {
            self.of_nobody.insert(first);
            return;
        }
        match self.of_tenants.get_mut(tenants) {
            Some(same) => drop(same.insert(first.clone())),
            None => drop(self.of_tenants.insert(tenants.into(), [first.clone()].into())),
        }
        self.of_anybody.insert(first);
    }

    /// True if it was there.
    pub(super) fn remove(&mut self, first: &(JobKey, ShapeId), tenants: &[Dim]) -> bool {
        if tenants.is_empty() {
            return self.of_nobody.remove(first);
        }
        if let Some(same) = self.of_tenants.get_mut(tenants) {
            same.remove(first);
            if same.is_empty() {
                self.of_tenants.remove(tenants);
            }
        }
        self.of_anybody.remove(first)
    }

    pub(super) fn first(&self) -> Option<&(JobKey, ShapeId)> {
        self.of_nobody.first().into_iter().chain(self.of_anybody.first()).min()
    }

    /// All in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(JobKey, ShapeId)> {
        let (mut nobody, mut anybody) = (self.of_nobody.iter().peekable(), self.of_anybody.iter().peekable());
        std::iter::from_fn(move || match (nobody.peek(), anybody.peek()) {
            (Some(one), Some(other)) if other < one => anybody.next(),
            (Some(_), _) => nobody.next(),
            (None, _) => anybody.next(),
        })
    }

    /// The same by whose they are.
    pub(super) fn iter_by_tenants(&self) -> impl Iterator<Item = (&[Dim], &FirstJobs)> {
        let nobody = (!self.of_nobody.is_empty()).then_some((&[][..], &self.of_nobody));
        nobody.into_iter().chain(self.of_tenants.iter().map(|(tenants, firsts)| (&**tenants, firsts)))
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;
    use crate::{queue::quota::amounts::Dims, tenant::Tenant};

    #[test]
    fn those_of_nobody_and_of_tenants_are_one_order() {
        let (mut firsts, mut dims) = (FirstsByTenants::default(), Dims::default());
        let [ada, bob] = ["ada", "bob"].map(|name| dims.intern_tenant(&Tenant::User(name.into())));
        let job = |created: i32| {
            let key = JobKey {
                priority: Reverse(0),
                deadline: JobKey::NO_DEADLINE,
                created: i64::from(created).into(),
                id: "x".into(),
            };
            (key, ShapeId(u32::try_from(created).unwrap()))
        };
        let tenants: [&[Dim]; 6] = [&[ada], &[], &[bob], &[ada], &[], &[bob]];
        for (created, tenants) in (0..6_i32).zip(tenants).rev() {
            firsts.insert(job(created), tenants);
            assert_eq!(firsts.first(), Some(&job(created)));
        }
        let of = |firsts: &FirstsByTenants| firsts.iter().map(|(_, shape)| shape.0).collect::<Vec<_>>();
        assert_eq!(of(&firsts), [0, 1, 2, 3, 4, 5]);
        let by_tenants = |firsts: &FirstsByTenants| {
            firsts.iter_by_tenants().map(|(tenants, same)| (tenants.to_vec(), same.len())).collect::<Vec<_>>()
        };
        assert_eq!(by_tenants(&firsts), [(vec![], 2), (vec![ada], 2), (vec![bob], 2)]);
        for created in [1, 4, 0, 3] {
            assert!(firsts.remove(&job(created), tenants[usize::try_from(created).unwrap()]));
        }
        assert!(!firsts.remove(&job(1), &[]) && firsts.first() == Some(&job(2)));
        assert_eq!((of(&firsts), by_tenants(&firsts)), (vec![2, 5], vec![(vec![bob], 2)]));
    }
}
