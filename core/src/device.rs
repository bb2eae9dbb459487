//! Devices that pods claim: under which names they are counted.
//!
//! Rule: dynamic resource allocation of Kubernetes, and the keys of Volcano's quota for it
//! (`docs/user-guide/how_to_use_dra_quota.md`). A DeviceClass is a resource, `deviceclass/` and its name: a claim of
//! two devices of class `gpu.example.com` asks for two of `deviceclass/gpu.example.com`, and quotas, splits and nodes
//! need to know of nothing but amounts. Where a pod asks for a class by number, Kubernetes calls it
//! `deviceclass.resource.kubernetes.io/` and its name (KEP-5004); that is the same resource. A class may have another
//! name beside it (`spec.extendedResourceName`).
//!
//! A device is counted under the names of each class that selects it. What is claimed of one class is therefore taken
//! from the others once the device is known, and not before.

use std::borrow::Cow;

use crate::resources::{ResourceName, Resources};

/// What the resource of a DeviceClass begins with.
pub const DEVICE_CLASS_PREFIX: &str = "deviceclass/";
/// The same in what a pod asks for by number.
const EXTENDED_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// The longest name that a resource has behind its slash.
const MOST_NAME_BYTES: usize = 63;

/// The resource of a DeviceClass; `None` where its name is too long to be one, or is none.
#[must_use]
pub fn name_class_resource(class: &str) -> Option<ResourceName> {
    let ends = [class.bytes().next(), class.bytes().next_back()];
    let is_name = class.len() <= MOST_NAME_BYTES
        && ends.iter().all(|end| end.is_some_and(|end| end.is_ascii_alphanumeric()))
        && class.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    is_name.then(|| ResourceName::from(format!("{DEVICE_CLASS_PREFIX}{class}")))
}

/// The name under which a resource is counted: one of a DeviceClass has two.
#[must_use]
pub fn unify_resource_name(name: &str) -> Cow<'_, str> {
    match name.strip_prefix(EXTENDED_PREFIX) {
        Some(class) => Cow::Owned(format!("{DEVICE_CLASS_PREFIX}{class}")),
        None => Cow::Borrowed(name),
    }
}

/// What a node has whose kubelet reports so much, and whose drivers publish these devices.
#[must_use]
pub fn add_devices(reported: &Resources, devices: &Resources) -> Resources {
    let mut all = reported.clone();
    for (name, amount) in devices.iter().filter(|(name, _)| reported.get(name.as_str()).is_zero()) {
        all.set(name.clone(), amount);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Quantity;

    #[test]
    fn a_class_is_a_resource_that_pods_can_ask_for_and_queues_are_charged_by() {
        let name = name_class_resource("gpu.example.com").unwrap();
        assert_eq!(name.as_str(), "deviceclass/gpu.example.com");
        assert_eq!(unify_resource_name("deviceclass.resource.kubernetes.io/gpu.example.com"), name.as_str());
        assert_eq!(unify_resource_name("nvidia.com/gpu"), "nvidia.com/gpu");
        assert!(name.is_requestable() && name.counts_in_queues());
        for odd in ["", "a:b", "a/b", "-a", "a.", &"a".repeat(64)] {
            assert_eq!(name_class_resource(odd), None, "{odd}");
        }
    }

    #[test]
    fn what_a_kubelet_reports_itself_counts_as_it_reports_it() {
        let of = |amounts: &[(&'static str, i64)]| -> Resources {
            amounts.iter().map(|(name, amount)| (*name, Quantity::from_units(*amount))).collect()
        };
        let whole = add_devices(&of(&[("cpu", 4), ("x.io/gpu", 1)]), &of(&[("x.io/gpu", 8), ("x.io/nic", 2)]));
        assert_eq!(whole, of(&[("cpu", 4), ("x.io/gpu", 1), ("x.io/nic", 2)]));
    }
}
