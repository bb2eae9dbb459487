//! What is on a page for whom.

use std::collections::BTreeSet;

use caldera_crds::{volcano::scheduling::Queue, workload::WorkloadKind};
use caldera_runtime::watch::Event;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    access::Access,
    page::{Page, PageQuery},
};
use crate::view::{Change, QueueObject, Seen, read_member};

const EVIL: &str = "\"><script>alert(1)</script><img src=x onerror=alert(1)>";

fn job(namespace: &str, name: &str, queue: &str, message: &str, clusters: Value) -> [Value; 3] {
    let reference = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": namespace, "name": name});
    let gate = if clusters == json!([]) { "closed" } else { "open" };
    let metadata = json!({"namespace": namespace, "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"});
    let workload = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata,
        "spec": {"queue": queue}});
    let binding = json!({
        "metadata": {"namespace": namespace, "annotations": {"caldera.dev/gate": gate},
            "creationTimestamp": "2026-01-01T00:00:01Z"},
        "spec": {"clusters": clusters, "resource": reference, "schedulePriority": {"priority": 7}},
        "status": {"lastScheduledTime": "2026-01-01T00:00:30Z"},
    });
    let phase = if clusters == json!([]) { "Pending" } else { "Running" };
    let condition = json!({"reason": "Because", "message": message, "lastTransitionTime": "2026-01-01T00:00:40Z"});
    let group = json!({"metadata": {"namespace": namespace, "ownerReferences": [reference]},
        "spec": {"minMember": 4}, "status": {"phase": phase, "running": 4, "conditions": [condition]}});
    [workload, binding, group]
}

fn queue(name: &str) -> Queue {
    serde_json::from_value(json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
        "metadata": {"name": name, "annotations": {"caldera.dev/queue-status": json!({"faults": [EVIL]}).to_string()}},
        "spec": {"capability": {"cpu": "20"}, "deserved": {"cpu": "8"}},
        "status": {"state": "Open", "allocated": {"cpu": "12"}},
    }))
    .unwrap()
}

