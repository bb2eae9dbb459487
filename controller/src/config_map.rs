//! How a ConfigMap of the controller's own is written: whole, by server-side apply.

use caldera_runtime::{
    watch::api_resource,
    write::{Body, Write},
};
use serde_json::{Value, json};

/// Applies a ConfigMap that is ours alone.
pub(crate) fn build_config_map_write(namespace: &str, name: &str, data: Value, manager: &'static str) -> Write {
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "caldera"}},
        "data": data,
    });
    Write {
        resource: api_resource("", "v1", "ConfigMap", "configmaps"),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: None,
        body: Body::Apply { object, manager },
    }
}
