//! What the demo has observed of its jobs and queues, and the line that each new observation prints. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use caldera_core::{gang::ClusterName, quantity::Quantity};
use caldera_crds::{
    binding::{BindingView, parse_binding},
    karmada::work::ResourceBinding,
    names::{caldera, volcano},
    volcano::scheduling,
    workload::WorkloadKind,
};
use caldera_runtime::watch::Event;
use kube::core::ApiResource;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use super::acts::DemoAct;
use crate::{
    expected_start::ExpectedStart,
    objects::{annotation_of, read_text_at},
};

/// The kinds the demo looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedKind {
    Job,
    Deployment,
    Queue,
    PodGroup,
    Binding,
}

impl ObservedKind {
    pub const ALL: [Self; 5] = [Self::Job, Self::Deployment, Self::Queue, Self::PodGroup, Self::Binding];

    /// What to ask the host for.
    pub fn api_resource(self) -> ApiResource {
        match self {
            Self::Job => WorkloadKind::VolcanoJob.api_resource(),
            Self::Deployment => WorkloadKind::Deployment.api_resource(),
            Self::Queue => ApiResource::erase::<scheduling::Queue>(&()),
            Self::PodGroup => ApiResource::erase::<scheduling::PodGroup>(&()),
            Self::Binding => ApiResource::erase::<ResourceBinding>(&()),
        }
    }
}

/// What was observed of one workload.
#[derive(Debug, Default, Clone)]
pub struct DemoJob {
    /// `Job` or `Deployment`.
    pub kind: String,
    pub queue: String,
    pub priority: String,
    /// Since the demo's start.
    pub seen: Option<Duration>,
    pub released: Option<Duration>,
    pub started: Option<Duration>,
    pub ended: Option<Duration>,
    /// Replicas by task by cluster.
    pub clusters: BTreeMap<String, BTreeMap<String, u32>>,
    pub phase: String,
    /// Ready replicas of a Deployment, and how many it wants.
    pub ready: (i64, i64),
    /// Why it waits: the PodGroup's condition.
    pub reason: String,
    pub message: String,
    /// Every phase that the template's status went through.
    pub phases: Vec<String>,
    /// Why it was taken off its clusters, each time.
    pub evictions: Vec<String>,
}

impl DemoJob {
    pub fn is_placed(&self) -> bool {
        !self.clusters.is_empty()
    }

    pub fn is_waiting(&self) -> bool {
        self.released.is_none() && !self.message.is_empty()
    }

    pub fn is_completed(&self) -> bool {
        self.phase == "Completed"
    }

    /// It runs where it was placed last.
    pub fn runs(&self) -> bool {
        self.phase == "Running" && self.is_placed()
    }

    /// It runs, or has completed, after whatever took it off its clusters.
    pub fn has_started_again(&self) -> bool {
        self.is_placed() && (self.runs() || self.is_completed())
    }

    /// It was taken off its clusters for this reason, and is nowhere since.
    pub fn is_withdrawn(&self, reason: &str) -> bool {
        self.evictions.iter().any(|one| one == reason) && !self.is_placed()
    }
}

/// One queue.
#[derive(Debug, Default, Clone)]
pub struct Queue {
    pub state: String,
    /// Resource to (most ever used, used now, limit).
    pub resources: BTreeMap<String, (String, String, String)>,
}

/// Everything seen so far.
#[derive(Debug, Default)]
pub struct Observed {
    pub jobs: BTreeMap<String, DemoJob>,
    pub queues: BTreeMap<String, Queue>,
    /// What `caldera why` expected, and when it was asked.
    pub forecast: Option<(Duration, ExpectedStart)>,
    /// The member that was drained, and where its gang ran then.
    pub drained: Option<String>,
    pub moved_to: BTreeMap<String, BTreeMap<String, u32>>,
    /// The member that was switched off.
    pub lost: Option<String>,
    /// The acts that were begun.
    pub begun: BTreeSet<DemoAct>,
    /// After how long the time was over, if it was before the demo was.
    pub time_over: Option<Duration>,
}

