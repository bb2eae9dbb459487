//! The policies that `caldera manifests` prints, in force in an API server, without any webhook.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use axum::{Router, body::Body};
use caldera_crds::{
    manifests::{build_federation_crds, build_karmada_crds, build_volcano_crds},
    queue_access::{build_command_policy, build_hyper_job_policy, build_queue_access_policies},
    trusted::{TrustedWriters, build_admission_policies, build_submission_policy},
};
use embedded_apiserver::{ApiServer, Options, auth::User};
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const JOBS: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs";
const COMMANDS: &str = "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands";
const CRON_JOBS: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/cronjobs";
const HYPER_JOBS: &str = "/apis/training.volcano.sh/v1alpha1/namespaces/default/hyperjobs";
const WORKS: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works";

async fn send(router: &Router, method: &str, path: &str, body: &Value) -> (u16, String) {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let answer = router.clone().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&bytes).into_owned())
}

/// An API server with these policies, and a user who may write everything but queues; he has `verb` on these.
async fn prepare(policies: Vec<Value>, verb: &str, queues: &[&str]) -> (Router, Router) {
    let groups = ["batch.volcano.sh", "bus.volcano.sh", "work.karmada.io"];
    let all = json!({"apiGroups": groups, "resources": ["*"], "verbs": ["*"]});
    let used = json!({
        "apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "resourceNames": queues, "verbs": [verb],
    });
    prepare_with(policies, if queues.is_empty() { json!([all]) } else { json!([all, used]) }).await
}

/// An API server with these policies, and a user with these rules in all namespaces.
async fn prepare_with(policies: Vec<Value>, rules: Value) -> (Router, Router) {
    let server = ApiServer::new(Options::default());
    let (admin, tenant) = (server.router(), server.router_as(User::authenticated("tenant", &[])));
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut objects: Vec<(&str, Value)> = build_karmada_crds()
        .into_iter()
        .chain(build_volcano_crds())
        .chain(build_federation_crds())
        .map(|mut crd| {
            crd.as_object_mut().unwrap().remove("status");
            (definitions, crd)
        })
        .collect();
    objects.push(("/api/v1/namespaces", json!({"metadata": {"name": "karmada-es-m1"}})));
    let roles = format!("{RBAC}/clusterroles");
    let granted = json!({
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tenant"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}],
    });
    for (path, object) in objects {
        assert_eq!(send(&admin, "POST", path, &object).await.0, 201);
    }
    assert_eq!(send(&admin, "POST", &roles, &json!({"metadata": {"name": "tenant"}, "rules": rules})).await.0, 201);
    assert_eq!(send(&admin, "POST", &format!("{RBAC}/clusterrolebindings"), &granted).await.0, 201);
    for policy in policies {
        let is_policy = policy["kind"] == "ValidatingAdmissionPolicy";
        let plural = if is_policy { "policies" } else { "policybindings" };
        let path = format!("/apis/admissionregistration.k8s.io/v1/validatingadmission{plural}");
        let (status, answer) = send(&admin, "POST", &path, &policy).await;
        assert_eq!(status, 201, "{answer}");
    }
    (admin, tenant)
}

fn job(name: &str, queue: &str) -> Value {
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name},
        "spec": {"queue": queue, "minAvailable": 1, "tasks": [{"name": "t", "replicas": 1, "template": {"spec": spec}}]},
    })
}

#[tokio::test]
async fn whoever_names_a_queue_needs_verb_use_on_it() {
    let (admin, tenant) = prepare(build_queue_access_policies(), "use", &["own"]).await;
    let (status, answer) = send(&tenant, "POST", JOBS, &job("a", "other")).await;
    assert_eq!(status, 403, "{answer}");
    assert!(answer.contains("user tenant needs verb use on each queue that is named, such as other"), "{answer}");
    let (status, answer) = send(&tenant, "POST", JOBS, &job("a", "own")).await;
    assert_eq!(status, 201, "{answer}");
    let moved = json!({"spec": {"queue": "other"}});
    assert_eq!(send(&tenant, "PATCH", &format!("{JOBS}/a"), &moved).await.0, 403);
    assert_eq!(send(&admin, "POST", JOBS, &job("b", "other")).await.0, 201);
}

