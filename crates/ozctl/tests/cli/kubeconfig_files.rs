//! The content of kubeconfig files: empty values, several files, and relative paths.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::shop;
use crate::stub::{Stub, config, ozctl};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a shop in which the namespace `default` is the same as `shop`.
fn open() -> Stub {
    Stub::start(|asked| {
        let mut asked = asked.clone();
        asked.what = asked
            .what
            .replace("/namespaces/default/", "/namespaces/shop/");
        shop::answer(&asked)
    })
}

/// Returns a kubeconfig for the server, with a user with a token in a file.
fn complete(stub: &Stub) -> Value {
    let token = stub.directory.path().join("token");
    std::fs::write(&token, "alices").unwrap();
    let server = json!({"server": format!("http://{}", stub.address)});
    config("here", &server, &json!({"tokenFile": token}), "shop")
}

/// Lists templates with this kubeconfig, and checks that the server sees alice.
fn is_alice(stub: &Stub, kubeconfig: &Path, what: &str) {
    let before = stub.asked().len();
    let answer = ozctl(&["templates"])
        .env("KUBECONFIG", kubeconfig)
        .output()
        .unwrap();
    assert!(answer.status.success(), "{what}: {}", text(&answer.stderr));
    let asked = stub.asked();
    assert!(asked.len() > before, "{what}");
    for one in asked.iter().skip(before) {
        assert_eq!(one.header("authorization"), "Bearer alices", "{what}");
    }
}

#[test]
fn empty_value_in_first_kubeconfig_does_not_hide_second() {
    let stub = open();
    let second = stub.write("second", &complete(&stub));
    for first in [
        json!({"current-context": ""}),
        json!({"current-context": null, "clusters": null, "users": null, "contexts": null}),
        json!({"apiVersion": "", "kind": "", "current-context": "", "preferences": {}}),
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "",
            "clusters": [{"name": "away", "cluster": {"server": ""}}],
            "users": [{"name": "away", "user": {"token": ""}}],
            "contexts": [{"name": "away", "context": {"cluster": "", "user": "", "namespace": ""}}],
        }),
    ] {
        let path = stub.write("first", &first);
        let both = std::env::join_paths([&path, &second]).unwrap();
        is_alice(&stub, Path::new(&both), &first.to_string());
    }
}

#[test]
fn empty_value_in_kubeconfig_counts_as_absent() {
    let stub = open();
    for (list, part, field) in [
        ("clusters", "cluster", "certificate-authority"),
        ("clusters", "cluster", "certificate-authority-data"),
        ("clusters", "cluster", "proxy-url"),
        ("clusters", "cluster", "tls-server-name"),
        ("users", "user", "token"),
        ("users", "user", "username"),
        ("users", "user", "password"),
        ("users", "user", "client-certificate"),
        ("users", "user", "client-certificate-data"),
        ("users", "user", "client-key"),
        ("users", "user", "client-key-data"),
        ("users", "user", "as"),
        ("contexts", "context", "namespace"),
    ] {
        let mut file = complete(&stub);
        file[list][0][part][field] = json!("");
        let path = stub.write("kubeconfig", &file);
        is_alice(&stub, &path, field);
    }
}

#[test]
fn written_kubeconfig_has_absolute_paths_of_relative_kubeconfig() {
    let stub = Stub::start(|asked| {
        let (code, mut body) = shop::answer(asked);
        if asked.what.ends_with("/execaccessrequests/alice-x7k2p") {
            body["status"]["gate"] = json!(true);
        }
        (code, body)
    });
    let folder = stub.directory.path().join("home/kube");
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    std::fs::write(folder.join("token"), "alices").unwrap();
    let plugin = folder.join("bin/plugin");
    std::fs::write(
        &plugin,
        "#!/bin/sh\necho '{\"apiVersion\": \"client.authentication.k8s.io/v1\", \
         \"kind\": \"ExecCredential\", \"status\": {\"token\": \"alices\"}}'\n",
    )
    .unwrap();
    std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = json!({"server": format!("http://{}", stub.address)});
    let exec = |command: &str| {
        json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": command,
            "interactiveMode": "Never",
        }})
    };
    let root = std::path::absolute(stub.directory.path()).unwrap();
    for (from, kubeconfig) in [
        ("", "home/kube/config"),
        ("home", "kube/config"),
        ("home/kube", "config"),
        ("home/kube/bin", "../config"),
    ] {
        for (user, part, expected) in [
            (exec("./bin/plugin"), "/exec/command", "bin/plugin"),
            (exec("bin/plugin"), "/exec/command", "bin/plugin"),
            (json!({"tokenFile": "token"}), "/tokenFile", "token"),
        ] {
            let file = config("here", &server, &user, "shop");
            std::fs::write(folder.join("config"), file.to_string()).unwrap();
            let answer = ozctl(&["kubeconfig", "alice-x7k2p"])
                .current_dir(root.join(from))
                .env("KUBECONFIG", kubeconfig)
                .output()
                .unwrap();
            let what = format!("{kubeconfig} in {from}: {user}");
            assert!(answer.status.success(), "{what}: {}", text(&answer.stderr));
            let written: Value = serde_saphyr::from_str(&text(&answer.stdout)).unwrap();
            let path = written["users"][0]["user"].pointer(part);
            let path = Path::new(path.and_then(Value::as_str).unwrap());
            assert!(path.is_absolute(), "{what}: {}", path.display());
            // The path may contain `..` or `.`, but leads to the file.
            let (path, expected) = (path.canonicalize(), folder.join(expected).canonicalize());
            assert_eq!(path.unwrap(), expected.unwrap(), "{what}");
        }
    }
}
