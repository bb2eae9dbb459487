//! Namespaces: which exist from the start, and what may still be written into one (`NamespaceLifecycle`).

use serde_json::{Value, json};

use crate::call::Call;
use crate::clock::write_seconds;
use crate::error::{Cause, Status};
use crate::server::ApiServer;
use crate::store::{Change, Expect, Key};

/// The namespaces of a new cluster.
pub const INITIAL: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

pub fn create_initial(server: &ApiServer) {
    let now = write_seconds(server.now());
    let registry = server.registry();
    let Some(resource) = registry.get("", "v1", "namespaces") else { return };
    for name in INITIAL {
        let object: Value = json!({
            "kind": "Namespace",
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "uid": server.new_id().to_string(),
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

/// A creation needs its namespace, and an open one (admission plugin `NamespaceLifecycle`).
pub fn check_open(call: &Call) -> Result<(), Status> {
    let name = call.namespace();
    if name.is_empty() {
        return Ok(());
    }
    let namespace = call.server.store().get("namespaces", &Key::new("", name));
    let Some(namespace) = namespace else { return Err(Status::not_found("", "namespaces", name)) };
    if !crate::meta::is_deleting(&namespace.value) {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {name} because it is being terminated");
    let sent = || serde_json::from_slice::<Value>(&call.body).ok();
    let names =
        |v: Value| [crate::meta::object_name(&v), crate::meta::metadata_text(&v, "generateName")].map(str::to_owned);
    let object_name = std::iter::once(call.info.name.clone())
        .chain(sent().into_iter().flat_map(names))
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "Unknown".to_owned());
    let cause = Cause {
        reason: "NamespaceTerminating".into(),
        message: format!("namespace {name} is being terminated"),
        field: "metadata.namespace".into(),
    };
    Err(Status::forbidden(&call.resource.group, &call.resource.plural, &object_name, &why).with_causes(vec![cause]))
}
