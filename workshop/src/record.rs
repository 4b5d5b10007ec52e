//! `cargo xtask record`: the recording of ozctl in `docs/ozctl.cast`, and the same as text in the README. All
//! of it is generated: it is the output for a user on a terminal of a real node (root). So that it changes
//! only when ozctl does, pauses are always the same, and so are generated values of the cluster: the ends of
//! names, and the minute.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::{SignedDuration, Timestamp, Unit};
use oz_e2e::{Scene, Terminal, repository};
use oz_testkit::cargo_binary;
use serde_json::{Value, json};

use crate::real_node::RealNode;
use xtask::screen::Screen;

const CAST: &str = "docs/ozctl.cast";
const README: &str = "README.md";
const BEGIN: &str = "<!-- recorded by `cargo xtask record` -->\n";
const END: &str = "<!-- end of the recording -->\n";
const ROWS: u16 = 24;
const COLUMNS: u16 = 100;
/// The interval between two keys.
const KEY_INTERVAL: Duration = Duration::from_millis(40);
/// The pause before a line is typed, and before its output appears.
const PAUSE: Duration = Duration::from_millis(700);
/// The sequence that restarts a line of the terminal.
const ANEW: &str = "\r\x1b[K";
/// The displayed namespace, ends of names, and start time.
const NAMESPACE: &str = "shop";
const POD: &str = "web-7d4b9c5f6-x2x8p";
const REQUEST: &str = "alice-x7k2p";
const BEGAN: &str = "2026-01-01T12:00:00Z";

/// One typed line.
struct Line {
    text: &'static str,
    /// The keys that are pressed once the program shows a text.
    input: &'static [(&'static str, &'static str)],
    /// The exit code of the program.
    code: i32,
}

/// The exit code of ozctl when access has expired.
const EXPIRED: i32 = 124;

/// The typed lines. The last session expires, after its countdown.
const STORY: [Line; 3] = [
    Line {
        text: "ozctl templates",
        input: &[],
        code: 0,
    },
    Line {
        text: "ozctl exec deploy/web -- cat /etc/hostname",
        input: &[],
        code: 0,
    },
    Line {
        text: "ozctl exec deploy/web --duration 15s --reason INC-42",
        input: &[("~ # ", "hostname\r"), ("expires in 10s", "")],
        code: EXPIRED,
    },
];

pub(crate) fn run() -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(record())?;
    Ok(ExitCode::SUCCESS)
}

async fn record() -> Result<()> {
    let stage = RealNode::start(NAMESPACE).await?;
    let kubeconfig = kubeconfig(&stage.scene)?;
    let shown = Shown::from_scene(&stage.scene);
    let mut film = Film::default();
    for line in STORY {
        film.types(line.text);
        for part in act(&kubeconfig, &line).await? {
            film.plays(&shown.text(&part));
        }
    }
    film.prompt();
    let root = repository();
    std::fs::write(root.join(CAST), film.cast()?)
        .with_context(|| format!("failed to write {CAST}"))?;
    write_readme(&root.join(README), &film.text())?;
    Screen::stdout().line(&format!("recorded {CAST} and {README}"))
}

/// Returns alice's kubeconfig, with the scene's namespace as her own.
fn kubeconfig(scene: &Scene) -> Result<PathBuf> {
    let text = std::fs::read_to_string(scene.cluster.kubeconfig("alice"))?;
    let mut kubeconfig: Value = serde_json::from_str(&text).context("not JSON")?;
    kubeconfig["contexts"][0]["context"]["namespace"] = json!(scene.name());
    let path = scene.cluster.state_dir().join("recording.kubeconfig");
    std::fs::write(&path, kubeconfig.to_string())?;
    Ok(path)
}

/// Runs one line on a terminal; returns the output, split where keys are pressed.
async fn act(kubeconfig: &Path, line: &Line) -> Result<Vec<String>> {
    let mut words = line.text.split(' ');
    let program = words.next().context("no program")?;
    let mut command = Command::new(cargo_binary(program)?);
    command
        .args(words)
        .env("KUBECONFIG", kubeconfig)
        .env("USER", "alice");
    let mut terminal = Terminal::start(&command, ROWS, COLUMNS)?;
    let mut parts = Vec::new();
    let mut seen = 0;
    for (shown, keys) in line.input {
        terminal.shows_after(seen, shown).await?;
        let screen = terminal.screen();
        parts.push(screen.get(seen..).unwrap_or_default().to_owned());
        seen = screen.len();
        terminal.keys(keys)?;
    }
    let code = terminal.code().await?;
    let screen = terminal.screen();
    ensure!(
        code == line.code,
        "{} ended with {code}: {screen}",
        line.text
    );
    parts.push(screen.get(seen..).unwrap_or_default().to_owned());
    Ok(parts)
}

/// The values that differ from run to run, and their replacements.
struct Shown {
    names: Vec<(String, &'static str)>,
    began: Timestamp,
}

impl Shown {
    fn from_scene(scene: &Scene) -> Self {
        let pods = scene
            .pods
            .iter()
            .filter_map(|pod| pod.metadata.name.clone());
        let mut names: Vec<_> = pods.map(|name| (name, POD)).collect();
        names.push((scene.name().to_owned(), NAMESPACE));
        Self {
            names,
            began: Timestamp::now(),
        }
    }

    fn text(&self, seen: &str) -> String {
        let mut text = seen.to_owned();
        for (name, shown) in &self.names {
            text = text.replace(name, shown);
        }
        let text = each_word(&text, |word| self.word(word));
        without_titles(&waited_once(&text))
    }

