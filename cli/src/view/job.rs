//! A job or service, from its workload, its binding and its PodGroup.
//!
//! Rule: its binding says where it stands, its PodGroup why. What ended says so on its workload, or on its PodGroup.

use caldera_core::{
    queue::preemption::EvictionRecord,
    reason::{Position, Reason},
};
use caldera_crds::workload::WorkloadKind;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    facts::{BindingFacts, GroupFacts, JobKey, WorkloadFacts},
    state::State,
    state_reasons::is_said_of,
};

/// What is known of a job; each part may not be there yet, or not be visible.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Job {
    pub(super) workload: Option<WorkloadFacts>,
    pub(super) binding: Option<BindingFacts>,
    pub(super) group: Option<GroupFacts>,
}

/// A job and what can be said of it, without a copy.
#[derive(Debug, Clone, Copy)]
pub struct JobView<'a> {
    /// Which.
    pub key: &'a JobKey,
    job: &'a Job,
    /// In one word.
    pub state: State,
}

impl<'a> JobView<'a> {
    /// Volcano Jobs, and what else is in a queue.
    pub(super) fn of(key: &'a JobKey, job: &'a Job) -> Option<Self> {
        let is_listed = match &job.workload {
            Some(_) => {
                key.kind == WorkloadKind::VolcanoJob
                    || job.group.is_some()
                    || job.binding.as_ref().is_some_and(|binding| binding.queued)
            }
            None => job.binding.as_ref().is_some_and(|binding| binding.queued),
        };
        is_listed.then(|| Self { key, job, state: compute_state(job) })
    }

    /// Whether its workload was seen.
    #[must_use]
    pub const fn has_workload(&self) -> bool {
        self.job.workload.is_some()
    }

