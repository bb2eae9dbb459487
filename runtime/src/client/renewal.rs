//! What a client sends its requests by, made anew when the kubeconfig is replaced that it was made of.
//!
//! Why not end, to be started again with the new one: whoever leads would give its lease away for it, the webhook would
//! refuse reviews meanwhile, and a process that nobody starts again would be gone. Why not the token alone: a client
//! certificate and the trust in the server are renewed in the same way, and all of it is one value that is swapped.
//! What was sent goes on as it began; a watch is sent anew sooner or later, and then by the new credentials.
//!
//! Rules:
//! 1. The files are looked at before a request, every ten seconds at most. They are compared by what is in them and not
//!    by their times, because a mounted Secret changes by a symbolic link.
//! 2. Files that can not be used, such as half of a pair that is being written, are logged once; the last usable ones
//!    stay in use. A kubeconfig without credentials is half of one where there were some.
//! 3. Another server is not taken: what is known of one is not true of another. Nor is somebody else whom the client
//!    acts as.
//! 4. Credentials that a program gives are not looked after: it would be run on the way of a request, and kube runs it
//!    again by itself when they end.
//! 5. A file that has a token and nothing else, `tokenFile`, is read again by kube itself each minute.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioExecutor};
use kube::{
    Config,
    client::{AuthError, Body, ConfigExt},
    config::AuthInfo,
};
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _, util::BoxCloneService};

use super::{
    credentials::{ShownCredentials, read_token},
    kubeconfig::{SourceFile, list_source_files, load_config},
};

/// How long a TCP connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

type Stack = BoxCloneService<Request<Body>, Response<Incoming>, BoxError>;

/// What carries requests to the server, by the credentials of now. Clones share them.
#[derive(Clone)]
pub(super) struct RenewedStack(Arc<Renewal>);

struct Renewal {
    now: Mutex<Used>,
    every: Duration,
    /// Shows when they end, for as long as somebody goes by them.
    shown: Arc<ShownCredentials>,
}

struct Used {
    stack: Stack,
    config: Config,
    files: Vec<SourceFile>,
    next_look: Instant,
    /// Why what is in the files now is not used.
    logged: Option<String>,
}

impl RenewedStack {
    /// Of a configuration, whose files are looked at `every` so often.
    pub(super) fn of_config(config: Config, shown: Arc<ShownCredentials>, every: Duration) -> kube::Result<Self> {
        let files = list_source_files(&config).filter(|_| !is_given_by_program(&config.auth_info));
        let used = Used {
            stack: build_stack(&config)?,
            files: files.unwrap_or_default(),
            config,
            next_look: Instant::now() + every,
            logged: None,
        };
        Ok(Self(Arc::new(Renewal { now: Mutex::new(used), every, shown })))
    }
}

impl Renewal {
    fn lock(&self) -> MutexGuard<'_, Used> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration of now, if its files have changed and nobody else looks after them.
    fn find_outdated(&self) -> Option<Config> {
        let (files, config) = {
            let mut used = self.lock();
            let now = Instant::now();
            if used.files.is_empty() || now < used.next_look {
                return None;
            }
            used.next_look = now + self.every;
            (used.files.clone(), used.config.clone())
        };
        // As kube reads a token's file: one that is local and small, in passing.
        files.iter().any(SourceFile::is_changed).then_some(config)
    }

    async fn use_changed_files(&self) {
        let Some(old) = self.find_outdated() else { return };
        let path = self.lock().files.first().map(|file| file.path().to_owned());
        let made = match load_config(path.as_deref()).await {
            Ok(read) => renew_config(&old, read).and_then(|config| {
                let stack = build_stack(&config).map_err(|error| error.to_string())?;
                Ok((config, stack))
            }),
            Err(error) => Err(error.to_string()),
        };
        let mut used = self.lock();
        match made {
            Ok((config, stack)) => {
                tracing::info!(?path, "the kubeconfig was replaced: what it says is used from now on");
                self.shown.replace_config(&config);
                used.files = list_source_files(&config).unwrap_or_default();
                (used.stack, used.config, used.logged) = (stack, config, None);
            }
            Err(why) if used.logged.as_ref() != Some(&why) => {
                tracing::warn!(?path, why, "the kubeconfig changed and can not be used; what was there is");
                used.logged = Some(why);
            }
            Err(_) => {}
        }
    }
}

