//! Images with programs of this machine and the libraries that they need: clients as users have them, which no registry
//! provides to a test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use oz_testkit::{Image, Python, Tool, Tools};
use serde_json::Value;

use crate::run;

/// Directories of Python's library that a client does not need.
const UNUSED: [&str; 9] = [
    "__pycache__",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tkinter",
    "turtledemo",
];
/// The directory of Python's packages in the image.
const PACKAGES: &str = "python-packages";
/// The packages of `requests`.
const REQUESTS: [&str; 5] = [
    "certifi",
    "charset_normalizer",
    "idna",
    "requests",
    "urllib3",
];

/// Files of this machine, for an image.
#[derive(Debug, Default)]
pub struct Programs {
    /// The files by their paths in the image, each with its path here.
    files: BTreeMap<PathBuf, PathBuf>,
    links: BTreeMap<PathBuf, PathBuf>,
    /// The search path of programs.
    search: BTreeSet<PathBuf>,
}

impl Programs {
    /// Adds a program of this machine with its libraries, at the same paths.
    ///
    /// # Errors
    /// When the program is not installed.
    pub fn program(mut self, name: &str) -> Result<Self> {
        let path = find(name)?;
        self.search.extend(path.parent().map(Path::to_owned));
        self.with_libraries(&[path])?;
        Ok(self)
    }

    /// Adds git with its client of HTTPS.
    ///
    /// # Errors
    /// When git is not installed.
    pub fn git(mut self) -> Result<Self> {
        let mut git = Command::new("git");
        git.arg("--exec-path");
        let directory = PathBuf::from(run(git)?.trim());
        let program = find("git")?;
        self.links.insert(directory.join("git"), program);
        self.with_libraries(&[directory.join("git-remote-https")])?;
        self.program("git")
    }

    /// Adds Python with its own library; with the package `requests` if `python` is given.
    ///
    /// # Errors
    /// When Python is not installed.
    pub fn python(mut self, python: Option<&Python>) -> Result<Self> {
        let script = "import json, sys, sysconfig; print(json.dumps([sys.executable, \
                      sysconfig.get_path('stdlib'), sysconfig.get_config_var('DESTSHARED')]))";
        let mut command = Command::new("python3");
        command.args(["-s", "-c", script]);
        let paths: Vec<Value> = serde_json::from_str(&run(command)?)?;
        let paths: Vec<PathBuf> = paths
            .iter()
            .filter_map(Value::as_str)
            .map(PathBuf::from)
            .collect();
        let [program, library, extensions] = &paths[..] else {
            bail!("failed to find the library of Python: {paths:?}");
        };
        self.tree(library, library)?;
        let mut all = vec![program.clone()];
        for entry in fs::read_dir(extensions)? {
            let path = entry?.path();
            all.extend(
                path.extension()
                    .is_some_and(|it| it == "so")
                    .then_some(path),
            );
        }
        self.with_libraries(&all)?;
        self.search.extend(program.parent().map(Path::to_owned));
        for package in python.iter().flat_map(|_| REQUESTS) {
            let packages = python.map(Python::packages).context("no packages")?;
            self.tree(
                &packages.join(package),
                &Path::new("/").join(PACKAGES).join(package),
            )?;
        }
        Ok(self)
    }

    /// Adds the client in Go of `hack/tools/run-client`.
    ///
    /// # Errors
    /// When it cannot be compiled.
    pub fn run_client(mut self) -> Result<Self> {
        let tools = Tools::obtain(&[Tool::RunClient])?;
        let inside = Path::new("/usr/bin").join(Tool::RunClient.name());
        self.files
            .insert(inside, tools.path(Tool::RunClient)?.to_owned());
        Ok(self)
    }

    /// Returns an image with a shell and these files.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn image(&self, name: &str) -> Result<Image> {
        let search = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
        let search = search.iter().chain(&self.search);
        let search: Vec<_> = search.map(|it| it.display().to_string()).collect();
        let mut image = Image::busybox(name)?.search(&search.join(":")).file(
            "etc/nsswitch.conf",
            0o644,
            b"hosts: files dns\n",
        )?;
        for (inside, path) in &self.files {
            let failed = || format!("failed to read {}", path.display());
            let content = fs::read(path).with_context(failed)?;
            let mode = fs::metadata(path)
                .with_context(failed)?
                .permissions()
                .mode()
                & 0o755;
            image = image.file(relative(inside)?, mode | 0o444, &content)?;
        }
        for (inside, target) in &self.links {
            let target = target.to_str().context("a path is not text")?;
            image = image.link(relative(inside)?, target)?;
        }
        Ok(image)
    }

    /// Adds programs or libraries, and the libraries that they need.
    fn with_libraries(&mut self, all: &[PathBuf]) -> Result<()> {
        let mut ldd = Command::new("ldd");
        ldd.args(all);
        let said = run(ldd)?;
        // "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)", and "/lib64/ld-linux-x86-64.so.2 (0x…)".
        let is_path = |word: &&str| word.starts_with('/') && !word.ends_with(':');
        let libraries = said.split_whitespace().filter(is_path).map(PathBuf::from);
        for path in libraries.chain(all.iter().cloned()) {
            self.files.insert(path.clone(), path);
        }
        Ok(())
    }

    /// Adds the files below a directory, without those that no client needs.
    fn tree(&mut self, directory: &Path, inside: &Path) -> Result<()> {
        let failed = || format!("failed to read {}", directory.display());
        for entry in fs::read_dir(directory).with_context(failed)? {
            let path = entry.with_context(failed)?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let inside = inside.join(name);
            if UNUSED.contains(&name) || name.starts_with("config-") {
            } else if path.is_dir() {
                self.tree(&path, &inside)?;
            } else {
                self.files.insert(inside, path);
            }
        }
        Ok(())
    }
}

fn find(name: &str) -> Result<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&search).map(|directory| directory.join(name));
    all.find(|path| path.is_file())
        .with_context(|| format!("failed to find {name}: install it, for images of tests"))
}

fn relative(path: &Path) -> Result<&str> {
    let path = path.to_str().context("a path is not text")?;
    Ok(path.trim_start_matches('/'))
}
