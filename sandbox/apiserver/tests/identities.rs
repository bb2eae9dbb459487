//! Who asks: `authentication/request/bearertoken`, `endpoints/filters/impersonation`, `registry/authentication`,
//! `registry/core/serviceaccount/storage/token.go`, `registry/rbac/*/policybased`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;

use axum::Router;
use embedded_apiserver::auth::User;
use embedded_apiserver::{ApiServer, Options};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// The answers that `alice` (token `alice-token`), the administrator (`admin-token`) and nobody get.
fn server() -> Router {
    let alice = User::authenticated("alice", &["devs"]);
    let users = [("alice-token".to_owned(), alice)].into();
    let options = Options { admin_token: Some("admin-token".into()), users, ..Options::default() };
    ApiServer::new(options).router_as(User::anonymous())
}

const ADMIN: (&str, &str) = ("authorization", "Bearer admin-token");
const ALICE: (&str, &str) = ("authorization", "Bearer alice-token");

fn review() -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {"name": "ignored"}})
}

fn role(name: &str, rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, role: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "User", "name": "alice"}]})
}

async fn grant(router: &Router, rules: Value) {
    let path = format!("{RBAC}/namespaces/default");
    assert_eq!(client::send_with(router, "POST", &format!("{path}/roles"), &[ADMIN], role("own", rules)).await.0, 201);
    let bound = binding("own", "Role", "own");
    assert_eq!(client::send_with(router, "POST", &format!("{path}/rolebindings"), &[ADMIN], bound).await.0, 201);
}

#[tokio::test]
async fn only_a_bearer_token_is_a_credential() {
    let router = server();
    let with =
        async |header: &str| client::send_with(&router, "GET", MAPS, &[("authorization", header)], Value::Null).await;
    assert_eq!(with("bearer admin-token").await.0, 200);
    assert_eq!(with("Bearer nobody").await.0, 401);
    for unknown in ["Basic YTpi", "Bearer", ""] {
        let (status, refusal, _) = with(unknown).await;
        assert_eq!(status, 403, "{unknown}");
        assert!(refusal["message"].as_str().unwrap().contains("User \"system:anonymous\""));
    }
    let (status, _, warnings) = with("Bearer  admin-token").await;
    let text = "the provided Authorization header contains extra space before the bearer token, and is ignored";
    assert_eq!((status, warnings), (403, vec![format!("299 - \"{text}\"")]));
}

#[tokio::test]
async fn a_review_of_oneself_is_an_object_of_its_own() {
    let router = server();
    let (status, answer, _) = client::send_with(&router, "POST", WHOAMI, &[ALICE], review()).await;
    assert_eq!(status, 201);
    let user = json!({"username": "alice", "groups": ["devs", "system:authenticated"]});
    assert_eq!(answer["status"]["userInfo"], user);
    let members: Vec<&String> = answer["metadata"].as_object().unwrap().keys().collect();
    assert_eq!(members, ["creationTimestamp"]);
}

#[tokio::test]
async fn an_impersonated_user_has_uid_and_extra_and_completed_groups() {
    let router = server();
    let as_user = async |headers: &[(&str, &str)]| {
        let all: Vec<(&str, &str)> = [ADMIN].iter().chain(headers).copied().collect();
        client::send_with(&router, "POST", WHOAMI, &all, review()).await.1["status"]["userInfo"].clone()
    };
    assert_eq!(
        as_user(&[("impersonate-user", "bob"), ("impersonate-uid", "u"), ("impersonate-extra-acme.io%2fteam", "a")])
            .await,
        json!({"username": "bob", "uid": "u", "groups": ["system:authenticated"], "extra": {"acme.io/team": ["a"]}})
    );
    assert_eq!(
        as_user(&[("impersonate-user", "system:serviceaccount:ns:sa")]).await["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"])
    );
    assert_eq!(
        as_user(&[("impersonate-user", "system:node:n1")]).await["groups"],
        json!(["system:nodes", "system:authenticated"])
    );
}

