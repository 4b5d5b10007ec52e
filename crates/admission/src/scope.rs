//! The namespaces that a hook is called in.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// In which namespaces a hook is called. Resources of the whole cluster always match.
///
/// ```
/// use oz_admission::{LabelledNamespace, NamespaceScope};
///
/// let here = NamespaceScope::Only(vec!["shop".into()]);
/// // By a label that the manager keeps on them; `staging` may be made later.
/// let ours = NamespaceScope::Labelled(vec!["shop".into(), LabelledNamespace::optional("staging")]);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum NamespaceScope {
    /// All but `kube-system` and the manager's own: an extension that is down must not
    /// keep the cluster, or itself, from coming up again.
    #[default]
    Others,
    /// Every namespace there is. Think of what happens to `kube-system` when you are down.
    All,
    /// The listed ones.
    Only(Vec<String>),
    /// All but the listed ones.
    Except(Vec<String>),
    /// Those that a label selector chooses.
    Matching(LabelSelector),
    /// The listed ones, chosen by a label that the manager itself puts on them and keeps there: one
    /// that is taken off, and one of a namespace that is made again, is put back as soon as the watch
    /// shows it. A manager is not ready before all of them exist, but those that are
    /// [optional](LabelledNamespace::optional).
    Labelled(Vec<LabelledNamespace>),
}

/// A namespace of [`NamespaceScope::Labelled`]. A name is one that must exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledNamespace {
    pub(crate) name: String,
    pub(crate) optional: bool,
}

impl LabelledNamespace {
    /// One that need not exist, and is labelled once it does.
    pub fn optional(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            optional: true,
        }
    }
}

impl From<String> for LabelledNamespace {
    fn from(name: String) -> Self {
        Self {
            name,
            optional: false,
        }
    }
}

impl From<&str> for LabelledNamespace {
    fn from(name: &str) -> Self {
        name.to_owned().into()
    }
}
