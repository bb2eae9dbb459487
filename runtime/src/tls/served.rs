//! What a server shows, read from files and again when they change: certificates are renewed, servers are not restarted.
//!
//! Files are compared by what is in them, not by their times: a Secret that is mounted changes by a link. What can not be
//! used (half of a pair that is being written) is told once and not served; what was served before stays.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum_server::tls_rustls::RustlsConfig;
use rustls::ServerConfig;
use tokio::sync::watch;

use super::TlsError;

/// How often files are looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);

/// A server's configuration, and those that replace it.
#[derive(Debug, Clone)]
pub struct Served(watch::Receiver<Arc<ServerConfig>>);

/// Never replaced.
impl From<Arc<ServerConfig>> for Served {
    fn from(config: Arc<ServerConfig>) -> Self {
        Self(watch::channel(config).1)
    }
}

impl Served {
    /// What `make` makes of these files, which are looked at `every` so often for as long as somebody serves it.
    ///
    /// # Errors
    /// If a file can not be read, or what is in them can not be used.
    pub fn from_files(
        files: Vec<PathBuf>,
        every: Duration,
        make: impl Fn(&[String]) -> Result<Arc<ServerConfig>, TlsError> + Send + 'static,
    ) -> Result<Self, TlsError> {
        let mut known = read(&files)?;
        let (renewed, served) = watch::channel(make(&known)?);
        tokio::spawn(async move {
            let mut told = None;
            loop {
                tokio::select! {
                    () = renewed.closed() => return,
                    () = tokio::time::sleep(every) => {}
                }
                let made = match read(&files) {
                    Ok(now) if now == known => {
                        told = None;
                        continue;
                    }
                    Ok(now) => make(&now).map(|config| (now, config)),
                    Err(error) => Err(error),
                };
                match made {
                    Ok((now, config)) => {
                        tracing::info!(?files, "serving what is in the files now");
                        (known, told) = (now, None);
                        renewed.send_replace(config);
                    }
                    Err(error) => {
                        let why = error.to_string();
                        if told.as_ref() != Some(&why) {
                            tracing::warn!(?files, why, "the files changed and can not be served; what was there is");
                            told = Some(why);
                        }
                    }
                }
            }
        });
        Ok(Self(served))
    }

    /// What is to be served now.
    #[must_use]
    pub fn now(&self) -> Arc<ServerConfig> {
        self.0.borrow().clone()
    }

    /// What replaces it; `None` if nothing ever will.
    pub async fn renewed(&mut self) -> Option<Arc<ServerConfig>> {
        self.0.changed().await.ok()?;
        Some(self.0.borrow_and_update().clone())
    }

    /// For a server: connections that are made from then on get what is newest.
    #[must_use]
    pub fn rustls(mut self) -> RustlsConfig {
        let config = RustlsConfig::from_config(self.now());
        let serving = config.clone();
        tokio::spawn(async move {
            while let Some(renewed) = self.renewed().await {
                serving.reload_from_config(renewed);
            }
        });
        config
    }
}

fn read(files: &[PathBuf]) -> Result<Vec<String>, TlsError> {
    let text = |path: &PathBuf| fs::read_to_string(path).map_err(|source| unreadable(path, source));
    files.iter().map(text).collect()
}

fn unreadable(path: &Path, source: std::io::Error) -> TlsError {
    TlsError::File { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
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
        let identity = |name: &str| authority.server(name, &[name], &[]).unwrap();
        let (old, new) = (identity("old"), identity("new"));
        assert!(matches!(Served::from_files(paths.to_vec(), LOOK_EVERY, make), Err(TlsError::File { .. })));
        write(&paths, &old);
        let mut served = Served::from_files(paths.to_vec(), LOOK_EVERY, make).unwrap();
        let first = served.now();
        let looks = async |served: &mut Served| tokio::time::timeout(LOOK_EVERY * 3, served.renewed()).await.ok();
        assert!(looks(&mut served).await.is_none(), "nothing changed");
        fs::write(&paths[0], &new.cert_pem).unwrap();
        assert!(looks(&mut served).await.is_none(), "half of a pair");
        fs::remove_file(&paths[1]).unwrap();
        assert!(looks(&mut served).await.is_none(), "no key");
        assert!(Arc::ptr_eq(&first, &served.now()));
        write(&paths, &new);
        let renewed = looks(&mut served).await.flatten().unwrap();
        assert!(Arc::ptr_eq(&renewed, &served.now()) && !Arc::ptr_eq(&first, &renewed));
        assert!(looks(&mut served).await.is_none(), "once");
    }
}
