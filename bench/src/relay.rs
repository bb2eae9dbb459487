//! A slow link that loses packets, for kernels without netem: connections are carried through, each piece later by a
//! delay. A lost packet is what TCP makes of it: it is sent again after a timeout, and what was sent behind it waits
//! for it (RFC 6298, RFC 9293). Losses are drawn from a fixed seed.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::Instant,
};

/// What one packet carries, in bytes.
const SEGMENT: usize = 1460;
/// The shortest time after which a packet is sent again: Linux' `TCP_RTO_MIN`.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(200);
/// Pieces on the way; who sends more waits.
const WINDOW: usize = 64;

/// How bad a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub struct LinkQuality {
    /// Milliseconds that each packet takes, in each direction.
    #[arg(long, default_value_t = 0)]
    pub delay: u64,
    /// Of a hundred packets so many are lost.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=50))]
    pub loss: u8,
}

impl LinkQuality {
    pub fn is_perfect(self) -> bool {
        self.delay == 0 && self.loss == 0
    }
}

/// Carries connections to `target` until the process ends. Returns where to connect.
pub fn serve_relay(at: Ipv4Addr, target: SocketAddr, quality: LinkQuality) -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(SocketAddr::from((at, 0)))?;
    listener.set_nonblocking(true)?;
    let (bound, listener) = (listener.local_addr()?, TcpListener::from_std(listener)?);
    tokio::spawn(async move {
        let mut seed = 0x9e37_79b9_7f4a_7c15;
        while let Ok((near, _)) = listener.accept().await {
            seed = draw(seed);
            let seeds = (seed, draw(seed));
            tokio::spawn(async move {
                let Ok(far) = TcpStream::connect(target).await else { return };
                let ((near_reads, near_writes), (far_reads, far_writes)) = (near.into_split(), far.into_split());
                let there = carry_one_way(near_reads, far_writes, quality, seeds.0);
                let back = carry_one_way(far_reads, near_writes, quality, seeds.1);
                // Either end may close its half first; what is on the way still arrives.
                let _ = tokio::join!(there, back);
            });
        }
    });
    Ok(bound)
}

async fn carry_one_way(
    mut from: impl AsyncRead + Unpin + Send + 'static,
    mut to: impl AsyncWrite + Unpin,
    quality: LinkQuality,
    mut seed: u64,
) -> io::Result<()> {
    let (on_the_way, mut arriving) = mpsc::channel::<(Instant, Vec<u8>)>(WINDOW);
    let reader = tokio::spawn(async move {
        let (mut piece, mut last) = (vec![0; SEGMENT], Instant::now());
        while let Ok(size @ 1..) = from.read(&mut piece).await {
            seed = draw(seed);
            last = last.max(Instant::now() + compute_time_on_the_way(quality, seed));
            if on_the_way.send((last, piece[..size].to_vec())).await.is_err() {
                break;
            }
        }
    });
    while let Some((at, piece)) = arriving.recv().await {
        tokio::time::sleep_until(at).await;
        to.write_all(&piece).await?;
    }
    to.shutdown().await?;
    reader.abort();
    Ok(())
}

/// How long one packet is on its way: sent again, each time after twice as long, until it is not lost.
fn compute_time_on_the_way(quality: LinkQuality, mut seed: u64) -> Duration {
    let delay = Duration::from_millis(quality.delay);
    let (mut time, mut timeout) = (delay, SHORTEST_TIMEOUT.max(delay * 3));
    while seed % 100 < u64::from(quality.loss) {
        time += timeout;
        timeout *= 2;
        seed = draw(seed);
    }
    time
}

/// The next of a sequence that looks random: xorshift64 (Marsaglia, 2003).
fn draw(mut seed: u64) -> u64 {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^ (seed << 17)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_hundred_packets_so_many_are_late_as_the_loss_says() {
        let quality = LinkQuality { delay: 50, loss: 10 };
        let mut seed = 7;
        let times: Vec<Duration> = (0..10_000)
            .map(|_| {
                seed = draw(seed);
                compute_time_on_the_way(quality, seed)
            })
            .collect();
        let late = times.iter().filter(|time| **time > Duration::from_millis(50)).count();
        assert!((800..1200).contains(&late), "{late}");
        let twice = times.iter().filter(|time| **time > Duration::from_millis(250)).count();
        assert!((40..200).contains(&twice), "{twice}");
        assert_eq!(times.iter().min(), Some(&Duration::from_millis(50)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_sent_arrives_whole_in_order_and_late() {
        let (mut near, near_end) = tokio::io::duplex(1 << 20);
        let (far_end, mut far) = tokio::io::duplex(1 << 20);
        let sent: Vec<u8> = (0..100_000_u32).map(|byte| u8::try_from(byte % 251).unwrap()).collect();
        let began = Instant::now();
        let carried = tokio::spawn(carry_one_way(near_end, far_end, LinkQuality { delay: 80, loss: 5 }, 3));
        near.write_all(&sent).await.unwrap();
        drop(near);
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        carried.await.unwrap().unwrap();
        assert_eq!(received, sent);
        assert!(began.elapsed() >= Duration::from_millis(80 + 240), "{:?}", began.elapsed());
    }
}
