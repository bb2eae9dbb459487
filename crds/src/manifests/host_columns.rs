//! What `kubectl get` shows of Volcano's kinds on a Karmada host.
//!
//! Rule: a list answers what its reader asks first. A queue: is it open, how full of cards and of CPU, who waits. A
//! PodGroup: of which workload, where it is, and why it waits. A job: why it waits. Of cards the first kind that a
//! queue names is shown, by a union of fields, of which a server takes the first that there is. Volcano's own columns
//! (`config/crd/volcano/bases`) stay where a member has them. Only definitions that an installation writes get these:
//! those that somebody else installed stay.

use serde_json::Value;

use super::{AGE, Column, Definition, volcano_definitions};

const STATUS: Column = ("STATUS", "string", ".status.phase", 0);
const RUNNING: Column = ("RUNNINGS", "integer", ".status.running", 0);
const QUEUE: Column = ("QUEUE", "string", ".spec.queue", 0);

const JOB: &[Column] = &[
    ("STATUS", "string", ".status.state.phase", 0),
    ("REASON", "string", ".status.state.reason", 0),
    ("minAvailable", "integer", ".status.minAvailable", 0),
    RUNNING,
    QUEUE,
    AGE,
    ("MESSAGE", "string", ".status.state.message", 1),
];

/// Resources that are cards, by how often fleets have them.
macro_rules! cards {
    () => {
        "['nvidia.com/gpu','huawei.com/Ascend910','amd.com/gpu']"
    };
}

/// A PodGroup of ours has one condition and one owner.
const POD_GROUP: &[Column] = &[
    STATUS,
    ("KIND", "string", ".metadata.ownerReferences[0].kind", 0),
    ("WORKLOAD", "string", ".metadata.ownerReferences[0].name", 0),
    ("REASON", "string", ".status.conditions[0].reason", 0),
    ("CLUSTERS", "string", r".metadata.annotations.caldera\.dev/placed-clusters", 0),
    ("minMember", "integer", ".spec.minMember", 0),
    RUNNING,
    QUEUE,
    AGE,
    ("MESSAGE", "string", ".status.conditions[0].message", 1),
];

const QUEUES: &[Column] = &[
    ("STATE", "string", ".status.state", 0),
    ("PARENT", "string", ".spec.parent", 0),
    ("PENDING", "integer", ".status.pending", 0),
    ("INQUEUE", "integer", ".status.inqueue", 0),
    RUNNING,
    ("CARDS", "string", concat!(".status.allocated", cards!()), 0),
    ("CARDS-DESERVED", "string", concat!(".spec.deserved", cards!()), 0),
    ("CARDS-CAPABILITY", "string", concat!(".spec.capability", cards!()), 0),
    ("CPU", "string", ".status.allocated.cpu", 0),
    ("CPU-DESERVED", "string", ".spec.deserved.cpu", 0),
    ("CPU-CAPABILITY", "string", ".spec.capability.cpu", 0),
    ("USED-OF-ALL", "string", ".status.allocated", 1),
    ("DESERVED-OF-ALL", "string", ".spec.deserved", 1),
    ("CAPABILITY-OF-ALL", "string", ".spec.capability", 1),
];

/// Volcano's definitions for a host that does not have them.
#[must_use]
pub fn build_host_volcano_crds() -> Vec<Value> {
    volcano_definitions().into_iter().map(set_columns).collect()
}

fn set_columns(definition: Definition) -> Value {
    let columns = match definition.0["spec"]["names"]["plural"].as_str() {
        Some("jobs") => JOB,
        Some("podgroups") => POD_GROUP,
        Some("queues") => QUEUES,
        _ => return definition.0,
    };
    definition.with_columns(columns).0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the schema says of a simple path; `None` if there is no such field.
    fn find_field<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
        // Of a union each name is a key of a map.
        let path = path.split("['").next()?;
        path.trim_start_matches('.').split('.').try_fold(schema, |at, part| {
            let name = part.strip_suffix("[0]").unwrap_or(part);
            let field = at["properties"].get(name).or_else(|| at.get("additionalProperties"))?;
            if name == part { Some(field) } else { field.get("items") }
        })
    }

    #[test]
    fn every_column_shows_a_field_that_there_is() {
        for definition in build_host_volcano_crds() {
            let version = &definition["spec"]["versions"][0];
            let columns = version["additionalPrinterColumns"].as_array().map_or(&[][..], Vec::as_slice);
            for path in columns.iter().filter_map(|column| column["jsonPath"].as_str()) {
                let known =
                    path.starts_with(".metadata.") || find_field(&version["schema"]["openAPIV3Schema"], path).is_some();
                assert!(known, "{}: {path}", definition["metadata"]["name"]);
            }
        }
    }

    #[test]
    fn a_pod_groups_clusters_are_its_annotation() {
        let (.., path, _) = POD_GROUP.iter().find(|column| column.0 == "CLUSTERS").unwrap();
        assert_eq!(path.replace('\\', ""), format!(".metadata.annotations.{}", crate::names::caldera::PLACED_CLUSTERS));
    }

    #[test]
    fn a_host_differs_from_a_member_in_columns_alone() {
        let strip = |mut definition: Value| {
            definition["spec"]["versions"][0]["additionalPrinterColumns"] = Value::Null;
            definition
        };
        let host: Vec<Value> = build_host_volcano_crds().into_iter().map(strip).collect();
        let member: Vec<Value> = super::super::build_volcano_crds().into_iter().map(strip).collect();
        assert_eq!(host, member);
    }
}
