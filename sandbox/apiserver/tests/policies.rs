//! ValidatingAdmissionPolicies in force, and who asks: `apiserver/pkg/admission/plugin/policy/validating` (dispatcher,
//! validator), `pkg/apis/admissionregistration/validation`, `apiserver/pkg/endpoints/filters/impersonation`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;

use axum::Router;
use embedded_apiserver::auth::User;
use embedded_apiserver::{ApiServer, Options};
use serde_json::{Value, json};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Answer {
    status: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Answer {
    fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

async fn send_with(router: &Router, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> Answer {
    let (status, body, warnings) = client::send_with(router, method, path, headers, body).await;
    Answer { status, body, warnings }
}

async fn send(router: &Router, method: &str, path: &str, body: Value) -> Answer {
    send_with(router, method, path, &[], body).await
}

fn policy(name: &str, spec: &Value) -> Value {
    let mut full = json!({"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["configmaps"]}]}});
    for (key, value) in spec.as_object().unwrap() {
        full[key] = value.clone();
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name}, "spec": full})
}

fn binding(name: &str, of: &str, spec: &Value) -> Value {
    let mut full = json!({"policyName": of, "validationActions": ["Deny"]});
    for (key, value) in spec.as_object().unwrap() {
        full[key] = value.clone();
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": full})
}

async fn create(router: &Router, body: Value) -> Answer {
    let plural = match body["kind"].as_str().unwrap() {
        "ValidatingAdmissionPolicy" => format!("{GROUP}/validatingadmissionpolicies"),
        "ValidatingAdmissionPolicyBinding" => format!("{GROUP}/validatingadmissionpolicybindings"),
        "ClusterRole" => "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
        "ClusterRoleBinding" => "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(),
        "ConfigMap" => MAPS.to_owned(),
        other => panic!("{other}"),
    };
    send(router, "POST", &plural, body).await
}

async fn accept(router: &Router, body: Value) {
    let answer = create(router, body).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
}

/// A server with one policy and one binding to it.
async fn with_policy(spec: Value, bound: Value) -> Router {
    let router = ApiServer::new(Options::default()).router();
    accept(&router, policy("p", &spec)).await;
    accept(&router, binding("b", "p", &bound)).await;
    router
}

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

async fn grant_all(router: &Router, user: &str) {
    accept(
        router,
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "maps"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]}),
    )
    .await;
    accept(
        router,
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "maps"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]}),
    )
    .await;
}

/// The words of cel-go, as in rules of definitions.
#[tokio::test]
async fn a_function_that_fails_is_told_in_words_of_go() {
    let router =
        with_policy(json!({"validations": [{"expression": "object.data.a.charAt(5) == 'x'"}]}), json!({})).await;
    let refusal = create(&router, map("m", json!({"a": "1"}))).await;
    let wanted = "denied request: expression 'object.data.a.charAt(5) == 'x'' resulted in error: index out of range: 5";
    assert!(refusal.message().ends_with(wanted), "{}", refusal.body);
}

/// `dispatcher.go`: 403 by its text, 422 Invalid by its code, with the text as a cause.
#[tokio::test]
async fn a_denial_names_the_policy_and_the_binding_and_is_invalid() {
    let spec = json!({"validations": [{"expression": "object.data.size == 'small'", "message": "too big"}]});
    let router = with_policy(spec, json!({})).await;
    assert_eq!(create(&router, map("a", json!({"size": "small"}))).await.status, 201);
    let refusal = create(&router, map("b", json!({"size": "big"}))).await;
    let text = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: too big";
    assert_eq!(
        refusal.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 422,
            "reason": "Invalid", "message": format!("configmaps \"b\" is forbidden: {text}"),
            "details": {"name": "b", "kind": "configmaps", "causes": [{"message": text}]}})
    );
    let patched = send(&router, "PATCH", &format!("{MAPS}/a"), json!({"data": {"size": "big"}})).await;
    assert_eq!(patched.status, 422);
}

/// `policy_decision.go` `reasonToCode`.
#[tokio::test]
async fn the_reason_of_a_validation_decides_the_code() {
    for (reason, code) in [("Forbidden", 403), ("RequestEntityTooLarge", 413), ("Invalid", 422)] {
        let spec = json!({"validations": [{"expression": "false", "reason": reason}]});
        let refusal = create(&with_policy(spec, json!({})).await, map("a", json!({}))).await;
        assert_eq!((refusal.status, refusal.body["reason"].as_str().unwrap()), (code, reason));
        assert!(refusal.message().ends_with("denied request: failed expression: false"), "{}", refusal.message());
    }
}

