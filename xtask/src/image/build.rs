//! The programs of an image: static, and identical on every machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{Contents, Profile};

/// A program, and its content.
pub(crate) type Program = (&'static str, Vec<u8>);

/// Returns the target. The C library is linked in: it is part of every Linux compiler, and its allocator is
/// the one with which the figures were measured.
pub(crate) fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Returns the path of a program that was compiled into `directory`.
pub(crate) fn program_path(directory: &Path, profile: Profile, program: &str) -> PathBuf {
    let built = directory.join(target()).join(profile.to_string());
    built.join(program)
}

/// Compiles the programs into `directory`; returns name and content.
pub(super) fn build(
    contents: &Contents,
    root: &Path,
    directory: &Path,
    profile: Profile,
) -> Result<Vec<Program>> {
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
    let read = |program: &'static str| {
        let path = program_path(directory, profile, program);
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
}
