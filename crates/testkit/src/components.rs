//! The processes of the embedded cluster and all of their flags.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::files::write_private;
use crate::kubeconfig::kubeconfig;
use crate::pki::{Authority, Identity, service_account_keys};
use crate::spawn::{Running, spawn};
use crate::system::Signal;
use crate::tool::Tool;
use crate::tools::Tools;

/// The Service range, and its first address, which is the API server's own.
const SERVICE_RANGE: &str = "10.0.0.0/16";
const SERVICE_ADDRESS: &str = "10.0.0.1";
const LOOPBACK: &str = "127.0.0.1";
/// The first minor version with an API server that forwards the UID of a user.
pub(crate) const FORWARDS_UIDS: u32 = 33;
/// The name in the certificate with which the API server passes requests on.
const FRONT_PROXY: &str = "front-proxy-client";

/// The ports (on loopback, except the API server of a real node) and the directory of the processes
/// of one cluster.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) state: PathBuf,
    pub(crate) etcd: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) api_server: u16,
    pub(crate) controller_manager: u16,
    pub(crate) scheduler: u16,
    pub(crate) kwok: u16,
    /// The addresses of the API server and of the kubelet.
    pub(crate) address: Ipv4Addr,
    pub(crate) node_address: Ipv4Addr,
}

impl Layout {
    /// Chooses free ports, for an API server at `address` and a node at `node_address`.
    pub(crate) fn choose(state: &Path, address: Ipv4Addr, node_address: Ipv4Addr) -> Result<Self> {
        let [
            etcd,
            etcd_peer,
            api_server,
            controller_manager,
            scheduler,
            kwok,
        ] = crate::ports::free()?;
        let state = state.to_owned();
        Ok(Self {
            state,
            etcd,
            etcd_peer,
            api_server,
            controller_manager,
            scheduler,
            kwok,
            address,
            node_address,
        })
    }

    pub(crate) fn server_url(&self) -> String {
        format!("https://{}:{}", self.address, self.api_server)
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.state.join("pki")
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.state.join("audit.log")
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.state.join("logs").join(format!("{name}.log"))
    }

    fn path(&self, name: &str) -> String {
        self.state.join(name).display().to_string()
    }

