//! `exec`, `attach`, `portforward` and `proxy`: admission is asked about a CONNECT with the options of the query, then
//! there is nobody to connect to, because no kubelet runs here (`endpoints/handlers/rest.go`, `core/pod/rest`).

use serde_json::{Map, Value, json};

use super::*;
use crate::admission::Operation;
use crate::kind_rules::text_of;
use crate::store::Key;

/// The subresources that lead to a node, with the kind of their options.
pub const CONNECTIONS: [(&str, &str, &str); 6] = [
    ("pods", "attach", "PodAttachOptions"),
    ("pods", "exec", "PodExecOptions"),
    ("pods", "portforward", "PodPortForwardOptions"),
    ("pods", "proxy", "PodProxyOptions"),
    ("services", "proxy", "ServiceProxyOptions"),
    ("nodes", "proxy", "NodeProxyOptions"),
];

/// The options of the query, as the kind of the subresource has them.
fn read_options(call: &Call, kind: &str, rest: &str) -> Value {
    let mut options = Map::new();
    options.insert("kind".into(), kind.into());
    options.insert("apiVersion".into(), "v1".into());
    match kind {
        "PodExecOptions" | "PodAttachOptions" => {
            for flag in ["stdin", "stdout", "stderr", "tty"].into_iter().filter(|flag| call.query.flag(flag)) {
                options.insert(flag.into(), true.into());
            }
            if let Some(container) = call.query.get("container").filter(|c| !c.is_empty()) {
                options.insert("container".into(), container.into());
            }
            let command = call.query.all("command");
            if kind == "PodExecOptions" {
                options.insert("command".into(), if command.is_empty() { Value::Null } else { json!(command) });
            }
        }
        "PodPortForwardOptions" => {
            let ports: Vec<i64> = call.query.all("ports").iter().filter_map(|p| p.parse().ok()).collect();
            if !ports.is_empty() {
                options.insert("ports".into(), json!(ports));
            }
        }
        _ if rest.is_empty() => {}
        _ => drop(options.insert("path".into(), format!("/{rest}").into())),
    }
    Value::Object(options)
}

pub async fn connect_object(call: &mut Call, kind: &str, rest: &str) -> Result<Reply, Status> {
    let resource = call.resource.clone();
    let subresource = call.info.subresource.split('/').next().unwrap_or_default().to_owned();
    let (name, namespace, user) = (call.info.name.clone(), call.namespace().to_owned(), call.user.clone());
    let mut options = read_options(call, kind, rest);
    let attributes = Attributes {
        operation: Operation::Connect,
        resource: &resource,
        subresource: &subresource,
        subresource_kind: Some(("", "v1", kind)),
        namespace: &namespace,
        name: &name,
        old_object: None,
        options: &Value::Null,
        dry_run: false,
        user: &user,
    };
    if admission::any_concerned(&call.server, &attributes) {
        let as_it_is = |_: &mut Value| Ok(());
        admission::run_mutating(&call.server, &attributes, Some(&mut options), &as_it_is, &mut call.warnings).await?;
        admission::run_validating(&call.server, &attributes, Some(&options), &mut call.warnings).await?;
    }
    if subresource == "proxy" {
        return Err(refuse_proxy(call, &name));
    }
    let object = call.get(&name).ok_or_else(|| call.not_found(&name))?;
    if kind == "PodExecOptions" || kind == "PodAttachOptions" {
        log::check_container(&object.value, text_of(&options, "container"))?;
    }
    Err(match resource.plural.as_str() {
        "pods" if object.value.pointer("/spec/nodeName").is_none() => {
            Status::bad_request(format!("pod {name} does not have a host assigned"))
        }
        _ => no_backend(),
    })
}

fn no_backend() -> Status {
    Status::internal("error dialing backend: no kubelet runs here, pods are simulated and have no containers")
}

/// `name`, `name:port` or `scheme:name:port` (`SplitSchemeNamePort`).
fn split_target(text: &str) -> Option<(&str, &str)> {
    let mut parts = text.split(':');
    let (name, port) = match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(name), None, ..) => (name, ""),
        (Some(name), Some(port), None, _) => (name, port),
        (Some("" | "http" | "https"), Some(name), Some(port), None) => (name, port),
        _ => return None,
    };
    (!name.is_empty()).then_some((name, port))
}

/// Why nothing behind the object can be reached (`ResourceLocation` of pods, services and nodes).
fn refuse_proxy(call: &Call, target: &str) -> Status {
    let plural = call.resource.plural.as_str();
    let Some((name, port)) = split_target(target) else {
        let what = plural.trim_end_matches('s');
        return Status::bad_request(format!("invalid {what} request {}", go_quote(target)));
    };
    let object = call.get(name);
    match (plural, &object) {
        // The endpoints are looked for, not the service.
        ("services", _) => refuse_service(call, name, port),
        (_, None) => call.not_found(name),
        ("pods", Some(pod)) if pod.value.pointer("/status/podIP").is_none() => {
            Status::bad_request("address not allowed")
        }
        ("nodes", Some(node)) if node.value.pointer("/status/addresses").is_none() => {
            Status::unknown("no preferred addresses found; known addresses: []")
        }
        _ => no_backend(),
    }
}

fn refuse_service(call: &Call, name: &str, port: &str) -> Status {
    if let Ok(number) = port.parse::<i64>() {
        let Some(service) = call.get(name) else { return call.not_found(name) };
        let ports = service.value.pointer("/spec/ports").and_then(Value::as_array);
        if !ports.into_iter().flatten().any(|port| port.get("port").and_then(Value::as_i64) == Some(number)) {
            let why = format!("no service port {number} found for service {}", go_quote(name));
            return Status::new(503, "ServiceUnavailable", why);
        }
    }
    if call.server.store().get("endpoints", &Key::new(call.namespace(), name)).is_none() {
        return call.not_found(name);
    }
    Status::new(503, "ServiceUnavailable", format!("no endpoints available for service {}", go_quote(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_asked_for_a_name_a_port_and_a_scheme() {
        assert_eq!(split_target("a"), Some(("a", "")));
        assert_eq!(split_target("a:80"), Some(("a", "80")));
        assert_eq!(split_target("https:a:h"), Some(("a", "h")));
        for odd in ["", ":80", "https::80", "ftp:a:80", "a:b:c:d"] {
            assert_eq!(split_target(odd), None, "{odd}");
        }
    }
}
