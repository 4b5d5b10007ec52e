//! `cargo xtask image`: the container image, without Docker: static programs in an empty root, as one
//! layer of an archive that every container runtime loads. The same sources give the same bytes.

mod archive;
mod sbom;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::programs;

/// What the image holds: the packages, each with a program of its name.
const PROGRAMS: [&str; 3] = ["oz-operator", "oz-webhook", "ozctl"];
/// Where it is written to, from the root of the repository.
const DIRECTORY: &str = "dist";

/// What to build, and where to.
#[derive(Args)]
pub(crate) struct Options {
    /// The name that the image has in the archive; the tag is the version.
    #[arg(long, default_value = "localhost/oz", value_name = "NAME")]
    repository: String,
    /// Fail unless the image has this digest, as a build before it had.
    #[arg(long, value_name = "DIGEST")]
    expect: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = oz_e2e::repository().canonicalize()?;
    let target = target();
    let directory = build(&root, &target)?;
    let mut files = Vec::new();
    for program in PROGRAMS {
        let path = directory.join(program);
        let bytes =
            std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
        require_static(program, &bytes)?;
        files.push((program, bytes));
    }
    let tag = format!("{}:{}", options.repository, env!("CARGO_PKG_VERSION"));
    let image = archive::Image::of(&files, &tag)?;
    let out = root.join(DIRECTORY);
    std::fs::create_dir_all(&out).with_context(|| format!("failed to make {}", out.display()))?;
    let name = format!(
        "oz-{}-{}",
        env!("CARGO_PKG_VERSION"),
        archive::architecture()
    );
    let write = |suffix: &str, bytes: &[u8]| -> Result<PathBuf> {
        let path = out.join(format!("{name}{suffix}"));
        std::fs::write(&path, bytes)
            .with_context(|| format!("failed to write {}", path.display()))?;
        Ok(path)
    };
    let archive = write(".oci.tar", &image.archive)?;
    let inventory = write(".cdx.json", &sbom::of(&PROGRAMS, &target, &root)?)?;
    let mut said = String::new();
    for (program, bytes) in &files {
        let small = archive::compress(bytes)?.len();
        let megabyte = 1_000_000.0;
        said += &format!(
            "{program:12} {:5.1} MB, compressed {:4.1} MB\n",
            bytes.len() as f64 / megabyte,
            small as f64 / megabyte
        );
    }
    said += &format!("image        {tag}\ndigest       {}\n", image.digest);
    said += &format!("archive      {}\n", programs::from_here(&archive).display());
    said += &format!(
        "inventory    {}\n",
        programs::from_here(&inventory).display()
    );
    io::stdout().write_all(said.as_bytes())?;
    match &options.expect {
        Some(expected) if *expected != image.digest => {
            bail!("the image is not the one expected, {expected}: the build is not reproducible")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The C library is linked in: it comes with every Linux compiler, and its allocator is the one that
/// the figures were measured with.
fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn build(root: &Path, target: &str) -> Result<PathBuf> {
    let directory = programs::target_directory()?;
    // Paths of this machine are in the messages of panics: the same place gives the same bytes, and
    // the Dockerfile's place is the same everywhere.
    let flags = ["-C", "target-feature=+crt-static"];
    let mut cargo =
        std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(root)
        .args([
            "build",
            "--release",
            "--locked",
            "--bins",
            "--target",
            target,
        ])
        .arg("--target-dir")
        .arg(&directory)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env("CARGO_INCREMENTAL", "0")
        .env_remove("RUSTFLAGS");
    for package in PROGRAMS {
        cargo.args(["--package", package]);
    }
    if !cargo.status().context("failed to run cargo")?.success() {
        bail!("failed to build the programs of the image: see above");
    }
    Ok(directory.join(target).join("release"))
}

/// In an empty root there is nothing to link with.
fn require_static(program: &str, bytes: &[u8]) -> Result<()> {
    if bytes.windows(4).any(|part| part == b"/ld-") {
        bail!("failed to link {program} statically: it names a loader");
    }
    Ok(())
}
