//! The messages: `pkg/estimator/pb/estimator.proto` of Karmada 1.19, and the few messages of Kubernetes that travel in
//! them as bytes (`k8s.io/api/core/v1/generated.proto`).
//!
//! They are written by hand, because a compiler for .proto files would cost more than these lines. Fields that 1.18
//! deprecated and 1.19 removed are read and written too, so that both ends of either version understand each other.

use std::collections::BTreeMap;

use prost::Message;

/// How many pods of one template fit.
#[derive(Clone, PartialEq, Message)]
pub struct MaxAvailableReplicasRequest {
    #[prost(string, tag = "1")]
    pub cluster: String,
    #[prost(message, optional, tag = "2")]
    pub replica_requirements: Option<ReplicaRequirementsMessage>,
    #[prost(message, repeated, tag = "3")]
    pub assumed_workloads: Vec<AssumedWorkload>,
}

#[derive(Clone, PartialEq, Message)]
pub struct MaxAvailableReplicasResponse {
    #[prost(int32, tag = "1")]
    pub max_replicas: i32,
}

/// How many whole sets of several templates fit.
#[derive(Clone, PartialEq, Message)]
pub struct MaxAvailableComponentSetsRequest {
    #[prost(string, tag = "1")]
    pub cluster: String,
    #[prost(message, repeated, tag = "2")]
    pub components: Vec<ComponentMessage>,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(message, repeated, tag = "4")]
    pub assumed_workloads: Vec<AssumedWorkload>,
}

#[derive(Clone, PartialEq, Message)]
pub struct MaxAvailableComponentSetsResponse {
    #[prost(int32, tag = "1")]
    pub max_sets: i32,
}

