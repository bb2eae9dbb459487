//! The chart for the Karmada API.

use std::collections::BTreeMap;

use base64::Engine as _;
use caldera_crds::{
    names::karmada::CLUSTER_NAMESPACE,
    trusted::{CONTROLLER_ACCOUNT, TrustedWriters, Writer},
};
use caldera_webhook::Endpoint;
use serde_json::{Value, json};

use super::{
    BEFORE_UNINSTALL, END, GROUP, USER, describe_writers, has_same_name, render_chart_yaml, render_yaml,
    template::merge_variants,
};
use crate::{
    manifests::{build_propagation_policies, list_admission_policies},
    roles::{Granted, build_component_roles},
};

const URL: &str = "https://caldera-url";
const BUNDLE: &str = "CALDERA-BUNDLE";

/// Whether it names trusted writers, or depends on whether the webhook registers itself.
fn has_value(object: &Value) -> bool {
    let is_role = object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role"));
    object.to_string().contains(USER) || is_role && object["metadata"]["name"] == "caldera-webhook"
}

/// Roles that the chart makes. Karmada makes its namespace when the first member joins, and Helm refuses what is there.
pub(super) fn build_chart_roles(registers: bool) -> Vec<Value> {
    let mut roles = build_component_roles(&Granted { registers, ..Granted::default() });
    roles.retain(|object| object["kind"] != "Namespace" || object["metadata"]["name"] != CLUSTER_NAMESPACE);
    roles
}

/// What of the Karmada API's objects has a value of Helm's, by the default values: for kustomize.
pub(crate) fn build_default_objects() -> Vec<Value> {
    let named =
        |object: &&Value| build_marked_policies(false).iter().any(|one| has_value(one) && has_same_name(one, object));
    let policies = list_admission_policies(&TrustedWriters::default(), false);
    let roles = build_chart_roles(false).into_iter().filter(has_value);
    roles.chain(policies.iter().filter(named).cloned()).collect()
}

fn build_marked_policies(require_queue_access: bool) -> Vec<Value> {
    let marked = [Writer::User(USER.to_owned()), Writer::Group(GROUP.to_owned())].into_iter().collect();
    list_admission_policies(&marked, require_queue_access)
}

/// For the Karmada API.
pub(crate) fn build_karmada_chart() -> BTreeMap<&'static str, String> {
    let endpoint = Endpoint::Url(URL.to_owned());
    let encoded = base64::engine::general_purpose::STANDARD.encode(BUNDLE);
    let hooks =
        |writers: &TrustedWriters| render_yaml(&caldera_webhook::build_configurations_for(&endpoint, BUNDLE, writers));
    let nobody = TrustedWriters::from_iter([]);
    let trusts = format!("has \"{CONTROLLER_ACCOUNT}\" $.Values.trustedWriters.users");
    let hooks = merge_variants(&trusts, &hooks(&TrustedWriters::default()), &hooks(&nobody))
        .replace(URL, "{{ $.Values.webhookUrl | trimSuffix \"/\" }}")
        .replace(&encoded, "{{ $.Values.caBundle | b64enc }}");
    let policies = build_marked_policies(false);
    let has_name = |object: &Value| policies.iter().any(|one| has_same_name(one, object));
    let of_queues: Vec<Value> = build_marked_policies(true).into_iter().filter(|one| !has_name(one)).collect();
    let (with_writers, policies): (Vec<Value>, Vec<Value>) = policies.into_iter().partition(has_value);
    let names = |of: &str| format!("'{{{{ join \"', '\" (sortAlpha $.Values.trustedWriters.{of}) }}}}'");
    let with_writers = render_yaml(&with_writers)
        .replace(&format!("'{USER}'"), &names("users"))
        .replace(&format!("'{GROUP}'"), &names("groups"));
    let of_members = [caldera_webhook::build_member_customization()];
    let mut definitions = caldera_crds::manifests::build_host_volcano_crds();
    definitions.extend(caldera_crds::manifests::build_federation_crds());
    let (of_webhook, roles): (Vec<Value>, Vec<Value>) = build_chart_roles(false).into_iter().partition(has_value);
    let registering: Vec<Value> = build_chart_roles(true).into_iter().filter(has_value).collect();
    let of_webhook =
        merge_variants("$.Values.registersWebhooks", &render_yaml(&registering), &render_yaml(&of_webhook));
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
        // Values of an earlier chart may lack what came later, as `helm upgrade --reuse-values` has them.
        "required": ["webhookUrl", "caBundle", "registersWebhooks", "requireQueueAccess", "trustedWriters"],
        "properties": {
            "webhookUrl": {"type": "string", "pattern": r"^https://[^/?#@\s]+(/[^?#\s]*)?$"},
            "caBundle": {"type": "string", "description": "PEM"},
            "registersWebhooks": {"type": "boolean"},
            "requireQueueAccess": {"type": "boolean"},
            "pullMembers": {"type": "boolean"},
            "trustedWriters": describe_writers(1),
            "global": {"type": "object"},
        },
        "if": {"properties": {"registersWebhooks": {"const": true}}, "required": ["registersWebhooks"]},
        "else": {"properties": {"caBundle": {"pattern": "-----BEGIN CERTIFICATE-----"}}},
    });
    BTreeMap::from([
        ("Chart.yaml", render_chart_yaml("caldera-karmada", "What Caldera needs on the Karmada API")),
        ("values.yaml", describe_karmada_values()),
        ("values.schema.json", format!("{schema:#}\n")),
        ("crds/definitions.yaml", render_yaml(&definitions)),
        ("templates/guard.yaml", GUARD.to_owned()),
        ("templates/NOTES.txt", format!("{NOTES}{BEFORE_UNINSTALL}")),
        ("templates/roles.yaml", render_yaml(&roles)),
        ("templates/webhook-roles.yaml", of_webhook),
        ("templates/propagation.yaml", render_yaml(&build_propagation_policies())),
        ("templates/admission.yaml", render_yaml(&policies)),
        ("templates/trusted-writers.yaml", with_writers),
        ("templates/queue-access.yaml", enclose("$.Values.requireQueueAccess", &render_yaml(&of_queues))),
        ("templates/pull-members.yaml", enclose("$.Values.pullMembers", &render_yaml(&of_members))),
        ("templates/webhooks.yaml", enclose("not $.Values.registersWebhooks", &hooks)),
    ])
}

