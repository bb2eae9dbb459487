//! The clients of all members' estimators, and a cache of what was asked and answered.
//!
//! A question is about one gang in one member. It takes into account the pods of others that are assumed in that
//! member. An answer counts for [`ANSWER_LIFETIME`], and not at all once other pods are assumed there. An estimator
//! that does not answer is not asked again for [`SILENT_ESTIMATOR_BACKOFF`]: bindings wait for it once, and are placed
//! by the cluster's resource summary until then.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use caldera_core::{
    gang::Gang,
    inventory::{Amounts, Capacity, NodeRef, NodeShape, Source},
};
use caldera_crds::{
    estimator::{PORT, SERVICE_PREFIX, convert::write_components, messages::AssumedWorkload},
    karmada::cluster::{Cluster, SyncMode},
    names::caldera::ESTIMATOR,
};
use tokio::{sync::mpsc, time::Instant};

use super::client::{EstimatorClient, EstimatorError, Trust};

/// How long what was said counts.
const ANSWER_LIFETIME: Duration = Duration::from_secs(5);
/// How long an estimator that did not answer is left alone.
const SILENT_ESTIMATOR_BACKOFF: Duration = Duration::from_secs(30);

/// Where estimators are, in Karmada's terms (`--scheduler-estimator-*`). A Cluster's annotation
/// `caldera.dev/estimator: HOST:PORT` goes before all of it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether there is one for each member, where the following says.
    pub enabled: bool,
    /// Names of their Services: this, a dash, the member.
    pub prefix: String,
    /// Namespace of their Services.
    pub namespace: String,
    /// Where they listen.
    pub port: u16,
    /// Also those of Pull members.
    pub pull: bool,
    /// What to trust, and what to show.
    pub trust: Trust,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: false,
            prefix: SERVICE_PREFIX.to_owned(),
            namespace: "karmada-system".to_owned(),
            port: PORT,
            pull: true,
            trust: Trust::default(),
        }
    }
}

impl Settings {
    /// Where a member's estimator is, if it has one.
    #[must_use]
    pub fn estimator_address(&self, cluster: &Cluster) -> Option<String> {
        let named = cluster.metadata.annotations.as_ref().and_then(|all| all.get(ESTIMATOR));
        if let Some(address) = named {
            return Some(address.clone()).filter(|address| !address.is_empty());
        }
        let is_pull = cluster.spec.sync_mode == Some(SyncMode::Pull);
        let name = cluster.metadata.name.as_deref()?;
        let Self { prefix, namespace, port, .. } = self;
        (self.enabled && (self.pull || !is_pull)).then(|| format!("{prefix}-{name}.{namespace}.svc:{port}"))
    }
}

/// Pods of another workload that are assumed in the member and not on a node yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assumed {
    /// Namespace of the workload.
    pub namespace: String,
    /// Its gang.
    pub gang: Arc<Gang>,
    /// Pods of each task.
    pub pods: Vec<u32>,
}

/// What one gang wants to know of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Who asks.
    pub key: String,
    /// Of which member.
    pub cluster: String,
    /// Namespace of the workload.
    pub namespace: String,
    /// Its gang.
    pub gang: Arc<Gang>,
    /// What is assumed there for others.
    pub assumed: Vec<Assumed>,
}

/// What is known of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EstimateState {
    /// It was asked; the answer will come.
    Waiting,
    /// So much of the gang fits.
    Fits(Capacity),
    /// The estimator does not say, and why.
    Silent(String),
}

/// An answer that has come; give it to [`EstimatorPool::store_estimate`].
#[derive(Debug)]
pub struct Reply {
    question: Question,
    result: Result<Capacity, EstimatorError>,
}

struct Asked {
    question: Question,
    /// What was said, and when; `None` while it is being asked.
    said: Option<(Capacity, Instant)>,
}

/// The clients by member, and what was asked of them.
pub struct EstimatorPool {
    settings: Settings,
    clients: BTreeMap<String, (String, EstimatorClient)>,
    asked: BTreeMap<(String, String), Asked>,
    silent: BTreeMap<String, (String, Instant)>,
    answers: mpsc::UnboundedSender<Reply>,
    /// Questions whose answer was not taken in: the channel has no bound, and this is what may be in it.
    pending: usize,
}

