//! Who may use which queue.

use anyhow::ensure;
use caldera_cli::stack::ControllerConfig;
use caldera_core::queue::OrderPolicy;
use caldera_e2e::{
    Component, Scenario,
    kinds::Kind,
    manifest::{aggregated, deployment, job, policy, queue, task},
    run, run_configured,
};
use jiff::SignedDuration;
use serde_json::{Value, json};

const SELECTOR: &str = "caldera.dev/namespace-selector";
const WAIT: &str = "caldera.dev/reservation-after";

/// The error of a creation that is to be refused.
async fn refusal(s: &Scenario, kind: Kind, object: Value) -> anyhow::Result<String> {
    match s.create(kind, object.clone()).await {
        Ok(_) => anyhow::bail!("{object} was accepted"),
        Err(error) => Ok(error.to_string()),
    }
}

fn ensure_words(text: &str, words: &[&str]) -> anyhow::Result<()> {
    for word in words {
        ensure!(text.contains(word), "{word:?} is not in {text:?}");
    }
    Ok(())
}

async fn label(s: &Scenario, labels: Value) -> anyhow::Result<()> {
    s.patch(Kind::Namespace, &s.namespace, &json!({"metadata": {"labels": labels}})).await.map(drop)
}

#[test]
fn a_queue_takes_jobs_of_the_namespaces_that_it_selects() {
    run("selector", async |s| {
        let closed = s.own("closed");
        let mut object = queue(&closed, &json!({"cpu": "1"}));
        object["metadata"]["annotations"] = json!({SELECTOR: "team in ml"});
        let text = refusal(&s, Kind::Queue, object.clone()).await?;
        ensure_words(&text, &[SELECTOR, "team in ml", "key in (a,b)"])?;
        object["metadata"]["annotations"] = json!({SELECTOR: "team in (ml),!banned"});
        s.create(Kind::Queue, object).await?;
        s.until(Kind::Queue, &closed, "is open", |queue| queue["status"]["state"] == "Open").await?;

        let mine = |name: &str, seconds: u32| job(name, &closed, &[task("a", 1, "100m", &format!("sleep {seconds}"))]);
        let text = refusal(&s, Kind::Job, mine("stranger", 1)).await?;
        ensure_words(&text, &[&closed, "team in (ml),!banned", &s.namespace, "takes no jobs of namespace"])?;

        // A moment after the label is there, whatever the webhook has seen of it.
        label(&s, json!({"team": "ml"})).await?;
        s.submit(Kind::Job, mine("friend", 1), &aggregated()).await?;
        s.until_phase("friend", "Completed").await?;

        // Who waits when the label goes does not start, and says why; nor does a kind that nobody asks at submission.
        s.create(Kind::Job, job("filler", &closed, &[task("a", 1, "1", "sleep 600")])).await?;
        s.create(
            Kind::Policy,
            policy(
                &json!({
                    "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "filler"},
                }),
                &aggregated(),
            ),
        )
        .await?;
        s.until_placed("filler-job").await?;
        let waits = s.submit(Kind::Job, mine("waits", 1), &aggregated()).await?;
        s.until_podgroup(&waits, "waits for quota", |group| reason(group) == "WaitingForQuota").await?;
        label(&s, json!({"team": null})).await?;
        s.until_podgroup(&waits, "is not selected", |group| reason(group) == "NamespaceNotSelected").await?;
        s.delete(Kind::Job, "filler").await?;
        let web = s.submit(Kind::Deployment, deployment("web", Some(&closed), 1, "100m"), &aggregated()).await?;
        s.until_podgroup(&web, "is not selected", |group| reason(group) == "NamespaceNotSelected").await?;
        let binding = s.get(Kind::Binding, "waits-job").await?.unwrap_or_default();
        ensure!(binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "it started: {binding}");

        // The selector changes: both start.
        s.patch(Kind::Queue, &closed, &json!({"metadata": {"annotations": {SELECTOR: "!banned"}}})).await?;
        s.until_phase("waits", "Completed").await?;
        s.until_placed("web-deployment").await?;
        Ok(())
    });
}

