//! Tests, and the generator behind them: render the Helm charts in `charts` from the objects that `caldera manifests`
//! prints, and check that the files are current. With `CALDERA_WRITE_DOCS=1` they are written instead.
//!
//! Rule: one source. Each chart is for one of the two API servers: `caldera` for the cluster that the components run
//! in, `caldera-karmada` for the Karmada API. Objects are rendered with marks where a value goes, and each mark is
//! replaced by the template of that value, so that what Helm renders is what `caldera manifests` prints. Where a value
//! is a choice, both are rendered and become one template.

mod components;
mod karmada;
mod refusals;
mod settings;
mod template;

use std::collections::BTreeMap;

use caldera_crds::trusted::{TrustedWriters, Writer};
use caldera_webhook::Endpoint;
use clap::Parser as _;
use serde_json::{Map, Value, json};

pub(crate) use self::karmada::{build_default_objects, build_karmada_chart};
use self::{components::build_component_chart, karmada::build_chart_roles, template::render_template};
use crate::{
    args::Args,
    deploy::{Deploy, ProbeSettings, build_component_objects},
    manifests::{build_propagation_policies, list_admission_policies, parse_documents},
    monitoring::{check_or_write_file, list_alert_names},
    objects::{read_list_at, read_text_at},
};

const USER: &str = "CALDERA-USER";
const GROUP: &str = "CALDERA-GROUP";
const END: &str = "{{- end }}\n";
/// The end of what each chart says once it is installed.
const BEFORE_UNINSTALL: &str = "helm uninstall opens no gate: jobs that wait would never start. Before it:

  caldera uninstall --kubeconfig karmada.kubeconfig --open-gates --yes
";

pub(crate) fn render_yaml(objects: &[Value]) -> String {
    let one = |object: &Value| format!("---\n{}\n", serde_saphyr::to_string(object).unwrap().trim_end());
    let text: String = objects.iter().map(one).collect();
    assert!(!text.contains("{{"), "an object has what Helm would obey");
    text
}

/// Users and groups, by names that need no quotes.
fn describe_writers(least: usize) -> Value {
    let names = json!({
        "type": "array", "uniqueItems": true, "minItems": least,
        "items": {"type": "string", "pattern": "^[A-Za-z0-9:@._/#+=-]*[A-Za-z0-9@._/#+=-]$"},
    });
    json!({
        "type": "object", "additionalProperties": false, "properties": {"users": names, "groups": names},
        "required": ["users", "groups"],
        "description": "Who may write what says what is admitted and placed; the same in both charts",
    })
}