#[tokio::test]
async fn whoever_opens_or_closes_a_queue_by_a_command_needs_verb_update_on_it() {
    let (admin, tenant) = prepare(build_command_policy().into(), "update", &["own"]).await;
    let command = |name: &str, kind: &str, target: &str| {
        let target = json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": kind, "name": target, "uid": "u", "controller": true,
        });
        json!({
            "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": {"name": name},
            "action": "CloseQueue", "target": target,
        })
    };
    let (status, answer) = send(&tenant, "POST", COMMANDS, &command("a", "Queue", "other")).await;
    assert_eq!(status, 403, "{answer}");
    assert!(answer.contains("a Command that targets a Queue needs verb update on that queue"), "{answer}");
    assert_eq!(send(&tenant, "POST", COMMANDS, &command("b", "Queue", "own")).await.0, 201);
    assert_eq!(send(&tenant, "POST", COMMANDS, &command("c", "Job", "other")).await.0, 201, "their own jobs");
    assert_eq!(send(&admin, "POST", COMMANDS, &command("d", "Queue", "other")).await.0, 201);
}

#[tokio::test]
async fn whoever_suspends_or_ends_a_job_by_a_command_needs_verb_update_on_it() {
    let of_jobs = json!({
        "apiGroups": ["batch.volcano.sh"], "resources": ["jobs"], "resourceNames": ["own"], "verbs": ["update"],
    });
    let of_commands = json!({"apiGroups": ["bus.volcano.sh"], "resources": ["commands"], "verbs": ["*"]});
    let (admin, tenant) = prepare_with(build_command_policy().into(), json!([of_jobs, of_commands])).await;
    let command = |name: &str, target: &str| {
        let target = json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": target, "uid": "u", "controller": true,
        });
        json!({
            "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": {"name": name},
            "action": "TerminateJob", "target": target,
        })
    };
    let (status, answer) = send(&tenant, "POST", COMMANDS, &command("a", "other")).await;
    assert_eq!(status, 403, "{answer}");
    assert!(answer.contains("a Command that targets a Job needs verb update on that job"), "{answer}");
    assert_eq!(send(&tenant, "POST", COMMANDS, &command("b", "own")).await.0, 201);
    let moved = json!({"target": {"name": "other"}});
    assert_eq!(send(&tenant, "PATCH", &format!("{COMMANDS}/b"), &moved).await.0, 403);
    assert_eq!(send(&tenant, "POST", COMMANDS, &command("c", "")).await.0, 403, "all jobs are nobody's");
    assert_eq!(send(&admin, "POST", COMMANDS, &command("d", "other")).await.0, 201);
}

fn hyper_job(name: &str, queue: &str) -> Value {
    json!({
        "apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob", "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "a", "templateSpec": job("j", queue)["spec"]}]},
    })
}

