//! A real node: containerd and a kubelet in separate network, mount and process namespaces, so that
//! the machine stays unchanged, two nodes can run at the same time, and the kernel ends all of it
//! (containers, mounts, devices) with the process that holds the namespaces.

mod cgroup;
mod needs;
mod network;
mod settings;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use self::cgroup::ControlGroup;
use crate::compile::say;
use crate::files::write_private;
use crate::image::Image;
use crate::spawn::{Running, spawn};
use crate::system::{Signal, signal_process};
use crate::tool::Tool;
use crate::wait::eventually;

pub(crate) use self::needs::busybox;
pub(crate) use self::network::{command, within};

/// The name of the one node, of either kind.
pub(crate) const NAME: &str = "node-1";
/// The image of the container that holds a pod's namespaces.
const PAUSE_IMAGE: &str = "example.test/pause:1";

/// The directory with a directory for each registry that containerd reaches in another way than by https.
const REGISTRIES: &str = "certs.d";

/// The address of the name server of pods, in the node. The node has the address, and no server: a test that needs one
/// listens there, see [`Cluster::within_node_network`](crate::Cluster::within_node_network). Without a server, the node
/// refuses questions at once.
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 53);

const NODE_STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// The kind of node that pods run on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Node {
    /// kwok: pods become Ready at once, and processes of this machine stand in for containers.
    /// Requires no root.
    #[default]
    Kwok,
    /// A kubelet and containerd: pods run, and an exec is a real one, with terminal, end of input
    /// and exit code. Requires root and Debian packages; see [`Node::check`].
    Real,
}

impl Node {
    /// Checks whether this machine has the requirements of such a node, apart from the compiled
    /// programs.
    ///
    /// # Errors
    ///
    /// Fails when a requirement is missing; the message contains the next step, for example the
    /// packages to install.
    pub fn check(self) -> Result<()> {
        match self {
            Self::Kwok => Ok(()),
            Self::Real => needs::check(),
        }
    }

    /// Checks whether a test that requires such a node can run here. If not, the reason is printed
    /// on standard error, and the test is to be skipped.
    ///
    /// # Errors
    ///
    /// Fails when the test cannot run and `OZ_REQUIRE_ALL` is set: no test is to be skipped then.
    pub fn is_possible(self) -> Result<bool> {
        let Err(lacking) = self.check() else {
            return Ok(true);
        };
        if std::env::var_os("OZ_REQUIRE_ALL").is_some() {
            return Err(lacking);
        }
        say(&format!("skipped: {lacking:#}"));
        Ok(false)
    }

    /// Returns the programs to compile for a cluster with such a node.
    #[must_use]
    pub const fn tools(self) -> &'static [Tool] {
        match self {
            Self::Kwok => &Tool::CLUSTER,
            Self::Real => &Tool::CLUSTER_WITH_KUBELET,
        }
    }
}

/// The namespaces of a node and their connection to the machine. They end, with every process in
/// them, when this value is dropped and when this process ends.
#[derive(Debug)]
pub(crate) struct Namespaces {
    /// `unshare`; the first process of the namespaces is its child.
    holder: Running,
    control_group: ControlGroup,
    directory: PathBuf,
    /// The machine's end of the virtual cable, and the part of the addresses that belongs to this
    /// node.
    device: String,
    number: u8,
}

impl Namespaces {
    /// Makes namespaces with their files in the directory `node` of `state`, and connects them.
    pub(crate) async fn create(state: &Path) -> Result<Self> {
        needs::check()?;
        for hidden in ["/run", "/var/lib", "/var/log"] {
            ensure!(
                !state.starts_with(hidden),
                "failed to prepare a real node in {}: it has a {hidden} of its own; set TMPDIR",
                state.display()
            );
        }
        let directory = state.join("node");
        std::fs::create_dir(&directory)
            .with_context(|| format!("failed to make {}", directory.display()))?;
        let log = state.join("logs/node.log");
        let holder = hold(&directory, &log)?;
        let control_group = ControlGroup::create(holder.pid())?;
        let mut this = Self {
            holder,
            control_group,
            directory,
            device: String::new(),
            number: 0,
        };
        let ready = this.directory.join("ready");
        eventually("the node's namespaces", NODE_STEP_TIMEOUT, async || {
            if let Some(status) = this.holder.exited()? {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                return Ok(Some(Err(anyhow::anyhow!(
                    "failed to make namespaces: {status}: {said}"
                ))));
            }
            Ok(ready.exists().then_some(Ok(())))
        })
        .await??;
        this.connect()?;
        Ok(this)
    }

