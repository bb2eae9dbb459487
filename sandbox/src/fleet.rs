//! A host and its members in one process: API servers over HTTPS, their CRDs, the stand-ins, and kubeconfigs.
//!
//! Caldera's own components are not started here: they are pointed at [`Fleet::host`] like at any other Karmada.

use std::{
    collections::BTreeMap,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use caldera_runtime::{
    client::{self, ClientError, WriteCounts},
    tls::{Authority, TlsError, server_config},
    watch::api_resource,
    write::{self, Body, Failure, Write},
};
use embedded_apiserver::{ApiServer, Options};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    karmada,
    member::{self, NodeGroup},
    used_verbs,
};

/// Events that each server keeps per kind. Eight times as many took 3.7 GB after 1,600 jobs.
const HISTORY: usize = 1024;

/// One member of the fleet.
#[derive(Debug, Clone)]
pub struct Member {
    /// Name.
    pub name: String,
    /// Karmada's `spec.region`.
    pub region: String,
    /// Labels of the Cluster object.
    pub labels: Vec<(String, String)>,
    /// Nodes.
    pub nodes: Vec<NodeGroup>,
}

/// What to start.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the host's API server listens; port 0 for any.
    pub host: SocketAddr,
    /// The members.
    pub members: Vec<Member>,
    /// How long a simulated pod runs if it says nothing.
    pub default_run: Duration,
    /// How long a member must be out of reach until the stand-in for Karmada calls it not ready. It looks three times
    /// in that time, and each ten seconds at least.
    pub not_ready_after: Duration,
    /// Whether the stand-in for Karmada evicts from clusters for their `NoExecute` taints.
    pub evicts_by_taints: bool,
    /// What was in other servers and is in these from the start, by `host` or the member's name.
    pub restored: BTreeMap<String, Vec<Value>>,
}

impl Config {
    /// `count` members: every third has GPUs, the others only cores.
    #[must_use]
    pub fn with_members(count: usize) -> Self {
        let group = |prefix: String, count, allocatable: &[(&str, &str)], labels: &[(&str, &str)]| NodeGroup {
            prefix,
            count,
            allocatable: owned_pairs(allocatable),
            labels: owned_pairs(labels),
        };
        let member = |index: usize| {
            let name = format!("member{}", index + 1);
            let cores = [("cpu", "8"), ("memory", "32Gi"), ("ephemeral-storage", "100Gi")];
            let mut nodes = vec![group(format!("{name}-cpu"), 2, &cores, &[("node.caldera.dev/pool", "cpu")])];
            let gpus = index % 3 == 2;
            if gpus {
                let cards =
                    [("cpu", "16"), ("memory", "64Gi"), ("ephemeral-storage", "100Gi"), ("nvidia.com/gpu", "8")];
                nodes.push(group(format!("{name}-gpu"), 2, &cards, &[("node.caldera.dev/pool", "gpu")]));
            }
            let labels = owned_pairs(&[("caldera.dev/gpu", if gpus { "true" } else { "false" })]);
            Member { name, region: format!("region-{}", index % 2 + 1), labels, nodes }
        };
        Self {
            host: (Ipv4Addr::LOCALHOST, 0).into(),
            members: (0..count).map(member).collect(),
            default_run: Duration::from_secs(2),
            not_ready_after: Duration::from_secs(30),
            evicts_by_taints: false,
            restored: BTreeMap::new(),
        }
    }
}

fn owned_pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

