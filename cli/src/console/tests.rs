//! What is on a page for whom.

use std::collections::BTreeSet;

use caldera_core::gang::WorkloadRef;
use caldera_crds::{volcano::scheduling::Queue, workload::WorkloadKind};
use caldera_runtime::watch::Event;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{access::Access, page::Page, query::PageQuery, record::Record, starts::build_answer};
use crate::{
    expected_start::{ExpectedStart, Forecast},
    latest_forecast::TimedForecast,
    live::{DomainPlaces, MemberPlaces},
    view::{Change, JobKey, QueueObject, Seen, read_member},
};

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

fn workload(namespace: &str, name: &str) -> WorkloadRef {
    JobKey { namespace: namespace.to_owned(), name: name.to_owned(), kind: WorkloadKind::VolcanoJob }.workload()
}

/// Both that wait have a start; m1 has two racks, with a gang of each tenant in the first one.
fn forecast() -> TimedForecast {
    let start = |ahead, basis: &str| ExpectedStart { at: None, ahead, sure: true, basis: basis.to_owned() };
    let starts = [
        (workload("theirs", "secret-job"), start(Some(240), "if the 3 jobs before it end as they say")),
        (workload("mine", "own-job"), start(None, "member secret-member can not be read")),
    ];
    let pods = [(workload("mine", "own-run"), 4), (workload("theirs", "secret-run"), 2)];
    let rack = |name: &str, pods| DomainPlaces {
        path: vec!["row".to_owned(), name.to_owned()],
        nodes: 5,
        unused_nodes: 1,
        pods,
    };
    let domains = vec![rack("rack1", pods.into()), rack("rack2", Default::default())];
    let away = MemberPlaces { unknown: Some("secret-member does not answer".to_owned()), ..MemberPlaces::default() };
    let places =
        [("m1".to_owned(), MemberPlaces { domains, unknown: None }), ("secret-member".to_owned(), away)].into();
    let answer = Ok(Forecast::of_starts(starts.into()));
    TimedForecast { at: "2026-01-01T00:01:00Z".parse().unwrap(), answer, places }
}

/// A minute ago queues and members were otherwise.
fn record(seen: &Seen) -> Record {
    let (mut record, mut before) = (Record::default(), seen.clone());
    let mut closed = serde_json::to_value(queue("secret-queue")).unwrap();
    closed["status"]["state"] = "Closed".into();
    let closed = QueueObject::read(&serde_json::from_value(closed).unwrap());
    before.observe(Change::Queues(Event::Applied(closed)));
    for name in ["m1", "secret-member"] {
        let cluster = json!({"metadata": {"name": name}});
        before.observe(Change::Clusters(Event::Applied((name.to_owned(), read_member(&cluster)))));
    }
    record.observe(&before, "2026-01-01T00:00:00Z".parse().unwrap());
    record.observe(seen, "2026-01-01T00:01:00Z".parse().unwrap());
    record
}

fn page(path: &str, access: &Access) -> Option<String> {
    let (seen, now) = (seen(), "2026-01-01T00:01:00Z".parse::<Timestamp>().unwrap());
    let (forecast, record) = (forecast(), record(&seen));
    let (forecast, record) = (Some(&forecast), &record);
    let asked = PageQuery { seen: &seen, access, now, events: Ok(&[]), filter: "", forecast, record };
    Some(Page::find(path)?.render(asked)?.into_string())
}

const PAGES: [&str; 7] =
    ["/", "/queues/shared", "/map", "/jobs", "/jobs/mine/vcjob/own-job", "/jobs/mine/vcjob/own-run", "/changes"];

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
fn a_jobs_timeline_has_its_admission_eviction_and_end() {
    let steps = |state: &str, reason: &str, clusters: Value| {
        let [mut workload, mut binding, mut group] = job("mine", "own", "shared", "said", clusters);
        workload["status"] = json!({"state": {"phase": state}});
        let annotations = &mut binding["metadata"]["annotations"];
        annotations["caldera.dev/gate"] = "open".into();
        let admission = json!({
            "queue": "shared", "priority": 0, "copies": 1, "tasks": {"w": 4}, "charged": {"cpu": "4"},
            "run": {"from": 1_767_225_615, "seconds": 600},
        });
        annotations["caldera.dev/admission"] = admission.to_string().into();
        let record = json!({"count": 1, "at": 1_767_225_610, "until": 0, "preemptor": "x", "reason": "Reclaimed",
            "message": "for mine/other"});
        annotations["caldera.dev/eviction"] = record.to_string().into();
        group["status"]["phase"] = reason.into();
        let mut seen = Seen::default();
        Change::of_lists(&[workload], &[binding], &[group]).into_iter().for_each(|change| seen.observe(change));
        let (now, record) = ("2026-01-01T00:01:00Z".parse().unwrap(), Record::default());
        let access = tenant();
        let asked = PageQuery {
            seen: &seen,
            access: &access,
            now,
            events: Ok(&[]),
            filter: "",
            forecast: None,
            record: &record,
        };
        Page::find("/jobs/mine/vcjob/own").unwrap().render(asked).unwrap().into_string()
    };
    let admitted = steps("Pending", "Inqueue", json!([]));
    let evicted = admitted.find("<td>Evicted</td><td>Reclaimed: for mine/other</td>");
    let then = admitted.find("<td>Admitted</td>");
    assert!(evicted.is_some() && evicted < then, "{admitted}");
    assert_eq!(admitted.matches("<td>Admitted</td>").count(), 1, "{admitted}");
    let runs = steps("Running", "Running", json!([{"name": "m1", "replicas": 4}]));
    let [then, placed] = ["<td>Admitted</td><td>queue shared is charged", "<td>Placed</td><td>placed on m1"]
        .map(|row| runs.find(row).unwrap_or_else(|| panic!("no {row}: {runs}")));
    assert!(then < placed && runs.contains("<time datetime=\"2026-01-01T00:00:15Z\">"), "{runs}");
    let done = steps("Completed", "Completed", json!([{"name": "m1", "replicas": 4}]));
    assert!(done.contains("<td>Done</td>") && !done.contains("<td>Runs</td>"), "{done}");
}