/// How an expected start came true.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForecastOutcome {
    /// Seconds from the question to the expected start.
    pub expected_in: f64,
    /// And to the start.
    pub started_in: f64,
}

impl ForecastOutcome {
    /// Jobs that run for seconds start and end late by a few on a busy machine: this is no measure of accuracy.
    pub fn came_true(self) -> bool {
        (self.expected_in - self.started_in).abs() <= 15.0
    }

    pub fn describe(self) -> String {
        let verdict = if self.came_true() { "that came true" } else { "that did not come true" };
        format!("expected to start in {:.0} s, and started in {:.1} s: {verdict}", self.expected_in, self.started_in)
    }
}

impl Observed {
    /// What was expected of a job beside what happened, once it started.
    pub fn compare_forecast(&self, name: &str) -> Option<ForecastOutcome> {
        let (asked, expected) = self.forecast.as_ref()?;
        let started = self.jobs.get(name)?.released?;
        #[allow(clippy::cast_precision_loss)]
        let expected_in = expected.ahead? as f64;
        Some(ForecastOutcome { expected_in, started_in: started.saturating_sub(*asked).as_secs_f64() })
    }

    pub fn job(&self, name: &str) -> DemoJob {
        self.jobs.get(name).cloned().unwrap_or_default()
    }

    pub fn queue_is_open(&self, name: &str) -> bool {
        self.queues.get(name).is_some_and(|queue| queue.state == "Open")
    }

    /// Applies a watch event at time `at` since the start, and returns the lines to print.
    pub fn observe_event(&mut self, kind: ObservedKind, event: Event<Value>, at: Duration) -> Vec<String> {
        let objects = match event {
            Event::Reset(all) => all,
            Event::Applied(one) => vec![one],
            Event::Deleted(_) => Vec::new(),
        };
        objects
            .iter()
            .flat_map(|object| match kind {
                ObservedKind::Job => self.observe_job(object, at),
                ObservedKind::Deployment => self.observe_deployment(object, at),
                ObservedKind::Queue => self.observe_queue(object),
                ObservedKind::PodGroup => self.observe_pod_group(object),
                ObservedKind::Binding => self.observe_binding(object, at),
            })
            .collect()
    }

    fn observe_job(&mut self, object: &Value, at: Duration) -> Vec<String> {
        let name = read_text_at(object, "/metadata/name");
        let job = self.jobs.entry(name.to_owned()).or_default();
        job.kind = "Job".to_owned();
        job.seen.get_or_insert(at);
        job.queue = read_text_at(object, "/spec/queue").to_owned();
        job.priority = read_text_at(object, "/spec/priorityClassName").to_owned();
        let phase = read_text_at(object, "/status/state/phase");
        if phase == job.phase || phase.is_empty() {
            return Vec::new();
        }
        job.phase = phase.to_owned();
        job.phases.push(phase.to_owned());
        match phase {
            "Running" => drop(job.started.get_or_insert(at)),
            "Completed" | "Failed" | "Terminated" | "Aborted" => job.ended = Some(at),
            _ => {}
        }
        vec![format!("{name:<15} {phase}")]
    }

    fn observe_deployment(&mut self, object: &Value, at: Duration) -> Vec<String> {
        let name = read_text_at(object, "/metadata/name");
        let job = self.jobs.entry(name.to_owned()).or_default();
        job.kind = "Deployment".to_owned();
        job.seen.get_or_insert(at);
        job.queue = annotation_of(object, volcano::QUEUE_OLD)
            .or(annotation_of(object, volcano::QUEUE))
            .unwrap_or_default()
            .to_owned();
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
        let ready = (number("/status/readyReplicas"), number("/spec/replicas"));
        if ready == job.ready {
            return Vec::new();
        }
        job.ready = ready;
        job.phase = format!("{}/{} ready", ready.0, ready.1);
        if ready.0 == ready.1 {
            job.started.get_or_insert(at);
        }
        vec![format!("{name:<15} {}", job.phase)]
    }

