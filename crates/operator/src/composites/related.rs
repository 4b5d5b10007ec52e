//! The other objects that functions receive: a kind is watched, as the composite's account, from
//! the first parent that requires it. A change of an object reconciles the parents that received
//! it, or that will receive it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use oz_api::Uid;
use oz_composites::declared::{KindName, Placed};
use oz_composites::related::{MOST_OBJECTS, Related, Rule};
use oz_core::controller::Failure;
use oz_engine::{Cx, Signal};
use oz_runtime::{Feeds, Identity, Keep, Kind, Selection, Store, Subscription};
use parking_lot::Mutex;

use super::kinds::{kind, placed};

/// The timeout of a first list.
const LIST_TIMEOUT: Duration = Duration::from_secs(8);
/// The number of passes after which deleted parents are removed.
const PASSES: usize = 1024;
/// The maximum number of kinds for the functions of one composite.
const MOST_KINDS: usize = 32;

type NamespaceLabels = PartialObjectMeta<Namespace>;

/// The other objects of one composite.
pub(crate) struct RelatedObjects {
    feeds: Feeds,
    identity: Identity,
    parents: Store<DynamicObject>,
    /// The signal that reconciles a parent.
    changed: Signal,
    /// The signal that surveys the composite, which checks the rights of its account, and its UID.
    survey: Option<(Signal, String)>,
    known: Arc<Mutex<RelatedState>>,
}

#[derive(Default)]
struct RelatedState {
    kinds: BTreeMap<KindName, Watched>,
    namespaces: Option<(Store<NamespaceLabels>, Subscription)>,
    /// The kinds that functions have named: a survey follows the first rule for each.
    named: BTreeSet<KindName>,
    /// The number of passes so far.
    passes: usize,
    /// The shown objects by UID of the parent.
    parents: HashMap<String, Shown>,
}

/// A watched kind.
#[derive(Clone)]
struct Watched {
    kind: Placed,
    store: Store<DynamicObject>,
    _subscription: Arc<Subscription>,
}

/// The objects that one parent's function receives.
#[derive(Default)]
struct Shown {
    /// The last rules from the function, and the generation of the parent for which it returned
    /// them.
    named: Option<(Option<i64>, Vec<Rule>)>,
    rules: Vec<Rule>,
    /// The UIDs of the last objects: one that is no longer selected is a change as well.
    objects: HashSet<String>,
}

impl RelatedObjects {
    pub(crate) fn new(feeds: Feeds, identity: Identity, parents: Store<DynamicObject>) -> Self {
        Self {
            feeds,
            identity,
            parents,
            changed: Signal::default(),
            survey: None,
            known: Arc::default(),
        }
    }

    /// Surveys the composite with this UID when its function names a kind for the first time.
    pub(crate) fn surveying(mut self, survey: &Signal, composite: Option<&String>) -> Self {
        self.survey = composite.map(|uid| (survey.clone(), uid.clone()));
        self
    }

    /// Returns the signal that reconciles a parent if its function would receive other objects.
    pub(crate) fn changed(&self) -> &Signal {
        &self.changed
    }

    /// Returns the last rules of a function for this parent, if the parent has not changed since.
    pub(crate) fn find_rules(&self, parent: &ObjectMeta) -> Option<Vec<Rule>> {
        let known = self.known.lock();
        let shown = known.parents.get(parent.uid.as_deref()?)?;
        let (generation, rules) = shown.named.as_ref()?;
        (*generation == parent.generation).then(|| rules.clone())
    }

    /// Stores the rules of a function.
    pub(crate) fn name(&self, parent: &ObjectMeta, rules: Vec<Rule>) {
        let Some(uid) = parent.uid.clone() else {
            return;
        };
        let mut known = self.known.lock();
        let mut is_new = false;
        for rule in &rules {
            is_new |= known.named.insert(rule.kind.clone());
        }
        known.parents.entry(uid).or_default().named = Some((parent.generation, rules));
        drop(known);
        if let Some((survey, composite)) = self.survey.as_ref().filter(|_| is_new) {
            survey.raise(composite);
        }
    }

    /// Returns the objects that these rules select.
    pub(crate) async fn find(
        &self,
        cx: &Cx,
        parent: &ObjectMeta,
        rules: &[Rule],
    ) -> Result<Vec<Related>, Failure> {
        self.forget_those_gone();
        let uid = Uid::from_metadata(parent)?.to_string();
        // Each change from here on reconciles the parent.
        let shown = |known: &mut RelatedState| {
            let shown = known.parents.entry(uid.clone()).or_default();
            shown.rules = rules.to_vec();
        };
        shown(&mut self.known.lock());
        let namespaces = self.namespaces(rules).await?;
        let mut related: Vec<Related> = Vec::new();
        let mut count = 0;
        for rule in rules {
            let watched = self.watched(cx, &rule.kind).await?;
            let objects: Vec<_> = watched.store.select(|object| {
                rule.selects(&object.metadata, |namespace| namespaces.get(namespace))
            });
            count += objects.len();
            if count > MOST_OBJECTS {
                let message = format!(
                    "the request would contain more than {MOST_OBJECTS} related objects; have the \
                     function select fewer, by labels, names or namespace"
                );
                return Err(Failure::invalid("TooManyRelated", message));
            }
            let kind = watched.kind;
            related.push(Related { kind, objects });
        }
        let objects = related.iter().flat_map(|related| &related.objects);
        let objects = objects.filter_map(|object| object.metadata.uid.clone());
        let objects = objects.collect();
        self.known.lock().parents.entry(uid).or_default().objects = objects;
        Ok(related)
    }

