//! A record as a CloudEvent.

use serde_json::value::RawValue;

use crate::Entry;

/// Returns the entry as a CloudEvent 1.0 in structured mode; its data is `line`, the entry as in the log.
///
/// # Errors
/// If the line is not JSON.
pub fn cloud_event(entry: &Entry, line: &str) -> Result<Vec<u8>, serde_json::Error> {
    #[derive(serde::Serialize)]
    struct CloudEvent<'a> {
        specversion: &'static str,
        id: &'a str,
        source: String,
        r#type: String,
        time: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
        datacontenttype: &'static str,
        data: &'a RawValue,
    }
    let record = &entry.record;
    let subject = format!("{}/{}", record.request.namespace, record.request.name);
    serde_json::to_vec(&CloudEvent {
        specversion: "1.0",
        id: &entry.link.digest,
        source: format!("/oz/{}", entry.link.writer),
        r#type: format!("co.wizardofoz.audit.{}", record.action),
        time: record.time.to_string(),
        // The specification requires that a subject, if present, is not empty.
        subject: (subject != "/").then_some(subject),
        datacontenttype: "application/json",
        data: serde_json::from_str(line)?,
    })
}