/// 1.36 asks for the constrained modes first, and tells the first refusal.
#[tokio::test]
async fn a_refused_impersonation_tells_what_the_first_mode_missed() {
    let router = server();
    let bob = ("impersonate-user", "bob");
    let (status, refusal, _) = client::send_with(&router, "GET", MAPS, &[ALICE, bob], Value::Null).await;
    assert_eq!(status, 403);
    assert_eq!(
        refusal["message"],
        "configmaps is forbidden: User \"alice\" cannot impersonate-on:user-info:list resource \"configmaps\" in API group \
         \"\" in the namespace \"default\""
    );
    let (status, refusal, _) =
        client::send_with(&router, "GET", MAPS, &[ADMIN, ("impersonate-group", "g")], Value::Null).await;
    assert_eq!((status, refusal["reason"].as_str().unwrap()), (400, "BadRequest"));
    assert_eq!(
        refusal["message"],
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"g\"}, Extra:map[string][]string(nil)} without \
         impersonating a user name"
    );
    // The old way still works, and its refusal is told once it has.
    let rule = json!([{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["bob"]}]);
    let cluster_role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "be-bob"}, "rules": rule});
    let mut bound = binding("be-bob", "ClusterRole", "be-bob");
    bound["kind"] = "ClusterRoleBinding".into();
    assert_eq!(
        client::send_with(&router, "POST", &format!("{RBAC}/clusterroles"), &[ADMIN], cluster_role).await.0,
        201
    );
    assert_eq!(
        client::send_with(&router, "POST", &format!("{RBAC}/clusterrolebindings"), &[ADMIN], bound).await.0,
        201
    );
    let refusal = client::send_with(&router, "GET", MAPS, &[ALICE, bob], Value::Null).await.1;
    assert!(refusal["message"].as_str().unwrap().contains("User \"bob\" cannot list"));
    let refusal = client::send_with(&router, "GET", MAPS, &[ALICE, ("impersonate-user", "eve")], Value::Null).await.1;
    assert_eq!(
        refusal["message"],
        "users \"eve\" is forbidden: User \"alice\" cannot impersonate resource \"users\" in API group \"\" at the cluster \
         scope"
    );
}

#[tokio::test]
async fn a_token_of_a_service_account_is_good_for_its_audience_while_the_account_lives() {
    let router = server();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    assert_eq!(client::send_with(&router, "POST", accounts, &[ADMIN], account).await.0, 201);
    let path = format!("{accounts}/robot/token");
    let ask = async |spec: Value| {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        client::send_with(&router, "POST", &path, &[ADMIN], body).await
    };
    let (status, issued, _) = ask(json!({})).await;
    assert_eq!((status, &issued["spec"]["expirationSeconds"]), (201, &json!(3600)));
    let token = format!("Bearer {}", issued["status"]["token"].as_str().unwrap());
    let whoami =
        async |token: &str| client::send_with(&router, "POST", WHOAMI, &[("authorization", token)], review()).await;
    let (status, answer, _) = whoami(&token).await;
    assert_eq!(
        (status, &answer["status"]["userInfo"]["username"]),
        (201, &json!("system:serviceaccount:default:robot"))
    );
    let other = ask(json!({"audiences": ["elsewhere"]})).await.1;
    assert_eq!(whoami(&format!("Bearer {}", other["status"]["token"].as_str().unwrap())).await.0, 401);
    let spec = json!({"token": other["status"]["token"], "audiences": ["elsewhere", "here"]});
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
    let reviewed =
        client::send_with(&router, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", &[ADMIN], body).await.1;
    assert_eq!(reviewed["status"]["audiences"], json!(["elsewhere"]));
    let (status, refusal, _) = ask(json!({"expirationSeconds": 10})).await;
    assert_eq!(status, 422);
    assert_eq!(
        refusal["message"],
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 10: may not specify a \
         duration less than 10 minutes"
    );
    let unseen = format!("Bearer {}", ask(json!({})).await.1["status"]["token"].as_str().unwrap());
    assert_eq!(client::send_with(&router, "DELETE", &format!("{accounts}/robot"), &[ADMIN], Value::Null).await.0, 200);
    assert_eq!(whoami(&unseen).await.0, 401);
    assert_eq!(whoami(&token).await.0, 201, "a success is remembered for ten seconds");
}

/// A tenant with rights over roles cannot make itself an administrator.
#[tokio::test]
async fn nobody_grants_rights_that_they_do_not_have() {
    let router = server();
    let verbs = ["create", "delete", "get", "list", "patch", "update"];
    grant(
        &router,
        json!([
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": verbs},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
        ]),
    )
    .await;
    let path = format!("{RBAC}/namespaces/default");
    let own = role("a", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]));
    assert_eq!(client::send_with(&router, "POST", &format!("{path}/roles"), &[ALICE], own).await.0, 201);
    let more =
        role("b", json!([{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "patch"]}]));
    let (status, refusal, _) = client::send_with(&router, "POST", &format!("{path}/roles"), &[ALICE], more).await;
    assert_eq!(status, 403);
    assert_eq!(
        refusal["message"],
        "roles.rbac.authorization.k8s.io \"b\" is forbidden: user \"alice\" (groups=[\"devs\" \"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"configmaps\"], \
         Verbs:[\"patch\"]}\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"patch\"]}"
    );
    let bindings = format!("{path}/rolebindings");
    let admin = binding("c", "ClusterRole", "cluster-admin");
    assert_eq!(client::send_with(&router, "POST", &bindings, &[ALICE], admin).await.0, 403);
    let (status, missing, _) =
        client::send_with(&router, "POST", &bindings, &[ALICE], binding("d", "Role", "nope")).await;
    assert_eq!((status, missing["details"]["kind"].as_str().unwrap()), (404, "rolebindings"));
    let mut odd = binding("odd", "Role", "x");
    odd["roleRef"]["kind"] = "Foo".into();
    let (status, odd, _) = client::send_with(&router, "POST", &bindings, &[ALICE], odd).await;
    assert_eq!((status, odd["message"].as_str()), (500, Some("unsupported role reference kind: \"Foo\"")));
    assert_eq!(client::send_with(&router, "POST", &bindings, &[ALICE], binding("e", "Role", "a")).await.0, 201);
}

