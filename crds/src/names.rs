//! The labels, annotations, finalizers and field managers that Caldera reads or writes, by the project that owns the
//! name, and the fixed names of queues, schedulers and namespaces. Each comment says which object carries it.
//! (`caldera.dev/cost` of Clusters is in `caldera_core::place::score`.)

/// Our names, all under `caldera.dev/`.
pub mod caldera {
    /// With which the names of our annotations and labels begin.
    pub const PREFIX: &str = "caldera.dev/";
    /// `spec.schedulerName` of the bindings that Caldera places; also the source of their events.
    pub const SCHEDULER_NAME: &str = "caldera";
    /// On a ResourceBinding: the state of Caldera's gate. [`GATE_CLOSED`]: the webhook suspended the binding, and only
    /// Caldera resumes it. [`GATE_OPEN`]: the controller admitted the workload. Absent: the binding is not queued, or
    /// somebody else suspended it.
    pub const GATE: &str = "caldera.dev/gate";
    /// A value of [`GATE`]: the webhook suspended the binding, and its workload waits.
    pub const GATE_CLOSED: &str = "closed";
    /// A value of [`GATE`]: the controller admitted the workload.
    pub const GATE_OPEN: &str = "open";
    /// On a ResourceBinding: what the controller admitted, and charged its queue for (JSON). Without it nothing is
    /// placed.
    pub const ADMISSION: &str = "caldera.dev/admission";
    /// On a ResourceBinding: the lease of the controller that granted [`ADMISSION`] (lease fencing). Absent or empty if
    /// the controller runs without a lease. The scheduler places a grant only after it has seen this lease held.
    pub const EPOCH: &str = "caldera.dev/epoch";
    /// On a ResourceBinding: the gang's shares by cluster (JSON; see [the plan](../concepts.md#gang-split-and-plan)).
    pub const PLAN: &str = "caldera.dev/plan";
    /// On a ResourceBinding: the priority that the webhook asserts in `spec.schedulePriority` (decimal integer).
    pub const PRIORITY: &str = "caldera.dev/priority";
    /// On a Lease of a component: the version of who holds it.
    pub const VERSION: &str = "caldera.dev/version";
    /// On a Lease of a component: from when to when its kubeconfig's credentials serve, as RFC 3339 `BEGIN/END`, or
    /// `END` alone where they do not say since when; not there where nobody knows.
    pub const CREDENTIALS_LIFETIME: &str = "caldera.dev/credentials-lifetime";
    /// On a ResourceBinding that is created with `dryRun=All`, never stored: the version of the webhook that saw it.
    pub const WEBHOOK_VERSION: &str = "caldera.dev/webhook-version";
    /// On a manifest in a Work: the replicas that ReviseReplica gave this cluster. They show whether a plan is stale.
    pub const REVISED: &str = "caldera.dev/revised-replicas";
    /// On a ResourceBinding: its last eviction, the job it was evicted for, and until when what came free is held for
    /// that (JSON; see [who gets what came free](../rules/preemption.md#who-gets-what-came-free)).
    pub const EVICTION: &str = "caldera.dev/eviction";
    /// On a Queue: the amounts that count where they differ from its spec, and what is wrong with the queue (JSON).
    pub const QUEUE_STATUS: &str = "caldera.dev/queue-status";
    /// On Queue `default`: why nothing is released anywhere. Whoever may update that Queue pauses the fleet.
    pub const PAUSED: &str = "caldera.dev/paused";
    /// On a Queue: `true` lets it be deleted while workloads wait or run in it. Those that run are killed in all
    /// members.
    pub const FORCE_DELETE: &str = "caldera.dev/force-delete";
    /// On a Queue: a label selector, as kubectl takes it. Only jobs of namespaces whose labels match it wait and start
    /// in the queue and in those below it. Absent: those of every namespace.
    pub const NAMESPACE_SELECTOR: &str = "caldera.dev/namespace-selector";
    /// On a Queue: a label selector, as kubectl takes it. Jobs of the queue and of those below it go only to clusters
    /// whose labels match it. Absent: to all.
    pub const CLUSTER_SELECTOR: &str = "caldera.dev/cluster-selector";
    /// On a Cluster: queues, separated by commas. Of the jobs of queues it takes only those of these queues and of
    /// those below them. Absent: those of all.
    pub const CLUSTER_QUEUES: &str = "caldera.dev/queues";
    /// On a Queue: jobs that may wait in it and in those below it, a whole number. One more is refused.
    pub const MAX_WAITING_JOBS: &str = "caldera.dev/max-waiting-jobs";
    /// On a Queue: jobs of one namespace that may wait in it and in those below it, a whole number. One more is
    /// refused.
    pub const MAX_WAITING_JOBS_PER_NAMESPACE: &str = "caldera.dev/max-waiting-jobs-per-namespace";
    /// On a Queue: jobs of one user that may wait in it and in those below it, a whole number. One more is refused.
    pub const MAX_WAITING_JOBS_PER_USER: &str = "caldera.dev/max-waiting-jobs-per-user";
    /// On a Queue: jobs that may run in it and in those below it, a whole number. Others wait.
    pub const MAX_RUNNING_JOBS: &str = "caldera.dev/max-running-jobs";
    /// The same for those of one namespace.
    pub const MAX_RUNNING_JOBS_PER_NAMESPACE: &str = "caldera.dev/max-running-jobs-per-namespace";
    /// The same for those of one user: jobs that the webhook stamped with the same [`SUBMITTER`].
    pub const MAX_RUNNING_JOBS_PER_USER: &str = "caldera.dev/max-running-jobs-per-user";
    /// On a Queue: how long a blocked job of it, and of those below it, waits before it gets a reservation: `10m`, a
    /// part of the run that it declares as `50%`, the longer of both as `10m,50%`, or `never`. The nearest queue that
    /// says something counts; else `--reservation-after`, of which 0 switches this off too.
    pub const RESERVATION_AFTER: &str = "caldera.dev/reservation-after";
    /// On a Queue: how the priority of a job of it, and of those below it, rises while it waits: `1000/24h` is by 1000
    /// within 24 hours and no further. It decides who goes first in line and evicts nobody. The nearest queue that says
    /// something counts; `none` is by nothing.
    pub const PRIORITY_AGING: &str = "caldera.dev/priority-aging";
    /// On a Queue: whose turn it is among jobs of one priority in it and in each of those below: `drf-by-namespace` or
    /// `drf-by-user` has those go first whose dominant share of the queue is the smallest, `none` looks at jobs alone.
    /// The nearest queue that says something counts.
    pub const TENANT_ORDER: &str = "caldera.dev/order";
    /// On a Queue: the largest job that it and those below it take, as `cpu=64,nvidia.com/gpu=8`.
    pub const MAX_JOB: &str = "caldera.dev/max-job";
    /// On a Queue: the priority classes that jobs in it and in those below it may name, `batch,urgent`. A job that
    /// names none is always taken.
    pub const PRIORITY_CLASSES: &str = "caldera.dev/priority-classes";
    /// On a workload and on a Queue: how long one run of a job may take from its release on, as a Go duration (`4h`).
    /// Then it is ended. Of a Queue it is the most for each job in it and in those below it, and counts for those that
    /// say nothing. What it says when a run begins counts for that run.
    pub const MAX_RUN_TIME: &str = "caldera.dev/max-run-time";
    /// On a Queue: `true` makes the jobs in it and in those below it preemptable, whatever they say themselves.
    pub const ALL_JOBS_PREEMPTABLE: &str = "caldera.dev/all-jobs-preemptable";
    /// On a Cluster: the time (RFC 3339) at which its admin says that nothing runs there any more, and nothing will. It
    /// counts for a loss that began before, and for no later one.
    pub const FENCED_AT: &str = "caldera.dev/fenced-at";
    /// On a Cluster: when it is under maintenance, a JSON list of at most 16 windows: `[{"start":
    /// "2026-11-26T08:00:00Z", "end": "2026-11-26T12:00:00Z", "reason": "new kernels", "notice": "24h"}]`. Times are
    /// RFC 3339; `reason` and `notice` may be left out. No job starts there in a window, nor one before it that would
    /// not have ended; one that does not say how long it runs starts until `notice` before the window (24h). With
    /// `"nodeGroups": ["a100"]` a window is about nodes of these groups alone (label `volcano.sh/nodegroup-name`); with
    /// `"queues": ["ops"]` jobs of these queues, and of those below, start in it. One fault and none of the windows
    /// counts.
    pub const MAINTENANCE: &str = "caldera.dev/maintenance";
    /// On a Cluster: the node groups that its own cluster-autoscaler lets grow, a JSON list of at most 16: `[{"name":
    /// "gpu", "nodes": {"pool": "gpu"}, "max": 8, "resources": {"cpu": "16", "memory": "64Gi"}, "labels": {"zone":
    /// "a"}, "taints": [{"key": "gpu", "effect": "NoSchedule"}], "delay": "5m"}]`. `nodes` are the labels by which its
    /// nodes are known, `max` how many there may be with those that are there, `resources` what one has for pods (110
    /// pods where that is not said), `delay` how long one takes to come (15m). Labels and taints may be left out. One
    /// fault and none of the groups counts.
    pub const AUTOSCALED_GROUPS: &str = "caldera.dev/autoscaled-groups";
    /// On a workload: `true` holds it in its queue until the user removes the annotation.
    pub const HOLD: &str = "caldera.dev/hold";
    /// On a workload: `true` takes it off its clusters and out of line until the user takes the annotation away. A
    /// Command `AbortJob` sets it, `ResumeJob` takes it away.
    pub const SUSPENDED: &str = "caldera.dev/suspended";
    /// On a Volcano Job: `Terminated`, `Completed` or `Failed` ends it for good as that. A Command `TerminateJob` or
    /// `CompleteJob` sets it; the controller sets `Failed` when a split job used up its `maxRetry`.
    pub const END_AS: &str = "caldera.dev/end-as";
    /// On a workload: the clusters that it may go to, of those that its policy selects: `member1,member2`. Asked when
    /// it is placed, and never of what runs. `caldera job move` writes it.
    pub const CLUSTERS: &str = "caldera.dev/clusters";
    /// On a workload: clusters that it may not go to, in the same way.
    pub const EXCLUDE_CLUSTERS: &str = "caldera.dev/exclude-clusters";
    /// On a workload: how long it runs at most, as a Go duration (`90m`). A job with an estimate may backfill around a
    /// reservation that it does not delay, and expected starts are computed from the estimates.
    pub const RUNNING_ESTIMATE: &str = "caldera.dev/running-estimate";
    /// On a workload: it saves its work at least so often (`30m`), and goes on from there when it starts again. An
    /// eviction is taken to lose no more of its run than that, which decides who is evicted and whether a move pays.
    pub const CHECKPOINT_INTERVAL: &str = "caldera.dev/checkpoint-interval";
    /// On a Volcano Job, on a workload of another kind that names a queue or whose namespace opted in, on a HyperJob
    /// and on a CronJob: when it was submitted (RFC 3339, to the microsecond). The webhook writes it when the object is
    /// created and keeps it from then on, whatever a user writes. It orders jobs of one queue whose bindings were made
    /// in one second, where it agrees with the job's `creationTimestamp`.
    pub const SUBMITTED: &str = "caldera.dev/submitted";
    /// On the same objects: the user who created it, as the API server knows them. Written and kept in the same way. On
    /// a job of a HyperJob or CronJob it is who created that.
    pub const SUBMITTER: &str = "caldera.dev/submitter";
    /// On a workload, a Queue, a Cluster, a Command and ConfigMap `caldera-settings`: who last acted on it, as the API
    /// server knows them. The webhook writes it; nobody can write another's name there.
    pub const ACTED_BY: &str = "caldera.dev/acted-by";
    /// Beside [`ACTED_BY`]: what they did, and when (JSON). `caldera history --actions` tells all that was done.
    pub const ACTION: &str = "caldera.dev/action";
    /// On a Namespace (label): `enabled` puts its Deployments, StatefulSets, Jobs and Pods into scope.
    pub const NAMESPACE_OPT_IN: &str = "caldera.dev/queueing";
    /// On a Namespace (annotation): the queue of its Volcano Jobs that name none, instead of `default`.
    pub const NAMESPACE_DEFAULT_QUEUE: &str = "caldera.dev/default-queue";
    /// The value of [`NAMESPACE_OPT_IN`] that puts them into scope.
    pub const NAMESPACE_OPT_IN_VALUE: &str = "enabled";
    /// On a job: how its pods find each other when it is split over clusters. Absent: a job whose plugins number its
    /// pods stays in one cluster.
    pub const RENDEZVOUS: &str = "caldera.dev/rendezvous";
    /// A value of [`RENDEZVOUS`]: multi-cluster Services, with ranks and hosts put into each cluster's copy.
    pub const RENDEZVOUS_CLUSTERSET: &str = "clusterset";
    /// A value of [`RENDEZVOUS`], and what any other counts as: its pods need not find each other, or do so by
    /// themselves.
    pub const RENDEZVOUS_NONE: &str = "none";
    /// On a job with plugin `ssh`: the Secret of its namespace with the files that the plugin would make. Where the job
    /// is split its pods mount it, and no copy carries keys.
    pub const SSH_SECRET: &str = "caldera.dev/ssh-secret";
    /// On a pod template whose pods claim devices: what each ResourceClaimTemplate that they name asks for (JSON, by
    /// its name). The webhook writes it, and it is what is charged and sent to members.
    pub const DEVICE_CLAIMS: &str = "caldera.dev/device-claims";
    /// On a PropagationPolicy or ClusterPropagationPolicy, or on a ResourceBinding, where it comes first: how clusters
    /// are ranked (`binpack=2,cheapest=1`; see [ranking](../parity.md#beyond-karmada-ranking-clusters)).
    pub const SCORE_WEIGHTS: &str = "caldera.dev/score-weights";
    /// On a Volcano Job: where its data is (`cluster=member1:200Gi,region=eu|region=us:5Ti`; see [how it is
    /// written](../tasks/data.md#say-it-on-the-job)).
    pub const DATA: &str = "caldera.dev/data";
    /// On a DataSourceClaim: `preferred` puts clusters with the data before others, and its workload waits for nothing.
    /// Absent, or with any other value, its workload goes only where the data is.
    pub const DATA_LOCALITY: &str = "caldera.dev/data-locality";
    /// The value of [`DATA_LOCALITY`] by which a claim is a preference.
    pub const DATA_PREFERRED: &str = "preferred";
    /// The value of [`DATA_LOCALITY`] that says what counts without it.
    pub const DATA_REQUIRED: &str = "required";
    /// On a PodGroup of Caldera (label): the kind of its workload.
    pub const WORKLOAD_KIND: &str = "caldera.dev/workload-kind";
    /// On a PodGroup of Caldera (label): the name of its workload.
    pub const WORKLOAD_NAME: &str = "caldera.dev/workload-name";
    /// On a PodGroup of Caldera: the clusters that its workload is placed in, for `kubectl get podgroups`.
    pub const PLACED_CLUSTERS: &str = "caldera.dev/placed-clusters";
    /// On a pod in a member: the TrainJob that it is of. The webhook has the copy's runtime set it.
    pub const TRAIN_JOB: &str = "caldera.dev/train-job";
    /// On a Cluster: where its accurate estimator is (`HOST:PORT`), instead of where Karmada would look for it.
    pub const ESTIMATOR: &str = "caldera.dev/estimator";
    /// On Secret `caldera-webhook-authority`, with any value: the webhooks that share this authority replace it, while
    /// callers trust both; they take the annotation off.
    pub const ROTATE: &str = "caldera.dev/rotate";
    /// On that Secret: since when the webhook configurations trust all authorities in it. Only the webhook writes it.
    pub const TRUSTED_SINCE: &str = "caldera.dev/trusted-since";
    /// Field manager of the members' collectors.
    pub const MANAGER_INVENTORY: &str = "caldera-inventory";
}

