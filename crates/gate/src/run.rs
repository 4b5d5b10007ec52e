//! What the gate consists of, put together.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, bail};
use oz_admission::{CertPolicy, Clients, Limits, TlsService};
use oz_api::names::{self, REGISTRATION};
use oz_audit::{AuditKeyWatch, KeyRotation, SealKeyRotation, SealKeyWatch, Trail, seal_keys};
use oz_core::access::seal::{Keys, Owner};
use oz_runtime::Who::Everyone;
use oz_runtime::{Address, ClockAlarm, Listen, Runtime, ServerClock, Warnings, shutdown_on_signal};

use crate::args::{Args, RecordingArgs};
use crate::caller::Callers;
use crate::grants::Grants;
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::play::Viewings;
use crate::recordings::Recordings;
use crate::registration::Registration;
use crate::router::{Door, router};
use crate::sessions::Sessions;
use crate::spool::Spool;
use crate::upstream::Upstream;

/// How long a new authority is in the APIService before anything is served that it signed.
const SETTLE: Duration = Duration::from_secs(120);

/// The owner of the private keys in this process.
const OWNER: Owner = Owner::Gate;

/// Runs until a signal, or until what it needs is lost.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let shutdown = shutdown_on_signal()?;
    let common = &args.common;
    let Some(listener) = args.listen.0.map(bind).transpose()? else {
        bail!("failed to start: --listen says nowhere, but the API server must reach the gate");
    };
    let port = listener.local_addr()?.port();
    let config = common.config(names::GATE).await?;
    let upstream = Upstream::new(config.clone(), args.account())?;
    let (client, clock) = oz_runtime::client(config)?;
    let (namespace, replica) = (&common.namespace, &common.replica);
    let keys = seal_keys(&client, namespace, OWNER).await?;
    let trail = Trail::start(
        &client,
        clock.clone(),
        namespace,
        names::GATE,
        replica,
        &args.audit,
    )
    .await?;

    let mut runtime = Runtime::new(REGISTRATION, client.clone(), clock.clone());
    trail.register(&mut runtime.registry());
    let metrics = Metrics::new(&mut runtime.registry());
    let recordings = recordings(&args.recording, &metrics, &trail, &clock).await?;
    let grants = Grants::new(runtime.feeds(), keys.clone());
    let sessions = Sessions::new(args.max_sessions, args.max_sessions_per_user);
    let door = Door {
        callers: Callers::new(runtime.feeds(), Arc::new(clock.clone())),
        grants: Arc::clone(&grants),
        sessions: Arc::clone(&sessions),
        register: Arc::default(),
        peers: Peers::new(client.clone(), namespace, &args.service_name, replica),
        upstream,
        trail: trail.clone(),
        clock: Arc::new(clock.clone()),
        metrics,
        recordings: recordings.clone(),
        viewings: Viewings::default(),
        replica: replica.clone(),
        next: AtomicU64::new(0),
    };
    let registration = Registration::new(client.clone(), runtime.feeds(), namespace);
    watch_keys(&mut runtime, &args, &trail, &clock, (keys, grants));
    watch_ourselves(&mut runtime, &args, &trail, clock);
    runtime.part("registration", |stop| registration.run(stop));
    let probes = probes(&mut runtime, args.health_probe_bind_address)?;
    let draining = runtime.readiness().gate("opening sessions");
    draining.open();
    let service = TlsService {
        fingerprint: names::GATE.to_owned(),
        namespace: namespace.clone(),
        config_map: names::GATE_CA.to_owned(),
        names: args.certificate_names(),
        certificates: certificates(),
        limits: limits(args.max_sessions),
        // What is to be waited for is waited for before, with the sessions.
        drain: Duration::ZERO,
        listener,
        router: router(Arc::new(door)),
        clients: Clients::FrontProxy,
    };
    let shown = probes.map(tracing::field::display);
    tracing::info!(port, probes = shown, "serving the API server");
    let (settle, session_drain) = (args.drain, args.session_drain);
    let ended = async move {
        shutdown.cancelled_owned().await;
        // Grants are still watched meanwhile, and end what they have to.
        draining.close("opening sessions (the process stops)");
        sessions.drain(settle, session_drain).await;
    };
    let ended = service.run(runtime, ended).await;
    if let Some(recordings) = recordings {
        recordings.flush().await;
    }
    trail.close().await;
    Ok(ended?)
}

/// What is sealed with another key is read from then on.
fn watch_keys(
    runtime: &mut Runtime,
    args: &Args,
    trail: &Trail,
    clock: &ServerClock,
    (keys, grants): (Keys, Arc<Grants>),
) {
    let (client, namespace) = (runtime.client().clone(), &args.common.namespace);
    let changed = move || grants.keys_changed();
    let watch = SealKeyWatch::new(&client, namespace, (OWNER, keys), trail.clone(), changed);
    let rotation = SealKeyRotation::new(&client, clock.clone(), namespace, OWNER, &args.seal_keys);
    runtime.task("signing key watch", Everyone, watch).task(
        "signing key rotation",
        Everyone,
        rotation,
    );
}

/// Serves probes and metrics, if anywhere; says where.
fn probes(runtime: &mut Runtime, address: Address) -> anyhow::Result<Option<SocketAddr>> {
    let Some(address) = address.0 else {
        return Ok(None);
    };
    let listener = bind(address)?;
    let address = listener.local_addr()?;
    runtime.listen(Listen::Bound(listener));
    Ok(Some(address))
}

/// Where recordings go, if anywhere; puts on record what an earlier process left.
async fn recordings(
    args: &RecordingArgs,
    metrics: &Metrics,
    trail: &Trail,
    clock: &ServerClock,
) -> anyhow::Result<Option<Recordings>> {
    let Some((options, storage)) = args.open(&metrics.spool)? else {
        return Ok(None);
    };
    let (spool, left) = Spool::start(options, storage.clone()).await?;
    let recordings = Recordings::new(spool, storage);
    // Nobody waits for the trail: what is not on record when this process ends, the next one finds again.
    let recovering = (recordings.clone(), trail.clone(), clock.clone());
    tokio::spawn(async move {
        let (recordings, trail, clock) = recovering;
        recordings.recovered(&trail, &clock, left).await;
    });
    Ok(Some(recordings))
}

/// What every process of oz looks at besides its work.
fn watch_ourselves(runtime: &mut Runtime, args: &Args, trail: &Trail, clock: ServerClock) {
    let common = &args.common;
    let (client, namespace) = (runtime.client().clone(), &common.namespace);
    let warnings = Warnings::new(client, REGISTRATION, namespace, &common.replica);
    let audit_key = AuditKeyWatch {
        trail: trail.clone(),
    };
    let audit_rotation = KeyRotation::new(trail, &args.audit);
    let clock_alarm = ClockAlarm::new(clock, names::GATE, &common.replica, warnings);
    runtime
        .task("audit key watch", Everyone, audit_key)
        .task("audit key rotation", Everyone, audit_rotation)
        .task("clock alarm", Everyone, clock_alarm);
}

fn certificates() -> CertPolicy {
    CertPolicy {
        secret: Some(names::GATE_AUTHORITY.to_owned()),
        settle: SETTLE,
        overlap: SETTLE * 2,
        ..CertPolicy::default()
    }
}

/// One connection for each session while it opens; of those of whom nothing is known, few.
fn limits(max_sessions: usize) -> Limits {
    Limits {
        connections: max_sessions.saturating_mul(2).max(256),
        // A command is in the request line.
        head: 96 << 10,
        ..Limits::default()
    }
}

fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("failed to listen on {address}"))
}
