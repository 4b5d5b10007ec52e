//! An earlier binding of the same name belongs to another user.

use anyhow::Result;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, PostParams};
use oz_api::Phase;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn a_foreign_binding_of_the_name_is_left_alone_until_it_goes() -> Result<()> {
    let fixture = Fixture::set("conflict").await?;
    let foreign: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "taken"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [],
    }))?;
    let foreign = fixture
        .made()
        .create(&PostParams::default(), &foreign)
        .await?;
    let mark = fixture.cluster.audit().mark()?;
    fixture
        .create(&binding("taken", &json!({"duration": "10m"})))
        .await?;
    let conflict = async || {
        let status = fixture.bindings().get("taken").await?.status;
        let found = status.filter(|status| condition(status, "NameConflict").starts_with("True"));
        anyhow::Ok(found)
    };
    let status = eventually("NameConflict", CONDITION_TIMEOUT, conflict).await?;
    assert_eq!(status.phase, Phase::Pending);

    // The operator reads it again, and again writes nothing.
    eventually("another look", CONDITION_TIMEOUT, async || {
        let looks = fixture.cluster.audit().since(mark)?.by_user(&operator());
        let looks = looks
            .on("rbac.authorization.k8s.io", "rolebindings")
            .in_namespace(fixture.name())
            .with_verb("get");
        Ok((looks.len() >= 3).then_some(()))
    })
    .await?;
    let writes = fixture.cluster.audit().since(mark)?.by_user(&operator());
    let writes = writes
        .in_namespace(fixture.name())
        .writes()
        .filter(|entry| entry.resource != "events");
    let counts = writes.counts();
    assert_eq!(writes.len(), 1, "the status: {counts:?}");
    let now = fixture.made().get("taken").await?;
    assert_eq!(
        now.metadata.resource_version,
        foreign.metadata.resource_version
    );

    fixture
        .made()
        .delete("taken", &DeleteParams::default())
        .await?;
    let status = fixture.phase("taken", Phase::Active).await?;
    assert_eq!(condition(&status, "NameConflict"), "False (NameAvailable)");
    Ok(())
}
