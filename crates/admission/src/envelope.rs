//! The envelope of every review of an API server: its version, its kind, and a request or a response.

use serde::{Deserialize, Serialize};

/// A kind of review.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
}

/// The reason for which a body is not a review with a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The body is not JSON, or not of the right shape.
    #[error("failed to decode the {kind}")]
    Decode {
        /// The expected kind.
        kind: &'static str,
        /// The error of the decoder.
        source: serde_json::Error,
    },
    /// The version or the kind is not served.
    #[error("failed to accept {api_version} {kind}: only {} {} is served", .served.api_version, .served.kind)]
    Version {
        /// The received version.
        api_version: String,
        /// The received kind.
        kind: String,
        /// The expected version and kind.
        served: Form,
    },
    /// The review has no request, such as a response that was sent back.
    #[error("failed to find a request in the {0}")]
    NoRequest(&'static str),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "R: Deserialize<'de>"))]
struct Question<R> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    request: Option<R>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reply<R> {
    api_version: &'static str,
    kind: &'static str,
    response: R,
}

impl Form {
    /// Reads the request in a body, from which it may borrow.
    pub(crate) fn read<'a, R: Deserialize<'a>>(self, body: &'a [u8]) -> Result<R, Error> {
        let question: Question<R> = serde_json::from_slice(body).map_err(|source| {
            let kind = self.kind;
            Error::Decode { kind, source }
        })?;
        if question.api_version != self.api_version || question.kind != self.kind {
            return Err(Error::Version {
                api_version: question.api_version,
                kind: question.kind,
                served: self,
            });
        }
        question.request.ok_or(Error::NoRequest(self.kind))
    }

    /// Writes the body of a response.
    pub(crate) fn write<R: Serialize>(self, response: R) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&Reply {
            api_version: self.api_version,
            kind: self.kind,
            response,
        })
    }
}