    /// Its queue; empty where its workload can not be seen.
    #[must_use]
    pub fn queue(&self) -> &'a str {
        self.job.workload.as_ref().map_or("", |workload| &workload.queue)
    }

    /// Its value, where it is known.
    #[must_use]
    pub fn priority(&self) -> i64 {
        self.job.binding.as_ref().map_or(0, |binding| binding.priority)
    }

    /// When it was made.
    #[must_use]
    pub fn created(&self) -> Option<Timestamp> {
        let binding = || self.job.binding.as_ref()?.created;
        self.job.workload.as_ref().and_then(|workload| workload.created).or_else(binding)
    }

    /// When Karmada made its binding.
    #[must_use]
    pub fn bound_at(&self) -> Option<Timestamp> {
        self.job.binding.as_ref()?.created
    }

    /// When it was last admitted, where its record tells; none if it is not admitted.
    #[must_use]
    pub fn admitted_at(&self) -> Option<Timestamp> {
        self.job.binding.as_ref()?.admitted_at
    }

    /// When the scheduler last placed it; none if it is not placed.
    #[must_use]
    pub fn placed_at(&self) -> Option<Timestamp> {
        self.job.binding.as_ref().filter(|binding| !binding.clusters.is_empty())?.placed_at
    }

    /// Its last eviction.
    #[must_use]
    pub fn eviction(&self) -> Option<&'a EvictionRecord> {
        self.job.binding.as_ref()?.eviction.as_deref()
    }

    /// Seconds since it was made.
    #[must_use]
    pub fn age_seconds(&self, now: Timestamp) -> i64 {
        self.created().map_or(0, |created| now.as_second() - created.as_second())
    }

    /// Its place in its queue's line, as last written.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.job.group.as_ref()?.position.filter(|_| self.state == State::Waiting)
    }

    /// Pods that run.
    #[must_use]
    pub fn running(&self) -> i64 {
        self.job.group.as_ref().map_or(0, |group| group.running)
    }

    /// Pods that must start together.
    #[must_use]
    pub fn minimum(&self) -> Option<i64> {
        self.job.group.as_ref()?.minimum
    }

    /// Pods that succeeded.
    #[must_use]
    pub fn succeeded(&self) -> i64 {
        self.job.group.as_ref().map_or(0, |group| group.succeeded)
    }

    /// Pods that failed.
    #[must_use]
    pub fn failed(&self) -> i64 {
        self.job.group.as_ref().map_or(0, |group| group.failed)
    }

    /// Pods that run, of those that must start together, or of all of a service, and how many failed so far; of what
    /// has ended, what became of its pods.
    #[must_use]
    pub fn describe_pods(&self) -> String {
        let replicas = self.job.workload.as_ref().and_then(|workload| workload.replicas);
        match (replicas.or(self.minimum()), self.state.is_over()) {
            (_, true) if self.failed() > 0 => format!("{} succeeded, {} failed", self.succeeded(), self.failed()),
            (_, true) => format!("{} succeeded", self.succeeded()),
            (wanted, false) => {
                let wanted = wanted.map_or(String::new(), |wanted| format!("/{wanted}"));
                let failed = Some(self.failed()).filter(|failed| *failed > 0);
                let failed = failed.map_or(String::new(), |failed| format!(", {failed} failed so far"));
                format!("{}{wanted}{failed}", self.running())
            }
        }
    }

    /// Where it is, with the pods there.
    #[must_use]
    pub fn clusters(&self) -> &'a [(String, u64)] {
        self.job.binding.as_ref().map_or(&[], |binding| &binding.clusters)
    }

    /// What its PodGroup says, unless that is of a state that it has left: the controller then writes anew in a moment.
    fn find_group_words(&self) -> Option<&'a GroupFacts> {
        self.job.group.as_ref().filter(|group| is_said_of(&group.reason, self.state))
    }

    /// Why, for machines.
    #[must_use]
    pub fn reason(&self) -> &'a str {
        match (&self.job.binding, &self.job.workload) {
            (_, Some(workload)) if workload.has_run_out => Reason::RUN_TIME_EXCEEDED,
            (None, _) => "NoBinding",
            _ => self.find_group_words().map_or("", |group| &group.reason),
        }
    }

    /// Why, for people.
    #[must_use]
    pub fn message(&self) -> &'a str {
        self.find_group_words().map_or("", |group| &group.message)
    }

    /// What it says itself of its end, if it did not end well.
    #[must_use]
    pub fn end_words(&self) -> &'a [String] {
        self.job.workload.as_ref().map_or(&[], |workload| &workload.end_words)
    }

    /// Since when that is the reason.
    #[must_use]
    pub fn since(&self) -> Option<Timestamp> {
        self.find_group_words()?.since
    }
}

/// Where a job stands by its workload and its binding alone.
#[must_use]
pub fn compute_state_from_objects(workload: &Value, binding: Option<&Value>) -> State {
    compute_state(&Job {
        workload: WorkloadFacts::read(workload).map(|(_, facts)| facts),
        binding: binding.and_then(BindingFacts::read).map(|(_, facts)| facts),
        group: None,
    })
}

