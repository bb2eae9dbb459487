//! The host comes back from a backup: everything that was written since is gone, and members run what they run.
//!
//! An SRE does what docs/tasks/backup.md says, in that order: controllers and schedulers are stopped, the data is
//! restored, the webhook begins anew, copies that the host has no Work of are deleted, and so are jobs that had ended
//! and have no copy any more. Karmada begins anew, and our parts are started once statuses are back. Users find out
//! what is gone, and do most of it once more.

use std::collections::{BTreeMap, BTreeSet};

use caldera_runtime::write::{self, Body, Write};
use embedded_apiserver::{ApiServer, Backup};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::{
    history::Name,
    hostile,
    invariants::Invariants,
    prng::Prng,
    processes::{Process, World},
    setting::clusters,
    stand_in::{StandIn, write_to},
    story::{Action, Story},
    world::{HistoryRun, STEP},
};

/// Nothing that a process sent is under way for longer.
const UNDER_WAY: Duration = Duration::from_secs(30);

/// Within that Karmada has read every copy again: members are slow by 15 s at most.
const UNTIL_READ: Duration = Duration::from_secs(40);

/// Once in so many cases nobody submits again what is lost.
const GIVEN_UP_OF: u64 = 4;

/// What there was at one moment, and what was seen of it.
struct Past {
    backup: Backup,
    objects: BTreeMap<Name, Value>,
    invariants: Invariants,
    hostile: Option<hostile::Past>,
}

/// The last backup, and what users did since.
pub struct Restores {
    server: ApiServer,
    prng: Prng,
    past: Option<Past>,
    done_since: Vec<Action>,
}

impl Restores {
    pub fn new(seed: u64, server: ApiServer) -> Self {
        Self { server, prng: Prng::new(seed ^ 0x0072_6573_746f_7265), past: None, done_since: Vec::new() }
    }

    /// Users did this, and will do it again if it is lost.
    pub fn note(&mut self, action: &Action) {
        let is_of_host = !matches!(
            action,
            Action::Reach(..)
                | Action::Cut(..)
                | Action::Ready(..)
                | Action::Lost(..)
                | Action::BackUp
                | Action::Restore
        );
        if self.past.is_some() && is_of_host {
            self.done_since.push(action.clone());
        }
    }

    /// Everything that was observed is in the backup, and nothing else.
    pub async fn back_up(&mut self, run: &mut HistoryRun) {
        let backup = loop {
            let backup = self.server.back_up();
            run.check().await;
            if self.server.back_up().version() == backup.version() {
                break backup;
            }
        };
        self.done_since.clear();
        self.past = Some(Past {
            backup,
            objects: run.history.list_now(),
            invariants: run.invariants.clone(),
            hostile: run.hostile.as_ref().map(hostile::Hostile::list_now),
        });
    }

    /// What users do again, in its order. Without a backup nothing happens.
    pub async fn restore(
        &mut self,
        world: &mut World,
        stand_in: &mut StandIn,
        run: &mut HistoryRun,
        story: &mut Story,
    ) -> Vec<Action> {
        let Some(past) = self.past.take() else { return Vec::new() };
        for process in Process::ALL.into_iter().filter(|process| *process != Process::Webhook) {
            world.kill(process);
        }
        sleep(UNDER_WAY).await;
        run.check().await;
        world.faults.count("restore");
        self.server.go_back(&past.backup);
        run.history.go_back(past.objects, past.backup.version());
        run.invariants.go_back(past.invariants);
        if let (Some(hostile), Some(past)) = (&mut run.hostile, past.hostile) {
            hostile.go_back(past);
        }
        // Its watches would go on from versions that are not there yet, and be silent.
        world.kill(Process::Webhook);
        world.start(Process::Webhook);
        stand_in.delete_unknown_copies().await;
        let deleted = stand_in.delete_ended_without_copies().await;
        for name in &deleted {
            assert!(!story.finish.contains(name), "{name} ended, nobody deleted it, and its copy is gone");
            run.invariants.deleted.insert(name.clone());
        }
        stand_in.restart();
        tell_clusters(world, run).await;
        for _ in 0..UNTIL_READ.as_millis() / STEP.as_millis() {
            sleep(STEP).await;
            run.check().await;
            world.must_live();
            stand_in.step(false).await;
        }
        for process in Process::ALL.into_iter().filter(|process| *process != Process::Webhook) {
            world.start(process);
        }
        let again = std::mem::take(&mut self.done_since);
        let mut given_up = self.choose_given_up(&again, run);
        given_up.extend(deleted);
        for name in &given_up {
            story.finish.remove(name);
            story.wait.remove(name);
        }
        story.actions.retain(|(_, action)| !action.workload().is_some_and(|name| given_up.contains(name)));
        again.into_iter().filter(|action| !action.workload().is_some_and(|name| given_up.contains(name))).collect()
    }

    /// Some of those that are lost.
    fn choose_given_up(&mut self, again: &[Action], run: &HistoryRun) -> BTreeSet<String> {
        let submitted = again.iter().filter(|action| matches!(action, Action::Submit(_)));
        let lost = submitted.filter_map(Action::workload).filter(|name| !run.invariants.jobs().contains_key(*name));
        lost.filter(|_| self.prng.below(GIVEN_UP_OF) == 0).map(ToOwned::to_owned).collect()
    }
}

/// Karmada says of each cluster what is so now.
async fn tell_clusters(world: &World, run: &HistoryRun) {
    for cluster in run.history.all("host", "Cluster") {
        let name = cluster["metadata"]["name"].as_str().unwrap();
        let Some(condition) = world.conditions.get(name) else { continue };
        if cluster["status"]["conditions"][0]["status"] == condition["status"] {
            continue;
        }
        let body = Body::MergePatch(json!({"status": {"conditions": [condition]}}));
        let write = Write { subresource: Some("status"), ..write_to(clusters(), "", name, body) };
        write::execute_write(&world.user, &write).await.unwrap();
    }
}
