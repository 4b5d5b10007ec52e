//! Takes up the data that an earlier process left in the directory of a session, at whichever step it was killed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oz_gating::recording::{Form, PartName, SessionKey};
use oz_recording::frames;

use super::directories::{Directories, entries};
use super::open::read_name;
use super::session::{Inner, Sealed, Session, is_partial, whole_lines};
use super::state::{self, State};
use super::usage::Usage;

/// A recovered session, with the parts that are still to be stored.
#[derive(Debug)]
pub(super) struct TakenUp {
    pub(super) session: Arc<Session>,
    pub(super) sealed: Vec<Sealed>,
    /// True if an earlier process left the session open.
    pub(super) was_open: bool,
}

/// The content of the directory of a session.
#[derive(Default)]
struct Found {
    sealed: BTreeMap<u32, Sealed>,
    /// The open parts, and whether they are encrypted.
    open: BTreeMap<u32, (PathBuf, bool)>,
}

/// Takes the session up, and closes its open part; `None` if none of its data is needed any more.
///
/// # Errors
/// When a file is not one that a gate process leaves, or cannot be read. The directory stays unchanged.
pub(super) fn take_up(
    directories: &Arc<Directories>,
    usage: &Usage,
    key: SessionKey,
) -> io::Result<Option<TakenUp>> {
    let directory = directories.path(&key);
    let mut found = find(&directory, &key)?;
    let Some(state) = State::read(&directory, &key)? else {
        if !found.sealed.is_empty() || !found.open.is_empty() {
            return Err(io::Error::other(format!("{} is missing", state::NAME)));
        }
        directories.remove(&directory)?;
        return Ok(None);
    };
    let was_open = !state.finished;
    let share = usage.share(state.user().as_deref());
    let session = Session::with(directories, key, share, (state, true));
    {
        let mut inner = session.inner();
        inner.waiting = found.sealed.len();
        let next = inner.state.head().parts;
        if let Some(sealed) = found.sealed.get(&next) {
            // The part has its name, but the state does not include it: no reader has seen the part yet.
            let state = inner.state.after(&fs::read(&sealed.path)?);
            state.write(&directories.disk, &directory, true)?;
            inner.state = state;
        }
        let next = inner.state.head().parts;
        let beyond = found.sealed.range(next..).next().is_some();
        if beyond || found.open.range(next.saturating_add(1)..).next().is_some() {
            return Err(io::Error::other(format!(
                "it has parts after the {next} of {}",
                state::NAME
            )));
        }
        if let Some((path, encrypted)) = found.open.remove(&next) {
            let bytes = fs::read(&path)?;
            if let Some(sealed) = seal(&session, &mut inner, &bytes, encrypted)? {
                found.sealed.insert(next, sealed);
            }
            directories.disk.remove(&path)?;
        }
        for (path, _) in found.open.values() {
            directories.disk.remove(path)?;
        }
    }
    if !was_open && found.sealed.is_empty() {
        session.finish()?;
        return Ok(None);
    }
    Ok(Some(TakenUp {
        session: Arc::new(session),
        sealed: found.sealed.into_values().collect(),
        was_open,
    }))
}

/// Seals the whole lines or frames of an open part, if it has any. An encrypted part stays encrypted, as its key is
/// lost with the process that wrote it.
fn seal(
    session: &Session,
    inner: &mut Inner,
    bytes: &[u8],
    encrypted: bool,
) -> io::Result<Option<Sealed>> {
    let whole = if encrypted {
        frames::whole(bytes)
    } else {
        whole_lines(bytes)
    };
    if whole.is_empty() {
        return Ok(None);
    }
    let sealed = if encrypted {
        session.seal_as(inner, Form::Frames, whole)
    } else {
        session.seal_lines(inner, whole)
    };
    sealed.map(Some)
}

/// Returns the content of the directory. Removes files that were to be renamed.
fn find(directory: &Path, key: &SessionKey) -> io::Result<Found> {
    let mut found = Found::default();
    for path in entries(directory)? {
        let Some(name) = path.file_name().map(OsStr::to_string_lossy) else {
            continue;
        };
        if name == state::NAME {
            continue;
        }
        if is_partial(&path) {
            fs::remove_file(&path)?;
        } else if let Some((number, encrypted)) = read_name(&name) {
            let open = found.open.insert(number, (path, encrypted));
            if open.is_some() {
                return Err(io::Error::other(format!("it has part {number} open twice")));
            }
        } else if let Some(part) = PartName::read(&format!("{key}/{name}")) {
            let sealed = Sealed {
                name: format!("{key}/{name}"),
                length: fs::metadata(&path)?.len(),
                lines: 0,
                path,
            };
            if found.sealed.insert(part.number, sealed).is_some() {
                return Err(io::Error::other(format!(
                    "it has part {} twice",
                    part.number
                )));
            }
        } else {
            return Err(io::Error::other(format!(
                "{name} is not a file of the spool"
            )));
        }
    }
    Ok(found)
}
