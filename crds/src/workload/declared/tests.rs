use serde_json::{Value, json};

use super::*;
use crate::workload::{
    edit_pod_specs,
    kind_declaration::KindDeclaration,
    names_queue,
    pod_owner::find_job,
    priority_class_of,
    progress::{has_copy_ended, read_progress},
    queue_of, read_gang, reference_of,
};

/// Each test tells a kind of its own: what one tells, all others of the process know.
fn declaration(kind: &str, spec: Value) -> KindDeclarationSpec {
    let mut whole = json!({
        "group": "training.example.com", "version": "v1", "kind": kind, "plural": format!("{}s", kind.to_lowercase()),
        "podSets": [
            {"path": "spec.head", "template": "template"},
            {"path": "spec.workers", "form": "List", "nameField": "name", "replicas": "replicas",
                "template": "pod.template"},
        ],
        "suspend": "spec.paused", "queue": "spec.queue", "priorityClass": "spec.priorityClassName",
        "mustBeUnset": ["spec.autoscale"],
        "status": {
            "runningPods": "status.ready",
            "succeeded": {"path": "status.phase", "values": ["Done", "Stopped"]}, "failed": {"condition": "Broken"},
        },
        "pods": {"jobLabel": "example.com/run", "taskLabel": "example.com/part",
            "madeBy": [{"group": "batch", "kind": "Job"}]},
    });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let object = json!({"metadata": {"name": "x"}, "spec": whole});
    serde_json::from_value::<KindDeclaration>(object).unwrap().spec
}

fn pod(cpu: &str) -> Value {
    json!({"spec": {"priorityClassName": "of-pods", "containers": [{"resources": {"requests": {"cpu": cpu}}}]}})
}

fn run(kind: &str) -> Value {
    json!({
        "apiVersion": "training.example.com/v1", "kind": kind, "metadata": {"namespace": "ns", "name": "r"},
        "spec": {
            "head": {"template": pod("1")}, "queue": "ml",
            "workers": [{"name": "a", "replicas": 3, "pod": {"template": pod("2")}}, {"pod": {"template": pod("500m")}}],
        },
    })
}

#[test]
fn a_kind_told_by_data_is_read_as_one_told_in_code() {
    assert_eq!(WorkloadKind::parse("training.example.com/v1", "ReadRun"), None);
    // Other tests tell kinds whose pods have the same labels.
    let pods = json!({"jobLabel": "example.com/read-run", "taskLabel": "example.com/part",
        "madeBy": [{"group": "batch", "kind": "Job"}]});
    let kind = declare_kind(&declaration("ReadRun", json!({"pods": pods}))).unwrap();
    assert_eq!(WorkloadKind::parse("training.example.com/v1", "ReadRun"), Some(kind));
    assert_eq!(WorkloadKind::parse_alias("readruns"), Some(kind));
    assert!(WorkloadKind::list_all().any(|known| known == kind));
    assert_eq!(kind.api_resource().plural, "readruns");
    assert!(kind.is_optional() && kind.has_tasks() && kind.runs_to_its_end());
    let mut object = run("ReadRun");
    let gang = read_gang(&object).unwrap();
    let tasks: Vec<(&str, u32)> = gang.tasks.iter().map(|task| (task.name.as_str(), task.replicas)).collect();
    assert_eq!(tasks, [("head", 1), ("a", 3), ("default1", 1)]);
    assert_eq!(gang.sum_full_demand().get("cpu"), "7500m".parse().unwrap());
    assert!(gang.one_cluster.unwrap().contains("ReadRun"));
    assert_eq!(reference_of(&object).unwrap().kind, "ReadRun");
    assert!(names_queue(&object) && queue_of(&object).as_str() == "ml");
    assert_eq!(priority_class_of(&object), "of-pods");
    object["spec"]["priorityClassName"] = "own".into();
    assert_eq!(priority_class_of(&object), "own");
    assert_eq!(kind.find_suspending_field(&object), None);
    object["spec"]["paused"] = true.into();
    assert_eq!(kind.find_suspending_field(&object), Some("spec.paused"));
    let mut edits = 0;
    edit_pod_specs(&mut object, &mut |_| {
        edits += 1;
        Some(())
    })
    .unwrap();
    assert_eq!(edits, 3);
    let labels = json!({"example.com/read-run": "r", "example.com/part": "a"});
    let found = find_job("batch", "Job", "r-a-0", &labels).unwrap();
    assert_eq!((found.0, &*found.1, found.2.unwrap().as_str()), (kind, "r", "a"));
}

#[test]
fn the_status_of_a_kind_told_by_data_says_what_runs_and_how_it_ended() {
    let kind = declare_kind(&declaration("StatusRun", json!({}))).unwrap();
    let object = run("StatusRun");
    let gang = read_gang(&object).unwrap();
    let read = |status: Value| {
        let mut object = object.clone();
        object["status"] = status;
        read_progress(kind, &object, Some(&gang))
    };
    assert_eq!((read(json!({"ready": 2})).running, read(json!({"ready": 2})).ended), (2, None));
    for phase in ["Done", "Stopped"] {
        let ended = read(json!({"phase": phase, "ready": 2}));
        assert_eq!((ended.ended.as_deref(), ended.running, ended.succeeded), (Some("Completed"), 0, 5), "{phase}");
    }
    let broken = json!({"conditions": [{"type": "Broken", "status": "True"}]});
    assert_eq!(read(broken.clone()).ended.as_deref(), Some("Failed"));
    assert!(has_copy_ended(kind, &broken) && !has_copy_ended(kind, &json!({"phase": "Going"})));
    for garbage in [json!(null), json!([]), json!({"phase": 3, "ready": -1, "conditions": {}}), json!("x")] {
        assert_eq!(read(garbage), crate::workload::progress::Progress::default());
    }
}

