//! What is followed in a member at one time, and how well that goes.
//!
//! Rule: nothing is told before nodes and pods were listed. Then all of it is told at once, with the HyperNodes before the
//! rest, so that nobody decides by nodes whose domains are not known yet or by pods of before; then that the member is up.

use std::collections::BTreeSet;

use caldera_core::{
    fleet::{Origin, Queues, Update},
    inventory::{Change, HyperNode, Node, Pod},
};
use caldera_crds::inventory::{hyper_node, name_of, namespace_of, read_node, read_pod, read_queue};
use kube::{Client, api::ApiResource};
use serde_json::Value;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{Connection, Member, MemberError, MemberEvent, PROBE_DEADLINE};
use crate::watch::{Event, Failing, follow_json_telling, list_json_as, resource};

/// See the module.
pub(super) struct Watches {
    client: Client,
    told: mpsc::Sender<Told>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    failing: Vec<(&'static str, Failing)>,
    listed: watch::Receiver<bool>,
}

enum Told {
    Change(Change),
    /// The same, as a list of a kind that must be listed.
    Listed(&'static str, Change),
    Queues(Queues),
    /// The lists did not come in time, and why that is known.
    Late(String),
}

impl Watches {
    pub(super) fn new(member: &Member, connection: &Connection, stop: &CancellationToken) -> Self {
        let (told, arriving) = mpsc::channel(256);
        let (is_listed, listed) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(forward(member.way.cluster.clone(), arriving, member.events.clone(), is_listed));
        let (client, stop) = (connection.client.clone(), stop.child_token());
        Self { client, told, stop, tasks, failing: Vec::new(), listed }
    }

    /// Follows what must be listed before anything is known.
    pub(super) fn follow_first(&mut self) {
        for (kind, plural, convert) in WATCHED {
            self.follow_as(kind, resource("", "v1", kind, plural), convert, true);
        }
    }

    pub(super) fn follow_hyper_nodes(&mut self) {
        self.follow_as("HyperNode", hyper_nodes_resource(), hyper_nodes, false);
    }

    fn follow_as(&mut self, kind: &'static str, resource: ApiResource, convert: Convert, first: bool) {
        let to_event = move |event: Event<Value>| {
            let is_list = first && matches!(event, Event::Reset(_));
            let change = convert(event)?;
            Some(if is_list { Told::Listed(kind, change) } else { Told::Change(change) })
        };
        let failing = Failing::default();
        self.failing.push((kind, failing.clone()));
        let (client, told, stop) = (self.client.clone(), self.told.clone(), self.stop.clone());
        self.tasks.spawn(follow_json_telling(client, resource, failing, told, Some, to_event, stop));
    }

    /// Follows the queues of the member's own Volcano. Nothing else waits for them, and while they can not be read what was
    /// read last counts: without them a job may have to be withdrawn again, no more.
    pub(super) fn follow_queues(&mut self) {
        let (mut queues, mut first) = (Queues::new(), true);
        let to_event = move |event: Event<Value>| {
            let before = queues.clone();
            match event {
                Event::Reset(all) => queues = all.iter().filter_map(read_queue).collect(),
                Event::Applied(one) => queues.extend(read_queue(&one)),
                Event::Deleted(one) => drop(queues.remove(&name_of(&one)?)),
            }
            // Their status changes all the time.
            (std::mem::take(&mut first) || queues != before).then(|| Told::Queues(queues.clone()))
        };
        let (client, told, stop) = (self.client.clone(), self.told.clone(), self.stop.clone());
        let queues = queues_resource();
        self.tasks.spawn(follow_json_telling(client, queues, Failing::default(), told, Some, to_event, stop));
    }

    /// Tells that there are none.
    pub(super) async fn tell_no_queues(&self) {
        let _ = self.told.send(Told::Queues(Queues::new())).await;
    }

    /// Tells what was read otherwise.
    pub(super) async fn tell(&self, change: Change) {
        let _ = self.told.send(Told::Change(change)).await;
    }

    /// Tells that the member is down, unless it was listed after all.
    pub(super) async fn tell_late(&self, why: String) {
        let _ = self.told.send(Told::Late(why)).await;
    }

    /// Whether all that must be listed was listed and told.
    pub(super) fn listed(&self) -> watch::Receiver<bool> {
        self.listed.clone()
    }

