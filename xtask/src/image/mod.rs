//! `cargo xtask image`: the container image, without Docker: static programs in an empty root, as one layer
//! of an archive that every container runtime loads. The same sources, compiler and C library must give the
//! same bytes on every machine; `--check-reproducible` checks whether they do.

mod sbom;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use oz_testkit::{Image, ImageArchive, compress};
use strum::Display;

use xtask::programs;

/// The content of an image.
struct Contents {
    name: &'static str,
    /// The packages in the image, each with a program of its name. The image runs the first.
    programs: &'static [&'static str],
    /// The maximum compressed size of a program, as it is transferred to a node, in bytes.
    limit: usize,
}

/// The image of oz.
const OZ: Contents = Contents {
    name: "oz",
    programs: &["oz-operator", "oz-webhook", "oz-broker", "oz-gate", "ozctl"],
    limit: 20_000_000,
};
/// The container of oz in the pods of runs: small, since it is transferred to every node that runs agents.
const HARNESS: Contents = Contents {
    name: "oz-harness",
    programs: &["oz-harness"],
    limit: 8_000_000,
};
/// The output directory, from the root of the repository.
const DIRECTORY: &str = "dist";
/// An unprivileged user; the chart also runs the programs as this user.
const USER: &str = "65532:65532";

/// The image to build, and its archive.
#[derive(Args)]
pub(crate) struct Options {
    /// Make the image of the container in the pods of harness runs, oz-harness, instead of oz's own.
    #[arg(long)]
    harness: bool,
    /// The name that the image has in the archive, by default localhost/oz or localhost/oz-harness; the tag
    /// is the version.
    #[arg(long, value_name = "NAME")]
    repository: Option<String>,
    /// The profile of the programs.
    #[arg(long, value_enum, default_value_t = Profile::Release)]
    profile: Profile,
    /// Fail unless the image has this digest, as a build elsewhere had.
    #[arg(long, value_name = "DIGEST")]
    expect: Option<String>,
    /// Compile everything a second time, in another directory, and fail unless that gives the same
    /// image.
    #[arg(long)]
    check_reproducible: bool,
}

#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, ValueEnum)]
#[strum(serialize_all = "lowercase")]
enum Profile {
    /// The release build.
    Release,
    /// The build for tests: fast to compile, large and slow.
    Quick,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = oz_testkit::repository().canonicalize()?;
    let contents = if options.harness { &HARNESS } else { &OZ };
    let repository = options.repository.clone();
    let repository = repository.unwrap_or_else(|| format!("localhost/{}", contents.name));
    let tag = format!("{repository}:{}", env!("CARGO_PKG_VERSION"));
    let build = |directory: &Path| build(contents, &root, directory, options.profile);
    let files = build(&programs::target_directory()?)?;
    let image = pack(contents, &files, &tag)?;
    let mut said = String::new();
    for (program, bytes) in &files {
        let small = compress(bytes)?.len();
        said += &format!(
            "{program:12} {}, compressed {}\n",
            megabytes(bytes.len()),
            megabytes(small)
        );
        ensure!(
            small <= contents.limit || options.profile == Profile::Quick,
            "{program} is {} compressed, more than the {} that it may be",
            megabytes(small),
            megabytes(contents.limit)
        );
    }
    let (archive, inventory) = write(contents, &root, options.profile, &image)?;
    said += &format!("image        {tag}\ndigest       {}\n", image.digest);
    said += &format!("archive      {}\n", programs::from_here(&archive).display());
    said += &format!(
        "inventory    {}\n",
        programs::from_here(&inventory).display()
    );
    io::stdout().write_all(said.as_bytes())?;
    if let Some(expected) = &options.expect {
        ensure!(
            *expected == image.digest,
            "the image is not the one expected, {expected}: other sources, another compiler or \
             another C library"
        );
    }
    if options.check_reproducible {
        let elsewhere = tempfile::tempdir_in(programs::target_directory()?)?;
        let again = pack(contents, &build(elsewhere.path())?, &tag)?;
        ensure!(
            again == image,
            "the second build gave another image, {}: it is not reproducible",
            again.digest
        );
        io::stdout().write_all(b"again        the same, byte for byte\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn megabytes(bytes: usize) -> String {
    let tenths = bytes.div_ceil(100_000);
    format!("{:3}.{} MB", tenths / 10, tenths % 10)
}

fn pack(contents: &Contents, programs: &[(&str, Vec<u8>)], tag: &str) -> Result<ImageArchive> {
    let title = "org.opencontainers.image";
    let first = contents.programs.first().context("the image is empty")?;
    let mut image = Image::new(tag, &[&format!("/{first}")])
        .user(USER)
        .search("/")
        .label(&format!("{title}.title"), contents.name)
        .label(&format!("{title}.version"), env!("CARGO_PKG_VERSION"))
        .label(&format!("{title}.licenses"), env!("CARGO_PKG_LICENSE"));
    for (name, bytes) in programs {
        image = image.file(name, 0o755, bytes)?;
    }
    image.archive()
}

/// Writes the archive and the inventory.
fn write(
    contents: &Contents,
    root: &Path,
    profile: Profile,
    image: &ImageArchive,
) -> Result<(PathBuf, PathBuf)> {
    let out = root.join(DIRECTORY);
    std::fs::create_dir_all(&out).with_context(|| format!("failed to make {}", out.display()))?;
    let version = env!("CARGO_PKG_VERSION");
    let mut name = format!("{}-{version}-{}", contents.name, Image::architecture());
    if profile != Profile::Release {
        name += &format!("-{profile}");
    }
    let write = |suffix: &str, bytes: &[u8]| -> Result<PathBuf> {
        let path = out.join(format!("{name}{suffix}"));
        std::fs::write(&path, bytes)
            .with_context(|| format!("failed to write {}", path.display()))?;
        Ok(path)
    };
    Ok((
        write(".oci.tar", &image.bytes)?,
        write(
            ".cdx.json",
            &sbom::of(contents.name, contents.programs, &target(), root)?,
        )?,
    ))
}

/// Returns the target. The C library is linked in: it is part of every Linux compiler, and its allocator is
/// the one with which the figures were measured.
fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Compiles the programs into `directory`; returns name and content.
fn build(
    contents: &Contents,
    root: &Path,
    directory: &Path,
    profile: Profile,
) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let target = target();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(root)
        .args(["build", "--locked", "--bins", "--profile"])
        .arg(profile.to_string())
        .args(["--target", &target, "--target-dir"])
        .arg(directory)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(root, directory)?)
        .env("CARGO_INCREMENTAL", "0")
        .env_remove("RUSTFLAGS");
    for package in contents.programs {
        cargo.args(["--package", package]);
    }
    if !cargo.status().context("failed to run cargo")?.success() {
        bail!("failed to build the programs of the image: see above");
    }
    let built = directory.join(target).join(profile.to_string());
    let read = |program: &'static str| {
        let path = built.join(program);
        let bytes =
            std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
        require_static(program, &bytes)?;
        Ok((program, bytes))
    };
    contents.programs.iter().copied().map(read).collect()
}

