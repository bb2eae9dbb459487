//! The TLS configuration of a server, read from files and read again when they change: a renewed certificate needs no
//! restart.
//!
//! Files are compared by their content and not by their times, because a mounted Secret changes by a symbolic link.
//! Files that can not be used, such as half of a pair that is being written, are logged once; the last usable ones stay
//! in use.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use rustls::ServerConfig;
use tokio::sync::watch;

use super::TlsError;

/// How often files are read again.
pub const RELOAD_EVERY: Duration = Duration::from_secs(10);

/// The TLS configuration of a server, and those that replace it: each new connection gets the newest.
#[derive(Debug, Clone)]
pub struct ServedTls(watch::Receiver<Arc<ServerConfig>>);

/// Replaces what is served.
#[derive(Debug)]
pub struct TlsRenewal(watch::Sender<Arc<ServerConfig>>);

impl TlsRenewal {
    /// From now on each new connection gets this.
    pub fn replace_config(&self, config: Arc<ServerConfig>) {
        self.0.send_replace(config);
    }
}

/// Never replaced.
impl From<Arc<ServerConfig>> for ServedTls {
    fn from(config: Arc<ServerConfig>) -> Self {
        Self(watch::channel(config).1)
    }
}

impl ServedTls {
    /// The configuration of now, and what replaces it.
    #[must_use]
    pub fn with_renewal(config: Arc<ServerConfig>) -> (TlsRenewal, Self) {
        let (renewed, served) = watch::channel(config);
        (TlsRenewal(renewed), Self(served))
    }

    /// The configuration that `make` builds from these files, which are read again `every` so often while it is served.
    ///
    /// # Errors
    /// If a file can not be read, or what is in them can not be used.
    pub fn from_files(
        files: Vec<PathBuf>,
        every: Duration,
        make: impl Fn(&[String]) -> Result<Arc<ServerConfig>, TlsError> + Send + 'static,
    ) -> Result<Self, TlsError> {
        let make = move |files: &[PathBuf], pems: &[String]| make(pems).map_err(|error| error.with_files(files));
        let mut known = read_files(&files)?;
        let (renewed, served) = watch::channel(make(&files, &known)?);
        tokio::spawn(async move {
            let mut logged = None;
            loop {
                tokio::select! {
                    biased;
                    () = renewed.closed() => return,
                    () = tokio::time::sleep(every) => {}
                }
                let made = match read_files(&files) {
                    Ok(now) if now == known => {
                        logged = None;
                        continue;
                    }
                    Ok(now) => make(&files, &now).map(|config| (now, config)),
                    Err(error) => Err(error),
                };
                match made {
                    Ok((now, config)) => {
                        tracing::info!(?files, "serving what is in the files now");
                        (known, logged) = (now, None);
                        renewed.send_replace(config);
                    }
                    Err(error) => {
                        let why = error.to_string();
                        if logged.as_ref() != Some(&why) {
                            tracing::warn!(?files, why, "the files changed and can not be served; what was there is");
                            logged = Some(why);
                        }
                    }
                }
            }
        });
        Ok(Self(served))
    }

    /// The configuration of now.
    #[must_use]
    pub fn current_config(&self) -> Arc<ServerConfig> {
        self.0.borrow().clone()
    }
}

fn read_files(files: &[PathBuf]) -> Result<Vec<String>, TlsError> {
    let read_text = |path: &PathBuf| {
        fs::read_to_string(path).map_err(|source| TlsError::File { path: path.display().to_string(), source })
    };
    files.iter().map(read_text).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{super::*, *};

    fn pair(dir: &Path) -> [PathBuf; 2] {
        ["tls.crt", "tls.key"].map(|name| dir.join(name))
    }

    fn write(paths: &[PathBuf; 2], identity: &Identity) {
        fs::write(&paths[0], &identity.cert_pem).unwrap();
        fs::write(&paths[1], &identity.key_pem).unwrap();
    }

    fn make(pems: &[String]) -> Result<Arc<ServerConfig>, TlsError> {
        server_config(&Identity { cert_pem: pems[0].clone(), key_pem: pems[1].clone() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_pair_is_served_once_it_is_whole_and_the_old_one_until_then() {
        let dir = tempfile::tempdir().unwrap();
        let paths = pair(dir.path());
        let authority = Authority::new("test").unwrap();
        let identity = |name: &str| authority.issue_server_identity(name, &[name], &[]).unwrap();
        let (old, new) = (identity("old"), identity("new"));
        assert!(matches!(ServedTls::from_files(paths.to_vec(), RELOAD_EVERY, make), Err(TlsError::File { .. })));
        write(&paths, &old);
        let served = ServedTls::from_files(paths.to_vec(), RELOAD_EVERY, make).unwrap();
        let first = served.current_config();
        let is_first = async || {
            tokio::time::sleep(RELOAD_EVERY * 3).await;
            Arc::ptr_eq(&first, &served.current_config())
        };
        assert!(is_first().await, "nothing changed");
        fs::write(&paths[0], &new.cert_pem).unwrap();
        assert!(is_first().await, "half of a pair");
        fs::remove_file(&paths[1]).unwrap();
        assert!(is_first().await, "no key");
        write(&paths, &new);
        assert!(!is_first().await);
    }
}
