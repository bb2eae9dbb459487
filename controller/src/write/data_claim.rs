//! What the controller writes of DataSourceClaims and DataSources: their statuses, and the end of a source that goes
//! with its last claim, and its beginning where a catalogue says it. A write of what is there tests the version that it
//! was decided for.

use std::sync::Arc;

use caldera_core::data_source::ClaimKey;
use caldera_runtime::{
    watch::api_resource,
    write::{Body, Write},
};
use serde_json::{Value, json};

/// A claim, or a source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataTarget {
    /// A DataSourceClaim.
    Claim(ClaimKey),
    /// A DataSource.
    Source(String),
}

/// What is written of one.
#[derive(Debug, Clone, PartialEq)]
pub struct DataWrite {
    /// Which.
    pub target: DataTarget,
    /// The version that the decision was made for.
    pub resource_version: Arc<str>,
    /// What.
    pub change: DataWriteKind,
}

/// What becomes of it.
#[derive(Debug, Clone, PartialEq)]
pub enum DataWriteKind {
    /// It is made, as a catalogue says.
    Create(Value),
    /// Merge patch of its status.
    Status(Value),
    /// It is deleted, if it is the one of this UID.
    Delete(Arc<str>),
}

impl DataWrite {
    /// Whether nothing is left of it.
    #[must_use]
    pub const fn is_deletion(&self) -> bool {
        matches!(self.change, DataWriteKind::Delete(_))
    }
}

/// How it is written.
pub(super) fn build_data_write(write: &DataWrite) -> Write {
    let (kind, plural, namespace, name) = match &write.target {
        DataTarget::Claim(key) => {
            ("DataSourceClaim", "datasourceclaims", key.namespace.to_string(), key.name.to_string())
        }
        DataTarget::Source(name) => ("DataSource", "datasources", String::new(), name.clone()),
    };
    let resource = api_resource("datadependency.volcano.sh", "v1alpha1", kind, plural);
    let (subresource, body) = match &write.change {
        DataWriteKind::Create(object) => (None, Body::Create(object.clone())),
        DataWriteKind::Status(status) => {
            let metadata = json!({"resourceVersion": &*write.resource_version});
            (Some("status"), Body::MergePatch(json!({"metadata": metadata, "status": status})))
        }
        DataWriteKind::Delete(uid) => {
            let (uid, resource_version) = (uid.to_string(), write.resource_version.to_string());
            (None, Body::DeleteUnchanged { uid, resource_version })
        }
    };
    Write { resource, namespace, name, subresource, body }
}
