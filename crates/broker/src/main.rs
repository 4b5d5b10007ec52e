//! The oz broker, the server that the pods of harness runs call. The broker identifies a pod by its token, and a run by
//! the pod; no request names a run.

mod answer;
mod args;
mod buckets;
mod callers;
mod egress;
mod grants;
mod lean;
mod lend;
mod limits;
mod metrics;
mod policies;
mod polls;
mod reports;
mod routes;
mod run;
mod runs;
mod secrets;
mod write;

use clap::Parser;
use oz_config::Component;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // First: every connection requires a cryptography provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let args = args::Args::parse();
    let config = args.config.start(&args.common, Component::Broker)?;
    run::run(args, config).await
}
