//! What `caldera manifests` prints is what a Karmada host takes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, process::Command};

use caldera_cli::{manifests::documents, stack};
use caldera_runtime::client::WriteCounts;
use caldera_sandbox::fleet::{Config, Fleet};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

fn printed(args: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_caldera")).arg("manifests").args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    documents(&String::from_utf8(output.stdout).unwrap()).unwrap()
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
            let stored = stack::apply(&client, object.clone()).await.unwrap();
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
    let objects = printed(&["--webhook-url", "https://127.0.0.1:8443/"]);
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
    let objects = printed(&["--webhook-service", "ops/caldera:9443"]);
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
    let rbac = printed(&["--only", "rbac"]);
    assert!(kinds(&rbac).is_subset(&BTreeSet::from([
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding"
    ])));
}