    /// The kind that has not been followed for longest, where some are not, and since when.
    pub(super) fn failing(&self) -> Option<(&'static str, Instant)> {
        let failing = self.failing.iter().filter_map(|(kind, failing)| Some((*kind, failing.since()?)));
        failing.min_by_key(|(_, since)| *since)
    }

    /// Ends if nobody listens any more.
    pub(super) async fn ended(&mut self) {
        self.tasks.join_next().await;
    }

    pub(super) async fn end(mut self) {
        self.stop.cancel();
        self.tasks.shutdown().await;
    }
}

/// Keeps what is told until it is complete, then passes it on.
async fn forward(
    cluster: String,
    mut arriving: mpsc::Receiver<Told>,
    events: mpsc::Sender<MemberEvent>,
    is_listed: watch::Sender<bool>,
) {
    let send = |update| events.send(MemberEvent { cluster: cluster.clone(), update });
    let (mut kept, mut listed) = (Vec::new(), BTreeSet::new());
    while let Some(told) = arriving.recv().await {
        let update = match told {
            Told::Listed(kind, change) => {
                listed.insert(kind);
                Update::Change(change)
            }
            Told::Change(change) => Update::Change(change),
            Told::Queues(queues) => Update::Queues(queues),
            Told::Late(why) if !*is_listed.borrow() => {
                if send(Update::Down(why)).await.is_err() {
                    return;
                }
                continue;
            }
            Told::Late(_) => continue,
        };
        kept.push(update);
        if listed.len() < WATCHED.len() {
            continue;
        }
        for update in kept.drain(..) {
            if send(update).await.is_err() {
                return;
            }
        }
        if !*is_listed.borrow() {
            for update in [Update::From(Origin::Member), Update::Up] {
                if send(update).await.is_err() {
                    return;
                }
            }
            is_listed.send_replace(true);
        }
    }
}

/// The member's HyperNodes; `None` if it has no such kind, or lets nobody read it.
pub(super) async fn list_hyper_nodes(client: &Client) -> Result<Option<Vec<HyperNode>>, MemberError> {
    let read = |object: Value| hyper_node(&object);
    let resource = hyper_nodes_resource();
    let listed = list_json_as(client.clone(), &resource, None, None, read);
    match tokio::time::timeout(PROBE_DEADLINE, listed).await {
        Ok(Ok(all)) => Ok(Some(all)),
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 403 | 404) => Ok(None),
        Ok(Err(error)) => Err(MemberError::Probe(Box::new(error))),
        Err(_) => Err(MemberError::Deadline),
    }
}

/// Whether the member has Volcano's queues, and lets them be read.
pub(super) async fn has_queues(client: &Client) -> bool {
    let Ok(request) = http::Request::get("/apis/scheduling.volcano.sh/v1beta1/queues?limit=1").body(Vec::new()) else {
        return false;
    };
    matches!(tokio::time::timeout(PROBE_DEADLINE, client.request::<Value>(request)).await, Ok(Ok(list)) if list["items"].is_array())
}

fn queues_resource() -> ApiResource {
    resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues")
}

fn hyper_nodes_resource() -> ApiResource {
    resource("topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes")
}

pub(super) type Convert = fn(Event<Value>) -> Option<Change>;

/// What is read of a member.
pub(super) const WATCHED: [(&str, &str, Convert); 2] = [("Node", "nodes", nodes), ("Pod", "pods", pods)];

fn hyper_nodes(event: Event<Value>) -> Option<Change> {
    Some(match event {
        Event::Reset(all) => Change::HyperNodes(all.iter().filter_map(hyper_node).collect()),
        Event::Applied(one) => Change::HyperNode(hyper_node(&one)?),
        Event::Deleted(one) => Change::HyperNodeGone(name_of(&one)?),
    })
}

fn nodes(event: Event<Value>) -> Option<Change> {
    Some(match event {
        Event::Reset(all) => Change::Nodes(all.iter().filter_map(read_node).collect::<Vec<Node>>()),
        Event::Applied(one) => Change::Node(read_node(&one)?),
        Event::Deleted(one) => Change::NodeGone(name_of(&one)?),
    })
}

fn pods(event: Event<Value>) -> Option<Change> {
    Some(match event {
        Event::Reset(all) => Change::Pods(all.iter().filter_map(read_pod).collect::<Vec<Pod>>()),
        Event::Applied(one) => Change::Pod(read_pod(&one)?),
        Event::Deleted(one) => Change::PodGone(namespace_of(&one), name_of(&one)?),
    })
}
