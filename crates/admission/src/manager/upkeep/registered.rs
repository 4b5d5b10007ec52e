//! What is registered: whether the rules that hooks follow could be, and which bundles are.

use super::{super::error::UpkeepError, Upkeep};
use crate::registered_rules::RulesNow;

impl Upkeep {
    /// The bundles that are registered now, for hooks and conversions.
    pub(super) async fn everywhere(&self) -> Result<Vec<String>, UpkeepError> {
        let mut bundles = self.registrar.published().await?;
        bundles.extend(self.conversions.published().await?);
        Ok(bundles)
    }

    /// The first hook whose rules are not known yet.
    pub(in super::super) fn unknown_rules(&self) -> Option<&str> {
        let known = self.registered.as_ref()?;
        let mut hooks = self.declared.hooks.iter().zip(&known.rules);
        hooks
            .find(|(_, rules)| matches!(rules, RulesNow::Unknown { .. }))
            .map(|(hook, _)| hook.name.as_str())
    }

    /// What is registered beside rules that are too many is as it should be; they are not.
    pub(super) fn rules_fit(&self) -> Result<(), UpkeepError> {
        let rules = self.registered.iter().flat_map(|known| &known.rules);
        let mut hooks = self.declared.hooks.iter().zip(rules);
        match hooks.find(|(_, rules)| **rules == RulesNow::Unknown { too_many: true }) {
            Some((hook, _)) => Err(UpkeepError::TooManyRules(hook.name.clone())),
            None => Ok(()),
        }
    }
}