fn has_same_name(one: &Value, other: &Value) -> bool {
    one["kind"] == other["kind"] && one["metadata"]["name"] == other["metadata"]["name"]
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

/// What a chart's templates render to with its own values and these over them.
fn render_chart(chart: &BTreeMap<&'static str, String>, names: &[&str], over: &Value) -> Vec<Value> {
    let mut values = parse_documents(&chart["values.yaml"]).unwrap().remove(0);
    put_over(&mut values, over);
    let files: Map<String, Value> =
        chart.iter().map(|(name, text)| ((*name).to_owned(), text.as_str().into())).collect();
    let root = json!({"Values": values, "Release": {"Namespace": "ops"}, "Files": files});
    let rendered: String =
        names.iter().map(|name| render_template(&chart[format!("templates/{name}.yaml").as_str()], &root)).collect();
    parse_documents(&rendered).unwrap()
}

fn put_over(values: &mut Value, over: &Value) {
    match (values.as_object_mut(), over.as_object()) {
        // One that is empty may have any name.
        (Some(values), Some(over)) if !values.is_empty() => {
            for (name, value) in over {
                put_over(values.get_mut(name).unwrap_or_else(|| panic!("no value is called {name}")), value);
            }
        }
        _ => *values = over.clone(),
    }
}

const COMPONENTS: [&str; 4] = ["components", "placement", "collectors", "console"];

#[test]
fn what_the_charts_render_is_what_manifests_prints() {
    let word = |text: &str| text.parse::<Writer>().unwrap();
    let default = Deploy {
        image: "registry/caldera:1".to_owned(),
        namespace: "ops".to_owned(),
        callers: vec!["karmada-system".to_owned()],
        ..Deploy::default()
    };
    let more = Deploy {
        collectors: vec!["m1".to_owned(), "m2".to_owned()],
        callers: vec!["karmada-system".to_owned(), "other".to_owned()],
        caller_addresses: vec!["10.0.0.0/8".to_owned()],
        console: true,
        trusted_writers: vec![word("user:a:b"), word("group:g"), word("group:h")],
        probe: Some(ProbeSettings {
            secret: "123".to_owned(),
            peers: vec!["m1=10.0.0.1:7950".to_owned(), "m3=[fd00::1]:7950".to_owned()],
        }),
        ..default.clone()
    };
    let of_more = json!({
        "collectors": ["m1", "m2"], "callers": ["karmada-system", "other"], "callerAddresses": ["10.0.0.0/8"],
        "console": {"enabled": true}, "trustedWriters": {"users": ["a:b"], "groups": ["g", "h"]},
        "probe": {"secretName": "123", "peers": ["m1=10.0.0.1:7950", "m3=[fd00::1]:7950"]},
    });
    let url = "https://caldera-webhook.ops.svc";
    let chart = build_component_chart();
    for (deploy, values) in [(default, json!({})), (more, of_more)] {
        for (stock_scheduler, register_url) in [(true, None), (false, None), (true, Some(url)), (false, Some(url))] {
            let mut values = values.clone();
            values["image"] = deploy.image.as_str().into();
            values["stockScheduler"] = stock_scheduler.into();
            values["webhook"] = json!({"registerUrl": register_url.unwrap_or_default()});
            let register_url = register_url.map(str::to_owned);
            let deploy = Deploy { stock_scheduler, register_url, ..deploy.clone() };
            let wanted = build_component_objects(&deploy).into_iter().filter(|it| it["kind"] != "Namespace");
            same(render_chart(&chart, &COMPONENTS, &values), wanted.collect());
        }
    }
}

/// What is set for a component is where Kubernetes has it, and nowhere else.
#[test]
fn what_is_set_for_a_component_reaches_its_pods_and_no_other() {
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}});
    let tolerations = json!([{"key": "infra", "operator": "Exists"}]);
    let resources = json!({"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "8Gi"}});
    let settings = json!({
        "replicas": 3, "resources": resources, "extraArgs": ["--order=fifo", "--preempt=by.least=1000,scope=any-queue"],
        "podAnnotations": {"sidecar.istio.io/inject": "false"}, "nodeSelector": {"pool": "infra"},
        "tolerations": tolerations, "affinity": affinity, "priorityClassName": "system-cluster-critical",
    });
    let chart = build_component_chart();
    let render = |component: &str| {
        let mut values = json!({"image": "i", "imagePullSecrets": [{"name": "registry"}], "collectors": ["m1"]});
        values[component] = settings.clone();
        values["console"]["enabled"] = true.into();
        let mut all = render_chart(&chart, &COMPONENTS, &values);
        all.retain(|object| object["kind"] == "Deployment");
        all
    };
    let plain =
        render_chart(&chart, &COMPONENTS, &json!({"image": "i", "collectors": ["m1"], "console": {"enabled": true}}));
    for component in ["webhook", "controller", "scheduler", "inventory", "console"] {
        let rendered = render(component);
        assert_eq!(rendered.len(), 5);
        for deployment in rendered {
            let (spec, pod) = (&deployment["spec"], &deployment["spec"]["template"]["spec"]);
            assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));
            let container = &pod["containers"][0];
            if container["name"] != component {
                let mut before = plain.iter().find(|one| has_same_name(one, &deployment)).unwrap().clone();
                before["spec"]["template"]["spec"]["imagePullSecrets"] = json!([{"name": "registry"}]);
                assert_eq!(deployment, before);
                continue;
            }
            assert_eq!((&spec["replicas"], &container["resources"]), (&json!(3), &resources));
            assert_eq!(spec["template"]["metadata"]["annotations"]["sidecar.istio.io/inject"], "false");
            assert_eq!((&pod["nodeSelector"]["pool"], &pod["tolerations"]), (&json!("infra"), &tolerations));
            assert_eq!((&pod["affinity"], &pod["priorityClassName"]), (&affinity, &json!("system-cluster-critical")));
            let args = container["args"].as_array().unwrap();
            assert_eq!(args[args.len() - 2..], settings["extraArgs"].as_array().unwrap()[..]);
        }
    }
}