/// The controller makes its jobs, and it may.
#[tokio::test]
async fn a_hyper_job_gives_nobody_a_job_or_a_queue_that_he_could_not_have_himself() {
    let of_hyper_jobs = json!({"apiGroups": ["training.volcano.sh"], "resources": ["hyperjobs"], "verbs": ["*"]});
    let (admin, tenant) = prepare_with(build_hyper_job_policy().into(), json!([of_hyper_jobs])).await;
    let (status, answer) = send(&tenant, "POST", HYPER_JOBS, &hyper_job("a", "q")).await;
    assert_eq!(status, 403, "{answer}");
    assert!(answer.contains("it needs verb create on jobs.batch.volcano.sh"), "{answer}");
    assert_eq!(send(&admin, "POST", HYPER_JOBS, &hyper_job("a", "q")).await.0, 201);
    let more = json!({"spec": {"minAvailable": 1}});
    assert_eq!(send(&tenant, "PATCH", &format!("{HYPER_JOBS}/a"), &more).await.0, 403);
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send(&tenant, "PATCH", &format!("{HYPER_JOBS}/a"), &labelled).await.0, 200);

    let of_jobs = json!({"apiGroups": ["batch.volcano.sh"], "resources": ["jobs"], "verbs": ["create"]});
    let of_queue = json!({
        "apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "resourceNames": ["own"], "verbs": ["use"],
    });
    let policies = build_queue_access_policies().into_iter().chain(build_hyper_job_policy()).collect();
    let (_, tenant) = prepare_with(policies, json!([of_hyper_jobs, of_jobs, of_queue])).await;
    let (status, answer) = send(&tenant, "POST", HYPER_JOBS, &hyper_job("a", "other")).await;
    assert_eq!(status, 403, "{answer}");
    assert!(answer.contains("such as other"), "{answer}");
    assert_eq!(send(&tenant, "POST", HYPER_JOBS, &hyper_job("a", "own")).await.0, 201);
}

#[tokio::test]
async fn a_cron_job_gives_nobody_a_job_or_a_queue_that_he_could_not_have_himself() {
    let cron_job = |name: &str, queue: &str| {
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob", "metadata": {"name": name},
            "spec": {"schedule": "@daily", "jobTemplate": {"spec": job("j", queue)["spec"]}},
        })
    };
    let of_cron_jobs = json!({"apiGroups": ["batch.volcano.sh"], "resources": ["cronjobs"], "verbs": ["*"]});
    let (admin, tenant) = prepare_with(build_hyper_job_policy().into(), json!([of_cron_jobs])).await;
    let (status, answer) = send(&tenant, "POST", CRON_JOBS, &cron_job("a", "q")).await;
    assert_eq!(status, 403, "{answer}");
    assert!(answer.contains("it needs verb create on jobs.batch.volcano.sh"), "{answer}");
    assert_eq!(send(&admin, "POST", CRON_JOBS, &cron_job("a", "q")).await.0, 201);
    let sooner = json!({"spec": {"schedule": "@hourly"}});
    assert_eq!(send(&tenant, "PATCH", &format!("{CRON_JOBS}/a"), &sooner).await.0, 403);

    let of_jobs = json!({"apiGroups": ["batch.volcano.sh"], "resources": ["jobs"], "verbs": ["create"]});
    let of_queue = json!({
        "apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "resourceNames": ["own"], "verbs": ["use"],
    });
    let policies = build_queue_access_policies().into_iter().chain(build_hyper_job_policy()).collect();
    let (_, tenant) = prepare_with(policies, json!([of_cron_jobs, of_jobs, of_queue])).await;
    let (status, answer) = send(&tenant, "POST", CRON_JOBS, &cron_job("a", "other")).await;
    assert_eq!(status, 403, "{answer}");
    assert!(answer.contains("such as other"), "{answer}");
    assert_eq!(send(&tenant, "POST", CRON_JOBS, &cron_job("a", "own")).await.0, 201);
}

#[tokio::test]
async fn a_cron_job_of_kubernetes_gives_nobody_a_queue_that_he_could_not_have_himself() {
    let of_cron_jobs = json!({"apiGroups": ["batch"], "resources": ["cronjobs"], "verbs": ["*"]});
    let of_queue = json!({
        "apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "resourceNames": ["own"], "verbs": ["use"],
    });
    let (_, tenant) = prepare_with(build_queue_access_policies(), json!([of_cron_jobs, of_queue])).await;
    let path = "/apis/batch/v1/namespaces/default/cronjobs";
    for (at, queue, want) in [("pod", "other", 403), ("job", "other", 403), ("job", "own", 201), ("pod", "own", 201)] {
        let pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}});
        let mut template = json!({"metadata": {}, "spec": {"template": pod}});
        let place = if at == "job" { &mut template } else { &mut template["spec"]["template"] };
        place["metadata"]["labels"] = json!({"volcano.sh/queue-name": queue});
        let cron_job = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": format!("{at}-{queue}")},
            "spec": {"schedule": "@daily", "jobTemplate": template},
        });
        let (status, answer) = send(&tenant, "POST", path, &cron_job).await;
        assert_eq!(status, want, "{at} {queue}: {answer}");
    }
}

