//! Seeds from an https server: the trusted authorities, the recipients of the credentials, and traces of the
//! credentials. The server and the repository may be hostile.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::git_server::{GitServer, PASSWORD, USER};
use crate::seeds::{World, git};

/// Puts the Secret of a repository where the kubelet would.
fn secret(world: &World, keys: &[(&str, &str)]) {
    let folder = world.path("credentials");
    drop(fs::remove_dir_all(&folder));
    fs::create_dir(&folder).unwrap();
    for (key, value) in keys {
        fs::write(folder.join(key), value).unwrap();
    }
}

fn trusting(world: &World, server: &GitServer) {
    secret(
        world,
        &[
            ("ca.crt", server.authority()),
            ("username", USER),
            // As an editor leaves it.
            ("password", &format!("{PASSWORD}\n")),
        ],
    );
}

fn from(url: &str) -> Value {
    json!([{"url": url, "path": "src", "credentialsSecretRef": {"name": "git"}}])
}

/// Clones as the pod would, and gives what it said.
fn seed(world: &World, url: &str) -> Result<String, String> {
    world.said(from(url), "https:ssh", 2)
}

/// Asserts that a text contains no part of the credentials.
fn is_silent(text: &[u8], what: &str) {
    let known = BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}"));
    for word in [USER, PASSWORD, "pa55", "credentials", known.as_str()] {
        let found = text.windows(word.len()).any(|part| part == word.as_bytes());
        assert!(!found, "{what} has {word}");
    }
}

/// Asserts that a folder contains no part of the credentials.
fn is_clean(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let (kind, path) = {
            let entry = entry.unwrap();
            (entry.file_type().unwrap(), entry.path())
        };
        is_silent(path.as_os_str().as_encoded_bytes(), "a name");
        if kind.is_dir() {
            is_clean(&path);
        } else if kind.is_file() {
            is_silent(&fs::read(&path).unwrap(), &path.display().to_string());
        }
    }
}

#[test]
fn credentials_come_to_their_server_and_nowhere_else() {
    let world = World::new();
    let server = GitServer::start(&world.path(""), None);
    trusting(&world, &server);
    let url = server.url("private/repo");
    let said = seed(&world, &url).unwrap();
    assert_eq!(world.read("src/two").as_deref(), Some("2"));
    is_silent(said.as_bytes(), "what it said");
    is_clean(&world.path("workspace"));
    let clone = world.path("workspace/src");
    assert_eq!(git(&clone, &["remote", "get-url", "origin"]).trim(), url);
    let config = git(&clone, &["config", "--local", "--list"]);
    let keys: Vec<_> = config
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    let is_plain = |key: &str| {
        ["core.", "remote.origin.", "branch."]
            .iter()
            .any(|it| key.starts_with(it))
    };
    assert!(keys.iter().all(|(key, _)| is_plain(key)), "{config}");
    // None is asked for it that has not said that it wants to know.
    let asked = server.asked();
    assert!(
        asked[0].authorization.is_none() && asked.len() > 2,
        "{asked:?}"
    );
}

#[test]
fn untrusted_server_or_wrong_credentials_fail_seeding() {
    let world = World::new();
    let server = GitServer::start(&world.path(""), None);
    let url = server.url("private/repo");
    let authority = ("ca.crt", server.authority());
    let other = GitServer::start(&world.path(""), None);
    let (name, key) = (("username", USER), ("password", PASSWORD));
    for (what, keys, why) in [
        ("no authority", vec![name, key], "certificate"),
        (
            "another's",
            vec![("ca.crt", other.authority()), name, key],
            "certificate",
        ),
        (
            "a wrong password",
            vec![authority, name, ("password", "wrong")],
            "Authentication failed",
        ),
        ("no password", vec![authority, name], "password"),
        ("no user", vec![authority, key], "username"),
        (
            "an empty password",
            vec![authority, name, ("password", "")],
            "Authentication failed",
        ),
    ] {
        secret(&world, &keys);
        let said = seed(&world, &url).unwrap_err();
        assert!(said.contains(why), "{what}: {said}");
        assert!(!said.contains(PASSWORD), "{what}: {said}");
        assert_eq!(world.read("src/one"), None, "{what}");
    }
    let told = server.asked();
    let known = BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let got_it = |it: &crate::git_server::ReceivedRequest| {
        it.authorization
            .as_ref()
            .is_some_and(|said| said.contains(&known))
    };
    assert!(!told.iter().any(got_it), "{told:?}");
    // The pod that comes next has the right one.
    trusting(&world, &server);
    seed(&world, &url).unwrap();
    assert_eq!(world.read("src/one").as_deref(), Some("1"));
}

