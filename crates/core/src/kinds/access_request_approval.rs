//! The rules of [`AccessRequestApproval`].

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{AccessRequestApproval, encode};

use super::{Kind, Role, defined};
use crate::validate::{self, Violation};

impl Kind for AccessRequestApproval {
    const ROLE: Role = Role::Approval;
    const NAME: &'static str = "accessrequestapproval";

    defined!();

    fn spec_digest(&self) -> String {
        encode::digest(&self.spec)
    }

    fn violations(&self, _: Timestamp) -> Vec<Violation> {
        let metadata: &ObjectMeta = &self.metadata;
        validate::approval(metadata, &self.spec)
    }
}