#[test]
fn a_job_that_names_no_queue_is_in_that_of_its_namespace_and_is_taken_there_as_any_other() {
    run("own-queue", async |s| {
        let own = s.queue("own", json!({"cpu": "1"})).await?;
        let annotate = json!({"metadata": {"annotations": {"caldera.dev/default-queue": own}}});
        s.patch(Kind::Namespace, &s.namespace, &annotate).await?;
        let unnamed = |name: &str| {
            let mut unnamed = job(name, "", &[task("a", 1, "100m", "sleep 1")]);
            unnamed["spec"].as_object_mut().map(|spec| spec.remove("queue"));
            unnamed
        };
        // As soon as the webhook has seen it.
        let seen = async {
            for number in 0.. {
                let (name, placement) = (format!("unnamed{number}"), aggregated());
                let stored = s.submit(Kind::Job, unnamed(&name), &placement).await?;
                if stored["spec"]["queue"] == own {
                    return Ok(name);
                }
                ensure!(stored["spec"]["queue"] == "default", "{stored}");
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
            anyhow::bail!("there are no numbers left")
        };
        let name = tokio::time::timeout(std::time::Duration::from_secs(60), seen).await??;
        s.until_phase(&name, "Completed").await?;
        s.patch(Kind::Queue, &own, &json!({"metadata": {"annotations": {SELECTOR: "team=ml"}}})).await?;
        let refused = async {
            for number in 0.. {
                match s.create(Kind::Job, unnamed(&format!("refused{number}"))).await {
                    Ok(_) => {}
                    Err(error) => return ensure_words(&error.to_string(), &[&own, "takes no jobs of namespace"]),
                }
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
            Ok(())
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), refused).await?
    });
}

#[test]
fn a_line_that_is_full_takes_no_more_until_somebody_starts() {
    run("full-line", async |s| {
        let name = s.own("q");
        let mut object = queue(&name, &json!({"cpu": "100m"}));
        object["metadata"]["annotations"] = json!({"caldera.dev/max-waiting-jobs": "some"});
        let text = refusal(&s, Kind::Queue, object.clone()).await?;
        ensure_words(&text, &["caldera.dev/max-waiting-jobs", "no whole number of jobs"])?;
        object["metadata"]["annotations"] = json!({"caldera.dev/max-waiting-jobs": "1"});
        s.create(Kind::Queue, object).await?;
        s.until(Kind::Queue, &name, "is open", |queue| queue["status"]["state"] == "Open").await?;
        let small = |job_name: &str| job(job_name, &name, &[task("a", 1, "100m", "sleep 600")]);
        s.submit(Kind::Job, small("runs"), &aggregated()).await?;
        s.until_placed("runs-job").await?;
        // What the webhook has not seen yet counts for nothing: the line is full within a moment.
        let full = async {
            for number in 0.. {
                let submitted = s.submit(Kind::Job, small(&format!("more{number}")), &aggregated()).await;
                if let Err(error) = submitted {
                    return ensure_words(&error.to_string(), &["waiting in queue", &name, "1 at most"]);
                }
            }
            Ok(())
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), full).await??;
        // Somebody starts until nobody waits, and there is room.
        let room = async {
            for number in 0.. {
                for job in s.list(Kind::Job).await? {
                    // It may be gone already.
                    drop(s.delete(Kind::Job, job["metadata"]["name"].as_str().unwrap_or_default()).await);
                }
                if s.create(Kind::Job, small(&format!("later{number}"))).await.is_ok() {
                    return anyhow::Ok(());
                }
            }
            Ok(())
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), room).await?
    });
}

