//! Metrics: each is declared once as a constant [`Metric`] (name, kind, labels, meaning), registered from it, and
//! described from it in `docs/metrics.md`, the alert rules and the dashboard. `find_undeclared` holds a scrape against
//! the declarations in tests.
//!
//! Two kinds of series: those of the client library (counters, histograms), and [`Samples`], gauges that a component
//! replaces all at once, so that what is gone from its state is gone from the scrape. Every component has
//! [`BUILD_INFO`] and [`LEADER`].
//!
//! Rule (<https://prometheus.io/docs/practices/naming/>): base units, `_total`, `_seconds`, `_ratio`; OpenMetrics 1.0.
//! A label's values come from what admins create or from this code, never from a job's name.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
pub use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::Counter, family::Family, gauge::Gauge},
    registry,
};

/// Metrics that several tasks share.
pub type SharedRegistry = Arc<Mutex<registry::Registry>>;

/// What a metric's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Is now.
    Gauge,
    /// Observations by size.
    Histogram,
}

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Name of the family; a counter's series ends in `_total`.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it means, in a sentence without a full stop.
    pub help: &'static str,
}

/// Declares metrics as constants, and the list of all of them by the first name.
#[macro_export]
macro_rules! metrics {
    ($all:ident: $($constant:ident = $kind:ident $name:literal $labels:expr, $help:literal;)*) => {
        $(#[doc = $help] pub const $constant: $crate::metric::Metric = $crate::metric::Metric {
            name: $name, kind: $crate::metric::Kind::$kind, labels: &$labels, help: $help
        };)*
        /// All of these.
        pub const $all: [$crate::metric::Metric; [$($name),*].len()] = [$($constant),*];
    };
}

/// Labels of a series.
pub type Labels = Vec<(&'static str, String)>;
/// Counters by labels.
pub type Counters = Family<Labels, Counter>;
/// Histograms by labels.
pub type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Runs now, by version and component.
pub const BUILD_INFO: Metric = Metric {
    name: "caldera_build_info",
    kind: Kind::Gauge,
    labels: &["component", "version"],
    help: "1 for the version that runs",
};
/// Whether this replica is the active one.
pub const LEADER: Metric = Metric {
    name: "caldera_leader",
    kind: Kind::Gauge,
    labels: &["lease"],
    help: "1 while this replica holds the lease, 0 while it waits for it",
};

/// What a collector of traces did not get.
pub const DROPPED_SPANS: Metric = Metric {
    name: "caldera_otlp_dropped_spans",
    kind: Kind::Counter,
    labels: &[],
    help: "Spans that the collector of traces did not take, or not in time; 0 without one",
};

/// Of every component.
pub const COMMON: [Metric; 3] = [BUILD_INFO, LEADER, DROPPED_SPANS];

impl Metric {
    /// The series that a query names; `_bucket`, `_sum` and `_count` follow for a histogram.
    #[must_use]
    pub fn series_name(&self) -> String {
        if self.kind == Kind::Counter { format!("{}_total", self.name) } else { self.name.to_owned() }
    }

    /// Shows `metric` under this name.
    pub fn register(&self, registry: &SharedRegistry, metric: impl registry::Metric) {
        registry.lock().unwrap_or_else(PoisonError::into_inner).register(self.name, self.help, metric);
    }

    /// The labels with these values, in their order.
    #[must_use]
    pub fn build_labels<const N: usize>(&self, values: [&str; N]) -> Labels {
        debug_assert_eq!(self.labels.len(), N, "labels of {}", self.name);
        self.labels.iter().zip(values).map(|(name, value)| (*name, value.to_owned())).collect()
    }
}

/// Says which version of these components runs.
pub fn register_builds(registry: &SharedRegistry, components: &[&str]) {
    let builds = Family::<Labels, Gauge>::default();
    for component in components {
        builds.get_or_create(&BUILD_INFO.build_labels([component, env!("CARGO_PKG_VERSION")])).set(1);
    }
    BUILD_INFO.register(registry, builds);
}

/// Whether this replica holds a lease, of all leases that its process wants.
#[derive(Debug, Clone)]
pub struct Leaders {
    family: Family<Labels, Gauge>,
    /// By lease.
    gauges: Arc<Mutex<BTreeMap<String, Gauge>>>,
}

impl Leaders {
    /// Shows them: the gauges of [`LEADER`].
    #[must_use]
    pub fn register(registry: &SharedRegistry) -> Self {
        let family = Family::default();
        LEADER.register(registry, family.clone());
        Self { family, gauges: Arc::default() }
    }

    /// The gauge of one lease, which is not held yet.
    #[must_use]
    pub fn add_lease(&self, lease: &str) -> Gauge {
        let gauge = self.family.get_or_create_owned(&LEADER.build_labels([lease]));
        gauge.set(0);
        self.gauges.lock().unwrap_or_else(PoisonError::into_inner).insert(lease.to_owned(), gauge.clone());
        gauge
    }

    /// The leases, each with whether it is held.
    #[must_use]
    pub fn list_leases(&self) -> Vec<(String, bool)> {
        let gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.iter().map(|(lease, gauge)| (lease.clone(), gauge.get() > 0)).collect()
    }
}

/// When something of each watched kind was last told. Each component has a metric of its own for it, as several may
/// show theirs in one process. Clones share it.
#[derive(Debug, Clone)]
pub struct LastEvents {
    metric: &'static Metric,
    times: Family<Labels, Gauge>,
}

impl LastEvents {
    /// Shows them; a kind that nothing was told of has none.
    #[must_use]
    pub fn register(metric: &'static Metric, registry: &SharedRegistry) -> Self {
        let times = Family::default();
        metric.register(registry, times.clone());
        Self { metric, times }
    }

    /// Something of a kind is told.
    pub fn observe_event(&self, kind: &str, now: Timestamp) {
        self.times.get_or_create(&self.metric.build_labels([kind])).set(now.as_second());
    }
}

/// One value, as it was when it was last worked out.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Of what.
    pub metric: &'static Metric,
    /// Which.
    pub labels: Labels,
    /// How much.
    pub value: f64,
}

