//! The oz gate: a part of the API server's own paths. What somebody asks of one pod there is passed on as it was read,
//! by the gate's account, as long as their grant lasts; then the gate closes it.

mod answer;
mod args;
mod caller;
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
mod socket;

mod slowed;
mod spool;
mod storage;
mod tape;
mod traffic;
mod upstream;

use clap::Parser;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // First of all: every connection needs to know which cryptography to use.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let args = args::Args::parse();
    args.common.start_logging()?;
    run::run(args).await
}
