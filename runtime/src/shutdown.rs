//! Stopping: the first Ctrl-C or SIGTERM asks every task to end, the second ends the process at once.

use tokio_util::sync::CancellationToken;

/// A token that is cancelled by the first signal. A second signal exits with 130.
#[must_use]
pub fn cancel_on_signal() -> CancellationToken {
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        wait_for_signal().await;
        tracing::info!("stopping; a second signal stops at once");
        cancelled.cancel();
        wait_for_signal().await;
        std::process::exit(130);
    });
    token
}

async fn wait_for_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                biased;
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
