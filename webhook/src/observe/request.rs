//! The question of an AdmissionReview, read only as far as a rule needs it.
//!
//! Rule (`admission.k8s.io/v1`): a body that is no review at all is an HTTP 400. An object inside that does not have
//! the shape of its kind is denied with the uid of the question.

use std::borrow::Cow;

use serde::Deserialize;

/// What is asked. `T` is as much of the object as the rule reads; borrowed from the body.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewRequest<'a, T> {
    /// To be repeated in the answer.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    /// `CREATE`, `UPDATE` or `DELETE`.
    #[serde(borrow, default)]
    pub operation: Cow<'a, str>,
    /// The object's namespace.
    #[serde(borrow, default)]
    pub namespace: Option<Cow<'a, str>>,
    /// The object's name; absent where the server generates it.
    #[serde(borrow, default)]
    pub name: Option<Cow<'a, str>>,
    /// True if nothing will be stored.
    #[serde(default)]
    pub dry_run: Option<bool>,
    /// Who asks.
    #[serde(borrow, default)]
    pub user_info: Option<UserInfo<'a>>,
    /// The new object.
    pub object: Option<T>,
    /// The old object.
    pub old_object: Option<T>,
}

/// Who asks, as the API server knows them.
#[derive(Debug, Default, Deserialize)]
pub struct UserInfo<'a> {
    /// Their name.
    #[serde(borrow, default)]
    pub username: Cow<'a, str>,
    /// Their groups.
    #[serde(borrow, default)]
    pub groups: Vec<Cow<'a, str>>,
}

impl UserInfo<'_> {
    /// Their groups.
    pub fn list_groups(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|group| &**group)
    }
}

impl<T> ReviewRequest<'_, T> {
    /// Whether this is a creation.
    #[must_use]
    pub fn is_create(&self) -> bool {
        self.operation == "CREATE"
    }

    /// The object before this change; a creation has none, whatever is sent as one.
    #[must_use]
    pub fn before(&self) -> Option<&T> {
        self.old_object.as_ref().filter(|_| !self.is_create())
    }
}

#[derive(Deserialize)]
struct Envelope<R> {
    request: R,
}

#[derive(Deserialize)]
struct Uid<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MalformedReview {
    /// Not an AdmissionReview with a request.
    #[error("failed to read the body as an AdmissionReview: {0}")]
    Review(serde_json::Error),
    /// A review, but its object does not have the shape of its kind.
    #[error("failed to read the object of the AdmissionReview: {error}")]
    Object {
        /// The question's uid.
        uid: String,
        /// What is wrong.
        error: serde_json::Error,
    },
}

/// Reads the question out of a body.
///
/// # Errors
/// If it is no review, or its object has another shape.
pub fn parse_review<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<ReviewRequest<'a, T>, MalformedReview> {
    serde_json::from_slice::<Envelope<ReviewRequest<'a, T>>>(body).map(|envelope| envelope.request).map_err(|error| {
        match serde_json::from_slice::<Envelope<Uid<'a>>>(body) {
            Ok(envelope) => MalformedReview::Object { uid: envelope.request.uid.into_owned(), error },
            Err(_) => MalformedReview::Review(error),
        }
    })
}

#[derive(Deserialize)]
struct TracedBinding<'a> {
    #[serde(borrow)]
    spec: TracedSpec<'a>,
}

#[derive(Deserialize)]
struct TracedSpec<'a> {
    #[serde(borrow)]
    resource: Uid<'a>,
}

/// The binding that a review is about, and the UID of its workload, by which its trace is known.
#[must_use]
pub fn read_traced_binding(body: &[u8]) -> Option<(String, String)> {
    let request = parse_review::<TracedBinding<'_>>(body).ok()?;
    let uid = request.object?.spec.resource.uid.into_owned();
    Some((format!("{}/{}", request.namespace.unwrap_or_default(), request.name.unwrap_or_default()), uid))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_trace_of_a_binding_is_that_of_its_workload() {
        let request = json!({"uid": "u", "namespace": "ns", "name": "j-job", "object": {
            "metadata": {"name": "j-job"}, "spec": {"resource": {"kind": "Job", "name": "j", "uid": "of-the-job"}},
        }});
        let reported = read_traced_binding(json!({"request": request}).to_string().as_bytes());
        assert_eq!(reported, Some(("ns/j-job".to_owned(), "of-the-job".to_owned())));
        assert_eq!(read_traced_binding(b"{}"), None);
    }
}
