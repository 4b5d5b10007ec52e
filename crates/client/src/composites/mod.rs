//! Composites, CompositeControllers and RegoControllers: the list of them, the locations of their functions, the
//! number of their parents, and the last error; and the [`plan`] of a change.

pub mod plan;
mod read;

use std::fmt;

use futures::StreamExt;
use futures::stream;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::Api;
use kube::api::ListParams;
use kube::core::{DynamicObject, ObjectMeta, Selector};
use oz_api::composite::{CompositeController, CompositeControllerStatus};
use oz_api::conditions;
use oz_composites::declared::{Declared, InProcess, KindName, Placed, address};
use oz_composites::supervise::{ACCEPTED, PERMITTED, RUNNING};
use oz_composites::{Declaration, Source};
use oz_core::validate::Violation;
use serde::Serialize;

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
pub use read::{Found, read};

/// The kind of MetaController that oz does not run.
pub(crate) const DECORATOR: &str = "DecoratorController";
/// The message about objects of that kind.
pub(crate) const NO_DECORATORS: &str = "oz does not run DecoratorControllers: let MetaController run them, or write a CompositeController \
     with a kind of its own as parent";

/// The number of composites for which parents are counted concurrently.
const COUNTS: usize = 8;
/// The number of parents in one page.
const PAGE: u32 = 500;

/// A composite, and its known state.
pub struct Listed {
    /// The composite.
    pub composite: Declaration,
    /// The location of its function; `None` if it names none.
    pub function: Option<Function>,
    /// The number of its parents.
    pub parents: Result<u64>,
    /// The last error, if it is known.
    pub trouble: Option<Trouble>,
}

/// An error of a composite.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trouble {
    /// The time, if it is known.
    pub at: Option<Timestamp>,
    /// The reason of a condition or of an event.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// The location of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Function {
    /// A Rego policy that the operator evaluates.
    Policy(InProcess),
    /// An HTTP server at this URL.
    Http(String),
}

impl fmt::Display for Function {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(policy) => {
                write!(formatter, "data.{} in {}", policy.path, policy.modules)
            }
            Self::Http(url) => formatter.write_str(url),
        }
    }
}

impl Function {
    /// Returns the function that a composite calls for the children of a parent. `namespaces` are those of Rego
    /// policies.
    #[must_use]
    pub fn from_declaration(composite: &Declaration, namespaces: &[String]) -> Option<Self> {
        let composite = match composite {
            Declaration::CompositeController(one) => one,
            Declaration::RegoController(one) => {
                let declared = one.declared().ok()?;
                return declared.sync.in_process.map(Self::Policy);
            }
        };
        let hooks = composite.spec.hooks.as_ref()?;
        let url = address(hooks.sync.as_ref()?.webhook.as_ref()?)?;
        let namespaces = of_policies(composite, namespaces);
        Some(match InProcess::from_url_in(&url, &namespaces) {
            Some(policy) => Self::Policy(policy),
            None => Self::Http(url),
        })
    }
}

/// Returns the declaration of a composite, with its functions run in process as the operator does. `namespaces` are
/// those of Rego policies, from the operator's configuration.
///
/// # Errors
/// All violations, and all features that are not supported yet.
pub fn declared(
    composite: &Declaration,
    namespaces: &[String],
) -> std::result::Result<Declared, Vec<Violation>> {
    let declared = composite.declared()?;
    Ok(match composite {
        Declaration::CompositeController(one) => {
            declared.with_policies(&of_policies(one, namespaces))
        }
        Declaration::RegoController(_) => declared,
    })
}

/// Returns the namespaces of Rego policies: those of the operator's configuration and, if the status of a composite has
/// the digest of a policy, that of its URL, also for a user who may not read the configuration.
fn of_policies(composite: &CompositeController, known: &[String]) -> Vec<String> {
    let mut namespaces = known.to_vec();
    let has_policy =
        (composite.status.as_ref()).is_some_and(|status| status.policy_digest.is_some());
    let hooks = composite.spec.hooks.iter();
    let hooks = hooks.flat_map(|hooks| hooks.sync.iter().chain(&hooks.finalize));
    let urls = hooks.filter_map(|hook| address(hook.webhook.as_ref()?));
    let policies = urls.filter_map(|url| InProcess::from_url(&url));
    for policy in policies.filter(|_| has_policy) {
        namespaces.extend(policy.modules.namespace().map(ToOwned::to_owned));
    }
    namespaces
}

