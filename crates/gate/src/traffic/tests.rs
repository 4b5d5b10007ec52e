//! The traffic of a session as its viewers and its user see it.

use futures::FutureExt as _;
use oz_api::{RecordedInput, RecordingMode};
use oz_gating::messages::{STDIN, STDOUT};
use oz_gating::recording::Part;
use tokio::sync::broadcast::error::TryRecvError;

use super::*;
use crate::tape::tests::{self as tape, piece};

const CONFIG: RecordingConfig = RecordingConfig {
    mode: RecordingMode::BestEffort,
    input: RecordedInput::Echoed,
    non_interactive: Some(NonInteractive::All),
};

fn about() -> About {
    tape::about("default/mine/s-1")
}

fn all(view: &mut View) -> Part {
    let mut text = view.header.to_vec();
    while let Ok(lines) = view.lines.try_recv() {
        text.extend(lines);
    }
    Part::read(&text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn viewer_sees_traffic_from_joining_and_no_password() {
    let traffic = Traffic::default();
    traffic.said(true, piece(RESIZE, br#"{"Width":100,"Height":30}"#));
    traffic.said(false, piece(STDOUT, b"before"));
    let mut bob = traffic.watch(&about(), &CONFIG).unwrap();
    traffic.said(true, piece(STDIN, b"ls\r"));
    traffic.said(false, piece(STDOUT, b"ls\r\nPassword: "));
    traffic.said(true, piece(STDIN, b"hunter2"));
    let mut carol = traffic.watch(&about(), &CONFIG).unwrap();
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    traffic.tick();
    traffic.end("over");
    let part = all(&mut bob);
    assert_eq!((part.header.width, part.header.height), (100, 30));
    let shown: Vec<_> = part
        .events
        .iter()
        .map(|event| (event.1, event.2.as_str()))
        .collect();
    let hidden = "\u{2039}7 characters not shown\u{203a}";
    assert_eq!(
        shown,
        [
            (Code::Input, "ls\r"),
            (Code::Output, "ls\r\nPassword: "),
            (Code::Input, hidden),
            (Code::Mark, "oz: over"),
        ]
    );
    assert_eq!(bob.lines.try_recv(), Err(TryRecvError::Closed));
    assert_eq!(all(&mut carol).events.len(), 2);
    assert!(traffic.watch(&about(), &CONFIG).is_none());
}

#[tokio::test]
async fn view_of_a_session_without_a_terminal_has_what_its_recording_leaves_out() {
    let traffic = Traffic::default();
    let about = About {
        tty: false,
        ..about()
    };
    let config = RecordingConfig {
        non_interactive: Some(NonInteractive::Digest),
        ..CONFIG
    };
    let mut view = traffic.watch(&about, &config).unwrap();
    let pieces = [vec![b'x'; 64 << 10], b"rm -rf /data".to_vec()];
    // The data is larger than a digest keeps, and the viewer reads during it.
    let mut seen = 0;
    for bytes in pieces.iter().cycle().take(50) {
        traffic.said(false, piece(STDOUT, bytes));
        seen += all(&mut view)
            .events
            .iter()
            .map(|event| event.2.len())
            .sum::<usize>();
    }
    let said: usize = pieces.iter().map(Vec::len).sum::<usize>() * 25;
    assert_eq!(seen, said);
}

#[tokio::test]
async fn slow_viewer_misses_lines_beyond_buffer() {
    let traffic = Traffic::default();
    let mut slow = traffic.watch(&about(), &CONFIG).unwrap();
    for _ in 0..1_000 {
        traffic.said(false, piece(STDOUT, &[b'x'; 1_000]));
    }
    let missed = 1_000 - MAX_WAITING as u64;
    assert_eq!(slow.lines.try_recv(), Err(TryRecvError::Lagged(missed)));
    assert!(slow.lines.try_recv().is_ok());
    traffic.left();
    assert!(!traffic.watched.load(Ordering::Relaxed));
}

#[tokio::test]
async fn words_are_said_in_their_order() {
    let traffic = Traffic::default();
    traffic.tell("one".to_owned());
    traffic.tell("two".to_owned());
    let said = [traffic.word().await, traffic.word().await];
    let line = |text: &str| Word::Line(text.to_owned());
    assert_eq!(said, [line("one"), line("two")]);
}

#[tokio::test]
async fn session_that_must_be_watched_waits_for_who_watches() {
    let traffic = Traffic::moderated();
    let mut view = traffic.watch(&about(), &CONFIG).unwrap();
    let mut passed = 0;
    while traffic.flows().now_or_never().is_some() {
        traffic.said(false, piece(STDOUT, b"x"));
        passed += 1;
    }
    assert_eq!(passed, MAX_UNSEEN);
    // The session continues as soon as the viewer takes a piece, and the viewer misses nothing.
    let flows = traffic.flows();
    let takes = async {
        let line = view.lines.recv().await;
        traffic.taken();
        line
    };
    let ((), line) = tokio::join!(flows, takes);
    assert!(line.is_ok());
    while view.lines.try_recv().is_ok() {
        passed -= 1;
    }
    assert_eq!(passed, 1);
    // The session does not wait for a viewer who has left.
    for _ in 0..MAX_UNSEEN {
        traffic.said(false, piece(STDOUT, b"x"));
    }
    drop(view);
    traffic.left();
    traffic.flows().await;
}