    /// Removes deleted parents, at intervals.
    fn forget_those_gone(&self) {
        let is_time = {
            let mut known = self.known.lock();
            known.passes += 1;
            known.passes.is_multiple_of(PASSES)
        };
        if is_time && self.parents.is_ready() {
            let all = self.parents.objects();
            let uids = all
                .iter()
                .filter_map(|parent| parent.metadata.uid.as_deref());
            let uids: HashSet<&str> = uids.collect();
            let mut known = self.known.lock();
            known.parents.retain(|uid, _| uids.contains(uid.as_str()));
        }
    }

    /// Returns the labels of all namespaces, if a rule requires them.
    async fn namespaces(
        &self,
        rules: &[Rule],
    ) -> Result<HashMap<String, BTreeMap<String, String>>, Failure> {
        if rules.iter().all(|rule| rule.namespaces.is_none()) {
            return Ok(HashMap::new());
        }
        let known = self
            .known
            .lock()
            .namespaces
            .as_ref()
            .map(|(store, _)| store.clone());
        let store = known.unwrap_or_else(|| {
            let (kind, keep) = (Kind::from_type::<Namespace>(), Keep::default());
            let selection = Selection::default().metadata_only();
            let store = self
                .feeds
                .store_as(Some(&self.identity), &kind, selection, &keep);
            let concerned = self.concerned();
            let subscription = store.subscribe(move |_| {
                concerned(&|shown| shown.rules.iter().any(|rule| rule.namespaces.is_some()));
            });
            self.known.lock().namespaces = Some((store.clone(), subscription));
            store
        });
        Self::listed(&store, "namespaces").await?;
        let all = store.objects().into_iter().filter_map(|namespace| {
            let metadata = namespace.metadata.clone();
            let labels = metadata.labels.into_iter().flatten();
            Some((metadata.name?, labels.collect()))
        });
        Ok(all.collect())
    }

    /// Returns a kind, and watches it from now on.
    async fn watched(&self, cx: &Cx, name: &KindName) -> Result<Watched, Failure> {
        let watched = self.known.lock().kinds.get(name).cloned();
        let watched = match watched {
            Some(watched) => watched,
            None => {
                let (kind, _) = placed(cx, name).await?;
                self.watch(name, kind)?
            }
        };
        Self::listed(&watched.store, &name.to_string()).await?;
        Ok(watched)
    }

    fn watch(&self, name: &KindName, placed: Placed) -> Result<Watched, Failure> {
        let store: Store<DynamicObject> = self.feeds.store_as(
            Some(&self.identity),
            &kind(&placed),
            Selection::default(),
            &Keep::default(),
        );
        let (concerned, of_kind) = (self.concerned(), name.clone());
        let subscription = store.subscribe(move |change| {
            let metadata = &change.object().metadata;
            let uid = metadata.uid.as_deref();
            // The labels of the namespace are not known here, so they are assumed to match.
            let may_select = |rule: &Rule| {
                let any = Rule {
                    namespaces: None,
                    ..rule.clone()
                };
                rule.kind == of_kind && any.selects(metadata, |_| None)
            };
            concerned(&|shown| {
                uid.is_some_and(|uid| shown.objects.contains(uid))
                    || shown.rules.iter().any(may_select)
            });
        });
        let watched = Watched {
            kind: placed,
            store,
            _subscription: Arc::new(subscription),
        };
        let mut known = self.known.lock();
        if known.kinds.len() >= MOST_KINDS {
            let message = format!(
                "the request would contain related objects of more than \
                {MOST_KINDS} kinds"
            );
            return Err(Failure::invalid("TooManyRelated", message));
        }
        known.kinds.insert(name.clone(), watched.clone());
        Ok(watched)
    }

    /// Returns a function that reconciles the parents for which a condition holds.
    fn concerned(&self) -> impl Fn(&dyn Fn(&Shown) -> bool) + Send + Sync + use<> {
        let (known, changed) = (Arc::downgrade(&self.known), self.changed.clone());
        move |is_concerned| {
            let Some(known) = known.upgrade() else {
                return;
            };
            let uids: Vec<String> = {
                let known = known.lock();
                let parents = known.parents.iter();
                let concerned = parents.filter(|(_, shown)| is_concerned(shown));
                concerned.map(|(uid, _)| uid.clone()).collect()
            };
            uids.iter().for_each(|uid| changed.raise(uid));
        }
    }

    /// Waits until a kind is listed.
    async fn listed<K>(store: &Store<K>, what: &str) -> Result<(), Failure> {
        let listed = tokio::time::timeout(LIST_TIMEOUT, store.ready()).await;
        listed.map_err(|_| {
            let message = format!(
                "failed to list {what}, which the function requested, within {LIST_TIMEOUT:?}; \
                 check whether the composite's account may list and watch them"
            );
            Failure::transient("RelatedUnknown", message)
        })
    }
}
