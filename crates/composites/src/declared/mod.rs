//! The checked declaration of a composite.

mod checks;
mod composite;
mod modules;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{Selector, SelectorExt};
use oz_api::composite::{HookVersion, Method};
use oz_api::rego::DEFAULT_DELETIONS;
use oz_core::lifecycle::drift;
use oz_core::transient::has_privileged;

pub(super) use self::checks::{as_told, name_of, parents, reserved, reserved_parent};
pub use self::composite::address;
pub use self::modules::{InProcess, Modules};
pub use super::kind::{Family, KindName, Placed};

use super::account::Account;
use super::related::Rule;
use super::window::Window;

/// The maximum number of kinds of children of a composite.
pub(super) const MOST_KINDS: usize = 16;

/// The declaration of a composite.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Name of the CompositeController or RegoController.
    pub name: String,
    /// The UID of that object; `None` for one that is not stored.
    pub uid: Option<String>,
    /// The finalizer of the composite on parents.
    pub finalizer: String,
    /// The CompositeController or RegoController in the form that functions receive.
    pub controller: serde_json::Value,
    /// The kind of parent.
    pub parent: KindName,
    /// The selector of the parents.
    pub selector: Selector,
    /// True if a change of a parent's status does not cause a pass.
    pub ignores_status: bool,
    /// The kinds of children, and the update method of each.
    pub children: Vec<(KindName, Method)>,
    /// True if children are selected by their parent's UID.
    pub generate_selector: bool,
    /// True if parents adopt all objects that they select, as in MetaController.
    pub adopts_as_original: bool,
    /// The interval between passes over all parents.
    pub resync: Option<SignedDuration>,
    /// The call for the children of a parent.
    pub sync: Call,
    /// The call for the children of a parent that is being deleted.
    pub finalize: Option<Call>,
    /// The rules for other objects that the function receives with each parent.
    pub related: Vec<Rule>,
    /// The call for further rules, if a function returns them for each parent.
    pub customize: Option<Call>,
    /// The window in which a parent has children; `None` for always.
    pub window: Option<Window>,
    /// The maximum number of children of one parent.
    pub most_children: usize,
    /// The maximum number of children that a changed policy may delete; `None` for no limit.
    pub most_deletions: Option<usize>,
    /// True if children are not written.
    pub dry_run: bool,
    /// The account with which the composite reads and writes; `None` for the default account of composites.
    pub run_as: Option<Account>,
}

/// The parameters of a call of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The URL of the function; empty for a policy of a RegoController, or without a function.
    pub url: String,
    /// The version of the hook, which defines the names of objects in the request.
    pub version: HookVersion,
    /// True if unknown fields in a response are rejected.
    pub strict: bool,
    /// The timeout of the call.
    pub timeout: Duration,
    /// The policy of the function, if it runs in process.
    pub in_process: Option<InProcess>,
}

impl Declared {
    /// Runs the functions in process that are policies in one of these namespaces. A changed policy may delete as many
    /// children as that of a RegoController, unless the composite sets another limit.
    #[must_use]
    pub fn with_policies(mut self, namespaces: &[String]) -> Self {
        let calls = std::iter::once(&mut self.sync).chain(&mut self.finalize);
        for call in calls.chain(&mut self.customize) {
            if let Some(policy) = InProcess::from_url_in(&call.url, namespaces) {
                call.in_process = Some(policy);
            }
        }
        if self.policies().next().is_some() {
            let default = usize::try_from(DEFAULT_DELETIONS).ok();
            self.most_deletions = self.most_deletions.or(default);
        }
        self
    }

    /// Enables the adoption rule of MetaController if the composite is one of these CompositeControllers.
    #[must_use]
    pub fn adopting(mut self, as_original: &[String]) -> Self {
        self.adopts_as_original = !self.generate_selector && as_original.contains(&self.name);
        self
    }

    /// Checks whether the authors of its parents must be known: their permission is required for children that grant
    /// rights, for the objects that a parent adopts, and for the deletion of a privileged parent.
    #[must_use]
    pub fn asks_authors(&self) -> bool {
        let is_privileged = |kind: &KindName| has_privileged(kind.group(), &kind.resource);
        let mut kinds = self.children.iter();
        !self.generate_selector
            || kinds.any(|(kind, _)| is_privileged(kind))
            || (self.deletes_parents() && is_privileged(&self.parent))
    }

    /// Checks whether a function returns children; if not, the composite only deletes its parents.
    #[must_use]
    pub fn has_function(&self) -> bool {
        self.sync.in_process.is_some() || !self.sync.url.is_empty()
    }

    /// Checks whether parents are deleted at the end of their window.
    #[must_use]
    pub fn deletes_parents(&self) -> bool {
        self.window.as_ref().is_some_and(Window::deletes_parent)
    }

    /// Returns the calls of the composite's functions, each with the name of its hook.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, &Call)> {
        let sync = std::iter::once(("sync", &self.sync));
        let finalize = self.finalize.iter().map(|call| ("finalize", call));
        let customize = self.customize.iter().map(|call| ("customize", call));
        sync.chain(finalize).chain(customize)
    }

    /// Returns the policies that the composite calls.
    pub fn policies(&self) -> impl Iterator<Item = &InProcess> {
        let calls = self.calls();
        calls.filter_map(|(_, call)| call.in_process.as_ref())
    }

    /// Checks whether the composite selects a parent with these labels.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }

    /// Checks whether a parent has the finalizer of the composite.
    #[must_use]
    pub fn holds(&self, parent: &ObjectMeta) -> bool {
        drift::has_finalizer(parent, &self.finalizer)
    }
}
