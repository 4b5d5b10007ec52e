//! Tasks of the workspace that are not tests: `cargo xtask <task>`. One module for each.

mod bench;
mod changes;
mod cluster;
mod command_line;
mod demo;
mod generate;
mod image;
mod krew;
mod links;
mod permissions;
mod programs;
mod real_node;
mod record;
mod screen;
mod test;

use std::process::ExitCode;

use clap::Parser;

/// Tasks of the oz workspace.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// A Kubernetes cluster to develop against, which outlives the command.
    #[command(subcommand)]
    Cluster(cluster::Action),
    /// Write the files that are made from sources: the custom resource definitions, the reference and man
    /// pages of ozctl, the vocabulary of the audit record.
    Generate(generate::Options),
    /// The container image, as an archive, with an inventory of what is in it.
    Image(image::Options),
    /// The main job, told on the screen with what really happens.
    Demo(demo::Options),
    /// Whether every relative link in the documents leads somewhere.
    Links,
    /// Every test that needs no root, and their sum.
    Test(test::Options),
    /// Whether the roles hold what the tests, the last time, were seen to need, and nothing else.
    Permissions,
    /// The recording of ozctl, in docs/ozctl.cast and in the README (root).
    Record,
    /// The manifest by which krew installs `kubectl oz`.
    Krew(krew::Options),
    /// Figures next to their budgets.
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> anyhow::Result<ExitCode> {
    match Task::parse() {
        Task::Cluster(action) => cluster::run(action),
        Task::Generate(options) => generate::run(&options),
        Task::Image(options) => image::run(&options),
        Task::Demo(options) => demo::run(&options),
        Task::Links => links::run(),
        Task::Test(options) => test::run(&options),
        Task::Permissions => permissions::run(),
        Task::Record => record::run(),
        Task::Krew(options) => krew::run(&options),
        Task::Bench(bench) => bench::run(&bench),
    }
}
