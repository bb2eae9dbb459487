//! What an operator asks of a sandbox: states of its jobs, objects, and what the doctor finds.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use caldera_cli::objects::{self, name_of, read_list_at, read_text_at};
use caldera_runtime::{
    watch::api_resource,
    write::{Body, Write, execute_write},
};
use kube::{Client, core::ApiResource};
use serde_json::Value;

use crate::sandbox::{PATIENCE, QUEUES, SPLIT, Sandbox, WAITING, connect, until};

const WEB: &str = include_str!("../../../manifests/examples/60-web.yaml");

impl Sandbox {
    /// A split job and a service that run, and a job that waits.
    pub fn run_and_wait(&self) {
        self.apply(QUEUES);
        self.apply(&SPLIT.replace("sleep 4", "sleep 600"));
        self.apply(WEB);
        self.until_state("mindspore-cpu", "Running");
        self.until_state("deployment/web", "Running");
        // Small enough for what is free: it waits for quota alone.
        self.apply(&WAITING.replace("cpu: \"2\"", "cpu: 200m"));
        self.until_state("low-priority", "Waiting");
    }

    pub fn member(&self) -> Client {
        self.wait(connect(&Path::new(&self.kubeconfig).with_file_name("members/member1.kubeconfig")))
    }

    pub fn write(&self, client: &Client, resource: ApiResource, name: &str, body: Body) -> Value {
        let write = Write { resource, namespace: String::new(), name: name.to_owned(), subresource: None, body };
        self.wait(execute_write(client, &write)).unwrap()
    }

    pub fn get(&self, resource: &ApiResource, namespace: Option<&str>, name: &str) -> Option<Value> {
        self.wait(objects::get_object(&self.host, resource, namespace, name)).unwrap().unwrap()
    }

    pub fn list(&self, client: &Client, resource: &ApiResource) -> Vec<Value> {
        self.wait(objects::list_objects(client, resource, None, None)).unwrap().unwrap()
    }

    pub fn binding(&self, name: &str) -> Value {
        self.get(&objects::binding_resource(), Some("default"), name).unwrap_or_default()
    }

    pub fn succeeds(&self, args: &[&str]) -> String {
        let (code, out, err) = self.run(args);
        assert_eq!(code, Some(0), "{args:?}: {out}{err}");
        out
    }

    pub fn fails(&self, args: &[&str], words: &str) {
        let (code, out, err) = self.run(args);
        assert!(code == Some(1) && err.contains(words), "{args:?}: {code:?} {out}{err}");
    }

    /// Findings that are no notes, and the exit code.
    pub fn doctor(&self) -> (Option<i32>, Vec<Value>) {
        let (code, out, err) = self.run(&["doctor", "--grace", "5", "-o", "json"]);
        let report: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
        (code, read_list_at(&report, "/findings").iter().filter(|one| one["severity"] != "note").cloned().collect())
    }

    /// Until the doctor finds this fault, and ends as it should with it.
    pub fn doctor_finds(&self, check: &str, severity: &str, words: &str) {
        until(words, || {
            let (code, findings) = self.doctor();
            let is_it = |one: &&Value| {
                one["check"] == check && one["severity"] == severity && read_text_at(one, "/what").contains(words)
            };
            let found = findings.iter().any(|one| is_it(&one) && !read_text_at(one, "/fix").is_empty());
            let code_wanted = findings.iter().any(|one| one["severity"] == "error").into();
            (found && code == Some(code_wanted)).then_some(()).ok_or_else(|| format!("{code:?} {findings:#?}"))
        });
    }

    pub fn is_healthy(&self) {
        until("healthy", || match self.doctor() {
            (Some(0), findings) if findings.is_empty() => Ok(()),
            ill => Err(format!("{ill:#?}")),
        });
    }

    pub fn row_of(&self, job: &str) -> Value {
        let listed: Value =
            serde_json::from_str(&self.succeeds(&["job", "list", "-n", "default", "-o", "json"])).unwrap();
        read_list_at(&listed, "/jobs").iter().find(|row| row["job"] == job).cloned().unwrap_or_default()
    }

    pub fn state_of(&self, job: &str) -> String {
        read_text_at(&self.row_of(job), "/state").to_owned()
    }

    pub fn until_state(&self, job: &str, state: &str) {
        let late = Instant::now() + PATIENCE - Duration::from_secs(1);
        until(&format!("{job} is {state}"), || {
            let row = self.row_of(job);
            let is_late = Instant::now() > late;
            let said = || if is_late { self.describe_job(&row, job) } else { format!("{row:#}") };
            (read_text_at(&row, "/state") == state).then_some(()).ok_or_else(said)
        });
    }

    /// All that may tell why a job is not as it should be.
    pub fn describe_job(&self, row: &Value, job: &str) -> String {
        let (_, why, refused) = self.run(&["why", job, "-n", "default"]);
        let binding = self.binding(&format!("{job}-job"));
        let pods = self.list(&self.member(), &api_resource("", "v1", "Pod", "pods"));
        let names: Vec<&str> = pods.iter().map(name_of).collect();
        format!("{row:#}\n{why}{refused}\n{binding:#}\npods in member1: {names:?}")
    }
}
