//! Asking for many: which member's estimator is where, what was asked of it, and what it said.
//!
//! A question is about one gang and takes into account what was promised to others in that member. What was said counts
//! for [`FRESH`], and not at all once those promises are others. An estimator that does not answer is left alone for
//! [`PAUSE`]: who asks waits for it once, and goes by something else until then.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use caldera_core::{
    gang::Gang,
    inventory::{Amounts, Capacity, NodeRef, Shape, Source},
};
use caldera_crds::{
    karmada::cluster::{Cluster, SyncMode},
    names::caldera::ESTIMATOR,
};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    PORT, SERVICE_PREFIX,
    ask::{AskError, Estimator},
    proto::AssumedWorkload,
    read::write_set,
    tls::Trust,
};

/// How long what was said counts.
const FRESH: Duration = Duration::from_secs(5);
/// How long an estimator that did not answer is left alone.
const PAUSE: Duration = Duration::from_secs(30);

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
    pub fn address(&self, cluster: &Cluster) -> Option<String> {
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

/// What was promised to somebody and is not on a node yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
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
    /// What others were promised there.
    pub held: Vec<Held>,
}

/// What is known of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It was asked; the answer will come.
    Waiting,
    /// So much of the gang fits.
    Fits(Capacity),
    /// The estimator does not say, and why.
    Silent(String),
}

/// An answer that has come; give it to [`Desk::take`].
#[derive(Debug)]
pub struct Said {
    question: Question,
    result: Result<Capacity, AskError>,
}

struct Asked {
    question: Question,
    /// What was said, and when; `None` while it is being asked.
    said: Option<(Capacity, Instant)>,
}

/// See the module.
pub struct Desk {
    settings: Settings,
    estimators: BTreeMap<String, (String, Estimator)>,
    asked: BTreeMap<(String, String), Asked>,
    silent: BTreeMap<String, (String, Instant)>,
    answers: mpsc::UnboundedSender<Said>,
}

impl Desk {
    /// Knows of no estimator yet; answers arrive at the returned receiver.
    #[must_use]
    pub fn new(settings: Settings) -> (Self, mpsc::UnboundedReceiver<Said>) {
        let (answers, arriving) = mpsc::unbounded_channel();
        let (estimators, asked, silent) = Default::default();
        (Self { settings, estimators, asked, silent, answers }, arriving)
    }

    /// Takes in a Cluster object.
    pub fn observe(&mut self, cluster: &Cluster) {
        let Some(name) = cluster.metadata.name.clone() else { return };
        let address = self.settings.address(cluster);
        if self.estimators.get(&name).map(|(known, _)| known) == address.as_ref() {
            return;
        }
        self.forget_cluster(&name);
        let Some(address) = address else { return };
        match Estimator::new(&address, &self.settings.trust) {
            Ok(estimator) => drop(self.estimators.insert(name, (address, estimator))),
            Err(error) => tracing::warn!(cluster = name, %error, "the member's estimator can not be used"),
        }
    }

    /// A cluster is gone.
    pub fn forget_cluster(&mut self, name: &str) {
        self.estimators.remove(name);
        self.silent.remove(name);
        self.asked.retain(|(_, cluster), _| cluster != name);
    }

    /// Somebody asks no more.
    pub fn forget(&mut self, key: &str) {
        self.asked.retain(|(asking, _), _| asking != key);
    }

    /// Whether no member has an estimator.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.estimators.is_empty()
    }

    /// Whether a member has an estimator.
    #[must_use]
    pub fn knows(&self, cluster: &str) -> bool {
        self.estimators.contains_key(cluster)
    }

    /// What is known of a question; it is asked if nothing is.
    pub fn ask(&mut self, question: Question) -> Answer {
        let now = Instant::now();
        let cluster = &question.cluster;
        if let Some((why, _)) = self.silent.get(cluster).filter(|(_, until)| *until > now) {
            return Answer::Silent(why.clone());
        }
        let place = (question.key.clone(), cluster.clone());
        if let Some(asked) = self.asked.get(&place).filter(|asked| asked.question == question) {
            match &asked.said {
                None => return Answer::Waiting,
                Some((capacity, at)) if *at + FRESH > now => return Answer::Fits(capacity.clone()),
                Some(_) => {}
            }
        }
        let Some((_, estimator)) = self.estimators.get(cluster) else {
            return Answer::Silent("it has no estimator".to_owned());
        };
        let (estimator, answers) = (estimator.clone(), self.answers.clone());
        self.asked.insert(place, Asked { question: question.clone(), said: None });
        tokio::spawn(async move {
            let result = find(&estimator, &question).await;
            let _ = answers.send(Said { question, result });
        });
        Answer::Waiting
    }

    /// Takes in an answer; who asked.
    pub fn take(&mut self, said: Said) -> String {
        let Said { question, result } = said;
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
                tracing::warn!(cluster = question.cluster, %error, "left alone for {} s", PAUSE.as_secs());
                self.asked.retain(|(_, cluster), _| *cluster != question.cluster);
                self.silent.insert(question.cluster, (error.to_string(), now + PAUSE));
            }
        }
        question.key
    }
}

