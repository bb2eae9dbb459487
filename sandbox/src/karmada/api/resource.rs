//! How kinds are served.

use crate::karmada::object::Gvk;

/// How a kind is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Its kind.
    pub gvk: Gvk,
    /// In paths.
    pub plural: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// What may be done with it.
    pub verbs: Vec<String>,
}

impl Resource {
    pub(super) fn path(&self, namespace: &str, name: &str) -> String {
        let mut path = if self.gvk.group.is_empty() {
            format!("/api/{}", self.gvk.version)
        } else {
            format!("/apis/{}/{}", self.gvk.group, self.gvk.version)
        };
        if self.namespaced && !namespace.is_empty() {
            path += "/namespaces/";
            path += namespace;
        }
        path += "/";
        path += &self.plural;
        if !name.is_empty() {
            path += "/";
            path += name;
        }
        path
    }

    /// `jobs.batch`.
    #[must_use]
    pub fn group_resource(&self) -> String {
        let dot = if self.gvk.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.plural, self.gvk.group)
    }

    /// Whether it can be listed and watched.
    #[must_use]
    pub fn watchable(&self) -> bool {
        ["list", "watch"].iter().all(|verb| self.verbs.iter().any(|one| one == verb))
    }
}
