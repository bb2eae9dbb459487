//! What an admin sets for each component of the chart: how many replicas, on which nodes, with how much, and with which
//! flags.
//!
//! Rule: what is set stands where Kubernetes has it, as it is; what is not is as `caldera manifests --deployments`
//! prints it. The flags that may be given are those of the component's command, but for those that the chart sets
//! itself and those that name a file, which no pod has.

use clap::CommandFactory as _;
use serde_json::{Value, json};

use super::template::merge_variants;
use crate::args::Args;

const VALUE: &str = "CALDERA-VALUE-";
const JSON: &str = "CALDERA-JSON-";
const WITH: &str = "CALDERA-WITH-";
const RANGE: &str = "CALDERA-RANGE-";
const FLAG: &str = "CALDERA-FLAG-";

/// Flags that the chart sets, or that make no sense in it.
const SET: [&str; 20] = [
    "admin",
    "cluster",
    "help",
    "in-member",
    "kubeconfig",
    "lease-namespace",
    "listen",
    "measure-starts",
    "member-kubeconfig",
    "no-lease",
    "probe-insecure",
    "probe-listen",
    "probe-peer",
    "register-url",
    "shadow",
    "stock-scheduler",
    "tls-cert",
    "tls-key",
    "trusted-writer",
    "version",
];

/// The YAML of a Deployment, with marks where a value goes.
pub(super) fn mark_deployment(deployment: &Value, render: impl Fn(&Value) -> String) -> String {
    let component = name_component(deployment);
    let mark = |kind: &str, name: &str| Value::from(format!("{kind}{component}.{name}"));
    let mut marked = deployment.clone();
    marked["spec"]["replicas"] = mark(VALUE, "replicas");
    let template = &mut marked["spec"]["template"];
    template["metadata"]["annotations"] = mark(WITH, "podAnnotations");
    let pod = &mut template["spec"];
    pod["imagePullSecrets"] = format!("{WITH}imagePullSecrets").into();
    for field in ["nodeSelector", "tolerations", "priorityClassName"] {
        pod[field] = mark(WITH, field);
    }
    let container = &mut pod["containers"][0];
    container["resources"] = mark(JSON, "resources");
    let args = container["args"].as_array_mut().unwrap();
    if component == "console" {
        args.push(mark(FLAG, "measureStarts --measure-starts"));
    }
    args.push(mark(RANGE, "extraArgs"));
    let ours = render(&marked);
    marked["spec"]["template"]["spec"]["affinity"] = mark(JSON, "affinity");
    merge_variants(&format!("$.Values.{component}.affinity"), &render(&marked), &ours)
}

/// Templates in place of the marks.
pub(super) fn write_marks(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let find = |kind: &str| line.split_once(kind);
        out += &if let Some((before, path)) = find(VALUE) {
            format!("{before}{{{{ $.Values.{path} }}}}\n")
        } else if let Some((before, path)) = find(JSON) {
            format!("{before}{{{{ toJson $.Values.{path} }}}}\n")
        } else if let Some((before, path)) = find(WITH) {
            format!("{{{{- with $.Values.{path} }}}}\n{before}{{{{ toJson . }}}}\n{{{{- end }}}}\n")
        } else if let Some((before, path)) = find(RANGE) {
            format!("{{{{- range $.Values.{path} }}}}\n{before}{{{{ toJson . }}}}\n{{{{- end }}}}\n")
        } else if let Some((path, flag)) = find(FLAG).and_then(|(_, rest)| rest.split_once(' ')) {
            let before = line.split(FLAG).next().unwrap_or_default();
            format!("{{{{- if $.Values.{path} }}}}\n{before}{flag}\n{{{{- end }}}}\n")
        } else {
            format!("{line}\n")
        };
    }
    out
}

/// As its values are named: as its command.
fn name_component(deployment: &Value) -> &str {
    deployment["spec"]["template"]["spec"]["containers"][0]["name"].as_str().unwrap()
}

