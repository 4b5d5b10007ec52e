//! Recordings as files below a directory. An incomplete file has another name, and becomes visible complete, by a
//! rename that overwrites no file; then it is on the disk.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use hyper::body::Bytes;

use super::{Put, StorageError};

/// The prefix of the names of incomplete files. No name of a stored file has it.
const PARTIAL: &str = ".partial-";

/// The directory of the [module](self).
#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
}

impl Directory {
    /// # Errors
    /// When the path is not absolute, or the directory cannot be made.
    pub(super) fn open(path: &str) -> anyhow::Result<Self> {
        let root = PathBuf::from(path);
        if !root.is_absolute() {
            bail!("{path:?} is not an absolute path: write file:///DIRECTORY");
        }
        let made = private().create(&root);
        made.with_context(|| format!("failed to make directory {}", root.display()))?;
        Ok(Self { root })
    }

    pub(super) async fn put(&self, name: &str, bytes: Bytes) -> Result<Put, StorageError> {
        let path = self.root.join(name);
        let root = self.root.clone();
        apart("store", name, move || put(&root, &path, &bytes)).await
    }

    pub(super) async fn get(
        &self,
        name: &str,
        limit: usize,
    ) -> Result<Option<Bytes>, StorageError> {
        let path = self.root.join(name);
        let read = apart("read", name, move || read(&path, limit)).await?;
        match read {
            Some(bytes) if bytes.len() > limit => Err(StorageError::TooLarge {
                name: name.to_owned(),
                limit,
            }),
            other => Ok(other.map(Bytes::from)),
        }
    }

    pub(super) async fn list(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, StorageError> {
        let root = self.root.clone();
        let (begins, from) = (prefix.to_owned(), after.to_owned());
        let list = move || {
            let mut listing = Listing {
                prefix: begins,
                after: from,
                limit,
                names: Vec::new(),
            };
            listing.walk(&root, "")?;
            Ok(listing.names)
        };
        apart("list", prefix, list).await
    }
}

/// Runs work that waits for a disk on a thread for blocking work.
async fn apart<T: Send + 'static>(
    what: &'static str,
    name: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, StorageError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
    done.map_err(|error| StorageError::Unavailable {
        what,
        name: name.to_owned(),
        why: error.to_string(),
    })
}

fn private() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
}

fn put(root: &Path, path: &Path, bytes: &[u8]) -> io::Result<Put> {
    let parent = path.parent().unwrap_or(root);
    private().create(parent)?;
    // The mode of the file is 0600.
    let mut partial = tempfile::Builder::new()
        .prefix(PARTIAL)
        .tempfile_in(parent)?;
    partial.write_all(bytes)?;
    partial.as_file().sync_all()?;
    let put = match partial.persist_noclobber(path) {
        Ok(_) => Put::Stored,
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Put::Exists,
        Err(error) => return Err(error.error),
    };
    // Also when the file existed: the process that wrote it may not have reached this step.
    let directories = parent.ancestors();
    for directory in directories.take_while(|directory| directory.starts_with(root)) {
        File::open(directory)?.sync_all()?;
    }
    Ok(put)
}

