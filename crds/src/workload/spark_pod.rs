//! What Spark's driver and executor pods ask for, worked out of the SparkApplication before Spark makes them.
//!
//! Rule (Spark `BasicDriverFeatureStep`, `BasicExecutorFeatureStep` of `resource-managers/kubernetes/core`;
//! spark-operator `internal/scheduler/yunikorn/resourceusage`, `internal/webhook/sparkpod_defaulter.go`):
//! - cpu: `coreRequest`, else `cores`, else 1.
//! - memory, in whole MiB: `memory` (1g if absent) and `memoryOverhead`. Where that is absent it is
//!   `memoryOverheadFactor` of the memory, or a tenth for programs of the JVM and four tenths for others, 384 MiB at
//!   least. Where the main file and `type` disagree about the program the larger part counts.
//! - a GPU: the larger of `gpu.quantity` and the template's, since the operator's webhook decides which counts.
//! - all else (other resources, limits as requests, ports, affinity, labels) is the template's; selectors, tolerations
//!   and init containers of the application come beside it.
//!
//! Refused: amounts, selectors of nodes, whereabouts and groups in `sparkConf` (one place tells; else the operator
//! would not find its pods), a second container (the operator takes the driver's end for the application's,
//! `pkg/util/sparkapplication.go`, `GetDriverState`), and a main file that `spark-submit` would read as an option
//! (`internal/controller/sparkapplication/submission.go`: it comes first of the bare arguments).

use caldera_core::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::{GangError, field::Field};

const MIB: u64 = 1 << 20;
const LEAST_OVERHEAD_MIB: u64 = 384;
pub(super) const SIDECAR: &str =
    "it would run on after the driver's end: make it an init container with restartPolicy Always";
/// Units of Java's memory strings (`common/network-common`, `JavaUtils.byteStringAs`), in bytes. None is MiB.
const UNITS: [(&str, u64); 6] = [("", MIB), ("k", 1 << 10), ("m", MIB), ("g", 1 << 30), ("t", 1 << 40), ("p", 1 << 50)];
/// The beginnings of what `sparkConf` says of the number of pods, of what is in them and of their nodes.
const AMOUNTS: [&str; 26] = [
    "spark.dynamicAllocation.",
    "spark.driver.cores",
    "spark.driver.memory",
    "spark.driver.minMemoryOverhead",
    "spark.driver.resource.",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.executor.minMemoryOverhead",
    "spark.executor.pyspark.memory",
    "spark.executor.resource.",
    "spark.kubernetes.allocation.pods.allocator",
    "spark.kubernetes.driver.node.selector.",
    "spark.kubernetes.driver.pod.featureSteps",
    "spark.kubernetes.driver.podTemplate",
    "spark.kubernetes.driver.request.",
    "spark.kubernetes.executor.node.selector.",
    "spark.kubernetes.executor.pod.featureSteps",
    "spark.kubernetes.executor.podTemplate",
    "spark.kubernetes.executor.request.",
    "spark.kubernetes.memoryOverheadFactor",
    "spark.kubernetes.node.selector.",
    "spark.memory.offHeap.",
    "spark.unsafe.offHeap",
    "spark.yarn.driver.memoryOverhead",
    "spark.yarn.executor.memoryOverhead",
];

/// The beginnings of what `sparkConf` says of where its pods are, by whose right, and by which marks they are found.
const WHEREABOUTS: [&str; 9] = [
    "spark.kubernetes.authenticate",
    "spark.kubernetes.context",
    "spark.kubernetes.driver.label.",
    "spark.kubernetes.driver.master",
    "spark.kubernetes.driver.pod.name",
    "spark.kubernetes.executor.label.",
    "spark.kubernetes.namespace",
    "spark.master",
    "spark.submit.",
];

/// The beginnings of what `sparkConf` says of the queue and the group of its pods: annotations that Volcano reads.
const GROUPS: [&str; 2] =
    ["spark.kubernetes.driver.annotation.scheduling.", "spark.kubernetes.executor.annotation.scheduling."];