    fn word(&self, word: &str) -> Option<String> {
        let (stem, end) = REQUEST.rsplit_once('-')?;
        let is_request = word
            .strip_prefix(stem)
            .and_then(|rest| rest.strip_prefix('-'))
            .is_some_and(|rest| rest.len() == end.len());
        if is_request {
            return Some(REQUEST.to_owned());
        }
        let instant: Timestamp = word.parse().ok()?;
        let began: Timestamp = BEGAN.parse().ok()?;
        let since: SignedDuration = instant.duration_since(self.began);
        let since = since.round(Unit::Minute).ok()?;
        Some((began + since).to_string())
    }
}

/// Replaces words of the text; a word consists of the letters of names and instants.
fn each_word(text: &str, other: impl Fn(&str) -> Option<String>) -> String {
    let part_of_word = |letter: char| letter.is_ascii_alphanumeric() || "-:.".contains(letter);
    let mut done = String::new();
    for piece in text.split_inclusive(|letter| !part_of_word(letter)) {
        let word = piece.trim_end_matches(|letter| letter == '.' || !part_of_word(letter));
        let end = piece.get(word.len()..).unwrap_or_default();
        done.push_str(&other(word).unwrap_or_else(|| word.to_owned()));
        done.push_str(end);
    }
    done
}

/// Keeps one copy of the line about the current wait, which is drawn a varying number of times.
fn waited_once(text: &str) -> String {
    let parts: Vec<&str> = text.split(ANEW).collect();
    let Some((last, drawn)) = parts.split_last() else {
        return text.to_owned();
    };
    let mut done = String::new();
    for (number, part) in drawn.iter().enumerate() {
        if number < 2 {
            done.push_str(part);
            done.push_str(ANEW);
        }
    }
    done + last
}

/// Removes titles, which appear at varying times, and show the remaining time of access. A film must not
/// query the terminal for its cursor either.
fn without_titles(text: &str) -> String {
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, title)) = rest.split_once("\x1b]2;") {
        done.push_str(before);
        rest = title.split_once('\x07').map_or("", |(_, after)| after);
    }
    done.push_str(rest);
    for control in ["\x1b[22;2t", "\x1b[23;2t", "\x1b[6n"] {
        done = done.replace(control, "");
    }
    done
}

/// The events of the film, with their times.
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
            self.shows(KEY_INTERVAL, &key.to_string());
        }
        self.shows(KEY_INTERVAL, "\r\n");
    }

    fn plays(&mut self, part: &str) {
        for (number, drawn) in part.split_inclusive(ANEW).enumerate() {
            // A waiting line stays visible for a moment.
            self.shows(if number < 2 { PAUSE / 2 } else { PAUSE }, drawn);
        }
    }

    fn shows(&mut self, after: Duration, text: &str) {
        self.at += after;
        self.events.push((self.at, text.to_owned()));
    }

    /// Formats the film for asciinema, version 2.
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

    /// Returns the final text on the screen.
    fn text(&self) -> String {
        let all: String = self.events.iter().map(|(_, text)| text.as_str()).collect();
        let mut left = String::new();
        for (number, part) in all.split(ANEW).enumerate() {
            if number > 0 {
                left.truncate(left.rfind('\n').map_or(0, |end| end + 1));
            }
            left.push_str(part);
        }
        let mut text = String::new();
        for line in plain(&left).split('\n') {
            // A carriage return restarts a line.
            let line = line.trim_end_matches('\r');
            let last = line.rsplit('\r').next().unwrap_or_default();
            text.push_str(last.trim_end());
            text.push('\n');
        }
        text.trim_end().trim_end_matches('$').trim_end().to_owned()
    }
}

/// Removes sequences that only a terminal understands.
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
    fn recorded_names_and_times_are_replaced_by_constants() {
        let shown = Shown {
            names: vec![
                ("web-5cc7-ab12c".to_owned(), POD),
                ("shop-k2j3h".to_owned(), NAMESPACE),
            ],
            began: "2026-03-04T05:06:07Z".parse().unwrap(),
        };
        let seen = "\r\x1b[Koz: waiting for alice-q9w8e\r\x1b[Koz: waiting for alice-q9w8e (2s)\
                    \r\x1b[K\x1b[22;2t\x1b]2;web-5cc7-ab12c · 60m left\x07~ # \x1b[6nhostname\r\n\
                    web-5cc7-ab12c\r\nin shop-k2j3h until 2026-03-04T06:06:11Z\r\n";
        assert_eq!(
            shown.text(seen),
            "\r\x1b[Koz: waiting for alice-x7k2p\r\x1b[K~ # hostname\r\n\
             web-7d4b9c5f6-x2x8p\r\nin shop until 2026-01-01T13:00:00Z\r\n"
        );
    }

    #[test]
    fn the_text_is_what_stands_on_the_screen_in_the_end() {
        let mut film = Film::default();
        film.types("ozctl exec");
        film.shows(
            KEY_INTERVAL,
            "\r\x1b[Kwaiting\r\x1b[K\r\n\x1b]2;web · 5m left\x07/ # exit\r\n",
        );
        film.prompt();
        assert_eq!(film.text(), "$ ozctl exec\n\n/ # exit");
        let cast = film.cast().unwrap();
        assert!(cast.starts_with("{\"env\""), "{cast}");
        assert!(cast.contains("[0.7,\"o\",\"$ \"]"), "{cast}");
    }
}
