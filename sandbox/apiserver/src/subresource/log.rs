//! `log`: what may be asked of a pod's log, of which container, and what stands there when no container runs
//! (`core/pod/rest/log.go`, `core/pod/strategy.go`, `ValidatePodLogOptions`).

use axum::body::Body;
use axum::response::Response;
use serde_json::Value;

use super::*;
use crate::kind_rules::{items_of, spec_of, text_of};
use crate::schema::FieldError;

/// No container runs behind this server: the log of a pod that was started says that, and how the pod is.
pub fn read_log(call: &Call) -> Result<Reply, Status> {
    let name = &call.info.name;
    check_options(call)?;
    let pod = call.get(name).ok_or_else(|| call.not_found(name))?;
    check_container(&pod.value, call.query.get("container").unwrap_or_default())?;
    let mut response = Response::new(Body::from(describe_log(&pod.value)));
    if pod.value.pointer("/spec/nodeName").and_then(Value::as_str).is_none_or(str::is_empty) {
        // There is nowhere to read it from (`LocationStreamer`).
        *response.status_mut() = http::StatusCode::NO_CONTENT;
        return Ok(Reply::Raw(response));
    }
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
    Ok(Reply::Raw(response))
}

fn check_options(call: &Call) -> Result<(), Status> {
    let given = |key: &str| call.query.get(key).filter(|value| !value.is_empty());
    let mut errors = Vec::new();
    let mut seconds = None;
    for (key, least) in [("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)] {
        let Some(text) = given(key) else { continue };
        let number: i64 = text.parse().map_err(|_| {
            Status::bad_request(format!("strconv.ParseInt: parsing {}: invalid syntax", go_quote(text)))
        })?;
        if key == "sinceSeconds" {
            seconds = Some(number);
        }
        if number < least && !(key == "sinceSeconds" && given("sinceTime").is_some()) {
            let why = if least == 0 { "must be greater than or equal to 0" } else { "must be greater than 0" };
            errors.push(FieldError::invalid(key, &number.into(), why));
        }
    }
    if let Some(time) = given("sinceTime") {
        if time.parse::<jiff::Timestamp>().is_err() {
            let shown = go_quote(time);
            return Err(Status::bad_request(format!(
                "parsing time {shown} as \"2006-01-02T15:04:05Z07:00\": cannot parse {shown} as \"2006\""
            )));
        }
        if seconds.is_some() {
            errors.push(FieldError::forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
        }
    }
    // Which of the two streams is behind a gate that is shut.
    if given("stream").is_some() {
        errors.push(FieldError::forbidden("stream", "may not be specified"));
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid("", "PodLogOptions", &call.info.name, &errors)) }
}

/// `validateContainer`: a pod of several containers must be told which one is meant.
pub fn check_container(pod: &Value, container: &str) -> Result<(), Status> {
    let name = meta::object_name(pod);
    let spec = spec_of(pod);
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let names: Vec<&str> = lists.iter().flat_map(|list| items_of(spec, list)).map(|c| text_of(c, "name")).collect();
    if container.is_empty() && items_of(spec, "containers").len() > 1 {
        let known = names.join(" ");
        let why = format!("a container name must be specified for pod {name}, choose one of: [{known}]");
        return Err(Status::bad_request(why));
    }
    if !container.is_empty() && !names.contains(&container) {
        return Err(Status::bad_request(format!("container {container} is not valid for pod {name}")));
    }
    Ok(())
}

fn describe_log(pod: &Value) -> String {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (name, phase, node) = (text("/metadata/name"), text("/status/phase"), text("/spec/nodeName"));
    if node.is_empty() || ["", "Pending"].contains(&phase) {
        return String::new();
    }
    format!(
        "{name} is simulated: no container runs; the pod is {phase} on {node} since {}\n",
        text("/status/startTime")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_pod_that_was_started_says_that_nothing_runs() {
        let pod = json!({
            "metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running", "startTime": "T"},
        });
        assert_eq!(describe_log(&pod), "p is simulated: no container runs; the pod is Running on n since T\n");
        assert_eq!(describe_log(&json!({"metadata": {"name": "p"}, "status": {"phase": "Pending"}})), "");
    }

    #[test]
    fn one_of_several_containers_is_named() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "initContainers": [{"name": "z"}], "containers": [{"name": "a"}, {"name": "b"}]}});
        let told = |container: &str| check_container(&pod, container).map_err(|status| status.message);
        let wanted = "a container name must be specified for pod p, choose one of: [z a b]";
        assert_eq!(told(""), Err(wanted.to_owned()));
        assert_eq!(told("c"), Err("container c is not valid for pod p".to_owned()));
        assert_eq!((told("z"), told("b")), (Ok(()), Ok(())));
        let single = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}});
        assert!(check_container(&single, "").is_ok());
    }
}
