//! The chart for the cluster that the components run in.

use std::{collections::BTreeMap, fs, path::PathBuf};

use caldera_crds::{DNS_LABEL, DNS_SUBDOMAIN, trusted::Writer};
use caldera_runtime::probe::MOST_PEERS;
use serde_json::{Value, json};

use super::{
    BEFORE_UNINSTALL, END, GROUP, USER, describe_writers, has_same_name,
    refusals::build_guard,
    render_chart_yaml, render_yaml,
    settings::{describe_schemas, describe_values, mark_deployment, write_marks},
    template::merge_variants,
};
use crate::{
    deploy::{Deploy, ProbeSettings, build_component_objects},
    monitoring::RUNBOOK_PAGE,
};

const IMAGE: &str = "CALDERA-IMAGE";
const NAMESPACE: &str = "CALDERA-NAMESPACE";
const CALLER: &str = "CALDERA-CALLER";
const ADDRESS: &str = "CALDERA-ADDRESS";
const COLLECTOR: &str = "CALDERA-COLLECTOR";
const REGISTER: &str = "CALDERA-REGISTER";
const PROBE_SECRET: &str = "CALDERA-PROBE-SECRET";
const PROBE_PEER: &str = "CALDERA-PROBE-PEER";
/// Whether collectors measure the way to other members.
const PROBES: &str = "$.Values.probe.secretName";

const STOCK_BEGIN: &str = "{{- if $.Values.stockScheduler }}\n";
const STOCK_ELSE: &str = "{{- else }}\n";
const CONSOLE_BEGIN: &str = "{{- if $.Values.console.enabled }}\n";