/// Why a fleet does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A port is taken or a socket failed.
    #[error("failed to serve {server} at {address}: {source}")]
    Serve {
        /// `host` or the member.
        server: String,
        /// Where.
        address: SocketAddr,
        /// What happened.
        source: io::Error,
    },
    /// No certificate.
    #[error("failed to make the certificate of {server}: {source}")]
    Certificate {
        /// `host` or the member.
        server: String,
        /// What happened.
        source: TlsError,
    },
    /// No client of our own server.
    #[error("failed to reach {server}: {source}")]
    Client {
        /// `host` or the member.
        server: String,
        /// What happened.
        source: Box<ClientError>,
    },
    /// The server refused what every server gets.
    #[error("failed to install {what} on {server}: {source}")]
    Install {
        /// `host` or the member.
        server: String,
        /// Kind and name.
        what: String,
        /// What happened.
        source: Failure,
    },
    /// A stand-in did not start.
    #[error("failed to start the stand-ins of {server}: {message}")]
    StandIn {
        /// `host` or the member.
        server: String,
        /// What happened.
        message: String,
    },
    /// A file could not be written.
    #[error("failed to write {path:?}: {source}")]
    Write {
        /// Which.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
}

/// How to reach one API server.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// `host` or the member's name.
    pub name: String,
    /// `https://127.0.0.1:port`.
    pub server: String,
    /// Bearer token of the administrator.
    pub token: String,
    /// What signed its certificate.
    pub ca_pem: String,
}

impl Endpoint {
    /// A kubeconfig with this server as its only context.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        use base64::Engine;
        let ca = base64::engine::general_purpose::STANDARD.encode(&self.ca_pem);
        let Self { name, server, token, .. } = self;
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\nclusters:\n- name: {name}\n  cluster:\n    \
             server: {server}\n    certificate-authority-data: {ca}\nusers:\n- name: {name}-admin\n  user:\n    \
             token: {token}\ncontexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: {name}-admin\n"
        )
    }

    /// A client for `component`.
    ///
    /// # Errors
    /// If the endpoint is not usable.
    pub fn client(&self, component: &str, counts: &WriteCounts) -> Result<Client, ClientError> {
        client::from_config(self.config()?, component, counts)
    }

    /// The administrator's configuration.
    ///
    /// # Errors
    /// If the endpoint is not usable.
    pub fn config(&self) -> Result<kube::Config, ClientError> {
        client::build_token_config(&self.server, &self.token, Some(self.ca_pem.as_bytes()), false)
    }
}

/// A running fleet; it stops with the token it was started with.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// The Karmada host.
    pub host: Endpoint,
    /// The members.
    pub members: Vec<Endpoint>,
    /// What ends each member.
    stops: BTreeMap<String, CancellationToken>,
}

impl Fleet {
    /// Starts everything and returns once every server answers and every member has joined.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn start(mut config: Config, shutdown: &CancellationToken) -> Result<Self, Error> {
        let authority =
            Authority::new("caldera-sandbox").map_err(|source| Error::Certificate { server: "host".into(), source })?;
        let (server, host) = serve_api("host", config.host, &authority, shutdown).await?;
        let counts = WriteCounts::default();
        let host_client = client_of(&host, "sandbox", &counts)?;
        let mut crds = caldera_crds::manifests::build_karmada_crds();
        crds.push(caldera_crds::manifests::build_cluster_crd());
        crds.extend(caldera_crds::manifests::build_host_volcano_crds());
        crds.extend(caldera_crds::manifests::build_federation_crds());
        install_all(&host_client, "host", crds).await?;
        restore(&server, "host", config.restored.remove("host").unwrap_or_default())?;
        run_karmada(&host, &config, shutdown)?;

        let mut starting = Vec::new();
        let mut stops = BTreeMap::new();
        for member in config.members {
            let (authority, host_client) = (&authority, &host_client);
            let restored = config.restored.remove(&member.name).unwrap_or_default();
            let stop = shutdown.child_token();
            stops.insert(member.name.clone(), stop.clone());
            starting.push(async move {
                let endpoint = start_member(&member, config.default_run, restored, authority, &stop).await?;
                join_member(host_client, &member, &endpoint).await?;
                until_ready(host_client, &member.name).await?;
                Ok::<_, Error>(endpoint)
            });
        }
        let members = futures::future::try_join_all(starting).await?;
        Ok(Self { host, members, stops })
    }

    /// Ends a member with all that runs there, as if its machines were switched off. It does not come back.
    pub fn stop_member(&self, name: &str) {
        if let Some(stop) = self.stops.get(name) {
            stop.cancel();
        }
    }

    /// Writes `DIR/host.kubeconfig` and `DIR/members/<name>.kubeconfig`.
    ///
    /// # Errors
    /// If the folder can not be written.
    pub fn write_kubeconfigs(&self, dir: &Path) -> Result<(), Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Write { path, source }
        };
        let members = dir.join("members");
        fs::create_dir_all(&members).map_err(failed(&members))?;
        let path = dir.join("host.kubeconfig");
        write_secret(&path, &self.host.kubeconfig()).map_err(failed(&path))?;
        for member in &self.members {
            let path = members.join(format!("{}.kubeconfig", member.name));
            write_secret(&path, &member.kubeconfig()).map_err(failed(&path))?;
        }
        Ok(())
    }
}

