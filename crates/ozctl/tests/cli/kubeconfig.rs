//! The choice of cluster, user and namespace: kubeconfig files, flags, proxies; and colours, which
//! are for terminals only.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;

use crate::shop;
use crate::stub::{Stub, config, ozctl, status};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the namespaces in which templates were listed.
fn namespaces(stub: &Stub) -> Vec<String> {
    let asked = stub.asked();
    let listed = asked.iter().filter_map(|asked| {
        let rest = asked.what.split("/namespaces/").nth(1)?;
        rest.strip_suffix("/execaccesstemplates")
    });
    listed.map(ToOwned::to_owned).collect()
}

/// Returns a shop that is the same in every namespace, so that all parallel lists are requested.
fn chain() -> Stub {
    Stub::start(|asked| {
        let mut asked = asked.clone();
        for name in ["other", "third", "right", "wrong"] {
            let place = format!("/namespaces/{name}/");
            asked.what = asked.what.replace(&place, "/namespaces/shop/");
        }
        shop::answer(&asked)
    })
}

#[test]
fn the_namespace_is_the_flags_or_the_contexts() {
    let stub = chain();
    assert!(
        stub.ozctl(&["templates"])
            .output()
            .unwrap()
            .status
            .success()
    );
    let _ = stub.ozctl(&["templates", "-n", "other"]).output().unwrap();
    let _ = stub
        .ozctl(&["--namespace=third", "templates"])
        .output()
        .unwrap();
    assert_eq!(namespaces(&stub), ["shop", "other", "third"]);
}

#[test]
fn several_files_are_one_kubeconfig_and_a_flag_names_one_alone() {
    let stub = chain();
    let server = json!({"server": format!("http://{}", stub.address)});
    let nowhere = json!({"server": "http://127.0.0.1:1"});
    let alice = json!({"token": "alices"});
    let first = stub.write("first", &config("first", &nowhere, &alice, "wrong"));
    let second = stub.write("second", &config("second", &server, &alice, "right"));
    // Files of the list that do not exist are skipped.
    let missing = stub.directory.path().join("missing");
    let both = std::env::join_paths([&missing, &first, &second]).unwrap();
    let run = |words: &[&str]| {
        let answer = ozctl(words).env("KUBECONFIG", &both).output().unwrap();
        text(&answer.stderr)
    };
    // The first file's context is the current one.
    let said = run(&["templates"]);
    assert!(
        said.contains("failed to connect to the API server"),
        "{said}"
    );
    let second = second.to_str().unwrap();
    for flag in [
        ["--context", "second"],
        ["--cluster", "second"],
        ["--kubeconfig", second],
    ] {
        let said = run(&[&["templates"], &flag[..]].concat());
        assert!(!said.contains("Error"), "{flag:?}: {said}");
    }
    assert_eq!(namespaces(&stub), ["right", "wrong", "right"]);

    let nothing = ozctl(&["templates"])
        .env("KUBECONFIG", &missing)
        .output()
        .unwrap();
    let said = text(&nothing.stderr);
    assert!(said.contains("there is no kubeconfig at /"), "{said}");

    let unknown = ozctl(&["templates", "--context", "third"])
        .env("KUBECONFIG", &both)
        .output()
        .unwrap();
    assert_eq!(unknown.status.code(), Some(1));
    let said = text(&unknown.stderr);
    assert!(said.contains("third") && said.contains("Next: "), "{said}");
}

#[test]
fn credentials_are_the_flags_or_the_kubeconfigs() {
    let stub = shop::open();
    stub.ozctl(&["templates"]).output().unwrap();
    stub.ozctl(&["templates", "--token", "anothers"])
        .output()
        .unwrap();
    let words = [
        "templates",
        "--as",
        "bob",
        "--as-group",
        "devs",
        "--as-group",
        "ops",
    ];
    stub.ozctl(
        &[
            &words[..],
            &["--as-uid", "7", "--as-user-extra", "scopes=all"],
        ]
        .concat(),
    )
    .output()
    .unwrap();
    let asked = stub.asked();
    let sent = |name: &str| -> Vec<&str> {
        let templates = asked
            .iter()
            .filter(|asked| asked.what.ends_with("/execaccesstemplates"));
        templates.map(|asked| asked.header(name)).collect()
    };
    assert_eq!(
        sent("authorization"),
        ["Bearer alices", "Bearer anothers", "Bearer alices"]
    );
    assert_eq!(sent("impersonate-user"), ["", "", "bob"]);
    assert_eq!(sent("impersonate-group"), ["", "", "ops"]);
    assert_eq!(sent("impersonate-uid"), ["", "", "7"]);
    assert_eq!(sent("impersonate-extra-scopes"), ["", "", "all"]);

    let alone = stub
        .ozctl(&["templates", "--as-group", "devs"])
        .output()
        .unwrap();
    assert_eq!(alone.status.code(), Some(1));
    assert!(text(&alone.stderr).contains("name one with --as"));
}

