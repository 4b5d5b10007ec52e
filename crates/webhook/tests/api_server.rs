//! The webhook on a real API server, alone: what people do, what they are told, and what is stored.

mod support;

use anyhow::Result;
use kube::ResourceExt;
use kube::api::PostParams;
use oz_core::access::stamp;
use oz_core::access::request::Request;
use oz_core::labels;
use oz_testkit::with_namespace;
use serde_json::json;
use support::*;

#[tokio::test]
async fn a_request_is_stamped_with_who_asks_whatever_they_wrote() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "stamp", async |namespace| {
        let namespace = namespace.name();
        let_use(cluster, namespace, "oz-request-access", "devs")?;
        create_template(cluster, namespace, template("shell")).await?;
        let mut forged = request("mine", "shell");
        forged["metadata"]["annotations"] =
            json!({ labels::REQUESTED_BY: "admin", labels::REQUESTER: "{\"user\":\"admin\"}" });
        let alice = requests(cluster.client("alice").await?, namespace);

        let created = alice.create(&PostParams::default(), &parsed(forged)?).await?;

        assert_eq!(created.annotations()[labels::REQUESTED_BY], "alice");
        let seen = Request::from(&created);
        let requester =
            stamp::verify(&keys(cluster).await?, seen.kind, seen.metadata, &seen.spec_digest)?;
        assert_eq!(requester.user, "alice");
        assert_eq!(requester.groups, ["devs", "system:authenticated"]);
        let owners = created.owner_references();
        assert_eq!((owners[0].kind.as_str(), owners[0].name.as_str()), ("ExecAccessTemplate", "shell"));
        Ok(())
    })
    .await
}
