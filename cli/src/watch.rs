//! Follows what `caldera top` and `caldera console` show: one watch for each kind, so that nothing is
//! listed again while they are open.
//!
//! Rule: what may be seen is asked once, at the start. Where a kind of namespaced objects is refused in all namespaces,
//! it is followed in the caller's own; what is refused altogether is a [`Gap`]. A kind that
//! the server does not have has no objects.

use caldera_crds::{names::caldera::WORKLOAD_KIND, workload::WorkloadKind};
use caldera_runtime::watch::{Follower, WatchHealth, WatchOptions};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    core::ApiResource,
    runtime::watcher,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    live::Gap,
    objects::{self, name_resource},
    view::{BindingFacts, Change, GroupFacts, QueueObject, WorkloadFacts, read_member},
};

/// What waits to be taken in at most; beyond that the watches wait.
pub const BACKLOG: usize = 4096;

/// Watches that run.
#[derive(Debug, Default)]
pub struct Watches {
    /// Whole lists that are to come before all is seen.
    pub lists: usize,
    /// Whether other namespaces were refused.
    pub is_partial: bool,
    /// What can not be seen.
    pub gaps: Vec<Gap>,
    /// How they go.
    health: Vec<(String, WatchHealth)>,
}

impl Watches {
    /// Kinds whose watch fails.
    #[must_use]
    pub fn list_failing(&self) -> Vec<&str> {
        let failing = self.health.iter().filter(|(_, health)| health.failing_since().is_some());
        failing.map(|(kind, _)| kind.as_str()).collect()
    }
}

/// Where a kind may be listed.
enum Reach {
    All,
    Namespace,
    Nowhere(Option<Gap>),
}

/// Follows all kinds: in `namespace` alone where `only` says so, or where more is refused.
///
/// # Errors
/// If the server does not answer.
pub async fn follow_objects(
    client: &Client,
    namespace: &str,
    only: bool,
    changes: mpsc::Sender<Change>,
    stop: &CancellationToken,
) -> anyhow::Result<Watches> {
    let mut watches = Watches::default();
    let follower = Follower::new(client.clone(), changes, stop.clone());
    for kind in WorkloadKind::list_all() {
        let gaps = watches.gaps.len();
        let convert = move |event| Change::Workloads(kind, event);
        let all = watcher::Config::default();
        let read = |object| WorkloadFacts::read(&object);
        follow_kind(client, &follower, kind.api_resource(), (namespace, only), all, read, convert, &mut watches)
            .await?;
        // Who may not list what a host may do without, and most do, is not told.
        watches.gaps.truncate(if kind.is_optional() { gaps } else { usize::MAX });
    }
    let (all, ours) = (watcher::Config::default, watcher::Config::default().labels(WORKLOAD_KIND));
    let read = |object| BindingFacts::read(&object);
    let scope = (namespace, only);
    follow_kind(client, &follower, objects::binding_resource(), scope, all(), read, Change::Bindings, &mut watches)
        .await?;
    let read = |object| GroupFacts::read(&object);
    follow_kind(client, &follower, objects::pod_group_resource(), scope, ours, read, Change::Groups, &mut watches)
        .await?;
    let read = |object| serde_json::from_value(object).ok().map(|queue| QueueObject::read(&queue));
    follow_kind(client, &follower, objects::queue_resource(), ("", false), all(), read, Change::Queues, &mut watches)
        .await?;
    let read = |object| {
        let member = read_member(&object);
        Some((member.name.clone(), member))
    };
    follow_kind(
        client,
        &follower,
        objects::cluster_resource(),
        ("", false),
        all(),
        read,
        Change::Clusters,
        &mut watches,
    )
    .await?;
    Ok(watches)
}

#[allow(clippy::too_many_arguments, reason = "each is one word of what is followed, how, and where it goes")]
async fn follow_kind<R: Send + 'static>(
    client: &Client,
    follower: &Follower<Change>,
    resource: ApiResource,
    (namespace, only): (&str, bool),
    config: watcher::Config,
    read: impl FnMut(serde_json::Value) -> Option<R> + Send + 'static,
    convert: impl FnMut(caldera_runtime::watch::Event<R>) -> Change + Send + 'static,
    watches: &mut Watches,
) -> anyhow::Result<()> {
    let health = WatchHealth::default();
    let options = WatchOptions::from(config).with_health(health.clone());
    let name = name_resource(&resource);
    match probe_reach(client, &resource, namespace, only).await? {
        Reach::All => drop(follower.follow_json(resource, options, read, convert)),
        Reach::Namespace => {
            watches.is_partial |= !only;
            drop(follower.follow_json(resource, options.in_namespace(namespace), read, convert));
        }
        Reach::Nowhere(gap) => {
            watches.gaps.extend(gap);
            return Ok(());
        }
    }
    watches.lists += 1;
    watches.health.push((name, health));
    Ok(())
}

async fn probe_reach(client: &Client, resource: &ApiResource, namespace: &str, only: bool) -> anyhow::Result<Reach> {
    let ask = async |api: Api<DynamicObject>| match api.list_metadata(&ListParams::default().limit(1)).await {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(Err(status)),
        Err(error) => Err(anyhow::Error::new(error).context(format!("failed to list {}", name_resource(resource)))),
    };
    let mut refused = None;
    if !only {
        match ask(Api::all_with(client.clone(), resource)).await? {
            Ok(()) => return Ok(Reach::All),
            Err(status) => refused = Some(status),
        }
    }
    if !namespace.is_empty() && refused.as_ref().is_none_or(|status| status.code == 403) {
        match ask(Api::namespaced_with(client.clone(), namespace, resource)).await? {
            Ok(()) => return Ok(Reach::Namespace),
            Err(status) => refused = Some(status),
        }
    }
    // A kind that the server does not have has no objects.
    let gap = refused
        .filter(|status| status.code == 403)
        .map(|status| Gap { what: name_resource(resource), why: status.message.clone() });
    Ok(Reach::Nowhere(gap))
}
