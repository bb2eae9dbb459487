//! What an upgrade applies while jobs run, in which order, and what must hold before it begins.
//!
//! Rules:
//! 1. What an older component needs stays until none runs: roles are widened first, to what is granted now and what
//!    this version grants, and cut to this version's at the end.
//! 2. Definitions and roles come before the components that need them. What fails closed, webhook configurations and
//!    admission policies, comes after them: newer ones may name a route that an older webhook does not have.
//! 3. A component is told by its version: those with a Lease say it there, the webhook in its answer to the doctor's
//!    question. One that says none is older.
//! 4. Nothing begins while components do not run or records can not be read: who is to be replaced must be well. What
//!    the upgrade mends itself, such as a definition that lacks a field, stops nothing.
//! 5. Where the webhook is, whom it is trusted by and what was granted beside are read from what is there. Whom callers
//!    trust is the webhook's to say, and it may replace that while components are waited for: it is read again for each
//!    registration right before that is written, and written only over what was read.

use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_webhook::Endpoint;
use serde_json::Value;

use crate::{
    doctor::finding::{Check, Finding, Severity},
    objects::{read_list_at, read_text_at},
};

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeStage {
    /// CustomResourceDefinitions.
    Definitions,
    /// Namespaces, accounts, and roles of both versions.
    WiderRoles,
    /// What propagates queues and priority classes.
    Policies,
    /// The processes are replaced, by whoever runs them.
    Components,
    /// Webhook configurations and admission policies.
    Webhooks,
    /// Roles of this version alone.
    Roles,
}

impl UpgradeStage {
    /// All that there is to do, in order.
    pub const ALL: [Self; 6] =
        [Self::Definitions, Self::WiderRoles, Self::Policies, Self::Components, Self::Webhooks, Self::Roles];

    /// In words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Definitions => "definitions on the Karmada API",
            Self::WiderRoles => "accounts, and roles that serve both versions",
            Self::Policies => "propagation of queues and priority classes",
            Self::Components => "wait until all components are of this version",
            Self::Webhooks => "webhook configurations and admission policies",
            Self::Roles => "roles of this version alone",
        }
    }
}

/// The role that serves both versions: what is wanted, and what is granted now.
#[must_use]
pub fn widen_role(wanted: &Value, found: Option<&Value>) -> Value {
    let mut wider = wanted.clone();
    let granted = found.map_or(&[][..], |found| read_list_at(found, "/rules"));
    if let Some(rules) = wider.get_mut("rules").and_then(Value::as_array_mut) {
        let kept: Vec<Value> = granted.iter().filter(|rule| !rules.contains(rule)).cloned().collect();
        rules.extend(kept);
    }
    wider
}

/// Where the webhook of a configuration is, and the PEM by which it is trusted.
#[must_use]
pub fn read_registered_webhook(configuration: &Value) -> Option<(Endpoint, String)> {
    let client = read_list_at(configuration, "/webhooks").first()?.get("clientConfig")?;
    let pem = String::from_utf8(STANDARD.decode(read_text_at(client, "/caBundle")).ok()?).ok()?;
    let endpoint = match client.get("service") {
        Some(service) => Endpoint::Service {
            namespace: read_text_at(service, "/namespace").to_owned(),
            name: read_text_at(service, "/name").to_owned(),
            port: service.get("port").and_then(Value::as_u64).and_then(|port| port.try_into().ok()).unwrap_or(443),
        },
        None => Endpoint::Url(read_text_at(client, "/url").rsplit_once('/')?.0.to_owned()),
    };
    Some((endpoint, pem))
}

/// Has a registration that is to be written trust what it trusts now, where nobody changed it since it was `found`:
/// rule 5. A hook that is new trusts what the first one does.
pub fn keep_trust(wanted: &mut Value, found: Option<&Value>) {
    let Some(found) = found else { return };
    wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
    let there = read_list_at(found, "/webhooks");
    let Some(hooks) = wanted.get_mut("webhooks").and_then(Value::as_array_mut) else { return };
    for hook in hooks {
        let same = there.iter().find(|one| one["name"] == hook["name"]).or(there.first());
        let Some(client) = hook.get_mut("clientConfig").and_then(Value::as_object_mut) else { continue };
        match same.and_then(|one| one.pointer("/clientConfig/caBundle")) {
            Some(bundle) => drop(client.insert("caBundle".to_owned(), bundle.clone())),
            None if same.is_some() => drop(client.remove("caBundle")),
            None => {}
        }
    }
}

