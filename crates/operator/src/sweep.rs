//! The sweep: a check of all Roles and bindings, when this replica begins to lead and every ten
//! minutes. The objects of oz are watched by their labels, and users can remove labels, or create
//! copies without them. The sweep ends objects that carry oz's decision and have no live owner; it
//! reports, in an alarm, objects of other creators that give the same rights as oz, since it may
//! not delete those.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, DynamicObject};
use kube::{Client, Resource};
use oz_api::Uid;
use oz_audit::{Sink as _, Trail};
use oz_core::access::leftover::{self, Finding, Hidden};
use oz_core::access::seal::Keys;
use oz_core::controller::Live;
use oz_runtime::{CallError, Clock, Store, Task, Warnings, scan};
use oz_trail::{Action, Decision, Record};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The pause after a failure.
const AGAIN: Duration = Duration::from_secs(30);
/// The maximum number of oz's objects that one sweep ends; the next one finds the rest.
const MOST_ENDED: usize = 1_000;
/// The maximum number of other objects that one sweep records, each once.
const MOST_TOLD: usize = 20;
/// The maximum number of reported objects that are stored.
const MOST_REMEMBERED: usize = 10_000;

/// The state of the owner of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// It exists: its controller is responsible for its end.
    Lasts,
    /// It has ended, or does not exist.
    Over,
}

type Find = Box<dyn Fn(&str) -> Owner + Send + Sync>;
type Listed = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// The owners of grants, by the mark of their children.
#[derive(Default)]
pub(crate) struct Owners {
    find: BTreeMap<String, Find>,
    /// Functions that wait for the first list of each kind.
    listed: Vec<Listed>,
}

impl Owners {
    /// Adds a kind; `is_over` reads the status.
    pub(crate) fn add<K>(&mut self, mark: &str, store: &Store<K>, is_over: fn(&K) -> bool)
    where
        K: Resource + Send + Sync + 'static,
    {
        let listed = store.clone();
        self.listed.push(Box::new(move || {
            let listed = listed.clone();
            async move { listed.ready().await }.boxed()
        }));
        let store = store.clone();
        let find = move |uid: &str| match store.by_uid(uid) {
            Some(object) if !is_over(&object) => Owner::Lasts,
            _ => Owner::Over,
        };
        self.find.insert(mark.to_owned(), Box::new(find));
    }

    /// Checks whether an object has no live owner. An object of a kind that this process does not
    /// serve is left alone.
    fn is_over(&self, hidden: &Hidden) -> bool {
        let find = self.find.get(&hidden.mark);
        find.is_some_and(|find| find(&hidden.owner) == Owner::Over)
    }
}

/// The metrics of sweeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    sweeps: Counter,
    ended: Counter,
    foreign: Gauge,
}

impl Counted {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let counted = Self::default();
        registry.register(
            "oz_sweeps",
            "Periodic checks of all Roles and bindings for objects that the watches do not contain",
            counted.sweeps.clone(),
        );
        registry.register(
            "oz_sweep_ended",
            "Roles and bindings of oz that had lost their labels and belonged to no object, \
                deleted",
            counted.ended.clone(),
        );
        registry.register(
            "oz_sweep_foreign",
            "Objects that oz did not create and that grant the same access, at the last check",
            counted.foreign.clone(),
        );
        counted
    }
}

pub(crate) struct Sweeper {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keys: Keys,
    pub(crate) trail: Trail,
    pub(crate) owners: Owners,
    /// The namespaces to check; all if empty.
    pub(crate) namespaces: Vec<String>,
    pub(crate) warnings: Warnings,
    pub(crate) interval: Duration,
    pub(crate) counted: Counted,
}

/// The findings of one sweep.
#[derive(Default)]
struct Found {
    hidden: Vec<Hidden>,
    /// The UID and the message of each object.
    foreign: Vec<(String, String)>,
    count: usize,
}

impl Task for Sweeper {
    async fn run(&self) {
        for listed in &self.owners.listed {
            listed().await;
        }
        let mut told = HashSet::new();
        loop {
            let pause = match self.sweep(&mut told).await {
                Ok(()) => self.interval,
                Err(error) => {
                    tracing::warn!(%error, "a sweep failed and is retried");
                    AGAIN
                }
            };
            tokio::time::sleep(pause).await;
        }
    }
}

impl Sweeper {
    async fn sweep(&self, told: &mut HashSet<String>) -> Result<(), CallError> {
        let found = self.look().await?;
        self.end(&found.hidden).await;
        self.tell(&found, told).await;
        self.counted.sweeps.inc();
        Ok(())
    }

