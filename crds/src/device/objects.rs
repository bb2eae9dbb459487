//! ResourceSlices, DeviceClasses and ResourceClaims, as far as they tell of amounts.
//!
//! Source: Kubernetes `staging/src/k8s.io/api/resource/v1/types.go`.

use std::collections::BTreeMap;

use caldera_core::{
    device::{name_class_resource, unify_resource_name},
    quantity::Quantity,
    resources::{ResourceName, Resources},
};
use kube_cel::cel::Value as CelValue;
use serde_json::Value;

use super::selector::{CelFunctions, DeviceSelector, DeviceView};
use crate::{
    inventory::{name_of, namespace_of},
    object::{read_list_at, read_text_at},
};

/// A device of a pool of a driver.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId {
    /// The driver.
    pub driver: String,
    /// Its pool.
    pub pool: String,
    /// Its name there.
    pub name: String,
}

/// Some devices of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSlice {
    /// Name.
    pub name: String,
    /// The driver that publishes it.
    pub driver: String,
    /// The pool.
    pub pool: String,
    /// Slices of an older generation than the newest count no more.
    pub generation: i64,
    /// Slices that the pool has; while there are others nothing of it is allocated.
    pub slices: u64,
    /// Its devices.
    pub devices: Vec<Device>,
    /// What partitions of this pool share, by set and counter.
    pub counters: BTreeMap<String, Resources>,
}

/// A device that a driver publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Name.
    pub name: String,
    /// The node that has it; `None` where pods of several nodes reach it.
    pub node: Option<String>,
    /// A taint keeps it from pods that do not tolerate it.
    pub tainted: bool,
    /// What it takes of what its pool shares, by set and counter.
    pub consumes: Vec<(String, Resources)>,
    /// What selectors look at.
    pub(super) view: DeviceView,
}

impl ResourceSlice {
    /// Reads one; `None` without a name.
    #[must_use]
    pub fn read(object: &Value) -> Option<Self> {
        let driver = read_text_at(object, "/spec/driver");
        let node = Some(read_text_at(object, "/spec/nodeName")).filter(|node| !node.is_empty());
        let device = |device: &Value| Device::read(device, driver, node);
        let set = |set: &Value| Some((set["name"].as_str()?.to_owned(), read_counters(set)));
        Some(Self {
            name: name_of(object)?,
            driver: driver.to_owned(),
            pool: read_text_at(object, "/spec/pool/name").to_owned(),
            generation: object.pointer("/spec/pool/generation").and_then(Value::as_i64).unwrap_or(0),
            slices: object.pointer("/spec/pool/resourceSliceCount").and_then(Value::as_u64).unwrap_or(1),
            devices: read_list_at(object, "/spec/devices").iter().filter_map(device).collect(),
            counters: read_list_at(object, "/spec/sharedCounters").iter().filter_map(set).collect(),
        })
    }

    /// Devices of a node.
    #[must_use]
    pub fn list_devices_of(&self, node: &str) -> Vec<DeviceId> {
        let of_node = self.devices.iter().filter(|device| device.node.as_deref() == Some(node));
        of_node.map(|device| self.id_of(device)).collect()
    }

    /// Which device of all that is.
    pub(super) fn id_of(&self, device: &Device) -> DeviceId {
        DeviceId { driver: self.driver.clone(), pool: self.pool.clone(), name: device.name.clone() }
    }
}

impl Device {
    fn read(device: &Value, driver: &str, node: Option<&str>) -> Option<Self> {
        let own = device["nodeName"].as_str().filter(|node| !node.is_empty());
        let keeps_away = |taint: &Value| matches!(taint["effect"].as_str(), Some("NoSchedule" | "NoExecute"));
        let consumed = |of: &Value| Some((of["counterSet"].as_str()?.to_owned(), read_counters(of)));
        Some(Self {
            name: device["name"].as_str()?.to_owned(),
            node: node.or(own).map(ToOwned::to_owned),
            tainted: read_list_at(device, "/taints").iter().any(keeps_away),
            consumes: read_list_at(device, "/consumesCounters").iter().filter_map(consumed).collect(),
            view: DeviceView::read(device, driver),
        })
    }
}

fn read_counters(of: &Value) -> Resources {
    let counters = of["counters"].as_object().into_iter().flatten();
    let amount = |(name, counter): (&String, &Value)| {
        let amount: Quantity = counter["value"].as_str()?.parse().ok()?;
        (!amount.is_negative()).then(|| (ResourceName::from(name.as_str()), amount))
    };
    counters.filter_map(amount).collect()
}

/// What a class selects, and what it is called as a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceClass {
    /// Name.
    pub name: String,
    /// Its resource; `None` where its name can not be one.
    pub resource: Option<ResourceName>,
    /// The name beside that by which pods may ask for its devices.
    pub extended: Option<ResourceName>,
    /// All must select a device. Where one can not be read the class selects none.
    pub(super) selectors: Vec<Option<DeviceSelector>>,
}

