//! The assembly of the gate from its components.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, bail};
use oz_admission::{CertPolicy, Clients, Limits, TlsService};
use oz_api::names::{self, REGISTRATION};
use oz_audit::{AuditKeyWatch, KeyRotation, SealKeyRotation, SealKeyWatch, Trail, seal_keys};
use oz_config::{Component, ConfigWatch, Gate, Loaded, OzConfiguration};
use oz_core::access::seal::{Keys, Owner};
use oz_runtime::Who::Everyone;
use oz_runtime::{Address, ClockAlarm, Listen, Runtime, ServerClock, Warnings, shutdown_on_signal};

use crate::args::Args;
use crate::authenticate::Authenticator;
use crate::authorize::Authorizer;
use crate::config;
use crate::grants::Grants;
use crate::journal::Journal;
use crate::live::{LiveSessions, Register};
use crate::metrics::Metrics;
use crate::open::Opener;
use crate::peers::Peers;
use crate::play::{Playback, Readings, Viewings};
use crate::recordings::Recordings;
use crate::registration::Registration;
use crate::route::{Stages, router};
use crate::sessions::Sessions;
use crate::spool::Spool;
use crate::upstream::Upstream;

/// The time for which a new certificate authority is in the APIService before the gate serves a certificate that it
/// signed.
const SETTLE: Duration = Duration::from_secs(120);

/// The owner of the private keys in this process.
const OWNER: Owner = Owner::Gate;

