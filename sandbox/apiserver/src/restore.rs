//! Objects of another server, stored as they were there: with their UIDs, times, owners, statuses and field managers.
//! And this server's own data as they were at an earlier moment.
//!
//! Rule: as an etcd is restored from a snapshot (`etcdctl snapshot restore`). Nobody is asked and nothing is filled in
//! but what the storage does on reading an older form; the versions are this server's own. An object that is there
//! already stays as it is. Definitions are not restored: their kinds must be served.
//!
//! A server that goes back ([`ApiServer::go_back`]) has the versions of then, as without `--bump-revision`: all watches
//! end, and one that asks for a version that is not there yet is silent until there is.

use serde_json::Value;

use crate::registry_form::to_storage;
use crate::server::ApiServer;
use crate::store::{Change, Expect, Kept, Key};

/// All that a server had at one moment, but for the definitions of its kinds.
#[derive(Debug, Clone)]
pub struct Backup(Kept);

impl Backup {
    /// The version of the last write to anything.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.revision
    }
}

impl ApiServer {
    /// What there is now.
    #[must_use]
    pub fn back_up(&self) -> Backup {
        Backup(self.store().keep())
    }

    /// All objects and versions are those of the backup of this server, and all watches end. The kinds stay as they
    /// are.
    pub fn go_back(&self, backup: &Backup) {
        self.store().go_back(&backup.0);
    }

    /// Stores the objects.
    ///
    /// # Errors
    /// With the first whose kind is not served.
    pub fn restore(&self, objects: Vec<Value>) -> Result<(), String> {
        let registry = self.registry();
        for object in objects {
            let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (api_version, kind) = (text("/apiVersion"), text("/kind"));
            let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
            let resource = registry.by_kind(group, version, &kind).ok_or_else(|| {
                format!("{api_version} {kind} is not served: {} can not be restored", text("/metadata/name"))
            })?;
            let key = Key::new(text("/metadata/namespace"), text("/metadata/name"));
            let (value, form) = to_storage(resource, object);
            // It is there already, as `default` is.
            let _ = self.store().commit(&resource.storage, &key, Expect::Absent, Change::Put(value, form));
        }
        Ok(())
    }
}