/// What was read anew, as who reads it now.
fn renew_config(old: &Config, mut read: Config) -> Result<Config, String> {
    if read.cluster_url != old.cluster_url {
        return Err(format!("it leads to another server, {}: only a new start follows", read.cluster_url));
    }
    let (new, old_auth) = (&mut read.auth_info, &old.auth_info);
    if is_given_by_program(new) {
        return Err("a program gives its credentials: only a new start runs it".to_owned());
    }
    if has_credentials(old_auth) && !has_credentials(new) {
        return Err("it has no credentials, as if half of it was written".to_owned());
    }
    if new.impersonate.is_some() && new.impersonate != old_auth.impersonate {
        return Err("it acts as somebody else: only a new start follows".to_owned());
    }
    new.impersonate.clone_from(&old_auth.impersonate);
    new.impersonate_uid.clone_from(&old_auth.impersonate_uid);
    new.impersonate_groups.clone_from(&old_auth.impersonate_groups);
    new.impersonate_user_extra.clone_from(&old_auth.impersonate_user_extra);
    read.headers.clone_from(&old.headers);
    Ok(read)
}

fn is_given_by_program(auth: &AuthInfo) -> bool {
    auth.exec.is_some() || auth.auth_provider.is_some()
}

fn has_credentials(auth: &AuthInfo) -> bool {
    let AuthInfo { token, token_file, client_certificate, client_certificate_data, username, .. } = auth;
    token.is_some()
        || [token_file, client_certificate, client_certificate_data, username].into_iter().any(Option::is_some)
        || is_given_by_program(auth)
}

/// kube takes every token for one that a header can have, and panics where it is none, such as with a line break.
fn check_token(auth: &AuthInfo) -> kube::Result<()> {
    let header = read_token(auth).map(HeaderValue::try_from).transpose();
    header.map(drop).map_err(|error| kube::Error::Auth(AuthError::InvalidBearerToken(error)))
}

fn build_stack(config: &Config) -> kube::Result<Stack> {
    check_token(&config.auth_info)?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = config.rustls_https_connector_with_connector(tcp)?;
    let auth = config.auth_layer()?;
    let headers = config.extra_headers_layer()?;
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let stack = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(auth)
        .layer(headers)
        .map_err(BoxError::from)
        .service(http);
    Ok(BoxCloneService::new(stack.map_err(BoxError::from)))
}

impl Service<Request<Body>> for RenewedStack {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let renewal = Arc::clone(&self.0);
        Box::pin(async move {
            renewal.use_changed_files().await;
            let stack = renewal.lock().stack.clone();
            stack.oneshot(request).await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use axum::{Router, extract::State, http::HeaderMap};
    use kube::client::ClientBuilder;

    use super::{super::credentials::ClientCredentials, *};

    type Seen = Arc<Mutex<Vec<String>>>;

    async fn note_token(State(seen): State<Seen>, headers: HeaderMap) {
        let token = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
        seen.lock().unwrap().push(token.unwrap_or_default());
    }

    async fn serve_notes() -> (String, Seen) {
        let seen = Seen::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(note_token).with_state(Arc::clone(&seen));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (url, seen)
    }

    fn write_kubeconfig(path: &Path, server: &str, user: &str) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        );
        fs::write(path, text).unwrap();
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_replaced_is_used_and_one_that_is_of_no_use_is_not() {
        crate::tls::install_provider();
        let (server, seen) = serve_notes().await;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        write_kubeconfig(&path, &server, "token: one");
        let mut config = load_config(Some(&path)).await.unwrap();
        config.auth_info.impersonate = Some("somebody".to_owned());
        let shown = ClientCredentials::default().add_client("test", &config);
        let stack = RenewedStack::of_config(config, shown, Duration::ZERO).unwrap();
        let now = Arc::clone(&stack.0);
        let client = ClientBuilder::new(stack, "ns").build();
        let ask = async || {
            client.send(Request::get("/version").body(Body::empty()).unwrap()).await.unwrap();
            seen.lock().unwrap().pop().unwrap()
        };
        assert_eq!(ask().await, "Bearer one");
        write_kubeconfig(&path, &server, "token: two");
        assert_eq!(ask().await, "Bearer two");
        assert_eq!(now.lock().config.auth_info.impersonate.as_deref(), Some("somebody"));
        fs::write(&path, "users: [{name: u").unwrap();
        assert_eq!(ask().await, "Bearer two", "half of it is written");
        write_kubeconfig(&path, &server, "");
        assert_eq!(ask().await, "Bearer two", "its credentials are not written yet");
        write_kubeconfig(&path, &server, "token: \"three\\n\"");
        assert_eq!(ask().await, "Bearer two", "a header has no line breaks");
        write_kubeconfig(&path, &server, "token: three, as: another");
        assert_eq!(ask().await, "Bearer two", "it would act as another");
        write_kubeconfig(
            &path,
            &server,
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: [ran]}",
        );
        assert_eq!(ask().await, "Bearer two", "no program is run on the way of a request");
        assert!(!Path::new("ran").exists());
        fs::remove_file(&path).unwrap();
        assert_eq!(ask().await, "Bearer two", "it is gone for a moment");
        write_kubeconfig(&path, "http://127.0.0.1:1", "token: three");
        assert_eq!(ask().await, "Bearer two", "it leads elsewhere");
        assert!(now.lock().logged.as_ref().is_some_and(|why| why.contains("another server")));
        write_kubeconfig(&path, &server, "token: four");
        assert_eq!(ask().await, "Bearer four");
        // A mounted Secret is replaced by another link.
        #[cfg(unix)]
        {
            let next = dir.path().join("next");
            write_kubeconfig(&next, &server, "token: five");
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink(&next, &path).unwrap();
            assert_eq!(ask().await, "Bearer five");
        }
    }