/// Returns the flags that make the programs static, and identical on every machine: messages of panics
/// contain the paths of source files, which the flags replace by fixed paths.
fn flags(root: &Path, directory: &Path) -> Result<OsString> {
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir()
            .context("failed to find cargo's home: set CARGO_HOME")?
            .join(".cargo"),
    };
    let mut flags = OsString::from("-C\u{1f}target-feature=+crt-static");
    // The load address of the program is added to each address in its tables: a tenth of its size, if not
    // packed.
    flags.push("\u{1f}-C\u{1f}link-arg=-Wl,-z,pack-relative-relocs");
    // The last match counts: the second may be in the first.
    for (from, to) in [(root, "/oz"), (directory, "/target"), (&home, "/cargo")] {
        flags.push("\u{1f}--remap-path-prefix\u{1f}");
        flags.push(from);
        flags.push("=");
        flags.push(to);
    }
    Ok(flags)
}

/// Fails unless the program is static: an empty root contains no libraries.
fn require_static(program: &str, bytes: &[u8]) -> Result<()> {
    match names_a_loader(bytes) {
        Some(false) => Ok(()),
        Some(true) => bail!("{program} is not static: it names a loader"),
        None => bail!("{program} is no program for Linux"),
    }
}

/// Checks whether a program names a loader that links it (PT_INTERP). None if it is not ELF, with 64 bits and
/// the low byte first.
fn names_a_loader(program: &[u8]) -> Option<bool> {
    const INTERPRETER: [u8; 4] = [3, 0, 0, 0];
    if !program.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let bytes = |at: usize, count: usize| program.get(at..at.checked_add(count)?);
    let short = |at| {
        Some(usize::from(u16::from_le_bytes(
            bytes(at, 2)?.try_into().ok()?,
        )))
    };
    let table = usize::try_from(u64::from_le_bytes(bytes(32, 8)?.try_into().ok()?)).ok()?;
    let (size, count) = (short(54)?, short(56)?);
    for index in 0..count {
        if bytes(table.checked_add(index * size)?, 4)? == INTERPRETER {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chart starts every program of the image.
    #[test]
    fn dockerfile_has_the_same_programs() {
        let dockerfile = oz_testkit::repository().join("Dockerfile");
        let dockerfile = std::fs::read_to_string(dockerfile).unwrap();
        let copied = format!("cp {} /out/", OZ.programs.join(" "));
        assert!(dockerfile.contains(&copied), "not there: {copied}");
        for program in OZ.programs {
            let built = format!("--package {program} ");
            assert!(dockerfile.contains(&built), "not there: {built}");
        }
    }

    #[test]
    fn a_program_that_a_loader_links_is_found_out() {
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(names_a_loader(&this), Some(true));
        assert_eq!(names_a_loader(&this[..64]), None);
        assert_eq!(names_a_loader(b"#!/bin/sh"), None);
        let mut none = this[..64].to_vec();
        none[56..58].fill(0);
        assert_eq!(names_a_loader(&none), Some(false));
    }

    #[test]
    fn sizes_are_rounded_up() {
        assert_eq!(megabytes(20_000_000), " 20.0 MB");
        assert_eq!(megabytes(20_000_001), " 20.1 MB");
    }
}