/// Volcano's names.
pub mod volcano {
    /// Queue of a workload (label or annotation).
    pub const QUEUE: &str = "volcano.sh/queue-name";
    /// Older annotation for the queue of a workload.
    pub const QUEUE_OLD: &str = "scheduling.volcano.sh/queue-name";
    /// Pod label and annotation: its job.
    pub const JOB_NAME: &str = "volcano.sh/job-name";
    /// Pod label and annotation: its job's namespace.
    pub const JOB_NAMESPACE: &str = "volcano.sh/job-namespace";
    /// Pod label and annotation: its task.
    pub const TASK_SPEC: &str = "volcano.sh/task-spec";
    /// On a plain Pod: its group, of which as many start together as [`GROUP_MIN_MEMBER`] says. Another workload whose
    /// pods name one is not admitted.
    pub const GROUP_NAME: &str = "scheduling.k8s.io/group-name";
    /// The same, as Volcano reads it too of pods that share cards.
    pub const GROUP_NAME_OF_CARDS: &str = "scheduling.volcano.sh/group-name";
    /// On a workload or its pods: how many of them must start together; on a plain Pod, how many of its group, 500 at
    /// most.
    pub const GROUP_MIN_MEMBER: &str = "scheduling.volcano.sh/group-min-member";
    /// On a workload or its pods: how long it may wait, as Go writes durations.
    pub const SLA_WAITING_TIME: &str = "volcano.sh/sla-waiting-time";
    /// On a workload or its pods (annotation or label): whether it may be evicted for others.
    pub const PREEMPTABLE: &str = "volcano.sh/preemptable";
    /// On a pod template: its QoS level beside the services of a node, `LC`, `HLS`, `LS` or `BE`.
    pub const QOS_LEVEL: &str = "volcano.sh/qos-level";
    /// On a Volcano Job: groups of tasks that want to be together.
    pub const TASK_AFFINITY: &str = "volcano.sh/task-topology-affinity";
    /// On a Volcano Job: groups of tasks that want to be apart.
    pub const TASK_ANTI_AFFINITY: &str = "volcano.sh/task-topology-anti-affinity";
    /// On a Volcano Job: the tasks that find their place first.
    pub const TASK_ORDER: &str = "volcano.sh/task-topology-task-order";
    /// On a HyperNode (label): which discoverer wrote it. Volcano's own touch only what says the name of one of theirs.
    pub const NETWORK_TOPOLOGY_SOURCE: &str = "volcano.sh/network-topology-source";
    /// On a Queue: the most cards of each model, in the whole fleet, as `{"NVIDIA-A100-SXM4-80GB": 8}`.
    pub const CARD_QUOTA: &str = "volcano.sh/card.quota";
    /// On a pod template: the card models that the job may use, the best first, with bars between them. It is admitted
    /// on the first that has quota and room, and its pods are held to that.
    pub const CARD_NAME: &str = "volcano.sh/card.name";
    /// On a Queue: `true` if it was closed because its parent was, so that it opens with it.
    pub const CLOSED_BY_PARENT: &str = "volcano.sh/closed-by-parent";
    /// On a node of a member: the group of nodes that it is in, which `spec.affinity` of Queues names.
    pub const NODE_GROUP: &str = "volcano.sh/nodegroup-name";
    /// On a job of a CronJob (annotation): when its run was due.
    pub const CRON_SCHEDULED: &str = "volcano.sh/cronjob-scheduled-timestamp";
    /// On a job and its policy (label): the HyperJob that made it. Who owns it says its owner reference.
    pub const HYPER_JOB_NAME: &str = "volcano.sh/hyperjob-name";
    /// On a job and its policy (label): the replicated job of its HyperJob.
    pub const REPLICATED_JOB_NAME: &str = "volcano.sh/replicatedjob-name";
    /// On a job of a HyperJob (label): which template it was last made like.
    pub const TEMPLATE_HASH: &str = "volcano.sh/vcjob-template-spec-hash";
    /// On a policy of a HyperJob (label): what it was last made like.
    pub const POLICY_HASH: &str = "volcano.sh/pp-spec-hash";
    /// Name of the queue of jobs that name none.
    pub const DEFAULT_QUEUE: &str = "default";
    /// Name of the queue above all queues.
    pub const ROOT_QUEUE: &str = "root";
    /// Name of the scheduler of members.
    pub const SCHEDULER_NAME: &str = "volcano";
}

