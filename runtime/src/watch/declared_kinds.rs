//! The kinds of workload that admins tell by data: known before anything else is read, and followed as they come.
//!
//! Rule: a component declares what the host has before it follows any workload, so that none of them is taken for an
//! object that nobody queues. Later ones, and changes, count as they come: the objects of the kind are read anew then.
//! A host without the definition tells none. The objects of a kind are followed even if nobody granted that yet: they
//! count once they may be listed, and nothing waits for them.

use std::{collections::BTreeMap, time::Duration};

use caldera_crds::workload::{
    WorkloadKind,
    declared::declare_kind,
    kind_declaration::{KindDeclaration, KindDeclarationSpec},
};
use kube::{Client, Resource, runtime::watcher};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Event, Follower, WatchOptions, api_resource, list_json};
use crate::client::describe_error;

/// After a read that failed.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// Declares what the host has now.
///
/// # Errors
/// If it does not answer.
pub async fn read_declared_kinds(client: &Client) -> Result<(), kube::Error> {
    let (group, version) = (KindDeclaration::group(&()), KindDeclaration::version(&()));
    let resource = api_resource(&group, &version, &KindDeclaration::kind(&()), &KindDeclaration::plural(&()));
    match list_json(client.clone(), &resource, None, None, read_declaration).await {
        Ok(all) => all.iter().for_each(|told| {
            declare_or_warn(told);
        }),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
            tracing::debug!(why = status.message, "the host tells no kinds by data");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Declares what the host has now, as soon as it answers.
pub async fn declare_kinds(client: &Client, stop: &CancellationToken) {
    while let Err(error) = read_declared_kinds(client).await {
        let error = describe_error(&error);
        tracing::warn!(error, "can not read which kinds are told by data; trying again until it works");
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(READ_AGAIN) => {}
        }
    }
}

fn read_declaration(object: Value) -> Option<KindDeclarationSpec> {
    serde_json::from_value::<KindDeclaration>(object).ok().map(|told| told.spec)
}

fn declare_or_warn(told: &KindDeclarationSpec) -> Option<WorkloadKind> {
    match declare_kind(told) {
        Ok(kind) => Some(kind),
        Err(why) => {
            tracing::warn!(group = told.group, kind = told.kind, %why, "a WorkloadKind does not count");
            None
        }
    }
}

impl<T: Send + 'static> Follower<T> {
    /// Follows the kinds that are told by data: `follow` is called for each, and again when it is told anew.
    pub fn follow_declared_kinds(&self, follow: impl Fn(&Self, WorkloadKind, WatchOptions) + Send + 'static) {
        let mut followed: BTreeMap<(String, String), (KindDeclarationSpec, DropGuard)> = BTreeMap::new();
        let (client, events, all) = (self.client.clone(), self.events.clone(), self.stop.clone());
        let mut observe = move |told: KindDeclarationSpec| {
            let key = (told.group.clone(), told.kind.clone());
            if followed.get(&key).is_some_and(|(known, _)| *known == told) {
                return;
            }
            let Some(kind) = declare_or_warn(&told) else { return };
            let stop = all.child_token();
            let follower = Self::new(client.clone(), events.clone(), stop.clone());
            // What is told anew ends what followed it before.
            followed.insert(key, (told, stop.drop_guard()));
            follow(&follower, kind, WatchOptions::default().allow_unlisted_kind());
        };
        let options = WatchOptions::from(watcher::Config::default()).allow_absent_kind(true);
        let convert = move |event| -> Option<T> {
            match event {
                Event::Reset(all) => all.into_iter().for_each(&mut observe),
                Event::Applied(one) => observe(one),
                // What runs of it is still looked after.
                Event::Deleted(_) => {}
            }
            None
        };
        self.follow_typed(options, |told: KindDeclaration| Some(told.spec), convert);
    }
}
