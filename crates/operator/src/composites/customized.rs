//! The call of `customize` for the first parent, before a composite runs: it shows which other kinds the composite
//! reads, so that all missing rights are reported at once.

use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use kube::core::DynamicObject;
use oz_composites::declared::{Declared, Family};
use oz_composites::related::{self, Rule};
use oz_composites::{Account, protocol};
use oz_core::controller::Failure;
use oz_core::transient::BindableRoles;
use oz_engine::Cx;
use oz_runtime::within;
use serde_json::Value;

use super::Runs;

/// The maximum duration of the call.
const TIMEOUT: Duration = Duration::from_secs(10);

impl Runs {
    /// Returns the roles that children may bind.
    pub(super) fn bindable(&self) -> &BindableRoles {
        &self.bindable.roles
    }

    /// Checks whether the hosts of a composite's functions can be known.
    ///
    /// # Errors
    /// A host has no namespace and does not resolve. The error names the hook.
    pub(super) async fn check_hosts(&self, declared: &Declared) -> Result<(), Failure> {
        for (name, call) in declared.calls() {
            if call.in_process.is_none() && !call.url.is_empty() {
                self.webhooks.check_host(name, call).await?;
            }
        }
        Ok(())
    }

    /// Returns the rules that `customize` returns for the first parent; none without a parent, or if the account may
    /// not list parents.
    pub(super) async fn customized(
        &self,
        cx: &Cx,
        declared: &Declared,
        family: &Family,
        account: &Account,
    ) -> Result<Vec<Rule>, Failure> {
        let Some(call) = &declared.customize else {
            return Ok(Vec::new());
        };
        let Some(parent) = self.first_parent(declared, family, account).await else {
            return Ok(Vec::new());
        };
        let request = protocol::customizing(declared, family, &parent);
        let metadata = &parent.metadata;
        let read = |answer: &Value| related::rules(answer, call.version, metadata);
        let now = cx.now();
        let asked = async {
            match &call.in_process {
                Some(policy) => self.policies.document(policy, request, now, read).await,
                None => self.webhooks.call(call, &request, now, read).await,
            }
        };
        let asked = tokio::time::timeout(TIMEOUT, asked).await;
        let asked = asked.unwrap_or_else(|_| {
            let message = format!("no response to customize within {TIMEOUT:?}");
            Err(Failure::transient("HookFailed", message).into())
        });
        asked.map_err(|refused| refused.failure)
    }

    /// Returns the first parent that the composite selects.
    async fn first_parent(
        &self,
        declared: &Declared,
        family: &Family,
        account: &Account,
    ) -> Option<DynamicObject> {
        let client = self.identity(account).ok()?.client().clone();
        let parents: Api<DynamicObject> = Api::all_with(client, &family.parent.resource);
        let mut page = ListParams::default().limit(1);
        if !declared.selector.selects_all() {
            page = page.labels_from(&declared.selector);
        }
        let what = || format!("failed to list {}", declared.parent);
        let listed = within(parents.list(&page), what).await.ok()?;
        listed.items.into_iter().next()
    }
}
