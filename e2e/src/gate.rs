//! The gate as a process of this machine, which the API server reaches through a Service: an external name
//! where it listens on loopback only, a Service with an endpoint where the cluster has a network.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use http::Uri;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::{Patch, PatchParams};
use oz_api::{ExecAccessTemplate, Operation, RecordingConfig, Sessions, TargetKind, names};
use oz_core::gate::{GROUP, VERSION, prefix};
use oz_gating::API_SERVICE;
use oz_testkit::{CONDITION_TIMEOUT, Cluster, Process, cargo_binary, eventually, free_address};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use tempfile::TempDir;

use crate::access::exec_template;
use crate::system::{apply_as, command, get, ready};
use crate::{NAMESPACE, Options, Scene, apply};

/// A running gate.
#[derive(Debug)]
pub struct Gate {
    /// The process.
    pub process: Process,
    /// The address at which it serves the API server.
    pub serving: SocketAddr,
    address: SocketAddr,
}

impl Gate {
    /// Returns the options of an operator that knows the gate.
    #[must_use]
    pub fn operator_options() -> Options {
        Options::default()
            .set("gate.enabled", true)
            .set("gate.unregisterWhenUnavailable", false)
    }

    /// Starts a gate under its own service account, registers its address with the API server, and waits
    /// until the API server reaches it. Without a node's network the API server must resolve Services by
    /// their addresses (`--enable-aggregator-routing=false`).
    ///
    /// # Errors
    /// When the gate ends, does not become ready, or is not reached.
    pub async fn start(cluster: &Cluster, options: &Options) -> Result<Self> {
        Self::start_at(cluster, options, Self::free_address(cluster)?).await
    }

    /// Starts a gate like [`Gate::start`], at an address that was free.
    ///
    /// # Errors
    /// As [`Gate::start`].
    pub async fn start_at(
        cluster: &Cluster,
        options: &Options,
        serving: SocketAddr,
    ) -> Result<Self> {
        cargo_binary(names::GATE)?;
        apply(cluster, "deploy/rbac/gate")?;
        let address = free_address()?;
        let mut gate = Self {
            process: spawn(cluster, options, serving, address)?,
            serving,
            address,
        };
        gate.register(cluster).await?;
        ready("the gate", gate.address, &mut gate.process).await?;
        let admin = cluster.client("admin").await?;
        // The API server tries to reach a gate at intervals that double, and at once after a change of the Service.
        let change = json!({"metadata": {"annotations": {"example.test/serving": gate.serving}}});
        Api::<Service>::namespaced(admin.clone(), NAMESPACE)
            .patch(names::GATE, &PatchParams::default(), &Patch::Merge(&change))
            .await?;
        let services: Api<APIService> = Api::all(admin);
        eventually(
            "the API server to reach the gate",
            CONDITION_TIMEOUT,
            async || {
                let status = services.get(API_SERVICE).await?.status;
                let conditions = status.and_then(|status| status.conditions);
                let is_reached = conditions
                    .iter()
                    .flatten()
                    .any(|one| one.type_ == "Available" && one.status == "True");
                Ok(is_reached.then_some(()))
            },
        )
        .await?;
        Ok(gate)
    }

    /// Restarts the gate after its end, at the same address; the caller registers it.
    ///
    /// # Errors
    /// When it ends, or does not become ready.
    pub async fn again(&mut self, cluster: &Cluster, options: &Options) -> Result<()> {
        self.process = spawn(cluster, options, self.serving, self.address)?;
        ready("the gate", self.address, &mut self.process).await
    }

    /// Restarts the gate like [`Gate::again`], without waiting for it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn begins_again(&mut self, cluster: &Cluster, options: &Options) -> Result<()> {
        self.process = spawn(cluster, options, self.serving, self.address)?;
        Ok(())
    }

    /// Returns an address at which a gate can serve the API server.
    ///
    /// # Errors
    /// When no address is free.
    pub fn free_address(cluster: &Cluster) -> Result<SocketAddr> {
        let host: Uri = cluster.server_url().parse()?;
        let host: IpAddr = host.host().context("no host")?.parse()?;
        Ok(SocketAddr::new(host, free_address()?.port()))
    }

    async fn register(&self, cluster: &Cluster) -> Result<()> {
        let admin = cluster.client("admin").await?;
        let port = self.serving.port();
        let spec = if self.serving.ip().is_loopback() {
            json!({"type": "ExternalName", "externalName": "localhost"})
        } else {
            let slice = json!({
                "metadata": {
                    "name": names::GATE, "labels": {"kubernetes.io/service-name": names::GATE},
                },
                "addressType": "IPv4",
                "endpoints": [{"addresses": [self.serving.ip()], "conditions": {"ready": true}}],
                "ports": [{"name": "gate", "port": port, "protocol": "TCP"}],
            });
            let slices = Api::<EndpointSlice>::namespaced(admin.clone(), NAMESPACE);
            apply_as(&slices, slice).await?;
            json!({"ports": [{"name": "gate", "port": port}]})
        };
        let service = json!({"metadata": {"name": names::GATE}, "spec": spec});
        apply_as(
            &Api::<Service>::namespaced(admin.clone(), NAMESPACE),
            service,
        )
        .await?;
        let service = json!({
            "metadata": {"name": API_SERVICE},
            "spec": {
                "group": GROUP, "version": VERSION,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {
                    "namespace": NAMESPACE, "name": names::GATE, "port": port,
                },
            },
        });
        apply_as(&Api::<APIService>::all(admin), service).await?;
        Ok(())
    }

    /// Announces the gate to other replicas under this address, as an endpoint of its Service; it must listen
    /// at this address, which is not on loopback.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn is_endpoint(&self, cluster: &Cluster, name: &str, address: IpAddr) -> Result<()> {
        let slice = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": names::GATE}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
            "ports": [{"name": "gate", "port": self.serving.port(), "protocol": "TCP"}],
        });
        let admin = cluster.client("admin").await?;
        let slices = Api::<EndpointSlice>::namespaced(admin, NAMESPACE);
        apply_as(&slices, slice).await.map(drop)
    }

    /// Returns the page of metrics.
    ///
    /// # Errors
    /// When it does not respond.
    pub async fn metrics(&self) -> Result<String> {
        Ok(get(self.address, "/metrics").await?.1)
    }
}

