//! What `caldera manifests` prints is what a Karmada host takes.

use std::{collections::BTreeSet, process::Command};

use caldera_cli::{
    args::{Args, Command as Parsed},
    manifests::parse_documents,
    stack,
};
use caldera_runtime::client::WriteCounts;
use caldera_sandbox::fleet::{Config, Fleet};
use clap::Parser;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

fn printed(args: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_caldera")).arg("manifests").args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    parse_documents(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

fn kinds(objects: &[Value]) -> BTreeSet<&str> {
    objects.iter().map(|object| object["kind"].as_str().unwrap()).collect()
}

/// Applies all of it again and again to a host of its own: in the end nothing may change any more. (The second time an
/// API server may note who wrote what was there by default.)
async fn applies(objects: &[Value]) {
    caldera_runtime::tls::install_provider();
    let stop = CancellationToken::new();
    let fleet = Fleet::start(Config::with_members(0), &stop).await.unwrap();
    let client = fleet.host.client("test", &WriteCounts::default()).unwrap();
    for object in objects {
        let mut versions = Vec::new();
        for _ in 0..3 {
            let stored = stack::apply_object(&client, object.clone()).await.unwrap();
            assert_eq!(stored["metadata"]["name"], object["metadata"]["name"]);
            versions.push(stored["metadata"]["resourceVersion"].clone());
        }
        // A definition's status is written meanwhile.
        if object["kind"] != "CustomResourceDefinition" {
            assert_eq!(versions[1], versions[2], "{}", object["metadata"]["name"]);
        }
    }
    stop.cancel();
}

#[tokio::test]
async fn everything_with_a_url_is_yaml_that_applies() {
    let objects = printed(&["--webhook-url", "https://127.0.0.1:8443/", "--system-trust"]);
    for kind in [
        "CustomResourceDefinition",
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterPropagationPolicy",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "ResourceInterpreterWebhookConfiguration",
    ] {
        assert!(kinds(&objects).contains(kind), "no {kind}");
    }
    for object in objects.iter().filter(|object| object["kind"].as_str().unwrap().contains("Webhook")) {
        for webhook in object["webhooks"].as_array().unwrap() {
            let url = webhook["clientConfig"]["url"].as_str().unwrap();
            assert!(url.starts_with("https://127.0.0.1:8443/") && !url.contains("8443//"), "{url}");
        }
    }
    applies(&objects).await;
}

#[tokio::test]
async fn everything_with_a_service_is_yaml_that_applies() {
    let objects = printed(&["--webhook-service", "ops/caldera:9443", "--system-trust"]);
    for object in objects.iter().filter(|object| object["kind"].as_str().unwrap().contains("Webhook")) {
        for webhook in object["webhooks"].as_array().unwrap() {
            let service = &webhook["clientConfig"]["service"];
            assert_eq!((&service["namespace"], &service["name"]), (&"ops".into(), &"caldera".into()));
            assert_eq!(service["port"], 9443);
        }
    }
    applies(&objects).await;
}

#[test]
fn groups_are_printed_alone() {
    assert_eq!(kinds(&printed(&["--only", "crds"])), BTreeSet::from(["CustomResourceDefinition"]));
    assert_eq!(kinds(&printed(&["--only", "policies"])), BTreeSet::from(["ClusterPropagationPolicy"]));
    // Whoever has no Pull member needs none of it.
    assert_eq!(kinds(&printed(&["--only", "pull-members"])), BTreeSet::from(["ResourceInterpreterCustomization"]));
    let all = printed(&["--webhook-url", "https://127.0.0.1:8443/", "--system-trust"]);
    assert!(!kinds(&all).contains("ResourceInterpreterCustomization"));
    let rbac = printed(&["--only", "rbac"]);
    assert!(kinds(&rbac).is_subset(&BTreeSet::from([
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    ])));
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// The ports that a container's arguments make it listen on: admin, and what it serves.
fn listens(args: &[&str]) -> (u64, Option<u64>) {
    let words = ["caldera"].iter().chain(args);
    let (process, serves) = match Args::try_parse_from(words).unwrap().command {
        Parsed::Webhook(args) => (args.component.process, Some(args.serving.listen.port().into())),
        Parsed::Controller(args) => (args.component.process, None),
        Parsed::Scheduler(args) => (args.component.process, None),
        Parsed::Inventory(args) => (args.component.process, None),
        other => panic!("{other:?}"),
    };
    assert!(!process.no_lease);
    (process.admin.unwrap().port().into(), serves)
}

/// A Deployment's pods get what their arguments say: ports, files, accounts.
fn is_consistent(objects: &[Value], deployment: &Value) {
    let (name, pod) = (&deployment["metadata"]["name"], &deployment["spec"]["template"]["spec"]);
    let container = &pod["containers"][0];
    let (admin, serves) = listens(&texts(&container["args"]));
    let port = |name: &str| {
        let ports = container["ports"].as_array().unwrap();
        ports.iter().find(|port| port["name"] == name).map(|port| port["containerPort"].as_u64().unwrap())
    };
    assert_eq!((port("admin"), port("https")), (Some(admin), serves), "{name}");
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!(container[probe]["httpGet"], serde_json::json!({"path": path, "port": "admin"}), "{name}");
    }
    // Every file that is named is in what is mounted, and every mount is a Secret's.
    let files = texts(&container["args"]).into_iter().filter_map(|arg| Some(arg.split_once('=')?.1));
    for file in files.filter(|file| file.starts_with('/')) {
        let is_in = |mount: &&Value| file.starts_with(mount["mountPath"].as_str().unwrap());
        let mount = container["volumeMounts"].as_array().unwrap().iter().find(is_in).unwrap();
        let volume = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        assert!(volume["secret"]["secretName"].is_string(), "{volume}");
    }
    let account = |object: &&&Value| object["metadata"]["name"] == pod["serviceAccountName"];
    assert!(of_kind(objects, "ServiceAccount").iter().find(account).is_some(), "{name}");
    assert_eq!(deployment["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"], *name);
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["app.kubernetes.io/name"], *name);
    // Who has a second replica keeps one when nodes are drained.
    let of_it = |budget: &&Value| budget["spec"]["selector"] == deployment["spec"]["selector"];
    let budgets = of_kind(objects, "PodDisruptionBudget").into_iter().filter(of_it).count();
    assert_eq!(budgets, usize::from(deployment["spec"]["replicas"] == 2), "{name}");
}

