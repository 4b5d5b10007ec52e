//! Open sessions: users list, watch and end them, through any replica.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, UdpSocket};
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::DeleteParams;
use oz_e2e::{
    GATED, Gate, NAMESPACE, Options, Scene, Session, System, exec_request, gate_template,
    records_in,
};
use oz_gating::live::Listing;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::{Action, Record};

use crate::passing::said;
use crate::{TURN, Whole, cluster};

const TALKS: &str = "echo here; while true; do echo still; sleep 1; done";

/// A program with an output that is available at its end.
pub(crate) struct Running {
    child: Child,
    /// Standard input stays open, so that kubectl does not report the end of input.
    _stdin: ChildStdin,
}

impl Running {
    /// Starts the program, and waits until its standard output contains this.
    pub(crate) fn start(mut command: Command, wanted: &str) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().context("no standard input")?;
        let mut output = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut line = String::new();
        while !line.contains(wanted) {
            line.clear();
            if output.read_line(&mut line)? == 0 {
                let mut why = String::new();
                if let Some(mut stderr) = child.stderr.take() {
                    stderr.read_to_string(&mut why)?;
                }
                let _ = child.wait();
                anyhow::bail!("it ended: {why}");
            }
        }
        std::thread::spawn(move || {
            // The thread reads the further output, so that the program does not block on it.
            let _ = output.read_to_end(&mut Vec::new());
        });
        Ok(Self {
            child,
            _stdin: stdin,
        })
    }

    /// Waits for the end of the program, and returns its exit code and its standard error.
    pub(crate) async fn ended(self) -> Result<Output> {
        let (child, stdin) = (self.child, self._stdin);
        let ended = tokio::task::spawn_blocking(move || child.wait_with_output());
        let ended = tokio::time::timeout(CONDITION_TIMEOUT, ended).await;
        let ended = ended.context("it did not end")???;
        drop(stdin);
        Ok(ended)
    }
}

/// Opens alice's session of request `mine`, as soon as she gets access.
pub(crate) async fn session(scene: &Scene, pod: &str) -> Result<Running> {
    eventually("alice to get in", CONDITION_TIMEOUT, async || {
        let command = ["exec", "-i", pod, "--", "sh", "-c", TALKS];
        Ok(Running::start(scene.through_gate("alice", "mine", &command), "here").ok())
    })
    .await
}

/// Returns the open sessions of request `mine`, as this user sees them.
pub(crate) fn listed(scene: &Scene, user: &str) -> Result<Listing> {
    let list = ["sessions", "list", "mine", "--live", "-o", "json"];
    let output = scene.ozctl(user, &list)?.output()?;
    ensure!(!output.stdout.is_empty(), "{}", said(&output));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the records of an action about a scene, once there is one for each of these reasons.
pub(crate) async fn noted(
    gate: &Gate,
    scene: &Scene,
    action: Action,
    reasons: &[&str],
) -> Result<Vec<Record>> {
    eventually(
        &format!("{action} for {reasons:?}"),
        CONDITION_TIMEOUT,
        async || {
            let mut records = records_in(&gate.process)?;
            records.retain(|one| one.action == action && one.request.namespace == scene.name());
            let all = reasons
                .iter()
                .all(|reason| records.iter().any(|one| one.reason == *reason));
            Ok(all.then_some(records))
        },
    )
    .await
}

#[tokio::test]
async fn open_session_is_listed_watched_and_ended_by_moderator_with_notice() -> Result<()> {
    let whole = Whole::start("live").await?;
    let (scene, gate) = (&whole.scene, &whole.gate);
    scene.may_moderate_sessions("moderators").await?;
    let moderator = format!("{}-moderators", scene.name());
    let alice = scene.requests("alice").await?;
    let pod = alice
        .granted(&exec_request("mine", GATED, "5m"))
        .await?
        .pod();
    let alices = session(scene, &pod).await?;
    let listing = listed(scene, &moderator)?;
    let [one] = listing.sessions.as_slice() else {
        anyhow::bail!("not one session: {listing:?}");
    };
    assert_eq!(
        (one.user.as_str(), one.pod.as_str(), one.way.as_str()),
        ("alice", pod.as_str(), "exec")
    );
    ensure!(
        one.bytes_out > 0 && one.watchable && !one.recorded,
        "{one:?}"
    );
    let refused = scene
        .ozctl("alice", &["sessions", "watch", "mine"])?
        .output()?;
    ensure!(
        !refused.status.success() && said(&refused).contains("oz-session-moderator"),
        "{}",
        said(&refused)
    );

    let watch = scene.ozctl(&moderator, &["sessions", "watch", "mine"])?;
    let watching = Running::start(watch, "still")?;
    let began = noted(gate, scene, Action::SessionWatched, &["Began"]).await?;
    ensure!(
        began
            .iter()
            .all(|one| one.user.as_ref().is_some_and(|user| user.user == moderator)),
        "{began:?}"
    );
    let listing = listed(scene, &moderator)?;
    let watchers: Vec<_> = listing
        .sessions
        .iter()
        .flat_map(|one| &one.watchers)
        .collect();
    ensure!(
        watchers.len() == 1 && watchers[0].user == moderator,
        "{watchers:?}"
    );

    let end = ["sessions", "end", "mine", "--reason", "it is late"];
    let ended = scene.ozctl(&moderator, &end)?.output()?;
    ensure!(ended.status.success(), "{}", said(&ended));
    let told = said(&alices.ended().await?);
    for words in [
        format!("oz: {moderator} watches this session"),
        format!("oz: {moderator} terminated this session: it is late"),
    ] {
        ensure!(told.contains(&words), "{told}");
    }
    let watched = watching.ended().await?;
    ensure!(
        watched.status.success() && said(&watched).contains("terminated this session: it is late"),
        "{}",
        said(&watched)
    );
    let cut = noted(gate, scene, Action::SessionTerminated, &["EndedByUser"]).await?;
    assert_eq!(cut[0].details.get("endedBy"), Some(&moderator));
    noted(gate, scene, Action::SessionWatched, &["Began", "Ended"]).await?;
    ensure!(listed(scene, &moderator)?.sessions.is_empty());
    let again = scene
        .ozctl(&moderator, &["sessions", "end", "mine"])?
        .output()?;
    assert_eq!(again.status.code(), Some(1), "{}", said(&again));
    Ok(())
}

/// Returns an address of this machine outside of loopback: an EndpointSlice accepts no other. Nothing is sent to it.
fn own_address() -> Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect("192.0.2.1:9")?;
    Ok(socket.local_addr()?.ip())
}

