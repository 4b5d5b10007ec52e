//! Requests: stamped, denied, recorded, and immutable afterwards.

use anyhow::Result;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use oz_api::{ExecAccessRequest, ExecAccessTemplate, Requester, labels};
use oz_core::access::request::Request;
use oz_core::access::stamp;
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually, with_namespace};
use serde_json::{Value, json};

use super::support::*;

/// Returns the user that the operator accepts as the requester.
async fn believed(cluster: &Cluster, request: &ExecAccessRequest) -> Result<Requester> {
    let seen = Request::from(request);
    Ok(stamp::verify(
        &keys(cluster).await?,
        seen.kind,
        seen.metadata,
        &seen.spec.digest(),
    )?)
}

fn merge(patch: Value) -> Patch<Value> {
    Patch::Merge(patch)
}

#[tokio::test]
async fn request_is_stamped_with_authenticated_user() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "stamp", async |namespace| {
        let namespace = namespace.name();
        let_use(cluster, namespace, "oz-request-access", "devs")?;
        create_template(cluster, namespace, template("shell")).await?;
        let alice = requests(cluster.client("alice").await?, namespace);
        let mut forged = request("mine", "shell");
        forged["metadata"]["annotations"] =
            json!({ labels::REQUESTED_BY: "admin", labels::REQUESTER: "{\"user\":\"admin\"}" });
        let mut generated = request("", "shell");
        generated["metadata"] = json!({ "generateName": "alice-" });

        for object in [forged, generated] {
            let created = alice
                .create(&PostParams::default(), &parsed(object)?)
                .await?;

            assert_eq!(created.annotations()[labels::REQUESTED_BY], "alice");
            let requester = believed(cluster, &created).await?;
            assert_eq!(requester.user, "alice");
            assert_eq!(requester.groups, ["devs", "system:authenticated"]);
            let owners = created.owner_references();
            assert_eq!(owners.len(), 1);
            assert_eq!(
                (owners[0].kind.as_str(), owners[0].name.as_str()),
                ("ExecAccessTemplate", "shell")
            );
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_stamp_copied_to_another_request_is_overwritten() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "copy", async |namespace| {
        let namespace = namespace.name();
        let admin = requests(cluster.client("admin").await?, namespace);
        let_use(cluster, namespace, "oz-request-access", "devs")?;
        create_template(cluster, namespace, template("shell")).await?;
        let bob = requests(cluster.client("bob").await?, namespace);
        let of_bob = bob
            .create(&PostParams::default(), &parsed(request("bobs", "shell"))?)
            .await?;

        let mut copy = request("bobs-2", "shell");
        copy["metadata"]["annotations"] = json!(of_bob.annotations());
        let alice = requests(cluster.client("alice").await?, namespace);
        let created = alice.create(&PostParams::default(), &parsed(copy)?).await?;
        assert_eq!(believed(cluster, &created).await?.user, "alice");

        // Nor can any user add it afterwards.
        let stolen = merge(json!({ "metadata": { "annotations": of_bob.annotations() } }));
        let refused = refusal(
            admin
                .patch("bobs-2", &PatchParams::default(), &stolen)
                .await,
        )?;
        assert_eq!((refused.code, refused.reason.as_str()), (403, "Immutable"));
        let expected = "error - crds.wizardofoz.co/requested-by is an immutable annotation \
                        (\"alice\"), cannot update to \"bob\"";
        assert!(refused.message.ends_with(expected), "{}", refused.message);
        let requester = json!({ labels::REQUESTER: of_bob.annotations()[labels::REQUESTER] });
        let stolen = merge(json!({ "metadata": { "annotations": requester } }));
        let refused = refusal(
            admin
                .patch("bobs-2", &PatchParams::default(), &stolen)
                .await,
        )?;
        assert_eq!((refused.code, refused.reason.as_str()), (403, "Immutable"));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn refused_request_has_reason_and_audit_record() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "deny", async |namespace| {
        let namespace = namespace.name();
        let_use(cluster, namespace, "oz-request-access", "devs")?;
        let_use(cluster, namespace, "oz-request-access", "interns")?;
        create_template(cluster, namespace, template("shell")).await?;
        let post = PostParams::default();
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let object: ExecAccessRequest = parsed(request("mine", "shell"))?;

        let mallory = requests(cluster.client("mallory").await?, namespace);
        for parameters in [&dry_run, &post] {
            let refused = refusal(mallory.create(parameters, &object).await)?;
            assert_eq!((refused.code, refused.reason.as_str()), (403, "NotAllowed"));
            let words = "mallory is in none of the groups that template shell allows (devs)";
            assert!(refused.message.contains(words), "{}", refused.message);
        }
        let alice = requests(cluster.client("alice").await?, namespace);
        alice.create(&dry_run, &object).await?;
        let created = alice.create(&post, &object).await?;

        let here: Vec<Value> = records()?
            .into_iter()
            .filter(|record| record["request"]["namespace"] == namespace)
            .filter(|record| record["request"]["name"] == "mine")
            .collect();
        let [denied, admitted] = &here[..] else {
            panic!("{here:#?}")
        };
        assert_eq!(
            (&denied["action"], &denied["user"]["user"]),
            (&json!("RequestDenied"), &json!("mallory"))
        );
        assert_eq!(admitted["action"], "RequestCreated");
        assert_eq!(
            (&admitted["component"], &admitted["replica"]),
            (&json!("oz-webhook"), &json!("oz-0"))
        );
        assert_eq!(admitted["request"]["uid"], json!(created.uid()));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn spec_of_stored_request_is_immutable() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "spec", async |namespace| {
        let admin = requests(cluster.client("admin").await?, namespace.name());
        let mut object = request("mine", "unknown");
        object["spec"]["targetPod"] = "web-0".into();
        admin
            .create(&PostParams::default(), &parsed(object)?)
            .await?;
        let patch = |patch: Value| {
            let admin = admin.clone();
            async move {
                admin
                    .patch("mine", &PatchParams::default(), &merge(patch))
                    .await
            }
        };

        let refused = refusal(patch(json!({ "spec": { "targetPod": "web-1" } })).await)?;
        let words =
            "error - Spec.TargetPod is an immutable field, create a new PodAccessRequest instead";
        assert!(refused.message.contains(words), "{}", refused.message);
        let refused = refusal(patch(json!({ "spec": { "duration": "24h" } })).await)?;
        assert!(
            refused.message.contains("spec is immutable"),
            "{}",
            refused.message
        );
        patch(json!({ "metadata": { "labels": { "team": "shop" } } })).await?;
        patch(json!({ "metadata": { "finalizers": ["example.com/wait"] } })).await?;
        patch(json!({ "metadata": { "finalizers": null } })).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn request_status_is_written_by_operator_only() -> Result<()> {
    let cluster = cluster().await?;
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    cluster.issue_kubeconfig(collector, &["system:serviceaccounts", "system:masters"])?;
    with_namespace(cluster, "status", async |namespace| {
        let namespace = namespace.name();
        let admin = requests(cluster.client("admin").await?, namespace);
        admin
            .create(&PostParams::default(), &parsed(request("mine", "unknown"))?)
            .await?;
        kubectl(
            cluster,
            "admin",
            &[
                "create",
                "role",
                "liar",
                "--verb=patch,update",
                "--resource=execaccessrequests.crds.wizardofoz.co/status",
                "-n",
                namespace,
            ],
        )?;
        kubectl(
            cluster,
            "admin",
            &[
                "create",
                "rolebinding",
                "liar",
                "--role=liar",
                "--group=devs",
                "-n",
                namespace,
            ],
        )?;
        let active = merge(json!({ "status": { "phase": "Active", "ready": true } }));
        for user in ["alice", "admin", collector] {
            let api = requests(cluster.client(user).await?, namespace);
            let refused = refusal(
                api.patch_status("mine", &PatchParams::default(), &active)
                    .await,
            )?;
            assert_eq!(
                (refused.code, refused.reason.as_str()),
                (403, "StatusReserved"),
                "{user}"
            );
        }
        let operator = requests(cluster.client(OPERATOR).await?, namespace);
        let written = operator
            .patch_status("mine", &PatchParams::default(), &active)
            .await?;
        assert!(written.status.is_some_and(|status| status.ready));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn request_with_unknown_template_is_created_with_warning() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "unknown", async |namespace| {
        let file = cluster.state_dir().join(format!("{}.json", namespace.name()));
        std::fs::write(&file, request("early", "later").to_string())?;
        let output = cluster
            .kubectl("admin")
            .args(["create", "-n", namespace.name(), "-f"])
            .arg(&file)
            .output()?;
        assert!(output.status.success());
        let told = String::from_utf8(output.stderr)?;
        let warning = "Warning: ExecAccessTemplate later does not exist; the request stays Pending until it does";
        assert!(told.contains(warning), "{told}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_garbage_collector_follows_a_deleted_template_or_lets_go_of_it() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "collect", async |namespace| {
        let namespace = namespace.name();
        let client = cluster.client("admin").await?;
        let_use(cluster, namespace, "oz-request-access", "devs")?;
        let alice = requests(cluster.client("alice").await?, namespace);
        let templates = Api::<ExecAccessTemplate>::namespaced(client, namespace);
        for name in ["gone", "freed"] {
            create_template(cluster, namespace, template(name)).await?;
            alice
                .create(&PostParams::default(), &parsed(request(name, name))?)
                .await?;
        }
        // The collector discovers new kinds only every 30 s, and does not delete objects of a kind
        // that it does not know yet. So the request to be deleted is the first.
        templates
            .delete("gone", &DeleteParams::background())
            .await?;
        eventually(
            "the request to be deleted with its template",
            CONDITION_TIMEOUT,
            async || Ok(alice.get_opt("gone").await?.is_none().then_some(())),
        )
        .await?;

        let orphan = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Orphan),
            ..DeleteParams::default()
        };
        templates.delete("freed", &orphan).await?;
        eventually(
            "the request to lose its owner",
            CONDITION_TIMEOUT,
            async || {
                let freed = alice.get("freed").await?;
                Ok(freed.owner_references().is_empty().then_some(()))
            },
        )
        .await
    })
    .await
}

#[tokio::test]
async fn the_operator_can_try_the_stamp_in_its_own_namespace() -> Result<()> {
    let cluster = cluster().await?;
    let operator = requests(cluster.client(OPERATOR).await?, NAMESPACE);
    let object: ExecAccessRequest = parsed(request("canary", "canary"))?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };

    let answer = operator.create(&dry_run, &object).await?;

    assert_eq!(believed(cluster, &answer).await?.user, OPERATOR);
    let refused = refusal(operator.create(&PostParams::default(), &object).await)?;
    assert_eq!(refused.reason, "ReservedNamespace");
    Ok(())
}
