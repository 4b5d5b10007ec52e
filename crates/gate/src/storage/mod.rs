//! The permanent store of recordings: a directory, or a bucket of S3. The gate never overwrites stored data: the first
//! content of a part of a recording remains. The exception is a bucket without conditional writes.

mod error;
mod file;
mod s3;

use std::sync::Arc;

use anyhow::{Context as _, bail};
use hyper::body::Bytes;

pub(crate) use error::StorageError;
use file::Directory;
use s3::S3;
pub(crate) use s3::S3Options;

/// The maximum length of a name in bytes: the limit of S3.
const MAX_NAME: usize = 1024;
/// The maximum length of a segment of a name in bytes: the limit of file systems.
const MAX_SEGMENT: usize = 255;

/// A store. Clones refer to the same store.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    /// A directory, which may be a volume that other pods mount as well.
    File(Arc<Directory>),
    /// A bucket.
    S3(Arc<S3>),
}

/// The result of storing a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// The part is stored.
    Stored,
    /// The name already existed, and its content is unchanged.
    Exists,
}

impl Storage {
    /// Returns the store that a URL names: `file:///DIRECTORY` or `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    /// When the URL names no store, or one that cannot be used.
    pub(crate) fn new(url: &str, s3: &S3Options) -> anyhow::Result<Self> {
        let name = || format!("invalid configuration: gate.recordings.url: {url:?}");
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

    /// Stores a part that does not exist yet. An existing part is unchanged, except in a bucket without conditional
    /// writes.
    ///
    /// # Errors
    /// When the part could not be stored; it may be stored nevertheless, if the response was lost.
    pub(crate) async fn put(&self, name: &str, bytes: Bytes) -> Result<Put, StorageError> {
        check(name)?;
        match self {
            Self::File(directory) => directory.put(name, bytes).await,
            Self::S3(bucket) => bucket.put(name, bytes).await,
        }
    }

    /// Returns the stored content, of at most `limit` bytes; `None` if the name does not exist.
    ///
    /// # Errors
    /// When the content cannot be read, or is larger.
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

    /// Returns the names that begin with `prefix` and follow `after`, at most `limit`, in the order of their bytes.
    ///
    /// # Errors
    /// When the names cannot be listed.
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

/// Checks that a name stays below the root of the store, and is valid in every store.
fn check(name: &str) -> Result<(), StorageError> {
    let fine = name.len() <= MAX_NAME && name.split('/').all(is_segment);
    fine.then_some(())
        .ok_or_else(|| StorageError::Name(quotable(name)))
}

/// Checks the beginning of a name, as [`check`] does.
fn check_prefix(prefix: &str) -> Result<(), StorageError> {
    let (whole, last) = match prefix.rsplit_once('/') {
        Some((whole, last)) => (Some(whole), last),
        None => (None, prefix),
    };
    let fine =
        whole.is_none_or(|whole| check(whole).is_ok()) && (last.is_empty() || is_segment(last));
    fine.then_some(())
        .ok_or_else(|| StorageError::Name(quotable(prefix)))
}

fn is_segment(segment: &str) -> bool {
    let letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    // A name that begins with a dot is not yet complete.
    (1..=MAX_SEGMENT).contains(&segment.len())
        && segment.bytes().all(letter)
        && !segment.starts_with('.')
}

/// Returns the part of an invalid name that an error quotes.
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
            assert!(Storage::new(url, &S3Options::default()).is_err(), "{url}");
        }
    }
}
