//! Caldera's own engine, driven as the controller drives it: released in order, each into the room that the ones before
//! it left, then placed as the scheduler places what was granted.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use caldera_core::{
    gang::TaskName,
    queue::{self, Ask, Engine, Fit, FitClass, JobId, QueueSpec},
    reason::Reason,
    resources::Resources,
};

use super::Policy;
use crate::{
    members::Part,
    site::Site,
    world::{Job, World},
};

/// See the module.
#[derive(Debug)]
pub struct Caldera {
    engine: Engine,
    asks: HashMap<(FitClass, u32), Arc<Ask>>,
    /// Admitted, but what was granted found no place: the scheduler tries again when there is more room.
    unplaced: Vec<(usize, BTreeMap<TaskName, u32>)>,
    /// Jobs go by their own priorities, or all alike.
    by_priority: bool,
}

impl Caldera {
    /// With the world's queues and jobs as they are.
    #[must_use]
    pub fn new(world: &World) -> Self {
        Self::with_queues(world.queues.iter().cloned(), true)
    }

    pub(super) fn with_queues(queues: impl Iterator<Item = QueueSpec>, by_priority: bool) -> Self {
        let mut engine = Engine::default();
        queues.for_each(|queue| engine.set_queue(queue));
        Self { engine, asks: HashMap::new(), unplaced: Vec::new(), by_priority }
    }

    /// Whether a job in line waits for more than there could ever be.
    pub(super) fn can_never_start(&self, job: usize) -> bool {
        let never =
            |reason| matches!(reason, Reason::ExceedsLimit { .. } | Reason::NeverFits { .. } | Reason::Queue { .. });
        self.engine.why(id(job).as_str()).is_some_and(never)
    }

    fn ask(&mut self, site: &mut Site<'_>, job: usize) -> Arc<Ask> {
        let (copies, of) = (site.copies(job), site.job(job));
        Arc::clone(self.asks.entry((of.shape.class, copies)).or_insert_with(|| Arc::new(of.ask(copies))))
    }

    /// The one place that knows what a job tells the engine.
    fn line_up(&self, index: usize, job: &Job, ask: Arc<Ask>) -> queue::Job {
        queue::Job {
            id: id(index),
            queue: job.queue.clone(),
            priority: if self.by_priority { job.priority } else { 0 },
            created: i64::try_from(job.arrival.seconds()).unwrap_or(i64::MAX),
            ask,
        }
    }

    /// What is charged from now on is what is placed.
    fn place(&mut self, site: &mut Site<'_>, job: usize, parts: Vec<Part>) {
        let mut charge = Resources::new();
        parts.iter().for_each(|part| charge.add(&part.demand()));
        self.engine.hold(&id(job), &site.job(job).queue, &charge);
        site.send(job, parts);
    }

    fn retry(&mut self, site: &mut Site<'_>) {
        for (job, granted) in std::mem::take(&mut self.unplaced) {
            match site.find_granted(job, &granted) {
                Ok(parts) => self.place(site, job, parts),
                Err(_) => self.unplaced.push((job, granted)),
            }
        }
    }
}

impl Policy for Caldera {
    fn arrived(&mut self, site: &mut Site<'_>, job: usize) {
        let ask = self.ask(site, job);
        self.engine.wait(self.line_up(job, site.job(job), ask));
    }

    fn resumed(&mut self, site: &mut Site<'_>, job: usize) {
        let mut charge = Resources::new();
        site.job(job).running.iter().flatten().for_each(|hold| charge.add(&hold.amount));
        self.engine.hold(&id(job), &site.job(job).queue, &charge);
    }

    fn ended(&mut self, _: &mut Site<'_>, job: usize) {
        self.engine.forget(id(job).as_str());
    }

    fn decide(&mut self, site: &mut Site<'_>) {
        self.engine.set_fleet(site.members().total());
        if site.take_grew() {
            self.engine.room_grew();
            self.retry(site);
        }
        loop {
            let mut found = Vec::new();
            let release = self.engine.next(|id, _| match site.find(index(id)) {
                Ok(parts) => {
                    found = parts;
                    Fit::Yes
                }
                Err(no) => no,
            });
            let Some(release) = release else { return };
            let (job, granted) = (index(&release.id), release.admission.tasks);
            let tasks = &site.job(job).shape.gang.tasks;
            let whole = tasks.iter().all(|task| granted.get(&task.name).is_some_and(|pods| *pods >= task.replicas));
            match if whole { Ok(found) } else { site.find_granted(job, &granted) } {
                Ok(parts) => self.place(site, job, parts),
                Err(_) => self.unplaced.push((job, granted)),
            }
        }
    }
}

/// In the order of arrivals, so that jobs of one second keep it.
fn id(job: usize) -> JobId {
    format!("{job:08}").into()
}

fn index(id: &JobId) -> usize {
    id.as_str().parse().unwrap_or(usize::MAX)
}
