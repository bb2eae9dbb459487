//! The pending jobs of one queue, in order, grouped by what they ask for.
//!
//! Jobs that ask for the same are one *shape*. One check answers for all jobs of a shape, so only the first job of each
//! shape is a candidate. A shape that does not fit is inadmissible until what it lacks is free (Kueue's inadmissible
//! workloads). Rule for the next candidate, by the queue's [`Dequeue`]: `Traverse` takes the first job of any
//! admissible shape (Kueue's `BestEffortFIFO`). `Fifo` takes the head of the line, and nobody if all shapes of the head
//! are inadmissible (Kueue's `StrictFIFO`). A job that can never start is no head: nobody waits behind it.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
};

use crate::queue::{
    pending::{
        first_jobs::{FirstJobs, FirstsByTenants},
        inadmissible::Inadmissible,
        job_order::JobKey,
        same_shape::SameShape,
        shape_table::ShapeId,
    },
    quota::amounts::Dim,
    spec::Dequeue,
};

#[derive(Debug, Clone, Default)]
pub(crate) struct PendingLine {
    jobs: BTreeMap<JobKey, ShapeId>,
    /// In boxes: half of a tree's places are empty, and these would be large.
    shapes: BTreeMap<ShapeId, Box<SameShape>>,
    /// The first job of every shape that is not inadmissible.
    admissible: FirstsByTenants,
    /// The first job of every shape that is.
    waiting: FirstsByTenants,
    /// Those that can never start: nobody waits behind them.
    unsatisfiable: BTreeSet<ShapeId>,
    /// Entries of these shapes.
    unsatisfiable_entries: usize,
    /// Entries for other card models than the first of their jobs.
    choices: usize,
}

impl PendingLine {
    /// How many jobs there are.
    pub(crate) fn len(&self) -> usize {
        self.jobs.len() - self.choices
    }

    /// How many jobs may ever start, as far as is known. Costs as many steps as there are jobs if some of them have a
    /// choice of card models.
    pub(crate) fn count_satisfiable(&self) -> usize {
        match self.choices {
            0 => self.jobs.len() - self.unsatisfiable_entries,
            _ => self.jobs.iter().filter(|(key, shape)| self.is_in_line(key, **shape)).count(),
        }
    }

