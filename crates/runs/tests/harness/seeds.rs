//! What fills a workspace: the pod of the Job, and the script itself, with git and real folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use oz_api::harness::Workspace;
use oz_runs::seed::{self, Settings};
use oz_runs::stored::StoredObject;
use serde_json::{Value, json};

pub(crate) fn workspace(repos: Value) -> Workspace {
    serde_json::from_value(json!({
        "metadata": {
            "name": "cage", "namespace": "birds", "uid": "u-1", "creationTimestamp": crate::now(),
        },
        "spec": {"storage": {"size": "1Gi"}, "seed": {"repos": repos}},
    }))
    .unwrap()
}

pub(crate) fn settings() -> Settings {
    Settings {
        image: Some("git@sha256:0".to_owned()),
        pull_policy: "IfNotPresent".to_owned(),
        denied: vec!["10.96.0.0/12".parse().unwrap()],
    }
}

pub(crate) fn policy(workspace: &Workspace) -> Value {
    seed::network_policy(&StoredObject::new(workspace).unwrap(), &settings())
}

pub(crate) fn job(workspace: &Workspace) -> Value {
    seed::job(
        &StoredObject::new(workspace).unwrap(),
        &settings(),
        "git@sha256:0",
    )
}

#[test]
fn the_pod_that_clones_is_as_confined_as_a_run() {
    let two = workspace(json!([
        {"url": "https://git.test/a.git", "path": "a", "branch": "main", "depth": 1},
        {"url": "ssh://git@git.test:2222/b.git", "path": "b", "credentialsSecretRef": {"name": "key"}},
    ]));
    insta::assert_yaml_snapshot!("seed-job", job(&two));
    insta::assert_yaml_snapshot!("seed-policy", policy(&two));
}

/// Folders on this machine: repositories, and a workspace.
pub(crate) struct World(tempfile::TempDir);

impl World {
    /// Creates a repository with a link and two commits on `main`, of which `side` has only the first.
    pub(crate) fn new() -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        fs::create_dir(world.path("home")).unwrap();
        fs::create_dir(world.path("workspace")).unwrap();
        let repo = world.path("repo");
        fs::create_dir(&repo).unwrap();
        world.git(&["init", "-q", "-b", "main"]);
        fs::write(repo.join("one"), "1").unwrap();
        fs::write(repo.join(".hidden"), "h").unwrap();
        std::os::unix::fs::symlink("/etc", repo.join("link")).unwrap();
        world.git(&["add", "-A"]);
        world.git(&["commit", "-q", "-m", "one"]);
        world.git(&["branch", "side"]);
        fs::write(repo.join("two"), "2").unwrap();
        world.git(&["add", "-A"]);
        world.git(&["commit", "-q", "-m", "two"]);
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn git(&self, words: &[&str]) -> String {
        git(&self.path("repo"), words)
    }

    fn url(&self) -> String {
        format!("file://{}", self.path("repo").display())
    }

    /// Runs the containers of the Job of a workspace one after the other, until one fails.
    fn seed(&self, repos: Value, from: &str, containers: usize) -> Result<(), String> {
        self.said(repos, from, containers).map(drop)
    }

    /// Runs containers as [`World::seed`] does, and returns their output.
    pub(crate) fn said(
        &self,
        repos: Value,
        from: &str,
        containers: usize,
    ) -> Result<String, String> {
        let job = job(&workspace(repos));
        let pod = &job["spec"]["template"]["spec"];
        let all = ["initContainers", "containers"];
        let all = all.iter().flat_map(|list| pod[list].as_array().unwrap());
        let mut said = String::new();
        for container in all.take(containers) {
            let output = self.run(container, from, "unlimited");
            said.push_str(&String::from_utf8(output.stdout).unwrap());
            said.push_str(&String::from_utf8(output.stderr).unwrap());
            if !output.status.success() {
                return Err(said);
            }
        }
        Ok(said)
    }