/// A hostile tenant cannot write what a policy keeps for others: the policy sees who asks.
#[tokio::test]
async fn a_policy_sees_the_user_of_a_token_a_router_and_an_impersonation() {
    let alice = User::authenticated("alice", &["devs"]);
    let users = [("alice-token".to_owned(), alice.clone())].into();
    let server = ApiServer::new(Options { users, ..Options::default() });
    let admin = server.router();
    grant_all(&admin, "alice").await;
    let only_admin = "request.userInfo.username == 'admin' || 'system:masters' in request.userInfo.groups";
    let message = "'not for ' + request.userInfo.username + ' of ' + request.userInfo.groups[0]";
    let spec = json!({"validations": [{"expression": only_admin, "messageExpression": message}]});
    accept(&admin, policy("p", &spec)).await;
    accept(&admin, binding("b", "p", &json!({}))).await;
    assert_eq!(create(&admin, map("a", json!({}))).await.status, 201);
    let as_alice = server.router_as(alice);
    let by_router = create(&as_alice, map("b", json!({}))).await;
    let by_token =
        send_with(&admin, "POST", MAPS, &[("authorization", "Bearer alice-token")], map("b", json!({}))).await;
    let headers = [("impersonate-user", "alice"), ("impersonate-group", "devs")];
    let impersonated = send_with(&admin, "POST", MAPS, &headers, map("b", json!({}))).await;
    for refusal in [by_router, by_token, impersonated] {
        assert_eq!(refusal.status, 422, "{}", refusal.body);
        assert!(refusal.message().ends_with("denied request: not for alice of devs"), "{}", refusal.message());
    }
    let other = send_with(&as_alice, "GET", "/api/v1/nodes", &[], Value::Null).await;
    assert_eq!(other.status, 403);
}

/// A policy without a binding, or with one for other namespaces, says nothing.
#[tokio::test]
async fn a_policy_is_in_force_through_bindings_alone() {
    let router = ApiServer::new(Options::default()).router();
    accept(&router, policy("p", &json!({"validations": [{"expression": "false"}]}))).await;
    assert_eq!(create(&router, map("a", json!({}))).await.status, 201);
    let elsewhere = json!({"matchResources": {"namespaceSelector": {"matchLabels": {"policed": "yes"}}}});
    accept(&router, binding("b", "p", &elsewhere)).await;
    assert_eq!(create(&router, map("b", json!({}))).await.status, 201);
    let label = json!({"metadata": {"labels": {"policed": "yes"}}});
    assert_eq!(send(&router, "PATCH", "/api/v1/namespaces/default", label).await.status, 200);
    assert_eq!(create(&router, map("c", json!({}))).await.status, 422);
    let gone = send(&router, "DELETE", &format!("{GROUP}/validatingadmissionpolicybindings/b"), Value::Null).await;
    assert_eq!(gone.status, 200);
    assert_eq!(create(&router, map("c", json!({}))).await.status, 201);
}

/// `matching.go`: subresources are named with a slash, excluded rules win, names narrow a rule.
#[tokio::test]
async fn rules_name_subresources_exclusions_and_names() {
    let rule = |resources: Value, names: Value| {
        json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": resources,
            "resourceNames": names}])
    };
    let constraints = json!({"resourceRules": rule(json!(["*/*"]), json!([])),
        "excludeResourceRules": rule(json!(["configmaps"]), json!(["free"]))});
    let router = with_policy(
        json!({"matchConstraints": constraints, "validations": [{"expression": "request.?subResource.orValue('none') == 'x'",
            "messageExpression": "'sub ' + request.?subResource.orValue('none')"}]}),
        json!({"matchResources": {"resourceRules": rule(json!(["configmaps", "deployments/scale"]), json!([]))}}),
    )
    .await;
    assert_eq!(create(&router, map("free", json!({}))).await.status, 201);
    assert_eq!(create(&router, map("bound", json!({}))).await.status, 422);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(send(&router, "POST", path, deployment).await.status, 201);
    let scaled = send(&router, "PATCH", &format!("{path}/d/scale"), json!({"spec": {"replicas": 2}})).await;
    assert_eq!(scaled.status, 422, "{}", scaled.body);
    assert!(scaled.message().ends_with("denied request: sub scale"), "{}", scaled.message());
}

