//! The webhook server, and its registration as `mutating-config` and `validating-config`.

use std::{io, net::SocketAddr, sync::Arc};

use axum::{Json, Router, extract::State, routing::post};
use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_runtime::{
    clock::{SharedClock, format_time},
    tls::{Authority, TlsError, server_config},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::{
    mutate::{self, Verb},
    quota, validate,
};
use crate::karmada::{
    api::{ApiError, Server},
    control::Gates,
    interpreter::lua::{customization_kind, validate_customization},
    object::{Gvk, ObjectExt},
};

/// The writer of quota usage.
pub const WEBHOOK: &str = "karmada-webhook";

/// Why there are no webhooks.
#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    /// No certificate.
    #[error("failed to make the webhooks' certificate: {0}")]
    Tls(#[from] TlsError),
    /// No port.
    #[error("failed to listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The host refused the registration.
    #[error("failed to register the webhooks: {0}")]
    Register(#[from] ApiError),
}

/// What the webhooks look at.
#[derive(Clone)]
struct Hooks {
    host: Arc<Server>,
    clock: SharedClock,
    gates: Gates,
}

fn quota_kind() -> Gvk {
    Gvk::new("policy.karmada.io/v1alpha1", "FederatedResourceQuota")
}

/// Serves the webhooks on a port of the loopback and registers them, until the shutdown.
///
/// # Errors
/// When there is no certificate or port, or the host refuses.
pub async fn serve_webhooks(
    host: &Arc<Server>,
    clock: SharedClock,
    gates: Gates,
    shutdown: CancellationToken,
) -> Result<SocketAddr, AdmissionError> {
    let wanted = SocketAddr::from(([127, 0, 0, 1], 0));
    let failed = |source| AdmissionError::Listen { address: wanted, source };
    let authority = Authority::new("karmada-webhook")?;
    let identity = authority.issue_server_identity("karmada-webhook", &["localhost"], &[wanted.ip()])?;
    let tls = server_config(&identity)?;
    let listener = std::net::TcpListener::bind(wanted).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let app = webhook_router(host, clock, gates).into_make_service();
    let handle = axum_server::Handle::new();
    let config = axum_server::tls_rustls::RustlsConfig::from_config(tls);
    let serving = axum_server::from_tcp_rustls(listener, config)
        .map_err(failed)?
        .map(|tls| tls.acceptor(axum_server::accept::NoDelayAcceptor::new()))
        .handle(handle.clone())
        .serve(app);
    tokio::spawn(async move {
        if let Err(error) = serving.await {
            error!(%error, "the webhooks' listener ended");
        }
    });
    tokio::spawn(async move {
        shutdown.cancelled().await;
        handle.graceful_shutdown(Some(std::time::Duration::from_millis(100)));
    });
    register_webhooks(host, &format!("https://{address}"), &authority.cert_pem).await?;
    info!(%address, "webhooks are served");
    Ok(address)
}

/// The webhooks, to be served at the root of a URL.
pub fn webhook_router(host: &Arc<Server>, clock: SharedClock, gates: Gates) -> Router {
    if gates.federated_quota {
        host.watch_kind(&quota_kind());
    }
    host.watch_kind(&customization_kind());
    let hooks = Hooks { host: host.clone(), clock, gates };
    Router::new().route("/mutate", post(mutate_review)).route("/validate", post(validate_review)).with_state(hooks)
}

/// Registers the webhooks that are served at a URL.
///
/// # Errors
/// When the host refuses.
pub async fn register_webhooks(host: &Arc<Server>, url: &str, ca_pem: &str) -> Result<(), ApiError> {
    let writer = host.writer(WEBHOOK);
    for desired in webhook_configurations(url, ca_pem) {
        match host.get_live(&desired.gvk(), "", desired.name()).await? {
            None => drop(writer.create(&desired).await?),
            Some(live) => {
                drop(writer.modify(&live, "", |one| one.put(&["webhooks"], desired["webhooks"].clone())).await?);
            }
        }
    }
    Ok(())
}

/// The two configurations.
#[must_use]
pub fn webhook_configurations(url: &str, ca_pem: &str) -> [Value; 2] {
    let ca = STANDARD.encode(ca_pem);
    let hook = |name: &str, path: &str, operations: &[&str], group: &str, resource: &str| {
        json!({
            "name": name,
            "clientConfig": {"url": format!("{url}{path}"), "caBundle": ca},
            "rules": [{"operations": operations, "apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "scope": "*"}],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 3,
        })
    };
    let configuration = |kind: &str, name: &str, hooks: Vec<Value>| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name, "labels": {"app": name}}, "webhooks": hooks})
    };
    let (both, create, policies, works) =
        (&["CREATE", "UPDATE"][..], &["CREATE"][..], "policy.karmada.io", "work.karmada.io");
    let mutating = vec![
        hook("propagationpolicy.karmada.io", "/mutate", both, policies, "propagationpolicies"),
        hook("clusterpropagationpolicy.karmada.io", "/mutate", both, policies, "clusterpropagationpolicies"),
        hook("overridepolicy.karmada.io", "/mutate", both, policies, "overridepolicies"),
        hook("work.karmada.io", "/mutate", both, works, "works"),
        hook("resourcebinding.karmada.io", "/mutate", create, works, "resourcebindings"),
        hook("clusterresourcebinding.karmada.io", "/mutate", create, works, "clusterresourcebindings"),
        hook("cluster.karmada.io", "/mutate", both, "cluster.karmada.io", "clusters"),
    ];
    let mut protection = hook("resourcedeletionprotection.karmada.io", "/validate", &["DELETE"], "*", "*");
    protection.put(
        &["objectSelector"],
        json!({"matchExpressions": [{"key": "resourcetemplate.karmada.io/deletion-protected", "operator": "Exists"}]}),
    );
    let validating = vec![
        hook("propagationpolicy.karmada.io", "/validate", both, policies, "propagationpolicies"),
        hook("clusterpropagationpolicy.karmada.io", "/validate", both, policies, "clusterpropagationpolicies"),
        hook("overridepolicy.karmada.io", "/validate", both, policies, "overridepolicies"),
        hook("clusteroverridepolicy.karmada.io", "/validate", both, policies, "clusteroverridepolicies"),
        hook("resourcebinding.karmada.io", "/validate", both, works, "resourcebindings"),
        hook("cluster.karmada.io", "/validate", both, "cluster.karmada.io", "clusters"),
        hook(
            "resourceinterpretercustomization.karmada.io",
            "/validate",
            both,
            "config.karmada.io",
            "resourceinterpretercustomizations",
        ),
        protection,
    ];
    [
        configuration("MutatingWebhookConfiguration", "mutating-config", mutating),
        configuration("ValidatingWebhookConfiguration", "validating-config", validating),
    ]
}

