//! What is simulated: member clusters, queues, and jobs with their arrivals and run times.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use caldera_core::{
    gang::{Gang, NodeClaim, QueueName, Task},
    inventory::{HyperNode, Node, round_up_request},
    node_groups::restrict_nodes,
    place::{self, Division, QueueClusters, Queues},
    pod_group,
    quantity::Quantity,
    queue::{Ask, Counted, FitClass, QueueSpec, TaskAsk, find_affinity},
    resources::{ResourceName, Resources},
    split::FederationTopology,
    time::EpochSeconds,
};

use crate::{rules::Rules, time::Millis};

/// What made-up jobs are, and what made-up clusters serve.
pub const JOB_KIND: (&str, &str) = ("batch.volcano.sh/v1alpha1", "Job");

/// All that a simulation starts from. Made by [`World::new`], which checks it.
#[derive(Debug, Clone)]
pub struct World {
    /// Member clusters, by name.
    pub clusters: Vec<MemberCluster>,
    /// Queues.
    pub queues: Vec<QueueSpec>,
    /// In the order of their arrivals.
    pub jobs: Vec<Job>,
    /// Decisions begin here; what arrived before has waited since.
    pub start: Millis,
    /// When time zero is: maintenance windows of clusters are of real time.
    pub origin: EpochSeconds,
    /// The links that are declared between clusters.
    pub links: FederationTopology,
    /// What the admin chose.
    pub rules: Rules,
    /// What jobs say of evictions, by their names; who is not there says nothing.
    pub terms: HashMap<Arc<str>, JobTerms>,
}

/// Whose a job is, for how long it may run, and what it says of evictions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobTerms {
    /// Its namespace, which may be protected.
    pub namespace: Arc<str>,
    /// Who submitted it, if that is known.
    pub submitter: Option<Arc<str>>,
    /// It saves its work at least each so many seconds, if it says so; evicted, it runs again from its beginning here.
    pub checkpoint_interval: Option<i64>,
    /// Whether it may be evicted, if it says so.
    pub preemptable: Option<bool>,
    /// All of its pods are best effort.
    pub best_effort: bool,
    /// Nobody is evicted for it.
    pub never_preempts: bool,
    /// After so many seconds its run is ended, if it has such a limit. Only nodes that have to come and maintenance
    /// windows are asked about by it: a job's run is no longer than that anyway.
    pub limit: Option<i64>,
}

/// A member cluster and its nodes.
#[derive(Debug, Clone, Default)]
pub struct MemberCluster {
    /// As placement sees it.
    pub cluster: place::Cluster,
    /// Every node.
    pub nodes: Vec<Node>,
    /// Its network domains.
    pub hyper_nodes: Vec<HyperNode>,
    /// The queues of its own Volcano.
    pub queues: Queues,
}

/// A job.
#[derive(Debug, Clone)]
pub struct Job {
    /// Unique.
    pub name: Arc<str>,
    /// Its queue.
    pub queue: QueueName,
    /// Larger goes first.
    pub priority: i32,
    /// When it is submitted.
    pub arrival: Millis,
    /// How long it runs at full size.
    pub run: Millis,
    /// How long its user said it would run.
    pub estimate: Option<Millis>,
    /// What it asks for.
    pub shape: Arc<Shape>,
    /// Where it runs at the start, if it does: `run` is then what is left.
    pub running: Option<Vec<Hold>>,
}

/// What jobs of one kind ask for; jobs that ask for the same share one value.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Tasks and minimums.
    pub gang: Arc<Gang>,
    /// For placement.
    pub binding: place::Binding,
    /// Placed as a gang (Volcano's kinds), which may be granted in part; others are divided as Karmada does.
    pub whole: bool,
    /// For the question whether it fits.
    pub class: FitClass,
    /// Pods of each task that it needs at least.
    pub minimum: Vec<u32>,
    /// What those ask for.
    pub least: Resources,
    /// What all its pods ask for.
    pub full: Resources,
    /// The same on each of the card models that it may use, the best first; none where it has no choice.
    pub on_cards: Vec<(ResourceName, Arc<Self>)>,
}

