//! Transient bindings as users wrote them without oz: flat objects of a separate kind, two CompositeControllers, and
//! one
//! policy for OPA in a ConfigMap. None of them names oz.

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use oz_api::composite::CompositeController;
use oz_api::conditions;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use super::world::{LENDING_POLICIES, bound, create, role, stamps};
use crate::support::*;

const GROUP: &str = "lending.example.org";
const RBAC: &str = "rbac.authorization.k8s.io";

/// A policy with one child of the first declared kind, inside of the window; its conditions grow with each change.
const POLICY: &str = r#"package lending

instant(ns) = sprintf("%04d-%02d-%02dT%02d:%02d:%02dZ", array.concat(time.date(ns), time.clock(ns)))

children[child] {
    now := time.now_ns()
    now > time.parse_rfc3339_ns(input.parent.validFrom)
    now < time.parse_rfc3339_ns(input.parent.validUntil)
    child := {
        "apiVersion": input.controller.spec.childResources[0].apiVersion,
        "kind": split({key | input.children[key]}[_], ".")[0],
        "metadata": {"name": input.parent.metadata.name},
        "roleRef": input.parent.roleRef,
        "subjects": input.parent.subjects,
    }
}

status := {"conditions": array.concat(
    [new |
        not count(children) == count(input.children[_])
        new := {
            "type": "effective", "status": ["False", "True"][count(children)],
            "lastTransitionTime": instant(time.now_ns()),
        }
    ],
    [input.parent.status.conditions[i] | input.parent.status.conditions[i]],
)}
"#;

fn definition(kind: &str, plural: &str, scope: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"validFrom": {"type": "string"}, "validUntil": {"type": "string"}},
                }},
            }],
        },
    })
}

fn composite(plural: &str, children: &str) -> Value {
    json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": {"name": plural},
        "spec": {
            "parentResource": {
                "apiVersion": format!("{GROUP}/v1"), "resource": plural,
                "revisionHistory": {"fieldPaths": []},
            },
            "childResources": [{
                "apiVersion": format!("{RBAC}/v1"), "resource": children,
                "updateStrategy": {"method": "Recreate"},
            }],
            "generateSelector": true,
            "resyncPeriodSeconds": 300,
            "hooks": {"sync": {"webhook": {
                "url": format!("http://opa.{LENDING_POLICIES}:8181/v0/data/lending"), "timeout": "10s",
            }}},
        },
    })
}

fn policy(text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "lending", "namespace": LENDING_POLICIES},
        "data": {"controller.rego": text},
    })
}

fn loan(
    kind: &str,
    namespace: Option<&str>,
    name: &str,
    (from, until): (Timestamp, Timestamp),
) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "validFrom": from.to_string(), "validUntil": until.to_string(),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [
            {"kind": "ServiceAccount", "name": "default", "namespace": "default"},
            {"kind": "ServiceAccount", "name": "default", "namespace": "kube-public"},
        ],
    })
}

/// Applies all of it, as an administrator.
async fn apply_all(fixture: &Fixture) -> Result<()> {
    let rules = json!([
        {"apiGroups": [GROUP], "resources": ["loans", "clusterloans"],
         "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [GROUP], "resources": ["loans/status", "clusterloans/status"],
         "verbs": ["patch"]},
        {"apiGroups": [RBAC], "resources": ["rolebindings", "clusterrolebindings"],
         "verbs": ["list", "watch", "create", "patch", "delete"]},
        {"apiGroups": [RBAC], "resources": ["clusterroles"], "resourceNames": ["view"],
         "verbs": ["bind"]},
    ]);
    let manifests = json!({"apiVersion": "v1", "kind": "List", "items": [
        role("composites-lend", &rules),
        bound("composites-lend", "oz-composites"),
        definition("Loan", "loans", "Namespaced"),
        definition("ClusterLoan", "clusterloans", "Cluster"),
        policy(POLICY),
        composite("loans", "rolebindings"),
        composite("clusterloans", "clusterrolebindings"),
    ]});
    create(&fixture.admin, &manifests).await
}

/// Waits until both run, and their parents are stamped.
async fn ready(fixture: &Fixture) -> Result<()> {
    let composites = Api::<CompositeController>::all(fixture.admin.clone());
    for name in ["loans", "clusterloans"] {
        eventually(&format!("{name} to run"), CONDITION_TIMEOUT, async || {
            let status = composites.get(name).await?.status.unwrap_or_default();
            let found = conditions::find(&status.conditions, "Running");
            ensure!(
                found.is_some_and(|found| found.status == "True"),
                "{status:?}"
            );
            Ok(Some(()))
        })
        .await?;
        stamps(&fixture.admin, name).await?;
    }
    Ok(())
}

