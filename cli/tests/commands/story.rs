//! A fleet at work, for screens of the docs: a split gang, one with GPUs, a service, lent quota that was taken back,
//! and a line. Everything runs for an hour, so that it stays as it is.

use std::process::Command;

use caldera_cli::{manifests::parse_documents, stack};
use caldera_crds::names::caldera::RUNNING_ESTIMATE;
use serde_json::{Value, json};

use crate::sandbox::{BINARY, QUEUES, SPLIT, Sandbox, WAITING, until};

const GPUS: &str = include_str!("../../../manifests/examples/20-pytorch-gpu.yaml");
const URGENT: &str = include_str!("../../../manifests/examples/50-urgent-report.yaml");
const WEB: &str = include_str!("../../../manifests/examples/60-web.yaml");
const LENDING_QUEUES: &str = include_str!("../../../manifests/examples/70-lending-queues.yaml");
const LENT: &str = include_str!("../../../manifests/examples/71-lent.yaml");
const OWNER: &str = include_str!("../../../manifests/examples/72-owner.yaml");

impl Sandbox {
    /// Until jobs run and wait as they will from then on; says which was evicted.
    pub fn fill_fleet(&self) -> &'static str {
        self.apply(QUEUES);
        self.apply(LENDING_QUEUES);
        self.apply_lasting(SPLIT, "10m");
        self.apply_lasting(GPUS, "20m");
        self.apply(WEB);
        self.apply_lasting(LENT, "40m");
        let run =
            ["mindspore-cpu", "pytorch-gpu", "deployment/web", "speech-1", "speech-2"].map(|job| (job, "Running"));
        self.until_states(&run);
        self.apply_lasting(WAITING, "5m");
        self.apply_lasting(URGENT, "5m");
        self.apply_lasting(OWNER, "30m");
        self.until_states(&[("vision", "Running"), ("low-priority", "Waiting"), ("urgent-report", "Waiting")]);
        let rows = self.list_jobs().unwrap();
        let waits = |job: &&str| rows.iter().any(|row| row["job"] == **job && row["state"] == "Waiting");
        ["speech-1", "speech-2"].into_iter().find(waits).expect("lent quota came back, and nothing gave way")
    }

    /// Its jobs run for an hour, and say that they run for this time.
    fn apply_lasting(&self, yaml: &str, estimate: &str) {
        for mut object in parse_documents(yaml).unwrap() {
            if object["kind"] == "Job" {
                object["metadata"]["annotations"] = json!({RUNNING_ESTIMATE: estimate});
                for task in object["spec"]["tasks"].as_array_mut().unwrap() {
                    task["template"]["spec"]["containers"][0]["command"] = json!(["sh", "-c", "sleep 3600"]);
                }
            }
            self.wait(stack::apply_object(&self.host, object)).unwrap();
        }
    }

    fn list_jobs(&self) -> Result<Vec<Value>, String> {
        let args = ["job", "list", "-n", "default", "-o", "json", "--kubeconfig", &self.kubeconfig];
        let output = Command::new(BINARY).args(args).output().unwrap();
        let listed: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        Ok(listed["jobs"].as_array().cloned().unwrap_or_default())
    }

    fn until_states(&self, wanted: &[(&str, &str)]) {
        until(&format!("{wanted:?}"), || {
            let rows = self.list_jobs()?;
            let is_so =
                |(job, state): &(&str, &str)| rows.iter().any(|row| row["job"] == *job && row["state"] == *state);
            if wanted.iter().all(is_so) { Ok(()) } else { Err(format!("{rows:#?}")) }
        });
    }
}