    fn observe_queue(&mut self, object: &Value) -> Vec<String> {
        let queue = self.queues.entry(read_text_at(object, "/metadata/name").to_owned()).or_default();
        queue.state = read_text_at(object, "/status/state").to_owned();
        let quantity =
            |value: Option<&Value>| value.and_then(|value| Quantity::deserialize(value).ok()).unwrap_or_default();
        for (resource, limit) in object.pointer("/spec/capability").and_then(Value::as_object).into_iter().flatten() {
            let used = quantity(object.pointer("/status/allocated").and_then(|all| all.get(resource)));
            let row = queue.resources.entry(resource.clone()).or_default();
            let most = row.0.parse::<Quantity>().unwrap_or_default().max(used);
            *row = [most, used, quantity(Some(limit))].map(|amount| amount.decimal().to_string()).into();
        }
        Vec::new()
    }

    fn observe_pod_group(&mut self, object: &Value) -> Vec<String> {
        let Some(name) = object.pointer("/metadata/labels").and_then(|labels| labels.get(caldera::WORKLOAD_NAME))
        else {
            return Vec::new();
        };
        let name = name.as_str().unwrap_or_default();
        let job = self.jobs.entry(name.to_owned()).or_default();
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let waiting = conditions.into_iter().flatten().find(|condition| {
            read_text_at(condition, "/type") == "Unschedulable" && read_text_at(condition, "/status") == "True"
        });
        let Some(condition) = waiting else { return Vec::new() };
        let (reason, message) = (read_text_at(condition, "/reason"), read_text_at(condition, "/message"));
        if (reason, message) == (&job.reason, &job.message) {
            return Vec::new();
        }
        job.reason = reason.to_owned();
        job.message = message.to_owned();
        vec![format!("{name:<15} waits: {message}")]
    }

    fn observe_binding(&mut self, object: &Value, at: Duration) -> Vec<String> {
        let Some(object) = parse_binding(object) else { return Vec::new() };
        let binding = BindingView::from(&object);
        let name = &object.spec.resource.name;
        let Some(job) = self.jobs.get_mut(name) else { return Vec::new() };
        let mut lines = Vec::new();
        if let Some(reason) = read_eviction(binding.annotation(caldera::EVICTION)).filter(|_| job.is_placed())
            && binding.clusters().next().is_none()
        {
            job.clusters.clear();
            lines.push(format!("{name:<15} taken off its clusters: {reason}"));
            job.evictions.push(reason);
        }
        if binding.annotation(caldera::ADMISSION).is_some() && job.released.is_none() {
            job.released = Some(at);
            lines.push(format!("{name:<15} released by queue {}", job.queue));
        }
        let mut clusters: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
        for (cluster, share) in binding.plan().unwrap_or_default().clusters {
            let tasks = share.tasks.iter().filter(|(_, task)| task.replicas > 0);
            clusters
                .insert(cluster.to_string(), tasks.map(|(task, share)| (task.to_string(), share.replicas)).collect());
        }
        // Kinds that Karmada divides by itself need no plan.
        if clusters.is_empty() {
            let pods =
                |(cluster, replicas): (ClusterName, u32)| (cluster.to_string(), [("pods".to_owned(), replicas)].into());
            clusters = binding.clusters().map(pods).collect();
        }
        if !clusters.is_empty() && clusters != job.clusters {
            job.clusters = clusters;
            lines.push(format!("{name:<15} placed: {}", format_clusters(&job.clusters)));
        }
        lines
    }
}

/// The reason of an eviction record.
fn read_eviction(record: Option<&str>) -> Option<String> {
    let record: Value = serde_json::from_str(record?).ok()?;
    Some(read_text_at(&record, "/reason").to_owned()).filter(|reason| !reason.is_empty())
}

/// `member1: pod 8; member2: pod 2`.
pub fn format_clusters(clusters: &BTreeMap<String, BTreeMap<String, u32>>) -> String {
    let cluster = |(name, tasks): (&String, &BTreeMap<String, u32>)| {
        let tasks: Vec<String> = tasks.iter().map(|(task, replicas)| format!("{task} {replicas}")).collect();
        format!("{name}: {}", tasks.join(", "))
    };
    clusters.iter().map(cluster).collect::<Vec<_>>().join("; ")
}
