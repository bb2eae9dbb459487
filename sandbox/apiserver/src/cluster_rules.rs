//! Validation of kinds that few but a cluster's own parts write: addresses, attached volumes, API services and priority
//! levels (`pkg/apis/{networking,storage,flowcontrol}/validation`, `kube-aggregator/pkg/apis/apiregistration`).

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::error::go_struct;
use crate::kind_rules::{NETWORK, given, invalid_all, items_of, network, spec_of, text_of, unsupported};
use crate::meta::{self, qualified_name_problems, subdomain_problems};
use crate::resource::Resource;
use crate::schema::FieldError;

const IMMUTABLE: &str = "field is immutable";

pub fn cluster_errors(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match resource.plural.as_str() {
        "ipaddresses" => address_errors(object, old),
        "servicecidrs" => ranges_errors(object, old),
        "csinodes" => node_drivers(object),
        "csistoragecapacities" => {
            let class = text_of(object, "storageClassName");
            invalid_all("storageClassName", class, &subdomain_problems(class))
        }
        "volumeattachments" => attachment_errors(object, old),
        "volumeattributesclasses" => attributes_errors(object, old),
        "apiservices" => service_errors(object),
        "flowschemas" => flow_errors(object),
        "prioritylevelconfigurations" => {
            unsupported(spec_of(object), "type", "spec.type", &["Exempt", "Limited"]).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// `ValidateIPAddress`, `ValidateIPAddressUpdate`.
fn address_errors(address: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let name = meta::object_name(address);
    let mut errors = Vec::new();
    let why = match name.parse::<IpAddr>() {
        Err(_) => Some("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()),
        Ok(ip) if ip.to_string() != name => Some(format!("must be in canonical form (\"{ip}\")")),
        Ok(_) => None,
    };
    errors.extend(why.map(|why| FieldError::invalid_text("metadata.name", name, &why)));
    let at = "spec.parentRef";
    let Some(parent) = given(spec_of(address), "parentRef") else {
        errors.push(FieldError::required(at, ""));
        return errors;
    };
    for member in ["resource", "name"] {
        if text_of(parent, member).is_empty() {
            errors.push(FieldError::required(format!("{at}.{member}"), ""));
        }
    }
    if old.is_some_and(|old| spec_of(old).get("parentRef") != Some(parent)) {
        const MEMBERS: [(&str, &str, &str); 4] = [
            ("Group", "group", "\"\""),
            ("Resource", "resource", "\"\""),
            ("Namespace", "namespace", "\"\""),
            ("Name", "name", "\"\""),
        ];
        errors.push(FieldError::invalid_shown(at, &go_struct(parent, &MEMBERS), IMMUTABLE));
    }
    errors
}

/// `ValidateServiceCIDR`, `ValidateServiceCIDRUpdate`.
fn ranges_errors(ranges: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let list = items_of(spec_of(ranges), "cidrs");
    let mut errors = Vec::new();
    if list.is_empty() {
        return vec![FieldError::required("spec.cidrs", "at least one CIDR required")];
    }
    let families: Vec<bool> = list.iter().filter_map(|range| Some(network(range.as_str()?)?.0.is_ipv4())).collect();
    if list.len() > 2 || matches!(families[..], [one, other] if one == other) {
        let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.push(FieldError::invalid("spec.cidrs", &json!(list), why));
    }
    for (index, range) in list.iter().enumerate() {
        let text = range.as_str().unwrap_or_default();
        let at = format!("spec.cidrs[{index}]");
        match network(text) {
            None => errors.push(FieldError::invalid_text(at, text, NETWORK)),
            Some((ip, bits)) if is_beyond(ip, bits) => {
                errors.push(FieldError::invalid_text(at, text, "must not have bits set beyond the prefix length"));
            }
            Some(_)
                if old.is_some_and(|old| items_of(spec_of(old), "cidrs").get(index).is_some_and(|o| o != range)) =>
            {
                errors.push(FieldError::invalid_text(at, text, IMMUTABLE));
            }
            Some(_) => {}
        }
    }
    errors
}

/// Whether an address has bits behind its prefix.
fn is_beyond(ip: IpAddr, bits: u8) -> bool {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).checked_shl(u32::from(bits)).unwrap_or(0) != 0,
        IpAddr::V6(ip) => u128::from(ip).checked_shl(u32::from(bits)).unwrap_or(0) != 0,
    }
}

/// `validateCSINodeDrivers`.
fn node_drivers(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for (index, driver) in items_of(spec_of(node), "drivers").iter().enumerate() {
        let at = format!("spec.drivers[{index}]");
        let name = text_of(driver, "name");
        for member in ["name", "nodeID"] {
            if text_of(driver, member).is_empty() {
                errors.push(FieldError::required(format!("{at}.{member}"), ""));
            }
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{at}.name"), &name.into()));
        }
    }
    errors
}

/// `ValidateVolumeAttachment`: what is attached where stays.
fn attachment_errors(attachment: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = spec_of(attachment);
    let mut errors = Vec::new();
    let attacher = text_of(spec, "attacher");
    if attacher.is_empty() {
        errors.push(FieldError::required("spec.attacher", ""));
    } else {
        let name = attacher.to_lowercase();
        errors.extend(invalid_all("spec.attacher", &name, &qualified_name_problems(&name)));
    }
    let source = given(spec, "source").unwrap_or(&Value::Null);
    let (inline, volume) = (given(source, "inlineVolumeSpec"), given(source, "persistentVolumeName"));
    if inline.is_some() == volume.is_some() {
        let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        errors.push(FieldError::required("spec.source", why));
    } else if volume.is_some_and(|name| name == "") {
        errors.push(FieldError::required(
            "spec.source.persistentVolumeName",
            "must specify non empty persistentVolumeName",
        ));
    }
    let node = text_of(spec, "nodeName");
    errors.extend(invalid_all("spec.nodeName", node, &subdomain_problems(node)));
    if old.is_some_and(|old| spec_of(old) != spec) {
        errors.push(FieldError::invalid("spec", spec, IMMUTABLE));
    }
    errors
}

/// `ValidateVolumeAttributesClass`.
fn attributes_errors(class: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let driver = text_of(class, "driverName");
    if driver.is_empty() {
        errors.push(FieldError::required("driverName", ""));
    } else {
        let name = driver.to_lowercase();
        errors.extend(invalid_all("driverName", &name, &qualified_name_problems(&name)));
    }
    if class.get("parameters").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty) {
        errors.push(FieldError::required("parameters", "must contain at least one key/value pair"));
    }
    for member in ["driverName", "parameters"] {
        let value = class.get(member).unwrap_or(&Value::Null);
        if old.is_some_and(|old| old.get(member).unwrap_or(&Value::Null) != value) {
            errors.push(FieldError::forbidden(member, &format!("updates to {member} are forbidden.")));
        }
    }
    errors
}

/// `ValidateAPIService`.
fn service_errors(service: &Value) -> Vec<FieldError> {
    let spec = spec_of(service);
    let mut errors = Vec::new();
    let (name, wanted) =
        (meta::object_name(service), format!("{}.{}", text_of(spec, "version"), text_of(spec, "group")));
    if name != wanted && !text_of(spec, "version").is_empty() {
        let wanted = crate::error::go_quote(&wanted);
        let why = format!("must be `spec.version+\".\"+spec.group`: {wanted}");
        errors.push(FieldError::invalid_text("metadata.name", name, &why));
    }
    for (member, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        let priority = spec.get(member).and_then(Value::as_i64).unwrap_or(0);
        if priority <= 0 || priority > most {
            let why = format!("must be positive and less than {most}");
            errors.push(FieldError::invalid(format!("spec.{member}"), &priority.into(), &why));
        }
    }
    errors
}

/// `ValidateFlowSchema`.
fn flow_errors(flow: &Value) -> Vec<FieldError> {
    let spec = spec_of(flow);
    let mut errors = Vec::new();
    let precedence = spec.get("matchingPrecedence").and_then(Value::as_i64).unwrap_or(0);
    if precedence <= 0 {
        let why = "must be a positive value";
        errors.push(FieldError::invalid("spec.matchingPrecedence", &precedence.into(), why));
    }
    if given(spec, "priorityLevelConfiguration").is_none_or(|level| text_of(level, "name").is_empty()) {
        errors.push(FieldError::required("spec.priorityLevelConfiguration.name", "must reference a priority level"));
    }
    for (index, rule) in items_of(spec, "rules").iter().enumerate() {
        let at = format!("spec.rules[{index}]");
        if items_of(rule, "subjects").is_empty() {
            errors.push(FieldError::required(format!("{at}.subjects"), "subjects must contain at least one value"));
        }
        if items_of(rule, "resourceRules").is_empty() && items_of(rule, "nonResourceRules").is_empty() {
            let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
            errors.push(FieldError::required(at, why));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(plural: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
        let registry = crate::builtin::builtin_registry();
        let resource = registry.iter().find(|r| r.plural == plural).unwrap();
        cluster_errors(resource, object, old).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn an_address_is_named_after_itself_and_has_an_owner() {
        let parent = json!({"resource": "services", "name": "s", "namespace": "n"});
        let address = |name: &str| json!({"metadata": {"name": name}, "spec": {"parentRef": parent}});
        assert!(fields("ipaddresses", &address("10.0.0.1"), None).is_empty());
        assert_eq!(fields("ipaddresses", &address("10.0.0.300"), None), ["metadata.name"]);
        assert_eq!(fields("ipaddresses", &address("2001:DB8::1"), None), ["metadata.name"]);
        let moved = json!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": {"resource": "x", "name": "y"}}});
        assert_eq!(fields("ipaddresses", &moved, Some(&address("10.0.0.1"))), ["spec.parentRef"]);
        assert_eq!(fields("ipaddresses", &json!({"metadata": {"name": "10.0.0.1"}}), None), ["spec.parentRef"]);
    }

    #[test]
    fn ranges_are_one_of_each_family_and_stay() {
        let ranges = |list: &[&str]| json!({"spec": {"cidrs": list}});
        assert!(fields("servicecidrs", &ranges(&["10.0.0.0/24", "2001:db8::/64"]), None).is_empty());
        assert_eq!(fields("servicecidrs", &ranges(&["10.0.0.0/24", "10.1.0.0/24"]), None), ["spec.cidrs"]);
        assert_eq!(fields("servicecidrs", &ranges(&["10.0.0.1/24"]), None), ["spec.cidrs[0]"]);
        assert_eq!(fields("servicecidrs", &ranges(&["10.0.0.0/0"]), None), ["spec.cidrs[0]"]);
        assert_eq!(fields("servicecidrs", &ranges(&[]), None), ["spec.cidrs"]);
        let (new, old) = (ranges(&["10.1.0.0/24"]), ranges(&["10.0.0.0/24"]));
        assert_eq!(fields("servicecidrs", &new, Some(&old)), ["spec.cidrs[0]"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let empty = json!({"metadata": {"name": "a"}, "spec": {}});
        assert_eq!(fields("volumeattachments", &empty, None), ["spec.attacher", "spec.source", "spec.nodeName"]);
        assert_eq!(fields("volumeattributesclasses", &empty, None), ["driverName", "parameters"]);
        assert_eq!(fields("apiservices", &empty, None), ["spec.groupPriorityMinimum", "spec.versionPriority"]);
        assert_eq!(
            fields("flowschemas", &empty, None),
            ["spec.matchingPrecedence", "spec.priorityLevelConfiguration.name"]
        );
        let nodes = json!({"spec": {"drivers": [{"name": "a", "nodeID": ""}, {"name": "a", "nodeID": "x"}]}});
        assert_eq!(fields("csinodes", &nodes, None), ["spec.drivers[0].nodeID", "spec.drivers[1].name"]);
    }
}
