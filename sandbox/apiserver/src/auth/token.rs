//! Tokens of service accounts: what `serviceaccounts/token` issues and requests come back with
//! (`pkg/registry/core/serviceaccount/storage/token.go`, `pkg/serviceaccount`).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::User;
use crate::call::Call;
use crate::error::{Status, go_quote};
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
    bound: Option<Bound>,
}

/// What a token lives no longer than.
#[derive(Debug, Clone)]
pub struct Bound {
    plural: &'static str,
    key: Key,
    uid: String,
    /// The node of a pod, which is told with it.
    node: String,
}

/// The tokens that are out.
#[derive(Debug, Default)]
pub struct Tokens {
    issued: Mutex<BTreeMap<String, Issued>>,
    /// Whom a token was good for, by token and audiences.
    found: Mutex<BTreeMap<(String, Vec<String>), Found>>,
}

/// A success that is remembered: how long, and what it was.
#[derive(Debug, Clone)]
struct Found {
    until: Timestamp,
    user: User,
    audiences: Vec<String>,
}

/// How long a token that was good is taken unseen (`TokenSuccessCacheTTL`).
const REMEMBERED: SignedDuration = SignedDuration::from_secs(10);

impl Tokens {
    /// Who has this token, for one of these audiences: the user, and the audiences that both sides name. Else why not,
    /// when the token is one of ours. A success is remembered (`apiserver/pkg/authentication/token/cache`).
    pub fn find_user(
        &self,
        server: &ApiServer,
        token: &str,
        audiences: &[String],
    ) -> Result<(User, Vec<String>), Option<String>> {
        let now = server.now();
        let key = (token.to_owned(), audiences.to_vec());
        let remembered = self.found.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(known) = remembered.filter(|known| known.until > now) {
            return Ok((known.user, known.audiences));
        }
        let (user, shared) = self.check_token(server, token, audiences)?;
        let until = now.checked_add(REMEMBERED).unwrap_or(now);
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= MANY {
            found.retain(|_, known| known.until > now);
        }
        found.insert(key, Found { until, user: user.clone(), audiences: shared.clone() });
        Ok((user, shared))
    }

    fn check_token(
        &self,
        server: &ApiServer,
        token: &str,
        audiences: &[String],
    ) -> Result<(User, Vec<String>), Option<String>> {
        let issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned().ok_or(None)?;
        let refused = |why: String| Err(Some(why));
        let shared: Vec<String> = issued.audiences.iter().filter(|a| audiences.contains(a)).cloned().collect();
        if shared.is_empty() {
            let (own, wanted) = (show_list(&issued.audiences), show_list(audiences));
            return refused(format!("token audiences {own} is invalid for the target audiences {wanted}"));
        }
        if issued.expires <= server.now() {
            return refused("service account token has expired".into());
        }
        let uid_of = |plural: &str, key: &Key| {
            server.store().get(plural, key).map(|found| meta::metadata_text(&found.value, "uid").to_owned())
        };
        match uid_of("serviceaccounts", &issued.account) {
            None => {
                let name = go_quote(&issued.account.name);
                return refused(format!("serviceaccounts {name} not found"));
            }
            Some(uid) if uid != issued.user.uid => {
                let claim = &issued.user.uid;
                return refused(format!("service account UID ({uid}) does not match claim ({claim})"));
            }
            Some(_) => {}
        }
        if issued.bound.as_ref().is_some_and(|b| uid_of(b.plural, &b.key).as_deref() != Some(b.uid.as_str())) {
            return refused("service account token has been invalidated".into());
        }
        Ok((issued.user, shared))
    }

    fn remember(&self, token: &str, issued: Issued, now: Timestamp) {
        let mut tokens = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= MANY {
            tokens.retain(|_, issued| issued.expires > now);
        }
        tokens.insert(token.to_owned(), issued);
    }
}

fn show_list(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|t| go_quote(t)).collect::<Vec<_>>().join(" "))
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
pub fn check_bound(call: &Call, reference: &Value) -> Result<Bound, Status> {
    let text = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("kind"), text("name"));
    let version = text("apiVersion");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    // Only the group is looked at.
    let (plural, namespace) = match (group, kind) {
        ("", "Pod") => ("pods", call.namespace()),
        ("", "Secret") => ("secrets", call.namespace()),
        ("", "Node") => ("nodes", ""),
        _ => {
            let shown = format!("{group}/{version}, Kind={kind}");
            return Err(Status::bad_request(format!("cannot bind token to object of type {shown}")));
        }
    };
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    let key = Key::new(namespace, name);
    let found = call.server.store().get(plural, &key);
    let found = found.ok_or_else(|| Status::not_found("", plural, name))?;
    let account = &call.info.name;
    let runs_as = found.value.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or_default();
    if plural == "pods" && runs_as != account {
        let account = go_quote(account);
        let why = format!(
            "cannot bind token for serviceaccount {account} to pod running with different serviceaccount name."
        );
        return Err(Status::bad_request(why));
    }
    let (given, uid) = (text("uid"), meta::metadata_text(&found.value, "uid"));
    if !given.is_empty() && given != uid {
        let why = format!(
            "the UID in the bound object reference ({given}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(Status::conflict("", kind, name, &why));
    }
    let node = found.value.pointer("/spec/nodeName").and_then(Value::as_str).filter(|_| plural == "pods");
    Ok(Bound { plural, key, uid: uid.to_owned(), node: node.unwrap_or_default().to_owned() })
}

/// What a request with the token says about the object that it is bound to.
fn describe_bound(server: &ApiServer, bound: &Bound) -> Vec<(String, String)> {
    let told = |kind: &str, name: &str, uid: &str| {
        let of =
            |member: &str, value: &str| (format!("authentication.kubernetes.io/{kind}-{member}"), value.to_owned());
        [of("name", name), of("uid", uid)].into_iter().filter(|(_, value)| !value.is_empty()).collect::<Vec<_>>()
    };
    let node = |name: &str| {
        let found = server.store().get("nodes", &Key::new("", name));
        let uid = found.map(|node| meta::metadata_text(&node.value, "uid").to_owned()).unwrap_or_default();
        told("node", name, &uid)
    };
    match bound.plural {
        "pods" => {
            let mut all = told("pod", &bound.key.name, &bound.uid);
            all.extend(node(&bound.node));
            all
        }
        "nodes" => told("node", &bound.key.name, &bound.uid),
        _ => Vec::new(),
    }
}

/// The status of a granted request.
pub fn issue_token(call: &Call, account: &Value, audiences: Vec<String>, seconds: i64, bound: Option<Bound>) -> Value {
    let now = call.server.now();
    let expires = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
    let (namespace, name) = (call.namespace(), &call.info.name);
    let token = format!("{}.{}", call.server.new_id().simple(), call.server.new_id().simple());
    let mut user = super::service_account(namespace, name);
    user.uid = meta::metadata_text(account, "uid").to_owned();
    let credential = format!("JTI={}", call.server.new_id());
    user.extra.insert("authentication.kubernetes.io/credential-id".into(), vec![credential]);
    for (key, value) in bound.iter().flat_map(|bound| describe_bound(&call.server, bound)) {
        user.extra.insert(key, vec![value]);
    }
    let issued = Issued { user, account: Key::new(namespace, name), audiences, expires, bound };
    call.server.state().tokens.remember(&token, issued, now);
    json!({"token": token, "expirationTimestamp": crate::clock::write_seconds(expires)})
}
