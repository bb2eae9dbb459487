//! MutatingAdmissionPolicies in force and their validation, held to answers of a kube-apiserver 1.36.1:
//! `apiserver/pkg/admission/plugin/policy/mutating`, `pkg/apis/admissionregistration/validation`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;

use axum::Router;
use embedded_apiserver::{ApiServer, Options};
use serde_json::{Value, json};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn policy(name: &str, mutations: &Value, spec: &Value) -> Value {
    let mut full = json!({"reinvocationPolicy": "Never", "mutations": mutations,
        "matchConstraints": {"resourceRules": [{"apiGroups": ["", "apps"], "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"], "resources": ["configmaps", "deployments"]}]}});
    full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name}, "spec": full})
}

fn binding(name: &str, spec: &Value) -> Value {
    let mut full = json!({"policyName": name});
    full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": full})
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

async fn post(router: &Router, path: &str, body: Value) -> (u16, Value) {
    let (status, body, _) = client::send_with(router, "POST", path, &[], body).await;
    (status, body)
}

async fn put_in_force(router: &Router, name: &str, mutations: Value, spec: Value, bound: Value) {
    let policies = format!("{GROUP}/mutatingadmissionpolicies");
    let (status, body) = post(router, &policies, policy(name, &mutations, &spec)).await;
    assert_eq!(status, 201, "{body}");
    let bindings = format!("{GROUP}/mutatingadmissionpolicybindings");
    let (status, body) = post(router, &bindings, binding(name, &bound)).await;
    assert_eq!(status, 201, "{body}");
}

/// What becomes of a ConfigMap `m` under one policy `p`.
async fn write_under(mutations: Value, spec: Value) -> (u16, Value) {
    let router = ApiServer::new(Options::default()).router();
    put_in_force(&router, "p", mutations, spec, json!({})).await;
    post(&router, MAPS, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}})).await
}

#[tokio::test]
async fn mutations_follow_one_another_and_nobody_owns_what_they_set() {
    let mutations = json!([apply("Object{data: {'a': '1'}}"), apply("Object{data: {'b': object.data.a + '2'}}")]);
    let (status, body) = write_under(mutations, json!({})).await;
    assert_eq!((status, &body["data"]), (201, &json!({"a": "1", "b": "12"})), "{body}");
    assert!(body["metadata"].get("managedFields").is_none(), "{body}");
}

#[tokio::test]
async fn a_json_patch_is_applied_and_a_test_that_fails_changes_nothing() {
    let add = "[JSONPatch{op: 'add', path: '/metadata/labels', value: {}},
        JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('x.io/y'), value: 'z'}]";
    let refused = "[JSONPatch{op: 'test', path: '/kind', value: 'X'}, JSONPatch{op: 'add', path: '/data', value: {}}]";
    let (status, body) = write_under(json!([patch(add), patch(refused)]), json!({})).await;
    assert_eq!((status, &body["metadata"]["labels"]), (201, &json!({"x.io/y": "z"})), "{body}");
}

/// 403 with the reason Invalid; what is wrong with the configuration itself keeps Forbidden.
#[tokio::test]
async fn a_mutation_that_fails_denies_the_write() {
    for (mutation, why) in [
        (
            apply("Object{nope: 1}"),
            "error applying patch: failed to convert patch object to typed object: .nope: \
            field not declared in schema",
        ),
        (
            apply("Object{data: {'a': object.data.x}}"),
            "expression 'Object{data: {'a': object.data.x}}' resulted in \
            error: no such key: data",
        ),
        (
            apply("Object{metadata: Object.wrong{name: 'x'}}"),
            "type mismatch: unexpected type name \"Object.wrong\", \
            expected \"Object.metadata\", which matches field name path from root Object type",
        ),
        (
            patch("[JSONPatch{op: 'remove', path: '/nope'}]"),
            "JSON Patch: error in remove for path: '/nope': Unable to \
            remove nonexistent key: nope: missing value",
        ),
        (patch("[JSONPatch{op: 'odd', path: '/data'}]"), "JSON Patch: Unexpected kind: odd"),
    ] {
        let (status, body) = write_under(json!([mutation]), json!({})).await;
        let text = format!("policy 'p' with binding 'p' denied request: {why}");
        let wanted = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403,
            "reason": "Invalid", "message": text,
            "details": {"name": "m", "kind": "configmaps", "causes": [{"message": text}]}});
        assert_eq!((status, body), (403, wanted));
        let (status, _) = write_under(json!([mutation]), json!({"failurePolicy": "Ignore"})).await;
        assert_eq!(status, 201);
    }
    let spec = json!({"paramKind": {"apiVersion": "nope.io/v1", "kind": "Nope"}});
    let (_, body) = write_under(json!([apply("Object{}")]), spec).await;
    assert_eq!(body["reason"], "Forbidden");
    assert!(body["message"].as_str().unwrap().starts_with("policy \"p\" denied request: failed to configure policy:"));
}