/// What Helm says at the end of an installation.
const NOTES: &str = "{{- if $.Values.registersWebhooks }}
What Caldera needs on the Karmada API is there, but for its webhooks: a webhook with --register-url registers them.
{{- else }}
What Caldera needs on the Karmada API is there. Its webhooks fail closed: no write of what Caldera queues is accepted
until {{ $.Values.webhookUrl }} answers.
{{- end }}

Next the components, by charts/caldera where Karmada's control plane runs; docs/install.md has the steps. Then:

  caldera doctor --kubeconfig karmada.kubeconfig

Helm installs definitions and never upgrades them:

  caldera manifests --only crds | kubectl --kubeconfig karmada.kubeconfig apply --server-side -f -

";

/// The namespace that the chart makes can not be the release's own: Helm would have made it, and ends half way.
const GUARD: &str = "{{- if eq .Release.Namespace \"caldera-system\" }}\n\
    {{- fail \"caldera-system is made by this chart: give the release another namespace, as -n default\" }}\n\
    {{- end }}\n";

fn enclose(condition: &str, text: &str) -> String {
    format!("{{{{- if {condition} }}}}\n{text}{END}")
}

fn describe_karmada_values() -> String {
    let list = |of_groups: bool| {
        TrustedWriters::default().names(of_groups).map(|name| format!("    - {name}\n")).collect::<String>()
    };
    format!(
        "# The webhook as the Karmada API server and controllers reach it.\n\
         webhookUrl: https://caldera-webhook.caldera-system.svc\n\
         # PEM of who signed its certificate, with --set-file caBundle=ca.pem; it has to be given, unless the next is set.\n\
         caBundle: \"\"\n\
         # The webhook registers itself (webhook.registerUrl of charts/caldera): it may do so, and nothing is registered here.\n\
         registersWebhooks: false\n\
         # Whoever names a queue needs verb use on it.\nrequireQueueAccess: false\n\
         # Agents of Pull members answer what is asked of copies themselves: where they do not reach the webhook.\n\
         pullMembers: false\n\
         # Who may write what says what is admitted and placed. Other lists go into charts/caldera as well.\n\
         trustedWriters:\n  users:\n{}  groups:\n{}",
        list(false),
        list(true)
    )
}