/// How many pods of a workload no node has taken for some time.
#[derive(Clone, PartialEq, Message)]
pub struct UnschedulableReplicasRequest {
    #[prost(string, tag = "1")]
    pub cluster: String,
    #[prost(message, optional, tag = "2")]
    pub resource: Option<ObjectReferenceMessage>,
    /// Nanoseconds.
    #[prost(int64, tag = "3")]
    pub unschedulable_threshold: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct UnschedulableReplicasResponse {
    #[prost(int32, tag = "1")]
    pub unschedulable_replicas: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct ReplicaRequirementsMessage {
    #[prost(message, optional, tag = "1")]
    pub node_claim: Option<NodeClaimMessage>,
    /// Up to 1.18.
    #[prost(btree_map = "string, message", tag = "2")]
    pub resource_request: BTreeMap<String, Quantity>,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(string, tag = "4")]
    pub priority_class_name: String,
    /// Each a [`Quantity`].
    #[prost(btree_map = "string, bytes", tag = "5")]
    pub resource_request_bytes: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ComponentReplicaRequirementsMessage {
    #[prost(message, optional, tag = "1")]
    pub node_claim: Option<NodeClaimMessage>,
    /// Up to 1.18.
    #[prost(btree_map = "string, message", tag = "2")]
    pub resource_request: BTreeMap<String, Quantity>,
    #[prost(string, tag = "3")]
    pub priority_class_name: String,
    /// Each a [`Quantity`].
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub resource_request_bytes: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ComponentMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub replica_requirements: Option<ComponentReplicaRequirementsMessage>,
    #[prost(int32, tag = "3")]
    pub replicas: i32,
}

/// What was given to the cluster and has no nodes yet.
#[derive(Clone, PartialEq, Message)]
pub struct AssumedWorkload {
    #[prost(string, tag = "1")]
    pub namespace: String,
    #[prost(message, repeated, tag = "2")]
    pub components: Vec<ComponentMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeClaimMessage {
    /// Up to 1.18.
    #[prost(message, optional, tag = "1")]
    pub node_affinity: Option<NodeSelector>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub node_selector: BTreeMap<String, String>,
    /// Up to 1.18.
    #[prost(message, repeated, tag = "3")]
    pub tolerations: Vec<Toleration>,
    /// A [`NodeSelector`].
    #[prost(bytes = "vec", tag = "4")]
    pub node_affinity_bytes: Vec<u8>,
    /// Each a [`Toleration`].
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub tolerations_bytes: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ObjectReferenceMessage {
    #[prost(string, tag = "1")]
    pub api_version: String,
    #[prost(string, tag = "2")]
    pub kind: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(string, tag = "4")]
    pub name: String,
}

/// `resource.Quantity`: its text.
#[derive(Clone, PartialEq, Message)]
pub struct Quantity {
    #[prost(string, optional, tag = "1")]
    pub string: Option<String>,
}

/// `core/v1.NodeSelector`.
#[derive(Clone, PartialEq, Message)]
pub struct NodeSelector {
    #[prost(message, repeated, tag = "1")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// `core/v1.NodeSelectorTerm`.
#[derive(Clone, PartialEq, Message)]
pub struct NodeSelectorTerm {
    #[prost(message, repeated, tag = "1")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    #[prost(message, repeated, tag = "2")]
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// `core/v1.NodeSelectorRequirement`.
#[derive(Clone, PartialEq, Message)]
pub struct NodeSelectorRequirement {
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub operator: Option<String>,
    #[prost(string, repeated, tag = "3")]
    pub values: Vec<String>,
}

/// `core/v1.Toleration`.
#[derive(Clone, PartialEq, Message)]
pub struct Toleration {
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub operator: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub value: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub effect: Option<String>,
    #[prost(int64, optional, tag = "5")]
    pub toleration_seconds: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields as protobuf encodes them, written out by hand from the definition: tag (number * 8 + 2), length, content.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number * 8 + 2, u8::try_from(content.len()).unwrap()];
        bytes.extend(content);
        bytes
    }

    fn entry(number: u8, key: &str, value: &[u8]) -> Vec<u8> {
        field(number, &[field(1, key.as_bytes()), field(2, value)].concat())
    }

    #[test]
    fn what_karmada_sends_is_understood() {
        // A quantity's marshalled form, as reference text has it: 0a 04 "500m".
        let cpu = [0x0a, 0x04, b'5', b'0', b'0', b'm'];
        let requirement = [field(1, b"zone"), field(2, b"In"), field(3, b"a"), field(3, b"b")].concat();
        let affinity = field(1, &field(1, &requirement));
        // gogo-proto writes every field of a toleration but the seconds, empty or not.
        let toleration = [field(1, b"gpu"), field(2, b"Exists"), field(3, b""), field(4, b"NoSchedule")].concat();
        let claim = [entry(2, "pool", b"x"), field(4, &affinity), field(5, &toleration)].concat();
        let requirements = [field(1, &claim), field(3, b"ns"), field(4, b"high"), entry(5, "cpu", &cpu)].concat();
        let golden = [field(1, b"m1"), field(2, &requirements)].concat();
        let request = MaxAvailableReplicasRequest::decode(golden.as_slice()).unwrap();
        assert_eq!(request.encode_to_vec(), golden);
        let requirements = request.replica_requirements.unwrap();
        assert_eq!((requirements.namespace.as_str(), requirements.priority_class_name.as_str()), ("ns", "high"));
        assert_eq!(requirements.resource_request_bytes["cpu"], cpu);
        let claim = requirements.node_claim.unwrap();
        assert_eq!(claim.node_selector["pool"], "x");
        let affinity = NodeSelector::decode(claim.node_affinity_bytes.as_slice()).unwrap();
        assert_eq!(affinity.node_selector_terms[0].match_expressions[0].values, ["a", "b"]);
        let toleration = Toleration::decode(claim.tolerations_bytes[0].as_slice()).unwrap();
        assert_eq!(toleration.effect.as_deref(), Some("NoSchedule"));
    }

    #[test]
    fn sets_and_answers_have_their_numbers() {
        let component = [field(1, b"worker"), field(2, &field(3, b"high")), vec![3 << 3, 4]].concat();
        let assumed = [field(1, b"ns"), field(2, &component)].concat();
        let golden = [field(1, b"m1"), field(2, &component), field(3, b"ns"), field(4, &assumed)].concat();
        let request = MaxAvailableComponentSetsRequest::decode(golden.as_slice()).unwrap();
        assert_eq!(request.encode_to_vec(), golden);
        assert_eq!((request.components[0].replicas, request.assumed_workloads.len()), (4, 1));
        assert_eq!(MaxAvailableReplicasResponse { max_replicas: 7 }.encode_to_vec(), [1 << 3, 7]);
        assert_eq!(MaxAvailableComponentSetsResponse { max_sets: 7 }.encode_to_vec(), [1 << 3, 7]);
        // Ten bytes, as protobuf writes negative numbers.
        assert_eq!(MaxAvailableReplicasResponse { max_replicas: -1 }.encode_to_vec().len(), 11);
        let reference = [field(1, b"apps/v1"), field(2, b"Deployment"), field(3, b"ns"), field(4, b"web")].concat();
        let golden = [field(1, b"m1"), field(2, &reference), vec![3 << 3, 5]].concat();
        let request = UnschedulableReplicasRequest::decode(golden.as_slice()).unwrap();
        assert_eq!(request.encode_to_vec(), golden);
        assert_eq!(request.unschedulable_threshold, 5);
        assert_eq!(UnschedulableReplicasResponse { unschedulable_replicas: 2 }.encode_to_vec(), [1 << 3, 2]);
    }
}
