//! Lists everything that the controller decides on, once, with the caller's own credentials, and lets the controller's
//! code decide on it: the input of `caldera why`, `caldera queue`, `caldera job list --start`, the reasons in `caldera
//! top`, and `caldera simulate --kubeconfig`.
//!
//! It only reads. What the caller may not see is reported as a [`Gap`], never guessed. Without the right to list a kind
//! in all namespaces the answer rests on what the controller wrote (see [`caldera_controller::explain`]).

mod places;
mod state;

use std::{collections::BTreeMap, mem, time::Duration};

use anyhow::Context;
use caldera_controller::{
    decide::Controller,
    explain::{decide_without_writing, list_queues},
    fair_history,
    observe::{ClusterFacts, Input, ObjectKind, read_object},
    published_runs,
    settings::{self, Settings},
};
use caldera_core::{
    fleet::Update,
    past_runs::PastRuns,
    queue::{OrderPolicy, TenantOrder},
};
use caldera_crds::karmada::cluster::Cluster;
use caldera_runtime::{client::WriteCounts, members, watch::list_json};
use caldera_simulate::live::State;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject},
};
use serde::Serialize;
use serde_json::{Value, json};

pub use self::places::{DomainPlaces, MemberPlaces};
use self::state::KnownHistory;

/// How long a member may take to list its nodes and pods. After that Karmada's summary of it is used.
const MEMBER_DEADLINE: Duration = Duration::from_secs(5);

/// Something that the answer lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// Which kind, or which member.
    pub what: String,
    /// Why.
    pub why: String,
}

/// The host as the caller sees it.
#[derive(Debug)]
pub struct Live {
    /// The controller's view of it.
    pub controller: Controller,
    /// When it was read.
    pub now: Timestamp,
    /// What the answers lack.
    pub gaps: Vec<Gap>,
    /// What the admin chose, as far as it can be read.
    pub settings: Settings,
    /// What was used lately, as far as the controller publishes it.
    history: KnownHistory,
    /// How long the last jobs ran, as far as the controller publishes it.
    past: PastRuns,
    /// What was told of each member.
    members: Vec<(String, Update)>,
    /// Members that are not ready.
    lost: Vec<String>,
}

/// The server's answer to a list of one kind.
enum SourceAnswer {
    All(Vec<Input>, Vec<Cluster>),
    /// Those of one namespace.
    Some(Vec<Input>),
    Nothing,
}

/// Lists everything and lets the controller's code decide on it. If listing all namespaces is forbidden, only
/// `namespace` is listed. PodGroups are listed in `namespace` alone. The controller's settings are read from its
/// namespace `controllers`, or from the usual ones.
///
/// # Errors
/// If the server does not answer.
pub async fn read_live(client: &Client, namespace: Option<&str>, controllers: Option<&str>) -> anyhow::Result<Live> {
    let mut live = read_host(client, namespace, controllers).await?;
    live.decide();
    Ok(live)
}

/// The same without any decision: what waits, waits still ([`Live::take_state`]). It knows how long the last jobs ran.
///
/// # Errors
/// If the server does not answer.
pub async fn read_undecided(
    client: &Client,
    namespace: Option<&str>,
    controllers: Option<&str>,
) -> anyhow::Result<Live> {
    let past = read_past_runs(client, controllers);
    let (live, past) = futures::join!(read_host(client, namespace, controllers), past);
    let mut live = live?;
    match past {
        Ok(past) => live.past = past,
        Err(gap) => live.gaps.push(gap),
    }
    Ok(live)
}

