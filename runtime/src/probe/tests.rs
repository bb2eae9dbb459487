//! Two ends on this machine.

use std::{net::TcpListener, sync::Arc, time::Duration};

use caldera_crds::published::PeerLink;
use prometheus_client::metrics::counter::Counter;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::watch,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{server::Arrivals, *};
use crate::{
    clock::SystemClock,
    metric::{encode, find_undeclared},
    tls::{Authority, Identity, ServedTls, peer_client_config, server_config_with_client_ca},
};

fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

fn serve(tls: Option<ServedTls>, bytes_a_day: u64, stop: &CancellationToken) -> String {
    let (listener, address) = listen();
    serve_on(listener, tls, bytes_a_day, stop);
    address
}

fn serve_on(
    listener: TcpListener,
    tls: Option<ServedTls>,
    bytes_a_day: u64,
    stop: &CancellationToken,
) -> SharedRegistry {
    let registry = SharedRegistry::default();
    let server = ProbeServer { listener, tls, bytes_a_day, cluster: "m2".into(), registry: registry.clone() };
    tokio::spawn(run_probe_server(server, stop.clone()));
    registry
}

type SeenLinks = watch::Receiver<Option<Vec<PeerLink>>>;

fn probe(peers: &[(&str, &str)], pace: ProbePace, stop: &CancellationToken) -> SeenLinks {
    probe_shown(peers, pace, stop, &SharedRegistry::default())
}

fn probe_shown(
    peers: &[(&str, &str)],
    pace: ProbePace,
    stop: &CancellationToken,
    registry: &SharedRegistry,
) -> SeenLinks {
    let (links, seen) = watch::channel(None);
    let peer = |(cluster, address): &(&str, &str)| Peer { cluster: (*cluster).into(), address: (*address).into() };
    let config = ProbeConfig {
        cluster: "m1".into(),
        peers: peers.iter().map(peer).collect(),
        pace,
        tls: Box::new(|| Ok(None)),
        clock: Arc::new(SystemClock),
        registry: registry.clone(),
    };
    tokio::spawn(run_prober(config, links, stop.clone()));
    seen
}

fn often() -> ProbePace {
    ProbePace { latency: Duration::from_millis(20), bandwidth: Duration::from_millis(40), bytes_a_day: u64::MAX }
}

async fn wait_for(seen: &mut SeenLinks, is_so: impl Fn(&[PeerLink]) -> bool) -> Vec<PeerLink> {
    let waited =
        tokio::time::timeout(Duration::from_secs(60), seen.wait_for(|links| links.as_deref().is_some_and(&is_so)))
            .await;
    waited.expect("in time").expect("it goes on").clone().unwrap_or_default()
}

#[tokio::test]
async fn the_way_to_a_peer_is_measured_and_one_that_is_not_there_has_none() {
    let stop = CancellationToken::new();
    let address = serve(None, 1 << 40, &stop);
    let (gone, nowhere) = listen();
    drop(gone);
    let mut seen = probe(&[("m2", &address), ("m3", &nowhere)], often(), &stop);
    let links = wait_for(&mut seen, |links| links.iter().any(|link| link.bandwidth_megabits.is_some())).await;
    let [link] = links.as_slice() else { panic!("{links:?}") };
    assert_eq!(link.to, "m2");
    // On one machine; a busy one may take its time.
    assert!(link.latency_microseconds.is_some_and(|latency| latency < 1_000_000), "{link:?}");
    assert!(link.bandwidth_megabits.is_some_and(|bandwidth| bandwidth > 1), "{link:?}");
    stop.cancel();
}

