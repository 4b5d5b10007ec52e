//! A program on a terminal of its own, driven as a person would: by keys, by the window's size, by
//! what stands on the screen.

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

/// How long anything on the screen may take to come.
const SCREEN_TIMEOUT: Duration = Duration::from_secs(90);

/// What no program writes: an escape sequence that means nothing.
const LAST: &str = "\x1b[9999z";

/// A program with a terminal. It is killed when this goes.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    master: File,
    /// Kept open, so that the terminal outlives the program and can be looked at.
    slave: File,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts the command on a terminal of this size.
    ///
    /// # Errors
    /// When there is no terminal to be had, or no setsid (util-linux).
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
        // It makes the terminal the controlling one, to which changes of size are told.
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
            // It ends with an error when nobody has the terminal any more.
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
    /// When the terminal is gone.
    pub fn keys(&mut self, keys: &str) -> Result<()> {
        self.master.write_all(keys.as_bytes())?;
        Ok(())
    }

    /// Gives the window another size.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn resize(&self, rows: u16, columns: u16) -> Result<()> {
        resize(&self.master, rows, columns)
    }

    /// All that was written so far.
    #[must_use]
    pub fn screen(&self) -> String {
        self.read().replace(LAST, "")
    }

    fn read(&self) -> String {
        let written = self.written.lock();
        String::from_utf8_lossy(&written).into_owned()
    }

    /// Waits until something stands on the screen.
    ///
    /// # Errors
    /// When it does not come; the message has what came.
    pub async fn shows(&self, text: &str) -> Result<()> {
        self.shows_after(0, text).await
    }

    /// Waits until something stands on the screen after so many bytes of it.
    ///
    /// # Errors
    /// When it does not come; the message has what came.
    pub async fn shows_after(&self, seen: usize, text: &str) -> Result<()> {
        let what = format!("{text:?} on the terminal");
        let shown = eventually(&what, SCREEN_TIMEOUT, async || {
            let screen = self.screen();
            let next = screen.get(seen..).unwrap_or_default();
            Ok(next.contains(text).then_some(()))
        });
        shown.await.with_context(|| self.screen())
    }

    /// Waits until the shell on it knows that the window has this size, which it is told by another channel than keys.
    ///
    /// # Errors
    /// When it never does.
    pub async fn is_sized(&mut self, rows: u16, columns: u16) -> Result<()> {
        self.keys(&format!(
            "until [ \"$(stty size)\" = '{rows} {columns}' ]; do sleep 0.1; done; echo si''zed {rows} {columns}\r"
        ))?;
        self.shows(&format!("sized {rows} {columns}")).await
    }

    /// Presses Ctrl-C while a command runs in the shell on it, which goes on with the next line.
    ///
    /// # Errors
    /// When the command is not interrupted, or the rest of its line is run.
    pub async fn interrupts(&mut self) -> Result<()> {
        // What Ctrl-C finds unread is thrown away with it.
        self.keys("(echo sta''rted; exec sleep 7000); echo sle''pt\r")?;
        self.shows("started").await?;
        self.keys("\u{3}")?;
        self.keys("echo co''de $?\r")?;
        self.shows("code 130").await?;
        ensure!(!self.screen().contains("slept"), "{}", self.screen());
        Ok(())
    }

    /// Waits until the program ends, and all that it wrote stands on the screen; its exit code.
    ///
    /// # Errors
    /// When it does not end, or by a signal.
    pub async fn code(&mut self) -> Result<i32> {
        let child = &mut self.child;
        let status = eventually("the program to end", SCREEN_TIMEOUT, async || {
            Ok(child.try_wait()?)
        })
        .await;
        let status = status.with_context(|| self.screen())?;
        // What is written last is read last.
        self.slave.write_all(LAST.as_bytes())?;
        eventually("all that was written", SCREEN_TIMEOUT, async || {
            Ok(self.read().contains(LAST).then_some(()))
        })
        .await?;
        status.code().context("it was ended by a signal")
    }

    /// Whether keys are echoed and lines edited, as a shell leaves a terminal.
    ///
    /// # Errors
    /// When the terminal is gone.
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
