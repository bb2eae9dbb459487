//! What an admin chooses while the controller runs: ConfigMap `caldera-settings` in the namespace of its lease.
//!
//! Rule ([`caldera_crds::chosen_settings`]): a key takes the place of the controller's flag of its name; what it does
//! not name is as the flags say. Only `protect-namespaces` and `load-exclude-namespaces` add to what the flags list:
//! what one of them protects stays protected. All of it counts or none: with one key that is not understood, what was
//! understood last stays. The webhook refuses such a map when it is written.

use caldera_crds::chosen_settings::{ChosenSetting, check_load_thresholds, read_chosen_settings};
use serde_json::Value;

use super::Settings;

/// The flags' settings with what the ConfigMap chooses.
///
/// # Errors
/// Each key that is not understood, in one sentence.
pub fn choose_settings(flags: &Settings, object: &Value) -> Result<Settings, String> {
    let mut chosen = flags.clone();
    read_chosen_settings(object)?.into_iter().for_each(|setting| choose_one(&mut chosen, setting));
    check_load_thresholds(&chosen.load)?;
    Ok(chosen)
}

fn choose_one(chosen: &mut Settings, setting: ChosenSetting) {
    match setting {
        ChosenSetting::Order(order) => chosen.order = order,
        ChosenSetting::HistoryHalfLife(seconds) => chosen.history_half_life = seconds,
        ChosenSetting::ReservationAfter(seconds) => chosen.reservation_after = seconds,
        ChosenSetting::PreemptAfter(seconds) => chosen.preempt_after = seconds,
        ChosenSetting::EvictionsPerMinute(evictions) => chosen.evictions_per_minute = evictions,
        ChosenSetting::Reclaim(reclaim) => chosen.reclaim = reclaim,
        ChosenSetting::PreemptUnset(unset) => chosen.preempt_unset = unset,
        ChosenSetting::Preempt(rules) => chosen.preempt = rules,
        ChosenSetting::LoadAware(enabled) => chosen.load.enabled = enabled,
        ChosenSetting::LinkAware(enabled) => chosen.load.links = enabled,
        ChosenSetting::LoadThresholds(thresholds) => chosen.load.thresholds = thresholds,
        ChosenSetting::LoadTargetThresholds(thresholds) => chosen.load.target_thresholds = thresholds,
        ChosenSetting::LoadInterval(seconds) => chosen.load.interval = seconds,
        ChosenSetting::LoadSamples(samples) => chosen.load.samples = samples,
        ChosenSetting::LoadMoves(moves) => chosen.load.moves = moves,
        ChosenSetting::LoadCooldown(seconds) => chosen.load.cooldown = seconds,
        ChosenSetting::LoadPriorityThreshold(priority) => chosen.load.priority_threshold = Some(priority),
        ChosenSetting::LoadExcludeNamespaces(names) => {
            chosen.load.excluded_namespaces.extend(names.into_iter().map(Into::into));
        }
        ChosenSetting::ProtectNamespaces(names) => chosen.protected_namespaces.extend(names),
    }
}

#[cfg(test)]
mod tests {
    use caldera_core::{load_aware::LoadPolicy, queue::OrderPolicy};
    use serde_json::json;

    use super::*;

    fn choose(data: &Value) -> Result<Settings, String> {
        choose_settings(&Settings::default(), &json!({"data": data}))
    }

    #[test]
    fn a_key_takes_the_place_of_the_flag_of_its_name_and_leaves_all_others() {
        let chosen = choose(&json!({
            "order": "fifo", "reservation-after": "0", "preempt-after": "7", "evictions-per-minute": "3\n",
            "reclaim": "false", "preempt": "by.queue=a,scope=any-queue\nof.most=0\n", "preempt-unset": "true",
            "protect-namespaces": "prod, ops", "history-half-life": "10",
        }))
        .unwrap();
        let default = Settings::default();
        let mut wanted = Settings {
            order: OrderPolicy::Fifo,
            reservation_after: 0,
            preempt_after: 7,
            evictions_per_minute: 3,
            reclaim: false,
            preempt: vec!["by.queue=a,scope=any-queue".to_owned(), "of.most=0".to_owned()],
            preempt_unset: true,
            history_half_life: 10,
            ..default.clone()
        };
        wanted.protected_namespaces.extend(["prod".to_owned(), "ops".to_owned()]);
        assert_eq!(chosen, wanted);
        assert_eq!(choose(&json!({})), Ok(default.clone()));
        assert_eq!(choose_settings(&default, &json!({})), Ok(default.clone()));
        assert_eq!(choose(&json!({"preemption": "false"})).unwrap().preempt, Vec::<String>::new());
        assert_eq!(choose(&json!({"preemption": "true"})), Ok(default));
    }

    #[test]
    fn one_key_that_is_not_understood_and_none_counts() {
        let fault = choose(&json!({"oder": "fifo", "reservation-after": "1"})).unwrap_err();
        assert_eq!(fault, "oder: there is no such setting");
        // The flags name memory's target threshold too.
        let fault = choose(&json!({"load-thresholds": "cpu=80,memory=30"})).unwrap_err();
        assert!(fault.contains("has to be below its target threshold"), "{fault}");
        let chosen = choose(&json!({
            "load-aware": "true", "link-aware": "true", "load-thresholds": "cpu=20", "load-target-thresholds": "cpu=90", "load-samples": "2",
            "load-moves": "5", "load-interval": "60", "load-cooldown": "0", "load-priority-threshold": "-1",
            "load-exclude-namespaces": "prod,ops",
        }));
        let load = LoadPolicy {
            enabled: true,
            links: true,
            thresholds: "cpu=20".parse().unwrap(),
            target_thresholds: "cpu=90".parse().unwrap(),
            interval: 60,
            samples: 2,
            moves: 5,
            cooldown: 0,
            priority_threshold: Some(-1),
            excluded_namespaces: ["ops".into(), "prod".into()].into(),
        };
        assert_eq!(chosen, Ok(Settings { load, ..Settings::default() }));
    }
}
