//! The Secret in which replicas share their authority, and while it is replaced the next or the previous one.
//!
//! Rules: it is made once, by whoever comes first, and changed only as it was read (`resourceVersion`), so that of two
//! replicas that take the same step one takes it. The key of an authority that no longer signs is not kept.

use anyhow::Context;
use caldera_crds::names::caldera;
use caldera_runtime::tls::{Authority, Identity, Validity, read_validity};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::rotation::{RotationState, RotationStep};
use crate::roles::AUTHORITY_SECRET;

pub(super) const AUTHORITY: &str = "caldera-webhook";
const CURRENT: [&str; 2] = ["tls.crt", "tls.key"];
const NEXT: [&str; 2] = ["next.crt", "next.key"];
const PREVIOUS: &str = "previous.crt";

/// What is in the Secret.
#[derive(Debug, Clone)]
pub struct SharedAuthority {
    /// Signs.
    pub current: Identity,
    next: Option<Identity>,
    previous: Option<String>,
    trusted_since: Option<Timestamp>,
    is_asked_for: bool,
    version: String,
}

impl SharedAuthority {
    fn from_secret(secret: Secret) -> anyhow::Result<Self> {
        let annotations = secret.annotations();
        let trusted_since = annotations.get(caldera::TRUSTED_SINCE).and_then(|text| text.parse().ok());
        let is_asked_for = annotations.contains_key(caldera::ROTATE);
        let version = secret.resource_version().unwrap_or_default();
        let mut data = secret.data.unwrap_or_default();
        let mut text = |name: &str| match data.remove(name) {
            None => Ok(None),
            Some(bytes) => String::from_utf8(bytes.0).map(Some).with_context(|| format!("its {name} is no text")),
        };
        let mut pair = |[cert, key]: [&str; 2]| -> anyhow::Result<_> {
            Ok(text(cert)?.zip(text(key)?).map(|(cert_pem, key_pem)| Identity { cert_pem, key_pem }))
        };
        let current = pair(CURRENT)?.with_context(|| format!("it lacks {} or {}", CURRENT[0], CURRENT[1]))?;
        let next = pair(NEXT)?;
        let previous = text(PREVIOUS)?;
        Ok(Self { current, next, previous, trusted_since, is_asked_for, version })
    }

    /// What signs.
    ///
    /// # Errors
    /// If its key is unusable.
    pub fn to_authority(&self) -> anyhow::Result<Authority> {
        Ok(Authority::from_pem(AUTHORITY, &self.current)?)
    }

    /// All that callers must trust now.
    #[must_use]
    pub fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|next| next.cert_pem.as_str());
        let all = [Some(self.current.cert_pem.as_str()), next, self.previous.as_deref()];
        let lines = all.into_iter().flatten().map(|pem| format!("{}\n", pem.trim_end()));
        lines.collect()
    }

    /// Whether there is more than the current one.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.next.is_some() || self.previous.is_some()
    }

    /// What a step is decided from.
    ///
    /// # Errors
    /// If the current authority is no certificate.
    pub fn to_state(&self) -> anyhow::Result<RotationState> {
        Ok(RotationState {
            ends: read_validity(&self.current.cert_pem)?.ends,
            has_next: self.next.is_some(),
            has_previous: self.previous.is_some(),
            trusted_since: self.trusted_since,
            is_asked_for: self.is_asked_for,
        })
    }

    /// The step as a merge patch of the Secret as it was read; none where nothing is to be done. `made` is the next
    /// authority.
    fn build_patch(
        &self,
        step: RotationStep,
        made: impl FnOnce() -> anyhow::Result<Identity>,
        now: Timestamp,
    ) -> anyhow::Result<Option<Value>> {
        let bytes = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
        let now = json!(now.to_string());
        let (data, annotations) = match step {
            RotationStep::Keep => return Ok(None),
            RotationStep::IssueNext => {
                let next = made()?;
                let data = json!({NEXT[0]: bytes(&next.cert_pem), NEXT[1]: bytes(&next.key_pem)});
                (data, json!({caldera::ROTATE: null, caldera::TRUSTED_SINCE: null}))
            }
            RotationStep::NoteTrusted => (json!({}), json!({caldera::TRUSTED_SINCE: now})),
            RotationStep::Promote => {
                let next = self.next.as_ref().context("there is no next authority")?;
                let data = json!({
                    CURRENT[0]: bytes(&next.cert_pem), CURRENT[1]: bytes(&next.key_pem), NEXT[0]: null, NEXT[1]: null,
                    PREVIOUS: bytes(&self.current.cert_pem),
                });
                (data, json!({caldera::TRUSTED_SINCE: now}))
            }
            RotationStep::RetirePrevious => (json!({PREVIOUS: null}), json!({caldera::TRUSTED_SINCE: null})),
        };
        let metadata = json!({"resourceVersion": self.version, "annotations": annotations});
        Ok(Some(json!({"metadata": metadata, "data": data})))
    }
}

fn secrets(client: &Client, namespace: &str) -> Api<Secret> {
    Api::namespaced(client.clone(), namespace)
}

fn make_authority(validity: Option<Validity>) -> anyhow::Result<Identity> {
    let made = match validity {
        None => Authority::new(AUTHORITY),
        Some(validity) => Authority::with_validity(AUTHORITY, validity),
    };
    Ok(made?.to_pem())
}

