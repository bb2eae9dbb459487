//! Objects of the Karmada API as JSON, for commands that look at kinds of many groups.
//!
//! Rule: what the caller may not see is said, never taken for empty. A kind that the server does not have has no
//! objects.

use std::cmp::Reverse;

use anyhow::Context as _;
use caldera_core::text::name_some;
use caldera_crds::workload::WorkloadKind;
pub use caldera_crds::{
    object::{annotation_of, annotation_path, name_of, read_list_at, read_text_at},
    trusted::is_managed_by_caldera,
};
use caldera_runtime::watch::{api_resource, list_json};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
    core::ApiResource,
};
use serde_json::Value;

/// What was asked for, or why it can not be seen.
pub type Visible<T> = Result<T, String>;

/// Characters of what an object says for itself that a sentence repeats: enough for what a scheduler or a kubelet says.
const MOST_SAID_CHARACTERS: usize = 256;

/// Objects that are looked through for a name like one that there is not.
const MOST_OTHERS: u32 = 500;

/// Karmada's ResourceBindings.
pub fn binding_resource() -> ApiResource {
    api_resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings")
}

/// Karmada's Works.
pub fn work_resource() -> ApiResource {
    api_resource("work.karmada.io", "v1alpha1", "Work", "works")
}

/// Karmada's members.
pub fn cluster_resource() -> ApiResource {
    api_resource("cluster.karmada.io", "v1alpha1", "Cluster", "clusters")
}

/// Volcano's queues.
pub fn queue_resource() -> ApiResource {
    api_resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues")
}

/// Volcano's PodGroups.
pub fn pod_group_resource() -> ApiResource {
    api_resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
}

/// Volcano's Commands.
pub fn command_resource() -> ApiResource {
    api_resource("bus.volcano.sh", "v1alpha1", "Command", "commands")
}

/// Events.
pub fn event_resource() -> ApiResource {
    api_resource("", "v1", "Event", "events")
}

/// A kind of group `admissionregistration.k8s.io`.
pub fn admission_resource(kind: &str, plural: &str) -> ApiResource {
    api_resource("admissionregistration.k8s.io", "v1", kind, plural)
}

/// The resource as `kubectl` names it.
pub fn name_resource(resource: &ApiResource) -> String {
    if resource.group.is_empty() { resource.plural.clone() } else { format!("{}.{}", resource.plural, resource.group) }
}

/// All of a kind, in one namespace or everywhere.
///
/// # Errors
/// If the server does not answer.
pub async fn list_objects(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    labels: Option<&str>,
) -> anyhow::Result<Visible<Vec<Value>>> {
    let listed = list_json(client.clone(), resource, namespace, labels, Some).await;
    take_answer(listed, || name_resource(resource))
}

/// One object; none if there is none.
///
/// # Errors
/// If the server does not answer.
pub async fn get_object(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: &str,
) -> anyhow::Result<Visible<Option<Value>>> {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    let found = api.get_opt(name).await.map(|found| found.and_then(|object| serde_json::to_value(object).ok()));
    take_answer(found, || format!("{} {name}", name_resource(resource)))
}

/// Fails if there is no such queue. Where queues can not be seen it says nothing.
///
/// # Errors
/// If there is no such queue, or the server does not answer.
pub async fn ensure_queue(client: &Client, name: &str) -> anyhow::Result<()> {
    let resource = queue_resource();
    if let Ok(None) = get_object(client, &resource, None, name).await? {
        anyhow::bail!("there is no queue {name}{}", describe_others(client, &resource, None, name).await);
    }
    Ok(())
}

/// Fails if there is no such namespace. Where namespaces can not be seen it says nothing.
///
/// # Errors
/// If there is no such namespace, or the server does not answer.
pub async fn ensure_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let resource = api_resource("", "v1", "Namespace", "namespaces");
    if let Ok(None) = get_object(client, &resource, None, name).await? {
        anyhow::bail!("there is no namespace {name}{}", describe_others(client, &resource, None, name).await);
    }
    Ok(())
}

