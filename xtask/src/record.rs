//! `cargo xtask record`: the recording of ozctl in `docs/ozctl.cast`, and the same as text in the
//! README. Nothing of it is written by hand: it is what a person sees on a terminal of a real node
//! (root). Pauses are shortened where nothing happens, and keys come at the pace of a fast typist.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::PostParams;
use oz_e2e::{Piece, Scene, System, Terminal, repository};
use oz_testkit::{Cluster, ClusterOptions, Node, cargo_binary};
use serde_json::{Value, json};

use crate::screen::Screen;

const CAST: &str = "docs/ozctl.cast";
const README: &str = "README.md";
const BEGIN: &str = "<!-- recorded by `cargo xtask record` -->\n";
const END: &str = "<!-- end of the recording -->\n";
const ROWS: u16 = 24;
const COLUMNS: u16 = 100;
/// Between two keys.
const KEY: Duration = Duration::from_millis(40);
/// The longest that nothing is seen to happen.
const PAUSE: Duration = Duration::from_millis(700);

/// What is typed, and what is typed into it once it shows something.
const STORY: [(&str, &[(&str, &str)]); 5] = [
    ("ozctl templates", &[]),
    (
        "ozctl exec deploy/web --reason INC-42",
        &[("~ # ", "hostname\r"), ("\nweb-", "exit\r")],
    ),
    ("ozctl exec deploy/web -- cat /etc/hostname", &[]),
    ("ozctl requests", &[]),
    ("ozctl explain --template shell", &[]),
];

pub(crate) fn run() -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(record())?;
    Ok(ExitCode::SUCCESS)
}

async fn record() -> Result<()> {
    ensure!(
        Node::Real.is_possible()?,
        "the recording takes a real node: root and Debian packages"
    );
    let options = ClusterOptions {
        node: Node::Real,
        ..ClusterOptions::default()
    };
    let owner = Cluster::start(options).await?;
    // The scene takes a cluster that is there for good, which costs a few bytes.
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::attach(owner.state_dir())?));
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "shop").await?;
    let looking = serde_json::from_value(json!({
        "metadata": {"name": "people-may-look"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "oz-view-access",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs"}],
    }))?;
    scene
        .api::<k8s_openapi::api::rbac::v1::RoleBinding>()
        .create(&PostParams::default(), &looking)
        .await?;
    let kubeconfig = kubeconfig(cluster, scene.name())?;
    let mut film = Film::default();
    for (line, answers) in STORY {
        film.types(line);
        film.plays(&act(&kubeconfig, line, answers).await?);
    }
    film.prompt();
    let root = repository();
    std::fs::write(root.join(CAST), film.cast()?)
        .with_context(|| format!("failed to write {CAST}"))?;
    write_readme(&root.join(README), &film.text())?;
    drop(owner);
    Screen::new().line(&format!("recorded {CAST} and {README}"))
}

/// Alice's kubeconfig, with the scene's namespace as her own.
fn kubeconfig(cluster: &Cluster, namespace: &str) -> Result<PathBuf> {
    let text = std::fs::read_to_string(cluster.kubeconfig("alice"))?;
    let mut kubeconfig: Value = serde_json::from_str(&text).context("not JSON")?;
    kubeconfig["contexts"][0]["context"]["namespace"] = json!(namespace);
    let path = cluster.state_dir().join("recording.kubeconfig");
    std::fs::write(&path, kubeconfig.to_string())?;
    Ok(path)
}

/// Runs one line on a terminal.
async fn act(kubeconfig: &Path, line: &str, answers: &[(&str, &str)]) -> Result<Vec<Piece>> {
    let mut words = line.split(' ');
    let program = words.next().context("no program")?;
    let mut command = Command::new(cargo_binary(program)?);
    command
        .args(words)
        .env("KUBECONFIG", kubeconfig)
        .env("USER", "alice");
    let mut terminal = Terminal::start(&command, ROWS, COLUMNS)?;
    for (shown, keys) in answers {
        terminal.shows(shown).await?;
        terminal.keys(keys)?;
    }
    let code = terminal.code().await?;
    ensure!(code == 0, "{line} ended with {code}: {}", terminal.screen());
    Ok(terminal.pieces())
}

