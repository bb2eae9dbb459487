//! What is taken from a console, and what is not.

use std::path::{Path, PathBuf};

use caldera_runtime::client::load_config;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{client::read_token, *};
use crate::args::{ConsoleSourceArgs, ConsoleUrl};

const EVIL: &str = "\u{1b}[2J\nFORGED\u{202e}";

fn now() -> Timestamp {
    "2026-01-01T00:02:00Z".parse().unwrap()
}

fn workload(name: &str) -> WorkloadRef {
    let (group, kind) = ("batch.volcano.sh".to_owned(), "Job".to_owned());
    WorkloadRef { group, kind, namespace: "ns".to_owned(), name: name.to_owned() }
}

fn reported(name: &str, at: Option<&str>, in_seconds: Option<i64>) -> Value {
    json!({"group": "batch.volcano.sh", "kind": "Job", "name": name, "at": at, "inSeconds": in_seconds, "sure": true,
        "basis": "if the job before it ends as it says"})
}

/// Worked out a minute before now.
fn answer(starts: &[Value]) -> Value {
    json!({"namespace": "ns", "workedOutAt": "2026-01-01T00:01:00Z", "starts": starts})
}

fn take(answer: &Value) -> TakenStarts {
    let mut taken = TakenStarts::default();
    let read = read_answer(StatusCode::OK, answer.to_string().as_bytes(), "ns");
    taken.add_answer("https://console", "ns", read, now());
    taken
}

fn unknown() -> ExpectedStart {
    ExpectedStart { at: None, ahead: None, sure: false, basis: "your credentials do not show everything".to_owned() }
}

#[test]
fn only_what_is_not_known_is_taken_and_it_says_where_it_comes_from() {
    let taken = take(&answer(&[reported("a", Some("2026-01-01T00:05Z"), Some(240))]));
    let start = taken.complete_start(&workload("a"), Some(unknown())).unwrap();
    let basis = "if the job before it ends as it says; the console worked it out at 2026-01-01T00:01Z";
    assert_eq!(start.describe(), format!("about 2026-01-01T00:05Z, in 3m ({basis})"));
    assert_eq!(taken.complete_start(&workload("a"), None), Some(start.clone()), "his own view knows no line");
    let known = ExpectedStart { at: Some("2026-01-01T00:09Z".to_owned()), ..unknown() };
    assert_eq!(taken.complete_start(&workload("a"), Some(known.clone())), Some(known));
    let other = taken.complete_start(&workload("b"), Some(unknown())).unwrap();
    assert!(
        other.at.is_none() && other.basis.contains("show everything; the console tells no start of it"),
        "{other:?}"
    );
    assert_eq!(taken.complete_start(&workload("b"), None), None);
    let said = taken.describe(ViewGap::Rights);
    assert_eq!(said, "Starts that your credentials do not show are told by the console https://console\n");
}

#[test]
fn a_start_comes_nearer_and_is_now_only_if_the_console_said_so() {
    let ahead = |at: Option<&str>, in_seconds| {
        let taken = take(&answer(&[reported("a", at, in_seconds)]));
        let start = taken.complete_start(&workload("a"), None).unwrap();
        (start.ahead, start.describe_briefly())
    };
    let at = Some("2026-01-01T00:05Z");
    assert_eq!(ahead(at, Some(240)), (Some(180), "about 2026-01-01T00:05Z".to_owned()));
    assert_eq!(ahead(at, Some(30)), (Some(1), "about 2026-01-01T00:05Z".to_owned()));
    assert_eq!(ahead(at, Some(0)), (Some(0), "now".to_owned()));
    assert_eq!(ahead(at, Some(i64::MAX)).0, Some(i64::MAX - now().as_second()));
    assert_eq!(ahead(None, Some(5)), (None, "not known".to_owned()));
    assert_eq!(ahead(Some(EVIL), Some(5)), (None, "not known".to_owned()));
}

