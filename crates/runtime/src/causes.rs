//! Errors with what is behind them, for logs and probes.

use std::error::Error;

use crate::call::root_cause;
use crate::raw::without_content;

/// What an error says and, after colons, what its causes say, each once. Of an answer of the API server that
/// is the message, not the whole `Status`; an answer that does not decode is not quoted.
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
        // What is transparent says what its source does.
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

/// kube's own texts repeat those of their sources.
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
    fn each_cause_is_told_once() {
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
    fn what_was_answered_is_not_quoted() {
        let error = serde_json::from_str::<u8>(r#""the password""#).unwrap_err();
        assert!(error.to_string().contains("the password"));
        let error = Lost(Box::new(kube::Error::SerdeError(error)));
        let said = with_causes(&error);
        assert!(!said.contains("password"), "{said}");
    }
}
