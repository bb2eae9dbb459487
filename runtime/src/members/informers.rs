//! The informers of one member: what is followed in it, and how well that goes.
//!
//! Rule: nothing is passed on before nodes and pods were listed, and the optional kinds that the member has. Then
//! everything is passed on at once, optional kinds first, so that nobody decides by nodes without their domains, NUMA
//! nodes and devices, or by pods of an earlier connection; then that the member is up.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use caldera_core::{
    fleet::{Origin, Queues, Update},
    inventory::{Change, NodeUse},
    numa::NumaTopology,
    time::EpochSeconds,
};
use caldera_crds::{
    device::{DeviceClass, ResourceClaim, ResourceSlice},
    inventory::{name_of, read_hyper_node, read_node, read_queue},
    numa_topology::read_numa_topology,
};
use kube::{Client, api::ApiResource, runtime::watcher};
use serde_json::Value;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    Connection, Member, MemberError, MemberEvent, PROBE_TIMEOUT,
    devices::{DeviceEvent, DeviceJoin, ReadPod},
    node_use::{NODE_METRICS, follow_node_use},
};
use crate::{
    clock::SharedClock,
    watch::{Event, Follower, PAGE, WatchHealth, WatchOptions, api_resource, list_json},
};

/// What is followed in a member during one connection.
pub(super) struct Informers {
    follower: Follower<Message>,
    messages: mpsc::Sender<Message>,
    stop: CancellationToken,
    /// Aborted with the informers: nothing is passed on of a member that was forgotten.
    tasks: Vec<AbortOnDropHandle<()>>,
    watches: Watches,
    /// Each watch is to hold before anything is passed on.
    must_hold: bool,
    listed: watch::Receiver<bool>,
}

