//! The outputs of a run as a termination message: from result.json, or from the result that the agent reported.
//! See <https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/>.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use oz_api::harness::RunOutputs;
use oz_api::harness::wire::MAX_RESULT;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::convert::Outcome;
use crate::cut;

/// The maximum size of result.json in bytes.
pub(crate) const MAX_FILE: usize = 256 * 1024;
/// The maximum size of a summary in bytes, if there are other outputs.
const MAX_SUMMARY: usize = 1024;
/// The maximum number of artifacts, and of pull requests, that are read.
const MAX_ITEMS: usize = 200;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    #[serde(borrow)]
    pull_requests: Option<&'a RawValue>,
    #[serde(borrow)]
    files_changed: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    artifacts: Option<&'a RawValue>,
}

/// Returns the content of result.json. A field of another form is left out; the other fields are kept.
///
/// # Errors
/// When the text is not a JSON object.
pub(crate) fn read(text: &[u8]) -> Result<RunOutputs> {
    let text = String::from_utf8_lossy(text);
    let written: Written<'_> =
        serde_json::from_str(&text).context("result.json is not read: it is not a JSON object")?;
    Ok(RunOutputs {
        pull_requests: part(written.pull_requests).unwrap_or_default(),
        files_changed: part(written.files_changed),
        summary: part(written.summary),
        artifacts: part(written.artifacts).unwrap_or_default(),
    })
}

fn part<T: DeserializeOwned>(raw: Option<&RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// Returns the outputs from the result that an agent reported.
pub(crate) fn from_outcome(outcome: &Outcome) -> RunOutputs {
    RunOutputs {
        files_changed: outcome.files_changed,
        summary: outcome.summary.clone(),
        ..RunOutputs::default()
    }
}

/// Returns the outputs as JSON that the kubelet does not truncate: a long summary is shortened first, then artifacts
/// are left out, then pull requests, the last ones first.
pub(crate) fn message(mut outputs: RunOutputs) -> Option<String> {
    outputs.artifacts.truncate(MAX_ITEMS);
    outputs.pull_requests.truncate(MAX_ITEMS);
    if let Some(summary) = &mut outputs.summary {
        let words = summary.replace('\0', "");
        *summary = cut::cut(&words, MAX_RESULT);
    }
    let mut most = MAX_SUMMARY;
    loop {
        let text = serde_json::to_string(&outputs).ok()?;
        if text.len() <= MAX_RESULT {
            return Some(text);
        }
        match &mut outputs.summary {
            Some(summary) if summary.len() > most => {
                *summary = cut::cut(summary, most);
                continue;
            }
            _ => {}
        }
        let is_shorter = outputs.artifacts.pop().is_some() || outputs.pull_requests.pop().is_some();
        if !is_shorter {
            // The summary may consist of characters that take six bytes each in JSON.
            most /= 2;
        }
    }
}

/// Writes a termination message.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn leave_message(file: &Path, message: &str) -> Result<()> {
    let text = cut::cut(message, MAX_RESULT);
    OpenOptions::new()
        .write(true)
        .truncate(true)
        .create(true)
        .open(file)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| {
            format!(
                "failed to write the termination message to {}",
                file.display()
            )
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn valid_parts_of_result_are_kept_despite_invalid_parts() {
        let read = read(
            br#"{"pullRequests":["a"],"filesChanged":"many","summary":"s","artifacts":[{}],"more":1}"#,
        );
        let expected = RunOutputs {
            pull_requests: vec!["a".to_owned()],
            summary: Some("s".to_owned()),
            ..RunOutputs::default()
        };
        assert_eq!(read.unwrap(), expected);
        assert!(super::read(b"[]").is_err());
        assert!(super::read(&b"[".repeat(100_000)).is_err());
        let deep = [
            br#"{"summary":"s","x":"#.to_vec(),
            b"[".repeat(9_999),
            b"]".repeat(9_999),
            b"}".to_vec(),
        ];
        assert_eq!(super::read(&deep.concat()).unwrap().summary.unwrap(), "s");
    }

    proptest! {
        #[test]
        fn a_message_is_whole_json_that_the_kubelet_does_not_cut(
            summary in prop::option::of(prop::collection::vec(any::<char>(), 0..6_000)),
            pull_requests in prop::collection::vec(".{0,80}", 0..60),
            artifacts in prop::collection::vec(".{0,80}", 0..200),
        ) {
            let outputs = RunOutputs {
                pull_requests: pull_requests.clone(),
                files_changed: Some(7),
                summary: summary.map(|characters| characters.into_iter().collect()),
                artifacts,
            };
            let text = message(outputs).unwrap();
            prop_assert!(text.len() <= MAX_RESULT);
            let left: RunOutputs = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(left.files_changed, Some(7));
            prop_assert!(pull_requests.starts_with(&left.pull_requests));
        }
    }
}