#[test]
fn unknown_kubeconfig_user_is_rejected_before_any_request() {
    let stub = shop::open();
    for words in [
        &["templates", "--user", "bob"][..],
        &["explain", "alice-x7k2p", "--user", "bob"],
    ] {
        let answer = stub.ozctl(words).output().unwrap();
        let said = text(&answer.stderr);
        assert_eq!(answer.status.code(), Some(1), "{words:?}: {said}");
        assert!(
            said.contains("the kubeconfig has no user bob"),
            "{words:?}: {said}"
        );
        assert!(said.contains("Next: "), "{words:?}: {said}");
    }
    assert!(stub.asked().is_empty());
}

#[test]
fn explain_treats_user_as_requester_not_as_kubeconfig_user() {
    let stub = shop::open();
    for (line, code, said) in [
        (
            "explain --user bob --template shell",
            1,
            "bob is in none of the groups",
        ),
        ("explain --user bob --group devs --template shell", 0, "bob"),
        ("--user bob explain --template shell --group devs", 0, "bob"),
        ("explain --for bob --group devs --template shell", 0, "bob"),
        // If --for names the requester, --user has its usual meaning.
        (
            "explain --for bob --group devs --template shell --user here",
            0,
            "bob",
        ),
        (
            "explain --for bob --template shell --user carol",
            1,
            "no user carol",
        ),
        (
            "explain --group devs --template shell",
            1,
            "--group requires the user",
        ),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let answer = stub.ozctl(&words).output().unwrap();
        let told = text(&answer.stdout) + &text(&answer.stderr);
        assert_eq!(answer.status.code(), Some(code), "{line}: {told}");
        assert!(told.contains(said), "{line}: {told}");
    }
}

#[test]
fn of_a_flag_that_is_given_twice_the_last_counts() {
    let stub = shop::open();
    for line in [
        "templates -n other -n shop",
        "templates --namespace other --namespace=shop",
        "templates --context there --context here --token a --token alices",
        "templates --all --all -o json -o name",
        "get ear -o json -o name -A -A",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let answer = stub.ozctl(&words).output().unwrap();
        assert!(answer.status.success(), "{line}: {}", text(&answer.stderr));
    }
    assert!(namespaces(&stub).iter().all(|name| name == "shop"));
}

#[test]
fn a_flag_with_an_empty_value_is_none() {
    let stub = shop::open();
    let flags = "--context= --kubeconfig= --server= --token= --cluster= --user= --as= --as-uid= \
                 --request-timeout= --namespace= --tls-server-name= --certificate-authority= \
                 --client-certificate= --client-key= --cache-dir=";
    let words: Vec<&str> = ["templates"].into_iter().chain(flags.split(' ')).collect();
    let answer = stub.ozctl(&words).output().unwrap();
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    let answer = stub.ozctl(&["templates", "-n", ""]).output().unwrap();
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    assert_eq!(namespaces(&stub), ["shop", "shop"]);
    let asked = stub.asked();
    assert!(
        asked
            .iter()
            .all(|asked| asked.header("authorization") == "Bearer alices")
    );
}

#[test]
fn every_flag_of_the_original_is_taken_after_its_commands() {
    let stub = shop::open();
    let server = format!("http://{}", stub.address);
    let path = stub.kubeconfig(&json!({"token": "alices"}));
    let path = path.to_str().unwrap();
    let flags = [
        &["--kubeconfig", path][..],
        &["--cache-dir", "/nonexistent"],
        &["--token", "another"],
        &[
            "--as",
            "bob",
            "--as-uid",
            "7",
            "--as-group",
            "devs",
            "--as-user-extra",
            "a=b",
        ],
        &["--cluster", "here", "--user", "here", "--context", "here"],
        &["-n", "shop"],
        &["-nshop"],
        &["--namespace=shop"],
        &["-s", &server],
        &["--server", &server],
        &["--tls-server-name", "other"],
        &["--insecure-skip-tls-verify"],
        &["--insecure-skip-tls-verify=false"],
        &["--request-timeout", "30s"],
        &["--request-timeout=0"],
        &["--disable-compression"],
        &["--disable-compression=true"],
    ];
    for command in [
        &["create", "ExecAccessRequest", "shell"][..],
        &["create", "PodAccessRequest", "debug"],
        &["get", "execaccessrequests"],
    ] {
        for flags in flags {
            let words = [command, flags].concat();
            let answer = stub.ozctl(&words).output().unwrap();
            assert!(
                answer.status.success(),
                "{words:?}: {}",
                text(&answer.stderr)
            );
        }
    }
}

#[test]
fn credentials_that_ran_out_are_said_with_what_to_do() {
    let stub = Stub::start(|_| status(401, "Unauthorized"));
    for words in [&["templates"][..], &["exec", "deploy/web"], &["requests"]] {
        let answer = stub.ozctl(words).output().unwrap();
        let said = text(&answer.stderr);
        assert!(
            said.contains("does not accept your credentials"),
            "{words:?}: {said}"
        );
        assert!(said.contains("Next: log in again"), "{words:?}: {said}");
    }
}

