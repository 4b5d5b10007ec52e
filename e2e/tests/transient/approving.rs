//! Transient bindings for which an access policy requires approvals.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_api::{
    AccessPolicy, AccessRequestApproval, BindingStatus, EndReason, Phase,
    TransientClusterRoleBinding, TransientRoleBinding, conditions, labels,
};
use oz_core::transient::Kind;
use oz_e2e::{NAMESPACE, Person};
use oz_testkit::{CONDITION_TIMEOUT, cargo_binary, eventually};
use serde_json::{Value, json};

use crate::support::*;

const ANSWERS: &str = "accessrequestapprovals";
const CAROL: Person = Person::new("carol", &["approvers"]);
const DAVE: Person = Person::new("dave", &["approvers"]);

/// A namespace in which bindings require approvals, by a separate access policy that is deleted at the end of the test.
pub(crate) struct Stage {
    pub(crate) fixture: Fixture,
    policy: AccessPolicy,
}

impl Stage {
    pub(crate) async fn set(prefix: &str, then: &Value) -> Result<Self> {
        let fixture = Fixture::set(prefix).await?;
        let text = format!("request.namespace == '{}'", fixture.name());
        Self::with(fixture, &text, then).await
    }

    pub(crate) async fn with(fixture: Fixture, text: &str, then: &Value) -> Result<Self> {
        let may = json!({
            "metadata": {"name": "approvers-may"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "oz-approve-access",
            },
            "subjects": [{
                "kind": "Group", "name": "approvers", "apiGroup": "rbac.authorization.k8s.io",
            }],
        });
        for namespace in [fixture.name(), NAMESPACE] {
            apply_as(
                &Api::<RoleBinding>::namespaced(fixture.admin.clone(), namespace),
                may.clone(),
            )
            .await?;
        }
        let policy: AccessPolicy = serde_json::from_value(json!({
            "metadata": {"name": fixture.name()},
            "spec": {"match": text, "then": then},
        }))?;
        let policies = Api::<AccessPolicy>::all(fixture.admin.clone());
        policies.create(&PostParams::default(), &policy).await?;
        Ok(Self { fixture, policy })
    }

    /// Creates a binding once the webhook evaluates the policy for it.
    pub(crate) async fn waiting(&self, name: &str) -> Result<TransientRoleBinding> {
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let object = binding(name, &json!({"duration": "10m"}));
        let parsed: TransientRoleBinding = serde_json::from_value(object.clone())?;
        eventually("the policy to be asked", CONDITION_TIMEOUT, async || {
            let stamped = self.fixture.bindings().create(&dry, &parsed).await?;
            Ok(self.is_evaluated(&stamped)?.then_some(()))
        })
        .await?;
        self.fixture.create(&object).await?;
        asked(&self.fixture.bindings(), name).await
    }

    pub(crate) async fn answer(
        &self,
        by: Person,
        answer: &AccessRequestApproval,
    ) -> kube::Result<()> {
        let (admin, namespace) = (&self.fixture.admin, self.fixture.name());
        by.create(admin, namespace, ANSWERS, answer).await.map(drop)
    }

    /// Deletes the policy.
    pub(crate) async fn forget(&self) -> Result<()> {
        let policies = Api::<AccessPolicy>::all(self.fixture.admin.clone());
        let name = self.policy.name_any();
        match policies.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other.map(drop).map_err(Into::into),
        }
    }

    /// Waits until the webhook no longer evaluates the policy.
    pub(crate) async fn forgotten(&self) -> Result<()> {
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let object = binding("probe", &json!({"duration": "10m"}));
        let object: TransientRoleBinding = serde_json::from_value(object)?;
        eventually("the policy to be gone", CONDITION_TIMEOUT, async || {
            let stamped = self.fixture.bindings().create(&dry, &object).await?;
            Ok((!self.is_evaluated(&stamped)?).then_some(()))
        })
        .await
    }

    /// Checks whether the webhook evaluated the policy for an object that it stamped.
    fn is_evaluated(&self, stamped: &impl kube::ResourceExt) -> Result<bool> {
        let stamp = stamped.annotations().get(labels::REQUESTER);
        let stamp: Value = serde_json::from_str(stamp.context("no stamp")?)?;
        let policies = stamp["judgement"]["policies"].as_array();
        let name = self.policy.name_any();
        Ok(policies.is_some_and(|all| all.iter().any(|policy| policy["name"] == name)))
    }

    async fn made(&self, name: &str) -> Result<bool> {
        Ok(self.fixture.made().get_opt(name).await?.is_some())
    }
}

