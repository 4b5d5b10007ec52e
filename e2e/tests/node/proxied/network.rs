//! A network namespace with the interface `lo` alone, in which a test runs as a separate process, and the network of the
//! machine, in which this process serves the servers outside.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::runtime::{Builder, Handle, Runtime};

/// An address in the namespace that is no loopback address, of the documentation range (RFC 5737).
pub(super) const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10));
/// The metadata address of clouds, which the namespace has, too: a request to it would arrive.
pub(super) const METADATA: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));
/// The names that resolve in the namespace.
pub(super) const HERE_NAME: &str = "here.test";
pub(super) const NEAR_NAME: &str = "near.test";
pub(super) const METADATA_NAME: &str = "metadata.test";

/// The variable that names the network namespace of the machine, for the process in the new namespace.
const OUTSIDE: &str = "OZ_TEST_OUTSIDE";

/// The setup of the namespaces: `$1` and `$2` are the files for name resolution, `$3` and `$4` the addresses, and the
/// rest is the command.
const SETUP: &str = r#"ip link set lo up
for address in "$3" "$4"; do ip address add "$address/32" dev lo; done
mount --bind "$1" /etc/hosts
if [ -e /etc/resolv.conf ]; then mount --bind "$2" /etc/resolv.conf; fi
shift 4
exec "$@""#;

/// Returns the network namespace of the machine if this process is in the new one.
pub(super) fn outside() -> Option<PathBuf> {
    std::env::var_os(OUTSIDE).map(PathBuf::from)
}

/// Returns a command that runs one test of this program in a new namespace. The files that it needs are in `directory`.
pub(super) fn confined(directory: &Path, test: &str) -> Result<Command> {
    let (hosts, servers) = (directory.join("hosts"), directory.join("resolv.conf"));
    let names = format!(
        "127.0.0.1 localhost {HERE_NAME}\n{NEAR} {NEAR_NAME}\n{METADATA} {METADATA_NAME}\n"
    );
    std::fs::write(&hosts, names)?;
    std::fs::write(&servers, "")?;
    let own = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let search = std::env::join_paths(std::env::split_paths(&own).chain(system))?;
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--mount", "--", "sh", "-ec", SETUP, "sh"])
        .args([&hosts, &servers])
        .args([NEAR, METADATA].map(|address| address.to_string()))
        .arg(std::env::current_exe()?)
        .args([test, "--exact", "--nocapture"])
        .env("PATH", search)
        .env(OUTSIDE, format!("/proc/{}/ns/net", std::process::id()))
        // A cluster in the namespace.
        .env_remove("CLUSTER");
    Ok(command)
}

/// Checks that this process has no route to another machine.
pub(super) fn has_no_way_out() -> Result<()> {
    let routes = std::fs::read_to_string("/proc/self/net/route")?;
    // The first line is the heading.
    let count = routes.lines().skip(1).count();
    ensure!(count == 0, "the namespace has routes:\n{routes}");
    Ok(())
}

/// The network of the machine.
pub(super) struct Outside {
    runtime: Option<Runtime>,
}

impl Outside {
    /// Enters a network namespace with the threads of a separate runtime.
    pub(super) fn enter(namespace: &Path) -> Result<Self> {
        let failed = || format!("failed to enter the network {}", namespace.display());
        let network = File::open(namespace).with_context(failed)?;
        // Threads are in the network of the thread that starts them.
        let runtime = std::thread::scope(|scope| {
            let starting = scope.spawn(|| {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(network.as_fd(), kind).with_context(failed)?;
                let mut runtime = Builder::new_multi_thread();
                let runtime = runtime.worker_threads(2).enable_all().build();
                runtime.context("failed to start a runtime")
            });
            starting
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        Ok(Self {
            runtime: Some(runtime),
        })
    }

    /// Returns the handle of the runtime: sockets of its tasks are in the network of the machine.
    pub(super) fn handle(&self) -> Result<Handle> {
        let runtime = self.runtime.as_ref();
        runtime
            .map(|runtime| runtime.handle().clone())
            .context("the runtime has ended")
    }

    /// Runs an action there.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        action: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.handle()?.spawn(action).await?
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // This drop may be in a task of another runtime, which must not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
