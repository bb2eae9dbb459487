//! Objects of another server, stored as they were there: with their UIDs, times, owners, statuses and field managers.
//!
//! Rule: as an etcd is restored from a snapshot (`etcdctl snapshot restore`). Nobody is asked and nothing is filled in
//! but what the storage does on reading an older form; the versions are this server's own. An object that is there
//! already stays as it is. Definitions are not restored: their kinds must be served.

use serde_json::Value;

use crate::registry_form::to_storage;
use crate::server::ApiServer;
use crate::store::{Change, Expect, Key};

impl ApiServer {
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