/// Tenant `mine` waits behind tenant `theirs`, who also runs something in a queue and a member of his own.
fn seen() -> Seen {
    let mut seen = Seen::default();
    let queues = ["shared", "secret-queue"].map(queue);
    seen.observe(Change::Queues(Event::Reset(queues.iter().map(QueueObject::read).collect())));
    let member = |name: &str| {
        let cluster = json!({"metadata": {"name": name}, "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "resourceSummary": {"allocatable": {"cpu": "32"}, "allocated": {"cpu": "16"}}}});
        (name.to_owned(), read_member(&cluster))
    };
    seen.observe(Change::Clusters(Event::Reset(vec![member("m1"), member("secret-member")])));
    let jobs = [
        job("theirs", "secret-job", "shared", "position 1 of 2: secret-reason", json!([])),
        job("mine", "own-job", "shared", &format!("position 2 of 2: {EVIL}"), json!([])),
        job("mine", "own-run", "shared", "placed", json!([{"name": "m1", "replicas": 4}])),
        job("theirs", "secret-run", "secret-queue", "placed", json!([{"name": "secret-member", "replicas": 4}])),
    ];
    let of = |part: usize| jobs.iter().map(|job| job[part].clone()).collect::<Vec<_>>();
    Change::of_lists(&of(0), &of(1), &of(2)).into_iter().for_each(|change| seen.observe(change));
    seen
}

fn tenant() -> Access {
    Access {
        user: "tenant".to_owned(),
        owned: BTreeSet::from([("mine".to_owned(), WorkloadKind::VolcanoJob)]),
        ..Access::default()
    }
}

fn admin() -> Access {
    let kinds = WorkloadKind::ALL.into_iter().collect();
    Access { user: "admin".to_owned(), kinds, queues: true, clusters: true, ..Access::default() }
}

fn page(path: &str, access: &Access) -> Option<String> {
    let (seen, now) = (seen(), "2026-01-01T00:01:00Z".parse::<Timestamp>().unwrap());
    let asked = PageQuery { seen: &seen, access, now, events: Ok(&[]), filter: "" };
    Some(Page::find(path)?.render(asked)?.into_string())
}

const PAGES: [&str; 6] =
    ["/", "/queues/shared", "/jobs", "/jobs/mine/vcjob/own-job", "/jobs/mine/vcjob/own-run", "/changes"];

#[test]
fn a_tenant_sees_his_own_names_and_others_numbers_only() {
    let tenant = tenant();
    for path in PAGES {
        let text = page(path, &tenant).unwrap();
        assert!(!text.contains("secret") && !text.contains("theirs"), "{path}: {text}");
    }
    let line = page("/queues/shared", &tenant).unwrap();
    assert!(line.contains("another job") && line.contains("mine/own-job"), "{line}");
    assert!(line.find("another job") < line.find("mine/own-job"), "{line}");
    // Position and numbers of the other one are told.
    assert!(line.contains("<th scope=\"row\">1</th>") && line.matches("<td>7</td>").count() == 3, "{line}");
    let fleet = page("/", &tenant).unwrap();
    assert!(fleet.contains("another queue") && fleet.contains("another member"), "{fleet}");
    assert!(fleet.contains("<strong>2</strong> waiting") && fleet.contains("<strong>2</strong> running"), "{fleet}");
}

#[test]
fn what_a_tenant_may_not_see_is_as_if_it_were_not_there() {
    for path in ["/queues/secret-queue", "/queues/none", "/jobs/theirs/vcjob/secret-job", "/jobs/theirs/vcjob/none"] {
        assert_eq!(page(path, &tenant()), None, "{path}");
    }
    assert!(page("/queues/secret-queue", &admin()).unwrap().contains("theirs/secret-run"));
    assert!(page("/jobs/theirs/vcjob/secret-job", &admin()).unwrap().contains("secret-reason"));
}

#[test]
fn the_right_to_one_kind_is_no_right_to_another() {
    let access = Access { owned: BTreeSet::from([("mine".to_owned(), WorkloadKind::Pod)]), ..tenant() };
    assert!(!page("/jobs", &access).unwrap().contains("own-job"));
    assert_eq!(page("/jobs/mine/vcjob/own-job", &access), None);
}

#[test]
fn nobody_who_names_things_gets_markup_onto_a_page() {
    for path in PAGES {
        for access in [tenant(), admin()] {
            let text = page(path, &access).unwrap();
            assert!(!text.contains("<script") && !text.contains("<img"), "{path}: {text}");
        }
    }
    let text = page("/jobs/mine/vcjob/own-job", &tenant()).unwrap();
    assert!(text.contains("&lt;script&gt;"), "{text}");
    assert!(page("/", &admin()).unwrap().contains("&lt;img src=x"), "faults of queues are told");
}

#[test]
fn a_jobs_page_tells_its_steps_in_order() {
    let text = page("/jobs/mine/vcjob/own-run", &tenant()).unwrap();
    let at = |word: &str| text.find(&format!("<td>{word}</td>")).unwrap_or_else(|| panic!("no {word}: {text}"));
    let order = ["Submitted", "Gated", "Placed", "Runs"].map(at);
    assert!(order.is_sorted(), "{text}");
    assert!(text.contains("<time datetime=\"2026-01-01T00:00:30Z\">") && text.contains("m1: 4"), "{text}");
}

#[test]
fn what_changed_lately_has_the_newest_first() {
    let text = page("/changes", &tenant()).unwrap();
    assert!(text.find("<td>Runs</td>") < text.find("<td>Submitted</td>"), "{text}");
}

#[test]
fn every_table_has_a_caption_and_every_row_a_name() {
    for path in PAGES {
        let text = page(path, &admin()).unwrap();
        assert_eq!(text.matches("<table>").count(), text.matches("<table><caption>").count(), "{path}");
        let rows = text.matches("<tr>").count() - text.matches("<thead>").count();
        assert_eq!(text.matches("<th scope=\"row\">").count(), rows, "{path}");
        assert!(!text.contains("style="), "{path}: the policy forbids it");
    }
}
