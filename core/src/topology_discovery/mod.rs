//! Finds a member's network domains where nobody wrote HyperNodes: by labels of its nodes, or by what tools say of its
//! switches. All of it becomes [`HyperNode`]s, the narrowest domain first, as Volcano's own discoverers make them
//! (`pkg/controllers/hypernode/discovery`).
//!
//! Rule: the same input gives the same domains by the same names, in whichever order it is said. A domain is never
//! larger than what was said of it: what can not be known leaves nodes out. Reading is linear in the input, which has
//! [`MOST_BYTES`] at most; what is cut short or no such text is an error, and never a smaller network.
//!
//! | module | holds |
//! |---|---|
//! | `domain_names` | names of domains: words as a name of the API, each once |
//! | `node_labels` | domains by labels of nodes, from the widest label to the narrowest |
//! | `fabric` | switches, their links and the nodes at them, as domains: leaf, spine, and what is above |
//! | `node_names` | which node a host is |
//! | `ibnetdiscover` | reads a fabric from the output of `ibnetdiscover` |
//! | `lldp` | reads a fabric from the neighbours that `lldpcli` lists on each node |

mod domain_names;
mod fabric;
mod ibnetdiscover;
mod lldp;
mod node_labels;
mod node_names;

pub use fabric::{Fabric, find_joining_switch, list_fabric_domains};
pub use ibnetdiscover::read_ibnetdiscover;
pub use lldp::{HostNeighbors, LldpScope, join_neighbors, read_neighbors};
pub use node_labels::{
    MOST_LABEL_BYTES, MOST_LABEL_DOMAINS, MOST_LABELS, TopologyLabels, TopologyLabelsError, list_label_domains,
};
pub use node_names::{NodeNames, read_host_name};

#[cfg(doc)]
use crate::inventory::HyperNode;

/// Bytes of a file that is read, at most: a fabric of 80,000 adapters takes about half of it.
pub const MOST_BYTES: usize = 64 << 20;

/// Why a text is not read as a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// It is too large.
    #[error("it has more than {} MiB", .0 >> 20)]
    Bytes(usize),
    /// It is no text.
    #[error("it is no UTF-8 text: byte {0} is wrong")]
    Utf8(usize),
    /// A line has another form.
    #[error("line {line}: {why}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A link leads to what is not listed itself.
    #[error("{from} is linked with {to}, and {to} is not listed: the text is cut short")]
    CutShort {
        /// The switch or adapter that names the link.
        from: String,
        /// The other end.
        to: String,
    },
    /// It is no JSON, or ends too early.
    #[error("it is no JSON: {0}")]
    Json(String),
    /// It is JSON of another kind.
    #[error("it is not what lldpcli -f json prints: {0}")]
    Lldp(&'static str),
    /// No node is at a switch.
    #[error("no node is at any switch in it")]
    NoNodes,
}

/// The text of a file that is not too large.
fn read_text(bytes: &[u8], most: usize) -> Result<&str, DiscoveryError> {
    if bytes.len() > most {
        return Err(DiscoveryError::Bytes(most));
    }
    std::str::from_utf8(bytes).map_err(|error| DiscoveryError::Utf8(error.valid_up_to()))
}
