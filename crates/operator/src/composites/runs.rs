//! The running composites: started, changed and stopped as their controller decides. A port of the
//! engine: a repeated effect changes nothing more.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, Client, Config};
use oz_api::labels;
use oz_composites::declared::Family;
use oz_composites::guard::Tally;
use oz_composites::supervise::{Mode, Run, Runs as Answer};
use oz_composites::{Account, Composite};
use oz_core::controller::{Effect, Failure};
use oz_core::lifecycle::seal::Keys;
use oz_core::transient::Policy;
use oz_engine::{Controllers, Port, Running, Setup, Signal};
use oz_runtime::{Identity, Keep, Selection, Store, Subscription, within};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use super::kinds::kind;
use super::parents::Parents;
use super::related::RelatedObjects;
use super::reports::Reports;
use super::stored::FIELD_MANAGER;
use super::{Policies, Webhooks};

/// The common label of their metrics: users choose the names of composites.
const METRIC_LABEL: &str = "composite";

/// The page size of a list.
const PAGE: u32 = 500;

/// The running composites, and the resources that they share.
pub(crate) struct Runs {
    pub(crate) controllers: Controllers,
    /// The connection, for use with impersonation.
    pub(crate) config: Config,
    pub(crate) keys: Keys,
    /// The policy that limits the rights which children may hand out.
    pub(crate) bindable: Arc<Policy>,
    /// The client that checks these rights, and reads roles.
    pub(crate) judge: Client,
    pub(crate) webhooks: Webhooks,
    pub(crate) policies: Arc<Policies>,
    pub(crate) most: usize,
    /// The CompositeControllers with parents that adopt objects as with MetaController.
    pub(crate) adopt_all_matching: Vec<String>,
    pub(crate) identities: Mutex<HashMap<Account, Identity>>,
    /// The signal that reconciles a composite after a report of its parents.
    pub(crate) told: Signal,
    /// The reports of the parents.
    pub(crate) reports: Reports,
    /// The running composites by UID of the CompositeController or RegoController.
    pub(crate) running: Mutex<HashMap<String, One>>,
}

/// A running composite.
pub(crate) struct One {
    /// The payload of the effect that started it.
    payload: Value,
    composite: Composite,
    parents: Store<DynamicObject>,
    /// The client with which it reads and writes.
    client: Client,
    running: Running,
    _counted: Subscription,
}

/// The port for the running composites.
pub(crate) struct RunsPort(pub(crate) Arc<Runs>);

impl Port for RunsPort {
    fn carry_out<'a>(&'a self, effect: &'a Effect) -> BoxFuture<'a, Result<Value, Failure>> {
        Box::pin(async move {
            let running = self.0.carry_out(effect).await?;
            Ok(json!(Answer { running }))
        })
    }
}

impl Runs {
    /// Returns the number of parents that a composite holds; `None` if it is unknown.
    pub(crate) fn held(&self, uid: &str) -> Option<usize> {
        let running = self.running();
        let one = running.get(uid)?;
        let declared = &one.composite.declared;
        let is_known = one.composite.mode == Mode::Leave && one.parents.is_ready();
        let held = || {
            one.parents
                .select(|parent| declared.holds(&parent.metadata))
        };
        is_known.then(|| held().len())
    }

    /// Returns the tally of the reports of a composite's parents; `None` if not all of the parents
    /// are known, or not all of the children on which the decision depends.
    pub(crate) async fn tally(&self, uid: &str) -> Option<Tally> {
        let (composite, parents, client) = {
            let running = self.running();
            let one = running.get(uid)?;
            if !one.parents.is_ready() {
                return None;
            }
            (
                one.composite.clone(),
                one.parents.clone(),
                one.client.clone(),
            )
        };
        let declared = &composite.declared;
        let unlabelled = BTreeMap::new();
        let parents = parents.select(|parent| {
            let labels = parent.metadata.labels.as_ref().unwrap_or(&unlabelled);
            parent.metadata.deletion_timestamp.is_none() && declared.selects(labels)
        });
        let told = |children: &[(String, String)]| {
            let uids = parents.iter();
            let uids = uids.filter_map(|parent| parent.metadata.uid.as_deref());
            self.reports
                .tally(uid, composite.policy.as_deref(), uids, children)
        };
        let tally = told(&[]);
        let decides = declared
            .most_deletions
            .is_some_and(|most| tally.is_within(most));
        if composite.mode != Mode::Guard || !decides {
            return Some(tally);
        }
        let children = children(&client, &composite.family).await;
        let children = children.inspect_err(|failure| {
            tracing::warn!(composite = composite.name, %failure, "children are not counted yet");
        });
        Some(told(&children.ok()?))
    }

