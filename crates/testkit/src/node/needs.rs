//! The requirements of a real node: root, and programs of Debian packages. The testkit installs
//! nothing; it names the missing packages, with the command that installs them.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

/// The required programs with their Debian packages.
const PROGRAMS: [(&str, &str); 9] = [
    ("containerd", "containerd"),
    ("containerd-shim-runc-v2", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
];
/// The directories of administrators' programs, in case the PATH is a user's.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// The directories of CNI plugins: Debian's, and that of their own releases.
const CNI_DIRECTORIES: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];
const BUSYBOX_DIRECTORIES: [&str; 2] = ["/bin", "/usr/bin"];
/// `CAP_NET_ADMIN` and `CAP_SYS_ADMIN` of capabilities(7); root in a container may lack them.
const CAPABILITIES: u64 = 1 << 12 | 1 << 21;

/// # Errors
///
/// Fails when a requirement is missing; the message contains the next step.
pub(super) fn check() -> Result<()> {
    if !is_privileged() {
        bail!(
            "failed to prepare a real node: it takes root on Linux, with CAP_SYS_ADMIN and \
             CAP_NET_ADMIN (in a container: a privileged one)"
        );
    }
    let mut packages: BTreeSet<&str> = PROGRAMS
        .iter()
        .filter(|(name, _)| program(name).is_none())
        .map(|(_, package)| *package)
        .collect();
    if plugins().is_none() {
        packages.insert("containernetworking-plugins");
    }
    if busybox().is_none() {
        packages.insert("busybox-static");
    }
    if !packages.is_empty() {
        let packages: Vec<&str> = packages.into_iter().collect();
        bail!(
            "failed to prepare a real node: programs are missing; `apt-get install {}` brings them",
            packages.join(" ")
        );
    }
    namespaces()
}

/// Checks whether this machine permits root to make namespaces; a container's seccomp profile may
/// not.
fn namespaces() -> Result<()> {
    let output = Command::new(program("unshare").unwrap_or("unshare".into()))
        .args(["--mount", "--net", "--pid", "--fork", "--", "true"])
        .output();
    let said = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    bail!(
        "failed to prepare a real node: this machine does not permit the creation of mount, \
         network and process namespaces ({said}); in a container, run a privileged one"
    )
}

fn is_privileged() -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or_default();
    is_root && effective & CAPABILITIES == CAPABILITIES
}

/// Returns the PATH of the node's processes: this process's, and the directories of administrators.
pub(super) fn search_path() -> std::ffi::OsString {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&own).chain(SYSTEM_DIRECTORIES.map(PathBuf::from));
    std::env::join_paths(all).unwrap_or(own)
}

/// Returns the path of the program `name`.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    find(name, std::env::split_paths(&search_path()))
}

/// Returns the directory of the CNI plugins.
pub(super) fn plugins() -> Option<&'static Path> {
    let mut directories = CNI_DIRECTORIES.iter().map(Path::new);
    directories.find(|directory| directory.join("bridge").is_file())
}

/// Returns the path of a busybox that requires no library, for images.
pub(crate) fn busybox() -> Option<PathBuf> {
    let found = find("busybox", BUSYBOX_DIRECTORIES.iter().map(PathBuf::from))?;
    let program = std::fs::read(&found).ok()?;
    // A dynamically linked program names its loader.
    let is_static = !program.windows(4).any(|bytes| bytes == b"/ld-");
    is_static.then_some(found)
}

fn find(name: &str, directories: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    directories
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}
