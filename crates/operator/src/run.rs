//! The assembly of the operator from its components.

use std::sync::Arc;

use anyhow::Context as _;
use jiff::SignedDuration;
use kube::{Client, Config, Resource};
use oz_api::composite::CompositeController;
use oz_api::rego::RegoController;
use oz_api::{ExecAccessRequest, PodAccessRequest, labels, names};
use oz_audit::{
    AuditKeyWatch, KeyRotation, SealKeyRotation, SealKeyWatch, Trail, WriterVouching, seal_keys,
};
use oz_composites::declared::KindName;
use oz_composites::supervise::{self, Composites};
use oz_composites::{Accounts, guard};
use oz_config::{Component, ConfigWatch, Loaded, OzConfiguration};
use oz_core::access::exec::ExecAccess;
use oz_core::access::kind::Kind as AccessKind;
use oz_core::access::pod::PodAccess;
use oz_core::access::policy::status::Policies as AccessPolicyStatus;
use oz_core::access::seal::{Keys, Owner};
use oz_core::access::template::{ExecTemplate, PodTemplate};
use oz_core::kinds::AccessRequest as _;
use oz_core::policies::Installation;
use oz_core::transient::{Kind, Policy, Transient};
use oz_core::{for_each_kind, sessions, tickets};
use oz_engine::{Engine, Signal};
use oz_gating::registration::GateService;
use oz_outbound::{Allowed, Proxies, address_of};
use oz_runtime::Who::{Everyone, Leader};
use oz_runtime::{
    AsText, ClockAlarm, Election, Keep, Listen, Recorder, Runtime, Selection, ServerClock, Store,
    Warnings, shutdown_on_signal,
};
use oz_trail::AuditEvent;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::access_policies::AccessPolicies;
use crate::approval_retention::{ApprovalRetention, Uids};
use crate::args::Args;
use crate::bindings::Bindings;
use crate::canary::Canary;
use crate::composites::{Policies, Reports, ReportsPort, Runs, RunsPort, Surveys, Webhooks};
use crate::emergencies::{BindingLookup, Emergencies, RequestLookup, RunLookup};
use crate::evidence_seals::EvidenceSeals;
use crate::exec_request::ExecRequests;
use crate::exec_template::ExecTemplates;
use crate::gate_registration::GateRegistration;
use crate::kept;
use crate::past_expiry::PastExpiry;
use crate::pod_request::PodRequests;
use crate::pod_template::PodTemplates;
use crate::policies::PolicyAlarm;
use crate::retention::Retention;
use crate::review_stores::ReviewStores;
use crate::reviews::{self, Gauges, Reviews};
use crate::role_names::{RoleNames, RoleNamesLock};
use crate::session_probes::Probes;
use crate::sessions::{LeaveSessions, Scripts};
use crate::stamps::Stamps;
use crate::sweep::{Counted, Owners, Sweeper};
use crate::tickets::TicketChecks;
use crate::waiting_bindings::WaitingBindings;
use crate::workload::Workloads;

/// The owner of the private keys in this process.
const OWNER: Owner = Owner::Operator;

/// Runs until a signal, or until the loss of a required component.
pub(crate) async fn run(args: Args, loaded: Loaded) -> anyhow::Result<()> {
    let shutdown = shutdown_on_signal()?;
    let (common, settings) = (&args.common, &loaded.configuration);
    let config = common.config(names::OPERATOR).await?;
    let (client, clock) = oz_runtime::client(config.clone())?;
    let keys = seal_keys(&client, &common.namespace, OWNER).await?;
    let (namespace, replica) = (&common.namespace, &common.replica);
    let trail = Trail::start(
        &client,
        clock.clone(),
        namespace,
        names::OPERATOR,
        replica,
        &loaded,
    )
    .await?;
    let operator = Operator {
        tickets: TicketChecks::new(
            &settings.tickets,
            &settings.installation.secrets,
            proxies(settings),
            clock.clone(),
        )?,
        role_names: RoleNames::default(),
        warnings: Warnings::new(client.clone(), labels::OZ, namespace, replica),
        args: &args,
        loaded: &loaded,
        settings,
        config: config.clone(),
        client,
        clock,
        keys,
        trail,
    };
    let mut engine = operator.engine();
    let emergencies = operator.emergencies(engine.runtime());
    let owners = operator.controllers(&mut engine, &emergencies);
    if settings.composites.enabled {
        operator.composites(&mut engine, config)?;
    }
    if settings.harness.enabled {
        let shared = (&operator.tickets, &emergencies);
        crate::harness::controllers(&mut engine, (settings, namespace), &operator.keys, shared);
    }
    operator.tasks(engine.runtime(), owners)?;
    let ended = engine.run(shutdown).await;
    operator.trail.close().await;
    Ok(ended?)
}

