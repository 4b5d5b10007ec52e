//! The cache of compiled programs, with a stand-in for `go` that writes a note at each compilation.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Result, ensure};
use oz_testkit::{Tool, Tools};
use tempfile::TempDir;

/// The variable that makes [`obtain_the_tools`] run.
const OBTAIN: &str = "TESTKIT_OBTAIN";

/// A script that writes a program for each named package, after `$BEFORE`; the last element of
/// etcd's path is v3.
const GO: &str = r#"#!/bin/sh
eval "$BEFORE"
while [ "$1" != -o ]; do shift; done
out=$2; shift 2
mkdir -p "$out"
echo "$@" >>"$NOTES"
for package; do
  name=${package##*/}; [ "$name" = v3 ] && name=server
  echo "$package" >"$out/$name"
done
"#;

#[test]
#[ignore = "not a test: the others run it as a process with an environment of its own"]
fn obtain_the_tools() -> Result<()> {
    if std::env::var_os(OBTAIN).is_some() {
        let tools = Tools::obtain(&Tool::CLUSTER)?;
        for tool in Tool::CLUSTER {
            ensure!(tools.path(tool)?.is_file(), "{} is missing", tool.name());
        }
    }
    Ok(())
}

struct Sandbox(TempDir);

impl Sandbox {
    fn new() -> Result<Self> {
        let sandbox = Self(tempfile::tempdir()?);
        let go = sandbox.path().join("go");
        std::fs::write(&go, GO)?;
        std::fs::set_permissions(&go, std::fs::Permissions::from_mode(0o755))?;
        Ok(sandbox)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn obtain(&self, before: &str) -> Result<Child> {
        self.obtain_for(before, "")
    }

    /// Does the same as [`Sandbox::obtain`], for a cluster of this version of Kubernetes.
    fn obtain_for(&self, before: &str, kubernetes: &str) -> Result<Child> {
        let path = std::env::var("PATH")?;
        let child = Command::new(std::env::current_exe()?)
            .args(["obtain_the_tools", "--exact", "--ignored"])
            .env("PATH", format!("{}:{path}", self.path().display()))
            .env("XDG_CACHE_HOME", self.path().join("cache"))
            .env("NOTES", self.path().join("notes"))
            .env("BEFORE", before)
            .env("OZ_KUBERNETES", kubernetes)
            .env(OBTAIN, "1")
            .env_remove("KUBEBUILDER_ASSETS")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(child)
    }

    /// Returns the caches, one for each version of Kubernetes.
    fn caches(&self) -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(self.path().join("cache/oz"))?;
        let mut caches = entries
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<Vec<_>>>()?;
        caches.sort();
        Ok(caches)
    }

    /// Returns the number of compilations.
    fn compiled(&self) -> usize {
        std::fs::read_to_string(self.path().join("notes")).map_or(0, |notes| notes.lines().count())
    }
}

#[test]
fn processes_that_want_the_tools_at_once_compile_each_module_once() -> Result<()> {
    let sandbox = Sandbox::new()?;

    let children = [1, 2, 3].map(|_| sandbox.obtain("sleep 0.2"));
    for child in children {
        ensure!(child?.wait()?.success());
    }

    assert_eq!(sandbox.compiled(), 2);
    Ok(())
}

#[test]
fn a_compilation_that_fails_is_made_up_for_by_the_next() -> Result<()> {
    let sandbox = Sandbox::new()?;

    ensure!(!sandbox.obtain("exit 1")?.wait()?.success());
    ensure!(sandbox.obtain("")?.wait()?.success());

    assert_eq!(sandbox.compiled(), 2);
    Ok(())
}

#[test]
fn another_version_is_compiled_anew() -> Result<()> {
    let sandbox = Sandbox::new()?;
    ensure!(sandbox.obtain("")?.wait()?.success());
    let caches = sandbox.caches()?;
    assert_eq!(caches.len(), 1);

    std::fs::write(caches[0].join("bin/kwok.stamp"), "an older version")?;
    ensure!(sandbox.obtain("")?.wait()?.success());

    assert_eq!(sandbox.compiled(), 3);
    Ok(())
}

#[test]
fn versions_of_kubernetes_have_separate_caches_and_share_the_other_programs() -> Result<()> {
    let sandbox = Sandbox::new()?;
    ensure!(sandbox.obtain("")?.wait()?.success());

    ensure!(sandbox.obtain_for("", "1.30")?.wait()?.success());

    assert_eq!(sandbox.compiled(), 3);
    let caches = sandbox.caches()?;
    let [oldest, usual] = caches.as_slice() else {
        anyhow::bail!("not two caches: {caches:?}");
    };
    assert!(oldest.ends_with("k8s-1.30.14"), "{}", oldest.display());
    for (cache, has_kwok) in [(oldest, false), (usual, true)] {
        ensure!(cache.join("bin/kube-apiserver").is_file());
        ensure!(cache.join("bin/etcd").is_file());
        assert_eq!(cache.join("bin/kwok").is_file(), has_kwok);
    }
    Ok(())
}

#[test]
fn unknown_version_of_kubernetes_is_refused_before_anything_is_compiled() -> Result<()> {
    let sandbox = Sandbox::new()?;

    ensure!(!sandbox.obtain_for("", "1.29")?.wait()?.success());

    assert_eq!(sandbox.compiled(), 0);
    Ok(())
}
