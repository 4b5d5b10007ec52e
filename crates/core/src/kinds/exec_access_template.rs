//! The rules of [`ExecAccessTemplate`].

use jiff::Timestamp;
use oz_api::{AccessConfig, CrossVersionObjectReference, ExecAccessTemplate, TemplateStatus};

use super::{AccessTemplate, Rules};
use crate::validate::{self, Target, ValidatedTemplate, Violation};

impl Rules for ExecAccessTemplate {
    fn violations(&self, _: Timestamp) -> Vec<Violation> {
        self.check().err().into_iter().flatten().collect()
    }
}

impl AccessTemplate for ExecAccessTemplate {
    type Target = Target;
    const PURPOSE: &'static str = "exec";
    const NOTES_AUTHOR: bool = false;

    fn config(&self) -> &AccessConfig {
        &self.spec.access_config
    }

    fn workload(&self) -> Option<&CrossVersionObjectReference> {
        Some(&self.spec.controller_target_ref)
    }

    fn check(&self) -> Result<ValidatedTemplate<Target>, Vec<Violation>> {
        validate::exec_access_template(self)
    }

    fn status(&self) -> Option<&TemplateStatus> {
        self.status.as_ref()
    }
}