impl EstimatorPool {
    /// Knows of no estimator yet; answers arrive at the returned receiver.
    #[must_use]
    pub fn new(settings: Settings) -> (Self, mpsc::UnboundedReceiver<Reply>) {
        let (answers, arriving) = mpsc::unbounded_channel();
        let (clients, asked, silent) = Default::default();
        (Self { settings, clients, asked, silent, answers, pending: 0 }, arriving)
    }

    /// Takes in a Cluster object.
    pub fn observe_cluster(&mut self, cluster: &Cluster) {
        let Some(name) = cluster.metadata.name.clone() else { return };
        let address = self.settings.estimator_address(cluster);
        if self.clients.get(&name).map(|(known, _)| known) == address.as_ref() {
            return;
        }
        self.forget_cluster(&name);
        let Some(address) = address else { return };
        match EstimatorClient::new(&address, &self.settings.trust) {
            Ok(estimator) => drop(self.clients.insert(name, (address, estimator))),
            Err(error) => tracing::warn!(cluster = name, %error, "the member's estimator can not be used"),
        }
    }

    /// A cluster is gone.
    pub fn forget_cluster(&mut self, name: &str) {
        self.clients.remove(name);
        self.silent.remove(name);
        self.asked.retain(|(_, cluster), _| cluster != name);
    }

    /// Somebody asks no more.
    pub fn forget_binding(&mut self, key: &str) {
        self.asked.retain(|(asking, _), _| asking != key);
    }

    /// Whether no member has an estimator.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Questions whose answer was not taken in yet.
    #[must_use]
    pub const fn count_pending(&self) -> usize {
        self.pending
    }

    /// Whether a member has an estimator.
    #[must_use]
    pub fn has_estimator(&self, cluster: &str) -> bool {
        self.clients.contains_key(cluster)
    }

    /// What is known of a question; it is asked if nothing is.
    pub fn get_or_ask_estimate(&mut self, question: Question) -> EstimateState {
        let now = Instant::now();
        let cluster = &question.cluster;
        if let Some((why, _)) = self.silent.get(cluster).filter(|(_, until)| *until > now) {
            return EstimateState::Silent(why.clone());
        }
        let place = (question.key.clone(), cluster.clone());
        if let Some(asked) = self.asked.get(&place).filter(|asked| asked.question == question) {
            match &asked.said {
                None => return EstimateState::Waiting,
                Some((capacity, at)) if *at + ANSWER_LIFETIME > now => return EstimateState::Fits(capacity.clone()),
                Some(_) => {}
            }
        }
        let Some((_, estimator)) = self.clients.get(cluster) else {
            return EstimateState::Silent("it has no estimator".to_owned());
        };
        let (estimator, answers) = (estimator.clone(), self.answers.clone());
        self.asked.insert(place, Asked { question: question.clone(), said: None });
        self.pending += 1;
        tokio::spawn(async move {
            let result = request_capacity(&estimator, &question).await;
            let _ = answers.send(Reply { question, result });
        });
        EstimateState::Waiting
    }

    /// Takes in an answer; who asked.
    pub fn store_estimate(&mut self, reply: Reply) -> String {
        let Reply { question, result } = reply;
        self.pending = self.pending.saturating_sub(1);
        let now = Instant::now();
        match result {
            Ok(capacity) => {
                self.silent.remove(&question.cluster);
                let place = (question.key.clone(), question.cluster.clone());
                if let Some(asked) = self.asked.get_mut(&place).filter(|asked| asked.question == question) {
                    asked.said = Some((capacity, now));
                }
            }
            Err(error) => {
                tracing::warn!(cluster = question.cluster, %error, "left alone for {} s", SILENT_ESTIMATOR_BACKOFF.as_secs());
                self.asked.retain(|(_, cluster), _| *cluster != question.cluster);
                self.silent.insert(question.cluster, (error.to_string(), now + SILENT_ESTIMATOR_BACKOFF));
            }
        }
        question.key
    }
}

