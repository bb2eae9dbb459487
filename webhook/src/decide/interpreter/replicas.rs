//! InterpretReplica and InterpretComponent: the pods of a job, and the requirements of one of them.
//!
//! Rule: Karmada knows one template for each workload and counts `replicas` times its request, for quota and estimates.
//! For several templates the request is the average over all pods, rounded up per resource: to a thousandth of a core,
//! to whole units of all else. The product then covers the whole demand of the job by less than one such step per pod.
//! Placement does not use it: the scheduler reads the tasks.

use caldera_core::{gang::Gang, quantity::Quantity, resources::ResourceName, resources::Resources};
use serde_json::{Map, Value, json};

use super::to_fields;

/// InterpretReplica.
pub fn interpret_replicas(job: &Value, namespace: &str) -> Result<Map<String, Value>, String> {
    let gang = caldera_crds::workload::read_gang(job).map_err(|error| error.to_string())?;
    let mut requirements = json!({"resourceRequest": without_pods(&average_request(&gang)), "namespace": namespace});
    if let [task] = gang.tasks.as_slice() {
        add_node_claim(&mut requirements, job, 0, &task.priority_class);
    }
    Ok(to_fields([("replicas", gang.replicas().into()), ("replicaRequirements", requirements)]))
}

/// InterpretComponent.
pub fn interpret_components(job: &Value) -> Result<Map<String, Value>, String> {
    let gang = caldera_crds::workload::read_gang(job).map_err(|error| error.to_string())?;
    let component = |(index, task): (usize, &caldera_core::gang::Task)| {
        let mut requirements = json!({"resourceRequest": without_pods(&task.request)});
        add_node_claim(&mut requirements, job, index, &task.priority_class);
        json!({"name": task.name, "replicas": task.replicas, "replicaRequirements": requirements})
    };
    Ok(to_fields([("components", gang.tasks.iter().enumerate().map(component).collect())]))
}

/// The pods of a job are counted by Karmada itself.
fn without_pods(request: &Resources) -> Resources {
    request.iter().filter(|(name, _)| name.as_str() != ResourceName::PODS).map(|(n, a)| (n.clone(), a)).collect()
}

fn average_request(gang: &Gang) -> Resources {
    let mut requests = gang.tasks.iter().filter(|task| task.replicas > 0).map(|task| &task.request);
    if let Some(first) = requests.next()
        && requests.all(|request| request == first)
    {
        return first.clone();
    }
    let pods = i128::from(gang.replicas().max(1));
    let share = |name: &ResourceName, amount: Quantity| {
        // What Karmada counts in: thousandths of cores, whole units of all else.
        let grain = if name.as_str() == ResourceName::CPU { 1_000_000 } else { 1_000_000_000 };
        let up = |value: i128, by: i128| value / by + i128::from(value % by != 0);
        let each = up(up(amount.as_nano(), grain), pods).saturating_mul(grain);
        // Taken away from the sum, so that gibibytes stay gibibytes.
        amount.signed_sub(Quantity::from_nano(amount.as_nano() - each))
    };
    gang.sum_full_demand().iter().map(|(name, amount)| (name.clone(), share(name, amount))).collect()
}

fn add_node_claim(requirements: &mut Value, job: &Value, task: usize, priority_class: &str) {
    if !priority_class.is_empty() {
        requirements["priorityClassName"] = priority_class.into();
    }
    let pod = |field: &str| job.pointer(&format!("/spec/tasks/{task}/template/spec/{field}"));
    let mut claim = Map::new();
    if let Some(selector) = pod("nodeSelector") {
        claim.insert("nodeSelector".into(), selector.clone());
    }
    if let Some(affinity) = pod("affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution") {
        claim.insert("hardNodeAffinity".into(), affinity.clone());
    }
    if let Some(tolerations) = pod("tolerations") {
        claim.insert("tolerations".into(), tolerations.clone());
    }
    if !claim.is_empty() {
        requirements["nodeClaim"] = Value::Object(claim);
    }
}
