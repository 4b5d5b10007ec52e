//! The response of a server. Messages repeat its status and its error code, and the name of a header of the gate that
//! it names; they repeat no other part of it.

use hyper::StatusCode;
use hyper::body::Bytes;
use rusty_s3::Map;

use crate::storage::error::StorageError;

pub(super) const IF_NONE_MATCH: &str = "if-none-match";
pub(super) const CHECKSUM: &str = "x-amz-checksum-sha256";
pub(super) const LOCK_MODE: &str = "x-amz-object-lock-mode";
pub(super) const LOCK_UNTIL: &str = "x-amz-object-lock-retain-until-date";

/// A header of an upload that some servers do not implement.
#[derive(Debug)]
struct Extension {
    /// The name, in lower case.
    name: &'static str,
    /// The name, as documentation writes it.
    title: &'static str,
    /// The change with which uploads succeed.
    remedy: &'static str,
}

/// The headers, in the order in which an administrator can do without them. If the server does not name the header, the
/// first one that was sent is reported: after the change, the next response concerns another header.
static EXTENSIONS: [Extension; 4] = [
    Extension {
        name: IF_NONE_MATCH,
        title: "If-None-Match",
        remedy: "set gate.recordings.s3.conditionalWrites to false, or use a server that implements it",
    },
    Extension {
        name: LOCK_MODE,
        title: LOCK_MODE,
        remedy: "set gate.recordings.retentionDays to 0, or use a server with Object Lock",
    },
    Extension {
        name: LOCK_UNTIL,
        title: LOCK_UNTIL,
        remedy: "set gate.recordings.retentionDays to 0, or use a server with Object Lock",
    },
    Extension {
        name: CHECKSUM,
        title: CHECKSUM,
        remedy: "use a server that implements it",
    },
];

/// The response of a server.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// The body; `None` if it was larger than the limit.
    pub(super) body: Option<Bytes>,
}

impl Answer {
    pub(super) fn code(&self) -> Option<&str> {
        code(self.body.as_ref()?)
    }

    /// Returns the status and the code, as one text.
    fn summary(&self) -> String {
        let status = self.status.as_u16();
        match self.code() {
            Some(code) => format!("{status} {code}"),
            None => status.to_string(),
        }
    }

    /// Returns the error of a response that reports a failure.
    pub(super) fn error(&self, what: &'static str, name: &str) -> StorageError {
        let why = format!("the server responded {}", self.summary());
        let passing = [
            StatusCode::REQUEST_TIMEOUT,
            // Another writer stores the same object at this moment.
            StatusCode::CONFLICT,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        if self.status.is_server_error() || passing.contains(&self.status) {
            return StorageError::unavailable(what, name, &why);
        }
        StorageError::Refused {
            what,
            name: name.to_owned(),
            why,
        }
    }

    /// Returns the error of a response that reports the failure of an upload with these headers.
    pub(super) fn upload_error(&self, name: &str, headers: &Map<'_>) -> StorageError {
        let mut sent = EXTENSIONS
            .iter()
            .filter(|extension| headers.get(extension.name).is_some());
        let named = self.named(sent.clone());
        let is_unimplemented = match self.code() {
            Some("NotImplemented") => true,
            // Backblaze B2 responds with this code to a header that it does not know. The code also stands for a wrong
            // value, which these two headers never have.
            Some("InvalidArgument") if self.status.is_client_error() => {
                named.is_some_and(|named| [IF_NONE_MATCH, CHECKSUM].contains(&named.name))
            }
            _ => self.status == StatusCode::NOT_IMPLEMENTED,
        };
        let Some(extension) = named.or_else(|| sent.next()).filter(|_| is_unimplemented) else {
            return self.error("store", name);
        };
        let (title, summary) = (extension.title, self.summary());
        let why = match named {
            Some(_) => format!("the server does not implement {title} (it responded {summary})"),
            None => format!(
                "the server does not implement a header of the request, perhaps {title} (it \
                 responded {summary})"
            ),
        };
        StorageError::NotImplemented {
            name: name.to_owned(),
            why,
            remedy: extension.remedy,
        }
    }

    /// Returns the first of these headers that the response names.
    fn named(
        &self,
        mut sent: impl Iterator<Item = &'static Extension>,
    ) -> Option<&'static Extension> {
        let text = str::from_utf8(self.body.as_ref()?).ok()?;
        // Other elements repeat parts of the request, such as the name of the object.
        let elements = ["Header", "ArgumentName", "Message", "additionalMessage"];
        let said: Vec<String> = elements
            .iter()
            .filter_map(|element| Some(between(text, element)?.to_ascii_lowercase()))
            .collect();
        sent.find(|extension| said.iter().any(|said| said.contains(extension.name)))
    }
}

/// Returns the content of the first element with this name.
pub(super) fn between<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = value.split_once(&format!("</{name}>"))?;
    Some(value)
}

/// Returns the error code of a server.
pub(super) fn code(body: &[u8]) -> Option<&str> {
    let code = between(str::from_utf8(body).ok()?, "Code")?;
    let fine = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    fine.then_some(code)
}
