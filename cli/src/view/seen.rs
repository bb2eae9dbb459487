//! The jobs, queues and members that a command has seen so far, brought up to date by watch events of each kind.

use std::collections::BTreeMap;

use caldera_crds::{names::volcano::DEFAULT_QUEUE, workload::WorkloadKind};
use caldera_runtime::watch::Event;
use serde_json::Value;

use super::{
    cluster::Member,
    facts::{BindingFacts, GroupFacts, JobKey, WorkloadFacts},
    job::{Job, JobView},
    queue::{QueueLine, QueueObject, list_lines},
};

/// What happened to the objects of a kind.
#[derive(Debug, Clone)]
pub enum Change {
    /// Of one kind.
    Workloads(WorkloadKind, Event<(JobKey, WorkloadFacts)>),
    /// ResourceBindings.
    Bindings(Event<(JobKey, BindingFacts)>),
    /// PodGroups.
    Groups(Event<(JobKey, GroupFacts)>),
    /// Queues.
    Queues(Event<(String, QueueObject)>),
    /// Members.
    Clusters(Event<(String, Member)>),
}

impl Change {
    /// What lists of objects say.
    #[must_use]
    pub fn of_lists(workloads: &[Value], bindings: &[Value], groups: &[Value]) -> Vec<Self> {
        let mut changes: Vec<Self> = workloads
            .iter()
            .filter_map(WorkloadFacts::read)
            .map(|workload| Self::Workloads(workload.0.kind, Event::Applied(workload)))
            .collect();
        changes.push(Self::Bindings(Event::Reset(bindings.iter().filter_map(BindingFacts::read).collect())));
        changes.push(Self::Groups(Event::Reset(groups.iter().filter_map(GroupFacts::read).collect())));
        changes
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    jobs: BTreeMap<JobKey, Job>,
    queues: BTreeMap<String, QueueObject>,
    clusters: BTreeMap<String, Member>,
    /// Whole lists that were taken in.
    lists: usize,
}

impl Seen {
    /// Takes in what happened.
    pub fn observe(&mut self, change: Change) {
        let is_list = match change {
            Change::Workloads(kind, event) => self.observe_part(event, |key| key.kind == kind, |job| &mut job.workload),
            Change::Bindings(event) => self.observe_part(event, |_| true, |job| &mut job.binding),
            Change::Groups(event) => self.observe_part(event, |_| true, |job| &mut job.group),
            Change::Queues(event) => {
                let is_list = matches!(event, Event::Reset(_));
                event.apply_to(&mut self.queues);
                is_list
            }
            Change::Clusters(event) => {
                let is_list = matches!(event, Event::Reset(_));
                event.apply_to(&mut self.clusters);
                is_list
            }
        };
        self.lists += usize::from(is_list);
    }

    /// Brings one part of jobs up to date; whether that was a whole list.
    fn observe_part<T>(
        &mut self,
        event: Event<(JobKey, T)>,
        is_listed: impl Fn(&JobKey) -> bool,
        part: impl Fn(&mut Job) -> &mut Option<T>,
    ) -> bool {
        let mut is_list = false;
        match event {
            Event::Applied((key, facts)) => *part(self.jobs.entry(key).or_default()) = Some(facts),
            Event::Deleted((key, _)) => {
                if let Some(job) = self.jobs.get_mut(&key) {
                    *part(job) = None;
                    if *job == Job::default() {
                        self.jobs.remove(&key);
                    }
                }
            }
            Event::Reset(all) => {
                is_list = true;
                for (_, job) in self.jobs.iter_mut().filter(|(key, _)| is_listed(key)) {
                    *part(job) = None;
                }
                for (key, facts) in all {
                    *part(self.jobs.entry(key).or_default()) = Some(facts);
                }
                self.jobs.retain(|_, job| *job != Job::default());
            }
        }
        is_list
    }

    /// Whole lists that were taken in, of any kind.
    #[must_use]
    pub const fn count_lists(&self) -> usize {
        self.lists
    }

    /// All jobs, by namespace and name.
    pub fn jobs(&self) -> impl Iterator<Item = JobView<'_>> {
        self.jobs.iter().filter_map(|(key, job)| JobView::of(key, job))
    }

    /// One job.
    #[must_use]
    pub fn job(&self, key: &JobKey) -> Option<JobView<'_>> {
        let (key, job) = self.jobs.get_key_value(key)?;
        JobView::of(key, job)
    }

    /// All members, by name.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.clusters.values()
    }

    /// Why an admin has nothing released, if so.
    #[must_use]
    pub fn pause_reason(&self) -> Option<&str> {
        self.queues.get(DEFAULT_QUEUE)?.pause_reason()
    }

    /// Names of the queues that there are.
    pub fn queue_names(&self) -> impl Iterator<Item = &str> {
        self.queues.keys().map(String::as_str)
    }

    /// All queues, parents before their children.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueLine> {
        list_lines(&self.queues, self.jobs())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn binding(name: &str) -> Value {
        json!({"metadata": {"namespace": "ns", "annotations": {"caldera.dev/gate": "closed"}}, "spec": {"resource": {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": name,
        }}})
    }

    #[test]
    fn a_watch_that_starts_again_forgets_what_is_gone_and_keeps_what_others_say() {
        let mut seen = Seen::default();
        let read = |name: &str| BindingFacts::read(&binding(name)).unwrap();
        let workload = |name: &str| {
            let workload = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
                "metadata": {"namespace": "ns", "name": name}, "spec": {"queue": "q"}});
            WorkloadFacts::read(&workload).unwrap()
        };
        seen.observe(Change::Bindings(Event::Reset(vec![read("a"), read("b")])));
        seen.observe(Change::Workloads(WorkloadKind::VolcanoJob, Event::Applied(workload("b"))));
        seen.observe(Change::Bindings(Event::Applied(read("c"))));
        seen.observe(Change::Workloads(WorkloadKind::Pod, Event::Reset(Vec::new())));
        let names = |seen: &Seen| {
            seen.jobs().map(|job| format!("{} {} {}", job.key.name, job.state.word(), job.queue())).collect::<Vec<_>>()
        };
        assert_eq!(names(&seen), ["a Waiting ", "b Waiting q", "c Waiting "]);
        seen.observe(Change::Bindings(Event::Reset(vec![read("c")])));
        assert_eq!(names(&seen), ["b NotPropagated q", "c Waiting "]);
        seen.observe(Change::Bindings(Event::Deleted(read("c"))));
        assert_eq!((names(&seen), seen.count_lists()), (vec!["b NotPropagated q".to_owned()], 3));
    }
}