    /// Runs a container where no file grows beyond so many blocks of the shell's `ulimit`.
    fn run(&self, container: &Value, protocols: &str, blocks: &str) -> Output {
        let command = container["command"].as_array().unwrap();
        let mut process = Command::new("sh");
        process.args(["-c", r#"ulimit -f "$0" && exec "$@""#, blocks]);
        process.args(command.iter().map(|word| word.as_str().unwrap()));
        let env = container["env"].as_array().unwrap();
        let mut env: BTreeMap<_, _> = env
            .iter()
            .map(|it| {
                let value = it["value"].as_str().unwrap().replace("$$", "$");
                (it["name"].as_str().unwrap(), value)
            })
            .collect();
        env.insert("HOME", self.path("home").display().to_string());
        env.insert("OZ_WORKSPACE", self.path("workspace").display().to_string());
        env.insert("GIT_ALLOW_PROTOCOL", protocols.to_owned());
        // What the kubelet mounts.
        if let Some(folder) = env.get_mut("OZ_CREDENTIALS") {
            *folder = self.path("credentials").display().to_string();
        }
        process
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap());
        process.envs(env).output().unwrap()
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path("workspace").join(name)).ok()
    }
}

pub(crate) fn git(folder: &Path, words: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@t.test"])
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn repositories_go_where_they_are_to_and_the_list_is_written_last() {
    let world = World::new();
    let url = world.url();
    let repos = json!([
        {"url": url, "path": "src/all"},
        {"url": url, "path": "side $(HOME) it's", "branch": "side", "depth": 1},
    ]);
    world.seed(repos.clone(), "file", 2).unwrap();
    assert_eq!(world.read(".paddock/repos.json"), None);
    world.seed(repos.clone(), "file", 3).unwrap();
    assert_eq!(world.read("src/all/two").as_deref(), Some("2"));
    assert_eq!(world.read("side $(HOME) it's/one").as_deref(), Some("1"));
    assert_eq!(world.read("side $(HOME) it's/two"), None);
    let list: Value = serde_json::from_str(&world.read(".paddock/repos.json").unwrap()).unwrap();
    assert_eq!(
        list,
        json!([
            {"path": "src/all", "url": url},
            {"branch": "side", "path": "side $(HOME) it's", "url": url},
        ])
    );
    let commits = |path: &str| {
        git(
            &world.path("workspace").join(path),
            &["rev-list", "--count", "HEAD"],
        )
    };
    assert_eq!(commits("src/all"), "2\n");
    assert_eq!(commits("side $(HOME) it's"), "1\n");
    assert!(!world.path("workspace/.paddock/seed").exists());
}

#[test]
fn r12_seeded_repository_is_never_cloned_again() {
    let world = World::new();
    let repos = json!([{"url": world.url()}]);
    world.seed(repos.clone(), "file", 2).unwrap();
    assert_eq!(world.read("one").as_deref(), Some("1"));
    assert_eq!(world.read(".hidden").as_deref(), Some("h"));
    // What a run did stays, also where the repository is gone since.
    fs::write(world.path("workspace/one"), "changed").unwrap();
    fs::remove_file(world.path("workspace/.hidden")).unwrap();
    fs::remove_dir_all(world.path("repo")).unwrap();
    world.seed(repos, "file", 2).unwrap();
    assert_eq!(world.read("one").as_deref(), Some("changed"));
    assert_eq!(world.read(".hidden"), None);
}

#[test]
fn a_pod_that_was_killed_anywhere_is_gone_on_from() {
    let world = World::new();
    let (url, own) = (world.url(), world.path("workspace/.paddock/seed/0"));
    let repos = json!([{"url": url}]);
    // In the middle of a clone.
    fs::create_dir_all(own.join("tree/.git")).unwrap();
    fs::write(own.join("tree/half"), "").unwrap();
    world.seed(repos.clone(), "file", 1).unwrap();
    assert_eq!(world.read("half"), None);
    assert_eq!(world.read("one").as_deref(), Some("1"));
    // In the middle of moving it.
    fs::create_dir(own.join("tree")).unwrap();
    fs::rename(world.path("workspace/one"), own.join("tree/one")).unwrap();
    world.seed(repos.clone(), "file", 1).unwrap();
    assert_eq!(world.read("one").as_deref(), Some("1"));
    // After it, before the list.
    world.seed(repos, "file", 2).unwrap();
    assert!(world.read(".paddock/repos.json").is_some());
    assert_eq!(
        git(&world.path("workspace"), &["status", "--porcelain"]),
        "?? .paddock/\n"
    );
}

#[test]
fn unavailable_repository_fails_seeding_with_cause() {
    let world = World::new();
    let url = world.url();
    let absent = format!("{url}-absent");
    for (repo, protocols, why) in [
        (
            json!({"url": absent}),
            "file",
            "does not appear to be a git repository",
        ),
        (
            json!({"url": url, "branch": "none"}),
            "file",
            "Remote branch none not found",
        ),
        (
            json!({"url": url}),
            "https:ssh",
            "transport 'file' not allowed",
        ),
        (
            json!({"url": "ext::sh -c id"}),
            "https:ssh",
            "transport 'ext' not allowed",
        ),
        (
            json!({"url": "--upload-pack=id"}),
            "https:ssh",
            "does not exist",
        ),
    ] {
        let said = world.seed(json!([repo]), protocols, 1).unwrap_err();
        assert!(said.contains(why), "{repo}: {said}");
    }
    fs::create_dir(world.path("workspace/a")).unwrap();
    let said = world
        .seed(json!([{"url": url, "path": "a"}]), "file", 1)
        .unwrap_err();
    assert!(said.contains("a is in the workspace already"), "{said}");

    fs::create_dir(world.path("repo/.paddock")).unwrap();
    fs::write(world.path("repo/.paddock/repos.json"), "[]").unwrap();
    world.git(&["add", "-A"]);
    world.git(&["commit", "-q", "-m", "hostile"]);
    fs::remove_dir_all(world.path("workspace/.paddock")).unwrap();
    let said = world.seed(json!([{"url": url}]), "file", 1).unwrap_err();
    assert!(said.contains("give the repository a path"), "{said}");
    assert_eq!(world.read(".paddock/repos.json"), None);
}

#[test]
fn repository_too_large_for_volume_is_cloned_when_space_suffices() {
    let world = World::new();
    // Nothing makes it smaller.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    })
    .take(4 << 20)
    .collect();
    fs::write(world.path("repo/large"), &noise).unwrap();
    world.git(&["add", "-A"]);
    world.git(&["commit", "-q", "-m", "large"]);
    let repos = json!([{"url": world.url()}]);
    let job = job(&workspace(repos.clone()));
    let clone = &job["spec"]["template"]["spec"]["initContainers"][0];
    let output = world.run(clone, "file", "2048");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("fatal:"), "{said}");
    assert_eq!(world.read("one"), None);
    assert_eq!(world.read(".paddock/repos.json"), None);
    world.seed(repos, "file", 2).unwrap();
    let large = fs::read(world.path("workspace/large")).unwrap();
    assert!(large == noise, "{} bytes of {}", large.len(), noise.len());
    assert!(world.read(".paddock/repos.json").is_some());
}

#[test]
fn submodules_and_hooks_are_left_alone() {
    let world = World::new();
    let url = world.url();
    let other = World::new();
    world.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        &other.url(),
        "sub",
    ]);
    world.git(&["commit", "-q", "-m", "sub"]);
    world
        .seed(json!([{"url": url, "path": "a"}]), "file", 2)
        .unwrap();
    assert!(world.path("workspace/a/.gitmodules").exists());
    assert!(!world.path("workspace/a/sub/one").exists());
    let config = world.read("a/.git/config").unwrap();
    assert!(
        !config.contains("followRedirects") && !config.contains("askpass"),
        "{config}"
    );
}
