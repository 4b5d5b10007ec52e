//! The two signals of a process that is asked to end, and then told to.

use std::{future::Future, sync::Arc};

use tokio::sync::Notify;

/// For [`Manager::run_until`](crate::Manager::run_until): ready at the first `SIGTERM` or
/// `SIGINT`, and at the second. Must be called inside a Tokio runtime.
///
/// # Errors
/// If the process cannot handle signals.
pub fn signals() -> std::io::Result<(
    impl Future<Output = ()> + Send + use<>,
    impl Future<Output = ()> + Send + use<>,
)> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell_first, tell_second) = (first.clone(), second.clone());
    tokio::spawn(async move {
        for tell in [tell_first, tell_second] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tell.notify_one();
        }
    });
    Ok((async move { first.notified().await }, async move {
        second.notified().await
    }))
}
