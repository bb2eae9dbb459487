//! What the controller measures. What a value means is said in the constants, from which `docs/metrics.md` is made.

use caldera_runtime::{
    metric::{Counters, Histograms, Samples},
    serve::SharedRegistry,
};
use prometheus_client::metrics::{
    counter::Counter,
    histogram::{Histogram, exponential_buckets},
};

caldera_runtime::metrics! { ALL:
    RELEASED = Counter "caldera_released_bindings" [], "Bindings released";
    EVICTED = Counter "caldera_evicted_bindings" ["queue", "reason"],
        "Bindings evicted for others, whole or in part, by right; of no queue where theirs is gone";
    REQUEUED = Counter "caldera_requeued_bindings" ["queue", "reason"],
        "Bindings that went back to their line for another reason; of no queue where theirs is gone";
    FORGED = Counter "caldera_forged_records" [], "Admissions and placements that no controller made, taken away";
    FREED_TO_RELEASE = Histogram "caldera_quota_freed_to_release_seconds" [],
        "From the event that gave quota back to the release that it made possible, sent";
    DECISION = Histogram "caldera_decision_duration_seconds" [], "One decision";
    PENDING_WRITES = Gauge "caldera_controller_pending_writes" [], "Writes that are queued or in flight";
    WRITES_IN_FLIGHT = Gauge "caldera_controller_writes_in_flight" [], "Writes that were sent and are not answered yet";
    MOST_WRITES_IN_FLIGHT = Gauge "caldera_controller_most_writes_in_flight" [],
        "How many may be in flight at once, as quickly as the Karmada API answers now: 1 to 64";
    WAIT = Histogram "caldera_queue_wait_seconds" ["queue"],
        "From the making of a binding, or its last eviction, to its release";
    START = Histogram "caldera_queue_start_seconds" ["queue"],
        "From a release to the running of the gang's minimum, to a second";
    JOBS = Gauge "caldera_queue_jobs" ["queue", "state"],
        "Jobs of this very queue: waiting, inadmissible until somebody changes something, held or suspended, admitted, running";
    SETTINGS_REFUSED = Gauge "caldera_settings_refused" [], "1 while ConfigMap caldera-settings is not understood";
    PAUSED = Gauge "caldera_paused" [], "1 while an admin has paused all releases";
    STOCK_SCHEDULER = Gauge "caldera_stock_scheduler" [],
        "1 where karmada-scheduler places what is admitted, 0 where a scheduler of ours has to";
    RESERVATIONS = Gauge "caldera_queue_reservations" ["queue"], "Waiting jobs of this very queue that have a reservation";
    QUEUE_RESERVED_IDLE = Gauge "caldera_queue_reserved_idle" ["queue", "resource"],
        "Free in clusters that are reserved for jobs of this very queue, in equal parts where several jobs reserve one; \
         over time it is the idle resource-seconds that they cost";
    USED = Gauge "caldera_queue_used" ["queue", "resource"],
        "Charged to a queue and those below, in cores, bytes or pieces";
    DESERVED = Gauge "caldera_queue_deserved" ["queue", "resource"], "What a queue may take back up to";
    CAPABILITY = Gauge "caldera_queue_capability" ["queue", "resource"], "What a queue may use at most, where it says so";
    BORROWED = Gauge "caldera_queue_borrowed" ["queue", "resource"], "Used beyond what a queue deserves";
    CLUSTER_CAPACITY = Gauge "caldera_cluster_capacity" ["cluster", "resource"],
        "What usable nodes have, in cores, bytes or pieces";
    CLUSTER_ALLOCATED = Gauge "caldera_cluster_allocated" ["cluster", "resource"],
        "What pods and assumed pods hold of it; over the capacity it is GAR";
    CLUSTER_FRAGMENTATION = Gauge "caldera_cluster_fragmentation_ratio" ["cluster", "resource"],
        "Nodes that are used in part over nodes that have any, known where nodes are: GFR";
    CLUSTER_RESERVED_IDLE = Gauge "caldera_cluster_reserved_idle" ["cluster", "resource"],
        "Free in a cluster that is reserved for a job that waits; over time it is the idle resource-seconds of reservations";
    CLUSTER_USED = Gauge "caldera_cluster_used" ["cluster", "resource"],
        "What usable nodes really use of cpu and memory, in cores or bytes, where the member measures it";
    CLUSTER_USED_READ = Gauge "caldera_cluster_used_timestamp_seconds" ["cluster"],
        "When that was read, in seconds since 1970";
    STARTED_GANGS = Counter "caldera_started_gangs" ["clusters"],
        "Gangs whose minimum began to run, by how many clusters they are in: 1, 2, 3, more";
    LAST_EVENT = Gauge "caldera_watch_last_event_timestamp_seconds" ["kind"],
        "When something of a watched kind was last told, in seconds since 1970; a kind that nothing was told of has none";
    CLUSTER_READY = Gauge "caldera_cluster_ready" ["cluster"], "1 if Karmada says that the cluster is ready";
    INVENTORY_KNOWN = Gauge "caldera_cluster_inventory_known" ["cluster"],
        "1 while a member's nodes and pods are known, 0 while Karmada's summary has to do";
    INVENTORY_SEEN = Gauge "caldera_cluster_inventory_timestamp_seconds" ["cluster"],
        "When its collector last saw a member whose published inventory counts, in seconds since 1970";
}