    /// Applies the payload to the running composites, and returns whether functions are called.
    async fn carry_out(&self, effect: &Effect) -> Result<bool, Failure> {
        let run: Run = serde_json::from_value(effect.payload.clone()).map_err(|error| {
            Failure::invalid(
                "PayloadInvalid",
                format!("failed to list the composites to run: {error}"),
            )
        })?;
        let uid = effect.key.as_str();
        if self
            .running()
            .get(uid)
            .is_some_and(|one| one.payload == effect.payload)
        {
            return Ok(run.mode.asks());
        }
        // Removed from the map while it is replaced.
        let before = self.running().remove(uid);
        let last = before.as_ref().map(|one| one.composite.clone());
        if let Some(one) = before {
            one.running.stop().await;
        }
        self.reports.forget(uid);
        let Some(wanted) = self.wanted(&run, last) else {
            return Ok(false);
        };
        let asks = wanted.mode.asks();
        let one = self.start(wanted, &run.account, effect.payload.clone())?;
        self.running().insert(uid.to_owned(), one);
        Ok(asks)
    }

    /// Returns the composite that replaces the last one, if any.
    fn wanted(&self, run: &Run, last: Option<Composite>) -> Option<Composite> {
        let composite = run.composite.as_ref()?;
        let declared = composite.declared().ok();
        let Some((family, declared)) = run.family.clone().zip(declared) else {
            // The last version, which only ends its children and parents.
            let mode = Mode::Ends;
            return last.map(|last| Composite { mode, ..last });
        };
        Some(Composite {
            name: composite.title(),
            declared: declared
                .with_policies(&self.policies.namespaces())
                .adopting(&self.adopt_all_matching),
            family,
            observes_generation: run.observes_generation,
            keys: self.keys.clone(),
            mode: run.mode,
            policy: run.policy.clone(),
            bindable: Some(Arc::clone(&self.bindable)),
        })
    }

    fn start(
        &self,
        composite: Composite,
        account: &Account,
        payload: Value,
    ) -> Result<One, Failure> {
        if self.running().len() >= self.most {
            let message = format!(
                "{} composites run already, the maximum is {} (composites.max)",
                self.running().len(),
                self.most
            );
            return Err(Failure::transient("TooMany", message));
        }
        let identity = self.identity(account)?;
        let parent = kind(&composite.family.parent);
        let (all, keep) = (Selection::default(), Keep::default());
        let feeds = self.controllers.feeds();
        let parents = feeds.store_as(Some(&identity), &parent, all, &keep);
        let client = identity.client().clone();
        let webhooks = self.webhooks.clone();
        let policies = Arc::clone(&self.policies);
        let related = RelatedObjects::new(feeds.clone(), identity.clone(), parents.clone())
            .surveying(&self.told, composite.declared.uid.as_ref());
        let observe = Parents::new(
            parents.clone(),
            identity,
            composite.clone(),
            webhooks,
            policies,
            self.judge.clone(),
            related,
        );
        let setup = Setup::new(composite.clone(), observe)
            .field_manager(FIELD_MANAGER)
            .metric_label(METRIC_LABEL)
            .client(client.clone());
        let counted = self.reports.count(&composite, &parents, &self.told);
        let running = self.controllers.start(setup);
        let running =
            running.map_err(|error| Failure::transient("NotStarted", error.to_string()))?;
        Ok(One {
            payload,
            composite,
            parents,
            client,
            running,
            _counted: counted,
        })
    }

    /// Returns the identity that reads and writes as the account. Composites of one account share
    /// it.
    pub(super) fn identity(&self, account: &Account) -> Result<Identity, Failure> {
        let mut identities = self.identities.lock();
        if let Some(known) = identities.get(account) {
            return Ok(known.clone());
        }
        let mut config = self.config.clone();
        config.auth_info.impersonate = Some(account.user());
        let (client, _) = oz_runtime::client(config).map_err(|error| {
            let message = format!("failed to act as {account}: {error}");
            Failure::transient("NotStarted", message)
        })?;
        let identity = Identity::new(&account.user(), client);
        identities.insert(account.clone(), identity.clone());
        Ok(identity)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, One>> {
        self.running.lock()
    }
}

/// Returns the children on the API server, each with the UID of its controller before it.
async fn children(client: &Client, family: &Family) -> Result<Vec<(String, String)>, Failure> {
    let mut found = Vec::new();
    for (kind, _) in &family.children {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource);
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let what = || format!("failed to list {}", kind.resource.plural);
            let listed = within(api.list_metadata(&page), what).await;
            let listed = listed.map_err(oz_engine::of_call)?;
            found.extend(listed.items.into_iter().filter_map(|child| {
                let owner = labels::controller(&child.metadata)?.uid.clone();
                Some((owner, child.metadata.uid?))
            }));
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
    }
    Ok(found)
}
