//! Approvals and denials of requests by users, through the API only.

use anyhow::{Context as _, Result};
use kube::Client;
use oz_api::{
    AccessConfig, AccessRequestApproval, AccessRequestApprovalSpec, AccessRequestReference,
    ApprovalConfig, ApprovalRule, ApprovedKind, ExecAccessRequest, ExecAccessTemplate, TargetKind,
};
use serde::Serialize;
use serde_json::Value;

use crate::{WORKLOAD, exec_template};

/// A user as an identity provider names them. The administrator impersonates this user.
#[derive(Clone, Copy, Debug)]
pub struct Person {
    /// The user name.
    pub user: &'static str,
    /// The UID; empty for none.
    pub uid: &'static str,
    /// The groups.
    pub groups: &'static [&'static str],
}

impl Person {
    /// Returns a user without a UID.
    #[must_use]
    pub const fn new(user: &'static str, groups: &'static [&'static str]) -> Self {
        Self {
            user,
            uid: "",
            groups,
        }
    }

    /// Creates an object as this user. `admin` may impersonate all users.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn create<T: Serialize>(
        self,
        admin: &Client,
        namespace: &str,
        plural: &str,
        object: &T,
    ) -> kube::Result<Value> {
        let uri = format!("/apis/crds.wizardofoz.co/v1alpha1/namespaces/{namespace}/{plural}");
        let request = http::Request::post(uri).header("content-type", "application/json");
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        admin.request(self.acting(request, body)?).await
    }

    /// Changes an object as this user, by a merge patch.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn patch(
        self,
        admin: &Client,
        namespace: &str,
        plural: &str,
        name: &str,
        change: &Value,
    ) -> kube::Result<Value> {
        let uri =
            format!("/apis/crds.wizardofoz.co/v1alpha1/namespaces/{namespace}/{plural}/{name}");
        let request =
            http::Request::patch(uri).header("content-type", "application/merge-patch+json");
        let body = serde_json::to_vec(change).map_err(kube::Error::SerdeError)?;
        admin.request(self.acting(request, body)?).await
    }

    /// Deletes an object as this user.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn delete(
        self,
        admin: &Client,
        namespace: &str,
        plural: &str,
        name: &str,
    ) -> kube::Result<Value> {
        let uri =
            format!("/apis/crds.wizardofoz.co/v1alpha1/namespaces/{namespace}/{plural}/{name}");
        let request = http::Request::delete(uri);
        admin.request(self.acting(request, Vec::new())?).await
    }

    fn acting(
        self,
        request: http::request::Builder,
        body: Vec<u8>,
    ) -> kube::Result<http::Request<Vec<u8>>> {
        let mut request = request.header("Impersonate-User", self.user);
        for group in self.groups {
            request = request.header("Impersonate-Group", *group);
        }
        if !self.uid.is_empty() {
            request = request.header("Impersonate-Uid", self.uid);
        }
        request.body(body).map_err(kube::Error::HttpError)
    }
}

/// Returns an approval rule that requires this many approvals by these users and groups.
#[must_use]
pub fn approval_rule(name: &str, users: &[&str], groups: &[&str], approvals: i32) -> ApprovalRule {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    ApprovalRule {
        name: name.to_owned(),
        groups: owned(groups),
        users: owned(users),
        approvals,
        notify: true,
        escalation: None,
    }
}

/// Returns a template for the group `devs` that requires approvals.
#[must_use]
pub fn approved_template(
    name: &str,
    rules: Vec<ApprovalRule>,
    timeout: &str,
) -> ExecAccessTemplate {
    let mut template = exec_template(name, TargetKind::Deployment, WORKLOAD);
    template.spec.access_config = AccessConfig {
        approval: Some(ApprovalConfig {
            rules,
            timeout: timeout.to_owned(),
            when: None,
            require_reason: false,
            unless: Vec::new(),
        }),
        ..template.spec.access_config
    };
    template
}

/// Returns an approval or denial of a waiting request in its current state.
///
/// # Errors
/// When its status does not yet contain the data that an approval must name.
pub fn answer_to(
    request: &ExecAccessRequest,
    name: &str,
    approval: bool,
) -> Result<AccessRequestApproval> {
    let status = request.status.as_ref();
    let asked = status.and_then(|status| status.approval.as_ref());
    let metadata = &request.metadata;
    let spec = AccessRequestApprovalSpec {
        access_request_ref: AccessRequestReference {
            kind: ApprovedKind::ExecAccessRequest,
            name: metadata.name.clone().context("no name")?,
            uid: metadata.uid.clone().context("no UID")?,
        },
        approval,
        reason: None,
        digest: asked.context("the status names no digest")?.digest.clone(),
    };
    Ok(AccessRequestApproval::new(name, spec))
}