/// Returns the API of Loans.
fn loans(fixture: &Fixture) -> Api<DynamicObject> {
    let loans = ApiResource {
        group: GROUP.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{GROUP}/v1"),
        kind: "Loan".to_owned(),
        plural: "loans".to_owned(),
    };
    Api::namespaced_with(fixture.admin.clone(), fixture.name(), &loans)
}

/// Waits until the only condition of a Loan has this status, and returns the instant of its last change.
async fn effective(loans: &Api<DynamicObject>, name: &str, status: &str) -> Result<Timestamp> {
    let what = format!("{name} to be effective: {status}");
    let at = eventually(&what, CONDITION_TIMEOUT, async || {
        let conditions = loans.get(name).await?.data["status"]["conditions"].clone();
        let is_said = conditions[0]["type"] == "effective"
            && conditions[0]["status"] == status
            && conditions[1].is_null();
        ensure!(is_said, "{conditions}");
        Ok(Some(conditions[0]["lastTransitionTime"].clone()))
    })
    .await?;
    Ok(serde_json::from_value(at)?)
}

/// The policy writes only changes into the status, for which it compares the children in its request with those that it
/// returns: the status is False after the end of the window.
async fn is_effective_until_its_end(fixture: &Fixture, loans: &Api<DynamicObject>) -> Result<()> {
    let from = Timestamp::now() + SignedDuration::from_secs(1);
    let until = from + SignedDuration::from_secs(6);
    let brief = loan("Loan", Some(fixture.name()), "brief", (from, until));
    create(&fixture.admin, &json!({"items": [brief]})).await?;
    effective(loans, "brief", "True").await?;
    // The condition has whole seconds.
    let ended = effective(loans, "brief", "False").await?;
    ensure!(
        ended.as_second() >= until.as_second(),
        "it was told too early: {ended}"
    );
    let bindings = Api::<RoleBinding>::namespaced(fixture.admin.clone(), fixture.name());
    ensure!(
        bindings.get_opt("brief").await?.is_none(),
        "it was told before the deletion"
    );
    Ok(())
}

#[tokio::test]
async fn transient_bindings_of_others_run_unchanged_and_end_though_their_policy_is_broken()
-> Result<()> {
    oz().await?;
    let fixture = Fixture::set("lending").await?;
    apply_all(&fixture).await?;
    ready(&fixture).await?;
    let loans = loans(&fixture);
    is_effective_until_its_end(&fixture, &loans).await?;
    let from = Timestamp::now() + SignedDuration::from_secs(2);
    let until = from + SignedDuration::from_secs(15);
    let window = (from, until);
    let lent = json!({"items": [
        loan("Loan", Some(fixture.name()), "lent", window),
        loan("ClusterLoan", None, "lent", window),
    ]});
    create(&fixture.admin, &lent).await?;
    let bindings = Api::<RoleBinding>::namespaced(fixture.admin.clone(), fixture.name());
    let everywhere = Api::<ClusterRoleBinding>::all(fixture.admin.clone());
    let binding = eventually("a RoleBinding", CONDITION_TIMEOUT, async || {
        Ok(bindings.get_opt("lent").await?)
    })
    .await?;
    ensure!(Timestamp::now() > from, "it was there too early");
    let subjects = binding.subjects.unwrap_or_default();
    ensure!(
        subjects.len() == 2,
        "two subjects of one name: {subjects:?}"
    );
    eventually("a ClusterRoleBinding", CONDITION_TIMEOUT, async || {
        Ok(everywhere.get_opt("lent").await?)
    })
    .await?;
    effective(&loans, "lent", "True").await?;

    create(
        &fixture.admin,
        &json!({"items": [policy("package lending\n\nchildren[c] {")]}),
    )
    .await?;
    eventually("both bindings to go", CONDITION_TIMEOUT, async || {
        let left = bindings.get_opt("lent").await?.map(drop);
        let left = left.or(everywhere.get_opt("lent").await?.map(drop));
        Ok(left.is_none().then_some(()))
    })
    .await
    .context("while the policy is broken")?;
    ensure!(Timestamp::now() >= until, "they went too early");
    // Definitions that come and change are read.
    let events = Api::<Event>::namespaced(fixture.admin.clone(), "default");
    let unread = ListParams::default().fields("reason=Unreadable");
    let unread = events.list(&unread).await?.items;
    ensure!(unread.is_empty(), "{unread:?}");
    Ok(())
}