#[tokio::test]
async fn the_roles_that_every_server_makes_are_objects_and_give_what_they_say() {
    let router = server();
    let get = async |path: String| client::send_with(&router, "GET", &path, &[ADMIN], Value::Null).await;
    let (status, role, _) = get(format!("{RBAC}/clusterroles/cluster-admin")).await;
    assert_eq!((status, &role["rules"][1]["nonResourceURLs"]), (200, &json!(["*"])));
    let (status, bound, _) = get(format!("{RBAC}/clusterrolebindings/system:discovery")).await;
    assert_eq!((status, &bound["subjects"][0]["name"]), (200, &json!("system:authenticated")));
    let (_, view, _) = get(format!("{RBAC}/clusterroles/view")).await;
    assert_eq!((&view["rules"], view["aggregationRule"].is_object()), (&Value::Null, true));
    // Nobody gathers anything into them.
    let read = async || client::send_with(&router, "GET", MAPS, &[ALICE], Value::Null).await.0;
    assert_eq!(read().await, 403);
    let path = format!("{RBAC}/namespaces/default/rolebindings");
    let created = client::send_with(&router, "POST", &path, &[ADMIN], binding("v", "ClusterRole", "view")).await;
    assert_eq!((created.0, read().await), (201, 403));
}

/// `rule.go`: what could not be resolved is told beside what is missing.
#[tokio::test]
async fn a_grant_that_is_refused_names_the_roles_that_are_gone() {
    let router = server();
    let rights = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}]);
    grant(&router, rights).await;
    let path = format!("{RBAC}/namespaces/default");
    for name in ["gone", "gone-too"] {
        let gone = binding(name, "Role", "missing");
        assert_eq!(client::send_with(&router, "POST", &format!("{path}/rolebindings"), &[ADMIN], gone).await.0, 201);
    }
    let wished = role("e", json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}]));
    let (_, refusal, _) = client::send_with(&router, "POST", &format!("{path}/roles"), &[ALICE], wished).await;
    let wanted = "roles.rbac.authorization.k8s.io \"e\" is forbidden: user \"alice\" (groups=[\"devs\" \
        \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], \
        Resources:[\"pods\"], Verbs:[\"delete\"]}; resolution errors: [roles.rbac.authorization.k8s.io \"missing\" \
        not found]";
    assert_eq!(refusal["message"], wanted);
}
