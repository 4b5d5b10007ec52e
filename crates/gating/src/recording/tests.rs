//! The content of recordings, and that they can be read again.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use oz_api::{NonInteractive, RecordedInput, RecordingConfig, RecordingMode};
use proptest::prelude::*;

use super::cast::{About, Code, Event, Part};
use super::chain::Head;
use super::key::{Form, PartName, SessionKey};
use super::recorder::{KEPT, Recorder, Stream};
use super::verify::{Finding, Stored, check};

fn about(tty: bool) -> About {
    About {
        session: "default/mine/20261125t120000z-gate-1".to_owned(),
        request_uid: "1".to_owned(),
        request_kind: "ExecAccessRequest".to_owned(),
        user: "alice".to_owned(),
        user_uid: String::new(),
        pod: "web-1".to_owned(),
        pod_uid: "2".to_owned(),
        container: None,
        way: "exec".to_owned(),
        tty,
        command: vec!["sh".to_owned()],
        command_digest: None,
        opened_at: Timestamp::UNIX_EPOCH,
        part: 0,
        previous: String::new(),
    }
}

fn recorder(tty: bool, input: RecordedInput, non_interactive: NonInteractive) -> Recorder {
    let mode = RecordingMode::Required;
    Recorder::new(
        about(tty),
        &RecordingConfig {
            mode,
            input,
            non_interactive: Some(non_interactive),
        },
    )
}

