//! What a Work sends to a member, held against what was charged for it.
//!
//! Rule: pods leave the host as they were admitted. An OverridePolicy changes a copy after the admission, and a
//! Deployment's template may change at any time; neither may ask for more pods, for more in each pod, for another
//! queue or for another priority class than the record and the workload on the host say. What each pod asks for is held
//! against the record as a whole: all pods that the record grants, at the requests of this copy, must fit in what was
//! charged. So a copy is as dear as the job was found to be, however its tasks differ. Pods that were charged by card
//! model go out only if they name a model that was charged.
//!
//! What was charged was read in one version of its kind. A copy in another one, which a binding may name, goes out if
//! as many pods of each task are found in it: with other fields there, less would be found than runs.

use caldera_core::{
    admission::{Admission, Uncharged},
    gang::{Gang, TaskName},
    text::count_noun,
    text::shorten_text,
};
use caldera_crds::{
    object::read_text_at,
    workload::{WorkloadKind, priority_class_of, queue_of, read_gang_of_copy},
};
use serde_json::Value;

/// Why this copy of a workload may not go to a cluster that was given so many replicas (0: a whole copy). `class` is
/// the priority class of the workload on the host, where that is known.
pub fn check_copy_against_record(
    copy: &Value,
    record: &Admission,
    replicas: u32,
    class: Option<&str>,
) -> Result<(), String> {
    let queue = queue_of(copy);
    if queue != record.queue {
        return Err(format!("it names queue {queue}, and was admitted to queue {}", record.queue));
    }
    let own = priority_class_of(copy);
    if let Some(class) = class.filter(|class| *class != own) {
        let [own, class] = [own, class].map(shorten_text);
        return Err(format!("its pods name priority class {own:?}, and its workload names {class:?}"));
    }
    let gang = read_gang_of_copy(copy).map_err(|error| format!("what it asks for can not be read: {error}"))?;
    let host_class = |name: &str| name.is_empty() || name == own;
    if let Some(task) = gang.tasks.iter().find(|task| class.is_some() && !host_class(&task.priority_class)) {
        let [of_task, own] = [&task.priority_class, own].map(shorten_text);
        return Err(format!("its task {} names priority class {of_task:?}, and it names {own:?}", task.name));
    }
    let most = |granted: u32| if replicas > 0 && gang.tasks.len() == 1 { granted.min(replicas) } else { granted };
    if let Some(task) = gang.tasks.iter().find(|task| task.replicas > most(record.pods_of(&task.name))) {
        let granted = most(record.pods_of(&task.name));
        let pods = count_noun(task.replicas, "pod");
        return Err(format!("it has {pods} of task {}, and quota for {granted} here", task.name));
    }
    if let Some((version, task)) = find_unread_task(copy, &gang, record) {
        return Err(format!("fewer pods of task {task} than were admitted can be read in it, as {version} has them"));
    }
    match record.find_uncharged(&gang) {
        None => Ok(()),
        Some(Uncharged { resource, asked, charged, names_model: false }) => Err(format!(
            "its pods ask for {resource} {asked} without naming a card model, and queue {queue} is charged {} so: the \
             rest is of models",
            charged.with_suffixes_of(asked)
        )),
        Some(Uncharged { resource, asked, charged, .. }) => Err(format!(
            "at its requests the job asks for {resource} {asked}, and queue {queue} is charged {}: it goes out once the \
             rest is admitted",
            charged.with_suffixes_of(asked)
        )),
    }
}

