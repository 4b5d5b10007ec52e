//! Credential plugins; and completion, which must not wait for one, in a shell and as a plugin of kubectl.

use std::path::Path;

use serde_json::{Value, json};

use crate::shop;
use crate::stub::ozctl;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a user with credentials from a program that the kubeconfig names.
fn plugin(directory: &Path, script: &str) -> Value {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join("plugin");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": path, "args": ["token"],
        "env": [{"name": "WHO", "value": "alice"}], "interactiveMode": "Never",
    }})
}

#[test]
fn a_credential_plugin_is_run_as_the_kubeconfig_says() {
    let stub = shop::open();
    let script = r#"echo "{\"apiVersion\": \"client.authentication.k8s.io/v1\",
        \"kind\": \"ExecCredential\", \"status\": {\"token\": \"$1-of-$WHO\"}}""#;
    let user = plugin(stub.directory.path(), script);
    let path = stub.kubeconfig(&user);
    let answer = ozctl(&["templates"])
        .env("KUBECONFIG", path)
        .output()
        .unwrap();
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    let asked = stub.asked();
    assert!(!asked.is_empty());
    for one in asked {
        assert_eq!(one.header("authorization"), "Bearer token-of-alice");
    }
}

#[test]
fn a_credential_plugin_that_fails_is_said_with_what_it_said() {
    let stub = shop::open();
    let user = plugin(
        stub.directory.path(),
        "echo 'session expired, run: sso login' >&2; exit 3",
    );
    let path = stub.kubeconfig(&user);
    let answer = ozctl(&["templates"])
        .env("KUBECONFIG", &path)
        .output()
        .unwrap();
    assert_eq!(answer.status.code(), Some(1));
    let said = text(&answer.stderr);
    assert!(said.contains("sso login"), "{said}");
    assert!(said.contains("Next: log in again"), "{said}");

    let missing = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/nonexistent/plugin",
        "interactiveMode": "Never",
    }});
    let path = stub.kubeconfig(&missing);
    let answer = ozctl(&["templates"])
        .env("KUBECONFIG", &path)
        .output()
        .unwrap();
    let said = text(&answer.stderr);
    assert!(said.contains("/nonexistent/plugin"), "{said}");
    assert!(said.contains("Next: "), "{said}");
}

#[test]
fn a_credential_plugin_leaves_the_pipelines_input_alone() {
    let stub = shop::open();
    let script = r#"typed=$(cat); echo "{\"apiVersion\": \"client.authentication.k8s.io/v1\",
        \"kind\": \"ExecCredential\", \"status\": {\"token\": \"token$typed\"}}""#;
    let mut user = plugin(stub.directory.path(), script);
    let run = |user: &Value| {
        let answer = ozctl(&["templates"])
            .env("KUBECONFIG", stub.kubeconfig(user))
            .write_stdin("for the command")
            .output()
            .unwrap();
        (answer.status.code(), text(&answer.stderr))
    };
    user["exec"]["interactiveMode"] = json!("IfAvailable");
    let (code, said) = run(&user);
    assert_eq!(code, Some(0), "{said}");
    let asked = stub.asked();
    assert!(!asked.is_empty());
    for one in asked {
        assert_eq!(one.header("authorization"), "Bearer token");
    }
    user["exec"]["interactiveMode"] = json!("Always");
    let (code, said) = run(&user);
    assert_eq!(code, Some(1));
    assert!(said.contains("asks at a terminal"), "{said}");
    assert!(said.contains("Next: "), "{said}");
}

/// Returns the completions of the last word.
fn offered(kubeconfig: &Path, words: &[&str]) -> Vec<String> {
    let words = [&["--", "ozctl"], words].concat();
    let answer = ozctl(&words)
        .env("COMPLETE", "fish")
        .env("KUBECONFIG", kubeconfig)
        .output()
        .unwrap();
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    let offered = text(&answer.stdout);
    let names = offered.lines().filter_map(|line| line.split('\t').next());
    names.map(ToOwned::to_owned).collect()
}

