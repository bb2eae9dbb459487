//! Why what a member published can not be decoded.

/// Why a published part can not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not ranges, or more than there can be.
    #[error("{0:?} names no nodes or pods")]
    Range(String),
    /// A number without a node.
    #[error("there is no node {0}")]
    NoNode(u32),
    /// A number without a request.
    #[error("there is no request {0}")]
    NoRequest(u32),
    /// A node or pod that is listed twice.
    #[error("{0} is listed twice")]
    Twice(String),
    /// Not an amount, or a negative one.
    #[error("{0} is no amount of {1}")]
    Amount(String, String),
    /// Values of a label that are not one for each node.
    #[error("label {0} has not one value for each node")]
    Labels(String),
    /// Not an operator of Kubernetes.
    #[error("{0:?} is no operator")]
    Operator(String),
    /// Nothing that NUMA nodes can be.
    #[error("{0:?} can be no NUMA nodes of a node")]
    Numa(String),
    /// More pods than any member has.
    #[error("it lists more than {0} pods")]
    Pods(usize),
    /// More than readers keep of a member.
    #[error("it stands for more than {} MiB of nodes and pods", .0 >> 20)]
    Bytes(usize),
}
