//! Replaying what a collector published of a member as if the member was watched.
//!
//! Rule: a published inventory is replayed for as long as [`super::published`] trusts it. Once its collector is late
//! the member is connected to beside it; with success the numbers are replaced before they are too old.

use std::{sync::Arc, time::Duration};

use caldera_core::{
    fleet::{Origin, Update},
    inventory::MemberLoad,
};
use caldera_crds::published::{ClusterInventory, Load, Malformed, MemberObjects, Published};
use kube::{Api, Client};
use tokio::time::Instant;

use super::{
    Access, Member, PROBE_PERIOD,
    connection::Connection,
    published::{Trusted, heartbeat_age},
};

/// How long the host may take to say what is published of a member.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

impl Member {
    /// What is published of the member, where it can be trusted now.
    fn trusted_inventory(&self) -> Option<Trusted> {
        let trusted = self.published.as_ref()?.borrow().clone()?;
        let malformed = self.malformed.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, &trusted.published));
        (trusted.until > Instant::now() && !malformed).then_some(trusted)
    }

    /// Waits until something else is published.
    async fn wait_for_publication(&mut self) {
        if let Some(published) = &mut self.published
            && published.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// Waits until a collector publishes, and in time.
    pub(super) async fn wait_for_collector(&mut self) {
        while self.trusted_inventory().is_none_or(|trusted| trusted.late <= Instant::now()) {
            self.wait_for_publication().await;
        }
    }

    /// Replays what is published for as long as it can be trusted. Ends with a connection where the collector was late
    /// and the member answered.
    pub(super) async fn replay_published(&mut self) -> Option<Connection> {
        let mut replayed: Option<Arc<Published>> = None;
        let (mut reported, mut images, mut links) = (None, None, None);
        loop {
            if let Some(published) = &mut self.published {
                published.mark_unchanged();
            }
            let Some(Trusted { published, late, until }) = self.trusted_inventory() else { break };
            let is_late = late <= Instant::now();
            self.send_update(Update::From(origin_of(&published, is_late))).await;
            let load = load_of(&published);
            if load != reported {
                self.send_update(Update::Load(load.clone())).await;
                reported = load;
            }
            let now = published.heartbeat.decode_images();
            if images.as_ref() != Some(&now) {
                self.send_update(Update::Images(now.clone())).await;
                images = Some(now);
            }
            let now = published.heartbeat.decode_links();
            if links.as_ref() != Some(&now) {
                self.send_update(Update::Links(now.clone())).await;
                links = Some(now);
            }
            if !replayed.as_ref().is_some_and(|before| Arc::ptr_eq(before, &published)) {
                match updates_since(&published, replayed.as_deref()) {
                    Ok(updates) => {
                        for update in updates {
                            self.send_update(update).await;
                        }
                    }
                    Err(error) => {
                        let cluster = &self.access.cluster;
                        tracing::warn!(cluster, %error, "what is published of the member is no inventory");
                        self.malformed = Some((published, error.to_string()));
                        break;
                    }
                }
                if replayed.is_none() {
                    self.send_update(Update::Up).await;
                }
                replayed = Some(published);
            }
            self.trusted_until = Some(until);
            let access = self.access.clone();
            tokio::select! {
                biased;
                () = self.wait_for_publication() => {}
                () = tokio::time::sleep_until(late), if !is_late => {}
                () = tokio::time::sleep_until(until) => {}
                connection = connect_with_retries(&access), if is_late => return Some(connection),
            }
        }
        if replayed.is_some() {
            let why = "what its collector published is too old, or gone";
            tracing::warn!(cluster = self.access.cluster, "{why}");
            self.send_down(why.to_owned()).await;
        }
        None
    }
}

/// The updates from what was published before to what is published now.
fn updates_since(published: &Published, before: Option<&Published>) -> Result<Vec<Update>, Malformed> {
    let mut updates: Vec<Update> = published.changes_since(before)?.into_iter().map(Update::Change).collect();
    let queues = published.decode_queues()?;
    if before.map(Published::decode_queues).transpose()?.as_ref() != Some(&queues) {
        updates.push(Update::Queues(queues));
    }
    Ok(updates)
}

async fn connect_with_retries(access: &Access) -> Connection {
    loop {
        if let Ok(connection) = access.connect_member().await {
            return connection;
        }
        tokio::time::sleep(PROBE_PERIOD).await;
    }
}

fn load_of(published: &Published) -> Option<MemberLoad> {
    published.heartbeat.load.as_ref().and_then(Load::to_member_load)
}

fn origin_of(published: &Published, is_late: bool) -> Origin {
    let heartbeat = &published.heartbeat;
    let fault = heartbeat.fault.as_ref().map(|fault| format!("its collector says: {fault}"));
    let silent = || "its collector has not said since that it is there".to_owned();
    let late = fault.or_else(|| is_late.then(silent));
    Origin::Published { seen_at: heartbeat.seen_at.clone(), late }
}

/// What is published of a member, read once, where it can be trusted now.
pub(super) async fn read_published(host: &Client, cluster: &str) -> Option<Vec<Update>> {
    let objects: Api<ClusterInventory> = Api::all(host.clone());
    let read = async {
        let mut set = MemberObjects::default();
        set.apply(objects.get_opt(cluster).await.ok()??);
        for index in 0..set.parts_wanted() {
            set.apply(objects.get_opt(&format!("{cluster}.{index}")).await.ok()??);
        }
        set.assemble_if_complete()
    };
    let published = tokio::time::timeout(READ_TIMEOUT, read).await.ok()??;
    let (age, period) = heartbeat_age(&published, jiff::Timestamp::now())?;
    let mut all = vec![
        Update::From(origin_of(&published, age >= period * 2)),
        Update::Load(load_of(&published)),
        Update::Images(published.heartbeat.decode_images()),
        Update::Links(published.heartbeat.decode_links()),
    ];
    all.extend(updates_since(&published, None).ok()?);
    all.push(Update::Up);
    Some(all)
}
