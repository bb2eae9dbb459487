//! What is measured is what the way is: bandwidth over a link that `tbf` limits between two network namespaces, and
//! latency through a relay that keeps what it passes on for a while.
//!
//! Namespaces need root, `ip` and `tc`; where they can not be had, the test of bandwidth says `SKIPPED`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs::File,
    net::TcpListener,
    os::fd::AsFd as _,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use caldera_crds::published::PeerLink;
use caldera_runtime::{
    clock::SystemClock,
    metric::SharedRegistry,
    probe::{Peer, ProbeConfig, ProbePace, ProbeServer, run_probe_server, run_prober},
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;

/// Two network namespaces with a link between them, which go with this.
struct Link {
    names: [String; 2],
}

const ADDRESSES: [&str; 2] = ["10.214.0.1", "10.214.0.2"];

impl Link {
    /// An error is why none can be had.
    fn lay(name: &str, rate: &str) -> Result<Self, String> {
        let names = ["a", "b"].map(|end| format!("caldera-{}-{name}-{end}", std::process::id()));
        let link = Self { names };
        let [one, other] = link.names.each_ref().map(String::as_str);
        for name in [one, other] {
            run("ip", &["netns", "add", name])?;
        }
        run("ip", &["-n", one, "link", "add", "wan", "type", "veth", "peer", "name", "wan", "netns", other])?;
        for (name, address) in [one, other].into_iter().zip(ADDRESSES) {
            run("ip", &["-n", name, "addr", "add", &format!("{address}/24"), "dev", "wan"])?;
            run("ip", &["-n", name, "link", "set", "wan", "up"])?;
            let limit = ["rate", rate, "burst", "64kb", "latency", "400ms"];
            run("tc", &[&["-n", name, "qdisc", "add", "dev", "wan", "root", "tbf"][..], &limit].concat())?;
        }
        Ok(link)
    }

    /// Has a thread of one end do this; sockets that it opens are there.
    fn run_at<T: Send>(&self, end: usize, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/var/run/netns/{}", self.names[end]);
        let there = || {
            let namespace = File::open(&path).unwrap();
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(there).join().unwrap())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = run("ip", &["netns", "del", name]);
        }
    }
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{program} {}: {}", args.join(" "), said.trim())) }
}

/// Answers on this listener until `stop`.
fn serve(listener: TcpListener, stop: &CancellationToken) {
    let server = ProbeServer {
        cluster: "m2".into(),
        listener,
        tls: None,
        bytes_a_day: 1 << 40,
        registry: SharedRegistry::default(),
    };
    tokio::spawn(run_probe_server(server, stop.clone()));
}

/// What is measured to this address, once it is as wanted.
async fn measure(address: &str, is_enough: impl Fn(&PeerLink) -> bool) -> PeerLink {
    let (stop, (links, mut seen)) = (CancellationToken::new(), watch::channel(None::<Vec<PeerLink>>));
    let config = ProbeConfig {
        cluster: "m1".into(),
        peers: vec![Peer { cluster: "m2".into(), address: address.into() }],
        pace: ProbePace {
            latency: Duration::from_millis(50),
            bandwidth: Duration::from_millis(100),
            bytes_a_day: u64::MAX,
        },
        tls: Box::new(|| Ok(None)),
        clock: Arc::new(SystemClock),
        registry: SharedRegistry::default(),
    };
    tokio::spawn(run_prober(config, links, stop.clone()));
    let known = seen.wait_for(|links| links.iter().flatten().any(&is_enough));
    let links =
        tokio::time::timeout(Duration::from_secs(120), known).await.expect("in time").expect("it goes on").clone();
    stop.cancel();
    links.into_iter().flatten().next().unwrap()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// What is measured of a link of so many Mbit/s, once that is not less because the machine is busy.
fn measure_megabits(name: &str, megabits: i64) -> Result<i64, String> {
    let link = Link::lay(name, &format!("{megabits}mbit"))?;
    let is_enough = |link: &PeerLink| link.bandwidth_megabits.is_some_and(|measured| measured >= megabits * 7 / 8);
    let listener = link.run_at(1, || TcpListener::bind((ADDRESSES[1], 0)).unwrap());
    let address = listener.local_addr().unwrap().to_string();
    let stop = CancellationToken::new();
    let megabits = std::thread::scope(|scope| {
        scope.spawn(|| {
            block_on(async {
                serve(listener, &stop);
                stop.cancelled().await;
            });
        });
        let measured = link.run_at(0, || block_on(measure(&address, is_enough)));
        stop.cancel();
        measured.bandwidth_megabits
    });
    Ok(megabits.unwrap())
}

#[test]
fn the_bandwidth_of_a_limited_link_is_measured_within_an_eighth() {
    for (name, megabits) in [("slow", 20), ("fast", 80)] {
        match measure_megabits(name, megabits) {
            // Headers are a twentieth of what the link carries.
            Ok(measured) => assert!(measured <= megabits * 9 / 8, "{measured} of {megabits}"),
            Err(why) => println!("SKIPPED: no network namespaces here, so nobody measures a limited link: {why}"),
        }
    }
}

/// How long the relay keeps what it passes on, each way.
const KEPT: Duration = Duration::from_millis(30);

/// Passes bytes on, each so much later than it came.
async fn relay(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let (sent, mut received) = mpsc::channel::<(Instant, Vec<u8>)>(64);
    let reader = async move {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            if sent.send((Instant::now() + KEPT, bytes[..count].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let writer = async move {
        while let Some((at, bytes)) = received.recv().await {
            tokio::time::sleep_until(at.into()).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(reader, writer);
}

#[test]
fn the_latency_through_a_relay_is_what_it_keeps_one_way() {
    let measured = block_on(async {
        let stop = CancellationToken::new();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let behind = server.local_addr().unwrap();
        serve(server, &stop);
        let front = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = front.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((asks, _)) = front.accept().await {
                let answers = TcpStream::connect(behind).await.unwrap();
                let ((asks_in, asks_out), (answers_in, answers_out)) = (asks.into_split(), answers.into_split());
                tokio::spawn(relay(asks_in, answers_out));
                tokio::spawn(relay(answers_in, asks_out));
            }
        });
        let kept = i64::try_from(KEPT.as_micros()).unwrap();
        // A machine that is busy is late, and the shortest of some round trips counts: once there is a quiet moment.
        measure(&address, |link| link.latency_microseconds.is_some_and(|latency| latency < kept * 2)).await
    });
    let latency = Duration::from_micros(measured.latency_microseconds.unwrap().unsigned_abs());
    assert!(latency >= KEPT, "{latency:?}");
}
