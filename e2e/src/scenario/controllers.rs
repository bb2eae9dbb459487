//! What a scenario writes in a member in the place of a controller or a kubelet there.

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::Scenario;
use crate::kinds::Kind;

impl Scenario {
    /// Creates an object in each member that other scenarios may use too and that stays.
    ///
    /// # Errors
    /// If a member refuses it.
    pub async fn create_shared_in_members(&self, kind: Kind, object: &Value) -> anyhow::Result<()> {
        for member in self.members() {
            match self
                .member_api(member, kind)?
                .create(&PostParams::default(), &serde_json::from_value(object.clone())?)
                .await
            {
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
                result => drop(result?),
            }
        }
        Ok(())
    }

    /// Writes the status of an object in a member, as its controller there would.
    ///
    /// # Errors
    /// If the member refuses it.
    pub async fn write_status_in_member(
        &self,
        member: &str,
        kind: Kind,
        name: &str,
        status: &Value,
    ) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        self.member_api(member, kind)?.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Ends a pod in a member once it runs, by what its kubelet would write of containers that end with this code.
    ///
    /// # Errors
    /// If it does not run within the scenario's patience, or the member refuses.
    pub async fn end_pod_in_member(&self, member: &str, name: &str, exit_code: i32) -> anyhow::Result<()> {
        let api = self.member_api(member, Kind::Pod)?;
        loop {
            let runs = |pod: &Value| pod["status"]["phase"] == "Running";
            let pod = self.until_in_member(member, Kind::Pod, name, "runs", runs).await?;
            let mut containers = pod["status"]["containerStatuses"].clone();
            for container in containers.as_array_mut().into_iter().flatten() {
                let reason = if exit_code == 0 { "Completed" } else { "Error" };
                let ended = json!({"exitCode": exit_code, "reason": reason});
                container["state"] = json!({"terminated": ended});
                container["ready"] = false.into();
                container["started"] = false.into();
            }
            let phase = if exit_code == 0 { "Succeeded" } else { "Failed" };
            let status = json!({"phase": phase, "containerStatuses": containers});
            let ended = json!({"metadata": {"uid": pod["metadata"]["uid"]}, "status": status});
            match api.patch_status(name, &PatchParams::default(), &Patch::Merge(&ended)).await {
                // It went meanwhile, or another has come: that one then.
                Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
                result => return Ok(result.map(drop)?),
            }
        }
    }

    /// Has a Volcano Job complete wherever it was placed: ends all its pods, each once it runs.
    ///
    /// # Errors
    /// If a pod does not run within the scenario's patience, or a member refuses.
    pub async fn complete_job_in_members(&self, name: &str, clusters: &[(String, u64)]) -> anyhow::Result<()> {
        for (member, _) in clusters {
            let copy = self.until_in_member(member, Kind::Job, name, "is there", |_| true).await?;
            for task in copy["spec"]["tasks"].as_array().into_iter().flatten() {
                let task_name = task["name"].as_str().unwrap_or_default();
                for index in 0..task["replicas"].as_u64().unwrap_or(0) {
                    self.end_pod_in_member(member, &format!("{name}-{task_name}-{index}"), 0).await?;
                }
            }
        }
        Ok(())
    }
}
