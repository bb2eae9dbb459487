//! `caldera uninstall` against a sandbox: what is left after it.

use caldera_cli::objects::{self, annotation_of, name_of, read_list_at, read_text_at};
use caldera_runtime::watch::api_resource;

use crate::{
    doctor::{OURS, mutating},
    sandbox::{Sandbox, until},
};

#[test]
fn uninstall_leaves_no_gate_closed_and_nothing_of_ours_and_what_runs_runs_on() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(dir.path(), 2);
    sandbox.run_and_wait();
    let pods = running_pods(&sandbox);
    assert!(!pods.is_empty());

    sandbox.fails(&["uninstall", "--yes"], "closed gates hold 1 job back");
    sandbox.fails(&["uninstall", "--open-gates"], "there is nobody to ask");
    let planned = sandbox.succeeds(&["uninstall", "--open-gates", "--dry-run"]);
    assert!(planned.contains("patch resourcebindings.work.karmada.io default/low-priority-job"), "{planned}");
    assert!(sandbox.get(&mutating(), None, OURS).is_some());

    let said = sandbox.succeeds(&["uninstall", "--open-gates", "--yes"]);
    assert!(said.contains("no gate is closed") && said.contains("still running: 1 job;"), "{said}");
    for name in ["low-priority-job", "web-deployment"] {
        let binding = sandbox.binding(name);
        assert!(!binding["metadata"]["annotations"].to_string().contains("caldera.dev"), "{binding:#}");
        assert!(binding["spec"]["suspension"].is_null(), "{binding:#}");
        assert_eq!(binding["spec"]["schedulerName"], "default-scheduler");
    }
    until("karmada-scheduler places what waited", || {
        let binding = sandbox.binding("low-priority-job");
        (!read_list_at(&binding, "/spec/clusters").is_empty()).then_some(()).ok_or(format!("{binding:#}"))
    });
    // The split job has its record and its copies, and no pod of those that ran was touched.
    let split = sandbox.binding("mindspore-cpu-job");
    assert!(annotation_of(&split, "caldera.dev/plan").is_some() && read_list_at(&split, "/spec/clusters").len() == 2);
    let hooks = sandbox.get(&mutating(), None, OURS).unwrap();
    let names: Vec<&str> = read_list_at(&hooks, "/webhooks").iter().map(|hook| read_text_at(hook, "/name")).collect();
    assert_eq!(names, ["works.plan.caldera.dev"]);
    let now = running_pods(&sandbox);
    assert!(pods.iter().all(|pod| now.contains(pod)), "{pods:?} {now:?}");

    sandbox.succeeds(&["job", "delete", "mindspore-cpu", "-n", "default"]);
    until("its binding is gone", || {
        let binding = sandbox.binding("mindspore-cpu-job");
        binding.is_null().then_some(()).ok_or(format!("{binding:#}"))
    });
    let said = sandbox.succeeds(&["uninstall", "--yes", "--crds"]);
    assert!(said.contains("nothing of Caldera is left"), "{said}");
    nothing_is_left(&sandbox);
    // Queues stay in the members: what runs there needs them.
    let queues = sandbox.list(&sandbox.member(), &objects::queue_resource());
    assert!(queues.iter().any(|queue| name_of(queue) == "research"), "{queues:#?}");
    assert!(sandbox.succeeds(&["uninstall"]).contains("there is nothing of Caldera"));
}

/// UIDs of pods that run in the first member.
fn running_pods(sandbox: &Sandbox) -> Vec<String> {
    let pods = sandbox.list(&sandbox.member(), &api_resource("", "v1", "Pod", "pods"));
    let running = pods.iter().filter(|pod| read_text_at(pod, "/status/phase") == "Running");
    running.map(|pod| read_text_at(pod, "/metadata/uid").to_owned()).collect()
}

fn nothing_is_left(sandbox: &Sandbox) {
    let kinds = [
        mutating(),
        objects::admission_resource("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        objects::admission_resource("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        objects::admission_resource("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
        api_resource(
            "config.karmada.io",
            "v1alpha1",
            "ResourceInterpreterWebhookConfiguration",
            "resourceinterpreterwebhookconfigurations",
        ),
        api_resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles"),
        api_resource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings"),
        api_resource("rbac.authorization.k8s.io", "v1", "Role", "roles"),
        api_resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
        api_resource("policy.karmada.io", "v1alpha1", "ClusterPropagationPolicy", "clusterpropagationpolicies"),
        api_resource("", "v1", "Namespace", "namespaces"),
        api_resource("", "v1", "ConfigMap", "configmaps"),
        api_resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"),
    ];
    for kind in kinds {
        until(&format!("no {} of ours", kind.plural), || {
            let all = sandbox.list(&sandbox.host, &kind);
            let ours: Vec<&str> = all.iter().map(name_of).filter(|name| name.contains("caldera")).collect();
            ours.is_empty().then_some(()).ok_or(format!("{ours:?}"))
        });
    }
    let groups = sandbox.list(&sandbox.host, &objects::pod_group_resource());
    assert!(groups.is_empty(), "{groups:#?}");
    for object in sandbox
        .list(&sandbox.host, &objects::binding_resource())
        .iter()
        .chain(&sandbox.list(&sandbox.host, &objects::queue_resource()))
    {
        assert!(!object.to_string().contains("caldera.dev/"), "{object:#}");
    }
}
