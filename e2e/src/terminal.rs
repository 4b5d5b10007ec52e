//! A program on a separate terminal, controlled as by a user: through keys, the size of the window, and the
//! text on the screen.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use oz_testkit::eventually;
use parking_lot::Mutex;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// The time until a text must be on the screen.
const SCREEN_TIMEOUT: Duration = Duration::from_secs(90);

/// A text that no program writes: an escape sequence without a meaning.
const LAST: &str = "\x1b[9999z";

/// A program with a terminal. It is killed when this value is dropped.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    master: File,
    /// The other end, kept open so that the terminal outlives the program and can be read.
    slave: File,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts the command on a terminal of this size.
    ///
    /// # Errors
    /// When no terminal is available, or setsid (util-linux) is missing.
    pub fn start(command: &Command, rows: u16, columns: u16) -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("no terminal")?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?.into_string()?;
        resize(&master, rows, columns)?;
        let open = || -> Result<File> {
            let opened = rustix::fs::open(
                name.as_str(),
                rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY,
                rustix::fs::Mode::empty(),
            );
            Ok(opened.map(File::from)?)
        };
        // setsid makes the terminal the controlling one, which receives changes of size.
        let mut on_it = Command::new("setsid");
        on_it
            .arg("--ctty")
            .arg(command.get_program())
            .args(command.get_args())
            .env("TERM", "xterm-256color")
            .stdin(Stdio::from(open()?))
            .stdout(Stdio::from(open()?))
            .stderr(Stdio::from(open()?));
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => on_it.env(name, value),
                None => on_it.env_remove(name),
            };
        }
        let child = on_it.spawn().context("failed to run setsid")?;
        let written = Arc::new(Mutex::new(Vec::new()));
        let mut output = File::from(rustix::io::dup(&master)?);
        let seen = Arc::clone(&written);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The read fails when no process has the terminal open any more.
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                let mut seen = seen.lock();
                seen.extend_from_slice(buffer.get(..count).unwrap_or_default());
            }
        });
        Ok(Self {
            child,
            master: File::from(master),
            slave: open()?,
            written,
        })
    }

    /// Presses keys.
    ///
    /// # Errors
    /// When the terminal is closed.
    pub fn keys(&mut self, keys: &str) -> Result<()> {
        self.master.write_all(keys.as_bytes())?;
        Ok(())
    }

    /// Changes the size of the window.
    ///
    /// # Errors
    /// When the terminal is closed.
    pub fn resize(&self, rows: u16, columns: u16) -> Result<()> {
        resize(&self.master, rows, columns)
    }

    /// Returns all text that was written so far.
    #[must_use]
    pub fn screen(&self) -> String {
        self.read().replace(LAST, "")
    }

    fn read(&self) -> String {
        let written = self.written.lock();
        String::from_utf8_lossy(&written).into_owned()
    }

    /// Waits until a text is on the screen.
    ///
    /// # Errors
    /// When the text does not appear; the message contains the screen.
    pub async fn shows(&self, text: &str) -> Result<()> {
        self.shows_after(0, text).await
    }

    /// Waits until a text is on the screen after the given number of its bytes.
    ///
    /// # Errors
    /// When the text does not appear; the message contains the screen.
    pub async fn shows_after(&self, seen: usize, text: &str) -> Result<()> {
        let what = format!("{text:?} on the terminal");
        let shown = eventually(&what, SCREEN_TIMEOUT, async || {
            let screen = self.screen();
            let next = screen.get(seen..).unwrap_or_default();
            Ok(next.contains(text).then_some(()))
        });
        shown.await.with_context(|| self.screen())
    }

    /// Waits until the shell on it has the given size of the window, which it receives through another
    /// channel than keys.
    ///
    /// # Errors
    /// When the shell does not have the size in time.
    pub async fn is_sized(&mut self, rows: u16, columns: u16) -> Result<()> {
        self.keys(&format!(
            "until [ \"$(stty size)\" = '{rows} {columns}' ]; do sleep 0.1; done; echo si''zed {rows} {columns}\r"
        ))?;
        self.shows(&format!("sized {rows} {columns}")).await
    }

    /// Presses Ctrl-C while a command runs in the shell on it, which continues with the next line.
    ///
    /// # Errors
    /// When the command is not interrupted, or the rest of its line runs.
    pub async fn interrupts(&mut self) -> Result<()> {
        // Ctrl-C discards unread input.
        self.keys("(echo sta''rted; exec sleep 7000); echo sle''pt\r")?;
        self.shows("started").await?;
        self.keys("\u{3}")?;
        self.keys("echo co''de $?\r")?;
        self.shows("code 130").await?;
        ensure!(!self.screen().contains("slept"), "{}", self.screen());
        Ok(())
    }

    /// Waits until the program ends and all of its output is on the screen; returns its exit code.
    ///
    /// # Errors
    /// When it does not end, or is ended by a signal.
    pub async fn code(&mut self) -> Result<i32> {
        let child = &mut self.child;
        let status = eventually("the program to end", SCREEN_TIMEOUT, async || {
            Ok(child.try_wait()?)
        })
        .await;
        let status = status.with_context(|| self.screen())?;
        // The output that is written last is read last.
        self.slave.write_all(LAST.as_bytes())?;
        eventually("all that was written", SCREEN_TIMEOUT, async || {
            Ok(self.read().contains(LAST).then_some(()))
        })
        .await?;
        status.code().context("it was ended by a signal")
    }

    /// Checks whether keys are echoed and lines edited, as a shell leaves a terminal.
    ///
    /// # Errors
    /// When the terminal is closed.
    pub fn is_as_before(&self) -> Result<bool> {
        let modes = tcgetattr(&self.master)?.local_modes;
        Ok(modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(master: impl std::os::fd::AsFd, rows: u16, columns: u16) -> Result<()> {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(master, size)?)
}
