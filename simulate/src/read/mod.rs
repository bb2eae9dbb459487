//! From files' text to a world: queues as Volcano writes them, fleets and traces in our own formats and in those of the
//! Alibaba cluster trace program. Everything wrong is told in a sentence that says where.

mod dlrm;
mod fleet;
mod openb;
mod queues;
mod table;
mod trace;

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    str::FromStr,
    sync::Arc,
};

use caldera_core::resources::ResourceName;

pub use self::{fleet::read_fleet, queues::read_queues, trace::read_trace};
use crate::{
    random::Random,
    time::Millis,
    world::{Job, JobTerms, MemberCluster, Shapes},
};

/// Resource of a GPU whose model does not matter.
pub const GPU: &str = "nvidia.com/gpu";
/// Label that says which model a node's GPUs are (GPU feature discovery's).
pub const GPU_MODEL: &str = "nvidia.com/gpu.product";

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// With one of its lines (the first is 1).
    #[error("line {line}: {what}")]
    Line {
        /// Which.
        line: u64,
        /// What.
        what: String,
    },
    /// With the whole.
    #[error("{0}")]
    File(String),
}

/// How a trace is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TraceFormat {
    /// Ours: a row for each task of each job.
    #[default]
    Caldera,
    /// `openb_pods.csv`: a pod a row.
    Openb,
    /// `dlrm_instances.csv`: an instance a row; instances of one service that were created together are a gang.
    Dlrm,
}

/// What users say about run times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Estimates {
    /// What the trace says, which for the public traces is nothing.
    #[default]
    AsGiven,
    /// The truth.
    Exact,
    /// One to five times the truth, by the seed: users ask for too much (Tsafrir et al., TPDS'07).
    Rough,
}

macro_rules! words {
    ($name:ident, $what:literal: $($variant:ident = $word:literal),+) => {
        impl $name {
            /// All, as they are written.
            pub const WORDS: &[&str] = &[$($word),+];

            /// As it is written.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(format!("{text:?} is no {}; there are {}", $what, Self::WORDS.join(", "))),
                }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
words!(TraceFormat, "trace format": Caldera = "caldera", Openb = "openb", Dlrm = "dlrm");
words!(Estimates, "way to estimate": AsGiven = "as-given", Exact = "exact", Rough = "rough");

/// How to read a trace.
#[derive(Debug, Clone)]
pub struct TraceOptions {
    /// How it is written.
    pub format: TraceFormat,
    /// Arrivals come this many thousandths as fast: 2,000 halves the time between them. Run times stay.
    pub speed_milli: u64,
    /// What users say about run times.
    pub estimates: Estimates,
    /// For [`Estimates::Rough`].
    pub seed: u64,
    /// Of the DLRM trace: instances of one service created within this time are one gang.
    pub gather: Millis,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            format: TraceFormat::default(),
            speed_milli: 1_000,
            estimates: Estimates::default(),
            seed: 1,
            gather: Millis::from_secs(3_600),
        }
    }
}

/// A trace's jobs, and what of it was left out or taken for something else.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// Jobs.
    pub jobs: Vec<Job>,
    /// Whose they are, by their names, where the trace says so.
    pub terms: HashMap<Arc<str>, JobTerms>,
    /// Sentences for the reader of a report.
    pub notes: Vec<String>,
}

/// The names of what the fleet's nodes have. The public traces ask for more than the public fleets tell of; what no
/// node has is not asked for.
#[must_use]
pub fn list_offered_resources(clusters: &[MemberCluster]) -> BTreeSet<ResourceName> {
    let nodes = clusters.iter().flat_map(|cluster| &cluster.nodes);
    nodes.flat_map(|node| node.allocatable.iter().map(|(name, _)| name.clone())).collect()
}

/// What the readers of all formats share.
struct Reader<'a> {
    shapes: &'a mut Shapes,
    offered: &'a BTreeSet<ResourceName>,
    dropped: BTreeSet<ResourceName>,
    notes: Vec<String>,
}

impl Reader<'_> {
    /// The request without what no node has.
    fn offered_only(&mut self, request: caldera_core::resources::Resources) -> caldera_core::resources::Resources {
        let mut kept = caldera_core::resources::Resources::new();
        for (name, amount) in request.iter() {
            if self.offered.contains(name) {
                kept.set(name.clone(), amount);
            } else {
                self.dropped.insert(name.clone());
            }
        }
        kept
    }

    fn finish(mut self, mut jobs: Vec<Job>, options: &TraceOptions) -> Trace {
        if !self.dropped.is_empty() {
            let names: Vec<&str> = self.dropped.iter().map(ResourceName::as_str).collect();
            self.notes.push(format!("requests for {} were left out: no node says what it has of it", names.join(", ")));
        }
        for job in &mut jobs {
            let arrival = u128::from(job.arrival.0) * 1_000 / u128::from(options.speed_milli.max(1));
            job.arrival = Millis(u64::try_from(arrival).unwrap_or(u64::MAX));
        }
        options.estimates.apply(&mut jobs, options.seed);
        Trace { jobs, terms: HashMap::new(), notes: self.notes }
    }
}

impl Estimates {
    /// Lets users say how long their jobs run.
    pub fn apply(self, jobs: &mut [Job], seed: u64) {
        let mut random = Random::new(seed);
        for job in jobs {
            job.estimate = match self {
                Self::AsGiven => job.estimate,
                Self::Exact => Some(job.run),
                Self::Rough => {
                    let percent = 100 + random.below(401);
                    Some(Millis(u64::try_from(u128::from(job.run.0) * u128::from(percent) / 100).unwrap_or(u64::MAX)))
                }
            };
        }
    }
}