#[tokio::test]
async fn a_session_in_another_replica_is_found_watched_and_ended_through_this_one() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = cluster().await?;
    let _system = System::start_with(cluster, &Gate::operator_options()).await?;
    let start = async |name: &str| {
        let serving = Gate::free_address(cluster)?;
        let listen = format!("--listen=0.0.0.0:{}", serving.port());
        Gate::start_at(cluster, &Options::replica(name).flag(&listen), serving).await
    };
    let first = start("gate-first").await?;
    let scene = Scene::set(cluster, "replicas").await?;
    scene.template(&gate_template()).await?;
    scene.may_moderate_sessions("moderators").await?;
    let moderator = format!("{}-moderators", scene.name());
    let alice = scene.requests("alice").await?;
    let pod = alice
        .granted(&exec_request("mine", GATED, "5m"))
        .await?
        .pod();
    let in_first = session(&scene, &pod).await?;

    // The API server calls the other replica from now on.
    let mut second = start("gate-second").await?;
    let address = own_address()?;
    first.is_endpoint(cluster, "oz-gate-first", address).await?;
    second
        .is_endpoint(cluster, "oz-gate-second", address)
        .await?;
    let command = ["exec", "-i", &pod, "--", "sh", "-c", "echo here; exec cat"];
    let in_second = eventually("alice to get in", CONDITION_TIMEOUT, async || {
        Ok(Session::open(scene.through_gate("alice", "mine", &command)).ok())
    })
    .await?;
    let listing = eventually("both sessions", CONDITION_TIMEOUT, async || {
        let listing = listed(&scene, &moderator)?;
        Ok((listing.sessions.len() == 2).then_some(listing))
    })
    .await?;
    ensure!(listing.incomplete.is_empty(), "{listing:?}");
    let session = listing.sessions[0].session.clone();
    let (_, name) = session.split_once('/').context("no namespace")?;
    let watch = scene.ozctl(&moderator, &["sessions", "watch", name])?;
    let watching = Running::start(watch, "still")?;
    let ended = scene
        .ozctl(&moderator, &["sessions", "end", name])?
        .output()?;
    ensure!(ended.status.success(), "{}", said(&ended));
    let told = said(&in_first.ended().await?);
    ensure!(
        told.contains(&format!("{moderator} terminated this session")),
        "{told}"
    );
    ensure!(watching.ended().await?.status.success());
    let cut = noted(&first, &scene, Action::SessionTerminated, &["EndedByUser"]).await?;
    assert_eq!(cut[0].details.get("endedBy"), Some(&moderator));
    noted(&first, &scene, Action::SessionWatched, &["Began", "Ended"]).await?;
    ensure!(in_second.is_open(), "another session was ended");

    // The listing reports a replica that does not respond as missing.
    drop(first);
    let listing = listed(&scene, &moderator)?;
    ensure!(
        listing.sessions.len() == 1 && listing.incomplete.len() == 1,
        "{listing:?}"
    );
    let shown = scene
        .ozctl(&moderator, &["sessions", "list", "mine", "--live"])?
        .output()?;
    assert_eq!(shown.status.code(), Some(3), "{}", said(&shown));
    ensure!(
        second.process.exited()?.is_none(),
        "the second replica ended"
    );
    let slices: Api<EndpointSlice> = Api::namespaced(cluster.client("admin").await?, NAMESPACE);
    for name in ["oz-gate-first", "oz-gate-second"] {
        slices.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}
