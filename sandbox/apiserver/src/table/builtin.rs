//! The columns of the built-in kinds (`pkg/printers/internalversion/printers.go`), one row per kind. Descriptions are
//! short: clients do not print them.

use serde_json::{Value, json};

use super::cells::{self, Cells};
use super::{CREATION_TEXT, NAME_TEXT, column_definition};

/// How one kind is printed. Columns are `name`, `name:type`, and end in `*` when only `-o wide` shows them.
pub struct Printer {
    group: &'static str,
    plural: &'static str,
    columns: &'static [&'static str],
    pub cells: Cells,
}

const fn p(group: &'static str, plural: &'static str, columns: &'static [&'static str], cells: Cells) -> Printer {
    Printer { group, plural, columns, cells }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const BINDING_COLUMNS: &[&str] = &["Name", "Role", "Age", "Users*", "Groups*", "ServiceAccounts*"];
const NAME_AND_CREATED: &[&str] = &["Name", "Created At:date"];
const WORKLOAD_COLUMNS: &[&str] =
    &["Name", "Desired:integer", "Current:integer", "Ready:integer", "Age", "Containers*", "Images*", "Selector*"];

static DEFAULT: Printer = p("", "", NAME_AND_CREATED, cells::name_and_created);

#[rustfmt::skip]
static PRINTERS: &[Printer] = &[
    p("", "componentstatuses", &["Name", "Status", "Message", "Error"], cells::component_status),
    p("", "configmaps", &["Name", "Data", "Age"], cells::config_map),
    p("", "endpoints", &["Name", "Endpoints", "Age"], cells::print_endpoints),
    p("", "events", &["Last Seen", "Type", "Reason", "Object", "Subobject*", "Source*", "Message", "First Seen*", "Count*", "Name*"], cells::print_event),
    p("", "namespaces", &["Name", "Status", "Age"], cells::print_namespace),
    p("", "nodes", &["Name", "Status", "Roles", "Age", "Version", "Internal-IP*", "External-IP*", "OS-Image*", "Kernel-Version*", "Container-Runtime*"], cells::print_node),
    p("", "persistentvolumeclaims", &["Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age", "VolumeMode*"], cells::print_claim),
    p("", "persistentvolumes", &["Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass", "VolumeAttributesClass", "Reason", "Age", "VolumeMode*"], cells::print_volume),
    p("", "pods", &["Name", "Ready", "Status", "Restarts", "Age", "IP*", "Node*", "Nominated Node*", "Readiness Gates*"], cells::print_pod),
    p("", "podtemplates", &["Name", "Containers", "Images", "Pod Labels"], cells::pod_template),
    p("", "replicationcontrollers", WORKLOAD_COLUMNS, cells::replica_set),
    p("", "resourcequotas", &["Name", "Request", "Limit", "Age"], cells::print_quota),
    p("", "secrets", &["Name", "Type", "Data", "Age"], cells::print_secret),
    p("", "serviceaccounts", &["Name", "Age"], cells::service_account),
    p("", "services", &["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector*"], cells::print_service),
    p("admissionregistration.k8s.io", "mutatingadmissionpolicies", &["Name", "Mutations:integer", "ParamKind", "Age"], cells::mutating_policy),
    p("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", &["Name", "PolicyName", "ParamRef", "Age"], cells::admission_policy_binding),
    p("admissionregistration.k8s.io", "mutatingwebhookconfigurations", &["Name", "Webhooks:integer", "Age"], cells::print_webhooks),
    p("admissionregistration.k8s.io", "validatingwebhookconfigurations", &["Name", "Webhooks:integer", "Age"], cells::print_webhooks),
    p("admissionregistration.k8s.io", "validatingadmissionpolicies", &["Name", "Validations:integer", "ParamKind", "Age"], cells::admission_policy),
    p("admissionregistration.k8s.io", "validatingadmissionpolicybindings", &["Name", "PolicyName", "ParamRef", "Age"], cells::admission_policy_binding),
    p("apiregistration.k8s.io", "apiservices", &["Name", "Service", "Available", "Age"], cells::api_service),
    p("apps", "controllerrevisions", &["Name", "Controller", "Revision", "Age"], cells::controller_revision),
    p("apps", "daemonsets", &["Name", "Desired:integer", "Current:integer", "Ready:integer", "Up-to-date:integer", "Available:integer", "Node Selector", "Age", "Containers*", "Images*", "Selector*"], cells::daemon_set),
    p("apps", "deployments", &["Name", "Ready", "Up-to-date", "Available", "Age", "Containers*", "Images*", "Selector*"], cells::print_deployment),
    p("apps", "replicasets", WORKLOAD_COLUMNS, cells::replica_set),
    p("apps", "statefulsets", &["Name", "Ready", "Age", "Containers*", "Images*"], cells::stateful_set),
    p("autoscaling", "horizontalpodautoscalers", &["Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"], cells::print_autoscaler),
    p("batch", "cronjobs", &["Name", "Schedule", "Timezone", "Suspend:boolean", "Active:integer", "Last Schedule", "Age", "Containers*", "Images*", "Selector*"], cells::cron_job),
    p("batch", "jobs", &["Name", "Status", "Completions", "Duration", "Age", "Containers*", "Images*", "Selector*"], cells::print_job),
    p("certificates.k8s.io", "certificatesigningrequests", &["Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"], cells::signing_request),
    p("coordination.k8s.io", "leases", &["Name", "Holder", "Age"], cells::print_lease),
    p("discovery.k8s.io", "endpointslices", &["Name", "AddressType", "Ports", "Endpoints", "Age"], cells::endpoint_slice),
    p("events.k8s.io", "events", &["Last Seen", "Type", "Reason", "Object", "Subobject*", "Source*", "Message", "First Seen*", "Count*", "Name*"], cells::print_event),
    p("flowcontrol.apiserver.k8s.io", "flowschemas", &["Name", "PriorityLevel", "MatchingPrecedence", "DistinguisherMethod", "Age", "MissingPL"], cells::flow_schema),
    p("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", &["Name", "Type", "NominalConcurrencyShares", "Queues", "HandSize", "QueueLengthLimit", "Age"], cells::priority_level),
    p("networking.k8s.io", "ingressclasses", &["Name", "Controller", "Parameters", "Age"], cells::ingress_class),
    p("networking.k8s.io", "ingresses", &["Name", "Class", "Hosts", "Address", "Ports", "Age"], cells::print_ingress),
    p("networking.k8s.io", "ipaddresses", &["Name", "ParentRef"], cells::ip_address),
    p("networking.k8s.io", "networkpolicies", &["Name", "Pod-Selector", "Age"], cells::network_policy),
    p("networking.k8s.io", "servicecidrs", &["Name", "CIDRs", "Age"], cells::service_ranges),
    p("node.k8s.io", "runtimeclasses", &["Name", "Handler", "Age"], cells::runtime_class),
    p("policy", "poddisruptionbudgets", &["Name", "Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"], cells::disruption_budget),
    p(RBAC, "clusterrolebindings", BINDING_COLUMNS, cells::role_binding),
    p(RBAC, "rolebindings", BINDING_COLUMNS, cells::role_binding),
    p("resource.k8s.io", "deviceclasses", &["Name", "Age"], cells::service_account),
    p("resource.k8s.io", "resourceclaims", &["Name", "State", "Age"], cells::resource_claim),
    p("resource.k8s.io", "resourceclaimtemplates", &["Name", "Age"], cells::service_account),
    p("resource.k8s.io", "resourceslices", &["Name", "Node", "Driver", "Pool", "Age"], cells::resource_slice),
    p("scheduling.k8s.io", "priorityclasses", &["Name", "Value:integer", "Global-Default:boolean", "Age", "PreemptionPolicy"], cells::priority_class),
    p("storage.k8s.io", "csidrivers", &["Name", "AttachRequired:boolean", "PodInfoOnMount:boolean", "StorageCapacity:boolean", "TokenRequests", "RequiresRepublish:boolean", "Modes", "Age"], cells::csi_driver),
    p("storage.k8s.io", "csinodes", &["Name", "Drivers:integer", "Age"], cells::csi_node),
    p("storage.k8s.io", "storageclasses", &["Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"], cells::storage_class),
    p("storage.k8s.io", "volumeattachments", &["Name", "Attacher", "PV", "Node", "Attached:boolean", "Age"], cells::volume_attachment),
    p("storage.k8s.io", "volumeattributesclasses", &["Name", "DriverName", "Age"], cells::attributes_class),
];

/// The printer of a built-in kind; kinds without one print their name and creation time.
pub fn printer_of(group: &str, plural: &str) -> &'static Printer {
    PRINTERS.iter().find(|p| p.group == group && p.plural == plural).unwrap_or(&DEFAULT)
}