/// Returns the proxies of the process.
fn proxies(settings: &OzConfiguration) -> Proxies {
    settings.proxies(|name| std::env::var(name).ok())
}

/// The common components of the process.
struct Operator<'a> {
    args: &'a Args,
    loaded: &'a Loaded,
    settings: &'a OzConfiguration,
    config: Config,
    client: Client,
    clock: ServerClock,
    keys: Keys,
    trail: Trail,
    warnings: Warnings,
    role_names: RoleNames,
    tickets: TicketChecks,
}

impl Operator<'_> {
    /// Creates the engine, without controllers and tasks.
    fn engine(&self) -> Engine {
        let (args, settings) = (self.args, self.settings);
        let common = &args.common;
        let mut runtime = Runtime::new(labels::OZ, self.client.clone(), self.clock.clone());
        self.trail.register(&mut runtime.registry());
        runtime.feeds().restrict(settings.access.namespaces.clone());
        let (namespace, replica) = (&common.namespace, &common.replica);
        runtime.election(if args.leader_elect {
            Election::lease(namespace, names::LEASE, replica)
        } else {
            Election::Off
        });
        for address in [args.metrics_bind_address, args.health_probe_bind_address] {
            if let Some(address) = address.0 {
                runtime.listen(Listen::Address(address));
            }
        }
        let mut engine = Engine::new(runtime);
        engine
            .concurrency(settings.operator.workers.count())
            .sink(self.trail.clone());
        self.tickets.register(&mut engine.runtime().registry());
        engine.port(tickets::PORT, self.tickets.clone());
        if settings.operator.terminate_sessions {
            let (client, clock) = (self.client.clone(), self.clock.clone());
            let scripts = Scripts::new(client, clock, self.trail.clone());
            engine.port(sessions::PORT, scripts);
        } else {
            engine.port(sessions::PORT, LeaveSessions);
        }
        engine
    }

    /// Adds the controllers. Returns the owners of the created objects.
    fn controllers(&self, engine: &mut Engine, emergencies: &Emergencies) -> Owners {
        let mut owners = Owners::default();
        let parts = Parts {
            settings: self.settings,
            namespace: &self.args.common.namespace,
            keys: &self.keys,
            workloads: Arc::new(Workloads::default()),
            role_names: self.role_names.clone(),
            emergencies: emergencies.clone(),
            tickets: self.tickets.clone(),
        };
        exec(engine, &parts, &mut owners);
        if self.settings.access.pods {
            pods(engine, &parts, &mut owners);
        }
        bindings(engine, &parts, &mut owners);
        let policies = engine.runtime().feeds().store();
        engine.controller(AccessPolicyStatus, AccessPolicies { policies });
        owners
    }

    /// Adds the controllers for composites.
    fn composites(&self, engine: &mut Engine, config: Config) -> anyhow::Result<()> {
        let (settings, namespace) = (&self.settings.composites, &self.args.common.namespace);
        let account = self.settings.composite_account(namespace);
        let accounts = Accounts {
            default: account.context("composites.enabled requires composites.account")?,
            others: settings.accounts.clone(),
        };
        let allowed = Allowed {
            api_servers: address_of(&config.cluster_url).into_iter().collect(),
            proxies: proxies(self.settings),
            ..Allowed::default()
        };
        let webhooks = Webhooks::new(settings, &self.settings.installation.secrets, &allowed);
        let feeds = engine.runtime().feeds().clone();
        let policies = Arc::new(Policies::new(&settings.policy_namespaces, &feeds));
        let (reports, told) = (Reports::default(), Signal::default());
        let runs = Arc::new(Runs {
            policies: Arc::clone(&policies),
            controllers: engine.controllers().clone(),
            config,
            keys: self.keys.clone(),
            bindable: Arc::new(self.settings.policy(namespace)),
            judge: self.client.clone(),
            webhooks,
            most: settings.max.count(),
            adopt_all_matching: settings.adopt_all_matching.clone(),
            identities: Mutex::default(),
            told: told.clone(),
            reports: reports.clone(),
            running: Mutex::default(),
        });
        engine.port(supervise::PORT, RunsPort(Arc::clone(&runs)));
        engine.port(guard::PORT, ReportsPort { reports, told });
        let mut natively = Vec::new();
        if self.settings.transient.serve_example_com {
            for_each_kind!(published K => { natively.push(KindName::from_type::<K>()) });
        }
        let definitions = feeds.store_with(Selection::default().metadata_only());
        let surveys = Surveys {
            objects: feeds.store::<RegoController>(),
            definitions: definitions.clone(),
            accounts: accounts.clone(),
            runs: Arc::clone(&runs),
            policies: Arc::clone(&policies),
        };
        let selected = || settings.selector.clone();
        let regos = Composites::new(accounts.clone(), natively.clone()).selecting(selected());
        engine.controller(regos, surveys);
        let surveys = Surveys {
            objects: feeds.store::<CompositeController>(),
            definitions,
            accounts: accounts.clone(),
            runs,
            policies,
        };
        let composites = Composites::new(accounts, natively).selecting(selected());
        engine.controller(composites, surveys);
        Ok(())
    }

    /// Adds the further tasks, each with the replicas that run it.
    fn tasks(&self, runtime: &mut Runtime, owners: Owners) -> anyhow::Result<()> {
        let sweeper = self.sweeper(runtime, owners);
        let retention = self.retention(runtime);
        let approval_retention = self.approval_retention(runtime);
        let reviews = self.reviews(runtime);
        let canary = self.canary(runtime);
        self.past_expiry(runtime);
        let config_watch = ConfigWatch::new(
            &self.args.config,
            self.loaded,
            Component::Operator,
            &mut runtime.registry(),
        );
        runtime
            .task("configuration watch", Everyone, config_watch)
            .task("sweep", Leader, sweeper)
            .task("retention", Leader, retention)
            .task("approval retention", Leader, approval_retention)
            .task("evidence seals", Leader, self.evidence_seals())
            .task("reviews", Leader, reviews)
            .task("audit key rotation", Leader, self.audit_key_rotation())
            .task(
                "audit key vouching",
                Leader,
                WriterVouching::new(&self.trail),
            )
            .task("signing key rotation", Leader, self.signing_key_rotation())
            .task("signing key watch", Everyone, self.signing_key_watch())
            .task("audit key watch", Everyone, self.audit_key_watch())
            .task("canary", Everyone, canary)
            .task("clock alarm", Everyone, self.clock_alarm());
        if let Some(service) = self.gate_service() {
            let (feeds, namespace) = (runtime.feeds(), &self.args.common.namespace);
            let registration = GateRegistration::new(&self.client, feeds, namespace, &service);
            runtime.task("gate registration", Leader, registration);
        }
        if self.settings.installation.policies {
            let alarm = self.policy_alarm(runtime)?;
            let role_names = self.role_names_lock(runtime)?;
            runtime.task("policy alarm", Everyone, alarm).task(
                "reserved names",
                Leader,
                role_names,
            );
        }
        Ok(())
    }

    /// Registers the count of grants past their expiry.
    fn past_expiry(&self, runtime: &Runtime) {
        let feeds = runtime.feeds();
        let mut past = PastExpiry::new(Arc::new(self.clock.clone()));
        for_each_kind!(requests R => { past.requests(kept::requests::<R>(feeds)) });
        for_each_kind!(bindings B => { past.bindings(kept::bindings::<B>(feeds)) });
        if self.settings.transient.serve_example_com {
            for_each_kind!(published B => { past.bindings(kept::bindings::<B>(feeds)) });
        }
        runtime.registry().register_collector(Box::new(past));
    }

    fn sweeper(&self, runtime: &Runtime, owners: Owners) -> Sweeper {
        Sweeper {
            client: self.client.clone(),
            clock: Arc::new(self.clock.clone()),
            keys: self.keys.clone(),
            trail: self.trail.clone(),
            owners,
            namespaces: self.settings.access.namespaces.clone(),
            warnings: self.warnings.clone(),
            interval: self.settings.operator.sweep_interval.0.unsigned_abs(),
            counted: Counted::register(&mut runtime.registry()),
        }
    }

    fn retention(&self, runtime: &Runtime) -> Retention {
        let reaped = Counter::default();
        runtime.registry().register(
            "oz_audit_events_deleted",
            "AuditEvents that were deleted because they were older than the retention",
            reaped.clone(),
        );
        Retention {
            client: self.client.clone(),
            clock: Arc::new(self.clock.clone()),
            trail: self.trail.clone(),
            keep: self.settings.audit.retention.0,
            most: self.settings.audit.max_events,
            namespace: self.args.common.namespace.clone(),
            reaped,
        }
    }

    /// Creates the task that deletes approvals and denials of requests that are gone.
    fn approval_retention(&self, runtime: &Runtime) -> ApprovalRetention {
        let feeds = runtime.feeds();
        let mut requests: Vec<Box<dyn Uids>> = Vec::new();
        for_each_kind!(requests R => { requests.push(Box::new(kept::requests::<R>(feeds))) });
        for_each_kind!(bindings B => { requests.push(Box::new(kept::bindings::<B>(feeds))) });
        if self.settings.harness.enabled {
            requests.push(Box::new(kept::runs(feeds)));
        }
        ApprovalRetention {
            client: self.client.clone(),
            clock: Arc::new(self.clock.clone()),
            approvals: feeds.store(),
            requests,
        }
    }

    fn evidence_seals(&self) -> EvidenceSeals {
        EvidenceSeals {
            client: self.client.clone(),
            clock: Arc::new(self.clock.clone()),
            trail: self.trail.clone(),
            namespace: self.args.common.namespace.clone(),
        }
    }

    /// Returns the audit records of emergencies, if audit records are written into the cluster.
    fn emergencies_on_record(&self, runtime: &Runtime) -> Option<Store<AuditEvent>> {
        let in_cluster = self.settings.audit.objects;
        in_cluster.then(|| runtime.feeds().store_with(reviews::emergencies()))
    }

    /// Creates the room for emergencies.
    fn emergencies(&self, runtime: &Runtime) -> Emergencies {
        let feeds = runtime.feeds();
        let mut requests: Vec<Box<dyn RequestLookup>> = Vec::new();
        for_each_kind!(requests R => { requests.push(Box::new(kept::requests::<R>(feeds))) });
        if self.settings.harness.enabled {
            requests.push(Box::new(RunLookup(kept::runs(feeds))));
        }
        for_each_kind!(bindings B => {
            requests.push(Box::new(BindingLookup(kept::bindings::<B>(feeds))));
        });
        let records = self.emergencies_on_record(runtime);
        Emergencies::new(&self.keys, records, self.review_stores(runtime), requests)
    }

    fn review_stores(&self, runtime: &Runtime) -> ReviewStores {
        let served = &self.settings.access.namespaces;
        ReviewStores::new(runtime.feeds(), served, &self.args.common.namespace)
    }

    /// Creates the task for reviews of emergencies and of break-glass.
    fn reviews(&self, runtime: &Runtime) -> Reviews {
        let (replica, gauges) = (&self.args.common.replica, Gauges::default());
        gauges.register(&mut runtime.registry());
        let in_cluster = self.settings.audit.objects;
        let openings = in_cluster.then(|| runtime.feeds().store_with(reviews::openings()));
        Reviews {
            client: self.client.clone(),
            clock: Arc::new(self.clock.clone()),
            keys: self.keys.clone(),
            trail: self.trail.clone(),
            records: self
                .emergencies_on_record(runtime)
                .into_iter()
                .chain(openings)
                .collect(),
            break_glass: self.settings.break_glass_terms(),
            reviews: self.review_stores(runtime),
            keep: self.settings.audit.retention.0,
            recorder: Recorder::new(self.client.clone(), labels::OZ, Some(replica)),
            gauges,
        }
    }

    fn audit_key_rotation(&self) -> KeyRotation {
        KeyRotation::new(&self.trail, &self.settings.audit)
    }

    fn audit_key_watch(&self) -> AuditKeyWatch {
        AuditKeyWatch {
            trail: self.trail.clone(),
        }
    }

    fn signing_key_rotation(&self) -> SealKeyRotation {
        let namespace = &self.args.common.namespace;
        let (clock, life) = (self.clock.clone(), self.settings.access.signing_key_life.0);
        SealKeyRotation::new(&self.client, clock, namespace, OWNER, life)
    }

    fn signing_key_watch(&self) -> SealKeyWatch {
        let namespace = &self.args.common.namespace;
        let keys = (OWNER, self.keys.clone());
        SealKeyWatch::new(&self.client, namespace, keys, self.trail.clone(), || ())
    }

    fn canary(&self, runtime: &Runtime) -> Canary {
        let in_path = Gauge::default();
        runtime.registry().register(
            "oz_canary_stamped",
            "Whether a new request had a stamp of oz at the last check: 1 or 0",
            in_path.clone(),
        );
        Canary {
            config: self.config.clone(),
            replica: self.args.common.replica.clone(),
            clock: Arc::new(self.clock.clone()),
            trail: self.trail.clone(),
            keys: self.keys.clone(),
            namespace: self.args.common.namespace.clone(),
            warnings: self.warnings.clone(),
            in_path,
        }
    }

    fn clock_alarm(&self) -> ClockAlarm {
        let (clock, replica) = (self.clock.clone(), &self.args.common.replica);
        ClockAlarm::new(clock, names::OPERATOR, replica, self.warnings.clone())
    }

    fn installation(&self) -> Installation {
        Installation {
            name: self.settings.installation.name.clone(),
            namespace: self.args.common.namespace.clone(),
            break_glass: self.settings.webhook.break_glass_groups.clone(),
            harness: self.settings.harness.enabled,
            composites: self.settings.composites.enabled,
        }
    }

    /// Returns the gate's Service, if the operator maintains the APIService that names it.
    fn gate_service(&self) -> Option<GateService> {
        let gate = &self.settings.gate;
        (gate.enabled && gate.unregister_when_unavailable).then(|| GateService {
            name: self
                .settings
                .installation
                .component_name(Component::Gate.name()),
            port: gate.service.port.get().into(),
        })
    }

    fn role_names_lock(&self, runtime: &Runtime) -> anyhow::Result<RoleNamesLock> {
        let own = &self.args.common.namespace;
        let namespace = self.settings.access.namespaces.first().unwrap_or(own);
        let lock = RoleNamesLock::new(
            &self.client,
            &self.role_names,
            namespace,
            &self.installation(),
        )?;
        runtime.registry().register(
            "oz_reserved_names_in_use",
            "Whether Roles of grants get reserved names, which an admission policy protects: 1 or \
                0",
            lock.used.clone(),
        );
        Ok(lock)
    }

    fn policy_alarm(&self, runtime: &Runtime) -> anyhow::Result<PolicyAlarm> {
        let installation = self.installation();
        let alarm = PolicyAlarm::new(&installation, &self.client, self.warnings.clone())?;
        alarm.register(&mut runtime.registry());
        Ok(alarm)
    }
}

