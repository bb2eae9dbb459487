//! A member, from its Cluster.

use std::collections::BTreeMap;

use caldera_core::{admission::Admission, autoscaling::Autoscaling, quantity::Quantity};
use caldera_crds::{
    karmada::cluster::READY,
    names::caldera::{ADMISSION, AUTOSCALED_GROUPS},
    published::PeerLink,
    workload::progress::has_copy_ended,
};
use serde::Serialize;
use serde_json::Value;

use super::facts::JobKey;
use crate::objects::{self, name_of, read_list_at, read_text_at};

/// Karmada's own taint of a cordoned cluster.
pub const CORDON: &str = "cluster.karmada.io/unschedulable";

/// A member.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Name.
    pub name: String,
    /// `Ready`, `NotReady` or `Cordoned`.
    pub state: &'static str,
    /// `Push` or `Pull`.
    pub mode: String,
    /// Of its API server.
    pub version: String,
    /// Where it is.
    pub region: String,
    /// Ready ones, and all.
    pub nodes: String,
    /// Allocated and allocatable, by resource, as Karmada last summed them up.
    pub amounts: BTreeMap<String, (String, String)>,
    /// `key=value:effect`.
    pub taints: Vec<String>,
    /// What its nodes really use, where its collector says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_use: Option<RealUse>,
    /// Its ways to other clusters, as its collector measured them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<MeasuredLinks>,
    /// Devices that are claimed, and all, by DeviceClass, where a collector publishes them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, (String, String)>,
    /// Maintenance windows that are not over.
    pub maintenance: Vec<String>,
    /// Node groups that may grow; or that they can not be read.
    pub autoscaled_groups: Vec<String>,
    /// Type, status, and the words with it.
    pub conditions: Vec<(String, String, String)>,
    /// Jobs and services that are there; `None` if they can not be seen.
    pub jobs: Option<Vec<PlacedJob>>,
}

/// What the nodes of a member that take pods really use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RealUse {
    /// Used, and what these nodes have, by resource.
    pub amounts: BTreeMap<String, (String, String)>,
    /// Seconds since it was read.
    pub age_seconds: i64,
}

/// Ways to other clusters, as a member's collector published them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MeasuredLinks {
    /// Each way.
    pub to: Vec<PeerLink>,
    /// Seconds since the collector last heard its member, where it says so.
    pub age_seconds: Option<i64>,
    /// Whether they still count: not where the collector has been silent since.
    pub are_trusted: bool,
}

impl RealUse {
    /// Whole percent that is used of a resource.
    #[must_use]
    pub fn share_of(&self, resource: &str) -> Option<i128> {
        let (used, all) = self.amounts.get(resource)?;
        let (used, all) = (used.parse::<Quantity>().ok()?.as_nano(), all.parse::<Quantity>().ok()?.as_nano());
        (all > 0).then(|| used.saturating_mul(100) / all)
    }
}

/// The part of a job that is in a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacedJob {
    /// Its namespace.
    pub namespace: String,
    /// `kind/name`, as commands take it.
    pub job: String,
    /// The queue that is charged.
    pub queue: String,
    /// Pods there.
    pub pods: i64,
    /// What they ask for, where the binding tells.
    pub cpu: Option<String>,
}

impl Member {
    /// Allocated and allocatable of a resource; none if it has none.
    #[must_use]
    pub fn amount(&self, resource: &str) -> Option<(Quantity, Quantity)> {
        let (used, all) = self.amounts.get(resource)?;
        Some((used.parse().ok()?, all.parse().ok()?))
    }
}

/// The part of a job in a cluster; `None` for a binding of another namespace's workload, and for a copy that has ended:
/// it holds nothing. In one cluster its CPU is the charge; in several it is pods times the request of a replica, if all
/// are alike.
#[must_use]
pub fn read_placed(binding: &Value, target: &Value) -> Option<PlacedJob> {
    let key = JobKey::of_binding(binding)?;
    let copy =
        read_list_at(binding, "/status/aggregatedStatus").iter().find(|copy| copy["clusterName"] == target["name"]);
    if copy.is_some_and(|copy| has_copy_ended(key.kind, &copy["status"])) {
        return None;
    }
    let record = objects::annotation_of(binding, ADMISSION).and_then(|text| Admission::parse(text).ok());
    let pods = target["replicas"].as_i64().unwrap_or(0);
    let each = || binding.pointer("/spec/replicaRequirements/resourceRequest/cpu")?.as_str()?.parse::<Quantity>().ok();
    let cpu = match &record {
        Some(record) if read_list_at(binding, "/spec/clusters").len() == 1 => Some(record.charged.get("cpu")),
        _ => each().map(|each| each.times(u64::try_from(pods).unwrap_or(0))),
    };
    Some(PlacedJob {
        job: format!("{}/{}", key.kind.aliases()[0], key.name),
        namespace: key.namespace,
        queue: record.map_or_else(String::new, |record| record.queue.to_string()),
        pods,
        cpu: cpu.map(|cpu| cpu.plain().to_string()),
    })
}

