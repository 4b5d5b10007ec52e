//! The composition of the broker.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use oz_admission::{CertPolicy, Clients, Limits as ServerLimits, TlsService};
use oz_api::names::{self, REGISTRATION};
use oz_audit::{AuditKeyWatch, KeyRotation, Trail};
use oz_config::{Component, ConfigWatch, Loaded, OzConfiguration};
use oz_runtime::Who::Everyone;
use oz_runtime::{ClockAlarm, Listen, Runtime, Warnings, shutdown_on_signal};
use tokio_util::sync::CancellationToken;

use crate::args::{Args, certificate_names};
use crate::callers::Callers;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::policies::Policies;
use crate::polls::Polls;
use crate::reports::Reports;
use crate::routes::{Broker, router};
use crate::runs::Runs;
use crate::secrets::Secrets;
use crate::write::{Applied, AppliedEgress};

/// The time for which a replaced authority stays valid: longer than the longest run that started before the
/// replacement. The replacement occurs once in years.
const SETTLE: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// The lifetime of the authority; it is replaced after two thirds of it.
const AUTHORITY_LIFE: Duration = Duration::from_secs(3 * 365 * 24 * 60 * 60);

/// Runs until a signal, or until a required component is lost.
pub(crate) async fn run(args: Args, loaded: Loaded) -> anyhow::Result<()> {
    let shutdown = shutdown_on_signal()?;
    let (common, config) = (&args.common, &loaded.configuration);
    let Some(listener) = args.listen.0.map(bind).transpose()? else {
        bail!(
            "failed to start: --listen names no address, but the pods of runs must reach the \
            broker"
        );
    };
    let port = listener.local_addr()?.port();
    let (client, clock) = oz_runtime::client(common.config(names::BROKER).await?)?;
    let (namespace, replica) = (&common.namespace, &common.replica);
    let trail = Trail::start(
        &client,
        clock.clone(),
        namespace,
        names::BROKER,
        replica,
        &loaded,
    )
    .await?;

    let mut runtime = Runtime::new(REGISTRATION, client.clone(), clock.clone());
    trail.register(&mut runtime.registry());
    let broker = Arc::new(broker(
        &mut runtime,
        &trail,
        config,
        namespace,
        shutdown.clone(),
    ));
    let _subscriptions = broker.subscribe();
    let warnings = Warnings::new(client, REGISTRATION, namespace, replica);
    let audit_key = AuditKeyWatch {
        trail: trail.clone(),
    };
    let audit_rotation = KeyRotation::new(&trail, &config.audit);
    let clock_alarm = ClockAlarm::new(clock, names::BROKER, replica, warnings);
    let (component, flags) = (Component::Broker, &args.config);
    let config_watch = ConfigWatch::new(flags, &loaded, component, &mut runtime.registry());
    runtime
        .task("configuration watch", Everyone, config_watch)
        .task("audit key watch", Everyone, audit_key)
        .task("audit key rotation", Everyone, audit_rotation)
        .task("clock alarm", Everyone, clock_alarm);
    writers(&mut runtime, &broker);
    let mut probes = None;
    if let Some(address) = args.health_probe_bind_address.0 {
        let listener = bind(address)?;
        probes = Some(listener.local_addr()?);
        runtime.listen(Listen::Bound(listener));
    }
    let service = TlsService {
        fingerprint: names::BROKER.to_owned(),
        namespace: namespace.clone(),
        config_map: names::BROKER_CA.to_owned(),
        names: certificate_names(config, namespace),
        certificates: certificates(),
        limits: server_limits(),
        drain: config.harness.broker.drain.wait(),
        listener,
        router: router(broker),
        clients: Clients::Any,
    };
    let shown = probes.map(tracing::field::display);
    tracing::info!(port, probes = shown, "serving the pods of runs");
    let ended = service.run(runtime, shutdown.cancelled_owned()).await;
    trail.close().await;
    Ok(ended?)
}

/// Creates the state of the server, with its watches.
fn broker(
    runtime: &mut Runtime,
    trail: &Trail,
    config: &OzConfiguration,
    namespace: &str,
    stop: CancellationToken,
) -> Broker {
    let (client, clock) = (runtime.client().clone(), Arc::clone(runtime.clock()));
    let metrics = Metrics::new(&mut runtime.registry());
    let events = Applied(client.clone());
    let egress = AppliedEgress {
        client: client.clone(),
        clock: Arc::clone(&clock),
    };
    Broker {
        callers: Callers::new(client.clone(), Arc::clone(&clock), metrics.clone()),
        runs: Runs::new(client.clone(), runtime.feeds(), namespace),
        policies: Policies::new(runtime.feeds(), namespace),
        polls: Arc::new(Polls::new(metrics.clone())),
        secrets: Arc::new(Secrets::new(client)),
        reports: Arc::new(Reports::new(events, metrics.clone(), Metrics::wrote)),
        egress: Arc::new(Reports::new(egress, metrics.clone(), Metrics::wrote_egress)),
        certificates: config.harness.upstream_ca.clone(),
        namespace: namespace.to_owned(),
        stop,
        limits: Limits::default(),
        trail: trail.clone(),
        clock,
        metrics,
    }
}

/// Adds the tasks that write reports, and that read the versions of Secrets.
fn writers(runtime: &mut Runtime, broker: &Arc<Broker>) {
    let (reports, egress) = (Arc::clone(&broker.reports), Arc::clone(&broker.egress));
    let (secrets, polls) = (Arc::clone(&broker.secrets), Arc::clone(&broker.polls));
    runtime
        .service("reports", Everyone, move |stop| {
            let reports = Arc::clone(&reports);
            async move {
                reports.run(stop).await;
                Ok(())
            }
        })
        .service("reports of egress", Everyone, move |stop| {
            let egress = Arc::clone(&egress);
            async move {
                egress.run(stop).await;
                Ok(())
            }
        })
        .service("versions of Secrets", Everyone, move |stop| {
            let (secrets, polls) = (Arc::clone(&secrets), Arc::clone(&polls));
            async move {
                secrets.run(polls, stop).await;
                Ok(())
            }
        });
}

/// Returns the certificate policy. A pod receives the trusted certificates when it is created, and no later ones.
fn certificates() -> CertPolicy {
    CertPolicy {
        secret: Some(names::BROKER_AUTHORITY.to_owned()),
        ca_life: AUTHORITY_LIFE,
        settle: SETTLE,
        // Until every replica follows the replacement, which waits equally long.
        overlap: SETTLE * 2,
        ..CertPolicy::default()
    }
}

/// Returns the limits for many connections with few requests each.
fn server_limits() -> ServerLimits {
    ServerLimits {
        concurrent_reviews: 4,
        connections: 2_048,
        // A token, and the headers that clients add.
        head: 16 << 10,
        // A reporting pod sends a request every two seconds; an idle pod may reconnect.
        idle: Duration::from_secs(30),
        ..ServerLimits::default()
    }
}

fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("failed to listen on {address}"))
}