/// Reads the file, up to one byte more than `limit`.
fn read(path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let enough = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    file.take(enough).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// A request for names, and the names found so far.
struct Listing {
    prefix: String,
    after: String,
    limit: usize,
    names: Vec<String>,
}

impl Listing {
    /// Adds the names below `directory`, which begin with `path`.
    fn walk(&mut self, directory: &Path, path: &str) -> io::Result<()> {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut below = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let is_directory = entry.file_type()?.is_dir();
            if super::is_segment(&name) {
                // With the slash that follows: `a-b` is before `a/b`.
                below.push(format!(
                    "{path}{name}{}",
                    if is_directory { "/" } else { "" }
                ));
            }
        }
        below.sort_unstable();
        for name in below {
            if self.names.len() >= self.limit {
                break;
            }
            match name.strip_suffix('/') {
                Some(short) if self.reaches(&name) => {
                    let segment = short.rsplit('/').next().unwrap_or(short);
                    self.walk(&directory.join(segment), &name)?;
                }
                Some(_) => {}
                None if name.starts_with(&self.prefix) && name > self.after => {
                    self.names.push(name);
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Checks whether a directory, given by a name that ends in a slash, may contain requested names.
    fn reaches(&self, directory: &str) -> bool {
        let within = directory.starts_with(&self.prefix) || self.prefix.starts_with(directory);
        within && (directory > self.after.as_str() || self.after.starts_with(directory))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::super::{S3Options, Storage};
    use super::*;

    const NAME: &str = "shop/fix/20261125t190000z-gate-0/000000.cast.zst";

    fn storage(directory: &TempDir) -> Storage {
        let below = directory.path().join("recordings");
        let url = format!("file://{}", below.display());
        Storage::new(&url, &S3Options::default()).unwrap()
    }

    #[tokio::test]
    async fn stored_file_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let storage = storage(&directory);
        assert_eq!(storage.get(NAME, 100).await.unwrap(), None);
        let first = storage.put(NAME, Bytes::from("first")).await;
        assert_eq!(first.unwrap(), Put::Stored);
        for again in ["second", "first"] {
            let put = storage.put(NAME, Bytes::from(again)).await;
            assert_eq!(put.unwrap(), Put::Exists);
        }
        let read = storage.get(NAME, 5).await.unwrap();
        assert_eq!(read.unwrap(), "first");
        let error = storage.get(NAME, 4).await.unwrap_err();
        assert_eq!(error.reason(), "TooLarge");
        assert!(storage.put("shop/../../x", Bytes::new()).await.is_err());
        assert_eq!(storage.get("shop", 5).await.unwrap(), None, "a directory");
    }

    #[tokio::test]
    async fn concurrent_puts_store_single_object() {
        let directory = tempfile::tempdir().unwrap();
        let storage = storage(&directory);
        let puts = (0..8_u8).map(|number| storage.put(NAME, Bytes::from(vec![number; 4096])));
        let puts = futures::future::try_join_all(puts).await.unwrap();
        let stored: Vec<usize> = (0..8).filter(|at| puts[*at] == Put::Stored).collect();
        let [at] = stored.as_slice() else {
            panic!("{puts:?}");
        };
        let read = storage.get(NAME, 4096).await.unwrap().unwrap();
        assert_eq!(read, vec![u8::try_from(*at).unwrap(); 4096]);
        assert_eq!(storage.list("", "", 100).await.unwrap(), [NAME]);
        let beside = directory.path().join("recordings").join(NAME);
        let left = fs::read_dir(beside.parent().unwrap()).unwrap();
        assert_eq!(left.count(), 1, "nothing is left of those that came late");
    }

    #[tokio::test]
    async fn stored_files_are_accessible_to_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let storage = storage(&directory);
        storage.put(NAME, Bytes::from("x")).await.unwrap();
        let mut path = directory.path().join("recordings").join(NAME);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        while path.pop() && path != directory.path() {
            assert_eq!(mode(&path), 0o700, "{}", path.display());
        }
    }

    #[tokio::test]
    async fn names_come_in_the_order_of_their_bytes_page_by_page() {
        let directory = tempfile::tempdir().unwrap();
        let storage = storage(&directory);
        let mut names = BTreeSet::new();
        for (parent, files) in [
            ("shop/fix", ["0", "1"]),
            ("shop/fix-2", ["0", "1"]),
            ("shop/fix.b", ["a", "b"]),
            ("shop", ["fix-1", "z"]),
            ("bank/a/b/c", ["0", "1"]),
        ] {
            for file in files {
                let name = format!("{parent}/{file}");
                storage.put(&name, Bytes::new()).await.unwrap();
                names.insert(name);
            }
        }
        let partial = directory.path().join("recordings/shop/.partial-x");
        fs::write(partial, "x").unwrap();
        for prefix in [
            "",
            "shop",
            "shop/",
            "shop/fix",
            "shop/fix/",
            "shop/fix-",
            "none/",
        ] {
            let expected: Vec<&String> = names.iter().filter(|n| n.starts_with(prefix)).collect();
            for limit in 1..=11 {
                let mut listed: Vec<String> = Vec::new();
                loop {
                    let after = listed.last().cloned().unwrap_or_default();
                    let page = storage.list(prefix, &after, limit).await.unwrap();
                    assert!(page.len() <= limit);
                    if page.is_empty() {
                        break;
                    }
                    listed.extend(page);
                }
                assert_eq!(
                    listed.iter().collect::<Vec<_>>(),
                    expected,
                    "{prefix} {limit}"
                );
            }
        }
    }

    #[tokio::test]
    async fn unwritable_directory_error_names_stored_object() {
        let directory = tempfile::tempdir().unwrap();
        let storage = storage(&directory);
        fs::write(directory.path().join("recordings/shop"), "in the way").unwrap();
        let error = storage.put(NAME, Bytes::new()).await.unwrap_err();
        assert_eq!(error.reason(), "Unavailable");
        assert!(error.to_string().contains(NAME), "{error}");
    }
}
