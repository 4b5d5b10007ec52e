//! What has to be in its place before the agent starts.

use std::fs::File;
use std::io::{Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

use crate::args::{Options, Shared};
use crate::broker::Broker;
use crate::directory::Directory;
use crate::log;
use crate::tail::Position;

/// File beside the raw output that says how far it was read, for after a restart of this container.
const STATE: &str = ".oz-state";
/// The most bytes of that file.
const MAX_STATE: u64 = 256;

/// The folder of the raw output, and the file's name in it.
pub(crate) fn raw(shared: &Shared) -> Result<(Directory, String)> {
    let folder = shared.raw.parent();
    let name = shared.raw.file_name().and_then(|name| name.to_str());
    let (Some(folder), Some(name)) = (folder, name) else {
        anyhow::bail!("{} names no file", shared.raw.display());
    };
    Ok((Directory::new(volume(shared)?, folder)?, name.to_owned()))
}

/// The volume that the containers share.
fn volume(shared: &Shared) -> Result<&Path> {
    let volume = shared.raw.parent().and_then(Path::parent);
    volume.with_context(|| format!("{} is in no folder of a volume", shared.raw.display()))
}

/// Waits until the agent may start.
///
/// # Errors
/// What is missing when the time is over.
pub(crate) fn wait(shared: &Shared, within: Duration) -> Result<()> {
    const PAUSE: Duration = Duration::from_millis(10);
    let until = Instant::now() + within;
    loop {
        match check(shared) {
            Err(_) if Instant::now() < until => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
}

fn check(shared: &Shared) -> Result<()> {
    if let Some(prompt) = &shared.prompt {
        ensure!(
            prompt.exists(),
            "there is no prompt in {}",
            prompt.display()
        );
    }
    let (folder, name) = raw(shared)?;
    let file = folder.read(&name)?;
    file.with_context(|| format!("{} is not there yet", shared.raw.display()))?;
    Ok(())
}

/// Makes the folders.
///
/// # Errors
/// One of the shared volume. One of the workspace that cannot be made, since an earlier run left something in its
/// place, is said.
pub(crate) fn folders(options: &Options, transcript: &Directory) -> Result<()> {
    let volume = volume(&options.shared)?;
    raw(&options.shared)?.0.make()?;
    Directory::new(volume, &volume.join("events"))?.make()?;
    let home = options.workspace.join(".home");
    let home = Directory::new(&options.workspace, &home)?.make();
    for made in [home, transcript.make()] {
        if let Err(error) = made {
            log::say(&format!("{error:#}"));
        }
    }
    Ok(())
}

/// Puts the prompt in its place, if it comes from the broker. It stays there while the pod exists.
///
/// # Errors
/// The broker refuses it, or it cannot be written.
pub(crate) async fn prompt(options: &Options, broker: &Broker) -> Result<()> {
    let file = prompt_file(&options.shared)?;
    if !options.fetch_prompt || file.exists() {
        return Ok(());
    }
    let answer = broker.run().await?;
    let Some(text) = answer.prompt else {
        ensure!(
            options.shared.prompt.is_none(),
            "the broker has no prompt for this run, and it takes none while it runs"
        );
        return Ok(());
    };
    let folder = file.parent().context("the prompt is in no folder")?;
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.context("the prompt has no name")?;
    Directory::new(folder, folder)?.replace(name, text.as_bytes(), 0o440)
}

/// Where the prompt is, or would be.
fn prompt_file(shared: &Shared) -> Result<PathBuf> {
    match &shared.prompt {
        Some(file) => Ok(file.clone()),
        None => Ok(volume(shared)?.join("prompt/prompt.txt")),
    }
}

/// The text of the prompt, as far as an event has it.
pub(crate) fn prompt_text(file: &Path) -> Result<String> {
    const MOST: u64 = 256 * 1024;
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(MOST).read_to_end(&mut bytes))
        .with_context(|| format!("failed to read the prompt in {}", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What this container remembers while it starts again.
#[derive(Debug)]
pub(crate) struct State {
    file: File,
    /// Since when it follows the agent.
    pub(crate) started: Timestamp,
    /// Up to where the raw output was read.
    pub(crate) position: Position,
    /// Whether it is the first start in this pod.
    pub(crate) is_first: bool,
}

impl State {
    /// The state that an earlier start left; one that somebody else wrote counts for nothing.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub(crate) fn load(folder: &Directory, now: Timestamp) -> Result<Self> {
        let mut file = folder.update(STATE)?;
        let is_own = file
            .metadata()
            .is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw());
        let mut text = String::new();
        if is_own {
            // What is no text is no state.
            let _ = Read::by_ref(&mut file)
                .take(MAX_STATE)
                .read_to_string(&mut text);
        }
        let mut words = text.split_whitespace();
        let mut number = || words.next()?.parse::<u64>().ok();
        let position = number().zip(number());
        let position = position.map(|(file, offset)| Position { file, offset });
        let started = words.next().and_then(|word| word.parse().ok());
        let is_first = position.is_none() || started.is_none();
        let mut state = Self {
            file,
            started: started.unwrap_or(now),
            position: position.unwrap_or_default(),
            is_first,
        };
        state.write()?;
        Ok(state)
    }

    /// Remembers how far the raw output was read.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn advance(&mut self, position: Position) -> Result<()> {
        if position == self.position {
            return Ok(());
        }
        self.position = position;
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        let Position { file, offset } = self.position;
        // Of one length always, so that nothing of what stood there is left.
        let text = format!("{file:020} {offset:020} {}\n", self.started);
        self.file
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.file.write_all(text.as_bytes()))
            .context("failed to remember how far the raw output was read")
    }
}
