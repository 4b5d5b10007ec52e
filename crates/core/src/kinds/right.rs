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

#[cfg(test)]
mod tests {
    use oz_api::Operation;

    use super::*;

    #[test]
    fn guide_lists_each_right_that_author_of_operation_needs() {
        let guide = include_str!("../../../../docs/guides/install.md");
        let row = |about: &str| {
            let mut lines = guide.lines();
            let row = lines.find(|line| line.starts_with(&format!("| {about}")));
            row.unwrap_or_default()
        };
        for operation in [
            Operation::Exec,
            Operation::Attach,
            Operation::PortForward,
            Operation::Log,
            Operation::Debug,
        ] {
            let config = AccessConfig {
                operations: vec![operation],
                ..AccessConfig::default()
            };
            let rows = [
                row("each `ExecAccessTemplate`"),
                row(&format!("operation `{operation}`")),
            ];
            for right in Right::on_pods(&config) {
                let right = right.to_string();
                let (verb, resource) = right.split_once(' ').unwrap();
                let is_listed = |row: &&str| {
                    let [verb, resource] = [verb, resource].map(|part| format!("`{part}`"));
                    row.contains(&verb) && row.contains(&resource)
                };
                assert!(rows.iter().any(is_listed), "{operation}: {right}");
            }
        }
    }
}