#[test]
fn words_of_a_console_are_one_line_without_controls() {
    let mut evil = reported("a", None, None);
    evil["basis"] = format!("{EVIL}{}", "x".repeat(1_000)).into();
    let start = take(&answer(&[evil])).complete_start(&workload("a"), None).unwrap();
    assert!(start.basis.starts_with("\\u{1b}[2J FORGED\\u{202e}xxx") && start.basis.len() < 400, "{}", start.basis);
    let denied = json!({"error": EVIL}).to_string();
    let why = read_answer(StatusCode::FORBIDDEN, denied.as_bytes(), "ns").unwrap_err();
    assert_eq!(why, "refuses: \\u{1b}[2J FORGED\\u{202e}");
}

#[test]
fn rubbish_and_refusals_are_gaps_in_words() {
    let read = |status: u16, body: &str| {
        let status = StatusCode::from_u16(status).unwrap();
        read_answer(status, body.as_bytes(), "ns").unwrap_err()
    };
    assert_eq!(read(200, "<html>"), "answered something else than starts");
    assert_eq!(read(200, "{\"namespace\": \"ns\"}"), "answered something else than starts");
    assert_eq!(read(200, &answer(&[]).to_string().replace("\"ns\"", "\"other\"")), "answered about another namespace");
    assert_eq!(read(401, "{\"error\": \"who?\"}"), "refused your token: who?");
    assert_eq!(read(303, ""), "answered with status 303");
    assert_eq!(read(503, "{\"error\": \"ask again\"}"), "answered with status 503: ask again");
    let taken = take(&json!({"namespace": "ns", "workedOutAt": "yesterday", "starts": []}));
    assert_eq!(taken.gaps[0].why, "does not say when it worked them out");
    let start = taken.complete_start(&workload("a"), Some(unknown())).unwrap();
    assert!(start.basis.ends_with("; the console does not say when it worked them out"), "{start:?}");
    assert!(taken.describe(ViewGap::Rights).contains("Not seen:\n  console https://console: does not say"));
}

#[tokio::test]
async fn without_a_console_the_words_say_how_to_come_by_one() {
    let namespaces = || BTreeSet::from(["ns".to_owned()]);
    let taken = take_starts(None, ViewGap::Rights, namespaces(), now()).await;
    let start = taken.complete_start(&workload("a"), Some(unknown())).unwrap();
    assert!(start.basis.ends_with("; ask your admin for the console's URL and pass --console URL"), "{start:?}");
    assert!(taken.describe(ViewGap::Rights).contains("pass --console URL"));
    let taken = take_starts(None, ViewGap::Member, namespaces(), now()).await;
    assert_eq!(taken.complete_start(&workload("a"), Some(unknown())), Some(unknown()));
    assert_eq!(taken.describe(ViewGap::Member), "");
}

fn write_kubeconfig(dir: &Path, user: &Value) -> PathBuf {
    let path = dir.join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

#[tokio::test]
async fn the_token_is_that_of_the_kubeconfig_and_nothing_else_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("token"), "of-file").unwrap();
    let plugin = |status: Value| {
        let said = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status});
        json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "echo", "args": [said.to_string()],
            "interactiveMode": "Never"}})
    };
    let read = async |user: Value| {
        let config = load_config(Some(&write_kubeconfig(dir.path(), &user))).await.unwrap();
        read_token(&config).await
    };
    assert_eq!(read(json!({"token": "given"})).await.as_deref(), Ok("given"));
    assert_eq!(read(json!({"tokenFile": dir.path().join("token")})).await.as_deref(), Ok("of-file"));
    assert_eq!(read(plugin(json!({"token": "of-plugin"}))).await.as_deref(), Ok("of-plugin"));
    let later = json!({"token": "of-plugin", "expirationTimestamp": "2999-01-01T00:00:00Z"});
    assert_eq!(read(plugin(later)).await.as_deref(), Ok("of-plugin"));
    let pair = json!({"clientCertificateData": "secret-cert", "clientKeyData": "secret-key"});
    for user in [json!({}), json!({"username": "u", "password": "secret"}), plugin(pair), plugin(json!({}))] {
        let why = read(user).await.unwrap_err();
        assert!(why.starts_with("needs a bearer token") && !why.contains("secret"), "{why}");
    }
    let acting = read(json!({"token": "secret", "as": "other"})).await.unwrap_err();
    assert!(acting.contains("impersonates"), "{acting}");
    let broken = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
        "args": ["-c", "echo secret; exit 1"], "interactiveMode": "Never"}});
    let why = read(broken).await.unwrap_err();
    assert!(why.contains("can not be read") && !why.contains("secret"), "{why}");
}

