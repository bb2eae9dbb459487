//! Whether the Karmada API server reaches the webhook and trusts its certificate, asked before anything depends on it.
//!
//! Rule: a webhook configuration for this question alone. It matches one object that nobody else makes, a ConfigMap of
//! our namespace with a label, which is created with `dryRun=All`; what it asks the webhook is what a HyperJob of that
//! name would be asked, and that name is refused. So a refusal in the webhook's words is an answer, whatever other
//! configurations there are; a call that failed is none yet; and where nothing is refused, the API server does not know
//! the configuration yet. It is removed at the end, and a later install or uninstall removes one that was left.

use std::time::Duration;

use anyhow::Context;
use caldera_runtime::{
    watch::api_resource,
    write::{Body, Failure, Write, execute_write},
};
use caldera_webhook::{Endpoint, build_configurations};
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    core::ApiResource,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::plan::MANAGER;
use crate::{
    objects::{admission_resource, read_list_at, read_text_at},
    roles::NAMESPACE,
};

/// Sorts before others, and is one of ours by its name.
pub const PROBE: &str = "install-probe.caldera.dev";
/// A HyperJob's name has no dot.
const CONFIG_MAP: &str = "caldera.install-probe";
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// The kind of the configuration.
pub fn probe_resource() -> ApiResource {
    admission_resource("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
}

/// The configuration for the question.
fn build_probe_configuration(endpoint: &Endpoint, ca_pem: &str) -> Option<Value> {
    let is_hook = |hook: &&Value| read_text_at(hook, "/name") == "hyperjobs.rules.caldera.dev";
    let all = build_configurations(endpoint, ca_pem);
    let mut hook = all.iter().flat_map(|one| read_list_at(one, "/webhooks")).find(is_hook)?.clone();
    hook["name"] = PROBE.into();
    if let Some(fields) = hook.as_object_mut() {
        fields.remove("matchConditions");
    }
    hook["rules"] = json!([{
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
        "scope": "Namespaced",
    }]);
    hook["objectSelector"] = json!({"matchLabels": {"app.kubernetes.io/name": CONFIG_MAP}});
    hook["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}});
    Some(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": PROBE}, "webhooks": [hook],
    }))
}

/// Waits until the webhook answers the API server.
///
/// # Errors
/// With the last reason if it does not in that time.
pub async fn wait_for_webhook(
    client: &Client,
    endpoint: &Endpoint,
    ca_pem: &str,
    wait: Duration,
) -> anyhow::Result<()> {
    let object = build_probe_configuration(endpoint, ca_pem).context("there is no hook to ask")?;
    let write = |body| Write {
        resource: probe_resource(),
        namespace: String::new(),
        name: PROBE.to_owned(),
        subresource: None,
        body,
    };
    execute_write(client, &write(Body::Apply { object, manager: MANAGER }))
        .await
        .context("failed to register the question whether the webhook answers")?;
    let until = Instant::now() + wait;
    let answered = loop {
        match probe_webhook(client).await {
            Ok(()) => break Ok(()),
            Err(why) if Instant::now() >= until => break Err(why),
            Err(_) => tokio::time::sleep(PROBE_INTERVAL).await,
        }
    };
    match execute_write(client, &write(Body::Delete { uid: None })).await {
        Ok(_) | Err(Failure::Gone(_)) => {}
        Err(failure) => return Err(failure).context("failed to remove the question whether the webhook answers"),
    }
    let seconds = wait.as_secs();
    answered.map_err(|why| {
        anyhow::anyhow!(
            "the webhook did not answer the Karmada API server within {seconds} s; nothing depends on it yet: {why}"
        )
    })
}

/// One try.
async fn probe_webhook(client: &Client) -> Result<(), String> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "labels": {"app.kubernetes.io/name": CONFIG_MAP}},
    });
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), NAMESPACE, &api_resource("", "v1", "ConfigMap", "configmaps"));
    let object = serde_json::from_value(object).map_err(|error| error.to_string())?;
    match api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await {
        Ok(_) => Err("the API server does not call it yet".to_owned()),
        Err(kube::Error::Api(status)) if is_webhook_refusal(&status.message) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => Err(error.to_string()),
    }
}

/// A refusal that the webhook made itself (`k8s.io/apiserver/pkg/admission/plugin/webhook/errors`).
fn is_webhook_refusal(message: &str) -> bool {
    message.contains(PROBE) && message.contains("denied the request")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_is_about_one_object_of_our_namespace_at_the_same_address_and_trust() {
        let probe = build_probe_configuration(&Endpoint::Url("https://webhook".to_owned()), "pem").unwrap();
        let [hook] = read_list_at(&probe, "/webhooks") else { panic!("{probe}") };
        assert_eq!(read_text_at(hook, "/clientConfig/url"), "https://webhook/validate-hyperjob");
        assert!(!read_text_at(hook, "/clientConfig/caBundle").is_empty() && hook["matchConditions"].is_null());
        assert_eq!(hook["rules"][0]["resources"], json!(["configmaps"]));
        assert_eq!(hook["objectSelector"]["matchLabels"]["app.kubernetes.io/name"], CONFIG_MAP);
    }

    #[test]
    fn a_refusal_of_the_webhook_is_an_answer_and_a_call_that_failed_is_none() {
        let of = |text: &str| is_webhook_refusal(&format!("admission webhook \"{PROBE}\" {text}"));
        assert!(of("denied the request: metadata.name: it has a dot"));
        assert!(!is_webhook_refusal(&format!("failed calling webhook \"{PROBE}\": connection refused")));
        assert!(!is_webhook_refusal("admission webhook \"other\" denied the request: no"));
    }
}
