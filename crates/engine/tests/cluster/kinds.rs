//! Kinds that are named at run time.

use anyhow::{Result, bail, ensure};
use kube::core::{DynamicObject, GroupVersionKind};
use oz_engine::Engine;
use oz_runtime::{Keep, Kind, Runtime, Selection};
use oz_testkit::{CONDITION_TIMEOUT, eventually, with_namespace};
use tokio_util::sync::CancellationToken;

use crate::harness::{cluster, engine_client};

#[tokio::test(flavor = "multi_thread")]
async fn the_scope_of_a_kind_is_what_the_api_server_says_it_is() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "kinds", async |namespace| {
        let (client, clock) = engine_client(cluster, "engine-kinds").await?;
        let rbac = |kind: &str| GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind);
        let role = Kind::discover(&client, &rbac("Role")).await?;
        let cluster_role = Kind::discover(&client, &rbac("ClusterRole")).await?;
        ensure!(!role.cluster_scoped && cluster_role.cluster_scoped);
        assert_eq!(cluster_role.resource.plural, "clusterroles");
        let boxes = GroupVersionKind::gvk("test.wizardofoz.co", "v1", "Timebox");
        let boxes = Kind::discover(&client, &boxes).await?;
        assert_eq!(boxes, Kind::from_type::<crate::timebox::Timebox>());
        let Err(unknown) = Kind::discover(&client, &rbac("Crown")).await else {
            bail!("there is no such kind");
        };
        assert!(unknown.message.contains("Crown"), "{unknown}");

        // If only one namespace is watched, cluster-scoped objects are watched all the same.
        let mut engine = Engine::new(Runtime::new("oz", client, clock));
        let feeds = engine.runtime().feeds().clone();
        feeds.restrict([namespace.name().to_owned()]);
        let all = Selection::default();
        let roles = feeds.store_of::<DynamicObject>(&cluster_role, all, &Keep::default());
        let stop = CancellationToken::new();
        let task = tokio::spawn(engine.run(stop.clone()));
        eventually("the cluster's roles", CONDITION_TIMEOUT, async || {
            Ok(roles.get(None, "cluster-admin").map(|_| ()))
        })
        .await?;
        stop.cancel();
        Ok(task.await??)
    })
    .await
}
