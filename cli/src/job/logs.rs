//! `caldera job logs`: what the pods of a job say, in all clusters that it is in ([`pods`](crate::pods)).

use std::{collections::BTreeMap, process::ExitCode};

use futures::{
    AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::LogParams};

use crate::{
    args::JobLogsArgs,
    change::to_exit_code,
    components, output,
    pods::{JobPod, find_job_pods},
};

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

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Mutex, PoisonError},
    };

    use axum::http;
    use caldera_crds::workload::WorkloadKind;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::args::{JobName, PodsArgs, ScopeArgs};

    /// A host with a job in two clusters, and Karmada's proxy to them. The second does not answer.
    fn answer(path: &str) -> (u16, String) {
        let list =
            |items: Value| json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}).to_string();
        let proxy = "/apis/cluster.karmada.io/v1alpha1/clusters/";
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "train-w-0", "labels": {"volcano.sh/task-spec": "w", "volcano.sh/task-index": "0"}},
            "spec": {"containers": [{"name": "main"}, {"name": "side"}]}, "status": {"phase": "Running"},
        });
        let (path, _) = path.split_once('?').unwrap_or((path, ""));
        match path.strip_prefix(proxy).and_then(|rest| rest.split_once("/proxy")) {
            Some(("m1", "/api/v1/namespaces/ns/pods")) => (200, list(json!([pod]))),
            Some(("m1", "/api/v1/namespaces/ns/pods/train-w-0/log")) => (200, "one\ntwo\u{1b}[31m\n".to_owned()),
            None if path.ends_with("/jobs/train") => (200, json!({"metadata": {"name": "train"}}).to_string()),
            None if path.ends_with("/resourcebindings") => {
                let resource = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": "train"});
                let clusters = json!([{"name": "m1"}, {"name": "m2"}]);
                let metadata = json!({"name": "train-job", "namespace": "ns"});
                (200, list(json!([{"metadata": metadata, "spec": {"resource": resource, "clusters": clusters}}])))
            }
            _ => {
                let status = json!({"kind": "Status", "status": "Failure", "code": 503, "reason": "ServiceUnavailable",
                    "message": "no route to the member"});
                (503, status.to_string())
            }
        }
    }

    #[tokio::test]
    async fn logs_come_through_karmadas_proxy_and_a_member_that_does_not_answer_is_a_gap() {
        let asked: &'static Mutex<Vec<String>> = Box::leak(Box::default());
        let lock = || asked.lock().unwrap_or_else(PoisonError::into_inner);
        let service = tower::service_fn(move |request: http::Request<Body>| async move {
            let path = request.uri().path_and_query().unwrap().to_string();
            let (status, text) = answer(&path);
            asked.lock().unwrap().push(path);
            let answer = http::Response::builder().status(status).body(Body::from(text.into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        });
        let host = Client::new(service, "ns");
        let job = JobName { kind: WorkloadKind::VolcanoJob, name: "train".to_owned() };
        let args = JobLogsArgs {
            pods: PodsArgs { job, task: None, rank: None, cluster: None, container: Some("side".to_owned()) },
            follow: false,
            tail: Some(5),
            since: Some(60),
            scope: ScopeArgs { namespace: None, kubeconfig: None },
        };
        let found = find_job_pods(&host, "ns", &args.pods, "logs").await.unwrap();
        assert!(found.has_gaps && found.members.contains_key("m1") && !found.members.contains_key("m2"));
        let [pod] = &found.pods[..] else { panic!("{:?}", found.pods) };
        let lines: Vec<_> = open_log(&found.members, "ns", pod, &args).map(|(_, line)| line).collect().await;
        assert_eq!(lines, [Ok("one".to_owned()), Ok("two\u{1b}[31m".to_owned())]);
        assert!(print_logs(&found.members, "ns", &found.pods, &args).await, "all that was found is whole");
        let log = "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy/api/v1/namespaces/ns/pods/train-w-0/log?";
        let logs: Vec<String> = lock().iter().filter(|path| path.starts_with(log)).cloned().collect();
        assert_eq!(logs.len(), 2, "{:?}", lock());
        for part in ["container=side", "tailLines=5", "sinceSeconds=60"] {
            assert!(logs[0].contains(part), "{logs:?}");
        }
        let listed =
            lock().iter().any(|path| path.contains("/clusters/m1/proxy/") && path.contains("volcano.sh%2Fjob-name"));
        assert!(listed, "its own pods are asked for: {:?}", lock());
    }
}
