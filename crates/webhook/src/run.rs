//! What the webhook consists of, put together.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use oz_admission::{Manager, Observer, Upkeep};
use oz_core::audit::{Action, Decision, Record};
use oz_core::names::{self, REGISTRATION};
use oz_engine::Sink;
use oz_process::audit::Trail;
use oz_process::{KeyNews, follow_signing_keys, signing_keys};
use oz_runtime::{Ages, Clock, ClockAlarm, shutdown_on_signal};

use crate::args::Args;
use crate::connect::{self, Connections, Grants};
use crate::guard_copies::Copies;
use crate::hooks::{Grounds, hooks};
use crate::limits::Census;

/// Runs until a signal, or until what it needs is lost.
#[allow(
    clippy::too_many_lines,
    reason = "the parts of a process, one after the other"
)]
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let shutdown = shutdown_on_signal()?;
    let common = &args.common;
    let Some(listener) = args.listen.0.map(bind).transpose()? else {
        bail!("failed to start: --listen says nowhere, but the API server must reach the hooks");
    };
    let port = listener.local_addr()?.port();
    let (client, clock) = oz_runtime::client(common.config(names::WEBHOOK).await?)?;
    let keys = signing_keys(&client, &common.namespace).await?;
    let ages = Ages::default();
    let trail = Trail::start(
        &client,
        clock.clone(),
        &common.namespace,
        names::WEBHOOK,
        &common.replica,
        &args.audit,
    )
    .await?;
    let (grants, grants_listed, grants_watch) = connect::watch(&client, &keys, &ages);
    let keys_watch = follow_signing_keys(
        client.clone(),
        common.namespace.clone(),
        keys.clone(),
        on_news(grants.clone()),
    );
    let alarm = ClockAlarm::new(
        clock.clone(),
        names::WEBHOOK,
        &common.namespace,
        &common.replica,
    );
    let records: Arc<dyn Sink> = Arc::new(trail.clone());
    let grounds = Grounds {
        keys,
        census: Census::new(args.limits, grants.clone()),
        copies: Copies::new(grants.clone(), Arc::clone(&records)),
        connections: Connections::new(grants, Arc::clone(&records), args.audit_required),
        break_glass: args.break_glass_groups.clone(),
        records,
        namespace: common.namespace.as_str().into(),
        served: args.access_namespaces.as_slice().into(),
        operator: args.operator().into(),
        policy: args.transient.policy(&common.namespace),
        serve_example_com: args.transient.serve_example_com,
        webhook: args.webhook().into(),
    };

    let mut manager = Manager::builder(client.clone(), REGISTRATION)
        .namespace(&common.namespace)
        .identity(&common.replica)
        .listener(listener)
        .endpoint(args.endpoint(port))
        .registration(args.registration())
        .drain(args.drain)
        .clock(Arc::new({
            let clock = clock.clone();
            move || clock.now()
        }))
        .metrics(|registry| {
            trail.register(registry);
            grounds.connections.register(registry);
            grounds.copies.register(registry);
            alarm.register(registry);
            registry.register_collector(Box::new(ages.clone()));
        })
        .degraded({
            let ages = ages.clone();
            Arc::new(move || ages.complaints())
        })
        .observer(observer(trail.clone(), clock));
    let mut hooks = hooks(&grounds, &client, &ages);
    for gate in hooks.gates.into_iter().chain(grants_listed) {
        manager = manager.gate(gate);
    }
    for hook in hooks.hooks {
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
    let grants_watch = tokio::spawn(grants_watch);
    let keys_watch = tokio::spawn(keys_watch);
    tokio::spawn(alarm.run(client));
    let ended = tokio::select! {
        ended = manager.run(shutdown.cancelled_owned()) => ended.map_err(Into::into),
        ended = hooks.watches.join_next() => Err(anyhow!("failed to go on: a watch of templates ended: {ended:?}")),
        ended = grants_watch => Err(anyhow!("failed to go on: the watch of grants ended: {ended:?}")),
        ended = keys_watch => Err(anyhow!("failed to go on: the watch of the signing key ended: {ended:?}")),
    };
    trail.close().await;
    ended
}

/// Has every grant opened again when other keys open.
fn on_news(grants: Grants) -> impl Fn(KeyNews) {
    move |news| match news {
        KeyNews::Opens => grants.open_again(),
        KeyNews::Seals(id) => {
            tracing::info!(key = id, "stamps are sealed with another key");
        }
    }
}

/// Puts on record what the upkeep of the registration has met with.
fn observer(trail: Trail, clock: impl Clock) -> Observer {
    Arc::new(move |upkeep| {
        let now = clock.now();
        let (action, reason, what) = match upkeep {
            Upkeep::Repaired { kind, what } => (
                Action::WebhookRepaired,
                "RegistrationRepaired",
                format!(
                    "{kind} {REGISTRATION}: {what} had been changed or deleted, and was put right"
                ),
            ),
            Upkeep::AuthorityReplaced { until } => (
                Action::CertificateRotated,
                "AuthorityReplaced",
                format!(
                    "the webhook's certificates are signed by another authority, until {until}"
                ),
            ),
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
