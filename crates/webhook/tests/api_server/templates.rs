//! Templates: only a user with the rights that a template hands out may write it.

use anyhow::Result;
use kube::api::{Api, Patch, PatchParams, PostParams};
use oz_api::{ExecAccessTemplate, PodAccessTemplate};
use oz_testkit::{CONDITION_TIMEOUT, with_namespace};
use serde_json::json;

use super::support::*;

#[tokio::test]
async fn template_requires_rights_of_its_author() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "author", async |namespace| {
        let namespace = namespace.name();
        let_use(cluster, namespace, "oz-template-manager-role", "devs")?;
        let client = cluster.client("alice").await?;
        let exec = Api::<ExecAccessTemplate>::namespaced(client.clone(), namespace);
        let pods = Api::<PodAccessTemplate>::namespaced(client, namespace);
        let post = PostParams::default();
        let mut for_pods = template("pod");
        for_pods["kind"] = "PodAccessTemplate".into();

        let refused = refusal(exec.create(&post, &parsed(template("shell"))?).await)?;
        assert_eq!(
            (refused.code, refused.reason.as_str()),
            (403, "MissingPermission")
        );
        let pod = "get pods, list pods, watch pods, get pods/exec, create pods/exec";
        let words = format!("alice may not {pod} in namespace {namespace}");
        assert!(refused.message.contains(&words), "{}", refused.message);
        let refused = refusal(pods.create(&post, &parsed(for_pods.clone())?).await)?;
        let words = format!("alice may not create pods, {pod} in namespace {namespace}");
        assert!(refused.message.contains(&words), "{}", refused.message);

        // Kubernetes' own role `edit` permits both, to her group.
        let_use(cluster, namespace, "edit", "devs")?;
        let may = async || {
            Ok(exec
                .create(&post, &parsed(template("shell"))?)
                .await
                .ok()
                .map(drop))
        };
        oz_testkit::eventually("alice to have the role", CONDITION_TIMEOUT, may).await?;
        pods.create(&post, &parsed(for_pods)?).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_template_may_be_labelled_by_those_who_could_not_have_written_it() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "ratchet", async |namespace| {
        let namespace = namespace.name();
        let_use(cluster, namespace, "oz-template-manager-role", "devs")?;
        create_template(cluster, namespace, template("shell")).await?;
        let alice =
            Api::<ExecAccessTemplate>::namespaced(cluster.client("alice").await?, namespace);
        let label = Patch::Merge(json!({ "metadata": { "labels": { "team": "shop" } } }));
        let longer = Patch::Merge(json!({ "spec": { "accessConfig": { "maxDuration": "24h" } } }));

        alice
            .patch("shell", &PatchParams::default(), &label)
            .await?;
        let refused = refusal(alice.patch("shell", &PatchParams::default(), &longer).await)?;
        assert_eq!(refused.reason, "MissingPermission");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn no_template_lets_anybody_into_oz() -> Result<()> {
    let cluster = cluster().await?;
    let admin = Api::<ExecAccessTemplate>::namespaced(cluster.client("admin").await?, NAMESPACE);
    let refused = refusal(
        admin
            .create(&PostParams::default(), &parsed(template("shell"))?)
            .await,
    )?;
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (403, "ReservedNamespace")
    );
    Ok(())
}

#[tokio::test]
async fn template_with_invalid_field_is_refused_with_field() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "fields", async |namespace| {
        let admin =
            Api::<ExecAccessTemplate>::namespaced(cluster.client("admin").await?, namespace.name());
        let mut object = template("shell");
        object["spec"]["accessConfig"]["accessCommand"] = "{{ .Metadata.Nmae }}".into();
        let refused = refusal(admin.create(&PostParams::default(), &parsed(object)?).await)?;
        assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
        let causes = refused
            .details
            .map(|details| details.causes)
            .unwrap_or_default();
        assert_eq!(causes[0].field, "spec.accessConfig.accessCommand");
        Ok(())
    })
    .await
}
