//! The error of an upload, by the response of the server.

use hyper::body::Bytes;
use oz_gating::recording::Form;

use super::{IF_NONE_MATCH, NAMED, Rejection, World, key};
use crate::storage::Put;

const CHECKSUM: &str = "x-amz-checksum-sha256";
const LOCK_MODE: &str = "x-amz-object-lock-mode";
const LOCK_UNTIL: &str = "x-amz-object-lock-retain-until-date";

/// The body of the response of s3proxy, and of Backblaze B2 to If-None-Match.
const UNNAMED: &str = "<Error><Code>NotImplemented</Code><Message>A header you provided implies \
                       functionality that is not implemented</Message></Error>";
/// The body of the response of Backblaze B2 to a checksum.
const UNSUPPORTED: &str = "<Error><Code>InvalidArgument</Code><Message>Unsupported header \
                           'x-amz-checksum-sha256' received for this API call.</Message></Error>";
const NO_LOCK: &str = "<Error><Code>NotImplemented</Code><Header>x-amz-object-lock-mode</Header>\
                       </Error>";
/// The body of the response of Amazon to an instant in the past.
const PAST: &str = "<Error><Code>InvalidArgument</Code><Message>The retain until date must be in \
                    the future!</Message><ArgumentName>x-amz-object-lock-retain-until-date\
                    </ArgumentName></Error>";
/// A body that names a header in the name of the object only.
const OTHER: &str = "<Error><Code>InvalidArgument</Code><Message>Invalid argument</Message>\
                     <Resource>/recordings/if-none-match</Resource></Error>";

const CONDITIONAL_WRITES: &str = "set gate.recordings.s3.conditionalWrites to false";
const RETENTION: &str = "set gate.recordings.retentionDays to 0";

/// An upload to a server, and its expected result.
struct Case {
    rejection: Option<Rejection>,
    conditional_writes: bool,
    retention_days: u64,
    /// The reason of the expected error, and parts of its message; `None` for success.
    error: Option<(&'static str, &'static [&'static str])>,
}

impl Case {
    /// Returns the upload to a server that implements all headers.
    fn accepted() -> Self {
        Self {
            rejection: None,
            conditional_writes: true,
            retention_days: 0,
            error: None,
        }
    }

    /// Returns the upload to a server with this response to uploads with a header.
    fn rejected(header: &'static str, status: u16, body: &'static str) -> Self {
        Self {
            rejection: Some(Rejection {
                header,
                status,
                body,
            }),
            ..Self::accepted()
        }
    }

    fn unconditional(self) -> Self {
        Self {
            conditional_writes: false,
            ..self
        }
    }

    fn with_retention(self) -> Self {
        Self {
            retention_days: 30,
            ..self
        }
    }

    fn fails(self, reason: &'static str, parts: &'static [&'static str]) -> Self {
        Self {
            error: Some((reason, parts)),
            ..self
        }
    }

    fn not_implemented(self, parts: &'static [&'static str]) -> Self {
        self.fails("NotImplemented", parts)
    }
}

/// Returns the uploads that the server does not accept because of a header that it does not implement.
fn unimplemented() -> [Case; 10] {
    [
        Case::rejected(IF_NONE_MATCH, 501, NAMED).not_implemented(&[
            "implement If-None-Match (it responded 501 NotImplemented)",
            CONDITIONAL_WRITES,
        ]),
        Case::rejected(IF_NONE_MATCH, 501, UNNAMED).not_implemented(&[
            "perhaps If-None-Match (it responded 501 NotImplemented)",
            CONDITIONAL_WRITES,
        ]),
        Case::rejected(IF_NONE_MATCH, 501, "").not_implemented(&[
            "perhaps If-None-Match (it responded 501)",
            CONDITIONAL_WRITES,
        ]),
        Case::rejected(IF_NONE_MATCH, 400, UNNAMED).not_implemented(&[
            "perhaps If-None-Match (it responded 400 NotImplemented)",
            CONDITIONAL_WRITES,
        ]),
        Case::rejected(CHECKSUM, 400, UNSUPPORTED).not_implemented(&[
            "implement x-amz-checksum-sha256 (it responded 400 InvalidArgument); use a server",
        ]),
        Case::rejected(LOCK_MODE, 501, NO_LOCK)
            .with_retention()
            .not_implemented(&["implement x-amz-object-lock-mode", RETENTION]),
        // An administrator removes one header after the other.
        Case::rejected(CHECKSUM, 501, UNNAMED)
            .with_retention()
            .not_implemented(&["perhaps If-None-Match", CONDITIONAL_WRITES]),
        Case::rejected(CHECKSUM, 501, UNNAMED)
            .with_retention()
            .unconditional()
            .not_implemented(&["perhaps x-amz-object-lock-mode", RETENTION]),
        Case::rejected(CHECKSUM, 501, UNNAMED)
            .unconditional()
            .not_implemented(&["perhaps x-amz-checksum-sha256", "; use a server"]),
        Case::rejected(CHECKSUM, 501, "")
            .unconditional()
            .not_implemented(&["perhaps x-amz-checksum-sha256", "; use a server"]),
    ]
}

/// Returns the other uploads.
fn others() -> [Case; 6] {
    [
        Case::rejected(LOCK_UNTIL, 400, PAST)
            .with_retention()
            .fails("Refused", &["400 InvalidArgument"]),
        Case::rejected(CHECKSUM, 400, OTHER).fails("Refused", &["400 InvalidArgument"]),
        Case::rejected(CHECKSUM, 503, "").fails("Unavailable", &["503"]),
        Case::rejected(IF_NONE_MATCH, 501, NAMED).unconditional(),
        Case::accepted(),
        Case::accepted().unconditional(),
    ]
}

#[tokio::test]
async fn upload_with_unimplemented_header_is_reported_with_value_to_change() {
    for case in unimplemented().into_iter().chain(others()) {
        let mut world = World::new(case.rejection).await;
        world.recordings.s3.conditional_writes = case.conditional_writes;
        let days = serde_json::from_value(case.retention_days.into());
        world.recordings.retention_days = days.unwrap();
        let (_, storage) = world.options();
        let name = key().part(0, Form::Plain);
        let put = storage.put(&name, Bytes::from("part")).await;
        let context = format!("{:?}: {put:?}", case.rejection);
        match (put, case.error) {
            (Ok(put), None) => assert_eq!(put, Put::Stored, "{context}"),
            (Err(error), Some((reason, parts))) => {
                assert_eq!(error.reason(), reason, "{context}");
                let message = error.to_string();
                for part in parts.iter().chain([&name.as_str()]) {
                    assert!(message.contains(part), "{part}: {message}");
                }
            }
            _ => panic!("{context}"),
        }
        let bucket = world.bucket.lock();
        let [sent] = bucket.uploads.as_slice() else {
            panic!("{context}: {} uploads", bucket.uploads.len())
        };
        let condition = sent.get(IF_NONE_MATCH).map(|value| value.as_bytes());
        let expected = case.conditional_writes.then_some(b"*".as_slice());
        assert_eq!(condition, expected, "{context}");
        assert!(sent.contains_key(CHECKSUM), "{context}");
    }
}
