//! What declares a composite: a CompositeController, or a RegoController. Everything behind a declaration
//! is one.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use oz_api::composite::{CompositeController, CompositeControllerStatus};
use oz_api::rego::RegoController;
use oz_core::validate::Violation;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::account::Account;
use super::declared::Declared;
use super::{annotations, bare};

/// A kind of object that declares a composite.
pub trait Source:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// What it is called among controllers, in lower case.
    const NAME: &'static str;

    /// Whether its definition is oz's own, whose status keeps what is written to it.
    const COUNTS_PARENTS: bool;

    /// What it declares.
    ///
    /// # Errors
    /// All that is wrong with it, or is not done yet.
    fn declared(&self) -> Result<Declared, Vec<Violation>>;

    /// Its kinds alone, without what can be wrong with it as far as that can be left out: for what was made when
    /// it was right, and still ends.
    #[must_use]
    fn bare(&self) -> Self;

    /// What it declares; if that is wrong, what its kinds alone do; `None` if not even they can be read.
    fn readable(&self) -> Option<Declared> {
        let declared = self.declared().ok();
        declared.or_else(|| self.bare().declared().ok())
    }

    /// Where it stood.
    fn standing(&self) -> Option<&CompositeControllerStatus>;

    /// The same without where it stands.
    #[must_use]
    fn without_status(self) -> Self;

    /// Whether another one has the same spec.
    fn is_same_spec(&self, other: &Self) -> bool;

    /// As whom it reads and writes, where `default` is the account of those that name none.
    fn account(&self, default: &Account) -> Account;

    /// One of either kind.
    fn declaration(self) -> Declaration;
}

/// A declaration of either kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Declaration {
    /// By MetaController's kind.
    CompositeController(Box<CompositeController>),
    /// By oz's own.
    RegoController(Box<RegoController>),
}

impl Declaration {
    /// What it declares.
    ///
    /// # Errors
    /// As [`Source::declared`].
    pub fn declared(&self) -> Result<Declared, Vec<Violation>> {
        match self {
            Self::CompositeController(source) => source.declared(),
            Self::RegoController(source) => source.declared(),
        }
    }

    /// Its metadata.
    #[must_use]
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::CompositeController(source) => &source.metadata,
            Self::RegoController(source) => &source.metadata,
        }
    }

    /// Where it stood.
    #[must_use]
    pub fn standing(&self) -> Option<&CompositeControllerStatus> {
        match self {
            Self::CompositeController(source) => source.standing(),
            Self::RegoController(source) => source.standing(),
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::CompositeController(_) => "CompositeController",
            Self::RegoController(_) => "RegoController",
        }
    }

    /// What it is called among controllers.
    #[must_use]
    pub fn title(&self) -> String {
        let title = |kind: &str, name: Option<&String>| {
            format!("{kind} {}", name.map_or("", String::as_str))
        };
        match self {
            Self::CompositeController(source) => title("composite", source.metadata.name.as_ref()),
            Self::RegoController(source) => {
                title(RegoController::NAME, source.metadata.name.as_ref())
            }
        }
    }
}

impl Source for CompositeController {
    const NAME: &'static str = "compositecontroller";
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
    const NAME: &'static str = "regocontroller";
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
