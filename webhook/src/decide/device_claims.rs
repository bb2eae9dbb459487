//! What the device claims of a workload ask for, written down in it when it is made.
//!
//! Rule: as [`caldera_crds::workload::device_claims`] says. Each ResourceClaimTemplate that its pods name is read,
//! once: what is written down for a name stays through later updates, also where a manifest that is applied again lacks
//! it, and a name that is new is read then. So whoever deletes a template and makes another one of its name changes no
//! workload that is there. What is written down and has no template any more, as after a restore, stays too.

use std::collections::{BTreeMap, BTreeSet};

use caldera_crds::workload::{
    WorkloadKind,
    device_claims::{MOST_CLAIM_BYTES, count_claim_bytes, list_claim_templates, read_written_claims, write_claims},
    names_queue,
};
use serde_json::Value;

use super::{patch::patch_between, verdict::Verdict};
use crate::observe::{
    cache::{LiveRead, Lookup, Snapshot},
    request::ReviewRequest,
};

/// Templates that a workload's pods may name: a limit of ours, for each is read.
const MOST_TEMPLATES: usize = 32;
/// What is written down in one object at most.
const MOST_BYTES: usize = 256 << 10;

/// Writes down what the claims of a queued workload's pods ask for.
#[must_use]
pub fn write_device_claims(request: &ReviewRequest<'_, Value>, snapshot: Snapshot<'_>) -> Verdict {
    let (Some(object), Some(namespace)) = (&request.object, request.namespace.as_deref()) else {
        return Verdict::UNCHANGED;
    };
    let names = list_claim_templates(object);
    let is_going = object.pointer("/metadata/deletionTimestamp").is_some();
    if names.is_empty() || is_going || !is_queued(object, namespace, snapshot) {
        return Verdict::UNCHANGED;
    }
    if names.len() > MOST_TEMPLATES {
        let count = names.len();
        return Verdict::deny_invalid(format!(
            "its pods name {count} ResourceClaimTemplates, and {MOST_TEMPLATES} are the most"
        ));
    }
    let mut known = request.before().map(read_written_claims).unwrap_or_default();
    let unknown: BTreeSet<String> = names.iter().filter(|name| !known.contains_key(*name)).cloned().collect();
    if !unknown.is_empty() {
        match snapshot.live {
            Some(LiveRead::ClaimTemplates(found)) => {
                // Without a template what is written down in it counts.
                let mut own = read_written_claims(object);
                for name in unknown {
                    match found.get(&name).cloned().or_else(|| own.remove(&name)) {
                        Some(Value::Null) => return refuse_long_template(namespace, &name),
                        Some(spec) => drop(known.insert(name, spec)),
                        None => return refuse_unknown_template(namespace, &name),
                    }
                }
            }
            Some(LiveRead::Failed(error)) => {
                return Verdict::Undecided(format!("failed to read what its device claims ask for: {error}"));
            }
            _ => return Verdict::Read(Lookup::ClaimTemplates(namespace.to_owned(), unknown)),
        }
    }
    write_known_claims(object, &known)
}

fn write_known_claims(object: &Value, known: &BTreeMap<String, Value>) -> Verdict {
    let bytes = count_claim_bytes(object, known);
    if bytes > MOST_BYTES {
        return Verdict::deny_invalid(format!(
            "what its claims ask for would be {} KiB in it, once for each task, and {} are the most",
            bytes >> 10,
            MOST_BYTES >> 10
        ));
    }
    let mut written = object.clone();
    match write_claims(&mut written, known) {
        Some(()) => Verdict::allow_with(patch_between(object, &written)),
        // What it is then is refused by whoever reads it.
        None => Verdict::UNCHANGED,
    }
}

fn refuse_long_template(namespace: &str, name: &str) -> Verdict {
    Verdict::deny_invalid(format!(
        "ResourceClaimTemplate {namespace}/{name} is longer than {MOST_CLAIM_BYTES} bytes: that is the most that goes \
         with a job"
    ))
}

fn refuse_unknown_template(namespace: &str, name: &str) -> Verdict {
    Verdict::deny_invalid(format!(
        "its pods claim devices by ResourceClaimTemplate {namespace}/{name}, which there is not: create that first, for \
         it says what the queue is charged"
    ))
}