    /// Whether an entry stands for its job in line, and that may start on one of its card models, as far as is known.
    pub(crate) fn is_in_line(&self, key: &JobKey, shape: ShapeId) -> bool {
        let others = || self.jobs.range(key..).take_while(|(other, _)| other.id.is_of_same_job(&key.id));
        let may_start = || {
            !self.unsatisfiable.contains(&shape)
                || (self.choices > 0 && others().any(|(_, shape)| !self.unsatisfiable.contains(shape)))
        };
        !key.id.is_choice() && may_start()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &JobKey> {
        self.jobs.keys()
    }

    pub(crate) fn shapes(&self) -> impl Iterator<Item = ShapeId> {
        self.shapes.keys().copied()
    }

    pub(crate) fn first_of(&self, shape: ShapeId) -> Option<&JobKey> {
        self.shapes.get(&shape).map(|same| same.first())
    }

    /// Those of a shape that may rank first: of each priority the one with the earliest deadline, and the oldest
    /// without.
    pub(crate) fn list_possible_first_jobs(&self, shape: ShapeId) -> Vec<&JobKey> {
        self.shapes.get(&shape).map(|same| same.list_possible_firsts()).unwrap_or_default()
    }

    pub(crate) fn count_of(&self, shape: ShapeId) -> usize {
        self.shapes.get(&shape).map_or(0, |same| same.len())
    }

    /// The shape of a pending job.
    pub(crate) fn shape_of(&self, key: &JobKey) -> Option<ShapeId> {
        self.jobs.get(key).copied()
    }

    pub(crate) fn inadmissible_cause(&self, shape: ShapeId) -> Option<Inadmissible> {
        self.shapes.get(&shape).and_then(|same| same.lack)
    }

    /// The job to look at next.
    pub(crate) fn find_next_candidate(&self, dequeue: Dequeue) -> Option<(&JobKey, ShapeId)> {
        match dequeue {
            Dequeue::Traverse => self.admissible.first().map(|(key, shape)| (key, *shape)),
            Dequeue::Fifo => self.list_head_entries().find(|(_, shape)| self.inadmissible_cause(*shape).is_none()),
        }
    }

    /// The same where tenants take turns: of the highest priority the first of those who have the least. Costs as many
    /// steps as there are tenants that have an admissible shape.
    pub(crate) fn find_next_by_share<S: Ord>(&self, share: impl Fn(&[Dim]) -> S) -> Option<(&JobKey, ShapeId)> {
        let highest = self.admissible.first()?.0.priority;
        let firsts = self.admissible.iter_by_tenants().filter_map(|(tenants, same)| Some((tenants, same.first()?)));
        let alike = firsts.filter(|(_, (key, _))| key.priority == highest);
        let by_share = alike.map(|(tenants, (key, shape))| (share(tenants), key, *shape));
        by_share.min().map(|(_, key, shape)| (key, shape))
    }

    /// The first in line that could ever start.
    pub(crate) fn find_first_satisfiable(&self) -> Option<(&JobKey, ShapeId)> {
        self.list_satisfiable_jobs().next().map(|(key, shape)| (key, *shape))
    }

    /// The same with the other entries of its job that could ever start.
    pub(crate) fn list_head_entries(&self) -> impl Iterator<Item = (&JobKey, ShapeId)> {
        let head = self.find_first_satisfiable().map(|(head, _)| head);
        let of_head = move |key: &JobKey| head.is_some_and(|head| head.id.is_of_same_job(&key.id));
        self.list_satisfiable_jobs().take_while(move |(key, _)| of_head(key)).map(|(key, shape)| (key, *shape))
    }

    /// All that may ever start, as far as is known.
    pub(crate) fn list_satisfiable_jobs(&self) -> impl Iterator<Item = (&JobKey, &ShapeId)> {
        self.jobs.iter().filter(|(_, shape)| !self.unsatisfiable.contains(shape))
    }

    /// The first job of every inadmissible shape, in order.
    pub(crate) fn list_first_inadmissible_jobs(&self) -> impl Iterator<Item = &(JobKey, ShapeId)> {
        self.waiting.iter()
    }

    /// The same by the tenants that the shapes are of.
    pub(crate) fn list_first_inadmissible_jobs_by_tenants(&self) -> impl Iterator<Item = (&[Dim], &FirstJobs)> {
        self.waiting.iter_by_tenants()
    }

    /// Shapes that are not inadmissible.
    pub(crate) fn admissible_shapes(&self) -> impl Iterator<Item = ShapeId> {
        self.admissible.iter().map(|(_, shape)| *shape)
    }

    /// Whether a shape can never start, as far as is known.
    pub(crate) fn is_unsatisfiable(&self, shape: ShapeId) -> bool {
        self.unsatisfiable.contains(&shape)
    }

    /// Whether an inadmissible shape can ever start.
    pub(crate) fn set_unsatisfiable(&mut self, shape: ShapeId, unsatisfiable: bool) {
        let count = self.count_of(shape);
        if unsatisfiable && self.inadmissible_cause(shape).is_some() {
            if self.unsatisfiable.insert(shape) {
                self.unsatisfiable_entries += count;
            }
        } else if self.unsatisfiable.remove(&shape) {
            self.unsatisfiable_entries -= count;
        }
    }

    /// The jobs with their shapes, in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&JobKey, ShapeId)> {
        self.jobs.iter().map(|(key, shape)| (key, *shape))
    }

    /// Jobs before `key` that may ever start; costs as many steps as it is away from the nearer end.
    pub(crate) fn count_before(&self, key: &JobKey) -> usize {
        let (mut front, mut back) = (self.jobs.range(..key), self.jobs.range(key..));
        let (mut before, mut after) = (0, 0);
        loop {
            match front.next() {
                None => return before,
                Some((key, shape)) => before += usize::from(self.is_in_line(key, *shape)),
            }
            match back.next() {
                None => return self.count_satisfiable() - after,
                Some((key, shape)) => after += usize::from(self.is_in_line(key, *shape)),
            }
        }
    }

    /// The same where tenants take turns, by what those of a shape have beside the one of `key`. Costs as many steps as
    /// there are shapes, and jobs before.
    pub(crate) fn count_before_by_share(&self, key: &JobKey, compare: impl Fn(&[Dim]) -> Ordering) -> usize {
        let count = |(shape, same): (&ShapeId, &SameShape)| {
            let share = compare(&same.tenants);
            let is_before = |other: &&JobKey| {
                let by_turn = other.priority.cmp(&key.priority).then(share);
                by_turn.then_with(|| (*other).cmp(key)).is_lt()
            };
            same.iter().take_while(is_before).filter(|other| self.is_in_line(other, *shape)).count()
        };
        self.shapes.iter().map(|(shape, same)| count((shape, same))).sum()
    }