/// Writes a file that its owner alone may read, also where there was one that others may.
fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    io::Write::write_all(&mut file, text.as_bytes())
}

async fn serve_api(
    name: &str,
    address: SocketAddr,
    authority: &Authority,
    shutdown: &CancellationToken,
) -> Result<(ApiServer, Endpoint), Error> {
    let certificate = |source| Error::Certificate { server: name.to_owned(), source };
    let identity = authority.issue_server_identity(name, &["localhost"], &[address.ip()]).map_err(certificate)?;
    let tls = server_config(&identity).map_err(certificate)?;
    let granted = used_verbs::record_used_verbs();
    let server = ApiServer::new(Options { name: name.to_owned(), history: HISTORY, granted, ..Options::default() });
    let bound = server.serve(address, tls, shutdown.clone()).await.map_err(|source| Error::Serve {
        server: name.to_owned(),
        address,
        source,
    })?;
    let endpoint = Endpoint {
        name: name.to_owned(),
        server: format!("https://{bound}"),
        token: server.admin_token().to_owned(),
        ca_pem: authority.cert_pem.clone(),
    };
    Ok((server, endpoint))
}

fn restore(server: &ApiServer, name: &str, objects: Vec<Value>) -> Result<(), Error> {
    server.restore(objects).map_err(|message| Error::StandIn { server: name.to_owned(), message })
}

fn client_of(endpoint: &Endpoint, component: &str, counts: &WriteCounts) -> Result<Client, Error> {
    endpoint
        .client(component, counts)
        .map_err(|source| Error::Client { server: endpoint.name.clone(), source: Box::new(source) })
}

fn run_karmada(host: &Endpoint, fleet: &Config, shutdown: &CancellationToken) -> Result<(), Error> {
    let client = client_of(host, "karmada", &WriteCounts::default())?;
    let mut config = karmada::Config::default();
    config.pace.threshold = fleet.not_ready_after;
    config.pace.every = config.pace.every.min(fleet.not_ready_after / 3);
    config.evictions.by_taints = fleet.evicts_by_taints;
    let shutdown = shutdown.clone();
    tokio::spawn(async move {
        if let Err(error) = karmada::run(config, client, shutdown).await {
            tracing::error!(%error, "the Karmada stand-ins stopped");
        }
    });
    Ok(())
}

async fn start_member(
    member: &Member,
    default_run: Duration,
    restored: Vec<Value>,
    authority: &Authority,
    shutdown: &CancellationToken,
) -> Result<Endpoint, Error> {
    let (server, endpoint) = serve_api(&member.name, (Ipv4Addr::LOCALHOST, 0).into(), authority, shutdown).await?;
    let client = client_of(&endpoint, "member-sim", &WriteCounts::default())?;
    install_all(&client, &member.name, caldera_crds::manifests::build_member_volcano_crds()).await?;
    restore(&server, &member.name, restored)?;
    let config = member::Config { nodes: member.nodes.clone(), default_run, ..member::Config::default() };
    let (name, shutdown) = (member.name.clone(), shutdown.clone());
    tokio::spawn(async move {
        if let Err(error) = member::run(config, client, shutdown).await {
            tracing::error!(member = name, %error, "the member's stand-ins stopped");
        }
    });
    Ok(endpoint)
}

