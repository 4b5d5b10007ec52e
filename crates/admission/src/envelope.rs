//! What every review of an API server comes in and goes back in: its version, its kind, and a request or a
//! response.

use serde::{Deserialize, Serialize};

/// A kind of review.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
}

/// Why a body is no review that could be answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Not JSON, or not of the right shape.
    #[error("failed to decode the {kind}")]
    Decode {
        /// What it should be.
        kind: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Some other version or kind.
    #[error("failed to accept {api_version} {kind}: only {} {} is served", .served.api_version, .served.kind)]
    Version {
        /// What came.
        api_version: String,
        /// What came.
        kind: String,
        /// What it should be.
        served: Form,
    },
    /// A review without a request, such as an answer sent back to us.
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
    /// The request in a body, from which it may borrow.
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

    /// The body of an answer.
    pub(crate) fn write<R: Serialize>(self, response: R) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&Reply {
            api_version: self.api_version,
            kind: self.kind,
            response,
        })
    }
}