fn spawn(
    cluster: &Cluster,
    options: &Options,
    serving: SocketAddr,
    address: SocketAddr,
) -> Result<Process> {
    let mut command = command(cluster, names::GATE, options)?;
    command.arg(format!("--listen={serving}"));
    command.arg(format!("--health-probe-bind-address={address}"));
    command.args(&options.flags);
    cluster.spawn(names::GATE, command)
}

/// The name of the template that routes its sessions through the gate.
pub const GATED: &str = "gated";

/// The operations that a template may permit on a running container.
pub const STREAMS: [Operation; 4] = [
    Operation::Exec,
    Operation::Attach,
    Operation::PortForward,
    Operation::Log,
];

/// Returns the template [`GATED`].
#[must_use]
pub fn gate_template() -> ExecAccessTemplate {
    let mut template = exec_template(GATED, TargetKind::Deployment, crate::WORKLOAD);
    let config = &mut template.spec.access_config;
    config.sessions = Sessions::Gate;
    config.operations = vec![Operation::Exec, Operation::Log];
    template
}

/// The store of recordings for a gate of the tests.
#[derive(Debug)]
pub struct RecordingStore {
    directory: TempDir,
}

impl RecordingStore {
    /// Creates a new store.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub fn new() -> Result<Self> {
        Ok(Self {
            directory: TempDir::new()?,
        })
    }

    /// Returns the options of a gate that uses the store.
    #[must_use]
    pub fn options(&self) -> Options {
        let path = self.directory.path();
        Options::default()
            .set(
                "gate.recordings.url",
                format!("file://{}", self.store().display()),
            )
            .set(
                "gate.recordings.spool.directory",
                path.join("spool").display(),
            )
    }

    /// Returns the directory with the stored recordings.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    /// Makes the store unavailable until the returned guard is dropped: a file takes the place of its directory.
    ///
    /// # Errors
    /// When the file cannot be written, or cannot take the place of the directory, which exists once a gate has started.
    pub fn unavailable(&self) -> Result<UnavailableStore> {
        let unavailable = UnavailableStore {
            store: self.store(),
            other: self.directory.path().join("unavailable"),
        };
        std::fs::write(&unavailable.other, "not a directory")?;
        unavailable.exchange()?;
        Ok(unavailable)
    }
}

/// A store that is unavailable until this is dropped.
#[derive(Debug)]
pub struct UnavailableStore {
    store: PathBuf,
    /// The file; the directory while the store is unavailable.
    other: PathBuf,
}

impl UnavailableStore {
    /// Exchanges file and directory in one step: the gate creates a directory that it does not find.
    fn exchange(&self) -> rustix::io::Result<()> {
        renameat_with(CWD, &self.store, CWD, &self.other, RenameFlags::EXCHANGE)
    }
}

impl Drop for UnavailableStore {
    fn drop(&mut self) {
        #[expect(
            clippy::print_stderr,
            reason = "later failures of the test follow from this one"
        )]
        if let Err(error) = self.exchange() {
            eprintln!("failed to make {} available: {error}", self.store.display());
        }
    }
}

/// Returns the template [`GATED`] with this configuration of recordings.
#[must_use]
pub fn recording_template(recording: RecordingConfig) -> ExecAccessTemplate {
    let mut template = gate_template();
    template.spec.access_config.recording = Some(recording);
    template
}

impl Scene {
    /// Returns an unmodified kubectl in the scene, through the gate of a request.
    #[must_use]
    pub fn through_gate(&self, user: &str, request: &str, arguments: &[&str]) -> Command {
        let server = format!(
            "{}{}",
            self.cluster.server_url(),
            prefix(self.name(), request)
        );
        let server = ["--server", &server];
        self.kubectl(user, &[&server, arguments].concat())
    }
}

impl Scene {
    /// Returns ozctl in the scene, as one of the users.
    ///
    /// # Errors
    /// When ozctl is not built.
    pub fn ozctl(&self, user: &str, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(cargo_binary("ozctl")?);
        command.args(["--namespace", self.name()]).args(arguments);
        command.env("KUBECONFIG", self.cluster.kubeconfig(user));
        Ok(command)
    }
}
