//! Failures: signals at every moment, readers that disconnect, unusual names, invalid responses.

use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::Signal;
use serde_json::json;

use crate::shop;
use crate::stub::{Answer, ReceivedRequest, Stub, TIMEOUT, ended, send, status};

/// Starts `ozctl` as a child that can receive signals.
fn child(stub: &Stub, words: &[&str]) -> Child {
    stub.command(words).spawn().unwrap()
}

pub(crate) fn never() -> Answer {
    loop {
        std::thread::park();
    }
}

/// Returns a shop in which some responses wait for the test; the test gets a message for each such
/// request.
pub(crate) fn slow(
    is_slow: fn(&ReceivedRequest) -> bool,
    answer: fn(&ReceivedRequest) -> Answer,
) -> (Stub, Receiver<()>) {
    let (tell, told) = channel();
    let stub = Stub::start(move |asked| {
        if is_slow(asked) {
            tell.send(()).unwrap();
            return answer(asked);
        }
        shop::answer(asked)
    });
    (stub, told)
}

pub(crate) fn is_watch(asked: &ReceivedRequest) -> bool {
    asked.query.contains("watch=true")
}

pub(crate) fn is_looked_at(asked: &ReceivedRequest) -> bool {
    asked.what.starts_with("GET ") && asked.what.contains("/transientrolebindings/")
}

fn is_create(asked: &ReceivedRequest) -> bool {
    asked.what.starts_with("POST ") && asked.what.ends_with("/execaccessrequests")
}

fn is_delete(asked: &ReceivedRequest) -> bool {
    asked.what.starts_with("DELETE ")
}

