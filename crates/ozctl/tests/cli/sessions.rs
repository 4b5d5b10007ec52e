//! Sessions and streams, played by the table: with and without terminals, with readers that
//! disconnect, and with wrong clocks.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;

use jiff::{SignedDuration, Timestamp};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

use crate::shop;
use crate::stub::{ReceivedRequest, Stub, TIMEOUT, ended, finished};

const STDOUT: u8 = 1;
const STATUS: u8 = 3;

/// The behaviour of a container in a session.
pub(crate) type Play = fn(&mut WebSocket<&TcpStream>) -> tungstenite::Result<()>;

/// Returns a shop with pods that play sessions.
pub(crate) fn playing(play: Play) -> Stub {
    let stub = shop::open();
    stub.streams(move |asked, stream| is_session(asked) && session(asked, stream, play));
    stub
}

fn is_session(asked: &ReceivedRequest) -> bool {
    asked.what.ends_with("/exec")
}

fn session(asked: &ReceivedRequest, mut stream: &TcpStream, play: Play) -> bool {
    let accept = derive_accept_key(asked.header("sec-websocket-key").as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-accept: {accept}\r\nsec-websocket-protocol: v5.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut socket = WebSocket::from_raw_socket(stream, Role::Server, None);
    // The other side may disconnect first.
    let _ = play(&mut socket);
    true
}

fn say(socket: &mut WebSocket<&TcpStream>, channel: u8, bytes: &[u8]) -> tungstenite::Result<()> {
    socket.send(Message::binary([&[channel], bytes].concat()))
}

/// Ends the command with success.
fn end(socket: &mut WebSocket<&TcpStream>) -> tungstenite::Result<()> {
    let status = json!({"metadata": {}, "status": "Success"}).to_string();
    say(socket, STATUS, status.as_bytes())?;
    loop {
        socket.read()?;
    }
}

/// Writes one word, and ends with success.
pub(crate) fn a_word(socket: &mut WebSocket<&TcpStream>) -> tungstenite::Result<()> {
    say(socket, STDOUT, b"a word\n")?;
    end(socket)
}

/// Writes endlessly, and nothing to standard error.
fn words(socket: &mut WebSocket<&TcpStream>) -> tungstenite::Result<()> {
    loop {
        say(socket, STDOUT, &[b'y'; 1024])?;
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the names of the requests that were given back.
fn deleted(stub: &Stub) -> Vec<String> {
    let asked = stub.asked().into_iter();
    let deleted = asked.filter(|asked| asked.what.starts_with("DELETE "));
    deleted
        .map(|asked| asked.what.rsplit('/').next().unwrap_or_default().to_owned())
        .collect()
}

/// Opens a terminal: returns its other end, and the end for a program.
pub(crate) fn terminal() -> (File, File) {
    let other = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&other).unwrap();
    unlockpt(&other).unwrap();
    let name = ptsname(&other, Vec::new()).unwrap();
    let path = std::ffi::OsStr::from_bytes(name.as_bytes());
    let terminal = File::options().read(true).write(true).open(path).unwrap();
    (other.into(), terminal)
}

/// Returns the output to a terminal that no program uses any more.
fn seen_on(mut other: File) -> String {
    let (mut all, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(count @ 1..) = other.read(&mut buffer) {
        all.extend(buffer.iter().take(count));
    }
    text(&all)
}

#[test]
fn a_command_has_no_terminal_where_input_is_none() {
    let stub = playing(a_word);
    let words = ["exec", "deploy/web", "-t", "--", "true"];
    let answer = finished(stub.command(&words).spawn().unwrap());
    let said = text(&answer.stderr);
    assert_eq!(answer.status.code(), Some(0), "{said}");
    assert_eq!(text(&answer.stdout), "a word\n");
    assert!(said.contains("Unable to use a TTY"), "{said}");
    let asked = stub.asked().into_iter().find(is_session).unwrap();
    // The end of input would hang up the terminal before the command has written all its output.
    assert!(!asked.query.contains("tty=true"), "{}", asked.query);
    assert_eq!(deleted(&stub), ["alice-n4w5r"]);
}

#[test]
fn a_title_is_written_to_a_terminal_that_has_one_and_to_nothing_else() {
    for (term, titled) in [("xterm", true), ("dumb", false), ("", false)] {
        let stub = playing(a_word);
        let (other, terminal) = terminal();
        let mut command = stub.command(&["exec", "deploy/web", "--", "true"]);
        command
            .env("TERM", term)
            .stdin(terminal.try_clone().unwrap())
            .stdout(terminal);
        let child = command.spawn().unwrap();
        drop(command);
        let (code, said) = ended(child);
        assert_eq!(code, Some(0), "{said}");
        let seen = seen_on(other);
        assert!(seen.contains("a word"), "{seen:?}");
        assert_eq!(seen.contains('\x1b'), titled, "{term}: {seen:?}");
    }
    let stub = playing(a_word);
    let (_other, terminal) = terminal();
    let child = stub
        .command(&["exec", "deploy/web", "-t", "--", "true"])
        .env("TERM", "xterm")
        .stdin(terminal)
        .spawn()
        .unwrap();
    let answer = finished(child);
    assert_eq!(text(&answer.stdout), "a word\n");
}

#[test]
fn a_terminal_that_draws_nothing_has_no_line_that_is_drawn_anew() {
    let stub = playing(a_word);
    let (other, terminal) = terminal();
    let mut command = stub.command(&["exec", "deploy/web", "--", "true"]);
    let child = command
        .env("TERM", "dumb")
        .stderr(terminal)
        .spawn()
        .unwrap();
    drop(command);
    assert!(finished(child).status.success());
    let seen = seen_on(other);
    assert!(!seen.contains('\x1b'), "{seen:?}");
}

/// Work in a pod continues there while a grant for the pod lasts; and `-v` prints the duration of
/// each step.
#[test]
fn the_pod_that_one_has_access_to_is_used_again() {
    let stub = playing(a_word);
    let asked_for = |words: &[&str]| {
        let answer = finished(stub.command(words).spawn().unwrap());
        let said = text(&answer.stderr);
        assert_eq!(answer.status.code(), Some(0), "{said}");
        let mut asked = stub.asked().into_iter().rev();
        let made =
            asked.find(|one| one.what.starts_with("POST ") && one.what.ends_with("requests"));
        (made.unwrap().body["spec"]["targetPod"].clone(), said)
    };
    let (pod, said) = asked_for(&["exec", "deploy/web", "-v", "--", "true"]);
    assert_eq!(pod, "web-7d4b9c5f6-x2x8p", "{said}");
    assert!(
        said.contains("pod web-7d4b9c5f6-x2x8p again, as by request alice-x7k2p"),
        "{said}"
    );
    for step in [
        "template ",
        "request ",
        "granted ",
        "connection ",
        "use ",
        "given back ",
    ] {
        assert!(said.contains(step), "{step}: {said}");
    }
    assert!(said.contains(" ms for access"), "{said}");
    // A user who names a pod gets that pod.
    let (pod, said) = asked_for(&["exec", "pod/web-7d4b9c5f6-other", "--", "true"]);
    assert_eq!(pod, "web-7d4b9c5f6-other", "{said}");
    assert!(!said.contains("again") && !said.contains(" ms "), "{said}");
}

#[test]
fn a_reader_who_goes_away_ends_the_command_and_gives_access_back() {
    let stub = playing(words);
    let mut child = stub
        .command(&["exec", "deploy/web", "--", "yes"])
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 10]).unwrap();
    drop(stdout);
    let (code, said) = ended(child);
    assert_eq!(code, Some(141), "{said}");
    assert_eq!(deleted(&stub), ["alice-n4w5r"]);
}

#[test]
fn output_that_finds_no_place_is_said_to_find_none() {
    let stub = playing(words);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let child = stub
        .command(&["exec", "deploy/web", "--", "yes"])
        .stdout(full)
        .spawn()
        .unwrap();
    let answer = finished(child);
    let said = text(&answer.stderr);
    assert_eq!(answer.status.code(), Some(125), "{said}");
    assert!(
        said.contains("failed to write to standard output: No space left"),
        "{said}"
    );
    assert_eq!(deleted(&stub), ["alice-n4w5r"]);
}

/// Writes one line repeatedly, until the reader disconnects.
fn pour(mut stream: &TcpStream, line: &str) -> bool {
    let head = "HTTP/1.1 200 Told\r\ncontent-type: application/json\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let chunk = format!("{:x}\r\n{line}\r\n", line.len());
    let _ = stream.write_all(head.as_bytes());
    while stream.write_all(chunk.as_bytes()).is_ok() {}
    true
}

#[test]
fn a_reader_who_goes_away_ends_what_follows() {
    let stub = Stub::start(|asked| {
        let (code, mut body) = shop::answer(asked);
        if asked.what.ends_with("/execaccesstemplates") {
            body["items"][0]["spec"]["accessConfig"]["operations"] = json!(["Log"]);
        }
        (code, body)
    });
    stub.streams(|asked, stream| {
        let is_watch = asked.query.contains("watch=true");
        if asked.what.ends_with("/auditevents") && is_watch {
            let (_, mut list) = shop::answer(&ReceivedRequest {
                query: String::new(),
                ..asked.clone()
            });
            let event = json!({"type": "ADDED", "object": list["items"][0].take()});
            return pour(stream, &format!("{event}\n"));
        }
        asked.what.ends_with("/log") && pour(stream, "a line\n")
    });
    for words in [&["logs", "-f", "deploy/web"][..], &["audit", "tail"]] {
        let mut child = stub.command(words).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 10]).unwrap();
        drop(stdout);
        let (code, said) = ended(child);
        assert_eq!(code, Some(0), "{words:?}: {said}");
    }
    assert_eq!(deleted(&stub), ["alice-n4w5r"]);
}

