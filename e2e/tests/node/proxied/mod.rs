//! oz where a proxy on loopback is the only way to servers outside: the test runs in a network namespace without routes,
//! with its cluster, and the proxy connects in the network of the machine.

mod network;
mod proxy;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use oz_api::{
    ExecAccessRequest, NonInteractive, RecordedInput, RecordingConfig, RecordingMode,
    RequestStatus, names,
};
use oz_e2e::receiver::{Answers, Server};
use oz_e2e::{
    GATED, Gate, Options, Scene, Session, System, TicketAnswer, TicketServer, conditions_line,
    exec_request, recording_template, ticket_template,
};
use oz_testkit::{
    CONDITION_TIMEOUT, Cluster, ClusterOptions, Node, Process, Tools, cargo_binary, eventually,
};
use oz_testkit_s3::ObjectStore;
use serde_json::{Value, json};
use tempfile::TempDir;

use network::{HERE_NAME, METADATA, METADATA_NAME, NEAR, NEAR_NAME, Outside};
use proxy::TestProxy;

/// The test, which runs itself in the namespace.
const TEST: &str = "proxied::servers_outside_are_reached_through_the_proxy_alone";
/// The time that the test may take there, with the start of its cluster.
const TEST_TIMEOUT: Duration = Duration::from_mins(15);

// The names of the servers outside, which do not resolve in the namespace.
const COLLECTOR: &str = "collector.outside.test";
const CHAT: &str = "chat.outside.test";
const TICKETS: &str = "tickets.outside.test";
const BUCKET: &str = "bucket.outside.test";

/// The ticket checks, which are the names of their templates, too: of the server outside, and of a server with a name that
/// resolves to a metadata address.
const OUTSIDE_CHECK: &str = "jira";
const METADATA_CHECK: &str = "metadata";

#[tokio::test(flavor = "multi_thread")]
async fn servers_outside_are_reached_through_the_proxy_alone() -> Result<()> {
    match network::outside() {
        Some(machine) => in_namespace(&machine).await,
        None => run_in_namespace().await,
    }
}

/// Runs the test in the namespace.
async fn run_in_namespace() -> Result<()> {
    if !Node::Real.is_possible()? {
        return Ok(());
    }
    // The programs exist before: nothing can be fetched in the namespace.
    for program in [names::OPERATOR, names::WEBHOOK, names::GATE] {
        cargo_binary(program)?;
    }
    Tools::obtain(Node::Kwok.tools())?;
    let directory = TempDir::new()?;
    let command = network::confined(directory.path(), TEST)?;
    let mut process = Process::spawn("confined", directory.path(), command)?;
    let what = "the test to end in its namespace";
    let ended = eventually(what, TEST_TIMEOUT, async || process.exited()).await;
    let mut output = std::fs::read_to_string(process.stdout())?;
    output += &std::fs::read_to_string(process.stderr())?;
    let status = ended.with_context(|| output.clone())?;
    ensure!(
        status.success() && output.contains("test result: ok. 1 passed"),
        "the test in its namespace ended with {status}:\n{output}"
    );
    Ok(())
}

/// The test in the namespace; `machine` is the network of the machine.
async fn in_namespace(machine: &Path) -> Result<()> {
    network::has_no_way_out()?;
    let outside = Outside::enter(machine)?;
    let servers = Servers::start(&outside).await?;
    let tunnels = servers.tunnels()?;
    let proxy = TestProxy::start(outside.handle()?, tunnels.clone()).await?;
    // The API server finds the gate by the address of its Service.
    let cluster = Cluster::shared_with(ClusterOptions {
        api_server_flags: vec!["--enable-aggregator-routing=false".to_owned()],
        ..ClusterOptions::default()
    })
    .await?;
    let outbound = json!({
        "proxy": proxy.url(), "noProxy": [NEAR_NAME], "allowedHosts": ["127.0.0.1"],
    });
    let secrets = TempDir::new()?;
    let operator = servers.operator_options(&outbound, secrets.path())?;
    let system = System::start_with(cluster, &operator).await?;
    let scene = Scene::set(cluster, "proxied").await?;
    for check in [OUTSIDE_CHECK, METADATA_CHECK] {
        let template = ticket_template(check, None, Some(check));
        scene.template(&template).await?;
    }

    // The ticket check outside accepts the ticket.
    let alice = scene.requests("alice").await?;
    alice.granted(&with_ticket("debug", OUTSIDE_CHECK)).await?;
    ensure!(
        !servers.tickets.asked().is_empty(),
        "the grant was given without a request to the ticket server"
    );
    servers.have_grant().await?;
    servers.are_refused(&system).await?;
    alice
        .create(&with_ticket("refused", METADATA_CHECK))
        .await?;
    let is_reported = |status: &RequestStatus| conditions_line(status).contains("is link-local");
    alice
        .until("refused", "to report the address of the check", is_reported)
        .await?;
    servers.bucket_has_recording(&scene, &outbound).await?;

    ensure!(
        servers.were_not_called(),
        "a request reached a server at an address that oz must not call"
    );
    let asked = proxy.asked();
    let expected: BTreeSet<String> = tunnels.into_keys().collect();
    ensure!(
        asked == expected,
        "the proxy was asked for {asked:?}, and should be asked for {expected:?}"
    );
    Ok(())
}

