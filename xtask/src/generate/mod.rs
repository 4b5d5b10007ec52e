//! `cargo xtask generate [--check]`: the files of the repository that are generated from its sources. They
//! are checked in, so that the chart can be used without a compiler; CI fails when they are stale.

mod configuration;
mod policies;
mod rbac;
mod requested;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use oz_core::kinds::Family;
use oz_trail::verify::Fault;
use oz_trail::{Action, Decision};
use strum::{EnumMessage as _, IntoEnumIterator as _};

use xtask::generated::{self, Options};

/// The page with the actions, decisions and faults of audit records.
const VOCABULARY: &str = "docs/reference/audit.md";
/// The page with the attempts to get more access than granted, and their results.
const ATTEMPTS: &str = "docs/reference/attempts.md";
/// The hostile suites: each test is a row of a page.
const HOSTILE: [&str; 2] = ["e2e/tests/hostile", "e2e/tests/transient/hostile"];
/// The directory of the custom resource definitions: in the chart, which installs them. Not its directory
/// `crds`, which Helm would install regardless of the values, and never upgrade.
const CRDS: &str = "charts/oz/files/crds";
/// The directory of the definitions of CompositeControllers and RegoControllers, which are installed where
/// they run.
const COMPOSITES: &str = "charts/oz/files/composites";
/// The directory of the definitions of the kinds of harness runs, which are installed where runs are served.
const HARNESS: &str = "charts/oz/files/harness";
/// Directories in which all files are generated, or none may be.
const DIRECTORIES: [&str; 5] = [CRDS, COMPOSITES, HARNESS, rbac::FILES, "charts/oz/crds"];
const HEADER: &str =
    "# Generated from crates/core/src/kinds by `cargo xtask generate`; do not edit.\n";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = oz_testkit::repository();
    // These first: other files are generated from them.
    let sources = generated::update(&root, &requested::files(&root)?, &[], options)?;
    let others = generated::update(&root, &files(&root)?, &DIRECTORIES, options)?;
    Ok(generated::exit_code(options, sources || others))
}

/// Returns every generated file: its path from the root of the repository, and its text.
fn files(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut files = definitions()?;
    files.extend(rbac::files(root)?);
    files.extend(configuration::files(root)?);
    files.insert(PathBuf::from(policies::FILE), policies::text(root)?);
    files.insert(PathBuf::from(VOCABULARY), vocabulary());
    files.insert(PathBuf::from(ATTEMPTS), attempts(root)?);
    Ok(files)
}

/// Returns the page with the actions, decisions and faults of audit records.
fn vocabulary() -> String {
    let mut page = String::from(
        "<!-- Generated from crates/trail/src/action.rs by `cargo xtask generate`; do not edit. -->\n\n\
         # Audit records: actions, decisions and faults\n\n\
         Each audit record has an action and a decision. [The guide](../guides/audit.md) describes when \
         oz writes each record and how to verify that no record is missing.\n\n\
         ## Actions\n\n\
         A *blocking* record is in every place that holds the audit trail before the operation that it \
         records takes effect.\n\n\
         | action | meaning | written by | blocking |\n|---|---|---|---|\n",
    );
    for action in Action::iter() {
        let meaning = cell(action.get_documentation());
        let gate = if action.is_gate() { "yes" } else { "" };
        let by = action.written_by();
        page.push_str(&format!("| `{action}` | {meaning} | {by} | {gate} |\n"));
    }
    page.push_str("\n## Decisions\n\n| decision | meaning |\n|---|---|\n");
    for decision in Decision::iter() {
        let meaning = cell(decision.get_documentation());
        page.push_str(&format!("| `{decision}` | {meaning} |\n"));
    }
    page.push_str("\n## Faults that verification reports\n\n| fault | meaning |\n|---|---|\n");
    for fault in Fault::iter() {
        let meaning = cell(fault.get_documentation());
        page.push_str(&format!("| `{fault}` | {meaning} |\n"));
    }
    page
}

/// Returns the doc comment of a variant in one line, for a cell of a table.
fn cell(documentation: Option<&str>) -> String {
    let lines: Vec<&str> = documentation.into_iter().flat_map(str::lines).collect();
    lines.join(" ")
}

/// Returns the hostile suite as a page: from each test's name, and its doc comment, which contains the
/// attempt and, after a colon, its result.
fn attempts(root: &Path) -> Result<String> {
    let mut page = String::from(
        "<!-- Generated from e2e/tests/hostile and e2e/tests/transient/hostile by `cargo xtask generate`; do not edit. -->\n\n\
         # Attempts to exceed granted access, and their results\n\n\
         Each row is a test on a real API server, with oz under its own RBAC roles. The tests open\n\
         connections in enforcing namespaces; [the guide](../guides/enforcement.md) describes which\n\
         connections observing namespaces allow.\n\n\
         Attempts of a user to continue a session after its end are tested on a real node\n\
         ([e2e/tests/node/sessions.rs](../../e2e/tests/node/sessions.rs),\n\
         [script.rs](../../e2e/tests/node/script.rs)). oz cannot terminate every process there, for\n\
         example a process that is forked twice and drops its environment, its session and its streams,\n\
         or is the last to hold them: see [processes of a session](../concepts/sessions.md).\n\n\
         | attempt | result | test |\n|---|---|---|\n",
    );
    let mut files = Vec::new();
    for directory in HOSTILE {
        let mut names: Vec<String> = fs::read_dir(root.join(directory))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<_>>()?;
        names.sort();
        files.extend(names.iter().map(|name| format!("{directory}/{name}")));
    }
    for file in files {
        let text = fs::read_to_string(root.join(&file))?;
        let mut said = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(words) = line.strip_prefix("/// ") {
                said.push(words);
            } else if line == "#[tokio::test]" {
                let name = lines.next().unwrap_or_default();
                let name = name.trim_start_matches("async fn ");
                let name = name.split('(').next().unwrap_or_default();
                let sentence = said.join(" ");
                let (tried, outcome) = sentence
                    .rsplit_once(": ")
                    .with_context(|| format!("{file}: {name} has no result after a colon"))?;
                let outcome = outcome.trim_end_matches('.');
                page.push_str(&format!(
                    "| {tried} | {outcome} | [`{name}`](../../{file}) |\n"
                ));
                said.clear();
            } else if !line.starts_with("#[") {
                said.clear();
            }
        }
    }
    Ok(page)
}

/// Returns the custom resource definitions: their paths from the root of the repository, and their texts.
fn definitions() -> Result<BTreeMap<PathBuf, String>> {
    oz_core::kinds::all()
        .into_iter()
        .filter_map(|kind| {
            let directory = directory_of(kind.family)?;
            Some((directory, kind.definition()?))
        })
        .map(|(directory, crd)| {
            let path = Path::new(directory).join(format!("{}.yaml", crd.spec.names.plural));
            let yaml = serde_saphyr::to_string(&crd)
                .with_context(|| format!("failed to write {} as YAML", crd.spec.names.kind))?;
            Ok((path, format!("{HEADER}{yaml}")))
        })
        .collect()
}

/// Returns the directory of the definitions of one part of oz; `None` if oz does not install them.
const fn directory_of(family: Family) -> Option<&'static str> {
    match family {
        Family::Access => Some(CRDS),
        Family::Harness => Some(HARNESS),
        Family::Composites => Some(COMPOSITES),
        Family::Published => None,
    }
}
