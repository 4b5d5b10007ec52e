//! `ozctl cp`: copies files to and from a pod, with the `tar` in its container, as kubectl does.

use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use clap::Args;
use oz_api::{ExecAccessRequest, Operation};
use oz_client::pods::{Command, EndingError, ending};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::access::{self, AccessFlags, Granted, Want};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::notices;
use crate::output;
use crate::session;
use crate::target::Target;

const CHUNK: usize = 64 * 1024;
/// The maximum number of chunks that wait for the slower side.
const QUEUED: usize = 16;
/// The maximum number of skipped files that are named.
const NAMED: usize = 5;

/// Copy files to and from a running pod
///
/// One of the two is TARGET:PATH. Needs `tar` in the container. Links are left
/// out: they could point to anything on the other side. What was left out is
/// named.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl cp deploy/web:/tmp/heap.hprof .
  ozctl cp ./fixtures pod/db-0:/tmp/ -c postgres")]
pub(crate) struct Cp {
    /// Source: a path, or TARGET:PATH
    source: CopyPath,
    /// Destination: a path, or TARGET:PATH
    destination: CopyPath,
    /// The container [default: the template's, else the pod's main one]
    #[arg(short, long)]
    container: Option<String>,
    #[command(flatten)]
    access: AccessFlags,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum CopyPath {
    Local(PathBuf),
    Remote(Target, String),
}

impl std::str::FromStr for CopyPath {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            Some((target, path)) if !target.starts_with(['/', '.']) && !target.is_empty() => {
                if path.is_empty() {
                    return Err(Failure::new(format!("{text}: no path after the colon")));
                }
                Ok(Self::Remote(target.parse()?, path.to_owned()))
            }
            _ if text.is_empty() => Err(Failure::new("an empty path")),
            _ => Ok(Self::Local(PathBuf::from(text))),
        }
    }
}

impl Cp {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let target = match (&self.source, &self.destination) {
            (CopyPath::Remote(target, _), CopyPath::Local(_)) => target,
            (CopyPath::Local(path), CopyPath::Remote(target, _)) => {
                // This check comes before any request for access.
                std::fs::symlink_metadata(path)
                    .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
                target
            }
            _ => {
                return Err(Failure::new("one of the two, and only one, is in a pod")
                    .next("write it as TARGET:PATH, such as deploy/web:/tmp/file"));
            }
        };
        let want = Want {
            target,
            operation: Operation::Exec,
            container: self.container.as_deref(),
            verb: "cp",
        };
        let body = async |cluster: &Cluster, granted: &Granted| {
            let copying = async {
                match (&self.source, &self.destination) {
                    (CopyPath::Remote(_, from), CopyPath::Local(to)) => {
                        download(context, cluster, granted, from, to).await
                    }
                    (CopyPath::Local(from), CopyPath::Remote(_, to)) => {
                        upload(context, cluster, granted, from, to).await
                    }
                    _ => Ok(()),
                }
            };
            tokio::select! {
                result = copying => result.map(|()| Exit::SUCCESS),
                () = session::end_of::<ExecAccessRequest>(granted) => Ok(Exit::ENDED),
            }
        };
        access::with::<ExecAccessRequest>(context, &self.access, want, body).await
    }
}