async fn read_host(client: &Client, namespace: Option<&str>, controllers: Option<&str>) -> anyhow::Result<Live> {
    let kinds = ObjectKind::list_all();
    let asked = join_all(kinds.iter().map(|kind| list_source(client, *kind, namespace)));
    let (answers, settings) = futures::join!(asked, read_settings(client, controllers));
    let mut live = Live {
        controller: Controller::default(),
        now: Timestamp::now(),
        gaps: Vec::new(),
        settings: Settings::default(),
        history: KnownHistory::default(),
        past: PastRuns::default(),
        members: Vec::new(),
        lost: Vec::new(),
    };
    // What a workload asks for is read by them.
    let mut unknown = None;
    match settings? {
        Ok((settings, namespace)) => {
            live.settings = settings;
            unknown = live.read_fair_history(client, namespace).await;
        }
        Err(gap) => live.gaps.push(gap),
    }
    live.settings.apply_to(&mut live.controller);
    let answers = kinds.into_iter().zip(answers).map(|(kind, answer)| Ok((kind, answer?)));
    observe_sources(&mut live, client, answers.collect::<anyhow::Result<_>>()?).await;
    let takes_turns = |order: &str| order != TenantOrder::None.as_str();
    let mut queues = list_queues(&live.controller).into_iter();
    live.gaps.extend(unknown.filter(|_| queues.any(|queue| queue.tenant_order.is_some_and(takes_turns))));
    Ok(live)
}

impl Live {
    /// Has the controller's code go on from what was used lately, where that counts. That of tenants not everybody may
    /// read: a gap, if somebody takes turns.
    async fn read_fair_history(&mut self, client: &Client, namespace: &str) -> Option<Gap> {
        if self.settings.order != OrderPolicy::FairHistory {
            return None;
        }
        // Not in another namespace, where others may write.
        let controllers = Some(namespace);
        let (without_queues, without_tenants) =
            ("it is taken that queues used nothing lately", "shares of tenants are of what they have now");
        let (queues, tenants) = futures::join!(
            read_kept(client, controllers, (fair_history::QUEUES, without_queues), fair_history::read_queue_history),
            read_kept(client, controllers, (fair_history::TENANTS, without_tenants), fair_history::read_tenant_history)
        );
        match queues {
            Ok(queues) => self.history.kept.push(queues),
            Err(gap) => self.gaps.push(gap),
        }
        let unknown = tenants.map(|tenants| self.history.kept.push(tenants)).err();
        self.history.lacks_tenants = unknown.is_some();
        if self.history.lacks_tenants {
            self.controller.ignore_tenant_history();
        }
        self.controller.observe(Input::FairHistory(self.history.kept.clone()), self.now);
        unknown
    }

    /// Lets the controller's code decide, and writes nothing.
    pub fn decide(&mut self) {
        decide_without_writing(&mut self.controller, self.now);
    }

    /// The members that Karmada says are not ready: the scheduler places nothing there.
    #[must_use]
    pub fn list_lost_members(&self) -> &[String] {
        &self.lost
    }

    /// A member that takes jobs and can not be read: which, and why.
    #[must_use]
    pub fn find_unread_member(&self) -> Option<&Gap> {
        let is_lost = |name: &str| self.lost.iter().any(|lost| lost == name);
        self.gaps.iter().find(|gap| gap.what.strip_prefix("member ").is_some_and(|name| !is_lost(name)))
    }

    /// Where the pods of each member are. Before the state is taken.
    #[must_use]
    pub fn list_places(&self) -> BTreeMap<String, MemberPlaces> {
        places::list_places(&self.members)
    }

    /// What waits and what runs, where, and by which rules: for a simulation. Once, and before anything is decided.
    pub fn take_state(&mut self) -> State {
        let (members, past) = (mem::take(&mut self.members), mem::take(&mut self.past));
        State { past, ..state::build_state(&self.controller, (&self.settings, &self.history), self.now, members) }
    }
}

