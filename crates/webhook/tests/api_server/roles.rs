//! The rights that the roles in `deploy/rbac` give, and those that they do not give.

use anyhow::Result;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use oz_testkit::{CONDITION_TIMEOUT, with_namespace};
use serde_json::json;

use super::support::*;

/// Checks whether the user, or a member of the group, has the right.
async fn may(
    reviews: &Api<SubjectAccessReview>,
    who: &str,
    what: &str,
    namespace: &str,
) -> Result<bool> {
    // As in `patch execaccessrequests/status.crds.wizardofoz.co`, optionally followed by a name.
    let (verb, resource) = what.split_once(' ').unwrap_or_default();
    let (resource, name) = resource.split_once(' ').unwrap_or((resource, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review: SubjectAccessReview = parsed(json!({ "spec": {
        "user": who,
        "groups": [who],
        "resourceAttributes": {
            "namespace": namespace, "verb": verb, "group": group, "resource": resource,
            "subresource": subresource, "name": name,
        },
    } }))?;
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// The rights that an account has, or that it lacks; each with the namespace.
type Rights = &'static [(&'static str, &'static str)];

const OPERATOR_MAY: Rights = &[
    ("create rolebindings.rbac.authorization.k8s.io", "shop"),
    ("create pods/exec", "shop"),
    ("delete pods", "shop"),
    ("create networkpolicies.networking.k8s.io", "shop"),
    ("get persistentvolumeclaims", "shop"),
    ("list jobs.batch", "shop"),
    ("get cronjobs.batch", "shop"),
    ("patch execaccessrequests/status.crds.wizardofoz.co", "shop"),
    ("create execaccessrequests.crds.wizardofoz.co", NAMESPACE),
    ("get secrets oz-operator-key", NAMESPACE),
    ("patch secrets oz-operator-public-keys", NAMESPACE),
    ("get secrets oz-webhook-public-keys", NAMESPACE),
];
const OPERATOR_MAY_NOT: Rights = &[
    ("create execaccessrequests.crds.wizardofoz.co", "shop"),
    ("update execaccesstemplates.crds.wizardofoz.co", "shop"),
    ("bind roles.rbac.authorization.k8s.io", "shop"),
    ("escalate roles.rbac.authorization.k8s.io", "shop"),
    ("create clusterroles.rbac.authorization.k8s.io", ""),
    ("get secrets oz-admission-ca", NAMESPACE),
    ("get secrets oz-webhook-key", NAMESPACE),
    ("get secrets oz-gate-key", NAMESPACE),
    ("patch secrets oz-webhook-public-keys", NAMESPACE),
    ("update secrets oz-webhook-public-keys", NAMESPACE),
    ("list secrets", NAMESPACE),
    ("get secrets", "shop"),
    ("update pods", "shop"),
    ("create jobs.batch", "shop"),
    ("list persistentvolumeclaims", "shop"),
];
const WEBHOOK_MAY: Rights = &[
    ("create subjectaccessreviews.authorization.k8s.io", ""),
    (
        "patch mutatingwebhookconfigurations.admissionregistration.k8s.io oz",
        "",
    ),
    ("get secrets oz-admission-ca", NAMESPACE),
    ("get secrets oz-webhook-key", NAMESPACE),
    ("patch secrets oz-webhook-public-keys", NAMESPACE),
    ("get secrets oz-operator-public-keys", NAMESPACE),
];
const WEBHOOK_MAY_NOT: Rights = &[
    (
        "patch mutatingwebhookconfigurations.admissionregistration.k8s.io other",
        "",
    ),
    (
        "create validatingwebhookconfigurations.admissionregistration.k8s.io",
        "",
    ),
    ("get secrets other", NAMESPACE),
    ("get secrets oz-operator-key", NAMESPACE),
    ("get secrets oz-gate-key", NAMESPACE),
    ("patch secrets oz-operator-public-keys", NAMESPACE),
    ("update secrets oz-operator-public-keys", NAMESPACE),
    ("create rolebindings.rbac.authorization.k8s.io", "shop"),
    ("create pods/exec", "shop"),
    ("patch execaccessrequests/status.crds.wizardofoz.co", "shop"),
];

#[tokio::test]
async fn operator_and_webhook_have_required_rights_only() -> Result<()> {
    let cluster = cluster().await?;
    let reviews = Api::<SubjectAccessReview>::all(cluster.client("admin").await?);
    for (who, rights, expected) in [
        (OPERATOR, OPERATOR_MAY, true),
        (OPERATOR, OPERATOR_MAY_NOT, false),
        (WEBHOOK, WEBHOOK_MAY, true),
        (WEBHOOK, WEBHOOK_MAY_NOT, false),
    ] {
        for (what, namespace) in rights {
            let answer = may(&reviews, who, what, namespace).await?;
            assert_eq!(answer, expected, "{who} {what} in {namespace}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn kubernetes_lets_the_operator_pass_on_what_it_has_and_nothing_else() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "escalate", async |namespace| {
        let client = cluster.client(OPERATOR).await?;
        let roles = Api::<Role>::namespaced(client.clone(), namespace.name());
        let bindings = Api::<RoleBinding>::namespaced(client, namespace.name());
        let role = |name: &str, resource: &str, verbs: &[&str]| {
            parsed::<Role>(json!({
                "metadata": { "name": name },
                "rules": [{
                    "apiGroups": [""], "resources": [resource], "resourceNames": ["web-0"], "verbs": verbs,
                }],
            }))
        };
        let post = PostParams::default();
        for (resource, verbs) in [
            ("pods", &["get", "list", "watch"][..]),
            ("pods/exec", &["get", "create"]),
            ("pods/attach", &["get", "create"]),
            ("pods/portforward", &["get", "create"]),
            ("pods/log", &["get"]),
        ] {
            let name = resource.replace('/', "-");
            roles.create(&post, &role(&name, resource, verbs)?).await?;
            let binding = json!({
                "metadata": { "name": name },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
                "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice" }],
            });
            bindings.create(&post, &parsed(binding)?).await?;
        }
        for (resource, verbs) in [("pods", &["update"][..]), ("pods/log", &["create"]), ("secrets", &["get"])] {
            let refused = refusal(roles.create(&post, &role("more", resource, verbs)?).await)?;
            assert!(refused.message.contains("attempting to grant RBAC permissions"), "{}", refused.message);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn people_may_ask_and_give_back_and_editors_write_no_templates() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "people", async |namespace| {
        let namespace = namespace.name();
        for role in ["view", "edit", "admin"] {
            let_use(cluster, namespace, role, &format!("{role}s"))?;
        }
        let reviews = Api::<SubjectAccessReview>::all(cluster.client("admin").await?);
        let on = |kind: &str, verb: &str| format!("{verb} {kind}.crds.wizardofoz.co");
        // The controller that aggregates roles needs a moment.
        oz_testkit::eventually(
            "the roles to be aggregated",
            CONDITION_TIMEOUT,
            async || {
                let what = on("execaccesstemplates", "create");
                Ok(may(&reviews, "admins", &what, namespace)
                    .await?
                    .then_some(()))
            },
        )
        .await?;
        for (group, kind, verb, expected) in [
            ("views", "podaccesstemplates", "list", true),
            ("views", "execaccessrequests", "get", true),
            ("views", "execaccessrequests", "create", false),
            ("edits", "execaccessrequests", "create", true),
            ("edits", "podaccessrequests", "delete", true),
            ("edits", "execaccessrequests", "update", false),
            ("edits", "execaccesstemplates", "get", true),
            ("edits", "execaccesstemplates", "create", false),
            ("edits", "podaccesstemplates", "update", false),
            ("admins", "podaccesstemplates", "delete", true),
            ("admins", "execaccessrequests", "create", true),
            ("admins", "execaccessrequests/status", "patch", false),
        ] {
            let what = on(kind, verb);
            assert_eq!(
                may(&reviews, group, &what, namespace).await?,
                expected,
                "{group} {what}"
            );
        }
        Ok(())
    })
    .await
}