/// Returns a shop in which alice's access ends at that time.
fn until(end: Timestamp) -> Stub {
    let stub = Stub::start(move |asked| {
        let (code, mut body) = shop::answer(asked);
        if asked.what.ends_with("/execaccessrequests/alice-x7k2p") {
            body["status"]["expiresAt"] = json!(end.to_string());
        }
        (code, body)
    });
    stub.streams(|asked, stream| is_session(asked) && session(asked, stream, a_word));
    stub
}

fn use_again(stub: &Stub) -> (Option<i32>, String) {
    let request = ["--request", "alice-x7k2p", "--", "true"];
    let words = [&["exec", "deploy/web"], &request[..]].concat();
    let answer = finished(stub.command(&words).spawn().unwrap());
    assert!(deleted(stub).is_empty());
    (answer.status.code(), text(&answer.stderr))
}

#[test]
fn a_clock_that_is_ahead_does_not_end_access_that_is_there() {
    let hour = SignedDuration::from_hours(1);
    let half = SignedDuration::from_mins(30);
    // It is half past eleven for the API server, and half past twelve here.
    let told = until(Timestamp::now() - half);
    let date = jiff::fmt::rfc2822::DateTimePrinter::new();
    told.dates(
        &date
            .timestamp_to_rfc9110_string(&(Timestamp::now() - hour))
            .unwrap(),
    );
    assert_eq!(use_again(&told), (Some(0), String::new()));

    let untold = until(Timestamp::now() - half);
    let (code, said) = use_again(&untold);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("by the local clock the access has expired"),
        "{said}"
    );
}

