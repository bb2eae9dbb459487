//! Queues: limits, order, and why a job waits.

use anyhow::{Context, ensure};
use caldera_e2e::{
    kinds::Kind,
    manifest::{aggregated, job, task},
    run,
};
use serde_json::{Value, json};

fn message(group: &Value) -> String {
    let conditions = group["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let messages: Vec<&str> = conditions.iter().filter_map(|condition| condition["message"].as_str()).collect();
    messages.join(" / ")
}

fn says(text: &'static str) -> impl Fn(&Value) -> bool {
    move |group| message(group).contains(text)
}

#[test]
fn a_job_over_quota_waits_with_numbers_and_starts_when_quota_is_freed() {
    run("quota", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        s.submit(Kind::Job, job("first", &queue, &[task("a", 2, "400m", "sleep 600")]), &aggregated()).await?;
        let clusters = s.until_placed("first-job").await?;
        let second =
            s.submit(Kind::Job, job("second", &queue, &[task("a", 1, "300m", "sleep 1")]), &aggregated()).await?;
        let group = s.until_podgroup(&second, "tells the limit", says("needs cpu 0.3")).await?;
        let text = message(&group);
        ensure!(text.contains("0.8") && text.contains('1') && text.contains(&queue), "no numbers in {text:?}");
        ensure!(group["status"]["phase"] == "Pending", "{group}");
        // A2.1: the first job's object stays; its quota comes back when it completes.
        s.complete_job_in_members("first", &clusters).await?;
        s.until_phase("first", "Completed").await?;
        s.until_placed("second-job").await?;
        s.until_phase("second", "Completed").await?;
        ensure!(s.get(Kind::Job, "first").await?.is_some());
        s.until(Kind::Queue, &queue, "is empty again", |queue| {
            let cpu = &queue["status"]["allocated"]["cpu"];
            cpu.is_null() || cpu == "0"
        })
        .await?;
        Ok(())
    });
}

#[test]
fn a_job_that_waits_says_why_on_itself_until_a_cluster_has_it() {
    run("says-itself", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        s.submit(Kind::Job, job("first", &queue, &[task("a", 1, "1", "sleep 600")]), &aggregated()).await?;
        s.until_placed("first-job").await?;
        let second = s.submit(Kind::Job, job("second", &queue, &[task("a", 1, "1", "sleep 1")]), &aggregated()).await?;
        let waits = |job: &Value| {
            let state = &job["status"]["state"];
            state["phase"] == "Pending" && state["reason"] == "WaitingForQuota"
        };
        let said = s.until(Kind::Job, "second", "says why it waits", waits).await?;
        let group = s.until_podgroup(&second, "says the same", says("position 1 of 1")).await?;
        let told = said["status"]["state"]["message"].as_str().unwrap_or_default();
        ensure!(told.contains(&queue) && message(&group).contains(told), "{told:?}, {group}");
        s.until_told("second", "WaitingForQuota").await?;
        s.delete(Kind::Job, "first").await?;
        let done = s.until_phase("second", "Completed").await?;
        ensure!(done["status"]["state"]["reason"] != "WaitingForQuota", "an old reason stays: {done}");
        Ok(())
    });
}

#[test]
fn the_more_urgent_job_overtakes_in_its_queue() {
    run("priority", async |s| {
        let queue = s.queue("q", json!({"cpu": "500m"})).await?;
        let class = s.own("urgent");
        let object = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class}, "value": 1000,
        });
        s.create(Kind::PriorityClass, object).await?;
        s.submit(Kind::Job, job("holder", &queue, &[task("a", 1, "500m", "sleep 600")]), &aggregated()).await?;
        s.until_placed("holder-job").await?;
        let low = s.submit(Kind::Job, job("low", &queue, &[task("a", 1, "500m", "sleep 1")]), &aggregated()).await?;
        s.until_podgroup(&low, "waits", |group| !message(group).is_empty()).await?;
        let mut high = job("high", &queue, &[task("a", 1, "500m", "sleep 1")]);
        high["spec"]["priorityClassName"] = class.as_str().into();
        let high = s.submit(Kind::Job, high, &aggregated()).await?;
        s.until_podgroup(&high, "waits", |group| !message(group).is_empty()).await?;
        s.delete(Kind::Job, "holder").await?;
        s.until_placed("high-job").await?;
        let low = s.get(Kind::Binding, "low-job").await?.context("no binding")?;
        ensure!(low["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "low was first: {low}");
        s.until_phase("low", "Completed").await?;
        Ok(())
    });
}

