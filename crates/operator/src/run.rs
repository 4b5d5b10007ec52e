//! What the operator consists of, put together.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::SignedDuration;
use kube::{Client, Resource};
use oz_core::access::exec::ExecAccess;
use oz_core::access::kind::Kind as AccessKind;
use oz_core::access::pod::PodAccess;
use oz_core::access::seal::Keys;
use oz_core::access::template::{ExecTemplate, PodTemplate};
use oz_core::audit::{Action, Decision, Record};
use oz_core::for_each_kind;
use oz_core::names;
use oz_core::policies::Installation;
use oz_core::sessions;
use oz_core::transient::{Kind, Policy, Transient};
use oz_engine::Engine;
use oz_process::audit::{Trail, rotate_keys};
use oz_process::{KeyNews, follow_signing_keys, replace_signing_key, signing_keys};
use oz_runtime::{
    Clock, ClockAlarm, Election, Selection, ServerClock, Store, Warnings, shutdown_on_signal,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::bindings::Bindings;
use crate::canary::Canary;
use crate::exec_request::ExecRequests;
use crate::exec_template::ExecTemplates;
use crate::pod_request::PodRequests;
use crate::pod_template::PodTemplates;
use crate::policies::PolicyAlarm;
use crate::retention::Retention;
use crate::session_probes::Probes;
use crate::sessions::{LeaveSessions, Scripts};
use crate::stamps::Stamps;
use crate::sweep::{Counted, Owners, Sweeper};
use crate::workload::Workloads;

/// Runs until a signal, or until what it needs is lost.
#[allow(
    clippy::too_many_lines,
    reason = "the parts of a process, one after the other"
)]
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let shutdown = shutdown_on_signal()?;
    let common = &args.common;
    let (client, clock) = oz_runtime::client(common.config(names::OPERATOR).await?)?;
    let keys = signing_keys(&client, &common.namespace).await?;

    let trail = Trail::start(
        &client,
        clock.clone(),
        &common.namespace,
        names::OPERATOR,
        &common.replica,
        &args.audit,
    )
    .await?;

    let mut engine = Engine::new(client.clone(), clock.clone());
    engine
        .namespaces(args.access_namespaces.clone())
        .concurrency(usize::from(args.workers))
        .sink(trail.clone());
    trail.register(engine.registry());
    if args.leader_elect {
        engine.election(Election::lease(
            &common.namespace,
            names::LEASE,
            &common.replica,
        ));
    }
    for address in [args.metrics_bind_address, args.health_probe_bind_address] {
        if let Some(address) = address.0 {
            engine.listen(address);
        }
    }

    if args.cut_sessions {
        let scripts = Scripts::new(client.clone(), clock.clone(), trail.clone());
        engine.port(sessions::PORT, scripts);
    } else {
        engine.port(sessions::PORT, LeaveSessions);
    }
    let probes = Probes::new(args.cut_sessions);
    let pods_by_name = engine.store_with(&(), Selection::default().metadata_only());
    let workloads = Arc::new(Workloads::default());
    let templates = engine.store();
    let requests = engine.store();
    let mut owners = Owners::default();
    access::<ExecAccess>(&mut owners, &requests);
    let interval = SignedDuration::from_mins(args.template_reconciliation_interval.max(1).into());
    engine.controller(
        ExecTemplate { interval },
        ExecTemplates {
            templates: templates.clone(),
            workloads: Arc::clone(&workloads),
            probes: probes.clone(),
        },
    );
    let exec = args.settings().exec_access(keys.clone());
    engine.controller(
        exec.clone(),
        ExecRequests {
            controller: exec,
            requests,
            stamps: Stamps::default(),
            templates,
            workloads: Arc::clone(&workloads),
            pods: pods_by_name,
            probes,
        },
    );

    if args.pod_access {
        pods(&mut engine, &args, &keys, &workloads, &mut owners);
    }
    bindings(&mut engine, &args, &keys, &mut owners);
    let mut upkeep = trail_upkeep(&mut engine, &args, &client, &clock, &trail, &shutdown);
    let sweeper = Sweeper {
        client: client.clone(),
        clock: Arc::new(clock.clone()),
        keys: keys.clone(),
        trail: trail.clone(),
        owners,
        namespaces: args.access_namespaces.clone(),
        namespace: common.namespace.clone(),
        replica: common.replica.clone(),
        elected: args.leader_elect,
        interval: Duration::from_secs(args.sweep_interval),
        counted: Counted::register(engine.registry()),
    };
    upkeep.spawn(sweeper.run(shutdown.child_token()));
    upkeep.spawn(replace_signing_key(
        client.clone(),
        clock.clone(),
        common.namespace.clone(),
        args.signing_key_life,
    ));
    upkeep.spawn(follow_signing_keys(
        client.clone(),
        common.namespace.clone(),
        keys.clone(),
        on_record(trail.clone(), clock.clone()),
    ));
    let alarm = ClockAlarm::new(
        clock.clone(),
        names::OPERATOR,
        &common.namespace,
        &common.replica,
    );
    upkeep.spawn(alarm.run(client.clone()));

    if !args.policies.is_empty() {
        let installation = Installation {
            name: args.policies.clone(),
            namespace: common.namespace.clone(),
            break_glass: args.break_glass_groups.clone(),
        };
        let alarm = PolicyAlarm::new(&installation)?;
        alarm.register(engine.registry());
        let warnings = Warnings::new(client.clone(), &common.namespace, &common.replica);
        upkeep.spawn(alarm.run(client.clone(), warnings));
    }

    let in_path = Gauge::default();
    engine.registry().register(
        "oz_stamp_in_path",
        "Whether a new request came back with our stamp at the last try: 1 or 0",
        in_path.clone(),
    );
    let canary = Canary {
        client,
        clock: Arc::new(clock),
        trail: trail.clone(),
        keys,
        namespace: common.namespace.clone(),
        replica: common.replica.clone(),
        in_path,
    };
    let singing = tokio::spawn(canary.run(shutdown.child_token()));
    let ended = engine.run(shutdown).await;
    singing.abort();
    trail.close().await;
    Ok(ended?)
}

