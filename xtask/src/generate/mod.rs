//! `cargo xtask generate [--check]`: the files of the repository that are generated from its sources. They
//! are checked in, so that the chart can be used without a compiler; CI fails when they are stale.

mod agents;
mod attempts;
mod chart;
mod configuration;
mod flags;
mod metrics;
mod names;
mod policies;
mod rbac;
mod reference;
mod requested;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use oz_api::kind::CustomResourceDefinition;
use oz_core::kinds::Family;
use oz_trail::verify::Fault;
use oz_trail::{Action, Decision};
use serde_json::Value;
use strum::{EnumMessage as _, IntoEnumIterator as _};

use xtask::generated::{self, Options};

/// The page with the actions, decisions and faults of audit records.
const VOCABULARY: &str = "docs/reference/audit.md";
/// The page with the attempts to get more access than granted, and their results.
const ATTEMPTS: &str = "docs/reference/attempts.md";
/// The directory of the custom resource definitions: in the chart, which installs them. Not its directory
/// `crds`, which Helm would install regardless of the values, and never upgrade.
const CRDS: &str = "charts/oz/files/crds";
/// The directory of the definitions of CompositeControllers and RegoControllers, which are installed where
/// they run.
const COMPOSITES: &str = "charts/oz/files/composites";
/// The directory of the definitions of the kinds of harness runs, which are installed where runs are served.
const HARNESS: &str = "charts/oz/files/harness";
/// Directories in which all files are generated, or none may be.
const DIRECTORIES: [&str; 6] = [
    CRDS,
    COMPOSITES,
    HARNESS,
    rbac::FILES,
    reference::DIRECTORY,
    "charts/oz/crds",
];
/// The definitions of the kinds as they were published, which are written by hand.
const PUBLISHED: &str = "deploy/example-com/crds.yaml";
const HEADER: &str =
    "# Generated from crates/core/src/kinds by `cargo xtask generate`; do not edit.\n";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = oz_testkit::repository();
    // These first: other files are generated from them.
    let sources = generated::update(&root, &requested::files(&root)?, &[], options)?;
    let others = generated::update(&root, &files(&root)?, &DIRECTORIES, options)?;
    Ok(generated::exit_code(options, sources || others))
}

/// Returns the generated files that differ from their sources.
pub(crate) fn stale(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut stale = generated::stale(root, &requested::files(root)?, &[])?;
    stale.extend(generated::stale(root, &files(root)?, &DIRECTORIES)?);
    Ok(stale)
}

/// Returns every generated file: its path from the root of the repository, and its text.
fn files(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let definitions = definitions();
    let mut files = manifests(&definitions)?;
    files.extend(reference::files(&documented(root, &definitions)?)?);
    files.extend(rbac::files(root)?);
    files.extend(configuration::files(root)?);
    files.extend(chart::files(root, &definitions)?);
    files.insert(PathBuf::from(policies::FILE), policies::text(root)?);
    files.insert(PathBuf::from(VOCABULARY), vocabulary());
    files.insert(PathBuf::from(ATTEMPTS), attempts::page(root)?);
    files.insert(PathBuf::from(rules::PAGE), rules::page(root)?);
    files.insert(PathBuf::from(flags::PAGE), flags::page(root)?);
    files.insert(PathBuf::from(metrics::PAGE), metrics::page(root)?);
    // Of the other pages.
    let index = names::page(root, &files)?;
    files.insert(PathBuf::from(names::PAGE), index);
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

/// Returns the custom resource definitions, with the paths of their files from the root of the repository.
fn definitions() -> Vec<(PathBuf, CustomResourceDefinition)> {
    oz_core::kinds::all()
        .into_iter()
        .filter_map(|kind| {
            let directory = directory_of(kind.family)?;
            let crd = kind.definition()?;
            let name = format!("{}.yaml", crd.spec.names.plural);
            Some((Path::new(directory).join(name), crd))
        })
        .collect()
}

/// Returns the files of the custom resource definitions: their paths, and their texts.
fn manifests(
    definitions: &[(PathBuf, CustomResourceDefinition)],
) -> Result<BTreeMap<PathBuf, String>> {
    let manifest = |(path, crd): &(PathBuf, CustomResourceDefinition)| {
        let yaml = serde_saphyr::to_string(crd)
            .with_context(|| format!("failed to write {} as YAML", crd.spec.names.kind))?;
        Ok((path.clone(), format!("{HEADER}{yaml}")))
    };
    definitions.iter().map(manifest).collect()
}

/// Returns the definitions of all kinds that have a reference page, with the paths of their files.
fn documented(
    root: &Path,
    definitions: &[(PathBuf, CustomResourceDefinition)],
) -> Result<Vec<(PathBuf, Value)>> {
    let text = fs::read_to_string(root.join(PUBLISHED))
        .with_context(|| format!("failed to read {PUBLISHED}"))?;
    let published: Vec<Value> = serde_saphyr::from_multiple(&text)
        .with_context(|| format!("failed to parse {PUBLISHED}"))?;
    let published = published
        .into_iter()
        .map(|crd| (PathBuf::from(PUBLISHED), crd));
    let mut all: Vec<(PathBuf, Value)> = published.collect();
    for (path, crd) in definitions {
        all.push((path.clone(), serde_json::to_value(crd)?));
    }
    Ok(all)
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