/// Returns the kinds of requests for access that are served.
fn access_kinds(settings: &OzConfiguration) -> Vec<String> {
    let pod = settings.access.pods.then(|| PodAccessRequest::kind(&()));
    let kinds = [ExecAccessRequest::kind(&())].into_iter().chain(pod);
    kinds.map(std::borrow::Cow::into_owned).collect()
}

/// Returns the interval between two checks of a template's target.
fn template_interval(settings: &OzConfiguration) -> SignedDuration {
    let minutes = settings.operator.template_reconciliation_interval.get();
    SignedDuration::from_mins(minutes.max(1).cast_signed())
}

/// The common components of the kinds of access and of transient bindings.
struct Parts<'a> {
    settings: &'a OzConfiguration,
    namespace: &'a str,
    keys: &'a Keys,
    workloads: Arc<Workloads>,
    role_names: RoleNames,
    emergencies: Emergencies,
    tickets: TicketChecks,
}

/// Adds access to running pods.
fn exec(engine: &mut Engine, parts: &Parts<'_>, owners: &mut Owners) {
    let Parts {
        settings,
        namespace,
        keys,
        workloads,
        role_names,
        emergencies,
        tickets,
    } = parts;
    let feeds = engine.runtime().feeds();
    let (templates, requests) = (feeds.store(), kept::requests(feeds));
    // There are many pods, and a request that is over ends without them.
    let keep = Keep {
        compact: Some(AsText::json()),
        ..Keep::default()
    };
    let pods_by_name = feeds.store_after(Selection::default().metadata_only(), &keep, &requests);
    let (approvals, locks) = (feeds.store(), feeds.store());
    access::<ExecAccess>(owners, &requests);
    role_names.watch_requests::<ExecAccess>(&requests);
    let probes = Probes::new(settings.operator.terminate_sessions);
    let interval = template_interval(settings);
    engine.controller(
        ExecTemplate { interval },
        ExecTemplates {
            templates: templates.clone(),
            workloads: Arc::clone(workloads),
            probes: probes.clone(),
        },
    );
    let exec = settings.settings(namespace).exec_access((*keys).clone());
    engine.controller(
        exec.clone(),
        ExecRequests {
            controller: exec,
            requests,
            stamps: Stamps::default(),
            role_names: role_names.clone(),
            access_kinds: access_kinds(settings),
            templates,
            approvals,
            locks,
            emergencies: emergencies.clone(),
            tickets: tickets.clone(),
            workloads: Arc::clone(workloads),
            pods: pods_by_name,
            probes,
        },
    );
}