/// How much of a gang fits: pods of its only task, or whole sets of all of its tasks, and where not even one fits, of what
/// it needs at least. Sets are a lower bound: that other mixtures would fit is not known.
async fn find(estimator: &Estimator, question: &Question) -> Result<Capacity, AskError> {
    let Question { cluster, namespace, gang, held, .. } = question;
    let assumed = |held: &Held| AssumedWorkload {
        namespace: held.namespace.clone(),
        components: write_set(&held.gang, &held.pods),
    };
    let assumed: Vec<AssumedWorkload> = held.iter().map(assumed).collect();
    if let [task] = gang.tasks.as_slice() {
        let pods = estimator.replicas(cluster, namespace, task, assumed).await?;
        return Ok(offers([(request(gang, 0, u64::from(pods)), 1)]));
    }
    let whole: Vec<u32> = gang.tasks.iter().map(|task| task.replicas).collect();
    let least: Vec<u32> = gang.tasks.iter().map(|task| task.min_available).collect();
    for pods in [&whole, &least] {
        let sets = estimator.sets(cluster, namespace, (gang, pods), assumed.clone()).await?;
        if sets > 0 {
            // Pods of one task may not be exchanged for pods of another: each has its own place.
            let places = |(task, pods): (usize, &u32)| (request(gang, task, 1), sets.saturating_mul(*pods).min(MOST));
            return Ok(offers(pods.iter().enumerate().map(places)));
        }
        if whole == least {
            break;
        }
    }
    Ok(offers([]))
}

/// Places of a task that are told at most; nobody places more at once in one member.
const MOST: u32 = 10_000;

fn request(gang: &Gang, task: usize, times: u64) -> Amounts {
    gang.tasks[task].request.times(times).iter().map(|(name, amount)| (name.clone(), amount)).collect()
}

/// So many nodes with so much free each, of which nothing else is known.
fn offers(nodes: impl IntoIterator<Item = (Amounts, u32)>) -> Capacity {
    let shape = |(free, count): (Amounts, u32)| Shape {
        allocatable: Arc::new(free.clone()),
        free: Arc::new(free),
        nodes: vec![NodeRef::from(""); count as usize],
        ..Shape::default()
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
        assert_eq!((off.address(&push), off.address(&own).as_deref()), (None, Some("10.0.0.1:1")));
        let on = Settings { enabled: true, pull: false, ..Settings::default() };
        assert_eq!(on.address(&push).unwrap(), "karmada-scheduler-estimator-m1.karmada-system.svc:10352");
        assert_eq!(on.address(&pull), None);
    }

    #[tokio::test]
    async fn one_that_does_not_answer_is_waited_for_once() {
        let (mut desk, mut answers) = Desk::new(Settings::default());
        let annotations = json!({ESTIMATOR: "127.0.0.1:1"});
        desk.observe(&cluster(json!({"metadata": {"name": "m1", "annotations": annotations}, "spec": {}})));
        assert!(desk.knows("m1"));
        let gang = Arc::new(crate::read::gang(Vec::new()));
        let question = |key: &str| Question {
            key: key.to_owned(),
            cluster: "m1".to_owned(),
            namespace: "ns".to_owned(),
            gang: Arc::clone(&gang),
            held: Vec::new(),
        };
        assert_eq!(desk.ask(question("a")), Answer::Waiting);
        assert_eq!(desk.ask(question("a")), Answer::Waiting);
        let said = answers.recv().await.unwrap();
        assert_eq!(desk.take(said), "a");
        for key in ["a", "b"] {
            assert!(matches!(desk.ask(question(key)), Answer::Silent(why) if why.contains("127.0.0.1:1")));
        }
        assert!(answers.try_recv().is_err(), "it was asked once");
    }
}
