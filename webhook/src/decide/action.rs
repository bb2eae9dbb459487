//! Who acts on a workload, a queue, a member, or by a Command or the settings: two annotations that are ours.
//!
//! Rule ([`caldera_crds::action`]): a request that does something to record gets both, whatever its user wrote there.
//! Any other leaves them as they were, and a new object has none, whoever makes it: a manifest that is restored may
//! have another's. Nothing is stamped of what our own controller writes: it carries out what others asked for, and
//! their Commands are stamped.

use caldera_crds::{
    action::{ACTION_STAMPS, Action, describe_action},
    trusted::CONTROLLER_ACCOUNT,
};
use serde_json::Value;

use super::stamps::Stamp;
use crate::observe::{cache::Snapshot, request::UserInfo};

/// The stamps of an object; `old` is what it was before, if it is not new.
#[must_use]
pub fn choose_action_stamps(
    object: &Value,
    old: Option<&Value>,
    user: Option<&UserInfo<'_>>,
    snapshot: Snapshot<'_>,
) -> Vec<Stamp> {
    let by = user.map(|user| user.username.as_ref()).unwrap_or_default();
    let done = describe_action(old, object).filter(|_| ![CONTROLLER_ACCOUNT, ""].contains(&by));
    match done.map(|did| Action { at: snapshot.now, by: by.to_owned(), did }) {
        Some(action) => action.to_stamps().map(|(name, value)| (name, Some(value))).into(),
        None => {
            let known = |name: &str| old?.get("metadata")?.get("annotations")?.get(name).cloned();
            ACTION_STAMPS.map(|name| (name, known(name))).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use caldera_crds::names::caldera::{ACTED_BY, ACTION, HOLD};
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::{
        decide::{job::tests::job, patch::tests::applied, stamps::set_stamps},
        observe::cache::Cache,
    };

    const NOW: &str = "2026-11-27T08:00:00.000123Z";

    fn stamped(object: &Value, old: Option<&Value>, user: &str) -> Value {
        let user = UserInfo { username: user.into(), groups: Vec::new() };
        let cache = Cache::default();
        let snapshot = Snapshot { now: NOW.parse::<Timestamp>().unwrap(), ..Snapshot::of_cache(&cache) };
        let stamps = choose_action_stamps(object, old, Some(&user), snapshot);
        let stored = applied(object, &set_stamps(object, stamps));
        stored["metadata"]["annotations"].clone()
    }

    fn with(annotations: Value) -> Value {
        let mut job = job();
        job["metadata"]["annotations"] = annotations;
        job
    }

    #[test]
    fn who_acts_is_stamped_whatever_he_writes() {
        let said = json!({"at": NOW, "did": "held"}).to_string();
        let stamps = json!({HOLD: "true", ACTED_BY: "ada", ACTION: said});
        assert_eq!(stamped(&with(json!({HOLD: "true"})), Some(&job()), "ada"), stamps);
        let forged = with(json!({HOLD: "true", ACTED_BY: "eve", ACTION: "{}"}));
        assert_eq!(stamped(&forged, Some(&job()), "ada"), stamps);
    }

    #[test]
    fn who_does_nothing_to_record_leaves_the_stamps_as_they_were() {
        let old = with(json!({ACTED_BY: "ada", ACTION: "x"}));
        let kept = json!({ACTED_BY: "ada", ACTION: "x"});
        assert_eq!(stamped(&job(), Some(&old), "eve"), kept);
        assert_eq!(stamped(&with(json!({ACTED_BY: "eve"})), Some(&old), "eve"), kept);
        assert_eq!(stamped(&with(json!({ACTED_BY: "eve", ACTION: "x"})), None, "eve"), json!({}), "a new job");
    }

    #[test]
    fn what_is_restored_with_anothers_stamps_is_made_without_them() {
        for kind in ["Deployment", "Pod", "RayJob", "Cluster"] {
            let restored = json!({"kind": kind, "metadata": {"annotations": {ACTED_BY: "ada", ACTION: "x", "a": "b"}}});
            assert_eq!(stamped(&restored, None, "velero"), json!({"a": "b"}), "{kind}");
        }
    }

    #[test]
    fn the_controller_carries_out_what_others_ask_for_and_is_not_stamped() {
        let held = with(json!({HOLD: "true"}));
        assert_eq!(stamped(&held, Some(&job()), CONTROLLER_ACCOUNT), json!({HOLD: "true"}));
        let forged = with(json!({HOLD: "true", ACTED_BY: "eve", ACTION: "x"}));
        assert_eq!(stamped(&forged, None, CONTROLLER_ACCOUNT), json!({HOLD: "true"}), "what a template says");
        let old = with(json!({ACTED_BY: "ada", ACTION: "y"}));
        let kept = json!({HOLD: "true", ACTED_BY: "ada", ACTION: "y"});
        assert_eq!(stamped(&forged, Some(&old), CONTROLLER_ACCOUNT), kept);
        let command = json!({
            "kind": "Command", "metadata": {"name": "c"}, "action": "AbortJob", "target": {"kind": "Job", "name": "j"},
        });
        assert_eq!(stamped(&command, None, "ada")[ACTED_BY], "ada");
    }
}
