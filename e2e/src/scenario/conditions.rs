//! What a scenario waits for.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{
    PATIENCE, Scenario,
    waiting::{gone, until},
};
use crate::{kinds::Kind, world::api};

impl Scenario {
    /// Waits until `met` holds for an object on the host, and returns it.
    ///
    /// # Errors
    /// If it does not within the scenario's patience: the error shows the last state.
    pub async fn until(
        &self,
        kind: Kind,
        name: &str,
        what: &str,
        met: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        until(self.api(kind), name, what, met).await
    }

    /// The same in a member.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn until_in_member(
        &self,
        member: &str,
        kind: Kind,
        name: &str,
        what: &str,
        met: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        until(self.member_api(member, kind)?, name, what, met).await
    }

    /// Waits until an event with this reason is about an object of this name.
    ///
    /// # Errors
    /// If there is none within the scenario's patience.
    pub async fn until_told(&self, name: &str, reason: &str) -> anyhow::Result<()> {
        self.until_told_that(name, reason, "").await
    }

    /// Waits until such an event says these words. Another may come before it: what is late on a busy host has the same
    /// reason as what is refused.
    ///
    /// # Errors
    /// If none says so within the scenario's patience, with what the others say.
    pub async fn until_told_that(&self, name: &str, reason: &str, words: &str) -> anyhow::Result<()> {
        let mut said = Vec::new();
        let told = async {
            loop {
                let is_meant = |event: &Value| event["reason"] == reason && event["involvedObject"]["name"] == name;
                let events = self.list(Kind::Event).await?.into_iter().filter(is_meant);
                said = events.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect();
                if said.iter().any(|message| message.contains(words)) {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let told = tokio::time::timeout(PATIENCE, told).await;
        let late =
            || anyhow::bail!("waited {PATIENCE:?} in vain for an event {reason} about {name}: {words}; {said:?}");
        told.unwrap_or_else(|_| late())
    }

    /// Writes an annotation of a Cluster that can not be read, and takes it away again: it is refused, or, where the
    /// server of Clusters runs no admission, as Karmada's, an event tells it.
    ///
    /// # Errors
    /// If nobody says what is wrong within the scenario's patience.
    pub async fn write_unreadable_annotation(&self, cluster: &str, annotation: &str) -> anyhow::Result<()> {
        let set = |value: Value| json!({"metadata": {"annotations": {annotation: value}}});
        let words = format!("metadata.annotations[{annotation}]: ");
        if let Err(refused) = self.patch(Kind::Cluster, cluster, &set("soon".into())).await {
            let said = format!("{refused:#}");
            ensure!(said.contains(&words) && said.contains("for example: "), "{said}");
            return Ok(());
        }
        let events = api(&self.world.host, &Kind::Event.resource(), Some("default"));
        let is_told = |event: &kube::api::DynamicObject| {
            event.data["reason"] == "ClusterMisconfigured"
                && event.data["involvedObject"]["name"] == cluster
                && event.data["message"].as_str().is_some_and(|message| message.contains(&words))
        };
        let told = async {
            while !events.list(&kube::api::ListParams::default()).await?.iter().any(is_told) {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            anyhow::Ok(())
        };
        let told = tokio::time::timeout(PATIENCE, told).await;
        self.patch(Kind::Cluster, cluster, &set(Value::Null)).await?;
        told.with_context(|| format!("nobody said what is wrong with {annotation} of {cluster}"))?
    }

    /// Waits until an object on the host is gone.
    ///
    /// # Errors
    /// If it still is there after the scenario's patience.
    pub async fn until_gone(&self, kind: Kind, name: &str) -> anyhow::Result<()> {
        gone(self.api(kind), name).await
    }

    /// Waits until an object in a member is gone.
    ///
    /// # Errors
    /// As [`Self::until_gone`].
    pub async fn until_gone_in_member(&self, member: &str, kind: Kind, name: &str) -> anyhow::Result<()> {
        gone(self.member_api(member, kind)?, name).await
    }

    /// Waits until a Volcano Job's aggregated status shows this phase.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn until_phase(&self, job: &str, phase: &str) -> anyhow::Result<Value> {
        self.until(Kind::Job, job, &format!("is {phase}"), |job| job["status"]["state"]["phase"] == phase).await
    }

    /// Waits until the PodGroup of a workload meets a condition, and returns it.
    ///
    /// # Errors
    /// If there is none within the scenario's patience.
    pub async fn until_podgroup(
        &self,
        workload: &Value,
        what: &str,
        met: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let uid = workload["metadata"]["uid"].as_str().context("the workload has no uid: was it created?")?;
        let mut last = None;
        let told = async {
            loop {
                let groups = self.list(Kind::PodGroup).await?;
                last = groups.into_iter().find(|group| group["metadata"]["ownerReferences"][0]["uid"] == uid);
                if let Some(group) = last.take_if(|group| met(group)) {
                    return Ok(group);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, told).await;
        match found {
            Ok(found) => found,
            Err(_) => anyhow::bail!("waited {PATIENCE:?} in vain until the PodGroup of {uid} {what}; it is {last:?}"),
        }
    }

    /// The clusters of a workload's binding, with replicas, once it is placed.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn until_placed(&self, binding: &str) -> anyhow::Result<Vec<(String, u64)>> {
        let placed = |binding: &Value| binding["spec"]["clusters"].as_array().is_some_and(|all| !all.is_empty());
        let binding = self.until(Kind::Binding, binding, "is placed", placed).await?;
        let clusters = binding["spec"]["clusters"].as_array().cloned().unwrap_or_default();
        let read = |c: &Value| (c["name"].as_str().unwrap_or_default().to_owned(), c["replicas"].as_u64().unwrap_or(0));
        Ok(clusters.iter().map(read).collect())
    }
}
