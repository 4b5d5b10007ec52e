//! AccessPolicies in a cluster that tests share: each is about one namespace, and is deleted at the end of
//! its test, in any case.

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use oz_api::{
    AccessPolicy, AccessPolicySpec, ApprovalRule, PolicyApproval, PolicyDenial, PolicyThen, labels,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};

use crate::{Scene, TEMPLATE, exec_request};

/// Returns a policy about the requests in the namespace of a scene for which `also` holds.
#[must_use]
pub fn policy(scene: &Scene, name: &str, also: &str, then: PolicyThen) -> AccessPolicy {
    let spec = AccessPolicySpec {
        r#match: format!("request.namespace == '{}' && ({also})", scene.name()),
        time_zone: None,
        then,
    };
    AccessPolicy::new(&format!("{}-{name}", scene.name()), spec)
}

/// Returns the effect that a request is denied.
#[must_use]
pub fn deny(message: &str) -> PolicyThen {
    PolicyThen {
        deny: Some(PolicyDenial {
            message: message.to_owned(),
        }),
        ..PolicyThen::default()
    }
}

/// Returns the effect that access is shortened to a maximum duration.
#[must_use]
pub fn at_most(duration: &str) -> PolicyThen {
    PolicyThen {
        max_duration: Some(duration.to_owned()),
        ..PolicyThen::default()
    }
}

/// Returns the effect that a request requires approvals.
#[must_use]
pub fn agreed(rule: ApprovalRule) -> PolicyThen {
    PolicyThen {
        approval: Some(PolicyApproval {
            rules: vec![rule],
            timeout: None,
            require_reason: false,
            unless: Vec::new(),
        }),
        ..PolicyThen::default()
    }
}

/// Creates policies, runs `body` once the webhook evaluates them, and deletes the remaining ones.
///
/// # Errors
/// As `body`, or when the API server refuses a policy.
pub async fn with_policies(
    scene: &Scene,
    policies: &[AccessPolicy],
    body: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let api = Api::<AccessPolicy>::all(scene.admin.clone());
    let run = async {
        for policy in policies {
            api.create(&PostParams::default(), policy).await?;
            are_asked(scene, policy_name(policy)?, true).await?;
        }
        body().await
    };
    let ran = run.await;
    for policy in policies {
        remove(scene, policy_name(policy)?).await?;
    }
    ran
}

fn policy_name(policy: &AccessPolicy) -> Result<&str> {
    policy.metadata.name.as_deref().context("no name")
}

/// Deletes a policy if it exists, and waits until the webhook no longer evaluates it.
///
/// # Errors
/// As the API server responds.
pub async fn remove(scene: &Scene, name: &str) -> Result<()> {
    let api = Api::<AccessPolicy>::all(scene.admin.clone());
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => drop(other?),
    }
    are_asked(scene, name, false).await
}

/// Waits until the webhook evaluates, or does not evaluate, a policy that matches every request of alice by
/// [`TEMPLATE`].
///
/// # Errors
/// When the webhook takes too long.
pub async fn are_asked(scene: &Scene, name: &str, asked: bool) -> Result<()> {
    let alice = scene.requests("alice").await?;
    let request = exec_request("probe", TEMPLATE, "1m");
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let what = format!("policy {name} to be asked ({asked})");
    eventually(&what, CONDITION_TIMEOUT, async || {
        let told = match alice.api().create(&dry, &request).await {
            Ok(stamped) => stamped
                .metadata
                .annotations
                .and_then(|all| all.get(labels::REQUESTER).cloned())
                .unwrap_or_default(),
            Err(kube::Error::Api(status)) => status.message.clone(),
            Err(error) => return Err(error.into()),
        };
        anyhow::ensure!(told.contains(name) == asked, "{told}");
        Ok(Some(()))
    })
    .await
}