/// Puts on record that another key seals.
fn on_record(trail: Trail, clock: ServerClock) -> impl Fn(KeyNews) {
    move |news| {
        let KeyNews::Seals(id) = news else { return };
        tracing::info!(key = id, "stamps and grants are sealed with another key");
        let message = format!("stamps and grants are sealed with the key {id}");
        let (action, note) = (Action::KeyRotated, Decision::Note);
        let record = Record::about(
            clock.now(),
            action,
            note,
            &id,
            "SigningKeyReplaced",
            message,
        );
        trail.note(record.detail("signingKey", id));
    }
}

/// Starts what looks after the audit trail: old events go, old keys are replaced. It ends when the
/// answer is dropped.
fn trail_upkeep(
    engine: &mut Engine,
    args: &Args,
    client: &Client,
    clock: &ServerClock,
    trail: &Trail,
    shutdown: &CancellationToken,
) -> JoinSet<()> {
    let reaped = Counter::default();
    engine.registry().register(
        "oz_audit_reaped",
        "AuditEvents that were deleted because they were old enough",
        reaped.clone(),
    );
    let namespace = args.common.namespace.clone();
    let retention = Retention {
        client: client.clone(),
        clock: Arc::new(clock.clone()),
        trail: trail.clone(),
        keep: args.audit_retention,
        most: args.audit_max_events,
        namespace: namespace.clone(),
        leader: args.leader_elect.then(|| args.common.replica.clone()),
        reaped,
    };
    let mut upkeep = JoinSet::new();
    upkeep.spawn(retention.run(shutdown.child_token()));
    upkeep.spawn(rotate_keys(
        trail.clone(),
        client.clone(),
        namespace,
        args.audit_key_life,
        shutdown.child_token(),
    ));
    upkeep
}

/// Lets a sweep know of the requests of a kind.
fn access<K: AccessKind>(owners: &mut Owners, requests: &Store<K::Request>) {
    let kind = <K::Request as Resource>::kind(&());
    owners.add(&kind, requests, |request| {
        K::view(request).phase().is_terminal()
    });
}

/// Adds what pods of one's own need.
fn pods(
    engine: &mut Engine,
    args: &Args,
    keys: &Keys,
    workloads: &Arc<Workloads>,
    owners: &mut Owners,
) {
    let templates = engine.store();
    let requests = engine.store();
    access::<PodAccess>(owners, &requests);
    let interval = SignedDuration::from_mins(args.template_reconciliation_interval.max(1).into());
    engine.controller(
        PodTemplate { interval },
        PodTemplates {
            templates: templates.clone(),
            workloads: Arc::clone(workloads),
        },
    );
    let access = args.settings().pod_access(keys.clone());
    engine.controller(
        access.clone(),
        PodRequests {
            controller: access,
            requests,
            stamps: Stamps::default(),
            templates,
            workloads: Arc::clone(workloads),
            made: Mutex::default(),
        },
    );
}

/// Adds transient bindings. If no role may be bound, nothing is: but what was bound before it was
/// switched off must end, and what is deleted must go.
fn bindings(engine: &mut Engine, args: &Args, keys: &Keys, owners: &mut Owners) {
    let policy = args.transient.policy(&args.common.namespace);
    for_each_kind!(bindings K => { binding::<K>(engine, keys, &policy, owners) });
    if args.transient.serve_example_com {
        for_each_kind!(published K => { binding::<K>(engine, keys, &policy, owners) });
    }
}

fn binding<K: Kind>(engine: &mut Engine, keys: &Keys, policy: &Arc<Policy>, owners: &mut Owners) {
    let objects = engine.store();
    owners.add::<K>(K::MARK, &objects, |object| {
        object
            .status()
            .is_some_and(|status| status.phase.is_terminal())
    });
    let controller = Transient::<K>::new(keys.clone(), Arc::clone(policy));
    engine.controller(
        controller.clone(),
        Bindings {
            controller,
            objects,
            stamps: Stamps::default(),
        },
    );
}