#[test]
fn what_a_kind_told_by_data_refuses_is_reported_with_its_field() {
    declare_kind(&declaration("WrongRun", json!({}))).unwrap();
    let refused = |at: &str, value: Value| {
        let mut object = run("WrongRun");
        *object.pointer_mut(at).unwrap() = value;
        read_gang(&object).unwrap_err().to_string()
    };
    assert!(refused("/spec/workers", json!({"a": 1})).starts_with("spec.workers: "));
    assert!(refused("/spec/workers/0/replicas", json!(-1)).starts_with("spec.workers[0].replicas: "));
    assert!(refused("/spec/head/template", Value::Null).starts_with("spec.head.template: "));
    let mut scaled = run("WrongRun");
    scaled["spec"]["autoscale"] = json!({"max": 9});
    assert_eq!(read_gang(&scaled).unwrap_err().to_string(), format!("spec.autoscale: {UNSET}"));
    let mut two = run("WrongRun");
    two["metadata"]["labels"] = json!({"volcano.sh/queue-name": "other"});
    assert!(read_gang(&two).unwrap_err().to_string().starts_with("spec.queue: "), "two queues");
}

/// Paths are lists of fields and objects are trees: the work is at most fields of the path for each pod set.
#[test]
fn paths_that_name_nothing_and_a_huge_object_cost_bounded_work() {
    let sets = json!([{"path": "spec.none.at.all", "form": "List", "template": "template"}]);
    declare_kind(&declaration("NoneRun", json!({"podSets": sets}))).unwrap();
    assert!(read_gang(&run("NoneRun")).unwrap_err().to_string().starts_with("spec.none.at.all: "));
    declare_kind(&declaration("HugeRun", json!({}))).unwrap();
    let mut object = run("HugeRun");
    object["spec"]["workers"] = vec![json!({"pod": {"template": pod("1")}}); 20_000].into();
    assert!(read_gang(&object).unwrap_err().to_string().contains("pod sets are above"));
}

#[test]
fn kinds_that_are_known_and_those_of_other_projects_are_refused_in_words() {
    let refused = |spec: Value| declare_kind(&declaration("SomeRun", spec)).unwrap_err().to_string();
    for (group, kind) in [
        ("", "Pod"),
        ("apps", "Thing"),
        ("work.karmada.io", "ResourceBinding"),
        ("scheduling.volcano.sh", "Queue"),
        ("federation.caldera.dev", "WorkloadKind"),
        ("k8s.io", "Thing"),
    ] {
        let declaration = refused(json!({"group": group, "kind": kind}));
        assert!(declaration.contains("no group of your own"), "{declaration}");
    }
    for (kind, plural) in [("Job", "runs"), ("RayJob", "runs"), ("Run", "jobs"), ("PyTorch", "runs")] {
        let declaration = refused(json!({"kind": kind, "plural": plural}));
        assert!(declaration.contains("a word for a kind that is known already"), "{declaration}");
    }
    for (spec, field) in [
        (json!({"kind": "a/b"}), "spec.kind"),
        (json!({"podSets": []}), "spec.podSets"),
        (json!({"suspend": "spec..x"}), "spec.suspend"),
        (json!({"suspend": "x".repeat(300)}), "spec.suspend"),
        (json!({"podSets": [{"path": "spec.a", "form": "Tree", "template": "t"}]}), "spec.podSets.form"),
        (json!({"status": {"succeeded": {}}}), "spec.status.succeeded"),
        (json!({"status": {"runningPods": "spec.x"}}), "spec.status.runningPods"),
        (json!({"status": {"runningPods": "status.a..b"}}), "spec.status.runningPods"),
        (json!({"mustBeUnset": ["spec.a[0]"]}), "spec.mustBeUnset"),
    ] {
        let declaration = refused(spec);
        assert!(declaration.starts_with(&format!("{field}: ")), "{declaration}");
    }
    assert!(known().read().unwrap().tables.iter().all(|table| table.names.kind != "SomeRun"), "none of it is kept");
    declare_kind(&declaration("FirstRun", json!({}))).unwrap();
    assert!(list_declarations().contains(&declaration("FirstRun", json!({}))));
    let second = declare_kind(&declaration("FirstRun", json!({"group": "other.example.com"})));
    assert_eq!(second, Err(DeclarationError::Taken("FirstRun".into())), "bindings of both would have one name");
}

#[test]
fn of_a_kind_that_is_reported_anew_the_last_word_counts_and_nothing_is_made_twice() {
    let tables = || known().read().unwrap().tables.iter().filter(|table| table.names.kind == "NewRun").count();
    let (first, second) = (declaration("NewRun", json!({})), declaration("NewRun", json!({"suspend": "spec.stop"})));
    for _ in 0..3 {
        let kind = declare_kind(&first).unwrap();
        assert_eq!(declare_kind(&second), Ok(kind), "it is the same kind");
    }
    assert_eq!(tables(), 2);
    let kind = WorkloadKind::from_group_and_kind("training.example.com", "NewRun").unwrap();
    assert_eq!(kind.suspend_field().unwrap().1, "spec.stop");
}