    async fn look(&self) -> Result<Found, CallError> {
        let mut found = Found::default();
        let mut sweep = leftover::Sweep::new(&self.keys, self.clock.now());
        let namespaces: Vec<Option<&str>> = if self.namespaces.is_empty() {
            vec![None]
        } else {
            self.namespaces
                .iter()
                .map(|name| Some(name.as_str()))
                .collect()
        };
        let role = ApiResource::erase::<Role>(&());
        for namespace in &namespaces {
            scan(&self.client, &role, *namespace, None, |object| {
                let live = live(&role, object);
                let finding = sweep.role(&live);
                found.take(&live, finding);
            })
            .await?;
        }
        let cluster = [(ApiResource::erase::<ClusterRoleBinding>(&()), None)];
        let binding = ApiResource::erase::<RoleBinding>(&());
        let bindings = namespaces
            .iter()
            .map(|namespace| (binding.clone(), *namespace));
        for (resource, namespace) in bindings.chain(cluster) {
            scan(&self.client, &resource, namespace, None, |object| {
                let live = live(&resource, object);
                let finding = sweep.binding(&live);
                found.take(&live, finding);
            })
            .await?;
        }
        Ok(found)
    }

    /// Ends the objects of oz without a live owner: bindings first, since they give the access.
    async fn end(&self, hidden: &[Hidden]) {
        let over = |hidden: &&Hidden| self.owners.is_over(hidden);
        let (roles, bindings): (Vec<_>, Vec<_>) = hidden
            .iter()
            .filter(over)
            .partition(|hidden| hidden.target.resource.kind == "Role");
        let mut recorded = HashSet::new();
        for hidden in bindings.into_iter().chain(roles) {
            let kind = &hidden.target.resource.kind;
            let namespace = &hidden.target.namespace;
            let (name, uid) = match hidden.target.identified() {
                Ok((name, uid)) => (name.as_str(), uid),
                Err(error) => {
                    tracing::warn!(kind, namespace, %error, "failed to delete an object that had \
                        lost its labels");
                    continue;
                }
            };
            if let Err(error) = self.remove(hidden, name, uid).await {
                tracing::warn!(kind, namespace, name, %error, "failed to delete an object that had \
                    lost its labels");
                continue;
            }
            tracing::warn!(
                kind,
                namespace,
                name,
                "deleted an object that had lost its labels"
            );
            self.counted.ended.inc();
            if recorded.insert(&hidden.owner)
                && let Err(failure) = self.trail.record(&hidden.record).await
            {
                let line = hidden.record.line();
                tracing::error!(%failure, record = line, "failed to record the deletion of an \
                    object that had lost its labels");
            }
        }
    }

    async fn remove(&self, hidden: &Hidden, name: &str, uid: Uid<'_>) -> kube::Result<()> {
        let target = &hidden.target;
        let api: Api<DynamicObject> = match &target.namespace {
            Some(namespace) => {
                Api::namespaced_with(self.client.clone(), namespace, &target.resource)
            }
            None => Api::all_with(self.client.clone(), &target.resource),
        };
        if let Some(disarmed) = &hidden.disarmed {
            // A finalizer keeps it; with its labels restored, its controller sees it from now on.
            let parameters = PatchParams::apply("oz/sweep").force();
            let patch = Patch::Apply(&disarmed.object);
            api.patch_metadata(name, &parameters, &patch).await?;
        }
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_string()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match api.delete(name, &parameters).await {
            Err(kube::Error::Api(status)) if !status.is_not_found() && !status.is_conflict() => {
                Err(kube::Error::Api(status))
            }
            _ => Ok(()),
        }
    }

    /// Reports once for each object that it resembles an object of oz without being one.
    async fn tell(&self, found: &Found, told: &mut HashSet<String>) {
        self.counted
            .foreign
            .set(i64::try_from(found.count).unwrap_or(i64::MAX));
        let new = found.foreign.iter().filter(|(uid, _)| !told.contains(uid));
        let new: Vec<_> = new.take(MOST_TOLD).cloned().collect();
        for (uid, what) in new {
            tracing::warn!("{what}");
            let now = self.clock.now();
            let (action, note) = (Action::ForeignAccess, Decision::Note);
            self.trail.note(Record::about(
                now,
                action,
                note,
                &uid,
                "ForeignAccess",
                what.clone(),
            ));
            self.warnings.publish("ForeignAccess", what).await;
            if told.len() < MOST_REMEMBERED {
                told.insert(uid);
            }
        }
    }
}

impl Found {
    fn take(&mut self, live: &Live, finding: Finding) {
        match finding {
            Finding::Nothing => {}
            Finding::Hidden(hidden) if self.hidden.len() < MOST_ENDED => self.hidden.push(*hidden),
            Finding::Hidden(_) => {}
            Finding::Foreign(what) => {
                self.count += 1;
                if self.foreign.len() < MOST_REMEMBERED
                    && let Some(uid) = live.object.metadata.uid.clone()
                {
                    self.foreign.push((uid, what));
                }
            }
        }
    }
}

fn live(resource: &ApiResource, object: DynamicObject) -> Live {
    Live {
        resource: resource.clone(),
        object,
    }
}