/// A task that was admitted and is not found as a whole in a copy of another version than that which is read.
fn find_unread_task<'a>(copy: &'a Value, gang: &Gang, record: &'a Admission) -> Option<(&'a str, &'a TaskName)> {
    let (kind, version) = (WorkloadKind::of_object(copy)?, read_text_at(copy, "/apiVersion"));
    // Only those of other projects have several, and they are placed whole.
    if !kind.is_optional() || kind.api_version() == version {
        return None;
    }
    let found = |name: &TaskName| gang.tasks.iter().find(|task| task.name == *name).map_or(0, |task| task.replicas);
    let (task, _) = record.tasks.iter().find(|(name, pods)| found(name) < **pods)?;
    Some((version, task))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(cpu: [&str; 2]) -> Value {
        let task = |name: &str, replicas: u32, cpu: &str| {
            json!({"name": name, "replicas": replicas, "template": {"spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}},
            ]}}})
        };
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "x"},
            "spec": {"queue": "q", "priorityClassName": "low", "minAvailable": 3,
                "tasks": [task("master", 1, cpu[0]), task("worker", 2, cpu[1])]},
        })
    }

    /// Of one master of one cpu and four workers of two.
    fn record() -> Admission {
        Admission::parse(
            r#"{"queue":"q","priority":0,"copies":1,"tasks":{"master":1,"worker":4},"charged":{"cpu":"9","pods":"5"}}"#,
        )
        .unwrap()
    }

    fn hold(copy: &Value) -> Result<(), String> {
        check_copy_against_record(copy, &record(), 3, Some("low"))
    }

    #[test]
    fn a_copy_as_it_was_admitted_goes_out() {
        assert_eq!(hold(&job(["1", "2"])), Ok(()));
        assert_eq!(hold(&job(["1", "500m"])), Ok(()), "less harms nobody");
    }

    #[test]
    fn an_override_that_asks_for_more_is_refused_with_the_amounts() {
        let reported = hold(&job(["1", "7"])).unwrap_err();
        assert!(reported.contains("asks for cpu 29, and queue q is charged 9"), "{reported}");
        let mut gpus = job(["1", "2"]);
        gpus["spec"]["tasks"][1]["template"]["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] =
            "1".into();
        assert!(hold(&gpus).unwrap_err().contains("nvidia.com/gpu 4"));
        let mut second = job(["1", "2"]);
        let container = json!({"name": "d", "image": "i", "resources": {"requests": {"cpu": "1"}}});
        second["spec"]["tasks"][1]["template"]["spec"]["containers"].as_array_mut().unwrap().push(container);
        assert!(hold(&second).is_err(), "a second container asks too");
    }

    #[test]
    fn an_override_that_takes_the_card_model_away_or_names_another_is_refused() {
        let mut copy = job(["1", "2"]);
        let worker = "/spec/tasks/1/template/spec";
        let select = |copy: &mut Value, selector: Value| {
            copy.pointer_mut(worker).unwrap()["nodeSelector"] = selector;
        };
        copy.pointer_mut(worker).unwrap()["containers"][0]["resources"]["requests"]["x.io/gpu"] = "2".into();
        let text = r#"{"queue":"q","priority":0,"copies":1,"tasks":{"master":1,"worker":2},
            "charged":{"cpu":"5","pods":"3","x.io/gpu":"4","x.io/gpu:a":"4"}}"#;
        let record = Admission::parse(text).unwrap();
        let hold = |copy: &Value| check_copy_against_record(copy, &record, 3, Some("low"));
        let reported = hold(&copy).unwrap_err();
        assert!(
            reported.contains("ask for x.io/gpu 4 without naming a card model, and queue q is charged 0 so"),
            "{reported}"
        );
        select(&mut copy, json!({"x.io/gpu.product": "b"}));
        let reported = hold(&copy).unwrap_err();
        assert!(reported.contains("asks for x.io/gpu:b 4, and queue q is charged 0"), "{reported}");
        select(&mut copy, json!({"x.io/gpu.product": "a", "zone": "z"}));
        assert_eq!(hold(&copy), Ok(()));
    }

    #[test]
    fn an_override_of_replicas_queue_or_priority_class_is_refused() {
        for (pointer, value, words) in [
            ("/spec/tasks/1/replicas", json!(5), "5 pods of task worker, and quota for 4"),
            ("/spec/queue", json!("other"), "names queue other, and was admitted to queue q"),
            ("/spec/priorityClassName", json!("system-cluster-critical"), "priority class"),
            ("/spec/tasks/1/name", json!("unheard-of"), "quota for 0"),
        ] {
            let mut copy = job(["1", "2"]);
            *copy.pointer_mut(pointer).unwrap() = value;
            let reported = hold(&copy).unwrap_err();
            assert!(reported.contains(words), "{reported}");
        }
        let mut copy = job(["1", "2"]);
        copy["spec"]["tasks"][1]["template"]["spec"]["priorityClassName"] = "system-node-critical".into();
        assert!(hold(&copy).unwrap_err().contains("priority class"));
        // Of a long one a part is said again.
        for pointer in ["/spec/priorityClassName", "/spec/tasks/1/template/spec/priorityClassName"] {
            let mut copy = copy.clone();
            *copy.pointer_mut(pointer).unwrap() = "c".repeat(500_000).into();
            assert!(hold(&copy).unwrap_err().len() < 300);
        }
    }

    /// The group's own queue and class would count in the member.
    #[test]
    fn an_override_that_names_a_group_or_a_second_queue_is_refused() {
        let text = r#"{"queue":"q","priority":0,"copies":1,"tasks":{"pods":1,"worker":1},"charged":{"pods":"1"}}"#;
        let record = Admission::parse(text).unwrap();
        let hold = |copy: &Value| check_copy_against_record(copy, &record, 1, Some(""));
        let metadata = json!({"name": "x", "labels": {"volcano.sh/queue-name": "q"}});
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}});
        pod["metadata"]["annotations"] = json!({"scheduling.k8s.io/group-name": "evil"});
        let reported = hold(&pod).unwrap_err();
        assert!(
            reported.contains("annotations[scheduling.k8s.io/group-name]: its pods would have queue"),
            "{reported}"
        );
        let mut train = json!({
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata,
            "spec": {"runPolicy": {"cleanPodPolicy": "All"}, "pytorchReplicaSpecs": {"Worker": {"template": {}}}},
        });
        train["spec"]["runPolicy"]["schedulingPolicy"] = json!({"queue": "theirs"});
        let reported = hold(&train).unwrap_err();
        assert!(
            reported.contains("spec.runPolicy.schedulingPolicy.queue: its pods would be in another queue"),
            "{reported}"
        );
    }

    /// In its own version fewer than were admitted are fewer; in another one the rest may be in fields nobody reads.
    #[test]
    fn a_copy_of_another_version_goes_out_if_all_its_pods_are_found_in_it() {
        let text = r#"{"queue":"q","priority":0,"copies":1,"tasks":{"headgroup":1,"w":2},"charged":{"pods":"3"}}"#;
        let record = Admission::parse(text).unwrap();
        let cluster = |version: &str, workers: u32| {
            let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
            json!({
                "apiVersion": version, "kind": "RayCluster",
                "metadata": {"name": "x", "labels": {"volcano.sh/queue-name": "q"}},
                "spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": [{
                    "groupName": "w", "replicas": workers, "minReplicas": workers, "maxReplicas": workers,
                    "template": template,
                }]},
            })
        };
        let hold =
            |version: &str, workers: u32| check_copy_against_record(&cluster(version, workers), &record, 3, Some(""));
        assert_eq!((hold("ray.io/v1", 2), hold("ray.io/v1", 1)), (Ok(()), Ok(())));
        assert_eq!(hold("ray.io/v1alpha1", 2), Ok(()));
        let reported = hold("ray.io/v1alpha1", 1).unwrap_err();
        assert!(reported.contains("fewer pods of task w") && reported.contains("ray.io/v1alpha1"), "{reported}");
        assert!(hold("ray.io/v1alpha1", 3).unwrap_err().contains("3 pods of task w"));
    }

    #[test]
    fn a_deployments_edited_template_waits_until_it_is_admitted() {
        let web = |cpu: &str, replicas: u32| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web", "annotations": {"scheduling.volcano.sh/queue-name": "q"}},
                "spec": {"replicas": replicas, "template": {"spec": {"containers": [
                    {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}},
                ]}}},
            })
        };
        let record = |charged: &str| {
            let text = json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"pods": 4},
                "charged": {"cpu": charged, "pods": "4"}});
            Admission::parse(&text.to_string()).unwrap()
        };
        let hold = |copy: &Value, charged: &str| check_copy_against_record(copy, &record(charged), 2, Some(""));
        assert_eq!(hold(&web("1", 2), "4"), Ok(()));
        assert!(hold(&web("2", 2), "4").unwrap_err().contains("asks for cpu 8, and queue q is charged 4"));
        assert_eq!(hold(&web("2", 2), "8"), Ok(()));
        assert!(hold(&web("1", 3), "4").unwrap_err().contains("3 pods"), "two were placed here");
    }
}
