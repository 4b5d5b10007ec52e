//! The registered state: whether the followed rules fit, and the registered bundles.

use super::{super::error::UpkeepError, Upkeep};
use crate::registered_rules::RulesNow;

impl Upkeep {
    /// Returns the bundles that are registered now, for hooks and conversions.
    pub(super) async fn everywhere(&self) -> Result<Vec<String>, UpkeepError> {
        let mut bundles = self.registrar.published().await?;
        bundles.extend(self.conversions.published().await?);
        Ok(bundles)
    }

    /// Returns the first hook with rules that are not known yet.
    pub(in super::super) fn unknown_rules(&self) -> Option<&str> {
        let known = self.registered.as_ref()?;
        let mut hooks = self.declared.hooks.iter().zip(&known.rules);
        hooks
            .find(|(_, rules)| matches!(rules, RulesNow::Unknown { .. }))
            .map(|(hook, _)| hook.name.as_str())
    }

    /// Checks that no hook follows too many rules. The registration without those rules is correct; the
    /// rules are not.
    pub(super) fn rules_fit(&self) -> Result<(), UpkeepError> {
        let rules = self.registered.iter().flat_map(|known| &known.rules);
        let mut hooks = self.declared.hooks.iter().zip(rules);
        match hooks.find(|(_, rules)| **rules == RulesNow::Unknown { too_many: true }) {
            Some((hook, _)) => Err(UpkeepError::TooManyRules(hook.name.clone())),
            None => Ok(()),
        }
    }
}