impl Shape {
    /// The shape on a card model that it may use; itself where it has no choice.
    #[must_use]
    pub fn on_card(&self, card: Option<&ResourceName>) -> &Self {
        let of_card = self.on_cards.iter().find(|(known, _)| Some(known) == card);
        of_card.map_or(self, |(_, shape)| shape.as_ref())
    }
}

/// Part of a node held by a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Cluster, as an index into [`World::clusters`].
    pub cluster: usize,
    /// Node.
    pub node: Arc<str>,
    /// How much.
    pub amount: Resources,
}

/// What is wrong with a world.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorldError {
    /// Nothing to run on.
    #[error("the fleet has no nodes")]
    NoNodes,
    /// Names must be unique.
    #[error("there are two {what}s named {name}")]
    Twice {
        /// `cluster`, `queue` or `job`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A job in a queue that is not there.
    #[error("job {job} names queue {queue}, which is not there; the queues are: {known}")]
    NoQueue {
        /// The job.
        job: String,
        /// The queue.
        queue: String,
        /// All queues.
        known: String,
    },
}

impl World {
    /// A world that starts with the first arrival at or after `start`.
    ///
    /// # Errors
    /// [`WorldError`], for names that clash or lead nowhere.
    pub fn new(
        mut clusters: Vec<MemberCluster>,
        queues: Vec<QueueSpec>,
        mut jobs: Vec<Job>,
        start: Millis,
    ) -> Result<Self, WorldError> {
        clusters.sort_by(|a, b| a.cluster.name.cmp(&b.cluster.name));
        jobs.sort_by(|a, b| (a.arrival, &a.name).cmp(&(b.arrival, &b.name)));
        check_unique_names("cluster", clusters.iter().map(|one| one.cluster.name.as_str()))?;
        check_unique_names("queue", queues.iter().map(|queue| queue.name.as_str()))?;
        check_unique_names("job", jobs.iter().map(|job| job.name.as_ref()))?;
        if clusters.iter().all(|cluster| cluster.nodes.is_empty()) {
            return Err(WorldError::NoNodes);
        }
        let known: BTreeSet<&str> = queues.iter().map(|queue| queue.name.as_str()).collect();
        if let Some(job) = jobs.iter().find(|job| !known.contains(job.queue.as_str())) {
            let known: Vec<&str> = known.into_iter().collect();
            let (job, queue) = (job.name.to_string(), job.queue.to_string());
            return Err(WorldError::NoQueue { job, queue, known: known.join(", ") });
        }
        keep_to_queues(&clusters, &queues, &mut jobs);
        let (links, rules, terms) = Default::default();
        Ok(Self { clusters, queues, jobs, start, origin: EpochSeconds::new(0), links, rules, terms })
    }

    /// What all nodes have together.
    #[must_use]
    pub fn total(&self) -> Resources {
        let mut total = Resources::new();
        self.clusters.iter().flat_map(|cluster| &cluster.nodes).for_each(|node| total.add(&node.allocatable));
        total
    }

    /// The resource that reports are about: the accelerator that the fleet has most of, else `cpu`.
    #[must_use]
    pub fn main_resource(&self) -> ResourceName {
        let plain = ["cpu", "memory", "pods", "storage", "ephemeral-storage"];
        let is_device = |name: &str| {
            !plain.contains(&name) && !name.starts_with("hugepages-") && !ResourceName::OVERSOLD.contains(&name)
        };
        let total = self.total();
        let devices = total.iter().filter(|(name, _)| is_device(name.as_str()));
        // Of equal amounts the first by name.
        let most = devices.max_by(|(a, x), (b, y)| x.cmp(y).then_with(|| b.cmp(a)));
        most.map_or_else(|| ResourceName::CPU.into(), |(name, _)| name.clone())
    }
}

