//! What a Job says of pods that fail and of when it has succeeded (`validatePodFailurePolicyRule`,
//! `validateSuccessPolicyRule` of `pkg/apis/batch/validation`).

use serde_json::Value;

use crate::meta::qualified_name_problems;
use crate::podspec::{items_of, text_of};
use crate::schema::FieldError;

/// `at` is the rule of a policy for failed pods.
pub fn failure_details(spec: &Value, rule: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = rule.pointer("/onExitCodes/containerName").and_then(Value::as_str);
    if let Some(name) = name.filter(|name| !container_names(spec).any(|one| one == *name)) {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.push(FieldError::invalid_text(format!("{at}.onExitCodes.containerName"), name, why));
    }
    for (index, condition) in items_of(rule, "onPodConditions").iter().enumerate() {
        let at = format!("{at}.onPodConditions[{index}]");
        let kind = text_of(condition, "type");
        let problems = qualified_name_problems(kind);
        errors.extend(problems.iter().map(|why| FieldError::invalid_text(format!("{at}.type"), kind, why)));
        let (status, known) = (text_of(condition, "status"), ["False", "True", "Unknown"]);
        if !status.is_empty() && !known.contains(&status) {
            errors.push(FieldError::not_supported(format!("{at}.status"), &status.into(), &known));
        }
    }
    errors
}

fn container_names(spec: &Value) -> impl Iterator<Item = &str> {
    let pod = spec.pointer("/template/spec").unwrap_or(&Value::Null);
    ["containers", "initContainers"].into_iter().flat_map(|list| items_of(pod, list)).map(|one| text_of(one, "name"))
}

/// `at` is the rule of a policy for success.
pub fn success_errors(rule: &Value, completions: i64, at: &str) -> Vec<FieldError> {
    let (count, indexes) = (rule.get("succeededCount").and_then(Value::as_i64), rule.get("succeededIndexes"));
    let indexes = indexes.and_then(Value::as_str);
    let mut errors = Vec::new();
    if count.is_none() && indexes.is_none() {
        let why = "at least one of succeededCount or succeededIndexes must be specified";
        return vec![FieldError::required(at, why)];
    }
    let counted = indexes.map(|indexes| count_indexes(indexes, completions));
    if let Some(Err(why)) = &counted {
        let why = format!("error parsing succeededIndexes: {why}");
        errors.push(FieldError::invalid_text(format!("{at}.succeededIndexes"), indexes.unwrap_or_default(), &why));
    }
    let Some(count) = count else { return errors };
    let mut refuse = |why: &str| errors.push(FieldError::invalid(format!("{at}.succeededCount"), &count.into(), why));
    if count < 0 {
        refuse("must be greater than or equal to 0");
    }
    if count > completions {
        refuse(&format!("must be less than or equal to {completions} (the number of specified completions)"));
    }
    if let Some(total) = counted.map(|counted| counted.unwrap_or(0)).filter(|total| count > *total) {
        let of = "the number of indexes in the specified succeededIndexes field";
        refuse(&format!("must be less than or equal to {total} ({of})"));
    }
    errors
}

/// How many indexes a text such as `0-2,5` names.
pub fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut last = None;
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let limits: Vec<&str> = part.split('-').collect();
        if limits.len() > 2 {
            let rule = "violates the requirement that an index interval can have at most two parts separated by '-'";
            return Err(format!("the fragment \"{part}\" {rule}"));
        }
        let read = |limit: &str| {
            let index: i64 =
                limit.parse().map_err(|_| format!("cannot convert string to integer for index: \"{limit}\""))?;
            if index >= completions { Err(format!("too large index: \"{limit}\"")) } else { Ok(index) }
        };
        let first = read(limits[0])?;
        let end = limits.get(1).map_or(Ok(first), |limit| read(limit))?;
        let disorder =
            |previous: i64, current: i64| format!("non-increasing order, previous: {previous}, current: {current}");
        if limits.len() == 2 && first >= end {
            return Err(disorder(first, end));
        }
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(disorder(last, first));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn indexes_grow_and_are_below_the_completions() {
        assert_eq!(count_indexes("0-2,5", 6), Ok(4));
        assert_eq!(count_indexes("", 6), Ok(0));
        assert_eq!(count_indexes("0-6", 6), Err("too large index: \"6\"".to_owned()));
        assert_eq!(count_indexes("3,1", 6), Err("non-increasing order, previous: 3, current: 1".to_owned()));
        assert!(count_indexes("a", 6).is_err() && count_indexes("1-2-3", 6).is_err());
    }

    #[test]
    fn a_success_needs_no_more_than_there_is() {
        let errors = |rule: Value| success_errors(&rule, 3, "r").len();
        assert_eq!(errors(json!({})), 1);
        assert_eq!(errors(json!({"succeededCount": 4})), 1);
        assert_eq!(errors(json!({"succeededCount": 2, "succeededIndexes": "0"})), 1);
        assert_eq!(errors(json!({"succeededCount": 1, "succeededIndexes": "0-1"})), 0);
    }

    #[test]
    fn a_failed_pod_is_told_by_a_container_of_the_job() {
        let spec = json!({"template": {"spec": {"containers": [{"name": "c"}]}}});
        let rule = |name: &str| json!({"onExitCodes": {"containerName": name}, "onPodConditions": [{"type": "A"}]});
        assert!(failure_details(&spec, &rule("c"), "r").is_empty());
        assert_eq!(failure_details(&spec, &rule("d"), "r")[0].field, "r.onExitCodes.containerName");
    }
}
