//! LimitRanges: the defaults and bounds they put on the containers of new pods (plugin LimitRanger).

use std::cmp::Ordering;

use serde_json::{Value, json};

use crate::error::Status;
use crate::meta;
use crate::resource::Resource;
use crate::server::ApiServer;

/// A quantity in billionths, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i128);

impl Amount {
    pub fn parse(value: &Value) -> Option<Self> {
        let number_text;
        let text = match value {
            Value::String(text) => text.as_str(),
            Value::Number(number) => {
                number_text = number.to_string();
                number_text.as_str()
            }
            _ => return None,
        };
        let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
        let (digits, suffix) = text.split_at(end);
        let negative = digits.starts_with('-');
        let digits = digits.trim_start_matches(['+', '-']);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let padded = format!("{fraction:0<9}");
        let nano: i128 = format!("{}{}", if whole.is_empty() { "0" } else { whole }, padded.get(..9)?).parse().ok()?;
        let scaled = match suffix {
            "" => nano,
            "n" => nano / 1_000_000_000,
            "u" => nano / 1_000_000,
            "m" => nano / 1_000,
            "k" => nano.checked_mul(1_000)?,
            "M" => nano.checked_mul(1_000_000)?,
            "G" => nano.checked_mul(1_000_000_000)?,
            "T" => nano.checked_mul(1_000_000_000_000)?,
            "P" => nano.checked_mul(1_000_000_000_000_000)?,
            "Ki" => nano.checked_mul(1 << 10)?,
            "Mi" => nano.checked_mul(1 << 20)?,
            "Gi" => nano.checked_mul(1 << 30)?,
            "Ti" => nano.checked_mul(1 << 40)?,
            "Pi" => nano.checked_mul(1 << 50)?,
            exponent => {
                let power: u32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
                nano.checked_mul(10_i128.checked_pow(power)?)?
            }
        };
        Some(Self(if negative { -scaled } else { scaled }))
    }

    pub fn is_negative(self) -> bool {
        self.0 < 0
    }

    pub fn is_positive(self) -> bool {
        self.0 > 0
    }
}

fn container_limits(server: &ApiServer, pod: &Value) -> Vec<Value> {
    let ranges = server.store().list("limitranges", Some(meta::metadata_text(pod, "namespace")));
    ranges
        .iter()
        .flat_map(|r| r.value.pointer("/spec/limits").and_then(Value::as_array).cloned().unwrap_or_default())
        .filter(|l| l.get("type").and_then(Value::as_str) == Some("Container"))
        .collect()
}

/// Fills in the defaults of the namespace's ranges.
pub fn default_limits(server: &ApiServer, pod: &mut Value) {
    let limits = container_limits(server, pod);
    let mut notes = Vec::new();
    let containers = pod.pointer_mut("/spec/containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        for limit in &limits {
            default_container(container, limit, &mut notes);
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        let metadata = meta::metadata_mut(pod);
        metadata.entry("annotations").or_insert_with(|| json!({}))["kubernetes.io/limit-ranger"] = note.into();
    }
}

/// Refuses a valid new pod that is out of bounds.
pub fn check_limits(server: &ApiServer, resource: &Resource, pod: &Value) -> Result<(), Status> {
    if resource.storage != "pods" {
        return Ok(());
    }
    let limits = container_limits(server, pod);
    let name = meta::object_name(pod).to_owned();
    let mut problems = Vec::new();
    for container in pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten() {
        for limit in &limits {
            problems.extend(limit_violations(container, limit));
        }
    }
    match problems.as_slice() {
        [] => Ok(()),
        [one] => Err(Status::forbidden("", "pods", &name, one)),
        many => Err(Status::forbidden("", "pods", &name, &format!("[{}]", many.join(", ")))),
    }
}

/// Requests first, then limits, each with a note of what was set.
fn default_container(container: &mut Value, limit: &Value, notes: &mut Vec<String>) {
    let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    for (default, kind, word) in [("defaultRequest", "requests", "request"), ("default", "limits", "limit")] {
        let Some(defaults) = limit.get(default).and_then(Value::as_object) else { continue };
        let mut set = Vec::new();
        for (resource, quantity) in defaults {
            let present = container.pointer(&format!("/resources/{kind}")).is_some_and(|m| m.get(resource).is_some());
            if !present {
                container["resources"][kind][resource] = quantity.clone();
                set.push(resource.clone());
            }
        }
        if !set.is_empty() {
            notes.push(format!("{} {word} for container {name}", set.join(", ")));
        }
    }
}

fn limit_violations(container: &Value, limit: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let amount =
        |kind: &str, resource: &str| container.pointer(&format!("/resources/{kind}")).and_then(|m| m.get(resource));
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), Into::into);
    for (resource, bound) in limit.get("min").and_then(Value::as_object).into_iter().flatten() {
        for (kind, word) in [("requests", "request"), ("limits", "limit")] {
            match amount(kind, resource) {
                None if kind == "requests" => {
                    problems.push(format!(
                        "minimum {resource} usage per Container is {}.  No request is specified",
                        shown(bound)
                    ));
                }
                Some(value) if Amount::parse(value).cmp(&Amount::parse(bound)) == Ordering::Less => {
                    problems.push(format!(
                        "minimum {resource} usage per Container is {}, but {word} is {}",
                        shown(bound),
                        shown(value)
                    ));
                }
                _ => {}
            }
        }
    }
    for (resource, bound) in limit.get("max").and_then(Value::as_object).into_iter().flatten() {
        match amount("limits", resource) {
            None => problems
                .push(format!("maximum {resource} usage per Container is {}.  No limit is specified", shown(bound))),
            Some(value) if Amount::parse(value) > Amount::parse(bound) => {
                problems.push(format!(
                    "maximum {resource} usage per Container is {}, but limit is {}",
                    shown(bound),
                    shown(value)
                ));
            }
            Some(_) => {}
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_compare_across_units() {
        let amount = |text: &str| Amount::parse(&text.into()).unwrap();
        assert_eq!(amount("0.5"), amount("500m"));
        assert_eq!(amount("1Gi"), amount("1024Mi"));
        assert!(amount("2") > amount("1999m"));
        assert!(amount("-1").is_negative());
        assert_eq!(amount("1e3"), amount("1k"));
        assert!(Amount::parse(&"abc".into()).is_none());
    }
}
