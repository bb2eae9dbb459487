//! What an admin chooses while the controller runs: ConfigMap `caldera-settings` in the namespace of its lease.
//!
//! Rule: a key is named as the controller's flag is, and takes its place; what it does not name is as the flags say.
//! Only `protect-namespaces` and `load-exclude-namespaces` add to what the flags list: what one of them protects stays
//! protected. All of it counts or none: with one key that is not understood, what was understood last stays. A flag
//! that is read at the start alone is refused with these words.

use std::{collections::BTreeMap, str::FromStr};

use caldera_core::{
    load_aware::{ParseThresholdsError, Thresholds},
    queue::preemption::PreemptionRule,
};
use serde_json::{Value, json};

use super::Settings;

/// Rules, or namespaces, that one key may list.
const MOST_ENTRIES: usize = 256;
/// Flags of the controller that are read when it starts.
const AT_START: [&str; 10] = [
    "admin",
    "data-catalogue",
    "data-catalogue-timeout",
    "kubeconfig",
    "lease-duration",
    "lease-namespace",
    "member-lost-after",
    "no-lease",
    "pods-ready-timeout",
    "stock-scheduler",
];

/// The flags' settings with what the ConfigMap chooses.
///
/// # Errors
/// Each key that is not understood, in one sentence.
pub fn choose_settings(flags: &Settings, object: &Value) -> Result<Settings, String> {
    let data: BTreeMap<&str, &str> = object["data"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?.trim())))
        .collect();
    let mut chosen = flags.clone();
    let faults: Vec<String> = data
        .iter()
        .filter_map(|(key, value)| choose_one(&mut chosen, key, value).err().map(|why| format!("{key}: {why}")))
        .collect();
    if !faults.is_empty() {
        return Err(faults.join("; "));
    }
    if data.get("preemption") == Some(&"false") && data.contains_key("preempt") {
        return Err("preempt: it says who may preempt, and preemption says that nobody may".to_owned());
    }
    chosen
        .load
        .check_thresholds()
        .map_err(|why| format!("load-thresholds: {why}; it goes with load-target-thresholds"))?;
    Ok(chosen)
}

fn choose_one(chosen: &mut Settings, key: &str, value: &str) -> Result<(), String> {
    match key {
        "order" => {
            let takes = "it takes share, fair-history, strict or fifo";
            chosen.order = serde_json::from_value(json!(value)).map_err(|_| format!("{value:?}: {takes}"))?;
        }
        "history-half-life" => chosen.history_half_life = read_number::<u32>(value, 10)?.into(),
        "reservation-after" => chosen.reservation_after = read_number::<u32>(value, 0)?.into(),
        "preempt-after" => chosen.preempt_after = read_number::<u32>(value, 0)?.into(),
        "evictions-per-minute" => chosen.evictions_per_minute = read_number(value, 1)?,
        "reclaim" => chosen.reclaim = read_word(value)?,
        "preempt-unset" => chosen.preempt_unset = read_word(value)?,
        "preemption" if read_word(value)? => {}
        "preemption" => chosen.preempt = Vec::new(),
        "preempt" => {
            let rules = list_entries(value, &['\n'])?;
            for rule in &rules {
                PreemptionRule::from_str(rule).map_err(|error| format!("{rule:?}: {error}"))?;
            }
            chosen.preempt = rules;
        }
        "load-aware" => chosen.load.enabled = read_word(value)?,
        "load-thresholds" => chosen.load.thresholds = read_thresholds(value)?,
        "load-target-thresholds" => chosen.load.target_thresholds = read_thresholds(value)?,
        "load-interval" => chosen.load.interval = read_number::<u32>(value, 10)?.into(),
        "load-samples" => chosen.load.samples = read_number(value, 1)?,
        "load-moves" => chosen.load.moves = read_number(value, 1)?,
        "load-cooldown" => chosen.load.cooldown = read_number::<u32>(value, 0)?.into(),
        "load-priority-threshold" => {
            let number = value.parse().map_err(|_| format!("{value:?}: it takes a whole number"))?;
            chosen.load.priority_threshold = Some(number);
        }
        "load-exclude-namespaces" => {
            let names = list_entries(value, &['\n', ','])?;
            chosen.load.excluded_namespaces.extend(names.into_iter().map(Into::into));
        }
        "protect-namespaces" => chosen.protected_namespaces.extend(list_entries(value, &['\n', ','])?),
        _ if AT_START.contains(&key) => {
            return Err("it is read when the controller starts, and can not be changed here: set the flag".to_owned());
        }
        _ => return Err("there is no such setting".to_owned()),
    }
    Ok(())
}

fn read_number<T: FromStr + PartialOrd + std::fmt::Display>(value: &str, least: T) -> Result<T, String> {
    let number = value.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| format!("{value:?}: it takes a whole number of {least} at least"))
}

fn read_thresholds(value: &str) -> Result<Thresholds, String> {
    value.parse().map_err(|error: ParseThresholdsError| error.to_string())
}

fn read_word(value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| format!("{value:?}: it takes true or false"))
}

fn list_entries(value: &str, separators: &[char]) -> Result<Vec<String>, String> {
    let entries: Vec<String> =
        value.split(separators).map(str::trim).filter(|entry| !entry.is_empty()).map(str::to_owned).collect();
    match entries.len() {
        0 => Err("it is empty".to_owned()),
        many if many > MOST_ENTRIES => Err(format!("{many} entries are above {MOST_ENTRIES}")),
        _ => Ok(entries),
    }
}

#[cfg(test)]
mod tests {
    use caldera_core::{load_aware::LoadPolicy, queue::OrderPolicy};

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
        for (key, value, why) in [
            ("order", "random", "it takes share, fair-history, strict or fifo"),
            ("history-half-life", "9", "a whole number of 10 at least"),
            ("preempt-after", "1m", "a whole number of 0 at least"),
            ("evictions-per-minute", "0", "a whole number of 1 at least"),
            ("reclaim", "yes", "it takes true or false"),
            ("preempt", "by.least=high", "by.least=high"),
            ("preempt", "", "it is empty"),
            ("load-aware", "1", "it takes true or false"),
            ("load-thresholds", "cpu=NaN", "it takes cpu=PERCENT"),
            ("load-thresholds", "cpu=80,memory=30", "has to be below its target threshold"),
            ("load-interval", "9", "a whole number of 10 at least"),
            ("load-priority-threshold", "high", "it takes a whole number"),
            ("lease-duration", "5", "it is read when the controller starts"),
            ("pods-ready-timeout", "60", "it is read when the controller starts"),
            ("oder", "fifo", "there is no such setting"),
        ] {
            let fault = choose(&json!({key: value, "reservation-after": "1"})).unwrap_err();
            assert!(fault.starts_with(&format!("{key}: ")) && fault.contains(why), "{key}={value}: {fault}");
        }
        let chosen = choose(&json!({
            "load-aware": "true", "load-thresholds": "cpu=20", "load-target-thresholds": "cpu=90", "load-samples": "2",
            "load-moves": "5", "load-interval": "60", "load-cooldown": "0", "load-priority-threshold": "-1",
            "load-exclude-namespaces": "prod,ops",
        }));
        let load = LoadPolicy {
            enabled: true,
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
        let both = choose(&json!({"preemption": "false", "preempt": "of.most=0"}));
        assert!(both.unwrap_err().contains("nobody may"));
        let many = vec!["of.most=0"; MOST_ENTRIES + 1].join("\n");
        assert!(choose(&json!({"preempt": many})).unwrap_err().contains("above 256"));
    }
}
