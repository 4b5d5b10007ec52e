//! Completion at the prompt of real shells, with a terminal and a Tab key.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;

use crate::sessions::terminal;
use crate::shop;

const SCREEN_TIMEOUT: Duration = Duration::from_secs(60);

/// A shell at a terminal, which ends when this value is dropped.
struct Shell {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Shell {
    /// Starts the shell by this command line, without the configuration of its user.
    fn start(words: &[&str], kubeconfig: &Path, home: &Path) -> Self {
        let (keyboard, terminal) = terminal();
        let programs = Path::new(env!("CARGO_BIN_EXE_ozctl")).parent().unwrap();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(programs.to_owned()).chain(std::env::split_paths(&path));
        // A shell requires the terminal to be the controlling one.
        let child = Command::new("setsid")
            .arg("--ctty")
            .args(words)
            .env_clear()
            .env("PATH", std::env::join_paths(path).unwrap())
            .env("HOME", home)
            .env("KUBECONFIG", kubeconfig)
            .env("TERM", "xterm")
            .env("PS1", "$ ")
            .stdin(terminal.try_clone().unwrap())
            .stdout(terminal.try_clone().unwrap())
            .stderr(terminal)
            .spawn()
            .unwrap();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut output, seen) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                seen.lock().extend(buffer.iter().take(count));
            }
        });
        Self {
            child,
            keyboard,
            screen,
        }
    }

    /// Types the keys, and waits until `shown` is on the screen.
    fn types(&mut self, keys: &str, shown: &str) {
        let deadline = Instant::now() + SCREEN_TIMEOUT;
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        loop {
            let seen = String::from_utf8_lossy(&self.screen.lock()).into_owned();
            if seen.contains(shown) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "no {shown:?} after {keys:?}: {seen}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks whether the shell is installed. Panics if it is required, but is not installed.
fn is_there(shell: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|directory| directory.join(shell).is_file());
    let required = std::env::var_os("OZ_REQUIRE_ALL").is_some();
    assert!(there || !required, "{shell} is not installed");
    if !there {
        let _ = writeln!(std::io::stderr(), "skipped: {shell} is not installed");
    }
    there
}

/// Loads completion as the help describes, and presses Tab. Each shell draws its completions
/// differently, so the test turns the line into one that prints itself.
fn completes(words: &[&str], load: &str) {
    if !is_there(words[0]) {
        return;
    }
    let stub = shop::open();
    let kubeconfig = stub.kubeconfig(&json!({"token": "alices"}));
    let home = tempfile::tempdir().unwrap();
    let mut shell = Shell::start(words, &kubeconfig, home.path());
    shell.types(&format!("{load}; echo lo''aded\r"), "loaded");
    for (typed, line) in [
        ("ozctl exec deploy/", "ozctl exec deploy/web"),
        ("ozctl exec w", "ozctl exec web"),
        ("ozctl revoke alice-x", "ozctl revoke alice-x7k2p"),
    ] {
        // Press Tab; then type `echo :` at the beginning of the line, by Ctrl-A.
        shell.types(&format!("{typed}\t\u{1}echo :\r"), &format!(":{line}"));
    }
}

#[test]
fn bash_completes_what_a_template_leads_to() {
    completes(
        &["bash", "--norc", "--noprofile", "-i"],
        "source <(ozctl completion bash)",
    );
}

#[test]
fn zsh_completes_what_a_template_leads_to() {
    completes(&["zsh", "-f", "-i"], "source <(ozctl completion zsh)");
}

#[test]
fn fish_completes_what_a_template_leads_to() {
    completes(
        &["fish", "--no-config", "-i"],
        "ozctl completion fish | source",
    );
}
