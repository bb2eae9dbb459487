//! Tests, and the generator behind them: render the Helm charts in `charts` from the objects that `caldera manifests`
//! prints, and check that the files are current. With `CALDERA_WRITE_DOCS=1` they are written instead.
//!
//! Rule: one source. Each chart is for one of the two API servers: `caldera` for the cluster that the components run
//! in, `caldera-karmada` for the Karmada API. Objects are rendered with marks where a value goes, and each mark is
//! replaced by the template of that value, so that what Helm renders is what `caldera manifests` prints.

use std::{collections::BTreeMap, fs, path::PathBuf};

use caldera_crds::{names::karmada::CLUSTER_NAMESPACE, trusted::TrustedWriters};
use caldera_webhook::Endpoint;
use serde_json::{Value, json};

use crate::{
    deploy::{Deploy, build_component_objects},
    manifests::{build_propagation_policies, list_admission_policies, parse_documents},
    monitoring::check_or_write_file,
    roles::{Granted, build_component_roles},
};

const IMAGE: &str = "CALDERA-IMAGE";
const NAMESPACE: &str = "CALDERA-NAMESPACE";
const CALLER: &str = "CALDERA-CALLER";
const ADDRESS: &str = "CALDERA-ADDRESS";
const COLLECTOR: &str = "CALDERA-COLLECTOR";
const URL: &str = "https://caldera-url";
const BUNDLE: &str = "CALDERA-BUNDLE";

const STOCK_BEGIN: &str = "{{- if $.Values.stockScheduler }}\n";
const STOCK_ELSE: &str = "{{- else }}\n";
const END: &str = "{{- end }}\n";
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
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: caldera
  namespace: {{ $.Release.Namespace }}
spec:
{{ $.Files.Get \"files/alerts.yaml\" | indent 2 }}
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

pub(crate) fn render_yaml(objects: &[Value]) -> String {
    let one = |object: &Value| format!("---\n{}\n", serde_saphyr::to_string(object).unwrap().trim_end());
    let text: String = objects.iter().map(one).collect();
    assert!(!text.contains("{{"), "an object has what Helm would obey");
    text
}

/// Replaces the lines of a list item that holds a mark by one for each value.
fn repeat_item(text: &str, mark: &str, values: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = String::new();
    let mut at = 0;
    while at < lines.len() {
        // The item begins at the last dash before the mark.
        let ahead = if lines[at].trim_start().starts_with("- ") {
            lines[at..].iter().take(2).position(|line| line.contains(mark))
        } else {
            None
        };
        let Some(end) = ahead else {
            out += &format!("{}\n", lines[at]);
            at += 1;
            continue;
        };
        out += &format!("{{{{- range $.Values.{values} }}}}\n");
        for line in &lines[at..=at + end] {
            out += &format!("{}\n", line.replace(mark, "{{ . }}"));
        }
        out += "{{- end }}\n";
        at += end + 1;
    }
    out
}

/// For the cluster that the components run in.
fn build_component_chart() -> BTreeMap<&'static str, String> {
    let deploy = Deploy {
        image: IMAGE.to_owned(),
        namespace: NAMESPACE.to_owned(),
        collectors: vec![COLLECTOR.to_owned()],
        callers: vec![CALLER.to_owned()],
        caller_addresses: vec![ADDRESS.to_owned()],
        console: true,
        stock_scheduler: false,
    };
    let stock = build_component_objects(&Deploy { stock_scheduler: true, ..deploy.clone() });
    let stock: Vec<Value> = stock.into_iter().filter(is_of_placement).collect();
    // Helm makes the namespace, with `--create-namespace`.
    let objects: Vec<Value> =
        build_component_objects(&deploy).into_iter().filter(|object| object["kind"] != "Namespace").collect();
    let (collectors, others): (Vec<Value>, Vec<Value>) = objects.into_iter().partition(is_of_collector);
    let (console, others): (Vec<Value>, Vec<Value>) = others.into_iter().partition(is_of_console);
    let (ours, others): (Vec<Value>, Vec<Value>) = others.into_iter().partition(is_of_placement);
    let fill = |objects: &[Value]| {
        let text =
            render_yaml(objects).replace(IMAGE, "{{ $.Values.image }}").replace(NAMESPACE, "{{ $.Release.Namespace }}");
        repeat_item(&repeat_item(&text, CALLER, "callers"), ADDRESS, "callerAddresses")
    };
    let collectors = fill(&collectors).replace(COLLECTOR, "{{ . }}");
    let text = |name: &str| json!({"type": "array", "uniqueItems": true, "items": {"type": "string", "minLength": 1}, "description": name});
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
        "required": ["image"],
        "properties": {
            "image": {"type": "string", "minLength": 1, "description": "Has caldera as its entry point"},
            "callers": text("Namespaces whose pods may call the webhook"),
            "callerAddresses": text("Networks from which the webhook may be called"),
            "collectors": text("Members that get a collector"),
            "stockScheduler": {"type": "boolean", "description": "karmada-scheduler places what is admitted"},
            "console": {"type": "object", "additionalProperties": false, "properties": {"enabled": {"type": "boolean"}}},
            "monitoring": {"type": "object", "additionalProperties": false, "properties": {"enabled": {"type": "boolean"}}},
            "certManager": {"type": "object", "additionalProperties": false, "properties": {
                "enabled": {"type": "boolean"},
                "issuer": {"type": "object", "additionalProperties": false, "properties": {
                    "kind": {"enum": ["Issuer", "ClusterIssuer"]}, "name": {"type": "string"},
                }},
            }},
            "global": {"type": "object"},
        },
    });
    let values = "# Has caldera as its entry point; it has to be given.\nimage: \"\"\n\
                  # Namespaces whose pods may call the webhook.\ncallers: [karmada-system]\n\
                  # Networks from which it may be called, as 10.0.0.0/8.\ncallerAddresses: []\n\
                  # Members that get a collector.\ncollectors: []\n\
                  # Leaves placement to karmada-scheduler, and runs no scheduler of ours.\nstockScheduler: false\n\
                  # The web page; it wants Secrets caldera-console-kubeconfig and caldera-console-cert.\nconsole:\n  enabled: false\n\
                  # A Certificate of cert-manager for the webhook, in place of a Secret caldera-webhook-cert of yours.\n\
                  certManager:\n  enabled: false\n  issuer:\n    kind: Issuer\n    name: \"\"\n\
                  # A PodMonitor and a PrometheusRule of the Prometheus operator, and ConfigMaps with dashboards that\n\
                  # Grafana's sidecar takes.\nmonitoring:\n  enabled: false\n";
    let monitoring = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../manifests/monitoring");
    let read = |name: &str| fs::read_to_string(monitoring.join(name)).unwrap();
    BTreeMap::from([
        ("Chart.yaml", render_chart_yaml("caldera", "Caldera's components, beside Karmada's control plane")),
        ("values.yaml", values.to_owned()),
        ("values.schema.json", format!("{schema:#}\n")),
        ("templates/components.yaml", fill(&others)),
        ("templates/placement.yaml", format!("{STOCK_BEGIN}{}{STOCK_ELSE}{}{END}", fill(&stock), fill(&ours))),
        ("templates/collectors.yaml", format!("{{{{- range $.Values.collectors }}}}\n{collectors}{{{{- end }}}}\n")),
        ("templates/console.yaml", format!("{CONSOLE_BEGIN}{}{{{{- end }}}}\n", fill(&console))),
        ("templates/monitoring.yaml", POD_MONITOR.to_owned()),
        ("templates/certificate.yaml", CERTIFICATE.to_owned()),
        ("files/alerts.yaml", read("alerts.yaml")),
        ("files/dashboard-tenant.json", read("dashboard-tenant.json")),
        ("files/dashboard-admin.json", read("dashboard-admin.json")),
        ("files/dashboard-sre.json", read("dashboard-sre.json")),
    ])
}

