//! What members and the host refuse: told in their words, and mended where that can be.

use anyhow::ensure;
use caldera_crds::names::caldera::FORCE_DELETE;
use caldera_e2e::{
    PATIENCE, Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run,
};
use serde_json::{Value, json};

#[test]
fn a_copy_that_a_member_refuses_for_good_is_told_in_its_words_and_goes_elsewhere() {
    run("refused", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let members: Vec<String> = s.members().map(str::to_owned).collect();
        // One member admits no Job of this namespace; all others are left out but one.
        let strict = members[0].as_str();
        let name = s.own("none");
        let (group, version) = ("batch.volcano.sh", "v1alpha1");
        let rule =
            json!({"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE"], "resources": ["jobs"]});
        let no_jobs = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
                "validations": [{
                    "expression": format!("object.metadata.namespace != '{}'", s.namespace), "message": "no such image here",
                }],
            },
        });
        let bound = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        s.create_in_member(strict, Kind::AdmissionPolicy, no_jobs).await?;
        s.create_in_member(strict, Kind::AdmissionPolicyBinding, bound).await?;
        until_refused(&s, strict, &queue).await?;

        let only = |clusters: &[&str]| {
            let mut placement = aggregated();
            placement["clusterAffinity"] = json!({"clusterNames": clusters});
            placement
        };
        let gang = job("gang", &queue, &[task("a", 2, "100m", "sleep 600")]);
        s.submit(Kind::Job, gang, &only(&[strict])).await?;
        s.until_told("gang", "CopyRefused").await?;
        let event = s.list(Kind::Event).await?.into_iter().find(|event| event["reason"] == "CopyRefused");
        let said = event.unwrap_or_default()["message"].to_string();
        ensure!(said.contains(strict) && said.contains("no such image here"), "{said}");
        // Others may have it now.
        s.patch(Kind::Policy, "gang", &json!({"spec": {"placement": only(&[strict, &members[1]])}})).await?;
        let there = |binding: &Value| {
            let clusters = binding["spec"]["clusters"].as_array();
            clusters.is_some_and(|all| all.len() == 1 && all[0]["name"] == members[1].as_str())
        };
        s.until(Kind::Binding, "gang-job", "is elsewhere", there).await?;
        s.until_phase("gang", "Running").await?;
        s.delete_in_member(strict, Kind::AdmissionPolicyBinding, &name).await?;
        s.delete_in_member(strict, Kind::AdmissionPolicy, &name).await
    });
}

/// Waits until a member's policy is in force: a server takes a moment to see it.
async fn until_refused(s: &Scenario, member: &str, queue: &str) -> anyhow::Result<()> {
    s.until_in_member(member, Kind::Namespace, &s.namespace, "is there", |_| true).await?;
    s.until_in_member(member, Kind::Queue, queue, "is open", |queue| queue["status"]["state"] == "Open").await?;
    let probe = job("probe", queue, &[task("a", 1, "10m", "sleep 1")]);
    let began = std::time::Instant::now();
    while s.create_in_member(member, Kind::Job, probe.clone()).await.is_ok() {
        s.delete_in_member(member, Kind::Job, "probe").await?;
        s.until_gone_in_member(member, Kind::Job, "probe").await?;
        ensure!(began.elapsed() < PATIENCE, "the policy is never in force");
    }
    Ok(())
}

#[test]
fn a_queue_in_use_is_not_deleted_until_it_is_drained() {
    run("inuse", async |s| {
        let queue = s.queue("q", json!({"cpu": "100m"})).await?;
        // One after the other: Karmada may make the binding of the later one first.
        for (name, phase) in [("runs", "Running"), ("waits", "Pending")] {
            s.submit(Kind::Job, job(name, &queue, &[task("a", 1, "100m", "sleep 600")]), &aggregated()).await?;
            s.until_phase(name, phase).await?;
        }
        let Err(refusal) = s.delete(Kind::Queue, &queue).await else { anyhow::bail!("deleted while it is in use") };
        let says = refusal.to_string();
        for part in ["2 workloads waiting or running in it", "/runs", "/waits", "caldera queue close", FORCE_DELETE] {
            ensure!(says.contains(part), "{part:?} is not in {says}");
        }
        ensure!(s.until_phase("runs", "Running").await?["metadata"]["deletionTimestamp"].is_null());
        s.delete(Kind::Job, "waits").await?;
        s.delete(Kind::Job, "runs").await?;
        s.until_gone(Kind::Job, "runs").await?;
        s.until_gone(Kind::Job, "waits").await?;
        // The webhook sees that it is unused within moments.
        let began = std::time::Instant::now();
        while let Err(error) = s.delete(Kind::Queue, &queue).await {
            ensure!(began.elapsed() < PATIENCE, "{error:#}");
        }
        s.until_gone(Kind::Queue, &queue).await
    });
}
