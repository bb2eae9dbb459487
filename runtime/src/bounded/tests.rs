use std::{net::SocketAddr, time::Duration};

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{body::*, *};

const SOON: Duration = Duration::from_millis(150);
/// A machine that is busy may take as long.
const AT_LAST: Duration = Duration::from_secs(30);

fn short() -> Bounds {
    let long = Duration::from_secs(600);
    Bounds {
        connections: 4,
        spared: Duration::ZERO,
        handshake: long,
        headers: long,
        request: long,
        idle: long,
        drain: Duration::from_secs(1),
        ..Bounds::default()
    }
}

const BODIES: BodyBounds = BodyBounds { one: 100_000, all: 200_000, reserve: 20_000, within: Duration::from_secs(600) };

async fn read_all(State(memory): State<BodyMemory>, request: Request) -> Response {
    match memory.read_body(request.into_body()).await {
        Ok(body) => body.len().to_string().into_response(),
        Err(error) => (error.status(), error.to_string()).into_response(),
    }
}

/// A server, and its end.
fn serve(
    bounds: Bounds,
    bodies: BodyBounds,
) -> (SocketAddr, BodyMemory, tokio::task::JoinHandle<()>, CancellationToken) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, stop, memory) = (listener.local_addr().unwrap(), CancellationToken::new(), BodyMemory::new(bodies));
    let routes = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/long", get(|| async { vec![b'x'; 32 << 20] }))
        .route("/body", post(read_all))
        .route("/slow", get(|| tokio::time::sleep(SOON * 10)))
        .with_state(memory.clone());
    let serving = serve_bounded(listener, None, routes, bounds, stop.clone());
    (address, memory, tokio::spawn(async move { serving.await.unwrap() }), stop)
}

async fn connect(to: SocketAddr, first: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(first.as_bytes()).await.unwrap();
    stream
}

const ASK: &str = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";

/// What arrives until `end` is in it, or until the connection is closed.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let read = async {
        let (mut all, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            match stream.read(&mut piece).await {
                Ok(0) | Err(_) => return String::from_utf8(all).unwrap(),
                Ok(count) => all.extend_from_slice(&piece[..count]),
            }
            if String::from_utf8_lossy(&all).contains(end) {
                return String::from_utf8(all).unwrap();
            }
        }
    };
    tokio::time::timeout(AT_LAST, read).await.expect("the connection lives for ever")
}

const NEVER: &str = "\u{0}";

#[tokio::test]
async fn who_never_asks_or_never_ends_the_headers_is_closed() {
    let (to, ..) = serve(Bounds { headers: SOON, ..short() }, BODIES);
    assert_eq!(read_until(&mut connect(to, "").await, NEVER).await, "");
    assert_eq!(read_until(&mut connect(to, "GET / HTTP/1.1\r\nhost: h\r\n").await, NEVER).await, "");
    // Also after a first request, and header by header.
    let mut slow = connect(to, ASK).await;
    read_until(&mut slow, "hello").await;
    let dribbled = async {
        slow.write_all(b"GET / HTTP/1.1\r\n").await?;
        loop {
            slow.write_all(b"x: y\r\n").await?;
            tokio::time::sleep(SOON / 10).await;
        }
    };
    let ended: std::io::Result<()> = tokio::time::timeout(AT_LAST, dribbled).await.expect("it lives for ever");
    assert!(ended.is_err());
}

#[tokio::test]
async fn who_is_idle_is_closed_and_not_before() {
    let (to, ..) = serve(Bounds { idle: 4 * SOON, headers: SOON, ..short() }, BODIES);
    let mut stream = connect(to, ASK).await;
    read_until(&mut stream, "hello").await;
    let began = Instant::now();
    assert_eq!(read_until(&mut stream, NEVER).await, "");
    assert!(began.elapsed() >= 3 * SOON, "{:?}", began.elapsed());
}