/// Kubernetes' names.
pub mod kubernetes {
    /// On a batch Job of a CronJob (annotation): when its run was due.
    pub const BATCH_CRON_SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
}

/// Karmada's names.
pub mod karmada {
    /// On a ResourceBinding: the placement that its clusters were chosen for (JSON).
    pub const APPLIED_PLACEMENT: &str = "policy.karmada.io/applied-placement";
    /// On a Work: the namespace of its ResourceBinding.
    pub const BINDING_NAMESPACE: &str = "resourcebinding.karmada.io/namespace";
    /// On a Work: the name of its ResourceBinding.
    pub const BINDING_NAME: &str = "resourcebinding.karmada.io/name";
    /// On a binding: the namespace of the PropagationPolicy that made it.
    pub const POLICY_NAMESPACE: &str = "propagationpolicy.karmada.io/namespace";
    /// On a binding: the PropagationPolicy that made it.
    pub const POLICY_NAME: &str = "propagationpolicy.karmada.io/name";
    /// On a binding: the ClusterPropagationPolicy that made it.
    pub const CLUSTER_POLICY_NAME: &str = "clusterpropagationpolicy.karmada.io/name";
    /// Label of a binding: the PropagationPolicy that made it.
    pub const POLICY_ID: &str = "propagationpolicy.karmada.io/permanent-id";
    /// Label of a binding: the ClusterPropagationPolicy that made it.
    pub const CLUSTER_POLICY_ID: &str = "clusterpropagationpolicy.karmada.io/permanent-id";
    /// Label of a binding with the id by which Karmada finds its Works.
    pub const BINDING_ID: &str = "resourcebinding.karmada.io/permanent-id";
    /// Finalizer of a binding: Karmada deletes its Works before it goes.
    pub const BINDING_FINALIZER: &str = "karmada.io/binding-controller";
    /// Label of a binding that something other than a policy made.
    pub const BINDING_MANAGED_BY: &str = "binding.karmada.io/managed-by";
    /// Where Karmada keeps the Secrets by which it reaches members.
    pub const CLUSTER_NAMESPACE: &str = "karmada-cluster";
    /// Works of cluster `x` are in namespace `karmada-es-x`.
    pub const EXECUTION_NAMESPACE_PREFIX: &str = "karmada-es-";
    /// Label of a workload: Karmada leaves the replicas of a copy to its member.
    pub const RETAIN_REPLICAS: &str = "resourcetemplate.karmada.io/retain-replicas";
}
