//! What an admin chooses while the controller runs, as ConfigMap `caldera-settings` says it.
//!
//! Rule: a key is named as the controller's flag is. All of it counts or none: one key that is not understood, and
//! nothing is chosen. A flag that is read at the start alone is refused with these words. Whether what is chosen agrees
//! with the flags beside it is the controller's to say.

use std::{collections::BTreeMap, str::FromStr};

use caldera_core::{
    load_aware::{LoadPolicy, ParseThresholdsError, Thresholds},
    queue::{OrderPolicy, preemption::PreemptionRule},
};
use serde_json::{Value, json};

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

/// What one key chooses; each is named as its key is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the controller's flags of these names are described there")]
pub enum ChosenSetting {
    Order(OrderPolicy),
    HistoryHalfLife(i64),
    ReservationAfter(i64),
    PreemptAfter(i64),
    EvictionsPerMinute(u32),
    Reclaim(bool),
    PreemptUnset(bool),
    /// Rules as `preempt` lists them; none where `preemption` is false.
    Preempt(Vec<String>),
    LoadAware(bool),
    LinkAware(bool),
    LoadThresholds(Thresholds),
    LoadTargetThresholds(Thresholds),
    LoadInterval(i64),
    LoadSamples(u32),
    LoadMoves(u32),
    LoadCooldown(i64),
    LoadPriorityThreshold(i32),
    /// Beside those that the flag lists.
    LoadExcludeNamespaces(Vec<String>),
    /// Beside those that the flag lists.
    ProtectNamespaces(Vec<String>),
}

/// What the ConfigMap chooses.
///
/// # Errors
/// Each key that is not understood, in one sentence.
pub fn read_chosen_settings(map: &Value) -> Result<Vec<ChosenSetting>, String> {
    let data: BTreeMap<&str, &str> = map["data"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?.trim())))
        .collect();
    let (mut chosen, mut faults) = (Vec::new(), Vec::new());
    for (key, value) in &data {
        match read_setting(key, value) {
            Ok(setting) => chosen.extend(setting),
            Err(why) => faults.push(format!("{key}: {why}")),
        }
    }
    if !faults.is_empty() {
        return Err(faults.join("; "));
    }
    if data.get("preemption") == Some(&"false") && data.contains_key("preempt") {
        return Err("preempt: it says who may preempt, and preemption says that nobody may".to_owned());
    }
    let said = |key: &str| data.get(key).and_then(|value| value.parse().ok());
    if let (Some(thresholds), Some(target_thresholds)) = (said("load-thresholds"), said("load-target-thresholds")) {
        check_load_thresholds(&LoadPolicy { thresholds, target_thresholds, ..LoadPolicy::default() })?;
    }
    Ok(chosen)
}

/// Whether both thresholds agree.
///
/// # Errors
/// Why they do not, by the key.
pub fn check_load_thresholds(load: &LoadPolicy) -> Result<(), String> {
    load.check_thresholds().map_err(|why| format!("load-thresholds: {why}; it goes with load-target-thresholds"))
}

/// `None` for what chooses nothing else than there is.
fn read_setting(key: &str, value: &str) -> Result<Option<ChosenSetting>, String> {
    Ok(Some(match key {
        "order" => {
            let takes = "it takes share, fair-history, strict or fifo";
            ChosenSetting::Order(serde_json::from_value(json!(value)).map_err(|_| format!("{value:?}: {takes}"))?)
        }
        "history-half-life" => ChosenSetting::HistoryHalfLife(read_number::<u32>(value, 10)?.into()),
        "reservation-after" => ChosenSetting::ReservationAfter(read_number::<u32>(value, 0)?.into()),
        "preempt-after" => ChosenSetting::PreemptAfter(read_number::<u32>(value, 0)?.into()),
        "evictions-per-minute" => ChosenSetting::EvictionsPerMinute(read_number(value, 1)?),
        "reclaim" => ChosenSetting::Reclaim(read_word(value)?),
        "preempt-unset" => ChosenSetting::PreemptUnset(read_word(value)?),
        "preemption" if read_word(value)? => return Ok(None),
        "preemption" => ChosenSetting::Preempt(Vec::new()),
        "preempt" => {
            let rules = list_entries(value, &['\n'])?;
            for rule in &rules {
                PreemptionRule::from_str(rule).map_err(|error| format!("{rule:?}: {error}"))?;
            }
            ChosenSetting::Preempt(rules)
        }
        "load-aware" => ChosenSetting::LoadAware(read_word(value)?),
        "link-aware" => ChosenSetting::LinkAware(read_word(value)?),
        "load-thresholds" => ChosenSetting::LoadThresholds(read_thresholds(value)?),
        "load-target-thresholds" => ChosenSetting::LoadTargetThresholds(read_thresholds(value)?),
        "load-interval" => ChosenSetting::LoadInterval(read_number::<u32>(value, 10)?.into()),
        "load-samples" => ChosenSetting::LoadSamples(read_number(value, 1)?),
        "load-moves" => ChosenSetting::LoadMoves(read_number(value, 1)?),
        "load-cooldown" => ChosenSetting::LoadCooldown(read_number::<u32>(value, 0)?.into()),
        "load-priority-threshold" => {
            let number = value.parse().map_err(|_| format!("{value:?}: it takes a whole number"))?;
            ChosenSetting::LoadPriorityThreshold(number)
        }
        "load-exclude-namespaces" => ChosenSetting::LoadExcludeNamespaces(list_entries(value, &['\n', ','])?),
        "protect-namespaces" => ChosenSetting::ProtectNamespaces(list_entries(value, &['\n', ','])?),
        _ if AT_START.contains(&key) => {
            return Err("it is read when the controller starts, and can not be changed here: set the flag".to_owned());
        }
        _ => return Err("there is no such setting".to_owned()),
    }))
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
    use super::*;

    fn read(data: &Value) -> Result<Vec<ChosenSetting>, String> {
        read_chosen_settings(&json!({"data": data}))
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
            ("load-interval", "9", "a whole number of 10 at least"),
            ("load-priority-threshold", "high", "it takes a whole number"),
            ("lease-duration", "5", "it is read when the controller starts"),
            ("pods-ready-timeout", "60", "it is read when the controller starts"),
            ("oder", "fifo", "there is no such setting"),
        ] {
            let fault = read(&json!({key: value, "reservation-after": "1"})).unwrap_err();
            assert!(fault.starts_with(&format!("{key}: ")) && fault.contains(why), "{key}={value}: {fault}");
        }
        let both = read(&json!({"preemption": "false", "preempt": "of.most=0"}));
        assert!(both.unwrap_err().contains("nobody may"));
        let many = vec!["of.most=0"; MOST_ENTRIES + 1].join("\n");
        assert!(read(&json!({"preempt": many})).unwrap_err().contains("above 256"));
    }

    /// One of the two may go with what a flag says of the other.
    #[test]
    fn thresholds_are_compared_where_both_are_chosen() {
        let thresholds = |low: &str| json!({"load-thresholds": low, "load-target-thresholds": "cpu=50"});
        assert!(read(&thresholds("cpu=50")).unwrap_err().starts_with("load-thresholds: the threshold of cpu, 50 %,"));
        assert_eq!(read(&thresholds("cpu=49")).map(|chosen| chosen.len()), Ok(2));
        assert_eq!(read(&json!({"load-thresholds": "cpu=99"})).map(|chosen| chosen.len()), Ok(1));
    }
}