const POD_MONITOR: &str = "{{- if .Values.monitoring.enabled }}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: caldera
  namespace: {{ $.Release.Namespace }}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/part-of: caldera
  podMetricsEndpoints:
    - port: admin
{{- range $viewer := list \"tenant\" \"admin\" \"sre\" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: caldera-dashboard-{{ $viewer }}
  namespace: {{ $.Release.Namespace }}
  labels:
    grafana_dashboard: \"1\"
data:
  caldera-{{ $viewer }}.json: |-
{{ $.Files.Get (printf \"files/dashboard-%s.json\" $viewer) | indent 4 }}
{{- end }}
{{- end }}
";

/// The rules as they are, with links to where the admin's people read the page.
const RULES: &str = "{{- if $.Values.monitoring.enabled }}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: caldera
  namespace: {{ $.Release.Namespace }}
spec:
{{ $.Files.Get \"files/alerts.yaml\" | replace \"runbook_url: RUNBOOKS#\" (printf \"runbook_url: %s#\" $.Values.monitoring.runbookUrl) | indent 2 }}
{{- end }}
";
/// A page, where it can be read: the path in this project, or a URL. No fragment: that is the alert's.
const PAGE: &str = r"^(docs/metrics\.md|https?://[^\s#\x22'{}]+)$";

/// What Helm says at the end of an installation.
const NOTES: &str = "Caldera's components start in namespace {{ $.Release.Namespace }}. Secrets that they want and this chart does not make
are listed in docs/install.md, section \"What is deployed\".

Next, with karmada.kubeconfig of an admin of the Karmada API:

  kubectl -n {{ $.Release.Namespace }} wait --for condition=Available --timeout 5m deployment --all
{{- if $.Values.webhook.registerUrl }}
  # The webhook registers itself once it is ready.
  caldera doctor --kubeconfig karmada.kubeconfig --registers-webhooks
{{- else }}
  # Then the webhooks, which fail closed: charts/caldera-karmada, or step 7 of docs/install.md.
  caldera doctor --kubeconfig karmada.kubeconfig
{{- end }}

";

const CERTIFICATE: &str = "{{- if .Values.certManager.enabled }}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: caldera-webhook
  namespace: {{ $.Release.Namespace }}
spec:
  secretName: caldera-webhook-cert
  dnsNames:
    - caldera-webhook.{{ $.Release.Namespace }}.svc
  usages:
    - digital signature
    - server auth
  privateKey:
    algorithm: ECDSA
    size: 256
    rotationPolicy: Always
  issuerRef:
    group: cert-manager.io
    kind: {{ .Values.certManager.issuer.kind }}
    name: {{ required \"certManager.issuer.name: who signs the webhook's certificate\" .Values.certManager.issuer.name }}
{{- end }}
";

fn is_of_console(object: &Value) -> bool {
    object["metadata"]["name"] == "caldera-console"
}

/// What is otherwise where karmada-scheduler places.
fn is_of_placement(object: &Value) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let starts = object["kind"] == "Deployment" && ["caldera-webhook", "caldera-controller"].contains(&name);
    starts || name == "caldera-scheduler"
}

fn is_of_collector(object: &Value) -> bool {
    object.to_string().contains(COLLECTOR)
}

/// Replaces the lines of a list item that holds a mark by one for each value.
fn repeat_item(text: &str, mark: &str, values: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = String::new();
    let mut at = 0;
    while at < lines.len() {
        // An item has one line or two.
        let begins = |at: usize| lines.get(at).is_some_and(|line| line.trim_start().starts_with("- "));
        let length = if begins(at + 1) { 1 } else { 2 };
        let mut item = lines[at..].iter().take(length);
        let ahead = if begins(at) { item.position(|line| line.contains(mark)) } else { None };
        let Some(end) = ahead else {
            out += &format!("{}\n", lines[at]);
            at += 1;
            continue;
        };
        out += &format!("{{{{- range $.Values.{values} }}}}\n");
        for line in &lines[at..=at + end] {
            // A value of its own is quoted: 123 is a name as well.
            let is_whole = line.trim_start().trim_start_matches("- ").split(": ").last() == Some(mark);
            let value = if is_whole { "{{ toJson . }}" } else { "{{ . }}" };
            out += &format!("{}\n", line.replace(mark, value));
        }
        out += "{{- end }}\n";
        at += end + 1;
    }
    out
}

/// A member and an address, without what YAML would read otherwise.
const PEER: &str = r"^[a-z0-9-]{1,63}=([A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\]):[0-9]{1,5}$";
const NETWORK: &str = "^[0-9a-fA-F.:]+/[0-9]{1,3}$";

/// An object as it is, and as it is where the webhook registers itself.
type Variants = (Value, Value);

/// Its template, but for what is filled in everywhere.
fn render_variants((plain, registers): &Variants) -> String {
    let render = |object: &Value| match object["kind"].as_str() {
        Some("Deployment") => mark_deployment(object, |marked| render_yaml(std::slice::from_ref(marked))),
        _ => render_yaml(std::slice::from_ref(object)),
    };
    merge_variants("$.Values.webhook.registerUrl", &render(registers), &render(plain))
}

/// The templates of collectors as they are, and as they are where they measure the way to other members.
fn merge_probes(measuring: &[Variants], plain: &[Variants]) -> String {
    let merge = |variants: &Variants| {
        let text = render_variants(variants);
        match plain.iter().find(|(object, _)| has_same_name(object, &variants.0)) {
            Some(plain) => merge_variants(PROBES, &text, &render_variants(plain)),
            None => format!("{{{{- if {PROBES} }}}}\n{text}{{{{- end }}}}\n"),
        }
    };
    measuring.iter().map(merge).collect()
}

/// What runs where `deploy` says so. Helm makes the namespace, with `--create-namespace`.
fn build_variants(deploy: &Deploy) -> Vec<Variants> {
    let registers = Deploy { register_url: Some(REGISTER.to_owned()), ..deploy.clone() };
    let both = build_component_objects(deploy).into_iter().zip(build_component_objects(&registers));
    both.filter(|(object, _)| object["kind"] != "Namespace").collect()
}

/// Names that match `pattern`, so many at least.
fn describe_names(about: &str, pattern: &str, least: usize) -> Value {
    let item = json!({"type": "string", "pattern": pattern});
    json!({"type": "array", "uniqueItems": true, "minItems": least, "items": item, "description": about})
}

/// What collectors measure the way to other members by.
fn describe_probe() -> Value {
    let name = format!("^$|{DNS_SUBDOMAIN}");
    let mut peers = describe_names("Members, and where their collectors listen", PEER, 0);
    peers["maxItems"] = MOST_PEERS.into();
    json!({
        "type": "object", "additionalProperties": false, "required": ["secretName", "peers"],
        "properties": {
            "secretName": {"type": "string", "pattern": name, "description": "Secret with tls.crt, tls.key and ca.crt"},
            "peers": peers,
        },
        // Peers alone are not measured.
        "if": {"properties": {"peers": {"minItems": 1}}},
        "then": {"properties": {"secretName": {"minLength": 1}}},
    })
}

/// For the cluster that the components run in.
pub(super) fn build_component_chart() -> BTreeMap<&'static str, String> {
    let deploy = Deploy {
        image: IMAGE.to_owned(),
        namespace: NAMESPACE.to_owned(),
        collectors: vec![COLLECTOR.to_owned()],
        callers: vec![CALLER.to_owned()],
        caller_addresses: vec![ADDRESS.to_owned()],
        console: true,
        trusted_writers: vec![Writer::User(USER.to_owned()), Writer::Group(GROUP.to_owned())],
        ..Deploy::default()
    };
    let is_of = |matches: fn(&Value) -> bool| move |variants: &Variants| matches(&variants.0);
    let stock = build_variants(&Deploy { stock_scheduler: true, ..deploy.clone() });
    let stock: Vec<Variants> = stock.into_iter().filter(is_of(is_of_placement)).collect();
    let objects = build_variants(&deploy);
    let deployments: Vec<Value> =
        objects.iter().filter(|(object, _)| object["kind"] == "Deployment").map(|(object, _)| object.clone()).collect();
    let (collectors, others): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_of(is_of_collector));
    let (console, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_of(is_of_console));
    let (ours, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_of(is_of_placement));
    let probe = ProbeSettings { secret: PROBE_SECRET.to_owned(), peers: vec![PROBE_PEER.to_owned()] };
    let measuring = build_variants(&Deploy { probe: Some(probe), ..deploy });
    let measuring: Vec<Variants> = measuring.into_iter().filter(is_of(is_of_collector)).collect();
    let fill_text = |text: &str| {
        let text = write_marks(text)
            .replace(PROBE_SECRET, "{{ toJson $.Values.probe.secretName }}")
            .replace(IMAGE, "{{ $.Values.image }}")
            .replace(NAMESPACE, "{{ $.Release.Namespace }}")
            .replace(REGISTER, "{{ $.Values.webhook.registerUrl }}");
        [
            (CALLER, "callers"),
            (ADDRESS, "callerAddresses"),
            (USER, "trustedWriters.users"),
            (GROUP, "trustedWriters.groups"),
            (PROBE_PEER, "probe.peers"),
        ]
        .into_iter()
        .fold(text, |text, (mark, values)| repeat_item(&text, mark, values))
    };
    let fill = |objects: &[Variants]| fill_text(&objects.iter().map(render_variants).collect::<String>());
    let collectors = fill_text(&merge_probes(&measuring, &collectors)).replace(COLLECTOR, "{{ . }}");
    let text = describe_names;
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
        "properties": {
            "image": {"type": "string", "pattern": r"^\S+$", "description": "Has caldera as its entry point"},
            // A selector of no namespaces is refused by the API server.
            "callers": text("Namespaces whose pods may call the webhook", DNS_LABEL, 1),
            "callerAddresses": text("Networks from which the webhook may be called", NETWORK, 0),
            "collectors": text("Members that get a collector", DNS_SUBDOMAIN, 0),
            "probe": describe_probe(),
            "stockScheduler": {"type": "boolean", "description": "karmada-scheduler places what is admitted"},
            "trustedWriters": describe_writers(0),
            "monitoring": {"type": "object", "additionalProperties": false, "required": ["enabled", "runbookUrl"], "properties": {
                "enabled": {"type": "boolean"},
                "runbookUrl": {"type": "string", "pattern": PAGE, "description": "Where docs/metrics.md can be read"},
            }},
            "certManager": {"type": "object", "additionalProperties": false, "properties": {
                "enabled": {"type": "boolean"},
                "issuer": {"type": "object", "additionalProperties": false, "properties": {
                    "kind": {"enum": ["Issuer", "ClusterIssuer"]}, "name": {"type": "string"},
                }},
            }},
            "global": {"type": "object"},
        },
    });
    let properties = schema["properties"].as_object_mut().unwrap();
    properties.extend(describe_schemas(&deployments));
    let section = &mut properties["console"];
    for switch in ["enabled", "measureStarts"] {
        section["properties"][switch] = json!({"type": "boolean"});
    }
    // Nothing else measures them.
    section["if"] = json!({"properties": {"measureStarts": {"const": true}}, "required": ["measureStarts"]});
    section["then"] = json!({"properties": {"enabled": {"const": true}}});
    // Helm drops what is null, and a template that asks for a field of it breaks.
    let all: Vec<String> = properties.keys().filter(|name| *name != "global").cloned().collect();
    schema["required"] = json!(all);
    schema["properties"]["certManager"]["required"] = json!(["enabled", "issuer"]);
    // The webhook would make a certificate as well, and nobody mount the other one.
    schema["if"] = json!({"properties": {"certManager": {"properties": {"enabled": {"const": true}}}}});
    schema["then"] = json!({"properties": {"webhook": {"properties": {"registerUrl": {"maxLength": 0}}}}});
    let values = "# Has caldera as its entry point; it has to be given.\nimage: \"\"\n\
                  # Namespaces whose pods may call the webhook.\ncallers: [karmada-system]\n\
                  # Networks from which it may be called, as 10.0.0.0/8.\ncallerAddresses: []\n\
                  # Members that get a collector.\ncollectors: []\n\
                  # Collectors measure the way to other members where a Secret is named, with tls.crt, tls.key and ca.crt\n\
                  # for the name caldera-probe. peers are the members, and where their collectors listen, as\n\
                  # member2=203.0.113.7:7950; each collector leaves out its own. Each gets a Service of type LoadBalancer.\n\
                  # These collectors run beside the control plane, and measure its way to others, not that of the members: for\n\
                  # that run each inside its member, by caldera manifests --member (docs/tasks/topology.md).\n\
                  probe:\n  secretName: \"\"\n  peers: []\n\
                  # Leaves placement to karmada-scheduler, and runs no scheduler of ours.\nstockScheduler: false\n\
                  # Whom the webhook trusts, the same as in charts/caldera-karmada; nobody named is the default.\n\
                  trustedWriters:\n  users: []\n  groups: []\n\
                  # A Certificate of cert-manager for the webhook, in place of a Secret caldera-webhook-cert of yours.\n\
                  certManager:\n  enabled: false\n  issuer:\n    kind: Issuer\n    name: \"\"\n\
                  # A PodMonitor and a PrometheusRule of the Prometheus operator, and ConfigMaps with dashboards that\n\
                  # Grafana's sidecar takes.\nmonitoring:\n  enabled: false\n  \
                  # Where docs/metrics.md can be read: each alert has it as runbook_url, with a section of it behind. A\n  \
                  # URL of yours makes a link of it, as https://git.example.com/caldera/blob/main/docs/metrics.md.\n  \
                  runbookUrl: docs/metrics.md\n";
    let of_console = "console:\n  # The web page; it wants Secrets caldera-console-kubeconfig and caldera-console-cert.\n  \
                      enabled: false\n  \
                      # Shows caldera_expected_start_error_seconds, which nothing else measures.\n  \
                      measureStarts: false\n";
    let values = values.to_owned() + &describe_values(&deployments).replace("console:\n", of_console);
    let monitoring = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../manifests/monitoring");
    let read = |name: &str| fs::read_to_string(monitoring.join(name)).unwrap();
    BTreeMap::from([
        ("Chart.yaml", render_chart_yaml("caldera", "Caldera's components, beside Karmada's control plane")),
        ("values.yaml", values),
        ("values.schema.json", format!("{schema:#}\n")),
        ("templates/guard.yaml", build_guard()),
        ("templates/components.yaml", fill(&others)),
        ("templates/placement.yaml", format!("{STOCK_BEGIN}{}{STOCK_ELSE}{}{END}", fill(&stock), fill(&ours))),
        ("templates/collectors.yaml", format!("{{{{- range $.Values.collectors }}}}\n{collectors}{{{{- end }}}}\n")),
        ("templates/console.yaml", format!("{CONSOLE_BEGIN}{}{{{{- end }}}}\n", fill(&console))),
        ("templates/monitoring.yaml", POD_MONITOR.to_owned()),
        ("templates/alerts.yaml", RULES.replace("RUNBOOKS", RUNBOOK_PAGE)),
        ("templates/NOTES.txt", format!("{NOTES}{BEFORE_UNINSTALL}")),
        ("templates/certificate.yaml", CERTIFICATE.to_owned()),
        ("files/alerts.yaml", read("alerts.yaml")),
        ("files/dashboard-tenant.json", read("dashboard-tenant.json")),
        ("files/dashboard-admin.json", read("dashboard-admin.json")),
        ("files/dashboard-sre.json", read("dashboard-sre.json")),
    ])
}