/// Returns the directory and the last name of a path in the container.
fn split(path: &str) -> (String, String) {
    let path = path.trim_end_matches('/');
    match path.rsplit_once('/') {
        Some(("", name)) => ("/".to_owned(), name.to_owned()),
        Some((directory, name)) => (directory.to_owned(), name.to_owned()),
        None => (".".to_owned(), path.to_owned()),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

async fn download(
    context: &Context,
    cluster: &Cluster,
    granted: &Granted,
    from: &str,
    to: &Path,
) -> Result<()> {
    let (directory, name) = split(from);
    if name.is_empty() || name == "." || name == ".." {
        return Err(Failure::new(format!("{from}: name a file or a directory")));
    }
    // A name with a leading dash is not an option.
    let member = format!("./{name}");
    let command = Command {
        words: words(&["tar", "-cf", "-", "-C", &directory, &member]),
        tty: false,
        stdin: false,
    };
    let mut process = session::open(cluster, granted, &command).await?;
    let status = process.take_status();
    let (sender, receiver) = mpsc::channel(QUEUED);
    let target = if to.is_dir() {
        to.join(&name)
    } else {
        to.to_owned()
    };
    let unpacking = tokio::task::spawn_blocking(move || unpack(receiver, &name, &target));
    let said = notices::read(context, process.stderr());
    let passing = async {
        if let Some(mut stdout) = process.stdout() {
            let mut buffer = vec![0; CHUNK];
            while let Ok(count) = stdout.read(&mut buffer).await {
                let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
                    break;
                };
                if sender.send(bytes.to_vec()).await.is_err() {
                    break;
                }
            }
        }
        drop(sender);
    };
    let ((), said) = tokio::join!(passing, said);
    let unpacked = unpacking
        .await
        .map_err(|error| Failure::new(format!("failed to unpack: {error}")))?;
    finished(status, &said, from).await?;
    let left_out = unpacked?;
    copied(
        context,
        &format!("from pod {}", granted.access.pod),
        granted,
        &left_out,
    );
    Ok(())
}

/// Prints the pod, the command to connect to it again, and the skipped files.
fn copied(context: &Context, which: &str, granted: &Granted, left_out: &[PathBuf]) {
    context.say(&format!(
        "Copied {which}; `ozctl exec pod/{}` opens a shell in the pod",
        granted.access.pod
    ));
    if left_out.is_empty() {
        return;
    }
    let shown = left_out
        .iter()
        .take(NAMED)
        .map(|path| path.display().to_string());
    let mut names = shown.collect::<Vec<_>>().join(", ");
    if let Some(more) = left_out.len().checked_sub(NAMED).filter(|&more| more > 0) {
        names.push_str(&format!(" and {more} more"));
    }
    context.say(&output::line(&format!(
        "Skipped, since only files and directories are copied: {names}"
    )));
}

/// Writes the files of an archive with the prefix `name` in all its members to `target`. Returns
/// the skipped members, such as links.
fn unpack(receiver: mpsc::Receiver<Vec<u8>>, name: &str, target: &Path) -> Result<Vec<PathBuf>> {
    let mut archive = tar::Archive::new(Received {
        receiver,
        left: io::Cursor::default(),
    });
    let failed = |path: &Path, error: io::Error| {
        Failure::new(format!("failed to write {}: {error}", path.display()))
    };
    let mut left_out = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let Some(inside) = inside(&path, name) else {
            return Err(Failure::new(format!(
                "the container's tar sent {}, which was not asked for",
                path.display()
            )));
        };
        let place = match inside.as_os_str().is_empty() {
            true => target.to_owned(),
            false => target.join(inside),
        };
        match entry.header().entry_type() {
            tar::EntryType::Directory => {
                std::fs::create_dir_all(&place).map_err(|error| failed(&place, error))?;
            }
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                if let Some(parent) = place.parent() {
                    std::fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
                }
                entry
                    .unpack(&place)
                    .map_err(|error| failed(&place, error))?;
            }
            _ => left_out.push(path),
        }
    }
    Ok(left_out)
}

/// Returns the path relative to `name`, if it is below `name` and leads nowhere else.
fn inside(path: &Path, name: &str) -> Option<PathBuf> {
    let mut parts = path
        .components()
        .filter(|part| !matches!(part, Component::CurDir));
    if parts.next() != Some(Component::Normal(name.as_ref())) {
        return None;
    }
    parts
        .map(|part| match part {
            Component::Normal(part) => Some(part),
            _ => None,
        })
        .collect()
}

async fn upload(
    context: &Context,
    cluster: &Cluster,
    granted: &Granted,
    from: &Path,
    to: &str,
) -> Result<()> {
    let own_name = || {
        let path = std::path::absolute(from).ok()?;
        Some(path.file_name()?.to_string_lossy().into_owned())
    };
    let into = to.ends_with('/') || is_directory(context, cluster, granted, to).await?;
    let (directory, name) = if into {
        let name = own_name().ok_or_else(|| {
            Failure::new(format!("{}: name a file or a directory", from.display()))
        })?;
        (to.to_owned(), name)
    } else {
        split(to)
    };
    let command = Command {
        words: words(&["tar", "-xmf", "-", "-C", &directory]),
        tty: false,
        stdin: true,
    };
    let mut process = session::open(cluster, granted, &command).await?;
    let status = process.take_status();
    let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(QUEUED);
    let from_path = from.to_owned();
    let packing = tokio::task::spawn_blocking(move || pack(sender, &from_path, &name));
    let stdin = process.stdin();
    let stdout = process.stdout();
    let errors = notices::read(context, process.stderr());
    let passing = async {
        if let Some(mut stdin) = stdin {
            while let Some(bytes) = receiver.recv().await {
                if stdin.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            let _ = stdin.shutdown().await;
        }
        receiver.close();
    };
    let ((), errors, _) = tokio::join!(passing, errors, notices::read(context, stdout));
    let packed = packing
        .await
        .map_err(|error| Failure::new(format!("failed to pack: {error}")))?;
    finished(status, &errors, to).await?;
    copied(
        context,
        &format!("to pod {}", granted.access.pod),
        granted,
        &packed?,
    );
    Ok(())
}

async fn is_directory(
    context: &Context,
    cluster: &Cluster,
    granted: &Granted,
    path: &str,
) -> Result<bool> {
    let command = Command {
        words: words(&["test", "-d", path]),
        tty: false,
        stdin: false,
    };
    let mut process = session::open(cluster, granted, &command).await?;
    let status = process.take_status();
    let (stdout, stderr) = (process.stdout(), process.stderr());
    tokio::join!(
        notices::read(context, stdout),
        notices::read(context, stderr)
    );
    let status = match status {
        Some(status) => status.await,
        None => None,
    };
    Ok(ending(status, &command.words)? == Exit::SUCCESS)
}

/// Packs a file or a directory under another name. Returns the skipped files, such as links.
fn pack(sender: mpsc::Sender<Vec<u8>>, from: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let mut archive = tar::Builder::new(io::BufWriter::with_capacity(CHUNK, Sent(sender)));
    archive.follow_symlinks(false);
    let mut left_out = Vec::new();
    add(&mut archive, from, Path::new(name), &mut left_out)?;
    let packed = archive.into_inner().and_then(|mut rest| rest.flush());
    packed.map_err(|error| Failure::new(format!("failed to send {}: {error}", from.display())))?;
    Ok(left_out)
}

fn add<W: Write>(
    archive: &mut tar::Builder<W>,
    from: &Path,
    name: &Path,
    left_out: &mut Vec<PathBuf>,
) -> Result<()> {
    let failed =
        |error: io::Error| Failure::new(format!("failed to send {}: {error}", from.display()));
    let kind = std::fs::symlink_metadata(from).map_err(failed)?.file_type();
    if kind.is_dir() {
        archive.append_dir(name, from).map_err(failed)?;
        for entry in std::fs::read_dir(from).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let inside = name.join(entry.file_name());
            add(archive, &entry.path(), &inside, left_out)?;
        }
        return Ok(());
    }
    if kind.is_file() {
        archive.append_path_with_name(from, name).map_err(failed)?;
    } else {
        left_out.push(from.to_owned());
    }
    Ok(())
}