/// Where a job stands by all that is known of it.
fn compute_state(job: &Job) -> State {
    if let Some(ended) = job.workload.as_ref().and_then(|workload| workload.ended) {
        return ended;
    }
    let phase = job.group.as_ref().map_or("", |group| group.phase.as_str());
    if phase == "Completed" {
        return State::Completed;
    }
    let Some(binding) = &job.binding else { return State::NotPropagated };
    let is = |of: fn(&WorkloadFacts) -> bool| job.workload.as_ref().is_some_and(of);
    match (binding.gate, binding.clusters.is_empty()) {
        (Some(true), _) if is(|workload| workload.suspended) => State::Suspended,
        (Some(true), _) if is(|workload| workload.held) => State::Held,
        (Some(true), _) if job.group.as_ref().is_some_and(|group| Reason::is_unsatisfiable_token(&group.reason)) => {
            State::Inadmissible
        }
        (Some(true), _) if job.group.as_ref().is_some_and(|group| group.reason == Reason::RUN_TIME_EXCEEDED) => {
            State::Terminated
        }
        (Some(true), _) => State::Waiting,
        // A service that asks for no pods runs all that it asks for.
        (Some(false), _) if is(|workload| workload.replicas == Some(0)) => State::Running,
        (_, false) if phase == "Running" => State::Running,
        (_, false) => State::Starting,
        _ if binding.admitted => State::Admitted,
        _ => State::NotGated,
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use serde_json::json;

    use super::*;
    use crate::view::{Change, Seen};

    fn job(name: &str) -> Value {
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"namespace": "ns", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"queue": "q"},
        })
    }

    fn binding(name: &str, annotations: Value, clusters: Value) -> Value {
        json!({"metadata": {"namespace": "ns", "annotations": annotations}, "spec": {"clusters": clusters, "resource": {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": name,
        }}})
    }

    fn group(name: &str, phase: &str) -> Value {
        json!({
            "metadata": {
                "namespace": "ns",
                "ownerReferences": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": name}],
            },
            "spec": {"minMember": 3},
            "status": {"phase": phase, "running": 2, "conditions": [
                {"reason": "R", "message": "waits in queue q, position 2 of 7: M"},
            ]},
        })
    }

    #[test]
    fn what_can_never_start_is_inadmissible_and_a_list_can_be_asked_for_each_state() {
        let closed = binding("j", json!({"caldera.dev/gate": "closed"}), json!([]));
        for reason in Reason::UNSATISFIABLE {
            let mut group = group("j", "Pending");
            group["status"]["conditions"][0]["reason"] = reason.into();
            let seen = see(&[job("j")], std::slice::from_ref(&closed), &[group]);
            assert_eq!(seen.jobs().next().unwrap().state.word(), "Inadmissible", "{reason}");
        }
        let mut over = group("j", "Pending");
        over["status"]["conditions"][0]["reason"] = Reason::RUN_TIME_EXCEEDED.into();
        let seen = see(&[job("j")], std::slice::from_ref(&closed), &[over]);
        assert_eq!(seen.jobs().next().unwrap().state, State::Terminated);
        for state in State::value_variants() {
            assert_eq!(state.to_possible_value().unwrap().get_name(), state.word());
        }
    }

    #[test]
    fn what_has_ended_shows_what_became_of_its_pods() {
        let mut group = group("j", "Completed");
        group["status"]["running"] = 0.into();
        group["status"]["succeeded"] = 9.into();
        let open = binding("j", json!({"caldera.dev/gate": "open"}), json!([{"name": "m1"}]));
        let pods = |group: &Value| {
            let seen = see(&[job("j")], std::slice::from_ref(&open), std::slice::from_ref(group));
            seen.jobs().next().unwrap().describe_pods()
        };
        assert_eq!(pods(&group), "9 succeeded");
        group["status"]["failed"] = 1.into();
        assert_eq!(pods(&group), "9 succeeded, 1 failed");
        group["status"]["phase"] = "Running".into();
        group["status"]["running"] = 2.into();
        assert_eq!(pods(&group), "2/3, 1 failed so far");
        group["status"]["failed"] = 0.into();
        assert_eq!(pods(&group), "2/3");
    }

    /// Found by a reader: a Deployment of three pods showed 0/1.
    #[test]
    fn a_service_shows_its_running_pods_of_all_that_it_asks_for() {
        let of = |mut object: Value| {
            object["apiVersion"] = "apps/v1".into();
            object["kind"] = "Deployment".into();
            object
        };
        let mut deployment = of(job("j"));
        deployment["spec"]["replicas"] = 5.into();
        let (mut open, mut pods) =
            (binding("j", json!({"caldera.dev/gate": "open"}), json!([])), group("j", "Running"));
        open["spec"]["resource"] = of(open["spec"]["resource"].take());
        pods["metadata"]["ownerReferences"][0] = of(pods["metadata"]["ownerReferences"][0].take());
        let seen = |deployment: Value| see(&[deployment], &[open.clone()], &[pods.clone()]);
        assert_eq!(seen(deployment.clone()).jobs().next().unwrap().describe_pods(), "2/5");
        // Scaled to nothing it starts nothing.
        deployment["spec"]["replicas"] = 0.into();
        assert_eq!(seen(deployment).jobs().next().unwrap().state, State::Running);
    }

    fn see(workloads: &[Value], bindings: &[Value], groups: &[Value]) -> Seen {
        let mut seen = Seen::default();
        for change in Change::of_lists(workloads, bindings, groups) {
            seen.observe(change);
        }
        seen
    }

    #[test]
    fn a_jobs_state_is_where_its_binding_stands() {
        let closed = || json!({"caldera.dev/gate": "closed"});
        let open = || json!({"caldera.dev/gate": "open", "caldera.dev/admission": "{}"});
        let m1 = || json!([{"name": "m1"}]);
        let state = |job: Value, binding: Option<Value>, phase: &str| {
            let bindings: Vec<Value> = binding.into_iter().collect();
            see(&[job], &bindings, &[group("j", phase)]).jobs().next().unwrap().state.word()
        };
        let mut held = job("j");
        held["metadata"]["annotations"] = json!({"caldera.dev/hold": "true"});
        let mut failed = job("j");
        failed["status"] = json!({"state": {"phase": "Failed"}});
        let mut suspended = held.clone();
        suspended["metadata"]["annotations"]["caldera.dev/suspended"] = json!("true");
        assert_eq!(state(suspended, Some(binding("j", closed(), json!([]))), "Pending"), "Suspended");
        assert_eq!(state(job("j"), None, "Pending"), "NotPropagated");
        assert_eq!(state(job("j"), Some(binding("j", closed(), json!([]))), "Pending"), "Waiting");
        assert_eq!(state(held.clone(), Some(binding("j", closed(), json!([]))), "Pending"), "Held");
        assert_eq!(state(job("j"), Some(binding("j", open(), json!([]))), "Inqueue"), "Admitted");
        assert_eq!(state(job("j"), Some(binding("j", open(), m1())), "Inqueue"), "Starting");
        // A hold counts where it waits.
        assert_eq!(state(held, Some(binding("j", open(), m1())), "Running"), "Running");
        assert_eq!(state(job("j"), Some(binding("j", open(), m1())), "Completed"), "Completed");
        assert_eq!(state(failed, Some(binding("j", open(), m1())), "Running"), "Failed");
        assert_eq!(state(job("j"), Some(binding("j", json!({}), json!([]))), "Pending"), "NotGated");
    }

    /// Found by a reader: right after a change the list said `Suspended ... Placed` and `Starting ... WaitingForQuota`.
    #[test]
    fn a_reason_of_a_state_that_it_has_left_is_not_shown() {
        let closed = || json!({"caldera.dev/gate": "closed"});
        let open = || json!({"caldera.dev/gate": "open", "caldera.dev/admission": "{}"});
        let say = |job: Value, binding: Value, reason: &str| {
            let mut said = group("j", "Running");
            said["status"]["conditions"][0]["reason"] = reason.into();
            let seen = see(&[job], &[binding], &[said]);
            let view = seen.jobs().next().unwrap();
            format!("{} {} {}", view.state.word(), view.reason(), view.message().len().min(1))
        };
        let waits = || binding("j", closed(), json!([]));
        let placed = || binding("j", open(), json!([{"name": "m1"}]));
        let mut suspended = job("j");
        suspended["metadata"]["annotations"] = json!({"caldera.dev/suspended": "true"});
        assert_eq!(say(suspended.clone(), waits(), "Placed"), "Suspended  0");
        assert_eq!(say(suspended, waits(), "SuspendedByUser"), "Suspended SuspendedByUser 1");
        assert_eq!(say(job("j"), waits(), "Placed"), "Waiting  0");
        assert_eq!(say(job("j"), waits(), "SuspendedByUser"), "Waiting  0");
        assert_eq!(say(job("j"), waits(), "WaitingForQuota"), "Waiting WaitingForQuota 1");
        assert_eq!(say(job("j"), placed(), "WaitingForQuota"), "Running  0");
        assert_eq!(say(job("j"), placed(), "CopyRefused"), "Running CopyRefused 1");
        let mut failed = job("j");
        failed["status"] = json!({"state": {"phase": "Failed"}});
        assert_eq!(say(failed.clone(), placed(), "Placed"), "Failed  0");
        assert_eq!(say(failed, placed(), "Finished"), "Failed Finished 1");
    }

    /// Found by a reader: troubleshooting names `RunTimeExceeded`, and the list said `Finished`.
    #[test]
    fn a_job_that_ran_for_as_long_as_it_may_says_so_and_one_that_failed_says_how() {
        let placed = || binding("j", json!({"caldera.dev/gate": "closed"}), json!([]));
        let mut ended = job("j");
        ended["status"] =
            json!({"state": {"phase": "Terminated", "reason": "RunTimeExceeded", "message": "ran for 60 s"}});
        let mut said = group("j", "Completed");
        said["status"]["conditions"][0]["reason"] = "Finished".into();
        let seen = see(&[ended], &[placed()], &[said.clone()]);
        let view = seen.jobs().next().unwrap();
        assert_eq!((view.state, view.reason()), (State::Terminated, "RunTimeExceeded"));
        let mut failed = job("j");
        failed["spec"]["maxRetry"] = 2.into();
        failed["status"] = json!({"state": {"phase": "Failed"}, "retryCount": 2});
        let seen = see(&[failed], &[placed()], &[said]);
        let view = seen.jobs().next().unwrap();
        assert_eq!(view.end_words(), ["its policies restarted it 2 times, of 2 that its maxRetry allows"]);
    }

    #[test]
    fn a_job_tells_what_its_pod_group_says() {
        let plan = json!({"clusters": {"m1": {"tasks": {"t": {"replicas": 4, "minAvailable": 1}}, "minAvailable": 1}}});
        let annotations = json!({"caldera.dev/gate": "open", "caldera.dev/plan": plan.to_string()});
        let placed = binding("j", annotations, json!([{"name": "m1"}, {"name": "m2", "replicas": 5}]));
        let seen = see(&[job("j")], &[placed], &[group("j", "Running")]);
        let view = seen.jobs().next().unwrap();
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        assert_eq!((view.key.command_name().as_str(), view.queue(), view.age_seconds(now)), ("j", "q", 60));
        assert_eq!((view.describe_pods(), view.reason(), view.position()), ("2/3".to_owned(), "R", None));
        assert_eq!(view.clusters(), [("m1".to_owned(), 4), ("m2".to_owned(), 5)]);
        let waits = binding("j", json!({"caldera.dev/gate": "closed"}), json!([]));
        let seen = see(&[job("j")], &[waits], &[group("j", "Pending")]);
        assert_eq!(seen.jobs().next().unwrap().position(), Some(Position { place: 2, of: 7 }));
    }

    #[test]
    fn a_service_is_listed_where_it_is_in_a_queue_and_named_by_its_kind() {
        let service = |name: &str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "ns", "name": name}});
        let mut queued = binding("web", json!({"caldera.dev/gate": "closed"}), json!([]));
        queued["spec"]["resource"]["apiVersion"] = json!("apps/v1");
        queued["spec"]["resource"]["kind"] = json!("Deployment");
        let seen = see(&[service("web"), service("plain")], &[queued], &[]);
        assert_eq!(seen.jobs().map(|job| job.key.command_name()).collect::<Vec<_>>(), ["deployment/web"]);
    }
}