    #[tokio::test]
    async fn a_token_that_no_header_can_have_is_an_error_at_the_start_too() {
        crate::tls::install_provider();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        write_kubeconfig(&path, "http://127.0.0.1:1", "token: \"one\\n\"");
        let config = load_config(Some(&path)).await.unwrap();
        let refused = super::super::from_config(config, "test", &Default::default());
        assert!(refused.is_err_and(|error| !error.to_string().contains("one\n")));
    }

    #[tokio::test]
    async fn files_are_looked_at_no_sooner_than_their_time() {
        crate::tls::install_provider();
        let (server, seen) = serve_notes().await;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        write_kubeconfig(&path, &server, "token: one");
        let client = super::super::from_config(load_config(Some(&path)).await.unwrap(), "test", &Default::default());
        write_kubeconfig(&path, &server, "token: two");
        client.unwrap().send(Request::get("/version").body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(seen.lock().unwrap().as_slice(), ["Bearer one"]);
    }

    #[tokio::test]
    async fn a_certificate_that_a_kubeconfig_names_is_used_once_its_key_is_there_too() {
        crate::tls::install_provider();
        let dir = tempfile::tempdir().unwrap();
        let [path, cert, key] = ["kubeconfig", "client.crt", "client.key"].map(|name| dir.path().join(name));
        let authority = crate::tls::Authority::new("test").unwrap();
        let [old, new] = ["old", "new"].map(|name| authority.issue_client_identity(name).unwrap());
        fs::write(&cert, &old.cert_pem).unwrap();
        fs::write(&key, &old.key_pem).unwrap();
        // Named as beside the kubeconfig.
        write_kubeconfig(&path, "https://127.0.0.1:1", "client-certificate: client.crt, client-key: client.key");
        let config = load_config(Some(&path)).await.unwrap();
        let shown = ClientCredentials::default().add_client("test", &config);
        let RenewedStack(renewal) = RenewedStack::of_config(config, shown, Duration::ZERO).unwrap();
        let is_as_seen = || renewal.lock().files.iter().all(|file| !file.is_changed());
        assert!(is_as_seen() && renewal.lock().files.len() == 3);
        fs::write(&cert, &new.cert_pem).unwrap();
        renewal.use_changed_files().await;
        assert!(!is_as_seen() && renewal.lock().logged.is_some(), "half of a pair");
        fs::write(&key, &new.key_pem).unwrap();
        renewal.use_changed_files().await;
        assert!(is_as_seen() && renewal.lock().logged.is_none());
    }
}