/// Waits until the status shows the required approvals.
async fn asked<K: Kind>(api: &Api<K>, name: &str) -> Result<K> {
    eventually("others to be asked", CONDITION_TIMEOUT, async || {
        let found = api.get(name).await?;
        let asked = found
            .status()
            .is_some_and(|status| status.approval.is_some());
        Ok(asked.then_some(found))
    })
    .await
}

/// Returns an approval or a denial of a waiting binding.
pub(crate) fn answer_to<K: Kind>(
    binding: &K,
    name: &str,
    approval: bool,
) -> Result<AccessRequestApproval> {
    let status = binding.status().context("no status")?;
    let asked = status.approval.as_ref().context("nobody is asked")?;
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "accessRequestRef": {"kind": K::title(), "name": binding.name_any(), "uid": binding.uid()},
            "approval": approval, "digest": asked.digest,
        },
    }))?)
}

fn approvers() -> Value {
    json!({"approval": {"rules": [
        {"name": "security", "users": ["carol"]},
        {"name": "sre", "groups": ["approvers"]},
    ]}})
}

fn said(status: &BindingStatus) -> String {
    let found = conditions::find(&status.conditions, conditions::APPROVED);
    found.map_or_else(String::new, |found| {
        format!("{}: {}", found.status, found.message)
    })
}

#[tokio::test]
async fn a_role_is_bound_when_all_rules_hold_and_its_time_counts_from_then() -> Result<()> {
    let stage = Stage::set("agreed", &approvers()).await?;
    let waiting = stage.waiting("on-call").await?;
    let line = said(&waiting.status.clone().context("no status")?);
    ensure!(line.contains("/security: carol may"), "{line}");
    stage
        .answer(CAROL, &answer_to(&waiting, "one", true)?)
        .await?;
    ensure!(!stage.made("on-call").await? && !stage.fixture.alice_may()?);
    stage
        .answer(DAVE, &answer_to(&waiting, "two", true)?)
        .await?;
    let status = stage.fixture.phase("on-call", Phase::Active).await?;
    let (from, until) = (
        status.activated_at.context("no start")?,
        status.expires_at.context("no end")?,
    );
    assert_eq!(until.duration_since(from).as_secs(), 600);
    let line = said(&status);
    ensure!(
        line.starts_with("True: Approved by carol (") && line.contains("dave ("),
        "{line}"
    );
    ensure!(stage.fixture.alice_may()?);
    stage.forget().await
}

#[tokio::test]
async fn denial_ends_binding_request_and_later_approval_is_refused() -> Result<()> {
    let stage = Stage::set("denied", &approvers()).await?;
    let waiting = stage.waiting("on-call").await?;
    stage
        .answer(CAROL, &answer_to(&waiting, "yes", true)?)
        .await?;
    stage
        .answer(DAVE, &answer_to(&waiting, "no", false)?)
        .await?;
    let status = stage.fixture.phase("on-call", Phase::Denied).await?;
    ensure!(said(&status).contains("dave denied it"), "{status:?}");
    let late = stage
        .answer(DAVE, &answer_to(&waiting, "late", true)?)
        .await;
    ensure!(refusal(late)?.contains("is Denied already"));
    ensure!(!stage.made("on-call").await?);
    stage.forget().await
}

#[tokio::test]
async fn binding_without_approval_expires_at_timeout() -> Result<()> {
    let mut then = approvers();
    then["approval"]["timeout"] = json!("3s");
    let stage = Stage::set("late", &then).await?;
    stage.waiting("on-call").await?;
    let status = stage.fixture.phase("on-call", Phase::Expired).await?;
    assert_eq!(
        status.ending.context("no ending")?.reason,
        EndReason::ApprovalTimedOut
    );
    ensure!(!stage.made("on-call").await?);
    stage.forget().await
}

