//! How long a request may take: what its URL says, and no longer than the server allows
//! (`endpoints/filters/request_deadline.go`, `server/filters/timeout.go`). A watch ends by itself.

use std::time::Duration;

use serde_json::{Value, json};

use crate::auth::RequestInfo;
use crate::error::{Status, go_quote};
use crate::request::Query;

/// `--request-timeout` of the API server.
const LONGEST: Duration = Duration::from_secs(60);

/// The time the request has; `None` for one that runs as long as it likes.
pub fn time_limit(info: &RequestInfo, query: &Query) -> Result<Option<Duration>, Status> {
    let streams = matches!(info.subresource.as_str(), "attach" | "exec" | "log" | "portforward" | "proxy");
    if info.is_resource && (streams || matches!(info.verb.as_str(), "watch" | "proxy")) {
        return Ok(None);
    }
    let asked = query.get("timeout").filter(|text| !text.is_empty());
    let asked = asked
        .map(parse_duration)
        .transpose()
        .map_err(|why| Status::bad_request(format!("invalid timeout specified in the request URL - {why}")))?;
    // None at all is asked for with zero.
    Ok(Some(asked.filter(|time| !time.is_zero()).unwrap_or(LONGEST).min(LONGEST)))
}

/// What a client gets when the time is over: the writer of the answer knows nothing of kinds.
pub fn late_answer() -> Value {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": "Timeout: request did not complete within the allotted timeout",
        "reason": "Timeout",
        "details": {},
        "code": 504,
    })
}

/// `time.ParseDuration`. A negative duration is none.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("time: invalid duration {}", go_quote(text));
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut seconds = 0f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let factor = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "" => return Err(format!("time: missing unit in duration {}", go_quote(text))),
            other => return Err(format!("time: unknown unit {} in duration {}", go_quote(other), go_quote(text))),
        };
        seconds += number * factor;
        rest = after;
    }
    let parsed = Duration::try_from_secs_f64(seconds).map_err(|_| invalid())?;
    Ok(if negative { Duration::ZERO } else { parsed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        assert_eq!(parse_duration("1m30.5s"), Ok(Duration::from_millis(90_500)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("5"), Err("time: missing unit in duration \"5\"".into()));
        assert_eq!(parse_duration("5x"), Err("time: unknown unit \"x\" in duration \"5x\"".into()));
        assert_eq!(parse_duration("x"), Err("time: invalid duration \"x\"".into()));
    }

    #[test]
    fn a_request_has_the_time_it_asks_for_but_no_more_than_a_minute() {
        let info = RequestInfo { is_resource: true, verb: "create".into(), ..RequestInfo::default() };
        let limit = |query: &str| time_limit(&info, &Query::parse(Some(query)));
        assert_eq!(limit("timeout=1s"), Ok(Some(Duration::from_secs(1))));
        assert_eq!(limit("timeout=0s"), Ok(Some(LONGEST)));
        assert_eq!(limit("timeout=2h"), Ok(Some(LONGEST)));
        assert_eq!(limit("timeout=-1s"), Ok(Some(LONGEST)));
        assert!(limit("timeout=soon").unwrap_err().message.contains("invalid duration"));
        let watch = RequestInfo { verb: "watch".into(), ..info.clone() };
        assert_eq!(time_limit(&watch, &Query::parse(Some("timeout=1s"))), Ok(None));
    }
}