/// How the watches that matter go, by kind.
#[derive(Clone, Default)]
struct Watches(Arc<Mutex<Vec<(&'static str, WatchHealth)>>>);

impl Watches {
    fn add(&self, kind: &'static str, health: WatchHealth) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((kind, health));
    }

    /// The one that has failed for longest, and since when.
    fn longest_failing(&self) -> Option<(&'static str, Instant)> {
        let watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failing = watches.iter().filter_map(|(kind, health)| Some((*kind, health.failing_since()?)));
        failing.min_by_key(|(_, since)| *since)
    }
}

/// From the informers to [`forward_updates`].
pub(super) enum Message {
    /// Of this kind.
    Change(&'static str, Change),
    /// The same, as a list of all: what was said of this kind before does not count.
    Listed(&'static str, Change),
    /// Of what tells of devices; true for a list of all.
    Devices(OptionalKind, bool, DeviceEvent),
    Pods(Event<ReadPod>),
    Queues(Queues),
    /// What nodes measured, and when that was read.
    NodeUse(Vec<NodeUse>, EpochSeconds),
    /// The lists did not come in time, so the member is down: why.
    Late(String),
}

impl Informers {
    /// Of the optional kinds the member has those that are `found`.
    pub(super) fn start_informers(
        member: &Member,
        connection: &Connection,
        found: &[OptionalKind],
        stop: &CancellationToken,
    ) -> Self {
        let (messages, arriving) = mpsc::channel(256);
        let (is_listed, listed) = watch::channel(false);
        // Who lists and may not watch would be up after each list, and down again.
        let must_hold = member.has_watch_failed;
        let watches = Watches::default();
        let awaited = must_hold.then(|| watches.clone());
        let required: BTreeSet<_> = [NODE, POD].into_iter().chain(found.iter().map(|of| of.name())).collect();
        let cluster = member.access.cluster.clone();
        let forward = forward_updates(cluster, arriving, member.events.clone(), is_listed, (required, awaited));
        let tasks = vec![AbortOnDropHandle::new(tokio::spawn(forward))];
        let stop = stop.child_token();
        let follower = Follower::new(connection.client.clone(), messages.clone(), stop.clone());
        Self { follower, messages, stop, tasks, watches, must_hold, listed }
    }

    /// Follows the kinds that must be listed before anything is known.
    pub(super) fn follow_required(&mut self) {
        self.follow_kind(NODE, node_resource(), PAGE, Some, convert_node_event);
        self.follow(POD, pod_resource(), PAGE, |object| ReadPod::read(&object), |event| Some(Message::Pods(event)));
    }

    pub(super) fn follow_optional(&mut self, kind: OptionalKind) {
        let resource = kind.resource();
        match kind {
            OptionalKind::HyperNode => self.follow_kind(kind.name(), resource, PAGE, Some, convert_hyper_node_event),
            OptionalKind::Numatopology => {
                self.follow_kind(kind.name(), resource, NUMA_PAGE, read_report, convert_numa_event);
            }
            OptionalKind::ResourceSlice => {
                self.follow_devices(kind, |object| ResourceSlice::read(&object), DeviceEvent::Slices);
            }
            OptionalKind::DeviceClass => {
                self.follow_devices(kind, |object| DeviceClass::read(&object), DeviceEvent::Classes);
            }
            OptionalKind::ResourceClaim => {
                self.follow_devices(kind, |object| ResourceClaim::read(&object), DeviceEvent::Claims);
            }
        }
    }

    fn follow_devices<R: Send + 'static>(
        &mut self,
        kind: OptionalKind,
        read: fn(Value) -> Option<R>,
        to_event: fn(Event<R>) -> DeviceEvent,
    ) {
        let to_message = move |event: Event<R>| {
            let is_list = matches!(event, Event::Reset(_));
            Some(Message::Devices(kind, is_list, to_event(event)))
        };
        self.follow(kind.name(), kind.resource(), PAGE, read, to_message);
    }

    fn follow_kind<R: Send + 'static>(
        &mut self,
        kind: &'static str,
        resource: ApiResource,
        page: u32,
        read: fn(Value) -> Option<R>,
        convert: fn(Event<R>) -> Option<Change>,
    ) {
        let to_message = move |event: Event<R>| {
            let is_list = matches!(event, Event::Reset(_));
            let change = convert(event)?;
            Some(if is_list { Message::Listed(kind, change) } else { Message::Change(kind, change) })
        };
        self.follow(kind, resource, page, read, to_message);
    }

    fn follow<R: Send + 'static>(
        &mut self,
        kind: &'static str,
        resource: ApiResource,
        page: u32,
        read: fn(Value) -> Option<R>,
        to_message: impl FnMut(Event<R>) -> Option<Message> + Send + 'static,
    ) {
        let health = if self.must_hold { WatchHealth::failing() } else { WatchHealth::default() };
        self.watches.add(kind, health.clone());
        let options = WatchOptions::from(watcher::Config::default().page_size(page)).with_health(health);
        let task = self.follower.follow_json(resource, options, read, to_message);
        self.tasks.push(AbortOnDropHandle::new(task));
    }

    /// Follows the queues of the member's own Volcano. Nothing waits for them, and while they can not be read what was
    /// read last counts: the worst that follows is a job that has to be withdrawn again.
    pub(super) fn follow_queues(&mut self) {
        let (mut queues, mut is_first) = (Queues::new(), true);
        let to_message = move |event: Event<Value>| {
            let before = queues.clone();
            match event {
                Event::Reset(all) => queues = all.iter().filter_map(read_queue).collect(),
                Event::Applied(one) => queues.extend(read_queue(&one)),
                Event::Deleted(one) => drop(queues.remove(&name_of(&one)?)),
            }
            // Their status changes all the time.
            (std::mem::take(&mut is_first) || queues != before).then(|| Message::Queues(queues.clone()))
        };
        let health = WatchHealth::default();
        let task = self.follower.follow_json(queue_resource(), health, Some, to_message);
        self.tasks.push(AbortOnDropHandle::new(task));
    }

    /// Reads what nodes measure, for whoever wants to know.
    pub(super) fn follow_node_use(&mut self, client: &Client, clock: &SharedClock) {
        let (client, clock, messages) = (client.clone(), SharedClock::clone(clock), self.messages.clone());
        let task = follow_node_use(client, clock, messages, Message::NodeUse);
        self.tasks.push(AbortOnDropHandle::new(tokio::spawn(task)));
    }

    /// Passes on what was found out otherwise.
    pub(super) async fn send_message(&self, message: Message) {
        let _ = self.messages.send(message).await;
    }

    /// Becomes true once everything that must be listed was listed and passed on.
    pub(super) fn subscribe_to_listed(&self) -> watch::Receiver<bool> {
        self.listed.clone()
    }

    /// The kind whose watch has failed for longest, and since when.
    pub(super) fn longest_failing(&self) -> Option<(&'static str, Instant)> {
        self.watches.longest_failing()
    }

    /// Waits until nobody receives the updates any more.
    pub(super) async fn wait_until_no_receiver(&self) {
        self.messages.closed().await;
    }

    pub(super) async fn stop_informers(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.abort();
            let _ = task.await;
        }
    }
}