fn terminal() -> Recorder {
    recorder(true, RecordedInput::Echoed, NonInteractive::Digest)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn read(recorder: &mut Recorder) -> Part {
    Part::read(&recorder.take()).unwrap()
}

/// Returns the text of all events with this code.
fn all(part: &Part, code: Code) -> String {
    let events = part.events.iter().filter(|event| event.1 == code);
    events.map(|event| event.2.as_str()).collect()
}

/// Records input (`i`) and output (`o`) at these milliseconds, and returns the input as it is recorded.
fn kept(steps: &[(u64, char, &str)]) -> String {
    let mut recorder = terminal();
    recorder.mark(ms(0), "here");
    for (at, way, text) in steps {
        let stream = if *way == 'i' {
            Stream::Stdin
        } else {
            Stream::Stdout
        };
        recorder.passed(ms(*at), stream, text.as_bytes());
    }
    recorder.end(ms(60_000), "over");
    all(&read(&mut recorder), Code::Input)
}

fn hidden(count: usize) -> String {
    format!("‹{count} characters not shown›")
}

#[test]
fn session_without_a_terminal_is_kept_whole_where_it_must_be_recorded() {
    use NonInteractive::{All, Digest};
    for (mode, set, kept) in [
        ("Required", "", All),
        ("Required", r#", "nonInteractive": "Digest""#, Digest),
        ("Required", r#", "nonInteractive": "All""#, All),
        ("BestEffort", "", Digest),
        ("BestEffort", r#", "nonInteractive": "All""#, All),
        ("Off", "", Digest),
    ] {
        let config = format!(r#"{{"mode": "{mode}"{set}}}"#);
        let config: RecordingConfig = serde_json::from_str(&config).unwrap();
        assert_eq!(config.kept_without_terminal(), kept, "{mode} {set}");
    }
}

#[test]
fn echoed_input_is_kept() {
    for (name, steps, expected) in [
        (
            "letter by letter",
            &[
                (0, 'i', "l"),
                (10, 'o', "l"),
                (200, 'i', "s"),
                (210, 'o', "s"),
                (400, 'i', "\r"),
                (410, 'o', "\r\nbin\r\n"),
            ][..],
            "ls\r",
        ),
        (
            "a line at once, whose echo comes in pieces",
            &[
                (0, 'i', "echo hi\r"),
                (5, 'o', "ec"),
                (9, 'o', "ho hi\r\nhi\r\n"),
            ],
            "echo hi\r",
        ),
        (
            "before the prompt",
            &[(0, 'i', "echo hi\r"), (5, 'o', "$ echo hi\r\nhi\r\n")],
            "echo hi\r",
        ),
        (
            "two lines at once",
            &[
                (0, 'i', "echo hi\recho ho\r"),
                (5, 'o', "$ echo hi\r\nhi\r\n$ echo ho\r\nho\r\n"),
            ],
            "echo hi\recho ho\r",
        ),
        (
            "with colours in between",
            &[
                (0, 'i', "ls"),
                (5, 'o', "\u{1b}[32ml\u{1b}[1;31ms\u{1b}[0m"),
            ],
            "ls",
        ),
    ] {
        assert_eq!(kept(steps), expected, "{name}");
    }
}

#[test]
fn of_what_does_not_come_back_it_is_kept_how_long_it_was() {
    for (name, steps, expected) in [
        (
            "a password, typed",
            &[
                (0, 'o', "Password: "),
                (100, 'i', "h"),
                (300, 'i', "u"),
                (1_200, 'i', "nter"),
                (1_500, 'i', "2"),
                (1_600, 'i', "\r"),
                (1_700, 'o', "\r\nhello\r\n$ "),
                (3_000, 'i', "l"),
                (3_001, 'o', "l"),
            ][..],
            format!("{}{}\rl", hidden(2), hidden(5)),
        ),
        (
            "a password, pasted, at a prompt that answers with its first letter",
            &[(0, 'i', "hunter2\r"), (5, 'o', "\r\nhello alice\r\n$ ")],
            format!("{}\r", hidden(7)),
        ),
        (
            "a password between two commands that are pasted together",
            &[
                (0, 'i', "sudo id\rhunter2\r"),
                (5, 'o', "sudo id\r\nPassword: "),
                (300, 'o', "\r\nuid=0\r\n$ "),
            ],
            format!("sudo id\r{}\r", hidden(7)),
        ),
        (
            "a password before commands that follow at once",
            &[
                (0, 'i', "hunter2\r"),
                (10, 'o', "\r\nthank you\r\n~ # "),
                (20, 'i', "sleep 9\r"),
                (30, 'o', "sleep 9\r\n"),
                (40, 'i', "\u{3}"),
                (50, 'i', "exit 7\r"),
                (60, 'o', "^C\r\n~ # e"),
                (61, 'o', "xit 7\r\n"),
            ],
            format!("{}\rsleep 9\r\u{3}exit 7\r", hidden(7)),
        ),
        (
            "what comes back too late",
            &[(0, 'i', "ls"), (1_001, 'o', "ls")],
            hidden(2),
        ),
        (
            "keys that show nothing",
            &[(0, 'i', "\u{1b}[A"), (10, 'i', "\u{3}"), (20, 'i', "\t")],
            "\u{1b}[A\u{3}\t".to_owned(),
        ),
        ("what nobody waited for", &[(0, 'i', "exit")], hidden(4)),
        (
            "one letter",
            &[(0, 'i', "x")],
            "‹1 character not shown›".to_owned(),
        ),
        (
            "letters of more than one byte",
            &[(0, 'i', "pässwörd\r")],
            format!("{}\r", hidden(8)),
        ),
    ] {
        assert_eq!(kept(steps), expected, "{name}");
    }
}

#[test]
fn input_that_waits_for_its_echo_is_bounded() {
    // The limits are 64 Ki letters and 16 Ki bursts; a burst is a line, 4 Ki visible letters or 16 KiB.
    for (piece, marker, waiting) in [
        ("\r".repeat(16 << 10), "\r", 16 << 10),
        ("x\r".repeat(16 << 10), "\r", 16 << 10),
        ("x".repeat(64 << 10), "4096 characters not shown", 16),
        ("\t".repeat(64 << 10), "\t", 64 << 10),
    ] {
        let mut recorder = terminal();
        // It has no echo, and all that follows waits for its timeout.
        recorder.passed(ms(0), Stream::Stdin, b"x\r");
        for _ in 0..4 {
            recorder.passed(ms(1), Stream::Stdin, piece.as_bytes());
        }
        let mut lines = recorder.take();
        let decided = all(&Part::read(&lines).unwrap(), Code::Input);
        recorder.end(ms(2), "over");
        lines.extend(recorder.take());
        let whole = all(&Part::read(&lines).unwrap(), Code::Input);
        let (decided, whole) = (decided.matches(marker), whole.matches(marker));
        let (decided, whole) = (decided.count(), whole.count());
        assert!(decided + waiting >= whole, "{decided} of {whole}");
        assert!(whole >= 64, "nothing is left out");
    }
}

#[test]
fn no_time_goes_backwards() {
    let mut recorder = terminal();
    recorder.passed(ms(100), Stream::Stdin, b"hidden");
    recorder.passed(ms(500), Stream::Stdout, b"shown");
    recorder.end(ms(600), "over");
    let times: Vec<f64> = read(&mut recorder)
        .events
        .iter()
        .map(|event| event.0)
        .collect();
    assert_eq!(times, [0.5, 0.5, 0.6]);
}

#[test]
fn recorded_input_follows_template() {
    for (input, tty, expected) in [
        (RecordedInput::All, true, "secret"),
        (RecordedInput::None, true, ""),
        (RecordedInput::Echoed, false, "secret"),
        (RecordedInput::All, false, "secret"),
        (RecordedInput::None, false, ""),
    ] {
        let mut recorder = recorder(tty, input, NonInteractive::All);
        recorder.passed(ms(1), Stream::Stdin, b"secret");
        recorder.passed(ms(2), Stream::Stdout, b"shown");
        recorder.end(ms(2_000), "over");
        let part = read(&mut recorder);
        assert_eq!(all(&part, Code::Input), expected, "{input:?} {tty}");
        assert_eq!(all(&part, Code::Output), "shown");
        let marks = all(&part, Code::Mark);
        // Without a terminal, the recording states the size of each stream.
        assert_eq!(
            marks.contains("oz: stdin: 6 bytes, sha256:2bb80d537b1da3e3"),
            !tty,
            "{marks}"
        );
        assert!(marks.ends_with("oz: over"), "{marks}");
    }
}

#[test]
fn without_a_terminal_the_beginning_is_kept_and_the_digest_of_all() {
    let mut recorder = recorder(false, RecordedInput::Echoed, NonInteractive::Digest);
    for _ in 0..3 {
        recorder.passed(ms(1), Stream::Stdout, &[b'x'; 700_000]);
    }
    recorder.end(ms(2), "over");
    let part = read(&mut recorder);
    assert_eq!(all(&part, Code::Output).len() as u64, KEPT);
    let (bytes, digest) = recorder.digest_of(Stream::Stdout).unwrap();
    assert_eq!(bytes, 2_100_000);
    let marks = all(&part, Code::Mark);
    assert!(marks.contains(&format!(
        "stdout: 2100000 bytes, of which the first {KEPT} are kept, {digest}"
    )));
    assert_eq!(recorder.digest_of(Stream::Stderr), None);
}

#[test]
fn a_part_closes_by_its_time_or_its_size_and_the_next_one_names_the_head_before_it() {
    let mut recorder = terminal();
    recorder.resized(ms(5), 120, 40);
    assert_eq!(recorder.take(), b"", "nothing has happened yet");
    assert!(!recorder.is_full(ms(3_600_000)));
    recorder.passed(ms(10), Stream::Stdout, b"$ ");
    recorder.resized(ms(20), 100, 30);
    assert!(!recorder.is_full(ms(20_000)));
    assert!(recorder.is_full(ms(30_010)));
    let lines = recorder.take();
    let first = Part::read(&lines).unwrap();
    let start = Head::start(&first.header.oz.session);
    assert_eq!((first.header.width, first.header.height), (120, 40));
    assert_eq!(
        (first.header.oz.part, &first.header.oz.previous),
        (0, &start.digest)
    );
    assert_eq!(
        first.events[1],
        Event(0.02, Code::Resize, "100x30".to_owned())
    );
    let head = start.after(&lines);
    recorder.next_part(ms(30_010), &head);
    recorder.passed(ms(40_000), Stream::Stdout, &[b'y'; 5 << 20]);
    assert!(recorder.is_full(ms(40_000)));
    let second = read(&mut recorder);
    assert_eq!((second.header.width, second.header.height), (100, 30));
    assert_eq!(
        (second.header.oz.part, &second.header.oz.previous),
        (1, &head.digest)
    );
    assert_eq!(second.events[0].0, 40.0);
}

#[test]
fn lines_that_come_while_a_part_is_closed_are_in_the_next_one_after_its_header() {
    let mut recorder = terminal();
    recorder.passed(ms(10), Stream::Stdout, b"first");
    let lines = recorder.take();
    let head = Head::start("a/b/c").after(&lines);
    // The gate packs the part during these events.
    recorder.passed(ms(20), Stream::Stdout, b"second");
    recorder.next_part(ms(30), &head);
    recorder.passed(ms(40), Stream::Stdout, b"third");
    let next = read(&mut recorder);
    assert_eq!(
        (next.header.oz.part, &next.header.oz.previous),
        (1, &head.digest)
    );
    let said: Vec<&str> = next.events.iter().map(|event| event.2.as_str()).collect();
    assert_eq!(said, ["second", "third"]);
    // Without waiting lines, the header is written with the first line.
    recorder.next_part(ms(50), &head.after(b"2"));
    assert_eq!(recorder.take(), b"");
}

#[test]
fn a_head_is_of_its_parts_in_their_order() {
    let start = Head::start("a/b/c");
    let one = start.after(b"1").after(b"2");
    assert_eq!(one.parts, 2);
    for other in [
        start.after(b"2").after(b"1"),
        start.after(b"1"),
        start.after(b"12"),
        start.after(b"1").after(b"2").after(b""),
        Head::start("a/b/d").after(b"1").after(b"2"),
    ] {
        assert_ne!(one.digest, other.digest);
    }
}

#[test]
fn the_names_of_parts_are_read_in_one_form_alone() {
    let at: Timestamp = "2026-11-25T12:00:00Z".parse().unwrap();
    let key = SessionKey::new("default", "mine", at, "OZ_gate.abc", 7);
    assert_eq!(
        key.to_string(),
        "default/mine/20261125t120000000z-oz-gate-abc-7"
    );
    assert_eq!(SessionKey::read(&key.to_string()), Some(key.clone()));
    for (form, ending) in [
        (Form::Plain, "/000012.cast.zst"),
        (Form::Encrypted, "/000012.cast.zst.age"),
        (Form::Frames, "/000012.cast.frames"),
    ] {
        let name = key.part(12, form);
        assert!(name.ends_with(ending), "{name}");
        let expected = PartName {
            session: key.clone(),
            number: 12,
            form,
        };
        assert_eq!(expected.to_string(), name);
        assert_eq!(PartName::read(&name), Some(expected));
    }
    for bad in [
        "default/mine/s/12.cast.zst",
        "default/mine/s/+00012.cast.zst",
        "default/mine/s/000012.cast",
        "default/../s/000012.cast.zst",
        "default/mine/000012.cast.zst",
        "/default/mine/s/000012.cast.zst",
        "default/mine/s/000012.cast.zst.age.age",
        "default/mine/s/000012.cast.age",
        "default/mine/s/000012.cast.frames.age",
        "default/mine/s/12.cast.frames",
    ] {
        assert_eq!(PartName::read(bad), None, "{bad}");
    }
}

#[test]
fn invalid_recording_is_rejected_with_line() {
    let mut recorder = terminal();
    recorder.passed(ms(1), Stream::Stdout, b"x");
    let good = String::from_utf8(recorder.take()).unwrap();
    let (header, event) = good.split_once('\n').unwrap();
    for (text, why) in [
        (String::new(), "it is empty"),
        ("{}".to_owned(), "line 1"),
        (
            header.replace("\"version\":2", "\"version\":3"),
            "asciicast v3",
        ),
        (format!("{header}\n{event}[1]\n"), "line 3"),
        (format!("{header}\n[1,\"z\",\"x\"]\n"), "line 2"),
    ] {
        let error = Part::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

proptest! {
    #[test]
    fn output_is_recorded_byte_by_byte_for_any_fragmentation(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 0..12),
    ) {
        let mut recorder = terminal();
        for (at, piece) in pieces.iter().enumerate() {
            recorder.passed(ms(at as u64), Stream::Stdout, piece);
        }
        recorder.end(ms(1_000), "over");
        let part = read(&mut recorder);
        let mut bytes: Vec<Vec<u8>> = Vec::new();
        for event in &part.events {
            match event.1 {
                Code::Output => bytes.push(event.2.clone().into_bytes()),
                Code::Bytes => *bytes.last_mut().unwrap() = BASE64_STANDARD.decode(&event.2).unwrap(),
                _ => {}
            }
        }
        prop_assert_eq!(bytes.concat(), pieces.concat());
    }

    #[test]
    fn nothing_that_was_typed_and_never_shown_is_kept(
        typed in prop::collection::vec(("[a-z]{1,6}", any::<bool>(), 0_u64..700), 1..12),
    ) {
        let mut recorder = terminal();
        let (mut at, mut count) = (0, 0);
        for (word, over, pause) in &typed {
            recorder.passed(ms(at), Stream::Stdin, word.as_bytes());
            count += word.len();
            if *over {
                recorder.passed(ms(at), Stream::Stdin, b"\r");
            }
            // The output contains none of these letters.
            recorder.passed(ms(at), Stream::Stdout, b"\r\n\x1b[1mPASSWORD\x1b[0m: ");
            at += pause;
        }
        recorder.end(ms(at), "over");
        let kept = all(&read(&mut recorder), Code::Input);
        let told = kept.split(['‹', '›']).filter_map(|part| part.split_once(" character"));
        let told: usize = told.map(|(count, _)| count.parse::<usize>().unwrap()).sum();
        prop_assert_eq!(told, count);
        let rest = kept.replace("characters not shown", "").replace("character not shown", "");
        prop_assert!(!rest.contains(|letter: char| letter.is_ascii_lowercase()), "{}", kept);
    }
}

/// Returns three parts of a session, and the recorded head.
fn three() -> (Vec<Stored>, Head) {
    let session = SessionKey::read("default/mine/s-1").unwrap();
    let mut head = Head::start(&session.to_string());
    let parts = (0..3).map(|number| {
        let bytes = format!("part {number} after {}", head.digest).into_bytes();
        let previous = Some(head.digest.clone());
        head = head.after(&bytes);
        let name = PartName {
            session: session.clone(),
            number,
            form: Form::Plain,
        };
        Stored {
            name,
            bytes,
            previous,
        }
    });
    (parts.collect(), head)
}

type Deed = fn(&mut Vec<Stored>);

/// Returns changes of a recording, and the expected findings of each.
fn tampered() -> Vec<(&'static str, Deed, Vec<Finding>)> {
    vec![
        ("nothing", |_| {}, vec![]),
        (
            "the first changed",
            |all| all[0].bytes[0] ^= 1,
            vec![Finding::Changed(Some(0))],
        ),
        (
            "the second changed",
            |all| all[1].bytes[3] ^= 1,
            vec![Finding::Changed(Some(1))],
        ),
        (
            "the last changed",
            |all| all[2].bytes[3] ^= 1,
            vec![Finding::Changed(None)],
        ),
        (
            "the first gone",
            |all| drop(all.remove(0)),
            vec![Finding::Missing(0)],
        ),
        (
            "the second gone",
            |all| drop(all.remove(1)),
            vec![Finding::Missing(1)],
        ),
        (
            "the last gone",
            |all| drop(all.pop()),
            vec![Finding::Missing(2)],
        ),
        (
            "all gone",
            Vec::clear,
            vec![
                Finding::Missing(0),
                Finding::Missing(1),
                Finding::Missing(2),
            ],
        ),
        (
            "the last emptied",
            |all| all[2].bytes.clear(),
            vec![Finding::Changed(None)],
        ),
        (
            "two exchanged",
            |all| {
                let one = std::mem::take(&mut all[0].bytes);
                all[0].bytes = std::mem::replace(&mut all[1].bytes, one);
            },
            vec![Finding::Changed(Some(0))],
        ),
        (
            "one more",
            |all| {
                let mut more = all[2].clone();
                more.name.number = 3;
                all.push(more);
            },
            vec![Finding::Surplus(3)],
        ),
        (
            "the second replaced by one that fits the first",
            |all| all[1].bytes = b"another".to_vec(),
            vec![Finding::Changed(Some(1))],
        ),
    ]
}

#[test]
fn tampering_with_stored_recording_is_detected() {
    for (what, deed, expected) in tampered() {
        let (mut parts, head) = three();
        deed(&mut parts);
        assert_eq!(
            check("default/mine/s-1", Some(&head), &parts),
            expected,
            "{what}"
        );
    }
    let (parts, head) = three();
    // The parts of another session are complete, but do not belong to this one.
    assert!(!check("default/mine/s-2", Some(&head), &parts).is_empty());
    // For an open session, no head is recorded yet.
    assert_eq!(check("default/mine/s-1", None, &parts[..2]), []);
    assert_eq!(
        check("default/mine/s-1", None, &parts[1..]),
        [Finding::Missing(0)]
    );
}
