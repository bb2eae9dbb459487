//! Queues as Volcano writes them: `scheduling.volcano.sh/v1beta1 Queue` objects in YAML or JSON, a `List` of them too.
//! Other kinds in the file are passed over, as `kubectl apply` would take them elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{
    card_quota::{CARD_QUOTA, CardQuota},
    gang::QueueName,
    node_groups::NodeGroupAffinity,
    queue::{Dequeue, PriorityAging, QueueSpec, QueueState, ReservationWait, RunningLimits, TenantOrder},
    resources::{Limits, Resources},
};
use serde::Deserialize;
use serde_json::Value;

use super::ReadError;

const MAX_RUNNING_JOBS: &str = "caldera.dev/max-running-jobs";
const MAX_RUNNING_JOBS_PER_NAMESPACE: &str = "caldera.dev/max-running-jobs-per-namespace";
const MAX_RUNNING_JOBS_PER_USER: &str = "caldera.dev/max-running-jobs-per-user";
const RESERVATION_AFTER: &str = "caldera.dev/reservation-after";
const PRIORITY_AGING: &str = "caldera.dev/priority-aging";
const TENANT_ORDER: &str = "caldera.dev/order";

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    parent: Option<String>,
    priority: Option<i32>,
    weight: Option<u32>,
    capability: Option<Limits>,
    deserved: Option<Limits>,
    guarantee: Option<Guarantee>,
    reclaimable: Option<bool>,
    dequeue_strategy: Option<String>,
    affinity: Option<Affinity>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Affinity {
    node_group_affinity: Option<Groups>,
    node_group_anti_affinity: Option<Groups>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Groups {
    required_during_scheduling_ignored_during_execution: Option<BTreeSet<String>>,
    preferred_during_scheduling_ignored_during_execution: Option<BTreeSet<String>>,
}

impl From<Affinity> for NodeGroupAffinity {
    fn from(affinity: Affinity) -> Self {
        let groups = |one: Option<Groups>| {
            let one = one.unwrap_or_default();
            let required = one.required_during_scheduling_ignored_during_execution.unwrap_or_default();
            (required, one.preferred_during_scheduling_ignored_during_execution.unwrap_or_default())
        };
        let ((required, preferred), (avoided, avoided_if_possible)) =
            (groups(affinity.node_group_affinity), groups(affinity.node_group_anti_affinity));
        Self { required, preferred, avoided, avoided_if_possible }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Guarantee {
    resource: Option<Resources>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    state: Option<String>,
}

/// Reads all queues of a file.
///
/// # Errors
/// [`ReadError`], with the queue.
pub fn read_queues(text: &str) -> Result<Vec<QueueSpec>, ReadError> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| ReadError::File(format!("it is not YAML: {error}")))?;
    let mut queues = Vec::new();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        match document["items"].as_array() {
            Some(items) if document["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => {
                items.iter().try_for_each(|item| push(&mut queues, item))?;
            }
            _ => push(&mut queues, &document)?,
        }
    }
    if queues.is_empty() {
        return Err(ReadError::File("there is no Queue in it".to_owned()));
    }
    Ok(queues)
}

