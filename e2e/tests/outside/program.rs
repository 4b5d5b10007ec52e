//! The README's program on a real API server.

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, Process, TestNamespace, eventually};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::application::{complaint, program};

/// The name of the README's program: of its fingerprint, its Service and its namespace.
const NAME: &str = "asked-by";
/// The ports of the program: for calls, and for probes.
const PORTS: [u16; 2] = [8443, 8080];

/// Waits for the turn of a test: one program runs at a time, since all listen on the same ports.
async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// Starts the program as `user`, once its ports are free on this machine.
async fn start(cluster: &Cluster, user: &str) -> Result<Process> {
    eventually(
        "ports 8443 and 8080 to be free",
        CONDITION_TIMEOUT,
        async || {
            for port in PORTS {
                TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port)))
                    .with_context(|| format!("port {port}"))?;
            }
            Ok(Some(()))
        },
    )
    .await?;
    let mut command = Command::new(program().await?);
    command.env("KUBECONFIG", cluster.kubeconfig(user));
    command.env("NO_COLOR", "1");
    cluster.spawn(NAME, command)
}

/// Returns an address of this machine that an API server accepts for an endpoint: none is on the loopback.
fn routable_address() -> Option<IpAddr> {
    // Sends nothing: connecting a datagram socket only asks the kernel for a route.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    match api
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await
    {
        Ok(_) => Ok(()),
        // The object is from an earlier run, on a cluster that stays up.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Creates the program's namespace with its Service, which leads to this machine.
async fn deploy(client: &Client, address: IpAddr) -> Result<()> {
    create::<Namespace>(
        &Api::all(client.clone()),
        json!({"metadata": {"name": NAME}}),
    )
    .await?;
    let [port, _] = PORTS;
    let service = json!({
        "metadata": {"name": NAME},
        "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port}]},
    });
    create(&namespaced_api::<Service>(client), service).await?;
    let slice = json!({
        "metadata": {"name": NAME, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address.to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    });
    create(&namespaced_api::<EndpointSlice>(client), slice).await
}

fn namespaced_api<K>(client: &Client) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), NAME)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readmes_program_built_from_the_packages_notes_who_asked() -> Result<()> {
    let _turn = turn().await;
    let cluster = Cluster::shared().await?;
    let client = cluster.client("admin").await?;
    let Some(address) = routable_address() else {
        ensure!(
            std::env::var_os("OZ_REQUIRE_ALL").is_none(),
            "this machine has no address besides the loopback, which cannot be an endpoint"
        );
        eprintln!("skipped: this machine has no address besides the loopback");
        return Ok(());
    };
    deploy(&client, address).await?;
    let namespace = TestNamespace::create(cluster, NAME).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace.name());
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "asked"},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
    }))?;
    let mut program = start(cluster, "admin").await?;
    let noted = eventually("the annotation", CONDITION_TIMEOUT, async || {
        if let Some(status) = program.exited()? {
            anyhow::bail!("the program ended with {status}: {:?}", program.lines()?);
        }
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let created = pods.create(&dry_run, &pod).await?;
        Ok(created.annotations().get("example.com/asked-by").cloned())
    })
    .await;
    let ended = program.terminate(CONDITION_TIMEOUT).await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    configurations
        .delete(NAME, &DeleteParams::default())
        .await?;
    assert_eq!(noted?, "admin");
    ensure!(
        ended?.success(),
        "a program that was asked to end has failed"
    );
    Ok(())
}

/// Waits until the program reports, in one line and once, that it lacks a right to a resource.
async fn forbidden(program: &mut Process, what: &str) -> Result<()> {
    let line = program
        .wait_for_line("a missing right", CONDITION_TIMEOUT, |line| {
            line.contains("is forbidden") && line.contains(what)
        })
        .await?;
    ensure!(line.contains("WARN"), "{line}");
    let times = line.matches("is forbidden").count();
    ensure!(times == 1, "said {times} times: {line}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn readme_program_logs_missing_rights_until_granted() -> Result<()> {
    let _turn = turn().await;
    let cluster = Cluster::shared().await?;
    let client = cluster.client("admin").await?;
    create::<Namespace>(
        &Api::all(client.clone()),
        json!({"metadata": {"name": NAME}}),
    )
    .await?;
    let mut program = start(cluster, "mallory").await?;
    forbidden(&mut program, r#"cannot get resource \"secrets\""#).await?;
    let role = json!({
        "metadata": {"name": NAME},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}],
    });
    create(&namespaced_api::<Role>(&client), role).await?;
    let binding = json!({
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
        "subjects": [{"kind": "User", "name": "mallory"}],
    });
    let bindings = namespaced_api::<RoleBinding>(&client);
    create(&bindings, binding).await?;
    let said = forbidden(&mut program, "mutatingwebhookconfigurations").await;
    bindings.delete(NAME, &DeleteParams::default()).await?;
    program.terminate(CONDITION_TIMEOUT).await?;
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn compiler_suggests_conversion_of_closure_to_handler() -> Result<()> {
    program().await?;
    let said = tokio::task::spawn_blocking(complaint).await??;
    for line in [
        "is not a handler of mutating hooks",
        "`mutate_fn` makes a handler of a closure",
    ] {
        ensure!(said.contains(line), "{line} is not in:\n{said}");
    }
    Ok(())
}