#[test]
fn a_job_over_its_queues_limit_is_told_that_it_can_never_start() {
    run("never", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let workload = s.submit(Kind::Job, job("big", &queue, &[task("a", 3, "1", "sleep 1")]), &aggregated()).await?;
        let group = s.until_podgroup(&workload, "tells the limit", says("never")).await?;
        let text = message(&group);
        ensure!(text.contains('3') && text.contains('1') && text.contains("cpu"), "no numbers in {text:?}");
        // Nobody behind it is delayed.
        s.submit(Kind::Job, job("small", &queue, &[task("a", 1, "500m", "sleep 1")]), &aggregated()).await?;
        s.until_phase("small", "Completed").await?;
        // Raising the limit is enough.
        s.patch(Kind::Queue, &queue, &json!({"spec": {"capability": {"cpu": "3"}}})).await?;
        s.until_phase("big", "Completed").await?;
        Ok(())
    });
}

#[test]
fn a2_24_a_job_may_come_before_its_queue() {
    run("noqueue", async |s| {
        let queue = s.own("late");
        let workload =
            s.submit(Kind::Job, job("early", &queue, &[task("a", 1, "100m", "sleep 1")]), &aggregated()).await?;
        s.until_podgroup(&workload, "says that its queue is missing", says("does not exist")).await?;
        s.create(Kind::Queue, caldera_e2e::manifest::queue(&queue, &json!({"cpu": "1"}))).await?;
        s.until_phase("early", "Completed").await?;
        Ok(())
    });
}

#[test]
fn a2_11_a_closed_queue_releases_nothing_until_it_opens() {
    run("closed", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let client = s.host();
        let api = caldera_e2e::world::api(&client, &Kind::Queue.resource(), None);
        let state = |state: &str| kube::api::Patch::Merge(json!({"status": {"state": state}}));
        api.patch_status(&queue, &kube::api::PatchParams::default(), &state("Closed")).await?;
        let workload =
            s.submit(Kind::Job, job("shut", &queue, &[task("a", 1, "100m", "sleep 1")]), &aggregated()).await?;
        s.until_podgroup(&workload, "says that its queue is closed", says("Closed")).await?;
        api.patch_status(&queue, &kube::api::PatchParams::default(), &state("Open")).await?;
        s.until_phase("shut", "Completed").await?;
        Ok(())
    });
}

/// What `vcctl queue operate` makes.
async fn command(s: &caldera_e2e::scenario::Scenario, name: &str, action: &str, queue: &str) -> anyhow::Result<()> {
    let target = s.get(Kind::Queue, queue).await?.context("no queue")?;
    let object = json!({
        "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": {"name": name}, "action": action,
        "target": {
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": queue, "uid": target["metadata"]["uid"],
        },
    });
    s.create(Kind::Command, object).await?;
    s.until_gone(Kind::Command, name).await
}

fn is(state: &'static str) -> impl Fn(&Value) -> bool {
    move |queue| queue["status"]["state"] == state
}

#[test]
fn a2_25_commands_close_a_queue_gently_and_open_it_again() {
    run("commands", async |s| {
        let queue = s.queue("q", json!({"cpu": "500m"})).await?;
        s.submit(Kind::Job, job("runs", &queue, &[task("a", 1, "500m", "sleep 600")]), &aggregated()).await?;
        let clusters = s.until_placed("runs-job").await?;
        let waits =
            s.submit(Kind::Job, job("waits", &queue, &[task("a", 1, "500m", "sleep 1")]), &aggregated()).await?;
        s.until_podgroup(&waits, "waits", |group| !message(group).is_empty()).await?;
        command(&s, "close", "CloseQueue", &queue).await?;
        s.until(Kind::Queue, &queue, "is closing", is("Closing")).await?;
        let reason = |group: &Value| group["status"]["conditions"][0]["reason"] == "QueueNotOpen";
        s.until_podgroup(&waits, "says that its queue is not open", reason).await?;
        s.complete_job_in_members("runs", &clusters).await?;
        s.until_phase("runs", "Completed").await?;
        s.until(Kind::Queue, &queue, "is closed", is("Closed")).await?;
        let binding = s.get(Kind::Binding, "waits-job").await?.context("no binding")?;
        ensure!(binding["spec"]["suspension"]["scheduling"] == true, "started in a closed queue: {binding}");
        command(&s, "open", "OpenQueue", &queue).await?;
        s.until(Kind::Queue, &queue, "is open", is("Open")).await?;
        s.until_phase("waits", "Completed").await?;
        Ok(())
    });
}