#[test]
fn a_console_measures_expected_starts_where_that_is_asked_for() {
    let chart = build_component_chart();
    let list_args = |measure: bool| {
        let console = json!({"enabled": true, "measureStarts": measure, "extraArgs": ["--order=fifo"]});
        let all = render_chart(&chart, &["console"], &json!({"image": "i", "console": console}));
        let deployment = all.iter().find(|object| object["kind"] == "Deployment").unwrap().clone();
        deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap().clone()
    };
    let (with, without) = (list_args(true), list_args(false));
    let more: Vec<&Value> = with.iter().filter(|arg| !without.contains(arg)).collect();
    assert_eq!((more, without.len() + 1), (vec![&json!("--measure-starts")], with.len()));
    let words = with.iter().filter_map(Value::as_str).filter(|word| *word != "--order=fifo");
    Args::try_parse_from(["caldera"].into_iter().chain(words)).unwrap();
}

#[test]
fn the_rules_link_to_the_page_that_is_set_or_to_the_one_of_the_project() {
    let chart = build_component_chart();
    let list_links = |monitoring: Value| {
        let all = render_chart(&chart, &["alerts"], &json!({"monitoring": monitoring}));
        let rules = all.first().map_or(&[][..], |rule| read_list_at(rule, "/spec/groups/0/rules"));
        rules.iter().map(|rule| read_text_at(rule, "/annotations/runbook_url").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list_links(json!({})), [""; 0]);
    let ours = list_links(json!({"enabled": true}));
    assert_eq!(ours.len(), list_alert_names().len());
    let page = "https://git.example.com/caldera/blob/main/docs/metrics.md";
    let links = list_links(json!({"enabled": true, "runbookUrl": page}));
    for (ours, link) in ours.iter().zip(&links) {
        assert_eq!(ours.replace("docs/metrics.md", page), *link);
        assert!(ours.starts_with("docs/metrics.md#caldera"), "{ours}");
    }
}

#[test]
fn what_helm_says_at_the_end_are_commands_that_there_are_and_gates_come_before_the_removal() {
    for (name, chart) in charts() {
        for register in ["", "https://h"] {
            let mut values = parse_documents(&chart["values.yaml"]).unwrap().remove(0);
            (values["webhook"]["registerUrl"], values["registersWebhooks"]) =
                (register.into(), (!register.is_empty()).into());
            let root = json!({"Values": values, "Release": {"Namespace": "ops"}});
            let text = render_template(&chart["templates/NOTES.txt"], &root);
            assert!(text.lines().count() < 25 && text.lines().all(|line| line.chars().count() <= 120), "{text}");
            let commands = text.lines().filter_map(|line| line.trim().strip_prefix("caldera "));
            let commands: Vec<&str> = commands.map(|command| command.split(" | ").next().unwrap()).collect();
            for command in &commands {
                Args::try_parse_from(["caldera"].into_iter().chain(command.split(' '))).unwrap();
            }
            assert!(commands.iter().any(|command| command.starts_with("doctor")), "{name}: {text}");
            let last = commands.last().unwrap();
            assert!(last.starts_with("uninstall") && last.contains("--open-gates"), "{name}: {text}");
        }
    }
}

const OF_KARMADA: [&str; 8] = [
    "roles",
    "webhook-roles",
    "propagation",
    "admission",
    "trusted-writers",
    "queue-access",
    "pull-members",
    "webhooks",
];

#[test]
fn what_the_karmada_chart_renders_is_what_manifests_prints() {
    let pem = "-----BEGIN CERTIFICATE-----";
    let endpoint = Endpoint::Url("https://h:8443".to_owned());
    let others = ["user:z", "user:ops", "group:system:masters"].map(|word| word.parse::<Writer>().unwrap());
    let others: TrustedWriters = others.into_iter().collect();
    let of_others = json!({"users": ["z", "ops"], "groups": ["system:masters"]});
    let chart = build_karmada_chart();
    for (writers, said) in [(TrustedWriters::default(), None), (others, Some(of_others))] {
        for (registers, access, pull) in [(false, false, true), (false, true, false), (true, false, false)] {
            let mut values = json!({
                "webhookUrl": "https://h:8443/", "caBundle": pem, "registersWebhooks": registers,
                "requireQueueAccess": access, "pullMembers": pull,
            });
            if let Some(said) = &said {
                values["trustedWriters"] = said.clone();
            }
            let mut wanted = build_chart_roles(registers);
            wanted.extend(build_propagation_policies());
            wanted.extend(list_admission_policies(&writers, access));
            wanted.extend(pull.then(caldera_webhook::build_member_customization));
            if !registers {
                wanted.extend(caldera_webhook::build_configurations_for(&endpoint, pem, &writers));
            }
            same(render_chart(&chart, &OF_KARMADA, &values), wanted);
        }
    }
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
