//! Permitting: the rights of a composite's account.

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use oz_api::conditions;

use super::composites::Composites;
use super::report::RUNNING;
use super::survey::Survey;
use crate::account::Account;
use crate::declared::Declared;
use crate::needs::rules;
use crate::source::Source;

/// Reason of a composite with an account that lacks a right.
const PERMISSION_MISSING: &str = "PermissionMissing";

impl<S: Source> Composites<S> {
    /// Returns the reason why a composite does not run: rights that are missing or unknown.
    pub(super) fn lacking(
        &self,
        (composite, declared): (&S, &Declared),
        account: Option<&Account>,
        survey: &Survey,
    ) -> Option<(&'static str, String)> {
        match (account, &survey.lacks) {
            (None, _) => Some(("AccountNotListed", self.not_listed(declared))),
            (_, Ok(lacks)) if lacks.is_empty() => unknown(composite, survey),
            (Some(account), Ok(lacks)) => {
                let all: Vec<_> = lacks.iter().chain(&survey.later.binds).cloned().collect();
                Some((PERMISSION_MISSING, rules(account, &all)))
            }
            (_, Err(failure)) => Some((failure.reason, failure.message.clone())),
        }
    }

    fn not_listed(&self, declared: &Declared) -> String {
        let named = declared.run_as.as_ref().unwrap_or(&self.accounts.default);
        let all = std::iter::once(&self.accounts.default).chain(&self.accounts.others);
        let all: Vec<String> = all.map(ToString::to_string).collect();
        format!(
            "the service account {named} is not allowed for composites: {}; see \
                composites.accounts",
            all.join(", ")
        )
    }
}

/// Returns the reason why the required rights are unknown, if they are, for a composite that does not run yet. One that
/// runs continues: its parents report each call that fails.
fn unknown<S: Source>(composite: &S, survey: &Survey) -> Option<(&'static str, String)> {
    let failure = survey.later.customize.as_ref()?;
    let standing = composite.standing().filter(|standing| {
        let observed = standing.observed_generation;
        observed.is_some() && observed == composite.meta().generation
    });
    let running = standing.and_then(|standing| conditions::find(&standing.conditions, RUNNING));
    if running.is_some_and(|running| running.status == "True") {
        return None;
    }
    let message = format!(
        "the composite runs when customize has responded for the first parent, which shows the \
            rights that it requires: {}",
        failure.message
    );
    Some((failure.reason, message))
}

/// Returns the condition of a composite that runs, with an account that may have none of the rights to bind roles.
pub(super) fn permitted(
    account: &Account,
    binds: &[ResourceAttributes],
) -> (bool, &'static str, String) {
    if binds.is_empty() {
        return (
            true,
            "Permitted",
            format!("{account} has the required rights"),
        );
    }
    // It runs: an account with all rights in a role binds it without this verb.
    let rules = rules(account, binds);
    let message = format!(
        "{rules} (for one of these roles at least, or all rights in it): the API server refuses the \
            bindings among its children"
    );
    (false, PERMISSION_MISSING, message)
}