/// How much of a gang fits: pods of its only task, or whole sets of all of its tasks, and where not even one fits, of
/// what it needs at least. Sets are a lower bound: that other mixtures would fit is not known.
async fn request_capacity(estimator: &EstimatorClient, question: &Question) -> Result<Capacity, EstimatorError> {
    let Question { cluster, namespace, gang, assumed, .. } = question;
    let workload = |held: &Assumed| AssumedWorkload {
        namespace: held.namespace.clone(),
        components: write_components(&held.gang, &held.pods),
    };
    let assumed: Vec<AssumedWorkload> = assumed.iter().map(workload).collect();
    if let [task] = gang.tasks.as_slice() {
        let pods = estimator.request_max_available_replicas(cluster, namespace, task, assumed).await?;
        return Ok(build_capacity([(total_request(gang, 0, u64::from(pods)), 1)]));
    }
    let whole: Vec<u32> = gang.tasks.iter().map(|task| task.replicas).collect();
    let least: Vec<u32> = gang.tasks.iter().map(|task| task.min_available).collect();
    for pods in [&whole, &least] {
        let sets = estimator.request_max_available_sets(cluster, namespace, (gang, pods), assumed.clone()).await?;
        if sets > 0 {
            // Pods of one task may not be exchanged for pods of another: each has its own place.
            let places = |(task, pods): (usize, &u32)| {
                (total_request(gang, task, 1), sets.saturating_mul(*pods).min(MOST_PLACES))
            };
            return Ok(build_capacity(pods.iter().enumerate().map(places)));
        }
        if whole == least {
            break;
        }
    }
    Ok(build_capacity([]))
}

/// Places of a task that are told at most; nobody places more at once in one member.
const MOST_PLACES: u32 = 10_000;

fn total_request(gang: &Gang, task: usize, times: u64) -> Amounts {
    Amounts::from(&gang.tasks[task].request.times(times))
}

/// So many nodes with so much free each, of which nothing else is known.
fn build_capacity(nodes: impl IntoIterator<Item = (Amounts, u32)>) -> Capacity {
    let shape = |(free, count): (Amounts, u32)| NodeShape {
        allocatable: Arc::new(free.clone()),
        free: Arc::new(free),
        nodes: vec![NodeRef::from(""); count as usize],
        ..NodeShape::default()
    };
    let shapes = nodes.into_iter().filter(|(free, count)| *count > 0 && !free.is_empty()).map(shape);
    Capacity::new(shapes.collect(), Source::Estimator)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(value: serde_json::Value) -> Cluster {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_estimator_is_where_karmada_looks_for_it_or_where_its_cluster_says() {
        let push = cluster(json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Push"}}));
        let pull = cluster(json!({"metadata": {"name": "m2"}, "spec": {"syncMode": "Pull"}}));
        let own = cluster(json!({"metadata": {"name": "m3", "annotations": {ESTIMATOR: "10.0.0.1:1"}}, "spec": {}}));
        let off = Settings::default();
        assert_eq!((off.estimator_address(&push), off.estimator_address(&own).as_deref()), (None, Some("10.0.0.1:1")));
        let on = Settings { enabled: true, pull: false, ..Settings::default() };
        assert_eq!(on.estimator_address(&push).unwrap(), "karmada-scheduler-estimator-m1.karmada-system.svc:10352");
        assert_eq!(on.estimator_address(&pull), None);
    }

    #[tokio::test]
    async fn one_that_does_not_answer_is_waited_for_once() {
        let (mut pool, mut answers) = EstimatorPool::new(Settings::default());
        let annotations = json!({ESTIMATOR: "127.0.0.1:1"});
        pool.observe_cluster(&cluster(json!({"metadata": {"name": "m1", "annotations": annotations}, "spec": {}})));
        assert!(pool.has_estimator("m1"));
        let gang = Arc::new(caldera_crds::estimator::convert::build_all_or_nothing_gang(Vec::new()));
        let question = |key: &str| Question {
            key: key.to_owned(),
            cluster: "m1".to_owned(),
            namespace: "ns".to_owned(),
            gang: Arc::clone(&gang),
            assumed: Vec::new(),
        };
        assert_eq!(pool.get_or_ask_estimate(question("a")), EstimateState::Waiting);
        assert_eq!(pool.get_or_ask_estimate(question("a")), EstimateState::Waiting);
        assert_eq!(pool.count_pending(), 1);
        // Its answer comes all the same.
        pool.forget_binding("a");
        let reply = answers.recv().await.unwrap();
        assert_eq!((pool.count_pending(), pool.store_estimate(reply).as_str()), (1, "a"));
        assert_eq!(pool.count_pending(), 0);
        for key in ["a", "b"] {
            assert!(
                matches!(pool.get_or_ask_estimate(question(key)), EstimateState::Silent(why) if why.contains("127.0.0.1:1"))
            );
        }
        assert!(answers.try_recv().is_err(), "it was asked once");
    }
}
