//! The names of the files of a release, and the check whether all are there.

use std::path::Path;

use anyhow::Result;

use super::sums;
use crate::image::{Archive, Contents, HARNESS, Index, OZ, Profile, base_name};

/// The processors of images, in Go's notation.
pub(crate) const PROCESSORS: [&str; 2] = ["amd64", "arm64"];
/// The images.
pub(crate) const IMAGES: [&Contents; 2] = [&OZ, &HARNESS];
/// The programs of the command line, each in separate archives.
pub(crate) const PROGRAMS: [&str; 2] = ["ozctl", "kubectl-oz"];
/// The platforms that a release must have. Archives for darwin-amd64 are part of a release where they exist.
pub(crate) const PLATFORMS: [Platform; 3] = [
    Platform {
        os: "linux",
        arch: "amd64",
    },
    Platform {
        os: "linux",
        arch: "arm64",
    },
    Platform {
        os: "darwin",
        arch: "arm64",
    },
];
/// The manifest for krew.
pub(crate) const KREW: &str = "oz.krew.yaml";
/// The formula for Homebrew.
pub(crate) const FORMULA: &str = "ozctl.rb";
/// The release notes.
pub(crate) const NOTES: &str = "RELEASE_NOTES.md";
/// The chart, rendered with its defaults.
pub(crate) const INSTALL: &str = "install.yaml";
/// The definitions of oz, of harness runs and of composites, with their directories in the chart.
pub(crate) const DEFINITIONS: [(&str, &str); 3] = [
    ("crds.yaml", "crds"),
    ("crds-harness.yaml", "harness"),
    ("crds-composites.yaml", "composites"),
];

/// An operating system and processor, as Go and krew name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    pub(crate) os: &'static str,
    pub(crate) arch: &'static str,
}

impl Platform {
    /// Returns the name of the archive of a program.
    pub(crate) fn archive(self, program: &str) -> String {
        format!("{program}-{}-{}.tar.gz", self.os, self.arch)
    }
}

/// Returns the name of the chart's archive, as Helm gives it.
pub(crate) fn chart(version: &str) -> String {
    format!("oz-{version}.tgz")
}

/// Returns the names of all files that a release must have.
pub(crate) fn required(version: &str) -> Vec<String> {
    let mut names = vec![chart(version)];
    for contents in IMAGES {
        names.push(format!("{}-{version}.oci.tar", contents.name));
        for processor in PROCESSORS {
            let base = format!("{}-{version}-{processor}", contents.name);
            names.extend([format!("{base}.oci.tar"), format!("{base}.cdx.json")]);
        }
    }
    for platform in PLATFORMS {
        names.extend(PROGRAMS.map(|program| platform.archive(program)));
    }
    names.extend(DEFINITIONS.map(|(name, _)| name.to_owned()));
    names.extend([INSTALL, KREW, FORMULA, NOTES, sums::FILE].map(ToOwned::to_owned));
    names
}

/// Returns the faults of the release in `directory`, which was built of the commit `revision`.
pub(crate) fn faults(
    directory: &Path,
    version: &str,
    revision: Option<&str>,
) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for name in required(version) {
        if !directory.join(&name).exists() {
            faults.push(format!("{name} is missing in {}", directory.display()));
        }
    }
    for contents in IMAGES {
        faults.extend(image_faults(directory, contents, version, revision));
    }
    if directory.join(sums::FILE).exists() {
        faults.extend(sums::faults(directory)?);
    }
    Ok(faults)
}

/// Returns the archives of an image that are in `directory`.
///
/// # Errors
/// When one is cut or changed.
pub(crate) fn image_archives(directory: &Path, contents: &Contents) -> Result<Vec<Archive>> {
    let paths = PROCESSORS.map(|processor| {
        let base = base_name(contents, Profile::Release, processor);
        directory.join(format!("{base}.oci.tar"))
    });
    let existing = paths.iter().filter(|path| path.exists());
    existing.map(|path| Archive::read(path)).collect()
}

fn image_faults(
    directory: &Path,
    contents: &Contents,
    version: &str,
    revision: Option<&str>,
) -> Vec<String> {
    let archives = match image_archives(directory, contents) {
        Ok(archives) if archives.is_empty() => return Vec::new(),
        Ok(archives) => archives,
        Err(error) => return vec![format!("{error:#}")],
    };
    let mut faults = Vec::new();
    let name = contents.name;
    for archive in &archives {
        for (label, expected) in [("version", Some(version)), ("revision", revision)] {
            let found = archive.label(label);
            if expected.is_some() && found != expected {
                let (found, expected) = (found.unwrap_or("no value"), expected.unwrap_or("none"));
                faults.push(format!(
                    "image {name} for {} has label {label} {found}, not {expected}: build it again",
                    archive.processor()
                ));
            }
        }
    }
    match Index::new(archives).and_then(|index| Ok((index.file_name(), index.archive()?))) {
        Ok((file, bytes)) => {
            let is_other = std::fs::read(directory.join(&file)).is_ok_and(|it| it != bytes);
            if is_other {
                faults.push(format!(
                    "{file} is not the index of the archives next to it"
                ));
            }
        }
        Err(error) => faults.push(format!("{error:#}")),
    }
    faults
}