    /// Adds a job of a shape, which is of these tenants.
    pub(crate) fn insert(&mut self, key: JobKey, shape: ShapeId, tenants: &[Dim]) {
        match self.shapes.entry(shape) {
            Entry::Vacant(new) => {
                new.insert(Box::new(SameShape::new(key.clone(), tenants)));
                self.admissible.insert((key.clone(), shape), tenants);
            }
            Entry::Occupied(mut known) => {
                let same = known.get_mut();
                let firsts = if same.lack.is_some() { &mut self.waiting } else { &mut self.admissible };
                if let Some(was) = same.insert(key.clone()) {
                    firsts.remove(&(was, shape), &same.tenants);
                    firsts.insert((key.clone(), shape), &same.tenants);
                }
            }
        }
        let is_choice = key.id.is_choice();
        if self.jobs.insert(key, shape).is_none() {
            self.choices += usize::from(is_choice);
            self.unsatisfiable_entries += usize::from(self.unsatisfiable.contains(&shape));
        }
    }

    /// Takes a job out.
    pub(crate) fn remove(&mut self, key: &JobKey) {
        let Some(shape) = self.jobs.remove(key) else { return };
        self.choices -= usize::from(key.id.is_choice());
        self.unsatisfiable_entries -= usize::from(self.unsatisfiable.contains(&shape));
        let Entry::Occupied(mut known) = self.shapes.entry(shape) else { return };
        let same = known.get_mut();
        let firsts = if same.lack.is_some() { &mut self.waiting } else { &mut self.admissible };
        if same.len() == 1 {
            firsts.remove(&(key.clone(), shape), &same.tenants);
            known.remove();
            self.unsatisfiable.remove(&shape);
        } else if same.remove(key) {
            firsts.remove(&(key.clone(), shape), &same.tenants);
            firsts.insert((same.first().clone(), shape), &same.tenants);
        }
    }

    pub(crate) fn mark_inadmissible(&mut self, shape: ShapeId, lack: Inadmissible) {
        let Some(same) = self.shapes.get_mut(&shape) else { return };
        if same.lack.replace(lack).is_none() {
            let first = (same.first().clone(), shape);
            self.admissible.remove(&first, &same.tenants);
            self.waiting.insert(first, &same.tenants);
        }
    }

    /// Considers a shape again; what it lacked, if it was inadmissible.
    pub(crate) fn requeue_shape(&mut self, shape: ShapeId) -> Option<Inadmissible> {
        self.set_unsatisfiable(shape, false);
        let same = self.shapes.get_mut(&shape)?;
        let lack = same.lack.take()?;
        let first = (same.first().clone(), shape);
        self.waiting.remove(&first, &same.tenants);
        self.admissible.insert(first, &same.tenants);
        Some(lack)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, cmp::Reverse};

    use super::*;
    use crate::{
        queue::{pending::job_order::JobId, quota::amounts::Dims},
        tenant::Tenant,
        time::EpochSeconds,
    };

    fn key(priority: i32, created: i64, id: &str) -> JobKey {
        JobKey { priority: Reverse(priority), deadline: JobKey::NO_DEADLINE, created: created.into(), id: id.into() }
    }

    #[test]
    fn a_sleeping_head_stops_a_fifo_line_but_not_a_traversed_one() {
        let mut line = PendingLine::default();
        line.insert(key(0, 1, "big"), ShapeId(0), &[]);
        line.insert(key(0, 2, "small"), ShapeId(1), &[]);
        line.mark_inadmissible(ShapeId(0), Inadmissible::Capacity);
        assert_eq!(line.find_next_candidate(Dequeue::Traverse).unwrap().0.id.as_str(), "small");
        assert!(line.find_next_candidate(Dequeue::Fifo).is_none());
        line.set_unsatisfiable(ShapeId(0), true);
        assert_eq!(line.find_next_candidate(Dequeue::Fifo).unwrap().0.id.as_str(), "small");
        line.requeue_shape(ShapeId(0));
        assert_eq!(line.find_next_candidate(Dequeue::Fifo).unwrap().0.id.as_str(), "big");
    }

    #[test]
    fn a_late_job_of_high_priority_is_first_even_of_a_shape_that_waits() {
        let mut line = PendingLine::default();
        line.insert(key(0, 1, "a"), ShapeId(0), &[]);
        line.insert(key(9, 2, "b"), ShapeId(0), &[]);
        assert_eq!(line.find_next_candidate(Dequeue::Traverse).unwrap().0.id.as_str(), "b");
        line.remove(&key(9, 2, "b"));
        assert_eq!(line.find_next_candidate(Dequeue::Traverse).unwrap().0.id.as_str(), "a");
        line.remove(&key(0, 1, "a"));
        assert!(line.len() == 0 && line.find_next_candidate(Dequeue::Traverse).is_none());
    }