/// Returns a request with a ticket, by the template of a check.
fn with_ticket(name: &str, check: &str) -> ExecAccessRequest {
    let mut request = exec_request(name, check, "1h");
    request.spec.ticket = Some("INC-1".to_owned());
    request
}

/// The servers that oz calls, or must not call.
struct Servers {
    // Outside.
    collector: Server,
    chat: Server,
    tickets: TicketServer,
    bucket: ObjectStore,
    /// The server in the namespace that is exempt from the proxy.
    near: Server,
    // In the namespace, at addresses that oz must not call.
    here: Server,
    metadata: Server,
}

impl Servers {
    async fn start(outside: &Outside) -> Result<Self> {
        let there = outside.run(async {
            tokio::try_join!(
                Server::start(Answers::With(202)),
                Server::start(Answers::With(200)),
                TicketServer::start(TicketAnswer::Open),
                ObjectStore::start(),
            )
        });
        let (collector, chat, tickets, bucket) = there.await?;
        Ok(Self {
            collector,
            chat,
            tickets,
            bucket,
            near: Server::start_at((NEAR, 0).into(), Answers::With(200)).await?,
            here: Server::start(Answers::With(200)).await?,
            metadata: Server::start_at((METADATA, 80).into(), Answers::With(200)).await?,
        })
    }

    /// Returns the servers outside, as HOST:PORT, with their addresses.
    fn tunnels(&self) -> Result<BTreeMap<String, SocketAddr>> {
        let address = |url: &str| -> Result<SocketAddr> {
            let address = url.trim_start_matches("http://");
            address
                .parse::<SocketAddr>()
                .with_context(|| format!("{url} is not the URL of an address"))
        };
        let servers = [
            (COLLECTOR, self.collector.address()),
            (CHAT, self.chat.address()),
            (TICKETS, address(&self.tickets.url(""))?),
            (BUCKET, address(&self.bucket.endpoint())?),
        ];
        let named = servers.map(|(name, address)| (format!("{name}:80"), address));
        Ok(BTreeMap::from(named))
    }

    /// Returns the routes to addresses that oz must not call: their names and URLs, and the reasons.
    fn refused_routes(&self) -> [(&'static str, String, &'static str); 4] {
        let port = self.here.address().port();
        let (loopback, link_local) = (
            "127.0.0.1 is a loopback address",
            "169.254.169.254 is link-local",
        );
        [
            (
                "loopback-by-address",
                format!("http://127.0.0.1:{port}/"),
                loopback,
            ),
            (
                "loopback-by-name",
                format!("http://{HERE_NAME}:{port}/"),
                loopback,
            ),
            (
                "metadata-by-address",
                format!("http://{METADATA}/"),
                link_local,
            ),
            (
                "metadata-by-name",
                format!("http://{METADATA_NAME}/"),
                link_local,
            ),
        ]
    }