#[test]
fn as_many_jobs_run_as_a_queue_above_allows_and_the_next_starts_when_one_ends() {
    run("running-limit", async |s| {
        let (top, leaf) = (s.own("top"), s.own("leaf"));
        let mut object = queue(&top, &json!({"cpu": "2"}));
        object["metadata"]["annotations"] = json!({"caldera.dev/max-running-jobs-per-namespace": "0.5"});
        let text = refusal(&s, Kind::Queue, object.clone()).await?;
        ensure_words(&text, &["caldera.dev/max-running-jobs-per-namespace", "no whole number of jobs"])?;
        let per_user = "caldera.dev/max-running-jobs-per-user";
        object["metadata"]["annotations"] = json!({per_user: "many"});
        ensure_words(&refusal(&s, Kind::Queue, object.clone()).await?, &[per_user, "no whole number of jobs"])?;
        object["metadata"]["annotations"] = json!({
            "caldera.dev/max-running-jobs": "5", "caldera.dev/max-running-jobs-per-namespace": "1",
        });
        s.create(Kind::Queue, object).await?;
        let mut below = queue(&leaf, &json!({"cpu": "2"}));
        below["spec"]["parent"] = json!(top);
        s.create(Kind::Queue, below).await?;
        s.until(Kind::Queue, &leaf, "is open", |queue| queue["status"]["state"] == "Open").await?;
        let small = |name: &str| job(name, &leaf, &[task("a", 1, "100m", "sleep 600")]);
        s.submit(Kind::Job, small("runs"), &aggregated()).await?;
        s.until_placed("runs-job").await?;
        let waits = s.submit(Kind::Job, small("waits"), &aggregated()).await?;
        let group = s.until_podgroup(&waits, "waits", |group| reason(group) == "WaitingForRunningJobs").await?;
        let says = group["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned();
        ensure_words(&says, &["1 job of namespace", &s.namespace, &top, "1 at most"])?;
        s.delete(Kind::Job, "runs").await?;
        s.until_placed("waits-job").await?;
        // The same user in whatever namespace, as far as the webhook stamped the jobs.
        let stamped = s.get(Kind::Job, "waits").await?.unwrap_or_default();
        let user = stamped["metadata"]["annotations"]["caldera.dev/submitter"].as_str().unwrap_or_default().to_owned();
        ensure!(!user.is_empty(), "nobody stamped {stamped}");
        let annotations = json!({"caldera.dev/max-running-jobs-per-namespace": null, per_user: "1"});
        s.patch(Kind::Queue, &top, &json!({"metadata": {"annotations": annotations}})).await?;
        let mine = s.submit(Kind::Job, small("mine"), &aggregated()).await?;
        let limited = |group: &Value| {
            let says = group["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
            reason(group) == "WaitingForRunningJobs" && says.contains(&format!("1 job of user {user}"))
        };
        s.until_podgroup(&mine, "waits for its user's jobs", limited).await?;
        Ok(())
    });
}

#[test]
fn a_job_larger_than_its_queue_takes_is_refused_and_other_kinds_say_why_they_wait() {
    run("largest-job", async |s| {
        let name = s.own("q");
        let mut object = queue(&name, &json!({"cpu": "2"}));
        for (annotation, value, word) in [
            ("caldera.dev/max-job", "cpu:1", "cpu=64,nvidia.com/gpu=8"),
            ("caldera.dev/all-jobs-preemptable", "yes", "neither true nor false"),
        ] {
            object["metadata"]["annotations"] = json!({annotation: value});
            ensure_words(&refusal(&s, Kind::Queue, object.clone()).await?, &[annotation, value, word])?;
        }
        object["metadata"]["annotations"] = json!({"caldera.dev/max-job": "cpu=300m"});
        s.create(Kind::Queue, object).await?;
        s.until(Kind::Queue, &name, "is open", |queue| queue["status"]["state"] == "Open").await?;
        // As soon as the webhook has seen the queue.
        let large = |number: u32| job(&format!("large{number}"), &name, &[task("a", 4, "100m", "sleep 600")]);
        let refused = async {
            for number in 0.. {
                if let Err(error) = s.create(Kind::Job, large(number)).await {
                    return ensure_words(&error.to_string(), &["cpu 0.4", "0.3", &name, "the largest job"]);
                }
            }
            Ok(())
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), refused).await??;
        let web = s.submit(Kind::Deployment, deployment("web", Some(&name), 4, "100m"), &aggregated()).await?;
        s.until_podgroup(&web, "is too large", |group| reason(group) == "ExceedsMaxJob").await?;
        s.patch(Kind::Deployment, "web", &json!({"spec": {"replicas": 3}})).await?;
        s.until_placed("web-deployment").await?;
        Ok(())
    });
}

#[test]
fn a_blocked_job_blocks_others_as_soon_as_its_queue_says_and_no_sooner() {
    run("reserve-after", async |s| {
        let name = s.own("q");
        let mut object = queue(&name, &json!({"cpu": "1"}));
        object["metadata"]["annotations"] = json!({WAIT: "soon"});
        ensure_words(&refusal(&s, Kind::Queue, object.clone()).await?, &[WAIT, "soon", "is no wait", "10m,50%"])?;
        object["metadata"]["annotations"] = json!({WAIT: "1s"});
        s.create(Kind::Queue, object).await?;
        s.until(Kind::Queue, &name, "is open", |queue| queue["status"]["state"] == "Open").await?;
        let asking = |job_name: &str, cpu: &str| job(job_name, &name, &[task("a", 1, cpu, "sleep 600")]);
        s.submit(Kind::Job, asking("runs", "600m"), &aggregated()).await?;
        s.until_placed("runs-job").await?;
        let big = s.submit(Kind::Job, asking("big", "800m"), &aggregated()).await?;
        s.until_podgroup(&big, "waits for quota", |group| reason(group) == "WaitingForQuota").await?;
        // Those that come before it has waited for a second pass it.
        let blocked = async {
            for number in 0.. {
                let small = s.submit(Kind::Job, asking(&format!("small{number}"), "1m"), &aggregated()).await?;
                let told = |group: &Value| reason(group) == "BlockedByReservation" || phase(group) != "Pending";
                let group = s.until_podgroup(&small, "is blocked or starts", told).await?;
                if reason(&group) == "BlockedByReservation" {
                    break;
                }
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), blocked).await??;
        s.patch(Kind::Queue, &name, &json!({"metadata": {"annotations": {WAIT: "never"}}})).await?;
        s.submit(Kind::Job, asking("passes", "1m"), &aggregated()).await?;
        s.until_placed("passes-job").await?;
        Ok(())
    });
}

#[test]
fn a_job_that_waits_goes_before_one_of_a_higher_priority_where_its_queue_says_so() {
    run("aging", async |s| {
        let name = s.own("q");
        let mut object = queue(&name, &json!({"cpu": "1"}));
        let aging = "caldera.dev/priority-aging";
        object["metadata"]["annotations"] = json!({aging: "fast"});
        ensure_words(&refusal(&s, Kind::Queue, object.clone()).await?, &[aging, "fast", "is no aging", "1000/24h"])?;
        // As high as a priority can be within a second: then age alone is left.
        object["metadata"]["annotations"] = json!({aging: "4294967295/1s"});
        s.create(Kind::Queue, object).await?;
        s.until(Kind::Queue, &name, "is open", |queue| queue["status"]["state"] == "Open").await?;
        let class = s.own("class");
        let value = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class}, "value": 1000,
        });
        s.create(Kind::PriorityClass, value).await?;
        let asking = |job_name: &str| job(job_name, &name, &[task("a", 1, "800m", "sleep 600")]);
        s.submit(Kind::Job, asking("runs"), &aggregated()).await?;
        s.until_placed("runs-job").await?;
        let old = s.submit(Kind::Job, asking("old"), &aggregated()).await?;
        s.until_podgroup(&old, "waits for quota", |group| reason(group) == "WaitingForQuota").await?;
        let mut urgent = asking("urgent");
        urgent["spec"]["priorityClassName"] = json!(class);
        let urgent = s.submit(Kind::Job, urgent, &aggregated()).await?;
        let second = |group: &Value| {
            let says = group["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
            says.contains("position 2 of 2")
        };
        s.until_podgroup(&urgent, "is behind the older one", second).await?;
        s.delete(Kind::Job, "runs").await?;
        s.until_placed("old-job").await?;
        Ok(())
    });
}

