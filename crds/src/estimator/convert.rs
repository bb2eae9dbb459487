//! Conversion between the estimator's messages and core's values.
//!
//! Rule: Karmada's server (`pkg/estimator/server/estimate.go`): a request names the resources of one pod, its node
//! claim and nothing else that decides. Where a field exists in the form of 1.18 and in that of 1.19, the newer one
//! counts.

use caldera_core::{
    gang::{Gang, NodeClaim, NodeTerm, Operator, Requirement, Task, Toleration},
    quantity::Quantity,
    resources::{ResourceName, Resources},
};
use prost::Message;

use super::messages;

/// Why a request can not be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Bytes that are no message.
    #[error("{0} is not encoded as it should be: {1}")]
    Wire(&'static str, prost::DecodeError),
    /// Not a quantity.
    #[error("{1:?} is no amount of {0}")]
    Amount(String, String),
    /// Not an operator of Kubernetes.
    #[error("{0:?} is no operator")]
    Operator(String),
}

/// The task of a request for one template: one pod of it.
///
/// # Errors
/// [`ReadError`].
pub fn read_task(requirements: &messages::ReplicaRequirementsMessage) -> Result<Task, ReadError> {
    let request = read_pod_request(&requirements.resource_request, &requirements.resource_request_bytes)?;
    build_task("pods", requirements.node_claim.as_ref(), request, 1)
}

/// The gang of one set of components.
///
/// # Errors
/// [`ReadError`].
pub fn read_gang(components: &[messages::ComponentMessage]) -> Result<Gang, ReadError> {
    let of = |component: &messages::ComponentMessage| {
        let none = messages::ComponentReplicaRequirementsMessage::default();
        let requirements = component.replica_requirements.as_ref().unwrap_or(&none);
        let request = read_pod_request(&requirements.resource_request, &requirements.resource_request_bytes)?;
        let replicas = u32::try_from(component.replicas).unwrap_or(0);
        build_task(&component.name, requirements.node_claim.as_ref(), request, replicas)
    };
    Ok(build_all_or_nothing_gang(components.iter().map(of).collect::<Result<_, _>>()?))
}

/// All of these tasks or nothing.
#[must_use]
pub fn build_all_or_nothing_gang(tasks: Vec<Task>) -> Gang {
    let min_available = tasks.iter().fold(0, |sum: u32, task| sum.saturating_add(task.replicas));
    Gang::new(tasks, min_available)
}

fn build_task(
    name: &str,
    claim: Option<&messages::NodeClaimMessage>,
    request: Resources,
    replicas: u32,
) -> Result<Task, ReadError> {
    Ok(Task {
        name: name.into(),
        replicas,
        min_available: replicas,
        request,
        node: claim.map(read_node_claim).transpose()?.unwrap_or_default(),
        priority_class: String::new(),
        partition: None,
    })
}

type QuantitiesAsMessages = std::collections::BTreeMap<String, messages::Quantity>;
type QuantitiesAsBytes = std::collections::BTreeMap<String, Vec<u8>>;

/// What a pod asks for, `pods: 1` included. Where both ages of a field are there the newer one counts.
fn read_pod_request(old: &QuantitiesAsMessages, new: &QuantitiesAsBytes) -> Result<Resources, ReadError> {
    let mut request = Resources::new();
    let mut set = |name: &str, amount: &messages::Quantity| {
        let text = amount.string.as_deref().unwrap_or("0");
        let parsed: Option<Quantity> = text.parse().ok().filter(|amount: &Quantity| !amount.is_negative());
        let amount = parsed.ok_or_else(|| ReadError::Amount(name.to_owned(), text.to_owned()))?;
        request.set(name, amount);
        Ok(())
    };
    for (name, amount) in old {
        set(name, amount)?;
    }
    for (name, bytes) in new {
        set(name, &decode_message("a resource request", bytes)?)?;
    }
    request.set(ResourceName::PODS, Quantity::from_units(1));
    Ok(request)
}

