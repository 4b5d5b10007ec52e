//! The chapter in which a request requires an approval.

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use oz_api::ExecAccessTemplate;
use oz_testkit::eventually;
use serde_json::json;

use super::{STEP_TIMEOUT, Story, TEMPLATE, WORKLOAD};
use crate::demo::NAMESPACE;
use crate::demo::people::Answer;

impl Story<'_> {
    /// Requires bob's approval from now on: alice requests access in one terminal, he approves in another.
    pub(super) async fn with_approval(&self) -> Result<()> {
        self.step(8, "Requests that require approvals")?;
        self.bob_has_to_agree().await?;
        let workload = format!("deploy/{WORKLOAD}");
        let words = [
            "exec", "-n", NAMESPACE, &workload, "--reason", "INC-42", "--", "id",
        ];
        let alice = self.alice.ozctl(&words);
        let bob = async {
            let words = ["approvals", "-n", NAMESPACE];
            let (listed, name) = eventually("bob to see it", STEP_TIMEOUT, async || {
                let listed = self.bob.ozctl(&words).await?;
                let row = listed.text.lines().nth(1);
                let name = row.and_then(|row| row.split_whitespace().next());
                Ok(name.map(ToOwned::to_owned).map(|name| (listed, name)))
            })
            .await?;
            let words = ["approve", "-n", NAMESPACE, &name, "--reason", "seen INC-42"];
            let approved = self.bob.ozctl(&words).await?;
            anyhow::Ok((listed, approved))
        };
        let (ran, (listed, approved)) = tokio::try_join!(alice, bob)?;
        self.show_command("bob", &listed)?;
        self.answer("bob", &approved, true, "")?;
        self.show_command("alice", &ran)?;
        ensure!(ran.text.contains("uid="), "it said: {}", ran.text);
        self.good("Her command waited for bob, and ran when he had agreed.")
    }

    /// Shows a command with all of its output.
    fn show_command(&self, who: &str, said: &Answer) -> Result<()> {
        self.command(who, &said.command)?;
        for line in said.text.lines() {
            self.screen.line(&format!("     {line}"))?;
        }
        Ok(())
    }

    async fn bob_has_to_agree(&self) -> Result<()> {
        let group = "rbac.authorization.k8s.io";
        let binding = serde_json::from_value(json!({
            "metadata": {"name": "bob-approves"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "oz-approve-access"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "bob"}],
        }))?;
        let bindings = Api::<RoleBinding>::namespaced(self.admin.clone(), NAMESPACE);
        bindings.create(&PostParams::default(), &binding).await?;
        let approval = json!({ "rules": [{ "name": "lead", "users": ["bob"] }] });
        let patch = json!({ "spec": { "accessConfig": { "approval": approval } } });
        let templates = Api::<ExecAccessTemplate>::namespaced(self.admin.clone(), NAMESPACE);
        let parameters = PatchParams::default();
        templates
            .patch(TEMPLATE, &parameters, &Patch::Merge(patch))
            .await?;
        self.say(&format!(
            "From now on the template `{TEMPLATE}` has a rule of approval: bob has to agree. alice asks as before, and \
             her command waits."
        ))
    }
}
