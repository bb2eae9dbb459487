//! Follows what an admin chooses while the controller runs ([`crate::settings::choose_settings`]).
//!
//! Rule: the ConfigMap is read again every ten seconds, and by name: that needs no right to list others. What can not
//! be read changes nothing.

use std::{collections::BTreeMap, time::Duration};

use caldera_core::queue::OrderPolicy;
use caldera_runtime::event::EventType;
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

/// Sends the ConfigMap as it is at first and each time it changed; null while there is none.
pub(super) async fn follow_chosen_settings(
    client: Client,
    namespace: String,
    chosen: mpsc::Sender<Value>,
    stop: CancellationToken,
) {
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    // Without one all is as the flags say.
    let (mut seen, mut told) = (None, false);
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
                told = false;
            }
            Ok(Err(error)) if !told => {
                told = true;
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
        Ok(chosen) if chosen == (Settings { mean_used: BTreeMap::new(), ..settings.clone() }) => return None,
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

/// As readers take them: with what queues used lately, where that counts.
pub(super) fn add_means(settings: &Settings, controller: &Controller) -> Settings {
    match settings.order {
        OrderPolicy::FairHistory => settings.clone().with_mean_used(&controller.jobs.engine),
        _ => settings.clone(),
    }
}

#[cfg(test)]
mod tests {
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
}
