//! Tokens of service accounts: what `serviceaccounts/token` issues and requests come back with
//! (`pkg/registry/core/serviceaccount/storage/token.go`, `pkg/serviceaccount`).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::User;
use crate::call::Call;
use crate::error::Status;
use crate::meta;
use crate::schema::FieldError;
use crate::server::ApiServer;
use crate::store::Key;

/// Whom tokens are for unless they say otherwise: this server.
pub const AUDIENCE: &str = "https://kubernetes.default.svc";
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;
/// More tokens than this: the expired ones are forgotten.
const MANY: usize = 1024;

#[derive(Debug, Clone)]
struct Issued {
    user: User,
    account: Key,
    audiences: Vec<String>,
    expires: Timestamp,
}

/// The tokens that are out.
#[derive(Debug, Default)]
pub struct Tokens(Mutex<BTreeMap<String, Issued>>);

impl Tokens {
    /// Who has this token, for one of these audiences: the user, and the audiences that both sides name.
    pub fn find_user(&self, server: &ApiServer, token: &str, audiences: &[String]) -> Option<(User, Vec<String>)> {
        let issued = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned()?;
        let account = server.store().get("serviceaccounts", &issued.account)?;
        let shared: Vec<String> = issued.audiences.iter().filter(|a| audiences.contains(a)).cloned().collect();
        let valid = issued.expires > server.now()
            && meta::metadata_text(&account.value, "uid") == issued.user.uid
            && !shared.is_empty();
        valid.then_some((issued.user, shared))
    }

    fn remember(&self, token: &str, issued: Issued, now: Timestamp) {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= MANY {
            tokens.retain(|_, issued| issued.expires > now);
        }
        tokens.insert(token.to_owned(), issued);
    }
}

/// Whether a request for a token of `account` can be granted.
pub fn check_request(call: &Call, request: &Value, account: &Value) -> Result<(), Status> {
    let invalid =
        |name: &str, error: FieldError| Status::invalid("authentication.k8s.io", "TokenRequest", name, &[error]);
    let name = &call.info.name;
    for (member, wanted) in [("name", name.as_str()), ("namespace", call.namespace())] {
        let given = meta::metadata_text(request, member);
        if !given.is_empty() && given != wanted {
            let why = format!("must match the service account {member} if specified");
            return Err(invalid(name, FieldError::invalid_text(format!("metadata.{member}"), given, &why)));
        }
    }
    let (uid, given) = (meta::metadata_text(account, "uid"), meta::metadata_text(request, "uid"));
    if !given.is_empty() && given != uid {
        let why =
            format!("the UID in the token request ({given}) does not match the UID of the service account ({uid})");
        return Err(Status::conflict("authentication.k8s.io", "TokenRequest", name, &why));
    }
    Ok(())
}

pub fn check_duration(seconds: i64) -> Result<(), Status> {
    let why = match seconds {
        s if s < SHORTEST => "may not specify a duration less than 10 minutes",
        s if s > LONGEST => "may not specify a duration larger than 2^32 seconds",
        _ => return Ok(()),
    };
    let error = FieldError::invalid("spec.expirationSeconds", &seconds.into(), why);
    Err(Status::invalid("authentication.k8s.io", "TokenRequest", "", &[error]))
}

/// The object that a token is bound to must be there, and a pod must run as the account.
pub fn check_bound(call: &Call, reference: &Value) -> Result<(), Status> {
    let text = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("kind"), text("name"));
    let (plural, namespace) = match (text("apiVersion"), kind) {
        ("v1", "Pod") => ("pods", call.namespace()),
        ("v1", "Secret") => ("secrets", call.namespace()),
        ("v1", "Node") => ("nodes", ""),
        (version, kind) => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let shown = format!("{group}/{version}, Kind={kind}");
            return Err(Status::bad_request(format!("cannot bind token to object of type {shown}")));
        }
    };
    let found = call.server.store().get(plural, &Key::new(namespace, name));
    let found = found.ok_or_else(|| Status::not_found("", plural, name))?;
    let account = &call.info.name;
    let runs_as = found.value.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or_default();
    if plural == "pods" && runs_as != account {
        let (account, runs_as) = (crate::error::go_quote(account), crate::error::go_quote(runs_as));
        let why =
            format!("cannot bind token for serviceaccount {account} to pod running with serviceaccount {runs_as}");
        return Err(Status::bad_request(why));
    }
    let (given, uid) = (text("uid"), meta::metadata_text(&found.value, "uid"));
    if !given.is_empty() && given != uid {
        let why = format!(
            "the UID in the bound object reference ({given}) does not match the UID in record ({uid}). The object might have \
             been deleted and then recreated"
        );
        return Err(Status::conflict("", kind, name, &why));
    }
    Ok(())
}

/// The status of a granted request.
pub fn issue_token(call: &Call, account: &Value, audiences: Vec<String>, seconds: i64) -> Value {
    let now = call.server.now();
    let expires = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
    let (namespace, name) = (call.namespace(), &call.info.name);
    let token = format!("{}.{}", call.server.new_id().simple(), call.server.new_id().simple());
    let mut user = super::service_account(namespace, name);
    user.uid = meta::metadata_text(account, "uid").to_owned();
    let credential = format!("JTI={}", call.server.new_id());
    user.extra.insert("authentication.kubernetes.io/credential-id".into(), vec![credential]);
    let issued = Issued { user, account: Key::new(namespace, name), audiences, expires };
    call.server.state().tokens.remember(&token, issued, now);
    json!({"token": token, "expirationTimestamp": crate::clock::write_seconds(expires)})
}
