//! What makes pods.

use jiff::Timestamp;
use serde_json::Value;

use super::*;

pub fn replica_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(o, "spec.template.spec.containers");
    let plain = text(o, "kind") == "ReplicationController";
    let chosen = if plain { labels(o, "spec.selector") } else { selector(o, "spec.selector") };
    cells![
        name(o),
        number(o, "spec.replicas"),
        number(o, "status.replicas"),
        number(o, "status.readyReplicas"),
        age(o, now),
        names,
        images,
        chosen
    ]
}

pub fn controller_revision(o: &Value, now: Timestamp) -> Vec<Value> {
    let is_controller = |r: &&Value| at(r, "controller").and_then(Value::as_bool) == Some(true);
    let owner = list(o, "metadata.ownerReferences").iter().find(is_controller);
    let owner = owner.map_or_else(
        || NONE.to_owned(),
        |r| {
            let group = text(r, "apiVersion").split_once('/').map_or(String::new(), |(g, _)| format!(".{g}"));
            format!("{}{group}/{}", text(r, "kind").to_lowercase(), text(r, "name"))
        },
    );
    cells![name(o), owner, number(o, "revision"), age(o, now)]
}

pub fn daemon_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(o, "spec.template.spec.containers");
    cells![
        name(o),
        number(o, "status.desiredNumberScheduled"),
        number(o, "status.currentNumberScheduled"),
        number(o, "status.numberReady"),
        number(o, "status.updatedNumberScheduled"),
        number(o, "status.numberAvailable"),
        labels(o, "spec.template.spec.nodeSelector"),
        age(o, now),
        names,
        images,
        selector(o, "spec.selector")
    ]
}

pub fn deployment(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(o, "spec.template.spec.containers");
    cells![
        name(o),
        format!("{}/{}", number(o, "status.readyReplicas"), number(o, "spec.replicas")),
        number(o, "status.updatedReplicas"),
        number(o, "status.availableReplicas"),
        age(o, now),
        names,
        images,
        selector(o, "spec.selector")
    ]
}

pub fn stateful_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(o, "spec.template.spec.containers");
    let ready = format!("{}/{}", number(o, "status.readyReplicas"), number(o, "spec.replicas"));
    cells![name(o), ready, age(o, now), names, images]
}

pub fn autoscaler(o: &Value, now: Timestamp) -> Vec<Value> {
    let targets = list(o, "spec.metrics").iter().zip(0..).map(|(metric, i)| {
        let target = at(metric, "resource.target");
        let wanted = target.map_or(String::new(), |t| match at(t, "averageUtilization") {
            Some(percent) => format!("{percent}%"),
            None => text(t, "averageValue"),
        });
        let current =
            list(o, "status.currentMetrics").get(i).and_then(|m| at(m, "resource.current.averageUtilization"));
        let current = current.map_or_else(|| UNKNOWN.to_owned(), |c| format!("{c}%"));
        format!("{}: {current}/{wanted}", text_or(metric, "resource.name", "metric"))
    });
    let least = at(o, "spec.minReplicas").map_or_else(|| UNSET.to_owned(), ToString::to_string);
    cells![
        name(o),
        format!("{}/{}", text(o, "spec.scaleTargetRef.kind"), text(o, "spec.scaleTargetRef.name")),
        Some(targets.collect::<Vec<_>>().join(", ")).filter(|t| !t.is_empty()).unwrap_or_else(|| NONE.to_owned()),
        least,
        number(o, "spec.maxReplicas"),
        number(o, "status.currentReplicas"),
        age(o, now)
    ]
}

pub fn cron_job(o: &Value, now: Timestamp) -> Vec<Value> {
    let template = "spec.jobTemplate.spec.template.spec.containers";
    let (names, images) = containers(o, template);
    let last = at(o, "status.lastScheduleTime").map_or_else(|| NONE.to_owned(), |t| since(Some(t), now));
    let suspended = at(o, "spec.suspend").and_then(Value::as_bool).unwrap_or(false);
    cells![
        name(o),
        text(o, "spec.schedule"),
        text_or(o, "spec.timeZone", NONE),
        if suspended { "True" } else { "False" },
        count(o, "status.active"),
        last,
        age(o, now),
        names,
        images,
        selector(o, "spec.jobTemplate.spec.selector")
    ]
}

pub fn job(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(o, "spec.template.spec.containers");
    let succeeded = number(o, "status.succeeded");
    let parallelism = number(o, "spec.parallelism");
    let completions = match at(o, "spec.completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let moment = |path: &str| text(o, path).parse::<Timestamp>().ok();
    let duration = match (moment("status.startTime"), moment("status.completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => human(end.unwrap_or(now).duration_since(start).as_secs()),
    };
    let has = |kind: &str| {
        list(o, "status.conditions").iter().any(|c| text(c, "type") == kind && text(c, "status") == "True")
    };
    let status = if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if at(o, "metadata.deletionTimestamp").is_some() {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    cells![name(o), status, completions, duration, age(o, now), names, images, selector(o, "spec.selector")]
}
