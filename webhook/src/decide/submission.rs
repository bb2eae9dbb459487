//! Who submits a workload, HyperJob or CronJob and when: two annotations that are ours.
//!
//! Rule ([`caldera_crds::workload::submission`]): a new one that we are asked about gets both, whatever its user wrote
//! there. From then on they stay as they are: an update by anybody else than a trusted writer that changes, adds or
//! takes away one of them has that undone. It is not refused, for a manifest that replaces the object has none of them.
//! Of a job that a HyperJob or CronJob makes, a trusted writer says who submitted that.

use caldera_crds::workload::submission::{STAMPS, format_submit_time, read_inherited_submitter};
use serde_json::Value;

use super::stamps::Stamp;
use crate::observe::{
    cache::{Cache, Snapshot},
    request::UserInfo,
};

/// The stamps of a job; `old` is what it was before, if it is not new. None where a trusted writer writes what he
/// wants.
#[must_use]
pub fn choose_submission_stamps(
    job: &Value,
    old: Option<&Value>,
    user: Option<&UserInfo<'_>>,
    snapshot: Snapshot<'_>,
) -> Vec<Stamp> {
    let cache = snapshot.cache;
    let stamps = match old {
        Some(_) if is_trusted(user, cache) => return Vec::new(),
        Some(old) => STAMPS.map(|name| old.get("metadata")?.get("annotations")?.get(name).cloned()),
        None => [Some(format_submit_time(snapshot.now).into()), find_submitter(job, user, cache).map(Value::from)],
    };
    STAMPS.into_iter().zip(stamps).collect()
}

/// Who submits a new job: who made its HyperJob or CronJob, if a trusted writer says so, and else who asks. Never
/// empty.
#[must_use]
pub fn find_submitter(job: &Value, user: Option<&UserInfo<'_>>, cache: &Cache) -> Option<String> {
    let inherited = is_trusted(user, cache).then(|| read_inherited_submitter(job)).flatten();
    inherited.or_else(|| user.map(|user| user.username.to_string()).filter(|name| !name.is_empty()))
}

fn is_trusted(user: Option<&UserInfo<'_>>, cache: &Cache) -> bool {
    user.is_some_and(|user| cache.trusted.trusts(&user.username, user.list_groups()))
}

#[cfg(test)]
mod tests {
    use caldera_crds::names::caldera::{SUBMITTED, SUBMITTER};
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::decide::{job::tests::job, patch::tests::applied, stamps::set_stamps};

    const CONTROLLER: &str = "system:serviceaccount:caldera-system:caldera-controller";

    fn stamped(job: &Value, old: Option<&Value>, user: &str, now: &str) -> Value {
        let user = UserInfo { username: user.into(), groups: vec!["system:authenticated".into()] };
        let cache = Cache::default();
        let snapshot = Snapshot { now: now.parse::<Timestamp>().unwrap(), ..Snapshot::of_cache(&cache) };
        let stamps = choose_submission_stamps(job, old, Some(&user), snapshot);
        let stored = applied(job, &set_stamps(job, stamps.clone()));
        assert!(set_stamps(&stored, stamps).is_empty(), "it is not done: {stored}");
        stored
    }

    fn with(annotations: Value) -> Value {
        let mut job = job();
        job["metadata"]["annotations"] = annotations;
        job
    }

    const NOW: &str = "2026-11-27T08:00:00.000123Z";

    #[test]
    fn a_new_job_is_stamped_with_time_and_user_whatever_its_user_wrote() {
        let annotations = |job: &Value| job["metadata"]["annotations"].clone();
        let stamps = json!({SUBMITTED: NOW, SUBMITTER: "ada"});
        assert_eq!(annotations(&stamped(&job(), None, "ada", NOW)), stamps);
        assert_eq!(annotations(&stamped(&with(Value::Null), None, "ada", NOW)), stamps);
        let forged = with(json!({SUBMITTED: "2020-01-01T00:00:00Z", SUBMITTER: "eve", "own": "kept"}));
        let stored = json!({SUBMITTED: NOW, SUBMITTER: "ada", "own": "kept"});
        assert_eq!(annotations(&stamped(&forged, None, "ada", NOW)), stored);
        // Also where a trusted writer makes it, and where nobody says who does.
        assert_eq!(annotations(&stamped(&forged, None, CONTROLLER, NOW))[SUBMITTER], CONTROLLER);
        assert_eq!(annotations(&stamped(&forged, None, "", NOW)), json!({SUBMITTED: NOW, "own": "kept"}));
    }

    #[test]
    fn a_job_of_a_hyper_job_is_of_who_submitted_that_where_the_controller_says_so() {
        let mut child = with(json!({SUBMITTED: "2020-01-01T00:00:00Z", SUBMITTER: "ada"}));
        child["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob", "controller": true}]);
        let submitter = |user: &str| stamped(&child, None, user, NOW)["metadata"]["annotations"][SUBMITTER].clone();
        assert_eq!((submitter(CONTROLLER), submitter("eve")), (json!("ada"), json!("eve")));
    }

    #[test]
    fn a_workload_of_another_kind_is_stamped_and_keeps_its_stamps_as_a_volcano_job_does() {
        let with = |annotations: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "annotations": annotations}});
        let stored = with(json!({SUBMITTED: NOW, SUBMITTER: "ada", "volcano.sh/queue-name": "q"}));
        let forged = with(json!({SUBMITTED: "2020-01-01T00:00:00Z", SUBMITTER: "eve", "volcano.sh/queue-name": "q"}));
        assert_eq!(stamped(&forged, None, "ada", NOW), stored);
        let bare = with(json!({"volcano.sh/queue-name": "q"}));
        for new in [&forged, &bare] {
            assert_eq!(stamped(new, Some(&stored), "eve", "2026-11-27T09:00:00Z"), stored);
        }
        assert_eq!(stamped(&forged, Some(&bare), "eve", NOW), bare);
    }

    #[test]
    fn from_then_on_the_stamps_stay_whoever_changes_them_but_trusted_writers() {
        let stored = with(json!({SUBMITTED: NOW, SUBMITTER: "ada", "own": "kept"}));
        let older = with(json!({SUBMITTED: "2026-11-27T07:00:00Z", SUBMITTER: "eve"}));
        for (new, kept) in [
            (older.clone(), json!({SUBMITTED: NOW, SUBMITTER: "ada"})),
            (job(), json!({SUBMITTED: NOW, SUBMITTER: "ada"})),
            (with(json!({"own": "changed"})), json!({SUBMITTED: NOW, SUBMITTER: "ada", "own": "changed"})),
        ] {
            assert_eq!(stamped(&new, Some(&stored), "ada", "2026-11-27T09:00:00Z")["metadata"]["annotations"], kept);
        }
        assert_eq!(stamped(&older, Some(&stored), CONTROLLER, NOW), older);
        // One that was made while nobody stamped gets none later.
        assert_eq!(stamped(&older, Some(&with(json!({}))), "ada", NOW), with(json!({})));
        assert_eq!(stamped(&job(), Some(&job()), "ada", NOW), job());
    }
}