#[tokio::test]
async fn what_a_patch_makes_must_be_decoded() {
    for (operation, text) in [
        ("path: '/bogus', value: 1", "Internal error occurred: strict decoding error: unknown field \"bogus\""),
        (
            "path: '/data', value: 'x'",
            "Internal error occurred: json: cannot unmarshal string into Go struct field \
            ConfigMap.data of type map[string]string",
        ),
    ] {
        let mutation = patch(&format!("[JSONPatch{{op: 'add', {operation}}}]"));
        let (status, body) = write_under(json!([mutation]), json!({"failurePolicy": "Ignore"})).await;
        assert_eq!((status, body["message"].as_str().unwrap()), (500, text));
    }
}

#[tokio::test]
async fn only_lists_and_maps_that_merge_can_be_changed() {
    let router = ApiServer::new(Options::default()).router();
    put_in_force(&router, "p", json!([apply("Object{spec: Object.spec{replicas: 5}}")]), json!({}), json!({})).await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let (_, body) = post(&router, path, deployment.clone()).await;
    assert_eq!(body["spec"]["replicas"], 5, "{body}");
    let selector = "Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'x': 'y'}}}}";
    put_in_force(&router, "q", json!([apply(selector)]), json!({}), json!({})).await;
    let (_, body) = post(&router, path, deployment).await;
    let text = "policy 'q' with binding 'q' denied request: error applying patch: invalid ApplyConfiguration: may not \
        mutate atomic arrays, maps or structs: .spec.selector";
    assert_eq!(body["message"], text);
}

#[tokio::test]
async fn a_policy_that_wants_to_sees_the_object_again() {
    let router = ApiServer::new(Options::default()).router();
    let looks = "Object{data: {'n': has(object.data) && has(object.data.b) ? 'seen' : 'not'}}";
    let spec = json!({"reinvocationPolicy": "IfNeeded"});
    put_in_force(&router, "a", json!([apply(looks)]), spec, json!({})).await;
    put_in_force(&router, "b", json!([apply("Object{data: {'b': 'x'}}")]), json!({}), json!({})).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    let (_, body) = post(&router, MAPS, map).await;
    assert_eq!(body["data"], json!({"b": "x", "n": "seen"}), "{body}");
}

#[tokio::test]
async fn a_policy_reads_its_parameter_and_its_variables() {
    let router = ApiServer::new(Options::default()).router();
    let parameter = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "par"}, "data": {"a": "b"}});
    assert_eq!(post(&router, MAPS, parameter).await.0, 201);
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [{"name": "v", "expression": "params.data.a + object.metadata.name"}],
        "matchConditions": [{"name": "c", "expression": "request.operation == 'CREATE'"}]});
    let bound = json!({"paramRef": {"name": "par", "parameterNotFoundAction": "Deny"}});
    put_in_force(&router, "p", json!([apply("Object{data: {'v': variables.v}}")]), spec, bound).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    let (_, body) = post(&router, MAPS, map).await;
    assert_eq!(body["data"], json!({"v": "bm"}), "{body}");
}

#[tokio::test]
async fn a_policy_is_validated() {
    let router = ApiServer::new(Options::default()).router();
    let path = format!("{GROUP}/mutatingadmissionpolicies");
    for (mutations, spec, text) in [
        (json!([]), json!({}), "spec.mutations: Required value: mutations must contain at least one item"),
        (json!([apply("Object{}")]), json!({"reinvocationPolicy": null}), "spec.reinvocationPolicy: Required value"),
        (
            json!([apply("1")]),
            json!({}),
            "spec.mutations[0].applyConfiguration.expression: Invalid value: \"1\": must \
            evaluate to Object but got int",
        ),
        (
            json!([patch("1")]),
            json!({}),
            "spec.mutations[0].jsonPatch.expression: Invalid value: \"1\": must evaluate \
            to list(JSONPatch) but got int",
        ),
        (json!([{}]), json!({}), "spec.mutations[0].patchType: Required value"),
        (
            json!([{"patchType": "JSONPatch"}]),
            json!({}),
            "spec.mutations[0].jsonPatch: Required value: must be \
            specified when patchType is JSONPatch",
        ),
        (
            json!([apply("Foo{}")]),
            json!({}),
            "spec.mutations[0].applyConfiguration.expression: Invalid value: \
            \"Foo{}\": compilation failed: ERROR: <input>:1:4: undeclared reference to 'Foo' (in container '')\n | \
            Foo{}\n | ...^",
        ),
        (
            json!([patch("[JSONPatch{nope: \"odd\"}]")]),
            json!({}),
            "spec.mutations[0].jsonPatch.expression: Invalid \
            value: \"[JSONPatch{nope: \\\"odd\\\"}]\": compilation failed: ERROR: <input>:1:16: expected type of field \
            'nope' is '' but provided type is 'string'\n | [JSONPatch{nope: \"odd\"}]\n | ...............^",
        ),
        (
            json!([apply("Object{}")]),
            json!({"matchConstraints": {"resourceRules": [{"apiGroups": [""],
            "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}]}}),
            "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \
            \"CONNECT\", \"CREATE\", \"UPDATE\"",
        ),
    ] {
        let (status, body) = post(&router, &path, policy("p", &mutations, &spec)).await;
        let wanted = format!("MutatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: {text}");
        assert_eq!((status, body["message"].as_str().unwrap()), (422, wanted.as_str()));
    }
}
