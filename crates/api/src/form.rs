//! The forms that Kubernetes requires of names, labels and annotations.

/// The form that Kubernetes requires, which a text does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// The form of a container's name.
    #[error(
        "must be at most 63 lower-case letters, digits and '-', with a letter or digit at \
         both ends"
    )]
    DnsLabel,
    /// The form of most names.
    #[error(
        "must be at most 253 lower-case letters, digits, '-' and '.', with a letter or digit at \
         both ends and before and after every '.'"
    )]
    DnsSubdomain,
    /// The form of a key of labels.
    #[error(
        "must be at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both \
         ends; a DNS name and '/' may come first"
    )]
    QualifiedName,
    /// The form of a value of labels.
    #[error(
        "must be empty or at most 63 letters, digits, '-', '_' and '.', with a letter or \
         digit at both ends"
    )]
    LabelValue,
}

/// Checks the name of a container: an RFC 1123 label.
///
/// # Errors
/// The required form, if the text does not have it.
pub fn dns_label(text: &str) -> Result<(), FormError> {
    if text.len() <= 63 && is_label(text) {
        Ok(())
    } else {
        Err(FormError::DnsLabel)
    }
}

/// Checks the name of most objects: an RFC 1123 subdomain.
///
/// # Errors
/// The required form, if the text does not have it.
pub fn dns_subdomain(text: &str) -> Result<(), FormError> {
    if text.len() <= 253 && text.split('.').all(is_label) {
        Ok(())
    } else {
        Err(FormError::DnsSubdomain)
    }
}

fn is_label(text: &str) -> bool {
    is_word(
        text,
        |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit(),
        b"-",
    )
}

/// Checks the key of a label, annotation or node selector: an optional subdomain and `/`, and a name.
pub fn qualified_name(text: &str) -> Result<(), FormError> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if name.len() <= 63
        && is_word(name, |byte| byte.is_ascii_alphanumeric(), b"-_.")
        && prefix.is_none_or(|prefix| dns_subdomain(prefix).is_ok())
    {
        Ok(())
    } else {
        Err(FormError::QualifiedName)
    }
}

/// Checks the value of a label or node selector.
pub fn label_value(text: &str) -> Result<(), FormError> {
    if text.is_empty()
        || (text.len() <= 63 && is_word(text, |byte| byte.is_ascii_alphanumeric(), b"-_."))
    {
        Ok(())
    } else {
        Err(FormError::LabelValue)
    }
}

/// Checks whether the text is not empty, consists of `ends` and `middle`, and has `ends` at both ends.
fn is_word(text: &str, ends: impl Fn(u8) -> bool, middle: &[u8]) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(&first), Some(&last)) if ends(first) && ends(last))
        && bytes
            .iter()
            .all(|&byte| ends(byte) || middle.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_forms_of_kubernetes() {
        let long = |length| "a".repeat(length);
        for (text, label, subdomain, qualified, value) in [
            ("a", true, true, true, true),
            ("web-1", true, true, true, true),
            ("1web", true, true, true, true),
            ("web.example.com", false, true, true, true),
            ("a..b", false, false, true, true),
            ("a.-b", false, false, true, true),
            ("Web", false, false, true, true),
            ("a_b", false, false, true, true),
            ("", false, false, false, true),
            ("-a", false, false, false, false),
            ("a-", false, false, false, false),
            ("a b", false, false, false, false),
            ("a\n", false, false, false, false),
            ("\u{e9}", false, false, false, false),
            ("example.com/a", false, false, true, false),
            ("Example.com/a", false, false, false, false),
            ("example.com/", false, false, false, false),
            ("/a", false, false, false, false),
            ("a/b/c", false, false, false, false),
            (&long(63), true, true, true, true),
            (&long(64), false, true, false, false),
            (&long(253), false, true, false, false),
            (&long(254), false, false, false, false),
        ] {
            assert_eq!(dns_label(text).is_ok(), label, "label {text:?}");
            assert_eq!(dns_subdomain(text).is_ok(), subdomain, "subdomain {text:?}");
            assert_eq!(
                qualified_name(text).is_ok(),
                qualified,
                "qualified {text:?}"
            );
            assert_eq!(label_value(text).is_ok(), value, "value {text:?}");
        }
    }
}
