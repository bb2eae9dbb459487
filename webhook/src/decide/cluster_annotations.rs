//! What an admin may not say of a Cluster: an annotation of ours that can not be read.
//!
//! Rule ([`caldera_crds::cluster_annotations`]): one that is new, or another than before, is refused with its fault and
//! an example. One that was wrong before stays as it is, so that nobody is kept from changing something else, and each
//! may be taken away.

use caldera_crds::{
    cluster_annotations::find_annotation_fault,
    object::{annotation_of, read_text_at},
};
use serde_json::Value;

use super::verdict::Verdict;
use crate::observe::request::ReviewRequest;

/// Refuses a Cluster that says anew what can not be read; `None` for all else.
#[must_use]
pub fn refuse_cluster_annotations(request: &ReviewRequest<'_, Value>) -> Option<Verdict> {
    let is_kept = |cluster: &&Value| {
        read_text_at(cluster, "/kind") == "Cluster" && cluster.pointer("/metadata/deletionTimestamp").is_none()
    };
    let cluster = request.object.as_ref().filter(is_kept)?;
    let old = request.before();
    let said = cluster.pointer("/metadata/annotations")?.as_object()?;
    let said = said.iter().filter_map(|(name, text)| Some((name, text.as_str()?)));
    let new = said.filter(|(name, text)| old.and_then(|old| annotation_of(old, name)) != Some(*text));
    let faults: Vec<String> = new.filter_map(|(name, text)| find_annotation_fault(name, text)).collect();
    (!faults.is_empty()).then(|| Verdict::deny_invalid(faults.join("; ")))
}

#[cfg(test)]
mod tests {
    use caldera_crds::names::caldera::{CLUSTER_QUEUES, MAINTENANCE};
    use serde_json::json;

    use super::*;
    use crate::decide::job::tests::{create, update};

    fn cluster(annotations: Value) -> Value {
        json!({"kind": "Cluster", "metadata": {"name": "m1", "annotations": annotations}, "spec": {}})
    }

    fn refusal(request: &ReviewRequest<'_, Value>) -> Option<String> {
        refuse_cluster_annotations(request).map(|verdict| match verdict {
            Verdict::Deny(denial) => denial.message,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn an_annotation_that_can_not_be_read_is_refused_where_it_comes_or_changes() {
        let (plain, wrong) = (cluster(json!({})), cluster(json!({MAINTENANCE: "soon"})));
        for request in
            [create(wrong.clone()), update(&plain, &wrong), update(&cluster(json!({MAINTENANCE: "x"})), &wrong)]
        {
            let message = refusal(&request).unwrap();
            let words = "metadata.annotations[caldera.dev/maintenance]: it is no JSON list of windows";
            assert!(message.starts_with(words) && message.contains("; for example: [{\"start\""), "{message}");
        }
        let both = refusal(&create(cluster(json!({MAINTENANCE: "soon", CLUSTER_QUEUES: ""})))).unwrap();
        assert!(both.contains(MAINTENANCE) && both.contains(CLUSTER_QUEUES), "{both}");
    }

    #[test]
    fn a_wrong_annotation_that_stays_or_goes_holds_nobody_up() {
        let wrong = cluster(json!({MAINTENANCE: "soon"}));
        let more = cluster(json!({MAINTENANCE: "soon", CLUSTER_QUEUES: "ml", "example.org/x": ""}));
        for (old, new) in [(&wrong, &wrong), (&wrong, &more), (&wrong, &cluster(json!({})))] {
            assert_eq!(refusal(&update(old, new)), None, "{new}");
        }
        let mut leaves = wrong.clone();
        leaves["metadata"]["deletionTimestamp"] = "2026-11-27T08:00:00Z".into();
        assert_eq!(refusal(&update(&cluster(json!({})), &leaves)), None);
        let mut other = wrong;
        other["kind"] = "ConfigMap".into();
        assert_eq!(refusal(&create(other)), None);
        assert_eq!(refusal(&create(json!({"kind": "Cluster"}))), None);
    }
}
