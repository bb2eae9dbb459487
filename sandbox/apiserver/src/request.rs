//! What a URL means: the parts of an API path (`k8s.io/apiserver/pkg/endpoints/request/requestinfo.go`) and its query.

use std::sync::Arc;

use http::Method;

use crate::auth::RequestInfo;
use crate::error::Status;
use crate::resource::{Registry, Resource};

/// The decoded query, in order.
#[derive(Debug, Clone, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(raw: Option<&str>) -> Self {
        let pairs = raw.unwrap_or_default().split('&').filter(|p| !p.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(key, true), percent_decode(value, true))
        });
        Self(pairs.collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(k, _)| k == name).map(|(_, v)| v.as_str()).collect()
    }

    /// A boolean as `runtime.Convert_Slice_string_To_bool` reads it: present and not `0` or `false`.
    pub fn flag(&self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or(false)
    }

    pub fn optional_flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|v| !(v == "0" || v.eq_ignore_ascii_case("false")))
    }
}

/// Percent-decoding; `+` is a space in queries only.
pub fn percent_decode(text: &str, plus: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        let escaped =
            (byte == b'%').then(|| text.get(i + 1..i + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok())).flatten();
        match (byte, escaped) {
            (_, Some(value)) => {
                out.push(value);
                i += 2;
            }
            (b'+', _) if plus => out.push(b' '),
            _ => out.push(byte),
        }
        i += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The path and method as authorization and dispatch see them. `watch` of the query turns a list into a watch.
pub fn read_info(method: &Method, path: &str, query: &Query) -> RequestInfo {
    let mut info =
        RequestInfo { path: path.to_owned(), verb: method.as_str().to_lowercase(), ..RequestInfo::default() };
    // Only slashes at the ends do not count (`RequestInfoFactory`, `splitPath`).
    let parts: Vec<String> = path.trim_matches('/').split('/').map(|p| percent_decode(p, false)).collect();
    let mut rest = parts.as_slice();
    match rest.split_first() {
        Some((first, tail)) if first == "api" && tail.len() >= 2 => rest = tail,
        Some((first, tail)) if first == "apis" && tail.len() >= 3 => {
            info.group = tail.first().cloned().unwrap_or_default();
            rest = tail.get(1..).unwrap_or_default();
        }
        _ => return info,
    }
    let Some((version, mut rest)) = rest.split_first() else { return info };
    info.is_resource = true;
    info.version.clone_from(version);
    let mut legacy_watch = false;
    if rest.first().is_some_and(|p| p == "watch") && rest.len() > 1 {
        legacy_watch = true;
        rest = rest.get(1..).unwrap_or_default();
    }
    if rest.first().is_some_and(|p| p == "namespaces") && rest.len() > 1 {
        info.namespace = rest.get(1).cloned().unwrap_or_default();
        // `namespaces/x`, `namespaces/x/status` and `namespaces/x/finalize` are about the namespace itself.
        let own = rest.get(2).is_none_or(|p| p == "status" || p == "finalize");
        if !own {
            rest = rest.get(2..).unwrap_or_default();
        }
    }
    info.resource = rest.first().cloned().unwrap_or_default();
    info.name = rest.get(1).cloned().unwrap_or_default();
    info.subresource = rest.get(2..).unwrap_or_default().join("/");
    info.verb = request_verb(method, &info.name, legacy_watch, query).to_owned();
    info
}

/// What authorization is asked about: a list of one name is about that name, and a subresource is one path segment.
pub fn as_authorized(info: &RequestInfo, query: &Query) -> RequestInfo {
    let mut asked = info.clone();
    if let Some((first, _)) = asked.subresource.clone().split_once('/') {
        asked.subresource = first.to_owned();
    }
    if asked.name.is_empty()
        && matches!(asked.verb.as_str(), "list" | "watch")
        && let Some(name) = exact_name(query.get("fieldSelector").unwrap_or_default())
    {
        asked.name = name.to_owned();
    }
    asked
}

/// The name that a field selector asks for, if it asks for one.
fn exact_name(selector: &str) -> Option<&str> {
    let value = |term: &'_ str| -> Option<(usize, usize)> {
        let rest = term.strip_prefix("metadata.name=")?;
        let rest = rest.strip_prefix('=').unwrap_or(rest);
        Some((term.len() - rest.len(), term.len()))
    };
    selector
        .split(',')
        .find_map(|term| value(term).and_then(|(from, to)| term.get(from..to)))
        .filter(|name| !name.is_empty() && !name.contains(['/', '%']) && !matches!(*name, "." | ".."))
}