#[tokio::test]
async fn a_tenant_writes_no_work_that_carries_a_workload_and_no_status_of_one() {
    let (admin, tenant) = prepare(build_admission_policies(&TrustedWriters::default()), "use", &[]).await;
    let work = json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": "w"},
        "spec": {"workload": {"manifests": [job("a", "q")]}},
    });
    let (status, answer) = send(&tenant, "POST", WORKS, &work).await;
    assert_eq!(status, 403, "{answer}");
    assert_eq!(send(&admin, "POST", WORKS, &work).await.0, 201);
    let more = json!({"spec": {"workload": {"manifests": [job("b", "q")]}}});
    assert_eq!(send(&tenant, "PATCH", &format!("{WORKS}/w"), &more).await.0, 403);
    let forged = json!({"status": {"manifestStatuses": [{
        "identifier": {"ordinal": 0, "version": "v1alpha1", "kind": "Job", "resource": "jobs", "namespace": "default",
            "name": "a"},
        "status": {"state": {"phase": "Completed"}},
    }]}});
    let (status, answer) = send(&tenant, "PATCH", &format!("{WORKS}/w/status"), &forged).await;
    assert_eq!(status, 403, "{answer}");
    let (status, answer) = send(&admin, "PATCH", &format!("{WORKS}/w/status"), &forged).await;
    assert_eq!(status, 200, "{answer}");
}

#[tokio::test]
async fn a_tenant_submits_in_his_own_name_alone_whatever_becomes_of_the_webhook() {
    let everything = json!([{"apiGroups": ["apps", "batch"], "resources": ["*"], "verbs": ["*"]}]);
    let (admin, tenant) = prepare_with(build_submission_policy(&TrustedWriters::default()).into(), everything).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}});
    let mut of_deployment = template.clone();
    of_deployment["spec"]["restartPolicy"] = "Always".into();
    for (path, api_version, kind, spec) in [
        (
            "/apis/apps/v1/namespaces/default/deployments",
            "apps/v1",
            "Deployment",
            json!({"selector": {"matchLabels": {"a": "b"}}, "template": of_deployment}),
        ),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            "batch/v1",
            "CronJob",
            json!({"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}}),
        ),
    ] {
        let of = |name: &str, annotations: Value| {
            json!({
                "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "annotations": annotations},
                "spec": spec,
            })
        };
        let forged = of("forged", json!({"caldera.dev/submitter": "ada"}));
        let (status, answer) = send(&tenant, "POST", path, &forged).await;
        assert!(status == 403 && answer.contains("nobody writes another's name"), "{kind}: {answer}");
        for (name, annotations) in [("plain", json!({})), ("own", json!({"caldera.dev/submitter": "tenant"}))] {
            let (status, answer) = send(&tenant, "POST", path, &of(name, annotations)).await;
            assert_eq!(status, 201, "{kind} {name}: {answer}");
            for (annotations, want) in [
                (json!({"caldera.dev/submitter": "ada"}), 403),
                (json!({"caldera.dev/submitted": "2026-12-01T08:00:00Z"}), 403),
                (json!({"mine": "kept"}), 200),
            ] {
                let change = json!({"metadata": {"annotations": annotations}});
                for place in ["", "/status"] {
                    let (status, answer) = send(&tenant, "PATCH", &format!("{path}/{name}{place}"), &change).await;
                    let is_dropped =
                        place == "/status" && status == 200 && !answer.contains("caldera.dev/submitted\":");
                    assert!(status == want || is_dropped, "{kind} {name}{place} {annotations}: {answer}");
                }
            }
        }
        assert_eq!(send(&admin, "POST", path, &forged).await.0, 201, "who restores what there was");
    }
}
