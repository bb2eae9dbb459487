//! CustomResourceDefinitions whose names collide: apiextensions-apiserver `pkg/controller/status/naming_controller.go`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;

use axum::Router;
use embedded_apiserver::{ApiServer, Options};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn send(router: &Router, method: &str, path: &str, body: Value) -> (u16, Value) {
    let (status, body, _) = client::send_with(router, method, path, &[], body).await;
    (status, body)
}

fn definition(plural: &str, kind: &str, short: &[&str], rule: &str) -> Value {
    let spec = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.names.test")},
        "spec": {"group": "names.test", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": short},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

async fn names_of(router: &Router, plural: &str) -> (Value, String, String) {
    let status =
        send(router, "GET", &format!("{DEFINITIONS}/{plural}.names.test"), Value::Null).await.1["status"].clone();
    let condition = |kind: &str| {
        let list = status["conditions"].as_array().unwrap();
        list.iter().find(|c| c["type"] == kind).cloned().unwrap()
    };
    let reason = condition("NamesAccepted")["reason"].as_str().unwrap().to_owned();
    let established = condition("Established")["status"].as_str().unwrap().to_owned();
    (status["acceptedNames"].clone(), reason, established)
}

#[tokio::test]
async fn a_definition_gets_its_names_when_they_become_free() {
    let router = ApiServer::new(Options::default()).router();
    assert_eq!(send(&router, "POST", DEFINITIONS, definition("firsts", "Thing", &["th"], "true")).await.0, 201);
    assert_eq!(send(&router, "POST", DEFINITIONS, definition("seconds", "Thing", &["th"], "true")).await.0, 201);
    let (names, reason, established) = names_of(&router, "seconds").await;
    assert_eq!(names, json!({"plural": "seconds", "kind": ""}));
    assert_eq!((reason.as_str(), established.as_str()), ("ListKindConflict", "False"));
    let objects = "/apis/names.test/v1/namespaces/default/seconds";
    assert_eq!(send(&router, "GET", objects, Value::Null).await.0, 404);
    assert_eq!(send(&router, "DELETE", &format!("{DEFINITIONS}/firsts.names.test"), Value::Null).await.0, 200);
    let (names, reason, established) = names_of(&router, "seconds").await;
    assert_eq!((&names["kind"], &names["shortNames"]), (&json!("Thing"), &json!(["th"])));
    assert_eq!((reason.as_str(), established.as_str()), ("NoConflicts", "True"));
    assert_eq!(send(&router, "GET", objects, Value::Null).await.0, 200);
}

/// The finalizing controller comes back until the last object is gone.
#[tokio::test]
async fn a_definition_waits_for_objects_that_have_finalizers() {
    let router = ApiServer::new(Options::default()).router();
    assert_eq!(send(&router, "POST", DEFINITIONS, definition("firsts", "Thing", &[], "true")).await.0, 201);
    let objects = "/apis/names.test/v1/namespaces/default/firsts";
    let mut object = json!({"apiVersion": "names.test/v1", "kind": "Thing",
        "metadata": {"name": "a", "finalizers": ["names.test/hold"]}});
    let made = send(&router, "POST", objects, object.clone()).await.1;
    let path = format!("{DEFINITIONS}/firsts.names.test");
    assert_eq!(send(&router, "DELETE", &path, Value::Null).await.0, 200);
    assert_eq!(send(&router, "GET", &path, Value::Null).await.0, 200);
    let version =
        send(&router, "GET", &format!("{objects}/a"), Value::Null).await.1["metadata"]["resourceVersion"].clone();
    object["metadata"] = json!({"name": "a", "uid": made["metadata"]["uid"], "resourceVersion": version});
    assert_eq!(send(&router, "PUT", &format!("{objects}/a"), object).await.0, 200);
    assert_eq!(send(&router, "GET", &path, Value::Null).await.0, 404);
    assert_eq!(send(&router, "GET", objects, Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_rule_that_calls_what_no_library_has_is_refused() {
    let router = ApiServer::new(Options::default()).router();
    let (status, refusal) = send(&router, "POST", DEFINITIONS, definition("firsts", "Thing", &[], "frob(self)")).await;
    assert_eq!(status, 422);
    assert!(refusal["message"].as_str().unwrap().contains("undeclared reference to 'frob' (in container '')"));
}

fn versioned(names: &[(&str, &str)]) -> Value {
    let version = |(index, (name, member)): (usize, &(&str, &str))| {
        let text = json!({"type": "string"});
        let spec = json!({"type": "object", "properties": {"common": text, *member: text}});
        json!({"name": name, "served": true, "storage": index == 0,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let versions: Vec<Value> = names.iter().enumerate().map(version).collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.versions.test"},
        "spec": {"group": "versions.test", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
            "versions": versions}})
}

/// `merge.Updater`: each owner's fields are compared in the version that he wrote.
#[tokio::test]
async fn an_apply_fails_with_a_field_that_the_version_of_another_owner_has_not() {
    let router = ApiServer::new(Options::default()).router();
    let definition = versioned(&[("v1", "fresh"), ("v2", "old")]);
    assert_eq!(send(&router, "POST", DEFINITIONS, definition).await.0, 201);
    let apply = async |version: &str, manager: &str, spec: Value| {
        let path = format!("/apis/versions.test/{version}/things/t?fieldManager={manager}");
        let body = json!({"apiVersion": format!("versions.test/{version}"), "kind": "Thing",
            "metadata": {"name": "t"}, "spec": spec});
        let headers = [("content-type", "application/apply-patch+yaml")];
        let (code, answer, _) = client::send_with(&router, "PATCH", &path, &headers, body).await;
        (code, answer)
    };
    assert_eq!(apply("v1", "m", json!({"common": "a"})).await.0, 201);
    assert_eq!(apply("v2", "n", json!({"common": "a"})).await.0, 200);
    let (code, status) = apply("v2", "o", json!({"old": "x"})).await;
    assert_eq!(code, 500);
    assert_eq!(status["message"], "failed to convert new object: .spec.old: field not declared in schema");
    let path = "/apis/versions.test/v2/things/t";
    let (code, patched) = send(&router, "PATCH", path, json!({"spec": {"old": "x"}})).await;
    assert_eq!((code, patched["metadata"].get("managedFields")), (200, None));
}

#[tokio::test]
async fn a_patch_that_takes_the_version_of_an_object_away_is_an_internal_error() {
    let router = ApiServer::new(Options::default()).router();
    assert_eq!(send(&router, "POST", DEFINITIONS, versioned(&[("v1", "a")])).await.0, 201);
    let things = "/apis/versions.test/v1/things";
    let thing = json!({"apiVersion": "versions.test/v1", "kind": "Thing", "metadata": {"name": "t"}});
    assert_eq!(send(&router, "POST", things, thing).await.0, 201);
    let (code, status) = send(&router, "PATCH", &format!("{things}/t"), json!({"apiVersion": null})).await;
    assert_eq!((code, &status["reason"]), (500, &json!("InternalError")));
}

#[tokio::test]
async fn a_schema_names_no_dialect() {
    let router = ApiServer::new(Options::default()).router();
    let causes = |extra: Value| {
        let mut wanted = definition("foos", "Foo", &[], "true");
        let schema = &mut wanted["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        *schema = json!({"spec": {"type": "object", "$schema": "x"}, "other": extra});
        let router = router.clone();
        async move {
            let (_, status) = send(&router, "POST", DEFINITIONS, wanted).await;
            let list = status["details"]["causes"].as_array().unwrap().clone();
            list.into_iter().map(|cause| cause["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        }
    };
    let alone = causes(json!({"type": "string"})).await;
    assert_eq!(alone, ["Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported"]);
    assert_eq!(causes(json!({"type": "string", "$ref": "x"})).await, ["Forbidden: $ref is not supported"]);
}

#[tokio::test]
async fn the_document_of_a_definition_has_its_lists_and_subresources() {
    let router = ApiServer::new(Options::default()).router();
    let mut made = definition("firsts", "Thing", &[], "true");
    made["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    assert_eq!(send(&router, "POST", DEFINITIONS, made).await.0, 201);
    let (status, document) = send(&router, "GET", "/openapi/v3/apis/names.test/v1", Value::Null).await;
    assert_eq!((status, &document["info"]["title"]), (200, &json!("Kubernetes CRD Swagger")));
    let schemas = &document["components"]["schemas"];
    let item = json!({"$ref": "#/components/schemas/test.names.v1.Thing"});
    assert_eq!(schemas["test.names.v1.ThingList"]["properties"]["items"]["items"], item);
    assert!(schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"].is_object());
    let one = "/apis/names.test/v1/namespaces/{namespace}/firsts/{name}";
    let parts = document["paths"].as_object().unwrap();
    assert!(parts.contains_key("/apis/names.test/v1/firsts") && parts.contains_key(&format!("{one}/status")));
    assert!(!parts.contains_key(&format!("{one}/scale")));
}

/// What is decoded strictly is of the version that the body names, and no version is compared before.
#[tokio::test]
async fn an_object_of_another_version_is_pruned_before_it_is_refused() {
    let router = ApiServer::new(Options::default()).router();
    let mut made = definition("firsts", "Thing", &[], "true");
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"b": {"type": "string"}}}}});
    let second = json!({"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}});
    made["spec"]["versions"].as_array_mut().unwrap().push(second);
    assert_eq!(send(&router, "POST", DEFINITIONS, made).await.0, 201);
    let things = "/apis/names.test/v1/namespaces/default/firsts";
    let mismatch = |version: &str| {
        format!(
            "the API version in the data (names.test/{version}) does not match the expected API version (names.test/v1)"
        )
    };
    for (version, kind, unknown) in [
        ("v2", "Thing", &["metadata.foo", "more", "spec.a"][..]),
        ("v9", "Thing", &["metadata.foo", "more", "spec"]),
        ("v9", "Other", &["metadata.foo"]),
    ] {
        let body = json!({"apiVersion": format!("names.test/{version}"), "kind": kind,
            "metadata": {"name": "x", "foo": 1}, "spec": {"a": "x", "b": "y"}, "more": 1});
        let (code, status, warnings) = client::send_with(&router, "POST", things, &[], body.clone()).await;
        assert_eq!((code, status["message"].as_str()), (400, Some(mismatch(version).as_str())));
        let told: Vec<String> =
            unknown.iter().map(|field| format!("299 - \"unknown field \\\"{field}\\\"\"")).collect();
        assert_eq!(warnings, told);
        let strict = format!("{things}?fieldValidation=Strict");
        let fields: Vec<String> = unknown.iter().map(|field| format!("unknown field \"{field}\"")).collect();
        let why = format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {}",
            fields.join(", ")
        );
        assert_eq!(send(&router, "POST", &strict, body).await.1["message"].as_str(), Some(why.as_str()));
    }
}

#[tokio::test]
async fn a_path_to_a_selectable_field_is_read_part_by_part() {
    let router = ApiServer::new(Options::default()).router();
    for (path, why) in [
        (".", "unexpected end of JSON path"),
        (".spec.", "unexpected end of JSON path"),
        ("..", "does not refer to a valid field"),
        (".spec.[\"a\"]", "does not refer to a valid field"),
        (".spec[a]", "array notation is not allowed"),
        ("[spec]", "array notation is not allowed"),
    ] {
        let mut made = definition("firsts", "Thing", &[], "true");
        made["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": path}]);
        let (code, status) = send(&router, "POST", DEFINITIONS, made).await;
        let told = status["details"]["causes"][0]["message"].as_str().unwrap().to_owned();
        assert_eq!((code, told.ends_with(&format!(": is an invalid path: {why}"))), (422, true), "{path}: {told}");
    }
}

#[tokio::test]
async fn a_conversion_without_a_webhook_has_none() {
    let router = ApiServer::new(Options::default()).router();
    let mut made = definition("firsts", "Thing", &[], "true");
    made["spec"]["conversion"] = json!({"strategy": "None", "webhook": {}});
    let (code, shown) = send(&router, "POST", DEFINITIONS, made).await;
    assert_eq!((code, &shown["spec"]["conversion"]), (201, &json!({"strategy": "None"})));
}

#[tokio::test]
async fn a_rule_of_any_type_is_no_rule() {
    let router = ApiServer::new(Options::default()).router();
    let (code, status) = send(&router, "POST", DEFINITIONS, definition("firsts", "Thing", &[], "dyn(self)")).await;
    let told = status["message"].as_str().unwrap();
    assert_eq!((code, told.ends_with("cel expression must evaluate to a bool")), (422, true), "{told}");
}

/// The deletion has no grace period, and a finalizer of someone else outlives the cleanup.
#[tokio::test]
async fn a_deleted_definition_waits_for_finalizers_of_others() {
    let router = ApiServer::new(Options::default()).router();
    let mut made = definition("firsts", "Thing", &[], "true");
    made["metadata"]["finalizers"] = json!(["x.io/f"]);
    assert_eq!(send(&router, "POST", DEFINITIONS, made).await.0, 201);
    let path = format!("{DEFINITIONS}/firsts.names.test");
    assert_eq!(send(&router, "DELETE", &path, Value::Null).await.0, 200);
    let found = send(&router, "GET", &path, Value::Null).await.1;
    assert_eq!(found["metadata"]["finalizers"], json!(["x.io/f"]));
    let conditions = found["status"]["conditions"].as_array().unwrap();
    let ending = conditions.iter().find(|condition| condition["type"] == "Terminating").unwrap();
    assert_eq!((&ending["status"], &ending["reason"]), (&json!("False"), &json!("InstanceDeletionCompleted")));
    assert_eq!(send(&router, "PATCH", &path, json!({"metadata": {"finalizers": null}})).await.0, 200);
    assert_eq!(send(&router, "GET", &path, Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_replacement_needs_a_name() {
    let router = ApiServer::new(Options::default()).router();
    assert_eq!(send(&router, "POST", DEFINITIONS, definition("firsts", "Thing", &[], "true")).await.0, 201);
    let things = "/apis/names.test/v1/namespaces/default/firsts";
    let (code, status) = send(&router, "PUT", things, json!({})).await;
    assert_eq!((code, status["message"].as_str()), (400, Some("name must be provided")));
}

#[tokio::test]
async fn a_custom_object_is_no_list_of_metadata() {
    let router = ApiServer::new(Options::default()).router();
    assert_eq!(send(&router, "POST", DEFINITIONS, definition("firsts", "Thing", &[], "true")).await.0, 201);
    let things = "/apis/names.test/v1/namespaces/default/firsts";
    let thing = json!({"apiVersion": "names.test/v1", "kind": "Thing", "metadata": {"name": "t"}});
    assert_eq!(send(&router, "POST", things, thing).await.0, 201);
    let headers = [("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")];
    let (code, status, _) = client::send_with(&router, "GET", &format!("{things}/t"), &headers, Value::Null).await;
    assert_eq!((code, status["message"].as_str()), (500, Some("content is not a list")));
}

#[tokio::test]
async fn an_apply_is_of_its_type_in_the_status_too_and_nobody_owns_one_before() {
    let router = ApiServer::new(Options::default()).router();
    let mut made = versioned(&[("v1", "a")]);
    let version = &mut made["spec"]["versions"][0];
    version["subresources"] = json!({"status": {}});
    let phase = json!({"type": "object", "properties": {"phase": {"type": "string"}}});
    version["schema"]["openAPIV3Schema"]["properties"]["status"] = phase;
    assert_eq!(send(&router, "POST", DEFINITIONS, made).await.0, 201);
    let things = "/apis/versions.test/v1/things";
    let thing = json!({"apiVersion": "versions.test/v1", "kind": "Thing", "metadata": {"name": "t"}});
    assert_eq!(send(&router, "POST", things, thing.clone()).await.0, 201);
    let status = json!({"status": {"phase": "x"}});
    assert_eq!(send(&router, "PATCH", &format!("{things}/t/status"), status).await.0, 200);
    let apply = async |more: Value| {
        let mut body = thing.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let headers = [("content-type", "application/apply-patch+yaml")];
        let path = format!("{things}/t?fieldManager=m");
        let (code, answer, _) = client::send_with(&router, "PATCH", &path, &headers, body).await;
        (code, answer)
    };
    let (code, applied) = apply(json!({})).await;
    assert_eq!((code, applied["metadata"].get("managedFields")), (200, None));
    let (code, refused) = apply(json!({"status": {"bogus": 1}})).await;
    let why = "failed to create typed patch object (/t; versions.test/v1, Kind=Thing): .status.bogus: field not \
               declared in schema";
    assert_eq!((code, refused["message"].as_str()), (500, Some(why)));
}