/// Their part of `values.yaml`.
pub(super) fn describe_values(deployments: &[Value]) -> String {
    let mut text = "# Secrets with credentials for the image's registry, as [{name: registry}].\nimagePullSecrets: []\n\
                    # Each component has the same settings. extraArgs are flags of its command with their values, as\n\
                    # --order=fifo or --otlp-endpoint=http://collector:4318; affinity goes in place of ours, which keeps\n\
                    # replicas on different nodes where it can.\n"
        .to_owned();
    for deployment in deployments {
        let component = name_component(deployment);
        let resources = &deployment["spec"]["template"]["spec"]["containers"][0]["resources"];
        let of = |kind: &str, name: &str| resources[kind][name].as_str().unwrap().to_owned();
        text += &format!(
            "{component}:\n  replicas: {}\n  resources:\n    requests:\n      cpu: {}\n      memory: {}\n    limits:\n      \
             memory: {}\n  extraArgs: []\n  podAnnotations: {{}}\n  nodeSelector: {{}}\n  tolerations: []\n  affinity: {{}}\n  \
             priorityClassName: \"\"\n",
            deployment["spec"]["replicas"],
            of("requests", "cpu"),
            of("requests", "memory"),
            of("limits", "memory")
        );
        if component == "webhook" {
            text += "  # The webhook registers itself with this URL and makes its certificate itself, as\n  \
                     # https://caldera-webhook.caldera-system.svc; charts/caldera-karmada wants registersWebhooks then.\n  \
                     registerUrl: \"\"\n";
        }
    }
    text
}

/// Their part of the schema, by name.
pub(super) fn describe_schemas(deployments: &[Value]) -> Vec<(String, Value)> {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let schema = |deployment: &Value| {
        let component = name_component(deployment);
        let mut properties = json!({
            "replicas": {"type": "integer", "minimum": 1},
            "resources": {"type": "object", "additionalProperties": false, "properties": {
                "requests": {"type": "object"}, "limits": {"type": "object"}, "claims": {"type": "array"},
            }},
            "extraArgs": {"type": "array", "items": {"type": "string", "pattern": match_flags(component)}},
            "podAnnotations": texts,
            "nodeSelector": texts,
            "tolerations": {"type": "array", "items": {"type": "object"}},
            "affinity": {"type": "object"},
            "priorityClassName": {"type": "string"},
        });
        if component == "webhook" {
            properties["registerUrl"] = json!({"type": "string", "pattern": r"^(https://[^/?#@\s]+(/[^?#\s]*)?)?$"});
        }
        let schema = json!({"type": "object", "additionalProperties": false, "properties": properties});
        (component.to_owned(), schema)
    };
    let secrets = json!({"type": "array", "items": {
        "type": "object", "additionalProperties": false, "required": ["name"],
        "properties": {"name": {"type": "string", "minLength": 1}},
    }});
    deployments.iter().map(schema).chain([("imagePullSecrets".to_owned(), secrets)]).collect()
}

/// What is a flag of a component's command.
fn match_flags(component: &str) -> String {
    let (valued, plain) = list_flags(component);
    let plain = if plain.is_empty() { String::new() } else { format!("|({})", plain.join("|")) };
    format!("^--(({})=.+{plain})$", valued.join("|"))
}

/// Flags that take a value, and those that take none.
fn list_flags(component: &str) -> (Vec<String>, Vec<String>) {
    let mut command = Args::command();
    command.build();
    let command = command.find_subcommand(component).unwrap();
    let names_file =
        |arg: &clap::Arg| arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == "FILE"));
    let given = command.get_arguments().filter(|arg| !names_file(arg) && !arg.is_hide_set());
    let flags = given.filter_map(|arg| Some((arg.get_long()?.to_owned(), arg.get_action().takes_values())));
    let mut flags: Vec<(String, bool)> = flags.filter(|(name, _)| !SET.contains(&name.as_str())).collect();
    flags.sort();
    let (valued, plain): (Vec<_>, Vec<_>) = flags.into_iter().partition(|(_, takes_value)| *takes_value);
    let names = |flags: Vec<(String, bool)>| flags.into_iter().map(|(name, _)| name).collect();
    (names(valued), names(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_each_command_may_be_given_but_for_those_that_the_chart_sets() {
        for component in ["webhook", "controller", "scheduler", "inventory"] {
            let (valued, plain) = list_flags(component);
            for name in ["otlp-endpoint", "log-format", "lease-duration"] {
                assert!(valued.iter().any(|one| one == name), "{component} {name}");
            }
            assert!(valued.iter().chain(&plain).all(|name| !SET.contains(&name.as_str())), "{component}");
        }
        let (valued, plain) = list_flags("controller");
        assert!(
            valued.contains(&"order".to_owned()) && plain.contains(&"load-aware".to_owned()),
            "{valued:?} {plain:?}"
        );
        assert!(!list_flags("webhook").0.contains(&"client-ca".to_owned()), "no pod has the file");
        let (valued, plain) = list_flags("inventory");
        assert!(valued.contains(&"probe-bytes-a-day".to_owned()), "{valued:?}");
        assert!(!valued.iter().chain(&plain).any(|name| ["probe-peer", "probe-cert-file"].contains(&name.as_str())));
        assert!(match_flags("controller").starts_with("^--(("));
    }
}
