//! `cargo xtask notices`: the licence texts of everything that is linked into the programs, for images and
//! archives. It fails where a crate has no text: its licence then cannot be complied with.

mod substitutes;
mod texts;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::dependencies::{Dependencies, Package};
use substitutes::Substitute;
use texts::Text;

/// The programs, and the file to write.
#[derive(Args)]
pub(crate) struct Options {
    /// A package of this workspace, with the program that the notices are about; repeatable. By default all programs
    /// of a release.
    #[arg(long = "package", value_name = "PACKAGE")]
    packages: Vec<String>,
    /// The target of the programs, by default Linux on this processor.
    #[arg(long)]
    target: Option<String>,
    /// The file to write instead of the standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A library that the compiler links to every program, and that is no crate.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    pub(crate) license: &'static str,
    /// The statement for the notices.
    note: &'static str,
}

/// A component of programs.
struct Component {
    name: String,
    version: String,
    license: String,
    texts: Vec<Text>,
    note: Option<&'static str>,
}

impl Library {
    /// Returns the GNU C library.
    pub(crate) fn glibc(version: &str) -> Self {
        Self {
            name: "glibc",
            version: version.to_owned(),
            license: "LGPL-2.1-or-later",
            note: "linked statically on Linux; its sources are at https://sourceware.org/glibc/, and the sources of \
                   these programs suffice to link them to another version",
        }
    }

    /// Returns the standard library of Rust.
    pub(crate) fn rust(version: &str) -> Self {
        Self {
            name: "rust-std",
            version: version.to_owned(),
            license: "MIT OR Apache-2.0",
            note: "Copyright (c) The Rust Project Contributors",
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = oz_testkit::repository().canonicalize()?;
    let target = options.target.clone().unwrap_or_else(crate::image::target);
    let mut packages: Vec<&str> = options.packages.iter().map(String::as_str).collect();
    if packages.is_empty() {
        packages = crate::image::released_programs();
    }
    let dependencies = Dependencies::read(&root, &target)?;
    let text = notices(&packages, &dependencies, &libraries(&root, &target)?)?;
    match &options.output {
        Some(path) => std::fs::write(path, text)
            .with_context(|| format!("failed to write {}", path.display()))?,
        None => io::stdout().write_all(text.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the libraries that are linked to programs for `target`.
///
/// # Errors
/// When their versions cannot be found out.
pub(crate) fn libraries(root: &Path, target: &str) -> Result<Vec<Library>> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = output(Command::new(rustc).current_dir(root).arg("-vV"))?;
    let version = said.lines().find_map(|line| line.strip_prefix("release: "));
    let version = version.context("failed to find the version in the output of rustc -vV")?;
    let mut libraries = vec![Library::rust(version)];
    if target.ends_with("-linux-gnu") {
        let said = output(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
        let version = said.trim().strip_prefix("glibc ");
        let version = version.with_context(|| {
            format!("failed to find the version of glibc in {said:?}: images are built with glibc")
        })?;
        libraries.push(Library::glibc(version));
    }
    Ok(libraries)
}

fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("failed to run {name}"))?;
    ensure!(
        output.status.success(),
        "failed to run {name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).with_context(|| format!("{name}: the output is not UTF-8"))
}

/// Returns the notices for the programs of `packages`.
///
/// # Errors
/// When a crate has no licence text: the error names all such crates.
pub(crate) fn notices(
    packages: &[&str],
    dependencies: &Dependencies,
    libraries: &[Library],
) -> Result<String> {
    let substitutes = substitutes::read()?;
    let linked = dependencies.linked(packages)?;
    // The licence of this workspace is in a separate file.
    let foreign = linked.into_iter().filter(|it| it.source.is_some());
    let mut components = Vec::new();
    let mut faults = Vec::new();
    for package in foreign {
        match component(package, &substitutes) {
            Ok(component) => components.push(component),
            Err(fault) => faults.push(format!("{} {}: {fault:#}", package.name, package.version)),
        }
    }
    if !faults.is_empty() {
        bail!(
            "failed to collect the licence texts:\n  {}\ncomplete or correct xtask/licenses/crates.yaml",
            faults.join("\n  ")
        );
    }
    for library in libraries {
        components.push(Component {
            name: library.name.to_owned(),
            version: library.version.clone(),
            license: library.license.to_owned(),
            texts: substitutes::of_library(library)?,
            note: Some(library.note),
        });
    }
    Ok(page(packages, &components))
}

/// Collects the texts of a package; fails when it has none, and when its entry in the list is wrong.
fn component(package: &Package, substitutes: &[Substitute]) -> Result<Component> {
    let directory = package.manifest_path.parent();
    let directory = directory.context("a manifest without a directory")?;
    let mut texts = texts::read(directory, package.license_file.as_deref())?;
    let has_text = texts.iter().any(Text::is_licence);
    match substitutes.iter().find(|it| it.is_for(&package.name)) {
        Some(_) if has_text => bail!("it has a licence text; remove its entry"),
        Some(substitute) => texts.push(substitute.text(package.license.as_deref())?),
        None => ensure!(has_text, "it has no licence text"),
    }
    Ok(Component {
        name: package.name.clone(),
        version: package.version.clone(),
        license: match &package.license {
            Some(license) => license.clone(),
            None => "see the text".to_owned(),
        },
        texts,
        note: None,
    })
}

/// Writes the notices: the components with the numbers of their texts, and each text once.
fn page(packages: &[&str], components: &[Component]) -> String {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut texts: Vec<(&str, Vec<String>)> = Vec::new();
    let mut page = format!(
        "Third-party notices of {} {}\n\nThe programs contain the components of this list, under these licences. The \
         numbers\nrefer to the texts below. LICENSE is the licence of the programs themselves.\n\n",
        packages.join(", "),
        env!("CARGO_PKG_VERSION"),
    );
    for component in components {
        let mut its_numbers = Vec::new();
        for text in &component.texts {
            let number = *numbers.entry(&text.content).or_insert_with(|| {
                texts.push((&text.content, Vec::new()));
                texts.len()
            });
            let user = format!("{} {} ({})", component.name, component.version, text.name);
            if let Some((_, users)) = texts.get_mut(number - 1) {
                users.push(user);
            }
            its_numbers.push(format!("[{number}]"));
        }
        page += &format!(
            "{} {}: {} {}\n",
            component.name,
            component.version,
            component.license,
            its_numbers.join("")
        );
        if let Some(note) = component.note {
            page += &format!("  {note}\n");
        }
    }
    for (index, (text, users)) in texts.iter().enumerate() {
        let line = "=".repeat(80);
        page += &format!("\n{line}\n[{}] {}\n\n{text}", index + 1, users.join(", "));
    }
    page
}

#[cfg(test)]
mod tests;