    /// Returns the address at which the node reaches this machine.
    pub(crate) const fn machine_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 245, self.number, 1)
    }

    /// Returns the address at which this machine reaches the node.
    pub(crate) const fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 245, self.number, 2)
    }

    /// Returns the addresses of the node's pods.
    fn pods(&self) -> String {
        format!("10.244.{}.0/24", self.number)
    }

    /// Returns the IPv6 addresses of the node's pods, of the documentation range; `None` if this machine has no IPv6.
    fn pods_v6(&self) -> Option<String> {
        let has_v6 = Path::new("/proc/sys/net/ipv6").exists();
        has_v6.then(|| format!("2001:db8:{:x}::/64", self.number))
    }

    /// Creates a virtual cable between this machine and the node. The kernel removes it with the
    /// node.
    fn connect(&mut self) -> Result<()> {
        // Only one process can use a name, and with it the addresses.
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        let first = seed.to_le_bytes()[0];
        let holder = self.holder.pid().to_string();
        for offset in 0..=u8::MAX {
            self.number = first.wrapping_add(offset);
            self.device = format!("oz{}", self.number);
            let add = ["link", "add", &self.device, "type", "veth"];
            let peer = ["peer", "name", "eth0", "netns", &holder];
            match ip(&[&add[..], &peer].concat()) {
                Err(error) if offset < u8::MAX && format!("{error:#}").contains("File exists") => {}
                result => {
                    result?;
                    break;
                }
            }
        }
        let (outside, inside) = (self.machine_address(), self.address());
        let device = self.device.as_str();
        ip(&["addr", "add", &format!("{outside}/30"), "dev", device])?;
        ip(&["link", "set", device, "up"])?;
        let mut setup = self.enter(Path::new("sh"));
        setup.args([
            "-ec",
            SETUP,
            "sh",
            &inside.to_string(),
            &outside.to_string(),
            &NAME_SERVER.to_string(),
        ]);
        run(setup)?;
        network::store_holder(&self.directory, self.holder.pid())?;
        ip(&["route", "add", &self.pods(), "via", &inside.to_string()])
    }

    /// Returns a command that runs `program` in the namespaces.
    fn enter(&self, program: &Path) -> Command {
        let holder = self.holder.pid();
        let mut command = Command::new(needs::program("nsenter").unwrap_or("nsenter".into()));
        command
            .arg(format!("--target={holder}"))
            .args(["--mount", "--net"])
            // The holder itself is not in the process namespace: its children are.
            .arg(format!("--pid=/proc/{holder}/ns/pid_for_children"))
            .arg("--")
            .arg(program)
            .env("PATH", needs::search_path());
        command
    }

    /// Writes the configuration files of containerd and the kubelet.
    pub(crate) fn prepare(&self, state: &Path) -> Result<()> {
        let plugins = needs::plugins().context("failed to find the CNI plugins")?;
        let directory = &self.directory;
        std::fs::create_dir(directory.join("cni")).context("failed to make cni")?;
        let write = |name: &str, content: &[u8]| write_private(&directory.join(name), content);
        write(
            "containerd.toml",
            settings::containerd(directory, plugins).as_bytes(),
        )?;
        let network = settings::network(directory, &self.pods(), self.pods_v6().as_deref());
        write("cni/10-oz.conflist", &serde_json::to_vec_pretty(&network)?)?;
        let kubelet = settings::kubelet(directory, &state.join("pki"), &self.control_group.path());
        write("kubelet.json", &serde_json::to_vec_pretty(&kubelet)?)?;
        write(
            "kube-proxy.json",
            &serde_json::to_vec_pretty(&settings::proxy(state))?,
        )?;
        write("resolv.conf", b"")
    }

    /// Returns the command that runs containerd.
    pub(crate) fn containerd(&self) -> Result<Command> {
        let program = needs::program("containerd").context("failed to find containerd")?;
        let mut command = self.enter(&program);
        command
            .arg("--config")
            .arg(self.directory.join("containerd.toml"));
        Ok(command)
    }

    /// Returns the command that runs the kubelet.
    pub(crate) fn kubelet(&self, program: &Path, state: &Path) -> Command {
        let mut command = self.enter(program);
        command.args(settings::kubelet_flags(
            &self.directory,
            state,
            self.address(),
        ));
        command
    }

    /// Returns the command that runs kube-proxy.
    pub(crate) fn proxy(&self, program: &Path) -> Command {
        let mut command = self.enter(program);
        let settings = self.directory.join("kube-proxy.json");
        command.arg(format!("--config={}", settings.display()));
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // While the namespaces exist, the name belongs to this node.
        let _ = ip(&["link", "delete", &self.device]);
        // The end of the first process ends all others; after this, unshare has waited for it.
        if let Some(first) = child_of(self.holder.pid()) {
            let _ = signal_process(first, Signal::Kill);
            let _ = self.holder.wait(NODE_STEP_TIMEOUT);
        }
        self.holder.kill();
    }
}

