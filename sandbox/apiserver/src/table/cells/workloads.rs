//! What makes pods.

use jiff::Timestamp;
use serde_json::Value;

use super::*;
use crate::autoscaling::convert_autoscaler;

pub fn replica_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = container_cells(o, "spec.template.spec.containers");
    let plain = text_at(o, "kind") == "ReplicationController";
    let chosen = if plain { label_cell(o, "spec.selector") } else { selector_cell(o, "spec.selector") };
    cells![
        name_cell(o),
        number_at(o, "spec.replicas"),
        number_at(o, "status.replicas"),
        number_at(o, "status.readyReplicas"),
        age_cell(o, now),
        names,
        images,
        chosen
    ]
}

pub fn controller_revision(o: &Value, now: Timestamp) -> Vec<Value> {
    let is_controller = |r: &&Value| value_at(r, "controller").and_then(Value::as_bool) == Some(true);
    let owner = list_at(o, "metadata.ownerReferences").iter().find(is_controller);
    let owner = owner.map_or_else(
        || NONE.to_owned(),
        |r| {
            let group = text_at(r, "apiVersion").split_once('/').map_or(String::new(), |(g, _)| format!(".{g}"));
            format!("{}{group}/{}", text_at(r, "kind").to_lowercase(), text_at(r, "name"))
        },
    );
    cells![name_cell(o), owner, number_at(o, "revision"), age_cell(o, now)]
}

pub fn daemon_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = container_cells(o, "spec.template.spec.containers");
    cells![
        name_cell(o),
        number_at(o, "status.desiredNumberScheduled"),
        number_at(o, "status.currentNumberScheduled"),
        number_at(o, "status.numberReady"),
        number_at(o, "status.updatedNumberScheduled"),
        number_at(o, "status.numberAvailable"),
        label_cell(o, "spec.template.spec.nodeSelector"),
        age_cell(o, now),
        names,
        images,
        selector_cell(o, "spec.selector")
    ]
}

pub fn print_deployment(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = container_cells(o, "spec.template.spec.containers");
    cells![
        name_cell(o),
        format!("{}/{}", number_at(o, "status.readyReplicas"), number_at(o, "spec.replicas")),
        number_at(o, "status.updatedReplicas"),
        number_at(o, "status.availableReplicas"),
        age_cell(o, now),
        names,
        images,
        selector_cell(o, "spec.selector")
    ]
}

pub fn stateful_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = container_cells(o, "spec.template.spec.containers");
    let ready = format!("{}/{}", number_at(o, "status.readyReplicas"), number_at(o, "spec.replicas"));
    cells![name_cell(o), ready, age_cell(o, now), names, images]
}

pub fn print_autoscaler(o: &Value, now: Timestamp) -> Vec<Value> {
    let o = &convert_autoscaler(o.clone(), "autoscaling/v2");
    let targets = list_at(o, "spec.metrics").iter().zip(0..).map(|(metric, i)| {
        let target = value_at(metric, "resource.target");
        let wanted = target.map_or(String::new(), |t| match value_at(t, "averageUtilization") {
            Some(percent) => format!("{percent}%"),
            None => text_at(t, "averageValue"),
        });
        let current =
            list_at(o, "status.currentMetrics").get(i).and_then(|m| value_at(m, "resource.current.averageUtilization"));
        let current = current.map_or_else(|| UNKNOWN.to_owned(), |c| format!("{c}%"));
        format!("{}: {current}/{wanted}", text_or(metric, "resource.name", "metric"))
    });
    let least = value_at(o, "spec.minReplicas").map_or_else(|| UNSET.to_owned(), ToString::to_string);
    cells![
        name_cell(o),
        format!("{}/{}", text_at(o, "spec.scaleTargetRef.kind"), text_at(o, "spec.scaleTargetRef.name")),
        Some(targets.collect::<Vec<_>>().join(", ")).filter(|t| !t.is_empty()).unwrap_or_else(|| NONE.to_owned()),
        least,
        number_at(o, "spec.maxReplicas"),
        number_at(o, "status.currentReplicas"),
        age_cell(o, now)
    ]
}

pub fn cron_job(o: &Value, now: Timestamp) -> Vec<Value> {
    let template = "spec.jobTemplate.spec.template.spec.containers";
    let (names, images) = container_cells(o, template);
    let last = value_at(o, "status.lastScheduleTime").map_or_else(|| NONE.to_owned(), |t| age_since(Some(t), now));
    let suspended = value_at(o, "spec.suspend").and_then(Value::as_bool).unwrap_or(false);
    cells![
        name_cell(o),
        text_at(o, "spec.schedule"),
        text_or(o, "spec.timeZone", NONE),
        if suspended { "True" } else { "False" },
        count_at(o, "status.active"),
        last,
        age_cell(o, now),
        names,
        images,
        selector_cell(o, "spec.jobTemplate.spec.selector")
    ]
}

pub fn print_job(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = container_cells(o, "spec.template.spec.containers");
    let succeeded = number_at(o, "status.succeeded");
    let parallelism = number_at(o, "spec.parallelism");
    let completions = match value_at(o, "spec.completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let moment = |path: &str| text_at(o, path).parse::<Timestamp>().ok();
    let duration = match (moment("status.startTime"), moment("status.completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => human_duration(end.unwrap_or(now).duration_since(start).as_secs()),
    };
    let has = |kind: &str| {
        list_at(o, "status.conditions").iter().any(|c| text_at(c, "type") == kind && text_at(c, "status") == "True")
    };
    let status = if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if value_at(o, "metadata.deletionTimestamp").is_some() {
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
    cells![
        name_cell(o),
        status,
        completions,
        duration,
        age_cell(o, now),
        names,
        images,
        selector_cell(o, "spec.selector")
    ]
}
