//! Completes names of jobs, queues, clusters and namespaces on an unfinished command line: they are asked of the API.
//!
//! Rule: as kubectl's own completion, the server is asked that the command would ask: `--kubeconfig` and `--namespace`
//! of the unfinished line count. At most [`MOST_NAMES`] names come, without the objects. What does not answer within
//! [`COMPLETION_TIMEOUT`] completes nothing, without a word: a completion must not disturb what is being typed.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    time::Duration,
};

use caldera_crds::{object::api_resource, workload::WorkloadKind};
use caldera_runtime::{
    client::{self, WriteCounts},
    watch::read_declared_kinds,
};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use kube::{
    Api, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject},
};

const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);
const MOST_NAMES: u32 = 500;

/// Names of Volcano Jobs; of other kinds after `KIND/`, those that are declared on the host among them.
pub(crate) fn complete_job_names() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let current = current.to_string_lossy();
        let (prefix, kind) = match current.split_once('/') {
            None => (String::new(), Some(WorkloadKind::VolcanoJob)),
            Some((kind, _)) => (format!("{kind}/"), find_kind(kind)),
        };
        let mut names = kind.map_or_else(Vec::new, |kind| list_names(&kind.api_resource(), true));
        names.iter_mut().for_each(|name| name.insert_str(0, &prefix));
        if prefix.is_empty() && !current.is_empty() {
            declare_kinds_of_host();
            names.extend(WorkloadKind::list_all().map(|kind| format!("{}/", kind.aliases()[0])));
        }
        keep_matching(names, &current)
    })
}

/// Names of queues.
pub(crate) fn complete_queue_names() -> ArgValueCompleter {
    complete_from(|| api_resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues"))
}

/// Names of member clusters.
pub(crate) fn complete_cluster_names() -> ArgValueCompleter {
    complete_from(|| api_resource("cluster.karmada.io", "v1alpha1", "Cluster", "clusters"))
}

/// Names of CapacityReservations.
pub(crate) fn complete_reservation_names() -> ArgValueCompleter {
    complete_from(|| api_resource("federation.caldera.dev", "v1alpha1", "CapacityReservation", "capacityreservations"))
}

/// Names of namespaces.
pub(crate) fn complete_namespace_names() -> ArgValueCompleter {
    complete_from(|| api_resource("", "v1", "Namespace", "namespaces"))
}

fn complete_from(resource: fn() -> ApiResource) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        keep_matching(list_names(&resource(), false), &current.to_string_lossy())
    })
}

/// The kind that a user names so; the host is asked where nothing here is named so.
pub(super) fn find_kind(word: &str) -> Option<WorkloadKind> {
    let word = word.to_lowercase();
    WorkloadKind::parse_alias(&word).or_else(|| {
        declare_kinds_of_host();
        WorkloadKind::parse_alias(&word)
    })
}

/// Has this process know the kinds that are declared on the host of the command line, if it answers.
fn declare_kinds_of_host() {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let kubeconfig = find_flag(&words, "--kubeconfig", None).map(PathBuf::from);
    let ask = async move {
        let config = client::load_config(kubeconfig.as_deref()).await.ok()?;
        let client = client::from_config(config, "arguments", &WriteCounts::default()).ok()?;
        read_declared_kinds(&client).await.ok()
    };
    // Arguments are read where another runtime is.
    let asked = std::thread::spawn(move || run_for_completion(ask));
    drop(asked.join());
}

fn keep_matching(names: Vec<String>, current: &str) -> Vec<CompletionCandidate> {
    names.into_iter().filter(|name| name.starts_with(current)).map(CompletionCandidate::new).collect()
}

fn list_names(resource: &ApiResource, namespaced: bool) -> Vec<String> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let kubeconfig = find_flag(&words, "--kubeconfig", None).map(PathBuf::from);
    let namespace = find_flag(&words, "--namespace", Some("-n"));
    let ask = async {
        let config = client::load_config(kubeconfig.as_deref()).await.ok()?;
        let client = client::from_config(config, "completion", &WriteCounts::default()).ok()?;
        let api: Api<DynamicObject> = match namespace.as_deref().map(OsStr::to_string_lossy) {
            _ if !namespaced => Api::all_with(client, resource),
            Some(namespace) => Api::namespaced_with(client, &namespace, resource),
            None => Api::default_namespaced_with(client, resource),
        };
        let list = api.list_metadata(&ListParams::default().limit(MOST_NAMES)).await.ok()?;
        Some(list.items.iter().map(ResourceExt::name_any).collect())
    };
    run_for_completion(ask).unwrap_or_default()
}

/// What is not known after a while is not known.
fn run_for_completion<T>(ask: impl Future<Output = Option<T>>) -> Option<T> {
    caldera_runtime::tls::install_provider();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async { tokio::time::timeout(COMPLETION_TIMEOUT, ask).await.ok().flatten() })
}

/// The last value of a flag: `--flag VALUE`, `--flag=VALUE`, `-f VALUE` or `-fVALUE`.
fn find_flag(words: &[OsString], long: &str, short: Option<&str>) -> Option<OsString> {
    let value_of = |at: usize| {
        let word = words[at].to_str()?;
        if word == long || short == Some(word) {
            return words.get(at + 1).cloned();
        }
        let joined = word.strip_prefix(long).and_then(|rest| rest.strip_prefix('='));
        let joined = joined.or_else(|| word.strip_prefix(short?).filter(|rest| !rest.is_empty()));
        joined.map(OsString::from)
    };
    (0..words.len()).rev().find_map(value_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_unfinished_line_count_in_each_way_to_write_them() {
        let find = |line: &str, long: &str, short| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            find_flag(&words, long, short).map(|value| value.into_string().unwrap())
        };
        for line in ["why -n lab x", "why -nlab x", "why --namespace lab x", "why --namespace=lab x"] {
            assert_eq!(find(line, "--namespace", Some("-n")).as_deref(), Some("lab"), "{line}");
        }
        assert_eq!(find("why --kubeconfig a --kubeconfig b", "--kubeconfig", None).as_deref(), Some("b"));
        assert_eq!(find("why x", "--namespace", Some("-n")), None);
        assert_eq!(find("why --namespace", "--namespace", Some("-n")), None);
    }

    #[test]
    fn only_what_begins_as_the_word_does_is_offered() {
        let offered = keep_matching(vec!["train".into(), "tune".into()], "tr");
        assert_eq!(offered.iter().map(CompletionCandidate::get_value).collect::<Vec<_>>(), ["train"]);
    }
}