/// Has the controller's code see what was listed, and what the members there say.
async fn observe_sources(live: &mut Live, client: &Client, answers: Vec<(ObjectKind, (SourceAnswer, Option<Gap>))>) {
    let mut bindings = Vec::new();
    let mut clusters = Vec::new();
    for (source, (answer, gap)) in answers {
        live.gaps.extend(gap);
        let inputs = match answer {
            SourceAnswer::All(mut listed, these) => {
                clusters.extend(these);
                listed.push(Input::Listed(source));
                listed
            }
            SourceAnswer::Some(listed) => listed,
            SourceAnswer::Nothing => Vec::new(),
        };
        // The state of a binding depends on everything else, so bindings come last.
        match source {
            ObjectKind::Bindings => bindings = inputs,
            _ => inputs.into_iter().for_each(|input| live.controller.observe(input, live.now)),
        }
    }
    let members = join_all(clusters.iter().map(|cluster| read_member(client, cluster))).await;
    let members: Vec<(String, Update)> = members.into_iter().flatten().collect();
    for (name, update) in &members {
        if let Update::Down(why) = update {
            live.gaps.push(Gap { what: format!("member {name}"), why: why.clone() });
        }
        live.controller.observe(Input::Member(name.clone(), update.clone()), live.now);
    }
    bindings.into_iter().for_each(|input| live.controller.observe(input, live.now));
    live.members = members;
    live.lost =
        clusters.iter().filter(|cluster| !is_ready(cluster)).filter_map(|one| one.metadata.name.clone()).collect();
}

/// The controller's settings and its namespace, or the reason why they can not be read.
async fn read_settings<'a>(
    client: &Client,
    namespace: Option<&'a str>,
) -> anyhow::Result<Result<(Settings, &'a str), Gap>> {
    let namespaces: Vec<&'a str> = namespace.map_or_else(|| settings::NAMESPACES.to_vec(), |one| vec![one]);
    let mut whys = Vec::new();
    for namespace in &namespaces {
        let maps: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<ConfigMap>(&()));
        let why = match maps.get(settings::NAME).await {
            Ok(found) => match Settings::read_config_map(&found.data) {
                Ok(settings) => return Ok(Ok((settings, *namespace))),
                Err(wrong) => wrong,
            },
            Err(kube::Error::Api(status)) if status.code == 404 => "there is none".to_owned(),
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => describe_refusal(&status),
            Err(error) => return Err(error).context("failed to read the controller's settings"),
        };
        whys.push(format!("{namespace}: {why}"));
    }
    let why = format!("{}; order, patience and who gives way are taken to be as by default", whys.join("; "));
    Ok(Err(Gap { what: format!("configmap {}", settings::NAME), why }))
}

/// How long the last jobs of each queue ran. It makes an answer better, so whatever is wrong leaves the answer without
/// it.
async fn read_past_runs(client: &Client, namespace: Option<&str>) -> Result<PastRuns, Gap> {
    let without = "expected starts go by what jobs say alone";
    read_kept(client, namespace, (published_runs::NAME, without), published_runs::read_runs).await
}

/// What the controller keeps in a ConfigMap: nothing where there is none yet, or why it can not be read and what that
/// means.
async fn read_kept<T: Default>(
    client: &Client,
    namespace: Option<&str>,
    (name, without): (&str, &str),
    read: impl Fn(&Value) -> Result<T, String>,
) -> Result<T, Gap> {
    let mut whys = Vec::new();
    for namespace in namespace.map_or_else(|| settings::NAMESPACES.to_vec(), |one| vec![one]) {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let why = match maps.get_opt(name).await {
            Ok(None) => continue,
            Ok(Some(map)) => match read(&json!(map)) {
                Ok(kept) => return Ok(kept),
                Err(wrong) => wrong,
            },
            Err(kube::Error::Api(status)) => describe_refusal(&status),
            Err(error) => error.to_string(),
        };
        whys.push(format!("{namespace}: {why}"));
    }
    if whys.is_empty() {
        return Ok(T::default());
    }
    Err(Gap { what: format!("configmap {name}"), why: format!("{}; {without}", whys.join("; ")) })
}

/// Who one is and what one may do are two things to mend.
fn describe_refusal(status: &kube::core::Status) -> String {
    if status.code == 401 {
        return format!("your credentials were refused: {}", status.message);
    }
    status.message.clone()
}