/// `composition.go`: variables see the ones before them and are computed only where they are read.
#[tokio::test]
async fn variables_build_on_each_other_and_fail_where_they_are_read() {
    let spec = json!({
        "variables": [
            {"name": "data", "expression": "has(object.data) ? object.data : {}"},
            {"name": "size", "expression": "int(variables.data.size)"},
            {"name": "unused", "expression": "object.no.such.field"},
        ],
        "validations": [{"expression": "!('size' in variables.data) || variables.size < 10",
            "messageExpression": "'size ' + string(variables.size)"}],
    });
    let router = with_policy(spec, json!({})).await;
    assert_eq!(create(&router, map("none", json!({}))).await.status, 201);
    assert_eq!(create(&router, map("small", json!({"size": "3"}))).await.status, 201);
    let refusal = create(&router, map("big", json!({"size": "30"}))).await;
    assert!(refusal.message().ends_with("denied request: size 30"), "{}", refusal.message());
    let broken = with_policy(
        json!({"variables": [{"name": "x", "expression": "object.no.such"}], "validations": [{"expression": "variables.x == 1"}]}),
        json!({}),
    )
    .await;
    let refusal = create(&broken, map("a", json!({}))).await;
    let text = "denied request: expression 'variables.x == 1' resulted in error: composited variable \"x\" fails to \
        evaluate: no such key: no";
    assert!(refusal.message().ends_with(text), "{}", refusal.message());
}

/// A field of what is not there is an error, and an error denies unless the policy says Ignore.
#[tokio::test]
async fn an_error_counts_as_the_failure_policy_says() {
    let spec = |policy: &str| json!({"failurePolicy": policy, "validations": [{"expression": "object.metadata.labels.team == 'a'"}]});
    let refusal = create(&with_policy(spec("Fail"), json!({})).await, map("a", json!({}))).await;
    let text = "denied request: expression 'object.metadata.labels.team == 'a'' resulted in error: no such key: labels";
    assert!(refusal.message().ends_with(text), "{}", refusal.message());
    let ignoring = with_policy(spec("Ignore"), json!({})).await;
    assert_eq!(create(&ignoring, map("a", json!({}))).await.status, 201);
    // On a delete there is no object at all.
    let deleting = with_policy(spec("Fail"), json!({})).await;
    send(&deleting, "DELETE", &format!("{GROUP}/validatingadmissionpolicybindings/b"), Value::Null).await;
    assert_eq!(create(&deleting, map("a", json!({}))).await.status, 201);
    accept(&deleting, binding("b", "p", &json!({}))).await;
    let refusal = send(&deleting, "DELETE", &format!("{MAPS}/a"), Value::Null).await;
    assert!(refusal.message().ends_with("no such key: metadata"), "{}", refusal.message());
}

#[tokio::test]
async fn a_condition_that_is_false_leaves_the_policy_out() {
    let spec = json!({
        "matchConditions": [{"name": "not-system", "expression": "!request.userInfo.username.startsWith('system:')"},
            {"name": "labelled", "expression": "has(object.metadata.labels) && 'x' in object.metadata.labels"}],
        "validations": [{"expression": "false"}],
    });
    let router = with_policy(spec, json!({})).await;
    assert_eq!(create(&router, map("a", json!({}))).await.status, 201);
    let mut labelled = map("b", json!({}));
    labelled["metadata"]["labels"] = json!({"x": ""});
    assert_eq!(create(&router, labelled).await.status, 422);
}

#[tokio::test]
async fn warn_warns_and_audit_is_silent() {
    let spec = json!({"validations": [{"expression": "false", "message": "mind this"}]});
    let router = with_policy(spec, json!({"validationActions": ["Warn", "Audit"]})).await;
    let answer = create(&router, map("a", json!({}))).await;
    let text = "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': mind this\"";
    assert_eq!((answer.status, answer.warnings), (201, vec![text.to_owned()]));
}