/// Starts a proxy that accepts CONNECT and records its targets; all connections go to one server.
fn proxy(server: std::net::SocketAddr) -> (std::net::SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let seen = Arc::clone(&seen);
            std::thread::spawn(move || tunnel(stream, server, &seen));
        }
    });
    (address, asked)
}

fn tunnel(client: TcpStream, server: std::net::SocketAddr, seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let mut line = first.clone();
    while !line.trim_end().is_empty() {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    seen.lock().push(first.trim_end().to_owned());
    let mut client = client;
    let mut inside = TcpStream::connect(server).unwrap();
    client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").unwrap();
    let mut back = (inside.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut back.0, &mut back.1));
    let _ = std::io::copy(&mut reader, &mut inside);
}

#[test]
fn a_proxy_is_the_kubeconfigs_or_the_environments() {
    let stub = shop::open();
    let (address, asked) = proxy(stub.address);
    let proxy = format!("http://{address}");
    let away = json!({"server": "http://api.shop.example:6443"});
    let named = json!({"server": "http://api.shop.example:6443", "proxy-url": proxy});
    let alice = json!({"token": "alices"});
    let away = stub.write("away", &config("away", &away, &alice, "shop"));
    let named = stub.write("named", &config("named", &named, &alice, "shop"));
    let run = |path: &Path, set: &[(&str, &str)]| {
        let mut command = ozctl(&["templates"]);
        command.env("KUBECONFIG", path);
        for (name, value) in set {
            command.env(name, value);
        }
        let answer = command.output().unwrap();
        let through = std::mem::take(&mut *asked.lock());
        (answer.status.success(), through.first().cloned())
    };
    let connect = Some("CONNECT api.shop.example:6443 HTTP/1.1".to_owned());
    assert_eq!(run(&named, &[]), (true, connect.clone()));
    // The proxy of the kubeconfig has precedence over the environment.
    assert_eq!(run(&named, &[("NO_PROXY", "*")]), (true, connect.clone()));
    assert_eq!(
        run(&away, &[("HTTP_PROXY", &proxy)]),
        (true, connect.clone())
    );
    assert_eq!(
        run(&away, &[("http_proxy", &address.to_string())]),
        (true, connect)
    );
    // Connections that are excluded from the proxy do not use it: no such host exists.
    let set = [
        ("HTTP_PROXY", proxy.as_str()),
        ("NO_PROXY", "10.0.0.0/8,.shop.example"),
    ];
    assert_eq!(run(&away, &set), (false, None));
    // Connections to this machine do not use it either.
    let here = stub.kubeconfig(&alice);
    assert_eq!(
        run(&here, &[("HTTP_PROXY", "http://127.0.0.1:1")]),
        (true, None)
    );
    assert_eq!(
        run(&here, &[("HTTPS_PROXY", "http://127.0.0.1:1")]),
        (true, None)
    );
}

#[test]
fn https_goes_through_the_proxy_too() {
    let stub = shop::open();
    let (address, asked) = proxy(stub.address);
    let away = json!({"server": "https://api.shop.example:6443"});
    let away = stub.write(
        "away",
        &config("away", &away, &json!({"token": "t"}), "shop"),
    );
    let answer = ozctl(&["templates", "--request-timeout", "5s"])
        .env("KUBECONFIG", away)
        .env("HTTPS_PROXY", format!("http://{address}"))
        .output()
        .unwrap();
    // The table does not support TLS; the request to the proxy itself shows the route.
    assert_eq!(answer.status.code(), Some(1), "{}", text(&answer.stderr));
    let asked = asked.lock();
    assert_eq!(
        asked.first().map(String::as_str),
        Some("CONNECT api.shop.example:6443 HTTP/1.1")
    );
}

#[test]
fn off_a_terminal_there_are_no_colours_nor_lines_that_are_drawn_anew() {
    let stub = shop::open();
    for words in [
        &["templates", "--all"][..],
        &["doctor"],
        &["explain", "alice-x7k2p"],
        &["create", "exec", "shell"],
        &["exec", "deploy/api"],
        &["--help"],
        &["frobnicate"],
    ] {
        let answer = stub
            .ozctl(words)
            .env("TERM", "xterm-256color")
            .output()
            .unwrap();
        for bytes in [&answer.stdout, &answer.stderr] {
            assert!(
                !text(bytes).contains(['\x1b', '\r']),
                "{words:?}: {}",
                text(bytes)
            );
        }
    }
}

#[test]
fn requests_have_user_agent_with_version() {
    let stub = shop::open();
    stub.ozctl(&["templates"]).output().unwrap();
    let asked = stub.asked();
    assert!(!asked.is_empty());
    for one in asked {
        let expected = concat!("ozctl/", env!("CARGO_PKG_VERSION"));
        assert_eq!(one.header("user-agent"), expected, "{}", one.what);
    }
}