#[tokio::test]
async fn who_does_not_take_the_answer_is_closed() {
    let (to, ..) = serve(Bounds { request: SOON, ..short() }, BODIES);
    let mut stream = connect(to, "GET /long HTTP/1.1\r\nhost: h\r\n\r\n").await;
    tokio::time::sleep(4 * SOON).await;
    let got = read_until(&mut stream, NEVER).await.len();
    assert!(got < 32 << 20, "{got}");
}

#[tokio::test]
async fn one_connection_too_many_takes_the_place_of_the_one_that_is_idle_longest() {
    let (to, ..) = serve(short(), BODIES);
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut stream = connect(to, ASK).await;
        read_until(&mut stream, "hello").await;
        open.push(stream);
    }
    let mut fifth = connect(to, ASK).await;
    assert!(read_until(&mut fifth, "hello").await.contains("hello"));
    assert_eq!(read_until(&mut open[0], NEVER).await, "");
    open[1].write_all(ASK.as_bytes()).await.unwrap();
    assert!(read_until(&mut open[1], "hello").await.contains("hello"));
}

#[tokio::test]
async fn where_all_connections_have_requests_the_one_that_is_open_longest_goes() {
    let (to, memory, ..) = serve(short(), BODIES);
    let mut busy = Vec::new();
    for count in 1..=4 {
        busy.push(connect(to, "POST /body HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n12345678").await);
        while memory.taken_bytes() < count * 9 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert!(read_until(&mut connect(to, ASK).await, "hello").await.contains("hello"));
    assert_eq!(read_until(&mut busy[0], NEVER).await, "");
    busy[1].write_all(b"9").await.unwrap();
    assert!(read_until(&mut busy[1], "\r\n\r\n9").await.ends_with("\r\n\r\n9"));
}

/// An API server that asked more at once than there were places lost calls in their midst.
#[tokio::test]
async fn where_all_connections_were_used_just_now_one_more_waits_for_its_place() {
    let bounds = Bounds { connections: 2, spared: Duration::from_secs(600), ..short() };
    let (to, memory, ..) = serve(bounds, BODIES);
    let mut busy = connect(to, "POST /body HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n12345678").await;
    while memory.taken_bytes() < 9 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut silent = connect(to, "").await;
    let mut third = connect(to, ASK).await;
    assert!(tokio::time::timeout(SOON, read_until(&mut third, "hello")).await.is_err(), "there is no place for it");
    silent.write_all(ASK.as_bytes()).await.unwrap();
    assert!(read_until(&mut silent, "hello").await.contains("hello"), "it had only not asked yet");
    assert!(tokio::time::timeout(SOON, read_until(&mut third, "hello")).await.is_err(), "it may be used at any time");
    drop(silent);
    assert!(read_until(&mut third, "hello").await.contains("hello"), "the one that left made room");
    busy.write_all(b"9").await.unwrap();
    assert!(read_until(&mut busy, "\r\n\r\n9").await.ends_with("\r\n\r\n9"));
}

/// A starved API server dialled for each of its calls, and lost those on connections that made room after a second.
#[tokio::test]
async fn an_api_server_that_dials_for_each_of_its_calls_loses_no_connection() {
    let (to, ..) = serve(Bounds::default(), BODIES);
    let mut first = connect(to, ASK).await;
    read_until(&mut first, "hello").await;
    let mut dialled = Vec::new();
    for _ in 0..500 {
        dialled.push(connect(to, "").await);
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    for stream in [&mut first].into_iter().chain(&mut dialled).step_by(50) {
        stream.write_all(ASK.as_bytes()).await.unwrap();
        assert!(read_until(stream, "hello").await.contains("hello"));
    }
}

#[tokio::test]
async fn who_waits_for_our_answer_is_never_the_one_that_goes() {
    // Longer than a connection takes to ask, and much shorter than the answer takes.
    let (to, ..) = serve(Bounds { spared: SOON, ..short() }, BODIES);
    let mut asked = Vec::new();
    for _ in 0..8 {
        asked.push(connect(to, "GET /slow HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").await);
    }
    for stream in &mut asked {
        assert!(read_until(stream, "200 OK").await.contains("200 OK"));
    }
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused_by_its_length_and_by_its_bytes() {
    let (to, memory, ..) = serve(short(), BODIES);
    let announced = "POST /body HTTP/1.1\r\nhost: h\r\ncontent-length: 100001\r\n\r\n";
    let answer = read_until(&mut connect(to, announced).await, "taken").await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("larger than the 100000 bytes"), "{answer}");
    let chunk = format!("186a1\r\n{}\r\n", "x".repeat(0x186a1));
    let chunked = format!("POST /body HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n{chunk}");
    let answer = read_until(&mut connect(to, &chunked).await, "taken").await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!(memory.taken_bytes(), 0);
}

#[tokio::test]
async fn a_body_that_is_not_complete_in_time_is_a_408() {
    let (to, ..) = serve(short(), BodyBounds { within: SOON, ..BODIES });
    let begun = "POST /body HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\n12345";
    let answer = read_until(&mut connect(to, begun).await, "complete").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

fn body(length: usize, sent: usize) -> String {
    format!("POST /body HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n{}", "x".repeat(sent))
}

#[tokio::test]
async fn a_body_for_which_there_is_no_room_takes_that_of_the_one_that_stands_still_longest() {
    let (to, memory, ..) = serve(Bounds { connections: 16, ..short() }, BODIES);
    let mut stalled = connect(to, &body(100_000, 90_000)).await;
    while memory.taken_bytes() < 90_000 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut other = connect(to, &body(70_000, 60_000)).await;
    while memory.taken_bytes() < 150_000 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut whole = connect(to, &body(100_000, 100_000)).await;
    assert!(read_until(&mut whole, "\r\n\r\n100000").await.starts_with("HTTP/1.1 200 "));
    let answer = read_until(&mut stalled, "again").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("given up"), "{answer}");
    other.write_all("x".repeat(10_000).as_bytes()).await.unwrap();
    assert!(read_until(&mut other, "\r\n\r\n70000").await.starts_with("HTTP/1.1 200 "));
    while memory.taken_bytes() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn complete_bodies_leave_room_for_small_ones() {
    let memory = BodyMemory::new(BODIES);
    let read = |length: usize| memory.read_body(Body::from(vec![b'x'; length]));
    let held = [read(90_000).await.unwrap(), read(90_000).await.unwrap()];
    assert_eq!(read(70_000).await.unwrap_err(), BodyError::NoMemory);
    let small = read(15_000).await.unwrap();
    assert_eq!(memory.taken_bytes(), held.iter().map(HeldBody::memory).sum::<usize>() + small.memory());
    drop((held, small));
    assert_eq!(memory.taken_bytes(), 0);
}

#[tokio::test]
async fn a_stop_lets_open_requests_end_and_nothing_begin() {
    let (to, memory, serving, stop) = serve(Bounds { drain: AT_LAST, ..short() }, BODIES);
    let mut idle = connect(to, ASK).await;
    read_until(&mut idle, "hello").await;
    let mut open = connect(to, &body(10, 5)).await;
    while memory.taken_bytes() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.cancel();
    assert_eq!(read_until(&mut idle, NEVER).await, "");
    assert!(TcpStream::connect(to).await.is_err());
    open.write_all(b"12345").await.unwrap();
    assert!(read_until(&mut open, "\r\n\r\n10").await.starts_with("HTTP/1.1 200 "));
    tokio::time::timeout(AT_LAST, serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let (to, memory, serving, stop) = serve(Bounds { drain: SOON, ..short() }, BODIES);
    let _open = connect(to, &body(10, 5)).await;
    while memory.taken_bytes() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.cancel();
    tokio::time::timeout(AT_LAST, serving).await.unwrap().unwrap();
}
