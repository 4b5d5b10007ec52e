//! The network of a real node, for servers of a test that pods reach: their sockets and their addresses belong to the
//! node, so that this machine's network stays unchanged and two nodes do not conflict.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::needs;
use crate::files::write_private;

/// The file with the id of the process that holds the namespaces.
const HOLDER: &str = "holder";

/// Stores the id of the process that holds the namespaces, in the node's directory.
pub(super) fn store_holder(directory: &Path, holder: u32) -> Result<()> {
    write_private(&directory.join(HOLDER), holder.to_string().as_bytes())
}

/// Returns the path of the network namespace of the node of the cluster in the directory `state`.
fn namespace(state: &Path) -> Result<PathBuf> {
    let path = state.join("node").join(HOLDER);
    let holder = std::fs::read_to_string(&path).with_context(|| {
        format!(
            "failed to find a node's network: no real node is in {}",
            state.display()
        )
    })?;
    Ok(Path::new("/proc").join(holder.trim()).join("ns/net"))
}

/// Calls `action` in a thread in the network of the node of the cluster in the directory `state`.
pub(crate) fn within<T: Send>(
    state: &Path,
    action: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let path = namespace(state)?;
    let failed = || format!("failed to enter the node's network, {}", path.display());
    let network = File::open(&path).with_context(failed)?;
    std::thread::scope(|scope| {
        // A thread that has entered a namespace is not used for other work.
        let acting = scope.spawn(|| {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(network.as_fd(), kind).with_context(failed)?;
            action()
        });
        acting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns a command that runs `program` in the network of the node of the cluster in the directory `state`.
pub(crate) fn command(state: &Path, program: &str) -> Result<Command> {
    let mut command = Command::new(needs::program("nsenter").unwrap_or("nsenter".into()));
    command
        .arg(format!("--net={}", namespace(state)?.display()))
        .arg("--")
        .arg(program)
        .env("PATH", needs::search_path());
    Ok(command)
}