#[test]
fn children_close_and_open_with_their_parent() {
    run("cascade", async |s| {
        let parent = s.queue("parent", json!({"cpu": "1"})).await?;
        let child = s.own("child");
        let mut queue = caldera_e2e::manifest::queue(&child, &json!({"cpu": "1"}));
        queue["spec"]["parent"] = parent.as_str().into();
        s.create(Kind::Queue, queue).await?;
        s.until(Kind::Queue, &child, "is open", is("Open")).await?;
        let mark = |queue: &Value| queue["metadata"]["annotations"]["volcano.sh/closed-by-parent"].clone();
        command(&s, "close", "CloseQueue", &parent).await?;
        let closed = s.until(Kind::Queue, &child, "is closed", is("Closed")).await?;
        ensure!(mark(&closed) == "true", "{closed}");
        // Alone it does not open, and its users are told.
        command(&s, "open-child", "OpenQueue", &child).await?;
        ensure!(s.get(Kind::Queue, &child).await?.is_some_and(|queue| is("Closed")(&queue)));
        let waits =
            s.submit(Kind::Job, job("waits", &child, &[task("a", 1, "500m", "sleep 1")]), &aggregated()).await?;
        s.until_podgroup(&waits, "names the queue that is closed", says("it starts no jobs")).await?;
        command(&s, "open", "OpenQueue", &parent).await?;
        s.until(Kind::Queue, &child, "is open without the mark", |queue| is("Open")(queue) && mark(queue) == "false")
            .await?;
        s.until_phase("waits", "Completed").await?;
        Ok(())
    });
}

#[test]
fn a2_04_an_unknown_priority_class_does_not_lose_the_job() {
    run("noclass", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let mut workload = job("classy", &queue, &[task("a", 1, "100m", "sleep 2")]);
        workload["spec"]["priorityClassName"] = s.own("nowhere").into();
        s.submit(Kind::Job, workload, &aggregated()).await?;
        s.until_placed("classy-job").await?;
        s.until(Kind::Queue, &queue, "is charged", |queue| queue["status"]["allocated"]["cpu"] == "0.1").await?;
        Ok(())
    });
}

#[test]
fn a2_05_a_parent_limits_its_children_together() {
    run("parent", async |s| {
        let parent = s.queue("parent", json!({"cpu": "1"})).await?;
        let child = async |name: &str| -> anyhow::Result<String> {
            let name = s.own(name);
            let mut queue = caldera_e2e::manifest::queue(&name, &json!({"cpu": "1"}));
            queue["spec"]["parent"] = parent.as_str().into();
            s.create(Kind::Queue, queue).await?;
            s.until(Kind::Queue, &name, "is open", |queue| queue["status"]["state"] == "Open").await?;
            Ok(name)
        };
        let (left, right) = (child("left").await?, child("right").await?);
        s.submit(Kind::Job, job("one", &left, &[task("a", 1, "700m", "sleep 600")]), &aggregated()).await?;
        s.until_placed("one-job").await?;
        let two = s.submit(Kind::Job, job("two", &right, &[task("a", 1, "700m", "sleep 1")]), &aggregated()).await?;
        let group = s.until_podgroup(&two, "tells the limit", |group| !message(group).is_empty()).await?;
        ensure!(message(&group).contains(&parent), "the parent is not named in {:?}", message(&group));
        s.delete(Kind::Job, "one").await?;
        s.until_phase("two", "Completed").await?;
        Ok(())
    });
}

#[test]
fn a2_03_a_job_without_requests_is_not_free() {
    run("besteffort", async |s| {
        let queue = s.queue("q", json!({"pods": "3"})).await?;
        let mut many = task("a", 5, "1", "sleep 1");
        many["template"]["spec"]["containers"][0]["resources"] = json!({});
        let workload = s.submit(Kind::Job, job("free", &queue, &[many]), &aggregated()).await?;
        let group = s.until_podgroup(&workload, "tells the limit", |group| !message(group).is_empty()).await?;
        ensure!(message(&group).contains("pods"), "{:?}", message(&group));
        Ok(())
    });
}
