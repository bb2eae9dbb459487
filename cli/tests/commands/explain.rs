//! `caldera why` and `caldera queue` against a sandbox: what a user reads, what a script reads, and how they end.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use caldera_cli::manifests::parse_documents;
use serde_json::{Value, json};

use crate::sandbox::{PATIENCE, QUEUES, SPLIT, Sandbox, WAITING};

const TOO_BIG: &str = include_str!("../../../manifests/examples/30-too-big.yaml");
const WEB: &str = include_str!("../../../manifests/examples/60-web.yaml");

impl Sandbox {
    fn json(&self, args: &[&str]) -> Value {
        let (code, out, err) = self.run(&[args, &["-o", "json"]].concat());
        assert_eq!(code, Some(0), "{args:?}: {err}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args:?}: {error}: {out}"))
    }

    fn why_until(&self, job: &str, verdict: &str) -> Value {
        self.why_when(job, |seen| seen["verdict"] == verdict)
    }

    fn why_when(&self, job: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (code, out, _) = self.run(&["why", job, "-n", "default", "-o", "json"]);
            let seen: Value = if code == Some(0) { serde_json::from_str(&out).unwrap() } else { Value::Null };
            if holds(&seen) {
                return seen;
            }
            assert!(Instant::now() < deadline, "{job} is not as it should be: {seen:#}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn jobs_and_queues_are_explained_on_a_sandbox() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(dir.path(), 3);
    sandbox.apply(QUEUES);
    // It must still run when it is asked about.
    sandbox.apply(&SPLIT.replace("sleep 4", "sleep 600"));
    sandbox.apply(WEB);
    // When it was placed is said some seconds later.
    let split = sandbox.why_when("mindspore-cpu", |seen| seen["verdict"] == "Running" && seen["placedAt"].is_string());
    sandbox.apply(TOO_BIG);
    sandbox.apply(WAITING);

    a_running_split_job(&sandbox, &split);
    a_waiting_job(&sandbox);
    a_job_that_can_never_start(&sandbox);
    the_starts_in_a_list(&sandbox);
    what_is_not_there(&sandbox);
    the_queues(&sandbox);
    what_if(&sandbox, dir.path());
    a_hyper_job(&sandbox);
}

fn a_running_split_job(sandbox: &Sandbox, split: &Value) {
    assert_eq!(split["token"], "Placed");
    let placed = split["placed"].as_array().unwrap();
    assert_eq!(placed.len(), 2, "{split:#}");
    assert_eq!(placed.iter().map(|part| part["tasks"]["pod"].as_u64().unwrap()).sum::<u64>(), 10);
    assert_eq!(split["admission"]["charged"]["cpu"], "20");
    assert!(split["placedAt"].is_string() && split["binding"] == "default/mindspore-cpu-job");
    let (_, text, _) = sandbox.run(&["why", "mindspore-cpu", "-n", "default"]);
    assert!(text.starts_with("Job default/mindspore-cpu RUNS  [Placed]\n  placed on member"), "{text}");
    let web = sandbox.why_until("deployment/web", "Running");
    assert_eq!((&web["queue"], &web["placed"][0]["replicas"]), (&json!("services"), &json!(3)));
}

fn a_waiting_job(sandbox: &Sandbox) {
    let waits = sandbox.why_until("low-priority", "Waiting");
    assert_eq!((&waits["token"], &waits["basis"]), (&json!("WaitingForQuota"), &json!("live")));
    let sentence = waits["sentence"].as_str().unwrap();
    assert!(sentence.contains("needs cpu 12, used 20 of 20 (the capability of queue research)"), "{sentence}");
    assert_eq!(waits["asks"]["minimum"], json!({"cpu": "12", "memory": "6Gi", "pods": "6"}));
    let path: Vec<&Value> = waits["path"].as_array().unwrap().iter().map(|step| &step["queue"]).collect();
    assert_eq!(path, ["root", "research"]);
    let cpu = &waits["path"][1]["amounts"][0];
    assert_eq!((&cpu["used"], &cpu["capability"], &cpu["realCapability"]), (&json!("20"), &json!("20"), &json!("20")));
    assert!(waits["eta"]["basis"].is_string() && waits["position"].is_u64());
    let expected = &waits["expectedStart"];
    assert!(expected["at"].is_string() && expected["sure"] == false, "{expected:#}");
    let basis = expected["basis"].as_str().unwrap();
    assert!(basis.contains("jobs before it give") && basis.ends_with("no estimate; assumed 1 h"), "{basis}");
    // The members' own nodes were read: nothing is doubtful, nothing is missing.
    assert_eq!(waits["missing"], json!([]));
    assert!(waits["clusters"].as_array().unwrap().iter().all(|cluster| cluster["doubt"].is_null()), "{waits:#}");
    let (_, text, _) = sandbox.run(&["why", "low-priority", "-n", "default"]);
    assert!(text.contains(" WAITS  [WaitingForQuota]"), "{text}");
    for word in ["position", "research", "NEEDED", "PODS THAT FIT", "Expected   to start perhaps ", "assumed 1 h"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let (code, yaml, _) = sandbox.run(&["why", "vcjob/low-priority", "-n", "default", "-o", "yaml"]);
    assert_eq!((code, &parse_documents(&yaml).unwrap()[0]["verdict"]), (Some(0), &json!("Waiting")));
}

fn a_job_that_can_never_start(sandbox: &Sandbox) {
    let never = sandbox.why_until("too-big", "CanNeverStart");
    assert_eq!(never["token"], "ExceedsCapability");
    assert!(never["sentence"].as_str().unwrap().contains("needs cpu 48, more than 20"), "{never:#}");
    assert!(never["eta"].is_null() && never["position"].is_null() && never["expectedStart"].is_null());
    let (code, text, _) = sandbox.run(&["why", "too-big", "-n", "default"]);
    assert!(code == Some(0) && text.contains(" CAN NEVER START as it is  [ExceedsCapability]"), "{text}");
}

fn the_starts_in_a_list(sandbox: &Sandbox) {
    let all = sandbox.json(&["job", "list", "-n", "default", "--start", "--assume-run-for", "30m"]);
    let of = |name: &str| all["jobs"].as_array().unwrap().iter().find(|job| job["job"] == name).unwrap();
    assert!(of("low-priority")["expectedStart"]["basis"].as_str().unwrap().contains("assumed 30 min"), "{all:#}");
    for none in ["too-big", "mindspore-cpu"] {
        assert!(of(none)["expectedStart"].is_null(), "{none}: {all:#}");
    }
    let (_, table, _) = sandbox.run(&["job", "list", "-n", "default", "--start"]);
    assert!(table.contains(" START") && table.contains(" perhaps 2"), "{table}");
    assert!(table.contains("\nperhaps: some job before it gives no estimate (assumed 1 h)"), "{table}");
    let (_, plain, _) = sandbox.run(&["job", "list", "-n", "default"]);
    assert!(!plain.contains("START"), "{plain}");
}

/// From here on: the job that waits starts when the running one ends, and at once with twice the quota.
fn what_if(sandbox: &Sandbox, dir: &Path) {
    let simulate = |more: &[&str]| {
        let args = ["simulate", "--assume-run-for", "10m", "--policy", "caldera,fifo"];
        sandbox.json(&[&args, more].concat())
    };
    let now = simulate(&[]);
    let ours = &now["policies"][0];
    assert_eq!(
        (&ours["policy"], &ours["jobs"], &ours["finished"], &ours["neverFit"]),
        (&json!("caldera"), &json!(4), &json!(3), &json!(1))
    );
    let waited = |report: &Value| report["waitSecondsByQueue"]["research"]["max"].as_f64();
    let waited_now = waited(ours).unwrap();
    assert!((300.0..900.0).contains(&waited_now), "{now:#}");
    assert!(now["notes"].to_string().contains("without an estimate"), "{now:#}");
    let queues = dir.join("queues.yaml");
    std::fs::write(&queues, QUEUES.replace("cpu: \"20\"", "cpu: \"40\"")).unwrap();
    let more = simulate(&["--queues", queues.to_str().unwrap()]);
    assert!(waited(&more["policies"][0]).unwrap() < 300.0, "{more:#}");
}

/// One place in line, told on the HyperJob and on each of its jobs.
fn a_hyper_job(sandbox: &Sandbox) {
    let task = r#"{name: t, replicas: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i,
      command: [sh, -c, sleep 600], resources: {requests: {cpu: "1000"}}}]}}}"#;
    sandbox.apply(&format!(
        "{{apiVersion: training.volcano.sh/v1alpha1, kind: HyperJob, metadata: {{name: train, namespace: default}}, \
         spec: {{replicatedJobs: [{{name: a, replicas: 2, templateSpec: {{queue: default, tasks: [{task}]}}}}]}}}}"
    ));
    let seen = sandbox.why_when("hyperjob/train", |seen| seen["token"] == "ExceedsFleet");
    assert_eq!(seen["workload"]["name"], "train-a-0");
    let notes = seen["notes"].to_string();
    assert!(notes.contains("it is one of 2 jobs of HyperJob train that start together or not at all"), "{notes}");
    assert!(notes.contains("the jobs of HyperJob train: train-a-0 CAN NEVER START as it is, train-a-1"), "{notes}");
    let child = sandbox.why_when("train-a-1", |seen| seen["token"] == "ExceedsFleet");
    assert_eq!(child["sentence"], seen["sentence"]);
    let (code, _, err) = sandbox.run(&["why", "hyperjob/nobody", "-n", "default"]);
    assert!(code != Some(0) && err.contains("no job of a HyperJob nobody"), "{err}");
}

