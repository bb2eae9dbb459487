//! Plugins `svc` (names, host lists, a policy that lets only the job's own pods in) and `ssh` (a key pair).

use std::fmt::Write as _;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::{Plugin, each_container, hosts_of_task, push_item};
use crate::member::{
    job::volumes::scramble_text,
    object::{list, name, namespace, owned_by, text, uid},
    world::Kind,
};

/// ConfigMap `{job}-svc`, headless Service `{job}`, NetworkPolicy `{job}`.
pub(super) fn svc_objects(job: &Value, plugin: &Plugin<'_>) -> Vec<(Kind, Value)> {
    let pods = json!({"volcano.sh/job-name": name(job), "volcano.sh/job-namespace": namespace(job)});
    let mut objects = vec![
        (
            Kind::ConfigMap,
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": object_metadata(job, &format!("{}-svc", name(job))),
                "data": host_lists(job),
            }),
        ),
        (
            Kind::Service,
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": object_metadata(job, name(job)),
                "spec": {
                    "clusterIP": "None", "selector": pods,
                    "publishNotReadyAddresses": plugin.is_on("publish-not-ready-addresses", false),
                },
            }),
        ),
    ];
    if !plugin.is_on("disable-network-policy", false) {
        objects.push((
            Kind::NetworkPolicy,
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": object_metadata(job, name(job)),
                "spec": {
                    "podSelector": {"matchLabels": pods},
                    "ingress": [{"from": [{"podSelector": {"matchLabels": pods}}]}],
                    "policyTypes": ["Ingress"],
                },
            }),
        ));
    }
    objects
}

/// `{task}.host`, `VC_{TASK}_HOSTS` and `VC_{TASK}_NUM`: the pods of this copy alone.
fn host_lists(job: &Value) -> Value {
    let mut data = Map::new();
    for task in list(job, "/spec/tasks") {
        let hosts = hosts_of_task(job, task);
        let key = text(task, "/name").replace('-', "_");
        data.insert(format!("{key}.host"), hosts.join("\n").into());
        data.insert(format!("VC_{}_HOSTS", key.to_uppercase()), hosts.join(",").into());
        data.insert(format!("VC_{}_NUM", key.to_uppercase()), hosts.len().to_string().into());
    }
    data.into()
}

pub(super) fn svc_on_pod(job: &Value, plugin: &Plugin<'_>, pod: &mut Value) {
    let pod_name = name(pod).to_owned();
    for (field, default) in [("hostname", pod_name.as_str()), ("subdomain", name(job))] {
        if text(&pod["spec"], &format!("/{field}")).is_empty() {
            pod["spec"][field] = default.into();
        }
    }
    let lists = format!("{}-svc", name(job));
    if plugin.is_on("inject-hosts-env", true) {
        let tasks = list(job, "/spec/tasks").iter().map(|task| text(task, "/name").replace('-', "_").to_uppercase());
        let names: Vec<String> =
            tasks.flat_map(|task| [format!("VC_{task}_HOSTS"), format!("VC_{task}_NUM")]).collect();
        each_container(pod, true, |container| {
            for name in &names {
                let from = json!({"configMapKeyRef": {"name": lists, "key": name}});
                push_item(container, "env", json!({"name": name, "valueFrom": from}));
            }
        });
    }
    push_item(&mut pod["spec"], "volumes", json!({"name": lists, "configMap": {"name": lists}}));
    each_container(pod, true, |container| {
        push_item(container, "volumeMounts", json!({"name": lists, "mountPath": "/etc/volcano"}));
    });
}

const SSH_PATH: &str = "/root/.ssh";

/// Secret `{job}-ssh`. Volcano makes a fresh RSA key in each cluster unless the arguments give one; no pod of a
/// simulated node ever opens it, so here it is text that follows from the job's UID, different in each cluster like
/// Volcano's.
pub(super) fn ssh_objects(job: &Value, plugin: &Plugin<'_>) -> Vec<(Kind, Value)> {
    let given = plugin.flag("ssh-private-key", "");
    let (private, public) = if given.is_empty() {
        let private = STANDARD.encode(scramble_text(&format!("{}/private", uid(job)), 48));
        let public = STANDARD.encode(scramble_text(&format!("{}/public", uid(job)), 48));
        (
            format!("-----BEGIN RSA PRIVATE KEY-----\n{private}\n-----END RSA PRIVATE KEY-----\n"),
            format!("ssh-rsa {public}\n"),
        )
    } else {
        (given.to_owned(), plugin.flag("ssh-public-key", "").to_owned())
    };
    let encode = |text: &str| STANDARD.encode(text);
    let data = json!({
        "id_rsa": encode(&private), "id_rsa.pub": encode(&public), "authorized_keys": encode(&public),
        "config": encode(&ssh_config(job, plugin.port("ssh-port", 22))),
    });
    let metadata = object_metadata(job, &format!("{}-ssh", name(job)));
    vec![(Kind::Secret, json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}))]
}

fn ssh_config(job: &Value, port: u16) -> String {
    let mut config = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n".to_owned();
    for host in list(job, "/spec/tasks").iter().flat_map(|task| hosts_of_task(job, task)) {
        let short = host.split('.').next().unwrap_or_default();
        // Writing to a String can not fail.
        let _ = writeln!(config, "Host {short}\n  HostName {host}\n  Port {port}");
    }
    config
}

pub(super) fn ssh_on_pod(job: &Value, plugin: &Plugin<'_>, pod: &mut Value) {
    let secret = format!("{}-ssh", name(job));
    let path = plugin.flag("ssh-key-file-path", SSH_PATH);
    let mode = if path == SSH_PATH { 0o600 } else { 0o644 };
    let items: Vec<Value> = ["id_rsa", "id_rsa.pub", "authorized_keys", "config"]
        .iter()
        .map(|key| json!({"key": key, "path": format!(".ssh/{key}")}))
        .collect();
    let source = json!({"secretName": secret, "items": items, "defaultMode": mode});
    push_item(&mut pod["spec"], "volumes", json!({"name": secret, "secret": source}));
    each_container(pod, true, |container| {
        push_item(container, "volumeMounts", json!({"name": secret, "mountPath": path, "subPath": ".ssh"}));
    });
}

fn object_metadata(job: &Value, name: &str) -> Value {
    json!({"name": name, "namespace": namespace(job), "ownerReferences": owned_by(job)})
}
