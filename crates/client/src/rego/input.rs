//! The input of a policy.

use kube::Api;
use kube::core::DynamicObject;
use kube::discovery::{Discovery, Scope};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::names;

/// The reason why a text is no document. The message is the first line of the parser's.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is not JSON.
    #[error("{}", first_line(.0))]
    Json(serde_json::Error),
    /// It is not YAML.
    #[error("{}", first_line(.0))]
    Yaml(serde_saphyr::Error),
}

fn first_line(error: &impl ToString) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or(&text).to_owned()
}

/// Parses a document of YAML or JSON.
///
/// # Errors
/// It is neither.
pub fn document(text: &str) -> Result<Value, DocumentError> {
    if text.trim_start().starts_with(['{', '[']) {
        serde_json::from_str(text).map_err(DocumentError::Json)
    } else {
        serde_saphyr::from_str(text).map_err(DocumentError::Yaml)
    }
}

/// The reason why a word leads to no object.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The word has no slash.
    #[error("{word} is not PLURAL/NAME, such as roles.example.com/night")]
    Form {
        /// The word.
        word: String,
    },
    /// The cluster serves no such kind.
    #[error("the cluster has no kind {kind}")]
    UnknownKind {
        /// The name of the kind.
        kind: String,
    },
    /// The object cannot be written as JSON.
    #[error("failed to write it as JSON: {0}")]
    Unwritten(serde_json::Error),
    /// The API server does not answer as it should.
    #[error(transparent)]
    Cluster(#[from] Failure),
}

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Cluster(failure) => failure,
            ObjectError::UnknownKind { .. } => Self::new(error.to_string())
                .next("`kubectl api-resources` lists the existing kinds"),
            error => Self::new(error.to_string()),
        }
    }
}

/// Returns an object by the name of its kind, as in kubectl: PLURAL/NAME or PLURAL.GROUP/NAME.
///
/// # Errors
/// The cluster knows no such kind, or the object cannot be read.
pub async fn object(cluster: &Cluster, word: &str) -> Result<Value, ObjectError> {
    let (kind, name) = word.split_once('/').ok_or_else(|| ObjectError::Form {
        word: word.to_owned(),
    })?;
    let name = names::checked(name)?;
    let (plural, group) = match kind.split_once('.') {
        Some((plural, group)) => (plural, Some(group)),
        None => (kind, None),
    };
    let discovery = Discovery::new(cluster.client.clone()).run_aggregated();
    let discovery = cluster.answer(discovery).await?;
    let groups = discovery
        .groups()
        .filter(|found| group.is_none_or(|group| found.name() == group));
    let mut found = groups.flat_map(|group| group.recommended_resources());
    let Some((resource, capabilities)) = found.find(|(resource, _)| resource.plural == plural)
    else {
        return Err(ObjectError::UnknownKind {
            kind: kind.to_owned(),
        });
    };
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(cluster.client.clone(), &resource),
        Scope::Namespaced => {
            Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource)
        }
    };
    let object = cluster.answer(api.get(name)).await?;
    serde_json::to_value(object).map_err(ObjectError::Unwritten)
}
