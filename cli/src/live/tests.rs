//! What is asked of the server, and what becomes of an answer that says no.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use caldera_controller::explain::{Basis, Verdict, explain_job, find_binding, list_queues};
use caldera_core::gang::WorkloadRef;
use caldera_simulate::time::Millis;
use serde_json::json;

use super::*;
use crate::expected_start::{FOR_A_LIST, Forecast};

/// A server with one gated job in namespace `ns`, that refuses what `refused` says by path; and what it was asked.
fn server(refused: fn(&str) -> Option<u16>) -> (Client, Arc<Mutex<Vec<String>>>) {
    serve(move |path| match refused(path) {
        Some(code) => (
            code,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
                "message": format!("no {path} for you"), "reason": "Forbidden",
            }),
        ),
        None if path.ends_with("/configmaps/caldera-controller") => (200, chosen(r#"{"order": "fifo"}"#)),
        None if path.ends_with("/configmaps/caldera-past-runs") => (404, missing()),
        None => (200, list(items(path))),
    })
}

/// A server that answers so by path; and what it was asked.
fn serve(answer: impl Fn(&str) -> (u16, Value) + Send + 'static) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let path = request.uri().path().to_owned();
        log.lock().unwrap().push(format!("{} {path}", request.method()));
        let (code, body) = answer(&path);
        let response =
            http::Response::builder().status(code).body(kube::client::Body::from(body.to_string().into_bytes()));
        async move { response.map_err(tower::BoxError::from) }
    });
    (Client::new(service, "ns"), asked)
}

fn missing() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "message": "no", "reason": "NotFound"})
}

/// What the admin chose.
fn chosen(settings: &str) -> Value {
    json!({
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "caldera-controller", "namespace": "caldera-system"},
        "data": {"settings.json": settings},
    })
}

fn list(items: Value) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
}

