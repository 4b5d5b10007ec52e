//! SIGTERM and SIGINT ask for an orderly end; the second one does not wait for it.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled by the first SIGTERM or SIGINT. A second one ends the process at
/// once, with exit code 130.
///
/// # Errors
/// When signals cannot be watched.
pub fn shutdown_on_signal() -> std::io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let shutdown = token.clone();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        next().await;
        tracing::info!("shutting down; a second signal ends at once");
        shutdown.cancel();
        next().await;
        std::process::exit(130);
    });
    Ok(token)
}
