//! A line to an API server, for members that go out of reach.

use anyhow::Context;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A line to a member's API server that can be cut.
#[derive(Debug)]
pub struct Line {
    /// Whether it holds.
    pub up: watch::Sender<bool>,
    /// Where to reach the other end: `https://127.0.0.1:port`.
    pub address: String,
}

impl Line {
    /// Listens here and passes on to `server` (`https://host:port`).
    ///
    /// # Errors
    /// If no port can be bound.
    pub async fn to(server: &str) -> anyhow::Result<Self> {
        let target = server.strip_prefix("https://").context("not https")?.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("https://{}", listener.local_addr()?);
        let (up, is_up) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (mut is_up, target) = (is_up.clone(), target.clone());
                tokio::spawn(async move {
                    if !*is_up.borrow() {
                        return;
                    }
                    let Ok(mut far) = TcpStream::connect(&target).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = is_up.wait_for(|up| !up) => {}
                    }
                });
            }
        });
        Ok(Self { up, address })
    }
}
