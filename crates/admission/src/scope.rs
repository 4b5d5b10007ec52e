//! The namespaces in which a hook is called.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The namespaces in which a hook is called. Resources of the whole cluster always match.
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
    /// All but `kube-system` and the manager's namespace: an extension that is down must not prevent the
    /// start of the cluster, or of itself.
    #[default]
    Others,
    /// All namespaces. Consider the effect on `kube-system` while the extension is down.
    All,
    /// The listed ones.
    Only(Vec<String>),
    /// All but the listed ones.
    Except(Vec<String>),
    /// The namespaces that a label selector selects.
    Matching(LabelSelector),
    /// The listed ones, selected by a label that the manager sets and maintains: when the label is removed,
    /// or the namespace is created again, the manager restores the label as soon as the watch reports the
    /// change. A manager is not ready before all of them exist, except those that are
    /// [optional](LabelledNamespace::optional).
    Labelled(Vec<LabelledNamespace>),
}

/// A namespace of [`NamespaceScope::Labelled`]. A plain name is a namespace that must exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledNamespace {
    pub(crate) name: String,
    pub(crate) optional: bool,
}

impl LabelledNamespace {
    /// Creates an entry for a namespace that need not exist, and is labelled once it does.
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
