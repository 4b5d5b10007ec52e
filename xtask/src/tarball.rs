//! Archives with fixed times and owners: the same files give the same bytes.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::{Context as _, Result, bail, ensure};
use flate2::read::MultiGzDecoder;
use oz_testkit::compress;
use tar::{Archive, Builder, EntryType, Header};

/// The time of all files, 1980-01-01T00:00:00Z: tar warns about earlier times.
const TIME: u64 = 315_532_800;

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    /// A file that is not run.
    File(Vec<u8>),
    /// A program.
    Program(Vec<u8>),
    /// A symbolic link.
    Link(String),
}

impl Member {
    /// Returns the content of a file or program.
    pub(crate) fn content(&self) -> Option<&[u8]> {
        match self {
            Self::File(content) | Self::Program(content) => Some(content),
            Self::Link(_) => None,
        }
    }
}

/// The members by path.
pub(crate) type Members = BTreeMap<String, Member>;

/// Packs the members, in the order of their paths.
pub(crate) fn pack(members: &Members) -> Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for (path, member) in members {
        let (kind, mode, content) = match member {
            Member::File(content) => (EntryType::Regular, 0o644, content.as_slice()),
            Member::Program(content) => (EntryType::Regular, 0o755, content.as_slice()),
            Member::Link(_) => (EntryType::Symlink, 0o777, [].as_slice()),
        };
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(TIME);
        header.set_size(content.len() as u64);
        match member {
            Member::Link(target) => archive.append_link(&mut header, path, target),
            _ => archive.append_data(&mut header, path, content),
        }
        .with_context(|| format!("failed to put {path} into an archive"))?;
    }
    archive.into_inner().context("failed to end an archive")
}

/// Packs the members, and compresses the archive.
pub(crate) fn pack_compressed(members: &Members) -> Result<Vec<u8>> {
    compress(&pack(members)?)
}

/// Reads an archive; directories are left out.
///
/// # Errors
/// When it is cut, contains a path twice, or other members than files, links and directories.
pub(crate) fn unpack(archive: &[u8]) -> Result<Members> {
    let mut members = Members::new();
    let mut archive = Archive::new(archive);
    for entry in archive.entries().context("failed to read an archive")? {
        let mut entry = entry.context("failed to read an archive: it is cut, or no tar file")?;
        let path = entry
            .path()
            .context("failed to read a path of an archive")?;
        let path = path.display().to_string();
        let header = entry.header();
        let (kind, mode, size) = (header.entry_type(), header.mode()?, entry.size());
        let member = match kind {
            EntryType::Directory | EntryType::XGlobalHeader => continue,
            EntryType::Symlink => {
                let target = entry.link_name()?.context("a link without a target")?;
                Member::Link(target.display().to_string())
            }
            EntryType::Regular | EntryType::Continuous => {
                let mut content = Vec::new();
                entry
                    .read_to_end(&mut content)
                    .with_context(|| format!("failed to read {path} of an archive"))?;
                ensure!(content.len() as u64 == size, "the archive is cut in {path}");
                if mode & 0o100 == 0 {
                    Member::File(content)
                } else {
                    Member::Program(content)
                }
            }
            other => bail!("{path} in an archive is of kind {other:?}"),
        };
        ensure!(
            members.insert(path.clone(), member).is_none(),
            "{path} is in an archive twice"
        );
    }
    Ok(members)
}

/// Reads a compressed archive.
///
/// # Errors
/// As [`unpack`].
pub(crate) fn unpack_compressed(archive: &[u8]) -> Result<Members> {
    let mut bytes = Vec::new();
    MultiGzDecoder::new(archive)
        .read_to_end(&mut bytes)
        .context("failed to decompress an archive: it is cut, or not compressed by gzip")?;
    unpack(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members() -> Members {
        let file = |text: &str| text.as_bytes().to_vec();
        Members::from([
            ("LICENSE".to_owned(), Member::File(file("licence"))),
            ("ozctl".to_owned(), Member::Program(file("program"))),
            ("kubectl-oz".to_owned(), Member::Link("ozctl".to_owned())),
        ])
    }

    #[test]
    fn archive_has_its_members_and_the_same_bytes_each_time() {
        let archive = pack_compressed(&members()).unwrap();
        assert_eq!(pack_compressed(&members()).unwrap(), archive);
        assert_eq!(unpack_compressed(&archive).unwrap(), members());
    }

    /// Helm writes the current time into the archive of a chart.
    #[test]
    fn archives_that_differ_in_times_and_owners_are_equal_when_packed_again() {
        let of = |time: u64, user: u64| {
            let mut archive = Builder::new(Vec::new());
            for (path, content) in [("oz/values.yaml", "b: 1\n"), ("oz/Chart.yaml", "a: 1\n")] {
                let mut header = Header::new_gnu();
                header.set_mode(0o644);
                header.set_mtime(time);
                header.set_uid(user);
                header.set_size(content.len() as u64);
                let content = content.as_bytes();
                archive.append_data(&mut header, path, content).unwrap();
            }
            compress(&archive.into_inner().unwrap()).unwrap()
        };
        let again = |archive: &[u8]| pack_compressed(&unpack_compressed(archive).unwrap()).unwrap();
        let (one, other) = (of(1_700_000_000, 0), of(1_800_000_000, 1000));
        assert_ne!(one, other);
        assert_eq!(again(&one), again(&other));
    }

    #[test]
    fn cut_archive_is_refused_at_every_length() {
        let archive = pack(&members()).unwrap();
        // The content ends before the two blocks of zeros at the end.
        for length in (0..archive.len() - 1024).step_by(97) {
            let read = unpack(&archive[..length]);
            let is_complete = read.is_ok_and(|read| read == members());
            assert!(!is_complete, "{length}");
        }
        let compressed = pack_compressed(&members()).unwrap();
        assert!(unpack_compressed(&compressed[..compressed.len() - 9]).is_err());
    }
}