/// Has jobs use only the nodes and the clusters that their queues say ([`caldera_core::node_groups`],
/// [`QueueClusters`]), by whatever policy.
fn keep_to_queues(clusters: &[MemberCluster], queues: &[QueueSpec], jobs: &mut [Job]) {
    let names_groups = queues.iter().any(QueueSpec::names_node_groups);
    let selects = queues.iter().any(|queue| !queue.clusters.is_empty())
        || clusters.iter().any(|one| one.cluster.queues.is_some() || one.cluster.maintenance.names_queues());
    if !names_groups && !selects {
        return;
    }
    let by_name: BTreeMap<&QueueName, &QueueSpec> = queues.iter().map(|queue| (&queue.name, queue)).collect();
    let find = |name: &QueueName| by_name.get(name).copied();
    let (mut shapes, mut known) = (Shapes::default(), HashMap::new());
    for job in jobs {
        let kept = known.entry((Arc::as_ptr(&job.shape), job.queue.clone())).or_insert_with(|| {
            let Shape { gang, binding, whole, .. } = &*job.shape;
            let gang = gang.restrict_to_nodes(&restrict_nodes(find_affinity(&job.queue, find), names_groups));
            let queue = selects.then(|| Arc::new(read_queue_clusters(&job.queue, find)));
            // With the shape that it was made of, whose place in memory is then nobody else's.
            (shapes.shape(gang, place::Binding { queue, ..binding.clone() }, *whole), Arc::clone(&job.shape))
        });
        job.shape = Arc::clone(&kept.0);
    }
}

fn read_queue_clusters<'a>(queue: &QueueName, find: impl Fn(&QueueName) -> Option<&'a QueueSpec>) -> QueueClusters {
    let (mut clusters, mut next) = (QueueClusters::default(), find(queue));
    // Parents may lead in a circle.
    while let Some(spec) = next.filter(|spec| !clusters.path.contains(&spec.name)) {
        clusters.path.push(spec.name.clone());
        clusters.selector.extend(spec.clusters.iter().cloned());
        next = spec.parent.as_ref().and_then(&find);
    }
    clusters
}

fn check_unique_names<'a>(what: &'static str, names: impl Iterator<Item = &'a str>) -> Result<(), WorldError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(WorldError::Twice { what, name: name.to_owned() });
        }
    }
    Ok(())
}

impl Job {
    /// The user's estimate in whole seconds, as annotations carry it.
    #[must_use]
    pub fn run_for(&self) -> Option<i64> {
        self.estimate.map(|estimate| i64::try_from(estimate.up_to(Millis(1_000)).seconds()).unwrap_or(i64::MAX))
    }

    /// What the queue engine is asked of its shape on one card model, or of all of it.
    #[must_use]
    pub fn ask_on(&self, shape: &Shape, copies: u32) -> Ask {
        let task = |(task, min): (&Task, &u32)| TaskAsk {
            name: task.name.clone(),
            request: task.charge().into_owned(),
            min: *min,
            most: task.replicas,
            step: task.partition_size(),
        };
        let tasks = shape.gang.tasks.iter().zip(&shape.minimum).map(task).collect();
        Ask { tasks, copies, fit: shape.class, run_for: self.run_for(), counted: Counted::Job, card: None }
    }
}

/// Makes shapes, each once.
#[derive(Debug, Default)]
pub struct Shapes(BTreeMap<String, Arc<Shape>>);

impl Shapes {
    /// A Volcano Job's shape: a gang that stays in as few clusters as possible.
    pub fn gang(&mut self, gang: Gang) -> Arc<Shape> {
        let binding = place::Binding {
            api_version: JOB_KIND.0.to_owned(),
            kind: JOB_KIND.1.to_owned(),
            replicas: i64::from(gang.replicas()),
            is_workload: true,
            divisible: true,
            components: 1,
            placement: place::Placement { division: Some(Division::Aggregated), ..place::Placement::default() },
            ..place::Binding::default()
        };
        self.shape(gang, binding, true)
    }