/// Runs the gate until a signal, or until a component that it needs fails.
pub(crate) async fn run(args: Args, loaded: Loaded) -> anyhow::Result<()> {
    let shutdown = shutdown_on_signal()?;
    let (common, settings) = (&args.common, &loaded.configuration);
    let Some(listener) = args.listen.0.map(bind).transpose()? else {
        bail!("failed to start: --listen names no address, but the API server must reach the gate");
    };
    let port = listener.local_addr()?.port();
    let config = common.config(names::GATE).await?;
    let (namespace, replica) = (&common.namespace, &common.replica);
    let upstream = Upstream::new(config.clone(), settings.gate_account(namespace))?;
    let (client, clock) = oz_runtime::client(config)?;
    let keys = seal_keys(&client, namespace, OWNER).await?;
    let trail = Trail::start(
        &client,
        clock.clone(),
        namespace,
        names::GATE,
        replica,
        &loaded,
    )
    .await?;

    let mut runtime = Runtime::new(REGISTRATION, client.clone(), clock.clone());
    trail.register(&mut runtime.registry());
    let metrics = Metrics::new(&mut runtime.registry());
    let recordings = recordings(settings, &metrics, &trail, &clock).await?;
    let grants = Grants::new(runtime.feeds(), keys.clone());
    let gate = &settings.gate;
    let session_drain = Duration::from_secs(gate.session_drain_seconds.get());
    let sessions = sessions(&settings.gate);
    let journal = Journal {
        trail: trail.clone(),
        clock: Arc::new(clock.clone()),
        metrics,
    };
    let service_name = settings.installation.component_name(Component::Gate.name());
    let components = Components {
        authenticator: Authenticator::new(runtime.feeds(), keys.clone(), journal.clock.clone()),
        grants: Arc::clone(&grants),
        upstream,
        sessions: Arc::clone(&sessions),
        recordings: recordings.clone(),
        peers: Peers::new(client.clone(), namespace, &service_name, replica),
        journal,
        replica: replica.clone(),
    };
    let stages = components.assemble();
    let registration = Registration::new(client.clone(), runtime.feeds(), namespace);
    watch_keys(
        &mut runtime,
        (&args, settings),
        &trail,
        &clock,
        (keys, grants),
    );
    watch_ourselves(&mut runtime, (&args, &loaded), &trail, clock);
    runtime.part("registration", |stop| registration.run(stop));
    let probes = probes(&mut runtime, args.health_probe_bind_address)?;
    let draining = runtime.readiness().gate("opening sessions");
    draining.open();
    let service = service(settings, namespace, listener, stages);
    let shown = probes.map(tracing::field::display);
    tracing::info!(port, probes = shown, "serving the API server");
    let (settle, session_drain) = (gate.drain.wait(), session_drain);
    let ended = async move {
        shutdown.cancelled_owned().await;
        // Grants are still watched during this, and end sessions as usual.
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

/// The components of the stages of a request.
struct Components {
    authenticator: Authenticator,
    grants: Arc<Grants>,
    upstream: Upstream,
    sessions: Arc<Sessions>,
    recordings: Option<Recordings>,
    peers: Peers,
    journal: Journal,
    replica: String,
}

impl Components {
    /// Assembles the stages, which share the grants and the register of open sessions.
    fn assemble(self) -> Stages {
        let Self {
            journal, replica, ..
        } = self;
        let register = Arc::<Register>::default();
        let keys = self.grants.keys().clone();
        let authorizer = Arc::new(Authorizer {
            grants: self.grants,
            upstream: self.upstream,
            clock: Arc::clone(&journal.clock),
        });
        Stages {
            authenticator: self.authenticator,
            authorizer: Arc::clone(&authorizer),
            live: LiveSessions {
                register: Arc::clone(&register),
                peers: self.peers,
                keys,
                journal: journal.clone(),
                replica: replica.clone(),
                next: AtomicU64::new(0),
            },
            playback: Playback {
                recordings: self.recordings.clone(),
                viewings: Viewings::default(),
                readings: Readings::new(),
                journal: journal.clone(),
                replica: replica.clone(),
            },
            sessions: Arc::clone(&self.sessions),
            metrics: journal.metrics.clone(),
            opener: Arc::new(Opener {
                authorizer,
                sessions: self.sessions,
                register,
                recordings: self.recordings,
                journal,
                replica,
                next: AtomicU64::new(0),
            }),
        }
    }
}

/// Returns the sessions, none of which is open yet, with their limits.
fn sessions(gate: &Gate) -> Arc<Sessions> {
    Sessions::new(
        gate.max_sessions.count(),
        gate.max_sessions_per_user.count(),
    )
}

/// Returns the server of the API server's requests.
fn service(
    settings: &OzConfiguration,
    namespace: &str,
    listener: TcpListener,
    stages: Stages,
) -> TlsService {
    TlsService {
        fingerprint: names::GATE.to_owned(),
        namespace: namespace.to_owned(),
        config_map: names::GATE_CA.to_owned(),
        names: config::certificate_names(settings, namespace),
        certificates: certificates(),
        limits: limits(settings.gate.max_sessions.count()),
        // The gate has waited before this, with the sessions.
        drain: Duration::ZERO,
        listener,
        router: router(Arc::new(stages)),
        clients: Clients::FrontProxy,
    }
}

/// Watches the keys: seals of a changed key are read from then on.
fn watch_keys(
    runtime: &mut Runtime,
    (args, settings): (&Args, &OzConfiguration),
    trail: &Trail,
    clock: &ServerClock,
    (keys, grants): (Keys, Arc<Grants>),
) {
    let (client, namespace) = (runtime.client().clone(), &args.common.namespace);
    let changed = move || grants.keys_changed();
    let watch = SealKeyWatch::new(&client, namespace, (OWNER, keys), trail.clone(), changed);
    let life = settings.access.signing_key_life.0;
    let rotation = SealKeyRotation::new(&client, clock.clone(), namespace, OWNER, life);
    runtime.task("signing key watch", Everyone, watch).task(
        "signing key rotation",
        Everyone,
        rotation,
    );
}

/// Serves probes and metrics if an address is set; returns the address.
fn probes(runtime: &mut Runtime, address: Address) -> anyhow::Result<Option<SocketAddr>> {
    let Some(address) = address.0 else {
        return Ok(None);
    };
    let listener = bind(address)?;
    let address = listener.local_addr()?;
    runtime.listen(Listen::Bound(listener));
    Ok(Some(address))
}

/// Returns the places that recordings go to, if any; records the recordings that an earlier process left in the audit
/// trail.
async fn recordings(
    settings: &OzConfiguration,
    metrics: &Metrics,
    trail: &Trail,
    clock: &ServerClock,
) -> anyhow::Result<Option<Recordings>> {
    let secrets = &settings.installation.secrets;
    let proxies = settings.proxies(|name| std::env::var(name).ok());
    let opened = config::open(&settings.gate.recordings, secrets, &proxies, &metrics.spool)?;
    let Some((options, storage)) = opened else {
        return Ok(None);
    };
    let (spool, left) = Spool::start(options, storage.clone()).await?;
    let recordings = Recordings::new(spool, storage);
    // The start does not wait for the audit trail: the next process finds each recording that is not recorded there
    // when this process ends.
    let recovering = (recordings.clone(), trail.clone(), clock.clone());
    tokio::spawn(async move {
        let (recordings, trail, clock) = recovering;
        recordings.recovered(&trail, &clock, left).await;
    });
    Ok(Some(recordings))
}

/// Starts the checks that every oz process runs in addition to its work.
fn watch_ourselves(
    runtime: &mut Runtime,
    (args, loaded): (&Args, &Loaded),
    trail: &Trail,
    clock: ServerClock,
) {
    let common = &args.common;
    let (client, namespace) = (runtime.client().clone(), &common.namespace);
    let warnings = Warnings::new(client, REGISTRATION, namespace, &common.replica);
    let audit_key = AuditKeyWatch {
        trail: trail.clone(),
    };
    let audit_rotation = KeyRotation::new(trail, &loaded.configuration.audit);
    let clock_alarm = ClockAlarm::new(clock, names::GATE, &common.replica, warnings);
    let config_watch = ConfigWatch::new(
        &args.config,
        loaded,
        Component::Gate,
        &mut runtime.registry(),
    );
    runtime
        .task("configuration watch", Everyone, config_watch)
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

/// Returns limits that allow one connection for each session while it opens; connections of unidentified clients get
/// few.
fn limits(max_sessions: usize) -> Limits {
    Limits {
        connections: max_sessions.saturating_mul(2).max(256),
        // The request line contains the command.
        head: 96 << 10,
        ..Limits::default()
    }
}

fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("failed to listen on {address}"))
}