#[tokio::test]
async fn parameters_and_the_namespace_are_seen() {
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "other", "expression": "object.metadata.name != 'limits'"}],
        "validations": [
            {"expression": "int(object.data.n) <= int(params.data.most)", "messageExpression": "'at most ' + params.data.most"},
            {"expression": "namespaceObject.metadata.name == 'default'"},
        ],
    });
    let bound = json!({"paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}});
    let router = with_policy(spec, bound).await;
    let refusal = create(&router, map("a", json!({"n": "1"}))).await;
    let text = "denied request: failed to configure binding: no params found for policy binding with `Deny` \
        parameterNotFoundAction";
    assert!(refusal.message().ends_with(text), "{}", refusal.message());
    send(&router, "DELETE", &format!("{GROUP}/validatingadmissionpolicybindings/b"), Value::Null).await;
    accept(&router, map("limits", json!({"most": "5"}))).await;
    let bound = json!({"paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}});
    accept(&router, binding("b", "p", &bound)).await;
    assert_eq!(create(&router, map("a", json!({"n": "1"}))).await.status, 201);
    let refusal = create(&router, map("b", json!({"n": "9"}))).await;
    assert!(refusal.message().ends_with("denied request: at most 5"), "{}", refusal.message());
}

/// `Dispatch`: the policy itself is broken, whatever its binding says of parameters.
#[tokio::test]
async fn a_kind_of_parameters_that_is_not_there_is_the_fault_of_the_policy() {
    let spec = |failure: &str| {
        let kind = json!({"apiVersion": "a.io/v1", "kind": "Nope"});
        json!({"paramKind": kind, "failurePolicy": failure, "validations": [{"expression": "false"}]})
    };
    let router = with_policy(spec("Fail"), json!({"validationActions": ["Warn"]})).await;
    let refusal = create(&router, map("a", json!({}))).await;
    let text = "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource \
        referenced by paramKind: 'a.io/v1, Kind=Nope'";
    assert!(refusal.message().ends_with(text), "{}", refusal.message());
    let router = with_policy(spec("Ignore"), json!({})).await;
    assert_eq!(create(&router, map("a", json!({}))).await.status, 201);
}

/// `library/authz.go`: what the asking user may do is asked of RBAC.
#[tokio::test]
async fn expressions_ask_the_authorizer() {
    let server = ApiServer::new(Options::default());
    let admin = server.router();
    grant_all(&admin, "alice").await;
    let spec = json!({"validations": [{"expression": "authorizer.requestResource.check('create').allowed() && \
        authorizer.group('').resource('secrets').namespace('default').check('get').allowed()"}]});
    accept(&admin, policy("p", &spec)).await;
    accept(&admin, binding("b", "p", &json!({}))).await;
    assert_eq!(create(&admin, map("a", json!({}))).await.status, 201);
    let alice = server.router_as(User::authenticated("alice", &[]));
    assert_eq!(create(&alice, map("b", json!({}))).await.status, 422);
}

async fn problems(spec: Value) -> Vec<String> {
    let router = ApiServer::new(Options::default()).router();
    let refusal = create(&router, policy("p", &spec)).await;
    let causes = refusal.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    causes.iter().map(|c| format!("{}: {}", text(&c["field"]), text(&c["message"]))).collect()
}

/// `validation.go`: a policy that does not compile is refused when it is written.
#[tokio::test]
async fn a_policy_that_does_not_compile_is_refused() {
    let of = |expression: &str| json!({"validations": [{"expression": expression}]});
    let first = |found: Vec<String>| found.into_iter().next().unwrap_or_default();
    for (expression, text) in [
        ("foo.bar == 1", "undeclared reference to 'foo' (in container '')"),
        ("request.nope == 'a'", "undefined field 'nope'"),
        ("variables.x == 1", "undeclared reference to 'variables' (in container '')"),
        ("params.x == 1", "undeclared reference to 'params' (in container '')"),
        ("object.spec.size", "must evaluate to bool but got dyn"),
        ("1 + 1", "must evaluate to bool but got int"),
        ("object.frobnicate()", "undeclared reference to 'frobnicate' (in container '')"),
        ("1 +", "compilation failed: ERROR: <input>:1:"),
        ("Object{}.x == 1", "undeclared reference to 'Object' (in container '')"),
    ] {
        let found = first(problems(of(expression)).await);
        assert!(found.starts_with("spec.validations[0].expression: Invalid value: "), "{expression}: {found}");
        assert!(found.contains(text), "{expression}: {found}");
    }
    let found = problems(json!({"validations": []})).await;
    assert_eq!(
        found[0],
        "spec.validations: Required value: validations or auditAnnotations must contain at least one item"
    );
    let found = problems(json!({"matchConstraints": {}, "validations": [{"expression": "true"}]})).await;
    assert_eq!(found, ["spec.matchConstraints.resourceRules: Required value"]);
    let found = problems(json!({"validations": [{"expression": "true", "reason": "Nope", "message": "a\nb",
        "messageExpression": "1"}]}))
    .await;
    assert_eq!(
        found,
        [
            "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int",
            "spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
            "spec.validations[0].reason: Unsupported value: \"Nope\": supported values: \"Forbidden\", \"Invalid\", \
                \"RequestEntityTooLarge\"",
        ]
    );
}

#[tokio::test]
async fn a_binding_without_actions_or_with_contrary_ones_is_refused() {
    let router = ApiServer::new(Options::default()).router();
    let refusal =
        create(&router, binding("b", "", &json!({"validationActions": ["Deny", "Warn"], "paramRef": {}}))).await;
    assert_eq!(refusal.status, 422);
    let fields: Vec<&str> =
        refusal.body["details"]["causes"].as_array().unwrap().iter().map(|c| c["field"].as_str().unwrap()).collect();
    assert_eq!(
        fields,
        ["spec.policyName", "spec.paramRef", "spec.paramRef.parameterNotFoundAction", "spec.validationActions"]
    );
}

#[tokio::test]
async fn a_policy_gets_its_defaults() {
    let router = ApiServer::new(Options::default()).router();
    let made = create(&router, policy("p", &json!({"validations": [{"expression": "true"}]}))).await.body;
    let spec = &made["spec"];
    assert_eq!(
        (&spec["failurePolicy"], &spec["matchConstraints"]["matchPolicy"]),
        (&json!("Fail"), &json!("Equivalent"))
    );
    assert_eq!(spec["matchConstraints"]["namespaceSelector"], json!({}));
    assert_eq!(spec["matchConstraints"]["resourceRules"][0]["scope"], "*");
    assert_eq!((&made["metadata"]["generation"], &made["status"]), (&json!(1), &json!({})));
}

/// A policy that never ends is ended, and one that breaks the interpreter denies.
#[tokio::test]
async fn an_expression_has_a_budget_and_never_takes_the_server_down() {
    let endless = "[0,1,2,3,4,5,6,7,8,9]";
    let nested = format!(
        "{endless}.all(a, {endless}.all(b, {endless}.all(c, {endless}.all(d, {endless}.all(e, {endless}.all(f, \
         a + b + c + d + e + f >= 0))))))"
    );
    let router = with_policy(json!({"validations": [{"expression": nested}]}), json!({})).await;
    let refusal = create(&router, map("a", json!({}))).await;
    assert!(refusal.message().ends_with("operation cancelled: actual cost limit exceeded"), "{}", refusal.message());
    let doubling = "['xxxxxxxxxxxxxxxx'].map(a, a+a+a+a+a+a+a+a).map(b, b+b+b+b+b+b+b+b).map(c, c+c+c+c+c+c+c+c)\
        .map(d, d+d+d+d+d+d+d+d).map(e, e+e+e+e+e+e+e+e).map(f, f+f+f+f+f+f+f+f).map(g, g+g+g+g+g+g+g+g)\
        .map(h, h+h+h+h+h+h+h+h).map(i, i+i+i+i+i+i+i+i).map(j, j+j+j+j+j+j+j+j).all(k, size(k) > 0)";
    let router = with_policy(json!({"validations": [{"expression": doubling}]}), json!({})).await;
    let refusal = create(&router, map("a", json!({}))).await;
    assert_eq!(refusal.status, 422);
    for strange in [
        "timestamp('9999-12-31T23:59:59Z') + duration('9999999h') == timestamp('2000-01-01T00:00:00Z')",
        "9223372036854775807 + 1 == 0",
        "'a'.matches('(((' + '((') ",
        "[1, 2][7] == 1",
        "{'a': 1}[object] == 1",
    ] {
        let router = with_policy(json!({"validations": [{"expression": strange}]}), json!({})).await;
        let refusal = create(&router, map("a", json!({}))).await;
        assert_eq!(refusal.status, 422, "{strange}: {}", refusal.body);
    }
}

/// Policies do not judge policies, or a bad one could not be mended.
#[tokio::test]
async fn policies_are_exempt_and_webhook_configurations_are_not() {
    let constraints = json!({"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"],
        "resources": ["*/*"]}]});
    let router =
        with_policy(json!({"matchConstraints": constraints, "validations": [{"expression": "false"}]}), json!({}))
            .await;
    accept(&router, policy("q", &json!({"validations": [{"expression": "true"}]}))).await;
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "w"}});
    let path = format!("{GROUP}/validatingwebhookconfigurations");
    assert_eq!(send(&router, "POST", &path, configuration).await.status, 422);
    let gone = send(&router, "DELETE", &format!("{GROUP}/validatingadmissionpolicies/p"), Value::Null).await;
    assert_eq!(gone.status, 200);
}
