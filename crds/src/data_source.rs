//! Reads DataSources and DataSourceClaims into the values that placement decides on (`caldera_core::data_source`).
//!
//! Rule: a claim that says no namespace for its workload is for one of its own (the peer's dispatcher and its
//! controller differ on that: a claim without one gates its workload for ever). Of the workload's version only the
//! group counts. Reading never fails: a name that no API server takes is that of no object. What a claim says in an
//! annotation of ours that means nothing is told, so that a slip of the pen is not silent.

use std::sync::Arc;

use caldera_core::{
    data_source::{ClaimKey, DataClaim, DataIdentity, DataSource},
    gang::WorkloadRef,
    text::shorten_text,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    names::caldera::{DATA_LOCALITY, DATA_PREFERRED, DATA_REQUIRED},
    volcano::datadependency,
};

/// Of annotations that are ours.
const PREFIX: &str = "caldera.dev/";
/// Faults of one claim that are told.
const MOST_FAULTS: usize = 4;

/// Where some data is, as its object says.
#[must_use]
pub fn read_source(object: &datadependency::DataSource) -> DataSource {
    let (metadata, spec) = (&object.metadata, &object.spec);
    let data = DataIdentity {
        system: spec.system.clone(),
        category: spec.type_.clone(),
        name: spec.name.clone(),
        attributes: spec.attributes.clone(),
    };
    DataSource {
        name: metadata.name.clone().unwrap_or_default(),
        created: metadata.creation_timestamp.as_ref().map(|time| time.0.into()).unwrap_or_default(),
        data: Arc::new(data),
        clusters: Arc::new(spec.locality.cluster_names.iter().cloned().collect()),
        deleting: metadata.deletion_timestamp.is_some(),
    }
}

/// What a workload needs of clusters, as its claim says.
#[must_use]
pub fn read_claim(object: &datadependency::DataSourceClaim) -> DataClaim {
    let (metadata, spec) = (&object.metadata, &object.spec);
    let data = DataIdentity {
        system: spec.system.clone(),
        category: spec.data_source_type.clone(),
        name: spec.data_source_name.clone(),
        attributes: spec.attributes.clone(),
    };
    let key = key_of(metadata);
    let named = spec.workload.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    let workload = WorkloadRef {
        group: spec.workload.api_version.split_once('/').map_or("", |(group, _)| group).to_owned(),
        kind: spec.workload.kind.clone(),
        namespace: named.unwrap_or(&key.namespace).to_owned(),
        name: spec.workload.name.clone(),
    };
    let annotations = metadata.annotations.iter().flatten();
    let own: Vec<(&str, &str)> = annotations
        .filter(|(key, _)| key.starts_with(PREFIX))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    DataClaim {
        data: Arc::new(data),
        workload: Arc::new(workload),
        preferred: own.contains(&(DATA_LOCALITY, DATA_PREFERRED)),
        deleting: metadata.deletion_timestamp.is_some(),
        faults: own.iter().filter_map(|(key, value)| describe_fault(key, value)).take(MOST_FAULTS).collect(),
        key,
    }
}

/// What is wrong with an annotation of ours on a claim.
fn describe_fault(key: &str, value: &str) -> Option<String> {
    match (key, value) {
        (DATA_LOCALITY, DATA_PREFERRED | DATA_REQUIRED) => None,
        (DATA_LOCALITY, value) => Some(format!(
            "its annotation {DATA_LOCALITY} is neither {DATA_PREFERRED} nor {DATA_REQUIRED} but {}: it is required",
            shorten_text(value)
        )),
        (key, _) => Some(format!("its annotation {} means nothing on a claim", shorten_text(key))),
    }
}

fn key_of(metadata: &ObjectMeta) -> ClaimKey {
    let text = |text: &Option<String>| Arc::from(text.as_deref().unwrap_or_default());
    ClaimKey { namespace: text(&metadata.namespace), name: text(&metadata.name) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(workload: Value, annotations: Value) -> DataClaim {
        let object = json!({
            "metadata": {"name": "c", "namespace": "ns", "annotations": annotations},
            "spec": {"system": "s3", "dataSourceType": "bucket", "dataSourceName": "b", "workload": workload},
        });
        read_claim(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_claim_without_a_namespace_is_for_a_workload_of_its_own_defect_49() {
        for namespace in [Value::Null, "".into(), "ns".into()] {
            let job = json!({
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "namespace": namespace,
            });
            let claim = claim(job, Value::Null);
            assert_eq!(claim.workload.to_string(), "Job ns/j");
            assert_eq!(claim.workload.group, "batch.volcano.sh");
            assert!(claim.is_of_its_namespace());
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "j", "namespace": "other"});
        let claim = claim(pod, Value::Null);
        assert_eq!((claim.workload.group.as_str(), claim.is_of_its_namespace()), ("", false));
    }

    #[test]
    fn a_claim_is_required_unless_it_says_that_it_is_preferred() {
        let with = |annotations| claim(json!({"apiVersion": "v1", "kind": "Pod", "name": "j"}), annotations).preferred;
        assert!(with(json!({"caldera.dev/data-locality": "preferred"})));
        assert!(!with(json!({"caldera.dev/data-locality": "prefered"})) && !with(Value::Null));
    }

    #[test]
    fn an_annotation_of_ours_that_means_nothing_on_a_claim_is_reported() {
        let pod = || json!({"apiVersion": "v1", "kind": "Pod", "name": "j"});
        let faults = |annotations| claim(pod(), annotations).faults;
        for right in ["preferred", "required"] {
            assert!(faults(json!({"caldera.dev/data-locality": right, "team/note": "x"})).is_empty());
        }
        assert_eq!(
            faults(json!({"caldera.dev/data-locality": "prefered"})),
            ["its annotation caldera.dev/data-locality is neither preferred nor required but prefered: it is required"]
        );
        assert_eq!(
            faults(json!({"caldera.dev/data-localty": "preferred"})),
            ["its annotation caldera.dev/data-localty means nothing on a claim"]
        );
        let many: serde_json::Map<String, Value> =
            (0..99).map(|i| (format!("caldera.dev/{i}{}", "x".repeat(500)), Value::from(""))).collect();
        let many = faults(many.into());
        assert!(many.len() == 4 && many.iter().all(|fault| fault.len() < 200), "{many:?}");
    }

    #[test]
    fn a_source_and_a_claim_of_the_same_data_are_equal_and_no_attributes_are_none() {
        let with = |attributes: Value| {
            let object = json!({
                "metadata": {"name": "s", "creationTimestamp": "1970-01-01T00:01:00Z"},
                "spec": {
                    "system": "s3", "type": "bucket", "name": "b", "attributes": attributes,
                    "locality": {"clusterNames": ["m2", "m1", "m2"]},
                },
            });
            read_source(&serde_json::from_value(object).unwrap())
        };
        let claim = claim(json!({"apiVersion": "v1", "kind": "Pod", "name": "j"}), Value::Null);
        let source = with(Value::Null);
        assert_eq!((&claim.data, source.created.as_seconds(), source.clusters.len()), (&source.data, 60, 2));
        assert_eq!(with(json!({})), source);
        assert_ne!(with(json!({"a": "b"})).data, source.data);
    }
}
