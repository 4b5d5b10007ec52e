//! The oz broker: what the pods of harness runs talk to. A pod is known by its token alone, and its run by the
//! pod; nobody names a run.

mod answer;
mod args;
mod buckets;
mod callers;
mod lean;
mod metrics;
mod reports;
mod routes;
mod run;
mod runs;
mod write;

use clap::Parser;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // First of all: every connection needs to know which cryptography to use.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let args = args::Args::parse();
    args.common.start_logging()?;
    run::run(args).await
}
