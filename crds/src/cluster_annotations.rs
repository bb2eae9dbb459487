//! What is wrong with the annotations by which an admin says something of a Cluster.
//!
//! Rule: one that can not be read counts for nothing, and that is the unsafe side: no window keeps jobs out, a cluster
//! takes the jobs of all queues, a fence is not there. So whoever writes it is told, by the parsers that count later.

use std::collections::BTreeMap;

use caldera_core::{autoscaling::Autoscaling, maintenance::Maintenance, text::shorten_text};
use jiff::Timestamp;

use crate::{
    dns::is_dns_subdomain,
    names::caldera::{AUTOSCALED_GROUPS, CLUSTER_QUEUES, ESTIMATOR, FENCED_AT, MAINTENANCE},
};

/// What each of these annotations takes, as an example.
const EXAMPLES: [(&str, &str); 5] = [
    (MAINTENANCE, r#"[{"start": "2026-11-26T08:00:00Z", "end": "2026-11-26T12:00:00Z", "reason": "new kernels"}]"#),
    (
        AUTOSCALED_GROUPS,
        r#"[{"name": "gpu", "nodes": {"pool": "gpu"}, "max": 8, "resources": {"cpu": "16", "memory": "64Gi"}}]"#,
    ),
    (CLUSTER_QUEUES, "ml,bio"),
    (FENCED_AT, "2026-11-26T08:00:00Z"),
    (ESTIMATOR, "10.0.0.7:10352"),
];

/// Why an annotation of a Cluster counts for nothing, with an example of one that counts; `None` for one that is read,
/// and for each that is not ours.
#[must_use]
pub fn find_annotation_fault(name: &str, text: &str) -> Option<String> {
    let (_, example) = EXAMPLES.into_iter().find(|(known, _)| *known == name)?;
    let why = match name {
        MAINTENANCE => text.parse::<Maintenance>().err()?.to_string(),
        AUTOSCALED_GROUPS => text.parse::<Autoscaling>().err()?.to_string(),
        CLUSTER_QUEUES => find_queue_name_fault(text)?,
        FENCED_AT => parse_fence_time(text).err()?,
        _ => find_address_fault(text)?,
    };
    Some(format!("metadata.annotations[{name}]: {why}; for example: {example}"))
}

/// The same of all annotations.
#[must_use]
pub fn list_annotation_faults(annotations: Option<&BTreeMap<String, String>>) -> Vec<String> {
    annotations.into_iter().flatten().filter_map(|(name, text)| find_annotation_fault(name, text)).collect()
}

/// When an admin said that nothing runs in a lost cluster.
///
/// # Errors
/// Why that is no time.
pub fn parse_fence_time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| format!("{:?} is no time", shorten_text(text)))
}

/// Of which queues alone a cluster takes jobs.
pub(crate) fn list_queue_names(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty())
}

fn find_queue_name_fault(text: &str) -> Option<String> {
    if list_queue_names(text).next().is_none() {
        return Some("it names no queue: the cluster would take the jobs of all".to_owned());
    }
    let wrong = list_queue_names(text).find(|name| !is_dns_subdomain(name))?;
    Some(format!("{:?} is no name of a queue", shorten_text(wrong)))
}

/// An empty address says that there is no estimator.
fn find_address_fault(text: &str) -> Option<String> {
    let is_host = |host: &str| !host.is_empty() && !host.contains(|one: char| one.is_whitespace() || one == '/');
    let is_address = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0));
    (!text.is_empty() && !is_address).then(|| format!("{:?} is no host with a port", shorten_text(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_that_is_read_has_no_fault_and_each_example_is_one() {
        for (name, example) in EXAMPLES {
            assert_eq!(find_annotation_fault(name, example), None, "{name}");
        }
        for (name, text) in [
            (MAINTENANCE, "[]"),
            (AUTOSCALED_GROUPS, "[]"),
            (CLUSTER_QUEUES, "ml, bio,"),
            (ESTIMATOR, ""),
            (ESTIMATOR, "[::1]:10352"),
            ("caldera.dev/acted-by", "anybody"),
            ("example.org/queues", ""),
        ] {
            assert_eq!(find_annotation_fault(name, text), None, "{name}={text}");
        }
    }

    #[test]
    fn an_annotation_that_counts_for_nothing_is_reported_with_its_fault_and_an_example() {
        for (name, text, why) in [
            (MAINTENANCE, "soon", "it is no JSON list of windows"),
            (MAINTENANCE, r#"[{"start": "soon", "end": "2026-11-26T12:00:00Z"}]"#, "\"soon\" is no time"),
            (AUTOSCALED_GROUPS, "{}", "it is no JSON list of groups"),
            (AUTOSCALED_GROUPS, r#"[{"name": "g", "nodes": {"a": "b"}, "max": 0, "resources": {}}]"#, "max of 0"),
            (CLUSTER_QUEUES, " ,", "it names no queue"),
            (CLUSTER_QUEUES, "ml;bio", "\"ml;bio\" is no name of a queue"),
            (FENCED_AT, "yesterday", "\"yesterday\" is no time"),
            (FENCED_AT, "", "\"\" is no time"),
            (ESTIMATOR, "https://host", "is no host with a port"),
            (ESTIMATOR, "host:0", "is no host with a port"),
        ] {
            let fault = find_annotation_fault(name, text).unwrap_or_default();
            let reported =
                fault.starts_with(&format!("metadata.annotations[{name}]: ")) && fault.contains("; for example: ");
            assert!(reported && fault.contains(why), "{name}={text}: {fault}");
        }
        let all = [(FENCED_AT, "now"), (MAINTENANCE, "[]")].map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(list_annotation_faults(Some(&BTreeMap::from(all))).len(), 1);
        assert!(list_annotation_faults(None).is_empty());
    }
}