#[test]
fn a_credential_plugin_that_hangs_does_not_hang_the_shell() {
    let stub = shop::open();
    let user = plugin(stub.directory.path(), "exec sleep 30");
    let path = stub.kubeconfig(&user);
    let before = std::time::Instant::now();
    offered(&path, &["exec", ""]);
    assert!(before.elapsed() < std::time::Duration::from_secs(20));
    assert!(stub.asked().is_empty());
}

#[test]
fn completion_offers_existing_names() {
    let stub = shop::open();
    let path = stub.kubeconfig(&json!({"token": "alices"}));
    let has = |words: &[&str], name: &str| {
        let offered = offered(&path, words);
        assert!(
            offered.iter().any(|one| one == name),
            "{words:?}: {offered:?}"
        );
    };
    has(&["exec", ""], "deployment/web");
    has(&["exec", "deploy/"], "deploy/web");
    has(&["exec", "w"], "web");
    has(&["exec", "template/sh"], "template/shell");
    has(&["pod", "deploy"], "deployment/web");
    has(&["revoke", ""], "alice-x7k2p");
    has(&["get", ""], "execaccessrequests");
    has(&["get", "ear", ""], "alice-x7k2p");
    has(&["get", "-n", "shop", "pat", ""], "debug");
    // A missing file in the list hides no contexts of the other files.
    let both = std::env::join_paths([Path::new("/nonexistent/config"), &path]).unwrap();
    let contexts = offered(Path::new(&both), &["templates", "--context", ""]);
    assert!(contexts.iter().any(|one| one == "here"), "{contexts:?}");
}

#[test]
fn kubectl_completion_of_plugin_offers_candidates_and_directive() {
    let stub = shop::open();
    let folder = stub.directory.path();
    let kubeconfig = stub.kubeconfig(&json!({"token": "alices"}));
    std::fs::create_dir(folder.join("files")).unwrap();
    let (begun, whole) = (folder.join("fil"), folder.join("files/"));
    let (begun, whole) = (begun.to_str().unwrap(), whole.to_str().unwrap());
    for plugin in ["oz", "paddock"] {
        let path = folder.join(format!("kubectl_complete-{plugin}"));
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ozctl"), path).unwrap();
    }
    for (plugin, words, offered, directive) in [
        ("oz", &["rev"][..], Some("revoke"), ":4"),
        ("oz", &["exec", "deploy/"], Some("deploy/web"), ":4"),
        ("oz", &["exec", "-n", "shop", "w"], Some("web"), ":4"),
        ("oz", &["exec", "--name"], Some("--namespace"), ":4"),
        ("oz", &["revoke", ""], Some("alice-x7k2p"), ":4"),
        ("oz", &["get", ""], Some("execaccessrequests"), ":4"),
        ("oz", &["get", "ear", ""], Some("alice-x7k2p"), ":4"),
        ("oz", &["templates", "--context", ""], Some("here"), ":4"),
        ("oz", &["kubeconfig", "a", "-o", begun], Some(whole), ":6"),
        ("oz", &["nothing-begins-so"], None, ":4"),
        ("oz", &[], None, ":4"),
        ("paddock", &["stat"], Some("status"), ":4"),
    ] {
        let path = folder.join(format!("kubectl_complete-{plugin}"));
        let answer = std::process::Command::new(path)
            .args(words)
            .env_clear()
            .env("KUBECONFIG", &kubeconfig)
            .output()
            .unwrap();
        assert!(answer.status.success(), "{words:?}: {answer:?}");
        let lines = text(&answer.stdout);
        let lines: Vec<&str> = lines.lines().collect();
        let (last, candidates) = lines.split_last().unwrap();
        assert_eq!(*last, directive, "{words:?}: {lines:?}");
        let mut values = candidates.iter().map(|line| line.split('\t').next());
        match offered {
            Some(offered) => assert!(
                values.any(|value| value == Some(offered)),
                "{words:?}: {lines:?}"
            ),
            None => assert!(candidates.is_empty(), "{words:?}: {lines:?}"),
        }
    }
}