fn items(path: &str) -> Value {
    let metadata = |name: &str| {
        json!({
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        })
    };
    if path.ends_with("batch.volcano.sh/v1alpha1/jobs") || path.ends_with("namespaces/ns/jobs") {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
        let task = json!({"name": "t", "replicas": 2, "template": {"spec": {"containers": [container]}}});
        return json!([{"metadata": metadata("j"), "spec": {"queue": "q", "minAvailable": 2, "tasks": [task]}}]);
    }
    if path.ends_with("resourcebindings") {
        let mut metadata = metadata("j-job");
        metadata["annotations"] = json!({"caldera.dev/gate": "closed"});
        return json!([{
            "metadata": metadata,
            "spec": {
                "resource": {
                    "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": "j", "uid": "j",
                },
                "replicas": 2, "suspension": {"scheduling": true},
                "placement": {"replicaScheduling": {
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
                }},
            },
        }]);
    }
    if path.ends_with("podgroups") {
        let mut metadata = metadata("j-j");
        metadata["ownerReferences"] =
            json!([{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "j"}]);
        let reported = json!({
            "type": "Unschedulable", "status": "True", "reason": "InsufficientCapacity", "message": "the controller's words",
        });
        return json!([{"metadata": metadata, "spec": {}, "status": {"phase": "Pending", "conditions": [reported]}}]);
    }
    if path.ends_with("queues") {
        return json!([{"metadata": metadata("q"), "spec": {"capability": {"cpu": "1"}}}]);
    }
    if path.ends_with("/clusters") {
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "r", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let serves =
            json!([{"groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"name": "jobs", "kind": "Job"}]}]);
        let summary = json!({"allocatable": {"cpu": "8", "memory": "1Gi", "pods": "10"}});
        return json!([{
            "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"},
            "status": {"conditions": [ready], "apiEnablements": serves, "resourceSummary": summary},
        }]);
    }
    json!([])
}

fn job() -> WorkloadRef {
    WorkloadRef { group: "batch.volcano.sh".into(), kind: "Job".into(), namespace: "ns".into(), name: "j".into() }
}

#[tokio::test]
async fn who_may_see_everything_gets_a_live_answer_and_nothing_is_written() {
    let (client, asked) = server(|_| None);
    let mut live = read_live(&client, Some("ns"), None).await.unwrap();
    assert_eq!(live.gaps, []);
    let key = find_binding(&live.controller, &job()).unwrap();
    let seen = explain_job(&mut live.controller, &key, live.now).unwrap();
    assert_eq!((seen.verdict, seen.basis), (Verdict::CanNeverStart, Basis::Live));
    let asked = asked.lock().unwrap();
    assert!(asked.iter().all(|request| request.starts_with("GET ")), "{asked:?}");
    // Each kind once, what the admin chose, and what is published of the member. It is asked for one node and one pod
    // first: whether it answers.
    let of_the_member = asked.iter().filter(|request| request.contains("/clusters/m1/proxy/")).count();
    assert_eq!((asked.len() - of_the_member, of_the_member), (ObjectKind::list_all().len() + 2, 9), "{asked:?}");
}

#[tokio::test]
async fn a_member_that_does_not_answer_is_counted_by_its_summary_and_told() {
    let (client, _) = server(|path| path.contains("/proxy/").then_some(503));
    let mut live = read_live(&client, Some("ns"), None).await.unwrap();
    assert_eq!(live.gaps.iter().map(|gap| gap.what.as_str()).collect::<Vec<_>>(), ["member m1"]);
    let key = find_binding(&live.controller, &job()).unwrap();
    let seen = explain_job(&mut live.controller, &key, live.now).unwrap();
    assert_eq!(seen.basis, Basis::Live);
    let cluster = &seen.clusters[0];
    assert_eq!((cluster.fit, cluster.needs, cluster.free.get("cpu").to_string()), (2, 2, "8".to_owned()));
    assert!(cluster.doubt.as_ref().unwrap().starts_with("its resource summary is used: "), "{cluster:?}");
}

#[tokio::test]
async fn who_may_see_one_namespace_gets_the_controllers_words_and_is_told_what_is_missing() {
    let (client, _) = server(|path| (!path.contains("/namespaces/ns/") && !path.ends_with("/queues")).then_some(403));
    let mut live = read_live(&client, Some("ns"), None).await.unwrap();
    let missing: Vec<&str> = live.gaps.iter().map(|gap| gap.what.as_str()).collect();
    assert!(missing.contains(&"resourcebindings.work.karmada.io") && missing.contains(&"clusters.cluster.karmada.io"));
    assert!(live.gaps.iter().all(|gap| gap.why.contains("for you")), "{:?}", live.gaps);
    let key = find_binding(&live.controller, &job()).unwrap();
    let seen = explain_job(&mut live.controller, &key, live.now).unwrap();
    assert_eq!((seen.verdict, seen.basis), (Verdict::Waiting, Basis::PodGroup));
    assert_eq!((seen.token.as_str(), seen.sentence.as_str()), ("InsufficientCapacity", "the controller's words"));
    assert!(seen.position.is_none() && seen.clusters.is_empty());
    assert!(list_queues(&live.controller).iter().all(|queue| queue.jobs.is_none()));
}

#[tokio::test]
async fn a_host_without_a_kind_has_none_of_it_and_says_so_where_that_matters() {
    let (client, _) = server(|path| (path.ends_with("/clusters") || path.ends_with("/statefulsets")).then_some(404));
    let live = read_live(&client, None, None).await.unwrap();
    let missing: Vec<&str> = live.gaps.iter().map(|gap| gap.what.as_str()).collect();
    assert_eq!(missing, ["clusters.cluster.karmada.io"]);
    assert!(live.controller.is_complete());
}

#[tokio::test]
async fn what_the_admin_chose_is_read_where_the_controller_writes_it_and_its_lack_is_reported() {
    let (client, asked) = server(|path| path.contains("/namespaces/caldera-system/").then_some(404));
    assert_eq!(read_live(&client, None, None).await.unwrap().gaps, []);
    let maps = |asked: &[String]| -> Vec<String> {
        asked.iter().filter(|request| request.contains("/configmaps/")).cloned().collect()
    };
    let path = |namespace: &str| format!("GET /api/v1/namespaces/{namespace}/configmaps/caldera-controller");
    assert_eq!(maps(&asked.lock().unwrap()), [path("caldera-system"), path("default")]);
    let (client, asked) = server(|path| path.contains("/configmaps/").then_some(403));
    let live = read_live(&client, None, Some("ops")).await.unwrap();
    assert_eq!(maps(&asked.lock().unwrap()), [path("ops")]);
    assert_eq!(live.gaps.len(), 1);
    assert_eq!(live.gaps[0].what, "configmap caldera-controller");
    assert!(live.gaps[0].why.ends_with("taken to be as by default"), "{:?}", live.gaps);
}

#[tokio::test]
async fn what_was_used_lately_is_read_where_it_counts_and_its_lack_is_reported() {
    let kept = |name: &str, text: &str| {
        // Later than it is read, however long that takes: no time has passed since.
        let at = Timestamp::now().as_second() + 3600;
        let metadata = json!({"name": name, "namespace": "caldera-system"});
        let data = json!({"history.json": format!(r#"{{"at": {at}, "mean_used": {{"q": {text}}}}}"#)});
        (200, json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data}))
    };
    let asked_in = async |order: &'static str, turns: Option<&'static str>, answers: [(u16, Value); 2]| {
        let (client, _) = serve(move |path| match path {
            path if path.ends_with("/caldera-system/configmaps/caldera-queue-history") => answers[0].clone(),
            path if path.ends_with("/caldera-system/configmaps/caldera-tenant-history") => answers[1].clone(),
            path if path.ends_with("/configmaps/caldera-controller") => (200, chosen(order)),
            path if path.contains("/configmaps/") => (404, missing()),
            path => {
                let mut items = items(path);
                if path.ends_with("queues") {
                    items[0]["metadata"]["annotations"] =
                        turns.map_or_else(|| json!({}), |turns| json!({"caldera.dev/order": turns}));
                    items[0]["spec"]["deserved"] = json!({"cpu": "1"});
                }
                (200, list(items))
            }
        });
        let live = read_live(&client, Some("ns"), None).await.unwrap();
        let gaps: Vec<_> = live.gaps.iter().filter_map(|gap| gap.what.strip_prefix("configmap caldera-")).collect();
        let gaps = gaps.join(", ");
        let q = list_queues(&live.controller).into_iter().find(|queue| queue.name.as_str() == "q").unwrap();
        let lately = q.amounts.iter().find_map(|of| of.used_lately).map(|lately| lately.amount.to_string());
        (lately, q.tenant_shares.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "), gaps)
    };
    let expect = |lately: Option<&str>, shares: &str, gaps: &str| {
        (lately.map(ToOwned::to_owned), shares.to_owned(), gaps.to_owned())
    };
    let (fair, users) = (r#"{"order": "fair-history"}"#, Some("drf-by-user"));
    let queues = kept("caldera-queue-history", r#"{"cpu": "1"}"#);
    let tenants = kept("caldera-tenant-history", r#"{"user ada": {"cpu": "1"}, "user bob": {"cpu": "500m"}}"#);
    let mut refusal = missing();
    (refusal["code"], refusal["reason"]) = (403.into(), "Forbidden".into());
    let (none, refusal) = ((404, missing()), (403, refusal));
    // No cluster is read, so that they have no part of anything.
    let both = [queues.clone(), tenants.clone()];
    assert_eq!(asked_in(fair, users, both.clone()).await, expect(Some("1"), "user ada 0 %, user bob 0 %", ""));
    assert_eq!(asked_in(fair, users, [none.clone(), none]).await, expect(None, "", ""), "nothing is kept yet");
    let without_tenants = [queues, refusal.clone()];
    assert_eq!(asked_in(fair, users, without_tenants.clone()).await, expect(Some("1"), "", "tenant-history"));
    for turns in [None, Some("none")] {
        assert_eq!(asked_in(fair, turns, without_tenants.clone()).await, expect(Some("1"), "", ""), "no turns");
    }
    let without_queues = asked_in(fair, users, [refusal, tenants]).await;
    assert_eq!(without_queues, expect(None, "user ada 0 %, user bob 0 %", "queue-history"));
    assert_eq!(asked_in("{}", users, both).await, expect(None, "", ""), "it does not count");
}

#[tokio::test]
async fn how_long_the_last_jobs_ran_is_read_where_starts_are_expected_and_its_lack_is_reported() {
    let kept = json!({
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "caldera-past-runs", "namespace": "caldera-system"},
        "data": {"runs.json": r#"{"q": {"unsaid": [10, 20, 30, 40, 50]}}"#},
    });
    let asked_in = async |answers: [(u16, Value); 2]| {
        let (client, _) = serve(move |path| match path {
            path if path.ends_with("/caldera-system/configmaps/caldera-past-runs") => answers[0].clone(),
            path if path.ends_with("/default/configmaps/caldera-past-runs") => answers[1].clone(),
            path if path.ends_with("/configmaps/caldera-controller") => (200, chosen("{}")),
            path if path.contains("/configmaps/") => (404, missing()),
            path => (200, list(items(path))),
        });
        let mut live = read_undecided(&client, Some("ns"), None).await.unwrap();
        let gaps = live.gaps.iter().filter(|gap| gap.what == "configmap caldera-past-runs");
        let gaps: Vec<String> = gaps.map(|gap| gap.why.clone()).collect();
        (live.take_state().past.expect_run(&"q".into(), None, None), gaps)
    };
    let none = || (404, missing());
    let refusal = |code: u16| {
        let mut refusal = missing();
        (refusal["code"], refusal["reason"]) = (code.into(), "Refused".into());
        (code, refusal)
    };
    assert_eq!(asked_in([(200, kept.clone()), none()]).await, (Some(30), vec![]));
    assert_eq!(asked_in([none(), none()]).await, (None, vec![]));
    for code in [403, 429, 500] {
        let said = "caldera-system: no; expected starts go by what jobs say alone".to_owned();
        assert_eq!(asked_in([refusal(code), none()]).await, (None, vec![said]), "{code}");
        assert_eq!(asked_in([refusal(code), (200, kept.clone())]).await, (Some(30), vec![]), "{code}: read elsewhere");
    }
    let mut broken = kept.clone();
    broken["data"]["runs.json"] = "{".into();
    for wrong in [broken, json!("no object")] {
        let (past, gaps) = asked_in([(200, wrong), none()]).await;
        assert_eq!((past, gaps.len()), (None, 1), "{gaps:?}");
        assert!(gaps[0].starts_with("caldera-system: "), "{gaps:?}");
    }
}

/// Half of the job would fit in its queue, and karmada-scheduler places no half.
#[tokio::test]
async fn where_karmada_scheduler_places_no_job_is_asked_about_in_part() {
    let seen = async |settings: &'static str| {
        let (client, _) = serve(move |path| {
            if path.ends_with("/configmaps/caldera-controller") {
                return (200, chosen(settings));
            }
            if path.contains("/proxy/") {
                // Its summary is used then, which has what the job needs.
                return (503, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503}));
            }
            let mut items = items(path);
            if path.ends_with("batch.volcano.sh/v1alpha1/jobs") {
                items[0]["spec"]["minAvailable"] = 1.into();
                items[0]["spec"]["tasks"][0]["minAvailable"] = 1.into();
            }
            (200, list(items))
        });
        let mut live = read_live(&client, Some("ns"), None).await.unwrap();
        let key = find_binding(&live.controller, &job()).unwrap();
        explain_job(&mut live.controller, &key, live.now).unwrap().verdict
    };
    assert_eq!(seen("{}").await, Verdict::MayStart);
    assert_eq!(seen(r#"{"stockScheduler": true}"#).await, Verdict::CanNeverStart);
}

/// Every right that the printed roles of these names give: group, resource, verb.
fn rights(roles: &[&str]) -> BTreeSet<(String, String, String)> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut rights = BTreeSet::new();
    for object in crate::roles::build_component_roles(&crate::roles::Granted::default()) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        for rule in object["rules"].as_array().into_iter().flatten().filter(|_| roles.contains(&name)) {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    let verbs = texts(&rule["verbs"]);
                    rights.extend(verbs.into_iter().map(|verb| (group.clone(), resource.clone(), verb)));
                }
            }
        }
    }
    rights
}

/// What a request needs: group, resource, verb.
fn needs(request: &str) -> (String, String, String) {
    let path = request.strip_prefix("GET /").unwrap_or_else(|| panic!("{request} writes"));
    let parts: Vec<&str> = path.split('/').collect();
    let (group, rest) = if parts[0] == "api" { ("", &parts[2..]) } else { (parts[1], &parts[3..]) };
    let rest = if rest[0] == "namespaces" && rest.len() > 2 { &rest[2..] } else { rest };
    let (resource, verb) = match rest {
        [resource] => ((*resource).to_owned(), "list"),
        [resource, _] => ((*resource).to_owned(), "get"),
        [resource, _, sub, ..] => (format!("{resource}/{sub}"), "get"),
        _ => panic!("{request} is no request for objects"),
    };
    (group.to_owned(), resource, verb.to_owned())
}

/// With all of them the answers lack nothing; without the members' own, their summaries do.
#[tokio::test]
async fn the_readers_roles_allow_all_that_is_read_and_nothing_is_written() {
    let (client, asked) = server(|_| None);
    read_live(&client, Some("ns"), None).await.unwrap();
    read_undecided(&client, None, None).await.unwrap();
    let both = rights(&["caldera-reader", "caldera-member-reader"]);
    let alone = rights(&["caldera-reader"]);
    let mut through = 0;
    for request in asked.lock().unwrap().iter() {
        let needed = needs(request);
        assert!(both.contains(&needed), "{request} needs {needed:?}");
        through += usize::from(!alone.contains(&needed));
        assert!(alone.contains(&needed) || needed.1 == "clusters/proxy", "{request}");
    }
    assert!(through > 0 && both.iter().all(|(.., verb)| ["get", "list", "watch"].contains(&verb.as_str())));
}

/// Members it reads from what their collectors publish.
#[tokio::test]
async fn the_consoles_role_allows_all_that_its_forecasts_read_but_members() {
    let (client, asked) = server(|_| None);
    read_undecided(&client, None, None).await.unwrap();
    let console = rights(&["caldera-console"]);
    for request in asked.lock().unwrap().iter() {
        let needed = needs(request);
        assert!(console.contains(&needed) || needed.1 == "clusters/proxy", "{request} needs {needed:?}");
    }
}

#[tokio::test]
async fn a_queue_that_may_not_be_seen_is_not_missing() {
    let (client, _) = server(|path| path.ends_with("/queues").then_some(403));
    let mut live = read_live(&client, Some("ns"), None).await.unwrap();
    let key = find_binding(&live.controller, &job()).unwrap();
    let seen = explain_job(&mut live.controller, &key, live.now).unwrap();
    let states: Vec<&str> = seen.path.iter().filter(|step| step.queue.as_str() == "q").map(|step| step.state).collect();
    assert_eq!(states, ["NotVisible"]);
}

#[tokio::test]
async fn credentials_that_are_refused_are_told_apart_from_rights_that_lack() {
    let why = async |code: fn(&str) -> Option<u16>| {
        let (client, _) = server(code);
        read_live(&client, Some("ns"), None).await.unwrap().gaps[0].why.clone()
    };
    let refused = why(|path| path.ends_with("/queues").then_some(401)).await;
    assert!(refused.starts_with("your credentials were refused: no "), "{refused}");
    let forbidden = why(|path| path.ends_with("/queues").then_some(403)).await;
    assert!(forbidden.starts_with("no "), "{forbidden}");
}

#[tokio::test]
async fn a_server_that_fails_is_an_error_and_not_an_empty_answer() {
    let (client, _) = server(|path| path.ends_with("resourcebindings").then_some(500));
    let error = read_live(&client, None, None).await.unwrap_err();
    assert!(format!("{error:#}").contains("failed to list resourcebindings.work.karmada.io"), "{error:#}");
}

#[tokio::test]
async fn a_member_that_is_not_ready_leaves_expected_starts_to_all_others() {
    let forecast = async |second: &'static str| {
        let (client, _) = serve(move |path| match path {
            path if path.ends_with("/configmaps/caldera-past-runs") => (404, missing()),
            path if path.contains("/configmaps/") => (200, chosen("{}")),
            path if path.contains("/clusters/m2/") => (503, missing()),
            path if path.ends_with("/clusters/m1/proxy/api/v1/nodes") => {
                let ready = json!({"type": "Ready", "status": "True"});
                let status = json!({"allocatable": {"cpu": "1", "pods": "10"}, "conditions": [ready]});
                (200, list(json!([{"metadata": {"name": "n"}, "status": status}])))
            }
            path if path.ends_with("/queues") => {
                (200, list(json!([{"metadata": {"name": "q"}, "spec": {"capability": {"cpu": "8"}}}])))
            }
            path if path.ends_with("/clusters") => {
                let mut clusters = items(path);
                let mut other = clusters[0].clone();
                other["metadata"]["name"] = "m2".into();
                other["status"]["conditions"][0]["status"] = second.into();
                clusters.as_array_mut().unwrap().push(other);
                (200, list(clusters))
            }
            path => (200, list(items(path))),
        });
        let mut live = read_undecided(&client, Some("ns"), None).await.unwrap();
        let forecast = Forecast::of_live(&mut live, Millis::from_secs(60), FOR_A_LIST).await.unwrap();
        forecast.find_start(&job()).unwrap().basis.clone()
    };
    assert_eq!(
        forecast("False").await,
        "not within 90 days, as far as is known of what runs; nothing is taken to start in m2, not ready"
    );
    let basis = forecast("True").await;
    assert!(basis.starts_with("member m2 can not be read: "), "it takes jobs, and nobody knows which: {basis}");
}
