//! The related objects that a function receives in addition to a parent and its children: a declaration names them, or
//! the function itself in its response to the customize hook.
//! See <https://metacontroller.github.io/metacontroller/api/customize.html>.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::{DynamicObject, Selector, SelectorExt};
use oz_api::composite::HookVersion;
use oz_api::labels;
use serde::Deserialize;
use serde_json::Value;

use super::answer::{AnswerError, RuleError};
use super::kind::{KindName, Placed, is_kind};
use super::value::kind_of;

/// The maximum number of rules that a function may return for one parent.
pub const MOST_RULES: usize = 32;
/// The maximum number of related objects in a request.
pub const MOST_OBJECTS: usize = 10_000;

/// A rule that selects related objects of a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The kind.
    pub kind: KindName,
    /// The namespace of the objects; `None` for any.
    pub namespace: Option<String>,
    /// The names of the objects; empty for any.
    pub names: Vec<String>,
    /// The label selector of the objects.
    pub labels: Selector,
    /// The label selector of their namespaces; `None` for any.
    pub namespaces: Option<Selector>,
}

/// The related objects of one kind.
#[derive(Clone, Debug)]
pub struct Related {
    /// The kind.
    pub kind: Placed,
    /// The objects.
    pub objects: Vec<Arc<DynamicObject>>,
}

/// A rule in the response of a function.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    resource: String,
    label_selector: Option<LabelSelector>,
    namespace_selector: Option<LabelSelector>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    names: Option<Vec<String>>,
}

impl Rule {
    /// Checks whether the rule selects an object of the kind. `labels_of` returns the labels of a namespace, if it
    /// exists.
    pub fn selects<'a>(
        &self,
        metadata: &ObjectMeta,
        labels_of: impl Fn(&str) -> Option<&'a BTreeMap<String, String>>,
    ) -> bool {
        let namespace = metadata.namespace.as_deref();
        let is_there = self.namespace.is_none()
            || namespace.is_none()
            || self.namespace.as_deref() == namespace;
        let is_in = || match (&self.namespaces, namespace) {
            (Some(wanted), Some(namespace)) => {
                labels_of(namespace).is_some_and(|labels| wanted.matches(labels))
            }
            _ => true,
        };
        is_there
            && (self.names.is_empty()
                || metadata
                    .name
                    .as_ref()
                    .is_some_and(|name| self.names.contains(name)))
            && self.labels.matches(labels::of_object(metadata))
            && is_in()
    }
}

/// Returns the rules in the response of a function to the customize hook for this parent.
///
/// # Errors
/// If the response is invalid. The error names the defect.
pub fn rules(
    answer: &Value,
    version: HookVersion,
    parent: &ObjectMeta,
) -> Result<Vec<Rule>, AnswerError> {
    let Some(fields) = answer.as_object() else {
        return Err(AnswerError::NotAnObject {
            kind: kind_of(answer),
        });
    };
    let named = match fields.get("relatedResources") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(named)) => named,
        Some(other) => {
            return Err(AnswerError::FieldType {
                field: "relatedResources",
                kind: kind_of(other),
            });
        }
    };
    if named.len() > MOST_RULES {
        let count = named.len();
        return Err(AnswerError::TooManyRules {
            count,
            most: MOST_RULES,
        });
    }
    let rules = named.iter().enumerate().map(|(index, value)| {
        let rule = Named::deserialize(value).map_err(RuleError::Form);
        rule.and_then(|named| rule_of(named, version, parent))
            .map_err(|error| AnswerError::Rule { index, error })
    });
    rules.collect()
}

fn rule_of(named: Named, version: HookVersion, parent: &ObjectMeta) -> Result<Rule, RuleError> {
    let kind = KindName {
        api_version: named.api_version,
        resource: named.resource,
    };
    if !is_kind(&kind) {
        return Err(RuleError::NoKind { kind });
    }
    let names: Vec<String> = named.names.into_iter().flatten().collect();
    let namespace = named.namespace.filter(|namespace| !namespace.is_empty());
    if !names.is_empty() && (named.label_selector.is_some() || named.namespace_selector.is_some()) {
        return Err(RuleError::NamesAndSelector);
    }
    if namespace.is_some() && named.namespace_selector.is_some() {
        return Err(RuleError::NamespaceAndSelector);
    }
    let selector = |selector: Option<LabelSelector>| match selector {
        Some(selector) => Selector::try_from(selector).map_err(RuleError::Selector),
        None => Ok(Selector::default()),
    };
    let namespaces = named.namespace_selector.map(|it| selector(Some(it)));
    // In version v1, a parent in a namespace receives objects of the same namespace only.
    let own = parent
        .namespace
        .clone()
        .filter(|_| version == HookVersion::V1);
    let namespace = match (namespace, own) {
        (Some(namespace), Some(own)) if namespace != own => {
            return Err(RuleError::Elsewhere { namespace, own });
        }
        (namespace, own) => namespace.or(own),
    };
    Ok(Rule {
        kind,
        namespace,
        names,
        labels: selector(named.label_selector)?,
        namespaces: namespaces.transpose()?,
    })
}