    /// Returns the options of an operator that calls all servers but the bucket. Its Secrets are in a directory.
    fn operator_options(&self, outbound: &Value, secrets: &Path) -> Result<Options> {
        let events = ["AccessGranted"];
        let near = format!("http://{NEAR_NAME}:{}/", self.near.address().port());
        let mut routes = vec![
            json!({
                "name": "chat", "format": "Slack", "events": events,
                "url": format!("http://{CHAT}/services/T0/B0/X"),
            }),
            json!({"name": "near", "url": near, "events": events}),
        ];
        for (name, url, _) in self.refused_routes() {
            // In the configuration itself, a URL with such an address prevents the start.
            let directory = secrets.join("notifications").join(name);
            std::fs::create_dir_all(&directory)?;
            std::fs::write(directory.join("url"), url)?;
            let secret = json!({"name": name, "url": "url"});
            routes.push(json!({"name": name, "secret": secret, "events": events}));
        }
        let check = |host: &str| {
            json!({
                "url": format!("http://{host}/issue/{{ticket}}?fields=state"),
                "accept": "status == 200 && body.state == 'open'",
                "timeout": "10s", "interval": "1s", "failurePolicy": "Fail",
            })
        };
        let checks = BTreeMap::from([
            (OUTSIDE_CHECK, check(TICKETS)),
            (METADATA_CHECK, check(METADATA_NAME)),
        ]);
        Ok(Gate::operator_options()
            .set("outbound", outbound)
            .set("installation.secrets", secrets.display())
            .set("audit.http.url", format!("http://{COLLECTOR}/events"))
            .set("notifications", json!({"routes": routes}))
            .set("tickets", json!({"checks": checks})))
    }

    /// Waits until the collector and the servers of the routes have the grant.
    async fn have_grant(&self) -> Result<()> {
        for (name, server, text) in [
            ("the collector", &self.collector, "AccessGranted"),
            ("the Slack route", &self.chat, "Access granted"),
            ("the exempt route", &self.near, "AccessGranted"),
        ] {
            let what = format!("{name} to have the grant");
            eventually(&what, CONDITION_TIMEOUT, async || {
                let taken = server.taken();
                let has_grant = taken.iter().any(|request| request.raw.contains(text));
                ensure!(has_grant, "none of its {} requests says so", taken.len());
                Ok(Some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until the operator has reported each refused route with the reason.
    async fn are_refused(&self, system: &System) -> Result<()> {
        for (route, _, why) in self.refused_routes() {
            let what = format!("the refusal of route {route}");
            eventually(&what, CONDITION_TIMEOUT, async || {
                let log = std::fs::read_to_string(system.operator.process.stderr())?;
                let mut lines = log.lines();
                let is_refused = lines.any(|line| line.contains(route) && line.contains(why));
                ensure!(
                    is_refused,
                    "no line of the log contains {route} and {why:?}"
                );
                Ok(Some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Checks that no request has arrived at an address that oz must not call.
    fn were_not_called(&self) -> bool {
        let mut servers = [&self.here, &self.metadata].into_iter();
        servers.all(|server| server.taken().is_empty() && server.refused().is_empty())
    }

    /// Checks that a gate stores the recording of a session in the bucket.
    async fn bucket_has_recording(&self, scene: &Scene, outbound: &Value) -> Result<()> {
        let spool = TempDir::new()?;
        let options = Options::default()
            .set("outbound", outbound)
            .set("installation.secrets", self.bucket.secrets().display())
            .set("gate.recordings.url", "s3://recordings/cluster-1")
            .set("gate.recordings.endpoint", format!("http://{BUCKET}"))
            .set("gate.recordings.pathStyle", true)
            .set("gate.recordings.secret.name", "recordings")
            .set("gate.recordings.spool.directory", spool.path().display());
        let _gate = Gate::start(scene.cluster, &options).await?;
        let required = RecordingConfig {
            mode: RecordingMode::Required,
            input: RecordedInput::All,
            non_interactive: Some(NonInteractive::All),
        };
        scene.template(&recording_template(required)).await?;
        let alice = scene.requests("alice").await?;
        let request = exec_request("recorded", GATED, "10m");
        let pod = alice.granted(&request).await?.pod();
        let words = ["exec", "-i", &pod, "--", "sh", "-c", "echo here; exec cat"];
        let session = eventually(
            "alice's session through the gate",
            CONDITION_TIMEOUT,
            async || {
                let kubectl = scene.through_gate("alice", "recorded", &words);
                Ok(Some(Session::open(kubectl)?))
            },
        )
        .await?;
        drop(session);
        eventually(
            "the recording in the bucket",
            CONDITION_TIMEOUT,
            async || {
                let is_stored = !self.bucket.objects().is_empty();
                Ok(is_stored.then_some(()))
            },
        )
        .await
    }
}
