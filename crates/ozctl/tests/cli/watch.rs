//! The output of `ozctl watch`, also while watches break and the API server loses the earlier
//! changes.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::shop;
use crate::stub::{ReceivedRequest, Stub, ended, lines, send};

const WATCHED: &str = "/execaccessrequests";

/// Writes one line of a watch, and its end: the connection carries no other request, and is closed.
fn line(mut stream: &TcpStream, event: &Value) -> bool {
    let head = "HTTP/1.1 200 Told\r\ncontent-type: application/json\r\n\
                connection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let line = format!("{event}\n");
    let text = format!("{head}{:x}\r\n{line}\r\n0\r\n\r\n", line.len());
    stream.write_all(text.as_bytes()).is_ok()
}

/// Returns alice's request in this phase, with the same content at every call.
fn hers(phase: &str, asked: &ReceivedRequest) -> Value {
    let plain = ReceivedRequest {
        query: String::new(),
        ..asked.clone()
    };
    let (_, mut list) = shop::answer(&plain);
    let mut hers = list["items"][0].take();
    hers["status"]["phase"] = phase.into();
    hers["status"]["expiresAt"] = "2026-01-01T13:00:00Z".into();
    hers
}

#[test]
fn change_is_shown_once_from_watch_or_list() {
    static LISTS: AtomicUsize = AtomicUsize::new(0);
    static WATCHES: AtomicUsize = AtomicUsize::new(0);
    let stub = Stub::start(|asked| {
        let (code, mut body) = shop::answer(asked);
        let is_list = asked.what.ends_with(WATCHED) && !asked.query.contains("watch=true");
        // The second list follows the loss of the changes in the API server: alice's request was
        // revoked in the meantime, and bob's no longer exists.
        if is_list && LISTS.fetch_add(1, Ordering::SeqCst) > 0 {
            body["items"] = json!([hers("Revoked", asked)]);
        }
        (code, body)
    });
    stub.streams(|asked, stream| {
        if !asked.query.contains("watch=true") {
            return false;
        }
        let nothing = json!({ "type": "BOOKMARK", "object": {
            "kind": "ExecAccessRequest", "apiVersion": "crds.wizardofoz.co/v1alpha1",
            "metadata": { "resourceVersion": "9" },
        } });
        if !asked.what.ends_with(WATCHED) {
            return line(stream, &nothing);
        }
        let event = match WATCHES.fetch_add(1, Ordering::SeqCst) {
            0 => json!({ "type": "MODIFIED", "object": hers("Expired", asked) }),
            // The same object again: no visible field has changed.
            1 => json!({ "type": "MODIFIED", "object": hers("Expired", asked) }),
            2 => json!({ "type": "ERROR", "object": {
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "too old resource version", "reason": "Expired", "code": 410,
            } }),
            3 => json!({ "type": "DELETED", "object": hers("Revoked", asked) }),
            _ => nothing,
        };
        line(stream, &event)
    });
    let mut child = stub.command(&["watch", "-o", "json"]).spawn().unwrap();
    let seen: Vec<Value> = lines(&mut child)
        .take(4)
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect();
    let of = |change: &Value| {
        let text = |name: &str| change[name].as_str().unwrap_or_default().to_owned();
        (text("name"), text("phase"), change["deleted"] == true)
    };
    let told: Vec<_> = seen.iter().map(of).collect();
    let expected = [
        ("alice-x7k2p", "Expired", false),
        ("bob-a1b2c", "Denied", true),
        ("alice-x7k2p", "Revoked", false),
        ("alice-x7k2p", "Revoked", true),
    ];
    for (told, expected) in told.iter().zip(expected) {
        assert_eq!(
            (told.0.as_str(), told.2),
            (expected.0, expected.2),
            "{seen:?}"
        );
        // The details of bob's request do not matter here.
        assert!(told.1 == expected.1 || told.0 == "bob-a1b2c", "{seen:?}");
    }
    assert_eq!(seen[0]["kind"], "ExecAccessRequest");
    assert_eq!(seen[0]["user"], "alice");
    send(child.id(), Signal::INT);
    let (code, said) = ended(child);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("watching; Ctrl-C stops"), "{said}");
}

#[test]
fn broken_watch_is_reported_once_and_survives_temporary_refusal() {
    static WATCHES: AtomicUsize = AtomicUsize::new(0);
    let is_watch = |asked: &ReceivedRequest| asked.query.contains("watch=true");
    let stub = Stub::start(move |asked| {
        if !(is_watch(asked) && asked.what.ends_with(WATCHED)) {
            return shop::answer(asked);
        }
        // The watch fails, and then the API server does not know the rights yet.
        let (code, reason) = match WATCHES.fetch_add(1, Ordering::SeqCst) {
            0 => (500, "InternalError"),
            _ => (403, "Forbidden"),
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "not yet", "reason": reason, "code": code,
        });
        (code, status)
    });
    stub.streams(move |asked, stream| {
        if !is_watch(asked) {
            return false;
        }
        if !asked.what.ends_with(WATCHED) {
            let nothing = json!({ "type": "BOOKMARK", "object": {
                "kind": "AccessLock", "apiVersion": "crds.wizardofoz.co/v1alpha1",
                "metadata": { "resourceVersion": "9" },
            } });
            return line(stream, &nothing);
        }
        let event = json!({ "type": "MODIFIED", "object": hers("Expired", asked) });
        WATCHES.load(Ordering::SeqCst) >= 3 && line(stream, &event)
    });
    let mut child = stub.command(&["watch", "-o", "json"]).spawn().unwrap();
    let mut lines = lines(&mut child);
    let change: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    assert_eq!(
        (&change["name"], &change["phase"]),
        (&json!("alice-x7k2p"), &json!("Expired"))
    );
    send(child.id(), Signal::INT);
    let (code, said) = ended(child);
    assert_eq!(code, Some(0), "{said}");
    for once in [
        "failed to receive changes: ",
        "; connecting again",
        "watching again, ",
    ] {
        assert_eq!(said.matches(once).count(), 1, "{once} in {said}");
    }
}