/// Whether it waits in a queue, and is charged.
fn is_queued(object: &Value, namespace: &str, snapshot: Snapshot<'_>) -> bool {
    let opted_in = || snapshot.cache.namespaces.get(namespace).is_some_and(|facts| facts.opted_in);
    match WorkloadKind::of_object(object) {
        Some(WorkloadKind::VolcanoJob) => true,
        Some(_) => names_queue(object) || opted_in(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use caldera_crds::names::caldera::DEVICE_CLAIMS;
    use serde_json::json;

    use super::*;
    use crate::{
        decide::{
            job::tests::{create, job, update},
            patch::tests::applied,
        },
        observe::cache::Cache,
    };

    fn claiming(names: &[&str]) -> Value {
        let mut job = job();
        let claim = |name: &&str| json!({"name": name, "resourceClaimTemplateName": name});
        job["spec"]["tasks"][0]["template"]["spec"]["resourceClaims"] = names.iter().map(claim).collect();
        job
    }

    fn asks(count: u32) -> Value {
        json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.io", "count": count}}]}})
    }

    fn live(templates: &[(&str, u32)]) -> LiveRead {
        LiveRead::ClaimTemplates(templates.iter().map(|(name, count)| ((*name).to_owned(), asks(*count))).collect())
    }

    /// The object as it is stored, and what was read for it.
    fn store(request: &ReviewRequest<'_, Value>, there: &[(&str, u32)]) -> Result<(Value, Vec<String>), String> {
        let (cache, live) = (Cache::default(), live(there));
        let (mut verdict, mut asked) = (write_device_claims(request, Snapshot::of_cache(&cache)), Vec::new());
        if let Verdict::Read(Lookup::ClaimTemplates(namespace, names)) = &verdict {
            assert_eq!(namespace, "ns");
            asked.extend(names.iter().cloned());
            verdict = write_device_claims(request, Snapshot::of_read(&cache, Some(&live)));
        }
        match verdict {
            Verdict::Allow { patch, .. } => Ok((applied(request.object.as_ref().unwrap(), &patch), asked)),
            Verdict::Deny(denial) => Err(denial.message),
            other => panic!("{other:?}"),
        }
    }

    fn written(job: &Value) -> Value {
        let annotations = &job["spec"]["tasks"][0]["template"]["metadata"]["annotations"];
        annotations[DEVICE_CLAIMS].as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
    }

    #[test]
    fn what_a_new_job_claims_is_read_and_written_down_whatever_its_user_wrote() {
        let (stored, asked) = store(&create(claiming(&["one", "two"])), &[("one", 1), ("two", 2)]).unwrap();
        assert_eq!(
            (written(&stored), asked),
            (json!({"one": asks(1), "two": asks(2)}), vec!["one".into(), "two".into()])
        );
        let mut forged = claiming(&["one"]);
        let metadata = json!({"annotations": {DEVICE_CLAIMS: json!({"one": asks(8), "x": asks(9)}).to_string()}});
        forged["spec"]["tasks"][0]["template"]["metadata"] = metadata;
        assert_eq!(written(&store(&create(forged.clone()), &[("one", 1)]).unwrap().0), json!({"one": asks(1)}));
        // As after a restore: no template, and it is charged and sent as it says.
        assert_eq!(written(&store(&create(forged), &[]).unwrap().0), json!({"one": asks(8)}));
        let why = store(&create(claiming(&["one"])), &[]).unwrap_err();
        assert!(why.contains("ResourceClaimTemplate ns/one, which there is not: create that first"), "{why}");
    }

    #[test]
    fn what_was_written_down_stays_through_updates_and_another_template_of_that_name() {
        let stored = store(&create(claiming(&["one"])), &[("one", 1)]).unwrap().0;
        let (again, asked) = store(&update(&stored, &claiming(&["one"])), &[("one", 8)]).unwrap();
        assert_eq!((written(&again), asked.len()), (json!({"one": asks(1)}), 0));
        let (more, asked) = store(&update(&stored, &claiming(&["one", "two"])), &[("one", 8), ("two", 2)]).unwrap();
        assert_eq!((written(&more), asked), (json!({"one": asks(1), "two": asks(2)}), vec!["two".to_owned()]));
    }

    #[test]
    fn what_is_not_queued_or_claims_nothing_is_left_alone() {
        assert_eq!(store(&create(job()), &[]).unwrap(), (job(), vec![]));
        let mut web = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "ns"},
            "spec": {"template": {"spec": {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "one"}]}}},
        });
        assert_eq!(store(&create(web.clone()), &[]).unwrap(), (web.clone(), vec![]));
        web["metadata"]["labels"] = json!({"volcano.sh/queue-name": "q"});
        let stored = store(&create(web), &[("one", 1)]).unwrap().0;
        assert!(stored["spec"]["template"]["metadata"]["annotations"][DEVICE_CLAIMS].is_string());
        let many: Vec<String> = (0..40).map(|at| at.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(store(&create(claiming(&many)), &[]).unwrap_err().contains("40 ResourceClaimTemplates"));
        let long = LiveRead::ClaimTemplates([("one".to_owned(), Value::Null)].into());
        let cache = Cache::default();
        let verdict = write_device_claims(&create(claiming(&["one"])), Snapshot::of_read(&cache, Some(&long)));
        assert!(matches!(&verdict, Verdict::Deny(why) if why.message.contains("ns/one is longer than")), "{verdict:?}");
        let mut wide = claiming(&["one"]);
        wide["spec"]["tasks"] = vec![wide["spec"]["tasks"][0].clone(); 10_000].into();
        assert!(store(&create(wide), &[("one", 1)]).unwrap_err().contains("KiB in it, once for each task"));
        let failed = LiveRead::Failed("no answer".into());
        let verdict = write_device_claims(&create(claiming(&["one"])), Snapshot::of_read(&cache, Some(&failed)));
        assert!(matches!(verdict, Verdict::Undecided(why) if why.ends_with("no answer")));
    }
}
