//! How a console is asked: with the caller's own token, within seconds, and for an answer of bounded size.
//!
//! Rules:
//! - The token is the bearer token of the kubeconfig: given, in a file, or of its plugin. A client certificate or a
//!   password is never sent.
//! - It goes to the URL that was named and nowhere else: a redirection is not followed, and no proxy is used.
//! - What failed is told in words that hold nothing of the token, which is why a plugin's own words are not among them.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use axum::body::to_bytes;
use caldera_runtime::client::{WriteCounts, build_token_config, from_config, load_config};
use futures::future::join_all;
use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
    config::AuthInfo,
};
use tokio::{sync::Mutex, time::Instant};
use tower::{BoxError, Layer, ServiceExt, service_fn};

use super::{clean_words, is_namespace_name};
use crate::{args::ConsoleSourceArgs, output::describe_failure};

/// For all that is asked at once.
const ANSWER_DEADLINE: Duration = Duration::from_secs(8);
/// Of an answer.
const MOST_ANSWER_BYTES: usize = 8 << 20;
/// How long an answer counts for a list that is printed again each second.
const COUNTS_FOR: Duration = Duration::from_secs(15);

/// Status and body, or why there is no answer.
pub(super) type RawAnswer = Result<(StatusCode, Vec<u8>), String>;

/// A console, and the kubeconfig whose token it is asked with.
#[derive(Debug)]
pub struct ConsoleSource {
    url: String,
    ca: Option<PathBuf>,
    kubeconfig: Option<PathBuf>,
    last: Mutex<Option<LastAnswers>>,
}

#[derive(Debug)]
struct LastAnswers {
    until: Instant,
    namespaces: Vec<String>,
    answers: Vec<RawAnswer>,
}

impl ConsoleSource {
    /// The one that was named, if one was.
    #[must_use]
    pub fn from_args(args: &ConsoleSourceArgs, kubeconfig: Option<&std::path::Path>) -> Option<Self> {
        let url = args.find_url()?.to_string();
        let kubeconfig = kubeconfig.map(ToOwned::to_owned);
        let ca = args.console_ca.clone().filter(|path| !path.as_os_str().is_empty());
        Some(Self { url, ca, kubeconfig, last: Mutex::default() })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// What it says of each of these namespaces.
    pub(super) async fn ask(&self, namespaces: &[String]) -> Vec<RawAnswer> {
        let mut last = self.last.lock().await;
        if let Some(last) = last.as_ref().filter(|last| last.until > Instant::now() && last.namespaces == namespaces) {
            return last.answers.clone();
        }
        let answers = match self.connect().await {
            Err(why) => vec![Err(why); namespaces.len()],
            Ok(client) => {
                let until = Instant::now() + ANSWER_DEADLINE;
                join_all(namespaces.iter().map(|namespace| ask_within(&client, namespace, until))).await
            }
        };
        let until = Instant::now() + COUNTS_FOR;
        *last = Some(LastAnswers { until, namespaces: namespaces.to_vec(), answers: answers.clone() });
        answers
    }

    /// A client with the caller's token, of which nothing was asked yet.
    async fn connect(&self) -> Result<Client, String> {
        let config = load_config(self.kubeconfig.as_deref()).await.map_err(|error| error.to_string())?;
        let token = read_token(&config).await?;
        let ca = match &self.ca {
            Some(path) => {
                let read = tokio::fs::read(path).await;
                Some(read.map_err(|error| format!("can not be trusted: {} can not be read: {error}", path.display()))?)
            }
            None => None,
        };
        let built = build_token_config(&self.url, &token, ca.as_deref(), false)
            .and_then(|config| from_config(config, "starts", &WriteCounts::default()));
        built.map_err(|error| format!("can not be asked: {}", clean_words(&describe_failure(&error.into()))))
    }
}

/// The bearer token of a kubeconfig.
pub(super) async fn read_token(config: &Config) -> Result<String, String> {
    let own = &config.auth_info;
    if own.impersonate.is_some() || own.impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty()) {
        return Err("can not be asked as somebody else: your kubeconfig impersonates a user".to_owned());
    }
    let lacking = "needs a bearer token, and your kubeconfig gives none: a certificate or a password is not sent to it";
    let bearing = AuthInfo {
        token: own.token.clone(),
        token_file: own.token_file.clone(),
        exec: own.exec.clone(),
        auth_provider: own.auth_provider.clone(),
        ..AuthInfo::default()
    };
    let mut bearer = Config::new(config.cluster_url.clone());
    bearer.auth_info = bearing;
    // A plugin is a program that is waited for.
    let layer = tokio::task::spawn_blocking(move || bearer.auth_layer()).await;
    let unread = "can not be asked: the token of your kubeconfig, or of its plugin, can not be read";
    let layer = layer.map_err(|_| unread)?.map_err(|_| unread)?.ok_or(lacking)?;
    let see = service_fn(|request: Request<Body>| async move {
        Ok::<_, BoxError>(Response::new(request.headers().get(AUTHORIZATION).cloned()))
    });
    let seen = layer.layer(see).oneshot(Request::new(Body::empty())).await.map_err(|_: BoxError| unread)?;
    let token = seen.body().as_ref().and_then(|header| header.to_str().ok()?.strip_prefix("Bearer "));
    token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()).ok_or_else(|| lacking.to_owned())
}

async fn ask_within(client: &Client, namespace: &str, until: Instant) -> RawAnswer {
    if !is_namespace_name(namespace) {
        return Err("is not asked about what is no name of a namespace".to_owned());
    }
    match tokio::time::timeout_at(until, ask_namespace(client, namespace)).await {
        Ok(answer) => answer.map_err(|error| format!("can not be asked: {}", clean_words(&describe_failure(&error)))),
        Err(_) => Err(format!("did not answer within {} seconds", ANSWER_DEADLINE.as_secs())),
    }
}

async fn ask_namespace(client: &Client, namespace: &str) -> anyhow::Result<(StatusCode, Vec<u8>)> {
    let path = format!("/api/v1/namespaces/{namespace}/starts");
    let request = Request::get(path).body(Body::empty()).context("failed to make a request")?;
    let answer = client.send(request).await?;
    let status = answer.status();
    let body = to_bytes(axum::body::Body::new(answer.into_body()), MOST_ANSWER_BYTES).await;
    Ok((status, body.context("failed to read its answer, or it is too large")?.to_vec()))
}
