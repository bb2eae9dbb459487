//! `caldera job requeue`, and what else is asked of the controller by a Command of Volcano.
//!
//! Rule: a record of admission is the controller's to take back, so it is asked: Command `RestartJob`
//! (`caldera_controller::decide::job_commands`) takes a Volcano Job off its clusters in one patch and has it wait in
//! line with its age. The Command is made in the job's namespace, which needs verb `create` on Commands and `update` on
//! the job. What came of it is told by the event that names the Command.

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use caldera_crds::workload::WorkloadKind;
use caldera_runtime::watch::api_resource;
use kube::Client;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    args::{JobName, JobNamesArgs},
    change::{create_command, print_outcome, to_exit_code},
    components,
    objects::{self, get_object, list_objects, read_text_at},
    output,
    view::WorkloadFacts,
};

/// How long a controller that runs may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);
/// How long its event may come after the Command is gone.
const EVENT_TIMEOUT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(super) async fn requeue_jobs(args: JobNamesArgs) -> anyhow::Result<ExitCode> {
    let (client, namespace) = components::connect_scope(&args.scope, "job").await?;
    let mut all_done = true;
    for job in &args.jobs {
        all_done &= requeue_and_report(&client, &namespace, job).await;
    }
    Ok(to_exit_code(all_done))
}

/// Has the Volcano Jobs among these wait in line again, and says which others stay where they are; whether all went.
/// What has ended is not there any more, also if it ended meanwhile.
pub(crate) async fn requeue_all(
    client: &Client,
    jobs: impl IntoIterator<Item = (String, JobName)>,
    place: &str,
) -> bool {
    let mut all_done = true;
    for (namespace, job) in jobs {
        if job.kind == WorkloadKind::VolcanoJob {
            all_done &= has_ended(client, &namespace, &job).await
                || requeue_and_report(client, &namespace, &job).await
                || has_ended(client, &namespace, &job).await;
        } else {
            all_done = false;
            let stays = format!("{namespace}/{job} stays in {place}: `caldera job suspend` and `resume` move it");
            output::write_warning(&stays);
        }
    }
    all_done
}

async fn has_ended(client: &Client, namespace: &str, job: &JobName) -> bool {
    match get_object(client, &job.kind.api_resource(), Some(namespace), &job.name).await {
        Ok(Ok(Some(object))) => WorkloadFacts::read(&object).is_some_and(|(_, facts)| facts.has_ended()),
        Ok(Ok(None)) => true,
        Ok(Err(_)) | Err(_) => false,
    }
}

/// Whether it was done.
async fn requeue_and_report(client: &Client, namespace: &str, job: &JobName) -> bool {
    print_outcome(&job.to_string(), requeue_job(client, namespace, job).await)
}

pub(crate) async fn requeue_job(client: &Client, namespace: &str, job: &JobName) -> anyhow::Result<String> {
    anyhow::ensure!(
        job.kind == WorkloadKind::VolcanoJob,
        "only Volcano Jobs are requeued: suspend it, and resume it, which takes it off its clusters and puts it in line"
    );
    let found = get_object(client, &job.kind.api_resource(), Some(namespace), &job.name).await?;
    let object = found.map_err(anyhow::Error::msg)?;
    let object = object.with_context(|| format!("there is no Volcano Job {} in namespace {namespace}", job.name))?;
    send_job_command(client, namespace, &object, "RestartJob").await
}

/// Sends a Command, and waits until the controller has said what came of it.
async fn send_job_command(client: &Client, namespace: &str, job: &Value, action: &str) -> anyhow::Result<String> {
    let resource = WorkloadKind::VolcanoJob.api_resource();
    let name = create_command(client, namespace, &resource, job, action).await?;
    let until = Instant::now() + COMMAND_TIMEOUT;
    while get_object(client, &objects::command_resource(), Some(namespace), &name)
        .await?
        .map_err(anyhow::Error::msg)?
        .is_some()
    {
        anyhow::ensure!(
            Instant::now() < until,
            "Command {name} is there, and no controller has carried it out within {} s",
            COMMAND_TIMEOUT.as_secs()
        );
        sleep(POLL_INTERVAL).await;
    }
    let until = Instant::now() + EVENT_TIMEOUT;
    let resource = api_resource("", "v1", "Event", "events");
    while Instant::now() < until {
        let Ok(events) = list_objects(client, &resource, Some(namespace), None).await? else { break };
        match events.iter().find_map(|event| read_outcome(event, &name, action)) {
            Some(Ok(said)) => return Ok(said),
            Some(Err(why)) => anyhow::bail!("{why}"),
            None => sleep(POLL_INTERVAL).await,
        }
    }
    Ok(format!("was told {action}: `caldera job describe` says what came of it"))
}

/// What an event says of this Command: done, or why not.
fn read_outcome(event: &Value, command: &str, action: &str) -> Option<Result<String, String>> {
    let said = read_text_at(event, "/message").strip_prefix(&format!("Command {command} ({action}): "))?.to_owned();
    Some(match read_text_at(event, "/type") {
        "Warning" => Err(said),
        // It has no clusters, and is in line as it was.
        _ if said.starts_with("nothing to do") => Ok(format!("not requeued: {said}")),
        _ => Ok(format!("requeued: {said}")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_tells_of_the_command_that_it_names_alone() {
        let event = |kind: &str, message: &str| json!({"type": kind, "message": message});
        let read = |kind: &str, message: &str| read_outcome(&event(kind, message), "c-1", "RestartJob");
        assert_eq!(read("Normal", "Command c-1 (RestartJob): it waits"), Some(Ok("requeued: it waits".to_owned())));
        let nothing = read("Normal", "Command c-1 (RestartJob): nothing to do: it waits");
        assert_eq!(nothing, Some(Ok("not requeued: nothing to do: it waits".to_owned())));
        let refused = Some(Err("not carried out: it has ended".to_owned()));
        assert_eq!(read("Warning", "Command c-1 (RestartJob): not carried out: it has ended"), refused);
        assert_eq!(read("Normal", "Command c-12 (RestartJob): it waits"), None);
        assert_eq!(read("Normal", "Pulled an image"), None);
    }
}
