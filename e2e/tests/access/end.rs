//! The end of access: expiry at its second, revocation, and drift.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use oz_api::{ExecAccessRequest, ExecAccessTemplate, Phase, TargetKind};
use oz_e2e::{
    GrantedRequest, Scene, TEMPLATE, WORKLOAD, conditions_line, exec_request, exec_template,
    records_about, records_of,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;
use serde_json::json;

use crate::{scene, system};

/// Waits until no object of the grant exists, and returns the time at which the binding was seen to be deleted.
async fn gone(scene: &Scene, asked: &GrantedRequest) -> Result<Timestamp> {
    let name = asked.object_name();
    let within = Duration::from_secs(60);
    scene.gone::<RoleBinding>(&name, within).await?;
    let at = Timestamp::now();
    scene
        .gone::<Role>(&asked.role_name(), CONDITION_TIMEOUT)
        .await?;
    Ok(at)
}

#[tokio::test]
async fn access_ends_at_its_time_and_not_before() -> Result<()> {
    let scene = scene("expiry").await?;
    let alice = scene.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("brief", TEMPLATE, "5s"))
        .await?;
    let until = asked.status().expires_at.context("no end")?;
    let ended = gone(&scene, &asked).await?;
    assert!(ended >= until, "{ended} is before {until}");
    let status = alice.phase("brief", Phase::Expired).await?;
    assert!(!status.ready);
    assert!(conditions_line(&status).contains("AccessStillValid=False (Timeout: Access expired)"));
    assert_eq!(status.expires_at, Some(until));
    let operator = &system().await?.operator.process;
    assert_eq!(
        records_about(operator, &asked.request)?,
        [Action::AccessGranted, Action::AccessExpired]
    );
    Ok(())
}

