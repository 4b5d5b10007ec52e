//! The hook that checks templates: the author of a template decides who gets access, so a template
//! must not hand out rights that its author does not have.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use kube::Resource;
use oz_admission::{Cx, Notes, Rejection, Review, Validate};
use oz_api::labels;
use oz_audit::Sink;
use oz_cel::Expressions;
use oz_core::access::{author, policy};
use oz_core::kinds::AccessTemplate;
use oz_core::validate::{TEMPLATE_METADATA, Violation};

use crate::connect::Policies;
use crate::connect::policies::{POLICY_TIMEOUT, PolicyError};
use crate::refusal::{
    bounded, immutable, invalid, namespace, own_namespace, status_is_the_operators,
};
use crate::stamp::requester;
use crate::{permission, record};

/// The hook that checks templates of one kind.
pub(crate) struct TemplateValidator<T> {
    /// oz's own namespace, in which oz grants no access.
    pub(crate) namespace: Arc<str>,
    pub(crate) operator: Arc<str>,
    pub(crate) records: Arc<dyn Sink>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) kind: PhantomData<fn() -> T>,
}

impl<T: AccessTemplate> Validate for TemplateValidator<T> {
    type Object = T;

    async fn validate(&self, cx: &Cx, review: &Review<T>) -> Result<Notes, Rejection> {
        let Some(template) = &review.object else {
            return Ok(Notes::none());
        };
        if review.subresource.as_deref() == Some("status") {
            let next = "change the spec; oz updates the status";
            return status_is_the_operators(review, &self.operator, next);
        }
        let old = review.old.as_ref().map(Resource::meta);
        bounded(template.meta(), old, &TEMPLATE_METADATA)?;
        // A stored template was checked when it was admitted, or is older than the rule. Labels,
        // owners and finalizers may change nevertheless.
        let digest = template.spec_digest();
        let unchanged = |old: &&T| old.spec_digest() == digest;
        if let Some(old) = review.old.as_ref().filter(unchanged) {
            if author::noted(old.meta()) != author::noted(template.meta()) {
                let message = "oz sets the author of a template when its spec changes";
                return Err(immutable(
                    &format!("metadata.annotations[{}]", labels::AUTHOR),
                    message,
                ));
            }
            return Ok(Notes::none());
        }
        // Another webhook may have changed it after oz noted the author.
        let noted = author::noted(template.meta()).map(|_| author::read(template.meta(), &digest));
        if noted.is_some_and(|noted| noted != Some(requester(&review.user))) {
            return Err(Rejection::forbidden(
                "AuthorMismatch",
                format!(
                    "the author on the template is not {}; check which other webhook changes it",
                    review.user.username
                ),
            ));
        }
        let namespace = namespace(review)?;
        if namespace == &*self.namespace {
            return Err(own_namespace(namespace));
        }
        let violations = template.violations(cx.now);
        if !violations.is_empty() {
            return Err(invalid(T::title(), &violations));
        }
        let missing =
            permission::missing(&cx.client, &review.user, namespace, template.hands_out()).await?;
        if !missing.is_empty() {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            let refusal = Rejection::forbidden(
                "MissingPermission",
                format!(
                    "{} may not {} in namespace {namespace}, which this template would grant; have \
                     a user with these rights create or change it",
                    review.user.username,
                    missing.join(", ")
                ),
            );
            if !cx.dry_run {
                let record = record::template_refused(cx.now, review, template, &refusal);
                record::write_refusal(&*self.records, &record).await;
            }
            return Err(refusal);
        }
        // Evaluation is expensive, and is limited to authors who may hand out rights.
        if let Some(policy) = &template.config().command_policy
            && let Err(why) = self.policies.check(namespace, policy).await
        {
            let message = format!("cannot be evaluated: {why}");
            let violation = Violation::new("spec.accessConfig.commandPolicy", message);
            return Err(invalid(T::title(), &[violation]));
        }
        if let Some(when) = policy::condition(template)
            && let Err(why) = self.condition(namespace, when).await
        {
            let message = format!("cannot be evaluated: {why}");
            let violation = Violation::new("spec.accessConfig.approval.when", message);
            return Err(invalid(T::title(), &[violation]));
        }
        if !cx.dry_run {
            let record = record::template_changed(cx.now, review, template);
            record::write(&*self.records, &record).await?;
        }
        Ok(Notes::none())
    }
}

impl<T: AccessTemplate> TemplateValidator<T> {
    /// Checks whether the condition of approval rules can be evaluated.
    async fn condition(&self, namespace: &str, when: &str) -> Result<(), PolicyError> {
        let (text, until) = (when.to_owned(), Instant::now() + POLICY_TIMEOUT);
        let work = move |_: &Expressions| oz_cel::policy::check_condition(&text, until);
        Ok(self.policies.in_turn(namespace, when, work).await??)
    }
}
