//! Objects in members, as a scenario lists, makes and changes them there.

use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::Value;

use super::{Scenario, waiting::retry_late_server};
use crate::{kinds::Kind, world::api};

impl Scenario {
    /// All objects of a kind in a member; of one namespace, or everywhere.
    pub async fn list_in_member(&self, member: &str, kind: Kind, namespace: Option<&str>) -> Vec<Value> {
        let Some(client) = self.world.members.get(member) else { return Vec::new() };
        let api = api(client, &kind.resource(), namespace);
        let Ok(all) = api.list(&ListParams::default()).await else { return Vec::new() };
        all.items.into_iter().filter_map(|object| serde_json::to_value(object).ok()).collect()
    }

    /// An object in a member, in the scenario's namespace.
    ///
    /// # Errors
    /// If the member does not answer.
    pub async fn get_in_member(&self, member: &str, kind: Kind, name: &str) -> anyhow::Result<Option<Value>> {
        Ok(self.member_api(member, kind)?.get_opt(name).await?.map(serde_json::to_value).transpose()?)
    }

    /// Creates an object in a member.
    ///
    /// # Errors
    /// If the member refuses it.
    pub async fn create_in_member(&self, member: &str, kind: Kind, object: Value) -> anyhow::Result<()> {
        let object: DynamicObject = serde_json::from_value(object)?;
        let api = self.member_api(member, kind)?;
        retry_late_server(async || api.create(&PostParams::default(), &object).await).await?;
        Ok(())
    }

    /// Deletes an object in a member.
    ///
    /// # Errors
    /// If the member refuses it.
    pub async fn delete_in_member(&self, member: &str, kind: Kind, name: &str) -> anyhow::Result<()> {
        self.member_api(member, kind)?.delete(name, &DeleteParams::background()).await?;
        Ok(())
    }

    /// Merges `patch` into an object in a member.
    ///
    /// # Errors
    /// If the member refuses it.
    pub async fn patch_in_member(&self, member: &str, kind: Kind, name: &str, patch: &Value) -> anyhow::Result<()> {
        let api = self.member_api(member, kind)?;
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }
}
