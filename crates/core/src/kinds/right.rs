//! The rights that a template gives, which its author must have.

use std::fmt;

use oz_api::AccessConfig;

use crate::access::decide;
use crate::build;

/// A right in a namespace, to objects of the core group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// Verb.
    pub verb: &'static str,
    /// Resource.
    pub resource: &'static str,
    /// Subresource, if the right is limited to one.
    pub subresource: Option<&'static str>,
}

impl Right {
    /// Returns each right in the Role of a grant.
    pub fn on_pods(config: &AccessConfig) -> impl Iterator<Item = Self> + use<> {
        let operations = decide::operations(config);
        let rights = build::handed_out(&operations).flat_map(|(resource, verbs)| {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, subresource)) => (resource, Some(subresource)),
                None => (resource, None),
            };
            verbs.iter().map(move |&verb| Self {
                verb,
                resource,
                subresource,
            })
        });
        rights.collect::<Vec<_>>().into_iter()
    }
}

impl fmt::Display for Right {
    /// Formats the right as `create pods/exec`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.verb, self.resource)?;
        match self.subresource {
            Some(subresource) => write!(formatter, "/{subresource}"),
            None => Ok(()),
        }
    }
}