/// Registers the requests of a kind for the sweep.
fn access<K: AccessKind>(owners: &mut Owners, requests: &Store<K::Request>) {
    let kind = <K::Request as Resource>::kind(&());
    owners.add(&kind, requests, |request| {
        request.view().phase().is_terminal()
    });
}

/// Adds the controllers for dedicated pods.
fn pods(engine: &mut Engine, parts: &Parts<'_>, owners: &mut Owners) {
    let Parts {
        settings,
        namespace,
        keys,
        workloads,
        role_names,
        emergencies,
        tickets,
    } = parts;
    let feeds = engine.runtime().feeds();
    let (templates, requests) = (feeds.store(), kept::requests(feeds));
    let (approvals, locks) = (feeds.store(), feeds.store());
    access::<PodAccess>(owners, &requests);
    role_names.watch_requests::<PodAccess>(&requests);
    let interval = template_interval(settings);
    engine.controller(
        PodTemplate { interval },
        PodTemplates {
            templates: templates.clone(),
            workloads: Arc::clone(workloads),
        },
    );
    let access = settings.settings(namespace).pod_access((*keys).clone());
    engine.controller(
        access.clone(),
        PodRequests {
            controller: access,
            requests,
            stamps: Stamps::default(),
            role_names: role_names.clone(),
            access_kinds: access_kinds(settings),
            templates,
            approvals,
            locks,
            emergencies: emergencies.clone(),
            tickets: tickets.clone(),
            workloads: Arc::clone(workloads),
            made: Mutex::default(),
        },
    );
}