fn decode_message<M: Message + Default>(what: &'static str, bytes: &[u8]) -> Result<M, ReadError> {
    M::decode(bytes).map_err(|error| ReadError::Wire(what, error))
}

fn read_node_claim(claim: &messages::NodeClaimMessage) -> Result<NodeClaim, ReadError> {
    let affinity = match (claim.node_affinity_bytes.as_slice(), &claim.node_affinity) {
        ([], old) => old.clone().unwrap_or_default(),
        (bytes, _) => decode_message("the node affinity", bytes)?,
    };
    let tolerations = match claim.tolerations_bytes.as_slice() {
        [] => claim.tolerations.clone(),
        new => new.iter().map(|bytes| decode_message("a toleration", bytes)).collect::<Result<_, _>>()?,
    };
    let term = |term: &messages::NodeSelectorTerm| {
        let labels = term.match_expressions.iter().map(read_requirement).collect::<Result<_, _>>()?;
        Ok(NodeTerm { labels, fields: term.match_fields.iter().map(read_requirement).collect::<Result<_, _>>()? })
    };
    Ok(NodeClaim {
        selector: claim.node_selector.clone(),
        affinity: affinity.node_selector_terms.iter().map(term).collect::<Result<_, _>>()?,
        tolerations: tolerations.into_iter().map(read_toleration).collect(),
        // The wire has no field for them.
        most_per_node: None,
        numa: None,
        preferred: Vec::new(),
        cards: Vec::new(),
    })
}

fn read_requirement(requirement: &messages::NodeSelectorRequirement) -> Result<Requirement, ReadError> {
    let word = requirement.operator.clone().unwrap_or_default();
    let known = Operator::parse(&word);
    let operator = known.ok_or(ReadError::Operator(word))?;
    Ok(Requirement { key: requirement.key.clone().unwrap_or_default(), operator, values: requirement.values.clone() })
}

fn read_toleration(toleration: messages::Toleration) -> Toleration {
    Toleration {
        key: toleration.key.unwrap_or_default(),
        exists: toleration.operator.as_deref() == Some("Exists"),
        value: toleration.value.unwrap_or_default(),
        effect: toleration.effect.unwrap_or_default(),
    }
}

/// A task as a request for one template.
#[must_use]
pub fn write_task(namespace: &str, task: &Task) -> messages::ReplicaRequirementsMessage {
    let (resource_request, resource_request_bytes) = write_pod_request(&task.request);
    messages::ReplicaRequirementsMessage {
        node_claim: write_claim(&task.node),
        resource_request,
        namespace: namespace.to_owned(),
        priority_class_name: task.priority_class.clone(),
        resource_request_bytes,
    }
}

/// So many pods of each task as components.
#[must_use]
pub fn write_components(gang: &Gang, pods: &[u32]) -> Vec<messages::ComponentMessage> {
    let component = |(task, pods): (&Task, &u32)| {
        let (resource_request, resource_request_bytes) = write_pod_request(&task.request);
        messages::ComponentMessage {
            name: task.name.to_string(),
            replica_requirements: Some(messages::ComponentReplicaRequirementsMessage {
                node_claim: write_claim(&task.node),
                resource_request,
                priority_class_name: task.priority_class.clone(),
                resource_request_bytes,
            }),
            replicas: i32::try_from(*pods).unwrap_or(i32::MAX),
        }
    };
    gang.tasks.iter().zip(pods).filter(|(_, pods)| **pods > 0).map(component).collect()
}

/// What a pod asks for of its node; that it is one pod every server counts by itself.
fn write_pod_request(request: &Resources) -> (QuantitiesAsMessages, QuantitiesAsBytes) {
    let asked = request.iter().filter(|(name, _)| name.as_str() != ResourceName::PODS);
    let quantities =
        asked.map(|(name, amount)| (name.to_string(), messages::Quantity { string: Some(amount.to_string()) }));
    let old: QuantitiesAsMessages = quantities.collect();
    let new = old.iter().map(|(name, quantity)| (name.clone(), quantity.encode_to_vec())).collect();
    (old, new)
}

