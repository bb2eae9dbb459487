//! Devices that pods claim by ResourceClaimTemplates (dynamic resource allocation).
//!
//! Rule: what a claim asks for is charged as so many of the resources of its DeviceClasses ([`caldera_core::device`]).
//! A workload carries what its claims ask for: the webhook writes the `spec.spec` of each ResourceClaimTemplate that
//! its pods name into annotation [`DEVICE_CLAIMS`] of their template, when the workload is made or names another one.
//! That is what is charged, placed and sent to members, whatever becomes of the ResourceClaimTemplate later. So nobody
//! is charged for one device and given eight, and nothing that decides needs to know of any other object.
//!
//! A copy takes them along: a Work has a ResourceClaimTemplate of its own for each, which its pods name.
//!
//! Refused is what nobody could charge before it is allocated: all devices that a node happens to have, devices of one
//! class or else of another, those of others by `adminAccess`, and a ResourceClaim by name, which is one object in one
//! cluster. What selectors and constraints ask for beyond the class is looked at by the member alone.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{device::name_class_resource, quantity::Quantity, resources::Resources};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{GangError, WorkloadKind, field::Field, list_pod_templates, pod_specs::edit_pod_templates};
use crate::{
    names::caldera::DEVICE_CLAIMS,
    object::{name_of, read_list_at, read_text_at},
};

const TEMPLATE_NAME: &str = "resourceClaimTemplateName";
/// The most devices that one claim is given (`AllocationResultsMaxSize`).
const MOST_DEVICES: u64 = 32;
/// What the claims of one pod template may say: a limit of ours, for each pod has it.
pub const MOST_CLAIM_BYTES: usize = 32 * 1024;
/// Labels and an annotation by which Karmada knows what it may change and delete.
const MARKS_OF_SENT: [&str; 3] =
    ["karmada.io/managed", "work.karmada.io/permanent-id", "work.karmada.io/conflict-resolution"];
/// The longest part of a workload's name that is in the names of its templates.
const MOST_NAME_BYTES: usize = 200;

/// What the claims of a pod ask for.
pub(super) fn read_claimed(pod: &Field<'_>) -> Result<Resources, GangError> {
    let mut sum = Resources::new();
    let Some(spec) = pod.at(&["spec"]) else { return Ok(sum) };
    let claims = spec.list("resourceClaims")?;
    if claims.is_empty() {
        return Ok(sum);
    }
    let written = read_annotation(pod.value).map_err(|why| spec.absent_field(&["resourceClaims"]).wrong(why))?;
    for claim in &claims {
        if !claim.text_at("resourceClaimName")?.is_empty() {
            let why = "a ResourceClaim is one object in one cluster: name a ResourceClaimTemplate \
                       (resourceClaimTemplateName)";
            return Err(claim.wrong(why));
        }
        let name = claim.text_at(TEMPLATE_NAME)?;
        if name.is_empty() {
            return Err(claim.wrong("it names no ResourceClaimTemplate (resourceClaimTemplateName)"));
        }
        let Some(asked) = written.get(name) else {
            let why = format!(
                "what ResourceClaimTemplate {name:?} asks for is not written down in annotation {DEVICE_CLAIMS} of the \
                 pod template; Caldera's webhook writes it when the object is created"
            );
            return Err(claim.wrong(why));
        };
        let asked = read_demand(asked);
        sum.add(&asked.map_err(|why| claim.wrong(format!("ResourceClaimTemplate {name:?}, {why}")))?);
    }
    Ok(sum)
}

/// What the claims of a pod template ask for, as they were written down: by the name of the template.
fn read_annotation(template: &Value) -> Result<BTreeMap<String, Value>, String> {
    let annotations = template.pointer("/metadata/annotations");
    let Some(text) = annotations.and_then(|all| all.get(DEVICE_CLAIMS)).and_then(Value::as_str) else {
        return Ok(BTreeMap::new());
    };
    if text.len() > MOST_CLAIM_BYTES {
        return Err(format!("what its claims ask for is longer than {MOST_CLAIM_BYTES} bytes"));
    }
    serde_json::from_str(text).map_err(|error| format!("annotation {DEVICE_CLAIMS}: {error}"))
}