/// Adds transient bindings. If no role may be bound, no new binding is created: but existing
/// bindings must end, and deleted objects must be removed.
fn bindings(engine: &mut Engine, parts: &Parts<'_>, owners: &mut Owners) {
    let settings = parts.settings;
    let policy = Arc::new(settings.policy(parts.namespace));
    let mut waiting = WaitingBindings::default();
    let feeds = engine.runtime().feeds();
    for_each_kind!(bindings K => { waiting.add::<K>(feeds) });
    if settings.transient.serve_example_com {
        for_each_kind!(published K => { waiting.add::<K>(feeds) });
    }
    let terms = (&policy, &waiting);
    for_each_kind!(bindings K => { binding::<K>(engine, parts, terms, owners) });
    if settings.transient.serve_example_com {
        for_each_kind!(published K => { binding::<K>(engine, parts, terms, owners) });
    }
}

fn binding<K: Kind>(
    engine: &mut Engine,
    parts: &Parts<'_>,
    (policy, waiting): (&Arc<Policy>, &WaitingBindings),
    owners: &mut Owners,
) {
    let keys = parts.keys;
    let feeds = engine.runtime().feeds();
    let objects = kept::bindings::<K>(feeds);
    let (locks, approvals) = (feeds.store(), feeds.store());
    owners.add::<K>(K::MARK, &objects, |object| {
        object
            .status()
            .is_some_and(|status| status.phase.is_terminal())
    });
    engine.controller(
        Transient::<K>::new(keys.clone(), Arc::clone(policy)),
        Bindings {
            keys: keys.clone(),
            objects,
            locks,
            approvals,
            namespace: policy.own_namespace.as_str().into(),
            stamps: Stamps::default(),
            waiting: waiting.clone(),
            emergencies: parts.emergencies.clone(),
            tickets: parts.tickets.clone(),
        },
    );
}
