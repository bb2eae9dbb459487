//! What karmada-controller-manager may write, asked with its account: what is admitted is carried out by its writes.
//!
//! Rule: SubjectAccessReviews say what its roles grant. Whether our admission policies and our webhook trust it is said
//! by two objects that are created in its name with `dryRun=All`, as only trusted writers may: a placed binding, and a
//! Work that carries a Volcano Job. A refusal in our words is one; any other, such as that the Work has no binding, is
//! none, since it came after them.

use caldera_crds::{names::karmada::EXECUTION_NAMESPACE_PREFIX, trusted::REFUSED_TO_OTHERS};
use caldera_runtime::client::describe_error;
use http::{HeaderValue, header::HeaderName};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{
    Api, Client, Resource as _,
    api::{DynamicObject, PostParams},
    core::{ApiResource, Request},
};
use serde_json::{Value, json};

use super::{PROBE, build_probe_binding, build_probe_job};
use crate::{
    doctor::facts::{KarmadaAccess, KarmadaAccount},
    objects::{self, Visible},
};

/// What it does with bindings and Works (`artifacts/deploy`, and the controllers `binding` and `execution`).
const WRITES: [(&str, &[&str]); 4] = [
    ("resourcebindings", &["create", "update", "patch", "delete"]),
    ("resourcebindings/status", &["update", "patch"]),
    ("works", &["create", "update", "patch", "delete"]),
    ("works/status", &["update", "patch"]),
];

pub(super) async fn review_karmada(
    client: &Client,
    account: &KarmadaAccount,
    namespace: &str,
    member: Option<&str>,
) -> Visible<KarmadaAccess> {
    let mut access = KarmadaAccess { account: account.clone(), denied: Vec::new(), refused: Vec::new() };
    let mut rights: Vec<(&str, &str, &str)> = vec![];
    for (resource, verbs) in WRITES {
        rights.extend(verbs.iter().map(|verb| ("work.karmada.io", resource, *verb)));
    }
    rights.push(("config.karmada.io", "resourceinterpreterwebhookconfigurations", "list"));
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answers = rights.iter().map(|right| {
        let (reviews, review) = (reviews.clone(), build_review(account, *right));
        async move { reviews.create(&PostParams::default(), &review).await }
    });
    for ((group, resource, verb), answer) in rights.iter().zip(futures::future::join_all(answers).await) {
        let answer = answer.map_err(|error| describe_error(&error))?;
        if !answer.status.is_some_and(|status| status.allowed) {
            access.denied.push(format!("{verb} {resource}.{group}"));
        }
    }
    let binding = (objects::binding_resource(), namespace.to_owned(), build_placed_binding(namespace));
    let work = member.map(|member| {
        (objects::work_resource(), format!("{EXECUTION_NAMESPACE_PREFIX}{member}"), build_probe_work(namespace))
    });
    for (resource, namespace, object) in [binding].into_iter().chain(work) {
        match create_as(client, account, &resource, &namespace, &object).await {
            Err(kube::Error::Api(status)) if is_ours(&status.message) => {
                access.refused.push((objects::name_resource(&resource), status.message.clone()));
            }
            // Who asks may not speak for others.
            Err(kube::Error::Api(status)) if status.message.contains("impersonate") => {
                return Err(status.message.clone());
            }
            _ => {}
        }
    }
    Ok(access)
}

fn is_ours(message: &str) -> bool {
    message.contains(REFUSED_TO_OTHERS)
}

fn build_review(account: &KarmadaAccount, (group, resource, verb): (&str, &str, &str)) -> SubjectAccessReview {
    let (plain, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(account.user.clone()),
            groups: Some(account.groups.clone()),
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(plain.to_owned()),
                subresource: Some(subresource.to_owned()).filter(|text| !text.is_empty()),
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

async fn create_as(
    client: &Client,
    account: &KarmadaAccount,
    resource: &ApiResource,
    namespace: &str,
    object: &Value,
) -> Result<Value, kube::Error> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let mut request = Request::new(DynamicObject::url_path(resource, Some(namespace)))
        .create(&params, body)
        .map_err(kube::Error::BuildRequest)?;
    let user = [("impersonate-user", account.user.as_str())];
    let groups = account.groups.iter().map(|group| ("impersonate-group", group.as_str()));
    for (name, value) in user.into_iter().chain(groups) {
        // What is no header is nobody's name.
        let Ok(value) = HeaderValue::from_str(value) else { continue };
        request.headers_mut().append(HeaderName::from_static(name), value);
    }
    client.request(request).await
}

/// A new binding that says where its workload is: only trusted writers may begin with that.
fn build_placed_binding(namespace: &str) -> Value {
    let mut binding = build_probe_binding(namespace);
    binding["spec"]["clusters"] = json!([{"name": PROBE, "replicas": 1}]);
    binding
}

fn build_probe_work(namespace: &str) -> Value {
    let mut job = build_probe_job();
    job["metadata"]["namespace"] = namespace.into();
    json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": PROBE},
        "spec": {"workload": {"manifests": [job]}},
    })
}
