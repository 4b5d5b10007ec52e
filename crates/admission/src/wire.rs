//! The JSON of `admission.k8s.io/v1`: requests and responses.
//!
//! The objects inside stay raw text: they are decoded once, into the type of the extension, and a patch is
//! computed against the received text.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request>.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use kube::core::{GroupVersionKind, GroupVersionResource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{
    envelope::{Error, Form},
    review::{Operation, UserInfo},
    verdict::{Notes, Rejection},
};

const FORM: Form = Form {
    api_version: "admission.k8s.io/v1",
    kind: "AdmissionReview",
};

/// The request inside an `AdmissionReview`; it borrows from the body.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request<'a> {
    pub(crate) uid: String,
    pub(crate) kind: GroupVersionKind,
    pub(crate) resource: GroupVersionResource,
    #[serde(default)]
    pub(crate) sub_resource: Option<String>,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) namespace: Option<String>,
    pub(crate) operation: Operation,
    #[serde(default)]
    pub(crate) user_info: UserInfo,
    #[serde(borrow, default)]
    pub(crate) object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) old_object: Option<&'a RawValue>,
    #[serde(default)]
    pub(crate) dry_run: Option<bool>,
    #[serde(default)]
    pub(crate) options: Option<Value>,
}

/// Reads the body of a webhook call.
pub(crate) fn read(body: &[u8]) -> Result<Request<'_>, Error> {
    FORM.read(body)
}

/// The response to a request, before it is serialised as JSON.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The request is allowed, possibly with a changed object.
    Allowed {
        /// The JSON patch, if there is a change.
        patch: Option<json_patch::Patch>,
        /// Warnings and audit annotations.
        notes: Notes,
    },
    /// The request is denied.
    Denied(Rejection),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    status: &'static str,
    code: u16,
    reason: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details<'a>>,
}

#[derive(Serialize)]
struct Details<'a> {
    causes: Vec<StatusCause<'a>>,
}

#[derive(Serialize)]
struct StatusCause<'a> {
    reason: &'a str,
    message: &'a str,
    field: &'a str,
}

/// Writes the response to the request `uid`.
pub(crate) fn write(uid: &str, answer: &Answer) -> Result<Vec<u8>, serde_json::Error> {
    let response = match answer {
        Answer::Allowed { patch, notes } => {
            let patch = patch.as_ref().filter(|patch| !patch.0.is_empty());
            Response {
                uid,
                allowed: true,
                status: None,
                patch_type: patch.map(|_| "JSONPatch"),
                patch: patch.map(serde_json::to_vec).transpose()?.map(ByteString),
                audit_annotations: &notes.audit,
                warnings: &notes.warnings,
            }
        }
        Answer::Denied(rejection) => Response {
            uid,
            allowed: false,
            status: Some(status(rejection)),
            patch_type: None,
            patch: None,
            audit_annotations: &rejection.audit,
            warnings: rejection.warnings(),
        },
    };
    FORM.write(response)
}

fn status(rejection: &Rejection) -> Status<'_> {
    let causes: Vec<_> = rejection
        .causes
        .iter()
        .map(|cause| StatusCause {
            reason: &cause.reason,
            message: &cause.message,
            field: &cause.field,
        })
        .collect();
    Status {
        status: "Failure",
        code: rejection.code,
        reason: &rejection.reason,
        message: &rejection.message,
        details: (!causes.is_empty()).then_some(Details { causes }),
    }
}