fn deleted(stub: &Stub) -> Vec<String> {
    let asked = stub.asked().into_iter().filter(is_delete);
    asked
        .map(|asked| asked.what.rsplit('/').next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn a_signal_while_access_is_waited_for_gives_it_back() {
    for (signal, code) in [
        (Signal::INT, 130),
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
    ] {
        for (words, name) in [
            // There is nothing to keep yet.
            (
                &["exec", "deploy/web", "--keep", "--", "true"][..],
                "alice-n4w5r",
            ),
            (&["extend", "alice-x7k2p"], "alice-n4w5r"),
            (&["bind", "view", "--user=lea", "--for=1h"], "lea-m2k9c"),
        ] {
            let (stub, told) = slow(|asked| is_watch(asked) || is_looked_at(asked), |_| never());
            let waiting = child(&stub, words);
            told.recv_timeout(TIMEOUT).unwrap();
            send(waiting.id(), signal);
            let (ended, said) = ended(waiting);
            assert_eq!(ended, Some(code), "{words:?}: {said}");
            // The table knows no such object, which counts as given back.
            assert_eq!(deleted(&stub), [name], "{words:?}: {said}");
        }
    }
}

#[test]
fn a_signal_while_a_request_is_created_waits_for_its_name_and_gives_it_back() {
    static GO: AtomicBool = AtomicBool::new(false);
    let (stub, told) = slow(is_create, |asked| {
        while !GO.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        shop::answer(asked)
    });
    let creating = child(&stub, &["exec", "deploy/web", "--", "true"]);
    told.recv_timeout(TIMEOUT).unwrap();
    send(creating.id(), Signal::INT);
    GO.store(true, Ordering::SeqCst);
    let (code, said) = ended(creating);
    assert_eq!(code, Some(130), "{said}");
    assert_eq!(deleted(&stub), ["alice-n4w5r"]);
}

#[test]
fn a_second_signal_ends_it_even_if_the_api_server_never_answers() {
    let (stub, told) = slow(is_create, |_| never());
    let creating = child(&stub, &["exec", "deploy/web", "--", "true"]);
    told.recv_timeout(TIMEOUT).unwrap();
    let (code, said) = impatient(creating);
    assert_eq!(code, Some(130), "{said}");

    let (stub, told) = slow(|asked| is_watch(asked) || is_delete(asked), |_| never());
    let waiting = child(&stub, &["exec", "deploy/web", "--", "true"]);
    told.recv_timeout(TIMEOUT).unwrap();
    send(waiting.id(), Signal::INT);
    // The request is being given back.
    told.recv_timeout(TIMEOUT).unwrap();
    let (code, said) = impatient(waiting);
    assert_eq!(code, Some(130), "{said}");
    assert!(
        said.contains("failed to revoke access (alice-n4w5r)"),
        "{said}"
    );
    assert!(said.contains("`ozctl revoke alice-n4w5r`"), "{said}");
}

/// Sends SIGINT until the child has ended: signals that arrive together count as one.
fn impatient(mut child: Child) -> (Option<i32>, String) {
    while child.try_wait().unwrap().is_none() {
        send(child.id(), Signal::INT);
        std::thread::yield_now();
    }
    ended(child)
}

#[test]
fn a_reader_who_has_seen_enough_ends_it_in_peace() {
    let stub = shop::open();
    for words in [
        &["templates", "--all", "-o", "json"][..],
        &["--help"],
        &["completion", "bash"],
        &["report"],
        &["create", "exec", "shell"],
    ] {
        let mut child = child(&stub, words);
        drop(child.stdout.take());
        let (code, said) = ended(child);
        assert!(matches!(code, Some(0)), "{words:?}: {code:?} {said}");
        assert!(!said.contains("panicked"), "{words:?}: {said}");
    }
}

#[test]
fn a_strange_name_is_refused_before_anything_is_asked_for() {
    let stub = shop::open();
    for words in [
        &["get", "ear", "../../pods"][..],
        &["get", "ear/a/b"],
        &["revoke", "a?b"],
        &["revoke", ""],
        &["explain", "a b"],
        &["explain", "--template", "a/b"],
        &["exec", "deploy/web", "--template", "../x"],
        &["exec", "deploy/web", "--request", "x#y"],
        &["exec", ""],
        &["exec", "deploy/we b"],
        &["create", "exec", "a%2fb"],
        &["templates", "-n", "shop/pods"],
    ] {
        let answer = stub.ozctl(words).output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        let code = answer.status.code();
        assert!(matches!(code, Some(1 | 125)), "{words:?}: {code:?} {said}");
        assert!(
            ["is no ", "is not a ", "empty"]
                .iter()
                .any(|one| said.contains(one)),
            "{words:?}: {said}"
        );
        assert!(!said.contains("panicked"), "{words:?}: {said}");
    }
    assert!(stub.asked().is_empty(), "{:?}", stub.asked());
}

#[test]
fn invalid_token_or_command_line_is_rejected_with_cause() {
    let stub = shop::open();
    for (words, said) in [
        (
            &["templates", "--token", "a\nb"][..],
            "letters that no token has",
        ),
        (&["exec", "deploy/web", "ls", "-la"], "stands after --"),
    ] {
        let answer = stub.ozctl(words).output().unwrap();
        let told = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(1), "{words:?}: {told}");
        assert!(told.contains(said), "{words:?}: {told}");
    }
}

#[test]
fn output_escapes_control_characters_of_other_users() {
    let stub = Stub::start(|asked| {
        let (code, body) = shop::answer(asked);
        let text = body.to_string().replace("INC-42", "\\u001b[2Jroot");
        let text = text.replace("kubectl exec -ti", "\\u001b[2Jkubectl");
        (code, serde_json::from_str(&text).unwrap())
    });
    for words in [
        &["requests", "-o", "wide"][..],
        &["explain", "alice-x7k2p"],
        &["create", "exec", "shell"],
    ] {
        let answer = stub.ozctl(words).output().unwrap();
        let said = String::from_utf8_lossy(&answer.stdout).into_owned();
        assert!(
            said.contains("\u{fffd}[2J") && !said.contains('\x1b'),
            "{words:?}: {said}"
        );
    }
}

#[test]
fn a_long_list_of_templates_stays_readable() {
    let many = Stub::start(|asked| {
        let (code, mut body) = shop::answer(asked);
        if asked.what.ends_with("/execaccesstemplates") {
            let one = body["items"][0].clone();
            let items = (0..5000).map(|number| {
                let mut item = one.clone();
                item["metadata"]["name"] = json!(format!("shell-{number:04}"));
                item
            });
            body["items"] = items.collect();
        }
        (code, body)
    });
    let answer = many
        .ozctl(&["exec", "deploy/web", "--", "true"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert_eq!(answer.status.code(), Some(125), "{said}");
    assert!(said.contains("shell-0009 and 4990 more"), "{said}");
    let answer = many.ozctl(&["templates"]).output().unwrap();
    assert_eq!(
        answer.stdout.iter().filter(|byte| **byte == b'\n').count(),
        5002
    );
}

#[test]
fn a_lookup_that_fails_is_not_taken_for_nothing() {
    let stub = Stub::start(|asked| match asked.what.contains("/execaccessrequests/") {
        true => status(500, "etcdserver: request timed out"),
        false => shop::answer(asked),
    });
    let answer = stub.ozctl(&["explain", "alice-x7k2p"]).output().unwrap();
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert_eq!(answer.status.code(), Some(1));
    assert!(said.contains("etcdserver: request timed out"), "{said}");
    // ozctl searched for no other object.
    let asked = stub.asked();
    assert!(
        !asked.iter().any(|asked| asked.what.contains("transient")),
        "{asked:?}"
    );
}

#[test]
fn missing_request_does_not_prevent_revocation_of_others() {
    let stub = shop::open();
    let words = ["revoke", "alice-x7k2p", "gone", "missing", "bob-a1b2c"];
    let answer = stub.ozctl(&words).output().unwrap();
    let (told, said) = (
        String::from_utf8_lossy(&answer.stdout).into_owned(),
        String::from_utf8_lossy(&answer.stderr).into_owned(),
    );
    assert_eq!(answer.status.code(), Some(1), "{said}");
    assert!(told.contains("alice-x7k2p revoked"), "{told}");
    assert!(told.contains("bob-a1b2c revoked"), "{told}");
    for name in ["gone", "missing"] {
        assert!(said.contains(&format!("no request {name} ")), "{said}");
    }
}

#[test]
fn a_cluster_without_oz_is_said_to_be_one() {
    let stub = Stub::start(|asked| match asked.what.contains("crds.wizardofoz.co") {
        true => status(404, "404 page not found"),
        false => shop::answer(asked),
    });
    for words in [
        &["templates"][..],
        &["requests"],
        &["exec", "deploy/web"],
        &["get", "ear"],
        &["get", "trb"],
        &["revoke", "x"],
        &["extend", "x"],
        &["explain", "x"],
        &["explain", "--template", "x"],
        &["create", "exec", "shell"],
        &["audit", "list"],
    ] {
        let answer = stub.ozctl(words).output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(
            matches!(answer.status.code(), Some(1 | 125)),
            "{words:?}: {said}"
        );
        assert!(
            said.contains("oz's CustomResourceDefinitions are not installed in the cluster"),
            "{words:?}: {said}"
        );
        assert!(said.contains("Next: "), "{words:?}: {said}");
    }
    let answer = stub.ozctl(&["doctor"]).output().unwrap();
    let told = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert_eq!(answer.status.code(), Some(1));
    assert!(told.contains("WRONG   oz's kinds"), "{told}");
}

#[test]
fn missing_rights_are_said_with_who_could_give_them() {
    let stub = Stub::start(|asked| {
        let (method, path) = asked.what.split_once(' ').unwrap_or_default();
        let verb = match method {
            "GET" => "list",
            "POST" => "create",
            _ => "delete",
        };
        let resource = path.rsplit('/').next().unwrap_or_default();
        status(
            403,
            &format!(
                "{resource}.crds.wizardofoz.co is forbidden: User \"alice\" cannot {verb} resource \
             \"{resource}\" in API group \"crds.wizardofoz.co\" in the namespace \"shop\""
            ),
        )
    });
    let answer = stub
        .ozctl(&["exec", "deploy/web", "--", "true"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert_eq!(answer.status.code(), Some(125));
    assert!(
        said.contains("Error: alice may not list execaccesstemplates in namespace shop"),
        "{said}"
    );
    assert!(
        said.contains("--user=alice`; or name the template with --template"),
        "{said}"
    );
}

#[test]
fn an_answer_that_is_none_is_said_to_be_none() {
    for (code, body) in [
        (200, json!("a string")),
        (502, json!("<html><body>Bad gateway</body></html>")),
        (500, json!({})),
    ] {
        let stub = Stub::start(move |_| (code, body.clone()));
        let answer = stub.ozctl(&["templates"]).output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(1), "{said}");
        assert!(
            said.starts_with("Error: ") && said.lines().count() <= 2,
            "{said}"
        );
    }
    let stub = Stub::start(|_| (200, json!("a string")));
    let answer = stub.ozctl(&["templates"]).output().unwrap();
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert!(said.contains("not of the Kubernetes API"), "{said}");
    assert!(said.contains("Next: check that the server"), "{said}");
}
