//! Where recordings are stored for good: a directory, or a bucket of S3. What is there is never written over, by whom ever it
//! was put: a part of a recording is what it was first.

mod file;
mod s3;

use std::sync::Arc;

use anyhow::{Context as _, bail};
use hyper::body::Bytes;

use file::Directory;
use s3::S3;
pub(crate) use s3::S3Args;

/// How many bytes a name has at most: what S3 allows.
const MAX_NAME: usize = 1024;
/// How many bytes one of its segments has: what file systems allow.
const MAX_SEGMENT: usize = 255;

/// A store. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    /// Below a directory, which may be a volume that others have as well.
    File(Arc<Directory>),
    /// In a bucket.
    S3(Arc<S3>),
}

/// What came of putting something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// It is stored.
    Stored,
    /// Something was there already, and still is.
    Exists,
}

/// Why something was not stored or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StorageError {
    /// Nothing is stored by such a name.
    #[error(
        "failed to use {0:?} as a name: it must be segments of a-z, 0-9, '-' and '.' between slashes"
    )]
    Name(String),
    /// It has more bytes than are read.
    #[error("failed to read {name}: it has more than {limit} bytes")]
    TooLarge {
        /// Of what.
        name: String,
        /// How many are read.
        limit: usize,
    },
    /// The store does not answer, or fails: another try may succeed.
    #[error("failed to {what} {name}: {why}")]
    Unavailable {
        /// What was done: "store", "read" or "list".
        what: &'static str,
        /// To what.
        name: String,
        /// Why not.
        why: String,
    },
    /// The store does not allow it, until somebody changes something there or here.
    #[error(
        "failed to {what} {name}: {why}; see what the credentials may do, and whether the bucket is the right one"
    )]
    Refused {
        /// What was done, as above.
        what: &'static str,
        /// To what.
        name: String,
        /// Why not.
        why: String,
    },
}

impl StorageError {
    /// In a word, for metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Name(_) => "Name",
            Self::TooLarge { .. } => "TooLarge",
            Self::Unavailable { .. } => "Unavailable",
            Self::Refused { .. } => "Refused",
        }
    }
}

impl Storage {
    /// The store that a URL names: `file:///DIRECTORY` or `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    /// When it names none, or one that cannot be used.
    pub(crate) fn new(url: &str, s3: &S3Args) -> anyhow::Result<Self> {
        let name = || format!("failed to use --recordings={url}");
        if let Some(path) = url.strip_prefix("file://") {
            let directory = Directory::open(path).with_context(name)?;
            return Ok(Self::File(Arc::new(directory)));
        }
        if let Some(location) = url.strip_prefix("s3://") {
            let bucket = S3::new(location, s3).with_context(name)?;
            return Ok(Self::S3(Arc::new(bucket)));
        }
        bail!(
            "{}: it must be file:///DIRECTORY or s3://BUCKET/PREFIX",
            name()
        );
    }

    /// Stores what is not there yet. What is there stays.
    ///
    /// # Errors
    /// When it could not be stored; it may have been nevertheless, where the answer was lost.
    pub(crate) async fn put(&self, name: &str, bytes: Bytes) -> Result<Put, StorageError> {
        check(name)?;
        match self {
            Self::File(directory) => directory.put(name, bytes).await,
            Self::S3(bucket) => bucket.put(name, bytes).await,
        }
    }

    /// What is stored, of at most `limit` bytes; `None` if nothing is.
    ///
    /// # Errors
    /// When it cannot be read, or is larger.
    pub(crate) async fn get(
        &self,
        name: &str,
        limit: usize,
    ) -> Result<Option<Bytes>, StorageError> {
        check(name)?;
        match self {
            Self::File(directory) => directory.get(name, limit).await,
            Self::S3(bucket) => bucket.get(name, limit).await,
        }
    }

    /// The names that begin with `prefix` and come after `after`, at most `limit`, in the order of their bytes.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, StorageError> {
        check_prefix(prefix)?;
        match self {
            Self::File(directory) => directory.list(prefix, after, limit).await,
            Self::S3(bucket) => bucket.list(prefix, after, limit).await,
        }
    }
}

/// That a name stays below where things are stored, and is one in every store.
fn check(name: &str) -> Result<(), StorageError> {
    let fine = name.len() <= MAX_NAME && name.split('/').all(is_segment);
    fine.then_some(())
        .ok_or_else(|| StorageError::Name(quotable(name)))
}

/// As [`check`], of the beginning of a name.
fn check_prefix(prefix: &str) -> Result<(), StorageError> {
    let whole = prefix.rsplit_once('/').map_or("", |(whole, _)| whole);
    let last = &prefix[prefix
        .len()
        .min(whole.len() + usize::from(prefix.contains('/')))..];
    let fine = (whole.is_empty() && !prefix.starts_with('/') || check(whole).is_ok())
        && (last.is_empty() || is_segment(last));
    fine.then_some(())
        .ok_or_else(|| StorageError::Name(quotable(prefix)))
}

fn is_segment(segment: &str) -> bool {
    let letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    // What begins with a dot is not yet whole.
    (1..=MAX_SEGMENT).contains(&segment.len())
        && segment.bytes().all(letter)
        && !segment.starts_with('.')
}

/// Of a name that is none, what is told.
fn quotable(name: &str) -> String {
    name.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_where_things_are_stored() {
        let long = "a".repeat(256);
        for (name, fine) in [
            ("shop/fix/20261125t190000z-gate-1/000000.cast.zst", true),
            ("a", true),
            ("a/b..c", true),
            ("", false),
            ("/", false),
            ("/a", false),
            ("a/", false),
            ("a//b", false),
            ("..", false),
            ("a/../b", false),
            ("a/./b", false),
            ("a/.hidden", false),
            ("a\\b", false),
            ("a\0b", false),
            ("a%2fb", false),
            ("A", false),
            ("é", false),
            (&long, false),
        ] {
            assert_eq!(check(name).is_ok(), fine, "{name}");
        }
        for (prefix, fine) in [
            ("", true),
            ("shop", true),
            ("shop/", true),
            ("shop/fix/2026", true),
            ("/", false),
            ("/shop", false),
            ("shop//", false),
            ("../", false),
            ("shop/..", false),
        ] {
            assert_eq!(check_prefix(prefix).is_ok(), fine, "{prefix}");
        }
    }

    #[test]
    fn a_url_of_another_kind_is_refused() {
        for url in [
            "",
            "/recordings",
            "ftp://recordings",
            "file://recordings",
            "s3://bucket",
            "s3:///prefix",
        ] {
            assert!(Storage::new(url, &S3Args::default()).is_err(), "{url}");
        }
    }
}
