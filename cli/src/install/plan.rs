//! What is installed, and in which order.
//!
//! Rules:
//! 1. Definitions before what is of their kinds, accounts before their tokens, tokens before what runs with them.
//! 2. Webhook configurations and admission policies come last, once the API server has been answered: they fail closed,
//!    and without an answer it would refuse all that is queued.
//! 3. A CustomResourceDefinition that is not ours alone, Volcano's, is made where there is none and changed only where
//!    this command made it: on another's Karmada it is its admin's.

use caldera_crds::{
    manifests::{build_federation_crds, build_host_volcano_crds},
    trusted::TrustedWriters,
};
use caldera_webhook::{Endpoint, build_configurations_for, build_member_customization};
use serde_json::Value;

use crate::{
    manifests::{build_propagation_policies, list_admission_policies},
    objects::{read_list_at, read_text_at},
    roles::{Granted, build_component_roles},
};

/// Field manager of all that is installed.
pub const MANAGER: &str = "caldera-install";
/// What is to be there in the end.
#[derive(Debug, Clone)]
pub struct InstallTarget {
    /// What is granted.
    pub granted: Granted,
    /// Whose word counts.
    pub trusted: TrustedWriters,
    /// Whether naming a queue wants a right.
    pub require_queue_access: bool,
    /// Whether agents of Pull members answer about Volcano Jobs themselves.
    pub pull_members: bool,
    /// `https://host[:port]` of the webhook, as its callers reach it.
    pub webhook_url: String,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallStage {
    /// CustomResourceDefinitions.
    Definitions,
    /// Namespaces, service accounts and roles.
    Accounts,
    /// What propagates queues and priority classes.
    Policies,
    /// The webhook's certificate, tokens and kubeconfigs.
    Credentials,
    /// The API server reaches the webhook and trusts it.
    Answer,
    /// Webhook configurations and admission policies.
    Webhooks,
}

impl InstallStage {
    /// All that there is to do, in order.
    pub const ALL: [Self; 6] =
        [Self::Definitions, Self::Accounts, Self::Policies, Self::Credentials, Self::Answer, Self::Webhooks];

    /// In words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Definitions => "definitions on the Karmada API",
            Self::Accounts => "namespaces, accounts and roles on the Karmada API",
            Self::Policies => "propagation of queues and priority classes",
            Self::Credentials => "the webhook's certificate, and a kubeconfig for each account",
            Self::Answer => "wait until the Karmada API server is answered by the webhook",
            Self::Webhooks => "webhook configurations and admission policies on the Karmada API",
        }
    }

    /// What is applied to the Karmada API. The PEM is of what signed the webhook's certificate.
    #[must_use]
    pub fn list_objects(self, wanted: &InstallTarget, ca_pem: &str) -> Vec<Value> {
        match self {
            Self::Definitions => build_host_volcano_crds().into_iter().chain(build_federation_crds()).collect(),
            Self::Accounts => build_component_roles(&wanted.granted),
            Self::Policies => build_propagation_policies(),
            Self::Webhooks => {
                let endpoint = Endpoint::Url(wanted.webhook_url.clone());
                let mut all = build_configurations_for(&endpoint, ca_pem, &wanted.trusted);
                all.extend(list_admission_policies(&wanted.trusted, wanted.require_queue_access));
                all.extend(wanted.pull_members.then(build_member_customization));
                all
            }
            Self::Credentials | Self::Answer => Vec::new(),
        }
    }
}

/// The accounts that need a token.
#[must_use]
pub fn list_accounts(collects: bool) -> Vec<&'static str> {
    let mut all = vec!["caldera-webhook", "caldera-controller", "caldera-scheduler"];
    all.extend(collects.then_some("caldera-inventory"));
    all
}

/// Whether an object may be written over what is there: rule 3.
#[must_use]
pub fn may_apply(object: &Value, found: Option<&Value>) -> bool {
    let Some(found) = found else { return true };
    let is_others = object["kind"] == "CustomResourceDefinition"
        && read_text_at(object, "/spec/group") != "federation.caldera.dev"
        && !read_list_at(found, "/metadata/managedFields").iter().any(|entry| entry["manager"] == MANAGER);
    !is_others
}

/// Whether a write changed an object: not its status, nor who wrote what.
#[must_use]
pub fn is_changed(before: &Value, after: &Value) -> bool {
    let strip = |object: &Value| {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| !["managedFields", "resourceVersion", "generation"].contains(&name.as_str()));
        }
        object
    };
    strip(before) != strip(after)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted() -> InstallTarget {
        InstallTarget {
            granted: Granted::default(),
            trusted: TrustedWriters::default(),
            require_queue_access: false,
            pull_members: false,
            webhook_url: "https://webhook:443".to_owned(),
        }
    }

    #[test]
    fn what_fails_closed_comes_last_and_after_the_answer() {
        let fails_closed = |object: &Value| {
            let group = read_text_at(object, "/apiVersion");
            group.contains("admissionregistration") || read_text_at(object, "/kind").contains("InterpreterWebhook")
        };
        let with_hooks: Vec<InstallStage> = InstallStage::ALL
            .into_iter()
            .filter(|stage| stage.list_objects(&wanted(), "pem").iter().any(fails_closed))
            .collect();
        assert_eq!(with_hooks, [InstallStage::Webhooks]);
        let at = |stage| InstallStage::ALL.iter().position(|one| *one == stage).unwrap();
        for (first, then) in [
            (InstallStage::Definitions, InstallStage::Policies),
            (InstallStage::Accounts, InstallStage::Credentials),
            (InstallStage::Credentials, InstallStage::Answer),
            (InstallStage::Answer, InstallStage::Webhooks),
        ] {
            assert!(at(first) < at(then), "{first:?} before {then:?}");
        }
    }

    #[test]
    fn volcanos_definitions_are_changed_only_where_we_made_them_and_ours_always() {
        let by = |manager: &str| json!({"metadata": {"managedFields": [{"manager": manager}]}});
        let [volcano, ours] = [build_host_volcano_crds().remove(0), build_federation_crds().remove(0)];
        for (object, found, may) in [
            (&volcano, None, true),
            (&volcano, Some(by(MANAGER)), true),
            (&volcano, Some(by("kubectl")), false),
            (&ours, Some(by("kubectl")), true),
        ] {
            assert_eq!(may_apply(object, found.as_ref()), may, "{found:?}");
        }
    }

    #[test]
    fn agents_of_pull_members_answer_themselves_where_it_is_asked_for() {
        let customizations = |pull_members| {
            let wanted = InstallTarget { pull_members, ..wanted() };
            let all = InstallStage::Webhooks.list_objects(&wanted, "pem");
            all.into_iter().filter(|object| object["kind"] == "ResourceInterpreterCustomization").collect::<Vec<_>>()
        };
        assert!(customizations(false).is_empty());
        assert_eq!(customizations(true), [build_member_customization()]);
    }

    #[test]
    fn a_status_is_no_change() {
        let before = json!({"metadata": {"name": "x", "resourceVersion": "1"}, "spec": 1, "status": 1});
        let after = json!({"metadata": {"name": "x", "resourceVersion": "2"}, "spec": 1, "status": 2});
        assert!(!is_changed(&before, &after));
        assert!(is_changed(&before, &json!({"metadata": {"name": "x"}, "spec": 2})));
    }
}
