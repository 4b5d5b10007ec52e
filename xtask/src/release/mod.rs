//! `cargo xtask release VERSION`: all files of a release, in `dist/VERSION`. Those of one platform are built on
//! machines of that platform; one machine then joins them. The same commit gives the same bytes.

mod artifacts;
mod changelog;
mod chart;
mod command_line;
mod homebrew;
mod sources;
mod stale;
mod sums;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use oz_testkit::Image;
use xtask::programs;
use xtask::screen::Screen;

use crate::dependencies::Dependencies;
use crate::digest::digest;
use crate::image::{self, Index, Profile, Request, write_into};
use crate::tarball::{self, Members};
use crate::{git, krew, notices};
use artifacts::Platform;
use command_line::Program;
use homebrew::Download;
use sources::Sources;

/// The release to build or to check.
#[derive(Args)]
pub(crate) struct Options {
    /// The version, which is that of Cargo.toml, of the chart and of the first section of CHANGELOG.md.
    version: String,
    /// Build nothing; report the reasons to refuse the release, and exit with 1 if there are any. `sources`
    /// leaves out the files in dist/VERSION.
    #[arg(
        long,
        value_enum,
        value_name = "SCOPE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
    )]
    check: Option<Scope>,
    /// Build only one part of the files. By default, the files of this platform, and then the shared files.
    #[arg(long, value_enum, value_name = "PART", conflicts_with = "check")]
    only: Option<Part>,
    /// An ozctl that was built on another platform, as in darwin-arm64=target/release/ozctl; repeatable. Its
    /// archives take completions and man pages from an archive for Linux.
    #[arg(
        long = "program",
        value_name = "OS-ARCH=FILE",
        conflicts_with = "check"
    )]
    programs: Vec<Program>,
    /// The profile of the programs. `quick` is for a rehearsal: it writes all files of a release into
    /// dist/quick/VERSION, with programs that compile fast, and does not check the sources.
    #[arg(
        long,
        value_enum,
        value_name = "PROFILE",
        default_value_t = Profile::Release,
        conflicts_with = "check"
    )]
    profile: Profile,
    /// The web page of the repository, by default that of the remote `origin`: for links, labels, krew and
    /// Homebrew.
    #[arg(long, value_name = "URL")]
    source: Option<String>,
    /// The registry of the images in the chart and in install.yaml, such as ghcr.io/OWNER; by default
    /// localhost, which no registry serves.
    #[arg(long, value_name = "REGISTRY")]
    registry: Option<String>,
}

/// The extent of a check.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scope {
    /// The sources: before a build.
    Sources,
    /// The sources, and the files in dist/VERSION: before a publication.
    All,
}

/// A part of the files of a release.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Images, inventories and programs for this machine's platform, and those of --program.
    Platform,
    /// Indexes, chart, definitions, manifests, notes and sums, for all platforms that are in dist/VERSION.
    Shared,
}