/// A queue that must be there.
///
/// # Errors
/// If there is no such queue, it can not be seen, or the server does not answer.
pub async fn get_queue(client: &Client, name: &str) -> anyhow::Result<Value> {
    get_existing(client, &queue_resource(), None, name, &format!("queue {name}")).await
}

/// An object that must be there; who mistyped its name is told those of others.
async fn get_existing(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: &str,
    called: &str,
) -> anyhow::Result<Value> {
    match get_object(client, resource, namespace, name).await?.map_err(anyhow::Error::msg)? {
        Some(object) => Ok(object),
        None => anyhow::bail!("there is no {called}{}", describe_others(client, resource, namespace, name).await),
    }
}

/// A job that must be there.
///
/// # Errors
/// If there is no such job, it can not be seen, or the server does not answer.
pub async fn get_job(client: &Client, namespace: &str, kind: WorkloadKind, name: &str) -> anyhow::Result<Value> {
    let called = format!("{} {name} in namespace {namespace}", kind.title());
    get_existing(client, &kind.api_resource(), Some(namespace), name, &called).await
}

/// Which others of a kind there are, for who mistyped a name: first those that begin like it. Nothing where they can
/// not be listed.
pub async fn describe_others(client: &Client, resource: &ApiResource, namespace: Option<&str>, name: &str) -> String {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    let Ok(all) = api.list_metadata(&ListParams::default().limit(MOST_OTHERS)).await else { return String::new() };
    name_others(name, all.items.iter().map(ResourceExt::name_any).collect())
}

/// The same of names that are known.
#[must_use]
pub fn name_others(name: &str, mut others: Vec<String>) -> String {
    let count_alike = |other: &str| name.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    others.sort_by_cached_key(|other| (Reverse(count_alike(other)), other.clone()));
    match others.len() {
        0 => String::new(),
        1 => format!("; there is {}", others[0]),
        _ => format!("; there are {}", name_some(&others)),
    }
}

/// A member that must be there.
///
/// # Errors
/// If there is no such member, it can not be seen, or the server does not answer.
pub async fn get_cluster(client: &Client, name: &str) -> anyhow::Result<Value> {
    get_existing(client, &cluster_resource(), None, name, "such cluster").await
}

/// Fails if there is no such job. Where it can not be seen it says nothing.
///
/// # Errors
/// If there is no such job, or the server does not answer.
pub async fn ensure_job(client: &Client, namespace: &str, kind: WorkloadKind, name: &str) -> anyhow::Result<()> {
    if let Ok(None) = get_object(client, &kind.api_resource(), Some(namespace), name).await? {
        anyhow::bail!("there is no {} {name} in namespace {namespace}", kind.title());
    }
    Ok(())
}

/// What was asked for, why it can not be seen, or that there is no such kind.
///
/// # Errors
/// If the server does not answer.
pub fn take_answer<T: Default>(
    answer: Result<T, kube::Error>,
    what: impl Fn() -> String,
) -> anyhow::Result<Visible<T>> {
    match answer {
        Ok(found) => Ok(Ok(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Ok(T::default())),
        Err(kube::Error::Api(status)) if status.code == 401 => {
            Ok(Err(format!("your credentials were refused: {}", status.message)))
        }
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Err(status.message.clone())),
        Err(error) => Err(error).with_context(|| format!("failed to read {}", what())),
    }
}

/// Clusters that a binding names.
pub fn list_clusters_of(binding: &Value) -> Vec<String> {
    read_list_at(binding, "/spec/clusters").iter().map(|target| read_text_at(target, "/name").to_owned()).collect()
}

/// The reason and the message at these pointers as one line: a tenant writes both, and a message may be the last words
/// of a container, of some KiB.
pub fn join_words(of: &Value, reason: &str, message: &str) -> String {
    let words = [reason, message].map(|at| fold_text(read_text_at(of, at)));
    words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(": ")
}