impl DeviceClass {
    /// Reads one; `None` without a name.
    #[must_use]
    pub fn read(object: &Value) -> Option<Self> {
        let name = name_of(object)?;
        let extended = read_text_at(object, "/spec/extendedResourceName");
        let selector = |selector: &Value| DeviceSelector::compile(read_text_at(selector, "/cel/expression"));
        Some(Self {
            resource: name_class_resource(&name),
            extended: extended.contains('/').then(|| ResourceName::from(extended)).filter(ResourceName::is_requestable),
            selectors: read_list_at(object, "/spec/selectors").iter().map(selector).collect(),
            name,
        })
    }

    /// The names under which its devices are counted.
    pub(super) fn list_names(&self) -> impl Iterator<Item = &ResourceName> {
        self.resource.iter().chain(&self.extended)
    }

    /// Domains of attributes that its expressions may name.
    pub(super) fn list_domains(&self) -> impl Iterator<Item = &str> {
        self.selectors.iter().flatten().flat_map(DeviceSelector::list_domains)
    }

    /// Whether all of its expressions select a device.
    pub(super) fn selects(&self, functions: &CelFunctions, device: &CelValue) -> bool {
        let selects = |selector: &Option<DeviceSelector>| {
            selector.as_ref().is_some_and(|selector| selector.selects(functions, device))
        };
        self.selectors.iter().all(selects)
    }
}

/// What a pod has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceClaim {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The pod that has it, the first of several.
    pub pod: Option<String>,
    /// Devices that it was given for itself.
    pub(super) devices: Vec<GivenDevice>,
}

/// A device that a claim was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GivenDevice {
    pub(super) id: DeviceId,
    /// The request of the claim.
    pub(super) request: String,
    /// The class by which it was asked for.
    pub(super) class: String,
}

/// Of a pod that asks for extended resources: the claim that a scheduler made for them, and by which name each of its
/// requests is in the pod's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtendedClaim {
    /// The claim, of the pod's namespace.
    pub claim: String,
    /// Names of resources by request.
    pub requests: BTreeMap<String, ResourceName>,
}

impl ExtendedClaim {
    /// Reads it off a pod, whose status says so; `None` where it has none.
    #[must_use]
    pub fn read(pod: &Value) -> Option<Self> {
        let status = pod.pointer("/status/extendedResourceClaimStatus")?;
        let mapping = |mapping: &Value| {
            let (request, resource) = (mapping["requestName"].as_str()?, mapping["resourceName"].as_str()?);
            Some((request.to_owned(), ResourceName::from(unify_resource_name(resource).as_ref())))
        };
        Some(Self {
            claim: status["resourceClaimName"].as_str()?.to_owned(),
            requests: read_list_at(status, "/requestMappings").iter().filter_map(mapping).collect(),
        })
    }
}

impl ResourceClaim {
    /// Reads one; `None` without a name.
    #[must_use]
    pub fn read(object: &Value) -> Option<Self> {
        let owner = read_list_at(object, "/metadata/ownerReferences").iter().find(|owner| owner["kind"] == "Pod");
        let user = read_list_at(object, "/status/reservedFor").iter().find(|user| user["resource"] == "pods");
        let pod = owner.or(user).and_then(|of| of["name"].as_str()).map(ToOwned::to_owned);
        let requests = read_list_at(object, "/spec/devices/requests");
        let results = read_list_at(object, "/status/allocation/devices/results").iter();
        Some(Self {
            namespace: namespace_of(object),
            name: name_of(object)?,
            pod,
            devices: results.filter_map(|result| read_result(result, requests)).collect(),
        })
    }
}

impl ResourceClaim {
    /// Devices that it was given for itself.
    pub fn list_devices(&self) -> impl Iterator<Item = &DeviceId> {
        self.devices.iter().map(|given| &given.id)
    }
}

/// A device that was given, unless others have it too: `adminAccess` takes it from nobody.
fn read_result(result: &Value, requests: &[Value]) -> Option<GivenDevice> {
    if result["adminAccess"] == true {
        return None;
    }
    let text = |field: &str| result[field].as_str().map(ToOwned::to_owned);
    let id = DeviceId { driver: text("driver")?, pool: text("pool")?, name: text("device")? };
    let (name, alternative) = result["request"].as_str()?.split_once('/').map_or_else(
        || (result["request"].as_str().unwrap_or_default(), None),
        |(name, alternative)| (name, Some(alternative)),
    );
    let request = requests.iter().find(|request| request["name"] == name);
    let asked = match alternative {
        Some(alternative) => {
            let all = request.map(|request| read_list_at(request, "/firstAvailable")).unwrap_or_default();
            all.iter().find(|one| one["name"] == alternative)
        }
        None => request.and_then(|request| request.get("exactly")),
    };
    let class = asked.map(|asked| read_text_at(asked, "/deviceClassName").to_owned()).unwrap_or_default();
    Some(GivenDevice { id, request: name.to_owned(), class })
}