async fn list_source(
    client: &Client,
    source: ObjectKind,
    namespace: Option<&str>,
) -> anyhow::Result<(SourceAnswer, Option<Gap>)> {
    // No decision depends on PodGroups, so those of the caller's namespace are enough.
    let own_only = source == ObjectKind::PodGroups;
    if own_only && namespace.is_none() {
        return Ok((SourceAnswer::All(Vec::new(), Vec::new()), None));
    }
    let refused = match list_objects(client, source, if own_only { namespace } else { None }).await {
        Ok((listed, clusters)) => return Ok((SourceAnswer::All(listed, clusters), None)),
        Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403 | 404) => status,
        Err(error) => return Err(error).with_context(|| format!("failed to list {}", resource_name(source))),
    };
    let gap = Some(Gap { what: resource_name(source), why: describe_refusal(&refused) });
    let empty = || SourceAnswer::All(Vec::new(), Vec::new());
    // A kind that the server does not have has no objects. Who may not list what a host may do without, and most do,
    // is not told.
    if matches!(source, ObjectKind::Workloads(kind) if kind.is_optional() && refused.code != 401) {
        return Ok((empty(), None));
    }
    if refused.code == 404 {
        let needed = matches!(source, ObjectKind::Queues | ObjectKind::Bindings | ObjectKind::Clusters);
        return Ok((empty(), gap.filter(|_| needed)));
    }
    match (source, namespace) {
        // Without them priorities count as zero, no namespace has opted in and nothing is kept for a time, which is
        // acceptable.
        (
            ObjectKind::Classes
            | ObjectKind::Namespaces
            | ObjectKind::PodGroups
            | ObjectKind::Links
            | ObjectKind::CapacityReservations,
            _,
        ) => Ok((empty(), gap)),
        (ObjectKind::Bindings | ObjectKind::Workloads(_) | ObjectKind::HyperJobs, Some(namespace)) => {
            let own = list_objects(client, source, Some(namespace)).await;
            Ok((own.map_or(SourceAnswer::Nothing, |(listed, _)| SourceAnswer::Some(listed)), gap))
        }
        _ => Ok((SourceAnswer::Nothing, gap)),
    }
}

/// The resource as `kubectl` names it.
pub fn resource_name(source: ObjectKind) -> String {
    let resource = source.api_resource();
    if resource.group.is_empty() { resource.plural } else { format!("{}.{}", resource.plural, resource.group) }
}

async fn list_objects(
    client: &Client,
    source: ObjectKind,
    namespace: Option<&str>,
) -> Result<(Vec<Input>, Vec<Cluster>), kube::Error> {
    let mut listed = Vec::new();
    let mut clusters = Vec::new();
    let read = |object: Value| {
        if source == ObjectKind::Clusters {
            clusters.extend(serde_json::from_value::<Cluster>(object.clone()));
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match read_object(source, object) {
            Ok(input) => listed.extend(input),
            Err(error) => {
                tracing::warn!(kind = resource_name(source), name, %error, "left out an object that does not parse");
            }
        }
        None::<()>
    };
    list_json(client.clone(), &source.api_resource(), namespace, source.label_selector(), read).await?;
    Ok((listed, clusters))
}

fn is_ready(cluster: &Cluster) -> bool {
    ClusterFacts::read(cluster).cluster.ready
}

/// Lists a member's nodes and pods, or reports it as down.
async fn read_member(host: &Client, cluster: &Cluster) -> Vec<(String, Update)> {
    let name = cluster.metadata.name.clone().unwrap_or_default();
    if !is_ready(cluster) {
        return vec![(name, Update::Down("it is not ready".to_owned()))];
    }
    let counts = WriteCounts::default();
    let read = members::read_member_inventory(host, cluster, "why", &counts);
    let late = || vec![Update::Down(format!("it did not answer within {} s", MEMBER_DEADLINE.as_secs()))];
    let updates = tokio::time::timeout(MEMBER_DEADLINE, read).await.unwrap_or_else(|_| late());
    updates.into_iter().map(|update| (name.clone(), update)).collect()
}

#[cfg(test)]
mod tests;