/// For the Karmada API.
pub(crate) fn build_karmada_chart() -> BTreeMap<&'static str, String> {
    let endpoint = Endpoint::Url(URL.to_owned());
    let encoded = encode(BUNDLE);
    let hooks = render_yaml(&caldera_webhook::build_configurations(&endpoint, BUNDLE))
        .replace(URL, "{{ $.Values.webhookUrl | trimSuffix \"/\" }}")
        .replace(&encoded, "{{ $.Values.caBundle | b64enc }}");
    let policies = list_admission_policies(&TrustedWriters::default(), false);
    let mut definitions = caldera_crds::manifests::build_host_volcano_crds();
    definitions.extend(caldera_crds::manifests::build_federation_crds());
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
        "required": ["webhookUrl", "caBundle"],
        "properties": {
            "webhookUrl": {"type": "string", "pattern": "^https://[^/?#@]+(/[^?#]*)?$"},
            "caBundle": {"type": "string", "pattern": "-----BEGIN CERTIFICATE-----", "description": "PEM"},
            "global": {"type": "object"},
        },
    });
    let values = "# The webhook as the Karmada API server and controllers reach it.\n\
                  webhookUrl: https://caldera-webhook.caldera-system.svc\n\
                  # PEM of who signed its certificate, with --set-file caBundle=ca.pem; it has to be given.\ncaBundle: \"\"\n";
    // Karmada makes it when the first member joins, and Helm refuses what is there already.
    let mut roles = build_component_roles(&Granted::default());
    roles.retain(|object| object["kind"] != "Namespace" || object["metadata"]["name"] != CLUSTER_NAMESPACE);
    BTreeMap::from([
        ("Chart.yaml", render_chart_yaml("caldera-karmada", "What Caldera needs on the Karmada API")),
        ("values.yaml", values.to_owned()),
        ("values.schema.json", format!("{schema:#}\n")),
        ("crds/definitions.yaml", render_yaml(&definitions)),
        ("templates/roles.yaml", render_yaml(&roles)),
        ("templates/propagation.yaml", render_yaml(&build_propagation_policies())),
        ("templates/admission.yaml", render_yaml(&policies)),
        ("templates/webhooks.yaml", hooks),
    ])
}

