//! `topology.volcano.sh/v1alpha1`: HyperNode.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};

use crate::{
    schema::DNS_SUBDOMAIN,
    wire::{api_types, object, words},
};

words! {
    /// What a member of a HyperNode is.
    MemberType { Node = "Node", HyperNode = "HyperNode", }
}
object! {
    /// A network domain.
    HyperNode, "topology.volcano.sh", "v1alpha1", "hypernodes", ClusterResourceScope
    { spec: HyperNodeSpec } { status: HyperNodeStatus }
}

api_types! {
    /// By name.
    pub struct ExactMatch {
        /// The name.
        #[schemars(extend("minLength" = 1, "maxLength" = 253, "pattern" = DNS_SUBDOMAIN))]
        pub name: String,
    }

    /// By pattern of the name.
    pub struct RegexMatch {
        /// The pattern.
        #[schemars(extend("minLength" = 1))]
        pub pattern: String,
    }

    /// Which ones; exactly one way.
    pub struct MemberSelector {
        /// By name.
        pub exact_match: Option<ExactMatch>,
        /// By label.
        pub label_match: Option<LabelSelector>,
        /// By a pattern of the name.
        pub regex_match: Option<RegexMatch>,
    }

    /// Members of a domain.
    pub struct MemberSpec {
        /// Which ones.
        #[schemars(extend("x-kubernetes-validations" = [{"message": "Either ExactMatch or RegexMatch or LabelMatch must be specified", "rule": "has(self.exactMatch) || has(self.regexMatch) || has(self.labelMatch)"}, {"message": "Only one of ExactMatch, RegexMatch, or LabelMatch can be specified", "rule": "(has(self.exactMatch) ? 1 : 0) + (has(self.regexMatch) ? 1 : 0) + (has(self.labelMatch) ? 1 : 0) <= 1"}]))]
        pub selector: Option<MemberSelector>,
        /// Nodes, or domains below.
        #[serde(rename = "type")]
        pub type_: MemberType,
    }

    /// A network domain.
    pub struct HyperNodeSpec {
        /// Nodes or hypernodes of the domain.
        #[schemars(extend("minItems" = 1))]
        pub members: Vec<MemberSpec>,
        /// Lower is closer.
        #[schemars(extend("format" = null, "minimum" = 0))]
        pub tier: i64,
        /// The same by name.
        #[schemars(extend("maxLength" = 253))]
        pub tier_name: Option<String>,
    }

    /// What is in it.
    pub struct HyperNodeStatus {
        /// What is the case, and since when.
        pub conditions: Vec<Condition>,
        /// Nodes in it.
        #[schemars(extend("minimum" = 0))]
        pub node_count: Option<i64>,
    }
}
