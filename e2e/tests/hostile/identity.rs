//! Impersonation of other users.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_api::{ExecAccessRequest, Phase, PodAccessRequest, TransientRoleBinding, labels};
use oz_core::access::stamp::{self, MAX_DISTANCE};
use oz_e2e::{
    Operator, Options, Scene, TEMPLATE, conditions_line, exec_request, exec_template, pod_request,
    records_in, refusal, refused, unregister,
};
use oz_testkit::eventually;
use oz_trail::{Action, Decision};
use serde_json::json;

use crate::{SYSTEM, Stage};

/// Writing the stamp oneself: the webhook overwrites it with the authenticated user.
#[tokio::test]
async fn a_stamp_that_is_brought_along() -> Result<()> {
    let stage = Stage::set("brought").await?;
    let mallory = stage.requests("mallory").await?;
    let mut request = exec_request("mine", "later", "5m");
    let forged = json!({"user": "alice", "groups": ["devs"], "sig": "AAAA"}).to_string();
    request.metadata.annotations = Some(BTreeMap::from([
        (labels::REQUESTED_BY.to_owned(), "alice".to_owned()),
        (labels::REQUESTER.to_owned(), forged),
    ]));
    let stored = mallory.create(&request).await?;
    assert_eq!(stored.annotations()[labels::REQUESTED_BY], "mallory");
    let stamp = stamp::read(&stored.metadata).context("no stamp")?;
    assert!(stamp.contains("\"mallory\"") && !stamp.contains("alice"));
    Ok(())
}

/// Changing the stamp of an existing request, also as an administrator: the API server denies it, because the stamp is
/// immutable.
#[tokio::test]
async fn a_stamp_that_is_edited() -> Result<()> {
    let stage = Stage::set("edited").await?;
    let alice = stage.requests("alice").await?;
    alice.create(&exec_request("mine", TEMPLATE, "5m")).await?;
    for annotation in [labels::REQUESTER, labels::REQUESTED_BY] {
        let edit = json!({"metadata": {"annotations": {annotation: "mallory"}}}).to_string();
        let patch = ["patch", "execaccessrequest", "mine", "--type=merge", "-p"];
        let answer = stage
            .kubectl("admin", &[&patch[..], &[&edit]].concat())
            .output()?;
        assert!(refusal(&answer).is_some_and(|why| why.contains("immutable")));
    }
    Ok(())
}

/// Acting as alice (`--as`) without the right to impersonate: the API server denies it.
#[tokio::test]
async fn impersonation_without_right_is_refused() -> Result<()> {
    let stage = Stage::set("as").await?;
    let why = create_as_alice(&stage, "bob", &[]).await?;
    assert!(why.contains("cannot impersonate"), "{why}");
    Ok(())
}

/// Impersonating a user with a group (`--as-group`), with the right to impersonate users only: the API server denies
/// the group, and the user without groups is in no group of a template.
#[tokio::test]
async fn escalating_through_impersonated_groups() -> Result<()> {
    let stage = Stage::set("groups").await?;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": stage.name()},
        "rules": [{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": stage.name()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": stage.name()},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}],
    });
    let ask = [
        json!({"apiGroups": ["crds.wizardofoz.co"], "resources": ["*"], "verbs": ["create", "get"]}),
    ];
    stage.allow("alice-asks", "alice", &ask).await?;
    for (number, object) in [role, binding].into_iter().enumerate() {
        let path = stage
            .cluster
            .state_dir()
            .join(format!("{}-{number}", stage.name()));
        std::fs::write(&path, object.to_string())?;
        let path = path.to_string_lossy().into_owned();
        assert_eq!(
            refusal(&stage.kubectl("admin", &["create", "-f", &path]).output()?),
            None
        );
    }
    let with_group = create_as_alice(&stage, "mallory", &["devs"]).await?;
    assert!(with_group.contains("cannot impersonate"), "{with_group}");
    let alone = create_as_alice(&stage, "mallory", &[]).await?;
    assert!(alone.contains("alice is in none of the groups"), "{alone}");
    Ok(())
}

/// Creates a request as `user`, who impersonates alice and these groups, and returns the denial. It posts the request
/// directly, because kubectl's discovery calls hide the response.
async fn create_as_alice(stage: &Stage, user: &str, groups: &[&str]) -> Result<String> {
    let uri = format!(
        "/apis/crds.wizardofoz.co/v1alpha1/namespaces/{}/execaccessrequests",
        stage.name()
    );
    let mut request = http::Request::post(&uri)
        .header("content-type", "application/json")
        .header("Impersonate-User", "alice");
    for group in groups {
        request = request.header("Impersonate-Group", *group);
    }
    let body = serde_json::to_vec(&exec_request("mine", TEMPLATE, "5m"))?;
    let client = stage.cluster.client(user).await?;
    refused(client.request_text(request.body(body)?).await)
}

