//! The oz gate: a part of the API server's own paths. The gate reads a request about one pod and passes it on under its
//! own account as long as the grant of the user lasts; then the gate closes the connection. A request has six stages:
//! [`authenticate`], [`route`], [`authorize`], [`open`], [`relay`] and [`close`].

mod answer;
mod args;
mod authenticate;
mod authorize;
mod close;
mod config;
mod counts;
mod debug;
mod discovery;
mod grants;
mod handshake;
mod idle;
mod journal;
mod live;
mod message_room;
mod metrics;
mod moderated;
mod open;
mod pause;
mod peers;
mod play;
mod recordings;
mod registration;
mod relay;
mod route;
mod run;
mod session;
mod sessions;
mod slowed;
mod socket;
mod spool;
mod storage;
mod tape;
mod traffic;
mod upstream;

use clap::Parser;
use oz_config::Component;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Before all else: every connection needs the cryptography provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let args = args::Args::parse();
    let config = args.config.start(&args.common, Component::Gate)?;
    run::run(args, config).await
}