impl Printer {
    /// Whether this is the printer of kinds that have none.
    pub fn is_plain(&self) -> bool {
        self.plural.is_empty()
    }

    pub fn definitions(&self) -> Value {
        self.columns.iter().map(|c| parse_column(self.plural, c)).collect()
    }

    /// A pod that has run its course says so beside its cells.
    pub fn completed(&self, object: &Value) -> Option<Value> {
        if self.plural != "pods" {
            return None;
        }
        let (reason, message) = match object.pointer("/status/phase").and_then(Value::as_str) {
            Some("Succeeded") => ("Succeeded", "The pod has completed successfully."),
            Some("Failed") => ("Failed", "The pod failed."),
            _ => return None,
        };
        Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
    }
}

/// What a column shows, in the words of the printer where scripts read them, else its name.
fn describe_column<'a>(plural: &str, name: &'a str) -> &'a str {
    match (plural, name) {
        ("mutatingwebhookconfigurations" | "validatingwebhookconfigurations", "Webhooks") => {
            "Webhooks indicates the number of webhooks registered in this configuration"
        }
        ("rolebindings", "Role") => {
            "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the \
             RoleRef cannot be resolved, the Authorizer must return an error."
        }
        ("clusterrolebindings", "Role") => {
            "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the \
             Authorizer must return an error."
        }
        ("rolebindings", "Users") => "Users in the roleBinding",
        ("rolebindings", "Groups") => "Groups in the roleBinding",
        ("rolebindings", "ServiceAccounts") => "ServiceAccounts in the roleBinding",
        ("clusterrolebindings", "Users") => "Users in the clusterRoleBinding",
        ("clusterrolebindings", "Groups") => "Groups in the clusterRoleBinding",
        ("clusterrolebindings", "ServiceAccounts") => "ServiceAccounts in the clusterRoleBinding",
        _ => name,
    }
}

fn parse_column(plural: &str, text: &str) -> Value {
    let (text, priority) = text.strip_suffix('*').map_or((text, 0), |t| (t, 1));
    let (name, kind) = text.split_once(':').unwrap_or((text, "string"));
    let (format, description) = match name {
        "Name" => ("name", NAME_TEXT),
        "Attacher" => ("name", describe_column(plural, name)),
        "Age" | "Created At" => ("", CREATION_TEXT),
        _ => ("", describe_column(plural, name)),
    };
    column_definition(name, kind, format, description, priority)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    #[test]
    fn every_row_is_as_wide_as_its_header() {
        let now: Timestamp = "2024-01-01T00:00:00Z".parse().unwrap();
        for printer in PRINTERS.iter().chain([&DEFAULT]) {
            for object in [json!({}), json!({"metadata": {"name": "a"}, "spec": {"template": {}}, "status": {}})] {
                let cells = (printer.cells)(&object, now);
                // The real server has an age in an address's row, and no column for it.
                let wide = printer.columns.len() + usize::from(printer.plural == "ipaddresses");
                assert_eq!(cells.len(), wide, "{}/{}", printer.group, printer.plural);
            }
        }
    }
}