/// Requesting access as a service account by a template that allows no service account: the webhook denies it, also if
/// the template allows one of the account's groups.
#[tokio::test]
async fn a_service_account_where_none_is_allowed() -> Result<()> {
    let stage = Stage::set("account").await?;
    let account = format!("system:serviceaccount:{}:ci", stage.name());
    let mut template = exec_template("ci", oz_api::TargetKind::Deployment, oz_e2e::WORKLOAD);
    template.spec.access_config.allowed_groups = vec!["system:serviceaccounts".to_owned()];
    stage.template(&template).await?;
    stage
        .cluster
        .issue_kubeconfig(&account, &["system:serviceaccounts"])?;
    let ask =
        [json!({"apiGroups": ["crds.wizardofoz.co"], "resources": ["*"], "verbs": ["create"]})];
    stage.allow("ci-asks", &account, &ask).await?;
    let ci = stage.requests(&account).await?;
    let why = refused(ci.create(&exec_request("mine", "ci", "5m")).await)?;
    assert!(why.contains("does not allow service accounts"), "{why}");
    Ok(())
}

/// Sending the headers in which a proxy names the user: the API server ignores them without the proxy's client
/// certificate.
#[tokio::test]
async fn proxy_headers_without_proxy_certificate_are_ignored() -> Result<()> {
    let stage = Stage::set("headers").await?;
    let mallory = stage.cluster.client("mallory").await?;
    let body = serde_json::to_vec(&exec_request("mine", TEMPLATE, "5m"))?;
    let uri = format!(
        "/apis/crds.wizardofoz.co/v1alpha1/namespaces/{}/execaccessrequests",
        stage.name()
    );
    let request = http::Request::post(uri)
        .header("content-type", "application/json")
        .header("X-Remote-User", "alice")
        .header("X-Remote-Group", "devs")
        .body(body)?;
    let why = refused(mallory.request_text(request).await)?;
    assert!(why.contains("mallory is in none of the groups"), "{why}");
    Ok(())
}

/// Reusing a genuine stamp of alice after an administrator removed the webhook and the admission policies: the operator
/// denies the request if its name, namespace, kind or spec differs, if it has seen the stamp before, or if the stamp
/// and the creation of the request are more than 20 seconds apart.
#[tokio::test]
async fn a_stamp_that_is_replayed() -> Result<()> {
    let mut place = SYSTEM.write().await;
    let cluster = crate::cluster().await?;
    let mut system = match place.take() {
        Some(system) => system,
        None => crate::smaller::start(cluster).await?,
    };
    let (scene, elsewhere) = (
        Scene::set(cluster, "replayed").await?,
        Scene::set(cluster, "elsewhere").await?,
    );
    let alice = scene.requests("alice").await?;
    let original = alice
        .granted(&exec_request("named", TEMPLATE, "5m"))
        .await?
        .request;
    let stamped: Timestamp = serde_json::from_str::<serde_json::Value>(
        stamp::read(&original.metadata).context("no stamp")?,
    )?["at"]
        .as_str()
        .context("no instant")?
        .parse()?;
    system.webhook.process.kill9();
    unregister(cluster)?;
    let copy = |name: &str| {
        let mut copy: ExecAccessRequest = exec_request(name, TEMPLATE, "5m");
        copy.metadata
            .annotations
            .clone_from(&original.metadata.annotations);
        copy
    };
    let mallory = scene.requests("mallory").await?;
    let denied =
        async |requests: &oz_e2e::ExecRequests, request: &ExecAccessRequest, reason: &str| {
            requests.create(request).await?;
            let status = requests.phase(&request.name_any(), Phase::Denied).await?;
            let line = conditions_line(&status);
            assert!(
                line.contains(&format!("RequesterVerified=False ({reason}")),
                "{line}"
            );
            Ok::<_, anyhow::Error>(())
        };
    denied(&mallory, &copy("other"), "StampOfAnotherRequest").await?;
    let there = elsewhere.requests("mallory").await?;
    denied(&there, &copy("named"), "StampOfAnotherRequest").await?;
    let pods = scene.pod_requests("mallory").await?;
    let mut pod: PodAccessRequest = pod_request("named", TEMPLATE, "5m");
    pod.metadata
        .annotations
        .clone_from(&original.metadata.annotations);
    pods.create(&pod).await?;
    let status = pods.phase("named", Phase::Denied).await?;
    assert!(conditions_line(&status).contains("StampOfAnotherRequest"));

    // The stamp on a request with the original name, after the original is deleted.
    let free = async || {
        alice
            .api()
            .delete("named", &DeleteParams::default())
            .await?;
        eventually("the name to be free", Duration::from_secs(60), async || {
            Ok(alice.api().get_opt("named").await?.is_none().then_some(()))
        })
        .await
    };
    free().await?;
    let mut longer = copy("named");
    longer.spec.duration = Some("24h".to_owned());
    denied(&mallory, &longer, "StampOfAnotherRequest").await?;
    free().await?;
    denied(&mallory, &copy("named"), "StampReplayed").await?;
    free().await?;
    // A new process does not remember the stamp, so the age of the stamp decides.
    system.operator.process.kill9();
    let _operator = Operator::start(cluster, &Options::default()).await?;
    let old = stamped + MAX_DISTANCE + SignedDuration::from_secs(2);
    eventually("the stamp to be old", Duration::from_secs(60), async || {
        Ok((Timestamp::now() > old).then_some(()))
    })
    .await?;
    denied(&mallory, &copy("named"), "StampTimeMismatch").await?;
    Ok(())
}

