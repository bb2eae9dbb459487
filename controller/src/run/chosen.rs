//! Follows what an admin chooses beside the controller's flags ([`crate::settings::choose_settings`]).
//!
//! Rule: the ConfigMap is read before anything is decided, and again every ten seconds; by name: that needs no right to
//! list others. What can not be read changes nothing: who gets no answer for ten seconds begins with the flags.

use std::time::Duration;

use caldera_runtime::event::EventType;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    decide::Controller,
    settings::{CHOSEN, Settings, choose_settings},
    write::Decision,
};

/// Reason of an event on ConfigMap `caldera-settings`: the controller decides by it from now on.
const SETTINGS_CHANGED: &str = "SettingsChanged";
/// Reason of an event on ConfigMap `caldera-settings`: it is not understood, and none of it counts.
const SETTINGS_REFUSED: &str = "SettingsRefused";

/// Between two readings, and how long one may take.
const PERIOD: Duration = Duration::from_secs(10);

/// How long the start waits for what an admin chose.
const READ_AT_START: Duration = Duration::from_secs(10);
/// Between two tries to read what an admin chose, before the start.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// What a controller begins with.
pub(super) struct BegunSettings {
    /// What it decides by.
    pub(super) settings: Settings,
    /// The version of the ConfigMap that was read.
    pub(super) seen: Option<String>,
    /// What there is to say to whoever chose.
    pub(super) event: Option<Decision>,
}

/// Has a controller decide by its flags and by what an admin chose.
pub(super) async fn begin_with_settings(
    client: &Client,
    namespace: &str,
    flags: &Settings,
    controller: &mut Controller,
) -> BegunSettings {
    flags.apply_to(controller);
    let mut settings = flags.clone();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let no_answer = |_| Err("no answer".to_owned());
    let found = tokio::time::timeout(READ_AT_START, read_chosen_map(&maps)).await.unwrap_or_else(no_answer);
    let found = found.unwrap_or_else(|why| {
        tracing::warn!(namespace, why, "ConfigMap {CHOSEN} can not be read: all is as the flags say");
        None
    });
    let seen = found.as_ref().and_then(|map| map.metadata.resource_version.clone());
    let found = found.map(|map| json!(map));
    found.iter().for_each(|map| controller.actions.observe_settings(map, namespace, Timestamp::now()));
    let event = found.and_then(|map| change_settings(controller, flags, &mut settings, &map));
    BegunSettings { settings, seen, event }
}

/// Until the server answers, be it with a refusal. One that is busy refuses nothing.
async fn read_chosen_map(maps: &Api<ConfigMap>) -> Result<Option<ConfigMap>, String> {
    loop {
        match maps.get_opt(CHOSEN).await {
            Ok(found) => return Ok(found),
            Err(kube::Error::Api(refused)) if refused.code < 500 && ![408, 429].contains(&refused.code) => {
                return Err(refused.message);
            }
            Err(_) => tokio::time::sleep(TRY_AGAIN).await,
        }
    }
}

