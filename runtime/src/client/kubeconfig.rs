//! Reads a kubeconfig, and remembers in the configuration that is made of it which files it came from, so that one that
//! is replaced is noticed.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError, NamedExtension},
};
use serde::{Deserialize, Serialize};

use super::ClientError;

/// An extension of the user of a configuration, in memory alone. A configuration is a type of kube's, so that there is
/// no other place that goes with it to whoever makes a client of it.
const READ_FROM: &str = "caldera read from";

/// A file that a configuration came from, and a hash of what was in it before it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SourceFile {
    path: PathBuf,
    hash: u64,
}

impl SourceFile {
    fn hash_now(path: PathBuf) -> Self {
        let mut hasher = DefaultHasher::new();
        // One that can not be read is another one than it was.
        fs::read(&path).ok().hash(&mut hasher);
        Self { path, hash: hasher.finish() }
    }

    /// Whether something else is in it now.
    pub(super) fn is_changed(&self) -> bool {
        Self::hash_now(self.path.clone()) != *self
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads `path`, or infers the configuration from `KUBECONFIG`, `~/.kube/config` or the pod's service account.
///
/// # Errors
/// If the file is not a usable kubeconfig, or nothing was found.
pub async fn load_config(path: Option<&Path>) -> Result<Config, ClientError> {
    match path {
        Some(path) => {
            let failed =
                |error| ClientError::Kubeconfig { path: path.to_owned(), why: describe_kubeconfig_error(&error) };
            // Hashed first: what is replaced meanwhile is a change afterwards.
            let mut files = vec![SourceFile::hash_now(path.to_owned())];
            let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
            files.extend(list_named_files(&kubeconfig).map(SourceFile::hash_now));
            let mut config =
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(failed)?;
            mark_source(&mut config, &files);
            Ok(config)
        }
        None => match Config::from_kubeconfig(&KubeConfigOptions::default()).await {
            Ok(mut config) => {
                mark_source(&mut config, &[]);
                Ok(config)
            }
            Err(error) => {
                Config::incluster().map_err(|_| ClientError::Infer { why: describe_kubeconfig_error(&error) })
            }
        },
    }
}

/// Certificates and keys that a kubeconfig names. A file with a token is read again by kube itself, each minute.
fn list_named_files(kubeconfig: &Kubeconfig) -> impl Iterator<Item = PathBuf> {
    let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let of_clusters = clusters.filter_map(|cluster| cluster.certificate_authority.as_ref());
    let of_users = users.flat_map(|user| [&user.client_certificate, &user.client_key]).flatten();
    of_clusters.chain(of_users).map(PathBuf::from)
}

/// Whatever a file says of itself there is replaced.
fn mark_source(config: &mut Config, files: &[SourceFile]) {
    // A path that is no text can not be kept: then it is as if there was no file.
    let extension = serde_json::to_value(files).unwrap_or_else(|_| serde_json::json!([]));
    let extensions = config.auth_info.extensions.get_or_insert_default();
    extensions.retain(|one| one.name != READ_FROM);
    extensions.push(NamedExtension { name: READ_FROM.to_owned(), extension });
}

/// The files that a configuration was read from, the kubeconfig first; none where it was put together of other things.
pub(super) fn list_source_files(config: &Config) -> Option<Vec<SourceFile>> {
    let mut extensions = config.auth_info.extensions.iter().flatten();
    let marked = extensions.find(|one| one.name == READ_FROM)?;
    serde_json::from_value(marked.extension.clone()).ok()
}

/// What is wrong with a kubeconfig. A file that does not parse may hold a token or a key anywhere, and the parser's own
/// words quote it: only the place is told.
fn describe_kubeconfig_error(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, path) if error.kind() == std::io::ErrorKind::NotFound => {
            format!("there is no file {}", path.display())
        }
        KubeconfigError::ReadConfig(error, path) => {
            format!("the file {} can not be read: {}", path.display(), error.kind())
        }
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!("it is no kubeconfig in YAML: see line {}, column {}", at.line(), at.column()),
            None => "it is no kubeconfig in YAML".to_owned(),
        },
        KubeconfigError::LoadContext(_) => "it has no context of the name that its current-context gives".to_owned(),
        KubeconfigError::LoadClusterOfContext(_) => {
            "its current context names a cluster that it does not have".to_owned()
        }
        KubeconfigError::LoadCertificateAuthority(_) => "its certificate authority can not be read".to_owned(),
        KubeconfigError::LoadClientCertificate(_) => "its client certificate can not be read".to_owned(),
        KubeconfigError::LoadClientKey(_) => "its client key can not be read".to_owned(),
        KubeconfigError::ParseCertificates(_) => "its certificates are not in PEM".to_owned(),
        KubeconfigError::ParseClusterUrl(_) | KubeconfigError::ParseProxyUrl(_) => {
            "the address of its cluster is no URL".to_owned()
        }
        KubeconfigError::CurrentContextNotSet => "it has no current-context".to_owned(),
        KubeconfigError::MissingClusterUrl => "its cluster has no address".to_owned(),
        KubeconfigError::FindPath => "there is no home directory to look in".to_owned(),
        KubeconfigError::KindMismatch => "its files or documents are not all of one kind".to_owned(),
        KubeconfigError::ApiVersionMismatch => "its files or documents are not all of one API version".to_owned(),
    }
}
