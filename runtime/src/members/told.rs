//! Telling what is published of a member as if it was watched.

use std::{sync::Arc, time::Duration};

use caldera_core::fleet::{Origin, Update};
use caldera_crds::published::{ClusterInventory, Malformed, Published, Set};
use kube::{Api, Client};
use tokio::time::Instant;

use super::{
    Member, PROBE_EVERY,
    board::{Trusted, age},
    reach::Connection,
};

/// How long the host may take to say what is published of a member.
const READ_WITHIN: Duration = Duration::from_secs(2);

impl Member {
    /// What is published of the member, where it can be trusted now.
    fn trusted(&self) -> Option<Trusted> {
        let trusted = self.posted.as_ref()?.borrow().clone()?;
        let refused = self.refused.as_ref().is_some_and(|(refused, _)| Arc::ptr_eq(refused, &trusted.published));
        (trusted.until > Instant::now() && !refused).then_some(trusted)
    }

    /// Waits until something else is published.
    async fn posted_anew(&mut self) {
        if let Some(posted) = &mut self.posted
            && posted.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// Waits until a collector is there and in time.
    pub(super) async fn is_published(&mut self) {
        while self.trusted().is_none_or(|trusted| trusted.late <= Instant::now()) {
            self.posted_anew().await;
        }
    }

    /// Tells what is published for as long as it can be trusted, if it can. Once its collector is late the member is
    /// reached for: with success the numbers are replaced before they are too old.
    pub(super) async fn tell_published(&mut self) -> Option<Connection> {
        let mut told: Option<Arc<Published>> = None;
        loop {
            if let Some(posted) = &mut self.posted {
                posted.mark_unchanged();
            }
            let Some(trusted) = self.trusted() else { break };
            let Trusted { published, late, until } = trusted;
            let is_late = late <= Instant::now();
            self.tell(Update::From(origin(&published, is_late))).await;
            if !told.as_ref().is_some_and(|told| Arc::ptr_eq(told, &published)) {
                match updates(&published, told.as_deref()) {
                    Ok(updates) => {
                        for update in updates {
                            self.tell(update).await;
                        }
                    }
                    Err(error) => {
                        let cluster = &self.way.cluster;
                        tracing::warn!(cluster, %error, "what is published of the member is no inventory");
                        self.refused = Some((published, error.to_string()));
                        break;
                    }
                }
                if told.is_none() {
                    self.tell(Update::Up).await;
                }
                told = Some(published);
            }
            self.until = Some(until);
            let way = self.way.clone();
            tokio::select! {
                () = self.posted_anew() => {}
                () = tokio::time::sleep_until(late), if !is_late => {}
                () = tokio::time::sleep_until(until) => {}
                connection = patiently(&way), if is_late => return Some(connection),
            }
        }
        if told.is_some() {
            let why = "what its collector published is too old, or gone";
            tracing::warn!(cluster = self.way.cluster, "{why}");
            self.tell_down(why.to_owned()).await;
        }
        None
    }
}

/// What is told of what was published since `before`.
fn updates(published: &Published, before: Option<&Published>) -> Result<Vec<Update>, Malformed> {
    let mut updates: Vec<Update> = published.changes_since(before)?.into_iter().map(Update::Change).collect();
    let queues = published.decode_queues()?;
    if before.map(Published::decode_queues).transpose()?.as_ref() != Some(&queues) {
        updates.push(Update::Queues(queues));
    }
    Ok(updates)
}

async fn patiently(way: &super::Way) -> Connection {
    loop {
        if let Ok(connection) = way.connect().await {
            return connection;
        }
        tokio::time::sleep(PROBE_EVERY).await;
    }
}

fn origin(published: &Published, is_late: bool) -> Origin {
    let heartbeat = &published.heartbeat;
    let fault = heartbeat.fault.as_ref().map(|fault| format!("its collector says: {fault}"));
    let silent = || "its collector has not said since that it is there".to_owned();
    let late = fault.or_else(|| is_late.then(silent));
    Origin::Published { seen_at: heartbeat.seen_at.clone(), late }
}

/// What is published of a member, where it can be trusted now.
pub(super) async fn published_now(host: &Client, cluster: &str) -> Option<Vec<Update>> {
    let objects: Api<ClusterInventory> = Api::all(host.clone());
    let read = async {
        let mut set = Set::default();
        set.apply(objects.get_opt(cluster).await.ok()??);
        for index in 0..set.parts_wanted() {
            set.apply(objects.get_opt(&format!("{cluster}.{index}")).await.ok()??);
        }
        set.complete_division()
    };
    let published = tokio::time::timeout(READ_WITHIN, read).await.ok()??;
    let (seen, beat) = age(&published, jiff::Timestamp::now())?;
    let mut all = vec![Update::From(origin(&published, seen >= beat * 2))];
    all.extend(updates(&published, None).ok()?);
    all.push(Update::Up);
    Some(all)
}