fn write_claim(claim: &NodeClaim) -> Option<messages::NodeClaimMessage> {
    if *claim == NodeClaim::default() {
        return None;
    }
    let requirement = |one: &Requirement| messages::NodeSelectorRequirement {
        key: Some(one.key.clone()),
        operator: Some(one.operator.as_str().to_owned()),
        values: one.values.clone(),
    };
    let term = |term: &NodeTerm| messages::NodeSelectorTerm {
        match_expressions: term.labels.iter().map(requirement).collect(),
        match_fields: term.fields.iter().map(requirement).collect(),
    };
    let affinity = (!claim.affinity.is_empty())
        .then(|| messages::NodeSelector { node_selector_terms: claim.affinity.iter().map(term).collect() });
    let toleration = |one: &Toleration| messages::Toleration {
        key: Some(one.key.clone()),
        operator: Some(if one.exists { "Exists" } else { "Equal" }.to_owned()),
        value: Some(one.value.clone()),
        effect: Some(one.effect.clone()),
        toleration_seconds: None,
    };
    let tolerations: Vec<messages::Toleration> = claim.tolerations.iter().map(toleration).collect();
    Some(messages::NodeClaimMessage {
        node_affinity_bytes: affinity.as_ref().map(Message::encode_to_vec).unwrap_or_default(),
        node_affinity: affinity,
        node_selector: claim.selector.clone(),
        tolerations_bytes: tolerations.iter().map(Message::encode_to_vec).collect(),
        tolerations,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks() -> Task {
        let labels = Requirement { key: "zone".into(), operator: Operator::NotIn, values: vec!["a".into()] };
        let fields = Requirement { key: "metadata.name".into(), operator: Operator::In, values: vec!["n".into()] };
        Task {
            name: "pods".into(),
            replicas: 1,
            min_available: 1,
            request: [("cpu", Quantity::from_milli(500)), ("pods", Quantity::from_units(1))].into_iter().collect(),
            node: NodeClaim {
                selector: [("pool".to_owned(), "x".to_owned())].into(),
                affinity: vec![NodeTerm { labels: vec![labels], fields: vec![fields] }],
                tolerations: vec![Toleration { key: "gpu".into(), exists: true, ..Toleration::default() }],
                most_per_node: None,
                numa: None,
                preferred: Vec::new(),
                cards: Vec::new(),
            },
            priority_class: String::new(),
            partition: None,
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let written = write_task("ns", &asks());
        assert_eq!(read_task(&written).unwrap(), asks());
        let gang = build_all_or_nothing_gang(vec![asks()]);
        assert_eq!(read_gang(&write_components(&gang, &[1])).unwrap(), gang);
    }

    /// Karmada 1.17 knows only the older fields, 1.19 only the newer ones.
    #[test]
    fn either_age_alone_is_enough() {
        let both = write_task("ns", &asks());
        let mut old = both.clone();
        old.resource_request_bytes.clear();
        let claim = old.node_claim.as_mut().unwrap();
        (claim.node_affinity_bytes, claim.tolerations_bytes) = (Vec::new(), Vec::new());
        let mut new = both;
        new.resource_request.clear();
        let claim = new.node_claim.as_mut().unwrap();
        (claim.node_affinity, claim.tolerations) = (None, Vec::new());
        assert_eq!(read_task(&old).unwrap(), asks());
        assert_eq!(read_task(&new).unwrap(), asks());
    }

    #[test]
    fn garbage_is_reported() {
        let with = |bytes: &[u8]| messages::ReplicaRequirementsMessage {
            resource_request_bytes: [("cpu".to_owned(), bytes.to_vec())].into(),
            ..messages::ReplicaRequirementsMessage::default()
        };
        assert!(read_task(&with(&[0x0a, 0x09, b'1'])).is_err());
        assert!(read_task(&with(&[0x0a, 0x02, b'-', b'1'])).is_err());
        assert_eq!(read_task(&with(&[])).unwrap().request.to_string(), "pods 1");
    }
}