#[test]
fn a_clock_that_agrees_ends_access_when_it_is_over() {
    let stub = until(Timestamp::now() + SignedDuration::from_secs(2));
    stub.streams(|asked, stream| {
        is_session(asked)
            && session(asked, stream, |socket| {
                loop {
                    socket.read()?;
                }
            })
    });
    let (code, said) = use_again(&stub);
    assert_eq!(code, Some(124), "{said}");
    assert!(said.contains("has expired"), "{said}");
}

#[test]
fn next_step_names_kubectl_plugin() {
    let stub = playing(a_word);
    let plugin = stub.directory.path().join("kubectl-oz");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ozctl"), &plugin).unwrap();
    for (words, said) in [
        (
            &["exec", "deploy/web", "--keep", "--", "true"][..],
            "`kubectl oz revoke alice-n4w5r`",
        ),
        (&["revoke", "nobody"], "Next: `kubectl oz requests`"),
    ] {
        let kubeconfig = stub.kubeconfig(&json!({"token": "alices"}));
        let answer = assert_cmd::Command::new(&plugin)
            .args(words)
            .env("KUBECONFIG", kubeconfig)
            .env("USER", "alice")
            .timeout(TIMEOUT)
            .output()
            .unwrap();
        let told = text(&answer.stderr);
        assert!(told.contains(said), "{words:?}: {told}");
        assert!(!told.contains("`ozctl"), "{words:?}: {told}");
    }
}