fn push(queues: &mut Vec<QueueSpec>, document: &Value) -> Result<(), ReadError> {
    if document["kind"] != "Queue" {
        return Ok(());
    }
    let name = document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("?");
    let wrong = |what: String| ReadError::File(format!("queue {name}: {what}"));
    let object = Object::deserialize(document).map_err(|error| wrong(error.to_string()))?;
    let spec = object.spec;
    let count = |name: &str| {
        let count = object.metadata.annotations.get(name).map(|text| text.parse::<u32>());
        count.transpose().map_err(|_| wrong(format!("{name} is no whole number of jobs")))
    };
    let running = RunningLimits {
        all: count(MAX_RUNNING_JOBS)?,
        of_namespace: count(MAX_RUNNING_JOBS_PER_NAMESPACE)?,
        of_user: count(MAX_RUNNING_JOBS_PER_USER)?,
    };
    let wait = object.metadata.annotations.get(RESERVATION_AFTER).map(|text| ReservationWait::parse(text));
    let wait = wait.transpose().map_err(|problem| wrong(format!("{RESERVATION_AFTER}: {problem}")))?;
    let aging = object.metadata.annotations.get(PRIORITY_AGING).map(|text| PriorityAging::parse(text));
    let aging = aging.transpose().map_err(|problem| wrong(format!("{PRIORITY_AGING}: {problem}")))?;
    let order = object.metadata.annotations.get(TENANT_ORDER).map(|text| TenantOrder::parse(text));
    let order = order.transpose().map_err(|problem| wrong(format!("{TENANT_ORDER}: {problem}")))?;
    let cards = object.metadata.annotations.get(CARD_QUOTA).map(|text| CardQuota::parse(text));
    if let Some(problem) = cards.as_ref().and_then(CardQuota::problem) {
        return Err(wrong(format!("{CARD_QUOTA}: {problem}")));
    }
    let capability = spec.capability.unwrap_or_default();
    // Of a card model the annotation alone counts.
    let of_resources = capability.iter().filter(|(name, _)| !name.is_card());
    let mut capability: Limits = of_resources.map(|(name, most)| (name.clone(), most)).collect();
    let of_cards = cards.iter().flat_map(CardQuota::limits);
    of_cards.for_each(|(name, most)| capability.set(name.clone(), most));
    queues.push(QueueSpec {
        name: QueueName::from(object.metadata.name),
        parent: spec.parent.filter(|parent| !parent.is_empty()).map(QueueName::from),
        priority: spec.priority.unwrap_or(0),
        weight: spec.weight.unwrap_or(1),
        capability,
        unreadable: Vec::new(),
        guarantee: spec.guarantee.and_then(|guarantee| guarantee.resource).unwrap_or_default(),
        deserved: spec.deserved.unwrap_or_default(),
        running,
        reservation_wait: wait,
        aging,
        tenant_order: order,
        reclaimable: spec.reclaimable.unwrap_or(true),
        dequeue: match spec.dequeue_strategy.as_deref() {
            Some("fifo") => Dequeue::Fifo,
            None | Some("" | "traverse") => Dequeue::Traverse,
            Some(other) => return Err(wrong(format!("dequeueStrategy {other:?} is neither fifo nor traverse"))),
        },
        state: match object.status.state.as_deref() {
            Some("Closed") => QueueState::Closed,
            Some("Closing") => QueueState::Closing,
            _ => QueueState::Open,
        },
        affinity: spec.affinity.map(NodeGroupAffinity::from),
        clusters: Vec::new(),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use caldera_core::quantity::Quantity;

    use super::*;

    #[test]
    fn queues_are_read_as_volcano_writes_them() {
        let text = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: ml}\nspec:\n  parent: all\n  \
                    priority: 5\n  weight: 3\n  capability: {cpu: \"8\", nvidia.com/gpu: 4}\n  deserved: {cpu: 500m}\n  \
                    guarantee: {resource: {memory: 1Gi}}\n  dequeueStrategy: fifo\nstatus: {state: Closed}\n---\nkind: \
                    ConfigMap\nmetadata: {name: x}\n---\nkind: QueueList\nitems:\n- kind: Queue\n  metadata: {name: all}\n";
        let queues = read_queues(text).unwrap();
        assert_eq!(queues.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>(), ["ml", "all"]);
        let ml = &queues[0];
        assert_eq!((ml.parent.as_ref().unwrap().as_str(), ml.priority, ml.weight), ("all", 5, 3));
        assert_eq!(ml.capability.get("nvidia.com/gpu"), Some(Quantity::from_units(4)));
        assert_eq!(ml.deserved.get("cpu"), Some(Quantity::from_milli(500)));
        assert_eq!(ml.guarantee.get("memory"), Quantity::from_units(1 << 30));
        assert_eq!((ml.dequeue, ml.state), (Dequeue::Fifo, QueueState::Closed));
        assert_eq!(queues[1], QueueSpec::unlimited("all"));
    }

    #[test]
    fn groups_of_nodes_are_read_as_volcano_writes_them() {
        let list = "{requiredDuringSchedulingIgnoredDuringExecution: [a], \
                    preferredDuringSchedulingIgnoredDuringExecution: null}";
        let text = format!("kind: Queue\nmetadata: {{name: q}}\nspec: {{affinity: {{nodeGroupAffinity: {list}}}}}\n");
        let affinity = NodeGroupAffinity { required: ["a".to_owned()].into(), ..NodeGroupAffinity::default() };
        assert_eq!(read_queues(&text).unwrap()[0].affinity, Some(affinity));
    }

    #[test]
    fn a_quota_by_card_model_is_read_as_volcano_writes_it() {
        let text = |quota: &str| {
            format!("kind: Queue\nmetadata: {{name: q, annotations: {{volcano.sh/card.quota: '{quota}'}}}}\n")
        };
        let read = read_queues(&text(r#"{"A100": 8}"#)).unwrap();
        assert_eq!(read[0].capability.get("nvidia.com/gpu:A100"), Some(Quantity::from_units(8)));
        let read = read_queues(&format!("{}spec: {{capability: {{\"x/y:z\": 1}}}}\n", text("{}"))).unwrap();
        assert!(read[0].capability.is_unlimited());
        let error = read_queues(&text("8")).unwrap_err().to_string();
        assert!(error.starts_with("queue q: volcano.sh/card.quota: is no JSON object"), "{error}");
    }

    #[test]
    fn when_blocked_jobs_get_a_reservation_is_read() {
        let text = |wait: &str| {
            format!("kind: Queue\nmetadata: {{name: q, annotations: {{caldera.dev/reservation-after: \"{wait}\"}}}}\n")
        };
        let wait = ReservationWait::After { seconds: Some(600), percent: 50 };
        assert_eq!(read_queues(&text("10m,50%")).unwrap()[0].reservation_wait, Some(wait));
        let error = read_queues(&text("soon")).unwrap_err().to_string();
        assert!(error.starts_with("queue q: caldera.dev/reservation-after: \"soon\" is no wait"), "{error}");
        let text = text("1h").replace("reservation-after: \"1h\"", "priority-aging: 5/1h");
        assert_eq!(read_queues(&text).unwrap()[0].aging, Some(PriorityAging::parse("5/1h").unwrap()));
    }

    #[test]
    fn limits_of_running_jobs_are_read_for_all_for_each_namespace_and_for_each_user() {
        let text = "kind: Queue\nmetadata:\n  name: q\n  annotations: {caldera.dev/max-running-jobs: \"9\", \
                    caldera.dev/max-running-jobs-per-namespace: \"3\", caldera.dev/max-running-jobs-per-user: \"1\"}\n";
        let limits = RunningLimits { all: Some(9), of_namespace: Some(3), of_user: Some(1) };
        assert_eq!(read_queues(text).unwrap()[0].running, limits);
        let error = read_queues(&text.replace("\"1\"", "one")).unwrap_err().to_string();
        assert_eq!(error, "queue q: caldera.dev/max-running-jobs-per-user is no whole number of jobs");
    }

    #[test]
    fn a_wrong_queue_is_named() {
        let error = |spec: &str| {
            read_queues(&format!("kind: Queue\nmetadata: {{name: q}}\nspec: {spec}\n")).unwrap_err().to_string()
        };
        assert!(
            error("{capability: {cpu: 4cores}}").starts_with("queue q: "),
            "{}",
            error("{capability: {cpu: 4cores}}")
        );
        assert_eq!(error("{dequeueStrategy: lifo}"), "queue q: dequeueStrategy \"lifo\" is neither fifo nor traverse");
        assert_eq!(read_queues("kind: Pod\n").unwrap_err().to_string(), "there is no Queue in it");
        assert!(read_queues("a: [").unwrap_err().to_string().starts_with("it is not YAML"));
    }
}