/// The kind that the path names, with the 404 of whoever would have served it.
pub fn find_resource(registry: &Registry, info: &mut RequestInfo) -> Result<Arc<Resource>, Status> {
    if let Some(resource) = registry.get(&info.group, &info.version, &info.resource) {
        // Only lists and watches reach across namespaces.
        let everywhere = matches!(info.verb.as_str(), "list" | "watch" | "get");
        if resource.namespaced && info.namespace.is_empty() && !everywhere && info.name.is_empty() {
            let missing = if resource.is_custom() { Status::page_not_found() } else { Status::verb_not_allowed() };
            return Err(if resource.verbs == ["create"] { Status::no_such_resource() } else { missing });
        }
        // What is named within a namespace without a name is routed, and goes no further (`scope.Namer`).
        let nameless = resource.namespaced && info.namespace.is_empty() && info.path.contains("/namespaces//");
        if nameless && !resource.is_custom() && !info.name.is_empty() && info.subresource.is_empty() {
            let routed = info.verb != "create" && resource.has_verb(&info.verb);
            let missing = || Status::bad_request("Namespace parameter required.");
            return Err(if routed { missing() } else { Status::verb_not_allowed() });
        }
        // A namespace lies in none.
        let own = info.resource == "namespaces" && info.name == info.namespace;
        let scope_fits = resource.namespaced || info.namespace.is_empty() || own;
        // An object of a namespaced kind has no path outside a namespace, but a collection that can be listed has.
        let listed = info.name.is_empty() && (resource.is_custom() || resource.has_verb("list"));
        let named = resource.namespaced && info.namespace.is_empty() && !listed;
        // A review is nothing that could be found again.
        let kept = resource.verbs != ["create"] || info.name.is_empty();
        if scope_fits && !named && kept {
            // The handler of custom kinds looks at no more of the path.
            if let Some((first, _)) = info.subresource.clone().split_once('/').filter(|_| resource.is_custom()) {
                first.clone_into(&mut info.subresource);
            }
            return Ok(resource.clone());
        }
        return Err(if resource.is_custom() { Status::page_not_found() } else { Status::no_such_resource() });
    }
    let built_in = registry.iter().any(|r| r.group == info.group && !r.is_custom());
    Err(if built_in { Status::no_such_resource() } else { Status::page_not_found() })
}

/// Whether the path is that of a version or a group below `/api` and `/apis`.
pub fn is_discovery(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    matches!(parts.as_slice(), ["api", _] | ["apis", _] | ["apis", _, _])
}

/// Whether a document has a route of its own: the versions, and what a built-in group version has.
pub fn is_routed(path: &str, registry: &Registry) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    let built_in = |group: &str, version: &str| {
        registry.iter().any(|r| r.group == group && r.version == version && !r.is_custom())
    };
    match parts.as_slice() {
        ["api" | "version"] => true,
        ["api", version] => built_in("", version),
        ["apis", group, version] => built_in(group, version),
        _ => false,
    }
}

fn request_verb<'a>(method: &'a Method, name: &str, legacy_watch: bool, query: &Query) -> &'a str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if name.is_empty() => "deletecollection",
        Method::DELETE => "delete",
        Method::GET | Method::HEAD if legacy_watch => "watch",
        Method::GET | Method::HEAD if !name.is_empty() => "get",
        Method::GET | Method::HEAD if query.flag("watch") => "watch",
        Method::GET | Method::HEAD => "list",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &Method, path: &str, query: &str) -> RequestInfo {
        read_info(method, path, &Query::parse(Some(query)))
    }

    #[test]
    fn a_namespaced_object_has_group_namespace_and_name() {
        let info = of(&Method::GET, "/apis/apps/v1/namespaces/n/deployments/d/scale", "");
        assert_eq!(
            (info.group.as_str(), info.namespace.as_str(), info.resource.as_str(), info.name.as_str()),
            ("apps", "n", "deployments", "d")
        );
        assert_eq!((info.subresource.as_str(), info.verb.as_str()), ("scale", "get"));
    }

    #[test]
    fn a_namespace_is_a_resource_of_its_own() {
        let info = of(&Method::PUT, "/api/v1/namespaces/n/finalize", "");
        assert_eq!(
            (info.resource.as_str(), info.name.as_str(), info.subresource.as_str()),
            ("namespaces", "n", "finalize")
        );
    }

    #[test]
    fn watch_is_asked_for_by_query_or_by_path() {
        assert_eq!(of(&Method::GET, "/api/v1/pods", "watch=").verb, "watch");
        assert_eq!(of(&Method::GET, "/api/v1/pods", "watch=0").verb, "list");
        assert_eq!(of(&Method::GET, "/api/v1/watch/pods", "").verb, "watch");
    }

    #[test]
    fn a_list_of_one_name_is_authorized_as_that_name() {
        let asked = |selector: &str| {
            let query = Query::parse(Some(&format!("fieldSelector={selector}")));
            as_authorized(&read_info(&Method::GET, "/api/v1/namespaces/n/configmaps", &query), &query).name
        };
        assert_eq!(asked("metadata.name%3Da"), "a");
        assert_eq!(asked("metadata.namespace%3Dn%2Cmetadata.name%3D%3Db"), "b");
        assert_eq!(asked("metadata.name!%3Da"), "");
    }

    #[test]
    fn a_subresource_is_authorized_as_one_segment() {
        let query = Query::default();
        let info = read_info(&Method::GET, "/api/v1/nodes/a/proxy/x/y", &query);
        assert_eq!(as_authorized(&info, &query).subresource, "proxy");
    }

    #[test]
    fn an_object_in_a_namespace_without_a_name_wants_one() {
        let registry = crate::builtin::builtin_registry();
        let refusal = |method: &Method, path: &str| find_resource(&registry, &mut of(method, path, "")).unwrap_err();
        for method in [Method::GET, Method::PUT, Method::PATCH, Method::DELETE] {
            let refused = refusal(&method, "/api/v1/namespaces//configmaps/x");
            assert_eq!((refused.code, refused.message.as_str()), (400, "Namespace parameter required."));
        }
        assert_eq!(refusal(&Method::POST, "/apis/apps/v1/namespaces//deployments/x").code, 405);
        assert_eq!(refusal(&Method::GET, "/api/v1/configmaps/x").code, 404);
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse(Some("labelSelector=a%3Db%2Cc&x=1+2"));
        assert_eq!((query.get("labelSelector"), query.get("x")), (Some("a=b,c"), Some("1 2")));
    }
}