/// In one line, cut to [`MOST_SAID_CHARACTERS`].
fn fold_text(text: &str) -> String {
    // A word has one character at least.
    let start: String = text.split_whitespace().take(MOST_SAID_CHARACTERS + 1).collect::<Vec<_>>().join(" ");
    match start.char_indices().nth(MOST_SAID_CHARACTERS) {
        None => start,
        Some((end, _)) => format!("{}…", &start[..end]),
    }
}

/// `namespace/name`, or the name alone.
pub fn key_of(object: &Value) -> String {
    match read_text_at(object, "/metadata/namespace") {
        "" => name_of(object).to_owned(),
        namespace => format!("{namespace}/{}", name_of(object)),
    }
}

#[cfg(test)]
mod tests {
    use axum::{Json, Router, http::StatusCode, routing::get};

    use super::*;

    /// Found by a user: a mistyped name of a job was only said to be missing.
    #[test]
    fn who_mistyped_a_name_is_told_others_those_that_begin_like_it_first() {
        let others = |names: &[&str]| name_others("lowprio", names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(others(&[]), "");
        assert_eq!(others(&["a"]), "; there is a");
        let many = ["a", "b", "c", "d", "low-priority", "lowest"];
        assert_eq!(others(&many), "; there are low-priority, lowest, a, b and 2 more");
    }

    /// Found by a reader: a list of a mistyped namespace was an empty one, and ended well.
    #[tokio::test]
    async fn a_namespace_that_there_is_not_is_a_fault_and_one_that_can_not_be_seen_is_none() {
        let path = "/api/v1/namespaces";
        let status = |code: u16| {
            let reason = if code == 404 { "NotFound" } else { "Forbidden" };
            let body = serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "", "reason": reason, "code": code,
            });
            (StatusCode::from_u16(code).unwrap(), Json(body))
        };
        let list = || async {
            let items = [serde_json::json!({"metadata": {"name": "research"}})];
            Json(serde_json::json!({"kind": "List", "metadata": {}, "items": items}))
        };
        let of = |code: u16| {
            let api = Router::new()
                .route(path, get(list))
                .route("/api/v1/namespaces/{name}", get(async move || status(code)));
            Client::new(api, "default")
        };
        let refused = ensure_namespace(&of(404), "reserch").await.unwrap_err().to_string();
        assert_eq!(refused, "there is no namespace reserch; there is research");
        ensure_namespace(&of(403), "reserch").await.unwrap();
    }

    #[test]
    fn what_an_object_says_is_one_line_of_a_bounded_length() {
        let said = |message: &str| {
            let said = serde_json::json!({"reason": "Error", "message": message});
            join_words(&said, "/reason", "/message")
        };
        assert_eq!(said("x\n\nNote: admitted\u{2028}\r\n\tnow "), "Error: x Note: admitted now");
        assert_eq!(said(" \n"), "Error");
        assert_eq!(said(&"ä".repeat(256)), format!("Error: {}", "ä".repeat(256)));
        assert_eq!(said(&"ä".repeat(4096)), format!("Error: {}…", "ä".repeat(256)));
        assert_eq!(said(&"a ".repeat(4096)).chars().count(), "Error: ".len() + 256 + 1);
    }

    /// A status that its kind leaves open may be nested deeper than serde_json reads.
    #[tokio::test]
    async fn what_one_user_nests_too_deep_stops_nobodys_list() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(300), "}".repeat(300));
        let object = format!(r#"{{"metadata":{{"name":"deep","resourceVersion":"7"}},"status":{deep}}}"#);
        let page = format!(r#"{{"metadata":{{}},"items":[{object},{{"metadata":{{"name":"b"}}}}]}}"#);
        let api = Router::new().route("/apis/work.karmada.io/v1alpha1/namespaces/ns/works", get(async move || page));
        let client = Client::new(api, "default");
        let listed = list_objects(&client, &work_resource(), Some("ns"), None).await.unwrap().unwrap();
        assert_eq!(listed.iter().map(name_of).collect::<Vec<_>>(), ["deep", "b"]);
        assert!(listed[0]["status"]["a"]["a"].is_object(), "as deep as is read");
    }
}