#[test]
fn seeding_follows_no_reference_to_another_server() {
    let world = World::new();
    let other = GitServer::start(&world.path(""), None);
    let elsewhere = other.url("private");
    let server = GitServer::start(
        &world.path(""),
        Some(elsewhere.trim_end_matches('/').to_owned()),
    );
    // Both are believed.
    secret(
        &world,
        &[
            (
                "ca.crt",
                &format!("{}{}", server.authority(), other.authority()),
            ),
            ("username", USER),
            ("password", PASSWORD),
        ],
    );
    let said = seed(&world, &server.url("moved/repo")).unwrap_err();
    assert!(said.contains("302"), "{said}");
    assert_eq!(world.read("src/one"), None);

    // A server that knows nothing of git names where more objects are.
    world.git(&["update-server-info"]);
    let info = world.path("repo/.git/objects/info");
    fs::write(
        info.join("http-alternates"),
        format!("{elsewhere}/repo/.git/objects/\n"),
    )
    .unwrap();
    let pack = world.path("repo/.git/objects");
    let hidden = world.path("hidden");
    fs::create_dir(&hidden).unwrap();
    for entry in fs::read_dir(&pack).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().len() == 2 {
            fs::rename(entry.path(), hidden.join(entry.file_name())).unwrap();
        }
    }
    let said = seed(&world, &server.url("plain/repo/.git")).unwrap_err();
    let asked = server.asked();
    assert!(
        asked
            .iter()
            .any(|it| it.path.ends_with("objects/info/http-alternates")),
        "{asked:?}: {said}"
    );
    assert_eq!(other.asked().len(), 0, "{said}");
}

#[test]
fn missing_repository_is_reported_and_empty_repository_is_seeded() {
    let world = World::new();
    let server = GitServer::start(&world.path(""), None);
    trusting(&world, &server);
    let said = seed(&world, &server.url("private/none")).unwrap_err();
    assert!(
        said.contains("repository") && said.contains("not found"),
        "{said}"
    );

    let empty = world.path("empty");
    fs::create_dir(&empty).unwrap();
    git(&empty, &["init", "-q", "-b", "main"]);
    let url = server.url("private/empty");
    let mut branch = from(&url);
    branch[0]["branch"] = json!("main");
    let said = world.said(branch, "https:ssh", 2).unwrap_err();
    assert!(said.contains("Remote branch main not found"), "{said}");
    seed(&world, &url).unwrap();
    assert!(world.path("workspace/src/.git").exists());
    assert!(world.read(".paddock/repos.json").is_some());
}

#[test]
fn submodules_are_not_fetched() {
    let world = World::new();
    let other = GitServer::start(&world.path(""), None);
    fs::write(
        world.path("repo/.gitmodules"),
        format!(
            "[submodule \"a\"]\n path = a\n url = {}\n",
            other.url("private/repo")
        ),
    )
    .unwrap();
    let commit = world.git(&["rev-parse", "HEAD"]);
    let link = format!("160000,{},a", commit.trim());
    world.git(&["update-index", "--add", "--cacheinfo", &link]);
    world.git(&["add", ".gitmodules"]);
    world.git(&["commit", "-q", "-m", "sub"]);
    let server = GitServer::start(&world.path(""), None);
    trusting(&world, &server);
    seed(&world, &server.url("private/repo")).unwrap();
    assert!(world.read("src/.gitmodules").is_some());
    assert_eq!(other.asked().len(), 0);
}
