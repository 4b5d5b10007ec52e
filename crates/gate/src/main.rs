//! The oz gate: a part of the API server's own paths. The gate reads a request about one pod and passes it on under its
//! own account as long as the grant of the user lasts; then the gate closes the connection.

mod answer;
mod args;
mod caller;
mod config;
mod debug;
mod discovery;
mod grants;
mod handshake;
mod idle;
mod live;
mod message_room;
mod metrics;
mod moderated;
mod opening;
mod peers;
mod play;
mod recordings;
mod registration;
mod relay;
mod router;
mod run;
mod sessions;
mod side;
mod slowed;
mod socket;
mod spool;
mod storage;
mod tape;
mod traffic;
mod upstream;
mod waiting;

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