#[tokio::test]
async fn cluster_binding_is_approved_in_namespace_of_oz() -> Result<()> {
    let fixture = Fixture::set("whole").await?;
    let name = fixture.name().to_owned();
    let text = format!("request.kind == 'TransientClusterRoleBinding' && request.name == '{name}'");
    let stage = Stage::with(fixture, &text, &approvers()).await?;
    let api = Api::<TransientClusterRoleBinding>::all(stage.fixture.lead.clone());
    let mut object = binding(&name, &json!({"duration": "10m"}));
    // Other tests check that alison has no rights.
    object["spec"]["subjects"][0]["name"] = json!("auditor");
    let object: TransientClusterRoleBinding = serde_json::from_value(object)?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually("the policy to be asked", CONDITION_TIMEOUT, async || {
        let stamped = api.create(&dry, &object).await?;
        Ok(stage.is_evaluated(&stamped)?.then_some(()))
    })
    .await?;
    api.create(&PostParams::default(), &object).await?;
    let waiting = asked(&api, &name).await?;
    let answer = answer_to(&waiting, &format!("{name}-one"), true)?;
    ensure!(
        refusal(stage.answer(CAROL, &answer).await)?.contains("approvals are in oz's namespace")
    );
    let admin = &stage.fixture.admin;
    CAROL.create(admin, NAMESPACE, ANSWERS, &answer).await?;
    let answer = answer_to(&waiting, &format!("{name}-two"), true)?;
    DAVE.create(admin, NAMESPACE, ANSWERS, &answer).await?;
    phase_of(&api, &name, Phase::Active).await?;
    api.delete(&name, &DeleteParams::default()).await?;
    stage.forget().await
}

#[tokio::test]
async fn ozctl_lists_explains_and_answers_it() -> Result<()> {
    let stage = Stage::set(
        "asked",
        &json!({"approval": {"rules": [
            {"name": "security", "groups": ["security"]},
        ]}}),
    )
    .await?;
    let may = json!({
        "metadata": {"name": "security-may"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "oz-approve-access",
        },
        "subjects": [{"kind": "Group", "name": "security", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let fixture = &stage.fixture;
    apply_as(
        &Api::<RoleBinding>::namespaced(fixture.admin.clone(), fixture.name()),
        may,
    )
    .await?;
    fixture.cluster.issue_kubeconfig("sally", &["security"])?;
    let waiting = stage.waiting("on-call").await?;
    let ozctl = |user: &str, words: &[&str]| -> Result<String> {
        let mut command = std::process::Command::new(cargo_binary("ozctl")?);
        command
            .args(words)
            .args(["-n", fixture.name(), "--kubeconfig"]);
        let output = command
            .arg(fixture.cluster.kubeconfig(user))
            .env("NO_COLOR", "1")
            .output()?;
        let told = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&told).into_owned())
    };
    let listed = ozctl("sally", &["approvals"])?;
    ensure!(
        listed.contains("on-call") && listed.contains("ClusterRole view"),
        "{listed}"
    );
    let listed = ozctl("lea", &["approvals"])?;
    ensure!(!listed.contains("on-call"), "it is lea's own: {listed}");
    let explained = ozctl("admin", &["explain", "trb/on-call"])?;
    ensure!(
        explained.contains("no  approval: waiting for"),
        "{explained}"
    );
    let approved = ozctl("sally", &["approve", "trb/on-call"])?;
    ensure!(
        approved.contains("TransientRoleBinding on-call of lea approved"),
        "{approved}"
    );
    fixture.phase(&waiting.name_any(), Phase::Active).await?;
    stage.forget().await
}

/// Returns the message with which an approval was refused.
pub(crate) fn refusal<T>(answer: kube::Result<T>) -> Result<String> {
    match answer {
        Ok(_) => anyhow::bail!("it was let in"),
        Err(kube::Error::Api(status)) => Ok(status.message.clone()),
        Err(error) => Err(error.into()),
    }
}
