//! The sources of declarations: a CompositeController or a RegoController. The code behind a declaration is the same
//! for both.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::composite::{CompositeController, CompositeControllerStatus};
use oz_api::kind::Kind;
use oz_api::rego::RegoController;
use oz_core::validate::Violation;
use serde::{Deserialize, Serialize};

use super::account::Account;
use super::declared::Declared;
use super::{annotations, bare};

/// A kind of object that declares a composite.
pub trait Source: Kind {
    /// True if the CustomResourceDefinition belongs to oz, so that the status preserves all fields that oz writes.
    const COUNTS_PARENTS: bool;

    /// Returns the declaration of the object.
    ///
    /// # Errors
    /// All fields that are invalid or not supported yet.
    fn declared(&self) -> Result<Declared, Vec<Violation>>;

    /// Returns the object reduced to its kinds, without the fields that may be invalid, as far as they can be omitted:
    /// for children that were created while it was valid, and that still expire.
    #[must_use]
    fn bare(&self) -> Self;

    /// Returns the declaration of the object; if it is invalid, the declaration of its kinds only; `None` if they
    /// cannot be read either.
    fn readable(&self) -> Option<Declared> {
        let declared = self.declared().ok();
        declared.or_else(|| self.bare().declared().ok())
    }

    /// Returns the last status.
    fn standing(&self) -> Option<&CompositeControllerStatus>;

    /// Returns the object without its status.
    #[must_use]
    fn without_status(self) -> Self;

    /// Checks whether another object has the same spec.
    fn is_same_spec(&self, other: &Self) -> bool;

    /// Returns the account with which the composite reads and writes; `default` is the account of composites that name
    /// none.
    fn account(&self, default: &Account) -> Account;

    /// Returns the object as a declaration of either kind.
    fn declaration(self) -> Declaration;
}

/// A declaration of either kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Declaration {
    /// A declaration by MetaController's kind.
    CompositeController(Box<CompositeController>),
    /// A declaration by oz's own kind.
    RegoController(Box<RegoController>),
}

impl Declaration {
    /// Returns the declaration of the object.
    ///
    /// # Errors
    /// The same as for [`Source::declared`].
    pub fn declared(&self) -> Result<Declared, Vec<Violation>> {
        match self {
            Self::CompositeController(source) => source.declared(),
            Self::RegoController(source) => source.declared(),
        }
    }

    /// Returns the metadata of the object.
    #[must_use]
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::CompositeController(source) => &source.metadata,
            Self::RegoController(source) => &source.metadata,
        }
    }

    /// Returns the last status.
    #[must_use]
    pub fn standing(&self) -> Option<&CompositeControllerStatus> {
        match self {
            Self::CompositeController(source) => source.standing(),
            Self::RegoController(source) => source.standing(),
        }
    }

    /// Returns the kind of the object.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::CompositeController(_) => "CompositeController",
            Self::RegoController(_) => "RegoController",
        }
    }

    /// Returns the title of the object among controllers.
    #[must_use]
    pub fn title(&self) -> String {
        let kind = match self {
            Self::CompositeController(_) => "composite",
            Self::RegoController(_) => RegoController::NAME,
        };
        let name = self.metadata().name.as_deref();
        [kind].into_iter().chain(name).collect::<Vec<_>>().join(" ")
    }
}

impl Source for CompositeController {
    const COUNTS_PARENTS: bool = false;

    fn declared(&self) -> Result<Declared, Vec<Violation>> {
        annotations::declared(self)
    }

    fn bare(&self) -> Self {
        bare::composite(self)
    }

    fn standing(&self) -> Option<&CompositeControllerStatus> {
        self.status.as_ref()
    }

    fn is_same_spec(&self, other: &Self) -> bool {
        self.spec == other.spec
    }

    fn account(&self, default: &Account) -> Account {
        let named = annotations::account(self.metadata.annotations.as_ref());
        named.unwrap_or_else(|| default.clone())
    }

    fn without_status(mut self) -> Self {
        self.status = None;
        self
    }

    fn declaration(self) -> Declaration {
        Declaration::CompositeController(Box::new(self))
    }
}

impl Source for RegoController {
    const COUNTS_PARENTS: bool = true;

    fn declared(&self) -> Result<Declared, Vec<Violation>> {
        Declared::of_rego(self)
    }

    fn bare(&self) -> Self {
        bare::rego(self)
    }

    fn standing(&self) -> Option<&CompositeControllerStatus> {
        self.status.as_ref()
    }

    fn is_same_spec(&self, other: &Self) -> bool {
        self.spec == other.spec
    }

    fn account(&self, _default: &Account) -> Account {
        let account = &self.spec.run_as;
        Account {
            namespace: account.namespace.clone(),
            name: account.service_account.clone(),
        }
    }

    fn without_status(mut self) -> Self {
        self.status = None;
        self
    }

    fn declaration(self) -> Declaration {
        Declaration::RegoController(Box::new(self))
    }
}
