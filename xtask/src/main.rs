//! Tasks of the workspace that are not tests: `cargo xtask <task>`. One module for each.

mod cluster;
mod dependencies;
mod digest;
mod generate;
mod git;
mod image;
mod krew;
mod links;
mod notices;
mod permissions;
mod release;
mod site;
mod tarball;
mod test;
mod words;
mod workshop;

use std::process::ExitCode;

use clap::Parser;
use workshop::Forwarded;
use xtask::generated;

/// Tasks of the oz workspace.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// A Kubernetes cluster to develop against, which outlives the command.
    #[command(subcommand)]
    Cluster(cluster::Action),
    /// Write the files that are made from sources: the custom resource definitions, the roles, the vocabulary of
    /// the audit record.
    Generate(generated::Options),
    /// Write the reference and man pages of ozctl.
    #[command(disable_help_flag = true)]
    Pages(Forwarded),
    /// The container image, as an archive, with an inventory of what is in it.
    Image(image::Options),
    /// All files of a release, in dist/VERSION, or the reasons to refuse it.
    Release(release::Options),
    /// The licence texts of all that is linked into the programs.
    Notices(notices::Options),
    /// The main job, told on the screen with what really happens.
    #[command(disable_help_flag = true)]
    Demo(Forwarded),
    /// Whether every relative link in the documents leads somewhere, and every link of the site if it is built.
    Links,
    /// The documentation as a site with search, in target/site.
    Site(site::Options),
    /// Count the words in sources and documents that docs/STYLE.md replaces.
    Words(words::Options),
    /// Every test that needs no root, and their sum.
    Test(test::Options),
    /// Whether the roles hold what the tests, the last time, were seen to need, and nothing else.
    Permissions,
    /// The recording of ozctl, in docs/ozctl.cast and in the README (root).
    #[command(disable_help_flag = true)]
    Record(Forwarded),
    /// The manifest by which krew installs `kubectl oz`.
    Krew(krew::Options),
    /// Figures next to their budgets.
    #[command(disable_help_flag = true)]
    Bench(Forwarded),
}

fn main() -> anyhow::Result<ExitCode> {
    match Task::parse() {
        Task::Cluster(action) => cluster::run(action),
        Task::Generate(options) => generate::run(&options),
        Task::Pages(arguments) => workshop::run("pages", &arguments),
        Task::Image(options) => image::run(&options),
        Task::Release(options) => release::run(&options),
        Task::Notices(options) => notices::run(&options),
        Task::Demo(arguments) => workshop::run("demo", &arguments),
        Task::Links => links::run(),
        Task::Site(options) => site::run(&options),
        Task::Words(options) => words::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Permissions => permissions::run(),
        Task::Record(arguments) => workshop::run("record", &arguments),
        Task::Krew(options) => krew::run(&options),
        Task::Bench(arguments) => workshop::run("bench", &arguments),
    }
}
