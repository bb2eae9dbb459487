//! Bringing a member in, as `karmadactl join` does: its token and CA in a secret, and a Cluster that names them.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::plan::default_models;
use crate::karmada::{
    api::{ApiError, Server},
    names,
    object::ObjectExt,
};

/// How a member is reached, and what is known of where it is.
#[derive(Debug, Clone, Default)]
pub struct Member {
    /// Name of the Cluster.
    pub name: String,
    /// URL of its API server.
    pub endpoint: String,
    /// Bearer token with every right.
    pub token: String,
    /// PEM of the CA that signed its certificate.
    pub ca_pem: String,
    /// Labels of the Cluster.
    pub labels: BTreeMap<String, String>,
    /// `spec.provider`.
    pub provider: Option<String>,
    /// `spec.region`.
    pub region: Option<String>,
    /// `spec.zones`.
    pub zones: Vec<String>,
}

/// What a join writes, in order.
#[must_use]
pub fn join_objects(member: &Member) -> Vec<Value> {
    let secret = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": name, "namespace": names::CLUSTER_NAMESPACE},
            "data": {"token": STANDARD.encode(&member.token), "caBundle": STANDARD.encode(&member.ca_pem)}})
    };
    let impersonator = format!("{}-impersonator", member.name);
    let mut cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": member.name, "labels": member.labels},
        "spec": {
            "syncMode": "Push",
            "apiEndpoint": member.endpoint,
            "secretRef": {"namespace": names::CLUSTER_NAMESPACE, "name": member.name},
            "impersonatorSecretRef": {"namespace": names::CLUSTER_NAMESPACE, "name": impersonator},
            "resourceModels": default_models(),
        },
    });
    cluster.put_or_remove(&["spec", "provider"], member.provider.clone().map(Value::from));
    cluster.put_or_remove(&["spec", "region"], member.region.clone().map(Value::from));
    if !member.zones.is_empty() {
        cluster.put(&["spec", "zones"], json!(member.zones));
    }
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names::CLUSTER_NAMESPACE}}),
        secret(&member.name),
        secret(&impersonator),
        cluster,
    ]
}

/// Joins a member, or renews its secret when it has joined before.
///
/// # Errors
/// When the host refuses.
pub async fn join_member(host: &Client, member: &Member) -> Result<(), ApiError> {
    let server = Server::new("host", host.clone(), CancellationToken::new());
    let writer = server.writer("karmadactl");
    for object in join_objects(member) {
        match writer.create(&object).await {
            Ok(_) => {}
            Err(error) if error.already_exists() => {
                let live = server.get_live(&object.gvk(), object.namespace(), object.name()).await?;
                for field in ["data", "spec"] {
                    if let (Some(live), Some(value)) = (&live, object.get(field)) {
                        let mut renewed = live.clone();
                        for (key, value) in value.as_object().into_iter().flatten() {
                            renewed.put(&[field, key], value.clone());
                        }
                        writer.modify(live, "", |one| one.put(&[field], renewed[field].clone())).await?;
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
