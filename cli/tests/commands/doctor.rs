//! `caldera doctor` against a sandbox in which something was broken: what it finds, and that it finds nothing else.

use caldera_cli::{
    manifests::parse_documents,
    objects::{self, read_list_at, read_text_at},
    stack,
};
use caldera_runtime::{
    tls::Authority,
    watch::api_resource,
    write::{Body, Write, execute_write},
};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::sandbox::{QUEUES, SPLIT, Sandbox, until};

pub fn mutating() -> ApiResource {
    objects::admission_resource("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
}

pub const OURS: &str = "queue.caldera.dev";

#[test]
fn the_doctor_finds_what_was_broken_in_a_sandbox_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(dir.path(), 2);
    sandbox.apply(QUEUES);
    sandbox.apply(&SPLIT.replace("sleep 4", "sleep 600"));
    sandbox.until_state("mindspore-cpu", "Running");
    sandbox.is_healthy();

    a_new_job_that_no_policy_selects_is_warned_of(&sandbox);
    // Karmada's account as it is not.
    let (code, out, err) = sandbox.run(&["doctor", "--karmada-user", "nobody", "--karmada-group", "nobodies"]);
    assert!(
        code == Some(1) && out.contains("as nobody, may not create resourcebindings.work.karmada.io"),
        "{out}{err}"
    );
    // One that may write all, and is not trusted.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "karmada"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "cluster-admin"}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "kcm"}]});
    sandbox.wait(stack::apply_object(&sandbox.host, role)).unwrap();
    let (code, out, err) = sandbox.run(&["doctor", "--karmada-user", "kcm", "--karmada-group", "nobodies"]);
    assert!(code == Some(1) && out.contains("as kcm: it is no trusted writer"), "{out}{err}");

    a_webhook_configuration_that_is_gone_or_trusts_another_ca(&sandbox);
    a_queue_that_is_closed_in_a_member(&sandbox);
    an_orphaned_binding(&sandbox);
    a_policy_that_is_not_bound(&sandbox);
    a_kind_that_was_told_after_the_webhook_was_registered(&sandbox);
    a_record_that_can_not_be_read_and_rights_that_were_taken(&sandbox);
}

fn a_new_job_that_no_policy_selects_is_warned_of(sandbox: &Sandbox) {
    let warnings = || {
        let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]);
        let job = json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "selected-later"},
            "spec": {"queue": "research", "minAvailable": 1, "tasks": [{"name": "t", "replicas": 1,
                "template": {"spec": {"restartPolicy": "Never", "containers": containers}}}]},
        });
        let request = http::Request::post("/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs?dryRun=All")
            .header("content-type", "application/json")
            .body(kube::client::Body::from(job.to_string().into_bytes()));
        let answer = sandbox.wait(sandbox.host.send(request.unwrap())).unwrap();
        assert_eq!(answer.status(), 201);
        let all = answer.headers().get_all("warning").iter();
        all.map(|one| one.to_str().unwrap().to_owned()).collect::<String>()
    };
    until("a warning", || {
        let said = warnings();
        if said.contains("no PropagationPolicy or ClusterPropagationPolicy selects") { Ok(()) } else { Err(said) }
    });
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"namespace": "default", "name": "selected-later"},
        "spec": {"placement": {"clusterAffinity": {}}, "resourceSelectors": [
            {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "selected-later"}]},
    });
    sandbox.wait(stack::apply_object(&sandbox.host, policy)).unwrap();
    until("no warning", || {
        let said = warnings();
        if said.is_empty() { Ok(()) } else { Err(said) }
    });
}

fn a_webhook_configuration_that_is_gone_or_trusts_another_ca(sandbox: &Sandbox) {
    let good = sandbox.get(&mutating(), None, OURS).unwrap();
    let restore = || {
        let webhooks = json!({"op": "replace", "path": "/webhooks", "value": good["webhooks"]});
        sandbox.write(&sandbox.host, mutating(), OURS, Body::JsonPatch(json!([webhooks])));
        sandbox.is_healthy();
    };
    use base64::Engine as _;
    let other = Authority::new("somebody-else").unwrap().cert_pem;
    let bundle = base64::engine::general_purpose::STANDARD.encode(other);
    let patch: Vec<Value> = (0..read_list_at(&good, "/webhooks").len())
        .map(|at| json!({"op": "replace", "path": format!("/webhooks/{at}/clientConfig/caBundle"), "value": bundle}))
        .collect();
    sandbox.write(&sandbox.host, mutating(), OURS, Body::JsonPatch(json!(patch)));
    sandbox.doctor_finds("webhooks", "error", "different CA bundles");
    sandbox.doctor_finds("webhooks", "error", "can not call a webhook for a ResourceBinding");
    restore();
    sandbox.write(&sandbox.host, mutating(), OURS, Body::Delete { uid: None });
    sandbox.doctor_finds("webhooks", "error", "no MutatingWebhookConfiguration");
    let again = json!({"apiVersion": good["apiVersion"], "kind": good["kind"], "metadata": {"name": OURS}, "webhooks": good["webhooks"]});
    sandbox.write(&sandbox.host, mutating(), OURS, Body::Create(again));
    sandbox.is_healthy();
}