    /// The shape of these values.
    pub fn shape(&mut self, gang: Gang, binding: place::Binding, whole: bool) -> Arc<Shape> {
        let print = format!("{whole} {gang:?} {binding:?}");
        // The same for the same shape whoever makes it, as the controller's fingerprint is.
        let mut hasher = DefaultHasher::new();
        print.hash(&mut hasher);
        let class = FitClass(hasher.finish());
        if let Some(known) = self.0.get(&print) {
            return Arc::clone(known);
        }
        let of_card = |card: ResourceName| {
            // Who is kept to one model may use no other.
            let kept = gang.keep_to_card(Some(&card)).into_owned();
            let shape = self.shape(kept, binding.clone(), whole);
            (card, shape)
        };
        let on_cards: Vec<_> = gang.list_card_choices().into_iter().map(of_card).collect();
        let shape = self.0.entry(print).or_insert_with(|| {
            let minimum = count_needed_pods(&gang, whole);
            let mut least = Resources::new();
            for (task, pods) in gang.tasks.iter().zip(&minimum) {
                least.add(&task.request.times(u64::from(*pods)));
            }
            let full = gang.sum_full_demand();
            Arc::new(Shape { gang: Arc::new(gang), binding, whole, class, minimum, least, full, on_cards })
        });
        Arc::clone(shape)
    }
}

/// Pods of each task that are needed at once: the gang's minimum, or all of what is no gang.
fn count_needed_pods(gang: &Gang, whole: bool) -> Vec<u32> {
    // Partitions are placed whole.
    let need = |(task, pods): (&Task, u32)| {
        if whole { pods.next_multiple_of(task.partition_size()).min(task.replicas) } else { task.replicas }
    };
    gang.tasks.iter().zip(pod_group::compute_pod_group_minimum(gang, |_| 0).pods).map(need).collect()
}

/// A task of `replicas` pods, all needed unless `min` says fewer.
#[must_use]
pub fn task(name: &str, replicas: u32, min: u32, mut request: Resources) -> Task {
    request.set(ResourceName::PODS, Quantity::from_units(1));
    Task {
        name: name.into(),
        replicas,
        min_available: min.min(replicas),
        request: round_up_request(&request),
        node: NodeClaim::default(),
        priority_class: String::new(),
        partition: None,
    }
}

/// A gang of these tasks that needs each task's minimum.
#[must_use]
pub fn gang(tasks: Vec<Task>) -> Gang {
    let min_available = tasks.iter().map(|task| task.min_available).sum();
    Gang::new(tasks, min_available)
}

/// A cluster of `count` equal nodes of each of these sizes; nodes take 110 pods unless they say otherwise.
#[must_use]
pub fn cluster(name: &str, groups: &[(u32, Resources)]) -> MemberCluster {
    let mut nodes = Vec::new();
    for (group, (count, allocatable)) in groups.iter().enumerate() {
        for i in 0..*count {
            nodes.push(node(format!("{name}-{group}-{i:05}"), allocatable.clone()));
        }
    }
    MemberCluster { cluster: ready_cluster(name), nodes, ..MemberCluster::default() }
}

/// A node that is ready.
#[must_use]
pub fn node(name: String, mut allocatable: Resources) -> Node {
    if allocatable.get(ResourceName::PODS).is_zero() {
        allocatable.set(ResourceName::PODS, Quantity::from_units(110));
    }
    Node { name, allocatable, ready: true, ..Node::default() }
}

/// A cluster that takes jobs.
#[must_use]
pub fn ready_cluster(name: &str) -> place::Cluster {
    let serves = [(JOB_KIND.0.to_owned(), JOB_KIND.1.to_owned())].into();
    place::Cluster { name: name.to_owned(), ready: true, serves, ..place::Cluster::default() }
}