/// What a ResourceClaim of this spec asks for.
fn read_demand(spec: &Value) -> Result<Resources, String> {
    let mut sum = Resources::new();
    for request in read_list_at(spec, "/devices/requests") {
        let name = read_text_at(request, "/name");
        let Some(exactly) = request.get("exactly").filter(|exactly| exactly.is_object()) else {
            return Err(format!("request {name}: it must name one class (exactly), for a queue is charged one"));
        };
        if exactly["adminAccess"] == true {
            return Err(format!("request {name}: adminAccess uses devices that others are charged"));
        }
        if !matches!(read_text_at(exactly, "/allocationMode"), "" | "ExactCount") {
            return Err(format!("request {name}: allocationMode must be ExactCount, for a queue is charged a number"));
        }
        let count = match &exactly["count"] {
            Value::Null => 1,
            count => count
                .as_u64()
                .filter(|count| (1..=MOST_DEVICES).contains(count))
                .ok_or_else(|| format!("request {name}: count {count} is not a number from 1 to {MOST_DEVICES}"))?,
        };
        let class = read_text_at(exactly, "/deviceClassName");
        let Some(resource) = name_class_resource(class) else {
            return Err(format!("request {name}: {class:?} is no name of a DeviceClass that queues can be charged by"));
        };
        let count = Quantity::from_units(i64::try_from(count).unwrap_or(i64::MAX));
        sum.set(resource.clone(), sum.get(resource.as_str()).saturating_add(count));
    }
    Ok(sum)
}

/// The ResourceClaimTemplates that a workload's pods name.
#[must_use]
pub fn list_claim_templates(object: &Value) -> BTreeSet<String> {
    let templates = list_pod_templates(&Field::unnamed(object));
    let claims = templates.iter().flat_map(|template| read_list_at(template.value, "/spec/resourceClaims"));
    claims.filter_map(|claim| claim[TEMPLATE_NAME].as_str()).map(ToOwned::to_owned).collect()
}

/// What is written down of them.
#[must_use]
pub fn read_written_claims(object: &Value) -> BTreeMap<String, Value> {
    let templates = list_pod_templates(&Field::unnamed(object));
    templates.iter().filter_map(|template| read_annotation(template.value).ok()).flatten().collect()
}

/// How many bytes it takes to write these down in each template that names them.
#[must_use]
pub fn count_claim_bytes(object: &Value, known: &BTreeMap<String, Value>) -> usize {
    let lengths: BTreeMap<&str, usize> =
        known.iter().map(|(name, asked)| (name.as_str(), name.len() + asked.to_string().len())).collect();
    let templates = list_pod_templates(&Field::unnamed(object));
    let claims = templates.iter().flat_map(|template| read_list_at(template.value, "/spec/resourceClaims"));
    let length = |claim: &Value| lengths.get(claim[TEMPLATE_NAME].as_str()?).copied();
    claims.filter_map(length).fold(0, usize::saturating_add)
}

/// Writes down what the claims of a workload's pods ask for, of those that are known; what else is written there goes.
/// `None` where the workload is not shaped like its kind.
pub fn write_claims(object: &mut Value, known: &BTreeMap<String, Value>) -> Option<()> {
    edit_pod_templates(object, &mut |template| {
        let claims = read_list_at(template, "/spec/resourceClaims");
        let names = claims.iter().filter_map(|claim| claim[TEMPLATE_NAME].as_str());
        let asked: BTreeMap<&str, &Value> = names.filter_map(|name| Some((name, known.get(name)?))).collect();
        let text = (!asked.is_empty()).then(|| json!(asked).to_string());
        set_annotation(template, text)
    })
}

