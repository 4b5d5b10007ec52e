//! The JSON of a `ConversionReview` of `apiextensions.k8s.io/v1`: requests and responses.
//!
//! Objects stay raw text until they are converted: if one does not decode, only this object fails.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::objects::NotConverted;
use crate::envelope::{Error, Form};

const FORM: Form = Form {
    api_version: "apiextensions.k8s.io/v1",
    kind: "ConversionReview",
};

/// The request inside a `ConversionReview`; it borrows from the body.
#[derive(Debug, Deserialize)]
pub(crate) struct Request<'a> {
    pub(crate) uid: String,
    #[serde(rename = "desiredAPIVersion")]
    pub(crate) desired: String,
    #[serde(borrow, default)]
    pub(crate) objects: Vec<&'a RawValue>,
}

pub(crate) fn read(body: &[u8]) -> Result<Request<'_>, Error> {
    FORM.read(body)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    converted_objects: &'a [Box<RawValue>],
    result: Outcome,
}

#[derive(Serialize)]
struct Outcome {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// Writes the response to the request `uid`: all objects, or the reason for which one could not be
/// converted.
pub(crate) fn write(
    uid: &str,
    converted: &Result<Vec<Box<RawValue>>, NotConverted>,
) -> Result<Vec<u8>, serde_json::Error> {
    let (converted_objects, result) = match converted {
        Ok(objects) => (
            objects.as_slice(),
            Outcome {
                status: "Success",
                message: None,
            },
        ),
        Err(error) => (
            &[][..],
            Outcome {
                status: "Failure",
                message: Some(error.to_string()),
            },
        ),
    };
    FORM.write(Response {
        uid,
        converted_objects,
        result,
    })
}
