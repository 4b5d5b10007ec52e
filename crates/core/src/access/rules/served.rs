//! The namespaces in which objects are granted.

use crate::access::denial::Denial;

/// The namespaces in which objects are granted.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// The namespace of oz, if it is reserved for the kind.
    pub own: Option<&'a str>,
    /// The namespaces that the operator serves; empty for all.
    pub namespaces: &'a [String],
}

impl Served<'_> {
    /// Checks whether objects are granted in a namespace: otherwise an object would never be granted, and one with a
    /// finalizer would never be removed. An object without a namespace is served everywhere.
    ///
    /// # Errors
    /// The denial.
    pub fn admit(&self, namespace: Option<&str>) -> Result<(), Denial> {
        let Some(namespace) = namespace else {
            return Ok(());
        };
        if self.own == Some(namespace) {
            return Err(reserved(namespace));
        }
        let served = self.namespaces;
        if served.is_empty() || served.iter().any(|one| one == namespace) {
            return Ok(());
        }
        let message = format!(
            "oz grants no access in namespace {namespace}: it serves {} only; ask an administrator \
             to add the namespace (access.namespaces of the configuration)",
            served.join(", ")
        );
        Err(Denial::new("NamespaceNotServed", message))
    }
}

/// Creates the denial of access to the namespace of oz.
#[must_use]
pub fn reserved(namespace: &str) -> Denial {
    let message = format!(
        "oz grants no access in its own namespace {namespace}: a user in its pods could grant \
         themselves any access; use another namespace"
    );
    Denial::new("ReservedNamespace", message)
}
