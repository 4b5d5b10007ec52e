//! Transient bindings with a later window: future rights that depend on the requester's present groups.

use anyhow::{Result, ensure};
use futures::future::join_all;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_api::{Phase, TransientClusterRoleBinding, TransientRoleBinding, example_com};
use oz_core::transient::Kind;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use crate::approving::refusal;
use crate::support::*;

const DAY: i64 = 24 * 3600;
/// The default of `transient.maxWaitingBindings`.
const MOST: usize = 20;

/// Requesting a window years ahead, by each kind, to keep access after leaving the organization: the webhook denies it,
/// and states when the binding may be created.
#[tokio::test]
async fn window_beyond_the_lead_is_refused_by_every_kind() -> Result<()> {
    let fixture = Fixture::set("years").await?;
    for days in [8, 3650] {
        let window = json!({"validFrom": from_now(days * DAY), "duration": "1h"});
        let told = fixture.refused("lea", &binding("far", &window)).await?;
        ensure!(
            told.contains("transient.maxBindingLead") && told.contains("create it at"),
            "{told}"
        );
        let everywhere: TransientClusterRoleBinding =
            serde_json::from_value(binding(fixture.name(), &window))?;
        let all = Api::all(fixture.lead.clone());
        let told = refusal(all.create(&PostParams::default(), &everywhere).await)?;
        ensure!(told.contains("transient.maxBindingLead"), "{told}");
        // The published kind accepts windows that never open, and denies these.
        let flat: example_com::RoleBinding = serde_json::from_value(json!({
            "apiVersion": "example.com/v1", "kind": "TransientRoleBinding",
            "metadata": {"name": "far"},
            "validFrom": from_now(days * DAY), "validUntil": from_now(days * DAY + 600),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "alison"}],
        }))?;
        let published = Api::namespaced(fixture.admin.clone(), fixture.name());
        let told = refusal(published.create(&PostParams::default(), &flat).await)?;
        ensure!(told.contains("transient.maxBindingLead"), "{told}");
    }
    Ok(())
}

/// Moving the window of a waiting transient binding, as an administrator: the API server denies it, because the spec is
/// immutable.
#[tokio::test]
async fn window_that_waits_is_not_moved() -> Result<()> {
    let fixture = Fixture::set("moved-window").await?;
    let window = json!({"validFrom": from_now(900), "duration": "10m"});
    fixture.create(&binding("shift", &window)).await?;
    let admin = Api::<TransientRoleBinding>::namespaced(fixture.admin.clone(), fixture.name());
    for from in [json!(from_now(30 * DAY)), json!(null)] {
        let change = json!({"spec": {"validFrom": from}});
        let (merge, parameters) = (Patch::Merge(&change), PatchParams::default());
        let told = refusal(admin.patch("shift", &parameters, &merge).await)?;
        ensure!(told.contains("immutable"), "{told}");
    }
    Ok(())
}

/// Adding an owner reference to a transient binding as an administrator, so that the garbage collector deletes it
/// without the right to delete: the API server denies it.
#[tokio::test]
async fn owner_reference_added_to_a_binding_is_refused() -> Result<()> {
    let fixture = Fixture::set("owned-window").await?;
    let window = json!({"validFrom": from_now(900), "duration": "10m"});
    fixture.create(&binding("shift", &window)).await?;
    let admin = Api::<TransientRoleBinding>::namespaced(fixture.admin.clone(), fixture.name());
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"});
    let change = json!({"metadata": {"ownerReferences": [owner]}});
    let (merge, parameters) = (Patch::Merge(&change), PatchParams::default());
    let told = refusal(admin.patch("shift", &parameters, &merge).await)?;
    ensure!(told.contains("metadata.ownerReferences"), "{told}");
    Ok(())
}

/// Requesting more future windows at once than one user may have, with generated names and by two kinds: the maximum
/// waits, and the webhook or the operator denies the others; other users may still request windows, and so may the user
/// after a deletion.
#[tokio::test]
async fn as_many_windows_of_one_user_wait_as_may() -> Result<()> {
    let fixture = Fixture::set("hoard").await?;
    fixture.cluster.issue_kubeconfig("hoarder", &["leads"])?;
    let client = fixture.cluster.client("hoarder").await?;
    let here = Api::<TransientRoleBinding>::namespaced(client.clone(), fixture.name());
    let everywhere = Api::<TransientClusterRoleBinding>::all(client);
    let parameters = PostParams::default();
    let window = json!({"validFrom": from_now(3600), "duration": "10m"});
    let mut dated = binding("", &window);
    dated["metadata"] = json!({"generateName": format!("{}-", fixture.name())});
    let (namespaced, of_cluster) = (
        serde_json::from_value(dated.clone())?,
        serde_json::from_value(dated.clone())?,
    );
    let attempts = (0..15).map(|_| async {
        tokio::join!(
            here.create(&parameters, &namespaced),
            everywhere.create(&parameters, &of_cluster)
        )
    });
    let mut refused = 0;
    for (first, second) in join_all(attempts).await {
        for error in [first.err(), second.err()].into_iter().flatten() {
            let told = error.to_string();
            ensure!(told.contains("transient.maxWaitingBindings"), "{told}");
            refused += 1;
        }
    }
    // Concurrent calls can pass the webhook together; the operator denies the excess, once the denial is on record.
    let denied = eventually("the excess to be denied", CONDITION_TIMEOUT, async || {
        let mut phases = phases_of(&here, fixture.name()).await?;
        phases.extend(phases_of(&everywhere, fixture.name()).await?);
        let count = |phase| phases.iter().filter(|one| **one == Some(phase)).count();
        let (waiting, denied) = (count(Phase::Pending), count(Phase::Denied));
        ensure!(
            (waiting, waiting + denied) == (MOST, phases.len()),
            "{waiting} wait, {denied} are denied"
        );
        Ok(Some(denied))
    })
    .await?;
    ensure!(denied + refused == 30 - MOST, "{denied}, {refused}");
    // A binding that begins at once does not wait, and each user has a separate limit.
    let at_once = binding("at-once", &json!({"duration": "10m"}));
    here.create(&parameters, &serde_json::from_value(at_once)?)
        .await?;
    fixture.create(&binding("another", &window)).await?;
    let first = here.list(&ListParams::default()).await?;
    let mut ones = first.items.iter().map(|one| one.name_any());
    let one = ones.find(|name| name.starts_with(fixture.name()));
    here.delete(&one.unwrap_or_default(), &DeleteParams::default())
        .await?;
    eventually("room for another", CONDITION_TIMEOUT, async || {
        let again = serde_json::from_value(dated.clone())?;
        Ok(here.create(&parameters, &again).await.ok().map(drop))
    })
    .await?;
    for left in everywhere.list(&ListParams::default()).await? {
        if left.name_any().starts_with(fixture.name()) {
            let name = left.name_any();
            everywhere.delete(&name, &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

/// Returns the phases of the bindings with this name prefix; `None` until the operator writes a status.
async fn phases_of<K: Kind>(api: &Api<K>, prefix: &str) -> Result<Vec<Option<Phase>>> {
    let all = api.list(&ListParams::default()).await?;
    let named = all.iter().filter(|one| one.name_any().starts_with(prefix));
    Ok(named
        .map(|one| one.status().map(|status| status.phase))
        .collect())
}
