//! Errors with their causes, for logs and probes.

use std::error::Error;

use crate::call::root_cause;
use crate::raw::without_content;

/// Returns the text of an error and, after colons, the texts of its causes, each once. The text of an error
/// response of the API server is its message, not the whole `Status`; a response that does not decode is not
/// quoted.
///
/// ```
/// let failed = "seven".parse::<u8>().unwrap_err();
/// assert_eq!(oz_runtime::with_causes(&failed), "invalid digit found in string");
/// ```
#[must_use]
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let ends = kube_error(error).map(kube_message);
        next = error.source().filter(|_| ends.is_none());
        let text = ends.unwrap_or_else(|| error.to_string());
        // A transparent error has the text of its source.
        if said.last() != Some(&text) {
            said.push(text);
        }
    }
    said.join(": ")
}

fn kube_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a kube::Error> {
    let boxed = error.downcast_ref::<Box<kube::Error>>();
    error.downcast_ref().or(boxed.map(AsRef::as_ref))
}

/// Returns the text of an error of kube without the texts of its sources, which kube repeats.
fn kube_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::SerdeError(error) => without_content(error),
        other => root_cause(other),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to read the map")]
    struct Lost(#[source] Box<dyn Error + Send + Sync>);

    #[derive(Debug, thiserror::Error)]
    enum Outer {
        #[error(transparent)]
        Same(Lost),
    }

    #[test]
    fn each_cause_is_shown_once() {
        let status = Status::failure("maps are forbidden", "Forbidden").with_code(403);
        let refused = kube::Error::Api(status.boxed());
        let error = Outer::Same(Lost(Box::new(refused)));
        assert_eq!(
            with_causes(&error),
            "failed to read the map: maps are forbidden"
        );
        let gone = std::io::Error::other("the connection is gone");
        let gone = kube::Error::ReadEvents(gone);
        let error = Lost(Box::new(Box::new(gone)));
        assert_eq!(
            with_causes(&error),
            "failed to read the map: the connection is gone"
        );
    }

    #[test]
    fn decode_error_does_not_quote_response() {
        let error = serde_json::from_str::<u8>(r#""the password""#).unwrap_err();
        assert!(error.to_string().contains("the password"));
        let error = Lost(Box::new(kube::Error::SerdeError(error)));
        let said = with_causes(&error);
        assert!(!said.contains("password"), "{said}");
    }
}