impl Sample {
    /// A value of a metric.
    #[must_use]
    pub fn new<const N: usize>(metric: &'static Metric, labels: [&str; N], value: f64) -> Self {
        Self { metric, labels: metric.build_labels(labels), value }
    }
}

/// Gauges that are worked out from a state all at once, so that what is gone from it is gone here. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Samples(Arc<Mutex<Vec<Sample>>>);

impl Samples {
    /// Shows them.
    pub fn register(&self, registry: &SharedRegistry) {
        let mut registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register_collector(Box::new(self.clone()));
    }

    /// From now on it is these.
    pub fn replace(&self, mut samples: Vec<Sample>) {
        samples.sort_by(|a, b| a.metric.name.cmp(b.metric.name).then_with(|| a.labels.cmp(&b.labels)));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = samples;
    }
}

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for family in samples.chunk_by(|a, b| a.metric.name == b.metric.name) {
            let Some(first) = family.first() else { continue };
            let help = format!("{}.", first.metric.help);
            let mut encoder = encoder.encode_descriptor(first.metric.name, &help, None, MetricType::Gauge)?;
            for sample in family {
                let value = Gauge::<f64, std::sync::atomic::AtomicU64>::default();
                value.set(sample.value);
                value.encode(encoder.encode_family(&sample.labels)?)?;
            }
        }
        Ok(())
    }
}

/// What a registry shows.
///
/// # Errors
/// If a metric can not be written.
pub fn encode(registry: &SharedRegistry) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// What is shown and is not declared so, or is declared and not shown: for tests of what is declared.
#[must_use]
pub fn find_undeclared(text: &str, declared: &[Metric]) -> Vec<String> {
    let kind_of = |kind: Kind| match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let shown: Vec<(&str, &str)> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let mut wrong: Vec<String> = shown
        .iter()
        .filter(|(name, kind)| !declared.iter().any(|metric| metric.name == *name && kind_of(metric.kind) == *kind))
        .map(|(name, kind)| format!("{kind} {name} is shown and not declared"))
        .collect();
    for metric in declared {
        if !shown.iter().any(|(name, _)| *name == metric.name) {
            wrong.push(format!("{} is declared and not shown", metric.name));
        }
        let of_it = |line: &&str| {
            let rest = line.strip_prefix(metric.name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ', '_']) && !line.starts_with('#'))
        };
        for line in text.lines().filter(of_it) {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let suffixes = ["", "_total", "_bucket", "_sum", "_count"];
            if !suffixes.iter().any(|suffix| name == format!("{}{suffix}", metric.name)) {
                continue;
            }
            let labels =
                line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(labels, _)| labels);
            let names: Vec<&str> = labels
                .split("\",")
                .filter_map(|pair| pair.split_once('=').map(|(name, _)| name))
                .filter(|name| *name != "le")
                .collect();
            if names != metric.labels {
                wrong.push(format!("{name} has labels {names:?}, and not {:?}", metric.labels));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_component_shows_is_what_is_declared() {
        let registry = SharedRegistry::default();
        register_builds(&registry, &["test"]);
        Leaders::register(&registry).add_lease("lease").set(1);
        crate::otlp::register_dropped(&registry);
        let text = encode(&registry).unwrap();
        assert_eq!(find_undeclared(&text, &COMMON), [""; 0], "{text}");
        assert!(text.contains("caldera_leader{lease=\"lease\"} 1\n") && text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn samples_of_what_is_gone_are_gone() {
        const SIZE: Metric = Metric { name: "size", kind: Kind::Gauge, labels: &["a", "b"], help: "Size" };
        let (registry, samples) = (SharedRegistry::default(), Samples::default());
        samples.register(&registry);
        samples.replace(vec![Sample::new(&SIZE, ["y", "\"z"], 0.5), Sample::new(&SIZE, ["x", "z"], 2.0)]);
        let text = encode(&registry).unwrap();
        assert!(text.contains("size{a=\"x\",b=\"z\"} 2.0\nsize{a=\"y\",b=\"\\\"z\"} 0.5\n"), "{text}");
        assert_eq!(find_undeclared(&text, &[SIZE]), [""; 0]);
        samples.replace(Vec::new());
        assert!(!encode(&registry).unwrap().contains("size"));
        let wrong = Metric { labels: &["a"], ..SIZE };
        assert_eq!(find_undeclared(&text, &[wrong]).len(), 2);
        assert_eq!(find_undeclared(&text, &[]), ["gauge size is shown and not declared"]);
    }
}