impl Listed {
    /// Returns the metadata.
    #[must_use]
    pub fn metadata(&self) -> &ObjectMeta {
        self.composite.metadata()
    }

    /// Returns the status, if the operator has written one.
    #[must_use]
    pub fn status(&self) -> Option<&CompositeControllerStatus> {
        self.composite.standing()
    }

    /// Returns the kind of its parents.
    #[must_use]
    pub fn parent(&self) -> KindName {
        parent(&self.composite).0
    }

    /// Returns the plurals of the kinds of children.
    #[must_use]
    pub fn children(&self) -> Vec<&str> {
        match &self.composite {
            Declaration::CompositeController(one) => {
                let kinds = one.spec.child_resources.iter();
                kinds.map(|kind| &kind.resource[..]).collect()
            }
            Declaration::RegoController(one) => {
                let kinds = one.spec.children.iter();
                kinds.map(|kind| &kind.resource[..]).collect()
            }
        }
    }

    /// Returns the account with which it reads and writes, NAMESPACE/NAME, if that is known.
    #[must_use]
    pub fn account(&self) -> Option<String> {
        let told = self.status().and_then(|status| status.account.clone());
        told.or_else(|| match &self.composite {
            Declaration::CompositeController(_) => None,
            Declaration::RegoController(one) => {
                let account = &one.spec.run_as;
                Some(format!("{}/{}", account.namespace, account.service_account))
            }
        })
    }
}

/// Returns the kind of a composite's parents, and the selector of its parents.
#[must_use]
pub fn parent(composite: &Declaration) -> (KindName, Option<&LabelSelector>) {
    match composite {
        Declaration::CompositeController(one) => {
            let parent = &one.spec.parent_resource;
            (KindName::from(parent), parent.label_selector.as_ref())
        }
        Declaration::RegoController(one) => {
            let parent = &one.spec.parent;
            let name = KindName {
                api_version: parent.api_version.clone(),
                resource: parent.resource.clone(),
            };
            (name, parent.label_selector.as_ref())
        }
    }
}

/// Lists all composites, or those with these names. `namespaces` are those of Rego policies.
///
/// # Errors
/// Neither kind can be read, or no composite has one of the names.
pub async fn list(
    cluster: &Cluster,
    namespaces: &[String],
    named: &[String],
) -> Result<Found<Listed>> {
    let Found { composites, unread } = read(cluster, named).await?;
    // A user who may not read events sees the messages of the conditions.
    let events = events(cluster, "reason=SyncError").await;
    let of_composites = match composites.iter().all(|one| one.standing().is_some()) {
        true => Vec::new(),
        // MetaController's own definition has no conditions.
        false => {
            let selector = "regarding.kind=CompositeController,type=Warning";
            self::events(cluster, selector).await
        }
    };
    let (events, of_composites) = (&events, &of_composites);
    let listed = composites.into_iter().map(async |composite| Listed {
        function: Function::from_declaration(&composite, namespaces),
        parents: count(cluster, &composite).await,
        trouble: trouble(&composite, events, of_composites),
        composite,
    });
    let composites = stream::iter(listed).buffered(COUNTS).collect().await;
    Ok(Found { composites, unread })
}

/// Returns a kind, as the API server describes it.
///
/// # Errors
/// The API server does not serve the kind, or does not respond.
pub async fn placed(cluster: &Cluster, name: &KindName) -> Result<Placed> {
    let listed = match name.group() {
        "" => {
            let listed = cluster.client.list_core_api_resources(name.version());
            cluster.answer(listed).await
        }
        _ => {
            let listed = cluster.client.list_api_group_resources(&name.api_version);
            cluster.answer(listed).await
        }
    };
    let found = match listed {
        Err(failure) if failure.is_not_found() || failure.is_unknown_kind() => None,
        listed => Placed::listed(name, &listed?),
    };
    found.map(|(placed, _)| placed).ok_or_else(|| {
        Failure::new(format!("the cluster has no {name} in {}", name.api_version))
            .next("install the definition of that kind, or correct the composite")
    })
}

