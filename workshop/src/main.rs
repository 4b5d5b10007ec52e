//! The tasks of the workspace that run the whole of oz: benches, the demo, recordings; and the pages that are
//! generated from ozctl. `cargo xtask` passes their commands on.

mod bench;
mod changes;
mod demo;
mod pages;
mod real_node;
mod record;

use std::process::ExitCode;

use clap::Parser;
use xtask::generated;

/// Tasks that run the whole of oz.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Measure oz, next to the budgets.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Show the main job of oz on an embedded cluster.
    Demo(demo::Options),
    /// Write the reference and man pages of ozctl.
    Pages(generated::Options),
    /// Record ozctl for docs/ozctl.cast and the README (root).
    Record,
}

fn main() -> anyhow::Result<ExitCode> {
    match Task::parse() {
        Task::Bench(bench) => bench::run(&bench),
        Task::Demo(options) => demo::run(&options),
        Task::Pages(options) => pages::run(&options),
        Task::Record => record::run(),
    }
}
