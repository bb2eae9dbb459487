//! Namespaces: which exist from the start, and what may still be written into one (`NamespaceLifecycle`).

use serde_json::{Value, json};

use crate::clock::seconds;
use crate::server::ApiServer;
use crate::store::{Change, Expect, Key};

/// The namespaces of a new cluster.
pub const INITIAL: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

pub fn create_initial(server: &ApiServer) {
    let now = seconds(server.now());
    let registry = server.registry();
    let Some(resource) = registry.get("", "v1", "namespaces") else { return };
    for name in INITIAL {
        let object: Value = json!({
            "kind": "Namespace",
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "uid": uuid::Uuid::new_v4().to_string(),
                "creationTimestamp": now,
                "labels": {"kubernetes.io/metadata.name": name},
            },
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        });
        // The store is new: nobody can have raced us.
        let _ = server.store().commit(
            &resource.storage,
            &Key::new("", name),
            Expect::Absent,
            Change::Put(object, resource.form),
        );
    }
}
