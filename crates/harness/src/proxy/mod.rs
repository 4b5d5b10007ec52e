//! The proxy of a run: every connection of the pod is redirected to it. It forwards the requests that the run's policies
//! grant, and replaces placeholders by credentials. The decisions are those of `oz_egress`; without grants, or
//! in doubt, the proxy refuses.

mod authority;
mod connection;
mod credentials;
mod dns;
mod grants;
mod listen;
mod network;
mod peek;
mod prefixed;
mod ready;
mod report;
mod serve;
mod state;
#[cfg(test)]
mod tests;
mod tls;
mod upstream;
mod uses;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use oz_api::harness::interception::TRUST_NAME;
use oz_egress::address::Denied;
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

pub(crate) use ready::wait;

use crate::args::ProxyOptions;
use crate::broker::Broker;
use crate::log;
use authority::Authority;
use listen::Listeners;
use network::{Network, PodNetwork};
use state::Proxy;

/// The maximum number of threads that resolve names.
const LOOKUPS: usize = 16;

/// Runs the proxy until SIGTERM.
///
/// # Errors
/// When it cannot start.
pub(crate) fn run(options: &ProxyOptions) -> Result<()> {
    // Values of credentials are in memory: no process of the same user may read it.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .context("failed to protect the memory of the proxy")?;
    let files = rustix::process::getrlimit(Resource::Nofile);
    // Each connection has two files, and container runtimes start with 1,024.
    let raised = Rlimit {
        current: files.maximum,
        ..files
    };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        log::say(&format!("failed to raise the limit of open files: {error}"));
    }
    // One thread: memory is limited.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(LOOKUPS)
        .build()?;
    runtime.block_on(serve(options))
}

async fn serve(options: &ProxyOptions) -> Result<()> {
    let directory = &options.authority;
    ready::set(directory, Some("the proxy is starting"))?;
    let mut ended = signal(SignalKind::terminate())?;
    let broker = Broker::new(&options.broker_url, &options.broker_ca, &options.token)?;
    let owner = format!("{}/{}", options.namespace, options.run);
    let authority = Authority::open(directory, &owner)?;
    authority.publish(&options.trust.join(TRUST_NAME))?;
    let denied = Denied::parse(&options.denied).context("failed to read OZ_DENIED_RANGES")?;
    let network = PodNetwork::new(denied);
    let own = addresses(&options.pod_ips)?;
    let proxy = Arc::new(Proxy::new(network, broker, authority, own)?);
    let mut tasks = JoinSet::new();
    let listeners = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    for address in listeners {
        if let Some(listeners) = Listeners::bind(address).await? {
            listeners.spawn(&proxy, &mut tasks);
        }
    }
    let following = follow(&proxy, options);
    tokio::select! {
        () = following => {}
        () = proxy.report() => {}
        // A listener ends only when its task panics: without it, the proxy would hang.
        _ = tasks.join_next() => anyhow::bail!("a listener of the proxy failed"),
        _ = ended.recv() => {}
    }
    proxy.counts.finish(&proxy.broker).await;
    Ok(())
}

async fn follow<N: Network>(proxy: &Proxy<N>, options: &ProxyOptions) {
    let mut last = None;
    proxy
        .follow(|state| {
            let missing = state.granted().err();
            if last.as_ref() == Some(&missing) {
                return;
            }
            if let Err(error) = ready::set(&options.authority, missing.as_deref()) {
                log::say(&format!("{error:#}"));
            }
            last = Some(missing);
        })
        .await;
}

/// Parses the addresses of the pod.
fn addresses(text: &str) -> Result<Vec<IpAddr>> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts
        .map(|part| {
            part.parse()
                .with_context(|| format!("failed to read OZ_POD_IPS: {part} is not an address"))
        })
        .collect()
}
