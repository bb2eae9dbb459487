//! Writes that are not everybody's: bindings and Works as far as they say what is admitted, placed and sent.
//!
//! Rule: [`caldera_crds::trusted`]. A binding that changes in a protected field, and a Work that carries a workload, is
//! refused to everybody else than trusted writers, with the field's name. All else in a user's write goes on to the
//! other rules.

use caldera_crds::{
    names::karmada,
    trusted::{REFUSED_TO_OTHERS, TrustedWriters, carries_workload, find_protected_change},
};
use serde_json::Value;

use super::verdict::{Denial, Verdict};
use crate::observe::request::{ReviewRequest, UserInfo, parse_review};

/// Why a write of a binding is refused, if it is.
#[must_use]
pub fn refuse_forged_binding(body: &[u8], user: Option<&UserInfo<'_>>, trusted: &TrustedWriters) -> Option<Verdict> {
    let request = parse_untrusted_request(body, user, trusted)?;
    let field = find_protected_change(request.old_object.as_ref(), request.object.as_ref()?)?;
    Some(deny_user(user, &field))
}

/// Why a write of a Work is refused, if it is.
#[must_use]
pub fn refuse_forged_work(body: &[u8], user: Option<&UserInfo<'_>>, trusted: &TrustedWriters) -> Option<Verdict> {
    let request = parse_untrusted_request(body, user, trusted)?;
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let (old, new) = (request.old_object.as_ref(), request.object.as_ref()?);
    if !namespace.starts_with(karmada::EXECUTION_NAMESPACE_PREFIX)
        || !(carries_workload(new) || old.is_some_and(carries_workload))
    {
        return None;
    }
    let Some(old) = old else { return Some(deny_user(user, "a Work that carries a workload")) };
    let fields = ["/spec", "/metadata/annotations", "/metadata/labels"];
    let changed = fields.into_iter().find(|field| old.pointer(field) != new.pointer(field))?;
    Some(deny_user(
        user,
        &format!("{} of a Work that carries a workload", changed.trim_start_matches('/').replace('/', ".")),
    ))
}

/// The whole request, if it is somebody's who is not trusted.
fn parse_untrusted_request<'a>(
    body: &'a [u8],
    user: Option<&UserInfo<'_>>,
    trusted: &TrustedWriters,
) -> Option<ReviewRequest<'a, Value>> {
    let is_trusted = user.is_some_and(|user| trusted.trusts(&user.username, user.list_groups()));
    if is_trusted {
        return None;
    }
    // A body that does not parse is answered by the rule that reads it.
    parse_review::<Value>(body).ok()
}

fn deny_user(user: Option<&UserInfo<'_>>, what: &str) -> Verdict {
    let who = user.map_or("nobody", |user| &*user.username);
    let message = format!("{what} {REFUSED_TO_OTHERS}, and user {who:?} is neither");
    Verdict::Deny(Denial { code: 403, reason: "Forbidden", message })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KARMADA: &str = "system:serviceaccount:karmada-system:karmada-controller-manager";

    fn judge(
        rule: fn(&[u8], Option<&UserInfo<'_>>, &TrustedWriters) -> Option<Verdict>,
        user: &str,
        (namespace, old, new): (&str, Option<&Value>, &Value),
    ) -> Option<String> {
        let body = json!({"request": {
            "uid": "u", "operation": if old.is_some() { "UPDATE" } else { "CREATE" }, "namespace": namespace,
            "object": new, "oldObject": old, "userInfo": {"username": user, "groups": ["system:authenticated"]},
        }})
        .to_string();
        let request = parse_review::<Value>(body.as_bytes()).unwrap();
        match rule(body.as_bytes(), request.user_info.as_ref(), &TrustedWriters::default()) {
            None => None,
            Some(Verdict::Deny(denial)) => Some(denial.message),
            Some(other) => panic!("{other:?}"),
        }
    }

    fn binding(annotations: Value) -> Value {
        json!({
            "metadata": {"name": "x-job", "annotations": annotations},
            "spec": {
                "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "x", "namespace": "ns"},
                "placement": {}, "schedulerName": "caldera", "suspension": {"scheduling": true},
            },
        })
    }

    #[test]
    fn a_tenants_forged_record_is_refused_with_the_field_and_the_controllers_own_is_not() {
        let old = binding(json!({"caldera.dev/gate": "closed"}));
        let mut forged = binding(json!({"caldera.dev/gate": "open", "caldera.dev/admission": "{}"}));
        forged["spec"]["suspension"]["scheduling"] = false.into();
        let write = ("ns", Some(&old), &forged);
        assert_eq!(
            judge(refuse_forged_binding, "tenant", write).unwrap(),
            "metadata.annotations[caldera.dev/gate] is written by Caldera and Karmada alone, and user \"tenant\" is \
             neither"
        );
        let ours = "system:serviceaccount:caldera-system:caldera-controller";
        assert_eq!(judge(refuse_forged_binding, ours, write), None);
    }

    #[test]
    fn a_tenants_own_suspension_is_let_through() {
        let old = binding(json!({"caldera.dev/gate": "open", "caldera.dev/admission": "{}"}));
        let mut lifted = old.clone();
        lifted["spec"]["suspension"]["scheduling"] = false.into();
        assert_eq!(judge(refuse_forged_binding, "tenant", ("ns", Some(&old), &lifted)), None);
        assert_eq!(judge(refuse_forged_binding, "tenant", ("ns", Some(&lifted), &old)), None);
    }

    #[test]
    fn a_work_with_a_workload_is_karmadas_alone() {
        let work = |kind: (&str, &str), replicas: u32| {
            json!({"metadata": {"name": "w"}, "spec": {"workload": {"manifests": [{
                "apiVersion": kind.0, "kind": kind.1, "metadata": {"name": "x"}, "spec": {"replicas": replicas},
            }]}}})
        };
        let (one, two) = (work(("apps/v1", "Deployment"), 1), work(("apps/v1", "Deployment"), 2));
        let judge = |user, write| judge(refuse_forged_work, user, write);
        assert!(judge("tenant", ("karmada-es-m1", None, &one)).is_some());
        assert!(judge("tenant", ("karmada-es-m1", Some(&one), &two)).unwrap().starts_with("spec of a Work"));
        assert_eq!(judge("tenant", ("karmada-es-m1", Some(&one), &one)), None, "a finalizer, say");
        assert_eq!(judge(KARMADA, ("karmada-es-m1", Some(&one), &two)), None);
        // Nothing reads a Work elsewhere, and what is no workload is not ours.
        assert_eq!(judge("tenant", ("ns", None, &one)), None);
        assert_eq!(judge("tenant", ("karmada-es-m1", None, &work(("v1", "ConfigMap"), 1))), None);
    }
}