/// The pod that Spark makes of `spec.driver` or `spec.executor`, as far as placing it goes.
pub(super) fn build_pod(root: &Field<'_>, part: &Field<'_>) -> Result<Value, GangError> {
    for (name, place) in root.entries(&["spec", "sparkConf"])? {
        if AMOUNTS.iter().any(|amount| name.starts_with(amount)) {
            return Err(place.wrong("what pods ask for is read from spec.driver and spec.executor: say it there"));
        }
        if GROUPS.iter().any(|key| name.starts_with(key)) {
            return Err(place.wrong("its pods would be in another queue or group than was charged: leave it out"));
        }
        if WHEREABOUTS.iter().any(|key| name.starts_with(key)) {
            return Err(place.wrong("its pods would not be found where its operator looks for them: leave it out"));
        }
    }
    check_main_file(root)?;
    let mut spec: Map<String, Value> = copy_entries(part, &["template", "spec"])?;
    let containers = list_at(part, &["template", "spec"], "containers")?;
    if let Some(more) = containers.get(1) {
        return Err(more.wrong(SIDECAR));
    }
    let mut requests = Map::new();
    let mut ports = Value::Null;
    if let Some(own) = containers.first() {
        requests.extend(copy_entries(own, &["resources", "limits"])?);
        requests.extend(copy_entries(own, &["resources", "requests"])?);
        ports = own.value["ports"].clone();
    }
    requests.insert("cpu".to_owned(), read_cpu(part)?);
    requests.insert("memory".to_owned(), format!("{}Mi", memory_mib(root, part)?).into());
    if let Some(gpu) = part.at(&["gpu"]) {
        let (name, cards) = (gpu.text_at("name")?, gpu.at(&["quantity"]).map_or(Ok(0), |place| place.parse_count())?);
        let said: Option<Quantity> =
            requests.get(name).and_then(|said| said.to_string().trim_matches('"').parse().ok());
        // Which of both counts depends on the operator's webhook: the larger does.
        if !name.is_empty() && said.unwrap_or_default() < Quantity::from_units(i64::from(cards)) {
            requests.insert(name.to_owned(), cards.into());
        }
    }
    spec.insert("containers".to_owned(), json!([{"resources": {"requests": requests}, "ports": ports}]));

    let mut selector = copy_entries(part, &["template", "spec", "nodeSelector"])?;
    selector.extend(copy_entries(root, &["spec", "nodeSelector"])?);
    selector.extend(copy_entries(part, &["nodeSelector"])?);
    spec.insert("nodeSelector".to_owned(), selector.into());
    for list in ["tolerations", "initContainers"] {
        let mut all = list_at(part, &["template", "spec"], list)?;
        all.extend(part.list(list)?);
        spec.insert(list.to_owned(), all.into_iter().map(|item| item.value.clone()).collect());
    }
    for field in ["affinity", "hostNetwork", "priorityClassName"] {
        if let Some(own) = part.at(&[field]) {
            spec.insert(field.to_owned(), own.value.clone());
        }
    }
    let mut labels = copy_entries(part, &["template", "metadata", "labels"])?;
    labels.extend(copy_entries(part, &["labels"])?);
    Ok(json!({"metadata": {"labels": labels}, "spec": spec}))
}

/// An argument that begins like an option is one, and the next argument its value: any `--conf` could be said so.
fn check_main_file(root: &Field<'_>) -> Result<(), GangError> {
    let Some(place) = root.at(&["spec", "mainApplicationFile"]) else { return Ok(()) };
    let file = place.text()?.trim_start();
    if file.is_empty() || file.starts_with('-') {
        return Err(place.wrong("spark-submit would read it, or what follows it, as an option"));
    }
    Ok(())
}

fn copy_entries(from: &Field<'_>, fields: &[&str]) -> Result<Map<String, Value>, GangError> {
    Ok(from.entries(fields)?.into_iter().map(|(name, place)| (name.to_owned(), place.value.clone())).collect())
}

fn list_at<'a>(from: &Field<'a>, owner: &[&str], field: &str) -> Result<Vec<Field<'a>>, GangError> {
    from.at(owner).map_or(Ok(Vec::new()), |place| place.list(field))
}

fn read_cpu(part: &Field<'_>) -> Result<Value, GangError> {
    if let Some(request) = part.at(&["coreRequest"]) {
        request.quantity()?;
        return Ok(request.value.clone());
    }
    Ok(part.at(&["cores"]).map_or(Ok(1), |cores| cores.parse_count())?.into())
}