fn set_annotation(template: &mut Value, text: Option<String>) -> Option<()> {
    let has = |template: &Value| template.pointer("/metadata/annotations")?.get(DEVICE_CLAIMS).map(|_| ());
    let Some(text) = text else {
        if has(template).is_some() {
            template.pointer_mut("/metadata/annotations")?.as_object_mut()?.remove(DEVICE_CLAIMS);
        }
        return Some(());
    };
    let mut at = template;
    for field in ["metadata", "annotations"] {
        let fields = at.as_object_mut()?;
        let entry = fields.entry(field).or_insert(Value::Null);
        if entry.is_null() {
            *entry = Value::Object(Map::new());
        }
        at = entry;
    }
    at.as_object_mut()?.insert(DEVICE_CLAIMS.to_owned(), text.into());
    Some(())
}

/// A job as it is made before anybody knows what its claims ask for: without them.
#[must_use]
pub fn remove_claims(mut job: Value) -> Value {
    let take = |template: &mut Value| {
        template.get_mut("spec").and_then(Value::as_object_mut).map(|spec| spec.remove("resourceClaims"));
        Some(())
    };
    // What is not shaped like a job is refused as that.
    edit_pod_templates(&mut job, &mut { take });
    job
}

/// Has the pods of a copy name ResourceClaimTemplates of its own: these, which ask for what was written down. None
/// where it claims nothing. What each template of its pods says counts for that template alone, as it does where it is
/// charged.
///
/// # Errors
/// If what one asks for is not written down, or the copy is not shaped like its kind.
pub fn send_claims(copy: &mut Value) -> Result<Vec<Value>, String> {
    if list_claim_templates(copy).is_empty() {
        return Ok(Vec::new());
    }
    // A copy of all of a large job would take as much memory again.
    let identity = json!({"apiVersion": copy["apiVersion"], "kind": copy["kind"], "metadata": {"name": name_of(copy)}});
    let mut sent = BTreeMap::new();
    let mut unknown = None;
    let send = |template: &mut Value| {
        let written = read_annotation(template).ok()?;
        let mut names = BTreeMap::new();
        let claims = template.pointer_mut("/spec/resourceClaims").and_then(Value::as_array_mut);
        for claim in claims.into_iter().flatten() {
            let Some(name) = claim[TEMPLATE_NAME].as_str() else { continue };
            let Some(asked) = written.get(name) else {
                unknown = Some(name.to_owned());
                return None;
            };
            let new = name_sent_template(&identity, asked);
            claim[TEMPLATE_NAME] = new.as_str().into();
            sent.insert(new.clone(), asked.clone());
            names.insert(new, asked.clone());
        }
        set_annotation(template, (!names.is_empty()).then(|| json!(names).to_string()))
    };
    if edit_pod_templates(copy, &mut { send }).is_none() {
        return Err(match unknown {
            Some(name) => format!("what ResourceClaimTemplate {name:?} asks for is not written down in it"),
            None => "it is not shaped like its kind".to_owned(),
        });
    }
    Ok(sent.into_iter().map(|(name, asked)| make_template(copy, &name, &asked)).collect())
}

/// What is between a workload's name and the letters in the names of its templates.
const SENT_MARK: &str = "-devices-";
/// Letters of a name that tell templates apart, four bits each: nobody finds two specs of one name.
const SENT_LETTERS: usize = 32;

/// The same again gives the same name, whatever the template was called.
fn name_sent_template(copy: &Value, asked: &Value) -> String {
    let (version, kind, name) = (read_text_at(copy, "/apiVersion"), read_text_at(copy, "/kind"), name_of(copy));
    let start: String = name.chars().take(MOST_NAME_BYTES).collect();
    let hash = Sha256::digest(format!("{version}/{kind}/{name}/{asked}"));
    let letters: String = hash.iter().take(SENT_LETTERS / 2).map(|byte| format!("{byte:02x}")).collect();
    format!("{}{SENT_MARK}{letters}", start.trim_end_matches(['.', '-']))
}