async fn join_member(host: &Client, member: &Member, endpoint: &Endpoint) -> Result<(), Error> {
    let request = karmada::Member {
        name: member.name.clone(),
        endpoint: endpoint.server.clone(),
        token: endpoint.token.clone(),
        ca_pem: endpoint.ca_pem.clone(),
        region: Some(member.region.clone()),
        labels: member.labels.iter().cloned().collect(),
        ..karmada::Member::default()
    };
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let Err(error) = karmada::join_member(host, &request).await else { return Ok(()) };
        // Karmada's webhook on Clusters answers within three seconds or not at all: a busy machine is asked again.
        if (1..500).contains(&error.code()) || tokio::time::Instant::now() > until {
            return Err(Error::StandIn { server: member.name.clone(), message: error.to_string() });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// How long a server may take for what it does at once, on a busy machine. Only failures last as long.
const PATIENCE: Duration = Duration::from_secs(300);

fn has_condition(object: &kube::api::DynamicObject, kind: &str) -> bool {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|one| one["type"] == kind && one["status"] == "True")
}

/// Waits until Karmada has looked at the member once and found it ready.
async fn until_ready(host: &Client, name: &str) -> Result<(), Error> {
    let resource = api_resource("cluster.karmada.io", "v1alpha1", "Cluster", "clusters");
    let api: kube::Api<kube::api::DynamicObject> = kube::Api::all_with(host.clone(), &resource);
    let is_ready = |cluster: Option<&kube::api::DynamicObject>| cluster.is_some_and(|one| has_condition(one, "Ready"));
    let waiting = kube::runtime::wait::await_condition(api, name, is_ready);
    let failed = |message: String| Error::StandIn { server: name.to_owned(), message };
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!("Karmada did not find it ready within {PATIENCE:?}"))),
    }
}

async fn install_all(client: &Client, server: &str, crds: Vec<Value>) -> Result<(), Error> {
    let installing = crds.into_iter().map(|crd| install_crd(client, server, crd));
    futures::stream::iter(installing).buffer_unordered(CRDS_AT_ONCE).try_collect().await
}

/// So few that on a busy machine none waits for the others longer than a write may take.
const CRDS_AT_ONCE: usize = 4;

/// Creates a CRD (or leaves the one that is there) and waits until it is served.
async fn install_crd(client: &Client, server: &str, crd: Value) -> Result<(), Error> {
    let name = crd.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let failed = |source| Error::Install { server: server.to_owned(), what: format!("CRD {name}"), source };
    let resource = api_resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
    let create = Write {
        resource: resource.clone(),
        namespace: String::new(),
        name: name.clone(),
        subresource: None,
        body: Body::Create(crd),
    };
    let patience = tokio::time::Instant::now() + PATIENCE;
    loop {
        match write::execute_write(client, &create).await {
            Ok(_) | Err(Failure::Exists(_)) => break,
            Err(Failure::Transient(_)) if tokio::time::Instant::now() < patience => {}
            Err(failure) => return Err(failed(failure)),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let api: kube::Api<kube::api::DynamicObject> = kube::Api::all_with(client.clone(), &resource);
    let is_established =
        |crd: Option<&kube::api::DynamicObject>| crd.is_some_and(|one| has_condition(one, "Established"));
    let waiting = kube::runtime::wait::await_condition(api, &name, is_established);
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(failed(Failure::Transient(error.to_string()))),
        Err(_) => Err(failed(Failure::Transient(format!("it was not established within {PATIENCE:?}")))),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_kubeconfig_is_its_owners_alone_also_where_one_was_open_to_all() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        fs::write(&old, "old and long").unwrap();
        fs::set_permissions(&old, PermissionsExt::from_mode(0o644)).unwrap();
        for path in [&new, &old] {
            write_secret(path, "text").unwrap();
            assert_eq!((mode(path), fs::read_to_string(path).unwrap().as_str()), (0o600, "text"));
        }
    }
}