fn what_is_not_there(sandbox: &Sandbox) {
    let fails = |args: &[&str], words: &str| {
        let (code, _, err) = sandbox.run(args);
        assert_eq!(code, Some(1), "{args:?}: {err}");
        assert!(err.contains(words), "{args:?}: {err}");
    };
    fails(&["why", "nobody", "-n", "default"], "there is no Volcano Job nobody in namespace default");
    fails(&["why", "web", "-n", "default"], "but a Deployment: ask for deployment/web");
    fails(
        &["why", "low-priority", "-n", "elsewhere"],
        "there is no namespace elsewhere; Volcano Job low-priority is in default",
    );
    for nobody in ["nobody", "hyperjob/nobody", "cronjob/nobody"] {
        fails(&["why", nobody, "-n", "defalt"], "there is no namespace defalt; there are default, ");
    }
    fails(
        &["why", "pytorchjob/x", "-n", "default"],
        "there is no PyTorchJob x in namespace default: this host has no CRD pytorchjobs.kubeflow.org",
    );
    fails(&["queue", "nowhere"], "there is no queue nowhere; there are default, research");
}

fn the_queues(sandbox: &Sandbox) {
    let all = sandbox.json(&["queue"]);
    let names: Vec<&Value> = all["queues"].as_array().unwrap().iter().map(|queue| &queue["name"]).collect();
    assert_eq!(names, ["root", "default", "research", "services", "training"]);
    let research = &all["queues"][2];
    assert_eq!(
        (&research["parent"], &research["depth"], &research["state"]),
        (&json!("root"), &json!(1), &json!("Open"))
    );
    let jobs = ["waiting", "blocked", "running"].map(|state| research["jobs"][state].as_u64());
    assert_eq!(jobs, [Some(1), Some(1), Some(1)], "what can never start does not wait");
    assert_eq!(all["queues"][0]["jobs"]["running"], 2);
    let (_, tree, _) = sandbox.run(&["queue", "tree"]);
    assert!(tree.contains("\nroot ") && tree.contains("\n  research ") && tree.contains("cpu 20/20"), "{tree}");
    let (_, flat, _) = sandbox.run(&["queue"]);
    assert!(flat.contains("\nresearch "), "{flat}");
    let (_, wide, _) = sandbox.run(&["queue", "-o", "wide"]);
    assert!(wide.contains("GUARANTEE") && wide.contains("nvidia.com/gpu"), "{wide}");
    let one = sandbox.json(&["queue", "research"]);
    // What can never start has no position, and stands below.
    let line = one["line"].as_array().unwrap();
    let seen: Vec<_> = line.iter().map(|job| (&job["position"], &job["workload"]["name"], &job["token"])).collect();
    let expected = [(Some(1), "low-priority", "WaitingForQuota"), (None, "too-big", "ExceedsCapability")];
    let expected = expected.map(|(at, name, token)| (json!(at), json!(name), json!(token)));
    assert_eq!(seen, expected.each_ref().map(|(at, name, token)| (at, name, token)), "{one:#}");
    let (_, text, _) = sandbox.run(&["queue", "research", "--first", "1"]);
    assert!(text.contains("\n1         Job default/low-priority") && text.contains("Job default/too-big"), "{text}");
}
