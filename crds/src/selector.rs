//! Reads label, field and node selectors, from objects or from text as `kubectl` takes it, as requirements, and refuses
//! those that Kubernetes would refuse.
//!
//! Rule: Kubernetes `LabelSelectorAsSelector` (apimachinery `pkg/apis/meta/v1/helpers.go`), and `labels.Parse` and
//! `labels.NewRequirement` (`pkg/labels/selector.go`): an operator has the right number of values, and keys and values
//! can be labels. Zones in a field selector are not checked, and of a node selector only the operator is.

use caldera_core::gang::{Operator, Requirement};
use k8s_openapi::{api::core::v1::NodeSelectorRequirement, apimachinery::pkg::apis::meta::v1::LabelSelector};
use serde::Deserialize as _;
use serde_json::Value;

/// A label selector in JSON; `None` if Kubernetes would not take it.
pub(crate) fn label_selector(selector: &Value) -> Option<Vec<Requirement>> {
    label_requirements(&LabelSelector::deserialize(selector).ok()?)
}

/// A label selector's requirements; `None` if Kubernetes would not take it (`LabelSelectorAsSelector`).
#[must_use]
pub fn label_requirements(selector: &LabelSelector) -> Option<Vec<Requirement>> {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| {
        let values = vec![value.clone()];
        Some(Requirement { key: key.clone(), operator: Operator::In, values })
    });
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let operator =
            Operator::parse(&expression.operator).filter(|known| !matches!(known, Operator::Gt | Operator::Lt))?;
        let values: Vec<String> = expression.values.iter().flatten().cloned().collect();
        Some(Requirement { key: expression.key.clone(), operator, values })
    });
    labels.chain(expressions).map(|requirement| requirement.filter(is_valid)).collect()
}

/// A selector in kubectl's words, `a=b,c in (d,e),!f`: all of them must hold. Nothing at all asks for nothing.
///
/// # Errors
/// The first part that Kubernetes would not take.
pub fn parse_selector(text: &str) -> Result<Vec<Requirement>, MalformedSelector> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut depth = 0_usize;
    let parts = text.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    let parts = parts.map(str::trim);
    parts.map(|part| parse_requirement(part).ok_or_else(|| MalformedSelector(part.to_owned()))).collect()
}

/// A part of a selector that Kubernetes would not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no requirement of labels: it is written as key, !key, key=value, key!=value, key in (a,b) or key notin (a,b)"
)]
pub struct MalformedSelector(String);

fn parse_requirement(part: &str) -> Option<Requirement> {
    let of = |key: &str, operator, values: Vec<&str>| Requirement {
        key: key.trim().to_owned(),
        operator,
        values: values.into_iter().map(|value| value.trim().to_owned()).collect(),
    };
    let requirement = if let Some(key) = part.strip_prefix('!') {
        of(key, Operator::DoesNotExist, Vec::new())
    } else if let Some((head, values)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let (key, word) = head.trim_end().rsplit_once(char::is_whitespace)?;
        let operator = match word {
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            _ => return None,
        };
        of(key, operator, values.split(',').collect())
    } else {
        const SIGNS: [(&str, Operator); 5] = [
            ("!=", Operator::NotIn),
            ("==", Operator::In),
            ("=", Operator::In),
            (">", Operator::Gt),
            ("<", Operator::Lt),
        ];
        let with =
            |(sign, operator): (&str, Operator)| part.split_once(sign).map(|(key, value)| (key, operator, value));
        match SIGNS.into_iter().find_map(with) {
            Some((key, operator, value)) => of(key, operator, vec![value]),
            None => of(part, Operator::Exists, Vec::new()),
        }
    };
    is_valid(&requirement).then_some(requirement)
}

/// A field selector's requirement; `None` if Kubernetes would not take it. Zones are never checked.
pub(crate) fn field_requirement(requirement: &NodeSelectorRequirement) -> Option<Requirement> {
    let requirement = node_requirement(requirement)?;
    (requirement.key == "zone" || is_valid(&requirement)).then_some(requirement)
}

/// One expression of a node affinity; `None` for an operator that does not exist.
#[must_use]
pub fn node_requirement(requirement: &NodeSelectorRequirement) -> Option<Requirement> {
    let operator = Operator::parse(&requirement.operator)?;
    let values = requirement.values.iter().flatten().cloned().collect();
    Some(Requirement { key: requirement.key.clone(), operator, values })
}

/// `labels.NewRequirement`: the right number of values, and a key and values that can be labels.
fn is_valid(requirement: &Requirement) -> bool {
    let values = &requirement.values;
    let counted = match requirement.operator {
        Operator::In | Operator::NotIn => !values.is_empty(),
        Operator::Exists | Operator::DoesNotExist => values.is_empty(),
        Operator::Gt | Operator::Lt => matches!(values.as_slice(), [value] if value.parse::<i64>().is_ok()),
    };
    counted && is_label_key(&requirement.key) && values.iter().all(|value| value.is_empty() || is_label_value(value))
}

/// Whether it may be the key of a label: a name, or one behind the domain of whose it is.
#[must_use]
pub fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => {
            let part = |part: &str| {
                is_label_value(part) && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            };
            prefix.len() <= 253 && prefix.split('.').all(part) && is_label_value(name)
        }
        None => is_label_value(key),
    }
}

pub(crate) fn is_label_value(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let ends = name.bytes().next().zip(name.bytes().next_back());
    name.len() <= 63
        && name.bytes().all(inner)
        && ends.is_some_and(|(first, last)| first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(selector: &str, labels: &[(&str, &str)]) -> bool {
        let label = |key: &str| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        parse_selector(selector).unwrap().iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }

    #[test]
    fn a_selector_is_read_as_kubectl_reads_it() {
        let ml = [("team", "ml"), ("env", "prod"), ("tier", "3")];
        for (selector, wanted) in [
            ("", true),
            (" ", true),
            ("team=ml", true),
            ("team==ml,env in (prod, dev)", true),
            (" team = ml , env notin (dev) ", true),
            ("team=ml,env in (test,dev)", false),
            ("team", true),
            ("!team", false),
            ("!gone,team", true),
            ("team!=ml", false),
            ("gone!=x", true),
            ("gone notin (x)", true),
            ("gone in (x)", false),
            ("gone=", false),
            ("tier>2,tier<4", true),
            ("tier>3", false),
            ("kubernetes.io/metadata.name in (a,b)", false),
        ] {
            assert_eq!(holds(selector, &ml), wanted, "{selector:?}");
        }
        assert!(holds("gone in ()", &[("gone", "")]), "as labels.Parse: one empty value");
    }

    #[test]
    fn what_kubernetes_would_not_take_is_reported() {
        for (wrong, part) in [
            ("team=ml,", ""),
            (",", ""),
            ("team in ml", "team in ml"),
            ("a=b,team in (ml", "team in (ml"),
            ("team on (ml)", "team on (ml)"),
            ("in (ml)", "in (ml)"),
            ("team=m l", "team=m l"),
            ("-team", "-team"),
            ("a=b=c", "a=b=c"),
            ("tier>much", "tier>much"),
            ("!a=b", "!a=b"),
            ("x/y/z=1", "x/y/z=1"),
        ] {
            assert_eq!(parse_selector(wrong), Err(MalformedSelector(part.to_owned())), "{wrong:?}");
        }
    }
}