fn encode(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn render_chart_yaml(name: &str, about: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "apiVersion: v2\nname: {name}\ndescription: {about}\ntype: application\nversion: {version}\nappVersion: \"{version}\"\n"
    )
}

fn charts() -> [(&'static str, BTreeMap<&'static str, String>); 2] {
    [("caldera", build_component_chart()), ("caldera-karmada", build_karmada_chart())]
}

#[test]
fn the_charts_are_made_of_what_manifests_prints() {
    for (chart, files) in charts() {
        for (name, wanted) in files {
            check_or_write_file(&format!("charts/{chart}/{name}"), &wanted);
        }
    }
}

/// What Helm makes of the few forms that these templates have.
fn render_helm_template(template: &str, values: &BTreeMap<&str, Vec<&str>>) -> String {
    let mut out = String::new();
    let mut lines = template.lines();
    while let Some(line) = lines.next() {
        let Some(list) = line.strip_prefix("{{- range $.Values.").and_then(|rest| rest.strip_suffix(" }}")) else {
            out += &format!("{line}\n");
            continue;
        };
        // No range holds another.
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "{{- end }}").collect();
        for value in &values[list] {
            body.iter().for_each(|line| out += &format!("{}\n", line.replace("{{ . }}", value)));
        }
    }
    for (name, value) in values.iter().filter(|(_, value)| value.len() == 1) {
        out = out.replace(&format!("{{{{ {name} }}}}"), value[0]);
    }
    assert!(!out.contains("{{"), "{out}");
    out
}

#[test]
fn what_the_charts_render_is_what_manifests_prints() {
    let deploy = Deploy {
        image: "registry/caldera:1".to_owned(),
        namespace: "ops".to_owned(),
        collectors: vec!["m1".to_owned(), "m2".to_owned()],
        callers: vec!["karmada-system".to_owned(), "other".to_owned()],
        caller_addresses: vec!["10.0.0.0/8".to_owned()],
        console: true,
        stock_scheduler: false,
    };
    let values = BTreeMap::from([
        ("$.Values.image", vec!["registry/caldera:1"]),
        ("$.Release.Namespace", vec!["ops"]),
        ("collectors", vec!["m1", "m2"]),
        ("callers", vec!["karmada-system", "other"]),
        ("callerAddresses", vec!["10.0.0.0/8"]),
    ]);
    let chart = build_component_chart();
    let console = chart["templates/console.yaml"].strip_prefix(CONSOLE_BEGIN).unwrap();
    let console = render_helm_template(console.strip_suffix("{{- end }}\n").unwrap(), &values);
    let others = render_helm_template(&chart["templates/components.yaml"], &values)
        + &render_helm_template(&chart["templates/collectors.yaml"], &values)
        + &console;
    let placement = chart["templates/placement.yaml"].strip_prefix(STOCK_BEGIN).unwrap();
    let (stock, ours) = placement.strip_suffix(END).unwrap().split_once(STOCK_ELSE).unwrap();
    for (stock_scheduler, placement) in [(true, stock), (false, ours)] {
        let rendered = others.clone() + &render_helm_template(placement, &values);
        let deploy = Deploy { stock_scheduler, ..deploy.clone() };
        same(
            parse_documents(&rendered).unwrap(),
            build_component_objects(&deploy).into_iter().filter(|it| it["kind"] != "Namespace").collect(),
        );
    }

    let chart = build_karmada_chart();
    let pem = "-----BEGIN CERTIFICATE-----";
    let encoded = encode(pem);
    let values = BTreeMap::from([
        ("$.Values.webhookUrl | trimSuffix \"/\"", vec!["https://h:8443"]),
        ("$.Values.caBundle | b64enc", vec![encoded.as_str()]),
    ]);
    let rendered = render_helm_template(&chart["templates/webhooks.yaml"], &values);
    let wanted = caldera_webhook::build_configurations(&Endpoint::Url("https://h:8443".to_owned()), pem);
    same(parse_documents(&rendered).unwrap(), wanted);
}

#[track_caller]
pub(crate) fn same(mut rendered: Vec<Value>, mut wanted: Vec<Value>) {
    let key = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    rendered.sort_by_key(key);
    wanted.sort_by_key(key);
    assert_eq!(rendered.iter().map(key).collect::<Vec<_>>(), wanted.iter().map(key).collect::<Vec<_>>());
    for (rendered, wanted) in rendered.iter().zip(&wanted) {
        assert_eq!(rendered, wanted);
    }
}