#[test]
fn the_tenant_who_has_less_of_a_queue_goes_first_where_its_queue_says_so() {
    run("turns", async |s| {
        let name = s.own("q");
        let mut object = queue(&name, &json!({"cpu": "1"}));
        let order = "caldera.dev/order";
        object["metadata"]["annotations"] = json!({order: "drf"});
        ensure_words(&refusal(&s, Kind::Queue, object.clone()).await?, &[order, "drf-by-namespace", "drf-by-user"])?;
        object["metadata"]["annotations"] = json!({order: "drf-by-user"});
        s.create(Kind::Queue, object).await?;
        s.until(Kind::Queue, &name, "is open", |queue| queue["status"]["state"] == "Open").await?;
        // Who runs the scenario is one user; the Deployment is somebody else's.
        let asking = |job_name: &str| job(job_name, &name, &[task("a", 1, "600m", "sleep 600")]);
        s.submit(Kind::Job, asking("runs"), &aggregated()).await?;
        s.until_placed("runs-job").await?;
        let old = s.submit(Kind::Job, asking("old"), &aggregated()).await?;
        s.until_podgroup(&old, "waits for quota", |group| reason(group) == "WaitingForQuota").await?;
        let web = submit_as(&s, "somebody-else", deployment("web", Some(&name), 1, "600m")).await?;
        s.until_podgroup(&web, "is first", at("position 1 of 2")).await?;
        s.until_podgroup(&old, "is behind it", at("position 2 of 2")).await?;
        s.patch(Kind::Queue, &name, &json!({"metadata": {"annotations": {order: "none"}}})).await?;
        s.until_podgroup(&old, "is first again", at("position 1 of 2")).await?;
        s.patch(Kind::Queue, &name, &json!({"metadata": {"annotations": {order: "drf-by-user"}}})).await?;
        s.until_podgroup(&web, "is first", at("position 1 of 2")).await?;
        s.patch(Kind::Queue, &name, &json!({"spec": {"capability": {"cpu": "1200m"}}})).await?;
        s.until_placed("web-deployment").await?;
        let binding = s.get(Kind::Binding, "old-job").await?.unwrap_or_default();
        ensure!(binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "it started too: {binding}");
        Ok(())
    });
}

