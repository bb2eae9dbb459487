//! `bus.volcano.sh/v1alpha1`: Command.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::wire::object;

object! {
    /// An order to a controller, carried out at most once.
    Command, "bus.volcano.sh", "v1alpha1", "commands", NamespaceResourceScope
    {  } { action: String, target: OwnerReference, reason: String, message: String }
}