fn answer_review(request: &Value, mut response: Value) -> Json<Value> {
    response.put(&["uid"], json!(request.text("/uid")));
    Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

async fn mutate_review(State(hooks): State<Hooks>, Json(asked): Json<Value>) -> Json<Value> {
    let request = &asked["request"];
    let verb = if request.text("/operation") == "CREATE" { Verb::Create } else { Verb::Update };
    let object = &request["object"];
    let id = uuid::Uuid::new_v4().to_string();
    let mutated = mutate::mutate_object(object, verb, &id, &format_time(hooks.clock.now()));
    let mut response = json!({"allowed": true});
    if mutated != *object {
        let patch = json_patch::diff(object, &mutated);
        let bytes = serde_json::to_vec(&patch).unwrap_or_default();
        response.put(&["patchType"], json!("JSONPatch"));
        response.put(&["patch"], json!(STANDARD.encode(bytes)));
    }
    answer_review(request, response)
}

fn deny_review(reason: &str, message: &str) -> Value {
    json!({"allowed": false, "status": {"code": 403, "reason": reason, "message": message}})
}

async fn validate_review(State(hooks): State<Hooks>, Json(asked): Json<Value>) -> Json<Value> {
    let request = &asked["request"];
    let old = request.present("/oldObject");
    if request.text("/operation") == "DELETE" {
        let verdict = old.map_or(Ok(()), validate::validate_deletion);
        return answer_review(
            request,
            verdict.map_or_else(|message| deny_review("Forbidden", &message), |()| json!({"allowed": true})),
        );
    }
    let object = &request["object"];
    let verdict = if object.gvk() == customization_kind() {
        validate_customization(object, &hooks.host.list(&customization_kind()))
    } else {
        validate::validate_object(object, old)
    };
    if let Err(message) = verdict {
        return answer_review(request, deny_review("Forbidden", &message));
    }
    if hooks.gates.federated_quota && object.text("/kind") == "ResourceBinding" {
        let created_empty = old.is_none() && object.items("/spec/clusters").is_empty();
        if !created_empty {
            match charge_quotas(&hooks, object, old, request.flag("/dryRun")).await {
                Ok(()) => {}
                Err(Refusal::Exceeded(message)) => {
                    return answer_review(request, deny_review("QuotaExceeded", &message));
                }
                Err(Refusal::Failed(message)) => {
                    let status = json!({"code": 500, "reason": "InternalError", "message": message});
                    return answer_review(request, json!({"allowed": false, "status": status}));
                }
            }
        }
    }
    answer_review(request, json!({"allowed": true}))
}

enum Refusal {
    Exceeded(String),
    Failed(String),
}

/// Checks all quotas of the namespace against their live state, then writes what is used.
async fn charge_quotas(hooks: &Hooks, binding: &Value, old: Option<&Value>, dry_run: bool) -> Result<(), Refusal> {
    let writer = hooks.host.writer(WEBHOOK);
    for attempt in 0..5 {
        let mut writes = Vec::new();
        for quota in hooks.host.list_in(&quota_kind(), binding.namespace()) {
            let live = hooks.host.get_live(&quota_kind(), quota.namespace(), quota.name()).await;
            let Some(live) = live.map_err(|error| Refusal::Failed(error.message()))? else { continue };
            if let Some(used) = quota::charge_quota(&live, binding, old).map_err(Refusal::Exceeded)? {
                let mut charged = live;
                let used = used.as_object().is_some_and(|used| !used.is_empty()).then_some(used);
                charged.put_or_remove(&["status", "overallUsed"], used);
                writes.push(charged);
            }
        }
        if dry_run {
            return Ok(());
        }
        let mut conflict = false;
        for charged in &writes {
            match writer.update_status(charged).await {
                Ok(_) => {}
                Err(error) if error.is_conflict() && attempt < 4 => conflict = true,
                Err(error) => return Err(Refusal::Failed(error.message())),
            }
        }
        if !conflict {
            return Ok(());
        }
    }
    Ok(())
}