#[tokio::test]
async fn a_peer_that_stops_to_answer_has_no_link_until_it_does_again() {
    let (stop, first) = (CancellationToken::new(), CancellationToken::new());
    let address = serve(None, 1 << 30, &first);
    let mut seen = probe(&[("m2", &address)], often(), &stop);
    wait_for(&mut seen, |links| !links.is_empty()).await;
    first.cancel();
    wait_for(&mut seen, <[PeerLink]>::is_empty).await;
    let again = loop {
        if let Ok(listener) = TcpListener::bind(&address) {
            break listener;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    serve_on(again, None, 1 << 30, &stop);
    wait_for(&mut seen, |links| !links.is_empty()).await;
    stop.cancel();
}

#[tokio::test]
async fn what_is_shown_is_what_is_declared_with_what_a_load_cost_and_who_does_not_answer() {
    let (stop, (listener, address), (gone, nowhere)) = (CancellationToken::new(), listen(), listen());
    drop(gone);
    let taken = serve_on(listener, None, 1 << 40, &stop);
    let registry = SharedRegistry::default();
    let pace = ProbePace { bytes_a_day: 1 << 40, ..often() };
    let mut seen = probe_shown(&[("m2", &address), ("m3", &nowhere)], pace, &stop, &registry);
    let links = wait_for(&mut seen, |links| links.iter().any(|link| link.bandwidth_megabits.is_some())).await;
    stop.cancel();
    let (text, of_server) = (encode(&registry).unwrap(), encode(&taken).unwrap());
    let (of_prober, taken) = metrics::ALL.into_iter().partition::<Vec<_>, _>(|metric| *metric != metrics::TAKEN);
    assert_eq!(find_undeclared(&text, &of_prober), [""; 0], "{text}");
    assert_eq!(find_undeclared(&of_server, &taken), [""; 0], "{of_server}");
    let value = |series: &str| -> f64 {
        let line = text.lines().chain(of_server.lines()).find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("{series}: {text}{of_server}")).trim().parse().unwrap()
    };
    assert!(value("caldera_probe_rounds_total{cluster=\"m1\"}") >= 1.0);
    assert!(value("caldera_probe_failures_total{cluster=\"m1\",peer=\"m3\",kind=\"latency\"}") >= 1.0);
    assert!(value("caldera_probe_failures_total{cluster=\"m1\",peer=\"m2\",kind=\"latency\"}") < 1.0);
    assert!(value("caldera_probe_latency_seconds{cluster=\"m1\",peer=\"m2\"}") < 1.0, "{links:?}");
    assert!(value("caldera_probe_bandwidth_bytes_per_second{cluster=\"m1\",peer=\"m2\"}") >= 125_000.0, "{links:?}");
    assert!(!text.contains("caldera_probe_latency_seconds{cluster=\"m1\",peer=\"m3\"}"), "{text}");
    assert!(value("caldera_probe_sent_bytes_total{cluster=\"m1\"}") >= LEAST_LOAD as f64);
    assert!(value("caldera_probe_taken_bytes_total{cluster=\"m2\"}") >= LEAST_LOAD as f64);
    assert!(text.contains("caldera_probe_budget_bytes{cluster=\"m1\"} 1099511627776\n"), "{text}");
}

#[tokio::test]
async fn peers_of_another_authority_are_not_measured_on_either_side() {
    let stop = CancellationToken::new();
    let identity_of = |authority: &Authority| -> Identity {
        // For both ends, as long as it is not said for which.
        authority.issue_peer_identity(SERVER_NAME).unwrap()
    };
    let (ours, theirs) = (Authority::new("ours").unwrap(), Authority::new("theirs").unwrap());
    let server = server_config_with_client_ca(&identity_of(&ours), Some(&ours.cert_pem)).unwrap();
    let address = serve(Some(ServedTls::from(server)), 1 << 30, &stop);
    let client = |identity: &Authority, trusts: &Authority| {
        Some(Arc::new(peer_client_config(&identity_of(identity), &trusts.cert_pem).unwrap()))
    };
    let good = exchange::measure_latency(&address, client(&ours, &ours)).await;
    assert!(good.is_ok(), "{good:?}");
    for (what, tls) in [
        ("the server does not know the client", client(&theirs, &ours)),
        ("the client does not know the server", client(&ours, &theirs)),
        ("no TLS at all", None),
    ] {
        assert!(exchange::measure_latency(&address, tls).await.is_err(), "{what}");
    }
    stop.cancel();
}

#[tokio::test]
async fn a_days_budget_is_kept_on_both_sides() {
    let pace = |bytes_a_day| ProbePace { bytes_a_day, ..ProbePace::default() };
    assert_eq!(pace(1 << 30).load_bytes(3), Some((1 << 30) / 24 / 3));
    assert_eq!(pace(u64::MAX).load_bytes(1), Some(MOST_LOAD));
    assert_eq!(pace(1 << 20).load_bytes(1), None, "43 kB an hour say nothing of bandwidth");
    assert_eq!(pace(0).load_bytes(0), None);

    let stop = CancellationToken::new();
    let load = async |address: &str| {
        exchange::measure_bandwidth(address, None, LEAST_LOAD, &Counter::default()).await.unwrap()
    };
    // A day's budget is there from the first hour on.
    let address = serve(None, LEAST_LOAD * 24, &stop);
    assert!(load(&address).await.is_some());
    assert_eq!(load(&address).await, None, "what it takes in this hour was taken");
    assert_eq!(load(&serve(None, 0, &stop)).await, None, "it takes nothing");
    stop.cancel();
}

/// Anybody in the network may connect where there is no TLS.
#[tokio::test]
async fn a_body_that_does_not_end_is_cut_off() {
    let stop = CancellationToken::new();
    let address = serve(None, u64::MAX, &stop);
    let mut tcp = tokio::net::TcpStream::connect(&address).await.unwrap();
    let head = format!("POST /probe HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", MOST_LOAD * 4);
    tcp.write_all(head.as_bytes()).await.unwrap();
    let chunk = vec![0_u8; 1 << 20];
    let mut sent = 0_u64;
    while sent < MOST_LOAD * 4 && tcp.write_all(&chunk).await.is_ok() {
        sent += chunk.len() as u64;
    }
    let mut answer = [0_u8; 64];
    let read = tcp.read(&mut answer).await.unwrap_or(0);
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(sent < MOST_LOAD * 4 && (answer.is_empty() || answer.contains("413")), "{sent} bytes, {answer}");
    stop.cancel();
}

#[test]
fn a_rate_is_that_of_the_last_three_quarters() {
    let (began, mut arrivals) = (Instant::now(), Arrivals::default());
    // A slow start of a second, then 8 Mbit/s.
    for (bytes, millis) in [(250_000, 1_000), (250_000, 1_250), (250_000, 1_500), (250_000, 1_750)] {
        arrivals.add(bytes, began + Duration::from_millis(millis));
    }
    assert_eq!(arrivals.megabits(), Some(8));
    assert_eq!(Arrivals::default().megabits(), None);
    let mut at_once = Arrivals::default();
    at_once.add(1_000_000, began);
    assert_eq!(at_once.megabits(), None, "nobody can tell");
}