caldera_runtime::metrics! { SHADOW:
    SHADOW_RELEASED = Counter "caldera_shadow_released_bindings" [],
        "Bindings that would have been released, in shadow mode";
    SHADOW_EVICTED = Counter "caldera_shadow_evicted_bindings" ["reason"],
        "Bindings that would have been evicted for others, in shadow mode, by right";
    SHADOW_COMPARED = Counter "caldera_shadow_compared_bindings" ["verdict"],
        "Bindings that the other scheduler placed, in shadow mode: same clusters, elsewhere, or would-wait";
}

/// What a controller in shadow mode counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShadowMetrics {
    pub(crate) released: Counter,
    pub(crate) evicted: Counters,
    pub(crate) compared: Counters,
}

impl ShadowMetrics {
    pub(crate) fn register_in(registry: &SharedRegistry) -> Self {
        let metrics = Self::default();
        SHADOW_RELEASED.register(registry, metrics.released.clone());
        SHADOW_EVICTED.register(registry, metrics.evicted.clone());
        SHADOW_COMPARED.register(registry, metrics.compared.clone());
        metrics
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) released: Counter,
    pub(crate) evicted: Counters,
    pub(crate) requeued: Counters,
    pub(crate) forged: Counter,
    pub(crate) freed_to_release: Histogram,
    pub(crate) decision: Histogram,
    pub(crate) wait: Histograms,
    pub(crate) start: Histograms,
    pub(crate) started_gangs: Counters,
    pub(crate) samples: Samples,
}

impl Metrics {
    pub(crate) fn register_in(registry: &SharedRegistry) -> Self {
        let buckets = || exponential_buckets(0.000_05, 2.0, 18);
        let waits = || {
            let (minute, hour) = (60.0, 3_600.0);
            let day = 24.0 * hour;
            Histogram::new([
                1.0,
                5.0,
                15.0,
                minute,
                5.0 * minute,
                15.0 * minute,
                hour,
                4.0 * hour,
                12.0 * hour,
                day,
                3.0 * day,
                7.0 * day,
            ])
        };
        let starts = || Histogram::new([1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0]);
        let metrics = Self {
            released: Counter::default(),
            evicted: Counters::default(),
            requeued: Counters::default(),
            forged: Counter::default(),
            freed_to_release: Histogram::new(buckets()),
            decision: Histogram::new(buckets()),
            wait: Histograms::new_with_constructor(waits as fn() -> Histogram),
            start: Histograms::new_with_constructor(starts as fn() -> Histogram),
            started_gangs: Counters::default(),
            samples: Samples::default(),
        };
        RELEASED.register(registry, metrics.released.clone());
        EVICTED.register(registry, metrics.evicted.clone());
        REQUEUED.register(registry, metrics.requeued.clone());
        FORGED.register(registry, metrics.forged.clone());
        FREED_TO_RELEASE.register(registry, metrics.freed_to_release.clone());
        DECISION.register(registry, metrics.decision.clone());
        WAIT.register(registry, metrics.wait.clone());
        START.register(registry, metrics.start.clone());
        STARTED_GANGS.register(registry, metrics.started_gangs.clone());
        metrics.samples.register(registry);
        metrics
    }
}