/// Whether a ResourceClaimTemplate has a name as those have that go with copies: nobody else may send one.
#[must_use]
pub fn has_name_of_sent(template: &Value) -> bool {
    let letters = name_of(template).rsplit_once(SENT_MARK).map_or("", |(_, letters)| letters);
    letters.len() == SENT_LETTERS && letters.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// With the labels by which Karmada knows what it may change and delete. It does not know whose Work that is, for it
/// keeps the status of one manifest of a Work, and that is the workload's.
fn make_template(copy: &Value, name: &str, asked: &Value) -> Value {
    let of_karmada = |field: &str| -> Map<String, Value> {
        let all = copy.pointer(&format!("/metadata/{field}")).and_then(Value::as_object).into_iter().flatten();
        all.filter(|(key, _)| MARKS_OF_SENT.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": name, "namespace": read_text_at(copy, "/metadata/namespace"),
            "labels": of_karmada("labels"), "annotations": of_karmada("annotations"),
        },
        "spec": {"spec": asked},
    })
}

/// Whether a manifest is a ResourceClaimTemplate.
#[must_use]
pub fn is_claim_template(manifest: &Value) -> bool {
    read_text_at(manifest, "/apiVersion").starts_with("resource.k8s.io/")
        && read_text_at(manifest, "/kind") == "ResourceClaimTemplate"
}