/// The inputs of the shared files.
struct Materials {
    version: String,
    /// The web page of the repository.
    source: Option<String>,
    changelog: String,
    chart: chart::Chart,
    /// The texts of files with definitions, by name.
    definitions: Vec<(&'static str, String)>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = oz_testkit::repository().canonicalize()?;
    let version = options.version.as_str();
    let mut faults = match options.profile {
        Profile::Release => Sources::read(&root, version)?.faults(),
        Profile::Quick => Vec::new(),
    };
    let directory = directory(&root, options.profile, version);
    if let Some(scope) = options.check {
        faults.extend(stale::faults(&root)?);
        if scope == Scope::All {
            let revision = git::revision(&root)?;
            faults.extend(artifacts::faults(&directory, version, revision.as_deref())?);
        }
        return report(version, &faults);
    }
    if !faults.is_empty() {
        bail!("failed to release {version}:\n  {}", faults.join("\n  "));
    }
    let source = options.source.clone().or_else(|| git::origin(&root));
    let source = source.map(|source| source.trim_end_matches('/').to_owned());
    let screen = Screen::stdout();
    if options.only != Some(Part::Shared) {
        for line in build_platform(options, &root, &directory, source.as_deref())? {
            screen.line(&line)?;
        }
    }
    if options.only != Some(Part::Platform) {
        let definition = |(name, path): (&'static str, &str)| -> Result<(&'static str, String)> {
            Ok((name, chart::definitions(&root, path)?))
        };
        let materials = Materials {
            version: version.to_owned(),
            source,
            changelog: fs::read_to_string(root.join("CHANGELOG.md"))
                .context("failed to read CHANGELOG.md")?,
            chart: chart::make(&root, version, options.registry.as_deref())?,
            definitions: artifacts::DEFINITIONS
                .into_iter()
                .map(definition)
                .collect::<Result<_>>()?,
        };
        for line in write_shared(&directory, &materials)? {
            screen.line(&line)?;
        }
    }
    screen.line(&format!(
        "files        {}",
        programs::from_here(&directory).display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the directory of the files of a version. It has the name of the version for a rehearsal, too, in another
/// directory: the files of a rehearsal are never published.
fn directory(root: &Path, profile: Profile, version: &str) -> PathBuf {
    let all = root.join(image::DIRECTORY);
    match profile {
        Profile::Release => all.join(version),
        Profile::Quick => all.join(profile.to_string()).join(version),
    }
}

fn report(version: &str, faults: &[String]) -> Result<ExitCode> {
    let screen = Screen::stdout();
    for fault in faults {
        screen.line(fault)?;
    }
    let result = if faults.is_empty() {
        format!("release {version} has no fault")
    } else {
        format!("release {version} is refused: {} faults", faults.len())
    };
    screen.line(&result)?;
    Ok(ExitCode::from(u8::from(!faults.is_empty())))
}

/// Builds the files of this machine's platform, and packs the programs of other platforms. Returns the lines to print.
fn build_platform(
    options: &Options,
    root: &Path,
    directory: &Path,
    source: Option<&str>,
) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let profile = options.profile;
    let target_directory = programs::target_directory()?;
    for contents in artifacts::IMAGES {
        let name = contents.name;
        let registry = options.registry.as_deref();
        let repository = registry.map(|it| format!("{}/{name}", it.trim_end_matches('/')));
        let request = Request::new(contents, root, profile, repository.as_deref(), source)?;
        let built = image::make(contents, &request, &target_directory)?;
        // The programs of a rehearsal are larger than released ones may be.
        if profile == Profile::Release {
            lines.push(image::sizes(contents, profile, &built.programs)?);
        }
        let base = image::base_name(contents, Profile::Release, Image::architecture());
        write_into(directory, &format!("{base}.oci.tar"), &built.image.bytes)?;
        write_into(directory, &format!("{base}.cdx.json"), &built.inventory)?;
        lines.push(format!("{name:12} {}", built.image.digest));
    }
    let native = Platform {
        os: "linux",
        arch: Image::architecture(),
    };
    let program = image::program_path(&target_directory, profile, "ozctl");
    let members = command_line::members(root, &program, &notices_for(root, native)?)?;
    lines.extend(write_command_line(directory, native, &members)?);
    for Program { platform, path } in &options.programs {
        let failed = || format!("failed to pack {}", path.display());
        let bytes = fs::read(path).with_context(failed)?;
        let notices = notices_for(root, *platform)?;
        let members = command_line::for_platform(&members, *platform, &bytes, &notices)
            .with_context(failed)?;
        lines.extend(write_command_line(directory, *platform, &members)?);
    }
    Ok(lines)
}

fn notices_for(root: &Path, platform: Platform) -> Result<String> {
    let target = command_line::target(platform);
    let dependencies = Dependencies::read(root, &target)?;
    notices::notices(
        &["ozctl"],
        &dependencies,
        &notices::libraries(root, &target)?,
    )
}

fn write_command_line(
    directory: &Path,
    platform: Platform,
    members: &Members,
) -> Result<[String; 2]> {
    let write = |program: &str, members: &Members| -> Result<String> {
        let name = platform.archive(program);
        write_into(directory, &name, &tarball::pack_compressed(members)?)?;
        Ok(format!("archive      {name}"))
    };
    let plugin = command_line::plugin(members)?;
    Ok([write("ozctl", members)?, write("kubectl-oz", &plugin)?])
}

/// Writes the shared files for the platforms in `directory`. Returns the lines to print.
fn write_shared(directory: &Path, materials: &Materials) -> Result<Vec<String>> {
    let version = &materials.version;
    let mut lines = Vec::new();
    for contents in artifacts::IMAGES {
        let archives = artifacts::image_archives(directory, contents)?;
        ensure!(
            !archives.is_empty(),
            "{} has no archive of image {}: run `cargo xtask release {version} --only platform` on Linux first",
            directory.display(),
            contents.name
        );
        let index = Index::new(archives)?;
        write_into(directory, &index.file_name(), &index.archive()?)?;
        let processors = index.processors().join(", ");
        lines.push(format!(
            "{:12} {} for {processors}",
            contents.name,
            index.digest()
        ));
    }
    let write = |name: &str, content: &[u8]| write_into(directory, name, content);
    write(&artifacts::chart(version), &materials.chart.archive)?;
    write(artifacts::INSTALL, materials.chart.install.as_bytes())?;
    for (name, text) in &materials.definitions {
        write(name, text.as_bytes())?;
    }
    let source = materials.source.as_deref();
    let notes = changelog::notes(&materials.changelog, version, source)?;
    write(artifacts::NOTES, notes.as_bytes())?;
    match source {
        Some(source) => {
            let url = format!("{source}/releases/download/v{version}");
            let manifest = krew::manifest_of(directory, &url, source)?;
            write(artifacts::KREW, manifest.as_bytes())?;
            let formula = homebrew::formula(version, source, &url, &downloads(directory)?);
            write(artifacts::FORMULA, formula.as_bytes())?;
        }
        None => {
            for name in [artifacts::KREW, artifacts::FORMULA] {
                remove(&directory.join(name))?;
                lines.push(format!(
                    "left out     {name}: name the web page of the repository by --source"
                ));
            }
        }
    }
    write(sums::FILE, sums::sums(directory)?.as_bytes())?;
    Ok(lines)
}

/// Removes a file of an earlier run, if it exists.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("failed to remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Returns the archives of ozctl with their digests.
fn downloads(directory: &Path) -> Result<Vec<Download>> {
    let mut downloads = Vec::new();
    for (os, arch) in krew::PLATFORMS {
        let platform = Platform { os, arch };
        let path: PathBuf = directory.join(platform.archive("ozctl"));
        if path.exists() {
            let sha256 = digest(&path)?;
            downloads.push(Download { platform, sha256 });
        }
    }
    Ok(downloads)
}

#[cfg(test)]
mod tests;