#[tokio::test]
async fn deleting_a_request_revokes() -> Result<()> {
    let scene = scene("delete").await?;
    let alice = scene.requests("alice").await?;
    for (name, propagation) in [
        ("background", PropagationPolicy::Background),
        ("foreground", PropagationPolicy::Foreground),
        ("orphan", PropagationPolicy::Orphan),
    ] {
        let asked = alice.granted(&exec_request(name, TEMPLATE, "5m")).await?;
        let how = DeleteParams {
            propagation_policy: Some(propagation),
            ..DeleteParams::default()
        };
        alice.api().delete(name, &how).await?;
        gone(&scene, &asked).await?;
        let operator = &system().await?.operator.process;
        eventually("the record of it", CONDITION_TIMEOUT, async || {
            let records = records_of(operator, scene.name(), name)?;
            Ok((records.last() == Some(&Action::AccessRevoked)).then_some(()))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_template_that_is_deleted_or_broken_after_the_grant_does_not_extend_it() -> Result<()> {
    let scene = scene("broken").await?;
    let alice = scene.requests("alice").await?;
    let templates: kube::Api<ExecAccessTemplate> = scene.api();
    let kept = exec_template("kept", TargetKind::Deployment, WORKLOAD);
    scene.template(&kept).await?;
    let first = alice
        .granted(&exec_request("orphaned", "kept", "6s"))
        .await?;
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    templates.delete("kept", &orphan).await?;
    let second = alice
        .granted(&exec_request("widened", TEMPLATE, "6s"))
        .await?;
    let wide = json!({"spec": {
        "accessConfig": {"defaultDuration": "100h", "maxDuration": "1000h", "allowedGroups": ["nobody"]},
        "controllerTargetRef": {"name": "elsewhere"},
    }});
    templates
        .patch(TEMPLATE, &PatchParams::default(), &Patch::Merge(&wide))
        .await?;
    for (asked, name) in [(first, "orphaned"), (second, "widened")] {
        let until = asked.status().expires_at.context("no end")?;
        assert!(gone(&scene, &asked).await? >= until);
        assert_eq!(
            alice.phase(name, Phase::Expired).await?.expires_at,
            Some(until)
        );
    }
    Ok(())
}

#[tokio::test]
async fn meddling_revokes() -> Result<()> {
    let scene = scene("drift").await?;
    let alice = scene.requests("alice").await?;
    for (name, meddle) in [
        ("rules", Tampering::Rules),
        ("subjects", Tampering::Subjects),
        ("unbound", Tampering::DeleteBinding),
        ("roleless", Tampering::DeleteRole),
        ("unlabelled", Tampering::Unlabel),
        ("binding-held", Tampering::HoldBinding),
        ("role-held", Tampering::HoldRole),
    ] {
        let asked = alice.granted(&exec_request(name, TEMPLATE, "5m")).await?;
        meddle.with(&scene, &asked).await?;
        let status = alice.phase(name, Phase::Revoked).await?;
        assert!(
            conditions_line(&status).contains("DriftDetected"),
            "{name}: {}",
            conditions_line(&status)
        );
        eventually(
            &format!("{name} to give nothing any more"),
            CONDITION_TIMEOUT,
            async || {
                let (role, _) = scene.grant(&asked.object_name()).await?;
                // A Role that a finalizer keeps has no rules any more.
                let rules = role.and_then(|role| role.rules).unwrap_or_default();
                Ok(rules.is_empty().then_some(()))
            },
        )
        .await?;
        assert!(
            !scene.can("alice", "get", &format!("pods/{}", asked.pod()))?,
            "{name}"
        );
        meddle.undo(&scene, &asked).await?;
    }
    Ok(())
}

enum Tampering {
    Rules,
    Subjects,
    DeleteBinding,
    DeleteRole,
    Unlabel,
    HoldBinding,
    HoldRole,
}

/// A finalizer that keeps an object from being deleted.
const HOLD: &str = "example.test/hold";

impl Tampering {
    /// Removes the finalizers of the test: they would block the deletion of the namespace.
    async fn undo(&self, scene: &Scene, asked: &GrantedRequest) -> Result<()> {
        let (name, merge) = (asked.object_name(), PatchParams::default());
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        match self {
            Self::HoldBinding => {
                let bindings = scene.api::<RoleBinding>();
                bindings.patch(&name, &merge, &free).await?;
            }
            Self::HoldRole => {
                scene
                    .api::<Role>()
                    .patch(&asked.role_name(), &merge, &free)
                    .await?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn with(&self, scene: &Scene, asked: &GrantedRequest) -> Result<()> {
        let name = asked.object_name();
        let merge = PatchParams::default();
        match self {
            Self::HoldBinding => {
                let hold = Patch::Merge(json!({"metadata": {"finalizers": [HOLD]}}));
                let bindings = scene.api::<RoleBinding>();
                bindings.patch(&name, &merge, &hold).await?;
            }
            Self::HoldRole => {
                let hold = Patch::Merge(json!({"metadata": {"finalizers": [HOLD]}}));
                scene
                    .api::<Role>()
                    .patch(&asked.role_name(), &merge, &hold)
                    .await?;
            }
            Self::Rules => {
                let rules = json!({"rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]}]});
                scene
                    .api::<Role>()
                    .patch(&asked.role_name(), &merge, &Patch::Merge(&rules))
                    .await?;
            }
            Self::Subjects => {
                let subjects = json!({"subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"},
                ]});
                scene
                    .api::<RoleBinding>()
                    .patch(&name, &merge, &Patch::Merge(&subjects))
                    .await?;
            }
            Self::DeleteBinding => {
                scene
                    .api::<RoleBinding>()
                    .delete(&name, &DeleteParams::default())
                    .await?;
            }
            Self::DeleteRole => {
                scene
                    .api::<Role>()
                    .delete(&asked.role_name(), &DeleteParams::default())
                    .await?;
            }
            Self::Unlabel => {
                let labels = json!({"metadata": {"labels": null}});
                scene
                    .api::<RoleBinding>()
                    .patch(&name, &merge, &Patch::Merge(&labels))
                    .await?;
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_foreign_role_of_the_same_name_is_in_nobodys_way_and_never_taken() -> Result<()> {
    let scene = scene("conflict").await?;
    system().await?.operator.reserves().await?;
    let alice = scene.requests("alice").await?;
    // The name is known as soon as the request has its UID, before its template exists.
    let waiting = alice.create(&exec_request("clash", "later", "5m")).await?;
    let asked = GrantedRequest { request: waiting };
    let foreign: Role = serde_json::from_value(json!({
        "metadata": {"name": asked.object_name(), "annotations": {"mine": "yes"}},
        "rules": [],
    }))?;
    let foreign = scene
        .api::<Role>()
        .create(&PostParams::default(), &foreign)
        .await?;
    scene
        .template(&exec_template("later", TargetKind::Deployment, WORKLOAD))
        .await?;
    // The Role has a reserved name.
    let granted = alice.ready("clash").await?;
    assert!(granted.status().role_name.is_some());
    alice
        .api()
        .delete("clash", &DeleteParams::default())
        .await?;
    let gone = CONDITION_TIMEOUT;
    scene.gone::<Role>(&granted.role_name(), gone).await?;
    let role = scene.api::<Role>().get(&asked.object_name()).await?;
    assert_eq!(
        role.metadata.resource_version,
        foreign.metadata.resource_version
    );
    Ok(())
}

#[tokio::test]
async fn a_namespace_with_grants_can_be_deleted() -> Result<()> {
    let scene = scene("teardown").await?;
    let alice = scene.requests("alice").await?;
    alice.granted(&exec_request("here", TEMPLATE, "5m")).await?;
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> =
        kube::Api::all(scene.admin.clone());
    namespaces
        .delete(scene.name(), &DeleteParams::default())
        .await?;
    eventually("the namespace to go", Duration::from_secs(60), async || {
        Ok(namespaces
            .get_opt(scene.name())
            .await?
            .is_none()
            .then_some(()))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_finished_request_says_so_to_kubectl_wait() -> Result<()> {
    let scene = scene("wait").await?;
    let alice = scene.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("waited", TEMPLATE, "4s"))
        .await?;
    let mut kubectl = scene.cluster.kubectl("alice");
    kubectl.args([
        "wait",
        "--for=condition=AccessStillValid=false",
        "--timeout=60s",
        "-n",
        scene.name(),
    ]);
    kubectl.arg(format!("execaccessrequest/{}", asked.request.name_any()));
    oz_e2e::run(kubectl)?;
    let request: ExecAccessRequest = alice.api().get("waited").await?;
    let status = request.status.context("no status")?;
    assert_eq!(status.phase, Phase::Expired);
    // A client that waits for access to begin learns that the access is over.
    let told = conditions_line(&status);
    for type_ in ["AccessResourcesCreated", "AccessResourcesReady"] {
        assert!(told.contains(&format!("{type_}=False (Expired")), "{told}");
    }
    Ok(())
}