/// Writing another user's genuine stamp on a granted request after an administrator removed the webhook and the
/// admission policies: the operator revokes the grant.
#[tokio::test]
async fn a_stamp_that_is_exchanged_after_the_grant() -> Result<()> {
    let mut place = SYSTEM.write().await;
    let cluster = crate::cluster().await?;
    let mut system = match place.take() {
        Some(system) => system,
        None => crate::smaller::start(cluster).await?,
    };
    let scene = Scene::set(cluster, "exchanged").await?;
    let (alice, mallory) = (
        scene.requests("alice").await?,
        scene.requests("mallory").await?,
    );
    alice.granted(&exec_request("mine", TEMPLATE, "5m")).await?;
    let other = mallory
        .create(&exec_request("other", "later", "5m"))
        .await?;
    system.webhook.process.kill9();
    unregister(cluster)?;
    let stamp = stamp::read(&other.metadata).context("no stamp")?;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {labels::REQUESTER: stamp}}}));
    let requests: Api<ExecAccessRequest> = Api::namespaced(scene.admin.clone(), scene.name());
    requests
        .patch("mine", &PatchParams::default(), &patch)
        .await?;
    let status = alice.phase("mine", Phase::Revoked).await?;
    let line = conditions_line(&status);
    assert!(line.contains("the stamp of mine was changed"), "{line}");
    Ok(())
}

const BINDINGS: &str = "transientrolebindings";
const SOON: Duration = Duration::from_secs(60);

/// Deleting another user's transient binding with every right that a requester needs: the webhook denies it; a user
/// with the verb `revoke` deletes it, and the audit record names that user and the requester.
#[tokio::test]
async fn binding_of_another_user_is_deleted_with_right_to_revoke_only() -> Result<()> {
    let stage = Stage::set("others-binding").await?;
    let group = json!(["crds.wizardofoz.co"]);
    let asks = json!({
        "apiGroups": group, "resources": [BINDINGS],
        "verbs": ["create", "get", "list", "watch", "delete"],
    });
    let binds = json!({
        "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
        "verbs": ["bind"],
    });
    let revokes = json!({"apiGroups": group, "resources": [BINDINGS], "verbs": ["revoke"]});
    stage
        .allow("asks-alice", "alice", &[asks.clone(), binds])
        .await?;
    stage
        .allow("asks-mallory", "mallory", std::slice::from_ref(&asks))
        .await?;
    stage.allow("revokes-bob", "bob", &[asks, revokes]).await?;
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": format!("team-{}", stage.name())},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
    }))?;
    let roles: Api<ClusterRole> = Api::all(stage.admin.clone());
    let role = roles.create(&PostParams::default(), &role).await?;
    let of = async |user: &str| -> Result<Api<TransientRoleBinding>> {
        Ok(Api::namespaced(
            stage.cluster.client(user).await?,
            stage.name(),
        ))
    };
    let asked: TransientRoleBinding = serde_json::from_value(json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "TransientRoleBinding",
        "metadata": {"name": "mine"},
        "spec": {
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role.name_any(),
            },
            "subjects": [{"kind": "User", "name": "alice"}],
            // oz may not bind this role, and does not need to, because the window has not opened.
            "validFrom": Timestamp::now() + SignedDuration::from_hours(1),
            "duration": "10m",
        },
    }))?;
    of("alice")
        .await?
        .create(&PostParams::default(), &asked)
        .await?;
    let now = DeleteParams::default();
    let why = refused(of("mallory").await?.delete("mine", &now).await)?;
    assert!(why.contains("oz-revoke-access"), "{why}");
    of("bob").await?.delete("mine", &now).await?;
    let record = eventually("the deletion to be on record", SOON, async || {
        let mut records = records_in(&stage.oz()?.webhook.process)?;
        records.retain(|record| {
            record.action == Action::RequestDeleted
                && record.decision == Decision::End
                && record.request.namespace == stage.name()
        });
        Ok(records.pop())
    })
    .await?;
    assert_eq!(record.request.kind, "TransientRoleBinding");
    assert_eq!(record.details["requester"], "alice");
    assert_eq!(record.user.context("no user")?.user, "bob");
    Ok(())
}
