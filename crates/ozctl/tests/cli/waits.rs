//! Failures during the wait for access: temporary failures, permanent failures, and timeouts.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::hostile::{is_looked_at, is_watch, never, slow};
use crate::shop;
use crate::stub::{ReceivedRequest, Stub, status};

/// Returns a shop in which some responses fail a few times, each with the next of the codes.
fn unsteady(is_unsteady: fn(&ReceivedRequest) -> bool, codes: &'static [u16]) -> Stub {
    let count = AtomicUsize::new(0);
    Stub::start(move |asked| {
        if is_unsteady(asked)
            && let Some(code) = codes.get(count.fetch_add(1, Ordering::SeqCst))
        {
            return status(*code, "the server is not itself");
        }
        // The table has no object with the name of the created one; the older object replaces it.
        let mut asked = asked.clone();
        if asked.what.starts_with("GET ") {
            asked.what = asked.what.replace("alice-n4w5r", "alice-x7k2p");
        }
        shop::answer(&asked)
    })
}

fn is_waited_for(asked: &ReceivedRequest) -> bool {
    is_watch(asked)
        || is_looked_at(asked)
        || asked.what.starts_with("GET ") && asked.what.ends_with("/alice-n4w5r")
}

#[test]
fn a_wait_outlasts_an_error_that_passes() {
    for words in [
        &["create", "exec", "shell", "-o", "name"][..],
        &["extend", "alice-x7k2p"],
        &["bind", "view", "--user=lea", "--for=1h"],
    ] {
        let stub = unsteady(is_waited_for, &[503, 429, 500]);
        let answer = stub.ozctl(words).output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(0), "{words:?}: {said}");
    }
}

#[test]
fn a_wait_outlasts_connections_that_break() {
    for words in [
        &["create", "exec", "shell", "-o", "name"][..],
        &["bind", "view", "--user=lea", "--for=1h"],
    ] {
        let stub = unsteady(is_waited_for, &[]);
        let count = AtomicUsize::new(0);
        stub.streams(move |asked, _| {
            is_waited_for(asked) && count.fetch_add(1, Ordering::SeqCst) < 2
        });
        let answer = stub.ozctl(words).output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(0), "{words:?}: {said}");
    }
}

#[test]
fn a_wait_ends_with_an_error_that_stays() {
    for (words, gives_back) in [
        (&["extend", "alice-x7k2p"][..], "`ozctl revoke alice-n4w5r`"),
        (
            &["bind", "view", "--user=lea", "--for=1h"],
            "`ozctl revoke transientrolebindings/lea-m2k9c`",
        ),
    ] {
        let stub = unsteady(is_waited_for, &[400; 9]);
        let answer = stub.ozctl(words).output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("not itself"), "{words:?}: {said}");
        // No user must have the requested access unknowingly.
        assert!(said.contains(gives_back), "{words:?}: {said}");
    }
}

#[test]
fn wait_timeout_reports_cause_and_revoke_command() {
    for (words, gives_back) in [
        (
            &["extend", "alice-x7k2p", "--wait=1s"][..],
            "`ozctl revoke alice-n4w5r`",
        ),
        (
            &["bind", "view", "--user=lea", "--for=1h", "--wait=1s"],
            "`ozctl revoke transientrolebindings/lea-m2k9c`",
        ),
    ] {
        let stub = unsteady(is_waited_for, &[503; 99]);
        let answer = stub.ozctl(words).output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(1), "{words:?}: {said}");
        assert!(
            said.contains("1s") && said.contains("not itself"),
            "{words:?}: {said}"
        );
        assert!(said.contains(gives_back), "{words:?}: {said}");
        let (stub, _told) = slow(|asked| is_watch(asked) || is_looked_at(asked), |_| never());
        let answer = stub.ozctl(words).output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains(gives_back), "{words:?}: {said}");
    }
}
