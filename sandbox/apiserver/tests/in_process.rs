//! The server inside a process: a kube client on its router, on a paused clock, without a socket.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use embedded_apiserver::{ApiServer, Options, TokioClock};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;

fn server() -> ApiServer {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    ApiServer::new(Options { clock: Arc::new(TokioClock::starting_at(start)), ..Options::default() })
}

fn config_map(name: &str, n: usize) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"n": n.to_string()}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_kube_client_works_on_the_router_and_time_is_the_runtimes() {
    let client = Client::new(server().router(), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let first = maps.create(&PostParams::default(), &config_map("a", 1)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let second = maps.create(&PostParams::default(), &config_map("b", 1)).await.unwrap();
    let created = |m: &ConfigMap| serde_json::to_value(m).unwrap()["metadata"]["creationTimestamp"].clone();
    assert_eq!(created(&first), json!("2026-01-01T00:00:00Z"));
    assert_eq!(created(&second), json!("2026-01-01T01:00:00Z"));
    let conflict = maps.create(&PostParams::default(), &config_map("a", 2)).await.unwrap_err();
    assert!(matches!(conflict, kube::Error::Api(status) if status.is_already_exists()));
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_list_misses_nothing_and_repeats_nothing() {
    let client = Client::new(server().router(), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &config_map("before", 1)).await.unwrap();
    let listed = maps.list(&ListParams::default()).await.unwrap();
    let from = listed.metadata.resource_version.unwrap();
    for n in 0..50 {
        maps.create(&PostParams::default(), &config_map(&format!("m{n}"), n)).await.unwrap();
    }
    maps.patch("m7", &PatchParams::default(), &Patch::Merge(json!({"data": {"n": "x"}}))).await.unwrap();
    maps.delete("before", &DeleteParams::default()).await.unwrap();
    let events: Vec<String> = maps
        .watch(&WatchParams::default(), &from)
        .await
        .unwrap()
        .take(52)
        .map_ok(|event| match event {
            WatchEvent::Added(m) => format!("+{}", m.name_any()),
            WatchEvent::Modified(m) => format!("~{}", m.name_any()),
            WatchEvent::Deleted(m) => format!("-{}", m.name_any()),
            other => format!("{other:?}"),
        })
        .try_collect()
        .await
        .unwrap();
    let mut expected: Vec<String> = (0..50).map(|n| format!("+m{n}")).collect();
    expected.extend(["~m7".to_owned(), "-before".to_owned()]);
    assert_eq!(events, expected);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_back_from_a_backup_ends_its_watches_and_shows_what_was() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(server.router(), "default"));
    let kept = maps.create(&PostParams::default(), &config_map("kept", 1)).await.unwrap();
    let backup = server.back_up();
    maps.create(&PostParams::default(), &config_map("lost", 1)).await.unwrap();
    let changed = json!({"data": {"n": "2"}});
    let changed = maps.patch("kept", &PatchParams::default(), &Patch::Merge(changed)).await.unwrap();
    let from = changed.resource_version().unwrap();
    let watching = maps.watch(&WatchParams::default(), &from).await.unwrap();
    let watching = tokio::spawn(watching.collect::<Vec<_>>());
    // It sleeps now, as its first bookmark is far away, and has to be woken.
    let begin = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_millis(1)).await;
    server.go_back(&backup);
    let events = watching.await.unwrap();
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(begin.elapsed(), Duration::from_millis(1), "at once");
    let listed = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.metadata.resource_version, Some(backup.version().to_string()));
    assert_eq!(listed.items, [kept], "with its uid and version");
    // Whoever goes on from a version that is not there yet is told nothing until it is.
    let parameters = WatchParams::default().timeout(200).disable_bookmarks();
    let silent = maps.watch(&parameters, &from).await.unwrap();
    maps.create(&PostParams::default(), &config_map("missed", 1)).await.unwrap();
    maps.create(&PostParams::default(), &config_map("as-old", 1)).await.unwrap();
    maps.create(&PostParams::default(), &config_map("told", 1)).await.unwrap();
    let told: Vec<String> = silent
        .filter_map(async |event| match event.unwrap() {
            WatchEvent::Added(map) => Some(map.name_any()),
            _ => None,
        })
        .collect()
        .await;
    assert_eq!(told, ["told"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_ends_at_its_deadline_in_virtual_time() {
    let client = Client::new(server().router(), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let begin = tokio::time::Instant::now();
    let parameters = WatchParams::default().timeout(200).disable_bookmarks();
    let events: Vec<_> = maps.watch(&parameters, "1").await.unwrap().collect().await;
    assert!(events.is_empty());
    assert_eq!(begin.elapsed().as_secs(), 200);
}

#[tokio::test(start_paused = true)]
async fn concurrent_patches_are_all_applied() {
    let client = Client::new(server().router(), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &config_map("shared", 0)).await.unwrap();
    let writers = (0..40).map(|n| {
        let maps = maps.clone();
        async move {
            let patch = json!({"data": {format!("k{n}"): "v"}});
            maps.patch("shared", &PatchParams::default(), &Patch::Merge(patch)).await
        }
    });
    futures::future::try_join_all(writers).await.unwrap();
    assert_eq!(maps.get("shared").await.unwrap().data.unwrap().len(), 41);
}

/// Prints how fast one core writes, patches and lists; run with `--ignored --nocapture` and `--release` for numbers
/// that mean something.
#[tokio::test]
#[ignore = "a measurement"]
async fn throughput() {
    let client = Client::new(ApiServer::new(Options::default()).router(), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let count = 10_000_usize;
    let begin = std::time::Instant::now();
    for n in 0..count {
        maps.create(&PostParams::default(), &config_map(&format!("m{n}"), n)).await.unwrap();
    }
    println!("{count} creations: {:?}", begin.elapsed());
    let begin = std::time::Instant::now();
    for n in 0..count {
        let patch = json!([{"op": "test", "path": "/data/n", "value": n.to_string()}, {"op": "add", "path": "/data/x", "value": "y"}]);
        let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
        let patch = Patch::<()>::Json(patch);
        maps.patch(&format!("m{n}"), &PatchParams::default(), &patch).await.unwrap();
    }
    println!("{count} JSON patches: {:?}", begin.elapsed());
    let begin = std::time::Instant::now();
    let listed = maps.list(&ListParams::default()).await.unwrap();
    println!("a list of {}: {:?}", listed.items.len(), begin.elapsed());
}
