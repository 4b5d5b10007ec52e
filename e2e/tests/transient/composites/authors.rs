//! The users who may declare composites.

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use oz_api::composite::CompositeController;
use oz_e2e::NAMESPACE;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use super::world::composite;
use crate::support::*;

const GROUP: &str = "rbac.authorization.k8s.io";

fn bound(kind: &str, name: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
        "subjects": [{"kind": "User", "name": user, "apiGroup": GROUP}],
    })
}

/// Grants a user the right to write CompositeControllers, and no other.
async fn author(admin: &Client, user: &str) -> Result<()> {
    let role = json!({
        "metadata": {"name": user},
        "rules": [{
            "apiGroups": ["metacontroller.k8s.io"], "resources": ["compositecontrollers"],
            "verbs": ["get", "create", "patch", "delete"],
        }],
    });
    apply_as(&Api::<ClusterRole>::all(admin.clone()), role).await?;
    let binding = bound("ClusterRole", user, user);
    apply_as(&Api::<ClusterRoleBinding>::all(admin.clone()), binding).await?;
    Ok(())
}

/// Grants a user the right to use the account of composites.
async fn may_be_the_account(admin: &Client, user: &str) -> Result<()> {
    let role = json!({
        "metadata": {"name": user},
        "rules": [{
            "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["oz-composites"],
            "verbs": ["impersonate"],
        }],
    });
    apply_as(&Api::<Role>::namespaced(admin.clone(), NAMESPACE), role).await?;
    let binding = bound("Role", user, user);
    apply_as(
        &Api::<RoleBinding>::namespaced(admin.clone(), NAMESPACE),
        binding,
    )
    .await?;
    Ok(())
}

#[tokio::test]
async fn composite_of_author_without_right_to_account_is_refused() -> Result<()> {
    let fixture = Fixture::set("authors").await?;
    let user = "olga";
    fixture.cluster.issue_kubeconfig(user, &["authors"])?;
    author(&fixture.admin, user).await?;
    let theirs: Api<CompositeController> = Api::all(fixture.cluster.client(user).await?);
    let declared: CompositeController = serde_json::from_value(composite("authored", "InPlace"))?;
    let create = async || theirs.create(&PostParams::default(), &declared).await;
    // Until her right takes effect she may not write any.
    let said = eventually(
        "oz to refuse it",
        CONDITION_TIMEOUT,
        async || match create().await {
            Ok(_) => bail!("it was let in"),
            Err(kube::Error::Api(status)) => {
                let message = status.message.clone();
                Ok(message.contains("admission webhook").then_some(message))
            }
            Err(error) => Err(error.into()),
        },
    )
    .await?;
    ensure!(said.contains("may not impersonate"), "{said}");
    ensure!(said.contains(r#""verbs":["impersonate"]"#), "{said}");

    let api: Api<CompositeController> = Api::all(fixture.admin.clone());
    api.create(&PostParams::default(), &declared).await?;
    let change = Patch::Merge(json!({"spec": {"resyncPeriodSeconds": 7}}));
    let change = async || {
        theirs
            .patch("authored", &PatchParams::default(), &change)
            .await
    };
    match change().await {
        Err(kube::Error::Api(status)) if status.message.contains("may not impersonate") => {}
        other => bail!("{other:?}"),
    }

    may_be_the_account(&fixture.admin, user).await?;
    eventually("her change to be let in", CONDITION_TIMEOUT, async || {
        Ok(change().await.ok().map(drop))
    })
    .await?;
    theirs.delete("authored", &Default::default()).await?;
    Ok(())
}