fn a_queue_that_is_closed_in_a_member(sandbox: &Sandbox) {
    let state = |state: &str| {
        let write = Write {
            resource: objects::queue_resource(),
            namespace: String::new(),
            name: "research".to_owned(),
            subresource: Some("status"),
            body: Body::MergePatch(json!({"status": {"state": state}})),
        };
        sandbox.wait(execute_write(&sandbox.member(), &write)).unwrap();
    };
    state("Closed");
    sandbox.doctor_finds("members", "error", "queue research is Closed in member1 and open on the host");
    state("Open");
    sandbox.is_healthy();
}

fn an_orphaned_binding(sandbox: &Sandbox) {
    let orphan = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": {"name": "gone-job"},
        "spec": {
            "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "default", "name": "gone"},
            "placement": {"clusterAffinity": {}},
        },
    });
    let write = |body| Write {
        resource: objects::binding_resource(),
        namespace: "default".to_owned(),
        name: "gone-job".to_owned(),
        subresource: None,
        body,
    };
    sandbox.wait(execute_write(&sandbox.host, &write(Body::Create(orphan)))).unwrap();
    sandbox.doctor_finds("records", "error", "1 binding without a workload");
    sandbox.wait(execute_write(&sandbox.host, &write(Body::Delete { uid: None }))).unwrap();
    sandbox.is_healthy();
}

fn a_policy_that_is_not_bound(sandbox: &Sandbox) {
    let bindings =
        || objects::admission_resource("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings");
    let name = "workload-bindings.caldera.dev";
    let good = sandbox.get(&bindings(), None, name).unwrap();
    sandbox.write(&sandbox.host, bindings(), name, Body::Delete { uid: None });
    sandbox.doctor_finds("webhooks", "warning", &format!("no ValidatingAdmissionPolicyBinding {name}"));
    let again = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": bindings().kind, "metadata": {"name": name},
        "spec": good["spec"],
    });
    sandbox.write(&sandbox.host, bindings(), name, Body::Create(again));
    sandbox.is_healthy();
}

/// `caldera upgrade` mends what it finds.
fn a_kind_that_was_told_after_the_webhook_was_registered(sandbox: &Sandbox) {
    let reported = include_str!("../../../manifests/kinds/trainrun.yaml");
    let kind = parse_documents(reported).unwrap().into_iter().find(|object| object["kind"] == "WorkloadKind").unwrap();
    sandbox.wait(stack::apply_object(&sandbox.host, kind)).unwrap();
    let unread = "may not list trainruns.training.example.com";
    sandbox.doctor_finds("rights", "error", unread);
    sandbox.doctor_finds("webhooks", "warning", "trainruns.training.example.com is told by a WorkloadKind and unknown");
    let (_, findings) = sandbox.doctor();
    let is_of_upgrade = |one: &Value| read_text_at(one, "/fix").starts_with("caldera upgrade");
    assert!(findings.iter().all(is_of_upgrade), "{findings:#?}");
    sandbox.succeeds(&["upgrade", "--yes", "--wait", "120"]);
    sandbox.is_healthy();
}

fn a_record_that_can_not_be_read_and_rights_that_were_taken(sandbox: &Sandbox) {
    let roles = api_resource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings");
    sandbox.write(&sandbox.host, roles, "caldera-controller", Body::Delete { uid: None });
    sandbox.doctor_finds("rights", "error", "the account of the controller may not");
    // With the controller at rest nobody mends it.

    let add = json!([{"op": "add", "path": "/metadata/annotations/caldera.dev~1eviction", "value": "{"}]);

    let write = Write {
        resource: objects::binding_resource(),
        namespace: "default".to_owned(),
        name: "mindspore-cpu-job".to_owned(),
        subresource: None,
        body: Body::JsonPatch(add),
    };
    sandbox.wait(execute_write(&sandbox.host, &write)).unwrap();
    sandbox.doctor_finds("records", "error", "annotation caldera.dev/eviction of 1 binding can not be read");
}
