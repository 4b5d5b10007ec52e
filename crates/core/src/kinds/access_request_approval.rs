//! The rules of [`AccessRequestApproval`].

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::AccessRequestApproval;

use super::Rules;
use crate::validate::{self, Violation};

impl Rules for AccessRequestApproval {
    fn violations(&self, _: Timestamp) -> Vec<Violation> {
        let metadata: &ObjectMeta = &self.metadata;
        validate::approval(metadata, &self.spec)
    }
}
