//! What the server fills in, as the real one does.

use super::super::TypeSchema;
use super::*;

fn defaulted(group: &str, kind: &str, mut object: Value) -> Value {
    let schema = TypeSchema::builtin(group, "v1", kind);
    schema.default(&mut object);
    let once = object.clone();
    schema.default(&mut object);
    assert_eq!(object, once, "defaulting {kind} twice changes it");
    object
}

#[test]
fn a_deployment_gets_its_strategy_and_its_pods_theirs() {
    let object = json!({"metadata": {"name": "d"}, "spec": {"selector": {}, "template": {"spec": {"containers": [
        {"name": "a", "image": "img:1", "ports": [{"containerPort": 80}]}, {"name": "b", "image": "img"}]}}}});
    let object = defaulted("apps", "Deployment", object);
    let spec = &object["spec"];
    assert_eq!(spec["replicas"], 1);
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}});
    assert_eq!(spec["strategy"], strategy);
    let containers = &spec["template"]["spec"]["containers"];
    assert_eq!(containers[0]["imagePullPolicy"], "IfNotPresent");
    assert_eq!(containers[0]["ports"][0]["protocol"], "TCP");
    assert_eq!(containers[1]["imagePullPolicy"], "Always");
    assert_eq!(spec["template"]["spec"]["restartPolicy"], "Always");
    assert!(spec["template"]["spec"].get("enableServiceLinks").is_none(), "only pods themselves have it");
}

#[test]
fn a_pod_gets_requests_from_limits() {
    let object = json!({"metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}});
    let object = defaulted("", "Pod", object);
    let requests = &object["spec"]["containers"][0]["resources"]["requests"];
    assert_eq!(*requests, json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(object["spec"]["enableServiceLinks"], true);
}

#[test]
fn a_secret_turns_string_data_into_data() {
    let object = defaulted("", "Secret", json!({"metadata": {}, "stringData": {"a": "1"}}));
    assert_eq!(object["data"], json!({"a": "MQ=="}));
    assert!(object.get("stringData").is_none());
    assert_eq!(object["type"], "Opaque");
}

#[test]
fn webhooks_services_and_namespaces_get_theirs() {
    let hook = json!({"metadata": {}, "webhooks": [{"name": "a", "clientConfig": {"service": {"name": "s",
        "namespace": "n"}}, "rules": [{"apiGroups": [""]}], "sideEffects": "None"}]});
    let hook = defaulted("admissionregistration.k8s.io", "MutatingWebhookConfiguration", hook);
    assert_eq!(hook["webhooks"][0]["clientConfig"]["service"]["port"], 443);
    assert_eq!(hook["webhooks"][0]["rules"][0]["scope"], "*");
    let service =
        defaulted("", "Service", json!({"metadata": {}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}));
    assert_eq!(service["spec"]["ports"][0], json!({"port": 80, "protocol": "TCP", "targetPort": 80}));
    let namespace = defaulted("", "Namespace", json!({"metadata": {"name": "n"}}));
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "n");
}

#[test]
fn an_account_has_both_its_names_and_an_address_of_a_balancer_its_mode() {
    for name in ["serviceAccountName", "serviceAccount"] {
        let pod = defaulted("", "Pod", json!({"metadata": {}, "spec": {name: "runner", "containers": []}}));
        assert_eq!(
            (&pod["spec"]["serviceAccountName"], &pod["spec"]["serviceAccount"]),
            (&json!("runner"), &json!("runner"))
        );
    }
    let told = |kind: &str| {
        let addresses = json!([{"ip": "10.0.0.1"}, {"hostname": "a"}, {"ip": "10.0.0.2", "ipMode": "Proxy"}]);
        let service =
            json!({"metadata": {}, "spec": {"type": kind}, "status": {"loadBalancer": {"ingress": addresses}}});
        defaulted("", "Service", service)["status"]["loadBalancer"]["ingress"].clone()
    };
    let modes = json!([{"ip": "10.0.0.1", "ipMode": "VIP"}, {"hostname": "a"}, {"ip": "10.0.0.2", "ipMode": "Proxy"}]);
    assert_eq!(told("LoadBalancer"), modes);
    assert_eq!(told("ClusterIP")[0], json!({"ip": "10.0.0.1"}));
}
