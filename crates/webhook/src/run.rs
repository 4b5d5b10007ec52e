//! The assembly of the webhook from its components.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::{Context, bail};
use oz_admission::{Manager, Observer, Upkeep};
use oz_api::names::{self, REGISTRATION};
use oz_audit::{
    AuditArgs, AuditKeyWatch, KeyRotation, SealKeyRotation, SealKeyWatch, Sink, Trail, seal_keys,
};
use oz_core::access::seal::{Keys, Owner};
use oz_runtime::Who::Everyone;
use oz_runtime::{Clock, ClockAlarm, Runtime, Warnings, shutdown_on_signal};
use oz_trail::{Action, Decision, Record};

use crate::args::Args;
use crate::attributed::Attributed;
use crate::connect::{self, Connections, Grants};
use crate::guard_copies::Copies;
use crate::hooks::{Grounds, composites, hooks};
use crate::limits::RequestCounter;

/// The owner of the private keys in this process.
const OWNER: Owner = Owner::Webhook;

/// Runs until a signal, or until the loss of a required component.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let shutdown = shutdown_on_signal()?;
    let common = &args.common;
    let Some(listener) = args.listen.0.map(bind).transpose()? else {
        bail!("failed to start: --listen says nowhere, but the API server must reach the hooks");
    };
    let port = listener.local_addr()?.port();
    let (client, clock) = oz_runtime::client(common.config(names::WEBHOOK).await?)?;
    let (namespace, replica) = (&common.namespace, &common.replica);
    let keys = seal_keys(&client, namespace, OWNER).await?;
    let trail = Trail::start(
        &client,
        clock.clone(),
        namespace,
        names::WEBHOOK,
        replica,
        &args.audit,
    )
    .await?
    .with_connections_per_minute(NonZeroU32::new(args.max_connections_per_minute));

    let mut manager = Manager::builder(client.clone(), REGISTRATION)
        .namespace(namespace)
        .identity(replica)
        .listener(listener)
        .endpoint(args.endpoint(port))
        .registration(args.registration())
        .drain(args.drain)
        .clock(clock.clone())
        .vouches_for_callers()
        .observer(observer(trail.clone(), clock.clone()));
    let runs_composites = args.composite_account.is_some();
    let parents = runs_composites.then(|| composites::parents(&mut manager));
    let runtime = manager.runtime();
    trail.register(&mut runtime.registry());
    let grants = connect::watch(runtime, &keys);
    let grounds = grounds(&args, runtime, &keys, &trail, &grants);
    let grounds = Grounds {
        parents: parents.unwrap_or_default(),
        ..grounds
    };
    let warnings = Warnings::new(client.clone(), REGISTRATION, namespace, replica);
    let seal_keys = SealKeyWatch::new(
        &client,
        namespace,
        (OWNER, keys),
        trail.clone(),
        // Other keys verify the operator's seals from now on.
        move || grants.open_again(),
    );
    let rotation = SealKeyRotation::new(&client, clock.clone(), namespace, OWNER, &args.seal_keys);
    let clock_alarm = ClockAlarm::new(clock, names::WEBHOOK, replica, warnings);
    runtime
        .task("signing key watch", Everyone, seal_keys)
        .task("signing key rotation", Everyone, rotation)
        .task("clock alarm", Everyone, clock_alarm);
    signs(runtime, &trail, &args.audit);
    let feeds = manager.runtime().feeds().clone();
    for hook in hooks(&grounds, &feeds) {
        manager = manager.hook(hook);
    }
    if let Some(file) = &args.client_ca {
        let read = std::fs::read(file);
        let pem = read.with_context(|| format!("failed to read --client-ca {}", file.display()))?;
        manager = manager.client_authority(pem);
    }
    let mut probes = None;
    if let Some(address) = args.health_probe_bind_address.0 {
        let listener = bind(address)?;
        probes = Some(listener.local_addr()?);
        manager = manager.plain_listener(listener);
    }
    let manager = manager.build()?;
    let shown = probes.map(tracing::field::display);
    tracing::info!(port, probes = shown, operator = %grounds.operator, "serving the hooks");
    let ended = manager.run(shutdown.cancelled_owned()).await;
    trail.close().await;
    Ok(ended?)
}

/// Adds the tasks that maintain the signing key of the trail.
fn signs(runtime: &mut Runtime, trail: &Trail, args: &AuditArgs) {
    let watch = AuditKeyWatch {
        trail: trail.clone(),
    };
    runtime.task("audit key watch", Everyone, watch).task(
        "audit key rotation",
        Everyone,
        KeyRotation::new(trail, args),
    );
}

/// Creates the data and components on which the hooks base their decisions.
fn grounds(
    args: &Args,
    runtime: &mut Runtime,
    keys: &Keys,
    trail: &Trail,
    grants: &Grants,
) -> Grounds {
    let records = Attributed::new(Arc::new(trail.clone()));
    records.register(&mut runtime.registry());
    let records: Arc<dyn Sink> = Arc::new(records);
    let copies = Copies::new(grants.clone(), Arc::clone(&records));
    let connections = Connections::new(
        grants.clone(),
        Arc::clone(&records),
        args.audit_required,
        keys.clone(),
        args.break_glass_review_window,
    );
    connections.register(&mut runtime.registry());
    copies.register(&mut runtime.registry());
    let namespace = args.common.namespace.as_str();
    Grounds {
        keys: keys.clone(),
        words: Arc::default(),
        counter: RequestCounter::new(args.limits, grants.clone()),
        copies,
        connections,
        break_glass: args.break_glass.break_glass_groups.clone(),
        records,
        namespace: namespace.into(),
        served: args.access_namespaces.as_slice().into(),
        operator: args.operator().into(),
        policy: args.transient.policy(namespace),
        serve_example_com: args.transient.serve_example_com,
        composite_account: args.composite_account.clone(),
        parents: Vec::new(),
        policy_namespaces: args.policy_namespaces.clone(),
        harness: args.harness,
        webhook: args.webhook().into(),
        broker: args.broker().into(),
        gate: args.gate().into(),
    }
}

/// Returns the observer that records events of the registration's upkeep.
fn observer(trail: Trail, clock: impl Clock) -> Observer {
    Arc::new(move |upkeep| {
        let now = clock.now();
        let (action, reason, what) = match upkeep {
            Upkeep::Repaired { kind, name, what } => (
                Action::WebhookRepaired,
                "RegistrationRepaired",
                format!("{kind} {name}: {what} had been changed or deleted, and was put right"),
            ),
            Upkeep::AuthorityReplaced { until } => (
                Action::CertificateRotated,
                "AuthorityReplaced",
                format!(
                    "the webhook's certificates are signed by another authority, until {until}"
                ),
            ),
            other => {
                tracing::error!(upkeep = ?other, "no record of upkeep that is new to this program");
                return;
            }
        };
        let subject = format!("{what} {now}");
        trail.note(Record::about(
            now,
            action,
            Decision::Note,
            &subject,
            reason,
            what,
        ));
    })
}

fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("failed to listen on {address}"))
}