#[tokio::test]
async fn what_runs_the_components_applies_and_its_ports_files_and_accounts_are_those_of_its_arguments() {
    let objects =
        printed(&["--deployments", "--image", "registry/caldera:1", "--namespace", "ops", "--collector", "m1"]);
    let deployments = of_kind(&objects, "Deployment");
    let names: Vec<&Value> = deployments.iter().map(|deployment| &deployment["metadata"]["name"]).collect();
    assert_eq!(names, ["caldera-webhook", "caldera-controller", "caldera-scheduler", "caldera-inventory-m1"]);
    for deployment in &deployments {
        is_consistent(&objects, deployment);
        assert_eq!(deployment["spec"]["template"]["spec"]["automountServiceAccountToken"], false);
    }
    assert!(objects.iter().all(|object| object["kind"] == "Namespace" || object["metadata"]["namespace"] == "ops"));
    // The webhook is reached by who calls it and by nobody else.
    let policies = of_kind(&objects, "NetworkPolicy");
    let webhook = policies.iter().find(|policy| policy["metadata"]["name"] == "caldera-webhook").unwrap();
    let rule = &webhook["spec"]["ingress"][0];
    assert_eq!(rule["ports"][0]["port"], 8443);
    assert_eq!(
        rule["from"][0]["namespaceSelector"]["matchExpressions"][0]["values"],
        serde_json::json!(["karmada-system"])
    );
    assert_eq!(policies.len(), 2);
    for service in of_kind(&objects, "Service") {
        let (selector, port) = (&service["spec"]["selector"], &service["spec"]["ports"][0]["targetPort"]);
        let chosen = |deployment: &&&Value| {
            let labels = &deployment["spec"]["template"]["metadata"]["labels"];
            selector.as_object().unwrap().iter().all(|(key, value)| labels[key] == *value)
        };
        let chosen: Vec<_> = deployments.iter().filter(chosen).collect();
        assert!(!chosen.is_empty());
        for deployment in chosen {
            let ports = deployment["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().unwrap();
            assert!(ports.iter().any(|known| known["name"] == *port), "{service}");
        }
    }
    applies(&objects).await;
}

#[tokio::test]
async fn what_a_member_needs_lets_a_collector_read_and_nothing_else() {
    let objects = printed(&["--member"]);
    assert_eq!(kinds(&objects), BTreeSet::from(["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"]));
    let rules = of_kind(&objects, "ClusterRole")[0]["rules"].as_array().unwrap();
    // What nodes really use is listed alone.
    let reads = |rule: &Value| match texts(&rule["apiGroups"])[..] {
        ["metrics.k8s.io"] => texts(&rule["verbs"]) == ["list"],
        _ => texts(&rule["verbs"]) == ["list", "watch"],
    };
    assert!(rules.iter().all(reads), "{rules:#?}");
    // Else it would see no queue that is closed there.
    assert!(rules.iter().any(|rule| texts(&rule["resources"]) == ["queues"]));
    let objects = printed(&["--member", "--image", "registry/caldera:1", "--collector", "m2"]);
    let deployment = of_kind(&objects, "Deployment")[0];
    is_consistent(&objects, deployment);
    assert_eq!(deployment["spec"]["template"]["spec"]["automountServiceAccountToken"], true);
    applies(&objects).await;
}

/// A Service to reach it by, the certificate of the Secret, and the same list of members for all.
#[tokio::test]
async fn collectors_with_a_secret_measure_the_way_to_other_members_wherever_they_run() {
    let probe = ["--probe-secret", "s", "--probe-peer", "m1=192.0.2.1:7950,m2=192.0.2.2:7950"];
    let beside = ["--deployments", "--image", "i", "--namespace", "ops", "--collector", "m1"];
    let within = ["--member", "--image", "i", "--namespace", "ops", "--collector", "m2"];
    for (args, cluster, name, service) in [
        (&beside[..], "m1", "caldera-inventory-m1", "caldera-probe-m1"),
        (&within, "m2", "caldera-inventory", "caldera-probe"),
    ] {
        let objects = printed(&[args, &probe].concat());
        let named = |kind: &str, name: &str| {
            of_kind(&objects, kind).into_iter().find(|object| object["metadata"]["name"] == name).unwrap().clone()
        };
        let deployment = named("Deployment", name);
        is_consistent(&objects, &deployment);
        let pod = &deployment["spec"]["template"];
        let words = ["caldera"].into_iter().chain(texts(&pod["spec"]["containers"][0]["args"]));
        let Parsed::Inventory(args) = Args::try_parse_from(words).unwrap().command else { panic!("another command") };
        args.probe.check_together(cluster).unwrap();
        let port = args.probe.probe_listen.unwrap().port();
        let peers: Vec<String> = args.probe.list_peers(cluster).into_iter().map(|peer| peer.cluster).collect();
        assert_eq!(peers, [if cluster == "m1" { "m2" } else { "m1" }]);
        let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
        assert!(ports.iter().any(|it| it["name"] == "probe" && it["containerPort"] == port), "{ports:?}");
        let service = named("Service", service);
        assert_eq!(
            (&service["spec"]["type"], &service["spec"]["ports"][0]["port"]),
            (&"LoadBalancer".into(), &port.into())
        );
        assert_eq!(service["spec"]["ports"][0]["targetPort"], "probe");
        assert_eq!(
            pod["metadata"]["labels"]["app.kubernetes.io/name"],
            service["spec"]["selector"]["app.kubernetes.io/name"]
        );
        if args.member.in_member {
            assert_eq!(of_kind(&objects, "NetworkPolicy").len(), 0, "nothing else is forbidden there");
        } else {
            let policy = named("NetworkPolicy", "caldera-probe-m1");
            assert_eq!(policy["spec"]["ingress"][0]["ports"][0]["port"], port);
            assert_eq!(policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/name"], name);
        }
        applies(&objects).await;
    }
}

#[test]
fn webhooks_that_nobody_would_trust_are_refused_and_those_that_register_themselves_are_left_to_it() {
    let run = |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_caldera")).arg("manifests").args(args).output().unwrap();
    let refused = run(&["--webhook-url", "https://127.0.0.1:8443"]);
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && refused.stdout.is_empty() && words.contains("--ca-bundle"), "{words}");
    let empty = tempfile::NamedTempFile::new().unwrap();
    assert!(!run(&["--ca-bundle", empty.path().to_str().unwrap()]).status.success());
    let left = printed(&["--registers-webhooks"]);
    assert!(!kinds(&left).iter().any(|kind| kind.contains("WebhookConfiguration")), "{:?}", kinds(&left));
    assert!(kinds(&left).contains("ValidatingAdmissionPolicy"));
}

#[test]
fn what_would_be_half_a_deployment_is_refused() {
    for args in [
        &["--deployments"][..],
        &["--image", "i"],
        &["--member", "--image", "i"],
        &["--collector", "m1"],
        &["--deployments", "--image", "i", "--probe-secret", "s"],
        &["--deployments", "--image", "i", "--collector", "m1", "--probe-peer", "m2=h:1"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_caldera")).arg("manifests").args(args).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}");
    }
}

/// `cli/src/live/tests.rs` holds the roles against all that is asked.
#[test]
fn who_may_view_may_ask_why_but_not_the_members_themselves() {
    let rbac = printed(&["--only", "rbac"]);
    let role = |name: &str| {
        let is = |object: &&Value| object["kind"] == "ClusterRole" && object["metadata"]["name"] == name;
        rbac.iter().find(is).unwrap_or_else(|| panic!("no {name}"))
    };
    let views = |name: &str| role(name)["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true";
    assert!(views("caldera-reader") && !views("caldera-member-reader"));
    let reads = role("caldera-reader")["rules"].to_string();
    for never in ["secrets", "clusters/proxy", "create", "patch", "\"*\""] {
        assert!(!reads.contains(never), "{never}");
    }
}
