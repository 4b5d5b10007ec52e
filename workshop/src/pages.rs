//! The files that are generated from ozctl's own description of its commands: the reference and the man
//! pages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Command;
use xtask::generated::{self, Options};

/// The page with the help of every command.
const REFERENCE: &str = "docs/reference/ozctl.md";
/// The directory with one man page for each command. All of its files are generated.
const MAN: &str = "docs/man";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let any_stale = generated::update(&oz_testkit::repository(), &files()?, &[MAN], options)?;
    Ok(generated::exit_code(options, any_stale))
}

/// Returns every generated file: its path from the root of the repository, and its text.
fn files() -> Result<BTreeMap<PathBuf, String>> {
    let mut command = ozctl::command();
    command.build();
    let mut files = BTreeMap::new();
    let mut reference = String::from(
        "<!-- Generated from crates/ozctl by `cargo xtask pages`; do not edit. -->\n\n\
         # Commands of ozctl\n\n\
         [The guide](../guides/ozctl.md) says how they go together, what `-o json` has, and what the \
         exit codes mean. The same text is in the man pages in [docs/man](../man).\n",
    );
    pages(&command, "ozctl", &mut reference, &mut files)?;
    files.insert(PathBuf::from(REFERENCE), reference);
    Ok(files)
}

fn pages(
    command: &Command,
    name: &str,
    reference: &mut String,
    files: &mut BTreeMap<PathBuf, String>,
) -> Result<()> {
    let help = command
        .clone()
        .bin_name(name)
        .render_long_help()
        .to_string();
    reference.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", tidy(&help)));
    let mut page = Vec::new();
    let dashed = name.replace(' ', "-");
    clap_mangen::Man::new(command.clone().display_name(dashed.clone()).bin_name(name))
        .title(dashed.clone())
        .date("")
        .render(&mut page)
        .with_context(|| format!("failed to write the man page of {name}"))?;
    let page = String::from_utf8(page).with_context(|| format!("{name}: not UTF-8"))?;
    files.insert(Path::new(MAN).join(format!("{dashed}.1")), page);
    for below in command.get_subcommands() {
        if below.get_name() != "help" && !below.is_hide_set() {
            pages(
                below,
                &format!("{name} {}", below.get_name()),
                reference,
                files,
            )?;
        }
    }
    Ok(())
}

/// Removes blanks at the ends of lines.
fn tidy(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
    lines.join("\n")
}