/// What is seen, and when.
#[derive(Default)]
struct Film {
    at: Duration,
    events: Vec<(Duration, String)>,
}

impl Film {
    fn prompt(&mut self) {
        self.shows(PAUSE, "$ ");
    }

    fn types(&mut self, line: &str) {
        self.prompt();
        for key in line.chars() {
            self.shows(KEY, &key.to_string());
        }
        self.shows(KEY, "\r\n");
    }

    fn plays(&mut self, pieces: &[Piece]) {
        let mut before = Duration::ZERO;
        for piece in pieces {
            let pause = piece.at.saturating_sub(before).min(PAUSE);
            before = piece.at;
            self.shows(pause, &String::from_utf8_lossy(&piece.bytes));
        }
    }

    fn shows(&mut self, after: Duration, text: &str) {
        self.at += after;
        self.events.push((self.at, text.to_owned()));
    }

    /// As asciinema plays it, version 2.
    fn cast(&self) -> Result<String> {
        let head = json!({
            "version": 2, "width": COLUMNS, "height": ROWS,
            "title": "ozctl: a shell in a pod, for a limited time",
            "env": {"TERM": "xterm-256color"},
        });
        let mut cast = format!("{head}\n");
        for (at, text) in &self.events {
            let seconds = (at.as_secs_f64() * 1000.0).round() / 1000.0;
            cast.push_str(&format!("{}\n", json!([seconds, "o", text])));
        }
        Ok(cast)
    }

    /// What stands on the screen in the end.
    fn text(&self) -> String {
        let all: String = self.events.iter().map(|(_, text)| text.as_str()).collect();
        let mut text = String::new();
        for line in plain(&all).split('\n') {
            // A carriage return begins a line again.
            let line = line.trim_end_matches('\r');
            let last = line.rsplit('\r').next().unwrap_or_default();
            text.push_str(last.trim_end());
            text.push('\n');
        }
        text.trim_end().trim_end_matches('$').trim_end().to_owned()
    }
}

/// Without what only a terminal understands.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            // A control sequence ends with a letter, a title with a bell.
            ('\x1b', Some('[')) => {
                letters.next();
                for letter in letters.by_ref() {
                    if letter.is_ascii_alphabetic() {
                        break;
                    }
                }
            }
            ('\x1b', Some(']')) => {
                for letter in letters.by_ref() {
                    if letter == '\x07' {
                        break;
                    }
                }
            }
            ('\x07' | '\x1b', _) => {}
            _ => plain.push(letter),
        }
    }
    plain
}

fn write_readme(path: &Path, text: &str) -> Result<()> {
    let readme = std::fs::read_to_string(path)?;
    let (Some(begin), Some(end)) = (readme.find(BEGIN), readme.find(END)) else {
        bail!("{} has no place for the recording: {BEGIN}", path.display());
    };
    let before = readme.get(..begin + BEGIN.len()).unwrap_or_default();
    let after = readme.get(end..).unwrap_or_default();
    std::fs::write(path, format!("{before}```console\n{text}\n```\n{after}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_stands_on_the_screen_in_the_end() {
        let mut film = Film::default();
        film.types("ozctl exec");
        film.shows(
            KEY,
            "\r\x1b[Kwaiting\r\x1b[K\x1b]2;web · 5m left\x07/ # exit\r\n",
        );
        film.prompt();
        assert_eq!(film.text(), "$ ozctl exec\n/ # exit");
        let cast = film.cast().unwrap();
        assert!(cast.starts_with("{\"env\""), "{cast}");
        assert!(cast.contains("[0.7,\"o\",\"$ \"]"), "{cast}");
    }
}