/// Numatopologies asked for at once: each has an entry for every CPU of its node.
const NUMA_PAGE: u32 = 50;
/// How often it is looked whether watches hold.
const LOOK_AT_WATCHES: Duration = Duration::from_secs(1);

/// Holds messages back until the `required` kinds are listed, and the `awaited` watches hold; then passes them on as
/// they come.
async fn forward_updates(
    cluster: String,
    mut arriving: mpsc::Receiver<Message>,
    events: mpsc::Sender<MemberEvent>,
    is_listed: watch::Sender<bool>,
    (required, awaited): (BTreeSet<&'static str>, Option<Watches>),
) {
    let send = async |update| events.send(MemberEvent { cluster: cluster.clone(), update }).await;
    let (mut held_back, mut listed) = (Vec::new(), BTreeSet::new());
    let (mut is_first, mut devices) = (true, DeviceJoin::default());
    loop {
        let are_all_listed = listed.is_superset(&required);
        let message = tokio::select! {
            biased;
            message = arriving.recv() => match message {
                Some(message) => Some(message),
                None => return,
            },
            () = tokio::time::sleep(LOOK_AT_WATCHES), if is_first && are_all_listed => None,
        };
        match message {
            None => {}
            Some(Message::Listed(kind, change)) => {
                held_back.retain(|(of, _)| *of != kind);
                listed.insert(kind);
                held_back.push((kind, Held::Update(Update::Change(change))));
            }
            Some(Message::Change(kind, change)) => held_back.push((kind, Held::Update(Update::Change(change)))),
            Some(Message::Devices(kind, is_list, event)) => {
                listed.extend(is_list.then(|| kind.name()));
                let changes = devices.apply_devices(event).into_iter();
                // What was not passed on yet is told with all else, once.
                held_back.extend(
                    changes.filter(|_| !is_first).map(|change| (kind.name(), Held::Update(Update::Change(change)))),
                );
            }
            Some(Message::Pods(event)) => {
                if matches!(event, Event::Reset(_)) {
                    held_back.retain(|(of, _)| *of != POD);
                    listed.insert(POD);
                }
                held_back.push((POD, Held::Pods(event)));
            }
            Some(Message::Queues(queues)) => {
                held_back.retain(|(of, _)| *of != QUEUE);
                held_back.push((QUEUE, Held::Update(Update::Queues(queues))));
            }
            Some(Message::NodeUse(measured, read_at)) => {
                held_back.retain(|(of, _)| *of != NODE_METRICS);
                held_back.push((NODE_METRICS, Held::Update(Update::NodeUse(measured, read_at))));
            }
            Some(Message::Late(_)) if are_all_listed => continue,
            Some(Message::Late(why)) => {
                if send(Update::Down(why)).await.is_err() {
                    return;
                }
                continue;
            }
        }
        let are_all_listed = listed.is_superset(&required);
        let holds = || awaited.as_ref().is_none_or(|watches| watches.longest_failing().is_none());
        if is_first && !(are_all_listed && holds()) {
            continue;
        }
        if is_first {
            held_back.push((OptionalKind::ResourceSlice.name(), Held::Update(Update::Change(devices.list_devices()))));
            held_back.sort_by_key(|(kind, _)| OptionalKind::ALL.iter().all(|of| of.name() != *kind));
        }
        let up = is_first.then_some([Update::From(Origin::Member), Update::Up]);
        let ready = held_back.drain(..).flat_map(|(_, held)| match held {
            Held::Update(update) => vec![update],
            Held::Pods(event) => devices.complete_pods(event).into_iter().map(Update::Change).collect(),
        });
        for update in ready.chain(up.into_iter().flatten()) {
            if send(update).await.is_err() {
                return;
            }
        }
        if std::mem::take(&mut is_first) {
            is_listed.send_replace(true);
        }
    }
}

/// What is passed on once all is listed.
enum Held {
    Update(Update),
    /// Completed with what they claim when they are passed on.
    Pods(Event<ReadPod>),
}

/// A kind that a member may have or not, with nothing of it to be known where it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionalKind {
    HyperNode,
    Numatopology,
    ResourceSlice,
    DeviceClass,
    ResourceClaim,
}

