//! Tests of the charts with the real Helm, where there is one: what it renders is what `caldera manifests` prints, and
//! values that make no sense are refused. Where there is none they say so; `chart` renders the same with a replacement.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use caldera_crds::trusted::Writer;
use caldera_webhook::Endpoint;
use serde_json::Value;

use crate::{
    chart::same,
    deploy::{Deploy, ProbeSettings, build_component_objects},
    manifests::{build_propagation_policies, list_admission_policies, parse_documents},
    monitoring::list_alert_names,
    roles::{Granted, build_component_roles},
};

/// The real Helm in the folder of the charts; none, and that is said, where it is not installed.
fn run_helm(words: &[&str]) -> Option<Output> {
    let charts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../charts");
    match Command::new("helm").args(words).current_dir(charts).output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("SKIPPED: the real Helm renders nothing here: {error}");
            None
        }
    }
}

fn render(words: &[&str]) -> Option<Vec<Value>> {
    let output = run_helm(&[&["template", "release", "--namespace", "ops"], words].concat())?;
    let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {said}");
    Some(parse_documents(&text).unwrap())
}

#[test]
fn helm_finds_nothing_wrong_in_the_charts() {
    let pem = "caBundle=-----BEGIN CERTIFICATE-----";
    for words in [
        &["lint", "--strict", "caldera", "--set", "image=i"][..],
        &["lint", "--strict", "caldera-karmada", "--set", pem],
    ] {
        let Some(output) = run_helm(words) else { return };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn helm_renders_what_manifests_prints() {
    let common = ["caldera", "--set", "image=registry/caldera:1"];
    let default = Deploy {
        image: "registry/caldera:1".to_owned(),
        namespace: "ops".to_owned(),
        collectors: Vec::new(),
        callers: vec!["karmada-system".to_owned()],
        caller_addresses: Vec::new(),
        console: false,
        stock_scheduler: false,
        ..Deploy::default()
    };
    let more = [
        "--set",
        "collectors={m1,m2}",
        "--set",
        "callers={karmada-system,other}",
        "--set",
        "callerAddresses={10.0.0.0/8,fd00::/8}",
        "--set",
        "console.enabled=true",
        "--set",
        "stockScheduler=true",
        "--set",
        "probe.secretName=caldera-probe",
        "--set",
        "probe.peers={m1=10.0.0.1:7950,m3=[fd00::1]:7950}",
    ];
    let all = Deploy {
        collectors: vec!["m1".to_owned(), "m2".to_owned()],
        callers: vec!["karmada-system".to_owned(), "other".to_owned()],
        caller_addresses: vec!["10.0.0.0/8".to_owned(), "fd00::/8".to_owned()],
        console: true,
        stock_scheduler: true,
        probe: Some(ProbeSettings {
            secret: "caldera-probe".to_owned(),
            peers: vec!["m1=10.0.0.1:7950".to_owned(), "m3=[fd00::1]:7950".to_owned()],
        }),
        ..default.clone()
    };
    for (words, deploy) in [(&[][..], default.clone()), (&more[..], all)] {
        let Some(rendered) = render(&[&common, words].concat()) else { return };
        let wanted = build_component_objects(&deploy).into_iter().filter(|it| it["kind"] != "Namespace");
        same(rendered, wanted.collect());
    }

    let url = "https://caldera-webhook.ops.svc";
    let registers = format!("webhook.registerUrl={url}");
    let words = ["--set", &registers, "--set", "trustedWriters.users={ops,a:b}", "--set", "trustedWriters.groups={g}"];
    let writers: [Writer; 3] = ["user:ops", "user:a:b", "group:g"].map(|word| word.parse().unwrap());
    let deploy = Deploy { trusted_writers: writers.into(), register_url: Some(url.to_owned()), ..default };
    let Some(rendered) = render(&[&common[..], &words].concat()) else { return };
    let wanted = build_component_objects(&deploy).into_iter().filter(|it| it["kind"] != "Namespace");
    same(rendered, wanted.collect());
}

#[test]
fn helm_renders_for_the_karmada_api_what_manifests_prints() {
    let pem = "-----BEGIN CERTIFICATE-----";
    let set = format!("caBundle={pem}");
    let words = ["caldera-karmada", "--set", "webhookUrl=https://h:8443/", "--set", &set];
    let mut wanted = caldera_webhook::build_configurations(&Endpoint::Url("https://h:8443".to_owned()), pem);
    wanted.extend(build_component_roles(&Granted::default()));
    wanted.retain(|object| object["kind"] != "Namespace" || object["metadata"]["name"] != "karmada-cluster");
    wanted.extend(build_propagation_policies());
    wanted.extend(list_admission_policies(&caldera_crds::trusted::TrustedWriters::default(), false));
    let Some(rendered) = render(&words) else { return };
    same(rendered, wanted);

    let more = ["registersWebhooks=true", "requireQueueAccess=true", "pullMembers=true", "trustedWriters.users={z,a}"];
    let more = [&["caldera-karmada"][..], &more.map(|value| ["--set", value]).concat()].concat();
    let mut wanted = build_component_roles(&Granted { registers: true, ..Granted::default() });
    wanted.retain(|object| object["kind"] != "Namespace" || object["metadata"]["name"] != "karmada-cluster");
    wanted.extend(build_propagation_policies());
    let writers = ["user:z", "user:a", "group:system:masters", "group:system:karmada:agents"];
    let writers: [Writer; 4] = writers.map(|word| word.parse().unwrap());
    wanted.extend(list_admission_policies(&writers.into_iter().collect(), true));
    wanted.push(caldera_webhook::build_member_customization());
    let Some(rendered) = render(&more) else { return };
    same(rendered, wanted);
}

#[test]
fn helm_puts_what_is_set_for_a_component_into_its_pods() {
    let set = [
        "controller.extraArgs={--order=fifo,--otlp-endpoint=http://c:4318}",
        "controller.nodeSelector.pool=infra",
        "controller.resources.requests.cpu=2",
        "imagePullSecrets[0].name=registry",
    ];
    let words = [&["caldera", "--set", "image=i"][..], &set.map(|value| ["--set", value]).concat()].concat();
    let Some(rendered) = render(&words) else { return };
    let of = |name: &str| {
        let mut deployments = rendered.iter().filter(|object| object["kind"] == "Deployment");
        deployments.find(|object| object["metadata"]["name"] == name).unwrap()["spec"]["template"]["spec"].clone()
    };
    let (controller, webhook) = (of("caldera-controller"), of("caldera-webhook"));
    let args = controller["containers"][0]["args"].to_string();
    assert!(args.ends_with(r#""--order=fifo","--otlp-endpoint=http://c:4318"]"#), "{args}");
    assert_eq!((&controller["nodeSelector"]["pool"], &webhook["nodeSelector"]), (&"infra".into(), &Value::Null));
    assert_eq!(webhook["imagePullSecrets"], serde_json::json!([{"name": "registry"}]));
}

#[test]
fn helm_adds_monitors_and_a_certificate_where_that_is_asked_for() {
    let asked = ["monitoring.enabled=true", "certManager.enabled=true", "certManager.issuer.name=ca"];
    let mut words = vec!["caldera", "--set", "image=i"];
    asked.iter().for_each(|value| words.extend(["--set", value]));
    let Some(rendered) = render(&words) else { return };
    let of_kind = |kind: &str| rendered.iter().find(|object| object["kind"] == kind).unwrap();
    let monitor = of_kind("PodMonitor");
    assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["port"], "admin");
    let (name, value) = ("app.kubernetes.io/part-of", "caldera");
    assert_eq!(monitor["spec"]["selector"]["matchLabels"][name], value);
    for deployment in rendered.iter().filter(|object| object["kind"] == "Deployment") {
        let pod = &deployment["spec"]["template"];
        assert_eq!(pod["metadata"]["labels"][name], value, "{deployment}");
        let ports = pod["spec"]["containers"][0]["ports"].to_string();
        assert!(ports.contains("\"admin\""), "{ports}");
    }
    let rules = of_kind("PrometheusRule")["spec"]["groups"][0]["rules"].as_array().unwrap();
    let names: Vec<&str> = rules.iter().filter_map(|rule| rule["alert"].as_str()).collect();
    assert_eq!(names, list_alert_names());
    let dashboards = rendered.iter().filter(|object| object["metadata"]["labels"]["grafana_dashboard"] == "1");
    let mut titles: Vec<String> = dashboards
        .flat_map(|object| object["data"].as_object().unwrap().values())
        .map(|text| serde_json::from_str::<Value>(text.as_str().unwrap()).unwrap()["title"].to_string())
        .collect();
    titles.sort();
    assert_eq!(titles, ["\"Caldera: my queues\"", "\"Caldera: operation\"", "\"Caldera: queues and fleet\""]);
    let certificate = of_kind("Certificate");
    assert_eq!(certificate["spec"]["dnsNames"][0], "caldera-webhook.ops.svc");
    let mounted = rendered.iter().any(|object| object.to_string().contains("\"secretName\":\"caldera-webhook-cert\"}"));
    assert!(mounted && certificate["spec"]["secretName"] == "caldera-webhook-cert");
}

#[test]
fn helm_refuses_values_that_make_no_sense() {
    let pem = "caBundle=-----BEGIN CERTIFICATE-----";
    for (words, why) in [
        (&["caldera"][..], "image"),
        (&["caldera", "--set", "image=i", "--set", "replicas=3"], "replicas"),
        (&["caldera", "--set", "image=i", "--set", "collectors=m1"], "collectors"),
        (&["caldera", "--set", "image=i", "--set", "webhook.replicas=0"], "replicas"),
        (&["caldera", "--set", "image=i", "--set", "webhook.replica=2"], "replica"),
        (&["caldera", "--set", "image=i", "--set", "controller.extraArgs={--no-lease}"], "extraArgs"),
        (&["caldera", "--set", "image=i", "--set", "scheduler.extraArgs={--order=fifo}"], "extraArgs"),
        (&["caldera", "--set", "image=i", "--set", "webhook.registerUrl=http://h"], "registerUrl"),
        (&["caldera-karmada", "--set", pem, "--set", "trustedWriters.users={a'b}"], "trustedWriters"),
        (&["caldera-karmada", "--set", pem, "--set", "trustedWriters.groups="], "trustedWriters"),
        (&["caldera", "--set", "image=i", "--set", "console.enabled=maybe"], "console"),
        (&["caldera", "--set", "image=i", "--set", "console.measureStarts=true"], "console"),
        (&["caldera", "--set", "image=i", "--set", "monitoring.runbookUrl=metrics.md"], "runbookUrl"),
        (&["caldera", "--set", "image=i", "--set", "certManager.enabled=true"], "certManager.issuer.name"),
        (&["caldera", "--set", "image=i", "--set", "certManager.issuer.kind=Other"], "kind"),
        (&["caldera", "--set", "image=i", "--set", "callers={}"], "callers"),
        (&["caldera", "--set", "image=i", "--set", "probe.peers={m2=h:1}"], "secretName"),
        (&["caldera", "--set", "image=i", "--set", "probe.secretName=s,probe.peers={m2}"], "peers"),
        (&["caldera", "--set", "image=i", "--set", "inventory.extraArgs={--probe-interval=9}"], "in probe.peers"),
        (&["caldera", "--set", "image=i,probe.secretName=s", "--set", "collectors={a.b}"], "a.b has a dot"),
        (&["caldera", "--set", "image=i", "--set", "callers={Two Words}"], "callers"),
        (&["caldera", "--set", "image=i", "--set", "callerAddresses={nonsense}"], "callerAddresses"),
        (&["caldera", "--set", "image=i", "--set", "controller=null"], "controller"),
        (&["caldera", "--set", "image=i,certManager.enabled=true,webhook.registerUrl=https://h"], "registerUrl"),
        (&["caldera-karmada"], "caBundle"),
        (&["caldera-karmada", "--set", pem, "--set", "webhookUrl=http://h"], "webhookUrl"),
        (
            &["caldera-karmada", "--set", pem, "--set", "webhookUrl=https://h", "-n", "caldera-system"],
            "another namespace",
        ),
        (&["caldera-karmada", "--set", pem, "--set", "trustedWriters=null"], "trustedWriters"),
    ] {
        let Some(output) = run_helm(&[&["template", "release"], words].concat()) else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{words:?}: {said}");
    }
}