/// Answers each request with these bytes, and tells what was asked.
async fn serve(answer: Vec<u8>) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = vec![0; 4096];
        let read = stream.read(&mut asked).await.unwrap();
        // Who has read enough goes.
        let _ = stream.write_all(&answer).await;
        String::from_utf8_lossy(&asked[..read]).into_owned()
    });
    (url, served)
}

fn source(dir: &Path, url: &str) -> ConsoleSource {
    let kubeconfig = write_kubeconfig(dir, &json!({"token": "given"}));
    let console = Some(ConsoleUrl::parse(url).unwrap());
    ConsoleSource::from_args(&ConsoleSourceArgs { console, console_ca: None }, Some(&kubeconfig)).unwrap()
}

#[tokio::test]
async fn a_console_is_asked_once_for_a_while_with_the_token_alone() {
    let dir = tempfile::tempdir().unwrap();
    let body = answer(&[reported("a", Some("2026-01-01T00:05Z"), Some(240))]).to_string();
    let (url, served) =
        serve(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()).await;
    let source = source(dir.path(), &format!("{url}/caldera/"));
    for _ in 0..2 {
        let taken = take_starts(Some(&source), ViewGap::Rights, ["ns".to_owned()].into(), now()).await;
        assert!(taken.gaps.is_empty() && taken.reported_by.is_some(), "{taken:?}");
        assert_eq!(taken.complete_start(&workload("a"), None).unwrap().at.as_deref(), Some("2026-01-01T00:05Z"));
    }
    let asked = served.await.unwrap();
    assert!(asked.starts_with("GET /caldera/api/v1/namespaces/ns/starts HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("authorization: Bearer given\r\n"), "{asked}");
}

#[tokio::test]
async fn what_is_no_answer_of_a_console_is_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let long = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n".iter().copied();
    let long: Vec<u8> = long.chain(std::iter::repeat_n(b' ', 9 << 20)).collect();
    let elsewhere = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".to_vec();
    let refused = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 17\r\n\r\n{\"error\": \"who?\"}".to_vec();
    for (answer, why) in [
        (long, "can not be asked: failed to read its answer, or it is too large"),
        (elsewhere, "answered with status 302"),
        (refused, "refused your token: who?"),
        (b"SSH-2.0-x\r\n".to_vec(), "can not be asked: "),
        (Vec::new(), "can not be asked: "),
    ] {
        let (url, served) = serve(answer).await;
        let source = source(dir.path(), &url);
        let taken = take_starts(Some(&source), ViewGap::Rights, ["ns".to_owned()].into(), now()).await;
        let [gap] = taken.gaps.as_slice() else { panic!("{taken:?}") };
        assert!(gap.what == format!("console {url}") && gap.why.starts_with(why), "{gap:?}");
        assert!(taken.reported_by.is_none() && !gap.why.contains("given"), "{taken:?}");
        served.await.unwrap();
    }
    let many: BTreeSet<String> = (0..20).map(|at| format!("ns{at:02}")).collect();
    let source = source(dir.path(), "http://127.0.0.1:1");
    let taken = take_starts(Some(&source), ViewGap::Rights, many, now()).await;
    assert_eq!(taken.gaps.len(), 2, "one for all that can not be asked, and one for all that are not: {taken:?}");
    assert_eq!(taken.lacks.len(), 20);
}
