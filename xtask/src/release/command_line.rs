//! The archives of ozctl and of kubectl's plugin: the program with its licence, notices, completions and man pages.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::artifacts::Platform;
use crate::krew;
use crate::tarball::{Member, Members};

/// The program in its archive.
const OZCTL: &str = "ozctl";
/// The program in the archive of the plugin.
const PLUGIN: &str = "kubectl-oz";
/// The name by which kubectl starts the plugin for completions.
const PLUGIN_COMPLETION: &str = "kubectl_complete-oz";
const NOTICES: &str = "NOTICES";
const COMPLETIONS: &str = "completions/";
/// The shells, and the names under which they look for completions.
const SHELLS: [(&str, &str); 5] = [
    ("bash", "ozctl.bash"),
    ("zsh", "_ozctl"),
    ("fish", "ozctl.fish"),
    ("powershell", "ozctl.ps1"),
    ("elvish", "ozctl.elv"),
];

/// A program that was built elsewhere: `OS-ARCH=FILE`.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) platform: Platform,
    pub(crate) path: std::path::PathBuf,
}

impl std::str::FromStr for Program {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (platform, path) = text.split_once('=').context("name it as OS-ARCH=FILE")?;
        let known = |(os, arch): &(&str, &str)| format!("{os}-{arch}") == platform;
        let Some((os, arch)) = krew::PLATFORMS.into_iter().find(known) else {
            let known = krew::PLATFORMS.map(|(os, arch)| format!("{os}-{arch}"));
            bail!("{platform} is not released: {}", known.join(", "));
        };
        Ok(Self {
            platform: Platform { os, arch },
            path: path.into(),
        })
    }
}

/// Returns the target of the compiler for a platform.
pub(crate) fn target(platform: Platform) -> String {
    let processor = match platform.arch {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    };
    match platform.os {
        "darwin" => format!("{processor}-apple-darwin"),
        _ => format!("{processor}-unknown-linux-gnu"),
    }
}

/// Returns the members of the archive of ozctl, from a program that runs on this machine: it writes its
/// completions itself.
///
/// # Errors
/// When the program fails, or a man page cannot be read.
pub(crate) fn members(root: &Path, program: &Path, notices: &str) -> Result<Members> {
    let failed = || format!("failed to read {}", program.display());
    let bytes = fs::read(program).with_context(failed)?;
    let licence = fs::read(root.join("LICENSE")).context("failed to read LICENSE")?;
    let mut members = Members::from([
        (OZCTL.to_owned(), Member::Program(bytes)),
        ("LICENSE".to_owned(), Member::File(licence)),
        (
            NOTICES.to_owned(),
            Member::File(notices.as_bytes().to_vec()),
        ),
    ]);
    for (shell, name) in SHELLS {
        let output = Command::new(program)
            .args(["completion", shell])
            .output()
            .with_context(|| format!("failed to run {}", program.display()))?;
        ensure!(
            output.status.success() && !output.stdout.is_empty(),
            "failed to write the completion for {shell}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        members.insert(format!("{COMPLETIONS}{name}"), Member::File(output.stdout));
    }
    let pages = root.join("docs/man");
    let failed = || format!("failed to list {}", pages.display());
    for entry in fs::read_dir(&pages).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        let name = path.file_name().context("a page without a name")?;
        let name = format!("man/{}", name.to_string_lossy());
        let page = fs::read(&path).with_context(|| format!("failed to read {name}"))?;
        members.insert(name, Member::File(page));
    }
    Ok(members)
}

/// Returns the members of the archive for another platform: the completions and pages are the same.
///
/// # Errors
/// When `bytes` is no program for `platform`.
pub(crate) fn for_platform(
    members: &Members,
    platform: Platform,
    bytes: &[u8],
    notices: &str,
) -> Result<Members> {
    let Platform { os, arch } = platform;
    ensure!(
        platform_of(bytes) == Some((os, arch)),
        "it is no program for {os}-{arch}"
    );
    let mut members = members.clone();
    members.insert(OZCTL.to_owned(), Member::Program(bytes.to_vec()));
    members.insert(
        NOTICES.to_owned(),
        Member::File(notices.as_bytes().to_vec()),
    );
    Ok(members)
}

/// Returns the members of the archive of the plugin. kubectl completes it by a second name of the program.
///
/// # Errors
/// When the archive of ozctl lacks the program.
pub(crate) fn plugin(members: &Members) -> Result<Members> {
    let mut plugin = members.clone();
    plugin.retain(|name, _| !name.starts_with(COMPLETIONS));
    let program = plugin.remove(OZCTL).context("the archive lacks ozctl")?;
    plugin.insert(PLUGIN.to_owned(), program);
    let link = Member::Link(PLUGIN.to_owned());
    plugin.insert(PLUGIN_COMPLETION.to_owned(), link);
    Ok(plugin)
}

