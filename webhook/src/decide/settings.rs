//! What an admin may not choose in ConfigMap `caldera-settings`: what the controller would not understand.
//!
//! Rule ([`caldera_crds::chosen_settings`]): none of it would count, so it is not stored. What was wrong before stays
//! as it is while its data does. Whether thresholds agree with those of flags is known to the controller alone, which
//! says so by an event.

use caldera_crds::{
    action::SETTINGS,
    chosen_settings::read_chosen_settings,
    object::{name_of, read_text_at},
};
use serde_json::Value;

use super::verdict::Verdict;
use crate::observe::request::ReviewRequest;

/// Refuses settings that are not understood; `None` for all else.
#[must_use]
pub fn refuse_settings(request: &ReviewRequest<'_, Value>) -> Option<Verdict> {
    let is_chosen = |map: &&Value| read_text_at(map, "/kind") == "ConfigMap" && name_of(map) == SETTINGS;
    let map = request.object.as_ref().filter(is_chosen)?;
    let old = request.before();
    if old.is_some_and(|old| old.get("data") == map.get("data")) {
        return None;
    }
    let why = read_chosen_settings(map).err()?;
    Some(Verdict::deny_invalid(format!(
        "ConfigMap {SETTINGS} has Caldera's settings, and none of these would count: {why}"
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::job::tests::{create, update};

    fn settings(data: Value) -> Value {
        json!({"kind": "ConfigMap", "metadata": {"name": SETTINGS, "namespace": "caldera-system"}, "data": data})
    }

    #[test]
    fn settings_that_would_not_count_are_refused_with_each_fault() {
        let wrong = settings(json!({"oder": "fifo", "reclaim": "yes"}));
        for request in [create(wrong.clone()), update(&settings(json!({"order": "fifo"})), &wrong)] {
            let Some(Verdict::Deny(denial)) = refuse_settings(&request) else { panic!("it is stored") };
            assert!(denial.message.contains("oder: there is no such setting; reclaim: "), "{}", denial.message);
        }
        assert_eq!(refuse_settings(&create(settings(json!({"order": "fifo"})))), None);
    }

    #[test]
    fn a_wrong_setting_that_stays_holds_nobody_up_and_other_maps_are_not_looked_at() {
        let wrong = settings(json!({"oder": "fifo"}));
        let mut labelled = wrong.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(refuse_settings(&update(&wrong, &labelled)), None);
        assert_eq!(refuse_settings(&update(&wrong, &settings(json!({})))), None);
        let mut other = wrong.clone();
        other["metadata"]["name"] = "settings".into();
        assert_eq!(refuse_settings(&create(other)), None);
        let mut secret = wrong;
        secret["kind"] = "Secret".into();
        assert_eq!(refuse_settings(&create(secret)), None);
    }
}