/// Whether a role lets the webhook register itself.
#[must_use]
pub fn grants_registration(role: &Value) -> bool {
    let resources =
        |rule: &Value| read_list_at(rule, "/resources").iter().any(|one| one == "mutatingwebhookconfigurations");
    read_list_at(role, "/rules").iter().any(resources)
}

/// What must be mended first: rule 4.
pub fn list_obstacles(findings: &[Finding]) -> Vec<&Finding> {
    let stops = |finding: &&Finding| {
        finding.severity >= Severity::Error && matches!(finding.check, Check::Components | Check::Records)
    };
    findings.iter().filter(stops).collect()
}

/// The findings about components that are not of this version.
pub fn list_other_versions(findings: &[Finding]) -> Vec<&Finding> {
    let is_skew = |finding: &&Finding| finding.check == Check::Versions && finding.severity > Severity::Note;
    findings.iter().filter(is_skew).collect()
}

#[cfg(test)]
mod tests {
    use caldera_crds::trusted::TrustedWriters;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_role_serves_both_versions_until_only_one_runs() {
        let rule = |resource: &str| json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]});
        let role = |rules: &[Value]| json!({"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": rules});
        let (new, old) = (role(&[rule("a"), rule("b")]), role(&[rule("b"), rule("gone")]));
        assert_eq!(widen_role(&new, Some(&old)), role(&[rule("a"), rule("b"), rule("gone")]));
        assert_eq!(widen_role(&new, None), new);
        let account = json!({"kind": "ServiceAccount", "metadata": {"name": "a"}});
        assert_eq!(widen_role(&account, Some(&account)), account);
    }

    #[test]
    fn the_webhook_is_read_from_its_configuration_by_url_and_by_service() {
        for endpoint in [
            Endpoint::Url("https://host:8443/base".to_owned()),
            Endpoint::Service { namespace: "n".to_owned(), name: "s".to_owned(), port: 8443 },
        ] {
            let all = caldera_webhook::build_configurations_for(&endpoint, "PEM", &TrustedWriters::default());
            let (found, pem) = read_registered_webhook(&all[0]).unwrap();
            assert_eq!((format!("{found:?}"), pem.as_str()), (format!("{endpoint:?}"), "PEM"));
        }
        assert!(read_registered_webhook(&json!({"webhooks": []})).is_none());
    }

    #[test]
    fn a_registration_trusts_what_it_trusts_when_it_is_written_and_only_over_what_was_read() {
        let endpoint = Endpoint::Url("https://host:8443".to_owned());
        let build = |pem: &str| caldera_webhook::build_configurations_for(&endpoint, pem, &TrustedWriters::default());
        // Read before the components were replaced; the authority was replaced meanwhile.
        let (mut wanted, mut found) = (build("OLD").remove(0), build("NEW").remove(0));
        found["metadata"]["resourceVersion"] = "7".into();
        found["webhooks"].as_array_mut().unwrap().pop();
        keep_trust(&mut wanted, Some(&found));
        assert_eq!(wanted["metadata"]["resourceVersion"], "7");
        assert_eq!(wanted["webhooks"], build("NEW")[0]["webhooks"]);
        keep_trust(&mut wanted, Some(&build("")[0]));
        assert_eq!(wanted["webhooks"], build("")[0]["webhooks"], "public roots");
        // One that is not there is new, and trusts what the others do.
        let mut new = build("OLD").remove(1);
        keep_trust(&mut new, None);
        assert_eq!(new, build("OLD")[1]);
    }

    #[test]
    fn what_the_upgrade_mends_stops_nothing_and_components_that_do_not_run_do() {
        let findings = [
            Check::Definitions.error("older"),
            Check::Rights.error("lacks"),
            Check::Components.error("nobody holds the Lease"),
            Check::Records.warning("odd"),
            Check::Members.error("one of many"),
        ];
        let reported: Vec<&str> = list_obstacles(&findings).iter().map(|one| one.what.as_str()).collect();
        assert_eq!(reported, ["nobody holds the Lease"]);
    }

    #[test]
    fn what_fails_closed_comes_after_the_components_and_rights_before_and_after_them() {
        let at = |stage| UpgradeStage::ALL.iter().position(|one| *one == stage);
        assert!(at(UpgradeStage::Definitions) < at(UpgradeStage::Components));
        assert!(at(UpgradeStage::WiderRoles) < at(UpgradeStage::Components));
        assert!(at(UpgradeStage::Components) < at(UpgradeStage::Webhooks));
        assert!(at(UpgradeStage::Components) < at(UpgradeStage::Roles));
    }
}