/// Reads one. Its jobs, and the maintenance windows that are not over, are not known yet.
#[must_use]
pub fn read_member(cluster: &Value) -> Member {
    let of = |pointer: &str| read_text_at(cluster, pointer).to_owned();
    let conditions: Vec<(String, String, String)> = read_list_at(cluster, "/status/conditions")
        .iter()
        .map(|one| {
            let words = format!("{}: {}", read_text_at(one, "/reason"), read_text_at(one, "/message"));
            (read_text_at(one, "/type").to_owned(), read_text_at(one, "/status").to_owned(), words)
        })
        .collect();
    let is_ready = conditions.iter().any(|(kind, status, _)| kind == READY && status == "True");
    let count = |name: &str| cluster["status"]["nodeSummary"][name].as_i64().unwrap_or(0);
    let amount =
        |kind: &str, name: &str| cluster["status"]["resourceSummary"][kind][name].as_str().unwrap_or("0").to_owned();
    let there = cluster.pointer("/status/resourceSummary/allocatable").and_then(Value::as_object);
    let taints = read_list_at(cluster, "/spec/taints").iter().map(|taint| {
        let value = read_text_at(taint, "/value");
        let value = if value.is_empty() { String::new() } else { format!("={value}") };
        format!("{}{value}:{}", read_text_at(taint, "/key"), read_text_at(taint, "/effect"))
    });
    Member {
        name: name_of(cluster).to_owned(),
        state: match (is_ready, find_cordon(cluster)) {
            (false, _) => "NotReady",
            (true, Some(_)) => "Cordoned",
            (true, None) => "Ready",
        },
        mode: of("/spec/syncMode"),
        version: of("/status/kubernetesVersion"),
        region: of("/spec/region"),
        nodes: format!("{}/{}", count("readyNum"), count("totalNum")),
        amounts: there
            .into_iter()
            .flatten()
            .map(|(name, _)| (name.clone(), (amount("allocated", name), amount("allocatable", name))))
            .collect(),
        taints: taints.collect(),
        real_use: None,
        links: None,
        devices: BTreeMap::new(),
        maintenance: Vec::new(),
        autoscaled_groups: list_autoscaled_groups(objects::annotation_of(cluster, AUTOSCALED_GROUPS)),
        conditions,
        jobs: None,
    }
}

fn list_autoscaled_groups(said: Option<&str>) -> Vec<String> {
    match said.map(str::parse::<Autoscaling>) {
        None => Vec::new(),
        Some(Ok(groups)) => groups.iter().map(ToString::to_string).collect(),
        Some(Err(why)) => vec![format!("can not be read: {why}")],
    }
}

/// Where the cordon is among the taints.
#[must_use]
pub fn find_cordon(cluster: &Value) -> Option<usize> {
    let is_cordon =
        |taint: &Value| read_text_at(taint, "/key") == CORDON && read_text_at(taint, "/effect") == "NoSchedule";
    read_list_at(cluster, "/spec/taints").iter().position(is_cordon)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(taints: Value) -> Value {
        json!({
            "metadata": {"name": "m1", "resourceVersion": "7"}, "spec": {"taints": taints},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}], "nodeSummary": {"readyNum": 1, "totalNum": 2},
                "resourceSummary": {"allocatable": {"cpu": "8"}, "allocated": {"cpu": "3"}},
            },
        })
    }

    #[test]
    fn a_members_state_says_whether_it_takes_jobs() {
        let one = read_member(&cluster(json!([{"key": CORDON, "effect": "NoSchedule"}])));
        assert_eq!((one.state, one.nodes.as_str(), one.taints.len()), ("Cordoned", "1/2", 1));
        assert_eq!(one.amounts["cpu"], ("3".to_owned(), "8".to_owned()));
        assert_eq!(read_member(&cluster(Value::Null)).state, "Ready");
        assert_eq!(read_member(&json!({})).state, "NotReady");
    }
}