    #[test]
    fn of_each_priority_the_earliest_deadline_and_the_oldest_without_may_rank_first() {
        let mut line = PendingLine::default();
        for (priority, created, id) in [(9, 7, "a"), (9, 5, "b"), (0, 4, "c"), (0, 6, "d"), (i32::MIN, 1, "e")] {
            line.insert(key(priority, created, id), ShapeId(0), &[]);
        }
        for (deadline, id) in [(90, "f"), (80, "g")] {
            line.insert(JobKey { deadline: EpochSeconds::new(deadline), ..key(0, 9, id) }, ShapeId(0), &[]);
        }
        line.insert(key(99, 0, "other"), ShapeId(1), &[]);
        let firsts: Vec<&str> = line.list_possible_first_jobs(ShapeId(0)).iter().map(|key| key.id.as_str()).collect();
        assert_eq!(firsts, ["b", "g", "c", "e"]);
    }

    #[test]
    fn places_are_counted_from_the_nearer_end_over_jobs_that_may_ever_start() {
        let mut line = PendingLine::default();
        let keys: Vec<JobKey> = (0..12).map(|i| key(0, i, "x")).collect();
        for (i, key) in keys.iter().enumerate() {
            line.insert(key.clone(), ShapeId(i as u32 % 3), &[]);
        }
        let check = |line: &PendingLine, hopeless: &[usize]| {
            let may_start = |i: &usize| !hopeless.contains(&(i % 3));
            for (i, key) in keys.iter().enumerate() {
                assert_eq!(line.count_before(key), (0..i).filter(may_start).count(), "{i} {hopeless:?}");
            }
            assert_eq!(line.count_satisfiable(), (0..keys.len()).filter(may_start).count());
        };
        check(&line, &[]);
        line.mark_inadmissible(ShapeId(1), Inadmissible::Never);
        line.set_unsatisfiable(ShapeId(1), true);
        check(&line, &[1]);
        // Whether it is said twice, and of jobs that come and go.
        line.set_unsatisfiable(ShapeId(1), true);
        line.remove(&keys[1]);
        line.insert(keys[1].clone(), ShapeId(1), &[]);
        check(&line, &[1]);
        line.requeue_shape(ShapeId(1));
        check(&line, &[]);
    }

    #[test]
    fn a_job_is_in_line_if_it_may_ever_start_on_one_card_model() {
        let mut line = PendingLine::default();
        for (created, id, shape) in
            [(1, JobId::from("a"), 0), (1, JobId::from("a").with_choice(0), 1), (2, "b".into(), 2)]
        {
            line.insert(JobKey { id, ..key(0, created, "") }, ShapeId(shape), &[]);
        }
        let counts = |line: &PendingLine| (line.count_satisfiable(), line.count_before(&key(0, 2, "b")));
        assert_eq!(counts(&line), (2, 1));
        for (shape, now) in [(0, (2, 1)), (1, (1, 0))] {
            line.mark_inadmissible(ShapeId(shape), Inadmissible::Never);
            line.set_unsatisfiable(ShapeId(shape), true);
            assert_eq!(counts(&line), now);
        }
    }

    #[test]
    fn each_tenants_share_is_asked_for_once_however_many_shapes_it_has() {
        let (mut line, mut dims) = (PendingLine::default(), Dims::default());
        let [ada, bob] = ["ada", "bob"].map(|name| dims.intern_tenant(&Tenant::User(name.into())));
        for i in 0..20 {
            let tenant = if i < 10 { ada } else { bob };
            line.insert(key(i32::from(i == 19), i, "x"), ShapeId(i as u32), &[tenant]);
        }
        let asked = Cell::new(0);
        let next = |line: &PendingLine| {
            asked.set(0);
            let share = |tenants: &[Dim]| {
                asked.set(asked.get() + 1);
                tenants != [bob]
            };
            line.find_next_by_share(share).map(|(_, shape)| (shape.0, asked.get()))
        };
        assert_eq!(next(&line), Some((19, 1)), "only one is of the highest priority");
        line.mark_inadmissible(ShapeId(19), Inadmissible::Capacity);
        assert_eq!(next(&line), Some((10, 2)), "bob has less");
        (10..19).for_each(|shape| line.mark_inadmissible(ShapeId(shape), Inadmissible::Capacity));
        assert_eq!(next(&line), Some((0, 1)));
        assert_eq!(line.list_first_inadmissible_jobs_by_tenants().count(), 1);
        line.requeue_shape(ShapeId(12));
        assert_eq!(next(&line), Some((12, 2)));
    }
}
