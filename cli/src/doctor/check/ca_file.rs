//! File `ca.pem`, which the commands of other findings take: whether it is there and has a certificate.
//!
//! Rule: it is told only where such a command is. A bundle that is registered, and by which the API server trusts the
//! webhook, is that file; where there is none, it is the certificate of who signed the webhook's own.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use caldera_runtime::tls::read_validities;
use serde_json::Value;

use super::{CHECK_WEBHOOKS as CHECK, OURS, fix_commands::CA_FILE, webhooks::is_trust_failure};
use crate::{
    doctor::{
        facts::{Facts, Probe},
        finding::Finding,
    },
    objects::{name_of, read_list_at, read_text_at},
};

/// Where cert-manager keeps who signed the webhook's certificate, in the cluster that the components run in.
const READ_SECRET: &str =
    "kubectl -n caldera-system get secret caldera-webhook-cert -o 'jsonpath={.data.ca\\.crt}' | base64 -d > ca.pem";

pub(super) fn check_ca_file(facts: &Facts, findings: &[Finding]) -> Option<Finding> {
    let fault = facts.ca_file_fault.as_ref()?;
    let takes_file = |finding: &Finding| finding.fix.as_ref().is_some_and(|fix| fix.contains(CA_FILE));
    if !findings.iter().any(takes_file) {
        return None;
    }
    Some(match find_registered_bundle(facts) {
        Some((kind, name)) => CHECK
            .warning(format!("{CA_FILE}, which a command here takes, {fault}: take the bundle that is registered"))
            .fixed_by(format!(
                "kubectl get {kind} {name} -o 'jsonpath={{.webhooks[0].clientConfig.caBundle}}' | base64 -d > {CA_FILE}"
            )),
        None => CHECK
            .warning(format!(
                "{CA_FILE}, which a command here takes, {fault}: it is the certificate of who signed the webhook's \
                 (docs/install.md), with cert-manager that of its Secret where the components run"
            ))
            .fixed_by(READ_SECRET),
    })
}

/// The kind and name of a configuration of ours whose first bundle serves.
fn find_registered_bundle(facts: &Facts) -> Option<(&'static str, &str)> {
    let is_untrusted = |probe: &Probe| probe.as_ref().is_err_and(is_trust_failure);
    if is_untrusted(&facts.binding_probe) || is_untrusted(&facts.job_probe) {
        return None;
    }
    let serves = |config: &&Value| {
        let hook = read_list_at(config, "/webhooks").first();
        hook.is_some_and(|hook| read_text_at(hook, "/name").ends_with(OURS) && has_valid_bundle(facts, hook))
    };
    let lists = [
        ("mutatingwebhookconfiguration", &facts.mutating),
        ("validatingwebhookconfiguration", &facts.validating),
        ("resourceinterpreterwebhookconfiguration", &facts.interpreters),
    ];
    lists.into_iter().find_map(|(kind, seen)| Some((kind, name_of(seen.iter().flatten().find(serves)?))))
}

fn has_valid_bundle(facts: &Facts, hook: &Value) -> bool {
    let bundle = STANDARD.decode(read_text_at(hook, "/clientConfig/caBundle")).ok();
    let pem = bundle.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let ends = read_validities(&pem).ok().and_then(|all| all.into_iter().map(|validity| validity.ends).max());
    ends.is_some_and(|ends| ends > facts.now)
}
