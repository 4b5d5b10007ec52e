//! The assembly of the webhook from its components.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::{Context, bail};
use oz_admission::{Manager, Observer, Upkeep};
use oz_api::names::{self, REGISTRATION};
use oz_audit::{AuditKeyWatch, KeyRotation, SealKeyRotation, SealKeyWatch, Sink, Trail, seal_keys};
use oz_config::{Audit, Component, ConfigWatch, Loaded, OzConfiguration};
use oz_core::access::seal::{Keys, Owner};
use oz_runtime::Who::Everyone;
use oz_runtime::{Clock, ClockAlarm, Runtime, Warnings, shutdown_on_signal};
use oz_trail::{Action, Decision, Record};

use crate::args::{Args, endpoint, registration};
use crate::attributed::Attributed;
use crate::connect::{self, Connections, Grants};
use crate::guard_copies::Copies;
use crate::hooks::{Grounds, composites, hooks};
use crate::limits::RequestCounter;

/// The owner of the private keys in this process.
const OWNER: Owner = Owner::Webhook;

/// Runs until a signal, or until the loss of a required component.
pub(crate) async fn run(args: Args, loaded: Loaded) -> anyhow::Result<()> {
    let shutdown = shutdown_on_signal()?;
    let (common, config) = (&args.common, &loaded.configuration);
    let Some(listener) = args.listen.0.map(bind).transpose()? else {
        bail!("failed to start: --listen has no address, and the API server must reach the hooks");
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
        &loaded,
    )
    .await?
    .with_connections_per_minute(NonZeroU32::new(config.webhook.max_connections_per_minute));

    let mut manager = Manager::builder(client.clone(), REGISTRATION)
        .namespace(namespace)
        .identity(replica)
        .listener(listener)
        .endpoint(endpoint(config, namespace, port))
        .registration(registration(config))
        .drain(config.webhook.drain.wait())
        .clock(clock.clone())
        .vouches_for_callers()
        .observer(observer(trail.clone(), clock.clone()));
    let parents = config
        .composites
        .enabled
        .then(|| composites::parents(&mut manager));
    let runtime = manager.runtime();
    trail.register(&mut runtime.registry());
    let grants = connect::watch(runtime, &keys);
    let grounds = grounds((config, namespace), runtime, &keys, &trail, &grants);
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
    let life = config.access.signing_key_life.0;
    let rotation = SealKeyRotation::new(&client, clock.clone(), namespace, OWNER, life);
    let clock_alarm = ClockAlarm::new(clock, names::WEBHOOK, replica, warnings);
    let (component, flags) = (Component::Webhook, &args.config);
    let config_watch = ConfigWatch::new(flags, &loaded, component, &mut runtime.registry());
    runtime
        .task("configuration watch", Everyone, config_watch)
        .task("signing key watch", Everyone, seal_keys)
        .task("signing key rotation", Everyone, rotation)
        .task("clock alarm", Everyone, clock_alarm);
    signs(runtime, &trail, &config.audit);
    let feeds = manager.runtime().feeds().clone();
    for hook in hooks(&grounds, &feeds) {
        manager = manager.hook(hook);
    }
    if let Some(pem) = client_authorities(config)? {
        manager = manager.client_authority(pem);
    }
    let listener = args.health_probe_bind_address.0.map(bind).transpose()?;
    let probes = listener.as_ref().and_then(|it| it.local_addr().ok());
    if let Some(listener) = listener {
        manager = manager.plain_listener(listener);
    }
    let manager = manager.build()?;
    let probes = probes.map(tracing::field::display);
    tracing::info!(port, probes, operator = %grounds.operator, "serving the hooks");
    let ended = manager.run(shutdown.cancelled_owned()).await;
    trail.close().await;
    Ok(ended?)
}

/// Returns the authorities of the certificates that the API servers present, if they present any.
fn client_authorities(config: &OzConfiguration) -> anyhow::Result<Option<Vec<u8>>> {
    if config.webhook.client_ca.is_empty() {
        return Ok(None);
    }
    let file = config.installation.secrets.join("client-ca/ca.crt");
    let pem = std::fs::read(&file)
        .with_context(|| format!("failed to read {} (webhook.clientCA)", file.display()))?;
    Ok(Some(pem))
}

/// Adds the tasks that maintain the signing key of the trail.
fn signs(runtime: &mut Runtime, trail: &Trail, audit: &Audit) {
    let watch = AuditKeyWatch {
        trail: trail.clone(),
    };
    runtime.task("audit key watch", Everyone, watch).task(
        "audit key rotation",
        Everyone,
        KeyRotation::new(trail, audit),
    );
}

/// Creates the data and components on which the hooks base their decisions.
fn grounds(
    (config, namespace): (&OzConfiguration, &str),
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
        config.webhook.audit_required,
        keys.clone(),
        config.webhook.break_glass_review.window.0,
    );
    connections.register(&mut runtime.registry());
    copies.register(&mut runtime.registry());
    let user = |component| config.installation.user(component, namespace).into();
    Grounds {
        keys: keys.clone(),
        words: Arc::default(),
        counter: RequestCounter::new(config.webhook.limits, grants.clone()),
        copies,
        connections,
        break_glass: config.webhook.break_glass_groups.clone(),
        records,
        namespace: namespace.into(),
        served: config.access.namespaces.as_slice().into(),
        operator: user(Component::Operator),
        extra_keys: config.extra_keys(),
        policy: Arc::new(config.policy(namespace)),
        serve_example_com: config.transient.serve_example_com,
        composite_account: config.composite_account(namespace),
        parents: Vec::new(),
        policy_namespaces: config.composites.policy_namespaces.clone(),
        harness: config.harness.enabled,
        webhook: user(Component::Webhook),
        broker: user(Component::Broker),
        gate: user(Component::Gate),
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
                tracing::error!(upkeep = ?other, "failed to record upkeep: this version does not \
                    know its kind");
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