#[test]
fn who_used_a_queue_lately_goes_after_who_did_not_and_the_next_controller_knows_it() {
    let by_history: fn(&mut ControllerConfig) = |config| {
        (config.order, config.history_half_life) = (OrderPolicy::FairHistory, 60);
        config.save_usage_every = SignedDuration::from_secs(1);
    };
    run_configured("lately", by_history, async |s| {
        let name = s.own("q");
        let mut object = queue(&name, &json!({"cpu": "1"}));
        object["metadata"]["annotations"] = json!({"caldera.dev/order": "drf-by-user"});
        s.create(Kind::Queue, object).await?;
        s.until(Kind::Queue, &name, "is open", |queue| queue["status"]["state"] == "Open").await?;
        let asking = |job_name: &str, command: &str| job(job_name, &name, &[task("a", 1, "800m", command)]);
        s.submit(Kind::Job, asking("ran", "sleep 12"), &aggregated()).await?;
        s.until_phase("ran", "Completed").await?;
        submit_as(&s, "third", deployment("busy", Some(&name), 1, "800m")).await?;
        s.until_placed("busy-deployment").await?;
        let old = s.submit(Kind::Job, asking("old", "sleep 600"), &aggregated()).await?;
        s.until_podgroup(&old, "waits for quota", |group| reason(group) == "WaitingForQuota").await?;
        let web = submit_as(&s, "somebody-else", deployment("web", Some(&name), 1, "600m")).await?;
        s.until_podgroup(&web, "is first", at("position 1 of 2")).await?;
        s.until_podgroup(&old, "is behind it", at("position 2 of 2")).await?;
        s.kill(Component::Controller).await;
        let kept = s.get_in(Kind::ConfigMap, "caldera-system", "caldera-tenant-history").await?.unwrap_or_default();
        ensure!(kept["data"]["history.json"].as_str().is_some_and(|text| text.contains(&name)), "{kept}");
        let kept = s.get_in(Kind::ConfigMap, "caldera-system", "caldera-queue-history").await?.unwrap_or_default();
        ensure!(!kept.is_null() && !kept["data"].to_string().contains("user"), "{kept}");
        s.delete(Kind::Deployment, "busy").await?;
        s.resume(Component::Controller).await?;
        s.until_placed("web-deployment").await?;
        let binding = s.get(Kind::Binding, "old-job").await?.unwrap_or_default();
        ensure!(binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "it started too: {binding}");
        Ok(())
    });
}

/// Creates a Deployment as another user who may do everything.
async fn submit_as(s: &Scenario, user: &str, workload: Value) -> anyhow::Result<Value> {
    s.create(Kind::Policy, policy(&workload, &aggregated())).await?;
    let request = http::Request::post(format!("/apis/apps/v1/namespaces/{}/deployments", s.namespace))
        .header("content-type", "application/json")
        .header("impersonate-user", user)
        .header("impersonate-group", "system:masters")
        .body(workload.to_string().into_bytes())?;
    Ok(s.host().request(request).await?)
}

/// Whether a PodGroup says this of its place in line.
fn at(place: &'static str) -> impl Fn(&Value) -> bool {
    move |group| {
        let says = group["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
        says.contains(place)
    }
}

fn phase(group: &Value) -> &str {
    group["status"]["phase"].as_str().unwrap_or_default()
}

fn reason(group: &Value) -> &str {
    group["status"]["conditions"][0]["reason"].as_str().unwrap_or_default()
}
