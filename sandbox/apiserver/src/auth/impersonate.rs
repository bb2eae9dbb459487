//! Impersonation (`apiserver/pkg/endpoints/filters/impersonation`): the constrained modes first, then the old one.
//!
//! A mode asks two things: whether the user may do what the request does in this mode (`impersonate-on:<mode>:<verb>`),
//! and whether they may be each part of the wanted user (`impersonate:<mode>`). The old mode asks the second alone
//! (`impersonate`). When none allows it, the refusal is that of the mode which last worked for this user, or the first.

use http::HeaderMap;

use super::{RequestInfo, User, authorize_request, forbid_request};
use crate::error::{Status, go_quote};
use crate::meta::{label_problems, subdomain_problems};
use crate::request::percent_decode;
use crate::server::ApiServer;

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// How many groups or extra values make it worth asking for all of them at once.
const MANY: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

const MODES: [Mode; 4] = [Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn verb(self) -> String {
        if self == Self::Legacy { "impersonate".into() } else { format!("impersonate:{}", self.name()) }
    }

    fn is_for(self, wanted: &User) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let (node, account) = (node_name(&wanted.name).is_some(), account_name(&wanted.name).is_some());
        match self {
            Self::ArbitraryNode => only_name && node,
            Self::ServiceAccount => only_name && account,
            Self::UserInfo => !node && !account,
            Self::Legacy => true,
        }
    }
}

/// The namespace and name of a service account's user name (`serviceaccount.SplitUsername`). Names that no namespace or
/// account can have are those of an ordinary user.
fn account_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let fits = label_problems(namespace).is_empty() && subdomain_problems(name).is_empty();
    fits.then_some((namespace, name))
}

fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| subdomain_problems(name).is_empty())
}

/// The user as whom the request is to count (`Impersonate-User` and its sisters), if the asking user may do that.
pub fn impersonate_user(
    server: &ApiServer,
    user: User,
    headers: &HeaderMap,
    request: &RequestInfo,
) -> Result<User, Status> {
    let Some(wanted) = read_wanted(headers)? else { return Ok(user) };
    let last = server.state().impersonations.last_mode(&user.name);
    let rest = MODES.into_iter().filter(|mode| Some(*mode) != last);
    let mut refusal = None;
    for mode in last.into_iter().chain(rest).filter(|mode| mode.is_for(&wanted)) {
        match become_user(server, &user, &wanted, request, mode) {
            Ok(actual) => {
                server.state().impersonations.remember_mode(&user.name, mode);
                return Ok(actual);
            }
            Err(status) => refusal = refusal.or(Some(status)),
        }
    }
    Err(refusal.unwrap_or_else(|| Status::unknown("all impersonation modes failed")))
}

fn read_wanted(headers: &HeaderMap) -> Result<Option<User>, Status> {
    let texts = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().filter_map(|h| h.to_str().ok()).map(str::to_owned).collect()
    };
    let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
    let mut wanted = User {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: texts("impersonate-group"),
        ..User::default()
    };
    for (name, value) in headers {
        if let (Some(key), Ok(value)) = (name.as_str().strip_prefix(EXTRA_PREFIX), value.to_str()) {
            wanted.extra.entry(percent_decode(key, false)).or_default().push(value.to_owned());
        }
    }
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted == User::default() {
        return Ok(None);
    }
    let shown = go_user(&wanted);
    Err(Status::bad_request(format!("requested {shown} without impersonating a user name")))
}

/// A user as Go's `%#v` prints it.
fn go_user(user: &User) -> String {
    let list = |values: &[String]| {
        if values.is_empty() {
            return "[]string(nil)".to_owned();
        }
        format!("[]string{{{}}}", values.iter().map(|v| go_quote(v)).collect::<Vec<_>>().join(", "))
    };
    let extra = if user.extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        let entries: Vec<String> =
            user.extra.iter().map(|(key, values)| format!("{}:{}", go_quote(key), list(values))).collect();
        format!("map[string][]string{{{}}}", entries.join(", "))
    };
    let (name, uid) = (go_quote(&user.name), go_quote(&user.uid));
    format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{}, Extra:{extra}}}", list(&user.groups))
}

