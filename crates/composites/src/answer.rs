//! The defects of a function's response. Each message continues "its answer".

use kube::core::ParseExpressionError;
use oz_core::controller::Key;
use oz_core::lifecycle::seal::SealError;

use super::kind::KindName;

/// The defect of a response.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The response is no object.
    #[error("is {kind}, not an object")]
    NotAnObject {
        /// Description of its type.
        kind: &'static str,
    },
    /// A field is unknown, and the function is called strictly.
    #[error("has the unknown field {field:?}")]
    UnknownField {
        /// Name of the field.
        field: String,
    },
    /// A field has another type.
    #[error("has {kind} as its {field}")]
    FieldType {
        /// Name of the field.
        field: &'static str,
        /// Description of its type.
        kind: &'static str,
    },
    /// The field `finalized` is no boolean.
    #[error("has {kind} as finalized")]
    Finalized {
        /// Description of its type.
        kind: &'static str,
    },
    /// The field `resyncAfterSeconds` is no number.
    #[error("has a resyncAfterSeconds that is not a number")]
    Resync,
    /// The response has too many children.
    #[error("has {count} children, of at most {most}")]
    TooManyChildren {
        /// Number of children.
        count: usize,
        /// Maximum number of children.
        most: usize,
    },
    /// The response has too many rules for related objects.
    #[error("has {count} relatedResources, of at most {most}")]
    TooManyRules {
        /// Number of rules.
        count: usize,
        /// Maximum number of rules.
        most: usize,
    },
    /// A rule for related objects is invalid.
    #[error("has relatedResources[{index}], which {error}")]
    Rule {
        /// Position of the rule.
        index: usize,
        /// Defect of the rule.
        error: RuleError,
    },
    /// A child is invalid.
    #[error("child {index} {error}")]
    Child {
        /// Position of the child.
        index: usize,
        /// Defect of the child.
        error: ChildError,
    },
    /// A child is listed twice.
    #[error("child {index} repeats {key}")]
    Twice {
        /// Position of the child.
        index: usize,
        /// Kind, namespace and name of the child.
        key: Key,
    },
    /// The expiry of a child cannot be sealed.
    #[error("has a child whose expiry cannot be sealed: {0}")]
    Unsealed(SealError),
}

/// The defect of a rule for related objects.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// The value is no rule.
    #[error("{0}")]
    Form(serde_json::Error),
    /// The kind has an invalid form.
    #[error("names {kind} in {:?}, which is not a kind", kind.api_version)]
    NoKind {
        /// The kind.
        kind: KindName,
    },
    /// The rule has names and a selector.
    #[error("has names and a selector; only one of the two is allowed")]
    NamesAndSelector,
    /// The rule has a namespace and a selector of namespaces.
    #[error("has a namespace and a selector of namespaces; only one of the two is allowed")]
    NamespaceAndSelector,
    /// A label selector is invalid.
    #[error("has an invalid label selector: {0}")]
    Selector(ParseExpressionError),
    /// The rule selects objects in a namespace other than the parent's.
    #[error(
        "is in namespace {namespace}; a parent in {own} can read that namespace with version v2 \
            only"
    )]
    Elsewhere {
        /// Namespace of the rule.
        namespace: String,
        /// Namespace of the parent.
        own: String,
    },
}

/// The defect of a child.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The child is no object.
    #[error("is {kind}, not an object")]
    NotAnObject {
        /// Description of its type.
        kind: &'static str,
    },
    /// The kind is not declared.
    #[error("is of kind {kind:?} in {api_version:?}, which is not among spec.childResources")]
    Undeclared {
        /// Kind of the child.
        kind: String,
        /// API version of the child.
        api_version: String,
    },
    /// The metadata is invalid.
    #[error("has invalid metadata: {0}")]
    Metadata(serde_json::Error),
    /// The child has no name.
    #[error("is a {kind} without a name")]
    Nameless {
        /// Kind of the child.
        kind: String,
    },
    /// The child is cluster-scoped, and its parent is not.
    #[error(
        "({title}) is cluster-scoped; the children of a parent in a namespace are in its \
        namespace"
    )]
    ClusterScoped {
        /// Kind and name of the child.
        title: String,
    },
    /// The child is in a namespace other than the parent's.
    #[error(
        "({title}) is in namespace {namespace}; the children of a parent in {own} are in its \
        namespace"
    )]
    Elsewhere {
        /// Kind and name of the child.
        title: String,
        /// Namespace of the child.
        namespace: String,
        /// Namespace of the parent.
        own: String,
    },
    /// Neither the child nor its parent has a namespace.
    #[error("({title}) has no namespace, and neither has its parent")]
    NoNamespace {
        /// Kind and name of the child.
        title: String,
    },
    /// The child has a label or an annotation of oz.
    #[error("({title}) has {label}, which only oz may write")]
    Reserved {
        /// Kind and name of the child.
        title: String,
        /// Name of the label or annotation.
        label: String,
    },
    /// The child lacks the labels by which it is selected.
    #[error(
        "({title}) does not have the labels by which its parent selects its children ({selector})"
    )]
    Unselected {
        /// Kind and name of the child.
        title: String,
        /// The selector of the parent.
        selector: String,
    },
    /// The child has another controller.
    #[error("({title}) names another controller")]
    OtherController {
        /// Kind and name of the child.
        title: String,
    },
}

/// The reason why the children of a parent cannot be selected. Each message continues the title of the parent.
#[derive(Debug, thiserror::Error)]
pub(super) enum SelectorError {
    #[error("has no spec.selector, and the composite has no generateSelector")]
    Missing,
    #[error("has a spec.selector that is not a label selector: {0}")]
    Form(serde_json::Error),
    #[error("has a spec.selector that is not a label selector: {0}")]
    Expression(ParseExpressionError),
    #[error("has a spec.selector that selects everything")]
    Everything,
}

/// The reason why the window of a parent cannot be read. Each message continues the title of the parent.
#[derive(Debug, thiserror::Error)]
pub(super) enum WindowError {
    #[error("has no {field}, the expiry of its children")]
    NoEnd { field: String },
    #[error("has {text:.80?} as {field}, which is not an instant")]
    NotAnInstant { text: String, field: String },
    #[error("has a {field} that is not a text with an instant")]
    NotAText { field: String },
}

/// The reason why the rights of a child are not known. Each message continues the title of the child.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandedError {
    #[error("has an invalid roleRef: {0}")]
    NoRole(serde_json::Error),
    #[error("is a {kind}, which functions may not write")]
    NotWritten { kind: String },
    #[error("has no name")]
    Nameless,
    #[error("has an aggregationRule: its rights cannot be checked")]
    Aggregated,
    #[error("has invalid rules: {0}")]
    NoRules(serde_json::Error),
}