/// The setup inside the namespaces once the cable exists: `$1` is the node's address, `$2` the
/// machine's, `$3` that of the name server.
const SETUP: &str = "ip addr add $1/30 dev eth0; ip link set eth0 up; ip route add default via $2; \
                     ip addr add $3/32 dev lo";

fn hold(directory: &Path, log: &Path) -> Result<Running> {
    let failed = || "failed to make the node's namespaces";
    let output = std::fs::File::create(log).with_context(failed)?;
    let script = directory.join("node.sh");
    write_private(&script, include_bytes!("../../config/node.sh"))?;
    let mut command = Command::new(needs::program("unshare").unwrap_or("unshare".into()));
    command
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child"])
        .args(["--mount-proc", "--", "sh"])
        .arg(script)
        .arg(directory)
        .env("PATH", needs::search_path())
        .stdin(Stdio::null())
        .stdout(output.try_clone().with_context(failed)?)
        .stderr(output);
    spawn(command, Signal::Kill).with_context(failed)
}

fn child_of(parent: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    children.ok()?.split_whitespace().next()?.parse().ok()
}

fn ip(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(needs::program("ip").unwrap_or("ip".into()));
    command.args(arguments);
    run(command)
}

fn run(mut command: Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("failed to run {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("failed to run {command:?}: {}: {said}", output.status);
    }
    Ok(())
}

/// Imports `image` to the node of the cluster in the directory `state`.
pub(crate) fn import(state: &Path, image: Image) -> Result<()> {
    let name = image.name().to_owned();
    let file = tempfile::NamedTempFile::new_in(state.join("node")).with_context(|| {
        format!(
            "failed to import image {name}: no real node is in {}",
            state.display()
        )
    })?;
    std::fs::write(file.path(), image.archive()?.bytes)
        .with_context(|| format!("failed to write image {name}"))?;
    import_archive(state, file.path()).with_context(|| format!("failed to import image {name}"))
}

/// Imports an existing archive, like [`import`].
pub(crate) fn import_archive(state: &Path, archive: &Path) -> Result<()> {
    let directory = state.join("node");
    let mut ctr = Command::new(needs::program("ctr").unwrap_or("ctr".into()));
    ctr.arg("--address").arg(directory.join("containerd.sock"));
    ctr.args(["--namespace", "k8s.io", "images", "import"]);
    ctr.arg(archive);
    run(ctr)
}

/// Lets the node of the cluster in the directory `state` pull images from a registry without TLS, HOST:PORT.
/// See <https://github.com/containerd/containerd/blob/release/1.6/docs/hosts.md>.
pub(crate) fn use_plain_registry(state: &Path, registry: &str) -> Result<()> {
    let node = state.join("node");
    let failed = || {
        format!(
            "failed to configure registry {registry} for the node in {}",
            state.display()
        )
    };
    ensure!(node.is_dir(), "{}: no real node is there", failed());
    let directory = node.join(REGISTRIES).join(registry);
    std::fs::create_dir_all(&directory).with_context(failed)?;
    let url = format!("http://{registry}");
    let hosts =
        format!("server = \"{url}\"\n\n[host.\"{url}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
    std::fs::write(directory.join("hosts.toml"), hosts).with_context(failed)
}

/// Imports the images that every pod requires: the one that holds a pod, and that of the fixtures.
pub(crate) fn import_first(state: &Path) -> Result<()> {
    for name in [PAUSE_IMAGE, crate::fixtures::IMAGE] {
        import(state, Image::busybox(name)?)?;
    }
    Ok(())
}
