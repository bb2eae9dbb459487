//! The commands that mend more than one fault, with what is known of this installation in them.
//!
//! Rule: where the webhook is, is known from any of its registrations; where its authority is kept, from the Leases,
//! which are beside it; of the kubeconfig the one that the doctor goes by. A word in capitals is left only where
//! nothing that was read says it.

use serde_json::Value;

use super::OURS;
use crate::{
    doctor::facts::Facts,
    objects::{read_list_at, read_text_at},
    roles::NAMESPACE,
};

/// The bundle that callers of the webhook trust, as the commands name it.
pub const CA_FILE: &str = "ca.pem";

/// Has Karmada take queues and priority classes to the members.
pub(super) const APPLY_PROPAGATION: &str = "caldera manifests --only policies | kubectl apply --server-side -f -";

/// Prints webhook configurations and admission policies.
pub(super) fn build_apply_command(facts: &Facts) -> String {
    let lists = [&facts.mutating, &facts.validating, &facts.interpreters];
    let hooks = lists.into_iter().flatten().flatten().flat_map(|config| read_list_at(config, "/webhooks"));
    let mut ours = hooks.filter(|hook| read_text_at(hook, "/name").ends_with(OURS));
    let place = ours.find_map(|hook| name_webhook(&hook["clientConfig"]));
    let place = place.as_deref().unwrap_or("--webhook-url https://HOST:PORT");
    format!("caldera manifests --only webhooks {place} --ca-bundle {CA_FILE} | kubectl apply --server-side -f -")
}

/// Makes roles, webhook configurations and policies anew, with the declared kinds.
pub(super) fn build_upgrade_command(facts: &Facts) -> String {
    match &facts.host_kubeconfig {
        Some(file) => format!("caldera upgrade --kubeconfig {file}"),
        None => "caldera upgrade".to_owned(),
    }
}

/// What mends a registration that is there.
pub(super) fn build_registration_command(facts: &Facts) -> String {
    if facts.declared_kinds.is_empty() { build_apply_command(facts) } else { build_upgrade_command(facts) }
}

/// Has a webhook that made its authority itself replace it.
pub(super) fn build_rotate_command(facts: &Facts) -> String {
    let namespace = facts.leases.iter().flatten().next().map_or(NAMESPACE, |lease| &lease.namespace);
    format!("kubectl -n {namespace} annotate secret caldera-webhook-authority caldera.dev/rotate=now --overwrite")
}

/// The flag of `caldera manifests` for where the API server calls a webhook.
fn name_webhook(client: &Value) -> Option<String> {
    let service = &client["service"];
    if let (Some(namespace), Some(name)) = (service["namespace"].as_str(), service["name"].as_str()) {
        let port = service["port"].as_u64().map_or(String::new(), |port| format!(":{port}"));
        return Some(format!("--webhook-service {namespace}/{name}{port}"));
    }
    let host = client["url"].as_str()?.strip_prefix("https://")?.split('/').next()?;
    Some(format!("--webhook-url https://{host}"))
}