#[test]
fn a_line_tells_expected_starts_and_no_name_that_its_reader_may_not_know() {
    let line = page("/queues/shared", &tenant()).unwrap();
    let row = |name: &str| line.lines().find(|row| row.contains(name)).unwrap_or_else(|| panic!("no {name}: {line}"));
    assert!(row("another job").contains("<td>about 4m</td>"), "{line}");
    assert!(row("mine/own-job").contains("<td>not known</td>"), "{line}");
    assert!(!line.contains("can not be read"), "the reason may name a member");
    let line = page("/queues/shared", &admin()).unwrap();
    assert!(line.contains("it is not known: member secret-member can not be read"), "{line}");
    let own = page("/jobs/mine/vcjob/own-job", &tenant()).unwrap();
    assert!(own.contains("<dt>Expected start</dt><dd>not known</dd>"), "{own}");
}

#[test]
fn a_program_is_told_starts_of_own_jobs_and_no_name_that_its_user_may_not_know() {
    let ask = |access: &Access, namespace: &str| build_answer(&seen(), access, &forecast(), namespace).unwrap();
    let own = ask(&tenant(), "mine");
    let reported = serde_json::to_value(&own).unwrap();
    assert_eq!(
        reported,
        json!({"namespace": "mine", "workedOutAt": "2026-01-01T00:01:00Z", "more": 0, "starts": [{
            "group": "batch.volcano.sh", "kind": "Job", "name": "own-job", "at": null, "inSeconds": null, "sure": true,
            "basis": "who may list members is told why"}]})
    );
    assert!(ask(&tenant(), "theirs").starts.is_empty() && ask(&admin(), "none").starts.is_empty());
    let all = ask(&admin(), "theirs");
    let [start] = all.starts.as_slice() else { panic!("{all:?}") };
    assert_eq!((start.name.as_str(), start.in_seconds), ("secret-job", Some(240)));
    assert!(ask(&admin(), "mine").starts[0].basis.contains("secret-member"));
    // Of a job that was released since it was worked out nothing is told.
    let mut gone = forecast();
    let start = ExpectedStart { at: None, ahead: Some(60), sure: true, basis: String::new() };
    gone.answer = Ok(Forecast::of_starts([(workload("mine", "own-run"), start)].into()));
    assert!(build_answer(&seen(), &tenant(), &gone, "mine").unwrap().starts.is_empty());
}

#[test]
fn the_map_has_gangs_by_member_and_domain_and_others_as_numbers() {
    let map = page("/map", &tenant()).unwrap();
    let row = |word: &str| map.lines().find(|row| row.contains(word)).unwrap_or_else(|| panic!("no {word}: {map}"));
    let rack = row("row / rack1");
    assert!(rack.contains("m1") && rack.contains("mine/own-run</a> <strong>4</strong>"), "{rack}");
    assert!(rack.contains("1 more, 2 pods"), "{rack}");
    assert!(row("row / rack2").contains("<td>5</td><td>1</td>"), "{map}");
    assert!(row("another member").contains("not known"), "{map}");
    let all = page("/map", &admin()).unwrap();
    assert!(all.contains("theirs/secret-run") && all.contains("secret-member does not answer"), "{all}");
}

#[test]
fn what_became_of_queues_and_members_is_told_to_who_may_know_them() {
    let own = page("/changes", &tenant()).unwrap();
    assert!(own.contains("m1 <small>member</small>") && own.contains("Ready, was NotReady"), "{own}");
    let all = page("/changes", &admin()).unwrap();
    assert!(all.contains("secret-queue</a> <small>queue</small>") && all.contains("Open, was Closed"), "{all}");
    assert!(all.contains("when this console started"), "{all}");
}

#[test]
fn the_last_day_has_charts_and_the_same_as_a_table() {
    let fleet = page("/", &admin()).unwrap();
    assert!(fleet.contains("cpu: now 50% used, 50% of the rest fragmented"), "{fleet}");
    assert!(fleet.contains("role=\"img\"") && fleet.contains("2026-01-01 00:00Z"), "{fleet}");
    assert!(fleet.contains("Measured each minute since"), "{fleet}");
}

#[test]
fn that_an_admin_paused_all_releases_is_on_the_fleets_page_and_among_the_changes() {
    let mut seen = seen();
    let mut default = serde_json::to_value(queue("default")).unwrap();
    default["metadata"]["annotations"] = json!({"caldera.dev/paused": "upgrade at noon"});
    let default = QueueObject::read(&serde_json::from_value(default).unwrap());
    seen.observe(Change::Queues(Event::Applied(default)));
    let (record, access) = (Record::default(), tenant());
    for path in ["/", "/changes"] {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let asked = PageQuery {
            seen: &seen,
            access: &access,
            now,
            events: Ok(&[]),
            filter: "",
            forecast: None,
            record: &record,
        };
        let text = Page::find(path).unwrap().render(asked).unwrap().into_string();
        assert!(text.contains("All releases are paused: upgrade at noon"), "{path}: {text}");
    }
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
