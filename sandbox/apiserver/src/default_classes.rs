//! The class that a claim or an ingress gets which names none, and which claims may grow (admission plugins
//! DefaultStorageClass, DefaultIngressClass and PersistentVolumeClaimResize).

use std::cmp::Reverse;

use serde_json::Value;

use crate::error::Status;
use crate::kind_rules::{given, spec_of, text_of};
use crate::limits::Amount;
use crate::meta;
use crate::resource::Resource;
use crate::server::ApiServer;
use crate::store::Key;

const STORAGE_CLASSES: &str = "storageclasses.storage.k8s.io";
const INGRESS_CLASSES: &str = "ingressclasses.networking.k8s.io";
const OLD_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
pub const OLD_INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

/// Before webhooks are asked: a new object without a class is of the default one, if there is one.
pub fn put_default_class(server: &ApiServer, resource: &Resource, object: &mut Value) {
    let (member, own, classes, marks): (_, _, _, &[&str]) = match resource.storage.as_str() {
        "persistentvolumeclaims" => (
            "storageClassName",
            OLD_STORAGE_CLASS,
            STORAGE_CLASSES,
            &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"],
        ),
        "ingresses.networking.k8s.io" => {
            ("ingressClassName", OLD_INGRESS_CLASS, INGRESS_CLASSES, &["ingressclass.kubernetes.io/is-default-class"])
        }
        _ => return,
    };
    if given(spec_of(object), member).is_some() || annotation_of(object, own).is_some() {
        return;
    }
    let classes = server.store().list(classes, None);
    let marked = |class: &&Value| marks.iter().any(|mark| annotation_of(class, mark) == Some("true"));
    if let Some(name) = newest_name(classes.iter().map(|class| &class.value).filter(marked)) {
        object["spec"][member] = name.into();
    }
}

fn annotation_of<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// Of several default classes the newest one counts, and of those the first by name.
fn newest_name<'v>(classes: impl Iterator<Item = &'v Value>) -> Option<&'v str> {
    let ordered =
        classes.map(|class| (Reverse(meta::metadata_text(class, "creationTimestamp")), meta::object_name(class)));
    ordered.min().map(|(_, name)| name)
}

/// A claim grows if its class lets it.
pub fn check_growth(server: &ApiServer, resource: &Resource, claim: &Value, old: &Value) -> Result<(), Status> {
    let size = |claim: &Value| spec_of(claim).pointer("/resources/requests/storage").and_then(Amount::parse);
    if resource.storage != "persistentvolumeclaims" || size(claim) <= size(old) {
        return Ok(());
    }
    let class_of = |claim: &Value| {
        annotation_of(claim, OLD_STORAGE_CLASS)
            .unwrap_or_else(|| text_of(spec_of(claim), "storageClassName"))
            .to_owned()
    };
    let name = class_of(claim);
    let class = server.store().get(STORAGE_CLASSES, &Key::new("", name.as_str()));
    let grows = class.is_some_and(|class| class.value["allowVolumeExpansion"] == true);
    if grows && name == class_of(old) {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
               support resize";
    Err(Status::forbidden("", "persistentvolumeclaims", meta::object_name(claim), why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_class_is_the_default() {
        let class = |name: &str, time: &str| json!({"metadata": {"name": name, "creationTimestamp": time}});
        let classes = [class("b", "2024-01-01T00:00:00Z"), class("a", "2024-01-01T00:00:00Z")];
        assert_eq!(newest_name(classes.iter()), Some("a"));
        let newer = class("z", "2024-01-02T00:00:00Z");
        assert_eq!(newest_name(classes.iter().chain([&newer])), Some("z"));
        assert_eq!(newest_name(std::iter::empty()), None);
    }
}