/// The wanted user, completed, when the mode allows all of it.
fn become_user(
    server: &ApiServer,
    user: &User,
    wanted: &User,
    request: &RequestInfo,
    mode: Mode,
) -> Result<User, Status> {
    let legacy = mode == Mode::Legacy;
    if !legacy {
        let verb = format!("impersonate-on:{}:{}", mode.name(), request.verb);
        authorize_request(server, user, &RequestInfo { verb, ..request.clone() })?;
    }
    let about = |group: &str, resource: &str, name: &str| RequestInfo {
        verb: mode.verb(),
        is_resource: true,
        group: group.into(),
        version: "v1".into(),
        resource: resource.into(),
        name: name.into(),
        ..RequestInfo::default()
    };
    let own_group = if legacy { "" } else { AUTHENTICATION };
    let mut actual = wanted.clone();
    let mut question = about(own_group, "users", &wanted.name);
    if let Some(name) = node_name(&wanted.name).filter(|_| !legacy) {
        question = about(own_group, "nodes", name);
        actual.groups = vec!["system:nodes".into()];
    }
    if let Some((namespace, name)) = account_name(&wanted.name) {
        question = RequestInfo { namespace: namespace.into(), ..about(own_group, "serviceaccounts", name) };
        if wanted.groups.is_empty() {
            actual.groups = vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
        }
    }
    let ask = |question: &RequestInfo| authorize_request(server, user, question);
    ask(&question)?;
    if !wanted.uid.is_empty() {
        ask(&about(AUTHENTICATION, "uids", &wanted.uid))?;
    }
    let groups = about(own_group, "groups", "");
    if !legacy {
        if wanted.groups.iter().any(String::is_empty) {
            return Err(forbid_request(user, &groups, "impersonating the empty string group is not allowed"));
        }
        if wanted.groups.iter().any(|g| g == "system:masters") {
            let masters = RequestInfo { name: "system:masters".into(), ..groups };
            return Err(forbid_request(user, &masters, "impersonating the system:masters group is not allowed"));
        }
    }
    let named = |question: &RequestInfo, name: &str| RequestInfo { name: name.into(), ..question.clone() };
    if legacy || wanted.groups.len() < MANY || ask(&named(&groups, "*")).is_err() {
        wanted.groups.iter().try_for_each(|group| ask(&named(&groups, group)))?;
    }
    let extra = about(AUTHENTICATION, "userextras", "");
    if !legacy && let Some(why) = extra_problem(wanted) {
        return Err(forbid_request(user, &extra, &why));
    }
    let many = wanted.extra.values().map(Vec::len).sum::<usize>() >= MANY;
    let all = RequestInfo { subresource: "*".into(), ..named(&extra, "*") };
    if legacy || !many || ask(&all).is_err() {
        for (key, value) in wanted.extra.iter().flat_map(|(key, values)| values.iter().map(move |v| (key, v))) {
            ask(&RequestInfo { subresource: key.clone(), ..named(&extra, value) })?;
        }
    }
    let group = if actual.name == "system:anonymous" { UNAUTHENTICATED } else { AUTHENTICATED };
    let has = |group: &str| actual.groups.iter().any(|g| g == group);
    if !has(group) && !has(UNAUTHENTICATED) {
        actual.groups.push(group.into());
    }
    Ok(actual)
}

fn extra_problem(wanted: &User) -> Option<String> {
    wanted.extra.iter().find_map(|(key, values)| {
        if key.is_empty() {
            return Some("impersonating the empty string key in extra is not allowed".to_owned());
        }
        // `IsDomainPrefixedPath`: a domain, a slash, a path.
        if !key.split_once('/').is_some_and(|(domain, path)| !domain.is_empty() && !path.is_empty()) {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            let shown = go_quote(key);
            return Some(format!(
                "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {shown}: {why}"
            ));
        }
        let empty = values.iter().any(String::is_empty);
        empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
    })
}

/// In which mode each user last impersonated somebody.
#[derive(Debug, Default)]
pub struct Impersonations(std::sync::Mutex<std::collections::BTreeMap<String, Mode>>);

impl Impersonations {
    /// More users than this are forgotten at once.
    const MOST: usize = 10_000;

    fn last_mode(&self, user: &str) -> Option<Mode> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(user).copied()
    }

    fn remember_mode(&self, user: &str, mode: Mode) {
        let mut modes = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if modes.len() >= Self::MOST {
            modes.clear();
        }
        modes.insert(user.to_owned(), mode);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_an_impossible_account_name_is_an_ordinary_one() {
        assert_eq!(account_name("system:serviceaccount:a:b.c"), Some(("a", "b.c")));
        for user in ["system:serviceaccount:{ns}:sa", "system:serviceaccount:a:B", "system:serviceaccount:a:b:c"] {
            assert_eq!(account_name(user), None, "{user}");
        }
        let wanted = User { name: "system:serviceaccount:{ns}:sa".into(), ..User::default() };
        assert!(Mode::UserInfo.is_for(&wanted) && !Mode::ServiceAccount.is_for(&wanted));
    }
}