/// What is in the Secret, if there is one.
///
/// # Errors
/// If it can not be read or used.
pub async fn read_authority(client: &Client, namespace: &str) -> anyhow::Result<Option<SharedAuthority>> {
    let failed = || format!("failed to share the authority in Secret {namespace}/{AUTHORITY_SECRET}");
    let secret = secrets(client, namespace).get_opt(AUTHORITY_SECRET).await.with_context(failed)?;
    secret.map(SharedAuthority::from_secret).transpose().with_context(failed)
}

/// What is in the Secret. Where there is none, an authority is made, for ever without a validity.
///
/// # Errors
/// If the Secret can be neither made nor used.
pub async fn share_authority(
    client: &Client,
    namespace: &str,
    validity: Option<Validity>,
) -> anyhow::Result<SharedAuthority> {
    let failed = || format!("failed to share the authority in Secret {namespace}/{AUTHORITY_SECRET}");
    if let Some(shared) = read_authority(client, namespace).await? {
        return Ok(shared);
    }
    let secrets = secrets(client, namespace);
    let Identity { cert_pem, key_pem } = make_authority(validity)?;
    let data = CURRENT.into_iter().zip([cert_pem, key_pem]);
    let secret = Secret {
        metadata: ObjectMeta { name: Some(AUTHORITY_SECRET.to_owned()), ..ObjectMeta::default() },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data.map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes()))).collect()),
        ..Secret::default()
    };
    let stored = match secrets.create(&PostParams::default(), &secret).await {
        // Somebody else was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => secrets.get(AUTHORITY_SECRET).await,
        other => other,
    };
    SharedAuthority::from_secret(stored.with_context(failed)?).with_context(failed)
}

/// Takes a step; whether something changed. Where somebody else changed the Secret meanwhile, it is to be read again.
///
/// # Errors
/// If the Secret can not be written.
pub(super) async fn take_step(
    client: &Client,
    namespace: &str,
    shared: &SharedAuthority,
    step: RotationStep,
    (validity, now): (Validity, Timestamp),
) -> anyhow::Result<bool> {
    let Some(patch) = shared.build_patch(step, || make_authority(Some(validity)), now)? else { return Ok(false) };
    let patched =
        secrets(client, namespace).patch(AUTHORITY_SECRET, &PatchParams::default(), &Patch::Merge(&patch)).await;
    match patched {
        Ok(_) => {
            tracing::info!(?step, "replacing the authority of the webhooks");
            Ok(true)
        }
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(true),
        Err(error) => Err(error).with_context(|| format!("failed to take step {step:?} in Secret {AUTHORITY_SECRET}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(secret: &Secret, patch: &Value) -> Secret {
        fn merge(into: &mut Value, patch: &Value) {
            let Value::Object(changes) = patch else {
                *into = patch.clone();
                return;
            };
            for (name, change) in changes {
                match change {
                    Value::Null => drop(into.as_object_mut().unwrap().remove(name)),
                    _ => merge(into.as_object_mut().unwrap().entry(name).or_insert_with(|| json!({})), change),
                }
            }
        }
        let mut value = serde_json::to_value(secret).unwrap();
        merge(&mut value, patch);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn each_step_leaves_what_the_next_one_wants_and_no_key_that_no_longer_signs() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let [old, new] = [(); 2].map(|()| make_authority(None).unwrap());
        let mut secret = Secret {
            metadata: ObjectMeta {
                resource_version: Some("7".to_owned()),
                annotations: Some([(caldera::ROTATE.to_owned(), String::new())].into()),
                ..ObjectMeta::default()
            },
            data: Some(
                [("tls.crt", &old.cert_pem), ("tls.key", &old.key_pem)]
                    .map(|(name, text)| (name.to_owned(), ByteString(text.as_bytes().to_vec())))
                    .into(),
            ),
            ..Secret::default()
        };
        let read = |secret: &Secret| SharedAuthority::from_secret(secret.clone()).unwrap();
        let mut take = |step| {
            let patch = read(&secret).build_patch(step, || Ok(new.clone()), now).unwrap().unwrap();
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
            secret = apply(&secret, &patch);
            let names: Vec<String> = secret.data.iter().flatten().map(|(name, _)| name.clone()).collect();
            (read(&secret), names)
        };
        let (shared, _) = take(RotationStep::IssueNext);
        let state = shared.to_state().unwrap();
        assert!(state.has_next && !state.is_asked_for && state.trusted_since.is_none());
        assert_eq!(shared.bundle(), old.cert_pem.clone() + &new.cert_pem);
        let (shared, _) = take(RotationStep::NoteTrusted);
        assert_eq!(shared.to_state().unwrap().trusted_since, Some(now));
        let (shared, names) = take(RotationStep::Promote);
        assert_eq!(names, ["previous.crt", "tls.crt", "tls.key"]);
        assert_eq!(shared.current.key_pem, new.key_pem);
        assert_eq!(shared.bundle(), new.cert_pem.clone() + &old.cert_pem);
        let (shared, names) = take(RotationStep::RetirePrevious);
        assert_eq!((names.join(" "), shared.bundle()), ("tls.crt tls.key".to_owned(), new.cert_pem.clone()));
        assert!(!shared.is_replaced());
    }

    #[test]
    fn a_secret_without_a_key_is_reported() {
        let error = SharedAuthority::from_secret(Secret::default()).unwrap_err();
        assert!(error.to_string().contains("tls.key"), "{error}");
    }
}
