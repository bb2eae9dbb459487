//! How long the pods of a copy may take to end.
//!
//! Rule: what is evicted, or has run for its time, is charged to nobody from then on, and its pods hold their nodes
//! until they end by `terminationGracePeriodSeconds`. So of what was charged none goes to a member with a longer period
//! than a setting says; a longer one is lowered, wherever in the object it is: of pods, and of their probes. What a
//! member has already stays: a copy keeps the longest period that it had, for a lower one would start a service anew,
//! and of a job that runs no member would take it.

use serde_json::Value;

const FIELD: &str = "terminationGracePeriodSeconds";

/// Lowers each period in a copy that is longer than `most` seconds, or than what the copy had before.
pub(super) fn limit_grace_periods(copy: &mut Value, old: Option<&Value>, most: u64) {
    if find_longest_period(copy) > most {
        lower_periods(copy, old.map_or(most, |old| find_longest_period(old).max(most)));
    }
}

fn find_longest_period(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(find_longest_period).max().unwrap_or(0),
        Value::Object(fields) => {
            let of = |(name, value): (&String, &Value)| match value.as_u64() {
                Some(period) if name == FIELD => period,
                _ => find_longest_period(value),
            };
            fields.iter().map(of).max().unwrap_or(0)
        }
        _ => 0,
    }
}

fn lower_periods(value: &mut Value, most: u64) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| lower_periods(item, most)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_u64() {
                    Some(period) if name == FIELD => *value = period.min(most).into(),
                    _ => lower_periods(value, most),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(periods: [Value; 2]) -> Value {
        let task = |period: &Value| {
            let probe = json!({FIELD: period, "periodSeconds": 100_000});
            json!({"template": {"spec": {FIELD: period, "containers": [{"livenessProbe": probe}]}}})
        };
        json!({"kind": "Job", "spec": {"tasks": periods.iter().map(task).collect::<Vec<_>>()}})
    }

    fn limited(copy: &Value, old: Option<&Value>) -> Value {
        let mut copy = copy.clone();
        limit_grace_periods(&mut copy, old, 3_600);
        copy
    }

    #[test]
    fn no_pod_of_a_new_copy_takes_longer_to_end_than_the_setting_says() {
        let wanted = job([json!(3_600), json!(30)]);
        assert_eq!(limited(&job([json!(86_400), json!(30)]), None), wanted);
        assert_eq!(limited(&wanted, None), wanted);
        for none in [job([json!(null), json!("long")]), job([json!(-1), json!(1.5)]), json!(null)] {
            assert_eq!(limited(&none, None), none);
        }
    }

    #[test]
    fn a_copy_that_is_there_keeps_what_it_has_and_gets_no_more() {
        let (short, long, longer) = (json!(30), json!(7_200), json!(9_000));
        let before = job([long.clone(), short.clone()]);
        assert_eq!(limited(&before, Some(&before)), before);
        assert_eq!(limited(&job([longer.clone(), short.clone()]), Some(&before)), before);
        let ended_soon = job([short.clone(), short.clone()]);
        assert_eq!(limited(&job([longer, short.clone()]), Some(&ended_soon)), job([json!(3_600), short]));
    }
}