/// Returns the operating system and processor of a program, from the head of its file: ELF, or Mach-O for one
/// processor, with 64 bits and the low byte first.
fn platform_of(program: &[u8]) -> Option<(&'static str, &'static str)> {
    let arch = |at: usize, names: [(&'static [u8], &'static str); 2]| {
        let bytes = program.get(at..)?;
        let found = names.into_iter().find(|(head, _)| bytes.starts_with(head));
        found.map(|(_, name)| name)
    };
    if program.starts_with(b"\x7fELF\x02\x01") {
        let arch = arch(18, [(&[0x3e, 0], "amd64"), (&[0xb7, 0], "arm64")])?;
        return Some(("linux", arch));
    }
    program.strip_prefix(&[0xcf, 0xfa, 0xed, 0xfe])?;
    let arch = arch(4, [(&[7, 0, 0, 1], "amd64"), (&[12, 0, 0, 1], "arm64")])?;
    Some(("darwin", arch))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the head of a program for a platform.
    pub(crate) fn program(os: &str, arch: &str) -> Vec<u8> {
        let is_arm = arch == "arm64";
        if os == "darwin" {
            let processor = if is_arm { 12 } else { 7 };
            return vec![0xcf, 0xfa, 0xed, 0xfe, processor, 0, 0, 1];
        }
        let mut program = b"\x7fELF\x02\x01".to_vec();
        program.resize(18, 0);
        program.extend([if is_arm { 0xb7 } else { 0x3e }, 0]);
        program
    }

    #[test]
    fn platform_of_a_program_is_read_from_its_head() {
        for (os, arch) in krew::PLATFORMS {
            assert_eq!(platform_of(&program(os, arch)), Some((os, arch)));
        }
        assert_eq!(platform_of(b"#!/bin/sh\n"), None);
        assert_eq!(platform_of(b""), None);
        let this = fs::read(std::env::current_exe().unwrap()).unwrap();
        let expected = (std::env::consts::OS, oz_testkit::Image::architecture());
        assert_eq!(platform_of(&this), Some(expected));
    }

    #[test]
    fn program_from_elsewhere_has_a_released_platform() {
        let program: Program = "darwin-arm64=/tmp/ozctl".parse().unwrap();
        assert_eq!(target(program.platform), "aarch64-apple-darwin");
        assert_eq!(program.path, Path::new("/tmp/ozctl"));
        for wrong in ["darwin-arm64", "windows-amd64=ozctl", "=ozctl"] {
            assert!(wrong.parse::<Program>().is_err(), "{wrong}");
        }
    }

    /// `echo` instead of ozctl.
    #[test]
    fn archive_has_program_licence_notices_completions_and_pages() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("docs/man")).unwrap();
        fs::write(root.join("docs/man/ozctl.1"), "page").unwrap();
        fs::write(root.join("LICENSE"), "licence").unwrap();
        let members = members(root, Path::new("/bin/echo"), "notices").unwrap();
        let expected = [
            "LICENSE",
            "NOTICES",
            "completions/_ozctl",
            "completions/ozctl.bash",
            "completions/ozctl.elv",
            "completions/ozctl.fish",
            "completions/ozctl.ps1",
            "man/ozctl.1",
            "ozctl",
        ];
        assert!(members.keys().eq(expected), "{members:?}");
        let zsh = members["completions/_ozctl"].content().unwrap();
        assert_eq!(zsh, b"completion zsh\n");
        let plugin = plugin(&members).unwrap();
        let expected = [
            "LICENSE",
            "NOTICES",
            "kubectl-oz",
            "kubectl_complete-oz",
            "man/ozctl.1",
        ];
        assert!(plugin.keys().eq(expected), "{plugin:?}");
        assert_eq!(plugin["kubectl-oz"], members["ozctl"]);
        let platform = Platform {
            os: "darwin",
            arch: "arm64",
        };
        let mac = program("darwin", "arm64");
        let other = for_platform(&members, platform, &mac, "others").unwrap();
        assert_eq!(other["ozctl"], Member::Program(mac));
        assert_eq!(other["NOTICES"], Member::File(b"others".to_vec()));
        assert_eq!(other["man/ozctl.1"], members["man/ozctl.1"]);
        let linux = program("linux", "arm64");
        assert!(for_platform(&members, platform, &linux, "").is_err());
    }
}
