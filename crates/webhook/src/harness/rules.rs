//! The properties of each kind that the common hook of templates, workspaces and policies requires.

use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use oz_api::encode;
use oz_api::harness::{
    BrokerPolicy, ClusterHarnessTemplate, HarnessTemplate, HarnessTemplateSpec, TemplateKind,
    Workspace,
};
use oz_core::kinds::Kind;
use oz_core::validate::Violation;
use oz_runs::admission::{self, Named};
use oz_trail::Action;

/// A kind of oz that is reviewed.
pub(super) trait Reviewed: Kind + oz_admission::Reviewed {}

impl<K: Kind + oz_admission::Reviewed> Reviewed for K {}

/// A kind that defines runs.
pub(super) trait Checked: Reviewed {
    /// The action in the audit record of a change; `None` if changes are not recorded.
    const CHANGED: Option<Action>;

    /// Returns the digest of the spec.
    fn digest(&self) -> String;

    /// Returns all violations; `old` is the object before the change.
    fn violations(&self, old: Option<&Self>, now: Timestamp) -> Vec<Violation>;

    /// Returns the objects that it names and that its author must be able to get, without those
    /// that `old` gave to at least as many already.
    fn references(&self, old: Option<&Self>) -> Vec<Named>;

    /// Returns the further right that its author must have, with its description, since oz acts on
    /// the author's behalf.
    fn does(&self) -> Option<(ResourceAttributes, String)> {
        None
    }
}

impl Checked for HarnessTemplate {
    const CHANGED: Option<Action> = Some(Action::TemplateChanged);

    fn digest(&self) -> String {
        encode::digest(&self.spec)
    }

    fn violations(&self, _: Option<&Self>, _: Timestamp) -> Vec<Violation> {
        template(TemplateKind::HarnessTemplate, &self.spec)
    }

    fn references(&self, _: Option<&Self>) -> Vec<Named> {
        Vec::new()
    }

    fn does(&self) -> Option<(ResourceAttributes, String)> {
        let namespace = self.metadata.namespace.clone();
        let words = match &namespace {
            Some(namespace) => format!("create pods in namespace {namespace}"),
            None => "create pods in every namespace".to_owned(),
        };
        Some((creates_pods(namespace), words))
    }
}

impl Checked for ClusterHarnessTemplate {
    const CHANGED: Option<Action> = Some(Action::TemplateChanged);

    fn digest(&self) -> String {
        encode::digest(&self.spec)
    }

    fn violations(&self, _: Option<&Self>, _: Timestamp) -> Vec<Violation> {
        template(TemplateKind::ClusterHarnessTemplate, &self.spec.0)
    }

    fn references(&self, _: Option<&Self>) -> Vec<Named> {
        Vec::new()
    }

    fn does(&self) -> Option<(ResourceAttributes, String)> {
        Some((
            creates_pods(None),
            "create pods in every namespace".to_owned(),
        ))
    }
}

impl Checked for Workspace {
    const CHANGED: Option<Action> = None;

    fn digest(&self) -> String {
        encode::digest(&self.spec)
    }

    fn violations(&self, old: Option<&Self>, _: Timestamp) -> Vec<Violation> {
        let mut found = old.map_or_else(Vec::new, |old| admission::workspace_update(old, self));
        found.extend(admission::workspace(self));
        found
    }

    /// Returns nothing for an update: a seed never changes, and its objects were checked at the
    /// creation.
    fn references(&self, old: Option<&Self>) -> Vec<Named> {
        match old {
            Some(_) => Vec::new(),
            None => admission::of_workspace(self),
        }
    }
}

impl Checked for BrokerPolicy {
    const CHANGED: Option<Action> = Some(Action::PolicyChanged);

    fn digest(&self) -> String {
        encode::digest(&self.spec)
    }

    fn violations(&self, old: Option<&Self>, now: Timestamp) -> Vec<Violation> {
        admission::policy(self, old, now)
    }

    /// Returns the objects of unchanged grants too if the policy names templates that it did not
    /// name before.
    fn references(&self, old: Option<&Self>) -> Vec<Named> {
        let mut all = admission::of_policy(self);
        let Some(old) = old else { return all };
        let templates = &old.spec.applies_to_templates;
        let wider = |glob: &String| !templates.contains(glob);
        if self.spec.applies_to_templates.iter().any(wider) {
            return all;
        }
        let had = &old.spec.grants.credentials;
        let grants = self.spec.grants.credentials.iter().enumerate();
        let kept = grants.filter(|(_, grant)| had.contains(grant));
        let kept: Vec<String> = kept
            .map(|(number, _)| format!("spec.grants.credentials[{number}]."))
            .collect();
        all.retain(|named| !kept.iter().any(|field| named.field.starts_with(field)));
        all
    }
}

fn template(kind: TemplateKind, spec: &HarnessTemplateSpec) -> Vec<Violation> {
    admission::template(kind, spec)
}

fn creates_pods(namespace: Option<String>) -> ResourceAttributes {
    ResourceAttributes {
        namespace,
        verb: Some("create".to_owned()),
        resource: Some("pods".to_owned()),
        ..ResourceAttributes::default()
    }
}
