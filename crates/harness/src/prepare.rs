//! The preparation of the files that the agent requires.

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

/// The file next to the raw output with the position up to which it was read, for a restart of this container.
const STATE: &str = ".oz-state";
/// The maximum size of that file in bytes.
const MAX_STATE: u64 = 256;

/// Returns the folder of the raw output, and the name of the file.
pub(crate) fn raw(shared: &Shared) -> Result<(Directory, String)> {
    let folder = shared.raw.parent();
    let name = shared.raw.file_name().and_then(|name| name.to_str());
    let (Some(folder), Some(name)) = (folder, name) else {
        anyhow::bail!("{} names no file", shared.raw.display());
    };
    Ok((Directory::new(volume(shared)?, folder)?, name.to_owned()))
}

/// Returns the volume that the containers share.
fn volume(shared: &Shared) -> Result<&Path> {
    let volume = shared.raw.parent().and_then(Path::parent);
    volume.with_context(|| format!("{} is in no folder of a volume", shared.raw.display()))
}

/// Waits until the agent may start.
///
/// # Errors
/// When the time is over; the error names the missing file.
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
    file.with_context(|| format!("{} does not exist yet", shared.raw.display()))?;
    Ok(())
}

/// Creates the folders.
///
/// # Errors
/// When a folder of the shared volume cannot be created. For a folder of the workspace, which an earlier run may have
/// replaced, the failure is only logged.
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

/// Writes the prompt, if it comes from the broker. The file exists as long as the pod.
///
/// # Errors
/// When the broker refuses the request, or the file cannot be written.
pub(crate) async fn prompt(options: &Options, broker: &Broker) -> Result<()> {
    let file = prompt_file(&options.shared)?;
    if !options.fetch_prompt || file.exists() {
        return Ok(());
    }
    let answer = broker.run().await?;
    let Some(text) = answer.prompt else {
        ensure!(
            options.shared.prompt.is_none(),
            "the broker has no prompt for this run, which accepts none after its start"
        );
        return Ok(());
    };
    let folder = file.parent().context("the prompt is in no folder")?;
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.context("the prompt has no name")?;
    Directory::new(folder, folder)?.replace(name, text.as_bytes(), 0o440)
}

/// Returns the path of the prompt, which may not exist.
fn prompt_file(shared: &Shared) -> Result<PathBuf> {
    match &shared.prompt {
        Some(file) => Ok(file.clone()),
        None => Ok(volume(shared)?.join("prompt/prompt.txt")),
    }
}

/// Returns the text of the prompt, up to the limit of an event.
pub(crate) fn prompt_text(file: &Path) -> Result<String> {
    const MOST: u64 = 256 * 1024;
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(MOST).read_to_end(&mut bytes))
        .with_context(|| format!("failed to read the prompt in {}", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The state of this container that survives a restart.
#[derive(Debug)]
pub(crate) struct State {
    file: File,
    /// The time at which the container began to follow the agent.
    pub(crate) started: Timestamp,
    /// The position up to which the raw output was read.
    pub(crate) position: Position,
    /// True for the first start in this pod.
    pub(crate) is_first: bool,
}

impl State {
    /// Reads the state of an earlier start. A file that another user wrote is ignored.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub(crate) fn load(folder: &Directory, now: Timestamp) -> Result<Self> {
        let mut file = folder.update(STATE)?;
        let is_own = file
            .metadata()
            .is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw());
        let mut text = String::new();
        if is_own {
            // A file that is not text contains no state.
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

    /// Writes the position up to which the raw output was read.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn advance(&mut self, position: Position) -> Result<()> {
        if position == self.position {
            return Ok(());
        }
        self.position = position;
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        let Position { file, offset } = self.position;
        // The text always has the same length, and so replaces the previous text completely.
        let text = format!("{file:020} {offset:020} {}\n", self.started);
        self.file
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.file.write_all(text.as_bytes()))
            .context("failed to remember how far the raw output was read")
    }
}