/// Refuses claims of kinds whose pods are not made of templates alone: nobody could write down what they ask for.
pub(super) fn check_kind(root: &Field<'_>, kind: WorkloadKind) -> Result<(), GangError> {
    let is_made = matches!(kind, WorkloadKind::SparkApplication | WorkloadKind::TrainJob);
    let claims = |template: &Field<'_>| !read_list_at(template.value, "/spec/resourceClaims").is_empty();
    match list_pod_templates(root).iter().find(|template| is_made && claims(template)) {
        Some(template) => {
            let place = template.absent_field(&["spec", "resourceClaims"]);
            Err(place.wrong(format!("pods of a {} can not claim devices", kind.kind())))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{read_gang, read_gang_of_copy};

    fn asks(class: &str, count: u32) -> Value {
        json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": class, "count": count}}]}})
    }

    fn job(claims: Value) -> Value {
        let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]);
        let task = |name: &str, claims: Value| json!({"name": name, "replicas": 2, "template": {"spec": {"containers": containers, "resourceClaims": claims}}});
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns"},
            "spec": {"minAvailable": 2, "tasks": [task("a", claims), task("b", json!(null))]},
        })
    }

    fn by(template: &str) -> Value {
        json!([{"name": "gpu", "resourceClaimTemplateName": template}])
    }

    fn written(claims: Value, known: &[(&str, Value)]) -> Value {
        let mut job = job(claims);
        write_claims(&mut job, &known.iter().map(|(name, spec)| ((*name).to_owned(), spec.clone())).collect()).unwrap();
        job
    }

    fn request(job: &Value) -> Result<String, String> {
        let gang = read_gang(job).map_err(|error| error.to_string())?;
        Ok(gang.tasks.iter().map(|task| task.request.to_string()).collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn what_a_claim_asks_for_is_asked_for_by_each_of_its_pods() {
        let job = written(by("two"), &[("two", asks("gpu.io", 2)), ("other", asks("x", 9))]);
        let want = "cpu 1, deviceclass/gpu.io 2, pods 1; cpu 1, pods 1";
        assert_eq!(request(&job).unwrap(), want);
        assert_eq!(list_claim_templates(&job), ["two".to_owned()].into());
        assert_eq!(read_written_claims(&job), [("two".to_owned(), asks("gpu.io", 2))].into());
        // Two claims, and a request that says no number.
        let mut one = asks("gpu.io", 1);
        one["devices"]["requests"][0]["exactly"].as_object_mut().unwrap().remove("count");
        let claims = json!([{"name": "a", TEMPLATE_NAME: "two"}, {"name": "b", TEMPLATE_NAME: "one"}]);
        let job = written(claims, &[("two", asks("gpu.io", 2)), ("one", one)]);
        assert!(request(&job).unwrap().contains("gpu.io 3"));
    }

    #[test]
    fn what_nobody_could_charge_is_refused_in_words() {
        let exactly = |change: &dyn Fn(&mut Value)| {
            let mut spec = asks("gpu.io", 1);
            change(&mut spec["devices"]["requests"][0]["exactly"]);
            spec
        };
        let first = json!({"devices": {"requests": [{"name": "r", "firstAvailable": [{"name": "a"}]}]}});
        for (spec, words) in [
            (first, "must name one class (exactly)"),
            (exactly(&|it| it["allocationMode"] = "All".into()), "must be ExactCount"),
            (exactly(&|it| it["adminAccess"] = true.into()), "devices that others are charged"),
            (exactly(&|it| it["count"] = 0.into()), "count 0 is not a number from 1 to 32"),
            (exactly(&|it| it["count"] = 33.into()), "count 33"),
            (exactly(&|it| it["count"] = json!("2")), "count \"2\""),
            (exactly(&|it| it["deviceClassName"] = "a/b".into()), "no name of a DeviceClass"),
        ] {
            let reported = request(&written(by("t"), &[("t", spec)])).unwrap_err();
            let field = "spec.tasks[0].template.spec.resourceClaims[0]: ResourceClaimTemplate \"t\", request r: ";
            assert!(reported.starts_with(field) && reported.contains(words), "{reported}");
        }
        let reported = request(&job(json!([{"name": "gpu", "resourceClaimName": "mine"}]))).unwrap_err();
        assert!(reported.contains("one object in one cluster"), "{reported}");
        let reported = request(&job(by("t"))).unwrap_err();
        assert!(reported.contains("is not written down in annotation caldera.dev/device-claims"), "{reported}");
        let reported = request(&job(json!([{"name": "gpu"}]))).unwrap_err();
        assert!(reported.contains("names no ResourceClaimTemplate"), "{reported}");
        let mut long = written(by("t"), &[("t", asks("gpu.io", 1))]);
        long["spec"]["tasks"][0]["template"]["metadata"]["annotations"][DEVICE_CLAIMS] = "x".repeat(40_000).into();
        assert!(request(&long).unwrap_err().contains("longer than 32768 bytes"));
        long["spec"]["tasks"][0]["template"]["metadata"]["annotations"][DEVICE_CLAIMS] = "[]".into();
        assert!(request(&long).unwrap_err().contains("annotation caldera.dev/device-claims: "));
    }

    #[test]
    fn a_copy_takes_what_it_claims_along_under_names_of_its_own_and_twice_is_once() {
        let mut copy = written(by("two"), &[("two", asks("gpu.io", 2))]);
        copy["metadata"]["labels"] = json!({"karmada.io/managed": "true", "mine": "x"});
        let before = request(&copy);
        let sent = send_claims(&mut copy).unwrap();
        let name = sent[0]["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name.starts_with("j-devices-") && name.len() == "j-devices-".len() + 32, "{name}");
        assert!(has_name_of_sent(&sent[0]));
        for name in ["j-devices-", "two", "j-devices-0123", &format!("j-devices-{}", "G".repeat(32))] {
            assert!(!has_name_of_sent(&json!({"metadata": {"name": name}})), "{name}");
        }
        assert_eq!(copy["spec"]["tasks"][0]["template"]["spec"]["resourceClaims"], by(&name));
        assert_eq!(sent[0]["spec"]["spec"], asks("gpu.io", 2));
        assert_eq!(sent[0]["metadata"]["labels"], json!({"karmada.io/managed": "true"}));
        assert!(is_claim_template(&sent[0]) && !is_claim_template(&copy));
        assert_eq!(request(&copy), before, "it is charged as it was");
        assert!(read_gang_of_copy(&copy).is_ok());
        let once = copy.clone();
        assert_eq!((send_claims(&mut copy).unwrap(), &copy), (sent, &once));
        // Of another job of the namespace, and for something else, it is another.
        for (kind, job, count) in [("Job", "k", 2), ("Job", "j", 3), ("Other", "j", 2)] {
            let mut other = written(by("two"), &[("two", asks("gpu.io", count))]);
            (other["metadata"]["name"], other["kind"]) = (job.into(), kind.into());
            assert_ne!(name_sent_template(&other, &asks("gpu.io", count)), name);
        }
        let mut none = job(json!(null));
        assert_eq!((send_claims(&mut none).unwrap(), &none), (vec![], &job(json!(null))));
        assert!(send_claims(&mut job(by("two"))).unwrap_err().contains("is not written down"));
        let mut long = written(by("two"), &[("two", asks("gpu.io", 2))]);
        long["metadata"]["name"] = format!("{}.{}", "a".repeat(199), "b".repeat(20)).into();
        let name = send_claims(&mut long).unwrap()[0]["metadata"]["name"].clone();
        assert!(name.as_str().unwrap().starts_with(&format!("{}-devices-", "a".repeat(199))), "{name}");
    }

    /// Found by a reader: one task was charged by its own annotation, and sent by another's.
    #[test]
    fn what_is_written_down_in_another_template_counts_for_nothing() {
        let mut copy = written(by("two"), &[("two", asks("gpu.io", 1))]);
        let more = json!({"two": asks("gpu.io", 32)}).to_string();
        copy["spec"]["tasks"][1]["template"]["metadata"] = json!({"annotations": {DEVICE_CLAIMS: more}});
        let charged = request(&copy).unwrap();
        let sent = send_claims(&mut copy).unwrap();
        assert_eq!((sent.len(), &sent[0]["spec"]["spec"]), (1, &asks("gpu.io", 1)));
        assert_eq!(request(&copy).unwrap(), charged);
        assert_eq!(copy["spec"]["tasks"][1]["template"]["metadata"]["annotations"], json!({}));
        // One name for two things is two templates.
        let mut both = written(by("two"), &[("two", asks("gpu.io", 1))]);
        both["spec"]["tasks"][1]["template"]["spec"]["resourceClaims"] = by("two");
        let more = json!({"two": asks("gpu.io", 2)}).to_string();
        both["spec"]["tasks"][1]["template"]["metadata"] = json!({"annotations": {DEVICE_CLAIMS: more}});
        let charged = request(&both).unwrap();
        assert_eq!((send_claims(&mut both).unwrap().len(), request(&both).unwrap()), (2, charged));
    }

    #[test]
    fn a_job_that_is_yet_to_be_made_is_read_without_its_claims() {
        assert_eq!(request(&remove_claims(job(by("two")))).unwrap(), "cpu 1, pods 1; cpu 1, pods 1");
        assert_eq!(remove_claims(json!({"spec": 5})), json!({"spec": 5}));
    }

    #[test]
    fn what_is_not_claimed_any_more_is_not_written_down() {
        let mut job = written(by("two"), &[("two", asks("gpu.io", 2))]);
        job["spec"]["tasks"][0]["template"]["spec"]["resourceClaims"] = json!([]);
        let known = read_written_claims(&job);
        write_claims(&mut job, &known).unwrap();
        assert_eq!(job["spec"]["tasks"][0]["template"]["metadata"]["annotations"], json!({}));
        let mut odd = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": 5});
        assert_eq!(write_claims(&mut odd, &BTreeMap::new()), None);
    }
}