fn memory_mib(root: &Field<'_>, part: &Field<'_>) -> Result<u64, GangError> {
    let memory = part.at(&["memory"]).map_or(Ok(1024), |place| read_mib(&place))?;
    let overhead = match part.at(&["memoryOverhead"]) {
        Some(overhead) => read_mib(&overhead)?,
        None => take_part(memory, overhead_factor(root)?).max(LEAST_OVERHEAD_MIB),
    };
    Ok(memory.saturating_add(overhead))
}

/// Which part of the memory comes beside it.
fn overhead_factor(root: &Field<'_>) -> Result<Quantity, GangError> {
    if let Some(factor) = root.at(&["spec", "memoryOverheadFactor"]).filter(|factor| factor.value != "") {
        return factor.quantity();
    }
    let text = |field: &str| root.value["spec"][field].as_str().unwrap_or_default();
    let file = text("mainApplicationFile").to_ascii_lowercase();
    let is_jvm = matches!(text("type"), "" | "Java" | "Scala") && !file.ends_with(".py") && !file.ends_with(".r");
    Ok(Quantity::from_milli(if is_jvm { 100 } else { 400 }))
}

/// Whole MiB, as Spark rounds them.
fn take_part(memory: u64, factor: Quantity) -> u64 {
    let part = factor.times(memory).as_nano() / Quantity::from_units(1).as_nano();
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// An amount of memory as Java writes it, in whole MiB.
fn read_mib(place: &Field<'_>) -> Result<u64, GangError> {
    let text = place.text()?.trim().to_ascii_lowercase();
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let bytes = match unit {
        "b" => Some(1),
        _ => UNITS.iter().find(|(name, _)| unit.strip_suffix('b').unwrap_or(unit) == *name).map(|(_, bytes)| *bytes),
    };
    let amount = number.parse::<u64>().ok().zip(bytes).and_then(|(number, bytes)| number.checked_mul(bytes));
    let reported = || place.wrong(format!("{text:?} is not an amount of memory as Spark reads it, such as 512m or 2g"));
    amount.map(|bytes| bytes / MIB).ok_or_else(reported)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(spec: &Value) -> Result<Value, String> {
        let object = json!({"spec": spec});
        let root = Field::root(&object);
        let part = root.at(&["spec", "driver"]).ok_or("no driver")?;
        build_pod(&root, &part).map_err(|error| error.to_string())
    }

    fn requests(spec: &Value) -> (Value, Value) {
        let pod = build(spec).unwrap();
        let own = &pod["spec"]["containers"][0]["resources"]["requests"];
        (own["cpu"].clone(), own["memory"].clone())
    }

    #[test]
    fn the_request_is_the_cores_and_the_memory_with_what_is_beside_it() {
        for (kind, file, driver, cpu, memory) in [
            ("Scala", "a.jar", json!({}), json!(1), "1408Mi"),
            ("Scala", "a.jar", json!({"cores": 2, "memory": "8g"}), json!(2), "9011Mi"),
            ("Java", "a.jar", json!({"cores": 2, "coreRequest": "500m"}), json!("500m"), "1408Mi"),
            ("Python", "a.py", json!({"memory": "2048"}), json!(1), "2867Mi"),
            ("Java", "a.PY", json!({"memory": "2Gb"}), json!(1), "2867Mi"),
            ("R", "a.R", json!({"memory": "512m", "memoryOverhead": "1g"}), json!(1), "1536Mi"),
            ("Java", "a.jar", json!({"memory": "1073741824b", "memoryOverhead": "100"}), json!(1), "1124Mi"),
        ] {
            let spec = json!({"type": kind, "mainApplicationFile": file, "driver": driver});
            assert_eq!(requests(&spec), (cpu, json!(memory)), "{spec}");
        }
        let mut spec = json!({"type": "Scala", "memoryOverheadFactor": "0.25", "driver": {"memory": "8g"}});
        assert_eq!(requests(&spec).1, "10240Mi");
        spec["memoryOverheadFactor"] = "".into();
        assert_eq!(requests(&spec).1, "9011Mi", "an empty factor is none");
    }

    #[test]
    fn memory_that_spark_does_not_read_is_wrong_and_says_where() {
        for text in ["1Gi", "1.5g", "", "g", "-1g", "99999999999p", "1 g"] {
            let reported = build(&json!({"driver": {"memory": text}})).unwrap_err();
            assert!(reported.starts_with("spec.driver.memory"), "{text}: {reported}");
        }
        assert!(build(&json!({"memoryOverheadFactor": "-1", "driver": {}})).is_err());
    }

    #[test]
    fn a_template_keeps_all_but_cpu_and_memory_of_sparks_container() {
        let driver = json!({
            "memory": "1g", "memoryOverhead": "1g", "gpu": {"name": "amd.com/gpu", "quantity": 2},
            "nodeSelector": {"b": "2"}, "tolerations": [{"key": "t"}], "initContainers": [{"name": "i"}],
            "priorityClassName": "high", "labels": {"l": "1"},
            "template": {"spec": {
                "containers": [{"resources": {"requests": {"cpu": "64", "memory": "1Ti", "x/y": "3"}}}],
                "nodeSelector": {"a": "1"}, "tolerations": [{"key": "s"}], "priorityClassName": "low",
            }},
        });
        let pod = build(&json!({"nodeSelector": {"c": "3"}, "driver": driver})).unwrap();
        let spec = &pod["spec"];
        let own = json!({"cpu": 1, "memory": "2048Mi", "amd.com/gpu": 2, "x/y": "3"});
        assert_eq!(spec["containers"][0]["resources"]["requests"], own);
        assert_eq!(spec["nodeSelector"], json!({"a": "1", "b": "2", "c": "3"}));
        assert_eq!(spec["tolerations"], json!([{"key": "s"}, {"key": "t"}]));
        assert_eq!((&spec["initContainers"][0]["name"], &spec["priorityClassName"]), (&json!("i"), &json!("high")));
        assert_eq!(pod["metadata"]["labels"], json!({"l": "1"}));
        for driver in [json!({"template": {"spec": []}}), json!({"nodeSelector": "a"}), json!({"coreRequest": "x"})] {
            assert!(build(&json!({"driver": driver})).is_err());
        }
    }

    #[test]
    fn a_main_file_that_spark_submit_reads_as_an_option_is_refused() {
        for file in ["--conf=spark.executor.instances=500", "-v", " --conf", ""] {
            let reported = build(&json!({"driver": {}, "mainApplicationFile": file})).unwrap_err();
            assert!(reported.starts_with("spec.mainApplicationFile"), "{reported}");
        }
        assert!(build(&json!({"driver": {}, "mainApplicationFile": "local:///app.jar"})).is_ok());
    }

    #[test]
    fn of_cards_in_the_template_and_in_gpu_the_larger_number_counts() {
        for (template, gpu, want) in [(json!("8"), 1, json!("8")), (json!(2), 4, json!(4)), (json!("0"), 0, json!("0"))]
        {
            let driver = json!({
                "gpu": {"name": "nvidia.com/gpu", "quantity": gpu},
                "template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": template}}}]}},
            });
            let pod = build(&json!({"driver": driver})).unwrap();
            assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"], want);
        }
    }

    #[test]
    fn amounts_in_the_configuration_and_containers_beside_sparks_are_refused() {
        for name in AMOUNTS.into_iter().chain(WHEREABOUTS).chain(GROUPS) {
            let reported = build(&json!({"driver": {}, "sparkConf": {name: "1"}})).unwrap_err();
            assert!(reported.starts_with(&format!("spec.sparkConf[{name}]")), "{reported}");
        }
        assert!(build(&json!({"driver": {}, "sparkConf": {"spark.ui.port": "4045"}})).is_ok());
        // Spark keeps to it beside the selector that is charged by card model.
        let selector = "spark.kubernetes.executor.node.selector.nvidia.com/gpu.product";
        let spec =
            json!({"nodeSelector": {"nvidia.com/gpu.product": "T4"}, "driver": {}, "sparkConf": {selector: "H100"}});
        let reported = build(&spec).unwrap_err();
        assert!(reported.contains("say it there"), "{reported}");
        let two = json!({"template": {"spec": {"containers": [{}, {"name": "logs"}]}}});
        let reported = build(&json!({"driver": two})).unwrap_err();
        assert!(reported.starts_with("spec.driver.template.spec.containers[1]"), "{reported}");
    }
}