impl OptionalKind {
    pub(super) const ALL: [Self; 5] =
        [Self::HyperNode, Self::Numatopology, Self::ResourceSlice, Self::DeviceClass, Self::ResourceClaim];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::HyperNode => "HyperNode",
            Self::Numatopology => "Numatopology",
            Self::ResourceSlice => "ResourceSlice",
            Self::DeviceClass => "DeviceClass",
            Self::ResourceClaim => "ResourceClaim",
        }
    }

    fn resource(self) -> ApiResource {
        match self {
            Self::HyperNode => api_resource("topology.volcano.sh", "v1alpha1", self.name(), "hypernodes"),
            Self::Numatopology => api_resource("nodeinfo.volcano.sh", "v1alpha1", self.name(), "numatopologies"),
            Self::ResourceSlice => api_resource("resource.k8s.io", "v1", self.name(), "resourceslices"),
            Self::DeviceClass => api_resource("resource.k8s.io", "v1", self.name(), "deviceclasses"),
            Self::ResourceClaim => api_resource("resource.k8s.io", "v1", self.name(), "resourceclaims"),
        }
    }

    /// Whether it tells of devices. Of these kinds each is read or none: without claims all devices would look free.
    const fn is_of_devices(self) -> bool {
        matches!(self, Self::ResourceSlice | Self::DeviceClass | Self::ResourceClaim)
    }

    /// Divides these kinds into those that are followed and those that are not, by which of them are there.
    pub(super) fn divide_kinds(kinds: &[Self], are_there: &[Self]) -> (Vec<Self>, Vec<Self>) {
        let lacks_devices = Self::ALL.iter().any(|kind| kind.is_of_devices() && !are_there.contains(kind));
        kinds.iter().partition(|kind| are_there.contains(kind) && !(kind.is_of_devices() && lacks_devices))
    }

    /// Whether the member has it, and lets it be read. Of a large member all of it may take long to list.
    pub(super) async fn is_there(self, client: &Client) -> Result<bool, MemberError> {
        let ApiResource { group, version, plural, .. } = self.resource();
        let path = format!("/apis/{group}/{version}/{plural}?limit=1");
        let Ok(request) = http::Request::get(path).body(Vec::new()) else { return Ok(false) };
        match tokio::time::timeout(PROBE_TIMEOUT, client.request::<Value>(request)).await {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 403 | 404) => Ok(false),
            Ok(Err(error)) => Err(MemberError::Probe(Box::new(error))),
            Err(_) => Err(MemberError::Timeout),
        }
    }

    /// All that a member has of it; `None` where it has no such kind, or lets nobody read it.
    pub(super) async fn list(self, client: &Client) -> Result<Option<Message>, MemberError> {
        let (client, resource) = (client.clone(), self.resource());
        let listed = list_json(client, &resource, None, None, Some).await.map(|all| match self {
            Self::HyperNode => {
                self.make_list_message(Change::HyperNodes(all.iter().filter_map(read_hyper_node).collect()))
            }
            Self::Numatopology => {
                self.make_list_message(keep_possible(all.into_iter().filter_map(read_report).collect()))
            }
            Self::ResourceSlice => self.make_device_message(DeviceEvent::Slices(read_all(&all, ResourceSlice::read))),
            Self::DeviceClass => self.make_device_message(DeviceEvent::Classes(read_all(&all, DeviceClass::read))),
            Self::ResourceClaim => self.make_device_message(DeviceEvent::Claims(read_all(&all, ResourceClaim::read))),
        });
        match listed {
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(None),
            listed => listed.map(Some).map_err(|error| MemberError::Probe(Box::new(error))),
        }
    }

    /// That there is nothing of it.
    pub(super) const fn make_empty_list(self) -> Message {
        match self {
            Self::HyperNode => self.make_list_message(Change::HyperNodes(Vec::new())),
            Self::Numatopology => self.make_list_message(Change::NumaTopologies(Vec::new())),
            Self::ResourceSlice => self.make_device_message(DeviceEvent::Slices(Event::Reset(Vec::new()))),
            Self::DeviceClass => self.make_device_message(DeviceEvent::Classes(Event::Reset(Vec::new()))),
            Self::ResourceClaim => self.make_device_message(DeviceEvent::Claims(Event::Reset(Vec::new()))),
        }
    }

    const fn make_list_message(self, change: Change) -> Message {
        Message::Listed(self.name(), change)
    }

    const fn make_device_message(self, event: DeviceEvent) -> Message {
        Message::Devices(self, true, event)
    }
}

