//! The data that a pass over one parent requires.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use kube::core::{ApiResource, DynamicObject, ObjectMeta};
use oz_api::Name;
use oz_composites::expired::Expired;
use oz_composites::protocol::Answer;
use oz_composites::related::{self, Rule};
use oz_composites::settling::Passes;
use oz_composites::{Called, Composite, Facts, Function, Question, Refused, besides_status};
use oz_core::controller::Failure;
use oz_engine::{Cx, Observe, Watches};
use oz_runtime::{Identity, Store};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::kinds::kind;
use super::related::RelatedObjects;
use super::stored::DryRuns;
use super::{Policies, Webhooks};
use crate::roles;

/// The maximum number of concurrent calls of one composite's functions.
const CALLS: usize = 8;
/// The time that a pass may take in addition to the response of its function.
const OVERHEAD: Duration = Duration::from_secs(10);

/// The edge of one composite.
pub(crate) struct Parents {
    objects: Store<DynamicObject>,
    identity: Identity,
    composite: Composite,
    webhooks: Webhooks,
    policies: Arc<Policies>,
    /// The client of the operator itself: the account may lack the right to check other users'
    /// rights.
    operator: Client,
    turns: Arc<Semaphore>,
    related: RelatedObjects,
    passes: Mutex<Passes>,
    expired: Mutex<Expired>,
    dry_runs: DryRuns,
}

impl Parents {
    pub(crate) fn new(
        objects: Store<DynamicObject>,
        identity: Identity,
        composite: Composite,
        webhooks: Webhooks,
        policies: Arc<Policies>,
        operator: Client,
        related: RelatedObjects,
    ) -> Self {
        Self {
            objects,
            identity,
            composite,
            webhooks,
            policies,
            operator,
            turns: Arc::new(Semaphore::new(CALLS)),
            related,
            passes: Mutex::default(),
            expired: Mutex::default(),
            dry_runs: DryRuns::default(),
        }
    }

    async fn call(&self, cx: &Cx, function: Function, request: &Value) -> Result<Called, Refused> {
        let declared = &self.composite.declared;
        let call = match (function, &declared.finalize) {
            (Function::Finalize, Some(finalize)) => finalize,
            _ => &declared.sync,
        };
        let _turn = self.turns.acquire().await;
        if let Some(policy) = &call.in_process {
            let (request, now) = (request.clone(), cx.now());
            return self.policies.call(policy, request, call.strict, now).await;
        }
        let read = |answer: &Value| Answer::read(answer, call.strict);
        let answer = self.webhooks.call(call, request, cx.now(), read).await?;
        Ok(Called {
            answer,
            ahead: Vec::new(),
            look_again: None,
            policy: None,
        })
    }
}

impl Parents {
    /// Returns the rules for the other objects that a function requires for this parent.
    async fn rules(
        &self,
        cx: &Cx,
        parent: &ObjectMeta,
        request: Value,
    ) -> Result<Vec<Rule>, Refused> {
        if let Some(named) = self.related.find_rules(parent) {
            return Ok(named);
        }
        let Some(call) = &self.composite.declared.customize else {
            return Ok(Vec::new());
        };
        let read = |answer: &Value| related::rules(answer, call.version, parent);
        let _turn = self.turns.acquire().await;
        let now = cx.now();
        let rules = match &call.in_process {
            Some(policy) => self.policies.document(policy, request, now, read).await?,
            None => self.webhooks.call(call, &request, now, read).await?,
        };
        self.related.name(parent, rules.clone());
        Ok(rules)
    }
}

impl Observe<Composite> for Parents {
    fn watches(&self) -> Watches<DynamicObject> {
        let mut watches = Watches::new(&self.objects)
            .controlled()
            .signalled(self.related.changed())
            .identity(&self.identity);
        if self.composite.declared.ignores_status {
            watches = watches.heeding(besides_status);
        }
        let children = self.composite.family.children.iter();
        children.fold(watches, |watches, (child, _)| watches.child_of(kind(child)))
    }

    /// Includes the time of the calls that may wait before this one.
    fn timeout(&self) -> Duration {
        let declared = &self.composite.declared;
        let finalize = declared
            .finalize
            .as_ref()
            .map_or(Duration::ZERO, |call| call.timeout);
        let customize = declared
            .customize
            .as_ref()
            .map_or(Duration::ZERO, |call| call.timeout);
        OVERHEAD + (declared.sync.timeout.max(finalize) + customize) * 8
    }

    fn facts(&self, object: &DynamicObject) -> Facts {
        Facts {
            expired: Some(self.expired.lock().children(object)),
            stored: Some(Vec::new()),
            ..Facts::default()
        }
    }

    async fn answer(&self, cx: &Cx, object: &DynamicObject, question: Question, facts: &mut Facts) {
        match question {
            Question::Alive => {
                let resource = &self.composite.family.parent.resource;
                facts.alive = Some(alive(cx, resource, object).await);
            }
            Question::Customize(request) => {
                facts.rules = Some(self.rules(cx, &object.metadata, request).await);
            }
            Question::Related(rules) => {
                let operator = cx.by(&self.operator);
                let found = self.related.find(&operator, &object.metadata, &rules);
                facts.related = Some(found.await);
            }
            Question::Call(function, request) => {
                let called = self.call(cx, function, &request).await;
                if let (Function::Sync, Ok(called)) = (function, &called) {
                    let required = self.composite.required_status(object, called);
                    self.expired.lock().shown(object, required);
                }
                facts.called = Some(called);
            }
            Question::Rights(wants) => {
                let judge = cx.by(&self.operator);
                let found = wants.iter().map(|want| roles::found(&judge, want));
                let found = join_all(found).await;
                facts.rights.extend(wants.into_iter().zip(found));
            }
            Question::Slowed(change) => {
                let Some(uid) = object.metadata.uid.as_deref() else {
                    return;
                };
                let mut passes = self.passes.lock();
                facts.slowed = Some(passes.would(cx.now(), uid, change));
            }
            Question::Stored(doubts) => {
                let stored = doubts
                    .iter()
                    .map(|doubt| self.dry_runs.is_stored(cx, doubt));
                let stored = join_all(stored).await;
                let stored = doubts.into_iter().zip(stored);
                facts.stored.get_or_insert_default().extend(stored);
            }
            Question::Expired(children) => {
                if let Some(uid) = object.metadata.uid.as_deref() {
                    self.expired.lock().add(uid, children.clone());
                }
                facts.expired.get_or_insert_default().extend(children);
            }
        }
    }
}

/// Checks whether a parent exists and is not being deleted, with a read from the API server: a
/// watch may lag.
async fn alive(cx: &Cx, resource: &ApiResource, object: &DynamicObject) -> Result<bool, Failure> {
    let metadata = &object.metadata;
    let name = Name::from_metadata(metadata)?.as_str();
    let namespace = metadata.namespace.as_deref();
    let found = cx
        .get_with::<DynamicObject>(namespace, name, resource)
        .await?;
    Ok(found.is_some_and(|found| {
        found.metadata.uid == metadata.uid && found.metadata.deletion_timestamp.is_none()
    }))
}
