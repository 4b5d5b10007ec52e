//! SIGTERM and SIGINT request an orderly shutdown; the second signal ends the process without it.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Returns a token that the first SIGTERM or SIGINT cancels. A second signal ends the process at
/// once, with exit code 130.
///
/// # Errors
/// When the handlers of the signals cannot be installed.
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
        tracing::info!("shutting down; a second signal terminates at once");
        shutdown.cancel();
        next().await;
        std::process::exit(130);
    });
    Ok(token)
}
