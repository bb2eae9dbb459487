//! Bindings of workloads, and a Work for each of their targets, as our interpreter and our webhook have them.

use caldera_crds::names::karmada::BINDING_ID;
use caldera_runtime::write;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{AGAIN, NAMESPACE, StandIn, interpreter::patched, kind_of, text, write_to};
use crate::{
    hostile::is_hostile,
    workloads::{is_service, name_work},
};

impl StandIn {
    pub(super) async fn binding(&self, job: &Value, name: &str) -> Result<Value, String> {
        let answer = self.interpret("InterpretReplica", job, json!({})).await?;
        let (metadata, (api_version, kind)) = (&job["metadata"], kind_of(job));
        let mut binding = json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "name": name, "namespace": NAMESPACE,
                "annotations": {"propagationpolicy.karmada.io/name": "policy"},
                // Karmada throws one.
                "labels": {BINDING_ID: metadata["uid"]},
                "ownerReferences": [{
                    "apiVersion": api_version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"],
                    "controller": true,
                }],
            },
            "spec": {
                "resource": {
                    "apiVersion": api_version, "kind": kind, "namespace": NAMESPACE, "name": metadata["name"],
                    "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
                },
                "replicas": answer["replicas"], "schedulerName": "default-scheduler",
                "placement": {"replicaScheduling": {
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
                }},
            },
        });
        if answer["replicaRequirements"].is_object() {
            binding["spec"]["replicaRequirements"] = answer["replicaRequirements"].clone();
        }
        // The policy of these is suspended by its owner.
        if metadata["annotations"]["simulation/suspended"] == "true" {
            binding["spec"]["suspension"] = json!({"scheduling": true});
        }
        Ok(binding)
    }

    /// A Work for each target, as ReviseReplica makes it.
    pub(super) async fn dispatch(&mut self, jobs: &[Value], bindings: &[Value], works: &[Value]) -> Result<(), String> {
        let mut failed = Ok(());
        for binding in bindings {
            let Some(job) = jobs.iter().find(|job| job["metadata"]["uid"] == binding["spec"]["resource"]["uid"]) else {
                continue;
            };
            let name = text(&binding["metadata"]["name"]);
            if self.refused.get(&name).is_some_and(|at| at.elapsed() < AGAIN) {
                continue;
            }
            let targets = binding["spec"]["clusters"].as_array().cloned().unwrap_or_default();
            for target in &targets {
                let namespace = format!("karmada-es-{}", text(&target["name"]));
                let work_name = name_work(&name);
                let is_it = |work: &&Value| {
                    let metadata = &work["metadata"];
                    metadata["namespace"] == namespace.as_str() && metadata["name"] == work_name.as_str()
                };
                let known = works.iter().find(is_it);
                let replicas = target["replicas"].to_string();
                // A Volcano Job's does not change.
                let template = if is_service(job) { job["spec"]["template"].to_string() } else { String::new() };
                let is_right = |work: &Value| {
                    let annotations = &work["metadata"]["annotations"];
                    annotations["simulation/replicas"] == replicas.as_str()
                        && annotations["simulation/template"] == template.as_str()
                };
                if known.is_some_and(is_right) {
                    continue;
                }
                let copy = match self.revised(job, &target["replicas"]).await {
                    Ok(copy) => copy,
                    Err(error) => {
                        failed = Err(error);
                        continue;
                    }
                };
                let annotations = json!({
                    "resourcebinding.karmada.io/namespace": NAMESPACE, "resourcebinding.karmada.io/name": name,
                    "simulation/replicas": replicas, "simulation/uid": job["metadata"]["uid"],
                    "simulation/template": template,
                });
                let mut work = json!({
                    "metadata": {"annotations": annotations}, "spec": {"workload": {"manifests": [copy]}},
                });
                let body = if known.is_some() {
                    write::Body::MergePatch(work)
                } else {
                    work["apiVersion"] = "work.karmada.io/v1alpha1".into();
                    work["kind"] = "Work".into();
                    work["metadata"]["name"] = work_name.as_str().into();
                    work["metadata"]["namespace"] = namespace.as_str().into();
                    write::Body::Create(work)
                };
                if let Err(failure) =
                    write::execute_write(&self.host, &write_to(super::works(), &namespace, &work_name, body)).await
                {
                    if is_hostile(&name) || is_service(job) {
                        self.refused.insert(name.clone(), Instant::now());
                    } else {
                        failed = Err(failure.to_string());
                    }
                }
            }
        }
        failed
    }

    async fn revised(&self, job: &Value, replicas: &Value) -> Result<Value, String> {
        let mut copy = job.clone();
        copy.as_object_mut().unwrap().remove("status");
        let metadata = copy["metadata"].as_object_mut().unwrap();
        for field in ["resourceVersion", "uid", "creationTimestamp", "generation"] {
            metadata.remove(field);
        }
        if is_service(job) {
            copy["spec"]["replicas"] = replicas.clone();
            return Ok(copy);
        }
        let answer = self.interpret("ReviseReplica", &copy, json!({"replicas": replicas})).await?;
        Ok(patched(&copy, &answer))
    }
}