async fn finished(
    status: Option<
        impl Future<Output = Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Status>>,
    >,
    said: &str,
    path: &str,
) -> Result<()> {
    let status = match status {
        Some(status) => status.await,
        None => None,
    };
    let ended = ending(status, &[]).map_err(|error| match error {
        EndingError::Missing { .. } => {
            Failure::new("there is no tar in the container, which copying needs")
                .next("name another container with -c, or use `ozctl exec … -- cat FILE`")
        }
        error => error.into(),
    })?;
    if ended == Exit::SUCCESS {
        return Ok(());
    }
    Err(Failure::new(format!("failed to copy {path}: {said}")))
}

/// The incoming archive, for a blocking reader.
struct Received {
    receiver: mpsc::Receiver<Vec<u8>>,
    left: io::Cursor<Vec<u8>>,
}

impl Read for Received {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = Read::read(&mut self.left, buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            match self.receiver.blocking_recv() {
                Some(bytes) => self.left = io::Cursor::new(bytes),
                None => return Ok(0),
            }
        }
    }
}

/// The outgoing archive, for a blocking writer.
struct Sent(mpsc::Sender<Vec<u8>>);

impl Write for Sent {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.blocking_send(bytes.to_vec()).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_path_is_local_or_in_pod() {
        let path = |text: &str| text.parse::<CopyPath>().ok();
        assert_eq!(path("./a:b"), Some(CopyPath::Local("./a:b".into())));
        assert_eq!(path("/tmp/x"), Some(CopyPath::Local("/tmp/x".into())));
        let there = CopyPath::Remote("deploy/web".parse().unwrap(), "/tmp/x".to_owned());
        assert_eq!(path("deploy/web:/tmp/x"), Some(there));
        assert_eq!(path("deploy/web:"), None);
    }

    #[test]
    fn an_archive_writes_nowhere_but_below_its_name() {
        for (path, below) in [
            ("./logs/a/b", Some("a/b")),
            ("logs", Some("")),
            ("logs/../../etc/passwd", None),
            ("/logs/a", None),
            ("other/a", None),
        ] {
            assert_eq!(
                inside(Path::new(path), "logs"),
                below.map(PathBuf::from),
                "{path}"
            );
        }
    }

    #[test]
    fn packed_folder_is_unpacked_without_links() {
        let directory = tempfile::tempdir().unwrap();
        let from = directory.path().join("from");
        std::fs::create_dir_all(from.join("deep")).unwrap();
        std::fs::write(from.join("deep/file"), vec![7; 3 * CHUNK]).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", from.join("link")).unwrap();
        let (sender, receiver) = mpsc::channel(QUEUED);
        let source = from.clone();
        let packing = std::thread::spawn(move || pack(sender, &source, "name"));
        let to = directory.path().join("to");
        assert!(unpack(receiver, "name", &to).unwrap().is_empty());
        let left_out = packing.join().unwrap().unwrap();
        assert_eq!(left_out, [from.join("link")]);
        assert_eq!(
            std::fs::read(to.join("deep/file")).unwrap().len(),
            3 * CHUNK
        );
        assert!(!to.join("link").exists());
    }
}
