//! `caldera job logs`: what the pods of a job say, in all clusters that it is in ([`pods`](super::pods)).

use std::{collections::BTreeMap, process::ExitCode};

use futures::{
    AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::LogParams};

use super::pods::{JobPod, find_job_pods};
use crate::{args::JobLogsArgs, change::to_exit_code, components, output};

/// Logs that are read ahead of the one that is printed. With `-f` there is no such bound: every log goes on, so there
/// is one stream for each pod that was chosen.
const LOGS_AT_ONCE: usize = 8;

pub(super) async fn show_logs(args: JobLogsArgs) -> anyhow::Result<ExitCode> {
    let (client, namespace) = components::connect_scope(&args.scope, "logs").await?;
    let found = find_job_pods(&client, &namespace, &args.pods, "logs").await?;
    let is_whole = print_logs(&found.members, &namespace, &found.pods, &args).await;
    Ok(to_exit_code(is_whole && !found.has_gaps))
}

/// A line, or why there are no more.
type Line<'a> = (&'a JobPod, Result<String, String>);

/// False if one could not be read.
async fn print_logs(
    members: &BTreeMap<String, Client>,
    namespace: &str,
    sources: &[JobPod],
    args: &JobLogsArgs,
) -> bool {
    let open = |source| open_log(members, namespace, source, args);
    let mut lines: BoxStream<'_, Line<'_>> = if args.follow {
        stream::iter(sources.iter().map(open)).flatten_unordered(None).boxed()
    } else {
        stream::iter(sources.iter().map(|source| open(source).collect::<Vec<_>>()))
            .buffered(LOGS_AT_ONCE)
            .flat_map(stream::iter)
            .boxed()
    };
    let mut whole = true;
    while let Some((source, line)) = lines.next().await {
        match line {
            Ok(line) => {
                let line = format!("[{}/{}] {}\n", source.cluster, source.pod, line.trim_end_matches('\r'));
                if !output::try_write(&output::escape_controls(&line)) {
                    return whole;
                }
            }
            Err(why) => {
                whole = false;
                let why = format!("caldera: {}/{}: {why}", source.cluster, source.pod);
                eprintln!("{}", output::escape_controls(&why));
            }
        }
    }
    whole
}

fn open_log<'a>(
    members: &BTreeMap<String, Client>,
    namespace: &str,
    source: &'a JobPod,
    args: &JobLogsArgs,
) -> BoxStream<'a, Line<'a>> {
    let fail = |why: String| stream::once(async move { (source, Err(why)) }).boxed();
    if source.phase == "Pending" {
        return fail("it has not started, and has no log".to_owned());
    }
    let Some(member) = members.get(&source.cluster) else { return fail("its cluster does not answer".to_owned()) };
    let pods: Api<Pod> = Api::namespaced(member.clone(), namespace);
    let params = LogParams {
        container: (!source.container.is_empty()).then(|| source.container.clone()),
        follow: args.follow,
        tail_lines: args.tail,
        since_seconds: args.since,
        ..LogParams::default()
    };
    let opened = async move {
        match pods.log_stream(&source.pod, &params).await {
            Ok(reader) => {
                let lines = reader.lines().map_err(|error| format!("its log broke off: {error}"));
                lines.map(move |line| (source, line)).boxed()
            }
            Err(kube::Error::Api(status)) => stream::once(async move { (source, Err(status.message.clone())) }).boxed(),
            Err(error) => stream::once(async move { (source, Err(error.to_string())) }).boxed(),
        }
    };
    stream::once(opened).flatten().boxed()
}