    /// Writes every file that the processes read: keys, kubeconfigs, policies.
    pub(crate) fn prepare(&self, authority: &Authority) -> Result<()> {
        let pki = self.pki();
        let keep = |name: &str, identity: Identity| -> Result<()> {
            write_private(
                &pki.join(format!("{name}.crt")),
                identity.certificate.as_bytes(),
            )?;
            write_private(&pki.join(format!("{name}.key")), identity.key.as_bytes())
        };
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            LOOPBACK,
            SERVICE_ADDRESS,
            &self.address.to_string(),
        ];
        keep("apiserver", authority.server("kube-apiserver", &names)?)?;
        keep(
            "kubelet",
            authority.server(
                crate::node::NAME,
                &["localhost", &self.node_address.to_string()],
            )?,
        )?;
        keep(
            "kubelet-client",
            authority.client("kube-apiserver", &["system:masters"])?,
        )?;
        // The API server identifies with this certificate to the servers to which it passes
        // requests on.
        let front_proxy = pki.join("front-proxy");
        std::fs::create_dir_all(&front_proxy)
            .with_context(|| format!("failed to create {}", front_proxy.display()))?;
        let proxy = Authority::create(&front_proxy)?;
        keep("front-proxy/client", proxy.client(FRONT_PROXY, &[])?)?;
        let (private, public) = service_account_keys()?;
        write_private(&pki.join("sa.key"), private.as_bytes())?;
        write_private(&pki.join("sa.pub"), public.as_bytes())?;
        let kubelet = format!("system:node:{}", crate::node::NAME);
        for (name, user, groups) in [
            (
                "controller-manager",
                "system:kube-controller-manager",
                &[][..],
            ),
            ("scheduler", "system:kube-scheduler", &[]),
            // kwok stands in for every kubelet, and writes the status of any pod and node.
            ("kwok", "kwok", &["system:masters"]),
            ("kubelet", &kubelet, &["system:nodes"]),
            ("kube-proxy", "system:kube-proxy", &[]),
        ] {
            let identity = authority.client(user, groups)?;
            let content = kubeconfig(&self.server_url(), authority.certificate(), user, &identity);
            write_private(&self.state.join(format!("{name}.kubeconfig")), &content?)?;
        }
        write_private(
            &self.state.join("audit-policy.yaml"),
            include_bytes!("../config/audit-policy.yaml"),
        )?;
        write_private(
            &self.state.join("kwok.yaml"),
            include_bytes!("../config/kwok.yaml"),
        )
    }

    pub(crate) fn etcd_flags(&self) -> Vec<String> {
        let client = format!("http://{LOOPBACK}:{}", self.etcd);
        let peer = format!("http://{LOOPBACK}:{}", self.etcd_peer);
        flags([
            ("data-dir", self.path("etcd")),
            ("listen-client-urls", client.clone()),
            ("advertise-client-urls", client),
            ("listen-peer-urls", peer.clone()),
            ("initial-advertise-peer-urls", peer.clone()),
            ("initial-cluster", format!("default={peer}")),
            // The data is removed with the cluster: waiting for the disk has no benefit.
            ("unsafe-no-fsync", "true".into()),
        ])
    }

    /// Returns the flags of an API server of this minor version, with `extra` after them.
    pub(crate) fn api_server_flags(&self, minor: u32, extra: &[String]) -> Vec<String> {
        let pki = |name: &str| self.path(&format!("pki/{name}"));
        let mut flags = flags([
            ("etcd-servers", format!("http://{LOOPBACK}:{}", self.etcd)),
            ("bind-address", self.address.to_string()),
            ("advertise-address", self.address.to_string()),
            // Loopback is refused as an endpoint of the kubernetes Service, and this machine may
            // have no other address; no pod needs that Service while kwok runs them.
            (
                "endpoint-reconciler-type",
                if self.address.is_loopback() {
                    "none"
                } else {
                    "lease"
                }
                .into(),
            ),
            ("secure-port", self.api_server.to_string()),
            ("tls-cert-file", pki("apiserver.crt")),
            ("tls-private-key-file", pki("apiserver.key")),
            ("client-ca-file", pki("ca.crt")),
            ("service-account-key-file", pki("sa.pub")),
            ("service-account-signing-key-file", pki("sa.key")),
            (
                "service-account-issuer",
                "https://kubernetes.default.svc".into(),
            ),
            ("service-cluster-ip-range", SERVICE_RANGE.into()),
            ("authorization-mode", "Node,RBAC".into()),
            ("anonymous-auth", "true".into()),
            ("allow-privileged", "true".into()),
            // Webhook Services are reached at their endpoints: no kube-proxy serves this machine.
            ("enable-aggregator-routing", "true".into()),
            ("requestheader-client-ca-file", pki("front-proxy/ca.crt")),
            ("requestheader-allowed-names", FRONT_PROXY.into()),
            ("requestheader-username-headers", "X-Remote-User".into()),
            ("requestheader-group-headers", "X-Remote-Group".into()),
            (
                "requestheader-extra-headers-prefix",
                "X-Remote-Extra-".into(),
            ),
            ("proxy-client-cert-file", pki("front-proxy/client.crt")),
            ("proxy-client-key-file", pki("front-proxy/client.key")),
            ("kubelet-client-certificate", pki("kubelet-client.crt")),
            ("kubelet-client-key", pki("kubelet-client.key")),
            ("kubelet-certificate-authority", pki("ca.crt")),
            ("kubelet-preferred-address-types", "InternalIP".into()),
            ("enable-priority-and-fairness", "false".into()),
            // The benches are to measure oz, not the server's default limits (400 and 200).
            ("max-requests-inflight", "2000".into()),
            ("max-mutating-requests-inflight", "1000".into()),
            ("audit-policy-file", self.path("audit-policy.yaml")),
            ("audit-log-path", self.audit_log().display().to_string()),
            ("audit-log-mode", "blocking".into()),
            // In megabytes: a log that is rotated in the middle of a test loses counts.
            ("audit-log-maxsize", "100000".into()),
        ]);
        // 1.30 and 1.31 do not know the flag, and 1.32 refuses it.
        if minor >= FORWARDS_UIDS {
            flags.push("--requestheader-uid-headers=X-Remote-Uid".to_owned());
        }
        flags.extend_from_slice(extra);
        flags
    }

    pub(crate) fn controller_manager_flags(&self) -> Vec<String> {
        let kubeconfig = self.path("controller-manager.kubeconfig");
        flags([
            ("kubeconfig", kubeconfig.clone()),
            ("authentication-kubeconfig", kubeconfig.clone()),
            ("authorization-kubeconfig", kubeconfig),
            ("bind-address", LOOPBACK.into()),
            ("secure-port", self.controller_manager.to_string()),
            ("cert-dir", self.path("controller-manager")),
            ("service-account-private-key-file", self.path("pki/sa.key")),
            ("root-ca-file", self.path("pki/ca.crt")),
            ("use-service-account-credentials", "true".into()),
            ("leader-elect", "false".into()),
            ("kube-api-qps", "500".into()),
            ("kube-api-burst", "1000".into()),
            ("concurrent-gc-syncs", "50".into()),
        ])
    }

    pub(crate) fn scheduler_flags(&self) -> Vec<String> {
        let kubeconfig = self.path("scheduler.kubeconfig");
        flags([
            ("kubeconfig", kubeconfig.clone()),
            ("authentication-kubeconfig", kubeconfig.clone()),
            ("authorization-kubeconfig", kubeconfig),
            ("bind-address", LOOPBACK.into()),
            ("secure-port", self.scheduler.to_string()),
            ("cert-dir", self.path("scheduler")),
            ("leader-elect", "false".into()),
            ("kube-api-qps", "500".into()),
            ("kube-api-burst", "1000".into()),
        ])
    }

    pub(crate) fn kwok_flags(&self) -> Vec<String> {
        flags([
            ("kubeconfig", self.path("kwok.kubeconfig")),
            ("config", self.path("kwok.yaml")),
            ("manage-all-nodes", "true".into()),
            ("node-ip", LOOPBACK.into()),
            // Room for the pods of a bench; the default has 254 addresses.
            ("cidr", "10.244.0.0/16".into()),
            ("node-port", self.kwok.to_string()),
            // kwok does not authenticate a client before it runs a process: never on a network.
            ("server-address", format!("{LOOPBACK}:{}", self.kwok)),
            ("tls-cert-file", self.path("pki/kubelet.crt")),
            ("tls-private-key-file", self.path("pki/kubelet.key")),
            ("node-lease-duration-seconds", "40".into()),
        ])
    }
}

