//! Asks the API server what each component's account may do: exactly the rules of the roles, one verb at a time.

use std::collections::BTreeSet;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};
use serde_json::Value;

use crate::{
    doctor::facts::Right,
    objects::{Visible, name_of, read_list_at, read_text_at},
    roles::{self, Granted, NAMESPACE},
};

/// Reviews in flight.
const AT_ONCE: usize = 16;

/// The rights that the roles grant, of those accounts that roles are bound to.
pub(super) fn list_rights(granted: &Granted) -> BTreeSet<Right> {
    let mut all = BTreeSet::new();
    let component = |role: &Value| name_of(role).strip_prefix("caldera-").unwrap_or_default().to_owned();
    let roles = roles::build_component_roles(granted);
    let is_bound = |name: &str| {
        roles.iter().any(|object| {
            read_text_at(object, "/kind").ends_with("RoleBinding") && read_text_at(object, "/roleRef/name") == name
        })
    };
    for role in roles.iter().filter(|object| object["rules"].is_array() && is_bound(name_of(object))) {
        let texts = |rule: &Value, field: &str| -> Vec<String> {
            read_list_at(rule, field).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        for rule in read_list_at(role, "/rules") {
            let mut names: Vec<Option<String>> = texts(rule, "/resourceNames").into_iter().map(Some).collect();
            if names.is_empty() {
                names.push(None);
            }
            for group in texts(rule, "/apiGroups") {
                for resource in texts(rule, "/resources") {
                    for verb in texts(rule, "/verbs") {
                        all.extend(
                            names.iter().map(|name| Right {
                                component: component(role),
                                verb: verb.clone(),
                                group: group.clone(),
                                resource: resource.clone(),
                                namespace: Some(read_text_at(role, "/metadata/namespace").to_owned())
                                    .filter(|one| !one.is_empty()),
                                name: name.clone(),
                                allowed: false,
                            }),
                        );
                    }
                }
            }
        }
    }
    all
}

pub(super) async fn review_rights(client: &Client, granted: &Granted) -> Visible<Vec<Right>> {
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let mut answers = stream::iter(list_rights(granted))
        .map(|right| {
            let reviews = reviews.clone();
            async move {
                let answer = reviews.create(&PostParams::default(), &build_review(&right)).await;
                answer.map(|answer| Right { allowed: answer.status.is_some_and(|status| status.allowed), ..right })
            }
        })
        .buffered(AT_ONCE);
    let mut all = Vec::new();
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(right) => all.push(right),
            Err(kube::Error::Api(status)) => return Err(status.message.clone()),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(all)
}

fn build_review(right: &Right) -> SubjectAccessReview {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (right.resource.as_str(), None),
    };
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{NAMESPACE}"), "system:authenticated"];
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(roles::name_account(&right.component)),
            groups: Some(groups.map(str::to_owned).into()),
            resource_attributes: Some(ResourceAttributes {
                group: Some(right.group.clone()),
                resource: Some(resource.to_owned()),
                subresource,
                verb: Some(right.verb.clone()),
                namespace: right.namespace.clone(),
                name: right.name.clone(),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_of_every_bound_role_is_asked_for_by_name_and_namespace() {
        let all = list_rights(&Granted::default());
        let has = |component: &str, verb: &str, resource: &str, namespace: Option<&str>, name: Option<&str>| {
            all.iter().any(|right| {
                (right.component.as_str(), right.verb.as_str(), right.resource.as_str()) == (component, verb, resource)
                    && (right.namespace.as_deref(), right.name.as_deref()) == (namespace, name)
            })
        };
        assert!(has("controller", "patch", "resourcebindings", None, None));
        assert!(has("controller", "patch", "leases", Some("caldera-system"), Some("caldera-controller")));
        assert!(has("scheduler", "get", "clusters/proxy", None, None));
        assert!(has("inventory", "get", "secrets", Some("karmada-cluster"), None));
        // Nobody is a reader until somebody binds that role.
        assert!(!all.iter().any(|right| right.component.ends_with("reader")));
    }
}