fn read_all<R>(all: &[Value], read: fn(&Value) -> Option<R>) -> Event<R> {
    Event::Reset(all.iter().filter_map(read).collect())
}

/// What a node reports of its NUMA nodes, by its name: each object is large, and little of it counts.
type Report = (String, Option<NumaTopology>);

fn read_report(object: Value) -> Option<Report> {
    Some((name_of(&object)?, read_numa_topology(&object)))
}

fn keep_possible(all: Vec<Report>) -> Change {
    Change::NumaTopologies(all.into_iter().filter_map(|(node, topology)| Some((node, topology?))).collect())
}

fn convert_numa_event(event: Event<Report>) -> Option<Change> {
    Some(match event {
        Event::Reset(all) => keep_possible(all),
        Event::Applied((node, Some(topology))) => Change::NumaTopology(node, topology),
        Event::Applied((node, None)) | Event::Deleted((node, _)) => Change::NumaTopologyGone(node),
    })
}

/// Whether the member has Volcano's queues, and lets them be read.
pub(super) async fn has_queues(client: &Client) -> bool {
    let Ok(request) = http::Request::get("/apis/scheduling.volcano.sh/v1beta1/queues?limit=1").body(Vec::new()) else {
        return false;
    };
    let answer = tokio::time::timeout(PROBE_TIMEOUT, client.request::<Value>(request)).await;
    matches!(answer, Ok(Ok(list)) if list["items"].is_array())
}

fn queue_resource() -> ApiResource {
    api_resource("scheduling.volcano.sh", "v1beta1", QUEUE, "queues")
}

const QUEUE: &str = "Queue";

/// The kinds without which a member is not up.
const NODE: &str = "Node";
const POD: &str = "Pod";

pub(super) fn node_resource() -> ApiResource {
    api_resource("", "v1", NODE, "nodes")
}

pub(super) fn pod_resource() -> ApiResource {
    api_resource("", "v1", POD, "pods")
}

fn convert_hyper_node_event(event: Event<Value>) -> Option<Change> {
    Some(match event {
        Event::Reset(all) => Change::HyperNodes(all.iter().filter_map(read_hyper_node).collect()),
        Event::Applied(one) => Change::HyperNode(read_hyper_node(&one)?),
        Event::Deleted(one) => Change::HyperNodeGone(name_of(&one)?),
    })
}

fn convert_node_event(event: Event<Value>) -> Option<Change> {
    Some(match event {
        Event::Reset(all) => Change::Nodes(all.iter().filter_map(read_node).collect()),
        Event::Applied(one) => Change::Node(read_node(&one)?),
        Event::Deleted(one) => Change::NodeGone(name_of(&one)?),
    })
}