fn flags<const N: usize>(flags: [(&str, String); N]) -> Vec<String> {
    flags
        .into_iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect()
}

/// Returns the command of a Go program that collects garbage less often: 11 % of an API server's processor time
/// were garbage collection, and 7 % are with this setting. The limit bounds its memory.
fn lean(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("GOGC", "400").env("GOMEMLIMIT", "1GiB");
    command
}

/// Returns a shell command that runs kwok and kills the whole group at SIGTERM: the processes that
/// stand in for containers are kwok's children, and the death signal reaches one process only.
fn group_killer(program: &Path) -> Command {
    let mut command = lean(Path::new("sh"));
    command
        .args(["-c", r#"trap 'kill -9 0' TERM; "$@" & wait $!"#, "sh"])
        .arg(program);
    command
}

fn spawn_in(
    state: &Path,
    mut command: Command,
    log: std::fs::File,
    at_death: Signal,
) -> std::io::Result<Running> {
    command
        .current_dir(state)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    spawn(command, at_death)
}

/// One process of the control plane, with its log.
#[derive(Debug)]
pub(crate) struct Component {
    name: &'static str,
    log: PathBuf,
    running: Running,
    /// The program and flags of a component that is started without a shell around it.
    plain: Option<(PathBuf, Vec<String>)>,
}

impl Component {
    pub(crate) fn start(
        tool: Tool,
        tools: &Tools,
        layout: &Layout,
        flags: &[String],
    ) -> Result<Self> {
        // kwok has time to end the processes that stand in for containers; no other component has
        // children.
        let program = tools.path(tool)?;
        if tool == Tool::Kwok {
            let mut command = group_killer(program);
            command.args(flags);
            return Self::run(tool.name(), command, Signal::Terminate, layout);
        }
        let mut command = lean(program);
        command.args(flags);
        let mut component = Self::run(tool.name(), command, Signal::Kill, layout)?;
        component.plain = Some((program.to_owned(), flags.to_vec()));
        Ok(component)
    }

    /// Kills the process without warning and starts it again with the same flags.
    pub(crate) fn restart(&mut self) -> Result<()> {
        let failed = || format!("failed to start {} again", self.name);
        let (program, flags) = self.plain.as_ref().with_context(failed)?;
        let mut command = lean(program);
        command.args(flags);
        self.running.kill();
        let file = std::fs::File::options().append(true).open(&self.log);
        let file = file.with_context(failed)?;
        // The directory of the cluster is next to that of the log.
        let state = self.log.parent().and_then(Path::parent);
        self.running = spawn_in(state.with_context(failed)?, command, file, Signal::Kill)
            .with_context(failed)?;
        Ok(())
    }

    /// Starts `command`, which receives `at_death` when this process ends.
    pub(crate) fn run(
        name: &'static str,
        command: Command,
        at_death: Signal,
        layout: &Layout,
    ) -> Result<Self> {
        let failed = || format!("failed to start {name}");
        let log = layout.log(name);
        let file = std::fs::File::create(&log).with_context(failed)?;
        let running = spawn_in(&layout.state, command, file, at_death).with_context(failed)?;
        Ok(Self {
            name,
            log,
            running,
            plain: None,
        })
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the name and process id.
    pub(crate) fn describe(&self) -> (String, u32) {
        (self.name.to_owned(), self.running.pid())
    }

    /// # Errors
    ///
    /// Fails when the process has ended; the message ends with its last log lines.
    pub(crate) fn check(&mut self) -> Result<()> {
        let Some(status) = self.running.exited()? else {
            return Ok(());
        };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines
            .get(lines.len().saturating_sub(15)..)
            .unwrap_or_default()
            .join("\n");
        bail!("{} ended with {status}:\n{tail}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_of_uid_headers_is_set_from_1_33_on() {
        let address = Ipv4Addr::LOCALHOST;
        let layout = Layout::choose(Path::new("/state"), address, address).unwrap();
        for (minor, expected) in [(30, 0), (32, 0), (33, 1), (37, 1)] {
            let flags = layout.api_server_flags(minor, &["--extra=1".to_owned()]);
            let uids = flags
                .iter()
                .filter(|flag| flag.starts_with("--requestheader-uid-headers="));
            assert_eq!(uids.count(), expected, "{minor}");
            assert_eq!(flags.last().map(String::as_str), Some("--extra=1"));
        }
    }
}
