//! The webhook configurations: their desired content, the difference from it, and the thin layer that
//! writes them.

pub(crate) mod apply;
pub(crate) mod conversions;
pub(crate) mod desired;
pub(crate) mod drift;
pub(crate) mod eirinix;
pub(crate) mod followed;
pub(crate) mod namespaces;
pub(crate) mod origin;

/// The label on all objects that a product has registered, by which the product finds them.
pub const FINGERPRINT_LABEL: &str = "oz-admission/fingerprint";

/// Returns the label of namespaces for [`NamespaceScope::Labelled`](crate::NamespaceScope::Labelled).
pub(crate) fn namespace_label(fingerprint: &str) -> String {
    // The name part of a label key holds 63 characters; a fingerprint may be longer.
    let tail: String = fingerprint.chars().take(56).collect();
    let tail = tail.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("oz-admission/scope-{tail}")
}