/// Sends the ConfigMap each time that it is another than was `seen`; null where there is none any more.
pub(super) async fn follow_chosen_settings(
    client: Client,
    namespace: String,
    mut seen: Option<String>,
    chosen: mpsc::Sender<Value>,
    stop: CancellationToken,
) {
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let mut reported = false;
    loop {
        match tokio::time::timeout(PERIOD, maps.get_opt(CHOSEN)).await {
            Ok(Ok(found)) => {
                let version = found.as_ref().and_then(|map| map.metadata.resource_version.clone());
                if seen != version {
                    seen = version;
                    if chosen.send(found.map_or(Value::Null, |map| json!(map))).await.is_err() {
                        return;
                    }
                }
                reported = false;
            }
            Ok(Err(error)) if !reported => {
                reported = true;
                tracing::warn!(namespace, %error, "ConfigMap {CHOSEN} can not be read: settings stay as they are");
            }
            Ok(Err(_)) | Err(_) => {}
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

/// Has the controller decide by what an admin chose, if that is understood. What there is to say to whoever chose it.
pub(super) fn change_settings(
    controller: &mut Controller,
    flags: &Settings,
    settings: &mut Settings,
    map: &Value,
) -> Option<Decision> {
    let chosen = choose_settings(flags, map);
    controller.settings_refused = chosen.is_err();
    let (event_type, reason, message) = match chosen {
        Ok(chosen) if chosen == *settings => return None,
        Ok(chosen) => {
            chosen.apply_to(controller);
            *settings = chosen;
            tracing::info!(settings = %json!(settings), "settings changed");
            (EventType::Normal, SETTINGS_CHANGED, "the controller decides by it from now on".to_owned())
        }
        Err(why) => {
            tracing::warn!(why, "ConfigMap {CHOSEN} is not understood: settings stay as they are");
            let message = format!("none of it counts, and settings stay as they are: {why}");
            (EventType::Warning, SETTINGS_REFUSED, message)
        }
    };
    (!map.is_null()).then(|| Decision::build_settings_event(map, event_type, reason, message))
}

#[cfg(test)]
mod tests {
    use caldera_core::queue::OrderPolicy;

    use super::*;

    fn map(data: &Value) -> Value {
        json!({"metadata": {"name": CHOSEN, "namespace": "ns", "uid": "u"}, "data": data})
    }

    fn reason_of(event: Option<Decision>) -> Option<(EventType, String)> {
        event.map(|event| match event {
            Decision::RecordEvent { event_type, reason, .. } => (event_type, reason),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn what_is_chosen_counts_at_once_and_what_is_refused_leaves_the_last_that_was_understood() {
        let (mut controller, flags) = (Controller::default(), Settings::default());
        let mut settings = flags.clone();
        let mut change = |settings: &mut Settings, map: &Value| {
            reason_of(change_settings(&mut controller, &flags, settings, map)).map(|(_, reason)| reason)
        };
        let fifo = map(&json!({"order": "fifo", "preempt-after": "7"}));
        assert_eq!(change(&mut settings, &fifo).as_deref(), Some("SettingsChanged"));
        assert_eq!(change(&mut settings, &fifo), None, "nothing new");
        let refused = change(&mut settings, &map(&json!({"order": "random", "preempt-after": "9"})));
        assert_eq!(refused.as_deref(), Some("SettingsRefused"));
        assert_eq!((settings.order, settings.preempt_after), (OrderPolicy::Fifo, 7));
        // Without it the flags count, and there is nothing to say it on.
        assert_eq!(change(&mut settings, &Value::Null), None);
        assert_eq!(settings, flags);
        assert_eq!(controller.jobs.engine.order_policy(), flags.order);
        assert!(!controller.settings_refused);
    }

    fn failure(code: u16) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "message": "no",
            "reason": "no",
        })
    }

    /// A server that answers so by the name of the ConfigMap.
    fn serve(mut answer: impl FnMut(&str) -> (u16, Value) + Send + 'static) -> Client {
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (code, body) = answer(request.uri().path().rsplit('/').next().unwrap_or_default());
            let body = kube::client::Body::from(body.to_string().into_bytes());
            let answer = http::Response::builder().status(code).body(body);
            async move { answer.map_err(tower::BoxError::from) }
        });
        Client::new(service, "ns")
    }

    /// One that has what an admin chose, and answers with these codes before.
    fn serve_chosen(chosen: &Value, failures: Vec<u16>) -> Client {
        let (chosen, mut failures) = (chosen.clone(), failures.into_iter());
        serve(move |name| match failures.next() {
            Some(code) => (code, failure(code)),
            None if name == CHOSEN => (200, chosen.clone()),
            None => (404, failure(404)),
        })
    }

    #[tokio::test]
    async fn what_was_chosen_before_counts_from_the_first_decision_on() {
        let chosen = map(&json!({"preemption": "false", "protect-namespaces": "prod"}));
        // A server that is busy refuses nothing.
        for failures in [vec![], vec![503], vec![429, 408]] {
            let client = serve_chosen(&chosen, failures);
            let (mut controller, flags) = (Controller::default(), Settings::default());
            assert!(!flags.preempt.is_empty());
            let begun = begin_with_settings(&client, "ns", &flags, &mut controller).await;
            let policy = &controller.preemption.schedule.policy;
            assert!(policy.preempt.is_empty() && policy.protected.contains("prod"), "{policy:?}");
            assert_eq!(begun.settings.preempt, Vec::<String>::new());
            assert_eq!(reason_of(begun.event).map(|(_, reason)| reason).as_deref(), Some("SettingsChanged"));
        }
    }

    #[tokio::test]
    async fn who_may_not_read_what_was_chosen_begins_with_all_of_its_flags() {
        let client = serve(|_| (403, failure(403)));
        let flags = Settings { order: OrderPolicy::Strict, preempt_after: 7, ..Settings::default() };
        let mut controller = Controller::default();
        let begun = begin_with_settings(&client, "ns", &flags, &mut controller).await;
        assert_eq!((&begun.settings, begun.seen), (&flags, None));
        assert_eq!(controller.jobs.engine.order_policy(), OrderPolicy::Strict);
        assert_eq!(controller.preemption.schedule.policy.bounds.patience, 7);
    }
}
