//! A test of a controller with plain kube-rs: the server, the controller and the test share one thread and no socket.
//!
//! The controller copies the label `team` of each namespace into a ConfigMap `owner` there. An hour passes at once, for
//! the runtime's clock is paused, and the server's clock follows it.

use std::sync::Arc;
use std::time::Duration;

use embedded_apiserver::{ApiServer, Options, SeededIds, TokioClock};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

async fn copy_labels(client: Client) -> Result<(), watcher::Error> {
    let namespaces = watcher(Api::<Namespace>::all(client.clone()), watcher::Config::default());
    let copied = namespaces.applied_objects().try_for_each(|namespace| {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace.name_any());
        async move {
            if let Some(team) = namespace.labels().get("team") {
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}, "data": {"team": team}});
                let applied = maps.patch("owner", &PatchParams::apply("copier"), &Patch::Apply(map)).await;
                applied.map_err(watcher::Error::WatchStartFailed)?;
            }
            Ok(())
        }
    });
    copied.await
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let clock = TokioClock::starting_at("2026-01-01T00:00:00Z".parse()?);
    let options = Options { clock: Arc::new(clock), ids: Arc::new(SeededIds::new(1)), ..Options::default() };
    let client = Client::new(ApiServer::new(options).router(), "default");
    tokio::spawn(copy_labels(client.clone()));

    tokio::time::sleep(Duration::from_secs(3600)).await;
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "vision", "labels": {"team": "vision"}}}))?;
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    // When nobody has anything left to do, virtual time passes: the controller has seen the namespace by then.
    tokio::time::sleep(Duration::from_secs(1)).await;

    let owner = Api::<ConfigMap>::namespaced(client, "vision").get("owner").await?;
    assert_eq!(owner.data.as_ref().and_then(|data| data.get("team")).map(String::as_str), Some("vision"));
    let created = serde_json::to_value(owner.creation_timestamp())?;
    assert_eq!(created, json!("2026-01-01T01:00:00Z"));
    println!("the ConfigMap is there, made at {created}");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(run())
}