/// Returns the API for objects of a kind, in the chosen namespace if the kind is namespaced.
#[must_use]
pub fn objects(cluster: &Cluster, kind: &Placed) -> Api<DynamicObject> {
    let client = cluster.client.clone();
    match kind.cluster_scoped {
        true => Api::all_with(client, &kind.resource),
        false => Api::namespaced_with(client, &cluster.namespace, &kind.resource),
    }
}

/// Counts the parents of a composite.
async fn count(cluster: &Cluster, composite: &Declaration) -> Result<u64> {
    let (kind, labels) = parent(composite);
    // A list of metadata does not need the singular.
    let resource = kind.api_resource("");
    let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &resource);
    let mut parameters = ListParams::default().limit(PAGE);
    if let Some(labels) = labels {
        let selector = Selector::try_from(labels.clone());
        let selector = selector.map_err(|error| Failure::new(error.to_string()))?;
        if !selector.selects_all() {
            parameters = parameters.labels_from(&selector);
        }
    }
    let mut count = 0;
    loop {
        let page = cluster.answer(api.list_metadata(&parameters)).await?;
        count += page.items.len() as u64;
        if let Some(rest) = page.metadata.remaining_item_count {
            return Ok(count + u64::try_from(rest).unwrap_or(0));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            None => return Ok(count),
            Some(token) => parameters = parameters.continue_token(&token),
        }
    }
}

/// Lists events of all namespaces; none if the user may not read them.
async fn events(cluster: &Cluster, selector: &str) -> Vec<Event> {
    let events = Api::<Event>::all(cluster.client.clone());
    let parameters = ListParams::default().fields(selector);
    let listed = cluster.answer(events.list(&parameters)).await;
    listed.into_iter().flat_map(|list| list.items).collect()
}

/// Returns the first of a composite's conditions that does not hold.
#[must_use]
pub fn failed(composite: &Declaration) -> Option<&Condition> {
    let known = &composite.standing()?.conditions;
    let mut types = [ACCEPTED, PERMITTED, RUNNING].into_iter();
    types.find_map(|type_| {
        conditions::find(known, type_).filter(|condition| condition.status == "False")
    })
}

/// Returns the error of a composite itself, or else the last error of one of its parents.
fn trouble(composite: &Declaration, events: &[Event], of_composites: &[Event]) -> Option<Trouble> {
    if let Some(condition) = failed(composite) {
        return Some(Trouble {
            at: Some(condition.last_transition_time.0),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        });
    }
    let name = composite.metadata().name.as_deref()?;
    let is_own = |event: &&Event| {
        let regarding = event.regarding.as_ref();
        regarding.is_some_and(|object| object.name.as_deref() == Some(name))
    };
    // Events about composites are of the kind that may have no conditions.
    let keeps_none = matches!(composite, Declaration::CompositeController(_));
    let of_itself = of_composites.iter().filter(|_| keeps_none).filter(is_own);
    newest(of_itself).or_else(|| {
        // The operator begins its messages about a parent with this text.
        let begin = format!("{name} (");
        let note = |event: &&Event| {
            let note = event.note.as_deref();
            note.is_some_and(|note| note.starts_with(&begin))
        };
        newest(events.iter().filter(note))
    })
}

/// Returns the newest of some events.
pub(crate) fn newest<'a>(events: impl Iterator<Item = &'a Event>) -> Option<Trouble> {
    let event = events.max_by_key(|event| told_at(event))?;
    Some(Trouble {
        at: told_at(event),
        reason: event.reason.clone().unwrap_or_default(),
        message: event.note.clone().unwrap_or_default(),
    })
}

fn told_at(event: &Event) -> Option<Timestamp> {
    let series = event
        .series
        .as_ref()
        .map(|series| series.last_observed_time.0);
    series.or(event.event_time.as_ref().map(|time| time.0))
}
